/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Reliable and unreliable connections: operations, segmentation, losses,
 * retries, RNR, errors, the CQEs they end in, and the queues' odd corners.
 */
#include "engine_bench.h"

#define MTU 4096u

/* What a cable does to the packets of one end. */
typedef struct Fault {
    unsigned end;
    unsigned seen;
    unsigned drop_one_in;              /* at random; 0: none */
    uint32_t random;
    unsigned drop_first;               /* so many from the start */
    uint8_t only_op;                   /* 0: all; else IB_OP_* + 1 */
    unsigned duplicate;                /* times to send again */
    HostCable *cable;
    unsigned acks, naks, rnrs, requests;
} Fault;

static bool faulty(void *opaque, unsigned end, uint8_t *p, size_t *len)
{
    Fault *f = opaque;
    unsigned op = p[8] & IB_OP_MASK;

    if ((p[1] & 3) != IB_LNH_LOCAL || p[0] >> 4 == 15) {
        return true;
    }
    if (op == IB_OP_ACK) {
        unsigned syndrome = p[20];

        f->acks += (syndrome & 0x60) == 0;
        f->rnrs += (syndrome & 0x60) == 0x20;
        f->naks += (syndrome & 0x60) == 0x60;
    } else {
        f->requests++;
    }
    if (end != f->end || (f->only_op && op != f->only_op - 1u)) {
        return true;
    }
    f->seen++;
    if (f->seen <= f->drop_first) {
        return false;
    }
    /* Not each n-th: that could hit the same PSN in every retry. */
    f->random = f->random * 1664525 + 1013904223;
    if (f->drop_one_in && (f->random >> 8) % f->drop_one_in == 0) {
        return false;
    }
    for (unsigned i = 0; i < f->duplicate; i++) {
        host_cable_inject(f->cable, !end, p, *len);
    }
    return true;
}

static void set_fault(Bench *b, Fault *f)
{
    f->cable = b->pair->cables[0];
    f->cable->filter = faulty;
    f->cable->filter_opaque = f;
}

static void expect_cqe(Bench *b, unsigned h, uint64_t wr_id, uint32_t status)
{
    HostCqe cqe;

    g_assert_true(bench_cqe(b, h, &cqe, 120 * IB_SEC));
    if (cqe.status != status) {
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
/* Operations                                                         */
/* ------------------------------------------------------------------ */

static const uint32_t lengths[] = {
    0, 1, 2, 3, 4, 5, 63, 255, 256, 257, MTU - 1, MTU, MTU + 1, 2 * MTU,
    2 * MTU + 3, 10000, 65536, 100001,
};

static void do_sends(unsigned service)
{
    for (size_t i = 0; i < G_N_ELEMENTS(lengths); i++) {
        Bench *b = bench_new(service, false);
        uint32_t len = lengths[i];
        HostCqe cqe;

        bench_fill(b, 0, 0, len, i);
        bench_recv(b, 1, 7, 1000, len + 10);
        bench_send(b, 0, 8, EHCA_WQE_OPTYPE_SEND,
                   EHCA_WQE_FLAG_IMM | EHCA_WQE_FLAG_SOLICITED, 0, len, 0);
        g_assert_true(bench_cqe(b, 1, &cqe, BENCH_SECOND));
        g_assert_cmphex(cqe.status, ==, 0);
        g_assert_cmpuint(cqe.wr_id, ==, 7);
        g_assert_cmpuint(cqe.bytes, ==, len);
        g_assert_cmphex(cqe.imm, ==, 0xCAFE0008);
        g_assert_cmphex(cqe.optype, ==, EHCA_CQE_OPTYPE_RECV);
        g_assert_cmphex(cqe.flags, ==, EHCA_CQE_FLAG_RECV |
                        EHCA_CQE_FLAG_IMM | EHCA_CQE_FLAG_SOLICITED);
        g_assert_cmpuint(cqe.token, ==, b->qps[1]->token);
        g_assert_cmpuint(cqe.local_qpn, ==, b->qps[1]->qpn);
        g_assert_cmpuint(cqe.remote_qpn, ==, b->qps[0]->qpn);
        g_assert_cmpuint(cqe.rlid, ==, host_pair_lid(0, 1));
        g_assert_true(bench_cqe(b, 0, &cqe, BENCH_SECOND));
        g_assert_cmphex(cqe.status, ==, 0);
        g_assert_cmpuint(cqe.wr_id, ==, 8);
        g_assert_cmpuint(cqe.bytes, ==, len);
        g_assert_cmphex(cqe.optype, ==, EHCA_CQE_OPTYPE_SEND);
        g_assert_cmphex(cqe.flags & EHCA_CQE_FLAG_RECV, ==, 0);
        g_assert_true(bench_same(b, 0, 1000, len));
        bench_free(b);
    }
}

static void test_send(void)
{
    do_sends(EHCA_SERVICE_RC);
}

static void test_uc_send(void)
{
    do_sends(EHCA_SERVICE_UC);
}

static void test_write_read(void)
{
    for (size_t i = 0; i < G_N_ELEMENTS(lengths); i++) {
        Bench *b = bench_new(EHCA_SERVICE_RC, false);
        uint32_t len = lengths[i];
        HostCqe cqe;

        bench_fill(b, 0, 0, len, i);
        bench_send(b, 0, 1, EHCA_WQE_OPTYPE_RDMA_WRITE, 0, 0, len, 777);
        expect_cqe(b, 0, 1, 0);
        g_assert_true(bench_same(b, 0, 777, len));
        memset(b->mrs[0]->bytes, 0, len);
        bench_send(b, 0, 2, EHCA_WQE_OPTYPE_RDMA_READ, 0, 0, len, 777);
        g_assert_true(bench_cqe(b, 0, &cqe, BENCH_SECOND));
        g_assert_cmphex(cqe.status, ==, 0);
        g_assert_cmpuint(cqe.bytes, ==, len);
        g_assert_cmphex(cqe.optype, ==, EHCA_CQE_OPTYPE_RDMA_READ);
        g_assert_true(bench_same(b, 0, 777, len));
        expect_no_cqe(b, 1);
        /* With immediate data it takes a receive WQE. */
        bench_recv(b, 1, 5, 0, 0);
        bench_send(b, 0, 3, EHCA_WQE_OPTYPE_RDMA_WRITE, EHCA_WQE_FLAG_IMM, 0,
                   len, 50000);
        g_assert_true(bench_cqe(b, 1, &cqe, BENCH_SECOND));
        g_assert_cmphex(cqe.optype, ==, EHCA_CQE_OPTYPE_RECV_RDMA_IMM);
        g_assert_cmpuint(cqe.bytes, ==, len);
        g_assert_cmphex(cqe.imm, ==, 0xCAFE0003);
        g_assert_true(bench_same(b, 0, 50000, len));
        bench_free(b);
    }
}

static void test_atomics(void)
{
    Bench *b = bench_new(EHCA_SERVICE_RC, false);
    HostMr *remote = b->mrs[1];
    HostSendWr wr = {
        .flags = EHCA_WQE_FLAG_SIGNALED, .num_sges = 1,
        .sges = { host_sge(b->mrs[0], 0, 8) },
        .raddr = remote->iova + 64, .rkey = remote->rkey,
    };
    HostCqe cqe;

    ib_put64(remote->bytes + 64, 10);
    wr.optype = EHCA_WQE_OPTYPE_FETCH_ADD;
    wr.operand[0] = 32;
    host_post_send(b->qps[0], &wr);
    host_ring(b->qps[0]);
    g_assert_true(bench_cqe(b, 0, &cqe, BENCH_SECOND));
    g_assert_cmphex(cqe.status, ==, 0);
    g_assert_cmphex(cqe.optype, ==, EHCA_CQE_OPTYPE_FETCH_ADD);
    g_assert_cmpuint(ib_get64(b->mrs[0]->bytes), ==, 10);
    g_assert_cmpuint(ib_get64(remote->bytes + 64), ==, 42);
    /* Swap only what compares. */
    wr.optype = EHCA_WQE_OPTYPE_CMP_SWAP;
    wr.operand[0] = 7;
    wr.operand[1] = 41;
    host_post_send(b->qps[0], &wr);
    host_ring(b->qps[0]);
    g_assert_true(bench_cqe(b, 0, &cqe, BENCH_SECOND));
    g_assert_cmpuint(ib_get64(remote->bytes + 64), ==, 42);
    wr.operand[1] = 42;
    host_post_send(b->qps[0], &wr);
    host_ring(b->qps[0]);
    g_assert_true(bench_cqe(b, 0, &cqe, BENCH_SECOND));
    g_assert_cmpuint(ib_get64(b->mrs[0]->bytes), ==, 42);
    g_assert_cmpuint(ib_get64(remote->bytes + 64), ==, 7);
    /* Not aligned: invalid request. */
    wr.raddr++;
    host_post_send(b->qps[0], &wr);
    host_ring(b->qps[0]);
    g_assert_true(bench_cqe(b, 0, &cqe, BENCH_SECOND));
    g_assert_cmphex(cqe.status, ==, 0x80000807);
    bench_free(b);
}

/* Several SG entries, some empty, gathered and scattered over pages. */
static void test_sg_lists(void)
{
    Bench *b = bench_new(EHCA_SERVICE_RC, false);
    HostSendWr wr = {
        .wr_id = 1, .optype = EHCA_WQE_OPTYPE_SEND,
        .flags = EHCA_WQE_FLAG_SIGNALED, .num_sges = 4,
        .sges = {
            host_sge(b->mrs[0], 100, 5000), { 0, 0, 0 },
            host_sge(b->mrs[0], 9000, 1), host_sge(b->mrs[0], 20000, 7777),
        },
    };
    HostRecvWr rr = {
        .wr_id = 2, .num_sges = 3,
        .sges = {
            host_sge(b->mrs[1], 3, 4095), host_sge(b->mrs[1], 8000, 8000),
            host_sge(b->mrs[1], 30000, 700),
        },
    };
    uint8_t sent[12778], got[12778];

    bench_fill(b, 0, 0, 40000, 3);
    memcpy(sent, b->mrs[0]->bytes + 100, 5000);
    memcpy(sent + 5000, b->mrs[0]->bytes + 9000, 1);
    memcpy(sent + 5001, b->mrs[0]->bytes + 20000, 7777);
    host_post_recv(b->qps[1], &rr);
    host_ring(b->qps[1]);
    host_post_send(b->qps[0], &wr);
    host_ring(b->qps[0]);
    expect_cqe(b, 1, 2, 0);
    expect_cqe(b, 0, 1, 0);
    memcpy(got, b->mrs[1]->bytes + 3, 4095);
    memcpy(got + 4095, b->mrs[1]->bytes + 8000, 8000);
    memcpy(got + 12095, b->mrs[1]->bytes + 30000, 683);
    g_assert_cmpmem(sent, sizeof(sent), got, sizeof(got));
    bench_free(b);
}

/* The driver's internal READ: no entries, address and key 0 (15.7). */
static void test_empty_read(void)
{
    Bench *b = bench_new(EHCA_SERVICE_RC, false);
    HostSendWr wr = { .wr_id = 1, .optype = EHCA_WQE_OPTYPE_RDMA_READ };

    host_post_send(b->qps[0], &wr);
    host_ring(b->qps[0]);
    bench_run(b, IB_MSEC);
    expect_no_cqe(b, 0);
    g_assert_cmpuint(host_qp_state(b->qps[0]), ==, EHCA_QPS_RTS);
    bench_ping(b, 0);
    bench_free(b);
}

/* Unsignalled successes leave no CQE; order is kept. */
static void test_unsignalled(void)
{
    Bench *b = bench_new(EHCA_SERVICE_RC, false);

    for (unsigned i = 0; i < 200; i++) {
        HostSendWr wr = {
            .wr_id = i, .optype = EHCA_WQE_OPTYPE_RDMA_WRITE,
            .flags = i % 10 == 9 ? EHCA_WQE_FLAG_SIGNALED : 0,
            .raddr = b->mrs[1]->iova, .rkey = b->mrs[1]->rkey,
            .num_sges = 1, .sges = { host_sge(b->mrs[0], 0, 16) },
        };

        host_post_send(b->qps[0], &wr);
        host_ring(b->qps[0]);
        if (i % 10 == 9) {
            expect_cqe(b, 0, i, 0);
        }
    }
    bench_run(b, IB_MSEC);
    expect_no_cqe(b, 0);
    bench_free(b);
}

/* ------------------------------------------------------------------ */
/* Losses                                                             */
/* ------------------------------------------------------------------ */

static void traffic(Bench *b, unsigned rounds)
{
    for (unsigned i = 0; i < rounds; i++) {
        bench_fill(b, 0, 0, 40000, i);
        bench_recv(b, 1, 10 + i, 50000, 40000);
        bench_send(b, 0, 20 + i, EHCA_WQE_OPTYPE_SEND, 0, 0, 40000, 0);
        bench_send(b, 0, 30 + i, EHCA_WQE_OPTYPE_RDMA_READ, 0, 100000, 40000,
                   150000);
        bench_send(b, 0, 40 + i, EHCA_WQE_OPTYPE_RDMA_WRITE, 0, 0, 40000,
                   100000);
        bench_fill(b, 1, 150000, 40000, 77 + i);
        expect_cqe(b, 1, 10 + i, 0);
        expect_cqe(b, 0, 20 + i, 0);
        expect_cqe(b, 0, 30 + i, 0);
        expect_cqe(b, 0, 40 + i, 0);
        g_assert_true(bench_same(b, 0, 50000, 40000));
        g_assert_true(bench_same(b, 0, 100000, 40000));
        g_assert_true(bench_same(b, 100000, 150000, 40000));
        expect_no_cqe(b, 0);
        expect_no_cqe(b, 1);
    }
}

/* The bench's QPs give up soon; these shall not. */
static void be_patient(Bench *b)
{
    uint8_t block[EHCA_QPCB_SIZE] = { 0 };

    ib_put32(block + EHCA_QPCB_RETRY_COUNT, 7);
    for (unsigned h = 0; h < 2; h++) {
        g_assert_cmpint(host_qp_to(b->qps[h], EHCA_QPS_SQD), ==, 0);
        g_assert_cmpint(host_qp_modify(b->qps[h], EHCA_QPMASK_RETRY_COUNT,
                                       block), ==, 0);
        g_assert_cmpint(host_qp_to(b->qps[h], EHCA_QPS_RTS), ==, 0);
    }
}

static void test_losses(void)
{
    for (unsigned end = 0; end < 2; end++) {
        for (unsigned n = 5; n < 40; n++) {
            Bench *b = bench_new(EHCA_SERVICE_RC, false);
            Fault f = { .end = end, .drop_one_in = n, .random = n };

            be_patient(b);
            set_fault(b, &f);
            traffic(b, 4);
            bench_free(b);
        }
    }
}

static void test_duplicates(void)
{
    for (unsigned end = 0; end < 2; end++) {
        Bench *b = bench_new(EHCA_SERVICE_RC, false);
        Fault f = { .end = end, .duplicate = 2 };

        set_fault(b, &f);
        traffic(b, 5);
        bench_free(b);
    }
}

/* A lost atomic acknowledgement: executed once, answered twice. */
static void test_atomic_once(void)
{
    Bench *b = bench_new(EHCA_SERVICE_RC, false);
    Fault f = { .end = 1, .drop_first = 2, .only_op = IB_OP_ATOMIC_ACK + 1 };
    HostSendWr wr = {
        .wr_id = 1, .optype = EHCA_WQE_OPTYPE_FETCH_ADD,
        .flags = EHCA_WQE_FLAG_SIGNALED, .num_sges = 1,
        .sges = { host_sge(b->mrs[0], 0, 8) }, .operand = { 1 },
        .raddr = b->mrs[1]->iova, .rkey = b->mrs[1]->rkey,
    };

    set_fault(b, &f);
    ib_put64(b->mrs[1]->bytes, 100);
    host_post_send(b->qps[0], &wr);
    host_ring(b->qps[0]);
    expect_cqe(b, 0, 1, 0);
    g_assert_cmpuint(f.seen, ==, 3);
    g_assert_cmpuint(ib_get64(b->mrs[0]->bytes), ==, 100);
    g_assert_cmpuint(ib_get64(b->mrs[1]->bytes), ==, 101);
    bench_free(b);
}

/* One NAK per hole, and fewer acknowledgements than packets. */
static void test_acks_and_naks(void)
{
    Bench *b = bench_new(EHCA_SERVICE_RC, false);
    Fault f = { .end = 0, .drop_first = 1 };

    set_fault(b, &f);
    bench_send(b, 0, 1, EHCA_WQE_OPTYPE_RDMA_WRITE, 0, 0, 200000, 0);
    expect_cqe(b, 0, 1, 0);
    g_assert_cmpuint(f.naks, ==, 1);
    g_assert_cmpuint(f.acks, <, f.requests / 4);
    bench_free(b);
}

/* (retry + 1) timeouts, then one error CQE, no flush CQEs, ERR. */
static void test_timeout(void)
{
    Bench *b = bench_new(EHCA_SERVICE_RC, false);
    int64_t budget = (1 + host_qp_field(b->qps[0], EHCA_QPCB_RETRY_COUNT)) *
        ib_timeout_ns(host_qp_field(b->qps[0], EHCA_QPCB_TIMEOUT));
    Fault f = { .end = 0, .drop_one_in = 1 };
    int64_t start = ib_clock_now(&b->pair->clock), took;
    uint64_t in[9] = { b->pair->hosts[0]->config.handle, EHCA_GETC_ERR,
                       b->qps[0]->handle }, out[9];
    HostCqe cqe;

    set_fault(b, &f);
    for (unsigned i = 0; i < 5; i++) {
        bench_send(b, 0, i, EHCA_WQE_OPTYPE_SEND, 0, 0, 64, 0);
    }
    g_assert_true(bench_cqe(b, 0, &cqe, 600 * IB_SEC));
    took = ib_clock_now(&b->pair->clock) - start;
    g_assert_cmphex(cqe.status, ==, 0x80000008);
    g_assert_cmpuint(cqe.wr_id, ==, 0);
    g_assert_cmphex(cqe.optype, ==, EHCA_CQE_OPTYPE_SEND);
    g_assert_cmpint(took, >=, budget);
    g_assert_cmpint(took, <, budget + IB_MSEC);
    bench_run(b, IB_SEC);
    expect_no_cqe(b, 0);
    g_assert_cmpuint(host_qp_state(b->qps[0]), ==, EHCA_QPS_ERR);
    /* The first WQE that gets no CQE any more is the second one. */
    g_assert_cmpint(host_hcall(b->pair->hosts[0], EHCA_H_DISABLE_AND_GETC, in,
                               out), ==, 0);
    g_assert_cmphex(out[0], ==, b->qps[0]->sq.pages[0] +
                    b->qps[0]->sq.stride);
    g_assert_cmphex(out[1], ==, b->qps[0]->rq.pages[0]);
    bench_free(b);
}

/* No receive WQE: RNR NAKs, then the WQE comes. */
static void test_rnr(void)
{
    Bench *b = bench_new(EHCA_SERVICE_RC, false);
    Fault f = { .end = 2 };

    set_fault(b, &f);
    bench_fill(b, 0, 0, 9000, 1);
    bench_send(b, 0, 1, EHCA_WQE_OPTYPE_SEND, 0, 0, 9000, 0);
    bench_send(b, 0, 2, EHCA_WQE_OPTYPE_RDMA_WRITE, EHCA_WQE_FLAG_IMM, 0,
               9000, 50000);
    bench_run(b, 20 * IB_MSEC);
    expect_no_cqe(b, 0);
    g_assert_cmpuint(f.rnrs, >=, 1);
    bench_recv(b, 1, 3, 0, 9000);
    expect_cqe(b, 1, 3, 0);
    expect_cqe(b, 0, 1, 0);
    bench_run(b, 20 * IB_MSEC);
    expect_no_cqe(b, 0);
    bench_recv(b, 1, 4, 0, 0);
    expect_cqe(b, 1, 4, 0);
    expect_cqe(b, 0, 2, 0);
    g_assert_true(bench_same(b, 0, 0, 9000));
    g_assert_true(bench_same(b, 0, 50000, 9000));
    bench_free(b);
}

/* ------------------------------------------------------------------ */
/* Errors                                                             */
/* ------------------------------------------------------------------ */

static void expect_remote_error(Bench *b, uint32_t status)
{
    expect_cqe(b, 0, 1, status);
    bench_run(b, IB_MSEC);
    g_assert_cmpuint(host_qp_state(b->qps[0]), ==, EHCA_QPS_ERR);
    g_assert_cmpuint(host_qp_state(b->qps[1]), ==, EHCA_QPS_ERR);
}

typedef struct BadRemote {
    uint8_t optype;
    int64_t offset;
    uint32_t key_change, access;
} BadRemote;

static void test_remote_access(void)
{
    const BadRemote bad[] = {
        { EHCA_WQE_OPTYPE_RDMA_WRITE, 0, 1, BENCH_ALL_ACCESS },
        { EHCA_WQE_OPTYPE_RDMA_WRITE, 0, 0x1000, BENCH_ALL_ACCESS },
        { EHCA_WQE_OPTYPE_RDMA_WRITE, -1, 0, BENCH_ALL_ACCESS },
        { EHCA_WQE_OPTYPE_RDMA_WRITE, BENCH_MR_BYTES - 63, 0,
          BENCH_ALL_ACCESS },
        { EHCA_WQE_OPTYPE_RDMA_READ, BENCH_MR_BYTES - 63, 0,
          BENCH_ALL_ACCESS },
        { EHCA_WQE_OPTYPE_RDMA_WRITE, INT64_MAX, 0, BENCH_ALL_ACCESS },
        { EHCA_WQE_OPTYPE_RDMA_WRITE, 0, 0, EHCA_MR_LOCAL_WRITE |
          EHCA_MR_REMOTE_READ },
        { EHCA_WQE_OPTYPE_RDMA_READ, 0, 0, EHCA_MR_LOCAL_WRITE |
          EHCA_MR_REMOTE_WRITE },
        { EHCA_WQE_OPTYPE_FETCH_ADD, 0, 0, EHCA_MR_LOCAL_WRITE |
          EHCA_MR_REMOTE_WRITE | EHCA_MR_REMOTE_READ },
    };

    for (size_t i = 0; i < G_N_ELEMENTS(bad); i++) {
        Bench *b = bench_new(EHCA_SERVICE_RC, false);
        HostMr *mr = host_mr_new(b->pair->hosts[1], BENCH_MR_BYTES,
                                 bad[i].access);
        HostSendWr wr = {
            .wr_id = 1, .optype = bad[i].optype,
            .flags = EHCA_WQE_FLAG_SIGNALED, .num_sges = 1,
            .sges = { host_sge(b->mrs[0], 0, bad[i].optype ==
                               EHCA_WQE_OPTYPE_FETCH_ADD ? 8 : 64) },
            .raddr = mr->iova + bad[i].offset,
            .rkey = mr->rkey + bad[i].key_change,
        };

        memset(mr->bytes, 0x11, BENCH_MR_BYTES);
        bench_fill(b, 0, 0, 64, 1);
        host_post_send(b->qps[0], &wr);
        host_ring(b->qps[0]);
        expect_remote_error(b, 0x80001007);
        /* The responder has no WQE that could tell: an event does. */
        g_assert_cmpuint(bench_eqes(b, 1, EHCA_EQE_QP_ERR), ==, 1);
        g_assert_cmpuint(bench_eqes(b, 0, EHCA_EQE_QP_ERR), ==, 0);
        for (unsigned n = 0; n < BENCH_MR_BYTES; n++) {
            g_assert_cmphex(mr->bytes[n], ==, 0x11);
        }
        bench_free(b);
    }
}

static void test_recv_too_short(void)
{
    Bench *b = bench_new(EHCA_SERVICE_RC, false);

    bench_recv(b, 1, 9, 0, 5000);
    bench_send(b, 0, 1, EHCA_WQE_OPTYPE_SEND, 0, 0, 5001, 0);
    expect_cqe(b, 1, 9, 0x80000001);
    expect_remote_error(b, 0x80000807);
    g_assert_cmpuint(bench_eqes(b, 1, EHCA_EQE_QP_ERR), ==, 0);
    bench_free(b);
}

static void test_recv_bad_key(void)
{
    Bench *b = bench_new(EHCA_SERVICE_RC, false);
    HostRecvWr rr = {
        .wr_id = 9, .num_sges = 1, .sges = { host_sge(b->mrs[1], 0, 100) },
    };

    rr.sges[0].lkey ^= 1;
    host_post_recv(b->qps[1], &rr);
    host_ring(b->qps[1]);
    bench_send(b, 0, 1, EHCA_WQE_OPTYPE_SEND, 0, 0, 64, 0);
    expect_cqe(b, 1, 9, 0x80000004);
    expect_remote_error(b, 0x80001807);
    bench_free(b);
}

static bool no_last(void *opaque, unsigned end, uint8_t *p, size_t *len)
{
    return p[0] >> 4 == 15 || (p[8] & IB_OP_MASK) != IB_OP_SEND_LAST;
}

/*
 * A READ's region goes away while it is answered, and a message is half in:
 * the receive WQE is not to blame and gets no CQE; it stays to be flushed.
 */
static void test_read_fails_under_send(void)
{
    Bench *b = bench_new(EHCA_SERVICE_RC, false);
    Host *left = b->pair->hosts[0], *right = b->pair->hosts[1];
    HostMr *mr = host_mr_new(right, 131072, EHCA_MR_REMOTE_READ);
    HostSendWr read = {
        .wr_id = 1, .optype = EHCA_WQE_OPTYPE_RDMA_READ,
        .flags = EHCA_WQE_FLAG_SIGNALED, .num_sges = 1,
        .sges = { host_sge(b->mrs[0], 0, 65536) },
        .raddr = mr->iova, .rkey = mr->rkey,
    };
    uint64_t in[9] = { right->config.handle, mr->handle }, out[9];

    b->pair->cables[0]->filter = no_last;
    bench_recv(b, 1, 9, 0, 20000);
    host_post_send(b->qps[0], &read);
    host_ring(b->qps[0]);
    bench_send(b, 0, 2, EHCA_WQE_OPTYPE_SEND, 0, 0, 20000, 0);
    host_run(left);
    host_cable_run(b->pair->cables[0]);
    /* A packet in, a few out, until the SEND has begun as well. */
    while (host_qp_field(b->qps[1], EHCA_QPCB_RECEIVE_PSN) < 0x100 + 32 + 2) {
        host_run_budget(right, 2);
    }
    g_assert_cmpint(host_hcall(right, EHCA_H_FREE_RESOURCE, in, out), ==, 0);
    bench_run(b, IB_MSEC);
    expect_no_cqe(b, 1);
    g_assert_cmpuint(host_qp_state(b->qps[1]), ==, EHCA_QPS_ERR);
    g_assert_cmpuint(bench_eqes(b, 1, EHCA_EQE_QP_ERR), ==, 1);
    memcpy(in, (uint64_t[9]) { right->config.handle, EHCA_GETC_ERR,
                               b->qps[1]->handle }, sizeof(in));
    g_assert_cmpint(host_hcall(right, EHCA_H_DISABLE_AND_GETC, in, out), ==,
                    0);
    g_assert_cmphex(out[1], ==, b->qps[1]->rq.pages[0]);
    expect_cqe(b, 0, 1, 0x80001007);
    bench_free(b);
}

typedef struct BadLocal {
    uint8_t optype;
    uint32_t key_change, length;
    uint32_t access;
    uint32_t status;
} BadLocal;

/* A bad WQE fails in its turn, after the good ones before it. */
static void check_local_errors(unsigned service)
{
    const BadLocal bad[] = {
        { EHCA_WQE_OPTYPE_SEND, 1, 64, BENCH_ALL_ACCESS, 0x80000004 },
        { EHCA_WQE_OPTYPE_RDMA_WRITE, 0, BENCH_MR_BYTES + 1,
          BENCH_ALL_ACCESS, 0x80000004 },
        { EHCA_WQE_OPTYPE_RDMA_READ, 0, 64, EHCA_MR_REMOTE_READ,
          0x80000004 },
        { EHCA_WQE_OPTYPE_BIND_MW, 0, 64, BENCH_ALL_ACCESS, 0x80000002 },
        { 0x55, 0, 64, BENCH_ALL_ACCESS, 0x80000002 },
        { EHCA_WQE_OPTYPE_FETCH_ADD, 0, 7, BENCH_ALL_ACCESS, 0x80000001 },
        { EHCA_WQE_OPTYPE_SEND, 0, 0xFFFFFFFF, BENCH_ALL_ACCESS,
          0x80000001 },
    };

    for (size_t i = 0; i < G_N_ELEMENTS(bad); i++) {
        Bench *b = bench_new(service, false);
        HostMr *mr = host_mr_new(b->pair->hosts[0], BENCH_MR_BYTES,
                                 bad[i].access);
        bool answered = bad[i].optype == EHCA_WQE_OPTYPE_RDMA_READ ||
                        bad[i].optype == EHCA_WQE_OPTYPE_FETCH_ADD;
        HostSendWr wr = {
            .wr_id = 5, .optype = bad[i].optype, .num_sges = 1,
            .sges = { host_sge(mr, 0, bad[i].length) },
            .raddr = b->mrs[1]->iova, .rkey = b->mrs[1]->rkey,
        };

        wr.sges[0].lkey += bad[i].key_change;
        bench_recv(b, 1, 50, 0, 64);
        bench_send(b, 0, 1, EHCA_WQE_OPTYPE_SEND, 0, 0, 64, 0);
        bench_send(b, 0, 2, EHCA_WQE_OPTYPE_RDMA_WRITE, 0, 0, 20000, 0);
        /* Unsignalled: an error is told nevertheless. */
        host_post_send(b->qps[0], &wr);
        host_ring(b->qps[0]);
        bench_send(b, 0, 6, EHCA_WQE_OPTYPE_SEND, 0, 0, 64, 0);
        expect_cqe(b, 0, 1, 0);
        expect_cqe(b, 0, 2, 0);
        /* UC has no operations that are answered. */
        expect_cqe(b, 0, 5, service == EHCA_SERVICE_UC && answered
                   ? 0x80000002 : bad[i].status);
        bench_run(b, IB_SEC);
        expect_no_cqe(b, 0);
        g_assert_cmpuint(host_qp_state(b->qps[0]), ==, EHCA_QPS_ERR);
        bench_free(b);
    }
}

static void test_local_errors(void)
{
    check_local_errors(EHCA_SERVICE_RC);
}

static void test_uc_local_errors(void)
{
    check_local_errors(EHCA_SERVICE_UC);
}

/* After ERR: RESET, and the same QPs work again. */
static void test_recycle(void)
{
    Bench *b = bench_new(EHCA_SERVICE_RC, false);
    HostPath path[2];

    host_pair_path(0, 0, &path[0]);
    host_pair_path(1, 0, &path[1]);
    for (int round = 0; round < 3; round++) {
        bench_ping(b, 0);
        bench_ping(b, 1);
        for (unsigned h = 0; h < 2; h++) {
            HostQp *qp = b->qps[h];

            g_assert_cmpint(host_qp_to(qp, EHCA_QPS_ERR), ==, 0);
            g_assert_cmpuint(host_qp_state(qp), ==, EHCA_QPS_ERR);
            g_assert_cmpint(host_qp_to(qp, EHCA_QPS_RESET), ==, 0);
            qp->sq.next = qp->rq.next = 0;
        }
        for (unsigned h = 0; h < 2; h++) {
            HostQp *qp = b->qps[h];

            g_assert_cmpint(host_qp_init(qp, 1), ==, 0);
            g_assert_cmpint(host_qp_rtr(qp, &path[h], NULL, EHCA_MTU_1024,
                                        b->qps[!h]->qpn, 0xFFFFF0 + h), ==,
                            0);
            g_assert_cmpint(host_qp_rts(qp, &path[h], 0xFFFFF0 + !h, false),
                            ==, 0);
        }
    }
    /* PSNs go over the edge here. */
    for (int i = 0; i < 30; i++) {
        bench_ping(b, i & 1);
    }
    bench_free(b);
}

static void test_sqd(void)
{
    Bench *b = bench_new(EHCA_SERVICE_RC, false);

    bench_send(b, 0, 1, EHCA_WQE_OPTYPE_RDMA_WRITE, 0, 0, 200000, 0);
    host_run(b->pair->hosts[0]);
    g_assert_cmpint(host_qp_to(b->qps[0], EHCA_QPS_SQD), ==, 0);
    g_assert_cmpuint(bench_eqes(b, 0, EHCA_EQE_SQ_DRAINED), ==, 0);
    bench_send(b, 0, 2, EHCA_WQE_OPTYPE_RDMA_WRITE, 0, 0, 100, 0);
    expect_cqe(b, 0, 1, 0);
    bench_run(b, IB_MSEC);
    g_assert_cmpuint(bench_eqes(b, 0, EHCA_EQE_SQ_DRAINED), ==, 1);
    expect_no_cqe(b, 0);
    g_assert_cmpint(host_qp_to(b->qps[0], EHCA_QPS_RTS), ==, 0);
    expect_cqe(b, 0, 2, 0);
    bench_free(b);
}

static void test_comm_est(void)
{
    Bench *b = bench_new_bare();
    HostPath path[2];

    for (unsigned h = 0; h < 2; h++) {
        host_pair_path(h, 0, &path[h]);
        b->qps[h] = host_qp_new(b->pair->hosts[h], EHCA_SERVICE_RC,
                                b->cqs[h], b->cqs[h], 8, 8);
    }
    for (unsigned h = 0; h < 2; h++) {
        host_qp_init(b->qps[h], 1);
        host_qp_rtr(b->qps[h], &path[h], NULL, EHCA_MTU_4096,
                    b->qps[!h]->qpn, 1);
    }
    g_assert_cmpint(host_qp_rts(b->qps[0], &path[0], 1, false), ==, 0);
    bench_ping(b, 0);
    bench_ping(b, 0);
    g_assert_cmpuint(host_qp_state(b->qps[1]), ==, EHCA_QPS_RTR);
    g_assert_cmpuint(bench_eqes(b, 1, EHCA_EQE_COMM_EST), ==, 1);
    bench_free(b);
}

/* ------------------------------------------------------------------ */
/* Queues                                                             */
/* ------------------------------------------------------------------ */

/* More completions than entries: CQ error, QP error, the rest lives. */
static void test_cq_overflow(void)
{
    Bench *b = bench_new_bare();
    HostPath path[2];
    HostCq *small = host_cq_new(b->pair->hosts[0], 64);

    for (unsigned h = 0; h < 2; h++) {
        host_pair_path(h, 0, &path[h]);
        b->qps[h] = host_qp_new(b->pair->hosts[h], EHCA_SERVICE_RC,
                                h ? b->cqs[1] : small,
                                h ? b->cqs[1] : small, 200, 8);
    }
    for (unsigned h = 0; h < 2; h++) {
        host_qp_init(b->qps[h], 1);
        host_qp_rtr(b->qps[h], &path[h], NULL, EHCA_MTU_4096,
                    b->qps[!h]->qpn, 1);
        host_qp_rts(b->qps[h], &path[h], 1, false);
    }
    for (unsigned i = 0; i <= small->ring.entries; i++) {
        bench_send(b, 0, i, EHCA_WQE_OPTYPE_RDMA_WRITE, 0, 0, 8, 0);
    }
    bench_run(b, 10 * IB_MSEC);
    g_assert_cmpuint(bench_eqes(b, 0, EHCA_EQE_CQ_ERR), ==, 1);
    g_assert_cmpuint(bench_eqes(b, 0, EHCA_EQE_QP_ERR), ==, 1);
    g_assert_cmpuint(host_qp_state(b->qps[0]), ==, EHCA_QPS_ERR);
    g_assert_cmpint(host_cq_free(small, false), ==, EHCA_RC_RESOURCE);
    g_assert_cmpint(host_qp_free(b->qps[0]), ==, 0);
    g_assert_cmpint(host_cq_free(small, false), ==, EHCA_RC_R_STATE);
    g_assert_cmpint(host_cq_free(small, true), ==, 0);
    bench_free(b);
}

static void test_arming(void)
{
    Bench *b = bench_new(EHCA_SERVICE_RC, false);
    HostCq *cq = b->cqs[1];
    uint64_t before;
    HostCqe cqe;

    bench_events(b);
    before = cq->events;
    /* Not armed: no event. */
    bench_ping(b, 0);
    bench_events(b);
    g_assert_cmpuint(cq->events, ==, before);
    /* Armed: one event for many CQEs. */
    host_cq_arm(cq, false);
    for (int i = 0; i < 3; i++) {
        bench_recv(b, 1, i, 0, 64);
        bench_send(b, 0, i, EHCA_WQE_OPTYPE_SEND, 0, 0, 8, 0);
    }
    bench_run(b, IB_MSEC);
    bench_events(b);
    g_assert_cmpuint(cq->events, ==, before + 1);
    while (bench_cqe(b, 1, &cqe, 0)) {
    }
    /* Solicited only: the plain one is silent. */
    host_cq_arm(cq, true);
    bench_recv(b, 1, 1, 0, 64);
    bench_recv(b, 1, 2, 0, 64);
    bench_send(b, 0, 3, EHCA_WQE_OPTYPE_SEND, 0, 0, 8, 0);
    bench_run(b, IB_MSEC);
    bench_events(b);
    g_assert_cmpuint(cq->events, ==, before + 1);
    bench_send(b, 0, 4, EHCA_WQE_OPTYPE_SEND, EHCA_WQE_FLAG_SOLICITED, 0, 8,
               0);
    bench_run(b, IB_MSEC);
    bench_events(b);
    g_assert_cmpuint(cq->events, ==, before + 2);
    bench_free(b);
}

/* Both send as fast as they can over full rings: nothing is lost or stuck. */
static void test_flood(void)
{
    Bench *b = bench_new_bare();
    HostQp *qps[8][2];
    unsigned sent = 0, done = 0, turns = 0;

    for (unsigned i = 0; i < 8; i++) {
        host_pair_connect(b->pair, EHCA_SERVICE_RC, 0, false, b->cqs, qps[i]);
    }
    for (unsigned i = 0; i < 8; i++) {
        for (unsigned h = 0; h < 2; h++) {
            b->qps[h] = qps[i][h];
            for (unsigned n = 0; n < 6; n++) {
                bench_send(b, h, n, n & 1 ? EHCA_WQE_OPTYPE_RDMA_READ
                                          : EHCA_WQE_OPTYPE_RDMA_WRITE, 0,
                           i * 1000, 100000, 120000);
                sent++;
            }
            b->qps[h] = qps[i][!h];
        }
    }
    while (done < sent && turns++ < 10000) {
        HostCqe cqe;

        bench_run(b, 100 * IB_USEC);
        for (unsigned h = 0; h < 2; h++) {
            while (bench_cqe(b, h, &cqe, 0)) {
                g_assert_cmphex(cqe.status, ==, 0);
                done++;
            }
        }
    }
    g_assert_cmpuint(done, ==, sent);
    bench_free(b);
}

/* UC: losses lose messages, never mix them up. */
static void test_uc_losses(void)
{
    Bench *b = bench_new(EHCA_SERVICE_UC, false);
    Fault f = { .end = 0, .drop_one_in = 7 };
    unsigned got = 0;
    HostCqe cqe;

    set_fault(b, &f);
    for (unsigned i = 0; i < 60; i++) {
        if (i < 50) {
            bench_recv(b, 1, i, 100000, 10000);
        }
        memset(b->mrs[0]->bytes, i, 10000);
        bench_send(b, 0, i, EHCA_WQE_OPTYPE_SEND, 0, 0, 10000, 0);
        expect_cqe(b, 0, i, 0);
        bench_run(b, 100 * IB_USEC);
        while (bench_cqe(b, 1, &cqe, 0)) {
            g_assert_cmphex(cqe.status, ==, 0);
            g_assert_cmpuint(cqe.wr_id, ==, got);
            got++;
            g_assert_cmpuint(cqe.bytes, ==, 10000);
            for (unsigned n = 0; n < 10000; n++) {
                g_assert_cmphex(b->mrs[1]->bytes[100000 + n], ==, i);
            }
        }
    }
    g_assert_cmpuint(got, >=, 20);
    g_assert_cmpuint(got, <, 50);
    g_assert_cmpuint(host_qp_state(b->qps[1]), ==, EHCA_QPS_RTS);
    bench_free(b);
}

/* A QP connected to another one of its own port: packets do not leave. */
static void test_loopback(void)
{
    Bench *b = bench_new_bare();
    Host *host = b->pair->hosts[0];
    HostPath path;
    HostQp *qps[2];
    HostCqe cqe;
    unsigned good = 0;
    uint64_t before = b->pair->cables[0]->packets[0];

    host_pair_path(0, 0, &path);
    path.dlid = host_pair_lid(0, 1);
    for (unsigned i = 0; i < 2; i++) {
        qps[i] = host_qp_new(host, EHCA_SERVICE_RC, b->cqs[0], b->cqs[0], 16,
                             16);
    }
    for (unsigned i = 0; i < 2; i++) {
        HostPath alternate = path;

        g_assert_cmpint(host_qp_init(qps[i], 1), ==, 0);
        g_assert_cmpint(host_qp_rtr(qps[i], &path, &alternate, EHCA_MTU_2048,
                                    qps[!i]->qpn, 5), ==, 0);
        g_assert_cmpint(host_qp_rts(qps[i], &path, 5, true), ==, 0);
    }
    b->qps[0] = qps[0];
    for (unsigned i = 0; i < 8; i++) {
        HostSendWr wr = {
            .wr_id = i, .optype = i & 1 ? EHCA_WQE_OPTYPE_RDMA_READ
                                        : EHCA_WQE_OPTYPE_RDMA_WRITE,
            .flags = EHCA_WQE_FLAG_SIGNALED, .num_sges = 1,
            .sges = { host_sge(b->mrs[0], i & 1 ? 200000 : 0, 50000) },
            .raddr = b->mrs[0]->iova + 100000, .rkey = b->mrs[0]->rkey,
        };

        bench_fill(b, 0, 0, 50000, i);
        host_post_send(qps[0], &wr);
        host_ring(qps[0]);
        while (bench_cqe(b, 0, &cqe, IB_MSEC)) {
            g_assert_cmphex(cqe.status, ==, 0);
            good++;
        }
        g_assert_cmpmem(b->mrs[0]->bytes + (i & 1 ? 200000 : 0), 50000,
                        b->mrs[0]->bytes + 100000, 50000);
        bench_fill(b, 0, 100000, 50000, i + 99);
        bench_fill(b, 0, 0, 50000, i + 99);
    }
    g_assert_cmpuint(good, ==, 8);
    g_assert_cmpuint(b->pair->cables[0]->packets[0], ==, before);
    /* Asked for APM, but does not arm over itself. */
    g_assert_cmpuint(host_qp_mig(qps[0]), ==, EHCA_MIG_REARM);
    bench_free(b);
}

#define RINGERS 3
#define RINGS 20

static gpointer ring_bells(gpointer opaque)
{
    HostQp *qp = opaque;
    uint64_t offset = qp->regs - HOST_GALPA_BASE + EHCA_QPX_SQA;

    for (unsigned i = 0; i < RINGS; i++) {
        ehca_mmio_write(qp->host->adapter, offset, 1);
    }
    return NULL;
}

/* Doorbells come from any thread, without a lock; none is lost. */
static void test_doorbell_threads(void)
{
    Bench *b = bench_new_bare();
    HostPath path[2];

    for (unsigned h = 0; h < 2; h++) {
        host_pair_path(h, 0, &path[h]);
        b->qps[h] = host_qp_new(b->pair->hosts[h], EHCA_SERVICE_RC,
                                b->cqs[h], b->cqs[h], RINGERS * RINGS, 8);
    }
    for (unsigned h = 0; h < 2; h++) {
        host_qp_init(b->qps[h], 1);
        host_qp_rtr(b->qps[h], &path[h], NULL, EHCA_MTU_1024,
                    b->qps[!h]->qpn, 0);
        host_qp_rts(b->qps[h], &path[h], 0, false);
    }
    for (unsigned round = 0; round < 50; round++) {
        GThread *threads[RINGERS];
        unsigned done = 0;
        HostCqe cqe;

        for (unsigned i = 0; i < RINGERS * RINGS; i++) {
            HostSendWr wr = {
                .wr_id = i, .optype = EHCA_WQE_OPTYPE_RDMA_WRITE,
                .flags = EHCA_WQE_FLAG_SIGNALED,
                .raddr = b->mrs[1]->iova, .rkey = b->mrs[1]->rkey,
            };

            host_post_send(b->qps[0], &wr);
        }
        b->qps[0]->sq_new = 0;
        for (unsigned i = 0; i < RINGERS; i++) {
            threads[i] = g_thread_new("ringer", ring_bells, b->qps[0]);
        }
        while (done < RINGERS * RINGS) {
            for (unsigned h = 0; h < 2; h++) {
                host_run(b->pair->hosts[h]);
            }
            host_cable_run(b->pair->cables[0]);
            while (host_cq_poll(b->cqs[0], &cqe, 1)) {
                g_assert_cmphex(cqe.status, ==, 0);
                g_assert_cmpuint(cqe.wr_id, ==, done);
                done++;
            }
        }
        for (unsigned i = 0; i < RINGERS; i++) {
            g_thread_join(threads[i]);
        }
        expect_no_cqe(b, 0);
    }
    bench_free(b);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/engine/rc/send", test_send);
    g_test_add_func("/engine/rc/write-read", test_write_read);
    g_test_add_func("/engine/rc/atomics", test_atomics);
    g_test_add_func("/engine/rc/sg-lists", test_sg_lists);
    g_test_add_func("/engine/rc/empty-read", test_empty_read);
    g_test_add_func("/engine/rc/unsignalled", test_unsignalled);
    g_test_add_func("/engine/rc/losses", test_losses);
    g_test_add_func("/engine/rc/duplicates", test_duplicates);
    g_test_add_func("/engine/rc/atomic-once", test_atomic_once);
    g_test_add_func("/engine/rc/acks-and-naks", test_acks_and_naks);
    g_test_add_func("/engine/rc/timeout", test_timeout);
    g_test_add_func("/engine/rc/rnr", test_rnr);
    g_test_add_func("/engine/rc/remote-access", test_remote_access);
    g_test_add_func("/engine/rc/recv-too-short", test_recv_too_short);
    g_test_add_func("/engine/rc/recv-bad-key", test_recv_bad_key);
    g_test_add_func("/engine/rc/read-fails-under-send",
                    test_read_fails_under_send);
    g_test_add_func("/engine/rc/local-errors", test_local_errors);
    g_test_add_func("/engine/rc/recycle", test_recycle);
    g_test_add_func("/engine/rc/sqd", test_sqd);
    g_test_add_func("/engine/rc/comm-est", test_comm_est);
    g_test_add_func("/engine/rc/loopback", test_loopback);
    g_test_add_func("/engine/cq/overflow", test_cq_overflow);
    g_test_add_func("/engine/cq/arming", test_arming);
    g_test_add_func("/engine/rc/flood", test_flood);
    g_test_add_func("/engine/rc/doorbell-threads", test_doorbell_threads);
    g_test_add_func("/engine/uc/send", test_uc_send);
    g_test_add_func("/engine/uc/losses", test_uc_losses);
    g_test_add_func("/engine/uc/local-errors", test_uc_local_errors);
    return g_test_run();
}
