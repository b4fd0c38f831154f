/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Subnet manager and subnet administration (IBTA volume 1, chapters 14, 15).
 *
 * Theory of operation: an Sm is one node of the fabric, a channel adapter
 * with one port.  It has an SMA of its own, sees the fabric through that port
 * only, and only MADs pass.  It owns no thread and asks the system for
 * nothing but memory and, when told to, its LID file:
 *
 *   owner -> Sm   sm_link()      cable of the port up or down
 *                 sm_receive()   a packet that arrived
 *   Sm -> owner   ops->send()    a packet to put on the cable
 *                 ops->log()     a line in words
 *                 ops->event()   a JSON object for the timeline
 *   time          everything else happens in timers of the clock given to
 *                 sm_new(): who owns the clock sleeps until
 *                 ib_clock_deadline() and calls ib_clock_run(); a daemon gives
 *                 a real clock, the simulator the virtual one that it shares
 *                 with its other nodes.
 *
 * None of these calls may be made from within ops->send(); they may from
 * within timers of the same clock.  One thread at a time.
 *
 * docs/sm.md says what the subnet manager does and by which rules.
 */
#ifndef SM_SM_H
#define SM_SM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ib/clock.h"
#include "ib/mad.h"

/* Limits.  What is beyond is refused or left out, with a line in the log. */
#define SM_MAX_NODES 16384u
#define SM_MAX_SWITCHES 4096u
#define SM_MAX_PORTS 131072u         /* of all nodes together */
#define SM_MAX_QUEUED 524288u        /* SMPs, from which on none are added */
#define SM_MAX_WINDOW 64u            /* SMPs in flight */
#define SM_MAX_SUBSCRIPTIONS 4096u
#define SM_MAX_SUBSCRIPTIONS_PER_PORT 64u
#define SM_MAX_REPORTS_QUEUED 64u    /* per subscription */
#define SM_MAX_GROUPS 1024u
#define SM_MAX_MEMBERS 65536u        /* of all multicast groups together */
#define SM_MAX_GROUPS_PER_PORT 128u  /* that it is a member of */
#define SM_MAX_SERVICES 1024u        /* ServiceRecords */
#define SM_MAX_SERVICES_PER_PORT 32u
#define SM_MAX_RMPP 32u              /* table responses under way */
#define SM_MAX_RMPP_BYTES (4u << 20) /* of one table response */
#define SM_MAX_PATH_PAIRS 262144u    /* port pairs examined by one query */
#define SM_MAX_HOPS 63u              /* of a directed route */

typedef struct Sm Sm;

typedef enum SmLogLevel {
    SM_LOG_ERROR,
    SM_LOG_WARN,
    SM_LOG_INFO,
    SM_LOG_DEBUG,
} SmLogLevel;

const char *sm_log_level_name(SmLogLevel level);

/* Values of SMInfo's SMState (14.2.5.13), and the word for each. */
typedef enum SmState {
    SM_NOT_ACTIVE = 0,
    SM_DISCOVERING = 1,
    SM_STANDBY = 2,
    SM_MASTER = 3,
} SmState;

const char *sm_state_name(SmState state);

typedef struct SmOptions {
    uint64_t node_guid, port_guid;
    const char *description;     /* NodeDescription */
    uint64_t gid_prefix;
    uint64_t sm_key;             /* what makes an SA request trusted */
    uint64_t m_key;              /* of every port that has a LID; 0: none */
    uint8_t priority;            /* 0..15 */
    uint8_t lmc;                 /* 0..7, of channel adapters' ports */
    uint8_t subnet_timeout;      /* PortInfo SubnetTimeOut, 0..31 */
    uint8_t packet_life;         /* PathRecord PacketLifeTime, 0..31 */
    unsigned window;             /* SMPs in flight, 1..SM_MAX_WINDOW */
    unsigned mad_retries;
    int64_t mad_timeout_ns;
    int64_t sweep_ns;            /* light sweep; 0: never */
    int64_t poll_ns;             /* standby asks the master */
    bool ipoib;                  /* IPoIB's broadcast group always exists */
    /* Of TIDs: another for each start.  The upper half is never shown. */
    uint64_t seed;
    const char *lid_file;        /* NULL: memory only */
    SmLogLevel log_level;        /* what ops->log gets */
} SmOptions;

/* Every member gets its default; GUIDs are the caller's to fill in. */
void sm_options_init(SmOptions *options);

typedef struct SmOps {
    /*
     * One packet, LRH to ICRC.  False: no room; the SM treats it as lost (its
     * timeouts cover that).
     */
    bool (*send)(void *opaque, const uint8_t *packet, size_t len);
    void (*log)(void *opaque, SmLogLevel level, const char *line);
    /* @json: one object, no newline, shorter than IB_LINK_BODY_MAX. */
    void (*event)(void *opaque, const char *json);
} SmOps;

/*
 * Copies @options; @ops must live as long as the Sm, log and event may be
 * NULL.  NULL and a sentence in *error (free with free()) when an option or
 * the LID file cannot be.
 */
Sm *sm_new(IbClock *clock, const SmOptions *options, const SmOps *ops,
           void *opaque, char **error);
void sm_free(Sm *sm);

/* The cable of the SM's port trained (PortInfo codes) or dropped. */
void sm_link(Sm *sm, bool up, uint8_t speed, uint8_t width);
/* A packet from that cable.  Hostile bytes are counted and dropped. */
void sm_receive(Sm *sm, const uint8_t *packet, size_t len);
/* Asks for a heavy sweep as soon as possible. */
void sm_sweep(Sm *sm);

/*
 * True when the subnet is up as far as the SM knows: master, no sweep under
 * way or wanted, no report unanswered.
 */
bool sm_settled(const Sm *sm);
SmState sm_state(const Sm *sm);
uint16_t sm_lid(const Sm *sm);          /* of its own port, 0: none yet */
uint16_t sm_lid_of(const Sm *sm, uint64_t port_guid);  /* 0: unknown */
/* Port is there, has its LID, is Active. */
bool sm_port_active(const Sm *sm, uint64_t port_guid);

/* Counters since sm_new(). */
typedef struct SmStats {
    uint64_t heavy_sweeps, light_sweeps, sweep_errors;
    uint64_t smps_sent, smp_timeouts, smp_bad_status;
    uint64_t packets_received, packets_dropped, packets_not_sent;
    uint64_t traps_received, traps_repeated, traps_throttled;
    uint64_t lft_blocks_written, mft_blocks_written, port_sets;
    uint64_t mended;         /* what somebody else had written over */
    uint64_t sa_requests, sa_errors;
    uint64_t sa_refused;     /* because their port asks too much */
    uint64_t lines_lost, events_lost;
    uint64_t reports_sent, reports_answered, reports_failed;
    uint64_t reports_dropped;
    uint64_t rmpp_segments, rmpp_aborted;
    unsigned nodes, switches, subscriptions, groups, members, services;
    unsigned rmpp_active;
} SmStats;
void sm_get_stats(const Sm *sm, SmStats *stats);

#endif
