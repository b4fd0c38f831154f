# SPDX-License-Identifier: GPL-2.0-or-later
"""A writer of cpio archives in the "newc" format, for initramfs images.

The archive is made from a description, not from a directory: device nodes,
owners and modes are only numbers in it, so no root is needed, and the same
input gives the same bytes (entries sorted, all times zero, own inode
numbers).  Format: Linux, Documentation/driver-api/early-userspace/
buffer-format.rst.
"""
from __future__ import annotations

import io
import stat
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import BinaryIO

ALIGN = 4
# Archives end on a block boundary, so that archives can be joined.
BLOCK = 512


@dataclass
class Entry:
    """One file, directory, link or device."""
    mode: int
    data: bytes = b""
    rdev: tuple[int, int] = (0, 0)


@dataclass
class Archive:
    """A tree being put together."""
    entries: dict[str, Entry] = field(default_factory=dict)

    def _put(self, name: str, entry: Entry) -> None:
        name = str(PurePosixPath(name)).strip("/")
        parent = str(PurePosixPath(name).parent)
        if parent != "." and parent not in self.entries:
            self.directory(parent)
        self.entries[name] = entry

    def directory(self, name: str, mode: int = 0o755) -> None:
        """Add a directory (and those above it)."""
        self._put(name, Entry(stat.S_IFDIR | mode))

    def file(self, name: str, data: bytes, mode: int = 0o644) -> None:
        """Add a regular file."""
        self._put(name, Entry(stat.S_IFREG | mode, data))

    def symlink(self, name: str, target: str) -> None:
        """Add a symbolic link."""
        self._put(name, Entry(stat.S_IFLNK | 0o777, target.encode()))

    def device(self, name: str, kind: str, major: int, minor: int,
               mode: int = 0o600) -> None:
        """Add a character ('c') or block ('b') device node."""
        fmt = stat.S_IFCHR if kind == "c" else stat.S_IFBLK
        self._put(name, Entry(fmt | mode, rdev=(major, minor)))

    def bytes(self) -> bytes:
        """The archive in memory."""
        out = io.BytesIO()
        self.write(out)
        return out.getvalue()

    def write(self, out: BinaryIO) -> int:
        """Write the archive; its size in bytes."""
        size = 0
        for inode, name in enumerate(sorted(self.entries), start=1):
            size += _write_entry(out, name, self.entries[name], inode)
        size += _write_entry(out, "TRAILER!!!", Entry(0), 0)
        pad = -size % BLOCK
        out.write(bytes(pad))
        return size + pad


def _write_entry(out: BinaryIO, name: str, entry: Entry, inode: int) -> int:
    raw_name = name.encode() + b"\0"
    links = 2 if stat.S_ISDIR(entry.mode) else 1
    fields = (inode, entry.mode, 0, 0, links, 0, len(entry.data), 0, 0,
              entry.rdev[0], entry.rdev[1], len(raw_name), 0)
    head = b"070701" + b"".join(b"%08x" % value for value in fields)
    blob = head + raw_name
    blob += bytes(-len(blob) % ALIGN)
    blob += entry.data
    blob += bytes(-len(blob) % ALIGN)
    out.write(blob)
    return len(blob)
