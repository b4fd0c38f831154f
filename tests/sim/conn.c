/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Connections of the simulated world.
 *
 * Theory of operation.
 *
 * Traffic.  Each side posts messages at random times, a window of them at
 * most.  What the receiver sees (SEND, RDMA WRITE with immediate) is numbered
 * by epoch and sequence number; every message carries its number, its length
 * and a hash of its payload.  An RC receiver must see each number once, in
 * order; a UC receiver may miss some, and sees a ghost of the fabric (a packet
 * duplicated, or delayed until the path is in use again) once more.  RDMA
 * WRITEs without immediate are looked at when the SEND behind them arrives;
 * READs fetch known bytes; FETCH_ADDs must return the sum of all before, which
 * proves that each was executed once.  Send completions must come once each, in
 * order, and not before the message was seen at the other side.
 *
 * Migration is software's business here as it would be in a guest: when both
 * sides are on the same rail and MIGRATED, and the other rail can be used,
 * each loads it as the alternate and asks for REARM, at a time of its own.
 * Traffic arms.  UC has no retries: a side that sees its rail go bad writes
 * MIGRATED.
 *
 * Death.  Retries that are used up are right when nothing was left to migrate
 * to, or when the peer could not follow; judge_death() decides.  Then both
 * QPs go through RESET and the connection starts a new epoch.
 */
#include <string.h>

#include "ib/bytes.h"
#include "world.h"

#define MAGIC 0x53494D31u
#define HEADER 48u
#define NO_SLOT 0xFFFFFFFFu
#define RECVS SIDE_SLOTS
#define OFFSET_SEND 0u
#define OFFSET_RECV (OFFSET_SEND + SIDE_SLOTS * SIDE_SLOT)
#define OFFSET_WRITE (OFFSET_RECV + SIDE_SLOTS * SIDE_SLOT)
#define OFFSET_READ (OFFSET_WRITE + SIDE_SLOTS * SIDE_SLOT)
#define OFFSET_COUNTER (OFFSET_READ + SIDE_READ_SLOTS * SIDE_SLOT)
#define MR_LENGTH (OFFSET_COUNTER + EHCA_HW_PAGE_SIZE)
#define SEND_WRS 96u
#define CQ_ENTRIES (SEND_WRS + RECVS)
#define MAX_INTERVAL (5 * IB_MSEC)
#define TIMEWAIT (20 * IB_MSEC)
#define CQES 16u

/* ------------------------------------------------------------------ */
/* Messages                                                           */
/* ------------------------------------------------------------------ */

typedef struct Message {
    uint32_t epoch, len, id;
    uint64_t seq;
    uint32_t ref_slot, ref_len;      /* a WRITE this SEND tells of */
} Message;

static uint32_t side_id(const Side *side)
{
    return side->conn->index * 2 + side->index;
}

static uint64_t mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * UINT64_C(0x9E3779B97F4A7C15);
    return hash ^ hash >> 29;
}

static uint64_t message_hash(const uint8_t *p, uint32_t len)
{
    uint64_t hash = len, word;
    uint32_t i = HEADER;

    for (uint32_t j = 0; j < HEADER - 8; j += 8) {
        memcpy(&word, p + j, 8);
        hash = mix(hash, word);
    }
    for (; i + 8 <= len; i += 8) {
        memcpy(&word, p + i, 8);
        hash = mix(hash, word);
    }
    for (; i < len; i++) {
        hash = mix(hash, p[i]);
    }
    return hash;
}

static void message_put(uint8_t *p, const Message *m)
{
    uint64_t x = mix(mix(m->id, m->epoch), m->seq);

    ib_put32(p, MAGIC);
    ib_put32(p + 4, m->epoch);
    ib_put64(p + 8, m->seq);
    ib_put32(p + 16, m->len);
    ib_put32(p + 20, m->id);
    ib_put32(p + 24, m->ref_slot);
    ib_put32(p + 28, m->ref_len);
    ib_put64(p + 32, 0);
    for (uint32_t i = HEADER; i < m->len; i += 8) {
        x = mix(x, i);
        memcpy(p + i, &x, m->len - i < 8 ? m->len - i : 8);
    }
    ib_put64(p + 40, message_hash(p, m->len));
}

/* What arrived must be what was sent. */
static void message_get(Side *side, const uint8_t *p, uint32_t len,
                        Message *m, const char *what)
{
    World *w = side->conn->world;

    m->epoch = ib_get32(p + 4);
    m->seq = ib_get64(p + 8);
    m->len = ib_get32(p + 16);
    m->id = ib_get32(p + 20);
    m->ref_slot = ib_get32(p + 24);
    m->ref_len = ib_get32(p + 28);
    if (ib_get32(p) != MAGIC || m->len != len || len < HEADER ||
        ib_get64(p + 40) != message_hash(p, len)) {
        world_fail(w, "connection %u side %u: %s of %u bytes is damaged "
                   "(magic 0x%x, epoch %u, number %llu, length %u, sender "
                   "%u)", side->conn->index, side->index, what, len,
                   ib_get32(p), m->epoch, (unsigned long long)m->seq, m->len,
                   m->id);
    }
    if (m->id != side_id(side->peer)) {
        world_fail(w, "connection %u side %u: %s is of sender %u, not %u",
                   side->conn->index, side->index, what, m->id,
                   side_id(side->peer));
    }
}

/* ------------------------------------------------------------------ */
/* Finding                                                            */
/* ------------------------------------------------------------------ */

Side *conn_side_by_qpn(SimHost *sim, uint32_t qpn)
{
    World *w = sim->world;

    for (unsigned c = 0; c < w->num_conns; c++) {
        for (unsigned s = 0; s < 2; s++) {
            Side *side = &w->conns[c].sides[s];

            if (side->sim == sim && side->qp && side->qp->qpn == qpn) {
                return side;
            }
        }
    }
    return NULL;
}

Side *conn_side_by_token(SimHost *sim, uint32_t token)
{
    World *w = sim->world;

    for (unsigned c = 0; c < w->num_conns; c++) {
        for (unsigned s = 0; s < 2; s++) {
            Side *side = &w->conns[c].sides[s];

            if (side->sim == sim && side->qp && side->qp->token == token) {
                return side;
            }
        }
    }
    return NULL;
}

bool conn_rail_usable(Conn *conn, unsigned rail)
{
    return world_port_usable(conn->world, conn->sides[0].sim,
                             conn->ports[rail][0]) &&
           world_port_usable(conn->world, conn->sides[1].sim,
                             conn->ports[rail][1]);
}

int64_t conn_rail_bad_ns(Conn *conn, unsigned rail)
{
    int64_t a = conn->sides[0].sim->ports[conn->ports[rail][0]].bad_ns;
    int64_t b = conn->sides[1].sim->ports[conn->ports[rail][1]].bad_ns;

    return conn_rail_usable(conn, rail) ? (a > b ? a : b)
                                        : world_now(conn->world);
}

int64_t conn_budget_ns(const Conn *conn)
{
    return (conn->retry_count + 1) * ib_timeout_ns(conn->timeout);
}

bool conn_armed(const Conn *conn)
{
    return conn->state == CONN_UP &&
           conn->sides[0].mig == EHCA_MIG_ARMED &&
           conn->sides[1].mig == EHCA_MIG_ARMED;
}

bool conn_calm(const Conn *conn)
{
    for (unsigned s = 0; s < 2; s++) {
        const Side *side = &conn->sides[s];

        if (conn->service == EHCA_SERVICE_RC &&
            side->ops_head != side->ops_tail &&
            world_now(conn->world) -
            side->ops[side->ops_head % SIDE_OPS].post_ns >=
            ib_timeout_ns(conn->timeout)) {
            return false;
        }
    }
    return true;
}

void conn_faster(World *w)
{
    for (unsigned c = 0; c < w->num_conns; c++) {
        for (unsigned s = 0; s < 2; s++) {
            Side *side = &w->conns[c].sides[s];

            side->interval_ns = w->pace_ns;
            if (side->next_post_ns != IB_CLOCK_NEVER &&
                side->next_post_ns > world_now(w) + w->pace_ns) {
                side->next_post_ns = world_now(w) + w->pace_ns;
            }
        }
    }
}

/* ------------------------------------------------------------------ */
/* Connecting                                                         */
/* ------------------------------------------------------------------ */

static void conn_path(Side *side, unsigned rail, HostPath *path)
{
    Conn *conn = side->conn;
    unsigned peer_port = conn->ports[rail][!side->index];
    SimHost *peer = side->peer->sim;

    *path = (HostPath) {
        .port = conn->ports[rail][side->index],
        .dlid = peer->ports[peer_port].lid + side->peer->path_bits,
        .path_bits = side->path_bits,
        .timeout = conn->timeout,
        .retry_count = conn->retry_count,
        .rnr_retry_count = 7,
        .grh = conn->grh,
        .hop_limit = 1,
    };
    if (conn->grh) {
        host_gid(peer->host, peer_port, path->dgid);
    }
}

static void must(Side *side, int64_t rc, const char *what)
{
    if (rc != EHCA_RC_SUCCESS) {
        world_fail(side->conn->world, "connection %u side %u: %s answered "
                   "%lld: %s", side->conn->index, side->index, what,
                   (long long)rc, side->sim->host->last_guest_error);
    }
}

void conn_reload_alternate(Side *side)
{
    HostPath alternate;

    conn_path(side, !side->rail, &alternate);
    must(side, host_qp_load_alt(side->qp, &alternate, 0), "ALT_PATH");
}

static void post_receives(Side *side)
{
    World *w = side->conn->world;

    if (world_now(w) < side->rnr_until_ns) {
        return;
    }
    side->rnr_until_ns = 0;
    while (side->recv_wr_posted - side->recv_wr_next < RECVS) {
        uint64_t id = side->recv_wr_posted++;
        HostRecvWr wr = {
            .wr_id = id, .num_sges = 1,
            .sges = { host_sge(side->mr, OFFSET_RECV + id % RECVS * SIDE_SLOT,
                               SIDE_SLOT) },
        };

        host_post_recv(side->qp, &wr);
    }
    host_ring(side->qp);
}

static void side_build(Side *side)
{
    Host *h = side->sim->host;

    side->cq = host_cq_new(h, CQ_ENTRIES);
    side->qp = host_qp_new(h, side->conn->service, side->cq, side->cq,
                           SEND_WRS, RECVS);
    side->mr = host_mr_new(h, MR_LENGTH, EHCA_MR_LOCAL_WRITE |
                           EHCA_MR_REMOTE_WRITE | EHCA_MR_REMOTE_READ |
                           EHCA_MR_REMOTE_ATOMIC);
    for (unsigned i = 0; i < SIDE_READ_SLOTS; i++) {
        Message m = {
            .len = SIDE_SLOT >> i, .id = side_id(side), .seq = i,
            .ref_slot = NO_SLOT,
        };

        message_put(side->mr->bytes + OFFSET_READ + i * SIDE_SLOT, &m);
    }
    host_cq_arm(side->cq, false);
}

static void side_reset(Side *side)
{
    World *w = side->conn->world;
    HostCqe cqe;

    if (!side->qp) {
        side_build(side);
    } else {
        if (host_cq_poll(side->cq, &cqe, 1)) {
            world_fail(w, "connection %u side %u: completion 0x%llx came "
                       "late", side->conn->index, side->index,
                       (unsigned long long)cqe.wr_id);
        }
        must(side, host_qp_to(side->qp, EHCA_QPS_RESET), "RESET");
    }
    side->dead = false;
    side->ops_head = side->ops_tail = side->unsignaled = 0;
    side->wr_next = side->sent_seq = side->acked_seq = 0;
    side->recv_seq = side->recv_wr_next = side->recv_wr_posted = 0;
    side->epoch_migrations = side->visible_since = 0;
    side->await_payload = false;
    side->rnr_until_ns = side->rearm_ns = side->soft_ns = 0;
    side->interval_ns = w->pace_ns;
    side->next_post_ns = world_now(w) + world_between(w, 0, w->pace_ns);
}

static void conn_connect(Conn *conn, unsigned rail)
{
    World *w = conn->world;
    bool with_alternate = conn_rail_usable(conn, !rail) &&
                          world_chance(w, 0.8);
    uint32_t psn[2] = {
        world_below(w, IB_PSN_MASK + 1), world_below(w, IB_PSN_MASK + 1),
    };

    if (world_chance(w, 0.3)) {
        /* Where the circle closes. */
        psn[world_below(w, 2)] = IB_PSN_MASK - world_below(w, 40);
    }
    conn->epoch++;
    conn->counted = 0;
    for (unsigned s = 0; s < 2; s++) {
        side_reset(&conn->sides[s]);
    }
    for (unsigned s = 0; s < 2; s++) {
        Side *side = &conn->sides[s];
        HostPath primary, alternate;

        side->rail = rail;
        side->adds_posted = ib_get64(side->peer->mr->bytes + OFFSET_COUNTER);
        conn_path(side, rail, &primary);
        conn_path(side, !rail, &alternate);
        must(side, host_qp_init(side->qp, primary.port), "INIT");
        post_receives(side);
        must(side, host_qp_rtr(side->qp, &primary,
                               with_alternate ? &alternate : NULL,
                               conn->mtu_code, side->peer->qp->qpn, psn[!s]),
             "RTR");
        must(side, host_qp_rts(side->qp, &primary, psn[s], with_alternate),
             "RTS");
    }
    conn->state = CONN_UP;
    world_note(w, NOTE_CONN, conn->index, CONN_UP, rail, conn->epoch, 0);
}

void conn_new(World *w, unsigned index)
{
    Conn *conn = &w->conns[index];
    unsigned a = world_below(w, w->num_hosts);
    unsigned b = (a + 1 + world_below(w, w->num_hosts - 1)) % w->num_hosts;
    unsigned crossed = w->fabric && world_chance(w, 0.25);
    static const unsigned lens[] = { 256, 2048, 8192, SIDE_SLOT };

    conn->world = w;
    conn->index = index;
    conn->service = world_chance(w, 0.2) ? EHCA_SERVICE_UC
                                         : EHCA_SERVICE_RC;
    conn->grh = world_chance(w, 0.3);
    conn->mtu_code = world_between(w, EHCA_MTU_256, EHCA_MTU_2048);
    conn->timeout = world_between(w, 8, 11);
    conn->retry_count = world_between(w, 3, 7);
    conn->window = world_between(w, 1, SIDE_WINDOW);
    conn->max_len = lens[world_below(w, 4)];
    for (unsigned rail = 0; rail < RAILS; rail++) {
        conn->ports[rail][0] = rail + 1;
        conn->ports[rail][1] = (rail ^ crossed) + 1;
    }
    for (unsigned s = 0; s < 2; s++) {
        Side *side = &conn->sides[s];

        side->conn = conn;
        side->index = s;
        side->sim = &w->hosts[s ? b : a];
        side->peer = &conn->sides[!s];
        side->path_bits = world_below(w, 1u << w->sm_options.lmc);
        side->next_post_ns = IB_CLOCK_NEVER;
        side->mig = EHCA_MIG_MIGRATED;
    }
    conn->state = CONN_DOWN;
}

static void conn_down(Conn *conn)
{
    World *w = conn->world;

    for (unsigned s = 0; s < 2; s++) {
        Side *side = &conn->sides[s];

        /* What was acknowledged has been seen. */
        if (conn->service == EHCA_SERVICE_RC &&
            side->acked_seq > side->peer->recv_seq) {
            world_fail(w, "connection %u: %llu messages of side %u were "
                       "acknowledged, %llu seen", conn->index,
                       (unsigned long long)side->acked_seq, s,
                       (unsigned long long)side->peer->recv_seq);
        }
        side->next_post_ns = IB_CLOCK_NEVER;
        side->rearm_ns = side->soft_ns = side->rnr_until_ns = 0;
    }
    conn->state = CONN_DOWN;
    conn->reconnect_ns = world_now(w) + TIMEWAIT +
                         world_between(w, 0, TIMEWAIT);
    w->reconnects++;
    world_note(w, NOTE_CONN, conn->index, CONN_DOWN, 0, conn->epoch, 0);
}

/*
 * UC has no retries that could run out: a side that migrated while its peer
 * was in REARM talks to nobody, and nobody notices (apm-and-cm 1.4).
 */
static bool uc_parted(const Conn *conn)
{
    const Side *a = &conn->sides[0], *b = &conn->sides[1];

    return conn->service == EHCA_SERVICE_UC && a->rail != b->rail &&
           a->mig != EHCA_MIG_ARMED && b->mig != EHCA_MIG_ARMED;
}

/* The engine of the other side goes on until it is reset. */
static void stop_side(Side *side)
{
    if (side->qp && side->state != EHCA_QPS_ERR &&
        side->state != EHCA_QPS_RESET) {
        must(side, host_qp_to(side->qp, EHCA_QPS_ERR), "ERR");
    }
}

void conn_host_died(World *w, SimHost *sim)
{
    for (unsigned c = 0; c < w->num_conns; c++) {
        Conn *conn = &w->conns[c];

        for (unsigned s = 0; s < 2; s++) {
            Side *side = &conn->sides[s];

            if (side->sim != sim) {
                continue;
            }
            if (conn->state == CONN_UP) {
                stop_side(side->peer);
                conn_down(conn);
            }
            side->qp = NULL;
            side->cq = NULL;
            side->mr = NULL;
            side->state = EHCA_QPS_RESET;
            side->mig = EHCA_MIG_MIGRATED;
            side->migrations = side->path_migs = 0;
        }
    }
}

/* ------------------------------------------------------------------ */
/* Events of the engines                                              */
/* ------------------------------------------------------------------ */

static void migrated(Side *side, const EhcaEvent *e)
{
    Conn *conn = side->conn;
    World *w = conn->world;

    side->migrations++;
    side->epoch_migrations++;
    side->visible_since = 0;
    side->await_payload = true;
    side->peer_mig = side->peer->mig;
    side->rearm_ns = side->soft_ns = 0;
    if (e->port != conn->ports[!side->rail][side->index]) {
        world_fail(w, "connection %u side %u migrated to port %u instead of "
                   "%u", conn->index, side->index, e->port,
                   conn->ports[!side->rail][side->index]);
    }
    side->rail = !side->rail;
    if (side->peer->epoch_migrations > conn->counted &&
        side->epoch_migrations > conn->counted) {
        conn->counted++;
        w->failovers++;
    }
}

void conn_event(SimHost *sim, const EhcaEvent *e)
{
    Side *side = e->qpn ? conn_side_by_qpn(sim, e->qpn) : NULL;

    if (!side) {
        return;
    }
    switch (e->kind) {
    case EHCA_EVENT_QP_STATE:
        side->state = e->to;
        break;
    case EHCA_EVENT_MIG_STATE:
        if (e->from != side->mig) {
            world_fail(sim->world, "connection %u side %u: migration state "
                       "changed from %u, but it was %u", side->conn->index,
                       side->index, e->from, side->mig);
        }
        if (e->to == EHCA_MIG_MIGRATED && e->cause != EHCA_CAUSE_RESET) {
            migrated(side, e);
        }
        side->mig = e->to;
        side->interval_ns = sim->world->pace_ns;
        break;
    case EHCA_EVENT_FIRST_PAYLOAD:
        if (!side->await_payload) {
            world_fail(sim->world, "connection %u side %u: a first payload, "
                       "but none was due", side->conn->index, side->index);
        }
        side->await_payload = false;
        break;
    default:
        break;
    }
}

/* ------------------------------------------------------------------ */
/* Posting                                                            */
/* ------------------------------------------------------------------ */

static uint32_t outstanding(const Side *side)
{
    return side->ops_tail - side->ops_head;
}

static Op *new_op(Side *side, OpKind kind, uint32_t len, HostSendWr *wr)
{
    static const uint8_t optypes[OP_KINDS] = {
        [OP_SEND] = EHCA_WQE_OPTYPE_SEND,
        [OP_WRITE_IMM] = EHCA_WQE_OPTYPE_RDMA_WRITE,
        [OP_WRITE] = EHCA_WQE_OPTYPE_RDMA_WRITE,
        [OP_READ] = EHCA_WQE_OPTYPE_RDMA_READ,
        [OP_FETCH_ADD] = EHCA_WQE_OPTYPE_FETCH_ADD,
    };
    World *w = side->conn->world;
    Op *op = &side->ops[side->ops_tail++ % SIDE_OPS];
    uint64_t offset;

    *op = (Op) {
        .wr_id = side->wr_next++, .seq = side->sent_seq, .len = len,
        .kind = kind, .post_ns = world_now(w),
    };
    op->slot = op->wr_id % SIDE_SLOTS;
    offset = OFFSET_SEND + op->slot * SIDE_SLOT;
    *wr = (HostSendWr) {
        .wr_id = op->wr_id, .optype = optypes[kind], .num_sges = 1,
        .sges = { host_sge(side->mr, offset, len) },
        .rkey = side->peer->mr->rkey,
    };
    if (len > HEADER && kind <= OP_READ && world_chance(w, 0.2)) {
        /* Two entries of the same buffer; one may be empty. */
        uint32_t first = world_below(w, len + 1);

        wr->num_sges = 2;
        wr->sges[0].length = first;
        wr->sges[1] = host_sge(side->mr, offset + first, len - first);
    }
    op->signaled = kind > OP_WRITE || side->unsignaled >= 3 ||
                   outstanding(side) >= side->conn->window ||
                   world_chance(w, 0.75);
    side->unsignaled = op->signaled ? 0 : side->unsignaled + 1;
    wr->flags = op->signaled ? EHCA_WQE_FLAG_SIGNALED : 0;
    return op;
}

static uint8_t *op_bytes(Side *side, const Op *op)
{
    return side->mr->bytes + OFFSET_SEND + op->slot * SIDE_SLOT;
}

static uint32_t draw_len(Side *side)
{
    World *w = side->conn->world;
    uint32_t max = side->conn->max_len;

    uint64_t draw = world_below(w, 100);

    /* Mostly short: long ones cost time that failovers could have. */
    if (max > 512 && draw < 80) {
        max = 512;
    } else if (max > 4096 && draw < 95) {
        max = 4096;
    }
    return world_between(w, HEADER, max);
}

static void post_op(Side *side, const Op *op, const HostSendWr *wr)
{
    host_post_send(side->qp, wr);
    world_note(side->conn->world, NOTE_POST, side_id(side), op->kind,
               op->seq, op->len, op->signaled);
}

static void post_message(Side *side, OpKind kind)
{
    Message m = {
        .epoch = side->conn->epoch, .len = draw_len(side),
        .id = side_id(side), .seq = side->sent_seq, .ref_slot = NO_SLOT,
    };
    uint32_t slot = side->sent_seq % SIDE_SLOTS;
    uint64_t raddr = side->peer->mr->iova + OFFSET_WRITE + slot * SIDE_SLOT;
    HostSendWr wr;
    Op *op;

    if (kind == OP_WRITE) {
        op = new_op(side, OP_WRITE, m.len, &wr);
        message_put(op_bytes(side, op), &m);
        wr.raddr = raddr;
        post_op(side, op, &wr);
        m.ref_slot = slot;
        m.ref_len = m.len;
        m.len = draw_len(side);
        kind = OP_SEND;
    }
    op = new_op(side, kind, m.len, &wr);
    message_put(op_bytes(side, op), &m);
    if (kind == OP_WRITE_IMM) {
        wr.raddr = raddr;
        wr.imm = side->sent_seq;
        wr.flags |= EHCA_WQE_FLAG_IMM;
    } else if (world_chance(side->conn->world, 0.2)) {
        wr.imm = side->sent_seq;
        wr.flags |= EHCA_WQE_FLAG_IMM;
    }
    post_op(side, op, &wr);
    side->sent_seq++;
}

static void post_read(Side *side)
{
    World *w = side->conn->world;
    uint8_t one = world_below(w, SIDE_READ_SLOTS);
    uint8_t two = world_below(w, SIDE_READ_SLOTS);
    uint8_t slot = one > two ? one : two;   /* rather the short ones */
    HostSendWr wr;
    Op *op = new_op(side, OP_READ, SIDE_SLOT >> slot, &wr);

    op->read_slot = slot;
    memset(op_bytes(side, op), 0xA5, op->len);
    wr.raddr = side->peer->mr->iova + OFFSET_READ + slot * SIDE_SLOT;
    post_op(side, op, &wr);
}

static void post_fetch_add(Side *side)
{
    HostSendWr wr;
    Op *op = new_op(side, OP_FETCH_ADD, 8, &wr);
    uint64_t addend = 1 + world_below(side->conn->world, 1000);

    op->expect = side->adds_posted;
    side->adds_posted += addend;
    wr.raddr = side->peer->mr->iova + OFFSET_COUNTER;
    wr.operand[0] = addend;
    post_op(side, op, &wr);
}

static void side_post(Side *side)
{
    World *w = side->conn->world;
    uint64_t what = world_below(w, 100);
    bool rc = side->conn->service == EHCA_SERVICE_RC;

    if (outstanding(side) >= side->conn->window) {
        side->next_post_ns = IB_CLOCK_NEVER;
        return;
    }
    if (!rc || what < 70) {
        post_message(side, what % 4 ? OP_SEND : OP_WRITE_IMM);
    } else if (what < 82) {
        post_message(side, OP_WRITE);
    } else if (what < 90) {
        post_read(side);
    } else {
        post_fetch_add(side);
    }
    host_ring(side->qp);
    side->next_post_ns = world_now(w) +
                         world_between(w, 1, 2 * side->interval_ns);
    side->interval_ns += side->interval_ns / 16;
    if (side->interval_ns > MAX_INTERVAL) {
        side->interval_ns = MAX_INTERVAL;
    }
}

/* ------------------------------------------------------------------ */
/* Completions                                                        */
/* ------------------------------------------------------------------ */

static void op_done(Side *side, const Op *op)
{
    Conn *conn = side->conn;
    World *w = conn->world;
    const uint8_t *p = op_bytes(side, op);
    Message m;

    switch (op->kind) {
    case OP_SEND:
    case OP_WRITE_IMM:
        side->acked_seq = op->seq + 1;
        side->visible_since++;
        if (conn->service == EHCA_SERVICE_RC &&
            side->peer->recv_seq < side->acked_seq) {
            world_fail(w, "connection %u: message %llu of side %u was "
                       "acknowledged before it was seen", conn->index,
                       (unsigned long long)op->seq, side->index);
        }
        break;
    case OP_READ:
        message_get(side, p, op->len, &m, "READ");
        if (m.epoch != 0 || m.seq != op->read_slot) {
            world_fail(w, "connection %u side %u: READ of slot %u brought "
                       "slot %llu", conn->index, side->index, op->read_slot,
                       (unsigned long long)m.seq);
        }
        break;
    case OP_FETCH_ADD:
        if (ib_get64(p) != op->expect) {
            world_fail(w, "connection %u side %u: FETCH_ADD returned %llu, "
                       "the sum before it is %llu", conn->index, side->index,
                       (unsigned long long)ib_get64(p),
                       (unsigned long long)op->expect);
        }
        break;
    default:
        break;
    }
}

static void send_cqe(Side *side, const HostCqe *cqe)
{
    World *w = side->conn->world;
    const Op *op;

    while (side->ops_head != side->ops_tail &&
           (op = &side->ops[side->ops_head % SIDE_OPS])->wr_id != cqe->wr_id) {
        if (op->signaled || cqe->status) {
            /* A WQE that fails is the oldest: those before are done. */
            if (op->signaled) {
                world_fail(w, "connection %u side %u: completion of WQE %llu "
                           "came before that of %llu", side->conn->index,
                           side->index, (unsigned long long)cqe->wr_id,
                           (unsigned long long)op->wr_id);
            }
        }
        op_done(side, op);
        side->ops_head++;
    }
    if (side->ops_head == side->ops_tail) {
        world_fail(w, "connection %u side %u: a completion of WQE %llu too "
                   "many", side->conn->index, side->index,
                   (unsigned long long)cqe->wr_id);
    }
    world_note(w, NOTE_DONE, side_id(side), op->kind, op->seq, cqe->status,
               0);
    if (cqe->status) {
        if (cqe->status != (EHCA_CQE_STATUS_ERROR | EHCA_CQE_CODE_RETRY_EXC)) {
            world_fail(w, "connection %u side %u: WQE %llu failed with "
                       "status 0x%x", side->conn->index, side->index,
                       (unsigned long long)cqe->wr_id, cqe->status);
        }
        side->dead = true;
        return;
    }
    if (!op->signaled) {
        world_fail(w, "connection %u side %u: WQE %llu asked for no "
                   "completion", side->conn->index, side->index,
                   (unsigned long long)cqe->wr_id);
    }
    op_done(side, op);
    side->ops_head++;
    if (side->next_post_ns == IB_CLOCK_NEVER &&
        side->conn->state == CONN_UP) {
        side->next_post_ns = world_now(w) +
                             world_between(w, 1, side->interval_ns);
    }
}

static void recv_cqe(Side *side, const HostCqe *cqe)
{
    Conn *conn = side->conn;
    World *w = conn->world;
    const uint8_t *p = side->mr->bytes + OFFSET_RECV +
                       cqe->wr_id % RECVS * SIDE_SLOT;
    Message m, written;

    if (cqe->status || cqe->wr_id != side->recv_wr_next) {
        world_fail(w, "connection %u side %u: receive WQE %llu completed with "
                   "status 0x%x; the next is %llu", conn->index, side->index,
                   (unsigned long long)cqe->wr_id, cqe->status,
                   (unsigned long long)side->recv_wr_next);
    }
    side->recv_wr_next++;
    if (cqe->optype == EHCA_CQE_OPTYPE_RECV_RDMA_IMM) {
        /* The sender wrote where the number says. */
        p = side->mr->bytes + OFFSET_WRITE +
            cqe->imm % SIDE_SLOTS * SIDE_SLOT;
        message_get(side, p, ib_get32(p + 16) <= SIDE_SLOT
                    ? ib_get32(p + 16) : 0, &m, "RDMA WRITE");
    } else {
        message_get(side, p, cqe->bytes, &m, "SEND");
    }
    if (conn->service == EHCA_SERVICE_UC && m.epoch == conn->epoch &&
        m.seq < side->recv_seq && world_now(w) < w->ghost_until_ns) {
        return;                      /* UC knows no duplicates (9.8.3) */
    }
    if (m.epoch != conn->epoch ||
        (conn->service == EHCA_SERVICE_RC ? m.seq != side->recv_seq
                                          : m.seq < side->recv_seq)) {
        world_fail(w, "connection %u side %u: message %llu of epoch %u "
                   "arrived; %llu of epoch %u is due", conn->index,
                   side->index, (unsigned long long)m.seq, m.epoch,
                   (unsigned long long)side->recv_seq, conn->epoch);
    }
    if (cqe->flags & EHCA_CQE_FLAG_IMM && cqe->imm != (uint32_t)m.seq) {
        world_fail(w, "connection %u side %u: message %llu came with "
                   "immediate data 0x%x", conn->index, side->index,
                   (unsigned long long)m.seq, cqe->imm);
    }
    if (m.ref_slot != NO_SLOT) {
        message_get(side, side->mr->bytes + OFFSET_WRITE +
                    m.ref_slot % SIDE_SLOTS * SIDE_SLOT, m.ref_len, &written,
                    "RDMA WRITE");
        if (written.seq != m.seq) {
            world_fail(w, "connection %u side %u: SEND %llu tells of a WRITE "
                       "that is not there", conn->index, side->index,
                       (unsigned long long)m.seq);
        }
    }
    side->recv_seq = m.seq + 1;
    side->visible_since++;
    w->messages++;
    world_note(w, NOTE_RECEIVED, side_id(side), m.seq, m.len, 0, 0);
}

/* All there is: a message counts as seen before its ACK can leave. */
static void poll_side(Side *side)
{
    HostCqe cqes[CQES];
    bool armed = false;
    unsigned n;

    do {
        n = host_cq_poll(side->cq, cqes, CQES);
        for (unsigned i = 0; i < n; i++) {
            if (cqes[i].flags & EHCA_CQE_FLAG_RECV) {
                recv_cqe(side, &cqes[i]);
            } else {
                send_cqe(side, &cqes[i]);
            }
        }
        if (n == 0 && !armed) {
            /* One may come between the two: look again. */
            armed = true;
            side->cq->event = false;
            host_cq_arm(side->cq, false);
            n = CQES;
        }
    } while (n);
    if (side->conn->state == CONN_UP) {
        post_receives(side);
    }
}

bool conn_poll(World *w, SimHost *sim)
{
    bool any = false;

    for (unsigned c = 0; c < w->num_conns; c++) {
        for (unsigned s = 0; s < 2; s++) {
            Side *side = &w->conns[c].sides[s];

            if (side->sim == sim && side->cq && side->cq->event) {
                poll_side(side);
                any = true;
            }
        }
    }
    return any;
}

/* ------------------------------------------------------------------ */
/* Death                                                              */
/* ------------------------------------------------------------------ */

/* Was it right that the retries of @side were used up? */
static void judge_death(Side *side)
{
    Conn *conn = side->conn;
    World *w = conn->world;
    int64_t window = 2 * conn_budget_ns(conn) + 10 * IB_MSEC;
    int64_t now = world_now(w);

    if (w->expect_alive) {
        world_fail(w, "connection %u died at side %u although the other path "
                   "was there and both sides were ARMED", conn->index,
                   side->index);
    }
    if (w->lossy || now - conn_rail_bad_ns(conn, side->rail) <= window ||
        now - w->route_bad_ns <= window + IB_SEC || (w->fabric && !w->sm.sm)) {
        return;
    }
    if (side->rail != side->peer->rail && side->epoch_migrations &&
        side->peer_mig != EHCA_MIG_ARMED) {
        return;                      /* the peer could not follow (1.4) */
    }
    world_fail(w, "connection %u died at side %u on rail %u, migration state "
               "%u, without a reason", conn->index, side->index, side->rail,
               side->mig);
}

/* ------------------------------------------------------------------ */
/* What is due                                                        */
/* ------------------------------------------------------------------ */

static void plan_rearm(Side *side)
{
    World *w = side->conn->world;

    if (side->mig == EHCA_MIG_MIGRATED && side->rearm_ns == 0 &&
        side->rail == side->peer->rail && side->peer->mig != EHCA_MIG_ARMED &&
        conn_rail_usable(side->conn, !side->rail)) {
        side->rearm_ns = world_now(w) + world_between(w, 0, 2 * w->pace_ns);
    }
}

static bool rearm(Side *side)
{
    HostPath alternate;

    if (side->rearm_ns == 0 || world_now(side->conn->world) < side->rearm_ns) {
        return false;
    }
    side->rearm_ns = 0;
    if (side->mig != EHCA_MIG_MIGRATED || side->rail != side->peer->rail ||
        !conn_rail_usable(side->conn, !side->rail)) {
        return true;
    }
    conn_path(side, !side->rail, &alternate);
    must(side, host_qp_load_alt(side->qp, &alternate, EHCA_MIG_REARM),
         "ALT_PATH with REARM");
    return true;
}

/* UC: nobody but software sees that the path is gone. */
static bool soft_migrate(Side *side)
{
    Conn *conn = side->conn;
    World *w = conn->world;

    if (conn->service != EHCA_SERVICE_UC) {
        return false;
    }
    if (side->soft_ns == 0 && conn_armed(conn) &&
        side->rail == side->peer->rail &&
        !conn_rail_usable(conn, side->rail) &&
        conn_rail_usable(conn, !side->rail)) {
        side->soft_ns = world_now(w) + world_between(w, 0, 10 * IB_MSEC);
    }
    if (side->soft_ns == 0 || world_now(w) < side->soft_ns) {
        return false;
    }
    side->soft_ns = 0;
    if (side->mig == EHCA_MIG_ARMED &&
        !conn_rail_usable(conn, side->rail)) {
        must(side, host_qp_set_mig(side->qp, EHCA_MIG_MIGRATED), "MIGRATED");
    }
    return true;
}

static bool run_side(Side *side)
{
    World *w = side->conn->world;
    bool any = soft_migrate(side);

    plan_rearm(side);
    any = rearm(side) || any;
    if (side->rnr_until_ns && world_now(w) >= side->rnr_until_ns) {
        post_receives(side);
        any = true;
    }
    if (world_now(w) >= side->next_post_ns) {
        side_post(side);
        any = true;
    }
    return any;
}

static bool run_down(Conn *conn)
{
    World *w = conn->world;
    bool usable[RAILS] = {
        conn_rail_usable(conn, 0), conn_rail_usable(conn, 1),
    };

    if (world_now(w) < conn->reconnect_ns || (!usable[0] && !usable[1])) {
        return false;
    }
    conn_connect(conn, usable[0] && usable[1] ? world_below(w, RAILS)
                                              : usable[1]);
    return true;
}

bool conn_run(World *w)
{
    bool any = false;

    for (unsigned c = 0; c < w->num_conns; c++) {
        Conn *conn = &w->conns[c];

        if (conn->state == CONN_DOWN) {
            any = run_down(conn) || any;
            continue;
        }
        if (conn->sides[0].dead || conn->sides[1].dead || uc_parted(conn)) {
            if (!uc_parted(conn)) {
                judge_death(&conn->sides[conn->sides[1].dead]);
            }
            stop_side(&conn->sides[0]);
            stop_side(&conn->sides[1]);
            conn_down(conn);
            any = true;
            continue;
        }
        any = run_side(&conn->sides[0]) || any;
        any = run_side(&conn->sides[1]) || any;
    }
    return any;
}

static void earlier(int64_t *deadline, int64_t ns)
{
    if (ns && ns < *deadline) {
        *deadline = ns;
    }
}

int64_t conn_deadline(World *w)
{
    int64_t deadline = IB_CLOCK_NEVER;

    for (unsigned c = 0; c < w->num_conns; c++) {
        Conn *conn = &w->conns[c];

        if (conn->state == CONN_DOWN) {
            if (conn->reconnect_ns > world_now(w)) {
                earlier(&deadline, conn->reconnect_ns);
            }
            continue;
        }
        for (unsigned s = 0; s < 2; s++) {
            const Side *side = &conn->sides[s];

            earlier(&deadline, side->next_post_ns);
            earlier(&deadline, side->rearm_ns);
            earlier(&deadline, side->soft_ns);
            earlier(&deadline, side->rnr_until_ns);
        }
    }
    return deadline;
}
