# SPDX-License-Identifier: GPL-2.0-or-later
"""Reads the fabric's captures and checks both CRCs, independently of ib/.

The ICRC comes from zlib, the VCRC from a bit-by-bit shift register: neither
shares a line or a library with what wrote them.
"""
from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

SECTION, INTERFACE, PACKET = 0x0A0D0D0A, 1, 6
OPT_COMMENT, OPT_IF_NAME = 1, 2
# How the fabric writes packets: behind a 16-byte ERF record of this type ...
LINKTYPE_ERF, ERF_HEADER, ERF_INFINIBAND = 197, 16, 21
# ... or, when asked to, bare.
LINKTYPE_INFINIBAND = 247
LNH_GLOBAL = 3


@dataclass
class Captured:
    """One packet of a capture."""

    interface: str
    ns: int
    data: bytes
    comments: list[str] = field(default_factory=list)

    @property
    def opcode(self) -> int:
        """BTH opcode."""
        return self.data[48 if self.data[1] & 3 == LNH_GLOBAL else 8]

    @property
    def bth(self) -> int:
        """Offset of the BTH."""
        return 48 if self.data[1] & 3 == LNH_GLOBAL else 8

    @property
    def migreq(self) -> int:
        """The MigReq bit."""
        return self.data[self.bth + 1] >> 6 & 1


def _options(body: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + 4 <= len(body):
        code, length = struct.unpack_from("<HH", body, at)
        if code == 0:
            return
        yield code, body[at + 4:at + 4 + length]
        at += 4 + (length + 3 & ~3)


def read(path: Path) -> Iterator[Captured]:
    """The packets of a little-endian pcapng file."""
    names: list[str] = []
    skip: list[int] = []
    with path.open("rb") as stream:
        while len(head := stream.read(8)) == 8:
            kind, length = struct.unpack("<II", head)
            body = stream.read(length - 8)[:-4]
            if kind == INTERFACE:
                name = next((v for c, v in _options(body[8:])
                             if c == OPT_IF_NAME), b"")
                names.append(name.decode())
                link_type = struct.unpack_from("<H", body)[0]
                if link_type not in (LINKTYPE_ERF, LINKTYPE_INFINIBAND):
                    raise ValueError(f"link type {link_type} is neither ERF "
                                     "nor InfiniBand")
                skip.append(ERF_HEADER if link_type == LINKTYPE_ERF else 0)
            elif kind == PACKET:
                number, high, low, caught, _ = struct.unpack_from("<5I", body)
                options = body[20 + (caught + 3 & ~3):]
                first = 20 + skip[number]
                if skip[number] and body[28] & 0x7F != ERF_INFINIBAND:
                    raise ValueError(f"ERF record of type {body[28]}")
                yield Captured(
                    names[number], high << 32 | low,
                    body[first:20 + caught],
                    [v.decode() for c, v in _options(options)
                     if c == OPT_COMMENT])


def icrc_of(packet: bytes) -> bytes:
    """ICRC as it stands in the packet (7.8.1); packet ends before it.

    What a router changes counts as ones: with a GRH that is all of the LRH.
    """
    masked = bytearray(packet)
    bth = 8
    if masked[1] & 3 != LNH_GLOBAL:
        masked[0] |= 0xF0
    else:
        masked[:8] = b"\xff" * 8
        masked[8] |= 0x0F
        masked[9:12] = b"\xff\xff\xff"
        masked[15] = 0xFF
        bth = 48
    masked[bth + 4] = 0xFF
    return struct.pack("<I", zlib.crc32(masked))


def vcrc_of(packet: bytes) -> bytes:
    """VCRC (7.8.2), bit by bit: x^16+x^12+x^3+x+1, least bit first."""
    crc = 0xFFFF
    for byte in packet:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0xD008 if crc & 1 else 0)
    return struct.pack("<H", crc ^ 0xFFFF)
