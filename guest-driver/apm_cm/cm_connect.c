// SPDX-License-Identifier: GPL-2.0
/*
 * apm_cm: establishing a connection with REQ, REP, RTU and MRA (IBTA volume 1,
 * sections 12.6.5 to 12.6.9 and 12.9).  See cm_core.c.
 */

#include "cm.h"

/* ------------------------------------------------------------------ */
/* REQ */

static void cm_refuse_req(struct cm_rx *rx, u16 reason,
			  const struct cm_path_hint *hint)
{
	cm_reply_rej(rx, CM_WHICH_REQ,
		     IBA_GET(CM_REQ_LOCAL_COMM_ID, &rx->mad->req), reason,
		     hint, hint ? hint->len : 0);
}

/*
 * The peer's id is known: the REQ was seen before, or the peer means two
 * connections by one id.  True if it is dealt with.
 */
static bool cm_req_duplicate(struct cm_rx *rx, u32 remote_id, __be64 guid,
			     u32 qpn)
{
	struct cm_conn *c = cm_find_remote(rx->dev, remote_id, guid);

	if (!c)
		return false;
	if (c->state == APM_CM_TIMEWAIT) {
		cm_refuse_req(rx, APM_CM_REJ_STALE_CONN, NULL);
		return true;
	}
	if (c->active || c->remote_qpn != qpn) {
		cm_refuse_req(rx, APM_CM_REJ_DUPLICATE_LOCAL_COMM_ID, NULL);
		return true;
	}
	if (c->mra_held && c->state == APM_CM_REQ_RCVD)
		c->state = APM_CM_MRA_REQ_SENT;
	if (c->state == APM_CM_MRA_REQ_SENT) {
		c->via = rx->via;
		cm_repeat_answer(c, CM_ATTR_REQ);
	} else {
		/* REP_SENT: the REP has its own timer. */
		cm_count(APM_CM_RX_DUPLICATES, CM_ATTR_REQ);
	}
	return true;
}

/*
 * The peer's QP is known from another connection: the peer has forgotten that
 * one (it was restarted, say).  Refuse, and end the old one on our side.
 */
static bool cm_req_stale(struct cm_rx *rx, u32 qpn, __be64 guid)
{
	struct cm_conn *c = cm_find_remote_qpn(rx->dev, qpn, guid);
	bool lap_out;

	if (!c)
		return false;
	cm_refuse_req(rx, APM_CM_REJ_STALE_CONN, NULL);
	if (c->state == APM_CM_ESTABLISHED) {
		lap_out = cm_lap_out(c);
		cm_start_dreq(c, NULL, 0);
		cm_tell_lap_over(c, lap_out);
	}
	return true;
}

/* One of the paths of a REQ; 0 or why the REQ is refused. */
static u16 cm_req_path(struct cm_rx *rx, struct cm_conn *c, bool alternate,
		       struct sa_path_rec *rec, struct cm_path_hint *hint)
{
	static const u16 reasons[2][CM_PATH_FAULTS] = {
		{
			[CM_PATH_BAD_GID] = APM_CM_REJ_INVALID_GID,
			[CM_PATH_BAD_PKEY] = APM_CM_REJ_UNSUPPORTED,
			[CM_PATH_BAD_LID] = APM_CM_REJ_INVALID_LID,
			[CM_PATH_BAD_RATE] = APM_CM_REJ_INVALID_PACKET_RATE,
		}, {
			[CM_PATH_BAD_GID] = APM_CM_REJ_INVALID_ALT_GID,
			[CM_PATH_BAD_PKEY] = APM_CM_REJ_UNSUPPORTED,
			[CM_PATH_BAD_LID] = APM_CM_REJ_INVALID_ALT_LID,
			[CM_PATH_BAD_RATE] =
				APM_CM_REJ_INVALID_ALT_PACKET_RATE,
		},
	};
	struct cm_req_msg *req = &rx->mad->req;
	u32 hint_port = rx->via.port;
	u8 timeout;

	/* The alternate's port is whichever is not primary. */
	if (alternate && rx->dev->nports > 1)
		hint_port = c->pri.via.port == 1 ? 2 : 1;
	cm_msg_get_req_path(req, alternate, rec, &timeout);
	return reasons[alternate][cm_path_from_peer(rx, rec,
			cm_msg_req_is_routed(req, alternate), timeout,
			hint_port, alternate ? &c->alt : &c->pri, hint)];
}

static u16 cm_req_paths(struct cm_rx *rx, struct cm_conn *c,
			struct apm_cm_req_event *ev, struct cm_path_hint *hint)
{
	u16 reason = cm_req_path(rx, c, false, &ev->primary_path, hint);

	if (reason)
		return reason;
	if (c->pri.rec.mtu < IB_MTU_256 || c->pri.rec.mtu > IB_MTU_4096)
		return APM_CM_REJ_INVALID_MTU;
	ev->has_alternate = cm_msg_req_has_alternate(&rx->mad->req);
	if (!ev->has_alternate)
		return 0;
	return cm_req_path(rx, c, true, &ev->alternate_path, hint);
}

void cm_rx_req(struct cm_rx *rx)
{
	const struct ib_device_attr *limits = &rx->dev->ib->attrs;
	struct cm_req_msg *req = &rx->mad->req;
	u32 remote_id = IBA_GET(CM_REQ_LOCAL_COMM_ID, req);
	__be64 guid = cpu_to_be64(IBA_GET(CM_REQ_LOCAL_CA_GUID, req));
	__be64 service = cpu_to_be64(IBA_GET(CM_REQ_SERVICE_ID, req));
	u32 qpn = IBA_GET(CM_REQ_LOCAL_QPN, req);
	u8 transport = IBA_GET(CM_REQ_TRANSPORT_SERVICE_TYPE, req);
	struct apm_cm_event ev = { .event = APM_CM_REQ_RECEIVED };
	struct cm_conn *listener, *c;
	struct cm_path_hint hint;
	u16 reason;

	if (!remote_id || !cm_qpn_valid(qpn)) {
		cm_count_dropped();
		return;
	}
	if (cm_req_duplicate(rx, remote_id, guid, qpn) ||
	    cm_req_stale(rx, qpn, guid))
		return;

	listener = cm_find_listener(rx->dev, service);
	if (!listener) {
		cm_refuse_req(rx, APM_CM_REJ_INVALID_SERVICE_ID, NULL);
		return;
	}
	if (transport > 1) {
		cm_refuse_req(rx, APM_CM_REJ_INVALID_TRANSPORT_TYPE, NULL);
		return;
	}
	c = cm_conn_new(rx->dev, listener->id.handler, listener->id.context,
			CM_MAX_FOR_PEERS);
	if (IS_ERR(c)) {
		cm_refuse_req(rx, APM_CM_REJ_NO_RESOURCES, NULL);
		return;
	}
	reason = cm_req_paths(rx, c, &ev.u.req, &hint);
	if (reason) {
		cm_conn_bury(c);
		cm_refuse_req(rx, reason, &hint);
		return;
	}

	c->state = APM_CM_REQ_RCVD;
	c->via = rx->via;
	c->peer_tid = rx->mad->hdr.tid;
	c->remote_id = remote_id;
	c->remote_qpn = qpn;
	c->remote_ca_guid = guid;
	c->id.service_id = service;
	c->qp_type = transport ? IB_QPT_UC : IB_QPT_RC;
	c->sq_psn = IBA_GET(CM_REQ_STARTING_PSN, req);
	c->path_mtu = c->pri.rec.mtu;
	/* Theirs is ours, the other way round, as far as our device can. */
	c->responder_resources = min_t(int, limits->max_qp_rd_atom,
				       IBA_GET(CM_REQ_INITIATOR_DEPTH, req));
	c->initiator_depth = min_t(int, limits->max_qp_init_rd_atom,
				   IBA_GET(CM_REQ_RESPONDER_RESOURCES, req));
	c->retry_count = IBA_GET(CM_REQ_RETRY_COUNT, req);
	c->rnr_retry_count = IBA_GET(CM_REQ_RNR_RETRY_COUNT, req);
	c->max_retries = IBA_GET(CM_REQ_MAX_CM_RETRIES, req);
	c->remote_resp = IBA_GET(CM_REQ_LOCAL_CM_RESPONSE_TIMEOUT, req);

	ev.u.req.listen_id = &listener->id;
	ev.u.req.port = c->pri.via.port;
	ev.u.req.remote_ca_guid = guid;
	ev.u.req.remote_qpn = qpn;
	ev.u.req.qp_type = c->qp_type;
	ev.u.req.starting_psn = c->sq_psn;
	ev.u.req.responder_resources = c->responder_resources;
	ev.u.req.initiator_depth = c->initiator_depth;
	ev.u.req.local_cm_response_timeout =
		IBA_GET(CM_REQ_REMOTE_CM_RESPONSE_TIMEOUT, req);
	ev.u.req.remote_cm_response_timeout = c->remote_resp;
	ev.u.req.retry_count = c->retry_count;
	ev.u.req.rnr_retry_count = c->rnr_retry_count;
	ev.u.req.flow_control = IBA_GET(CM_REQ_END_TO_END_FLOW_CONTROL, req);
	ev.u.req.srq = IBA_GET(CM_REQ_SRQ, req);
	ev.private_data = IBA_GET_MEM_PTR(CM_REQ_PRIVATE_DATA, req);
	ev.private_data_len = APM_CM_REQ_PRIVATE_DATA_SIZE;
	cm_deliver_request(c, listener, &ev);
}

static u8 cm_pick_timeout(struct cm_conn *c, u8 asked,
			  const struct sa_path_rec *rec)
{
	if (asked)
		return min_t(u8, asked, 31);
	return cm_ack_timeout(c->dev->ib->attrs.local_ca_ack_delay,
			      rec->packet_life_time);
}

int apm_cm_send_req(struct apm_cm_id *id, const struct apm_cm_req_param *p)
{
	const struct sa_path_rec *pri = p->primary_path;
	const struct sa_path_rec *alt = p->alternate_path;
	struct cm_conn *c = cm_of(id);
	struct cm_req_msg *req;
	int ret;

	if (!pri || p->private_data_len > APM_CM_REQ_PRIVATE_DATA_SIZE ||
	    (p->private_data_len && !p->private_data) ||
	    (p->qp_type != IB_QPT_RC && p->qp_type != IB_QPT_UC) ||
	    p->max_cm_retries > 15 || p->retry_count > 7 ||
	    p->rnr_retry_count > 7 || !cm_qpn_valid(p->qp_num))
		return -EINVAL;
	/* One MTU and one P_Key per QP */
	if (alt && (alt->mtu != pri->mtu || alt->pkey != pri->pkey))
		return -EINVAL;

	mutex_lock(&cm_lock);
	if (!c->dev) {
		ret = -ENODEV;
		goto out;
	}
	if (c->state != APM_CM_IDLE) {
		ret = -EINVAL;
		goto out;
	}
	ret = cm_path_init(c->dev, pri,
			   cm_pick_timeout(c, p->ack_timeout, pri), &c->pri);
	if (!ret && alt)
		ret = cm_path_init(c->dev, alt,
				   cm_pick_timeout(c, p->ack_timeout, alt),
				   &c->alt);
	if (ret) {
		c->pri.valid = false;
		c->alt.valid = false;
		goto out;
	}

	c->active = true;
	c->local_qpn = p->qp_num;
	c->qp_type = p->qp_type;
	c->id.service_id = p->service_id;
	c->rq_psn = p->starting_psn & 0xffffff;
	c->path_mtu = pri->mtu;
	c->responder_resources = p->responder_resources;
	c->initiator_depth = p->initiator_depth;
	c->retry_count = p->retry_count;
	c->rnr_retry_count = p->rnr_retry_count;
	c->max_retries = p->max_cm_retries;
	c->remote_resp = p->remote_cm_response_timeout;
	c->lap_state = APM_CM_LAP_UNINIT;
	c->migrated = false;
	c->timeout_asked = p->ack_timeout != 0;

	cm_msg_start(&c->msg, CM_ATTR_REQ, cm_dev_tid(c->dev));
	req = &c->msg.req;
	IBA_SET(CM_REQ_LOCAL_COMM_ID, req, c->local_id);
	IBA_SET(CM_REQ_SERVICE_ID, req, be64_to_cpu(p->service_id));
	IBA_SET(CM_REQ_LOCAL_CA_GUID, req, be64_to_cpu(c->dev->ib->node_guid));
	IBA_SET(CM_REQ_LOCAL_QPN, req, p->qp_num);
	IBA_SET(CM_REQ_RESPONDER_RESOURCES, req, p->responder_resources);
	IBA_SET(CM_REQ_INITIATOR_DEPTH, req, p->initiator_depth);
	IBA_SET(CM_REQ_REMOTE_CM_RESPONSE_TIMEOUT, req,
		min_t(u8, p->remote_cm_response_timeout, 31));
	IBA_SET(CM_REQ_TRANSPORT_SERVICE_TYPE, req,
		p->qp_type == IB_QPT_UC);
	IBA_SET(CM_REQ_END_TO_END_FLOW_CONTROL, req, p->flow_control);
	IBA_SET(CM_REQ_STARTING_PSN, req, c->rq_psn);
	IBA_SET(CM_REQ_LOCAL_CM_RESPONSE_TIMEOUT, req,
		min_t(u8, p->local_cm_response_timeout, 31));
	IBA_SET(CM_REQ_RETRY_COUNT, req, p->retry_count);
	IBA_SET(CM_REQ_PARTITION_KEY, req, be16_to_cpu(pri->pkey));
	IBA_SET(CM_REQ_PATH_PACKET_PAYLOAD_MTU, req, pri->mtu & 0xf);
	IBA_SET(CM_REQ_RNR_RETRY_COUNT, req, p->rnr_retry_count);
	IBA_SET(CM_REQ_MAX_CM_RETRIES, req, p->max_cm_retries);
	IBA_SET(CM_REQ_SRQ, req, p->srq);
	cm_msg_put_req_path(req, &c->pri, false);
	if (alt)
		cm_msg_put_req_path(req, &c->alt, true);
	if (p->private_data_len)
		memcpy(IBA_GET_MEM_PTR(CM_REQ_PRIVATE_DATA, req),
		       p->private_data, p->private_data_len);

	c->state = APM_CM_REQ_SENT;
	cm_start_timed(c, cm_response_ms(c));
out:
	mutex_unlock(&cm_lock);
	return ret;
}
EXPORT_SYMBOL_GPL(apm_cm_send_req);

/* ------------------------------------------------------------------ */
/* REP and RTU */

void cm_rx_rep(struct cm_rx *rx)
{
	struct cm_rep_msg *rep = &rx->mad->rep;
	u32 remote_id = IBA_GET(CM_REP_LOCAL_COMM_ID, rep);
	struct cm_conn *c = cm_find(rx->dev,
				    IBA_GET(CM_REP_REMOTE_COMM_ID, rep),
				    remote_id);
	struct apm_cm_event ev = { .event = APM_CM_REP_RECEIVED };
	struct apm_cm_rep_event *p = &ev.u.rep;
	u8 delay;

	if (!c || !c->active || !remote_id ||
	    !cm_qpn_valid(IBA_GET(CM_REP_LOCAL_QPN, rep))) {
		cm_count_dropped();
		return;
	}
	switch (c->state) {
	case APM_CM_REQ_SENT:
	case APM_CM_MRA_REQ_RCVD:
		break;
	case APM_CM_ESTABLISHED:
		/* An MRA to a LAP: who sent that had our RTU. */
		if (c->answer_attr != CM_ATTR_RTU) {
			cm_count(APM_CM_RX_DUPLICATES, CM_ATTR_REP);
			return;
		}
		fallthrough;
	case APM_CM_MRA_REP_SENT:
		/* Our RTU or MRA was lost. */
		c->via = rx->via;
		cm_repeat_answer(c, CM_ATTR_REP);
		return;
	case APM_CM_REP_RCVD:
		cm_count(APM_CM_RX_DUPLICATES, CM_ATTR_REP);
		if (c->mra_held) {
			c->state = APM_CM_MRA_REP_SENT;
			c->via = rx->via;
			cm_send_answer(c);
		}
		return;
	default:
		cm_count_dropped();
		return;
	}

	p->remote_ca_guid = cpu_to_be64(IBA_GET(CM_REP_LOCAL_CA_GUID, rep));
	p->remote_qpn = IBA_GET(CM_REP_LOCAL_QPN, rep);
	p->starting_psn = IBA_GET(CM_REP_STARTING_PSN, rep);
	/* Not more than the REQ asked for (IBTA 12.7.29, 12.7.30) */
	p->responder_resources = min_t(u8, c->responder_resources,
				       IBA_GET(CM_REP_INITIATOR_DEPTH, rep));
	p->initiator_depth = min_t(u8, c->initiator_depth,
				   IBA_GET(CM_REP_RESPONDER_RESOURCES, rep));
	p->target_ack_delay = IBA_GET(CM_REP_TARGET_ACK_DELAY, rep);
	p->failover_accepted = IBA_GET(CM_REP_FAILOVER_ACCEPTED, rep);
	p->rnr_retry_count = IBA_GET(CM_REP_RNR_RETRY_COUNT, rep);
	p->flow_control = IBA_GET(CM_REP_END_TO_END_FLOW_CONTROL, rep);
	p->srq = IBA_GET(CM_REP_SRQ, rep);

	cm_stop_timed(c);
	c->state = APM_CM_REP_RCVD;
	c->via = rx->via;
	c->peer_tid = rx->mad->hdr.tid;
	c->remote_id = remote_id;
	c->remote_qpn = p->remote_qpn;
	c->remote_ca_guid = p->remote_ca_guid;
	c->sq_psn = p->starting_psn;
	c->responder_resources = p->responder_resources;
	c->initiator_depth = p->initiator_depth;
	c->rnr_retry_count = p->rnr_retry_count;
	c->target_ack_delay = p->target_ack_delay;
	/* Now the target's delay is known. */
	delay = c->target_ack_delay;
	if (!c->timeout_asked) {
		c->pri.timeout = cm_ack_timeout(delay,
						c->pri.rec.packet_life_time);
		if (c->alt.valid)
			c->alt.timeout =
				cm_ack_timeout(delay,
					       c->alt.rec.packet_life_time);
	}
	if (p->failover_accepted != APM_CM_FAILOVER_ACCEPTED)
		c->alt.valid = false;

	ev.private_data = IBA_GET_MEM_PTR(CM_REP_PRIVATE_DATA, rep);
	ev.private_data_len = APM_CM_REP_PRIVATE_DATA_SIZE;
	cm_deliver(c, &ev);
}

int apm_cm_send_rep(struct apm_cm_id *id, const struct apm_cm_rep_param *p)
{
	struct cm_conn *c = cm_of(id);
	struct cm_rep_msg *rep;
	int ret = 0;

	if (p->private_data_len > APM_CM_REP_PRIVATE_DATA_SIZE ||
	    (p->private_data_len && !p->private_data) ||
	    p->rnr_retry_count > 7 || !cm_qpn_valid(p->qp_num))
		return -EINVAL;

	mutex_lock(&cm_lock);
	if (!c->dev) {
		ret = -ENODEV;
		goto out;
	}
	if (c->state != APM_CM_REQ_RCVD && c->state != APM_CM_MRA_REQ_SENT) {
		ret = -EINVAL;
		goto out;
	}
	c->local_qpn = p->qp_num;
	c->rq_psn = p->starting_psn & 0xffffff;
	c->responder_resources = p->responder_resources;
	c->initiator_depth = p->initiator_depth;
	if (p->failover_accepted != APM_CM_FAILOVER_ACCEPTED)
		c->alt.valid = false;

	cm_msg_start(&c->msg, CM_ATTR_REP, c->peer_tid);
	cm_put_ids(&c->msg, c->local_id, c->remote_id);
	rep = &c->msg.rep;
	IBA_SET(CM_REP_LOCAL_QPN, rep, p->qp_num);
	IBA_SET(CM_REP_STARTING_PSN, rep, c->rq_psn);
	IBA_SET(CM_REP_RESPONDER_RESOURCES, rep, p->responder_resources);
	IBA_SET(CM_REP_INITIATOR_DEPTH, rep, p->initiator_depth);
	IBA_SET(CM_REP_TARGET_ACK_DELAY, rep,
		min_t(u8, c->dev->ib->attrs.local_ca_ack_delay, 31));
	IBA_SET(CM_REP_FAILOVER_ACCEPTED, rep, p->failover_accepted & 3);
	IBA_SET(CM_REP_END_TO_END_FLOW_CONTROL, rep, p->flow_control);
	IBA_SET(CM_REP_RNR_RETRY_COUNT, rep, p->rnr_retry_count);
	IBA_SET(CM_REP_SRQ, rep, p->srq);
	IBA_SET(CM_REP_LOCAL_CA_GUID, rep, be64_to_cpu(c->dev->ib->node_guid));
	if (p->private_data_len)
		memcpy(IBA_GET_MEM_PTR(CM_REP_PRIVATE_DATA, rep),
		       p->private_data, p->private_data_len);
	c->answer_attr = 0;
	c->mra_held = false;
	c->state = APM_CM_REP_SENT;
	cm_start_timed(c, cm_response_ms(c));
out:
	mutex_unlock(&cm_lock);
	return ret;
}
EXPORT_SYMBOL_GPL(apm_cm_send_rep);

void cm_rx_rtu(struct cm_rx *rx)
{
	struct cm_rtu_msg *rtu = &rx->mad->rtu;
	struct cm_conn *c = cm_find(rx->dev,
				    IBA_GET(CM_RTU_REMOTE_COMM_ID, rtu),
				    IBA_GET(CM_RTU_LOCAL_COMM_ID, rtu));

	if (!c) {
		cm_count_dropped();
		return;
	}
	if (c->state != APM_CM_REP_SENT && c->state != APM_CM_MRA_REP_RCVD) {
		cm_count(APM_CM_RX_DUPLICATES, CM_ATTR_RTU);
		return;
	}
	cm_stop_timed(c);
	c->state = APM_CM_ESTABLISHED;
	cm_deliver_simple(c, APM_CM_RTU_RECEIVED,
			  IBA_GET_MEM_PTR(CM_RTU_PRIVATE_DATA, rtu),
			  APM_CM_RTU_PRIVATE_DATA_SIZE);
}

int apm_cm_send_rtu(struct apm_cm_id *id, const void *private_data, u8 len)
{
	struct cm_conn *c = cm_of(id);
	int ret = 0;

	if (len > APM_CM_RTU_PRIVATE_DATA_SIZE || (len && !private_data))
		return -EINVAL;
	mutex_lock(&cm_lock);
	if (c->state != APM_CM_REP_RCVD && c->state != APM_CM_MRA_REP_SENT) {
		ret = -EINVAL;
		goto out;
	}
	cm_start_answer(c, CM_ATTR_RTU);
	if (len)
		memcpy(IBA_GET_MEM_PTR(CM_RTU_PRIVATE_DATA, &c->answer.rtu),
		       private_data, len);
	c->state = APM_CM_ESTABLISHED;
	/* If it cannot go out now, the repeated REP asks for it again. */
	cm_send_answer(c);
out:
	mutex_unlock(&cm_lock);
	return ret;
}
EXPORT_SYMBOL_GPL(apm_cm_send_rtu);

/*
 * A LAP or DREQ proves that the peer is established, so the RTU was lost.
 * The consumer is told; returns the connection if it still exists.
 */
struct cm_conn *cm_establish(struct cm_conn *c)
{
	u32 local_id = c->local_id, remote_id = c->remote_id;
	struct cm_device *dev = c->dev;

	if (c->state != APM_CM_REP_SENT && c->state != APM_CM_MRA_REP_RCVD)
		return c;
	cm_stop_timed(c);
	c->state = APM_CM_ESTABLISHED;
	cm_deliver_simple(c, APM_CM_USER_ESTABLISHED, NULL, 0);
	return cm_find(dev, local_id, remote_id);
}

/* ------------------------------------------------------------------ */
/* MRA */

/* The answer to a message of ours is prolonged: 0, or what the MRA is. */
static int cm_mra_prolongs(struct cm_conn *c, u8 which)
{
	if (which == CM_WHICH_REQ && c->state == APM_CM_REQ_SENT)
		c->state = APM_CM_MRA_REQ_RCVD;
	else if (which == CM_WHICH_REP && c->state == APM_CM_REP_SENT)
		c->state = APM_CM_MRA_REP_RCVD;
	else if (which == CM_WHICH_LAP && c->state == APM_CM_ESTABLISHED &&
		 c->lap_state == APM_CM_LAP_SENT)
		c->lap_state = APM_CM_MRA_LAP_RCVD;
	else if (c->state == APM_CM_MRA_REQ_RCVD ||
		 c->state == APM_CM_MRA_REP_RCVD ||
		 c->lap_state == APM_CM_MRA_LAP_RCVD)
		return -EALREADY;
	else
		return -EINVAL;
	return 0;
}

void cm_rx_mra(struct cm_rx *rx)
{
	struct cm_mra_msg *mra = &rx->mad->mra;
	struct cm_conn *c = cm_find(rx->dev,
				    IBA_GET(CM_MRA_REMOTE_COMM_ID, mra),
				    IBA_GET(CM_MRA_LOCAL_COMM_ID, mra));
	struct apm_cm_event ev = { .event = APM_CM_MRA_RECEIVED };
	int ret;

	ret = c ? cm_mra_prolongs(c, IBA_GET(CM_MRA_MESSAGE_MRAED, mra)) :
		  -EINVAL;
	if (ret == -EALREADY)
		cm_count(APM_CM_RX_DUPLICATES, CM_ATTR_MRA);
	else if (ret)
		cm_count_dropped();
	if (ret)
		return;
	ev.u.mra.service_timeout = IBA_GET(CM_MRA_SERVICE_TIMEOUT, mra);
	cm_prolong_timed(c, cm_time_ms(ev.u.mra.service_timeout) +
			    cm_time_ms(c->pri.timeout));
	ev.private_data = IBA_GET_MEM_PTR(CM_MRA_PRIVATE_DATA, mra);
	ev.private_data_len = APM_CM_MRA_PRIVATE_DATA_SIZE;
	cm_deliver(c, &ev);
}

int apm_cm_send_mra(struct apm_cm_id *id, u8 service_timeout,
		    const void *private_data, u8 len)
{
	bool delay = service_timeout & APM_CM_MRA_DELAY;
	struct cm_conn *c = cm_of(id);
	enum cm_which which;
	int ret = 0;

	service_timeout &= ~APM_CM_MRA_DELAY;
	if (service_timeout > 31 || len > APM_CM_MRA_PRIVATE_DATA_SIZE ||
	    (len && !private_data))
		return -EINVAL;
	mutex_lock(&cm_lock);
	if (c->state == APM_CM_REQ_RCVD) {
		which = CM_WHICH_REQ;
	} else if (c->state == APM_CM_REP_RCVD) {
		which = CM_WHICH_REP;
	} else if (c->state == APM_CM_ESTABLISHED &&
		   c->lap_state == APM_CM_LAP_RCVD) {
		which = CM_WHICH_LAP;
	} else {
		ret = -EINVAL;
		goto out;
	}
	cm_start_answer(c, CM_ATTR_MRA);
	if (which == CM_WHICH_LAP)
		c->answer.hdr.tid = c->lap_tid;
	IBA_SET(CM_MRA_MESSAGE_MRAED, &c->answer.mra, which);
	IBA_SET(CM_MRA_SERVICE_TIMEOUT, &c->answer.mra, service_timeout);
	if (len)
		memcpy(IBA_GET_MEM_PTR(CM_MRA_PRIVATE_DATA, &c->answer.mra),
		       private_data, len);
	if (delay) {
		c->mra_held = true;
		goto out;
	}
	if (which == CM_WHICH_LAP) {
		ret = c->dev ? cm_dev_send(c->dev, &c->lap_via, &c->answer,
					   false) : -ENODEV;
		if (!ret)
			c->lap_state = APM_CM_MRA_LAP_SENT;
	} else {
		ret = cm_send_answer(c);
		if (!ret)
			c->state = which == CM_WHICH_REQ ?
				   APM_CM_MRA_REQ_SENT : APM_CM_MRA_REP_SENT;
	}
out:
	mutex_unlock(&cm_lock);
	return ret;
}
EXPORT_SYMBOL_GPL(apm_cm_send_mra);
