# SPDX-License-Identifier: GPL-2.0-or-later
"""The one door between what others wrote and what a person reads.

A guest can put any character into its output and its events: sequences that
drive a terminal, NUL, marks that turn the direction of writing, halves of
surrogate pairs, lines without end.  Everything that goes to a terminal, into
the timeline, the picture or the XML report passes clean(): what is left is
printable, legal in XML, on one line, and not longer than a limit.  The JSON
lines keep the original, in JSON's own escapes.
"""
from __future__ import annotations

LINE_MAX = 1000


def _visible(char: str) -> str:
    # Python's notion of printable leaves out what does harm: control (Cc),
    # format and direction (Cf), surrogates (Cs), separators of lines and
    # paragraphs (Zl, Zp), private and unassigned characters.
    if char.isprintable():
        return char
    return char.encode("unicode_escape").decode()


def clean(text: object, longest: int = LINE_MAX) -> str:
    """The text on one line, what cannot be printed as \\xNN or \\uNNNN."""
    try:
        whole = str(text)
    except RecursionError:           # JSON, nested as deep as it goes
        whole = f"<{type(text).__name__}>"
    more = len(whole) - longest
    shown = "".join(map(_visible, whole[:longest]))
    if more > 0:
        shown += f"... ({more} more characters)"
    return shown


def clean_lines(text: str) -> str:
    """The same for a text whose lines are to stay lines."""
    return "\n".join(map(clean, text.split("\n")))


def short(text: object, longest: int) -> str:
    """At most so many characters of a text, on one line."""
    whole = clean(text)
    return whole if len(whole) <= longest else whole[:longest - 3] + "..."
