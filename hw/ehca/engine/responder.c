/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Responder of RC and UC (IBTA 9.7.4, 9.7.5, 9.8.3).
 *
 * Theory of operation.
 *
 * A request is executed when it arrives, in the PSN's order, and never needs
 * room to send.  What has to be answered is remembered:
 *   - one acknowledgement (ACK, RNR NAK or NAK), the latest: acknowledgements
 *     are cumulative, so a newer ACK replaces an older one.  A NAK is not
 *     replaced by an ACK
 *   - READs and atomics, in a ring of EHCA_MAX_RD_RES entries: those from
 *     res_cur to res_head are to be answered; those before are kept for
 *     duplicates, which move res_cur back (responder resources, 9.7.7.1.1)
 * ehca_responder_run() answers, in PSN order: READs and atomics, then the
 * acknowledgement.
 *
 * PSN of a request     Action
 *   expected             execute
 *   later                NAK PSN sequence error, once until the expected comes
 *   earlier              SEND, WRITE: acknowledge again; READ: read again;
 *                        atomic: the stored result again
 *
 * Errors: no receive WQE -> RNR NAK; malformed -> NAK invalid request; key ->
 * NAK remote access; own WQE bad -> NAK remote operational error.  All but the
 * first put the QP into ERR; the NAK is sent nevertheless.  A receive WQE that
 * failed gets an error CQE, otherwise event 0x05 is raised.
 *
 * UC: no answers; a PSN out of order drops the message in work, and a First or
 * Only packet starts anew.
 */
#include <string.h>

#include "internal.h"

#define RES_MASK (EHCA_MAX_RD_RES - 1)
#define ATOMIC_LEN 8

typedef enum Outcome {
    DONE,
    NO_WQE,
    INVALID,
    ACCESS,
    OPERATIONAL,
} Outcome;

static uint32_t psn_add(uint32_t psn, uint32_t n)
{
    return (psn + n) & IB_PSN_MASK;
}

void ehca_responder_reset(EhcaQp *qp)
{
    qp->epsn = qp->attr.receive_psn;
    qp->msn = 0;
    qp->nak_sent = false;
    qp->comm_est_told = false;
    qp->msg = EHCA_MSG_NONE;
    qp->recv.active = false;
    qp->ack_due = false;
    qp->res_head = qp->res_cur = qp->res_valid = qp->res_sent = 0;
}

static void answer(EhcaQp *qp, uint8_t syndrome, uint32_t psn)
{
    if (qp->ack_due && (qp->ack_syndrome & IB_AETH_KIND_MASK) != IB_AETH_ACK &&
        (syndrome & IB_AETH_KIND_MASK) == IB_AETH_ACK) {
        return;
    }
    qp->ack_due = true;
    qp->ack_syndrome = syndrome;
    qp->ack_psn = psn;
    ehca_schedule_resp(qp);
}

static void answer_ack(EhcaQp *qp, uint32_t psn)
{
    /* 0x1F: end-to-end credits are not used. */
    answer(qp, IB_AETH_ACK | IB_AETH_VALUE_MASK, psn);
}

/*
 * The responder gives up: error to the consumer, NAK to the peer.
 * @recv_status 0: the receive WQE in use, if any, is not to blame; it stays to
 * be flushed.
 */
static void fail(EhcaQp *qp, unsigned nak, uint32_t psn, uint32_t recv_status)
{
    bool told = qp->recv.active && recv_status;

    if (told) {
        EhcaCompletion c = {
            .optype = EHCA_CQE_OPTYPE_RECV,
            .status = recv_status,
            .remote_qpn = qp->attr.dest_qpn,
            .rlid = qp->attr.path[EHCA_PRIMARY].dlid,
        };

        ehca_recv_complete(qp, &c);
    }
    ehca_qp_error(qp, EHCA_CAUSE_RESPONDER_ERROR, recv_status, !told);
    if (qp->service == EHCA_SERVICE_RC) {
        qp->ack_due = false;
        answer(qp, IB_AETH_NAK | nak, psn);
    }
}

/* ------------------------------------------------------------------ */
/* Executing                                                          */
/* ------------------------------------------------------------------ */

static Outcome begin_recv(EhcaQp *qp, uint32_t *recv_status)
{
    switch (ehca_recv_start(qp)) {
    case EHCA_RECV_OK:
        return DONE;
    case EHCA_RECV_EMPTY:
        return NO_WQE;
    default:
        *recv_status = ehca_status(EHCA_CQE_CODE_LOC_QP_OP);
        return OPERATIONAL;
    }
}

static void complete_recv(EhcaQp *qp, const IbPacket *pkt, uint8_t optype,
                          uint32_t bytes)
{
    EhcaCompletion c = {
        .optype = optype,
        .flags = pkt->has_imm ? EHCA_CQE_FLAG_IMM : 0,
        .bytes = bytes,
        .imm = pkt->imm,
        .remote_qpn = qp->attr.dest_qpn,
        .rlid = pkt->lrh.slid,
        .service_level = pkt->lrh.sl,
        .pkey_index = qp->attr.path[EHCA_PRIMARY].pkey_idx,
        .solicited = pkt->bth.solicited,
    };

    ehca_recv_complete(qp, &c);
}

static Outcome do_send(EhcaQp *qp, const IbPacket *pkt, const uint8_t *payload,
                       bool first, bool last, uint32_t *recv_status)
{
    Outcome outcome;

    if (first) {
        outcome = begin_recv(qp, recv_status);
        if (outcome != DONE) {
            return outcome;
        }
        qp->msg = EHCA_MSG_SEND;
    }
    if (pkt->payload_len > qp->recv.capacity - qp->recv.used) {
        *recv_status = ehca_status(EHCA_CQE_CODE_LOC_LEN);
        return INVALID;
    }
    *recv_status = ehca_recv_scatter(qp, payload, pkt->payload_len);
    if (*recv_status) {
        return OPERATIONAL;
    }
    if (last) {
        qp->msg = EHCA_MSG_NONE;
        complete_recv(qp, pkt, EHCA_CQE_OPTYPE_RECV, qp->recv.used);
    }
    return DONE;
}

static bool key_ok(EhcaQp *qp, uint32_t rkey, uint64_t va, uint64_t len,
                   uint32_t access, EhcaMr **mr)
{
    EhcaKeyError error = ehca_key_check(qp->adapter, rkey, qp->pd, va, len,
                                        access, mr);

    if (error != EHCA_KEY_OK) {
        ehca_guest_error(qp->adapter, "QP 0x%x: the peer asks for %llu bytes "
            "at 0x%llx with rkey 0x%x: %s", qp->qpn, (unsigned long long)len,
            (unsigned long long)va, rkey, ehca_key_error_name(error));
    }
    return error == EHCA_KEY_OK;
}

static Outcome do_write(EhcaQp *qp, const IbPacket *pkt,
                        const uint8_t *payload, bool first, bool last,
                        uint32_t *recv_status)
{
    uint64_t va = qp->msg_va, left = qp->msg_left, done = qp->msg_done;
    uint32_t rkey = qp->msg_rkey, len = pkt->payload_len;
    Outcome outcome;
    EhcaMr *mr;

    if (first) {
        va = pkt->reth.va;
        left = pkt->reth.length;
        rkey = pkt->reth.rkey;
        done = 0;
        if (left > EHCA_MAX_MESSAGE) {
            return INVALID;
        }
        /* Without a byte to write no key is looked at (9.7.4.1.6). */
        if (left && !key_ok(qp, rkey, va, left, EHCA_MR_REMOTE_WRITE, &mr)) {
            return ACCESS;
        }
    }
    if (last ? left != len : left <= len) {
        return INVALID;
    }
    if (last && pkt->has_imm) {
        outcome = begin_recv(qp, recv_status);
        if (outcome != DONE) {
            return outcome;
        }
    }
    if (len && (!key_ok(qp, rkey, va, len, EHCA_MR_REMOTE_WRITE, &mr) ||
                !ehca_mr_write(qp->adapter, mr, va, payload, len))) {
        *recv_status = ehca_status(EHCA_CQE_CODE_LOC_QP_OP);
        return ACCESS;
    }
    qp->msg = last ? EHCA_MSG_NONE : EHCA_MSG_WRITE;
    qp->msg_va = va + len;
    qp->msg_left = left - len;
    qp->msg_done = done + len;
    qp->msg_rkey = rkey;
    if (last && pkt->has_imm) {
        complete_recv(qp, pkt, EHCA_CQE_OPTYPE_RECV_RDMA_IMM, qp->msg_done);
    }
    return DONE;
}

static unsigned resources(const EhcaQp *qp)
{
    return qp->attr.resp_res < EHCA_MAX_RD_RES ? qp->attr.resp_res
                                               : EHCA_MAX_RD_RES;
}

static EhcaReadRes *new_resource(EhcaQp *qp, const IbPacket *pkt,
                                 uint32_t psns)
{
    EhcaReadRes *res = &qp->res[qp->res_head++ & RES_MASK];

    memset(res, 0, sizeof(*res));
    res->opcode = pkt->bth.opcode & IB_OP_MASK;
    res->psn = pkt->bth.psn;
    res->psns = psns;
    if (qp->res_valid < resources(qp)) {
        qp->res_valid++;
    }
    ehca_schedule_resp(qp);
    return res;
}

/*
 * A peer that asks for more than the agreed number at a time breaks the
 * rules.  But entries that wait only because a duplicate asked for them again
 * do not count: by asking for something new the peer says that it has got the
 * oldest answer meanwhile.
 */
static bool too_many_requests(EhcaQp *qp)
{
    while (qp->res_head - qp->res_cur >= resources(qp) &&
           qp->res_cur != qp->res_head &&
           qp->res[qp->res_cur & RES_MASK].answered) {
        qp->res_cur++;
        qp->res_sent = 0;
    }
    return qp->res_head - qp->res_cur >= resources(qp);
}

static Outcome do_read(EhcaQp *qp, const IbPacket *pkt)
{
    uint64_t length = pkt->reth.length;
    unsigned mtu = ehca_qp_mtu(qp);
    uint32_t psns = length ? (length + mtu - 1) / mtu : 1;
    EhcaReadRes *res;
    EhcaMr *mr;

    if (too_many_requests(qp) || length > EHCA_MAX_MESSAGE ||
        psns > EHCA_MAX_PSNS) {
        return INVALID;
    }
    /* Zero length: no key is looked at (15.7 of the interface). */
    if (length && !key_ok(qp, pkt->reth.rkey, pkt->reth.va, length,
                          EHCA_MR_REMOTE_READ, &mr)) {
        return ACCESS;
    }
    res = new_resource(qp, pkt, psns);
    res->va = pkt->reth.va;
    res->rkey = pkt->reth.rkey;
    res->length = length;
    return DONE;
}

static Outcome do_atomic(EhcaQp *qp, const IbPacket *pkt)
{
    uint8_t raw[ATOMIC_LEN];
    uint64_t before, after;
    EhcaMr *mr;

    if (too_many_requests(qp) ||
        pkt->atomic.va & (ATOMIC_LEN - 1)) {
        return INVALID;
    }
    if (!key_ok(qp, pkt->atomic.rkey, pkt->atomic.va, ATOMIC_LEN,
                EHCA_MR_REMOTE_ATOMIC, &mr) ||
        !ehca_mr_read(qp->adapter, mr, pkt->atomic.va, raw, ATOMIC_LEN)) {
        return ACCESS;
    }
    /* Memory is big-endian (interface section 1). */
    before = ib_get64(raw);
    if ((pkt->bth.opcode & IB_OP_MASK) == IB_OP_FETCH_ADD) {
        after = before + pkt->atomic.swap_add;
    } else {
        after = before == pkt->atomic.compare ? pkt->atomic.swap_add : before;
    }
    ib_put64(raw, after);
    if (!ehca_mr_write(qp->adapter, mr, pkt->atomic.va, raw, ATOMIC_LEN)) {
        return ACCESS;
    }
    new_resource(qp, pkt, 1)->result = before;
    return DONE;
}

typedef struct OpcodeRole {
    uint8_t msg;                       /* EhcaMsgKind */
    bool first, last;
} OpcodeRole;

static const OpcodeRole roles[IB_OP_MASK + 1] = {
    [IB_OP_SEND_FIRST] = { EHCA_MSG_SEND, true, false },
    [IB_OP_SEND_MIDDLE] = { EHCA_MSG_SEND, false, false },
    [IB_OP_SEND_LAST] = { EHCA_MSG_SEND, false, true },
    [IB_OP_SEND_LAST_IMM] = { EHCA_MSG_SEND, false, true },
    [IB_OP_SEND_ONLY] = { EHCA_MSG_SEND, true, true },
    [IB_OP_SEND_ONLY_IMM] = { EHCA_MSG_SEND, true, true },
    [IB_OP_WRITE_FIRST] = { EHCA_MSG_WRITE, true, false },
    [IB_OP_WRITE_MIDDLE] = { EHCA_MSG_WRITE, false, false },
    [IB_OP_WRITE_LAST] = { EHCA_MSG_WRITE, false, true },
    [IB_OP_WRITE_LAST_IMM] = { EHCA_MSG_WRITE, false, true },
    [IB_OP_WRITE_ONLY] = { EHCA_MSG_WRITE, true, true },
    [IB_OP_WRITE_ONLY_IMM] = { EHCA_MSG_WRITE, true, true },
    [IB_OP_READ_REQUEST] = { EHCA_MSG_NONE, true, true },
    [IB_OP_COMPARE_SWAP] = { EHCA_MSG_NONE, true, true },
    [IB_OP_FETCH_ADD] = { EHCA_MSG_NONE, true, true },
};

/* Does the packet fit what came before it, and its MTU? */
static bool well_formed(const EhcaQp *qp, const IbPacket *pkt,
                        const OpcodeRole *role)
{
    unsigned mtu = ehca_qp_mtu(qp);

    if (role->first ? qp->msg != EHCA_MSG_NONE : qp->msg != role->msg) {
        return false;
    }
    if (!role->last) {
        return pkt->payload_len == mtu;
    }
    return pkt->payload_len <= mtu && (role->first || pkt->payload_len > 0);
}

static Outcome execute(EhcaQp *qp, const IbPacket *pkt, const uint8_t *payload,
                       uint32_t *recv_status)
{
    unsigned op = pkt->bth.opcode & IB_OP_MASK;
    const OpcodeRole *role = &roles[op];
    Outcome outcome;

    *recv_status = 0;
    if (!well_formed(qp, pkt, role)) {
        *recv_status = ehca_status(EHCA_CQE_CODE_LOC_QP_OP);
        return INVALID;
    }
    switch (role->msg) {
    case EHCA_MSG_SEND:
        outcome = do_send(qp, pkt, payload, role->first, role->last,
                          recv_status);
        break;
    case EHCA_MSG_WRITE:
        outcome = do_write(qp, pkt, payload, role->first, role->last,
                           recv_status);
        break;
    default:
        outcome = op == IB_OP_READ_REQUEST ? do_read(qp, pkt)
                                           : do_atomic(qp, pkt);
        break;
    }
    if (outcome == DONE) {
        ehca_apm_payload_seen(qp);
        if (role->last) {
            qp->msn = (qp->msn + 1) & IB_PSN_MASK;
        }
    }
    return outcome;
}

/* ------------------------------------------------------------------ */
/* RC                                                                 */
/* ------------------------------------------------------------------ */

static void rc_expected(EhcaQp *qp, const IbPacket *pkt,
                        const uint8_t *payload)
{
    uint32_t psn = pkt->bth.psn, psns = 1, recv_status;
    unsigned op = pkt->bth.opcode & IB_OP_MASK;

    switch (execute(qp, pkt, payload, &recv_status)) {
    case DONE:
        break;
    case NO_WQE:
        qp->stats.rnr_nak_sent++;
        qp->nak_sent = true;
        answer(qp, IB_AETH_RNR_NAK | qp->attr.min_rnr_timer, psn);
        return;
    case INVALID:
        fail(qp, IB_NAK_INVALID_REQUEST, psn, recv_status);
        return;
    case ACCESS:
        fail(qp, IB_NAK_REMOTE_ACCESS, psn, recv_status);
        return;
    case OPERATIONAL:
        fail(qp, IB_NAK_REMOTE_OPERATIONAL, psn, recv_status);
        return;
    }
    if (op == IB_OP_READ_REQUEST) {
        psns = qp->res[(qp->res_head - 1) & RES_MASK].psns;
    }
    qp->epsn = psn_add(psn, psns);
    qp->nak_sent = false;
    if (roles[op].msg != EHCA_MSG_NONE && pkt->bth.ack_request &&
        qp->attr.state != EHCA_QPS_ERR) {
        answer_ack(qp, psn);
    }
}

/* The entry that @psn belongs to; UINT32_MAX: too long ago. */
static uint32_t find_resource(const EhcaQp *qp, uint32_t psn)
{
    for (uint32_t n = 1; n <= qp->res_valid; n++) {
        const EhcaReadRes *res = &qp->res[(qp->res_head - n) & RES_MASK];
        int32_t diff = ib_psn_diff(psn, res->psn);

        if (diff >= 0 && (uint32_t)diff < res->psns) {
            return qp->res_head - n;
        }
    }
    return UINT32_MAX;
}

/* A READ asked for again, from its start or from somewhere inside. */
static void read_again(EhcaQp *qp, uint32_t index, const IbPacket *pkt)
{
    EhcaReadRes *res = &qp->res[index & RES_MASK];
    uint32_t skip = psn_add(pkt->bth.psn, -res->psn);
    uint64_t offset = (uint64_t)skip * ehca_qp_mtu(qp);

    if (res->opcode != IB_OP_READ_REQUEST || offset > res->length ||
        pkt->reth.length != res->length - offset) {
        return;                        /* not the request it pretends to be */
    }
    res->psn = pkt->bth.psn;
    res->psns -= skip;
    res->va = pkt->reth.va;
    res->rkey = pkt->reth.rkey;
    res->length = pkt->reth.length;
    if ((int32_t)(index - qp->res_cur) <= 0) {
        qp->res_cur = index;
        qp->res_sent = 0;
    }
    ehca_schedule_resp(qp);
}

static void rc_duplicate(EhcaQp *qp, const IbPacket *pkt)
{
    unsigned op = pkt->bth.opcode & IB_OP_MASK;
    uint32_t index;

    qp->stats.duplicates++;
    if (roles[op].msg != EHCA_MSG_NONE) {
        answer_ack(qp, psn_add(qp->epsn, IB_PSN_MASK));
        return;
    }
    index = find_resource(qp, pkt->bth.psn);
    if (index == UINT32_MAX) {
        return;
    }
    if (op == IB_OP_READ_REQUEST) {
        read_again(qp, index, pkt);
    } else if (qp->res[index & RES_MASK].opcode == op) {
        if ((int32_t)(index - qp->res_cur) <= 0) {
            qp->res_cur = index;
            qp->res_sent = 0;
        }
        ehca_schedule_resp(qp);
    }
}

/* ------------------------------------------------------------------ */
/* UC                                                                 */
/* ------------------------------------------------------------------ */

static void uc_forget_message(EhcaQp *qp)
{
    ehca_recv_abort(qp);
    qp->msg = EHCA_MSG_NONE;
}

static void uc_request(EhcaQp *qp, const IbPacket *pkt, const uint8_t *payload)
{
    const OpcodeRole *role = &roles[pkt->bth.opcode & IB_OP_MASK];
    uint32_t recv_status;

    if (role->first || pkt->bth.psn != qp->epsn) {
        uc_forget_message(qp);
    }
    qp->epsn = psn_add(pkt->bth.psn, 1);
    if (!role->first && qp->msg == EHCA_MSG_NONE) {
        qp->stats.dropped_length++;    /* rest of a message given up */
        return;
    }
    switch (execute(qp, pkt, payload, &recv_status)) {
    case DONE:
        break;
    case NO_WQE:
        qp->stats.dropped_no_wqe++;
        uc_forget_message(qp);
        break;
    case INVALID:
    case ACCESS:
    case OPERATIONAL:
        if (qp->recv.active) {
            fail(qp, 0, 0, recv_status);
        } else {
            qp->stats.dropped_length++;
            uc_forget_message(qp);
        }
        break;
    }
}

/* ------------------------------------------------------------------ */
/* Doors                                                              */
/* ------------------------------------------------------------------ */

void ehca_responder_request(EhcaQp *qp, EhcaPort *port, const IbPacket *pkt,
                            const uint8_t *payload)
{
    int32_t diff;

    if (qp->attr.state == EHCA_QPS_RTR && !qp->comm_est_told) {
        qp->comm_est_told = true;
        ehca_eq_qp_event(qp, EHCA_EQE_COMM_EST);
    }
    if (qp->service == EHCA_SERVICE_UC) {
        uc_request(qp, pkt, payload);
        return;
    }
    diff = ib_psn_diff(pkt->bth.psn, qp->epsn);
    if (diff == 0) {
        rc_expected(qp, pkt, payload);
    } else if (diff < 0) {
        rc_duplicate(qp, pkt);
    } else if (!qp->nak_sent) {
        qp->stats.nak_sequence_sent++;
        qp->nak_sent = true;
        answer(qp, IB_AETH_NAK | IB_NAK_PSN_SEQUENCE, qp->epsn);
    }
}

/* Builds the next response: a READ's packet, an atomic's, or the ACK. */
static EhcaTurn send_response(EhcaQp *qp, EhcaPort *port)
{
    EhcaReadRes *res = qp->res_cur != qp->res_head
                       ? &qp->res[qp->res_cur & RES_MASK] : NULL;
    bool is_read = res && res->opcode == IB_OP_READ_REQUEST;
    unsigned mtu = ehca_qp_mtu(qp);
    uint64_t offset = (uint64_t)qp->res_sent * mtu;
    size_t len = 0, header_len;
    IbPacket pkt;
    EhcaMr *mr;
    EhcaTx tx;

    memset(&pkt, 0, sizeof(pkt));
    pkt.bth.dest_qpn = qp->attr.dest_qpn;
    pkt.bth.migreq = ehca_apm_migreq(qp);
    pkt.aeth.syndrome = IB_AETH_ACK | IB_AETH_VALUE_MASK;
    pkt.aeth.msn = qp->msn;
    if (is_read) {
        bool last = qp->res_sent + 1 == res->psns;

        len = last ? res->length - offset : mtu;
        pkt.bth.psn = psn_add(res->psn, qp->res_sent);
        pkt.bth.opcode = qp->res_sent == 0
            ? (last ? IB_OP_READ_RESP_ONLY : IB_OP_READ_RESP_FIRST)
            : (last ? IB_OP_READ_RESP_LAST : IB_OP_READ_RESP_MIDDLE);
        if (len && !key_ok(qp, res->rkey, res->va + offset, len,
                           EHCA_MR_REMOTE_READ, &mr)) {
            fail(qp, IB_NAK_REMOTE_ACCESS, pkt.bth.psn, 0);
            return EHCA_TURN_MORE;
        }
    } else if (res) {
        pkt.bth.psn = res->psn;
        pkt.bth.opcode = IB_OP_ATOMIC_ACK;
        pkt.atomic_ack = res->result;
    } else {
        pkt.bth.psn = qp->ack_psn;
        pkt.bth.opcode = IB_OP_ACK;
        pkt.aeth.syndrome = qp->ack_syndrome;
    }
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
        header_len = ib_packet_put_headers(tx.p, &pkt, len);
        if (len && !ehca_mr_read(qp->adapter, mr, res->va + offset,
                                 tx.p + header_len, len)) {
            fail(qp, IB_NAK_REMOTE_OPERATIONAL, pkt.bth.psn, 0);
            return EHCA_TURN_MORE;
        }
        ehca_tx_end(&tx, ib_packet_finish(tx.p, header_len, len));
        qp->stats.packets_sent++;
        qp->stats.bytes_sent += len;
        break;
    }
    if (!res) {
        qp->ack_due = false;
    } else if (++qp->res_sent == res->psns) {
        res->answered = true;
        qp->res_cur++;
        qp->res_sent = 0;
    }
    return EHCA_TURN_MORE;
}

EhcaTurn ehca_responder_run(EhcaQp *qp, unsigned *budget)
{
    EhcaPort *port = ehca_port(qp->adapter,
                               qp->attr.path[EHCA_PRIMARY].port);

    while (qp->ack_due || qp->res_cur != qp->res_head) {
        EhcaTurn turn;

        if (!port || qp->service != EHCA_SERVICE_RC ||
            qp->attr.state == EHCA_QPS_RESET ||
            qp->attr.state == EHCA_QPS_INIT) {
            return EHCA_TURN_IDLE;
        }
        if (*budget == 0) {
            return EHCA_TURN_MORE;
        }
        turn = send_response(qp, port);
        if (turn != EHCA_TURN_MORE) {
            return turn;
        }
        (*budget)--;
    }
    return EHCA_TURN_IDLE;
}
