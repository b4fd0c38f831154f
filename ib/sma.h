/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Subnet management agent and port state machine, for whoever is a node:
 * the eHCA's firmware, a switch, the host of the subnet manager.
 *
 * Theory of operation: an IbSma is a node; its ports hold PortInfo, P_Key
 * and GUID tables and counters.  The owner reports what the cable does
 * (ib_sma_link_up/_down), hands in the SMPs that arrive and sends what comes
 * back.  The SMA keeps the logical port state (7.2.7): Down -> Init when the
 * link trains, Init -> Armed -> Active when the SM says so, Down when the link
 * drops.  LID, SM LID, P_Keys and GUIDs survive a link that drops.
 *
 * Directed route (14.2.2): ib_sma_receive() does the hop pointer's work for
 * this node and says what to do with the result.
 *
 * Changes are told to the owner through IbSmaOps.  The owner's lock covers it.
 */
#ifndef IB_SMA_H
#define IB_SMA_H

#include "clock.h"
#include "mad.h"
#include "packet.h"

#define IB_SMA_PKEYS 32          /* one block of the P_Key table */
#define IB_SMA_GUIDS 8           /* one block of the GUID table */
#define IB_SMA_MAX_PORTS 64      /* of a switch, port 0 not counted */
#define IB_SMA_TRAPS 8           /* notices that can be outstanding */
#define IB_SMA_TRAP_TRIES 10     /* then the SM is taken for dead */

typedef struct IbSma IbSma;

typedef struct IbSmaPort {
    IbPortInfo info;             /* info.state and .phys_state are live */
    uint64_t guids[IB_SMA_GUIDS];
    uint16_t pkeys[IB_SMA_PKEYS];
    uint8_t sl_to_vl[8];
    uint8_t vl_arb[4][64];
    IbPortCounters counters;
    int64_t m_key_lease_ns;      /* protection ends then; 0: not counting */
} IbSmaPort;

/* What changed in a port, for the owner (bits). */
enum {
    IB_SMA_CHANGE_STATE = 1 << 0,       /* logical state, see old_state */
    IB_SMA_CHANGE_LID = 1 << 1,         /* LID or LMC */
    IB_SMA_CHANGE_SM = 1 << 2,          /* SM LID or SL */
    IB_SMA_CHANGE_PKEY = 1 << 3,
    IB_SMA_CHANGE_GID = 1 << 4,         /* prefix or GUID table */
    IB_SMA_CHANGE_REREGISTER = 1 << 5,  /* SM asked for it */
    IB_SMA_CHANGE_PHYS = 1 << 6,        /* SM set the physical state */
};

typedef struct IbSmaOps {
    /* Called after the change is in sma->ports[port]. */
    void (*changed)(void *opaque, unsigned port, unsigned changes,
                    unsigned old_state);
    /* The SMA wants to send a MAD on its own account: a trap. */
    void (*send)(void *opaque, unsigned port, const IbMadAddress *to,
                 const uint8_t *mad);
    /*
     * Attributes that the SMA does not keep itself: a switch's forwarding
     * tables, an SM's SMInfo.  NULL or false: status 0x000C is answered.
     * @data is the 64-byte attribute, in and out.
     */
    bool (*attribute)(void *opaque, unsigned port, bool set,
                      uint16_t attr_id, uint32_t attr_mod, uint8_t *data);
} IbSmaOps;

struct IbSma {
    IbClock *clock;
    const IbSmaOps *ops;
    void *opaque;
    IbNodeInfo node;
    IbSwitchInfo switch_info;    /* switches only */
    char description[IB_NODE_DESC_LEN];
    unsigned num_ports;          /* switch: external ports; port 0 extra */
    IbSmaPort *ports;            /* 1 .. num_ports; [0] is a switch's port 0 */
    /*
     * Trap sender (14.3.4, 13.4.9): one notice per trap number and port.  The
     * timer runs for one SubnetTimeOut after each sending: nothing of that
     * kind leaves before, and what was not repressed leaves again.
     */
    struct IbSmaTrap {
        IbSma *sma;
        IbTimer timer;
        bool pending;            /* wants to be sent (again) */
        uint64_t tid;
        IbNotice notice;
        unsigned port;
        unsigned tries;
    } traps[IB_SMA_TRAPS];
    uint64_t traps_lost;         /* no slot free, or never repressed */
    uint64_t next_tid;
};

/*
 * @ops may have NULL members.  Ports start Down and Polling; GUIDs are
 * @node_guid + port (a switch's port 0: @node_guid).  The owner adjusts what
 * the hardware would know (node, switch_info, ports[].info, guids) before the
 * first packet.  Aborts when there is no memory.
 */
void ib_sma_init(IbSma *sma, IbClock *clock, uint8_t node_type,
                 unsigned num_ports, uint64_t node_guid,
                 const char *description, const IbSmaOps *ops, void *opaque);
void ib_sma_fini(IbSma *sma);

/*
 * Physical state of a port that its owner does not want up is Disabled; when
 * the owner enables it: Polling.  Returns nothing; state changes are told by
 * ops->changed.
 */
void ib_sma_port_enable(IbSma *sma, unsigned port, bool enable);
/* The link trained (both ends enabled, cable in); PortInfo codes. */
void ib_sma_link_up(IbSma *sma, unsigned port, uint8_t speed, uint8_t width);
void ib_sma_link_down(IbSma *sma, unsigned port);
bool ib_sma_port_usable(const IbSma *sma, unsigned port); /* Active */

/*
 * Sends a trap to the SM: nothing happens unless the port is Active and knows
 * its SM (a switch sends from port 0).  Trap 128 is sent by ib_sma_link_up()
 * and _down() of a switch, 144 by ib_sma_set_capability(), 256 by
 * ib_sma_receive(): owners send 257, 258 and 129-131.  @details NULL: zeroes.
 */
void ib_sma_trap(IbSma *sma, unsigned port, uint16_t trap,
                 const uint8_t details[54]);
/* Changes the capability mask; sends trap 144 when it differs. */
void ib_sma_set_capability(IbSma *sma, unsigned port, uint32_t mask);

typedef enum IbSmaVerdict {
    IB_SMA_DROP,           /* nothing more to do; counted */
    IB_SMA_REPLY,          /* mad now holds the reply; send it out of
                              *out_port, addressed by *to */
    IB_SMA_FORWARD,        /* switches: send mad out of *out_port */
    IB_SMA_DELIVER,        /* not for the SMA but for an SM on this node: a
                              response or a trap; hop pointer is done */
} IbSmaVerdict;

/*
 * One SMP (class 0x01 or 0x81) from @in_port, in place.  @from is where it came
 * from, as it arrived.  For directed route, *to is permissive or the DrSLID/
 * DrDLID part (14.2.2); out_port is the port to leave by.
 * in_port 0 with a directed route of hop count 0 means: asked locally; no
 * M_Key is needed then.
 *
 * *out_port 0: when to->dlid is permissive the local asker gets it; else (a
 * switch only) no port is prescribed: forward it by to->dlid as any packet
 * that comes from port 0.
 */
IbSmaVerdict ib_sma_receive(IbSma *sma, unsigned in_port,
                            const IbMadAddress *from, uint8_t *mad,
                            unsigned *out_port, IbMadAddress *to);

/*
 * Starts a directed-route SMP of this node's own SM (hop pointer 0): moves the
 * pointer to 1 and returns the port to send on, or -1 when the hop count is 0
 * (or beyond 63): hand it to ib_sma_receive() with in_port 0.
 */
int ib_smp_send_directed(uint8_t *mad);

/* Performance agent (class 0x04) of this node: reply in place; false: drop. */
bool ib_pma_receive(IbSma *sma, unsigned in_port, uint8_t *mad);

#endif
