// SPDX-License-Identifier: GPL-2.0
/*
 * apm_cm: refusing a connection with REJ, ending it with DREQ and DREP (IBTA
 * volume 1, sections 12.6.7, 12.6.10, 12.6.11 and 12.9).  See cm_core.c.
 */

#include "cm.h"

/* ------------------------------------------------------------------ */
/* REJ */

static void cm_put_rej(struct cm_mad *mad, enum cm_which which, u16 reason,
		       const void *ari, u8 ari_len)
{
	IBA_SET(CM_REJ_MESSAGE_REJECTED, &mad->rej, which);
	IBA_SET(CM_REJ_REASON, &mad->rej, reason);
	IBA_SET(CM_REJ_REJECTED_INFO_LENGTH, &mad->rej, ari_len);
	if (ari_len)
		memcpy(IBA_GET_MEM_PTR(CM_REJ_ARI, &mad->rej), ari, ari_len);
}

void cm_reply_rej(struct cm_rx *rx, enum cm_which which, u32 remote_id,
		  u16 reason, const void *ari, u8 ari_len)
{
	struct cm_mad mad;

	cm_msg_start(&mad, CM_ATTR_REJ, rx->mad->hdr.tid);
	cm_put_ids(&mad, 0, remote_id);
	cm_put_rej(&mad, which, reason, ari, ari_len);
	cm_reply(rx, &mad);
}

/* A REJ for this connection, in place of whatever was to be said. */
void cm_send_rej_now(struct cm_conn *c, u16 reason, const void *ari,
		     u8 ari_len, const void *private_data, u8 len)
{
	enum cm_which which = CM_WHICH_OTHER;
	struct cm_mad mad;
	bool by_path = false;
	__be64 tid = c->peer_tid;
	u32 local_id = c->local_id;

	switch (c->state) {
	case APM_CM_REQ_RCVD:
	case APM_CM_MRA_REQ_SENT:
		which = CM_WHICH_REQ;
		local_id = 0;
		break;
	case APM_CM_REP_RCVD:
	case APM_CM_MRA_REP_SENT:
		which = CM_WHICH_REP;
		break;
	default:
		by_path = true;
		tid = c->msg.hdr.tid;
		break;
	}
	if (!c->dev)
		return;
	cm_msg_start(&mad, CM_ATTR_REJ, tid);
	cm_put_ids(&mad, local_id, c->remote_id);
	cm_put_rej(&mad, which, reason, ari, ari_len);
	if (len)
		memcpy(IBA_GET_MEM_PTR(CM_REJ_PRIVATE_DATA, &mad.rej),
		       private_data, len);
	cm_dev_send(c->dev, by_path ? &c->pri.via : &c->via, &mad, false);
}

void cm_send_rej_timeout(struct cm_conn *c)
{
	__be64 guid = c->dev ? c->dev->ib->node_guid : 0;

	cm_send_rej_now(c, APM_CM_REJ_TIMEOUT, &guid, sizeof(guid), NULL, 0);
}

void cm_rx_rej(struct cm_rx *rx)
{
	struct cm_rej_msg *rej = &rx->mad->rej;
	u32 sender = IBA_GET(CM_REJ_LOCAL_COMM_ID, rej);
	u32 ours = IBA_GET(CM_REJ_REMOTE_COMM_ID, rej);
	u16 reason = IBA_GET(CM_REJ_REASON, rej);
	u8 which = IBA_GET(CM_REJ_MESSAGE_REJECTED, rej);
	struct apm_cm_event ev = { .event = APM_CM_REJ_RECEIVED };
	struct cm_conn *c;
	bool lap_out;

	if (reason == APM_CM_REJ_TIMEOUT) {
		__be64 guid;

		/*
		 * The peer may not know our id: its own and its GUID.  Those
		 * of a connection that has no peer yet are 0: nobody's.
		 */
		memcpy(&guid, IBA_GET_MEM_PTR(CM_REJ_ARI, rej), sizeof(guid));
		c = sender ? cm_find_remote(rx->dev, sender, guid) : NULL;
		if (!c)
			c = cm_find(rx->dev, ours, sender);
	} else if (which == CM_WHICH_REQ) {
		c = cm_find_local(ours);
		if (c && (!c->active || c->dev != rx->dev ||
			  (c->state != APM_CM_REQ_SENT &&
			   c->state != APM_CM_MRA_REQ_RCVD)))
			c = NULL;
	} else {
		c = cm_find(rx->dev, ours, sender);
	}
	if (!c)
		goto drop;

	switch (c->state) {
	case APM_CM_REQ_SENT:
	case APM_CM_MRA_REQ_RCVD:
	case APM_CM_REP_SENT:
	case APM_CM_MRA_REP_RCVD:
	case APM_CM_REP_RCVD:
	case APM_CM_MRA_REP_SENT:
		if (reason == APM_CM_REJ_STALE_CONN) {
			cm_stop_timed(c);
			cm_enter_timewait(c);
		} else {
			cm_enter_idle(c);
		}
		break;
	case APM_CM_REQ_RCVD:
	case APM_CM_MRA_REQ_SENT:
		cm_enter_idle(c);
		break;
	case APM_CM_ESTABLISHED:
	case APM_CM_DREQ_SENT:
		/* Whatever the LAP state: a LAP that is out ends here. */
		lap_out = cm_lap_out(c);
		cm_stop_timed(c);
		cm_enter_timewait(c);
		c = cm_tell_lap_over(c, lap_out);
		if (!c || c->state != APM_CM_TIMEWAIT)
			return;
		break;
	default:
		goto drop;
	}
	ev.u.rej.reason = reason;
	ev.u.rej.ari = IBA_GET_MEM_PTR(CM_REJ_ARI, rej);
	ev.u.rej.ari_length = min_t(u8, IBA_GET(CM_REJ_REJECTED_INFO_LENGTH,
						rej), APM_CM_INFO_SIZE);
	ev.private_data = IBA_GET_MEM_PTR(CM_REJ_PRIVATE_DATA, rej);
	ev.private_data_len = APM_CM_REJ_PRIVATE_DATA_SIZE;
	cm_deliver(c, &ev);
	return;
drop:
	cm_count_dropped();
}

int apm_cm_send_rej(struct apm_cm_id *id, enum apm_cm_rej_reason reason,
		    const void *ari, u8 ari_length,
		    const void *private_data, u8 len)
{
	struct cm_conn *c = cm_of(id);
	int ret = 0;

	if (ari_length > APM_CM_INFO_SIZE || (ari_length && !ari) ||
	    len > APM_CM_REJ_PRIVATE_DATA_SIZE || (len && !private_data))
		return -EINVAL;
	mutex_lock(&cm_lock);
	switch (c->state) {
	case APM_CM_REQ_SENT:
	case APM_CM_MRA_REQ_RCVD:
	case APM_CM_REQ_RCVD:
	case APM_CM_MRA_REQ_SENT:
		cm_send_rej_now(c, reason, ari, ari_length, private_data, len);
		cm_enter_idle(c);
		break;
	case APM_CM_REP_RCVD:
	case APM_CM_MRA_REP_SENT:
	case APM_CM_REP_SENT:
	case APM_CM_MRA_REP_RCVD:
		cm_send_rej_now(c, reason, ari, ari_length, private_data, len);
		cm_enter_timewait(c);
		break;
	default:
		ret = -EINVAL;
		break;
	}
	mutex_unlock(&cm_lock);
	return ret;
}
EXPORT_SYMBOL_GPL(apm_cm_send_rej);

/* ------------------------------------------------------------------ */
/* DREQ and DREP */

void cm_start_dreq(struct cm_conn *c, const void *private_data, u8 len)
{
	/* A LAP of ours that is out is over with this: one timed message. */
	c->lap_state = APM_CM_LAP_IDLE;
	c->pend.valid = false;
	cm_msg_start(&c->msg, CM_ATTR_DREQ, cm_dev_tid(c->dev));
	cm_put_ids(&c->msg, c->local_id, c->remote_id);
	IBA_SET(CM_DREQ_REMOTE_QPN_EECN, &c->msg.dreq, c->remote_qpn);
	if (len)
		memcpy(IBA_GET_MEM_PTR(CM_DREQ_PRIVATE_DATA, &c->msg.dreq),
		       private_data, len);
	c->state = APM_CM_DREQ_SENT;
	cm_start_timed(c, cm_response_ms(c));
}

void cm_answer_drep(struct cm_conn *c, const void *private_data, u8 len)
{
	cm_start_answer(c, CM_ATTR_DREP);
	if (len)
		memcpy(IBA_GET_MEM_PTR(CM_DREP_PRIVATE_DATA, &c->answer.drep),
		       private_data, len);
	cm_send_answer(c);
	cm_enter_timewait(c);
}

void cm_rx_dreq(struct cm_rx *rx)
{
	struct cm_dreq_msg *dreq = &rx->mad->dreq;
	u32 ours = IBA_GET(CM_DREQ_REMOTE_COMM_ID, dreq);
	u32 sender = IBA_GET(CM_DREQ_LOCAL_COMM_ID, dreq);
	struct cm_conn *c = cm_find(rx->dev, ours, sender);
	struct cm_mad mad;
	bool lap_out;

	if (!c) {
		/* Already forgotten: the peer must not wait for us. */
		cm_msg_start(&mad, CM_ATTR_DREP, rx->mad->hdr.tid);
		cm_put_ids(&mad, ours, sender);
		cm_reply(rx, &mad);
		return;
	}
	if (IBA_GET(CM_DREQ_REMOTE_QPN_EECN, dreq) != c->local_qpn) {
		cm_count_dropped();
		return;
	}
	c = cm_establish(c);
	if (!c)
		return;

	switch (c->state) {
	case APM_CM_ESTABLISHED:
	case APM_CM_DREQ_SENT:
	case APM_CM_REP_RCVD:
	case APM_CM_MRA_REP_SENT:
		break;
	case APM_CM_TIMEWAIT:
		cm_count(APM_CM_RX_DUPLICATES, CM_ATTR_DREQ);
		cm_msg_start(&mad, CM_ATTR_DREP, rx->mad->hdr.tid);
		cm_put_ids(&mad, c->local_id, c->remote_id);
		cm_reply(rx, &mad);
		return;
	case APM_CM_DREQ_RCVD:
		cm_count(APM_CM_RX_DUPLICATES, CM_ATTR_DREQ);
		return;
	default:
		cm_count_dropped();
		return;
	}
	/* Ends a LAP and a DREQ of our own at once. */
	lap_out = cm_lap_out(c);
	cm_stop_timed(c);
	c->lap_state = APM_CM_LAP_IDLE;
	c->pend.valid = false;
	c->state = APM_CM_DREQ_RCVD;
	c->via = rx->via;
	c->peer_tid = rx->mad->hdr.tid;
	if (c->orphan) {
		cm_answer_drep(c, NULL, 0);
		return;
	}
	c = cm_tell_lap_over(c, lap_out);
	if (!c || c->state != APM_CM_DREQ_RCVD)
		return;
	cm_deliver_simple(c, APM_CM_DREQ_RECEIVED,
			  IBA_GET_MEM_PTR(CM_DREQ_PRIVATE_DATA, dreq),
			  APM_CM_DREQ_PRIVATE_DATA_SIZE);
}

void cm_rx_drep(struct cm_rx *rx)
{
	struct cm_drep_msg *drep = &rx->mad->drep;
	struct cm_conn *c = cm_find(rx->dev,
				    IBA_GET(CM_DREP_REMOTE_COMM_ID, drep),
				    IBA_GET(CM_DREP_LOCAL_COMM_ID, drep));

	if (!c || (c->state != APM_CM_DREQ_SENT &&
		   c->state != APM_CM_DREQ_RCVD) ||
	    rx->mad->hdr.tid != c->msg.hdr.tid) {
		cm_count_dropped();
		return;
	}
	cm_stop_timed(c);
	cm_enter_timewait(c);
	cm_deliver_simple(c, APM_CM_DREP_RECEIVED,
			  IBA_GET_MEM_PTR(CM_DREP_PRIVATE_DATA, drep),
			  APM_CM_DREP_PRIVATE_DATA_SIZE);
}

int apm_cm_send_dreq(struct apm_cm_id *id, const void *private_data, u8 len)
{
	struct cm_conn *c = cm_of(id);
	int ret = 0;

	if (len > APM_CM_DREQ_PRIVATE_DATA_SIZE || (len && !private_data))
		return -EINVAL;
	mutex_lock(&cm_lock);
	if (!c->dev)
		ret = -ENODEV;
	else if (c->state != APM_CM_ESTABLISHED)
		ret = -EINVAL;
	else
		cm_start_dreq(c, private_data, len);
	mutex_unlock(&cm_lock);
	return ret;
}
EXPORT_SYMBOL_GPL(apm_cm_send_dreq);

int apm_cm_send_drep(struct apm_cm_id *id, const void *private_data, u8 len)
{
	struct cm_conn *c = cm_of(id);
	int ret = 0;

	if (len > APM_CM_DREP_PRIVATE_DATA_SIZE || (len && !private_data))
		return -EINVAL;
	mutex_lock(&cm_lock);
	if (!c->dev)
		ret = -ENODEV;
	else if (c->state != APM_CM_DREQ_RCVD)
		ret = -EINVAL;
	else
		cm_answer_drep(c, private_data, len);
	mutex_unlock(&cm_lock);
	return ret;
}
EXPORT_SYMBOL_GPL(apm_cm_send_drep);
