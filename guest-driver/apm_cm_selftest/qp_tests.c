// SPDX-License-Identifier: GPL-2.0
/*
 * apm_cm_selftest: the CM and real queue pairs together: what
 * apm_cm_init_qp_attr() hands out makes connections that arm and migrate.
 */
#include <linux/delay.h>
#include <linux/slab.h>

#include "cst.h"

#define DEPTH		8
#define MSG_BYTES	64

struct qps {
	struct ib_pd *pd;
	void *buf;
	u64 dma;
};

static void on_qp_event(struct ib_event *ev, void *context)
{
	struct end *e = context;

	if (ev->event == IB_EVENT_PATH_MIG)
		atomic_inc(&e->migrated);
	wake_up_all(&e->wait);
}

static void make_qp(struct test *t, struct qps *q, struct end *e)
{
	struct ib_cq_init_attr cq_attr = { .cqe = 4 * DEPTH };
	struct ib_qp_init_attr init = {
		.event_handler = on_qp_event,
		.qp_context = e,
		.cap = {
			.max_send_wr = DEPTH,
			.max_recv_wr = DEPTH,
			.max_send_sge = 1,
			.max_recv_sge = 1,
		},
		.sq_sig_type = IB_SIGNAL_ALL_WR,
		.qp_type = t->opt.type,
	};

	atomic_set(&e->migrated, 0);
	e->cq = ib_create_cq(t->dev, NULL, NULL, NULL, &cq_attr);
	if (IS_ERR(e->cq)) {
		fail(t, "create CQ: %ld", PTR_ERR(e->cq));
		e->cq = NULL;
		return;
	}
	init.send_cq = e->cq;
	init.recv_cq = e->cq;
	e->qp = ib_create_qp(q->pd, &init);
	if (IS_ERR(e->qp)) {
		fail(t, "create QP: %ld", PTR_ERR(e->qp));
		e->qp = NULL;
	}
}

static void end_qp(struct end *e)
{
	if (e->qp)
		ib_destroy_qp(e->qp);
	if (e->cq)
		ib_destroy_cq(e->cq);
	e->qp = NULL;
	e->cq = NULL;
}

static void to(struct test *t, struct end *e, enum ib_qp_state state)
{
	struct ib_qp_attr attr = { .qp_state = state };
	int mask;

	if (t->failed)
		return;
	ok(t, apm_cm_init_qp_attr(e->id, &attr, &mask), "QP attributes");
	if (e == &t->p && state == IB_QPS_RTR)
		attr.rq_psn = PSN_OF_REP;
	check(t, state != IB_QPS_RTR || attr.rq_psn ==
	      (e == &t->p ? PSN_OF_REP : PSN_OF_REQ), "rq_psn %#x",
	      attr.rq_psn);
	check(t, state != IB_QPS_RTS || attr.sq_psn ==
	      (e == &t->p ? PSN_OF_REQ : PSN_OF_REP), "sq_psn %#x",
	      attr.sq_psn);
	if (!t->failed)
		ok(t, ib_modify_qp(e->qp, &attr, mask), "modify QP");
}

static void query_qp(struct test *t, struct end *e, struct ib_qp_attr *attr)
{
	struct ib_qp_init_attr init;

	memset(attr, 0, sizeof(*attr));
	if (!t->failed)
		ok(t, ib_query_qp(e->qp, attr, IB_QP_STATE | IB_QP_AV |
				  IB_QP_ALT_PATH | IB_QP_PATH_MIG_STATE |
				  IB_QP_PORT, &init), "query QP");
}

static const char *mig_name(enum ib_mig_state state)
{
	return state == IB_MIG_MIGRATED ? "MIGRATED" :
	       state == IB_MIG_REARM ? "REARM" :
	       state == IB_MIG_ARMED ? "ARMED" : "?";
}

static void mig_is(struct test *t, struct end *e, enum ib_mig_state state,
		   u32 port)
{
	struct ib_qp_attr attr;

	query_qp(t, e, &attr);
	check(t, attr.path_mig_state == state && attr.port_num == port,
	      "%s is %s on port %u, not %s on %u", e->name,
	      mig_name(attr.path_mig_state), attr.port_num, mig_name(state),
	      port);
}

static void poll_one(struct test *t, struct end *e, const char *what)
{
	struct ib_wc wc;
	unsigned int ms;

	for (ms = 0; ms < WAIT_MS && !t->failed; ms++) {
		if (ib_poll_cq(e->cq, 1, &wc) == 1) {
			check(t, wc.status == IB_WC_SUCCESS, "%s: %s", what,
			      ib_wc_status_msg(wc.status));
			return;
		}
		usleep_range(500, 1000);
	}
	fail(t, "%s: no completion", what);
}

/* One message, received and acknowledged */
static void message(struct test *t, struct qps *q, struct end *from,
		    struct end *to)
{
	struct ib_sge sge = {
		.addr = q->dma,
		.length = MSG_BYTES,
		.lkey = q->pd->local_dma_lkey,
	};
	struct ib_recv_wr recv = { .sg_list = &sge, .num_sge = 1 };
	struct ib_send_wr send = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IB_WR_SEND,
	};

	ok(t, ib_post_recv(to->qp, &recv, NULL), "post receive");
	ok(t, ib_post_send(from->qp, &send, NULL), "post send");
	poll_one(t, to, "receive");
	poll_one(t, from, "send");
}

/* ib_modify_qp() as the consumer of a LAP or APR does it */
static void rearm(struct test *t, struct end *e)
{
	struct ib_qp_attr attr = {};
	int mask;

	if (t->failed)
		return;
	ok(t, apm_cm_init_rearm_attr(e->id, &attr, &mask), "REARM attributes");
	if (!t->failed)
		ok(t, ib_modify_qp(e->qp, &attr, mask), "REARM");
}

static void migrate(struct test *t, struct end *e)
{
	struct ib_qp_attr attr = { .path_mig_state = IB_MIG_MIGRATED };

	if (!t->failed)
		ok(t, ib_modify_qp(e->qp, &attr, IB_QP_PATH_MIG_STATE),
		   "MIGRATED");
}

/* The event, and the CM told */
static void migrated(struct test *t, struct end *e, int times)
{
	if (t->failed)
		return;
	if (!wait_event_timeout(e->wait, atomic_read(&e->migrated) >= times,
				msecs_to_jiffies(WAIT_MS))) {
		fail(t, "%s had %d PATH_MIG, not %d", e->name,
		     atomic_read(&e->migrated), times);
		return;
	}
	ok(t, apm_cm_notify(e->id, IB_EVENT_PATH_MIG), "notify");
}

static void qps_begin(struct test *t, struct qps *q)
{
	memset(q, 0, sizeof(*q));
	q->pd = ib_alloc_pd(t->dev, 0);
	if (IS_ERR(q->pd)) {
		fail(t, "alloc PD: %ld", PTR_ERR(q->pd));
		q->pd = NULL;
		return;
	}
	q->buf = kzalloc(MSG_BYTES, GFP_KERNEL);
	if (!q->buf) {
		fail(t, "no memory");
		return;
	}
	q->dma = ib_dma_map_single(t->dev, q->buf, MSG_BYTES,
				   DMA_BIDIRECTIONAL);
	make_qp(t, q, &t->a);
	make_qp(t, q, &t->p);
}

static void qps_end(struct test *t, struct qps *q)
{
	end_qp(&t->a);
	end_qp(&t->p);
	if (q->buf) {
		ib_dma_unmap_single(t->dev, q->dma, MSG_BYTES,
				    DMA_BIDIRECTIONAL);
		kfree(q->buf);
	}
	if (q->pd)
		ib_dealloc_pd(q->pd);
}

static void establish_qps(struct test *t)
{
	t->opt.alternate = true;
	t->opt.ack_timeout = 16;
	start_req(t);
	expect(t, &t->p, APM_CM_REQ_RECEIVED);
	to(t, &t->p, IB_QPS_INIT);
	/* The CM has to know first when the alternate is not wanted. */
	if (!t->opt.failover)
		to(t, &t->p, IB_QPS_RTR);
	send_rep(t, &t->p);
	if (t->opt.failover)
		to(t, &t->p, IB_QPS_RTR);
	to(t, &t->p, IB_QPS_RTS);
	expect(t, &t->a, APM_CM_REP_RECEIVED);
	to(t, &t->a, IB_QPS_INIT);
	to(t, &t->a, IB_QPS_RTR);
	to(t, &t->a, IB_QPS_RTS);
	send_rtu(t, &t->a);
	expect(t, &t->p, APM_CM_RTU_RECEIVED);
}

/* LAP, loaded by the called side first, then APR, then by the caller */
static void reload(struct test *t, unsigned int from, unsigned int to_port)
{
	offer(t, &t->a, from, to_port, 0);
	expect(t, &t->p, APM_CM_LAP_RECEIVED);
	rearm(t, &t->p);
	mig_is(t, &t->a, IB_MIG_MIGRATED, t->port[!from]);
	mig_is(t, &t->p, IB_MIG_REARM, t->port[!to_port]);
	answer(t, &t->p, APM_CM_APR_SUCCESS);
	apr_is(t, &t->a, APM_CM_APR_SUCCESS);
	rearm(t, &t->a);
	mig_is(t, &t->a, IB_MIG_REARM, t->port[!from]);
}

static void arming(struct test *t, struct qps *q)
{
	establish_qps(t);
	mig_is(t, &t->a, IB_MIG_REARM, t->port[0]);
	mig_is(t, &t->p, IB_MIG_REARM, t->port[1]);
	/* One acknowledged message arms both. */
	message(t, q, &t->a, &t->p);
	mig_is(t, &t->a, IB_MIG_ARMED, t->port[0]);
	mig_is(t, &t->p, IB_MIG_ARMED, t->port[1]);
	message(t, q, &t->p, &t->a);
}

static void test_arming(struct test *t)
{
	struct qps q;

	qps_begin(t, &q);
	arming(t, &q);
	qps_end(t, &q);
}

static void test_refused_failover(struct test *t)
{
	struct qps q;

	t->opt.failover = APM_CM_FAILOVER_REJECTED;
	qps_begin(t, &q);
	establish_qps(t);
	mig_is(t, &t->a, IB_MIG_MIGRATED, t->port[0]);
	mig_is(t, &t->p, IB_MIG_MIGRATED, t->port[1]);
	message(t, &q, &t->a, &t->p);
	mig_is(t, &t->a, IB_MIG_MIGRATED, t->port[0]);
	qps_end(t, &q);
}

/*
 * There, by software; reloaded; back to the first path, by software of the
 * other side; and so on.  Each migration is one event on each side.
 */
static void test_there_and_back(struct test *t)
{
	unsigned int round, old;
	struct qps q;

	qps_begin(t, &q);
	arming(t, &q);
	for (round = 1; round <= 6 && !t->failed; round++) {
		struct end *first = round % 2 ? &t->a : &t->p;
		struct end *other = round % 2 ? &t->p : &t->a;

		old = (round - 1) % 2;	/* a's port before this migration */
		migrate(t, first);
		/* The other side follows the first packet. */
		message(t, &q, first, other);
		migrated(t, &t->a, round);
		migrated(t, &t->p, round);
		mig_is(t, &t->a, IB_MIG_MIGRATED, t->port[!old]);
		mig_is(t, &t->p, IB_MIG_MIGRATED, t->port[old]);
		reload(t, old, !old);
		message(t, &q, &t->a, &t->p);
		mig_is(t, &t->a, IB_MIG_ARMED, t->port[!old]);
		mig_is(t, &t->p, IB_MIG_ARMED, t->port[old]);
	}
	check(t, atomic_read(&t->a.migrated) == 6 &&
	      atomic_read(&t->p.migrated) == 6, "PATH_MIG %d and %d times",
	      atomic_read(&t->a.migrated), atomic_read(&t->p.migrated));
	disconnect(t, &t->a, &t->p);
	qps_end(t, &q);
}

/*
 * UC has no acknowledgements: each direction arms its receiver only, and only
 * software or the peer migrates.
 */
static void test_uc(struct test *t)
{
	struct qps q;

	t->opt.type = IB_QPT_UC;
	qps_begin(t, &q);
	establish_qps(t);
	message(t, &q, &t->a, &t->p);
	mig_is(t, &t->p, IB_MIG_ARMED, t->port[1]);
	mig_is(t, &t->a, IB_MIG_REARM, t->port[0]);
	message(t, &q, &t->p, &t->a);
	mig_is(t, &t->a, IB_MIG_ARMED, t->port[0]);
	migrate(t, &t->p);
	message(t, &q, &t->p, &t->a);
	migrated(t, &t->a, 1);
	migrated(t, &t->p, 1);
	reload(t, 0, 1);
	message(t, &q, &t->a, &t->p);
	message(t, &q, &t->p, &t->a);
	mig_is(t, &t->a, IB_MIG_ARMED, t->port[1]);
	mig_is(t, &t->p, IB_MIG_ARMED, t->port[0]);
	disconnect(t, &t->a, &t->p);
	qps_end(t, &q);
}

/* A consumer that reads attributes for a QP that is not there yet */
static void test_attributes(struct test *t)
{
	struct ib_qp_attr attr = { .qp_state = IB_QPS_RTR };
	int mask;

	ok(t, make_id(t, &t->a), "create id");
	if (t->failed)
		return;
	errno_is(t, apm_cm_init_qp_attr(t->a.id, &attr, &mask), -EINVAL,
		 "RTR of an idle id");
	errno_is(t, apm_cm_init_rearm_attr(t->a.id, &attr, &mask), -ENOTCONN,
		 "REARM of an idle id");
	establish(t);
	if (t->failed)
		return;
	errno_is(t, apm_cm_init_rearm_attr(t->a.id, &attr, &mask), -ENOENT,
		 "REARM without alternate");
	attr.qp_state = IB_QPS_SQD;
	errno_is(t, apm_cm_init_qp_attr(t->a.id, &attr, &mask), -EINVAL,
		 "SQD");
}

const struct selftest qp_tests[] = {
	{ "attributes that there are none of", test_attributes },
	{ "alternate in the REQ: REARM, armed by a message", test_arming },
	{ "failover refused: MIGRATED", test_refused_failover },
	{ "there and back by software, six times", test_there_and_back },
	{ "UC: each direction arms its receiver", test_uc },
	{}
};
