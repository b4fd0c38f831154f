# SPDX-License-Identifier: GPL-2.0-or-later
"""scripts/check: everything built, every test run, one line at the end.

Theory of operation
  First scripts/setup all.  Then the suites: `meson test` for what needs no
  QEMU (unit, sim, fuzz, interop), whose cases are counted from meson's JUnit
  report, and the programs of SUITES, each of which ends its output with a
  line "N passed, N failed, N skipped".  A suite that fails in any other way
  (no such line, a bad exit status, too much time) counts as one failure, so
  the sum cannot hide it.  The last line is the sum; the exit status is 0 if
  nothing failed and something passed.
"""
from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import tempfile
import threading
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path

from . import entry, paths, setup_main, stop
from .process import die_with_parent, stop_group
from .setup_host import MESON
from .ui import SetupError, report
from .values import guess

PYTHON = "/usr/bin/python3"
COUNTS_RE = re.compile(r"^(\d+) passed, (\d+) failed, (\d+) skipped$")
# What meson calls a test that did not do what it should.
MESON_BAD = {"FAIL", "ERROR", "TIMEOUT", "INTERRUPT", "UNEXPECTEDPASS"}


@dataclass(frozen=True)
class Suite:
    """A program that runs tests and says how many."""
    name: str
    program: str
    # Seconds after which something hangs.  Only a stop for what would never
    # end: no test's result depends on it.
    limit: int


SUITES = (
    Suite("runner", "tests/runner/run.py", 600),
    Suite("device", "tests/device/run.py", 900),
    Suite("lab", "tests/lab/run.py", 2400),
)
MESON_LIMIT = 1800
# Seconds for a suite that is stopped to stop what it started.
SUITE_PATIENCE = 20.0
# A busy CI machine is no reason for a failure.
TIMEOUT_MULTIPLIER = "4"


@dataclass
class Counts:
    """How many cases ended how."""
    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __iadd__(self, other: "Counts") -> "Counts":
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        return self

    def __str__(self) -> str:
        return (f"{self.passed} passed, {self.failed} failed, "
                f"{self.skipped} skipped")


def say(text: str) -> None:
    """A line of our own among those of the suites."""
    print(f"== {text}", flush=True)


def run(argv: list[str], limit: int) -> tuple[int | None, str]:
    """Run a suite, passing its output on; status (None: too long) and the
    last line it said.

    A suite leads a process group, which ends with it, and its temporary
    files are in a directory of their own, which goes with it.
    """
    last = ""
    expired = threading.Event()
    proc: subprocess.Popen[str] | None = None
    with tempfile.TemporaryDirectory(prefix="ehcalab-check-",
                                     ignore_cleanup_errors=True) as scratch:
        try:
            with stop.held():
                proc = subprocess.Popen(
                    argv, cwd=paths.ROOT, stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                    text=True, errors="replace", process_group=0,
                    env=dict(os.environ, TMPDIR=scratch),
                    preexec_fn=die_with_parent(signal.SIGTERM))

            def too_long() -> None:
                assert proc is not None
                expired.set()
                stop_group(proc)

            timer = threading.Timer(limit, too_long)
            timer.daemon = True
            timer.start()
            try:
                assert proc.stdout is not None
                for line in proc.stdout:
                    print(line, end="", flush=True)
                    if line.strip():
                        last = line.strip()
                status = proc.wait()
            finally:
                timer.cancel()
        finally:
            if proc is not None:
                with stop.held():
                    stop_group(proc, SUITE_PATIENCE)
    return (None if expired.is_set() else status), last


def settle(name: str, counts: Counts, status: int | None,
           limit: int) -> Counts:
    """Turn a suite's bad end into a failure if it counted none."""
    if status is None:
        say(f"suite {name}: stopped, not finished after {limit} s")
        counts.failed += 1
    elif status != 0 and counts.failed == 0:
        say(f"suite {name}: exit status {status}, though no case failed")
        counts.failed += 1
    elif status == 0 and not (counts.passed or counts.failed
                              or counts.skipped):
        say(f"suite {name}: ran no case at all")
        counts.failed += 1
    say(f"suite {name}: {counts}")
    return counts


# -- meson ----------------------------------------------------------------

def tap_counts(path: Path) -> dict[str, Counts]:
    """The cases of each program that speaks TAP, from the JUnit report.

    Such a program is a test suite "PROJECT.NAME" of its own there.
    """
    result: dict[str, Counts] = {}
    for suite in ElementTree.parse(path).getroot().iter("testsuite"):
        _, dot, name = suite.get("name", "").partition(".")
        if not dot:
            continue
        counts = result.setdefault(name, Counts())
        for case in suite.iter("testcase"):
            if case.find("failure") is not None or \
                    case.find("error") is not None:
                counts.failed += 1
            elif case.find("skipped") is not None:
                counts.skipped += 1
            else:
                counts.passed += 1
    return result


def report_counts(logs: Path) -> Counts:
    """All cases of meson's last run.

    The verdict on a program is taken from testlog.json: the JUnit report
    has one that hung, or died half way, as passed.
    """
    taps = tap_counts(logs / "testlog.junit.xml")
    total = Counts()
    text = (logs / "testlog.json").read_text(errors="replace")
    for line in text.splitlines():
        record = json.loads(line)
        name, result = record["name"], record["result"]
        bad = result in MESON_BAD
        counts = taps.get(name)
        if counts is None:
            counts = Counts(skipped=1) if result == "SKIP" else \
                Counts(failed=1) if bad else Counts(passed=1)
        elif bad and counts.failed == 0:
            counts.failed = 1
        if bad:
            say(f"failed: {name} ({result})")
        total += counts
    return total


def meson_suite() -> Counts:
    """The tests that meson.build files register."""
    logs = paths.HOST / "meson-logs"
    for name in ("testlog.json", "testlog.junit.xml"):
        (logs / name).unlink(missing_ok=True)
    status, _ = run([MESON, "test", "-C", str(paths.HOST), "--no-rebuild",
                     "--print-errorlogs", "--timeout-multiplier",
                     TIMEOUT_MULTIPLIER], MESON_LIMIT)
    counts = Counts()
    try:
        counts = report_counts(logs)
    except (OSError, ValueError, KeyError,
            ElementTree.ParseError) as exc:
        say(f"meson left no readable report: {exc}")
    return settle("meson", counts, status, MESON_LIMIT)


def program_suite(suite: Suite) -> Counts:
    """One of SUITES."""
    status, last = run([PYTHON, str(paths.ROOT / suite.program)],
                       suite.limit)
    match = COUNTS_RE.match(last)
    counts = Counts(*map(int, match.groups())) if match else Counts()
    if not match and status == 0:
        say(f"suite {suite.name}: its last line is not "
            '"N passed, N failed, N skipped"')
    return settle(suite.name, counts, status, suite.limit)


# -- entry ----------------------------------------------------------------

def check(argv: list[str]) -> int:
    """Run the suites asked for, and count."""
    names = ["meson", *(suite.name for suite in SUITES)]
    parser = argparse.ArgumentParser(
        prog="scripts/check", description="build everything, run all tests",
        usage="scripts/check [--no-setup] [SUITE...]")
    parser.add_argument("suites", nargs="*", metavar="SUITE",
                        help=", ".join(names) + " (default: all)")
    parser.add_argument("--no-setup", action="store_true",
                        help="test what is built, as it is")
    args = parser.parse_args(argv)
    for name in args.suites:
        if name not in names:
            parser.error(f"no suite '{name}'; " + guess(name, names))
    total = Counts()
    stopped: stop.Stopped | None = None
    try:
        if not args.no_setup:
            setup_main.run_steps(["all"])
        wanted = args.suites or names
        if "meson" in wanted:
            say("suite meson")
            total += meson_suite()
        for suite in SUITES:
            if suite.name not in wanted:
                continue
            say(f"suite {suite.name}")
            total += program_suite(suite)
    except SetupError as exc:
        for line in report("scripts/check", exc):
            entry.say(line)
        total.failed += 1
    except BrokenPipeError:
        raise
    except OSError as exc:
        entry.say(f"scripts/check: {entry.os_error(exc)}")
        total.failed += 1
    except stop.Stopped as exc:
        say(f"stopped by {exc.signum.name}")
        total.failed += 1
        stopped = exc
    print(total, flush=True)
    if stopped is not None:
        return stopped.status
    return 0 if total.failed == 0 and total.passed > 0 else 1


def main(argv: list[str]) -> int:
    """Entry point of scripts/check."""
    return entry.run("scripts/check", 1, lambda: check(argv))
