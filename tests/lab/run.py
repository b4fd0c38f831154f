#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""The lab suite: plays the scenarios, then has tshark read what they left.

    run.py [NAME...]      all of SCENARIOS and "trouble", or the named ones

Each step of a scenario counts as a test, so does each check of its capture.
The last line is "N passed, N failed, N skipped"; exit status 1 if any failed,
2 if there is no test of a name.
"""
from __future__ import annotations

import json
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import pcapng
import trouble

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts" / "lib"), str(ROOT / "tests")]

import choose  # noqa: E402  (after the path is set)
from ehcalab import entry, paths  # noqa: E402
from ehcalab.scenario import KERNELS  # noqa: E402

# In the order of their weight; all of them are run by scripts/check.
SCENARIOS = ["apm-failover", "apm-software", "apm-unarmed", "apm-one-sided",
             "qp1-no-wait", "qp1-wait-option", "dark-port", "sm-restart",
             "guest-killed", "driver-selftest", "cm-selftest", "cm-lap",
             "cm-paths", "noisy-cables", "data-ops", "cm-interop",
             "modules-go",
             # NAME@KERNEL: with another kernel than the default.
             "apm-failover@6.1", "driver-selftest@6.1", "cm-selftest@6.1"]
# Their cables damage packets on purpose, and a switch passes them on.
DAMAGED = {"noisy-cables"}
# VCRCs are computed bit by bit here: a sample is enough.
VCRC_SAMPLE = 500
# CM messages that a capture of this scenario must show.
CM_MESSAGES = {"apm-failover": {"REQ": 0x10, "REP": 0x13, "RTU": 0x14,
                                "LAP": 0x19, "APR": 0x1A}}


class Tally:
    """Counts and tells results."""

    def __init__(self) -> None:
        self.passed = self.failed = self.skipped = 0

    def tell(self, name: str, failure: str = "", skip: str = "") -> None:
        """Note one result."""
        if skip:
            self.skipped += 1
            print(f"skip {name}: {skip}", flush=True)
        elif failure:
            self.failed += 1
            print(f"FAIL {name}: {failure}", flush=True)
        else:
            self.passed += 1
            print(f"ok   {name}", flush=True)

    def check(self, name: str, test: Callable[[], str]) -> None:
        """A test is a function that returns what is wrong, or ''."""
        try:
            self.tell(name, test())
        except (OSError, ValueError, subprocess.SubprocessError) as exc:
            self.tell(name, str(exc) or type(exc).__name__)


def tshark(capture: Path, *words: str) -> list[str]:
    """tshark's output lines."""
    done = subprocess.run(["tshark", "-r", str(capture), *words], text=True,
                          capture_output=True, check=False)
    if done.returncode != 0:
        raise ValueError(f"tshark says: {done.stderr.strip()[-400:]}")
    return done.stdout.splitlines()


def capture_checks(name: str, capture: Path, tally: Tally) -> None:
    """What an independent reader makes of a capture."""
    scenario = name.partition("@")[0]

    def reads_clean() -> str:
        known = tshark(capture, "-c", "1", "-T", "fields", "-e",
                       "infiniband.lrh.dlid")
        if not any(known):
            return "tshark does not know its packets as InfiniBand"
        bad = tshark(capture, "-Y", "_ws.malformed || "
                     "_ws.expert.severity == error")
        return "\n".join(bad[:5])

    def crcs() -> str:
        count = 0
        for one in pcapng.read(capture):
            if any("corrupt" in c for c in one.comments):
                continue
            count += 1
            body, icrc, vcrc = (one.data[:-6], one.data[-6:-2],
                                one.data[-2:])
            if pcapng.icrc_of(body) != icrc:
                return f"packet {count}: ICRC {icrc.hex()} is wrong"
            if count <= VCRC_SAMPLE and \
                    pcapng.vcrc_of(one.data[:-2]) != vcrc:
                return f"packet {count}: VCRC {vcrc.hex()} is wrong"
        return "" if count else "there is no packet in it"

    def messages() -> str:
        seen = set(tshark(capture, "-Y", "infiniband.mad.mgmtclass == 7",
                          "-T", "fields", "-e",
                          "infiniband.mad.attributeid"))
        numbers = {int(s, 16) for s in seen if s}
        missing = [m for m, n in CM_MESSAGES[scenario].items()
                   if n not in numbers]
        return f"tshark sees no {', '.join(missing)}" if missing else ""

    def both_bits() -> str:
        bits = {one.migreq for one in pcapng.read(capture)
                if one.opcode < 0x20}
        return "" if bits == {0, 1} else f"MigReq values seen: {bits}"

    if name in DAMAGED:
        return
    if not shutil.which("tshark"):
        tally.tell(f"{name}: capture", skip="tshark is not installed")
        return
    tally.check(f"{name}: tshark reads the capture", reads_clean)
    tally.check(f"{name}: both CRCs of each packet", crcs)
    if scenario in CM_MESSAGES:
        tally.check(f"{name}: CM messages in the capture", messages)
        tally.check(f"{name}: MigReq 0 and 1 in the capture", both_bits)


def events_check(run_dir: Path) -> str:
    """Every line of the JSON lines is an object with time and source."""
    with (run_dir / "events.jsonl").open() as lines:
        for number, line in enumerate(lines, 1):
            one = json.loads(line)
            if not {"t", "source", "event", "data"} <= one.keys():
                return f"line {number} lacks a field: {line[:100]}"
    return ""


def lap_check(run_dir: Path) -> str:
    """Who is asked loads before it answers; who asks, after the answer.

    Else the one that asks could arm against a peer that has not loaded.
    """
    loaded = ("rearmed", "alternate_loaded")
    by_source: dict[str, list[tuple[int, str, int]]] = {}
    with (run_dir / "events.jsonl").open() as lines:
        for one in map(json.loads, lines):
            if one["event"] in ("lap_received", "apr_sent", "apr_received",
                                "module_loaded", *loaded):
                by_source.setdefault(one["source"], []).append(
                    (one["data"]["seq"], one["event"],
                     one["data"].get("status", 0)))
    for source, events in by_source.items():
        for before, this, after in zip(events, events[1:],
                                       events[2:] + [(0, "", 0)]):
            if this[1] == "apr_sent" and this[2] == 0 and \
                    before[1] not in loaded:
                return f"{source} event {this[0]}: APR before the load"
            if this[1] == "apr_received" and this[2] == 0 and \
                    after[1] not in loaded:
                return f"{source} event {this[0]}: APR, and no load after it"
    return ""


def play(name: str, tally: Tally) -> None:
    """Play one scenario and count its steps."""
    run_dir = paths.BUILD / "runs" / f"check-{name}"
    shutil.rmtree(run_dir, ignore_errors=True)
    print(f"--   {name}", flush=True)
    scenario, _, kernel = name.partition("@")
    done = trouble.ehcalab(
        "run", scenario, "--out", str(run_dir),
        *(["--kernel", kernel] if kernel else []))
    junit = run_dir / "junit.xml"
    if not junit.exists():
        said = (done.stderr or done.stdout).strip()
        tally.tell(name, f"no report, exit status {done.returncode}: "
                   f"{said[-1500:]}")
        return
    suite = ET.parse(junit).getroot()
    for case in suite.findall("testcase"):
        title = f"{name}: {case.get('name')}"
        failure, skip = case.find("failure"), case.find("skipped")
        if failure is None:
            failure = case.find("error")
        if failure is not None:
            tally.tell(title, f"{failure.get('message')}\n"
                       f"     see {run_dir / 'timeline.txt'}")
        elif skip is not None:
            tally.tell(title, skip=str(skip.get("message")))
        else:
            tally.tell(title)
    wrong = (done.returncode == 0) != (
        suite.get("failures") == suite.get("errors") == "0")
    tally.tell(f"{name}: exit status agrees with the report",
               f"it is {done.returncode}" if wrong else "")
    tally.check(f"{name}: JSON lines", lambda: events_check(run_dir))
    tally.check(f"{name}: loaded before APR", lambda: lap_check(run_dir))
    capture_checks(name, run_dir / "capture.pcapng", tally)


def known_names() -> list[str]:
    """What can be run; a scenario of ours also as NAME@KERNEL."""
    return ["trouble", *(f"trouble/{case.__name__}"
                         for case in trouble.CASES),
            *sorted(p.stem for p in (ROOT / "scenarios").glob("*.scn"))]


def run() -> int:
    """Run what was asked for."""
    known = known_names()
    for name in sys.argv[1:]:
        scenario, at, kernel = name.partition("@")
        if scenario not in known or at and (
                kernel not in KERNELS or scenario.startswith("trouble")):
            choose.unknown(name, known)
    tally = Tally()
    for name in sys.argv[1:] or [*SCENARIOS, "trouble"]:
        group, _, case = name.partition("/")
        if group == "trouble":
            trouble.run_all(tally.check, case)
        else:
            play(name, tally)
    print(f"{tally.passed} passed, {tally.failed} failed, "
          f"{tally.skipped} skipped")
    return 1 if tally.failed else 0


if __name__ == "__main__":
    choose.hear_signals()
    sys.exit(entry.run("lab/run.py", 1, run))
