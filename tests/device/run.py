#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs the device tests: the built QEMU through qtest, no guest.

usage: run.py [PATTERN ...]     tests whose name contains a PATTERN

Last line: "N passed, N failed, N skipped"; exit status 1 if any failed, 2 if
no test has a name like that.
"""
from __future__ import annotations

import signal
import sys
import tempfile
import time
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import choose  # noqa: E402  (after the path is set)
import qtest  # noqa: E402


class Result(unittest.TextTestResult):
    """Counts, one line per test with its time."""

    def startTest(self, test: unittest.TestCase) -> None:
        self.started = time.monotonic()
        super().startTest(test)

    def getDescription(self, test: unittest.TestCase) -> str:
        return test.id()


def main() -> int:
    """Run, count."""
    choose.hear_signals()
    tests = choose.tests(HERE, sys.argv[1:])
    if not qtest.QEMU.exists():
        print(f"{qtest.QEMU} is not there: scripts/setup builds it, or "
              "EHCALAB_QEMU names another")
        print("0 passed, 1 failed, 0 skipped")
        return 1
    runner = unittest.TextTestRunner(stream=sys.stdout, verbosity=2,
                                     resultclass=Result)
    result = runner.run(tests)
    # A failed subtest stands for its test.
    broken = len({getattr(test, "test_case", test).id()
                  for test, _ in result.failures + result.errors} |
                 {test.id() for test in result.unexpectedSuccesses})
    skipped = len(result.skipped)
    passed = result.testsRun - broken - skipped
    print(f"{passed} passed, {broken} failed, {skipped} skipped")
    return 1 if broken or not result.testsRun else 0


def stop(*_: object) -> None:
    """Stopped from outside: as by Ctrl-C."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, stop)
    # Children die with us (qtest.die_with_us); their files are in here.
    with tempfile.TemporaryDirectory(prefix="ehca-device-",
                                     ignore_cleanup_errors=True) as scratch:
        tempfile.tempdir = scratch
        try:
            status = main()
        except KeyboardInterrupt:
            print("stopped")
            status = 130
    sys.exit(status)
