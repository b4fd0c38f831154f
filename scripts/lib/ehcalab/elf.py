# SPDX-License-Identifier: GPL-2.0-or-later
"""As much of ELF (64 bit, little-endian) as putting an image together needs:
the libraries a program asks for, and a kernel module's .modinfo."""
from __future__ import annotations

import struct
from dataclasses import dataclass

EHDR = struct.Struct("<16sHHIQQQIHHHHHH")
SHDR = struct.Struct("<IIQQQQIIQQ")
DYN = struct.Struct("<qQ")
SHT_DYNAMIC = 6
SHT_NOBITS = 8
DT_NEEDED = 1
EM_PPC64 = 21


class ElfError(ValueError):
    """Not an ELF file we can read."""


@dataclass(frozen=True)
class Section:
    """One section header with its name."""
    name: str
    kind: int
    offset: int
    size: int
    link: int


def sections(data: bytes) -> list[Section]:
    """The section table."""
    if len(data) < EHDR.size or data[:4] != b"\x7fELF":
        raise ElfError("not ELF")
    if data[4] != 2 or data[5] != 1:
        raise ElfError("not a 64-bit little-endian ELF file")
    head = EHDR.unpack_from(data)
    shoff, shentsize, shnum, shstrndx = head[6], head[11], head[12], head[13]
    if shentsize != SHDR.size or shoff + shnum * SHDR.size > len(data) or \
            shstrndx >= shnum:
        raise ElfError("section table out of bounds")
    raw = [SHDR.unpack_from(data, shoff + i * SHDR.size)
           for i in range(shnum)]
    names = raw[shstrndx]
    result = []
    for one in raw:
        if one[1] != SHT_NOBITS and one[4] + one[5] > len(data):
            raise ElfError("section out of bounds")
        result.append(Section(cstring(data, names[4] + one[0]), one[1],
                              one[4], one[5], one[6]))
    return result


def cstring(data: bytes, offset: int) -> str:
    """A NUL-terminated string."""
    end = data.find(b"\0", offset)
    if end < 0:
        raise ElfError("string out of bounds")
    return data[offset:end].decode("utf-8", "replace")


def is_elf(data: bytes) -> bool:
    """Whether the data is an ELF file."""
    return data[:4] == b"\x7fELF"


def machine(data: bytes) -> int:
    """The machine the file is for."""
    return EHDR.unpack_from(data)[2]


def needed(data: bytes) -> list[str]:
    """The shared libraries a program or library asks for."""
    table = sections(data)
    result = []
    for one in table:
        if one.kind != SHT_DYNAMIC or one.link >= len(table):
            continue
        strings = table[one.link].offset
        for at in range(one.offset, one.offset + one.size, DYN.size):
            tag, value = DYN.unpack_from(data, at)
            if tag == DT_NEEDED:
                result.append(cstring(data, strings + value))
    return result


def modinfo(data: bytes) -> dict[str, list[str]]:
    """A kernel module's .modinfo: every value of every key."""
    result: dict[str, list[str]] = {}
    for one in sections(data):
        if one.name != ".modinfo":
            continue
        blob = data[one.offset:one.offset + one.size]
        for item in blob.split(b"\0"):
            key, sep, value = item.decode("utf-8", "replace").partition("=")
            if sep:
                result.setdefault(key, []).append(value)
    return result
