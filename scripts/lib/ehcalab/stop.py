# SPDX-License-Identifier: GPL-2.0-or-later
"""Being told to stop: by Ctrl-C, SIGTERM, SIGHUP, or a pipe nobody reads.

Theory of operation
  listen() makes each of these signals raise Stopped in the main thread,
  wherever that is.  What must be undone when the program ends, however it
  ends, is given to at_end(), and clean_up() does it, last things first.

  Two things must not be cut in half: starting a process and noting it (it
  would be left behind), and cleaning up.  They stand in "with held():"; a
  signal that comes meanwhile is raised when that block is left.
"""
from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(KeyboardInterrupt):
    """The program was told to stop."""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signal.Signals(signum)

    @property
    def status(self) -> int:
        """The exit status, as a shell would have it."""
        return 128 + self.signum


class _State:
    """Of the one program there is."""

    def __init__(self) -> None:
        self.held = 0
        self.pending: int | None = None
        self.pipe_broke = False
        self.undo: list[Callable[[], object]] = []


_state = _State()


def _on_signal(signum: int, _frame: object) -> None:
    if _state.pipe_broke:
        signum = signal.SIGPIPE
    if _state.held:
        _state.pending = signum
        return
    raise Stopped(signum)


def listen() -> None:
    """Have the signals raise Stopped; what is ignored (nohup) stays so."""
    for signum in SIGNALS:
        if signal.getsignal(signum) is not signal.SIG_IGN:
            signal.signal(signum, _on_signal)


@contextlib.contextmanager
def held() -> Iterator[None]:
    """Put signals off until the end of the block; main thread only."""
    _state.held += 1
    try:
        yield
    finally:
        _state.held -= 1
        if not _state.held and _state.pending is not None:
            signum, _state.pending = _state.pending, None
            raise Stopped(signum)


def too_late() -> bool:
    """In held(), before the program's last act: whether no signal has come.

    If so, none will be taken any more; else held() raises it.
    """
    if _state.pending is not None:
        return False
    _ignore()
    return True


def _ignore() -> None:
    for signum in SIGNALS:
        signal.signal(signum, signal.SIG_IGN)


def pipe_broke() -> None:
    """From any thread: nobody reads what the program prints."""
    if not _state.pipe_broke:
        _state.pipe_broke = True
        main = threading.main_thread().ident
        assert main is not None
        # A real signal, so that the main thread's waiting ends.
        signal.pthread_kill(main, signal.SIGTERM)


def at_end(undo: Callable[[], object]) -> None:
    """Have something undone when the program ends."""
    _state.undo.append(undo)


def forget(undo: Callable[[], object]) -> None:
    """It was undone, or it is to stay."""
    if undo in _state.undo:
        _state.undo.remove(undo)


def clean_up() -> bool:
    """Undo everything, whatever fails on the way; whether there was anything.

    The program is at its end: signals have nothing more to stop.
    """
    found = bool(_state.undo)
    failed: OSError | None = None
    with held():
        while _state.undo:
            try:
                _state.undo.pop()()
            except OSError as exc:
                failed = exc
        _ignore()
    if failed is not None:
        raise failed
    return found
