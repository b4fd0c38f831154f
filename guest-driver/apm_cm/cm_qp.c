// SPDX-License-Identifier: GPL-2.0
/*
 * apm_cm: attributes for the consumer's queue pair, from what the two ends
 * agreed on.
 */

#include "cm.h"

#define CM_MIN_RNR_TIMER	12	/* 0.64 ms */

static void cm_put_alt(const struct cm_path *alt, struct ib_qp_attr *attr,
		       int *mask)
{
	*mask |= IB_QP_ALT_PATH;
	attr->alt_port_num = alt->via.port;
	attr->alt_pkey_index = alt->via.pkey_index;
	attr->alt_timeout = alt->timeout;
	attr->alt_ah_attr = alt->via.ah;
}

static int cm_rearm_attr(struct cm_conn *c, struct ib_qp_attr *attr, int *mask)
{
	const struct cm_path *alt = &c->alt;

	if (c->state != APM_CM_ESTABLISHED)
		return -ENOTCONN;
	if (c->lap_state == APM_CM_LAP_RCVD ||
	    c->lap_state == APM_CM_MRA_LAP_SENT)
		alt = &c->pend;
	if (!alt->valid)
		return -ENOENT;
	*mask = IB_QP_PATH_MIG_STATE;
	attr->path_mig_state = IB_MIG_REARM;
	cm_put_alt(alt, attr, mask);
	return 0;
}

int apm_cm_init_rearm_attr(struct apm_cm_id *id, struct ib_qp_attr *attr,
			   int *attr_mask)
{
	struct cm_conn *c = cm_of(id);
	int ret;

	mutex_lock(&cm_lock);
	ret = cm_rearm_attr(c, attr, attr_mask);
	mutex_unlock(&cm_lock);
	return ret;
}
EXPORT_SYMBOL_GPL(apm_cm_init_rearm_attr);

static int cm_rtr_attr(struct cm_conn *c, struct ib_qp_attr *attr, int *mask)
{
	*mask = IB_QP_STATE | IB_QP_AV | IB_QP_PATH_MTU | IB_QP_DEST_QPN |
		IB_QP_RQ_PSN;
	attr->ah_attr = c->pri.via.ah;
	attr->path_mtu = c->path_mtu;
	attr->dest_qp_num = c->remote_qpn;
	attr->rq_psn = c->rq_psn;
	if (c->qp_type == IB_QPT_RC) {
		*mask |= IB_QP_MAX_DEST_RD_ATOMIC | IB_QP_MIN_RNR_TIMER;
		attr->max_dest_rd_atomic = c->responder_resources;
		attr->min_rnr_timer = CM_MIN_RNR_TIMER;
	}
	if (c->alt.valid)
		cm_put_alt(&c->alt, attr, mask);
	return 0;
}

static int cm_rts_attr(struct cm_conn *c, struct ib_qp_attr *attr, int *mask)
{
	/* After a LAP the QP is in RTS already. */
	if (c->state == APM_CM_ESTABLISHED &&
	    c->lap_state != APM_CM_LAP_UNINIT)
		return cm_rearm_attr(c, attr, mask);

	*mask = IB_QP_STATE | IB_QP_SQ_PSN;
	attr->sq_psn = c->sq_psn;
	if (c->qp_type == IB_QPT_RC) {
		*mask |= IB_QP_TIMEOUT | IB_QP_RETRY_CNT | IB_QP_RNR_RETRY |
			 IB_QP_MAX_QP_RD_ATOMIC;
		attr->timeout = c->pri.timeout;
		attr->retry_cnt = c->retry_count;
		attr->rnr_retry = c->rnr_retry_count;
		attr->max_rd_atomic = c->initiator_depth;
	}
	if (c->alt.valid) {
		*mask |= IB_QP_PATH_MIG_STATE;
		attr->path_mig_state = IB_MIG_REARM;
	}
	return 0;
}

int apm_cm_init_qp_attr(struct apm_cm_id *id, struct ib_qp_attr *attr,
			int *attr_mask)
{
	struct cm_conn *c = cm_of(id);
	int ret = 0;

	mutex_lock(&cm_lock);
	if (!c->pri.valid) {
		ret = -EINVAL;
		goto out;
	}
	switch (attr->qp_state) {
	case IB_QPS_INIT:
		*attr_mask = IB_QP_STATE | IB_QP_ACCESS_FLAGS |
			     IB_QP_PKEY_INDEX | IB_QP_PORT;
		attr->qp_access_flags = IB_ACCESS_REMOTE_WRITE;
		if (c->responder_resources)
			attr->qp_access_flags |= IB_ACCESS_REMOTE_READ |
						 IB_ACCESS_REMOTE_ATOMIC;
		attr->pkey_index = c->pri.via.pkey_index;
		attr->port_num = c->pri.via.port;
		break;
	case IB_QPS_RTR:
		if (!c->remote_qpn)
			ret = -EINVAL;
		else
			ret = cm_rtr_attr(c, attr, attr_mask);
		break;
	case IB_QPS_RTS:
		if (!c->remote_qpn)
			ret = -EINVAL;
		else
			ret = cm_rts_attr(c, attr, attr_mask);
		break;
	default:
		ret = -EINVAL;
		break;
	}
out:
	mutex_unlock(&cm_lock);
	return ret;
}
EXPORT_SYMBOL_GPL(apm_cm_init_qp_attr);
