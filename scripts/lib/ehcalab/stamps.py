# SPDX-License-Identifier: GPL-2.0-or-later
"""Stamps: what a finished step was made from.

A step's key is a hash of everything its product depends on (files, versions,
options, the code that makes it).  A step whose stamp has the same key and
whose products are all there is reused.  Times of files play no part, so a
fresh checkout of the same sources does not rebuild anything.

A step begins by begin(): until it is done it has no stamp, so that one that
is cut off, whatever it leaves, is done again.

Some products name the directory they were made in, or made from.  Their stamps
have that as their place, and are not fresh in a copy made elsewhere.
"""
from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path

from . import paths


def hash_files(roots: Iterable[Path], base: Path = paths.ROOT) -> str:
    """A hash over names, modes and contents of files and directories."""
    digest = hashlib.sha256()
    for root in roots:
        if root.is_dir():
            files = sorted(p for p in root.rglob("*")
                           if p.is_file() and "__pycache__" not in p.parts)
        elif root.exists():
            files = [root]
        else:
            digest.update(f"absent {root.name}\0".encode())
            continue
        for path in files:
            name = os.path.relpath(path, base)
            data = path.read_bytes()
            mode = path.stat().st_mode & 0o111
            digest.update(f"{name}\0{mode}\0{len(data)}\0".encode())
            digest.update(data)
    return digest.hexdigest()


def key_of(*parts: object) -> str:
    """One key of several values which JSON can write."""
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


class Stamp:
    """The stamp file of one step."""

    def __init__(self, name: str, *place: Path) -> None:
        self.path = paths.STAMPS / f"{name}.json"
        self.place = [str(path) for path in place]

    def read(self) -> dict:
        """The stamp, or nothing."""
        try:
            found = json.loads(self.path.read_text())
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def moved(self) -> bool:
        """Whether what was made here before was made in another place."""
        return self.read().get("place", self.place) != self.place

    def fresh(self, key: str) -> bool:
        """Whether the step was finished with this key, products intact."""
        data = self.read()
        return data.get("key") == key and not self.moved() and \
            all((paths.BUILD / p).exists() for p in data.get("products", []))

    def begin(self) -> None:
        """The step begins: it is not done until write()."""
        self.path.unlink(missing_ok=True)

    def write(self, key: str, products: Iterable[Path] = (),
              **extra: object) -> None:
        """Record a finished step."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        data: dict[str, object] = {
            "key": key, **extra, "place": self.place,
            "products": [os.path.relpath(p, paths.BUILD) for p in products]}
        tmp = self.path.with_suffix(".tmp")
        tmp.write_text(json.dumps(data, indent=1, sort_keys=True) + "\n")
        os.replace(tmp, self.path)
