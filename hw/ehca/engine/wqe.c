/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Work queue elements in guest memory (interface sections 13.3, 15).
 *
 * Theory of operation: the guest owns the memory and may change it at any
 * time, so nothing read here is believed twice.  A send WQE's header is
 * copied when the WQE is fetched; its SG entries are read again, one by one,
 * whenever payload is moved, and each access is checked against its key then.
 * A cursor per WQE remembers where the last packet ended, so that sequential
 * packets do not walk the list from its start.
 *
 * WQEs of an SRQ are copied whole when they are taken: they are finished in any
 * order, so the ring may come round to the slot of one that is still in work
 * (section 13.3: drivers do not check).  That is why an SRQ's WQEs are short.
 *
 * A WQE never crosses a page: strides divide 4096 (13.3).
 */
#include <string.h>

#include "internal.h"

/* One walk over the SG entries of a WQE. */
typedef struct SgeWalk {
    EhcaQp *qp;
    const EhcaQueue *queue;
    const EhcaSge *copy;               /* NULL: they are in the queue */
    uint32_t wqe, base, sges, pd;
    uint64_t *pos;                     /* cursor: place in the message, */
    uint32_t *sge, *off;               /* entry, offset in the entry */
} SgeWalk;

static bool read_sge(const SgeWalk *w, uint32_t index, EhcaSge *sge)
{
    EhcaAdapter *a = w->qp->adapter;
    uint8_t raw[EHCA_SGE_SIZE];

    if (w->copy) {
        *sge = w->copy[index];
        return true;
    }
    if (!a->ops.dma_read(a->opaque, ehca_queue_addr(w->queue, w->wqe) +
                         w->base + index * EHCA_SGE_SIZE, raw, sizeof(raw))) {
        return false;
    }
    sge->addr = ib_get64(raw + EHCA_SGE_ADDR);
    sge->lkey = ib_get32(raw + EHCA_SGE_LKEY);
    sge->length = ib_get32(raw + EHCA_SGE_LENGTH);
    return true;
}

static uint32_t bad_key(EhcaQp *qp, const EhcaSge *sge, EhcaKeyError error)
{
    ehca_guest_error(qp->adapter, "QP 0x%x: lkey 0x%x of a work queue element "
        "at 0x%llx, %u bytes: %s", qp->qpn, sge->lkey,
        (unsigned long long)sge->addr, sge->length,
        ehca_key_error_name(error));
    return ehca_status(EHCA_CQE_CODE_LOC_PROT);
}

/* Sum of all entries' lengths; 64 bits cannot overflow. */
static uint32_t sum_sges(const SgeWalk *w, uint64_t *sum)
{
    *sum = 0;
    for (uint32_t i = 0; i < w->sges; i++) {
        EhcaSge sge;

        if (!read_sge(w, i, &sge)) {
            return ehca_status(EHCA_CQE_CODE_LOC_QP_OP);
        }
        *sum += sge.length;
    }
    return 0;
}

/*
 * May all entries be read (or written)?  Asked before the first packet, so
 * that a WQE that must fail does not leave half a message at the peer.
 */
static uint32_t check_keys(const SgeWalk *w, uint32_t access)
{
    for (uint32_t i = 0; i < w->sges; i++) {
        EhcaKeyError error;
        EhcaMr *mr;
        EhcaSge sge;

        if (!read_sge(w, i, &sge)) {
            return ehca_status(EHCA_CQE_CODE_LOC_QP_OP);
        }
        if (!sge.length) {
            continue;
        }
        error = ehca_key_check(w->qp->adapter, sge.lkey, w->pd, sge.addr,
                               sge.length, access, &mr);
        if (error != EHCA_KEY_OK) {
            return bad_key(w->qp, &sge, error);
        }
    }
    return 0;
}

/*
 * Moves @len bytes at @pos of the message.  @buf NULL: only moves the cursor
 * there.  Returns a CQE status, 0 is good.
 */
static uint32_t walk(const SgeWalk *w, uint64_t pos, uint8_t *buf, size_t len,
                     bool to_guest)
{
    EhcaAdapter *a = w->qp->adapter;

    if (pos < *w->pos) {
        *w->pos = 0;
        *w->sge = *w->off = 0;
    }
    while (*w->pos < pos || len) {
        EhcaKeyError error;
        uint64_t n;
        EhcaMr *mr;
        EhcaSge sge;

        if (*w->sge >= w->sges) {
            return ehca_status(EHCA_CQE_CODE_LOC_LEN);
        }
        if (!read_sge(w, *w->sge, &sge)) {
            return ehca_status(EHCA_CQE_CODE_LOC_QP_OP);
        }
        if (*w->off >= sge.length) {
            (*w->sge)++;
            *w->off = 0;
            continue;
        }
        n = sge.length - *w->off;
        if (*w->pos < pos) {
            if (n > pos - *w->pos) {
                n = pos - *w->pos;
            }
        } else {
            if (n > len) {
                n = len;
            }
            error = ehca_key_check(a, sge.lkey, w->pd, sge.addr + *w->off, n,
                                   to_guest ? EHCA_MR_LOCAL_WRITE : 0, &mr);
            if (error != EHCA_KEY_OK) {
                return bad_key(w->qp, &sge, error);
            }
            if (to_guest ? !ehca_mr_write(a, mr, sge.addr + *w->off, buf, n)
                         : !ehca_mr_read(a, mr, sge.addr + *w->off, buf, n)) {
                return ehca_status(EHCA_CQE_CODE_LOC_PROT);
            }
            buf += n;
            len -= n;
            pos += n;
        }
        *w->off += n;
        *w->pos += n;
    }
    return 0;
}

/* ------------------------------------------------------------------ */
/* Send queue                                                         */
/* ------------------------------------------------------------------ */

static SgeWalk send_walk(EhcaQp *qp, EhcaSendCtx *ctx, unsigned base)
{
    return (SgeWalk) {
        .qp = qp, .queue = &qp->sq, .wqe = ctx->wqe, .base = base,
        .sges = ctx->sges, .pd = qp->pd, .pos = &ctx->cursor_pos,
        .sge = &ctx->cursor_sge, .off = &ctx->cursor_off,
    };
}

uint32_t ehca_wqe_check_sges(EhcaQp *qp, EhcaSendCtx *ctx, unsigned base,
                             uint32_t access)
{
    SgeWalk w = send_walk(qp, ctx, base);
    /* The address vector of a datagram takes the room of some. */
    uint32_t room = qp->send_sges - (base - EHCA_WQE_SGES) / EHCA_SGE_SIZE;
    uint32_t status;

    if (ctx->sges > room) {
        ehca_guest_error(qp->adapter, "QP 0x%x: send WQE with %u SG entries, "
            "the queue has room for %u", qp->qpn, ctx->sges, room);
        return ehca_status(EHCA_CQE_CODE_LOC_QP_OP);
    }
    status = sum_sges(&w, &ctx->length);
    if (!status && ctx->length > EHCA_MAX_MESSAGE) {
        status = ehca_status(EHCA_CQE_CODE_LOC_LEN);
    }
    return status ? status : check_keys(&w, access);
}

uint32_t ehca_wqe_gather(EhcaQp *qp, EhcaSendCtx *ctx, unsigned base,
                         uint64_t pos, uint8_t *buf, size_t len)
{
    SgeWalk w = send_walk(qp, ctx, base);

    return walk(&w, pos, buf, len, false);
}

uint32_t ehca_wqe_scatter(EhcaQp *qp, EhcaSendCtx *ctx, uint64_t pos,
                          const uint8_t *buf, size_t len)
{
    SgeWalk w = send_walk(qp, ctx, EHCA_WQE_SGES);

    return walk(&w, pos, (uint8_t *)buf, len, true);
}

static bool optype_known(const EhcaQp *qp, unsigned optype)
{
    switch (optype) {
    case EHCA_WQE_OPTYPE_SEND:
    case EHCA_WQE_OPTYPE_RDMA_WRITE:
        return true;
    case EHCA_WQE_OPTYPE_RDMA_READ:
    case EHCA_WQE_OPTYPE_CMP_SWAP:
    case EHCA_WQE_OPTYPE_FETCH_ADD:
        return qp->service == EHCA_SERVICE_RC;
    default:
        return false;
    }
}

void ehca_wqe_fetch(EhcaQp *qp, uint32_t index, EhcaSendCtx *ctx)
{
    EhcaAdapter *a = qp->adapter;
    uint8_t raw[EHCA_WQE_SGES];
    bool atomic, response;

    memset(ctx, 0, sizeof(*ctx));
    ctx->wqe = index;
    ctx->psns = 1;
    ctx->optype = EHCA_CQE_OPTYPE_SEND;
    if (!a->ops.dma_read(a->opaque, ehca_queue_addr(&qp->sq, index), raw,
                         sizeof(raw))) {
        ctx->status = ehca_status(EHCA_CQE_CODE_LOC_QP_OP);
        return;
    }
    ctx->wr_id = ib_get64(raw + EHCA_WQE_ID);
    ctx->flags = raw[EHCA_WQE_FLAGS];
    ctx->sges = raw[EHCA_WQE_NR_SGES];
    ctx->imm = ib_get32(raw + EHCA_WQE_IMM);
    ctx->raddr = ib_get64(raw + EHCA_WQE_RADDR);
    ctx->rkey = ib_get32(raw + EHCA_WQE_RKEY);
    ctx->operand[0] = ib_get64(raw + EHCA_WQE_ATOMIC_1);
    ctx->operand[1] = ib_get64(raw + EHCA_WQE_ATOMIC_2);
    if (!optype_known(qp, raw[EHCA_WQE_OPTYPE])) {
        ehca_guest_error(a, "QP 0x%x: send WQE %u with optype 0x%02x, which "
            "%s does not have", qp->qpn, index, raw[EHCA_WQE_OPTYPE],
            ehca_service_name(qp->service));
        ctx->status = ehca_status(EHCA_CQE_CODE_LOC_QP_OP);
        return;
    }
    ctx->optype = raw[EHCA_WQE_OPTYPE];
    atomic = ctx->optype == EHCA_WQE_OPTYPE_CMP_SWAP ||
             ctx->optype == EHCA_WQE_OPTYPE_FETCH_ADD;
    response = atomic || ctx->optype == EHCA_WQE_OPTYPE_RDMA_READ;
    if (response && !qp->attr.init_depth) {
        ctx->status = ehca_status(EHCA_CQE_CODE_LOC_QP_OP);
        return;
    }
    ctx->status = ehca_wqe_check_sges(qp, ctx, EHCA_WQE_SGES,
                                      response ? EHCA_MR_LOCAL_WRITE : 0);
    if (ctx->status) {
        return;
    }
    if (atomic && ctx->length != sizeof(uint64_t)) {
        ctx->status = ehca_status(EHCA_CQE_CODE_LOC_LEN);
        return;
    }
    if (!atomic && ctx->length) {
        unsigned mtu = ehca_qp_mtu(qp);

        ctx->psns = (ctx->length + mtu - 1) / mtu;
        if (ctx->psns > EHCA_MAX_PSNS) {
            ctx->status = ehca_status(EHCA_CQE_CODE_LOC_LEN);
        }
    }
}

/* ------------------------------------------------------------------ */
/* Receive queue                                                      */
/* ------------------------------------------------------------------ */

static SgeWalk recv_walk(EhcaQp *qp)
{
    EhcaQp *owner = qp->srq ? qp->srq : qp;
    EhcaRecvCtx *r = &qp->recv;

    return (SgeWalk) {
        .qp = qp, .queue = &owner->rq, .wqe = r->wqe, .base = EHCA_WQE_SGES,
        .copy = r->from_srq ? r->srq_sges : NULL,
        .sges = r->sges, .pd = owner->pd, .pos = &r->used,
        .sge = &r->cursor_sge, .off = &r->cursor_off,
    };
}

static bool copy_sges(EhcaQp *qp)
{
    EhcaRecvCtx *r = &qp->recv;
    SgeWalk w = recv_walk(qp);

    w.copy = NULL;
    for (uint32_t i = 0; i < r->sges; i++) {
        if (!read_sge(&w, i, &r->srq_sges[i])) {
            return false;
        }
    }
    return true;
}

static void take_from_srq(EhcaQp *srq)
{
    srq->rq.head = (srq->rq.head + 1) % srq->rq.entries;
    srq->rq.posted--;
    if (srq->srq_limit_armed && srq->rq.posted < srq->attr.srq_limit) {
        srq->srq_limit_armed = false;
        ehca_eq_qp_event(srq, EHCA_EQE_SRQ_LIMIT);
    }
}

EhcaRecvResult ehca_recv_start(EhcaQp *qp)
{
    EhcaAdapter *a = qp->adapter;
    EhcaQp *owner = qp->srq ? qp->srq : qp;
    EhcaQueue *rq = &owner->rq;
    EhcaRecvCtx *r = &qp->recv;
    uint8_t raw[EHCA_WQE_HDR_SIZE];
    SgeWalk w;

    if (rq->posted == 0) {
        ehca_collect_doorbells(owner);
    }
    if (rq->posted == 0 || rq->registered != rq->num_pages ||
        (qp->srq && owner->attr.state != EHCA_QPS_RTR)) {
        return EHCA_RECV_EMPTY;
    }
    memset(r, 0, sizeof(*r));
    r->active = true;
    r->wqe = rq->head;
    if (qp->srq) {
        r->from_srq = true;
        take_from_srq(owner);
    }
    if (!a->ops.dma_read(a->opaque, ehca_queue_addr(rq, r->wqe), raw,
                         sizeof(raw))) {
        return EHCA_RECV_BAD;
    }
    r->wr_id = ib_get64(raw + EHCA_WQE_ID);
    r->sges = raw[EHCA_WQE_NR_SGES];
    if (r->sges > owner->recv_sges) {
        ehca_guest_error(a, "QP 0x%x: receive WQE %u with %u SG entries, the "
            "queue has room for %u", owner->qpn, r->wqe, r->sges,
            owner->recv_sges);
        r->sges = 0;
        return EHCA_RECV_BAD;
    }
    if (r->from_srq && !copy_sges(qp)) {
        return EHCA_RECV_BAD;
    }
    w = recv_walk(qp);
    return sum_sges(&w, &r->capacity) ? EHCA_RECV_BAD : EHCA_RECV_OK;
}

uint32_t ehca_recv_scatter(EhcaQp *qp, const uint8_t *buf, size_t len)
{
    SgeWalk w = recv_walk(qp);

    return walk(&w, qp->recv.used, (uint8_t *)buf, len, true);
}

void ehca_recv_skip(EhcaQp *qp, size_t len)
{
    SgeWalk w = recv_walk(qp);

    /* Short lists end in a local length error at the next byte. */
    walk(&w, qp->recv.used + len, NULL, 0, true);
}

void ehca_recv_complete(EhcaQp *qp, EhcaCompletion *c)
{
    EhcaRecvCtx *r = &qp->recv;

    if (!r->from_srq) {
        qp->rq.head = (qp->rq.head + 1) % qp->rq.entries;
        qp->rq.posted--;
    }
    r->active = false;
    c->wr_id = r->wr_id;
    c->flags |= EHCA_CQE_FLAG_RECV;
    if (!ehca_cq_post(qp, qp->recv_cq, c)) {
        ehca_qp_error(qp, EHCA_CAUSE_CQ_ERROR, 0, true);
    }
}

void ehca_recv_abort(EhcaQp *qp)
{
    EhcaRecvCtx *r = &qp->recv;

    if (r->active && r->from_srq) {
        EhcaQueue *rq = &qp->srq->rq;

        rq->head = (rq->head + rq->entries - 1) % rq->entries;
        rq->posted++;
    }
    r->active = false;
}

/*
 * A WQE of the QP's own queue stays there for the driver to flush (20.2).  One
 * of an SRQ is this QP's alone, others may have been taken since, and no
 * position tells the driver of it: without a CQE it would be lost.
 */
void ehca_recv_flush(EhcaQp *qp)
{
    EhcaRecvCtx *r = &qp->recv;

    if (r->active && r->from_srq) {
        EhcaCompletion c = {
            .wr_id = r->wr_id,
            .optype = EHCA_CQE_OPTYPE_RECV,
            .flags = EHCA_CQE_FLAG_RECV,
            .status = ehca_status(EHCA_CQE_CODE_FLUSH),
        };

        /* A CQ that is full has been told to the guest; we stop anyway. */
        (void)ehca_cq_post(qp, qp->recv_cq, &c);
    }
    r->active = false;
}
