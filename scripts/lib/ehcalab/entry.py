# SPDX-License-Identifier: GPL-2.0-or-later
"""How each program of scripts/ begins and ends.

Whatever ends it, what it started is stopped, and the user reads one clear
message: no way out of here is a traceback, but for a fault of ours.
"""
from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from . import paths, stop
from .clean import clean_lines
from .exits import EXIT_BAD_INPUT
from .jsonsock import ControlError
from .process import LabError
from .scenario import ScenarioError
from .ui import SetupError, report

PIPE_STATUS = 128 + signal.SIGPIPE


def standard_files() -> None:
    """Have all three, whatever the caller closed, able to print any path."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)       # takes the lowest number
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"),
                               (2, "stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, closefd=False))
    for stream in (sys.stdout, sys.stderr):
        # A name in no encoding, or none of the terminal's.
        stream.reconfigure(errors="backslashreplace")    # type: ignore


def say(text: str) -> None:
    """A line for the user, if there is one to read it."""
    try:
        sys.stdout.flush()
    except OSError:
        silence(1)
    try:
        # It may quote a guest, or the log of its console.
        print(clean_lines(text), file=sys.stderr, flush=True)
    except OSError:
        silence(2)


def os_error(exc: OSError) -> str:
    """What the system refused, and the way out where there is one."""
    text = f"{exc.filename}: {exc.strerror}" if exc.filename else \
        exc.strerror or str(exc)
    if exc.errno in (errno.ENOSPC, errno.EDQUOT):
        text += (f"; we write under {paths.BUILD} and "
                 f"{os.environ.get('TMPDIR') or '/tmp'}; make room and run "
                 "it again")
    elif exc.filename and not isinstance(exc.filename, int):
        place = Path(os.fsdecode(exc.filename))
        if place.is_relative_to(paths.BUILD) or \
                paths.BUILD.is_relative_to(place):
            text += ("; EHCALAB_BUILD may name another directory than "
                     f"{paths.BUILD}")
    return text


def silence(number: int) -> None:
    """Nobody reads what we print: what Python still has of it goes nowhere,
    or it would complain at its end."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, number)


def run(prog: str, trouble: int, body: Callable[[], int]) -> int:
    """Run a program; its exit status.  trouble: that of any failure."""
    standard_files()
    stop.listen()
    stopped = False
    try:
        try:
            status = body()
            sys.stdout.flush()
            return status
        finally:
            stopped = stop.clean_up()
    except stop.Stopped as exc:
        if exc.status == PIPE_STATUS:
            silence(1)
        else:
            say(f"{prog}: stopped by {exc.signum.name}"
                + ("; so is everything it started" if stopped else ""))
        return exc.status
    except BrokenPipeError:
        silence(1)
        return PIPE_STATUS
    except SystemExit as exc:
        # Of argparse, after a message or --help.
        try:
            sys.stdout.flush()
        except OSError:
            silence(1)
        return exc.code if isinstance(exc.code, int) else 0
    except ScenarioError as exc:
        say(str(exc))
        return EXIT_BAD_INPUT
    except SetupError as exc:
        for line in report(prog, exc):
            say(line)
    except (LabError, ControlError, subprocess.SubprocessError) as exc:
        say(f"{prog}: {exc}")
    except OSError as exc:
        # A full disk, a directory that cannot be written: no verdict.
        say(f"{prog}: {os_error(exc)}")
    return trouble
