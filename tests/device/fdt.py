# SPDX-License-Identifier: GPL-2.0-or-later
"""Reads a flattened device tree (Devicetree Specification 0.4, chapter 5)."""
from __future__ import annotations

import struct
from dataclasses import dataclass, field

MAGIC = 0xd00dfeed
BEGIN_NODE, END_NODE, PROP, NOP, END = 1, 2, 3, 4, 9


@dataclass
class Node:
    """A node with its properties as bytes."""
    name: str
    props: dict[str, bytes] = field(default_factory=dict)
    children: list["Node"] = field(default_factory=list)


def parse(blob: bytes) -> Node:
    """The root."""
    magic, _, structs, strings = struct.unpack_from(">4I", blob)
    if magic != MAGIC:
        raise ValueError(f"no device tree: magic {magic:#x}")
    pos = structs
    stack: list[Node] = []
    while True:
        [token] = struct.unpack_from(">I", blob, pos)
        pos += 4
        if token == BEGIN_NODE:
            end = blob.index(b"\0", pos)
            node = Node(blob[pos:end].decode())
            pos = (end + 4) & ~3
            if stack:
                stack[-1].children.append(node)
            stack.append(node)
        elif token == END_NODE:
            node = stack.pop()
            if not stack:
                return node
        elif token == PROP:
            length, name = struct.unpack_from(">2I", blob, pos)
            pos += 8
            at = strings + name
            key = blob[at:blob.index(b"\0", at)].decode()
            stack[-1].props[key] = blob[pos:pos + length]
            pos = (pos + length + 3) & ~3
        elif token != NOP:
            raise ValueError(f"unknown token {token} at {pos - 4:#x}")
