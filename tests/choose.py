# SPDX-License-Identifier: GPL-2.0-or-later
"""What test programs share: the choice of tests by a word, and signals."""
from __future__ import annotations

import difflib
import signal
import sys
import unittest
from pathlib import Path

BAD_INPUT = 2


def hear_signals() -> None:
    """Be stopped by Ctrl-C, and so by default those that a test starts.

    A shell has what it puts into the background ignore SIGINT, nohup SIGHUP,
    and programs that ignore them from the start go on doing so.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def unknown(word: str, known: list[str]) -> None:
    """End: there is no test of that name."""
    near = difflib.get_close_matches(word, known, 1)
    print(f"{Path(sys.argv[0]).name}: no test '{word}'; "
          + (f"did you mean '{near[0]}'? There are" if near else "there are")
          + ":\n  " + "\n  ".join(known), file=sys.stderr)
    sys.exit(BAD_INPUT)


def flat(suite: unittest.TestSuite) -> list[unittest.TestCase]:
    """A suite's tests in a list."""
    tests: list[unittest.TestCase] = []
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            tests += flat(item)
        else:
            tests.append(item)
    return tests


def tests(folder: Path, words: list[str]) -> unittest.TestSuite:
    """The tests of a folder whose name contains one of the words; all if
    there is no word."""
    every = flat(unittest.defaultTestLoader.discover(str(folder)))
    for word in words:
        if not any(word in test.id() for test in every):
            unknown(word, sorted({test.id().rpartition(".")[0]
                                  for test in every}))
    return unittest.TestSuite(
        test for test in every
        if not words or any(word in test.id() for word in words))
