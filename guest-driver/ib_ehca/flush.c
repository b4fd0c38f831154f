// SPDX-License-Identifier: GPL-2.0
/*
 * Flushed completions (doc 8.8, 20; IBTA vol 1, chapter 10.3.1).
 *
 * Theory of operation
 * -------------------
 *
 * Goal: each posted work request gets exactly one completion (an unsignalled
 * one that succeeds none), in the order of posting, whatever happens to its
 * QP.  The MAD layer and ib_drain_qp() rely on it.
 *
 * The adapter completes what it worked on, writes one error completion for
 * the request that failed, and stops.  The rest is made here, when the
 * consumer polls.  A work queue is on its CQ's flush_list while it has, or
 * may yet get, requests to flush:
 *
 *  - flush_open: the QP is in ERR, or its send queue in SQE.  All requests
 *    from flush_from on, later posted ones too, are flushed.  Posting rings
 *    no doorbell then but makes the CQ's handler run.
 *  - slots marked EHCA_SLOT_FLUSH: requests caught in a send queue that went
 *    from SQE back to RTS.
 *
 * Who starts it: an error completion (cq.c), a modify to ERR, a QP error
 * event (qp.c).  Entering ERR we ask the adapter which request of each queue
 * is the first it will not complete (H_DISABLE_AND_GETC); those before it
 * have their completions in the CQ already, and flushing starts when these
 * are polled.  Should the adapter be wrong about that, the queue is flushed
 * when the CQ is empty: nothing is ever left without completion.
 *
 * SQE to RTS of a UD queue (doc 20.3).  The adapter kept its place at the
 * failed request and takes it up again, so all requests from there on are
 * made void ("purge") first and announced again after the modify.  It
 * answers each with a purged completion, which cq.c drops: for consumers
 * they were flushed here.
 *
 * Ends with RESET or destroy, which also clear the CQ of the QP's entries.
 */
#include "ehca.h"

static struct ehca_slot *ehca_wq_slot(struct ehca_wq *wq, u64 ahead)
{
	return &wq->slot[(wq->tail_idx + ahead) % wq->nr];
}

/*
 * How far from the tail is the next request to flush, or -1 if none is to be
 * flushed now.  cq->lock and cq->flush_lock held.
 */
static s64 ehca_wq_next_flush(struct ehca_wq *wq, bool drained)
{
	/* pairs with the release in ehca_wq_push() */
	u64 n = smp_load_acquire(&wq->head) - wq->tail;
	struct ehca_slot *slot;
	u64 i;

	for (i = 0; i < n; i++) {
		slot = ehca_wq_slot(wq, i);
		if (slot->flags & EHCA_SLOT_FLUSH)
			return i;
		if (wq->flush_open && wq->tail + i >= wq->flush_from)
			return i;
		if (!(slot->flags & EHCA_SLOT_SIGNALED))
			continue;	/* succeeded, no completion */
		/* its own completion comes first */
		if (!wq->flush_open || !drained)
			return -1;
		if (!wq->qp->srq)
			dev_warn_ratelimited(&wq->qp->dev->pdev->dev,
					     "QP %#x: no completion for a %s request the adapter says it completed; flushing it\n",
					     wq->qp->real_qpn, wq->is_send ?
					     "send" : "receive");
		wq->flush_from = wq->tail + i;
		return i;
	}
	return -1;
}

static int ehca_wq_flush(struct ehca_wq *wq, int num, struct ib_wc *wc,
			 bool drained)
{
	struct ehca_slot *slot;
	int n = 0;
	s64 ahead;

	while (n < num) {
		ahead = ehca_wq_next_flush(wq, drained);
		if (ahead < 0)
			break;
		slot = ehca_wq_slot(wq, ahead);
		if (slot->flags & EHCA_SLOT_FLUSH) {
			slot->flags &= ~EHCA_SLOT_FLUSH;
			wq->flush_marked--;
		}
		memset(&wc[n], 0, sizeof(wc[n]));
		wc[n].wr_id = slot->wr_id;
		wc[n].status = IB_WC_WR_FLUSH_ERR;
		wc[n].opcode = slot->opcode;
		wc[n].vendor_err = EHCA_CQE_CODE_FLUSH;
		wc[n].qp = &wq->qp->ibqp;
		wc[n].port_num = wq->qp->port;
		n++;
		wq->tail_idx = (wq->tail_idx + ahead + 1) % wq->nr;
		WRITE_ONCE(wq->tail, wq->tail + ahead + 1);
		ehca_stat(wq->qp->dev, EHCA_STAT_FLUSHED);
	}
	return n;
}

/*
 * Flushed completions of this CQ that are due; @drained: it has no real ones
 * left.  cq->lock held.
 */
int ehca_flush_poll(struct ehca_cq *cq, int num, struct ib_wc *wc,
		    bool drained)
{
	struct ehca_wq *wq, *tmp;
	int n = 0;

	if (list_empty_careful(&cq->flush_list))
		return 0;
	spin_lock(&cq->flush_lock);
	list_for_each_entry_safe(wq, tmp, &cq->flush_list, flush_entry) {
		n += ehca_wq_flush(wq, num - n, wc + n, drained);
		if (!wq->flush_open && !wq->flush_marked) {
			list_del_init(&wq->flush_entry);
			wq->flushing = false;
		}
	}
	spin_unlock(&cq->flush_lock);
	return n;
}

/* Would a poll return flushed completions?  cq->lock held. */
bool ehca_flush_pending(struct ehca_cq *cq, bool drained)
{
	struct ehca_wq *wq;
	bool pending = false;

	if (list_empty_careful(&cq->flush_list))
		return false;
	spin_lock(&cq->flush_lock);
	list_for_each_entry(wq, &cq->flush_list, flush_entry) {
		if (ehca_wq_next_flush(wq, drained) >= 0) {
			pending = true;
			break;
		}
	}
	spin_unlock(&cq->flush_lock);
	return pending;
}

static void ehca_wq_flush_list_add(struct ehca_wq *wq)
{
	if (!wq->flushing) {
		wq->flushing = true;
		list_add_tail(&wq->flush_entry, &wq->cq->flush_list);
	}
}

/* Flush all requests from @from on, and let the consumer come for them. */
static void ehca_wq_flush_start(struct ehca_wq *wq, u64 from)
{
	struct ehca_cq *cq = wq->cq;
	unsigned long flags;

	spin_lock_irqsave(&cq->flush_lock, flags);
	spin_lock(&wq->lock);
	if (!wq->flush_open) {
		wq->flush_open = true;
		wq->flush_from = from;
	}
	spin_unlock(&wq->lock);
	ehca_wq_flush_list_add(wq);
	spin_unlock_irqrestore(&cq->flush_lock, flags);
	ehca_cq_kick(cq);
}

/*
 * Number of requests posted from the WQE at a real address to the head, or
 * -1 if the address is no WQE of this queue.  wq->lock held.
 */
static s64 ehca_wq_behind(struct ehca_wq *wq, u64 addr)
{
	int off = ehca_queue_offset(&wq->q, addr);
	u32 idx;

	if (off < 0 || off % wq->stride)
		return -1;
	idx = off / wq->stride;
	if (idx >= wq->nr)
		return -1;
	return (wq->head_idx + wq->nr - idx) % wq->nr;
}

/* Counter of the first request the adapter will not complete */
static u64 ehca_wq_unprocessed(struct ehca_wq *wq, long rc, u64 addr)
{
	unsigned long flags;
	u64 from;
	s64 n;

	spin_lock_irqsave(&wq->lock, flags);
	n = rc ? -1 : ehca_wq_behind(wq, addr);
	/* if unknown: all have completions, until the CQ is found empty */
	from = n < 0 || n > wq->head ? wq->head : wq->head - n;
	spin_unlock_irqrestore(&wq->lock, flags);
	return from;
}

/* Where the adapter stopped working on the queues of a QP in ERR */
struct ehca_stop {
	long rc;
	u64 sq_addr, rq_addr;
};

/*
 * For QPs that use an SRQ the adapter cannot be asked (doc 8.8), and receives
 * are not theirs.
 */
static void ehca_qp_ask_stop(struct ehca_qp *qp, struct ehca_stop *stop,
			     unsigned int flags)
{
	stop->rc = EHCA_RC_R_STATE;
	stop->sq_addr = 0;
	stop->rq_addr = 0;
	if (!qp->srq)
		stop->rc = ehca_h_getc(qp->dev, qp->handle, EHCA_GETC_ERR,
				       &stop->sq_addr, &stop->rq_addr, flags);
}

/*
 * The QP is in ERR: flush both queues.  @was_sqe: the adapter's place is at a
 * request that has its error completion already.
 */
static void ehca_qp_flush(struct ehca_qp *qp, const struct ehca_stop *stop,
			  bool was_sqe)
{
	u64 from = ehca_wq_unprocessed(&qp->sq, stop->rc, stop->sq_addr);

	WRITE_ONCE(qp->state, IB_QPS_ERR);
	ehca_wq_flush_start(&qp->sq, from + (was_sqe && !stop->rc));
	if (!qp->srq)
		ehca_wq_flush_start(&qp->rq,
				    ehca_wq_unprocessed(&qp->rq, stop->rc,
							stop->rq_addr));
}

/* The consumer moved the QP to ERR; qp->mutex held. */
void ehca_qp_enter_err(struct ehca_qp *qp, bool was_sqe)
{
	struct ehca_stop stop;
	unsigned long flags;

	ehca_qp_ask_stop(qp, &stop, 0);
	spin_lock_irqsave(&qp->err_lock, flags);
	ehca_qp_flush(qp, &stop, was_sqe);
	spin_unlock_irqrestore(&qp->err_lock, flags);
}

/*
 * A completion or an event says that the QP went to ERR by itself.  Unless it
 * was reset since: @epoch is that of its send queue when that was seen.
 */
void ehca_qp_found_err(struct ehca_qp *qp, u16 epoch)
{
	struct ehca_stop stop;
	unsigned long flags;

	ehca_qp_ask_stop(qp, &stop, EHCA_CALL_ATOMIC);
	spin_lock_irqsave(&qp->err_lock, flags);
	if (qp->state != IB_QPS_RESET && READ_ONCE(qp->sq.epoch) == epoch)
		ehca_qp_flush(qp, &stop, false);
	spin_unlock_irqrestore(&qp->err_lock, flags);
}

/*
 * The error completion just polled put the send queue of a UD QP into SQE;
 * receiving goes on.  The consumer may have recovered or reset the QP before
 * it polled: then nothing is left to do.  cq->lock held.
 */
void ehca_qp_found_sqe(struct ehca_qp *qp)
{
	unsigned long flags;

	if (qp->sq.tail <= READ_ONCE(qp->sq.recovered))
		return;
	spin_lock_irqsave(&qp->err_lock, flags);
	if (qp->state != IB_QPS_RESET) {
		WRITE_ONCE(qp->state, IB_QPS_SQE);
		ehca_wq_flush_start(&qp->sq, qp->sq.tail);
	}
	spin_unlock_irqrestore(&qp->err_lock, flags);
}

/*
 * RESET or destroy begins: what is polled of one queue meanwhile must not put
 * the other, which is reset already, on its CQ's flush list again.
 */
void ehca_qp_begin_reset(struct ehca_qp *qp)
{
	unsigned long flags;

	spin_lock_irqsave(&qp->err_lock, flags);
	WRITE_ONCE(qp->state, IB_QPS_RESET);
	spin_unlock_irqrestore(&qp->err_lock, flags);
}

/* Make the @n last posted requests void.  All locks of the queue held. */
static void ehca_wq_purge(struct ehca_wq *wq, u64 n)
{
	u64 first = wq->head - n;
	u64 i;

	for (i = 0; i < n; i++) {
		u32 idx = (wq->head_idx + wq->nr - (n - i)) % wq->nr;
		void *wqe = wq->q.va + (size_t)idx * wq->stride;
		struct ehca_slot *slot = &wq->slot[idx];

		put8(wqe, EHCA_WQE_NR_SGES, 0);
		put8(wqe, EHCA_WQE_WQEF, EHCA_WQEF_PURGE);
		if (first + i >= wq->flush_from && first + i >= wq->tail &&
		    !(slot->flags & EHCA_SLOT_FLUSH)) {
			slot->flags |= EHCA_SLOT_FLUSH;
			wq->flush_marked++;
		}
	}
}

static void ehca_wq_lock_all(struct ehca_wq *wq, unsigned long *flags)
	__acquires(&wq->cq->lock) __acquires(&wq->cq->flush_lock)
	__acquires(&wq->lock)
{
	spin_lock_irqsave(&wq->cq->lock, *flags);
	spin_lock(&wq->cq->flush_lock);
	spin_lock(&wq->lock);
}

static void ehca_wq_unlock_all(struct ehca_wq *wq, unsigned long flags)
	__releases(&wq->cq->lock) __releases(&wq->cq->flush_lock)
	__releases(&wq->lock)
{
	spin_unlock(&wq->lock);
	spin_unlock(&wq->cq->flush_lock);
	spin_unlock_irqrestore(&wq->cq->lock, flags);
}

/*
 * Before the modify from SQE to RTS: void all requests from the failed one
 * on.  @from: its counter, for ehca_qp_sqe_done().
 */
int ehca_qp_sqe_purge(struct ehca_qp *qp, u64 *from)
{
	struct ehca_wq *wq = &qp->sq;
	unsigned long flags;
	u64 addr;
	long rc;
	s64 n;

	rc = ehca_h_getc(qp->dev, qp->handle, EHCA_GETC_SQE, &addr, NULL, 0);
	if (rc)
		return ehca_rc_to_errno(rc) ?: -EIO;

	ehca_wq_lock_all(wq, &flags);
	n = ehca_wq_behind(wq, addr);
	if (n >= 0 && n <= wq->head) {
		*from = wq->head - n;
		if (!wq->flush_open) {
			/* its error completion was not polled yet */
			wq->flush_open = true;
			wq->flush_from = *from + 1;
			ehca_wq_flush_list_add(wq);
		}
		ehca_wq_purge(wq, n);
	} else {
		n = -1;
	}
	ehca_wq_unlock_all(wq, flags);
	if (n < 0) {
		dev_err(&qp->dev->pdev->dev,
			"QP %#x: the failed request at %#llx is not in its send queue; reset the QP\n",
			qp->real_qpn, addr);
		return -EFAULT;
	}
	return 0;
}

/*
 * After it: void what was posted meanwhile, and announce all again.  The
 * adapter has taken up the failed one itself.
 */
void ehca_qp_sqe_done(struct ehca_qp *qp, u64 from)
{
	struct ehca_wq *wq = &qp->sq;
	unsigned long flags;
	u64 n;

	ehca_wq_lock_all(wq, &flags);
	n = wq->head - from;
	ehca_wq_purge(wq, n);
	wq->flush_open = false;
	wq->recovered = wq->head;
	if (n > 1)
		ehca_reg_write(qp->regs, EHCA_QPX_SQA, n - 1);
	ehca_wq_unlock_all(wq, flags);
	ehca_cq_kick(wq->cq);
}

/* To RESET, or before destroy: nothing of this queue remains. */
void ehca_wq_reset(struct ehca_wq *wq)
{
	unsigned long flags;

	ehca_wq_lock_all(wq, &flags);
	ehca_cq_clean(wq->cq, wq->qp);
	if (wq->flushing)
		list_del_init(&wq->flush_entry);
	wq->flushing = false;
	wq->flush_open = false;
	wq->flush_marked = 0;
	wq->recovered = 0;
	wq->head = 0;
	wq->tail = 0;
	wq->head_idx = 0;
	wq->tail_idx = 0;
	WRITE_ONCE(wq->epoch, wq->epoch + 1);
	ehca_wq_unlock_all(wq, flags);
}
