/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Queue pairs by the letter of the interface: each attribute in each
 * transition of each service (its section 17.4), each request for a migration
 * state in each of them (apm-and-cm 1.9), pages of queues, signalling, what
 * H_QUERY_QP and H_ERROR_DATA tell, regions of large pages, and event queues
 * that overflow.
 */
#include <stdlib.h>

#include "engine_bench.h"

/* Inputs are r5 .. r12. */
static int64_t call(Host *host, uint64_t number, const uint64_t args[8],
                    uint64_t out[9])
{
    uint64_t in[9] = { host->config.handle }, ignored[9];

    memcpy(in + 1, args, 8 * sizeof(*args));
    return host_hcall(host, number, in, out ? out : ignored);
}

#define ARGS(...) ((const uint64_t[8]) { __VA_ARGS__ })

static void must(int64_t rc)
{
    g_assert_cmpint(rc, ==, 0);
}

/* ------------------------------------------------------------------ */
/* Attributes and transitions                                         */
/* ------------------------------------------------------------------ */

typedef enum Move {
    RESET_INIT, INIT_INIT, INIT_RTR, RTR_RTS, RTS_RTS, RTS_SQD, SQD_SQD,
    SQD_RTS, SQE_RTS, ERR_ERR, RTS_ERR, RTS_RESET, MOVES
} Move;

static const struct { unsigned from, to; } ends[MOVES] = {
    [RESET_INIT] = { EHCA_QPS_RESET, EHCA_QPS_INIT },
    [INIT_INIT] = { EHCA_QPS_INIT, EHCA_QPS_INIT },
    [INIT_RTR] = { EHCA_QPS_INIT, EHCA_QPS_RTR },
    [RTR_RTS] = { EHCA_QPS_RTR, EHCA_QPS_RTS },
    [RTS_RTS] = { EHCA_QPS_RTS, EHCA_QPS_RTS },
    [RTS_SQD] = { EHCA_QPS_RTS, EHCA_QPS_SQD },
    [SQD_SQD] = { EHCA_QPS_SQD, EHCA_QPS_SQD },
    [SQD_RTS] = { EHCA_QPS_SQD, EHCA_QPS_RTS },
    [SQE_RTS] = { EHCA_QPS_SQE, EHCA_QPS_RTS },
    [ERR_ERR] = { EHCA_QPS_ERR, EHCA_QPS_ERR },
    [RTS_ERR] = { EHCA_QPS_RTS, EHCA_QPS_ERR },
    [RTS_RESET] = { EHCA_QPS_RTS, EHCA_QPS_RESET },
};

#define M(move) (1u << (move))

/* 17.3 and 17.4 of the interface, by groups of attributes. */
enum {
    IN_PKEY = M(RESET_INIT) | M(INIT_INIT) | M(INIT_RTR) | M(SQD_SQD),
    IN_PORT = M(RESET_INIT) | M(INIT_INIT) | M(SQD_SQD),
    IN_QKEY = M(RESET_INIT) | M(INIT_INIT) | M(INIT_RTR) | M(RTR_RTS) |
              M(RTS_RTS) | M(SQD_RTS) | M(SQD_SQD) | M(SQE_RTS),
    IN_AV = M(INIT_RTR) | M(SQD_SQD),
    IN_ALT = M(INIT_RTR) | M(RTR_RTS) | M(RTS_RTS) | M(SQD_RTS) | M(SQD_SQD),
    IN_RNR = IN_ALT,
    IN_RETRY = M(RTR_RTS) | M(SQD_SQD),
    ALL_MOVES = M(MOVES) - 1,
    RC = M(EHCA_SERVICE_RC), UC = M(EHCA_SERVICE_UC), UD = M(EHCA_SERVICE_UD),
    CONN = RC | UC, ALL = CONN | UD,
};

typedef struct Attribute {
    uint64_t mask;
    uint16_t offset;
    uint32_t value;
    unsigned services, moves;          /* must be taken */
    unsigned free_services, free_moves;    /* the interface does not say */
} Attribute;

#define ROW(NAME, ...) { EHCA_QPMASK_##NAME, EHCA_QPCB_##NAME, __VA_ARGS__ }
static const Attribute attributes[] = {
    ROW(QKEY, 0x1234, UD, IN_QKEY, 0, 0),
    ROW(SEND_PSN, 0xABCDEF, ALL, M(RTR_RTS), 0, 0),
    ROW(RECEIVE_PSN, 0xFEDCBA, CONN, M(INIT_RTR), 0, 0),
    ROW(PRIM_PHYS_PORT, 2, ALL, IN_PORT, 0, 0),
    ROW(PRIM_P_KEY_IDX, 15, ALL, IN_PKEY, 0, 0),
    ROW(RDMA_ATOMIC_CTRL, 3, CONN, M(RESET_INIT), CONN, ALL_MOVES),
    ROW(RDMA_NR_ATOMIC_RESP_RES, 2, CONN, M(INIT_RTR), CONN, IN_AV),
    ROW(RDMA_ATOMIC_OUTST_DEST_QP, 2, RC, IN_RETRY, UC, IN_RETRY),
    ROW(DEST_QP_NR, 0x123456, CONN, M(INIT_RTR), 0, 0),
    ROW(MIN_RNR_NAK_TIMER_FIELD, 31, RC, IN_RNR, UC, IN_RNR),
    ROW(PATH_MTU, 3, CONN, M(INIT_RTR), 0, 0),
    ROW(SERVICE_LEVEL, 15, CONN, IN_AV, 0, 0),
    ROW(SEND_GRH_FLAG, 1, CONN, IN_AV, UD, IN_AV),
    ROW(RETRY_COUNT, 7, RC, IN_RETRY, UC, IN_RETRY),
    ROW(TIMEOUT, 31, RC, IN_RETRY, UC, IN_RETRY),
    ROW(MAX_STATIC_RATE, 3, CONN, IN_AV, 0, 0),
    ROW(DLID, 0xBFFF, CONN, IN_AV, 0, 0),
    ROW(RNR_RETRY_COUNT, 7, RC, IN_RETRY, UC, IN_RETRY),
    ROW(SOURCE_PATH_BITS, 0x7F, CONN, IN_AV, 0, 0),
    ROW(TRAFFIC_CLASS, 0x5A, CONN, IN_AV, 0, 0),
    ROW(HOP_LIMIT, 0xFF, CONN, IN_AV, 0, 0),
    ROW(SOURCE_GID_IDX, 0, CONN, IN_AV, 0, 0),
    ROW(FLOW_LABEL, 0xABCDE, CONN, IN_AV, 0, 0),
    ROW(DEST_GID, 0xFE800001, CONN, IN_AV, 0, 0),
    ROW(ALT_PHYS_PORT, 2, CONN, IN_ALT, 0, 0),
    ROW(ALT_P_KEY_IDX, 15, CONN, IN_ALT, 0, 0),
    ROW(SERVICE_LEVEL_AL, 15, CONN, IN_ALT, 0, 0),
    ROW(SEND_GRH_FLAG_AL, 1, CONN, IN_ALT, 0, 0),
    ROW(RETRY_COUNT_AL, 7, CONN, IN_ALT, 0, 0),
    ROW(TIMEOUT_AL, 31, CONN, IN_ALT, 0, 0),
    ROW(MAX_STATIC_RATE_AL, 3, CONN, IN_ALT, 0, 0),
    ROW(DLID_AL, 0xBFFF, CONN, IN_ALT, 0, 0),
    ROW(RNR_RETRY_COUNT_AL, 7, CONN, IN_ALT, 0, 0),
    ROW(SOURCE_PATH_BITS_AL, 0x7F, CONN, IN_ALT, 0, 0),
    ROW(TRAFFIC_CLASS_AL, 0x5A, CONN, IN_ALT, 0, 0),
    ROW(HOP_LIMIT_AL, 0xFF, CONN, IN_ALT, 0, 0),
    ROW(SOURCE_GID_IDX_AL, 0, CONN, IN_ALT, 0, 0),
    ROW(FLOW_LABEL_AL, 0xABCDE, CONN, IN_ALT, 0, 0),
    ROW(DEST_GID_AL, 0xFE800001, CONN, IN_ALT, 0, 0),
    ROW(DISABLE_ETE_CREDIT_CHECK, 1, 0, 0, CONN, ALL_MOVES),
    ROW(QP_ENABLE, 1, ALL, M(INIT_INIT), ALL, ALL_MOVES),
    /* SRQs'; capacities (no WQE_RESIZE); bits that are nothing. */
    ROW(CURR_SRQ_LIMIT, 1, 0, 0, 0, 0),
    ROW(QP_AFF_ASYN_EV_LOG_REG, 0, 0, 0, 0, 0),
    ROW(MAX_NR_OUTST_SEND_WR, 5, 0, 0, 0, 0),
    ROW(MAX_NR_OUTST_RECV_WR, 5, 0, 0, 0, 0),
    { EHCA_BIT(1), 0, 0, 0, 0, 0, 0 }, { EHCA_BIT(10), 0, 0, 0, 0, 0, 0 },
    { EHCA_BIT(29), 0, 0, 0, 0, 0, 0 }, { EHCA_BIT(43), 0, 0, 0, 0, 0, 0 },
    { EHCA_BIT(52), 0, 0, 0, 0, 0, 0 }, { EHCA_BIT(57), 0, 0, 0, 0, 0, 0 },
    { EHCA_BIT(63), 0, 0, 0, 0, 0, 0 },
};

static HostPath grh_path(unsigned port)
{
    HostPath path;

    host_pair_path(0, port - 1, &path);
    path.grh = true;
    path.dgid[0] = 0xFE;
    path.dgid[1] = 0x80;
    return path;
}

/* UD: the send queue stops at a WQE with a bad key. */
static void to_sqe(Bench *b, HostQp *qp)
{
    HostSendWr wr = {
        .optype = EHCA_WQE_OPTYPE_SEND, .num_sges = 1,
        .sges = { host_sge(b->mrs[0], 0, 64) }, .dest_qpn = 5, .dlid = 2,
    };
    HostCqe cqe;

    wr.sges[0].lkey ^= 0xFF00;
    host_post_send(qp, &wr);
    host_ring(qp);
    g_assert_true(bench_cqe(b, 0, &cqe, IB_MSEC));
    g_assert_cmpuint(host_qp_state(qp), ==, EHCA_QPS_SQE);
}

/* From wherever it is to @state, with a GRH and no alternate. */
static void bring(Bench *b, HostQp *qp, unsigned state)
{
    static const unsigned order[] = {
        EHCA_QPS_RESET, EHCA_QPS_INIT, EHCA_QPS_RTR, EHCA_QPS_RTS,
    };
    HostPath path = grh_path(1);
    bool ud = qp->service == EHCA_SERVICE_UD;

    for (unsigned i = 0; i < G_N_ELEMENTS(order); i++) {
        int64_t rc;

        switch (order[i]) {
        case EHCA_QPS_RESET:
            rc = host_qp_to(qp, EHCA_QPS_RESET);
            break;
        case EHCA_QPS_INIT:
            rc = ud ? host_qp_ud_init(qp, 1, 1) : host_qp_init(qp, 1);
            break;
        case EHCA_QPS_RTR:
            rc = ud ? host_qp_to(qp, EHCA_QPS_RTR)
                    : host_qp_rtr(qp, &path, NULL, EHCA_MTU_2048, 0x99, 1);
            break;
        default:
            rc = host_qp_rts(qp, &path, 1, false);
            break;
        }
        g_assert_cmpint(rc, ==, 0);
        if (order[i] == state) {
            return;
        }
    }
    if (state == EHCA_QPS_SQE) {
        to_sqe(b, qp);
    } else {
        g_assert_cmpint(host_qp_to(qp, state), ==, 0);
    }
}

/* What a call of this move needs beside the attribute looked at. */
static uint64_t base_mask(HostQp *qp, Move move, uint64_t mask,
                          uint8_t *block, bool taken)
{
    HostPath primary = grh_path(1), alternate = grh_path(2);
    uint64_t path = host_put_path(block, &primary, false);
    uint64_t alt = host_put_path(block, &alternate, true);
    uint64_t base = EHCA_QPMASK_QP_STATE;
    bool conn = qp->service != EHCA_SERVICE_UD;

    ib_put32(block + EHCA_QPCB_QP_STATE, ends[move].to);
    if (move == RESET_INIT) {
        base |= EHCA_QPMASK_PRIM_PHYS_PORT | EHCA_QPMASK_PRIM_P_KEY_IDX |
                (conn ? 0 : EHCA_QPMASK_QKEY);
    } else if (move == INIT_RTR && conn) {
        ib_put32(block + EHCA_QPCB_PATH_MTU, 4);
        base |= path | EHCA_QPMASK_PATH_MTU | EHCA_QPMASK_DEST_QP_NR |
                EHCA_QPMASK_RECEIVE_PSN;
    } else if (move == RTR_RTS) {
        base |= EHCA_QPMASK_SEND_PSN;
    }
    /* One of the alternate's alone would be a path to nowhere. */
    return base | (taken && mask & alt ? alt : 0);
}

static void check_attribute(Bench *b, HostQp *qp, const Attribute *a,
                            Move move)
{
    unsigned service = M(qp->service);
    bool taken = a->services & service && a->moves & M(move);
    bool either = a->free_services & service && a->free_moves & M(move);
    uint8_t before[EHCA_QPCB_SIZE], block[EHCA_QPCB_SIZE] = { 0 };
    uint64_t mask;
    int64_t rc;

    bring(b, qp, ends[move].from);
    host_qp_query(qp);
    memcpy(before, host_block(qp->host), sizeof(before));
    mask = base_mask(qp, move, a->mask, block, taken) | a->mask;
    ib_put32(block + a->offset, a->value);
    if (!a->offset) {
        ib_put32(block, a->mask == EHCA_QPMASK_QKEY ? a->value : 1);
    }
    rc = host_qp_modify(qp, mask, block);
    if (either) {
        g_assert_true(rc == 0 || rc == EHCA_RC_MASK_PARM);
        return;
    }
    if (rc != (taken ? 0 : EHCA_RC_MASK_PARM)) {
        g_test_message("service %u, move %u, mask 0x%016llx: %lld, %s",
                       qp->service, move, (unsigned long long)a->mask,
                       (long long)rc, qp->host->last_guest_error);
    }
    g_assert_cmpint(rc, ==, taken ? 0 : EHCA_RC_MASK_PARM);
    host_qp_query(qp);
    if (taken) {
        g_assert_cmphex(ib_get32(host_block(qp->host) + a->offset), ==,
                        a->value);
        g_assert_cmpuint(host_qp_state(qp), ==, ends[move].to);
    } else {
        /* A refused call changes nothing. */
        g_assert_cmpmem(before, sizeof(before), host_block(qp->host),
                        sizeof(before));
    }
}

static void test_attributes(void)
{
    static const unsigned services[] = {
        EHCA_SERVICE_RC, EHCA_SERVICE_UC, EHCA_SERVICE_UD,
    };
    Bench *b = bench_new_bare();

    for (unsigned s = 0; s < G_N_ELEMENTS(services); s++) {
        HostQp *qp = host_qp_new(b->pair->hosts[0], services[s], b->cqs[0],
                                 b->cqs[0], 4, 4);

        for (Move move = 0; move < MOVES; move++) {
            if (move == SQE_RTS && services[s] != EHCA_SERVICE_UD) {
                continue;
            }
            for (unsigned i = 0; i < G_N_ELEMENTS(attributes); i++) {
                check_attribute(b, qp, &attributes[i], move);
            }
        }
        g_assert_cmpint(host_qp_free(qp), ==, 0);
    }
    bench_free(b);
}

/* Every pair of states: what is no transition is refused (17.4). */
static void test_moves(void)
{
    static const unsigned states[] = {
        EHCA_QPS_RESET, EHCA_QPS_INIT, EHCA_QPS_RTR, EHCA_QPS_RTS,
        EHCA_QPS_SQD, EHCA_QPS_SQE, EHCA_QPS_ERR, 0, 4, 7, 9, 127, 255,
    };
    const unsigned real = 7;
    Bench *b = bench_new_bare();
    HostQp *qp = host_qp_new(b->pair->hosts[0], EHCA_SERVICE_UD, b->cqs[0],
                             b->cqs[0], 4, 4);

    for (unsigned from = 0; from < real; from++) {
        for (unsigned to = 0; to < G_N_ELEMENTS(states); to++) {
            bool legal = states[to] == EHCA_QPS_RESET ||
                (states[to] == EHCA_QPS_ERR &&
                 states[from] != EHCA_QPS_RESET);

            for (Move m = 0; m < MOVES; m++) {
                legal |= ends[m].from == states[from] &&
                         ends[m].to == states[to];
            }
            bring(b, qp, states[from]);
            g_assert_cmpint(host_qp_to(qp, states[to]), ==,
                            legal ? 0 : EHCA_RC_PARAMETER);
            g_assert_cmpuint(host_qp_state(qp), ==,
                             states[legal ? to : from]);
        }
    }
    bench_free(b);
}

/* Values that are none. */
static void test_values(void)
{
    const struct { Move move; uint64_t mask; uint16_t cb; uint32_t value;
                   int64_t rc; } bad[] = {
#define BAD(move, NAME, value, rc) \
        { move, EHCA_QPMASK_##NAME, EHCA_QPCB_##NAME, value, rc }
        BAD(RESET_INIT, PRIM_PHYS_PORT, 0, EHCA_RC_PORT_PARM),
        BAD(RESET_INIT, PRIM_PHYS_PORT, 3, EHCA_RC_PORT_PARM),
        BAD(RESET_INIT, PRIM_PHYS_PORT, 255, EHCA_RC_PORT_PARM),
        BAD(RESET_INIT, PRIM_P_KEY_IDX, 16, EHCA_RC_ATTR_PARM),
        BAD(SQD_SQD, PRIM_PHYS_PORT, 3, EHCA_RC_PORT_PARM),
        BAD(INIT_RTR, PATH_MTU, 0, EHCA_RC_ATTR_PARM),
        BAD(INIT_RTR, PATH_MTU, 6, EHCA_RC_ATTR_PARM),
        BAD(INIT_RTR, DLID, 0, EHCA_RC_ATTR_PARM),
        BAD(INIT_RTR, DLID, 0xC000, EHCA_RC_ATTR_PARM),
        BAD(INIT_RTR, DLID, 0xFFFF, EHCA_RC_ATTR_PARM),
        BAD(INIT_RTR, SERVICE_LEVEL, 16, EHCA_RC_ATTR_PARM),
        BAD(INIT_RTR, SEND_GRH_FLAG, 2, EHCA_RC_ATTR_PARM),
        BAD(INIT_RTR, RDMA_NR_ATOMIC_RESP_RES, 17, EHCA_RC_ATTR_PARM),
        BAD(INIT_RTR, MIN_RNR_NAK_TIMER_FIELD, 32, EHCA_RC_ATTR_PARM),
        BAD(RTR_RTS, TIMEOUT, 32, EHCA_RC_ATTR_PARM),
        BAD(RTR_RTS, RETRY_COUNT, 8, EHCA_RC_ATTR_PARM),
        BAD(RTR_RTS, RNR_RETRY_COUNT, 8, EHCA_RC_ATTR_PARM),
        BAD(RTR_RTS, RDMA_ATOMIC_OUTST_DEST_QP, 17, EHCA_RC_ATTR_PARM),
        /* Parts of an alternate that was never loaded lead nowhere. */
        BAD(RTS_RTS, TIMEOUT_AL, 14, EHCA_RC_PORT_PARM),
        BAD(RTS_RTS, ALT_PHYS_PORT, 2, EHCA_RC_ATTR_PARM),
        BAD(RTS_RTS, HOP_LIMIT_AL, 2, EHCA_RC_ATTR_PARM),
#undef BAD
    };
    Bench *b = bench_new_bare();
    HostQp *qp = host_qp_new(b->pair->hosts[0], EHCA_SERVICE_RC, b->cqs[0],
                             b->cqs[0], 4, 4);

    for (unsigned i = 0; i < G_N_ELEMENTS(bad); i++) {
        uint8_t block[EHCA_QPCB_SIZE] = { 0 };
        uint64_t mask;

        g_test_message("value %u", i);
        bring(b, qp, ends[bad[i].move].from);
        mask = base_mask(qp, bad[i].move, bad[i].mask, block, false);
        ib_put32(block + bad[i].cb, bad[i].value);
        g_assert_cmpint(host_qp_modify(qp, mask | bad[i].mask, block), ==,
                        bad[i].rc);
        g_assert_cmpuint(host_qp_state(qp), ==, ends[bad[i].move].from);
    }
    bench_free(b);
}

/* ------------------------------------------------------------------ */
/* Requests for a migration state                                     */
/* ------------------------------------------------------------------ */

static void check_request(Move move, unsigned now, unsigned request)
{
    Bench *b = bench_new(EHCA_SERVICE_RC, now != EHCA_MIG_MIGRATED);
    HostQp *qp = b->qps[0];
    bool belongs = move == RTR_RTS || move == RTS_RTS || move == SQD_SQD ||
                   move == SQD_RTS;
    /* 1.2: software commands REARM, and MIGRATED only what is ARMED. */
    bool granted = belongs &&
        ((request == EHCA_MIG_MIGRATED && now != EHCA_MIG_REARM) ||
         (request == EHCA_MIG_REARM && now != EHCA_MIG_ARMED));
    bool migrates = granted && now == EHCA_MIG_ARMED;
    uint8_t block[EHCA_QPCB_SIZE] = { 0 };
    HostPath path;
    uint64_t mask;
    int64_t rc;

    if (now == EHCA_MIG_ARMED) {
        bench_ping(b, 0);
    }
    host_pair_path(0, 1, &path);
    if (now == EHCA_MIG_MIGRATED) {
        host_qp_load_alt(qp, &path, 0);
    }
    if (ends[move].from == EHCA_QPS_SQD || ends[move].from == EHCA_QPS_ERR) {
        g_assert_cmpint(host_qp_to(qp, ends[move].from), ==, 0);
    } else if (ends[move].from != EHCA_QPS_RTS) {
        bring(b, qp, ends[move].from);
    }
    g_assert_cmpuint(host_qp_mig(qp), ==, now);
    mask = base_mask(qp, move, 0, block, false);
    if (move == RTR_RTS) {
        /* The alternate can come with the same call. */
        mask |= host_put_path(block, &path, true);
    }
    ib_put32(block + EHCA_QPCB_PATH_MIGRATION_STATE, request);
    rc = host_qp_modify(qp, mask | EHCA_QPMASK_PATH_MIGRATION_STATE, block);
    if ((rc == 0) != granted) {
        g_test_message("move %u, now %u, request %u: %lld", move, now,
                       request, (long long)rc);
    }
    if (granted) {
        g_assert_cmpint(rc, ==, 0);
        g_assert_cmpuint(host_qp_mig(qp), ==, request);
    } else {
        g_assert_cmpint(rc, ==, belongs ? EHCA_RC_R_STATE
                                        : EHCA_RC_MASK_PARM);
        g_assert_cmpuint(host_qp_mig(qp), ==, now);
    }
    g_assert_cmpuint(host_qp_state(qp), ==,
                     granted ? ends[move].to : ends[move].from);
    g_assert_cmpuint(bench_eqes(b, 0, EHCA_EQE_PATH_MIG), ==, migrates);
    g_assert_cmpuint(host_qp_field(qp, EHCA_QPCB_PRIM_PHYS_PORT), ==,
                     move == RESET_INIT ? 0 : migrates ? 2 : 1);
    bench_free(b);
}

static void test_requests(void)
{
    static const unsigned requests[] = {
        0, EHCA_MIG_MIGRATED, EHCA_MIG_REARM, EHCA_MIG_ARMED, 4, 0x80000001,
    };

    for (Move move = 0; move < MOVES; move++) {
        for (unsigned now = EHCA_MIG_MIGRATED; now <= EHCA_MIG_ARMED; now++) {
            bool early = ends[move].from == EHCA_QPS_RESET ||
                         ends[move].from == EHCA_QPS_INIT ||
                         ends[move].from == EHCA_QPS_RTR;

            if (move == SQE_RTS || (early && now != EHCA_MIG_MIGRATED)) {
                continue;              /* there is no such QP */
            }
            for (unsigned i = 0; i < G_N_ELEMENTS(requests); i++) {
                check_request(move, now, requests[i]);
            }
        }
    }
}

/* ------------------------------------------------------------------ */
/* Pages of queues                                                    */
/* ------------------------------------------------------------------ */

static void test_pages(void)
{
    Bench *b = bench_new_bare();
    Host *host = b->pair->hosts[0];
    uint64_t page = host_alloc(host, 4096), out[9], qp;
    const uint64_t ram = host->ram_size;
    const struct { uint64_t control, addr, count; int64_t rc; } steps[] = {
        /* Receive queue first: no. */
        { EHCA_RPAGES_RQ, page, 1, EHCA_RC_R_STATE },
        { EHCA_RPAGES_SQ, page, 0, EHCA_RC_PARAMETER },
        { EHCA_RPAGES_SQ, page, 2, EHCA_RC_PARAMETER },
        { EHCA_RPAGES_SQ, page, (UINT64_C(1) << 32) + 1, EHCA_RC_PARAMETER },
        { EHCA_RPAGES_SQ, page + 8, 1, EHCA_RC_PARAMETER },
        { EHCA_RPAGES_SQ, ram, 1, EHCA_RC_MEM_PARM },
        { EHCA_RPAGES_SQ, UINT64_MAX & ~UINT64_C(4095), 1,
          EHCA_RC_MEM_PARM },
        { EHCA_RPAGES_SQ | 0x100, page, 1, EHCA_RC_PARAMETER },
        { EHCA_RPAGES_SQ | 0x300, page, 1, EHCA_RC_PARAMETER },
        { 2, page, 1, EHCA_RC_PARAMETER },
        { EHCA_RPAGES_SQ, page, 1, EHCA_RC_PAGE_REGISTERED },
        { EHCA_RPAGES_SQ, page, 1, EHCA_RC_PAGE_REGISTERED },
        { EHCA_RPAGES_SQ, page, 1, EHCA_RC_R_STATE },
        { EHCA_RPAGES_RQ, page, 1, EHCA_RC_SUCCESS },
        { EHCA_RPAGES_RQ, page, 1, EHCA_RC_R_STATE },
        { EHCA_RPAGES_SQ, page, 1, EHCA_RC_R_STATE },
    };

    g_assert_cmpint(call(host, EHCA_H_ALLOC_RESOURCE, ARGS(EHCA_RT_QP |
        (uint64_t)EHCA_SIGT_PER_WQE << EHCA_ALLOC_QP_SIGT_SHIFT,
        b->cqs[0]->handle, b->cqs[0]->handle, host->eq_handle, HOST_PD,
        UINT64_C(64) << EHCA_ALLOC_QP_SEND_WRS_SHIFT |
        UINT64_C(32) << EHCA_ALLOC_QP_RECV_WRS_SHIFT |
        4 << EHCA_ALLOC_QP_SEND_SGES_SHIFT |
        4 << EHCA_ALLOC_QP_RECV_SGES_SHIFT), out), ==, 0);
    qp = out[EHCA_OUT_HANDLE];
    g_assert_cmphex(out[EHCA_OUT_QP_PAGES], ==, UINT64_C(2) << 32 | 1);
    for (unsigned i = 0; i < G_N_ELEMENTS(steps); i++) {
        g_test_message("step %u", i);
        g_assert_cmpint(call(host, EHCA_H_REGISTER_RPAGES,
                             ARGS(steps[i].control, qp, steps[i].addr,
                                  steps[i].count), NULL), ==, steps[i].rc);
        if (i + 3 < G_N_ELEMENTS(steps)) {
            uint8_t *block = host_block(host);

            /* Without its pages it stays in RESET. */
            memset(block, 0, EHCA_QPCB_SIZE);
            ib_put32(block + EHCA_QPCB_QP_STATE, EHCA_QPS_INIT);
            ib_put32(block + EHCA_QPCB_PRIM_PHYS_PORT, 1);
            g_assert_cmpint(call(host, EHCA_H_MODIFY_QP, ARGS(qp,
                EHCA_QPMASK_QP_STATE | EHCA_QPMASK_PRIM_PHYS_PORT,
                host->block), NULL), ==, EHCA_RC_R_STATE);
        }
    }
    bench_free(b);
}

/* A CQ without its pages is of no use: error, nothing else happens. */
static void test_cq_without_pages(void)
{
    Bench *b = bench_new(EHCA_SERVICE_RC, false);
    Host *host = b->pair->hosts[0];
    HostCq bare = *b->cqs[0];
    HostPath path[2];
    uint64_t out[9];

    g_assert_cmpint(call(host, EHCA_H_ALLOC_RESOURCE, ARGS(EHCA_RT_CQ,
        host->eq_handle, 60, 64), out), ==, 0);
    bare.handle = out[EHCA_OUT_HANDLE];
    for (unsigned h = 0; h < 2; h++) {
        host_pair_path(h, 0, &path[h]);
        b->qps[h] = host_qp_new(b->pair->hosts[h], EHCA_SERVICE_RC,
                                h ? b->cqs[1] : &bare, b->cqs[h], 8, 8);
    }
    for (unsigned h = 0; h < 2; h++) {
        host_qp_init(b->qps[h], 1);
        host_qp_rtr(b->qps[h], &path[h], NULL, EHCA_MTU_4096,
                    b->qps[!h]->qpn, 1);
        host_qp_rts(b->qps[h], &path[h], 1, false);
    }
    bench_send(b, 0, 1, EHCA_WQE_OPTYPE_RDMA_WRITE, 0, 0, 8, 0);
    bench_run(b, IB_MSEC);
    g_assert_cmpuint(bench_eqes(b, 0, EHCA_EQE_CQ_ERR), ==, 1);
    g_assert_cmpuint(bench_eqes(b, 0, EHCA_EQE_QP_ERR), ==, 1);
    g_assert_cmpuint(host_qp_state(b->qps[0]), ==, EHCA_QPS_ERR);
    bench_free(b);
}

/* ------------------------------------------------------------------ */
/* Doorbells                                                          */
/* ------------------------------------------------------------------ */

/* WQEs that the adapter thinks are posted, from its report. */
static unsigned posted(HostQp *qp, const char *queue)
{
    g_autofree char *number = g_strdup_printf("{\"qpn\":%u,", qp->qpn);
    char *report = ehca_report(qp->host->adapter);
    const char *p = strstr(strstr(report, number), queue);
    unsigned n = strtoul(strchr(p, ':') + 1, NULL, 10);

    free(report);
    return n;
}

static void ring(HostQp *qp, unsigned reg, uint64_t value)
{
    ehca_mmio_write(qp->host->adapter, qp->regs - HOST_GALPA_BASE + reg,
                    value);
}

/*
 * In which states they count (12.5, 18.4 and section 24): receive doorbells
 * from INIT on, send doorbells from RESET on, waiting for RTS; neither in ERR,
 * no sends in SQE.  A move to RESET forgets them.
 */
static void test_doorbells(void)
{
    static const struct { unsigned state, send, recv; } states[] = {
        { EHCA_QPS_RESET, 3, 0 }, { EHCA_QPS_INIT, 3, 5 },
        { EHCA_QPS_RTR, 3, 5 }, { EHCA_QPS_SQD, 3, 5 },
        { EHCA_QPS_SQE, 0, 5 }, { EHCA_QPS_ERR, 0, 0 },
    };
    Bench *b = bench_new_bare();
    HostQp *qp = host_qp_new(b->pair->hosts[0], EHCA_SERVICE_UD, b->cqs[0],
                             b->cqs[0], 10, 10);

    for (unsigned i = 0; i < G_N_ELEMENTS(states); i++) {
        bring(b, qp, states[i].state);
        /* 16 bits of it count, and nothing is added for 0. */
        ring(qp, EHCA_QPX_SQA, UINT64_C(0xFFFFFFFFFFFF0003));
        ring(qp, EHCA_QPX_RQA, UINT64_C(0x8000000000010005));
        ring(qp, EHCA_QPX_SQA, 0);
        ring(qp, EHCA_QPX_RQA, UINT64_C(0x10000));
        /* Registers beside them, and halves of them, are none. */
        ring(qp, EHCA_QPX_SQC, 1);
        ring(qp, EHCA_QPX_RQC, 1);
        ring(qp, EHCA_QPX_SQA + 4, 1);
        host_run(b->pair->hosts[0]);
        g_assert_cmpuint(posted(qp, "send_posted"), ==, states[i].send);
        g_assert_cmpuint(posted(qp, "recv_posted"), ==, states[i].recv);
        g_assert_cmpint(host_qp_to(qp, EHCA_QPS_RESET), ==, 0);
        g_assert_cmpuint(posted(qp, "send_posted"), ==, 0);
        g_assert_cmpuint(posted(qp, "recv_posted"), ==, 0);
    }
    /* Rung before a call, taken after it: the state before it decides. */
    bring(b, qp, EHCA_QPS_RESET);
    ring(qp, EHCA_QPX_RQA, 5);
    g_assert_cmpint(host_qp_ud_init(qp, 1, 5), ==, 0);
    g_assert_cmpuint(posted(qp, "recv_posted"), ==, 0);
    /* More than fit are cut to the ring. */
    for (unsigned i = 0; i < 100; i++) {
        ring(qp, EHCA_QPX_RQA, 0xFFFF);
    }
    host_run(b->pair->hosts[0]);
    g_assert_cmpuint(posted(qp, "recv_posted"), ==, qp->rq.entries);
    bench_free(b);
}

/* ------------------------------------------------------------------ */
/* Signalling, queries, error data                                    */
/* ------------------------------------------------------------------ */

/* Signalling types 0, 1, 2: never, as the WQE says, always (5.3). */
static void test_signalling(void)
{
    for (unsigned sigt = EHCA_SIGT_NONE; sigt <= EHCA_SIGT_EVERY; sigt++) {
        for (unsigned flag = 0; flag < 2; flag++) {
            Bench *b = bench_new(EHCA_SERVICE_RC, false);
            Host *host = b->pair->hosts[0];
            HostQp qp = *b->qps[0];
            HostPath path;
            HostSendWr wr = {
                .wr_id = 7, .optype = EHCA_WQE_OPTYPE_RDMA_WRITE,
                .flags = flag ? EHCA_WQE_FLAG_SIGNALED : 0,
                .num_sges = 1, .sges = { host_sge(b->mrs[0], 0, 8) },
                .raddr = b->mrs[1]->iova, .rkey = b->mrs[1]->rkey,
            };
            uint64_t out[9];
            HostCqe cqe;

            g_assert_cmpint(call(host, EHCA_H_ALLOC_RESOURCE,
                ARGS(EHCA_RT_QP | (uint64_t)sigt << EHCA_ALLOC_QP_SIGT_SHIFT,
                     b->cqs[0]->handle, b->cqs[0]->handle, host->eq_handle,
                     HOST_PD, UINT64_C(8) << 48 | UINT64_C(8) << 32 |
                     4 << 24 | 4 << 16), out), ==, 0);
            qp.handle = out[EHCA_OUT_HANDLE];
            qp.qpn = out[EHCA_OUT_QPN];
            qp.regs = out[EHCA_OUT_QP_REGS];
            qp.sq.next = 0;
            for (unsigned type = EHCA_RPAGES_SQ; type <= EHCA_RPAGES_RQ;
                 type++) {
                uint64_t page = host_alloc(host, 4096);

                if (type == EHCA_RPAGES_SQ) {
                    qp.sq.pages[0] = page;
                }
                call(host, EHCA_H_REGISTER_RPAGES,
                     ARGS(type, qp.handle, page, 1), NULL);
            }
            /* The peer's QP turns to the new one. */
            host_pair_path(1, 0, &path);
            host_qp_to(b->qps[1], EHCA_QPS_RESET);
            host_qp_init(b->qps[1], 1);
            host_qp_rtr(b->qps[1], &path, NULL, EHCA_MTU_1024, qp.qpn, 5);
            host_pair_path(0, 0, &path);
            g_assert_cmpint(host_qp_init(&qp, 1), ==, 0);
            g_assert_cmpint(host_qp_rtr(&qp, &path, NULL, EHCA_MTU_1024,
                                        b->qps[1]->qpn, 5), ==, 0);
            g_assert_cmpint(host_qp_rts(&qp, &path, 5, false), ==, 0);
            b->mrs[0]->bytes[0] = 0x77;
            host_post_send(&qp, &wr);
            host_ring(&qp);
            g_assert_true(bench_cqe(b, 0, &cqe, IB_MSEC) ==
                          (sigt == EHCA_SIGT_EVERY ||
                           (sigt == EHCA_SIGT_PER_WQE && flag)));
            g_assert_cmphex(b->mrs[1]->bytes[0], ==, 0x77);
            /* An error is told always. */
            wr.sges[0].lkey ^= 1;
            host_post_send(&qp, &wr);
            host_ring(&qp);
            g_assert_true(bench_cqe(b, 0, &cqe, IB_MSEC));
            g_assert_cmphex(cqe.status, ==, 0x80000004);
            bench_free(b);
        }
    }
}

/* H_QUERY_QP tells where the QP is now, not what it was told once. */
static void test_query(void)
{
    Bench *b = bench_new(EHCA_SERVICE_RC, false);
    HostQp *ud;

    for (unsigned i = 0; i < 3; i++) {
        bench_ping(b, 0);
    }
    g_assert_cmphex(host_qp_field(b->qps[0], EHCA_QPCB_SEND_PSN), ==, 0x103);
    g_assert_cmphex(host_qp_field(b->qps[1], EHCA_QPCB_RECEIVE_PSN), ==,
                    0x103);
    g_assert_cmphex(host_qp_field(b->qps[1], EHCA_QPCB_SEND_PSN), ==, 0x200);
    g_assert_cmpint(host_qp_to(b->qps[0], EHCA_QPS_SQD), ==, 0);
    g_assert_cmphex(host_qp_field(b->qps[0], EHCA_QPCB_SEND_PSN), ==, 0x103);
    g_assert_cmphex(host_qp_field(b->qps[0], EHCA_QPCB_QP_NUMBER), ==,
                    b->qps[0]->qpn);
    g_assert_cmpuint(host_qp_field(b->qps[0], EHCA_QPCB_MAX_NR_OUTST_SEND_WR),
                     >=, 64);
    g_assert_cmpuint(host_qp_field(b->qps[0],
                                   EHCA_QPCB_ACTUAL_NR_SGES_IN_SQ_WQE), ==,
                     4);
    /* A UD queue that stopped, too. */
    ud = host_qp_new(b->pair->hosts[0], EHCA_SERVICE_UD, b->cqs[0],
                     b->cqs[0], 8, 8);
    host_qp_ud_init(ud, 1, 5);
    host_qp_ud_ready(ud, 0xFFFFFF);
    for (unsigned i = 0; i < 2; i++) {
        HostSendWr wr = {
            .optype = EHCA_WQE_OPTYPE_SEND, .num_sges = 1, .dest_qpn = 5,
            .sges = { host_sge(b->mrs[0], 0, 8) }, .dlid = 2,
        };

        host_post_send(ud, &wr);
        host_ring(ud);
        bench_run(b, IB_MSEC);
    }
    to_sqe(b, ud);
    g_assert_cmphex(host_qp_field(ud, EHCA_QPCB_SEND_PSN), ==, 1);
    /* After RESET all is as new; a migration state there always is. */
    g_assert_cmpint(host_qp_to(b->qps[0], EHCA_QPS_RESET), ==, 0);
    g_assert_cmphex(host_qp_field(b->qps[0], EHCA_QPCB_SEND_PSN), ==, 0);
    g_assert_cmphex(host_qp_field(b->qps[0], EHCA_QPCB_DLID), ==, 0);
    g_assert_cmpuint(host_qp_mig(b->qps[0]), ==, EHCA_MIG_MIGRATED);
    bench_free(b);
}

/* 8.13, by its offsets. */
static void test_error_data(void)
{
    Bench *b = bench_new(EHCA_SERVICE_RC, false);
    Host *host = b->pair->hosts[0];
    const uint8_t *block = host_block(host);
    HostCqe cqe;
    HostSendWr wr = {
        .optype = EHCA_WQE_OPTYPE_SEND, .num_sges = 1,
        .sges = { host_sge(b->mrs[0], 0, 8) },
    };

    wr.sges[0].lkey ^= 1;
    host_post_send(b->qps[0], &wr);
    host_ring(b->qps[0]);
    g_assert_true(bench_cqe(b, 0, &cqe, IB_MSEC));
    memset(host_block(host), 0xEE, EHCA_CB_SIZE);
    g_assert_cmpint(call(host, EHCA_H_ERROR_DATA,
                         ARGS(b->qps[0]->handle, host->block), NULL), ==, 0);
    g_assert_cmphex(ib_get64(block) & ~UINT64_C(0xFFF), ==, 0);
    g_assert_cmpuint(ib_get64(block), >=, 0x38);
    g_assert_cmphex(ib_get64(block + 8), ==, b->qps[0]->handle);
    g_assert_cmphex(ib_get64(block + 0x10), ==, UINT64_C(1) << 56);
    g_assert_cmphex(ib_get64(block + 0x30), !=, 0);
    /* Not a byte behind its length. */
    g_assert_cmphex(block[ib_get64(block)], ==, 0xEE);
    bench_free(b);
}

/* ------------------------------------------------------------------ */
/* Memory regions of large pages                                      */
/* ------------------------------------------------------------------ */

static void test_large_pages(void)
{
    static const unsigned codes[] = { EHCA_MR_PGSIZE_4K, EHCA_MR_PGSIZE_64K,
                                      EHCA_MR_PGSIZE_1M };

    for (unsigned i = 0; i < G_N_ELEMENTS(codes); i++) {
        Bench *b = bench_new(EHCA_SERVICE_RC, false);
        Host *host = b->pair->hosts[1];
        uint64_t size = UINT64_C(1) << EHCA_MR_PGSHIFT(codes[i]);
        /* Pages in reverse order, the first byte in the middle of one. */
        uint64_t first = size, second = 0;
        uint64_t start = UINT64_C(0x123400000000) + size / 2 + 1;
        uint64_t length = size, list, out[9], rkey, handle;
        const uint64_t at = size / 2 - 2;     /* crosses into the second */
        uint8_t *ram = host_ptr(host, 0);
        HostSendWr wr = {
            .wr_id = 7, .flags = EHCA_WQE_FLAG_SIGNALED, .num_sges = 1,
            .sges = { host_sge(b->mrs[0], 0, 2000) },
            .optype = EHCA_WQE_OPTYPE_RDMA_WRITE,
        };
        HostCqe cqe;

        if (codes[i] == EHCA_MR_PGSIZE_4K) {
            first = host_alloc(host, 4096);
            second = host_alloc(host, 4096);
        } else if (codes[i] == EHCA_MR_PGSIZE_64K) {
            second = host_alloc(host, 4 * size);
            second = (second + size - 1) & ~(size - 1);
            first = second + size;
        } else {
            /* Behind what the host uses. */
            first = 3 * size;
            second = 2 * size;
            g_assert_cmpuint(host->ram_used, <, second);
        }
        g_assert_cmpint(call(host, EHCA_H_ALLOC_RESOURCE, ARGS(EHCA_RT_MR,
            start, length, (uint64_t)(BENCH_ALL_ACCESS |
            codes[i] << EHCA_MR_PGSIZE_SHIFT) << 32, HOST_PD), out), ==, 0);
        handle = out[EHCA_OUT_HANDLE];
        rkey = out[EHCA_OUT_RKEY];
        list = host->list;
        ib_put64(ram + list, first);
        ib_put64(ram + list + 8, second);
        g_assert_cmpint(call(host, EHCA_H_REGISTER_RPAGES,
                             ARGS((codes[i] ^ 1) << 8, handle, list, 2),
                             NULL), ==, EHCA_RC_PARAMETER);
        g_assert_cmpint(call(host, EHCA_H_REGISTER_RPAGES,
                             ARGS(codes[i] << 8, handle, list, 3), NULL), ==,
                        EHCA_RC_PARAMETER);
        g_assert_cmpint(call(host, EHCA_H_REGISTER_RPAGES,
                             ARGS(codes[i] << 8, handle, list, 2), NULL), ==,
                        EHCA_RC_SUCCESS);
        g_assert_cmpint(call(host, EHCA_H_REGISTER_RPAGES,
                             ARGS(codes[i] << 8, handle, first, 1), NULL),
                        ==, EHCA_RC_PARAMETER);
        bench_fill(b, 0, 0, 2000, i);
        wr.raddr = start + at;
        wr.rkey = rkey;
        host_post_send(b->qps[0], &wr);
        host_ring(b->qps[0]);
        g_assert_true(bench_cqe(b, 0, &cqe, IB_MSEC));
        g_assert_cmphex(cqe.status, ==, 0);
        g_assert_cmpmem(ram + first + size - 1, 1, b->mrs[0]->bytes, 1);
        g_assert_cmpmem(ram + second, 1999, b->mrs[0]->bytes + 1, 1999);
        /* The last byte, and one beyond. */
        wr.raddr = start + length - 1;
        wr.sges[0].length = 1;
        host_post_send(b->qps[0], &wr);
        host_ring(b->qps[0]);
        g_assert_true(bench_cqe(b, 0, &cqe, IB_MSEC));
        g_assert_cmphex(cqe.status, ==, 0);
        g_assert_cmphex(ram[second + size / 2], ==, b->mrs[0]->bytes[0]);
        wr.sges[0].length = 2;
        host_post_send(b->qps[0], &wr);
        host_ring(b->qps[0]);
        g_assert_true(bench_cqe(b, 0, &cqe, IB_MSEC));
        g_assert_cmphex(cqe.status, ==, 0x80001007);
        bench_free(b);
    }
}

/* ------------------------------------------------------------------ */
/* Keys                                                               */
/* ------------------------------------------------------------------ */

typedef enum KeyKind {
    GOOD, OTHER_PD, NO_PAGES, HALF_PAGES, WINDOW, OLD_KEY, NEW_KEY, UNMAPPED,
    MAPPED_AGAIN, SHARED, SHARED_READ_ONLY, SHARED_OUTLIVES, FREED, KEY_KINDS
} KeyKind;

#define KEY_START UINT64_C(0x5000)

/* A key for two pages at KEY_START of @host. */
static uint32_t make_key(Host *host, KeyKind kind)
{
    const uint64_t all = (uint64_t)BENCH_ALL_ACCESS << 32;
    uint64_t list = host->list, first = host_alloc(host, 8192), out[9], mr;
    uint64_t pd = kind == OTHER_PD ? HOST_PD + 1 : HOST_PD;
    uint32_t key;

    ib_put64(host_ptr(host, list), first);
    ib_put64(host_ptr(host, list + 8), first + 4096);
    if (kind == WINDOW) {
        must(call(host, EHCA_H_ALLOC_RESOURCE, ARGS(EHCA_RT_MW, HOST_PD),
                  out));
        return out[EHCA_OUT_RKEY];
    }
    must(call(host, EHCA_H_ALLOC_RESOURCE, ARGS(EHCA_RT_MR, KEY_START, 8192,
                                                all, pd), out));
    mr = out[EHCA_OUT_HANDLE];
    key = out[EHCA_OUT_LKEY];
    g_assert_cmphex(key, ==, out[EHCA_OUT_RKEY]);
    if (kind != NO_PAGES) {
        call(host, EHCA_H_REGISTER_RPAGES,
             kind == HALF_PAGES ? ARGS(0, mr, first, 1)
                                : ARGS(0, mr, list, 2), NULL);
    }
    switch (kind) {
    case OLD_KEY:
    case NEW_KEY:
        must(call(host, EHCA_H_REREGISTER_PMR, ARGS(mr, KEY_START, 8192,
                                                    all | HOST_PD, list),
                  out));
        g_assert_cmphex(out[1], ==, KEY_START);
        return kind == OLD_KEY ? key : out[2];
    case UNMAPPED:
    case MAPPED_AGAIN:
        must(call(host, EHCA_H_REREGISTER_PMR, ARGS(mr, 0, 0, HOST_PD, 0),
                  out));
        if (kind == UNMAPPED) {
            return out[2];
        }
        must(call(host, EHCA_H_REREGISTER_PMR, ARGS(mr, KEY_START, 8192,
                                                    all | HOST_PD, list),
                  out));
        return out[2];
    case SHARED:
    case SHARED_READ_ONLY:
    case SHARED_OUTLIVES:
        must(call(host, EHCA_H_REGISTER_SMR, ARGS(mr, KEY_START,
            kind == SHARED_READ_ONLY ? (uint64_t)EHCA_MR_REMOTE_READ << 32
                                     : all, HOST_PD), out));
        key = out[2];
        /* Its pages are not one's own to change. */
        g_assert_cmpint(call(host, EHCA_H_REREGISTER_PMR, ARGS(mr, KEY_START,
                             8192, all | HOST_PD, list), NULL), ==,
                        EHCA_RC_MR_CONDITION);
        if (kind == SHARED_OUTLIVES) {
            must(call(host, EHCA_H_FREE_RESOURCE, ARGS(mr), NULL));
        }
        return key;
    case FREED:
        must(call(host, EHCA_H_FREE_RESOURCE, ARGS(mr), NULL));
        return key;
    default:
        return key;
    }
}

/* Which keys open something, asked for by the peer and by the own QP. */
static void test_keys(void)
{
    for (KeyKind kind = 0; kind < KEY_KINDS; kind++) {
        bool good = kind == GOOD || kind == NEW_KEY || kind == MAPPED_AGAIN ||
                    kind == SHARED || kind == SHARED_OUTLIVES;

        for (unsigned local = 0; local < 2; local++) {
            Bench *b = bench_new(EHCA_SERVICE_RC, false);
            uint32_t key = make_key(b->pair->hosts[!local], kind);
            HostSendWr wr = {
                .flags = EHCA_WQE_FLAG_SIGNALED, .num_sges = 1,
                .sges = { host_sge(b->mrs[0], 0, 5000) },
                .optype = local ? EHCA_WQE_OPTYPE_RDMA_READ
                                : EHCA_WQE_OPTYPE_RDMA_WRITE,
                .raddr = b->mrs[1]->iova, .rkey = b->mrs[1]->rkey,
            };
            HostCqe cqe;

            if (local) {
                wr.sges[0] = (HostSge) { KEY_START + 100, key, 5000 };
            } else {
                wr.raddr = KEY_START + 100;
                wr.rkey = key;
            }
            host_post_send(b->qps[0], &wr);
            host_ring(b->qps[0]);
            g_assert_true(bench_cqe(b, 0, &cqe, IB_MSEC));
            g_test_message("key %u, local %u: 0x%x", kind, local, cqe.status);
            g_assert_cmphex(cqe.status, ==, good ? 0 : local ? 0x80000004
                                                             : 0x80001007);
            bench_free(b);
        }
    }
}

/* ------------------------------------------------------------------ */
/* Event queues that overflow                                         */
/* ------------------------------------------------------------------ */

static void make_event(HostQp *qp)
{
    g_assert_cmpint(host_qp_to(qp, EHCA_QPS_SQD), ==, 0);
    g_assert_cmpint(host_qp_to(qp, EHCA_QPS_RTS), ==, 0);
}

/*
 * Nothing that waits is overwritten, what does not fit is dropped, and when
 * the guest has drained the queue events come again.
 */
static void test_eq_overflow(void)
{
    Bench *b = bench_new(EHCA_SERVICE_RC, false);
    Host *host = b->pair->hosts[0];
    unsigned got = 0;
    HostEqe eqe;

    bench_events(b);
    for (unsigned round = 0; round < 3; round++) {
        got = 0;
        for (unsigned i = 0; i < host->eq.entries + 100; i++) {
            make_event(b->qps[0]);
        }
        while (host_next_eqe(host, &eqe)) {
            g_assert_cmpuint(eqe.id, ==, EHCA_EQE_SQ_DRAINED);
            g_assert_cmpuint(eqe.number, ==, b->qps[0]->qpn);
            g_assert_cmpuint(eqe.token, ==, b->qps[0]->token);
            got++;
        }
        /* Of the last one read before, the adapter has not heard yet. */
        g_assert_cmpuint(got, <=, host->eq.entries);
        g_assert_cmpuint(got, >=, host->eq.entries - 1);
        for (unsigned i = 0; i < 10; i++) {
            make_event(b->qps[0]);
            g_assert_true(host_next_eqe(host, &eqe));
            g_assert_false(host_next_eqe(host, &eqe));
        }
    }
    bench_ping(b, 0);
    bench_free(b);
}

static void test_neq_overflow(void)
{
    Bench *b = bench_new(EHCA_SERVICE_RC, false);
    Host *host = b->pair->hosts[0];
    unsigned got = 0;
    HostEqe eqe;

    bench_events(b);
    /* Each up and down of port 1 is two entries. */
    for (unsigned i = 0; i < host->neq.entries / 2 + 10; i++) {
        host_cable_set(b->pair->cables[0], false);
        host_cable_run(b->pair->cables[0]);
        host_cable_set(b->pair->cables[0], true);
        g_assert_true(host_cable_activate(b->pair->cables[0], 0,
                                          host_pair_lid(0, 1), 0));
    }
    while (host_next_neqe(host, &eqe)) {
        g_assert_cmpuint(eqe.id, ==, EHCA_NEQE_PORT_AVAIL);
        g_assert_cmpuint(eqe.port, ==, 1);
        g_assert_true(eqe.flag == (got & 1));
        got++;
    }
    g_assert_cmpuint(got, <=, host->neq.entries);
    g_assert_cmpuint(got, >=, host->neq.entries - 2);
    host_cable_set(b->pair->cables[0], false);
    host_cable_run(b->pair->cables[0]);
    g_assert_true(host_next_neqe(host, &eqe));
    g_assert_false(eqe.flag);
    bench_free(b);
}

/* A page of a CQ that is gone says nothing about an EQ that came later. */
static void test_stale_cq_page(void)
{
    Bench *b = bench_new(EHCA_SERVICE_RC, false);
    Host *host = b->pair->hosts[0];
    uint64_t ep = b->cqs[0]->regs - HOST_GALPA_BASE + EHCA_CQX_EP;
    HostEqe eqe;
    HostQp *qp;

    for (unsigned i = 0; i < 10; i++) {
        make_event(b->qps[0]);
    }
    host_cq_arm(b->cqs[0], false);
    bench_ping(b, 0);
    ehca_reset(host->adapter);
    host_start(host);
    ehca_mmio_write(host->adapter, ep, 0);
    b->cqs[0] = host_cq_new(host, 8);
    qp = host_qp_new(host, EHCA_SERVICE_RC, b->cqs[0], b->cqs[0], 4, 4);
    bring(b, qp, EHCA_QPS_RTS);
    for (unsigned i = 0; i < 3; i++) {
        make_event(qp);
        g_assert_true(host_next_eqe(host, &eqe));
        g_assert_cmpuint(eqe.id, ==, EHCA_EQE_SQ_DRAINED);
    }
    bench_free(b);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/engine/qp/attributes", test_attributes);
    g_test_add_func("/engine/qp/moves", test_moves);
    g_test_add_func("/engine/qp/values", test_values);
    g_test_add_func("/engine/qp/migration-requests", test_requests);
    g_test_add_func("/engine/qp/pages", test_pages);
    g_test_add_func("/engine/qp/doorbells", test_doorbells);
    g_test_add_func("/engine/qp/signalling", test_signalling);
    g_test_add_func("/engine/qp/query", test_query);
    g_test_add_func("/engine/qp/error-data", test_error_data);
    g_test_add_func("/engine/cq/without-pages", test_cq_without_pages);
    g_test_add_func("/engine/mr/large-pages", test_large_pages);
    g_test_add_func("/engine/mr/keys", test_keys);
    g_test_add_func("/engine/eq/overflow", test_eq_overflow);
    g_test_add_func("/engine/neq/overflow", test_neq_overflow);
    g_test_add_func("/engine/eq/stale-cq-page", test_stale_cq_page);
    return g_test_run();
}
