# SPDX-License-Identifier: GPL-2.0-or-later
"""The command line of `ehcalab`: see docs/ehcalab.md or `ehcalab --help`."""
from __future__ import annotations

import argparse
import getopt
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import cmd_lab, cmd_run, entry, guest, scenario
from .clean import clean
from .exits import EXIT_TROUBLE
from .lab import LAB_DIR
from .paths import FABRIC_BIN
from .setup_kernels import DEFAULT_SERIES
from .values import guess


def memory(text: str) -> int:
    """--memory: checked by the same rule as a scenario's."""
    if not text.isascii() or not text.isdigit() or \
            not guest.good_memory(int(text)):
        raise argparse.ArgumentTypeError(
            f"'{text}': must be {guest.MEMORY_RULE}")
    return int(text)


def directory(text: str) -> Path:
    """--lab, --out."""
    if not text:
        raise argparse.ArgumentTypeError("'': must name a directory")
    if os.path.exists(text) and not os.path.isdir(text):
        raise argparse.ArgumentTypeError(f"{clean(text)}: is no directory; "
                                         "name one, or one to be made")
    return Path(text)


def json_object(text: str) -> dict[str, Any]:
    """The arguments of a fabric's command."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise argparse.ArgumentTypeError(f"'{text}': no JSON: {exc}") from exc
    if not isinstance(found, dict):
        raise argparse.ArgumentTypeError(
            f"'{text}': must be a JSON object: '{{\"cable\":\"alice-1\"}}'")
    return found


def add_play_options(one: argparse.ArgumentParser) -> None:
    """The options of playing a scenario."""
    one.add_argument("--kernel", choices=scenario.KERNELS,
                     help="guests' kernel, instead of the one the file names")
    one.add_argument("--out", metavar="DIR", type=directory, help="directory for logs and "
                     "reports; of several files, DIR/NAME each")
    one.add_argument("-v", "--verbose", action="store_true",
                     help="show every event")


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(
        prog="ehcalab", description="An InfiniBand laboratory without "
        "hardware: guests, cables, failovers.",
        epilog="ehcalab COMMAND -h says more of one; so does docs/ehcalab.md")
    sub = top.add_subparsers(dest="command_name", metavar="COMMAND",
                             required=True)
    of_a_lab = argparse.ArgumentParser(add_help=False)
    of_a_lab.add_argument("--lab", default=LAB_DIR, metavar="DIR",
                          type=directory, help="the lab's directory, for "
                          "several labs at once; default: "
                          + str(LAB_DIR).replace("%", "%%"))

    def add(name: str, function: Callable[[argparse.Namespace], int],
            text: str, *parents: argparse.ArgumentParser
            ) -> argparse.ArgumentParser:
        one = sub.add_parser(name, help=text, description=text,
                             parents=parents)
        one.set_defaults(function=function)
        return one

    one = add("run", cmd_run.run, "play scenario files and give a verdict")
    one.add_argument("file", nargs="+", metavar="FILE",
                     help="file, or name of one of ours")
    add_play_options(one)
    one.add_argument("--check", action="store_true",
                     help="only read and check the files")

    one = add("up", cmd_lab.up, "start a lab that stays", of_a_lab)
    one.add_argument("topology", metavar="TOPOLOGY",
                     help="file, or name of one of ours")
    one.add_argument("--guests", nargs="+", metavar="NODE",
                     help="boot these; default: all hosts")
    one.add_argument("--kernel", default=DEFAULT_SERIES,
                     choices=scenario.KERNELS,
                     help=f"default: {DEFAULT_SERIES}")
    one.add_argument("--memory", type=memory, default=guest.DEFAULT_MEMORY,
                     metavar="MIB", help="of each guest, default: "
                     f"{guest.DEFAULT_MEMORY}")
    one.add_argument("--no-sm", action="store_true",
                     help="do not start the subnet manager")
    one.add_argument("--capture", action="store_true",
                     help="capture all cables from the start")

    boot = add("boot", cmd_lab.boot, "boot guests of a lab that is up",
               of_a_lab)
    for each in (one, boot):
        each.add_argument("--no-load", action="store_true",
                          help="do not load the driver")
    off = add("shutdown", cmd_lab.shutdown, "power guests off, or kill them",
              of_a_lab)
    off.add_argument("--kill", action="store_true",
                     help="at once, like a crash")
    for each in (boot, off):
        each.add_argument("node", nargs="+", metavar="NODE")
    manager = add("sm", cmd_lab.subnet_manager,
                  "start, stop or kill the subnet manager", of_a_lab)
    manager.add_argument("action", choices=("start", "stop", "kill"),
                         metavar="start|stop|kill")
    for each in (one, boot, off, manager):
        each.add_argument("-v", "--verbose", action="store_true",
                          help="show every event")

    one = add("status", cmd_lab.status, "show the lab: guests, cables, links;"
              " exit status 3 if something of it is in trouble", of_a_lab)
    one.add_argument("--json", action="store_true",
                     help="all that lab and fabric know")
    one = add("cable", cmd_lab.cable, "pull cables or put them back",
              of_a_lab)
    one.add_argument("action", choices=("pull", "restore"),
                     metavar="pull|restore")
    one.add_argument("name", nargs="+", metavar="CABLE")
    one = add("ssh", cmd_lab.ssh, "log in to a guest, or run a command in it",
              of_a_lab)
    one.usage = "ehcalab ssh [-h] [--lab DIR] NODE [COMMAND...]"
    one.add_argument("node", metavar="NODE")
    one.epilog = "options behind COMMAND are the guest's; so are all behind --"
    one = add("console", cmd_lab.console, "talk to a guest's console",
              of_a_lab)
    one.add_argument("node", metavar="NODE")
    add("events", cmd_lab.events, "follow the fabric's events as JSON lines",
        of_a_lab)
    one = add("fabric", cmd_lab.fabric_command, "give the fabric a command, "
              "such as fault or capture-start (docs/fabric.md)", of_a_lab)
    one.add_argument("execute", metavar="NAME",
                     help="query-commands lists them")
    one.add_argument("arguments", nargs="?", type=json_object,
                     metavar="ARGUMENTS", help="a JSON object: "
                     "'{\"cable\":\"alice-1\",\"drop\":0.1}'")
    one = add("explain", cmd_lab.explain_cmd,
              "say why a guest's QPs did or did not migrate", of_a_lab)
    one.add_argument("node", metavar="NODE")
    one.add_argument("--json", action="store_true",
                     help="the adapter's whole report")
    add("down", cmd_lab.down, "stop the lab", of_a_lab)
    for name, each in sub.choices.items():
        each.prog = f"ehcalab {name}"
    top.set_defaults(commands=sub.choices)
    return top


def read(argv: list[str]) -> argparse.Namespace:
    """The command line, read; argparse ends the program if it is wrong."""
    top = parser()
    commands = top.get_default("commands")
    if argv and not argv[0].startswith("-") and argv[0] not in commands:
        top.error(f"no command '{argv[0]}'; "
                  + guess(argv[0], list(commands)))
    command: list[str] = []
    if argv[:1] == ["ssh"]:
        try:
            argv, command = split_ssh(argv)
        except getopt.GetoptError as exc:
            commands["ssh"].error(f"{exc}; an option for the guest's command "
                                  "stands behind that, or behind --")
    args = top.parse_args(argv)
    args.command = command
    return args


def split_ssh(argv: list[str]) -> tuple[list[str], list[str]]:
    """ssh's own words, with the options before and behind NODE, and the
    guest's command, where options are the command's; -- begins it as well."""
    def options(words: list[str]) -> tuple[list[str], list[str]]:
        found, rest = getopt.getopt(words, "h", ["help", "lab="])
        return [f"{key}={value}" if key == "--lab" else key
                for key, value in found], rest

    before, rest = options(argv[1:])
    behind, command = options(rest[1:])
    return ["ssh", *before, *behind, *rest[:1]], command


def run(argv: list[str]) -> int:
    """Do what the command line says."""
    args = read(argv)
    if not FABRIC_BIN.exists() and (
            args.command_name == "up" or
            args.command_name == "run" and not args.check):
        # Not even topologies can be read: name all that is missing at once.
        guest.check_built(args.kernel or DEFAULT_SERIES)
    return args.function(args)


def main(argv: list[str]) -> int:
    """Entry point of scripts/ehcalab."""
    return entry.run("ehcalab", EXIT_TROUBLE, lambda: run(argv))
