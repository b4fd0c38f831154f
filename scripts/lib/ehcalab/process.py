# SPDX-License-Identifier: GPL-2.0-or-later
"""Processes of a lab: started with a log, watched, stopped for certain."""
from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from .paths import script

PR_SET_PDEATHSIG = 1
TERM_PATIENCE = 5.0
POLL = 0.02
TAIL_LINES = 8
_LIBC = ctypes.CDLL(None)


class LabError(Exception):
    """Something of the lab failed; the text names it and the log to read."""


def die_with_parent(signum: int = signal.SIGKILL) -> Callable[[], None]:
    """For the child: get a signal when its parent dies, even by -9."""
    def prepare() -> None:
        _LIBC.prctl(PR_SET_PDEATHSIG, signum)
    return prepare


def tail(path: Path, lines: int = TAIL_LINES) -> str:
    """The end of a log, indented, for an error message."""
    try:
        text = path.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    return "\n".join("    " + line for line in text[-lines:])


def _stat(pid: int) -> list[str] | None:
    """/proc/PID/stat from the state on; None: it does not run (a zombie
    does not)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    words = text.rpartition(")")[2].split()
    return None if not words or words[0] in "ZX" else words


def started(pid: int) -> int | None:
    """When it was started, in ticks since the boot; None: it does not run."""
    words = _stat(pid)
    return None if words is None else int(words[19])


def alive(pid: int) -> bool:
    """Whether a process runs."""
    return _stat(pid) is not None


def how_it_ended(code: int) -> str:
    """A wait status in words."""
    if code >= 0:
        return f"ended with exit status {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


class Process:
    """One child with its output in a log file."""

    def __init__(self, name: str, argv: Sequence[str], log: Path,
                 detached: bool = False) -> None:
        self.name = name
        self.log = log
        try:
            with log.open("ab") as out:
                self._popen = subprocess.Popen(
                    list(argv), stdin=subprocess.DEVNULL, stdout=out,
                    stderr=subprocess.STDOUT, start_new_session=True,
                    preexec_fn=None if detached else die_with_parent())
        except OSError as exc:
            raise LabError(f"{name}: cannot start {argv[0]}: "
                           f"{exc.strerror}; build it: {script('setup')}"
                           ) from exc
        self.pid = self._popen.pid

    def record(self) -> dict[str, Any]:
        """What another ehcalab needs to know it again."""
        return {"pid": self.pid, "started": started(self.pid),
                "log": str(self.log)}

    def ended(self) -> str:
        """How it ended, in words; "" while it runs."""
        code = self._popen.poll()
        return "" if code is None else how_it_ended(code)

    def check(self) -> None:
        """LabError if it ended."""
        how = self.ended()
        if how:
            end = tail(self.log)
            raise LabError(f"{self.name} {how}; its log is {self.log}"
                           + (f":\n{end}" if end else ""))

    def wait(self, seconds: float) -> bool:
        """Whether it ended within some seconds."""
        try:
            self._popen.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def signal(self, signum: int) -> None:
        """Send it a signal; nothing if it has ended."""
        self._popen.send_signal(signum)

    def kill(self) -> None:
        """SIGKILL and wait."""
        self.signal(signal.SIGKILL)
        self.wait(TERM_PATIENCE)

    def stop(self, patience: float = TERM_PATIENCE) -> bool:
        """SIGTERM, patience, SIGKILL; whether SIGTERM did."""
        self.signal(signal.SIGTERM)
        if self.wait(patience):
            return True
        self.kill()
        return False


class Adopted(Process):
    """A process that another ehcalab started and recorded.

    Its number alone could be another process's by now; number and time of
    its start are not.
    """

    # pylint: disable=super-init-not-called
    def __init__(self, name: str, record: dict[str, Any]) -> None:
        self.name = name
        self.log = Path(record["log"])
        self.pid = record["pid"]
        self._started = record["started"]

    def record(self) -> dict[str, Any]:
        return {"pid": self.pid, "started": self._started,
                "log": str(self.log)}

    def ended(self) -> str:
        now = started(self.pid)
        return "has ended" if now is None or now != self._started else ""

    def wait(self, seconds: float) -> bool:
        until = time.monotonic() + seconds
        while not self.ended():
            if time.monotonic() >= until:
                return False
            time.sleep(POLL)
        return True

    def signal(self, signum: int) -> None:
        if not self.ended():
            try:
                os.kill(self.pid, signum)
            except ProcessLookupError:
                pass


# -- groups -----------------------------------------------------------------

def group_members(group: int) -> list[int]:
    """The processes of a process group that run."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            words = _stat(int(entry.name))
            if words is not None and int(words[2]) == group:
                found.append(int(entry.name))
    return found


def stop_group(popen: subprocess.Popen[Any],
               patience: float = TERM_PATIENCE) -> None:
    """End a child that leads a process group, and all of that group."""
    group = popen.pid
    for signum in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(group, signum)
        except (ProcessLookupError, PermissionError):
            pass
        until = time.monotonic() + patience
        while time.monotonic() < until:
            popen.poll()
            if not group_members(group):
                return
            time.sleep(POLL)
