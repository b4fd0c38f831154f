# SPDX-License-Identifier: GPL-2.0-or-later
"""Debian's ppc64el kernels, and header trees modules can be built against.

Theory of operation
  Two kernels: 6.12 (the default) and 6.1.  Which versions those are today
  follows from the meta-packages linux-image-powerpc64le and
  linux-headers-powerpc64le.  6.12 is in trixie and in bookworm-backports;
  the headers' build tools (linux-kbuild) are programs of the host's
  architecture, so the newest version whose tools can run with the host's C
  library is taken.

  Everything of one kernel is unpacked to build/kernels/VERSION/, which keeps
  Debian's layout (boot/, lib/modules/, usr/src/, usr/lib/linux-kbuild-*).
  Absolute links and paths in the header trees are rewritten, and what was
  found is put into build/kernels/kernels.json and README.txt.
"""
from __future__ import annotations

import json
import os
import re
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

from . import paths
from .setup_apt import (GUEST_ARCH, PrivateApt, host_arch, load_resolved,
                        unpack, version_ge)
from .stamps import Stamp, key_of
from .ui import SetupError, Step, capture

FLAVOUR = "powerpc64le"
# The series, newest first: the first one is the default.
SERIES = ("6.12", "6.1")
DEFAULT_SERIES = SERIES[0]
CROSS_COMPILE = "powerpc64le-linux-gnu-"
README = paths.KERNELS / "README.txt"


@dataclass(frozen=True)
class Kernel:
    """One unpacked kernel."""
    series: str
    release: str
    version: str
    root: str

    @property
    def image(self) -> Path:
        """The kernel, as QEMU's -kernel wants it."""
        return Path(self.root) / "boot" / f"vmlinux-{self.release}"

    @property
    def modules(self) -> Path:
        """The kernel's own modules."""
        for top in ("lib", "usr/lib"):
            path = Path(self.root) / top / "modules" / self.release
            if (path / "kernel").is_dir():
                return path
        raise SetupError(f"{self.root} has no modules; remove it and run: "
                         + paths.script("setup", "kernels"))

    @property
    def headers(self) -> Path:
        """What `make -C` is given to build modules."""
        return (Path(self.root) / "usr" / "src"
                / f"linux-headers-{self.release}")

    @property
    def built_modules(self) -> Path:
        """Where our modules for this kernel are built."""
        return paths.MODULES / self.release

    @property
    def image_file(self) -> Path:
        """The guest image (initramfs) for this kernel."""
        return paths.GUEST / f"image-{self.series}.cpio"


def kernels() -> list[Kernel]:
    """The unpacked kernels, the default first."""
    try:
        data = json.loads(paths.KERNELS_JSON.read_text())
        # Where they are now: the build directory may have been moved.
        return [Kernel(**{**item, "root": str(paths.KERNELS /
                                              item["version"])})
                for item in data]
    except (OSError, ValueError, TypeError, KeyError):
        return []


def kernel(series: str = DEFAULT_SERIES) -> Kernel:
    """One unpacked kernel by series (6.12, 6.1)."""
    for item in kernels():
        if item.series == series:
            return item
    have = ", ".join(k.series for k in kernels()) or "none"
    raise SetupError(f"kernel {series} is not set up (there: {have}); run: "
                     + paths.script("setup", "image"))


# -- versions -------------------------------------------------------------

def host_libc() -> str:
    """The version of the host's C library."""
    return capture(["dpkg-query", "-W", "-f", "${Version}", "libc6"])


def libc_needed(record: dict[str, str]) -> str:
    """The C library version a binary package asks for."""
    match = re.search(r"\blibc6 \(>= ([^)]+)\)", record.get("Depends", ""))
    return match.group(1) if match else "0"


def candidates(apt: PrivateApt, series: str) -> list[dict]:
    """The packages that make up one kernel series, newest first."""
    result: list[dict] = []
    arch = host_arch()
    libc = host_libc()
    why: list[str] = []
    headers_meta = apt.records(f"linux-headers-{FLAVOUR}", GUEST_ARCH)
    for meta in apt.records(f"linux-image-{FLAVOUR}", GUEST_ARCH):
        version = meta["Version"]
        if not version.startswith(series + "."):
            continue
        match = re.search(rf"\blinux-image-(\S+-{FLAVOUR})\b",
                          meta.get("Depends", ""))
        if not match:
            why.append(f"{version}: meta-package names no image")
            continue
        release = match.group(1)
        headers = [r for r in headers_meta if r["Version"] == version]
        if not headers:
            why.append(f"{version}: no linux-headers-{FLAVOUR}")
            continue
        arch_headers = [r for r in
                        apt.records(f"linux-headers-{release}", GUEST_ARCH)
                        if r["Version"] == version]
        if not arch_headers:
            why.append(f"{version}: no linux-headers-{release}")
            continue
        depends = arch_headers[0].get("Depends", "")
        common = re.search(r"\blinux-headers-(\S+-common)\b", depends)
        kbuild = re.search(r"\blinux-kbuild-([^\s,(:]+)", depends)
        if not common or not kbuild:
            why.append(f"{version}: linux-headers-{release} names no common "
                       "headers or kbuild")
            continue
        tools = [r for r in apt.records(f"linux-kbuild-{kbuild.group(1)}",
                                        arch) if r["Version"] == version]
        if not tools:
            why.append(f"{version}: no linux-kbuild-{kbuild.group(1)} "
                       f"for {arch}")
            continue
        if not version_ge(libc, libc_needed(tools[0])):
            why.append(f"{version}: its build tools need libc6 "
                       f"{libc_needed(tools[0])}, this machine has {libc}")
            continue
        result.append({
            "series": series, "release": release, "version": version,
            "packages": [
                [f"linux-image-{release}", GUEST_ARCH, version],
                [f"linux-headers-{release}", GUEST_ARCH, version],
                [f"linux-headers-{common.group(1)}", "all", version],
                [f"linux-kbuild-{kbuild.group(1)}", arch, version],
            ],
        })
    if result:
        return result
    raise SetupError(
        f"no usable {series} kernel for {GUEST_ARCH} on the Debian mirror: "
        + ("; ".join(why) or "the mirror has none")
        + "; the index is read again by: "
        + paths.script("setup", "--refresh"))


def fetch(apt: PrivateApt, item: dict) -> list[Path]:
    """Download one kernel's packages."""
    return apt.download([(p[0], p[1], p[2]) for p in item["packages"]])


def settle(apt: PrivateApt, series: str) -> dict:
    """Work out and download one kernel."""
    return apt.settle(f"kernel-{series}", lambda: candidates(apt, series),
                      lambda item: fetch(apt, item))


def known_kernels() -> list[dict]:
    """The packages worked out earlier, if they are of all series."""
    known = load_resolved()
    found = [known.get(f"kernel-{series}") for series in SERIES]
    return [item for item in found if item] if all(found) else []


# -- unpacking ------------------------------------------------------------

def fix_links(root: Path) -> None:
    """Turn absolute links and paths into ones that hold under root."""
    for path in [*(root / "usr").rglob("*"), *(root / "lib").rglob("*")]:
        if not path.is_symlink():
            continue
        target = os.readlink(path)
        if target.startswith("/"):
            inside = root / target.lstrip("/")
            path.unlink()
            path.symlink_to(os.path.relpath(inside, path.parent))
    # With a vmlinux beside the headers kbuild would make BTF for modules,
    # which needs pahole and gives the lab nothing.
    for vmlinux in (root / "usr" / "src").glob("linux-headers-*/vmlinux"):
        vmlinux.unlink()
    # Debian's header Makefile, and from 6.x its .kernelvariables, name
    # /usr/src and /usr/lib.
    for makefile in (root / "usr" / "src").glob("linux-headers-*/*"):
        if makefile.name not in ("Makefile", ".kernelvariables") or \
                makefile.is_symlink():
            continue
        text = makefile.read_text()
        fixed = re.sub(r"(?<![\w./-])/usr/(src|lib)/linux-",
                       lambda m: f"{root}/usr/{m.group(1)}/linux-", text)
        if fixed != text:
            makefile.write_text(fixed)


def step_kernels(step: Step) -> str:
    """Download and unpack both kernels."""
    # The header trees' Makefiles name the directory they are in.
    stamp = Stamp("kernels", paths.KERNELS)
    known = known_kernels()
    if known and stamp.fresh(key_of("kernels", 2, known)):
        return "reused, " + ", ".join(k["release"] for k in known)
    step.open_log()
    stamp.begin()
    apt = PrivateApt(step)
    found = [settle(apt, series) for series in SERIES]
    result = []
    for item in found:
        root = paths.KERNELS / item["version"]
        debs = fetch(apt, item)
        shutil.rmtree(root, ignore_errors=True)
        for deb in debs:
            step.progress(f"unpacking {deb.name.split('_')[0]}", force=True)
            unpack(step, deb, root)
        for useless in ("usr/share", "usr/lib/debug"):
            shutil.rmtree(root / useless, ignore_errors=True)
        fix_links(root)
        one = Kernel(item["series"], item["release"], item["version"],
                     str(root))
        for path in (one.image, one.headers / "Module.symvers"):
            if not path.exists():
                raise SetupError(f"{path} is missing after unpacking; the "
                                 "package's layout has changed")
        result.append(one)
    for old in paths.KERNELS.iterdir():
        if old.is_dir() and str(old) not in [k.root for k in result]:
            shutil.rmtree(old)
    paths.KERNELS_JSON.write_text(
        json.dumps([asdict(k) for k in result], indent=1) + "\n")
    write_readme(result)
    stamp.write(key_of("kernels", 2, found),
                [p for k in result for p in (k.image, k.headers)])
    return ", ".join(k.release for k in result)


def write_readme(found: list[Kernel]) -> None:
    """Tell people where things are."""
    lines = ["Kernels of the lab's guests (written by scripts/setup kernels)",
             "", "The same, for programs: kernels.json", ""]
    for one in found:
        default = " (default)" if one.series == DEFAULT_SERIES else ""
        lines += [
            f"{one.series}{default}: {one.release}, Debian {one.version}",
            f"  image    {one.image}",
            f"  headers  {one.headers}",
            f"  modules  {one.modules}",
            "  build    make -C " + str(one.headers) + " M=DIR ARCH=powerpc "
            f"CROSS_COMPILE={CROSS_COMPILE} "
            f"CC={CROSS_COMPILE}gcc modules",
            ""]
    lines += ["scripts/setup modules copies guest-driver/ to "
              "build/modules/RELEASE/ and builds it there, for both kernels.",
              ""]
    README.write_text("\n".join(lines))
