# SPDX-License-Identifier: GPL-2.0-or-later
"""Stamps: what a finished step was made from.

A step's key is a hash of everything its product depends on (files, versions,
options, the code that makes it).  A step whose stamp has the same key and
whose products are all there is reused.  Times of files play no part, so a
fresh checkout of the same sources does not rebuild anything.
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

    def __init__(self, name: str) -> None:
        self.path = paths.STAMPS / f"{name}.json"

    def read(self) -> dict:
        """The stamp, or nothing."""
        try:
            return json.loads(self.path.read_text())
        except (OSError, ValueError):
            return {}

    def fresh(self, key: str) -> bool:
        """Whether the step was finished with this key, products intact."""
        data = self.read()
        return data.get("key") == key and \
            all(Path(p).exists() for p in data.get("products", []))

    def write(self, key: str, products: Iterable[Path] = (),
              **extra: object) -> None:
        """Record a finished step."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        data: dict[str, object] = {
            "key": key, "products": [str(p) for p in products], **extra}
        tmp = self.path.with_suffix(".tmp")
        tmp.write_text(json.dumps(data, indent=1, sort_keys=True) + "\n")
        os.replace(tmp, self.path)

    def remove(self) -> None:
        """Forget the step."""
        self.path.unlink(missing_ok=True)
