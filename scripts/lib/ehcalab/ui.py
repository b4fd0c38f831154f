# SPDX-License-Identifier: GPL-2.0-or-later
"""Progress lines and logged commands.

Theory of operation
  A set-up is a row of steps, each printed as "[3/9] building QEMU: ...".
  On a terminal the line of the running step is rewritten in place; elsewhere
  (CI, a pipe) a new line is printed, but at most one every few seconds, so
  that a log stays readable and a watcher still sees life.  The full output of
  every command goes to build/logs/STEP.log.  A command that fails raises
  StepFailed, which knows its log; the entry point prints the log's tail.
"""
from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from . import paths, stop
from .process import die_with_parent, how_it_ended, stop_group

# Seconds between two progress lines of one step, off and on a terminal.
LINE_INTERVAL = 4.0
TTY_INTERVAL = 0.1
# Lines of a failed command's log shown to the user.
TAIL_LINES = 25

NINJA_RE = re.compile(r"^\[(\d+)/(\d+)\]")


class SetupError(Exception):
    """Something the user can act on; the text says what and how."""


class StepFailed(SetupError):
    """A command of a step failed; the log has its output."""

    def __init__(self, what: str, log: Path | None, code: int) -> None:
        super().__init__(f"{what} {how_it_ended(code)}")
        self.log = log

    def tail(self) -> list[str]:
        """The last lines of the log."""
        if self.log is None or not self.log.exists():
            return []
        text = self.log.read_text(errors="replace")
        return text.splitlines()[-TAIL_LINES:]


def report(prog: str, exc: SetupError) -> list[str]:
    """What to tell the user: what went wrong and where to look."""
    if not isinstance(exc, StepFailed):
        return [f"{prog}: {exc}"]
    lines = [f"  | {line}" for line in exc.tail()] + [f"{prog}: {exc}"]
    if exc.log is not None:
        lines.append(f"{prog}: the whole log is {exc.log}")
    return lines


class Step:
    """One numbered step on the screen, with its log file."""

    def __init__(self, name: str, title: str, number: int, total: int) -> None:
        self.name = name
        self.title = title
        self.prefix = f"[{number}/{total}] {title}"
        self.log = paths.LOGS / f"{name}.log"
        self.tty = sys.stdout.isatty()
        self.began = time.monotonic()
        self.last_line = 0.0
        self.last_text = ""

    def open_log(self) -> None:
        """Start this run's log afresh."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.log.write_text("")

    def progress(self, text: str, force: bool = False) -> None:
        """Show where the step is; rate-limited unless forced."""
        now = time.monotonic()
        interval = TTY_INTERVAL if self.tty else LINE_INTERVAL
        if text == self.last_text:
            return
        if not force and now - self.last_line < interval:
            return
        self.last_line = now
        self.last_text = text
        self._print(f"{self.prefix}: {text}", last=False)

    def done(self, text: str = "done") -> None:
        """Close the step."""
        took = time.monotonic() - self.began
        suffix = f" ({took:.0f} s)" if took >= 1 else ""
        self._print(f"{self.prefix}: {text}{suffix}", last=True)

    def broken(self) -> None:
        """Leave the running step's line as it is; what follows is below."""
        if self.tty and self.last_text:
            sys.stdout.write("\n")
        sys.stdout.flush()

    def _print(self, line: str, last: bool) -> None:
        if self.tty:
            columns = shutil.get_terminal_size().columns
            end = "\n" if last else ""
            sys.stdout.write("\r\x1b[K" + line[:columns - 1] + end)
        else:
            sys.stdout.write(line + "\n")
        sys.stdout.flush()

    def run(self, argv: Sequence[str | os.PathLike[str]], *,
            cwd: Path | None = None,
            env: Mapping[str, str] | None = None,
            what: str | None = None,
            on_line: Callable[[str], None] | None = None,
            own_group: bool = True) -> None:
        """Run a command into the log; raise StepFailed if it fails.

        env is laid over the caller's environment.  In a process group of
        its own all that it started can be ended with it; but sudo's child
        is beyond our reach and has to get the terminal's Ctrl-C itself.
        """
        words = [os.fspath(a) for a in argv]
        full_env = dict(os.environ)
        # Messages are parsed and logged: keep them in one language.
        full_env["LC_ALL"] = "C.UTF-8"
        if env:
            full_env.update(env)
        proc: subprocess.Popen[str] | None = None
        with self.log.open("a", errors="replace") as log:
            log.write(f"$ {shlex.join(words)}\n")
            log.flush()
            try:
                with stop.held():
                    proc = _start(words, cwd, full_env, own_group)
                assert proc.stdout is not None
                for line in proc.stdout:
                    log.write(line)
                    if on_line is not None:
                        on_line(line.rstrip("\n"))
                log.flush()
                code = proc.wait()
            except BaseException:
                if proc is not None and own_group:
                    stop_group(proc)
                elif proc is not None:
                    # Cut off, it would die of the pipe with work half done.
                    proc.communicate()
                raise
        if code != 0:
            raise StepFailed(what or shlex.join(words[:3]), self.log, code)

    def run_ninja(self, argv: Sequence[str | os.PathLike[str]],
                  what: str, env: Mapping[str, str] | None = None) -> int:
        """Run ninja, turning its counter into progress; the steps taken."""
        steps = 0

        def on_line(line: str) -> None:
            nonlocal steps
            match = NINJA_RE.match(line)
            if match:
                steps = int(match.group(2))
                self.progress(f"{match.group(1)} of {match.group(2)} steps")

        self.run(argv, on_line=on_line, what=what, env=env)
        return steps


def _start(words: list[str], cwd: Path | None, env: dict[str, str],
           own_group: bool) -> subprocess.Popen[str]:
    """Start a step's command with its output in a pipe."""
    try:
        return subprocess.Popen(
            words, cwd=cwd, env=env, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            errors="replace", process_group=0 if own_group else None,
            preexec_fn=die_with_parent(signal.SIGTERM))
    except OSError as exc:
        raise SetupError(
            f"cannot run {words[0]}: {exc.strerror}; what is missing is "
            f"installed by: {paths.script('setup', 'deps')}") from exc


def capture(argv: Sequence[str | os.PathLike[str]],
            env: Mapping[str, str] | None = None) -> str:
    """A short command's output; SetupError with its words if it fails."""
    words = [os.fspath(a) for a in argv]
    full_env = dict(os.environ, LC_ALL="C.UTF-8", **(env or {}))
    try:
        done = subprocess.run(words, env=full_env, check=False, text=True,
                              errors="replace", stdin=subprocess.DEVNULL,
                              capture_output=True)
    except OSError as exc:
        raise SetupError(f"cannot run {words[0]}: {exc.strerror}") from exc
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise SetupError(f"{shlex.join(words[:4])} failed: "
                         f"{said[-1] if said else 'no message'}")
    return done.stdout
