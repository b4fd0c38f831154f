/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Completion queues: CQEs and the CQ register page (interface sections 12.3,
 * 13.2, 14.3, 16).
 *
 * Theory of operation.  The engine produces, with its lock held; the guest
 * consumes and arms through the register page, from any thread, without a
 * lock.  They meet in two atomic words: `used` (entries not given back) and
 * `flags`:
 *
 *   armed  --CQE that matches-->  pending, disarmed, one EQE
 *   pending --store to cqx_ep-->  not pending
 *   armed + pending: a CQE raises nothing and the arm is kept; the handler
 *   that clears cqx_ep polls afterwards, so nothing is missed.
 */
#include "internal.h"

uint64_t ehca_cq_read_reg(EhcaCqRegs *regs, unsigned offset)
{
    uint32_t entries = atomic_load(&regs->entries);
    uint32_t used = atomic_load(&regs->used);
    uint32_t flags = atomic_load(&regs->flags);

    switch (offset) {
    case EHCA_CQX_FEC:
        return used < entries ? entries - used : 0;
    case EHCA_CQX_EP:
        return !!(flags & EHCA_CQ_PENDING);
    case EHCA_CQX_N0:
        return flags & EHCA_CQ_ARMED_SOLICITED ? EHCA_CQX_ARM : 0;
    case EHCA_CQX_N1:
        return flags & EHCA_CQ_ARMED_ANY ? EHCA_CQX_ARM : 0;
    default:
        return 0;
    }
}

void ehca_cq_write_reg(EhcaAdapter *a, EhcaCqRegs *regs, unsigned offset,
                       uint64_t value)
{
    uint32_t count = value & EHCA_CQX_FEC_MASK;
    uint32_t used;
    uint64_t seen, consumed;

    switch (offset) {
    case EHCA_CQX_FECA:
        /* More than there is cannot have been consumed: down to none. */
        used = atomic_load(&regs->used);
        while (!atomic_compare_exchange_weak(&regs->used, &used,
                                             used > count ? used - count
                                                          : 0)) {
        }
        break;
    case EHCA_CQX_EP:
        seen = atomic_load(&regs->eqe_after);
        consumed = atomic_load(&a->eq.consumed);
        while (seen > consumed &&
               !atomic_compare_exchange_weak(&a->eq.consumed, &consumed,
                                             seen)) {
        }
        atomic_fetch_and(&regs->flags, ~(uint32_t)EHCA_CQ_PENDING);
        break;
    case EHCA_CQX_N0:
        if (value & EHCA_CQX_ARM) {
            atomic_fetch_or(&regs->flags, EHCA_CQ_ARMED_SOLICITED);
        }
        break;
    case EHCA_CQX_N1:
        if (value & EHCA_CQX_ARM) {
            atomic_fetch_or(&regs->flags, EHCA_CQ_ARMED_ANY);
        }
        break;
    default:
        break;
    }
}

static void raise_event(EhcaAdapter *a, EhcaCq *cq, bool solicited)
{
    uint32_t match = EHCA_CQ_ARMED_ANY |
                     (solicited ? EHCA_CQ_ARMED_SOLICITED : 0);
    uint32_t flags;

    atomic_thread_fence(memory_order_seq_cst);
    flags = atomic_load(&cq->regs->flags);
    do {
        if (!(flags & match) || flags & EHCA_CQ_PENDING) {
            return;
        }
    } while (!atomic_compare_exchange_weak(&cq->regs->flags, &flags,
                                           EHCA_CQ_PENDING));
    ehca_eq_completion(a, cq);
}

static bool cq_fail(EhcaQp *qp, EhcaCq *cq)
{
    EhcaAdapter *a = qp->adapter;

    cq->lost++;
    if (!cq->error) {
        cq->error = true;
        ehca_guest_error(a, "CQ 0x%llx (token 0x%x): completion of QP 0x%x "
            "found all %u entries used; the CQ is in error, free it",
            (unsigned long long)cq->handle, cq->token, qp->qpn,
            cq->queue.entries);
        ehca_eq_cq_event(a, cq, EHCA_EQE_CQ_ERR);
    }
    return false;
}

bool ehca_cq_post(EhcaQp *qp, EhcaCq *cq, const EhcaCompletion *c)
{
    EhcaAdapter *a = qp->adapter;
    uint8_t cqe[EHCA_CQE_SIZE] = { 0 };
    uint64_t addr;

    if (!cq || cq->error || cq->queue.registered != cq->queue.num_pages ||
        atomic_load(&cq->regs->used) >= cq->queue.entries) {
        return cq ? cq_fail(qp, cq) : false;
    }
    ib_put64(cqe + EHCA_CQE_ID, c->wr_id);
    cqe[EHCA_CQE_OPTYPE] = c->optype;
    cqe[EHCA_CQE_FLAGS] = c->flags |
                          (c->solicited ? EHCA_CQE_FLAG_SOLICITED : 0);
    ib_put32(cqe + EHCA_CQE_BYTES, c->bytes);
    ib_put32(cqe + EHCA_CQE_IMM, c->imm);
    ib_put32(cqe + EHCA_CQE_LOCAL_QPN, qp->qpn);
    cqe[EHCA_CQE_SL] = c->service_level;
    ib_put32(cqe + EHCA_CQE_QP_TOKEN, qp->token);
    ib_put32(cqe + EHCA_CQE_REMOTE_QPN, c->remote_qpn);
    ib_put16(cqe + EHCA_CQE_DLID, c->path_bits);
    ib_put16(cqe + EHCA_CQE_RLID, c->rlid);
    ib_put16(cqe + EHCA_CQE_PKEY_INDEX, c->pkey_index);
    cqe[EHCA_CQE_VALID] = cq->toggle ? EHCA_CQE_VALID_BIT : 0;
    ib_put32(cqe + EHCA_CQE_STATUS, c->status);

    /* All but the last doubleword first: it holds the valid bit (13.2). */
    addr = ehca_queue_addr(&cq->queue, cq->producer);
    if (!a->ops.dma_write(a->opaque, addr, cqe, EHCA_CQE_SIZE - 8)) {
        return cq_fail(qp, cq);
    }
    /* Used before valid: the guest may give it back at once. */
    atomic_fetch_add(&cq->regs->used, 1);
    a->ops.dma_store64(a->opaque, addr + EHCA_CQE_SIZE - 8,
                       ib_get64(cqe + EHCA_CQE_SIZE - 8));
    if (++cq->producer == cq->queue.entries) {
        cq->producer = 0;
        cq->toggle = !cq->toggle;
    }
    cq->cqes++;
    qp->stats.cqes++;
    raise_event(a, cq, c->solicited || c->status);
    return true;
}
