# SPDX-License-Identifier: GPL-2.0-or-later
"""What a run leaves behind: failover table, timeline, JUnit."""
import contextlib
import io
import json
import tempfile
import unittest
import xml.etree.ElementTree as ET
from pathlib import Path

import made

from ehcalab import entry, failovers, report, screen
from ehcalab.eventlog import EventLog
from ehcalab.failovers import Migration
from ehcalab.model import Scenario, Step, Topology
from ehcalab.player import StepResult, Verdict

EVIL = "\x1b[2J\x1b]0;x\x07\0\x9b1m\u202egnp\ud800\uffff]]></x>&" + "y" * 9000


def found(run: made.Run) -> list[Migration]:
    """The migrations of a run."""
    return failovers.watch(run.events).found


class Failovers(unittest.TestCase):
    """Which pull, if any, explains a migration."""

    def lines(self, run: made.Run, rows: int | None = None) -> str:
        """The table."""
        return "\n".join(failovers.lines_of(
            failovers.watch(run.events), made.BEGIN, rows))

    def test_rounds(self) -> None:
        run = made.failovers(4)
        seen = found(run)
        self.assertEqual([(m.cable, m.node, m.step, m.old_port, m.new_port)
                          for m in seen[:4]], [
            ("alice-1", "alice", 2, "1", "2"),
            ("alice-1", "bob", 2, "1", "2"),
            ("alice-2", "alice", 3, "2", "1"),
            ("alice-2", "bob", 3, "2", "1")])
        self.assertEqual(len(seen), 8)
        for one in seen:
            self.assertAlmostEqual(one.t - one.pulled, 0.54, 2)
            self.assertGreaterEqual(one.payload or 0, one.t)
        text = self.lines(run)
        self.assertIn("  Step 3: Cable 2 fails and returns\n", text)
        self.assertRegex(text, r"PATH_MIG: median 54\d\.\d, least 540\.\d, "
                         r"most 541\.\d of 8")

    def test_cable_that_came_back_is_not_blamed(self) -> None:
        run = made.failovers(1)
        run.step("Software")
        run.add("lab", "consumer_command", node="alice", command="migrate")
        run.migrate(1, "software")
        self.assertEqual([m.cable for m in found(run)[2:]], ["", ""])
        text = self.lines(run)
        self.assertIn("Migrations that no pulled cable explains:", text)
        self.assertIn("step 3: alice QP 65556, port 2 to 1: software\n", text)
        self.assertIn("s after: tell alice: migrate", text)
        self.assertIn("of 2", text)

    def test_cable_of_another_path_is_not_blamed(self) -> None:
        run = made.failovers(0)
        run.add("lab", "pull", cable="alice-2")
        run.migrate(2)
        self.assertEqual([m.cable for m in found(run)], ["", ""])

    def test_cable_at_the_peer_and_between_switches(self) -> None:
        for cable in ("bob-1", "trunk"):
            run = made.failovers(0)
            run.add("fabric", "link", cable="trunk", up=True, a="rail1/9",
                    b="rail2/9")
            run.add("lab", "pull", cable=cable)
            run.migrate(2)
            self.assertEqual([m.cable for m in found(run)], [cable] * 2)

    def test_cable_is_back_before_the_peer_follows(self) -> None:
        run = made.failovers(0)
        run.add("lab", "pull", cable="alice-1")
        run.mig("alice", 2, "ARMED", "MIGRATED", "retries_used_up")
        run.add("lab", "restore", cable="alice-1")
        run.mig("bob", 2, "ARMED", "MIGRATED", "packet_with_migreq_1")
        self.assertEqual([m.cable for m in found(run)], ["alice-1"] * 2)

    def test_two_connections(self) -> None:
        run = made.failovers(0)
        for qpn in (70, 71):
            run.mig("alice", 1, "REARM", "ARMED", "packet_with_migreq_0", qpn)
        run.add("lab", "pull", cable="alice-1")
        for qpn in (71, 70):
            run.mig("alice", 2, "ARMED", "MIGRATED", "retries_used_up", qpn)
        run.add("alice/hca", "first_payload", qpn=70, port=2)
        self.assertEqual([(m.qpn, m.cable, m.payload is None)
                          for m in found(run)],
                         [("71", "alice-1", True), ("70", "alice-1", False)])
        self.assertIn("  none  ", self.lines(run))

    def test_a_reset_is_no_migration(self) -> None:
        run = made.failovers(0)
        run.mig("alice", 1, "ARMED", "MIGRATED", "reset")
        self.assertEqual((found(run), self.lines(run)), ([], ""))

    def test_screen_has_some_rows(self) -> None:
        run = made.failovers(200)
        self.assertLess(self.lines(run, 60).count("\n"), 120)
        self.assertIn("and 340 more in timeline.txt", self.lines(run, 60))

    def test_lost_events_are_told(self) -> None:
        run = made.failovers(1)
        run.add("bob/hca", "events_lost", count=5)
        self.assertIn("Events were lost, so this may not be all: bob/hca",
                      self.lines(run))

    def test_hostile_events(self) -> None:
        run = made.failovers(1)
        for value in (EVIL, [], {"a": 1}, None, 2 ** 300):
            run.add("lab", "pull", cable=value)
            run.add("alice/hca", "mig_state", qpn=value, port=value,
                    from_=value, to="MIGRATED", cause=value, dlid=value)
            run.add("alice/hca", "mig_state", qpn=value, port=value,
                    from_="ARMED", to="MIGRATED", cause=value, dlid=value)
            run.add("alice", "connected", qpn=value, peer_gid=value)
            run.add("fabric", "link", cable=value, a=value, b=value)
        for line in self.lines(run).split("\n"):
            self.assertTrue(line.isprintable())
            self.assertLess(len(line), 300)


class Written(unittest.TestCase):
    """The files of a run."""

    def setUp(self) -> None:
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)
        self.dir = Path(self.directory.name)
        self.log = EventLog()
        self.steps = [Step(1, "Boot"), Step(2, "Pull"), Step(3, "Pull"),
                      Step(4, EVIL)]

    def write(self, verdict: Verdict) -> list[str]:
        """Write all reports; what is left to be told."""
        one = Scenario(Path("x.scn"), EVIL, Topology(Path("y.topo"), {}, [],
                                                     {}), "6.12", 512,
                       self.steps, [], {})
        return report.write_all(self.dir, one, self.log, verdict)

    def suite(self) -> ET.Element:
        """junit.xml; what Jenkins and GitLab ask of every one is checked."""
        suite = ET.parse(self.dir / "junit.xml").getroot()
        self.assertEqual(suite.tag, "testsuite")
        self.assertRegex(suite.get("timestamp", ""),
                         r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d$")
        self.assertRegex(suite.get("time", ""), r"^\d+\.\d{3}$")
        order = [child.tag for child in suite]
        self.assertEqual(order, ["properties"] + ["testcase"] * len(
            self.steps) + ["system-out", "system-err"])
        cases = suite.findall("testcase")
        self.assertEqual(suite.get("tests"), str(len(cases)))
        for tag in ("failure", "error", "skipped"):
            name = {"failure": "failures", "error": "errors"}.get(tag, tag)
            self.assertEqual(suite.get(name), str(sum(
                1 for case in cases if case.find(tag) is not None)))
        self.assertEqual(len({case.get("name") for case in cases}),
                         len(cases))
        for case in cases:
            self.assertLessEqual(len([c for c in case if c.tag in (
                "failure", "error", "skipped")]), 1)
            self.assertTrue(case.get("classname") and case.get("time"))
        return suite

    def play(self, failure: str = "", trouble: bool = False, steps: int = 4
             ) -> Verdict:
        """A run of some steps, of which the last one failed or none."""
        verdict = Verdict(not failure, trouble, failure=failure)
        for at in range(steps):
            self.log.add("lab", "step", {"title": self.steps[at].title})
            last = at == steps - 1
            verdict.steps.append(StepResult(self.steps[at], 0.5,
                                            failure if last else ""))
        return verdict

    def test_failure(self) -> None:
        verdict = self.play(f"x.scn:2: no\n{EVIL}", steps=2)
        self.log.add("lab", "explained", {"text": "alice: because"})
        told = self.write(verdict)
        suite = self.suite()
        self.assertEqual((suite.get("failures"), suite.get("errors"),
                          suite.get("skipped")), ("1", "0", "2"))
        case = suite.findall("testcase")[1]
        failure = case.find("failure")
        assert failure is not None and failure.text
        self.assertTrue(failure.text.startswith("x.scn:2: no\n"))
        self.assertIn("alice: because", case.findtext("system-out", ""))
        self.assertIn("in step 2 (Pull):", told[-2])
        self.assertEqual(told[-1], "    alice: because")
        self.assertIn("\nFAILED: x.scn:2: no\n",
                      (self.dir / "timeline.txt").read_text())

    def test_trouble_is_an_error(self) -> None:
        self.write(self.play("guest alice died", True, steps=3))
        suite = self.suite()
        self.assertEqual((suite.get("failures"), suite.get("errors"),
                          suite.get("skipped")), ("0", "1", "1"))

    def test_trouble_before_the_first_step(self) -> None:
        self.write(Verdict(False, True, failure="the fabric died"))
        error = self.suite().findall("testcase")[0].find("error")
        assert error is not None
        self.assertEqual(error.get("message"), "the fabric died")

    def test_passed(self) -> None:
        self.write(self.play())
        suite = self.suite()
        self.assertEqual((suite.get("failures"), suite.get("errors"),
                          suite.get("skipped")), ("0", "0", "0"))
        self.assertIn("PASSED: all 4 steps", suite.findtext("system-out", ""))

    def test_explanations_are_dated(self) -> None:
        verdict = self.play(steps=1)
        for text in ("alice: one", "bob: two"):
            self.log.add("lab", "adapter_report", {"node": text[:3],
                                                   "report": {}})
            self.log.add("lab", "explained", {"text": text})
        more = self.play(steps=2)
        self.log.add("lab", "explained", {"text": "alice: three"})
        verdict.steps += more.steps
        told = self.write(verdict)
        when = [line for line in told if line.startswith("  At ")]
        self.assertEqual(len(when), 2)
        self.assertRegex(when[0], r"^  At \d+\.\d{3} s, in step 1 \(Boot\):$")
        self.assertRegex(when[1], r"^  At \d+\.\d{3} s, in step 3 \(Pull\):$")

    def test_timeline_is_in_the_order_of_time(self) -> None:
        verdict = self.play()
        now = self.log.events[-1].t
        for back in (0.002, 0.0, 0.001, 0.001):
            self.log.add("alice", "mark", {"text": f"{back}"}, now - back)
        self.write(verdict)
        times = [float(line.split()[0]) for line in (
            self.dir / "timeline.txt").read_text().split("\n\n", 1)[1]
            .splitlines() if line[:9].strip().replace(".", "").isdigit()]
        self.assertGreater(len(times), 6)
        self.assertEqual(times, sorted(times))
        again = report.in_order(self.log.since(0))
        self.assertEqual(again, sorted(again, key=lambda e: (e.t, e.seq)))

    def test_hostile_words(self) -> None:
        verdict = self.play(EVIL)
        for source, name in (("alice", "mark"), ("alice", EVIL),
                             ("lab", "explained"), ("lab", "failed"),
                             ("alice/hca", "mig_state"), ("lab", "ran")):
            self.log.add(source, name, {"text": EVIL, "why": EVIL, EVIL: EVIL,
                                        "qpn": EVIL, "node": EVIL})
        told = self.write(verdict)
        self.suite()
        ET.parse(self.dir / "timeline.svg")
        for text in ("\n".join(told), *((self.dir / name).read_text("utf-8")
                     for name in ("timeline.txt", "timeline.svg",
                                  "junit.xml"))):
            for line in text.split("\n"):
                self.assertTrue(line.isprintable(), line[:100])
                self.assertLess(len(line), 10_000)
        kept = [json.loads(line) for line in
                (self.dir / "events.jsonl").read_text().splitlines()]
        self.assertEqual(kept[-1]["data"]["text"], EVIL)
        self.assertEqual([e.data for e in report.read_events(
            self.dir / "events.jsonl")], [one["data"] for one in kept])


class Terminal(unittest.TestCase):
    """What gets to the terminal."""

    def said(self, text: str, coding: str) -> str:
        """What say() prints on a terminal of some encoding."""
        terminal = io.TextIOWrapper(io.BytesIO(), coding)
        with contextlib.redirect_stdout(terminal):
            screen.say(text)
        return terminal.detach().getvalue().decode(coding)

    def test_controls_stay_out(self) -> None:
        self.assertEqual(self.said("a\x1b[2J\r\u202eb\ud800\nc", "utf-8"),
                         "a\\x1b[2J\\r\\u202eb\\ud800\nc\n")

    def test_errors(self) -> None:
        with contextlib.redirect_stderr(io.StringIO()) as told:
            entry.say("guest alice: \x1b[2J\nits console log is x")
        self.assertEqual(told.getvalue(), "guest alice: \\x1b[2J\n"
                         "its console log is x\n")

    def test_terminal_that_cannot_print_it(self) -> None:
        self.assertEqual(self.said("Gr\u00f6\u00dfe", "ascii"),
                         "Gr\\xf6\\xdfe\n")


if __name__ == "__main__":
    unittest.main()
