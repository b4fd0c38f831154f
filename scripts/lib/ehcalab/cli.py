# SPDX-License-Identifier: GPL-2.0-or-later
"""The command line of `ehcalab`: see docs/ehcalab.md or `ehcalab --help`."""
from __future__ import annotations

import argparse
import signal
import subprocess
import sys
from collections.abc import Callable

from . import cmd_lab, cmd_run, paths, scenario
from .exits import EXIT_BAD_INPUT, EXIT_TROUBLE
from .jsonsock import ControlError
from .process import LabError
from .scenario import ScenarioError
from .ui import SetupError

LAB_DIR = paths.BUILD / "lab"


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(
        prog="ehcalab", description="An InfiniBand laboratory without "
        "hardware: guests, cables, failovers.")
    sub = top.add_subparsers(dest="verb", required=True)

    def add(name: str, function: Callable[[argparse.Namespace], int],
            text: str) -> argparse.ArgumentParser:
        one = sub.add_parser(name, help=text, description=text)
        one.set_defaults(function=function)
        return one

    one = add("run", cmd_run.run, "play scenario files and give a verdict")
    one.add_argument("file", nargs="+", help="file, or name of one of ours")
    one.add_argument("--kernel", choices=scenario.KERNELS,
                     help="instead of the one the file names")
    one.add_argument("--out", metavar="DIR", help="directory for logs and "
                     "reports; of several files, DIR/NAME each")
    one.add_argument("--check", action="store_true",
                     help="only read and check the files")
    one.add_argument("-v", "--verbose", action="store_true",
                     help="show every event")

    one = add("up", cmd_lab.up, "start a lab that stays up")
    one.add_argument("topology", help="file, or name of one of ours")
    one.add_argument("--guests", nargs="*", metavar="NODE",
                     help="default: all hosts")
    one.add_argument("--kernel", default="6.12", choices=scenario.KERNELS,
                     help="default: 6.12")
    one.add_argument("--memory", type=int, default=512, metavar="MIB",
                     help="of each guest, default: 512")
    one.add_argument("--no-sm", action="store_true",
                     help="do not start the subnet manager")
    one.add_argument("--no-load", action="store_true",
                     help="do not load the driver")
    one.add_argument("--capture", action="store_true",
                     help="capture all cables from the start")
    one.add_argument("-v", "--verbose", action="store_true",
                     help="show every event")

    one = add("status", cmd_lab.status, "show the lab: guests, cables, links")
    one.add_argument("--json", action="store_true",
                     help="all that lab and fabric know")
    one = add("cable", cmd_lab.cable, "pull a cable or put it back")
    one.add_argument("what", choices=("pull", "restore"))
    one.add_argument("name", nargs="+")
    one = add("console", cmd_lab.console, "talk to a guest's console")
    one.add_argument("node")
    one = add("ssh", cmd_lab.ssh, "log in to a guest, or run a command in it")
    one.add_argument("node")
    one.add_argument("command", nargs=argparse.REMAINDER)
    add("events", cmd_lab.events, "follow the fabric's events as JSON lines")
    one = add("explain", cmd_lab.explain_cmd,
              "say why a guest's QPs did or did not migrate")
    one.add_argument("node")
    one.add_argument("--json", action="store_true",
                     help="the adapter's whole report")
    add("down", cmd_lab.down, "stop the lab")
    for name in ("up", "status", "cable", "console", "ssh", "events",
                 "explain", "down"):
        sub.choices[name].add_argument(
            "--lab", default=str(LAB_DIR), metavar="DIR",
            help="directory of the lab, for several at once")
    return top


def terminate(*_: object) -> None:
    """SIGTERM: leave by the way that stops what was started, once."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(128 + signal.SIGTERM)


def main() -> int:
    """Entry point; every expected failure is one clear message."""
    args = parser().parse_args()
    # A run that is told to stop must stop what it started.
    signal.signal(signal.SIGTERM, terminate)
    try:
        return args.function(args)
    except ScenarioError as exc:
        print(exc, file=sys.stderr)
        return EXIT_BAD_INPUT
    except (LabError, ControlError, SetupError) as exc:
        print(f"ehcalab: {exc}", file=sys.stderr)
        return EXIT_TROUBLE
    except KeyboardInterrupt:
        print("ehcalab: interrupted; everything it started is stopped",
              file=sys.stderr)
        return 128 + signal.SIGINT
    except subprocess.SubprocessError as exc:
        print(f"ehcalab: {exc}", file=sys.stderr)
        return EXIT_TROUBLE
    except BrokenPipeError:
        return EXIT_TROUBLE
    except OSError as exc:
        # A full disk, a directory that cannot be written: no verdict.
        print(f"ehcalab: {exc.strerror or exc}"
              + (f": {exc.filename}" if exc.filename else "")
              + "; everything it started is stopped", file=sys.stderr)
        return EXIT_TROUBLE
