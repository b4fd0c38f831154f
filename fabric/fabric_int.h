/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Inside of the fabric library: what fabric.c (nodes, cables, links),
 * forward.c (the walk) and switch.c (a switch's agents) share.
 */
#ifndef FABRIC_INT_H
#define FABRIC_INT_H

#include "fabric/fabric.h"

/* LRH GRH BTH DETH MAD ICRC: the longest packet that carries a MAD. */
#define MAD_PACKET_MAX (IB_LRH_LEN + IB_GRH_LEN + IB_BTH_LEN + IB_DETH_LEN + \
                        IB_MAD_LEN + IB_ICRC_LEN)
#define LFT_SIZE 0xC000              /* all unicast LIDs */
#define LFT_BLOCK 64
#define LFT_NONE 0xFF
#define MFT_SIZE 1024
#define MFT_BLOCK 32
#define MFT_POSITIONS (IB_SMA_MAX_PORTS / 16 + 1)

/* Packets in the fabric's own memory, first in, first out. */
typedef struct FabricQueueEntry {
    int64_t due_ns;                  /* delay line: not before */
    uint32_t len;
    uint32_t out_port;               /* switch: leave by; 0: by the table */
    uint8_t data[];
} FabricQueueEntry;

typedef struct FabricQueue {
    uint8_t *memory;
    size_t stride;
    uint32_t slots, head, count;
} FabricQueue;

/* Events that a host can provoke: so many a second are told. */
typedef struct FabricLimit {
    int64_t second;
    unsigned told;
    uint64_t suppressed;             /* since the last one that was told */
} FabricLimit;

typedef struct FabricSource FabricSource;
typedef struct FabricPort FabricPort;
typedef struct FabricNode FabricNode;
typedef struct FabricCable FabricCable;
typedef struct FabricSwitch FabricSwitch;

/* Where packets start, or resume, their walk. */
typedef enum FabricSourceKind {
    SOURCE_RING,                     /* host port's ring: crosses its cable */
    SOURCE_VL15,                     /* host port's buffer: into its ring */
    SOURCE_SWITCH,                   /* switch's agents */
    SOURCE_DELAY,                    /* one direction of a cable */
} FabricSourceKind;

struct FabricSource {
    FabricSourceKind kind;
    uint32_t id;                     /* the same in each run: fault key */
    uint64_t number;                 /* packets taken from it */
    FabricPort *port;                /* RING, VL15 */
    FabricNode *node;                /* SWITCH */
    FabricCable *cable;              /* DELAY, with its direction */
    unsigned direction;
    FabricQueue queue;               /* all but RING */
    bool listed;                     /* in fabric->active */
    /* Head of the queue cannot move for want of room at blocked_on. */
    bool blocked;
    FabricPort *blocked_on;          /* NULL: a delay line */
    int64_t blocked_since, blocked_until;
};

struct FabricPort {
    FabricNode *node;
    unsigned port;
    FabricCable *cable;              /* NULL: nothing plugged in by the file */
    unsigned end;                    /* of the cable */
    /* Hosts only. */
    bool enabled, broken, broken_told;
    IbRing from_node, to_node;
    FabricSource ring, vl15;
    bool kick_due;
    unsigned discards_in_row;
    int64_t stalled_until;
};

struct FabricNode {
    const TopologyNode *topology;
    int index;
    FabricPort *ports;               /* 1 .. num_ports */
    FabricSwitch *sw;                /* NULL: host */
    bool attached;
    FabricLimit mads, states;
    uint64_t guid;
    uint64_t port_guids[IB_LINK_MAX_PORTS];
    void *opaque;
};

struct FabricSwitch {
    Fabric *fabric;
    FabricNode *node;
    IbSma sma;
    uint8_t *lft;                    /* LFT_SIZE */
    uint16_t (*mft)[MFT_POSITIONS];  /* MFT_SIZE */
    FabricSource source;
    char description[IB_NODE_DESC_LEN];
};

struct FabricCable {
    const TopologyCable *topology;
    int index;
    FabricPort *ends[2];
    bool plugged, up;
    bool dirty;                      /* in fabric->dirty */
    unsigned captures;
    bool faulty;
    FabricFault fault;
    FabricSource delay[2];
    int64_t delay_last[2];           /* when the last one in it is due */
    FabricCableStats stats;
};

/* One decision of a walk; see forward.c. */
typedef struct FabricStep {
    uint8_t kind;
    uint8_t drop;                    /* FabricDrop */
    bool transmit, receive;          /* CROSS: counted at this end */
    bool to_buffer;                  /* DELIVER: VL15 buffer, not ring */
    bool corrupted, duplicate;       /* by a fault, here or earlier */
    bool corrupted_here, duplicated_here;
    bool late;                       /* DELAY: by its own fate */
    uint8_t direction;
    int32_t parent;                  /* CROSS that led here, -1: none */
    int32_t dropped_by;              /* CROSS: its DROP step, -1: none */
    uint32_t bit;
    FabricCable *cable;              /* CROSS, DELAY */
    FabricPort *port;                /* DELIVER, LOCAL: in; DROP: where */
    FabricPort *egress;              /* DROP: port it should have left by */
} FabricStep;

/* The packet in hand. */
typedef struct FabricWalk {
    FabricSource *source;
    IbPacket packet;
    IbPacketError error;
    uint32_t len;
    const uint8_t *bytes;            /* where it lies; may change if a ring */
    uint32_t header_len;             /* bytes of header[] that count */
    bool is_mad;                     /* then header[] holds all of it */
    uint8_t header[IB_PACKET_MAX];
    FabricStep *steps;
    int num_steps, max_steps;
    bool blocked, expired;
    bool delivered;
    FabricPort *blocked_on;
    int64_t lifetime_ns;
} FabricWalk;

struct Fabric {
    const Topology *topology;
    IbClock *clock;
    uint64_t seed;
    FabricOps ops;
    void *opaque;
    int64_t now;
    FabricNode *nodes;
    FabricCable *cables;
    unsigned num_nodes, num_cables;
    FabricSource **rings;            /* of hosts that are attached */
    unsigned num_rings, max_rings, next_ring;
    FabricSource **active;           /* queues that are not empty */
    unsigned num_active, max_active;
    FabricPort **kicks;
    unsigned num_kicks;
    FabricCable **dirty;             /* links to look at again */
    unsigned num_dirty;
    bool updating_links;
    bool slept;
    uint64_t moved;
    IbTimer timer;
    int64_t deadline_ns;
    FabricLimit drops;
    FabricWalk walk;
    uint8_t scratch[IB_PACKET_MAX];
};

/* fabric.c */
bool fabric_queue_init(FabricQueue *queue, uint32_t slots, size_t size);
void fabric_queue_fini(FabricQueue *queue);
FabricQueueEntry *fabric_queue_head(const FabricQueue *queue);
/* The entry to fill, then fabric_source_push(); NULL: full. */
FabricQueueEntry *fabric_queue_tail(const FabricQueue *queue);
void fabric_source_push(Fabric *fabric, FabricSource *source);
void fabric_source_pop(FabricSource *source);
void fabric_event(Fabric *fabric, FabricEvent *event);
/* May one more be told?  Then *suppressed says how many were not. */
bool fabric_may_tell(Fabric *fabric, FabricLimit *limit, unsigned max,
                     uint64_t *suppressed);
void fabric_port_broken(Fabric *fabric, FabricPort *port);
void fabric_link_dirty(Fabric *fabric, FabricCable *cable);
void fabric_update_links(Fabric *fabric);
void fabric_drop_all(Fabric *fabric, FabricSource *source, FabricDrop drop);

/* forward.c */
void fabric_kick_flush(Fabric *fabric);

/* switch.c */
FabricSwitch *fabric_switch_new(Fabric *fabric, FabricNode *node);
void fabric_switch_free(FabricSwitch *sw);
void fabric_switch_link(FabricSwitch *sw, unsigned port, bool up,
                        uint8_t speed, uint8_t width);
/* Ports by the tables: 0 .. num_ports, LFT_NONE: no route. */
unsigned fabric_switch_unicast(const FabricSwitch *sw, uint16_t dlid);
/* Fills @mask with the ports to copy to; false: no route. */
bool fabric_switch_multicast(const FabricSwitch *sw, uint16_t dlid,
                             unsigned in_port, uint16_t mask[MFT_POSITIONS]);
/* Has the switch an agent for this MAD?  (ICRC not checked yet.) */
bool fabric_switch_wants(const FabricSwitch *sw, const FabricWalk *walk);
/* A MAD (in walk->header) that reached the switch itself. */
void fabric_switch_receive(FabricSwitch *sw, unsigned in_port,
                           const FabricWalk *walk);

static inline IbSmaPort *fabric_port_sma(const FabricPort *port)
{
    return port->node->sw ? &port->node->sw->sma.ports[port->port] : NULL;
}

static inline FabricPort *fabric_port_peer(const FabricPort *port)
{
    return port->cable ? port->cable->ends[!port->end] : NULL;
}

#endif
