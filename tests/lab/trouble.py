# SPDX-License-Identifier: GPL-2.0-or-later
"""When a lab gets into trouble: named at once, everything stopped.

Each case plays a small scenario, or starts a lab that stays, and then does
harm: a guest's kernel panics, a process is killed, the runner itself is.
What must come of it: the message names what happened and the log to read,
the exit status is right, what it proposes to do can be done, and no process
and no socket directory of the run is left.
"""
from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts" / "lib"))

from ehcalab.process import die_with_parent  # noqa: E402  (see above)

EHCALAB = ROOT / "scripts" / "ehcalab"
TOPOLOGY = ROOT / "scenarios" / "topologies" / "two-rails.topo"
PATIENCE = 120.0
BAD_INPUT, TROUBLE = 2, 3


def ehcalab(*words: str, env: dict[str, str] | None = None
            ) -> subprocess.CompletedProcess[str]:
    """Run it to its end; if we are stopped, it stops what it started."""
    with subprocess.Popen([str(EHCALAB), *words], text=True, env=env,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE,
                          preexec_fn=die_with_parent(signal.SIGTERM)
                          ) as process:
        try:
            out, err = process.communicate()
        except BaseException:
            process.terminate()
            process.communicate(timeout=PATIENCE)
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, out,
                                       err)


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
    """An ehcalab with a directory of its own; by default it plays a scenario
    of ours."""

    def __init__(self, where: Path, *actions: str,
                 words: list[str] | None = None) -> None:
        self.dir = where / "out"
        scenario = where / "trouble.scn"
        scenario.write_text(
            f'topology {TOPOLOGY}\nstep "Trouble"\n    boot alice\n'
            + "".join(f"    {a}\n" for a in actions))
        self.process = subprocess.Popen(
            [str(EHCALAB), *(words or ["run", str(scenario), "--out",
                                       str(self.dir)])],
            text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            preexec_fn=die_with_parent(signal.SIGTERM))

    def end(self) -> tuple[int, str]:
        """Exit status and everything it said."""
        output, _ = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, output

    def wait_booted(self) -> None:
        """Until the guest runs and the runner sleeps in its next action."""
        self.wait_said("booted")

    def wait_said(self, words: str) -> None:
        """Until it says something."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if words in line:
                return
        raise ValueError(f"it never said '{words}'")

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
        if self.process.returncode != -signal.SIGKILL:
            mine += self.dir.glob("lab.json*")
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
    (where / "next").mkdir()
    after = Run(where / "next", "note done")
    status, output = after.end()
    return wants(status, output, 0) or run.left() or after.left()


def bad_topology(where: Path) -> str:
    """A wrong topology: file, line, what is wrong; nothing is started."""
    topology = where / "bad.topo"
    topology.write_text("switch s1 ports=8\nhost alice ports=2\n"
                        "cable a1 alice/3 s1/1\n")
    scenario = where / "bad.scn"
    scenario.write_text('topology bad.topo\nstep "x"\n    boot alice\n')
    done = ehcalab("run", str(scenario), "--out", str(where / "out"))
    return wants(done.returncode, done.stderr, BAD_INPUT, "bad.topo:3:") or (
        "it made its run directory" if (where / "out").exists() else "")


def not_built(where: Path) -> str:
    """Nothing is built: names all of it, and what to run."""
    done = ehcalab("run", "apm-failover",
                   env=dict(os.environ, EHCALAB_BUILD=str(where)))
    return wants(done.returncode, done.stderr, TROUBLE, "QEMU is not built",
                 "the fabric is not built", "guest image",
                 f"EHCALAB_BUILD={where}", "scripts/setup qemu image host")


def no_lab(where: Path) -> str:
    """Commands to a lab that does not run."""
    for words in (["status"], ["cable", "pull", "x"], ["down"],
                  ["ssh", "alice"], ["console", "alice"],
                  ["explain", "alice"], ["events"], ["boot", "alice"],
                  ["shutdown", "alice"], ["sm", "start"],
                  ["fabric", "list"]):
        done = ehcalab(words[0], "--lab", str(where), *words[1:])
        wrong = wants(done.returncode, done.stderr, TROUBLE, "no lab runs",
                      f"ehcalab up --lab {where} two-rails")
        if wrong:
            return f"{words}: {wrong}"
    return ""


class Standing:
    """A lab that stays, with one guest, in a directory with a blank."""

    def __init__(self, where: Path) -> None:
        self.dir = where / "a lab"
        self.lab = ["--lab", str(self.dir)]

    def up_words(self) -> list[str]:
        """The command that starts it."""
        return ["up", str(TOPOLOGY), *self.lab, "--guests", "alice",
                "--no-load"]

    def state(self) -> dict:
        """What is written down of it."""
        return json.loads((self.dir / "lab.json").read_text())

    def tell(self, verb: str, *words: str, code: int = 0,
             says: tuple[str, ...] = ()) -> str:
        """Run a command for it; ValueError if it does not end as wanted."""
        done = ehcalab(verb, *self.lab, *words)
        wrong = wants(done.returncode, done.stdout + done.stderr, code, *says)
        if wrong:
            raise ValueError(f"{verb} {' '.join(words)}: {wrong}")
        return done.stdout + done.stderr

    def do_as_told(self, output: str, beginning: str) -> None:
        """Run the command that a message proposes, as it stands there."""
        [line] = [part for part in output.splitlines() if beginning in part]
        hint = line[line.index(beginning) + len(beginning):].split("; ")[0]
        done = subprocess.run(["sh", "-c", hint], text=True, check=False,
                              capture_output=True)
        if done.returncode != 0:
            raise ValueError(f"'{hint}' ended with {done.returncode}: "
                             f"{done.stderr}")

    def left(self) -> str:
        """What of it is there that should not be."""
        if (self.dir / "lab.json").exists():
            return "lab.json is left"
        pids = processes(str(self.dir))
        return f"processes {pids} are left" if pids else ""


def standing_guest(where: Path) -> str:
    """A guest of a lab that stays panics, hangs, is killed; and comes back."""
    lab = Standing(where)
    try:
        return harm_guest(lab)
    finally:
        ehcalab("down", *lab.lab)


def harm_guest(lab: Standing) -> str:
    """What standing_guest() does."""
    done = ehcalab(*lab.up_words())
    wrong = wants(done.returncode, done.stderr, 0)
    if wrong:
        return wrong
    lab.tell("status", says=("guest alice: pid", "guest bob: not booted"))
    lab.tell("ssh", "alice", "hostname", says=("alice",))
    # Options before the command are ehcalab's.
    done = ehcalab("ssh", "alice", *lab.lab, "--", "echo", "--lab")
    wrong = wants(done.returncode, done.stdout, 0, "--lab")
    if wrong:
        return wrong
    first = subprocess.Popen([EHCALAB, "console", *lab.lab, "alice"],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert first.stdin is not None and first.stdout is not None
    first.stdout.readline()
    lab.tell("console", "alice", code=TROUBLE,
             says=("another one is connected",))
    first.communicate(b"\x1d")
    # It panics.
    ehcalab("ssh", *lab.lab, "alice", "echo c > /proc/sysrq-trigger")
    said = lab.tell("status", code=TROUBLE,
                    says=("HAS ENDED", "Kernel panic", "alice.console.log"))
    for verb in ("ssh", "console", "explain"):
        lab.tell(verb, "alice", code=TROUBLE,
                 says=("guest alice has ended", "Kernel panic", "boot it"))
    lab.do_as_told(said, "boot it again: ")
    lab.tell("status")
    # It hangs.
    os.kill(lab.state()["guests"]["alice"]["pid"], signal.SIGSTOP)
    for _ in range(2):
        said = lab.tell("status", code=TROUBLE, says=(
            "DOES NOT ANSWER", "alice.console.log"))
    lab.tell("explain", "alice", code=TROUBLE, says=("alice.qemu.log",))
    lab.do_as_told(said, "or end it: ")
    lab.tell("ssh", "alice", code=TROUBLE, says=("does not run", "boot"))
    # The subnet manager, then the fabric.
    os.kill(lab.state()["sm"]["pid"], signal.SIGKILL)
    said = lab.tell("status", code=TROUBLE, says=("sm.log",))
    lab.do_as_told(said, "start it again: ")
    lab.tell("status")
    (Path(lab.state()["sockets"]) / "control.sock").unlink()
    lab.tell("status", code=TROUBLE, says=("control.sock: No such file",
                                           "end the lab"))
    os.kill(lab.state()["fabric"]["pid"], signal.SIGKILL)
    for words in (["status"], ["cable", "pull", "alice-1"], ["events"],
                  ["boot", "alice"]):
        said = lab.tell(*words, code=TROUBLE, says=(
            "the fabric has ended", "fabric.log"))
    lab.do_as_told(said, "end the lab: ")
    return lab.left()


def up_stopped(where: Path) -> str:
    """up is told to stop, at one moment or another: nothing stays."""
    lab = Standing(where)
    words = [word for word in lab.up_words() if word != "--no-load"]
    for signum, said in ((signal.SIGINT, "fabric started"),
                         (signal.SIGHUP, "guest alice started"),
                         (signal.SIGTERM, "booted")):
        run = Run(where, words=words)
        run.wait_said(said)
        run.process.send_signal(signum)
        wrong = wants(*run.end(), 128 + signum, signum.name
                      ) or run.left() or lab.left()
        if wrong:
            return f"{signum.name}: {wrong}"
    return ""


def up_killed(where: Path) -> str:
    """up is killed: what it started is known, and down ends it."""
    lab = Standing(where)
    run = Run(where, words=lab.up_words())
    run.wait_said("alice joined")
    run.process.kill()
    run.end()
    lab.tell("down", says=("guest alice", "the fabric"))
    return run.left() or lab.left()


def up_twice(where: Path) -> str:
    """A lab's directory is one lab's; down ends up, too."""
    lab = Standing(where)
    run = Run(where, words=lab.up_words())
    run.wait_said("guest alice started")
    for words in (lab.up_words(), ["boot", *lab.lab, "bob"],
                  ["run", "apm-failover", "--out", str(lab.dir)]):
        done = ehcalab(*words)
        wrong = wants(done.returncode, done.stdout + done.stderr, TROUBLE,
                      "another ehcalab is at work", "ehcalab down")
        if wrong:
            return wrong
    lab.tell("down", says=("and its lab",))
    return wants(*run.end(), 128 + signal.SIGTERM) or run.left() or lab.left()


# ehcalab with a port for the guests' ssh that is not free.
WITH_PORT = ("import sys\n"
             "sys.path.insert(0, sys.argv[1])\n"
             "from ehcalab import cli, guest\n"
             "guest.free_port = lambda: int(sys.argv[2])\n"
             "sys.exit(cli.main(sys.argv[3:]))\n")


def port_taken(where: Path) -> str:
    """The port of a guest's ssh is taken: told with QEMU's words."""
    lab = Standing(where)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = subprocess.run(
            ["/usr/bin/python3", "-c", WITH_PORT,
             str(ROOT / "scripts" / "lib"), str(taken.getsockname()[1]),
             *lab.up_words()], text=True, check=False, capture_output=True)
    return wants(done.returncode, done.stderr, TROUBLE, "guest alice",
                 "forwarding", "alice.qemu.log") or lab.left()


def bad_up(where: Path) -> str:
    """up with something wrong: told before anything is started."""
    no_guest = where / "none.topo"
    no_guest.write_text("switch s1 ports=8\nhost sm ports=1\n"
                        "cable c sm/1 s1/1\n")
    many = where / "many.topo"
    many.write_text("host big ports=4\nhost b ports=1\ncable c big/1 b/1\n")
    lab = where / "lab"
    for words, says in (
            (["--memory", "7", "two-rails"], "a multiple of 256"),
            (["--memory", "0", "two-rails"], "a multiple of 256"),
            (["--memory", "-1", "two-rails"], "a multiple of 256"),
            (["--memory", "1000000000", "two-rails"], "to 65536"),
            (["--memory", "512x", "two-rails"], "a multiple of 256"),
            (["two-rails", "--guests", "alcie"], "did you mean 'alice'"),
            (["two-rails", "--guests", "sm"], "no guest 'sm'"),
            ([str(no_guest)], "no host that a guest"),
            ([str(many)], "host big has 4 ports"),
            (["tow-rails"], "no such file")):
        done = ehcalab("up", "--lab", str(lab), *words)
        wrong = wants(done.returncode, done.stderr, BAD_INPUT, says) or (
            "it made its directory" if lab.exists() else "")
        if wrong:
            return f"{words}: {wrong}"
    return ""


CASES: list[Callable[[Path], str]] = [
    bad_topology, not_built, no_lab, bad_up, panic, guest_killed,
    fabric_killed, runner_terminated, runner_killed, standing_guest,
    port_taken, up_stopped, up_killed, up_twice]


def run_all(check: Callable[[str, Callable[[], str]], None],
            only: str = "") -> None:
    """Give every case, or the one, to the tally."""
    for case in CASES:
        if only not in ("", case.__name__):
            continue
        with tempfile.TemporaryDirectory(prefix="trouble-") as where:
            title = (case.__doc__ or "").strip().rstrip(".")
            check(f"trouble: {title}", lambda: case(Path(where)))
