# SPDX-License-Identifier: GPL-2.0-or-later
"""The lab that stays, without QEMU: who runs, who is asked, who is stopped."""
from __future__ import annotations

import contextlib
import io
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts" / "lib"))

from ehcalab import jsonsock, lab, paths, process, stop  # noqa: E402
from ehcalab.eventlog import EventLog  # noqa: E402
from ehcalab.process import Adopted, LabError  # noqa: E402
from ehcalab.scenario import Topology  # noqa: E402

# As far as a Lab can tell, the fabric, the subnet manager.
FABRIC = """#!/usr/bin/python3 -I
import socket, sys, time
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[sys.argv.index("--control") + 1])
listener.listen()
while True:
    listener.accept()
"""
SLEEPER = "#!/bin/sh\nexec sleep 1000\n"


class Scratch(unittest.TestCase):
    """A test with a directory of its own."""

    def setUp(self) -> None:
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.dir = Path(scratch.name)


class Sockets(Scratch):
    """Connecting to what serves one at a time, or nobody."""

    def setUp(self) -> None:
        super().setUp()
        self.path = self.dir / "sock"
        self.listener = socket.socket(socket.AF_UNIX)
        self.addCleanup(self.listener.close)
        self.listener.bind(str(self.path))
        self.listener.listen(1)

    def connect(self) -> socket.socket:
        sock = jsonsock.connect(self.path)
        self.addCleanup(sock.close)
        return sock

    def test_served(self) -> None:
        self.connect()
        taken, _ = self.listener.accept()
        self.addCleanup(taken.close)
        self.assertEqual(jsonsock.busy(self.path), "")

    def test_second_one(self) -> None:
        self.test_served()
        self.connect()
        self.assertEqual(jsonsock.busy(self.path, 0),
                         "another one is connected")

    def test_nobody_takes_us(self) -> None:
        self.connect()
        self.assertEqual(jsonsock.busy(self.path, 0), "it takes no connection")

    def test_full_queue_is_not_waited_for(self) -> None:
        with self.assertRaisesRegex(OSError, "takes no connection"):
            for _ in range(10):
                self.connect()


class Processes(Scratch):
    """A process of another's is known by more than its number."""

    def child(self, *argv: str) -> subprocess.Popen[bytes]:
        child = subprocess.Popen(argv, process_group=0)
        self.addCleanup(child.wait)
        self.addCleanup(child.kill)
        return child

    def record(self, pid: int, later: int = 0) -> dict:
        since = process.started(pid)
        assert since is not None
        return {"pid": pid, "started": since + later, "log": "x.log"}

    def test_runs_then_ends(self) -> None:
        child = self.child("sleep", "1000")
        adopted = Adopted("it", self.record(child.pid))
        self.assertEqual(adopted.ended(), "")
        adopted.stop()
        self.assertEqual(adopted.ended(), "has ended")
        with self.assertRaisesRegex(LabError, "it has ended.*x.log"):
            adopted.check()

    def test_number_of_another(self) -> None:
        child = self.child("sleep", "1000")
        adopted = Adopted("it", self.record(child.pid, later=1))
        self.assertEqual(adopted.ended(), "has ended")
        adopted.stop()
        self.assertIsNone(child.poll())

    def test_never_known(self) -> None:
        child = self.child("true")
        child.wait()
        gone = {"pid": child.pid, "started": None, "log": ""}
        self.assertEqual(Adopted("it", gone).ended(), "has ended")

    def test_group_ends_whole(self) -> None:
        child = self.child("sh", "-c", "trap '' TERM; sleep 1000 & wait")
        while len(process.group_members(child.pid)) < 2:
            time.sleep(0.01)
        process.stop_group(child, 0.2)
        self.assertEqual(process.group_members(child.pid), [])

    def test_signals_without_a_name(self) -> None:
        self.assertEqual(process.how_it_ended(-9), "was killed by SIGKILL")
        self.assertEqual(process.how_it_ended(-40), "was killed by signal 40")


class Hints(Scratch):
    """What a message proposes can be copied."""

    def setUp(self) -> None:
        super().setUp()
        without = {k: v for k, v in os.environ.items() if k != "EHCALAB_BUILD"}
        patch = mock.patch.dict(os.environ, without, clear=True)
        patch.start()
        self.addCleanup(patch.stop)

    def test_from_anywhere(self) -> None:
        here = os.getcwd()
        self.addCleanup(os.chdir, here)
        for place in (ROOT, ROOT / "scripts", ROOT / "docs", self.dir):
            os.chdir(place)
            subprocess.run(["sh", "-c", f"test -x {paths.script('setup')}"],
                           check=True)

    def test_directory_is_gone(self) -> None:
        here = os.getcwd()
        self.addCleanup(os.chdir, here)
        gone = self.dir / "gone"
        gone.mkdir()
        os.chdir(gone)
        gone.rmdir()
        self.assertEqual(paths.script("setup"),
                         shlex.quote(str(ROOT / "scripts/setup")))

    def test_lab_is_named(self) -> None:
        self.assertNotIn("--lab", lab.command_for(lab.LAB_DIR, "down"))
        self.assertTrue(lab.command_for(Path("/a b"), "ssh", "alice")
                        .endswith("ehcalab ssh --lab '/a b' alice"))

    def test_build_directory_is_named(self) -> None:
        with mock.patch.dict(os.environ, EHCALAB_BUILD="/x y"):
            self.assertTrue(paths.script("setup", "qemu").startswith(
                "EHCALAB_BUILD='/x y' "))


class Ends(Scratch):
    """How a guest ended, by its logs."""

    def told(self, console: str, qemu: str = "") -> str:
        (self.dir / "console").write_text(console)
        (self.dir / "qemu").write_text(qemu)
        return lab.how_guest_ended({"console_log": str(self.dir / "console"),
                                    "log": str(self.dir / "qemu")})

    def test_panic(self) -> None:
        self.assertIn("Kernel panic - not syncing: x", self.told(
            "a\n[ 1.0] Kernel panic - not syncing: x\nreboot: Power down\n"))

    def test_power_down(self) -> None:
        self.assertIn("Power down", self.told("[ 1.0] reboot: Power down\n"))

    def test_qemu_says(self) -> None:
        self.assertIn("no port", self.told("boots\n", "qemu: no port\n"))

    def test_nobody_says(self) -> None:
        self.assertIn("killed or crashed", self.told("boots\n"))
        self.assertIn("killed or crashed", lab.how_guest_ended(
            {"console_log": "/nowhere", "log": "/nowhere"}))


class Labs(Scratch):
    """A lab is stopped, or stands and is taken over."""

    def setUp(self) -> None:
        super().setUp()
        for name, text in (("FABRIC_BIN", FABRIC), ("SM_BIN", SLEEPER)):
            program = self.dir / name
            program.write_text(text)
            program.chmod(0o755)
            patch = mock.patch.object(lab, name, program)
            patch.start()
            self.addCleanup(patch.stop)
        for signum in stop.SIGNALS:
            self.addCleanup(signal.signal, signum, signal.getsignal(signum))
        self.run_dir = self.dir / "lab"
        self.topology = Topology(self.dir / "t.topo", {"alice": 1, "sm": 1},
                                 [], {"c": ("alice/1", "sm/1")})

    def lab(self, detached: bool = True) -> lab.Lab:
        one = lab.Lab(self.topology, self.run_dir, EventLog(),
                      detached=detached)
        self.addCleanup(one.close)
        one.start_fabric()
        return one

    def standing(self) -> lab.Lab:
        one = lab.Lab.standing(self.run_dir, EventLog())
        self.addCleanup(one.close)
        return one

    def state(self) -> dict:
        return json.loads((self.run_dir / "lab.json").read_text())

    def gone(self, record: dict) -> bool:
        return bool(Adopted("it", record).ended())

    def test_close_stops_all(self) -> None:
        one = self.lab()
        one.start_sm()
        state = self.state()
        one.close()
        self.assertTrue(self.gone(state["fabric"]) and self.gone(state["sm"]))
        self.assertFalse(Path(state["sockets"]).exists())
        self.assertFalse((self.run_dir / "lab.json").exists())

    def test_end_of_the_program_stops_all(self) -> None:
        self.lab()
        state = self.state()
        with mock.patch.object(signal, "signal"):
            self.assertTrue(stop.clean_up())
        self.assertTrue(self.gone(state["fabric"]))

    def test_keep_then_down(self) -> None:
        self.lab().keep()
        state = self.state()
        self.assertIsNone(state["runner"])
        self.assertFalse(self.gone(state["fabric"]))
        self.assertEqual(lab.close_recorded(self.run_dir), ["the fabric"])
        self.assertTrue(self.gone(state["fabric"]))
        self.assertFalse(Path(state["sockets"]).exists())

    def test_signal_before_it_stands(self) -> None:
        one = self.lab()
        state = self.state()
        stop.listen()
        with self.assertRaises(stop.Stopped):
            with stop.held():
                signal.raise_signal(signal.SIGTERM)
                one.keep()
        self.assertFalse(self.gone(state["fabric"]))
        one.close()
        self.assertTrue(self.gone(state["fabric"]))

    def test_signal_after_it_stands(self) -> None:
        self.addCleanup(lab.close_recorded, self.run_dir)
        one = self.lab()
        stop.listen()
        with stop.held():
            one.keep()
            signal.raise_signal(signal.SIGTERM)
        self.assertIsNone(self.state()["runner"])

    def test_taken_over_and_changed(self) -> None:
        self.lab().keep()
        self.addCleanup(lab.close_recorded, self.run_dir)
        one = self.standing()
        one.start_sm()
        one.keep()
        manager = self.state()["sm"]
        self.assertFalse(self.gone(manager))
        one = self.standing()
        with self.assertRaisesRegex(LabError, "runs already"):
            one.start_sm()
        one.stop_sm(kill=True)
        one.keep()
        self.assertTrue(self.gone(manager))
        self.assertIsNone(self.state()["sm"])

    def test_failed_change_leaves_the_rest(self) -> None:
        self.lab().keep()
        self.addCleanup(lab.close_recorded, self.run_dir)
        one = self.standing()
        one.start_sm()
        manager = self.state()["sm"]
        one.close()
        self.assertTrue(self.gone(manager))
        state = self.state()
        self.assertIsNone(state["sm"])
        self.assertFalse(self.gone(state["fabric"]))

    def test_one_at_a_time(self) -> None:
        self.lab()
        with self.assertRaisesRegex(LabError, "another ehcalab is at work"):
            self.lab()

    def test_not_over_one_that_stands(self) -> None:
        self.lab().keep()
        self.addCleanup(lab.close_recorded, self.run_dir)
        with self.assertRaisesRegex(LabError, "runs .* already; .* down"):
            self.lab()

    def test_over_one_that_has_died(self) -> None:
        self.lab().keep()
        Adopted("it", self.state()["fabric"]).kill()
        with self.assertRaisesRegex(LabError, "the fabric has ended"):
            self.standing()
        self.lab()

    def test_sweeps_up_after_the_dead(self) -> None:
        gone = subprocess.Popen("true")
        gone.wait()
        with mock.patch.object(tempfile, "tempdir", str(self.dir)):
            one = self.lab()
            one.keep()
            self.addCleanup(lab.close_recorded, self.run_dir)
            # As if the runner had ended, as that of a lab that stands has.
            stands = one.sockets.rename(self.dir / f"ehcalab-{gone.pid}-a")
            died = self.dir / f"ehcalab-{gone.pid}-b"
            unfinished = self.dir / f"ehcalab-{gone.pid}-c"
            foreign = self.dir / "ehcalab-1x-d"
            for place in (died, unfinished, foreign):
                place.mkdir()
            (died / lab.FABRIC_RECORD).write_text(
                json.dumps({"pid": gone.pid, "started": 1, "log": ""}))
            lab.make_socket_dir("x")
            self.assertTrue(stands.exists() and foreign.exists())
            self.assertFalse(died.exists() or unfinished.exists())

    def test_lids_are_a_topology_s(self) -> None:
        one = self.lab()
        first = one.lid_file
        one.close()
        self.topology.path = self.dir / "u.topo"
        self.assertNotEqual(self.lab().lid_file, first)

    def test_long_path_of_sockets(self) -> None:
        with mock.patch.object(tempfile, "tempdir",
                               str(self.dir / ("long" * 20))):
            Path(tempfile.gettempdir()).mkdir()
            with self.assertRaisesRegex(LabError, "107; let TMPDIR be"):
                self.lab()
            self.assertEqual(os.listdir(tempfile.gettempdir()), [])

    def test_unreadable_state(self) -> None:
        self.run_dir.mkdir()
        for text in ("", "{", "[]", "{}", '{"version": 0}', "\0"):
            (self.run_dir / "lab.json").write_text(text)
            with self.assertRaisesRegex(LabError, "is not what this ehcalab"):
                lab.read_state(self.run_dir)


class Stopping(unittest.TestCase):
    """Signals come at any time."""

    def setUp(self) -> None:
        for signum in stop.SIGNALS:
            self.addCleanup(signal.signal, signum, signal.getsignal(signum))
        stop.listen()

    def test_at_once(self) -> None:
        with self.assertRaises(stop.Stopped) as caught:
            signal.raise_signal(signal.SIGHUP)
        self.assertEqual(caught.exception.status, 129)

    def test_held(self) -> None:
        steps = []
        with self.assertRaises(stop.Stopped):
            with stop.held():
                with stop.held():
                    signal.raise_signal(signal.SIGTERM)
                    steps.append("inner")
                steps.append("outer")
        self.assertEqual(steps, ["inner", "outer"])

    def test_all_is_undone(self) -> None:
        undone = []

        def fails() -> None:
            raise OSError(28, "No space left on device")

        stop.at_end(lambda: undone.append("first"))
        stop.at_end(fails)
        stop.at_end(lambda: undone.append("last"))
        with self.assertRaises(OSError):
            stop.clean_up()
        self.assertEqual(undone, ["last", "first"])

    def test_nohup(self) -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        stop.listen()
        signal.raise_signal(signal.SIGHUP)


class Console(unittest.TestCase):
    """The terminal's side of a console."""

    def test_escape_leaves(self) -> None:
        from ehcalab import cmd_lab
        ours, theirs = socket.socketpair()
        self.addCleanup(ours.close)
        self.addCleanup(theirs.close)
        with mock.patch.object(os, "read", return_value=b"a\x1d"), \
                mock.patch.object(cmd_lab.select, "select",
                                  return_value=([0], [], [])), \
                contextlib.redirect_stdout(io.StringIO()):
            cmd_lab.talk(ours)


if __name__ == "__main__":
    unittest.main()
