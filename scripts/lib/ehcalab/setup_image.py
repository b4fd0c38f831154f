# SPDX-License-Identifier: GPL-2.0-or-later
"""The guest image: one initramfs per kernel, put together without root.

Theory of operation
  Two steps.

  guest-packages  scripts/guest/packages.list names the Debian packages the
                  guests' programs come from.  apt works out what they depend
                  on (for architecture ppc64el, in the private apt), and all
                  of it is unpacked into build/guest/root.  Nothing in there
                  is ever run on the host.
  image           scripts/guest/files.list picks files out of that root, and
                  the libraries they ask for follow from their ELF headers.
                  scripts/guest/modules.list picks kernel modules, and those
                  they depend on follow from their .modinfo.  Our own modules
                  go to extra/, scripts/guest/root/ is laid over everything,
                  and the keys for ssh are put in.

  The image is an uncompressed cpio archive: under TCG unpacking costs more
  than reading.  Same inputs, same bytes (cpio.py).

  Keys: build/guest/id_ed25519 opens every guest's ssh; the guests' host key
  is made here too, so that build/guest/known_hosts can name it.  Both exist
  for guests that listen on the host's loopback only.
"""
from __future__ import annotations

import base64
import fnmatch
import lzma
import os
import re
import shutil
import stat
import struct
import tempfile
import urllib.parse
from pathlib import Path

from . import cpio, elf, paths
from .setup_apt import GUEST_ARCH, PrivateApt, load_resolved
from .setup_kernels import CROSS_COMPILE, Kernel, kernels
from .setup_modules import built, modules_key
from .stamps import Stamp, hash_files, key_of
from .ui import SetupError, Step, capture

PACKAGES_LIST = paths.GUEST_SOURCES / "packages.list"
FILES_LIST = paths.GUEST_SOURCES / "files.list"
MODULES_LIST = paths.GUEST_SOURCES / "modules.list"
OVERLAY_ROOT = paths.GUEST_SOURCES / "root"
HOST_KEY = paths.GUEST / "host_ed25519"
KNOWN_HOSTS = paths.GUEST / "known_hosts"
# The name the guests' host key goes by, whatever port the guest is at.
HOST_KEY_ALIAS = "ehcalab-guest"

# The suites the guests' programs may come from.
GUEST_SUITES = ("trixie", "bookworm")
# Where a program's libraries may lie in the package root.
LIBRARY_DIRS = ("usr/lib/powerpc64le-linux-gnu", "usr/lib", "usr/lib64")
# Debian's directories that are links since the /usr merge.
MERGED = ("bin", "sbin", "lib", "lib64")
DIRECTORIES = {"proc": 0o755, "sys": 0o755, "dev": 0o755, "run": 0o755,
               "tmp": 0o1777, "root": 0o700, "var/log": 0o755,
               "var/cache/opensm": 0o755, "mnt": 0o755}


def read_list(path: Path) -> list[str]:
    """A list file's entries, without comments and empty lines."""
    lines = [line.split("#", 1)[0].strip()
             for line in path.read_text().splitlines()]
    return [line for line in lines if line]


# -- packages -------------------------------------------------------------

def packages_key(found: dict) -> str:
    """What the unpacked package root depends on."""
    return key_of("guest-packages", 1, found)


def resolve_packages(apt: PrivateApt, suite: str) -> list[list[str]]:
    """All packages to unpack, as [name, architecture, version].

    All of one suite: libraries and programs of two would not fit together.
    """
    entries = read_list(PACKAGES_LIST)
    wanted = [e for e in entries if not e.startswith("-")]
    skipped = [e[1:] for e in entries if e.startswith("-")]
    text = capture(
        ["apt-get", "-c", apt.conf, "-o", f"APT::Architecture={GUEST_ARCH}",
         "-o", f"APT::Architectures::={GUEST_ARCH}",
         "-o", f"APT::Default-Release={suite}", "-y",
         "--no-install-recommends", "--print-uris", "install",
         *[f"{name}:{GUEST_ARCH}" for name in wanted]])
    found = []
    for match in re.finditer(r"^'[^']+' (\S+)\.deb \d+ ", text, re.M):
        name, version, arch = match.group(1).rsplit("_", 2)
        if not any(fnmatch.fnmatchcase(name, s) for s in skipped):
            found.append([name, arch, urllib.parse.unquote(version)])
    missing = set(wanted) - {f[0] for f in found}
    if missing:
        raise SetupError("apt did not resolve " + ", ".join(sorted(missing))
                         + f" for {GUEST_ARCH} in {suite}; the list is "
                         + os.path.relpath(PACKAGES_LIST, paths.ROOT))
    return found


def guest_suites() -> list[str]:
    """The suites in order of preference: the host's own comes first.

    So that programs linked by the host's cross compiler find the C library
    they were linked with.
    """
    own = ""
    try:
        match = re.search(r"^VERSION_CODENAME=\"?([a-z]+)",
                          Path("/etc/os-release").read_text(), re.M)
        own = match.group(1) if match else ""
    except OSError:
        pass
    return sorted(GUEST_SUITES, key=lambda suite: suite != own)


def packages_candidates(apt: PrivateApt) -> list[dict]:
    """The guests' packages out of each suite, best first."""
    return [{"suite": suite, "list": read_list(PACKAGES_LIST),
             "packages": resolve_packages(apt, suite)}
            for suite in guest_suites()]


def fetch_packages(apt: PrivateApt, found: dict) -> list[Path]:
    """Download the guests' packages."""
    return apt.download([(p[0], p[1], p[2]) for p in found["packages"]])


def known_packages() -> dict:
    """What was worked out earlier for this very list."""
    known = load_resolved().get("guest", {})
    return known if known.get("list") == read_list(PACKAGES_LIST) else {}


def step_packages(step: Step) -> str:
    """Fetch and unpack the guests' packages."""
    stamp = Stamp("guest-packages")
    found = known_packages()
    if found and stamp.fresh(packages_key(found)):
        return f"reused, {len(found['packages'])} packages"
    step.open_log()
    stamp.begin()
    apt = PrivateApt(step)
    step.progress("working out dependencies", force=True)
    found = apt.settle("guest", lambda: packages_candidates(apt),
                       lambda one: fetch_packages(apt, one),
                       lambda one: one["list"] == read_list(PACKAGES_LIST))
    debs = fetch_packages(apt, found)
    shutil.rmtree(paths.GUEST_ROOT, ignore_errors=True)
    # Some packages still ship files in /lib: with these links they land
    # where the loader looks.
    for name in MERGED:
        (paths.GUEST_ROOT / "usr" / name).mkdir(parents=True)
        (paths.GUEST_ROOT / name).symlink_to(f"usr/{name}")
    for count, deb in enumerate(debs, start=1):
        step.progress(f"unpacking {count} of {len(debs)}")
        # dpkg-deb replaces a link by the directory of an archive; tar on
        # its own keeps it when told to.
        step.run(["sh", "-c", 'dpkg-deb --fsys-tarfile "$1" | '
                  'tar -x -C "$2" --keep-directory-symlink', "sh", deb,
                  paths.GUEST_ROOT], what=f"unpacking {deb.name}")
    stamp.write(packages_key(found), [paths.GUEST_ROOT / "usr"])
    return f"{len(found['packages'])} packages of {found['suite']}"


# -- keys -----------------------------------------------------------------

def make_keys(step: Step) -> None:
    """Make the ssh keys, once per build directory."""
    paths.GUEST.mkdir(parents=True, exist_ok=True)
    for key in (paths.SSH_KEY, HOST_KEY):
        if key.exists() and key.with_suffix(".pub").exists():
            continue
        key.unlink(missing_ok=True)
        step.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C",
                  "ehcalab", "-f", key], what="ssh-keygen")
    public = HOST_KEY.with_suffix(".pub").read_text().split()
    KNOWN_HOSTS.write_text(f"{HOST_KEY_ALIAS} {public[0]} {public[1]}\n")


def _string(blob: bytes, at: int) -> tuple[bytes, int]:
    """One length-prefixed string of the ssh wire format (RFC 4251, 5)."""
    [size] = struct.unpack_from(">I", blob, at)
    end = at + 4 + size
    if end > len(blob):
        raise SetupError(f"{HOST_KEY} is damaged; remove it and run: "
                         + paths.script("setup", "image"))
    return blob[at + 4:end], end


def dropbear_key(openssh: str) -> bytes:
    """An OpenSSH private ed25519 key (not encrypted) in dropbear's format.

    OpenSSH's PROTOCOL.key: a header, the public key, and a block with two
    check words, the key type, public key, and private || public.  Dropbear
    wants the key type and private || public.
    """
    lines = openssh.strip().splitlines()
    blob = base64.b64decode("".join(lines[1:-1]))
    magic = b"openssh-key-v1\0"
    if not blob.startswith(magic):
        raise SetupError(f"{HOST_KEY} is no OpenSSH key; remove it and run: "
                         + paths.script("setup", "image"))
    at = len(magic)
    for _ in range(3):              # cipher, kdf, kdf options
        _, at = _string(blob, at)
    at += 4                         # number of keys: one
    _, at = _string(blob, at)       # public key
    block, _ = _string(blob, at)
    kind, at = _string(block, 8)
    _, at = _string(block, at)
    pair, at = _string(block, at)
    return b"".join(struct.pack(">I", len(part)) + part
                    for part in (kind, pair))


# -- image ----------------------------------------------------------------

class ImageBuilder:
    """Puts the image for one kernel together."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.archive = cpio.Archive()
        self.root = paths.GUEST_ROOT
        self.wanted_libraries: list[str] = []

    def build(self) -> bytes:
        """All of it, in an order where later things win."""
        for name, mode in DIRECTORIES.items():
            self.archive.directory(name, mode)
        for name in MERGED:
            self.archive.directory(f"usr/{name}")
            self.archive.symlink(name, f"usr/{name}")
        # Until devtmpfs is mounted /init needs somewhere to write to.
        self.archive.device("dev/console", "c", 5, 1)
        self.archive.device("dev/null", "c", 1, 3, 0o666)
        for pattern in read_list(FILES_LIST):
            self.add_pattern(pattern)
        self.add_library("ld64.so.2")
        self.archive.symlink(
            "usr/lib64/ld64.so.2",
            "/usr/lib/powerpc64le-linux-gnu/ld64.so.2")
        while self.wanted_libraries:
            self.add_library(self.wanted_libraries.pop())
        self.add_applets()
        self.add_modules()
        self.add_overlay()
        self.add_keys()
        return self.archive.bytes()

    # Files and libraries.

    def add_pattern(self, pattern: str) -> None:
        """Add the files a pattern of files.list means."""
        matches = sorted(self.root.glob(pattern))
        if not matches:
            raise SetupError(
                f"{os.path.relpath(FILES_LIST, paths.ROOT)}: {pattern} "
                "matches no file of the packages; correct it, or add its "
                "package to packages.list")
        for path in matches:
            self.add_file(path)

    def add_file(self, path: Path) -> None:
        """Add one file of the package root, following its links."""
        name = str(path.relative_to(self.root))
        if name in self.archive.entries or path.is_dir():
            return
        if path.is_symlink():
            target = os.readlink(path)
            self.archive.symlink(name, target)
            base = self.root if target.startswith("/") else path.parent
            real = Path(os.path.normpath(base / target.lstrip("/")))
            if not real.is_relative_to(self.root) or not real.exists():
                raise SetupError(f"{name} links to {target}, which is not "
                                 "in the packages")
            self.add_file(real)
            return
        data = path.read_bytes()
        mode = stat.S_IMODE(path.stat().st_mode)
        self.archive.file(name, data, 0o755 if mode & 0o100 else 0o644)
        if elf.is_elf(data):
            self.wanted_libraries += elf.needed(data)

    def add_library(self, soname: str) -> None:
        """Add a shared library by the name programs ask for it."""
        for folder in LIBRARY_DIRS:
            path = self.root / folder / soname
            if path.exists():
                self.add_file(path)
                return
        raise SetupError(
            f"no package has {soname}, which a program of the image needs; "
            "take its package off the skipped ones in packages.list")

    def add_applets(self) -> None:
        """Link busybox's applets.

        The program cannot be run here to list them, but it holds the list:
        one string of names, sorted, each ended by NUL.
        """
        data = (self.root / "usr/bin/busybox").read_bytes()
        match = re.search(rb"\[\0\[\[\0(?:[a-z0-9_.+-]+\0)+", data)
        names = match.group(0).decode().split("\0")[:-1] if match else []
        if not {"sh", "mount", "modprobe", "init"} <= set(names):
            raise SetupError("the list of applets was not found in busybox")
        for name in names:
            # /sbin/init and friends are asked for by path.
            for folder in ("bin", "sbin"):
                if f"usr/{folder}/{name}" in self.archive.entries:
                    break
            else:
                self.archive.symlink(f"usr/bin/{name}", "/usr/bin/busybox")
        for name in ("init", "modprobe", "poweroff", "reboot", "halt"):
            self.archive.symlink(f"usr/sbin/{name}", "/usr/bin/busybox")

    # Modules.

    def add_modules(self) -> None:
        """Add kernel modules, ours among them, and what modprobe reads."""
        base = f"usr/lib/modules/{self.kernel.release}"
        stock = ModuleTree(self.kernel)
        early: list[str] = []
        late: list[str] = []
        wanted: list[str] = []
        for line in read_list(MODULES_LIST):
            words = line.split()
            if len(words) > 2 or words[0] not in ("early", "late",
                                                  words[-1]):
                raise SetupError(
                    f"{os.path.relpath(MODULES_LIST, paths.ROOT)}: "
                    f'"{line}" is not NAME, early NAME or late NAME')
            if len(words) == 2:
                {"early": early, "late": late}[words[0]].append(words[1])
            wanted.append(words[-1])
        ours = {p.stem.replace("-", "_"): p for p in built(self.kernel)}
        stock.paths.update(ours)
        order = stock.closure([*wanted, *sorted(ours)])
        where = {}
        for name in order:
            path = stock.paths[name]
            inside = f"extra/{path.name}" if name in ours else str(
                path.relative_to(self.kernel.modules)).removesuffix(".xz")
            where[name] = inside
            data = stock.data(name)
            if name in ours:
                data = stripped(path)
            self.archive.file(f"{base}/{inside}", data)
        lines = []
        for name in order:
            deps = stock.all_depends(name)
            lines.append(f"{where[name]}: "
                         + " ".join(where[d] for d in deps))
        text = "\n".join(line.rstrip() for line in lines) + "\n"
        self.archive.file(f"{base}/modules.dep", text.encode())
        aliases = [f"alias {alias} {name}\n" for name in order
                   for alias in stock.info(name).get("alias", [])]
        self.archive.file(f"{base}/modules.alias", "".join(aliases).encode())
        self.archive.file(f"{base}/modules.symbols", b"")
        for name in ("modules.builtin", "modules.builtin.modinfo"):
            source = self.kernel.modules / name
            if source.exists():
                self.archive.file(f"{base}/{name}", source.read_bytes())
        for when, names in (("early", early), ("late", late)):
            loadable = [name for name in names if name in where]
            self.archive.file(f"etc/modules-{when}",
                              (" ".join(loadable) + "\n").encode())

    # Ours.

    def add_overlay(self) -> None:
        """Lay scripts/guest/root/ over what there is."""
        for path in sorted(OVERLAY_ROOT.rglob("*")):
            if path.is_dir():
                continue
            name = str(path.relative_to(OVERLAY_ROOT))
            first, _, rest = name.partition("/")
            if first in MERGED:
                name = f"usr/{first}/{rest}"
            # An applet's link of that name in the other folder would win
            # on PATH or lose by chance.
            other = name.replace("usr/sbin/", "usr/bin/")
            if other != name:
                self.archive.entries.pop(other, None)
            mode = 0o755 if path.stat().st_mode & 0o100 else 0o644
            self.archive.file(name, path.read_bytes(), mode)
        self.archive.entries["etc/shadow"].mode &= ~0o077

    def add_keys(self) -> None:
        """Put in who may log in, and the host key."""
        public = paths.SSH_KEY.with_suffix(".pub").read_bytes()
        self.archive.directory("root/.ssh", 0o700)
        self.archive.file("root/.ssh/authorized_keys", public, 0o600)
        self.archive.file("etc/dropbear/host_ed25519",
                          dropbear_key(HOST_KEY.read_text()), 0o600)


def stripped(path: Path) -> bytes:
    """A module of ours without its debugging information, which is ten
    times the module and stays in build/modules."""
    with tempfile.NamedTemporaryFile(suffix=path.suffix) as out:
        capture([f"{CROSS_COMPILE}strip", "--strip-debug", "-o", out.name,
                 path])
        return Path(out.name).read_bytes()


class ModuleTree:
    """A kernel's modules by name, with what each depends on."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.paths: dict[str, Path] = {}
        for path in (kernel.modules / "kernel").rglob("*.ko*"):
            self.paths[path.name.split(".")[0].replace("-", "_")] = path
        builtin = (kernel.modules / "modules.builtin").read_text()
        self.builtin = {Path(line).stem.replace("-", "_")
                        for line in builtin.splitlines()}
        self._data: dict[str, bytes] = {}

    def data(self, name: str) -> bytes:
        """A module's contents, unpacked."""
        if name not in self._data:
            path = self.paths[name]
            raw = path.read_bytes()
            if path.suffix == ".xz":
                raw = lzma.decompress(raw)
            self._data[name] = raw
        return self._data[name]

    def info(self, name: str) -> dict[str, list[str]]:
        """A module's .modinfo."""
        return elf.modinfo(self.data(name))

    def depends(self, name: str) -> list[str]:
        """The modules a module needs directly."""
        words = ",".join(self.info(name).get("depends", [])).split(",")
        return [w.replace("-", "_") for w in words
                if w and w.replace("-", "_") not in self.builtin]

    def closure(self, names: list[str]) -> list[str]:
        """The modules and all they need, each after what it needs."""
        order: list[str] = []
        for name in names:
            name = name.replace("-", "_")
            if name in self.builtin and name not in self.paths:
                continue
            self._visit(name, order, ())
        return order

    def _visit(self, name: str, order: list[str],
               above: tuple[str, ...]) -> None:
        if name in order:
            return
        if name in above:
            raise SetupError("modules depend on each other in a circle: "
                             + " -> ".join((*above, name)))
        if name not in self.paths:
            asked = f", which {above[-1]} needs" if above else ""
            raise SetupError(f"{self.kernel.release} has no module {name}"
                             f"{asked}; modules.list names what the image "
                             "takes")
        for one in self.depends(name):
            self._visit(one, order, (*above, name))
        order.append(name)

    def all_depends(self, name: str) -> list[str]:
        """Everything a module needs, as modules.dep wants it: what must be
        loaded first comes last."""
        return [n for n in reversed(self.closure([name])) if n != name]


# The modules whose code decides how an image looks.
BUILDER_CODE = [Path(__file__), Path(cpio.__file__), Path(elf.__file__)]


def image_key(kernel: Kernel) -> str:
    """What the image for one kernel depends on."""
    public = [k.with_suffix(".pub") for k in (paths.SSH_KEY, HOST_KEY)]
    return key_of("image", kernel.release, kernel.version,
                  modules_key(kernel), known_packages(),
                  hash_files([paths.GUEST_SOURCES, *BUILDER_CODE]),
                  hash_files(public))


def image_wrong(series: str) -> str:
    """Why the image for a kernel cannot be used; "" if it can."""
    found = [k for k in kernels() if k.series == series]
    if not found or not found[0].image.exists() \
            or not found[0].image_file.exists():
        return "is not built"
    if not Stamp(f"image-{series}").fresh(image_key(found[0])):
        return "is stale (what it is made from has changed)"
    return ""


def step_image(step: Step) -> str:
    """Build the images of all kernels."""
    todo = kernels()
    if not todo:
        raise SetupError("no kernels are set up; run: "
                         + paths.script("setup", "kernels"))
    if not any(image_wrong(k.series) for k in todo):
        return "reused, " + sizes(todo)
    step.open_log()
    make_keys(step)
    for kernel in todo:
        if not image_wrong(kernel.series):
            continue
        step.progress(f"for {kernel.release}", force=True)
        stamp = Stamp(f"image-{kernel.series}")
        stamp.begin()
        key = image_key(kernel)
        data = ImageBuilder(kernel).build()
        # A guest may be reading the old image: replace it, do not rewrite.
        tmp = kernel.image_file.with_suffix(".tmp")
        tmp.write_bytes(data)
        os.replace(tmp, kernel.image_file)
        stamp.write(key, [kernel.image_file])
    return sizes(todo)


def sizes(todo: list[Kernel]) -> str:
    """The images and how big they are."""
    return ", ".join(
        f"{k.image_file.name} {k.image_file.stat().st_size / 1e6:.0f} MB"
        for k in todo)
