/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The walk of a packet through the fabric.
 *
 * Theory of operation: packets start, or go on, from sources: a host port's
 * ring, a host port's VL15 buffer, a switch's agents, a delayed cable.  Each
 * source has a turn of FABRIC_TURN packets, round and round, so that none can
 * starve another.  For the packet at the head of a source:
 *
 *   take    its headers are copied out of shared memory, once, and checked
 *           (ib_packet_parse); all decisions are made on the copy, and the copy
 *           is what the receiver gets.  MADs are copied whole.
 *   plan    from cable to cable through the forwarding tables, writing down
 *           FabricSteps without touching anything.  If a receiver has no room
 *           the plan is thrown away, the packet stays where it is and is
 *           planned anew later (the faults it meets are a function of the
 *           packet, so they are the same each time).  When its lifetime at the
 *           head of the queue has passed, the plan says "drop" there instead.
 *   do      the steps: counters, capture, one memcpy per receiver.
 *   done    the slot is given back.
 *
 * Steps:  CROSS    over a cable (counters of both ends, capture)
 *         DELIVER  into a host port's ring, or its VL15 buffer
 *         LOCAL    to a switch's own agents (SMI of any port, port 0)
 *         DELAY    onto a cable's delay line; goes on from there later
 *         DROP     no further, with the reason
 *
 * Who is counted for what is said at count_drop().
 */
#include <string.h>

#include "fabric/fabric_int.h"
#include "ib/bytes.h"

enum { STEP_CROSS, STEP_DELIVER, STEP_LOCAL, STEP_DELAY, STEP_DROP };

/* Where one copy of the packet is, during the plan. */
typedef struct Place {
    int parent;                      /* CROSS that led here, -1 */
    unsigned hops;
    bool corrupted, duplicate;
    uint32_t bit;
} Place;

typedef enum TakeResult { TAKE_EMPTY, TAKE_WAITING, TAKE_PACKET } TakeResult;

static bool is_vl15(const FabricWalk *walk)
{
    return walk->packet.lrh.vl == IB_VL_MANAGEMENT;
}

/* Kicks: hosts are woken once per turn, not once per packet. */

static void kick_later(Fabric *fabric, FabricPort *port)
{
    if (!port->kick_due) {
        port->kick_due = true;
        fabric->kicks[fabric->num_kicks++] = port;
    }
}

void fabric_kick_flush(Fabric *fabric)
{
    for (unsigned i = 0; i < fabric->num_kicks; i++) {
        FabricPort *port = fabric->kicks[i];

        port->kick_due = false;
        if (port->node->attached && fabric->ops.kick) {
            fabric->ops.kick(fabric->opaque, port->node->opaque, port->port);
        }
    }
    fabric->num_kicks = 0;
}

/* Take. */

static TakeResult take(Fabric *fabric, FabricSource *source)
{
    FabricWalk *walk = &fabric->walk;
    size_t mad_len;

    if (source->kind == SOURCE_RING) {
        walk->bytes = ib_ring_peek(&source->port->from_node, &walk->len);
        if (!walk->bytes) {
            if (source->port->from_node.broken) {
                fabric_port_broken(fabric, source->port);
            }
            return TAKE_EMPTY;
        }
    } else {
        FabricQueueEntry *entry = fabric_queue_head(&source->queue);

        if (!entry) {
            return TAKE_EMPTY;
        }
        if (entry->due_ns > fabric->now) {
            return TAKE_WAITING;
        }
        walk->bytes = entry->data;
        walk->len = entry->len;
    }

    walk->source = source;
    walk->header_len = MIN(walk->len, IB_HEADERS_MAX);
    memcpy(walk->header, walk->bytes, walk->header_len);
    walk->error = ib_packet_parse(&walk->packet, walk->header, walk->len);
    walk->is_mad = false;
    if (!walk->error) {
        walk->is_mad = walk->packet.bth.opcode == (IB_TRANSPORT_UD |
                                                   IB_OP_SEND_ONLY) &&
                       walk->packet.bth.dest_qpn <= 1 &&
                       walk->packet.payload_len == IB_MAD_LEN &&
                       walk->len <= MAD_PACKET_MAX;
        if (walk->is_mad) {
            mad_len = walk->len - walk->header_len;
            memcpy(walk->header + walk->header_len,
                   walk->bytes + walk->header_len, mad_len);
            walk->header_len = walk->len;
        } else {
            /* Only what the parser looked at. */
            walk->header_len = walk->packet.header_len;
        }
    }
    return TAKE_PACKET;
}

static void done(Fabric *fabric, FabricSource *source)
{
    if (source->kind == SOURCE_RING) {
        if (ib_ring_consume(&source->port->from_node)) {
            kick_later(fabric, source->port);
        }
        source->number++;
        source->blocked = false;
    } else {
        fabric_source_pop(source);
    }
}

/* Plan. */

static FabricStep *add_step(FabricWalk *walk, unsigned kind,
                            const Place *place)
{
    FabricStep *step;

    if (walk->num_steps == walk->max_steps) {
        return NULL;
    }
    step = &walk->steps[walk->num_steps++];
    memset(step, 0, sizeof(*step));
    if (walk->num_steps == walk->max_steps) {
        /* Multicast tables that make a loop: say so in the last one. */
        step->kind = STEP_DROP;
        step->drop = FABRIC_DROP_LOOP;
        step->parent = place->parent;
        return NULL;
    }
    step->kind = kind;
    step->parent = place->parent;
    step->dropped_by = -1;
    step->corrupted = place->corrupted;
    step->bit = place->bit;
    step->duplicate = place->duplicate;
    return step;
}

static void plan_drop(FabricWalk *walk, const Place *place, FabricDrop drop,
                      FabricPort *where, FabricPort *egress)
{
    FabricStep *step = add_step(walk, STEP_DROP, place);

    if (step) {
        step->drop = drop;
        step->port = where;
        step->egress = egress;
        if (place->parent >= 0) {
            walk->steps[place->parent].dropped_by = walk->num_steps - 1;
        }
    }
}

/* How long a packet may wait for room at @port, from PortInfo (18.2.5.4). */
static int64_t lifetime(const FabricPort *port)
{
    const FabricPort *peer = fabric_port_peer(port);
    const IbSmaPort *sma = peer ? fabric_port_sma(peer) : NULL;
    unsigned code = sma ? sma->info.hoq_life : FABRIC_HOQ_LIFE;

    return ib_timeout_ns(CLAMP(code, FABRIC_HOQ_LIFE_MIN,
                               FABRIC_HOQ_LIFE_MAX));
}

static unsigned stall_count(const FabricPort *port)
{
    const FabricPort *peer = fabric_port_peer(port);
    const IbSmaPort *sma = peer ? fabric_port_sma(peer) : NULL;

    return sma && sma->info.vl_stall_count ? sma->info.vl_stall_count
                                           : FABRIC_VL_STALL_COUNT;
}

static void plan_blocked(FabricWalk *walk, FabricPort *port, int64_t life)
{
    if (!walk->blocked) {
        walk->blocked = true;
        walk->blocked_on = port;
        walk->lifetime_ns = life;
    }
}

/* Packets in a VL15 buffer go before all others. */
static void flush_vl15(Fabric *fabric, FabricPort *port)
{
    FabricQueueEntry *entry;
    uint8_t *slot;

    while ((entry = fabric_queue_head(&port->vl15.queue)) &&
           (slot = ib_ring_reserve(&port->to_node))) {
        memcpy(slot, entry->data, entry->len);
        if (ib_ring_commit(&port->to_node, entry->len)) {
            kick_later(fabric, port);
        }
        fabric_source_pop(&port->vl15);
    }
}

static void plan_deliver(Fabric *fabric, const Place *place, FabricPort *port)
{
    FabricWalk *walk = &fabric->walk;
    FabricPort *peer = fabric_port_peer(port);
    FabricStep *step;
    bool room;

    flush_vl15(fabric, port);
    room = !port->vl15.queue.count && ib_ring_room(&port->to_node) > 0;
    if (port->to_node.broken) {
        fabric_port_broken(fabric, port);
        plan_drop(walk, place, FABRIC_DROP_LINK_DOWN, port, peer);
        return;
    }
    if (!room) {
        if (is_vl15(walk)) {
            if (port->vl15.queue.count == port->vl15.queue.slots) {
                plan_drop(walk, place, FABRIC_DROP_VL15_FULL, port, peer);
                return;
            }
        } else if (place->duplicate) {
            return;                  /* a fault's copy is not worth a wait */
        } else if (fabric->now < port->stalled_until) {
            plan_drop(walk, place, FABRIC_DROP_STALLED, port, peer);
            return;
        } else if (walk->expired) {
            plan_drop(walk, place, FABRIC_DROP_LIFETIME, port, peer);
            return;
        } else {
            plan_blocked(walk, port, lifetime(port));
            return;
        }
    }
    step = add_step(walk, STEP_DELIVER, place);
    if (step) {
        step->port = port;
        step->to_buffer = !room;
    }
}

static void plan_arrive(Fabric *fabric, Place place, FabricPort *port);

/*
 * Over a cable, from the port at its end @direction.  @transmitted: it left
 * that port before (it comes from the delay line).
 */
static void plan_cross(Fabric *fabric, Place place, FabricCable *cable,
                       unsigned direction, bool transmitted)
{
    FabricWalk *walk = &fabric->walk;
    FabricPort *from = cable->ends[direction], *to = cable->ends[!direction];
    FabricFate fate = { 0 };
    bool corrupted_here = false;
    FabricStep *step;
    unsigned copies;

    if (!cable->up) {
        plan_drop(walk, &place, FABRIC_DROP_LINK_DOWN, from, from);
        return;
    }
    if (place.hops == FABRIC_MAX_HOPS) {
        plan_drop(walk, &place, FABRIC_DROP_LOOP, from, NULL);
        return;
    }
    if (cable->faulty && !transmitted) {
        FabricFaultKey key = {
            .seed = fabric->seed, .cable = cable->index,
            .direction = direction, .source = walk->source->id,
            .number = walk->source->number,
        };

        fabric_fault_draw(&cable->fault, &key, &fate);
        if (fate.corrupt && !fate.drop && !place.corrupted) {
            corrupted_here = place.corrupted = true;
            place.bit = fate.bit;
        }
    }
    if (!transmitted && cable->delay[direction].queue.memory &&
        (fate.delay || cable->delay[direction].queue.count) && !fate.drop) {
        /* One that is late holds up those behind it: links keep the order. */
        if (fabric_queue_tail(&cable->delay[direction].queue)) {
            step = add_step(walk, STEP_DELAY, &place);
            if (step) {
                step->cable = cable;
                step->direction = direction;
                step->late = fate.delay;
                step->duplicated_here = fate.duplicate;
                step->corrupted_here = corrupted_here;
            }
        } else if (is_vl15(walk)) {
            plan_drop(walk, &place, FABRIC_DROP_VL15_FULL, from, from);
        } else if (walk->expired) {
            plan_drop(walk, &place, FABRIC_DROP_LIFETIME, from, from);
        } else {
            plan_blocked(walk, NULL, ib_timeout_ns(FABRIC_HOQ_LIFE_MAX));
        }
        return;
    }
    copies = fate.duplicate && !fate.drop ? 2 : 1;
    place.hops++;
    for (unsigned i = 0; i < copies; i++) {
        Place next = place;

        next.duplicate |= i > 0;
        step = add_step(walk, STEP_CROSS, &next);
        if (!step) {
            return;
        }
        step->cable = cable;
        step->direction = direction;
        step->transmit = !transmitted;
        step->receive = !fate.drop;
        step->duplicated_here = i > 0;
        step->corrupted_here = corrupted_here && !i;
        next.parent = walk->num_steps - 1;
        if (fate.drop) {
            plan_drop(walk, &next, FABRIC_DROP_FAULT, to, NULL);
        } else {
            plan_arrive(fabric, next, to);
        }
    }
}

/* Out of a switch by @port; @in: where it came in, NULL: from its agents. */
static void plan_egress(Fabric *fabric, const Place *place, FabricPort *in,
                        FabricPort *port)
{
    FabricWalk *walk = &fabric->walk;
    const IbPortInfo *info = &fabric_port_sma(port)->info;
    unsigned mtu = ib_mtu_bytes(info->neighbor_mtu);

    if (!port->cable || !port->cable->up) {
        plan_drop(walk, place, FABRIC_DROP_LINK_DOWN, in ? in : port, port);
    } else if (!is_vl15(walk) && info->state != IB_PORT_ACTIVE) {
        plan_drop(walk, place, FABRIC_DROP_PORT_STATE, in ? in : port, port);
    } else if (mtu && walk->packet.payload_len > mtu) {
        plan_drop(walk, place, FABRIC_DROP_MTU, in ? in : port, port);
    } else {
        plan_cross(fabric, *place, port->cable, port->end, false);
    }
}

static void plan_local(FabricWalk *walk, const Place *place, FabricPort *in)
{
    FabricStep *step;

    if (!walk->is_mad || !fabric_switch_wants(in->node->sw, walk)) {
        plan_drop(walk, place, FABRIC_DROP_NOT_FOR_US, in, NULL);
        return;
    }
    if (place->corrupted || !ib_icrc_ok(walk->header, walk->len)) {
        plan_drop(walk, place, FABRIC_DROP_BAD_ICRC, in, NULL);
        return;
    }
    step = add_step(walk, STEP_LOCAL, place);
    if (step) {
        step->port = in;
    }
}

/* Through a switch by its tables; @in: port 0 for what its agents send. */
static void plan_route(Fabric *fabric, const Place *place, FabricPort *in)
{
    FabricWalk *walk = &fabric->walk;
    FabricNode *node = in->node;
    uint16_t dlid = walk->packet.lrh.dlid;
    uint16_t mask[MFT_POSITIONS];
    unsigned out;

    if (ib_lid_is_multicast(dlid)) {
        if (!fabric_switch_multicast(node->sw, dlid, in->port, mask)) {
            plan_drop(walk, place, FABRIC_DROP_NO_ROUTE, in, NULL);
            return;
        }
        for (out = 1; out <= node->topology->num_ports; out++) {
            if ((mask[out / 16] >> out % 16 & 1) && out != in->port) {
                plan_egress(fabric, place, in, &node->ports[out]);
            }
        }
        return;
    }
    out = fabric_switch_unicast(node->sw, dlid);
    if (out > node->topology->num_ports) {
        plan_drop(walk, place, FABRIC_DROP_NO_ROUTE, in, NULL);
    } else if (out == 0 && in->port) {
        plan_local(walk, place, in);
    } else if (out == in->port) {
        plan_drop(walk, place, FABRIC_DROP_SAME_PORT, in, NULL);
    } else {
        plan_egress(fabric, place, in, &node->ports[out]);
    }
}

/* @port has received it. */
static void plan_arrive(Fabric *fabric, Place place, FabricPort *port)
{
    FabricWalk *walk = &fabric->walk;
    unsigned state;

    if (!port->node->sw) {
        plan_deliver(fabric, &place, port);
        return;
    }
    state = fabric_port_sma(port)->info.state;
    if (is_vl15(walk)) {
        if (walk->packet.lrh.dlid == IB_LID_PERMISSIVE) {
            plan_local(walk, &place, port);
            return;
        }
    } else if (state != IB_PORT_ARMED && state != IB_PORT_ACTIVE) {
        plan_drop(walk, &place, FABRIC_DROP_PORT_STATE, port, NULL);
        return;
    }
    plan_route(fabric, &place, port);
}

/* VL15 carries SMPs and nothing else (14.2, 3.5.3). */
static bool smp_ok(const FabricWalk *walk)
{
    const IbPacket *packet = &walk->packet;

    return walk->is_mad && packet->bth.dest_qpn == 0 && !packet->has_grh &&
           !ib_lid_is_multicast(packet->lrh.dlid);
}

static void plan(Fabric *fabric)
{
    FabricWalk *walk = &fabric->walk;
    FabricSource *source = walk->source;
    Place place = { .parent = -1 };
    FabricQueueEntry *entry;
    FabricPort *port = source->port;

    walk->num_steps = 0;
    walk->blocked = false;
    walk->blocked_on = NULL;
    if (walk->error) {
        plan_drop(walk, &place, FABRIC_DROP_BAD_PACKET, port, NULL);
        return;
    }
    if (is_vl15(walk) && !smp_ok(walk)) {
        plan_drop(walk, &place, FABRIC_DROP_BAD_SMP, port, NULL);
        return;
    }
    switch (source->kind) {
    case SOURCE_RING:
        if (port->cable) {
            plan_cross(fabric, place, port->cable, port->end, false);
        } else {
            plan_drop(walk, &place, FABRIC_DROP_LINK_DOWN, port, port);
        }
        break;
    case SOURCE_VL15:
        g_assert_not_reached();      /* see forward_one() */
    case SOURCE_SWITCH:
        entry = fabric_queue_head(&source->queue);
        if (entry->out_port) {
            plan_egress(fabric, &place, NULL,
                        &source->node->ports[entry->out_port]);
        } else {
            plan_route(fabric, &place, &source->node->ports[0]);
        }
        break;
    case SOURCE_DELAY:
        plan_cross(fabric, place, source->cable, source->direction, true);
        break;
    }
}

/* Do. */

static void count_packet(const FabricWalk *walk, IbPortCounters *counters,
                         bool transmit)
{
    bool multicast = ib_lid_is_multicast(walk->packet.lrh.dlid);
    uint64_t words = walk->len / 4;

    if (transmit) {
        counters->xmit_pkts++;
        counters->xmit_data += words;
        counters->multicast_xmit_pkts += multicast;
        counters->unicast_xmit_pkts += !multicast;
    } else {
        counters->rcv_pkts++;
        counters->rcv_data += words;
        counters->multicast_rcv_pkts += multicast;
        counters->unicast_rcv_pkts += !multicast;
    }
}

/*
 * Port counters of switches (16.1.3.5).  PortRcvErrors: what came in cannot
 * be a packet.  PortRcvSwitchRelayErrors: the switch has nowhere to send it.
 * PortXmitDiscards: of the port it should have left by (not Active, MTU,
 * lifetime).  Hosts keep counters of their own.
 */
static void count_drop(Fabric *fabric, const FabricStep *step)
{
    FabricWalk *walk = &fabric->walk;
    FabricCable *cable = NULL;
    FabricPort *far = NULL;
    IbSmaPort *sma;
    unsigned direction = 0;

    if (step->parent >= 0) {
        cable = walk->steps[step->parent].cable;
        direction = walk->steps[step->parent].direction;
    } else if (walk->source->kind == SOURCE_RING) {
        cable = walk->source->port->cable;
        direction = walk->source->port->end;
    } else if (walk->source->kind == SOURCE_DELAY) {
        cable = walk->source->cable;
        direction = walk->source->direction;
    } else if (step->egress && step->egress->cable) {
        cable = step->egress->cable;
        direction = step->egress->end;
    }
    if (cable) {
        cable->stats.drops[direction][step->drop]++;
        far = cable->ends[!direction];
    }

    switch ((FabricDrop)step->drop) {
    case FABRIC_DROP_BAD_PACKET:
    case FABRIC_DROP_BAD_SMP:
        if (far && cable->up && (sma = fabric_port_sma(far))) {
            sma->counters.rcv_errors++;
        }
        break;
    case FABRIC_DROP_NO_ROUTE:
    case FABRIC_DROP_SAME_PORT:
    case FABRIC_DROP_LOOP:
        if (step->port && (sma = fabric_port_sma(step->port))) {
            sma->counters.rcv_switch_relay_errors++;
        }
        break;
    default:
        if (step->egress && (sma = fabric_port_sma(step->egress))) {
            sma->counters.xmit_discards++;
        }
        break;
    }
}

static void tell_drop(Fabric *fabric, const FabricStep *step)
{
    FabricWalk *walk = &fabric->walk;
    const IbPacket *packet = &walk->packet;
    FabricPort *port = step->egress ? step->egress : step->port;
    FabricEvent event = {
        .type = FABRIC_EVENT_PACKET_DROPPED, .node = -1, .cable = -1,
    };

    if (!fabric_may_tell(fabric, &fabric->drops, FABRIC_DROP_EVENTS,
                         &event.dropped.suppressed)) {
        return;
    }
    if (port) {
        event.node = port->node->index;
        event.port = port->port;
    }
    if (step->parent >= 0) {
        event.cable = walk->steps[step->parent].cable->index;
    } else if (port && port->cable) {
        event.cable = port->cable->index;
    }
    event.dropped.drop = step->drop;
    event.dropped.error = walk->error;
    event.dropped.slid = packet->lrh.slid;
    event.dropped.dlid = packet->lrh.dlid;
    event.dropped.vl = packet->lrh.vl;
    event.dropped.opcode = packet->bth.opcode;
    event.dropped.dest_qpn = packet->bth.dest_qpn;
    event.dropped.psn = packet->bth.psn;
    fabric_event(fabric, &event);
}

static void capture(Fabric *fabric, const FabricStep *step,
                    FabricCable *cable, unsigned direction)
{
    FabricWalk *walk = &fabric->walk;
    const FabricStep *drop = NULL;
    FabricPacket packet = {
        .cable = cable->index, .direction = direction,
        .header = walk->header, .header_len = walk->header_len,
        .rest = walk->bytes + walk->header_len,
        .rest_len = walk->len - walk->header_len,
        .drop_node = -1, .corrupted = step->corrupted,
        .duplicate = step->duplicate,
    };

    if (!fabric->ops.capture) {
        return;
    }
    packet.now_ns = ib_clock_now(fabric->clock);
    if (step->corrupted) {
        packet.corrupt_bit = IB_LRH_LEN * 8 +
                             step->bit % ((walk->len - IB_LRH_LEN) * 8);
    }
    if (step->kind == STEP_DROP) {
        drop = step;
    } else if (step->dropped_by >= 0) {
        drop = &walk->steps[step->dropped_by];
    }
    if (drop) {
        packet.drop = drop->drop;
        packet.error = walk->error;
        if (drop->port) {
            packet.drop_node = drop->port->node->index;
            packet.drop_port = drop->port->port;
        }
    }
    fabric->ops.capture(fabric->opaque, cable->captures, &packet);
}

/* A flipped bit behind the LRH; @p has walk->len bytes. */
static void corrupt(const FabricWalk *walk, const FabricStep *step,
                    uint8_t *p)
{
    if (step->corrupted) {
        uint32_t bit = IB_LRH_LEN * 8 +
                       step->bit % ((walk->len - IB_LRH_LEN) * 8);

        p[bit / 8] ^= 1u << bit % 8;
    }
}

static void copy_packet(const FabricWalk *walk, const FabricStep *step,
                        uint8_t *to)
{
    memcpy(to, walk->header, walk->header_len);
    memcpy(to + walk->header_len, walk->bytes + walk->header_len,
           walk->len - walk->header_len);
    corrupt(walk, step, to);
}

static void do_cross(Fabric *fabric, const FabricStep *step)
{
    FabricWalk *walk = &fabric->walk;
    FabricCable *cable = step->cable;
    unsigned direction = step->direction;
    IbSmaPort *from = fabric_port_sma(cable->ends[direction]);
    IbSmaPort *to = fabric_port_sma(cable->ends[!direction]);

    if (step->transmit && !step->duplicated_here) {
        if (from) {
            count_packet(walk, &from->counters, true);
        }
        cable->stats.packets[direction]++;
        cable->stats.bytes[direction] += walk->len;
    }
    if (step->receive && to) {
        count_packet(walk, &to->counters, false);
    }
    cable->stats.duplicated[direction] += step->duplicated_here;
    cable->stats.corrupted[direction] += step->corrupted_here;
    if (cable->captures) {
        capture(fabric, step, cable, direction);
    }
}

static void do_deliver(Fabric *fabric, FabricStep *step)
{
    FabricWalk *walk = &fabric->walk;
    FabricPort *port = step->port;
    FabricQueueEntry *entry;
    uint8_t *slot;

    if (step->to_buffer) {
        entry = fabric_queue_tail(&port->vl15.queue);
        if (entry) {
            entry->due_ns = 0;
            entry->len = walk->len;
            copy_packet(walk, step, entry->data);
            fabric_source_push(fabric, &port->vl15);
            walk->delivered = true;
        }
        return;
    }
    slot = ib_ring_reserve(&port->to_node);
    if (!slot) {
        /* Two copies to one port and room for one only. */
        step->kind = STEP_DROP;
        step->drop = FABRIC_DROP_LIFETIME;
        step->egress = fabric_port_peer(port);
        count_drop(fabric, step);
        return;
    }
    copy_packet(walk, step, slot);
    if (ib_ring_commit(&port->to_node, walk->len)) {
        kick_later(fabric, port);
    }
    port->discards_in_row = 0;
    port->stalled_until = 0;
    walk->delivered = true;
}

static void do_delay(Fabric *fabric, const FabricStep *step)
{
    FabricWalk *walk = &fabric->walk;
    FabricCable *cable = step->cable;
    unsigned direction = step->direction;
    FabricSource *line = &cable->delay[direction];
    IbSmaPort *from = fabric_port_sma(cable->ends[direction]);
    int64_t due = fabric->now;

    if (step->late) {
        due += cable->fault.delay_ns;
        cable->stats.delayed[direction]++;
    }
    if (line->queue.count) {
        /* Not before the one in front. */
        due = MAX(due, cable->delay_last[direction]);
    }
    cable->delay_last[direction] = due;
    for (int i = 0; i < 1 + step->duplicated_here; i++) {
        FabricQueueEntry *entry = fabric_queue_tail(&line->queue);

        if (!entry) {
            break;
        }
        entry->due_ns = due;
        entry->len = walk->len;
        copy_packet(walk, step, entry->data);
        fabric_source_push(fabric, line);
        cable->stats.duplicated[direction] += i;
    }
    if (from) {
        count_packet(walk, &from->counters, true);
    }
    cable->stats.packets[direction]++;
    cable->stats.bytes[direction] += walk->len;
    cable->stats.corrupted[direction] += step->corrupted_here;
    walk->delivered = true;
}

static void do_local(Fabric *fabric, const FabricStep *step)
{
    FabricWalk *walk = &fabric->walk;

    fabric_switch_receive(step->port->node->sw, step->port->port, walk);
    walk->delivered = true;
}

static void do_drop(Fabric *fabric, const FabricStep *step)
{
    FabricWalk *walk = &fabric->walk;
    FabricPort *port = step->port;

    count_drop(fabric, step);
    if (step->drop == FABRIC_DROP_LIFETIME && port && !port->node->sw) {
        port->discards_in_row++;
        if (port->discards_in_row >= stall_count(port)) {
            port->stalled_until = fabric->now + 8 * lifetime(port);
        }
    }
    tell_drop(fabric, step);
    if (step->parent < 0) {
        /* It did not get onto a cable: show it where it would have. */
        FabricPort *out = walk->source->kind == SOURCE_RING
                          ? walk->source->port : step->egress;

        if (out && out->cable && out->cable->captures) {
            capture(fabric, step, out->cable, out->end);
        }
    }
}

static void execute(Fabric *fabric)
{
    FabricWalk *walk = &fabric->walk;

    walk->delivered = false;
    for (int i = 0; i < walk->num_steps; i++) {
        FabricStep *step = &walk->steps[i];

        switch (step->kind) {
        case STEP_CROSS:
            do_cross(fabric, step);
            break;
        case STEP_DELIVER:
            do_deliver(fabric, step);
            break;
        case STEP_LOCAL:
            do_local(fabric, step);
            break;
        case STEP_DELAY:
            do_delay(fabric, step);
            break;
        case STEP_DROP:
            do_drop(fabric, step);
            break;
        }
    }
}

/*
 * What a timeline wants to know of management traffic: CM messages, SA
 * Reports, SMP Traps, each once, where they start.
 */
static void tell_mad(Fabric *fabric)
{
    FabricWalk *walk = &fabric->walk;
    FabricSource *source = walk->source;
    const IbPacket *packet = &walk->packet;
    const uint8_t *mad = walk->header + packet->header_len;
    const uint8_t *body = mad + IB_MAD_HEADER_LEN;
    FabricEvent event = { .type = FABRIC_EVENT_MAD, .cable = -1 };
    IbMadHeader header;
    IbNotice notice;
    FabricNode *node;
    bool is_smp = packet->bth.dest_qpn == 0;

    if (!fabric->ops.event || (source->kind != SOURCE_RING &&
                               source->kind != SOURCE_SWITCH)) {
        return;
    }
    ib_mad_header_unpack(&header, mad);
    if (is_smp && (header.mgmt_class == IB_CLASS_SM_LID ||
                   header.mgmt_class == IB_CLASS_SM_DR) &&
        header.method == IB_METHOD_TRAP) {
        event.type = FABRIC_EVENT_TRAP;
        ib_notice_unpack(&notice, mad + IB_SMP_DATA_OFFSET, IB_SMP_DATA_LEN);
        event.mad.trap = notice.trap;
    } else if (!is_smp && header.mgmt_class == IB_CLASS_CM) {
        event.mad.local_id = ib_get32(body);
        event.mad.remote_id = ib_get32(body + 4);
        if (header.attr_id == IB_CM_REJ) {
            event.mad.reason = ib_get16(body + 10);
        } else if (header.attr_id == IB_CM_APR) {
            event.mad.reason = body[9];
        }
    } else if (!is_smp && header.mgmt_class == IB_CLASS_SA &&
               header.method == IB_METHOD_REPORT) {
        ib_notice_unpack(&notice, mad + IB_SA_DATA_OFFSET, IB_NOTICE_LEN);
        event.mad.trap = notice.trap;
        if (notice.trap == IB_TRAP_GID_IN_SERVICE ||
            notice.trap == IB_TRAP_GID_OUT_OF_SERVICE) {
            event.mad.has_gid = true;
            memcpy(event.mad.gid, notice.details + 6, 16);
        }
    } else {
        return;
    }
    node = source->kind == SOURCE_RING ? source->port->node : source->node;
    if (!fabric_may_tell(fabric, &node->mads, FABRIC_NODE_EVENTS,
                         &event.mad.suppressed)) {
        return;
    }
    event.node = node->index;
    event.mad.mgmt_class = header.mgmt_class;
    event.mad.method = header.method;
    event.mad.attr_id = header.attr_id;
    event.mad.status = header.status;
    event.mad.tid = header.tid;
    event.mad.slid = packet->lrh.slid;
    event.mad.dlid = packet->lrh.dlid;
    event.mad.delivered = walk->delivered;
    if (source->kind == SOURCE_RING) {
        event.port = source->port->port;
        event.cable = source->port->cable ? source->port->cable->index : -1;
    }
    fabric_event(fabric, &event);
}

/* Drops all of a queue; they were somewhere when that went away. */
void fabric_drop_all(Fabric *fabric, FabricSource *source, FabricDrop drop)
{
    unsigned direction;
    FabricCable *cable;

    while (source->queue.count) {
        if (source->kind == SOURCE_DELAY) {
            cable = source->cable;
            direction = source->direction;
        } else {
            cable = source->port->cable;
            direction = cable ? !source->port->end : 0;
        }
        if (cable) {
            cable->stats.drops[direction][drop]++;
        }
        fabric_source_pop(source);
    }
}

/* The loop. */

/* A port's VL15 buffer waits for room as long as it takes. */
static bool drain_vl15(Fabric *fabric, FabricSource *source)
{
    uint32_t before = source->queue.count;

    flush_vl15(fabric, source->port);
    if (source->port->to_node.broken) {
        fabric_port_broken(fabric, source->port);
        fabric_drop_all(fabric, source, FABRIC_DROP_LINK_DOWN);
    }
    source->blocked = source->queue.count > 0;
    source->blocked_on = source->port;
    source->blocked_until = IB_CLOCK_NEVER;
    return source->queue.count < before;
}

/* One packet; false: none, or it cannot move. */
static bool forward_one(Fabric *fabric, FabricSource *source)
{
    FabricWalk *walk = &fabric->walk;

    if (source->kind == SOURCE_VL15) {
        return drain_vl15(fabric, source);
    }
    if (take(fabric, source) != TAKE_PACKET) {
        source->blocked = false;
        return false;
    }
    walk->expired = source->blocked && fabric->now >= source->blocked_until;
    plan(fabric);
    if (walk->blocked) {
        if (!source->blocked) {
            source->blocked = true;
            source->blocked_since = fabric->now;
        }
        source->blocked_on = walk->blocked_on;
        source->blocked_until = source->blocked_since + walk->lifetime_ns;
        if (fabric->now < source->blocked_until) {
            return false;
        }
        /* Just expired: plan again, now with the drop. */
        walk->expired = true;
        plan(fabric);
    }
    execute(fabric);
    if (walk->is_mad) {
        tell_mad(fabric);
    }
    done(fabric, source);
    if (fabric->num_dirty) {
        fabric_update_links(fabric);
    }
    return true;
}

static unsigned turn(Fabric *fabric, FabricSource *source, unsigned budget)
{
    unsigned n = 0;

    while (n < budget && forward_one(fabric, source)) {
        n++;
    }
    /* Also when nothing moved: a plan may have emptied a VL15 buffer. */
    fabric_kick_flush(fabric);
    if (n) {
        fabric->moved += n;
        fabric->now = ib_clock_now(fabric->clock);
    }
    if (fabric->num_dirty) {
        fabric_update_links(fabric);
    }
    return n;
}

static void wake(Fabric *fabric)
{
    if (fabric->slept) {
        fabric->slept = false;
        for (unsigned i = 0; i < fabric->num_rings; i++) {
            ib_ring_consumer_awake(&fabric->rings[i]->port->from_node);
        }
    }
}

static void note_deadline(FabricSource *source, int64_t *deadline)
{
    if (source->blocked) {
        *deadline = MIN(*deadline, source->blocked_until);
    } else if (source->kind != SOURCE_RING && source->queue.count) {
        *deadline = MIN(*deadline,
                        fabric_queue_head(&source->queue)->due_ns);
    }
}

static void arm_timer(Fabric *fabric)
{
    int64_t deadline = IB_CLOCK_NEVER;

    for (unsigned i = 0; i < fabric->num_rings; i++) {
        note_deadline(fabric->rings[i], &deadline);
    }
    for (unsigned i = 0; i < fabric->num_active; i++) {
        note_deadline(fabric->active[i], &deadline);
    }
    fabric->deadline_ns = deadline;
    if (deadline == IB_CLOCK_NEVER) {
        if (ib_timer_armed(&fabric->timer)) {
            ib_timer_cancel(&fabric->timer);
        }
    } else if (!ib_timer_armed(&fabric->timer) ||
               fabric->timer.deadline_ns != deadline) {
        ib_timer_set(&fabric->timer, deadline);
    }
}

/* Owners of broken rings hear of it here, where they may do anything. */
static void tell_broken(Fabric *fabric)
{
    for (unsigned i = 0; i < fabric->num_rings; i++) {
        FabricPort *port = fabric->rings[i]->port;

        if (port->broken && !port->broken_told) {
            port->broken_told = true;
            if (fabric->ops.broken) {
                fabric->ops.broken(fabric->opaque, port->node->opaque,
                                   port->port);
            }
        }
    }
}

bool fabric_run(Fabric *fabric, unsigned budget)
{
    bool progress = true;

    wake(fabric);
    fabric_update_links(fabric);
    while (progress) {
        progress = false;
        fabric->now = ib_clock_now(fabric->clock);
        for (unsigned i = 0; i < fabric->num_active; ) {
            FabricSource *source = fabric->active[i];
            unsigned n = turn(fabric, source, MIN(FABRIC_TURN, budget));

            budget -= n;
            progress |= n > 0;
            if (!source->queue.count) {
                source->listed = false;
                fabric->active[i] = fabric->active[--fabric->num_active];
            } else {
                i++;
            }
        }
        for (unsigned i = 0; i < fabric->num_rings && budget; i++) {
            unsigned n;

            if (fabric->next_ring >= fabric->num_rings) {
                fabric->next_ring = 0;
            }
            n = turn(fabric, fabric->rings[fabric->next_ring++],
                     MIN(FABRIC_TURN, budget));
            budget -= n;
            progress |= n > 0;
        }
        if (!budget) {
            break;
        }
    }
    tell_broken(fabric);
    if (progress) {
        return true;
    }
    arm_timer(fabric);
    return false;
}

static bool source_may_sleep(FabricSource *source)
{
    if (source->blocked) {
        return !source->blocked_on ||
               ib_ring_producer_sleep(&source->blocked_on->to_node);
    }
    return source->kind != SOURCE_RING ||
           ib_ring_consumer_sleep(&source->port->from_node);
}

bool fabric_prepare_sleep(Fabric *fabric)
{
    fabric->slept = true;
    for (unsigned i = 0; i < fabric->num_rings; i++) {
        if (!source_may_sleep(fabric->rings[i])) {
            return false;
        }
    }
    for (unsigned i = 0; i < fabric->num_active; i++) {
        if (!source_may_sleep(fabric->active[i])) {
            return false;
        }
    }
    return true;
}

uint64_t fabric_moved(const Fabric *fabric)
{
    return fabric->moved;
}

int64_t fabric_deadline(const Fabric *fabric)
{
    return fabric->deadline_ns;
}
