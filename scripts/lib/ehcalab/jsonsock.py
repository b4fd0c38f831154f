# SPDX-License-Identifier: GPL-2.0-or-later
"""JSON over a unix socket, in QMP's manners.

QEMU's monitor and the fabric's control socket speak alike (a greeting,
{"execute": ...}, asynchronous events), QEMU's guest agent nearly so; this is
the one client for all of them.  A thread reads; answers go to the caller who
waits, events to a callback.
"""
from __future__ import annotations

import json
import queue
import random
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Longest line accepted from the other side; a report of many QPs is long.
LINE_MAX = 64 << 20
CONNECT_POLL = 0.02
# Who listens takes a connection at once, unless it serves another.
ACCEPT_PATIENCE = 2.0
UNIX_SOCKETS = Path("/proc/net/unix")


class ControlError(Exception):
    """The other side did not do a command; the text says which and why."""


class Refused(ControlError):
    """It answered that it will not."""


def _peers(path: Path) -> tuple[bool, bool]:
    """Whether someone waits to be taken by a socket's listener, and whether
    it has taken someone.

    QEMU serves one connection of a socket at a time; others connect and are
    left in the queue without a word.  In /proc/net/unix they have inode 0.
    """
    waits = taken = False
    for line in UNIX_SOCKETS.read_text(errors="replace").splitlines():
        words = line.split(None, 7)
        if len(words) == 8 and words[7] == str(path):
            waits = waits or words[6] == "0"
            # SO_ACCEPTCON: the listener itself.
            taken = taken or words[6] != "0" and words[3] == "00000000"
    return waits, taken


def busy(path: Path, patience: float = ACCEPT_PATIENCE) -> str:
    """After connecting: why we are not served; "" if we are."""
    until = time.monotonic() + patience
    try:
        while True:
            waits, taken = _peers(path)
            if not waits:
                return ""
            if time.monotonic() >= until:
                return ("another one is connected" if taken
                        else "it takes no connection")
            time.sleep(CONNECT_POLL)
    except OSError:
        return ""           # no /proc: nothing is known


def connect(path: Path | str) -> socket.socket:
    """Connect to a unix socket, now or not at all.

    A listener that takes nobody has a full queue at some time, and a
    connect() that blocks waits for it for ever.
    """
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.setblocking(False)
        sock.connect(str(path))
        sock.setblocking(True)
    except BlockingIOError as exc:
        sock.close()
        raise OSError(exc.errno, "it takes no connection") from exc
    except OSError:
        sock.close()
        raise
    return sock


class JsonSocket:
    """One connection; commands from any thread, one at a time.

    The other side may only be starting: connecting is tried again until the
    timeout, and alive() is called meanwhile, to raise when that is in vain.
    """

    def __init__(self, path: Path, who: str,
                 on_event: Callable[[dict[str, Any]], None] | None = None,
                 timeout: float = 10.0,
                 alive: Callable[[], None] = lambda: None) -> None:
        self.path = path
        self.who = who
        self._on_event = on_event
        self._answers: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._lock = threading.Lock()
        self.closed = threading.Event()
        # Not what an earlier client's unanswered command may have had.
        self._next_id = random.getrandbits(30)
        self._sock = self._connect(timeout, alive)
        self._thread = threading.Thread(target=self._read, daemon=True,
                                        name=f"reader of {who}")
        self._thread.start()

    def _connect(self, timeout: float, alive: Callable[[], None]
                 ) -> socket.socket:
        until = time.monotonic() + timeout
        while True:
            try:
                return connect(self.path)
            except OSError as exc:
                alive()
                if time.monotonic() >= until:
                    raise ControlError(
                        f"{self.who}: cannot connect to {self.path}: "
                        f"{exc.strerror}") from exc
                time.sleep(CONNECT_POLL)

    def _read(self) -> None:
        try:
            with self._sock.makefile("rb") as lines:
                while True:
                    line = lines.readline(LINE_MAX)
                    if not line:
                        break
                    try:
                        message = json.loads(line.strip(b"\xff\r\n\t ")
                                             or b"{}")
                    except ValueError:
                        continue
                    if not isinstance(message, dict):
                        continue
                    if "event" in message:
                        if self._on_event is not None:
                            self._on_event(message)
                    elif "return" in message or "error" in message:
                        self._answers.put(message)
        except OSError:
            pass
        finally:
            self.closed.set()
            self._answers.put(None)

    def command(self, execute: str, arguments: dict[str, Any] | None = None,
                timeout: float = 30.0) -> Any:
        """Run one command and return its result."""
        with self._lock:
            self._next_id += 1
            want = self._next_id
            request: dict[str, Any] = {"execute": execute, "id": want}
            if arguments:
                request["arguments"] = arguments
            try:
                self._sock.sendall(json.dumps(request).encode() + b"\n")
            except OSError as exc:
                raise ControlError(f"{self.who} is gone: {exc.strerror}") \
                    from exc
            until = time.monotonic() + timeout
            while True:
                left = until - time.monotonic()
                try:
                    answer = self._answers.get(timeout=max(left, 0.001))
                except queue.Empty:
                    raise ControlError(
                        f"{self.who} did not answer '{execute}' within "
                        f"{timeout:g} s") from None
                if answer is None:
                    self._answers.put(None)
                    raise ControlError(f"{self.who} closed its connection")
                # An answer to a command that was given up on may be late.
                if answer.get("id", want) == want:
                    break
        if "error" in answer:
            error = answer["error"]
            raise Refused(
                f"{self.who} refused '{execute}': "
                f"{error.get('desc', error)}")
        return answer["return"]

    def close(self) -> None:
        """Close the connection; the reader ends by itself."""
        try:
            self._sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._sock.close()
