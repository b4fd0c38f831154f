// SPDX-License-Identifier: GPL-2.0
/*
 * apm_cm_selftest harness: see cst.h.
 */
#include <linux/delay.h>
#include <linux/slab.h>
#include <rdma/ib_cache.h>

#include "cst.h"

/* ------------------------------------------------------------------ */
/* Judging */

void fail(struct test *t, const char *fmt, ...)
{
	va_list args;

	if (t->failed)
		return;
	t->failed = true;
	va_start(args, fmt);
	vscnprintf(t->why, sizeof(t->why), fmt, args);
	va_end(args);
}

void ok(struct test *t, int ret, const char *what)
{
	check(t, !ret, "%s: error %d", what, ret);
}

void errno_is(struct test *t, int ret, int wanted, const char *what)
{
	check(t, ret == wanted, "%s: %d, not %d", what, ret, wanted);
}

static bool pop(struct end *e, struct seen_event *out)
{
	bool got;

	spin_lock(&e->lock);
	got = e->head != e->tail;
	if (got)
		*out = e->queue[e->head++ % EVENTS];
	spin_unlock(&e->lock);
	return got;
}

/* The next event must be of this type.  The answer is good until the next. */
const struct seen_event *expect(struct test *t, struct end *e,
				enum apm_cm_event_type type)
{
	static struct seen_event event;

	memset(&event, 0, sizeof(event));
	if (t->failed)
		return &event;
	if (!wait_event_timeout(e->wait, pop(e, &event),
				msecs_to_jiffies(WAIT_MS)))
		fail(t, "%s had no %s", e->name, apm_cm_event_str(type));
	else
		check(t, event.type == type, "%s had %s, not %s", e->name,
		      apm_cm_event_str(event.type), apm_cm_event_str(type));
	return &event;
}

/* Nothing more has come. */
void quiet(struct test *t, struct end *e)
{
	struct seen_event event;

	if (!t->failed && pop(e, &event))
		fail(t, "%s had %s, which nobody expected", e->name,
		     apm_cm_event_str(event.type));
}

void in_state(struct test *t, struct end *e, enum apm_cm_state state,
	      enum apm_cm_lap_state lap_state)
{
	struct apm_cm_info info;

	if (t->failed)
		return;
	apm_cm_query(e->id, &info);
	check(t, info.state == state && info.lap_state == lap_state,
	      "%s is %s/%s, not %s/%s", e->name, apm_cm_state_str(info.state),
	      apm_cm_lap_state_str(info.lap_state), apm_cm_state_str(state),
	      apm_cm_lap_state_str(lap_state));
}

static bool is_state(struct end *e, enum apm_cm_state state)
{
	struct apm_cm_info info;

	apm_cm_query(e->id, &info);
	return info.state == state;
}

void wait_state(struct test *t, struct end *e, enum apm_cm_state state)
{
	unsigned int ms;

	if (t->failed)
		return;
	for (ms = 0; ms < WAIT_MS; ms += POLL_MS) {
		if (is_state(e, state))
			return;
		msleep(POLL_MS);
	}
	fail(t, "%s did not become %s", e->name, apm_cm_state_str(state));
}

static bool is_path(struct test *t, const struct sa_path_rec *rec, u32 from,
		    u32 to)
{
	return !memcmp(&rec->sgid, &t->gid[from], sizeof(rec->sgid)) &&
	       !memcmp(&rec->dgid, &t->gid[to], sizeof(rec->dgid));
}

/* The CM's alternate goes from a's (0) or p's (1) port to a's or p's. */
void alternate_is(struct test *t, struct end *e, u32 from, u32 to)
{
	struct apm_cm_info info;

	if (t->failed)
		return;
	apm_cm_query(e->id, &info);
	check(t, info.alternate_valid && is_path(t, &info.alternate, from, to) &&
	      info.alternate_port == t->port[from],
	      "%s has as alternate (valid %d) port %u to %pI6c", e->name,
	      info.alternate_valid, info.alternate_port,
	      &info.alternate.dgid);
}

void path_is(struct test *t, struct end *e, u32 from, u32 to)
{
	struct apm_cm_info info;

	if (t->failed)
		return;
	apm_cm_query(e->id, &info);
	check(t, is_path(t, &info.path, from, to) &&
	      info.port == t->port[from], "%s has as path port %u to %pI6c",
	      e->name, info.port, &info.path.dgid);
}

/* ------------------------------------------------------------------ */
/* The tap */

static struct tapped *tapped(struct test *t, enum dir way, enum kind kind)
{
	return &t->tapped[way][kind - REQ];
}

/* Called by the CM for each message. */
static bool on_message(struct apm_cm_tap *tap, bool sent, u32 port, void *mad)
{
	struct test *t = container_of(tap, struct test, tap);
	u16 kind = be16_to_cpu(((struct ib_mad_hdr *)mad)->attr_id);
	edit_fn fn = NULL;
	struct tapped *m;
	bool lost = false;

	if (kind < REQ || kind > APR)
		return false;
	spin_lock(&t->tap_lock);
	m = tapped(t, sent ? SENT : RECEIVED, kind);
	m->seen++;
	m->port = port;
	if (m->edits) {
		m->edits--;
		fn = m->edit;
	}
	if (m->lose) {
		m->lose--;
		lost = true;
	} else {
		m->passed++;
	}
	if (fn)
		fn(t, mad);
	memcpy(m->last, mad, sizeof(m->last));
	spin_unlock(&t->tap_lock);
	wake_up_all(&t->tap_wait);
	return lost;
}

void lose(struct test *t, enum dir way, enum kind kind, unsigned int count)
{
	spin_lock(&t->tap_lock);
	tapped(t, way, kind)->lose = count;
	spin_unlock(&t->tap_lock);
}

/* The next message of this kind is changed, under a spinlock. */
void edit(struct test *t, enum dir way, enum kind kind, edit_fn fn)
{
	spin_lock(&t->tap_lock);
	tapped(t, way, kind)->edit = fn;
	tapped(t, way, kind)->edits = 1;
	spin_unlock(&t->tap_lock);
}

unsigned int seen(struct test *t, enum dir way, enum kind kind)
{
	unsigned int n;

	spin_lock(&t->tap_lock);
	n = tapped(t, way, kind)->seen;
	spin_unlock(&t->tap_lock);
	return n;
}

u32 last_port(struct test *t, enum dir way, enum kind kind)
{
	u32 port;

	spin_lock(&t->tap_lock);
	port = tapped(t, way, kind)->port;
	spin_unlock(&t->tap_lock);
	return port;
}

void last_mad(struct test *t, enum dir way, enum kind kind, void *mad)
{
	spin_lock(&t->tap_lock);
	memcpy(mad, tapped(t, way, kind)->last, 256);
	spin_unlock(&t->tap_lock);
}

void wait_seen(struct test *t, enum dir way, enum kind kind,
	       unsigned int count)
{
	if (t->failed)
		return;
	if (!wait_event_timeout(t->tap_wait, seen(t, way, kind) >= count,
				msecs_to_jiffies(WAIT_MS)))
		fail(t, "%u %s %s, not %u", seen(t, way, kind),
		     apm_cm_msg_str(kind - REQ),
		     way == SENT ? "sent" : "received", count);
}

/* ------------------------------------------------------------------ */
/* Messages by hand */

void raw_mad(struct test *t, void *mad, enum kind kind, u64 tid)
{
	struct ib_mad_hdr *hdr = mad;

	memset(mad, 0, 256);
	hdr->base_version = IB_MGMT_BASE_VERSION;
	hdr->mgmt_class = IB_MGMT_CLASS_CM;
	hdr->class_version = 2;
	hdr->method = IB_MGMT_METHOD_SEND;
	hdr->attr_id = cpu_to_be16(kind);
	hdr->tid = cpu_to_be64(tid);
}

/* The same place in all messages but REQ and SIDR */
void raw_ids(void *mad, u32 local_id, u32 remote_id)
{
	IBA_SET(CM_DREQ_LOCAL_COMM_ID, (struct cm_dreq_msg *)mad, local_id);
	IBA_SET(CM_DREQ_REMOTE_COMM_ID, (struct cm_dreq_msg *)mad, remote_id);
}

static void raw_done(struct ib_mad_agent *agent, struct ib_mad_send_wc *wc)
{
	struct test *t = agent->context;

	rdma_destroy_ah(wc->send_buf->ah, 0);
	ib_free_send_mad(wc->send_buf);
	atomic_dec(&t->raw_out);
	wake_up_all(&t->tap_wait);
}

void send_raw(struct test *t, unsigned int to, const void *mad)
{
	struct rdma_ah_attr ah_attr = {};
	struct ib_mad_send_buf *buf;
	struct ib_ah *ah;

	if (t->failed)
		return;
	ah_attr.type = rdma_ah_find_type(t->dev, t->port[0]);
	rdma_ah_set_port_num(&ah_attr, t->port[0]);
	rdma_ah_set_dlid(&ah_attr, t->lid[to]);
	ah = rdma_create_ah(t->agent->qp->pd, &ah_attr, 0);
	if (IS_ERR(ah)) {
		fail(t, "address handle: %ld", PTR_ERR(ah));
		return;
	}
	buf = ib_create_send_mad(t->agent, 1, 0, 0, IB_MGMT_MAD_HDR,
				 IB_MGMT_MAD_DATA, GFP_KERNEL,
				 IB_MGMT_BASE_VERSION);
	if (IS_ERR(buf)) {
		rdma_destroy_ah(ah, 0);
		fail(t, "MAD by hand: %ld", PTR_ERR(buf));
		return;
	}
	memcpy(buf->mad, mad, 256);
	buf->ah = ah;
	atomic_inc(&t->raw_out);
	if (ib_post_send_mad(buf, NULL)) {
		atomic_dec(&t->raw_out);
		rdma_destroy_ah(ah, 0);
		ib_free_send_mad(buf);
		fail(t, "MAD by hand was not taken");
	}
}

void wait_raw(struct test *t)
{
	wait_event_timeout(t->tap_wait, !atomic_read(&t->raw_out),
			   msecs_to_jiffies(WAIT_MS));
}

/* ------------------------------------------------------------------ */
/* Ids and events */

static int on_event(struct apm_cm_id *id, const struct apm_cm_event *ev)
{
	struct end *e = id->context;
	struct seen_event *s;
	bool refuse;

	spin_lock(&e->lock);
	refuse = e->refuse;
	e->refuse = false;
	if (e->tail - e->head < EVENTS) {
		s = &e->queue[e->tail % EVENTS];
		memset(s, 0, sizeof(*s));
		s->type = ev->event;
		s->ev = *ev;
		if (ev->private_data)
			memcpy(s->private, ev->private_data,
			       min_t(u8, ev->private_data_len, KEPT));
		if (ev->event == APM_CM_REJ_RECEIVED)
			memcpy(s->info, ev->u.rej.ari,
			       min_t(u8, ev->u.rej.ari_length, KEPT));
		if (ev->event == APM_CM_APR_RECEIVED)
			memcpy(s->info, ev->u.apr.info,
			       min_t(u8, ev->u.apr.info_length, KEPT));
		e->tail++;
	}
	if (refuse)
		e->id = NULL;
	spin_unlock(&e->lock);
	wake_up_all(&e->wait);
	return refuse ? -EINVAL : 0;
}

static int on_hoarded(struct apm_cm_id *id, const struct apm_cm_event *ev)
{
	return 0;
}

/* The listener's handler; a new connection gets that of an end. */
static int on_call(struct apm_cm_id *id, const struct apm_cm_event *ev)
{
	struct test *t = id->context;
	struct end *e = t->called;

	if (ev->event != APM_CM_REQ_RECEIVED)
		return 0;
	if (t->hoard && t->hoarded < t->hoard_max) {
		id->handler = on_hoarded;
		t->hoard[t->hoarded++] = id;
		return 0;
	}
	if (!e)
		return -ENOMEM;
	t->called = NULL;
	e->id = id;
	id->context = e;
	id->handler = on_event;
	return on_event(id, ev);
}

int make_listener(struct test *t, u64 service)
{
	int ret;

	t->listener = apm_cm_create_id(t->dev, on_call, t);
	if (IS_ERR(t->listener)) {
		ret = PTR_ERR(t->listener);
		t->listener = NULL;
		return ret;
	}
	ret = apm_cm_listen(t->listener, cpu_to_be64(service));
	if (ret) {
		apm_cm_destroy_id(t->listener);
		t->listener = NULL;
	}
	return ret;
}

int make_id(struct test *t, struct end *e)
{
	struct apm_cm_id *id = apm_cm_create_id(t->dev, on_event, e);

	if (IS_ERR(id))
		return PTR_ERR(id);
	e->id = id;
	return 0;
}

void end_id(struct end *e)
{
	if (e->id)
		apm_cm_destroy_id(e->id);
	e->id = NULL;
}

u32 id_local(const struct end *e)
{
	return e->id ? be32_to_cpu(e->id->local_id) : 0;
}

/* As of the last event */
u32 id_remote(const struct end *e)
{
	return e->id ? be32_to_cpu(e->id->remote_id) : 0;
}

/* ------------------------------------------------------------------ */
/* Connecting */

/* @from, @to: 0 a's port, 1 p's */
void path(struct test *t, unsigned int from, unsigned int to,
	  struct sa_path_rec *rec)
{
	memset(rec, 0, sizeof(*rec));
	rec->rec_type = SA_PATH_REC_TYPE_IB;
	rec->sgid = t->gid[from];
	rec->dgid = t->gid[to];
	rec->ib.slid = cpu_to_be16(t->lid[from]);
	rec->ib.dlid = cpu_to_be16(t->lid[to]);
	rec->pkey = t->pkey;
	rec->mtu = t->mtu;
	rec->mtu_selector = IB_SA_EQ;
	rec->rate = IB_RATE_10_GBPS;
	rec->rate_selector = IB_SA_EQ;
	rec->packet_life_time = 8;
	rec->packet_life_time_selector = IB_SA_EQ;
	rec->reversible = 1;
	rec->numb_path = 1;
	rec->hop_limit = t->opt.hop_limit;
	rec->sl = t->opt.sl;
}

void call_from(struct test *t, struct end *e)
{
	struct sa_path_rec pri, alt;
	struct apm_cm_req_param p = {
		.primary_path = &pri,
		.alternate_path = t->opt.alternate ? &alt : NULL,
		.service_id = t->listener->service_id,
		.qp_num = e->qp ? e->qp->qp_num : e->qpn,
		.qp_type = t->opt.type,
		.starting_psn = PSN_OF_REQ,
		.private_data = "calling",
		.private_data_len = 8,
		.responder_resources = 4,
		.initiator_depth = 4,
		.remote_cm_response_timeout = t->opt.resp,
		.local_cm_response_timeout = RESP_USUAL,
		.ack_timeout = t->opt.ack_timeout,
		.retry_count = 7,
		.rnr_retry_count = 7,
		.max_cm_retries = t->opt.retries,
	};

	if (t->failed)
		return;
	if (!e->id)
		ok(t, make_id(t, e), "create id");
	path(t, 0, 1, &pri);
	path(t, 1, 0, &alt);
	if (!t->failed)
		ok(t, apm_cm_send_req(e->id, &p), "send REQ");
}

void start_req(struct test *t)
{
	call_from(t, &t->a);
}

void send_rep(struct test *t, struct end *e)
{
	struct apm_cm_rep_param p = {
		.qp_num = e->qp ? e->qp->qp_num : e->qpn,
		.starting_psn = PSN_OF_REP,
		.private_data = "called",
		.private_data_len = 7,
		.responder_resources = 4,
		.initiator_depth = 4,
		.failover_accepted = t->opt.failover,
		.rnr_retry_count = 7,
	};

	if (!t->failed)
		ok(t, apm_cm_send_rep(e->id, &p), "send REP");
}

void establish(struct test *t)
{
	start_req(t);
	expect(t, &t->p, APM_CM_REQ_RECEIVED);
	send_rep(t, &t->p);
	expect(t, &t->a, APM_CM_REP_RECEIVED);
	send_rtu(t, &t->a);
	expect(t, &t->p, APM_CM_RTU_RECEIVED);
	in_state(t, &t->a, APM_CM_ESTABLISHED, APM_CM_LAP_UNINIT);
	in_state(t, &t->p, APM_CM_ESTABLISHED, APM_CM_LAP_UNINIT);
}

/* A DREQ is on its way. */
void finish_dreq(struct test *t, struct end *from, struct end *to)
{
	expect(t, to, APM_CM_DREQ_RECEIVED);
	if (t->failed)
		return;
	ok(t, apm_cm_send_drep(to->id, NULL, 0), "send DREP");
	expect(t, from, APM_CM_DREP_RECEIVED);
	expect(t, from, APM_CM_TIMEWAIT_EXIT);
	expect(t, to, APM_CM_TIMEWAIT_EXIT);
	in_state(t, from, APM_CM_IDLE, APM_CM_LAP_UNINIT);
	in_state(t, to, APM_CM_IDLE, APM_CM_LAP_UNINIT);
}

void disconnect(struct test *t, struct end *from, struct end *to)
{
	if (t->failed)
		return;
	ok(t, apm_cm_send_dreq(from->id, "bye", 4), "send DREQ");
	finish_dreq(t, from, to);
}

int send_lap(struct test *t, struct end *e, const struct sa_path_rec *rec,
	     u8 resp)
{
	struct apm_cm_lap_param p = {
		.alternate_path = rec,
		.ack_timeout = t->opt.ack_timeout,
		.remote_cm_response_timeout = resp,
		.private_data = "lap",
		.private_data_len = 4,
	};

	return e->id ? apm_cm_send_lap(e->id, &p) : -EBADF;
}

int answer_lap(struct end *e, enum apm_cm_apr_status status)
{
	return e->id ? apm_cm_send_apr(e->id, status, NULL, 0, "apr", 4) :
		       -EBADF;
}

/* ------------------------------------------------------------------ */
/* Steps of tests: nothing happens any more once the test has failed */

void send_rtu(struct test *t, struct end *e)
{
	if (!t->failed)
		ok(t, apm_cm_send_rtu(e->id, NULL, 0), "send RTU");
}

void send_mra(struct test *t, struct end *e, u8 service_timeout)
{
	if (!t->failed)
		ok(t, apm_cm_send_mra(e->id, service_timeout, NULL, 0),
		   "send MRA");
}

void send_dreq(struct test *t, struct end *e)
{
	if (!t->failed)
		ok(t, apm_cm_send_dreq(e->id, NULL, 0), "send DREQ");
}

/* A LAP of @e's: from the port of a (0) or p (1) to that of a or p */
void offer(struct test *t, struct end *e, unsigned int from, unsigned int to,
	   u8 resp)
{
	struct sa_path_rec rec;

	path(t, from, to, &rec);
	if (!t->failed)
		ok(t, send_lap(t, e, &rec, resp), "send LAP");
}

void answer(struct test *t, struct end *e, enum apm_cm_apr_status status)
{
	if (!t->failed)
		ok(t, answer_lap(e, status), "send APR");
}

const struct seen_event *apr_is(struct test *t, struct end *e,
				enum apm_cm_apr_status status)
{
	const struct seen_event *s = expect(t, e, APM_CM_APR_RECEIVED);

	check(t, s->ev.u.apr.status == status, "APR %u, not %u",
	      s->ev.u.apr.status, status);
	return s;
}

/* The LAP that is out to @e is accepted. */
void accept(struct test *t, struct end *e, struct end *sender)
{
	expect(t, e, APM_CM_LAP_RECEIVED);
	answer(t, e, APM_CM_APR_SUCCESS);
	apr_is(t, sender, APM_CM_APR_SUCCESS);
}

void lap_over(struct test *t, struct end *e, enum apm_cm_lap_error why)
{
	const struct seen_event *s = expect(t, e, APM_CM_LAP_ERROR);

	check(t, s->ev.u.lap_error.why == why, "LAP over by %d, not %d",
	      s->ev.u.lap_error.why, why);
}

void tell_migrated(struct test *t, struct end *e)
{
	if (!t->failed)
		ok(t, apm_cm_notify(e->id, IB_EVENT_PATH_MIG), "PATH_MIG");
}

/* ------------------------------------------------------------------ */
/* One test */

static void end_init(struct test *t, struct end *e)
{
	e->head = 0;
	e->tail = 0;
	e->refuse = false;
	e->qpn = t->next_qpn++;
}

void test_begin(struct test *t)
{
	struct apm_cm_counters counters;

	apm_cm_get_counters(&counters);
	t->connections = counters.connections;
	memset(&t->opt, 0, sizeof(t->opt));
	t->opt.resp = RESP_USUAL;
	t->opt.retries = RETRIES;
	t->opt.ack_timeout = 8;
	t->opt.type = IB_QPT_RC;
	end_init(t, &t->a);
	end_init(t, &t->p);
	end_init(t, &t->p2);
	t->called = &t->p;
	t->failed = false;
	t->why[0] = 0;
	spin_lock(&t->tap_lock);
	memset(t->tapped, 0, sizeof(t->tapped));
	spin_unlock(&t->tap_lock);
}

/* Until so many connections of this test are left */
void wait_left_over(struct test *t, u32 count)
{
	struct apm_cm_counters counters;
	unsigned int ms;

	for (ms = 0; ms < WAIT_MS; ms += POLL_MS) {
		apm_cm_get_counters(&counters);
		if (counters.connections <= t->connections + count)
			return;
		msleep(POLL_MS);
	}
	fail(t, "%u connections are left over, not %u",
	     counters.connections - t->connections, count);
}

/* All messages that are out have come: none is taken for the next test's. */
static void settle(struct test *t)
{
	unsigned int ms, kind;

	for (ms = 0; ms < SETTLE_MS; ms += POLL_MS) {
		spin_lock(&t->tap_lock);
		for (kind = REQ; kind <= APR; kind++)
			if (tapped(t, RECEIVED, kind)->seen <
			    tapped(t, SENT, kind)->passed)
				break;
		spin_unlock(&t->tap_lock);
		if (kind > APR)
			return;
		msleep(POLL_MS);
	}
}

/* Nothing unexpected came, and nothing is left of this test. */
void test_end(struct test *t)
{
	unsigned int kind;

	quiet(t, &t->a);
	quiet(t, &t->p);
	quiet(t, &t->p2);
	spin_lock(&t->tap_lock);
	for (kind = REQ; kind <= APR; kind++) {
		tapped(t, RECEIVED, kind)->lose = 0;
		tapped(t, SENT, kind)->lose = 0;
		tapped(t, RECEIVED, kind)->edits = 0;
		tapped(t, SENT, kind)->edits = 0;
	}
	spin_unlock(&t->tap_lock);
	t->called = NULL;
	end_id(&t->a);
	end_id(&t->p);
	end_id(&t->p2);
	wait_raw(t);
	wait_left_over(t, 0);
	settle(t);
}

static void end_setup(struct end *e, const char *name)
{
	e->name = name;
	spin_lock_init(&e->lock);
	init_waitqueue_head(&e->wait);
}

int harness_init(struct test *t)
{
	unsigned int i;
	u16 pkey;
	int ret;

	spin_lock_init(&t->tap_lock);
	init_waitqueue_head(&t->tap_wait);
	end_setup(&t->a, "a");
	end_setup(&t->p, "p");
	end_setup(&t->p2, "p2");
	t->next_qpn = 0x800000;
	t->mtu = IB_MTU_4096;
	for (i = 0; i < 2; i++) {
		struct ib_port_attr attr;

		ret = ib_query_port(t->dev, t->port[i], &attr);
		if (!ret)
			ret = rdma_query_gid(t->dev, t->port[i], 0,
					     &t->gid[i]);
		if (ret)
			return ret;
		if (attr.state != IB_PORT_ACTIVE) {
			pr_err("apm_cm_selftest: port %u is not Active\n",
			       t->port[i]);
			return -ENETDOWN;
		}
		t->lid[i] = attr.lid;
		t->mtu = min_t(u8, t->mtu, attr.active_mtu);
	}
	ret = ib_get_cached_pkey(t->dev, t->port[0], 0, &pkey);
	if (ret)
		return ret;
	t->pkey = cpu_to_be16(pkey);

	t->agent = ib_register_mad_agent(t->dev, t->port[0], IB_QPT_GSI, NULL,
					 0, raw_done, NULL, t, 0);
	if (IS_ERR(t->agent))
		return PTR_ERR(t->agent);
	t->tap.message = on_message;
	ret = apm_cm_set_tap(&t->tap);
	if (ret)
		ib_unregister_mad_agent(t->agent);
	return ret;
}

void harness_exit(struct test *t)
{
	apm_cm_clear_tap(&t->tap);
	if (t->listener)
		apm_cm_destroy_id(t->listener);
	ib_unregister_mad_agent(t->agent);
}
