# SPDX-License-Identifier: GPL-2.0-or-later
"""Host packages: see what is missing, and install just that.

The one part of a set-up that needs root, and only if something is missing.
The machine's own apt configuration is used as it is.
"""
from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from .ui import SetupError, Step, StepFailed, capture

# What is needed, by what needs it.
PACKAGES: dict[str, tuple[str, ...]] = {
    "compiling": ("gcc", "libc6-dev", "binutils", "make", "pkg-config",
                  "meson", "ninja-build", "patch"),
    "the daemons": ("libglib2.0-dev", "libjson-glib-dev", "libdeflate-dev"),
    "QEMU": ("python3", "python3-venv", "flex", "bison", "bzip2",
             "libpixman-1-dev", "libslirp-dev", "libfdt-dev", "zlib1g-dev"),
    "guest modules": ("gcc-powerpc64le-linux-gnu",
                      "binutils-powerpc64le-linux-gnu",
                      "libc6-dev-ppc64el-cross", "bc", "kmod"),
    "Debian packages": ("apt", "dpkg-dev", "xz-utils", "tar",
                        "debian-archive-keyring", "ca-certificates"),
    "guests": ("openssh-client",),
    "tests": ("tshark", "libibmad-dev"),
}


def installed() -> set[str]:
    """The packages that are installed, also by the names they provide."""
    text = capture(["dpkg-query", "-W", "-f",
                    "${db:Status-Status}\t${Package}\t${Provides}\n"])
    names: set[str] = set()
    for line in text.splitlines():
        status, package, provides = line.split("\t")
        if status != "installed":
            continue
        names.add(package)
        for one in provides.split(","):
            if one.strip():
                names.add(one.split()[0].split(":")[0])
    return names


def missing() -> list[str]:
    """The packages that are needed and not installed."""
    have = installed()
    return [name for group in PACKAGES.values() for name in group
            if name not in have]


def as_root() -> list[str]:
    """What to put before a command to run it as root."""
    if os.geteuid() == 0:
        return ["env"]
    if shutil.which("sudo") is not None:
        ask = ["sudo", "-n", "true"]
        if subprocess.run(ask, check=False, stdin=subprocess.DEVNULL,
                          capture_output=True).returncode == 0:
            return ["sudo", "-n", "env"]
        # sudo asks on the terminal itself, not on our standard input.
        if sys.stdin.isatty() and \
                subprocess.run(["sudo", "-v"], check=False).returncode == 0:
            return ["sudo", "-n", "env"]
    return []


def step_deps(step: Step) -> str:
    """Install what is missing."""
    todo = missing()
    if not todo:
        return "reused, all packages are installed"
    step.open_log()
    step.progress(f"{len(todo)} missing: {' '.join(todo)}", force=True)
    root = as_root()
    if not root:
        raise SetupError(
            "host packages are missing and this user may not install them; "
            "run as root:\n  apt-get install --no-install-recommends "
            + " ".join(todo) + "\nafter that nothing here needs root")
    own_group = root[0] != "sudo"
    # The packages ask nothing, and a busy dpkg is waited for.
    apt = [*root, "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q", "-y",
           "-o", "DPkg::Lock::Timeout=300", "-o", "Acquire::Retries=4"]
    lists = Path("/var/lib/apt/lists")
    if not any(lists.glob("*_Packages*")):
        step.progress("reading the machine's package index", force=True)
        step.run([*apt, "update"], what="apt-get update",
                 own_group=own_group)

    def on_line(line: str) -> None:
        if line.startswith(("Get:", "Unpacking ", "Setting up ")):
            step.progress(" ".join(line.split()[:3]).split(" http")[0])

    install = [*apt, "--no-install-recommends", "install", *todo]
    try:
        step.run(install, on_line=on_line, what="apt-get install",
                 own_group=own_group)
    except StepFailed:
        # An index older than the mirror names files that are gone.
        step.progress("failed; reading the package index again", force=True)
        step.run([*apt, "update"], what="apt-get update",
                 own_group=own_group)
        step.run(install, on_line=on_line, what="apt-get install",
                 own_group=own_group)
    left = missing()
    if left:
        raise SetupError("apt-get installed, but these are still missing: "
                         + " ".join(left))
    return f"installed {len(todo)} packages"
