/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The fabric: hosts' ports, switches and cables, and the walk of a packet
 * from the ring of the port that sends it to the ring of the port, or ports,
 * that receive it.
 *
 * Theory of operation: everything in here runs in one thread, on a clock that
 * the caller owns and runs (ib_clock_run); the daemon's forwarding thread or
 * the simulator's only thread.  Nothing blocks, nothing is allocated once the
 * fabric is built (a cable's delay line apart, when a fault is configured).
 *
 * The caller's loop:
 *
 *     for (;;) {
 *         ib_clock_run(clock, N);
 *         if (fabric_run(fabric, budget)) {
 *             continue;                    // more to do
 *         }
 *         if (!fabric_prepare_sleep(fabric)) {
 *             continue;                    // something came in meanwhile
 *         }
 *         sleep until ib_clock_deadline(clock) or a kick from a node;
 *     }
 *
 * The fabric arms one timer of the clock for its own deadlines (head-of-queue
 * lifetime, delays), so that the clock's deadline is the only one to wait for.
 * The simulator may leave fabric_prepare_sleep() out if it polls fabric_run()
 * after each step of a node; nodes that wait for kicks need it.
 *
 * Links: a cable's link is up when it is plugged, both nodes are there and
 * both ports are enabled (a host's: fabric_node_enable(), off after attach; a
 * switch's: unless an SM disabled it).  When the link comes or goes, switch
 * ports hear of it through their SMA (ib/sma.h), hosts through ops->link.
 * A host that is detached has all its cables pulled as far as links go.
 *
 * Ring full: the packet stays at the head of its source ring (no credits) and
 * holds up what is behind it, until there is room or the head-of-queue
 * lifetime of the switch port has passed (PortInfo:HOQLife, 18.2.5.4), when
 * it is discarded and counted.  A port that makes that happen VLStallCount
 * times in a row is stalled: packets to it are discarded at once for 8
 * lifetimes.  VL15 has no credits: a port has a buffer of
 * FABRIC_VL15_BUFFER packets behind its ring, beyond that they are dropped
 * and counted (VL15Dropped).
 */
#ifndef FABRIC_FABRIC_H
#define FABRIC_FABRIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fabric/fault.h"
#include "fabric/topology.h"
#include "ib/clock.h"
#include "ib/link.h"
#include "ib/sma.h"

/* A packet that crossed that many cables goes in circles. */
#define FABRIC_MAX_HOPS 64
/* Packets taken from one source before the next has its turn. */
#define FABRIC_TURN 16
/* VL15 packets a host port holds when its ring is full. */
#define FABRIC_VL15_BUFFER 16
/* MADs a switch holds on their way out of it. */
#define FABRIC_SWITCH_QUEUE 64
/* Packets on their way in one direction of a cable with a delay. */
#define FABRIC_DELAY_LINE 256
/*
 * Head-of-queue lifetime as PortInfo codes it (4.096 us * 2^code): what
 * switch ports start with (268 ms), and what is made of values an SM sets:
 * the receiver is a process that has to be scheduled, and nothing may be
 * stuck for ever.
 */
#define FABRIC_HOQ_LIFE 16
#define FABRIC_HOQ_LIFE_MIN 14
#define FABRIC_HOQ_LIFE_MAX 19
#define FABRIC_VL_STALL_COUNT 7
/* Captures at the same time (a file and a live one, say). */
#define FABRIC_MAX_CAPTURES 4

typedef struct Fabric Fabric;

/* Why a packet went no further. */
typedef enum FabricDrop {
    FABRIC_DROP_NONE,
    FABRIC_DROP_BAD_PACKET,       /* ib_packet_parse() refused it */
    FABRIC_DROP_BAD_SMP,          /* VL15, but not an SMP to QP0 */
    FABRIC_DROP_BAD_ICRC,         /* MAD for a switch itself */
    FABRIC_DROP_LINK_DOWN,
    FABRIC_DROP_PORT_STATE,       /* not VL15, port not Active */
    FABRIC_DROP_NO_ROUTE,         /* no entry in the forwarding table */
    FABRIC_DROP_SAME_PORT,        /* table points back where it came from */
    FABRIC_DROP_LOOP,             /* more than FABRIC_MAX_HOPS */
    FABRIC_DROP_MTU,
    FABRIC_DROP_LIFETIME,         /* head-of-queue lifetime */
    FABRIC_DROP_STALLED,          /* port stalled after several lifetimes */
    FABRIC_DROP_VL15_FULL,
    FABRIC_DROP_FAULT,
    FABRIC_DROP_NOT_FOR_US,       /* reached a switch's port 0, no agent */
    FABRIC_DROP_COUNT
} FabricDrop;
const char *fabric_drop_name(FabricDrop drop);  /* "link-down", ... */
const char *fabric_drop_text(FabricDrop drop);  /* a phrase for people */

typedef enum FabricEventType {
    FABRIC_EVENT_CABLE,           /* pulled or plugged by command */
    FABRIC_EVENT_LINK,            /* a cable's link came up or went down */
    FABRIC_EVENT_PORT_STATE,      /* a switch port's logical state */
    FABRIC_EVENT_NODE_ATTACHED,
    FABRIC_EVENT_NODE_GONE,
    FABRIC_EVENT_TRAP,            /* SMP Trap sent by a host or a switch */
    FABRIC_EVENT_MAD,             /* CM message or SA Report sent by a host */
    FABRIC_EVENT_PACKET_DROPPED,  /* at most FABRIC_DROP_EVENTS per second */
    FABRIC_EVENT_COUNT
} FabricEventType;
const char *fabric_event_name(FabricEventType type);

/* PACKET_DROPPED events per second of clock time; the rest is counted. */
#define FABRIC_DROP_EVENTS 20
/* The same for each node: its MAD and TRAP events, its PORT_STATE events. */
#define FABRIC_NODE_EVENTS 2000

typedef struct FabricEvent {
    FabricEventType type;
    int64_t now_ns;               /* of the fabric's clock */
    int node;                     /* index, -1: none */
    unsigned port;                /* 0: none */
    int cable;                    /* index, -1: none */
    union {
        struct { bool plugged; } plug;
        struct { bool up; uint8_t speed, width; } link;
        struct {
            uint8_t old_state, new_state;
            uint64_t suppressed;  /* of this switch, not told before it */
        } state;
        struct { uint64_t guid; unsigned num_ports; } attached;
        struct {
            uint8_t mgmt_class, method;
            uint16_t attr_id, status;
            uint16_t slid, dlid;
            uint64_t tid;
            bool delivered;       /* it reached somebody */
            uint32_t local_id, remote_id;     /* CM communication ids */
            uint16_t reason;      /* CM: REJ reason, APR status */
            uint16_t trap;        /* Notice: trap number */
            bool has_gid;
            uint8_t gid[16];      /* Notice 64, 65: whose */
            uint64_t suppressed;  /* of this node, not told before it */
        } mad;                    /* TRAP and MAD */
        struct {
            FabricDrop drop;
            IbPacketError error;  /* BAD_PACKET */
            uint16_t slid, dlid;
            uint8_t vl, opcode;
            uint32_t dest_qpn, psn;
            uint64_t suppressed;  /* not told since the last one that was */
        } dropped;
    };
} FabricEvent;

/* One packet on one cable, for the capture. */
typedef struct FabricPacket {
    int64_t now_ns;
    int cable;
    unsigned direction;           /* 0: from ends[0] to ends[1] */
    const uint8_t *header;        /* checked copy of the first bytes ... */
    size_t header_len;
    const uint8_t *rest;          /* ... and what is behind them */
    size_t rest_len;
    FabricDrop drop;              /* NONE: it got through this cable's end */
    IbPacketError error;          /* BAD_PACKET */
    int drop_node;                /* where it was dropped */
    unsigned drop_port;
    bool corrupted;               /* a fault flipped this bit: */
    uint32_t corrupt_bit;         /* counted from the first bit of the LRH */
    bool duplicate;
} FabricPacket;

/* Members may be NULL.  All are called in the fabric's thread. */
typedef struct FabricOps {
    /* A host port's link: @node_opaque is what was given to attach. */
    void (*link)(void *opaque, void *node_opaque, unsigned port, bool up,
                 uint8_t speed, uint8_t width);
    /* The host has packets to take or room to use on this port. */
    void (*kick)(void *opaque, void *node_opaque, unsigned port);
    void (*event)(void *opaque, const FabricEvent *event);
    /*
     * The host wrote what cannot be into a ring of this port.  The port is
     * disabled already; the owner should detach the host, but not in here.
     */
    void (*broken)(void *opaque, void *node_opaque, unsigned port);
    /* For cables with a bit set by fabric_cable_capture(). */
    void (*capture)(void *opaque, unsigned captures,
                    const FabricPacket *packet);
} FabricOps;

/* What a cable carried, and what went no further after it. */
typedef struct FabricCableStats {
    uint64_t packets[2], bytes[2];        /* by direction */
    uint64_t drops[2][FABRIC_DROP_COUNT];
    uint64_t duplicated[2], corrupted[2], delayed[2];
} FabricCableStats;

/* Keeps @topology (not a copy: it must outlive the fabric). */
Fabric *fabric_new(const Topology *topology, IbClock *clock, uint64_t seed,
                   const FabricOps *ops, void *opaque);
/* Hosts should have been detached; their memory is the caller's. */
void fabric_free(Fabric *fabric);

/*
 * A host joins.  @memory[0 .. num_ports - 1] is port 1's, port 2's, ...;
 * formatted rings, mapped until after fabric_node_detach().  False and a
 * sentence in *error (g_free()) if the topology does not know the name or
 * wants another number of ports or GUID, if the host is there already or if
 * another node uses one of its GUIDs.  All ports are disabled at first.
 */
bool fabric_node_attach(Fabric *fabric, const IbLinkHello *hello,
                        IbLinkPortMemory *const *memory, void *node_opaque,
                        char **error);
/* @node: topology_find_node(). */
void fabric_node_detach(Fabric *fabric, int node);
bool fabric_node_attached(const Fabric *fabric, int node);
void fabric_node_enable(Fabric *fabric, int node, unsigned port, bool enable);
/* GUID the host gave, 0 when it is not there. */
uint64_t fabric_node_guid(const Fabric *fabric, int node);

/* @cable: topology_find_cable().  Returns whether that changed anything. */
bool fabric_cable_set(Fabric *fabric, int cable, bool plugged);
bool fabric_cable_plugged(const Fabric *fabric, int cable);
bool fabric_cable_link(const Fabric *fabric, int cable);
/* Speed and width its link has, or would have. */
void fabric_cable_rate(const Fabric *fabric, int cable, uint8_t *speed,
                       uint8_t *width);
/* False (out of memory) leaves the old one.  All zero: no faults. */
bool fabric_cable_fault(Fabric *fabric, int cable, const FabricFault *fault);
const FabricFault *fabric_cable_get_fault(const Fabric *fabric, int cable);
/* Bits of the captures that want this cable. */
void fabric_cable_capture(Fabric *fabric, int cable, unsigned captures);
unsigned fabric_cable_get_capture(const Fabric *fabric, int cable);
const FabricCableStats *fabric_cable_stats(const Fabric *fabric, int cable);
/* Cable at a node's port, or -1; which end of it that is in *end. */
int fabric_port_cable(const Fabric *fabric, int node, unsigned port,
                      unsigned *end);

/* A switch's agent (LIDs, states, counters), NULL for a host. */
const IbSma *fabric_switch_sma(const Fabric *fabric, int node);

/* Moves up to @budget packets; true: there is more to do at once. */
bool fabric_run(Fabric *fabric, unsigned budget);
/* Packets it has moved or dropped so far: tells whether a run did anything. */
uint64_t fabric_moved(const Fabric *fabric);
/* All sides will kick from now on; false: look again first. */
bool fabric_prepare_sleep(Fabric *fabric);
/* Earliest time at which something inside becomes due (see above). */
int64_t fabric_deadline(const Fabric *fabric);

#endif
