/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Requester of RC and UC: sends WQEs, takes acknowledgements and read
 * responses, retries (IBTA 9.7.5 to 9.7.8, 9.8.3).
 *
 * Theory of operation.
 *
 * WQEs in flight are a ring of EhcaSendCtx, ctx_head (oldest) to ctx_tail.
 * Each owns a run of PSNs: one per packet, or one per response packet for a
 * READ.  Four PSNs describe the whole:
 *
 *      una_psn         nxt_psn            max_psn         new_psn
 *   acked | not acked     | to be sent again | never sent    | next WQE's
 *
 * una_psn lies in the head WQE.  Sending moves nxt_psn (and max_psn); an
 * acknowledgement moves una_psn and completes WQEs in order; a retry sets
 * nxt_psn back to una_psn.  So nothing else has to be remembered per packet.
 *
 * Events                          What happens
 *   ACK, good read response         progress: retry budgets full, timer anew
 *   ACK timeout, NAK PSN sequence,
 *   hole in the responses           retry: budget one less, send again; budget
 *                                   empty: migrate if ARMED, else error
 *   RNR NAK                         wait as told, send again, one packet until
 *                                   that is acknowledged; own budget; 7 is
 *                                   endless; never migrates (1.6)
 *   other NAK                       error CQE, QP to ERR
 *   local error (bad WQE, key)      noted in the WQE; it fails when all older
 *                                   ones are done, so completions stay in order
 *
 * At most EHCA_WINDOW PSNs are unacknowledged; AckReq is set on the last packet
 * of a message, on each EHCA_ACK_EVERY-th PSN and when the window closes.
 * UC has no acknowledgements: a WQE is done when its last packet has left.
 */
#include <string.h>

#include "internal.h"

#define CTX_MASK (EHCA_SEND_CTXS - 1)

/* RNR NAK timer codes (table 45), in units of 10 us. */
static const uint32_t rnr_timer_10us[32] = {
    65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384,
    512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576,
    32768, 49152,
};

static EhcaSendCtx *ctx_at(EhcaQp *qp, uint32_t n)
{
    return &qp->ctx[n & CTX_MASK];
}

static uint32_t psn_add(uint32_t psn, uint32_t n)
{
    return (psn + n) & IB_PSN_MASK;
}

static bool is_atomic(const EhcaSendCtx *c)
{
    return c->optype == EHCA_WQE_OPTYPE_CMP_SWAP ||
           c->optype == EHCA_WQE_OPTYPE_FETCH_ADD;
}

/* Completed by response data, not by an acknowledgement. */
static bool has_response(const EhcaSendCtx *c)
{
    return c->optype == EHCA_WQE_OPTYPE_RDMA_READ || is_atomic(c);
}

static bool may_send(const EhcaQp *qp)
{
    return qp->attr.state == EHCA_QPS_RTS || qp->attr.state == EHCA_QPS_SQD;
}

void ehca_requester_reset(EhcaQp *qp)
{
    qp->ctx_head = qp->ctx_tail = qp->ctx_send = 0;
    qp->una_psn = qp->nxt_psn = qp->max_psn = qp->new_psn = 0;
    qp->rnr_wait = qp->rnr_probe = false;
    qp->implied_nak_done = false;
    qp->sq_drained_told = false;
}

void ehca_requester_reload(EhcaQp *qp)
{
    qp->retries_left = qp->attr.path[EHCA_PRIMARY].retry_count;
    qp->rnr_left = qp->attr.path[EHCA_PRIMARY].rnr_retry_count;
    qp->implied_nak_done = false;
}

void ehca_requester_start(EhcaQp *qp)
{
    ehca_requester_reset(qp);
    qp->una_psn = qp->nxt_psn = qp->max_psn = qp->new_psn =
        qp->attr.send_psn;
    ehca_requester_reload(qp);
}

/* ------------------------------------------------------------------ */
/* Timer                                                              */
/* ------------------------------------------------------------------ */

static void arm_timer(EhcaQp *qp)
{
    unsigned code = qp->attr.path[EHCA_PRIMARY].timeout;

    if (qp->service == EHCA_SERVICE_RC && code && !qp->rnr_wait) {
        ib_timer_set(&qp->timer, ehca_now(qp->adapter) + ib_timeout_ns(code));
    }
}

void ehca_requester_restart(EhcaQp *qp)
{
    if (qp->service != EHCA_SERVICE_RC) {
        return;
    }
    qp->rnr_wait = false;
    qp->nxt_psn = qp->una_psn;
    qp->ctx_send = qp->ctx_head;
    ib_timer_cancel(&qp->timer);
    if (qp->una_psn != qp->max_psn) {
        /*
         * Armed already: if the packet finds no room for that long, that is
         * a timeout as well, and may lead to the other path.
         */
        arm_timer(qp);
        ehca_schedule_req(qp);
    }
}

/* ------------------------------------------------------------------ */
/* Completion                                                         */
/* ------------------------------------------------------------------ */

void ehca_requester_check_drained(EhcaQp *qp)
{
    if (qp->attr.state == EHCA_QPS_SQD && qp->ctx_head == qp->ctx_tail &&
        !qp->sq_drained_told) {
        qp->sq_drained_told = true;
        ehca_eq_qp_event(qp, EHCA_EQE_SQ_DRAINED);
    }
}

static void fail_head(EhcaQp *qp, uint32_t status, EhcaCause cause);

/* The oldest WQE is done; @status 0 is success. */
static void complete_head(EhcaQp *qp, uint32_t status)
{
    EhcaSendCtx *c = ctx_at(qp, qp->ctx_head);
    EhcaCompletion completion = {
        .wr_id = c->wr_id,
        .optype = c->optype,
        .bytes = status ? 0 : (uint32_t)c->length,
        .imm = c->imm,
        .status = status,
        .remote_qpn = qp->attr.dest_qpn,
        .rlid = qp->attr.path[EHCA_PRIMARY].dlid,
        .service_level = qp->attr.path[EHCA_PRIMARY].service_level,
    };
    bool wanted = status || qp->sigt == EHCA_SIGT_EVERY ||
                  (qp->sigt == EHCA_SIGT_PER_WQE &&
                   c->flags & EHCA_WQE_FLAG_SIGNALED);

    if (qp->ctx_send == qp->ctx_head) {
        qp->ctx_send++;
    }
    qp->ctx_head++;
    qp->sq.head = (qp->sq.head + 1) % qp->sq.entries;
    qp->sq.posted--;
    if (wanted && !ehca_cq_post(qp, qp->send_cq, &completion)) {
        ehca_qp_error(qp, EHCA_CAUSE_CQ_ERROR, status, true);
        return;
    }
    if (status) {
        return;
    }
    if (qp->ctx_head != qp->ctx_tail && ctx_at(qp, qp->ctx_head)->status) {
        fail_head(qp, ctx_at(qp, qp->ctx_head)->status,
                  EHCA_CAUSE_LOCAL_ERROR);
        return;
    }
    ehca_requester_check_drained(qp);
}

/* One error CQE for the oldest WQE, then ERR (20.1). */
static void fail_head(EhcaQp *qp, uint32_t status, EhcaCause cause)
{
    complete_head(qp, status);
    ehca_qp_error(qp, cause, status, false);
}

/* ------------------------------------------------------------------ */
/* Retries                                                            */
/* ------------------------------------------------------------------ */

static void retry(EhcaQp *qp)
{
    if (qp->retries_left == 0) {
        if (!ehca_apm_retries_used_up(qp)) {
            fail_head(qp, ehca_status(EHCA_CQE_CODE_RETRY_EXC),
                      EHCA_CAUSE_RETRIES_USED_UP);
        }
        return;
    }
    qp->retries_left--;
    ehca_requester_restart(qp);
}

void ehca_requester_timer(void *opaque)
{
    EhcaQp *qp = opaque;

    if (!may_send(qp) || qp->ctx_head == qp->ctx_tail) {
        return;
    }
    if (qp->rnr_wait) {
        ehca_requester_restart(qp);
        return;
    }
    qp->stats.timeouts++;
    qp->implied_nak_done = false;
    retry(qp);
}

/* A hole in the responses; once until something else happens. */
static void implied_nak(EhcaQp *qp)
{
    if (!qp->implied_nak_done) {
        qp->implied_nak_done = true;
        retry(qp);
    }
}

/* ------------------------------------------------------------------ */
/* Sending                                                            */
/* ------------------------------------------------------------------ */

static unsigned responses_outstanding(EhcaQp *qp)
{
    unsigned n = 0;

    for (uint32_t i = qp->ctx_head; i != qp->ctx_send; i++) {
        n += has_response(ctx_at(qp, i));
    }
    return n;
}

static bool fetch_next(EhcaQp *qp)
{
    uint32_t in_flight = qp->ctx_tail - qp->ctx_head;
    EhcaSendCtx *c;

    if (in_flight == EHCA_SEND_CTXS || in_flight >= qp->sq.posted ||
        qp->attr.state != EHCA_QPS_RTS) {
        return false;
    }
    c = ctx_at(qp, qp->ctx_tail);
    ehca_wqe_fetch(qp, (qp->sq.head + in_flight) % qp->sq.entries, c);
    c->first_psn = qp->new_psn;
    qp->new_psn = psn_add(qp->new_psn, c->psns);
    qp->ctx_tail++;
    return true;
}

/* May the current WQE's next packet go now, as far as the peer is asked? */
static bool allowed(EhcaQp *qp, const EhcaSendCtx *c)
{
    unsigned outstanding;

    if (qp->service != EHCA_SERVICE_RC) {
        return true;
    }
    if (ib_psn_diff(qp->nxt_psn, qp->una_psn) >=
        (qp->rnr_probe ? 1 : EHCA_WINDOW)) {
        return false;
    }
    if (qp->nxt_psn != c->first_psn ||
        !(has_response(c) || c->flags & EHCA_WQE_FLAG_FENCE)) {
        return true;
    }
    outstanding = responses_outstanding(qp);
    if (c->flags & EHCA_WQE_FLAG_FENCE && outstanding) {
        return false;
    }
    return !has_response(c) || outstanding < qp->attr.init_depth;
}

static uint8_t send_opcode(const EhcaSendCtx *c, bool first, bool last)
{
    bool imm = last && c->flags & EHCA_WQE_FLAG_IMM;
    bool write = c->optype == EHCA_WQE_OPTYPE_RDMA_WRITE;

    if (first && last) {
        return write ? (imm ? IB_OP_WRITE_ONLY_IMM : IB_OP_WRITE_ONLY)
                     : (imm ? IB_OP_SEND_ONLY_IMM : IB_OP_SEND_ONLY);
    }
    if (first) {
        return write ? IB_OP_WRITE_FIRST : IB_OP_SEND_FIRST;
    }
    if (!last) {
        return write ? IB_OP_WRITE_MIDDLE : IB_OP_SEND_MIDDLE;
    }
    return write ? (imm ? IB_OP_WRITE_LAST_IMM : IB_OP_WRITE_LAST)
                 : (imm ? IB_OP_SEND_LAST_IMM : IB_OP_SEND_LAST);
}

/* Fills BTH and what follows; returns the payload's length. */
static size_t fill_headers(EhcaQp *qp, const EhcaSendCtx *c, IbPacket *pkt,
                           uint64_t *offset)
{
    unsigned mtu = ehca_qp_mtu(qp);
    uint32_t index = psn_add(qp->nxt_psn, -c->first_psn);
    uint64_t left;
    bool last;

    *offset = (uint64_t)index * mtu;
    left = c->length - *offset;
    pkt->bth.psn = qp->nxt_psn;
    pkt->bth.dest_qpn = qp->attr.dest_qpn;
    pkt->bth.migreq = ehca_apm_migreq(qp);
    switch (c->optype) {
    case EHCA_WQE_OPTYPE_RDMA_READ:
        pkt->bth.opcode = IB_OP_READ_REQUEST;
        pkt->bth.ack_request = true;
        pkt->reth.va = c->raddr + *offset;
        pkt->reth.rkey = c->rkey;
        pkt->reth.length = left;
        return 0;
    case EHCA_WQE_OPTYPE_CMP_SWAP:
    case EHCA_WQE_OPTYPE_FETCH_ADD:
        pkt->bth.opcode = c->optype == EHCA_WQE_OPTYPE_CMP_SWAP
                          ? IB_OP_COMPARE_SWAP : IB_OP_FETCH_ADD;
        pkt->bth.ack_request = true;
        pkt->atomic.va = c->raddr;
        pkt->atomic.rkey = c->rkey;
        /* Operands in the order of the AtomicETH: swap or add, compare. */
        pkt->atomic.swap_add = c->operand[0];
        pkt->atomic.compare = c->operand[1];
        return 0;
    default:
        last = left <= mtu;
        pkt->bth.opcode = send_opcode(c, index == 0, last);
        pkt->bth.opcode |= qp->service == EHCA_SERVICE_UC ? IB_TRANSPORT_UC
                                                          : IB_TRANSPORT_RC;
        pkt->bth.solicited = last && c->flags & EHCA_WQE_FLAG_SOLICITED &&
                             (c->optype == EHCA_WQE_OPTYPE_SEND ||
                              c->flags & EHCA_WQE_FLAG_IMM);
        pkt->bth.ack_request = qp->service == EHCA_SERVICE_RC &&
            (last || qp->rnr_probe ||
             qp->nxt_psn % EHCA_ACK_EVERY == EHCA_ACK_EVERY - 1 ||
             ib_psn_diff(qp->nxt_psn, qp->una_psn) == EHCA_WINDOW - 1);
        pkt->reth.va = c->raddr;
        pkt->reth.rkey = c->rkey;
        pkt->reth.length = c->length;
        pkt->imm = c->imm;
        return last ? left : mtu;
    }
}

static void packet_sent(EhcaQp *qp, EhcaSendCtx *c, size_t payload_len)
{
    uint32_t end = psn_add(c->first_psn, c->psns);

    qp->stats.packets_sent++;
    qp->stats.bytes_sent += payload_len;
    if (ib_psn_diff(qp->nxt_psn, qp->max_psn) < 0) {
        qp->stats.retransmits++;
    }
    qp->nxt_psn = has_response(c) ? end : psn_add(qp->nxt_psn, 1);
    if (ib_psn_diff(qp->nxt_psn, qp->max_psn) > 0) {
        qp->max_psn = qp->nxt_psn;
    }
    if (qp->nxt_psn == end) {
        qp->ctx_send++;
    }
    if (qp->service == EHCA_SERVICE_UC) {
        qp->una_psn = qp->nxt_psn;
        if (qp->nxt_psn == end) {
            ehca_apm_payload_seen(qp);
            complete_head(qp, 0);
        }
    } else if (!ib_timer_armed(&qp->timer)) {
        arm_timer(qp);
    }
}

static EhcaTurn send_one(EhcaQp *qp, EhcaSendCtx *c)
{
    EhcaPort *port = ehca_port(qp->adapter,
                               qp->attr.path[EHCA_PRIMARY].port);
    IbPacket pkt;
    uint64_t offset;
    size_t header_len, payload_len;
    EhcaTx tx;

    if (!port) {
        return EHCA_TURN_IDLE;
    }
    memset(&pkt, 0, sizeof(pkt));
    payload_len = fill_headers(qp, c, &pkt, &offset);
    switch (ehca_tx_begin(port, qp->attr.path[EHCA_PRIMARY].dlid, false,
                          &tx)) {
    case EHCA_TX_WAIT_WIRE:
        return EHCA_TURN_WAIT_WIRE;
    case EHCA_TX_WAIT_LOOP:
        return EHCA_TURN_WAIT_LOOP;
    case EHCA_TX_DEAD:
        break;
    case EHCA_TX_OK:
        ehca_tx_path(qp, port, &pkt);
        header_len = ib_packet_put_headers(tx.p, &pkt, payload_len);
        c->status = ehca_wqe_gather(qp, c, EHCA_WQE_SGES, offset,
                                    tx.p + header_len, payload_len);
        if (c->status) {
            return EHCA_TURN_MORE;     /* the slot was not given away */
        }
        ehca_tx_end(&tx, ib_packet_finish(tx.p, header_len, payload_len));
        break;
    }
    packet_sent(qp, c, payload_len);
    return EHCA_TURN_MORE;
}

EhcaTurn ehca_requester_run(EhcaQp *qp, unsigned *budget)
{
    while (*budget) {
        EhcaSendCtx *c;
        EhcaTurn turn;

        if (!may_send(qp) || qp->rnr_wait) {
            return EHCA_TURN_IDLE;
        }
        if (qp->ctx_send == qp->ctx_tail && !fetch_next(qp)) {
            return EHCA_TURN_IDLE;
        }
        c = ctx_at(qp, qp->ctx_send);
        if (c->status) {
            if (qp->ctx_send == qp->ctx_head) {
                fail_head(qp, c->status, EHCA_CAUSE_LOCAL_ERROR);
            }
            return EHCA_TURN_IDLE;
        }
        if (!allowed(qp, c)) {
            return EHCA_TURN_IDLE;     /* an acknowledgement wakes us */
        }
        turn = send_one(qp, c);
        if (turn != EHCA_TURN_MORE) {
            return turn;
        }
        (*budget)--;
    }
    return EHCA_TURN_MORE;
}

/* ------------------------------------------------------------------ */
/* Responses                                                          */
/* ------------------------------------------------------------------ */

/* una_psn moved to @una: the connection lives. */
static void progress(EhcaQp *qp, uint32_t una)
{
    qp->una_psn = una;
    if (ib_psn_diff(qp->nxt_psn, una) < 0) {
        qp->nxt_psn = una;
    }
    qp->rnr_probe = false;
    ehca_requester_reload(qp);
    if (una == qp->max_psn) {
        qp->rnr_wait = false;
        ib_timer_cancel(&qp->timer);
    } else {
        arm_timer(qp);
    }
    ehca_apm_payload_seen(qp);
    ehca_schedule_req(qp);
}

/*
 * Everything up to @psn is acknowledged.  True: not quite, a READ or atomic
 * stands before that and its response has not come.
 */
static bool ack_up_to(EhcaQp *qp, uint32_t psn)
{
    while (may_send(qp) && qp->ctx_head != qp->ctx_tail &&
           ib_psn_diff(psn, qp->una_psn) >= 0) {
        EhcaSendCtx *c = ctx_at(qp, qp->ctx_head);
        uint32_t end = psn_add(c->first_psn, c->psns);

        if (has_response(c)) {
            return true;
        }
        if (ib_psn_diff(end, psn) > 1) {
            progress(qp, psn_add(psn, 1));
            return false;
        }
        progress(qp, end);
        complete_head(qp, 0);
    }
    return false;
}

static void rnr_nak(EhcaQp *qp, unsigned code)
{
    unsigned limit = qp->attr.path[EHCA_PRIMARY].rnr_retry_count;

    qp->stats.rnr_nak_received++;
    if (limit != 7) {
        if (qp->rnr_left == 0) {
            fail_head(qp, ehca_status(EHCA_CQE_CODE_RNR_RETRY_EXC),
                      EHCA_CAUSE_RNR_RETRIES_USED_UP);
            return;
        }
        qp->rnr_left--;
    }
    qp->nxt_psn = qp->una_psn;
    qp->ctx_send = qp->ctx_head;
    qp->rnr_wait = qp->rnr_probe = true;
    ib_timer_set(&qp->timer, ehca_now(qp->adapter) +
                 rnr_timer_10us[code] * 10 * IB_USEC);
}

static void fatal_nak(EhcaQp *qp, unsigned code)
{
    static const uint8_t sub_codes[] = {
        [IB_NAK_INVALID_REQUEST] = EHCA_CQE_SUBCODE_REM_INV_REQ,
        [IB_NAK_REMOTE_ACCESS] = EHCA_CQE_SUBCODE_REM_ACCESS,
        [IB_NAK_REMOTE_OPERATIONAL] = EHCA_CQE_SUBCODE_REM_OP,
    };

    fail_head(qp, ehca_status_remote(sub_codes[code]), EHCA_CAUSE_REMOTE_NAK);
}

/* Table 44; what is reserved counts as lost, whatever PSN it names. */
static bool aeth_ok(const IbPacket *pkt)
{
    unsigned syndrome = pkt->aeth.syndrome;
    bool is_ack = (pkt->bth.opcode & IB_OP_MASK) == IB_OP_ACK;

    switch (syndrome & ~(unsigned)IB_AETH_VALUE_MASK) {
    case IB_AETH_ACK:
        return true;
    case IB_AETH_RNR_NAK:
        return is_ack;                 /* data comes with an ACK only */
    case IB_AETH_NAK:
        return is_ack && (syndrome & IB_AETH_VALUE_MASK) <=
                         IB_NAK_REMOTE_OPERATIONAL;
    default:
        return false;
    }
}

static void acknowledge(EhcaQp *qp, const IbPacket *pkt)
{
    unsigned value = pkt->aeth.syndrome & IB_AETH_VALUE_MASK;
    unsigned kind = pkt->aeth.syndrome & IB_AETH_KIND_MASK;
    uint32_t psn = pkt->bth.psn;

    if (kind == IB_AETH_ACK) {
        if (ack_up_to(qp, psn)) {
            implied_nak(qp);
        }
        return;
    }
    /* A NAK acknowledges what is before its PSN. */
    if (ack_up_to(qp, psn_add(psn, IB_PSN_MASK))) {
        implied_nak(qp);
        return;
    }
    if (!may_send(qp) || qp->ctx_head == qp->ctx_tail) {
        return;
    }
    if (kind == IB_AETH_NAK && value != IB_NAK_PSN_SEQUENCE) {
        fatal_nak(qp, value);
    } else if (qp->nxt_psn == qp->una_psn) {
        /* Nothing has been sent again since the last one: it is a copy. */
        qp->stats.duplicates++;
    } else if (kind == IB_AETH_RNR_NAK) {
        rnr_nak(qp, value);
    } else {
        qp->stats.nak_sequence_received++;
        retry(qp);
    }
}

/* Response data for the head WQE, at una_psn: NULL if it is not that. */
static EhcaSendCtx *response_for(EhcaQp *qp, uint32_t psn)
{
    EhcaSendCtx *c;

    ack_up_to(qp, psn_add(psn, IB_PSN_MASK));
    if (!may_send(qp) || qp->ctx_head == qp->ctx_tail) {
        return NULL;
    }
    c = ctx_at(qp, qp->ctx_head);
    if (psn != qp->una_psn) {
        implied_nak(qp);
        return NULL;
    }
    return has_response(c) ? c : NULL;
}

static void response_done(EhcaQp *qp, EhcaSendCtx *c)
{
    uint32_t una = psn_add(qp->una_psn, 1);

    progress(qp, una);
    if (una == psn_add(c->first_psn, c->psns)) {
        complete_head(qp, 0);
    }
}

static void read_response(EhcaQp *qp, const IbPacket *pkt,
                          const uint8_t *payload)
{
    EhcaSendCtx *c = response_for(qp, pkt->bth.psn);
    unsigned mtu = ehca_qp_mtu(qp);
    unsigned opcode = pkt->bth.opcode & IB_OP_MASK;
    uint64_t offset, left;
    uint32_t status;
    bool last;

    if (!c) {
        return;
    }
    offset = (uint64_t)psn_add(qp->una_psn, -c->first_psn) * mtu;
    left = c->length - offset;
    last = opcode == IB_OP_READ_RESP_LAST || opcode == IB_OP_READ_RESP_ONLY;
    if (c->optype != EHCA_WQE_OPTYPE_RDMA_READ || last != (left <= mtu) ||
        pkt->payload_len != (last ? left : mtu)) {
        fail_head(qp, ehca_status(EHCA_CQE_CODE_BAD_RESP),
                  EHCA_CAUSE_REMOTE_NAK);
        return;
    }
    status = ehca_wqe_scatter(qp, c, offset, payload, pkt->payload_len);
    if (status) {
        fail_head(qp, status, EHCA_CAUSE_LOCAL_ERROR);
        return;
    }
    response_done(qp, c);
}

static void atomic_response(EhcaQp *qp, const IbPacket *pkt)
{
    EhcaSendCtx *c = response_for(qp, pkt->bth.psn);
    uint8_t value[8];
    uint32_t status;

    if (!c) {
        return;
    }
    if (!is_atomic(c)) {
        fail_head(qp, ehca_status(EHCA_CQE_CODE_BAD_RESP),
                  EHCA_CAUSE_REMOTE_NAK);
        return;
    }
    ib_put64(value, pkt->atomic_ack);
    status = ehca_wqe_scatter(qp, c, 0, value, sizeof(value));
    if (status) {
        fail_head(qp, status, EHCA_CAUSE_LOCAL_ERROR);
        return;
    }
    response_done(qp, c);
}

void ehca_requester_response(EhcaQp *qp, const IbPacket *pkt,
                             const uint8_t *payload)
{
    if (!may_send(qp) || qp->service != EHCA_SERVICE_RC ||
        qp->ctx_head == qp->ctx_tail ||
        ib_psn_diff(pkt->bth.psn, qp->una_psn) < 0 ||
        ib_psn_diff(pkt->bth.psn, qp->max_psn) >= 0) {
        qp->stats.duplicates++;        /* a ghost: long answered */
        return;
    }
    if (pkt->has_aeth && !aeth_ok(pkt)) {
        return;
    }
    switch (pkt->bth.opcode & IB_OP_MASK) {
    case IB_OP_ACK:
        acknowledge(qp, pkt);
        break;
    case IB_OP_ATOMIC_ACK:
        atomic_response(qp, pkt);
        break;
    default:
        read_response(qp, pkt, payload);
        break;
    }
}
