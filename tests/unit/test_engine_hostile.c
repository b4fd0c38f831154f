/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Guests and peers that mean harm: hypercalls with any argument, work queues
 * full of garbage, doorbells that lie, packets and rings that cannot be.
 * Nothing may crash, hang or grow; run this under ASan and UBSan as well.
 * Random parts print their seed through GLib (--seed repeats them).
 */
#include <stdlib.h>

#include "engine_bench.h"
#include "ib/mad.h"

static uint64_t random64(void)
{
    return (uint64_t)(uint32_t)g_test_rand_int() << 32 |
           (uint32_t)g_test_rand_int();
}

static unsigned below(unsigned n)
{
    return g_test_rand_int_range(0, n);
}

/* ------------------------------------------------------------------ */
/* Hypercalls: the table of refusals                                  */
/* ------------------------------------------------------------------ */

static Host *host;                     /* under test */
static uint64_t eq, neq, cq, qp, mr;

static int64_t call(uint64_t number, uint64_t r5, uint64_t r6, uint64_t r7,
                    uint64_t r8, uint64_t r9, uint64_t r10, uint64_t r11,
                    uint64_t r12, uint64_t out[9])
{
    uint64_t in[9] = { host->config.handle, r5, r6, r7, r8, r9, r10, r11,
                       r12 };
    int64_t rc = host_hcall(host, number, in, out);

    if (rc < 0) {
        for (int i = 0; i < 9; i++) {
            g_assert_cmphex(out[i], ==, 0);
        }
    }
    return rc;
}

typedef struct Refusal {
    uint64_t number;
    uint64_t in[8];                    /* r5 .. r12 */
    int64_t rc;
} Refusal;

#define QP_R5(kind, service) \
    (EHCA_RT_QP | (uint64_t)(kind) << EHCA_ALLOC_QP_KIND_SHIFT | \
     (uint64_t)(service) << EHCA_ALLOC_QP_SERVICE_SHIFT | \
     (uint64_t)EHCA_SIGT_PER_WQE << EHCA_ALLOC_QP_SIGT_SHIFT)
#define WRS (UINT64_C(9) << 48 | UINT64_C(9) << 32 | 4 << 24 | 4 << 16)

static void test_refusals(void)
{
    Bench *b = bench_new(EHCA_SERVICE_RC, false);
    uint64_t block, page, out[9];

    host = b->pair->hosts[0];
    eq = host->eq_handle;
    neq = host->neq_handle;
    cq = b->cqs[0]->handle;
    qp = b->qps[0]->handle;
    mr = b->mrs[0]->handle;
    block = host_alloc(host, 4096);
    page = host_alloc(host, 4096);

    const Refusal refusals[] = {
        { 0x0, { 0 }, EHCA_RC_FUNCTION },
        { EHCA_H_RESIZE_MR, { mr }, EHCA_RC_FUNCTION },
        { EHCA_H_GET_TRACE_BUFFER, { 0 }, EHCA_RC_FUNCTION },
        { UINT64_MAX, { 0 }, EHCA_RC_FUNCTION },
        /* Allocation. */
        { EHCA_H_ALLOC_RESOURCE, { 0 }, EHCA_RC_RT_PARM },
        { EHCA_H_ALLOC_RESOURCE, { 4 }, EHCA_RC_RT_PARM },
        { EHCA_H_ALLOC_RESOURCE, { 0xFF }, EHCA_RC_RT_PARM },
        { EHCA_H_ALLOC_RESOURCE, { EHCA_ALLOC_EQ, 64 },
          EHCA_RC_NOT_ENOUGH_RESOURCES },
        { EHCA_H_ALLOC_RESOURCE, { EHCA_ALLOC_NEQ, 64 },
          EHCA_RC_NOT_ENOUGH_RESOURCES },
        { EHCA_H_ALLOC_RESOURCE, { EHCA_RT_CQ, 0, 1, 64 }, EHCA_RC_EQ_PARM },
        { EHCA_H_ALLOC_RESOURCE, { EHCA_RT_CQ, neq, 1, 64 },
          EHCA_RC_EQ_PARM },
        { EHCA_H_ALLOC_RESOURCE, { EHCA_RT_CQ, eq, 1, 0 },
          EHCA_RC_PARAMETER },
        { EHCA_H_ALLOC_RESOURCE, { EHCA_RT_CQ, eq, 1, 0xFFFFFFFF },
          EHCA_RC_PARAMETER },
        { EHCA_H_ALLOC_RESOURCE, { QP_R5(1, 0), cq, cq, eq, 1, WRS },
          EHCA_RC_RT_PARM },
        { EHCA_H_ALLOC_RESOURCE, { QP_R5(7, 0), cq, cq, eq, 1, WRS },
          EHCA_RC_RT_PARM },
        { EHCA_H_ALLOC_RESOURCE, { QP_R5(0, 2), cq, cq, eq, 1, WRS },
          EHCA_RC_ST_PARM },
        { EHCA_H_ALLOC_RESOURCE, { QP_R5(0, 7), cq, cq, eq, 1, WRS },
          EHCA_RC_ST_PARM },
        { EHCA_H_ALLOC_RESOURCE, { QP_R5(2, 1), cq, cq, eq, 1, WRS },
          EHCA_RC_ST_PARM },
        { EHCA_H_ALLOC_RESOURCE, { QP_R5(0, 0) |
          UINT64_C(3) << EHCA_ALLOC_QP_SIGT_SHIFT, cq, cq, eq, 1, WRS },
          EHCA_RC_SIGT_PARM },
        { EHCA_H_ALLOC_RESOURCE, { QP_R5(0, 0) | 2 << 28, cq, cq, eq, 1,
          WRS }, EHCA_RC_PARAMETER },
        { EHCA_H_ALLOC_RESOURCE, { QP_R5(0, 0), cq, cq, cq, 1, WRS },
          EHCA_RC_EQ_PARM },
        { EHCA_H_ALLOC_RESOURCE, { QP_R5(0, 0), qp, cq, eq, 1, WRS },
          EHCA_RC_SCQ_PARM },
        { EHCA_H_ALLOC_RESOURCE, { QP_R5(0, 0), cq, 0, eq, 1, WRS },
          EHCA_RC_RCQ_PARM },
        { EHCA_H_ALLOC_RESOURCE, { QP_R5(2, 0), cq, cq, eq, 1, WRS, 0,
          b->qps[0]->qpn }, EHCA_RC_PARAMETER },
        { EHCA_H_ALLOC_RESOURCE, { QP_R5(0, 0), cq, cq, eq, 1,
          UINT64_C(0xFFFF) << 48 | 4 << 24 }, EHCA_RC_PARAMETER },
        { EHCA_H_ALLOC_RESOURCE, { QP_R5(0, 0), cq, cq, eq, 1,
          UINT64_C(9) << 48 | UINT64_C(253) << 24 }, EHCA_RC_PARAMETER },
        { EHCA_H_ALLOC_RESOURCE, { EHCA_RT_MR, 0, UINT64_MAX, 0, 1 },
          EHCA_RC_NOT_ENOUGH_RESOURCES },
        { EHCA_H_ALLOC_RESOURCE, { EHCA_RT_MR, UINT64_MAX, 2, 0, 1 },
          EHCA_RC_MLENGTH_PARM },
        { EHCA_H_ALLOC_RESOURCE, { EHCA_RT_MR, 0, UINT64_C(1) << 50, 0, 1 },
          EHCA_RC_NOT_ENOUGH_RESOURCES },
        /* Freeing. */
        { EHCA_H_FREE_RESOURCE, { 0 }, EHCA_RC_RH_PARM },
        { EHCA_H_FREE_RESOURCE, { UINT64_MAX }, EHCA_RC_RH_PARM },
        { EHCA_H_FREE_RESOURCE, { qp + (UINT64_C(1) << 32) },
          EHCA_RC_RH_PARM },
        { EHCA_H_FREE_RESOURCE, { cq, 1 }, EHCA_RC_RESOURCE },
        { EHCA_H_FREE_RESOURCE, { eq }, EHCA_RC_RESOURCE },
        /* Pages. */
        { EHCA_H_REGISTER_RPAGES, { 0, qp, page, 1 }, EHCA_RC_R_STATE },
        { EHCA_H_REGISTER_RPAGES, { 2, qp, page, 1 }, EHCA_RC_PARAMETER },
        { EHCA_H_REGISTER_RPAGES, { 1, cq, page, 1 }, EHCA_RC_PARAMETER },
        { EHCA_H_REGISTER_RPAGES, { 0x100, cq, page, 1 }, EHCA_RC_PARAMETER },
        { EHCA_H_REGISTER_RPAGES, { 0, mr, page, 1 }, EHCA_RC_PARAMETER },
        { EHCA_H_REGISTER_RPAGES, { 0, mr, page, 513 }, EHCA_RC_PARAMETER },
        { EHCA_H_REGISTER_RPAGES, { 0, 0, page, 1 }, EHCA_RC_RH_PARM },
        /* Blocks. */
        { EHCA_H_QUERY_HCA, { block + 8 }, EHCA_RC_PARAMETER },
        { EHCA_H_QUERY_HCA, { UINT64_MAX & ~UINT64_C(4095) },
          EHCA_RC_PARAMETER },
        { EHCA_H_QUERY_PORT, { 0, block }, EHCA_RC_PORT_PARM },
        { EHCA_H_QUERY_PORT, { 3, block }, EHCA_RC_PORT_PARM },
        { EHCA_H_QUERY_PORT, { (UINT64_C(1) << 32) + 1, block },
          EHCA_RC_PORT_PARM },
        { EHCA_H_QUERY_QP, { cq, block }, EHCA_RC_RH_PARM },
        { EHCA_H_QUERY_QP, { qp, block + (UINT64_C(1) << 40) },
          EHCA_RC_PARAMETER },
        { EHCA_H_GET_PERF_COUNT, { 9, block }, EHCA_RC_PORT_PARM },
        { EHCA_H_ERROR_DATA, { qp, block }, EHCA_RC_R_STATE },
        { EHCA_H_ERROR_DATA, { cq, block }, EHCA_RC_R_STATE },
        { EHCA_H_ERROR_DATA, { mr, block }, EHCA_RC_RH_PARM },
        /* Special QPs. */
        { EHCA_H_DEFINE_AQP1, { qp, 1 }, EHCA_RC_PARAMETER },
        { EHCA_H_DEFINE_AQP1, { host->gsi[1]->handle, 2 },
          EHCA_RC_ALIAS_EXIST },
        { EHCA_H_DEFINE_AQP1, { host->gsi[1]->handle, 0 },
          EHCA_RC_PORT_PARM },
        { EHCA_H_DEFINE_AQP0, { cq, 1 }, EHCA_RC_RH_PARM },
        { EHCA_H_DISABLE_AND_GETC, { 3, qp }, EHCA_RC_PARAMETER },
        { EHCA_H_DISABLE_AND_GETC, { 2, qp }, EHCA_RC_R_STATE },
        { EHCA_H_DISABLE_AND_GETC, { 4, qp }, EHCA_RC_R_STATE },
        { EHCA_H_DISABLE_AND_GETC, { qp, 4 }, EHCA_RC_RH_PARM },
        { EHCA_H_ATTACH_MCQP, { qp, 0xC000, 1, UINT64_C(0xFF) << 56 },
          EHCA_RC_MCG_PARM },
        /* MRs. */
        { EHCA_H_QUERY_MR, { qp }, EHCA_RC_RH_PARM },
        { EHCA_H_QUERY_MW, { mr }, EHCA_RC_RH_PARM },
        { EHCA_H_REGISTER_SMR, { mr, 1, 0, 1 }, EHCA_RC_MEM_PARM },
        { EHCA_H_REGISTER_SMR, { cq, 0, 0, 1 }, EHCA_RC_RH_PARM },
        { EHCA_H_REREGISTER_PMR, { mr, 0, UINT64_C(1) << 40, 1, block },
          EHCA_RC_MLENGTH_PARM },
        { EHCA_H_REREGISTER_PMR, { mr, 0, 4096, 1, block + 1 },
          EHCA_RC_PARAMETER },
        /* Events. */
        { EHCA_H_RESET_EVENTS, { eq, UINT64_MAX }, EHCA_RC_RH_PARM },
        { EHCA_H_QUERY_INT_STATE, { 0 }, EHCA_RC_PARAMETER },
        /* QP states. */
        { EHCA_H_MODIFY_QP, { qp, EHCA_BIT(1), block }, EHCA_RC_MASK_PARM },
        { EHCA_H_MODIFY_QP, { qp, EHCA_BIT(63), block }, EHCA_RC_MASK_PARM },
        { EHCA_H_MODIFY_QP, { qp, EHCA_QPMASK_DLID, block },
          EHCA_RC_MASK_PARM },
        { EHCA_H_MODIFY_QP, { qp, EHCA_QPMASK_QKEY, block },
          EHCA_RC_MASK_PARM },
        { EHCA_H_MODIFY_QP, { qp, EHCA_QPMASK_QP_STATE, block },
          EHCA_RC_PARAMETER },
    };

    for (size_t i = 0; i < G_N_ELEMENTS(refusals); i++) {
        const Refusal *r = &refusals[i];
        int64_t rc = call(r->number, r->in[0], r->in[1], r->in[2], r->in[3],
                          r->in[4], r->in[5], r->in[6], r->in[7], out);

        if (rc != r->rc) {
            g_test_message("refusal %zu, call 0x%llx: %s", i,
                           (unsigned long long)r->number,
                           host->last_guest_error);
        }
        g_assert_cmpint(rc, ==, r->rc);
    }
    /* Other adapters' handles. */
    {
        uint64_t in[9] = { host->config.handle + 1, block };

        g_assert_cmpint(host_hcall(host, EHCA_H_QUERY_HCA, in, out), ==,
                        EHCA_RC_ADAPTER_PARM);
    }
    /* After all that it works as before. */
    bench_ping(b, 0);
    bench_ping(b, 1);
    bench_free(b);
}

/* What a register of a call must hold. */
enum { ANY, QP, CQ, EITHER, NEQ, MR, PORT, BLOCK, NOTHING };

/*
 * Each call, good but for one register, that holds each number there is an
 * edge at: beyond RAM, in the register pages, at the end of the address space,
 * handles that are stale, of another kind, of another adapter.
 */
static void test_each_register(void)
{
    static const struct { uint64_t number; uint8_t kinds[8]; } calls[] = {
        { EHCA_H_RESET_EVENTS, { NEQ, ANY } },
        { EHCA_H_MODIFY_QP, { QP, ANY, BLOCK } },
        { EHCA_H_QUERY_QP, { QP, BLOCK } },
        { EHCA_H_REREGISTER_PMR, { MR, ANY, ANY, ANY, ANY } },
        { EHCA_H_REGISTER_SMR, { MR, ANY, ANY, ANY } },
        { EHCA_H_QUERY_MR, { MR } },
        { EHCA_H_QUERY_HCA, { BLOCK } },
        { EHCA_H_QUERY_PORT, { PORT, BLOCK } },
        { EHCA_H_MODIFY_PORT, { PORT, ANY } },
        { EHCA_H_ATTACH_MCQP, { QP, ANY, ANY, ANY } },
        { EHCA_H_DETACH_MCQP, { QP, ANY, ANY, ANY } },
        { EHCA_H_REGISTER_RPAGES, { ANY, EITHER, ANY, ANY } },
        { EHCA_H_ERROR_DATA, { EITHER, BLOCK } },
        { EHCA_H_GET_PERF_COUNT, { PORT, BLOCK } },
        { EHCA_H_DISABLE_AND_GETC, { ANY, QP } },
        { EHCA_H_DEFINE_AQP1, { QP, PORT } },
        { EHCA_H_DEFINE_AQP0, { QP, PORT } },
        { EHCA_H_QUERY_INT_STATE, { ANY } },
        { EHCA_H_ALLOC_RESOURCE, { ANY, ANY, ANY, ANY, ANY, ANY, ANY, ANY } },
    };
    static const int64_t refusals[NOTHING] = {
        [QP] = EHCA_RC_RH_PARM, [CQ] = EHCA_RC_RH_PARM,
        [EITHER] = EHCA_RC_RH_PARM, [NEQ] = EHCA_RC_RH_PARM,
        [MR] = EHCA_RC_RH_PARM, [PORT] = EHCA_RC_PORT_PARM,
        [BLOCK] = EHCA_RC_PARAMETER,
    };
    Bench *b = bench_new(EHCA_SERVICE_RC, true);
    uint64_t stale, block, out[9];

    host = b->pair->hosts[0];
    block = host_alloc(host, 4096);
    call(EHCA_H_ALLOC_RESOURCE, EHCA_RT_MR, 0, 0, 0, 1, 0, 0, 0, out);
    stale = out[EHCA_OUT_HANDLE];
    call(EHCA_H_FREE_RESOURCE, stale, 0, 0, 0, 0, 0, 0, 0, out);

    const uint64_t good[NOTHING] = {
        [ANY] = 1, [QP] = b->qps[0]->handle, [CQ] = b->cqs[0]->handle,
        [EITHER] = b->cqs[0]->handle, [NEQ] = host->neq_handle,
        [MR] = b->mrs[0]->handle, [PORT] = 1, [BLOCK] = block,
    };
    const uint64_t wild[] = {
        0, 3, 0xFF, 0xFFFF, 0x10001, 0xFFFFFFFF, UINT64_C(1) << 32,
        (UINT64_C(1) << 32) + 1, block + 8, block + 4095,
        host->ram_size - 4096 + 8, host->ram_size - 8, host->ram_size,
        host->ram_size + 4096, HOST_GALPA_BASE, b->qps[0]->regs,
        HOST_GALPA_BASE + ehca_mmio_size(&host->config),
        UINT64_C(1) << 46, INT64_MAX, UINT64_C(1) << 63,
        UINT64_MAX - 4095, UINT64_MAX - 4096 - 4095, UINT64_MAX, stale,
        host->eq_handle, b->mrs[0]->handle + 1, b->qps[0]->handle + 1,
        b->qps[0]->handle + (UINT64_C(1) << 32), host->config.handle,
    };

    for (unsigned c = 0; c < G_N_ELEMENTS(calls); c++) {
        for (unsigned r = 0; r < 8; r++) {
            uint8_t kind = calls[c].kinds[r];

            for (unsigned w = 0; w < G_N_ELEMENTS(wild); w++) {
                uint64_t in[8];
                int64_t rc;

                for (unsigned i = 0; i < 8; i++) {
                    in[i] = good[calls[c].kinds[i]];
                }
                in[r] = wild[w];
                memset(host_ptr(host, block), 0, 4096);
                rc = call(calls[c].number, in[0], in[1], in[2], in[3], in[4],
                          in[5], in[6], in[7], out);
                g_assert_cmpint(rc, >=, EHCA_RC_RESCINDED);
                g_assert_cmpint(rc, <=, EHCA_RC_PAGE_REGISTERED);
                if (kind == BLOCK && !(wild[w] % 4096) &&
                    wild[w] < host->ram_size) {
                    continue;          /* page 0 is RAM like any other */
                }
                if (kind == ANY ||
                    (kind == EITHER && wild[w] == host->eq_handle)) {
                    continue;
                }
                if (rc != refusals[kind]) {
                    g_test_message("call 0x%x, r%u = 0x%llx",
                                   (unsigned)calls[c].number, 5 + r,
                                   (unsigned long long)wild[w]);
                }
                g_assert_cmpint(rc, ==, refusals[kind]);
            }
        }
    }
    free(ehca_report(host->adapter));
    bench_free(b);
}

/* All QPs, all CQs, all MRs: refused politely, and given back. */
static void test_exhaustion(void)
{
    Bench *b = bench_new_bare();
    GArray *handles = g_array_new(false, false, sizeof(uint64_t));
    uint64_t out[9];
    int64_t rc;

    host = b->pair->hosts[0];
    for (;;) {
        rc = call(EHCA_H_ALLOC_RESOURCE, EHCA_RT_MR, 0, 1 << 20,
                  UINT64_C(0x00800000) << 32, 1, 0, 0, 0, out);
        if (rc) {
            break;
        }
        g_array_append_val(handles, out[0]);
    }
    g_assert_cmpint(rc, ==, EHCA_RC_NOT_ENOUGH_RESOURCES);
    g_assert_cmpuint(handles->len, >, 10);
    for (unsigned i = 0; i < handles->len; i++) {
        uint64_t handle = g_array_index(handles, uint64_t, i);

        g_assert_cmpint(call(EHCA_H_FREE_RESOURCE, handle, 0, 0, 0, 0, 0, 0,
                             0, out), ==, 0);
        g_assert_cmpint(call(EHCA_H_FREE_RESOURCE, handle, 0, 0, 0, 0, 0, 0,
                             0, out), ==, EHCA_RC_RH_PARM);
    }
    handles->len = 0;
    for (;;) {
        rc = call(EHCA_H_ALLOC_RESOURCE, QP_R5(0, 0), b->cqs[0]->handle,
                  b->cqs[0]->handle, host->eq_handle, 1,
                  UINT64_C(16000) << 48 | UINT64_C(16000) << 32 |
                  UINT64_C(252) << 24 | 252 << 16, 0, 0, out);
        if (rc) {
            break;
        }
        g_array_append_val(handles, out[0]);
    }
    g_assert_cmpint(rc, ==, EHCA_RC_NOT_ENOUGH_RESOURCES);
    g_assert_cmpuint(handles->len, >, 3);
    for (unsigned i = 0; i < handles->len; i++) {
        g_assert_cmpint(call(EHCA_H_FREE_RESOURCE,
                             g_array_index(handles, uint64_t, i), 0, 0, 0, 0,
                             0, 0, 0, out), ==, 0);
    }
    g_array_free(handles, true);
    host_pair_connect(b->pair, EHCA_SERVICE_RC, 0, false, b->cqs, b->qps);
    bench_ping(b, 0);
    bench_free(b);
}

/* Random calls with arguments that are half right. */
static void test_random_calls(void)
{
    static const uint64_t numbers[] = {
        EHCA_H_RESET_EVENTS, EHCA_H_ALLOC_RESOURCE, EHCA_H_FREE_RESOURCE,
        EHCA_H_MODIFY_QP, EHCA_H_QUERY_QP, EHCA_H_REREGISTER_PMR,
        EHCA_H_REGISTER_SMR, EHCA_H_QUERY_MR, EHCA_H_QUERY_MW,
        EHCA_H_QUERY_HCA, EHCA_H_QUERY_PORT, EHCA_H_MODIFY_PORT,
        EHCA_H_DEFINE_AQP1, EHCA_H_DEFINE_AQP0, EHCA_H_ATTACH_MCQP,
        EHCA_H_DETACH_MCQP, EHCA_H_REGISTER_RPAGES, EHCA_H_DISABLE_AND_GETC,
        EHCA_H_ERROR_DATA, EHCA_H_GET_PERF_COUNT, EHCA_H_QUERY_INT_STATE,
    };
    static const unsigned states[] = { 1, 2, 3, 5, 6, 8, 128, 0, 77 };
    unsigned rounds = g_test_thorough() ? 200000 : 20000;
    Bench *b = bench_new(EHCA_SERVICE_RC, true);
    uint64_t pool[64], out[9];
    unsigned known = 0;

    host = b->pair->hosts[0];
    pool[known++] = host->eq_handle;
    pool[known++] = b->cqs[0]->handle;
    pool[known++] = b->qps[0]->handle;
    pool[known++] = b->mrs[0]->handle;
    pool[known++] = host->gsi[1]->handle;
    pool[known++] = host->neq_handle;
    for (unsigned i = 0; i < rounds; i++) {
        uint64_t number = numbers[below(G_N_ELEMENTS(numbers))];
        uint64_t in[8];
        uint8_t *block = host_block(host);

        for (unsigned n = 0; n < 8; n++) {
            switch (below(8)) {
            case 0:
                in[n] = random64();
                break;
            case 1:
                in[n] = below(8);
                break;
            case 2:
                in[n] = (uint64_t)below(1024) << 12;
                break;
            case 3:
                in[n] = UINT64_C(1) << below(64);
                break;
            default:
                in[n] = pool[below(known)];
                break;
            }
        }
        if (number == EHCA_H_ALLOC_RESOURCE && below(4)) {
            in[0] = (uint64_t)below(4) << 52 | (uint64_t)below(4) << 48 |
                    (uint64_t)1 << 40 | (uint64_t)(1 + below(6));
            in[5] = (uint64_t)below(64) << 48 | (uint64_t)below(64) << 32 |
                    (uint64_t)below(8) << 24 | (uint64_t)below(8) << 16;
        }
        if (number == EHCA_H_MODIFY_QP && below(4)) {
            in[0] = pool[below(known)];
            in[1] = below(2) ? EHCA_QPMASK_QP_STATE | (random64() & random64())
                             : random64() & random64() & random64();
            in[2] = host->block;
            for (unsigned n = 0; n < EHCA_QPCB_SIZE; n += 4) {
                ib_put32(block + n, below(3) ? below(6) : random64());
            }
            ib_put32(block + EHCA_QPCB_QP_STATE,
                     states[below(G_N_ELEMENTS(states))]);
        }
        if (call(number, in[0], in[1], in[2], in[3], in[4], in[5], in[6],
                 in[7], out) == 0 && number == EHCA_H_ALLOC_RESOURCE) {
            pool[known < 64 ? known++ : 6 + below(58)] = out[0];
        }
        if (i % 16 == 0) {
            ehca_mmio_write(host->adapter, random64() %
                            (ehca_mmio_size(&host->config) + 8192) & ~7ull,
                            random64());
            ehca_mmio_read(host->adapter, random64() & ~7ull);
            host_run(host);
        }
    }
    bench_run(b, IB_SEC);
    free(ehca_report(host->adapter));
    bench_free(b);
}

/* ------------------------------------------------------------------ */
/* Work queues                                                        */
/* ------------------------------------------------------------------ */

static void scribble(Host *h, const HostRing *ring, const HostMr *mr)
{
    for (unsigned p = 0; p < ring->num_pages; p++) {
        uint8_t *page = host_ptr(h, ring->pages[p]);

        for (unsigned n = 0; n < 4096; n += 4) {
            ib_put32(page + n, (uint32_t)random64());
        }
        for (unsigned n = 0; n < 4096; n += ring->stride) {
            static const uint8_t ops[] = { 0x80, 0x40, 0x20, 0x10, 0x08 };

            if (below(3)) {
                page[n + EHCA_WQE_OPTYPE] = ops[below(5)];
                page[n + EHCA_WQE_NR_SGES] = below(5);
            }
            for (unsigned s = EHCA_WQE_SGES; s < ring->stride; s += 16) {
                if (below(3)) {
                    ib_put64(page + n + s, mr->iova + below(300000));
                    ib_put32(page + n + s + 8, mr->lkey);
                    ib_put32(page + n + s + 12, below(100000));
                }
            }
        }
    }
}

/* Garbage in the rings, doorbells without number; QPs recycled all along. */
static void test_garbage_wqes(void)
{
    unsigned rounds = g_test_thorough() ? 3000 : 300;
    const unsigned services[] = { EHCA_SERVICE_RC, EHCA_SERVICE_UC,
                                  EHCA_SERVICE_UD };

    for (unsigned s = 0; s < 3; s++) {
        Bench *b = bench_new_bare();
        HostPath path[2];
        HostCqe cqe;

        for (unsigned h = 0; h < 2; h++) {
            host_pair_path(h, 0, &path[h]);
            b->qps[h] = host_qp_new(b->pair->hosts[h], services[s],
                                    b->cqs[h], b->cqs[h], 31, 31);
        }
        for (unsigned i = 0; i < rounds; i++) {
            for (unsigned h = 0; h < 2; h++) {
                HostQp *q = b->qps[h];

                host_qp_to(q, EHCA_QPS_ERR);
                host_qp_to(q, EHCA_QPS_RESET);
                if (services[s] == EHCA_SERVICE_UD) {
                    host_qp_ud_init(q, 1, 5);
                    host_qp_ud_ready(q, 0);
                } else {
                    host_qp_init(q, 1);
                    host_qp_rtr(q, &path[h], NULL, EHCA_MTU_1024,
                                b->qps[!h]->qpn, 0);
                    host_qp_rts(q, &path[h], 0, false);
                }
                scribble(b->pair->hosts[h], &q->sq, b->mrs[h]);
                scribble(b->pair->hosts[h], &q->rq, b->mrs[h]);
            }
            for (unsigned n = 0; n < 4; n++) {
                HostQp *q = b->qps[below(2)];

                q->sq_new = below(3) ? below(20) : 0xFFFF;
                q->rq_new = below(3) ? below(20) : 0xFFFF;
                host_ring(q);
                bench_run(b, below(3) * 100 * IB_USEC);
            }
            for (unsigned h = 0; h < 2; h++) {
                while (bench_cqe(b, h, &cqe, 0)) {
                }
            }
            bench_events(b);
        }
        for (unsigned h = 0; h < 2; h++) {
            host_qp_free(b->qps[h]);
        }
        /* Others live. */
        host_pair_connect(b->pair, EHCA_SERVICE_RC, 0, false, b->cqs, b->qps);
        bench_ping(b, 0);
        bench_free(b);
    }
}

/*
 * Rings that change while they are worked on: between any two packets.  What
 * was found good once is looked at again whenever it counts.
 */
static void test_changing_wqes(void)
{
    unsigned rounds = g_test_thorough() ? 2000 : 200;
    const unsigned services[] = { EHCA_SERVICE_RC, EHCA_SERVICE_UC,
                                  EHCA_SERVICE_UD };

    for (unsigned i = 0; i < rounds; i++) {
        Bench *b = bench_new_bare();
        unsigned service = services[i % 3];
        HostMr *small[2];
        HostPath path;
        HostCqe cqe;

        for (unsigned h = 0; h < 2; h++) {
            /* Bytes behind it are nobody's. */
            small[h] = host_mr_new(b->pair->hosts[h], 20000,
                                   BENCH_ALL_ACCESS);
            memset(small[h]->bytes + 20000, 0xE7, 480);
            b->qps[h] = host_qp_new(b->pair->hosts[h], service, b->cqs[h],
                                    b->cqs[h], 15, 15);
        }
        for (unsigned h = 0; h < 2; h++) {
            if (service == EHCA_SERVICE_UD) {
                host_qp_ud_init(b->qps[h], 1, 5);
                host_qp_ud_ready(b->qps[h], 0);
            } else {
                host_pair_path(h, 0, &path);
                host_qp_init(b->qps[h], 1);
                host_qp_rtr(b->qps[h], &path, NULL, EHCA_MTU_256,
                            b->qps[!h]->qpn, 0);
                host_qp_rts(b->qps[h], &path, 0, false);
            }
            scribble(b->pair->hosts[h], &b->qps[h]->sq, small[h]);
            scribble(b->pair->hosts[h], &b->qps[h]->rq, small[h]);
            b->qps[h]->sq_new = b->qps[h]->rq_new = 16;
            host_ring(b->qps[h]);
        }
        for (unsigned n = 0; n < 60; n++) {
            unsigned h = below(2);
            HostRing *ring = below(2) ? &b->qps[h]->sq : &b->qps[h]->rq;
            uint8_t *wqe = (uint8_t *)host_ptr(b->pair->hosts[h],
                ring->pages[below(ring->num_pages)]) +
                below(4096 / ring->stride) * ring->stride;
            unsigned at = EHCA_WQE_SGES + 4 * below(16);

            host_run_budget(b->pair->hosts[h], 1 + below(2));
            host_cable_run(b->pair->cables[0]);
            switch (below(4)) {
            case 0:
                wqe[EHCA_WQE_NR_SGES] = random64();
                break;
            case 1:
                ib_put32(wqe + at, below(2) ? random64() : below(30000));
                break;
            case 2:
                wqe[EHCA_WQE_OPTYPE] = random64();
                break;
            default:
                ib_put64(wqe + EHCA_WQE_SGES + 16 * below(4),
                         small[h]->iova + below(25000));
                break;
            }
        }
        bench_run(b, IB_MSEC);
        for (unsigned h = 0; h < 2; h++) {
            while (bench_cqe(b, h, &cqe, 0)) {
            }
            for (unsigned n = 0; n < 480; n++) {
                g_assert_cmphex(small[h]->bytes[20000 + n], ==, 0xE7);
            }
            g_assert_cmpint(host_qp_free(b->qps[h]), ==, 0);
        }
        host_pair_connect(b->pair, EHCA_SERVICE_RC, 0, false, b->cqs, b->qps);
        bench_ping(b, i & 1);
        bench_free(b);
    }
}

/* ------------------------------------------------------------------ */
/* Packets and rings                                                  */
/* ------------------------------------------------------------------ */

/* Packets that are nearly right, to QPs in every state. */
static void test_garbage_packets(void)
{
    unsigned rounds = g_test_thorough() ? 300000 : 20000;
    Bench *b = bench_new(EHCA_SERVICE_RC, true);
    uint8_t p[IB_PACKET_MAX];
    HostCqe cqe;

    for (unsigned i = 0; i < rounds; i++) {
        BenchPacket spec = {
            .slid = below(8) ? host_pair_lid(0, 1) : random64(),
            .dlid = below(8) ? host_pair_lid(1, 1) : random64(),
            .qpn = below(8) ? b->qps[1]->qpn : below(32),
            .psn = below(4) ? below(8) : random64(),
            .opcode = below(4) ? below(0x15) : random64(),
            .syndrome = random64(),
            .migreq = below(2),
            .payload = below(8) ? below(3) * 1024 : below(4096),
            .va = b->mrs[1]->iova + below(BENCH_MR_BYTES),
            .rkey = b->mrs[1]->rkey, .dmalen = below(10000),
        };
        size_t len;

        if (!below(16)) {
            spec.qpn = 0;
            spec.opcode = IB_TRANSPORT_UD | IB_OP_SEND_ONLY;
            spec.payload = 256;
        }
        len = bench_packet(p, &spec);
        if (!below(8)) {
            p[below(len)] ^= 1 << below(8);
            if (below(2)) {
                host_packet_seal(p, len);
            }
        }
        if (!below(16)) {
            len = 1 + below(len);
        }
        host_cable_inject(b->pair->cables[0], 1, p, len);
        if (i % 32 == 0) {
            bench_recv(b, 1, i, 0, below(5000));
            bench_run(b, 50 * IB_USEC);
            while (bench_cqe(b, 1, &cqe, 0)) {
            }
            bench_events(b);
        }
        if (host_qp_state(b->qps[1]) == EHCA_QPS_ERR) {
            HostPath path;

            host_pair_path(1, 0, &path);
            host_qp_to(b->qps[1], EHCA_QPS_RESET);
            host_qp_init(b->qps[1], 1);
            host_qp_rtr(b->qps[1], &path, NULL, EHCA_MTU_1024,
                        b->qps[0]->qpn, 0);
            host_qp_rts(b->qps[1], &path, 0, false);
        }
    }
    bench_run(b, IB_SEC);
    bench_free(b);
}

/* The other side writes nonsense into its own counters and lengths. */
static void test_garbage_rings(void)
{
    for (unsigned i = 0; i < 300; i++) {
        Bench *b = bench_new(EHCA_SERVICE_RC, true);
        IbLinkPortMemory *m = b->pair->hosts[0]->memory[1];

        bench_ping(b, 0);
        bench_send(b, 0, 1, EHCA_WQE_OPTYPE_RDMA_WRITE, 0, 0, 100000, 0);
        switch (below(5)) {
        case 0:
            m->to_node.head = random64();
            break;
        case 1:
            m->to_fabric.tail = random64();
            break;
        case 2:
            m->to_node.slots[below(IB_RING_SLOTS)].len = random64();
            m->to_node.head++;
            break;
        case 3:
            for (unsigned n = 0; n < IB_RING_SLOTS; n++) {
                for (unsigned k = 0; k < 64; k++) {
                    m->to_node.slots[n].data[k] = random64();
                }
            }
            m->to_node.head += below(IB_RING_SLOTS);
            break;
        default:
            m->to_node.consumer_waits = random64();
            m->to_fabric.producer_waits = random64();
            m->to_fabric.tail -= below(300);
            break;
        }
        for (unsigned n = 0; n < 20; n++) {
            host_run(b->pair->hosts[0]);
            ehca_prepare_sleep(b->pair->hosts[0]->adapter);
        }
        /* A port that lost its fabric is attached anew and works. */
        bench_free(b);
    }
}

/*
 * Memory that goes away under the adapter: what lies from a certain address on
 * cannot be reached any more.  Errors as for any bad WQE or key; when not even
 * a CQE can be written, the CQ is in error; nothing else happens.
 */
static void test_memory_goes(void)
{
    enum { LOCAL_MR, REMOTE_MR, READ_MR, ATOMIC_MR, SEND_QUEUE, RECV_QUEUE,
           RECV_MR, ALL_OF_SENDER, ALL_OF_RECEIVER, CASES };
    static const struct { unsigned victim; uint8_t optype;
                          uint32_t send, recv; } cases[CASES] = {
        [LOCAL_MR] = { 0, EHCA_WQE_OPTYPE_SEND, 0x80000004, 0 },
        [REMOTE_MR] = { 1, EHCA_WQE_OPTYPE_RDMA_WRITE, 0x80001007, 0 },
        [READ_MR] = { 1, EHCA_WQE_OPTYPE_RDMA_READ, 0x80001807, 0 },
        [ATOMIC_MR] = { 1, EHCA_WQE_OPTYPE_FETCH_ADD, 0x80001007, 0 },
        [SEND_QUEUE] = { 0, EHCA_WQE_OPTYPE_SEND, 0x80000002, 0 },
        [RECV_QUEUE] = { 1, EHCA_WQE_OPTYPE_SEND, 0x80001807, 0x80000002 },
        [RECV_MR] = { 1, EHCA_WQE_OPTYPE_SEND, 0x80001807, 0x80000004 },
        [ALL_OF_SENDER] = { 0, EHCA_WQE_OPTYPE_SEND, 0, 0 },
        [ALL_OF_RECEIVER] = { 1, EHCA_WQE_OPTYPE_SEND, 0x80001807, 0 },
    };

    for (unsigned i = 0; i < CASES; i++) {
        Bench *b = bench_new(EHCA_SERVICE_RC, false);
        Host *victim = b->pair->hosts[cases[i].victim];
        uint64_t cut = victim->ram_used;
        size_t ram_size = victim->ram_size;
        HostMr *late = host_mr_new(victim, 4096, BENCH_ALL_ACCESS);
        HostCqe cqe;
        HostSendWr wr = {
            .wr_id = 1, .optype = cases[i].optype, .num_sges = 1,
            .flags = EHCA_WQE_FLAG_SIGNALED,
            .sges = { host_sge(b->mrs[0], 0, 8) },
            .raddr = b->mrs[1]->iova, .rkey = b->mrs[1]->rkey,
        };
        HostRecvWr rr = {
            .wr_id = 9, .num_sges = 1, .sges = { host_sge(b->mrs[1], 0, 8) },
        };

        switch (i) {
        case LOCAL_MR:
            wr.sges[0] = host_sge(late, 0, 8);
            break;
        case REMOTE_MR:
        case READ_MR:
        case ATOMIC_MR:
            wr.raddr = late->iova;
            wr.rkey = late->rkey;
            break;
        case RECV_MR:
            rr.sges[0] = host_sge(late, 0, 8);
            break;
        case SEND_QUEUE:
        case RECV_QUEUE:
            cut = b->qps[cases[i].victim]->rq.pages[0];
            cut = MIN(cut, b->qps[cases[i].victim]->sq.pages[0]);
            cut = MIN(cut, b->qps[cases[i].victim]->sq.pages[
                      b->qps[cases[i].victim]->sq.num_pages - 1]);
            break;
        default:
            cut = 0;
            break;
        }
        g_test_message("case %u", i);
        host_post_recv(b->qps[1], &rr);
        host_ring(b->qps[1]);
        host_post_send(b->qps[0], &wr);
        host_ring(b->qps[0]);
        victim->ram_size = cut;
        bench_run(b, 100 * IB_MSEC);
        victim->ram_size = ram_size;
        if (cases[i].send) {
            g_assert_true(bench_cqe(b, 0, &cqe, 0));
            g_assert_cmphex(cqe.status, ==, cases[i].send);
            g_assert_cmpuint(host_qp_state(b->qps[0]), ==, EHCA_QPS_ERR);
        }
        if (cases[i].recv) {
            g_assert_true(bench_cqe(b, 1, &cqe, 0));
            g_assert_cmphex(cqe.status, ==, cases[i].recv);
        }
        if (i == ALL_OF_SENDER || i == ALL_OF_RECEIVER) {
            unsigned h = cases[i].victim;

            g_assert_cmpuint(host_qp_state(b->qps[h]), ==, EHCA_QPS_ERR);
            g_assert_false(bench_cqe(b, h, &cqe, 0));
            g_assert_cmpint(host_qp_free(b->qps[h]), ==, 0);
            g_assert_cmpint(host_cq_free(b->cqs[h], false), ==,
                            EHCA_RC_R_STATE);
            g_assert_cmpint(host_cq_free(b->cqs[h], true), ==, 0);
            b->cqs[h] = host_cq_new(victim, 64);
        }
        host_pair_connect(b->pair, EHCA_SERVICE_RC, 0, false, b->cqs, b->qps);
        bench_ping(b, 0);
        bench_free(b);
    }
}

/* Machine reset in the middle of everything. */
static void test_reset(void)
{
    Bench *b = bench_new(EHCA_SERVICE_RC, true);
    uint64_t out[9];
    HostPortInfo info;

    bench_ping(b, 0);
    bench_send(b, 0, 1, EHCA_WQE_OPTYPE_RDMA_READ, 0, 0, 100000, 0);
    bench_send(b, 1, 1, EHCA_WQE_OPTYPE_RDMA_WRITE, 0, 0, 100000, 0);
    host_run(b->pair->hosts[0]);
    host_run(b->pair->hosts[1]);
    ehca_reset(b->pair->hosts[0]->adapter);
    host = b->pair->hosts[0];
    g_assert_cmpint(call(EHCA_H_QUERY_QP, b->qps[0]->handle, host->block, 0,
                         0, 0, 0, 0, 0, out), ==, EHCA_RC_RH_PARM);
    g_assert_cmpint(host_query_port(host, 1, &info), ==, 0);
    g_assert_cmpuint(info.state, ==, IB_PORT_DOWN);
    g_assert_cmpuint(info.lid, ==, host_pair_lid(0, 1));
    g_assert_false(ehca_port_wants_link(host->adapter, 1));
    bench_run(b, IB_SEC);
    bench_free(b);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/engine/hostile/refusals", test_refusals);
    g_test_add_func("/engine/hostile/each-register", test_each_register);
    g_test_add_func("/engine/hostile/exhaustion", test_exhaustion);
    g_test_add_func("/engine/hostile/random-calls", test_random_calls);
    g_test_add_func("/engine/hostile/wqes", test_garbage_wqes);
    g_test_add_func("/engine/hostile/changing-wqes", test_changing_wqes);
    g_test_add_func("/engine/hostile/packets", test_garbage_packets);
    g_test_add_func("/engine/hostile/rings", test_garbage_rings);
    g_test_add_func("/engine/hostile/memory-goes", test_memory_goes);
    g_test_add_func("/engine/hostile/reset", test_reset);
    return g_test_run();
}
