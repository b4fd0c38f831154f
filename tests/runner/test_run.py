# SPDX-License-Identifier: GPL-2.0-or-later
"""`ehcalab run`: several files, and reports however a run ends."""
import argparse
import contextlib
import io
import json
import os
import signal
import sys
import tempfile
import unittest
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts" / "lib"))

from ehcalab import cmd_run, screen, stop  # noqa: E402
from ehcalab.process import LabError  # noqa: E402
from ehcalab.scenario import ScenarioError, Topology  # noqa: E402
from ehcalab.stop import Stopped  # noqa: E402

REPORTS = ("timeline.txt", "events.jsonl", "junit.xml", "timeline.svg")


class FakeLab:
    """A lab that has no processes; a test says what it does."""

    boots: Callable[[str], None]
    starts: Callable[[], None]
    closes: Callable[[], None]
    open = 0

    def __init__(self, _topology: Topology, run_dir: Path, log: Any,
                 **_more: Any) -> None:
        self.dir, self.log, self.guests = run_dir, log, {}
        run_dir.mkdir(parents=True, exist_ok=True)
        FakeLab.open += 1

    def start_fabric(self) -> None:
        """As the lab's."""
        self.log.add("lab", "fabric_started", {})
        FakeLab.starts()

    def boot(self, nodes: list[str]) -> None:
        """As the lab's."""
        FakeLab.boots(self.dir.name)

    def check(self) -> None:
        """As the lab's."""

    def close(self) -> None:
        """As the lab's."""
        FakeLab.open -= 1
        with stop.held():
            FakeLab.closes()


class Run(unittest.TestCase):
    """Scenarios a, b and c, each of two steps."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = Path(folder.name)
        (self.dir / "t.topo").write_text("")
        for name in "abc":
            (self.dir / f"{name}.scn").write_text(
                f"title The {name}\ntopology t.topo\n"
                'step "one"\nboot alice\nstep "two"\nnote x\n')
        FakeLab.boots = staticmethod(lambda name: None)
        FakeLab.starts = staticmethod(lambda: None)
        FakeLab.closes = staticmethod(lambda: None)
        FakeLab.open = 0
        for what, how in (("Lab", FakeLab), ("load_topology", self.topology),
                          ("guest", mock.Mock())):
            patch = mock.patch.object(cmd_run, what, how)
            patch.start()
            self.addCleanup(patch.stop)

    def topology(self, path: Path) -> Topology:
        """What the fabric would say of any topology."""
        return Topology(path, {"alice": 1}, [], {})

    def run_files(self, *names: str, check: bool = False, out: str = "out"
                  ) -> tuple[Any, str]:
        """The exit status, or what was raised, and what was printed."""
        args = argparse.Namespace(
            file=[str(self.dir / n) for n in names], kernel=None, check=check,
            out=self.dir / out, verbose=False)
        said = io.StringIO()
        status: Any
        with contextlib.redirect_stdout(said):
            try:
                status = cmd_run.run(args)
            except (ScenarioError, Stopped) as exc:
                status = exc
        self.assertEqual(FakeLab.open, 0)
        return status, said.getvalue()

    def reports(self, where: str, word: str) -> ET.Element:
        """All reports are there and have the verdict; the JUnit one."""
        folder = self.dir / where
        for name in REPORTS:
            self.assertTrue((folder / name).exists(), name)
        last = (folder / "timeline.txt").read_text().split(word)
        self.assertEqual(len(last), 2, word)
        with (folder / "events.jsonl").open() as lines:
            self.assertTrue(all(json.loads(line) for line in lines))
        return ET.parse(folder / "junit.xml").getroot()

    def boot_raises(self, **by_name: BaseException) -> None:
        """boot of the scenario with this name raises."""
        def boot(name: str) -> None:
            if name in by_name:
                raise by_name[name]
        FakeLab.boots = staticmethod(boot)

    def test_one(self) -> None:
        status, said = self.run_files("a.scn")
        self.assertEqual(status, 0)
        self.assertIn("PASSED a: all 2 steps", said)
        self.assertNotIn("== File", said)
        self.reports("out", "PASSED a: all 2 steps")

    def test_several(self) -> None:
        """One that fails does not stop the others; the worst counts."""
        self.boot_raises(b=LabError("no guest"))
        status, said = self.run_files("a.scn", "b.scn", "c.scn")
        self.assertEqual(status, 3)
        for part in ("== File 1 of 3: ", "== File 3 of 3: ", "PASSED a: ",
                     "TROUBLE b: ", "PASSED c: ", "2 of 3 passed"):
            self.assertIn(part, said)
        table = said[said.index("\nverdict "):].splitlines()
        self.assertRegex(table[3], r"^TROUBLE +b +\d+\.\d  .*b/timeline.txt$")
        self.reports("out/b", "TROUBLE b: ")
        self.reports("out/c", "PASSED c: ")

    def test_statuses(self) -> None:
        for (first, second), status in (
                ((None, None), 0), ((None, "no"), 1), (("no", None), 1),
                (("no", "lab"), 3), (("lab", "no"), 3)):
            made = {"no": cmd_run.Verdict(False), "lab":
                    cmd_run.Verdict(False, True), None: cmd_run.Verdict()}
            results = [cmd_run.Result(made[w], 0, Path()) for w in
                       (first, second)]
            with mock.patch.object(cmd_run, "run_one", side_effect=results):
                self.assertEqual(self.run_files("a.scn", "b.scn")[0], status)

    def test_signal(self) -> None:
        """The reports are written, the other files are not played."""
        self.boot_raises(b=Stopped(signal.SIGINT))
        status, said = self.run_files("a.scn", "b.scn", "c.scn")
        self.assertIsInstance(status, Stopped)
        self.assertEqual(status.status, 130)
        self.assertIn("INTERRUPTED b: ", said)
        self.assertRegex(said, r"(?m)^not played +c$")
        suite = self.reports("out/b", "INTERRUPTED b: ")
        self.assertEqual((suite.get("errors"), suite.get("skipped")),
                         ("1", "1"))
        self.assertFalse((self.dir / "out/c").exists())

    def test_signal_at_the_end(self) -> None:
        """It does not take the verdict away."""
        def close() -> None:
            signal.raise_signal(signal.SIGTERM)
        FakeLab.closes = staticmethod(close)
        with listening():
            status, said = self.run_files("a.scn", "b.scn")
        self.assertEqual(status.status, 143)
        self.assertIn("PASSED a: all 2 steps", said)
        self.reports("out/a", "PASSED a: all 2 steps")
        self.assertRegex(said, r"(?m)^not played +b$")

    def test_second_signal(self) -> None:
        """While reports are written it waits."""
        self.boot_raises(out=Stopped(signal.SIGINT))
        write = cmd_run.report.write_all

        def slow(*args: Any) -> list[str]:
            signal.raise_signal(signal.SIGINT)
            return write(*args)

        with listening(), mock.patch.object(cmd_run.report, "write_all",
                                            slow):
            status, _ = self.run_files("a.scn")
        self.assertEqual(status.status, 130)
        self.reports("out", "INTERRUPTED a: ")

    def test_before_the_first_step(self) -> None:
        def start() -> None:
            raise LabError("the fabric ended with exit status 1")
        FakeLab.starts = staticmethod(start)
        status, said = self.run_files("a.scn")
        self.assertEqual(status, 3)
        self.assertIn("a.scn:3: the fabric ended with exit status 1", said)
        self.reports("out", "TROUBLE a: ")

    def test_fault_of_ours(self) -> None:
        self.boot_raises(a=KeyError("x"))
        status, said = self.run_files("a.scn", "b.scn")
        self.assertEqual(status, 3)
        self.assertIn("TROUBLE a: ", said)
        self.assertIn("KeyError: 'x'", said)
        self.assertIn("PASSED b: ", said)

    def test_reports_cannot_be_written(self) -> None:
        with mock.patch.object(cmd_run.report, "write_all", side_effect=[
                OSError(28, "No space left on device", "timeline.txt"), []]):
            status, said = self.run_files("a.scn", "b.scn")
        self.assertEqual(status, 3)
        self.assertIn("TROUBLE a: the reports cannot be written: "
                      "timeline.txt: No space left on device", said)
        self.assertIn("PASSED b: ", said)

    def test_same_name(self) -> None:
        """Two files of one name, and one file twice, have own reports."""
        (self.dir / "more").mkdir()
        (self.dir / "more" / "a.scn").write_text(
            "topology ../t.topo\nstep x\nnote x\n")
        self.run_files("a.scn", "more/a.scn", "a.scn")
        for where in ("out/a", "out/a-2", "out/a-3"):
            self.reports(where, "PASSED a: ")

    def test_check(self) -> None:
        """All files are read, whatever is wrong with one; nothing starts."""
        (self.dir / "a.scn").write_text("topology t.topo\nstep x\npul y\n")
        (self.dir / "c.scn").write_text("")
        status, said = self.run_files("a.scn", "b.scn", "c.scn", check=True)
        self.assertIn("a.scn:3: no action 'pul'", str(status))
        self.assertIn("c.scn: there is nothing in it", str(status))
        self.assertIn("b.scn: good: 2 steps", said)
        self.assertFalse((self.dir / "out").exists())
        self.assertEqual(self.run_files("b.scn", check=True)[0], 0)
        # The same without --check.
        status, said = self.run_files("a.scn", "b.scn", "c.scn")
        self.assertIn("a.scn:3: no action 'pul'", str(status))
        self.assertFalse((self.dir / "out").exists())

    def test_bad_arguments(self) -> None:
        (self.dir / "file").write_text("")
        for out in ("file", "file/x", "n" * 300, "x\0y"):
            status, _ = self.run_files("a.scn", out=out)
            self.assertIsInstance(status, ScenarioError)
            self.assertIn("name a directory", str(status))
        for name, part in ((".", "is a directory; name the files: "),
                           ("n" * 300, "File name too long"),
                           ("a.scm", "no such file; "),
                           ("x\0y", "no such file")):
            status, _ = self.run_files(name)
            self.assertIsInstance(status, ScenarioError)
            self.assertIn(part, str(status))
        with self.assertRaisesRegex(ScenarioError,
                                    "did you mean 'apm-failover'"):
            screen.find("apm-failovr", "", ".scn")

    def test_nobody_reads(self) -> None:
        """A closed pipe stops the program once, from whatever thread."""
        reader, writer = os.pipe()
        os.close(reader)
        with mock.patch.object(stop, "pipe_broke") as broke, \
                mock.patch.object(screen, "_unread", []), \
                open(writer, "w", encoding="utf-8") as pipe, \
                contextlib.redirect_stdout(pipe):
            screen.say("one")
            screen.say("two")
            self.assertEqual(broke.call_count, 1)
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, writer)
            os.close(null)


@contextlib.contextmanager
def listening() -> Iterator[None]:
    """Signals as in the program."""
    before = {s: signal.getsignal(s) for s in stop.SIGNALS}
    for one in stop.SIGNALS:
        signal.signal(one, signal.SIG_DFL)
    stop.listen()
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


if __name__ == "__main__":
    unittest.main()
