# SPDX-License-Identifier: GPL-2.0-or-later
"""What a word of a scenario may be: numbers, choices, GIDs, ports, ...

The one door for values.  A Kind says whether a text is one, and in words what
would be; scenario options, faults, conditions, module parameters and the
consumer's commands are tables of kinds.
"""
from __future__ import annotations

import difflib
import ipaddress
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

U64_MAX = 2 ** 64 - 1
# Longest word of a file that a message repeats.
SHOWN_MAX = 80
# int() of a longer text takes long, or raises.
DIGITS_MAX = 20
NAMES_SHOWN = 40


def shown(text: str) -> str:
    """A word of a file, fit to be printed."""
    clean = "".join(c if c.isprintable() else "?" for c in text[:SHOWN_MAX])
    return clean + ("..." if len(text) > SHOWN_MAX else "")


def guess(word: str, known: Iterable[str]) -> str:
    """A hint for a word that is not known."""
    names = list(known)
    lower = {name.lower(): name for name in reversed(names)}
    near = difflib.get_close_matches(word[:SHOWN_MAX].lower(), lower, 1)
    if near:
        return f"did you mean '{lower[near[0]]}'?"
    more = len(names) - NAMES_SHOWN
    return ("known: " + (", ".join(names[:NAMES_SHOWN]) or "none")
            + (f" and {more} more" if more > 0 else ""))


def whole(text: str, low: int, high: int) -> int | None:
    """A whole number within limits, None if it is none."""
    if not re.fullmatch(r"-?[0-9]+", text) or len(text) > DIGITS_MAX:
        return None
    return int(text) if low <= int(text) <= high else None


def decimal(text: str, low: float, high: float) -> float | None:
    """A number within limits, None if it is none."""
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)?", text) or \
            len(text) > DIGITS_MAX:
        return None
    return float(text) if low <= float(text) <= high else None


def is_gid(text: str) -> bool:
    """Whether a text is a GID, written as an IPv6 address."""
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return "%" not in text


def plain(value: object) -> object:
    """A value in the form in which equal ones are equal.

    A number, or a GID, can be written in several ways.
    """
    text = str(value).lower()
    if re.fullmatch(r"-?[0-9]+", text) and len(text) <= DIGITS_MAX:
        return int(text)
    if re.fullmatch(r"[0-9]+\.[0-9]+", text):
        return float(text)
    if re.fullmatch(r"0x[0-9a-f]{1,16}", text):
        return int(text, 16)
    return ipaddress.IPv6Address(text) if is_gid(text) else text


@dataclass(frozen=True)
class Where:
    """What values are checked against: the topology, a node's ports."""

    ports: int = 255
    nodes: tuple[str, ...] = ()
    cables: tuple[str, ...] = ()


@dataclass(frozen=True)
class Kind:
    """A kind of value."""

    fits: Callable[[str, Where], bool]
    # What would be right: for people; {ports} is filled in.
    words: str = ""
    ordered: bool = False            # >= and <= make sense
    # All there are, of those that can be listed.
    choices: Callable[[Where], tuple[str, ...]] = lambda where: ()

    def wrong(self, text: str, where: Where) -> str:
        """What would be right instead of the text; '' if it is."""
        if self.fits(text, where):
            return ""
        if self.choices(where):
            return guess(text, self.choices(where))
        return "write " + self.words.format(ports=where.ports)


def number(low: int = 0, high: int = U64_MAX) -> Kind:
    """A whole number."""
    def fits(text: str, _: Where) -> bool:
        if re.fullmatch("0x[0-9a-fA-F]{1,16}", text):
            return low <= int(text, 16) <= high
        return whole(text, low, high) is not None
    return Kind(fits, "a whole number" if high == U64_MAX
                else f"a number from {low} to {high}", ordered=True)


def fraction(low: float, high: float) -> Kind:
    """A number with or without decimals."""
    return Kind(lambda text, _: decimal(text, low, high) is not None,
                f"a number from {low:g} to {high:g}", ordered=True)


def one_of(*words: str) -> Kind:
    """One of a few words, in capital or small letters."""
    fold = {word.lower() for word in words}
    return Kind(lambda text, _: text.lower() in fold,
                choices=lambda _: words)


def exactly(*words: str) -> Kind:
    """One of a few words, written as here."""
    return Kind(lambda text, _: text in words, choices=lambda _: words)


NUMBER = number()
DECIMAL = Kind(lambda text, _: decimal(text, 0, U64_MAX) is not None,
               "a number", ordered=True)
TEXT = Kind(lambda text, _: bool(text), "some text")
BOOL = one_of("true", "false")
GID = Kind(lambda text, _: is_gid(text),
           "a GID such as fe80::2:c903:0:1, or {{gid:NODE/PORT}}")
HEX = Kind(lambda text, _: re.fullmatch("0x[0-9a-fA-F]{1,16}", text)
           is not None, "a number such as 0x1000")
# 0: the alternate port of what has no alternate path.
PORT = Kind(lambda text, where: whole(text, 0, where.ports) is not None,
            "a port from 1 to {ports}", ordered=True)
NODE = Kind(lambda text, where: text in where.nodes,
            choices=lambda where: where.nodes)
CABLE = Kind(lambda text, where: text in where.cables,
             choices=lambda where: where.cables)
