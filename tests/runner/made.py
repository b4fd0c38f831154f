# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs that never were: events as a lab would have them, for tests."""
from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts" / "lib"))

from ehcalab.eventlog import Event  # noqa: E402

BEGIN = 1_700_000_000.0
GUIDS = {"alice": 0x000255EF45C3B800, "bob": 0x000255648F6CF100}
LIDS = {("alice", 1): 4, ("alice", 2): 5, ("bob", 1): 6, ("bob", 2): 7}
QPN = 65556


def gid(node: str, port: int) -> str:
    """A port's GID as guests write it."""
    low = GUIDS[node] + port
    return "fe80::" + ":".join(f"{low >> at & 0xffff:x}"
                               for at in (48, 32, 16, 0))


class Run:
    """Appends events; now is the seconds since the run began."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.now = 0.0

    def add(self, source: str, name: str, **data: Any) -> Event:
        """An event, a tenth of a millisecond after the one before."""
        self.now += 1e-4
        event = Event(BEGIN + self.now, source, name,
                      {key.rstrip("_"): value
                       for key, value in data.items()}, len(self.events))
        self.events.append(event)
        return event

    def step(self, title: str) -> None:
        """The scenario's next step."""
        self.add("lab", "step", title=title)

    def start(self) -> None:
        """Two guests with two ports each, booted and connected."""
        self.add("lab", "fabric_started", topology="two-rails.topo", hosts=3,
                 switches=2, cables=6)
        self.step("Start everything and connect")
        self.add("lab", "sm_started", pid=1)
        for node in GUIDS:
            self.add("lab", "guest_started", node=node, pid=2)
        self.now += 4
        for node, guid in GUIDS.items():
            self.add(node, "booted", kernel="6.12")
            self.add("fabric", "node_attached", node=node, ports=2,
                     guid=f"{guid:#018x}")
            for port in (1, 2):
                self.add("fabric", "link", cable=f"{node}-{port}", up=True,
                         a=f"{node}/{port}", b=f"rail{port}/1")
                self.port(node, port, "Down", "Initialize")
                self.port(node, port, "Initialize", "Active")
                self.add("sm", "sm_port_active", node=node, port=port,
                         guid=f"{guid + port:#018x}", lid=LIDS[node, port])
        self.add("bob", "connected", qpn=QPN, peer_qpn=QPN, port=1,
                 peer_gid=gid("alice", 1), alt_port=2, state="REARM")
        self.add("alice", "connected", qpn=QPN, peer_qpn=QPN, port=1,
                 peer_gid=gid("bob", 1), alt_port=2, state="REARM")
        self.arm(1)

    def port(self, node: str, port: int, old: str, new: str) -> None:
        """An adapter's port changes its state."""
        self.add(f"{node}/hca", "port_state", port=port, from_=old, to=new)

    def mig(self, node: str, port: int, old: str, new: str, cause: str,
            qpn: int = QPN) -> None:
        """A queue pair changes its migration state."""
        peer = "bob" if node == "alice" else "alice"
        self.add(f"{node}/hca", "mig_state", qpn=qpn, port=port, from_=old,
                 to=new, dlid=LIDS[peer, port], cause=cause)

    def arm(self, port: int) -> None:
        """Both sides rearm and arm, on the path between two ports."""
        for node in GUIDS:
            self.mig(node, port, "MIGRATED", "REARM", "software")
        for node in GUIDS:
            self.mig(node, port, "REARM", "ARMED", "packet_with_migreq_0")

    def migrate(self, port: int, cause: str = "retries_used_up") -> None:
        """Alice migrates to a port, bob follows."""
        for node in GUIDS:
            self.mig(node, port, "ARMED", "MIGRATED", cause)
            cause = "packet_with_migreq_1"
            self.now += 0.001
        for node in GUIDS:
            self.add(f"{node}/hca", "first_payload", qpn=QPN, port=port)
            self.add(node, "path_mig", qpn=QPN, port=port, old_port=3 - port)

    def failover(self, port: int) -> None:
        """Alice's cable at a port fails and comes back."""
        self.step(f"Cable {port} fails and returns")
        self.add("lab", "pull", cable=f"alice-{port}")
        self.add("fabric", "link", cable=f"alice-{port}", up=False,
                 a=f"alice/{port}", b=f"rail{port}/1")
        self.port("alice", port, "Active", "Down")
        self.now += 0.54
        self.migrate(3 - port)
        self.add("lab", "restore", cable=f"alice-{port}")
        self.add("fabric", "link", cable=f"alice-{port}", up=True,
                 a=f"alice/{port}", b=f"rail{port}/1")
        self.port("alice", port, "Down", "Active")
        self.now += 0.005
        self.add("alice", "lap_sent", qpn=QPN, alt_port=port)
        self.add("bob", "lap_received", qpn=QPN, alt_port=port)
        self.add("bob", "apr_sent", qpn=QPN, text="loaded")
        self.add("alice", "apr_received", qpn=QPN, text="loaded")
        self.arm(3 - port)


def failovers(count: int) -> Run:
    """A run with so many of them."""
    run = Run()
    run.start()
    for number in range(count):
        run.failover(1 + number % 2)
    return run
