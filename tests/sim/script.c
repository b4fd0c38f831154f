/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The script: what is done to the world, act by act, and what must come of
 * it.
 *
 * Theory of operation.  Between two acts all connections are ARMED on both
 * sides and every rail can be used.  An act breaks something, waits for what
 * must follow, repairs it, and the world has to come back to that state by
 * itself.  Acts are grouped in eras: an era draws the packet faults, the
 * pace of the traffic and how much each node does at a time; it ends with
 * everything healed, traffic in all directions and check_healed().
 *
 * A failover is a connection whose two sides have both moved from ARMED to
 * MIGRATED, whatever the cause.
 */
#include <string.h>

#include "world.h"

#define ARM_LIMIT (120 * IB_SEC)
#define LOSSY_LIMIT (5 * IB_SEC)
#define FLOW_LIMIT (30 * IB_SEC)
#define PROGRESS 1000u

/* ------------------------------------------------------------------ */
/* Waiting                                                            */
/* ------------------------------------------------------------------ */

static bool ready(World *w, void *opaque)
{
    if (!world_ready(w)) {
        return false;
    }
    for (unsigned c = 0; c < w->num_conns; c++) {
        Conn *conn = &w->conns[c];

        if (!conn_armed(conn) || conn->sides[0].rail != conn->sides[1].rail ||
            !conn_rail_usable(conn, 0) || !conn_rail_usable(conn, 1) ||
            !conn_calm(conn)) {
            return false;
        }
    }
    return true;
}

/*
 * Cables as good as new.  What was lost before may still use up retries, so
 * deaths are forgiven until everything is ready.
 */
static bool heal_packets(World *w)
{
    bool lossy = w->lossy, done;

    world_packet_faults(w, false);
    w->lossy = lossy;
    conn_faster(w);
    done = world_wait(w, ARM_LIMIT, ready, NULL);
    w->lossy = false;
    return done;
}

static void wait_ready(World *w)
{
    conn_faster(w);
    if (world_wait(w, w->lossy ? LOSSY_LIMIT : ARM_LIMIT, ready, NULL)) {
        return;
    }
    /* Cables can be too bad for anything to get through. */
    if (w->lossy && heal_packets(w)) {
        return;
    }
    for (unsigned c = 0; c < w->num_conns; c++) {
        Conn *conn = &w->conns[c];

        fprintf(stderr, "connection %u: %s; h%u: rail %u, migration state "
                "%u, QP state %u; h%u: rail %u, migration state %u, QP state "
                "%u; rails usable: %u %u\n", c,
                conn->state == CONN_UP ? "up" : "down",
                conn->sides[0].sim->index, conn->sides[0].rail,
                conn->sides[0].mig, conn->sides[0].state,
                conn->sides[1].sim->index, conn->sides[1].rail,
                conn->sides[1].mig, conn->sides[1].state,
                conn_rail_usable(conn, 0), conn_rail_usable(conn, 1));
    }
    fprintf(stderr, "all ports Active, subnet manager at rest: %u\n",
            world_ready(w));
    world_fail(w, "not everything was ARMED again within %lld s",
               (long long)(ARM_LIMIT / IB_SEC));
}

/* What connections looked like before an act. */
typedef struct Before {
    uint64_t migrations[WORLD_MAX_CONNS][2];
    uint64_t seen[WORLD_MAX_CONNS][2];
    uint32_t epoch[WORLD_MAX_CONNS];
    bool must_move[WORLD_MAX_CONNS];
    uint64_t sent_more;
} Before;

static void remember(World *w, Before *before)
{
    memset(before, 0, sizeof(*before));
    for (unsigned c = 0; c < w->num_conns; c++) {
        before->epoch[c] = w->conns[c].epoch;
        for (unsigned s = 0; s < 2; s++) {
            const Side *side = &w->conns[c].sides[s];

            before->migrations[c][s] = side->epoch_migrations;
            before->seen[c][s] = side->recv_seq;
        }
    }
}

static bool same_epoch(const World *w, const Before *before, unsigned c)
{
    return w->conns[c].epoch == before->epoch[c] &&
           w->conns[c].state == CONN_UP;
}

static bool all_moved(World *w, void *opaque)
{
    const Before *before = opaque;

    for (unsigned c = 0; c < w->num_conns; c++) {
        if (!before->must_move[c] || !same_epoch(w, before, c)) {
            continue;
        }
        for (unsigned s = 0; s < 2; s++) {
            if (w->conns[c].sides[s].epoch_migrations <=
                before->migrations[c][s]) {
                return false;
            }
        }
    }
    return true;
}

/* Each side got messages, by whatever path. */
static bool all_flow(World *w, void *opaque)
{
    const Before *before = opaque;

    for (unsigned c = 0; c < w->num_conns; c++) {
        for (unsigned s = 0; s < 2 && same_epoch(w, before, c); s++) {
            if (w->conns[c].sides[s].recv_seq < before->seen[c][s] +
                before->sent_more) {
                return false;
            }
        }
    }
    return true;
}

static void wait_flow(World *w, unsigned messages)
{
    Before before;

    remember(w, &before);
    before.sent_more = messages;
    conn_faster(w);
    if (!world_wait(w, FLOW_LIMIT, all_flow, &before)) {
        world_fail(w, "messages do not flow in all directions");
    }
}

/* 10 us to @max, short ones as likely as long ones. */
static int64_t some_time(World *w, int64_t max)
{
    int64_t ns = 10 * IB_USEC;

    while (ns < max && world_chance(w, 0.8)) {
        ns *= 3;
    }
    return world_between(w, 1, ns < max ? ns : max);
}

/* ------------------------------------------------------------------ */
/* Acts                                                               */
/* ------------------------------------------------------------------ */

static Conn *some_conn(World *w)
{
    return &w->conns[world_below(w, w->num_conns)];
}

static int rail_cable(Conn *conn, unsigned rail, unsigned s)
{
    return conn->sides[s].sim->ports[conn->ports[rail][s]].cable;
}

static bool primary_on(Conn *conn, int cable)
{
    return rail_cable(conn, conn->sides[0].rail, 0) == cable ||
           rail_cable(conn, conn->sides[1].rail, 1) == cable;
}

static int64_t longest_budget(World *w)
{
    int64_t longest = 0;

    for (unsigned c = 0; c < w->num_conns; c++) {
        int64_t budget = conn_budget_ns(&w->conns[c]);

        longest = budget > longest ? budget : longest;
    }
    return longest;
}

/* Those that had to move did, once, and the others did not. */
static void expect_moves(World *w, const Before *before)
{
    for (unsigned c = 0; c < w->num_conns; c++) {
        for (unsigned s = 0; s < 2; s++) {
            uint64_t moved = w->conns[c].sides[s].epoch_migrations -
                             before->migrations[c][s];

            if (!same_epoch(w, before, c)) {
                if (!w->lossy) {
                    world_fail(w, "connection %u did not survive", c);
                }
                break;
            }
            if (w->lossy ? moved < before->must_move[c]
                         : moved != before->must_move[c]) {
                world_fail(w, "connection %u side %u migrated %llu times "
                           "instead of %u", c, s, (unsigned long long)moved,
                           before->must_move[c]);
            }
        }
    }
}

static void wait_moves(World *w, Before *before)
{
    int64_t limit = 8 * longest_budget(w) + 2 * IB_SEC;

    conn_faster(w);
    if (!world_wait(w, limit, all_moved, before)) {
        for (unsigned c = 0; c < w->num_conns; c++) {
            for (unsigned s = 0; s < 2; s++) {
                fprintf(stderr, "connection %u side %u: must move: %u; "
                        "%llu migrations, %llu before; rail %u, migration "
                        "state %u\n", c, s, before->must_move[c],
                        (unsigned long long)
                        w->conns[c].sides[s].epoch_migrations,
                        (unsigned long long)before->migrations[c][s],
                        w->conns[c].sides[s].rail, w->conns[c].sides[s].mig);
            }
        }
        world_fail(w, "not all sides migrated within %lld ms",
                   (long long)(limit / IB_MSEC));
    }
    expect_moves(w, before);
}

/*
 * Pulls @cable: every connection over it must move, no other.  @flow: all
 * sides may send.
 */
static void pull_and_watch(World *w, int cable, bool flow)
{
    Before before;

    remember(w, &before);
    for (unsigned c = 0; c < w->num_conns; c++) {
        before.must_move[c] = primary_on(&w->conns[c], cable);
    }
    w->pulls++;
    w->expect_alive = !w->lossy;
    world_cable(w, cable, false);
    wait_moves(w, &before);
    if (flow && world_chance(w, 0.3)) {
        wait_flow(w, 2);
    }
    w->expect_alive = false;
}

static void pull_some(World *w, bool flow)
{
    Conn *conn = some_conn(w);
    unsigned s = world_below(w, 2);
    int cable = rail_cable(conn, conn->sides[s].rail, s);

    pull_and_watch(w, cable, flow);
    world_sleep(w, some_time(w, 20 * IB_MSEC));
    world_cable(w, cable, true);
}

static void act_pull(World *w)
{
    pull_some(w, true);
}

static void act_alternate(World *w)
{
    Conn *conn = some_conn(w);
    unsigned s = world_below(w, 2);
    int cable = rail_cable(conn, !conn->sides[s].rail, s);

    pull_and_watch(w, cable, true);
    world_sleep(w, some_time(w, 20 * IB_MSEC));
    world_cable(w, cable, true);
}

/* Shorter than the retry budget: may migrate or not, must live. */
static void act_bounce(World *w)
{
    Conn *conn = some_conn(w);
    unsigned s = world_below(w, 2);
    int cable = rail_cable(conn, conn->sides[s].rail, s);

    w->pulls++;
    w->expect_alive = !w->lossy;
    world_cable(w, cable, false);
    world_sleep(w, world_between(w, 1, conn_budget_ns(conn)));
    world_cable(w, cable, true);
    world_sleep(w, conn_budget_ns(conn));
    w->expect_alive = false;
}

static void act_both(World *w)
{
    Conn *conn = some_conn(w);
    unsigned s = world_below(w, 2), t = world_below(w, 2);
    int first = rail_cable(conn, conn->sides[s].rail, s);
    int second = rail_cable(conn, !conn->sides[t].rail, t);

    w->pulls += 2;
    world_cable(w, first, false);
    world_sleep(w, some_time(w, 10 * IB_MSEC));
    world_cable(w, second, false);
    world_sleep(w, some_time(w, 4 * longest_budget(w)));
    world_cable(w, world_chance(w, 0.5) ? first : second, true);
    world_sleep(w, some_time(w, 100 * IB_MSEC));
    world_cable(w, first, true);
    world_cable(w, second, true);
}

static void act_trunk(World *w)
{
    int cable;

    if (w->num_trunks == 0) {
        return;
    }
    cable = w->trunks[world_below(w, w->num_trunks)];
    w->pulls++;
    world_cable(w, cable, false);
    world_sleep(w, some_time(w, 300 * IB_MSEC));
    world_cable(w, cable, true);
}

static void act_software(World *w)
{
    Conn *conn = some_conn(w);
    bool both = world_chance(w, 0.3);
    unsigned s = world_below(w, 2);
    Before before;

    remember(w, &before);
    before.must_move[conn->index] = true;
    w->expect_alive = !w->lossy;
    for (unsigned i = 0; i < 1u + both; i++) {
        Side *side = &conn->sides[s ^ i];
        int64_t rc = host_qp_set_mig(side->qp, EHCA_MIG_MIGRATED);

        if (rc != EHCA_RC_SUCCESS) {
            world_fail(w, "connection %u side %u: MIGRATED while ARMED "
                       "answered %lld", conn->index, side->index,
                       (long long)rc);
        }
    }
    wait_moves(w, &before);
    w->expect_alive = false;
}

static void maybe_pull(World *w)
{
    if (world_chance(w, 0.5)) {
        act_pull(w);
    }
}

static void act_sm_kill(World *w)
{
    world_sm_kill(w);
    maybe_pull(w);
    world_sleep(w, some_time(w, 1 * IB_SEC));
    world_sm_start(w);
}

static void act_sm_cable(World *w)
{
    w->pulls++;
    w->route_bad_ns = world_now(w);
    world_cable(w, w->sm.cable, false);
    maybe_pull(w);
    world_sleep(w, some_time(w, 300 * IB_MSEC));
    world_cable(w, w->sm.cable, true);
    w->route_bad_ns = world_now(w);
}

static void act_host(World *w)
{
    SimHost *sim = &w->hosts[world_below(w, w->num_hosts)];

    w->host_deaths++;
    world_host_kill(w, sim);
    world_sleep(w, some_time(w, 500 * IB_MSEC));
    world_host_start(w, sim);
}

static void act_rnr(World *w)
{
    Side *side = &some_conn(w)->sides[world_below(w, 2)];

    side->rnr_until_ns = world_now(w) + world_between(w, 1, 5 * IB_MSEC);
    world_sleep(w, world_between(w, 1, 5 * IB_MSEC));
    maybe_pull(w);
}

static void act_reload(World *w)
{
    Side *side = &some_conn(w)->sides[world_below(w, 2)];
    uint64_t migrations = side->epoch_migrations;
    uint32_t epoch = side->conn->epoch;

    conn_reload_alternate(side);
    world_sleep(w, some_time(w, 2 * IB_MSEC));
    if (!w->lossy && side->conn->epoch == epoch &&
        (side->epoch_migrations != migrations ||
         side->mig != EHCA_MIG_ARMED)) {
        world_fail(w, "connection %u side %u: loading the alternate while "
                   "ARMED changed the migration state to %u",
                   side->conn->index, side->index, side->mig);
    }
}

typedef struct Drain {
    Side *side;
    uint64_t drained;
    uint32_t epoch;
} Drain;

static bool drained(World *w, void *opaque)
{
    const Drain *d = opaque;

    return d->side->drained > d->drained || d->side->state != EHCA_QPS_SQD ||
           d->side->conn->epoch != d->epoch;
}

/* What has begun is finished, over whatever path; then it goes on. */
static void act_drain(World *w)
{
    Side *side = &some_conn(w)->sides[world_below(w, 2)];
    Drain d = { side, side->drained, side->conn->epoch };

    if (host_qp_to(side->qp, EHCA_QPS_SQD) != EHCA_RC_SUCCESS) {
        world_fail(w, "connection %u side %u: SQD was refused",
                   side->conn->index, side->index);
    }
    if (world_chance(w, 0.5)) {
        pull_some(w, false);
    }
    if (!world_wait(w, 10 * IB_SEC, drained, &d)) {
        world_fail(w, "connection %u side %u: the send queue did not drain",
                   side->conn->index, side->index);
    }
    world_sleep(w, some_time(w, 2 * IB_MSEC));
    if (side->state == EHCA_QPS_SQD) {
        if (side->conn->epoch == d.epoch && side->drained != d.drained + 1) {
            world_fail(w, "connection %u side %u: SQ_DRAINED came %llu times",
                       side->conn->index, side->index,
                       (unsigned long long)(side->drained - d.drained));
        }
        if (host_qp_to(side->qp, EHCA_QPS_RTS) != EHCA_RC_SUCCESS) {
            world_fail(w, "connection %u side %u: SQD to RTS was refused",
                       side->conn->index, side->index);
        }
    }
}

typedef struct Act {
    const char *name;
    size_t fault;                    /* FaultAct in WorldFaults */
    void (*run)(World *w);
    bool needs_sm;
} Act;

#define ACT(member, sm) \
    { #member, offsetof(WorldFaults, member), act_##member, sm }

static const Act acts[] = {
    ACT(pull, false), ACT(alternate, false), ACT(bounce, false),
    ACT(both, false), ACT(trunk, false), ACT(software, false),
    ACT(sm_kill, true), ACT(sm_cable, true), ACT(host, false),
    ACT(rnr, false), ACT(reload, false), ACT(drain, false),
};

#define NUM_ACTS (sizeof(acts) / sizeof(acts[0]))

static unsigned act_weight(const World *w, size_t i)
{
    const FaultAct *fault = (const FaultAct *)
        ((const char *)&w->options.faults + acts[i].fault);

    return fault->on && (w->fabric || !acts[i].needs_sm) ? fault->weight : 0;
}

static void run_act(World *w)
{
    unsigned total = 0;
    uint64_t draw;

    for (size_t i = 0; i < NUM_ACTS; i++) {
        total += act_weight(w, i);
    }
    if (total == 0) {
        world_sleep(w, IB_MSEC);
        return;
    }
    draw = world_below(w, total);
    for (size_t i = 0; i < NUM_ACTS; i++) {
        unsigned weight = act_weight(w, i);

        if (draw < weight) {
            if (w->options.verbose) {
                printf("%14.6f ms --- %s\n", (double)world_now(w) / 1e6,
                       acts[i].name);
            }
            world_note(w, NOTE_ACT, i, w->failovers, 0, 0, 0);
            acts[i].run(w);
            return;
        }
        draw -= weight;
    }
}

/* ------------------------------------------------------------------ */
/* Eras                                                               */
/* ------------------------------------------------------------------ */

static void begin_era(World *w)
{
    static const unsigned budgets[] = { 8, 32, 256 };
    static const int64_t paces[] = {
        50 * IB_USEC, 200 * IB_USEC, 1 * IB_MSEC,
    };

    w->eras++;
    w->pace_ns = paces[world_below(w, 3)];
    w->host_budget = budgets[world_below(w, 3)];
    w->fabric_budget = budgets[world_below(w, 3)];
    world_packet_faults(w, world_chance(w, 0.5));
}

static void end_era(World *w)
{
    if (!heal_packets(w)) {
        wait_ready(w);
    }
    wait_flow(w, 3);
    wait_ready(w);
    check_healed(w);
}

void script_run(World *w)
{
    uint64_t told = 0;

    while (w->failovers < w->options.failovers) {
        uint64_t number = world_between(w, 10, 60);

        wait_ready(w);
        begin_era(w);
        for (uint64_t i = 0; i < number &&
             w->failovers < w->options.failovers; i++) {
            run_act(w);
            wait_ready(w);
            if (w->options.progress && w->failovers / PROGRESS > told) {
                told = w->failovers / PROGRESS;
                fprintf(stderr, "%llu failovers ...\n",
                        (unsigned long long)w->failovers);
            }
        }
        end_era(w);
    }
}
