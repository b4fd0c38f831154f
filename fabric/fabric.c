/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The fabric's parts: nodes, ports, cables and the state of their links.
 * fabric.h has the theory of operation; the walk of packets is forward.c.
 *
 * Links.  Whatever may change a link (cable pulled, host gone, port disabled
 * by its owner or by an SM) marks the cable dirty; fabric_update_links() then
 * compares what should be with what is, and tells both ends.  It never runs
 * inside itself or inside a switch's SMA, which marks cables dirty too.
 */
#include <string.h>

#include "fabric/fabric_int.h"

static const char *const drop_names[FABRIC_DROP_COUNT] = {
    [FABRIC_DROP_NONE] = "none",
    [FABRIC_DROP_BAD_PACKET] = "bad-packet",
    [FABRIC_DROP_BAD_SMP] = "bad-smp",
    [FABRIC_DROP_BAD_ICRC] = "bad-icrc",
    [FABRIC_DROP_LINK_DOWN] = "link-down",
    [FABRIC_DROP_PORT_STATE] = "port-state",
    [FABRIC_DROP_NO_ROUTE] = "no-route",
    [FABRIC_DROP_SAME_PORT] = "same-port",
    [FABRIC_DROP_LOOP] = "loop",
    [FABRIC_DROP_MTU] = "mtu",
    [FABRIC_DROP_LIFETIME] = "lifetime",
    [FABRIC_DROP_STALLED] = "stalled",
    [FABRIC_DROP_VL15_FULL] = "vl15-full",
    [FABRIC_DROP_FAULT] = "fault",
    [FABRIC_DROP_NOT_FOR_US] = "not-for-us",
};

static const char *const drop_texts[FABRIC_DROP_COUNT] = {
    [FABRIC_DROP_NONE] = "not dropped",
    [FABRIC_DROP_BAD_PACKET] = "malformed packet",
    [FABRIC_DROP_BAD_SMP] = "VL15 packet that is no SMP to QP0",
    [FABRIC_DROP_BAD_ICRC] = "MAD to the switch with a wrong ICRC",
    [FABRIC_DROP_LINK_DOWN] = "link is down",
    [FABRIC_DROP_PORT_STATE] = "port is not Active",
    [FABRIC_DROP_NO_ROUTE] = "no route in the forwarding table",
    [FABRIC_DROP_SAME_PORT] = "forwarding table points back where it came "
                              "from",
    [FABRIC_DROP_LOOP] = "too many hops, the forwarding tables make a loop",
    [FABRIC_DROP_MTU] = "payload longer than the port's MTU",
    [FABRIC_DROP_LIFETIME] = "receiver gave no credits for the head-of-queue "
                             "lifetime",
    [FABRIC_DROP_STALLED] = "port is stalled, its receiver gives no credits",
    [FABRIC_DROP_VL15_FULL] = "VL15 buffer is full",
    [FABRIC_DROP_FAULT] = "fault injection",
    [FABRIC_DROP_NOT_FOR_US] = "switch has no agent for it",
};

const char *fabric_drop_name(FabricDrop drop)
{
    return (unsigned)drop < FABRIC_DROP_COUNT ? drop_names[drop] : "unknown";
}

const char *fabric_drop_text(FabricDrop drop)
{
    return (unsigned)drop < FABRIC_DROP_COUNT ? drop_texts[drop] : "unknown";
}

static const char *const event_names[FABRIC_EVENT_COUNT] = {
    [FABRIC_EVENT_CABLE] = "CABLE",
    [FABRIC_EVENT_LINK] = "LINK",
    [FABRIC_EVENT_PORT_STATE] = "PORT_STATE",
    [FABRIC_EVENT_NODE_ATTACHED] = "NODE_ATTACHED",
    [FABRIC_EVENT_NODE_GONE] = "NODE_GONE",
    [FABRIC_EVENT_TRAP] = "TRAP",
    [FABRIC_EVENT_MAD] = "MAD",
    [FABRIC_EVENT_PACKET_DROPPED] = "PACKET_DROPPED",
};

const char *fabric_event_name(FabricEventType type)
{
    return (unsigned)type < FABRIC_EVENT_COUNT ? event_names[type]
                                               : "unknown";
}

/* Queues of packets in the fabric's own memory. */

bool fabric_queue_init(FabricQueue *queue, uint32_t slots, size_t size)
{
    memset(queue, 0, sizeof(*queue));
    queue->stride = (sizeof(FabricQueueEntry) + size + 7) & ~(size_t)7;
    queue->memory = g_try_malloc_n(slots, queue->stride);
    queue->slots = queue->memory ? slots : 0;
    return queue->memory != NULL;
}

void fabric_queue_fini(FabricQueue *queue)
{
    g_free(queue->memory);
    memset(queue, 0, sizeof(*queue));
}

static FabricQueueEntry *queue_entry(const FabricQueue *queue, uint32_t i)
{
    return (FabricQueueEntry *)(void *)
        (queue->memory + (size_t)((queue->head + i) % queue->slots) *
         queue->stride);
}

FabricQueueEntry *fabric_queue_head(const FabricQueue *queue)
{
    return queue->count ? queue_entry(queue, 0) : NULL;
}

FabricQueueEntry *fabric_queue_tail(const FabricQueue *queue)
{
    return queue->count < queue->slots ? queue_entry(queue, queue->count)
                                       : NULL;
}

void fabric_source_push(Fabric *fabric, FabricSource *source)
{
    g_assert(source->queue.count < source->queue.slots);
    source->queue.count++;
    if (!source->listed) {
        g_assert(fabric->num_active < fabric->max_active);
        source->listed = true;
        fabric->active[fabric->num_active++] = source;
    }
}

/* Stays listed: the loop over the list takes empty ones out. */
void fabric_source_pop(FabricSource *source)
{
    g_assert(source->queue.count);
    source->queue.head = (source->queue.head + 1) % source->queue.slots;
    source->queue.count--;
    source->number++;
    source->blocked = false;
}

void fabric_event(Fabric *fabric, FabricEvent *event)
{
    if (fabric->ops.event) {
        event->now_ns = ib_clock_now(fabric->clock);
        fabric->ops.event(fabric->opaque, event);
    }
}

bool fabric_may_tell(Fabric *fabric, FabricLimit *limit, unsigned max,
                     uint64_t *suppressed)
{
    int64_t now = ib_clock_now(fabric->clock);

    if (now - limit->second >= IB_SEC) {
        limit->second = now;
        limit->told = 0;
    }
    if (limit->told == max) {
        limit->suppressed++;
        return false;
    }
    limit->told++;
    *suppressed = limit->suppressed;
    limit->suppressed = 0;
    return true;
}

/* Links. */

void fabric_link_dirty(Fabric *fabric, FabricCable *cable)
{
    if (cable && !cable->dirty) {
        cable->dirty = true;
        fabric->dirty[fabric->num_dirty++] = cable;
    }
}

static bool end_enabled(const FabricPort *end)
{
    const IbSmaPort *sma = fabric_port_sma(end);

    if (sma) {
        return sma->info.phys_state != IB_PHYS_DISABLED;
    }
    return end->node->attached && end->enabled && !end->broken;
}

/* An SM that sets the physical state takes the link down to train again. */
static bool end_left_link(const FabricPort *end)
{
    const IbSmaPort *sma = fabric_port_sma(end);

    return sma && sma->info.phys_state != IB_PHYS_LINK_UP;
}

static void cable_rate(const FabricCable *cable, uint8_t *speed,
                       uint8_t *width)
{
    *speed = cable->topology->speed;
    *width = cable->topology->width;
}

static void set_link(Fabric *fabric, FabricCable *cable, bool up)
{
    FabricEvent event = {
        .type = FABRIC_EVENT_LINK, .node = -1, .cable = cable->index,
    };
    uint8_t speed, width;

    cable_rate(cable, &speed, &width);
    cable->up = up;
    event.link.up = up;
    event.link.speed = speed;
    event.link.width = width;
    fabric_event(fabric, &event);
    if (!up) {
        /* What is on the wire is lost with it. */
        fabric_drop_all(fabric, &cable->delay[0], FABRIC_DROP_LINK_DOWN);
        fabric_drop_all(fabric, &cable->delay[1], FABRIC_DROP_LINK_DOWN);
    }
    for (int e = 0; e < 2; e++) {
        FabricPort *end = cable->ends[e];

        if (end->node->sw) {
            fabric_switch_link(end->node->sw, end->port, up, speed, width);
        } else {
            end->discards_in_row = 0;
            end->stalled_until = 0;
            if (end->node->attached && fabric->ops.link) {
                fabric->ops.link(fabric->opaque, end->node->opaque,
                                 end->port, up, speed, width);
            }
        }
    }
}

void fabric_update_links(Fabric *fabric)
{
    if (fabric->updating_links) {
        return;
    }
    fabric->updating_links = true;
    while (fabric->num_dirty) {
        FabricCable *cable = fabric->dirty[--fabric->num_dirty];
        bool want;

        cable->dirty = false;
        want = cable->plugged && end_enabled(cable->ends[0]) &&
               end_enabled(cable->ends[1]);
        if (cable->up && (!want || end_left_link(cable->ends[0]) ||
                          end_left_link(cable->ends[1]))) {
            set_link(fabric, cable, false);
        }
        if (want && !cable->up) {
            set_link(fabric, cable, true);
        }
    }
    fabric->updating_links = false;
}

void fabric_port_broken(Fabric *fabric, FabricPort *port)
{
    if (port->broken) {
        return;
    }
    port->broken = true;
    fabric_link_dirty(fabric, port->cable);
}

/* Building and taking apart. */

static void source_init(FabricSource *source, FabricSourceKind kind,
                        uint32_t *next_id)
{
    source->kind = kind;
    source->id = (*next_id)++;
}

static void timer_due(void *opaque)
{
    /* The owner's loop calls fabric_run() after ib_clock_run(). */
}

static void build_node(Fabric *fabric, unsigned index, uint32_t *next_id)
{
    FabricNode *node = &fabric->nodes[index];
    const TopologyNode *topology = &fabric->topology->nodes[index];

    node->topology = topology;
    node->index = index;
    node->ports = g_new0(FabricPort, topology->num_ports + 1);
    for (unsigned p = 1; p <= topology->num_ports; p++) {
        FabricPort *port = &node->ports[p];

        port->node = node;
        port->port = p;
        if (topology->kind == TOPOLOGY_HOST) {
            source_init(&port->ring, SOURCE_RING, next_id);
            source_init(&port->vl15, SOURCE_VL15, next_id);
            port->ring.port = port->vl15.port = port;
            if (!fabric_queue_init(&port->vl15.queue, FABRIC_VL15_BUFFER,
                                   MAD_PACKET_MAX)) {
                g_error("no memory for the ports of %s", topology->name);
            }
        }
    }
    if (topology->kind == TOPOLOGY_SWITCH) {
        node->ports[0].node = node;
        node->guid = topology->guid;
        node->sw = fabric_switch_new(fabric, node);
        source_init(&node->sw->source, SOURCE_SWITCH, next_id);
        node->sw->source.node = node;
    }
}

Fabric *fabric_new(const Topology *topology, IbClock *clock, uint64_t seed,
                   const FabricOps *ops, void *opaque)
{
    Fabric *fabric = g_new0(Fabric, 1);
    unsigned host_ports = 0, switches = 0;
    uint32_t next_id = 0;

    fabric->topology = topology;
    fabric->clock = clock;
    fabric->now = ib_clock_now(clock);
    fabric->seed = seed;
    fabric->opaque = opaque;
    if (ops) {
        fabric->ops = *ops;
    }
    fabric->deadline_ns = IB_CLOCK_NEVER;
    ib_timer_init(&fabric->timer, clock, timer_due, fabric);

    fabric->num_cables = topology->num_cables;
    fabric->cables = g_new0(FabricCable, topology->num_cables + 1);
    fabric->dirty = g_new0(FabricCable *, topology->num_cables + 1);
    fabric->num_nodes = topology->num_nodes;
    fabric->nodes = g_new0(FabricNode, topology->num_nodes);
    for (unsigned i = 0; i < topology->num_nodes; i++) {
        if (topology->nodes[i].kind == TOPOLOGY_HOST) {
            host_ports += topology->nodes[i].num_ports;
        } else {
            switches++;
        }
    }
    fabric->max_rings = host_ports;
    fabric->rings = g_new0(FabricSource *, host_ports + 1);
    fabric->kicks = g_new0(FabricPort *, host_ports + 1);
    fabric->max_active = host_ports + switches + 2 * topology->num_cables;
    fabric->active = g_new0(FabricSource *, fabric->max_active + 1);
    /*
     * A copy for each cable and the reason where it ended are enough for any
     * tree; more is a loop of multicast tables.
     */
    fabric->walk.max_steps = 2 * (topology->num_cables + FABRIC_MAX_HOPS);
    fabric->walk.steps = g_new0(FabricStep, fabric->walk.max_steps);

    for (unsigned i = 0; i < topology->num_nodes; i++) {
        build_node(fabric, i, &next_id);
    }
    for (unsigned i = 0; i < topology->num_cables; i++) {
        FabricCable *cable = &fabric->cables[i];

        cable->topology = &topology->cables[i];
        cable->index = i;
        cable->plugged = cable->topology->plugged;
        for (unsigned e = 0; e < 2; e++) {
            const TopologyEnd *end = &cable->topology->ends[e];

            cable->ends[e] = &fabric->nodes[end->node].ports[end->port];
            cable->ends[e]->cable = cable;
            cable->ends[e]->end = e;
            source_init(&cable->delay[e], SOURCE_DELAY, &next_id);
            cable->delay[e].cable = cable;
            cable->delay[e].direction = e;
        }
        fabric_link_dirty(fabric, cable);
    }
    fabric_update_links(fabric);
    return fabric;
}

void fabric_free(Fabric *fabric)
{
    if (!fabric) {
        return;
    }
    for (unsigned i = 0; i < fabric->num_nodes; i++) {
        FabricNode *node = &fabric->nodes[i];

        for (unsigned p = 1; p <= node->topology->num_ports; p++) {
            fabric_queue_fini(&node->ports[p].vl15.queue);
        }
        if (node->sw) {
            fabric_switch_free(node->sw);
        }
        g_free(node->ports);
    }
    for (unsigned i = 0; i < fabric->num_cables; i++) {
        fabric_queue_fini(&fabric->cables[i].delay[0].queue);
        fabric_queue_fini(&fabric->cables[i].delay[1].queue);
    }
    ib_timer_fini(&fabric->timer);
    g_free(fabric->walk.steps);
    g_free(fabric->active);
    g_free(fabric->rings);
    g_free(fabric->kicks);
    g_free(fabric->dirty);
    g_free(fabric->cables);
    g_free(fabric->nodes);
    g_free(fabric);
}

/* Hosts. */

/* Which node or port but those of @except has @guid; NULL: none. */
static char *guid_owner(const Fabric *fabric, const FabricNode *except,
                        uint64_t guid)
{
    for (unsigned i = 0; i < fabric->num_nodes; i++) {
        const FabricNode *other = &fabric->nodes[i];
        bool here = other->sw || other->attached;

        if (other == except) {
            continue;
        }
        /* One that is not here yet may have its GUID from the topology. */
        if (guid == (here ? other->guid : other->topology->guid)) {
            return g_strdup(other->topology->name);
        }
        for (unsigned p = 1; other->attached &&
                             p <= other->topology->num_ports; p++) {
            if (guid == other->port_guids[p - 1]) {
                return g_strdup_printf("%s/%u", other->topology->name, p);
            }
        }
    }
    return NULL;
}

/*
 * A GUID is one thing's only (IBTA chapter 4), but that a node may share one
 * with a port of its own.
 */
static char *guid_error(const Fabric *fabric, const FabricNode *node,
                        const IbLinkHello *hello)
{
    const char *name = node->topology->name;

    for (unsigned p = 0; p <= hello->num_ports; p++) {
        uint64_t guid = p ? hello->port_guids[p - 1] : hello->node_guid;
        char *whose = guid_owner(fabric, node, guid), *error;

        for (unsigned k = 1; k < p && !whose; k++) {
            if (guid == hello->port_guids[k - 1]) {
                whose = g_strdup_printf("%s/%u", name, k);
            }
        }
        if (guid && whose) {
            char *who = p ? g_strdup_printf("%s/%u", name, p)
                          : g_strdup(name);

            error = g_strdup_printf("%s has GUID 0x%016" G_GINT64_MODIFIER
                                    "x, which is %s's; GUIDs are unique: "
                                    "give one of them another", who, guid,
                                    whose);
            g_free(who);
            g_free(whose);
            return error;
        }
        g_free(whose);
    }
    return NULL;
}

/* NULL, or why this host may not join. */
static char *attach_error(const Fabric *fabric, const IbLinkHello *hello,
                          int *index)
{
    const Topology *topology = fabric->topology;
    const TopologyNode *wanted;
    char *names, *error;

    *index = -1;
    if (!memchr(hello->name, 0, sizeof(hello->name))) {
        return g_strdup_printf("the name has no end; it is at most %d bytes",
                               TOPOLOGY_NAME_MAX);
    }
    *index = topology_find_node(topology, hello->name);
    if (*index < 0 || topology->nodes[*index].kind != TOPOLOGY_HOST) {
        char *shown = g_strescape(hello->name, NULL);

        names = topology_host_names(topology);
        error = g_strdup_printf("'%s' is %s in %s; hosts are: %s", shown,
                                *index < 0 ? "not there" : "a switch",
                                topology->file, names);
        g_free(names);
        g_free(shown);
        return error;
    }
    wanted = &topology->nodes[*index];
    if (fabric->nodes[*index].attached) {
        return g_strdup_printf("%s is here already; a name is for one "
                               "host at a time", wanted->name);
    }
    if (hello->num_ports != wanted->num_ports) {
        return g_strdup_printf("%s has %u ports, %s:%u says ports=%u; let "
                               "them agree", wanted->name, hello->num_ports,
                               topology->file, wanted->line,
                               wanted->num_ports);
    }
    if (!hello->node_guid) {
        return g_strdup_printf("%s has node GUID 0; give it one",
                               wanted->name);
    }
    if (wanted->guid && hello->node_guid != wanted->guid) {
        return g_strdup_printf("%s has GUID 0x%016" G_GINT64_MODIFIER "x, "
                               "%s:%u says guid=0x%016" G_GINT64_MODIFIER
                               "x; let them agree", wanted->name,
                               hello->node_guid, topology->file, wanted->line,
                               wanted->guid);
    }
    return guid_error(fabric, &fabric->nodes[*index], hello);
}

bool fabric_node_attach(Fabric *fabric, const IbLinkHello *hello,
                        IbLinkPortMemory *const *memory, void *node_opaque,
                        char **error)
{
    FabricEvent event = { .type = FABRIC_EVENT_NODE_ATTACHED, .cable = -1 };
    FabricNode *node;
    int index;

    *error = attach_error(fabric, hello, &index);
    if (*error) {
        return false;
    }
    node = &fabric->nodes[index];
    node->attached = true;
    node->guid = hello->node_guid;
    node->opaque = node_opaque;
    for (unsigned p = 1; p <= node->topology->num_ports; p++) {
        FabricPort *port = &node->ports[p];

        node->port_guids[p - 1] = hello->port_guids[p - 1];
        port->enabled = port->broken = port->broken_told = false;
        port->kick_due = false;
        ib_ring_init_consumer(&port->from_node, &memory[p - 1]->to_fabric);
        ib_ring_init_producer(&port->to_node, &memory[p - 1]->to_node);
        fabric->rings[fabric->num_rings++] = &port->ring;
    }
    event.node = index;
    event.attached.guid = node->guid;
    event.attached.num_ports = node->topology->num_ports;
    fabric_event(fabric, &event);
    return true;
}

/* Nobody may go on waiting for room at a port that is going. */
static void forget_blocked(FabricSource *source, const FabricNode *node)
{
    if (source->blocked && source->blocked_on &&
        source->blocked_on->node == node) {
        source->blocked_on = NULL;
    }
}

void fabric_node_detach(Fabric *fabric, int index)
{
    FabricEvent event = {
        .type = FABRIC_EVENT_NODE_GONE, .node = index, .cable = -1,
    };
    FabricNode *node = &fabric->nodes[index];
    unsigned kept = 0;

    if (node->sw || !node->attached) {
        return;
    }
    fabric_kick_flush(fabric);
    fabric_event(fabric, &event);
    node->attached = false;
    node->opaque = NULL;
    for (unsigned i = 0; i < fabric->num_rings; i++) {
        if (fabric->rings[i]->port->node != node) {
            forget_blocked(fabric->rings[i], node);
            fabric->rings[kept++] = fabric->rings[i];
        }
    }
    fabric->num_rings = kept;
    for (unsigned i = 0; i < fabric->num_active; i++) {
        forget_blocked(fabric->active[i], node);
    }
    for (unsigned p = 1; p <= node->topology->num_ports; p++) {
        FabricPort *port = &node->ports[p];

        fabric_drop_all(fabric, &port->vl15, FABRIC_DROP_LINK_DOWN);
        port->enabled = false;
        port->ring.blocked = false;
        port->from_node.shared = NULL;
        port->to_node.shared = NULL;
        fabric_link_dirty(fabric, port->cable);
    }
    fabric_update_links(fabric);
}

bool fabric_node_attached(const Fabric *fabric, int node)
{
    return fabric->nodes[node].attached;
}

void fabric_node_enable(Fabric *fabric, int index, unsigned port, bool enable)
{
    FabricNode *node = &fabric->nodes[index];

    if (node->sw || !node->attached || port < 1 ||
        port > node->topology->num_ports ||
        node->ports[port].enabled == enable) {
        return;
    }
    node->ports[port].enabled = enable;
    fabric_link_dirty(fabric, node->ports[port].cable);
    fabric_update_links(fabric);
}

uint64_t fabric_node_guid(const Fabric *fabric, int node)
{
    const FabricNode *n = &fabric->nodes[node];

    return n->sw || n->attached ? n->guid : 0;
}

/* Cables. */

bool fabric_cable_set(Fabric *fabric, int index, bool plugged)
{
    FabricCable *cable = &fabric->cables[index];
    FabricEvent event = {
        .type = FABRIC_EVENT_CABLE, .node = -1, .cable = index,
        .plug.plugged = plugged,
    };

    if (cable->plugged == plugged) {
        return false;
    }
    cable->plugged = plugged;
    fabric_event(fabric, &event);
    fabric_link_dirty(fabric, cable);
    fabric_update_links(fabric);
    return true;
}

bool fabric_cable_plugged(const Fabric *fabric, int cable)
{
    return fabric->cables[cable].plugged;
}

bool fabric_cable_link(const Fabric *fabric, int cable)
{
    return fabric->cables[cable].up;
}

void fabric_cable_rate(const Fabric *fabric, int cable, uint8_t *speed,
                       uint8_t *width)
{
    cable_rate(&fabric->cables[cable], speed, width);
}

bool fabric_cable_fault(Fabric *fabric, int index, const FabricFault *fault)
{
    FabricCable *cable = &fabric->cables[index];

    if (fabric_fault_check(fault)) {
        return false;
    }
    for (int d = 0; d < 2 && fault->delay > 0; d++) {
        if (!cable->delay[d].queue.memory &&
            !fabric_queue_init(&cable->delay[d].queue, FABRIC_DELAY_LINE,
                               IB_PACKET_MAX)) {
            return false;
        }
    }
    cable->fault = *fault;
    cable->faulty = fabric_fault_any(fault);
    return true;
}

const FabricFault *fabric_cable_get_fault(const Fabric *fabric, int cable)
{
    return &fabric->cables[cable].fault;
}

void fabric_cable_capture(Fabric *fabric, int cable, unsigned captures)
{
    fabric->cables[cable].captures = captures;
}

unsigned fabric_cable_get_capture(const Fabric *fabric, int cable)
{
    return fabric->cables[cable].captures;
}

const FabricCableStats *fabric_cable_stats(const Fabric *fabric, int cable)
{
    return &fabric->cables[cable].stats;
}

int fabric_port_cable(const Fabric *fabric, int index, unsigned port,
                      unsigned *end)
{
    const FabricNode *node = &fabric->nodes[index];

    if (port < 1 || port > node->topology->num_ports ||
        !node->ports[port].cable) {
        return -1;
    }
    *end = node->ports[port].end;
    return node->ports[port].cable->index;
}

const IbSma *fabric_switch_sma(const Fabric *fabric, int node)
{
    return fabric->nodes[node].sw ? &fabric->nodes[node].sw->sma : NULL;
}
