# SPDX-License-Identifier: GPL-2.0-or-later
"""Which migrations a run had, how long each took, and what caused it.

Theory of operation
  The adapters' own events say when a queue pair migrated, so the guests'
  scheduling does not blur the times.  A pulled cable is taken for the cause
  only if it was out at that moment and is part of the path that the queue
  pair left: at its own port, at its peer's, or between switches.  A queue
  pair that followed its peer (a packet with MigReq 1) has the cause that its
  peer's migration had, even if the cable is back by then.  A migration that
  no cable explains is listed as such, with the runner's last act of the step.
"""
from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from .clean import clean, short
from .eventlog import Event
from .names import Port
from .timeline import Teller, cause

# Rows of the table on the screen; timeline.txt has all.
ROWS = 60
# What the runner does to the lab; the rest of its events only tell.
ACTS = frozenset("""pull restore fault lid_set consumer_command ran sm_started
                    sm_stopped sm_killed guest_started guest_stopped
                    guest_killed""".split())

Key = tuple[str, str]                # node, QP


@dataclass
class Migration:
    """A queue pair that went over to its alternate path."""

    t: float
    node: str
    qpn: str
    old_port: str
    new_port: str
    cause: str
    step: int
    title: str
    cable: str = ""                  # whose pull explains it; "": nobody's
    pulled: float = 0.0
    act: str = ""                    # the runner's last act in the step
    acted: float = 0.0
    payload: float | None = None     # when data first came through


@dataclass
class Path:
    """A queue pair's primary path."""

    port: str
    here: str                        # NODE/PORT
    there: str                       # of its peer; "" if not known


class Watch:
    """Finds the migrations among a run's events."""

    def __init__(self) -> None:
        self.teller = Teller()
        self.found: list[Migration] = []
        self.lost: dict[str, int] = {}
        self.title = ""
        self.act: Event | None = None
        self.hosts: set[str] = set()
        self.ends: dict[str, tuple[str, str]] = {}
        self.out: dict[str, float] = {}
        self.paths: dict[Key, Path] = {}
        self.peers: dict[Key, Key] = {}
        self.last: dict[Key, Migration] = {}

    def see(self, event: Event) -> None:
        """The next event."""
        self.teller.learn(event)
        data = event.data
        if event.source == "lab":
            self._lab(event)
        elif event.name == "events_lost":
            self.lost[event.source] = self.lost.get(event.source, 0) + 1
        elif event.source == "fabric":
            if event.name == "node_attached":
                self.hosts.add(str(data.get("node")))
            elif event.name == "link":
                self.ends[str(data.get("cable"))] = (str(data.get("a")),
                                                     str(data.get("b")))
        elif event.source.endswith("/hca"):
            self._adapter(event)
        elif event.name == "connected":
            peer = self.teller.names.of_gid(data.get("peer_gid"))
            if peer is not None:
                self.peers[(event.source, str(data.get("qpn")))] = (
                    peer[0], str(data.get("peer_qpn")))

    def _lab(self, event: Event) -> None:
        if event.name == "step":
            self.title, self.act = clean(event.data.get("title", "?")), None
        elif event.name == "pull":
            self.out[str(event.data.get("cable"))] = event.t
        elif event.name == "restore":
            self.out.pop(str(event.data.get("cable")), None)
        if event.name in ACTS:
            self.act = event

    def _adapter(self, event: Event) -> None:
        data = event.data
        key = (event.source[:-len("/hca")], str(data.get("qpn")))
        if event.name == "first_payload" and key in self.last:
            last = self.last[key]
            if last.payload is None:
                last.payload = event.t
        if event.name != "mig_state":
            return
        port, old = str(data.get("port")), self.paths.get(key)
        self.paths[key] = Path(port, f"{key[0]}/{port}", _place(
            self.teller.names.of_lid(data.get("dlid"))))
        if data.get("from") == "ARMED" and data.get("to") == "MIGRATED" \
                and data.get("cause") != "reset":
            one = Migration(event.t, *key, old.port if old else "?", port,
                            str(data.get("cause")), self.teller.step,
                            self.title)
            self._blame(one, key, old)
            if self.act is not None:
                one.act, one.acted = self.teller.words(self.act), self.act.t
            self.last[key] = one
            self.found.append(one)

    def _blame(self, one: Migration, key: Key, old: Path | None) -> None:
        peer = self.last.get(self.peers.get(key, key))
        if one.cause == "packet_with_migreq_1" and peer is not None and \
                peer is not self.last.get(key):
            one.cable, one.pulled = peer.cable, peer.pulled
            return
        for cable, t in self.out.items():
            if t >= one.pulled and self._carried(cable, old):
                one.cable, one.pulled = cable, t

    def _carried(self, cable: str, path: Path | None) -> bool:
        """Whether a path can lead through a cable, as far as is known."""
        if path is None or cable not in self.ends:
            return True
        hosts = [end for end in self.ends[cable]
                 if end.rpartition("/")[0] in self.hosts]
        ours = path.here.rpartition("/")[0] + "/"
        return not hosts or any(
            end in (path.here, path.there)
            or not path.there and not end.startswith(ours) for end in hosts)


def _place(port: Port | None) -> str:
    return f"{port[0]}/{port[1]}" if port else ""


def watch(events: Iterable[Event]) -> Watch:
    """All migrations among events, which are in the order of their times."""
    seen = Watch()
    for event in events:
        seen.see(event)
    return seen


def _row(one: Migration) -> list[str]:
    payload = (f"{(one.payload - one.pulled) * 1e3:.1f}"
               if one.payload is not None else "none")
    return [one.cable, one.node, one.qpn, f"{one.old_port} to {one.new_port}",
            f"{(one.t - one.pulled) * 1e3:.1f}", payload, cause(one.cause)]


HEAD = ["cable", "guest", "QP", "port", "PATH_MIG", "payload", "because"]
NUMBERS = (2, 4, 5)                  # columns that are set to the right


def _table(found: list[Migration]) -> list[str]:
    rows = [[short(word, 30) for word in row]
            for row in [HEAD, *map(_row, found)]]
    widths = [max(map(len, column)) for column in zip(*rows)]

    def line(row: list[str]) -> str:
        return "  " + "  ".join(
            word.rjust(width) if at in NUMBERS else word.ljust(width)
            for at, (word, width) in enumerate(zip(row, widths))).rstrip()

    lines, step = [line(rows[0])], None
    for one, row in zip(found, rows[1:]):
        if one.step != step:
            step = one.step
            lines.append(f"  Step {step}: {short(one.title, 70)}")
        lines.append(line(row))
    return lines


def _middle(name: str, times: list[float]) -> str:
    ms = [t * 1e3 for t in times]
    return (f"  {name}: median {statistics.median(ms):.1f}, least "
            f"{min(ms):.1f}, most {max(ms):.1f} of {len(ms)}")


def middles(found: list[Migration]) -> list[str]:
    """Medians and extremes of the times since the pulls."""
    known = [one for one in found if one.cable]
    through = [one.payload - one.pulled for one in known
               if one.payload is not None]
    lines = []
    if known:
        lines.append(_middle("PATH_MIG", [m.t - m.pulled for m in known]))
    if through:
        lines.append(_middle("first payload over the new path", through))
    return lines


def lines_of(seen: Watch, started: float, rows: int | None = None
             ) -> list[str]:
    """The table for people; at most so many rows of it."""
    known = [one for one in seen.found if one.cable]
    other = [one for one in seen.found if not one.cable]
    lines = []
    if known:
        lines.append("Failover times, from the pull of the cable (ms):")
        lines += _table(known[:rows])
        if rows is not None and len(known) > rows:
            lines.append(f"  and {len(known) - rows} more in timeline.txt")
        lines += middles(known)
    if other:
        lines.append("Migrations that no pulled cable explains:")
        lines += [line for one in other[:rows]
                  for line in _alone(one, started)]
        if rows is not None and len(other) > rows:
            lines.append(f"  and {len(other) - rows} more in timeline.txt")
    if seen.lost and seen.found:
        lines.append("Events were lost, so this may not be all: "
                     + ", ".join(sorted(seen.lost)))
    return lines


def _alone(one: Migration, started: float) -> list[str]:
    lines = [f"  {one.t - started:.3f} s, step {one.step}: {one.node} QP "
             f"{one.qpn}, port {one.old_port} to {one.new_port}: "
             f"{cause(one.cause)}"]
    if one.act:
        lines.append(f"    {one.t - one.acted:.3f} s after: "
                     f"{short(one.act, 70)}")
    return lines
