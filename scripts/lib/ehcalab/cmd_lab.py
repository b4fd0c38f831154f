# SPDX-License-Identifier: GPL-2.0-or-later
"""The commands of a lab that stays: up, status, cable, ssh, ... down."""
from __future__ import annotations

import argparse
import json
import os
import re
import select
import socket
import sys
import termios
import tty
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from . import explain, guest, scenario
from .eventlog import EventLog
from .exits import EXIT_TROUBLE
from .jsonsock import ControlError, JsonSocket, Refused, busy, connect
from .lab import (PANIC, Lab, close_recorded, command_for, how_guest_ended,
                  load_topology, read_state, runner_of)
from .process import Adopted, LabError
from .qga import GuestAgent
from .scenario import SM_NODE, ScenarioError, Topology
from .screen import find, screen
from .values import guess

ESCAPE = 0x1D                         # Ctrl-]
# A guest that is alive answers its agent's ping in milliseconds; under
# emulation on a busy machine it may take a while.
PING_PATIENCE = 3.0
CONNECT_PATIENCE = 2.0
QEMU_PATIENCE = 10.0


# -- up, boot, shutdown, sm, down -------------------------------------------

def chosen_guests(topology: Topology, wanted: list[str] | None) -> list[str]:
    """The guests to boot; ScenarioError for one that cannot be."""
    if not topology.guests:
        raise ScenarioError(f"{topology.path}: it has no host that a guest "
                            "can be booted for; add one: host alice ports=2")
    guests = list(dict.fromkeys(wanted or topology.guests))
    for node in guests:
        known_guest(node, topology.guests, str(topology.path))
    wrong = scenario.too_many_ports(topology, guests)
    if wrong:
        raise ScenarioError("\n".join(f"{topology.path}: {w}"
                                      for w in wrong))
    return guests


def known_guest(node: str, known: list[str], where: str) -> None:
    """ScenarioError if there is no guest of that name."""
    if node not in known:
        raise ScenarioError(f"{where}: no guest '{node}'; "
                            + guess(node, known))


def boot_all(lab: Lab, guests: list[str], load: bool) -> None:
    """Boot guests, and load the driver in them."""
    lab.boot(guests)
    if load:
        for node in guests:
            # The consumer's events belong to scenarios; a lab that stays
            # leaves /dev/apm_traffic to its user.
            lab.load(node, {}, listen=False)


def up(args: argparse.Namespace) -> int:
    """ehcalab up TOPOLOGY: a lab that stays."""
    topology = load_topology(find(args.topology, "topologies", ".topo"))
    guests = chosen_guests(topology, args.guests)
    guest.check_built(args.kernel)
    lab = Lab(topology, args.lab, event_log(args),
              kernel=args.kernel, memory=args.memory,
              options={"capture": "on" if args.capture else "off"},
              detached=True)
    lab.start_fabric()
    if SM_NODE in topology.hosts and not args.no_sm:
        lab.start_sm()
    boot_all(lab, guests, not args.no_load)
    print("The lab is up. Try:")
    for words in (["status"], ["ssh", guests[0]],
                  *[["cable", "pull", name]
                    for name in sorted(topology.cables)[:1]], ["down"]):
        print("  " + command_for(args.lab, *words), flush=True)
    lab.keep()
    return 0


def boot(args: argparse.Namespace) -> int:
    """ehcalab boot NODE...: guests of a lab that stands."""
    lab = standing(args)
    guests = chosen_guests(lab.topology, args.node)
    guest.check_built(lab.kernel)
    boot_all(lab, guests, not args.no_load)
    lab.keep()
    return 0


def shutdown(args: argparse.Namespace) -> int:
    """ehcalab shutdown NODE...: power guests off, or kill them."""
    lab = standing(args)
    for node in args.node:
        known_guest(node, lab.topology.guests, str(args.lab))
        if node not in lab.records:
            raise LabError(f"guest {node} does not run; boot it: "
                           f"{command_for(args.lab, 'boot', node)}")
    for node in dict.fromkeys(args.node):
        lab.shutdown_recorded(node, args.kill)
    lab.keep()
    return 0


def subnet_manager(args: argparse.Namespace) -> int:
    """ehcalab sm start|stop|kill."""
    lab = standing(args)
    if SM_NODE not in lab.topology.hosts:
        raise ScenarioError(f"{lab.topology.path}: it has no host 'sm'; add "
                            "to it: host sm ports=1, and a cable")
    if args.action == "start":
        lab.start_sm()
    else:
        lab.stop_sm(kill=args.action == "kill")
    lab.keep()
    return 0


def event_log(args: argparse.Namespace) -> EventLog:
    """A log whose events are shown as they come."""
    started = [0.0]
    log = EventLog(screen(started, args.verbose))
    started[0] = log.started
    return log


def standing(args: argparse.Namespace) -> Lab:
    """The lab, taken over to change it."""
    return Lab.standing(args.lab, event_log(args))


def down(args: argparse.Namespace) -> int:
    """ehcalab down."""
    stopped = close_recorded(args.lab)
    print("stopped " + (", ".join(stopped) or "nothing: all had ended"))
    return 0


# -- status -------------------------------------------------------------------

def status(args: argparse.Namespace) -> int:
    """ehcalab status: what runs, what does not; 3 if something should."""
    state = read_state(args.lab)
    runner = runner_of(state)
    with ThreadPoolExecutor(len(state["guests"]) or 1) as pool:
        guests = dict(zip(state["guests"], pool.map(
            lambda node: guest_trouble(node, state["guests"][node],
                                       runner is None), state["guests"])))
    trouble = [f"guest {node} {why}; {way_out(args, node, why)}"
               for node, why in guests.items() if why]
    manager = "not started"
    if state["sm"] is not None:
        process = Adopted("the subnet manager", state["sm"])
        manager = process.ended() or f"pid {process.pid}"
        if process.ended():
            trouble.append(
                f"{process.name} has ended; its log is {process.log}; start "
                f"it again: {command_for(args.lab, 'sm', 'start')}")
    try:
        fabric = control_of(args).command("status")
    except (LabError, ControlError) as exc:
        fabric = {}
        trouble.append(str(exc))
    if args.json:
        for node, why in guests.items():
            state["guests"][node]["trouble"] = why
        print(json.dumps({"lab": state, "fabric": fabric,
                          "trouble": trouble}, indent=2))
        return EXIT_TROUBLE if trouble else 0
    print(f"topology {state['topology']}")
    if runner is not None:
        print(f"an ehcalab, process {runner.pid}, is at work in it")
    print(f"subnet manager: {manager}")
    for node in state["hosts"]:
        if node not in state["guests"]:
            if node != SM_NODE:
                print(f"guest {node}: not booted")
            continue
        one = state["guests"][node]
        print(f"guest {node}: pid {one['pid']}, ssh port {one['ssh_port']}"
              + (f", {re.split('[:(]', guests[node])[0].strip().upper()}"
                 if guests[node] else ""))
    for one in fabric.get("cables", []):
        ends = f"{one['a']} - {one['b']}"
        print(f"cable {one['name']:<12} {ends:<24} "
              f"{'in ' if one['plugged'] else 'out'} "
              f"link {'up' if one['up'] else 'down'}")
    for line in trouble:
        print(line)
    return EXIT_TROUBLE if trouble else 0


def way_out(args: argparse.Namespace, node: str, why: str) -> str:
    """What to do about a guest in trouble."""
    if why.startswith("has ended"):
        return f"boot it again: {command_for(args.lab, 'boot', node)}"
    return (f"look at it: {command_for(args.lab, 'console', node)}; or end "
            f"it: {command_for(args.lab, 'shutdown', '--kill', node)}")


def guest_trouble(node: str, record: dict[str, Any], ask: bool) -> str:
    """What is wrong with a guest, "" if nothing is.

    ask: its agent, which serves one at a time.
    """
    process = Adopted(node, record)
    logs = f"its console log is {record['console_log']}"
    if process.ended():
        return (f"has ended: {how_guest_ended(record)}; {logs}, QEMU's "
                f"{process.log}")
    try:
        found = PANIC.search(Path(record["console_log"]).read_text(
            errors="replace"))
    except OSError:
        found = None
    if found:
        return f"is in trouble: its kernel says '{found.group(0)}'; {logs}"
    if not ask:
        return ""
    try:
        agent = GuestAgent(Path(record["agent"]), node, process.check,
                           timeout=CONNECT_PATIENCE)
    except (ControlError, LabError) as exc:
        return f"does not answer ({exc}); {logs}"
    why = agent.answers(PING_PATIENCE)
    agent.close()
    return f"does not answer ({why}); {logs}" if why else ""


# -- what runs ----------------------------------------------------------------

def control_of(args: argparse.Namespace,
               on_event: Any = None) -> JsonSocket:
    """The fabric's control socket of a lab that runs."""
    state = read_state(args.lab)
    fabric = Adopted("the fabric", state["fabric"])
    end = f"end the lab: {command_for(args.lab, 'down')}"
    if fabric.ended():
        raise LabError(f"the fabric has ended; its log is {fabric.log}; {end}")
    try:
        return JsonSocket(Path(state["sockets"]) / "control.sock",
                          "the fabric", on_event, timeout=CONNECT_PATIENCE)
    except ControlError as exc:
        raise LabError(f"{exc}; its log is {fabric.log}; {end}") from exc


def cable(args: argparse.Namespace) -> int:
    """ehcalab cable pull|restore NAME..."""
    known = sorted(read_state(args.lab)["cables"])
    for name in args.name:
        if name not in known:
            raise ScenarioError(f"{args.lab}: no cable '{name}'; "
                                + guess(name, known))
    control = control_of(args)
    for name in args.name:
        control.command(args.action, {"cable": name})
        print(f"cable {name}: {'out' if args.action == 'pull' else 'in'}")
    return 0


def fabric_command(args: argparse.Namespace) -> int:
    """ehcalab fabric COMMAND [ARGUMENTS]: any command of the fabric's."""
    try:
        answer = control_of(args).command(args.execute, args.arguments)
    except Refused as exc:
        raise ScenarioError(f"ehcalab: {exc}") from exc
    print(json.dumps(answer, indent=2))
    return 0


def events(args: argparse.Namespace) -> int:
    """ehcalab events: follow what happens in a lab."""
    def show(message: dict[str, Any]) -> None:
        print(json.dumps(message), flush=True)
    control = control_of(args, show)
    while not control.closed.wait(1.0):
        pass
    return 0


def guest_of(args: argparse.Namespace) -> dict[str, Any]:
    """The record of a guest that runs."""
    state = read_state(args.lab)
    known_guest(args.node, [h for h in state["hosts"] if h != SM_NODE],
                str(args.lab))
    again = f"boot it: {command_for(args.lab, 'boot', args.node)}"
    if args.node not in state["guests"]:
        raise LabError(f"guest {args.node} does not run; {again}")
    record = state["guests"][args.node]
    if Adopted("guest", record).ended():
        why = guest_trouble(args.node, record, False)
        raise LabError(f"guest {args.node} {why}; {again}")
    return record


def ssh(args: argparse.Namespace) -> int:
    """ehcalab ssh NODE [COMMAND...]."""
    record = guest_of(args)
    if runner_of(read_state(args.lab)) is None:
        why = guest_trouble(args.node, record, True)
        if why:
            # Its ssh may answer all the same.
            print(f"ehcalab: guest {args.node} {why}", file=sys.stderr)
    argv = guest.ssh_argv(record["ssh_port"], *args.command)
    try:
        os.execvp(argv[0], argv)
    except OSError as exc:
        raise LabError(f"cannot run {argv[0]}: {exc.strerror}; it is in "
                       "Debian's package openssh-client") from exc


def console(args: argparse.Namespace) -> int:
    """ehcalab console NODE: its hvc0, Ctrl-] leaves."""
    record = guest_of(args)
    try:
        sock = connect(record["console"])
    except OSError as exc:
        raise LabError(f"guest {args.node}: cannot connect to its console "
                       f"{record['console']}: {exc.strerror}; its log is "
                       f"{record['console_log']}") from exc
    why = busy(Path(record["console"]))
    if why:
        raise LabError(f"guest {args.node}: no connection to its console: "
                       f"{why}; it has one user at a time; its log is "
                       f"{record['console_log']}")
    print("connected; Ctrl-] leaves, Enter shows the prompt", flush=True)
    interactive = sys.stdin.isatty()
    saved = termios.tcgetattr(0) if interactive else None
    try:
        if interactive:
            tty.setraw(0)
        talk(sock)
    finally:
        if saved is not None:
            termios.tcsetattr(0, termios.TCSADRAIN, saved)
            print()
    guest_of(args)              # says so if it has ended
    return 0


def talk(sock: socket.socket) -> None:
    """Carry bytes between terminal and console until one of them ends."""
    while True:
        ready, _, _ = select.select([0, sock], [], [])
        try:
            if 0 in ready:
                data = os.read(0, 1024)
                if not data or ESCAPE in data:
                    return
                sock.sendall(data)
            if sock in ready:
                data = sock.recv(4096)
                if not data:
                    return
                os.write(1, data)
        except ConnectionError:
            return


def explain_cmd(args: argparse.Namespace) -> int:
    """ehcalab explain NODE: why its QPs did or did not migrate."""
    record = guest_of(args)
    who = f"QEMU of {args.node}"
    try:
        qmp = JsonSocket(Path(record["qmp"]), who, timeout=CONNECT_PATIENCE)
        qmp.command("qmp_capabilities", timeout=QEMU_PATIENCE)
        text = qmp.command("qom-get", {"path": "/machine/peripheral/hca0",
                                       "property": "report"},
                           timeout=QEMU_PATIENCE)
    except ControlError as exc:
        why = busy(Path(record["qmp"]), 0)
        raise LabError(f"{exc}{': ' + why if why else ''}; its log is "
                       f"{record['log']}") from exc
    if args.json:
        print(json.dumps(json.loads(text), indent=2))
        return 0
    for line in explain.explain_report(args.node, json.loads(text)):
        print(line)
    return 0
