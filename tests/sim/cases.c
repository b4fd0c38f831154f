/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Cases with a known course: what section 6 of the APM reference lists, as
 * far as it needs no CM.  Each case is an entry of the table at the end.
 *
 * Theory of operation.  Most cases run on a bench: two hosts, two cables
 * without a fabric, one pair of QPs (host.h).  The bench counts every EQE and
 * NEQ entry by its identifier; a filter on a cable can watch, change and drop
 * packets, and packets made by hand can be put on it.  Cases that need a
 * subnet manager run in a world (world.h) without random faults.
 *
 * A case fails by CHECK(): the condition, its line and where the bench is.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cases.h"
#include "ib/bytes.h"
#include "ib/mad.h"
#include "world.h"

#define BUFFER 65536u
#define RNR_STATUS (EHCA_CQE_STATUS_ERROR | EHCA_CQE_CODE_RNR_RETRY_EXC)
#define RETRY_STATUS (EHCA_CQE_STATUS_ERROR | EHCA_CQE_CODE_RETRY_EXC)
#define TIMEOUT_CODE 10u             /* of host_pair_path() */
#define BUDGET (3 * ib_timeout_ns(TIMEOUT_CODE))
#define SHORT_TIME (1 * IB_MSEC)
#define LONG_TIME (1 * IB_SEC)
#define IDS 64u

static bool verbose;

typedef struct Bench {
    HostPair *pair;
    HostCq *cqs[2];
    HostQp *qps[2];
    HostMr *mrs[2];
    unsigned eqes[2][IDS], neqes[2][IDS];
    unsigned sent[2], received[2];   /* good completions */
    uint32_t status[2];              /* of the last bad one */
    int64_t status_ns[2];
    unsigned bad[2];
    uint64_t wr_id;
    /* What the filter does. */
    bool drop[2][2];                 /* by cable, by end it comes from */
    uint16_t drop_dlid;
    bool clear_migreq;
    IbPacket last[2];                /* on each cable */
    uint8_t bytes[2][IB_RING_DATA_MAX];
    size_t len[2];
    bool failed;
} Bench;

#define CHECK(b, condition) \
    do { \
        if (!(condition)) { \
            check_failed((b), __LINE__, #condition); \
            return; \
        } \
    } while (0)

static void drain(Bench *b);

static void check_failed(Bench *b, int line, const char *condition)
{
    b->failed = true;
    fprintf(stderr, "# cases.c:%d: not true: %s\n", line, condition);
    if (!b->pair) {
        return;
    }
    drain(b);
    for (unsigned h = 0; h < 2; h++) {
        fprintf(stderr, "# %s at %.3f ms: sent %u, received %u, bad %u "
                "(0x%x), PATH_MIG %u, refused %u", b->pair->hosts[h]->name,
                (double)ib_clock_now(&b->pair->clock) / 1e6, b->sent[h],
                b->received[h], b->bad[h], b->status[h],
                b->eqes[h][EHCA_EQE_PATH_MIG],
                b->eqes[h][EHCA_EQE_PATH_MIG_FAILED]);
        if (b->qps[h]) {
            fprintf(stderr, ", QP state %u, migration state %u",
                    host_qp_state(b->qps[h]), host_qp_mig(b->qps[h]));
        }
        fprintf(stderr, ", adapter said: %s\n",
                b->pair->hosts[h]->last_guest_error);
    }
}

/* ------------------------------------------------------------------ */
/* The bench                                                          */
/* ------------------------------------------------------------------ */

static void on_event(void *opaque, Host *host, const EhcaEvent *event)
{
    char json[512];

    if (verbose) {
        ehca_event_json(event, json, sizeof(json));
        printf("# %s %s\n", host->name, json);
    }
}

static bool on_packet(Bench *b, unsigned cable, unsigned end, uint8_t *p,
                      size_t *len)
{
    IbPacket *pkt = &b->last[cable];

    ib_packet_parse(pkt, p, *len);
    memcpy(b->bytes[cable], p, *len);
    b->len[cable] = *len;
    if (b->drop[cable][end] ||
        (b->drop_dlid && pkt->lrh.dlid == b->drop_dlid)) {
        return false;
    }
    if (b->clear_migreq) {
        p[(pkt->has_grh ? IB_GRH_LEN : 0) + IB_LRH_LEN + 1] &= ~0x40;
        host_packet_seal(p, *len);
    }
    return true;
}

static bool filter_0(void *opaque, unsigned end, uint8_t *p, size_t *len)
{
    return on_packet(opaque, 0, end, p, len);
}

static bool filter_1(void *opaque, unsigned end, uint8_t *p, size_t *len)
{
    return on_packet(opaque, 1, end, p, len);
}

static void bench_open(Bench *b)
{
    memset(b, 0, sizeof(*b));
    b->pair = host_pair_new(on_event, b);
    b->pair->cables[0]->filter = filter_0;
    b->pair->cables[1]->filter = filter_1;
    for (unsigned r = 0; r < 2; r++) {
        b->pair->cables[r]->filter_opaque = b;
    }
    for (unsigned h = 0; h < 2; h++) {
        b->cqs[h] = host_cq_new(b->pair->hosts[h], 256);
        b->mrs[h] = host_mr_new(b->pair->hosts[h], BUFFER,
                                EHCA_MR_LOCAL_WRITE | EHCA_MR_REMOTE_WRITE |
                                EHCA_MR_REMOTE_READ | EHCA_MR_REMOTE_ATOMIC);
    }
    drain(b);
}

static void bench_connect(Bench *b, unsigned service, bool apm)
{
    host_pair_connect(b->pair, service, 0, apm, b->cqs, b->qps);
}

static void drain(Bench *b)
{
    for (unsigned h = 0; h < 2; h++) {
        HostEqe eqe;
        HostCqe cqe;

        while (host_next_eqe(b->pair->hosts[h], &eqe)) {
            b->eqes[h][eqe.id % IDS]++;
        }
        while (host_next_neqe(b->pair->hosts[h], &eqe)) {
            b->neqes[h][eqe.id % IDS]++;
        }
        while (b->cqs[h] && host_cq_poll(b->cqs[h], &cqe, 1)) {
            if (cqe.status) {
                b->bad[h]++;
                b->status[h] = cqe.status;
                b->status_ns[h] = ib_clock_now(&b->pair->clock);
            } else if (cqe.flags & EHCA_CQE_FLAG_RECV) {
                b->received[h]++;
            } else {
                b->sent[h]++;
            }
        }
    }
}

/* Completions are looked at as they come: status_ns is their time. */
static bool drained(void *opaque)
{
    drain(opaque);
    return false;
}

static void run(Bench *b, int64_t ns)
{
    host_pair_run(b->pair, ns, drained, b);
}

static void post_recv(Bench *b, unsigned h)
{
    HostRecvWr wr = {
        .wr_id = b->wr_id++, .num_sges = 1,
        .sges = { host_sge(b->mrs[h], BUFFER / 2, BUFFER / 2) },
    };

    host_post_recv(b->qps[h], &wr);
    host_ring(b->qps[h]);
}

static void post_op(Bench *b, unsigned h, uint8_t optype, uint32_t len)
{
    HostSendWr wr = {
        .wr_id = b->wr_id++, .optype = optype,
        .flags = EHCA_WQE_FLAG_SIGNALED, .num_sges = 1,
        .sges = { host_sge(b->mrs[h], 0, len) },
        .raddr = b->mrs[!h]->iova + BUFFER / 4, .rkey = b->mrs[!h]->rkey,
        .operand = { 1, 0 },
    };

    host_post_send(b->qps[h], &wr);
    host_ring(b->qps[h]);
}

static void post_send(Bench *b, unsigned h, uint32_t len)
{
    post_op(b, h, EHCA_WQE_OPTYPE_SEND, len);
}

/* One message from @h, received and acknowledged? */
static bool exchange(Bench *b, unsigned h)
{
    unsigned received = b->received[!h], sent = b->sent[h];

    post_recv(b, !h);
    post_send(b, h, 100);
    run(b, SHORT_TIME);
    return b->received[!h] == received + 1 && b->sent[h] == sent + 1;
}

static unsigned mig(Bench *b, unsigned h)
{
    return host_qp_mig(b->qps[h]);
}

static bool both_mig(Bench *b, unsigned state)
{
    return mig(b, 0) == state && mig(b, 1) == state;
}

static void pull(Bench *b, unsigned rail)
{
    host_cable_set(b->pair->cables[rail], false);
}

static void restore(Bench *b, unsigned rail)
{
    host_cable_set(b->pair->cables[rail], true);
    host_pair_activate(b->pair, rail);
    run(b, 0);
}

/* Both sides load rail @alternate and ask for REARM. */
static bool rearm(Bench *b, unsigned alternate)
{
    for (unsigned h = 0; h < 2; h++) {
        HostPath path;

        host_pair_path(h, alternate, &path);
        if (host_qp_load_alt(b->qps[h], &path, EHCA_MIG_REARM) !=
            EHCA_RC_SUCCESS) {
            return false;
        }
    }
    return true;
}

static unsigned path_migs(const Bench *b, unsigned h)
{
    return b->eqes[h][EHCA_EQE_PATH_MIG];
}

/* Both moved once, and nothing went wrong. */
static bool moved_once(Bench *b)
{
    return path_migs(b, 0) == 1 && path_migs(b, 1) == 1 &&
           b->bad[0] == 0 && b->bad[1] == 0 &&
           both_mig(b, EHCA_MIG_MIGRATED);
}

static void armed_bench(Bench *b, unsigned service)
{
    bench_connect(b, service, true);
    exchange(b, 0);
    if (service == EHCA_SERVICE_UC) {
        exchange(b, 1);
    }
}

/* ------------------------------------------------------------------ */
/* APM on the data path                                               */
/* ------------------------------------------------------------------ */

/* 1 */
static void pull_under_load(Bench *b)
{
    armed_bench(b, EHCA_SERVICE_RC);
    CHECK(b, both_mig(b, EHCA_MIG_ARMED));
    pull(b, 0);
    for (unsigned i = 0; i < 20; i++) {
        for (unsigned h = 0; h < 2; h++) {
            post_recv(b, h);
            post_send(b, h, 5000);
        }
    }
    run(b, LONG_TIME);
    CHECK(b, moved_once(b));
    CHECK(b, b->sent[0] == 21 && b->received[1] == 21);
    CHECK(b, b->sent[1] == 20 && b->received[0] == 20);
}

/* 2: answers lost with the path; executed once all the same. */
static void read_and_atomic_outstanding(Bench *b)
{
    uint64_t *counter;

    armed_bench(b, EHCA_SERVICE_RC);
    counter = (uint64_t *)(void *)(b->mrs[1]->bytes + BUFFER / 4);
    ib_put64(counter, 41);
    b->drop[0][1] = true;
    post_op(b, 0, EHCA_WQE_OPTYPE_FETCH_ADD, 8);
    run(b, SHORT_TIME);
    CHECK(b, ib_get64(counter) == 42 && b->sent[0] == 1);
    post_op(b, 0, EHCA_WQE_OPTYPE_RDMA_READ, 9000);
    run(b, SHORT_TIME);
    pull(b, 0);
    /* The READ brings the sum: 42, not 43. */
    run(b, LONG_TIME);
    CHECK(b, moved_once(b));
    CHECK(b, ib_get64(counter) == 42 && b->sent[0] == 3);
    CHECK(b, ib_get64(b->mrs[0]->bytes) == 42);
}

/* 3 */
static void idle_after_rearm(Bench *b)
{
    bench_connect(b, EHCA_SERVICE_RC, true);
    CHECK(b, both_mig(b, EHCA_MIG_REARM));
    run(b, LONG_TIME);
    CHECK(b, both_mig(b, EHCA_MIG_REARM));
    pull(b, 0);
    post_send(b, 0, 100);
    run(b, LONG_TIME);
    CHECK(b, b->bad[0] == 1 && b->status[0] == RETRY_STATUS);
    CHECK(b, host_qp_state(b->qps[0]) == EHCA_QPS_ERR);
    CHECK(b, host_qp_state(b->qps[1]) == EHCA_QPS_RTS);
    CHECK(b, path_migs(b, 0) == 0 && path_migs(b, 1) == 0);
}

/* 4 */
static void one_send_arms_both(Bench *b)
{
    bench_connect(b, EHCA_SERVICE_RC, true);
    CHECK(b, exchange(b, 0));
    CHECK(b, both_mig(b, EHCA_MIG_ARMED));
}

/* 5 */
static void one_sided_rearm(Bench *b)
{
    HostPath path;

    bench_connect(b, EHCA_SERVICE_RC, false);
    host_pair_path(0, 1, &path);
    CHECK(b, host_qp_load_alt(b->qps[0], &path, EHCA_MIG_REARM) ==
             EHCA_RC_SUCCESS);
    for (unsigned i = 0; i < 10; i++) {
        CHECK(b, exchange(b, i & 1));
    }
    CHECK(b, mig(b, 0) == EHCA_MIG_REARM && mig(b, 1) == EHCA_MIG_MIGRATED);
}

/* 6: A ARMED, B REARM; A migrates, B cannot follow. */
static void asymmetric_arm(Bench *b)
{
    bench_connect(b, EHCA_SERVICE_RC, true);
    b->drop[0][0] = true;            /* what A sends: its ACK */
    post_recv(b, 0);
    post_send(b, 1, 100);
    run(b, 100 * IB_USEC);
    CHECK(b, mig(b, 0) == EHCA_MIG_ARMED && mig(b, 1) == EHCA_MIG_REARM);
    CHECK(b, host_qp_set_mig(b->qps[0], EHCA_MIG_MIGRATED) ==
             EHCA_RC_SUCCESS);
    post_recv(b, 1);
    post_send(b, 0, 100);
    run(b, LONG_TIME);
    CHECK(b, b->bad[0] == 1 && b->status[0] == RETRY_STATUS);
    CHECK(b, b->received[1] == 0);
    CHECK(b, path_migs(b, 0) == 1 && path_migs(b, 1) == 0);
}

/* 7 */
static void software_migrated(Bench *b)
{
    armed_bench(b, EHCA_SERVICE_RC);
    CHECK(b, host_qp_set_mig(b->qps[0], EHCA_MIG_MIGRATED) ==
             EHCA_RC_SUCCESS);
    run(b, 0);
    CHECK(b, path_migs(b, 0) == 1 && path_migs(b, 1) == 0);
    CHECK(b, mig(b, 0) == EHCA_MIG_MIGRATED && mig(b, 1) == EHCA_MIG_ARMED);
    CHECK(b, exchange(b, 0));
    CHECK(b, moved_once(b));
    CHECK(b, exchange(b, 1));
    /* Once more is no migration. */
    CHECK(b, host_qp_set_mig(b->qps[0], EHCA_MIG_MIGRATED) ==
             EHCA_RC_SUCCESS);
    run(b, 0);
    CHECK(b, moved_once(b));
}

/* A packet of the left host to the right one, made by hand. */
typedef struct Forged {
    const char *name;
    bool rearm, armed;               /* state of the receiver */
    unsigned rail;                   /* cable it comes by */
    bool migreq;
    uint8_t opcode;
    uint16_t slid;                   /* 0: the right one of that rail */
    uint16_t pkey;                   /* 0: the default */
    bool grh;
    unsigned to_mig;                 /* migration state afterwards */
    bool refused;
} Forged;

#define ACK IB_OP_ACK

static const Forged forged[] = {
    /* MIGRATED: the primary path counts, MigReq does not (1.4). */
    { "migrated/primary/0", false, false, 0, false, ACK, 0, 0, false,
      EHCA_MIG_MIGRATED, false },
    { "migrated/primary/1", false, false, 0, true, ACK, 0, 0, false,
      EHCA_MIG_MIGRATED, false },
    { "migrated/alternate/1", false, false, 1, true, ACK, 0, 0, false,
      EHCA_MIG_MIGRATED, false },
    /* REARM */
    { "rearm/primary/0", true, false, 0, false, ACK, 0, 0, false,
      EHCA_MIG_ARMED, false },
    { "rearm/primary/1", true, false, 0, true, ACK, 0, 0, false,
      EHCA_MIG_REARM, false },
    { "rearm/alternate/0", true, false, 1, false, ACK, 0, 0, false,
      EHCA_MIG_REARM, false },
    { "rearm/alternate/1", true, false, 1, true, ACK, 0, 0, false,
      EHCA_MIG_REARM, false },
    { "rearm/wrong slid/0", true, false, 0, false, ACK, 9, 0, false,
      EHCA_MIG_REARM, false },
    /* ARMED */
    { "armed/primary/0", true, true, 0, false, ACK, 0, 0, false,
      EHCA_MIG_ARMED, false },
    { "armed/alternate/0", true, true, 1, false, ACK, 0, 0, false,
      EHCA_MIG_ARMED, false },
    { "armed/primary/1", true, true, 0, true, ACK, 0, 0, false,
      EHCA_MIG_ARMED, true },
    { "armed/alternate/1: ACK", true, true, 1, true, ACK, 0, 0, false,
      EHCA_MIG_MIGRATED, false },
    { "armed/alternate/1: duplicate", true, true, 1, true, IB_OP_SEND_ONLY,
      0, 0, false, EHCA_MIG_MIGRATED, false },
    { "armed/alternate/1: READ response", true, true, 1, true,
      IB_OP_READ_RESP_ONLY, 0, 0, false, EHCA_MIG_MIGRATED, false },
    { "armed/alternate/1: wrong slid", true, true, 1, true, ACK, 9, 0, false,
      EHCA_MIG_ARMED, true },
    { "armed/alternate/1: slid of the primary", true, true, 1, true, ACK, 1,
      0, false, EHCA_MIG_ARMED, true },
    { "armed/alternate/1: right slid, wrong port", true, true, 0, true, ACK,
      3, 0, false, EHCA_MIG_ARMED, true },
    { "armed/alternate/1: wrong P_Key", true, true, 1, true, ACK, 0, 0x8123,
      false, EHCA_MIG_ARMED, true },
    { "armed/alternate/1: GRH", true, true, 1, true, ACK, 0, 0, true,
      EHCA_MIG_ARMED, true },
};

static bool forge(Bench *b, const Forged *f)
{
    uint8_t p[IB_PACKET_MAX] = { 0 };
    IbPacket pkt = {
        .lrh = {
            .lnh = f->grh ? IB_LNH_GLOBAL : IB_LNH_LOCAL,
            .dlid = host_pair_lid(1, f->rail + 1),
            .slid = f->slid ? f->slid : host_pair_lid(0, f->rail + 1),
        },
        .bth = {
            .opcode = IB_TRANSPORT_RC | f->opcode, .migreq = f->migreq,
            .pkey = f->pkey ? f->pkey : IB_PKEY_DEFAULT,
            .dest_qpn = b->qps[1]->qpn,
            /* Long acknowledged, long received. */
            .psn = 0xF0,
        },
        .aeth = { .syndrome = IB_AETH_ACK | IB_AETH_VALUE_MASK },
        .has_grh = f->grh,
    };
    size_t header_len;

    host_gid(b->pair->hosts[0], f->rail + 1, pkt.grh.sgid);
    host_gid(b->pair->hosts[1], f->rail + 1, pkt.grh.dgid);
    pkt.grh.next_header = 0x1B;
    pkt.grh.hop_limit = 1;
    header_len = ib_packet_put_headers(p, &pkt, 0);
    return host_cable_inject(b->pair->cables[f->rail], 1, p,
                             ib_packet_finish(p, header_len, 0));
}

/* 8, 9, 10, 14, 24: the truth table, row by row. */
static void truth_table(Bench *b)
{
    for (size_t i = 0; i < sizeof(forged) / sizeof(forged[0]); i++) {
        const Forged *f = &forged[i];
        HostPortInfo before, after;

        if (i > 0) {
            host_pair_free(b->pair);
            bench_open(b);
        }
        if (verbose) {
            printf("# %s\n", f->name);
        }
        bench_connect(b, EHCA_SERVICE_RC, f->rearm);
        if (f->armed) {
            exchange(b, 0);
        }
        run(b, 0);
        host_query_port(b->pair->hosts[1], f->rail + 1, &before);
        CHECK(b, forge(b, f));
        run(b, 0);
        host_query_port(b->pair->hosts[1], f->rail + 1, &after);
        if (mig(b, 1) != f->to_mig ||
            path_migs(b, 1) != (f->armed && f->to_mig == EHCA_MIG_MIGRATED) ||
            b->eqes[1][EHCA_EQE_PATH_MIG_FAILED] != f->refused ||
            after.pkey_violations - before.pkey_violations !=
            (f->pkey != 0) || b->bad[1]) {
            fprintf(stderr, "# row \"%s\", P_Key violations %u\n", f->name,
                    after.pkey_violations - before.pkey_violations);
            check_failed(b, __LINE__, "what the table says");
            return;
        }
        /* Nothing was harmed. */
        if (f->to_mig != EHCA_MIG_MIGRATED || !f->armed) {
            CHECK(b, exchange(b, 0));
            CHECK(b, exchange(b, 1));
        }
    }
}

/* 11 */
static void uc_follows_peer(Bench *b)
{
    armed_bench(b, EHCA_SERVICE_UC);
    CHECK(b, both_mig(b, EHCA_MIG_ARMED));
    pull(b, 0);
    for (unsigned i = 0; i < 10; i++) {
        post_recv(b, 1);
        post_send(b, 0, 100);
        run(b, 100 * IB_MSEC);
    }
    /* Sent, lost, and nobody moved. */
    CHECK(b, b->sent[0] == 11 && b->received[1] == 1);
    CHECK(b, both_mig(b, EHCA_MIG_ARMED));
    CHECK(b, host_qp_set_mig(b->qps[1], EHCA_MIG_MIGRATED) ==
             EHCA_RC_SUCCESS);
    CHECK(b, exchange(b, 1));
    CHECK(b, moved_once(b));
    CHECK(b, exchange(b, 0));
}

static void connect_with(Bench *b, unsigned rnr_retry)
{
    for (unsigned h = 0; h < 2; h++) {
        b->qps[h] = host_qp_new(b->pair->hosts[h], EHCA_SERVICE_RC,
                                b->cqs[h], b->cqs[h], 64, 64);
    }
    for (unsigned h = 0; h < 2; h++) {
        HostPath primary, alternate;

        host_pair_path(h, 0, &primary);
        host_pair_path(h, 1, &alternate);
        primary.rnr_retry_count = alternate.rnr_retry_count = rnr_retry;
        if (host_qp_init(b->qps[h], 1) != EHCA_RC_SUCCESS ||
            host_qp_rtr(b->qps[h], &primary, &alternate, EHCA_MTU_1024,
                        b->qps[!h]->qpn, 0) != EHCA_RC_SUCCESS ||
            host_qp_rts(b->qps[h], &primary, 0, true) != EHCA_RC_SUCCESS) {
            check_failed(b, __LINE__, "connected");
        }
    }
}

/* 12 */
static void rnr_does_not_migrate(Bench *b)
{
    connect_with(b, 2);
    CHECK(b, exchange(b, 0));
    CHECK(b, both_mig(b, EHCA_MIG_ARMED));
    post_send(b, 0, 100);            /* nobody wants it */
    run(b, LONG_TIME);
    CHECK(b, b->bad[0] == 1 && b->status[0] == RNR_STATUS);
    CHECK(b, path_migs(b, 0) == 0 && path_migs(b, 1) == 0);
}

/* 13, 26 */
static void alternate_dead_too(Bench *b)
{
    int64_t start;

    armed_bench(b, EHCA_SERVICE_RC);
    pull(b, 0);
    pull(b, 1);
    start = ib_clock_now(&b->pair->clock);
    post_send(b, 0, 100);
    run(b, BUDGET - 1);
    CHECK(b, path_migs(b, 0) == 0);
    run(b, 1);
    CHECK(b, path_migs(b, 0) == 1 && b->bad[0] == 0);
    run(b, LONG_TIME);
    /* A full new budget on the new path. */
    CHECK(b, b->bad[0] == 1 && b->status[0] == RETRY_STATUS);
    CHECK(b, b->status_ns[0] - start == 2 * BUDGET);
    CHECK(b, path_migs(b, 0) == 1 && path_migs(b, 1) == 0);
}

/* 14: what was sent before the migration comes after it. */
static void late_packet(Bench *b)
{
    armed_bench(b, EHCA_SERVICE_RC);
    post_recv(b, 1);
    b->drop[0][0] = true;
    post_send(b, 0, 100);
    run(b, 0);
    b->drop[0][0] = false;
    CHECK(b, host_qp_set_mig(b->qps[0], EHCA_MIG_MIGRATED) ==
             EHCA_RC_SUCCESS);
    run(b, SHORT_TIME);
    CHECK(b, moved_once(b) && b->received[1] == 2);
    CHECK(b, host_cable_inject(b->pair->cables[0], 1, b->bytes[0],
                               b->len[0]));
    run(b, SHORT_TIME);
    CHECK(b, moved_once(b) && b->received[1] == 2);
    CHECK(b, exchange(b, 0));
}

/* 15 */
static void ping_pong(Bench *b)
{
    armed_bench(b, EHCA_SERVICE_RC);
    for (unsigned i = 0; i < 100; i++) {
        unsigned rail = i & 1;

        CHECK(b, both_mig(b, EHCA_MIG_ARMED));
        pull(b, rail);
        post_recv(b, !rail);
        post_send(b, rail, 3000);
        run(b, 4 * BUDGET);
        CHECK(b, path_migs(b, 0) == i + 1 && path_migs(b, 1) == i + 1);
        CHECK(b, b->bad[0] == 0 && b->bad[1] == 0);
        restore(b, rail);
        CHECK(b, rearm(b, rail));
        CHECK(b, exchange(b, i & 1));
    }
    CHECK(b, b->sent[0] + b->sent[1] == 201);
}

/* 16: two LIDs of one port. */
static void alternate_by_lmc(Bench *b)
{
    HostPath paths[2][2];

    pull(b, 0);
    run(b, SHORT_TIME);
    host_cable_set(b->pair->cables[0], true);
    for (unsigned h = 0; h < 2; h++) {
        CHECK(b, host_cable_activate(b->pair->cables[0], h, 8 + 4 * h, 1));
        b->qps[h] = host_qp_new(b->pair->hosts[h], EHCA_SERVICE_RC,
                                b->cqs[h], b->cqs[h], 64, 64);
    }
    for (unsigned h = 0; h < 2; h++) {
        for (unsigned i = 0; i < 2; i++) {
            host_pair_path(h, 0, &paths[h][i]);
            paths[h][i].dlid = 8 + 4 * !h + i;
            paths[h][i].path_bits = i;
        }
        CHECK(b, host_qp_init(b->qps[h], 1) == EHCA_RC_SUCCESS);
        CHECK(b, host_qp_rtr(b->qps[h], &paths[h][0], &paths[h][1],
                             EHCA_MTU_1024, b->qps[!h]->qpn, 0) ==
                 EHCA_RC_SUCCESS);
        CHECK(b, host_qp_rts(b->qps[h], &paths[h][0], 0, true) ==
                 EHCA_RC_SUCCESS);
    }
    CHECK(b, exchange(b, 0));
    CHECK(b, both_mig(b, EHCA_MIG_ARMED));
    CHECK(b, b->last[0].lrh.slid == 12 && b->last[0].lrh.dlid == 8);
    b->drop_dlid = 12;               /* the way to base LID is broken */
    post_recv(b, 1);
    post_send(b, 0, 100);
    run(b, LONG_TIME);
    CHECK(b, moved_once(b) && b->received[1] == 2);
    CHECK(b, b->last[0].lrh.slid == 13 && b->last[0].lrh.dlid == 9);
}

/* 17, 18 */
static void alternate_really_used(Bench *b)
{
    const unsigned timeout = TIMEOUT_CODE + 2;
    int64_t start;

    bench_connect(b, EHCA_SERVICE_RC, false);
    for (unsigned h = 0; h < 2; h++) {
        HostPath path;

        host_pair_path(h, 1, &path);
        path.sl = 3;
        path.timeout = timeout;
        path.grh = true;
        path.hop_limit = 7;
        path.traffic_class = 5;
        path.flow_label = 0x12345;
        host_gid(b->pair->hosts[!h], 2, path.dgid);
        CHECK(b, host_qp_load_alt(b->qps[h], &path, EHCA_MIG_REARM) ==
                 EHCA_RC_SUCCESS);
    }
    CHECK(b, exchange(b, 0));
    CHECK(b, both_mig(b, EHCA_MIG_ARMED));
    CHECK(b, b->last[0].lrh.sl == 0 && !b->last[0].has_grh);
    CHECK(b, host_qp_set_mig(b->qps[1], EHCA_MIG_MIGRATED) ==
             EHCA_RC_SUCCESS);
    CHECK(b, exchange(b, 1));
    CHECK(b, moved_once(b));
    CHECK(b, exchange(b, 0));
    CHECK(b, b->last[1].lrh.sl == 3 && b->last[1].has_grh);
    CHECK(b, b->last[1].grh.hop_limit == 7 &&
             b->last[1].grh.traffic_class == 5 &&
             b->last[1].grh.flow_label == 0x12345);
    for (unsigned h = 0; h < 2; h++) {
        HostQp *qp = b->qps[h];

        CHECK(b, host_qp_field(qp, EHCA_QPCB_PRIM_PHYS_PORT) == 2);
        CHECK(b, host_qp_field(qp, EHCA_QPCB_ALT_PHYS_PORT) == 2);
        CHECK(b, host_qp_field(qp, EHCA_QPCB_DLID) == host_pair_lid(!h, 2));
        CHECK(b, host_qp_field(qp, EHCA_QPCB_DLID_AL) ==
                 host_pair_lid(!h, 2));
        CHECK(b, host_qp_field(qp, EHCA_QPCB_SERVICE_LEVEL) == 3);
        CHECK(b, host_qp_field(qp, EHCA_QPCB_SEND_GRH_FLAG) == 1);
        CHECK(b, host_qp_field(qp, EHCA_QPCB_TIMEOUT) == timeout);
    }
    /* Retries follow the alternate's timeout now. */
    pull(b, 1);
    start = ib_clock_now(&b->pair->clock);
    post_send(b, 0, 100);
    run(b, LONG_TIME);
    CHECK(b, b->status[0] == RETRY_STATUS);
    CHECK(b, b->status_ns[0] - start == 3 * ib_timeout_ns(timeout));
}

/* 19 */
static void refused_requests(Bench *b)
{
    HostPath path;

    bench_connect(b, EHCA_SERVICE_RC, false);
    CHECK(b, host_qp_set_mig(b->qps[0], EHCA_MIG_REARM) != EHCA_RC_SUCCESS);
    CHECK(b, host_qp_set_mig(b->qps[0], EHCA_MIG_ARMED) != EHCA_RC_SUCCESS);
    CHECK(b, host_qp_set_mig(b->qps[0], 0) != EHCA_RC_SUCCESS);
    CHECK(b, host_qp_set_mig(b->qps[0], 4) != EHCA_RC_SUCCESS);
    CHECK(b, both_mig(b, EHCA_MIG_MIGRATED));
    CHECK(b, rearm(b, 1));
    CHECK(b, host_qp_set_mig(b->qps[0], EHCA_MIG_MIGRATED) !=
             EHCA_RC_SUCCESS);
    CHECK(b, host_qp_set_mig(b->qps[0], EHCA_MIG_ARMED) != EHCA_RC_SUCCESS);
    CHECK(b, both_mig(b, EHCA_MIG_REARM));
    CHECK(b, exchange(b, 0));
    host_pair_path(0, 1, &path);
    CHECK(b, host_qp_load_alt(b->qps[0], &path, EHCA_MIG_REARM) !=
             EHCA_RC_SUCCESS);
    CHECK(b, host_qp_set_mig(b->qps[0], EHCA_MIG_REARM) != EHCA_RC_SUCCESS);
    CHECK(b, both_mig(b, EHCA_MIG_ARMED));
    CHECK(b, path_migs(b, 0) == 0 && path_migs(b, 1) == 0);
}

/* 20 */
static void bad_alternate(Bench *b)
{
    HostPath good, bad;
    HostQp *ud;

    bench_connect(b, EHCA_SERVICE_RC, false);
    host_pair_path(0, 1, &good);
    bad = good;
    bad.port = 0;
    CHECK(b, host_qp_load_alt(b->qps[0], &bad, 0) != EHCA_RC_SUCCESS);
    bad.port = 3;
    CHECK(b, host_qp_load_alt(b->qps[0], &bad, 0) != EHCA_RC_SUCCESS);
    bad = good;
    bad.pkey_index = 16;
    CHECK(b, host_qp_load_alt(b->qps[0], &bad, 0) != EHCA_RC_SUCCESS);
    bad = good;
    bad.dlid = 0xC001;
    CHECK(b, host_qp_load_alt(b->qps[0], &bad, 0) != EHCA_RC_SUCCESS);
    bad.dlid = 0;
    CHECK(b, host_qp_load_alt(b->qps[0], &bad, 0) != EHCA_RC_SUCCESS);
    CHECK(b, host_qp_field(b->qps[0], EHCA_QPCB_DLID_AL) == 0);
    CHECK(b, host_qp_set_mig(b->qps[0], EHCA_MIG_REARM) != EHCA_RC_SUCCESS);
    ud = host_qp_new(b->pair->hosts[0], EHCA_SERVICE_UD, b->cqs[0],
                     b->cqs[0], 4, 4);
    CHECK(b, host_qp_ud_init(ud, 1, 1) == EHCA_RC_SUCCESS);
    CHECK(b, host_qp_ud_ready(ud, 0) == EHCA_RC_SUCCESS);
    CHECK(b, host_qp_load_alt(ud, &good, 0) != EHCA_RC_SUCCESS);
    CHECK(b, host_qp_set_mig(ud, EHCA_MIG_REARM) != EHCA_RC_SUCCESS);
    CHECK(b, exchange(b, 0));
}

static int64_t load_in(HostQp *qp, unsigned state)
{
    uint8_t *block = host_block(qp->host);
    HostPath path;

    host_pair_path(0, 1, &path);
    memset(block, 0, EHCA_CB_SIZE);
    ib_put32(block + EHCA_QPCB_QP_STATE, state);
    return host_qp_modify(qp, EHCA_QPMASK_QP_STATE |
                          host_put_path(block, &path, true), NULL);
}

/* 21; INIT to RTR and RTS to RTS are what all others do. */
static void transitions_with_alternate(Bench *b)
{
    bench_connect(b, EHCA_SERVICE_RC, false);
    CHECK(b, load_in(b->qps[0], EHCA_QPS_SQD) != EHCA_RC_SUCCESS);
    CHECK(b, host_qp_state(b->qps[0]) == EHCA_QPS_RTS);
    CHECK(b, host_qp_to(b->qps[0], EHCA_QPS_SQD) == EHCA_RC_SUCCESS);
    run(b, SHORT_TIME);
    CHECK(b, b->eqes[0][EHCA_EQE_SQ_DRAINED] == 1);
    CHECK(b, load_in(b->qps[0], EHCA_QPS_SQD) == EHCA_RC_SUCCESS);
    CHECK(b, host_qp_field(b->qps[0], EHCA_QPCB_DLID_AL) ==
             host_pair_lid(1, 2));
    CHECK(b, load_in(b->qps[0], EHCA_QPS_RTS) == EHCA_RC_SUCCESS);
    CHECK(b, exchange(b, 0));
    CHECK(b, host_qp_to(b->qps[0], EHCA_QPS_RESET) == EHCA_RC_SUCCESS);
    CHECK(b, load_in(b->qps[0], EHCA_QPS_INIT) != EHCA_RC_SUCCESS);
}

/* 22 */
static void reload_while_armed(Bench *b)
{
    HostPath path;

    armed_bench(b, EHCA_SERVICE_RC);
    host_pair_path(0, 1, &path);
    CHECK(b, host_qp_load_alt(b->qps[0], &path, 0) == EHCA_RC_SUCCESS);
    CHECK(b, both_mig(b, EHCA_MIG_ARMED));
    pull(b, 0);
    post_recv(b, 1);
    post_send(b, 0, 100);
    run(b, LONG_TIME);
    CHECK(b, moved_once(b) && b->received[1] == 2);
}

/* 23 */
static void loopback_never_arms(Bench *b)
{
    HostPath primary, alternate;
    HostQp *qps[2];

    for (unsigned i = 0; i < 2; i++) {
        qps[i] = host_qp_new(b->pair->hosts[0], EHCA_SERVICE_RC, b->cqs[0],
                             b->cqs[0], 16, 16);
    }
    host_pair_path(0, 0, &primary);
    host_pair_path(0, 1, &alternate);
    primary.dlid = host_pair_lid(0, 1);
    alternate.dlid = host_pair_lid(0, 2);
    for (unsigned i = 0; i < 2; i++) {
        CHECK(b, host_qp_init(qps[i], 1) == EHCA_RC_SUCCESS);
        CHECK(b, host_qp_rtr(qps[i], &primary, &alternate, EHCA_MTU_1024,
                             qps[!i]->qpn, 0) == EHCA_RC_SUCCESS);
        CHECK(b, host_qp_rts(qps[i], &primary, 0, true) == EHCA_RC_SUCCESS);
    }
    for (unsigned i = 0; i < 2; i++) {
        HostRecvWr recv = {
            .num_sges = 1, .sges = { host_sge(b->mrs[0], 4096, 4096) },
        };
        HostSendWr send = {
            .optype = EHCA_WQE_OPTYPE_SEND, .flags = EHCA_WQE_FLAG_SIGNALED,
            .num_sges = 1, .sges = { host_sge(b->mrs[0], 0, 4096) },
        };

        host_post_recv(qps[!i], &recv);
        host_ring(qps[!i]);
        host_post_send(qps[i], &send);
        host_ring(qps[i]);
        run(b, SHORT_TIME);
    }
    CHECK(b, b->sent[0] == 2 && b->received[0] == 2);
    CHECK(b, host_qp_mig(qps[0]) == EHCA_MIG_REARM);
    CHECK(b, host_qp_mig(qps[1]) == EHCA_MIG_REARM);
}

/* 24 */
static void peer_that_sends_migreq_0(Bench *b)
{
    b->clear_migreq = true;
    bench_connect(b, EHCA_SERVICE_RC, false);
    for (unsigned i = 0; i < 10; i++) {
        CHECK(b, exchange(b, i & 1));
    }
    CHECK(b, both_mig(b, EHCA_MIG_MIGRATED));
    pull(b, 0);
    post_send(b, 0, 100);
    run(b, LONG_TIME);
    CHECK(b, b->status[0] == RETRY_STATUS);
    CHECK(b, path_migs(b, 0) == 0 && path_migs(b, 1) == 0);
}

/* A QP that never armed is told of no migration, whatever comes. */
static void unarmed_gets_no_event(Bench *b)
{
    bench_connect(b, EHCA_SERVICE_RC, true);
    for (unsigned rail = 0; rail < 2; rail++) {
        for (unsigned migreq = 0; migreq < 2; migreq++) {
            Forged f = {
                .rail = rail, .migreq = migreq || rail == 0,
                .opcode = IB_OP_ACK,
            };

            CHECK(b, forge(b, &f));
        }
    }
    run(b, SHORT_TIME);
    CHECK(b, mig(b, 1) == EHCA_MIG_REARM && path_migs(b, 1) == 0);
    CHECK(b, b->eqes[1][EHCA_EQE_PATH_MIG_FAILED] == 0);
}

/* ------------------------------------------------------------------ */
/* Ports                                                              */
/* ------------------------------------------------------------------ */

static unsigned port_state(Bench *b, unsigned h, unsigned port)
{
    HostPortInfo info;

    host_query_port(b->pair->hosts[h], port, &info);
    return info.state;
}

/* 53 */
static void dark_port(Bench *b)
{
    pull(b, 1);
    run(b, LONG_TIME);
    memset(b->neqes, 0, sizeof(b->neqes));
    CHECK(b, port_state(b, 0, 2) == EHCA_PORT_STATE_DOWN);
    bench_connect(b, EHCA_SERVICE_RC, false);
    CHECK(b, exchange(b, 0));
    CHECK(b, b->neqes[0][EHCA_NEQE_PORT_AVAIL] == 0);
    restore(b, 1);
    run(b, SHORT_TIME);
    CHECK(b, port_state(b, 0, 2) == EHCA_PORT_STATE_ACTIVE);
    CHECK(b, b->neqes[0][EHCA_NEQE_PORT_AVAIL] == 1);
    CHECK(b, rearm(b, 1));
    CHECK(b, exchange(b, 0));
    CHECK(b, both_mig(b, EHCA_MIG_ARMED));
}

/* 54 */
static void qp1_moves_the_port(Bench *b)
{
    HostOptions options = { .name = "third", .num_ports = 2, .quiet = true };
    Host *third = host_new(&options, &b->pair->clock);
    bool before = third->wants_link[1], after, removed;

    host_start(third);
    after = third->wants_link[1];
    host_qp_free(third->gsi[1]);
    removed = !third->wants_link[1] && third->wants_link[2];
    host_free(third);
    CHECK(b, !before && after && removed);
}

/* 55 */
static void cm_capability(Bench *b)
{
    Host *h = b->pair->hosts[0];
    HostPortInfo info;
    uint64_t in[9] = { h->config.handle, 1 }, out[9];

    host_query_port(h, 1, &info);
    CHECK(b, !(info.capability_mask & IB_CAP_CM));
    in[2] = info.capability_mask | IB_CAP_CM;
    CHECK(b, host_hcall(h, EHCA_H_MODIFY_PORT, in, out) == EHCA_RC_SUCCESS);
    host_query_port(h, 1, &info);
    CHECK(b, info.capability_mask & IB_CAP_CM);
    in[2] = info.capability_mask & ~(uint32_t)IB_CAP_CM;
    CHECK(b, host_hcall(h, EHCA_H_MODIFY_PORT, in, out) == EHCA_RC_SUCCESS);
    host_query_port(h, 1, &info);
    CHECK(b, !(info.capability_mask & IB_CAP_CM));
}

/* 56 */
static void counters_of_a_dead_port(Bench *b)
{
    Host *h = b->pair->hosts[0];
    uint64_t in[9] = { h->config.handle, 2, h->block }, out[9];
    const uint8_t *block = host_block(h);

    pull(b, 1);
    run(b, SHORT_TIME);
    memset(host_block(h), 0, EHCA_CB_SIZE);
    CHECK(b, host_hcall(h, EHCA_H_GET_PERF_COUNT, in, out) ==
             EHCA_RC_SUCCESS);
    CHECK(b, ib_get32(block + EHCA_PERF_VERSION) == EHCA_PERF_VERSION_1);
    CHECK(b, ib_get32(block + EHCA_PERF_PORT) == 2);
    CHECK(b, ib_get64(block + EHCA_PERF_LINK_DOWNED) == 1);
}

/* 57, 51: gone and back within the retry budget. */
static void bounce(Bench *b)
{
    armed_bench(b, EHCA_SERVICE_RC);
    memset(b->neqes, 0, sizeof(b->neqes));
    pull(b, 0);
    post_recv(b, 1);
    post_send(b, 0, 100);
    run(b, BUDGET / 2);
    CHECK(b, b->neqes[0][EHCA_NEQE_PORT_AVAIL] == 1);
    restore(b, 0);
    run(b, BUDGET);
    CHECK(b, b->neqes[0][EHCA_NEQE_PORT_AVAIL] == 2);
    CHECK(b, b->received[1] == 2 && b->sent[0] == 2 && b->bad[0] == 0);
    CHECK(b, both_mig(b, EHCA_MIG_ARMED));
    CHECK(b, path_migs(b, 0) == 0 && path_migs(b, 1) == 0);
}

/* 52 */
static void replug_keeps_lid(Bench *b)
{
    memset(b->neqes, 0, sizeof(b->neqes));
    pull(b, 0);
    run(b, SHORT_TIME);
    restore(b, 0);
    run(b, SHORT_TIME);
    CHECK(b, b->neqes[0][EHCA_NEQE_PORT_AVAIL] == 2);
    CHECK(b, b->neqes[0][EHCA_NEQE_PORT_CONFIG] == 0);
}

/* ------------------------------------------------------------------ */
/* With a subnet manager                                              */
/* ------------------------------------------------------------------ */

typedef struct WorldCase {
    const char *faults;
    WorldTopology topology;
    uint64_t failovers;
} WorldCase;

static void run_world(Bench *b, const WorldCase *c)
{
    for (uint64_t seed = 1; seed <= 3; seed++) {
        WorldOptions options = {
            .seed = seed, .failovers = c->failovers, .topology = c->topology,
            .verbose = verbose, .replay = "sim --verbose --cases",
            .replay_is_whole = true,
        };
        char error[256];
        World *w;

        CHECK(b, world_faults_parse(&options.faults, c->faults, error,
                                    sizeof(error)));
        w = world_new(&options);
        script_run(w);
        world_free(w);
    }
}

/* 48: killed and started while traffic and failovers go on. */
static void sm_restart(Bench *b)
{
    run_world(b, &(WorldCase) { "pull,sm-kill,sm-kill", TOPOLOGY_TWO_RAILS,
                                60 });
}

/* 50 */
static void sm_port_pulled(Bench *b)
{
    run_world(b, &(WorldCase) { "pull,sm-cable", TOPOLOGY_ONE_SWITCH, 60 });
}

/* 45, 47: bounces quicker than a sweep. */
static void bounce_in_fabric(Bench *b)
{
    run_world(b, &(WorldCase) { "bounce,pull", TOPOLOGY_FAT_TREE, 60 });
}

/* 16: alternate on another remote port, over a trunk that comes and goes. */
static void rerouted(Bench *b)
{
    run_world(b, &(WorldCase) { "trunk,software", TOPOLOGY_RING, 60 });
}

/* A host that subscribed to notices, and what it was told. */
typedef struct Subscriber {
    World *w;
    Host *host;
    HostMr *mr;
    SimHost *watched;
    uint16_t sm_lid;
    unsigned answers, gone, back, back_too_early, other;
} Subscriber;

#define MAD_SLOT 512u
#define MAD_RECVS 64u
#define OFFSET_OUT (MAD_SLOT * MAD_RECVS)

static void gsi_send(Subscriber *s, const uint8_t *mad)
{
    HostSendWr wr = {
        .optype = EHCA_WQE_OPTYPE_SEND, .num_sges = 1,
        .sges = { host_sge(s->mr, OFFSET_OUT, IB_MAD_LEN) },
        .dest_qpn = 1, .qkey = IB_QKEY_QP1, .dlid = s->sm_lid,
    };

    memcpy(s->mr->bytes + OFFSET_OUT, mad, IB_MAD_LEN);
    host_post_send(s->host->gsi[1], &wr);
    host_ring(s->host->gsi[1]);
    world_settle(s->w);
}

static void gsi_post(Subscriber *s, unsigned slot)
{
    HostRecvWr wr = {
        .wr_id = slot, .num_sges = 1,
        .sges = { host_sge(s->mr, slot * MAD_SLOT, MAD_SLOT) },
    };

    host_post_recv(s->host->gsi[1], &wr);
    host_ring(s->host->gsi[1]);
}

static void subscribe(Subscriber *s)
{
    IbSaHeader header = {
        .hdr = {
            .base_version = 1, .mgmt_class = IB_CLASS_SA, .class_version = 2,
            .method = IB_METHOD_SET, .tid = 77,
            .attr_id = IB_ATTR_INFORM_INFO,
        },
    };
    IbInformInfo info = {
        .lid_begin = IB_LID_PERMISSIVE, .is_generic = 1, .subscribe = 1,
        .type = 0xFFFF, .trap = 0xFFFF, .qpn = 1, .producer = 0xFFFFFF,
    };
    uint8_t mad[IB_MAD_LEN] = { 0 };

    ib_sa_header_pack(mad, &header);
    ib_inform_info_pack(mad + IB_SA_DATA_OFFSET, &info);
    gsi_send(s, mad);
}

static void take_report(Subscriber *s, const uint8_t *mad)
{
    uint8_t reply[IB_MAD_LEN];
    IbNotice notice;

    ib_notice_unpack(&notice, mad + IB_SA_DATA_OFFSET, IB_NOTICE_LEN);
    if (ib_get64(notice.details + 6 + 8) !=
        s->watched->host->config.port_guids[0]) {
        s->other++;
    } else if (notice.trap == IB_TRAP_GID_OUT_OF_SERVICE) {
        s->gone++;
    } else if (notice.trap == IB_TRAP_GID_IN_SERVICE) {
        s->back++;
        s->back_too_early += s->watched->ports[1].state != IB_PORT_ACTIVE;
    }
    memcpy(reply, mad, sizeof(reply));
    reply[3] = IB_METHOD_REPORT_RESP;
    gsi_send(s, reply);
}

/* Takes what came to QP1; the condition that is never true. */
static bool take_mads(World *w, void *opaque)
{
    Subscriber *s = opaque;
    HostCqe cqe;

    while (host_cq_poll(s->host->gsi_cq[1], &cqe, 1)) {
        const uint8_t *mad = s->mr->bytes + cqe.wr_id * MAD_SLOT +
                             EHCA_UD_GRH_SIZE;

        if (!(cqe.flags & EHCA_CQE_FLAG_RECV) || cqe.status) {
            continue;
        }
        if (mad[3] == IB_METHOD_REPORT) {
            take_report(s, mad);
        } else {
            s->answers += mad[3] == IB_METHOD_GET_RESP &&
                          ib_get16(mad + 4) == 0;
        }
        gsi_post(s, cqe.wr_id);
    }
    return false;
}

/* 45, 47: 65 when it goes, 64 not before it is Active again. */
static void reports(Bench *b)
{
    WorldOptions options = {
        .seed = 5, .topology = TOPOLOGY_TWO_RAILS, .verbose = verbose,
        .replay = "sim --verbose --cases reports", .replay_is_whole = true,
    };
    Subscriber s = { 0 };
    char error[256];
    int cable;

    CHECK(b, world_faults_parse(&options.faults, "none", error,
                                sizeof(error)));
    s.w = world_new(&options);
    s.host = s.w->hosts[0].host;
    s.watched = &s.w->hosts[1];
    s.sm_lid = sm_lid(s.w->sm.sm);
    s.mr = host_mr_new(s.host, OFFSET_OUT + MAD_SLOT, EHCA_MR_LOCAL_WRITE);
    for (unsigned i = 0; i < MAD_RECVS; i++) {
        gsi_post(&s, i);
    }
    subscribe(&s);
    world_wait(s.w, 1 * IB_SEC, take_mads, &s);
    cable = s.watched->ports[1].cable;
    for (unsigned i = 1; i <= 5 && s.answers == 1; i++) {
        world_cable(s.w, cable, false);
        world_wait(s.w, 2 * IB_SEC, take_mads, &s);
        if (s.gone != i || s.back != i - 1) {
            break;
        }
        world_cable(s.w, cable, true);
        world_wait(s.w, 2 * IB_SEC, take_mads, &s);
    }
    world_free(s.w);
    if (s.answers != 1 || s.gone != 5 || s.back != 5 || s.back_too_early) {
        fprintf(stderr, "# %u answers, %u reports 65, %u reports 64, %u of "
                "them before Active, %u of others\n", s.answers, s.gone,
                s.back, s.back_too_early, s.other);
        check_failed(b, __LINE__, "1 answer, 5 reports 65, 5 reports 64");
    }
}

/* ------------------------------------------------------------------ */
/* The table                                                          */
/* ------------------------------------------------------------------ */

typedef struct Case {
    const char *name;
    const char *numbers;             /* in section 6 */
    void (*run)(Bench *b);
    bool own_world;
} Case;

static const Case cases[] = {
    { "pull-under-load", "1", pull_under_load, false },
    { "read-and-atomic-outstanding", "2", read_and_atomic_outstanding,
      false },
    { "idle-after-rearm", "3", idle_after_rearm, false },
    { "one-send-arms-both", "4", one_send_arms_both, false },
    { "one-sided-rearm", "5", one_sided_rearm, false },
    { "asymmetric-arm", "6", asymmetric_arm, false },
    { "software-migrated", "7", software_migrated, false },
    { "truth-table", "8 9 10 14", truth_table, false },
    { "uc-follows-peer", "11", uc_follows_peer, false },
    { "rnr-does-not-migrate", "12", rnr_does_not_migrate, false },
    { "alternate-dead-too", "13 26", alternate_dead_too, false },
    { "late-packet", "14", late_packet, false },
    { "ping-pong", "15", ping_pong, false },
    { "alternate-by-lmc", "16", alternate_by_lmc, false },
    { "alternate-really-used", "17 18", alternate_really_used, false },
    { "refused-requests", "19", refused_requests, false },
    { "bad-alternate", "20", bad_alternate, false },
    { "transitions-with-alternate", "21", transitions_with_alternate,
      false },
    { "reload-while-armed", "22", reload_while_armed, false },
    { "loopback-never-arms", "23", loopback_never_arms, false },
    { "peer-that-sends-migreq-0", "24", peer_that_sends_migreq_0, false },
    { "unarmed-gets-no-event", "24", unarmed_gets_no_event, false },
    { "dark-port", "53", dark_port, false },
    { "qp1-moves-the-port", "54", qp1_moves_the_port, false },
    { "cm-capability", "55", cm_capability, false },
    { "counters-of-a-dead-port", "56", counters_of_a_dead_port, false },
    { "bounce", "51 57", bounce, false },
    { "replug-keeps-lid", "52", replug_keeps_lid, false },
    { "sm-restart", "48", sm_restart, true },
    { "sm-port-pulled", "50", sm_port_pulled, true },
    { "bounce-in-fabric", "45 47", bounce_in_fabric, true },
    { "rerouted", "16", rerouted, true },
    { "reports", "45 47", reports, true },
};

#define NUM_CASES (sizeof(cases) / sizeof(cases[0]))

void cases_list(void)
{
    for (size_t i = 0; i < NUM_CASES; i++) {
        printf("%-28s section 6: %s\n", cases[i].name, cases[i].numbers);
    }
}

static bool run_case(const Case *c)
{
    Bench bench = { 0 };

    if (!c->own_world) {
        bench_open(&bench);
    }
    c->run(&bench);
    if (bench.pair) {
        host_pair_free(bench.pair);
    }
    return !bench.failed;
}

int cases_run(const char *name, bool talk)
{
    unsigned failed = 0, ran = 0;

    verbose = talk;
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (size_t i = 0; i < NUM_CASES; i++) {
        if (name && strcmp(name, cases[i].name)) {
            continue;
        }
        ran++;
        if (run_case(&cases[i])) {
            printf("ok %u - %s\n", ran, cases[i].name);
        } else {
            failed++;
            printf("not ok %u - %s (replay: sim --verbose --cases %s)\n",
                   ran, cases[i].name, cases[i].name);
        }
    }
    if (ran == 0) {
        fprintf(stderr, "sim: there is no case \"%s\"; see --list\n", name);
        return 2;
    }
    printf("1..%u\n", ran);
    return failed != 0;
}
