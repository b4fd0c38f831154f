/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Event queue and notification event queue (interface section 14).
 *
 * Theory of operation: an entry is one 8-byte store whose top bit toggles
 * with each pass; the guest reports no consumer index.  What it must have
 * seen is deduced, so that an entry it has not seen is never overwritten:
 *   EQ   a store to cqx_ep says that the completion event of that CQ was
 *        read; a call of H_QUERY_INT_STATE says that everything which was
 *        there at the call before was read (the driver drains in between)
 *   NEQ  the same with H_RESET_EVENTS
 * An event that finds no room is dropped and counted.  As each call tells of
 * the drain before it, a queue that is full at a call gets one more interrupt:
 * without it no event would come, and so no call either.
 */
#include "internal.h"

static bool eq_ready(const EhcaEq *eq)
{
    return eq->kind != EHCA_KIND_NONE &&
           eq->queue.registered == eq->queue.num_pages;
}

static bool eq_full(const EhcaEq *eq)
{
    uint64_t consumed = atomic_load(&eq->consumed);

    /* Beyond produced: a store to the page of a CQ of the EQ before this. */
    return consumed < eq->produced &&
           eq->produced - consumed >= eq->queue.entries;
}

static void eq_interrupt(EhcaAdapter *a, const EhcaEq *eq)
{
    atomic_fetch_or(&a->irqs, eq->kind == EHCA_KIND_EQ ? EHCA_IRQ_EQ
                                                       : EHCA_IRQ_NEQ);
}

/* @entry without its valid bit. */
static bool eq_put(EhcaAdapter *a, EhcaEq *eq, uint64_t entry)
{
    uint32_t entries = eq->queue.entries;

    if (!eq_ready(eq)) {
        return false;
    }
    if (eq_full(eq)) {
        if (eq->overflows++ == 0) {
            ehca_guest_error(a, "%s: all %u entries wait for the guest; event "
                             "0x%016llx dropped", ehca_kind_name(eq->kind),
                             entries, (unsigned long long)entry);
        }
        return false;
    }
    if ((eq->produced / entries & 1) == 0) {
        entry |= EHCA_EQE_VALID;
    }
    if (!a->ops.dma_store64(a->opaque,
                            ehca_queue_addr(&eq->queue,
                                            eq->produced % entries), entry)) {
        eq->overflows++;
        return false;
    }
    eq->produced++;
    eq_interrupt(a, eq);
    return true;
}

/* The guest has drained the queue once more. */
void ehca_eq_ack(EhcaAdapter *a, EhcaEq *eq)
{
    if (eq->produced_at_ack > atomic_load(&eq->consumed)) {
        atomic_store(&eq->consumed, eq->produced_at_ack);
    }
    eq->produced_at_ack = eq->produced;
    if (eq_ready(eq) && eq_full(eq)) {
        eq_interrupt(a, eq);
    }
}

/*
 * A CQE was written: does it raise an event?  The CQE is visible before the
 * flags are read, the guest arms before it looks for CQEs: one of the two
 * sees the other (14.3).
 */
void ehca_eq_completion(EhcaAdapter *a, EhcaCq *cq)
{
    uint64_t entry = EHCA_EQE_COMPLETION |
        (cq->handle & 0xFFFF) << EHCA_EQE_NUMBER_SHIFT | cq->token;

    if (eq_put(a, &a->eq, entry)) {
        cq->events++;
        atomic_store(&cq->regs->eqe_after, a->eq.produced);
    } else {
        /* Not told: the CQ is as armed as it was. */
        atomic_fetch_and(&cq->regs->flags, ~(uint32_t)EHCA_CQ_PENDING);
        atomic_fetch_or(&cq->regs->flags, EHCA_CQ_ARMED_ANY);
    }
}

void ehca_eq_cq_event(EhcaAdapter *a, EhcaCq *cq, unsigned id)
{
    eq_put(a, &a->eq, (uint64_t)id << EHCA_EQE_ID_SHIFT |
           (cq->handle & 0xFFFF) << EHCA_EQE_NUMBER_SHIFT | cq->token);
}

void ehca_eq_qp_event(EhcaQp *qp, unsigned id)
{
    eq_put(qp->adapter, &qp->adapter->eq,
           (uint64_t)id << EHCA_EQE_ID_SHIFT |
           (uint64_t)qp->qpn << EHCA_EQE_NUMBER_SHIFT | qp->token);
}

void ehca_neq_port(EhcaPort *port, unsigned code, uint64_t detail)
{
    if (!port->gsi) {
        return;                        /* 14.4: it would crash the guest */
    }
    eq_put(port->adapter, &port->adapter->neq,
           (uint64_t)code << EHCA_EQE_ID_SHIFT |
           (uint64_t)port->number << EHCA_NEQE_PORT_SHIFT | detail);
}
