/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Queue pairs: allocation, the state machine, H_MODIFY_QP, H_QUERY_QP and
 * H_DISABLE_AND_GETC (interface sections 5.3, 8.6 to 8.8, 11, 17, 20).
 *
 * Theory of operation.
 *
 * H_MODIFY_QP works on a copy of the attributes: the fields named by the mask
 * are taken from the control block through one table (place in the block,
 * place in EhcaQpAttr, width, services and transitions that may carry them),
 * the result is checked as a whole, and only then becomes the QP's.  A refused
 * call changes nothing.
 *
 * States (IBTA 10.3.1): RESET -> INIT -> RTR -> RTS <-> SQD; UD: RTS -> SQE
 * -> RTS; any to RESET, any but RESET to ERR.  SRQs: RESET -> INIT -> RTR,
 * which is where they serve.  What a state means for traffic:
 *   RESET  receive doorbells dropped; ring positions 0
 *   INIT   receive doorbells count; nothing is sent or received
 *   RTR    receives; event 0x03 at the first packet of a connection
 *   RTS    sends and receives
 *   SQD    finishes WQEs begun, begins no others; event 0x04 when done
 *   SQE    UD: the send queue stopped at a failed WQE; receives
 *   ERR    nothing; no flush CQEs (20.1) but for a WQE of an SRQ in work
 */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

#define MAX_TIMEOUT_CODE 31
#define MAX_RETRY 7

const char *ehca_qp_state_name(unsigned state)
{
    switch (state) {
    case EHCA_QPS_RESET:
        return "RESET";
    case EHCA_QPS_INIT:
        return "INIT";
    case EHCA_QPS_RTR:
        return "RTR";
    case EHCA_QPS_RTS:
        return "RTS";
    case EHCA_QPS_SQD:
        return "SQD";
    case EHCA_QPS_SQE:
        return "SQE";
    case EHCA_QPS_ERR:
        return "ERR";
    default:
        return "unknown";
    }
}

const char *ehca_service_name(unsigned service)
{
    static const char *const names[] = {
        [EHCA_SERVICE_RC] = "RC",
        [EHCA_SERVICE_UC] = "UC",
        [EHCA_SERVICE_RD] = "RD",
        [EHCA_SERVICE_UD] = "UD",
    };

    return service < sizeof(names) / sizeof(names[0]) ? names[service]
                                                      : "unknown";
}

unsigned ehca_qp_mtu(const EhcaQp *qp)
{
    unsigned mtu = ib_mtu_bytes(qp->attr.path_mtu);

    return mtu ? mtu : 256;
}

/* ------------------------------------------------------------------ */
/* Allocation                                                         */
/* ------------------------------------------------------------------ */

/* SG entries whose stride divides a page (5.3); 0: more than fit. */
static uint32_t round_sges(uint32_t sges)
{
    static const uint8_t sizes[] = {
        EHCA_SGES_4, EHCA_SGES_12, EHCA_SGES_28, EHCA_SGES_60,
        EHCA_SGES_124, EHCA_SGES_252,
    };

    for (size_t i = 0; i < sizeof(sizes); i++) {
        if (sges <= sizes[i]) {
            return sizes[i];
        }
    }
    return 0;
}

static void reset_attr(EhcaQp *qp)
{
    uint32_t limit = qp->attr.srq_limit;

    memset(&qp->attr, 0, sizeof(qp->attr));
    qp->attr.state = EHCA_QPS_RESET;
    qp->attr.mig_state = EHCA_MIG_MIGRATED;
    qp->attr.max_send_wr = qp->send_wrs;
    qp->attr.max_recv_wr = qp->recv_wrs;
    qp->attr.srq_limit = qp->kind == EHCA_QPKIND_SRQ ? limit : 0;
    qp->attr.path[EHCA_PRIMARY].port = qp->special_port;
}

static int64_t check_alloc(EhcaCall *call, unsigned kind, unsigned service,
                           unsigned sigt)
{
    EhcaAdapter *a = call->a;
    uint64_t r5 = call->in[1];

    if (kind == EHCA_QPKIND_LLQP || kind > EHCA_QPKIND_SRQ) {
        ehca_guest_error(a, "H_ALLOC_RESOURCE QP: kind %u; low-latency QPs do "
            "not exist here (capabilities), use kind 0, 2 or 3", kind);
        return EHCA_RC_RT_PARM;
    }
    if (service == EHCA_SERVICE_RD || service > EHCA_SERVICE_UD ||
        (kind == EHCA_QPKIND_SRQBASE && service == EHCA_SERVICE_UC) ||
        (kind == EHCA_QPKIND_SRQ && service != EHCA_SERVICE_RC)) {
        ehca_guest_error(a, "H_ALLOC_RESOURCE QP: service %u (%s) with kind "
            "%u; possible are RC, UC and UD, RC and UD with an SRQ", service,
            ehca_service_name(service), kind);
        return EHCA_RC_ST_PARM;
    }
    if (sigt > EHCA_SIGT_EVERY) {
        ehca_guest_error(a, "H_ALLOC_RESOURCE QP: signalling type %u is none "
            "of 0, 1, 2", sigt);
        return EHCA_RC_SIGT_PARM;
    }
    if (r5 >> EHCA_ALLOC_QP_STORAGE_SHIFT & EHCA_ALLOC_QP_STORAGE_MASK ||
        r5 >> EHCA_ALLOC_QP_SMALL_SQ_SHIFT & EHCA_ALLOC_QP_SMALL_MASK ||
        r5 >> EHCA_ALLOC_QP_SMALL_RQ_SHIFT & EHCA_ALLOC_QP_SMALL_MASK) {
        ehca_guest_error(a, "H_ALLOC_RESOURCE QP: small queues do not exist "
            "here (capability MINI_QP is not set)");
        return EHCA_RC_PARAMETER;
    }
    return EHCA_RC_SUCCESS;
}

/* CQs, EQ and SRQ of a QP to be; all NULL for an SRQ. */
static int64_t find_partners(EhcaCall *call, unsigned kind, EhcaQp *qp)
{
    EhcaAdapter *a = call->a;
    EhcaEq *eq = ehca_find_eq(a, call->in[4]);
    uint32_t srq_qpn = call->in[8] & EHCA_ALLOC_QP_R12_SRQ_QPN_MASK;

    if (!eq || eq->kind != EHCA_KIND_EQ) {
        ehca_guest_error(a, "H_ALLOC_RESOURCE QP: 0x%llx is no EQ",
                         (unsigned long long)call->in[4]);
        return EHCA_RC_EQ_PARM;
    }
    if (kind == EHCA_QPKIND_SRQ) {
        return EHCA_RC_SUCCESS;
    }
    qp->send_cq = ehca_find_cq(a, call->in[2]);
    if (!qp->send_cq) {
        ehca_guest_error(a, "H_ALLOC_RESOURCE QP: send CQ 0x%llx is no CQ",
                         (unsigned long long)call->in[2]);
        return EHCA_RC_SCQ_PARM;
    }
    qp->recv_cq = ehca_find_cq(a, call->in[3]);
    if (!qp->recv_cq) {
        ehca_guest_error(a, "H_ALLOC_RESOURCE QP: receive CQ 0x%llx is no CQ",
                         (unsigned long long)call->in[3]);
        return EHCA_RC_RCQ_PARM;
    }
    if (kind == EHCA_QPKIND_SRQBASE) {
        qp->srq = ehca_qp_by_number(a, srq_qpn);
        if (!qp->srq || qp->srq->kind != EHCA_QPKIND_SRQ) {
            ehca_guest_error(a, "H_ALLOC_RESOURCE QP: 0x%x in r12 is not the "
                "QP number of an SRQ", srq_qpn);
            return EHCA_RC_PARAMETER;
        }
    }
    return EHCA_RC_SUCCESS;
}

static bool alloc_ring(EhcaAdapter *a, EhcaQueue *queue, uint32_t wrs,
                       uint32_t sges)
{
    uint32_t stride = EHCA_WQE_STRIDE(sges);
    uint64_t bytes = (uint64_t)(wrs ? wrs : 1) * stride;

    return ehca_queue_alloc(a, queue, (bytes + EHCA_PAGE_SIZE - 1) /
                            EHCA_PAGE_SIZE, stride);
}

static uint32_t reported_wrs(const EhcaQueue *queue)
{
    return queue->entries > EHCA_ALLOC_QP_WRS_MASK ? EHCA_ALLOC_QP_WRS_MASK
                                                   : queue->entries;
}

static int64_t qp_build(EhcaCall *call, EhcaQp *qp)
{
    EhcaAdapter *a = call->a;
    uint64_t r10 = call->in[6];
    /* An SRQ's are copied when they are taken, see wqe.c. */
    uint32_t max_recv_sges = qp->kind == EHCA_QPKIND_SRQ ? EHCA_SGES_4
                                                         : EHCA_SGES_252;
    uint32_t send_sges, recv_sges, generation;
    int64_t rc = find_partners(call, qp->kind, qp);

    if (rc != EHCA_RC_SUCCESS) {
        return rc;
    }
    qp->token = call->in[5] >> EHCA_ALLOC_QP_TOKEN_SHIFT;
    qp->pd = call->in[5];
    qp->send_wrs = r10 >> EHCA_ALLOC_QP_SEND_WRS_SHIFT &
                   EHCA_ALLOC_QP_WRS_MASK;
    qp->recv_wrs = r10 >> EHCA_ALLOC_QP_RECV_WRS_SHIFT &
                   EHCA_ALLOC_QP_WRS_MASK;
    send_sges = r10 >> EHCA_ALLOC_QP_SEND_SGES_SHIFT & EHCA_ALLOC_QP_SGES_MASK;
    recv_sges = r10 >> EHCA_ALLOC_QP_RECV_SGES_SHIFT & EHCA_ALLOC_QP_SGES_MASK;
    qp->send_sges = round_sges(send_sges);
    qp->recv_sges = round_sges(recv_sges);
    if (!qp->send_sges || !qp->recv_sges || qp->recv_sges > max_recv_sges ||
        qp->send_wrs > EHCA_MAX_WQES + 2 || qp->recv_wrs > EHCA_MAX_WQES + 2) {
        ehca_guest_error(a, "H_ALLOC_RESOURCE QP: %u send and %u receive WQEs "
            "of %u and %u SG entries; at most %u of %u and %u", qp->send_wrs,
            qp->recv_wrs, send_sges, recv_sges, EHCA_MAX_WQES + 2,
            EHCA_SGES_252, max_recv_sges);
        return EHCA_RC_PARAMETER;
    }
    if ((qp->kind != EHCA_QPKIND_SRQ &&
         !alloc_ring(a, &qp->sq, qp->send_wrs, qp->send_sges)) ||
        (qp->kind != EHCA_QPKIND_SRQBASE &&
         !alloc_ring(a, &qp->rq, qp->recv_wrs, qp->recv_sges)) ||
        !ehca_slots_take(&a->qps, qp, &qp->slot, &generation)) {
        ehca_guest_error(a, "H_ALLOC_RESOURCE QP: %u of %u QPs in use, %llu "
            "queue pages of %llu", a->qps.used, a->config.max_qp,
            (unsigned long long)a->queue_pages,
            (unsigned long long)EHCA_MAX_QUEUE_PAGES);
        return EHCA_RC_NOT_ENOUGH_RESOURCES;
    }
    qp->handle = ehca_handle(EHCA_KIND_QP, generation, qp->slot);
    qp->qpn = (generation & 0xFF) << 16 | (qp->slot + EHCA_QPN_FIRST);
    return EHCA_RC_SUCCESS;
}

int64_t ehca_qp_alloc(EhcaCall *call)
{
    EhcaAdapter *a = call->a;
    uint64_t r5 = call->in[1];
    unsigned kind = r5 >> EHCA_ALLOC_QP_KIND_SHIFT & EHCA_ALLOC_QP_KIND_MASK;
    unsigned service = r5 >> EHCA_ALLOC_QP_SERVICE_SHIFT &
                       EHCA_ALLOC_QP_SERVICE_MASK;
    unsigned sigt = r5 >> EHCA_ALLOC_QP_SIGT_SHIFT & EHCA_ALLOC_QP_SIGT_MASK;
    int64_t rc = check_alloc(call, kind, service, sigt);
    EhcaQp *qp;

    if (rc != EHCA_RC_SUCCESS) {
        return rc;
    }
    qp = calloc(1, sizeof(*qp));
    if (!qp) {
        return EHCA_RC_NO_MEM;
    }
    qp->adapter = a;
    qp->kind = kind;
    qp->service = service;
    qp->sigt = sigt;
    rc = qp_build(call, qp);
    if (rc != EHCA_RC_SUCCESS) {
        ehca_queue_free(a, &qp->sq);
        ehca_queue_free(a, &qp->rq);
        free(qp);
        return rc;
    }
    ib_timer_init(&qp->timer, a->clock, ehca_requester_timer, qp);
    if (kind == EHCA_QPKIND_SRQ) {
        qp->attr.srq_limit = call->in[8] & EHCA_ALLOC_QP_R12_SRQ_LIMIT_MASK;
        qp->srq_limit_armed = qp->attr.srq_limit != 0;
    } else {
        qp->send_cq->users++;
        qp->recv_cq->users++;
    }
    if (qp->srq) {
        qp->srq->srq_users++;
    }
    a->eq.users++;
    reset_attr(qp);
    atomic_store(&a->doorbells[qp->slot].send, 0);
    atomic_store(&a->doorbells[qp->slot].recv, 0);

    call->out[EHCA_OUT_HANDLE] = qp->handle;
    call->out[EHCA_OUT_QPN] = qp->qpn;
    call->out[EHCA_OUT_QP_WRS] =
        (uint64_t)reported_wrs(&qp->sq) << EHCA_OUT_QP_SEND_WRS_SHIFT |
        (uint64_t)reported_wrs(&qp->rq) << EHCA_OUT_QP_RECV_WRS_SHIFT;
    call->out[EHCA_OUT_QP_SGES] =
        (uint64_t)qp->send_sges << EHCA_OUT_QP_SEND_SGES_SHIFT |
        (uint64_t)qp->recv_sges << EHCA_OUT_QP_RECV_SGES_SHIFT;
    call->out[EHCA_OUT_QP_PAGES] =
        (uint64_t)qp->sq.num_pages << EHCA_OUT_QP_SQ_PAGES_SHIFT |
        (uint64_t)qp->rq.num_pages << EHCA_OUT_QP_RQ_PAGES_SHIFT;
    call->out[EHCA_OUT_QP_REGS] = a->config.galpa_base +
                                  (uint64_t)qp->slot * EHCA_REGS_SIZE;
    return EHCA_RC_SUCCESS;
}

void ehca_qp_destroy(EhcaQp *qp)
{
    EhcaAdapter *a = qp->adapter;

    ehca_unschedule(qp);
    ib_timer_fini(&qp->timer);
    ehca_mcast_forget(qp);
    ehca_port_forget_qp(qp);
    if (qp->srq) {
        qp->srq->srq_users--;
    }
    if (qp->send_cq) {
        qp->send_cq->users--;
        qp->recv_cq->users--;
    }
    a->eq.users--;
    ehca_queue_free(a, &qp->sq);
    ehca_queue_free(a, &qp->rq);
    ehca_slots_give(&a->qps, qp->slot);
    free(qp);
}

/* ------------------------------------------------------------------ */
/* States                                                             */
/* ------------------------------------------------------------------ */

static void stop(EhcaQp *qp)
{
    ehca_unschedule(qp);
    ib_timer_cancel(&qp->timer);
}

static void enter_reset(EhcaQp *qp)
{
    stop(qp);
    ehca_recv_flush(qp);
    ehca_apm_set_state(qp, EHCA_MIG_MIGRATED, EHCA_CAUSE_RESET);
    reset_attr(qp);
    ehca_requester_reset(qp);
    ehca_responder_reset(qp);
    qp->sq.head = qp->sq.posted = 0;
    qp->rq.head = qp->rq.posted = 0;
    qp->event_posted = false;
    qp->overflow_told = false;
    qp->await_first_payload = false;
    qp->error_cause = EHCA_CAUSE_NONE;
    qp->error_status = 0;
    qp->aer = 0;
}

static void enter_err(EhcaQp *qp)
{
    stop(qp);
    ehca_recv_flush(qp);
    qp->ack_due = false;
    qp->res_cur = qp->res_head;
    qp->sq.posted = qp->rq.posted = 0;
    /* The consumer of an SRQ waits for "last WQE reached" (24.6). */
    if (qp->kind == EHCA_QPKIND_SRQBASE && !qp->event_posted) {
        qp->event_posted = true;
        ehca_eq_qp_event(qp, EHCA_EQE_QP_ERR);
    }
}

void ehca_qp_set_state(EhcaQp *qp, unsigned state, EhcaCause cause)
{
    unsigned from = qp->attr.state;

    if (state == EHCA_QPS_RESET) {
        enter_reset(qp);
    }
    qp->attr.state = state;
    if (from != state) {
        ehca_emit(qp->adapter, &(EhcaEvent) {
            .kind = EHCA_EVENT_QP_STATE, .cause = cause, .qpn = qp->qpn,
            .port = qp->attr.path[EHCA_PRIMARY].port, .from = from,
            .to = state,
        });
    }
    switch (state) {
    case EHCA_QPS_RTR:
        if (from == EHCA_QPS_INIT) {
            ehca_responder_reset(qp);
        }
        break;
    case EHCA_QPS_RTS:
        if (from == EHCA_QPS_RTR) {
            ehca_requester_start(qp);
        } else if (from == EHCA_QPS_SQE) {
            /* The failed WQE is taken up again (20.3). */
            qp->sq.posted = 1;
        }
        qp->sq_drained_told = false;
        if (qp->sq.posted) {
            ehca_schedule_req(qp);
        }
        break;
    case EHCA_QPS_SQD:
        if (from != EHCA_QPS_SQD) {
            qp->sq_drained_told = false;
            ehca_requester_check_drained(qp);
        }
        break;
    case EHCA_QPS_SQE:
        qp->sq.posted = 0;
        break;
    case EHCA_QPS_ERR:
        if (from != EHCA_QPS_ERR) {
            enter_err(qp);
        }
        break;
    default:
        break;
    }
    if (qp->is_smi) {
        ehca_port_qp0_changed(&qp->adapter->ports[qp->special_port]);
    }
}

void ehca_qp_error(EhcaQp *qp, EhcaCause cause, uint32_t status, bool event)
{
    unsigned from = qp->attr.state;

    if (from == EHCA_QPS_ERR || from == EHCA_QPS_RESET) {
        return;
    }
    qp->error_cause = cause;
    qp->error_status = status;
    qp->aer = (uint64_t)cause << 32 | status;
    ehca_emit(qp->adapter, &(EhcaEvent) {
        .kind = EHCA_EVENT_QP_ERROR, .cause = cause, .qpn = qp->qpn,
        .port = qp->attr.path[EHCA_PRIMARY].port, .from = from,
        .to = EHCA_QPS_ERR,
    });
    ehca_qp_set_state(qp, EHCA_QPS_ERR, cause);
    /* Behind the last CQE: "last WQE reached" is what some wait for (24.6). */
    if (event && !qp->event_posted) {
        qp->event_posted = true;
        ehca_eq_qp_event(qp, EHCA_EQE_QP_ERR);
    }
}

/* ------------------------------------------------------------------ */
/* H_MODIFY_QP                                                        */
/* ------------------------------------------------------------------ */

/* Transitions (17.4), as bits. */
enum {
    T_RESET_INIT = 1 << 0,
    T_INIT_INIT = 1 << 1,
    T_INIT_RTR = 1 << 2,
    T_RTR_RTS = 1 << 3,
    T_RTS_RTS = 1 << 4,
    T_RTS_SQD = 1 << 5,
    T_SQD_SQD = 1 << 6,
    T_SQD_RTS = 1 << 7,
    T_SQE_RTS = 1 << 8,
    T_TO_RESET = 1 << 9,
    T_TO_ERR = 1 << 10,
    T_OTHER_SAME = 1 << 11,            /* no change in RESET, RTR, SQE */
    T_EVERY = (1 << 12) - 1,
    T_ALT = T_INIT_RTR | T_RTR_RTS | T_RTS_RTS | T_SQD_RTS | T_SQD_SQD,
    T_AV = T_INIT_RTR | T_SQD_SQD,
    T_QKEY = T_RESET_INIT | T_INIT_INIT | T_INIT_RTR | T_RTR_RTS | T_RTS_RTS |
             T_SQD_RTS | T_SQD_SQD | T_SQE_RTS,
    T_PKEY = T_RESET_INIT | T_INIT_INIT | T_INIT_RTR | T_SQD_SQD,
    T_RETRY = T_RTR_RTS | T_SQD_SQD,
};

/* Services, as bits; SRQs are a service of their own here. */
enum {
    S_RC = 1 << EHCA_SERVICE_RC, S_UC = 1 << EHCA_SERVICE_UC,
    S_UD = 1 << EHCA_SERVICE_UD, S_SRQ = 1 << 7,
    S_CONN = S_RC | S_UC, S_ALL = S_CONN | S_UD | S_SRQ,
};

typedef enum FieldKind { F_U32, F_U64, F_GID } FieldKind;

typedef struct Field {
    uint64_t mask;
    uint16_t cb, attr;
    uint8_t kind, services;
    uint16_t transitions;
    uint32_t bits;                     /* what of the word is meant */
    uint32_t max;                      /* refused above, 0: no limit */
    const char *name;
} Field;

#define ATTR(member) offsetof(EhcaQpAttr, member)
#define U32(NAME, member, services, transitions, bits, max) \
    { EHCA_QPMASK_##NAME, EHCA_QPCB_##NAME, ATTR(member), F_U32, services, \
      transitions, bits, max, #NAME }
#define PRIM(NAME, member, services, transitions, bits, max) \
    U32(NAME, path[EHCA_PRIMARY].member, services, transitions, bits, max)
#define ALT(NAME, member, bits, max) \
    U32(NAME, path[EHCA_ALTERNATE].member, S_CONN, T_ALT, bits, max)

static const Field fields[] = {
    U32(QKEY, qkey, S_UD, T_QKEY, 0xFFFFFFFF, 0),
    U32(SEND_PSN, send_psn, S_CONN | S_UD, T_RTR_RTS, IB_PSN_MASK, 0),
    U32(RECEIVE_PSN, receive_psn, S_CONN, T_INIT_RTR, IB_PSN_MASK, 0),
    PRIM(PRIM_PHYS_PORT, port, S_CONN | S_UD | S_SRQ,
         T_RESET_INIT | T_INIT_INIT | T_SQD_SQD, 0xFF, 0),
    PRIM(PRIM_P_KEY_IDX, pkey_idx, S_CONN | S_UD, T_PKEY, 0xFF,
         EHCA_MAX_PKEYS - 1),
    U32(RDMA_ATOMIC_CTRL, rdma_atomic_ctrl, S_CONN, T_EVERY, 0xFFFFFFFF, 0),
    U32(RDMA_NR_ATOMIC_RESP_RES, resp_res, S_CONN, T_AV, 0xFF,
        EHCA_MAX_RD_RES),
    U32(RDMA_ATOMIC_OUTST_DEST_QP, init_depth, S_CONN, T_RETRY, 0xFF,
        EHCA_MAX_RD_RES),
    U32(DEST_QP_NR, dest_qpn, S_CONN, T_INIT_RTR, EHCA_QPN_MASK, 0),
    U32(MIN_RNR_NAK_TIMER_FIELD, min_rnr_timer, S_CONN,
        T_INIT_RTR | T_RTR_RTS | T_RTS_RTS | T_SQD_RTS | T_SQD_SQD, 0xFF,
        MAX_TIMEOUT_CODE),
    U32(PATH_MTU, path_mtu, S_CONN, T_INIT_RTR, 0xFF, 5),
    PRIM(SERVICE_LEVEL, service_level, S_CONN, T_AV, 0xFF, 15),
    PRIM(SEND_GRH_FLAG, send_grh, S_CONN | S_UD, T_AV, 0xFF, 1),
    PRIM(RETRY_COUNT, retry_count, S_CONN, T_RETRY, 0xFF, MAX_RETRY),
    PRIM(TIMEOUT, timeout, S_CONN, T_RETRY, 0xFF, MAX_TIMEOUT_CODE),
    PRIM(MAX_STATIC_RATE, static_rate, S_CONN, T_AV, 0xFF, 0),
    PRIM(DLID, dlid, S_CONN, T_AV, 0xFFFF, 0),
    PRIM(RNR_RETRY_COUNT, rnr_retry_count, S_CONN, T_RETRY, 0xFF, MAX_RETRY),
    PRIM(SOURCE_PATH_BITS, source_path_bits, S_CONN, T_AV, 0x7F, 0),
    PRIM(TRAFFIC_CLASS, traffic_class, S_CONN, T_AV, 0xFF, 0),
    PRIM(HOP_LIMIT, hop_limit, S_CONN, T_AV, 0xFF, 0),
    PRIM(SOURCE_GID_IDX, source_gid_idx, S_CONN, T_AV, 0xFF,
         IB_SMA_GUIDS - 1),
    PRIM(FLOW_LABEL, flow_label, S_CONN, T_AV, 0xFFFFF, 0),
    { EHCA_QPMASK_DEST_GID, EHCA_QPCB_DEST_GID,
      ATTR(path[EHCA_PRIMARY].dest_gid), F_GID, S_CONN, T_AV, 0, 0,
      "DEST_GID" },
    ALT(ALT_PHYS_PORT, port, 0xFF, 0),
    ALT(ALT_P_KEY_IDX, pkey_idx, 0xFF, EHCA_MAX_PKEYS - 1),
    ALT(SERVICE_LEVEL_AL, service_level, 0xFF, 15),
    ALT(SEND_GRH_FLAG_AL, send_grh, 0xFF, 1),
    ALT(RETRY_COUNT_AL, retry_count, 0xFF, MAX_RETRY),
    ALT(TIMEOUT_AL, timeout, 0xFF, MAX_TIMEOUT_CODE),
    ALT(MAX_STATIC_RATE_AL, static_rate, 0xFF, 0),
    ALT(DLID_AL, dlid, 0xFFFF, 0),
    ALT(RNR_RETRY_COUNT_AL, rnr_retry_count, 0xFF, MAX_RETRY),
    ALT(SOURCE_PATH_BITS_AL, source_path_bits, 0x7F, 0),
    ALT(TRAFFIC_CLASS_AL, traffic_class, 0xFF, 0),
    ALT(HOP_LIMIT_AL, hop_limit, 0xFF, 0),
    ALT(SOURCE_GID_IDX_AL, source_gid_idx, 0xFF, IB_SMA_GUIDS - 1),
    ALT(FLOW_LABEL_AL, flow_label, 0xFFFFF, 0),
    { EHCA_QPMASK_DEST_GID_AL, EHCA_QPCB_DEST_GID_AL,
      ATTR(path[EHCA_ALTERNATE].dest_gid), F_GID, S_CONN, T_ALT, 0, 0,
      "DEST_GID_AL" },
    U32(DISABLE_ETE_CREDIT_CHECK, disable_ete, S_CONN, T_EVERY, 0xFF, 0),
    U32(QP_ENABLE, enable, S_ALL, T_EVERY, 0xFF, 0),
    U32(CURR_SRQ_LIMIT, srq_limit, S_SRQ, T_EVERY, 0xFFFF, 0),
    { EHCA_QPMASK_QP_AFF_ASYN_EV_LOG_REG, EHCA_QPCB_QP_AFF_ASYN_EV_LOG_REG,
      ATTR(aaelog), F_U64, S_SRQ, T_EVERY, 0, 0, "QP_AFF_ASYN_EV_LOG_REG" },
};

#define MASK_GRH (EHCA_QPMASK_SOURCE_GID_IDX | EHCA_QPMASK_DEST_GID | \
                  EHCA_QPMASK_FLOW_LABEL | EHCA_QPMASK_HOP_LIMIT | \
                  EHCA_QPMASK_TRAFFIC_CLASS)
#define MASK_GRH_AL (EHCA_QPMASK_SOURCE_GID_IDX_AL | \
                     EHCA_QPMASK_DEST_GID_AL | EHCA_QPMASK_FLOW_LABEL_AL | \
                     EHCA_QPMASK_HOP_LIMIT_AL | EHCA_QPMASK_TRAFFIC_CLASS_AL)
#define MASK_ALT (EHCA_QPMASK_ALT_PHYS_PORT | EHCA_QPMASK_ALT_P_KEY_IDX | \
                  EHCA_QPMASK_SERVICE_LEVEL_AL | \
                  EHCA_QPMASK_SEND_GRH_FLAG_AL | \
                  EHCA_QPMASK_RETRY_COUNT_AL | EHCA_QPMASK_TIMEOUT_AL | \
                  EHCA_QPMASK_MAX_STATIC_RATE_AL | EHCA_QPMASK_DLID_AL | \
                  EHCA_QPMASK_RNR_RETRY_COUNT_AL | \
                  EHCA_QPMASK_SOURCE_PATH_BITS_AL | MASK_GRH_AL)

/* 0: there is no such transition. */
static unsigned transition(const EhcaQp *qp, unsigned from, unsigned to)
{
    bool is_srq = qp->kind == EHCA_QPKIND_SRQ;

    if (to == EHCA_QPS_RESET) {
        return T_TO_RESET;
    }
    if (to == EHCA_QPS_ERR) {
        return from == EHCA_QPS_RESET ? 0 : T_TO_ERR;
    }
    switch (from) {
    case EHCA_QPS_RESET:
        return to == EHCA_QPS_INIT ? T_RESET_INIT : 0;
    case EHCA_QPS_INIT:
        return to == EHCA_QPS_INIT ? T_INIT_INIT :
               to == EHCA_QPS_RTR ? T_INIT_RTR : 0;
    case EHCA_QPS_RTR:
        if (is_srq) {
            return to == EHCA_QPS_RTR ? T_OTHER_SAME : 0;
        }
        return to == EHCA_QPS_RTS ? T_RTR_RTS : 0;
    case EHCA_QPS_RTS:
        return to == EHCA_QPS_RTS ? T_RTS_RTS :
               to == EHCA_QPS_SQD ? T_RTS_SQD : 0;
    case EHCA_QPS_SQD:
        return to == EHCA_QPS_SQD ? T_SQD_SQD :
               to == EHCA_QPS_RTS ? T_SQD_RTS : 0;
    case EHCA_QPS_SQE:
        return to == EHCA_QPS_RTS ? T_SQE_RTS : 0;
    default:
        return 0;
    }
}

/* A call that does not name a state. */
static unsigned same_state(unsigned state)
{
    switch (state) {
    case EHCA_QPS_INIT:
        return T_INIT_INIT;
    case EHCA_QPS_RTS:
        return T_RTS_RTS;
    case EHCA_QPS_SQD:
        return T_SQD_SQD;
    default:
        return T_OTHER_SAME;
    }
}

/* Takes the fields that @mask names into @attr. */
static int64_t take_fields(EhcaCall *call, uint64_t mask, const uint8_t *cb,
                           unsigned trans, EhcaQpAttr *attr)
{
    EhcaQp *qp = call->qp;
    unsigned service = qp->kind == EHCA_QPKIND_SRQ ? S_SRQ
                                                   : 1u << qp->service;

    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        const Field *f = &fields[i];
        uint8_t *member = (uint8_t *)attr + f->attr;
        uint32_t value;

        if (!(mask & f->mask)) {
            continue;
        }
        mask &= ~f->mask;
        if (!(f->services & service) || !(f->transitions & trans)) {
            ehca_guest_error(call->a, "H_MODIFY_QP 0x%x: %s does not belong "
                "to this transition of a %s in %s", qp->qpn, f->name,
                service == S_SRQ ? "SRQ" : ehca_service_name(qp->service),
                ehca_qp_state_name(qp->attr.state));
            return EHCA_RC_MASK_PARM;
        }
        switch (f->kind) {
        case F_GID:
            memcpy(member, cb + f->cb, 16);
            break;
        case F_U64:
            *(uint64_t *)member = ib_get64(cb + f->cb);
            break;
        default:
            value = ib_get32(cb + f->cb) & f->bits;
            if (f->max && value > f->max) {
                ehca_guest_error(call->a, "H_MODIFY_QP 0x%x: %s is %u, at "
                    "most %u", qp->qpn, f->name, value, f->max);
                return EHCA_RC_ATTR_PARM;
            }
            *(uint32_t *)member = value;
            break;
        }
    }
    mask &= ~(EHCA_QPMASK_QP_STATE | EHCA_QPMASK_PATH_MIGRATION_STATE);
    if (mask) {
        ehca_guest_error(call->a, "H_MODIFY_QP 0x%x: mask bits 0x%016llx are "
            "not for software", qp->qpn, (unsigned long long)mask);
        return EHCA_RC_MASK_PARM;
    }
    return EHCA_RC_SUCCESS;
}

static int64_t check_path(EhcaCall *call, const EhcaPath *path,
                          const char *which)
{
    EhcaAdapter *a = call->a;

    if (!ehca_port(a, path->port)) {
        ehca_guest_error(a, "H_MODIFY_QP 0x%x: %s path by port %u; the "
            "adapter has ports 1 to %u", call->qp->qpn, which, path->port,
            a->config.num_ports);
        return EHCA_RC_PORT_PARM;
    }
    if (path->dlid == 0 || path->dlid >= IB_LID_MCAST_FIRST) {
        ehca_guest_error(a, "H_MODIFY_QP 0x%x: %s path to LID 0x%x, which is "
            "not a unicast LID", call->qp->qpn, which, path->dlid);
        return EHCA_RC_ATTR_PARM;
    }
    return EHCA_RC_SUCCESS;
}

/* The attributes as they would be: do they make sense together? */
static int64_t check_result(EhcaCall *call, uint64_t mask, unsigned trans,
                            const EhcaQpAttr *n)
{
    EhcaQp *qp = call->qp;
    EhcaAdapter *a = call->a;
    const EhcaPath *primary = &n->path[EHCA_PRIMARY];
    int64_t rc;

    if (mask & EHCA_QPMASK_PRIM_PHYS_PORT &&
        (!ehca_port(a, primary->port) ||
         (qp->special_port && primary->port != qp->special_port))) {
        ehca_guest_error(a, "H_MODIFY_QP 0x%x: port %u; possible is %s",
            qp->qpn, primary->port, qp->special_port ?
            "only the port it is the special QP of" : "1 or 2");
        return EHCA_RC_PORT_PARM;
    }
    if ((mask & MASK_GRH && !primary->send_grh) ||
        (mask & MASK_GRH_AL && !n->path[EHCA_ALTERNATE].send_grh)) {
        ehca_guest_error(a, "H_MODIFY_QP 0x%x: GRH attributes without the "
            "GRH flag", qp->qpn);
        return EHCA_RC_ATTR_PARM;
    }
    if (mask & MASK_ALT) {
        rc = check_path(call, &n->path[EHCA_ALTERNATE], "alternate");
        if (rc != EHCA_RC_SUCCESS) {
            return rc;
        }
    }
    if (qp->kind == EHCA_QPKIND_SRQ || !(trans & T_AV)) {
        return EHCA_RC_SUCCESS;
    }
    if (!ehca_qp_connected(qp)) {
        return ehca_port(a, primary->port) ? EHCA_RC_SUCCESS
                                           : EHCA_RC_PORT_PARM;
    }
    if (ib_mtu_bytes(n->path_mtu) == 0) {
        ehca_guest_error(a, "H_MODIFY_QP 0x%x: path MTU code %u is none of 1 "
            "to 5", qp->qpn, n->path_mtu);
        return EHCA_RC_ATTR_PARM;
    }
    return check_path(call, primary, "primary");
}

static bool mig_request_belongs(const EhcaQp *qp, unsigned trans)
{
    return ehca_qp_connected(qp) && qp->kind != EHCA_QPKIND_SRQ &&
           trans & (T_RTR_RTS | T_RTS_RTS | T_SQD_RTS | T_SQD_SQD);
}

static void apply_mig_request(EhcaQp *qp, unsigned request)
{
    if (request == EHCA_MIG_REARM) {
        ehca_apm_set_state(qp, EHCA_MIG_REARM, EHCA_CAUSE_SOFTWARE);
    } else if (qp->attr.mig_state == EHCA_MIG_ARMED) {
        ehca_apm_migrate(qp, EHCA_CAUSE_SOFTWARE);
    }
}

int64_t ehca_qp_modify(EhcaCall *call)
{
    EhcaQp *qp = call->qp;
    EhcaAdapter *a = call->a;
    uint64_t mask = call->in[2];
    uint8_t cb[EHCA_QPCB_SIZE];
    uint32_t from = qp->attr.state, to = from, request = 0;
    EhcaQpAttr n = qp->attr;
    const char *refusal;
    unsigned trans;
    int64_t rc;

    ehca_collect_doorbells(qp);
    if (!a->ops.dma_read(a->opaque, call->block, cb, sizeof(cb))) {
        ehca_guest_error(a, "H_MODIFY_QP 0x%x: the control block at 0x%llx "
            "cannot be read", qp->qpn, (unsigned long long)call->block);
        return EHCA_RC_PARAMETER;
    }
    if (mask & EHCA_QPMASK_QP_STATE) {
        to = ib_get32(cb + EHCA_QPCB_QP_STATE) & 0xFF;
        trans = transition(qp, from, to);
    } else {
        trans = same_state(from);
    }
    if (!trans) {
        ehca_guest_error(a, "H_MODIFY_QP 0x%x: there is no way from %s to %s "
            "(%u)", qp->qpn, ehca_qp_state_name(from), ehca_qp_state_name(to),
            to);
        return EHCA_RC_PARAMETER;
    }
    if (to != EHCA_QPS_RESET && (qp->sq.registered != qp->sq.num_pages ||
                                 qp->rq.registered != qp->rq.num_pages)) {
        ehca_guest_error(a, "H_MODIFY_QP 0x%x: %u queue pages are not "
            "registered yet", qp->qpn,
            qp->sq.num_pages - qp->sq.registered +
            qp->rq.num_pages - qp->rq.registered);
        return EHCA_RC_R_STATE;
    }
    rc = take_fields(call, mask, cb, trans, &n);
    if (rc == EHCA_RC_SUCCESS) {
        rc = check_result(call, mask, trans, &n);
    }
    if (rc != EHCA_RC_SUCCESS) {
        return rc;
    }
    if (mask & MASK_ALT) {
        n.alt_loaded = true;
        /*
         * The QP has its counts from RTR to RTS on.  A driver that copies
         * them to an alternate loaded before copies zeros: not meant.
         */
        n.alt_retry_loaded = mask & EHCA_QPMASK_RETRY_COUNT_AL &&
                             trans != T_INIT_RTR;
        n.alt_rnr_loaded = mask & EHCA_QPMASK_RNR_RETRY_COUNT_AL &&
                           trans != T_INIT_RTR;
    }
    if (mask & EHCA_QPMASK_PATH_MIGRATION_STATE) {
        if (!mig_request_belongs(qp, trans)) {
            ehca_guest_error(a, "H_MODIFY_QP 0x%x: the path migration state "
                "does not belong to this transition", qp->qpn);
            return EHCA_RC_MASK_PARM;
        }
        request = ib_get32(cb + EHCA_QPCB_PATH_MIGRATION_STATE);
        refusal = ehca_apm_check_request(&n, request);
        if (refusal) {
            ehca_guest_error(a, "H_MODIFY_QP 0x%x: path migration state %u "
                "(%s) while %s: %s", qp->qpn, request,
                ehca_mig_state_name(request),
                ehca_mig_state_name(qp->attr.mig_state), refusal);
            return EHCA_RC_R_STATE;
        }
    }

    /* Accepted: from here on nothing can fail. */
    qp->attr = n;
    if (mask & MASK_ALT) {
        ehca_emit(a, &(EhcaEvent) {
            .kind = EHCA_EVENT_ALT_LOADED, .qpn = qp->qpn,
            .port = n.path[EHCA_ALTERNATE].port,
            .dlid = n.path[EHCA_ALTERNATE].dlid,
        });
    }
    if (mask & EHCA_QPMASK_QP_AFF_ASYN_EV_LOG_REG &&
        n.aaelog & EHCA_AAELOG_RESET_SRQ_LIMIT) {
        qp->srq_limit_armed = n.srq_limit != 0;
    }
    if (mask & EHCA_QPMASK_QP_STATE) {
        ehca_qp_set_state(qp, to, EHCA_CAUSE_SOFTWARE);
    }
    if (request) {
        apply_mig_request(qp, request);
    }
    if (mask & (EHCA_QPMASK_PRIM_PHYS_PORT | EHCA_QPMASK_DLID)) {
        ehca_unblock(qp);
    }
    return EHCA_RC_SUCCESS;
}

/* ------------------------------------------------------------------ */
/* H_QUERY_QP, H_DISABLE_AND_GETC                                     */
/* ------------------------------------------------------------------ */

int64_t ehca_qp_query(EhcaCall *call)
{
    EhcaQp *qp = call->qp;
    EhcaQpAttr n = qp->attr;
    uint8_t cb[EHCA_QPCB_SIZE] = { 0 };

    if (n.state == EHCA_QPS_RTS || n.state == EHCA_QPS_SQD ||
        n.state == EHCA_QPS_SQE) {
        n.send_psn = qp->new_psn;
    }
    if (n.state == EHCA_QPS_RTR || n.state == EHCA_QPS_RTS ||
        n.state == EHCA_QPS_SQD) {
        n.receive_psn = qp->epsn;
    }
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        const Field *f = &fields[i];
        const uint8_t *member = (const uint8_t *)&n + f->attr;

        switch (f->kind) {
        case F_GID:
            memcpy(cb + f->cb, member, 16);
            break;
        case F_U64:
            ib_put64(cb + f->cb, *(const uint64_t *)member);
            break;
        default:
            ib_put32(cb + f->cb, *(const uint32_t *)member);
            break;
        }
    }
    ib_put32(cb + EHCA_QPCB_QP_STATE, n.state);
    ib_put32(cb + EHCA_QPCB_PATH_MIGRATION_STATE, n.mig_state);
    ib_put32(cb + EHCA_QPCB_MAX_NR_OUTST_SEND_WR,
             n.max_send_wr ? n.max_send_wr : 1);
    ib_put32(cb + EHCA_QPCB_MAX_NR_OUTST_RECV_WR,
             n.max_recv_wr ? n.max_recv_wr : 1);
    ib_put32(cb + EHCA_QPCB_QP_NUMBER, qp->qpn);
    ib_put64(cb + EHCA_QPCB_SEND_QUEUE_HANDLE, qp->handle);
    ib_put64(cb + EHCA_QPCB_RECV_QUEUE_HANDLE, qp->srq ? qp->srq->handle
                                                       : qp->handle);
    ib_put32(cb + EHCA_QPCB_ACTUAL_NR_SGES_IN_SQ_WQE, qp->send_sges);
    ib_put32(cb + EHCA_QPCB_ACTUAL_NR_SGES_IN_RQ_WQE, qp->recv_sges);
    if (qp->srq) {
        ib_put64(cb + EHCA_QPCB_SHARED_RQ_HNDL, qp->srq->handle);
    }
    call->a->ops.dma_write(call->a->opaque, call->block, cb, sizeof(cb));
    return EHCA_RC_SUCCESS;
}

static uint64_t queue_position(const EhcaQueue *queue)
{
    return queue->num_pages && queue->registered == queue->num_pages
           ? ehca_queue_addr(queue, queue->head) : 0;
}

/*
 * The positions are of the oldest WQE not completed: it will not be completed
 * any more once the QP is in ERR.
 */
int64_t ehca_qp_disable_and_getc(EhcaCall *call)
{
    EhcaQp *qp = call->qp;
    unsigned state = qp->attr.state;
    uint64_t function = call->in[1];
    bool ok;

    ehca_collect_doorbells(qp);
    switch (function) {
    case EHCA_GETC_BEFORE_FREE:
        ok = true;
        if (state != EHCA_QPS_RESET && state != EHCA_QPS_ERR) {
            qp->event_posted = true;   /* the guest is done with this QP */
            ehca_qp_set_state(qp, EHCA_QPS_ERR, EHCA_CAUSE_SOFTWARE);
        }
        break;
    case EHCA_GETC_SQE:
        ok = state == EHCA_QPS_SQE;
        break;
    case EHCA_GETC_ERR:
        ok = state == EHCA_QPS_ERR && qp->kind != EHCA_QPKIND_SRQBASE;
        break;
    default:
        ehca_guest_error(call->a, "H_DISABLE_AND_GETC: function %llu is none "
            "of 1, 2, 4", (unsigned long long)function);
        return EHCA_RC_PARAMETER;
    }
    if (!ok) {
        ehca_guest_error(call->a, "H_DISABLE_AND_GETC: function %llu on QP "
            "0x%x in %s; 2 is for SQE, 4 for ERR without SRQ",
            (unsigned long long)function, qp->qpn, ehca_qp_state_name(state));
        return EHCA_RC_R_STATE;
    }
    call->out[0] = queue_position(&qp->sq);
    call->out[1] = queue_position(&qp->rq);
    return EHCA_RC_SUCCESS;
}
