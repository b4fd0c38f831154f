# SPDX-License-Identifier: GPL-2.0-or-later
"""What the commands share: files found by name, events on the terminal."""
from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from . import paths, stop
from .clean import clean_lines
from .eventlog import Event
from .scenario import ScenarioError
from .values import guess
from .timeline import Teller


def find(word: str, folder: str, suffix: str) -> Path:
    """A file by path or by its bare name among ours."""
    try:
        for path in (Path(word), paths.ROOT / "scenarios" / folder / word,
                     paths.ROOT / "scenarios" / folder / (word + suffix)):
            # What is no regular file is told so by who reads it.
            if path.exists() and not path.is_dir():
                return path
    except OSError as exc:
        raise ScenarioError(f"{word}: {exc.strerror}; name a file that can "
                            "be read") from exc
    if Path(word).is_dir():
        raise ScenarioError(f"{word}: is a directory; name the files: "
                            f"{Path(word) / ('*' + suffix)}")
    known = sorted(p.stem for p in
                   (paths.ROOT / "scenarios" / folder).glob("*" + suffix))
    hint = guess(Path(word).stem, known)
    raise ScenarioError(f"{word}: no such file; " + hint.replace(
        "known: ", "name a path, or one of ours: "))


_unread: list[OSError] = []            # why nobody reads what is printed


def say(text: str = "") -> None:
    """Print lines, whatever is in them, on whatever terminal.

    From any thread.  When nobody reads them any more the program is told to
    stop, as a signal would.
    """
    coding = sys.stdout.encoding or "ascii"
    shown = clean_lines(text).encode(coding, "backslashreplace")
    if not _unread:
        try:
            print(shown.decode(coding), flush=True)
        except OSError as exc:
            _unread.append(exc)
            stop.pipe_broke()


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
