# SPDX-License-Identifier: GPL-2.0-or-later
"""Talk to QEMU's guest agent in a guest: run programs, ask the time."""
from __future__ import annotations

import base64
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .jsonsock import ControlError, JsonSocket, busy

EXEC_POLL = 0.02
PING_TIMEOUT = 2.0
# The agent does not answer guest-shutdown unless it fails.
POWER_OFF_PATIENCE = 1.0


class StillRuns(ControlError):
    """A program in a guest takes too long; the guest itself is fine."""


@dataclass
class Finished:
    """A program that ran in a guest."""

    code: int
    out: str
    err: str


class GuestAgent:
    """The agent of one guest."""

    def __init__(self, path: Path, node: str,
                 alive: Callable[[], None] = lambda: None,
                 timeout: float = 10.0) -> None:
        self.node = node
        self._sock = JsonSocket(path, f"guest agent of {node}", alive=alive,
                                timeout=timeout)

    def answers(self, timeout: float) -> str:
        """Whether the guest is alive to it: "", or what is wrong."""
        try:
            self._sock.command("guest-ping", timeout=timeout)
        except ControlError:
            # Who is not served must not take the guest for dead.
            return busy(self._sock.path, 0) or "its guest agent is silent"
        return ""

    def wait_ready(self, timeout: float, alive: Callable[[], None]) -> None:
        """Wait until the agent answers.

        Before the guest runs it, nobody reads the port: a ping that is not
        answered is asked again.  alive() raises when waiting is in vain.
        """
        until = time.monotonic() + timeout
        while True:
            alive()
            try:
                self._sock.command("guest-ping", timeout=PING_TIMEOUT)
                return
            except ControlError:
                if time.monotonic() > until:
                    raise

    def run(self, argv: list[str], timeout: float = 60.0) -> Finished:
        """Run a program in the guest and wait for its end."""
        started = self._sock.command("guest-exec", {
            "path": argv[0], "arg": argv[1:], "capture-output": True})
        until = time.monotonic() + timeout
        while True:
            status = self._sock.command("guest-exec-status",
                                        {"pid": started["pid"]})
            if status["exited"]:
                break
            if time.monotonic() > until:
                raise StillRuns(
                    f"{self.node}: {' '.join(argv)!r} did not end within "
                    f"{timeout:g} s")
            time.sleep(EXEC_POLL)

        def text(key: str) -> str:
            return base64.b64decode(status.get(key, "")).decode(
                errors="replace")

        code = status.get("exitcode", 128 + status.get("signal", 0))
        return Finished(code, text("out-data"), text("err-data"))

    def shell(self, script: str, timeout: float = 60.0) -> Finished:
        """Run a line of shell in the guest."""
        return self.run(["/bin/sh", "-c", script], timeout)

    def clock_offset(self, samples: int = 5) -> float:
        """Seconds to add to the guest's clock to get the host's, at most.

        An upper bound: the guest's answer was written before it arrived here.
        So no event of a guest is shown before it happened.
        """
        best = float("inf")
        for _ in range(samples):
            guest_ns = self._sock.command("guest-get-time")
            best = min(best, time.time() - guest_ns / 1e9)
        return best

    def power_off(self) -> None:
        """Ask the guest to power off; it says nothing in return."""
        try:
            self._sock.command("guest-shutdown", {"mode": "powerdown"},
                               timeout=POWER_OFF_PATIENCE)
        except ControlError:
            pass

    def close(self) -> None:
        """Close the connection."""
        self._sock.close()
