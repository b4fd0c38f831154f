# SPDX-License-Identifier: GPL-2.0-or-later
"""scripts/demo: everything set up, then the main scenario."""
from __future__ import annotations

import argparse

from . import cli, cmd_run, entry, setup_main
from .exits import EXIT_TROUBLE

SCENARIO = "apm-failover"


def run(argv: list[str]) -> int:
    """Set up and play."""
    parser = argparse.ArgumentParser(
        prog="scripts/demo", description="Set everything up, then play the "
        f"scenario {SCENARIO}: two cables fail in turn, no message is lost.")
    cli.add_play_options(parser)
    args = parser.parse_args(argv)
    setup_main.run_steps(["all"])
    args.file, args.check = [SCENARIO], False
    return cmd_run.run(args)


def main(argv: list[str]) -> int:
    """Entry point of scripts/demo."""
    return entry.run("scripts/demo", EXIT_TROUBLE, lambda: run(argv))
