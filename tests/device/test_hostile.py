# SPDX-License-Identifier: GPL-2.0-or-later
"""A guest that means harm: random calls and random register stores.

The seed is printed when a test fails; EHCALAB_SEED=N runs it again,
EHCALAB_CALLS=N runs longer.
"""
from __future__ import annotations

import collections
import os
import random
import struct
import unittest

import abi
from adapter import Adapter
from qtest import RAM_MIB, Qemu

SEED = int(os.environ.get("EHCALAB_SEED") or
           int.from_bytes(os.urandom(4), "big"))
CALLS = STORES = int(os.environ.get("EHCALAB_CALLS") or 6000)
EDGES = [0, 1, 2, 3, 15, 16, 255, 256, 0xffff, 0x10000, 0xffffffff,
         1 << 31, 1 << 32, 1 << 47, 1 << 56, 1 << 62, 1 << 63, (1 << 64) - 1,
         (1 << 64) - 4096, RAM_MIB << 20, (RAM_MIB << 20) - 4096]
KINDS = ("qp", "cq", "eq", "neq", "mr", "mw")
# Name: call, what r5 and on should hold, what r4 becomes the handle of.
SHAPES: dict[str, tuple[int, tuple[str | int, ...], str | None]] = {
    "eq": (abi.H_ALLOC_RESOURCE, (abi.ALLOC_EQ, "small"), "eq"),
    "neq": (abi.H_ALLOC_RESOURCE, (abi.ALLOC_NEQ, "small"), "neq"),
    "cq": (abi.H_ALLOC_RESOURCE, (abi.ALLOC_CQ, "eq", "any", "small"), "cq"),
    **{name: (abi.H_ALLOC_RESOURCE,
              (control, "cq", "cq", "eq", 1 << 32 | 1, "wrs", 0, 0), "qp")
       for name, control in (("rc", abi.ALLOC_RC), ("uc", abi.ALLOC_UC),
                             ("ud", abi.ALLOC_UD))},
    "srq": (abi.H_ALLOC_RESOURCE, (abi.ALLOC_SRQ, 0, 0, "eq", 1 << 32 | 1,
                                   "wrs", 0, 0), "qp"),
    "qp": (abi.H_ALLOC_RESOURCE, ("any", "cq", "cq", "eq", "any", "wrs",
                                  "any", "any"), "qp"),
    "mr": (abi.H_ALLOC_RESOURCE, (abi.ALLOC_MR, "page", "small", "access", 1),
           "mr"),
    "mw": (abi.H_ALLOC_RESOURCE, (abi.ALLOC_MW, 1), "mw"),
    "free": (abi.H_FREE_RESOURCE, ("resource", "any"), None),
    "modify_qp": (abi.H_MODIFY_QP, ("qp", "mask", "block"), None),
    "modify_qp2": (abi.H_MODIFY_QP, ("qp", "mask", "block"), None),
    "modify_qp3": (abi.H_MODIFY_QP, ("qp", "mask", "block"), None),
    "query_qp": (abi.H_QUERY_QP, ("qp", "block"), None),
    "reregister": (abi.H_REREGISTER_PMR, ("mr", "page", "small", "access",
                                          "page"), None),
    "unmap": (abi.H_REREGISTER_PMR, ("mr", 0, 0, 1, 0), None),
    "share": (abi.H_REGISTER_SMR, ("mr", "page", "access", "any"), "mr"),
    "query_mr": (abi.H_QUERY_MR, ("mr",), None),
    "query_mw": (abi.H_QUERY_MW, ("mw",), None),
    "query_hca": (abi.H_QUERY_HCA, ("block",), None),
    "query_port": (abi.H_QUERY_PORT, ("port", "block"), None),
    "modify_port": (abi.H_MODIFY_PORT, ("port", "any"), None),
    "aqp1": (abi.H_DEFINE_AQP1, ("qp", "port"), None),
    "aqp0": (abi.H_DEFINE_AQP0, ("qp", "port"), None),
    "attach": (abi.H_ATTACH_MCQP, ("qp", "mlid", "function", "mgid"), None),
    "detach": (abi.H_DETACH_MCQP, ("qp", "mlid", "function", "mgid"), None),
    "rpages": (abi.H_REGISTER_RPAGES, (0, "resource", "page", "count"), None),
    "rpages2": (abi.H_REGISTER_RPAGES, ("any", "mr", "page", "count"), None),
    "getc": (abi.H_DISABLE_AND_GETC, ("function", "qp"), None),
    "error": (abi.H_ERROR_DATA, ("qp", "block"), None),
    "perf": (abi.H_GET_PERF_COUNT, ("port", "block"), None),
    "events": (abi.H_RESET_EVENTS, ("neq", "any"), None),
    "int_state": (abi.H_QUERY_INT_STATE, (0x1080,), None),
}


def mask_of(*fields: str) -> int:
    """An update mask of H_MODIFY_QP."""
    return sum(1 << 63 - abi.QP_FIELDS[f][1] for f in fields)


# Update masks, and the state that the block should name then.
_PATH = ("dlid", "path_bits", "sl", "rate", "grh")
MOVES = {
    mask_of("state"): abi.RESET,
    mask_of("state", "mig_state"): abi.RTS,
    mask_of("state", "port", "pkey_index", "rdma_atomic_ctrl"): abi.INIT,
    mask_of("state", "port", "pkey_index", "qkey"): abi.INIT,
    mask_of("state", "qkey"): abi.RTR,
    mask_of("state", "send_psn"): abi.RTS,
    mask_of("state", *_PATH, "mtu", "dest_qpn", "receive_psn", "resp_res",
            "min_rnr"): abi.RTR,
    mask_of("state", *_PATH, "mtu", "dest_qpn", "receive_psn"): abi.RTR,
    mask_of("state", "timeout", "retry", "rnr_retry", "send_psn",
            "outst_dest"): abi.RTS,
    mask_of("state", "alt_port", "alt_pkey_index", "timeout_al", "dlid_al",
            "path_bits_al", "sl_al", "rate_al", "retry_al", "rnr_retry_al",
            "grh_al", "mig_state"): abi.RTS,
    mask_of("state", "rnr_retry_al"): abi.SQD,
    mask_of("state", "rnr_retry"): abi.ERR,
    mask_of("enable"): abi.INIT,
}


class Fuzz(unittest.TestCase):
    """Nothing may bring QEMU down, hang it or change foreign memory."""

    def setUp(self) -> None:
        self.random = random.Random(SEED)
        self.qemu = Qemu([{"id": "hca0", "max-qp": 64, "max-cq": 64,
                           "max-mr": 64, "port-activation": "always"}])
        self.addCleanup(self.qemu.close)
        self.a = Adapter(self.qemu)
        # All memory the adapter may know of lies in here.
        self.arena = self.qemu.pages(256)
        self.codes: collections.Counter[tuple[bool, int]] = \
            collections.Counter()
        self.regs: list[int] = []
        self.forget()

    def run(self, result: unittest.TestResult | None = None) -> \
            unittest.TestResult | None:
        failed = self.broken(result)
        super().run(result)
        if self.broken(result) > failed:
            print(f"{self.id()}: EHCALAB_SEED={SEED} runs it again")
        return result

    @staticmethod
    def broken(result: unittest.TestResult | None) -> int:
        return len(result.failures) + len(result.errors) if result else 0

    def value(self) -> int:
        """Something that is now and then almost right."""
        pick = self.random.random()
        if pick < 0.35:
            return self.handle(self.random.choice(KINDS))
        if pick < 0.60:
            return self.arena + 4096 * self.random.randrange(256)
        if pick < 0.80:
            return self.random.choice(EDGES)
        if pick < 0.95:
            return self.random.randrange(16) << 4 * self.random.randrange(16)
        return self.random.getrandbits(64)

    def handle(self, kind: str) -> int:
        """A handle of that kind, if there is one."""
        return self.random.choice(self.handles[kind] or [0])

    def argument(self, kind: str) -> int:
        """Mostly what the register should hold."""
        if kind == "any" or self.random.random() < 0.08:
            return self.value()
        if kind == "resource":
            kind = self.random.choice(KINDS)
        if kind in KINDS:
            return self.handle(kind)
        if kind in ("block", "page"):
            return self.arena + 4096 * self.random.randrange(256)
        if kind == "port":
            return self.random.choice((1, 2))
        if kind == "wrs":
            return (self.random.choice((1, 2, 16, 600)) << 48 |
                    self.random.choice((1, 2, 16, 600)) << 32 |
                    self.random.choice((1, 4, 30)) << 24 |
                    self.random.choice((1, 3, 4)) << 16)
        if kind == "access":
            return self.random.choice((0, 1, 2)) << 56 | \
                self.random.getrandbits(5) << 51
        if kind == "mask":
            mask = self.random.choice(list(MOVES))
            return mask ^ (self.random.choice((0, 0, 0, 1 << 50, 1 << 60)))
        if kind == "count":
            return self.random.choice((1, 1, 1, 2, 512))
        if kind == "small":
            return self.random.choice((1, 2, 3, 64, 512, 5000, 70000))
        if kind == "function":
            return self.random.choice((1, 2, 4))
        if kind == "mgid":
            return self.random.choice((0xff12401bffff0000, 1))
        if kind == "mlid":
            return 0xc000 + self.random.randrange(2)
        return 0

    def call(self) -> None:
        name = self.random.choice(list(SHAPES))
        number, kinds, gives = SHAPES[name]
        args = [self.argument(k) if isinstance(k, str) else k for k in kinds]
        if number == abi.H_MODIFY_QP and args[1] in MOVES and \
                args[2] % 4096 == 0 and args[2] < RAM_MIB << 20:
            # The state that goes with the mask, and a port that exists.
            self.qemu.write(args[2] + 4 * 9,
                            struct.pack(">I", MOVES[args[1]]))
            self.qemu.write(args[2] + 4 * 4,
                            struct.pack(">I", self.random.choice((1, 1, 2))))
        rc, outs = self.a.hcall(number, *args)
        self.codes[rc == 0, number] += 1
        self.assertTrue(-46 <= rc <= 15, f"{number:#x}: {rc}")
        if rc == 0 and gives:
            self.handles[gives].append(outs[0])
            if gives == "qp":
                self.regs.append(outs[6])
                if self.random.random() < 0.8:
                    self.back(outs[0], outs[4] >> 32, outs[4] & 0xffffffff)
            elif gives in ("cq", "eq", "neq"):
                self.back(outs[0], outs[4], 0)

    def back(self, handle: int, first: int, second: int) -> None:
        """Give a queue its pages."""
        for kind, count in ((0, first), (1, second)):
            for _ in range(count):
                self.a.rc(abi.H_REGISTER_RPAGES, kind, handle,
                          self.argument("page"), 1)

    def forget(self) -> None:
        """What a machine reset does to handles."""
        self.handles: dict[str, list[int]] = {kind: [] for kind in KINDS}
        self.regs.clear()

    def store(self) -> None:
        """A register of a QP, or any."""
        base = self.random.choice(self.regs) if self.regs else 0x1ff800000000
        offset = self.random.choice((0x20, 0x30, 8 *
                                     self.random.randrange(512)))
        self.qemu.writeq(base + offset,
                         self.random.choice((1, 5, 0xffff, self.value())))

    def scribble(self) -> None:
        """Random bytes where blocks, lists and queues may be."""
        page = self.arena + 4096 * self.random.randrange(256)
        pick = self.random.random()
        if pick < 0.3:
            self.qemu.write(page, self.random.randbytes(4096))
        elif pick < 0.6:
            self.qemu.write(page, struct.pack(
                ">512Q", *[self.value() for _ in range(512)]))
        else:
            # A QP's block, more or less.
            words = [self.random.choice((0, 1, 2, 3, 4, 5, 6, 7, 14))
                     for _ in range(128)]
            words[9] = self.random.choice(list(MOVES.values()))
            self.qemu.write(page, struct.pack(">128I", *words))

    def test_calls(self) -> None:
        canary = self.qemu.pages(16)
        self.qemu.write(canary, b"\xa5" * 65536)
        for i in range(CALLS):
            if i % 8 == 0:
                self.scribble()
            self.call()
        self.assertEqual(self.qemu.read(canary, 65536), b"\xa5" * 65536)
        self.qemu.report()
        # The calls must have been good enough to get behind the door.
        reached = {number for good, number in self.codes if good}
        self.assertGreater(len(reached), 14, reached)
        self.assertGreater(self.codes[True, abi.H_MODIFY_QP], 20)
        self.qemu.reset()
        self.a.alloc_eq(abi.ALLOC_EQ, 512)

    def test_registers(self) -> None:
        eq = self.a.alloc_eq(abi.ALLOC_EQ, 512)
        cqs = [self.a.alloc_cq(eq, i) for i in range(8)]
        qps = [self.a.alloc_qp(control, self.random.choice(cqs), eq, i)
               for i, control in enumerate((abi.ALLOC_RC, abi.ALLOC_UC,
                                            abi.ALLOC_UD) * 5)]
        base = min(qp.regs for qp in qps) & ~0xffff
        size = 128 * 4096
        for i in range(STORES):
            if self.random.random() < 0.5:
                regs = self.random.choice([r.regs for r in (*qps, *cqs)])
                offset = self.random.choice((0x20, 0x30, 0x38, 0x40, 0x58,
                                             0x60))
                addr = regs + offset
            else:
                addr = base + 8 * self.random.randrange(size // 8)
            if self.random.random() < 0.8:
                self.qemu.writeq(addr, self.value())
            else:
                self.qemu.readq(addr)
            if i % 50 == 0:
                qp = self.random.choice(qps)
                self.a.modify_qp(qp, state=self.random.choice(
                    (abi.RESET, abi.INIT, abi.RTR, abi.RTS, abi.ERR)),
                    port=1, dlid=1, mtu=4)
        self.qemu.report()

    def test_both(self) -> None:
        """Calls and stores together, with resets in between."""
        for i in range(CALLS):
            if i % 8 == 0:
                self.scribble()
            self.call()
            if i % 3 == 0:
                self.store()
            if i % 1500 == 1499:
                self.qemu.reset()
                self.forget()
        self.qemu.report()

    def test_nonsense(self) -> None:
        """No shape at all."""
        for _ in range(CALLS):
            rc, _ = self.a.hcall(self.random.choice(abi.ALL_HCALLS),
                                 *[self.value() for _ in range(8)])
            self.assertTrue(-46 <= rc <= 15, rc)
        self.qemu.report()


if __name__ == "__main__":
    unittest.main()
