# SPDX-License-Identifier: GPL-2.0-or-later
"""Our kernel modules, built for every kernel of the lab.

guest-driver/ is mirrored to build/modules/RELEASE/ and built there, so the
source tree stays clean and both kernels can be built side by side.  If
guest-driver/ has no Kbuild of its own, one that enters every folder with a
Kbuild or Makefile is written into the copy.
"""
from __future__ import annotations

from pathlib import Path

from . import paths
from .setup_kernels import CROSS_COMPILE, Kernel, kernels
from .setup_qemu import jobs, mirror_tree
from .stamps import Stamp, hash_files, key_of
from .ui import SetupError, Step

ARCH = "powerpc"


def sources() -> list[Path]:
    """What the modules are built from."""
    return [paths.GUEST_DRIVER]


def folders() -> list[str]:
    """The folders of guest-driver/ that hold modules."""
    if not paths.GUEST_DRIVER.is_dir():
        return []
    return sorted(d.name for d in paths.GUEST_DRIVER.iterdir()
                  if (d / "Kbuild").exists() or (d / "Makefile").exists())


def modules_key(kernel: Kernel) -> str:
    """What one kernel's built modules depend on."""
    return key_of("modules", 2, kernel.release, kernel.version,
                  hash_files(sources()))


def built(kernel: Kernel) -> list[Path]:
    """The modules built for a kernel, sorted by path."""
    return sorted(kernel.built_modules.rglob("*.ko"))


def names(kernel: Kernel) -> str:
    """The built modules' names, for people."""
    return ", ".join(p.stem for p in built(kernel)) or "no modules"


def make_argv(kernel: Kernel, *targets: str) -> list[str]:
    """The make command that builds modules for a kernel."""
    return ["make", "-C", str(kernel.headers), f"M={kernel.built_modules}",
            f"ARCH={ARCH}", f"CROSS_COMPILE={CROSS_COMPILE}",
            # The headers name the compiler Debian built with, gcc-12 say;
            # the cross compiler here may be another release.
            f"CC={CROSS_COMPILE}gcc", *targets]


def step_modules(step: Step) -> str:
    """Build guest-driver/ for all kernels."""
    todo = kernels()
    if not todo:
        raise SetupError("no kernels are set up; run: "
                         + paths.script("setup", "kernels"))
    if not (paths.GUEST_DRIVER / "Kbuild").exists() and not folders():
        return "nothing to build (guest-driver/ has no Kbuild)"
    if all(Stamp(f"modules-{k.series}").fresh(modules_key(k)) for k in todo):
        return f"reused, {names(todo[0])}"
    step.open_log()
    for kernel in todo:
        stamp = Stamp(f"modules-{kernel.series}")
        key = modules_key(kernel)
        if stamp.fresh(key):
            continue
        step.progress(f"for {kernel.release}", force=True)
        stamp.begin()
        build(step, kernel)
        stamp.write(key, built(kernel))
    return names(todo[0])


def build(step: Step, kernel: Kernel) -> None:
    """Build guest-driver/ for one kernel."""
    into = kernel.built_modules
    into.mkdir(parents=True, exist_ok=True)
    # kbuild's products lie among the sources in the copy: a stale one of a
    # module that is gone would get into the guest image, so start clean
    # whenever the set of source files shrank.
    wanted = {p.relative_to(paths.GUEST_DRIVER)
              for p in paths.GUEST_DRIVER.rglob("*") if p.is_file()}
    listing = into / ".sources"
    before = set(map(Path, listing.read_text().splitlines())) \
        if listing.exists() else set()
    if before - wanted:
        mirror_tree(paths.GUEST_DRIVER, into)
    for rel in sorted(wanted):
        out = into / rel
        data = (paths.GUEST_DRIVER / rel).read_bytes()
        if not out.exists() or out.read_bytes() != data:
            out.parent.mkdir(parents=True, exist_ok=True)
            out.write_bytes(data)
    listing.write_text("\n".join(map(str, sorted(wanted))) + "\n")
    if not (paths.GUEST_DRIVER / "Kbuild").exists():
        (into / "Kbuild").write_text(
            "".join(f"obj-m += {name}/\n" for name in folders()))

    def on_line(line: str) -> None:
        words = line.split()
        if len(words) >= 2 and words[0] in ("CC", "LD", "MODPOST"):
            step.progress(f"for {kernel.release}: "
                          f"{words[0]} {Path(words[-1]).name}")

    step.run(make_argv(kernel, "-j", jobs(), "modules"), on_line=on_line,
             what=f"building the modules for {kernel.release}")
