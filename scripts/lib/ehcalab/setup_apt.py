# SPDX-License-Identifier: GPL-2.0-or-later
"""A private apt, beside the machine's own.

Theory of operation
  Sources and guest packages come from suites the machine may not have
  configured (trixie, bookworm, bookworm-backports; architecture ppc64el).
  Changing the user's apt for that would be rude, so apt runs with its own
  source list, index, cache and (empty) package state under build/apt.  Two
  things are taken over from the machine: the mirror, found by asking
  `apt-get indextargets`, which hides whether the sources are classic or
  deb822; and apt.conf.d, where proxies and credentials are set.

  Versions in the archive move.  They are worked out once, from the index,
  and kept in build/apt/resolved.json; `scripts/setup --refresh` asks again.
  Mirrors have holes: an index may name a file which the mirror does not
  have (yet, or any more).  So whatever is to be fetched is a list of
  candidates, best first, and settle() takes the first one that the mirror
  really gives; before it goes on to the second it reads the index again,
  once.

  A download may be cut off.  Files are fetched into downloads/partial, where
  apt goes on with what it finds, and put into downloads when they are whole.
"""
from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from . import paths
from .ui import SetupError, Step, StepFailed, capture

DEBIAN_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
# Newest first.  bookworm-backports is optional: a mirror may lack it.
SUITES = ("trixie", "bookworm", "bookworm-backports")
GUEST_ARCH = "ppc64el"
RESOLVED = paths.APT / "resolved.json"
PARTIAL = paths.DOWNLOADS / "partial"
# A file of a source package, in its .dsc.
DSC_FILE_RE = re.compile(r"^ [0-9a-f]{64} \d+ ([^/\s]+)$", re.M)
# "Get:7 http://mirror/debian bookworm/main ppc64el zlib1g ppc64el 1:1.2 [..]"
GET_RE = re.compile(r"Get:(\d+) \S+ \S+ \S+ (\S+)")
CODENAME_RE = re.compile(
    r"(bookworm|trixie|forky|sid|stable|oldstable|testing|unstable)"
    r"(-updates|-backports|-proposed-updates)?$")


class NotFetched(SetupError):
    """The index has a package, but the mirror does not give it."""


def host_arch() -> str:
    """Debian's name of the architecture the tools run on."""
    return capture(["dpkg", "--print-architecture"]).strip()


@dataclass(frozen=True)
class Mirror:
    """The Debian mirror the machine uses, and how it trusts it."""
    uri: str
    signed_by: str
    trusted: bool


def find_mirror() -> Mirror:
    """The machine's own Debian mirror, from its apt configuration."""
    text = capture(["apt-get", "indextargets", "Created-By: Packages"])
    best: Mirror | None = None
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines()
                      if ": " in line)
        # Before the first `apt-get update` there is no Origin to ask.
        release = fields.get("Release", "")
        if fields.get("Origin", "Debian") != "Debian":
            continue
        if not CODENAME_RE.match(release):
            continue
        if fields.get("Component") != "main":
            continue
        uri = fields.get("Repo-URI") or fields.get("Site", "")
        if not uri:
            continue
        # An inline key (deb822) is more than one line; the archive's
        # keyring stands in for it.
        signed_by = fields.get("Signed-By", "")
        if not signed_by.startswith("/"):
            signed_by = str(DEBIAN_KEYRING)
        # indextargets says Trusted also for properly signed sources.
        mirror = Mirror(uri, signed_by, False)
        if release.endswith(("-updates", "-backports")):
            best = best or mirror
        else:
            return mirror
    if best is None:
        raise SetupError(
            "apt has no Debian source for component main; add one to "
            "/etc/apt/sources.list.d and run apt-get update "
            "(apt-get indextargets lists what apt knows)")
    return best


class PrivateApt:
    """apt commands which see only build/apt."""

    def __init__(self, step: Step) -> None:
        self.step = step
        self.conf = paths.APT / "apt.conf"

    # -- configuration ----------------------------------------------------

    def configure(self) -> None:
        """Write the private configuration; cheap, done every time."""
        root = paths.APT
        for sub in ("etc/sources.list.d", "etc/preferences.d",
                    "state/lists/partial", "cache/archives/partial"):
            (root / sub).mkdir(parents=True, exist_ok=True)
        status = root / "state" / "status"
        status.touch()
        mirror = find_mirror()
        keyring = mirror.signed_by
        if not Path(keyring).exists():
            raise SetupError(f"keyring {keyring} is missing; install the "
                             "package debian-archive-keyring")
        arches = " ".join(dict.fromkeys((host_arch(), GUEST_ARCH)))
        lines = []
        for suite in SUITES:
            lines += ["Types: deb deb-src", f"URIs: {mirror.uri}",
                      f"Suites: {suite}", "Components: main",
                      f"Architectures: {arches}", f"Signed-By: {keyring}",
                      ""]
        source = root / "etc" / "sources.list.d" / "ehcalab.sources"
        source.write_text("\n".join(lines))
        # A file given with -c is read after apt.conf.d, so it can take back
        # hooks (docker-clean, packagekit) that would touch the machine.
        self.conf.write_text(
            f'Dir::Etc::sourcelist "/dev/null";\n'
            f'Dir::Etc::sourceparts "{root}/etc/sources.list.d";\n'
            f'Dir::Etc::preferences "/dev/null";\n'
            f'Dir::Etc::preferencesparts "{root}/etc/preferences.d";\n'
            f'Dir::State "{root}/state";\n'
            f'Dir::State::lists "{root}/state/lists";\n'
            f'Dir::State::status "{status}";\n'
            f'Dir::Cache "{root}/cache";\n'
            f'Dir::Cache::archives "{root}/cache/archives";\n'
            f'Dir::Log "{root}";\n'
            '#clear APT::Update::Pre-Invoke;\n'
            '#clear APT::Update::Post-Invoke;\n'
            '#clear APT::Update::Post-Invoke-Success;\n'
            '#clear APT::Architectures;\n'
            f'APT::Architectures {{ "{host_arch()}"; "{GUEST_ARCH}"; }};\n'
            '#clear DPkg::Pre-Install-Pkgs;\n'
            'APT::Sandbox::User "root";\n'
            'APT::Get::AllowUnauthenticated "false";\n'
            'Acquire::Retries "4";\n'
            'Acquire::Languages "none";\n'
            'Acquire::PDiffs "false";\n'
            'Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled '
            '"false";\n')

    def _opts(self) -> list[str]:
        return ["-c", str(self.conf), "-q"]

    def get(self, *args: str, cwd: Path | None = None) -> None:
        """apt-get, into the step's log."""
        self.step.run(["apt-get", *self._opts(), *args], cwd=cwd,
                      what="apt-get " + args[0])

    def cache(self, *args: str) -> str:
        """apt-cache's output."""
        return capture(["apt-cache", "-c", str(self.conf), *args])

    # -- index ------------------------------------------------------------

    def update(self) -> None:
        """Fetch the suites' indexes; a missing optional suite is no error."""
        self.configure()
        self.step.progress("reading the package index", force=True)
        # apt-get update exits 100 when one suite is missing; what counts is
        # whether the packages then resolve.
        try:
            self.get("update")
        except SetupError:
            if not self.have_index():
                raise

    def have_index(self) -> bool:
        """Whether an index of the newest suite is there."""
        lists = paths.APT / "state" / "lists"
        return any(lists.glob(f"*_{SUITES[0]}_main_binary-*_Packages*"))

    def ensure_index(self) -> None:
        """Configure; fetch the index when there is none."""
        self.configure()
        if not self.have_index():
            self.update()

    # -- versions ---------------------------------------------------------

    def records(self, name: str, arch: str) -> list[dict[str, str]]:
        """All records of a binary package, newest version first."""
        try:
            text = self.cache("show", f"{name}:{arch}")
        except SetupError as exc:
            # Whatever else apt has to say, a full disk say, is no answer.
            if "No packages found" not in str(exc):
                raise
            return []
        return sort_versions([
            fields for fields in fields_of(text)
            if fields.get("Package") == name
            and fields.get("Architecture") in (arch, "all")])

    def source_versions(self, name: str) -> list[str]:
        """All versions of a source package, newest first."""
        text = self.cache("showsrc", "--only-source", name)
        found = re.findall(r"^Version: (\S+)$", text, re.M)
        return [r["Version"] for r in
                sort_versions([{"Version": v} for v in set(found)])]

    # -- downloads --------------------------------------------------------

    def download(self, packages: list[tuple[str, str, str]]) -> list[Path]:
        """Fetch (name, architecture, version) packages into downloads.

        What is there already is not fetched again.
        """
        paths.DOWNLOADS.mkdir(parents=True, exist_ok=True)
        result: list[Path] = []
        missing: list[str] = []
        for name, arch, version in packages:
            path = deb_path(name, arch, version)
            alt = deb_path(name, "all", version)
            if alt.exists():
                path = alt
            elif not path.exists():
                missing.append(f"{name}:{arch}={version}")
            result.append(path)
        if missing:
            self.ensure_index()
            self._fetch(missing)
        for i, (name, arch, version) in enumerate(packages):
            if not result[i].exists():
                result[i] = deb_path(name, "all", version)
            if not result[i].exists():
                raise NotFetched(f"the mirror does not give {name} {version} "
                                 f"for {arch}; see {self.step.log}")
        return result

    def _fetch(self, specs: list[str]) -> None:
        """Let apt download what it can; the caller sees what is there."""
        def on_line(line: str) -> None:
            match = GET_RE.match(line)
            if match:
                self.step.progress(f"downloading {match.group(1)} of "
                                   f"{len(specs)}: {match.group(2)}")

        self.step.progress(f"downloading {len(specs)} packages", force=True)
        PARTIAL.mkdir(parents=True, exist_ok=True)
        try:
            self.step.run(["apt-get", *self._opts(), "download", *specs],
                          cwd=PARTIAL, on_line=on_line,
                          what="apt-get download")
        except StepFailed:
            # One failed package does not stop the others.
            pass
        for fields in fields_of(self.cache("show", *specs)):
            path = deb_path(fields["Package"], fields["Architecture"],
                            fields["Version"])
            part = PARTIAL / path.name
            if part.exists() and sha256(part) == fields["SHA256"]:
                os.replace(part, path)

    def download_source(self, name: str, version: str) -> Path:
        """Fetch a source package; the path of its .dsc."""
        paths.DOWNLOADS.mkdir(parents=True, exist_ok=True)
        dsc = paths.DOWNLOADS / f"{name}_{version.split(':', 1)[-1]}.dsc"
        if not dsc.exists():
            self.ensure_index()
            self.step.progress(f"downloading the source of {name} {version}",
                               force=True)
            PARTIAL.mkdir(parents=True, exist_ok=True)
            try:
                self.get("source", "--download-only", "--only-source",
                         f"{name}={version}", cwd=PARTIAL)
            except StepFailed as exc:
                raise NotFetched(f"the mirror does not give the source of "
                                 f"{name} {version}; see {self.step.log}"
                                 ) from exc
            part = PARTIAL / dsc.name
            # The .dsc comes last: with it the package is whole.
            for file in {*DSC_FILE_RE.findall(part.read_text())}:
                os.replace(PARTIAL / file, paths.DOWNLOADS / file)
            os.replace(part, dsc)
        return dsc

    def settle(self, name: str, candidates: Callable[[], list[dict]],
               fetch: Callable[[dict], object],
               fits: Callable[[dict], bool] = bool) -> dict:
        """What resolved.json has under a name, or else the first candidate
        the mirror gives; fetched.

        candidates is asked again when the index has been read again.
        """
        known = load_resolved().get(name)
        if known and fits(known):
            try:
                fetch(known)
                return known
            except NotFetched as exc:
                # Worked out long ago, and gone from the mirror since.
                self._gone(exc)
        self.ensure_index()
        try:
            best = candidates()[0]
            fetch(best)
            save_resolved(name, best)
            return best
        except NotFetched as exc:
            self._gone(exc)
        self.update()
        failed: NotFetched | None = None
        for one in candidates():
            try:
                fetch(one)
                save_resolved(name, one)
                return one
            except NotFetched as exc:
                failed = exc
                self._gone(exc)
        assert failed is not None
        raise failed

    def _gone(self, exc: NotFetched) -> None:
        self.step.progress(str(exc).split(";", 1)[0], force=True)


def fields_of(text: str) -> list[dict[str, str]]:
    """The records of apt-cache show, without continued lines."""
    return [dict(line.split(": ", 1) for line in block.splitlines()
                 if line[:1] not in (" ", "\t") and ": " in line)
            for block in text.split("\n\n") if block.strip()]


def sha256(path: Path) -> str:
    """A file's checksum."""
    with path.open("rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()


def sort_versions(records: list[dict[str, str]]) -> list[dict[str, str]]:
    """Newest first, in dpkg's order of versions."""
    ordered: list[dict[str, str]] = []
    for record in records:
        at = 0
        while at < len(ordered) and version_ge(ordered[at]["Version"],
                                               record["Version"]):
            at += 1
        ordered.insert(at, record)
    return ordered


def version_ge(left: str, right: str) -> bool:
    """Whether left >= right, as dpkg compares versions."""
    return subprocess.run(["dpkg", "--compare-versions", left, "ge", right],
                          check=False).returncode == 0


def deb_path(name: str, arch: str, version: str) -> Path:
    """Where apt-get download puts a package (it writes ':' as %3a)."""
    quoted = version.replace(":", "%3a")
    return paths.DOWNLOADS / f"{name}_{quoted}_{arch}.deb"


def unpack(step: Step, deb: Path, into: Path) -> None:
    """Unpack a package's files, without installing it."""
    into.mkdir(parents=True, exist_ok=True)
    step.run(["dpkg-deb", "-x", deb, into], what=f"unpacking {deb.name}")


def load_resolved() -> dict:
    """Versions worked out earlier."""
    try:
        found = json.loads(RESOLVED.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def save_resolved(key: str, value: object) -> None:
    """Remember a worked-out version."""
    data = load_resolved()
    data[key] = value
    RESOLVED.parent.mkdir(parents=True, exist_ok=True)
    tmp = RESOLVED.with_suffix(".tmp")
    tmp.write_text(json.dumps(data, indent=1, sort_keys=True) + "\n")
    os.replace(tmp, RESOLVED)


def forget() -> None:
    """Forget index and worked-out versions: the next step asks anew."""
    RESOLVED.unlink(missing_ok=True)
    shutil.rmtree(paths.APT / "state" / "lists", ignore_errors=True)
