# SPDX-License-Identifier: GPL-2.0-or-later
"""The scenario reader, the event log and the reports, without any lab."""
import sys
import tempfile
import threading
import unittest
import xml.etree.ElementTree as ET
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts" / "lib"))

from ehcalab import report, scenario  # noqa: E402
from ehcalab.eventlog import EventLog  # noqa: E402
from ehcalab.player import Player, StepResult, Verdict  # noqa: E402

HEAD = "topology t.topo\n"
NOTHING = scenario.Topology(Path("t"), {}, [], {})


class Reader(unittest.TestCase):
    """Every fault of a file is told with its line and the way out."""

    def setUp(self) -> None:
        self.dir = tempfile.TemporaryDirectory()
        self.addCleanup(self.dir.cleanup)
        self.path = Path(self.dir.name) / "x.scn"
        (Path(self.dir.name) / "t.topo").write_text("")

    def read(self, text: str) -> scenario.Scenario:
        self.path.write_text(text)
        return scenario.read(self.path, lambda path: scenario.Topology(
            path, {"alice": 2, "bob": 1, "sm": 1}, ["s1"],
            {"a1": ("alice/1", "s1/1")}))

    def errors(self, text: str) -> list[str]:
        with self.assertRaises(scenario.ScenarioError) as caught:
            self.read(text)
        return str(caught.exception).splitlines()

    def fault(self, line: str, *parts: str) -> None:
        """One bad action on line 3 gives one error there."""
        errors = self.errors(f'{HEAD}step "s"\n{line}\n')
        self.assertEqual(len(errors), 1, errors)
        self.assertTrue(errors[0].startswith(f"{self.path}:3: "), errors)
        for part in parts:
            self.assertIn(part, errors[0])

    def test_good_file(self) -> None:
        one = self.read(
            "title Some words\n" + HEAD + "memory 768\nkernel 6.1\n"
            "never all path_mig\n"
            'step "first"  # comment\n  pull a1\n'
            "fault a1 drop=0.5 delay-ms=3\nfault a1 none\n"
            'repeat 2 as n\nstep "round {n}"\n'
            "expect alice path_mig count={n} within 5\nend\n")
        self.assertEqual(one.title, "Some words")
        self.assertEqual((one.memory, one.kernel), (768, "6.1"))
        self.assertEqual([s.title for s in one.steps],
                         ["first", "round 1", "round 2"])
        fault, none = one.steps[0].actions[1:]
        self.assertEqual((fault.nodes, [str(c) for c in fault.conditions],
                          none.nodes, none.conditions),
                         (["a1"], ["drop=0.5", "delay-ms=3"], ["a1"], []))
        expect = one.steps[2].actions[0]
        self.assertEqual((expect.within, str(expect.conditions[0])),
                         (5.0, "count=2"))
        self.assertEqual(one.never, [(5, ["alice", "bob"], "path_mig")])

    def test_faults(self) -> None:
        self.fault("pul a1", "no action 'pul'", "did you mean 'pull'?")
        self.fault("pull a2", "no cable 'a2'", "a1")
        self.fault("fault a1", "incomplete", "fault CABLE none")
        self.fault("fault drop=1", "incomplete")
        self.fault("fault a1 none drop=1", "incomplete")
        self.fault("fault a2 drop=1", "no cable 'a2'")
        self.fault("fault a1 drp=1", "no fault 'drp'", "'drop'?")
        self.fault("fault a1 drop=1.5", "bad value 'drop=1.5'", "0 to 1")
        self.fault("fault a1 drop=nan", "bad value")
        self.fault("lid alice/1", "incomplete", "lid alice/1 77")
        self.fault("lid alice/3 5", "no port '3'")
        self.fault("lid alice/1 0", "bad LID '0'", "1 to 49151")
        self.fault("lid alice/1 49152", "bad LID")
        self.fault("boot carol", "no guest 'carol'", "alice, bob")
        self.fault("boot sm", "no guest 'sm'")
        self.fault("wait port bob/2 active", "no port '2'", "bob/1")
        self.fault("wait port bob/1 up", "no port state 'up'")
        self.fault("wait bob", "incomplete")
        self.fault("expect alice", "incomplete", "write:")
        self.fault("expect alice qp_eror", "no event 'qp_eror'",
                   "did you mean 'qp_error'?")
        self.fault("expect-none alice/hca path_mig", "no event 'path_mig'")
        self.fault("expect carol path_mig", "nobody is called 'carol'")
        self.fault("expect alice path_mig what", "no condition")
        self.fault("expect alice path_mig within x", "bad time 'x'")
        self.fault("expect-none alice path_mig for nan", "bad time 'nan'")
        self.fault("start sm within 5", "cannot start 'sm within 5'")
        self.fault("on alice go 1:{gid:bob/7}", "no port '7'")
        self.fault("run alice 'ping {gid:bob/7}'", "no port '7'")
        self.fault("sleep -1", "bad time")
        self.fault("sleep", "bad time")
        self.fault("start fabric", "cannot start")
        self.fault("end", "without 'repeat'")

    def test_faults_of_the_head(self) -> None:
        self.assertIn("no 'topology' line", self.errors("title x\n")[0])
        self.assertIn("no topology file",
                      self.errors('topology none.topo\nstep "s"\n')[0])
        self.assertIn("no 'step'", self.errors(HEAD)[0])
        self.assertIn("no kernel", self.errors(HEAD + "kernel 5\n")[0])
        self.assertIn("bad memory", self.errors(HEAD + "memory 1\n")[0])
        self.assertIn("did you mean 'capture'",
                      self.errors(HEAD + "option captur=on\n")[0])
        for option in ("capture=yes", "port-activation=qp1", "sm-sweep=0.01",
                       "sm-sweep=often"):
            self.assertIn(":2: bad value", self.errors(
                f'{HEAD}option {option}\nstep "s"\n')[0])
        self.assertEqual(self.read(
            f'{HEAD}option sm-sweep=0 capture=off\nstep "s"\n').options,
            {"sm-sweep": "0", "capture": "off"})

    def test_all_faults_at_once(self) -> None:
        errors = self.errors(f'{HEAD}step "s"\npull x\nboot y\nsleep z\n')
        self.assertEqual([e.split(":")[1] for e in errors], ["3", "4", "5"])

    def test_too_much(self) -> None:
        for text, part in (
                ("repeat 1000 as i\n" * 3 + 'step "s"\n' + "end\n" * 3,
                 "more than 100000 lines"),
                ("repeat 1000\n" * 5 + "end\n" * 5,
                 "more than 100000 lines"),
                ("repeat 1\n" * 3000 + "end\n" * 3000, "more than 8 ")):
            errors = self.errors(f'{HEAD}step "s"\nsleep 0\n{text}')
            self.assertEqual(len(errors), 1, errors)
            self.assertIn(part, errors[0])
        self.assertEqual(len(self.errors("topology " + "x/" * 3000 + "y\n"
                                         'step "s"\n')), 1)

    def test_ports(self) -> None:
        self.path.write_text(f'{HEAD}step "s"\nboot a b\n')
        with self.assertRaisesRegex(scenario.ScenarioError,
                                    ":3: host b has 3 ports"):
            scenario.read(self.path, lambda path: scenario.Topology(
                path, {"a": 2, "b": 3}, [], {}))

    def test_repeat(self) -> None:
        self.assertIn("'repeat' without 'end'",
                      self.errors(HEAD + "repeat 2\n"
                                  'step "s"\npull a1\n')[0])
        self.assertIn("cannot read",
                      self.errors(HEAD + "repeat 0\n"
                                  'step "s"\nend\n')[0])

    def test_own_scenarios_are_words(self) -> None:
        files = sorted((ROOT / "scenarios").glob("*.scn"))
        self.assertTrue(files)
        for path in files:
            parser = scenario.Parser(path, path.read_text())
            parser.header()
            self.assertEqual(parser.errors, [], path)


class Log(unittest.TestCase):
    """Waiting on the event log."""

    def test_wait_sees_old_and_new(self) -> None:
        log = EventLog()
        log.add("a", "one")
        here = log.position()
        threading.Timer(0.05, lambda: log.add("a", "two")).start()
        found = log.wait(lambda e: e.name == "two", here, 10, lambda: None)
        self.assertIsNotNone(found)
        self.assertIsNone(
            log.wait(lambda e: e.name == "one", here, 0.01, lambda: None))
        self.assertIsNotNone(
            log.wait(lambda e: e.name == "one", 0, 0.01, lambda: None))

    def test_alive_ends_a_wait(self) -> None:
        def dead() -> None:
            raise RuntimeError("gone")
        with self.assertRaises(RuntimeError):
            EventLog().wait(lambda e: False, 0, 10, dead)


class Actions(unittest.TestCase):
    """What the player asks of a lab."""

    def test_all_is_each_guest(self) -> None:
        lab, log = mock.Mock(), EventLog()
        lab.guest.return_value.agent.shell.return_value = mock.Mock(
            code=0, out="fine", err="")
        lab.consumer_status.return_value = {"state": "idle"}
        guests = ["alice", "bob"]
        steps = [scenario.Step(1, "all", [
            scenario.Action(2, "on", [], guests, text="reset"),
            scenario.Action(3, "run", [], guests, text="true"),
            scenario.Action(4, "wait", [], guests, "status", [
                scenario.Condition("state", "=", "idle")])])]
        one = scenario.Scenario(Path("x.scn"), "x", NOTHING, "6.12", 512,
                                steps, [], {})
        verdict = Player(one, lab, log, lambda node: []).play()
        self.assertTrue(verdict.passed, verdict.failure)
        self.assertEqual([c.args for c in lab.consumer.call_args_list],
                         [("alice", "reset"), ("bob", "reset")])
        self.assertEqual([c.args[0] for c in lab.guest.call_args_list],
                         guests)
        self.assertEqual(
            [c.args[0] for c in lab.consumer_status.call_args_list], guests)


class Reports(unittest.TestCase):
    """Failover times and JUnit."""

    def test_failovers(self) -> None:
        log = EventLog()
        log.add("lab", "pull", {"cable": "a1"}, 10.0)
        log.add("alice/hca", "mig_state", {"to": "MIGRATED"}, 10.5)
        log.add("alice", "path_mig", {}, 10.6)
        log.add("alice/hca", "first_payload", {}, 10.7)
        log.add("lab", "pull", {"cable": "a2"}, 20.0)
        log.add("bob", "path_mig", {}, 20.25)
        one, two = report.failovers(log.since(0))
        self.assertEqual((one.cable, one.node), ("a1", "alice"))
        self.assertAlmostEqual(one.path_mig, 0.5)
        self.assertAlmostEqual(one.payload or 0, 0.7)
        self.assertEqual((two.cable, two.node, two.payload),
                         ("a2", "bob", None))

    def test_junit(self) -> None:
        steps = [scenario.Step(1, "a"), scenario.Step(2, "b"),
                 scenario.Step(3, "c")]
        one = scenario.Scenario(Path("x.scn"), "x", NOTHING, "6.12", 512,
                                steps, [], {})
        verdict = Verdict(False, False, [StepResult(steps[0], 1.0),
                                  StepResult(steps[1], 1.0, "x.scn:2: no")],
                          "x.scn:2: no", ["because"])
        with tempfile.TemporaryDirectory() as where:
            report.write_all(Path(where), one, EventLog(), verdict)
            suite = ET.parse(Path(where) / "junit.xml").getroot()
            timeline = (Path(where) / "timeline.txt").read_text()
        self.assertEqual((suite.get("tests"), suite.get("failures"),
                          suite.get("skipped")), ("3", "1", "1"))
        self.assertEqual(suite[1][0].get("message"), "x.scn:2: no")
        self.assertIn("FAILED: x.scn:2: no", timeline)


if __name__ == "__main__":
    unittest.main()
