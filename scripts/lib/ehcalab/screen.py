# SPDX-License-Identifier: GPL-2.0-or-later
"""What the commands share: files found by name, events on the terminal."""
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from . import paths
from .eventlog import Event
from .scenario import ScenarioError
from .timeline import line_of


def find(word: str, folder: str, suffix: str) -> Path:
    """A file by path or by its bare name among ours."""
    for path in (Path(word), paths.ROOT / "scenarios" / folder / word,
                 paths.ROOT / "scenarios" / folder / (word + suffix)):
        if path.is_file():
            return path
    known = sorted(p.stem for p in
                   (paths.ROOT / "scenarios" / folder).glob("*" + suffix))
    raise ScenarioError(f"{word}: no such file; ours are: "
                        f"{', '.join(known)}")


def screen(log_started: list[float], verbose: bool
           ) -> Callable[[Event], None]:
    """A printer of events for the terminal."""
    def show(event: Event) -> None:
        text = line_of(event, log_started[0], everything=verbose)
        if text is not None:
            print(text, flush=True)
    return show
