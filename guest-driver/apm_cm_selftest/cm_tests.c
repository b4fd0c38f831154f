// SPDX-License-Identifier: GPL-2.0
/*
 * apm_cm_selftest: making and ending connections (IBTA volume 1, 12.9 and
 * 12.6), without queue pairs.
 */
#include <linux/delay.h>
#include <linux/ktime.h>
#include <linux/prandom.h>
#include <linux/slab.h>

#include "cst.h"

/* ------------------------------------------------------------------ */
/* REQ, REP, RTU, REJ */

static void test_establish(struct test *t)
{
	const struct seen_event *s;

	t->opt.alternate = true;
	start_req(t);
	s = expect(t, &t->p, APM_CM_REQ_RECEIVED);
	check(t, !strcmp(s->private, "calling"), "REQ's private data");
	check(t, s->ev.u.req.port == t->port[1], "REQ says port %u",
	      s->ev.u.req.port);
	check(t, s->ev.u.req.has_alternate, "REQ without alternate");
	check(t, s->ev.u.req.remote_qpn == t->a.qpn, "REQ says QPN %#x",
	      s->ev.u.req.remote_qpn);
	send_rep(t, &t->p);
	s = expect(t, &t->a, APM_CM_REP_RECEIVED);
	check(t, !strcmp(s->private, "called"), "REP's private data");
	check(t, s->ev.u.rep.remote_qpn == t->p.qpn, "REP says QPN %#x",
	      s->ev.u.rep.remote_qpn);
	check(t, !s->ev.u.rep.failover_accepted, "failover %d",
	      s->ev.u.rep.failover_accepted);
	send_rtu(t, &t->a);
	expect(t, &t->p, APM_CM_RTU_RECEIVED);
	in_state(t, &t->a, APM_CM_ESTABLISHED, APM_CM_LAP_UNINIT);
	in_state(t, &t->p, APM_CM_ESTABLISHED, APM_CM_LAP_UNINIT);
	path_is(t, &t->a, 0, 1);
	path_is(t, &t->p, 1, 0);
	alternate_is(t, &t->a, 1, 0);
	alternate_is(t, &t->p, 0, 1);
}

static void failover_refused(struct test *t, enum apm_cm_failover how)
{
	const struct seen_event *s;
	struct apm_cm_info info;

	t->opt.alternate = true;
	t->opt.failover = how;
	start_req(t);
	expect(t, &t->p, APM_CM_REQ_RECEIVED);
	send_rep(t, &t->p);
	s = expect(t, &t->a, APM_CM_REP_RECEIVED);
	check(t, s->ev.u.rep.failover_accepted == how, "failover %d, not %d",
	      s->ev.u.rep.failover_accepted, how);
	if (t->failed)
		return;
	apm_cm_query(t->a.id, &info);
	check(t, !info.alternate_valid, "a has an alternate");
	apm_cm_query(t->p.id, &info);
	check(t, !info.alternate_valid, "p has an alternate");
	send_rtu(t, &t->a);
	expect(t, &t->p, APM_CM_RTU_RECEIVED);
	errno_is(t, apm_cm_notify(t->a.id, IB_EVENT_PATH_MIG), -EINVAL,
		 "PATH_MIG without alternate");
	path_is(t, &t->a, 0, 1);
}

static void test_failover_unsupported(struct test *t)
{
	failover_refused(t, APM_CM_FAILOVER_NOT_SUPPORTED);
}

static void test_failover_rejected(struct test *t)
{
	failover_refused(t, APM_CM_FAILOVER_REJECTED);
}

static void test_consumer_reject(struct test *t)
{
	const struct seen_event *s;

	start_req(t);
	expect(t, &t->p, APM_CM_REQ_RECEIVED);
	if (t->failed)
		return;
	ok(t, apm_cm_send_rej(t->p.id, APM_CM_REJ_CONSUMER_DEFINED, NULL, 0,
			      "no", 3), "send REJ");
	s = expect(t, &t->a, APM_CM_REJ_RECEIVED);
	check(t, s->ev.u.rej.reason == APM_CM_REJ_CONSUMER_DEFINED,
	      "reason %u", s->ev.u.rej.reason);
	check(t, !strcmp(s->private, "no"), "REJ's private data");
	in_state(t, &t->a, APM_CM_IDLE, APM_CM_LAP_UNINIT);
	/* The id can be used again. */
	end_id(&t->p);
	t->called = &t->p;
	t->a.qpn = t->next_qpn++;
	t->p.qpn = t->next_qpn++;
	establish(t);
}

/* A REQ that p's CM must refuse by itself, with the reason. */
static const struct seen_event *refused(struct test *t, u16 reason)
{
	const struct seen_event *s = expect(t, &t->a, APM_CM_REJ_RECEIVED);

	check(t, s->ev.u.rej.reason == reason, "reason %u, not %u",
	      s->ev.u.rej.reason, reason);
	quiet(t, &t->p);
	return s;
}

static void edit_service(struct test *t, void *mad)
{
	IBA_SET(CM_REQ_SERVICE_ID, (struct cm_req_msg *)mad, 0xdead);
}

static void test_no_service(struct test *t)
{
	edit(t, SENT, REQ, edit_service);
	start_req(t);
	refused(t, APM_CM_REJ_INVALID_SERVICE_ID);
}

static void edit_gid(struct test *t, void *mad)
{
	IBA_GET_MEM_PTR(CM_REQ_PRIMARY_REMOTE_PORT_GID,
			(struct cm_req_msg *)mad)->raw[15] ^= 0x55;
}

static void test_foreign_gid(struct test *t)
{
	const struct seen_event *s;

	edit(t, SENT, REQ, edit_gid);
	start_req(t);
	s = refused(t, APM_CM_REJ_INVALID_GID);
	check(t, s->ev.u.rej.ari_length == 16 &&
	      !memcmp(s->info, &t->gid[1], 16), "no GID in the REJ");
}

static void edit_alternate_gid(struct test *t, void *mad)
{
	IBA_GET_MEM_PTR(CM_REQ_ALTERNATE_REMOTE_PORT_GID,
			(struct cm_req_msg *)mad)->raw[15] ^= 0x55;
}

static void test_foreign_alternate_gid(struct test *t)
{
	t->opt.alternate = true;
	edit(t, SENT, REQ, edit_alternate_gid);
	start_req(t);
	refused(t, APM_CM_REJ_INVALID_ALT_GID);
}

static void edit_lid(struct test *t, void *mad)
{
	IBA_SET(CM_REQ_PRIMARY_REMOTE_PORT_LID, (struct cm_req_msg *)mad,
		0xbffe);
}

static void test_foreign_lid(struct test *t)
{
	const struct seen_event *s;

	edit(t, SENT, REQ, edit_lid);
	start_req(t);
	s = refused(t, APM_CM_REJ_INVALID_LID);
	check(t, s->ev.u.rej.ari_length == 2 &&
	      s->info[0] << 8 == (t->lid[1] & 0xff00) &&
	      s->info[1] == (t->lid[1] & 0xff), "no LID in the REJ");
}

/* What the peer says of its own end is where our messages would go to. */
static void edit_own_lid(struct test *t, void *mad)
{
	IBA_SET(CM_REQ_PRIMARY_LOCAL_PORT_LID, (struct cm_req_msg *)mad,
		0xc000);
}

static void test_multicast_lid(struct test *t)
{
	edit(t, SENT, REQ, edit_own_lid);
	start_req(t);
	refused(t, APM_CM_REJ_INVALID_LID);
}

static void edit_own_alternate_lid(struct test *t, void *mad)
{
	IBA_SET(CM_REQ_ALTERNATE_LOCAL_PORT_LID, (struct cm_req_msg *)mad,
		0xfffe);
}

static void test_alternate_multicast_lid(struct test *t)
{
	t->opt.alternate = true;
	edit(t, SENT, REQ, edit_own_alternate_lid);
	start_req(t);
	refused(t, APM_CM_REJ_INVALID_ALT_LID);
}

static void edit_pkey(struct test *t, void *mad)
{
	IBA_SET(CM_REQ_PARTITION_KEY, (struct cm_req_msg *)mad, 0x8123);
}

static void test_foreign_pkey(struct test *t)
{
	edit(t, SENT, REQ, edit_pkey);
	start_req(t);
	refused(t, APM_CM_REJ_UNSUPPORTED);
}

/* QPs 0 and 1 are no consumer's: ignored, the repetition is right. */
static void edit_req_qpn(struct test *t, void *mad)
{
	IBA_SET(CM_REQ_LOCAL_QPN, (struct cm_req_msg *)mad, 1);
}

static void edit_rep_qpn(struct test *t, void *mad)
{
	IBA_SET(CM_REP_LOCAL_QPN, (struct cm_rep_msg *)mad, 0xffffff);
}

static void test_impossible_qpn(struct test *t)
{
	edit(t, SENT, REQ, edit_req_qpn);
	edit(t, SENT, REP, edit_rep_qpn);
	establish(t);
	check(t, seen(t, SENT, REQ) >= 2, "a REQ of QP 1 was taken");
	check(t, seen(t, SENT, REP) >= 2, "a REP of QP 0xffffff was taken");
}

/* More reads at once than the device can, or than was asked for */
static void edit_req_depth(struct test *t, void *mad)
{
	IBA_SET(CM_REQ_RESPONDER_RESOURCES, (struct cm_req_msg *)mad, 255);
	IBA_SET(CM_REQ_INITIATOR_DEPTH, (struct cm_req_msg *)mad, 255);
}

static void edit_rep_depth(struct test *t, void *mad)
{
	IBA_SET(CM_REP_RESPONDER_RESOURCES, (struct cm_rep_msg *)mad, 255);
	IBA_SET(CM_REP_INITIATOR_DEPTH, (struct cm_rep_msg *)mad, 255);
}

static void test_read_depth(struct test *t)
{
	const struct seen_event *s;

	edit(t, SENT, REQ, edit_req_depth);
	edit(t, SENT, REP, edit_rep_depth);
	start_req(t);
	s = expect(t, &t->p, APM_CM_REQ_RECEIVED);
	check(t, s->ev.u.req.responder_resources <=
	      t->dev->attrs.max_qp_rd_atom, "p is to respond to %u reads",
	      s->ev.u.req.responder_resources);
	check(t, s->ev.u.req.initiator_depth <=
	      t->dev->attrs.max_qp_init_rd_atom, "p may start %u reads",
	      s->ev.u.req.initiator_depth);
	send_rep(t, &t->p);
	s = expect(t, &t->a, APM_CM_REP_RECEIVED);
	check(t, s->ev.u.rep.responder_resources == 4 &&
	      s->ev.u.rep.initiator_depth == 4, "a has reads %u and %u",
	      s->ev.u.rep.responder_resources, s->ev.u.rep.initiator_depth);
}

static void edit_mtu(struct test *t, void *mad)
{
	IBA_SET(CM_REQ_PATH_PACKET_PAYLOAD_MTU, (struct cm_req_msg *)mad, 9);
}

static void test_bad_mtu(struct test *t)
{
	edit(t, SENT, REQ, edit_mtu);
	start_req(t);
	refused(t, APM_CM_REJ_INVALID_MTU);
}

static void edit_transport(struct test *t, void *mad)
{
	IBA_SET(CM_REQ_TRANSPORT_SERVICE_TYPE, (struct cm_req_msg *)mad, 2);
}

static void test_bad_transport(struct test *t)
{
	edit(t, SENT, REQ, edit_transport);
	start_req(t);
	refused(t, APM_CM_REJ_INVALID_TRANSPORT_TYPE);
}

/* One MTU and one P_Key for both paths */
static void test_unlike_alternate(struct test *t)
{
	struct sa_path_rec pri, alt;
	struct apm_cm_req_param p = {
		.primary_path = &pri,
		.alternate_path = &alt,
		.service_id = t->listener->service_id,
		.qp_num = t->a.qpn,
		.qp_type = IB_QPT_RC,
	};

	ok(t, make_id(t, &t->a), "create id");
	if (t->failed)
		return;
	path(t, 0, 1, &pri);
	path(t, 1, 0, &alt);
	alt.mtu = IB_MTU_256;
	errno_is(t, apm_cm_send_req(t->a.id, &p), -EINVAL, "other MTU");
	path(t, 1, 0, &alt);
	alt.pkey = cpu_to_be16(0x8001);
	errno_is(t, apm_cm_send_req(t->a.id, &p), -EINVAL, "other P_Key");
	check(t, !seen(t, SENT, REQ), "REQ was sent");
	in_state(t, &t->a, APM_CM_IDLE, APM_CM_LAP_UNINIT);
}

/* ------------------------------------------------------------------ */
/* Losses and repetitions */

static void test_req_lost(struct test *t)
{
	lose(t, RECEIVED, REQ, 1);
	establish(t);
	check(t, seen(t, SENT, REQ) >= 2, "REQ was not repeated");
}

static void test_rep_lost(struct test *t)
{
	lose(t, RECEIVED, REP, 1);
	establish(t);
	check(t, seen(t, SENT, REP) >= 2, "REP was not repeated");
}

/* The REP comes again and is answered with the RTU again. */
static void test_rtu_lost(struct test *t)
{
	lose(t, RECEIVED, RTU, 1);
	establish(t);
	check(t, seen(t, SENT, RTU) >= 2, "RTU was not repeated");
}

static void test_mra(struct test *t)
{
	const struct seen_event *s;
	unsigned int sent;

	t->opt.resp = 13;
	t->opt.retries = 15;
	start_req(t);
	expect(t, &t->p, APM_CM_REQ_RECEIVED);
	if (t->failed)
		return;
	/* 4 s; without it the REQ would come again after 32 ms. */
	ok(t, apm_cm_send_mra(t->p.id, 20, "busy", 5), "send MRA");
	s = expect(t, &t->a, APM_CM_MRA_RECEIVED);
	check(t, s->ev.u.mra.service_timeout == 20, "service timeout %u",
	      s->ev.u.mra.service_timeout);
	in_state(t, &t->a, APM_CM_MRA_REQ_RCVD, APM_CM_LAP_UNINIT);
	sent = seen(t, SENT, REQ);
	msleep(300);
	check(t, seen(t, SENT, REQ) == sent, "REQ repeated in spite of MRA");
	send_rep(t, &t->p);
	expect(t, &t->a, APM_CM_REP_RECEIVED);
	send_rtu(t, &t->a);
	expect(t, &t->p, APM_CM_RTU_RECEIVED);
}

/* An MRA that is held goes out when the REQ comes again, each time. */
static void test_mra_held(struct test *t)
{
	start_req(t);
	expect(t, &t->p, APM_CM_REQ_RECEIVED);
	send_mra(t, &t->p, APM_CM_MRA_DELAY | 20);
	check(t, !seen(t, SENT, MRA), "MRA was not held");
	/* Lost, so that the REQ comes once more */
	lose(t, RECEIVED, MRA, 1);
	wait_seen(t, SENT, MRA, 2);
	expect(t, &t->a, APM_CM_MRA_RECEIVED);
	in_state(t, &t->p, APM_CM_MRA_REQ_SENT, APM_CM_LAP_UNINIT);
	send_rep(t, &t->p);
	expect(t, &t->a, APM_CM_REP_RECEIVED);
	/* The other side's turn to be slow */
	send_mra(t, &t->a, 20);
	expect(t, &t->p, APM_CM_MRA_RECEIVED);
	send_rtu(t, &t->a);
	expect(t, &t->p, APM_CM_RTU_RECEIVED);
}

static void rej_is(struct test *t, u16 reason)
{
	struct cm_rej_msg rej;

	last_mad(t, SENT, REJ, &rej);
	check(t, IBA_GET(CM_REJ_REASON, &rej) == reason, "REJ %u, not %u",
	      IBA_GET(CM_REJ_REASON, &rej), reason);
}

/* An MRA that is held ends with its exchange: not said in the id's next. */
static void test_mra_held_forgotten(struct test *t)
{
	__be64 guid = t->dev->node_guid;

	t->opt.resp = 20;		/* 4 s: the REQ does not come again */
	start_req(t);
	expect(t, &t->p, APM_CM_REQ_RECEIVED);
	send_mra(t, &t->p, APM_CM_MRA_DELAY | 20);
	if (t->failed)
		return;
	ok(t, apm_cm_send_rej(t->a.id, APM_CM_REJ_TIMEOUT, &guid, sizeof(guid),
			      NULL, 0), "send REJ");
	expect(t, &t->p, APM_CM_REJ_RECEIVED);

	t->called = &t->p2;
	t->opt.resp = RESP_USUAL;
	call_from(t, &t->p);
	expect(t, &t->p2, APM_CM_REQ_RECEIVED);
	send_rep(t, &t->p2);
	expect(t, &t->p, APM_CM_REP_RECEIVED);
	lose(t, SENT, MRA, UINT_MAX);
	wait_seen(t, RECEIVED, REP, 2);
	in_state(t, &t->p, APM_CM_REP_RCVD, APM_CM_LAP_UNINIT);
}

/* Nobody hears the REQ: error, and REJ 4 for who may have heard. */
static void test_req_unanswered(struct test *t)
{
	t->opt.resp = RESP_SHORT;
	lose(t, RECEIVED, REQ, UINT_MAX);
	start_req(t);
	expect(t, &t->a, APM_CM_REQ_ERROR);
	in_state(t, &t->a, APM_CM_IDLE, APM_CM_LAP_UNINIT);
	check(t, seen(t, SENT, REQ) == RETRIES + 1, "%u REQs",
	      seen(t, SENT, REQ));
	wait_seen(t, SENT, REJ, 1);
	rej_is(t, APM_CM_REJ_TIMEOUT);
}

/* p is slow; a's REJ 4, which knows no id of p's, finds it by the GUID. */
static void test_req_timeout_reject(struct test *t)
{
	const struct seen_event *s;

	t->opt.resp = RESP_SHORT;
	start_req(t);
	expect(t, &t->p, APM_CM_REQ_RECEIVED);
	expect(t, &t->a, APM_CM_REQ_ERROR);
	s = expect(t, &t->p, APM_CM_REJ_RECEIVED);
	check(t, s->ev.u.rej.reason == APM_CM_REJ_TIMEOUT, "reason %u",
	      s->ev.u.rej.reason);
	in_state(t, &t->p, APM_CM_IDLE, APM_CM_LAP_UNINIT);
}

static void test_rep_unanswered(struct test *t)
{
	lose(t, RECEIVED, REP, UINT_MAX);
	lose(t, RECEIVED, REJ, UINT_MAX);
	start_req(t);
	expect(t, &t->p, APM_CM_REQ_RECEIVED);
	/* a hears MRA only, and waits. */
	send_mra(t, &t->p, 22);
	expect(t, &t->a, APM_CM_MRA_RECEIVED);
	send_rep(t, &t->p);
	expect(t, &t->p, APM_CM_REP_ERROR);
	check(t, seen(t, SENT, REP) == RETRIES + 1, "%u REPs",
	      seen(t, SENT, REP));
	expect(t, &t->p, APM_CM_TIMEWAIT_EXIT);
}

/* Establishing without RTU: first data, or the peer's DREQ */
static void no_rtu(struct test *t)
{
	lose(t, RECEIVED, RTU, UINT_MAX);
	start_req(t);
	expect(t, &t->p, APM_CM_REQ_RECEIVED);
	send_rep(t, &t->p);
	expect(t, &t->a, APM_CM_REP_RECEIVED);
	if (!t->failed)
		send_rtu(t, &t->a);
	in_state(t, &t->p, APM_CM_REP_SENT, APM_CM_LAP_UNINIT);
}

static void test_comm_est(struct test *t)
{
	no_rtu(t);
	if (t->failed)
		return;
	ok(t, apm_cm_notify(t->p.id, IB_EVENT_COMM_EST), "COMM_EST");
	in_state(t, &t->p, APM_CM_ESTABLISHED, APM_CM_LAP_UNINIT);
	ok(t, apm_cm_notify(t->p.id, IB_EVENT_COMM_EST), "COMM_EST again");
}

static void test_rtu_lost_dreq(struct test *t)
{
	no_rtu(t);
	send_dreq(t, &t->a);
	expect(t, &t->p, APM_CM_USER_ESTABLISHED);
	finish_dreq(t, &t->a, &t->p);
}

/* ------------------------------------------------------------------ */
/* Routed paths: no LIDs in the message (12.7.21) */

static void test_routed(struct test *t)
{
	const struct seen_event *s;
	struct cm_req_msg req;
	struct cm_lap_msg lap;

	t->opt.hop_limit = 64;
	t->opt.sl = 0;
	start_req(t);
	s = expect(t, &t->p, APM_CM_REQ_RECEIVED);
	check(t, be16_to_cpu(s->ev.u.req.primary_path.ib.dlid) == t->lid[0] &&
	      be16_to_cpu(s->ev.u.req.primary_path.ib.slid) == t->lid[1],
	      "path is LID %u to %u",
	      be16_to_cpu(s->ev.u.req.primary_path.ib.slid),
	      be16_to_cpu(s->ev.u.req.primary_path.ib.dlid));
	last_mad(t, RECEIVED, REQ, &req);
	check(t, IBA_GET(CM_REQ_PRIMARY_LOCAL_PORT_LID, &req) == 0xffff &&
	      IBA_GET(CM_REQ_PRIMARY_REMOTE_PORT_LID, &req) == 0xffff &&
	      !IBA_GET(CM_REQ_PRIMARY_SUBNET_LOCAL, &req) &&
	      IBA_GET(CM_REQ_PRIMARY_HOP_LIMIT, &req) == 64,
	      "REQ is not that of a routed path");
	send_rep(t, &t->p);
	expect(t, &t->a, APM_CM_REP_RECEIVED);
	send_rtu(t, &t->a);
	expect(t, &t->p, APM_CM_RTU_RECEIVED);

	/* p's end of the alternate is a's port. */
	offer(t, &t->a, 1, 0, 0);
	s = expect(t, &t->p, APM_CM_LAP_RECEIVED);
	check(t, s->ev.u.lap.port == t->port[0] &&
	      be16_to_cpu(s->ev.u.lap.alternate_path.ib.slid) == t->lid[0],
	      "alternate is port %u, LID %u", s->ev.u.lap.port,
	      be16_to_cpu(s->ev.u.lap.alternate_path.ib.slid));
	last_mad(t, RECEIVED, LAP, &lap);
	check(t, IBA_GET(CM_LAP_ALTERNATE_LOCAL_PORT_LID, &lap) == 0xffff &&
	      !IBA_GET(CM_LAP_ALTERNATE_SUBNET_LOCAL, &lap),
	      "LAP is not that of a routed path");
	answer(t, &t->p, APM_CM_APR_SUCCESS);
	apr_is(t, &t->a, APM_CM_APR_SUCCESS);
}

/* ------------------------------------------------------------------ */
/* Disconnecting */

static void test_dreq_active(struct test *t)
{
	establish(t);
	disconnect(t, &t->a, &t->p);
}

static void test_dreq_passive(struct test *t)
{
	establish(t);
	disconnect(t, &t->p, &t->a);
}

/* Both at once: each is answered, both end. */
static void test_dreq_crossing(struct test *t)
{
	establish(t);
	lose(t, RECEIVED, DREQ, 1);
	send_dreq(t, &t->a);
	wait_seen(t, RECEIVED, DREQ, 1);
	send_dreq(t, &t->p);
	finish_dreq(t, &t->p, &t->a);
}

/* In TIMEWAIT a DREQ is answered again, with its own transaction id. */
static void test_drep_lost(struct test *t)
{
	struct cm_drep_msg drep;
	struct cm_dreq_msg dreq;

	t->opt.ack_timeout = 18;
	establish(t);
	lose(t, RECEIVED, DREP, 1);
	send_dreq(t, &t->a);
	expect(t, &t->p, APM_CM_DREQ_RECEIVED);
	if (t->failed)
		return;
	ok(t, apm_cm_send_drep(t->p.id, NULL, 0), "send DREP");
	in_state(t, &t->p, APM_CM_TIMEWAIT, APM_CM_LAP_UNINIT);
	expect(t, &t->a, APM_CM_DREP_RECEIVED);
	check(t, seen(t, SENT, DREP) >= 2, "DREP was not repeated");
	last_mad(t, RECEIVED, DREP, &drep);
	last_mad(t, RECEIVED, DREQ, &dreq);
	check(t, drep.hdr.tid == dreq.hdr.tid, "DREP's transaction id");
	expect(t, &t->a, APM_CM_TIMEWAIT_EXIT);
	expect(t, &t->p, APM_CM_TIMEWAIT_EXIT);
}

static void test_dreq_unanswered(struct test *t)
{
	establish(t);
	lose(t, RECEIVED, DREQ, UINT_MAX);
	send_dreq(t, &t->a);
	expect(t, &t->a, APM_CM_DREQ_ERROR);
	check(t, seen(t, SENT, DREQ) == RETRIES + 1, "%u DREQs",
	      seen(t, SENT, DREQ));
	expect(t, &t->a, APM_CM_TIMEWAIT_EXIT);
	in_state(t, &t->p, APM_CM_ESTABLISHED, APM_CM_LAP_UNINIT);
}

static void test_dreq_unknown(struct test *t)
{
	struct cm_dreq_msg dreq;
	struct cm_drep_msg drep;

	raw_mad(t, &dreq, DREQ, 0x1234567890ULL);
	raw_ids(&dreq, 0x77777777, 0x66666666);
	send_raw(t, 1, &dreq);
	wait_seen(t, SENT, DREP, 1);
	last_mad(t, SENT, DREP, &drep);
	check(t, drep.hdr.tid == dreq.hdr.tid &&
	      IBA_GET(CM_DREP_LOCAL_COMM_ID, &drep) == 0x66666666 &&
	      IBA_GET(CM_DREP_REMOTE_COMM_ID, &drep) == 0x77777777,
	      "DREP for others");
}

static void edit_dreq_qpn(struct test *t, void *mad)
{
	IBA_SET(CM_DREQ_REMOTE_QPN_EECN, (struct cm_dreq_msg *)mad, 0x123456);
}

static void test_dreq_qpn(struct test *t)
{
	establish(t);
	edit(t, SENT, DREQ, edit_dreq_qpn);
	send_dreq(t, &t->a);
	wait_seen(t, RECEIVED, DREQ, 1);
	/* Ignored; the next try is right. */
	finish_dreq(t, &t->a, &t->p);
	check(t, seen(t, RECEIVED, DREQ) >= 2, "DREQ for another QP taken");
}

/* TIMEWAIT lasts at least the path's ACK timeout. */
static void test_timewait(struct test *t)
{
	u64 start;

	t->opt.ack_timeout = 16;
	establish(t);
	send_dreq(t, &t->a);
	expect(t, &t->p, APM_CM_DREQ_RECEIVED);
	start = ktime_get_ns();
	if (t->failed)
		return;
	ok(t, apm_cm_send_drep(t->p.id, NULL, 0), "send DREP");
	in_state(t, &t->p, APM_CM_TIMEWAIT, APM_CM_LAP_UNINIT);
	expect(t, &t->a, APM_CM_DREP_RECEIVED);
	expect(t, &t->p, APM_CM_TIMEWAIT_EXIT);
	check(t, ktime_get_ns() - start >= 240 * NSEC_PER_MSEC,
	      "TIMEWAIT was over after %llu ms",
	      (ktime_get_ns() - start) / NSEC_PER_MSEC);
	expect(t, &t->a, APM_CM_TIMEWAIT_EXIT);
}

/* A QP that p knows calls again: refused, and the old connection ends. */
static void test_stale(struct test *t)
{
	const struct seen_event *s;

	establish(t);
	t->p2.qpn = t->a.qpn;
	call_from(t, &t->p2);
	s = expect(t, &t->p2, APM_CM_REJ_RECEIVED);
	check(t, s->ev.u.rej.reason == APM_CM_REJ_STALE_CONN, "reason %u",
	      s->ev.u.rej.reason);
	expect(t, &t->p2, APM_CM_TIMEWAIT_EXIT);
	finish_dreq(t, &t->p, &t->a);
	/* Now the way is free. */
	end_id(&t->a);
	end_id(&t->p);
	t->called = &t->p;
	call_from(t, &t->p2);
	expect(t, &t->p, APM_CM_REQ_RECEIVED);
}

/* One id for two connections: refused, the first one stays. */
static void test_duplicate_id(struct test *t)
{
	struct cm_req_msg req;

	establish(t);
	if (t->failed)
		return;
	last_mad(t, RECEIVED, REQ, &req);
	send_raw(t, 1, &req);
	wait_seen(t, RECEIVED, REQ, 2);
	check(t, !seen(t, SENT, REJ), "a repeated REQ was refused");
	IBA_SET(CM_REQ_LOCAL_QPN, &req, t->next_qpn++);
	send_raw(t, 1, &req);
	wait_seen(t, SENT, REJ, 1);
	rej_is(t, APM_CM_REJ_DUPLICATE_LOCAL_COMM_ID);
	disconnect(t, &t->a, &t->p);
}

/* As stale, while p waits for an APR: its LAP is over, and p hears of it. */
static void test_stale_during_lap(struct test *t)
{
	establish(t);
	lose(t, RECEIVED, LAP, UINT_MAX);
	offer(t, &t->p, 0, 1, 0);
	in_state(t, &t->p, APM_CM_ESTABLISHED, APM_CM_LAP_SENT);
	t->p2.qpn = t->a.qpn;
	call_from(t, &t->p2);
	expect(t, &t->p2, APM_CM_REJ_RECEIVED);
	expect(t, &t->p2, APM_CM_TIMEWAIT_EXIT);
	lap_over(t, &t->p, APM_CM_LAP_DISCONNECT);
	finish_dreq(t, &t->p, &t->a);
}

/* A stranger's REJ 4 without id and GUID is for nobody. */
static void test_rej_of_nobody(struct test *t)
{
	struct cm_rej_msg rej;

	t->opt.retries = 15;
	lose(t, RECEIVED, REQ, UINT_MAX);
	start_req(t);
	if (t->failed)
		return;
	raw_mad(t, &rej, REJ, 0x1112);
	IBA_SET(CM_REJ_REASON, &rej, APM_CM_REJ_TIMEOUT);
	send_raw(t, 0, &rej);
	wait_seen(t, RECEIVED, REJ, 1);
	in_state(t, &t->a, APM_CM_REQ_SENT, APM_CM_LAP_UNINIT);
	ok(t, apm_cm_send_rej(t->a.id, APM_CM_REJ_TIMEOUT, NULL, 0, NULL, 0),
	   "send REJ");
}

/* ------------------------------------------------------------------ */
/* Ids */

/* A handler that returns an error ends its id; the peer hears of it. */
static void test_handler_refuses(struct test *t)
{
	const struct seen_event *s;

	t->p.refuse = true;
	start_req(t);
	s = expect(t, &t->a, APM_CM_REJ_RECEIVED);
	check(t, s->ev.u.rej.reason == APM_CM_REJ_CONSUMER_DEFINED,
	      "reason %u", s->ev.u.rej.reason);
	expect(t, &t->p, APM_CM_REQ_RECEIVED);
	check(t, !t->p.id, "the id is there");
}

static void test_destroy(struct test *t)
{
	establish(t);
	end_id(&t->a);
	expect(t, &t->p, APM_CM_DREQ_RECEIVED);
	/* And p goes without an answer of the consumer: it gets one. */
	end_id(&t->p);
	wait_seen(t, RECEIVED, DREP, 1);
}

static void test_listen(struct test *t)
{
	ok(t, make_id(t, &t->a), "create id");
	if (t->failed)
		return;
	errno_is(t, apm_cm_listen(t->a.id, t->listener->service_id), -EBUSY,
		 "listen where somebody listens");
	ok(t, apm_cm_listen(t->a.id, cpu_to_be64(0x4711)), "listen");
	errno_is(t, apm_cm_listen(t->a.id, cpu_to_be64(0x4712)), -EINVAL,
		 "listen twice");
	errno_is(t, apm_cm_send_dreq(t->a.id, NULL, 0), -EINVAL,
		 "DREQ of a listener");
	errno_is(t, apm_cm_send_rtu(t->a.id, NULL, 0), -EINVAL,
		 "RTU of a listener");
	errno_is(t, answer_lap(&t->a, 0), -EINVAL, "APR of a listener");
}

static void test_sidr(struct test *t)
{
	struct cm_sidr_req_msg req;
	struct cm_sidr_rep_msg rep;

	raw_mad(t, &req, SIDR_REQ, 0xabcdef);
	IBA_SET(CM_SIDR_REQ_REQUESTID, &req, 0x1234);
	IBA_SET(CM_SIDR_REQ_SERVICEID, &req, 0x99);
	send_raw(t, 1, &req);
	wait_seen(t, SENT, SIDR_REP, 1);
	last_mad(t, SENT, SIDR_REP, &rep);
	check(t, IBA_GET(CM_SIDR_REP_REQUESTID, &rep) == 0x1234 &&
	      IBA_GET(CM_SIDR_REP_STATUS, &rep) == 1, "SIDR_REP %u",
	      IBA_GET(CM_SIDR_REP_STATUS, &rep));
}

/*
 * Messages of all kinds with random contents, half of them with ids that
 * exist: nothing falls over, and whatever became of this connection the next
 * one works.
 */
static void test_random(struct test *t)
{
	struct rnd_state rnd;
	unsigned int i, k;
	u8 mad[256];

	establish(t);
	prandom_seed_state(&rnd, t->seed);
	for (i = 0; i < 1000 && !t->failed; i++) {
		u32 kind = REQ + prandom_u32_state(&rnd) % KINDS;

		raw_mad(t, mad, kind, prandom_u32_state(&rnd));
		for (k = sizeof(struct ib_mad_hdr); k < sizeof(mad); k++)
			mad[k] = prandom_u32_state(&rnd);
		/* DREQ and REJ with both ids right would simply end it. */
		if (kind != REQ && kind != DREQ && kind != REJ &&
		    prandom_u32_state(&rnd) % 2)
			raw_ids(mad, id_local(&t->a), id_local(&t->p));
		send_raw(t, 1, mad);
		if (i % 32 == 31)
			wait_raw(t);
	}
	wait_raw(t);
	/* A LAP that happened to fit would be of interest, not an error. */
	in_state(t, &t->a, APM_CM_ESTABLISHED, APM_CM_LAP_UNINIT);
	end_id(&t->a);
	expect(t, &t->p, APM_CM_DREQ_RECEIVED);
	end_id(&t->p);
	t->called = &t->p;
	t->a.qpn = t->next_qpn++;
	t->p.qpn = t->next_qpn++;
	establish(t);
}

/*
 * REQs without end that nobody answers: there is a limit, it is told with REJ 3
 * (no resources), this side's own calls have a limit of their own, and
 * afterwards all is as before.
 */
#define FLOOD		1500
#define FLOOD_LIMIT	768	/* CM_MAX_FOR_PEERS */
#define LIMIT		1024	/* CM_MAX_CONNECTIONS */

static void flood(struct test *t)
{
	struct apm_cm_counters counters;
	struct cm_req_msg req;
	unsigned int i;

	last_mad(t, RECEIVED, REQ, &req);
	for (i = 0; i < FLOOD && !t->failed; i++) {
		IBA_SET(CM_REQ_LOCAL_COMM_ID, &req, 0x10000000 + i);
		IBA_SET(CM_REQ_LOCAL_QPN, &req, t->next_qpn++);
		send_raw(t, 1, &req);
		/* Not so fast that the receiver's queue drops some */
		wait_seen(t, RECEIVED, REQ, i + 2);
	}
	apm_cm_get_counters(&counters);
	check(t, counters.connections == FLOOD_LIMIT, "%u connections",
	      counters.connections);
	check(t, seen(t, SENT, REJ) >= FLOOD - FLOOD_LIMIT, "%u REJs",
	      seen(t, SENT, REJ));
	rej_is(t, APM_CM_REJ_NO_RESOURCES);
}

/* Ids of our own, until there are no more */
static void hoard_ids(struct test *t)
{
	struct apm_cm_counters counters;
	int ret = 0;

	while (!ret && t->hoarded < FLOOD) {
		ret = make_id(t, &t->p2);
		if (!ret)
			t->hoard[t->hoarded++] = t->p2.id;
	}
	t->p2.id = NULL;
	errno_is(t, ret, -EMFILE, "one id more");
	apm_cm_get_counters(&counters);
	check(t, counters.connections == LIMIT, "%u connections and ids",
	      counters.connections);
}

static void test_flood(struct test *t)
{
	unsigned int i;

	establish(t);
	if (t->failed)
		return;
	t->hoard = kvcalloc(FLOOD, sizeof(*t->hoard), GFP_KERNEL);
	if (!t->hoard) {
		fail(t, "no memory");
		return;
	}
	t->hoarded = 0;
	t->hoard_max = FLOOD;
	flood(t);
	t->hoard_max = 0;
	hoard_ids(t);
	for (i = 0; i < t->hoarded; i++)
		apm_cm_destroy_id(t->hoard[i]);
	kvfree(t->hoard);
	t->hoard = NULL;
	/* The connection that was there before did not suffer. */
	disconnect(t, &t->a, &t->p);
}

const struct selftest cm_tests[] = {
	{ "REQ REP RTU", test_establish },
	{ "failover not supported by the called", test_failover_unsupported },
	{ "failover rejected by the called", test_failover_rejected },
	{ "REJ of the consumer", test_consumer_reject },
	{ "nobody listens: REJ 8", test_no_service },
	{ "foreign GID: REJ 12", test_foreign_gid },
	{ "foreign LID: REJ 13", test_foreign_lid },
	{ "multicast LID: REJ 13", test_multicast_lid },
	{ "foreign P_Key: REJ 5", test_foreign_pkey },
	{ "foreign alternate GID: REJ 18", test_foreign_alternate_gid },
	{ "alternate to a multicast LID: REJ 19",
	  test_alternate_multicast_lid },
	{ "impossible MTU: REJ 26", test_bad_mtu },
	{ "unknown transport: REJ 9", test_bad_transport },
	{ "QPN that nobody can have", test_impossible_qpn },
	{ "reads at once: what both can", test_read_depth },
	{ "alternate of another MTU or P_Key", test_unlike_alternate },
	{ "REQ lost", test_req_lost },
	{ "REP lost", test_rep_lost },
	{ "RTU lost", test_rtu_lost },
	{ "MRA prolongs", test_mra },
	{ "MRA held until the REQ comes again", test_mra_held },
	{ "MRA held ends with its exchange", test_mra_held_forgotten },
	{ "REQ never answered: REJ 4", test_req_unanswered },
	{ "REJ 4 finds who was too slow", test_req_timeout_reject },
	{ "REP never answered", test_rep_unanswered },
	{ "COMM_EST establishes", test_comm_est },
	{ "DREQ establishes when the RTU was lost", test_rtu_lost_dreq },
	{ "routed path: permissive LIDs", test_routed },
	{ "DREQ of the caller", test_dreq_active },
	{ "DREQ of the called", test_dreq_passive },
	{ "crossing DREQs", test_dreq_crossing },
	{ "DREP lost", test_drep_lost },
	{ "DREQ never answered", test_dreq_unanswered },
	{ "DREQ for an unknown id: DREP", test_dreq_unknown },
	{ "DREQ for another QP: ignored", test_dreq_qpn },
	{ "length of TIMEWAIT", test_timewait },
	{ "stale connection: REJ 10", test_stale },
	{ "one id for two connections: REJ 30", test_duplicate_id },
	{ "stale connection with a LAP out", test_stale_during_lap },
	{ "REJ 4 of nobody", test_rej_of_nobody },
	{ "a handler's error ends the id", test_handler_refuses },
	{ "destroying connected ids", test_destroy },
	{ "listening twice, calls that do not fit", test_listen },
	{ "SIDR_REQ: unsupported", test_sidr },
	{ "random messages", test_random },
	{ "a flood of REQs", test_flood },
	{}
};
