// SPDX-License-Identifier: GPL-2.0
/*
 * apm_cm: loading an alternate path with LAP and APR (IBTA volume 1, section
 * 12.8), and migration to it.  See cm_core.c.
 */
#include <linux/jiffies.h>

#include "cm.h"

#define CM_APR_REPEAT_MS	2000	/* a refusal is repeated this long */

/* A LAP of ours waits for its APR. */
bool cm_lap_out(const struct cm_conn *c)
{
	return c->state == APM_CM_ESTABLISHED &&
	       (c->lap_state == APM_CM_LAP_SENT ||
		c->lap_state == APM_CM_MRA_LAP_RCVD);
}

/*
 * The connection ends while a LAP of ours is out: the consumer waits for its
 * end.  @c has left ESTABLISHED already; returns it if it still exists.
 */
struct cm_conn *cm_tell_lap_over(struct cm_conn *c, bool was_out)
{
	u32 local_id = c->local_id;
	struct apm_cm_event ev = {
		.event = APM_CM_LAP_ERROR,
		.u.lap_error.why = APM_CM_LAP_DISCONNECT,
	};

	if (!was_out)
		return c;
	cm_deliver(c, &ev);
	/* Not freed before this work ends, but the consumer may be gone. */
	return cm_find_local(local_id) == c ? c : NULL;
}

/* ------------------------------------------------------------------ */
/* LAP */

static void cm_reply_apr(struct cm_rx *rx, u32 local_id, u32 remote_id,
			 u8 status, const void *info, u8 info_len)
{
	struct cm_mad mad;

	cm_msg_start(&mad, CM_ATTR_APR, rx->mad->hdr.tid);
	cm_put_ids(&mad, local_id, remote_id);
	IBA_SET(CM_APR_AR_STATUS, &mad.apr, status);
	IBA_SET(CM_APR_ADDITIONAL_INFORMATION_LENGTH, &mad.apr, info_len);
	if (info_len)
		memcpy(IBA_GET_MEM_PTR(CM_APR_ADDITIONAL_INFORMATION,
				       &mad.apr), info, info_len);
	cm_reply(rx, &mad);
}

/* IBTA 12.8.1; the order of apm-and-cm checks. 0 or an APR status. */
static u8 cm_check_lap(struct cm_rx *rx, struct cm_conn *c,
		       struct cm_path *path, struct cm_path_hint *hint)
{
	static const u8 statuses[CM_PATH_FAULTS] = {
		[CM_PATH_BAD_GID] = APM_CM_APR_INVALID_GID,
		[CM_PATH_BAD_PKEY] = APM_CM_APR_REJECT,
		[CM_PATH_BAD_LID] = APM_CM_APR_INVALID_LID,
		[CM_PATH_BAD_RATE] = APM_CM_APR_INVALID_PACKET_RATE,
	};
	struct cm_lap_msg *lap = &rx->mad->lap;
	struct sa_path_rec rec;
	u8 status, timeout;

	hint->len = 0;

	if (IBA_GET(CM_LAP_REMOTE_QPN_EECN, lap) != c->local_qpn)
		return APM_CM_APR_INVALID_QPN;
	cm_msg_get_lap_path(lap, c->pri.rec.pkey, c->path_mtu, &rec, &timeout);
	status = statuses[cm_path_from_peer(rx, &rec, cm_msg_lap_is_routed(lap),
					    timeout, rx->via.port, path, hint)];
	if (status)
		return status;
	if (cm_same_path(path, &c->pri))
		return APM_CM_APR_IS_CURRENT;
	if (!cm_apm_supported(rx->dev, path->via.port))
		return APM_CM_APR_UNSUPPORTED;
	return APM_CM_APR_SUCCESS;
}

/*
 * A repetition of the LAP answered last.  Linux peers use one transaction id
 * for all LAPs of a connection, so the contents must agree as well, and the
 * answer must still be true: a loaded alternate until it is migrated to, a
 * refusal for a moment only.
 */
static bool cm_lap_repeated(struct cm_conn *c, const struct cm_mad *mad)
{
	if (!c->apr_valid || mad->hdr.tid != c->lap_tid ||
	    memcmp(mad->bytes + IB_MGMT_MAD_HDR, c->lap_body, CM_LAP_BODY))
		return false;
	if (c->apr_status == APM_CM_APR_SUCCESS)
		return !c->migrated;
	return time_before(jiffies, c->apr_at +
			   msecs_to_jiffies(CM_APR_REPEAT_MS));
}

void cm_rx_lap(struct cm_rx *rx)
{
	struct cm_lap_msg *lap = &rx->mad->lap;
	u32 ours = IBA_GET(CM_LAP_REMOTE_COMM_ID, lap);
	u32 sender = IBA_GET(CM_LAP_LOCAL_COMM_ID, lap);
	struct apm_cm_event ev = { .event = APM_CM_LAP_RECEIVED };
	struct cm_conn *c = cm_find(rx->dev, ours, sender);
	struct cm_path_hint hint;
	struct cm_path path;
	u8 status;

	if (c && (c->state == APM_CM_REP_SENT ||
		  c->state == APM_CM_MRA_REP_RCVD))
		c = cm_establish(c);
	if (!c || c->state != APM_CM_ESTABLISHED) {
		cm_reply_apr(rx, ours, sender, APM_CM_APR_INVALID_COMM_ID,
			     NULL, 0);
		return;
	}

	if (cm_lap_repeated(c, rx->mad)) {
		cm_count(APM_CM_RX_DUPLICATES, CM_ATTR_LAP);
		cm_reply(rx, &c->apr);
		return;
	}

	status = cm_check_lap(rx, c, &path, &hint);
	if (status) {
		cm_reply_apr(rx, ours, sender, status, &hint, hint.len);
		return;
	}

	switch (c->lap_state) {
	case APM_CM_LAP_RCVD:
		cm_count(APM_CM_RX_DUPLICATES, CM_ATTR_LAP);
		if (c->mra_held && c->answer_attr == CM_ATTR_MRA) {
			c->lap_state = APM_CM_MRA_LAP_SENT;
			c->mra_held = false;
			cm_dev_send(c->dev, &rx->via, &c->answer, false);
		}
		return;
	case APM_CM_MRA_LAP_SENT:
		cm_count(APM_CM_RX_DUPLICATES, CM_ATTR_LAP);
		cm_dev_send(c->dev, &rx->via, &c->answer, false);
		return;
	case APM_CM_LAP_SENT:
	case APM_CM_MRA_LAP_RCVD:
		if (c->active) {
			cm_reply_apr(rx, ours, sender, APM_CM_APR_REJECT,
				     NULL, 0);
			return;
		}
		cm_stop_timed(c);
		c->lap_state = APM_CM_LAP_IDLE;
		c->pend.valid = false;
		{
			struct apm_cm_event cross = {
				.event = APM_CM_LAP_ERROR,
				.u.lap_error.why = APM_CM_LAP_CROSSED,
			};

			cm_deliver(c, &cross);
		}
		c = cm_find(rx->dev, ours, sender);
		if (!c || c->state != APM_CM_ESTABLISHED ||
		    c->lap_state != APM_CM_LAP_IDLE)
			return;		/* repeated by the peer */
		break;
	default:
		break;
	}

	c->lap_state = APM_CM_LAP_RCVD;
	c->pend = path;
	c->lap_tid = rx->mad->hdr.tid;
	memcpy(c->lap_body, rx->mad->bytes + IB_MGMT_MAD_HDR, CM_LAP_BODY);
	c->lap_via = rx->via;
	c->apr_valid = false;

	ev.u.lap.alternate_path = path.rec;
	ev.u.lap.port = path.via.port;
	ev.private_data = IBA_GET_MEM_PTR(CM_LAP_PRIVATE_DATA, lap);
	ev.private_data_len = APM_CM_LAP_PRIVATE_DATA_SIZE;
	cm_deliver(c, &ev);
}

int apm_cm_send_lap(struct apm_cm_id *id, const struct apm_cm_lap_param *p)
{
	const struct sa_path_rec *rec = p->alternate_path;
	struct cm_conn *c = cm_of(id);
	u8 delay, resp;
	int ret;

	if (!rec || p->private_data_len > APM_CM_LAP_PRIVATE_DATA_SIZE ||
	    (p->private_data_len && !p->private_data))
		return -EINVAL;
	mutex_lock(&cm_lock);
	if (!c->dev) {
		ret = -ENODEV;
		goto out;
	}
	if (c->state != APM_CM_ESTABLISHED) {
		ret = -ENOTCONN;
		goto out;
	}
	if (c->lap_state != APM_CM_LAP_UNINIT &&
	    c->lap_state != APM_CM_LAP_IDLE) {
		ret = -EBUSY;
		goto out;
	}
	/* One P_Key and one MTU per QP: the alternate must carry both. */
	if (rec->pkey != c->pri.rec.pkey || rec->mtu < c->path_mtu) {
		ret = -EINVAL;
		goto out;
	}
	delay = max_t(u8, c->target_ack_delay,
		      c->dev->ib->attrs.local_ca_ack_delay);
	ret = cm_path_init(c->dev, rec,
			   p->ack_timeout ? min_t(u8, p->ack_timeout, 31) :
			   cm_ack_timeout(delay, rec->packet_life_time),
			   &c->pend);
	if (ret)
		goto out;

	resp = p->remote_cm_response_timeout ?
	       min_t(u8, p->remote_cm_response_timeout, 31) : c->remote_resp;
	cm_msg_start(&c->msg, CM_ATTR_LAP, cm_dev_tid(c->dev));
	cm_put_ids(&c->msg, c->local_id, c->remote_id);
	IBA_SET(CM_LAP_REMOTE_QPN_EECN, &c->msg.lap, c->remote_qpn);
	IBA_SET(CM_LAP_REMOTE_CM_RESPONSE_TIMEOUT, &c->msg.lap, resp);
	cm_msg_put_lap_path(&c->msg.lap, &c->pend);
	if (p->private_data_len)
		memcpy(IBA_GET_MEM_PTR(CM_LAP_PRIVATE_DATA, &c->msg.lap),
		       p->private_data, p->private_data_len);
	c->lap_state = APM_CM_LAP_SENT;
	cm_start_timed(c, 2 * cm_time_ms(c->pri.rec.packet_life_time) +
			  cm_time_ms(resp));
out:
	mutex_unlock(&cm_lock);
	return ret;
}
EXPORT_SYMBOL_GPL(apm_cm_send_lap);

/* ------------------------------------------------------------------ */
/* APR */

void cm_rx_apr(struct cm_rx *rx)
{
	struct cm_apr_msg *apr = &rx->mad->apr;
	struct cm_conn *c = cm_find(rx->dev,
				    IBA_GET(CM_APR_REMOTE_COMM_ID, apr),
				    IBA_GET(CM_APR_LOCAL_COMM_ID, apr));
	struct apm_cm_event ev = { .event = APM_CM_APR_RECEIVED };

	if (!c || c->state != APM_CM_ESTABLISHED ||
	    (c->lap_state != APM_CM_LAP_SENT &&
	     c->lap_state != APM_CM_MRA_LAP_RCVD) ||
	    rx->mad->hdr.tid != c->msg.hdr.tid) {
		cm_count_dropped();
		return;
	}
	cm_stop_timed(c);
	c->lap_state = APM_CM_LAP_IDLE;
	ev.u.apr.status = IBA_GET(CM_APR_AR_STATUS, apr);
	if (ev.u.apr.status == APM_CM_APR_SUCCESS) {
		c->alt = c->pend;
		c->migrated = false;
	}
	c->pend.valid = false;
	ev.u.apr.info = IBA_GET_MEM_PTR(CM_APR_ADDITIONAL_INFORMATION, apr);
	ev.u.apr.info_length =
		min_t(u8, IBA_GET(CM_APR_ADDITIONAL_INFORMATION_LENGTH, apr),
		      APM_CM_INFO_SIZE);
	ev.private_data = IBA_GET_MEM_PTR(CM_APR_PRIVATE_DATA, apr);
	ev.private_data_len = APM_CM_APR_PRIVATE_DATA_SIZE;
	cm_deliver(c, &ev);
}

int apm_cm_send_apr(struct apm_cm_id *id, enum apm_cm_apr_status status,
		    const void *info, u8 info_length,
		    const void *private_data, u8 len)
{
	struct cm_conn *c = cm_of(id);
	int ret = 0;

	if (status > 0xff || info_length > APM_CM_INFO_SIZE ||
	    (info_length && !info) || len > APM_CM_APR_PRIVATE_DATA_SIZE ||
	    (len && !private_data))
		return -EINVAL;
	mutex_lock(&cm_lock);
	if (!c->dev) {
		ret = -ENODEV;
		goto out;
	}
	if (c->state != APM_CM_ESTABLISHED ||
	    (c->lap_state != APM_CM_LAP_RCVD &&
	     c->lap_state != APM_CM_MRA_LAP_SENT)) {
		ret = -EINVAL;
		goto out;
	}
	cm_msg_start(&c->apr, CM_ATTR_APR, c->lap_tid);
	cm_put_ids(&c->apr, c->local_id, c->remote_id);
	IBA_SET(CM_APR_AR_STATUS, &c->apr.apr, status);
	IBA_SET(CM_APR_ADDITIONAL_INFORMATION_LENGTH, &c->apr.apr,
		info_length);
	if (info_length)
		memcpy(IBA_GET_MEM_PTR(CM_APR_ADDITIONAL_INFORMATION,
				       &c->apr.apr), info, info_length);
	if (len)
		memcpy(IBA_GET_MEM_PTR(CM_APR_PRIVATE_DATA, &c->apr.apr),
		       private_data, len);

	c->lap_state = APM_CM_LAP_IDLE;
	if (status == APM_CM_APR_SUCCESS) {
		c->alt = c->pend;
		c->migrated = false;
	}
	c->pend.valid = false;
	c->apr_valid = true;
	c->apr_status = status;
	c->apr_at = jiffies;
	/* If this one is lost, the peer's LAP comes again and is answered. */
	cm_dev_send(c->dev, &c->lap_via, &c->apr, false);
out:
	mutex_unlock(&cm_lock);
	return ret;
}
EXPORT_SYMBOL_GPL(apm_cm_send_apr);

/* ------------------------------------------------------------------ */
/* Migration */

int apm_cm_notify(struct apm_cm_id *id, enum ib_event_type event)
{
	struct cm_conn *c = cm_of(id);
	int ret = 0;

	mutex_lock(&cm_lock);
	switch (event) {
	case IB_EVENT_COMM_EST:
		if (c->state == APM_CM_REP_SENT ||
		    c->state == APM_CM_MRA_REP_RCVD) {
			cm_stop_timed(c);
			c->state = APM_CM_ESTABLISHED;
		} else if (c->state != APM_CM_ESTABLISHED) {
			ret = -EINVAL;
		}
		break;
	case IB_EVENT_PATH_MIG:
		/* Any LAP state: a LAP that is out goes on, by the new path. */
		if (c->state != APM_CM_ESTABLISHED &&
		    c->state != APM_CM_DREQ_SENT &&
		    c->state != APM_CM_DREQ_RCVD) {
			ret = -EINVAL;
		} else if (!c->alt.valid) {
			ret = c->migrated ? 0 : -EINVAL;
		} else {
			c->pri = c->alt;
			c->alt.valid = false;
			c->migrated = true;
			if (c->lap_state == APM_CM_LAP_UNINIT)
				c->lap_state = APM_CM_LAP_IDLE;
		}
		break;
	default:
		ret = -EINVAL;
		break;
	}
	mutex_unlock(&cm_lock);
	return ret;
}
EXPORT_SYMBOL_GPL(apm_cm_notify);
