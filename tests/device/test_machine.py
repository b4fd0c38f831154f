# SPDX-License-Identifier: GPL-2.0-or-later
"""The device in the machine: options, device tree, windows, report, reset."""
from __future__ import annotations

import struct
import unittest

import abi
from adapter import Adapter, adapter_nodes
from qtest import MACHINE, Qemu, QemuError, run_failing


class DeviceTree(unittest.TestCase):
    """Interface reference, 3.1."""

    def test_node(self) -> None:
        with Qemu([{"id": "hca0", "handle": "0x123456789abcdef0",
                    "loc-code": "U1.2.3"}]) as qemu:
            [node] = adapter_nodes(qemu)
            self.assertEqual(node.props["compatible"], b"IBM,lhca\0")
            self.assertEqual(node.props["ibm,hca-handle"],
                             struct.pack(">Q", 0x123456789abcdef0))
            self.assertEqual(node.props["ibm,loc-code"], b"U1.2.3\0")
            base, size = struct.unpack(">QQ", node.props["reg"])
            self.assertEqual(node.name, f"lhca@{base:x}")
            # 12: outside RAM, page aligned, below 2^46.
            self.assertGreater(base, qemu.qmp("query-memory-size-summary")
                               ["base-memory"])
            self.assertEqual(base % 65536, 0)
            self.assertGreaterEqual(size, 4096)
            self.assertLessEqual(base + size, 1 << 46)

    def test_none(self) -> None:
        with Qemu([]) as qemu:
            self.assertEqual(adapter_nodes(qemu), [])
            rc, _ = qemu.hcall(abi.H_QUERY_HCA, 1, 0)
            self.assertEqual(rc, abi.H_ADAPTER_PARM)

    def test_two(self) -> None:
        with Qemu([{"id": "hca0"}, {"id": "hca1"}]) as qemu:
            nodes = adapter_nodes(qemu)
            self.assertEqual(len(nodes), 2)
            handles, windows, ists, guids = set(), [], set(), set()
            for node in nodes:
                handle = int.from_bytes(node.props["ibm,hca-handle"], "big")
                handles.add(handle)
                windows.append(struct.unpack(">QQ", node.props["reg"]))
                adapter = Adapter(qemu, handle)
                ists.add(adapter.alloc_eq(abi.ALLOC_EQ, 64).ist)
                ists.add(adapter.alloc_eq(abi.ALLOC_NEQ, 64).ist)
                guids |= {adapter.port(1)["guid"], adapter.port(2)["guid"]}
            self.assertEqual(len(handles), 2)
            self.assertEqual(len(ists), 4)
            self.assertEqual(len(guids), 4)
            windows.sort()
            self.assertLessEqual(sum(windows[0]), windows[1][0])

    def test_resources_are_separate(self) -> None:
        with Qemu([{"id": "hca0"}, {"id": "hca1"}]) as qemu:
            first, second = (
                Adapter(qemu, int.from_bytes(n.props["ibm,hca-handle"],
                                             "big"))
                for n in adapter_nodes(qemu))
            eq = first.alloc_eq(abi.ALLOC_EQ, 64)
            self.assertEqual(second.free(eq.handle), abi.H_RH_PARM)
            self.assertEqual(first.free(eq.handle), abi.H_SUCCESS)

    def test_eight_but_not_nine(self) -> None:
        with Qemu([{"id": f"hca{i}"} for i in range(8)]) as qemu:
            self.assertEqual(len(adapter_nodes(qemu)), 8)
        status, words = run_failing([{"id": f"hca{i}"} for i in range(9)])
        self.assertEqual(status, 1)
        self.assertIn("at most 8", words)


class Interrupts(unittest.TestCase):
    """ISTs must be sources of the interrupt controller (3.3)."""

    def check(self, mode: str) -> None:
        with Qemu(machine=f"{MACHINE},ic-mode={mode}") as qemu:
            adapter = Adapter(qemu)
            for control in (abi.ALLOC_EQ, abi.ALLOC_NEQ):
                ist = adapter.alloc_eq(control, 64).ist
                self.assertNotIn(ist, (0, 2))
                self.assertLess(ist, 1 << 24)
                pic = qemu.qmp("human-monitor-command", **{
                    "command-line": "info pic"})
                self.assertIn(f"{ist:x}", pic.lower())

    def test_xics(self) -> None:
        self.check("xics")

    def test_xive(self) -> None:
        self.check("xive")

    def test_dual(self) -> None:
        self.check("dual")


class Options(unittest.TestCase):
    """What a user may write, and what he is told when it is wrong."""

    def refuse(self, words: str, adapters: list[dict[str, object]],
               extra: list[str] | None = None, machine: str = MACHINE) -> None:
        status, said = run_failing(adapters, extra, machine)
        self.assertEqual(status, 1, said)
        self.assertIn(words, said)

    def test_bad_activation(self) -> None:
        self.refuse("one of aqp1, qp0, always", [{"port-activation": "qp1"}])

    def test_bad_ports(self) -> None:
        self.refuse("ports=3", [{"ports": 3}])
        self.refuse("ports=0", [{"ports": 0}])

    def test_chardev_without_node(self) -> None:
        self.refuse("node=NAME", [{"chardev": "ib0"}],
                    ["-chardev", "null,id=ib0"])

    def test_bad_node(self) -> None:
        for node in ("x" * 64, "a b"):
            self.refuse(f"node={node}", [{"node": node}])

    def test_same_handle(self) -> None:
        self.refuse("taken", [{"handle": 7}, {"handle": 7}])

    def test_other_machine(self) -> None:
        self.refuse("dynamic sysbus device", [{}], machine="none")

    def test_no_hotplug(self) -> None:
        with Qemu([]) as qemu:
            with self.assertRaises(QemuError):
                qemu.qmp("device_add", driver="ehca")
        with Qemu() as qemu:
            with self.assertRaises(QemuError):
                qemu.qmp("device_del", id="hca0")
            qemu.report()

    def test_no_migration(self) -> None:
        with Qemu() as qemu:
            with self.assertRaisesRegex(QemuError, "ehca"):
                qemu.qmp("migrate", uri="exec:cat >/dev/null")
            said = qemu.qmp("human-monitor-command",
                            **{"command-line": "savevm x"})
            self.assertIn("ehca", said)
            self.assertIn("cannot be saved", said)

    def test_one_port(self) -> None:
        with Qemu([{"id": "hca0", "ports": 1}]) as qemu:
            adapter = Adapter(qemu)
            adapter.port(1)
            self.assertEqual(adapter.rc(abi.H_QUERY_PORT, 2, adapter.block),
                             abi.H_PORT_PARM)

    def test_guids(self) -> None:
        with Qemu([{"id": "hca0", "node-guid": "0x0002550011223300"}]) as qemu:
            adapter = Adapter(qemu)
            self.assertEqual(adapter.port(1)["guid"], 0x0002550011223301)
            self.assertEqual(adapter.port(2)["guid"], 0x0002550011223302)
            block = adapter.query(abi.H_QUERY_HCA)
            self.assertEqual(struct.unpack_from(">Q", block, 0xd0)[0],
                             0x0002550011223300)
        guids = set()
        for node in ("alice", "bob", "alice"):
            with Qemu([{"id": "hca0", "node": node}]) as qemu:
                guids.add(Adapter(qemu).port(1)["guid"])
        self.assertEqual(len(guids), 2, "one per name, the same in each run")

    def test_no_chardev(self) -> None:
        with Qemu() as qemu:
            self.assertIn("stay dark", qemu.log())
            self.assertEqual(qemu.qom_get("link"), "no chardev")
            adapter = Adapter(qemu)
            self.assertEqual(adapter.port(1)["state"], abi.PORT_DOWN)
            self.assertEqual(adapter.port(2)["state"], abi.PORT_DOWN)


class Log(unittest.TestCase):
    """What a guest can provoke must not fill the log."""

    def test_guest_errors(self) -> None:
        with Qemu(extra=["-d", "guest_errors"]) as qemu:
            adapter = Adapter(qemu)
            for _ in range(3000):
                adapter.rc(abi.H_QUERY_PORT, 3, adapter.block)
                qemu.hcall(abi.H_QUERY_PORT, 5, 3, adapter.block)
            lines = qemu.log().splitlines()
            self.assertTrue(any("port 3" in line for line in lines))
            self.assertTrue(any("no adapter" in line for line in lines))
            self.assertLess(len(lines), 1500)


class Report(unittest.TestCase):
    """qom-get report."""

    def test_report(self) -> None:
        with Qemu() as qemu:
            adapter = Adapter(qemu)
            self.assertIsInstance(qemu.report(), dict)
            eq = adapter.alloc_eq(abi.ALLOC_EQ, 512)
            cq = adapter.alloc_cq(eq, 1)
            qp = adapter.alloc_qp(abi.ALLOC_RC, cq, eq, 5)
            self.assertIn(qp.qpn, [q["qpn"] for q in qemu.report()["qps"]])
            adapter.free(qp.handle)
            self.assertNotIn(qp.qpn, [q["qpn"] for q in qemu.report()["qps"]])


class Reset(unittest.TestCase):
    """A guest that reboots finds a fresh adapter."""

    def test_reset(self) -> None:
        with Qemu() as qemu:
            adapter = Adapter(qemu)
            before = adapter_nodes(qemu)[0].props
            eq = adapter.alloc_eq(abi.ALLOC_EQ, 512)
            neq = adapter.alloc_eq(abi.ALLOC_NEQ, 513)
            cq = adapter.alloc_cq(eq, 1)
            qp = adapter.alloc_qp(abi.ALLOC_UD, cq, eq, 1)
            adapter.ok(abi.H_DEFINE_AQP1, qp.handle, 1)
            memory = qemu.pages()
            mr = adapter.alloc_mr(memory, 1)
            qemu.reset()
            self.assertEqual(adapter_nodes(qemu)[0].props, before)
            for handle in (qp.handle, cq.handle, mr.handle, eq.handle,
                           neq.handle):
                self.assertEqual(adapter.free(handle), abi.H_RH_PARM)
            block = adapter.query(abi.H_QUERY_HCA)
            self.assertEqual(block[4:0x18], bytes(0x14), "nothing in use")
            # All of it again: the driver of the next boot.
            eq = adapter.alloc_eq(abi.ALLOC_EQ, 512)
            adapter.alloc_eq(abi.ALLOC_NEQ, 513)
            cq = adapter.alloc_cq(eq, 1)
            qp = adapter.alloc_qp(abi.ALLOC_UD, cq, eq, 1)
            adapter.ok(abi.H_DEFINE_AQP1, qp.handle, 1)

    def test_many_resets(self) -> None:
        with Qemu([{"id": "hca0", "port-activation": "always"}]) as qemu:
            adapter = Adapter(qemu)
            for _ in range(20):
                adapter.alloc_eq(abi.ALLOC_EQ, 512)
                qemu.reset()
            qemu.report()


class RegisterPages(unittest.TestCase):
    """What is not a doubleword access does nothing."""

    def test_narrow_access(self) -> None:
        with Qemu(extra=["-d", "invalid_mem"]) as qemu:
            adapter = Adapter(qemu)
            eq = adapter.alloc_eq(abi.ALLOC_EQ, 512)
            cq = adapter.alloc_cq(eq, 1)
            qemu.cmd(f"writel {cq.regs + abi.CQX_N1:#x} 0xffffffff")
            qemu.cmd(f"writeb {cq.regs + abi.CQX_N1:#x} 0xff")
            qemu.cmd(f"readb {cq.regs + abi.CQX_FEC:#x}")
            qemu.writeq(cq.regs + abi.CQX_N1 - 4, (1 << 64) - 1)
            qemu.readq(cq.regs + abi.CQX_FEC + 4)
            self.assertEqual(qemu.readq(cq.regs + abi.CQX_FEC), cq.entries)
            self.assertEqual(qemu.readq(cq.regs + abi.CQX_N1), 0)
            qemu.writeq(cq.regs + abi.CQX_N1, 1 << 63)
            self.assertEqual(qemu.readq(cq.regs + abi.CQX_N1), 1 << 63)
            # What the bus refuses is a machine check in a running guest.
            self.assertNotIn("Invalid", qemu.log())


if __name__ == "__main__":
    unittest.main()
