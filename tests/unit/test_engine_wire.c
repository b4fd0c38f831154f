/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What goes over the wire, number by number: all timer codes, all MTUs, the
 * longest messages, PSNs that wrap while the path migrates; and a peer that
 * answers what was never asked, asks too much, or says the same thing over
 * and over.
 */
#include "engine_bench.h"

typedef struct Knobs {
    unsigned service, mtu, timeout, retry, rnr_retry, min_rnr;
    unsigned resp_res, init_depth;
    uint32_t psn;                      /* first, both ways */
    bool apm;                          /* rail 1 is the alternate, REARM */
} Knobs;

static const Knobs usual = {
    .service = EHCA_SERVICE_RC, .mtu = EHCA_MTU_2048, .timeout = 10,
    .retry = 2, .rnr_retry = 7, .min_rnr = 1, .resp_res = 2, .init_depth = 2,
    .psn = 0x100,
};

static void must(int64_t rc)
{
    g_assert_cmpint(rc, ==, 0);
}

static void bring_up(Bench *b, unsigned h, const Knobs *k)
{
    HostQp *qp = b->qps[h];
    uint8_t block[EHCA_QPCB_SIZE] = { 0 };
    HostPath primary, alternate;
    uint64_t mask, rts = EHCA_QPMASK_QP_STATE | EHCA_QPMASK_SEND_PSN;

    host_pair_path(h, 0, &primary);
    host_pair_path(h, 1, &alternate);
    alternate.timeout = k->timeout;
    alternate.retry_count = k->retry;
    alternate.rnr_retry_count = k->rnr_retry;
    must(host_qp_init(qp, 1));
    mask = host_put_path(block, &primary, false) | EHCA_QPMASK_QP_STATE |
           EHCA_QPMASK_PATH_MTU | EHCA_QPMASK_DEST_QP_NR |
           EHCA_QPMASK_RECEIVE_PSN | EHCA_QPMASK_RDMA_NR_ATOMIC_RESP_RES;
    mask |= k->apm ? host_put_path(block, &alternate, true) : 0;
    ib_put32(block + EHCA_QPCB_QP_STATE, EHCA_QPS_RTR);
    ib_put32(block + EHCA_QPCB_PATH_MTU, k->mtu);
    ib_put32(block + EHCA_QPCB_DEST_QP_NR, b->qps[!h]->qpn);
    ib_put32(block + EHCA_QPCB_RECEIVE_PSN, k->psn);
    ib_put32(block + EHCA_QPCB_RDMA_NR_ATOMIC_RESP_RES, k->resp_res);
    ib_put32(block + EHCA_QPCB_MIN_RNR_NAK_TIMER_FIELD, k->min_rnr);
    if (k->service == EHCA_SERVICE_RC) {
        mask |= EHCA_QPMASK_MIN_RNR_NAK_TIMER_FIELD;
        rts |= EHCA_QPMASK_TIMEOUT | EHCA_QPMASK_RETRY_COUNT |
               EHCA_QPMASK_RNR_RETRY_COUNT |
               EHCA_QPMASK_RDMA_ATOMIC_OUTST_DEST_QP;
    }
    must(host_qp_modify(qp, mask, block));
    ib_put32(block + EHCA_QPCB_QP_STATE, EHCA_QPS_RTS);
    ib_put32(block + EHCA_QPCB_SEND_PSN, k->psn);
    ib_put32(block + EHCA_QPCB_TIMEOUT, k->timeout);
    ib_put32(block + EHCA_QPCB_RETRY_COUNT, k->retry);
    ib_put32(block + EHCA_QPCB_RNR_RETRY_COUNT, k->rnr_retry);
    ib_put32(block + EHCA_QPCB_RDMA_ATOMIC_OUTST_DEST_QP, k->init_depth);
    if (k->apm) {
        ib_put32(block + EHCA_QPCB_PATH_MIGRATION_STATE, EHCA_MIG_REARM);
        rts |= EHCA_QPMASK_PATH_MIGRATION_STATE;
    }
    must(host_qp_modify(qp, rts, block));
}

static Bench *connected(const Knobs *k)
{
    Bench *b = bench_new_bare();

    for (unsigned h = 0; h < 2; h++) {
        b->qps[h] = host_qp_new(b->pair->hosts[h], k->service, b->cqs[h],
                                b->cqs[h], 64, 64);
    }
    for (unsigned h = 0; h < 2; h++) {
        bring_up(b, h, k);
    }
    return b;
}

static void expect_cqe(Bench *b, unsigned h, uint64_t wr_id, uint32_t status)
{
    HostCqe cqe;

    g_assert_true(bench_cqe(b, h, &cqe, 60 * IB_SEC));
    if (cqe.wr_id != wr_id || cqe.status != status) {
        bench_dump(b);
    }
    g_assert_cmpuint(cqe.wr_id, ==, wr_id);
    g_assert_cmphex(cqe.status, ==, status);
}

static void expect_no_cqe(Bench *b, unsigned h)
{
    HostCqe cqe;

    g_assert_false(bench_cqe(b, h, &cqe, 0));
}

/* ------------------------------------------------------------------ */
/* A cable that looks at what passes, and may lose it                 */
/* ------------------------------------------------------------------ */

#define MAX_SEEN 64

typedef struct Tap {
    Bench *b;
    unsigned end;                      /* packets from this end ... */
    unsigned seen;                     /* were so many */
    int64_t time[MAX_SEEN];
    uint8_t op[MAX_SEEN];
    uint32_t psn[MAX_SEEN];
    uint16_t len[MAX_SEEN];            /* payload */
    unsigned lose_after;               /* from this one on, 0: none */
    uint64_t bytes[2];                 /* by end, all of a packet */
    uint8_t nak;                       /* syndrome of the last one */
    unsigned naks;
} Tap;

static bool tap(void *opaque, unsigned end, uint8_t *p, size_t *len)
{
    Tap *t = opaque;
    IbPacket pkt;

    if (ib_packet_parse(&pkt, p, *len) != IB_PACKET_OK ||
        pkt.lrh.vl == IB_VL_MANAGEMENT) {
        return true;
    }
    t->bytes[end] += *len;
    if (end != t->end) {
        return true;
    }
    if (t->seen < MAX_SEEN) {
        t->time[t->seen] = ib_clock_now(&t->b->pair->clock);
        t->op[t->seen] = pkt.bth.opcode & IB_OP_MASK;
        t->psn[t->seen] = pkt.bth.psn;
        t->len[t->seen] = pkt.payload_len;
    }
    t->seen++;
    if ((pkt.aeth.syndrome & IB_AETH_KIND_MASK) == IB_AETH_NAK) {
        t->nak = pkt.aeth.syndrome;
        t->naks++;
    }
    return !t->lose_after || t->seen < t->lose_after;
}

static void set_tap(Bench *b, unsigned rail, Tap *t, unsigned end)
{
    t->b = b;
    t->end = end;
    b->pair->cables[rail]->filter = tap;
    b->pair->cables[rail]->filter_opaque = t;
}

/* ------------------------------------------------------------------ */
/* Timers                                                             */
/* ------------------------------------------------------------------ */

/* Table 45 of the specification, in us. */
static const int64_t rnr_us[32] = {
    655360, 10, 20, 30, 40, 60, 80, 120, 160, 240, 320, 480, 640, 960, 1280,
    1920, 2560, 3840, 5120, 7680, 10240, 15360, 20480, 30720, 40960, 61440,
    81920, 122880, 163840, 245760, 327680, 491520,
};

static void test_rnr_timers(void)
{
    for (unsigned code = 0; code < 32; code++) {
        Knobs k = usual;
        Tap t = { 0 };
        Bench *b;

        k.min_rnr = code;
        k.rnr_retry = 2;
        k.timeout = 31;
        b = connected(&k);
        set_tap(b, 0, &t, 0);
        bench_send(b, 0, 1, EHCA_WQE_OPTYPE_SEND, 0, 0, 8, 0);
        expect_cqe(b, 0, 1, 0x80000009);
        /* The first, two retries, each after the wait it was told. */
        g_assert_cmpuint(t.seen, ==, 3);
        for (unsigned i = 1; i < 3; i++) {
            g_assert_cmpint(t.time[i] - t.time[i - 1], ==,
                            rnr_us[code] * IB_USEC);
        }
        bench_free(b);
    }
}

static void test_ack_timeouts(void)
{
    for (unsigned code = 1; code < 32; code++) {
        Knobs k = usual;
        Tap t = { .lose_after = 1 };
        Bench *b;
        HostCqe cqe;

        k.timeout = code;
        k.retry = 1;
        b = connected(&k);
        set_tap(b, 0, &t, 0);
        bench_send(b, 0, 1, EHCA_WQE_OPTYPE_RDMA_WRITE, 0, 0, 8, 0);
        g_assert_true(bench_cqe(b, 0, &cqe, 3 * (INT64_C(4096) << code)));
        g_assert_cmphex(cqe.status, ==, 0x80000008);
        g_assert_cmpuint(t.seen, ==, 2);
        g_assert_cmpint(t.time[1] - t.time[0], ==, INT64_C(4096) << code);
        bench_free(b);
    }
}

/* Code 0: no timeout at all; a NAK still makes it send again. */
static void test_no_timeout(void)
{
    Knobs k = usual;
    Tap t = { .lose_after = 1 };
    Bench *b;

    k.timeout = 0;
    b = connected(&k);
    set_tap(b, 0, &t, 0);
    bench_send(b, 0, 1, EHCA_WQE_OPTYPE_RDMA_WRITE, 0, 0, 8, 0);
    bench_run(b, 100000 * IB_SEC);
    g_assert_cmpuint(t.seen, ==, 1);
    g_assert_cmpuint(host_qp_state(b->qps[0]), ==, EHCA_QPS_RTS);
    expect_no_cqe(b, 0);
    t.lose_after = 0;
    bench_send(b, 0, 2, EHCA_WQE_OPTYPE_RDMA_WRITE, 0, 0, 8, 0);
    expect_cqe(b, 0, 1, 0);
    expect_cqe(b, 0, 2, 0);
    bench_free(b);
}

/* ------------------------------------------------------------------ */
/* Lengths                                                            */
/* ------------------------------------------------------------------ */

static void check_length(Bench *b, Tap *t, unsigned mtu, uint8_t optype,
                         uint32_t len)
{
    bool read = optype == EHCA_WQE_OPTYPE_RDMA_READ;
    unsigned packets = len ? (len + mtu - 1) / mtu : 1;
    uint64_t total = 0;
    unsigned seen = 0;

    bench_fill(b, read, 0, len, len + mtu);
    memset(b->mrs[!read]->bytes, 0xEE, len + 8);
    t->end = read;
    t->seen = 0;
    if (optype == EHCA_WQE_OPTYPE_SEND) {
        bench_recv(b, 1, 1, 0, len);
    }
    bench_send(b, 0, 2, optype, 0, 0, len, 0);
    expect_cqe(b, 0, 2, 0);
    if (optype == EHCA_WQE_OPTYPE_SEND) {
        expect_cqe(b, 1, 1, 0);
    }
    g_assert_true(bench_same(b, 0, 0, len));
    g_assert_cmphex(b->mrs[!read]->bytes[len], ==, 0xEE);
    for (unsigned i = 0; i < t->seen; i++) {
        if (t->op[i] != IB_OP_ACK) {
            seen++;
            total += t->len[i];
            /* Full ones, and the rest. */
            g_assert_cmpuint(t->len[i], ==, seen == packets
                             ? len - (packets - 1) * mtu : mtu);
        }
    }
    g_assert_cmpuint(seen, ==, packets);
    g_assert_cmpuint(total, ==, len);
}

static void test_mtus(void)
{
    static const uint8_t ops[] = {
        EHCA_WQE_OPTYPE_SEND, EHCA_WQE_OPTYPE_RDMA_WRITE,
        EHCA_WQE_OPTYPE_RDMA_READ,
    };

    for (unsigned code = EHCA_MTU_256; code <= EHCA_MTU_4096; code++) {
        unsigned mtu = ib_mtu_bytes(code);
        uint32_t lengths[] = {
            0, 1, mtu - 1, mtu, mtu + 1, 2 * mtu - 1, 2 * mtu, 2 * mtu + 1,
            16 * mtu, 40 * mtu + 3,
        };

        for (unsigned s = 0; s < 2; s++) {
            Knobs k = usual;
            Tap t = { 0 };
            Bench *b;

            k.mtu = code;
            k.service = s ? EHCA_SERVICE_UC : EHCA_SERVICE_RC;
            b = connected(&k);
            set_tap(b, 0, &t, 0);
            for (unsigned o = 0; o < (s ? 2 : G_N_ELEMENTS(ops)); o++) {
                for (unsigned i = 0; i < G_N_ELEMENTS(lengths); i++) {
                    check_length(b, &t, mtu, ops[o], lengths[i]);
                }
            }
            bench_free(b);
        }
    }
}

/* 2 GiB of I/O addresses at host @h, all of them the same 1 MiB page. */
static void huge_mr(Bench *b, unsigned h, uint64_t *iova, uint32_t *key)
{
    Host *host = b->pair->hosts[h];
    uint64_t in[9] = {
        host->config.handle, EHCA_RT_MR, UINT64_C(1) << 40,
        (UINT64_C(1) << 31) + 4096,
        (uint64_t)(BENCH_ALL_ACCESS |
                   EHCA_MR_PGSIZE_1M << EHCA_MR_PGSIZE_SHIFT) << 32, HOST_PD,
    };
    uint64_t out[9], handle;
    uint8_t *list = host_ptr(host, host->list);

    must(host_hcall(host, EHCA_H_ALLOC_RESOURCE, in, out));
    handle = out[EHCA_OUT_HANDLE];
    *iova = in[2];
    *key = out[EHCA_OUT_LKEY];
    for (unsigned i = 0; i < 512; i++) {
        ib_put64(list + 8 * i, 3u << 20);
    }
    for (unsigned done = 0; done < 2049; done += 512) {
        unsigned count = MIN(512u, 2049 - done);
        uint64_t pages[9] = {
            host->config.handle, EHCA_MR_PGSIZE_1M << 8, handle,
            count == 1 ? 3u << 20 : host->list, count,
        };

        host_hcall(host, EHCA_H_REGISTER_RPAGES, pages, out);
    }
}

/*
 * 2 GiB is the longest message; at the smallest MTU PSNs end before that.
 * Whether it is all right shows with the first packet: nobody waits for the
 * last one here.
 */
static void test_longest(void)
{
    static const uint8_t ops[] = {
        EHCA_WQE_OPTYPE_SEND, EHCA_WQE_OPTYPE_RDMA_WRITE,
        EHCA_WQE_OPTYPE_RDMA_READ,
    };
    const struct { unsigned mtu; uint64_t length; bool good; } cases[] = {
        { EHCA_MTU_4096, UINT64_C(1) << 31, true },
        { EHCA_MTU_512, UINT64_C(1) << 31, true },
        { EHCA_MTU_4096, (UINT64_C(1) << 31) + 1, false },
        { EHCA_MTU_256, UINT64_C(1) << 30, true },
        { EHCA_MTU_256, (UINT64_C(1) << 30) + 1, false },
        { EHCA_MTU_256, UINT64_C(1) << 31, false },
    };

    for (unsigned i = 0; i < G_N_ELEMENTS(cases); i++) {
        for (unsigned o = 0; o < G_N_ELEMENTS(ops); o++) {
            Knobs k = usual;
            uint64_t iova[2];
            uint32_t key[2];
            HostSendWr wr = {
                .wr_id = 1, .optype = ops[o], .num_sges = 1,
                .flags = EHCA_WQE_FLAG_SIGNALED,
            };
            HostCqe cqe;
            Bench *b;

            k.mtu = cases[i].mtu;
            b = connected(&k);
            for (unsigned h = 0; h < 2; h++) {
                huge_mr(b, h, &iova[h], &key[h]);
            }
            wr.raddr = iova[1];
            wr.rkey = key[1];
            wr.sges[0] = (HostSge) { iova[0], key[0], cases[i].length };
            host_post_recv(b->qps[1], &(HostRecvWr) {
                .num_sges = 1,
                .sges = { { iova[1], key[1], cases[i].length } },
            });
            host_ring(b->qps[1]);
            host_post_send(b->qps[0], &wr);
            host_ring(b->qps[0]);
            for (unsigned turn = 0; turn < 20; turn++) {
                host_run(b->pair->hosts[0]);
                host_cable_run(b->pair->cables[0]);
                host_run(b->pair->hosts[1]);
                host_cable_run(b->pair->cables[0]);
            }
            if (cases[i].good) {
                g_assert_false(host_cq_poll(b->cqs[0], &cqe, 1));
                g_assert_cmpuint(host_qp_state(b->qps[0]), ==, EHCA_QPS_RTS);
                g_assert_cmpuint(host_qp_state(b->qps[1]), ==, EHCA_QPS_RTS);
            } else {
                g_assert_true(host_cq_poll(b->cqs[0], &cqe, 1));
                g_assert_cmphex(cqe.status, ==, 0x80000001);
            }
            bench_free(b);
        }
    }
}

/* 64 MiB as a whole, over the edge of the PSN circle. */
static void test_around(void)
{
    Knobs k = usual;
    uint64_t iova[2];
    uint32_t key[2];
    Bench *b;

    k.mtu = EHCA_MTU_256;
    k.psn = 0xFFFFFF - (64u << 20) / 256 / 2;
    b = connected(&k);
    for (unsigned h = 0; h < 2; h++) {
        huge_mr(b, h, &iova[h], &key[h]);
    }
    memset(host_ptr(b->pair->hosts[0], 3u << 20), 0x3C, 1u << 20);
    for (unsigned i = 0; i < 2; i++) {
        HostSendWr wr = {
            .wr_id = i, .num_sges = 1, .flags = EHCA_WQE_FLAG_SIGNALED,
            .optype = i ? EHCA_WQE_OPTYPE_RDMA_READ
                        : EHCA_WQE_OPTYPE_RDMA_WRITE,
            .raddr = iova[1], .rkey = key[1],
            .sges = { { iova[0], key[0], 64u << 20 } },
        };

        host_post_send(b->qps[0], &wr);
        host_ring(b->qps[0]);
        expect_cqe(b, 0, i, 0);
        g_assert_cmphex(host_qp_field(b->qps[0], EHCA_QPCB_SEND_PSN), ==,
                        (k.psn + (i + 1) * ((64u << 20) / 256)) & 0xFFFFFF);
    }
    g_assert_cmpmem(host_ptr(b->pair->hosts[0], 3u << 20), 1u << 20,
                    host_ptr(b->pair->hosts[1], 3u << 20), 1u << 20);
    bench_free(b);
}

/* A fenced WQE waits for the READs before it, another one does not. */
static void test_fence(void)
{
    for (unsigned fence = 0; fence < 2; fence++) {
        Bench *b = connected(&usual);
        Tap t = { 0 };
        uint64_t before;

        set_tap(b, 0, &t, 0);
        bench_fill(b, 1, 0, 100000, 3);
        bench_send(b, 0, 1, EHCA_WQE_OPTYPE_RDMA_READ, 0, 0, 50000, 0);
        bench_send(b, 0, 2, EHCA_WQE_OPTYPE_RDMA_WRITE,
                   fence ? EHCA_WQE_FLAG_FENCE : 0, 0, 8, 100000);
        host_run(b->pair->hosts[0]);
        host_cable_run(b->pair->cables[0]);
        before = t.seen;
        g_assert_cmpuint(before, ==, fence ? 1 : 2);
        expect_cqe(b, 0, 1, 0);
        expect_cqe(b, 0, 2, 0);
        g_assert_cmpuint(t.seen, ==, 2);
        /* What was read is what is written then. */
        g_assert_true(!fence || memcmp(b->mrs[1]->bytes + 100000,
                                       b->mrs[1]->bytes, 8) == 0);
        bench_free(b);
    }
}

/* ------------------------------------------------------------------ */
/* PSNs that wrap while the path migrates                             */
/* ------------------------------------------------------------------ */

/*
 * A SEND, a READ, an atomic and a WRITE over the edge of the PSN circle.  The
 * first path dies for good with the n-th packet one way; all of it happens
 * once, in order, on the other path.
 */
static void wrap_and_migrate(unsigned end, unsigned lose_after, uint32_t psn)
{
    Knobs k = usual;
    Tap first = { .lose_after = lose_after };
    HostSendWr atomic = {
        .wr_id = 3, .optype = EHCA_WQE_OPTYPE_FETCH_ADD, .operand = { 1 },
        .flags = EHCA_WQE_FLAG_SIGNALED, .num_sges = 1,
    };
    const uint32_t len = 5 * 256 + 7;
    Bench *b;

    k.mtu = EHCA_MTU_256;
    k.psn = psn;
    k.apm = true;
    b = connected(&k);
    bench_ping(b, 0);                  /* arms; one PSN each way */
    g_assert_cmpuint(host_qp_mig(b->qps[0]), ==, EHCA_MIG_ARMED);
    set_tap(b, 0, &first, end);
    bench_fill(b, 0, 0, len, 1);
    bench_fill(b, 1, 100000, len, 2);
    ib_put64(b->mrs[1]->bytes + 200000, 41);
    bench_recv(b, 1, 9, 4096, len);
    bench_send(b, 0, 1, EHCA_WQE_OPTYPE_SEND, 0, 0, len, 0);
    bench_send(b, 0, 2, EHCA_WQE_OPTYPE_RDMA_READ, 0, 50000, len, 100000);
    atomic.raddr = b->mrs[1]->iova + 200000;
    atomic.rkey = b->mrs[1]->rkey;
    atomic.sges[0] = host_sge(b->mrs[0], 200000, 8);
    host_post_send(b->qps[0], &atomic);
    host_ring(b->qps[0]);
    bench_send(b, 0, 4, EHCA_WQE_OPTYPE_RDMA_WRITE, 0, 0, len, 150000);
    expect_cqe(b, 1, 9, 0);
    for (unsigned id = 1; id <= 4; id++) {
        expect_cqe(b, 0, id, 0);
    }
    g_assert_true(bench_same(b, 0, 4096, len));
    g_assert_true(bench_same(b, 50000, 100000, len));
    g_assert_true(bench_same(b, 0, 150000, len));
    g_assert_cmpuint(ib_get64(b->mrs[0]->bytes + 200000), ==, 41);
    g_assert_cmpuint(ib_get64(b->mrs[1]->bytes + 200000), ==, 42);
    /* PSNs are continuous: 1 + 6 + 6 + 1 + 6. */
    g_assert_cmphex(host_qp_field(b->qps[0], EHCA_QPCB_SEND_PSN), ==,
                    (psn + 20) & 0xFFFFFF);
    g_assert_cmphex(host_qp_field(b->qps[1], EHCA_QPCB_RECEIVE_PSN), ==,
                    (psn + 20) & 0xFFFFFF);
    bench_run(b, IB_SEC);
    expect_no_cqe(b, 0);
    expect_no_cqe(b, 1);
    if (first.seen >= lose_after) {
        for (unsigned h = 0; h < 2; h++) {
            g_assert_cmpuint(bench_eqes(b, h, EHCA_EQE_PATH_MIG), ==, 1);
            g_assert_cmpuint(host_qp_mig(b->qps[h]), ==, EHCA_MIG_MIGRATED);
            g_assert_cmpuint(host_qp_field(b->qps[h],
                             EHCA_QPCB_PRIM_PHYS_PORT), ==, 2);
        }
    }
    bench_free(b);
}

static void test_wrap_and_migrate(void)
{
    for (unsigned end = 0; end < 2; end++) {
        for (unsigned n = 1; n <= 14; n++) {
            for (uint32_t psn = 0xFFFFEC; psn != 0x1000001; psn++) {
                wrap_and_migrate(end, n, psn & 0xFFFFFF);
            }
        }
    }
}

static bool twice(void *opaque, unsigned end, uint8_t *p, size_t *len)
{
    if (p[0] >> 4 != IB_VL_MANAGEMENT) {
        host_cable_inject(opaque, !end, p, *len);
    }
    return true;
}

/* The same with each packet doubled on the second path, READs asked twice. */
static void test_duplicates_across_migration(void)
{
    for (unsigned n = 1; n <= 14; n++) {
        Knobs k = usual;
        Tap first = { .lose_after = n };
        Bench *b;

        k.apm = true;
        k.psn = 0xFFFFFA;
        k.mtu = EHCA_MTU_256;
        b = connected(&k);
        bench_ping(b, 0);
        set_tap(b, 0, &first, 1);
        b->pair->cables[1]->filter = twice;
        b->pair->cables[1]->filter_opaque = b->pair->cables[1];
        for (unsigned i = 0; i < 6; i++) {
            bench_fill(b, 1, 100000, 2000, i);
            bench_send(b, 0, 10 + i, EHCA_WQE_OPTYPE_RDMA_READ, 0, 0, 2000,
                       100000);
            bench_send(b, 0, 20 + i, EHCA_WQE_OPTYPE_RDMA_READ, 0, 5000, 300,
                       100000);
            expect_cqe(b, 0, 10 + i, 0);
            expect_cqe(b, 0, 20 + i, 0);
            g_assert_true(bench_same(b, 0, 100000, 2000));
            g_assert_true(bench_same(b, 5000, 100000, 300));
        }
        g_assert_cmpuint(host_qp_state(b->qps[1]), ==, EHCA_QPS_RTS);
        bench_free(b);
    }
}

/* ------------------------------------------------------------------ */
/* A peer that means harm                                             */
/* ------------------------------------------------------------------ */

static void inject(Bench *b, unsigned h, const BenchPacket *change)
{
    uint8_t p[IB_PACKET_MAX];
    BenchPacket spec = *change;

    spec.slid = host_pair_lid(!h, 1);
    spec.dlid = host_pair_lid(h, 1);
    spec.qpn = b->qps[h]->qpn;
    spec.migreq = true;
    g_assert_true(host_cable_inject(b->pair->cables[0], h, p,
                                    bench_packet(p, &spec)));
}

static BenchPacket ack(uint32_t psn, uint8_t syndrome)
{
    return (BenchPacket) { .opcode = IB_OP_ACK, .psn = psn,
                           .syndrome = syndrome };
}

/* Answers to what was never sent complete nothing and change nothing. */
static void test_ghost_acks(void)
{
    static const uint8_t syndromes[] = {
        0x1F, 0x00, 0x21, 0x60, 0x61, 0x62, 0x63,
    };
    static const int32_t offsets[] = {
        1, 2, 64, 0x7FFFFF, -0x800000, -0x100, -1,
    };
    Bench *b = connected(&usual);
    Tap t = { .lose_after = 1 };

    /* Nothing outstanding. */
    for (unsigned s = 0; s < G_N_ELEMENTS(syndromes); s++) {
        for (unsigned i = 0; i < G_N_ELEMENTS(offsets); i++) {
            BenchPacket p = ack((0x100 + offsets[i]) & 0xFFFFFF,
                                syndromes[s]);

            inject(b, 0, &p);
            p = ack(0x100, syndromes[s]);
            inject(b, 0, &p);
            bench_run(b, 10 * IB_USEC);
        }
    }
    g_assert_cmpuint(host_qp_state(b->qps[0]), ==, EHCA_QPS_RTS);
    /* One outstanding, PSN 0x100: only that can be answered. */
    set_tap(b, 0, &t, 0);
    bench_send(b, 0, 1, EHCA_WQE_OPTYPE_RDMA_WRITE, 0, 0, 8, 0);
    bench_run(b, 10 * IB_USEC);
    for (unsigned s = 0; s < G_N_ELEMENTS(syndromes); s++) {
        for (unsigned i = 0; i < G_N_ELEMENTS(offsets); i++) {
            BenchPacket p = ack((0x100 + offsets[i]) & 0xFFFFFF,
                                syndromes[s]);

            inject(b, 0, &p);
            bench_run(b, IB_USEC);
            expect_no_cqe(b, 0);
        }
    }
    g_assert_cmpuint(t.seen, ==, 1);
    t.lose_after = 0;
    expect_cqe(b, 0, 1, 0);
    bench_free(b);
}

/* Reserved syndromes, and NAKs in front of data: as if they were lost. */
static void test_reserved_syndromes(void)
{
    for (unsigned syndrome = 0; syndrome < 256; syndrome++) {
        bool known = syndrome < 0x40 ||
                     (syndrome >= 0x60 && syndrome <= 0x63);
        Bench *b = connected(&usual);
        Tap t = { .lose_after = 1 };
        BenchPacket p;
        HostCqe cqe;

        set_tap(b, 0, &t, 0);
        bench_send(b, 0, 1, EHCA_WQE_OPTYPE_RDMA_WRITE, 0, 0, 8, 0);
        bench_send(b, 0, 2, EHCA_WQE_OPTYPE_RDMA_WRITE, 0, 0, 8, 0);
        bench_run(b, 10 * IB_USEC);
        p = ack(0x101, syndrome);
        inject(b, 0, &p);
        bench_run(b, 10 * IB_USEC);
        /* Known ones acknowledge at least what is before their PSN. */
        g_assert_true(bench_cqe(b, 0, &cqe, 0) == known);
        if (!known) {
            g_assert_cmpuint(t.seen, ==, 2);
            t.lose_after = 0;
            expect_cqe(b, 0, 1, 0);
            expect_cqe(b, 0, 2, 0);
        }
        bench_free(b);
    }
    for (unsigned syndrome = 0x20; syndrome < 256; syndrome++) {
        Bench *b = connected(&usual);
        Tap t = { .lose_after = 1 };
        BenchPacket p = {
            .opcode = IB_OP_READ_RESP_ONLY, .psn = 0x100,
            .syndrome = syndrome, .payload = 64,
        };

        set_tap(b, 0, &t, 0);
        bench_send(b, 0, 1, EHCA_WQE_OPTYPE_RDMA_READ, 0, 0, 64, 0);
        bench_run(b, 10 * IB_USEC);
        inject(b, 0, &p);
        bench_run(b, 10 * IB_USEC);
        expect_no_cqe(b, 0);
        g_assert_cmphex(b->mrs[0]->bytes[0], !=, 0xA5);
        t.lose_after = 0;
        expect_cqe(b, 0, 1, 0);
        bench_free(b);
    }
}

/*
 * The same NAK twenty times at once is one NAK: the flight is sent again once,
 * and the retries are not used up.  So for RNR NAKs, and there it is a packet.
 */
static void test_nak_storm(void)
{
    static const struct { uint8_t syndrome; unsigned again; } naks[] = {
        { 0x60, 49 }, { 0x21, 1 },
    };

    for (unsigned i = 0; i < G_N_ELEMENTS(naks); i++) {
        Knobs k = usual;
        Tap t = { .lose_after = 1 };
        Bench *b;

        k.retry = 2;
        k.rnr_retry = 2;
        b = connected(&k);
        set_tap(b, 0, &t, 0);
        bench_send(b, 0, 1, EHCA_WQE_OPTYPE_RDMA_WRITE, 0, 0, 100000, 0);
        bench_run(b, 10 * IB_USEC);
        g_assert_cmpuint(t.seen, ==, 49);
        for (unsigned n = 0; n < 20; n++) {
            BenchPacket p = ack(0x100, naks[i].syndrome);

            inject(b, 0, &p);
        }
        bench_run(b, 50 * IB_USEC);
        g_assert_cmpuint(t.seen, ==, 49 + naks[i].again);
        g_assert_cmpuint(host_qp_state(b->qps[0]), ==, EHCA_QPS_RTS);
        t.lose_after = 0;
        expect_cqe(b, 0, 1, 0);
        bench_free(b);
    }
}

/* One NAK after each flight: so many flights as there are retries, no more. */
static void test_nak_amplification(void)
{
    Knobs k = usual;
    Tap t = { .lose_after = 1 };
    uint64_t flight;
    Bench *b;

    k.retry = 7;
    b = connected(&k);
    set_tap(b, 0, &t, 0);
    bench_send(b, 0, 1, EHCA_WQE_OPTYPE_RDMA_WRITE, 0, 0, 100000, 0);
    bench_run(b, 10 * IB_USEC);
    flight = t.bytes[0];
    for (unsigned i = 0; i < 1000; i++) {
        BenchPacket p = ack(0x100, 0x60);

        inject(b, 0, &p);
        bench_run(b, 10 * IB_USEC);
    }
    g_assert_cmpuint(t.bytes[0], ==, 8 * flight);
    expect_cqe(b, 0, 1, 0x80000008);
    bench_free(b);
}

/* While there is no receive WQE it is asked for by one packet, not by all. */
static void test_rnr_amplification(void)
{
    Bench *b = connected(&usual);
    Tap t = { 0 };

    set_tap(b, 0, &t, 0);
    bench_fill(b, 0, 0, 100000, 1);
    bench_send(b, 0, 1, EHCA_WQE_OPTYPE_SEND, 0, 0, 100000, 0);
    bench_run(b, IB_MSEC);
    /* 49 packets at first, then one each 10 us. */
    g_assert_cmpuint(t.seen, >, 49 + 50);
    g_assert_cmpuint(t.seen, <=, 49 + 100);
    bench_recv(b, 1, 9, 0, 100000);
    expect_cqe(b, 1, 9, 0);
    expect_cqe(b, 0, 1, 0);
    g_assert_true(bench_same(b, 0, 0, 100000));
    bench_free(b);
}

/* Requests before, at and behind the expected PSN, over and over. */
static void test_request_storm(void)
{
    Bench *b = connected(&usual);
    Tap t = { 0 };
    uint64_t in = 0;

    set_tap(b, 0, &t, 1);
    for (unsigned i = 0; i < 3000; i++) {
        BenchPacket p = {
            .opcode = i % 3 ? IB_OP_WRITE_ONLY : IB_OP_READ_REQUEST,
            .psn = (0x100 + i % 7 * 0x1000 - 0x3000) & 0xFFFFFF,
            .payload = i % 3 ? 64 : 0, .va = b->mrs[1]->iova,
            .rkey = b->mrs[1]->rkey, .dmalen = 64,
        };
        uint8_t raw[IB_PACKET_MAX];

        in += bench_packet(raw, &p);
        inject(b, 1, &p);
        if (i % 16 == 15) {
            bench_run(b, 10 * IB_USEC);
        }
    }
    bench_run(b, 10 * IB_MSEC);
    g_assert_cmpuint(t.bytes[1], <, in);
    g_assert_cmpuint(host_qp_state(b->qps[1]), ==, EHCA_QPS_RTS);
    bench_free(b);
}

/* More READs than was agreed, and longer ones than PSNs allow. */
static void test_too_much_asked(void)
{
    Knobs k = usual;
    uint64_t iova;
    uint32_t key;
    BenchPacket p = { .opcode = IB_OP_READ_REQUEST, .psn = 0x100 };
    Bench *b;

    /* 2 GiB at MTU 256 would be half the circle. */
    k.mtu = EHCA_MTU_256;
    b = connected(&k);
    huge_mr(b, 1, &iova, &key);
    p.va = iova;
    p.rkey = key;
    p.dmalen = 1u << 31;
    inject(b, 1, &p);
    bench_run(b, 10 * IB_USEC);
    g_assert_cmpuint(host_qp_state(b->qps[1]), ==, EHCA_QPS_ERR);
    g_assert_cmpuint(bench_eqes(b, 1, EHCA_EQE_QP_ERR), ==, 1);
    bench_free(b);

    /* Agreed on none: the first is one too many. */
    k.resp_res = 0;
    b = connected(&k);
    p.va = b->mrs[1]->iova;
    p.rkey = b->mrs[1]->rkey;
    p.dmalen = 8;
    inject(b, 1, &p);
    bench_run(b, 10 * IB_USEC);
    g_assert_cmpuint(host_qp_state(b->qps[1]), ==, EHCA_QPS_ERR);
    bench_free(b);

    /* The requester asks for no more than it may: two at a time. */
    b = connected(&usual);
    for (unsigned i = 0; i < 20; i++) {
        bench_send(b, 0, i, EHCA_WQE_OPTYPE_RDMA_READ, 0, 0, 10000, 0);
    }
    for (unsigned i = 0; i < 20; i++) {
        expect_cqe(b, 0, i, 0);
    }
    bench_free(b);

    /* May ask for none: its own fault, told at once. */
    k = usual;
    k.init_depth = 0;
    b = connected(&k);
    bench_send(b, 0, 1, EHCA_WQE_OPTYPE_RDMA_READ, 0, 0, 8, 0);
    expect_cqe(b, 0, 1, 0x80000002);
    bench_free(b);
}

/* ------------------------------------------------------------------ */
/* Requests and answers that do not belong where they come            */
/* ------------------------------------------------------------------ */

#define MTU 2048u

/* Flags of a step. */
enum { BAD_KEY = 1, FREED = 2, ODD = 4 };

typedef struct Step {
    uint8_t opcode;                    /* IB_OP_* + 1; 0: no more */
    uint16_t payload;
    uint32_t dmalen;
    uint8_t flags;
} Step;

#define OP(name, payload) { IB_OP_##name + 1, payload, 0, 0 }
#define TO(name, payload, dmalen, flags) \
    { IB_OP_##name + 1, payload, dmalen, flags }

typedef struct BadRequest {
    Step steps[4];
    uint8_t nak;                       /* RC answers so */
    uint32_t status;                   /* RC: of the receive WQE, 0: no CQE */
    bool uc_error;                     /* UC: the QP goes to ERR as well */
} BadRequest;

enum { INVALID = IB_NAK_INVALID_REQUEST, ACCESS = IB_NAK_REMOTE_ACCESS };

static const BadRequest bad_requests[] = {
    { { OP(SEND_MIDDLE, MTU) }, INVALID, 0, false },
    { { OP(SEND_LAST, 8) }, INVALID, 0, false },
    { { OP(SEND_FIRST, MTU), OP(SEND_FIRST, MTU) },
      INVALID, 0x80000002, false },
    { { OP(SEND_FIRST, MTU), OP(SEND_ONLY, 8) }, INVALID, 0x80000002, false },
    { { OP(SEND_FIRST, MTU), OP(WRITE_MIDDLE, MTU) },
      INVALID, 0x80000002, true },
    { { OP(SEND_FIRST, MTU), TO(READ_REQUEST, 0, 8, 0) },
      INVALID, 0x80000002, false },
    { { OP(SEND_FIRST, MTU), OP(SEND_LAST, 0) }, INVALID, 0x80000002, true },
    { { OP(SEND_FIRST, MTU), OP(SEND_MIDDLE, MTU - 4) },
      INVALID, 0x80000002, true },
    { { OP(SEND_FIRST, MTU), OP(SEND_LAST, MTU + 4) },
      INVALID, 0x80000002, true },
    { { OP(SEND_FIRST, MTU - 4) }, INVALID, 0, false },
    { { OP(SEND_ONLY, MTU + 4) }, INVALID, 0, false },
    { { OP(WRITE_MIDDLE, MTU) }, INVALID, 0, false },
    { { OP(WRITE_LAST_IMM, 8) }, INVALID, 0, false },
    { { TO(WRITE_FIRST, MTU, MTU, 0) }, INVALID, 0, false },
    { { TO(WRITE_FIRST, MTU, (1u << 31) + 1, 0) }, INVALID, 0, false },
    { { TO(WRITE_ONLY, 8, 12, 0) }, INVALID, 0, false },
    { { TO(WRITE_ONLY, 8, 4, 0) }, INVALID, 0, false },
    { { TO(WRITE_ONLY, 8, 0, 0) }, INVALID, 0, false },
    { { TO(WRITE_FIRST, MTU, 2 * MTU, 0), OP(WRITE_LAST, 8) },
      INVALID, 0, false },
    { { TO(WRITE_FIRST, MTU, MTU + 8, 0), OP(WRITE_LAST, 12) },
      INVALID, 0, false },
    { { TO(WRITE_FIRST, MTU, 2 * MTU, 0), OP(WRITE_MIDDLE, MTU) },
      INVALID, 0, false },
    { { TO(WRITE_FIRST, MTU, 2 * MTU, 0), OP(SEND_MIDDLE, MTU) },
      INVALID, 0, false },
    { { TO(WRITE_ONLY, 8, 8, BAD_KEY) }, ACCESS, 0, false },
    { { TO(WRITE_FIRST, MTU, 1 << 30, 0) }, ACCESS, 0, false },
    { { TO(WRITE_FIRST, MTU, MTU + 8, 0), TO(WRITE_LAST, 8, 0, FREED) },
      ACCESS, 0, false },
    { { TO(WRITE_FIRST, MTU, MTU + 8, 0), TO(WRITE_LAST_IMM, 8, 0, FREED) },
      ACCESS, 0x80000002, true },
    { { TO(READ_REQUEST, 0, 8, BAD_KEY) }, ACCESS, 0, false },
    { { TO(READ_REQUEST, 0, 1 << 30, 0) }, ACCESS, 0, false },
    { { TO(FETCH_ADD, 0, 0, BAD_KEY) }, ACCESS, 0, false },
    { { TO(COMPARE_SWAP, 0, 0, ODD) }, INVALID, 0, false },
};

static void check_bad_request(const BadRequest *r, unsigned service)
{
    Knobs k = usual;
    Tap t = { 0 };
    Bench *b;
    HostMr *mr;
    HostCqe cqe;
    bool uc = service == EHCA_SERVICE_UC;

    k.service = service;
    b = connected(&k);
    mr = host_mr_new(b->pair->hosts[1], 65536, BENCH_ALL_ACCESS);
    set_tap(b, 0, &t, 1);
    bench_recv(b, 1, 9, 0, 65536);
    for (unsigned i = 0; i < 4 && r->steps[i].opcode; i++) {
        const Step *s = &r->steps[i];
        BenchPacket p = {
            .opcode = (s->opcode - 1) | (uc ? IB_TRANSPORT_UC
                                            : IB_TRANSPORT_RC),
            .psn = 0x100 + i, .payload = s->payload, .dmalen = s->dmalen,
            .va = mr->iova + !!(s->flags & ODD),
            .rkey = mr->rkey ^ !!(s->flags & BAD_KEY),
        };

        if (s->flags & FREED) {
            uint64_t in[9] = { b->pair->hosts[1]->config.handle, mr->handle };
            uint64_t out[9];

            must(host_hcall(b->pair->hosts[1], EHCA_H_FREE_RESOURCE, in,
                            out));
        }
        inject(b, 1, &p);
        bench_run(b, 10 * IB_USEC);
    }
    g_assert_cmpuint(host_qp_state(b->qps[1]), ==,
                     uc && !r->uc_error ? EHCA_QPS_RTS : EHCA_QPS_ERR);
    if (uc ? r->uc_error : r->status != 0) {
        expect_cqe(b, 1, 9, r->status);
        g_assert_cmpuint(bench_eqes(b, 1, EHCA_EQE_QP_ERR), ==, 0);
    } else if (!uc) {
        expect_no_cqe(b, 1);
        g_assert_cmpuint(bench_eqes(b, 1, EHCA_EQE_QP_ERR), ==, 1);
    }
    /* One NAK; UC says nothing. */
    bench_run(b, IB_SEC);
    g_assert_cmpuint(t.naks, ==, !uc);
    if (!uc) {
        g_assert_cmphex(t.nak, ==, IB_AETH_NAK | r->nak);
    } else if (!r->uc_error) {
        /* Whatever it was, the next message is a new one. */
        BenchPacket p = { .opcode = IB_TRANSPORT_UC | IB_OP_SEND_ONLY,
                          .psn = 0x500, .payload = 12 };

        while (bench_cqe(b, 1, &cqe, 0)) {
            bench_recv(b, 1, 9, 0, 100);
        }
        inject(b, 1, &p);
        expect_cqe(b, 1, 9, 0);
    }
    bench_free(b);
}

static void test_bad_requests(void)
{
    for (unsigned i = 0; i < G_N_ELEMENTS(bad_requests); i++) {
        unsigned last = 0;

        while (last < 3 && bad_requests[i].steps[last + 1].opcode) {
            last++;
        }
        g_test_message("request %u", i);
        check_bad_request(&bad_requests[i], EHCA_SERVICE_RC);
        if (bad_requests[i].steps[last].opcode - 1 <= IB_OP_WRITE_ONLY_IMM) {
            check_bad_request(&bad_requests[i], EHCA_SERVICE_UC);
        }
    }
}

/* Answers to READs and atomics that do not fit what was asked. */
static void test_bad_answers(void)
{
    static const struct { uint8_t optype, opcode; uint16_t payload;
                          uint32_t len; } bad[] = {
        { EHCA_WQE_OPTYPE_RDMA_READ, IB_OP_READ_RESP_ONLY, 63, 64 },
        { EHCA_WQE_OPTYPE_RDMA_READ, IB_OP_READ_RESP_ONLY, 65, 64 },
        { EHCA_WQE_OPTYPE_RDMA_READ, IB_OP_READ_RESP_ONLY, 0, 64 },
        { EHCA_WQE_OPTYPE_RDMA_READ, IB_OP_READ_RESP_FIRST, MTU, 64 },
        { EHCA_WQE_OPTYPE_RDMA_READ, IB_OP_READ_RESP_MIDDLE, MTU, MTU },
        { EHCA_WQE_OPTYPE_RDMA_READ, IB_OP_READ_RESP_LAST, 64, 3 * MTU },
        { EHCA_WQE_OPTYPE_RDMA_READ, IB_OP_READ_RESP_FIRST, 64, 3 * MTU },
        { EHCA_WQE_OPTYPE_RDMA_READ, IB_OP_READ_RESP_FIRST, MTU + 4,
          3 * MTU },
        { EHCA_WQE_OPTYPE_RDMA_READ, IB_OP_ATOMIC_ACK, 0, 64 },
        { EHCA_WQE_OPTYPE_FETCH_ADD, IB_OP_READ_RESP_ONLY, 8, 8 },
        { EHCA_WQE_OPTYPE_FETCH_ADD, IB_OP_READ_RESP_FIRST, MTU, 8 },
    };

    for (unsigned i = 0; i < G_N_ELEMENTS(bad); i++) {
        Bench *b = connected(&usual);
        Tap t = { .lose_after = 1 };
        BenchPacket p = { .opcode = bad[i].opcode, .psn = 0x100,
                          .payload = bad[i].payload, .syndrome = 0x1F };

        g_test_message("answer %u", i);
        set_tap(b, 0, &t, 0);
        memset(b->mrs[0]->bytes, 0, 4 * MTU);
        bench_send(b, 0, 1, bad[i].optype, 0, 0, bad[i].len, 0);
        bench_send(b, 0, 2, EHCA_WQE_OPTYPE_RDMA_WRITE, 0, 0, 8, 0);
        bench_run(b, 10 * IB_USEC);
        inject(b, 0, &p);
        expect_cqe(b, 0, 1, 0x8000000D);
        g_assert_cmpuint(host_qp_state(b->qps[0]), ==, EHCA_QPS_ERR);
        for (unsigned n = 0; n < 4 * MTU; n++) {
            g_assert_cmphex(b->mrs[0]->bytes[n], ==, 0);
        }
        bench_free(b);
    }
}

/* The region that an answer goes to is gone meanwhile: a local error. */
static void test_answer_to_nowhere(void)
{
    static const uint8_t ops[] = { EHCA_WQE_OPTYPE_RDMA_READ,
                                   EHCA_WQE_OPTYPE_FETCH_ADD };

    for (unsigned i = 0; i < G_N_ELEMENTS(ops); i++) {
        Bench *b = connected(&usual);
        Host *host = b->pair->hosts[0];
        uint64_t in[9] = { host->config.handle, b->mrs[0]->handle }, out[9];

        bench_send(b, 0, 1, ops[i], 0, 0, 8, 0);
        host_run(host);
        must(host_hcall(host, EHCA_H_FREE_RESOURCE, in, out));
        expect_cqe(b, 0, 1, 0x80000004);
        g_assert_cmpuint(host_qp_state(b->qps[0]), ==, EHCA_QPS_ERR);
        bench_free(b);
    }
}

/* Bare VL 15, wild headers, no path: nothing gets through to a QP. */
static void test_wild_headers(void)
{
    static const struct { unsigned at; uint8_t value; } wild[] = {
        { 0, 0xF0 },                   /* VL 15 for a QP other than 0 */
        { 0, 0x01 },                   /* LVer */
        { 1, 0x00 }, { 1, 0x01 }, { 1, 0x03 },  /* LNH: raw, IP, GRH */
        { 2, 0xFF }, { 2, 0xC0 }, { 3, 0x00 }, { 3, 0x77 },   /* DLID */
        { 4, 0x07 }, { 5, 0x00 }, { 5, 0x01 },  /* length */
        { 6, 0xC0 }, { 7, 0x00 }, { 7, 0x99 },  /* SLID */
        { 8, 0x1F }, { 8, 0x2A }, { 8, 0x4A }, { 8, 0x6A }, { 8, 0xEA },
        { 9, 0x41 }, { 9, 0x4F },      /* transport version */
        { 10, 0x00 }, { 11, 0x00 }, { 10, 0x80 },   /* P_Key */
        { 13, 0x02 }, { 14, 0x01 }, { 15, 0x01 },   /* QP number */
    };

    for (unsigned i = 0; i < G_N_ELEMENTS(wild); i++) {
        Bench *b = connected(&usual);
        uint8_t raw[IB_PACKET_MAX];
        BenchPacket p = {
            .slid = host_pair_lid(0, 1), .dlid = host_pair_lid(1, 1),
            .qpn = b->qps[1]->qpn, .migreq = true, .psn = 0x100,
            .opcode = IB_OP_WRITE_ONLY, .payload = 64,
            .va = b->mrs[1]->iova, .rkey = b->mrs[1]->rkey, .dmalen = 64,
        };
        size_t len = bench_packet(raw, &p);

        g_test_message("byte %u: 0x%02x", wild[i].at, wild[i].value);
        raw[wild[i].at] = wild[i].value;
        host_packet_seal(raw, len);
        host_cable_inject(b->pair->cables[0], 1, raw, len);
        bench_run(b, 10 * IB_USEC);
        g_assert_cmphex(b->mrs[1]->bytes[0], ==, 0);
        g_assert_cmphex(host_qp_field(b->qps[1], EHCA_QPCB_RECEIVE_PSN), ==,
                        0x100);
        g_assert_cmpuint(host_qp_state(b->qps[1]), ==, EHCA_QPS_RTS);
        /* And with the right bytes but a wrong ICRC. */
        len = bench_packet(raw, &p);
        raw[len - 1] ^= 1;
        host_cable_inject(b->pair->cables[0], 1, raw, len);
        bench_run(b, 10 * IB_USEC);
        g_assert_cmphex(b->mrs[1]->bytes[0], ==, 0);
        raw[len - 1] ^= 1;
        host_cable_inject(b->pair->cables[0], 1, raw, len);
        bench_run(b, 10 * IB_USEC);
        g_assert_cmphex(b->mrs[1]->bytes[0], ==, 0xA5);
        bench_free(b);
    }
}

/* A peer that changes its mind with each packet moves a QP once at most. */
static void test_migreq_flapping(void)
{
    Knobs k = usual;
    uint8_t raw[IB_PACKET_MAX];
    Bench *b;

    k.apm = true;
    b = connected(&k);
    bench_ping(b, 0);
    bench_ping(b, 1);
    for (unsigned i = 0; i < 500; i++) {
        unsigned rail = i >> 1 & 1;
        BenchPacket p = {
            .slid = host_pair_lid(0, rail + 1),
            .dlid = host_pair_lid(1, rail + 1), .qpn = b->qps[1]->qpn,
            .opcode = IB_OP_ACK, .psn = i, .syndrome = 0x1F,
            .migreq = i & 1,
        };

        host_cable_inject(b->pair->cables[rail], 1, raw,
                          bench_packet(raw, &p));
        bench_run(b, IB_USEC);
    }
    g_assert_cmpuint(bench_eqes(b, 1, EHCA_EQE_PATH_MIG), ==, 1);
    g_assert_cmpuint(bench_eqes(b, 1, EHCA_EQE_PATH_MIG_FAILED), <=, 1);
    g_assert_cmpuint(host_qp_mig(b->qps[1]), ==, EHCA_MIG_MIGRATED);
    g_assert_cmpuint(host_qp_state(b->qps[1]), ==, EHCA_QPS_RTS);
    bench_free(b);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/engine/wire/rnr-timers", test_rnr_timers);
    g_test_add_func("/engine/wire/ack-timeouts", test_ack_timeouts);
    g_test_add_func("/engine/wire/no-timeout", test_no_timeout);
    g_test_add_func("/engine/wire/mtus", test_mtus);
    g_test_add_func("/engine/wire/longest", test_longest);
    g_test_add_func("/engine/wire/around", test_around);
    g_test_add_func("/engine/wire/fence", test_fence);
    g_test_add_func("/engine/wire/wrap-and-migrate", test_wrap_and_migrate);
    g_test_add_func("/engine/wire/duplicates-across-migration",
                    test_duplicates_across_migration);
    g_test_add_func("/engine/wire/ghost-acks", test_ghost_acks);
    g_test_add_func("/engine/wire/reserved-syndromes",
                    test_reserved_syndromes);
    g_test_add_func("/engine/wire/nak-storm", test_nak_storm);
    g_test_add_func("/engine/wire/nak-amplification",
                    test_nak_amplification);
    g_test_add_func("/engine/wire/rnr-amplification",
                    test_rnr_amplification);
    g_test_add_func("/engine/wire/request-storm", test_request_storm);
    g_test_add_func("/engine/wire/too-much-asked", test_too_much_asked);
    g_test_add_func("/engine/wire/bad-requests", test_bad_requests);
    g_test_add_func("/engine/wire/bad-answers", test_bad_answers);
    g_test_add_func("/engine/wire/answer-to-nowhere",
                    test_answer_to_nowhere);
    g_test_add_func("/engine/wire/wild-headers", test_wild_headers);
    g_test_add_func("/engine/wire/migreq-flapping", test_migreq_flapping);
    return g_test_run();
}
