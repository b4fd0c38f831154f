/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The adapter's hypervisor calls (interface reference, 4): r4 of each names
 * the adapter; the engine does the rest.
 */
#include "qemu/osdep.h"
#include "qemu/log.h"
#include "qemu/module.h"
#include "hw/ppc/spapr.h"

#include "guest-driver/include/ehca_abi.h"
#include "ehca-device.h"
#include "trace.h"

#define EHCA_HCALL(call) { EHCA_##call, #call }

static const struct {
    target_ulong number;
    const char *name;
} ehca_hcalls[] = {
    EHCA_HCALL(H_RESET_EVENTS),
    EHCA_HCALL(H_ALLOC_RESOURCE),
    EHCA_HCALL(H_FREE_RESOURCE),
    EHCA_HCALL(H_MODIFY_QP),
    EHCA_HCALL(H_QUERY_QP),
    EHCA_HCALL(H_REREGISTER_PMR),
    EHCA_HCALL(H_REGISTER_SMR),
    EHCA_HCALL(H_QUERY_MR),
    EHCA_HCALL(H_QUERY_MW),
    EHCA_HCALL(H_QUERY_HCA),
    EHCA_HCALL(H_QUERY_PORT),
    EHCA_HCALL(H_MODIFY_PORT),
    EHCA_HCALL(H_DEFINE_AQP1),
    EHCA_HCALL(H_GET_TRACE_BUFFER),
    EHCA_HCALL(H_DEFINE_AQP0),
    EHCA_HCALL(H_RESIZE_MR),
    EHCA_HCALL(H_ATTACH_MCQP),
    EHCA_HCALL(H_DETACH_MCQP),
    EHCA_HCALL(H_CREATE_RPT),
    EHCA_HCALL(H_REMOVE_RPT),
    EHCA_HCALL(H_REGISTER_RPAGES),
    EHCA_HCALL(H_DISABLE_AND_GETC),
    EHCA_HCALL(H_ERROR_DATA),
    EHCA_HCALL(H_GET_HCA_INFO),
    EHCA_HCALL(H_GET_PERF_COUNT),
    EHCA_HCALL(H_MANAGE_TRACE),
    EHCA_HCALL(H_QUERY_INT_STATE),
};

static const char *ehca_hcall_name(target_ulong number)
{
    for (unsigned i = 0; i < ARRAY_SIZE(ehca_hcalls); i++) {
        if (ehca_hcalls[i].number == number) {
            return ehca_hcalls[i].name;
        }
    }
    g_assert_not_reached();
}

/* Big lock held. */
static target_ulong ehca_hcall_dispatch(PowerPCCPU *cpu,
                                        SpaprMachineState *spapr,
                                        target_ulong opcode,
                                        target_ulong *args)
{
    const char *name = ehca_hcall_name(opcode);
    EhcaDevice *s = ehca_device_find(args[0]);
    uint64_t in[9], out[9];
    unsigned irqs;
    int64_t rc;

    trace_ehca_hcall_enter(name, args[0], args[1], args[2], args[3], args[4]);
    if (!s) {
        static EhcaLogLimit limit;
        g_autofree char *sentence = g_strdup_printf(
            "r4 0x" TARGET_FMT_lx " is no adapter's handle", args[0]);

        ehca_device_log_guest_error(&limit, name, sentence);
        return EHCA_RC_ADAPTER_PARM;
    }

    for (unsigned i = 0; i < ARRAY_SIZE(in); i++) {
        in[i] = args[i];
    }
    ehca_device_lock(s);
    rc = ehca_hcall(s->adapter, opcode, in, out);
    irqs = ehca_take_irqs(s->adapter);
    ehca_thread_check_deadline(s);
    ehca_device_unlock(s);
    for (unsigned i = 0; i < ARRAY_SIZE(out); i++) {
        args[i] = out[i];
    }

    ehca_device_pulse(s, irqs);
    trace_ehca_hcall_return(name, rc, out[0], out[1], out[2], out[3]);
    return rc;
}

static void ehca_hcall_register(void)
{
    for (unsigned i = 0; i < ARRAY_SIZE(ehca_hcalls); i++) {
        spapr_register_hypercall(ehca_hcalls[i].number, ehca_hcall_dispatch);
    }
}

type_init(ehca_hcall_register)
