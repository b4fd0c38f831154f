# SPDX-License-Identifier: GPL-2.0-or-later
"""The host's programs: fabric and subnet manager daemons, and the tests."""
from __future__ import annotations

import shutil

from . import paths
from .setup_qemu import jobs
from .stamps import Stamp, hash_files, key_of
from .ui import Step

# Debian's, not one that happens to come first on PATH.
MESON = "/usr/bin/meson"
OPTIONS = ("-Dbuildtype=debugoptimized",)
ROOMS = ("meson.build", "meson_options.txt", "ib", "hw/ehca/engine",
         "fabric", "sm", "tests")
SOURCES = (".c", ".h", ".build", ".txt", ".inc")


def host_key() -> str:
    """What the built programs depend on."""
    files = []
    for room in ROOMS:
        path = paths.ROOT / room
        if path.is_dir():
            files += sorted(p for p in path.rglob("*")
                            if p.suffix in SOURCES and p.is_file())
        else:
            files.append(path)
    # An engine test may read the header shared with the guest driver.
    files.append(paths.GUEST_DRIVER / "include" / "ehca_abi.h")
    return key_of("host", 1, OPTIONS, hash_files(files))


def step_host(step: Step) -> str:
    """Configure build/host if need be, and build all of it."""
    key = host_key()
    # meson's build directory names itself and the source.
    stamp = Stamp("host", paths.HOST, paths.ROOT)
    if stamp.fresh(key):
        return "reused"
    step.open_log()
    if stamp.moved():
        shutil.rmtree(paths.HOST, ignore_errors=True)
    stamp.begin()
    ninja_file = paths.HOST / "build.ninja"
    env = {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin"}
    if not ninja_file.exists():
        step.progress("configuring", force=True)
        shutil.rmtree(paths.HOST, ignore_errors=True)
        step.run([MESON, "setup", *OPTIONS, paths.HOST, paths.ROOT],
                 env=env, what="meson setup")
    steps = step.run_ninja(["ninja", "-C", paths.HOST, "-j", jobs()],
                           env=env, what="building the daemons")
    stamp.write(key, [ninja_file, paths.FABRIC_BIN, paths.SM_BIN])
    return f"{steps} steps" if steps else "nothing to do"
