# SPDX-License-Identifier: GPL-2.0-or-later
"""What the picture of a run shows: its steps, and lanes of states and marks.

Lanes, from the top: the subnet manager; each cable that was pulled, faulty or
without its link; and for each guest itself, its adapter's ports, its connected
queue pairs, and a row of marks for what people look for.  Queue pairs that
did not live at the same time share a lane.
"""
from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from .clean import clean, short
from .eventlog import Event
from .timeline import Teller

# A guest can have thousands of queue pairs; a picture cannot.
QP_LANES_MAX = 6
CABLES_MAX = 24
NODES_MAX = 12

# event -> letter of the mark; "X" is for errors.
MARKS = {
    "connected": "C", "path_mig": "M", "migrated_by_software": "S",
    "lap_sent": "L", "lap_received": "L", "apr_sent": "A",
    "apr_received": "A", "disconnected": "D",
} | dict.fromkeys(("path_mig_err", "qp_error", "completion_error",
                   "message_error", "connect_failed", "lap_error",
                   "migrate_refused", "rearm_refused", "device_fatal",
                   "qemu_guest_panicked"), "X")


@dataclass
class Span:
    """A stretch of a lane."""

    start: float
    end: float
    state: str
    note: str = ""


@dataclass
class Mark:
    """Something that happened."""

    t: float
    letter: str
    words: str


@dataclass
class Lane:
    """A row of stretches, or of marks."""

    name: str
    spans: list[Span] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    head: bool = False               # the first of its group


@dataclass
class Step:
    """A step of the scenario."""

    number: int
    title: str
    start: float
    end: float
    failed: bool = False


@dataclass
class Story:
    """All that is drawn."""

    begin: float
    end: float
    steps: list[Step]
    lanes: list[Lane]
    left_out: list[str]              # in words


Key = tuple[str, ...]


class Collector:
    """Turns events, in the order of their times, into a Story."""

    def __init__(self, begin: float, end: float) -> None:
        self.begin, self.end = begin, max(end, begin + 0.001)
        self.teller = Teller()
        self.steps: list[Step] = []
        self.spans: dict[Key, list[Span]] = defaultdict(list)
        self.open: dict[Key, Span] = {}
        self.marks: dict[str, list[Mark]] = defaultdict(list)
        self.nodes: set[str] = set()
        self.up: dict[str, bool] = {}
        self.out: set[str] = set()
        self.faulty: set[str] = set()
        self.touched: set[str] = set()

    def see(self, event: Event) -> None:
        """The next event."""
        self.teller.learn(event)
        if event.t > self.end:
            return
        if event.source == "lab":
            self._lab(event)
        elif event.source == "fabric":
            self._fabric(event)
        elif event.source.endswith("/hca"):
            self._adapter(event, event.source[:-len("/hca")])
        elif event.source != "sm":
            if event.name == "booted":
                self._set(("guest", event.source), event.t, "running")
                return
            if event.name == "disconnected":
                self._set(("qp", event.source, str(event.data.get("qpn"))),
                          event.t, "")
            if event.name in MARKS:
                self.marks[event.source].append(Mark(
                    event.t, MARKS[event.name], self.teller.words(event)))

    def _set(self, key: Key, t: float, state: str, note: str = "") -> None:
        """A lane has another state from now on; "": none."""
        now = self.open.get(key)
        if now is not None:
            if (now.state, now.note) == (state, note):
                return
            self.open.pop(key).end = t
        if state:
            self.open[key] = Span(t, self.end, clean(state), clean(note))
            self.spans[key].append(self.open[key])

    def _lab(self, event: Event) -> None:
        data, name = event.data, event.name
        node, cable = str(data.get("node")), str(data.get("cable"))
        if name == "step":
            if self.steps:
                self.steps[-1].end = event.t
            self.steps.append(Step(
                self.teller.step, self.teller.words(event),
                event.t if self.steps else self.begin, self.end))
        elif name == "failed" and self.steps:
            self.steps[-1].failed = True
        elif name.startswith("sm_"):
            self._set(("sm", ""), event.t, {"sm_started": "running",
                                            "sm_killed": "killed"}.get(
                                                name, ""))
        elif name == "guest_started":
            self.nodes.add(node)
            self._set(("guest", node), event.t, "booting")
        elif name in ("guest_killed", "guest_stopped"):
            self._set(("guest", node), event.t,
                      "killed" if name == "guest_killed" else "")
        elif name in ("pull", "restore", "fault"):
            self.touched.add(cable)
            if name == "fault":
                self.faulty.discard(cable)
                if len(data) > 1:
                    self.faulty.add(cable)
            elif name == "pull":
                self.out.add(cable)
            else:
                self.out.discard(cable)
            self._cable(cable, event.t)

    def _fabric(self, event: Event) -> None:
        if event.name == "link":
            cable = str(event.data.get("cable"))
            self.up[cable] = bool(event.data.get("up"))
            if not self.up[cable]:
                self.touched.add(cable)
            self._cable(cable, event.t)
        elif event.name == "node_gone":
            for key in list(self.open):
                if key[1] == event.data.get("node") and \
                        key[0] in ("port", "qp"):
                    self._set(key, event.t, "")

    def _cable(self, cable: str, t: float) -> None:
        state = ("pulled" if cable in self.out else
                 "no link" if not self.up.get(cable) else
                 "faults" if cable in self.faulty else "in")
        self._set(("cable", cable), t, state)

    def _adapter(self, event: Event, node: str) -> None:
        data = event.data
        port, qp = str(data.get("port")), ("qp", node, str(data.get("qpn")))
        self.nodes.add(node)
        if event.name == "port_state":
            self._set(("port", node, port), event.t, str(data.get("to")))
        elif event.name == "mig_state":
            self._set(qp, event.t, str(data.get("to")), f"port {port}")
        elif event.name == "qp_error" and qp in self.open:
            self._set(qp, event.t, "ERROR")
        elif event.name == "qp_state" and (
                data.get("to") == "RESET" or data.get("to") == "ERR"
                and data.get("cause") == "software"):
            # Given up by software; one that fails has a qp_error.
            self._set(qp, event.t, "")
        elif event.name == "first_payload":
            self.marks[node].append(Mark(event.t, "P",
                                         self.teller.words(event)))

    def story(self) -> Story:
        """All that was collected."""
        left_out: list[str] = []
        lanes = []
        if self.spans[("sm", "")]:
            lanes.append(Lane("subnet manager", self.spans[("sm", "")]))
        cables = sorted(key[1] for key in self.spans if key[0] == "cable")
        touched = [c for c in cables if c in self.touched]
        quiet = [c for c in cables if c not in self.touched]
        if quiet:
            left_out.append("cables that were always in: "
                            + short(", ".join(quiet), 80))
        left_out += _more(touched, CABLES_MAX, "cables")
        lanes += [Lane(f"cable {cable}", self.spans[("cable", cable)])
                  for cable in touched[:CABLES_MAX]]
        nodes = sorted(self.nodes | set(self.marks))
        left_out += _more(nodes, NODES_MAX, "guests")
        for node in nodes[:NODES_MAX]:
            lanes += self._guest(node, left_out)
        if not self.steps:
            self.steps.append(Step(1, "the run", self.begin, self.end))
        return Story(self.begin, self.end, self.steps, lanes, left_out)

    def _guest(self, node: str, left_out: list[str]) -> list[Lane]:
        lanes = [Lane(node, self.spans[("guest", node)], head=True)]
        for key in sorted(key for key in self.spans
                          if key[:2] == ("port", node)):
            lanes.append(Lane(f"{node} port {key[2]}", self.spans[key]))
        shared: list[list[Key]] = []
        for key in sorted((key for key in self.spans
                           if key[:2] == ("qp", node)),
                          key=lambda key: self.spans[key][0].start):
            start = self.spans[key][0].start
            free = next((row for row in shared
                         if self.spans[row[-1]][-1].end <= start), None)
            if free is None:
                shared.append([key])
            else:
                free.append(key)
        left_out += _more(shared, QP_LANES_MAX, f"lanes of {node}'s QPs")
        for row in shared[:QP_LANES_MAX]:
            name = f"QP {row[0][2]}" if len(row) == 1 else f"{len(row)} QPs"
            lanes.append(Lane(f"{node} {name}", [
                Span(s.start, s.end, s.state,
                     s.note if len(row) == 1 else f"QP {key[2]} {s.note}")
                for key in row for s in self.spans[key]]))
        if self.marks[node]:
            lanes.append(Lane(f"{node} events", [], self.marks[node]))
        return lanes


def _more(rows: list, limit: int, what: str) -> list[str]:
    return [f"{len(rows) - limit} more {what}"] if len(rows) > limit else []


def collect(events: Iterable[Event], begin: float, end: float) -> Story:
    """The story of a run's events, which are in the order of their times."""
    collector = Collector(begin, end)
    for event in events:
        collector.see(event)
    return collector.story()
