// SPDX-License-Identifier: GPL-2.0
/*
 * apm_cm core: the state of connections, their one timed message, and the
 * calls and events of consumers.  The messages of establishment (IBTA volume 1,
 * section 12.9), release, and alternate path loading (12.8) have files of their
 * own, see cm.h.
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

#include "cm.h"

/* All of this module's state; see above */
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

struct cm_conn *cm_of(struct apm_cm_id *id)
{
	return container_of(id, struct cm_conn, id);
}

struct cm_conn *cm_conn_new(struct cm_device *dev, apm_cm_handler handler,
			    void *context, unsigned int limit)
{
	struct cm_conn *c;
	int ret;

	lockdep_assert_held(&cm_lock);
	if (cm_nconns >= limit)
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
void cm_conn_bury(struct cm_conn *c)
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

struct cm_conn *cm_find_local(u32 local_id)
{
	lockdep_assert_held(&cm_lock);
	return xa_load(&cm_ids, local_id);
}

/* Both ids, or only ours when the peer's is not known yet. */
struct cm_conn *cm_find(struct cm_device *dev, u32 local_id,
			u32 remote_id)
{
	struct cm_conn *c = cm_find_local(local_id);

	if (!c || c->dev != dev || c->state == APM_CM_IDLE ||
	    c->state == APM_CM_LISTEN)
		return NULL;
	if (c->remote_id && c->remote_id != remote_id)
		return NULL;
	return c;
}

struct cm_conn *cm_find_remote(struct cm_device *dev, u32 remote_id,
			       __be64 guid)
{
	struct cm_conn *c;

	list_for_each_entry(c, &cm_conns, list)
		if (c->dev == dev && c->remote_id == remote_id &&
		    c->remote_ca_guid == guid && c->state != APM_CM_IDLE)
			return c;
	return NULL;
}

struct cm_conn *cm_find_remote_qpn(struct cm_device *dev, u32 qpn,
				   __be64 guid)
{
	struct cm_conn *c;

	list_for_each_entry(c, &cm_conns, list)
		if (c->dev == dev && c->remote_qpn == qpn &&
		    c->remote_ca_guid == guid && c->state != APM_CM_IDLE)
			return c;
	return NULL;
}

struct cm_conn *cm_find_listener(struct cm_device *dev,
				 __be64 service_id)
{
	struct cm_conn *c;

	list_for_each_entry(c, &cm_conns, list)
		if (c->state == APM_CM_LISTEN && c->dev == dev &&
		    c->id.service_id == service_id)
			return c;
	return NULL;
}

/* ------------------------------------------------------------------ */
/* Telling the consumer */

/*
 * Calls the consumer with the lock released.  Afterwards @c may be gone: look
 * it up again or leave it alone.
 */
void cm_deliver(struct cm_conn *c, struct apm_cm_event *ev)
{
	int ret;

	lockdep_assert_held(&cm_lock);
	if (c->orphan)
		return;
	c->id.remote_id = cpu_to_be32(c->remote_id);
	WRITE_ONCE(cm_running, c);
	WRITE_ONCE(cm_worker, current);
	mutex_unlock(&cm_lock);

	ret = c->id.handler(&c->id, ev);

	mutex_lock(&cm_lock);
	WRITE_ONCE(cm_worker, NULL);
	WRITE_ONCE(cm_running, NULL);
	WRITE_ONCE(cm_running_listener, NULL);
	/* Not freed yet, even if the handler destroyed it: see bury. */
	if (ret && !c->orphan)
		cm_release(c);
	wake_up_all(&cm_idle);
}

/* REQ_RECEIVED: @c has its handler and context of @listener. */
void cm_deliver_request(struct cm_conn *c, struct cm_conn *listener,
			struct apm_cm_event *ev)
{
	WRITE_ONCE(cm_running_listener, listener);
	cm_deliver(c, ev);
}

void cm_deliver_simple(struct cm_conn *c, enum apm_cm_event_type type,
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
/* The timed message */

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

void cm_start_timed(struct cm_conn *c, unsigned int interval_ms)
{
	c->msg_live = true;
	c->msg_try = 0;
	c->msg_tries = c->max_retries + 1;
	c->msg_interval = msecs_to_jiffies(min_t(unsigned int, interval_ms,
						 CM_MAX_WAIT_MS));
	cm_transmit(c);
	mod_delayed_work(cm_wq, &c->timer, c->msg_interval);
}

void cm_stop_timed(struct cm_conn *c)
{
	c->msg_live = false;
	cancel_delayed_work(&c->timer);
}

/* The peer needs @ms for its answer. */
void cm_prolong_timed(struct cm_conn *c, unsigned int ms)
{
	mod_delayed_work(cm_wq, &c->timer,
			 msecs_to_jiffies(min_t(unsigned int, ms,
						CM_MAX_WAIT_MS)));
}

/* There and back, plus what the peer's CM takes (IBTA 12.7.4) */
unsigned int cm_response_ms(const struct cm_conn *c)
{
	return 2 * cm_time_ms(c->pri.rec.packet_life_time) +
	       cm_time_ms(c->remote_resp);
}

/* ------------------------------------------------------------------ */
/* Answers */

void cm_put_ids(struct cm_mad *mad, u32 local_id, u32 remote_id)
{
	/* The same place in all messages but REQ (no remote id) and SIDR */
	IBA_SET(CM_REJ_LOCAL_COMM_ID, &mad->rej, local_id);
	IBA_SET(CM_REJ_REMOTE_COMM_ID, &mad->rej, remote_id);
}

int cm_send_answer(struct cm_conn *c)
{
	if (!c->dev)
		return -ENODEV;
	return cm_dev_send(c->dev, &c->via, &c->answer, false);
}

void cm_start_answer(struct cm_conn *c, enum cm_attr attr)
{
	cm_msg_start(&c->answer, attr, c->peer_tid);
	cm_put_ids(&c->answer, c->local_id, c->remote_id);
	c->answer_attr = attr;
	c->mra_held = false;
}

void cm_repeat_answer(struct cm_conn *c, u16 attr)
{
	cm_count(APM_CM_RX_DUPLICATES, attr);
	c->mra_held = false;
	if (c->answer_attr)
		cm_send_answer(c);
}

/* An answer without a connection behind it */
void cm_reply(struct cm_rx *rx, struct cm_mad *mad)
{
	cm_dev_send(rx->dev, &rx->via, mad, false);
}

/* ------------------------------------------------------------------ */
/* States */

void cm_enter_timewait(struct cm_conn *c)
{
	c->msg_live = false;
	c->lap_state = APM_CM_LAP_UNINIT;
	c->pend.valid = false;
	c->state = APM_CM_TIMEWAIT;
	mod_delayed_work(cm_wq, &c->timer,
			 msecs_to_jiffies(cm_time_ms(c->pri.timeout)));
}

void cm_enter_idle(struct cm_conn *c)
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
	c->target_ack_delay = 0;
	c->answer_attr = 0;
	c->mra_held = false;
	c->apr_valid = false;
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
		keep = c->dev;
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
	c = dev ? cm_conn_new(dev, handler, context, CM_MAX_CONNECTIONS) :
		  ERR_PTR(-ENODEV);
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
