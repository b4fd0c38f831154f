// SPDX-License-Identifier: GPL-2.0
/*
 * apm_cm protocol: connection establishment (IBTA volume 1, section 12.9),
 * release, and alternate path loading (12.8).
 *
 * Theory of operation
 *
 * Goals: a connection whose CM messages go by the path that lives; LAP and
 * APR that always end; no message of one exchange left behind in the next.
 *
 * Everything runs under one mutex (cm_lock).  This is the control path: a few
 * messages per connection's life, so one lock is enough and leaves no lock
 * order to get wrong.  Received messages and timers run on one ordered work
 * queue; consumers' handlers are called from there with the lock released.
 *
 * A connection (struct cm_conn) has
 * - a state and, in ESTABLISHED, a LAP state (enum apm_cm_lap_state);
 * - three paths: pri (in use), alt (agreed alternate), pend (alternate of the
 *   LAP being negotiated).  pend becomes alt only with APR 0, so a refused
 *   LAP leaves the old alternate.  PATH_MIG makes alt the new pri;
 * - at most one timed message: REQ, REP, LAP or DREQ.  It is repeated by the
 *   connection's timer, each try on the next usable path: pri first, then alt,
 *   and for a LAP the path it offers.  Paths whose local port is not Active
 *   are left out while there are others.  Beginning another exchange simply
 *   overwrites it: a DREQ ends a LAP at once;
 * - the last answer (MRA, RTU, DREP) and the last APR, for duplicates.
 *   Answers go back the way the question came, which is known to work.
 *
 * LAP, receiver: ids and state (1), QPN (6), GID (8), LID (7), rate (12),
 * current primary (5), APM on the port (2); then the consumer decides.  All
 * refusals are answered.  A LAP while a LAP of our own is out ("crossing"): the
 * active side, which sent the REQ, refuses with APR 3, the passive side gives
 * up its own and takes the peer's.
 *
 * Destroying an id detaches the consumer; an established connection goes on
 * by itself through DREQ and TIMEWAIT and is then freed.
 */
#include <linux/jiffies.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/random.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/wait.h>
#include <linux/xarray.h>
#include <rdma/ib_cache.h>

#include "cm.h"

#define CM_LAP_BODY		64	/* LAP bytes before private data */
#define CM_APR_REPEAT_MS	2000	/* a refusal is repeated this long */
#define CM_MIN_RNR_TIMER	12	/* 0.64 ms */

struct cm_conn {
	struct apm_cm_id id;		/* the consumer's part */
	struct list_head list;
	struct cm_device *dev;		/* NULL: device removed */
	enum apm_cm_state state;
	enum apm_cm_lap_state lap_state;
	bool active;			/* sent the REQ */
	bool orphan;			/* consumer gone */
	bool dead;			/* waits to be freed */
	bool tell_removed;
	bool timeout_asked;		/* consumer chose the ACK timeout */
	bool migrated;			/* PATH_MIG since alt was agreed */
	u32 local_id;
	u32 remote_id;
	u32 local_qpn;
	u32 remote_qpn;
	__be64 remote_ca_guid;
	enum ib_qp_type qp_type;

	struct cm_path pri, alt, pend;

	/* A starting PSN is that which the other side begins to send with. */
	u32 sq_psn;			/* the peer told us */
	u32 rq_psn;			/* we tell */
	u8 path_mtu;
	u8 responder_resources;
	u8 initiator_depth;
	u8 retry_count;
	u8 rnr_retry_count;
	u8 target_ack_delay;
	u8 remote_resp;			/* response time of the peer's CM */
	u8 max_retries;

	/* The timed message */
	struct cm_mad msg;
	bool msg_live;
	unsigned int msg_try;
	unsigned int msg_tries;
	unsigned long msg_interval;	/* jiffies */
	struct delayed_work timer;

	/* The exchange the peer began, and our last answer */
	struct cm_via via;
	__be64 peer_tid;
	struct cm_mad answer;
	u16 answer_attr;
	bool mra_held;			/* MRA waits for a duplicate */

	/* The LAP the peer sent last, and our APR */
	__be64 lap_tid;
	u8 lap_body[CM_LAP_BODY];
	struct cm_via lap_via;
	struct cm_mad apr;
	bool apr_valid;
	u8 apr_status;
	unsigned long apr_at;
};

DEFINE_MUTEX(cm_lock);
static DEFINE_XARRAY_ALLOC1(cm_ids);
static LIST_HEAD(cm_conns);
static LIST_HEAD(cm_dead);
static unsigned int cm_nconns;
static u32 cm_next_id;
static struct workqueue_struct *cm_wq;

/*
 * The connection whose handler is being called and, for REQ_RECEIVED, the
 * listener the handler and its context belong to; cm_idle wakes who waits for
 * its end.
 */
static struct cm_conn *cm_running;
static struct cm_conn *cm_running_listener;
static struct task_struct *cm_worker;
static DECLARE_WAIT_QUEUE_HEAD(cm_idle);

static void cm_timer_work(struct work_struct *work);
static void cm_reap_work(struct work_struct *work);
static void cm_release(struct cm_conn *c);
static DECLARE_WORK(cm_reap, cm_reap_work);

bool cm_core_queue(struct work_struct *work)
{
	return queue_work(cm_wq, work);
}

u32 cm_core_connections(void)
{
	return READ_ONCE(cm_nconns);
}

void cm_core_flush(void)
{
	flush_workqueue(cm_wq);
}

/* ------------------------------------------------------------------ */
/* Ids */

static struct cm_conn *cm_of(struct apm_cm_id *id)
{
	return container_of(id, struct cm_conn, id);
}

static struct cm_conn *cm_conn_new(struct cm_device *dev,
				   apm_cm_handler handler, void *context)
{
	struct cm_conn *c;
	int ret;

	lockdep_assert_held(&cm_lock);
	if (cm_nconns >= CM_MAX_CONNECTIONS)
		return ERR_PTR(-EMFILE);
	c = kzalloc(sizeof(*c), GFP_KERNEL);
	if (!c)
		return ERR_PTR(-ENOMEM);
	ret = xa_alloc_cyclic(&cm_ids, &c->local_id, c,
			      XA_LIMIT(1, U32_MAX), &cm_next_id, GFP_KERNEL);
	if (ret < 0) {
		kfree(c);
		return ERR_PTR(ret);
	}
	c->dev = dev;
	c->id.handler = handler;
	c->id.context = context;
	c->id.device = dev->ib;
	c->id.local_id = cpu_to_be32(c->local_id);
	INIT_DELAYED_WORK(&c->timer, cm_timer_work);
	list_add_tail(&c->list, &cm_conns);
	cm_nconns++;
	return c;
}

static bool cm_in_handler(void)
{
	return READ_ONCE(cm_worker) == current;
}

/*
 * Freed by work on the ordered queue, thus after a timer or handler of this
 * connection that is running or queued there now.
 */
static void cm_conn_bury(struct cm_conn *c)
{
	lockdep_assert_held(&cm_lock);
	cancel_delayed_work(&c->timer);
	xa_erase(&cm_ids, c->local_id);
	list_move_tail(&c->list, &cm_dead);
	cm_nconns--;
	c->state = APM_CM_IDLE;
	c->dead = true;
	queue_work(cm_wq, &cm_reap);
}

static void cm_reap_work(struct work_struct *work)
{
	struct cm_conn *c, *next;

	mutex_lock(&cm_lock);
	list_for_each_entry_safe(c, next, &cm_dead, list) {
		list_del(&c->list);
		kfree(c);
	}
	mutex_unlock(&cm_lock);
}

/* Both ids, or only ours when the peer's is not known yet. */
static struct cm_conn *cm_find(struct cm_device *dev, u32 local_id,
			       u32 remote_id)
{
	struct cm_conn *c = xa_load(&cm_ids, local_id);

	lockdep_assert_held(&cm_lock);
	if (!c || c->dev != dev || c->state == APM_CM_IDLE ||
	    c->state == APM_CM_LISTEN)
		return NULL;
	if (c->remote_id && c->remote_id != remote_id)
		return NULL;
	return c;
}

static struct cm_conn *cm_find_remote(struct cm_device *dev, u32 remote_id,
				      __be64 guid)
{
	struct cm_conn *c;

	list_for_each_entry(c, &cm_conns, list)
		if (c->dev == dev && c->remote_id == remote_id &&
		    c->remote_ca_guid == guid && c->state != APM_CM_IDLE)
			return c;
	return NULL;
}

static struct cm_conn *cm_find_remote_qpn(struct cm_device *dev, u32 qpn,
					  __be64 guid)
{
	struct cm_conn *c;

	list_for_each_entry(c, &cm_conns, list)
		if (c->dev == dev && c->remote_qpn == qpn &&
		    c->remote_ca_guid == guid && c->state != APM_CM_IDLE)
			return c;
	return NULL;
}

/*
 * Calls the consumer with the lock released.  Afterwards @c may be gone: look
 * it up again or leave it alone.
 */
static void cm_deliver(struct cm_conn *c, struct apm_cm_event *ev)
{
	int ret;

	lockdep_assert_held(&cm_lock);
	if (c->orphan)
		return;
	c->id.remote_id = cpu_to_be32(c->remote_id);
	cm_running = c;
	WRITE_ONCE(cm_worker, current);
	mutex_unlock(&cm_lock);

	ret = c->id.handler(&c->id, ev);

	mutex_lock(&cm_lock);
	WRITE_ONCE(cm_worker, NULL);
	cm_running = NULL;
	cm_running_listener = NULL;
	/* Not freed yet, even if the handler destroyed it: see bury. */
	if (ret && !c->orphan)
		cm_release(c);
	wake_up_all(&cm_idle);
}

static void cm_deliver_simple(struct cm_conn *c, enum apm_cm_event_type type,
			      const void *private_data, u8 len)
{
	struct apm_cm_event ev = {
		.event = type,
		.private_data = private_data,
		.private_data_len = len,
	};

	cm_deliver(c, &ev);
}

/* ------------------------------------------------------------------ */
/* Sending */

static void cm_put_ids(struct cm_mad *mad, u32 local_id, u32 remote_id)
{
	/* The same place in all messages but REQ (no remote id) and SIDR */
	IBA_SET(CM_REJ_LOCAL_COMM_ID, &mad->rej, local_id);
	IBA_SET(CM_REJ_REMOTE_COMM_ID, &mad->rej, remote_id);
}

static bool cm_same_path(const struct cm_path *a, const struct cm_path *b)
{
	return !memcmp(&a->rec.sgid, &b->rec.sgid, sizeof(a->rec.sgid)) &&
	       !memcmp(&a->rec.dgid, &b->rec.dgid, sizeof(a->rec.dgid)) &&
	       a->rec.ib.slid == b->rec.ib.slid &&
	       a->rec.ib.dlid == b->rec.ib.dlid;
}

/* One try of the timed message, on the path whose turn it is. */
static void cm_transmit(struct cm_conn *c)
{
	const struct cm_path *use[3];
	unsigned int n = 0, active = 0, i;
	bool retry = c->msg_try > 0;

	if (!c->dev)
		return;
	if (c->pri.valid)
		use[n++] = &c->pri;
	if (c->alt.valid && !cm_same_path(&c->alt, &c->pri))
		use[n++] = &c->alt;
	if (c->pend.valid && c->lap_state != APM_CM_LAP_RCVD &&
	    c->lap_state != APM_CM_MRA_LAP_SENT)
		use[n++] = &c->pend;

	/* Paths with a living local port first, in the same order */
	for (i = 0; i < n; i++) {
		if (cm_port_active(c->dev, use[i]->via.port)) {
			const struct cm_path *p = use[i];

			memmove(&use[active + 1], &use[active],
				(i - active) * sizeof(use[0]));
			use[active++] = p;
		}
	}
	if (active)
		n = active;

	for (i = 0; i < n; i++) {
		const struct cm_path *p = use[(c->msg_try + i) % n];

		if (!cm_dev_send(c->dev, &p->via, &c->msg, retry))
			break;
	}
	c->msg_try++;
}

static void cm_start_timed(struct cm_conn *c, unsigned int interval_ms)
{
	c->msg_live = true;
	c->msg_try = 0;
	c->msg_tries = c->max_retries + 1;
	c->msg_interval = msecs_to_jiffies(min_t(unsigned int, interval_ms,
						 CM_MAX_WAIT_MS));
	cm_transmit(c);
	mod_delayed_work(cm_wq, &c->timer, c->msg_interval);
}

static void cm_stop_timed(struct cm_conn *c)
{
	c->msg_live = false;
	cancel_delayed_work(&c->timer);
}

/* There and back, plus what the peer's CM takes (IBTA 12.7.4) */
static unsigned int cm_response_ms(const struct cm_conn *c)
{
	return 2 * cm_time_ms(c->pri.rec.packet_life_time) +
	       cm_time_ms(c->remote_resp);
}

static int cm_send_answer(struct cm_conn *c)
{
	if (!c->dev)
		return -ENODEV;
	return cm_dev_send(c->dev, &c->via, &c->answer, false);
}

static void cm_start_answer(struct cm_conn *c, enum cm_attr attr)
{
	cm_msg_start(&c->answer, attr, c->peer_tid);
	cm_put_ids(&c->answer, c->local_id, c->remote_id);
	c->answer_attr = attr;
	c->mra_held = false;
}

static void cm_repeat_answer(struct cm_conn *c, u16 attr)
{
	cm_count(APM_CM_RX_DUPLICATES, attr);
	c->mra_held = false;
	if (c->answer_attr)
		cm_send_answer(c);
}

static void cm_put_rej(struct cm_mad *mad, enum cm_which which, u16 reason,
		       const void *ari, u8 ari_len)
{
	IBA_SET(CM_REJ_MESSAGE_REJECTED, &mad->rej, which);
	IBA_SET(CM_REJ_REASON, &mad->rej, reason);
	IBA_SET(CM_REJ_REJECTED_INFO_LENGTH, &mad->rej, ari_len);
	if (ari_len)
		memcpy(IBA_GET_MEM_PTR(CM_REJ_ARI, &mad->rej), ari, ari_len);
}

/* A REJ for this connection, in place of whatever was to be said. */
static void cm_send_rej_now(struct cm_conn *c, u16 reason, const void *ari,
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

static void cm_send_rej_timeout(struct cm_conn *c)
{
	__be64 guid = c->dev ? c->dev->ib->node_guid : 0;

	cm_send_rej_now(c, APM_CM_REJ_TIMEOUT, &guid, sizeof(guid), NULL, 0);
}

static void cm_enter_timewait(struct cm_conn *c)
{
	c->msg_live = false;
	c->lap_state = APM_CM_LAP_UNINIT;
	c->pend.valid = false;
	c->state = APM_CM_TIMEWAIT;
	mod_delayed_work(cm_wq, &c->timer,
			 msecs_to_jiffies(cm_time_ms(c->pri.timeout)));
}

static void cm_enter_idle(struct cm_conn *c)
{
	cm_stop_timed(c);
	c->state = APM_CM_IDLE;
	c->lap_state = APM_CM_LAP_UNINIT;
	c->remote_id = 0;
	c->remote_qpn = 0;
	c->remote_ca_guid = 0;
	c->pri.valid = false;
	c->alt.valid = false;
	c->pend.valid = false;
	c->answer_attr = 0;
	c->apr_valid = false;
}

static void cm_start_dreq(struct cm_conn *c, const void *private_data, u8 len)
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

static void cm_answer_drep(struct cm_conn *c, const void *private_data, u8 len)
{
	cm_start_answer(c, CM_ATTR_DREP);
	if (len)
		memcpy(IBA_GET_MEM_PTR(CM_DREP_PRIVATE_DATA, &c->answer.drep),
		       private_data, len);
	cm_send_answer(c);
	cm_enter_timewait(c);
}

/*
 * The consumer lets go.  Connections finish by themselves as orphans; all else
 * is freed here, or after the handler that runs.  Called in the work queue or,
 * from apm_cm_destroy_id(), outside.
 */
static void cm_release(struct cm_conn *c)
{
	bool keep = false;

	lockdep_assert_held(&cm_lock);
	c->orphan = true;
	switch (c->state) {
	case APM_CM_REQ_SENT:
	case APM_CM_MRA_REQ_RCVD:
		cm_send_rej_timeout(c);
		break;
	case APM_CM_REQ_RCVD:
	case APM_CM_MRA_REQ_SENT:
		cm_send_rej_now(c, APM_CM_REJ_CONSUMER_DEFINED, NULL, 0,
				NULL, 0);
		break;
	case APM_CM_REP_SENT:
	case APM_CM_MRA_REP_RCVD:
	case APM_CM_REP_RCVD:
	case APM_CM_MRA_REP_SENT:
		cm_send_rej_now(c, APM_CM_REJ_CONSUMER_DEFINED, NULL, 0,
				NULL, 0);
		cm_enter_timewait(c);
		keep = true;
		break;
	case APM_CM_ESTABLISHED:
		if (c->dev) {
			cm_start_dreq(c, NULL, 0);
			keep = true;
		}
		break;
	case APM_CM_DREQ_RCVD:
		if (c->dev) {
			cm_answer_drep(c, NULL, 0);
			keep = true;
		}
		break;
	case APM_CM_DREQ_SENT:
	case APM_CM_TIMEWAIT:
		keep = c->dev != NULL;
		break;
	default:
		break;
	}
	if (keep)
		return;

	cm_conn_bury(c);
}

/* ------------------------------------------------------------------ */
/* Timer */

static void cm_give_up(struct cm_conn *c)
{
	struct apm_cm_event ev = {};

	switch (c->state) {
	case APM_CM_REQ_SENT:
	case APM_CM_MRA_REQ_RCVD:
		cm_send_rej_timeout(c);
		cm_enter_idle(c);
		ev.event = APM_CM_REQ_ERROR;
		break;
	case APM_CM_REP_SENT:
	case APM_CM_MRA_REP_RCVD:
		cm_send_rej_timeout(c);
		cm_enter_timewait(c);
		ev.event = APM_CM_REP_ERROR;
		break;
	case APM_CM_DREQ_SENT:
		cm_enter_timewait(c);
		ev.event = APM_CM_DREQ_ERROR;
		break;
	case APM_CM_ESTABLISHED:
		if (c->lap_state != APM_CM_LAP_SENT &&
		    c->lap_state != APM_CM_MRA_LAP_RCVD)
			return;
		c->msg_live = false;
		c->lap_state = APM_CM_LAP_IDLE;
		c->pend.valid = false;
		ev.event = APM_CM_LAP_ERROR;
		ev.u.lap_error.why = APM_CM_LAP_TIMEOUT;
		break;
	default:
		c->msg_live = false;
		return;
	}
	cm_deliver(c, &ev);
}

static void cm_timer_work(struct work_struct *work)
{
	struct cm_conn *c = container_of(to_delayed_work(work),
					 struct cm_conn, timer);

	mutex_lock(&cm_lock);
	if (c->dead)
		goto out;
	if (c->tell_removed) {
		c->tell_removed = false;
		cm_deliver_simple(c, APM_CM_DEVICE_REMOVED, NULL, 0);
		goto out;
	}
	if (!c->dev)
		goto out;
	if (c->state == APM_CM_TIMEWAIT) {
		cm_enter_idle(c);
		if (c->orphan)
			cm_conn_bury(c);
		else
			cm_deliver_simple(c, APM_CM_TIMEWAIT_EXIT, NULL, 0);
		goto out;
	}
	if (!c->msg_live)
		goto out;
	if (c->msg_try < c->msg_tries) {
		cm_transmit(c);
		mod_delayed_work(cm_wq, &c->timer, c->msg_interval);
	} else {
		cm_give_up(c);
	}
out:
	mutex_unlock(&cm_lock);
}

/* ------------------------------------------------------------------ */
/* Receiving */

struct cm_rx {
	struct cm_device *dev;
	struct cm_port *port;
	const struct ib_wc *wc;
	struct cm_mad *mad;
	struct cm_via via;		/* back to the sender */
};

/* An answer without a connection behind it */
static void cm_reply(struct cm_rx *rx, struct cm_mad *mad)
{
	cm_dev_send(rx->dev, &rx->via, mad, false);
}

static void cm_reply_rej(struct cm_rx *rx, enum cm_which which, u32 remote_id,
			 u16 reason, const void *ari, u8 ari_len)
{
	struct cm_mad mad;

	cm_msg_start(&mad, CM_ATTR_REJ, rx->mad->hdr.tid);
	cm_put_ids(&mad, 0, remote_id);
	cm_put_rej(&mad, which, reason, ari, ari_len);
	cm_reply(rx, &mad);
}

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

/*
 * IBTA 12.7.21 and 12.9.10: hop limits above 1 carry no LIDs.  The way to the
 * router is that by which the message came; our end is the port with the path's
 * GID, which need not be the one the message came in by.
 */
static void cm_fix_routed(struct cm_rx *rx, struct sa_path_rec *rec)
{
	const struct ib_gid_attr *gid;
	struct ib_port_attr attr;

	rec->ib.dlid = cpu_to_be16(rdma_ah_get_dlid(&rx->via.ah));
	rec->sl = rdma_ah_get_sl(&rx->via.ah);
	gid = rdma_find_gid(rx->dev->ib, &rec->sgid, IB_GID_TYPE_IB, NULL);
	if (IS_ERR(gid))
		return;			/* refused for its GID */
	if (!ib_query_port(rx->dev->ib, gid->port_num, &attr))
		rec->ib.slid = cpu_to_be16(attr.lid);
	rdma_put_gid_attr(gid);
}

/* The path's source LID must be one of its port's; that of other ports too */
static bool cm_lid_is_ours(struct cm_device *dev, const struct cm_path *path,
			   __be16 *right)
{
	struct ib_port_attr attr;
	u32 lid = be16_to_cpu(path->rec.ib.slid);

	if (ib_query_port(dev->ib, path->via.port, &attr))
		return false;
	*right = cpu_to_be16(attr.lid);
	return lid >= attr.lid && lid < attr.lid + (1U << attr.lmc);
}

static bool cm_rate_known(u8 rate)
{
	return rate == IB_RATE_PORT_CURRENT || ib_rate_to_mbps(rate) > 0;
}

static bool cm_apm_supported(struct cm_device *dev, u32 port)
{
	struct ib_port_attr attr;

	return !ib_query_port(dev->ib, port, &attr) &&
	       (attr.port_cap_flags & IB_PORT_AUTO_MIGR_SUP);
}

static void cm_port_gid(struct cm_device *dev, u32 port, union ib_gid *gid)
{
	if (rdma_query_gid(dev->ib, port, 0, gid))
		memset(gid, 0, sizeof(*gid));
}

static struct cm_conn *cm_find_listener(struct cm_device *dev,
					__be64 service_id)
{
	struct cm_conn *c;

	list_for_each_entry(c, &cm_conns, list)
		if (c->state == APM_CM_LISTEN && c->dev == dev &&
		    c->id.service_id == service_id)
			return c;
	return NULL;
}

/* A REQ seen before: true if it is dealt with. */
static bool cm_req_duplicate(struct cm_rx *rx, u32 remote_id, __be64 guid)
{
	struct cm_conn *c = cm_find_remote(rx->dev, remote_id, guid);

	if (!c || c->active)
		return false;
	switch (c->state) {
	case APM_CM_MRA_REQ_SENT:
		c->via = rx->via;
		cm_repeat_answer(c, CM_ATTR_REQ);
		return true;
	case APM_CM_TIMEWAIT:
		cm_reply_rej(rx, CM_WHICH_REQ, remote_id,
			     APM_CM_REJ_STALE_CONN, NULL, 0);
		return true;
	default:
		if (c->mra_held && c->state == APM_CM_REQ_RCVD)
			c->state = APM_CM_MRA_REQ_SENT;
		/* REP_SENT: the REP has its own timer. */
		cm_count(APM_CM_RX_DUPLICATES, CM_ATTR_REQ);
		if (c->mra_held)
			cm_repeat_answer(c, CM_ATTR_REQ);
		return true;
	}
}

/* A LAP of ours waits for its APR. */
static bool cm_lap_out(const struct cm_conn *c)
{
	return c->state == APM_CM_ESTABLISHED &&
	       (c->lap_state == APM_CM_LAP_SENT ||
		c->lap_state == APM_CM_MRA_LAP_RCVD);
}

/*
 * The connection ends while a LAP of ours is out: the consumer waits for its
 * end.  @c has left ESTABLISHED already; returns it if it still exists.
 */
static struct cm_conn *cm_tell_lap_over(struct cm_conn *c, bool was_out)
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
	return xa_load(&cm_ids, local_id) == c ? c : NULL;
}

/*
 * The peer's QP is known from another connection: the peer has forgotten that
 * one (it was restarted, say).  Refuse, and end the old one on our side.
 */
static bool cm_req_stale(struct cm_rx *rx, u32 remote_id, u32 qpn, __be64 guid)
{
	struct cm_conn *c = cm_find_remote_qpn(rx->dev, qpn, guid);
	bool lap_out;

	if (!c)
		return false;
	cm_reply_rej(rx, CM_WHICH_REQ, remote_id, APM_CM_REJ_STALE_CONN,
		     NULL, 0);
	if (c->state == APM_CM_ESTABLISHED) {
		lap_out = cm_lap_out(c);
		cm_start_dreq(c, NULL, 0);
		cm_tell_lap_over(c, lap_out);
	}
	return true;
}

static void cm_rx_req(struct cm_rx *rx)
{
	struct cm_req_msg *req = &rx->mad->req;
	u32 remote_id = IBA_GET(CM_REQ_LOCAL_COMM_ID, req);
	__be64 guid = cpu_to_be64(IBA_GET(CM_REQ_LOCAL_CA_GUID, req));
	__be64 service = cpu_to_be64(IBA_GET(CM_REQ_SERVICE_ID, req));
	u32 qpn = IBA_GET(CM_REQ_LOCAL_QPN, req);
	u8 transport = IBA_GET(CM_REQ_TRANSPORT_SERVICE_TYPE, req);
	struct apm_cm_event ev = { .event = APM_CM_REQ_RECEIVED };
	struct cm_conn *listener, *c;
	u16 reason = 0;
	union ib_gid gid;
	__be16 lid = 0;
	const void *ari = NULL;
	u8 ari_len = 0;
	u8 timeout;

	if (!remote_id || cm_req_duplicate(rx, remote_id, guid) ||
	    cm_req_stale(rx, remote_id, qpn, guid))
		return;

	listener = cm_find_listener(rx->dev, service);
	if (!listener) {
		reason = APM_CM_REJ_INVALID_SERVICE_ID;
		goto refuse;
	}
	if (transport > 1) {
		reason = APM_CM_REJ_INVALID_TRANSPORT_TYPE;
		goto refuse;
	}
	c = cm_conn_new(rx->dev, listener->id.handler, listener->id.context);
	if (IS_ERR(c)) {
		reason = APM_CM_REJ_NO_RESOURCES;
		goto refuse;
	}

	cm_msg_get_req_path(req, false, &ev.u.req.primary_path, &timeout);
	if (cm_msg_req_is_routed(req, false))
		cm_fix_routed(rx, &ev.u.req.primary_path);
	cm_port_gid(rx->dev, rx->via.port, &gid);
	if (cm_path_init(rx->dev, &ev.u.req.primary_path, timeout, &c->pri)) {
		reason = APM_CM_REJ_INVALID_GID;
		ari = &gid;
		ari_len = sizeof(gid);
		goto refuse_conn;
	}
	if (!cm_lid_is_ours(rx->dev, &c->pri, &lid)) {
		reason = APM_CM_REJ_INVALID_LID;
		ari = &lid;
		ari_len = sizeof(lid);
		goto refuse_conn;
	}
	if (!cm_rate_known(c->pri.rec.rate)) {
		reason = APM_CM_REJ_INVALID_PACKET_RATE;
		goto refuse_conn;
	}
	if (c->pri.rec.mtu < IB_MTU_256 || c->pri.rec.mtu > IB_MTU_4096) {
		reason = APM_CM_REJ_INVALID_MTU;
		goto refuse_conn;
	}

	if (cm_msg_req_has_alternate(req)) {
		cm_msg_get_req_path(req, true, &ev.u.req.alternate_path,
				    &timeout);
		if (cm_msg_req_is_routed(req, true))
			cm_fix_routed(rx, &ev.u.req.alternate_path);
		if (cm_path_init(rx->dev, &ev.u.req.alternate_path, timeout,
				 &c->alt)) {
			/* The alternate's port is whichever is not primary. */
			if (rx->dev->nports > 1)
				cm_port_gid(rx->dev,
					    c->pri.via.port == 1 ? 2 : 1,
					    &gid);
			reason = APM_CM_REJ_INVALID_ALT_GID;
			ari = &gid;
			ari_len = sizeof(gid);
			goto refuse_conn;
		}
		if (!cm_lid_is_ours(rx->dev, &c->alt, &lid)) {
			reason = APM_CM_REJ_INVALID_ALT_LID;
			ari = &lid;
			ari_len = sizeof(lid);
			goto refuse_conn;
		}
		if (!cm_rate_known(c->alt.rec.rate)) {
			reason = APM_CM_REJ_INVALID_ALT_PACKET_RATE;
			goto refuse_conn;
		}
		ev.u.req.has_alternate = true;
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
	/* Theirs is ours, the other way round. */
	c->responder_resources = IBA_GET(CM_REQ_INITIATOR_DEPTH, req);
	c->initiator_depth = IBA_GET(CM_REQ_RESPONDER_RESOURCES, req);
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
	cm_running_listener = listener;
	cm_deliver(c, &ev);
	return;

refuse_conn:
	cm_conn_bury(c);
refuse:
	cm_reply_rej(rx, CM_WHICH_REQ, remote_id, reason, ari, ari_len);
}

static void cm_rx_mra(struct cm_rx *rx)
{
	struct cm_mra_msg *mra = &rx->mad->mra;
	struct cm_conn *c = cm_find(rx->dev,
				    IBA_GET(CM_MRA_REMOTE_COMM_ID, mra),
				    IBA_GET(CM_MRA_LOCAL_COMM_ID, mra));
	u8 which = IBA_GET(CM_MRA_MESSAGE_MRAED, mra);
	struct apm_cm_event ev = { .event = APM_CM_MRA_RECEIVED };
	unsigned int ms;

	if (!c)
		goto drop;
	if (which == CM_WHICH_REQ && c->state == APM_CM_REQ_SENT)
		c->state = APM_CM_MRA_REQ_RCVD;
	else if (which == CM_WHICH_REP && c->state == APM_CM_REP_SENT)
		c->state = APM_CM_MRA_REP_RCVD;
	else if (which == CM_WHICH_LAP && c->state == APM_CM_ESTABLISHED &&
		 c->lap_state == APM_CM_LAP_SENT)
		c->lap_state = APM_CM_MRA_LAP_RCVD;
	else if (c->state == APM_CM_MRA_REQ_RCVD ||
		 c->state == APM_CM_MRA_REP_RCVD ||
		 c->lap_state == APM_CM_MRA_LAP_RCVD) {
		cm_count(APM_CM_RX_DUPLICATES, CM_ATTR_MRA);
		return;
	} else {
		goto drop;
	}

	ev.u.mra.service_timeout = IBA_GET(CM_MRA_SERVICE_TIMEOUT, mra);
	ms = cm_time_ms(ev.u.mra.service_timeout) + cm_time_ms(c->pri.timeout);
	mod_delayed_work(cm_wq, &c->timer,
			 msecs_to_jiffies(min_t(unsigned int, ms,
						CM_MAX_WAIT_MS)));
	ev.private_data = IBA_GET_MEM_PTR(CM_MRA_PRIVATE_DATA, mra);
	ev.private_data_len = APM_CM_MRA_PRIVATE_DATA_SIZE;
	cm_deliver(c, &ev);
	return;
drop:
	cm_count_dropped();
}

static void cm_rx_rej(struct cm_rx *rx)
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
		c = xa_load(&cm_ids, ours);
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

static void cm_rx_rep(struct cm_rx *rx)
{
	struct cm_rep_msg *rep = &rx->mad->rep;
	u32 remote_id = IBA_GET(CM_REP_LOCAL_COMM_ID, rep);
	struct cm_conn *c = cm_find(rx->dev,
				    IBA_GET(CM_REP_REMOTE_COMM_ID, rep),
				    remote_id);
	struct apm_cm_event ev = { .event = APM_CM_REP_RECEIVED };
	struct apm_cm_rep_event *p = &ev.u.rep;
	u8 delay;

	if (!c || !c->active || !remote_id) {
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
	p->responder_resources = IBA_GET(CM_REP_INITIATOR_DEPTH, rep);
	p->initiator_depth = IBA_GET(CM_REP_RESPONDER_RESOURCES, rep);
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

static void cm_rx_rtu(struct cm_rx *rx)
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

/*
 * A LAP or DREQ proves that the peer is established, so the RTU was lost.
 * The consumer is told; returns the connection if it still exists.
 */
static struct cm_conn *cm_establish(struct cm_conn *c)
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

static void cm_rx_dreq(struct cm_rx *rx)
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

static void cm_rx_drep(struct cm_rx *rx)
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

/* IBTA 12.8.1; the order of apm-and-cm checks. 0 or an APR status. */
static u8 cm_check_lap(struct cm_rx *rx, struct cm_conn *c,
		       struct cm_path *path, void *info, u8 *info_len)
{
	struct cm_lap_msg *lap = &rx->mad->lap;
	struct sa_path_rec rec;
	union ib_gid gid;
	__be16 lid = 0;
	u8 timeout;

	if (IBA_GET(CM_LAP_REMOTE_QPN_EECN, lap) != c->local_qpn)
		return APM_CM_APR_INVALID_QPN;
	cm_msg_get_lap_path(lap, c->pri.rec.pkey, c->path_mtu, &rec, &timeout);
	if (cm_msg_lap_is_routed(lap))
		cm_fix_routed(rx, &rec);
	if (cm_path_init(rx->dev, &rec, timeout, path)) {
		cm_port_gid(rx->dev, rx->via.port, &gid);
		memcpy(info, &gid, sizeof(gid));
		*info_len = sizeof(gid);
		return APM_CM_APR_INVALID_GID;
	}
	if (!cm_lid_is_ours(rx->dev, path, &lid)) {
		memcpy(info, &lid, sizeof(lid));
		*info_len = sizeof(lid);
		return APM_CM_APR_INVALID_LID;
	}
	if (!cm_rate_known(rec.rate))
		return APM_CM_APR_INVALID_PACKET_RATE;
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

static void cm_rx_lap(struct cm_rx *rx)
{
	struct cm_lap_msg *lap = &rx->mad->lap;
	u32 ours = IBA_GET(CM_LAP_REMOTE_COMM_ID, lap);
	u32 sender = IBA_GET(CM_LAP_LOCAL_COMM_ID, lap);
	struct apm_cm_event ev = { .event = APM_CM_LAP_RECEIVED };
	struct cm_conn *c = cm_find(rx->dev, ours, sender);
	u8 info[APM_CM_INFO_SIZE];
	struct cm_path path;
	u8 info_len = 0;
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

	status = cm_check_lap(rx, c, &path, info, &info_len);
	if (status) {
		cm_reply_apr(rx, ours, sender, status, info, info_len);
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

static void cm_rx_apr(struct cm_rx *rx)
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

/* Service id resolution is not offered: say so (IBTA 12.11.2.2, status 1). */
static void cm_rx_sidr_req(struct cm_rx *rx)
{
	struct cm_sidr_req_msg *req = &rx->mad->sidr_req;
	struct cm_mad mad;

	cm_msg_start(&mad, CM_ATTR_SIDR_REP, rx->mad->hdr.tid);
	IBA_SET(CM_SIDR_REP_REQUESTID, &mad.sidr_rep,
		IBA_GET(CM_SIDR_REQ_REQUESTID, req));
	IBA_SET(CM_SIDR_REP_STATUS, &mad.sidr_rep, 1);
	IBA_SET(CM_SIDR_REP_SERVICEID, &mad.sidr_rep,
		IBA_GET(CM_SIDR_REQ_SERVICEID, req));
	cm_reply(rx, &mad);
}

void cm_core_receive(struct cm_port *port, struct ib_mad_recv_wc *wc)
{
	struct cm_rx rx = {
		.dev = port->dev,
		.port = port,
		.wc = wc->wc,
		.mad = (struct cm_mad *)wc->recv_buf.mad,
	};

	mutex_lock(&cm_lock);
	if (rx.dev->gone || cm_tap_lost(false, port->num, rx.mad))
		goto out;
	/* For the way back: also refuses a GRH to a GID that is not ours. */
	if (ib_init_ah_attr_from_wc(rx.dev->ib, port->num, wc->wc,
				    wc->recv_buf.grh, &rx.via.ah)) {
		cm_count_dropped();
		goto out;
	}
	/* The index stays; the reference is taken again for each handle. */
	rdma_destroy_ah_attr(&rx.via.ah);
	rx.via.port = port->num;
	rx.via.pkey_index = wc->wc->pkey_index;

	switch (be16_to_cpu(rx.mad->hdr.attr_id)) {
	case CM_ATTR_REQ:
		cm_rx_req(&rx);
		break;
	case CM_ATTR_MRA:
		cm_rx_mra(&rx);
		break;
	case CM_ATTR_REJ:
		cm_rx_rej(&rx);
		break;
	case CM_ATTR_REP:
		cm_rx_rep(&rx);
		break;
	case CM_ATTR_RTU:
		cm_rx_rtu(&rx);
		break;
	case CM_ATTR_DREQ:
		cm_rx_dreq(&rx);
		break;
	case CM_ATTR_DREP:
		cm_rx_drep(&rx);
		break;
	case CM_ATTR_LAP:
		cm_rx_lap(&rx);
		break;
	case CM_ATTR_APR:
		cm_rx_apr(&rx);
		break;
	case CM_ATTR_SIDR_REQ:
		cm_rx_sidr_req(&rx);
		break;
	default:
		cm_count_dropped();
		break;
	}
out:
	mutex_unlock(&cm_lock);
}

/* ------------------------------------------------------------------ */
/* The consumer's calls */

struct apm_cm_id *apm_cm_create_id(struct ib_device *device,
				   apm_cm_handler handler, void *context)
{
	struct cm_device *dev;
	struct cm_conn *c;

	mutex_lock(&cm_lock);
	dev = cm_dev_find(device);
	c = dev ? cm_conn_new(dev, handler, context) : ERR_PTR(-ENODEV);
	mutex_unlock(&cm_lock);
	return IS_ERR(c) ? ERR_CAST(c) : &c->id;
}
EXPORT_SYMBOL_GPL(apm_cm_create_id);

static bool cm_handler_runs(const struct cm_conn *c)
{
	return READ_ONCE(cm_running) == c ||
	       READ_ONCE(cm_running_listener) == c;
}

void apm_cm_destroy_id(struct apm_cm_id *id)
{
	struct cm_conn *c = cm_of(id);
	bool in_handler = cm_in_handler();

	mutex_lock(&cm_lock);
	/* c stays allocated while its handler runs, see cm_conn_bury(). */
	cm_release(c);
	while (!in_handler && cm_handler_runs(c)) {
		mutex_unlock(&cm_lock);
		wait_event(cm_idle, !cm_handler_runs(c));
		mutex_lock(&cm_lock);
	}
	mutex_unlock(&cm_lock);
}
EXPORT_SYMBOL_GPL(apm_cm_destroy_id);

int apm_cm_listen(struct apm_cm_id *id, __be64 service_id)
{
	struct cm_conn *c = cm_of(id);
	int ret = 0;

	mutex_lock(&cm_lock);
	if (!c->dev)
		ret = -ENODEV;
	else if (c->state != APM_CM_IDLE)
		ret = -EINVAL;
	else if (cm_find_listener(c->dev, service_id))
		ret = -EBUSY;
	if (!ret) {
		c->id.service_id = service_id;
		c->state = APM_CM_LISTEN;
	}
	mutex_unlock(&cm_lock);
	return ret;
}
EXPORT_SYMBOL_GPL(apm_cm_listen);

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
	    p->rnr_retry_count > 7 || !p->qp_num || p->qp_num > 0xffffff)
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

int apm_cm_send_rep(struct apm_cm_id *id, const struct apm_cm_rep_param *p)
{
	struct cm_conn *c = cm_of(id);
	struct cm_rep_msg *rep;
	int ret = 0;

	if (p->private_data_len > APM_CM_REP_PRIVATE_DATA_SIZE ||
	    (p->private_data_len && !p->private_data) ||
	    p->rnr_retry_count > 7 || !p->qp_num || p->qp_num > 0xffffff)
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

/* ------------------------------------------------------------------ */
/* QP attributes */

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

void apm_cm_query(struct apm_cm_id *id, struct apm_cm_info *info)
{
	struct cm_conn *c = cm_of(id);

	mutex_lock(&cm_lock);
	memset(info, 0, sizeof(*info));
	info->state = c->state;
	info->lap_state = c->lap_state;
	info->active = c->active;
	info->remote_qpn = c->remote_qpn;
	if (c->pri.valid) {
		info->path = c->pri.rec;
		info->port = c->pri.via.port;
	}
	info->alternate_valid = c->alt.valid;
	if (c->alt.valid) {
		info->alternate = c->alt.rec;
		info->alternate_port = c->alt.via.port;
	}
	mutex_unlock(&cm_lock);
}
EXPORT_SYMBOL_GPL(apm_cm_query);

void apm_cm_get_counters(struct apm_cm_counters *counters)
{
	cm_dev_counters(counters);
}
EXPORT_SYMBOL_GPL(apm_cm_get_counters);

/* ------------------------------------------------------------------ */
/* Devices and module */

/* Under cm_lock: no message of this device is handled or sent any more. */
void cm_core_device_gone(struct cm_device *dev)
{
	struct cm_conn *c, *next;

	lockdep_assert_held(&cm_lock);
	list_for_each_entry_safe(c, next, &cm_conns, list) {
		if (c->dev != dev)
			continue;
		c->dev = NULL;
		cm_enter_idle(c);
		if (c->orphan) {
			cm_conn_bury(c);
			continue;
		}
		c->tell_removed = true;
		mod_delayed_work(cm_wq, &c->timer, 0);
	}
}

int cm_core_init(void)
{
	cm_next_id = get_random_u32();
	cm_wq = alloc_ordered_workqueue("apm_cm", 0);
	return cm_wq ? 0 : -ENOMEM;
}

void cm_core_exit(void)
{
	/* All devices are gone, so are the orphans; consumers hold us. */
	flush_work(&cm_reap);
	destroy_workqueue(cm_wq);
	WARN_ON(!list_empty(&cm_conns));
	xa_destroy(&cm_ids);
}

static int __init apm_cm_init(void)
{
	int ret = cm_core_init();

	if (ret)
		return ret;
	ret = cm_dev_init();
	if (ret)
		cm_core_exit();
	return ret;
}

static void __exit apm_cm_exit(void)
{
	cm_dev_exit();
	cm_core_exit();
}

module_init(apm_cm_init);
module_exit(apm_cm_exit);
MODULE_DESCRIPTION("InfiniBand communication manager with automatic path migration");
MODULE_LICENSE("GPL");
