/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Nobody starves: whatever some queue pairs of a guest, or its peer, do
 * without end, a message of another one gets through in a number of runs that
 * depends on how many they are, and a run stays short.  And all queue pairs
 * that there can be, at once.
 */
#include <stdlib.h>

#include "engine_bench.h"

/*
 * QEMU's number of packets in a run (hw/ehca/thread.c).  A quarter of it is
 * what a port takes from its wire.
 */
#define BUDGET 16u
#define GREEDY 12u

typedef enum Flood {
    WRITES,                            /* long ones to the peer */
    READS_OF_PEER,                     /* the peer answers without end */
    PEER_READS,                        /* we answer without end */
    PEER_WRITES,
    OWN_LOOP,                          /* RC to ourselves */
    OWN_DATAGRAMS,                     /* UD to ourselves */
    PURGED,                            /* UD WQEs that are no work at all */
    NO_RECEIVER,                       /* RNR NAKs, endless retries */
    EMPTY_WRITES,
    FLOODS
} Flood;

typedef struct Greedy {
    HostQp *qps[2];
    unsigned from;                     /* whose send queue is kept full */
    HostSendWr wr;
} Greedy;

static HostQp *loop_qp(Bench *b)
{
    HostQp *qp = host_qp_new(b->pair->hosts[0], EHCA_SERVICE_RC, b->cqs[0],
                             b->cqs[0], 64, 64);
    HostPath path;

    host_pair_path(0, 0, &path);
    path.dlid = host_pair_lid(0, 1);
    g_assert_cmpint(host_qp_init(qp, 1), ==, 0);
    g_assert_cmpint(host_qp_rtr(qp, &path, NULL, EHCA_MTU_2048, qp->qpn, 0),
                    ==, 0);
    g_assert_cmpint(host_qp_rts(qp, &path, 0, false), ==, 0);
    return qp;
}

static HostQp *datagram_qp(Bench *b)
{
    HostQp *qp = host_qp_new(b->pair->hosts[0], EHCA_SERVICE_UD, b->cqs[0],
                             b->cqs[0], 64, 64);

    g_assert_cmpint(host_qp_ud_init(qp, 1, 5), ==, 0);
    g_assert_cmpint(host_qp_ud_ready(qp, 0), ==, 0);
    return qp;
}

static void greedy_new(Bench *b, Flood flood, Greedy *g)
{
    bool own = flood == OWN_LOOP || flood == OWN_DATAGRAMS ||
               flood == PURGED;

    g->from = flood == PEER_READS || flood == PEER_WRITES;
    g->wr = (HostSendWr) {
        .optype = flood == READS_OF_PEER || flood == PEER_READS
                  ? EHCA_WQE_OPTYPE_RDMA_READ
                  : flood == NO_RECEIVER || own ? EHCA_WQE_OPTYPE_SEND
                                                : EHCA_WQE_OPTYPE_RDMA_WRITE,
        .num_sges = 1,
        .sges = { host_sge(b->mrs[g->from], 0,
                           flood == EMPTY_WRITES ? 0 : own ? 1024 : 100000) },
        .raddr = b->mrs[!g->from]->iova, .rkey = b->mrs[!g->from]->rkey,
    };
    if (flood == OWN_LOOP) {
        g->wr.optype = EHCA_WQE_OPTYPE_RDMA_WRITE;
        g->wr.raddr = b->mrs[0]->iova;
        g->wr.rkey = b->mrs[0]->rkey;
        g->qps[0] = loop_qp(b);
    } else if (own) {
        g->qps[0] = datagram_qp(b);
        g->wr.dest_qpn = g->qps[0]->qpn;
        g->wr.qkey = 5;
        g->wr.dlid = host_pair_lid(0, 1);
    } else {
        host_pair_connect(b->pair, EHCA_SERVICE_RC, 0, false, b->cqs,
                          g->qps);
    }
}

/* The whole ring again, more than the adapter takes in a run. */
static void greedy_post(Greedy *g, Flood flood)
{
    HostQp *qp = g->qps[g->from];

    for (unsigned i = 0; i < qp->sq.entries; i++) {
        unsigned index = qp->sq.next;
        uint8_t *w;

        host_post_send(qp, &g->wr);
        w = (uint8_t *)host_ptr(qp->host, qp->sq.pages[index *
                                qp->sq.stride / 4096]) +
            index * qp->sq.stride % 4096;
        if (flood == PURGED) {
            w[EHCA_WQE_WQEF] = EHCA_WQEF_PURGE;
        }
    }
    qp->sq_new = 0xFFFF;
    host_ring(qp);
}

/* A wire slower than those who send: so many packets per round. */
static void slow_wire(HostCable *c, unsigned packets)
{
    for (unsigned e = 0; e < 2; e++) {
        for (unsigned i = 0; i < packets; i++) {
            uint32_t len;
            const uint8_t *p = ib_ring_peek(&c->ends[e].rx, &len);

            if (!p || !ib_ring_room(&c->ends[!e].tx)) {
                break;
            }
            memcpy(ib_ring_reserve(&c->ends[!e].tx), p, len);
            ib_ring_commit(&c->ends[!e].tx, len);
            ib_ring_consume(&c->ends[e].rx);
        }
    }
}

static void drain(Bench *b)
{
    HostCqe cqe;

    for (unsigned h = 0; h < 2; h++) {
        while (host_cq_poll(b->cqs[h], &cqe, 1)) {
        }
    }
}

static void starve(Flood flood, unsigned wire)
{
    Bench *b = bench_new_bare();
    Greedy greedy[GREEDY];
    HostCq *mine[2];
    HostQp *qps[2];
    HostCqe cqe;
    unsigned rounds = 0, messages = 0;

    g_test_message("flood %u, wire %u", flood, wire);
    for (unsigned i = 0; i < GREEDY; i++) {
        greedy_new(b, flood, &greedy[i]);
    }
    for (unsigned h = 0; h < 2; h++) {
        mine[h] = host_cq_new(b->pair->hosts[h], 64);
    }
    host_pair_connect(b->pair, EHCA_SERVICE_RC, 0, false, mine, qps);
    b->qps[0] = qps[0];
    b->qps[1] = qps[1];
    for (unsigned round = 0; round < 50; round++) {
        for (unsigned i = 0; i < GREEDY; i++) {
            greedy_post(&greedy[i], flood);
        }
        for (unsigned h = 0; h < 2; h++) {
            host_run_budget(b->pair->hosts[h], BUDGET);
        }
        slow_wire(b->pair->cables[0], wire);
        drain(b);
    }
    while (messages < 10) {
        bench_recv(b, 1, messages, 0, 64);
        bench_send(b, 0, messages, EHCA_WQE_OPTYPE_SEND, 0, 0, 64, 0);
        rounds = 0;
        while (!host_cq_poll(mine[0], &cqe, 1)) {
            for (unsigned i = 0; i < GREEDY; i++) {
                greedy_post(&greedy[i], flood);
            }
            for (unsigned h = 0; h < 2; h++) {
                host_run_budget(b->pair->hosts[h], BUDGET);
            }
            slow_wire(b->pair->cables[0], wire);
            ib_clock_set(&b->pair->clock,
                         ib_clock_now(&b->pair->clock) + IB_USEC);
            drain(b);
            /* A full ring before it each way, and a few turns of all. */
            g_assert_cmpuint(rounds++, <, 2 * IB_RING_SLOTS /
                             MIN(wire, BUDGET / 4) + 4 * (GREEDY + 1));
        }
        g_assert_cmphex(cqe.status, ==, 0);
        messages++;
    }
    bench_free(b);
}

static void test_starvation(void)
{
    static const unsigned wires[] = { 64, 8, 1 };

    for (Flood flood = 0; flood < FLOODS; flood++) {
        for (unsigned i = 0; i < G_N_ELEMENTS(wires); i++) {
            starve(flood, wires[i]);
        }
    }
}

/* ------------------------------------------------------------------ */
/* All there can be                                                   */
/* ------------------------------------------------------------------ */

#define RAM_SIZE (4u << 20)
#define HANDLE 0x77u

static uint8_t *ram;

static bool ram_ok(uint64_t addr, size_t len)
{
    return addr <= RAM_SIZE && len <= RAM_SIZE - addr;
}

static bool dma_read(void *opaque, uint64_t addr, void *buf, size_t len)
{
    if (ram_ok(addr, len)) {
        memcpy(buf, ram + addr, len);
    }
    return ram_ok(addr, len);
}

static bool dma_write(void *opaque, uint64_t addr, const void *buf,
                      size_t len)
{
    if (ram_ok(addr, len)) {
        memcpy(ram + addr, buf, len);
    }
    return ram_ok(addr, len);
}

static bool dma_store64(void *opaque, uint64_t addr, uint64_t value)
{
    uint8_t raw[8];

    ib_put64(raw, value);
    return dma_write(opaque, addr, raw, 8);
}

static bool dma_valid(void *opaque, uint64_t addr, size_t len)
{
    return ram_ok(addr, len);
}

static void nothing(void *opaque)
{
}

static void nothing_port(void *opaque, unsigned port)
{
}

static void nothing_enable(void *opaque, unsigned port, bool enable)
{
}

static int64_t hcall(EhcaAdapter *a, uint64_t number, const uint64_t args[8],
                     uint64_t out[9])
{
    uint64_t in[9] = { HANDLE };

    memcpy(in + 1, args, 8 * sizeof(*args));
    return ehca_hcall(a, number, in, out);
}

#define ARGS(...) ((const uint64_t[8]) { __VA_ARGS__ })

static uint64_t with_pages(EhcaAdapter *a, const uint64_t args[8],
                           unsigned pages_out, uint64_t first, bool same)
{
    uint64_t out[9], ignored[9];

    g_assert_cmpint(hcall(a, EHCA_H_ALLOC_RESOURCE, args, out), ==, 0);
    for (unsigned i = 0; i < (uint32_t)out[pages_out]; i++) {
        g_assert_cmpint(hcall(a, EHCA_H_REGISTER_RPAGES, ARGS(0, out[0],
            first + (same ? 0 : 4096 * i), 1), ignored), >=, 0);
    }
    return out[0];
}

static void modify(EhcaAdapter *a, uint64_t qp, uint64_t mask)
{
    uint64_t out[9];

    g_assert_cmpint(hcall(a, EHCA_H_MODIFY_QP, ARGS(qp, mask, 4096), out), ==,
                    0);
}

/*
 * Every QP of the adapter, ready, its ring full of WQEs, doorbells rung as
 * loud as can be; the port is down, so that all of them time out at once.
 */
static void test_all_qps(void)
{
    const EhcaOps ops = {
        .dma_read = dma_read, .dma_write = dma_write,
        .dma_store64 = dma_store64, .dma_valid = dma_valid,
        .port_enable = nothing_enable, .kick = nothing_port, .wake = nothing,
    };
    const uint64_t cq_pages = 1u << 20, wq_page = 3u << 20;
    EhcaConfig config = { .handle = HANDLE, .num_ports = 2, .ist_eq = 1,
                          .ist_neq = 2 };
    uint8_t *block;
    uint64_t *handles, eq, cq, out[9];
    unsigned qps = 0, runs = 0;
    EhcaAdapter *a;
    IbClock clock;
    char *report;
    int64_t rc;

    ram = g_malloc0(RAM_SIZE);
    block = ram + 4096;
    ehca_config_complete(&config);
    handles = g_new0(uint64_t, config.max_qp + 1);
    ib_clock_init_virtual(&clock);
    a = ehca_new(&config, &clock, &ops, NULL);
    eq = with_pages(a, ARGS(EHCA_ALLOC_EQ, 8192), EHCA_OUT_PAGES, 8192,
                    false);
    cq = with_pages(a, ARGS(EHCA_RT_CQ, eq, 1, 16384), EHCA_OUT_PAGES,
                    cq_pages, false);
    for (unsigned i = 0; i < 32; i++) {
        ram[wq_page + i * 128 + EHCA_WQE_OPTYPE] = EHCA_WQE_OPTYPE_RDMA_WRITE;
        ram[wq_page + i * 128 + EHCA_WQE_FLAGS] = EHCA_WQE_FLAG_SIGNALED;
    }
    ib_put32(block + EHCA_QPCB_PRIM_PHYS_PORT, 1);
    ib_put32(block + EHCA_QPCB_DLID, 5);
    ib_put32(block + EHCA_QPCB_PATH_MTU, 1);
    ib_put32(block + EHCA_QPCB_TIMEOUT, 10);
    ib_put32(block + EHCA_QPCB_RETRY_COUNT, 7);
    while ((rc = hcall(a, EHCA_H_ALLOC_RESOURCE, ARGS(EHCA_RT_QP |
            (uint64_t)EHCA_SIGT_PER_WQE << EHCA_ALLOC_QP_SIGT_SHIFT, cq, cq,
            eq, (uint64_t)qps << 32 | 1, UINT64_C(32) << 48 |
            UINT64_C(32) << 32 | 4 << 24 | 4 << 16), out)) == 0) {
        uint64_t qp = out[0];

        g_assert_cmpuint(qps, <, config.max_qp);
        for (unsigned q = 0; q < 2; q++) {
            hcall(a, EHCA_H_REGISTER_RPAGES, ARGS(q, qp, wq_page, 1), out);
        }
        ib_put32(block + EHCA_QPCB_QP_STATE, EHCA_QPS_INIT);
        modify(a, qp, EHCA_QPMASK_QP_STATE | EHCA_QPMASK_PRIM_PHYS_PORT);
        ib_put32(block + EHCA_QPCB_QP_STATE, EHCA_QPS_RTR);
        modify(a, qp, EHCA_QPMASK_QP_STATE | EHCA_QPMASK_DLID |
               EHCA_QPMASK_PATH_MTU);
        ib_put32(block + EHCA_QPCB_QP_STATE, EHCA_QPS_RTS);
        modify(a, qp, EHCA_QPMASK_QP_STATE | EHCA_QPMASK_TIMEOUT |
               EHCA_QPMASK_RETRY_COUNT);
        handles[qps++] = qp;
    }
    g_assert_cmpint(rc, ==, EHCA_RC_NOT_ENOUGH_RESOURCES);
    g_assert_cmpuint(qps, ==, config.max_qp);
    for (unsigned round = 0; round < 3; round++) {
        for (unsigned i = 0; i < qps; i++) {
            ehca_mmio_write(a, (uint64_t)i * 4096 + EHCA_QPX_SQA, 0xFFFF);
            ehca_mmio_write(a, (uint64_t)i * 4096 + EHCA_QPX_RQA, 0xFFFF);
        }
        while (ehca_run(a, BUDGET)) {
            runs++;
        }
    }
    /* 32 WQEs each, in runs of 16, and no endless loop. */
    g_assert_cmpuint(runs, >, 2 * qps - 100);
    g_assert_cmpuint(runs, <, 4 * qps);
    /* All give up, in turns, each with one error CQE. */
    for (unsigned i = 0; i < 9; i++) {
        ib_clock_set(&clock, ib_clock_now(&clock) + ib_timeout_ns(10));
        while (ehca_run(a, BUDGET)) {
        }
    }
    report = ehca_report(a);
    g_assert_nonnull(strstr(report, "\"error_cause\":\"retries_used_up\""));
    g_assert_null(strstr(report, "\"state\":\"RTS\""));
    free(report);
    g_assert_cmphex(ib_get32(ram + cq_pages + EHCA_CQE_STATUS), ==,
                    0x80000008);
    g_assert_cmphex(ib_get32(ram + cq_pages + (qps - 1) * 64 +
                             EHCA_CQE_STATUS), ==, 0x80000008);
    g_assert_cmphex(ib_get32(ram + cq_pages + qps * 64 + EHCA_CQE_STATUS),
                    ==, 0);
    for (unsigned i = 0; i < qps; i++) {
        g_assert_cmpint(hcall(a, EHCA_H_FREE_RESOURCE, ARGS(handles[i]),
                              out), ==, 0);
    }
    g_assert_cmpint(hcall(a, EHCA_H_FREE_RESOURCE, ARGS(cq), out), ==, 0);
    g_assert_cmpint(hcall(a, EHCA_H_FREE_RESOURCE, ARGS(eq), out), ==, 0);
    report = ehca_report(a);
    g_assert_nonnull(strstr(report, "{\"qp\":0,\"cq\":0,\"mr\":0,\"mw\":0,"
                            "\"mr_pages\":0,\"queue_pages\":0,"
                            "\"multicast\":0}"));
    free(report);
    ehca_free(a);
    ib_clock_fini(&clock);
    g_free(handles);
    g_free(ram);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/engine/fair/starvation", test_starvation);
    g_test_add_func("/engine/fair/all-qps", test_all_qps);
    return g_test_run();
}
