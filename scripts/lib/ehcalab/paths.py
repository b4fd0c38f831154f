# SPDX-License-Identifier: GPL-2.0-or-later
"""Where things are: the source tree and everything that is built from it.

All products live under one directory (build/ in the source tree, or what
EHCALAB_BUILD says), so that removing it removes every trace of a set-up
except the Debian packages installed on the host.
"""
import os
import shlex
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def absolute(path: Path) -> Path:
    """The path from the root, if the working directory is still there."""
    try:
        return path.absolute()
    except OSError:
        return path


BUILD = absolute(Path(os.environ.get("EHCALAB_BUILD") or ROOT / "build"))

LOGS = BUILD / "logs"
STAMPS = BUILD / "stamps"
DOWNLOADS = BUILD / "downloads"
APT = BUILD / "apt"
TOOLS = BUILD / "tools"

QEMU_SRC = BUILD / "qemu" / "src"
QEMU_BUILD = BUILD / "qemu" / "build"
QEMU_BIN = QEMU_BUILD / "qemu-system-ppc64"
# QEMU's data (vof.bin); given to QEMU with -L.
QEMU_DATA = BUILD / "qemu" / "data"

KERNELS = BUILD / "kernels"
KERNELS_JSON = KERNELS / "kernels.json"
MODULES = BUILD / "modules"
GUEST = BUILD / "guest"
GUEST_ROOT = GUEST / "root"
HOST = BUILD / "host"
FABRIC_BIN = HOST / "fabric" / "ehca-fabric"
SM_BIN = HOST / "sm" / "ehca-sm"
SIM_BIN = HOST / "tests" / "sim" / "sim"

GUEST_SOURCES = ROOT / "scripts" / "guest"
GUEST_DRIVER = ROOT / "guest-driver"
SSH_KEY = GUEST / "id_ed25519"


def script(name: str, *words: object) -> str:
    """A command line of ours to be copied: it works from where the user is."""
    path = str(ROOT / "scripts" / name)
    try:
        near = os.path.relpath(path)
    except OSError:     # the working directory is gone
        near = path
    if os.sep not in near:
        near = os.path.join(os.curdir, near)
    line = shlex.join([min(near, path, key=len), *map(str, words)])
    build = os.environ.get("EHCALAB_BUILD")
    return f"EHCALAB_BUILD={shlex.quote(build)} {line}" if build else line
