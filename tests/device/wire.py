# SPDX-License-Identifier: GPL-2.0-or-later
"""The fabric's side of a link, and a few InfiniBand packets, made by hand.

Written from ib/link.h, ib/ring.h and the InfiniBand Architecture
Specification, with no code in common with ib/: an independent reader.
"""
from __future__ import annotations

import ctypes
import fcntl
import json
import mmap
import os
import select
import socket
import struct
import time
import zlib
from pathlib import Path
from typing import Any

HELLO, WELCOME, REFUSE, PHYS, LINK, EVENT = 1, 2, 3, 4, 5, 6
VERSION = 2

SLOTS, SLOT_SIZE, SLOT_DATA = 128, 4352, 64
RING_SIZE = 128 + SLOTS * SLOT_SIZE
MEMORY_SIZE = 2 * RING_SIZE
OFFSET = {"head": 0, "producer_waits": 4, "tail": 64, "consumer_waits": 68,
          "slots": 128}
SEALS = 0x1 | 0x2 | 0x4             # F_SEAL_SEAL, SHRINK, GROW
F_ADD_SEALS = 1033


def message(kind: int, port: int = 0, body: bytes = b"") -> bytes:
    """A link message."""
    return struct.pack(">HHI", kind, port, len(body)) + body


class Port:
    """Memory of one port, as the fabric makes it."""

    def __init__(self, size: int = MEMORY_SIZE, seals: int = SEALS) -> None:
        self.memfd = os.memfd_create("port", os.MFD_CLOEXEC |
                                     os.MFD_ALLOW_SEALING)
        os.ftruncate(self.memfd, size)
        if seals:
            fcntl.fcntl(self.memfd, F_ADD_SEALS, seals)
        self.map = mmap.mmap(self.memfd, size)

    def close(self) -> None:
        """Give everything back."""
        self.map.close()
        os.close(self.memfd)

    def get(self, ring: int, field: str) -> int:
        """A counter or flag; ring 0 is to the fabric, 1 to the node."""
        return ctypes.c_uint32.from_buffer(
            self.map, ring * RING_SIZE + OFFSET[field]).value

    def put(self, ring: int, field: str, value: int) -> None:
        """Set a counter or flag."""
        ctypes.c_uint32.from_buffer(
            self.map, ring * RING_SIZE + OFFSET[field]).value = value

    def put_packet(self, packet: bytes) -> None:
        """Put a packet into the ring to the node."""
        head = self.get(1, "head")
        at = RING_SIZE + OFFSET["slots"] + head % SLOTS * SLOT_SIZE
        struct.pack_into("<I", self.map, at, len(packet))
        self.map[at + SLOT_DATA:at + SLOT_DATA + len(packet)] = packet
        self.put(1, "head", head + 1 & 0xffffffff)

    def receive(self, timeout: float = 30.0) -> bytes | None:
        """Take a packet from the ring to the fabric."""
        end = time.monotonic() + timeout
        tail = self.get(0, "tail")
        while self.get(0, "head") == tail:
            if time.monotonic() > end:
                return None
            time.sleep(0.001)
        at = OFFSET["slots"] + tail % SLOTS * SLOT_SIZE
        [length] = struct.unpack_from("<I", self.map, at)
        packet = self.map[at + SLOT_DATA:at + SLOT_DATA + length]
        self.put(0, "tail", tail + 1 & 0xffffffff)
        return packet


class Fabric:
    """Listens where the adapter's chardev connects."""

    def __init__(self, path: Path) -> None:
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen(1)
        self.sock: socket.socket | None = None
        self.wake_node: socket.socket | None = None
        # What wakes us, and its far end, which the node gets a copy of.
        self.wake, self.wake_end = socket.socketpair()
        self.ports: dict[int, Port] = {}
        self.buffer = b""

    def close(self) -> None:
        """Everything goes."""
        self.hang_up()
        self.wake.close()
        self.wake_end.close()
        self.listener.close()

    def hang_up(self) -> None:
        """The connection goes, as when the fabric dies."""
        if self.sock is not None:
            self.sock.close()
            self.sock = None
        if self.wake_node is not None:
            self.wake_node.close()
            self.wake_node = None
        for port in self.ports.values():
            port.close()
        self.ports = {}

    def accept(self, timeout: float = 30.0) -> dict[str, Any]:
        """Wait for the node; its HELLO."""
        self.listener.settimeout(timeout)
        self.sock = self.listener.accept()[0]
        self.sock.settimeout(timeout)
        self.buffer, fds, _, _ = socket.recv_fds(self.sock, 65536, 4)
        [fd] = fds
        self.wake_node = socket.socket(fileno=fd)
        kind, port, body = self.receive(timeout)
        assert (kind, port) == (HELLO, 0), (kind, port)
        version, num_ports, node_type, guid = struct.unpack_from(">HBBQ", body)
        return {"version": version, "num_ports": num_ports,
                "node_type": node_type, "node_guid": guid,
                "port_guids": list(struct.unpack_from(">8Q", body, 12)),
                "name": body[76:140].rstrip(b"\0").decode()}

    def receive(self, timeout: float = 30.0) -> tuple[int, int, bytes]:
        """The next message: type, port, body."""
        assert self.sock is not None
        end = time.monotonic() + timeout
        while True:
            if len(self.buffer) >= 8:
                kind, port, length = struct.unpack_from(">HHI", self.buffer)
                if len(self.buffer) >= 8 + length:
                    body = self.buffer[8:8 + length]
                    self.buffer = self.buffer[8 + length:]
                    return kind, port, body
            left = max(end - time.monotonic(), 0)
            ready, _, _ = select.select([self.sock], [], [], left)
            if not ready:
                raise TimeoutError("no message from the adapter")
            try:
                data = self.sock.recv(65536)
            except ConnectionError:
                data = b""
            if not data:
                raise EOFError("the adapter hung up")
            self.buffer += data

    def expect(self, kind: int, timeout: float = 30.0) -> tuple[int, bytes]:
        """The next message of this type: port and body; others are lost."""
        while True:
            got, port, body = self.receive(timeout)
            if got == kind:
                return port, body

    def expect_event(self, name: str) -> dict[str, Any]:
        """The next event of this name."""
        while True:
            event = json.loads(self.expect(EVENT)[1])
            if event["event"] == name:
                return event

    def hung_up(self, timeout: float = 30.0) -> bool:
        """Whether the adapter closes the connection."""
        try:
            while True:
                self.receive(timeout)
        except EOFError:
            return True
        except TimeoutError:
            return False

    def send(self, data: bytes, fds: list[int] | None = None) -> None:
        """Raw bytes, with descriptors."""
        assert self.sock is not None
        if fds:
            socket.send_fds(self.sock, [data], fds)
        else:
            self.sock.sendall(data)

    def kick(self) -> None:
        """Wake the node."""
        assert self.wake_node is not None
        try:
            self.wake_node.send(b"\0", socket.MSG_DONTWAIT)
        except BlockingIOError:
            pass                        # it has many already

    def put_packet(self, port: int, packet: bytes) -> None:
        """Put a packet into a port's ring to the node, and wake it."""
        self.ports[port].put_packet(packet)
        self.kick()

    def fds(self, *ports: Port) -> list[int]:
        """In the order of WELCOME."""
        return [self.wake_end.fileno(), *(port.memfd for port in ports)]

    def welcome(self, num_ports: int = 2, version: int = VERSION) -> None:
        """Accept the node."""
        self.ports = {p: Port() for p in range(1, num_ports + 1)}
        self.send(message(WELCOME, 0, struct.pack(">HBB", version, num_ports,
                                                  0)),
                  self.fds(*self.ports.values()))

    def link(self, port: int, up: bool, speed: int = 1,
             width: int = 2) -> None:
        """Plug a cable in or pull it."""
        self.send(message(LINK, port, bytes([up, speed, width, 0])))


# -- packets --------------------------------------------------------------

def icrc(packet: bytes) -> bytes:
    """Invariant CRC of a local packet (IBTA 7.8.1)."""
    covered = bytearray(packet)
    covered[0] |= 0xf0                  # LRH: VL
    covered[12] = 0xff                  # BTH: FECN, BECN, reserved
    return struct.pack("<I", zlib.crc32(bytes(covered)))


def mad_packet(mad: bytes, slid: int, dlid: int, vl: int, qp: int,
               qkey: int = 0, psn: int = 0) -> bytes:
    """A management datagram in LRH, BTH and DETH."""
    words = (8 + 12 + 8 + 256 + 4) // 4
    packet = struct.pack(">BBHHH", vl << 4, 2, dlid, words, slid)
    packet += struct.pack(">BBHII", 0x64, 0, 0xffff, qp, psn)
    packet += struct.pack(">II", qkey, qp)
    packet += mad
    return packet + icrc(packet)


METHOD_GET, METHOD_SET, METHOD_GET_RESP = 1, 2, 0x81
ATTR_NODE_INFO, ATTR_PORT_INFO = 0x11, 0x15


def directed_smp(method: int, attribute: int, modifier: int, tid: int,
                 data: bytes = b"") -> bytes:
    """A directed-route SMP for the node at the other end (14.2.1.2).

    One hop that has been made already: the initial path has it, the hop
    pointer is at the count, so the receiving node is the target.
    """
    smp = struct.pack(">BBBBHBBQHHI", 1, 0x81, 1, method, 0, 1, 1, tid,
                      attribute, 0, modifier)
    smp += struct.pack(">QHH", 0, 0xffff, 0xffff) + bytes(28)
    smp += data.ljust(64, b"\0")
    smp += bytes([0, 1]).ljust(64, b"\0")
    smp += bytes([0, 0]).ljust(64, b"\0")
    assert len(smp) == 256
    return smp


def smp_of(packet: bytes) -> dict[str, Any]:
    """An SMP out of a packet of ours."""
    mad = packet[28:284]
    method, status = mad[3], struct.unpack_from(">H", mad, 4)[0] & 0x7fff
    tid, attribute = struct.unpack_from(">QH", mad, 8)
    return {"method": method, "status": status, "tid": tid,
            "attribute": attribute, "data": mad[64:128],
            "lnh": packet[1] & 3, "dqp": struct.unpack_from(">I", packet,
                                                            12)[0] & 0xffffff}


def with_bits(data: bytes, changes: list[tuple[int, int, int]]) -> bytes:
    """Replace fields (bit offset, width, value) in an attribute."""
    whole = int.from_bytes(data, "big")
    total = 8 * len(data)
    for offset, width, value in changes:
        shift = total - offset - width
        whole = whole & ~(((1 << width) - 1) << shift) | value << shift
    return whole.to_bytes(len(data), "big")


def bits(data: bytes, offset: int, width: int) -> int:
    """A field of an attribute."""
    return int.from_bytes(data, "big") >> 8 * len(data) - offset - width & \
        (1 << width) - 1
