# SPDX-License-Identifier: GPL-2.0-or-later
"""QEMU: Debian's source, our device laid over it, and the build.

Theory of operation
  Two steps, each with its stamp.

  qemu-source  The newest QEMU 10.0 Debian source package the mirror has is
               unpacked to build/qemu/src.  With it come a private meson (if
               the machine's is too old for QEMU) and QEMU's firmware, both
               unpacked from their packages and not installed.
  qemu         The overlay is brought up to date, then ninja builds the one
               target qemu-system-ppc64.

  Overlay: hw/ehca/ is mirrored to src/hw/ehca/, ib/ to src/hw/ehca/ib/, and
  the one header shared with the guest driver to
  src/hw/ehca/guest-driver/include/.  So with src/hw/ehca among the include
  directories, "ib/ring.h" and "guest-driver/include/ehca_abi.h" mean the
  same in QEMU's build as in the project's own.  Equal files are left alone,
  so that ninja rebuilds what changed and no more; files that are gone here
  are removed there.
  hw/ehca/patches/*.patch are applied with `patch -p1` in the order of their
  names.  The applied set is kept in build/qemu/applied; when it differs from
  what the tree has, the old set is reversed first, and if that fails (half a
  patch may be in, of a run that was cut off) the source is unpacked afresh.
"""
from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from . import paths
from .setup_apt import PrivateApt, load_resolved, unpack
from .stamps import Stamp, hash_files, key_of
from .ui import SetupError, Step, StepFailed, capture

QEMU_SERIES = "1:10.0."
MESON_MIN = (1, 5)
JOBS_MAX = 1024
PYTHON = "/usr/bin/python3"
# vof.bin is the firmware of the pseries machine with x-vof=on; slof.bin of
# the one without.
FIRMWARE = ("vof.bin", "vof-nvram.bin", "slof.bin")
HW = paths.ROOT / "hw" / "ehca"
HW_DST = paths.QEMU_SRC / "hw" / "ehca"
SHARED_HEADER = paths.GUEST_DRIVER / "include" / "ehca_abi.h"
DEVICES = paths.ROOT / "scripts" / "qemu-devices.mak"
DEVICES_DST = (paths.QEMU_SRC / "configs" / "devices" / "ppc64-softmmu"
               / "ehcalab.mak")
PATCHES = HW / "patches"
APPLIED = paths.BUILD / "qemu" / "applied"

CONFIGURE = (
    f"--python={PYTHON}",
    "--target-list=ppc64-softmmu",
    "--without-default-features",
    "--without-default-devices",
    "--with-devices-ppc64=ehcalab",
    "--enable-tcg",
    "--enable-kvm",
    "--enable-slirp",
    "--enable-fdt=system",
    "--enable-trace-backends=log",
    "--disable-install-blobs",
    "--disable-docs",
    "--disable-tools",
    "--disable-guest-agent",
    "--disable-download",
)


def jobs() -> str:
    """How many compilers to run at once."""
    asked = os.environ.get("EHCALAB_JOBS") or \
        str(min(os.cpu_count() or 2, JOBS_MAX))
    if not asked.isascii() or not asked.isdigit() or \
            not 1 <= int(asked) <= JOBS_MAX:
        raise SetupError(f"{asked} compilers at once (--jobs, or "
                         f"EHCALAB_JOBS): must be 1 to {JOBS_MAX}")
    return asked


# -- versions -------------------------------------------------------------

def candidates(apt: PrivateApt) -> list[dict]:
    """Versions of QEMU, of its firmware and of meson, best first."""
    versions = [v for v in apt.source_versions("qemu")
                if v.startswith(QEMU_SERIES)]
    firmware = [r["Version"] for r in apt.records("qemu-system-data", "all")
                if r["Version"].startswith(QEMU_SERIES)]
    if not versions or not firmware:
        raise SetupError(
            "the Debian mirror has no "
            + ("qemu-system-data" if versions else "QEMU source")
            + " of version 10.0; looked in trixie and bookworm-backports; "
            "build/logs/qemu-source.log says what apt could read")
    mesons = [r["Version"] for r in apt.records("meson", "all")] or [""]
    # A hole in the mirror may be in any of them: all pairs of QEMU and
    # firmware (any 10.0 firmware serves), each with the newest meson.
    return [{"version": v, "firmware": f, "meson": m}
            for v in versions for f in firmware for m in mesons]


def fetch(apt: PrivateApt, found: dict) -> None:
    """Download what one candidate needs."""
    apt.download_source("qemu", found["version"])
    apt.download([("qemu-system-data", "all", found["firmware"])])
    private_meson(apt, found["meson"])


# -- meson ----------------------------------------------------------------

def system_meson_fits() -> bool:
    """Whether Debian's installed meson is new enough for QEMU."""
    try:
        text = capture(["/usr/bin/meson", "--version"])
    except SetupError:
        return False
    numbers = re.findall(r"\d+", text)
    return tuple(int(n) for n in numbers[:2]) >= MESON_MIN


def private_meson(apt: PrivateApt, version: str) -> Path | None:
    """Unpack a meson for QEMU alone; its package directory, if needed."""
    if system_meson_fits():
        return None
    if not version:
        raise SetupError("QEMU needs meson >= 1.5 and the Debian mirror has "
                         "none; looked in trixie and bookworm-backports")
    root = paths.TOOLS / f"meson-{version}"
    packages = root / "usr" / "lib" / "python3" / "dist-packages"
    if not packages.is_dir():
        [deb] = apt.download([("meson", "all", version)])
        unpack(apt.step, deb, root)
    return packages


# -- source ---------------------------------------------------------------

def source_key(found: dict) -> str:
    """What the unpacked source depends on."""
    return key_of("qemu-source", 1, found)


def step_source(step: Step) -> str:
    """Unpack QEMU, its firmware and, if needed, meson."""
    apt = PrivateApt(step)
    stamp = Stamp("qemu-source")
    known = load_resolved().get("qemu")
    if known and stamp.fresh(source_key(known)):
        return f"reused, QEMU {known['version']}"
    step.open_log()
    stamp.begin()
    found = apt.settle("qemu", lambda: candidates(apt),
                       lambda one: fetch(apt, one))
    fetch_source(step, apt, found)
    [deb] = apt.download([("qemu-system-data", "all", found["firmware"])])
    shutil.rmtree(paths.QEMU_DATA, ignore_errors=True)
    scratch = paths.BUILD / "qemu" / "data.unpacked"
    shutil.rmtree(scratch, ignore_errors=True)
    unpack(step, deb, scratch)
    paths.QEMU_DATA.mkdir(parents=True)
    share = scratch / "usr" / "share"
    for name in FIRMWARE:
        for candidate in (share / "qemu" / name, share / "seabios" / name):
            if candidate.exists():
                shutil.copy2(candidate, paths.QEMU_DATA / name)
                break
    shutil.rmtree(scratch)
    if not (paths.QEMU_DATA / "vof.bin").exists():
        raise SetupError(f"{deb.name} has no vof.bin; the pseries machine "
                         "cannot start without it")
    private_meson(apt, found["meson"])
    stamp.write(source_key(found),
                [paths.QEMU_SRC / "configure", paths.QEMU_DATA / "vof.bin"])
    return f"QEMU {found['version']}"


def fetch_source(step: Step, apt: PrivateApt, found: dict) -> None:
    """Unpack the source package afresh."""
    dsc = apt.download_source("qemu", found["version"])
    step.progress("unpacking", force=True)
    fresh, old = (paths.QEMU_SRC.with_suffix(end) for end in (".new", ".old"))
    for left in (fresh, old):
        shutil.rmtree(left, ignore_errors=True)
    paths.QEMU_SRC.parent.mkdir(parents=True, exist_ok=True)
    # apt has checked the files against the signed index; dpkg-source's own
    # signature check would need the uploaders' keyring.
    step.run(["dpkg-source", "--no-check", "--no-copy", "-x", dsc, fresh],
             what="dpkg-source -x")
    shutil.rmtree(fresh / ".pc", ignore_errors=True)
    shutil.rmtree(APPLIED, ignore_errors=True)
    if paths.QEMU_SRC.exists():
        paths.QEMU_SRC.rename(old)
    fresh.rename(paths.QEMU_SRC)
    shutil.rmtree(old, ignore_errors=True)


# -- overlay --------------------------------------------------------------

def mirror_tree(src: Path, dst: Path, keep: tuple[str, ...] = (),
                skip: tuple[str, ...] = (),
                only: tuple[str, ...] = ()) -> int:
    """Make dst like src; how many files changed.

    Top-level names in keep are left alone in dst, those in skip are not
    copied, and if only is given nothing but its names is.
    """
    changed = 0
    wanted: set[Path] = set()
    if src.is_dir():
        for path in sorted(src.rglob("*")):
            rel = path.relative_to(src)
            if rel.parts[0] in skip or "__pycache__" in rel.parts:
                continue
            if not path.is_file() or (only and rel.parts[0] not in only):
                continue
            wanted.add(rel)
            out = dst / rel
            if out.is_file() and not out.is_symlink() and \
                    out.read_bytes() == path.read_bytes():
                continue
            out.parent.mkdir(parents=True, exist_ok=True)
            if out.is_symlink():
                out.unlink()
            # Written now, so newer than every object made of the old text.
            # The file's own time may be older than the last build (another
            # branch checked out), and ninja compares times.
            shutil.copyfile(path, out)
            changed += 1
    if dst.is_dir():
        for path in sorted(dst.rglob("*"), reverse=True):
            rel = path.relative_to(dst)
            if rel.parts[0] in keep:
                continue
            if path.is_dir() and not path.is_symlink():
                if not any(path.iterdir()):
                    path.rmdir()
            elif rel not in wanted:
                path.unlink()
                changed += 1
    return changed


def sync_overlay() -> int:
    """Lay our files over QEMU's tree; how many changed."""
    changed = mirror_tree(HW, HW_DST, keep=("ib", "guest-driver"),
                          skip=("patches", "ib", "guest-driver"))
    changed += mirror_tree(paths.ROOT / "ib", HW_DST / "ib")
    changed += mirror_tree(SHARED_HEADER.parent,
                           HW_DST / "guest-driver" / "include",
                           only=(SHARED_HEADER.name,))
    text = DEVICES.read_bytes()
    if not DEVICES_DST.exists() or DEVICES_DST.read_bytes() != text:
        DEVICES_DST.write_bytes(text)
        changed += 1
    return changed


def run_patch(step: Step, patch: Path, reverse: bool) -> None:
    """Apply or take back one patch."""
    argv = ["patch", "-p1", "--batch", "--no-backup-if-mismatch",
            "--reject-file=-", "-i", str(patch)]
    argv.append("--reverse" if reverse else "--forward")
    step.run(argv, cwd=paths.QEMU_SRC,
             what=f"{'taking back' if reverse else 'applying'} {patch.name}")


def sync_patches(step: Step) -> None:
    """Bring the tree's patches to what hw/ehca/patches has."""
    want = sorted(PATCHES.glob("*.patch")) if PATCHES.is_dir() else []
    have = sorted(APPLIED.glob("*.patch")) if APPLIED.is_dir() else []
    if [(p.name, p.read_bytes()) for p in want] == \
            [(p.name, p.read_bytes()) for p in have]:
        return
    try:
        for patch in reversed(have):
            run_patch(step, patch, reverse=True)
            patch.unlink()
        apply_patches(step, want)
    except StepFailed:
        fetch_source(step, PrivateApt(step), load_resolved()["qemu"])
        apply_patches(step, want)


def apply_patches(step: Step, patches: list[Path]) -> None:
    """Apply patches to a tree that has none of them."""
    APPLIED.mkdir(parents=True, exist_ok=True)
    for patch in patches:
        try:
            run_patch(step, patch, reverse=False)
        except StepFailed as exc:
            raise StepFailed(
                f"{os.path.relpath(patch, paths.ROOT)} does not apply to "
                f"QEMU {load_resolved()['qemu']['version']}; patch",
                step.log, 1) from exc
        shutil.copyfile(patch, APPLIED / patch.name)


# -- build ----------------------------------------------------------------

def build_key(found: dict) -> str:
    """What the built QEMU depends on."""
    files = hash_files([HW, paths.ROOT / "ib", SHARED_HEADER, DEVICES])
    return key_of("qemu", 1, found, CONFIGURE, files)


def step_build(step: Step) -> str:
    """Lay the overlay, configure once, and build qemu-system-ppc64."""
    found = load_resolved().get("qemu")
    if not found:
        raise SetupError("QEMU's source is not there; run: "
                         + paths.script("setup", "qemu"))
    key = build_key(found)
    stamp = Stamp("qemu")
    if stamp.fresh(key):
        return "reused"
    step.open_log()
    stamp.begin()
    step.progress("laying our files over QEMU's", force=True)
    sync_patches(step)
    sync_overlay()
    configure(step, found)
    steps = step.run_ninja(
        ["ninja", "-C", paths.QEMU_BUILD, "-j", jobs(),
         "qemu-system-ppc64"], what="building QEMU")
    check_binary(step)
    stamp.write(key, [paths.QEMU_BIN])
    return f"{steps} steps" if steps else "nothing to do"


def configure(step: Step, found: dict) -> None:
    """Run QEMU's configure, unless the build directory has this one."""
    # Build directory and private meson are named in what configure writes.
    stamp = Stamp("qemu-configure", paths.BUILD)
    key = key_of(found, CONFIGURE, 1)
    ninja_file = paths.QEMU_BUILD / "build.ninja"
    if stamp.fresh(key) and ninja_file.exists():
        return
    step.progress("configuring", force=True)
    # Another QEMU, or a configure that did not finish: begin from nothing.
    # Other options: what they do not touch need not be built again.
    if not ninja_file.exists() or stamp.moved() or \
            stamp.read().get("qemu") != found:
        shutil.rmtree(paths.QEMU_BUILD, ignore_errors=True)
    stamp.begin()
    paths.QEMU_BUILD.mkdir(parents=True, exist_ok=True)
    env = {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin"}
    meson = private_meson(PrivateApt(step), found["meson"])
    if meson is not None:
        env["PYTHONPATH"] = str(meson)
    step.run([paths.QEMU_SRC / "configure", *CONFIGURE],
             cwd=paths.QEMU_BUILD, env=env, what="configuring QEMU")
    if meson is not None:
        # ninja runs meson again when a meson.build changes; it must find
        # the private one without PYTHONPATH, also when run by hand.
        site = next((paths.QEMU_BUILD / "pyvenv" / "lib").glob(
            "python3*/site-packages"))
        (site / "ehcalab-meson.pth").write_text(f"{meson}\n")
    stamp.write(key, [ninja_file], qemu=found)


def check_binary(step: Step) -> None:
    """The product must at least say its version."""
    text = capture([paths.QEMU_BIN, "--version"])
    with step.log.open("a") as log:
        log.write(text)
