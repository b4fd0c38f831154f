// SPDX-License-Identifier: GPL-2.0
/*
 * Shared receive queues (doc 19.1; IBTA vol 1, chapter 10.2.9).
 *
 * An SRQ is a QP resource with a receive queue only, kept in state RTR.  QPs
 * that use it have none of their own; their receive completions carry their
 * own token and the id of the SRQ's WQE.
 *
 * The adapter takes WQEs in ring order but finishes them in any order, so a
 * slot is busy from post to completion and posting stops at a slot that is
 * still busy.  Receives that a QP in error had not finished go back to the
 * SRQ: nothing is flushed here.  Tokens are given out together with those of
 * QPs (doc 2), the pointers are kept apart.
 */
#include <linux/slab.h>

#include "ehca.h"

/* A slot of the ring: srq->slot[].flags */
#define EHCA_SLOT_BUSY		0x01

static int ehca_srq_modify_hw(struct ehca_srq *srq, void *block, u64 mask)
{
	long rc = ehca_h_modify_qp(srq->dev, srq->handle, mask, block);

	return rc ? ehca_rc_to_errno(rc) ?: -EIO : 0;
}

/* RESET to RTR, where an SRQ serves: three calls without a query */
static int ehca_srq_start(struct ehca_srq *srq)
{
	void *block = kzalloc(EHCA_CB_SIZE, GFP_KERNEL);
	int ret;

	if (!block)
		return -ENOMEM;
	put32(block, EHCA_QPCB_QP_STATE, EHCA_QPS_INIT);
	ret = ehca_srq_modify_hw(srq, block, EHCA_QPMASK_QP_STATE);
	put32(block, EHCA_QPCB_QP_ENABLE, 1);
	ret = ret ?: ehca_srq_modify_hw(srq, block, EHCA_QPMASK_QP_ENABLE);
	put32(block, EHCA_QPCB_QP_STATE, EHCA_QPS_RTR);
	ret = ret ?: ehca_srq_modify_hw(srq, block, EHCA_QPMASK_QP_STATE);
	kfree(block);
	return ret;
}

static int ehca_srq_queue(struct ehca_srq *srq, const struct ehca_call *c,
			  u32 want)
{
	u32 sges = c->out[EHCA_OUT_QP_SGES] >> EHCA_OUT_QP_RECV_SGES_SHIFT &
		   EHCA_OUT_QP_SGES_MASK;
	u32 wrs = c->out[EHCA_OUT_QP_WRS] & EHCA_OUT_QP_WRS_MASK;
	int ret;

	if (!ehca_sges_ok(sges, EHCA_SRQ_MAX_SGES))
		goto bad;
	ret = ehca_queue_alloc(srq->dev, &srq->q, c->out[EHCA_OUT_QP_PAGES] &
			       EHCA_OUT_QP_PAGES_MASK);
	if (ret)
		return ret;
	srq->stride = EHCA_WQE_STRIDE(sges);
	srq->nr = srq->q.pages * EHCA_HW_PAGE_SIZE / srq->stride;
	srq->max_post = min(wrs, srq->nr) - 1;
	if (wrs < 1 || srq->nr > EHCA_MAX_RING_WQES ||
	    srq->max_post < want || srq->max_post > srq->nr)
		goto bad;
	srq->slot = kvcalloc(srq->nr, sizeof(*srq->slot), GFP_KERNEL);
	return srq->slot ? 0 : -ENOMEM;

bad:
	dev_err(&srq->dev->pdev->dev,
		"firmware gave an SRQ of %u work requests with %u SGEs where %u with %u were asked for\n",
		wrs, sges, want, EHCA_SRQ_MAX_SGES);
	return -EINVAL;
}

int ehca_create_srq(struct ib_srq *ibsrq, struct ib_srq_init_attr *init,
		    struct ib_udata *udata)
{
	struct ehca_dev *dev = to_edev(ibsrq->device);
	struct ehca_srq *srq = to_esrq(ibsrq);
	struct ib_srq_attr *attr = &init->attr;
	struct ehca_call c = {};
	u64 regs;
	int ret;
	long rc;

	if (init->srq_type != IB_SRQT_BASIC || ibsrq->uobject)
		return -EOPNOTSUPP;
	if (attr->max_wr < 1 || attr->max_wr > dev->lim.max_wr ||
	    attr->max_sge > EHCA_SRQ_MAX_SGES ||
	    attr->srq_limit > attr->max_wr)
		return -EINVAL;
	if (atomic_inc_return(&dev->nr_qps) > dev->lim.max_qp) {
		ret = -ENOMEM;
		goto err_count;
	}
	srq->dev = dev;
	spin_lock_init(&srq->lock);
	refcount_set(&srq->ref, 1);
	init_completion(&srq->free);
	ret = xa_alloc_cyclic_irq(&dev->qps, &srq->token, NULL,
				  XA_LIMIT(0, EHCA_TOKEN_LIMIT - 1),
				  &dev->qp_next, GFP_KERNEL);
	if (ret < 0)
		goto err_count;

	c.in[0] = EHCA_RT_QP |
		  (u64)EHCA_QPKIND_SRQ << EHCA_ALLOC_QP_KIND_SHIFT |
		  (u64)EHCA_SERVICE_RC << EHCA_ALLOC_QP_SERVICE_SHIFT |
		  (u64)EHCA_SIGT_PER_WQE << EHCA_ALLOC_QP_SIGT_SHIFT;
	c.in[3] = dev->eq.handle;
	c.in[4] = (u64)srq->token << EHCA_ALLOC_QP_TOKEN_SHIFT |
		  to_epd(ibsrq->pd)->value;
	c.in[5] = 2ULL << EHCA_ALLOC_QP_SEND_WRS_SHIFT |
		  (u64)(attr->max_wr + 1) << EHCA_ALLOC_QP_RECV_WRS_SHIFT |
		  EHCA_SRQ_MAX_SGES << EHCA_ALLOC_QP_RECV_SGES_SHIFT;
	c.in[7] = attr->srq_limit & EHCA_ALLOC_QP_R12_SRQ_LIMIT_MASK;
	rc = ehca_hcall(dev, EHCA_H_ALLOC_RESOURCE, &c, 0);
	if (rc) {
		ret = ehca_rc_to_errno(rc) ?: -EIO;
		goto err_token;
	}
	srq->handle = c.out[EHCA_OUT_HANDLE];
	srq->real_qpn = c.out[EHCA_OUT_QPN] & EHCA_QPN_MASK;
	regs = c.out[EHCA_OUT_QP_REGS];

	ret = ehca_srq_queue(srq, &c, attr->max_wr);
	if (ret)
		goto err_free;
	srq->regs = ioremap(regs, EHCA_REGS_SIZE);
	if (!srq->regs) {
		ret = -ENOMEM;
		goto err_free;
	}
	ret = ehca_queue_register(dev, &srq->q, srq->handle, EHCA_RPAGES_RQ,
				  true);
	ret = ret ?: ehca_srq_start(srq);
	if (ret)
		goto err_unmap;
	ret = xa_err(xa_store_irq(&dev->srqs, srq->token, srq, GFP_KERNEL));
	if (ret)
		goto err_unmap;
	attr->max_wr = srq->max_post;
	attr->max_sge = EHCA_SRQ_MAX_SGES;
	return 0;

err_unmap:
	iounmap(srq->regs);
err_free:
	ehca_h_getc(dev, srq->handle, EHCA_GETC_BEFORE_FREE, NULL, NULL, 0);
	if (!ehca_h_free(dev, srq->handle, false)) {
		kvfree(srq->slot);
		ehca_queue_free(&srq->q);
	}
err_token:
	xa_erase_irq(&dev->qps, srq->token);
err_count:
	atomic_dec(&dev->nr_qps);
	return ret;
}

int ehca_modify_srq(struct ib_srq *ibsrq, struct ib_srq_attr *attr,
		    enum ib_srq_attr_mask mask, struct ib_udata *udata)
{
	struct ehca_srq *srq = to_esrq(ibsrq);
	void *block;
	int ret;

	if (mask & ~IB_SRQ_LIMIT)
		return -EOPNOTSUPP;
	if (!mask)
		return 0;
	if (attr->srq_limit > srq->max_post)
		return -EINVAL;
	block = kzalloc(EHCA_CB_SIZE, GFP_KERNEL);
	if (!block)
		return -ENOMEM;
	put32(block, EHCA_QPCB_CURR_SRQ_LIMIT, attr->srq_limit);
	put64(block, EHCA_QPCB_QP_AFF_ASYN_EV_LOG_REG,
	      EHCA_AAELOG_RESET_SRQ_LIMIT);
	ret = ehca_srq_modify_hw(srq, block, EHCA_QPMASK_CURR_SRQ_LIMIT |
				 EHCA_QPMASK_QP_AFF_ASYN_EV_LOG_REG);
	kfree(block);
	return ret;
}

int ehca_query_srq(struct ib_srq *ibsrq, struct ib_srq_attr *attr)
{
	struct ehca_srq *srq = to_esrq(ibsrq);
	void *block;
	long rc;

	block = kzalloc(EHCA_CB_SIZE, GFP_KERNEL);
	if (!block)
		return -ENOMEM;
	rc = ehca_h_query_qp(srq->dev, srq->handle, block, 0);
	attr->max_wr = srq->max_post;
	attr->max_sge = EHCA_SRQ_MAX_SGES;
	attr->srq_limit = get32(block, EHCA_QPCB_CURR_SRQ_LIMIT) & 0xffff;
	kfree(block);
	return rc ? ehca_rc_to_errno(rc) ?: -EIO : 0;
}

int ehca_destroy_srq(struct ib_srq *ibsrq, struct ib_udata *udata)
{
	struct ehca_srq *srq = to_esrq(ibsrq);
	struct ehca_dev *dev = srq->dev;
	long rc;

	xa_erase_irq(&dev->srqs, srq->token);
	ehca_srq_put(srq);
	wait_for_completion(&srq->free);

	ehca_h_getc(dev, srq->handle, EHCA_GETC_BEFORE_FREE, NULL, NULL, 0);
	rc = ehca_h_free(dev, srq->handle, false);
	if (rc) {
		refcount_set(&srq->ref, 1);
		reinit_completion(&srq->free);
		xa_store_irq(&dev->srqs, srq->token, srq, GFP_KERNEL);
		return ehca_rc_to_errno(rc) ?: -EIO;
	}
	xa_erase_irq(&dev->qps, srq->token);
	iounmap(srq->regs);
	kvfree(srq->slot);
	ehca_queue_free(&srq->q);
	atomic_dec(&dev->nr_qps);
	return 0;
}

struct ehca_srq *ehca_srq_get(struct ehca_dev *dev, u32 token)
{
	struct ehca_srq *srq;
	unsigned long flags;

	xa_lock_irqsave(&dev->srqs, flags);
	srq = xa_load(&dev->srqs, token);
	if (srq)
		refcount_inc(&srq->ref);
	xa_unlock_irqrestore(&dev->srqs, flags);
	return srq;
}

void ehca_srq_put(struct ehca_srq *srq)
{
	if (refcount_dec_and_test(&srq->ref))
		complete(&srq->free);
}

/* SRQ limit reached, or the SRQ failed (doc 14.2) */
void ehca_srq_eqe(struct ehca_dev *dev, u32 id, u32 token)
{
	struct ehca_srq *srq = ehca_srq_get(dev, token);
	struct ib_event ev = { .device = &dev->ibdev };

	if (!srq) {
		ehca_stat(dev, EHCA_STAT_EQ_UNKNOWN_TOKEN);
		return;
	}
	if (id == EHCA_EQE_SRQ_LIMIT) {
		ehca_stat(dev, EHCA_STAT_SRQ_LIMIT);
		ev.event = IB_EVENT_SRQ_LIMIT_REACHED;
	} else {
		ehca_stat(dev, EHCA_STAT_SRQ_ERR);
		dev_err(&dev->pdev->dev, "SRQ %#x is in error\n",
			srq->real_qpn);
		ev.event = IB_EVENT_SRQ_ERR;
	}
	ev.element.srq = &srq->ibsrq;
	if (srq->ibsrq.event_handler)
		srq->ibsrq.event_handler(&ev, srq->ibsrq.srq_context);
	ehca_srq_put(srq);
}

/* The request with this id is complete; false if there is none such. */
bool ehca_srq_complete(struct ehca_srq *srq, u64 id, u64 *wr_id)
{
	u32 idx = id & EHCA_WQE_ID_INDEX_MASK;
	unsigned long flags;
	bool busy = false;

	if (idx >= srq->nr)
		return false;
	spin_lock_irqsave(&srq->lock, flags);
	if (srq->slot[idx].flags & EHCA_SLOT_BUSY) {
		srq->slot[idx].flags = 0;
		srq->posted--;
		*wr_id = srq->slot[idx].wr_id;
		busy = true;
	}
	spin_unlock_irqrestore(&srq->lock, flags);
	return busy;
}

int ehca_post_srq_recv(struct ib_srq *ibsrq, const struct ib_recv_wr *wr,
		       const struct ib_recv_wr **bad_wr)
{
	struct ehca_srq *srq = to_esrq(ibsrq);
	struct ehca_slot *slot;
	unsigned long flags;
	int ret = 0;
	void *wqe;
	u32 n = 0;

	spin_lock_irqsave(&srq->lock, flags);
	for (; wr; wr = wr->next) {
		slot = &srq->slot[srq->head_idx];
		if (srq->posted >= srq->max_post ||
		    slot->flags & EHCA_SLOT_BUSY)
			ret = -ENOMEM;
		else if (wr->num_sge < 0 || wr->num_sge > EHCA_SRQ_MAX_SGES)
			ret = -EINVAL;
		if (ret)
			break;
		wqe = srq->q.va + (size_t)srq->head_idx * srq->stride;
		memset(wqe, 0, EHCA_WQE_CLEAR_SIZE);
		put64(wqe, EHCA_WQE_ID, srq->head_idx);
		ehca_wqe_sges(wqe, EHCA_WQE_SGES, wr->sg_list, wr->num_sge);
		slot->wr_id = wr->wr_id;
		slot->flags = EHCA_SLOT_BUSY;
		srq->posted++;
		srq->head_idx = (srq->head_idx + 1) % srq->nr;
		n++;
	}
	if (n)
		ehca_reg_write(srq->regs, EHCA_QPX_RQA, n);
	spin_unlock_irqrestore(&srq->lock, flags);
	if (ret)
		*bad_wr = wr;
	return ret;
}
