#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""The runner's own tests; last line "N passed, N failed, N skipped"."""
import sys
import unittest
from pathlib import Path


def main() -> int:
    """Run every test_*.py beside this file."""
    suite = unittest.defaultTestLoader.discover(str(Path(__file__).parent))
    result = unittest.TextTestRunner(stream=sys.stdout, verbosity=2).run(suite)
    bad = len(result.failures) + len(result.errors)
    skipped = len(result.skipped)
    print(f"{result.testsRun - bad - skipped} passed, {bad} failed, "
          f"{skipped} skipped")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
