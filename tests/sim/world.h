/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The simulated world: hosts (engines with a driver), the fabric library and
 * the subnet manager on one virtual clock, in one thread, from one seed.
 *
 * Theory of operation.
 *
 * Time stands still while anything is left to do (world_settle()), then jumps
 * to the next deadline: of a timer of the clock, or of a side that wants to
 * post (world_step()).  Whatever could be otherwise is drawn from the world's
 * random numbers: topology, message sizes, the order in which nodes run and
 * how much they do at a time, what goes wrong and when.  So the seed is the
 * run.
 *
 *   world.c   nodes, time, trace, failure
 *   check.c   what must never be wrong, looked at all the time
 *   conn.c    connections: traffic, rearming after a migration, reconnecting
 *   script.c  what is done to the world, and what must come of it
 *   sim.c     command line
 *
 * Every note (event, completion, act of the script) goes into the trace's
 * hash; two runs of a seed must give the same.  When a check fails the last
 * notes, the seed and the command to replay are printed and the process ends.
 */
#ifndef SIM_WORLD_H
#define SIM_WORLD_H

#include <stdio.h>

#include "fabric/fabric.h"
#include "host.h"
#include "sm/sm.h"

#define WORLD_MAX_HOSTS 4
#define WORLD_MAX_CONNS 6
#define WORLD_NOTES 64
#define RAILS 2

/* ------------------------------------------------------------------ */
/* What may go wrong                                                  */
/* ------------------------------------------------------------------ */

/* Packets: a cable has it with @rate, drawn up to @max_rate per era. */
typedef struct FaultRate {
    bool on;
    double max_rate;
} FaultRate;

typedef struct FaultDelay {
    bool on;
    double max_rate;
    int64_t max_ns;
} FaultDelay;

/* Acts of the script: chosen with @weight among those that are on. */
typedef struct FaultAct {
    bool on;
    unsigned weight;
} FaultAct;

typedef struct WorldFaults {
    FaultRate drop, duplicate, corrupt;
    FaultDelay delay;
    FaultAct pull;          /* cable of a primary path */
    FaultAct alternate;     /* cable of an alternate path */
    FaultAct bounce;        /* pulled and restored within the retry budget */
    FaultAct both;          /* both paths at once: connections must die */
    FaultAct trunk;         /* cable between switches */
    FaultAct software;      /* MIGRATED written by one side, or by both */
    FaultAct sm_kill;       /* subnet manager killed, restarted later */
    FaultAct sm_cable;      /* its cable pulled */
    FaultAct host;          /* host killed, born again */
    FaultAct rnr;           /* receives posted late */
    FaultAct reload;        /* alternate loaded again while ARMED */
    FaultAct drain;         /* send queue drained (SQD) and taken up again */
} WorldFaults;

/* "all", "none", or names with commas, "-name" takes one out. */
bool world_faults_parse(WorldFaults *faults, const char *list, char *error,
                        size_t size);
const char *world_fault_names(void);

typedef enum WorldTopology {
    TOPOLOGY_BACK_TO_BACK,           /* no switch, no subnet manager */
    TOPOLOGY_ONE_SWITCH,
    TOPOLOGY_TWO_RAILS,
    TOPOLOGY_RING,
    TOPOLOGY_FAT_TREE,
    TOPOLOGIES
} WorldTopology;
const char *world_topology_name(unsigned topology);

typedef struct WorldOptions {
    uint64_t seed;
    uint64_t failovers;
    WorldFaults faults;
    int topology;                    /* WorldTopology, or -1: by the seed */
    bool verbose;                    /* acts and events to stdout */
    bool progress;
    FILE *trace;                     /* every note as a line; may be NULL */
    const char *replay;              /* command line without the seed, ... */
    bool replay_is_whole;            /* ... which it does not need */
} WorldOptions;

/* ------------------------------------------------------------------ */
/* Notes                                                              */
/* ------------------------------------------------------------------ */

typedef enum NoteKind {
    NOTE_ACT,                        /* script; who: act */
    NOTE_PORT,                       /* who: host; port, from, to */
    NOTE_QP,                         /* who: host; qpn, from, to, cause */
    NOTE_MIG,
    NOTE_QP_ERROR,
    NOTE_ALT,
    NOTE_FIRST_PAYLOAD,
    NOTE_MIG_REFUSED,
    NOTE_EQE,                        /* who: host; id, number, token */
    NOTE_NEQE,
    NOTE_CABLE,                      /* who: cable; plugged */
    NOTE_LINK,
    NOTE_SWITCH_PORT,                /* who: node; port, from, to */
    NOTE_NODE,                       /* who: node; attached */
    NOTE_SM,                         /* hash of what the SM told */
    NOTE_POST,                       /* who: side; kind, seq, len */
    NOTE_DONE,                       /* who: side; kind, seq, status */
    NOTE_RECEIVED,                   /* who: side; seq, len */
    NOTE_CONN,                       /* who: connection; state */
    NOTE_KINDS
} NoteKind;

typedef struct Note {
    int64_t time_ns;
    uint32_t kind, who;
    uint64_t word[4];
} Note;

/* ------------------------------------------------------------------ */
/* Nodes                                                              */
/* ------------------------------------------------------------------ */

typedef struct World World;
typedef struct Conn Conn;
typedef struct Side Side;

typedef struct SimPort {
    unsigned state;                  /* IB_PORT_*, by the engine's events */
    bool available;                  /* as the driver knows it, by the NEQ */
    uint16_t lid;                    /* first ever seen; 0: none yet */
    int cable;
    int64_t bad_ns;                  /* last time it could not be used */
    bool told_enabled;
} SimPort;

typedef struct SimHost {
    World *world;
    unsigned index;
    Host *host;                      /* NULL: dead */
    int node;
    uint64_t guid;
    SimPort ports[EHCA_MAX_PORTS + 1];
    bool look_at_lids;
    uint64_t death_sm_starts;        /* subnet managers before it died */
} SimHost;

typedef struct SimSm {
    Sm *sm;                          /* NULL: dead */
    int node;
    int cable;
    IbLinkPortMemory *memory;
    IbRing tx, rx;
    unsigned starts;
} SimSm;

/*
 * A cable from host to host.  There is no place for a subnet manager: the
 * cable gives out fixed LIDs, some time after the link came up.
 */
typedef struct SimDirect {
    World *world;
    HostCable *cable;                /* NULL: a host is dead */
    bool plugged;
    FabricFault fault;               /* drop, duplicate, corrupt */
    int64_t activate_ns;             /* ports become Active then; 0: are */
} SimDirect;

/* ------------------------------------------------------------------ */
/* Connections                                                        */
/* ------------------------------------------------------------------ */

#define SIDE_SLOT 32768u
#define SIDE_SLOTS 64u
#define SIDE_READ_SLOTS 8u
#define SIDE_WINDOW 40u
#define SIDE_OPS 128u

typedef enum OpKind {
    OP_SEND,
    OP_WRITE_IMM,
    OP_WRITE,                        /* told of by the SEND behind it */
    OP_READ,
    OP_FETCH_ADD,
    OP_KINDS
} OpKind;

typedef struct Op {
    uint64_t wr_id, seq, expect;
    int64_t post_ns;
    uint32_t len;
    uint8_t kind, slot, read_slot;
    bool signaled;
} Op;

struct Side {
    Conn *conn;
    unsigned index;                  /* 0, 1 */
    SimHost *sim;
    Side *peer;
    HostQp *qp;
    HostCq *cq;
    HostMr *mr;
    uint32_t path_bits;
    /* What the engine's events said. */
    unsigned state, mig, rail;
    unsigned peer_mig;               /* when this side migrated last */
    uint64_t migrations, path_migs, drained;
    bool await_payload;              /* none since the last migration */
    uint64_t epoch_migrations;       /* since the last connect */
    uint64_t visible_since;          /* messages since the last migration */
    bool dead;
    /* Sending. */
    Op ops[SIDE_OPS];
    uint32_t ops_head, ops_tail;
    uint32_t unsignaled;             /* at the end of ops */
    uint64_t wr_next, sent_seq, acked_seq;
    uint64_t adds_posted;            /* remote counter when all is executed */
    int64_t next_post_ns, interval_ns;
    /* Receiving. */
    uint64_t recv_seq, recv_wr_next, recv_wr_posted;
    int64_t rnr_until_ns;
    /* Rearming. */
    int64_t rearm_ns;                /* due then; 0: not planned */
    int64_t soft_ns;                 /* UC: MIGRATED is written then */
};

typedef enum ConnState {
    CONN_DOWN,
    CONN_UP,
} ConnState;

struct Conn {
    World *world;
    unsigned index;
    ConnState state;
    unsigned service;
    unsigned ports[RAILS][2];        /* port of each side on each rail */
    bool grh;
    unsigned mtu_code, timeout, retry_count;
    uint32_t epoch;                  /* of message numbers */
    int64_t reconnect_ns;            /* DOWN: not before */
    uint64_t counted;                /* failovers of both sides, this epoch */
    unsigned window;                 /* messages on their way */
    unsigned max_len;
    Side sides[2];
};

/* ------------------------------------------------------------------ */
/* The world                                                          */
/* ------------------------------------------------------------------ */

struct World {
    WorldOptions options;
    uint64_t random[2];
    IbClock clock;
    WorldTopology kind;
    Topology *topology;
    Fabric *fabric;                  /* NULL: back to back */
    SimDirect direct[RAILS];         /* back to back */
    SimHost hosts[WORLD_MAX_HOSTS];
    unsigned num_hosts;
    SimSm sm;
    SmOptions sm_options;
    int trunks[8];
    unsigned num_trunks;
    Conn conns[WORLD_MAX_CONNS];
    unsigned num_conns;
    unsigned host_budget, fabric_budget;
    bool lossy;                      /* packet faults are on */
    int64_t ghost_until_ns;          /* packets may come twice, or late */
    bool expect_alive;               /* no connection may die now */
    int64_t route_bad_ns;            /* last time routes were in doubt */
    int64_t pace_ns;                 /* of posting, this era */
    uint64_t hash;
    uint64_t failovers, pulls, messages, reconnects, sm_starts;
    uint64_t host_deaths, refused, eras;
    Note notes[WORLD_NOTES];
    uint64_t num_notes;
};

World *world_new(const WorldOptions *options);
void world_free(World *w);

/* xoroshiro128+; @n > 0: 0 .. n - 1. */
uint64_t world_random(World *w);
uint64_t world_below(World *w, uint64_t n);
bool world_chance(World *w, double probability);
/* min .. max, both included. */
int64_t world_between(World *w, int64_t min, int64_t max);

static inline int64_t world_now(World *w)
{
    return ib_clock_now(&w->clock);
}

void world_note(World *w, NoteKind kind, uint32_t who, uint64_t a,
                uint64_t b, uint64_t c, uint64_t d);
/* A check failed: tells all, ends the process. */
__attribute__((noreturn, format(printf, 2, 3)))
void world_fail(World *w, const char *format, ...);

/* All that can happen at this instant. */
void world_settle(World *w);
/* Settles, then moves time to what comes next. */
void world_step(World *w);
/* Until @done; false: @ns passed without. */
typedef bool WorldCondition(World *w, void *opaque);
bool world_wait(World *w, int64_t ns, WorldCondition *done, void *opaque);
void world_sleep(World *w, int64_t ns);

void world_sm_start(World *w);
void world_sm_kill(World *w);
void world_host_start(World *w, SimHost *sim);
void world_host_kill(World *w, SimHost *sim);
void world_cable(World *w, int cable, bool plugged);
void world_packet_faults(World *w, bool on);
bool world_port_usable(World *w, SimHost *sim, unsigned port);
/* Every cable is up, every port Active, the subnet manager at rest. */
bool world_ready(World *w);
/* NULL: node @n is no switch. */
const IbSma *world_switch_sma(World *w, unsigned n);

/* check.c */
void check_event(SimHost *sim, const EhcaEvent *event);
void check_eqe(SimHost *sim, const HostEqe *eqe);
void check_neqe(SimHost *sim, const HostEqe *eqe);
/* At the end of each instant. */
void check_instant(World *w);
/* When everything is healed: LIDs, counters, both sides of each thing. */
void check_healed(World *w);

/* conn.c */
void conn_new(World *w, unsigned index);
/* The host of some sides was born again, or died. */
void conn_host_died(World *w, SimHost *sim);
void conn_event(SimHost *sim, const EhcaEvent *event);
Side *conn_side_by_qpn(SimHost *sim, uint32_t qpn);
Side *conn_side_by_token(SimHost *sim, uint32_t token);
/* Polls the sides of this host; true: there was something. */
bool conn_poll(World *w, SimHost *sim);
/* What is due now; true: something was done. */
bool conn_run(World *w);
int64_t conn_deadline(World *w);
bool conn_rail_usable(Conn *conn, unsigned rail);
int64_t conn_rail_bad_ns(Conn *conn, unsigned rail);
/* Longest time without an answer before retries are used up. */
int64_t conn_budget_ns(const Conn *conn);
bool conn_armed(const Conn *conn);
/* No side waits for an answer so long that it began to retry. */
bool conn_calm(const Conn *conn);
void conn_faster(World *w);
/* ALT_PATH alone; allowed while ARMED. */
void conn_reload_alternate(Side *side);

/* script.c */
void script_run(World *w);

#endif
