// SPDX-License-Identifier: GPL-2.0
/*
 * Completion queues (doc 5.2, 12, 13, 16).
 *
 * Theory of operation.  A CQE is ours when its valid bit has the value of
 * the current pass through the ring.  It names a QP by token and echoes the
 * work request id, into which we put the ring index and the epoch of the
 * work queue (wr.c): everything else is looked up.  CQEs come in ring order,
 * so one for slot i also ends the unsignalled requests before it.  A CQE
 * that fits no outstanding request (its QP was reset or destroyed, or the
 * adapter repeats itself) is dropped and counted.
 *
 * Consumed CQEs are returned to the adapter in batches: a CQ has more spare
 * entries than we ever keep back, and each store to a register is dear.
 *
 * An error CQE stops its QP; flush.c makes the rest.  Flushed completions
 * of a work queue follow when its last real one was polled.
 */
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "ehca.h"

static const struct {
	u8 code;
	enum ib_wc_status status;
} ehca_cqe_codes[] = {
	{ EHCA_CQE_CODE_LOC_LEN,		IB_WC_LOC_LEN_ERR },
	{ EHCA_CQE_CODE_LOC_LEN_2,		IB_WC_LOC_LEN_ERR },
	{ EHCA_CQE_CODE_LOC_QP_OP,		IB_WC_LOC_QP_OP_ERR },
	{ EHCA_CQE_CODE_LOC_QP_OP_2,		IB_WC_LOC_QP_OP_ERR },
	{ EHCA_CQE_CODE_LOC_EEC_OP,		IB_WC_LOC_EEC_OP_ERR },
	{ EHCA_CQE_CODE_LOC_EEC_OP_2,		IB_WC_LOC_EEC_OP_ERR },
	{ EHCA_CQE_CODE_LOC_PROT,		IB_WC_LOC_PROT_ERR },
	{ EHCA_CQE_CODE_LOC_PROT_2,		IB_WC_LOC_PROT_ERR },
	{ EHCA_CQE_CODE_FLUSH,			IB_WC_WR_FLUSH_ERR },
	{ EHCA_CQE_CODE_FLUSH_2,		IB_WC_WR_FLUSH_ERR },
	{ EHCA_CQE_CODE_MW_BIND,		IB_WC_MW_BIND_ERR },
	{ EHCA_CQE_CODE_RETRY_EXC,		IB_WC_RETRY_EXC_ERR },
	{ EHCA_CQE_CODE_RNR_RETRY_EXC,		IB_WC_RNR_RETRY_EXC_ERR },
	{ EHCA_CQE_CODE_REM_ABORT,		IB_WC_REM_ABORT_ERR },
	{ EHCA_CQE_CODE_REM_ABORT_2,		IB_WC_REM_ABORT_ERR },
	{ EHCA_CQE_CODE_INV_EECN,		IB_WC_INV_EECN_ERR },
	{ EHCA_CQE_CODE_INV_EECN_2,		IB_WC_INV_EECN_ERR },
	{ EHCA_CQE_CODE_INV_EEC_STATE,		IB_WC_INV_EEC_STATE_ERR },
	{ EHCA_CQE_CODE_INV_EEC_STATE_2,	IB_WC_INV_EEC_STATE_ERR },
	{ EHCA_CQE_CODE_BAD_RESP,		IB_WC_BAD_RESP_ERR },
};

/* doc 16.4 */
static enum ib_wc_status ehca_wc_status(u32 status)
{
	u8 code = status & EHCA_CQE_STATUS_CODE_MASK;
	unsigned int i;

	if (code == EHCA_CQE_CODE_REMOTE) {
		switch (status >> EHCA_CQE_STATUS_SUBCODE_SHIFT &
			EHCA_CQE_STATUS_SUBCODE_MASK) {
		case EHCA_CQE_SUBCODE_REM_INV_REQ:
			return IB_WC_REM_INV_REQ_ERR;
		case EHCA_CQE_SUBCODE_REM_ACCESS:
			return IB_WC_REM_ACCESS_ERR;
		case EHCA_CQE_SUBCODE_REM_OP:
			return IB_WC_REM_OP_ERR;
		case EHCA_CQE_SUBCODE_REM_INV_RD_REQ:
			return IB_WC_REM_INV_RD_REQ_ERR;
		default:
			return IB_WC_GENERAL_ERR;
		}
	}
	for (i = 0; i < ARRAY_SIZE(ehca_cqe_codes); i++) {
		if (ehca_cqe_codes[i].code == code)
			return ehca_cqe_codes[i].status;
	}
	return IB_WC_FATAL_ERR;
}

static const void *ehca_cqe(struct ehca_cq *cq, u32 idx)
{
	return cq->q.va + (size_t)idx * EHCA_CQE_SIZE;
}

static bool ehca_cqe_valid(struct ehca_cq *cq)
{
	const u8 *flags = ehca_cqe(cq, cq->idx) + EHCA_CQE_VALID;

	return !!(READ_ONCE(*flags) & EHCA_CQE_VALID_BIT) == cq->toggle;
}

/*
 * Take up to the request a CQE completes: returns its slot, or NULL if the
 * CQE fits none.  cq->lock held.
 */
static struct ehca_slot *ehca_wq_complete(struct ehca_wq *wq, u64 id)
{
	u32 idx = id & EHCA_WQE_ID_INDEX_MASK;
	/* pairs with the release in ehca_wq_push() */
	u64 head = smp_load_acquire(&wq->head);
	u32 ahead;

	if (idx >= wq->nr || (u16)(id >> 16) != wq->epoch)
		return NULL;
	ahead = (idx + wq->nr - wq->tail_idx) % wq->nr;
	if (ahead >= head - wq->tail)
		return NULL;
	wq->tail_idx = (idx + 1) % wq->nr;
	WRITE_ONCE(wq->tail, wq->tail + ahead + 1);
	return &wq->slot[idx];
}

/* Turn one CQE into a work completion; false if it is to be dropped. */
static bool ehca_cqe_to_wc(struct ehca_cq *cq, const void *cqe,
			   struct ib_wc *wc)
{
	struct ehca_dev *dev = cq->dev;
	u32 status = get32(cqe, EHCA_CQE_STATUS);
	u8 flags = get8(cqe, EHCA_CQE_FLAGS);
	u8 optype = get8(cqe, EHCA_CQE_OPTYPE);
	bool recv = flags & EHCA_CQE_FLAG_RECV;
	struct ehca_slot *slot;
	struct ehca_qp *qp;
	struct ehca_wq *wq;
	u64 wr_id;

	/* destroy takes cq->lock before the token goes: qp stays valid */
	qp = xa_load(&dev->qps, get32(cqe, EHCA_CQE_QP_TOKEN));
	if (!qp)
		goto stale;
	if (READ_ONCE(qp->dying)) {
		/* nobody's completion, but the SRQ's slot is free again */
		if (recv && qp->srq)
			ehca_srq_complete(qp->srq, get64(cqe, EHCA_CQE_ID),
					  &wr_id);
		goto stale;
	}
	wq = recv ? &qp->rq : &qp->sq;
	/* work requests purged on SQE to RTS were flushed here (flush.c) */
	if (status & EHCA_CQE_STATUS_PURGE) {
		ehca_stat(dev, EHCA_STAT_CQE_PURGED);
		return false;
	}
	if (wq->cq != cq)
		goto stale;
	memset(wc, 0, sizeof(*wc));
	if (recv && qp->srq) {
		if (!ehca_srq_complete(qp->srq, get64(cqe, EHCA_CQE_ID),
				       &wc->wr_id))
			goto stale;
		wc->opcode = IB_WC_RECV;
	} else {
		slot = ehca_wq_complete(wq, get64(cqe, EHCA_CQE_ID));
		if (!slot)
			goto stale;
		wc->wr_id = slot->wr_id;
		wc->opcode = slot->opcode;
	}
	wc->qp = &qp->ibqp;
	if (recv && optype == EHCA_CQE_OPTYPE_RECV_RDMA_IMM)
		wc->opcode = IB_WC_RECV_RDMA_WITH_IMM;
	wc->byte_len = get32(cqe, EHCA_CQE_BYTES);
	if (flags & EHCA_CQE_FLAG_IMM) {
		wc->wc_flags |= IB_WC_WITH_IMM;
		memcpy(&wc->ex.imm_data, cqe + EHCA_CQE_IMM, 4);
	}
	if (flags & EHCA_CQE_FLAG_GRH)
		wc->wc_flags |= IB_WC_GRH;
	wc->src_qp = get32(cqe, EHCA_CQE_REMOTE_QPN) & EHCA_QPN_MASK;
	wc->pkey_index = get16(cqe, EHCA_CQE_PKEY_INDEX);
	wc->slid = get16(cqe, EHCA_CQE_RLID);
	wc->sl = get8(cqe, EHCA_CQE_SL);
	wc->dlid_path_bits = get16(cqe, EHCA_CQE_DLID);
	wc->port_num = qp->port;

	if (!(status & EHCA_CQE_STATUS_ERROR))
		return true;

	wc->status = ehca_wc_status(status);
	wc->vendor_err = status & ~EHCA_CQE_STATUS_ERROR;
	ehca_stat(dev, EHCA_STAT_CQE_ERROR);
	if (wc->status == IB_WC_WR_FLUSH_ERR)
		return true;
	if (!recv && ehca_qp_is_ud(qp))
		ehca_qp_found_sqe(qp);
	else
		ehca_qp_found_err(qp, READ_ONCE(qp->sq.epoch));
	return true;

stale:
	ehca_stat(dev, EHCA_STAT_CQE_STALE);
	return false;
}

static_assert(EHCA_CQ_RETURN_BATCH < EHCA_CQ_SPARE_ENTRIES);

int ehca_poll_cq(struct ib_cq *ibcq, int num, struct ib_wc *wc)
{
	struct ehca_cq *cq = to_ecq(ibcq);
	bool drained = false;
	unsigned long flags;
	u32 consumed = 0;
	int n = 0;

	spin_lock_irqsave(&cq->lock, flags);
	for (;;) {
		const void *cqe;

		/* flushed ones are due before what was posted after them */
		n += ehca_flush_poll(cq, num - n, wc + n, false);
		if (n >= num)
			break;
		if (!ehca_cqe_valid(cq)) {
			drained = true;
			break;
		}
		dma_rmb();	/* valid bit before the rest */
		cqe = ehca_cqe(cq, cq->idx);
		if (++cq->idx == cq->entries) {
			cq->idx = 0;
			cq->toggle = !cq->toggle;
		}
		consumed++;
		if (ehca_cqe_to_wc(cq, cqe, wc + n))
			n++;
	}
	if (drained && n < num)
		n += ehca_flush_poll(cq, num - n, wc + n, true);
	cq->unreturned += consumed;
	if (cq->unreturned >= EHCA_CQ_RETURN_BATCH) {
		ehca_reg_write(cq->regs, EHCA_CQX_FECA, cq->unreturned);
		cq->unreturned = 0;
	}
	spin_unlock_irqrestore(&cq->lock, flags);
	return n;
}

int ehca_req_notify_cq(struct ib_cq *ibcq, enum ib_cq_notify_flags flags)
{
	struct ehca_cq *cq = to_ecq(ibcq);
	unsigned int reg = (flags & IB_CQ_SOLICITED_MASK) == IB_CQ_SOLICITED ?
			   EHCA_CQX_N0 : EHCA_CQX_N1;
	unsigned long irqflags;
	int ret = 0;

	spin_lock_irqsave(&cq->lock, irqflags);
	WRITE_ONCE(cq->armed, true);
	ehca_reg_write(cq->regs, reg, EHCA_CQX_ARM);
	ehca_reg_read(cq->regs, reg);
	/* pairs with the barrier in ehca_cq_kick() */
	smp_mb();
	if ((flags & IB_CQ_REPORT_MISSED_EVENTS) &&
	    (ehca_cqe_valid(cq) || ehca_flush_pending(cq, true)))
		ret = 1;
	spin_unlock_irqrestore(&cq->lock, irqflags);
	return ret;
}

/* Call the consumer; tasklet context */
void ehca_cq_complete(struct ehca_cq *cq)
{
	WRITE_ONCE(cq->armed, false);
	if (cq->ibcq.comp_handler)
		cq->ibcq.comp_handler(&cq->ibcq, cq->ibcq.cq_context);
}

/*
 * Forget the CQEs of a QP that is reset or destroyed: give them a token no
 * QP has, as its own may be used again.  cq->lock held; the adapter has
 * stopped writing for this QP.
 */
void ehca_cq_clean(struct ehca_cq *cq, struct ehca_qp *qp)
{
	bool toggle = cq->toggle;
	u32 idx = cq->idx;
	u64 wr_id;
	u32 i;

	for (i = 0; i < cq->entries; i++) {
		u8 *cqe = cq->q.va + (size_t)idx * EHCA_CQE_SIZE;

		if (!!(READ_ONCE(cqe[EHCA_CQE_VALID]) & EHCA_CQE_VALID_BIT) !=
		    toggle)
			break;
		dma_rmb();
		if (get32(cqe, EHCA_CQE_QP_TOKEN) == qp->token) {
			/* the SRQ's slot is free again */
			if (qp->srq && cqe[EHCA_CQE_FLAGS] &
			    EHCA_CQE_FLAG_RECV)
				ehca_srq_complete(qp->srq,
						  get64(cqe, EHCA_CQE_ID),
						  &wr_id);
			put32(cqe, EHCA_CQE_QP_TOKEN, ~0U);
		}
		if (++idx == cq->entries) {
			idx = 0;
			toggle = !toggle;
		}
	}
}

struct ehca_cq *ehca_cq_get(struct ehca_dev *dev, u32 token)
{
	struct ehca_cq *cq;
	unsigned long flags;

	xa_lock_irqsave(&dev->cqs, flags);
	cq = xa_load(&dev->cqs, token);
	if (cq)
		refcount_inc(&cq->ref);
	xa_unlock_irqrestore(&dev->cqs, flags);
	return cq;
}

void ehca_cq_put(struct ehca_cq *cq)
{
	if (refcount_dec_and_test(&cq->ref))
		complete(&cq->free);
}

int ehca_create_cq(struct ib_cq *ibcq, const struct ib_cq_init_attr *attr,
		   struct ehca_create_cq_attrs *attrs)
{
	struct ehca_dev *dev = to_edev(ibcq->device);
	struct ehca_cq *cq = to_ecq(ibcq);
	struct ehca_call c = {};
	int ret;
	long rc;

	if (ibcq->uobject)
		return -EOPNOTSUPP;	/* no user-space interface yet */
	if (attr->flags || attr->cqe < 1 || attr->cqe > dev->lim.max_cqe ||
	    attr->comp_vector)
		return -EINVAL;
	if (atomic_inc_return(&dev->nr_cqs) > dev->lim.max_cq) {
		ret = -ENOMEM;
		goto err_count;
	}

	cq->dev = dev;
	cq->toggle = true;
	cq->idx = 0;
	cq->unreturned = 0;
	cq->armed = false;
	spin_lock_init(&cq->lock);
	spin_lock_init(&cq->flush_lock);
	INIT_LIST_HEAD(&cq->flush_list);
	INIT_LIST_HEAD(&cq->kick_entry);
	refcount_set(&cq->ref, 1);
	init_completion(&cq->free);

	/* the token is known to the event handler when all is set up */
	ret = xa_alloc_cyclic_irq(&dev->cqs, &cq->token, NULL,
				  XA_LIMIT(0, EHCA_TOKEN_LIMIT - 1),
				  &dev->cq_next, GFP_KERNEL);
	if (ret < 0)
		goto err_count;

	c.in[0] = EHCA_RT_CQ;
	c.in[1] = dev->eq.handle;
	c.in[2] = cq->token;
	c.in[3] = attr->cqe + EHCA_CQ_SPARE_ENTRIES;
	rc = ehca_hcall(dev, EHCA_H_ALLOC_RESOURCE, &c, 0);
	if (rc) {
		ret = ehca_rc_to_errno(rc);
		goto err_token;
	}
	cq->handle = c.out[EHCA_OUT_HANDLE];
	ret = ehca_queue_alloc(dev, &cq->q, (u32)c.out[EHCA_OUT_PAGES]);
	if (ret)
		goto err_free;
	cq->entries = cq->q.pages * EHCA_CQES_PER_PAGE;
	if (cq->entries < attr->cqe) {
		dev_err(&dev->pdev->dev,
			"firmware gave a CQ of %u entries where %u were asked for\n",
			cq->entries, attr->cqe);
		ret = -EINVAL;
		goto err_free;
	}
	cq->regs = ioremap(c.out[EHCA_OUT_CQ_REGS], EHCA_REGS_SIZE);
	if (!cq->regs) {
		ret = -ENOMEM;
		goto err_free;
	}
	ret = ehca_queue_register(dev, &cq->q, cq->handle, EHCA_RPAGES_SQ,
				  true);
	if (ret)
		goto err_unmap;

	ibcq->cqe = min_t(u32, cq->entries - EHCA_CQ_SPARE_ENTRIES,
			  max_t(u32, (u32)c.out[EHCA_OUT_ENTRIES] -
				EHCA_CQ_SPARE_ENTRIES, attr->cqe));
	xa_store_irq(&dev->cqs, cq->token, cq, GFP_KERNEL);
	return 0;

err_unmap:
	iounmap(cq->regs);
err_free:
	/* registered pages may be written until the adapter let go of them */
	if (!ehca_h_free(dev, cq->handle, true))
		ehca_queue_free(&cq->q);
err_token:
	xa_erase_irq(&dev->cqs, cq->token);
err_count:
	atomic_dec(&dev->nr_cqs);
	return ret;
}

int ehca_destroy_cq(struct ib_cq *ibcq, struct ib_udata *udata)
{
	struct ehca_cq *cq = to_ecq(ibcq);
	struct ehca_dev *dev = cq->dev;
	unsigned long flags;
	void *block;
	long rc;

	/* no event handler may touch the register page from here on */
	xa_store_irq(&dev->cqs, cq->token, NULL, GFP_KERNEL);
	spin_lock_irqsave(&dev->kick_lock, flags);
	list_del_init(&cq->kick_entry);
	spin_unlock_irqrestore(&dev->kick_lock, flags);
	ehca_cq_put(cq);
	wait_for_completion(&cq->free);

	rc = ehca_h_free(dev, cq->handle, false);
	if (rc == EHCA_RC_R_STATE) {
		/* the CQ is in error: doc 6 */
		block = kzalloc(EHCA_CB_SIZE, GFP_KERNEL);
		if (block)
			ehca_h_error_data(dev, cq->handle, block);
		kfree(block);
		rc = ehca_h_free(dev, cq->handle, true);
	}
	if (rc) {
		/* still there: as if nothing had happened */
		refcount_set(&cq->ref, 1);
		reinit_completion(&cq->free);
		xa_store_irq(&dev->cqs, cq->token, cq, GFP_KERNEL);
		return ehca_rc_to_errno(rc) ?: -EIO;
	}

	/* storing NULL above kept the token from being given out again */
	xa_erase_irq(&dev->cqs, cq->token);
	iounmap(cq->regs);
	ehca_queue_free(&cq->q);
	atomic_dec(&dev->nr_cqs);
	return 0;
}
