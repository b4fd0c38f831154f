// SPDX-License-Identifier: GPL-2.0
/*
 * apm_cm_selftest: loading alternate paths, LAP and APR (IBTA volume 1, 12.8),
 * without queue pairs.  Connections begin on a's port to p's; "the other path"
 * goes the other way about.
 */
#include <linux/delay.h>

#include "cst.h"

/* The peer gets the LAP, answers; the sender gets the APR. */
static void lap_works(struct test *t, struct end *from, struct end *to,
		      unsigned int from_port, unsigned int to_port)
{
	const struct seen_event *s;

	offer(t, from, from_port, to_port, 0);
	s = expect(t, to, APM_CM_LAP_RECEIVED);
	check(t, s->ev.u.lap.port == t->port[to_port], "LAP says port %u",
	      s->ev.u.lap.port);
	check(t, !strcmp(s->private, "lap"), "LAP's private data");
	in_state(t, to, APM_CM_ESTABLISHED, APM_CM_LAP_RCVD);
	answer(t, to, APM_CM_APR_SUCCESS);
	s = apr_is(t, from, APM_CM_APR_SUCCESS);
	check(t, !strcmp(s->private, "apr"), "APR's private data");
	in_state(t, from, APM_CM_ESTABLISHED, APM_CM_LAP_IDLE);
	in_state(t, to, APM_CM_ESTABLISHED, APM_CM_LAP_IDLE);
	alternate_is(t, from, from_port, to_port);
	alternate_is(t, to, to_port, from_port);
}

static void test_lap(struct test *t)
{
	struct sa_path_rec rec;
	struct cm_lap_msg lap;
	struct cm_apr_msg apr;

	establish(t);
	lap_works(t, &t->a, &t->p, 1, 0);
	if (t->failed)
		return;
	/* Our layout against the table of the specification */
	path(t, 1, 0, &rec);
	last_mad(t, RECEIVED, LAP, &lap);
	check(t, IBA_GET(CM_LAP_LOCAL_COMM_ID, &lap) == id_local(&t->a) &&
	      IBA_GET(CM_LAP_REMOTE_COMM_ID, &lap) == id_local(&t->p),
	      "LAP's ids");
	check(t, IBA_GET(CM_LAP_REMOTE_QPN_EECN, &lap) == t->p.qpn,
	      "LAP's QPN");
	check(t, IBA_GET(CM_LAP_ALTERNATE_LOCAL_PORT_LID, &lap) ==
	      t->lid[1] && IBA_GET(CM_LAP_ALTERNATE_REMOTE_PORT_LID, &lap) ==
	      t->lid[0], "LAP's LIDs");
	check(t, IBA_GET(CM_LAP_REMOTE_CM_RESPONSE_TIMEOUT, &lap) ==
	      RESP_USUAL, "LAP's response time");
	last_mad(t, RECEIVED, APR, &apr);
	check(t, apr.hdr.tid == lap.hdr.tid, "APR's transaction id");
}

static void test_lap_passive(struct test *t)
{
	establish(t);
	lap_works(t, &t->p, &t->a, 0, 1);
}

/* Again and again, from both sides, each with an id of its own */
static void test_lap_again(struct test *t)
{
	unsigned int i;

	establish(t);
	for (i = 0; i < 5; i++) {
		lap_works(t, &t->a, &t->p, 1, 0);
		lap_works(t, &t->p, &t->a, 0, 1);
	}
}

static void test_lap_sl(struct test *t)
{
	const struct seen_event *s;
	struct sa_path_rec rec;
	struct cm_lap_msg lap;
	const u8 *byte = (const u8 *)&lap + IB_MGMT_MAD_HDR;

	establish(t);
	if (t->failed)
		return;
	path(t, 1, 0, &rec);
	rec.sl = 5;
	ok(t, send_lap(t, &t->a, &rec, 0), "send LAP");
	s = expect(t, &t->p, APM_CM_LAP_RECEIVED);
	check(t, s->ev.u.lap.alternate_path.sl == 5, "SL %u",
	      s->ev.u.lap.alternate_path.sl);
	check(t, s->ev.u.lap.alternate_path.rate == IB_RATE_10_GBPS,
	      "rate %u", s->ev.u.lap.alternate_path.rate);
	last_mad(t, RECEIVED, LAP, &lap);
	check(t, byte[61] == IB_RATE_10_GBPS && byte[62] == (5 << 4 | 8),
	      "bytes 61 and 62 are %#x %#x", byte[61], byte[62]);
	answer(t, &t->p, APM_CM_APR_SUCCESS);
	apr_is(t, &t->a, APM_CM_APR_SUCCESS);
}

static void test_lap_lost(struct test *t)
{
	establish(t);
	lose(t, RECEIVED, LAP, 2);
	lap_works(t, &t->a, &t->p, 1, 0);
	check(t, seen(t, SENT, LAP) >= 3, "LAP was not repeated");
}

/* The LAP comes again and is answered as before; the consumer hears once. */
static void test_apr_lost(struct test *t)
{
	establish(t);
	lose(t, RECEIVED, APR, 2);
	lap_works(t, &t->a, &t->p, 1, 0);
	check(t, seen(t, SENT, LAP) >= 3, "LAP was not repeated");
	check(t, seen(t, SENT, APR) >= 3, "APR was not repeated");
	quiet(t, &t->p);
}

/* Also when it said no */
static void test_rejecting_apr_lost(struct test *t)
{
	establish(t);
	lose(t, RECEIVED, APR, 1);
	offer(t, &t->a, 1, 0, 0);
	expect(t, &t->p, APM_CM_LAP_RECEIVED);
	answer(t, &t->p, APM_CM_APR_REJECT);
	apr_is(t, &t->a, APM_CM_APR_REJECT);
	check(t, seen(t, SENT, APR) >= 2, "APR was not repeated");
	quiet(t, &t->p);
}

static void test_lap_mra(struct test *t)
{
	const struct seen_event *s;
	unsigned int sent;
	struct cm_mra_msg mra;

	establish(t);
	if (t->failed)
		return;
	offer(t, &t->a, 1, 0, 13);
	expect(t, &t->p, APM_CM_LAP_RECEIVED);
	send_mra(t, &t->p, 20);
	in_state(t, &t->p, APM_CM_ESTABLISHED, APM_CM_MRA_LAP_SENT);
	s = expect(t, &t->a, APM_CM_MRA_RECEIVED);
	check(t, s->ev.u.mra.service_timeout == 20, "service timeout %u",
	      s->ev.u.mra.service_timeout);
	last_mad(t, RECEIVED, MRA, &mra);
	check(t, IBA_GET(CM_MRA_MESSAGE_MRAED, &mra) == 2, "MRA of %u",
	      IBA_GET(CM_MRA_MESSAGE_MRAED, &mra));
	in_state(t, &t->a, APM_CM_ESTABLISHED, APM_CM_MRA_LAP_RCVD);
	sent = seen(t, SENT, LAP);
	/* More than all tries would have taken */
	msleep(300);
	check(t, seen(t, SENT, LAP) == sent, "LAP repeated in spite of MRA");
	answer(t, &t->p, APM_CM_APR_SUCCESS);
	apr_is(t, &t->a, APM_CM_APR_SUCCESS);
	alternate_is(t, &t->a, 1, 0);
	alternate_is(t, &t->p, 0, 1);
}

/* Held until the LAP comes again; repeated when it was lost. */
static void test_lap_mra_held(struct test *t)
{
	establish(t);
	offer(t, &t->a, 1, 0, 0);
	expect(t, &t->p, APM_CM_LAP_RECEIVED);
	send_mra(t, &t->p, APM_CM_MRA_DELAY | 20);
	lose(t, RECEIVED, MRA, 1);
	wait_seen(t, SENT, MRA, 2);
	expect(t, &t->a, APM_CM_MRA_RECEIVED);
	answer(t, &t->p, APM_CM_APR_SUCCESS);
	apr_is(t, &t->a, APM_CM_APR_SUCCESS);
}

static void test_lap_unanswered(struct test *t)
{
	struct sa_path_rec rec;

	t->opt.alternate = true;
	establish(t);
	lose(t, RECEIVED, LAP, UINT_MAX);
	offer(t, &t->a, 0, 0, RESP_SHORT);
	path(t, 0, 0, &rec);
	errno_is(t, send_lap(t, &t->a, &rec, 0), -EBUSY, "second LAP");
	lap_over(t, &t->a, APM_CM_LAP_TIMEOUT);
	check(t, seen(t, SENT, LAP) == RETRIES + 1, "%u LAPs",
	      seen(t, SENT, LAP));
	in_state(t, &t->a, APM_CM_ESTABLISHED, APM_CM_LAP_IDLE);
	alternate_is(t, &t->a, 1, 0);
	/* And once more, with success */
	lose(t, RECEIVED, LAP, 0);
	lap_works(t, &t->a, &t->p, 1, 0);
}

/*
 * The consumer is too slow: its APR comes when nobody waits.  A new LAP is a
 * new question, and both agree again.
 */
static void test_apr_late(struct test *t)
{
	t->opt.alternate = true;
	establish(t);
	offer(t, &t->a, 0, 0, RESP_SHORT);
	expect(t, &t->p, APM_CM_LAP_RECEIVED);
	expect(t, &t->a, APM_CM_LAP_ERROR);
	answer(t, &t->p, APM_CM_APR_SUCCESS);
	wait_seen(t, RECEIVED, APR, 1);
	quiet(t, &t->a);
	alternate_is(t, &t->a, 1, 0);
	offer(t, &t->a, 1, 0, 0);
	accept(t, &t->p, &t->a);
	alternate_is(t, &t->a, 1, 0);
	alternate_is(t, &t->p, 0, 1);
}

/*
 * Both ends ask.  The caller's LAP prevails, whichever is first: it refuses the
 * other's, or the called gives up its own.
 */
static void test_crossing_active_first(struct test *t)
{
	establish(t);
	/* a's is out, its first try is lost; p's arrives meanwhile. */
	lose(t, RECEIVED, LAP, 1);
	offer(t, &t->a, 1, 0, 18);
	wait_seen(t, RECEIVED, LAP, 1);
	offer(t, &t->p, 0, 1, 0);
	apr_is(t, &t->p, APM_CM_APR_REJECT);
	/* The caller's comes again and is answered. */
	accept(t, &t->p, &t->a);
	alternate_is(t, &t->a, 1, 0);
	alternate_is(t, &t->p, 0, 1);
}

static void test_crossing_passive_first(struct test *t)
{
	establish(t);
	lose(t, RECEIVED, LAP, 1);
	offer(t, &t->p, 0, 1, 18);
	wait_seen(t, RECEIVED, LAP, 1);
	offer(t, &t->a, 1, 0, 0);
	lap_over(t, &t->p, APM_CM_LAP_CROSSED);
	accept(t, &t->p, &t->a);
	in_state(t, &t->p, APM_CM_ESTABLISHED, APM_CM_LAP_IDLE);
	alternate_is(t, &t->a, 1, 0);
	alternate_is(t, &t->p, 0, 1);
}

/* ------------------------------------------------------------------ */
/* LAPs that the CM refuses by itself; the old alternate stays */

static const struct seen_event *lap_refused(struct test *t,
					    const struct sa_path_rec *rec,
					    u8 status)
{
	const struct seen_event *s;

	if (!t->failed)
		ok(t, send_lap(t, &t->a, rec, 0), "send LAP");
	s = apr_is(t, &t->a, status);
	quiet(t, &t->p);
	in_state(t, &t->a, APM_CM_ESTABLISHED, APM_CM_LAP_IDLE);
	alternate_is(t, &t->a, 1, 0);
	alternate_is(t, &t->p, 0, 1);
	return s;
}

/* A good LAP, changed on its way */
static const struct seen_event *edited_lap_refused(struct test *t, edit_fn fn,
						   u8 status)
{
	struct sa_path_rec rec;

	path(t, 1, 0, &rec);
	edit(t, SENT, LAP, fn);
	return lap_refused(t, &rec, status);
}

static void with_alternate(struct test *t)
{
	t->opt.alternate = true;
	establish(t);
}

static void test_lap_current(struct test *t)
{
	struct sa_path_rec rec;

	with_alternate(t);
	path(t, 0, 1, &rec);
	lap_refused(t, &rec, APM_CM_APR_IS_CURRENT);
}

static void test_lap_foreign_gid(struct test *t)
{
	const struct seen_event *s;
	struct sa_path_rec rec;

	with_alternate(t);
	path(t, 1, 0, &rec);
	rec.dgid.raw[15] ^= 0x55;
	s = lap_refused(t, &rec, APM_CM_APR_INVALID_GID);
	check(t, s->ev.u.apr.info_length == 16 &&
	      !memcmp(s->info, &t->gid[1], 16), "no GID in the APR");
}

static void edit_lap_qpn(struct test *t, void *mad)
{
	IBA_SET(CM_LAP_REMOTE_QPN_EECN, (struct cm_lap_msg *)mad, 0x123456);
}

static void test_lap_qpn(struct test *t)
{
	with_alternate(t);
	edited_lap_refused(t, edit_lap_qpn, APM_CM_APR_INVALID_QPN);
}

static void edit_lap_lid(struct test *t, void *mad)
{
	IBA_SET(CM_LAP_ALTERNATE_REMOTE_PORT_LID, (struct cm_lap_msg *)mad,
		0xbffe);
}

static void test_lap_lid(struct test *t)
{
	const struct seen_event *s;

	with_alternate(t);
	s = edited_lap_refused(t, edit_lap_lid, APM_CM_APR_INVALID_LID);
	check(t, s->ev.u.apr.info_length == 2 &&
	      s->info[0] << 8 == (t->lid[0] & 0xff00) &&
	      s->info[1] == (t->lid[0] & 0xff), "no LID in the APR");
}

/* What the peer says of its own end is where packets would go to. */
static void edit_lap_own_lid(struct test *t, void *mad)
{
	IBA_SET(CM_LAP_ALTERNATE_LOCAL_PORT_LID, (struct cm_lap_msg *)mad,
		0xc001);
}

static void test_lap_multicast_lid(struct test *t)
{
	with_alternate(t);
	edited_lap_refused(t, edit_lap_own_lid, APM_CM_APR_INVALID_LID);
}

static void edit_lap_rate(struct test *t, void *mad)
{
	IBA_SET(CM_LAP_ALTERNATE_PACKET_RATE, (struct cm_lap_msg *)mad, 0x3f);
}

static void test_lap_rate(struct test *t)
{
	with_alternate(t);
	edited_lap_refused(t, edit_lap_rate, APM_CM_APR_INVALID_PACKET_RATE);
}

/* p has forgotten the connection. */
static void test_lap_unknown(struct test *t)
{
	with_alternate(t);
	lose(t, RECEIVED, DREQ, UINT_MAX);
	end_id(&t->p);
	/* Until DREQ and TIMEWAIT are over: a is left. */
	wait_left_over(t, 1);
	offer(t, &t->a, 0, 0, 0);
	apr_is(t, &t->a, APM_CM_APR_INVALID_COMM_ID);
}

static void test_lap_local_errors(struct test *t)
{
	struct sa_path_rec rec;

	with_alternate(t);
	path(t, 1, 0, &rec);
	rec.sgid.raw[15] ^= 0x55;
	errno_is(t, send_lap(t, &t->a, &rec, 0), -EADDRNOTAVAIL,
		 "LAP from a GID that is not ours");
	path(t, 1, 0, &rec);
	rec.mtu = IB_MTU_256;
	errno_is(t, send_lap(t, &t->a, &rec, 0), -EINVAL,
		 "LAP of a smaller MTU");
	path(t, 1, 0, &rec);
	rec.pkey = cpu_to_be16(0x8001);
	errno_is(t, send_lap(t, &t->a, &rec, 0), -EINVAL,
		 "LAP of another P_Key");
	errno_is(t, answer_lap(&t->a, 0), -EINVAL, "APR without LAP");
	check(t, !seen(t, SENT, LAP) && !seen(t, SENT, APR),
	      "something was sent");
	in_state(t, &t->a, APM_CM_ESTABLISHED, APM_CM_LAP_UNINIT);
	alternate_is(t, &t->a, 1, 0);
}

/* The consumer refuses: a later migration goes to the old alternate. */
static void test_rejected_keeps_old(struct test *t)
{
	with_alternate(t);
	offer(t, &t->a, 0, 0, 0);
	expect(t, &t->p, APM_CM_LAP_RECEIVED);
	answer(t, &t->p, APM_CM_APR_REJECT);
	apr_is(t, &t->a, APM_CM_APR_REJECT);
	alternate_is(t, &t->a, 1, 0);
	alternate_is(t, &t->p, 0, 1);
	tell_migrated(t, &t->a);
	tell_migrated(t, &t->p);
	path_is(t, &t->a, 1, 0);
	path_is(t, &t->p, 0, 1);
}

/* ------------------------------------------------------------------ */
/* Migration */

/* After PATH_MIG messages go by the new path. */
static void test_notify(struct test *t)
{
	with_alternate(t);
	tell_migrated(t, &t->a);
	tell_migrated(t, &t->a);
	tell_migrated(t, &t->p);
	path_is(t, &t->a, 1, 0);
	path_is(t, &t->p, 0, 1);
	/* The path that was left can be the alternate again. */
	lap_works(t, &t->a, &t->p, 0, 1);
	check(t, last_port(t, SENT, LAP) == t->port[1], "LAP by port %u",
	      last_port(t, SENT, LAP));
	check(t, last_port(t, SENT, APR) == t->port[0], "APR by port %u",
	      last_port(t, SENT, APR));
	disconnect(t, &t->a, &t->p);
	check(t, last_port(t, SENT, DREQ) == t->port[1], "DREQ by port %u",
	      last_port(t, SENT, DREQ));
}

/*
 * Nobody told the CM.  Its message by the old path is lost; the next try takes
 * the other.
 */
static void test_no_notify(struct test *t)
{
	with_alternate(t);
	lose(t, RECEIVED, DREQ, 1);
	send_dreq(t, &t->a);
	wait_seen(t, SENT, DREQ, 1);
	check(t, last_port(t, SENT, DREQ) == t->port[0], "DREQ by port %u",
	      last_port(t, SENT, DREQ));
	finish_dreq(t, &t->a, &t->p);
	check(t, last_port(t, SENT, DREQ) == t->port[1], "repeated by port %u",
	      last_port(t, SENT, DREQ));
}

/* A LAP that is out goes on by the new path. */
static void test_migration_during_lap(struct test *t)
{
	with_alternate(t);
	lose(t, RECEIVED, LAP, 1);
	offer(t, &t->a, 0, 0, 0);
	wait_seen(t, RECEIVED, LAP, 1);
	tell_migrated(t, &t->a);
	in_state(t, &t->a, APM_CM_ESTABLISHED, APM_CM_LAP_SENT);
	path_is(t, &t->a, 1, 0);
	expect(t, &t->p, APM_CM_LAP_RECEIVED);
	/* The called side, while it has a LAP to answer */
	tell_migrated(t, &t->p);
	in_state(t, &t->p, APM_CM_ESTABLISHED, APM_CM_LAP_RCVD);
	answer(t, &t->p, APM_CM_APR_SUCCESS);
	apr_is(t, &t->a, APM_CM_APR_SUCCESS);
	path_is(t, &t->a, 1, 0);
	path_is(t, &t->p, 0, 1);
	alternate_is(t, &t->a, 0, 0);
	alternate_is(t, &t->p, 0, 0);
}

static void test_migration_without_alternate(struct test *t)
{
	establish(t);
	if (t->failed)
		return;
	errno_is(t, apm_cm_notify(t->a.id, IB_EVENT_PATH_MIG), -EINVAL,
		 "PATH_MIG");
	path_is(t, &t->a, 0, 1);
	lap_works(t, &t->a, &t->p, 1, 0);
}

/*
 * A LAP like the last one, but after the migration to what that one loaded, is
 * a new LAP: a caller that uses one transaction id for all, as Linux does.
 */
static u64 lap_tid;

static void edit_lap_tid(struct test *t, void *mad)
{
	((struct ib_mad_hdr *)mad)->tid = (__force __be64)lap_tid;
}

static void test_same_tid(struct test *t)
{
	struct cm_lap_msg lap;
	struct cm_apr_msg apr;

	establish(t);
	lap_works(t, &t->a, &t->p, 1, 0);
	if (t->failed)
		return;
	last_mad(t, RECEIVED, LAP, &lap);
	lap_tid = (__force u64)lap.hdr.tid;
	tell_migrated(t, &t->a);
	tell_migrated(t, &t->p);
	/*
	 * The same once more, id and all: the answer of before is not true any
	 * more.  It goes to the id of before, so a drops it and asks again.
	 */
	edit(t, SENT, LAP, edit_lap_tid);
	offer(t, &t->a, 1, 0, 0);
	wait_seen(t, SENT, APR, 2);
	last_mad(t, SENT, APR, &apr);
	check(t, IBA_GET(CM_APR_AR_STATUS, &apr) == APM_CM_APR_IS_CURRENT,
	      "APR %u", IBA_GET(CM_APR_AR_STATUS, &apr));
	apr_is(t, &t->a, APM_CM_APR_IS_CURRENT);
	check(t, seen(t, RECEIVED, APR) >= 3, "a took an APR to another LAP");
	lap_works(t, &t->a, &t->p, 0, 1);
	tell_migrated(t, &t->a);
	tell_migrated(t, &t->p);
	/* As the first, id and all; its APR carries that id, so a drops it. */
	edit(t, SENT, LAP, edit_lap_tid);
	offer(t, &t->a, 1, 0, 0);
	expect(t, &t->p, APM_CM_LAP_RECEIVED);
	in_state(t, &t->p, APM_CM_ESTABLISHED, APM_CM_LAP_RCVD);
}

/* ------------------------------------------------------------------ */
/* The end while a LAP is out */

static void lap_out(struct test *t)
{
	with_alternate(t);
	lose(t, RECEIVED, LAP, UINT_MAX);
	offer(t, &t->a, 0, 0, 0);
	in_state(t, &t->a, APM_CM_ESTABLISHED, APM_CM_LAP_SENT);
}

static void test_own_dreq_during_lap(struct test *t)
{
	unsigned int laps;

	lap_out(t);
	laps = seen(t, SENT, LAP);
	disconnect(t, &t->a, &t->p);
	check(t, seen(t, SENT, LAP) == laps, "LAP after DREQ");
}

static void test_peer_dreq_during_lap(struct test *t)
{
	lap_out(t);
	send_dreq(t, &t->p);
	lap_over(t, &t->a, APM_CM_LAP_DISCONNECT);
	finish_dreq(t, &t->p, &t->a);
}

/* The side that has a LAP to answer disconnects instead. */
static void test_dreq_instead_of_apr(struct test *t)
{
	with_alternate(t);
	offer(t, &t->a, 0, 0, 0);
	expect(t, &t->p, APM_CM_LAP_RECEIVED);
	send_dreq(t, &t->p);
	errno_is(t, answer_lap(&t->p, 0), -EINVAL, "APR after DREQ");
	lap_over(t, &t->a, APM_CM_LAP_DISCONNECT);
	finish_dreq(t, &t->p, &t->a);
}

/* The asking side disconnects while the other has not answered. */
static void test_dreq_before_apr(struct test *t)
{
	with_alternate(t);
	offer(t, &t->a, 0, 0, 0);
	expect(t, &t->p, APM_CM_LAP_RECEIVED);
	send_dreq(t, &t->a);
	wait_state(t, &t->p, APM_CM_DREQ_RCVD);
	errno_is(t, answer_lap(&t->p, 0), -EINVAL, "APR after DREQ");
	finish_dreq(t, &t->a, &t->p);
}

/* A REJ of the peer ends a connection whatever the LAP state. */
static void test_rej_during_lap(struct test *t)
{
	struct cm_rej_msg rej;

	lap_out(t);
	raw_mad(t, &rej, REJ, 0x1111);
	raw_ids(&rej, id_local(&t->p), id_local(&t->a));
	IBA_SET(CM_REJ_MESSAGE_REJECTED, &rej, 2);
	IBA_SET(CM_REJ_REASON, &rej, APM_CM_REJ_CONSUMER_DEFINED);
	send_raw(t, 0, &rej);
	lap_over(t, &t->a, APM_CM_LAP_DISCONNECT);
	expect(t, &t->a, APM_CM_REJ_RECEIVED);
	expect(t, &t->a, APM_CM_TIMEWAIT_EXIT);
}

static void test_destroy_during_lap(struct test *t)
{
	lap_out(t);
	end_id(&t->a);
	expect(t, &t->p, APM_CM_DREQ_RECEIVED);
}

/* The RTU was lost; a LAP says as much (section 12.9). */
static void test_rtu_lost_lap(struct test *t)
{
	lose(t, RECEIVED, RTU, UINT_MAX);
	start_req(t);
	expect(t, &t->p, APM_CM_REQ_RECEIVED);
	send_rep(t, &t->p);
	expect(t, &t->a, APM_CM_REP_RECEIVED);
	send_rtu(t, &t->a);
	in_state(t, &t->p, APM_CM_REP_SENT, APM_CM_LAP_UNINIT);
	offer(t, &t->a, 1, 0, 0);
	expect(t, &t->p, APM_CM_USER_ESTABLISHED);
	accept(t, &t->p, &t->a);
	alternate_is(t, &t->a, 1, 0);
	alternate_is(t, &t->p, 0, 1);
}

const struct selftest lap_tests[] = {
	{ "LAP of the caller", test_lap },
	{ "LAP of the called", test_lap_passive },
	{ "LAP again and again, both ways", test_lap_again },
	{ "LAP carries SL and rate", test_lap_sl },
	{ "LAP lost", test_lap_lost },
	{ "APR lost", test_apr_lost },
	{ "refusing APR lost", test_rejecting_apr_lost },
	{ "MRA prolongs a LAP", test_lap_mra },
	{ "MRA held until the LAP comes again", test_lap_mra_held },
	{ "LAP never answered, then again", test_lap_unanswered },
	{ "APR that comes too late", test_apr_late },
	{ "crossing LAPs, the caller's first", test_crossing_active_first },
	{ "crossing LAPs, the called's first", test_crossing_passive_first },
	{ "LAP of the current path: APR 5", test_lap_current },
	{ "LAP of a foreign GID: APR 8", test_lap_foreign_gid },
	{ "LAP for another QP: APR 6", test_lap_qpn },
	{ "LAP of a foreign LID: APR 7", test_lap_lid },
	{ "LAP to a multicast LID: APR 7", test_lap_multicast_lid },
	{ "LAP of an unknown rate: APR 12", test_lap_rate },
	{ "LAP for a forgotten connection: APR 1", test_lap_unknown },
	{ "LAPs that cannot be sent", test_lap_local_errors },
	{ "refused LAP keeps the old alternate", test_rejected_keeps_old },
	{ "messages follow a migration", test_notify },
	{ "messages find the way without PATH_MIG", test_no_notify },
	{ "migration while a LAP is out", test_migration_during_lap },
	{ "PATH_MIG without alternate", test_migration_without_alternate },
	{ "one transaction id for all LAPs", test_same_tid },
	{ "own DREQ while a LAP is out", test_own_dreq_during_lap },
	{ "peer's DREQ while a LAP is out", test_peer_dreq_during_lap },
	{ "DREQ instead of an APR", test_dreq_instead_of_apr },
	{ "DREQ before the APR", test_dreq_before_apr },
	{ "REJ while a LAP is out", test_rej_during_lap },
	{ "destroying an id with a LAP out", test_destroy_during_lap },
	{ "LAP establishes when the RTU was lost", test_rtu_lost_lap },
	{}
};
