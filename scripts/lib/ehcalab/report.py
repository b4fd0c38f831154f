# SPDX-License-Identifier: GPL-2.0-or-later
"""What a run leaves behind: timeline, JSON lines, picture, JUnit XML."""
from __future__ import annotations

import json
import statistics
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path

from . import picture
from .eventlog import Event, EventLog
from .player import Verdict
from .scenario import Scenario
from .timeline import line_of


@dataclass
class Failover:
    """One pull and what a node saw of it; seconds after the pull."""

    cable: str
    pulled: float
    node: str
    path_mig: float
    payload: float | None


def failovers(events: list[Event]) -> list[Failover]:
    """Pull -> PATH_MIG -> first payload over the alternate path.

    Times are the adapters' own where they reported, so that the guest's
    scheduling does not blur them.
    """
    ordered = sorted(events, key=lambda e: e.t)
    pulls = [e for e in ordered if e.source == "lab" and e.name == "pull"]
    found = []
    for number, pull in enumerate(pulls):
        end = pulls[number + 1].t if number + 1 < len(pulls) else float("inf")
        window = [e for e in ordered if pull.t <= e.t < end]
        nodes = sorted({e.source for e in window if e.name == "path_mig"})
        for node in nodes:
            mig = next((e for e in window if e.source == f"{node}/hca"
                        and e.name == "mig_state"
                        and e.data.get("to") == "MIGRATED"), None)
            mig = mig or next(e for e in window if e.source == node
                              and e.name == "path_mig")
            payload = next(
                (e for e in window if e.t >= mig.t and (
                    (e.source == f"{node}/hca"
                     and e.name == "first_payload")
                    or (e.source == node and e.name in (
                        "first_message_after_migration",
                        "first_ack_after_migration")))), None)
            found.append(Failover(
                pull.data["cable"], pull.t, node, mig.t - pull.t,
                payload.t - pull.t if payload else None))
    return found


def failover_lines(found: list[Failover]) -> list[str]:
    """A table for people."""
    if not found:
        return []
    lines = ["Failover times, from the pull of the cable (ms):",
             "  cable         guest     PATH_MIG   first payload"]
    for one in found:
        payload = (f"{one.payload * 1e3:10.1f}" if one.payload is not None
                   else "      none")
        lines.append(f"  {one.cable:<13} {one.node:<8} "
                     f"{one.path_mig * 1e3:9.1f}   {payload}")
    if len(found) > 2:
        middle = statistics.median(f.path_mig for f in found)
        lines.append(f"  median of {len(found)}: {middle * 1e3:.1f}")
    return lines


def write_all(run_dir: Path, scenario: Scenario, log: EventLog,
              verdict: Verdict) -> None:
    """Write every report into the run's directory."""
    events = sorted(log.since(0), key=lambda e: (e.t, e.seq))
    with (run_dir / "timeline.txt").open("w") as out:
        out.write(f"{scenario.title}\n{scenario.path}\n\n")
        for event in events:
            text = line_of(event, log.started, everything=True)
            if text is not None:
                out.write(text + "\n")
        out.write("\n")
        for text in [*failover_lines(failovers(events)),
                     *verdict.explanation, verdict_line(verdict)]:
            out.write(text + "\n")
    with (run_dir / "events.jsonl").open("w") as out:
        for event in events:
            out.write(json.dumps(event.as_json()) + "\n")
    picture.write(run_dir / "timeline.svg", events, scenario.title)
    _junit(run_dir / "junit.xml", scenario, verdict)


def verdict_line(verdict: Verdict) -> str:
    """One line that says how it went."""
    done = sum(1 for s in verdict.steps if not s.failure)
    if verdict.passed:
        return f"PASSED: all {done} steps"
    return f"FAILED: {verdict.failure}"


def _junit(path: Path, scenario: Scenario, verdict: Verdict) -> None:
    played = {id(s.step): s for s in verdict.steps}
    suite = ET.Element("testsuite", {
        "name": scenario.path.stem,
        "tests": str(len(scenario.steps)),
        "failures": str(sum(1 for s in verdict.steps if s.failure)),
        "skipped": str(len(scenario.steps) - len(verdict.steps)),
        "time": f"{sum(s.seconds for s in verdict.steps):.3f}"})
    for step in scenario.steps:
        case = ET.SubElement(suite, "testcase", {
            "classname": scenario.path.stem, "name": step.title})
        result = played.get(id(step))
        if result is None:
            ET.SubElement(case, "skipped",
                          {"message": "an earlier step failed"})
            continue
        case.set("time", f"{result.seconds:.3f}")
        if result.failure:
            failure = ET.SubElement(case, "failure",
                                    {"message": result.failure})
            failure.text = "\n".join(verdict.explanation)
    ET.indent(suite)
    ET.ElementTree(suite).write(path, encoding="utf-8", xml_declaration=True)
