// SPDX-License-Identifier: GPL-2.0
/*
 * Test of a verbs driver and its adapter from inside the guest, as a kernel
 * consumer sees them: exactly one completion for each work request whatever
 * happens to the queue pair, data intact, errors with the right status,
 * events, recovery.
 *
 * Loading the module runs all tests on one device and prints a line for each
 * to the kernel log ("ok 3 - name", "not ok 3 - name: why", as in TAP); how
 * many failed can be read from the module's parameters.  Tests that send to
 * the own LID are skipped unless the port is Active.
 *
 *	insmod ehca_selftest.ko device=ehca0 port=1
 *	cat /sys/module/ehca_selftest/parameters/failures
 */
#include <linux/completion.h>
#include <linux/delay.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <rdma/ib_cache.h>
#include <rdma/ib_verbs.h>

#define DEPTH		64
#define MSG_SIZE	4096
#define POLL_MS		5000
#define QKEY		0x11111111

static char *device = "ehca0";
module_param(device, charp, 0444);
MODULE_PARM_DESC(device, "device to test (default ehca0)");

static uint port = 1;
module_param(port, uint, 0444);
MODULE_PARM_DESC(port, "its port (default 1)");

static uint rounds = 200;
module_param(rounds, uint, 0444);
MODULE_PARM_DESC(rounds, "messages of the longer tests (default 200)");

/* Work request ids: which queue, which number */
#define ID_SEND		0x5e4d000000000000ULL
#define ID_RECV		0x4ecf000000000000ULL
#define ID_MASK		0xffff000000000000ULL

struct end {
	struct ib_qp *qp;
	struct ib_cq *recv_cq;	/* or NULL: the test's */
	atomic_t events[IB_EVENT_QP_LAST_WQE_REACHED + 1];
	struct completion event;
};

struct test {
	struct ib_device *ibdev;
	struct ib_pd *pd;
	struct ib_cq *cq;
	struct ib_srq *srq;	/* for make_end(), else NULL */
	struct end a, b;
	struct completion notified;
	u8 *buf;		/* sends from the first half, receives second */
	u64 dma;
	struct ib_port_attr port_attr;
	union ib_gid gid;
	char why[160];
};

static int test_nr;

static int failures;
module_param(failures, int, 0444);
MODULE_PARM_DESC(failures, "result: how many tests failed");

#define FAIL(t, fmt, ...) \
	(snprintf((t)->why, sizeof((t)->why), fmt, ##__VA_ARGS__), -EIO)

static void on_event(struct ib_event *ev, void *context)
{
	struct end *end = context;

	if (ev->event <= IB_EVENT_QP_LAST_WQE_REACHED)
		atomic_inc(&end->events[ev->event]);
	complete(&end->event);
}

static void on_comp(struct ib_cq *cq, void *context)
{
	struct test *t = context;

	complete(&t->notified);
}

static int make_end(struct test *t, struct end *end, enum ib_qp_type type)
{
	struct ib_qp_init_attr init = {
		.event_handler = on_event,
		.qp_context = end,
		.send_cq = t->cq,
		.recv_cq = end->recv_cq ?: t->cq,
		.srq = t->srq,
		.cap = {
			.max_send_wr = DEPTH,
			.max_recv_wr = t->srq ? 0 : DEPTH,
			.max_send_sge = 2,
			.max_recv_sge = 2,
		},
		.sq_sig_type = IB_SIGNAL_REQ_WR,
		.qp_type = type,
	};

	memset(end->events, 0, sizeof(end->events));
	init_completion(&end->event);
	end->qp = ib_create_qp(t->pd, &init);
	if (IS_ERR(end->qp)) {
		long err = PTR_ERR(end->qp);

		end->qp = NULL;
		return FAIL(t, "create QP: %ld", err);
	}
	return 0;
}

static int to_init(struct test *t, struct end *end)
{
	struct ib_qp_attr attr = {
		.qp_state = IB_QPS_INIT,
		.port_num = port,
		.qkey = QKEY,
		.qp_access_flags = IB_ACCESS_LOCAL_WRITE |
				   IB_ACCESS_REMOTE_WRITE |
				   IB_ACCESS_REMOTE_READ |
				   IB_ACCESS_REMOTE_ATOMIC,
	};
	int mask = IB_QP_STATE | IB_QP_PKEY_INDEX | IB_QP_PORT;
	int ret;

	mask |= end->qp->qp_type == IB_QPT_UD ? IB_QP_QKEY :
		IB_QP_ACCESS_FLAGS;
	ret = ib_modify_qp(end->qp, &attr, mask);
	return ret ? FAIL(t, "modify to INIT: %d", ret) : 0;
}

static void own_path(struct test *t, struct rdma_ah_attr *ah)
{
	memset(ah, 0, sizeof(*ah));
	ah->type = RDMA_AH_ATTR_TYPE_IB;
	/* any LID will do while nothing is sent */
	rdma_ah_set_dlid(ah, t->port_attr.lid ?: 1);
	rdma_ah_set_port_num(ah, port);
}

/* RNR retry 0: an empty receive queue at the peer is an error at once. */
static int to_rts(struct test *t, struct end *end, struct end *peer)
{
	struct ib_qp_attr attr = {
		.qp_state = IB_QPS_RTR,
		.path_mtu = IB_MTU_1024,
		.dest_qp_num = peer->qp->qp_num,
		.rq_psn = peer->qp->qp_num & 0xfff,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 12,
	};
	bool rc = end->qp->qp_type == IB_QPT_RC;
	int mask = IB_QP_STATE;
	int ret;

	own_path(t, &attr.ah_attr);
	if (end->qp->qp_type != IB_QPT_UD)
		mask |= IB_QP_AV | IB_QP_PATH_MTU | IB_QP_DEST_QPN |
			IB_QP_RQ_PSN;
	if (rc)
		mask |= IB_QP_MAX_DEST_RD_ATOMIC | IB_QP_MIN_RNR_TIMER;
	ret = ib_modify_qp(end->qp, &attr, mask);
	if (ret)
		return FAIL(t, "modify to RTR: %d", ret);

	attr.qp_state = IB_QPS_RTS;
	attr.sq_psn = end->qp->qp_num & 0xfff;
	attr.timeout = 14;
	attr.retry_cnt = 7;
	attr.rnr_retry = 0;
	attr.max_rd_atomic = 4;
	mask = IB_QP_STATE | IB_QP_SQ_PSN;
	if (rc)
		mask |= IB_QP_TIMEOUT | IB_QP_RETRY_CNT | IB_QP_RNR_RETRY |
			IB_QP_MAX_QP_RD_ATOMIC;
	ret = ib_modify_qp(end->qp, &attr, mask);
	return ret ? FAIL(t, "modify to RTS: %d", ret) : 0;
}

static int to_state(struct test *t, struct end *end, enum ib_qp_state state)
{
	struct ib_qp_attr attr = { .qp_state = state };
	int ret = ib_modify_qp(end->qp, &attr, IB_QP_STATE);

	return ret ? FAIL(t, "modify to state %d: %d", state, ret) : 0;
}

static int expect_state(struct test *t, struct end *end,
			enum ib_qp_state state)
{
	struct ib_qp_init_attr init;
	struct ib_qp_attr attr;
	int ret = ib_query_qp(end->qp, &attr, IB_QP_STATE, &init);

	if (ret)
		return FAIL(t, "query QP: %d", ret);
	if (attr.qp_state != state)
		return FAIL(t, "QP in state %d, expected %d", attr.qp_state,
			    state);
	return 0;
}

/* Two connected ends, ready to send to each other through the own LID */
static int make_pair(struct test *t, enum ib_qp_type type)
{
	int ret;

	ret = make_end(t, &t->a, type);
	ret = ret ?: make_end(t, &t->b, type);
	ret = ret ?: to_init(t, &t->a);
	ret = ret ?: to_init(t, &t->b);
	ret = ret ?: to_rts(t, &t->a, &t->b);
	return ret ?: to_rts(t, &t->b, &t->a);
}

static void destroy_pair(struct test *t)
{
	if (t->a.qp)
		ib_destroy_qp(t->a.qp);
	if (t->b.qp)
		ib_destroy_qp(t->b.qp);
	t->a.qp = NULL;
	t->b.qp = NULL;
}

static u64 send_dma(struct test *t, u32 n)
{
	return t->dma + (u64)(n % DEPTH) * MSG_SIZE;
}

static u64 recv_dma(struct test *t, u32 n)
{
	return t->dma + (u64)(DEPTH + n % DEPTH) * MSG_SIZE;
}

static u8 *send_buf(struct test *t, u32 n)
{
	return t->buf + (size_t)(n % DEPTH) * MSG_SIZE;
}

static u8 *recv_buf(struct test *t, u32 n)
{
	return t->buf + (size_t)(DEPTH + n % DEPTH) * MSG_SIZE;
}

static void fill(u8 *p, u32 len, u32 seed)
{
	u32 i;

	for (i = 0; i < len; i++)
		p[i] = seed * 31 + i * 7 + (i >> 8);
}

static int check(struct test *t, const u8 *p, u32 len, u32 seed)
{
	u32 i;

	for (i = 0; i < len; i++) {
		u8 want = seed * 31 + i * 7 + (i >> 8);

		if (p[i] != want)
			return FAIL(t, "message %u: byte %u of %u is %#x, expected %#x",
				    seed, i, len, p[i], want);
	}
	return 0;
}

static int post_recv(struct test *t, struct end *end, u32 n, u32 len)
{
	struct ib_sge sge = {
		.addr = recv_dma(t, n),
		.length = len,
		.lkey = t->pd->local_dma_lkey,
	};
	struct ib_recv_wr wr = {
		.wr_id = ID_RECV | n,
		.sg_list = &sge,
		.num_sge = 1,
	};
	int ret = ib_post_recv(end->qp, &wr, NULL);

	return ret ? FAIL(t, "post receive %u: %d", n, ret) : 0;
}

static int post_send(struct test *t, struct end *end, u32 n, u32 len,
		     bool signaled, u32 lkey)
{
	struct ib_sge sge = {
		.addr = send_dma(t, n),
		.length = len,
		.lkey = lkey,
	};
	struct ib_send_wr wr = {
		.wr_id = ID_SEND | n,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IB_WR_SEND_WITH_IMM,
		.send_flags = signaled ? IB_SEND_SIGNALED : 0,
		.ex.imm_data = cpu_to_be32(n),
	};
	int ret = ib_post_send(end->qp, &wr, NULL);

	return ret ? FAIL(t, "post send %u: %d", n, ret) : 0;
}

static int post_ud(struct test *t, struct end *end, struct ib_ah *ah,
		   u32 qpn, u32 n, u32 len, u32 lkey)
{
	struct ib_sge sge = {
		.addr = send_dma(t, n),
		.length = len,
		.lkey = lkey,
	};
	struct ib_ud_wr wr = {
		.wr = {
			.wr_id = ID_SEND | n,
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = IB_WR_SEND,
			.send_flags = IB_SEND_SIGNALED,
		},
		.ah = ah,
		.remote_qpn = qpn,
		.remote_qkey = QKEY,
	};
	int ret = ib_post_send(end->qp, &wr.wr, NULL);

	return ret ? FAIL(t, "post UD send %u: %d", n, ret) : 0;
}

/* One completion within POLL_MS */
static int poll_one(struct test *t, struct ib_wc *wc)
{
	unsigned long end = jiffies + msecs_to_jiffies(POLL_MS);
	int n;

	do {
		n = ib_poll_cq(t->cq, 1, wc);
		if (n == 1)
			return 0;
		if (n < 0)
			return FAIL(t, "poll: %d", n);
		usleep_range(20, 100);
	} while (time_before(jiffies, end));
	return FAIL(t, "no completion in %u ms", POLL_MS);
}

static int poll_none(struct test *t)
{
	struct ib_wc wc;
	int n;

	msleep(20);
	n = ib_poll_cq(t->cq, 1, &wc);
	if (n)
		return FAIL(t, "stray completion %#llx, status %d", wc.wr_id,
			    wc.status);
	return 0;
}

static int poll_for(struct test *t, u64 id, enum ib_wc_status status)
{
	struct ib_wc wc;
	int ret = poll_one(t, &wc);

	if (ret)
		return ret;
	if (wc.wr_id != id || wc.status != status)
		return FAIL(t, "completion %#llx %s, expected %#llx %s",
			    wc.wr_id, ib_wc_status_msg(wc.status), id,
			    ib_wc_status_msg(status));
	return 0;
}

/*
 * @sends and @recvs completions in order within each queue, all flushed but
 * for the first send if @first is another status.
 */
static int poll_flushed(struct test *t, u32 send0, u32 sends, u32 recv0,
			u32 recvs, enum ib_wc_status first)
{
	u32 s = send0, r = recv0;
	struct ib_wc wc;
	int ret;

	while (s < send0 + sends || r < recv0 + recvs) {
		enum ib_wc_status want = IB_WC_WR_FLUSH_ERR;

		ret = poll_one(t, &wc);
		if (ret)
			return FAIL(t, "flushed %u of %u sends, %u of %u receives, then nothing",
				    s - send0, sends, r - recv0, recvs);
		if (s < send0 + sends && wc.wr_id == (ID_SEND | s)) {
			if (s == send0)
				want = first;
			s++;
		} else if (r < recv0 + recvs && wc.wr_id == (ID_RECV | r)) {
			r++;
		} else {
			return FAIL(t, "completion %#llx out of order", wc.wr_id);
		}
		if (wc.status != want)
			return FAIL(t, "completion %#llx %s, expected %s",
				    wc.wr_id, ib_wc_status_msg(wc.status),
				    ib_wc_status_msg(want));
	}
	return poll_none(t);
}

/* ------------------------------------------------------------------ */
/* Tests                                                              */
/* ------------------------------------------------------------------ */

static int test_flush_init(struct test *t)
{
	int ret = make_end(t, &t->a, IB_QPT_RC);
	u32 i;

	ret = ret ?: to_init(t, &t->a);
	for (i = 0; i < 10 && !ret; i++)
		ret = post_recv(t, &t->a, i, 64);
	ret = ret ?: to_state(t, &t->a, IB_QPS_ERR);
	ret = ret ?: poll_flushed(t, 0, 0, 0, 10, IB_WC_WR_FLUSH_ERR);
	/* posted in ERR: flushed as well, send and receive */
	for (i = 10; i < 15 && !ret; i++)
		ret = post_recv(t, &t->a, i, 64);
	for (i = 0; i < 5 && !ret; i++)
		ret = post_send(t, &t->a, i, 64, i & 1,
				t->pd->local_dma_lkey);
	return ret ?: poll_flushed(t, 0, 5, 10, 5, IB_WC_WR_FLUSH_ERR);
}

static int test_reset(struct test *t)
{
	int ret = make_end(t, &t->a, IB_QPT_RC);
	u32 i;

	ret = ret ?: to_init(t, &t->a);
	for (i = 0; i < 10 && !ret; i++)
		ret = post_recv(t, &t->a, i, 64);
	/* RESET: all forgotten, no completion (IBTA 10.3.1) */
	ret = ret ?: to_state(t, &t->a, IB_QPS_RESET);
	ret = ret ?: poll_none(t);
	if (!ret && !post_recv(t, &t->a, 0, 64))
		return FAIL(t, "receive accepted in RESET");
	ret = ret ?: to_init(t, &t->a);
	for (i = 0; i < 3 && !ret; i++)
		ret = post_recv(t, &t->a, i, 64);
	ret = ret ?: to_state(t, &t->a, IB_QPS_ERR);
	return ret ?: poll_flushed(t, 0, 0, 0, 3, IB_WC_WR_FLUSH_ERR);
}

static int test_full_queue(struct test *t)
{
	int ret = make_end(t, &t->a, IB_QPT_RC);
	struct ib_qp_init_attr init;
	struct ib_qp_attr attr;
	struct ib_recv_wr wr = {};
	u32 i, n;

	ret = ret ?: ib_query_qp(t->a.qp, &attr, IB_QP_CAP, &init);
	ret = ret ?: to_init(t, &t->a);
	if (ret)
		return ret;
	n = init.cap.max_recv_wr;
	if (n < DEPTH || n > t->cq->cqe)
		return FAIL(t, "queue of %u where %u were asked for, CQ %d", n,
			    DEPTH, t->cq->cqe);
	for (i = 0; i < n && !ret; i++) {
		wr.wr_id = ID_RECV | i;
		ret = ib_post_recv(t->a.qp, &wr, NULL);
	}
	if (ret)
		return FAIL(t, "receive %u of %u refused: %d", i, n, ret);
	if (!ib_post_recv(t->a.qp, &wr, NULL))
		return FAIL(t, "receive accepted by a full queue");
	ret = to_state(t, &t->a, IB_QPS_ERR);
	return ret ?: poll_flushed(t, 0, 0, 0, n, IB_WC_WR_FLUSH_ERR);
}

/* A flushed request must wake a consumer that sleeps. */
static int test_flush_notify(struct test *t)
{
	int ret = make_end(t, &t->a, IB_QPT_RC);

	ret = ret ?: to_init(t, &t->a);
	ret = ret ?: post_recv(t, &t->a, 0, 64);
	reinit_completion(&t->notified);
	ib_req_notify_cq(t->cq, IB_CQ_NEXT_COMP);
	ret = ret ?: to_state(t, &t->a, IB_QPS_ERR);
	if (!ret && !wait_for_completion_timeout(&t->notified, 5 * HZ))
		return FAIL(t, "no notification of a flushed receive");
	ret = ret ?: poll_for(t, ID_RECV, IB_WC_WR_FLUSH_ERR);
	reinit_completion(&t->notified);
	ib_req_notify_cq(t->cq, IB_CQ_NEXT_COMP);
	ret = ret ?: post_send(t, &t->a, 0, 64, true, t->pd->local_dma_lkey);
	if (!ret && !wait_for_completion_timeout(&t->notified, 5 * HZ))
		return FAIL(t, "no notification of a send posted in ERR");
	return ret ?: poll_for(t, ID_SEND, IB_WC_WR_FLUSH_ERR);
}

/* ib_drain_qp() with the core's own CQ: hangs if a flush is lost. */
static int test_drain(struct test *t)
{
	struct ib_qp_init_attr init = {
		.cap = {
			.max_send_wr = 8, .max_recv_wr = 8,
			.max_send_sge = 1, .max_recv_sge = 1,
		},
		.qp_type = IB_QPT_RC,
	};
	struct ib_qp_attr attr = {
		.qp_state = IB_QPS_INIT, .port_num = port,
	};
	struct ib_cq *cq;
	struct ib_qp *qp;
	int ret;

	cq = ib_alloc_cq(t->ibdev, NULL, 32, 0, IB_POLL_SOFTIRQ);
	if (IS_ERR(cq))
		return FAIL(t, "alloc CQ: %ld", PTR_ERR(cq));
	init.send_cq = cq;
	init.recv_cq = cq;
	qp = ib_create_qp(t->pd, &init);
	if (IS_ERR(qp)) {
		ib_free_cq(cq);
		return FAIL(t, "create QP: %ld", PTR_ERR(qp));
	}
	ret = ib_modify_qp(qp, &attr, IB_QP_STATE | IB_QP_PKEY_INDEX |
			   IB_QP_PORT | IB_QP_ACCESS_FLAGS);
	if (!ret)
		ib_drain_qp(qp);
	ib_destroy_qp(qp);
	ib_free_cq(cq);
	return ret ? FAIL(t, "modify to INIT: %d", ret) : 0;
}

static int test_query(struct test *t)
{
	struct ib_qp_attr attr = {
		.qp_state = IB_QPS_INIT, .port_num = port,
	};
	struct ib_qp_init_attr init;
	int ret = make_end(t, &t->a, IB_QPT_RC);

	ret = ret ?: make_end(t, &t->b, IB_QPT_RC);
	ret = ret ?: to_init(t, &t->a);
	ret = ret ?: to_rts(t, &t->a, &t->b);
	if (ret)
		return ret;
	ret = ib_query_qp(t->a.qp, &attr, ~0, &init);
	if (ret)
		return FAIL(t, "query: %d", ret);
	if (attr.qp_state != IB_QPS_RTS || attr.port_num != port ||
	    attr.dest_qp_num != t->b.qp->qp_num || attr.retry_cnt != 7 ||
	    attr.timeout != 14 || attr.min_rnr_timer != 12 ||
	    attr.path_mtu != IB_MTU_1024 || attr.max_rd_atomic != 4 ||
	    attr.path_mig_state != IB_MIG_MIGRATED ||
	    rdma_ah_get_dlid(&attr.ah_attr) != (t->port_attr.lid ?: 1))
		return FAIL(t, "query: state %d port %u dest %#x retry %u timeout %u rnr %u mtu %d rd %u mig %d dlid %u",
			    attr.qp_state, attr.port_num, attr.dest_qp_num,
			    attr.retry_cnt, attr.timeout, attr.min_rnr_timer,
			    attr.path_mtu, attr.max_rd_atomic,
			    attr.path_mig_state,
			    rdma_ah_get_dlid(&attr.ah_attr));
	/* ARMED cannot be commanded; INIT cannot be reached from RTS */
	attr.path_mig_state = IB_MIG_ARMED;
	if (!ib_modify_qp(t->a.qp, &attr, IB_QP_PATH_MIG_STATE))
		return FAIL(t, "modify to ARMED was accepted");
	attr.qp_state = IB_QPS_INIT;
	if (!ib_modify_qp(t->a.qp, &attr, IB_QP_STATE))
		return FAIL(t, "RTS to INIT was accepted");
	return expect_state(t, &t->a, IB_QPS_RTS);
}

static int test_send_recv(struct test *t, enum ib_qp_type type)
{
	int ret = make_pair(t, type);
	u32 posted = 0, received = 0, sent = 0, last = 0;
	struct ib_wc wc;
	u32 i;

	for (i = 0; i < DEPTH / 2 && !ret; i++)
		ret = post_recv(t, &t->b, posted++, MSG_SIZE);
	/* every fourth send signalled */
	for (i = 0; i < DEPTH / 4 && !ret; i++) {
		fill(send_buf(t, sent), 1 + sent * 61 % MSG_SIZE, sent);
		ret = post_send(t, &t->a, sent, 1 + sent * 61 % MSG_SIZE,
				sent % 4 == 3, t->pd->local_dma_lkey);
		sent++;
	}
	while (!ret && received < rounds) {
		ret = poll_one(t, &wc);
		if (ret)
			return FAIL(t, "received %u of %u, sent %u, then nothing",
				    received, rounds, sent);
		if (wc.status)
			return FAIL(t, "completion %#llx: %s", wc.wr_id,
				    ib_wc_status_msg(wc.status));
		if ((wc.wr_id & ID_MASK) == ID_SEND) {
			u32 n = wc.wr_id;

			if (n % 4 != 3 || n != last + (last ? 4 : 3))
				return FAIL(t, "send %u completed after %u", n,
					    last);
			last = n;
			continue;
		}
		if (wc.wr_id != (ID_RECV | received) ||
		    be32_to_cpu(wc.ex.imm_data) != received ||
		    !(wc.wc_flags & IB_WC_WITH_IMM) ||
		    wc.byte_len != 1 + received * 61 % MSG_SIZE)
			return FAIL(t, "receive %u: id %#llx imm %u length %u",
				    received, wc.wr_id,
				    be32_to_cpu(wc.ex.imm_data), wc.byte_len);
		ret = check(t, recv_buf(t, received), wc.byte_len, received);
		received++;
		if (!ret && posted < rounds)
			ret = post_recv(t, &t->b, posted++, MSG_SIZE);
		if (!ret && sent < rounds && sent < received + DEPTH / 4) {
			u32 len = 1 + sent * 61 % MSG_SIZE;

			fill(send_buf(t, sent), len, sent);
			ret = post_send(t, &t->a, sent, len, sent % 4 == 3,
					t->pd->local_dma_lkey);
			sent++;
		}
	}
	return ret;
}

static int test_rc_send(struct test *t)
{
	return test_send_recv(t, IB_QPT_RC);
}

static int test_uc_send(struct test *t)
{
	return test_send_recv(t, IB_QPT_UC);
}

static int post_rdma(struct test *t, struct end *end, enum ib_wr_opcode op,
		     u64 local, u32 len, u64 remote, u32 rkey, u64 id)
{
	struct ib_sge sge = {
		.addr = local,
		.length = len,
		.lkey = t->pd->local_dma_lkey,
	};
	struct ib_rdma_wr wr = {
		.wr = {
			.wr_id = id,
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = op,
			.send_flags = IB_SEND_SIGNALED,
		},
		.remote_addr = remote,
		.rkey = rkey,
	};
	int ret = ib_post_send(end->qp, &wr.wr, NULL);

	return ret ? FAIL(t, "post RDMA: %d", ret) : 0;
}

static int test_rdma(struct test *t)
{
	u32 rkey = t->pd->unsafe_global_rkey;
	u32 len = 3 * MSG_SIZE + 17;
	int ret = make_pair(t, IB_QPT_RC);

	fill(send_buf(t, 0), len, 1);
	memset(recv_buf(t, 0), 0, 2 * len);
	ret = ret ?: post_rdma(t, &t->a, IB_WR_RDMA_WRITE, send_dma(t, 0),
			       len, recv_dma(t, 0), rkey, ID_SEND | 1);
	ret = ret ?: poll_for(t, ID_SEND | 1, IB_WC_SUCCESS);
	ret = ret ?: check(t, recv_buf(t, 0), len, 1);
	/* read it back to another place, odd address */
	ret = ret ?: post_rdma(t, &t->b, IB_WR_RDMA_READ,
			       recv_dma(t, 8) + 3, len, recv_dma(t, 0), rkey,
			       ID_SEND | 2);
	ret = ret ?: poll_for(t, ID_SEND | 2, IB_WC_SUCCESS);
	return ret ?: check(t, recv_buf(t, 8) + 3, len, 1);
}

static int post_atomic(struct test *t, enum ib_wr_opcode op, u32 rkey,
		       u64 local, u64 remote, u64 compare_add, u64 swap)
{
	struct ib_sge sge = {
		.addr = local,
		.length = 8,
		.lkey = t->pd->local_dma_lkey,
	};
	struct ib_atomic_wr wr = {
		.wr = {
			.wr_id = ID_SEND,
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = op,
			.send_flags = IB_SEND_SIGNALED,
		},
		.remote_addr = remote,
		.compare_add = compare_add,
		.swap = swap,
		.rkey = rkey,
	};
	int ret = ib_post_send(t->a.qp, &wr.wr, NULL);

	ret = ret ? FAIL(t, "post atomic: %d", ret) : 0;
	return ret ?: poll_for(t, ID_SEND, IB_WC_SUCCESS);
}

/* The adapter works on big-endian memory, as the operands on the wire. */
static int atomics(struct test *t, u32 rkey)
{
	__be64 *target = (__be64 *)recv_buf(t, 0);
	__be64 *old = (__be64 *)recv_buf(t, 1);
	u64 from = recv_dma(t, 1), at = recv_dma(t, 0);
	int ret = make_pair(t, IB_QPT_RC);
	u64 a, b;

	*target = cpu_to_be64(1000);
	ret = ret ?: post_atomic(t, IB_WR_ATOMIC_FETCH_AND_ADD, rkey, from,
				 at, 234, 0);
	a = be64_to_cpu(*target);
	b = be64_to_cpu(*old);
	if (!ret && (a != 1234 || b != 1000))
		return FAIL(t, "fetch and add: memory %#llx, returned %#llx",
			    a, b);
	ret = ret ?: post_atomic(t, IB_WR_ATOMIC_CMP_AND_SWP, rkey, from, at,
				 1234, 77);
	a = be64_to_cpu(*target);
	if (!ret && a != 77)
		return FAIL(t, "compare and swap did not: %llu", a);
	ret = ret ?: post_atomic(t, IB_WR_ATOMIC_CMP_AND_SWP, rkey, from, at,
				 1234, 99);
	a = be64_to_cpu(*target);
	if (!ret && a != 77)
		return FAIL(t, "compare and swap did, unequal: %llu", a);
	return ret;
}

static int test_atomic(struct test *t)
{
	struct ib_mr *mr;
	int ret;

	/* the core's own key has no right to it */
	mr = t->ibdev->ops.get_dma_mr(t->pd, IB_ACCESS_LOCAL_WRITE |
				      IB_ACCESS_REMOTE_ATOMIC);
	if (IS_ERR(mr))
		return FAIL(t, "get DMA MR: %ld", PTR_ERR(mr));
	mr->device = t->ibdev;
	ret = atomics(t, mr->rkey);
	t->ibdev->ops.dereg_mr(mr, NULL);
	return ret;
}

/* Wrong rkey: remote access error, the rest flushed, both ends in ERR */
static int test_remote_access(struct test *t)
{
	int ret = make_pair(t, IB_QPT_RC);
	u32 i;

	for (i = 0; i < 4 && !ret; i++)
		ret = post_recv(t, &t->a, i, 64);
	reinit_completion(&t->b.event);
	ret = ret ?: post_rdma(t, &t->a, IB_WR_RDMA_WRITE, send_dma(t, 0), 64,
			       recv_dma(t, 0), t->pd->unsafe_global_rkey ^
			       0x55aa55, ID_SEND);
	for (i = 1; i < 4 && !ret; i++)
		ret = post_send(t, &t->a, i, 64, i & 1,
				t->pd->local_dma_lkey);
	ret = ret ?: poll_flushed(t, 0, 4, 0, 4, IB_WC_REM_ACCESS_ERR);
	ret = ret ?: expect_state(t, &t->a, IB_QPS_ERR);
	ret = ret ?: expect_state(t, &t->b, IB_QPS_ERR);
	return ret;
}

/*
 * The responder fails without a completion of its own: its posted receives
 * must be flushed all the same, on the QP error event.
 */
static int test_responder_flush(struct test *t)
{
	int ret = make_pair(t, IB_QPT_RC);
	u32 i;

	for (i = 0; i < 4 && !ret; i++)
		ret = post_recv(t, &t->b, i, 64);
	ret = ret ?: post_rdma(t, &t->a, IB_WR_RDMA_WRITE, send_dma(t, 0), 64,
			       recv_dma(t, 0), t->pd->unsafe_global_rkey ^
			       0x55aa55, ID_SEND);
	return ret ?: poll_flushed(t, 0, 1, 0, 4, IB_WC_REM_ACCESS_ERR);
}

/* No receive at the peer, RNR retry 0 */
static int test_rnr(struct test *t)
{
	int ret = make_pair(t, IB_QPT_RC);
	u32 i;

	for (i = 0; i < 3 && !ret; i++)
		ret = post_send(t, &t->a, i, 64, true,
				t->pd->local_dma_lkey);
	return ret ?: poll_flushed(t, 0, 3, 0, 0, IB_WC_RNR_RETRY_EXC_ERR);
}

static int test_local_prot(struct test *t)
{
	int ret = make_pair(t, IB_QPT_RC);

	ret = ret ?: post_recv(t, &t->b, 0, 64);
	ret = ret ?: post_send(t, &t->a, 0, 64, false,
			       t->pd->local_dma_lkey ^ 0x55aa55);
	ret = ret ?: post_send(t, &t->a, 1, 64, false,
			       t->pd->local_dma_lkey);
	ret = ret ?: poll_flushed(t, 0, 2, 0, 0, IB_WC_LOC_PROT_ERR);
	return ret ?: expect_state(t, &t->a, IB_QPS_ERR);
}

/* Peer gone: retries used up (retry count 7, timeout 14: about 0.5 s) */
static int test_retry_exceeded(struct test *t)
{
	int ret = make_pair(t, IB_QPT_RC);

	ret = ret ?: to_state(t, &t->b, IB_QPS_RESET);
	ret = ret ?: post_send(t, &t->a, 0, 64, true,
			       t->pd->local_dma_lkey);
	ret = ret ?: post_send(t, &t->a, 1, 64, true,
			       t->pd->local_dma_lkey);
	return ret ?: poll_flushed(t, 0, 2, 0, 0, IB_WC_RETRY_EXC_ERR);
}

/* Event-driven: each send is posted when the CQ told of the one before. */
static int test_notify(struct test *t)
{
	int ret = make_pair(t, IB_QPT_RC);
	struct ib_wc wc;
	u32 done = 0, i;

	for (i = 0; i < rounds && !ret; i++) {
		reinit_completion(&t->notified);
		ret = post_recv(t, &t->b, i, 64);
		ib_req_notify_cq(t->cq, IB_CQ_NEXT_COMP);
		ret = ret ?: post_send(t, &t->a, i, 64, i % 16 == 15,
				       t->pd->local_dma_lkey);
		if (!ret && !wait_for_completion_timeout(&t->notified, 5 * HZ))
			return FAIL(t, "no notification in round %u", i);
		if (i % 16 == 15)
			usleep_range(500, 1000);
		while (!ret && ib_poll_cq(t->cq, 1, &wc) == 1) {
			if (!wc.status && wc.wr_id == (ID_SEND | i))
				continue;
			if (wc.status || wc.wr_id != (ID_RECV | done))
				return FAIL(t, "round %u: %#llx %s", i,
					    wc.wr_id,
					    ib_wc_status_msg(wc.status));
			done++;
		}
	}
	if (!ret && done != rounds)
		return FAIL(t, "%u notified, %u received", rounds, done);
	return ret;
}

/* Solicited arming: no notification for an ordinary message */
static int test_solicited(struct test *t)
{
	int ret = make_pair(t, IB_QPT_RC);
	struct ib_sge sge = {
		.addr = send_dma(t, 0),
		.length = 8,
		.lkey = t->pd->local_dma_lkey,
	};
	struct ib_send_wr wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = IB_WR_SEND,
		.send_flags = IB_SEND_SOLICITED,
	};

	ret = ret ?: post_recv(t, &t->b, 0, 64);
	ret = ret ?: post_recv(t, &t->b, 1, 64);
	reinit_completion(&t->notified);
	ib_req_notify_cq(t->cq, IB_CQ_SOLICITED);
	ret = ret ?: post_send(t, &t->a, 0, 8, false, t->pd->local_dma_lkey);
	ret = ret ?: poll_for(t, ID_RECV, IB_WC_SUCCESS);
	msleep(50);
	if (!ret && try_wait_for_completion(&t->notified))
		return FAIL(t, "notified of an unsolicited message");
	if (!ret && ib_post_send(t->a.qp, &wr, NULL))
		return FAIL(t, "post solicited send");
	if (!ret && !wait_for_completion_timeout(&t->notified, 5 * HZ))
		return FAIL(t, "not notified of a solicited message");
	return ret ?: poll_for(t, ID_RECV | 1, IB_WC_SUCCESS);
}

static int ud_receive(struct test *t, u32 recv, u32 msg, u32 len)
{
	struct ib_wc wc;
	int ret, seen = 0;

	while (seen != 3) {
		ret = poll_one(t, &wc);
		if (ret)
			return ret;
		if (wc.status)
			return FAIL(t, "%#llx: %s", wc.wr_id,
				    ib_wc_status_msg(wc.status));
		if (wc.wr_id == (ID_SEND | msg)) {
			seen |= 1;
		} else if (wc.wr_id == (ID_RECV | recv)) {
			seen |= 2;
			if (wc.byte_len != len + 40 ||
			    wc.src_qp != t->a.qp->qp_num ||
			    wc.slid != t->port_attr.lid)
				return FAIL(t, "length %u from %#x LID %u",
					    wc.byte_len, wc.src_qp, wc.slid);
		} else {
			return FAIL(t, "unexpected %#llx", wc.wr_id);
		}
	}
	return check(t, recv_buf(t, recv) + 40, len, msg);
}

/* UD: good message; bad lkey puts the send queue into SQE; recovery */
static int test_ud_sqe(struct test *t)
{
	struct ib_qp_attr attr = {
		.qp_state = IB_QPS_RTS, .cur_qp_state = IB_QPS_SQE,
	};
	struct rdma_ah_attr ah_attr;
	struct ib_ah *ah;
	u32 lkey = t->pd->local_dma_lkey;
	int ret = make_pair(t, IB_QPT_UD);
	u32 i, qpn;

	if (ret)
		return ret;
	qpn = t->b.qp->qp_num;
	own_path(t, &ah_attr);
	ah = rdma_create_ah(t->pd, &ah_attr, 0);
	if (IS_ERR(ah))
		return FAIL(t, "create AH: %ld", PTR_ERR(ah));
	for (i = 0; i < 8 && !ret; i++)
		ret = post_recv(t, &t->b, i, 1024);
	fill(send_buf(t, 0), 256, 0);
	ret = ret ?: post_ud(t, &t->a, ah, qpn, 0, 256, lkey);
	ret = ret ?: ud_receive(t, 0, 0, 256);

	ret = ret ?: post_ud(t, &t->a, ah, qpn, 1, 64, lkey ^ 0x55aa55);
	for (i = 2; i < 5 && !ret; i++)
		ret = post_ud(t, &t->a, ah, qpn, i, 64, lkey);
	ret = ret ?: poll_flushed(t, 1, 4, 0, 0, IB_WC_LOC_PROT_ERR);
	ret = ret ?: expect_state(t, &t->a, IB_QPS_SQE);
	if (!ret) {
		ret = ib_modify_qp(t->a.qp, &attr,
				   IB_QP_STATE | IB_QP_CUR_STATE);
		if (ret)
			ret = FAIL(t, "SQE to RTS: %d", ret);
	}
	for (i = 5; i < 8 && !ret; i++) {
		fill(send_buf(t, i), 300, i);
		ret = post_ud(t, &t->a, ah, qpn, i, 300, lkey);
		ret = ret ?: ud_receive(t, i - 4, i, 300);
	}
	/* again, with requests posted in SQE and nothing polled before */
	ret = ret ?: post_ud(t, &t->a, ah, qpn, 8, 64, lkey ^ 0x55aa55);
	msleep(20);
	for (i = 9; i < 12 && !ret; i++)
		ret = post_ud(t, &t->a, ah, qpn, i, 64, lkey);
	ret = ret ?: expect_state(t, &t->a, IB_QPS_SQE);
	if (!ret) {
		ret = ib_modify_qp(t->a.qp, &attr,
				   IB_QP_STATE | IB_QP_CUR_STATE);
		if (ret)
			ret = FAIL(t, "second SQE to RTS: %d", ret);
	}
	fill(send_buf(t, 12), 300, 12);
	ret = ret ?: post_ud(t, &t->a, ah, qpn, 12, 300, lkey);
	ret = ret ?: poll_for(t, ID_SEND | 8, IB_WC_LOC_PROT_ERR);
	for (i = 9; i < 12 && !ret; i++)
		ret = poll_for(t, ID_SEND | i, IB_WC_WR_FLUSH_ERR);
	ret = ret ?: ud_receive(t, 4, 12, 300);
	rdma_destroy_ah(ah, 0);
	return ret;
}

/* SQD: drained event when asked for, sending goes on after RTS */
static int test_sqd(struct test *t)
{
	struct ib_qp_attr attr = {
		.qp_state = IB_QPS_SQD, .en_sqd_async_notify = 1,
	};
	int ret = make_pair(t, IB_QPT_RC);

	ret = ret ?: post_recv(t, &t->b, 0, 64);
	if (!ret && ib_modify_qp(t->a.qp, &attr, IB_QP_STATE |
				 IB_QP_EN_SQD_ASYNC_NOTIFY))
		return FAIL(t, "modify to SQD");
	if (!ret && !wait_for_completion_timeout(&t->a.event, 5 * HZ))
		return FAIL(t, "no event");
	if (!ret && atomic_read(&t->a.events[IB_EVENT_SQ_DRAINED]) != 1)
		return FAIL(t, "another event than SQ_DRAINED");
	ret = ret ?: post_send(t, &t->a, 0, 64, false,
			       t->pd->local_dma_lkey);
	ret = ret ?: poll_none(t);
	ret = ret ?: to_state(t, &t->a, IB_QPS_RTS);
	return ret ?: poll_for(t, ID_RECV, IB_WC_SUCCESS);
}

/* Destroy with completions in the CQ: none of them may show up later. */
static int test_destroy(struct test *t)
{
	int ret = make_pair(t, IB_QPT_RC);
	u32 i;

	for (i = 0; i < 8 && !ret; i++) {
		ret = post_recv(t, &t->b, i, 64);
		ret = ret ?: post_send(t, &t->a, i, 64, true,
				       t->pd->local_dma_lkey);
	}
	msleep(100);
	if (ret)
		return ret;
	destroy_pair(t);
	ret = poll_none(t);
	return ret ?: test_rc_send(t);
}

static int poller(void *arg)
{
	struct ib_cq *cq = arg;
	struct ib_wc wc;

	while (!kthread_should_stop()) {
		ib_poll_cq(cq, 1, &wc);
		cond_resched();
	}
	return 0;
}

/* The message does not fit: an error completion of b's receive */
static int send_too_long(struct test *t, u32 n)
{
	int ret = post_recv(t, &t->b, n, 16);

	return ret ?: post_send(t, &t->a, n, 64, true,
				t->pd->local_dma_lkey);
}

static int race_round(struct test *t)
{
	int ret = make_pair(t, IB_QPT_RC);

	ret = ret ?: send_too_long(t, 0);
	ret = ret ?: to_state(t, &t->b, IB_QPS_RESET);
	ret = ret ?: to_state(t, &t->a, IB_QPS_RESET);
	/* Nothing of before is left: b's send is sent, not flushed. */
	ret = ret ?: to_init(t, &t->a);
	ret = ret ?: to_init(t, &t->b);
	ret = ret ?: to_rts(t, &t->a, &t->b);
	ret = ret ?: to_rts(t, &t->b, &t->a);
	ret = ret ?: post_recv(t, &t->a, 1, 64);
	ret = ret ?: post_send(t, &t->b, 1, 64, false,
			       t->pd->local_dma_lkey);
	ret = ret ?: poll_for(t, ID_RECV | 1, IB_WC_SUCCESS);
	ret = ret ?: send_too_long(t, 2);
	destroy_pair(t);
	return ret;
}

/*
 * RESET and destroy while another CPU polls the error completion of the
 * receive queue, which puts the send queue of the other CQ into error too.
 */
static int test_race(struct test *t)
{
	struct task_struct *task;
	int ret = 0;
	u32 i;

	t->b.recv_cq = ib_create_cq(t->ibdev, NULL, NULL, NULL,
				    &(struct ib_cq_init_attr){ .cqe = DEPTH });
	if (IS_ERR(t->b.recv_cq)) {
		ret = FAIL(t, "create CQ: %ld", PTR_ERR(t->b.recv_cq));
		goto out;
	}
	task = kthread_run(poller, t->b.recv_cq, "ehca_selftest");
	if (IS_ERR(task)) {
		ret = FAIL(t, "create thread: %ld", PTR_ERR(task));
		goto out_cq;
	}
	for (i = 0; i < rounds && !ret; i++)
		ret = race_round(t);
	kthread_stop(task);
out_cq:
	ib_destroy_cq(t->b.recv_cq);
out:
	t->b.recv_cq = NULL;
	return ret;
}

static void on_srq_event(struct ib_event *ev, void *context)
{
	struct test *t = context;

	if (ev->event == IB_EVENT_SRQ_LIMIT_REACHED)
		complete(&t->notified);
}

static int post_srq(struct test *t, u32 n)
{
	struct ib_sge sge = {
		.addr = recv_dma(t, n),
		.length = 64,
		.lkey = t->pd->local_dma_lkey,
	};
	struct ib_recv_wr wr = {
		.wr_id = ID_RECV | n,
		.sg_list = &sge,
		.num_sge = 1,
	};
	int ret = ib_post_srq_recv(t->srq, &wr, NULL);

	return ret ? FAIL(t, "post SRQ receive %u: %d", n, ret) : 0;
}

/* Both ends of a connection receive from one SRQ. */
static int srq_pair(struct test *t)
{
	struct ib_srq_attr attr = { .srq_limit = 3 };
	int ret = make_pair(t, IB_QPT_RC);
	u32 i, rounds_left = 40, n = 0;

	for (i = 0; i < 6 && !ret; i++)
		ret = post_srq(t, i);
	/* more messages than the SRQ has slots, from both sides */
	for (; rounds_left && !ret; rounds_left--, n++) {
		struct end *from = n & 1 ? &t->b : &t->a;
		struct end *to = n & 1 ? &t->a : &t->b;
		struct ib_wc wc;

		fill(send_buf(t, n), 64, n);
		ret = post_send(t, from, n, 64, false,
				t->pd->local_dma_lkey);
		ret = ret ?: poll_one(t, &wc);
		if (!ret && (wc.status || wc.wr_id != (ID_RECV | n) ||
			     wc.qp != to->qp))
			return FAIL(t, "message %u: %#llx %s on QP %#x", n,
				    wc.wr_id, ib_wc_status_msg(wc.status),
				    wc.qp->qp_num);
		ret = ret ?: check(t, recv_buf(t, n), 64, n);
		ret = ret ?: post_srq(t, n + 6);
	}
	if (ret)
		return ret;
	/* six are posted: the limit of 3 is reached when 2 are left */
	reinit_completion(&t->notified);
	ret = ib_modify_srq(t->srq, &attr, IB_SRQ_LIMIT);
	if (ret)
		return FAIL(t, "modify SRQ: %d", ret);
	for (i = 0; i < 4 && !ret; i++, n++) {
		if (try_wait_for_completion(&t->notified))
			return FAIL(t, "SRQ limit event too early");
		ret = post_send(t, &t->a, n, 64, false,
				t->pd->local_dma_lkey);
		ret = ret ?: poll_for(t, ID_RECV | n, IB_WC_SUCCESS);
	}
	if (!ret && !wait_for_completion_timeout(&t->notified, 5 * HZ))
		return FAIL(t, "no SRQ limit event");
	ret = ret ?: post_send(t, &t->b, n, 64, false,
			       t->pd->local_dma_lkey);
	ret = ret ?: poll_for(t, ID_RECV | n, IB_WC_SUCCESS);
	/* the consumer waits for this before it destroys the QP */
	reinit_completion(&t->b.event);
	ret = ret ?: to_state(t, &t->b, IB_QPS_ERR);
	if (!ret && !wait_for_completion_timeout(&t->b.event, 5 * HZ))
		return FAIL(t, "no event after ERR");
	if (!ret &&
	    (!atomic_read(&t->b.events[IB_EVENT_QP_LAST_WQE_REACHED]) ||
	     atomic_read(&t->b.events[IB_EVENT_QP_FATAL])))
		return FAIL(t, "another event than last WQE reached");
	return ret;
}

static int test_srq(struct test *t)
{
	struct ib_srq_init_attr init = {
		.event_handler = on_srq_event,
		.srq_context = t,
		.attr = { .max_wr = 8, .max_sge = 1 },
		.srq_type = IB_SRQT_BASIC,
	};
	int ret;

	t->srq = ib_create_srq(t->pd, &init);
	if (IS_ERR(t->srq)) {
		ret = FAIL(t, "create SRQ: %ld", PTR_ERR(t->srq));
		t->srq = NULL;
		return ret;
	}
	ret = srq_pair(t);
	destroy_pair(t);
	ib_destroy_srq(t->srq);
	t->srq = NULL;
	return ret;
}

static const struct {
	const char *name;
	int (*run)(struct test *t);
	bool loopback;
} tests[] = {
	{ "receives flushed by ERR", test_flush_init },
	{ "RESET forgets", test_reset },
	{ "full queue", test_full_queue },
	{ "flushing notifies", test_flush_notify },
	{ "drain", test_drain },
	{ "query and illegal modify", test_query },
	{ "RC send and receive", test_rc_send, true },
	{ "UC send and receive", test_uc_send, true },
	{ "RDMA write and read", test_rdma, true },
	{ "atomics", test_atomic, true },
	{ "remote access error", test_remote_access, true },
	{ "responder's receives flushed", test_responder_flush, true },
	{ "RNR retries exceeded", test_rnr, true },
	{ "local protection error", test_local_prot, true },
	{ "retries exceeded", test_retry_exceeded, true },
	{ "notification", test_notify, true },
	{ "solicited notification", test_solicited, true },
	{ "UD, SQE and recovery", test_ud_sqe, true },
	{ "SQD", test_sqd, true },
	{ "destroy with completions", test_destroy, true },
	{ "RESET and destroy while errors are polled", test_race, true },
	{ "shared receive queue", test_srq, true },
};

static void run(struct test *t, unsigned int i)
{
	int ret;

	t->why[0] = '\0';
	test_nr++;
	if (tests[i].loopback && t->port_attr.state != IB_PORT_ACTIVE) {
		pr_info("ehca_selftest: ok %d - %s # SKIP port %u is not Active\n",
			test_nr, tests[i].name, port);
		return;
	}
	t->cq = ib_create_cq(t->ibdev, on_comp, NULL, t,
			     &(struct ib_cq_init_attr){ .cqe = 8 * DEPTH });
	if (IS_ERR(t->cq)) {
		ret = FAIL(t, "create CQ: %ld", PTR_ERR(t->cq));
	} else {
		ret = tests[i].run(t);
		destroy_pair(t);
		ib_destroy_cq(t->cq);
	}
	if (ret) {
		failures++;
		pr_err("ehca_selftest: not ok %d - %s: %s\n", test_nr,
		       tests[i].name, t->why);
	} else {
		pr_info("ehca_selftest: ok %d - %s\n", test_nr, tests[i].name);
	}
}

static int __init selftest_init(void)
{
	size_t size = 2 * DEPTH * MSG_SIZE;
	struct test *t;
	unsigned int i;
	int ret = 0;

	t = kzalloc(sizeof(*t), GFP_KERNEL);
	if (!t)
		return -ENOMEM;
	init_completion(&t->notified);
	t->buf = kzalloc(size, GFP_KERNEL);
	t->ibdev = ib_device_get_by_name(device, RDMA_DRIVER_UNKNOWN);
	if (!t->buf || !t->ibdev) {
		pr_err("ehca_selftest: no device %s\n", device);
		ret = -ENODEV;
		goto out;
	}
	if (!rdma_is_port_valid(t->ibdev, port) ||
	    ib_query_port(t->ibdev, port, &t->port_attr)) {
		pr_err("ehca_selftest: %s has no port %u\n", device, port);
		ret = -ENODEV;
		goto out;
	}
	t->pd = ib_alloc_pd(t->ibdev, IB_PD_UNSAFE_GLOBAL_RKEY);
	if (IS_ERR(t->pd)) {
		ret = PTR_ERR(t->pd);
		goto out;
	}
	t->dma = ib_dma_map_single(t->ibdev, t->buf, size, DMA_BIDIRECTIONAL);
	pr_info("ehca_selftest: 1..%zu\n", ARRAY_SIZE(tests));
	for (i = 0; i < ARRAY_SIZE(tests); i++)
		run(t, i);
	ib_dma_unmap_single(t->ibdev, t->dma, size, DMA_BIDIRECTIONAL);
	ib_dealloc_pd(t->pd);
	pr_info("ehca_selftest: %d of %d failed\n", failures, test_nr);
out:
	if (t->ibdev)
		ib_device_put(t->ibdev);
	kfree(t->buf);
	kfree(t);
	return ret;
}

static void __exit selftest_exit(void)
{
}

module_init(selftest_init);
module_exit(selftest_exit);
MODULE_DESCRIPTION("Test of a verbs driver from inside the guest");
MODULE_LICENSE("GPL");
