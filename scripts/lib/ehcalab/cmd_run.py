# SPDX-License-Identifier: GPL-2.0-or-later
"""`ehcalab run`: play scenario files, give a verdict, write the reports.

However a run ends, its lab is stopped and its reports are written: a signal
that comes meanwhile takes effect when that is done.
"""
from __future__ import annotations

import argparse
import os
import time
from dataclasses import dataclass
from pathlib import Path

from . import explain, guest, paths, report, stop
from .clean import clean
from .eventlog import EventLog
from .exits import EXIT_FAILED, EXIT_TROUBLE
from .lab import Lab, load_topology
from .player import Player, Verdict
from .scenario import Scenario, ScenarioError, read
from .screen import find, say, screen

RUNS = paths.BUILD / "runs"


@dataclass
class Result:
    """How one file's run went."""

    verdict: Verdict
    seconds: float
    dir: Path

    @property
    def status(self) -> int:
        """Its exit status, but for a signal's."""
        if self.verdict.passed:
            return 0
        return EXIT_TROUBLE if self.verdict.trouble else EXIT_FAILED


def run(args: argparse.Namespace) -> int:
    """ehcalab run FILE..."""
    # All are read first: a bad one is told before anything is started.
    scenarios = read_all(args)
    if args.check:
        return 0
    for one in scenarios:
        one.kernel = args.kernel or one.kernel
        guest.check_built(one.kernel)
    dirs = directories(args, scenarios)
    results: list[Result] = []
    for one, where in zip(scenarios, dirs):
        if len(scenarios) > 1:
            say(("\n" if results else "") + f"== File {len(results) + 1} of "
                f"{len(scenarios)}: {one.path}")
        results.append(run_one(one, where, args.verbose))
        if results[-1].verdict.stopped is not None:
            break
    if len(scenarios) > 1:
        say("\n".join(summary(scenarios, results)))
    if results[-1].verdict.stopped is not None:
        raise results[-1].verdict.stopped
    return max(result.status for result in results)


def read_all(args: argparse.Namespace) -> list[Scenario]:
    """Read all files; ScenarioError tells all that is wrong with them."""
    scenarios, errors = [], []
    for word in args.file:
        try:
            one = read(find(word, "", ".scn"), load_topology)
            scenarios.append(one)
            if args.check:
                say(f"{one.path}: good: {len(one.steps)} steps")
        except ScenarioError as exc:
            errors.append(str(exc))
    if errors:
        raise ScenarioError("\n".join(errors))
    return scenarios


def directories(args: argparse.Namespace, scenarios: list[Scenario]
                ) -> list[Path]:
    """Where each scenario's logs and reports go; no two to one place."""
    stamp = f"-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    out: Path | None = args.out
    if out is not None:
        try:
            out.mkdir(parents=True, exist_ok=True)
        except (OSError, ValueError) as exc:
            why = exc.strerror if isinstance(exc, OSError) else str(exc)
            raise ScenarioError(f"--out {clean(out)}: {why}; name a directory "
                                "that can be written") from exc
    if out is not None and len(scenarios) == 1:
        return [out]
    dirs: list[Path] = []
    for one in scenarios:
        base = out / one.name if out else RUNS / f"{one.name}{stamp}"
        number = 1
        where = base
        while where in dirs:
            number += 1
            where = base.with_name(f"{base.name}-{number}")
        dirs.append(where)
    return dirs


def run_one(one: Scenario, run_dir: Path, verbose: bool) -> Result:
    """Play one scenario."""
    started = [0.0]
    log = EventLog(screen(started, verbose))
    started[0] = log.started
    say(f"{one.title}\nlogs and reports: {run_dir}")
    verdict = Verdict(name=one.name)
    first = f"{one.path}:{one.steps[0].line}"
    try:
        lab = Lab(one.topology, run_dir, log, kernel=one.kernel,
                  memory=one.memory, cpus=one.cpus, options=one.options)
        try:
            lab.start_fabric()
            Player(one, lab, log, lambda node: explain.explain_node(
                node, lab.adapter_report, log), verdict).play()
        finally:
            lab.close()
    except (Exception, stop.Stopped) as exc:  # pylint: disable=W0718
        verdict.end(exc, first)
    try:
        with stop.held():
            tell(one, run_dir, log, verdict)
    except OSError as exc:
        verdict.end(exc, "the reports cannot be written")
        say(report.verdict_line(verdict))
    except stop.Stopped as exc:
        verdict.end(exc, first)
    return Result(verdict, time.time() - log.started, run_dir)


def tell(one: Scenario, run_dir: Path, log: EventLog, verdict: Verdict
         ) -> None:
    """Write the reports, and the short of them on the screen."""
    say()
    for line in report.write_all(run_dir, one, log, verdict):
        say(line)
    say(f"took {time.time() - log.started:.1f} s; the whole story: "
        f"{run_dir / 'timeline.txt'}")
    say(report.verdict_line(verdict))


def summary(scenarios: list[Scenario], results: list[Result]) -> list[str]:
    """A table of several files: verdict, name, seconds, report."""
    width = max(len(clean(one.name)) for one in scenarios)
    lines = ["", f"{'verdict':<12} {'scenario':<{width}}  seconds  report"]
    for at, one in enumerate(scenarios):
        name = f"{clean(one.name):<{width}}"
        if at < len(results):
            result = results[at]
            lines.append(f"{result.verdict.word:<12} {name} "
                         f"{result.seconds:8.1f}  "
                         f"{result.dir / 'timeline.txt'}")
        else:
            lines.append(f"{'not played':<12} {name}")
    passed = sum(1 for result in results if result.verdict.passed)
    return [*lines, f"{passed} of {len(scenarios)} passed"]
