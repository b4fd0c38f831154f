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
  `cable`, `console`, `ssh`, `down`) find the lab.
"""
from __future__ import annotations

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

from . import guest, paths
from .eventlog import EventLog
from .jsonsock import ControlError, JsonSocket
from .process import LabError, Process, alive, stop_pid, tail
from .qga import GuestAgent
from .scenario import SM_NODE, ScenarioError, Topology

FABRIC_BIN = paths.HOST / "fabric" / "ehca-fabric"
SM_BIN = paths.HOST / "sm" / "ehca-sm"
BOOT_TIMEOUT = 120.0
# A QEMU that hangs must not hold up the report that says so for long.
REPORT_TIMEOUT = 10.0
POWER_OFF_TIMEOUT = 20.0
EVENT_LINE_MAX = 1 << 16
PANIC = re.compile(r"Kernel panic|Unable to handle kernel|BUG: |"
                   r"Oops: |soft lockup|rcu_sched self-detected")


def load_topology(path: Path) -> Topology:
    """Let the fabric check a topology file: it alone knows the format."""
    if not FABRIC_BIN.exists():
        raise LabError(f"{FABRIC_BIN} is not built; run: scripts/setup host")
    done = subprocess.run([str(FABRIC_BIN), "--check", str(path), "--json"],
                          text=True, capture_output=True, check=False)
    if done.returncode != 0:
        raise ScenarioError(done.stderr.strip())
    said = json.loads(done.stdout)
    return Topology(
        path,
        {h["name"]: h["ports"] for h in said["hosts"]},
        [s["name"] for s in said["switches"]],
        {c["name"]: tuple(f"{e['node']}/{e['port']}" for e in c["ends"])
         for c in said["cables"]})


def make_socket_dir(detached: bool) -> Path:
    """A short directory for sockets; sweeps up after runners that died.

    A runner that is killed with -9 takes its processes along (process.py)
    but cannot remove its directory: the next one does.
    """
    for old in Path(tempfile.gettempdir()).glob("ehcalab-[0-9]*-*"):
        pid = old.name.split("-")[1]
        if pid.isdigit() and not alive(int(pid)) and \
                old.stat().st_uid == os.getuid():
            shutil.rmtree(old, ignore_errors=True)
    owner = "lab" if detached else str(os.getpid())
    return Path(tempfile.mkdtemp(prefix=f"ehcalab-{owner}-"))


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
                 kernel: str = "6.12", memory: int = 512,
                 options: dict[str, str] | None = None,
                 detached: bool = False) -> None:
        self.topology = topology
        self.dir = run_dir
        self.log = log
        self.kernel = kernel
        self.memory = memory
        self.options = options or {}
        self.detached = detached
        self.dir.mkdir(parents=True, exist_ok=True)
        self.sockets = make_socket_dir(detached)
        self.fabric: Process | None = None
        self.control: JsonSocket | None = None
        self.sm: Process | None = None
        self.guests: dict[str, Guest] = {}
        self._closing = False
        self._monotonic_to_real = time.time() - time.monotonic()

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
        """What the subnet manager remembers of the ports' LIDs."""
        return self.dir / "lids"

    def start_fabric(self) -> None:
        """Start the fabric and listen to its events."""
        control = self.sockets / "control.sock"
        argv = [str(FABRIC_BIN), "--topology", str(self.topology.path),
                "--socket", str(self.link_path), "--control", str(control)]
        if self.options.get("capture", "on") != "off":
            argv += ["--capture", str(self.capture_path)]
        self.fabric = Process("the fabric", argv, self.dir / "fabric.log",
                              self.detached)
        try:
            self.control = JsonSocket(control, "the fabric",
                                      self._fabric_event,
                                      alive=self.fabric.check)
        except ControlError as exc:
            raise LabError(f"{exc}; its log is {self.fabric.log}") from exc
        self.log.add("lab", "fabric_started",
                     {"topology": self.topology.path.name,
                      "hosts": len(self.topology.hosts),
                      "switches": len(self.topology.switches),
                      "cables": len(self.topology.cables)})
        self.save()

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

    def start_sm(self) -> None:
        """Start the subnet manager."""
        if self.sm is not None and self.sm.code() is None:
            raise LabError("the subnet manager runs already")
        argv = [str(SM_BIN), "--socket", str(self.link_path),
                "--node", SM_NODE, "--lid-file", str(self.lid_file)]
        if "sm-sweep" in self.options:
            argv += ["--sweep", self.options["sm-sweep"]]
        self.sm = Process("the subnet manager", argv, self.dir / "sm.log",
                          self.detached)
        self.log.add("lab", "sm_started", {"pid": self.sm.pid})
        self.save()

    def stop_sm(self, kill: bool) -> None:
        """Stop it, or kill it as a crash would."""
        if self.sm is None:
            raise LabError("the subnet manager does not run")
        if kill:
            self.sm.kill()
        else:
            self.sm.stop()
        self.sm = None
        self.log.add("lab", "sm_killed" if kill else "sm_stopped")
        self.save()

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
            if node in self.guests:
                raise LabError(f"guest {node} runs already")
            self._start_guest(node)
        for node in nodes:
            self._await_guest(node)
        self.save()

    def _start_guest(self, node: str) -> None:
        properties = {"ports": str(self.topology.hosts[node])}
        if "port-activation" in self.options:
            properties["port-activation"] = self.options["port-activation"]
        config = guest.Guest(
            node, self.sockets, self.dir, series=self.kernel,
            memory=self.memory, ssh_port=guest.free_port(),
            extra=guest.ehca_argv(node, self.link_path, properties))
        process = Process(f"guest {node}", guest.qemu_argv(config),
                          self.dir / f"{node}.qemu.log", self.detached)
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

    def guest_trouble(self, exc: ControlError) -> LabError:
        """What to say when a guest, or QEMU, did not answer."""
        self.check()
        words = re.findall(r"[\w.-]+", str(exc))
        logs = "".join(f"; the console log of {g.node} is {g.console_log}"
                       for g in self.guests.values() if g.node in words)
        return LabError(f"{exc}{logs}")

    def load(self, node: str, parameters: dict[str, str]) -> None:
        """Load driver, CM, notice client and consumer in a guest."""
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
        self.listen(one)

    def listen(self, one: Guest) -> None:
        """Have the guest's consumer send its events to us."""
        if one.loaded:
            return
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(str(one.config.events_socket))
        one.events_sock = sock
        one.loaded = True
        threading.Thread(target=self._guest_events, args=(one, sock),
                         daemon=True).start()
        one.agent.shell("cat /dev/apm_traffic > /dev/virtio-ports/"
                        f"{guest.EVENTS_PORT} 2>/dev/null </dev/null &")

    def _guest_events(self, one: Guest, sock: socket.socket) -> None:
        try:
            with sock.makefile("rb") as lines:
                while True:
                    line = lines.readline(EVENT_LINE_MAX)
                    if not line:
                        return
                    now = time.time()
                    try:
                        data = json.loads(line)
                        name = str(data.pop("event"))
                        t = data.pop("t_real_ns") / 1e9
                    except (ValueError, KeyError, TypeError,
                            AttributeError):
                        self.log.add(one.node, "unreadable",
                                     {"line": repr(line[:200])})
                        continue
                    # An event cannot come before it happened: what is left
                    # of the clocks' difference shows here.
                    one.offset = min(one.offset, now - t)
                    data.pop("t_ns", None)
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
        if kill:
            one.process.kill()
        else:
            one.agent.power_off()
            if not one.process.wait(POWER_OFF_TIMEOUT):
                self.log.add("lab", "guest_deaf", {"node": node})
                one.process.stop()
        one.qmp.close()
        one.agent.close()
        for path in one.config.sockets:
            path.unlink(missing_ok=True)
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
        for one in self.guests.values():
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
            "topology": str(self.topology.path),
            "sockets": str(self.sockets),
            "runner": os.getpid(),
            "fabric": self.fabric.pid if self.fabric else None,
            "sm": self.sm.pid if self.sm else None,
            "guests": {
                g.node: {"pid": g.process.pid, "ssh_port": g.config.ssh_port,
                         "console": str(g.config.console_socket),
                         "qmp": str(g.config.qmp_socket),
                         "console_log": str(g.console_log)}
                for g in self.guests.values()},
        }
        temporary = self.dir / "lab.json.new"
        temporary.write_text(json.dumps(state, indent=2) + "\n")
        temporary.replace(self.dir / "lab.json")

    def close(self) -> None:
        """Stop everything that was started; safe at any time."""
        self._closing = True
        for node in list(self.guests):
            one = self.guests.pop(node)
            one.process.kill()
        if self.sm is not None:
            self.sm.stop()
        if self.fabric is not None:
            self.fabric.stop()
        if self.control is not None:
            self.control.close()
        shutil.rmtree(self.sockets, ignore_errors=True)
        (self.dir / "lab.json").unlink(missing_ok=True)


def close_recorded(run_dir: Path) -> list[str]:
    """Stop a lab that another process started; says what it stopped."""
    state = read_state(run_dir)
    stopped = []
    for name, one in state["guests"].items():
        if alive(one["pid"]):
            stop_pid(one["pid"])
            stopped.append(f"guest {name}")
    for name, label in (("sm", "the subnet manager"),
                        ("fabric", "the fabric")):
        if state[name] and alive(state[name]):
            stop_pid(state[name])
            stopped.append(label)
    shutil.rmtree(state["sockets"], ignore_errors=True)
    (run_dir / "lab.json").unlink(missing_ok=True)
    return stopped


def read_state(run_dir: Path) -> dict[str, Any]:
    """lab.json of a lab that runs."""
    try:
        return json.loads((run_dir / "lab.json").read_text())
    except (OSError, ValueError) as exc:
        raise LabError(f"no lab runs in {run_dir}; start one: "
                       "scripts/ehcalab up TOPOLOGY") from exc
