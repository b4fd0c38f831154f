# SPDX-License-Identifier: GPL-2.0-or-later
"""Processes of a lab: started with a log, watched, stopped for certain."""
from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

PR_SET_PDEATHSIG = 1
TERM_PATIENCE = 5.0
TAIL_LINES = 8


class LabError(Exception):
    """Something of the lab failed; the text names it and the log to read."""


def _die_with_parent() -> None:
    """In the child: be killed when the runner dies, even by -9."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def tail(path: Path, lines: int = TAIL_LINES) -> str:
    """The end of a log, indented, for an error message."""
    try:
        text = path.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    return "\n".join("    " + line for line in text[-lines:])


def alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2]
    except OSError:
        return False
    return state.split()[0] not in "ZX"


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
                    preexec_fn=None if detached else _die_with_parent)
        except OSError as exc:
            raise LabError(f"{name}: cannot start {argv[0]}: "
                           f"{exc.strerror}; scripts/setup builds it") \
                from exc
        self.pid = self._popen.pid

    def code(self) -> int | None:
        """Exit status, None while it runs."""
        return self._popen.poll()

    def check(self) -> None:
        """LabError if it ended."""
        code = self.code()
        if code is not None:
            how = (f"was killed by {signal.Signals(-code).name}" if code < 0
                   else f"ended with exit status {code}")
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

    def kill(self) -> None:
        """SIGKILL and wait."""
        if self.code() is None:
            self._popen.kill()
        self._popen.wait()

    def stop(self) -> None:
        """SIGTERM, patience, SIGKILL."""
        if self.code() is None:
            self._popen.terminate()
            if self.wait(TERM_PATIENCE):
                return
        self.kill()


def stop_pid(pid: int) -> None:
    """Stop a process that another runner started."""
    for sig, patience in ((signal.SIGTERM, TERM_PATIENCE),
                          (signal.SIGKILL, TERM_PATIENCE)):
        if not alive(pid):
            return
        try:
            os.kill(pid, sig)
        except ProcessLookupError:
            return
        until = time.monotonic() + patience
        while alive(pid) and time.monotonic() < until:
            time.sleep(0.02)
