# SPDX-License-Identifier: GPL-2.0-or-later
"""Every event has words; whatever an event carries, a line comes out."""
import ast
import re
import socket
import threading
import unittest
from unittest import mock

import made

from ehcalab import clean, eventlog, events, timeline
from ehcalab.eventlog import Event, EventLog
from ehcalab.lab import Lab
from ehcalab.timeline import Teller
from ehcalab.values import Where

KINDS = {"guest": {*events.CONSUMER, *events.RUNNER},
         "hca": set(events.ADAPTER), "fabric": set(events.FABRIC),
         "sm": set(events.SM)}
SOURCES = {"lab": "lab", "fabric": "fabric", "sm": "sm", "hca": "alice/hca",
           "guest": "alice"}
BAD = ["\x1b[2J\x1b]0;x\x07", "a\0b", "\u202egnp.exe", "\ud800", "\u2028",
       "x" * 100_000, -1, 2 ** 4000, 1e400, float("nan"), True, None,
       {"a": {"b": [1]}}, [], "{port}", "{0.__class__}", ""]


def lab_events() -> set[str]:
    """What the runner's sources put into the log as "lab"."""
    found = set()
    for path in (made.ROOT / "scripts" / "lib" / "ehcalab").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and len(node.args) > 1 and \
                    getattr(node.func, "attr", "") == "add" and \
                    isinstance(node.args[0], ast.Constant) and \
                    node.args[0].value == "lab":
                found |= {c.value for c in ast.walk(node.args[1])
                          if isinstance(c, ast.Constant)
                          and isinstance(c.value, str)}
    return found


def fields(words: timeline.Words) -> set[str]:
    """The fields that a form asks for."""
    form = words if isinstance(words, str) else words({})
    return set(re.findall(r"\{(\w+)", form))


class Words(unittest.TestCase):
    """The tables against the lists of all events."""

    def test_every_event_has_words(self) -> None:
        for kind, names in KINDS.items():
            self.assertEqual(names - set(timeline.TABLES[kind]), set(), kind)

    def test_every_act_of_the_runner_has_words(self) -> None:
        self.assertIn("pull", lab_events())
        self.assertEqual(lab_events() - set(timeline.LAB), set())

    def test_no_words_of_what_is_not(self) -> None:
        for kind, names in KINDS.items():
            self.assertEqual(set(timeline.TABLES[kind]) - names, set(), kind)
        for kind, name in timeline.QUIET:
            self.assertIn(name, timeline.TABLES[kind])

    def test_words_ask_for_fields_that_are(self) -> None:
        for kind, table in (("guest", {**events.CONSUMER, **events.RUNNER}),
                            ("hca", events.ADAPTER), ("sm", events.SM),
                            ("fabric", events.FABRIC)):
            for name, known in table.items():
                self.assertEqual(
                    fields(timeline.TABLES[kind][name]) - set(known), set(),
                    f"{kind} {name}")

    def test_parts_words_have_peoples(self) -> None:
        for kind, known in (
                ("by", timeline.WORDS["by"]), ("dir", timeline.WORDS["dir"]),
                ("stop_by", timeline.WORDS["by"]),
                ("rail", timeline.WORDS["rail"]),
                ("mig_why", timeline.WORDS["why"]),
                ("lap_why", timeline.LAP_ERRORS)):
            choices = events.KINDS[kind].choices(Where())
            self.assertTrue(choices)
            self.assertEqual(set(choices) - set(known), set(), kind)

    def test_any_value(self) -> None:
        for kind, table in timeline.TABLES.items():
            for name, words in table.items():
                asked = fields(words) | {"errno", "text", "gid", "reason",
                                         "expected", "failure", "why", "lost"}
                for value in BAD:
                    line = Teller().line(Event(
                        0.0, SOURCES[kind], name, dict.fromkeys(asked, value)
                        ), 0.0, everything=True)
                    assert line is not None
                    shown = line.removeprefix("\n")
                    self.assertTrue(shown.isprintable(), (kind, name, value))
                    self.assertLess(len(shown), 20 * clean.LINE_MAX)

    def test_event_that_nobody_has(self) -> None:
        line = Teller().line(Event(0.0, "alice", "\x1b[2J", {"\0": "\r"}),
                             0.0)
        assert line is not None
        self.assertTrue(line.isprintable())

    def test_deep_value(self) -> None:
        deep: list = []
        for _ in range(100_000):
            deep = [deep]
        self.assertEqual(clean.clean(deep), "<list>")


class People(unittest.TestCase):
    """Numbers in people's words."""

    def setUp(self) -> None:
        self.teller = Teller()
        run = made.Run()
        run.start()
        for event in run.events:
            self.teller.learn(event)

    def said(self, source: str, name: str, **data: object) -> str:
        """What is told of an event."""
        return self.teller.words(Event(0.0, source, name, data))

    def test_notices_of_two_ports_differ(self) -> None:
        gid = made.gid("alice", 1)
        first, second = (self.said("bob", "sa_gid_out", port=port, gid=gid)
                         for port in (1, 2))
        self.assertEqual(first, "SA notice on port 1: alice port 1 "
                         "(fe80::2:55ef:45c3:b801) is OUT of service")
        self.assertNotEqual(first, second)

    def test_long_gid(self) -> None:
        self.assertIn("port 1: trap 65 (GID out of service): alice port 1 "
                      "(fe80::2:55ef:45c3:b801)",
                      self.said("sm", "sm_report_sent", trap=65, to="bob",
                                to_port=1, gid="fe80:0000:0000:0000:0002:"
                                "55ef:45c3:b801"))

    def test_gid_of_nobody(self) -> None:
        self.assertIn("on port 1: fe80::9 is", self.said(
            "bob", "sa_gid_in", port=1, gid="fe80::9"))

    def test_no_alternate(self) -> None:
        said = self.said("bob", "connected", qpn=1, port=1, alt_port=0)
        self.assertIn("no alternate path", said)
        self.assertNotIn("alternate port 0", said)

    def test_lid_errno_trap_cause(self) -> None:
        self.assertIn("LID 6 (bob port 1)", self.said(
            "alice/hca", "alt_loaded", qpn=1, port=1, dlid=6))
        self.assertIn("EAGAIN", self.said("alice", "path_retry", errno=11))
        self.assertIn("(packet with MigReq 1)", self.said(
            "bob/hca", "mig_state", cause="packet_with_migreq_1"))
        self.assertIn("up to 4295 ms", self.said(
            "bob", "mra_received", service_timeout=20))

    def test_traffic_stopped(self) -> None:
        self.assertIn("none lost", self.said("bob", "traffic_stopped"))
        self.assertIn("; 3 lost, 1 corrupt", self.said(
            "bob", "traffic_stopped", lost=3, corrupt=1, dup=0))

    def test_faults(self) -> None:
        self.assertEqual(self.said("lab", "fault", cable="a"),
                         "FAULT on cable a: none")
        self.assertEqual(self.said("lab", "fault", cable="a", drop=0.5,
                                   **{"delay-ms": 3.0}),
                         "FAULT on cable a: drop 0.5 delay-ms 3.0")

    def test_steps_are_numbered(self) -> None:
        teller = Teller()
        lines = [teller.line(Event(1.0, "lab", "step", {"title": title}), 0.0)
                 for title in ("Boot", "Pull")]
        self.assertEqual(lines[1], "\n    1.000  == Step 2: Pull")


class Clock(unittest.TestCase):
    """An event's time lies between the beginning and now."""

    def test_times_that_cannot_be(self) -> None:
        log = EventLog()
        for t in (0.0, -1e300, float("nan"), float("inf"), 1e300):
            event = log.add("alice", "mark", {}, t)
            self.assertLessEqual(log.started, event.t)
            self.assertLess(event.t, log.started + 60)


class Lines(unittest.TestCase):
    """What a guest's consumer, or who pretends to be it, writes."""

    BAD = [b"", b"\n", b"null", b"[]", b"7", b"{}", b'{"event":"x"}',
           b'{"event":7,"t_real_ns":1}', b'{"event":"x","t_real_ns":NaN}',
           b'{"event":"x","t_real_ns":1e999}', b"[" * 60000, b"\xff\xfe\n",
           b'{"event":"x","t_real_ns":-1}', b'{"event":"x","t_real_ns":"1"}',
           b'{"event":"x","t_real_ns":' + b"9" * 4000 + b"}",
           b'{"event":"x","t_real_ns":' + b"9" * 5000 + b"}"]

    def test_bad(self) -> None:
        for line in self.BAD:
            with self.assertRaises(ValueError, msg=line[:60]):
                eventlog.event_of(line)

    def test_good(self) -> None:
        self.assertEqual(eventlog.event_of(
            b'{"seq":1,"t_real_ns":1500000000,"t_ns":7,"event":"mark"}\n'),
            ("mark", 1.5, {"seq": 1}))

    def test_reader_outlives_bad_lines_and_a_flood(self) -> None:
        log = EventLog()
        lab = Lab.__new__(Lab)
        lab.log = log
        guest = mock.Mock(node="alice", offset=0.0)
        ours, theirs = socket.socketpair()
        good = b'{"t_real_ns":1,"event":"mark"}\n'
        thread = threading.Thread(target=lab._guest_events,
                                  args=(guest, ours))
        with mock.patch("ehcalab.lab.EVENT_BYTES_MAX", 200_000), ours:
            thread.start()
            for line in self.BAD:
                theirs.sendall(line + b"\n")
            theirs.sendall(good * 20_000)
            theirs.close()
            thread.join(30)
        self.assertFalse(thread.is_alive())
        names = [event.name for event in log.events]
        self.assertIn("mark", names)
        self.assertIn("not taken", log.events[-1].data["line"])
        self.assertLess(len(names), 10_000)


if __name__ == "__main__":
    unittest.main()
