# SPDX-License-Identifier: GPL-2.0-or-later
"""The scenario reader, the event log and the reports, without any lab."""
import sys
import tempfile
import threading
import unittest
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts" / "lib"))

from ehcalab import scenario  # noqa: E402
from ehcalab.eventlog import EventLog  # noqa: E402
from ehcalab.player import Player  # noqa: E402

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
            "title Some words\n" + HEAD + "memory 768\nkernel 6.1\ncpus 2\n"
            "never all path_mig\n"
            'step "first"  # comment\n  pull a1\n'
            "fault a1 drop=0.5 delay-ms=3\nfault a1 none\n"
            "boot all\nload alice port_act_wait=5\nload bob\n"
            'repeat 2 as n\nstep "round {n}"\n'
            "expect alice path_mig count={n} within 5\nend\n")
        self.assertEqual(one.title, "Some words")
        self.assertEqual((one.memory, one.kernel, one.cpus),
                         (768, "6.1", 2))
        self.assertEqual([s.title for s in one.steps],
                         ["first", "round 1", "round 2"])
        fault, none = one.steps[0].actions[1:3]
        self.assertEqual((fault.nodes, [str(c) for c in fault.conditions],
                          none.nodes, none.conditions),
                         (["a1"], ["drop=0.5", "delay-ms=3"], ["a1"], []))
        expect = one.steps[2].actions[0]
        self.assertEqual((expect.within, str(expect.conditions[0])),
                         (5.0, "count=2"))
        self.assertEqual(one.never, [(6, ["alice", "bob"], "path_mig")])

    def test_good_lines(self) -> None:
        for line in (
                'run alice "for i in 1 2; do echo ${i}; done"',
                'run alice "awk \'{ print }\' /proc/version" lacks "{ }"',
                'run alice "ping {gid:bob/1}" contains ttl',
                "run alice dmesg lacks for", 'note "within 5"', "note braces: { i }",
                "on alice mark within 3",
                "on alice traffic start rate=max dir=in op=write count=0x10",
                "on alice connect service=0x1000 primary=1:{gid:bob/1} "
                "alternate=none dev=ehca0",
                "on alice lap port=2 dgid=fe80::1", "on alice auto",
                "expect alice sa_gid_out gid={gid:bob/1} port>=1",
                "expect alice path_mig state=armed dlid!=3 qpn=0x10005",
                "expect alice bench mb_s>=0.5",
                "expect alice listening service=0x1000",
                "expect fabric node_gone node=bob",
                "expect fabric cable cable=a1 plugged=false",
                "expect-none fabric mad attribute=LAP for 0.5",
                "wait status bob qp.mig=ARMED cm_counters.rx.LAP>=1 "
                "traffic.running=0 within 5"):
            with self.subTest(line):
                self.read(f'{HEAD}step "s"\nboot alice bob\nload alice bob\n'
                          f"{line}\n")

    def test_faults(self) -> None:
        for line, *parts in BAD_ACTIONS:
            with self.subTest(line):
                self.fault(line, *parts)

    def test_faults_of_files(self) -> None:
        for text, *parts in BAD_FILES:
            with self.subTest(text[:60]):
                errors = self.errors(text)
                self.assertEqual(len(errors), 1, errors)
                for part in parts:
                    self.assertIn(part, errors[0])

    def test_order(self) -> None:
        """What cannot be at its place is told with its line."""
        for text, *parts in BAD_ORDER:
            with self.subTest(text):
                errors = self.errors(f'{HEAD}step "s"\n{text}\n')
                self.assertEqual(len(errors), 1, errors)
                for part in parts:
                    self.assertIn(part, errors[0])

    def test_options(self) -> None:
        self.assertEqual(self.read(
            f'{HEAD}option sm-sweep=0 capture=off\nstep "s"\n').options,
            {"sm-sweep": "0", "capture": "off"})

    def test_all_faults_at_once(self) -> None:
        errors = self.errors(f'{HEAD}step "s"\npull x\nboot y\nsleep z\n')
        self.assertEqual([e.split(":")[1] for e in errors], ["3", "4", "5"])
        errors = self.errors(f"titel x\n{HEAD}{HEAD}step x\npull x\n")
        self.assertEqual([e.split(":")[1] for e in errors], ["1", "3", "5"])
        for count, more in ((50, ": and 30 more errors"),
                            (5000, ": and 80 more errors, or even more")):
            errors = self.errors(f'{HEAD}step "s"\n' + "pull x\n" * count)
            self.assertEqual(len(errors), scenario.ERRORS_SHOWN + 1)
            self.assertTrue(errors[-1].endswith(more), errors[-1])

    def test_topology_and_head_at_once(self) -> None:
        """A bad topology does not hide what is wrong above the steps."""
        self.path.write_text("kernel 5\ntopology t.topo\n")

        def bad(path: Path) -> scenario.Topology:
            raise scenario.ScenarioError(f"{path}:7: no; yes")

        with self.assertRaises(scenario.ScenarioError) as caught:
            scenario.read(self.path, bad)
        first, second = str(caught.exception).splitlines()
        self.assertIn(":1: no kernel '5'", first)
        self.assertIn("t.topo:7: no; yes", second)

    def test_too_much(self) -> None:
        for text, part in (
                ("repeat 1000 as i\nrepeat 1000 as j\nrepeat 1000 as k\n"
                 'step "s"\n' + "end\n" * 3, "more than 100000 lines"),
                ("repeat 1000\n" * 5 + "end\n" * 5,
                 "more than 100000 lines"),
                ("repeat 1\n" * 3000 + "end\n" * 3000, "more than 8 ")):
            errors = self.errors(f'{HEAD}step "s"\nsleep 0\n{text}')
            self.assertEqual(len(errors), 1, errors)
            self.assertIn(part, errors[0])
        self.assertEqual(len(self.errors("topology " + "x/" * 3000 + "y\n"
                                         'step "s"\n')), 1)

    def other(self, topology: scenario.Topology, line: str) -> str:
        """The one error that a line gives with another topology."""
        self.path.write_text(f'{HEAD}step "s"\n{line}\n')
        with self.assertRaises(scenario.ScenarioError) as caught:
            scenario.read(self.path, lambda path: topology)
        (error,) = str(caught.exception).splitlines()
        return error

    def test_topologies(self) -> None:
        path = Path("t.topo")
        three = scenario.Topology(path, {"a": 2, "b": 3}, [], {})
        self.assertIn(":3: host b has 3 ports", self.other(three, "boot a b"))
        lonely = scenario.Topology(path, {"sm": 1}, [], {})
        for line in ("boot all", "expect all path_mig", "run all true"):
            self.assertIn(":3: the topology has no guest at all",
                          self.other(lonely, line))
        unmanaged = scenario.Topology(path, {"a": 2}, [], {})
        self.assertIn("no host 'sm'", self.other(unmanaged, "start sm"))
        self.assertIn("nobody is called 'sm'",
                      self.other(unmanaged, "expect sm sm_state"))
        for host in ("all", "fabric", "lab"):
            self.assertIn(f":1: the topology has a host '{host}'", self.other(
                scenario.Topology(path, {host: 1}, [], {}), "sleep 1"))
        self.assertIn(":1: the topology has a cable 'none'", self.other(
            scenario.Topology(path, {}, [], {"none": ("a/1", "b/1")}),
            "sleep 1"))

    def test_bad_files(self) -> None:
        """What is no scenario file at all."""
        for data, part in (
                (b"", ": there is nothing in it"),
                (b" \n\t\n", ": there is nothing in it"),
                (b"title x\ntopo\0logy\n", ":2: the line has a zero byte"),
                (b"title x\ntitle \xff\n", ":2: not UTF-8 text, byte 0xff"),
                (b"#\n" * (1 << 20), ": longer than 1048576 bytes"),
                (HEAD.encode() + b"step \xc2\xa0x\n",
                 ":2: there is a character in the line that cannot be seen, "
                 "U+00A0"),
                (HEAD.encode() + b"step \x1b[31mx\n", "U+001B"),
                (b"title x\r" + HEAD.encode() + b"step x\r", "U+000D")):
            with self.subTest(data[:30]):
                self.path.write_bytes(data)
                with self.assertRaises(scenario.ScenarioError) as caught:
                    scenario.read(self.path, lambda path: NOTHING)
                self.assertTrue(str(caught.exception).splitlines()[0]
                                .startswith(str(self.path)))
                self.assertIn(part, str(caught.exception))
        self.path.unlink()
        self.path.symlink_to("/dev/zero")
        with self.assertRaisesRegex(scenario.ScenarioError, "no regular"):
            scenario.read(self.path, lambda path: NOTHING)
        with self.assertRaisesRegex(scenario.ScenarioError, "cannot be read"):
            scenario.read(self.path.parent / "none", lambda path: NOTHING)

    def test_other_systems_files(self) -> None:
        """Lines that end with CR LF, and a byte order mark, are fine."""
        text = HEAD + 'title "x"\nstep "s"\nsleep 1\n'
        self.path.write_bytes(b"\xef\xbb\xbf"
                              + text.replace("\n", "\r\n").encode())
        one = scenario.read(self.path, lambda path: NOTHING)
        self.assertEqual((one.title, one.steps[0].actions[0].within),
                         ("x", 1.0))

    def test_odd_characters_never_raise(self) -> None:
        for text in ("\u00b2", "\u0663", "1" * 5000, "-1", "1e3", "0x10",
                     "1_0", "nan", "{", "}", "{}", "{gid:}", "=", "==", "\\",
                     "'", "\"", "\ud7ff"):
            for form in ("memory {}", "cpus {}", "repeat {}", "sleep {}", "boot {}",
                         "lid alice/1 {}", "lid alice/{} 1", "fault a1 drop={}",
                         "on alice bench write size={}", "on alice {}",
                         "expect alice path_mig {}", "load alice {}",
                         "expect alice path_mig port={}", "wait port {} up",
                         "wait status alice {}", "run {} {}", "option {}",
                         "never {} {}", "expect {} {} within {}", "{}"):
                line = form.replace("{}", text)
                with self.subTest(line[:60]):
                    for error in self.errors(f'{HEAD}step "s"\n{line}\n'):
                        self.assertRegex(error, r"x.scn:\d+: .*; .")

    def test_own_scenarios_are_words(self) -> None:
        files = sorted((ROOT / "scenarios").glob("*.scn"))
        self.assertTrue(files)
        for path in files:
            parser = scenario.Parser(path)
            parser.split(path.read_text())
            parser.header()
            self.assertEqual(parser.errors, [], path)


# One bad line of a step each, and what must be in its error.
BAD_ACTIONS = (
    # Verbs.
    ("pul a1", "no action 'pul'", "did you mean 'pull'?"),
    ("PULL a1", "no action 'PULL'", "did you mean 'pull'?"),
    ("titel x", "no action 'titel'", "did you mean 'title'?"),
    ("expectnone alice path_mig", "did you mean 'expect-none'?"),
    ("xyzzy", "no action 'xyzzy'", "known: boot, "),
    ("title x", "'title' stands after a 'step'"),
    ("never all path_mig", "'never' stands after a 'step'"),
    ("end", "'end' without 'repeat'"),
    ('note "open', "cannot split the line", "close every quote"),
    # Guests.
    ("boot carol", "no guest 'carol'", "alice, bob"),
    ("boot Bob", "no guest 'Bob'", "did you mean 'bob'?"),
    ("boot sm", "no guest 'sm'"),
    ("boot all bob", "'all' stands alone"),
    ("boot", "incomplete"),
    ("boot alice within 60", "'boot' takes no 'within'", "wait, expect"),
    ("explain", "incomplete"),
    ("start fabric", "cannot start 'fabric'", "start sm"),
    ("start sm within 5", "'start' takes no 'within'"),
    ("kill alice", "cannot kill 'alice'", "kill-guest"),
    ("load alice port_act_wai=3", "no parameter of ib_ehca 'port_act_wai'",
     "did you mean 'port_act_wait'?"),
    ("load alice port_act_wait=soon", "bad value 'soon'",
     "a number from 0 to 4294967295"),
    ("load alice port_act_wait>=3", "no parameter of ib_ehca"),
    ("load alice port_act_wait=1;reboot", "bad value '1;reboot'"),
    ("load port_act_wait=3", "incomplete"),
    # Cables.
    ("pull a2", "no cable 'a2'", "known: a1"),
    ("pull rail-1", "no cable 'rail-1'", "known: a1"),
    ("pull", "incomplete"),
    ("fault a1", "incomplete", "fault CABLE none"),
    ("fault drop=1", "incomplete"),
    ("fault a1 none drop=1", "incomplete"),
    ("fault a2 drop=1", "no cable 'a2'"),
    ("fault a1 drp=1", "no fault 'drp'", "did you mean 'drop'?"),
    ("fault a1 drop=1.5", "bad value '1.5' of fault drop", "from 0 to 1"),
    ("fault a1 drop=nan", "bad value"),
    ("fault a1 drop=.5", "bad value"),
    ("fault a1 drop=1 drop=0", "drop is given twice"),
    ("fault a1 delay=0.5", "delay= without delay-ms="),
    ("lid alice/1", "incomplete", "lid alice/1 77"),
    ("lid alice/3 5", "no port '3'"),
    ("lid alice/1 0", "bad LID '0'", "1 to 49151"),
    ("lid alice/1 49152", "bad LID"),
    ("lid alice/1 \u00b2", "bad LID"),
    # Waiting.
    ("wait port bob/2 active", "no port '2'", "bob/1"),
    ("wait port bob active", "no port ''"),
    ("wait port bob/1 up", "no port state 'up'"),
    ("wait port bob/1 activ", "did you mean 'active'?"),
    ("wait bob", "cannot wait for 'bob'"),
    ("wait prot bob/1 active", "did you mean 'port'?"),
    ("wait status bob", "incomplete"),
    ("wait status bob qp.mgi=ARMED", "status has no field 'qp.mgi'",
     "did you mean 'qp.mig'?"),
    ("wait status bob qp=null", "'qp' of status is an object", "qp.mig"),
    ("wait status bob ports.0.state=ACTIVE", "is a list", "wait port"),
    ("wait status bob qp.mig=ARMD", "bad value 'ARMD'",
     "did you mean 'ARMED'?"),
    ("wait status bob qp.mig>=1", "is no number"),
    ("wait status bob traffic.rx>=many", "bad value 'many'", "number"),
    ("wait status bob traffic.rx>100", "'traffic.rx>100' is no condition"),
    ("wait status bob traffic.rx", "is no condition", "without blanks"),
    ("expect alice", "incomplete", "write:"),
    ("expect alice qp_eror", "no event 'qp_eror'",
     "did you mean 'qp_error'?"),
    ("expect-none alice/hca path_mig", "no event 'path_mig'"),
    ("expect carol path_mig", "nobody is called 'carol'"),
    ("expect sm/hca port_state", "nobody is called 'sm/hca'"),
    ("expect alice path_mig what", "'what' is no condition"),
    ("expect alice path_mig portt=2", "path_mig has no field 'portt'",
     "did you mean 'port'?"),
    ("expect bob path_mig port=2", "bad value '2' of port",
     "a port from 1 to 1"),
    ("expect alice path_mig port=two", "bad value 'two'"),
    ("expect alice path_mig port==2", "bad value '=2'"),
    ("expect alice path_mig port=", "bad value ''"),
    ("expect alice path_mig port=1 port=2", "'port=' stands twice"),
    ("expect alice path_mig qp=7", "no field 'qp'", "did you mean 'qpn'?"),
    ("expect alice lap_error why=tiemout", "did you mean 'timeout'?"),
    ("expect alice reset port=1", "reset has no field 'port'"),
    ("expect alice/hca mig_state cause=retries", "bad value 'retries'"),
    ("expect alice sa_gid_out gid=alice", "bad value 'alice'", "a GID"),
    ("expect alice sa_gid_out gid={gid:bob/2}", "no port '2'"),
    ("expect fabric node_gone node=carol", "bad value 'carol'", "alice"),
    ("expect fabric cable plugged=no", "bad value 'no'", "true, false"),
    ("expect sm sm_state new=master!", "bad value 'master!'"),
    ("expect alice path_mig within x", "bad time 'x'"),
    ("expect alice path_mig within 3601", "bad time", "0 to 3600"),
    ("expect alice path_mig within", "'within' without a time"),
    ("expect alice path_mig for 3", "'expect' takes no 'for'",
     "expect takes 'within'"),
    ("expect-none alice path_mig within 3", "takes no 'within'",
     "expect-none takes 'for'"),
    ("expect-none alice path_mig for nan", "bad time 'nan'"),
    ("expect-none alice path_mig for -1", "bad time '-1'"),
    ("expect-none alice path_mig for 1_0", "bad time '1_0'"),
    ("sleep -1", "bad time"), ("sleep", "bad time"), ("sleep inf", "bad time"),
    ("sleep 2 within 5", "'sleep' takes no 'within'"),
    # Programs.
    ("run alice", "incomplete"),
    ("run alice ibstat contans Active", "'contans' stands behind",
     "did you mean 'contains'?"),
    ("run alice ls -l", "'-l' stands behind the command", "in quotes"),
    ("run alice ibstat contains", "'contains' takes one text"),
    ("run alice ibstat lacks two words", "'lacks' takes one text"),
    ('run alice ibstat lacks ""', "'lacks' takes one text"),
    ('run alice " "', "the command is empty"),
    ("run alice true within 5", "'within' stands behind the command"),
    ("run alice 'ping {gid:bob/7}'", "no port '7'"),
    # What stands in braces.
    ("note {j}", "'{j}' stands for nothing", "{gid:NODE/PORT}"),
    ('step "{n}"', "'{n}' stands for nothing"),
    ("run alice 'ping {gud:bob/1}'", "'{gud:bob/1}' stands for nothing"),
    ("run alice 'ping {gid}'", "'{gid}' stands for nothing"),
    ("run alice 'ping {gid:nobody/1}'", "no guest 'nobody'"),
    ("run alice 'ping {gid:bob/1'", "without '}'"),
    ("run alice \"awk '{print}'\"", "'{print}' stands for nothing",
     "a blank behind it"),
    ("note {gid:bob/1}", "no GID is put in at 'note'", "run"),
    ('step "{gid:bob/1}"', "no GID is put in at 'step'"),
    # The consumer's commands.
    ("on alice", "incomplete"),
    ("on alice go", "no command 'go'", "known: listen, "),
    ("on alice trafic start", "no command 'trafic start'",
     "did you mean 'traffic start'?"),
    ("on alice traffic", "no command 'traffic'", "did you mean 'traffic st"),
    ("on alice traffic start rat=5", "'traffic start' has no word 'rat'",
     "did you mean 'rate'?"),
    ("on alice traffic start rate=fast", "bad value 'fast' of rate",
     "max, or a number from 1 to 1000000"),
    ("on alice traffic start rate=0", "bad value '0'"),
    ("on alice traffic start rate=010", "bad value '010'"),
    ("on alice traffic start rate=5 rate=6", "has 'rate' twice"),
    ("on alice traffic start rate", "'rate' of 'traffic start' has no value"),
    ("on alice traffic start op=Read", "did you mean 'read'?"),
    ("on alice traffic start op=read count=3", "op=read with count="),
    ("on alice traffic stop now", "has no word 'now'", "nothing stands"),
    ("on alice traffic stop within 5", "has no word 'within'"),
    ("on alice listen", "'listen' lacks service="),
    ("on alice listen service=0", "bad value '0'"),
    ("on alice listen service=0x1000 size=63", "64 to 65536"),
    ("on alice connect service=1", "'connect' lacks primary="),
    ("on alice connect service=1 primary={gid:bob/1}", "bad value",
     "1:{gid:bob/1}"),
    ("on alice connect service=1 primary=3:{gid:bob/1}", "bad value",
     "from 1 to 2"),
    ("on alice connect service=1 primary=1:{gid:bob/7}", "no port '7'"),
    ("on alice connect service=1 primary=none", "bad value 'none'"),
    ("on alice connect service=1 primary=1:fe80::1 timeout=32", "1 to 31"),
    ("on alice lap port=1", "'lap' has only one of port= and dgid="),
    ("on alice lap port=3 dgid=fe80::1", "bad value '3'"),
    ("on alice auto migrat=on", "did you mean 'migrate'?"),
    ("on alice auto lap=yes", "bad value 'yes'", "off, on"),
    ("on alice auto mra=30001", "0 to 30000"),
    ("on alice lose count=3", "'lose' lacks kind="),
    ("on alice lose kind=lap", "did you mean 'LAP'?"),
    ("on all lap port=2 dgid=fe80::1", "a port from 1 to 1"),
    ("on alice bench write size=2097152", "1 to 1048576"),
    ("on alice mark " + "x" * 1100, "bytes", "at most 1023"),
)
STEP = 'step "s"\n'
# Whole files with one fault each.
BAD_FILES = (
    ("title x\n", ":1: no 'topology' line"),
    ("topology none.topo\n" + STEP, ":1: no topology file 'none.topo'",
     "did you mean 't.topo'?"),
    ("topology .\n" + STEP, ":1: '.' is a directory"),
    ("topology\n" + STEP, ":1: 'topology' takes one file"),
    ("topology a b\n" + STEP, ":1: 'topology' takes one file"),
    (HEAD, ":1: no 'step' in the file"),
    (HEAD + HEAD + STEP, ":2: 'topology' stands in line 1 already"),
    ("title a\ntitle b\n" + HEAD + STEP, ":2: 'title' stands in line 1"),
    (HEAD + "kernel 6.1\nkernel 6.1\n" + STEP, ":3: 'kernel' stands in"),
    (HEAD + "memory 512\nmemory 512\n" + STEP, ":3: 'memory' stands in"),
    (HEAD + "title\n" + STEP, ":2: 'title' without a text"),
    (HEAD + "kernel 5\n" + STEP, ":2: no kernel '5'"),
    (HEAD + "kernel 6.1 6.12\n" + STEP, ":2: no kernel '6.1 6.12'"),
    (HEAD + "cpus 0\n" + STEP, ":2: bad number of CPUs '0'"),
    (HEAD + "cpus 9\n" + STEP, "1 to 8: cpus 2"),
    (HEAD + "memory 1\n" + STEP, ":2: bad memory size '1'"),
    (HEAD + "memory \u00b2\n" + STEP, ":2: bad memory size"),
    (HEAD + "memory 300\n" + STEP, ":2: bad memory size '300'"),
    (HEAD + "option\n" + STEP, ":2: 'option' without KEY=VALUE"),
    (HEAD + "option capture\n" + STEP, "option 'capture' without a value"),
    (HEAD + "option captur=on\n" + STEP, "did you mean 'capture'"),
    (HEAD + "option capture=yes\n" + STEP, ":2: bad value 'yes'", "on, off"),
    (HEAD + "option port-activation=qp1\n" + STEP, "did you mean 'aqp1'?"),
    (HEAD + "option sm-sweep=0.01\n" + STEP, "seconds from 0.1 to 86400"),
    (HEAD + "option sm-sweep=often\n" + STEP, ":2: bad value 'often'"),
    (HEAD + "option capture=on\noption capture=off\n" + STEP,
     ":3: option capture is given twice"),
    (HEAD + "never all\n" + STEP, ":2: 'never' needs a node and an event"),
    (HEAD + "never all nothing\n" + STEP, ":2: no event 'nothing'"),
    (HEAD + "titel x\n" + STEP, ":2: no action 'titel'",
     "did you mean 'title'?"),
    (HEAD + "sleep 1\n" + STEP, ":2: 'sleep' stands before the first step"),
    (HEAD + "step\n", ":2: a step without a title"),
    (HEAD + STEP + "repeat 2 as i\nsleep 1\nsleep 1\n",
     ":3: 'repeat' without 'end'"),
    (HEAD + STEP + "repeat 2\nrepeat 2\nsleep 1\nend\n",
     ":3: 'repeat' without 'end'"),
    (HEAD + STEP + "repeat 2 as i\nrepeat 2 as i\nend\nend\n",
     ":4: 'i' is the name of a repeat around this one"),
    (HEAD + STEP + "repeat 2\nnote {i}\nend\n",
     ":4: '{i}' stands for nothing"),
    (HEAD + STEP + "repeat 2 as i\nend\nnote {i}\n",
     ":5: '{i}' stands for nothing"),
    (HEAD + STEP + "repeat 2 as i\nnote {j}\nend\n", "{gid:NODE/PORT}, {i}"),
    (HEAD + STEP + "repeat\nend\n", ":3: cannot read 'repeat '"),
    (HEAD + STEP + "repeat 0\nend\n", ":3: cannot read 'repeat 0'"),
    (HEAD + STEP + "repeat 1001\nend\n", "N from 1 to 1000"),
    (HEAD + STEP + "repeat two\nend\n", "cannot read 'repeat two'"),
    (HEAD + STEP + "repeat 2 i\nend\n", "cannot read 'repeat 2 i'"),
    (HEAD + STEP + "repeat 2 as 3\nend\n", "'3' is no name"),
    (HEAD + STEP + "repeat 2 as gid\nend\n", "'gid' is no name"),
    (HEAD + STEP + "repeat 2 as i\nend i\n", "'end' takes no words"),
    (HEAD + "repeat 2\nnever all path_mig\n" + STEP + "end\n",
     ":3: 'never' stands after a 'repeat'"),
    (HEAD + STEP + "repeat 3 as i\npull a{i}\nend\n",
     ":4: the topology has no cable 'a2'"),
)
UP = "boot alice bob\n"
BAD_ORDER = (
    ("load alice", ":3: guest alice does not run here", "boot alice"),
    ("on alice reset", ":3: guest alice does not run here"),
    ("shutdown bob", ":3: guest bob does not run"),
    ("wait port bob/1 active", ":3: guest bob does not run"),
    (UP + "wait port bob/1 active", ":4: guest bob has no driver loaded"),
    (UP + "on alice reset", ":4: guest alice has no driver loaded here",
     "load alice"),
    (UP + "load alice\nrun alice 'ping {gid:bob/1}'",
     ":5: guest bob has no driver loaded"),
    (UP + "load alice\nunload alice\non alice reset",
     ":6: guest alice has no driver"),
    (UP + "load alice\nunload alice\nunload alice",
     ":6: guest alice has no driver"),
    (UP + "unload bob", ":4: guest bob has no driver loaded here"),
    (UP + "boot bob", ":4: guest bob runs already, booted in line 3"),
    ("boot bob bob", ":3: guest bob runs already"),
    (UP + "kill-guest bob\nrun bob true", ":5: guest bob does not run"),
    (UP + "load bob\nkill-guest bob\nboot bob\non bob reset",
     ":7: guest bob has no driver"),
    (UP + "expect bob connected", ":4: the consumer of bob was never loaded"),
    ("expect bob booted", ":3: guest bob was never booted"),
    ("expect bob/hca port_state", ":3: guest bob was never booted"),
    ("expect sm sm_state", ":3: the subnet manager was never started"),
    ("stop sm", ":3: the subnet manager does not run here"),
    ("start sm\nstart sm", ":4: the subnet manager runs already"),
    ("start sm\nkill sm\nstop sm", ":5: the subnet manager does not run"),
    (UP + "load all\nlid alice/1 7", ":5: no subnet manager has run yet"),
    (UP + "load all\nstart sm\nlid alice/1 7",
     ":6: the subnet manager runs here"),
    ("repeat 3\nboot bob\nend", ":4: guest bob runs already, booted in "
     "line 4"),
)


class Conditions(unittest.TestCase):
    """Whether a condition holds does not depend on how a value is written."""

    def test_holds(self) -> None:
        data = {"port": 2, "state": "ARMED", "up": True, "mb_s": 1.5,
                "gid": "fe80:0000:0000:0000:0002:c903:0000:0001",
                "service": "0x1000", "qp": {"mig": "REARM"}, "none": None}
        for key, op, value, good in (
                ("port", "=", "2", True), ("port", "=", "02", True),
                ("port", "!=", "3", True), ("port", ">=", "2", True),
                ("port", "<=", "1", False), ("state", "=", "armed", True),
                ("up", "=", "true", True), ("mb_s", ">=", "1", True),
                ("gid", "=", "fe80::2:c903:0:1", True),
                ("gid", "!=", "fe80::2:c903:0:1", False),
                ("service", "=", "0x01000", True),
                ("qp.mig", "=", "REARM", True), ("qp.mig", ">=", "1", False),
                ("none", "=", "x", False), ("none.x", "!=", "x", False),
                ("other", "!=", "x", False)):
            with self.subTest((key, op, value)):
                self.assertEqual(
                    scenario.Condition(key, op, value).holds(data), good)


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


if __name__ == "__main__":
    unittest.main()
