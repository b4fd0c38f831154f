/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Subnet management agent, its trap sender, and the performance agent.
 *
 * Theory of operation
 *
 * An SMP passes four stages in ib_sma_receive():
 *   1. directed route: follow the path by one hop, or find that it ends here
 *      (14.2.2, C14-6 to C14-13);
 *   2. not for an SMA (response, trap): to the node's SM;
 *   3. M_Key (14.2.4): a wrong key means silence, a count and trap 256;
 *   4. the attribute's Get or Set, and a reply that goes back as it came.
 *
 * A Set is checked completely before anything of it is applied: an illegal
 * component means status 0x001C and no change.  What changed is told to the
 * owner in one call after it is all in place, so that a port which gets its
 * LID and becomes Active in the same Set is Active with that LID.
 *
 * Port states (7.2.7) and what moves them:
 *   Down -> Initialize   link trained                  ib_sma_link_up()
 *   Initialize -> Armed  Set(PortInfo)
 *   Armed -> Active      Set(PortInfo)
 *   any -> Down          link lost                     ib_sma_link_down()
 *                        owner does not want the port  ib_sma_port_enable()
 *                        Set(PortInfo): the link trains anew, or stays away
 *                        when Disabled; the owner sees IB_SMA_CHANGE_PHYS and
 *                        does with the cable what it must
 * Everything else asked of PortState is refused.  A switch's base port 0 has
 * no link: it is Active as soon as it has a LID.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ib/bytes.h"
#include "ib/sma.h"

#define GID_PREFIX_DEFAULT UINT64_C(0xFE80000000000000)
#define SUBNET_TIMEOUT_DEFAULT 18        /* about 1.1 s */
#define RESP_TIME_DEFAULT 18
#define HOQ_LIFE_DEFAULT 18
#define ERROR_THRESHOLD_DEFAULT 8
#define WIDTH_SUPPORTED_DEFAULT 3        /* 1x and 4x */
#define SPEED_SUPPORTED_DEFAULT 7        /* 2.5, 5 and 10 Gbps */
#define WIDTH_4X 2
#define SPEED_2_5 1
#define MTU_4096 5
#define VLS_ONE 1                        /* VL0 only */
#define WIDTH_ALL_SUPPORTED 0xFF
#define SPEED_ALL_SUPPORTED 0xF
#define MAX_HOPS (IB_SMP_MAX_HOPS - 1)   /* path entries 1 to 63 */
#define DR_DIRECTION IB_MAD_STATUS_DIRECTION
#define VL_ARB_BLOCKS 4
#define PMA_ALL_PORTS 0xFF
#define PMA_CAP_ALL_PORT_SELECT (1 << 8)
#define PMA_CAP_EXT_WIDTH (1 << 9)
#define PMA_CAP_XMIT_WAIT (1 << 12)

/* Trap 144: offset in the details is 10 less than in the notice. */
#define TRAP144_LID 2
#define TRAP144_MASK 6
#define TRAP128_LID 0
#define TRAP256_LID 2
#define TRAP256_DR_SLID 4
#define TRAP256_METHOD 6
#define TRAP256_ATTR 8
#define TRAP256_MODIFIER 10
#define TRAP256_MKEY 14
#define TRAP256_DR_HOPS 23
#define TRAP256_PATH 24
#define TRAP256_PATH_LEN 30
#define TRAP256_DR_NOTICE 0x80
#define TRAP256_DR_TRUNCATED 0x40

static bool is_switch(const IbSma *sma)
{
    return sma->node.node_type == IB_NODE_SWITCH;
}

/* The port whose LID, SM and M_Key count for what arrives at @port. */
static unsigned management_port(const IbSma *sma, unsigned port)
{
    if (is_switch(sma)) {
        return 0;
    }
    return port ? port : 1;
}

static bool is_port_0(const IbSma *sma, unsigned port)
{
    return is_switch(sma) && port == 0;
}

static void tell(IbSma *sma, unsigned port, unsigned changes,
                 unsigned old_state)
{
    if (changes && sma->ops->changed) {
        sma->ops->changed(sma->opaque, port, changes, old_state);
    }
}

/* --- Traps ------------------------------------------------------------- */

static bool trap_can_leave(const IbSma *sma, unsigned port)
{
    const IbPortInfo *info = &sma->ports[port].info;

    return info->state == IB_PORT_ACTIVE && ib_lid_is_unicast(info->lid) &&
           ib_lid_is_unicast(info->sm_lid) && sma->ops->send;
}

static void trap_send(IbSma *sma, struct IbSmaTrap *trap)
{
    const IbPortInfo *info = &sma->ports[trap->port].info;
    const IbMadAddress to = {
        .slid = info->lid,
        .dlid = info->sm_lid,
        .sl = info->sm_sl,
        .vl = IB_VL_MANAGEMENT,
        .pkey = IB_PKEY_DEFAULT,
    };
    const IbSmp smp = {
        .hdr = {
            .base_version = 1,
            .mgmt_class = IB_CLASS_SM_LID,
            .class_version = 1,
            .method = IB_METHOD_TRAP,
            .tid = trap->tid,
            .attr_id = IB_ATTR_NOTICE,
        },
    };
    uint8_t mad[IB_MAD_LEN] = { 0 };

    trap->notice.issuer_lid = info->lid;
    ib_smp_pack(mad, &smp);
    ib_notice_pack(mad + IB_SMP_DATA_OFFSET, &trap->notice, IB_SMP_DATA_LEN);
    trap->tries++;
    ib_timer_set(&trap->timer, ib_clock_now(sma->clock) +
                               ib_timeout_ns(info->subnet_timeout));
    sma->ops->send(sma->opaque, trap->port, &to, mad);
}

/* One SubnetTimeOut has passed since the trap was sent. */
static void trap_timer(void *opaque)
{
    struct IbSmaTrap *trap = opaque;
    IbSma *sma = trap->sma;

    if (!trap->pending) {
        return;
    }
    if (trap->tries >= IB_SMA_TRAP_TRIES ||
        !trap_can_leave(sma, trap->port)) {
        trap->pending = false;
        sma->traps_lost++;
        return;
    }
    trap_send(sma, trap);
}

/* The slot of this trap and port, else a free one. */
static struct IbSmaTrap *trap_slot(IbSma *sma, unsigned port, uint16_t trap)
{
    struct IbSmaTrap *free_slot = NULL;

    for (unsigned i = 0; i < IB_SMA_TRAPS; i++) {
        struct IbSmaTrap *slot = &sma->traps[i];

        if (!slot->pending && !ib_timer_armed(&slot->timer)) {
            free_slot = free_slot ? free_slot : slot;
        } else if (slot->port == port && slot->notice.trap == trap) {
            return slot;
        }
    }
    return free_slot;
}

static uint8_t trap_type(uint16_t trap)
{
    switch (trap) {
    case IB_TRAP_CAPABILITY:
    case 145:
        return IB_NOTICE_INFO;
    case IB_TRAP_BAD_MKEY:
    case IB_TRAP_BAD_PKEY:
    case IB_TRAP_BAD_QKEY:
    case 259:
        return IB_NOTICE_SECURITY;
    default:
        return IB_NOTICE_URGENT;
    }
}

void ib_sma_trap(IbSma *sma, unsigned port, uint16_t trap,
                 const uint8_t details[54])
{
    struct IbSmaTrap *slot;

    port = management_port(sma, port);
    if (port > sma->num_ports || !trap_can_leave(sma, port)) {
        return;
    }
    slot = trap_slot(sma, port, trap);
    if (!slot) {
        sma->traps_lost++;
        return;
    }
    slot->pending = true;
    slot->tries = 0;
    slot->port = port;
    /* A new number: a repress of an older notice does not stop this one. */
    slot->tid = sma->next_tid++;
    slot->notice = (IbNotice) {
        .generic = true,
        .type = trap_type(trap),
        .producer = sma->node.node_type,
        .trap = trap,
    };
    if (details) {
        memcpy(slot->notice.details, details, sizeof(slot->notice.details));
    }
    if (!ib_timer_armed(&slot->timer)) {
        trap_send(sma, slot);
    }
}

static void trap_repress(IbSma *sma, const IbSmp *smp)
{
    for (unsigned i = 0; i < IB_SMA_TRAPS; i++) {
        struct IbSmaTrap *slot = &sma->traps[i];

        /* The timer goes on: it keeps the next one from coming too soon. */
        if (slot->pending && slot->tid == smp->hdr.tid) {
            slot->pending = false;
        }
    }
}

/* A switch's port went up or down by itself (14.2.5.4, PortStateChange). */
static void switch_port_changed(IbSma *sma)
{
    uint8_t details[54] = { 0 };

    sma->switch_info.port_state_change = 1;
    ib_put16(details + TRAP128_LID, sma->ports[0].info.lid);
    ib_sma_trap(sma, 0, IB_TRAP_LINK_STATE, details);
}

void ib_sma_set_capability(IbSma *sma, unsigned port, uint32_t mask)
{
    uint8_t details[54] = { 0 };

    assert(port <= sma->num_ports);
    if (sma->ports[port].info.capability_mask == mask) {
        return;
    }
    sma->ports[port].info.capability_mask = mask;
    ib_put16(details + TRAP144_LID, sma->ports[port].info.lid);
    ib_put32(details + TRAP144_MASK, mask);
    ib_sma_trap(sma, port, IB_TRAP_CAPABILITY, details);
}

static void trap_bad_m_key(IbSma *sma, unsigned port, const IbSmp *smp,
                           const IbMadAddress *from, const uint8_t *mad)
{
    bool directed = smp->hdr.mgmt_class == IB_CLASS_SM_DR;
    unsigned hops = smp->hdr.hop_count;
    uint8_t d[54] = { 0 };

    ib_put16(d + TRAP256_LID, from->slid);
    d[TRAP256_METHOD] = smp->hdr.method;
    ib_put16(d + TRAP256_ATTR, smp->hdr.attr_id);
    ib_put32(d + TRAP256_MODIFIER, smp->hdr.attr_mod);
    ib_put64(d + TRAP256_MKEY, smp->m_key);
    if (directed) {
        ib_put16(d + TRAP256_DR_SLID, smp->dr_slid);
        d[TRAP256_DR_HOPS] = TRAP256_DR_NOTICE;
        if (hops > TRAP256_PATH_LEN) {
            hops = TRAP256_PATH_LEN;
            d[TRAP256_DR_HOPS] |= TRAP256_DR_TRUNCATED;
        }
        d[TRAP256_DR_HOPS] |= hops;
        memcpy(d + TRAP256_PATH, mad + IB_SMP_RETURN_PATH_OFFSET + 1, hops);
    }
    ib_sma_trap(sma, port, IB_TRAP_BAD_MKEY, d);
}

/* --- Ports ------------------------------------------------------------- */

static void port_init(IbSma *sma, unsigned port, uint64_t guid)
{
    IbSmaPort *p = &sma->ports[port];

    p->info = (IbPortInfo) {
        .gid_prefix = GID_PREFIX_DEFAULT,
        .capability_mask = IB_CAP_TRAP | IB_CAP_SYS_IMAGE_GUID |
                           IB_CAP_MASK_NOTICE | IB_CAP_CLIENT_REREGISTER,
        .width_enabled = WIDTH_SUPPORTED_DEFAULT,
        .width_supported = WIDTH_SUPPORTED_DEFAULT,
        .width_active = WIDTH_4X,
        .speed_supported = SPEED_SUPPORTED_DEFAULT,
        .speed_enabled = SPEED_SUPPORTED_DEFAULT,
        .speed_active = SPEED_2_5,
        .state = IB_PORT_DOWN,
        .phys_state = IB_PHYS_POLLING,
        .down_default = IB_PHYS_POLLING,
        .neighbor_mtu = MTU_4096,
        .mtu_cap = MTU_4096,
        .vl_cap = VLS_ONE,
        .operational_vls = VLS_ONE,
        .hoq_life = HOQ_LIFE_DEFAULT,
        .guid_cap = IB_SMA_GUIDS,
        .subnet_timeout = SUBNET_TIMEOUT_DEFAULT,
        .resp_time = RESP_TIME_DEFAULT,
        .local_phy_errors = ERROR_THRESHOLD_DEFAULT,
        .overrun_errors = ERROR_THRESHOLD_DEFAULT,
    };
    p->guids[0] = guid;
    p->pkeys[0] = IB_PKEY_DEFAULT;
    if (is_port_0(sma, port)) {
        p->info.state = IB_PORT_INIT;
        p->info.phys_state = IB_PHYS_LINK_UP;
    } else if (is_switch(sma)) {
        /* These belong to port 0. */
        p->info.capability_mask = 0;
        p->info.guid_cap = 0;
    }
}

void ib_sma_init(IbSma *sma, IbClock *clock, uint8_t node_type,
                 unsigned num_ports, uint64_t node_guid,
                 const char *description, const IbSmaOps *ops, void *opaque)
{
    assert(num_ports >= 1 && num_ports <= IB_SMA_MAX_PORTS);
    memset(sma, 0, sizeof(*sma));
    sma->clock = clock;
    sma->ops = ops;
    sma->opaque = opaque;
    sma->num_ports = num_ports;
    sma->next_tid = 1;
    sma->node = (IbNodeInfo) {
        .base_version = 1,
        .class_version = 1,
        .node_type = node_type,
        .num_ports = num_ports,
        .sys_image_guid = node_guid,
        .node_guid = node_guid,
        .partition_cap = IB_SMA_PKEYS,
    };
    memcpy(sma->description, description,
           strnlen(description, IB_NODE_DESC_LEN));
    sma->ports = calloc(num_ports + 1, sizeof(*sma->ports));
    if (!sma->ports) {
        fprintf(stderr, "SMA: no memory for %u ports\n", num_ports);
        abort();
    }
    for (unsigned port = 0; port <= num_ports; port++) {
        port_init(sma, port, is_switch(sma) && port ? 0 : node_guid + port);
    }
    for (unsigned i = 0; i < IB_SMA_TRAPS; i++) {
        sma->traps[i].sma = sma;
        ib_timer_init(&sma->traps[i].timer, clock, trap_timer,
                      &sma->traps[i]);
    }
}

void ib_sma_fini(IbSma *sma)
{
    for (unsigned i = 0; i < IB_SMA_TRAPS; i++) {
        ib_timer_fini(&sma->traps[i].timer);
    }
    free(sma->ports);
    sma->ports = NULL;
    sma->num_ports = 0;
}

static bool has_link(const IbSma *sma, unsigned port)
{
    return port >= 1 && port <= sma->num_ports;
}

/* Logical Down and the given physical state; true when it was not Down. */
static bool port_drop(IbSmaPort *p, unsigned phys_state)
{
    bool was_up = p->info.state != IB_PORT_DOWN;

    p->info.state = IB_PORT_DOWN;
    p->info.phys_state = phys_state;
    return was_up;
}

void ib_sma_port_enable(IbSma *sma, unsigned port, bool enable)
{
    IbSmaPort *p = &sma->ports[port];
    unsigned old_state = p->info.state;

    assert(has_link(sma, port));
    if (enable) {
        if (p->info.phys_state == IB_PHYS_DISABLED) {
            p->info.phys_state = IB_PHYS_POLLING;
        }
        return;
    }
    if (port_drop(p, IB_PHYS_DISABLED)) {
        tell(sma, port, IB_SMA_CHANGE_STATE, old_state);
        if (is_switch(sma)) {
            switch_port_changed(sma);
        }
    }
}

void ib_sma_link_up(IbSma *sma, unsigned port, uint8_t speed, uint8_t width)
{
    IbSmaPort *p = &sma->ports[port];

    assert(has_link(sma, port));
    if (p->info.phys_state == IB_PHYS_DISABLED) {
        /* Told before the owner heard that the port was disabled. */
        return;
    }
    p->info.speed_active = speed;
    p->info.width_active = width;
    p->info.phys_state = IB_PHYS_LINK_UP;
    if (p->info.state != IB_PORT_DOWN) {
        return;
    }
    p->info.state = IB_PORT_INIT;
    tell(sma, port, IB_SMA_CHANGE_STATE, IB_PORT_DOWN);
    if (is_switch(sma)) {
        switch_port_changed(sma);
    }
}

void ib_sma_link_down(IbSma *sma, unsigned port)
{
    IbSmaPort *p = &sma->ports[port];
    unsigned old_state = p->info.state;

    assert(has_link(sma, port));
    if (!port_drop(p, p->info.phys_state == IB_PHYS_DISABLED
                      ? IB_PHYS_DISABLED : p->info.down_default)) {
        return;
    }
    p->counters.link_downed++;
    tell(sma, port, IB_SMA_CHANGE_STATE, old_state);
    if (is_switch(sma)) {
        switch_port_changed(sma);
    }
}

bool ib_sma_port_usable(const IbSma *sma, unsigned port)
{
    return port <= sma->num_ports &&
           sma->ports[port].info.state == IB_PORT_ACTIVE;
}

/* --- Set(PortInfo), 14.2.5.6 ------------------------------------------- */

/* May the SM ask for this PortState and PortPhysicalState now? */
static bool state_change_legal(const IbPortInfo *now, const IbPortInfo *set)
{
    switch (set->phys_state) {
    case IB_PHYS_NO_CHANGE:
        break;
    case IB_PHYS_SLEEP:
    case IB_PHYS_POLLING:
    case IB_PHYS_DISABLED:
        /* Only together with Down or no change of the logical state. */
        return set->state == IB_PORT_NO_CHANGE || set->state == IB_PORT_DOWN;
    default:
        return false;
    }
    switch (set->state) {
    case IB_PORT_NO_CHANGE:
    case IB_PORT_DOWN:
        return true;
    case IB_PORT_ARMED:
        return now->state == IB_PORT_INIT;
    case IB_PORT_ACTIVE:
        return now->state == IB_PORT_ARMED;
    default:
        return false;
    }
}

/* Components of ports that have a LID: of CAs, and port 0 of a switch. */
static bool lids_legal(const IbSma *sma, unsigned port,
                       const IbPortInfo *now, const IbPortInfo *set)
{
    unsigned last = set->lid + (1u << set->lmc) - 1;

    if (set->lid != now->lid || set->lmc != now->lmc) {
        if (!ib_lid_is_unicast(set->lid) || last >= IB_LID_MCAST_FIRST ||
            set->lid & ((1u << set->lmc) - 1)) {
            return false;
        }
        if (is_port_0(sma, port) && set->lmc &&
            !sma->switch_info.enhanced_port0) {
            return false;
        }
    }
    return set->sm_lid == now->sm_lid || ib_lid_is_unicast(set->sm_lid);
}

static bool port_info_legal(const IbSma *sma, unsigned port,
                            const IbPortInfo *now, const IbPortInfo *set)
{
    bool external = is_switch(sma) && port;

    if (!external && !lids_legal(sma, port, now, set)) {
        return false;
    }
    if (set->neighbor_mtu != now->neighbor_mtu &&
        (set->neighbor_mtu < 1 || set->neighbor_mtu > now->mtu_cap)) {
        return false;
    }
    if (is_port_0(sma, port)) {
        /* No link, no link's parameters. */
        return true;
    }
    if (set->width_enabled != WIDTH_ALL_SUPPORTED &&
        set->width_enabled & ~now->width_supported) {
        return false;
    }
    if (set->speed_enabled != SPEED_ALL_SUPPORTED &&
        set->speed_enabled & ~now->speed_supported) {
        return false;
    }
    if (set->down_default > IB_PHYS_POLLING ||
        set->operational_vls > now->vl_cap) {
        return false;
    }
    return state_change_legal(now, set);
}

/* Parts that only a port with a LID has; returns what changed. */
static unsigned apply_subnet_part(IbPortInfo *now, const IbPortInfo *set)
{
    unsigned changes = 0;

    if (now->lid != set->lid || now->lmc != set->lmc) {
        changes |= IB_SMA_CHANGE_LID;
    }
    if (now->sm_lid != set->sm_lid || now->sm_sl != set->sm_sl) {
        changes |= IB_SMA_CHANGE_SM;
    }
    if (now->gid_prefix != set->gid_prefix) {
        changes |= IB_SMA_CHANGE_GID;
    }
    if (set->client_reregister &&
        now->capability_mask & IB_CAP_CLIENT_REREGISTER) {
        changes |= IB_SMA_CHANGE_REREGISTER;
    }
    now->m_key = set->m_key;
    now->gid_prefix = set->gid_prefix;
    now->lid = set->lid;
    now->sm_lid = set->sm_lid;
    now->m_key_lease = set->m_key_lease;
    now->m_key_protect = set->m_key_protect;
    now->lmc = set->lmc;
    now->sm_sl = set->sm_sl;
    now->subnet_timeout = set->subnet_timeout;
    now->init_type_reply = set->init_type_reply;
    if (set->m_key_violations == 0) {
        now->m_key_violations = 0;
    }
    if (set->p_key_violations == 0) {
        now->p_key_violations = 0;
    }
    if (set->q_key_violations == 0) {
        now->q_key_violations = 0;
    }
    return changes;
}

static void apply_link_part(IbPortInfo *now, const IbPortInfo *set)
{
    if (set->width_enabled == WIDTH_ALL_SUPPORTED) {
        now->width_enabled = now->width_supported;
    } else if (set->width_enabled) {
        now->width_enabled = set->width_enabled;
    }
    if (set->speed_enabled == SPEED_ALL_SUPPORTED) {
        now->speed_enabled = now->speed_supported;
    } else if (set->speed_enabled) {
        now->speed_enabled = set->speed_enabled;
    }
    if (set->down_default) {
        now->down_default = set->down_default;
    }
    if (set->operational_vls) {
        now->operational_vls = set->operational_vls;
    }
    now->vl_high_limit = set->vl_high_limit;
    now->vl_stall_count = set->vl_stall_count;
    now->hoq_life = set->hoq_life;
    now->part_enf_in = set->part_enf_in;
    now->part_enf_out = set->part_enf_out;
    now->filter_raw_in = set->filter_raw_in;
    now->filter_raw_out = set->filter_raw_out;
    now->local_phy_errors = set->local_phy_errors;
    now->overrun_errors = set->overrun_errors;
}

static unsigned apply_state(IbSmaPort *p, const IbPortInfo *set)
{
    unsigned old_state = p->info.state;
    unsigned old_phys = p->info.phys_state;
    unsigned phys = set->phys_state;
    unsigned changes = 0;

    if (phys != IB_PHYS_NO_CHANGE || set->state == IB_PORT_DOWN) {
        if (phys == IB_PHYS_NO_CHANGE) {
            /* Down alone: the link starts over, but Disabled stays it. */
            phys = old_phys == IB_PHYS_DISABLED ? IB_PHYS_DISABLED
                                                : p->info.down_default;
        }
        port_drop(p, phys);
        if (phys != old_phys) {
            changes |= IB_SMA_CHANGE_PHYS;
        }
    } else if (set->state != IB_PORT_NO_CHANGE) {
        p->info.state = set->state;
    }
    if (p->info.state != old_state) {
        changes |= IB_SMA_CHANGE_STATE;
    }
    return changes;
}

static uint16_t set_port_info(IbSma *sma, unsigned port, const IbPortInfo *set,
                              bool *reregister)
{
    IbSmaPort *p = &sma->ports[port];
    unsigned old_state = p->info.state;
    unsigned changes = 0;

    if (!port_info_legal(sma, port, &p->info, set)) {
        return IB_MAD_STATUS_BAD_FIELD;
    }
    if (!is_switch(sma) || port == 0) {
        changes |= apply_subnet_part(&p->info, set);
    }
    if (set->neighbor_mtu) {
        p->info.neighbor_mtu = set->neighbor_mtu;
    }
    if (is_port_0(sma, port)) {
        if (p->info.lid && p->info.state != IB_PORT_ACTIVE) {
            p->info.state = IB_PORT_ACTIVE;
            changes |= IB_SMA_CHANGE_STATE;
        }
    } else {
        apply_link_part(&p->info, set);
        changes |= apply_state(p, set);
    }
    *reregister = changes & IB_SMA_CHANGE_REREGISTER;
    tell(sma, port, changes, old_state);
    return IB_MAD_STATUS_OK;
}

/* --- Attributes -------------------------------------------------------- */

/* One Get or Set on its way through the agent. */
typedef struct Request {
    IbSma *sma;
    const IbSmp *smp;
    unsigned in_port;
    unsigned mgmt_port;          /* whose M_Key was checked */
    bool set;
    uint8_t *data;               /* 64 bytes, in and out */
} Request;

/*
 * Port named in an attribute modifier.  A switch has ports 0 to num_ports; a
 * CA's 0 is the port that the SMP came through.  On a CA a Set must come
 * through the port that it changes.
 */
static bool find_port(const Request *rq, unsigned named, unsigned *port)
{
    if (named > rq->sma->num_ports) {
        return false;
    }
    if (is_switch(rq->sma)) {
        *port = named;
        return true;
    }
    *port = named ? named : rq->mgmt_port;
    return !rq->set || rq->in_port == 0 || *port == rq->in_port;
}

static uint16_t node_description(const Request *rq)
{
    if (rq->set) {
        return IB_MAD_STATUS_BAD_METHOD_ATTR;
    }
    memcpy(rq->data, rq->sma->description, IB_NODE_DESC_LEN);
    return IB_MAD_STATUS_OK;
}

static uint16_t node_info(const Request *rq)
{
    IbNodeInfo info = rq->sma->node;

    if (rq->set) {
        return IB_MAD_STATUS_BAD_METHOD_ATTR;
    }
    info.port_guid = rq->sma->ports[rq->mgmt_port].guids[0];
    info.local_port = is_switch(rq->sma) ? rq->in_port : rq->mgmt_port;
    memset(rq->data, 0, IB_SMP_DATA_LEN);
    ib_node_info_pack(rq->data, &info);
    return IB_MAD_STATUS_OK;
}

static uint16_t switch_info(const Request *rq)
{
    IbSwitchInfo *now = &rq->sma->switch_info;
    uint16_t status = IB_MAD_STATUS_OK;
    IbSwitchInfo set;

    if (!is_switch(rq->sma)) {
        return IB_MAD_STATUS_BAD_METHOD_ATTR;
    }
    if (rq->set) {
        ib_switch_info_unpack(&set, rq->data);
        if (now->lft_cap && set.lft_top >= now->lft_cap) {
            status = IB_MAD_STATUS_BAD_FIELD;
        } else {
            now->lft_top = set.lft_top;
            now->default_port = set.default_port;
            now->default_mcast_primary = set.default_mcast_primary;
            now->default_mcast_not_primary = set.default_mcast_not_primary;
            now->life_time_value = set.life_time_value;
            now->mft_top = set.mft_top;
            if (set.port_state_change) {
                now->port_state_change = 0;
            }
        }
    }
    memset(rq->data, 0, IB_SMP_DATA_LEN);
    ib_switch_info_pack(rq->data, now);
    return status;
}

static uint16_t guid_info(const Request *rq)
{
    IbSmaPort *p = &rq->sma->ports[rq->mgmt_port];
    bool changed = false;

    if (rq->smp->hdr.attr_mod != 0) {
        return IB_MAD_STATUS_BAD_FIELD;
    }
    if (rq->set) {
        /* Entry 0 is the port's own GUID: read only. */
        for (unsigned i = 1; i < IB_SMA_GUIDS; i++) {
            uint64_t guid = ib_get64(rq->data + 8 * i);

            changed |= p->guids[i] != guid;
            p->guids[i] = guid;
        }
    }
    for (unsigned i = 0; i < IB_SMA_GUIDS; i++) {
        ib_put64(rq->data + 8 * i, p->guids[i]);
    }
    if (changed) {
        tell(rq->sma, rq->mgmt_port, IB_SMA_CHANGE_GID, p->info.state);
    }
    return IB_MAD_STATUS_OK;
}

static uint16_t port_info(const Request *rq)
{
    uint16_t status = IB_MAD_STATUS_OK;
    bool reregister = false;
    IbPortInfo info;
    unsigned port;

    if (!find_port(rq, rq->smp->hdr.attr_mod, &port)) {
        return IB_MAD_STATUS_BAD_FIELD;
    }
    if (rq->set) {
        ib_port_info_unpack(&info, rq->data);
        status = set_port_info(rq->sma, port, &info, &reregister);
    }
    info = rq->sma->ports[port].info;
    info.local_port = is_switch(rq->sma) ? rq->in_port : rq->mgmt_port;
    info.client_reregister = reregister;
    /* Protection level 1: anyone may look, but not see the key. */
    if (!rq->set && info.m_key_protect == 1 &&
        rq->smp->m_key != rq->sma->ports[rq->mgmt_port].info.m_key) {
        info.m_key = 0;
    }
    ib_port_info_pack(rq->data, &info);
    return status;
}

static uint16_t pkey_table(const Request *rq)
{
    unsigned block = rq->smp->hdr.attr_mod & 0xFFFF;
    unsigned port;
    IbSmaPort *p;
    bool changed = false;

    if (block != 0 ||
        !find_port(rq, is_switch(rq->sma) ? rq->smp->hdr.attr_mod >> 16 : 0,
                   &port)) {
        return IB_MAD_STATUS_BAD_FIELD;
    }
    p = &rq->sma->ports[port];
    for (unsigned i = 0; i < IB_SMA_PKEYS; i++) {
        if (rq->set) {
            uint16_t pkey = ib_get16(rq->data + 2 * i);

            changed |= p->pkeys[i] != pkey;
            p->pkeys[i] = pkey;
        }
        ib_put16(rq->data + 2 * i, p->pkeys[i]);
    }
    if (changed) {
        tell(rq->sma, port, IB_SMA_CHANGE_PKEY, p->info.state);
    }
    return IB_MAD_STATUS_OK;
}

static uint16_t sl_to_vl(const Request *rq)
{
    uint32_t mod = rq->smp->hdr.attr_mod;
    unsigned port = 0;
    IbSmaPort *p;

    /* Switches: input port and output port; we keep one table per output. */
    if (is_switch(rq->sma) && (mod >> 16 ||
                               mod >> 8 > rq->sma->num_ports)) {
        return IB_MAD_STATUS_BAD_FIELD;
    }
    if (!find_port(rq, is_switch(rq->sma) ? mod & 0xFF : 0, &port)) {
        return IB_MAD_STATUS_BAD_FIELD;
    }
    p = &rq->sma->ports[port];
    if (rq->set) {
        memcpy(p->sl_to_vl, rq->data, sizeof(p->sl_to_vl));
    }
    memset(rq->data, 0, IB_SMP_DATA_LEN);
    memcpy(rq->data, p->sl_to_vl, sizeof(p->sl_to_vl));
    return IB_MAD_STATUS_OK;
}

static uint16_t vl_arb(const Request *rq)
{
    unsigned block = rq->smp->hdr.attr_mod >> 16;
    unsigned port;
    IbSmaPort *p;

    if (block < 1 || block > VL_ARB_BLOCKS ||
        !find_port(rq, is_switch(rq->sma) ? rq->smp->hdr.attr_mod & 0xFFFF
                                          : 0, &port)) {
        return IB_MAD_STATUS_BAD_FIELD;
    }
    p = &rq->sma->ports[port];
    if (rq->set) {
        memcpy(p->vl_arb[block - 1], rq->data, IB_SMP_DATA_LEN);
    }
    memcpy(rq->data, p->vl_arb[block - 1], IB_SMP_DATA_LEN);
    return IB_MAD_STATUS_OK;
}

/* Forwarding tables, SMInfo, vendor's: the owner knows or nobody does. */
static uint16_t owners_attribute(const Request *rq)
{
    const IbSma *sma = rq->sma;

    if (sma->ops->attribute &&
        sma->ops->attribute(sma->opaque, rq->mgmt_port, rq->set,
                            rq->smp->hdr.attr_id, rq->smp->hdr.attr_mod,
                            rq->data)) {
        return IB_MAD_STATUS_OK;
    }
    return IB_MAD_STATUS_BAD_METHOD_ATTR;
}

static uint16_t do_attribute(const Request *rq)
{
    switch (rq->smp->hdr.attr_id) {
    case IB_SM_NODE_DESCRIPTION:
        return node_description(rq);
    case IB_SM_NODE_INFO:
        return node_info(rq);
    case IB_SM_SWITCH_INFO:
        return switch_info(rq);
    case IB_SM_GUID_INFO:
        return guid_info(rq);
    case IB_SM_PORT_INFO:
        return port_info(rq);
    case IB_SM_PKEY_TABLE:
        return pkey_table(rq);
    case IB_SM_SL_TO_VL:
        return sl_to_vl(rq);
    case IB_SM_VL_ARB:
        return vl_arb(rq);
    default:
        return owners_attribute(rq);
    }
}

/* --- M_Key, 14.2.4 ----------------------------------------------------- */

/* False: the SMP is dropped without a word to its sender. */
static bool m_key_good(IbSma *sma, unsigned port, const IbSmp *smp,
                       const IbMadAddress *from, const uint8_t *mad)
{
    IbSmaPort *p = &sma->ports[port];
    int64_t now = ib_clock_now(sma->clock);

    if (p->m_key_lease_ns && now >= p->m_key_lease_ns) {
        /* The SM that set the key did not come in time: level 0. */
        p->info.m_key_protect = 0;
        p->m_key_lease_ns = 0;
    }
    if (p->info.m_key == 0) {
        return true;
    }
    if (smp->m_key == p->info.m_key) {
        p->m_key_lease_ns = 0;
        return true;
    }
    /* Below level 2 a Get needs no key. */
    if (smp->hdr.method == IB_METHOD_GET && p->info.m_key_protect < 2) {
        return true;
    }
    if (p->info.m_key_violations < UINT16_MAX) {
        p->info.m_key_violations++;
    }
    if (p->info.m_key_lease && !p->m_key_lease_ns) {
        p->m_key_lease_ns = now + p->info.m_key_lease * IB_SEC;
    }
    trap_bad_m_key(sma, port, smp, from, mad);
    return false;
}

/* --- Directed route, 14.2.2 -------------------------------------------- */

typedef enum Route {
    ROUTE_BAD,
    ROUTE_HERE,                  /* for this node's SMA */
    ROUTE_HERE_BY_LID,           /* the same, came by LID behind the path */
    ROUTE_SM,                    /* for this node's SM */
    ROUTE_ON,                    /* *out_port and *to are set */
} Route;

static void address_permissive(IbMadAddress *to)
{
    *to = (IbMadAddress) {
        .slid = IB_LID_PERMISSIVE,
        .dlid = IB_LID_PERMISSIVE,
        .vl = IB_VL_MANAGEMENT,
        .pkey = IB_PKEY_DEFAULT,
    };
}

/* Behind the directed part the SMP goes on (or back) by LID, as any other. */
static Route route_by_lid(const IbSma *sma, uint16_t dlid,
                          unsigned *out_port, IbMadAddress *to)
{
    address_permissive(to);
    to->slid = sma->ports[0].info.lid;
    to->dlid = dlid;
    *out_port = 0;
    return ROUTE_ON;
}

static Route route_by_path(const IbSma *sma, uint8_t port, unsigned *out_port,
                           IbMadAddress *to)
{
    if (!has_link(sma, port)) {
        return ROUTE_BAD;
    }
    address_permissive(to);
    *out_port = port;
    return ROUTE_ON;
}

/* C14-9: the SMP is on its way to the node at the path's end. */
static Route route_outgoing(const IbSma *sma, unsigned in_port, IbSmp *smp,
                            uint8_t *mad, unsigned *out_port,
                            IbMadAddress *to)
{
    const uint8_t *initial = mad + IB_SMP_INITIAL_PATH_OFFSET;
    uint8_t *back = mad + IB_SMP_RETURN_PATH_OFFSET;
    unsigned hops = smp->hdr.hop_count;
    unsigned pointer = smp->hdr.hop_pointer;

    if (pointer < hops) {
        /* Pointer 0: came by LID as far as here, the path starts with us. */
        if (!is_switch(sma)) {
            return ROUTE_BAD;
        }
        if (pointer) {
            back[pointer] = in_port;
        }
        smp->hdr.hop_pointer++;
        return route_by_path(sma, initial[pointer + 1], out_port, to);
    }
    if (pointer == hops) {
        if (hops) {
            back[pointer] = in_port;
        }
        smp->hdr.hop_pointer++;
        if (smp->dr_dlid == IB_LID_PERMISSIVE) {
            return ROUTE_HERE;
        }
        if (!is_switch(sma)) {
            return ROUTE_BAD;
        }
        if (smp->dr_dlid == sma->ports[0].info.lid) {
            return ROUTE_HERE;
        }
        return ib_lid_is_unicast(smp->dr_dlid)
               ? route_by_lid(sma, smp->dr_dlid, out_port, to) : ROUTE_BAD;
    }
    return pointer == hops + 1 ? ROUTE_HERE_BY_LID : ROUTE_BAD;
}

/* C14-13: the SMP is on its way back to the SM. */
static Route route_returning(const IbSma *sma, IbSmp *smp, const uint8_t *mad,
                             unsigned *out_port, IbMadAddress *to)
{
    const uint8_t *back = mad + IB_SMP_RETURN_PATH_OFFSET;
    unsigned hops = smp->hdr.hop_count;
    unsigned pointer = smp->hdr.hop_pointer;

    if (pointer > hops + 1) {
        return ROUTE_BAD;
    }
    if (pointer == 0) {
        return ROUTE_SM;
    }
    smp->hdr.hop_pointer--;
    if (pointer == 1) {
        if (smp->dr_slid == IB_LID_PERMISSIVE) {
            return ROUTE_SM;
        }
        return is_switch(sma) && ib_lid_is_unicast(smp->dr_slid)
               ? route_by_lid(sma, smp->dr_slid, out_port, to) : ROUTE_BAD;
    }
    if (!is_switch(sma)) {
        return ROUTE_BAD;
    }
    return route_by_path(sma, back[pointer - 1], out_port, to);
}

static Route route_directed(const IbSma *sma, unsigned in_port, IbSmp *smp,
                            uint8_t *mad, unsigned *out_port,
                            IbMadAddress *to)
{
    Route route;

    if (smp->hdr.hop_count > MAX_HOPS) {
        return ROUTE_BAD;
    }
    if (smp->hdr.status & DR_DIRECTION) {
        route = route_returning(sma, smp, mad, out_port, to);
    } else {
        route = route_outgoing(sma, in_port, smp, mad, out_port, to);
    }
    mad[6] = smp->hdr.hop_pointer;
    return route;
}

static void address_lid_reply(const IbSma *sma, unsigned in_port,
                              const IbMadAddress *from, unsigned *out_port,
                              IbMadAddress *to)
{
    const IbPortInfo *info =
        &sma->ports[management_port(sma, in_port)].info;
    unsigned lid_mask = ~0u << info->lmc;

    address_permissive(to);
    to->dlid = from->slid;
    to->sl = from->sl;
    to->slid = (from->dlid & lid_mask) == info->lid ? from->dlid : info->lid;
    *out_port = is_switch(sma) ? 0 : in_port;
}

/* C14-10 to C14-13: the reply turns round and takes its first step. */
static void address_directed_reply(const IbSma *sma, unsigned in_port,
                                   bool by_lid, const IbMadAddress *from,
                                   IbSmp *smp, const uint8_t *mad,
                                   unsigned *out_port, IbMadAddress *to)
{
    unsigned hops = smp->hdr.hop_count;

    smp->hdr.status |= DR_DIRECTION;
    if (by_lid) {
        /* Back the same way, pointer unmoved. */
        address_lid_reply(sma, in_port, from, out_port, to);
        return;
    }
    address_permissive(to);
    smp->hdr.hop_pointer = hops;
    if (hops) {
        *out_port = mad[IB_SMP_RETURN_PATH_OFFSET + hops];
        return;
    }
    *out_port = 0;
    if (smp->dr_slid != IB_LID_PERMISSIVE) {
        to->slid = sma->ports[management_port(sma, in_port)].info.lid;
        to->dlid = smp->dr_slid;
        *out_port = is_switch(sma) ? 0 : in_port;
    }
}

int ib_smp_send_directed(uint8_t *mad)
{
    unsigned hops = mad[7];

    if (hops == 0 || hops > MAX_HOPS) {
        return -1;
    }
    mad[6] = 1;
    return mad[IB_SMP_INITIAL_PATH_OFFSET + 1];
}

/* --- The agent --------------------------------------------------------- */

static IbSmaVerdict drop(IbSma *sma, unsigned in_port)
{
    sma->ports[in_port].counters.vl15_dropped++;
    return IB_SMA_DROP;
}

static bool is_response(const IbSmp *smp)
{
    return smp->hdr.method & IB_METHOD_RESPONSE_BIT;
}

IbSmaVerdict ib_sma_receive(IbSma *sma, unsigned in_port,
                            const IbMadAddress *from, uint8_t *mad,
                            unsigned *out_port, IbMadAddress *to)
{
    unsigned mgmt_port;
    bool directed, by_lid = false;
    uint16_t status;
    IbSmp smp;

    if (in_port > sma->num_ports) {
        return IB_SMA_DROP;
    }
    mgmt_port = management_port(sma, in_port);
    ib_smp_unpack(&smp, mad);
    directed = smp.hdr.mgmt_class == IB_CLASS_SM_DR;
    if (!directed && smp.hdr.mgmt_class != IB_CLASS_SM_LID) {
        return drop(sma, in_port);
    }

    if (directed) {
        switch (route_directed(sma, in_port, &smp, mad, out_port, to)) {
        case ROUTE_HERE:
            break;
        case ROUTE_HERE_BY_LID:
            if (!ib_lid_is_unicast(from->slid)) {
                return drop(sma, in_port);
            }
            by_lid = true;
            break;
        case ROUTE_SM:
            return IB_SMA_DELIVER;
        case ROUTE_ON:
            return IB_SMA_FORWARD;
        default:
            return drop(sma, in_port);
        }
    }

    if (is_response(&smp) || smp.hdr.method == IB_METHOD_TRAP) {
        return IB_SMA_DELIVER;
    }
    /*
     * The key keeps others out.  Who asks locally (an SM whose own port got a
     * key from someone else) could read it from the node's memory anyway.
     */
    if (in_port && !m_key_good(sma, mgmt_port, &smp, from, mad)) {
        return IB_SMA_DROP;
    }

    if (smp.hdr.base_version != 1 || smp.hdr.class_version != 1) {
        status = IB_MAD_STATUS_BAD_VERSION;
    } else if (smp.hdr.method == IB_METHOD_TRAP_REPRESS) {
        trap_repress(sma, &smp);
        return IB_SMA_DROP;
    } else if (smp.hdr.method != IB_METHOD_GET &&
               smp.hdr.method != IB_METHOD_SET) {
        status = IB_MAD_STATUS_BAD_METHOD;
    } else {
        const Request rq = {
            .sma = sma,
            .smp = &smp,
            .in_port = in_port,
            .mgmt_port = mgmt_port,
            .set = smp.hdr.method == IB_METHOD_SET,
            .data = mad + IB_SMP_DATA_OFFSET,
        };

        status = do_attribute(&rq);
    }

    smp.hdr.method = IB_METHOD_GET_RESP;
    smp.hdr.status = status;
    if (directed) {
        address_directed_reply(sma, in_port, by_lid, from, &smp, mad,
                               out_port, to);
    } else {
        address_lid_reply(sma, in_port, from, out_port, to);
    }
    ib_smp_pack(mad, &smp);
    return IB_SMA_REPLY;
}

/* --- Performance agent, 16.1 ------------------------------------------- */

/* In the order of CounterSelect's bits, 16.1.3.5. */
static const uint16_t pma_counters[] = {
    offsetof(IbPortCounters, symbol_error),
    offsetof(IbPortCounters, link_error_recovery),
    offsetof(IbPortCounters, link_downed),
    offsetof(IbPortCounters, rcv_errors),
    offsetof(IbPortCounters, rcv_remote_physical_errors),
    offsetof(IbPortCounters, rcv_switch_relay_errors),
    offsetof(IbPortCounters, xmit_discards),
    offsetof(IbPortCounters, xmit_constraint_errors),
    offsetof(IbPortCounters, rcv_constraint_errors),
    offsetof(IbPortCounters, local_link_integrity_errors),
    offsetof(IbPortCounters, excessive_buffer_overrun),
    offsetof(IbPortCounters, vl15_dropped),
    offsetof(IbPortCounters, xmit_data),
    offsetof(IbPortCounters, rcv_data),
    offsetof(IbPortCounters, xmit_pkts),
    offsetof(IbPortCounters, rcv_pkts),
    /* CounterSelect2 bit 0 follows as bit 16. */
    offsetof(IbPortCounters, xmit_wait),
};

/* 16.1.4.11 */
static const uint16_t pma_counters_ext[] = {
    offsetof(IbPortCounters, xmit_data),
    offsetof(IbPortCounters, rcv_data),
    offsetof(IbPortCounters, xmit_pkts),
    offsetof(IbPortCounters, rcv_pkts),
    offsetof(IbPortCounters, unicast_xmit_pkts),
    offsetof(IbPortCounters, unicast_rcv_pkts),
    offsetof(IbPortCounters, multicast_xmit_pkts),
    offsetof(IbPortCounters, multicast_rcv_pkts),
};

#define PMA_COUNTER_SELECT2 18           /* byte in PortCounters */
#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static uint64_t *counter_at(IbPortCounters *counters, uint16_t offset)
{
    return (uint64_t *)((uint8_t *)counters + offset);
}

static void counters_clear(IbPortCounters *counters, const uint16_t *offsets,
                           size_t n, uint32_t select)
{
    for (size_t i = 0; i < n; i++) {
        if (select & 1u << i) {
            *counter_at(counters, offsets[i]) = 0;
        }
    }
}

/* Every member of IbPortCounters is a 64-bit counter. */
static void counters_add(IbPortCounters *sum, IbPortCounters *more)
{
    for (size_t at = 0; at < sizeof(*sum); at += sizeof(uint64_t)) {
        uint64_t *s = counter_at(sum, at);
        uint64_t m = *counter_at(more, at);

        *s = *s > UINT64_MAX - m ? UINT64_MAX : *s + m;
    }
}

static uint16_t pma_port_counters(IbSma *sma, bool set, bool extended,
                                  uint8_t *data)
{
    uint8_t port_select = data[1];
    uint16_t counter_select = ib_get16(data + 2);
    bool all = is_switch(sma) && port_select == PMA_ALL_PORTS;
    unsigned first = all ? 1 : port_select;
    unsigned last = all ? sma->num_ports : port_select;
    uint8_t select2 = data[PMA_COUNTER_SELECT2];
    IbPortCounters sum = { 0 };

    if (!all && !has_link(sma, port_select)) {
        return IB_MAD_STATUS_BAD_FIELD;
    }
    for (unsigned port = first; port <= last; port++) {
        IbPortCounters *counters = &sma->ports[port].counters;

        if (set && extended) {
            counters_clear(counters, pma_counters_ext,
                           COUNT(pma_counters_ext), counter_select);
        } else if (set) {
            counters_clear(counters, pma_counters, COUNT(pma_counters),
                           counter_select | (uint32_t)select2 << 16);
        }
        counters_add(&sum, counters);
    }
    memset(data, 0, IB_PM_DATA_LEN);
    if (extended) {
        ib_port_counters_ext_pack(data, &sum, port_select, counter_select);
    } else {
        ib_port_counters_pack(data, &sum, port_select, counter_select);
        data[PMA_COUNTER_SELECT2] = select2;
    }
    return IB_MAD_STATUS_OK;
}

static uint16_t pma_class_port_info(const IbSma *sma, bool set, uint8_t *data)
{
    const IbClassPortInfo info = {
        .base_version = 1,
        .class_version = 1,
        .capability_mask = PMA_CAP_EXT_WIDTH | PMA_CAP_XMIT_WAIT |
                           (is_switch(sma) ? PMA_CAP_ALL_PORT_SELECT : 0),
        .resp_time = RESP_TIME_DEFAULT,
    };

    if (set) {
        return IB_MAD_STATUS_BAD_METHOD_ATTR;
    }
    memset(data, 0, IB_PM_DATA_LEN);
    ib_class_port_info_pack(data, &info);
    return IB_MAD_STATUS_OK;
}

bool ib_pma_receive(IbSma *sma, unsigned in_port, uint8_t *mad)
{
    uint8_t *data = mad + IB_PM_DATA_OFFSET;
    IbMadHeader header;
    bool set;

    ib_mad_header_unpack(&header, mad);
    if (in_port > sma->num_ports || header.mgmt_class != IB_CLASS_PM ||
        header.method & IB_METHOD_RESPONSE_BIT) {
        return false;
    }
    set = header.method == IB_METHOD_SET;
    if (header.base_version != 1 || header.class_version != 1) {
        header.status = IB_MAD_STATUS_BAD_VERSION;
    } else if (!set && header.method != IB_METHOD_GET) {
        header.status = IB_MAD_STATUS_BAD_METHOD;
    } else {
        switch (header.attr_id) {
        case IB_ATTR_CLASS_PORT_INFO:
            header.status = pma_class_port_info(sma, set, data);
            break;
        case IB_PM_PORT_COUNTERS:
            header.status = pma_port_counters(sma, set, false, data);
            break;
        case IB_PM_PORT_COUNTERS_EXT:
            header.status = pma_port_counters(sma, set, true, data);
            break;
        default:
            header.status = IB_MAD_STATUS_BAD_METHOD_ATTR;
            break;
        }
    }
    header.method = IB_METHOD_GET_RESP;
    ib_mad_header_pack(mad, &header);
    return true;
}
