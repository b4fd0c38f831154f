/* SPDX-License-Identifier: GPL-2.0 */
/*
 * apm_cm_selftest internals: the harness that its tests are written with.
 *
 * Theory of operation
 * - Both ends of each connection are in this guest: "a", which sends the REQ,
 *   on one port of the device, "p", which is called, on another.  So every
 *   message really goes over the fabric.
 * - A tap (apm_cm_set_tap()) counts messages by kind and direction, loses or
 *   edits the next ones, as a cable or a strange peer would.  Messages that no
 *   CM would send go out by a MAD agent of our own.
 * - The first thing that is wrong is kept in test.why; after it all helpers
 *   do nothing, so that a test is read from top to bottom.
 * - Waits end a hang; no test judges a speed.
 */
#ifndef APM_CM_SELFTEST_H
#define APM_CM_SELFTEST_H

#include <linux/completion.h>
#include <linux/spinlock.h>
#include <linux/wait.h>
#include <rdma/ib_mad.h>
#include <rdma/ib_sa.h>
#include <rdma/ib_verbs.h>
#include <rdma/ibta_vol1_c12.h>

#include "apm_cm.h"

#define WAIT_MS		10000
#define POLL_MS		20
#define SETTLE_MS	1000		/* messages may be lost for good */
#define EVENTS		16
#define KEPT		16		/* bytes kept of private data, info */

/* CM response times, 4.096 us * 2^n */
#define RESP_USUAL	16		/* 256 ms: a busy host repeats little */
#define RESP_SHORT	10		/* 4 ms: for what is never answered */
#define RETRIES		3

#define PSN_OF_REQ	0xaaaaaa
#define PSN_OF_REP	0x555555

enum kind {
	REQ = 0x10, MRA, REJ, REP, RTU, DREQ, DREP, SIDR_REQ, SIDR_REP, LAP, APR
};

#define KINDS		11

enum dir { RECEIVED, SENT };

struct test;

typedef void (*edit_fn)(struct test *t, void *mad);

struct seen_event {
	enum apm_cm_event_type type;
	struct apm_cm_event ev;		/* its pointers are not for use */
	u8 private[KEPT];
	u8 info[KEPT];
};

struct end {
	const char *name;
	struct apm_cm_id *id;
	u32 qpn;
	struct ib_qp *qp;		/* qp_tests.c only */
	struct ib_cq *cq;
	atomic_t migrated;
	bool refuse;			/* next event: the id is to go */
	spinlock_t lock;		/* below */
	struct seen_event queue[EVENTS];
	unsigned int head, tail;
	wait_queue_head_t wait;
};

struct tapped {
	unsigned int seen;
	unsigned int passed;		/* of them, not lost */
	unsigned int lose;		/* the next so many */
	unsigned int edits;		/* the next so many */
	edit_fn edit;
	u32 port;			/* of the last one */
	u8 last[256];
};

struct test {
	struct ib_device *dev;
	u32 port[2];			/* of a, of p */
	union ib_gid gid[2];
	u16 lid[2];
	__be16 pkey;
	u8 mtu;
	struct ib_mad_agent *agent;	/* on a's port */
	atomic_t raw_out;
	struct apm_cm_id *listener;
	u32 next_qpn;
	u32 connections;		/* before this test: the listener */
	u64 seed;

	struct end a, p, p2;
	struct end *called;		/* takes the next REQ; NULL refuses */
	struct apm_cm_id **hoard;	/* or takes all, and never answers */
	unsigned int hoarded, hoard_max;

	/* What start_req() and send_rep() say; reset for each test */
	struct {
		bool alternate;
		u8 resp, retries, ack_timeout, hop_limit, sl;
		enum apm_cm_failover failover;
		enum ib_qp_type type;
	} opt;

	struct apm_cm_tap tap;
	spinlock_t tap_lock;		/* tapped */
	struct tapped tapped[2][KINDS];
	wait_queue_head_t tap_wait;

	bool failed;
	char why[200];
};

struct selftest {
	const char *name;
	void (*run)(struct test *t);
};

extern const struct selftest cm_tests[], lap_tests[], qp_tests[];

/* Judging */
__printf(2, 3) void fail(struct test *t, const char *fmt, ...);
#define check(t, cond, fmt, ...) \
	do { \
		if (!(cond)) \
			fail(t, fmt, ##__VA_ARGS__); \
	} while (0)
void ok(struct test *t, int ret, const char *what);
void errno_is(struct test *t, int ret, int wanted, const char *what);
const struct seen_event *expect(struct test *t, struct end *e,
				enum apm_cm_event_type type);
void quiet(struct test *t, struct end *e);
void in_state(struct test *t, struct end *e, enum apm_cm_state state,
	      enum apm_cm_lap_state lap_state);
void wait_state(struct test *t, struct end *e, enum apm_cm_state state);
void alternate_is(struct test *t, struct end *e, u32 from, u32 to);
void path_is(struct test *t, struct end *e, u32 from, u32 to);

/* The tap */
void lose(struct test *t, enum dir way, enum kind kind, unsigned int count);
void edit(struct test *t, enum dir way, enum kind kind, edit_fn fn);
unsigned int seen(struct test *t, enum dir way, enum kind kind);
u32 last_port(struct test *t, enum dir way, enum kind kind);
void last_mad(struct test *t, enum dir way, enum kind kind, void *mad);
void wait_seen(struct test *t, enum dir way, enum kind kind,
	       unsigned int count);

/* Messages by hand, from a's port to port @to (0: a's, 1: p's) */
void raw_mad(struct test *t, void *mad, enum kind kind, u64 tid);
void raw_ids(void *mad, u32 local_id, u32 remote_id);
void send_raw(struct test *t, unsigned int to, const void *mad);
void wait_raw(struct test *t);

/* main.c's */
int harness_init(struct test *t);
void harness_exit(struct test *t);
int make_listener(struct test *t, u64 service);
void test_begin(struct test *t);
void test_end(struct test *t);
void wait_left_over(struct test *t, u32 count);

/* Connecting */
int make_id(struct test *t, struct end *e);
void path(struct test *t, unsigned int from, unsigned int to,
	  struct sa_path_rec *rec);
void call_from(struct test *t, struct end *e);
void start_req(struct test *t);
void disconnect(struct test *t, struct end *from, struct end *to);
void finish_dreq(struct test *t, struct end *from, struct end *to);
void send_rep(struct test *t, struct end *e);
void establish(struct test *t);
void send_rtu(struct test *t, struct end *e);
void send_mra(struct test *t, struct end *e, u8 service_timeout);
void send_dreq(struct test *t, struct end *e);
void offer(struct test *t, struct end *e, unsigned int from, unsigned int to,
	   u8 resp);
void answer(struct test *t, struct end *e, enum apm_cm_apr_status status);
const struct seen_event *apr_is(struct test *t, struct end *e,
				enum apm_cm_apr_status status);
void accept(struct test *t, struct end *e, struct end *sender);
void lap_over(struct test *t, struct end *e, enum apm_cm_lap_error why);
void tell_migrated(struct test *t, struct end *e);
int send_lap(struct test *t, struct end *e, const struct sa_path_rec *rec,
	     u8 resp);
int answer_lap(struct end *e, enum apm_cm_apr_status status);
void end_id(struct end *e);
u32 id_local(const struct end *e);
u32 id_remote(const struct end *e);

#endif /* APM_CM_SELFTEST_H */
