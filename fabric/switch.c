/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A switch: forwarding tables and the agents of its port 0.
 *
 * Theory of operation: the subnet management agent is an IbSma (ib/sma.h);
 * what it does not keep itself, the linear and multicast forwarding tables,
 * comes through its attribute callback.  MADs that reach the switch are
 * answered at once; the answers, SMPs that go on by directed route, and traps
 * wait in one bounded queue of the switch (a source of forward.c).  When
 * it is full they are lost and counted as VL15Dropped.
 *
 * Port 0 is "enhanced" (18.2.4.1): it has a LID, states and P_Keys like a
 * channel adapter's port.  A performance agent answers on its QP1.
 *
 * A port whose link comes or goes makes the SMA set
 * SwitchInfo:PortStateChange and send trap 128 (14.2.5.4, 14.3.4).
 */
#include <string.h>

#include "fabric/fabric_int.h"
#include "ib/bytes.h"

#define SWITCH_VENDOR_ID 0
#define SWITCH_DEVICE_ID 1
/* Values of SwitchInfo that say "no such port". */
#define NO_DEFAULT_PORT 0xFF
/* Attribute modifier of the tables. */
#define LFT_BLOCKS (LFT_SIZE / LFT_BLOCK)
#define MFT_BLOCKS (MFT_SIZE / MFT_BLOCK)
#define MFT_MOD_BLOCK_MASK 0x1FFu
#define MFT_MOD_POSITION_SHIFT 28

static void switch_changed(void *opaque, unsigned port, unsigned changes,
                           unsigned old_state)
{
    FabricSwitch *sw = opaque;
    FabricEvent event = {
        .type = FABRIC_EVENT_PORT_STATE, .node = sw->node->index,
        .port = port, .cable = -1,
    };

    if ((changes & IB_SMA_CHANGE_STATE) &&
        fabric_may_tell(sw->fabric, &sw->node->states, FABRIC_NODE_EVENTS,
                        &event.state.suppressed)) {
        if (port && sw->node->ports[port].cable) {
            event.cable = sw->node->ports[port].cable->index;
        }
        event.state.old_state = old_state;
        event.state.new_state = sw->sma.ports[port].info.state;
        fabric_event(sw->fabric, &event);
    }
    if (port && changes & (IB_SMA_CHANGE_PHYS | IB_SMA_CHANGE_STATE)) {
        fabric_link_dirty(sw->fabric, sw->node->ports[port].cable);
    }
}

/* Queues a MAD; @out_port 0: the tables find the way. */
static void enqueue(FabricSwitch *sw, unsigned out_port,
                    const IbMadAddress *to, const uint8_t *mad)
{
    FabricQueueEntry *entry = fabric_queue_tail(&sw->source.queue);
    uint8_t *scratch = sw->fabric->scratch;
    size_t len;

    if (out_port > sw->sma.num_ports) {
        return;
    }
    if (!entry) {
        sw->sma.ports[out_port].counters.vl15_dropped++;
        return;
    }
    len = ib_mad_packet(scratch, to, mad);
    g_assert(len <= MAD_PACKET_MAX);
    memcpy(entry->data, scratch, len);
    entry->len = len;
    entry->due_ns = 0;
    entry->out_port = out_port;
    fabric_source_push(sw->fabric, &sw->source);
}

/* Traps: from port 0 to the SM's LID. */
static void switch_send(void *opaque, unsigned port, const IbMadAddress *to,
                        const uint8_t *mad)
{
    enqueue(opaque, 0, to, mad);
}

static bool linear_table(FabricSwitch *sw, bool set, uint32_t block,
                         uint8_t *data)
{
    if (block >= LFT_BLOCKS) {
        return false;
    }
    if (set) {
        memcpy(sw->lft + block * LFT_BLOCK, data, LFT_BLOCK);
    } else {
        memcpy(data, sw->lft + block * LFT_BLOCK, LFT_BLOCK);
    }
    return true;
}

static bool multicast_table(FabricSwitch *sw, bool set, uint32_t mod,
                            uint8_t *data)
{
    uint32_t block = mod & MFT_MOD_BLOCK_MASK;
    uint32_t position = mod >> MFT_MOD_POSITION_SHIFT;

    if (block >= MFT_BLOCKS || position * 16 > sw->sma.num_ports) {
        return false;
    }
    for (uint32_t i = 0; i < MFT_BLOCK; i++) {
        uint16_t *mask = &sw->mft[block * MFT_BLOCK + i][position];

        if (set) {
            *mask = ib_get16(data + 2 * i);
        } else {
            ib_put16(data + 2 * i, *mask);
        }
    }
    return true;
}

static bool switch_attribute(void *opaque, unsigned port, bool set,
                             uint16_t attr_id, uint32_t attr_mod,
                             uint8_t *data)
{
    switch (attr_id) {
    case IB_SM_LINEAR_FT:
        return linear_table(opaque, set, attr_mod, data);
    case IB_SM_MCAST_FT:
        return multicast_table(opaque, set, attr_mod, data);
    default:
        return false;
    }
}

static const IbSmaOps switch_ops = {
    .changed = switch_changed,
    .send = switch_send,
    .attribute = switch_attribute,
};

FabricSwitch *fabric_switch_new(Fabric *fabric, FabricNode *node)
{
    const TopologyNode *topology = node->topology;
    FabricSwitch *sw = g_new0(FabricSwitch, 1);
    IbSma *sma = &sw->sma;

    sw->fabric = fabric;
    sw->node = node;
    sw->lft = g_malloc(LFT_SIZE);
    memset(sw->lft, LFT_NONE, LFT_SIZE);
    sw->mft = g_malloc0(sizeof(*sw->mft) * MFT_SIZE);
    if (!fabric_queue_init(&sw->source.queue, FABRIC_SWITCH_QUEUE,
                           MAD_PACKET_MAX)) {
        g_error("no memory for switch %s", topology->name);
    }
    g_snprintf(sw->description, sizeof(sw->description), "%.63s",
               topology->name);
    ib_sma_init(sma, fabric->clock, IB_NODE_SWITCH, topology->num_ports,
                topology->guid, sw->description, &switch_ops, sw);
    sma->node.vendor_id = SWITCH_VENDOR_ID;
    sma->node.device_id = SWITCH_DEVICE_ID;
    sma->switch_info.lft_cap = LFT_SIZE;
    sma->switch_info.mft_cap = MFT_SIZE;
    sma->switch_info.lft_top = LFT_SIZE - 1;
    sma->switch_info.mft_top = 0;
    sma->switch_info.default_mcast_primary = NO_DEFAULT_PORT;
    sma->switch_info.default_mcast_not_primary = NO_DEFAULT_PORT;
    sma->switch_info.enhanced_port0 = true;
    for (unsigned p = 0; p <= topology->num_ports; p++) {
        IbPortInfo *info = &sma->ports[p].info;

        info->mtu_cap = topology->mtu;
        info->hoq_life = FABRIC_HOQ_LIFE;
        info->vl_stall_count = FABRIC_VL_STALL_COUNT;
        if (p && node->ports[p].cable) {
            info->width_supported |= node->ports[p].cable->topology->width;
            info->speed_supported |= node->ports[p].cable->topology->speed;
        }
    }
    return sw;
}

void fabric_switch_free(FabricSwitch *sw)
{
    ib_sma_fini(&sw->sma);
    fabric_queue_fini(&sw->source.queue);
    g_free(sw->lft);
    g_free(sw->mft);
    g_free(sw);
}

void fabric_switch_link(FabricSwitch *sw, unsigned port, bool up,
                        uint8_t speed, uint8_t width)
{
    if (up) {
        ib_sma_link_up(&sw->sma, port, speed, width);
    } else {
        ib_sma_link_down(&sw->sma, port);
    }
}

/* Is @dlid one of port 0's own (LID and LMC)? */
static bool is_own_lid(const FabricSwitch *sw, uint16_t dlid)
{
    const IbPortInfo *info = &sw->sma.ports[0].info;

    return info->lid && dlid >> info->lmc == info->lid >> info->lmc;
}

unsigned fabric_switch_unicast(const FabricSwitch *sw, uint16_t dlid)
{
    if (is_own_lid(sw, dlid)) {
        return 0;
    }
    if (!ib_lid_is_unicast(dlid) || dlid > sw->sma.switch_info.lft_top) {
        return LFT_NONE;
    }
    return sw->lft[dlid];
}

bool fabric_switch_multicast(const FabricSwitch *sw, uint16_t dlid,
                             unsigned in_port, uint16_t mask[MFT_POSITIONS])
{
    const IbSwitchInfo *info = &sw->sma.switch_info;
    unsigned index = dlid - IB_LID_MCAST_FIRST;
    unsigned port = info->default_mcast_primary;
    uint16_t any = 0;

    memset(mask, 0, sizeof(uint16_t) * MFT_POSITIONS);
    if (index < MFT_SIZE) {
        memcpy(mask, sw->mft[index], sizeof(sw->mft[index]));
        for (unsigned i = 0; i < MFT_POSITIONS; i++) {
            any |= mask[i];
        }
        if (any) {
            return true;
        }
    }
    /* Not configured: the default ports (18.2.4.3.3). */
    if (port == in_port) {
        port = info->default_mcast_not_primary;
    }
    if (port < 1 || port > sw->sma.num_ports) {
        return false;
    }
    mask[port / 16] = 1u << port % 16;
    return true;
}

/*
 * SMPs to the subnet management agent; and on QP1 of port 0 the performance
 * agent (16.1), which is the only one there.
 */
bool fabric_switch_wants(const FabricSwitch *sw, const FabricWalk *walk)
{
    const IbPacket *packet = &walk->packet;
    const IbSmaPort *port0 = &sw->sma.ports[0];
    IbMadHeader header;

    ib_mad_header_unpack(&header, walk->header + packet->header_len);
    if (packet->lrh.vl == IB_VL_MANAGEMENT) {
        return header.mgmt_class == IB_CLASS_SM_LID ||
               header.mgmt_class == IB_CLASS_SM_DR;
    }
    if (packet->bth.dest_qpn != 1 || packet->deth.qkey != IB_QKEY_QP1 ||
        header.mgmt_class != IB_CLASS_PM ||
        (header.method & IB_METHOD_RESPONSE_BIT) ||
        !ib_lid_is_unicast(packet->lrh.slid)) {
        return false;
    }
    for (unsigned i = 0; i < IB_SMA_PKEYS; i++) {
        if (ib_pkey_match(port0->pkeys[i], packet->bth.pkey)) {
            return true;
        }
    }
    return false;
}

static void receive_gmp(FabricSwitch *sw, unsigned in_port,
                        const IbMadAddress *from, uint8_t *mad)
{
    IbMadAddress to;

    ib_mad_address_turn(&to, from);
    to.vl = 0;
    to.src_qpn = 1;
    to.qkey = IB_QKEY_QP1;
    if (ib_pma_receive(&sw->sma, in_port, mad)) {
        enqueue(sw, 0, &to, mad);
    }
}

void fabric_switch_receive(FabricSwitch *sw, unsigned in_port,
                           const FabricWalk *walk)
{
    const IbPacket *packet = &walk->packet;
    uint8_t mad[IB_MAD_LEN];
    IbMadAddress from, to;
    unsigned out_port = 0;

    ib_mad_address_from(&from, packet);
    memcpy(mad, walk->header + packet->header_len, IB_MAD_LEN);
    if (packet->lrh.vl != IB_VL_MANAGEMENT) {
        receive_gmp(sw, in_port, &from, mad);
        return;
    }
    memset(&to, 0, sizeof(to));
    switch (ib_sma_receive(&sw->sma, in_port, &from, mad, &out_port, &to)) {
    case IB_SMA_DROP:
    case IB_SMA_DELIVER:             /* for an SM: there is none in here */
        break;
    case IB_SMA_REPLY:
    case IB_SMA_FORWARD:
        /* With a LID the tables know the way, else the directed route. */
        enqueue(sw, to.dlid == IB_LID_PERMISSIVE ? out_port : 0, &to, mad);
        break;
    }
}
