# SPDX-License-Identifier: GPL-2.0-or-later
"""The player: what it says when a scenario does not come true."""
import signal
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts" / "lib"))

from ehcalab import player, scenario  # noqa: E402
from ehcalab.eventlog import EventLog  # noqa: E402
from ehcalab.jsonsock import ControlError  # noqa: E402
from ehcalab.player import Player, Verdict  # noqa: E402
from ehcalab.process import LabError  # noqa: E402
from ehcalab.qga import StillRuns  # noqa: E402
from ehcalab.stop import Stopped  # noqa: E402

NOTHING = scenario.Topology(Path("t"), {}, [], {})


class Case(unittest.TestCase):
    """A player with a lab that does what a test says."""

    def setUp(self) -> None:
        self.dir = tempfile.TemporaryDirectory()
        self.addCleanup(self.dir.cleanup)
        self.log = EventLog()
        self.lab = mock.Mock(dir=Path(self.dir.name), guests={"alice": 1})
        self.lab.with_gids.side_effect = lambda text: text.replace(
            "{gid:bob/1}", "fe80::1")
        self.explained: list[str] = []

    def play(self, *actions: scenario.Action, **more: Any) -> Verdict:
        """Play one step, then a second that does nothing."""
        steps = [scenario.Step(1, "one", list(actions)),
                 scenario.Step(9, "two", [])]
        one = scenario.Scenario(Path("x.scn"), "x", NOTHING, "6.12", 512,
                                steps, more.get("never", []), {})

        def explain(node: str) -> list[str]:
            self.explained.append(node)
            return [f"{node}: because"]

        return Player(one, self.lab, self.log, explain).play()

    def failed(self, *parts: str, word: str = "FAILED") -> None:
        """The verdict is this one, and its text has these parts."""
        self.assertEqual(self.verdict.word, word, self.verdict.failure)
        self.assertEqual(self.verdict.steps[-1].failure, self.verdict.failure)
        self.assertEqual(len(self.verdict.steps), 1)
        for part in parts:
            self.assertIn(part, self.verdict.failure)
        # No Python object is shown to a person.
        self.assertNotIn("{'", self.verdict.failure)


def action(line: int, verb: str, node: str = "alice", **more: Any
           ) -> scenario.Action:
    """An action on one node."""
    return scenario.Action(line, verb, [], [node], **more)


class Refusals(Case):
    """The consumer refuses a command."""

    def test_reason(self) -> None:
        def refuse(node: str, _command: str) -> None:
            # Of others, and of an earlier one, nothing is told.
            self.log.add("bob", "command", {"errno": 16, "word": "bob"})
            self.log.add(node, "command", {"errno": 0})
            self.log.add(node, "command", {
                "cmd": "traffic start", "errno": 107, "word": "state",
                "value": "idle", "expected": "connected"})
            raise LabError("alice: the consumer refused 'traffic start': ")

        self.log.add("alice", "command", {"errno": 22, "word": "early"})
        self.lab.consumer.side_effect = refuse
        self.verdict = self.play(action(5, "on", text="traffic start"))
        self.failed("x.scn:5: alice: the consumer refused 'traffic start': "
                    "ENOTCONN", "word 'state', value 'idle', expected: "
                    "connected")
        self.assertFalse(self.verdict.trouble)
        self.assertEqual(self.explained, ["alice"])

    def test_no_reason(self) -> None:
        """Without the event it is the lab that is in trouble."""
        self.lab.consumer.side_effect = LabError("alice: no such file")
        with mock.patch.object(player, "REFUSAL_PATIENCE", 0.01):
            self.verdict = self.play(action(5, "on", text="reset"))
        self.failed("x.scn:5: alice: no such file", word="TROUBLE")


class Programs(Case):
    """`run`: what of the output is shown."""

    def run_with(self, output: str, check: str = "", target: str = "",
                 code: int = 0) -> None:
        self.lab.guest.return_value.agent.shell.return_value = mock.Mock(
            code=code, out=output, err="")
        self.verdict = self.play(action(4, "run", text="prog", check=check,
                                        target=target))

    def test_good(self) -> None:
        for check, target in (("contains", "b"), ("lacks", "d"), ("", "")):
            self.run_with("a\nb\nc\n", check, target)
            self.assertEqual(self.verdict.word, "PASSED")

    def test_contains(self) -> None:
        self.run_with("".join(f"line {n}\n" for n in range(1, 101)),
                      "contains", "nothing")
        path = Path(self.dir.name) / "alice.line-4.txt"
        self.failed("'prog': its output does not contain 'nothing'; 100 "
                    f"lines, all in {path}:", " 1  line 1\n", "line 8\n",
                    "... 84 more lines ...", "93  line 93\n", "line 100")
        self.assertNotIn("line 50", self.verdict.failure)
        self.assertIn("line 50\n", path.read_text())
        # The screen's line has no line ends; the end of the run tells all.
        failed = [e for e in self.log.since(0) if e.name == "failed"]
        self.assertNotIn("\n", failed[0].data["why"])
        self.assertIn("line 8", failed[0].data["details"])

    def test_short_output(self) -> None:
        self.run_with("one\ntwo", "contains", "nothing")
        self.failed("2 lines", "one", "two")
        self.assertNotIn("more lines", self.verdict.failure)
        self.run_with("", "contains", "nothing")
        self.failed("; it has no output")

    def test_lacks(self) -> None:
        self.run_with("".join(f"line {n}\n" for n in range(1, 101)),
                      "lacks", "line 5")
        self.failed("its output contains 'line 5', in 11 of 100 lines",
                    "... 2 more lines ...\n        3  line 3\n",
                    "  >     5  line 5\n", "        7  line 7\n",
                    "... 40 more lines ...", "  >    50  line 50\n",
                    "  >    53  line 53\n", "... 47 more lines ...")
        self.assertNotIn("line 20", self.verdict.failure)

    def test_too_long(self) -> None:
        """The guest is fine: no trouble of the lab."""
        self.lab.guest.return_value.agent.shell.side_effect = StillRuns("x")
        self.verdict = self.play(action(4, "run", text="sleep 99"))
        self.failed("x.scn:4: alice: 'sleep 99' did not end within 60 s")

    def test_status(self) -> None:
        self.run_with("\x1b[31mred\n" + "x" * 1000, code=2)
        self.failed("'prog' ended with status 2; 2 lines", "\\x1b[31mred")
        self.assertLess(len(self.verdict.failure), 700)


class Status(Case):
    """`wait status`: what differs comes first, in words."""

    def test_words(self) -> None:
        self.lab.consumer_status.return_value = {
            "state": "connected", "t_ns": 5, "qp": {"mig": "REARM", "qpn": 7},
            "traffic": {"rx": 0}, "ports": [{"port": 1}],
            "cm_counters": {"rx": {"LAP": 0, "REQ": 1}}}
        self.verdict = self.play(action(
            4, "wait", target="status", within=0, conditions=[
                scenario.Condition("qp.mig", "=", "ARMED"),
                scenario.Condition("traffic.rx", ">=", "5"),
                scenario.Condition("old.port", "=", "1"),
                scenario.Condition("state", "=", "connected")]))
        self.failed("waited 0 s in vain: the status of alice is not that:\n"
                    "    qp.mig=REARM, wanted qp.mig=ARMED\n"
                    "    traffic.rx=0, wanted traffic.rx>=5\n"
                    "    old.port is not there, wanted old.port=1\n"
                    "    the rest: state=connected qp.qpn=7 "
                    "cm_counters.rx.REQ=1")

    def test_gid(self) -> None:
        self.lab.consumer_status.return_value = {"path": {"gid": "fe80:0::1"}}
        self.verdict = self.play(action(
            4, "wait", target="status", within=0, conditions=[
                scenario.Condition("path.gid", "=", "{gid:bob/1}")]))
        self.assertEqual(self.verdict.word, "PASSED")


class Events(Case):
    """`expect`, `expect-none` and `never`."""

    def expect(self, *values: str) -> None:
        self.verdict = self.play(*(action(
            n, "expect", target="path_mig", within=0, conditions=[
                scenario.Condition("port", "=", value)])
            for n, value in enumerate(values, 2)))

    def test_near_miss(self) -> None:
        self.lab.check.side_effect = lambda: self.log.add(
            "alice", "path_mig", {"port": 2, "state": "ARMED"})
        self.expect("1")
        self.failed("alice did not have 'path_mig port=1' within 0 s",
                    "it had path_mig port=2 state=ARMED")

    def test_taken(self) -> None:
        events = [{"port": 2}]
        self.lab.check.side_effect = lambda: events and self.log.add(
            "alice", "path_mig", events.pop())
        self.expect("2", "2")
        self.failed("x.scn:3: ", "it had 1 such, but each was taken by an "
                    "earlier expect")

    def test_none(self) -> None:
        self.expect("1")
        self.failed("its events in this step: none")

    def test_unwanted(self) -> None:
        self.lab.check.side_effect = lambda: self.log.add(
            "alice", "path_mig", {"port": 2})
        self.verdict = self.play(action(3, "expect-none", target="path_mig",
                                        within=0))
        self.failed("x.scn:3: alice had 'path_mig', which must not happen in "
                    "this step: port=2")
        self.verdict = self.play(action(3, "note", text="x"),
                                 never=[(7, ["alice"], "path_mig")])
        self.failed("x.scn:7: alice had 'path_mig', which this scenario "
                    "never allows: port=2")


class Ends(Case):
    """Whatever ends a scenario, there is a verdict."""

    def end_with(self, exc: BaseException) -> None:
        self.lab.boot.side_effect = exc
        self.verdict = self.play(action(3, "boot"))

    def test_signal(self) -> None:
        self.end_with(Stopped(signal.SIGTERM))
        self.failed("x.scn:3: stopped by SIGTERM", word="INTERRUPTED")
        assert self.verdict.stopped is not None
        self.assertEqual(self.verdict.stopped.status, 143)
        # Who wants to get out does not wait for explanations.
        self.assertEqual(self.explained, [])

    def test_signal_while_explaining(self) -> None:
        """The failure is told all the same, and the program ends."""
        with mock.patch.object(Player, "_explain",
                               side_effect=Stopped(signal.SIGINT)):
            self.end_with(LabError("the fabric died"))
        self.failed("x.scn:3: the fabric died", word="TROUBLE")
        assert self.verdict.stopped is not None
        self.assertEqual(self.verdict.stopped.status, 130)

    def test_fault_of_ours(self) -> None:
        self.end_with(KeyError("ports"))
        self.failed("x.scn:3: a fault of ehcalab itself", "Traceback",
                    "KeyError: 'ports'", word="TROUBLE")

    def test_full_disk(self) -> None:
        self.end_with(OSError(28, "No space left on device", "lab.json"))
        self.failed("x.scn:3: lab.json: No space left on device",
                    word="TROUBLE")
        self.assertNotIn("Traceback", self.verdict.failure)

    def test_deaf_guest(self) -> None:
        self.lab.trouble.side_effect = lambda exc: LabError(
            f"{exc}; its console log is there")
        self.end_with(ControlError("guest agent of alice is gone"))
        self.failed("is gone; its console log is there", word="TROUBLE")

    def test_hung_fabric(self) -> None:
        self.lab.check_fabric.side_effect = LabError(
            "the fabric did not answer; its log is there")
        self.end_with(player.Failed("alice did not have 'path_mig'"))
        self.failed("the fabric did not answer", word="TROUBLE")

    def test_explanation_fails(self) -> None:
        with mock.patch.object(Player, "_explain", side_effect=KeyError(1)):
            self.end_with(LabError("the fabric died"))
        self.failed("x.scn:3: the fabric died", word="TROUBLE")


if __name__ == "__main__":
    unittest.main()
