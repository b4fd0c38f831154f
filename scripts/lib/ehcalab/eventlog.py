# SPDX-License-Identifier: GPL-2.0-or-later
"""The one list of everything that happened, whoever said it.

The runner's own actions, the fabric's and the subnet manager's events, what
the adapters report and what the guests' consumers report all end here with a
time on the host's clock.  Scenario steps wait on it; the timeline and the
JSON lines are written from it.
"""
from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Event:
    """One thing that happened.

    source: "lab" (the runner), "fabric", "sm", NODE (its consumer module) or
    NODE/hca (its adapter).
    """

    t: float
    source: str
    name: str
    data: dict[str, Any] = field(default_factory=dict)
    seq: int = 0
    taken: bool = False      # an expect has been satisfied by it

    def as_json(self) -> dict[str, Any]:
        """The form of the JSON-lines file."""
        return {"t": round(self.t, 6), "source": self.source,
                "event": self.name, "data": self.data}


def event_of(line: bytes) -> tuple[str, float, dict[str, Any]]:
    """Name, time and fields of a consumer's line; ValueError if it is none.

    A guest can write anything into it.
    """
    try:
        data = json.loads(line)
    except RecursionError as exc:
        raise ValueError("nested too deeply") from exc
    if not isinstance(data, dict):
        raise ValueError("no object")
    name, t = data.pop("event", None), data.pop("t_real_ns", None)
    data.pop("t_ns", None)
    if not isinstance(name, str) or not isinstance(t, int) or \
            not 0 <= t < 1 << 63:
        raise ValueError("no name or no time")
    return name, t / 1e9, data


class EventLog:
    """Append from any thread, wait from the player's."""

    def __init__(self, on_event: Callable[[Event], None] | None = None
                 ) -> None:
        self._changed = threading.Condition()
        self.events: list[Event] = []
        self.started = time.time()
        self._on_event = on_event

    def add(self, source: str, name: str, data: dict[str, Any] | None = None,
            t: float | None = None) -> Event:
        """Note an event, now or at time t."""
        now = time.time()
        # A guest's clock can say anything, and be no number: what is told
        # happened between the beginning and now.
        when = now if t is None or not t < now else max(t, self.started)
        with self._changed:
            event = Event(when, source, name, data or {}, len(self.events))
            self.events.append(event)
            if self._on_event is not None:
                self._on_event(event)
            self._changed.notify_all()
        return event

    def position(self) -> int:
        """Where events from now on will stand."""
        with self._changed:
            return len(self.events)

    def since(self, position: int) -> list[Event]:
        """A copy of the events from a position on."""
        with self._changed:
            return self.events[position:]

    def wait(self, match: Callable[[Event], bool], position: int,
             timeout: float, alive: Callable[[], None]) -> Event | None:
        """The first event from position on that matches; None: timeout.

        alive() is called now and then and may raise.
        """
        until = time.monotonic() + timeout
        at = position
        while True:
            with self._changed:
                while at < len(self.events):
                    event = self.events[at]
                    at += 1
                    if match(event):
                        return event
                left = until - time.monotonic()
                if left <= 0:
                    return None
                self._changed.wait(min(left, 0.25))
            alive()
