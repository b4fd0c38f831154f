# SPDX-License-Identifier: GPL-2.0-or-later
"""An adapter as its driver sees it: resources over hypervisor calls."""
from __future__ import annotations

import struct
from dataclasses import dataclass

import abi
import fdt
from qtest import Qemu


class HcallFailed(Exception):
    """A hypervisor call that was to succeed did not."""


def adapter_nodes(qemu: Qemu) -> list[fdt.Node]:
    """The lhca nodes of the device tree, by handle."""
    nodes = [n for n in fdt.parse(qemu.dtb()).children
             if n.name.split("@")[0] == "lhca"]
    return sorted(nodes, key=lambda n: n.props["ibm,hca-handle"])


@dataclass
class Queue:
    """EQ, NEQ or CQ."""
    handle: int
    entries: int
    pages: int
    ist: int = 0
    regs: int = 0
    memory: int = 0


@dataclass
class Mr:
    """Memory region."""
    handle: int
    lkey: int
    rkey: int


@dataclass
class Qp:
    """Queue pair with its memory; indices of the next WQE to write."""
    handle: int
    qpn: int
    send_wrs: int
    recv_wrs: int
    send_sges: int
    recv_sges: int
    sq_pages: int
    rq_pages: int
    regs: int
    sq: int = 0
    rq: int = 0
    sq_next: int = 0
    rq_next: int = 0


class Adapter:
    """The first adapter of the machine, or the one with this handle."""

    def __init__(self, qemu: Qemu, handle: int | None = None) -> None:
        self.qemu = qemu
        if handle is None:
            [first, *_] = adapter_nodes(qemu)
            handle = int.from_bytes(first.props["ibm,hca-handle"], "big")
        self.handle = handle
        self.eq: Queue
        self.neq: Queue
        self.block = qemu.pages()

    def hcall(self, number: int, *args: int) -> tuple[int, list[int]]:
        """A call of this adapter: r5 and on are given."""
        return self.qemu.hcall(number, self.handle, *args)

    def ok(self, number: int, *args: int) -> list[int]:
        """A call that must succeed; its outputs."""
        rc, outs = self.hcall(number, *args)
        if rc != abi.H_SUCCESS:
            raise HcallFailed(f"hcall {number:#x} {[hex(a) for a in args]}: "
                              f"{rc}")
        return outs

    def rc(self, number: int, *args: int) -> int:
        """A call's return code."""
        return self.hcall(number, *args)[0]

    def query(self, number: int, *args: int) -> bytes:
        """A call that fills the control block; the block."""
        self.qemu.zero(self.block, 4096)
        self.ok(number, *args, self.block)
        return self.qemu.read(self.block, 4096)

    def port(self, port: int) -> dict[str, int]:
        """Some of H_QUERY_PORT."""
        block = self.query(abi.H_QUERY_PORT, port)

        def word(offset: int) -> int:
            return struct.unpack_from(">I", block, offset)[0]
        return {"state": word(0x98), "phys": word(0x94), "lid": word(0xc),
                "sm_lid": word(0x1c), "capability_mask": word(0x20),
                "gid_prefix": struct.unpack_from(">Q", block, 0x30)[0],
                "guid": struct.unpack_from(">Q", block, 0x800)[0],
                "pkey": struct.unpack_from(">H", block, 0x3c)[0]}

    # -- queues -----------------------------------------------------------

    def register(self, handle: int, count: int, last: int = abi.H_SUCCESS,
                 kind: int = 0) -> int:
        """Register queue pages one by one as reference 7 wants; address."""
        memory = self.qemu.pages(count)
        for i in range(count):
            rc = self.rc(abi.H_REGISTER_RPAGES, kind, handle,
                         memory + 4096 * i, 1)
            want = last if i == count - 1 else abi.H_PAGE_REGISTERED
            if rc != want:
                raise HcallFailed(f"page {i} of {count}: {rc}, not {want}")
        return memory

    def alloc_eq(self, control: int, entries: int) -> Queue:
        """EQ or NEQ with its pages."""
        outs = self.ok(abi.H_ALLOC_RESOURCE, control, entries)
        eq = Queue(outs[0], outs[3], outs[4], ist=outs[5])
        eq.memory = self.register(eq.handle, eq.pages)
        return eq

    def alloc_cq(self, eq: Queue, token: int, entries: int = 64) -> Queue:
        """CQ with its pages."""
        outs = self.ok(abi.H_ALLOC_RESOURCE, abi.ALLOC_CQ, eq.handle, token,
                       entries)
        cq = Queue(outs[0], outs[3], outs[4], regs=outs[5])
        cq.memory = self.register(cq.handle, cq.pages)
        return cq

    def eqe(self, eq: Queue, index: int) -> int:
        """An entry of an event queue."""
        return self.qemu.readq(eq.memory + 8 * index)

    def cqe(self, cq: Queue, index: int) -> bytes:
        """An entry of a completion queue."""
        return self.qemu.read(cq.memory + 64 * index, 64)

    # -- queue pairs ------------------------------------------------------

    def alloc_qp(self, control: int, cq: Queue, eq: Queue, token: int,
                 pd: int = 1, wrs: int = 8, sges: int = 3) -> Qp:
        """QP with its pages."""
        outs = self.ok(abi.H_ALLOC_RESOURCE, control, cq.handle, cq.handle,
                       eq.handle, token << 32 | pd,
                       wrs << 48 | wrs << 32 | sges << 24 | sges << 16)
        qp = Qp(outs[0], outs[1], outs[2] >> 32 & 0xffff, outs[2] & 0xffff,
                outs[3] >> 48 & 0xff, outs[3] >> 32 & 0xff, outs[4] >> 32,
                outs[4] & 0xffffffff, outs[6])
        qp.sq = self.register(qp.handle, qp.sq_pages, abi.H_PAGE_REGISTERED)
        qp.rq = self.register(qp.handle, qp.rq_pages, kind=1)
        return qp

    def modify_qp(self, qp: Qp, **fields: int) -> int:
        """H_MODIFY_QP of these fields; its return code."""
        mask = 0
        block = bytearray(4096)
        for name, value in fields.items():
            word, bit = abi.QP_FIELDS[name]
            mask |= 1 << 63 - bit
            struct.pack_into(">I", block, 4 * word, value)
        self.qemu.write(self.block, bytes(block[:512]))
        return self.rc(abi.H_MODIFY_QP, qp.handle, mask, self.block)

    def query_qp(self, qp: Qp) -> dict[str, int]:
        """The fields of H_QUERY_QP."""
        block = self.query(abi.H_QUERY_QP, qp.handle)
        return {name: struct.unpack_from(">I", block, 4 * word)[0]
                for name, (word, _) in abi.QP_FIELDS.items()}

    def connect(self, qp: Qp, dest: int, lid: int, port: int = 1) -> None:
        """RC: RESET to RTS, both directions starting at PSN 0."""
        steps = (
            dict(state=abi.INIT, pkey_index=0, port=port,
                 rdma_atomic_ctrl=3),
            dict(enable=1),
            dict(state=abi.RTR, dlid=lid, path_bits=0, sl=0, rate=0, grh=0,
                 mtu=4, dest_qpn=dest, receive_psn=0, resp_res=2,
                 min_rnr=12),
            dict(state=abi.RTS, timeout=14, retry=7, rnr_retry=7,
                 send_psn=0, outst_dest=2))
        for step in steps:
            rc = self.modify_qp(qp, **step)
            if rc != abi.H_SUCCESS:
                raise HcallFailed(f"H_MODIFY_QP {step}: {rc}")

    def post_recv(self, qp: Qp, wr_id: int, addr: int, lkey: int,
                  length: int) -> None:
        """A receive WQE with one SG entry, and its doorbell."""
        stride = 64 + 16 * qp.recv_sges
        at = qp.rq + stride * qp.rq_next
        qp.rq_next = (qp.rq_next + 1) % (qp.rq_pages * 4096 // stride)
        wqe = bytearray(80)
        struct.pack_into(">Q", wqe, 0, wr_id)
        wqe[0xd] = 1
        struct.pack_into(">QII", wqe, 0x40, addr, lkey, length)
        self.qemu.write(at, bytes(wqe))
        self.qemu.writeq(qp.regs + abi.QPX_RQA, 1)

    def post_send(self, qp: Qp, wr_id: int, op: int, addr: int, lkey: int,
                  length: int, remote: int = 0, rkey: int = 0) -> None:
        """An RC send WQE with one SG entry, and its doorbell."""
        stride = 64 + 16 * qp.send_sges
        at = qp.sq + stride * qp.sq_next
        qp.sq_next = (qp.sq_next + 1) % (qp.sq_pages * 4096 // stride)
        wqe = bytearray(80)
        struct.pack_into(">QBB", wqe, 0, wr_id, op, abi.SIGNALLED)
        wqe[0xd] = 1
        struct.pack_into(">QIIQ", wqe, 0x20, remote, rkey, 0, length)
        struct.pack_into(">QII", wqe, 0x40, addr, lkey, length)
        self.qemu.write(at, bytes(wqe))
        self.qemu.writeq(qp.regs + abi.QPX_SQA, 1)

    # -- memory -----------------------------------------------------------

    def alloc_mr(self, addr: int, pages: int, pd: int = 1,
                 access: int = abi.LOCAL_WRITE | abi.REMOTE_WRITE |
                 abi.REMOTE_READ) -> Mr:
        """MR over adjacent 4 KiB pages, at I/O address = real address."""
        outs = self.ok(abi.H_ALLOC_RESOURCE, abi.ALLOC_MR, addr, 4096 * pages,
                       access << 32, pd)
        mr = Mr(outs[0], outs[2] & 0xffffffff, outs[3] & 0xffffffff)
        done = 0
        while done < pages:
            count = min(pages - done, 512)
            where = addr + 4096 * done
            if count > 1:
                self.qemu.write(self.block, struct.pack(
                    f">{count}Q", *[where + 4096 * i for i in range(count)]))
                where = self.block
            done += count
            rc = self.rc(abi.H_REGISTER_RPAGES, 0, mr.handle, where, count)
            want = abi.H_SUCCESS if done == pages else abi.H_PAGE_REGISTERED
            if rc != want:
                raise HcallFailed(f"MR pages to {done} of {pages}: {rc}")
        return mr

    def free(self, handle: int, force: int = 0) -> int:
        """H_FREE_RESOURCE's return code."""
        return self.rc(abi.H_FREE_RESOURCE, handle, force)
