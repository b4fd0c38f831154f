# SPDX-License-Identifier: GPL-2.0-or-later
"""What the commands share: files found by name, events on the terminal."""
from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from . import paths
from .clean import clean_lines
from .eventlog import Event
from .scenario import ScenarioError
from .timeline import Teller


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


def say(text: str = "") -> None:
    """Print lines, whatever is in them, on whatever terminal."""
    coding = sys.stdout.encoding or "ascii"
    shown = clean_lines(text).encode(coding, "backslashreplace")
    print(shown.decode(coding), flush=True)


def screen(log_started: list[float], verbose: bool
           ) -> Callable[[Event], None]:
    """A printer of events for the terminal, as they come.

    They come from several processes: one that happened a little earlier may
    come a little later.  timeline.txt has them in the order of time.
    """
    teller = Teller()

    def show(event: Event) -> None:
        text = teller.line(event, log_started[0], everything=verbose)
        if text is not None:
            say(text)
    return show
