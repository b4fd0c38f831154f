/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A hypervisor call as a command of the qtest protocol:
 *
 *   > spapr-hcall NUMBER [R4 [R5 ... [R12]]]
 *   < OK R3 R4 ... R12            (hexadecimal, R3 as 64-bit two's complement)
 *   < FAIL reason
 *
 * Missing registers are 0.  This is how the device tests reach the adapter
 * with no guest; a hypervisor call that looks at the calling CPU sees the
 * first one.
 */
#include "qemu/osdep.h"
#include "qemu/cutils.h"
#include "hw/core/cpu.h"
#include "hw/ppc/spapr.h"
#include "system/qtest.h"

#include "spapr_ehca.h"

bool spapr_ehca_qtest(CharBackend *chr, char **words)
{
    uint64_t number;
    target_ulong regs[9] = { 0 };
    target_ulong rc;
    unsigned i;

    if (strcmp(words[0], "spapr-hcall")) {
        return false;
    }
    if (!words[1] || qemu_strtou64(words[1], NULL, 0, &number)) {
        qtest_sendf(chr, "FAIL spapr-hcall needs the call's number\n");
        return true;
    }
    for (i = 0; i < ARRAY_SIZE(regs) && words[2 + i]; i++) {
        uint64_t value;

        if (qemu_strtou64(words[2 + i], NULL, 0, &value)) {
            qtest_sendf(chr, "FAIL r%u is not a number: %s\n", 4 + i,
                        words[2 + i]);
            return true;
        }
        regs[i] = value;
    }
    rc = spapr_hypercall(POWERPC_CPU(first_cpu), number, regs);
    qtest_sendf(chr, "OK 0x%" PRIx64 " 0x%" PRIx64 " 0x%" PRIx64 " 0x%" PRIx64
                " 0x%" PRIx64 " 0x%" PRIx64 " 0x%" PRIx64 " 0x%" PRIx64
                " 0x%" PRIx64 " 0x%" PRIx64 "\n", (uint64_t)rc,
                (uint64_t)regs[0], (uint64_t)regs[1], (uint64_t)regs[2],
                (uint64_t)regs[3], (uint64_t)regs[4], (uint64_t)regs[5],
                (uint64_t)regs[6], (uint64_t)regs[7], (uint64_t)regs[8]);
    return true;
}
