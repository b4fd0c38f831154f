// SPDX-License-Identifier: GPL-2.0
/*
 * Queue pairs: create, modify, query, destroy, and their events (doc 5.3,
 * 8.6, 8.7, 11, 14.2, 17, 18).
 *
 * Modify.  The adapter is asked first (H_QUERY_QP): it may have moved the QP
 * to ERR or SQE by itself.  Then one H_MODIFY_QP carries all changes with
 * the target state; after INIT a second one enables the QP.
 *
 * Path migration (IBTA vol 1, chapter 17.2.8).  The state lives in the
 * adapter: software writes REARM or MIGRATED, the adapter alone makes it
 * ARMED and migrates by itself.  Query therefore always asks the adapter.
 * Old firmware raised path-migrated events for QPs that never asked
 * for migration: events are passed on only after REARM was written once.
 *
 * Special QPs.  QP1 is made known with H_DEFINE_AQP1, upon which the
 * firmware may activate the port.  Nothing waits for the port here: our
 * adapter takes modify calls for QP0 and QP1 in every port state, so the MAD
 * layer brings them up at once and its receives are in place when the port
 * comes.  (Drivers for firmware that refuses this until the port is active
 * have to record the calls and replay them then, doc 18.4.)  QP0 is offered
 * to the firmware with H_DEFINE_AQP0; if it says no, SMPs stay its business
 * and posting to QP0 is refused.
 */
#include <linux/slab.h>
#include <linux/moduleparam.h>

#include "ehca.h"

unsigned int ehca_port_act_wait;
module_param_named(port_act_wait, ehca_port_act_wait, uint, 0644);
MODULE_PARM_DESC(port_act_wait,
		 "seconds that creation of QP1 waits for its port to become active; fails if it does not (default 0: never wait)");

/* Strides that divide a page, by SGEs (doc 5.3) */
static const u16 ehca_good_sges[] = {
	EHCA_SGES_4, EHCA_SGES_12, EHCA_SGES_28, EHCA_SGES_60,
	EHCA_SGES_124, EHCA_SGES_252,
};

static const struct {
	enum ib_qp_state verbs;
	u32 fw;
} ehca_qp_states[] = {
	{ IB_QPS_RESET,	EHCA_QPS_RESET },
	{ IB_QPS_INIT,	EHCA_QPS_INIT },
	{ IB_QPS_RTR,	EHCA_QPS_RTR },
	{ IB_QPS_RTS,	EHCA_QPS_RTS },
	{ IB_QPS_SQD,	EHCA_QPS_SQD },
	{ IB_QPS_SQE,	EHCA_QPS_SQE },
	{ IB_QPS_ERR,	EHCA_QPS_ERR },
};

static u32 ehca_state_to_fw(enum ib_qp_state state)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(ehca_qp_states); i++) {
		if (ehca_qp_states[i].verbs == state)
			return ehca_qp_states[i].fw;
	}
	return 0;
}

static int ehca_state_from_fw(u32 fw, enum ib_qp_state *state)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(ehca_qp_states); i++) {
		if (ehca_qp_states[i].fw == fw) {
			*state = ehca_qp_states[i].verbs;
			return 0;
		}
	}
	return -EIO;
}

bool ehca_qp_is_ud(const struct ehca_qp *qp)
{
	return qp->ibqp.qp_type == IB_QPT_UD ||
	       qp->ibqp.qp_type == IB_QPT_SMI ||
	       qp->ibqp.qp_type == IB_QPT_GSI;
}

static bool ehca_qp_is_special(const struct ehca_qp *qp)
{
	return qp->ibqp.qp_type == IB_QPT_SMI ||
	       qp->ibqp.qp_type == IB_QPT_GSI;
}

struct ehca_qp *ehca_qp_get(struct ehca_dev *dev, u32 token)
{
	struct ehca_qp *qp;
	unsigned long flags;

	xa_lock_irqsave(&dev->qps, flags);
	qp = xa_load(&dev->qps, token);
	/* 0: it is being destroyed, but still in the table (ehca_poll_cq()) */
	if (qp && !refcount_inc_not_zero(&qp->ref))
		qp = NULL;
	xa_unlock_irqrestore(&dev->qps, flags);
	return qp;
}

void ehca_qp_put(struct ehca_qp *qp)
{
	if (refcount_dec_and_test(&qp->ref))
		complete(&qp->free);
}

/* ------------------------------------------------------------------ */
/* Events                                                             */
/* ------------------------------------------------------------------ */

/* doc 8.13: why did the QP fail?  EQ tasklet only, for err_block. */
static void ehca_qp_error_data(struct ehca_dev *dev, struct ehca_qp *qp)
{
	long rc;

	memset(dev->err_block, 0, EHCA_CB_SIZE);
	rc = ehca_h_error_data(dev, qp->handle, dev->err_block);
	if (rc)
		dev_warn(&dev->pdev->dev, "QP %#x is in error (%s)\n",
			 qp->real_qpn, rc == EHCA_RC_R_STATE ?
			 "no error data" : ehca_rc_str(rc));
	else
		dev_warn(&dev->pdev->dev,
			 "QP %#x is in error, error register %#llx\n",
			 qp->real_qpn, get64(dev->err_block, EHCA_ERRDATA_AER));
}

/* The event may be old: only a QP that is in ERR is flushed. */
static void ehca_qp_check_err(struct ehca_dev *dev, struct ehca_qp *qp)
{
	u16 epoch = READ_ONCE(qp->sq.epoch);

	memset(dev->err_block, 0, EHCA_CB_SIZE);
	if (ehca_h_query_qp(dev, qp->handle, dev->err_block,
			    EHCA_CALL_ATOMIC))
		return;
	if (get32(dev->err_block, EHCA_QPCB_QP_STATE) == EHCA_QPS_ERR)
		ehca_qp_found_err(qp, epoch);
}

static void ehca_qp_event(struct ehca_qp *qp, enum ib_event_type type)
{
	struct ib_event ev = {
		.device = &qp->dev->ibdev,
		.event = type,
		.element.qp = &qp->ibqp,
	};

	if (qp->ibqp.event_handler)
		qp->ibqp.event_handler(&ev, qp->ibqp.qp_context);
}

/* A QP event from the EQ (doc 14.2); tasklet context */
void ehca_qp_eqe(struct ehca_dev *dev, u32 id, u32 token)
{
	struct ehca_qp *qp = ehca_qp_get(dev, token);

	if (!qp) {
		if (id == EHCA_EQE_QP_ERR || id == EHCA_EQE_QP_ERR_2)
			ehca_srq_eqe(dev, id, token);
		else
			ehca_stat(dev, EHCA_STAT_EQ_UNKNOWN_TOKEN);
		return;
	}
	switch (id) {
	case EHCA_EQE_PATH_MIG:
		if (!READ_ONCE(qp->rearmed)) {
			ehca_stat(dev, EHCA_STAT_PATH_MIG_FILTERED);
			atomic_inc(&qp->ev_path_mig_filtered);
			dev_info_ratelimited(&dev->pdev->dev,
					     "QP %#x: path-migrated event not passed on, REARM was never requested\n",
					     qp->real_qpn);
			break;
		}
		ehca_stat(dev, EHCA_STAT_PATH_MIG);
		atomic_inc(&qp->ev_path_mig);
		ehca_qp_event(qp, IB_EVENT_PATH_MIG);
		break;
	case EHCA_EQE_PATH_MIG_FAILED:
		ehca_stat(dev, EHCA_STAT_PATH_MIG_ERR);
		atomic_inc(&qp->ev_path_mig_err);
		ehca_qp_event(qp, IB_EVENT_PATH_MIG_ERR);
		break;
	case EHCA_EQE_COMM_EST:
		ehca_stat(dev, EHCA_STAT_COMM_EST);
		atomic_inc(&qp->ev_comm_est);
		ehca_qp_event(qp, IB_EVENT_COMM_EST);
		break;
	case EHCA_EQE_SQ_DRAINED:
		ehca_stat(dev, EHCA_STAT_SQ_DRAINED);
		atomic_inc(&qp->ev_sq_drained);
		if (READ_ONCE(qp->sqd_notify))
			ehca_qp_event(qp, IB_EVENT_SQ_DRAINED);
		break;
	case EHCA_EQE_QP_ERR:
	case EHCA_EQE_QP_ERR_2:
		/* an SRQ's QP tells so of a wanted move to ERR too */
		if (!qp->srq || !READ_ONCE(qp->err_wanted)) {
			ehca_stat(dev, EHCA_STAT_QP_FATAL);
			atomic_inc(&qp->ev_fatal);
			ehca_qp_error_data(dev, qp);
			ehca_qp_check_err(dev, qp);
			ehca_qp_event(qp, IB_EVENT_QP_FATAL);
		}
		if (qp->srq)
			ehca_qp_event(qp, IB_EVENT_QP_LAST_WQE_REACHED);
		break;
	}
	ehca_qp_put(qp);
}

/* ------------------------------------------------------------------ */
/* Create                                                             */
/* ------------------------------------------------------------------ */

bool ehca_sges_ok(u32 sges, u32 wanted)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(ehca_good_sges); i++) {
		if (ehca_good_sges[i] == sges)
			return sges >= wanted;
	}
	return false;
}

/* Memory and bookkeeping of one work queue, as the firmware sized it */
static int ehca_wq_init(struct ehca_qp *qp, struct ehca_wq *wq,
			struct ehca_cq *cq, bool is_send, u64 pages,
			u32 sges, u32 want_sges, u32 wrs, u32 want_wrs)
{
	struct device *d = &qp->dev->pdev->dev;
	int ret;

	wq->qp = qp;
	wq->cq = cq;
	wq->is_send = is_send;
	spin_lock_init(&wq->lock);
	INIT_LIST_HEAD(&wq->flush_entry);

	if (!ehca_sges_ok(sges, want_sges)) {
		dev_err(d,
			"firmware gave %u SGEs for a %s queue that needs %u; allowed are 4, 12, 28, 60, 124, 252\n",
			sges, is_send ? "send" : "receive", want_sges);
		return -EINVAL;
	}
	ret = ehca_queue_alloc(qp->dev, &wq->q, pages);
	if (ret)
		return ret;
	wq->stride = EHCA_WQE_STRIDE(sges);
	wq->nr = wq->q.pages * EHCA_HW_PAGE_SIZE / wq->stride;
	wq->max_sge = ehca_qp_is_ud(qp) && is_send ?
		      sges - EHCA_UD_AV_SGES : sges;
	/* one WQE stays free, so that a full ring differs from an empty one */
	wq->max_post = min(wrs, wq->nr) - 1;
	if (wrs < 1 || wq->nr > EHCA_MAX_RING_WQES ||
	    wq->max_post < want_wrs || wq->max_post > wq->nr) {
		dev_err(d,
			"firmware gave %u work requests in a ring of %u for a %s queue that needs %u\n",
			wrs, wq->nr, is_send ? "send" : "receive", want_wrs);
		return -EINVAL;
	}
	wq->slot = kvcalloc(wq->nr, sizeof(*wq->slot), GFP_KERNEL);
	return wq->slot ? 0 : -ENOMEM;
}

/* The receive queue of a QP that uses an SRQ */
static int ehca_wq_init_none(struct ehca_qp *qp, struct ehca_cq *cq)
{
	qp->rq.qp = qp;
	qp->rq.cq = cq;
	spin_lock_init(&qp->rq.lock);
	INIT_LIST_HEAD(&qp->rq.flush_entry);
	return 0;
}

static void ehca_wq_free(struct ehca_wq *wq)
{
	kvfree(wq->slot);
	wq->slot = NULL;
	ehca_queue_free(&wq->q);
}

/* Claim the port's QP0 or QP1 */
static int ehca_special_claim(struct ehca_qp *qp)
{
	struct ehca_port *port = ehca_port(qp->dev, qp->port);
	struct ehca_qp **slot = qp->ibqp.qp_type == IB_QPT_SMI ?
				&port->smi : &port->gsi;
	int ret = 0;

	mutex_lock(&port->special_lock);
	if (*slot)
		ret = -EBUSY;
	else
		*slot = qp;
	mutex_unlock(&port->special_lock);
	return ret;
}

static void ehca_special_release(struct ehca_qp *qp)
{
	struct ehca_port *port = ehca_port(qp->dev, qp->port);

	if (!ehca_qp_is_special(qp))
		return;
	mutex_lock(&port->special_lock);
	if (port->smi == qp)
		port->smi = NULL;
	if (port->gsi == qp)
		port->gsi = NULL;
	mutex_unlock(&port->special_lock);
}

static int ehca_special_define(struct ehca_qp *qp)
{
	struct ehca_dev *dev = qp->dev;
	struct ehca_port *port = ehca_port(dev, qp->port);
	struct ehca_call c = { .in = { qp->handle, qp->port } };
	long rc;

	if (qp->ibqp.qp_type == IB_QPT_SMI) {
		rc = ehca_hcall(dev, EHCA_H_DEFINE_AQP0, &c, EHCA_CALL_QUIET);
		qp->smp_ok = !rc;
		if (rc)
			dev_info(&dev->pdev->dev,
				 "port %u: QP0 stays with the firmware (H_DEFINE_AQP0: %s)\n",
				 qp->port, ehca_rc_str(rc));
		return 0;
	}

	rc = ehca_hcall(dev, EHCA_H_DEFINE_AQP1, &c, 0);
	if (rc) {
		dev_err(&dev->pdev->dev,
			"port %u: QP1 could not be defined (%s); the port is of no use\n",
			qp->port, ehca_rc_str(rc));
		return ehca_rc_to_errno(rc) ?: -EIO;
	}
	port->pma_qpn = c.out[0] & EHCA_QPN_MASK;
	if (!ehca_port_act_wait)
		return 0;
	return ehca_port_wait_active(port, ehca_port_act_wait);
}

static int ehca_qp_check_init(struct ehca_dev *dev, struct ehca_qp *qp,
			      const struct ib_qp_init_attr *init, u64 *service)
{
	const struct ib_qp_cap *cap = &init->cap;
	u32 max_sge = EHCA_MAX_SGES_UD;

	switch (init->qp_type) {
	case IB_QPT_RC:
		*service = EHCA_SERVICE_RC;
		max_sge = EHCA_MAX_SGES_RC;
		break;
	case IB_QPT_UC:
		*service = EHCA_SERVICE_UC;
		max_sge = EHCA_MAX_SGES_RC;
		break;
	case IB_QPT_SMI:
	case IB_QPT_GSI:
		if (!ehca_port(dev, init->port_num))
			return -EINVAL;
		fallthrough;
	case IB_QPT_UD:
		*service = EHCA_SERVICE_UD;
		break;
	default:
		return -EOPNOTSUPP;
	}
	max_sge = min(max_sge, dev->lim.max_sge);
	if (init->create_flags || qp->ibqp.uobject)
		return -EOPNOTSUPP;
	if (init->srq && (init->qp_type == IB_QPT_UC ||
			  ehca_qp_is_special(qp)))
		return -EINVAL;
	if (cap->max_inline_data || !init->send_cq || !init->recv_cq)
		return -EINVAL;
	if (cap->max_send_wr > dev->lim.max_wr ||
	    cap->max_send_sge > max_sge)
		return -EINVAL;
	if (!init->srq && (cap->max_recv_wr > dev->lim.max_wr ||
			   cap->max_recv_sge > max_sge))
		return -EINVAL;
	return 0;
}

int ehca_create_qp(struct ib_qp *ibqp, struct ib_qp_init_attr *init,
		   struct ib_udata *udata)
{
	struct ehca_dev *dev = to_edev(ibqp->device);
	struct ehca_qp *qp = to_eqp(ibqp);
	struct ehca_call c = {};
	u32 send_sges, recv_sges, recv_wrs;
	u64 service, regs;
	bool freed;
	int ret;
	long rc;

	ret = ehca_qp_check_init(dev, qp, init, &service);
	if (ret)
		return ret;
	if (atomic_inc_return(&dev->nr_qps) > dev->lim.max_qp) {
		ret = -ENOMEM;
		goto err_count;
	}

	qp->dev = dev;
	qp->srq = init->srq ? to_esrq(init->srq) : NULL;
	qp->state = IB_QPS_RESET;
	qp->sq_sig_all = init->sq_sig_type == IB_SIGNAL_ALL_WR;
	qp->port = ehca_qp_is_special(qp) ? init->port_num : 0;
	mutex_init(&qp->mutex);
	spin_lock_init(&qp->err_lock);
	refcount_set(&qp->ref, 1);
	init_completion(&qp->free);
	if (ehca_qp_is_special(qp)) {
		ret = ehca_special_claim(qp);
		if (ret)
			goto err_count;
	}
	ret = xa_alloc_cyclic_irq(&dev->qps, &qp->token, NULL,
				  XA_LIMIT(0, EHCA_TOKEN_LIMIT - 1),
				  &dev->qp_next, GFP_KERNEL);
	if (ret < 0)
		goto err_special;

	/* UD: the address vector takes the room of two SGEs (doc 5.3) */
	send_sges = max_t(u32, init->cap.max_send_sge, 1);
	recv_sges = qp->srq ? 1 : max_t(u32, init->cap.max_recv_sge, 1);
	recv_wrs = qp->srq ? 0 : init->cap.max_recv_wr;
	if (ehca_qp_is_ud(qp)) {
		send_sges += EHCA_UD_AV_SGES;
		recv_sges += EHCA_UD_AV_SGES;
	}
	c.in[0] = EHCA_RT_QP |
		  service << EHCA_ALLOC_QP_SERVICE_SHIFT |
		  (u64)EHCA_SIGT_PER_WQE << EHCA_ALLOC_QP_SIGT_SHIFT;
	c.in[1] = to_ecq(init->send_cq)->handle;
	c.in[2] = to_ecq(init->recv_cq)->handle;
	c.in[3] = dev->eq.handle;
	c.in[4] = (u64)qp->token << EHCA_ALLOC_QP_TOKEN_SHIFT |
		  to_epd(ibqp->pd)->value;
	c.in[5] = (u64)(init->cap.max_send_wr + 1) <<
			EHCA_ALLOC_QP_SEND_WRS_SHIFT |
		  (u64)(recv_wrs + 1) << EHCA_ALLOC_QP_RECV_WRS_SHIFT |
		  (u64)send_sges << EHCA_ALLOC_QP_SEND_SGES_SHIFT |
		  (u64)recv_sges << EHCA_ALLOC_QP_RECV_SGES_SHIFT;
	if (qp->srq) {
		/* a base QP: its own token, and the SRQ by QP number */
		c.in[0] |= (u64)EHCA_QPKIND_SRQBASE <<
			   EHCA_ALLOC_QP_KIND_SHIFT;
		c.in[6] = (u64)qp->token << EHCA_ALLOC_QP_R11_TOKEN_SHIFT;
		c.in[7] = qp->srq->real_qpn;
	}
	rc = ehca_hcall(dev, EHCA_H_ALLOC_RESOURCE, &c, 0);
	if (rc) {
		ret = ehca_rc_to_errno(rc) ?: -EIO;
		goto err_token;
	}
	qp->handle = c.out[EHCA_OUT_HANDLE];
	qp->real_qpn = c.out[EHCA_OUT_QPN] & EHCA_QPN_MASK;
	regs = c.out[EHCA_OUT_QP_REGS];

	ret = ehca_wq_init(qp, &qp->sq, to_ecq(init->send_cq), true,
			   c.out[EHCA_OUT_QP_PAGES] >>
				EHCA_OUT_QP_SQ_PAGES_SHIFT,
			   c.out[EHCA_OUT_QP_SGES] >>
				EHCA_OUT_QP_SEND_SGES_SHIFT &
				EHCA_OUT_QP_SGES_MASK, send_sges,
			   c.out[EHCA_OUT_QP_WRS] >>
				EHCA_OUT_QP_SEND_WRS_SHIFT &
				EHCA_OUT_QP_WRS_MASK, init->cap.max_send_wr);
	if (ret)
		goto err_free;
	ret = qp->srq ? ehca_wq_init_none(qp, to_ecq(init->recv_cq)) :
	      ehca_wq_init(qp, &qp->rq, to_ecq(init->recv_cq), false,
			   c.out[EHCA_OUT_QP_PAGES] & EHCA_OUT_QP_PAGES_MASK,
			   c.out[EHCA_OUT_QP_SGES] >>
				EHCA_OUT_QP_RECV_SGES_SHIFT &
				EHCA_OUT_QP_SGES_MASK, recv_sges,
			   c.out[EHCA_OUT_QP_WRS] & EHCA_OUT_QP_WRS_MASK,
			   init->cap.max_recv_wr);
	if (ret)
		goto err_free;
	qp->regs = ioremap(regs, EHCA_REGS_SIZE);
	if (!qp->regs) {
		ret = -ENOMEM;
		goto err_free;
	}
	ret = ehca_queue_register(dev, &qp->sq.q, qp->handle, EHCA_RPAGES_SQ,
				  qp->srq);
	if (!ret && !qp->srq)
		ret = ehca_queue_register(dev, &qp->rq.q, qp->handle,
					  EHCA_RPAGES_RQ, true);
	if (ret)
		goto err_unmap;
	if (ehca_qp_is_special(qp)) {
		ret = ehca_special_define(qp);
		if (ret)
			goto err_unmap;
	}

	switch (init->qp_type) {
	case IB_QPT_SMI:
		ibqp->qp_num = 0;
		break;
	case IB_QPT_GSI:
		ibqp->qp_num = 1;
		break;
	default:
		ibqp->qp_num = qp->real_qpn;
		break;
	}
	init->cap.max_send_wr = qp->sq.max_post;
	init->cap.max_recv_wr = qp->rq.max_post;
	init->cap.max_send_sge = qp->sq.max_sge;
	init->cap.max_recv_sge = qp->rq.max_sge;
	init->cap.max_inline_data = 0;
	xa_store_irq(&dev->qps, qp->token, qp, GFP_KERNEL);
	return 0;

err_unmap:
	iounmap(qp->regs);
err_free:
	ehca_h_getc(dev, qp->handle, EHCA_GETC_BEFORE_FREE, NULL, NULL, 0);
	freed = !ehca_h_free(dev, qp->handle, false);
	if (freed) {
		ehca_wq_free(&qp->sq);
		ehca_wq_free(&qp->rq);
	}
err_token:
	xa_erase_irq(&dev->qps, qp->token);
err_special:
	ehca_special_release(qp);
err_count:
	atomic_dec(&dev->nr_qps);
	return ret;
}

int ehca_destroy_qp(struct ib_qp *ibqp, struct ib_udata *udata)
{
	struct ehca_qp *qp = to_eqp(ibqp);
	enum ib_qp_state state = qp->state;
	struct ehca_dev *dev = qp->dev;
	long rc;

	/*
	 * doc 17.6: first no event or completion is passed on any more.  It
	 * stays in the table: whoever polls a CQE of it meanwhile gives the
	 * SRQ its slot back.
	 */
	WRITE_ONCE(qp->dying, true);
	ehca_qp_put(qp);
	wait_for_completion(&qp->free);
	ehca_qp_begin_reset(qp);

	ehca_h_getc(dev, qp->handle, EHCA_GETC_BEFORE_FREE, NULL, NULL, 0);
	rc = ehca_h_free(dev, qp->handle, false);
	if (rc) {
		WRITE_ONCE(qp->state, state);
		reinit_completion(&qp->free);
		refcount_set(&qp->ref, 1);
		WRITE_ONCE(qp->dying, false);
		return ehca_rc_to_errno(rc) ?: -EIO;
	}
	/* also waits for polls that still look at the QP */
	ehca_wq_reset(&qp->sq);
	ehca_wq_reset(&qp->rq);

	xa_erase_irq(&dev->qps, qp->token);
	iounmap(qp->regs);
	ehca_wq_free(&qp->sq);
	ehca_wq_free(&qp->rq);
	ehca_special_release(qp);
	atomic_dec(&dev->nr_qps);
	return 0;
}

/* ------------------------------------------------------------------ */
/* Modify                                                             */
/* ------------------------------------------------------------------ */

/* Collects fields of the control block and their mask */
struct ehca_qp_change {
	void *block;
	u64 mask;
};

static void ehca_set(struct ehca_qp_change *ch, unsigned int off, u64 bit,
		     u32 val)
{
	put32(ch->block, off, val);
	ch->mask |= bit;
}

#define SET(ch, field, val) \
	ehca_set(ch, EHCA_QPCB_##field, EHCA_QPMASK_##field, val)

static int ehca_check_av(const struct rdma_ah_attr *ah)
{
	u32 dlid = rdma_ah_get_dlid(ah);

	/* connected QPs talk to one port: no multicast (IBTA 11.2.5.2) */
	if (ah->type != RDMA_AH_ATTR_TYPE_IB || dlid >= 0xc000 ||
	    rdma_ah_get_sl(ah) > 15)
		return -EINVAL;
	if ((rdma_ah_get_ah_flags(ah) & IB_AH_GRH) &&
	    rdma_ah_read_grh(ah)->flow_label > 0xfffff)
		return -EINVAL;
	return 0;
}

/* A field of the control block and the bit that says it is to be changed */
struct ehca_field {
	u32 off;
	u64 mask;
};

#define FIELD(name)	{ EHCA_QPCB_##name, EHCA_QPMASK_##name }

/* The address vectors of the primary [0] and the alternate [1] path */
static const struct ehca_av_fields {
	struct ehca_field dlid, path_bits, sl, ipd, send_grh;
	struct ehca_field sgid_index, flow_label, hop_limit, traffic_class;
	struct ehca_field dgid;
} ehca_av_fields[2] = {
	{
		.dlid = FIELD(DLID),
		.path_bits = FIELD(SOURCE_PATH_BITS),
		.sl = FIELD(SERVICE_LEVEL),
		.ipd = FIELD(MAX_STATIC_RATE),
		.send_grh = FIELD(SEND_GRH_FLAG),
		.sgid_index = FIELD(SOURCE_GID_IDX),
		.flow_label = FIELD(FLOW_LABEL),
		.hop_limit = FIELD(HOP_LIMIT),
		.traffic_class = FIELD(TRAFFIC_CLASS),
		.dgid = FIELD(DEST_GID),
	}, {
		.dlid = FIELD(DLID_AL),
		.path_bits = FIELD(SOURCE_PATH_BITS_AL),
		.sl = FIELD(SERVICE_LEVEL_AL),
		.ipd = FIELD(MAX_STATIC_RATE_AL),
		.send_grh = FIELD(SEND_GRH_FLAG_AL),
		.sgid_index = FIELD(SOURCE_GID_IDX_AL),
		.flow_label = FIELD(FLOW_LABEL_AL),
		.hop_limit = FIELD(HOP_LIMIT_AL),
		.traffic_class = FIELD(TRAFFIC_CLASS_AL),
		.dgid = FIELD(DEST_GID_AL),
	},
};

static void ehca_set_field(struct ehca_qp_change *ch, struct ehca_field field,
			   u32 val)
{
	ehca_set(ch, field.off, field.mask, val);
}

static void ehca_set_av(struct ehca_qp_change *ch, bool alt,
			struct ehca_port *port, const struct rdma_ah_attr *ah)
{
	const struct ehca_av_fields *f = &ehca_av_fields[alt];
	bool grh = rdma_ah_get_ah_flags(ah) & IB_AH_GRH;
	const struct ib_global_route *g;

	ehca_set_field(ch, f->dlid, rdma_ah_get_dlid(ah));
	ehca_set_field(ch, f->path_bits, rdma_ah_get_path_bits(ah) & 0x7f);
	ehca_set_field(ch, f->sl, rdma_ah_get_sl(ah));
	ehca_set_field(ch, f->ipd,
		       ehca_port_ipd(port, rdma_ah_get_static_rate(ah)));
	ehca_set_field(ch, f->send_grh, grh);
	if (!grh)
		return;
	g = rdma_ah_read_grh(ah);
	ehca_set_field(ch, f->sgid_index, g->sgid_index);
	ehca_set_field(ch, f->flow_label, g->flow_label);
	ehca_set_field(ch, f->hop_limit, g->hop_limit);
	ehca_set_field(ch, f->traffic_class, g->traffic_class);
	memcpy(ch->block + f->dgid.off, g->dgid.raw, 16);
	ch->mask |= f->dgid.mask;
}

/*
 * Verbs know no retry counts of the alternate path: those of the QP.  It has
 * them from RTR to RTS on; an alternate loaded earlier gets them then.
 */
static void ehca_set_alt_counts(struct ehca_qp *qp, struct ehca_qp_change *ch,
				const struct ib_qp_attr *attr, int mask,
				enum ib_qp_state cur)
{
	if (qp->ibqp.qp_type != IB_QPT_RC)
		return;
	if (mask & IB_QP_RETRY_CNT)
		SET(ch, RETRY_COUNT_AL, attr->retry_cnt);
	else if ((mask & IB_QP_ALT_PATH) && cur >= IB_QPS_RTS)
		SET(ch, RETRY_COUNT_AL,
		    get32(ch->block, EHCA_QPCB_RETRY_COUNT));
	if (mask & IB_QP_RNR_RETRY)
		SET(ch, RNR_RETRY_COUNT_AL, attr->rnr_retry);
	else if ((mask & IB_QP_ALT_PATH) && cur >= IB_QPS_RTS)
		SET(ch, RNR_RETRY_COUNT_AL,
		    get32(ch->block, EHCA_QPCB_RNR_RETRY_COUNT));
}

static void ehca_set_alt(struct ehca_qp_change *ch, struct ehca_port *port,
			 const struct ib_qp_attr *attr)
{
	SET(ch, ALT_PHYS_PORT, attr->alt_port_num);
	SET(ch, ALT_P_KEY_IDX, attr->alt_pkey_index);
	SET(ch, TIMEOUT_AL, attr->alt_timeout);
	ehca_set_av(ch, true, port, &attr->alt_ah_attr);
}

/* All that can be told from the attributes alone */
static int ehca_check_attr(struct ehca_qp *qp, const struct ib_qp_attr *attr,
			   int mask)
{
	struct ehca_dev *dev = qp->dev;
	struct ehca_port *port;
	int ret;

	if ((mask & IB_QP_PORT) && !ehca_port(dev, attr->port_num))
		return -EINVAL;
	if (mask & IB_QP_PKEY_INDEX) {
		port = ehca_port(dev, mask & IB_QP_PORT ? attr->port_num :
				 qp->port);
		if (attr->pkey_index >= (port ? READ_ONCE(port->cfg.pkey_len) :
					 EHCA_PORTCB_MAX_PKEYS))
			return -EINVAL;
	}
	if (mask & IB_QP_AV) {
		ret = ehca_check_av(&attr->ah_attr);
		if (ret)
			return ret;
	}
	if (mask & IB_QP_ALT_PATH) {
		port = ehca_port(dev, attr->alt_port_num);
		if (!port ||
		    attr->alt_pkey_index >= READ_ONCE(port->cfg.pkey_len) ||
		    attr->alt_timeout > 31)
			return -EINVAL;
		ret = ehca_check_av(&attr->alt_ah_attr);
		if (ret)
			return ret;
	}
	/* ARMED is for the adapter to say (IBTA 17.2.8.1) */
	if ((mask & IB_QP_PATH_MIG_STATE) &&
	    attr->path_mig_state != IB_MIG_MIGRATED &&
	    attr->path_mig_state != IB_MIG_REARM)
		return -EINVAL;
	if ((mask & IB_QP_PATH_MTU) && (attr->path_mtu < IB_MTU_256 ||
					attr->path_mtu > IB_MTU_4096))
		return -EINVAL;
	if ((mask & IB_QP_TIMEOUT) && attr->timeout > 31)
		return -EINVAL;
	if ((mask & IB_QP_RETRY_CNT) && attr->retry_cnt > 7)
		return -EINVAL;
	if ((mask & IB_QP_RNR_RETRY) && attr->rnr_retry > 7)
		return -EINVAL;
	if ((mask & IB_QP_MIN_RNR_TIMER) && attr->min_rnr_timer > 31)
		return -EINVAL;
	if ((mask & IB_QP_MAX_QP_RD_ATOMIC) &&
	    attr->max_rd_atomic > dev->lim.max_rd_atomic_init)
		return -EINVAL;
	if ((mask & IB_QP_MAX_DEST_RD_ATOMIC) &&
	    attr->max_dest_rd_atomic > dev->lim.max_rd_atomic_resp)
		return -EINVAL;
	if (mask & IB_QP_CAP)
		return -EOPNOTSUPP;
	return 0;
}

/* Verbs attributes into the control block (doc 17.3) */
static void ehca_fill_change(struct ehca_qp *qp, struct ehca_qp_change *ch,
			     const struct ib_qp_attr *attr, int mask,
			     enum ib_qp_state cur, enum ib_qp_state new)
{
	enum ib_qp_type type = qp->ibqp.qp_type;
	bool conn = type == IB_QPT_RC || type == IB_QPT_UC;
	u8 num = mask & IB_QP_PORT ? attr->port_num : qp->port;
	struct ehca_port *port = ehca_port(qp->dev, num) ?: &qp->dev->port[0];

	SET(ch, QP_STATE, ehca_state_to_fw(new));
	if (mask & IB_QP_PKEY_INDEX)
		SET(ch, PRIM_P_KEY_IDX, attr->pkey_index);
	if (mask & IB_QP_PORT)
		SET(ch, PRIM_PHYS_PORT, attr->port_num);
	else if (type == IB_QPT_SMI && cur == IB_QPS_RESET)
		SET(ch, PRIM_PHYS_PORT, qp->port);
	if (mask & IB_QP_QKEY)
		SET(ch, QKEY, attr->qkey);
	if (mask & IB_QP_AV)
		ehca_set_av(ch, false, port, &attr->ah_attr);
	if (mask & IB_QP_PATH_MTU)
		SET(ch, PATH_MTU, attr->path_mtu);
	if (mask & IB_QP_TIMEOUT)
		SET(ch, TIMEOUT, attr->timeout);
	if (mask & IB_QP_RETRY_CNT)
		SET(ch, RETRY_COUNT, attr->retry_cnt);
	if (mask & IB_QP_RNR_RETRY)
		SET(ch, RNR_RETRY_COUNT, attr->rnr_retry);
	if (mask & IB_QP_RQ_PSN)
		SET(ch, RECEIVE_PSN, attr->rq_psn & EHCA_PSN_MASK);
	if (mask & IB_QP_SQ_PSN)
		SET(ch, SEND_PSN, attr->sq_psn & EHCA_PSN_MASK);
	if (mask & IB_QP_MAX_DEST_RD_ATOMIC)
		SET(ch, RDMA_NR_ATOMIC_RESP_RES, attr->max_dest_rd_atomic);
	else if (type == IB_QPT_UC && cur == IB_QPS_INIT &&
		 new == IB_QPS_RTR)
		SET(ch, RDMA_NR_ATOMIC_RESP_RES, 1);
	if (mask & IB_QP_MAX_QP_RD_ATOMIC)
		SET(ch, RDMA_ATOMIC_OUTST_DEST_QP, attr->max_rd_atomic);
	if (mask & IB_QP_MIN_RNR_TIMER)
		SET(ch, MIN_RNR_NAK_TIMER_FIELD, attr->min_rnr_timer);
	if (mask & IB_QP_DEST_QPN)
		SET(ch, DEST_QP_NR, attr->dest_qp_num & EHCA_QPN_MASK);
	if (mask & IB_QP_ALT_PATH)
		ehca_set_alt(ch, ehca_port(qp->dev, attr->alt_port_num),
			     attr);
	if ((mask & IB_QP_ALT_PATH) || qp->alt_loaded)
		ehca_set_alt_counts(qp, ch, attr, mask, cur);
	if (mask & IB_QP_PATH_MIG_STATE)
		/* verbs value + 1 (doc 11.2) */
		SET(ch, PATH_MIGRATION_STATE,
		    attr->path_mig_state == IB_MIG_REARM ?
		    EHCA_MIG_REARM : EHCA_MIG_MIGRATED);
	if (conn && cur == IB_QPS_RESET && new == IB_QPS_INIT)
		SET(ch, RDMA_ATOMIC_CTRL, EHCA_RDMA_ATOMIC_CTRL_ALL);
	if (type == IB_QPT_UD && cur == IB_QPS_INIT && new == IB_QPS_RTR)
		/* the address vector of each request decides */
		SET(ch, SEND_GRH_FLAG, 1);
}

/* What software remembers, once the adapter has accepted */
static void ehca_qp_moved(struct ehca_qp *qp, const struct ib_qp_attr *attr,
			  int mask, enum ib_qp_state cur,
			  enum ib_qp_state new)
{
	if (mask & IB_QP_PORT)
		qp->port = attr->port_num;
	if (mask & IB_QP_QKEY)
		WRITE_ONCE(qp->qkey, attr->qkey);
	if (mask & IB_QP_ALT_PATH)
		qp->alt_loaded = true;

	switch (new) {
	case IB_QPS_RESET:
		/* no posts from here on, then no trace of former ones */
		ehca_qp_begin_reset(qp);
		ehca_wq_reset(&qp->sq);
		ehca_wq_reset(&qp->rq);
		WRITE_ONCE(qp->rearmed, false);
		qp->alt_loaded = false;
		WRITE_ONCE(qp->sqd_notify, false);
		break;
	case IB_QPS_ERR:
		ehca_qp_enter_err(qp, cur == IB_QPS_SQE);
		break;
	default:
		WRITE_ONCE(qp->state, new);
		break;
	}
}

static int ehca_qp_enable(struct ehca_qp *qp, struct ehca_qp_change *ch)
{
	long rc;

	ch->mask = 0;
	SET(ch, QP_ENABLE, 1);
	rc = ehca_h_modify_qp(qp->dev, qp->handle, ch->mask, ch->block);
	return rc ? ehca_rc_to_errno(rc) ?: -EIO : 0;
}

int ehca_modify_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask,
		   struct ib_udata *udata)
{
	struct ehca_qp *qp = to_eqp(ibqp);
	struct ehca_dev *dev = qp->dev;
	struct ehca_qp_change ch = {};
	enum ib_qp_state cur, new;
	bool recover;
	u64 failed = 0;
	int ret;
	long rc;

	if (mask & ~IB_QP_ATTR_STANDARD_BITS)
		return -EOPNOTSUPP;
	ch.block = kzalloc(EHCA_CB_SIZE, GFP_KERNEL);
	if (!ch.block)
		return -ENOMEM;

	mutex_lock(&qp->mutex);
	rc = ehca_h_query_qp(dev, qp->handle, ch.block, 0);
	ret = rc ? ehca_rc_to_errno(rc) ?: -EIO :
	      ehca_state_from_fw(get32(ch.block, EHCA_QPCB_QP_STATE), &cur);
	if (ret)
		goto out;
	new = mask & IB_QP_STATE ? attr->qp_state : cur;
	ret = -EINVAL;
	if ((mask & IB_QP_CUR_STATE) && attr->cur_qp_state != cur)
		goto out;
	if (!ib_modify_qp_is_ok(cur, new, ibqp->qp_type, mask))
		goto out;
	ret = ehca_check_attr(qp, attr, mask);
	if (ret)
		goto out;

	recover = cur == IB_QPS_SQE && new == IB_QPS_RTS &&
		  ehca_qp_is_ud(qp);
	if (recover) {
		ret = ehca_qp_sqe_purge(qp, &failed);
		if (ret)
			goto out;
	}
	ehca_fill_change(qp, &ch, attr, mask, cur, new);
	/* before the call: its event may be here before its answer */
	if ((mask & IB_QP_PATH_MIG_STATE) &&
	    attr->path_mig_state == IB_MIG_REARM)
		WRITE_ONCE(qp->rearmed, true);
	if (new != IB_QPS_ERR)
		WRITE_ONCE(qp->err_wanted, false);
	else if (cur != IB_QPS_ERR)
		WRITE_ONCE(qp->err_wanted, true);
	if (new == IB_QPS_SQD)
		WRITE_ONCE(qp->sqd_notify,
			   (mask & IB_QP_EN_SQD_ASYNC_NOTIFY) &&
			   attr->en_sqd_async_notify);

	rc = ehca_h_modify_qp(dev, qp->handle, ch.mask, ch.block);
	if (rc) {
		ret = ehca_rc_to_errno(rc) ?: -EIO;
		goto out;
	}
	if (recover)
		ehca_qp_sqe_done(qp, failed);
	ehca_qp_moved(qp, attr, mask, cur, new);
	if (new == IB_QPS_INIT)
		ret = ehca_qp_enable(qp, &ch);
out:
	mutex_unlock(&qp->mutex);
	kfree(ch.block);
	return ret;
}

/* ------------------------------------------------------------------ */
/* Query                                                              */
/* ------------------------------------------------------------------ */

static void ehca_get_av(struct ehca_dev *dev, const void *b, bool alt,
			u32 port_num, struct rdma_ah_attr *ah)
{
	struct ehca_port *port = ehca_port(dev, port_num) ?: &dev->port[0];
	const struct ehca_av_fields *f = &ehca_av_fields[alt];
	union ib_gid dgid;

	ah->type = RDMA_AH_ATTR_TYPE_IB;
	rdma_ah_set_dlid(ah, get32(b, f->dlid.off) & 0xffff);
	rdma_ah_set_path_bits(ah, get32(b, f->path_bits.off) & 0x7f);
	rdma_ah_set_sl(ah, get32(b, f->sl.off) & 0xf);
	rdma_ah_set_static_rate(ah, ehca_port_rate(port,
						   get32(b, f->ipd.off)));
	rdma_ah_set_port_num(ah, port_num);
	if (!(get32(b, f->send_grh.off) & 1))
		return;
	memcpy(dgid.raw, b + f->dgid.off, 16);
	rdma_ah_set_grh(ah, &dgid, get32(b, f->flow_label.off) & 0xfffff,
			get32(b, f->sgid_index.off),
			get32(b, f->hop_limit.off),
			get32(b, f->traffic_class.off));
}

static enum ib_mig_state ehca_mig_from_fw(u32 fw)
{
	switch (fw) {
	case EHCA_MIG_REARM:
		return IB_MIG_REARM;
	case EHCA_MIG_ARMED:
		return IB_MIG_ARMED;
	default:
		return IB_MIG_MIGRATED;
	}
}

int ehca_query_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask,
		  struct ib_qp_init_attr *init)
{
	struct ehca_qp *qp = to_eqp(ibqp);
	struct ehca_dev *dev = qp->dev;
	void *b;
	int ret;
	long rc;

	b = kzalloc(EHCA_CB_SIZE, GFP_KERNEL);
	if (!b)
		return -ENOMEM;
	rc = ehca_h_query_qp(dev, qp->handle, b, 0);
	ret = rc ? ehca_rc_to_errno(rc) ?: -EIO :
	      ehca_state_from_fw(get32(b, EHCA_QPCB_QP_STATE),
				 &attr->qp_state);
	if (ret)
		goto out;

	attr->cur_qp_state = attr->qp_state;
	attr->sq_draining = attr->qp_state == IB_QPS_SQD;
	attr->path_mtu = get32(b, EHCA_QPCB_PATH_MTU);
	attr->path_mig_state =
		ehca_mig_from_fw(get32(b, EHCA_QPCB_PATH_MIGRATION_STATE));
	attr->qkey = get32(b, EHCA_QPCB_QKEY);
	attr->rq_psn = get32(b, EHCA_QPCB_RECEIVE_PSN) & EHCA_PSN_MASK;
	attr->sq_psn = get32(b, EHCA_QPCB_SEND_PSN) & EHCA_PSN_MASK;
	attr->dest_qp_num = get32(b, EHCA_QPCB_DEST_QP_NR) & EHCA_QPN_MASK;
	attr->min_rnr_timer = get32(b, EHCA_QPCB_MIN_RNR_NAK_TIMER_FIELD);
	attr->timeout = get32(b, EHCA_QPCB_TIMEOUT);
	attr->retry_cnt = get32(b, EHCA_QPCB_RETRY_COUNT);
	attr->rnr_retry = get32(b, EHCA_QPCB_RNR_RETRY_COUNT);
	attr->alt_timeout = get32(b, EHCA_QPCB_TIMEOUT_AL);
	attr->pkey_index = get32(b, EHCA_QPCB_PRIM_P_KEY_IDX) & 0xff;
	attr->alt_pkey_index = get32(b, EHCA_QPCB_ALT_P_KEY_IDX) & 0xff;
	attr->port_num = get32(b, EHCA_QPCB_PRIM_PHYS_PORT) & 0xff;
	attr->alt_port_num = get32(b, EHCA_QPCB_ALT_PHYS_PORT) & 0xff;
	attr->max_dest_rd_atomic = get32(b,
					 EHCA_QPCB_RDMA_NR_ATOMIC_RESP_RES);
	attr->max_rd_atomic = get32(b, EHCA_QPCB_RDMA_ATOMIC_OUTST_DEST_QP);
	ehca_get_av(dev, b, false, attr->port_num, &attr->ah_attr);
	ehca_get_av(dev, b, true, attr->alt_port_num, &attr->alt_ah_attr);

	attr->cap.max_send_wr = qp->sq.max_post;
	attr->cap.max_recv_wr = qp->rq.max_post;
	attr->cap.max_send_sge = qp->sq.max_sge;
	attr->cap.max_recv_sge = qp->rq.max_sge;
	attr->cap.max_inline_data = 0;

	init->event_handler = ibqp->event_handler;
	init->qp_context = ibqp->qp_context;
	init->send_cq = ibqp->send_cq;
	init->recv_cq = ibqp->recv_cq;
	init->srq = ibqp->srq;
	init->cap = attr->cap;
	init->sq_sig_type = qp->sq_sig_all ? IB_SIGNAL_ALL_WR :
			    IB_SIGNAL_REQ_WR;
	init->qp_type = ibqp->qp_type;
out:
	kfree(b);
	return ret;
}
