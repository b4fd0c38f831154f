# SPDX-License-Identifier: GPL-2.0-or-later
"""scripts/setup: installs and builds everything the lab needs.

Targets, each with what it needs (default: all):
  deps     Debian packages on the host (the only part that may need root)
  qemu     QEMU with the ehca device
  kernels  the guests' kernels and their header trees
  modules  the guest's kernel modules
  image    the guests' initramfs images
  host     fabric and subnet manager daemons, and the tests

Each step remembers what it was made from and is not done again until that
changes.  All products and logs are in build/; build/logs/STEP.log has a
step's whole output.
"""
from __future__ import annotations

import argparse
import fcntl
import os
import signal
import sys
from collections.abc import Callable
from typing import TextIO

from . import paths, setup_apt
from .setup_deps import step_deps
from .setup_host import step_host
from .setup_image import step_image, step_packages
from .setup_kernels import step_kernels
from .setup_modules import step_modules
from .setup_qemu import step_build, step_source
from .ui import SetupError, Step, StepFailed

STEPS: dict[str, tuple[str, Callable[[Step], str]]] = {
    "deps": ("host packages", step_deps),
    "qemu-source": ("QEMU's source", step_source),
    "qemu": ("building QEMU", step_build),
    "kernels": ("guest kernels", step_kernels),
    "modules": ("guest modules", step_modules),
    "guest-packages": ("guest packages", step_packages),
    "image": ("guest images", step_image),
    "host": ("building the daemons", step_host),
}
TARGETS: dict[str, tuple[str, ...]] = {
    "deps": ("deps",),
    "qemu": ("deps", "qemu-source", "qemu"),
    "kernels": ("deps", "kernels"),
    "modules": ("deps", "kernels", "modules"),
    "image": ("deps", "kernels", "modules", "guest-packages", "image"),
    "host": ("deps", "host"),
    "all": tuple(STEPS),
}
LOCK = ".setup.lock"


def lock() -> TextIO:
    """Keep two set-ups from building in one directory."""
    paths.BUILD.mkdir(parents=True, exist_ok=True)
    path = paths.BUILD / LOCK
    held = path.open("a+")
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        held.seek(0)
        print(f"waiting for another scripts/setup (process "
              f"{held.read().strip() or 'unknown'}) to finish", flush=True)
        fcntl.flock(held, fcntl.LOCK_EX)
    held.truncate(0)
    held.write(f"{os.getpid()}\n")
    held.flush()
    return held


def run_steps(targets: list[str]) -> None:
    """Do the steps of some targets, in order, each once."""
    names = [name for name in STEPS
             if any(name in TARGETS[target] for target in targets)]
    with lock():
        for number, name in enumerate(names, start=1):
            title, function = STEPS[name]
            step = Step(name, title, number, len(names))
            try:
                step.done(function(step))
            except BaseException:
                step.broken()
                raise


def report(exc: SetupError) -> None:
    """Tell the user what went wrong and where to look."""
    sys.stdout.flush()
    if isinstance(exc, StepFailed):
        for line in exc.tail():
            print(f"  | {line}", file=sys.stderr)
    print(f"scripts/setup: {exc}", file=sys.stderr)
    if isinstance(exc, StepFailed) and exc.log is not None:
        print(f"scripts/setup: the whole log is {exc.log}", file=sys.stderr)


def main(argv: list[str]) -> int:
    """Entry point of scripts/setup."""
    parser = argparse.ArgumentParser(
        prog="scripts/setup", description=(__doc__ or "").split("\n\n", 1)[1],
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="scripts/setup [--refresh] [--jobs N] [TARGET...]")
    parser.add_argument("targets", nargs="*", metavar="TARGET",
                        help=", ".join(TARGETS))
    parser.add_argument("--refresh", action="store_true",
                        help="look for newer Debian packages")
    parser.add_argument("--jobs", type=int, metavar="N",
                        help="compilers to run at once (default: all cores)")
    args = parser.parse_args(argv)
    for target in args.targets:
        if target not in TARGETS:
            parser.error(f"there is no target {target}; "
                         f"targets are {', '.join(TARGETS)}")
    if args.jobs is not None:
        if args.jobs < 1:
            parser.error(f"--jobs {args.jobs}: must be 1 or more")
        os.environ["EHCALAB_JOBS"] = str(args.jobs)
    if args.refresh:
        setup_apt.forget()
    # As Ctrl-C: the step's command is ended too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        run_steps(args.targets or ["all"])
    except SetupError as exc:
        report(exc)
        return 1
    except KeyboardInterrupt:
        print("scripts/setup: interrupted; run it again to go on where it "
              "stopped", file=sys.stderr)
        return 130
    return 0
