# SPDX-License-Identifier: GPL-2.0-or-later
"""A QEMU without a guest: the qtest and QMP protocols over unix sockets.

Theory of operation
  QEMU is started with "-accel qtest": no CPU runs, and this process does to
  the machine what a guest would do.  QEMU connects to two sockets of ours;
  qtest carries memory accesses and hypervisor calls ("spapr-hcall", from
  hw/ehca/qtest.c), QMP everything that a user can do.  Both protocols are
  lines: a request and its answer, with asynchronous lines in between
  ("IRQ raise 0", QMP events), which are kept for those who ask.

  Every wait has an end: an answer that does not come within TIMEOUT seconds,
  or a QEMU that died, is an error with QEMU's own words.
"""
from __future__ import annotations

import ctypes
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Callable

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("EHCALAB_BUILD") or ROOT / "build").absolute()
QEMU = Path(os.environ.get("EHCALAB_QEMU") or
            BUILD / "qemu" / "build" / "qemu-system-ppc64")
QEMU_DATA = BUILD / "qemu" / "data"

TIMEOUT = float(os.environ.get("EHCALAB_TIMEOUT") or 30)
RAM_MIB = 256
MACHINE = ("pseries,x-vof=on,cap-cfpc=broken,cap-sbbc=broken,cap-ibs=broken,"
           "cap-ccf-assist=off")


PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


def die_with_us() -> None:
    """In a child: no process of a test outlives the tests, however they
    end."""
    _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class QemuError(Exception):
    """QEMU did not do what it was asked."""


class QemuDied(QemuError):
    """QEMU is gone."""


def adapter_arg(adapter: dict[str, Any]) -> str:
    """The -device argument of one adapter."""
    return ",".join(["ehca"] + [f"{k}={v}" for k, v in adapter.items()])


def command(adapters: list[dict[str, Any]], extra: list[str],
            machine: str) -> list[str]:
    """QEMU's command line, but for the sockets."""
    argv = [str(QEMU), "-M", machine, "-accel", "qtest", "-m", str(RAM_MIB),
            "-L", str(QEMU_DATA), "-display", "none", "-nodefaults",
            *extra]
    for adapter in adapters:
        argv += ["-device", adapter_arg(adapter)]
    return argv


def run_failing(adapters: list[dict[str, Any]], extra: list[str] | None = None,
                machine: str = MACHINE) -> tuple[int, str]:
    """Start a QEMU that is to refuse; its status and its words."""
    done = subprocess.run(command(adapters, extra or [], machine),
                          stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=TIMEOUT, check=False)
    return done.returncode, done.stderr


class Lines:
    """One connection of lines with a time limit on every wait."""

    def __init__(self, sock: socket.socket, alive: Callable[[], None]) -> None:
        self.sock = sock
        self.alive = alive
        self.buffer = b""

    def send(self, line: str) -> None:
        try:
            self.sock.sendall(line.encode() + b"\n")
        except OSError:
            self.alive()
            raise

    def receive(self, timeout: float = TIMEOUT) -> str | None:
        """The next line, or None when none comes in time."""
        end = time.monotonic() + timeout
        while b"\n" not in self.buffer:
            left = end - time.monotonic()
            ready, _, _ = select.select([self.sock], [], [], max(left, 0))
            if not ready:
                return None
            try:
                data = self.sock.recv(65536)
            except ConnectionError:
                data = b""
            if not data:
                self.alive()
                raise QemuDied("QEMU closed a socket")
            self.buffer += data
        line, self.buffer = self.buffer.split(b"\n", 1)
        return line.decode()


class Qemu:
    """One QEMU; use it in a with statement."""

    def __init__(self, adapters: list[dict[str, Any]] | None = None,
                 extra: list[str] | None = None,
                 machine: str = MACHINE) -> None:
        self.dir = Path(tempfile.mkdtemp(prefix="ehca-device-"))
        self.irqs: list[str] = []
        self.events: list[dict[str, Any]] = []
        self.next_page = 16 << 20
        self.process: subprocess.Popen[bytes] | None = None
        listeners = []
        argv = command([{"id": "hca0"}] if adapters is None else adapters,
                       extra or [], machine)
        try:
            for name in ("qtest", "qmp"):
                listener = socket.socket(socket.AF_UNIX)
                listener.bind(str(self.dir / name))
                listener.listen(1)
                listener.settimeout(0.2)
                listeners.append(listener)
            argv += ["-qtest", f"unix:{self.dir}/qtest",
                     "-qtest-log", "/dev/null",
                     "-qmp", f"unix:{self.dir}/qmp"]
            with open(self.dir / "log", "wb") as log:
                self.process = subprocess.Popen(
                    argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                    preexec_fn=die_with_us)
            qtest, qmp = (self._accept(listener) for listener in listeners)
            self.qtest = Lines(qtest, self.check_alive)
            self.monitor = Lines(qmp, self.check_alive)
            greeting = self.monitor.receive()
            if greeting is None or "QMP" not in greeting:
                raise QemuError(f"no QMP greeting: {greeting}")
            self.qmp("qmp_capabilities")
        except BaseException:
            self.close()
            raise
        finally:
            for listener in listeners:
                listener.close()

    def _accept(self, listener: socket.socket) -> socket.socket:
        end = time.monotonic() + TIMEOUT
        while time.monotonic() < end:
            try:
                return listener.accept()[0]
            except TimeoutError:
                self.check_alive()
        raise QemuError(f"QEMU does not connect: {self.log()}")

    def __enter__(self) -> "Qemu":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop QEMU and remove what it left."""
        process = self.process
        if process is not None and process.poll() is None:
            process.kill()
        if process is not None:
            process.wait()
        for lines in ("qtest", "monitor"):
            if hasattr(self, lines):
                getattr(self, lines).sock.close()
        shutil.rmtree(self.dir, ignore_errors=True)

    def log(self) -> str:
        """What QEMU has written."""
        try:
            return (self.dir / "log").read_text(errors="replace")
        except OSError:
            return ""

    def check_alive(self) -> None:
        """Raise if QEMU is gone."""
        process = self.process
        if process is None:
            return
        for _ in range(20):
            if process.poll() is not None:
                raise QemuDied(f"QEMU ended with {process.returncode}: "
                               f"{self.log()[-2000:]}")
            time.sleep(0.01)

    # -- qtest ------------------------------------------------------------

    def cmd(self, line: str) -> list[str]:
        """One qtest command; the words behind OK."""
        self.qtest.send(line)
        while True:
            answer = self.qtest.receive()
            if answer is None:
                self.check_alive()
                raise QemuError(f"qtest: no answer to '{line[:80]}'")
            words = answer.split()
            if words[0] == "IRQ":
                self.irqs.append(answer)
            elif words[0] == "OK":
                return words[1:]
            else:
                raise QemuError(f"qtest: '{line[:80]}': {answer}")

    def wait_irq(self, line: str, timeout: float = TIMEOUT) -> bool:
        """Whether the asynchronous line comes; takes it off the list."""
        end = time.monotonic() + timeout
        while line not in self.irqs:
            answer = self.qtest.receive(end - time.monotonic())
            if answer is None:
                return False
            self.irqs.append(answer)
        self.irqs.remove(line)
        return True

    def hcall(self, number: int, *args: int) -> tuple[int, list[int]]:
        """A hypervisor call: r3 as a signed number, and r4 to r12."""
        words = self.cmd(" ".join(["spapr-hcall", hex(number),
                                   *[hex(a & (1 << 64) - 1) for a in args]]))
        rc, *outs = (int(word, 16) for word in words)
        return rc - (1 << 64) if rc >> 63 else rc, outs

    def read(self, addr: int, size: int) -> bytes:
        """Guest memory."""
        [text] = self.cmd(f"read {addr:#x} {size:#x}")
        return bytes.fromhex(text[2:])

    def write(self, addr: int, data: bytes) -> None:
        """Guest memory."""
        self.cmd(f"write {addr:#x} {len(data):#x} 0x{data.hex()}")

    def zero(self, addr: int, size: int) -> None:
        """Guest memory."""
        self.cmd(f"memset {addr:#x} {size:#x} 0x00")

    def readq(self, addr: int) -> int:
        """A doubleword: memory or register."""
        [text] = self.cmd(f"readq {addr:#x}")
        return int(text, 16)

    def writeq(self, addr: int, value: int) -> None:
        """A doubleword: memory or register."""
        self.cmd(f"writeq {addr:#x} {value:#x}")

    def pages(self, count: int = 1) -> int:
        """Fresh, zeroed 4 KiB pages of guest memory, adjacent."""
        addr = self.next_page
        self.next_page += 4096 * count
        if self.next_page > RAM_MIB << 20:
            raise QemuError("the test has used up the guest's memory")
        return addr

    # -- QMP --------------------------------------------------------------

    def qmp(self, execute: str, **arguments: Any) -> Any:
        """One QMP command; what it returns."""
        self.monitor.send(json.dumps({"execute": execute,
                                      "arguments": arguments}))
        while True:
            line = self.monitor.receive()
            if line is None:
                self.check_alive()
                raise QemuError(f"QMP: no answer to {execute}")
            answer = json.loads(line)
            if "event" in answer:
                self.events.append(answer)
            elif "return" in answer:
                return answer["return"]
            else:
                raise QemuError(answer["error"]["desc"])

    def qom_get(self, prop: str, adapter: str = "hca0") -> Any:
        """A property of an adapter."""
        return self.qmp("qom-get", path=f"/machine/peripheral/{adapter}",
                        property=prop)

    def report(self, adapter: str = "hca0") -> dict[str, Any]:
        """The adapter's report."""
        return json.loads(self.qom_get("report", adapter))

    def reset(self) -> None:
        """Reset the machine, as a rebooting guest does, and wait for it."""
        self.qmp("system_reset")
        end = time.monotonic() + TIMEOUT
        while not any(e["event"] == "RESET" for e in self.events):
            if time.monotonic() > end:
                raise QemuError("the machine does not reset")
            self.qmp("query-status")
        self.events = [e for e in self.events if e["event"] != "RESET"]

    def dtb(self) -> bytes:
        """The device tree that the machine gives its guest."""
        path = self.dir / "dtb"
        self.qmp("dumpdtb", filename=str(path))
        return path.read_bytes()


def eventually(check: Callable[[], Any], timeout: float = TIMEOUT) -> Any:
    """Repeat until the check gives something true; that, or the last."""
    end = time.monotonic() + timeout
    while True:
        got = check()
        if got or time.monotonic() > end:
            return got
        time.sleep(0.005)
