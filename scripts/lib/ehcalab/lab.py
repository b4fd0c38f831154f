# SPDX-License-Identifier: GPL-2.0-or-later
"""A running laboratory: the fabric, the subnet manager and the guests.

Theory of operation
  A Lab owns a run directory (logs, capture, reports) and a short directory
  for sockets (their paths are limited to 107 characters).  It starts the
  fabric first; the subnet manager and the guests join it through its link
  socket in any order, and leave it when they die.  Everything that happens
  is put into the event log: the fabric's control socket delivers its own
  events and those of adapters and subnet manager; each guest's consumer
  writes JSON lines into a virtio-serial port.

  lab.json in the run directory lets another process (`ehcalab status`,
  `cable`, `console`, `ssh`, `down`) find the lab.  It is written after each
  start, so that even of a runner that was killed nothing is left unknown.
  Whoever changes a lab holds a lock on its run directory meanwhile.

  A lab ends with the program that started it (close()), unless that one
  lets it stand (keep()).  Another program may then take it over (adopt), to
  start and stop parts of it; at its end the lab stands again, without what
  was being started if that failed.
"""
from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import guest, paths, stop
from .eventlog import EventLog, event_of
from .jsonsock import ControlError, JsonSocket, connect
from .paths import FABRIC_BIN, SM_BIN
from .process import (Adopted, LabError, Process, alive, how_it_ended,
                      started, tail)
from .qga import GuestAgent
from .scenario import SM_NODE, ScenarioError, Topology

LAB_DIR = paths.BUILD / "lab"
STATE_FILE = "lab.json"
STATE_VERSION = 1
# Beside the sockets: whose they are.
FABRIC_RECORD = "fabric.json"
BOOT_TIMEOUT = 120.0
# A QEMU that hangs must not hold up the report that says so for long.
REPORT_TIMEOUT = 10.0
FABRIC_PATIENCE = 5.0
POWER_OFF_TIMEOUT = 20.0
# A runner that is told to stop stops all that it started.
RUNNER_TIMEOUT = 60.0
EVENT_LINE_MAX = 1 << 16
# More than any scenario makes: a guest that floods us must not fill memory.
EVENT_BYTES_MAX = 64 << 20
PANIC = re.compile(r"Kernel panic|Unable to handle kernel|BUG: |"
                   r"Oops: |soft lockup|rcu_sched self-detected")
FAREWELL = re.compile(r"reboot: (Power down|System halted|"
                      r"Restarting system)")
# ehca-fabric's exit status for a topology that is wrong.
BAD_TOPOLOGY = 2


def load_topology(path: Path) -> Topology:
    """Let the fabric check a topology file: it alone knows the format."""
    guest.check_built(programs=[FABRIC_BIN])
    try:
        done = subprocess.run(
            [str(FABRIC_BIN), "--check", str(path), "--json"], text=True,
            errors="replace", capture_output=True, check=False)
    except OSError as exc:
        raise LabError(f"{FABRIC_BIN}: {exc.strerror}; build it again: "
                       f"{paths.script('setup', 'host')}") from exc
    if done.returncode == BAD_TOPOLOGY:
        raise ScenarioError(done.stderr.strip())
    if done.returncode != 0:
        raise LabError(f"{FABRIC_BIN} --check {path} "
                       f"{how_it_ended(done.returncode)}: "
                       f"{done.stderr.strip()}")
    said = json.loads(done.stdout)
    return Topology(
        path,
        {h["name"]: h["ports"] for h in said["hosts"]},
        [s["name"] for s in said["switches"]],
        {c["name"]: tuple(f"{e['node']}/{e['port']}" for e in c["ends"])
         for c in said["cables"]})


def command_for(run_dir: Path, verb: str, *words: str) -> str:
    """An ehcalab command for the lab in a directory, to be copied."""
    mine = paths.absolute(run_dir) == LAB_DIR
    return paths.script("ehcalab", verb,
                        *([] if mine else ["--lab", run_dir]), *words)


def make_socket_dir(longest: str) -> Path:
    """A short directory for sockets; sweeps up after labs that died.

    A runner that is killed with -9 takes its processes along (process.py)
    but cannot remove its directory, nor can a lab that stood and has died:
    the next one does.  longest: the longest name of a socket in it.
    """
    parent = Path(tempfile.gettempdir())
    for old in parent.glob("ehcalab-[0-9]*-*"):
        pid = old.name.split("-")[1]
        try:
            if pid.isdigit() and not alive(int(pid)) and \
                    old.stat().st_uid == os.getuid() and not fabric_lives(old):
                shutil.rmtree(old, ignore_errors=True)
        except OSError:
            pass                   # another one was quicker
    made = Path(tempfile.mkdtemp(prefix=f"ehcalab-{os.getpid()}-"))
    length = len(os.fsencode(made / longest))
    if length > guest.SOCKET_PATH_MAX:
        made.rmdir()
        raise LabError(
            f"{made / longest}: {length} bytes; a socket's path may have "
            f"{guest.SOCKET_PATH_MAX}; let TMPDIR be a shorter directory "
            f"than {parent}")
    return made


def fabric_lives(sockets: Path) -> bool:
    """Whether the lab whose sockets these are has its fabric."""
    try:
        record = json.loads((sockets / FABRIC_RECORD).read_text())
        return not Adopted("the fabric", record).ended()
    except (OSError, ValueError, KeyError, TypeError):
        return False


def lock(run_dir: Path) -> int:
    """Take a lab's directory for oneself; LabError if another one has it."""
    handle = os.open(run_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise LabError(
            f"another ehcalab is at work in {run_dir}; wait for it, or end "
            f"it and its lab: {command_for(run_dir, 'down')}") from None
    except OSError:
        pass               # a file system without locks
    return handle


@dataclass
class Guest:
    """One booted guest."""

    config: guest.Guest
    process: Process
    qmp: JsonSocket
    agent: GuestAgent
    offset: float = 0.0              # add to its clock for the host's
    loaded: bool = False
    events_sock: socket.socket | None = None
    console_seen: int = 0
    gids: dict[int, str] = field(default_factory=dict)

    @property
    def node(self) -> str:
        """Its name in the topology."""
        return self.config.name

    @property
    def console_log(self) -> Path:
        """Everything its console said."""
        return self.config.console_log


class Lab:
    """See the module's theory of operation."""

    def __init__(self, topology: Topology, run_dir: Path, log: EventLog, *,
                 kernel: str = "6.12", memory: int = 512, cpus: int = 1,
                 options: dict[str, str] | None = None,
                 detached: bool = False,
                 adopt: dict[str, Any] | None = None) -> None:
        self.topology = topology
        self.dir = run_dir.absolute()
        self.log = log
        self.kernel = kernel
        self.memory = memory
        self.cpus = cpus
        self.options = options or {}
        self.detached = detached
        self.fabric: Process | None = None
        self.control: JsonSocket | None = None
        self.sm: Process | None = None
        self.guests: dict[str, Guest] = {}
        # Of each guest, also of those another process started: see save().
        self.records: dict[str, dict[str, Any]] = {}
        self._started: list[Process] = []
        self._closing = False
        self._adopted = adopt is not None
        self._monotonic_to_real = time.time() - time.monotonic()
        self.dir.mkdir(parents=True, exist_ok=True)
        with stop.held():
            self._lock = lock(self.dir)
            try:
                if adopt is not None:
                    self._take_over(adopt)
                else:
                    self._begin()
            except BaseException:
                os.close(self._lock)
                raise
            stop.at_end(self.close)

    def _begin(self) -> None:
        """Prepare the directories of a new lab."""
        if (self.dir / STATE_FILE).exists():
            left = recorded_processes(read_state(self.dir))
            if any(not p.ended() for p in left):
                raise LabError(
                    f"a lab runs in {self.dir} already; end it first: "
                    f"{command_for(self.dir, 'down')}")
        longest = max((p.name for node in self.topology.hosts for p in
                       guest.Guest(node, Path()).sockets),
                      key=len, default="control.sock")
        self.sockets = make_socket_dir(longest)
        for old in ("fabric.log", "sm.log"):
            (self.dir / old).unlink(missing_ok=True)

    def _take_over(self, state: dict[str, Any]) -> None:
        """Know a lab that stands as if this process had started it."""
        self.sockets = Path(state["sockets"])
        self.fabric = Adopted("the fabric", state["fabric"])
        if self.fabric.ended():
            raise LabError(f"the fabric has ended; its log is "
                           f"{self.fabric.log}; end the lab: "
                           f"{command_for(self.dir, 'down')}")
        if state["sm"] is not None:
            self.sm = Adopted("the subnet manager", state["sm"])
        self.records = state["guests"]

    @classmethod
    def standing(cls, run_dir: Path, log: EventLog) -> Lab:
        """A lab that stands, taken over."""
        state = read_state(run_dir)
        topology = Topology(Path(state["topology"]), state["hosts"],
                            state["switches"],
                            {k: tuple(v) for k, v in state["cables"].items()})
        return cls(topology, run_dir, log, kernel=state["kernel"],
                   memory=state["memory"], options=state["options"],
                   detached=True, adopt=state)

    def _start(self, name: str, argv: list[str], log: Path) -> Process:
        """Start a process that close() stops."""
        with stop.held():
            process = Process(name, argv, log, self.detached)
            self._started.append(process)
        return process

    # -- the fabric and the subnet manager ---------------------------------

    @property
    def link_path(self) -> Path:
        """Where nodes join the fabric."""
        return self.sockets / "fabric.sock"

    @property
    def capture_path(self) -> Path:
        """The run's pcapng file."""
        return self.dir / "capture.pcapng"

    @property
    def lid_file(self) -> Path:
        """What the subnet manager remembers of the ports' LIDs.

        A lab's directory may see one topology after the other.
        """
        return self.dir / (f"{self.topology.path.stem}.lids"
                           if self.detached else "lids")

    @property
    def control_path(self) -> Path:
        """Where the fabric takes commands."""
        return self.sockets / "control.sock"

    def start_fabric(self) -> None:
        """Start the fabric and listen to its events."""
        argv = [str(FABRIC_BIN), "--topology", str(self.topology.path),
                "--socket", str(self.link_path),
                "--control", str(self.control_path)]
        if self.options.get("capture", "on") != "off":
            argv += ["--capture", str(self.capture_path)]
        self.fabric = self._start("the fabric", argv, self.dir / "fabric.log")
        (self.sockets / FABRIC_RECORD).write_text(
            json.dumps(self.fabric.record()))
        self.save()
        try:
            self.control = JsonSocket(self.control_path, "the fabric",
                                      self._fabric_event,
                                      alive=self.fabric.check)
        except ControlError as exc:
            raise LabError(f"{exc}; its log is {self.fabric.log}") from exc
        self.log.add("lab", "fabric_started",
                     {"topology": self.topology.path.name,
                      "hosts": len(self.topology.hosts),
                      "switches": len(self.topology.switches),
                      "cables": len(self.topology.cables)})

    def _fabric_event(self, message: dict[str, Any]) -> None:
        stamp = message.get("timestamp", {})
        t = stamp.get("seconds", 0) + stamp.get("microseconds", 0) / 1e6
        name = str(message["event"]).lower()
        data = message.get("data", {})
        source = "fabric"
        if name == "node_event":
            # Better than when it arrived: when the node says it happened.
            node = data.get("node", "?")
            inner = data.get("event")
            if not isinstance(inner, dict):
                return
            source = SM_NODE if node == SM_NODE else f"{node}/hca"
            data = dict(inner)
            name = str(data.pop("event", "event")).lower()
            if isinstance(data.get("t_ns"), int):
                t = data.pop("t_ns") / 1e9 + self._monotonic_to_real
        self.log.add(source, name, data, t or None)

    def command(self, execute: str, **arguments: Any) -> Any:
        """A command to the fabric."""
        assert self.control is not None
        return self.control.command(execute, arguments)

    def check_fabric(self) -> None:
        """LabError if the fabric, which should run, does not answer."""
        if self.control is None:
            return
        try:
            self.control.command("status", timeout=FABRIC_PATIENCE)
        except ControlError as exc:
            raise self.trouble(exc) from exc

    def start_sm(self) -> None:
        """Start the subnet manager."""
        if self.sm is not None and not self.sm.ended():
            raise LabError("the subnet manager runs already")
        argv = [str(SM_BIN), "--socket", str(self.link_path),
                "--node", SM_NODE, "--lid-file", str(self.lid_file)]
        if "sm-sweep" in self.options:
            argv += ["--sweep", self.options["sm-sweep"]]
        self.sm = self._start("the subnet manager", argv, self.dir / "sm.log")
        self.log.add("lab", "sm_started", {"pid": self.sm.pid})
        self.save()

    def stop_sm(self, kill: bool) -> None:
        """Stop it, or kill it as a crash would."""
        if self.sm is None:
            raise LabError("the subnet manager does not run")
        sm, self.sm = self.sm, None
        if kill:
            sm.kill()
        hangs = not kill and not sm.stop()
        self.log.add("lab", "sm_killed" if kill or hangs else "sm_stopped")
        self.save()
        if hangs:
            raise LabError("the subnet manager did not end when it was told "
                           f"to, and was killed; its log is {sm.log}")

    def set_lid(self, place: str, lid: int) -> None:
        """Change what the subnet manager remembers, while it does not run."""
        if self.sm is not None:
            raise LabError("the subnet manager runs and knows its LIDs; "
                           "stop or kill it first")
        guid = "0x" + self.gid(place).replace(":", "")[-16:]
        try:
            text = self.lid_file.read_text()
        except OSError as exc:
            raise LabError(f"{self.lid_file}: {exc.strerror}; has a subnet "
                           "manager run?") from exc
        changed = re.sub(rf"(?m)^{guid} \S+", f"{guid} {lid:#06x}", text)
        if changed == text:
            raise LabError(f"{place} ({guid}) is not in {self.lid_file}, or "
                           f"has LID {lid} already")
        self.lid_file.write_text(changed)
        self.log.add("lab", "lid_set", {"port": place, "lid": lid})

    # -- guests --------------------------------------------------------------

    def boot(self, nodes: list[str]) -> None:
        """Start guests, all at once, and wait until each can be used."""
        for node in nodes:
            if node in self.guests or node in self.records and \
                    not self.recorded(node).ended():
                raise LabError(f"guest {node} runs already")
            self._start_guest(node)
        for node in nodes:
            self._await_guest(node)

    def recorded(self, node: str) -> Adopted:
        """A guest's process by what was written down of it."""
        return Adopted(f"guest {node}", self.records[node])

    def _start_guest(self, node: str) -> None:
        properties = {"ports": str(self.topology.hosts[node])}
        if "port-activation" in self.options:
            properties["port-activation"] = self.options["port-activation"]
        config = guest.Guest(
            node, self.sockets, self.dir, series=self.kernel,
            memory=self.memory, cpus=self.cpus,
            ssh_port=guest.free_port(),
            extra=guest.ehca_argv(node, self.link_path, properties))
        argv = guest.qemu_argv(config)
        qemu_log = self.dir / f"{node}.qemu.log"
        # Of an earlier boot one log each is kept; this one's begin afresh,
        # or an old panic would be taken for a new one.
        for log in (config.console_log, qemu_log):
            if log.exists():
                log.replace(log.with_suffix(".old.log"))
        process = self._start(f"guest {node}", argv, qemu_log)
        self.records[node] = {
            **process.record(), "ssh_port": config.ssh_port,
            "console": str(config.console_socket),
            "qmp": str(config.qmp_socket), "agent": str(config.agent_socket),
            "console_log": str(config.console_log)}
        self.save()
        self.log.add("lab", "guest_started", {"node": node,
                                              "pid": process.pid})
        try:
            qmp = JsonSocket(config.qmp_socket, f"QEMU of {node}",
                             lambda m: self._qemu_event(node, m),
                             alive=process.check)
            qmp.command("qmp_capabilities")
            agent = GuestAgent(config.agent_socket, node, process.check)
        except ControlError as exc:
            process.check()
            process.kill()
            raise LabError(f"{exc}; its log is {process.log}") from exc
        self.guests[node] = Guest(config, process, qmp, agent)

    def _qemu_event(self, node: str, message: dict[str, Any]) -> None:
        name = str(message["event"]).lower()
        if name in ("shutdown", "reset", "guest_panicked", "stop"):
            stamp = message.get("timestamp", {})
            self.log.add(node, f"qemu_{name}", message.get("data", {}),
                         stamp.get("seconds", 0)
                         + stamp.get("microseconds", 0) / 1e6)

    def _await_guest(self, node: str) -> None:
        one = self.guests[node]
        try:
            one.agent.wait_ready(BOOT_TIMEOUT, self.check)
        except ControlError as exc:
            self.check()
            raise LabError(
                f"guest {node} does not answer {BOOT_TIMEOUT:g} s after its "
                f"start; its console log is {one.console_log}:\n"
                f"{tail(one.console_log)}") from exc
        one.offset = one.agent.clock_offset()
        self.log.add(node, "booted", {"kernel": self.kernel})

    def trouble(self, exc: ControlError) -> LabError:
        """What to say when the fabric, a guest, or QEMU did not answer."""
        self.check()
        if self.control is not None and self.fabric is not None and \
                str(exc).startswith(self.control.who):
            return LabError(f"{exc}; its log is {self.fabric.log}")
        words = re.findall(r"[\w.-]+", str(exc))
        logs = "".join(f"; the console log of {g.node} is {g.console_log}"
                       for g in self.guests.values() if g.node in words)
        return LabError(f"{exc}{logs}")

    def load(self, node: str, parameters: dict[str, str],
             listen: bool = True) -> None:
        """Load driver, CM, notice client and consumer in a guest.

        listen: have its consumer's events, which has one reader at a time.
        """
        one = self.guest(node)
        words = " ".join(f"{k}={v}" for k, v in parameters.items())
        done = one.agent.shell(
            f"modprobe ib_ehca {words} && modprobe ib_umad && "
            "modprobe apm_cm && modprobe sa_notice && modprobe apm_traffic")
        if done.code != 0:
            raise LabError(f"{node}: loading the modules failed: "
                           f"{done.err.strip() or done.out.strip()}; the "
                           f"console log is {one.console_log}")
        self.log.add(node, "driver_loaded", dict(parameters))
        if listen:
            self.listen(one)

    def listen(self, one: Guest) -> None:
        """Have the guest's consumer send its events to us."""
        if one.loaded:
            return
        sock = connect(one.config.events_socket)
        one.events_sock = sock
        one.loaded = True
        threading.Thread(target=self._guest_events, args=(one, sock),
                         daemon=True).start()
        one.agent.shell("cat /dev/apm_traffic > /dev/virtio-ports/"
                        f"{guest.EVENTS_PORT} 2>/dev/null </dev/null &")

    def _guest_events(self, one: Guest, sock: socket.socket) -> None:
        try:
            with sock.makefile("rb") as lines:
                taken = 0
                while line := lines.readline(EVENT_LINE_MAX):
                    now = time.time()
                    if taken > EVENT_BYTES_MAX:
                        continue     # read on, so that the guest does not hang
                    taken += len(line)
                    if taken > EVENT_BYTES_MAX:
                        self.log.add(one.node, "unreadable", {
                            "line": f"more than {EVENT_BYTES_MAX} bytes of "
                            "events; the rest is not taken"})
                        continue
                    try:
                        name, t, data = event_of(line)
                    except ValueError:
                        self.log.add(one.node, "unreadable",
                                     {"line": repr(line[:200])})
                        continue
                    # An event cannot come before it happened: what is left
                    # of the clocks' difference shows here.
                    one.offset = min(one.offset, now - t)
                    self.log.add(one.node, name, data, t + one.offset)
        except OSError:
            return

    def unload(self, node: str) -> None:
        """Unload what load() loaded."""
        one = self.guest(node)
        done = one.agent.shell(
            # The reader of the events takes a moment to go.
            "for i in $(seq 50); do killall cat 2>/dev/null || break; "
            "sleep 0.02; done; for m in apm_traffic sa_notice apm_cm "
            "ib_umad ib_ehca; do rmmod $m || exit 1; done")
        if done.code != 0:
            raise LabError(f"{node}: unloading failed: {done.err.strip()}")
        if one.events_sock is not None:
            # close() alone leaves it open: the reader's file holds it, and
            # QEMU takes no other connection.
            try:
                one.events_sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            one.events_sock.close()
        one.loaded = False
        self.log.add(node, "driver_unloaded")

    def guest(self, node: str) -> Guest:
        """A guest that runs."""
        if node not in self.guests:
            raise LabError(f"guest {node} does not run; boot it first")
        return self.guests[node]

    def consumer(self, node: str, command: str) -> None:
        """Give a command to a guest's consumer."""
        one = self.guest(node)
        command = self.with_gids(command)
        self.log.add("lab", "consumer_command",
                     {"node": node, "command": command})
        # printf is a builtin: one write(2), and its error is the command's.
        done = one.agent.run(["/bin/sh", "-c",
                              'printf "%s\\n" "$0" > /dev/apm_traffic',
                              command])
        if done.code != 0:
            raise LabError(f"{node}: the consumer refused '{command}': "
                           f"{done.err.strip()}")

    def with_gids(self, text: str) -> str:
        """The text with each {gid:NODE/PORT} replaced."""
        return re.sub(r"\{gid:([^}]*)\}", lambda m: self.gid(m.group(1)),
                      text)

    def gid(self, place: str) -> str:
        """GID of NODE/PORT, as the guest itself shows it."""
        node, _, port = place.partition("/")
        one = self.guest(node)
        number = int(port)
        if number not in one.gids:
            done = one.agent.shell("cat /sys/class/infiniband/ehca0/ports/"
                                   f"{number}/gids/0")
            if done.code != 0:
                raise LabError(f"{node}: port {number} has no GID: "
                               f"{done.err.strip()}")
            one.gids[number] = done.out.strip()
        return one.gids[number]

    def port_state(self, place: str) -> str:
        """'init', 'active', ... as the guest's sysfs shows it."""
        node, _, port = place.partition("/")
        done = self.guest(node).agent.shell(
            f"cat /sys/class/infiniband/ehca0/ports/{port}/state")
        return done.out.partition(":")[2].strip().lower()

    def consumer_status(self, node: str) -> dict[str, Any]:
        """The consumer's status object."""
        done = self.guest(node).agent.shell(
            "cat /sys/kernel/debug/apm_traffic/status")
        try:
            return json.loads(done.out)
        except ValueError as exc:
            raise LabError(f"{node}: no status of the consumer: "
                           f"{done.err.strip() or done.out[:200]}") from exc

    def adapter_report(self, node: str) -> dict[str, Any]:
        """The adapter's own view, from QEMU."""
        text = self.guest(node).qmp.command(
            "qom-get", {"path": "/machine/peripheral/hca0",
                        "property": "report"}, timeout=REPORT_TIMEOUT)
        return json.loads(text)

    def shutdown(self, node: str, kill: bool) -> None:
        """Power a guest off, or kill it as a crash would."""
        one = self.guest(node)
        del self.guests[node]
        self._end_guest(node, one.process, None if kill else one.agent, kill)
        one.qmp.close()
        one.agent.close()
        for path in one.config.sockets:
            path.unlink(missing_ok=True)

    def shutdown_recorded(self, node: str, kill: bool) -> None:
        """The same for a guest that another process started."""
        process = self.recorded(node)
        agent = None
        if not kill and not process.ended():
            try:
                agent = GuestAgent(Path(self.records[node]["agent"]), node,
                                   process.check, timeout=2.0)
            except (ControlError, LabError):
                self.log.add("lab", "guest_deaf", {"node": node})
        self._end_guest(node, process, agent, kill)

    def _end_guest(self, node: str, process: Process,
                   agent: GuestAgent | None, kill: bool) -> None:
        if agent is not None:
            agent.power_off()
            if not process.wait(POWER_OFF_TIMEOUT):
                self.log.add("lab", "guest_deaf", {"node": node})
                process.stop()
        process.kill()
        del self.records[node]
        self.log.add("lab", "guest_killed" if kill else "guest_stopped",
                     {"node": node})
        self.save()

    # -- watching and ending -------------------------------------------------

    def check(self) -> None:
        """LabError when a process died or a guest's kernel is in trouble."""
        if self._closing:
            return
        for process in (self.fabric, self.sm):
            if process is not None:
                process.check()
        for one in list(self.guests.values()):
            self._check_console(one)
            one.process.check()

    def _check_console(self, one: Guest) -> None:
        try:
            size = one.console_log.stat().st_size
        except OSError:
            return
        if size == one.console_seen:
            return
        with one.console_log.open(errors="replace") as log:
            # Some overlap: a message may come in two pieces.
            log.seek(max(0, one.console_seen - 100))
            found = PANIC.search(log.read())
        one.console_seen = size
        if found:
            raise LabError(f"guest {one.node}: its kernel says "
                           f"'{found.group(0)}'; its console log is "
                           f"{one.console_log}:\n{tail(one.console_log)}")

    def save(self) -> None:
        """Write lab.json."""
        state = {
            "version": STATE_VERSION,
            "topology": str(self.topology.path.absolute()),
            "hosts": self.topology.hosts,
            "switches": self.topology.switches,
            "cables": self.topology.cables,
            "kernel": self.kernel,
            "memory": self.memory,
            "options": self.options,
            "sockets": str(self.sockets),
            # Who is at work in the lab; null when it stands by itself.
            "runner": None if self._closing else
            {"pid": os.getpid(), "started": started(os.getpid()), "log": ""},
            "fabric": self.fabric.record() if self.fabric else None,
            "sm": self.sm.record() if self.sm else None,
            "guests": self.records,
        }
        temporary = self.dir / f"{STATE_FILE}.new"
        temporary.write_text(json.dumps(state, indent=2) + "\n")
        temporary.replace(self.dir / STATE_FILE)

    def keep(self) -> None:
        """Let the lab stand when this program ends, which it does now.

        A signal comes before this, and all is stopped, or it is too late.
        """
        with stop.held():
            if stop.too_late():
                self._started.clear()
                self._adopted = True
                self.close()

    def close(self) -> None:
        """Stop everything that was started; safe at any time, and again."""
        with stop.held():
            if self._closing:
                return
            self._closing = True
            stop.forget(self.close)
            for one in self.guests.values():
                if one.process in self._started:
                    one.process.kill()
            for process in reversed(self._started):
                process.stop()
            if self.control is not None:
                self.control.close()
            try:
                if self._adopted:
                    self._leave_standing()
                else:
                    shutil.rmtree(self.sockets, ignore_errors=True)
                    (self.dir / STATE_FILE).unlink(missing_ok=True)
            finally:
                os.close(self._lock)

    def _leave_standing(self) -> None:
        """Write down what stands, without what was stopped just now."""
        mine = {process.pid for process in self._started}
        for node, record in list(self.records.items()):
            if record["pid"] in mine:
                del self.records[node]
        if self.sm is not None and self.sm in self._started:
            self.sm = None
        self.save()


# -- labs of other processes ------------------------------------------------

def read_state(run_dir: Path) -> dict[str, Any]:
    """lab.json of a lab that runs."""
    path = run_dir / STATE_FILE
    try:
        state = json.loads(path.read_text())
        if state["version"] != STATE_VERSION:
            raise ValueError(f"version {state['version']}")
        return state
    except (FileNotFoundError, NotADirectoryError):
        raise LabError(
            f"no lab runs in {run_dir}; start one, for example: "
            f"{command_for(run_dir, 'up', 'two-rails')}") from None
    except (ValueError, KeyError, TypeError) as exc:
        raise LabError(f"{path} is not what this ehcalab writes ({exc}); "
                       "remove it, and stop what it names, if that still "
                       "runs") from exc


def recorded_processes(state: dict[str, Any]) -> list[Adopted]:
    """A lab's processes, in the order in which they are to be stopped."""
    found = [Adopted(f"guest {node}", one)
             for node, one in state["guests"].items()]
    for key, name in (("sm", "the subnet manager"), ("fabric", "the fabric")):
        if state[key] is not None:
            found.append(Adopted(name, state[key]))
    return found


def runner_of(state: dict[str, Any]) -> Adopted | None:
    """The ehcalab that is at work in a lab."""
    if state["runner"] is None:
        return None
    runner = Adopted("ehcalab", state["runner"])
    return None if runner.ended() else runner


def close_recorded(run_dir: Path) -> list[str]:
    """Stop a lab that another process started; says what it stopped."""
    stopped = []
    runner = runner_of(read_state(run_dir))
    if runner is not None:
        # It stops what it started.
        runner.stop(RUNNER_TIMEOUT)
        stopped.append(f"ehcalab (process {runner.pid}) and its lab")
        if not (run_dir / STATE_FILE).exists():
            return stopped
    handle = lock(run_dir)
    try:
        state = read_state(run_dir)
        for process in recorded_processes(state):
            if not process.ended():
                process.stop()
                stopped.append(process.name)
        shutil.rmtree(state["sockets"], ignore_errors=True)
        (run_dir / STATE_FILE).unlink(missing_ok=True)
    finally:
        os.close(handle)
    return stopped


def how_guest_ended(record: dict[str, Any]) -> str:
    """What the logs say of a guest that has ended."""
    try:
        console = Path(record["console_log"]).read_text(errors="replace")
    except OSError:
        console = ""
    try:
        qemu = Path(record["log"]).read_text(errors="replace").strip()
    except OSError:
        qemu = ""
    for line in console.splitlines():
        if PANIC.search(line):
            return f"its kernel says '{line.strip()}'"
    farewell = FAREWELL.search(console)
    if farewell is not None:
        return f"its kernel says '{farewell.group(0)}'"
    if qemu:
        return f"QEMU says '{qemu.splitlines()[-1]}'"
    return "neither its kernel nor QEMU says why: QEMU was killed or crashed"
