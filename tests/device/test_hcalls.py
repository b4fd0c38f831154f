# SPDX-License-Identifier: GPL-2.0-or-later
"""Every hypercall with good and bad arguments."""
from __future__ import annotations

import struct
import unittest

import abi
from adapter import Adapter
from qtest import RAM_MIB, Qemu

RAM_END = RAM_MIB << 20
UNUSED = (abi.H_GET_TRACE_BUFFER, abi.H_RESIZE_MR, abi.H_CREATE_RPT,
          abi.H_REMOVE_RPT, abi.H_GET_HCA_INFO, abi.H_MANAGE_TRACE)
# Not aligned, just beyond RAM, register pages, end of the address space.
BAD_BLOCKS = (0x1000001, 0x1000800, RAM_END, 0x1ff800000000,
              0xfffffffffffff000)


class WithAdapter(unittest.TestCase):
    """One machine and adapter per test."""

    def setUp(self) -> None:
        self.qemu = Qemu()
        self.addCleanup(self.qemu.close)
        self.a = Adapter(self.qemu)

    def queues(self) -> None:
        """An EQ and a CQ."""
        self.eq = self.a.alloc_eq(abi.ALLOC_EQ, 512)
        self.cq = self.a.alloc_cq(self.eq, 1)


class Door(WithAdapter):
    """What all calls have in common."""

    def test_other_adapter(self) -> None:
        for number in abi.ALL_HCALLS:
            for handle in (0, self.a.handle + 1, (1 << 64) - 1):
                rc, _ = self.qemu.hcall(number, handle)
                self.assertEqual(rc, abi.H_ADAPTER_PARM, hex(number))

    def test_unused(self) -> None:
        for number in UNUSED:
            self.assertEqual(self.a.rc(number), abi.H_FUNCTION, hex(number))

    def test_not_ours(self) -> None:
        for number in (0x1c4, 0x1f0, 0x161, 0xfffffffffffffffc):
            self.assertEqual(self.a.rc(number), abi.H_FUNCTION, hex(number))

    def test_blocks(self) -> None:
        self.queues()
        qp = self.a.alloc_qp(abi.ALLOC_RC, self.cq, self.eq, 1)
        for block in BAD_BLOCKS:
            for number, args in (
                    (abi.H_QUERY_HCA, ()), (abi.H_QUERY_PORT, (1,)),
                    (abi.H_QUERY_QP, (qp.handle,)),
                    (abi.H_MODIFY_QP, (qp.handle, 1 << 54)),
                    (abi.H_ERROR_DATA, (qp.handle,)),
                    (abi.H_GET_PERF_COUNT, (1,))):
                self.assertEqual(self.a.rc(number, *args, block),
                                 abi.H_PARAMETER, f"{number:#x} {block:#x}")

    def test_last_page_of_ram(self) -> None:
        self.a.ok(abi.H_QUERY_HCA, RAM_END - 4096)
        self.assertNotEqual(self.qemu.read(RAM_END - 4096, 0xf0), bytes(0xf0))

    def test_handles(self) -> None:
        self.queues()
        mr = self.a.alloc_mr(self.qemu.pages(), 1)
        wrong = (0, 1, (1 << 64) - 1, self.eq.handle, mr.handle)
        for handle in wrong:
            for number, args in (
                    (abi.H_MODIFY_QP, (handle, 0, self.a.block)),
                    (abi.H_QUERY_QP, (handle, self.a.block)),
                    (abi.H_DEFINE_AQP1, (handle, 1)),
                    (abi.H_DISABLE_AND_GETC, (1, handle)),
                    (abi.H_ATTACH_MCQP, (handle, 0xc000, 0, 0xff << 56)),
                    (abi.H_DETACH_MCQP, (handle, 0xc000, 0, 0xff << 56)),
                    (abi.H_QUERY_MW, (handle,)),
                    (abi.H_ERROR_DATA, (handle, self.a.block))):
                self.assertEqual(self.a.rc(number, *args), abi.H_RH_PARM,
                                 f"{number:#x} {handle:#x}")
        for handle in (0, 1, self.cq.handle, self.eq.handle):
            for number in (abi.H_QUERY_MR, abi.H_REGISTER_SMR,
                           abi.H_REREGISTER_PMR):
                self.assertEqual(self.a.rc(number, handle), abi.H_RH_PARM)
            if handle != self.eq.handle and handle != self.cq.handle:
                self.assertEqual(self.a.free(handle), abi.H_RH_PARM)
                self.assertEqual(self.a.rc(abi.H_REGISTER_RPAGES, 0, handle,
                                           self.qemu.pages(), 1),
                                 abi.H_RH_PARM)

    def test_resource_types(self) -> None:
        for kind in (0, 4, 7, 0xff):
            self.assertEqual(self.a.rc(abi.H_ALLOC_RESOURCE, kind, 1),
                             abi.H_RT_PARM)


class QueryHca(WithAdapter):
    """H_QUERY_HCA (9)."""

    def word(self, block: bytes, offset: int) -> int:
        return struct.unpack_from(">I", block, offset)[0]

    def test_block(self) -> None:
        block = self.a.query(abi.H_QUERY_HCA)
        self.assertEqual(self.word(block, 0xc0), 2, "ports")
        for offset in (0x44, 0x48, 0x50, 0x80, 0x84, 0x88, 0x8c, 0xa8):
            self.assertGreater(self.word(block, offset), 0, hex(offset))
        self.assertLessEqual(self.word(block, 0xa8), 250, "SGEs")
        self.assertTrue(self.word(block, 0xb0) & 0x80000000, "4 KiB pages")
        self.assertFalse(self.word(block, 0xb0) & 0x10000000, "no 16 MiB")
        capabilities = struct.unpack_from(">Q", block, 0xd8)[0]
        self.assertEqual(capabilities & 0xffffffff, 0, "9.3: low half zero")
        self.assertTrue(capabilities >> 63 - 2 & 1, "path migration")
        self.assertTrue(capabilities >> 63 - 7 & 1, "port active event")
        self.assertEqual(block[0xf0:], bytes(4096 - 0xf0), "no more")

    def test_counts(self) -> None:
        self.queues()
        self.a.alloc_mr(self.qemu.pages(), 1)
        self.a.alloc_qp(abi.ALLOC_RC, self.cq, self.eq, 1)
        block = self.a.query(abi.H_QUERY_HCA)
        self.assertEqual([self.word(block, o) for o in (4, 8, 0xc, 0x10)],
                         [1, 1, 1, 1])


class QueryPort(WithAdapter):
    """H_QUERY_PORT, H_MODIFY_PORT, H_GET_PERF_COUNT."""

    def test_block(self) -> None:
        for port in (1, 2):
            got = self.a.port(port)
            self.assertEqual(got["state"], abi.PORT_DOWN)
            self.assertEqual(got["gid_prefix"], 0xfe80000000000000)
            self.assertEqual(got["pkey"], 0xffff)

    def test_bad_port(self) -> None:
        for port in (0, 3, 255, 1 << 32 | 1, (1 << 64) - 1):
            for number in (abi.H_QUERY_PORT, abi.H_GET_PERF_COUNT):
                self.assertEqual(self.a.rc(number, port, self.a.block),
                                 abi.H_PORT_PARM)
            self.assertEqual(self.a.rc(abi.H_MODIFY_PORT, port, 0),
                             abi.H_PORT_PARM)

    def test_modify(self) -> None:
        before = self.a.port(1)["capability_mask"]
        # 8.3: the connection manager's bit, which is also an init type bit.
        self.a.ok(abi.H_MODIFY_PORT, 1, before | 0x00010000)
        self.assertEqual(self.a.port(1)["capability_mask"],
                         before | 0x00010000)
        self.assertEqual(self.a.port(2)["capability_mask"], before)
        self.a.ok(abi.H_MODIFY_PORT, 1, before)
        self.assertEqual(self.a.port(1)["capability_mask"], before)

    def test_perf_in_the_dark(self) -> None:
        block = self.a.query(abi.H_GET_PERF_COUNT, 2)
        version, port = struct.unpack_from(">II", block)
        self.assertEqual((version, port), (1, 2))
        self.assertEqual(block[0x70:0x90], bytes(0x20), "no traffic yet")


class Queues(WithAdapter):
    """EQ, NEQ, CQ."""

    def test_eq(self) -> None:
        for entries, pages in ((1, 1), (512, 1), (513, 2), (4096, 8)):
            eq = self.a.alloc_eq(abi.ALLOC_EQ, entries)
            self.assertEqual(eq.pages, pages)
            self.assertGreaterEqual(eq.entries, entries)
            self.assertEqual(self.a.free(eq.handle), abi.H_SUCCESS)
            self.assertEqual(self.a.free(eq.handle), abi.H_RH_PARM)

    def test_eq_bad(self) -> None:
        for entries in (0, 0xffffffff, (1 << 20) + 1):
            self.assertLess(self.a.rc(abi.H_ALLOC_RESOURCE, abi.ALLOC_EQ,
                                      entries), 0)
        self.a.alloc_eq(abi.ALLOC_EQ, 512)
        self.assertEqual(self.a.rc(abi.H_ALLOC_RESOURCE, abi.ALLOC_EQ, 512),
                         abi.H_NOT_ENOUGH_RESOURCES)

    def test_pages(self) -> None:
        outs = self.a.ok(abi.H_ALLOC_RESOURCE, abi.ALLOC_EQ, 1024)
        handle = outs[0]
        page = self.qemu.pages()

        def register(kind: int, addr: int, count: int) -> int:
            return self.a.rc(abi.H_REGISTER_RPAGES, kind, handle, addr, count)
        self.assertLess(register(0, page + 8, 1), 0)
        self.assertLess(register(0, RAM_END, 1), 0)
        self.assertLess(register(0, (1 << 64) - 4096, 1), 0)
        self.assertLess(register(0, page, 0), 0)
        self.assertLess(register(0, page, 2), 0)
        self.assertLess(register(1, page, 1), 0)
        self.assertLess(register(0x100, page, 1), 0)
        self.assertEqual(register(0, page, 1), abi.H_PAGE_REGISTERED)
        self.assertEqual(register(0, self.qemu.pages(), 1), abi.H_SUCCESS)
        self.assertLess(register(0, self.qemu.pages(), 1), 0)

    def test_cq(self) -> None:
        eq = self.a.alloc_eq(abi.ALLOC_EQ, 512)
        seen = set()
        for entries, pages in ((30, 1), (64, 1), (65, 2), (1300, 21)):
            cq = self.a.alloc_cq(eq, 7, entries)
            self.assertEqual(cq.pages, pages)
            self.assertGreaterEqual(cq.entries, entries)
            self.assertEqual(cq.regs % 4096, 0)
            self.assertGreaterEqual(cq.regs, RAM_END)
            self.assertEqual(self.qemu.readq(cq.regs + abi.CQX_FEC),
                             cq.entries)
            seen |= {cq.regs, cq.handle & 0xffff}
        self.assertEqual(len(seen), 8)

    def test_cq_bad(self) -> None:
        eq = self.a.alloc_eq(abi.ALLOC_EQ, 512)
        neq = self.a.alloc_eq(abi.ALLOC_NEQ, 512)
        for wrong in (0, neq.handle, eq.handle + 1):
            self.assertEqual(self.a.rc(abi.H_ALLOC_RESOURCE, abi.ALLOC_CQ,
                                       wrong, 1, 64), abi.H_EQ_PARM)
        for entries in (0, 0xffffffff):
            self.assertLess(self.a.rc(abi.H_ALLOC_RESOURCE, abi.ALLOC_CQ,
                                      eq.handle, 1, entries), 0)

    def test_freeing_in_use(self) -> None:
        self.queues()
        self.assertEqual(self.a.free(self.eq.handle), abi.H_RESOURCE)
        qp = self.a.alloc_qp(abi.ALLOC_RC, self.cq, self.eq, 1)
        self.assertEqual(self.a.free(self.cq.handle), abi.H_RESOURCE)
        self.assertEqual(self.a.free(self.cq.handle, 1), abi.H_RESOURCE)
        for handle in (qp.handle, self.cq.handle, self.eq.handle):
            self.assertEqual(self.a.free(handle), abi.H_SUCCESS)

    def test_all_cqs(self) -> None:
        with Qemu([{"id": "hca0", "max-cq": 3}]) as qemu:
            a = Adapter(qemu)
            eq = a.alloc_eq(abi.ALLOC_EQ, 512)
            cqs = [a.alloc_cq(eq, i) for i in range(3)]
            self.assertEqual(a.rc(abi.H_ALLOC_RESOURCE, abi.ALLOC_CQ,
                                  eq.handle, 9, 64),
                             abi.H_NOT_ENOUGH_RESOURCES)
            self.assertEqual(a.free(cqs[1].handle), abi.H_SUCCESS)
            a.alloc_cq(eq, 9)

    def test_events(self) -> None:
        neq = self.a.alloc_eq(abi.ALLOC_NEQ, 513)
        eq = self.a.alloc_eq(abi.ALLOC_EQ, 512)
        self.assertEqual(self.a.rc(abi.H_RESET_EVENTS, neq.handle,
                                   (1 << 64) - 1), abi.H_SUCCESS)
        self.assertEqual(self.a.rc(abi.H_RESET_EVENTS, eq.handle, 0),
                         abi.H_RH_PARM)
        self.assertEqual(self.a.rc(abi.H_QUERY_INT_STATE, eq.ist), 0)
        self.assertLess(self.a.rc(abi.H_QUERY_INT_STATE, 1), 0)


class FullQueue(WithAdapter):
    """An event queue that the guest does not look at for long."""

    def test_comes_back(self) -> None:
        self.qemu.cmd(
            "irq_intercept_out /machine/peripheral/hca0 sysbus-irq")
        self.queues()
        qp = self.a.alloc_qp(abi.ALLOC_RC, self.cq, self.eq, 0x33)
        self.a.connect(qp, 0x777, 1)

        def drained() -> None:
            """One event: the send queue is drained, it is empty."""
            for state in (abi.SQD, abi.RTS):
                self.assertEqual(self.a.modify_qp(qp, state=state), 0)

        for _ in range(self.eq.entries + 3):
            drained()
        event = 0x0400000000000033 | qp.qpn << 32
        valid = 1 << 63
        for i in (0, self.eq.entries - 1):
            self.assertEqual(self.a.eqe(self.eq, i), valid | event)
        while self.qemu.wait_irq("IRQ raise 0", 0.2):
            pass
        # 8.11: asked before it drains the queue, not after.
        self.a.ok(abi.H_QUERY_INT_STATE, self.eq.ist)
        self.assertTrue(self.qemu.wait_irq("IRQ raise 0"), "once more")
        self.a.ok(abi.H_QUERY_INT_STATE, self.eq.ist)
        drained()
        self.assertTrue(self.qemu.wait_irq("IRQ raise 0"))
        self.assertEqual(self.a.eqe(self.eq, 0), event, "second pass")
        self.assertEqual(self.qemu.report()["eq"]["dropped"], 3)


class QueuePairs(WithAdapter):
    """QPs: allocation, states, special ones."""

    def setUp(self) -> None:
        super().setUp()
        self.queues()

    def alloc(self, control: int = abi.ALLOC_RC, send: int | None = None,
              recv: int | None = None, eq: int | None = None,
              wrs: int = 8, sges: int = 4) -> int:
        return self.a.rc(
            abi.H_ALLOC_RESOURCE, control,
            self.cq.handle if send is None else send,
            self.cq.handle if recv is None else recv,
            self.eq.handle if eq is None else eq, 1 << 32 | 1,
            wrs << 48 | wrs << 32 | sges << 24 | sges << 16)

    def test_sizes(self) -> None:
        for control in (abi.ALLOC_RC, abi.ALLOC_UC, abi.ALLOC_UD):
            for wrs, sges in ((1, 1), (129, 4), (513, 3), (16, 60)):
                qp = self.a.alloc_qp(control, self.cq, self.eq, 3, wrs=wrs,
                                     sges=sges)
                for got, pages, number in (
                        (qp.send_sges, qp.sq_pages, qp.send_wrs),
                        (qp.recv_sges, qp.rq_pages, qp.recv_wrs)):
                    self.assertIn(got, (4, 12, 28, 60, 124, 252), "5.3")
                    self.assertGreaterEqual(got, sges)
                    self.assertGreaterEqual(number, wrs)
                    self.assertGreaterEqual(pages * 4096,
                                            number * (64 + 16 * got))
                self.assertEqual(qp.regs % 4096, 0)
                self.assertGreater(qp.qpn, 1)
                self.assertLess(qp.qpn, 1 << 24)
                self.assertEqual(self.a.query_qp(qp)["state"], abi.RESET)
                self.assertEqual(self.a.free(qp.handle), abi.H_SUCCESS)

    def test_bad(self) -> None:
        self.assertEqual(self.alloc(send=0), abi.H_SCQ_PARM)
        self.assertEqual(self.alloc(recv=self.eq.handle), abi.H_RCQ_PARM)
        self.assertEqual(self.alloc(eq=self.cq.handle), abi.H_EQ_PARM)
        self.assertLess(self.alloc(wrs=0xffff), 0)
        self.assertLess(self.alloc(sges=0xff), 0)
        self.assertLess(self.alloc(0x0002010000000001), 0, "no RD service")

    def test_states(self) -> None:
        """Legal and illegal moves."""
        qp = self.a.alloc_qp(abi.ALLOC_RC, self.cq, self.eq, 1)
        for state in (abi.RTR, abi.RTS, abi.SQD, abi.SQE, 0, 4, 7, 0xff):
            self.assertLess(self.a.modify_qp(qp, state=state), 0, state)
            self.assertEqual(self.a.query_qp(qp)["state"], abi.RESET)
        self.a.connect(qp, qp.qpn, 1)
        got = self.a.query_qp(qp)
        self.assertEqual((got["state"], got["dest_qpn"], got["timeout"],
                          got["mig_state"]),
                         (abi.RTS, qp.qpn, 14, abi.MIGRATED))
        for state in (abi.INIT, abi.RTR):
            self.assertLess(self.a.modify_qp(qp, state=state), 0)
        for state in (abi.SQD, abi.RTS, abi.ERR, abi.RESET):
            self.assertEqual(self.a.modify_qp(qp, state=state), 0, state)
        self.assertEqual(self.a.query_qp(qp)["state"], abi.RESET)

    def test_mask(self) -> None:
        """Only fields that the mask names are taken."""
        qp = self.a.alloc_qp(abi.ALLOC_UD, self.cq, self.eq, 1)
        block = bytearray(4096)
        struct.pack_into(">I", block, 0x24, abi.INIT)
        struct.pack_into(">I", block, 0x00, 0x1234)
        self.qemu.write(self.a.block, bytes(block))
        self.a.ok(abi.H_MODIFY_QP, qp.handle, 1 << 63 - 9, self.a.block)
        got = self.a.query_qp(qp)
        self.assertEqual((got["state"], got["qkey"]), (abi.INIT, 0))

    def test_alternate_path(self) -> None:
        """ARMED is the hardware's to set; REARM and MIGRATED are ours."""
        qp = self.a.alloc_qp(abi.ALLOC_RC, self.cq, self.eq, 1)
        self.a.connect(qp, 0x777, 1)
        alternate = dict(alt_port=2, alt_pkey_index=0, dlid_al=9,
                         path_bits_al=0, sl_al=0, rate_al=0, retry_al=7,
                         rnr_retry_al=7, timeout_al=14, grh_al=0)
        rc = self.a.modify_qp(qp, state=abi.RTS, mig_state=abi.REARM,
                              **alternate)
        self.assertEqual(rc, 0)
        got = self.a.query_qp(qp)
        self.assertEqual((got["mig_state"], got["alt_port"], got["dlid_al"]),
                         (abi.REARM, 2, 9))
        self.assertLess(self.a.modify_qp(qp, state=abi.RTS,
                                         mig_state=abi.ARMED), 0)

    def test_aqp1(self) -> None:
        first, second = (self.a.alloc_qp(abi.ALLOC_UD, self.cq, self.eq, i)
                         for i in (1, 2))
        rc = self.alloc(abi.ALLOC_RC)
        self.assertEqual(rc, 0)
        for port in (0, 3):
            self.assertEqual(self.a.rc(abi.H_DEFINE_AQP1, first.handle, port),
                             abi.H_PORT_PARM)
        outs = self.a.ok(abi.H_DEFINE_AQP1, first.handle, 1)
        self.assertGreater(outs[0] & 0xffffffff, 1, "PMA QP")
        self.assertEqual(self.a.rc(abi.H_DEFINE_AQP1, second.handle, 1),
                         abi.H_ALIAS_EXIST)
        self.a.ok(abi.H_DEFINE_AQP1, second.handle, 2)
        self.assertEqual(self.a.free(first.handle), 0)
        third = self.a.alloc_qp(abi.ALLOC_UD, self.cq, self.eq, 3)
        self.a.ok(abi.H_DEFINE_AQP1, third.handle, 1)

    def test_multicast(self) -> None:
        ud = self.a.alloc_qp(abi.ALLOC_UD, self.cq, self.eq, 1)
        rc_qp = self.a.alloc_qp(abi.ALLOC_RC, self.cq, self.eq, 2)
        low, high = 0x0000000100000001, 0xff12401bffff0000

        def attach(qp: int, lid: int, low: int, high: int) -> int:
            return self.a.rc(abi.H_ATTACH_MCQP, qp, lid, low, high)
        self.assertEqual(attach(ud.handle, 0xc001, low, high), 0)
        self.assertLess(attach(ud.handle, 0xbfff, low, high), 0)
        self.assertLess(attach(ud.handle, 0xffff, low, high), 0)
        self.assertLess(attach(ud.handle, 0xc001, low, 0xfe80 << 48), 0)
        self.assertLess(attach(rc_qp.handle, 0xc001, low, high), 0)
        self.assertEqual(self.a.rc(abi.H_DETACH_MCQP, ud.handle, 0xc001, low,
                                   high), 0)
        self.assertLess(self.a.rc(abi.H_DETACH_MCQP, ud.handle, 0xc001, low,
                                  high), 0)

    def test_getc(self) -> None:
        qp = self.a.alloc_qp(abi.ALLOC_RC, self.cq, self.eq, 1)
        self.a.connect(qp, 0x777, 1)
        self.assertEqual(self.a.modify_qp(qp, state=abi.ERR), 0)
        outs = self.a.ok(abi.H_DISABLE_AND_GETC, 4, qp.handle)
        mask = (1 << 63) - 1
        self.assertEqual((outs[0] & mask, outs[1] & mask), (qp.sq, qp.rq))
        self.assertEqual(self.a.rc(abi.H_DISABLE_AND_GETC, 1, qp.handle), 0)
        for function in (0, 5, 99):
            self.assertLess(self.a.rc(abi.H_DISABLE_AND_GETC, function,
                                      qp.handle), 0)

    def test_error_data(self) -> None:
        qp = self.a.alloc_qp(abi.ALLOC_RC, self.cq, self.eq, 1)
        for handle in (qp.handle, self.cq.handle):
            self.assertEqual(self.a.rc(abi.H_ERROR_DATA, handle,
                                       self.a.block), abi.H_R_STATE)

    def test_all_qps(self) -> None:
        with Qemu([{"id": "hca0", "max-qp": 3}]) as qemu:
            a = Adapter(qemu)
            eq = a.alloc_eq(abi.ALLOC_EQ, 512)
            cq = a.alloc_cq(eq, 1)
            qps = [a.alloc_qp(abi.ALLOC_UD, cq, eq, i) for i in range(3)]
            self.assertEqual(
                a.rc(abi.H_ALLOC_RESOURCE, abi.ALLOC_UD, cq.handle, cq.handle,
                     eq.handle, 1 << 32 | 1, 1 << 48 | 1 << 32 | 0x04040000),
                abi.H_NOT_ENOUGH_RESOURCES)
            self.assertEqual(a.free(qps[0].handle), abi.H_SUCCESS)
            a.alloc_qp(abi.ALLOC_UD, cq, eq, 9)


class Memory(WithAdapter):
    """MRs and MWs."""

    def test_sizes(self) -> None:
        for pages in (1, 2, 512, 513, 1025):
            memory = self.qemu.pages(pages)
            mr = self.a.alloc_mr(memory, pages)
            outs = self.a.ok(abi.H_QUERY_MR, mr.handle)
            self.assertEqual((outs[0], outs[1]), (4096 * pages, memory))
            self.assertEqual(outs[4] >> 32, abi.LOCAL_WRITE |
                             abi.REMOTE_WRITE | abi.REMOTE_READ)
            self.assertEqual(outs[5], mr.lkey << 32 | mr.rkey)
            self.assertEqual(self.a.free(mr.handle), abi.H_SUCCESS)
            self.assertEqual(self.a.rc(abi.H_QUERY_MR, mr.handle),
                             abi.H_RH_PARM)

    def test_page_count(self) -> None:
        """An MR that starts and ends inside pages (7)."""
        outs = self.a.ok(abi.H_ALLOC_RESOURCE, abi.ALLOC_MR, 0x12345fff, 2,
                         0, 1)
        pages = self.qemu.pages(2)
        self.assertEqual(self.a.rc(abi.H_REGISTER_RPAGES, 0, outs[0], pages,
                                   1), abi.H_PAGE_REGISTERED)
        self.assertEqual(self.a.rc(abi.H_REGISTER_RPAGES, 0, outs[0],
                                   pages + 4096, 1), abi.H_SUCCESS)

    def test_bad_pages(self) -> None:
        outs = self.a.ok(abi.H_ALLOC_RESOURCE, abi.ALLOC_MR, 0, 4 * 4096, 0,
                         1)
        handle = outs[0]
        page = self.qemu.pages()

        def register(code: int, addr: int, count: int) -> int:
            return self.a.rc(abi.H_REGISTER_RPAGES, code << 8, handle, addr,
                             count)
        for addr in (page + 1, RAM_END, (1 << 64) - 4096):
            self.assertLess(register(0, addr, 1), 0)
            self.assertLess(register(0, addr, 2), 0)
        self.assertLess(register(1, page, 1), 0, "other page size")
        for count in (0, 5, 513, (1 << 64) - 1):
            self.assertLess(register(0, page, count), 0, count)
        # A list with one bad entry is refused as a whole.
        good = self.qemu.pages(3)
        self.qemu.write(page, struct.pack(">4Q", good, good + 4096, RAM_END,
                                          good + 8192))
        self.assertLess(register(0, page, 4), 0)
        self.qemu.write(page, struct.pack(">4Q", good, good + 4096, good,
                                          good + 8192))
        self.assertEqual(register(0, page, 4), abi.H_SUCCESS)

    def test_bad_alloc(self) -> None:
        self.assertLess(self.a.rc(abi.H_ALLOC_RESOURCE, abi.ALLOC_MR,
                                  (1 << 64) - 4096, 8192, 0, 1), 0)
        self.assertLess(self.a.rc(abi.H_ALLOC_RESOURCE, abi.ALLOC_MR, 0,
                                  (1 << 64) - 1, 0, 1), 0, "too many pages")

    def test_shared(self) -> None:
        memory = self.qemu.pages(2)
        mr = self.a.alloc_mr(memory, 2)
        outs = self.a.ok(abi.H_REGISTER_SMR, mr.handle, 0x55550000,
                         abi.LOCAL_WRITE << 32, 7)
        self.assertNotEqual(outs[0], mr.handle)
        self.assertNotEqual(outs[2] & 0xffffffff, mr.lkey)
        got = self.a.ok(abi.H_QUERY_MR, outs[0])
        self.assertEqual((got[0], got[1], got[4] >> 32),
                         (8192, 0x55550000, abi.LOCAL_WRITE))
        self.assertEqual(self.a.free(mr.handle), abi.H_SUCCESS)
        self.a.ok(abi.H_QUERY_MR, outs[0])
        self.assertEqual(self.a.free(outs[0]), abi.H_SUCCESS)

    def test_reregister(self) -> None:
        mr = self.a.alloc_mr(self.qemu.pages(), 1)
        pages, page_list = self.qemu.pages(3), self.qemu.pages()
        self.qemu.write(page_list, struct.pack(
            ">3Q", *[pages + 4096 * i for i in range(3)]))
        access = abi.LOCAL_WRITE << 32
        outs = self.a.ok(abi.H_REREGISTER_PMR, mr.handle, 0x7000, 3 * 4096,
                         access | 1, page_list)
        self.assertEqual(outs[1], 0x7000, "8.16: must equal r6")
        got = self.a.ok(abi.H_QUERY_MR, mr.handle)
        self.assertEqual((got[0], got[1]), (3 * 4096, 0x7000))
        for args in ((0x7000, 3 * 4096, access | 1, page_list + 8),
                     (0x7000, 3 * 4096, access | 1, RAM_END),
                     (0x7000, 513 * 4096, access | 1, page_list)):
            self.assertLess(self.a.rc(abi.H_REREGISTER_PMR, mr.handle, *args),
                            0)
        self.a.ok(abi.H_REREGISTER_PMR, mr.handle, 0, 0, 1, 0)
        self.a.ok(abi.H_REREGISTER_PMR, mr.handle, 0x7000, 3 * 4096,
                  access | 1, page_list)

    def test_window(self) -> None:
        outs = self.a.ok(abi.H_ALLOC_RESOURCE, abi.ALLOC_MW, 1)
        got = self.a.ok(abi.H_QUERY_MW, outs[0])
        self.assertEqual(got[3] & 0xffffffff, outs[3] & 0xffffffff)
        self.assertEqual(self.a.rc(abi.H_QUERY_MR, outs[0]), abi.H_RH_PARM)
        self.assertEqual(self.a.free(outs[0]), abi.H_SUCCESS)


if __name__ == "__main__":
    unittest.main()
