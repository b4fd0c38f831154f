# SPDX-License-Identifier: GPL-2.0-or-later
"""The commands of a lab that stays: up, status, cable, ssh, ... down."""
from __future__ import annotations

import argparse
import json
import os
import select
import socket
import sys
import termios
import tty
from pathlib import Path
from typing import Any

from . import explain, guest, scenario
from .eventlog import EventLog
from .jsonsock import JsonSocket
from .lab import Lab, close_recorded, load_topology, read_state
from .process import LabError, alive
from .scenario import ScenarioError
from .screen import find, screen

ESCAPE = 0x1D                         # Ctrl-]


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
