/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Automatic Path Migration: the truth table of apm-and-cm 1.4, the moves that
 * H_MODIFY_QP may and may not make, and migrations under traffic.
 */
#include "engine_bench.h"
#include "ib/mad.h"

#define RAIL_MS IB_MSEC

static unsigned mig(Bench *b, unsigned h)
{
    return host_qp_mig(b->qps[h]);
}

static void arm(Bench *b)
{
    bench_ping(b, 0);
    g_assert_cmpuint(mig(b, 0), ==, EHCA_MIG_ARMED);
    g_assert_cmpuint(mig(b, 1), ==, EHCA_MIG_ARMED);
}

/* Loads the other rail as alternate on both sides, with REARM. */
static void rearm(Bench *b, unsigned rail)
{
    for (unsigned h = 0; h < 2; h++) {
        HostPath path;

        host_pair_path(h, rail, &path);
        g_assert_cmpint(host_qp_load_alt(b->qps[h], &path, EHCA_MIG_REARM),
                        ==, EHCA_RC_SUCCESS);
    }
}

/* ------------------------------------------------------------------ */
/* The truth table                                                    */
/* ------------------------------------------------------------------ */

typedef enum Arrival {
    ON_PRIMARY,
    ON_ALTERNATE,
    WRONG_SLID,                /* primary's port, unknown source */
    WRONG_PORT,                /* primary's source, alternate's port */
    WRONG_PKEY,                /* on the alternate otherwise */
    WITH_GRH,                  /* on the alternate otherwise */
    ARRIVALS
} Arrival;

/* Host 1's view: primary is rail 0 from LID 1, alternate rail 1 from LID 3. */
static void inject(Bench *b, Arrival how, bool migreq)
{
    uint8_t p[IB_PACKET_MAX];
    unsigned rail = how == ON_PRIMARY || how == WRONG_SLID ? 0 : 1;
    BenchPacket spec = {
        .slid = host_pair_lid(0, how == WRONG_PORT ? 1 : rail + 1),
        .dlid = host_pair_lid(1, rail + 1),
        .qpn = b->qps[1]->qpn, .psn = 0x800000,
        .opcode = IB_TRANSPORT_RC | IB_OP_ACK, .syndrome = 0x1F,
        .migreq = migreq,
        .pkey = how == WRONG_PKEY ? 0x8001 : 0,
        .grh = how == WITH_GRH,
    };

    if (how == WRONG_SLID) {
        spec.slid = 0x77;
    }
    g_assert_true(host_cable_inject(b->pair->cables[rail], 1, p,
                                    bench_packet(p, &spec)));
    bench_run(b, 10 * IB_USEC);
}

typedef struct Row {
    unsigned state;
    bool migreq;
    Arrival how;
    unsigned then;
    unsigned path_mig, refused;
} Row;

static const Row rows[] = {
    { EHCA_MIG_MIGRATED, 0, ON_PRIMARY, EHCA_MIG_MIGRATED, 0, 0 },
    { EHCA_MIG_MIGRATED, 1, ON_PRIMARY, EHCA_MIG_MIGRATED, 0, 0 },
    { EHCA_MIG_MIGRATED, 0, ON_ALTERNATE, EHCA_MIG_MIGRATED, 0, 0 },
    { EHCA_MIG_MIGRATED, 1, ON_ALTERNATE, EHCA_MIG_MIGRATED, 0, 0 },
    { EHCA_MIG_REARM, 0, ON_PRIMARY, EHCA_MIG_ARMED, 0, 0 },
    { EHCA_MIG_REARM, 1, ON_PRIMARY, EHCA_MIG_REARM, 0, 0 },
    { EHCA_MIG_REARM, 0, ON_ALTERNATE, EHCA_MIG_REARM, 0, 0 },
    { EHCA_MIG_REARM, 1, ON_ALTERNATE, EHCA_MIG_REARM, 0, 0 },
    { EHCA_MIG_REARM, 0, WRONG_SLID, EHCA_MIG_REARM, 0, 0 },
    { EHCA_MIG_ARMED, 0, ON_PRIMARY, EHCA_MIG_ARMED, 0, 0 },
    { EHCA_MIG_ARMED, 0, ON_ALTERNATE, EHCA_MIG_ARMED, 0, 0 },
    { EHCA_MIG_ARMED, 1, ON_ALTERNATE, EHCA_MIG_MIGRATED, 1, 0 },
    { EHCA_MIG_ARMED, 1, ON_PRIMARY, EHCA_MIG_ARMED, 0, 1 },
    { EHCA_MIG_ARMED, 1, WRONG_SLID, EHCA_MIG_ARMED, 0, 1 },
    { EHCA_MIG_ARMED, 1, WRONG_PORT, EHCA_MIG_ARMED, 0, 1 },
    { EHCA_MIG_ARMED, 1, WRONG_PKEY, EHCA_MIG_ARMED, 0, 1 },
    { EHCA_MIG_ARMED, 1, WITH_GRH, EHCA_MIG_ARMED, 0, 1 },
};

static void test_truth_table(void)
{
    for (size_t i = 0; i < G_N_ELEMENTS(rows); i++) {
        const Row *r = &rows[i];
        Bench *b = bench_new(EHCA_SERVICE_RC,
                             r->state != EHCA_MIG_MIGRATED);

        g_test_message("row %zu", i);
        if (r->state == EHCA_MIG_ARMED) {
            arm(b);
        }
        g_assert_cmpuint(mig(b, 1), ==, r->state);
        inject(b, r->how, r->migreq);
        g_assert_cmpuint(mig(b, 1), ==, r->then);
        g_assert_cmpuint(bench_eqes(b, 1, EHCA_EQE_PATH_MIG), ==,
                         r->path_mig);
        g_assert_cmpuint(bench_eqes(b, 1, EHCA_EQE_PATH_MIG_FAILED), ==,
                         r->refused);
        g_assert_cmpuint(host_qp_state(b->qps[1]), ==, EHCA_QPS_RTS);
        bench_free(b);
    }
}

/* One event per armed period, however often the peer asks. */
static void test_refused_once(void)
{
    Bench *b = bench_new(EHCA_SERVICE_RC, true);

    arm(b);
    for (int i = 0; i < 5; i++) {
        inject(b, WRONG_SLID, true);
    }
    g_assert_cmpuint(bench_eqes(b, 1, EHCA_EQE_PATH_MIG_FAILED), ==, 1);
    g_assert_cmpuint(b->kinds[1][EHCA_EVENT_MIG_REFUSED], ==, 1);
    bench_ping(b, 0);
    bench_ping(b, 1);
    bench_free(b);
}

/* A bad P_Key counts at the port. */
static void test_pkey_counts(void)
{
    Bench *b = bench_new(EHCA_SERVICE_RC, true);
    HostPortInfo info;

    arm(b);
    inject(b, WRONG_PKEY, true);
    inject(b, WRONG_PKEY, true);
    host_query_port(b->pair->hosts[1], 2, &info);
    g_assert_cmpuint(info.pkey_violations, ==, 2);
    host_query_port(b->pair->hosts[1], 1, &info);
    g_assert_cmpuint(info.pkey_violations, ==, 0);
    bench_free(b);
}

/* ------------------------------------------------------------------ */
/* H_MODIFY_QP                                                        */
/* ------------------------------------------------------------------ */

static void test_requests(void)
{
    Bench *b = bench_new(EHCA_SERVICE_RC, false);
    HostQp *qp = b->qps[0];
    HostPath path;

    /* MIGRATED, nothing loaded. */
    g_assert_cmpuint(mig(b, 0), ==, EHCA_MIG_MIGRATED);
    g_assert_cmpint(host_qp_set_mig(qp, EHCA_MIG_MIGRATED), ==, 0);
    g_assert_cmpint(host_qp_set_mig(qp, EHCA_MIG_ARMED), !=, 0);
    g_assert_cmpint(host_qp_set_mig(qp, EHCA_MIG_REARM), !=, 0);
    g_assert_cmpint(host_qp_set_mig(qp, 0), !=, 0);
    g_assert_cmpint(host_qp_set_mig(qp, 77), !=, 0);
    g_assert_cmpuint(mig(b, 0), ==, EHCA_MIG_MIGRATED);
    /* REARM. */
    rearm(b, 1);
    g_assert_cmpuint(mig(b, 0), ==, EHCA_MIG_REARM);
    g_assert_cmpint(host_qp_set_mig(qp, EHCA_MIG_MIGRATED), !=, 0);
    g_assert_cmpint(host_qp_set_mig(qp, EHCA_MIG_ARMED), !=, 0);
    g_assert_cmpint(host_qp_set_mig(qp, EHCA_MIG_REARM), ==, 0);
    g_assert_cmpuint(mig(b, 0), ==, EHCA_MIG_REARM);
    /* ARMED. */
    arm(b);
    host_pair_path(0, 1, &path);
    g_assert_cmpint(host_qp_set_mig(qp, EHCA_MIG_REARM), !=, 0);
    g_assert_cmpint(host_qp_load_alt(qp, &path, EHCA_MIG_REARM), !=, 0);
    g_assert_cmpint(host_qp_set_mig(qp, EHCA_MIG_ARMED), !=, 0);
    g_assert_cmpuint(mig(b, 0), ==, EHCA_MIG_ARMED);
    /* The alternate alone may be replaced. */
    path.timeout = 20;
    g_assert_cmpint(host_qp_load_alt(qp, &path, 0), ==, 0);
    g_assert_cmpuint(mig(b, 0), ==, EHCA_MIG_ARMED);
    g_assert_cmpuint(host_qp_field(qp, EHCA_QPCB_TIMEOUT_AL), ==, 20);
    g_assert_cmpuint(bench_eqes(b, 0, EHCA_EQE_PATH_MIG), ==, 0);
    bench_free(b);
}

static void test_bad_alternates(void)
{
    Bench *b = bench_new(EHCA_SERVICE_RC, false);
    HostQp *qp = b->qps[0];
    const struct { unsigned port; uint16_t dlid; unsigned pkey; } bad[] = {
        { 0, 4, 0 }, { 3, 4, 0 }, { 255, 4, 0 },
        { 2, 0, 0 }, { 2, 0xC000, 0 }, { 2, 0xFFFF, 0 },
        { 2, 4, 16 }, { 2, 4, 255 },
    };

    for (size_t i = 0; i < G_N_ELEMENTS(bad); i++) {
        HostPath path;

        host_pair_path(0, 1, &path);
        path.port = bad[i].port;
        path.dlid = bad[i].dlid;
        path.pkey_index = bad[i].pkey;
        g_assert_cmpint(host_qp_load_alt(qp, &path, EHCA_MIG_REARM), <, 0);
        g_assert_cmpuint(mig(b, 0), ==, EHCA_MIG_MIGRATED);
        g_assert_cmpuint(host_qp_field(qp, EHCA_QPCB_ALT_PHYS_PORT), ==, 0);
        g_assert_cmpuint(host_qp_field(qp, EHCA_QPCB_DLID_AL), ==, 0);
    }
    bench_free(b);
}

/* 1.9: where the alternate may be loaded. */
static void test_transitions(void)
{
    Bench *b = bench_new(EHCA_SERVICE_RC, false);
    HostQp *qp = b->qps[0];
    uint8_t block[EHCA_QPCB_SIZE] = { 0 };
    HostPath path;
    uint64_t mask;

    host_pair_path(0, 1, &path);
    mask = host_put_path(block, &path, true);
    /* RTS -> SQD does not take one. */
    ib_put32(block + EHCA_QPCB_QP_STATE, EHCA_QPS_SQD);
    g_assert_cmpint(host_qp_modify(qp, mask | EHCA_QPMASK_QP_STATE, block),
                    ==, EHCA_RC_MASK_PARM);
    g_assert_cmpuint(host_qp_state(qp), ==, EHCA_QPS_RTS);
    g_assert_cmpint(host_qp_to(qp, EHCA_QPS_SQD), ==, 0);
    /* SQD -> SQD and SQD -> RTS do. */
    g_assert_cmpint(host_qp_modify(qp, mask | EHCA_QPMASK_QP_STATE, block),
                    ==, 0);
    ib_put32(block + EHCA_QPCB_QP_STATE, EHCA_QPS_RTS);
    ib_put32(block + EHCA_QPCB_PATH_MIGRATION_STATE, EHCA_MIG_REARM);
    g_assert_cmpint(host_qp_modify(qp, mask | EHCA_QPMASK_QP_STATE |
                                   EHCA_QPMASK_PATH_MIGRATION_STATE, block),
                    ==, 0);
    g_assert_cmpuint(mig(b, 0), ==, EHCA_MIG_REARM);
    /* RESET forgets. */
    g_assert_cmpint(host_qp_to(qp, EHCA_QPS_RESET), ==, 0);
    g_assert_cmpuint(mig(b, 0), ==, EHCA_MIG_MIGRATED);
    bench_free(b);
}

/* ------------------------------------------------------------------ */
/* Migrations                                                         */
/* ------------------------------------------------------------------ */

static void expect_migrated(Bench *b, unsigned rail, unsigned count)
{
    for (unsigned h = 0; h < 2; h++) {
        HostQp *qp = b->qps[h];

        g_assert_cmpuint(bench_eqes(b, h, EHCA_EQE_PATH_MIG), ==, count);
        g_assert_cmpuint(bench_eqes(b, h, EHCA_EQE_PATH_MIG_FAILED), ==, 0);
        g_assert_cmpuint(mig(b, h), ==, EHCA_MIG_MIGRATED);
        g_assert_cmpuint(host_qp_state(qp), ==, EHCA_QPS_RTS);
        /* Both path fields show the path in use (1.7). */
        g_assert_cmpuint(host_qp_field(qp, EHCA_QPCB_PRIM_PHYS_PORT), ==,
                         rail + 1);
        g_assert_cmpuint(host_qp_field(qp, EHCA_QPCB_ALT_PHYS_PORT), ==,
                         rail + 1);
        g_assert_cmpuint(host_qp_field(qp, EHCA_QPCB_DLID), ==,
                         host_pair_lid(!h, rail + 1));
    }
}

/* Nobody arms without a packet; one acknowledged message arms both. */
static void test_arming(void)
{
    Bench *b = bench_new(EHCA_SERVICE_RC, true);

    bench_run(b, 5 * IB_SEC);
    g_assert_cmpuint(mig(b, 0), ==, EHCA_MIG_REARM);
    g_assert_cmpuint(mig(b, 1), ==, EHCA_MIG_REARM);
    arm(b);
    g_assert_cmpuint(bench_eqes(b, 0, EHCA_EQE_PATH_MIG), ==, 0);
    bench_free(b);
}

/* Pull, migrate, restore, load, pull: a hundred times. */
static void test_failover_many(void)
{
    Bench *b = bench_new(EHCA_SERVICE_RC, true);
    unsigned rail = 0;
    HostCqe cqe;

    for (unsigned round = 1; round <= 100; round++) {
        arm(b);
        host_cable_set(b->pair->cables[rail], false);
        bench_recv(b, 1, round, 4096, 8192);
        bench_fill(b, 0, 0, 8192, round);
        bench_send(b, 0, round, EHCA_WQE_OPTYPE_SEND, 0, 0, 8192, 0);
        g_assert_true(bench_cqe(b, 1, &cqe, 60 * IB_SEC));
        g_assert_cmphex(cqe.status, ==, 0);
        g_assert_cmpuint(cqe.bytes, ==, 8192);
        g_assert_true(bench_cqe(b, 0, &cqe, 60 * IB_SEC));
        g_assert_cmphex(cqe.status, ==, 0);
        g_assert_true(bench_same(b, 0, 4096, 8192));
        expect_migrated(b, !rail, round);
        g_assert_cmpuint(b->kinds[0][EHCA_EVENT_FIRST_PAYLOAD], ==, round);
        g_assert_cmpuint(b->kinds[1][EHCA_EVENT_FIRST_PAYLOAD], ==, round);

        host_cable_set(b->pair->cables[rail], true);
        bench_run(b, RAIL_MS);
        host_pair_activate(b->pair, rail);
        bench_run(b, RAIL_MS);
        rearm(b, rail);
        rail = !rail;
    }
    bench_free(b);
}

static void send_unanswered(Bench *b, int64_t *took, HostCqe *cqe)
{
    int64_t start = ib_clock_now(&b->pair->clock);

    bench_send(b, 0, 1, EHCA_WQE_OPTYPE_RDMA_WRITE, 0, 0, 64, 0);
    g_assert_true(bench_cqe(b, 0, cqe, 600 * IB_SEC));
    *took = ib_clock_now(&b->pair->clock) - start;
}

/* (retry + 1) timeouts on the first path, as many on the second. */
static void test_both_paths_dead(void)
{
    Bench *b = bench_new(EHCA_SERVICE_RC, true);
    unsigned timeout = host_qp_field(b->qps[0], EHCA_QPCB_TIMEOUT);
    unsigned retry = host_qp_field(b->qps[0], EHCA_QPCB_RETRY_COUNT);
    int64_t took, budget = (retry + 1) * ib_timeout_ns(timeout);
    HostCqe cqe;

    arm(b);
    host_cable_set(b->pair->cables[0], false);
    host_cable_set(b->pair->cables[1], false);
    bench_run(b, RAIL_MS);
    send_unanswered(b, &took, &cqe);
    g_assert_cmphex(cqe.status, ==, 0x80000008);
    /* Virtual time: nothing but the timers takes any. */
    g_assert_cmpint(took, >=, 2 * budget);
    g_assert_cmpint(took, <, 2 * budget + IB_MSEC);
    g_assert_cmpuint(bench_eqes(b, 0, EHCA_EQE_PATH_MIG), ==, 1);
    g_assert_cmpuint(host_qp_state(b->qps[0]), ==, EHCA_QPS_ERR);
    bench_free(b);
}

/* Never armed: no migration, no event, one budget, error. */
static void test_unarmed(void)
{
    Bench *b = bench_new(EHCA_SERVICE_RC, true);
    unsigned timeout = host_qp_field(b->qps[0], EHCA_QPCB_TIMEOUT);
    unsigned retry = host_qp_field(b->qps[0], EHCA_QPCB_RETRY_COUNT);
    int64_t took, budget = (retry + 1) * ib_timeout_ns(timeout);
    char *report;
    HostCqe cqe;

    host_cable_set(b->pair->cables[0], false);
    bench_run(b, RAIL_MS);
    send_unanswered(b, &took, &cqe);
    g_assert_cmphex(cqe.status, ==, 0x80000008);
    g_assert_cmpint(took, >=, budget);
    g_assert_cmpint(took, <, budget + IB_MSEC);
    g_assert_cmpuint(bench_eqes(b, 0, EHCA_EQE_PATH_MIG), ==, 0);
    g_assert_cmpuint(mig(b, 0), ==, EHCA_MIG_REARM);
    g_assert_cmpuint(mig(b, 1), ==, EHCA_MIG_REARM);
    /* The report can say why. */
    report = ehca_report(b->pair->hosts[0]->adapter);
    g_assert_nonnull(strstr(report, "\"state\":\"REARM\""));
    g_assert_nonnull(strstr(report, "\"since_rearm_qualifying\":0"));
    free(report);
    bench_free(b);
}

/* The peer in REARM drops what comes by the alternate: both lose. */
static void test_one_sided(void)
{
    Bench *b = bench_new(EHCA_SERVICE_RC, true);
    uint8_t p[IB_PACKET_MAX];
    BenchPacket spec = {
        .slid = host_pair_lid(1, 1), .dlid = host_pair_lid(0, 1),
        .qpn = b->qps[0]->qpn, .psn = 0x800000,
        .opcode = IB_TRANSPORT_RC | IB_OP_ACK, .syndrome = 0x1F,
    };
    HostCqe cqe;
    int64_t took;

    /* A packet that host 1 never sent arms host 0 alone. */
    host_cable_inject(b->pair->cables[0], 0, p, bench_packet(p, &spec));
    bench_run(b, RAIL_MS);
    g_assert_cmpuint(mig(b, 0), ==, EHCA_MIG_ARMED);
    g_assert_cmpuint(mig(b, 1), ==, EHCA_MIG_REARM);
    host_cable_set(b->pair->cables[0], false);
    bench_run(b, RAIL_MS);
    send_unanswered(b, &took, &cqe);
    g_assert_cmphex(cqe.status, ==, 0x80000008);
    g_assert_cmpuint(bench_eqes(b, 0, EHCA_EQE_PATH_MIG), ==, 1);
    g_assert_cmpuint(bench_eqes(b, 1, EHCA_EQE_PATH_MIG), ==, 0);
    g_assert_cmpuint(mig(b, 1), ==, EHCA_MIG_REARM);
    bench_free(b);
}

/* One side only rearmed: never arms, traffic goes on. */
static void test_one_rearm(void)
{
    Bench *b = bench_new(EHCA_SERVICE_RC, false);
    HostPath path;

    host_pair_path(0, 1, &path);
    g_assert_cmpint(host_qp_load_alt(b->qps[0], &path, EHCA_MIG_REARM), ==,
                    0);
    for (int i = 0; i < 5; i++) {
        bench_ping(b, i & 1);
    }
    g_assert_cmpuint(mig(b, 0), ==, EHCA_MIG_REARM);
    g_assert_cmpuint(mig(b, 1), ==, EHCA_MIG_MIGRATED);
    bench_free(b);
}

static void test_software(void)
{
    Bench *b = bench_new(EHCA_SERVICE_RC, true);

    arm(b);
    g_assert_cmpint(host_qp_set_mig(b->qps[0], EHCA_MIG_MIGRATED), ==, 0);
    g_assert_cmpuint(bench_eqes(b, 0, EHCA_EQE_PATH_MIG), ==, 1);
    g_assert_cmpuint(mig(b, 1), ==, EHCA_MIG_ARMED);
    bench_ping(b, 0);
    expect_migrated(b, 1, 1);
    g_assert_cmpint(b->last[0][EHCA_EVENT_MIG_STATE].cause, ==,
                    EHCA_CAUSE_SOFTWARE);
    g_assert_cmpint(b->last[1][EHCA_EVENT_MIG_STATE].cause, ==,
                    EHCA_CAUSE_PACKET_MIGREQ_1);
    /* And back, forced, under way in the other direction. */
    rearm(b, 0);
    bench_ping(b, 1);
    g_assert_cmpint(host_qp_set_mig(b->qps[1], EHCA_MIG_MIGRATED), ==, 0);
    bench_ping(b, 1);
    expect_migrated(b, 0, 2);
    bench_free(b);
}

/* Reads in flight survive; atomics happen once. */
static void test_read_and_atomic(void)
{
    Bench *b = bench_new(EHCA_SERVICE_RC, true);
    HostSendWr atomic = {
        .wr_id = 2, .optype = EHCA_WQE_OPTYPE_FETCH_ADD,
        .flags = EHCA_WQE_FLAG_SIGNALED, .num_sges = 1,
        .operand = { 5 },
    };
    HostCqe cqe;

    arm(b);
    bench_fill(b, 1, 0, 100000, 9);
    ib_put64(b->mrs[1]->bytes + 200000, 1000);
    atomic.raddr = b->mrs[1]->iova + 200000;
    atomic.rkey = b->mrs[1]->rkey;
    atomic.sges[0] = host_sge(b->mrs[0], 200000, 8);
    host_cable_set(b->pair->cables[0], false);
    bench_send(b, 0, 1, EHCA_WQE_OPTYPE_RDMA_READ, 0, 0, 100000, 0);
    host_post_send(b->qps[0], &atomic);
    host_ring(b->qps[0]);
    g_assert_true(bench_cqe(b, 0, &cqe, 60 * IB_SEC));
    g_assert_cmphex(cqe.status, ==, 0);
    g_assert_cmpuint(cqe.wr_id, ==, 1);
    g_assert_true(bench_cqe(b, 0, &cqe, 60 * IB_SEC));
    g_assert_cmphex(cqe.status, ==, 0);
    g_assert_cmpuint(cqe.wr_id, ==, 2);
    g_assert_true(bench_same(b, 0, 0, 100000));
    g_assert_cmpuint(ib_get64(b->mrs[0]->bytes + 200000), ==, 1000);
    g_assert_cmpuint(ib_get64(b->mrs[1]->bytes + 200000), ==, 1005);
    expect_migrated(b, 1, 1);
    bench_free(b);
}

typedef struct Watch {
    unsigned packets[2];               /* by MigReq */
    uint8_t sl;
} Watch;

static bool watch(void *opaque, unsigned end, uint8_t *p, size_t *len)
{
    Watch *w = opaque;

    /* BTH byte 1, bit 0x40, in every packet, whatever it is. */
    if ((p[1] & 3) == IB_LNH_LOCAL && (p[8] & IB_TRANSPORT_MASK) ==
        IB_TRANSPORT_RC) {
        w->packets[!!(p[9] & 0x40)]++;
        w->sl = p[1] >> 4;
    }
    return true;
}

static void test_migreq_on_wire(void)
{
    Bench *b = bench_new(EHCA_SERVICE_RC, true);
    Watch old = { 0 }, new = { 0 };

    b->pair->cables[0]->filter = watch;
    b->pair->cables[0]->filter_opaque = &old;
    b->pair->cables[1]->filter = watch;
    b->pair->cables[1]->filter_opaque = &new;
    arm(b);
    bench_ping(b, 1);
    g_assert_cmpuint(old.packets[0], >=, 4);
    g_assert_cmpuint(old.packets[1], ==, 0);
    g_assert_cmpuint(new.packets[0] + new.packets[1], ==, 0);
    host_qp_set_mig(b->qps[0], EHCA_MIG_MIGRATED);
    bench_ping(b, 0);
    bench_ping(b, 1);
    g_assert_cmpuint(new.packets[0], ==, 0);
    g_assert_cmpuint(new.packets[1], >=, 4);
    bench_free(b);
}

/* All of the alternate is used afterwards: SL, timeout, retries. */
static void test_alternate_used(void)
{
    Bench *b = bench_new(EHCA_SERVICE_RC, false);
    unsigned before = host_qp_field(b->qps[0], EHCA_QPCB_TIMEOUT);
    Watch new = { 0 };
    HostPath path;
    HostCqe cqe;
    int64_t took;

    for (unsigned h = 0; h < 2; h++) {
        host_pair_path(h, 1, &path);
        path.sl = 5;
        path.timeout = 12;
        path.retry_count = 2;
        path.static_rate = 3;
        g_assert_cmpint(host_qp_load_alt(b->qps[h], &path, EHCA_MIG_REARM),
                        ==, 0);
    }
    g_assert_cmpuint(before, !=, 12);
    arm(b);
    b->pair->cables[1]->filter = watch;
    b->pair->cables[1]->filter_opaque = &new;
    host_qp_set_mig(b->qps[0], EHCA_MIG_MIGRATED);
    bench_ping(b, 0);
    g_assert_cmpuint(new.sl, ==, 5);
    g_assert_cmpuint(host_qp_field(b->qps[0], EHCA_QPCB_TIMEOUT), ==, 12);
    g_assert_cmpuint(host_qp_field(b->qps[0], EHCA_QPCB_MAX_STATIC_RATE), ==,
                     3);
    host_cable_set(b->pair->cables[1], false);
    bench_run(b, RAIL_MS);
    send_unanswered(b, &took, &cqe);
    g_assert_cmphex(cqe.status, ==, 0x80000008);
    g_assert_cmpint(took, >=, 3 * ib_timeout_ns(12));
    g_assert_cmpint(took, <, 3 * ib_timeout_ns(12) + IB_MSEC);
    bench_free(b);
}

/* Both ends to RTS over rail 0, alternate over rail 1, as @path says. */
static void connect_by(Bench *b, HostPath path[2][2])
{
    for (unsigned h = 0; h < 2; h++) {
        b->qps[h] = host_qp_new(b->pair->hosts[h], EHCA_SERVICE_RC,
                                b->cqs[h], b->cqs[h], 8, 8);
    }
    for (unsigned h = 0; h < 2; h++) {
        g_assert_cmpint(host_qp_init(b->qps[h], 1), ==, 0);
        g_assert_cmpint(host_qp_rtr(b->qps[h], &path[h][0], &path[h][1],
                                    EHCA_MTU_2048, b->qps[!h]->qpn, 7), ==,
                        0);
        g_assert_cmpint(host_qp_rts(b->qps[h], &path[h][0], 7, true), ==, 0);
    }
}

/* Paths with a GRH: GIDs are checked, and the alternate's are used. */
static void test_grh(void)
{
    Bench *b = bench_new_bare();
    HostPath path[2][2];
    char *report;

    for (unsigned h = 0; h < 2; h++) {
        for (unsigned rail = 0; rail < 2; rail++) {
            host_pair_path(h, rail, &path[h][rail]);
            path[h][rail].grh = true;
            path[h][rail].hop_limit = 3;
            host_gid(b->pair->hosts[!h], rail + 1, path[h][rail].dgid);
        }
    }
    connect_by(b, path);
    arm(b);
    host_cable_set(b->pair->cables[0], false);
    bench_ping(b, 0);
    expect_migrated(b, 1, 1);
    bench_free(b);
    /* A stranger's GID as the alternate's: it does not get through. */
    b = bench_new_bare();
    path[1][1].dgid[15] ^= 1;
    connect_by(b, path);
    arm(b);
    g_assert_cmpint(host_qp_set_mig(b->qps[0], EHCA_MIG_MIGRATED), ==, 0);
    bench_send(b, 0, 1, EHCA_WQE_OPTYPE_RDMA_WRITE, 0, 0, 64, 0);
    bench_run(b, IB_MSEC);
    g_assert_cmpuint(mig(b, 1), ==, EHCA_MIG_ARMED);
    g_assert_cmpuint(bench_eqes(b, 1, EHCA_EQE_PATH_MIG_FAILED), ==, 1);
    report = ehca_report(b->pair->hosts[1]->adapter);
    g_assert_nonnull(strstr(report, "\"gid\":1,\"pkey\":0"));
    free(report);
    bench_free(b);
}

/* As the subnet manager: P_Key table of the port at @end of a cable. */
static void set_pkeys(Bench *b, unsigned rail, unsigned end, uint16_t second)
{
    HostCable *cable = b->pair->cables[rail];
    IbMadAddress to = {
        .slid = IB_LID_PERMISSIVE, .dlid = IB_LID_PERMISSIVE,
        .vl = IB_VL_MANAGEMENT, .pkey = IB_PKEY_DEFAULT,
    };
    IbSmp smp = {
        .hdr = {
            .base_version = 1, .mgmt_class = IB_CLASS_SM_DR,
            .class_version = 1, .method = IB_METHOD_SET, .tid = 9,
            .attr_id = IB_SM_PKEY_TABLE,
        },
        .dr_slid = IB_LID_PERMISSIVE, .dr_dlid = IB_LID_PERMISSIVE,
    };
    uint8_t mad[IB_MAD_LEN] = { 0 }, p[IB_PACKET_MAX];

    ib_smp_pack(mad, &smp);
    ib_put16(mad + IB_SMP_DATA_OFFSET, 0xFFFF);
    ib_put16(mad + IB_SMP_DATA_OFFSET + 2, second);
    host_cable_inject(cable, end, p, ib_mad_packet(p, &to, mad));
    bench_run(b, IB_MSEC);
}

static uint16_t last_pkey;

static bool watch_pkey(void *opaque, unsigned end, uint8_t *p, size_t *len)
{
    last_pkey = ib_get16(p + 10);
    return true;
}

/* Another partition on the alternate: its P_Key is sent and expected (B6). */
static void test_alternate_pkey(void)
{
    Bench *b = bench_new_bare();
    HostPath path[2][2];

    for (unsigned h = 0; h < 2; h++) {
        set_pkeys(b, 1, h, 0x8123);
        for (unsigned rail = 0; rail < 2; rail++) {
            host_pair_path(h, rail, &path[h][rail]);
        }
        path[h][1].pkey_index = 1;
    }
    bench_events(b);
    g_assert_cmpuint(b->neqes[0][EHCA_NEQE_PORT_CONFIG], ==, 1);
    connect_by(b, path);
    b->pair->cables[0]->filter = watch_pkey;
    b->pair->cables[1]->filter = watch_pkey;
    arm(b);
    g_assert_cmphex(last_pkey, ==, 0xFFFF);
    host_cable_set(b->pair->cables[0], false);
    bench_ping(b, 0);
    g_assert_cmphex(last_pkey, ==, 0x8123);
    expect_migrated(b, 1, 1);
    bench_free(b);
}

/* RNR retries used up: error, no migration (1.6). */
static void test_rnr_does_not_migrate(void)
{
    Bench *b = bench_new(EHCA_SERVICE_RC, false);
    uint8_t block[EHCA_QPCB_SIZE] = { 0 };
    HostCqe cqe;

    rearm(b, 1);
    arm(b);
    g_assert_cmpint(host_qp_to(b->qps[0], EHCA_QPS_SQD), ==, 0);
    ib_put32(block + EHCA_QPCB_RNR_RETRY_COUNT, 2);
    g_assert_cmpint(host_qp_modify(b->qps[0], EHCA_QPMASK_RNR_RETRY_COUNT,
                                   block), ==, 0);
    g_assert_cmpint(host_qp_to(b->qps[0], EHCA_QPS_RTS), ==, 0);
    bench_send(b, 0, 1, EHCA_WQE_OPTYPE_SEND, 0, 0, 64, 0);
    g_assert_true(bench_cqe(b, 0, &cqe, 60 * IB_SEC));
    g_assert_cmphex(cqe.status, ==, 0x80000009);
    g_assert_cmpuint(bench_eqes(b, 0, EHCA_EQE_PATH_MIG), ==, 0);
    g_assert_cmpuint(mig(b, 0), ==, EHCA_MIG_ARMED);
    bench_free(b);
}

/* UC: a message each way arms; software or the peer migrates it. */
static void test_uc(void)
{
    Bench *b = bench_new(EHCA_SERVICE_UC, true);

    bench_ping(b, 0);
    g_assert_cmpuint(mig(b, 0), ==, EHCA_MIG_REARM);
    g_assert_cmpuint(mig(b, 1), ==, EHCA_MIG_ARMED);
    bench_ping(b, 1);
    g_assert_cmpuint(mig(b, 0), ==, EHCA_MIG_ARMED);
    g_assert_cmpint(host_qp_set_mig(b->qps[0], EHCA_MIG_MIGRATED), ==, 0);
    bench_ping(b, 0);
    expect_migrated(b, 1, 1);
    bench_free(b);
}

/* The port's going down alone does nothing to an idle QP. */
static void test_port_down_alone(void)
{
    Bench *b = bench_new(EHCA_SERVICE_RC, true);

    arm(b);
    host_cable_set(b->pair->cables[0], false);
    bench_run(b, 10 * IB_SEC);
    g_assert_cmpuint(mig(b, 0), ==, EHCA_MIG_ARMED);
    g_assert_cmpuint(bench_eqes(b, 0, EHCA_EQE_PATH_MIG), ==, 0);
    bench_events(b);
    g_assert_cmpuint(b->neqes[0][EHCA_NEQE_PORT_AVAIL], >=, 3);
    bench_free(b);
}

/* What is still under way on the old path does no harm. */
static void test_late_packets(void)
{
    Bench *b = bench_new(EHCA_SERVICE_RC, true);

    arm(b);
    g_assert_cmpint(host_qp_set_mig(b->qps[0], EHCA_MIG_MIGRATED), ==, 0);
    bench_ping(b, 0);
    expect_migrated(b, 1, 1);
    for (unsigned i = 0; i < 10; i++) {
        inject(b, ON_PRIMARY, i & 1);  /* of before */
        inject(b, WRONG_SLID, i & 1);
    }
    expect_migrated(b, 1, 1);
    bench_ping(b, 1);
    bench_free(b);
}

static bool lose_base_lids(void *opaque, unsigned end, uint8_t *p,
                           size_t *len)
{
    return p[0] >> 4 == IB_VL_MANAGEMENT || p[3] & 1;
}

/* LMC 1: the alternate is another LID of the same two ports. */
static void test_lmc(void)
{
    Bench *b = bench_new_bare();
    HostPath path[2][2];

    for (unsigned h = 0; h < 2; h++) {
        host_cable_set(b->pair->cables[0], false);
        host_cable_run(b->pair->cables[0]);
        host_cable_set(b->pair->cables[0], true);
    }
    for (unsigned h = 0; h < 2; h++) {
        g_assert_true(host_cable_activate(b->pair->cables[0], h, 0x10 + 2 * h,
                                          1));
        for (unsigned i = 0; i < 2; i++) {
            host_pair_path(h, 0, &path[h][i]);
            path[h][i].dlid = 0x10 + 2 * !h + i;
            path[h][i].path_bits = i;
        }
    }
    connect_by(b, path);
    bench_events(b);
    arm(b);
    b->pair->cables[0]->filter = lose_base_lids;
    bench_ping(b, 0);
    for (unsigned h = 0; h < 2; h++) {
        g_assert_cmpuint(bench_eqes(b, h, EHCA_EQE_PATH_MIG), ==, 1);
        g_assert_cmpuint(host_qp_field(b->qps[h], EHCA_QPCB_PRIM_PHYS_PORT),
                         ==, 1);
        g_assert_cmpuint(host_qp_field(b->qps[h], EHCA_QPCB_DLID), ==,
                         0x11 + 2 * !h);
        g_assert_cmpuint(host_qp_field(b->qps[h],
                                       EHCA_QPCB_SOURCE_PATH_BITS), ==, 1);
    }
    bench_ping(b, 1);
    bench_free(b);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/engine/apm/truth-table", test_truth_table);
    g_test_add_func("/engine/apm/refused-once", test_refused_once);
    g_test_add_func("/engine/apm/pkey-counts", test_pkey_counts);
    g_test_add_func("/engine/apm/requests", test_requests);
    g_test_add_func("/engine/apm/bad-alternates", test_bad_alternates);
    g_test_add_func("/engine/apm/transitions", test_transitions);
    g_test_add_func("/engine/apm/arming", test_arming);
    g_test_add_func("/engine/apm/failover-many", test_failover_many);
    g_test_add_func("/engine/apm/both-paths-dead", test_both_paths_dead);
    g_test_add_func("/engine/apm/unarmed", test_unarmed);
    g_test_add_func("/engine/apm/one-sided", test_one_sided);
    g_test_add_func("/engine/apm/one-rearm", test_one_rearm);
    g_test_add_func("/engine/apm/software", test_software);
    g_test_add_func("/engine/apm/read-and-atomic", test_read_and_atomic);
    g_test_add_func("/engine/apm/migreq-on-wire", test_migreq_on_wire);
    g_test_add_func("/engine/apm/alternate-used", test_alternate_used);
    g_test_add_func("/engine/apm/grh", test_grh);
    g_test_add_func("/engine/apm/alternate-pkey", test_alternate_pkey);
    g_test_add_func("/engine/apm/rnr", test_rnr_does_not_migrate);
    g_test_add_func("/engine/apm/uc", test_uc);
    g_test_add_func("/engine/apm/port-down-alone", test_port_down_alone);
    g_test_add_func("/engine/apm/late-packets", test_late_packets);
    g_test_add_func("/engine/apm/lmc", test_lmc);
    return g_test_run();
}
