# SPDX-License-Identifier: GPL-2.0-or-later
"""When a lab gets into trouble: named at once, everything stopped.

Each case plays a small scenario and then does harm: a guest's kernel panics,
a process is killed, the runner itself is.  What must come of it: the message
names what happened and the log to read, the exit status is right, and no
process and no socket directory of the run is left.
"""
from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EHCALAB = ROOT / "scripts" / "ehcalab"
TOPOLOGY = ROOT / "scenarios" / "topologies" / "two-rails.topo"
PATIENCE = 120.0
BAD_INPUT, TROUBLE = 2, 3


def processes(mark: str) -> list[int]:
    """Processes with the mark (the run's directory) on their command line."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = entry.read_bytes()
            state = (entry.parent / "stat").read_text().rpartition(")")[2]
        except OSError:
            continue
        if mark.encode() in line and state.split()[0] not in "ZX":
            found.append(int(entry.parent.name))
    return found


class Run:
    """One ehcalab run with a scenario of ours, in a directory of its own."""

    def __init__(self, where: Path, *actions: str) -> None:
        self.dir = where / "out"
        scenario = where / "trouble.scn"
        scenario.write_text(
            f'topology {TOPOLOGY}\nstep "Trouble"\n    boot alice\n'
            + "".join(f"    {a}\n" for a in actions))
        self.process = subprocess.Popen(
            [str(EHCALAB), "run", str(scenario), "--out", str(self.dir)],
            text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def end(self) -> tuple[int, str]:
        """Exit status and everything it said."""
        output, _ = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, output

    def wait_booted(self) -> None:
        """Until the guest runs and the runner sleeps in its next action."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if "booted" in line:
                return
        raise ValueError("the guest never booted")

    def pid(self, what: str) -> int:
        """A child's pid by its program's name."""
        for pid in processes(str(self.dir.parent)):
            if what in Path(f"/proc/{pid}/comm").read_text():
                return pid
        for entry in Path(f"/proc/{self.process.pid}/task/"
                          f"{self.process.pid}/children"
                          ).read_text().split():
            if what in Path(f"/proc/{entry}/comm").read_text():
                return int(entry)
        raise ValueError(f"no process '{what}' found")

    def left(self) -> str:
        """What of the run is still there; '' is good."""
        until = time.monotonic() + 10
        while processes(str(self.dir)) and time.monotonic() < until:
            time.sleep(0.05)
        pids = processes(str(self.dir))
        if pids:
            return f"processes {pids} are left"
        mine = list(Path(tempfile.gettempdir()).glob(
            f"ehcalab-{self.process.pid}-*"))
        return f"{mine} is left" if mine else ""


def wants(status: int, output: str, code: int, *words: str) -> str:
    """What is wrong with an end, '' if nothing."""
    if status != code:
        return f"exit status {status}, not {code}: {output[-400:]}"
    missing = [w for w in words if w not in output]
    return (f"its message lacks {missing}: {output[-600:]}" if missing
            else "")


def panic(where: Path) -> str:
    """The guest's kernel panics."""
    run = Run(where, 'run alice "(sleep 1; echo c > /proc/sysrq-trigger) &"',
              "sleep 60")
    return wants(*run.end(), TROUBLE, "guest alice", "console"
                 ) or run.left()


def guest_killed(where: Path) -> str:
    """QEMU is killed from outside."""
    run = Run(where, "sleep 60")
    run.wait_booted()
    os.kill(run.pid("qemu"), signal.SIGKILL)
    return wants(*run.end(), TROUBLE, "guest alice was killed by SIGKILL",
                 "alice.qemu.log") or run.left()


def fabric_killed(where: Path) -> str:
    """The fabric is killed from outside."""
    run = Run(where, "sleep 60")
    run.wait_booted()
    os.kill(run.pid("ehca-fabric"), signal.SIGKILL)
    return wants(*run.end(), TROUBLE, "the fabric was killed by SIGKILL",
                 "fabric.log") or run.left()


def runner_terminated(where: Path) -> str:
    """The runner is told to stop."""
    run = Run(where, "sleep 60")
    run.wait_booted()
    run.process.terminate()
    status, output = run.end()
    return wants(status, output, 128 + signal.SIGTERM) or run.left()


def runner_killed(where: Path) -> str:
    """The runner is killed: its processes go with it."""
    run = Run(where, "sleep 60")
    run.wait_booted()
    run.process.kill()
    run.end()
    # Its directory of sockets is swept up by the next runner.
    after = Run(where / "next", "note done") if \
        (where / "next").mkdir() is None else None
    assert after is not None
    status, output = after.end()
    return wants(status, output, 0) or run.left() or after.left()


def bad_topology(where: Path) -> str:
    """A wrong topology: file, line, what is wrong; nothing is started."""
    topology = where / "bad.topo"
    topology.write_text("switch s1 ports=8\nhost alice ports=2\n"
                        "cable a1 alice/3 s1/1\n")
    scenario = where / "bad.scn"
    scenario.write_text('topology bad.topo\nstep "x"\n    boot alice\n')
    done = subprocess.run([str(EHCALAB), "run", str(scenario), "--out",
                           str(where / "out")], text=True, check=False,
                          capture_output=True)
    return wants(done.returncode, done.stderr, BAD_INPUT, "bad.topo:3:") or (
        "it made its run directory" if (where / "out").exists() else "")


def not_built(where: Path) -> str:
    """Nothing is built: says what to run."""
    done = subprocess.run(
        [str(EHCALAB), "run", "apm-failover"], text=True, check=False,
        capture_output=True, env=dict(os.environ, EHCALAB_BUILD=str(where)))
    return wants(done.returncode, done.stderr, TROUBLE, "scripts/setup")


def no_lab(where: Path) -> str:
    """Commands to a lab that does not run."""
    for words in (["status"], ["cable", "pull", "x"], ["down"],
                  ["ssh", "alice"], ["console", "alice"],
                  ["explain", "alice"], ["events"]):
        done = subprocess.run([str(EHCALAB), words[0], "--lab", str(where),
                               *words[1:]], text=True, check=False,
                              capture_output=True)
        wrong = wants(done.returncode, done.stderr, TROUBLE, "no lab runs")
        if wrong:
            return f"{words}: {wrong}"
    return ""


CASES: list[Callable[[Path], str]] = [
    bad_topology, not_built, no_lab, panic, guest_killed, fabric_killed,
    runner_terminated, runner_killed]


def run_all(check: Callable[[str, Callable[[], str]], None]) -> None:
    """Give every case to the tally."""
    for case in CASES:
        with tempfile.TemporaryDirectory(prefix="trouble-") as where:
            title = (case.__doc__ or "").strip().rstrip(".")
            check(f"trouble: {title}", lambda: case(Path(where)))
