// SPDX-License-Identifier: GPL-2.0
/*
 * apm_traffic data: numbered, hashed messages over one RC queue pair, their
 * checks, and the RDMA write benchmark.
 *
 * Theory of operation
 * - A message is a 64-byte header and a payload; the hash (xxh64) covers both.
 *   Sequence numbers run from 1 for the connection's life, each direction for
 *   itself.  RC promises each once and in order, so the receiver counts
 *   everything else: lost (gap), dup, reordered (a gap filled late), corrupt
 *   (hash), short (length).
 * - op=send: two-sided.  op=write: RDMA write with immediate into the peer's
 *   ring; slots are used again when the peer's header or CREDIT says it has
 *   read them.  op=read: RDMA read of the peer's pattern buffer, compared here.
 * - One sender thread; at most depth messages unacknowledged.
 * - Control messages (START, STOP, STOPPED, FINAL, CREDIT) use slots of their
 *   own.
 *
 * Stopping, the same on both sides; RC order makes it exact:
 *   STOP      asks the peer to stop (only the side that was told to)
 *   STOPPED   all own messages are acknowledged; carries the last number
 *   FINAL     sent after the peer's STOPPED, so everything has been looked at;
 *             carries what was received
 * A side is done when its FINAL is acknowledged and the peer's is here.  Then
 * nothing is outstanding and nothing will be sent.
 */
#include <linux/hrtimer.h>
#include <linux/slab.h>
#include <linux/xxhash.h>

#include "at.h"

#define AT_MAGIC		0x61706d74	/* "apmt" */
#define AT_WIRE_VERSION		1
#define AT_RING_BYTES		BIT(20)
#define AT_RING_SLOTS_MIN	2

enum at_kind {
	AT_DATA = 1,
	AT_START,
	AT_STOP,
	AT_STOPPED,
	AT_FINAL,
	AT_CREDIT,
};

struct at_wire {
	__le32 magic;
	__le16 version;
	__le16 kind;
	__le32 length;
	__le32 rate;			/* START */
	__le64 seq;			/* DATA */
	__le64 rx_seq;			/* what the sender has received */
	__le64 a;			/* START count, STOPPED tx, FINAL rx */
	__le64 b;			/* START op, FINAL sum of errors */
	__le64 hash;			/* of all, with this field 0 */
	__le64 pad;
};

static void at_stop_advance(struct at_conn *c);

/* ------------------------------------------------------------------ */
/* Payload */

static void at_fill(void *buf, u32 size, u64 seed)
{
	__le64 *p = buf;
	u32 i;

	for (i = 0; i < size / 8; i++)
		p[i] = cpu_to_le64((seed + i) * 0x9e3779b97f4a7c15ULL);
}

static bool at_pattern_ok(const void *buf, u32 size, u64 first_word)
{
	const __le64 *p = buf;
	u32 i;

	for (i = 0; i < size / 8; i++)
		if (p[i] != cpu_to_le64((first_word + i) *
					0x9e3779b97f4a7c15ULL))
			return false;
	return true;
}

/* One word per 64 bytes makes each message different at little cost. */
static void at_touch(void *buf, u32 size, u64 seq)
{
	__le64 *p = buf;
	u32 i;

	for (i = sizeof(struct at_wire) / 8; i + 8 <= size / 8; i += 8)
		p[i] = cpu_to_le64(seq * 0xd6e8feb86659fd93ULL + i);
}

static void at_seal(struct at_wire *w, u32 length)
{
	w->magic = cpu_to_le32(AT_MAGIC);
	w->version = cpu_to_le16(AT_WIRE_VERSION);
	w->length = cpu_to_le32(length);
	w->pad = 0;
	w->hash = 0;
	w->hash = cpu_to_le64(xxh64(w, length, AT_MAGIC));
}

static bool at_sealed(struct at_wire *w, u32 length)
{
	__le64 hash = w->hash;
	bool ok;

	if (w->magic != cpu_to_le32(AT_MAGIC) ||
	    w->version != cpu_to_le16(AT_WIRE_VERSION) ||
	    w->length != cpu_to_le32(length))
		return false;
	w->hash = 0;
	ok = xxh64(w, length, AT_MAGIC) == le64_to_cpu(hash);
	w->hash = hash;
	return ok;
}

/* ------------------------------------------------------------------ */
/* Errors */

static void at_conn_error(struct at_conn *c, const char *op, struct ib_wc *wc)
{
	struct at_msg *m;

	if (c->error_told || READ_ONCE(c->dead))
		return;
	c->error_told = true;
	c->dead = true;
	at_event("completion_error",
		 "\"qpn\":%u,\"op\":\"%s\",\"status\":%d,\"text\":\"%s\",\"vendor\":%u",
		 c->qp->qp_num, op, wc ? wc->status : -1,
		 wc ? ib_wc_status_msg(wc->status) : "post failed",
		 wc ? wc->vendor_err : 0);
	m = at_msg_new(AT_MSG_DATA_ERROR, c->gen, GFP_ATOMIC);
	if (m)
		at_control_post(m);
}

/* Under c->lock */
static void at_message_error(struct at_conn *c, const char *kind,
			     u64 expected, u64 got)
{
	if (c->error_lines >= AT_ERROR_LINES)
		return;
	c->error_lines++;
	at_event("message_error",
		 "\"qpn\":%u,\"kind\":\"%s\",\"expected\":%llu,\"got\":%llu",
		 c->qp->qp_num, kind, expected, got);
}

/* ------------------------------------------------------------------ */
/* Control messages, under c->lock */

static int at_ctl_send(struct at_conn *c, enum at_kind kind, u32 rate,
		       u64 a, u64 b)
{
	const struct ib_send_wr *bad;
	struct at_slot *slot = NULL;
	struct at_wire *w;
	struct ib_sge sge;
	struct ib_send_wr wr = {
		.opcode = IB_WR_SEND,
		.send_flags = IB_SEND_SIGNALED,
		.num_sge = 1,
	};
	unsigned int i;
	int ret;

	if (c->dead)
		return -EIO;
	for (i = 0; i < AT_CTL_SLOTS && !slot; i++)
		if (!c->ctl[i].busy)
			slot = &c->ctl[i];
	if (!slot)
		return -EBUSY;

	w = slot->buf;
	memset(w, 0, sizeof(*w));
	w->kind = cpu_to_le16(kind);
	w->rate = cpu_to_le32(rate);
	w->rx_seq = cpu_to_le64(c->n.rx_seq);
	w->a = cpu_to_le64(a);
	w->b = cpu_to_le64(b);
	at_seal(w, sizeof(*w));
	ib_dma_sync_single_for_device(c->dev, slot->dma, sizeof(*w),
				      DMA_TO_DEVICE);
	sge.addr = slot->dma;
	sge.length = sizeof(*w);
	sge.lkey = c->pd->local_dma_lkey;
	wr.sg_list = &sge;
	wr.wr_cqe = &slot->cqe;
	slot->kind = kind;
	slot->busy = true;
	c->inflight++;
	ret = ib_post_send(c->qp, &wr, &bad);
	if (ret) {
		slot->busy = false;
		c->inflight--;
		at_conn_error(c, "control", NULL);
	}
	return ret;
}

static void at_ctl_done(struct ib_cq *cq, struct ib_wc *wc)
{
	struct at_slot *slot = container_of(wc->wr_cqe, struct at_slot, cqe);
	struct at_conn *c = slot->c;

	spin_lock(&c->lock);
	slot->busy = false;
	c->inflight--;
	if (wc->status != IB_WC_SUCCESS) {
		if (wc->status != IB_WC_WR_FLUSH_ERR)
			at_conn_error(c, "control", wc);
	} else {
		if (slot->kind == AT_FINAL)
			c->stop.final_acked = true;
		at_stop_advance(c);
	}
	spin_unlock(&c->lock);
	wake_up(&c->wait);
}

static void at_run(struct at_conn *c, const struct at_traffic_params *p)
{
	c->rate = p->rate;
	c->op = p->op;
	c->tx_until = p->count ? c->n.tx_seq + p->count : 0;
	c->due_ns = ktime_get_ns();
	c->tx_on = true;
	wake_up(&c->wait);
}

static void at_started_event(struct at_conn *c,
			     const struct at_traffic_params *p, const char *by)
{
	static const char * const dirs[] = { "both", "out", "in" };
	static const char * const ops[] = { "send", "write", "read" };

	at_event("traffic_started",
		 "\"qpn\":%u,\"rate\":%u,\"dir\":\"%s\",\"op\":\"%s\",\"count\":%llu,\"by\":\"%s\"",
		 c->qp->qp_num, p->rate, dirs[p->dir], ops[p->op], p->count,
		 by);
}

static u64 at_bad_sum(const struct at_counts *n)
{
	return n->lost + n->dup + n->reordered + n->corrupt + n->short_msgs;
}

static void at_want_stop(struct at_conn *c, const char *by, bool by_peer)
{
	if (c->stop.wanted)
		return;
	c->stop.wanted = true;
	c->stop.by_peer = by_peer;
	c->tx_on = false;
	c->counting = false;
	at_event("traffic_stopping", "\"qpn\":%u,\"by\":\"%s\"",
		 c->qp->qp_num, by);
	at_stop_advance(c);
}

static void at_stop_advance(struct at_conn *c)
{
	struct at_stop *s = &c->stop;

	lockdep_assert_held(&c->lock);
	if (!s->wanted)
		return;
	if (!s->stop_sent) {
		if (!s->by_peer && at_ctl_send(c, AT_STOP, 0, 0, 0))
			return;
		s->stop_sent = true;
	}
	if (!s->stopped_sent && !c->tx_out) {
		if (at_ctl_send(c, AT_STOPPED, 0, c->n.tx_seq, 0))
			return;
		s->stopped_sent = true;
	}
	if (!s->final_sent && s->stopped_sent && s->peer_stopped) {
		/* A tail that never came is lost too: the peer's last is known. */
		if (s->peer_tx > c->n.rx_seq) {
			c->n.lost += s->peer_tx - c->n.rx_seq;
			at_message_error(c, "lost", s->peer_tx, c->n.rx_seq);
		}
		if (at_ctl_send(c, AT_FINAL, 0, c->n.rx_seq, at_bad_sum(&c->n)))
			return;
		s->final_sent = true;
	}
	if (!s->final_acked || !s->peer_final)
		return;

	at_event("traffic_stopped",
		 "\"qpn\":%u,\"tx\":%llu,\"acked\":%llu,\"rx\":%llu,\"reads\":%llu,\"peer_tx\":%llu,\"peer_rx\":%llu,\"lost\":%llu,\"dup\":%llu,\"reordered\":%llu,\"corrupt\":%llu,\"short\":%llu,\"peer_errors\":%llu,\"ok\":%d",
		 c->qp->qp_num, c->n.tx_seq, c->n.acked, c->n.rx, c->n.reads,
		 s->peer_tx, s->peer_rx, c->n.lost, c->n.dup, c->n.reordered,
		 c->n.corrupt, c->n.short_msgs, s->peer_bad,
		 c->n.acked == c->n.tx_seq && s->peer_rx == c->n.tx_seq &&
		 s->peer_tx == c->n.rx_seq && !at_bad_sum(&c->n) &&
		 !s->peer_bad);
	memset(s, 0, sizeof(*s));
	if (c->start_pending) {
		c->start_pending = false;
		at_started_event(c, &c->peer_ask, "peer");
		at_run(c, &c->peer_ask);
	}
}

/* The side that set a count ends the run when both directions have it. */
static void at_check_count(struct at_conn *c)
{
	if (c->counting && !c->tx_on && !c->tx_out &&
	    c->n.rx_seq >= c->rx_until)
		at_want_stop(c, "count", false);
}

/* ------------------------------------------------------------------ */
/* Sending */

static bool at_tx_ready(struct at_conn *c)
{
	if (!READ_ONCE(c->tx_on) || READ_ONCE(c->dead) ||
	    READ_ONCE(c->tx[c->tx_next].busy))
		return false;
	if (c->op == AT_OP_WRITE &&
	    c->n.tx_seq - READ_ONCE(c->n.peer_rx) >= c->peer_ring_slots)
		return false;
	return true;
}

static void at_tx_done(struct ib_cq *cq, struct ib_wc *wc)
{
	struct at_slot *slot = container_of(wc->wr_cqe, struct at_slot, cqe);
	struct at_conn *c = slot->c;
	u64 now = ktime_get_ns();

	if (wc->status == IB_WC_SUCCESS && slot->read) {
		u32 span = c->peer_len / c->size;
		u64 word = (slot->seq % span) * (c->size / 8);
		bool ok;

		ib_dma_sync_single_for_cpu(c->dev, slot->dma, c->size,
					   DMA_BIDIRECTIONAL);
		ok = at_pattern_ok(slot->buf, c->size, word);
		spin_lock(&c->lock);
		c->n.reads++;
		if (!ok) {
			c->n.corrupt++;
			at_message_error(c, "corrupt", slot->seq, slot->seq);
		}
		spin_unlock(&c->lock);
	}

	spin_lock(&c->lock);
	slot->busy = false;
	c->inflight--;
	c->tx_out--;
	if (wc->status != IB_WC_SUCCESS) {
		if (wc->status != IB_WC_WR_FLUSH_ERR)
			at_conn_error(c, slot->read ? "read" : "send", wc);
	} else {
		if (!slot->read)
			c->n.acked++;
		if (c->mig_tx) {
			c->mig_tx = false;
			at_event("first_ack_after_migration",
				 "\"qpn\":%u,\"tx_seq\":%llu,\"gap_ms\":%llu",
				 c->qp->qp_num, slot->seq,
				 (now - c->n.last_ack_ns) / NSEC_PER_MSEC);
		}
		c->n.last_ack_ns = now;
		at_check_count(c);
		at_stop_advance(c);
	}
	spin_unlock(&c->lock);
	wake_up(&c->wait);
}

/* Only the sender thread calls this; the slot is free. */
static void at_tx_one(struct at_conn *c)
{
	struct at_slot *slot = &c->tx[c->tx_next];
	const struct ib_send_wr *bad;
	struct at_wire *w = slot->buf;
	struct ib_rdma_wr wr = {
		.wr.opcode = IB_WR_SEND,
		.wr.send_flags = IB_SEND_SIGNALED,
		.wr.num_sge = 1,
	};
	enum at_op op = c->op;
	struct ib_sge sge;
	u64 seq = c->n.tx_seq + 1;

	slot->read = op == AT_OP_READ;
	if (op == AT_OP_READ) {
		u32 span = c->peer_len / c->size;

		slot->seq = c->n.reads + c->tx_out + 1;
		wr.wr.opcode = IB_WR_RDMA_READ;
		wr.remote_addr = c->peer_addr +
				 (slot->seq % span) * (c->size & ~7U);
		wr.rkey = c->peer_rkey;
	} else {
		slot->seq = seq;
		at_touch(w, c->size, seq);
		w->kind = cpu_to_le16(AT_DATA);
		w->rate = 0;
		w->seq = cpu_to_le64(seq);
		w->rx_seq = cpu_to_le64(READ_ONCE(c->n.rx_seq));
		w->a = 0;
		w->b = 0;
		at_seal(w, c->size);
	}
	if (op == AT_OP_WRITE) {
		wr.wr.opcode = IB_WR_RDMA_WRITE_WITH_IMM;
		wr.wr.ex.imm_data = cpu_to_be32((u32)seq);
		wr.remote_addr = c->peer_ring +
				 (seq % c->peer_ring_slots) * c->peer_size;
		wr.rkey = c->peer_rkey;
	}
	ib_dma_sync_single_for_device(c->dev, slot->dma, c->size,
				      DMA_BIDIRECTIONAL);
	sge.addr = slot->dma;
	sge.length = c->size;
	sge.lkey = c->pd->local_dma_lkey;
	wr.wr.sg_list = &sge;
	wr.wr.wr_cqe = &slot->cqe;

	spin_lock(&c->lock);
	if (!c->tx_on || c->dead)
		goto out;
	slot->busy = true;
	c->inflight++;
	c->tx_out++;
	if (ib_post_send(c->qp, &wr.wr, &bad)) {
		slot->busy = false;
		c->inflight--;
		c->tx_out--;
		at_conn_error(c, "post", NULL);
		goto out;
	}
	c->tx_next = (c->tx_next + 1) % c->depth;
	c->n.last_tx_ns = ktime_get_ns();
	if (op != AT_OP_READ) {
		c->n.tx_seq = seq;
		c->n.tx++;
		if (c->tx_until && seq >= c->tx_until)
			c->tx_on = false;
	}
out:
	spin_unlock(&c->lock);
}

static void at_sleep_until(u64 ns)
{
	ktime_t t = ns_to_ktime(ns);

	set_current_state(TASK_INTERRUPTIBLE);
	if (!kthread_should_stop())
		schedule_hrtimeout_range(&t, 50000, HRTIMER_MODE_ABS);
	__set_current_state(TASK_RUNNING);
}

static int at_sender(void *arg)
{
	struct at_conn *c = arg;

	while (!kthread_should_stop()) {
		u64 now;

		wait_event_interruptible(c->wait, kthread_should_stop() ||
					 at_tx_ready(c));
		if (kthread_should_stop())
			break;
		if (c->rate) {
			now = ktime_get_ns();
			if (now < c->due_ns) {
				at_sleep_until(c->due_ns);
				continue;
			}
			c->due_ns += NSEC_PER_SEC / c->rate;
			/* After a stall: no burst to catch up. */
			if (now > c->due_ns + NSEC_PER_SEC / 10)
				c->due_ns = now;
		}
		at_tx_one(c);
		cond_resched();
	}
	return 0;
}

/* ------------------------------------------------------------------ */
/* Receiving */

static int at_rx_post(struct at_conn *c, struct at_slot *slot)
{
	const struct ib_recv_wr *bad;
	struct ib_sge sge = {
		.addr = slot->dma,
		.length = c->size,
		.lkey = c->pd->local_dma_lkey,
	};
	struct ib_recv_wr wr = {
		.wr_cqe = &slot->cqe,
		.sg_list = &sge,
		.num_sge = 1,
	};

	ib_dma_sync_single_for_device(c->dev, slot->dma, c->size,
				      DMA_FROM_DEVICE);
	return ib_post_recv(c->qp, &wr, &bad);
}

/* The op of a run, asked for here or by the peer */
static bool at_op_possible(const struct at_conn *c,
			   const struct at_traffic_params *p)
{
	/* RDMA takes memory of the peer's; reads are not counted. */
	return p->op == AT_OP_SEND ||
	       (c->have_peer && (p->op != AT_OP_READ || !p->count));
}

/* Under c->lock */
static void at_rx_seq(struct at_conn *c, u64 seq)
{
	struct at_counts *n = &c->n;

	if (seq <= n->rx_seq && (n->rx_seq - seq >= AT_SEEN_WINDOW ||
				 test_bit(seq % AT_SEEN_WINDOW, c->seen))) {
		n->dup++;
		at_message_error(c, "dup", n->rx_seq + 1, seq);
		return;
	}
	if (seq == n->rx_seq + 1) {
		n->rx_seq = seq;
	} else if (seq > n->rx_seq) {
		u64 skip = seq - n->rx_seq - 1, i;

		at_message_error(c, "lost", n->rx_seq + 1, seq);
		n->lost += skip;
		for (i = 0; i < min_t(u64, skip, AT_SEEN_WINDOW); i++)
			clear_bit((seq - 1 - i) % AT_SEEN_WINDOW, c->seen);
		n->rx_seq = seq;
	} else {
		n->reordered++;
		if (n->lost)
			n->lost--;
		at_message_error(c, "reordered", n->rx_seq + 1, seq);
	}
	set_bit(seq % AT_SEEN_WINDOW, c->seen);
	n->rx++;
}

static void at_rx_data(struct at_conn *c, struct at_wire *w, bool write)
{
	u64 now = ktime_get_ns();
	u64 seq = le64_to_cpu(w->seq);

	at_rx_seq(c, seq);
	if (c->mig_rx) {
		c->mig_rx = false;
		at_event("first_message_after_migration",
			 "\"qpn\":%u,\"rx_seq\":%llu,\"gap_ms\":%llu",
			 c->qp->qp_num, seq,
			 (now - c->n.last_rx_ns) / NSEC_PER_MSEC);
	}
	c->n.last_rx_ns = now;
	at_check_count(c);
	/* With op=write the peer may use a slot again only when told. */
	if (write && c->n.rx_seq - c->credit_sent >= c->ring_slots / 2 &&
	    !at_ctl_send(c, AT_CREDIT, 0, 0, 0))
		c->credit_sent = c->n.rx_seq;
}

static void at_rx_ctl(struct at_conn *c, struct at_wire *w)
{
	struct at_traffic_params p = {};
	u64 b = le64_to_cpu(w->b);

	switch (le16_to_cpu(w->kind)) {
	case AT_START:
		p.rate = min_t(u32, le32_to_cpu(w->rate), AT_RATE_MAX);
		p.count = min_t(u64, le64_to_cpu(w->a), S64_MAX);
		p.op = (b & 0xff) <= AT_OP_READ ? b & 0xff : AT_OP_SEND;
		p.dir = AT_DIR_OUT;
		if (!at_op_possible(c, &p)) {
			c->n.corrupt++;
			at_message_error(c, "corrupt", AT_OP_SEND, p.op);
		} else if (c->stop.wanted) {
			c->peer_ask = p;
			c->start_pending = true;
		} else if (!c->tx_on) {
			at_started_event(c, &p, "peer");
			at_run(c, &p);
		}
		break;
	case AT_STOP:
		at_want_stop(c, "peer", true);
		break;
	case AT_STOPPED:
		/* Without a STOP before it: take it as one. */
		at_want_stop(c, "peer", true);
		c->stop.peer_stopped = true;
		c->stop.peer_tx = le64_to_cpu(w->a);
		at_stop_advance(c);
		break;
	case AT_FINAL:
		if (!c->stop.wanted)
			break;
		c->stop.peer_final = true;
		c->stop.peer_rx = le64_to_cpu(w->a);
		c->stop.peer_bad = b;
		at_stop_advance(c);
		break;
	case AT_CREDIT:
		break;			/* rx_seq is in every header */
	default:
		c->n.corrupt++;
		at_message_error(c, "corrupt", AT_CREDIT,
				 le16_to_cpu(w->kind));
		break;
	}
}

static void at_rx_done(struct ib_cq *cq, struct ib_wc *wc)
{
	struct at_slot *slot = container_of(wc->wr_cqe, struct at_slot, cqe);
	struct at_conn *c = slot->c;
	bool write = wc->opcode == IB_WC_RECV_RDMA_WITH_IMM;
	struct at_wire *w = slot->buf;
	u32 len = wc->byte_len;
	bool ok;

	if (wc->status != IB_WC_SUCCESS) {
		spin_lock(&c->lock);
		c->rx_inflight--;
		if (wc->status != IB_WC_WR_FLUSH_ERR)
			at_conn_error(c, "receive", wc);
		spin_unlock(&c->lock);
		wake_up(&c->wait);
		return;
	}

	if (write)
		w = c->ring_mem + (be32_to_cpu(wc->ex.imm_data) %
				   c->ring_slots) * c->size;
	ib_dma_sync_single_for_cpu(c->dev,
				   write ? c->ring_dma + ((void *)w -
							  c->ring_mem) :
				   slot->dma, c->size, DMA_FROM_DEVICE);
	ok = len >= sizeof(*w) && len <= c->size && at_sealed(w, len);

	spin_lock(&c->lock);
	if (len < sizeof(*w) || len > c->size) {
		c->n.short_msgs++;
		at_message_error(c, "short", sizeof(*w), len);
	} else if (!ok) {
		c->n.corrupt++;
		at_message_error(c, "corrupt", c->n.rx_seq + 1, c->n.rx_seq);
	} else {
		u64 peer_rx = le64_to_cpu(w->rx_seq);

		if (peer_rx > c->n.peer_rx && peer_rx <= c->n.tx_seq)
			c->n.peer_rx = peer_rx;
		if (le16_to_cpu(w->kind) == AT_DATA)
			at_rx_data(c, w, write);
		else
			at_rx_ctl(c, w);
	}
	c->rx_inflight--;
	if (!c->dead) {
		if (at_rx_post(c, slot))
			at_conn_error(c, "post receive", NULL);
		else
			c->rx_inflight++;
	}
	spin_unlock(&c->lock);
	wake_up(&c->wait);
}

/* ------------------------------------------------------------------ */
/* Benchmark */

static void at_bench_done(struct ib_cq *cq, struct ib_wc *wc)
{
	struct at_conn *c = container_of(wc->wr_cqe, struct at_conn,
					 bench.cqe);

	spin_lock(&c->lock);
	c->inflight--;
	c->bench.done++;
	if (wc->status != IB_WC_SUCCESS) {
		c->bench.error = -EIO;
		if (wc->status != IB_WC_WR_FLUSH_ERR)
			at_conn_error(c, "bench write", wc);
	}
	spin_unlock(&c->lock);
	wake_up(&c->bench.wait);
	wake_up(&c->wait);
}

static bool at_bench_ready(struct at_conn *c)
{
	return READ_ONCE(c->dead) || READ_ONCE(c->bench.error) ||
	       c->bench.posted - READ_ONCE(c->bench.done) < AT_BENCH_DEPTH;
}

static void at_bench_work(struct work_struct *work)
{
	struct at_conn *c = container_of(work, struct at_conn, bench.work);
	struct ib_sge sge = {
		.addr = c->bench.dma,
		.length = c->bench.size,
		.lkey = c->pd->local_dma_lkey,
	};
	struct ib_rdma_wr wr = {
		.wr.opcode = IB_WR_RDMA_WRITE,
		.wr.send_flags = IB_SEND_SIGNALED,
		.wr.num_sge = 1,
		.wr.sg_list = &sge,
		.wr.wr_cqe = &c->bench.cqe,
		.remote_addr = c->peer_addr,
		.rkey = c->peer_rkey,
	};
	const struct ib_send_wr *bad;
	u64 start, ns, bytes;
	int error;

	start = ktime_get_ns();
	while (c->bench.posted < c->bench.count) {
		wait_event(c->bench.wait, at_bench_ready(c));
		spin_lock(&c->lock);
		if (c->dead || c->bench.error) {
			if (!c->bench.error)
				c->bench.error = -EIO;
			spin_unlock(&c->lock);
			break;
		}
		c->inflight++;
		if (ib_post_send(c->qp, &wr.wr, &bad)) {
			c->inflight--;
			c->bench.error = -EIO;
			at_conn_error(c, "post", NULL);
			spin_unlock(&c->lock);
			break;
		}
		c->bench.posted++;
		spin_unlock(&c->lock);
	}
	/* What was posted comes back: done, or flushed in at_conn_destroy(). */
	wait_event(c->bench.wait,
		   READ_ONCE(c->bench.done) == c->bench.posted ||
		   READ_ONCE(c->dead));
	ns = ktime_get_ns() - start;
	error = c->bench.error;
	if (!error && c->bench.done != c->bench.count)
		error = -EIO;

	bytes = (u64)c->bench.size * c->bench.count;
	if (error)
		at_event("bench",
			 "\"qpn\":%u,\"op\":\"write\",\"size\":%u,\"count\":%u,\"errno\":%d",
			 c->qp->qp_num, c->bench.size, c->bench.done, -error);
	else
		at_event("bench",
			 "\"qpn\":%u,\"op\":\"write\",\"size\":%u,\"count\":%u,\"ns\":%llu,\"mb_s\":%llu.%02llu",
			 c->qp->qp_num, c->bench.size, c->bench.count, ns,
			 /* bytes per microsecond are MB/s */
			 div64_u64(bytes, max_t(u64, ns / 1000, 1)),
			 div64_u64(bytes * 100, max_t(u64, ns / 1000, 1)) %
			 100);
	WRITE_ONCE(c->bench.running, false);
}

int at_bench_start(struct at_conn *c, u32 size, u32 count)
{
	if (!c->have_peer || size > c->peer_len)
		return -EMSGSIZE;
	if (READ_ONCE(c->bench.running))
		return -EBUSY;
	if (c->dead)
		return -EIO;
	c->bench.running = true;
	c->bench.size = size;
	c->bench.count = count;
	c->bench.posted = 0;
	c->bench.done = 0;
	c->bench.error = 0;
	queue_work(system_unbound_wq, &c->bench.work);
	return 0;
}

/* ------------------------------------------------------------------ */
/* What control calls */

void at_conn_migrated(struct at_conn *c)
{
	/* From the QP's event handler, any context: no lock. */
	WRITE_ONCE(c->mig_rx, true);
	WRITE_ONCE(c->mig_tx, true);
}

int at_traffic_start(struct at_conn *c, const struct at_traffic_params *p,
		     const char *by)
{
	int ret = 0;

	spin_lock(&c->lock);
	if (c->dead)
		ret = -EIO;
	else if (c->stop.wanted)
		ret = -EBUSY;
	else if (c->tx_on || c->counting)
		ret = -EALREADY;
	else if (!at_op_possible(c, p))
		ret = -EOPNOTSUPP;
	if (!ret && p->dir != AT_DIR_OUT)
		ret = at_ctl_send(c, AT_START, p->rate, p->count, p->op);
	if (!ret) {
		at_started_event(c, p, by);
		if (p->count) {
			c->counting = true;
			c->rx_until = c->n.rx_seq +
				      (p->dir == AT_DIR_OUT ? 0 : p->count);
		}
		if (p->dir != AT_DIR_IN)
			at_run(c, p);
	}
	spin_unlock(&c->lock);
	return ret;
}

int at_traffic_stop(struct at_conn *c, const char *by)
{
	int ret = 0;

	spin_lock(&c->lock);
	if (c->dead)
		ret = -EIO;
	else if (c->stop.wanted)
		ret = -EALREADY;
	else
		at_want_stop(c, by, false);
	spin_unlock(&c->lock);
	return ret;
}

void at_conn_counts(struct at_conn *c, struct at_counts *n, bool *on,
		    u32 *rate)
{
	spin_lock(&c->lock);
	*n = c->n;
	*on = c->tx_on;
	*rate = c->rate;
	spin_unlock(&c->lock);
}

void at_conn_private(struct at_conn *c, struct at_private *p)
{
	memset(p, 0, sizeof(*p));
	p->magic = cpu_to_le32(AT_MAGIC);
	p->version = cpu_to_le16(AT_WIRE_VERSION);
	p->depth = cpu_to_le16(c->depth);
	p->size = cpu_to_le32(c->size);
	p->rkey = cpu_to_le32(c->pd->unsafe_global_rkey);
	p->addr = cpu_to_le64(c->bench_dma);
	p->len = cpu_to_le32(AT_BENCH_BYTES);
	p->ring_addr = cpu_to_le64(c->ring_dma);
	p->ring_slots = cpu_to_le32(c->ring_slots);
}

/* The peer may be anything: believe nothing that does not fit. */
int at_conn_set_peer(struct at_conn *c, const void *data, u8 len)
{
	const struct at_private *p = data;

	if (len < sizeof(*p) || p->magic != cpu_to_le32(AT_MAGIC) ||
	    p->version != cpu_to_le16(AT_WIRE_VERSION))
		return -EPROTO;
	if (le32_to_cpu(p->size) != c->size)
		return -EMSGSIZE;
	c->peer_size = c->size;
	c->peer_addr = le64_to_cpu(p->addr);
	c->peer_rkey = le32_to_cpu(p->rkey);
	c->peer_len = min_t(u32, le32_to_cpu(p->len), AT_BENCH_BYTES);
	c->peer_ring = le64_to_cpu(p->ring_addr);
	c->peer_ring_slots = le32_to_cpu(p->ring_slots);
	c->have_peer = c->peer_len >= c->size &&
		       c->peer_ring_slots >= AT_RING_SLOTS_MIN &&
		       c->peer_ring_slots <= AT_RING_BYTES / AT_MSG_MIN;
	return 0;
}

/* ------------------------------------------------------------------ */
/* Making and ending */

static int at_slot_init(struct at_conn *c, struct at_slot *slot, u32 size,
			enum dma_data_direction dir,
			void (*done)(struct ib_cq *cq, struct ib_wc *wc))
{
	slot->c = c;
	slot->cqe.done = done;
	slot->buf = kzalloc(size, GFP_KERNEL);
	if (!slot->buf)
		return -ENOMEM;
	slot->dma = ib_dma_map_single(c->dev, slot->buf, size, dir);
	if (ib_dma_mapping_error(c->dev, slot->dma)) {
		kfree(slot->buf);
		slot->buf = NULL;
		return -ENOMEM;
	}
	return 0;
}

static void at_slot_free(struct at_conn *c, struct at_slot *slot, u32 size,
			 enum dma_data_direction dir)
{
	if (!slot->buf)
		return;
	ib_dma_unmap_single(c->dev, slot->dma, size, dir);
	kfree(slot->buf);
}

static int at_region_init(struct at_conn *c, void **mem, u64 *dma, u32 size,
			  enum dma_data_direction dir)
{
	*mem = alloc_pages_exact(size, GFP_KERNEL | __GFP_ZERO);
	if (!*mem)
		return -ENOMEM;
	*dma = ib_dma_map_single(c->dev, *mem, size, dir);
	if (ib_dma_mapping_error(c->dev, *dma)) {
		free_pages_exact(*mem, size);
		*mem = NULL;
		return -ENOMEM;
	}
	return 0;
}

static void at_region_free(struct at_conn *c, void *mem, u64 dma, u32 size,
			   enum dma_data_direction dir)
{
	if (!mem)
		return;
	ib_dma_unmap_single(c->dev, dma, size, dir);
	free_pages_exact(mem, size);
}

static void at_qp_event(struct ib_event *event, void *context)
{
	struct at_conn *c = context;
	struct at_msg *m;

	if (event->event == IB_EVENT_PATH_MIG)
		at_conn_migrated(c);
	m = at_msg_new(AT_MSG_QP_EVENT, c->gen, GFP_ATOMIC);
	if (!m) {
		/* The lab must not believe that nothing happened. */
		at_event("qp_error", "\"what\":\"event %d not handled: no memory\"",
			 event->event);
		return;
	}
	m->u.qp.event = event->event;
	at_control_post(m);
}

static void at_conn_free_memory(struct at_conn *c)
{
	u32 i;

	for (i = 0; c->tx && i < c->depth; i++)
		at_slot_free(c, &c->tx[i], c->size, DMA_BIDIRECTIONAL);
	for (i = 0; c->rx && i < c->rq_depth; i++)
		at_slot_free(c, &c->rx[i], c->size, DMA_FROM_DEVICE);
	for (i = 0; i < AT_CTL_SLOTS; i++)
		at_slot_free(c, &c->ctl[i], AT_MSG_MIN, DMA_TO_DEVICE);
	at_region_free(c, c->bench_mem, c->bench_dma, AT_BENCH_BYTES,
		       DMA_BIDIRECTIONAL);
	at_region_free(c, c->bench.src, c->bench.dma, AT_BENCH_BYTES,
		       DMA_TO_DEVICE);
	at_region_free(c, c->ring_mem, c->ring_dma,
		       PAGE_ALIGN(c->ring_slots * c->size),
		       DMA_FROM_DEVICE);
	kvfree(c->tx);
	kvfree(c->rx);
}

struct at_conn *at_conn_create(struct ib_device *dev, u32 gen, u32 size,
			       u32 depth)
{
	struct ib_qp_init_attr init = {};
	struct at_conn *c;
	int ret = -ENOMEM;
	u32 i, sends;

	BUILD_BUG_ON(sizeof(struct at_wire) != AT_MSG_MIN);
	c = kzalloc(sizeof(*c), GFP_KERNEL);
	if (!c)
		return ERR_PTR(-ENOMEM);
	c->gen = gen;
	c->dev = dev;
	c->size = size;
	c->depth = depth;
	c->rq_depth = 2 * depth + 2 * AT_CTL_SLOTS;
	c->ring_slots = clamp_t(u32, 2 * depth, AT_RING_SLOTS_MIN,
				AT_RING_BYTES / size);
	c->rq_psn = get_random_u32() & 0xffffff;
	spin_lock_init(&c->lock);
	init_waitqueue_head(&c->wait);
	init_waitqueue_head(&c->bench.wait);
	INIT_WORK(&c->bench.work, at_bench_work);
	c->bench.cqe.done = at_bench_done;

	/*
	 * Remote access and local DMA key from one "all memory" region: the
	 * adapter has no fast registration.  A laboratory may do this.
	 */
	c->pd = ib_alloc_pd(dev, IB_PD_UNSAFE_GLOBAL_RKEY);
	if (IS_ERR(c->pd)) {
		ret = PTR_ERR(c->pd);
		kfree(c);
		return ERR_PTR(ret);
	}

	c->tx = kvcalloc(depth, sizeof(*c->tx), GFP_KERNEL);
	c->rx = kvcalloc(c->rq_depth, sizeof(*c->rx), GFP_KERNEL);
	if (!c->tx || !c->rx)
		goto err;
	for (i = 0; i < depth; i++) {
		ret = at_slot_init(c, &c->tx[i], size, DMA_BIDIRECTIONAL,
				   at_tx_done);
		if (ret)
			goto err;
		at_fill(c->tx[i].buf, size, i);
	}
	for (i = 0; i < c->rq_depth; i++) {
		ret = at_slot_init(c, &c->rx[i], size, DMA_FROM_DEVICE,
				   at_rx_done);
		if (ret)
			goto err;
	}
	for (i = 0; i < AT_CTL_SLOTS; i++) {
		ret = at_slot_init(c, &c->ctl[i], AT_MSG_MIN, DMA_TO_DEVICE,
				   at_ctl_done);
		if (ret)
			goto err;
	}
	ret = at_region_init(c, &c->bench_mem, &c->bench_dma, AT_BENCH_BYTES,
			     DMA_BIDIRECTIONAL);
	if (!ret)
		ret = at_region_init(c, &c->bench.src, &c->bench.dma,
				     AT_BENCH_BYTES, DMA_TO_DEVICE);
	if (!ret)
		ret = at_region_init(c, &c->ring_mem, &c->ring_dma,
				     PAGE_ALIGN(c->ring_slots * size),
				     DMA_FROM_DEVICE);
	if (ret)
		goto err;
	/* The same in both: writing does not spoil what op=read compares. */
	at_fill(c->bench_mem, AT_BENCH_BYTES, 0);
	at_fill(c->bench.src, AT_BENCH_BYTES, 0);
	ib_dma_sync_single_for_device(dev, c->bench_dma, AT_BENCH_BYTES,
				      DMA_BIDIRECTIONAL);
	ib_dma_sync_single_for_device(dev, c->bench.dma, AT_BENCH_BYTES,
				      DMA_TO_DEVICE);

	sends = depth + AT_CTL_SLOTS + AT_BENCH_DEPTH;
	c->cq = ib_alloc_cq(dev, c, sends + c->rq_depth, 0,
			    IB_POLL_WORKQUEUE);
	if (IS_ERR(c->cq)) {
		ret = PTR_ERR(c->cq);
		c->cq = NULL;
		goto err;
	}
	init.event_handler = at_qp_event;
	init.qp_context = c;
	init.send_cq = c->cq;
	init.recv_cq = c->cq;
	init.qp_type = IB_QPT_RC;
	init.sq_sig_type = IB_SIGNAL_REQ_WR;
	init.cap.max_send_wr = sends;
	init.cap.max_recv_wr = c->rq_depth;
	init.cap.max_send_sge = 1;
	init.cap.max_recv_sge = 1;
	c->qp = ib_create_qp(c->pd, &init);
	if (IS_ERR(c->qp)) {
		ret = PTR_ERR(c->qp);
		c->qp = NULL;
		goto err;
	}
	return c;
err:
	at_conn_destroy(c);
	return ERR_PTR(ret);
}

/* QP is in INIT or later. */
int at_conn_start(struct at_conn *c)
{
	struct task_struct *task;
	int ret = 0;
	u32 i;

	spin_lock(&c->lock);
	for (i = 0; !ret && i < c->rq_depth; i++) {
		ret = at_rx_post(c, &c->rx[i]);
		if (!ret)
			c->rx_inflight++;
	}
	spin_unlock(&c->lock);
	if (ret)
		return ret;
	task = kthread_run(at_sender, c, "apm_traffic_tx");
	if (IS_ERR(task))
		return PTR_ERR(task);
	c->task = task;
	return 0;
}

void at_conn_destroy(struct at_conn *c)
{
	struct ib_qp_attr attr = { .qp_state = IB_QPS_ERR };

	spin_lock(&c->lock);
	c->dead = true;
	c->tx_on = false;
	spin_unlock(&c->lock);
	if (c->task)
		kthread_stop(c->task);
	if (c->qp) {
		ib_modify_qp(c->qp, &attr, IB_QP_STATE);
		wait_event_timeout(c->wait, !READ_ONCE(c->inflight) &&
				   !READ_ONCE(c->rx_inflight),
				   msecs_to_jiffies(AT_FLUSH_MS));
		wake_up(&c->bench.wait);
		cancel_work_sync(&c->bench.work);
		if (c->inflight || c->rx_inflight)
			pr_warn("apm_traffic: QP %u: %u sends and %u receives were not flushed in %d ms\n",
				c->qp->qp_num, c->inflight, c->rx_inflight,
				AT_FLUSH_MS);
		ib_destroy_qp(c->qp);
	}
	if (c->cq)
		ib_free_cq(c->cq);
	at_conn_free_memory(c);
	ib_dealloc_pd(c->pd);
	kfree(c);
}
