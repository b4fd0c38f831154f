#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""The runner's own tests.

usage: run.py [PATTERN ...]     tests whose name contains a PATTERN

Last line: "N passed, N failed, N skipped"; exit status 1 if any failed, 2 if
no test has a name like that.
"""
from __future__ import annotations

import sys
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import choose  # noqa: E402  (after the path is set)


def main() -> int:
    """Run what was asked for of the test_*.py beside this file."""
    choose.hear_signals()
    tests = choose.tests(HERE, sys.argv[1:])
    result = unittest.TextTestRunner(stream=sys.stdout, verbosity=2).run(tests)
    bad = len(result.failures) + len(result.errors)
    skipped = len(result.skipped)
    print(f"{result.testsRun - bad - skipped} passed, {bad} failed, "
          f"{skipped} skipped")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
