# SPDX-License-Identifier: GPL-2.0-or-later
"""Set-up and check: what they decide, without building or fetching."""
import base64
import contextlib
import hashlib
import io
import json
import signal
import struct
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts" / "lib"))

from ehcalab import (check, cpio, elf, process, setup_apt,  # noqa: E402
                     setup_image, setup_kernels, setup_qemu, stamps, stop, ui)


class Scratch(unittest.TestCase):
    """A test with a directory of its own."""

    def setUp(self) -> None:
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.dir = Path(scratch.name)

    def put(self, name: str, text: str = "") -> Path:
        path = self.dir / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path


class Cpio(unittest.TestCase):
    """Archives against bytes put together by hand."""

    def test_entry_bytes(self) -> None:
        archive = cpio.Archive()
        archive.file("a", b"hello", 0o640)
        data = archive.bytes()
        want = (b"070701" b"00000001" b"000081a0" b"00000000" b"00000000"
                b"00000001" b"00000000" b"00000005" b"00000000" b"00000000"
                b"00000000" b"00000000" b"00000002" b"00000000" b"a\0"
                b"hello\0\0\0")
        self.assertEqual(data[:len(want)], want)
        self.assertEqual(data[len(want):len(want) + 6], b"070701")
        self.assertIn(b"TRAILER!!!\0", data)
        self.assertEqual(len(data) % cpio.BLOCK, 0)

    def test_device_needs_no_root(self) -> None:
        archive = cpio.Archive()
        archive.device("dev/console", "c", 5, 1)
        data = archive.bytes()
        at = data.index(b"dev/console\0") - 110
        self.assertEqual(data[at + 14:at + 22], b"00002180")
        self.assertEqual(data[at + 78:at + 94], b"0000000500000001")

    def test_order_of_adding_is_not_seen(self) -> None:
        one, two = cpio.Archive(), cpio.Archive()
        one.file("x/b", b"1")
        one.file("x/a", b"2")
        two.file("x/a", b"2")
        two.file("x/b", b"1")
        self.assertEqual(one.bytes(), two.bytes())

    def test_directories_come_before_files(self) -> None:
        archive = cpio.Archive()
        archive.file("deep/down/file", b"")
        data = archive.bytes()
        self.assertLess(data.index(b"deep\0"), data.index(b"deep/down\0"))
        self.assertLess(data.index(b"deep/down\0"),
                        data.index(b"deep/down/file\0"))


class Elf(unittest.TestCase):
    """Damaged files are refused, never read beyond their end."""

    def test_not_elf(self) -> None:
        for data in (b"", b"\x7fELF", b"#!/bin/sh\n" * 20):
            with self.assertRaises(elf.ElfError):
                elf.sections(data)

    def test_section_table_out_of_bounds(self) -> None:
        head = elf.EHDR.pack(b"\x7fELF\x02\x01\x01" + bytes(9), 1, 21, 1, 0,
                             0, 1 << 40, 0, 64, 0, 0, 64, 3, 1)
        with self.assertRaises(elf.ElfError):
            elf.sections(head + bytes(200))

    def test_own_interpreter(self) -> None:
        data = Path("/usr/bin/python3").resolve().read_bytes()
        self.assertIn("libc.so.6", elf.needed(data))


class Stamps(Scratch):
    """A step is reused only for the same inputs and with its products."""

    def setUp(self) -> None:
        super().setUp()
        patch = mock.patch.object(stamps.paths, "STAMPS", self.dir / "s")
        patch.start()
        self.addCleanup(patch.stop)

    def test_key_and_products(self) -> None:
        product = self.put("product")
        stamp = stamps.Stamp("one")
        self.assertFalse(stamp.fresh("k"))
        stamp.write("k", [product])
        self.assertTrue(stamp.fresh("k"))
        self.assertFalse(stamp.fresh("other"))
        product.unlink()
        self.assertFalse(stamp.fresh("k"))

    def test_cut_off(self) -> None:
        product = self.put("product")
        stamp = stamps.Stamp("one")
        stamp.write("k", [product])
        stamp.begin()
        # Whatever there is of the products.
        self.assertFalse(stamp.fresh("k"))
        self.assertFalse(stamps.Stamp("one").fresh("k"))

    def test_unreadable(self) -> None:
        stamp = stamps.Stamp("one")
        stamp.write("k")
        for text in ("", "{", "[]", "null", "3"):
            stamp.path.write_text(text)
            self.assertFalse(stamp.fresh("k"))

    def test_copy_of_the_build_directory(self) -> None:
        copy = self.dir / "copy"
        copy.mkdir()
        for place in (self.dir, copy):
            (place / "product").write_text("")
        with mock.patch.object(stamps.paths, "BUILD", self.dir):
            for name, places in (("any", []), ("here", [self.dir])):
                stamps.Stamp(name, *places).write("k",
                                                  [self.dir / "product"])
            self.assertTrue(stamps.Stamp("here", self.dir).fresh("k"))
        (self.dir / "product").unlink()
        with mock.patch.object(stamps.paths, "BUILD", copy):
            # Products are looked for in the copy, not where they were made.
            self.assertTrue(stamps.Stamp("any").fresh("k"))
            here = stamps.Stamp("here", copy)
            self.assertTrue(here.moved())
            self.assertFalse(here.fresh("k"))

    def test_hash_sees_content_name_and_mode(self) -> None:
        path = self.put("tree/a", "text")
        first = stamps.hash_files([self.dir / "tree"], self.dir)
        path.touch()
        self.assertEqual(
            first, stamps.hash_files([self.dir / "tree"], self.dir))
        path.chmod(0o755)
        second = stamps.hash_files([self.dir / "tree"], self.dir)
        self.assertNotEqual(first, second)
        path.rename(path.with_name("b"))
        self.assertNotEqual(
            second, stamps.hash_files([self.dir / "tree"], self.dir))


class Overlay(Scratch):
    """Our files in QEMU's tree follow ours."""

    def test_copies_changes_and_removes(self) -> None:
        src, dst = self.dir / "src", self.dir / "dst"
        self.put("src/a.c", "1")
        self.put("src/engine/b.c", "2")
        self.put("src/patches/p.patch", "3")
        self.put("dst/ib/kept.c", "4")
        args = (src, dst, ("ib",), ("patches", "ib"))
        self.assertEqual(setup_qemu.mirror_tree(*args), 2)
        self.assertFalse((dst / "patches").exists())
        untouched = (dst / "a.c").stat().st_mtime_ns
        self.put("src/engine/b.c", "changed")
        self.assertEqual(setup_qemu.mirror_tree(*args), 1)
        self.assertEqual((dst / "a.c").stat().st_mtime_ns, untouched)
        (src / "a.c").unlink()
        self.assertEqual(setup_qemu.mirror_tree(*args), 1)
        self.assertFalse((dst / "a.c").exists())
        self.assertTrue((dst / "ib" / "kept.c").exists())


class Settle(Scratch):
    """A mirror with holes: the next best is taken, and remembered."""

    def setUp(self) -> None:
        super().setUp()
        patch = mock.patch.object(setup_apt, "RESOLVED",
                                  self.dir / "resolved.json")
        patch.start()
        self.addCleanup(patch.stop)
        self.apt = setup_apt.PrivateApt(mock.Mock(spec=ui.Step))
        self.apt.ensure_index = mock.Mock()        # type: ignore
        self.apt.update = mock.Mock()              # type: ignore
        self.gone: set[str] = set()
        self.asked: list[str] = []

    def fetch(self, one: dict) -> None:
        self.asked.append(one["v"])
        if one["v"] in self.gone:
            raise setup_apt.NotFetched(f"no {one['v']}")

    def settle(self) -> dict:
        self.asked.clear()
        return self.apt.settle("q", lambda: [{"v": "2"}, {"v": "1"}],
                               self.fetch)

    def test_best_first_and_kept(self) -> None:
        self.assertEqual(self.settle(), {"v": "2"})
        self.apt.update.assert_not_called()        # type: ignore
        self.assertEqual(setup_apt.load_resolved(), {"q": {"v": "2"}})

    def test_hole(self) -> None:
        self.gone = {"2"}
        self.assertEqual(self.settle(), {"v": "1"})
        self.apt.update.assert_called_once()       # type: ignore
        self.assertEqual(self.settle(), {"v": "1"})
        self.assertEqual(self.asked, ["1"])

    def test_known_one_gone_since(self) -> None:
        setup_apt.save_resolved("q", {"v": "0"})
        self.gone = {"0"}
        self.assertEqual(self.settle(), {"v": "2"})

    def test_nothing_left(self) -> None:
        self.gone = {"1", "2"}
        with self.assertRaises(setup_apt.NotFetched):
            self.settle()


class Downloads(Scratch):
    """A download that was cut off is not taken for a whole one."""

    DEB = "made-up_1%3a2_ppc64el.deb"
    RECORD = ("Package: made-up\nVersion: 1:2\nArchitecture: ppc64el\n"
              f"SHA256: {hashlib.sha256(b'whole').hexdigest()}\n")

    def setUp(self) -> None:
        super().setUp()
        self.downloads = self.dir / "downloads"
        for module, name, value in (
                (setup_apt.paths, "DOWNLOADS", self.downloads),
                (setup_apt, "PARTIAL", self.downloads / "partial")):
            patch = mock.patch.object(module, name, value)
            patch.start()
            self.addCleanup(patch.stop)
        self.step = mock.Mock(spec=ui.Step, log="x.log")
        self.apt = setup_apt.PrivateApt(self.step)
        self.apt.ensure_index = mock.Mock()        # type: ignore
        self.apt.cache = mock.Mock(                # type: ignore
            return_value=self.RECORD)

    def fetched(self, **files: bytes) -> None:
        """apt-get leaves these files, and fails or not."""
        def run(*_args: object, cwd: Path, **_kwargs: object) -> None:
            for name, data in files.items():
                (cwd / name).write_bytes(data)
            if b"part" in files.values():
                raise ui.StepFailed("apt-get", None, 100)

        self.step.run.side_effect = run

    def test_deb(self) -> None:
        wanted = [("made-up", "ppc64el", "1:2")]
        self.fetched(**{self.DEB: b"part"})
        with self.assertRaises(setup_apt.NotFetched):
            self.apt.download(wanted)
        self.assertFalse((self.downloads / self.DEB).exists())
        self.fetched(**{self.DEB: b"whole"})
        [path] = self.apt.download(wanted)
        self.assertEqual(path.read_bytes(), b"whole")

    def test_source(self) -> None:
        digest = hashlib.sha256(b"").hexdigest()
        dsc = f"Checksums-Sha256:\n {digest} 5 s_2.orig.tar.xz\n".encode()
        self.fetched(**{"s_2.dsc": dsc, "s_2.orig.tar.xz": b"part"})
        with self.assertRaises(setup_apt.NotFetched):
            self.apt.download_source("s", "1:2")
        self.assertEqual([p.name for p in self.downloads.iterdir()],
                         ["partial"])
        self.fetched(**{"s_2.dsc": dsc, "s_2.orig.tar.xz": b"whole"})
        path = self.apt.download_source("s", "1:2")
        self.assertEqual(path.read_bytes(), dsc)
        self.assertEqual((self.downloads / "s_2.orig.tar.xz").read_bytes(),
                         b"whole")


class Patches(Scratch):
    """However a run was cut off, the next one has the patches once."""

    PATCH = "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-old\n+new\n"

    def setUp(self) -> None:
        super().setUp()
        self.source = self.dir / "src"
        for module, name, value in (
                (setup_qemu.paths, "QEMU_SRC", self.source),
                (setup_qemu.paths, "LOGS", self.dir / "logs"),
                (setup_qemu, "PATCHES", self.dir / "patches"),
                (setup_qemu, "APPLIED", self.dir / "applied"),
                (setup_qemu, "fetch_source", self.unpack),
                (setup_qemu, "load_resolved",
                 lambda: {"qemu": {"version": "10"}})):
            patch = mock.patch.object(module, name, value)
            patch.start()
            self.addCleanup(patch.stop)
        self.step = ui.Step("qemu", "QEMU", 1, 1)
        self.step.open_log()
        self.unpacked = 0
        self.unpack()
        self.put("patches/1.patch", self.PATCH)

    def unpack(self, *_args: object) -> None:
        self.unpacked += 1
        self.put("src/f", "old\n")
        for old in (self.dir / "applied").glob("*"):
            old.unlink()

    def sync(self) -> None:
        setup_qemu.sync_patches(self.step)
        self.assertEqual((self.source / "f").read_text(), "new\n")
        self.assertTrue((self.dir / "applied" / "1.patch").exists())

    def test_once(self) -> None:
        self.sync()
        self.sync()
        self.assertEqual(self.unpacked, 1)

    def test_applied_and_not_noted(self) -> None:
        self.put("src/f", "new\n")
        self.sync()

    def test_taken_back_and_still_noted(self) -> None:
        self.sync()
        self.put("src/f", "old\n")
        self.put("patches/1.patch", "# changed\n" + self.PATCH)
        self.sync()

    def test_half_of_one(self) -> None:
        self.put("src/f", "half\n")
        self.sync()

    def test_does_not_apply(self) -> None:
        self.put("patches/1.patch", self.PATCH.replace("old", "other"))
        with self.assertRaisesRegex(ui.StepFailed, "does not apply"):
            self.sync()


class Commands(Scratch):
    """A step's command ends with the step, and all that it started."""

    def setUp(self) -> None:
        super().setUp()
        patch = mock.patch.object(ui.paths, "LOGS", self.dir)
        patch.start()
        self.addCleanup(patch.stop)
        self.step = ui.Step("x", "x", 1, 1)
        self.step.open_log()

    def test_stopped(self) -> None:
        groups: list[int] = []

        def on_line(line: str) -> None:
            groups.append(int(line))
            raise stop.Stopped(signal.SIGINT)

        with self.assertRaises(stop.Stopped):
            self.step.run(["sh", "-c", "trap '' INT; sleep 1000 & echo $$; "
                           "wait"], on_line=on_line)
        self.assertEqual(process.group_members(groups[0]), [])

    def test_failed(self) -> None:
        with self.assertRaisesRegex(ui.StepFailed, "exit status 3") as one:
            self.step.run(["sh", "-c", "echo why; exit 3"])
        self.assertIn("why", one.exception.tail())
        with self.assertRaisesRegex(ui.StepFailed, "killed by SIGKILL"):
            self.step.run(["sh", "-c", "kill -9 $$"])

    def test_not_there(self) -> None:
        with self.assertRaisesRegex(ui.SetupError, "setup deps"):
            self.step.run(["/nowhere/program"])

    def test_full_disk_is_not_blamed_on_the_program(self) -> None:
        def on_line(_line: str) -> None:
            raise OSError(28, "No space left on device")

        with self.assertRaisesRegex(OSError, "No space"):
            self.step.run(["echo"], on_line=on_line)


class Mirror(unittest.TestCase):
    """The mirror is the machine's, whatever else its apt knows."""

    OTHER = ("Repo-URI: http://other.example/\nRelease: bookworm\n"
             "Component: main\nOrigin: Somebody\n")
    SECURITY = ("Repo-URI: http://sec.example/debian-security/\n"
                "Release: bookworm-security\nComponent: main\n"
                "Origin: Debian\n")
    MAIN = ("Repo-URI: http://mirror.example/debian/\nRelease: bookworm\n"
            "Component: main\nOrigin: Debian\n")

    def find(self, *blocks: str) -> setup_apt.Mirror:
        with mock.patch.object(setup_apt, "capture",
                               return_value="\n".join(blocks)):
            return setup_apt.find_mirror()

    def test_passes_over_others(self) -> None:
        found = self.find(self.OTHER, self.SECURITY, self.MAIN)
        self.assertEqual(found.uri, "http://mirror.example/debian/")

    def test_key_of_the_source(self) -> None:
        found = self.find(self.MAIN + "Signed-By: /etc/apt/keyrings/m.gpg\n")
        self.assertEqual(found.signed_by, "/etc/apt/keyrings/m.gpg")

    def test_none(self) -> None:
        with self.assertRaisesRegex(ui.SetupError, "no Debian source"):
            self.find(self.OTHER, self.SECURITY)


class Modules(Scratch):
    """Which modules get into an image."""

    def tree(self, depends: dict[str, str]) -> setup_image.ModuleTree:
        tree = setup_image.ModuleTree.__new__(setup_image.ModuleTree)
        tree.kernel = mock.Mock(release="6.x")
        tree.builtin = {"virtio"}
        tree.paths = {name: self.dir / name for name in depends}
        tree.info = lambda name: {              # type: ignore
            "depends": [depends[name]]}
        return tree

    def test_closure_puts_needed_ones_first(self) -> None:
        tree = self.tree({"ib_cm": "ib_core", "ib_core": "virtio",
                          "rdma_cm": "ib_cm,ib-core"})
        self.assertEqual(tree.closure(["rdma_cm"]),
                         ["ib_core", "ib_cm", "rdma_cm"])
        self.assertEqual(tree.all_depends("rdma_cm"), ["ib_cm", "ib_core"])

    def test_missing_is_told_with_who_needs_it(self) -> None:
        tree = self.tree({"a": "b"})
        with self.assertRaisesRegex(ui.SetupError, "no module b, which a"):
            tree.closure(["a"])

    def test_circle(self) -> None:
        tree = self.tree({"a": "b", "b": "a"})
        with self.assertRaisesRegex(ui.SetupError, "a -> b -> a"):
            tree.closure(["a"])


class Keys(unittest.TestCase):
    """The guests' host key in dropbear's format."""

    @staticmethod
    def string(data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + data

    def test_dropbear_key(self) -> None:
        s = self.string
        public, pair = bytes(range(32)), bytes(range(100, 164))
        block = (struct.pack(">II", 7, 7) + s(b"ssh-ed25519") + s(public)
                 + s(pair) + s(b"comment"))
        blob = (b"openssh-key-v1\0" + s(b"none") + s(b"none") + s(b"")
                + struct.pack(">I", 1) + s(b"public") + s(block))
        text = ("-----BEGIN OPENSSH PRIVATE KEY-----\n"
                + base64.encodebytes(blob).decode()
                + "-----END OPENSSH PRIVATE KEY-----\n")
        self.assertEqual(setup_image.dropbear_key(text),
                         s(b"ssh-ed25519") + s(pair))

    def test_damaged(self) -> None:
        blob = b"openssh-key-v1\0" + struct.pack(">I", 1 << 31)
        text = f"-----\n{base64.b64encode(blob).decode()}\n-----\n"
        with self.assertRaisesRegex(ui.SetupError, "damaged"):
            setup_image.dropbear_key(text)


class Kernels(unittest.TestCase):
    """Versions follow from the meta-packages and the host's C library."""

    @staticmethod
    def apt() -> mock.Mock:
        def records(name: str, _arch: str) -> list[dict[str, str]]:
            both = ("6.12.9-1", "6.12.5-1~bpo12+1")
            for version in both:
                release = f"{version.split('-')[0]}-powerpc64le"
                if name == f"linux-headers-{release}":
                    number = version.split("-")[0]
                    return [{"Version": version, "Depends":
                             f"linux-headers-{number}-common (= {version}), "
                             f"linux-kbuild-{number}"}]
            if name == "linux-image-powerpc64le":
                return [{"Version": v, "Depends":
                         f"linux-image-{v.split('-')[0]}-powerpc64le"}
                        for v in both]
            if name == "linux-headers-powerpc64le":
                return [{"Version": v} for v in both]
            if name == "linux-kbuild-6.12.9":
                return [{"Version": both[0], "Depends": "libc6 (>= 2.38)"}]
            if name == "linux-kbuild-6.12.5":
                return [{"Version": both[1], "Depends": "libc6 (>= 2.34)"}]
            return []
        return mock.Mock(records=records)

    def versions(self, libc: str) -> list[str]:
        with mock.patch.object(setup_kernels, "host_libc",
                               return_value=libc):
            return [c["version"] for c in
                    setup_kernels.candidates(self.apt(), "6.12")]

    def test_tools_must_run_here(self) -> None:
        self.assertEqual(self.versions("2.36-9"), ["6.12.5-1~bpo12+1"])
        self.assertEqual(self.versions("2.41-12"),
                         ["6.12.9-1", "6.12.5-1~bpo12+1"])

    def test_none_says_why(self) -> None:
        with self.assertRaisesRegex(ui.SetupError, "this machine has 2.31"):
            self.versions("2.31")


class Moved(Scratch):
    """What names its place is found in a build directory that was moved."""

    def test_kernels(self) -> None:
        listing = self.dir / "kernels.json"
        one = {"series": "6.12", "release": "6.12.9-x", "version": "6.12.9-1",
               "root": "/elsewhere/kernels/6.12.9-1"}
        with mock.patch.object(setup_kernels.paths, "KERNELS", self.dir), \
                mock.patch.object(setup_kernels.paths, "KERNELS_JSON",
                                  listing):
            listing.write_text(json.dumps([one]))
            self.assertEqual(setup_kernels.kernel("6.12").root,
                             str(self.dir / "6.12.9-1"))
            for bad in ("", "[", "3", "[3]", "[{}]", '{"a": 1}'):
                listing.write_text(bad)
                self.assertEqual(setup_kernels.kernels(), [])


class Counting(Scratch):
    """No way for a test to end badly and not be counted."""

    JUNIT = ('<testsuites><testsuite name="p.taps"><testcase name="1"/>'
             '<testcase name="2"><skipped/></testcase></testsuite>'
             '<testsuite name="p.died"><testcase name="1"/></testsuite>'
             '<testsuite name="p"><testcase name="plain"/>'
             '<testcase name="hung"/></testsuite></testsuites>')
    LOG = [("taps", "OK"), ("died", "ERROR"), ("plain", "OK"),
           ("hung", "TIMEOUT")]

    def quietly(self, function, *args):        # type: ignore
        with contextlib.redirect_stdout(io.StringIO()):
            return function(*args)

    def test_meson_report(self) -> None:
        self.put("testlog.junit.xml", self.JUNIT)
        self.put("testlog.json", "".join(
            json.dumps({"name": n, "result": r}) + "\n" for n, r in self.LOG))
        counts = self.quietly(check.report_counts, self.dir)
        self.assertEqual(str(counts), "3 passed, 2 failed, 1 skipped")

    def run_suite(self, script: str, limit: int = 60) -> str:
        program = self.put("suite.py", script)
        suite = check.Suite("x", str(program), limit)
        return str(self.quietly(check.program_suite, suite))

    def test_good_suite(self) -> None:
        self.assertEqual(
            self.run_suite("print('3 passed, 0 failed, 1 skipped')"),
            "3 passed, 0 failed, 1 skipped")

    def test_bad_status_counts(self) -> None:
        self.assertEqual(
            self.run_suite("print('3 passed, 0 failed, 0 skipped')\n"
                           "raise SystemExit(1)"),
            "3 passed, 1 failed, 0 skipped")

    def test_silence_counts(self) -> None:
        self.assertEqual(self.run_suite("print('all is well')"),
                         "0 passed, 1 failed, 0 skipped")
        self.assertEqual(self.run_suite(""), "0 passed, 1 failed, 0 skipped")

    def test_crash_counts(self) -> None:
        self.assertEqual(
            self.run_suite("import os\nos.kill(os.getpid(), 11)"),
            "0 passed, 1 failed, 0 skipped")

    def test_endless_suite_is_stopped(self) -> None:
        self.assertEqual(
            self.run_suite("import time\ntime.sleep(600)", limit=1),
            "0 passed, 1 failed, 0 skipped")


if __name__ == "__main__":
    unittest.main()
