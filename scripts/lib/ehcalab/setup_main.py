# SPDX-License-Identifier: GPL-2.0-or-later
"""scripts/setup: installs and builds everything the lab needs.

Targets, each with what it needs (default: all):
  deps     Debian packages on the host (the only part that may need root)
  qemu     QEMU with the ehca device
  kernels  the guests' kernels and their header trees
  modules  the guest's kernel modules
  image    the guests' initramfs images
  host     fabric and subnet manager daemons, and the tests

Each step remembers what it was made from.  It is done again when that has
changed, or when it was cut off.  All products and logs are in build/;
build/logs/STEP.log has a step's whole output.
"""
from __future__ import annotations

import argparse
import fcntl
import os
from collections.abc import Callable
from typing import TextIO

from . import entry, paths, setup_apt
from .setup_deps import step_deps
from .setup_host import step_host
from .setup_image import step_image, step_packages
from .setup_kernels import step_kernels
from .setup_modules import step_modules
from .setup_qemu import jobs, step_build, step_source
from .ui import SetupError, Step
from .values import guess

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


# What the kernel's makefiles, or QEMU's configure, take for more than a name.
BAD_IN_PATHS = frozenset(" \t\n:#$%&'\"\\;*?[](){}<>|!`,")


def check_place() -> None:
    """Refuse a build directory that cannot be built in."""
    # make resolves links.
    bad = sorted(BAD_IN_PATHS & set(str(paths.BUILD)
                                    + os.path.realpath(paths.BUILD)))
    if bad:
        shown = " ".join("blank" if c.isspace() else c for c in bad)
        raise SetupError(
            f"{paths.BUILD}: this path has characters ({shown}) with which "
            "neither QEMU nor kernel modules can be built; have all of it "
            "built in a directory without them, for example: "
            "export EHCALAB_BUILD=/var/tmp/ehcalab")


def run_steps(targets: list[str], refresh: bool = False) -> None:
    """Do the steps of some targets, in order, each once."""
    check_place()
    names = [name for name in STEPS
             if any(name in TARGETS[target] for target in targets)]
    with lock():
        if refresh:
            setup_apt.forget()
        for number, name in enumerate(names, start=1):
            title, function = STEPS[name]
            step = Step(name, title, number, len(names))
            try:
                step.done(function(step))
            except BaseException:
                step.broken()
                raise


def run(argv: list[str]) -> int:
    """Read the command line, and do the steps."""
    parser = argparse.ArgumentParser(
        prog="scripts/setup", description=(__doc__ or "").split("\n\n", 1)[1],
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="scripts/setup [--refresh] [--jobs N] [TARGET...]")
    parser.add_argument("targets", nargs="*", metavar="TARGET",
                        help=", ".join(TARGETS))
    parser.add_argument("--refresh", action="store_true",
                        help="look for newer Debian packages")
    parser.add_argument("--jobs", metavar="N",
                        help="compilers to run at once (default: all cores)")
    args = parser.parse_args(argv)
    for target in args.targets:
        if target not in TARGETS:
            parser.error(f"no target '{target}'; "
                         + guess(target, list(TARGETS)))
    if args.jobs is not None:
        os.environ["EHCALAB_JOBS"] = args.jobs
    try:
        jobs()
    except SetupError as exc:
        parser.error(str(exc))
    run_steps(args.targets or ["all"], args.refresh)
    return 0


def main(argv: list[str]) -> int:
    """Entry point of scripts/setup."""
    return entry.run("scripts/setup", 1, lambda: run(argv))
