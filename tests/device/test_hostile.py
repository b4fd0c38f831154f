# SPDX-License-Identifier: GPL-2.0-or-later
"""A guest that means harm: random calls and random register stores.

The seed is printed when a test fails; EHCALAB_SEED=N runs it again.
"""
from __future__ import annotations

import os
import random
import struct
import unittest

import abi
from adapter import Adapter
from qtest import RAM_MIB, Qemu

SEED = int(os.environ.get("EHCALAB_SEED") or
           int.from_bytes(os.urandom(4), "big"))
CALLS = 6000
STORES = 6000
EDGES = [0, 1, 2, 3, 15, 16, 255, 256, 0xffff, 0x10000, 0xffffffff,
         1 << 31, 1 << 32, 1 << 47, 1 << 56, 1 << 62, 1 << 63, (1 << 64) - 1,
         (1 << 64) - 4096, RAM_MIB << 20, (RAM_MIB << 20) - 4096]


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
        self.handles: list[int] = []

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
        """Something that is often almost right."""
        pick = self.random.random()
        if pick < 0.35 and self.handles:
            return self.random.choice(self.handles)
        if pick < 0.60:
            return self.arena + 4096 * self.random.randrange(256)
        if pick < 0.75:
            return self.random.choice(EDGES)
        if pick < 0.85:
            return self.random.choice(
                (abi.ALLOC_EQ, abi.ALLOC_NEQ, abi.ALLOC_CQ, abi.ALLOC_MR,
                 abi.ALLOC_MW, abi.ALLOC_RC, abi.ALLOC_UC, abi.ALLOC_UD,
                 abi.ALLOC_SRQ, abi.LOCAL_WRITE << 32))
        if pick < 0.95:
            return self.random.randrange(16) << 4 * self.random.randrange(16)
        return self.random.getrandbits(64)

    def call(self) -> None:
        number = self.random.choice(abi.ALL_HCALLS)
        if self.random.random() < 0.3:
            number = abi.H_ALLOC_RESOURCE
        rc, outs = self.a.hcall(number, *[self.value() for _ in range(8)])
        self.assertTrue(-46 <= rc <= 15, f"{number:#x}: {rc}")
        if rc == 0 and number in (abi.H_ALLOC_RESOURCE, abi.H_REGISTER_SMR):
            self.handles.append(outs[0])
            if len(self.handles) > 200:
                self.a.free(self.handles.pop(self.random.randrange(200)), 1)

    def scribble(self) -> None:
        """Random bytes where blocks, lists and queues may be."""
        page = self.arena + 4096 * self.random.randrange(256)
        if self.random.random() < 0.5:
            self.qemu.write(page, self.random.randbytes(4096))
        else:
            self.qemu.write(page, struct.pack(
                ">512Q", *[self.value() for _ in range(512)]))

    def test_calls(self) -> None:
        canary = self.qemu.pages(16)
        self.qemu.write(canary, b"\xa5" * 65536)
        for i in range(CALLS):
            if i % 16 == 0:
                self.scribble()
            self.call()
        self.assertEqual(self.qemu.read(canary, 65536), b"\xa5" * 65536)
        self.qemu.report()
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
                regs = self.random.choice(qps + cqs).regs
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
        for i in range(CALLS // 2):
            if i % 16 == 0:
                self.scribble()
            self.call()
            if i % 3 == 0:
                base = 0x1ff800000000
                self.qemu.writeq(base + 8 * self.random.randrange(65536),
                                 self.value())
            if i % 800 == 799:
                self.qemu.reset()
                self.handles.clear()
        self.qemu.report()


if __name__ == "__main__":
    unittest.main()
