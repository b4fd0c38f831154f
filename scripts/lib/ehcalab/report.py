# SPDX-License-Identifier: GPL-2.0-or-later
"""What a run leaves behind: timeline, JSON lines, picture, JUnit XML."""
from __future__ import annotations

import json
import textwrap
import time
import xml.etree.ElementTree as ET
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from . import failovers, picture
from .clean import clean, clean_lines, short
from .eventlog import Event, EventLog
from .player import Verdict
from .scenario import Scenario, Step
from .timeline import Teller

# A scenario can have so many steps that each explains something.
EXPLAINED_LINES_MAX = 400
COLUMNS = 79


@dataclass
class Explanation:
    """What the run explained at one moment."""

    t: float
    step: int
    title: str
    lines: list[str]


def in_order(events: list[Event]) -> list[Event]:
    """By time; those of the same time as they came."""
    return sorted(events, key=lambda event: (event.t, event.seq))


def read_events(path: Path) -> list[Event]:
    """The events of a run that is over, from its JSON lines."""
    with path.open(encoding="utf-8") as lines:
        return [Event(one["t"], one["source"], one["event"], one["data"], at)
                for at, one in enumerate(map(json.loads, lines))]


def explanations(events: list[Event]) -> list[Explanation]:
    """All that was explained, with the time and the step."""
    found: list[Explanation] = []
    step, title, fresh = 0, "", True
    for event in events:
        if event.source != "lab":
            continue
        if event.name == "step":
            step, title = step + 1, clean(event.data.get("title", ""))
        # Several guests explained one after the other are one moment.
        if event.name == "explained":
            if fresh:
                found.append(Explanation(event.t, step, title, []))
            found[-1].lines.append(clean(event.data.get("text", "")))
            fresh = False
        elif event.name != "adapter_report":
            fresh = True
    return found


def explanation_lines(found: list[Explanation], started: float) -> list[str]:
    """The same for people."""
    lines = ["Why queue pairs did, or did not, migrate:"] if found else []
    for one in found:
        lines += textwrap.wrap(
            f"At {one.t - started:.3f} s, in step {one.step} "
            f"({short(one.title, 200)}):", COLUMNS, initial_indent="  ",
            subsequent_indent="    ")
        for text in one.lines:
            lines += textwrap.wrap(text, COLUMNS, initial_indent="    ",
                                   subsequent_indent="      ")
    if len(lines) > EXPLAINED_LINES_MAX:
        more = len(lines) - EXPLAINED_LINES_MAX
        lines = [*lines[:EXPLAINED_LINES_MAX],
                 f"  and {more} more lines, in the order of time above"]
    return lines


def verdict_line(verdict: Verdict) -> str:
    """One line that says how it went."""
    done = sum(1 for step in verdict.steps if not step.failure)
    name = f" {verdict.name}" if verdict.name else ""
    said = ((f"all {done} steps" if done != 1 else "its one step")
            if verdict.passed else verdict.failure)
    return clean_lines(f"{verdict.word}{name}: {said}")


def write_all(run_dir: Path, scenario: Scenario, log: EventLog,
              verdict: Verdict) -> list[str]:
    """Write every report into the run's directory.

    What is left to be told on the screen is returned: failovers and
    explanations.
    """
    events = in_order(log.since(0))
    last = next((e.t for e in reversed(events)
                 if (e.source, e.name) == ("lab", "step")), log.started)
    ended = last + (verdict.steps[-1].seconds if verdict.steps else 0)
    seen = failovers.watch(events)
    explained = explanations(events)
    told = explanation_lines(explained, log.started)
    with (run_dir / "timeline.txt").open("w", encoding="utf-8") as out:
        out.write(f"{clean(scenario.title)}\n{clean(scenario.path)}\n"
                  f"began {_utc(log.started)} UTC, {log.started:.6f} s since "
                  "1970\n\n")
        _timeline(out.write, events, log.started, ended)
        out.write("\n" + "\n".join([*failovers.lines_of(seen, log.started),
                                    *told,
                                    verdict_line(verdict)]) + "\n")
    with (run_dir / "events.jsonl").open("w", encoding="utf-8") as out:
        for event in events:
            out.write(json.dumps(event.as_json()) + "\n")
    picture.write(run_dir / "timeline.svg", events, log.started, ended,
                  scenario.title, verdict_line(verdict))
    lines = failovers.lines_of(seen, log.started, failovers.ROWS)
    _junit(run_dir / "junit.xml", scenario, log.started, verdict, explained,
           lines)
    return [*lines, *told]


def _utc(t: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(t))


def _timeline(write, events: list[Event], started: float, ended: float
              ) -> None:
    teller, over = Teller(), False
    for event in events:
        if event.t > ended and not over and event.source != "lab":
            over = True
            write(f"\n{ended - started:9.3f}  == The end: everything is "
                  "stopped\n")
        write((teller.line(event, started, everything=True) or "") + "\n")


def _text(parent: ET.Element, tag: str, lines: list[str], **attributes: str
          ) -> None:
    element = ET.SubElement(parent, tag, attributes)
    element.text = "\n".join(map(clean, lines))


def _junit(path: Path, scenario: Scenario, started: float, verdict: Verdict,
           explained: list[Explanation], lines: list[str]) -> None:
    """One test case a step, in the form that Jenkins and GitLab read.

    A failure is an expectation that did not come true, an error is trouble of
    the lab.  Trouble before the first step belongs to the first step.
    """
    name = clean(scenario.name)
    played = verdict.steps
    bad = next((at for at, step in enumerate(played) if step.failure),
               None if verdict.passed else len(played))
    wrong = 0 if verdict.passed else 1
    suite = ET.Element("testsuite", {
        "name": name, "tests": str(len(scenario.steps)),
        "failures": str(0 if verdict.trouble else wrong),
        "errors": str(wrong if verdict.trouble else 0),
        "skipped": str(sum(1 for at in range(len(scenario.steps))
                           if at >= len(played) and at != bad)),
        "time": f"{sum(step.seconds for step in played):.3f}",
        "timestamp": _utc(started),
        "hostname": "localhost"})
    properties = ET.SubElement(suite, "properties")
    for key, value in (("title", scenario.title),
                       ("topology", scenario.topology.path.name),
                       ("kernel", scenario.kernel)):
        ET.SubElement(properties, "property", {"name": key,
                                               "value": clean(value)})
    for at, title in enumerate(_titles(scenario.steps)):
        case = ET.SubElement(suite, "testcase", {
            "classname": name, "name": title,
            "time": f"{played[at].seconds if at < len(played) else 0:.3f}"})
        if at == bad:
            kind = "error" if verdict.trouble else "failure"
            _text(case, kind, verdict.failure.split("\n"), type=kind,
                  message=short(verdict.failure, 300))
        elif at >= len(played):
            ET.SubElement(case, "skipped", {
                "message": "an earlier step failed"})
        told = explanation_lines([one for one in explained
                                  if one.step == at + 1], started)
        if told:
            _text(case, "system-out", told)
    _text(suite, "system-out", [*lines, *verdict_line(verdict).split("\n")])
    _text(suite, "system-err", [])
    ET.indent(suite)
    ET.ElementTree(suite).write(path, encoding="utf-8", xml_declaration=True)


def _titles(steps: list[Step]) -> list[str]:
    """The steps' titles, each unlike the others: readers drop doubles."""
    seen: Counter[str] = Counter()
    titles = []
    for step in steps:
        title = clean(step.title)
        seen[title] += 1
        titles.append(title + (f" ({seen[title]})" if seen[title] > 1
                               else ""))
    return titles
