// SPDX-License-Identifier: GPL-2.0
/*
 * apm_traffic control: connection, paths and the policies of an APM consumer.
 *
 * Theory of operation
 *
 * All of this file but the posting functions runs on one ordered work queue
 * (see at.h), so struct at_session has no lock.
 *
 * Active side: IDLE -> RESOLVING (SA, both rails, until answered) ->
 * CONNECTING (REQ .. RTU) -> CONNECTED.  Passive side: LISTENING -> CONNECTED
 * at the RTU (or what stands for it), back to LISTENING at the end.  A QP that
 * fails stays, in state ERROR, so that its state can be looked at, until
 * disconnect, reset, or the peer's DREQ.
 *
 * cur is the primary path as this side knows it, alt the agreed alternate, old
 * the path left at the last migration.
 *
 * PATH_MIG: old = cur, cur = alt, CM notified.  The active side then wants a
 * LAP: whenever old's local port is Active and no LAP is out, the SA is asked
 * for the old path and the answer offered; again every 2 s, at once on
 * PORT_ACTIVE and on notice 64.  Passive side: QP loaded before APR 0 (so the
 * active side, which loads on APR 0, cannot arm against an unloaded peer); a
 * LAP for a local port that is not Active is refused.
 *
 * Loading: MIGRATED takes ALT_PATH + REARM.  In REARM or ARMED only ALT_PATH
 * is legal.
 */
#include <linux/kref.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <rdma/ib_cache.h>
#include <rdma/ib_mad.h>

#include "at.h"
#include "sa_compat.h"

static struct at_session at;		/* the actor's */
struct at_auto at_auto = {
	.lap = true,
	.rearm = true,
	.notify = true,
};

static struct workqueue_struct *at_wq;
static atomic_t at_queued;
static atomic_t at_gen_next;
static struct ib_sa_client at_sa;

enum { AT_PRIMARY, AT_ALTERNATE, AT_LAP };

static const char * const at_rail_names[] = {
	[AT_PRIMARY] = "primary",
	[AT_ALTERNATE] = "alternate",
	[AT_LAP] = "lap",
};

const char *at_mig_str(enum ib_mig_state state)
{
	switch (state) {
	case IB_MIG_MIGRATED:
		return "MIGRATED";
	case IB_MIG_REARM:
		return "REARM";
	case IB_MIG_ARMED:
		return "ARMED";
	}
	return "UNKNOWN";
}

static const char *at_qps_str(enum ib_qp_state state)
{
	static const char * const names[] = {
		[IB_QPS_RESET] = "RESET",
		[IB_QPS_INIT] = "INIT",
		[IB_QPS_RTR] = "RTR",
		[IB_QPS_RTS] = "RTS",
		[IB_QPS_SQD] = "SQD",
		[IB_QPS_SQE] = "SQE",
		[IB_QPS_ERR] = "ERR",
	};

	return state < ARRAY_SIZE(names) ? names[state] : "UNKNOWN";
}

const char *at_state_str(enum at_state state)
{
	static const char * const names[] = {
		[AT_IDLE] = "idle",
		[AT_LISTENING] = "listening",
		[AT_RESOLVING] = "resolving",
		[AT_CONNECTING] = "connecting",
		[AT_CONNECTED] = "connected",
		[AT_DISCONNECTING] = "disconnecting",
		[AT_ERROR] = "error",
	};

	return names[state];
}

/* ------------------------------------------------------------------ */
/* Posting to the actor */

static void at_dispatch(struct work_struct *work);

struct at_msg *at_msg_new(enum at_msg_type type, u32 gen, gfp_t gfp)
{
	struct at_msg *m;

	if (atomic_inc_return(&at_queued) > AT_MAX_QUEUED) {
		atomic_dec(&at_queued);
		return NULL;
	}
	m = kzalloc(sizeof(*m), gfp);
	if (!m) {
		atomic_dec(&at_queued);
		return NULL;
	}
	INIT_WORK(&m->work, at_dispatch);
	m->type = type;
	m->gen = gen;
	at_now(&m->t);
	return m;
}

void at_control_post(struct at_msg *m)
{
	queue_work(at_wq, &m->work);
}

static u32 at_new_gen(void)
{
	u32 gen;

	do {
		gen = atomic_inc_return(&at_gen_next);
	} while (!gen);
	return gen;
}

/* ------------------------------------------------------------------ */
/* Queries */

static int at_query(struct ib_qp_attr *attr)
{
	struct ib_qp_init_attr init;
	int mask = IB_QP_STATE | IB_QP_AV | IB_QP_ALT_PATH |
		   IB_QP_PATH_MIG_STATE | IB_QP_PORT | IB_QP_TIMEOUT |
		   IB_QP_RETRY_CNT | IB_QP_DEST_QPN;

	memset(attr, 0, sizeof(*attr));
	return ib_query_qp(at.c->qp, attr, mask, &init);
}

static const char *at_mig_now(void)
{
	struct ib_qp_attr attr;

	return at_query(&attr) ? "UNKNOWN" : at_mig_str(attr.path_mig_state);
}

static bool at_port_is_active(struct ib_device *dev, u32 port)
{
	struct ib_port_attr attr;

	return port && !ib_query_port(dev, port, &attr) &&
	       attr.state == IB_PORT_ACTIVE;
}

static bool at_gid_eq(const union ib_gid *a, const union ib_gid *b)
{
	return !memcmp(a, b, sizeof(*a));
}

static bool at_have_conn(void)
{
	return at.c && (at.state == AT_CONNECTED || at.state == AT_ERROR);
}

/* An event of the connection, with its QP and port; @t NULL: now */
static __printf(3, 4) void at_conn_event(const struct at_time *t,
					 const char *name, const char *fmt, ...)
{
	struct at_time now;
	struct va_format vaf = { .fmt = fmt };
	va_list args;

	if (!t)
		at_now(&now);
	va_start(args, fmt);
	vaf.va = &args;
	at_event_at(t ? t : &now, name, "\"qpn\":%u,\"port\":%u,%pV",
		    at.c->qp->qp_num, at.cur.port, &vaf);
	va_end(args);
}

static int at_rail_set(struct at_rail *rail, const struct sa_path_rec *rec)
{
	const struct ib_gid_attr *gid;

	gid = rdma_find_gid(at.dev, &rec->sgid, IB_GID_TYPE_IB, NULL);
	if (IS_ERR(gid)) {
		rail->valid = false;
		return -EADDRNOTAVAIL;
	}
	rail->rec = *rec;
	rail->port = gid->port_num;
	rail->valid = true;
	rdma_put_gid_attr(gid);
	return 0;
}

/* ------------------------------------------------------------------ */
/* Asking the SA */

struct at_path_ask {
	struct kref ref;		/* the caller and the callback */
	unsigned int rail;
	u32 gen;
};

static void at_ask_free(struct kref *ref)
{
	kfree(container_of(ref, struct at_path_ask, ref));
}

static void at_path_answer(int status, struct sa_path_rec *rec,
			   sa_num_records num, void *context)
{
	struct at_path_ask *ask = context;
	struct at_msg *m = at_msg_new(AT_MSG_PATH, ask->gen, GFP_KERNEL);

	if (m) {
		m->u.path.rail = ask->rail;
		m->u.path.status = status ? status : rec ? 0 : -ENODATA;
		if (!m->u.path.status)
			m->u.path.rec = *rec;
		at_control_post(m);
	}
	kref_put(&ask->ref, at_ask_free);
}

static int at_path_ask(unsigned int rail, u32 port, const union ib_gid *dgid)
{
	struct sa_path_rec rec = { .rec_type = SA_PATH_REC_TYPE_IB };
	struct at_path_ask *ask;
	struct ib_sa_query *query;
	u16 pkey;
	int ret;

	if (port < 1 || port > at.dev->phys_port_cnt)
		return -EINVAL;
	if (!at_port_is_active(at.dev, port))
		return -ENETDOWN;
	ret = rdma_query_gid(at.dev, port, 0, &rec.sgid);
	if (!ret)
		ret = ib_get_cached_pkey(at.dev, port, 0, &pkey);
	if (ret)
		return ret;
	rec.dgid = *dgid;
	rec.numb_path = 1;
	rec.reversible = 1;
	rec.pkey = cpu_to_be16(pkey);

	ask = kzalloc(sizeof(*ask), GFP_KERNEL);
	if (!ask)
		return -ENOMEM;
	kref_init(&ask->ref);
	ask->rail = rail;
	ask->gen = at.gen;
	/* On error the callback is not called. */
	ret = ib_sa_path_rec_get(&at_sa, at.dev, port, &rec,
				 IB_SA_PATH_REC_SGID | IB_SA_PATH_REC_DGID |
				 IB_SA_PATH_REC_NUMB_PATH |
				 IB_SA_PATH_REC_REVERSIBLE |
				 IB_SA_PATH_REC_PKEY, AT_SA_TIMEOUT_MS,
				 GFP_KERNEL, at_path_answer, ask, &query);
	if (ret < 0) {
		kref_put(&ask->ref, at_ask_free);
		return ret;
	}
	return 0;
}

static void at_path_event(const struct at_time *t, unsigned int rail,
			  u32 port, const struct sa_path_rec *rec)
{
	at_event_at(t, "path_resolved",
		    "\"rail\":\"%s\",\"port\":%u,\"slid\":%u,\"dlid\":%u,\"dgid\":\"%pI6c\",\"mtu\":%d",
		    at_rail_names[rail], port, be16_to_cpu(rec->ib.slid),
		    be16_to_cpu(rec->ib.dlid), &rec->dgid,
		    ib_mtu_enum_to_int(rec->mtu));
}

/* Tries 1, 2, 4, 8 ... are worth a line. */
static void at_path_retry_event(unsigned int rail, u32 port,
				const union ib_gid *dgid, int error, u32 try)
{
	if (try & (try - 1))
		return;
	at_event("path_retry",
		 "\"rail\":\"%s\",\"port\":%u,\"dgid\":\"%pI6c\",\"errno\":%d,\"try\":%u",
		 at_rail_names[rail], port, dgid, -error, try);
}

/* ------------------------------------------------------------------ */
/* Ending */

static void at_cancel_timers(void)
{
	/* On the same ordered queue: none of them runs now. */
	cancel_delayed_work(&at.arm_work);
	cancel_delayed_work(&at.lap_work);
	cancel_delayed_work(&at.path_work);
	cancel_delayed_work(&at.apr_work);
	at.lap_asked = false;
	at.arm_watch = false;
	at.lap_wanted = false;
	at.lap_query = false;
	at.lap_out = false;
}

/*
 * Everything of the connection goes; the listener stays.  The CM finishes DREQ
 * and TIMEWAIT by itself.
 */
static void at_end(const char *by, bool tell)
{
	struct apm_cm_id *id = at.id;
	struct at_conn *c = at.c;
	bool was = at.state == AT_CONNECTED || at.state == AT_ERROR;

	at_cancel_timers();
	if (tell && was && c)
		at_event("disconnected",
			 "\"qpn\":%u,\"port\":%u,\"by\":\"%s\"",
			 c->qp->qp_num, at.cur.port, by);
	else if (tell && at.state == AT_CONNECTING)
		at_event("connect_failed",
			 "\"why\":\"ended by %s\",\"errno\":%d", by,
			 ECONNABORTED);
	at.gen = 0;
	at.id = NULL;
	at.c = NULL;
	at.accepted = false;
	at.cur.valid = false;
	at.alt.valid = false;
	at.old.valid = false;
	at.migrations = 0;
	if (id)
		apm_cm_destroy_id(id);
	if (c)
		at_conn_destroy(c);
	at.state = at.listen_id ? AT_LISTENING : AT_IDLE;
}

static void at_reset(const char *by)
{
	at_end(by, true);
	if (at.listen_id)
		apm_cm_destroy_id(at.listen_id);
	at.listen_id = NULL;
	at.dev = NULL;
	at.active = false;
	at.state = AT_IDLE;
}

static void at_connect_failed(const char *why, int reason, int error)
{
	if (reason >= 0)
		at_event("connect_failed", "\"why\":\"%s\",\"reason\":%d",
			 why, reason);
	else
		at_event("connect_failed", "\"why\":\"%s\",\"errno\":%d",
			 why, -error);
	at_end("error", false);
}

/* ------------------------------------------------------------------ */
/* Watching for ARMED */

static void at_arm_watch(void)
{
	at.arm_watch = true;
	at.still_told = false;
	at.arm_from_ns = ktime_get_ns();
	at.arm_poll_ms = AT_ARM_POLL_MIN_MS;
	mod_delayed_work(at_wq, &at.arm_work,
			 msecs_to_jiffies(at.arm_poll_ms));
}

static void at_arm_work(struct work_struct *work)
{
	struct ib_qp_attr attr;
	u64 ms;

	if (!at.arm_watch || !at_have_conn())
		return;
	if (at_query(&attr) || attr.path_mig_state == IB_MIG_MIGRATED ||
	    attr.qp_state == IB_QPS_ERR) {
		at.arm_watch = false;
		return;
	}
	ms = (ktime_get_ns() - at.arm_from_ns) / NSEC_PER_MSEC;
	if (attr.path_mig_state == IB_MIG_ARMED) {
		at.arm_watch = false;
		at_conn_event(NULL, "armed",
			      "\"state\":\"ARMED\",\"after_ms\":%llu", ms);
		return;
	}
	if (!at.still_told && ms >= AT_STILL_REARM_MS) {
		at.still_told = true;
		at_conn_event(NULL, "still_rearm",
			      "\"state\":\"REARM\",\"after_ms\":%llu", ms);
	}
	at.arm_poll_ms = min(at.arm_poll_ms * 2, AT_ARM_POLL_MAX_MS);
	mod_delayed_work(at_wq, &at.arm_work,
			 msecs_to_jiffies(at.arm_poll_ms));
}

/* ------------------------------------------------------------------ */
/* Loading the alternate, migrating */

/*
 * Loads what the CM has (path of the LAP being answered, or the agreed one).
 * With @rearm, and if the QP is MIGRATED, also REARM.
 */
static int at_load(bool rearm, bool force)
{
	struct ib_qp_attr attr = {}, now;
	const char *state;
	int mask, ret;

	ret = apm_cm_init_rearm_attr(at.id, &attr, &mask);
	if (!ret)
		ret = at_query(&now);
	if (ret) {
		at_conn_event(NULL, "rearm_refused",
			      "\"errno\":%d,\"state\":\"%s\"", -ret,
			      at_mig_now());
		return ret;
	}
	if (!rearm || (!force && now.path_mig_state != IB_MIG_MIGRATED))
		mask &= ~IB_QP_PATH_MIG_STATE;
	ret = ib_modify_qp(at.c->qp, &attr, mask);
	/* The core's alternate path check returns a positive EINVAL. */
	if (ret > 0)
		ret = -ret;
	state = at_mig_now();
	if (ret) {
		at_conn_event(NULL, "rearm_refused",
			      "\"errno\":%d,\"state\":\"%s\"", -ret, state);
		return ret;
	}
	at_conn_event(NULL,
		      mask & IB_QP_PATH_MIG_STATE ? "rearmed" : "alternate_loaded",
		      "\"alt_port\":%u,\"alt_dlid\":%u,\"state\":\"%s\"",
		      attr.alt_port_num, rdma_ah_get_dlid(&attr.alt_ah_attr),
		      state);
	if (mask & IB_QP_PATH_MIG_STATE)
		at_arm_watch();
	return 0;
}

/* Software migration; the QP's PATH_MIG event does the rest. */
static int at_migrate(const char *why, bool force)
{
	struct ib_qp_attr attr = { .path_mig_state = IB_MIG_MIGRATED }, now;
	int ret;

	ret = at_query(&now);
	if (!ret && !force && now.path_mig_state != IB_MIG_ARMED)
		ret = -EINVAL;
	if (!ret)
		ret = ib_modify_qp(at.c->qp, &attr, IB_QP_PATH_MIG_STATE);
	if (ret) {
		at_conn_event(NULL, "migrate_refused",
			      "\"errno\":%d,\"state\":\"%s\",\"why\":\"%s\"",
			      -ret, at_mig_str(now.path_mig_state), why);
		return ret;
	}
	at_conn_event(NULL, "migrated_by_software",
		      "\"why\":\"%s\",\"state\":\"%s\"", why,
		      at_mig_str(now.path_mig_state));
	return 0;
}

/* ------------------------------------------------------------------ */
/* LAP, active side */

/*
 * Soon at first: right after PORT_ACTIVE the kernel's SA client may not know
 * the subnet manager's address yet.
 */
static void at_lap_later(void)
{
	unsigned int ms = AT_LAP_FIRST_MS << min(at.lap_try, 8U);

	mod_delayed_work(at_wq, &at.lap_work,
			 msecs_to_jiffies(min(ms, AT_LAP_RETRY_MS)));
}

static int at_lap_ask(void)
{
	int ret;

	at.lap_try++;
	ret = at_path_ask(AT_LAP, at.lap_port, &at.lap_dgid);
	if (ret)
		at_path_retry_event(AT_LAP, at.lap_port, &at.lap_dgid, ret,
				    at.lap_try);
	else
		at.lap_query = true;
	return ret;
}

/* The policy: something may have changed, see if a LAP is due. */
static void at_lap_kick(void)
{
	if (!at_auto.lap || !at.lap_wanted || !at.active ||
	    at.state != AT_CONNECTED || at.lap_query || at.lap_out)
		return;
	/* Whatever happens, look again. */
	at_lap_later();
	if (!at.old.valid || !at_port_is_active(at.dev, at.old.port))
		return;
	at.lap_port = at.old.port;
	at.lap_dgid = at.old.rec.dgid;
	at_lap_ask();
}

static void at_lap_work(struct work_struct *work)
{
	at_lap_kick();
}

static void at_lap_send(const struct sa_path_rec *answer)
{
	struct apm_cm_lap_param p = {};
	struct sa_path_rec rec = *answer;
	int ret;

	/* A larger MTU is no reason to refuse: the QP's stays what it is. */
	if (at.cur.valid && rec.mtu > at.cur.rec.mtu)
		rec.mtu = at.cur.rec.mtu;
	ret = at_rail_set(&at.lap, &rec);
	if (!ret) {
		p.alternate_path = &rec;
		p.ack_timeout = at.p.timeout;
		p.remote_cm_response_timeout = at.active ? at.p.cmtimeout : 0;
		ret = apm_cm_send_lap(at.id, &p);
	}
	if (ret) {
		at_conn_event(NULL, "lap_error",
			      "\"why\":\"send\",\"errno\":%d", -ret);
		return;
	}
	at.lap_out = true;
	at_conn_event(NULL, "lap_sent",
		      "\"alt_port\":%u,\"alt_peer_gid\":\"%pI6c\",\"try\":%u",
		      at.lap.port, &rec.dgid, at.lap_try);
}

/* ------------------------------------------------------------------ */
/* Connecting, active side */

static void at_send_req(void);

static void at_resolve(void)
{
	unsigned int i;
	bool all = true;

	for (i = 0; i < 2; i++) {
		int ret;

		if (!at.p.rail[i].given || at.rail[i].valid)
			continue;
		all = false;
		at.path_try[i]++;
		ret = at_path_ask(i, at.p.rail[i].port, &at.p.rail[i].dgid);
		if (ret) {
			at_path_retry_event(i, at.p.rail[i].port,
					    &at.p.rail[i].dgid, ret,
					    at.path_try[i]);
			mod_delayed_work(at_wq, &at.path_work,
					 msecs_to_jiffies(AT_PATH_RETRY_MS));
			return;
		}
		/* One question at a time; the answer goes on from there. */
		return;
	}
	if (all)
		at_send_req();
}

static void at_path_work(struct work_struct *work)
{
	if (at.state == AT_RESOLVING)
		at_resolve();
}

static int at_cm_event(struct apm_cm_id *id, const struct apm_cm_event *ev);

static int at_qp_to(enum ib_qp_state state)
{
	struct ib_qp_attr attr = { .qp_state = state };
	int mask, ret;

	ret = apm_cm_init_qp_attr(at.id, &attr, &mask);
	if (ret)
		return ret;
	/* The CM of the called side knows it only when the REP is sent. */
	if (mask & IB_QP_RQ_PSN)
		attr.rq_psn = at.c->rq_psn;
	ret = ib_modify_qp(at.c->qp, &attr, mask);
	return ret > 0 ? -ret : ret;
}

/*
 * What both sides do with a new QP once they know their peer.  *step names
 * what failed.
 */
static int at_conn_bring_up(const char **step)
{
	int ret;

	*step = "modify QP to INIT";
	ret = at_qp_to(IB_QPS_INIT);
	if (ret)
		return ret;
	*step = "post receives";
	ret = at_conn_start(at.c);
	if (ret)
		return ret;
	*step = "modify QP to RTR";
	ret = at_qp_to(IB_QPS_RTR);
	if (ret)
		return ret;
	*step = "modify QP to RTS";
	return at_qp_to(IB_QPS_RTS);
}

static void at_send_req(void)
{
	struct apm_cm_req_param p = {};
	struct at_private private;
	const char *step;
	int ret;

	/* One path MTU per QP */
	if (at.p.rail[AT_ALTERNATE].given) {
		u8 mtu = min(at.rail[AT_PRIMARY].rec.mtu,
			     at.rail[AT_ALTERNATE].rec.mtu);

		at.rail[AT_PRIMARY].rec.mtu = mtu;
		at.rail[AT_ALTERNATE].rec.mtu = mtu;
	}

	step = "create QP";
	at.c = at_conn_create(at.dev, at.gen, at.p.size, at.p.depth);
	if (IS_ERR(at.c)) {
		ret = PTR_ERR(at.c);
		at.c = NULL;
		goto err;
	}
	step = "create CM id";
	at.id = apm_cm_create_id(at.dev, at_cm_event,
				 (void *)(uintptr_t)at.gen);
	if (IS_ERR(at.id)) {
		ret = PTR_ERR(at.id);
		at.id = NULL;
		goto err;
	}
	at_conn_private(at.c, &private);
	p.primary_path = &at.rail[AT_PRIMARY].rec;
	if (at.p.rail[AT_ALTERNATE].given)
		p.alternate_path = &at.rail[AT_ALTERNATE].rec;
	p.service_id = cpu_to_be64(at.p.service);
	p.qp_num = at.c->qp->qp_num;
	p.qp_type = IB_QPT_RC;
	p.starting_psn = at.c->rq_psn;
	p.private_data = &private;
	p.private_data_len = sizeof(private);
	p.responder_resources = min(4, at.dev->attrs.max_qp_rd_atom);
	p.initiator_depth = min(4, at.dev->attrs.max_qp_init_rd_atom);
	p.remote_cm_response_timeout = at.p.cmtimeout;
	p.local_cm_response_timeout = at.p.cmtimeout;
	p.ack_timeout = at.p.timeout;
	p.retry_count = at.p.retry;
	p.rnr_retry_count = at.p.rnr;
	p.max_cm_retries = at.p.cmretries;
	at.state = AT_CONNECTING;
	step = "send REQ";
	ret = apm_cm_send_req(at.id, &p);
	if (ret)
		goto err;
	at_event("connecting",
		 "\"qpn\":%u,\"service\":\"%#llx\",\"peer_gid\":\"%pI6c\",\"alternate\":%d",
		 at.c->qp->qp_num, at.p.service,
		 &at.rail[AT_PRIMARY].rec.dgid, at.p.rail[AT_ALTERNATE].given);
	return;
err:
	at_connect_failed(step, -1, ret);
}

static void at_connected(const struct at_time *t)
{
	struct ib_qp_attr attr;
	int ret = at_query(&attr);

	at.state = AT_CONNECTED;
	at_event_at(t, "connected",
		    "\"qpn\":%u,\"peer_qpn\":%u,\"port\":%u,\"peer_gid\":\"%pI6c\",\"alt_port\":%u,\"alt_peer_gid\":\"%pI6c\",\"role\":\"%s\",\"state\":\"%s\"",
		    at.c->qp->qp_num, ret ? 0 : attr.dest_qp_num, at.cur.port,
		    &at.cur.rec.dgid, at.alt.valid ? at.alt.port : 0,
		    &at.alt.rec.dgid, at.active ? "active" : "passive",
		    ret ? "UNKNOWN" : at_mig_str(attr.path_mig_state));
	if (!ret && attr.path_mig_state != IB_MIG_MIGRATED)
		at_arm_watch();
}

static void at_rep_received(struct at_msg *m)
{
	const char *step = "peer's private data";
	int ret;

	if (at.state != AT_CONNECTING)
		return;
	at.cur = at.rail[AT_PRIMARY];
	at.alt.valid = false;
	if (at.p.rail[AT_ALTERNATE].given &&
	    m->u.cm.ev.u.rep.failover_accepted == APM_CM_FAILOVER_ACCEPTED)
		at.alt = at.rail[AT_ALTERNATE];
	ret = at_conn_set_peer(at.c, m->u.cm.data,
			       m->u.cm.ev.private_data_len);
	if (!ret)
		ret = at_conn_bring_up(&step);
	if (!ret) {
		step = "send RTU";
		ret = apm_cm_send_rtu(at.id, NULL, 0);
	}
	if (ret) {
		apm_cm_send_rej(at.id, APM_CM_REJ_CONSUMER_DEFINED, NULL, 0,
				NULL, 0);
		at_connect_failed(step, -1, ret);
		return;
	}
	at_connected(&m->t);
}

/* ------------------------------------------------------------------ */
/* Accepting, passive side */

static void at_req_received(struct at_msg *m)
{
	const struct apm_cm_req_event *req = &m->u.cm.ev.u.req;
	struct apm_cm_rep_param p = {};
	struct at_private private;
	const char *step = "listener busy";
	int reason = APM_CM_REJ_NO_RESOURCES;
	int ret = -EBUSY;

	if (at.state != AT_LISTENING || at.closing)
		goto refuse;
	at.gen = m->gen;
	at.id = m->u.cm.id;
	at.active = false;
	at_event_at(&m->t, "req_received",
		    "\"service\":\"%#llx\",\"peer_gid\":\"%pI6c\",\"alternate\":%d",
		    be64_to_cpu(at.id->service_id), &req->primary_path.dgid,
		    req->has_alternate);
	at.state = AT_CONNECTING;
	at.alt.valid = false;
	at.old.valid = false;

	step = "create QP";
	at.c = at_conn_create(at.dev, at.gen, at.p.size, at.p.depth);
	if (IS_ERR(at.c)) {
		ret = PTR_ERR(at.c);
		at.c = NULL;
		goto refuse;
	}
	step = "peer's private data (size must be the same on both sides)";
	reason = APM_CM_REJ_CONSUMER_DEFINED;
	ret = at_conn_set_peer(at.c, m->u.cm.data,
			       m->u.cm.ev.private_data_len);
	if (ret)
		goto refuse;
	step = "paths";
	ret = at_rail_set(&at.cur, &req->primary_path);
	if (!ret && req->has_alternate)
		ret = at_rail_set(&at.alt, &req->alternate_path);
	if (ret)
		goto refuse;
	ret = at_conn_bring_up(&step);
	if (ret)
		goto refuse;

	at_conn_private(at.c, &private);
	p.qp_num = at.c->qp->qp_num;
	p.starting_psn = at.c->rq_psn;
	p.private_data = &private;
	p.private_data_len = sizeof(private);
	p.responder_resources = req->responder_resources;
	p.initiator_depth = req->initiator_depth;
	p.failover_accepted = APM_CM_FAILOVER_ACCEPTED;
	p.rnr_retry_count = req->rnr_retry_count;
	step = "send REP";
	ret = apm_cm_send_rep(at.id, &p);
	if (ret)
		goto refuse;
	at.accepted = true;
	return;

refuse:
	apm_cm_send_rej(m->u.cm.id, reason, NULL, 0, NULL, 0);
	if (at.id == m->u.cm.id) {
		at_connect_failed(step, -1, ret);
		return;
	}
	at_event("connect_failed", "\"why\":\"%s\",\"errno\":%d", step, -ret);
	apm_cm_destroy_id(m->u.cm.id);
}

/* ------------------------------------------------------------------ */
/* LAP and APR received */

static void at_send_apr(u8 status)
{
	int ret = apm_cm_send_apr(at.id, status, NULL, 0, NULL, 0);

	if (ret)
		at_conn_event(NULL, "lap_error",
			      "\"why\":\"send\",\"errno\":%d", -ret);
	else
		at_conn_event(NULL, "apr_sent",
			      "\"status\":%u,\"text\":\"%s\"", status,
			      apm_cm_apr_str(status));
}

static void at_lap_answer(const struct sa_path_rec *rec, u32 port)
{
	if (at_auto.apr_reject || !at_port_is_active(at.dev, port)) {
		at_send_apr(APM_CM_APR_REJECT);
		return;
	}
	/* Loaded before the peer hears of it. */
	if (at_load(at_auto.rearm, false)) {
		at_send_apr(APM_CM_APR_REJECT);
		return;
	}
	at_rail_set(&at.alt, rec);
	at_send_apr(APM_CM_APR_SUCCESS);
}

static void at_apr_work(struct work_struct *work)
{
	if (!at.lap_asked || !at_have_conn())
		return;
	at.lap_asked = false;
	at_lap_answer(&at.asked, at.asked_port);
}

/* The policy says that we are slow: MRA now, APR later. */
static bool at_send_mra(const struct sa_path_rec *rec, u32 port)
{
	u8 code = 8;			/* 1 ms, see apm_cm's times */
	int ret;

	while (1U << (code - 8) < at_auto.mra_ms)
		code++;
	/* Twice that, so that the peer does not repeat at the last moment. */
	ret = apm_cm_send_mra(at.id, code + 1, NULL, 0);
	if (ret) {
		at_conn_event(NULL, "lap_error",
			      "\"why\":\"send\",\"errno\":%d", -ret);
		return false;
	}
	at_conn_event(NULL, "mra_sent",
		      "\"ms\":%u", 1U << (code + 1 - 8));
	at.lap_asked = true;
	at.asked = *rec;
	at.asked_port = port;
	mod_delayed_work(at_wq, &at.apr_work,
			 msecs_to_jiffies(at_auto.mra_ms));
	return true;
}

static void at_lap_received(struct at_msg *m)
{
	const struct sa_path_rec *rec = &m->u.cm.ev.u.lap.alternate_path;
	u32 port = m->u.cm.ev.u.lap.port;

	at_conn_event(&m->t, "lap_received",
		      "\"alt_port\":%u,\"alt_peer_gid\":\"%pI6c\"", port,
		      &rec->dgid);
	if (!at_auto.mra_ms || !at_send_mra(rec, port))
		at_lap_answer(rec, port);
}

static void at_apr_received(struct at_msg *m)
{
	u8 status = m->u.cm.ev.u.apr.status;

	at.lap_out = false;
	at_conn_event(&m->t, "apr_received",
		      "\"status\":%u,\"text\":\"%s\"", status,
		      apm_cm_apr_str(status));
	if (status != APM_CM_APR_SUCCESS) {
		if (at.lap_wanted)
			at_lap_later();
		return;
	}
	at.lap_wanted = false;
	cancel_delayed_work(&at.lap_work);
	at.alt = at.lap;
	at_load(at_auto.rearm, false);
}

static void at_lap_error(struct at_msg *m)
{
	static const char * const why[] = {
		[APM_CM_LAP_TIMEOUT] = "timeout",
		[APM_CM_LAP_CROSSED] = "crossed",
		[APM_CM_LAP_DISCONNECT] = "disconnect",
	};

	at.lap_out = false;
	at_conn_event(&m->t, "lap_error",
		      "\"why\":\"%s\"", why[m->u.cm.ev.u.lap_error.why]);
	if (at.lap_wanted)
		at_lap_later();
}

/* ------------------------------------------------------------------ */
/* CM events */

/* In apm_cm's work: note and queue. */
static int at_cm_event(struct apm_cm_id *id, const struct apm_cm_event *ev)
{
	struct at_msg *m;

	/* A new connection needs a generation of its own. */
	if (ev->event == APM_CM_REQ_RECEIVED)
		id->context = (void *)(uintptr_t)at_new_gen();
	m = at_msg_new(AT_MSG_CM, (uintptr_t)id->context, GFP_KERNEL);
	if (!m)
		return ev->event == APM_CM_REQ_RECEIVED ? -ENOMEM : 0;
	m->u.cm.id = id;
	m->u.cm.ev = *ev;
	m->u.cm.ev.private_data_len =
		min_t(u8, ev->private_data_len, sizeof(m->u.cm.data));
	if (ev->private_data)
		memcpy(m->u.cm.data, ev->private_data,
		       m->u.cm.ev.private_data_len);
	m->u.cm.ev.private_data = NULL;
	at_control_post(m);
	return 0;
}

/* The peer clears up our former life: again soon, from the QP on. */
static void at_call_again(void)
{
	struct apm_cm_id *id = at.id;
	struct at_conn *c = at.c;

	at.id = NULL;
	at.c = NULL;
	at.gen = at_new_gen();
	apm_cm_destroy_id(id);
	at_conn_destroy(c);
	at.state = AT_RESOLVING;
	mod_delayed_work(at_wq, &at.path_work,
			 msecs_to_jiffies(AT_PATH_RETRY_MS));
}

static void at_rejected(u16 reason)
{
	if (at.state != AT_CONNECTING)
		at_end("peer", true);
	else if (at.active && reason == APM_CM_REJ_STALE_CONN &&
		 at.stale_try++ < AT_STALE_RETRIES)
		at_call_again();
	else
		at_connect_failed(apm_cm_rej_str(reason), reason, 0);
}

static void at_on_cm(struct at_msg *m)
{
	const struct apm_cm_event *ev = &m->u.cm.ev;

	if (ev->event == APM_CM_REQ_RECEIVED) {
		at_req_received(m);
		return;
	}
	if (!at.gen || m->gen != at.gen)
		return;

	switch (ev->event) {
	case APM_CM_REP_RECEIVED:
		at_rep_received(m);
		break;
	case APM_CM_RTU_RECEIVED:
	case APM_CM_USER_ESTABLISHED:
		if (at.state == AT_CONNECTING && at.accepted)
			at_connected(&m->t);
		break;
	case APM_CM_REQ_ERROR:
		at_connect_failed("REQ not answered", -1, -ETIMEDOUT);
		break;
	case APM_CM_REP_ERROR:
		at_connect_failed("REP not answered", -1, -ETIMEDOUT);
		break;
	case APM_CM_REJ_RECEIVED:
		at_rejected(ev->u.rej.reason);
		break;
	case APM_CM_MRA_RECEIVED:
		if (at.c)
			at_conn_event(&m->t, "mra_received",
				      "\"service_timeout\":%u",
				      ev->u.mra.service_timeout);
		break;
	case APM_CM_LAP_RECEIVED:
		if (at_have_conn())
			at_lap_received(m);
		break;
	case APM_CM_LAP_ERROR:
		if (at_have_conn())
			at_lap_error(m);
		break;
	case APM_CM_APR_RECEIVED:
		if (at_have_conn())
			at_apr_received(m);
		break;
	case APM_CM_DREQ_RECEIVED:
		apm_cm_send_drep(at.id, NULL, 0);
		at_end("peer", true);
		break;
	case APM_CM_DREP_RECEIVED:
	case APM_CM_DREQ_ERROR:
	case APM_CM_TIMEWAIT_EXIT:
		at_end("peer", true);
		break;
	case APM_CM_DEVICE_REMOVED:
		at_end("device", true);
		break;
	default:
		break;
	}
}

/* ------------------------------------------------------------------ */
/* QP, port and SA events */

static void at_path_mig(struct at_msg *m)
{
	u32 old_port = at.cur.port;
	struct ib_qp_attr attr;
	int ret = at_query(&attr);
	int error;

	at.migrations++;
	at.arm_watch = false;
	if (at.alt.valid) {
		at.old = at.cur;
		at.cur = at.alt;
		at.alt.valid = false;
	}
	at_event_at(&m->t, "path_mig",
		    "\"qpn\":%u,\"port\":%u,\"old_port\":%u,\"state\":\"%s\",\"dlid\":%u,\"count\":%u",
		    at.c->qp->qp_num, ret ? at.cur.port : attr.port_num,
		    old_port,
		    ret ? "UNKNOWN" : at_mig_str(attr.path_mig_state),
		    ret ? 0 : rdma_ah_get_dlid(&attr.ah_attr), at.migrations);
	if (at_auto.notify) {
		error = apm_cm_notify(at.id, IB_EVENT_PATH_MIG);
		if (error)
			at_conn_event(NULL, "cm_notified",
				      "\"errno\":%d", -error);
		else
			at_conn_event(NULL, "cm_notified",
				      "\"peer_gid\":\"%pI6c\"",
				      &at.cur.rec.dgid);
	}
	if (at.active) {
		at.lap_wanted = true;
		at.lap_try = 0;
		at_lap_kick();
	}
}

static void at_on_qp_event(struct at_msg *m)
{
	struct ib_qp_attr attr;
	const char *name;

	if (!at.c || m->gen != at.gen)
		return;
	switch (m->u.qp.event) {
	case IB_EVENT_PATH_MIG:
		at_path_mig(m);
		return;
	case IB_EVENT_COMM_EST:
		if (at.state == AT_CONNECTING && at.accepted &&
		    !apm_cm_notify(at.id, IB_EVENT_COMM_EST))
			at_connected(&m->t);
		name = "comm_est";
		break;
	case IB_EVENT_PATH_MIG_ERR:
		name = "path_mig_err";
		break;
	case IB_EVENT_SQ_DRAINED:
		name = "sq_drained";
		break;
	case IB_EVENT_QP_LAST_WQE_REACHED:
		/* Ending; nothing to tell. */
		return;
	default:
		name = "qp_error";
		break;
	}
	at_conn_event(&m->t, name,
		      "\"what\":\"%s\",\"state\":\"%s\"",
		      ib_event_msg(m->u.qp.event),
		      at_query(&attr) ? "UNKNOWN" : at_mig_str(attr.path_mig_state));
}

static void at_on_data_error(struct at_msg *m)
{
	struct ib_qp_attr attr;
	int ret;

	if (!at.c || m->gen != at.gen || at.state != AT_CONNECTED)
		return;
	at.state = AT_ERROR;
	ret = at_query(&attr);
	at_conn_event(&m->t, "qp_error",
		      "\"what\":\"QP in state %s\",\"state\":\"%s\"",
		      ret ? "UNKNOWN" : at_qps_str(attr.qp_state),
		      ret ? "UNKNOWN" : at_mig_str(attr.path_mig_state));
}

static void at_on_port_event(struct at_msg *m)
{
	if (m->u.port.dev != at.dev)
		return;
	switch (m->u.port.event) {
	case IB_EVENT_PORT_ERR:
		if (at_auto.migrate && at.state == AT_CONNECTED &&
		    at.cur.valid && at.cur.port == m->u.port.port)
			at_migrate("port_err", false);
		break;
	case IB_EVENT_PORT_ACTIVE:
		if (at.state == AT_RESOLVING)
			mod_delayed_work(at_wq, &at.path_work, 0);
		at_lap_kick();
		break;
	default:
		break;
	}
}

static void at_on_sa(struct at_msg *m)
{
	const struct sa_notice_event *ev = &m->u.sa;

	if (ev->device != at.dev)
		return;
	if (ev->type == SA_NOTICE_GID_OUT) {
		/* Both ports hear of it; the QP migrates once. */
		if (at_auto.migrate && at.state == AT_CONNECTED &&
		    at.cur.valid && at.alt.valid &&
		    at_gid_eq(&ev->gid, &at.cur.rec.dgid))
			at_migrate("sa_gid_out", false);
	} else if (ev->type == SA_NOTICE_GID_IN) {
		if (at.old.valid && at_gid_eq(&ev->gid, &at.old.rec.dgid))
			at_lap_kick();
	}
}

static void at_on_path(struct at_msg *m)
{
	unsigned int rail = m->u.path.rail;
	struct sa_path_rec *rec = &m->u.path.rec;
	int status = m->u.path.status;

	if (!at.gen || m->gen != at.gen)
		return;
	/* What the SA says is checked like anybody's word. */
	if (!status && (rec->mtu < IB_MTU_256 || rec->mtu > IB_MTU_4096 ||
			rec->rec_type != SA_PATH_REC_TYPE_IB))
		status = -EPROTO;

	if (rail == AT_LAP) {
		if (!at.lap_query)
			return;
		at.lap_query = false;
		if (at.state != AT_CONNECTED)
			return;
		if (status) {
			at_path_retry_event(rail, at.lap_port, &at.lap_dgid,
					    status, at.lap_try);
			return;		/* the policy's timer is running */
		}
		at_path_event(&m->t, rail, at.lap_port, rec);
		at_lap_send(rec);
		return;
	}
	if (at.state != AT_RESOLVING)
		return;
	if (!status)
		status = at_rail_set(&at.rail[rail], rec);
	if (status) {
		at_path_retry_event(rail, at.p.rail[rail].port,
				    &at.p.rail[rail].dgid, status,
				    at.path_try[rail]);
		mod_delayed_work(at_wq, &at.path_work,
				 msecs_to_jiffies(AT_PATH_RETRY_MS));
		return;
	}
	at_path_event(&m->t, rail, at.p.rail[rail].port, rec);
	at_resolve();
}

/* ------------------------------------------------------------------ */
/* Commands */

static int at_refuse(struct at_cmd *cmd, int ret, const char *word,
		     const char *value, const char *expected)
{
	strscpy(cmd->bad_word, word, sizeof(cmd->bad_word));
	strscpy(cmd->bad_value, value, sizeof(cmd->bad_value));
	strscpy(cmd->expected, expected, sizeof(cmd->expected));
	return ret;
}

static int at_cmd_setup(struct at_cmd *cmd)
{
	struct ib_device *dev;

	if (at.state != AT_IDLE)
		return at_refuse(cmd, -EBUSY, "state", at_state_str(at.state),
				 "idle: disconnect or reset first");
	dev = at_device_get(cmd->p.dev);
	if (!dev)
		return at_refuse(cmd, -ENODEV, "dev", cmd->p.dev,
				 "the name of an InfiniBand device, or none for the first");
	at.p = cmd->p;
	at.dev = dev;
	return 0;
}

static int at_cmd_listen(struct at_cmd *cmd)
{
	int ret = at_cmd_setup(cmd);

	if (ret)
		return ret;
	at.listen_id = apm_cm_create_id(at.dev, at_cm_event, NULL);
	if (IS_ERR(at.listen_id)) {
		ret = PTR_ERR(at.listen_id);
		at.listen_id = NULL;
		return at_refuse(cmd, ret, "dev", cmd->p.dev,
				 "a device that apm_cm serves (is ib_cm loaded?)");
	}
	ret = apm_cm_listen(at.listen_id, cpu_to_be64(at.p.service));
	if (ret) {
		apm_cm_destroy_id(at.listen_id);
		at.listen_id = NULL;
		return at_refuse(cmd, ret, "service", "",
				 "one that nobody here listens on");
	}
	at.state = AT_LISTENING;
	at_event("listening", "\"service\":\"%#llx\"", at.p.service);
	return 0;
}

static int at_cmd_connect(struct at_cmd *cmd)
{
	unsigned int i;
	int ret = at_cmd_setup(cmd);

	if (ret)
		return ret;
	for (i = 0; i < 2; i++) {
		char text[16];

		if (!at.p.rail[i].given ||
		    at.p.rail[i].port <= at.dev->phys_port_cnt)
			continue;
		snprintf(text, sizeof(text), "%u", at.p.rail[i].port);
		at.dev = NULL;
		return at_refuse(cmd, -EINVAL, at_rail_names[i], text,
				 "a local port the device has");
	}
	memset(at.rail, 0, sizeof(at.rail));
	memset(at.path_try, 0, sizeof(at.path_try));
	at.stale_try = 0;
	at.active = true;
	at.gen = at_new_gen();
	at.state = AT_RESOLVING;
	mod_delayed_work(at_wq, &at.path_work, 0);
	return 0;
}

static int at_need_conn(struct at_cmd *cmd)
{
	if (at.state == AT_CONNECTED)
		return 0;
	return at_refuse(cmd, -ENOTCONN, "state", at_state_str(at.state),
			 "connected");
}

static int at_cmd_lap(struct at_cmd *cmd)
{
	int ret = at_need_conn(cmd);

	if (ret)
		return ret;
	if (at.lap_query || at.lap_out)
		return at_refuse(cmd, -EBUSY, "lap", "",
				 "no other LAP outstanding");
	if (cmd->lap.port_given) {
		at.lap_port = cmd->lap.port;
		at.lap_dgid = cmd->lap.dgid;
	} else if (at.old.valid) {
		at.lap_port = at.old.port;
		at.lap_dgid = at.old.rec.dgid;
	} else {
		return at_refuse(cmd, -ENOENT, "lap", "",
				 "port= and dgid=: nothing has migrated yet");
	}
	at.lap_try = 0;
	ret = at_lap_ask();
	if (ret == -EINVAL)
		return at_refuse(cmd, ret, "port", "",
				 "a local port the device has");
	if (ret == -ENETDOWN)
		return at_refuse(cmd, ret, "port", "",
				 "a local port that is Active");
	return ret;
}

static int at_cmd_auto(struct at_cmd *cmd)
{
	if (cmd->au.lap >= 0)
		at_auto.lap = cmd->au.lap;
	if (cmd->au.rearm >= 0)
		at_auto.rearm = cmd->au.rearm;
	if (cmd->au.migrate >= 0)
		at_auto.migrate = cmd->au.migrate;
	if (cmd->au.notify >= 0)
		at_auto.notify = cmd->au.notify;
	if (cmd->au.apr >= 0)
		at_auto.apr_reject = cmd->au.apr;
	if (cmd->au.mra_given)
		at_auto.mra_ms = cmd->au.mra;
	at_event("auto",
		 "\"lap\":%d,\"rearm\":%d,\"migrate\":%d,\"notify\":%d,\"apr\":\"%s\",\"mra\":%u",
		 at_auto.lap, at_auto.rearm, at_auto.migrate, at_auto.notify,
		 at_auto.apr_reject ? "reject" : "accept", at_auto.mra_ms);
	/* Switched on with something to do */
	at_lap_kick();
	return 0;
}

/* ------------------------------------------------------------------ */
/* Losing the peer's messages */

static struct {
	struct apm_cm_tap tap;
	bool set;
	atomic_t left[APM_CM_MSG_KINDS];
} at_lose;

/* In apm_cm, with its lock */
static bool at_tapped(struct apm_cm_tap *tap, bool sent, u32 port, void *mad)
{
	unsigned int kind = be16_to_cpu(((struct ib_mad_hdr *)mad)->attr_id) -
			    APM_CM_FIRST_ATTR;
	int left;

	if (sent || kind >= APM_CM_MSG_KINDS)
		return false;
	left = atomic_dec_if_positive(&at_lose.left[kind]);
	if (left < 0)
		return false;
	at_event("cm_lost", "\"kind\":\"%s\",\"port\":%u,\"left\":%d",
		 apm_cm_msg_str(kind), port, left);
	return true;
}

static void at_lose_nothing(void)
{
	unsigned int i;

	for (i = 0; i < APM_CM_MSG_KINDS; i++)
		atomic_set(&at_lose.left[i], 0);
	if (at_lose.set)
		apm_cm_clear_tap(&at_lose.tap);
	at_lose.set = false;
}

static int at_cmd_lose(struct at_cmd *cmd)
{
	int ret;

	at_lose.tap.message = at_tapped;
	if (!at_lose.set) {
		ret = apm_cm_set_tap(&at_lose.tap);
		if (ret)
			return at_refuse(cmd, ret, "lose", "",
					 "no test of apm_cm at the same time");
		at_lose.set = true;
	}
	atomic_set(&at_lose.left[cmd->lose.kind], cmd->lose.count);
	return 0;
}

static void at_on_cmd(struct at_msg *m)
{
	struct at_cmd *cmd = m->u.cmd.cmd;
	char text[300];
	int ret = 0;

	if (at.closing) {
		cmd->ret = -ESHUTDOWN;
		return;
	}
	switch (cmd->verb) {
	case AT_CMD_LISTEN:
		ret = at_cmd_listen(cmd);
		if (ret && at.state == AT_IDLE)
			at.dev = NULL;
		break;
	case AT_CMD_CONNECT:
		ret = at_cmd_connect(cmd);
		break;
	case AT_CMD_TRAFFIC_START:
		ret = at_need_conn(cmd);
		if (!ret)
			ret = at_traffic_start(at.c, &cmd->traffic, "command");
		if (ret == -EALREADY || ret == -EBUSY)
			at_refuse(cmd, ret, "traffic", "start",
				  "traffic stopped on both sides (traffic_stopped event)");
		else if (ret == -EOPNOTSUPP)
			at_refuse(cmd, ret, "op", "",
				  "send, or write; read only without count");
		break;
	case AT_CMD_TRAFFIC_STOP:
		ret = at_need_conn(cmd);
		if (!ret)
			ret = at_traffic_stop(at.c, "command");
		if (ret == -EALREADY)
			at_refuse(cmd, ret, "traffic", "stop",
				  "traffic not stopping already");
		break;
	case AT_CMD_LAP:
		ret = at_cmd_lap(cmd);
		break;
	case AT_CMD_AUTO:
		ret = at_cmd_auto(cmd);
		break;
	case AT_CMD_MIGRATE:
		ret = at_need_conn(cmd);
		if (!ret) {
			ret = at_migrate("command", true);
			if (ret)
				at_refuse(cmd, ret, "migrate", at_mig_now(),
					  "a queue pair that is ARMED");
		}
		break;
	case AT_CMD_REARM:
		ret = at_need_conn(cmd);
		if (!ret)
			ret = at_load(true, true);
		if (ret == -ENOENT)
			at_refuse(cmd, ret, "rearm", "",
				  "an alternate path agreed with the peer: lap first");
		else if (ret && ret != -ENOTCONN)
			at_refuse(cmd, ret, "rearm", at_mig_now(),
				  "a queue pair that is MIGRATED");
		break;
	case AT_CMD_BENCH_WRITE:
		ret = at_need_conn(cmd);
		if (!ret)
			ret = at_bench_start(at.c, cmd->bench.size,
					     cmd->bench.count);
		if (ret == -EBUSY)
			at_refuse(cmd, ret, "bench", "write",
				  "no other one under way (bench event)");
		else if (ret == -EMSGSIZE)
			at_refuse(cmd, ret, "size", "",
				  "no more than the peer has told it takes");
		break;
	case AT_CMD_LOSE:
		ret = at_cmd_lose(cmd);
		break;
	case AT_CMD_MARK:
		at_event("mark", "\"text\":\"%s\"",
			 at_json(text, sizeof(text), cmd->mark));
		break;
	case AT_CMD_DISCONNECT:
		if (at.state == AT_IDLE || at.state == AT_LISTENING)
			ret = at_need_conn(cmd);
		else
			at_end("command", true);
		if (!ret && !at.listen_id) {
			at.dev = NULL;
			at.active = false;
		}
		break;
	case AT_CMD_RESET:
		at_reset("command");
		at_lose_nothing();
		at_event("reset", NULL);
		break;
	}
	if (ret == -EIO)
		at_refuse(cmd, ret, "connection", "in error",
			  "one that works: disconnect or reset, and connect");
	cmd->ret = ret;
}

int at_control_command(struct at_cmd *cmd)
{
	struct at_msg *m = at_msg_new(AT_MSG_CMD, 0, GFP_KERNEL);
	DECLARE_COMPLETION_ONSTACK(done);

	if (!m)
		return -ENOBUFS;
	m->u.cmd.cmd = cmd;
	m->done = &done;
	at_control_post(m);
	/* Bounded: nothing on the queue waits for the network. */
	wait_for_completion(&done);
	return cmd->ret;
}

static void at_dispatch(struct work_struct *work)
{
	struct at_msg *m = container_of(work, struct at_msg, work);
	struct completion *done = m->done;

	switch (m->type) {
	case AT_MSG_CMD:
		at_on_cmd(m);
		break;
	case AT_MSG_CM:
		at_on_cm(m);
		break;
	case AT_MSG_QP_EVENT:
		at_on_qp_event(m);
		break;
	case AT_MSG_PORT_EVENT:
		at_on_port_event(m);
		break;
	case AT_MSG_SA:
		at_on_sa(m);
		break;
	case AT_MSG_PATH:
		at_on_path(m);
		break;
	case AT_MSG_DATA_ERROR:
		at_on_data_error(m);
		break;
	case AT_MSG_DEVICE_GONE:
		if (at.dev == m->u.gone.dev)
			at_reset("device");
		break;
	case AT_MSG_CLOSE:
		at.closing = true;
		at_reset("command");
		at_lose_nothing();
		break;
	}
	kfree(m);
	atomic_dec(&at_queued);
	if (done)
		complete(done);
}

/* Posts and waits; retries while the queue is full. */
static void at_post_and_wait(enum at_msg_type type, struct ib_device *dev)
{
	DECLARE_COMPLETION_ONSTACK(done);
	struct at_msg *m;

	while (!(m = at_msg_new(type, 0, GFP_KERNEL)))
		msleep(20);
	if (type == AT_MSG_DEVICE_GONE)
		m->u.gone.dev = dev;
	m->done = &done;
	at_control_post(m);
	wait_for_completion(&done);
}

void at_control_device_gone(struct ib_device *dev)
{
	at_post_and_wait(AT_MSG_DEVICE_GONE, dev);
	/* A listener's REQ that came meanwhile was refused or is refused now. */
	flush_workqueue(at_wq);
}

/* ------------------------------------------------------------------ */
/* Status */

struct at_status_work {
	struct work_struct work;
	struct seq_file *s;
};

static void at_status_rail(struct seq_file *s, const char *name,
			   const struct at_rail *rail)
{
	seq_printf(s, "\"%s\":{\"valid\":%d,\"port\":%u,\"gid\":\"%pI6c\",\"peer_gid\":\"%pI6c\"},",
		   name, rail->valid, rail->valid ? rail->port : 0,
		   &rail->rec.sgid, &rail->rec.dgid);
}

static void at_status_qp(struct seq_file *s)
{
	struct ib_qp_attr attr;

	if (!at.c || at_query(&attr)) {
		seq_puts(s, "\"qp\":null,");
		return;
	}
	seq_printf(s, "\"qp\":{\"qpn\":%u,\"peer_qpn\":%u,\"state\":\"%s\",\"mig\":\"%s\",\"port\":%u,\"dlid\":%u,\"alt_port\":%u,\"alt_dlid\":%u,\"timeout\":%u,\"retry\":%u},",
		   at.c->qp->qp_num, attr.dest_qp_num,
		   at_qps_str(attr.qp_state), at_mig_str(attr.path_mig_state),
		   attr.port_num, rdma_ah_get_dlid(&attr.ah_attr),
		   attr.alt_port_num, rdma_ah_get_dlid(&attr.alt_ah_attr),
		   attr.timeout, attr.retry_cnt);
}

static void at_status_work(struct work_struct *work)
{
	struct seq_file *s = container_of(work, struct at_status_work,
					  work)->s;
	struct at_counts n = {};
	struct apm_cm_info info;
	struct at_time t;
	bool on = false;
	u32 rate = 0;

	at_now(&t);
	seq_printf(s, "{\"version\":\"%s\",\"t_real_ns\":%llu,\"t_ns\":%llu,\"dev\":\"%s\",\"role\":\"%s\",\"state\":\"%s\",",
		   AT_VERSION, t.real_ns, t.ns,
		   at.dev ? dev_name(&at.dev->dev) : "",
		   at.state == AT_IDLE ? "none" :
		   at.active ? "active" : "passive", at_state_str(at.state));
	if (at.id) {
		apm_cm_query(at.id, &info);
		seq_printf(s, "\"cm_state\":\"%s\",\"lap_state\":\"%s\",",
			   apm_cm_state_str(info.state),
			   apm_cm_lap_state_str(info.lap_state));
	} else {
		seq_puts(s, "\"cm_state\":\"IDLE\",\"lap_state\":\"UNINIT\",");
	}
	at_status_qp(s);
	at_status_rail(s, "path", &at.cur);
	at_status_rail(s, "alternate", &at.alt);
	at_status_rail(s, "old", &at.old);
	if (at.c)
		at_conn_counts(at.c, &n, &on, &rate);
	seq_printf(s, "\"traffic\":{\"running\":%d,\"rate\":%u,\"tx\":%llu,\"acked\":%llu,\"rx\":%llu,\"reads\":%llu,\"tx_seq\":%llu,\"rx_seq\":%llu,\"peer_rx\":%llu,\"lost\":%llu,\"dup\":%llu,\"reordered\":%llu,\"corrupt\":%llu,\"short\":%llu,\"last_tx_ns\":%llu,\"last_ack_ns\":%llu,\"last_rx_ns\":%llu},",
		   on, rate, n.tx, n.acked, n.rx, n.reads, n.tx_seq, n.rx_seq,
		   n.peer_rx, n.lost, n.dup, n.reordered, n.corrupt,
		   n.short_msgs, n.last_tx_ns, n.last_ack_ns, n.last_rx_ns);
	seq_printf(s, "\"migrations\":%u,\"lap_wanted\":%d,\"auto\":{\"lap\":%d,\"rearm\":%d,\"migrate\":%d,\"notify\":%d,\"apr\":\"%s\",\"mra\":%u},",
		   at.migrations, at.lap_wanted, at_auto.lap, at_auto.rearm,
		   at_auto.migrate, at_auto.notify,
		   at_auto.apr_reject ? "reject" : "accept", at_auto.mra_ms);
	at_device_ports(s, at.dev);
	seq_puts(s, "\"cm_counters\":");
	apm_cm_show_counters(s);
	seq_puts(s, "}\n");
}

void at_control_status(struct seq_file *s)
{
	struct at_status_work sw = { .s = s };

	/* On the actor's queue, so that it sees whole states only. */
	INIT_WORK_ONSTACK(&sw.work, at_status_work);
	queue_work(at_wq, &sw.work);
	flush_work(&sw.work);
	destroy_work_on_stack(&sw.work);
}

int at_control_init(void)
{
	at_wq = alloc_ordered_workqueue("apm_traffic", 0);
	if (!at_wq)
		return -ENOMEM;
	INIT_DELAYED_WORK(&at.arm_work, at_arm_work);
	INIT_DELAYED_WORK(&at.lap_work, at_lap_work);
	INIT_DELAYED_WORK(&at.path_work, at_path_work);
	INIT_DELAYED_WORK(&at.apr_work, at_apr_work);
	ib_sa_register_client(&at_sa);
	return 0;
}

void at_control_exit(void)
{
	at_post_and_wait(AT_MSG_CLOSE, NULL);
	/* Waits for answers that are out; they are dropped. */
	ib_sa_unregister_client(&at_sa);
	cancel_delayed_work_sync(&at.arm_work);
	cancel_delayed_work_sync(&at.lap_work);
	cancel_delayed_work_sync(&at.path_work);
	cancel_delayed_work_sync(&at.apr_work);
	destroy_workqueue(at_wq);
}
