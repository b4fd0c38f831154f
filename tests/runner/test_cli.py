# SPDX-License-Identifier: GPL-2.0-or-later
"""The command lines of scripts/: what is refused, and how programs end."""
from __future__ import annotations

import argparse
import contextlib
import io
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts" / "lib"))

from ehcalab import cli, guest, process, scenario  # noqa: E402

SHELL_ROOT = shlex.quote(str(ROOT))
SCRIPTS = ("ehcalab", "setup", "check", "bench", "demo")
TESTS = ("runner", "device", "lab")
# Whatever a user does, this is not what is read.
CRASH = ("Traceback", "Exception ignored", "Error:")
BAD_INPUT, TROUBLE, INTERRUPTED, BROKEN_PIPE = 2, 3, 130, 141


def read(*words: str) -> tuple[argparse.Namespace | None, str]:
    """What becomes of a command line: what was read, or the message."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
        try:
            return cli.read(list(words)), ""
        except SystemExit as exc:
            return None, f"{exc.code} {said.getvalue()}"


class Words(unittest.TestCase):
    """What the command line takes and what it says to the rest."""

    def refused(self, *words: str) -> str:
        args, said = read(*words)
        self.assertIsNone(args, words)
        self.assertTrue(said.startswith(str(BAD_INPUT)), said)
        return said

    def test_did_you_mean(self) -> None:
        self.assertIn("did you mean 'status'?", self.refused("statsu"))
        self.assertIn("known: run, up,", self.refused("xyzzy"))

    def test_no_command(self) -> None:
        self.assertIn("COMMAND", self.refused())

    def test_memory_as_scenarios_have_it(self) -> None:
        def scenario_takes(text: str) -> bool:
            with tempfile.TemporaryDirectory() as scratch:
                path = Path(scratch) / "x.scn"
                path.write_text("topology t.topo\nstep x\nboot alice\n"
                                f"memory {text}\n")
                path.with_name("t.topo").write_text("")
                try:
                    scenario.read(path, lambda path: scenario.Topology(
                        path, {"alice": 1}, [], {}))
                except scenario.ScenarioError as exc:
                    return "bad memory size" not in str(exc)
                return True

        for text in ("7", "0", "-1", "255", "256", "257", "384", "512",
                     "65536", "65792", "1000000000", "1e9", "x", "512.0",
                     "٢٥٦", "0x200"):
            args, said = read("up", "two-rails", f"--memory={text}")
            self.assertEqual(args is not None, scenario_takes(text), text)
            if args is None:
                self.assertIn(guest.MEMORY_RULE, said)

    def test_help_of_each(self) -> None:
        for words in ([], *([name] for name in cli.parser().get_default(
                "commands"))):
            args, said = read(*words, "-h")
            self.assertIsNone(args)
            self.assertTrue(said.startswith("0 usage: ehcalab"), said)
            for inner in ("command_name", "execute", "[]", "None", "==",
                          " action"):
                self.assertNotIn(inner, said, words)

    def test_messages_have_no_inner_names(self) -> None:
        for words in (["cable", "pul", "x"], ["cable"], ["sm", "x"],
                      ["boot"], ["ssh"], ["console"], ["run"], ["up"],
                      ["fabric"], ["up", "--kernel", "5"]):
            said = self.refused(*words)
            for inner in ("command_name", "execute", "action", "argument node",
                          "argument file"):
                self.assertNotIn(inner, said, words)

    def test_ssh_options_before_the_command(self) -> None:
        for words in (["ssh", "--lab", "D", "alice", "ls", "-l", "--lab"],
                      ["ssh", "alice", "--lab", "D", "ls", "-l", "--lab"],
                      ["ssh", "alice", "--lab=D", "--", "ls", "-l", "--lab"]):
            args, said = read(*words)
            assert args is not None, said
            self.assertEqual((str(args.lab), args.node, args.command),
                             ("D", "alice", ["ls", "-l", "--lab"]))
        args, _ = read("ssh", "alice", "--", "-x")
        assert args is not None
        self.assertEqual(args.command, ["-x"])
        self.assertIn("--nope", self.refused("ssh", "alice", "--nope", "ls"))
        self.assertIn("must name", self.refused("ssh", "alice", "--lab", ""))

    def test_lab_must_have_a_name(self) -> None:
        self.assertIn("must name a directory", self.refused("down", "--lab",
                                                            ""))

    def test_fabric_takes_an_object(self) -> None:
        for text in ("[1]", "x", "1", "", "[" * 10000):
            self.refused("fabric", "list", text)
        args, _ = read("fabric", "pull", '{"cable":"a"}')
        assert args is not None
        self.assertEqual(args.arguments, {"cable": "a"})


class Programs(unittest.TestCase):
    """The programs themselves, in bad surroundings: no way to a traceback."""

    def setUp(self) -> None:
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.dir = Path(scratch.name)
        self.nowhere = self.dir / "nothing"
        self.env = dict(os.environ, EHCALAB_BUILD=str(self.nowhere))

    def run_it(self, line: str, code: int, *says: str,
               env: dict[str, str] | None = None,
               cwd: Path = ROOT) -> str:
        """Run a line of shell: it must end so and say so."""
        done = subprocess.run(["sh", "-c", line], cwd=cwd, timeout=120,
                              env=self.env if env is None else env,
                              stdin=subprocess.DEVNULL, check=False,
                              capture_output=True)
        said = (done.stdout + done.stderr).decode(errors="replace")
        self.assertEqual(done.returncode, code, f"{line}: {said}")
        for crash in CRASH:
            self.assertNotIn(crash, said, line)
        for words in says:
            self.assertIn(words, said, line)
        return said

    def test_help(self) -> None:
        for name in SCRIPTS:
            self.run_it(f"scripts/{name} --help", 0, "usage: ")
        self.assertFalse(self.nowhere.exists())

    def test_options_first(self) -> None:
        for name in SCRIPTS:
            self.run_it(f"scripts/{name} --nope", BAD_INPUT, "usage: ")
        self.run_it("scripts/setup nope", BAD_INPUT, "no target 'nope'")
        self.run_it("scripts/setup hots", BAD_INPUT, "did you mean 'host'?")
        self.run_it("scripts/check labb", BAD_INPUT, "did you mean 'lab'?")
        self.run_it("scripts/bench sin", BAD_INPUT, "did you mean 'sim'?")
        for jobs in ("0", "-1", "x", "99999999"):
            self.run_it(f"scripts/setup --jobs={jobs}", BAD_INPUT, "1 to 1024")
        self.assertFalse(self.nowhere.exists())

    def test_closed_files(self) -> None:
        for closed in ("<&-", ">&-", "2>&-", "<&- >&- 2>&-"):
            for words, code in (("ehcalab status", TROUBLE),
                                ("ehcalab run x", TROUBLE),
                                ("bench sim", 1), ("demo -h", 0)):
                self.run_it(f"scripts/{words} {closed}", code)

    def test_nobody_reads(self) -> None:
        for name in SCRIPTS:
            # The reader has gone before anything is written.
            self.run_it(f"{{ sleep 0.2; scripts/{name} -h; echo $? >&2; }} "
                        "| true", 0, "0")
        self.run_it("exec 3>&1; (sleep 0.2; scripts/ehcalab run x 2>&1; "
                    "echo ended $? >&3) | true", 0, f"ended {TROUBLE}")
        self.run_it("exec 3>&1; (sleep 0.2; scripts/ehcalab -h; "
                    "echo ended $? >&3) | true", 0, "ended 0")

    def test_bare_environment(self) -> None:
        for env in ({}, {"LC_ALL": "C"}, {"LC_ALL": "nope", "TERM": "nope"},
                    {"COLUMNS": "x", "HOME": "/nowhere"},
                    {"PYTHONHOME": "/nowhere"}, {"TMPDIR": "/nowhere"}):
            self.run_it("scripts/ehcalab status", TROUBLE, "no lab runs",
                        env={"EHCALAB_BUILD": str(self.nowhere),
                             "PATH": "/usr/bin:/bin", **env})

    def test_modules_lying_about(self) -> None:
        for name in ("json", "argparse", "signal", "ehcalab"):
            (self.dir / f"{name}.py").write_text("raise SystemExit(77)\n")
        self.env["PYTHONPATH"] = str(self.dir)
        for name in SCRIPTS:
            self.run_it(f"{SHELL_ROOT}/scripts/{name} -h", 0, "usage: ",
                        cwd=self.dir)

    def test_by_a_link(self) -> None:
        for name in SCRIPTS:
            (self.dir / name).symlink_to(ROOT / "scripts" / name)
            self.run_it(f"./{name} -h", 0, "usage: ", cwd=self.dir)

    def test_directory_is_gone(self) -> None:
        for build in ("here", str(self.nowhere)):
            self.env["EHCALAB_BUILD"] = build
            self.run_it(f"mkdir gone; cd gone; rmdir ../gone; {SHELL_ROOT}/"
                        "scripts/ehcalab status", TROUBLE, "no lab runs",
                        cwd=self.dir)

    def test_build_directory_that_is_none(self) -> None:
        (self.dir / "file").write_text("")
        for build in (self.dir / "file", self.dir / "file" / "x",
                      Path("/proc/x"), Path("/proc/x/y"),
                      Path("/dev/null/x")):
            self.env["EHCALAB_BUILD"] = str(build)
            self.run_it("scripts/setup host", 1, str(build), "EHCALAB_BUILD")
            self.run_it("scripts/ehcalab up two-rails", TROUBLE,
                        "is not built")
            self.run_it("scripts/ehcalab status", TROUBLE, "no lab runs")

    def test_build_directory_that_cannot_be_built_in(self) -> None:
        for name in ("a b", "a:b", "a#b", "a$b", "a'b"):
            self.env["EHCALAB_BUILD"] = str(self.dir / name)
            self.run_it("scripts/setup host", 1, "EHCALAB_BUILD=")
            self.assertFalse((self.dir / name).exists())
        (self.dir / "link").symlink_to(self.dir / "a b")
        self.env["EHCALAB_BUILD"] = str(self.dir / "link")
        self.run_it("scripts/setup host", 1, "EHCALAB_BUILD=")

    def test_help_from_an_odd_directory(self) -> None:
        self.env["EHCALAB_BUILD"] = str(self.dir / "a%sb %(c)d")
        for words in ("-h", "up -h", "status -h"):
            self.run_it(f"scripts/ehcalab {words}", 0, "usage: ")

    def test_names_in_no_encoding(self) -> None:
        name = os.fsdecode(b"caf\xe9")
        self.env["EHCALAB_BUILD"] = str(self.dir / name)
        self.run_it("scripts/ehcalab status", TROUBLE, "no lab runs")
        self.run_it("scripts/ehcalab up \"$(printf 'caf\\351')\"", TROUBLE,
                    "is not built")
        self.run_it("scripts/ehcalab status --lab \"$(printf 'caf\\351')\"",
                    TROUBLE, "no lab runs")
        self.run_it("scripts/ehcalab \"$(printf 'caf\\351')\"", BAD_INPUT)

    def test_unknown_tests(self) -> None:
        for suite in TESTS:
            said = self.run_it(f"tests/{suite}/run.py nope", BAD_INPUT,
                               "no test 'nope'")
            self.assertNotRegex(said, r"\d+ passed")


class Interrupted(unittest.TestCase):
    """scripts/check that is stopped: at once, with all that it started."""

    SUITE = ("import os, pathlib, subprocess, sys, tempfile\n"
             "tempfile.mkdtemp()\n"
             "print('tmp', tempfile.gettempdir(), flush=True)\n"
             "subprocess.run(['sleep', '1000'])\n")
    CHECK = ("import sys\n"
             "sys.path.insert(0, sys.argv[1])\n"
             "from ehcalab import check\n"
             "check.SUITES = (check.Suite('x', sys.argv[2], 600),)\n"
             "sys.exit(check.main(['--no-setup', 'x']))\n")

    def test_each_signal(self) -> None:
        with tempfile.TemporaryDirectory() as scratch:
            suite = Path(scratch) / "suite.py"
            suite.write_text(self.SUITE)
            for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                self.stop(suite, signum)

    def stop(self, suite: Path, signum: signal.Signals) -> None:
        with subprocess.Popen(
                ["/usr/bin/python3", "-c", self.CHECK,
                 str(ROOT / "scripts" / "lib"), str(suite)], text=True,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as check:
            assert check.stdout is not None
            place = Path("/")
            for line in check.stdout:
                if line.startswith("tmp "):
                    place = Path(line.split()[1])
                    break
            self.assertTrue(place.is_dir())
            [group] = [int(p) for p in Path(
                f"/proc/{check.pid}/task/{check.pid}/children"
            ).read_text().split()]
            while len(process.group_members(group)) < 2:
                time.sleep(0.01)
            check.send_signal(signum)
            try:
                said, _ = check.communicate(timeout=60)
            except subprocess.TimeoutExpired:
                check.kill()
                self.fail(f"{signum.name} does not stop it")
        self.assertEqual(check.returncode, 128 + signum, said)
        self.assertEqual(process.group_members(group), [])
        self.assertFalse(place.exists())
        self.assertIn(f"stopped by {signum.name}", said)
        self.assertNotIn("Traceback", said)
        self.assertTrue(said.endswith("0 passed, 1 failed, 0 skipped\n"))


if __name__ == "__main__":
    unittest.main()
