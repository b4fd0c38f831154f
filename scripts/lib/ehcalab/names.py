# SPDX-License-Identifier: GPL-2.0-or-later
"""Whose port a GID or a LID is.

Learned from the events in the order of their times: the fabric tells each
node's GUID when it joins (port n has the node's GUID plus n, docs/device.md),
the subnet manager which LID it gave to which GUID.  A port that is gone keeps
its name: notices and packets speak of it later.
"""
from __future__ import annotations

import ipaddress

from .eventlog import Event

# An IB node has at most 254 ports; a message that says more is wrong.
PORTS_MAX = 254
GUID_MASK = (1 << 64) - 1

Port = tuple[str, int]


def number(value: object) -> int | None:
    """A whole number that an event carries, or None."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return None


def _guid(value: object) -> int | None:
    try:
        return int(str(value)[:20], 16)
    except ValueError:
        return None


def _gid(value: object) -> ipaddress.IPv6Address | None:
    try:
        return ipaddress.IPv6Address(str(value)[:50])
    except ValueError:
        return None


class Names:
    """GIDs and LIDs in people's words."""

    def __init__(self) -> None:
        self.guids: dict[int, Port] = {}
        self.lids: dict[int, Port] = {}

    def learn(self, event: Event) -> None:
        """Take in what an event tells."""
        data = event.data
        if (event.source, event.name) == ("fabric", "node_attached"):
            guid, ports = _guid(data.get("guid")), number(data.get("ports"))
            if guid is not None and ports is not None:
                for port in range(1, min(ports, PORTS_MAX) + 1):
                    self.guids[guid + port] = (str(data.get("node")), port)
        elif (event.source, event.name) == ("sm", "sm_port_active"):
            lid, guid = number(data.get("lid")), _guid(data.get("guid"))
            if lid is not None and guid in self.guids:
                self.lids[lid] = self.guids[guid]

    def of_gid(self, gid: object) -> Port | None:
        """Whose port has this GID."""
        address = _gid(gid)
        return (None if address is None
                else self.guids.get(int(address) & GUID_MASK))

    def of_lid(self, lid: object) -> Port | None:
        """Whose port has this LID."""
        value = number(lid)
        return None if value is None else self.lids.get(value)

    def gid(self, gid: object) -> str:
        """'alice port 1 (fe80::...)', or the GID, in its short form."""
        short = str(_gid(gid) or gid)
        port = self.of_gid(gid)
        return f"{_words(port)} ({short})" if port else short

    def port(self, gid: object) -> str:
        """'alice port 1', or the GID."""
        port = self.of_gid(gid)
        return _words(port) if port else self.gid(gid)

    def lid(self, lid: object) -> str:
        """'LID 4 (alice port 1)', or 'LID 4'."""
        port = self.of_lid(lid)
        return f"LID {lid} ({_words(port)})" if port else f"LID {lid}"


def _words(port: Port) -> str:
    return f"{port[0]} port {port[1]}"
