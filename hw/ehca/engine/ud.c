/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Unreliable datagrams: UD, GSI and (defined as QP0) SMI queue pairs, and
 * multicast groups (interface sections 8.9, 15.4, 15.5, 20.3, 22.3).
 *
 * Theory of operation: a WQE carries its own address vector; it is one packet
 * and complete when that has left.  A WQE that fails stops the send queue
 * (SQE): its error CQE is written, the ring stays at it, the count of WQEs is
 * forgotten.  SQE -> RTS takes it up again; WQEs marked purge are completed as
 * purged without being executed.
 *
 * A received packet needs a receive WQE that holds 40 bytes for the GRH and
 * the payload; without one, or when it is too short, the packet is dropped and
 * counted.
 */
#include <string.h>

#include "internal.h"

#define WQE_UD_SIZE EHCA_WQE_UD_SGES
#define QPN_GSI 1u
#define QPN_SMI 0u

/* A UD send WQE, taken apart. */
typedef struct UdWqe {
    EhcaSendCtx ctx;
    uint8_t wqef, sl, lnh, path_bits, pmtu;
    uint16_t pkeyi, dlid;
    uint32_t dest_qpn, qkey;
    uint64_t grh0;
    uint8_t sgid[16], dgid[16];
} UdWqe;

static bool is_gsi(const EhcaQp *qp)
{
    return qp->special_port && !qp->is_smi;
}

static EhcaPort *ud_port(EhcaQp *qp)
{
    return ehca_port(qp->adapter, qp->special_port ?
                     qp->special_port : qp->attr.path[EHCA_PRIMARY].port);
}

/* ------------------------------------------------------------------ */
/* Sending                                                            */
/* ------------------------------------------------------------------ */

static bool fetch(EhcaQp *qp, UdWqe *w)
{
    EhcaAdapter *a = qp->adapter;
    uint8_t raw[WQE_UD_SIZE];
    const uint8_t *av = raw + EHCA_WQE_AV;

    memset(w, 0, sizeof(*w));
    w->ctx.wqe = qp->sq.head;
    w->ctx.optype = EHCA_WQE_OPTYPE_SEND;
    if (!a->ops.dma_read(a->opaque, ehca_queue_addr(&qp->sq, qp->sq.head),
                         raw, sizeof(raw))) {
        return false;
    }
    w->ctx.wr_id = ib_get64(raw + EHCA_WQE_ID);
    w->ctx.flags = raw[EHCA_WQE_FLAGS];
    w->ctx.sges = raw[EHCA_WQE_NR_SGES];
    w->ctx.imm = ib_get32(raw + EHCA_WQE_IMM);
    w->wqef = raw[EHCA_WQE_WQEF];
    w->pkeyi = ib_get16(raw + EHCA_WQE_PKEYI);
    w->dest_qpn = ib_get32(raw + EHCA_WQE_DEST_QPN) >> EHCA_WQE_DEST_QPN_SHIFT;
    w->qkey = ib_get32(raw + EHCA_WQE_QKEY);
    w->sl = av[EHCA_AV_SL] & 15;
    w->lnh = av[EHCA_AV_LNH];
    w->dlid = ib_get16(av + EHCA_AV_DLID);
    w->path_bits = av[EHCA_AV_SLID_PATH_BITS];
    w->pmtu = av[EHCA_AV_PMTU];
    w->grh0 = ib_get64(av + EHCA_AV_GRH0);
    memcpy(w->sgid, av + EHCA_AV_SGID, 16);
    memcpy(w->dgid, av + EHCA_AV_DGID, 16);
    return raw[EHCA_WQE_OPTYPE] == EHCA_WQE_OPTYPE_SEND ||
           w->wqef & EHCA_WQEF_PURGE;
}

static uint64_t mtu_limit(EhcaPort *port, const UdWqe *w)
{
    unsigned av = ib_mtu_bytes(w->pmtu);
    unsigned link = ib_mtu_bytes(ehca_sma_port(port)->info.neighbor_mtu);
    unsigned limit = av ? av : IB_MTU_MAX;

    return link && link < limit ? link : limit;
}

/* Everything about a WQE that can be wrong; CQE status or 0. */
static uint32_t check(EhcaQp *qp, EhcaPort *port, UdWqe *w)
{
    bool multicast = w->dlid >= IB_LID_MCAST_FIRST &&
                     w->dlid <= IB_LID_MCAST_LAST;
    const char *wrong = NULL;
    uint32_t status;

    if (qp->is_smi != (w->dest_qpn == QPN_SMI)) {
        wrong = "destination QP 0 belongs to QP 0";
    } else if (w->dlid == 0 ||
               (w->dlid == IB_LID_PERMISSIVE && !qp->is_smi)) {
        wrong = "no destination LID";
    } else if (multicast && (w->dest_qpn != IB_QPN_MULTICAST ||
                             w->lnh != EHCA_AV_LNH_GRH)) {
        wrong = "multicast needs a GRH and destination QP 0xffffff";
    } else if (is_gsi(qp) && w->pkeyi >= EHCA_MAX_PKEYS) {
        wrong = "P_Key index too large";
    }
    if (wrong) {
        ehca_guest_error(qp->adapter, "QP 0x%x: send WQE %u to LID 0x%x, QP "
            "0x%x: %s", qp->qpn, w->ctx.wqe, w->dlid, w->dest_qpn, wrong);
        return ehca_status(EHCA_CQE_CODE_LOC_QP_OP);
    }
    status = ehca_wqe_check_sges(qp, &w->ctx, EHCA_WQE_UD_SGES, 0);
    if (!status && w->ctx.length > mtu_limit(port, w)) {
        status = ehca_status(EHCA_CQE_CODE_LOC_LEN);
    }
    return status;
}

static void fill_packet(EhcaQp *qp, EhcaPort *port, const UdWqe *w,
                        IbPacket *pkt)
{
    memset(pkt, 0, sizeof(*pkt));
    pkt->lrh.sl = w->sl;
    pkt->lrh.vl = qp->is_smi ? IB_VL_MANAGEMENT : ehca_port_vl(port, w->sl);
    pkt->lrh.dlid = w->dlid;
    pkt->lrh.slid = ehca_port_slid(port, w->path_bits);
    if (qp->is_smi && pkt->lrh.slid == 0) {
        pkt->lrh.slid = IB_LID_PERMISSIVE;
    }
    pkt->has_grh = w->lnh == EHCA_AV_LNH_GRH;
    if (pkt->has_grh) {
        pkt->grh.traffic_class = w->grh0 >> EHCA_GRH0_TCLASS_SHIFT &
                                 EHCA_GRH0_TCLASS_MASK;
        pkt->grh.flow_label = w->grh0 >> EHCA_GRH0_FLOW_SHIFT &
                              EHCA_GRH0_FLOW_MASK;
        pkt->grh.hop_limit = w->grh0 & EHCA_GRH0_HOP_MASK;
        memcpy(pkt->grh.sgid, w->sgid, 16);
        memcpy(pkt->grh.dgid, w->dgid, 16);
    }
    pkt->bth.opcode = IB_TRANSPORT_UD |
        (w->ctx.flags & EHCA_WQE_FLAG_IMM ? IB_OP_SEND_ONLY_IMM
                                          : IB_OP_SEND_ONLY);
    pkt->bth.solicited = w->ctx.flags & EHCA_WQE_FLAG_SOLICITED;
    pkt->bth.migreq = true;            /* no APM here: 1 for life */
    pkt->bth.pkey = ehca_port_pkey(port, is_gsi(qp) ? w->pkeyi :
                                   qp->attr.path[EHCA_PRIMARY].pkey_idx);
    pkt->bth.dest_qpn = w->dest_qpn;
    pkt->bth.psn = qp->new_psn;
    /* Privileged Q_Keys come from the QP (10.2.4). */
    pkt->deth.qkey = w->qkey & 0x80000000u ? qp->attr.qkey : w->qkey;
    pkt->deth.src_qpn = is_gsi(qp) ? QPN_GSI : qp->is_smi ? QPN_SMI : qp->qpn;
    pkt->imm = w->ctx.imm;
}

/* False: the QP is in ERR now. */
static bool complete(EhcaQp *qp, const UdWqe *w, uint32_t status)
{
    EhcaCompletion c = {
        .wr_id = w->ctx.wr_id,
        .optype = EHCA_CQE_OPTYPE_SEND,
        .bytes = status ? 0 : (uint32_t)w->ctx.length,
        .imm = w->ctx.imm,
        .status = status,
        .remote_qpn = w->dest_qpn,
        .rlid = w->dlid,
        .service_level = w->sl,
    };
    bool wanted = status || qp->sigt == EHCA_SIGT_EVERY ||
                  (qp->sigt == EHCA_SIGT_PER_WQE &&
                   w->ctx.flags & EHCA_WQE_FLAG_SIGNALED);

    if (wanted && !ehca_cq_post(qp, qp->send_cq, &c)) {
        ehca_qp_error(qp, EHCA_CAUSE_CQ_ERROR, status, true);
        return false;
    }
    return true;
}

static void advance(EhcaQp *qp)
{
    qp->sq.head = (qp->sq.head + 1) % qp->sq.entries;
    qp->sq.posted--;
}

static void fail(EhcaQp *qp, const UdWqe *w, uint32_t status)
{
    qp->error_cause = EHCA_CAUSE_LOCAL_ERROR;
    qp->error_status = status;
    qp->aer = (uint64_t)EHCA_CAUSE_LOCAL_ERROR << 32 | status;
    if (complete(qp, w, status)) {
        ehca_qp_set_state(qp, EHCA_QPS_SQE, EHCA_CAUSE_LOCAL_ERROR);
    }
}

static EhcaTurn send_one(EhcaQp *qp, EhcaPort *port)
{
    size_t header_len;
    uint32_t status;
    IbPacket pkt;
    EhcaTx tx;
    UdWqe w;

    if (!fetch(qp, &w)) {
        fail(qp, &w, ehca_status(EHCA_CQE_CODE_LOC_QP_OP));
        return EHCA_TURN_MORE;
    }
    if (w.wqef & EHCA_WQEF_PURGE) {
        advance(qp);
        complete(qp, &w, ehca_status(EHCA_CQE_CODE_PURGED));
        return EHCA_TURN_MORE;
    }
    status = check(qp, port, &w);
    if (status) {
        fail(qp, &w, status);
        return EHCA_TURN_MORE;
    }
    switch (ehca_tx_begin(port, w.dlid, qp->is_smi, &tx)) {
    case EHCA_TX_WAIT_WIRE:
        return EHCA_TURN_WAIT_WIRE;
    case EHCA_TX_WAIT_LOOP:
        return EHCA_TURN_WAIT_LOOP;
    case EHCA_TX_DEAD:
        break;
    case EHCA_TX_OK:
        fill_packet(qp, port, &w, &pkt);
        header_len = ib_packet_put_headers(tx.p, &pkt, w.ctx.length);
        status = ehca_wqe_gather(qp, &w.ctx, EHCA_WQE_UD_SGES, 0,
                                 tx.p + header_len, w.ctx.length);
        if (status) {
            fail(qp, &w, status);
            return EHCA_TURN_MORE;
        }
        ehca_tx_end(&tx, ib_packet_finish(tx.p, header_len, w.ctx.length));
        qp->stats.packets_sent++;
        qp->stats.bytes_sent += w.ctx.length;
        break;
    }
    qp->new_psn = (qp->new_psn + 1) & IB_PSN_MASK;
    advance(qp);
    complete(qp, &w, 0);
    return EHCA_TURN_MORE;
}

EhcaTurn ehca_ud_run(EhcaQp *qp, unsigned *budget)
{
    while (qp->sq.posted && qp->attr.state == EHCA_QPS_RTS) {
        EhcaPort *port = ud_port(qp);
        EhcaTurn turn;

        if (!port) {
            return EHCA_TURN_IDLE;
        }
        if (*budget == 0) {
            return EHCA_TURN_MORE;
        }
        turn = send_one(qp, port);
        if (turn != EHCA_TURN_MORE) {
            return turn;
        }
        (*budget)--;
    }
    return EHCA_TURN_IDLE;
}

/* ------------------------------------------------------------------ */
/* Receiving                                                          */
/* ------------------------------------------------------------------ */

static void recv_error(EhcaQp *qp, uint32_t status)
{
    EhcaCompletion c = { .optype = EHCA_CQE_OPTYPE_RECV, .status = status };

    ehca_recv_complete(qp, &c);
    ehca_qp_error(qp, EHCA_CAUSE_RESPONDER_ERROR, status, false);
}

/* Index of the P_Key that lets the packet in; -1: none does. */
static int pkey_index(EhcaQp *qp, EhcaPort *port, uint16_t pkey)
{
    unsigned own = qp->attr.path[EHCA_PRIMARY].pkey_idx;

    if (qp->is_smi) {
        return 0;                      /* P_Keys are not checked on QP0 */
    }
    if (!is_gsi(qp)) {
        return ehca_pkey_match(pkey, ehca_port_pkey(port, own)) ? (int)own
                                                                : -1;
    }
    for (unsigned i = 0; i < EHCA_MAX_PKEYS; i++) {
        if (ehca_pkey_match(pkey, ehca_port_pkey(port, i))) {
            return i;
        }
    }
    return -1;
}

static bool accepts(EhcaQp *qp, EhcaPort *port, const IbPacket *pkt,
                    int *index)
{
    unsigned state = qp->attr.state;

    if ((state != EHCA_QPS_RTR && state != EHCA_QPS_RTS &&
         state != EHCA_QPS_SQD && state != EHCA_QPS_SQE) ||
        ud_port(qp) != port) {
        qp->stats.dropped_state++;
        return false;
    }
    *index = pkey_index(qp, port, pkt->bth.pkey);
    if (*index < 0) {
        qp->stats.dropped_pkey++;
        ehca_port_bad_pkey(port, pkt, pkt->deth.src_qpn);
        return false;
    }
    if (!qp->is_smi && pkt->deth.qkey != qp->attr.qkey) {
        qp->stats.dropped_qkey++;
        ehca_port_bad_qkey(port, pkt, pkt->deth.src_qpn);
        return false;
    }
    return true;
}

void ehca_ud_receive(EhcaQp *qp, EhcaPort *port, const IbPacket *pkt,
                     const uint8_t *grh, const uint8_t *payload)
{
    uint32_t bytes = pkt->payload_len + EHCA_UD_GRH_SIZE, status = 0;
    unsigned lmc_mask = (1u << ehca_sma_port(port)->info.lmc) - 1;
    EhcaCompletion c;
    int index;

    if (!accepts(qp, port, pkt, &index)) {
        return;
    }
    switch (ehca_recv_start(qp)) {
    case EHCA_RECV_OK:
        break;
    case EHCA_RECV_EMPTY:
        qp->stats.dropped_no_wqe++;
        return;
    case EHCA_RECV_BAD:
        recv_error(qp, ehca_status(EHCA_CQE_CODE_LOC_QP_OP));
        return;
    }
    if (bytes > qp->recv.capacity) {
        qp->stats.dropped_length++;
        ehca_recv_abort(qp);
        return;
    }
    if (pkt->has_grh) {
        status = ehca_recv_scatter(qp, grh, EHCA_UD_GRH_SIZE);
    } else {
        ehca_recv_skip(qp, EHCA_UD_GRH_SIZE);
    }
    if (!status) {
        status = ehca_recv_scatter(qp, payload, pkt->payload_len);
    }
    if (status) {
        recv_error(qp, status);
        return;
    }
    qp->stats.packets_received++;
    qp->stats.bytes_received += pkt->payload_len;
    c = (EhcaCompletion) {
        .optype = EHCA_CQE_OPTYPE_RECV,
        .flags = (pkt->has_imm ? EHCA_CQE_FLAG_IMM : 0) |
                 (pkt->has_grh ? EHCA_CQE_FLAG_GRH : 0),
        .bytes = bytes,
        .imm = pkt->imm,
        .remote_qpn = pkt->deth.src_qpn,
        .rlid = pkt->lrh.slid,
        .service_level = pkt->lrh.sl,
        .path_bits = pkt->lrh.dlid < IB_LID_MCAST_FIRST
                     ? pkt->lrh.dlid & lmc_mask : 0,
        .pkey_index = index,
        .solicited = pkt->bth.solicited,
    };
    ehca_recv_complete(qp, &c);
}

/* ------------------------------------------------------------------ */
/* Multicast                                                          */
/* ------------------------------------------------------------------ */

static EhcaMcast **bucket(EhcaAdapter *a, uint16_t mlid)
{
    return &a->mcast[mlid % EHCA_MCAST_BUCKETS];
}

bool ehca_mcast_local(EhcaPort *port, uint16_t mlid)
{
    for (EhcaMcast *m = *bucket(port->adapter, mlid); m; m = m->next) {
        if (m->mlid == mlid && ud_port(m->qp) == port) {
            return true;
        }
    }
    return false;
}

void ehca_mcast_receive(EhcaPort *port, const IbPacket *pkt,
                        const uint8_t *grh, const uint8_t *payload)
{
    EhcaMcast *m = *bucket(port->adapter, pkt->lrh.dlid);
    bool found = false;

    for (; m; m = m->next) {
        if (m->mlid == pkt->lrh.dlid && ud_port(m->qp) == port &&
            memcmp(m->mgid, pkt->grh.dgid, 16) == 0) {
            found = true;
            ehca_ud_receive(m->qp, port, pkt, grh, payload);
        }
    }
    if (!found) {
        port->stats.dropped_mcast++;
    }
}

/* r6 multicast LID, r7 low and r8 high half of the MGID (8.9). */
static int64_t check_group(EhcaCall *call, uint16_t *mlid, uint8_t mgid[16])
{
    uint64_t lid = call->in[2];

    ib_put64(mgid, call->in[4]);
    ib_put64(mgid + 8, call->in[3]);
    if (call->qp->service != EHCA_SERVICE_UD || lid < IB_LID_MCAST_FIRST ||
        lid > IB_LID_MCAST_LAST || mgid[0] != 0xFF) {
        ehca_guest_error(call->a, "%s: QP 0x%x (%s), LID 0x%llx, MGID "
            "%016llx%016llx: needs a UD QP, a multicast LID and MGID",
            call->name, call->qp->qpn, ehca_service_name(call->qp->service),
            (unsigned long long)lid, (unsigned long long)call->in[4],
            (unsigned long long)call->in[3]);
        return EHCA_RC_MCG_PARM;
    }
    *mlid = lid;
    return EHCA_RC_SUCCESS;
}

static EhcaMcast **find_group(EhcaQp *qp, uint16_t mlid, const uint8_t *mgid)
{
    EhcaMcast **m = bucket(qp->adapter, mlid);

    while (*m && !((*m)->qp == qp && (*m)->mlid == mlid &&
                   memcmp((*m)->mgid, mgid, 16) == 0)) {
        m = &(*m)->next;
    }
    return m;
}

int64_t ehca_mcast_attach(EhcaCall *call)
{
    EhcaAdapter *a = call->a;
    uint16_t mlid;
    uint8_t mgid[16];
    int64_t rc = check_group(call, &mlid, mgid);
    EhcaMcast *m;

    if (rc != EHCA_RC_SUCCESS || *find_group(call->qp, mlid, mgid)) {
        return rc;                     /* attached twice is attached */
    }
    m = a->mcast_free;
    if (!m) {
        ehca_guest_error(a, "H_ATTACH_MCQP: all %u attachments are in use",
                         EHCA_MAX_MCAST);
        return EHCA_RC_NOT_ENOUGH_RESOURCES;
    }
    a->mcast_free = m->next;
    a->mcast_used++;
    m->qp = call->qp;
    m->mlid = mlid;
    memcpy(m->mgid, mgid, 16);
    m->next = *bucket(a, mlid);
    *bucket(a, mlid) = m;
    return EHCA_RC_SUCCESS;
}

static void release(EhcaAdapter *a, EhcaMcast **place)
{
    EhcaMcast *m = *place;

    *place = m->next;
    m->next = a->mcast_free;
    m->qp = NULL;
    a->mcast_free = m;
    a->mcast_used--;
}

int64_t ehca_mcast_detach(EhcaCall *call)
{
    uint16_t mlid;
    uint8_t mgid[16];
    int64_t rc = check_group(call, &mlid, mgid);
    EhcaMcast **place;

    if (rc != EHCA_RC_SUCCESS) {
        return rc;
    }
    place = find_group(call->qp, mlid, mgid);
    if (!*place) {
        ehca_guest_error(call->a, "H_DETACH_MCQP: QP 0x%x is not attached to "
            "this group", call->qp->qpn);
        return EHCA_RC_MCG_PARM;
    }
    release(call->a, place);
    return EHCA_RC_SUCCESS;
}

/* The QP goes away (24: attachments go with it). */
void ehca_mcast_forget(EhcaQp *qp)
{
    EhcaAdapter *a = qp->adapter;

    for (unsigned i = 0; i < EHCA_MCAST_BUCKETS; i++) {
        EhcaMcast **m = &a->mcast[i];

        while (*m) {
            if ((*m)->qp == qp) {
                release(a, m);
            } else {
                m = &(*m)->next;
            }
        }
    }
}
