# SPDX-License-Identifier: GPL-2.0-or-later
"""scripts/bench: what this machine makes of the lab, in figures.

Nothing is judged here: benchmarks measure, tests check.  Each figure stands
beside one of the host alone, taken in the same run, so that two machines, or
two days, can be compared.
"""
from __future__ import annotations

import argparse
import ctypes
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from . import entry, failovers, guest, paths, report, scenario
from .eventlog import Event, EventLog
from .lab import Lab, load_topology
from .player import Player
from .process import LabError, how_it_ended
from .setup_kernels import DEFAULT_SERIES
from .values import guess

MIB = 1 << 20
MEMCPY_COUNT = 512
WRITE_COUNT = 64
REPEATS = 3
IDLE_SECONDS = 10.0
TICK = os.sysconf("SC_CLK_TCK")


def memcpy_mb_s() -> float:
    """The host's own copy of 1 MiB blocks, MB (10^6) a second."""
    blocks = 8
    source = ctypes.create_string_buffer(b"x" * MIB * blocks)
    target = ctypes.create_string_buffer(MIB * blocks)
    began = time.perf_counter()
    for number in range(MEMCPY_COUNT):
        at = number % blocks * MIB
        ctypes.memmove(ctypes.addressof(target) + at,
                       ctypes.addressof(source) + at, MIB)
    return MEMCPY_COUNT * MIB / (time.perf_counter() - began) / 1e6


def cpu_seconds(stat: Path) -> float:
    """User and system time of a process or thread."""
    words = stat.read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / TICK


def idle(lab: Lab) -> list[str]:
    """CPU of fabric, SM and adapter threads while nothing is asked."""
    watched: dict[str, Path] = {}
    assert lab.fabric is not None and lab.sm is not None
    watched["fabric"] = Path(f"/proc/{lab.fabric.pid}/stat")
    watched["subnet manager"] = Path(f"/proc/{lab.sm.pid}/stat")
    for node, one in lab.guests.items():
        for task in Path(f"/proc/{one.process.pid}/task").iterdir():
            if "ehca" in (task / "comm").read_text():
                watched[f"adapter of {node}"] = task / "stat"
        watched[f"QEMU of {node}, all threads"] = Path(
            f"/proc/{one.process.pid}/stat")
    before = {name: cpu_seconds(stat) for name, stat in watched.items()}
    began = time.monotonic()
    time.sleep(IDLE_SECONDS)
    took = time.monotonic() - began
    return [f"  {name:<28} {(cpu_seconds(stat) - before[name]) / took:7.2%}"
            for name, stat in watched.items()]


def connect(lab: Lab, log: EventLog) -> None:
    """Boot two guests and connect their consumers."""
    lab.start_fabric()
    lab.start_sm()
    lab.boot(["alice", "bob"])
    for node in ("alice", "bob"):
        lab.load(node, {})
    for place in ("alice/1", "alice/2", "bob/1", "bob/2"):
        while lab.port_state(place) != "active":
            lab.check()
            time.sleep(0.05)
    lab.consumer("bob", "listen service=0x1000")
    lab.consumer("alice", "connect service=0x1000 primary=1:{gid:bob/1} "
                 "alternate=2:{gid:bob/2}")
    for node in ("alice", "bob"):
        await_event(lab, log, 0, node, "connected")


def await_event(lab: Lab, log: EventLog, position: int, node: str,
                name: str) -> Event:
    """The next event of a name."""
    def fits(event: Event) -> bool:
        return event.source == node and event.name == name

    event = log.wait(fits, position, 120, lab.check)
    if event is None:
        raise LabError(f"{node} never had '{name}'")
    return event


def data_path(say: Callable[[str], None]) -> None:
    """RDMA write between two guests, beside memcpy; then the idle lab."""
    log = EventLog()
    run_dir = paths.BUILD / "runs" / "bench"
    shutil.rmtree(run_dir, ignore_errors=True)
    topology = load_topology(paths.ROOT / "scenarios" / "topologies"
                             / "two-rails.topo")
    lab = Lab(topology, run_dir, log, options={"capture": "off"})
    try:
        connect(lab, log)
        say("Idle lab, two guests connected, no traffic (of one core):")
        for line in idle(lab):
            say(line)
        say("RDMA write of 1 MiB messages, guest to guest:")
        for _ in range(REPEATS):
            copy = memcpy_mb_s()
            here = log.position()
            lab.consumer("alice", f"bench write size={MIB} "
                         f"count={WRITE_COUNT}")
            event = await_event(lab, log, here, "alice", "bench")
            say(f"  {float(event.data['mb_s']):9.1f} MB/s   "
                f"(memcpy of the host: {copy:.0f} MB/s)")
    finally:
        lab.close()


def failover(say: Callable[[str], None]) -> None:
    """apm-failover from start to verdict."""
    path = paths.ROOT / "scenarios" / "apm-failover.scn"
    one = scenario.read(path, load_topology)
    log = EventLog()
    run_dir = paths.BUILD / "runs" / "bench-failover"
    shutil.rmtree(run_dir, ignore_errors=True)
    began = time.monotonic()
    lab = Lab(one.topology, run_dir, log)
    try:
        lab.start_fabric()
        verdict = Player(one, lab, log, lambda node: []).play()
    finally:
        lab.close()
    say(f"apm-failover, start to verdict: {time.monotonic() - began:.1f} s "
        f"({report.verdict_line(verdict)})")
    say("from the pull of the cable, in ms:")
    seen = failovers.watch(report.in_order(log.since(0)))
    for line in failovers.middles(seen.found):
        say(line)


def simulated(say: Callable[[str], None]) -> None:
    """Failovers a minute of the simulator, on one core."""
    began = time.monotonic()
    done = subprocess.run([paths.SIM_BIN, "--seed", "1", "--failovers",
                           "5000"], text=True, errors="replace",
                          capture_output=True, check=False)
    took = time.monotonic() - began
    match = re.search(r"(\d+) failovers", done.stdout)
    if done.returncode != 0 or match is None:
        raise LabError(f"the simulator {how_it_ended(done.returncode)}: "
                       f"{done.stdout[-300:]}{done.stderr[-300:]}")
    say(f"simulator: {int(match.group(1)) / took * 60:.0f} failovers a "
        f"minute on one core ({match.group(1)} in {took:.1f} s)")


# What is measured, and the programs it takes; with guests or without.
PARTS: dict[str, tuple[Callable[[Callable[[str], None]], None],
                       tuple[Path, ...], str]] = {
    "data": (data_path, guest.LAB_PROGRAMS, DEFAULT_SERIES),
    "failover": (failover, guest.LAB_PROGRAMS, DEFAULT_SERIES),
    "sim": (simulated, (paths.SIM_BIN,), ""),
}


def run(argv: list[str]) -> int:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(
        prog="scripts/bench", description="measure; nothing is judged",
        usage="scripts/bench [-h] [PART...]")
    parser.add_argument("parts", nargs="*", metavar="PART",
                        help=", ".join(PARTS) + " (default: all)")
    args = parser.parse_args(argv)
    for name in args.parts:
        if name not in PARTS:
            parser.error(f"no part '{name}'; "
                         + guess(name, list(PARTS)))
    wanted = list(dict.fromkeys(args.parts or PARTS))
    guest.check_built(
        max(PARTS[name][2] for name in wanted),
        dict.fromkeys(path for name in wanted for path in PARTS[name][1]))
    for name in wanted:
        PARTS[name][0](lambda line: print(line, flush=True))
    return 0


def main(argv: list[str]) -> int:
    """Entry point of scripts/bench."""
    return entry.run("scripts/bench", 1, lambda: run(argv))
