# SPDX-License-Identifier: GPL-2.0-or-later
"""The command `ehcalab`: see docs/ehcalab.md or `ehcalab --help`."""
from __future__ import annotations

import argparse
import json
import os
import select
import signal
import socket
import subprocess
import sys
import termios
import time
import tty
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import explain, guest, paths, report, scenario
from .eventlog import Event, EventLog
from .jsonsock import ControlError, JsonSocket
from .lab import Lab, close_recorded, load_topology, read_state
from .player import Player
from .process import LabError, alive
from .scenario import ScenarioError
from .timeline import line_of
from .ui import SetupError

RUNS = paths.BUILD / "runs"
LAB_DIR = paths.BUILD / "lab"
EXIT_FAILED, EXIT_BAD_INPUT, EXIT_TROUBLE = 1, 2, 3
ESCAPE = 0x1D                         # Ctrl-]


def find(word: str, folder: str, suffix: str) -> Path:
    """A file by path or by its bare name among ours."""
    for path in (Path(word), paths.ROOT / "scenarios" / folder / word,
                 paths.ROOT / "scenarios" / folder / (word + suffix)):
        if path.is_file():
            return path
    known = sorted(p.stem for p in
                   (paths.ROOT / "scenarios" / folder).glob("*" + suffix))
    raise ScenarioError(f"{word}: no such file; ours are: "
                        f"{', '.join(known)}")


def screen(log_started: list[float], verbose: bool
           ) -> Callable[[Event], None]:
    """A printer of events for the terminal."""
    def show(event: Event) -> None:
        text = line_of(event, log_started[0], everything=verbose)
        if text is not None:
            print(text, flush=True)
    return show


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
    print(f"{one.title}\nlogs and reports: {run_dir}")
    lab = Lab(one.topology, run_dir, log, kernel=one.kernel,
              memory=one.memory, options=one.options)
    try:
        lab.start_fabric()
        player = Player(one, lab, log,
                        lambda node: explain.explain_report(
                            node, lab.adapter_report(node)))
        verdict = player.play()
    finally:
        lab.close()
    report.write_all(run_dir, one, log, verdict)
    print()
    for line in [*report.failover_lines(report.failovers(log.since(0))),
                 *verdict.explanation]:
        print(line)
    print(f"took {time.time() - log.started:.1f} s; the whole story: "
          f"{run_dir / 'timeline.txt'}")
    print(report.verdict_line(verdict))
    if verdict.passed:
        return 0
    return EXIT_TROUBLE if verdict.trouble else EXIT_FAILED


def up(args: argparse.Namespace) -> int:
    """ehcalab up TOPOLOGY: a lab that stays."""
    topology = load_topology(find(args.topology, "topologies", ".topo"))
    guests = args.guests or topology.guests
    for node in guests:
        if node not in topology.guests:
            raise ScenarioError(
                f"{topology.path}: no guest '{node}'; "
                + scenario.guess(node, topology.guests))
    wrong = scenario.too_many_ports(topology, guests)
    if wrong:
        raise ScenarioError("\n".join(f"{topology.path}: {w}"
                                      for w in wrong))
    guest.check_built(args.kernel)
    run_dir = Path(args.lab)
    if (run_dir / "lab.json").exists():
        state = read_state(run_dir)
        if any(alive(pid) for pid in [state["fabric"] or 0]):
            raise LabError(f"a lab runs in {run_dir} already; "
                           "end it first: scripts/ehcalab down")
        close_recorded(run_dir)
    started = [0.0]
    log = EventLog(screen(started, args.verbose))
    started[0] = log.started
    lab = Lab(topology, run_dir, log, kernel=args.kernel, memory=args.memory,
              options={"capture": "on" if args.capture else "off"},
              detached=True)
    try:
        lab.start_fabric()
        if scenario.SM_NODE in topology.hosts and not args.no_sm:
            lab.start_sm()
        lab.boot(guests)
        if not args.no_load:
            for node in guests:
                lab.load(node, {})
                # The consumer's events belong to scenarios; a lab that
                # stays leaves /dev/apm_traffic to its user.
                lab.guest(node).agent.shell("killall cat 2>/dev/null; true")
    except BaseException:
        lab.close()
        raise
    lab.save()
    print(f"The lab is up. Try: scripts/ehcalab status; scripts/ehcalab "
          f"ssh {guests[0]}; scripts/ehcalab cable pull "
          f"{sorted(topology.cables)[0]}; scripts/ehcalab down")
    return 0


def control_of(args: argparse.Namespace) -> JsonSocket:
    """The fabric's control socket of a lab that runs."""
    state = read_state(Path(args.lab))
    return JsonSocket(Path(state["sockets"]) / "control.sock", "the fabric",
                      timeout=2.0)


def status(args: argparse.Namespace) -> int:
    """ehcalab status."""
    state = read_state(Path(args.lab))
    found = control_of(args).command("status")
    if args.json:
        print(json.dumps({"lab": state, "fabric": found}, indent=2))
        return 0
    print(f"topology {state['topology']}")
    sm = state["sm"]
    print(f"subnet manager: "
          f"{'pid ' + str(sm) if sm and alive(sm) else 'not running'}")
    for name, one in state["guests"].items():
        print(f"guest {name}: "
              + (f"pid {one['pid']}, ssh port {one['ssh_port']}"
                 if alive(one["pid"]) else
                 f"DEAD; its console log is {one['console_log']}"))
    for cable in found.get("cables", []):
        ends = f"{cable['a']} - {cable['b']}"
        print(f"cable {cable['name']:<12} {ends:<24} "
              f"{'in ' if cable['plugged'] else 'out'} "
              f"link {'up' if cable['up'] else 'down'}")
    return 0


def cable(args: argparse.Namespace) -> int:
    """ehcalab cable pull|restore NAME..."""
    control = control_of(args)
    for name in args.name:
        control.command(args.what, {"cable": name})
        print(f"cable {name}: {'out' if args.what == 'pull' else 'in'}")
    return 0


def guest_of(args: argparse.Namespace) -> dict[str, Any]:
    """A guest's entry of lab.json."""
    guests = read_state(Path(args.lab))["guests"]
    if args.node not in guests:
        raise LabError(f"no guest '{args.node}' in this lab; "
                       + scenario.guess(args.node, sorted(guests)))
    return guests[args.node]


def ssh(args: argparse.Namespace) -> int:
    """ehcalab ssh NODE [COMMAND...]."""
    one = guest_of(args)
    argv = guest.ssh_argv(one["ssh_port"], *args.command)
    os.execvp(argv[0], argv)


def console(args: argparse.Namespace) -> int:
    """ehcalab console NODE: its hvc0, Ctrl-] leaves."""
    one = guest_of(args)
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(one["console"])
    print("connected; Ctrl-] leaves, Enter shows the prompt")
    interactive = sys.stdin.isatty()
    saved = termios.tcgetattr(0) if interactive else None
    try:
        if interactive:
            tty.setraw(0)
        while True:
            ready, _, _ = select.select([0, sock], [], [])
            if 0 in ready:
                data = os.read(0, 1024)
                if not data or ESCAPE in data:
                    return 0
                sock.sendall(data)
            if sock in ready:
                data = sock.recv(4096)
                if not data:
                    return 0
                os.write(1, data)
    finally:
        if saved is not None:
            termios.tcsetattr(0, termios.TCSADRAIN, saved)
            print()


def events(args: argparse.Namespace) -> int:
    """ehcalab events: follow what happens in a lab."""
    def show(message: dict[str, Any]) -> None:
        print(json.dumps(message), flush=True)
    state = read_state(Path(args.lab))
    control = JsonSocket(Path(state["sockets"]) / "control.sock",
                         "the fabric", show, timeout=2.0)
    while not control.closed.wait(1.0):
        pass
    return 0


def explain_cmd(args: argparse.Namespace) -> int:
    """ehcalab explain NODE: why its QPs did or did not migrate."""
    qmp = JsonSocket(Path(guest_of(args)["qmp"]), f"QEMU of {args.node}",
                     timeout=2.0)
    qmp.command("qmp_capabilities")
    text = qmp.command("qom-get", {"path": "/machine/peripheral/hca0",
                                   "property": "report"})
    if args.json:
        print(json.dumps(json.loads(text), indent=2))
        return 0
    for line in explain.explain_report(args.node, json.loads(text)):
        print(line)
    return 0


def down(args: argparse.Namespace) -> int:
    """ehcalab down."""
    stopped = close_recorded(Path(args.lab))
    print("stopped " + (", ".join(stopped) or "nothing: all had ended"))
    return 0


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

    one = add("run", run, "play scenario files and give a verdict")
    one.add_argument("file", nargs="+", help="file, or name of one of ours")
    one.add_argument("--kernel", choices=scenario.KERNELS,
                     help="instead of the one the file names")
    one.add_argument("--out", metavar="DIR", help="directory for logs and "
                     "reports; of several files, DIR/NAME each")
    one.add_argument("--check", action="store_true",
                     help="only read and check the files")
    one.add_argument("-v", "--verbose", action="store_true",
                     help="show every event")

    one = add("up", up, "start a lab that stays up")
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

    one = add("status", status, "show the lab: guests, cables, links")
    one.add_argument("--json", action="store_true",
                     help="all that lab and fabric know")
    one = add("cable", cable, "pull a cable or put it back")
    one.add_argument("what", choices=("pull", "restore"))
    one.add_argument("name", nargs="+")
    one = add("console", console, "talk to a guest's console")
    one.add_argument("node")
    one = add("ssh", ssh, "log in to a guest, or run a command in it")
    one.add_argument("node")
    one.add_argument("command", nargs=argparse.REMAINDER)
    add("events", events, "follow the fabric's events as JSON lines")
    one = add("explain", explain_cmd,
              "say why a guest's QPs did or did not migrate")
    one.add_argument("node")
    one.add_argument("--json", action="store_true",
                     help="the adapter's whole report")
    add("down", down, "stop the lab")
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
