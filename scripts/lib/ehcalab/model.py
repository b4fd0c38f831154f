# SPDX-License-Identifier: GPL-2.0-or-later
"""What a scenario and a topology are once they are read."""
from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .values import plain

DEFAULT_WITHIN = 30.0
# What `-device ehca` can have; simulated hosts have up to 8.
GUEST_PORTS_MAX = 2
SM_NODE = "sm"
GID_PLACE = re.compile(r"\{gid:([^{}]*)\}")


class ScenarioError(Exception):
    """What is wrong with a scenario or topology file; a line per error."""


@dataclass
class Condition:
    """key=value, key!=value, key>=number or key<=number."""

    key: str
    op: str
    value: str

    def find(self, data: dict[str, Any]) -> Any:
        """What a JSON object has under the key, a dotted path."""
        found: Any = data
        for part in self.key.split("."):
            if not isinstance(found, dict) or part not in found:
                return None
            found = found[part]
        return found

    def holds(self, data: dict[str, Any]) -> bool:
        """Whether a JSON object satisfies it."""
        found = self.find(data)
        if found is None:
            return False
        left, right = plain(found), plain(self.value)
        if self.op in (">=", "<="):
            if not isinstance(left, int | float) or \
                    not isinstance(right, int | float):
                return False
            return left >= right if self.op == ">=" else left <= right
        return (left == right) == (self.op == "=")

    def __str__(self) -> str:
        return f"{self.key}{self.op}{self.value}"


@dataclass
class Action:
    """One line of a step."""

    line: int
    verb: str
    words: list[str]
    nodes: list[str] = field(default_factory=list)
    target: str = ""                 # cable, event, file, text, ...
    conditions: list[Condition] = field(default_factory=list)
    within: float = DEFAULT_WITHIN
    text: str = ""
    check: str = ""                  # run: "contains", "lacks" or ""

    def __str__(self) -> str:
        return " ".join([self.verb, *self.words])


@dataclass
class Step:
    """A titled group of actions; a test case of the report."""

    line: int
    title: str
    actions: list[Action] = field(default_factory=list)


@dataclass
class Topology:
    """What `ehca-fabric --check --json` says of a topology file."""

    path: Path
    hosts: dict[str, int]            # name -> number of ports
    switches: list[str]
    cables: dict[str, tuple[str, ...]]    # its two ends, NODE/PORT

    @property
    def guests(self) -> list[str]:
        """Hosts that a guest can be booted for: all but the SM's."""
        return [h for h in self.hosts if h != SM_NODE]


def too_many_ports(topology: Topology, nodes: list[str]) -> list[str]:
    """Of these hosts, those that no guest can be; each in words."""
    return [f"host {node} has {topology.hosts[node]} ports; a guest has 1 "
            f"to {GUEST_PORTS_MAX}" for node in nodes
            if topology.hosts.get(node, 0) > GUEST_PORTS_MAX]


@dataclass
class Scenario:
    """A scenario that was read and found good."""

    path: Path
    title: str
    topology: Topology
    kernel: str
    memory: int
    steps: list[Step]
    never: list[tuple[int, list[str], str]]   # line, sources, event
    options: dict[str, str]
    cpus: int = 1

    @property
    def name(self) -> str:
        """What the reports and directories are called after."""
        return self.path.stem
