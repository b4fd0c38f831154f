# SPDX-License-Identifier: GPL-2.0-or-later
"""The device with the real fabric and the real subnet manager.

One QEMU has two adapters, each a host of its own in the topology, so that a
whole lab (two hosts, two switches, a subnet manager) runs without a guest.
Skipped where ehca-fabric or ehca-sm is not built; EHCALAB_HOST names another
build directory of the daemons.
"""
from __future__ import annotations

import json
import os
import signal
import socket
import struct
import subprocess
import tempfile
import time
import unittest
from pathlib import Path
from typing import Any

import abi
from adapter import Adapter, Mr, Qp, Queue, adapter_nodes
from qtest import BUILD, ROOT, TIMEOUT, Qemu, die_with_us, eventually

HOST = Path(os.environ.get("EHCALAB_HOST") or BUILD / "host")
FABRIC = HOST / "fabric" / "ehca-fabric"
SM = HOST / "sm" / "ehca-sm"
TOPOLOGY = ROOT / "scenarios" / "topologies" / "two-rails.topo"
PATH_MIG = 0x02


class Daemon:
    """A process of the fabric's side."""

    def __init__(self, log: Path, *argv: object) -> None:
        self.log = log
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                [str(a) for a in argv], stdin=subprocess.DEVNULL, stdout=out,
                stderr=out, preexec_fn=die_with_us)

    def kill(self) -> None:
        """As by kill -9."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()


class Lab(unittest.TestCase):
    """alice and bob, two rails, a subnet manager."""

    def setUp(self) -> None:
        for program in (FABRIC, SM):
            if not program.exists():
                self.skipTest(f"{program} is not built; scripts/setup host")
        temporary = tempfile.TemporaryDirectory(prefix="ehca-fabric-")
        self.addCleanup(temporary.cleanup)
        self.dir = Path(temporary.name)
        self.start_fabric()
        self.start_sm()
        extra: list[str] = []
        adapters = []
        for name in ("alice", "bob"):
            extra += ["-chardev", f"socket,id={name}-link,path={self.dir}/"
                      "link,reconnect-ms=50"]
            adapters.append({"id": name, "chardev": f"{name}-link",
                             "node": name})
        self.qemu = Qemu(adapters, extra)
        self.addCleanup(self.qemu.close)
        self.hosts = [
            Adapter(self.qemu,
                    int.from_bytes(node.props["ibm,hca-handle"], "big"))
            for node in adapter_nodes(self.qemu)]
        for host in self.hosts:
            host.eq = host.alloc_eq(abi.ALLOC_EQ, 512)
            host.neq = host.alloc_eq(abi.ALLOC_NEQ, 513)
            cq = host.alloc_cq(host.eq, 1)
            for port in (1, 2):
                gsi = host.alloc_qp(abi.ALLOC_UD, cq, host.eq, port)
                host.ok(abi.H_DEFINE_AQP1, gsi.handle, port)
        self.lids = self.wait_active()

    def start_fabric(self) -> None:
        self.fabric = Daemon(self.dir / "fabric.log", FABRIC, "-t", TOPOLOGY,
                             "-s", self.dir / "link", "-c",
                             self.dir / "control")
        self.addCleanup(self.fabric.kill)
        end = time.monotonic() + TIMEOUT
        while not (self.dir / "control").exists():
            self.assertIsNone(self.fabric.process.poll(),
                              self.fabric.log.read_text())
            self.assertLess(time.monotonic(), end)
            time.sleep(0.01)

    def start_sm(self) -> None:
        self.sm = Daemon(self.dir / "sm.log", SM, "-s", self.dir / "link",
                         "-n", "sm")
        self.addCleanup(self.sm.kill)

    def control(self, command: str, **arguments: Any) -> Any:
        """A command to the fabric."""
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(TIMEOUT)
            sock.connect(str(self.dir / "control"))
            with sock.makefile("rw") as lines:
                lines.readline()
                for execute, args in (("qmp_capabilities", {}),
                                      (command, arguments)):
                    lines.write(json.dumps({"execute": execute,
                                            "arguments": args}) + "\n")
                    lines.flush()
                    while True:
                        answer = json.loads(lines.readline())
                        if "return" in answer:
                            break
                        self.assertNotIn("error", answer)
        return answer["return"]

    def wait_active(self) -> list[list[int]]:
        """All ports Active; their LIDs by host."""
        for host in self.hosts:
            for port in (1, 2):
                self.assertTrue(
                    eventually(lambda h=host, p=port:
                               h.port(p)["state"] == abi.PORT_ACTIVE, 60),
                    (self.dir / "sm.log").read_text()[-2000:])
        return [[host.port(port)["lid"] for port in (1, 2)]
                for host in self.hosts]

    def connect(self) -> None:
        """An RC connection over rail 1 with rail 2 as its alternate."""
        self.cqs: list[Queue] = []
        self.qps: list[Qp] = []
        self.mrs: list[Mr] = []
        self.buffers: list[int] = []
        for i, host in enumerate(self.hosts):
            self.cqs.append(host.alloc_cq(host.eq, 0x50 + i))
            self.qps.append(host.alloc_qp(abi.ALLOC_RC, self.cqs[i], host.eq,
                                          0x70 + i))
            self.buffers.append(self.qemu.pages(16))
            self.mrs.append(host.alloc_mr(self.buffers[i], 16))
        for i, host in enumerate(self.hosts):
            other = 1 - i
            host.connect(self.qps[i], self.qps[other].qpn,
                         self.lids[other][0])
            self.assertEqual(host.modify_qp(
                self.qps[i], state=abi.RTS, alt_port=2, alt_pkey_index=0,
                dlid_al=self.lids[other][1], path_bits_al=0, sl_al=0,
                rate_al=0, retry_al=7, rnr_retry_al=7, timeout_al=14,
                grh_al=0, mig_state=abi.REARM), 0)
        self.used = [0, 0]

    def next_cqe(self, i: int) -> bytes:
        """The next completion of a host."""
        cq = self.cqs[i]
        index = self.used[i] % (cq.pages * 64)
        flag = 0x80 if self.used[i] // (cq.pages * 64) % 2 == 0 else 0

        def look() -> bytes | None:
            cqe = self.hosts[i].cqe(cq, index)
            return cqe if cqe[0x3b] & 0x80 == flag else None
        cqe = eventually(look)
        self.assertIsNotNone(cqe, f"host {i}: no completion")
        self.used[i] += 1
        self.qemu.writeq(cq.regs + abi.CQX_FECA, 1)
        return cqe

    def write(self, i: int, size: int = 16384) -> None:
        """An RDMA write from one host to the other, checked."""
        data = os.urandom(size)
        src, dst = self.buffers[i], self.buffers[1 - i] + 32768
        self.qemu.write(src, data)
        self.hosts[i].post_send(self.qps[i], self.used[i], abi.OP_WRITE, src,
                                self.mrs[i].lkey, size, dst,
                                self.mrs[1 - i].rkey)
        status = struct.unpack_from(">I", self.next_cqe(i), 0x3c)[0]
        self.assertEqual(status, 0, hex(status))
        self.assertEqual(self.qemu.read(dst, size), data)

    def mig_states(self) -> list[int]:
        return [host.query_qp(qp)["mig_state"]
                for host, qp in zip(self.hosts, self.qps)]

    def test_ports(self) -> None:
        """LIDs are unique; port-available events are in the NEQs."""
        self.assertEqual(len({lid for pair in self.lids for lid in pair}), 4)
        for host in self.hosts:
            # Besides: the SM asks for re-registration (0x34).
            entries = [host.eqe(host.neq, i) for i in range(16)]
            for entry in (0xB001800000000000, 0xB002800000000000):
                self.assertEqual(entries.count(entry), 1)

    def test_data(self) -> None:
        self.connect()
        for _ in range(20):
            self.write(0)
            self.write(1)

    def test_path_migration(self) -> None:
        """Both ARMED; a pulled cable; one PATH_MIG on each side."""
        self.connect()
        for i in (0, 1, 0, 1):
            self.write(i)
        self.assertEqual(self.mig_states(), [abi.ARMED] * 2)
        self.control("pull", cable="alice-1")
        self.write(0)
        self.write(1)
        self.assertEqual(self.mig_states(), [abi.MIGRATED] * 2)
        for i, host in enumerate(self.hosts):
            self.assertTrue(eventually(lambda h=host: h.eqe(h.eq, 0)))
            entry = host.eqe(host.eq, 0)
            self.assertEqual((entry >> 56 & 0x7f, entry & 0xffffffff),
                             (PATH_MIG, 0x70 + i))
            self.assertEqual(host.eqe(host.eq, 1), 0)
        self.control("restore", cable="alice-1")
        self.assertEqual(self.wait_active(), self.lids, "no LID changes")
        self.write(0)

    def test_fabric_killed(self) -> None:
        """As both cables pulled; a new fabric is found, all comes back."""
        self.fabric.kill()
        for host in self.hosts:
            for port in (1, 2):
                self.assertTrue(eventually(
                    lambda h=host, p=port:
                    h.port(p)["state"] == abi.PORT_DOWN))
        self.sm.kill()
        self.start_fabric()
        self.start_sm()
        self.lids = self.wait_active()
        self.connect()
        self.write(0)
        self.write(1)

    def test_reboot(self) -> None:
        """A machine reset takes the ports down, the next driver up."""
        self.qemu.reset()
        for host in self.hosts:
            self.assertTrue(eventually(
                lambda h=host: h.port(1)["state"] == abi.PORT_DOWN))
            host.eq = host.alloc_eq(abi.ALLOC_EQ, 512)
            host.neq = host.alloc_eq(abi.ALLOC_NEQ, 513)
            cq = host.alloc_cq(host.eq, 1)
            for port in (1, 2):
                gsi = host.alloc_qp(abi.ALLOC_UD, cq, host.eq, port)
                host.ok(abi.H_DEFINE_AQP1, gsi.handle, port)
        self.assertEqual(self.wait_active(), self.lids)
        self.connect()
        self.write(0)

    def test_refused(self) -> None:
        """A name the topology does not have, or twice."""
        for name, words in (("carol", "carol"), ("alice", "alice")):
            with Qemu([{"id": "hca0", "chardev": "ib0", "node": name}],
                      ["-chardev", f"socket,id=ib0,path={self.dir}/link,"
                       "reconnect-ms=50"]) as other:
                self.assertTrue(eventually(
                    lambda q=other, w=words: w in q.log()), other.log())
                self.assertNotEqual(other.qom_get("link"), "connected")
        self.wait_active()


class SameGuid(unittest.TestCase):
    """Two hosts with one GUID: the second is refused, both sides say why."""

    def test_same_guid(self) -> None:
        if not FABRIC.exists():
            self.skipTest(f"{FABRIC} is not built; scripts/setup host")
        with tempfile.TemporaryDirectory(prefix="ehca-fabric-") as name:
            path = Path(name)
            topology = path / "t.topo"
            topology.write_text("host alice ports=2\nhost bob ports=2\n"
                                "cable ab alice/1 bob/1\n")
            fabric = Daemon(path / "log", FABRIC, "-t", topology, "-s",
                            path / "link", "-c", path / "control")
            self.addCleanup(fabric.kill)
            adapters = []
            extra = []
            for host, guid in (("alice", 0x100), ("bob", 0x102)):
                extra += ["-chardev", f"socket,id={host}-link,path={path}/"
                          "link,reconnect-ms=50"]
                adapters.append({"id": host, "chardev": f"{host}-link",
                                 "node": host, "node-guid": hex(guid)})
            with Qemu(adapters, extra) as qemu:
                def linked() -> list[str]:
                    return [qemu.qom_get("link", host)
                            for host in ("alice", "bob")]
                self.assertTrue(eventually(
                    lambda: "connected" in linked() and
                    any("GUIDs are unique" in link for link in linked())))
                for log in (qemu.log(), fabric.log.read_text()):
                    self.assertRegex(log, "(alice|bob).* has GUID "
                                     "0x0000000000000102, which is "
                                     "(alice|bob).*'s; GUIDs are unique")
                self.assertIn(",node-guid=0x", qemu.log())


if __name__ == "__main__":
    unittest.main()
