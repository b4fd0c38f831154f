# SPDX-License-Identifier: GPL-2.0-or-later
"""`ehcalab run`: play scenario files, give a verdict, write the reports."""
from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

from . import explain, guest, paths, report, scenario
from .eventlog import EventLog
from .exits import EXIT_FAILED, EXIT_TROUBLE
from .lab import Lab, load_topology
from .player import Player
from .screen import find, say, screen

RUNS = paths.BUILD / "runs"


def run(args: argparse.Namespace) -> int:
    """ehcalab run FILE..."""
    # All are read first: a bad one is told before anything is started.
    scenarios = [scenario.read(find(word, "", ".scn"), load_topology)
                 for word in args.file]
    return max(run_one(one, args) for one in scenarios)


def run_one(one: scenario.Scenario, args: argparse.Namespace) -> int:
    """Play one scenario."""
    if args.kernel:
        one.kernel = args.kernel
    if args.check:
        print(f"{one.path}: good: {len(one.steps)} steps")
        return 0
    guest.check_built(one.kernel)
    stamp = time.strftime("%Y%m%d-%H%M%S")
    run_dir = RUNS / f"{one.path.stem}-{stamp}-{os.getpid()}"
    if args.out:
        run_dir = Path(args.out)
        if len(args.file) > 1:
            run_dir /= one.path.stem
    started = [0.0]
    log = EventLog(screen(started, args.verbose))
    started[0] = log.started
    say(f"{one.title}\nlogs and reports: {run_dir}")
    lab = Lab(one.topology, run_dir, log, kernel=one.kernel,
              memory=one.memory, options=one.options)
    try:
        lab.start_fabric()
        player = Player(one, lab, log,
                        lambda node: explain.explain_node(
                            node, lab.adapter_report, log))
        verdict = player.play()
    finally:
        lab.close()
    say()
    for line in report.write_all(run_dir, one, log, verdict):
        say(line)
    say(f"took {time.time() - log.started:.1f} s; the whole story: "
        f"{run_dir / 'timeline.txt'}")
    say(report.verdict_line(verdict))
    if verdict.passed:
        return 0
    return EXIT_TROUBLE if verdict.trouble else EXIT_FAILED
