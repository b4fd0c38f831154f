# SPDX-License-Identifier: GPL-2.0-or-later
"""Packets through QEMU: management datagrams, RC to itself, interrupts.

The test is the fabric and the subnet manager: it sends SMPs over the port's
ring to make the port Active, and then lets two QPs of the adapter talk to
each other (same LID: the packets turn round in the adapter).
"""
from __future__ import annotations

import os
import struct
import time
import unittest

import abi
import wire
from adapter import Queue
from qtest import eventually
from test_link import WithFabric

LID = 17


class WithPort(WithFabric):
    """Port 1 has its cable; AQP1 is defined on both ports."""

    def setUp(self) -> None:
        super().setUp()
        self.qemu.cmd("irq_intercept_out /machine/peripheral/hca0 sysbus-irq")
        self.connect()
        self.a = self.define_aqp1()
        self.tid = 0
        self.fabric.link(1, True)
        self.assertTrue(eventually(
            lambda: self.a.port(1)["state"] == abi.PORT_INIT))

    def smp(self, method: int, attribute: int, modifier: int = 0,
            data: bytes = b"") -> bytes:
        """One SMP and its answer's attribute."""
        self.tid += 1
        self.fabric.put_packet(1, wire.mad_packet(
            wire.directed_smp(method, attribute, modifier, self.tid, data),
            0xffff, 0xffff, 15, 0))
        packet = self.fabric.ports[1].receive()
        self.assertIsNotNone(packet)
        assert packet is not None
        self.assertEqual(packet[-4:], wire.icrc(packet[:-4]), "ICRC")
        answer = wire.smp_of(packet)
        self.assertEqual((answer["method"], answer["tid"], answer["status"],
                          answer["attribute"], answer["dqp"]),
                         (wire.METHOD_GET_RESP, self.tid, 0, attribute, 0))
        return answer["data"]

    def activate(self) -> None:
        """What a subnet manager does to a port."""
        info = self.smp(wire.METHOD_GET, wire.ATTR_PORT_INFO, 1)
        self.assertEqual(wire.bits(info, 260, 4), abi.PORT_INIT)
        for state in (abi.PORT_ARMED, abi.PORT_ACTIVE):
            changes = [(128, 16, LID), (144, 16, 1), (232, 8, 0),
                       (260, 4, state), (264, 4, 0), (268, 4, 0),
                       (284, 4, 0), (288, 4, 4), (344, 4, 1)]
            got = self.smp(wire.METHOD_SET, wire.ATTR_PORT_INFO, 1,
                           wire.with_bits(info, changes))
            self.assertEqual(wire.bits(got, 260, 4), state)
            self.assertEqual(self.a.port(1)["state"], state)


class Management(WithPort):
    """The firmware's agent answers through the rings."""

    def test_node_info(self) -> None:
        data = self.smp(wire.METHOD_GET, wire.ATTR_NODE_INFO)
        self.assertEqual(data[2:4], bytes([1, 2]), "a CA with two ports")
        self.assertEqual(struct.unpack_from(">Q", data, 20)[0],
                         self.a.port(1)["guid"])

    def test_port_active(self) -> None:
        """Port event in the NEQ, with an interrupt."""
        neq = self.a.neq
        self.assertEqual(self.a.eqe(neq, 0), 0)
        self.activate()
        self.assertTrue(self.qemu.wait_irq("IRQ raise 1"), "NEQ")
        self.assertTrue(self.qemu.wait_irq("IRQ lower 1"), "a pulse")
        # 29.1: port 1 available, first pass.
        self.assertEqual(self.a.eqe(neq, 0), 0xB001800000000000)
        port = self.a.port(1)
        self.assertEqual((port["lid"], port["sm_lid"], port["phys"]),
                         (LID, 1, 5))
        self.a.ok(abi.H_RESET_EVENTS, neq.handle, (1 << 64) - 1)

        entries = [0]

        def next_is(entry: int) -> bool:
            entries[0] += 1
            return eventually(
                lambda: self.a.eqe(neq, entries[0]) == entry, 5)
        self.fabric.link(1, False)
        self.assertTrue(self.qemu.wait_irq("IRQ raise 1"))
        self.assertTrue(next_is(0xB001000000000000), "unavailable")
        self.fabric.link(1, True)
        self.assertTrue(eventually(
            lambda: self.a.port(1)["state"] == abi.PORT_INIT))
        self.activate()
        self.assertTrue(next_is(0xB001800000000000), "available again")

    def test_port_taken_down(self) -> None:
        """The port wants its link again at once; the far end sees both."""
        self.activate()
        for _ in range(2):
            self.assertEqual(self.fabric.expect(wire.PHYS)[1][0], 1)
        info = self.smp(wire.METHOD_GET, wire.ATTR_PORT_INFO, 1)
        self.smp(wire.METHOD_SET, wire.ATTR_PORT_INFO, 1,
                 wire.with_bits(info, [(260, 4, abi.PORT_DOWN),
                                       (264, 4, 0)]))
        for enabled in (0, 1):
            self.assertEqual(self.fabric.expect(wire.PHYS),
                             (1, bytes([enabled, 0, 0, 0])))

    def test_perf_counters(self) -> None:
        for _ in range(5):
            self.smp(wire.METHOD_GET, wire.ATTR_NODE_INFO)
        block = self.a.query(abi.H_GET_PERF_COUNT, 1)
        xmit, rcv = struct.unpack_from(">QQ", block, 0x80)
        # VL15 traffic counts as packets (IBTA 16.1.3.5).
        self.assertGreaterEqual(rcv, 5)
        self.assertGreaterEqual(xmit, 5)


class Loop(WithPort):
    """Two RC QPs of one adapter."""

    def setUp(self) -> None:
        super().setUp()
        self.activate()
        self.scq = self.a.alloc_cq(self.a.eq, 0x51)
        self.rcq = self.a.alloc_cq(self.a.eq, 0x52)
        self.left = self.a.alloc_qp(abi.ALLOC_RC, self.scq, self.a.eq, 0x11)
        self.right = self.a.alloc_qp(abi.ALLOC_RC, self.rcq, self.a.eq, 0x12)
        self.a.connect(self.left, self.right.qpn, LID)
        self.a.connect(self.right, self.left.qpn, LID)
        self.src = self.qemu.pages(16)
        self.dst = self.qemu.pages(16)
        self.src_mr = self.a.alloc_mr(self.src, 16)
        self.dst_mr = self.a.alloc_mr(self.dst, 16)
        self.qemu.irqs.clear()

    def wait_cqe(self, cq: Queue, index: int, flag: int = 0x80) -> bytes:
        """A CQE that has become valid."""
        def look() -> bytes | None:
            cqe = self.a.cqe(cq, index)
            return cqe if cqe[0x3b] & 0x80 == flag else None
        cqe = eventually(look, 10)
        self.assertIsNotNone(cqe, "no completion")
        return cqe

    def status(self, cqe: bytes) -> int:
        return struct.unpack_from(">I", cqe, 0x3c)[0]

    def test_send(self) -> None:
        data = os.urandom(5000)
        self.qemu.write(self.src, data)
        self.a.post_recv(self.right, 0x1234567890ab0000, self.dst,
                         self.dst_mr.lkey, 8192)
        self.qemu.writeq(self.rcq.regs + abi.CQX_N1, 1 << 63)
        self.a.post_send(self.left, 0xabcdef0123450000, abi.OP_SEND, self.src,
                         self.src_mr.lkey, len(data))
        cqe = self.wait_cqe(self.rcq, 0)
        self.assertEqual(self.status(cqe), 0)
        self.assertEqual(struct.unpack_from(">Q", cqe)[0],
                         0x1234567890ab0000)
        self.assertEqual((cqe[8], cqe[9] & 0x80), (abi.CQE_RECV, 0x80))
        self.assertEqual(struct.unpack_from(">I", cqe, 0xc)[0], len(data))
        self.assertEqual(struct.unpack_from(">II", cqe, 0x1c)[0], 0x12)
        self.assertEqual(self.qemu.read(self.dst, len(data)), data)
        cqe = self.wait_cqe(self.scq, 0)
        self.assertEqual(self.status(cqe), 0)
        self.assertEqual((cqe[8], cqe[9] & 0x80), (abi.OP_SEND, 0))
        # The armed CQ raised an event, the other one none (14.3).
        self.assertTrue(self.qemu.wait_irq("IRQ raise 0"))
        self.assertTrue(self.qemu.wait_irq("IRQ lower 0"))
        self.assertEqual(self.a.eqe(self.a.eq, 0),
                         abi.EQE_VALID | abi.EQE_COMPLETION |
                         (self.rcq.handle & 0xffff) << 32 | 0x52)
        self.assertEqual(self.a.eqe(self.a.eq, 1), 0)

    def test_arming(self) -> None:
        """One event per arming; none while one is pending."""
        events = 0
        for i in range(6):
            if i in (0, 3, 4):
                self.qemu.writeq(self.rcq.regs + abi.CQX_EP, 0)
                self.qemu.writeq(self.rcq.regs + abi.CQX_N1, 1 << 63)
                events += 1
            self.a.post_recv(self.right, i, self.dst, self.dst_mr.lkey, 4096)
            self.a.post_send(self.left, i, abi.OP_SEND, self.src,
                             self.src_mr.lkey, 64)
            self.wait_cqe(self.rcq, i)
            self.wait_cqe(self.scq, i)
            self.assertTrue(eventually(
                lambda: self.a.eqe(self.a.eq, events - 1) >> 63, 5))
            self.assertEqual(self.a.eqe(self.a.eq, events), 0)

    def test_write_and_read(self) -> None:
        data = os.urandom(65536)
        self.qemu.write(self.src, data)
        self.a.post_send(self.left, 1, abi.OP_WRITE, self.src,
                         self.src_mr.lkey, 65536, self.dst, self.dst_mr.rkey)
        self.assertEqual(self.status(self.wait_cqe(self.scq, 0)), 0)
        self.assertEqual(self.qemu.read(self.dst, 65536), data)
        self.qemu.zero(self.src, 65536)
        self.a.post_send(self.left, 2, abi.OP_READ, self.src,
                         self.src_mr.lkey, 65536, self.dst, self.dst_mr.rkey)
        self.assertEqual(self.status(self.wait_cqe(self.scq, 1)), 0)
        self.assertEqual(self.qemu.read(self.src, 65536), data)

    def test_wrap(self) -> None:
        """Rings of work and of completions, several times round."""
        per_pass = self.scq.pages * 64
        for i in range(2 * per_pass + 10):
            index, flag = i % per_pass, 0x80 if i // per_pass % 2 == 0 else 0
            self.a.post_send(self.left, i, abi.OP_WRITE, self.src,
                             self.src_mr.lkey, 8, self.dst, self.dst_mr.rkey)

            def look() -> bool:
                cqe = self.a.cqe(self.scq, index)
                return (cqe[0x3b] & 0x80 == flag and
                        struct.unpack_from(">Q", cqe)[0] == i)
            self.assertTrue(eventually(look, 10), i)
            self.qemu.writeq(self.scq.regs + abi.CQX_FECA, 1)

    def test_stopped(self) -> None:
        """While the machine is stopped nothing of the guest's changes."""
        data = os.urandom(4096)
        port = self.fabric.ports[1]
        self.qemu.write(self.src, data)
        self.qemu.qmp("stop")
        # A doorbell, a packet that wants an answer, a cable that is pulled.
        self.a.post_send(self.left, 1, abi.OP_WRITE, self.src,
                         self.src_mr.lkey, 4096, self.dst, self.dst_mr.rkey)
        self.fabric.put_packet(1, wire.mad_packet(wire.directed_smp(
            wire.METHOD_GET, wire.ATTR_NODE_INFO, 0, 77), 0xffff, 0xffff,
            15, 0))
        self.fabric.link(2, True)
        self.assertIsNone(port.receive(0.5))
        self.assertEqual(self.a.port(2)["state"], abi.PORT_DOWN)
        self.assertEqual(self.qemu.read(self.dst, 4096), bytes(4096))
        self.assertEqual(self.a.cqe(self.scq, 0)[0x3b], 0)
        self.assertEqual(self.qemu.irqs, [])
        self.qemu.qmp("cont")
        self.assertEqual(self.status(self.wait_cqe(self.scq, 0)), 0)
        self.assertEqual(self.qemu.read(self.dst, 4096), data)
        answer = port.receive()
        assert answer is not None
        self.assertEqual(wire.smp_of(answer)["tid"], 77)
        self.assertTrue(eventually(
            lambda: self.a.port(2)["state"] == abi.PORT_INIT))

    def test_stopped_and_fabric_dies(self) -> None:
        """That its cables are pulled the guest learns when it goes on."""
        neq = self.a.neq
        before = self.a.eqe(neq, 1)
        self.assertEqual(before >> 63, 0)
        self.qemu.qmp("stop")
        self.fabric.hang_up()
        self.connect()
        self.fabric.hang_up()
        self.connect()
        time.sleep(0.3)
        self.assertEqual(self.a.port(1)["state"], abi.PORT_ACTIVE)
        self.assertEqual(self.a.eqe(neq, 1), before)
        self.qemu.qmp("cont")
        # 29.1: port 1 unavailable.
        self.assertTrue(eventually(
            lambda: self.a.eqe(neq, 1) == 0xB001000000000000))
        self.assertTrue(self.qemu.wait_irq("IRQ raise 1"))
        self.assertTrue(self.connected())
        for _ in range(2):
            self.assertEqual(self.fabric.expect(wire.PHYS)[1][0], 1)

    def test_stopped_timers(self) -> None:
        """Time in which the machine is stopped runs out for nobody."""
        self.assertEqual(self.a.modify_qp(self.left, state=abi.RESET), 0)
        self.left.sq_next = self.left.rq_next = 0
        self.a.connect(self.left, 0x123456, 999)
        port = self.fabric.ports[1]
        self.a.post_send(self.left, 1, abi.OP_WRITE, self.src,
                         self.src_mr.lkey, 64, self.dst, self.dst_mr.rkey)
        self.assertIsNotNone(port.receive())
        self.qemu.qmp("stop")
        while port.receive(0.1) is not None:
            pass
        # All its retries would fit in there several times.
        self.assertIsNone(port.receive(2))
        self.qemu.qmp("cont")
        self.assertIsNotNone(port.receive(), "it goes on asking")
        while self.a.cqe(self.scq, 0)[0x3b] & 0x80 == 0:
            port.receive(0.01)
        self.expect_error(0x08)

    def expect_error(self, code: int) -> None:
        """The first send ends so, its QP is in ERR."""
        status = self.status(self.wait_cqe(self.scq, 0))
        self.assertTrue(status & 0x80000000)
        self.assertEqual(status & 0x3f, code, hex(status))
        self.assertEqual(self.a.query_qp(self.left)["state"], abi.ERR)
        self.a.ok(abi.H_ERROR_DATA, self.left.handle, self.a.block)

    def test_bad_lkey(self) -> None:
        self.a.post_send(self.left, 1, abi.OP_SEND, self.src,
                         self.src_mr.lkey ^ 0x100, 64)
        self.expect_error(0x04)

    def test_bad_rkey(self) -> None:
        self.a.post_send(self.left, 1, abi.OP_WRITE, self.src,
                         self.src_mr.lkey, 64, self.dst,
                         self.dst_mr.rkey ^ 0x100)
        self.expect_error(0x07)

    def test_outside_region(self) -> None:
        self.qemu.write(self.dst, b"\x55" * 65536)
        self.a.post_send(self.left, 1, abi.OP_WRITE, self.src,
                         self.src_mr.lkey, 128, self.dst + 65536 - 64,
                         self.dst_mr.rkey)
        self.expect_error(0x07)
        self.assertEqual(self.qemu.read(self.dst, 65536), b"\x55" * 65536)

    def test_retries_used_up(self) -> None:
        """A timer of the engine fires in the adapter's thread."""
        self.assertEqual(self.a.modify_qp(self.left, state=abi.RESET), 0)
        self.left.sq_next = self.left.rq_next = 0
        self.a.connect(self.left, 0x123456, 999)
        self.a.post_send(self.left, 1, abi.OP_WRITE, self.src,
                         self.src_mr.lkey, 64, self.dst, self.dst_mr.rkey)
        port = self.fabric.ports[1]
        eventually(lambda: port.receive(0.01) is None and
                   self.a.cqe(self.scq, 0)[0x3b] & 0x80, 20)
        self.expect_error(0x08)

    def test_hostile_wqes(self) -> None:
        """Random WQEs on both queues; QEMU lives, QPs fail."""
        for i in range(60):
            qp = self.left if i % 2 else self.right
            for base, pages in ((qp.sq, qp.sq_pages), (qp.rq, qp.rq_pages)):
                self.qemu.write(base, os.urandom(4096 * pages))
            self.qemu.writeq(qp.regs + abi.QPX_RQA, 0xffff)
            self.qemu.writeq(qp.regs + abi.QPX_SQA, 0xffff)
            while self.fabric.ports[1].receive(0) is not None:
                pass
            if i % 6 == 5:
                for one, other in ((self.left, self.right),
                                   (self.right, self.left)):
                    self.assertEqual(self.a.modify_qp(one, state=abi.RESET),
                                     0)
                    self.a.connect(one, other.qpn, LID)
        self.qemu.report()


if __name__ == "__main__":
    unittest.main()
