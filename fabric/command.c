/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Commands of the control socket (docs/fabric.md).
 *
 * Theory of operation: a table says which arguments a command knows, so that
 * one door checks them all.  A handler puts its result into a JsonBuilder
 * (one value), or prints it, or returns a sentence.  What it wants to know of
 * the fabric it copies out in one runner_call(); the JSON is made afterwards.
 * Events that a command causes are sent before its reply.
 */
#include <string.h>

#include "fabric/daemon.h"

typedef enum ArgType { ARG_STRING, ARG_NUMBER, ARG_STRINGS } ArgType;

typedef struct Arg {
    const char *name;
    ArgType type;
    bool required;
} Arg;

#define MAX_ARGS 8

typedef struct Command {
    const char *name;
    /* NULL: good, @b has one more value; else why not (g_free()). */
    char *(*run)(Daemon *daemon, JsonObject *args, JsonBuilder *b);
    Arg args[MAX_ARGS];
    /* Instead of run(): for what is text already. */
    char *(*print)(Daemon *daemon, JsonObject *args, GString *out);
} Command;

static void add_double(JsonBuilder *b, const char *name, double value)
{
    json_builder_set_member_name(b, name);
    json_builder_add_double_value(b, value);
}

static void add_guid(JsonBuilder *b, const char *name, uint64_t guid)
{
    if (guid) {
        json_add_hex64(b, name, guid);
    } else {
        json_builder_set_member_name(b, name);
        json_builder_add_null_value(b);
    }
}

static char *end_name(const Topology *topology, const TopologyEnd *end)
{
    return g_strdup_printf("%s/%u", topology->nodes[end->node].name,
                           end->port);
}

/* The fabric at one moment. */
typedef struct CableSnapshot {
    bool plugged, link;
    uint8_t speed, width;
    FabricFault fault;
    FabricCableStats stats;
} CableSnapshot;

typedef struct PortSnapshot {
    int cable;
    uint8_t state, phys_state;       /* switches */
    IbPortCounters counters;
} PortSnapshot;

typedef struct NodeSnapshot {
    bool attached;
    uint64_t guid;
    uint16_t lid;                    /* switches */
    PortSnapshot *ports;             /* 0 .. num_ports */
} NodeSnapshot;

typedef struct Snapshot {
    const Topology *topology;
    CableSnapshot *cables;
    NodeSnapshot *nodes;
    uint64_t moved;
} Snapshot;

static void call_snapshot(Fabric *fabric, void *data)
{
    Snapshot *snapshot = data;
    const Topology *topology = snapshot->topology;

    snapshot->moved = fabric_moved(fabric);
    for (unsigned i = 0; i < topology->num_cables; i++) {
        CableSnapshot *cable = &snapshot->cables[i];

        cable->plugged = fabric_cable_plugged(fabric, i);
        cable->link = fabric_cable_link(fabric, i);
        fabric_cable_rate(fabric, i, &cable->speed, &cable->width);
        cable->fault = *fabric_cable_get_fault(fabric, i);
        cable->stats = *fabric_cable_stats(fabric, i);
    }
    for (unsigned i = 0; i < topology->num_nodes; i++) {
        NodeSnapshot *node = &snapshot->nodes[i];
        const IbSma *sma = fabric_switch_sma(fabric, i);
        unsigned end;

        node->attached = sma || fabric_node_attached(fabric, i);
        node->guid = fabric_node_guid(fabric, i);
        node->lid = sma ? sma->ports[0].info.lid : 0;
        for (unsigned p = 0; p <= topology->nodes[i].num_ports; p++) {
            PortSnapshot *port = &node->ports[p];

            port->cable = fabric_port_cable(fabric, i, p, &end);
            if (sma) {
                port->state = sma->ports[p].info.state;
                port->phys_state = sma->ports[p].info.phys_state;
                port->counters = sma->ports[p].counters;
            }
        }
    }
}

static Snapshot *take_snapshot(Daemon *daemon)
{
    const Topology *topology = daemon->topology;
    Snapshot *snapshot = g_new0(Snapshot, 1);

    snapshot->topology = topology;
    snapshot->cables = g_new0(CableSnapshot, topology->num_cables + 1);
    snapshot->nodes = g_new0(NodeSnapshot, topology->num_nodes + 1);
    for (unsigned i = 0; i < topology->num_nodes; i++) {
        snapshot->nodes[i].ports =
            g_new0(PortSnapshot, topology->nodes[i].num_ports + 1);
    }
    runner_call(daemon->runner, call_snapshot, snapshot);
    return snapshot;
}

static void free_snapshot(Snapshot *snapshot)
{
    for (unsigned i = 0; i < snapshot->topology->num_nodes; i++) {
        g_free(snapshot->nodes[i].ports);
    }
    g_free(snapshot->nodes);
    g_free(snapshot->cables);
    g_free(snapshot);
}

static void put_fault(JsonBuilder *b, const FabricFault *fault)
{
    json_builder_begin_object(b);
    add_double(b, "drop", fault->drop);
    add_double(b, "duplicate", fault->duplicate);
    add_double(b, "corrupt", fault->corrupt);
    add_double(b, "delay", fault->delay);
    add_double(b, "delay-ms", (double)fault->delay_ns / IB_MSEC);
    json_builder_end_object(b);
}

static void put_cables(JsonBuilder *b, const Snapshot *snapshot)
{
    const Topology *topology = snapshot->topology;

    json_builder_begin_array(b);
    for (unsigned i = 0; i < topology->num_cables; i++) {
        const CableSnapshot *cable = &snapshot->cables[i];

        json_builder_begin_object(b);
        json_add_string(b, "name", topology->cables[i].name);
        for (int e = 0; e < 2; e++) {
            char *name = end_name(topology, &topology->cables[i].ends[e]);

            json_add_string(b, e ? "b" : "a", name);
            g_free(name);
        }
        json_add_bool(b, "plugged", cable->plugged);
        json_add_bool(b, "up", cable->link);
        json_add_string(b, "speed", topology_speed_name(cable->speed));
        json_add_string(b, "width", topology_width_name(cable->width));
        if (fabric_fault_any(&cable->fault)) {
            json_builder_set_member_name(b, "fault");
            put_fault(b, &cable->fault);
        }
        json_builder_end_object(b);
    }
    json_builder_end_array(b);
}

static void put_port(JsonBuilder *b, const Snapshot *snapshot,
                     const NodeSnapshot *node, unsigned port, bool is_switch)
{
    const PortSnapshot *p = &node->ports[port];

    json_builder_begin_object(b);
    json_add_int(b, "port", port);
    if (p->cable >= 0) {
        json_add_string(b, "cable", snapshot->topology->cables[p->cable].name);
        json_add_bool(b, "up", snapshot->cables[p->cable].link);
    }
    if (is_switch) {
        json_add_string(b, "state", ib_port_state_name(p->state));
        json_add_string(b, "phys_state", ib_phys_state_name(p->phys_state));
    }
    json_builder_end_object(b);
}

static void put_nodes(JsonBuilder *b, const Snapshot *snapshot,
                      TopologyKind kind, bool with_ports)
{
    const Topology *topology = snapshot->topology;
    bool is_switch = kind == TOPOLOGY_SWITCH;

    json_builder_begin_array(b);
    for (unsigned i = 0; i < topology->num_nodes; i++) {
        const NodeSnapshot *node = &snapshot->nodes[i];

        if (topology->nodes[i].kind != kind) {
            continue;
        }
        json_builder_begin_object(b);
        json_add_string(b, "name", topology->nodes[i].name);
        if (!is_switch) {
            json_add_bool(b, "attached", node->attached);
        }
        add_guid(b, "guid", node->guid);
        if (is_switch) {
            json_add_int(b, "lid", node->lid);
        }
        json_builder_set_member_name(b, "ports");
        if (with_ports) {
            json_builder_begin_array(b);
            for (unsigned p = 1; p <= topology->nodes[i].num_ports; p++) {
                put_port(b, snapshot, node, p, is_switch);
            }
            json_builder_end_array(b);
        } else {
            json_builder_add_int_value(b, topology->nodes[i].num_ports);
        }
        json_builder_end_object(b);
    }
    json_builder_end_array(b);
}

static void put_capture(JsonBuilder *b, const char *file,
                        const CaptureStatus *status)
{
    json_builder_begin_object(b);
    json_add_string(b, "file", file);
    json_add_bool(b, "pipe", status->is_pipe);
    json_add_bool(b, "connected", status->connected);
    json_add_int(b, "packets", status->packets);
    json_add_int(b, "bytes", status->bytes);
    json_add_int(b, "dropped", status->dropped);
    if (status->failure) {
        json_add_string(b, "failure", status->failure);
    }
    json_builder_end_object(b);
}

static void put_captures(JsonBuilder *b, Daemon *daemon)
{
    json_builder_begin_array(b);
    for (unsigned i = 0; i < FABRIC_MAX_CAPTURES; i++) {
        if (daemon->captures[i]) {
            CaptureStatus status;

            capture_status(daemon->captures[i], &status);
            put_capture(b, status.file, &status);
        }
    }
    json_builder_end_array(b);
}

/* Commands. */

static void put_nothing(JsonBuilder *b)
{
    json_builder_begin_object(b);
    json_builder_end_object(b);
}

static char *cmd_nothing(Daemon *daemon, JsonObject *args, JsonBuilder *b)
{
    put_nothing(b);
    return NULL;
}

static gboolean quit_now(gpointer opaque)
{
    Daemon *daemon = opaque;

    g_main_loop_quit(daemon->loop);
    return G_SOURCE_REMOVE;
}

static char *cmd_quit(Daemon *daemon, JsonObject *args, JsonBuilder *b)
{
    put_nothing(b);
    /* The reply goes out first. */
    g_idle_add_full(G_PRIORITY_DEFAULT, quit_now, daemon, NULL);
    return NULL;
}

static char *cmd_version(Daemon *daemon, JsonObject *args, JsonBuilder *b)
{
    json_builder_begin_object(b);
    json_add_string(b, "ehca-fabric", FABRIC_VERSION);
    json_add_int(b, "link-version", IB_LINK_VERSION);
    json_builder_end_object(b);
    return NULL;
}

static char *cmd_list(Daemon *daemon, JsonObject *args, JsonBuilder *b)
{
    Snapshot *snapshot = take_snapshot(daemon);

    json_builder_begin_object(b);
    json_builder_set_member_name(b, "cables");
    put_cables(b, snapshot);
    json_builder_set_member_name(b, "hosts");
    put_nodes(b, snapshot, TOPOLOGY_HOST, false);
    json_builder_set_member_name(b, "switches");
    put_nodes(b, snapshot, TOPOLOGY_SWITCH, false);
    json_builder_end_object(b);
    free_snapshot(snapshot);
    return NULL;
}

static char *cmd_status(Daemon *daemon, JsonObject *args, JsonBuilder *b)
{
    Snapshot *snapshot = take_snapshot(daemon);
    int64_t now = ib_clock_now(&daemon->clock);

    json_builder_begin_object(b);
    json_add_string(b, "version", FABRIC_VERSION);
    json_add_string(b, "topology", daemon->topology->file);
    json_add_int(b, "seed", daemon->seed);
    add_double(b, "uptime", (double)(now - daemon->started_ns) / IB_SEC);
    json_add_int(b, "monotonic_ns", now);
    json_add_int(b, "packets", snapshot->moved);
    json_add_int(b, "next-event", events_next_seq(daemon->events));
    json_add_int(b, "events-lost", runner_events_lost(daemon->runner));
    json_builder_set_member_name(b, "cables");
    put_cables(b, snapshot);
    json_builder_set_member_name(b, "hosts");
    put_nodes(b, snapshot, TOPOLOGY_HOST, true);
    json_builder_set_member_name(b, "switches");
    put_nodes(b, snapshot, TOPOLOGY_SWITCH, true);
    json_builder_set_member_name(b, "captures");
    put_captures(b, daemon);
    json_builder_end_object(b);
    free_snapshot(snapshot);
    return NULL;
}

static int find_cable(Daemon *daemon, const char *name, char **error)
{
    int cable = topology_find_cable(daemon->topology, name);

    if (cable < 0) {
        char *shown = g_strescape(name, NULL);
        char *names = topology_cable_names(daemon->topology);

        *error = g_strdup_printf("there is no cable '%s'; there are: %s",
                                 shown, names);
        g_free(names);
        g_free(shown);
    }
    return cable;
}

typedef struct CableCall {
    int cable;
    bool plugged, changed, link;
    FabricFault fault;
    bool good;
} CableCall;

static void call_cable_set(Fabric *fabric, void *data)
{
    CableCall *call = data;

    call->changed = fabric_cable_set(fabric, call->cable, call->plugged);
    call->link = fabric_cable_link(fabric, call->cable);
}

static char *cable_set(Daemon *daemon, JsonObject *args, JsonBuilder *b,
                       bool plugged)
{
    const char *name = json_object_get_string_member(args, "cable");
    CableCall call = { .plugged = plugged };
    char *error;

    call.cable = find_cable(daemon, name, &error);
    if (call.cable < 0) {
        return error;
    }
    runner_call(daemon->runner, call_cable_set, &call);
    json_builder_begin_object(b);
    json_add_string(b, "cable", name);
    json_add_bool(b, "plugged", plugged);
    json_add_bool(b, "changed", call.changed);
    json_add_bool(b, "up", call.link);
    json_builder_end_object(b);
    return NULL;
}

static char *cmd_pull(Daemon *daemon, JsonObject *args, JsonBuilder *b)
{
    return cable_set(daemon, args, b, false);
}

static char *cmd_restore(Daemon *daemon, JsonObject *args, JsonBuilder *b)
{
    return cable_set(daemon, args, b, true);
}

static void call_cable_fault(Fabric *fabric, void *data)
{
    CableCall *call = data;

    call->good = fabric_cable_fault(fabric, call->cable, &call->fault);
}

static double number_or_0(JsonObject *args, const char *name)
{
    return json_object_has_member(args, name)
           ? json_node_get_double(json_object_get_member(args, name)) : 0.0;
}

static char *cmd_fault(Daemon *daemon, JsonObject *args, JsonBuilder *b)
{
    const char *name = json_object_get_string_member(args, "cable");
    double delay_ms = number_or_0(args, "delay-ms");
    CableCall call = {
        .fault = {
            .drop = number_or_0(args, "drop"),
            .duplicate = number_or_0(args, "duplicate"),
            .corrupt = number_or_0(args, "corrupt"),
            .delay = number_or_0(args, "delay"),
        },
    };
    const char *problem;
    char *error;

    call.cable = find_cable(daemon, name, &error);
    if (call.cable < 0) {
        return error;
    }
    if (!(delay_ms >= 0 &&
          delay_ms <= (double)FABRIC_FAULT_DELAY_MAX / IB_MSEC)) {
        return g_strdup("delay-ms is from 0 to 10000");
    }
    call.fault.delay_ns = delay_ms * IB_MSEC;
    problem = fabric_fault_check(&call.fault);
    if (problem) {
        return g_strdup(problem);
    }
    runner_call(daemon->runner, call_cable_fault, &call);
    if (!call.good) {
        return g_strdup("no memory for the delay line");
    }
    json_builder_begin_object(b);
    json_add_string(b, "cable", name);
    json_builder_set_member_name(b, "fault");
    put_fault(b, &call.fault);
    json_builder_end_object(b);
    return NULL;
}

/* Captures. */

typedef struct CaptureCall {
    Daemon *daemon;
    unsigned slot;
    Capture *capture;                /* NULL: none any more */
    const uint8_t *cables;
} CaptureCall;

/* The bits that a cable's packets go to. */
static void call_capture(Fabric *fabric, void *data)
{
    CaptureCall *call = data;
    unsigned bit = 1u << call->slot;

    runner_set_capture(call->daemon->runner, call->slot, call->capture);
    for (unsigned i = 0; i < call->daemon->topology->num_cables; i++) {
        unsigned bits = fabric_cable_get_capture(fabric, i) & ~bit;

        if (call->capture && call->cables[i]) {
            bits |= bit;
        }
        fabric_cable_capture(fabric, i, bits);
    }
}

bool daemon_capture_start(Daemon *daemon, const char *file,
                          PcapngFormat format, const uint8_t *cables,
                          char **error)
{
    CaptureCall call = { .daemon = daemon, .cables = cables };
    CaptureStatus status = { 0 };

    for (unsigned i = 0; i < FABRIC_MAX_CAPTURES; i++) {
        if (daemon->captures[i] &&
            !strcmp(capture_file(daemon->captures[i]), file)) {
            *error = g_strdup_printf("'%s' is being captured to already",
                                     file);
            return false;
        }
    }
    while (daemon->captures[call.slot]) {
        if (++call.slot == FABRIC_MAX_CAPTURES) {
            *error = g_strdup_printf("%d captures are running already; stop "
                                     "one", FABRIC_MAX_CAPTURES);
            return false;
        }
    }
    call.capture = capture_new(daemon->topology, file, format, cables,
                               error);
    if (!call.capture) {
        return false;
    }
    daemon->captures[call.slot] = call.capture;
    runner_call(daemon->runner, call_capture, &call);
    events_capture(daemon->events, file, "started", &status);
    return true;
}

void daemon_capture_stop(Daemon *daemon, unsigned slot,
                         CaptureStatus *status)
{
    CaptureCall call = { .daemon = daemon, .slot = slot };
    char *file = g_strdup(capture_file(daemon->captures[slot]));

    runner_call(daemon->runner, call_capture, &call);
    capture_free(daemon->captures[slot], status);
    daemon->captures[slot] = NULL;
    events_capture(daemon->events, file, "stopped", status);
    g_free(file);
}

static char *cmd_capture_start(Daemon *daemon, JsonObject *args,
                               JsonBuilder *b)
{
    const char *file = json_object_get_string_member(args, "file");
    unsigned num_cables = daemon->topology->num_cables;
    uint8_t *cables = g_malloc0(num_cables + 1);
    PcapngFormat format = PCAPNG_ERF;
    unsigned count = num_cables;
    char *error = NULL;
    bool good;

    if (json_object_has_member(args, "format") &&
        !pcapng_format_parse(json_object_get_string_member(args, "format"),
                             &format)) {
        g_free(cables);
        return g_strdup("format is 'erf' (Wireshark knows it, the default) "
                        "or 'infiniband' (link type 247)");
    }

    if (json_object_has_member(args, "cables")) {
        JsonArray *wanted = json_object_get_array_member(args, "cables");

        count = 0;
        for (guint i = 0; i < json_array_get_length(wanted); i++) {
            const char *name = json_array_get_string_element(wanted, i);
            int cable = find_cable(daemon, name, &error);

            if (cable < 0) {
                g_free(cables);
                return error;
            }
            count += !cables[cable];
            cables[cable] = 1;
        }
    } else {
        memset(cables, 1, num_cables);
    }
    good = daemon_capture_start(daemon, file, format, cables, &error);
    g_free(cables);
    if (!good) {
        return error;
    }
    json_builder_begin_object(b);
    json_add_string(b, "file", file);
    json_add_int(b, "cables", count);
    json_builder_end_object(b);
    return NULL;
}

static char *cmd_capture_stop(Daemon *daemon, JsonObject *args,
                              JsonBuilder *b)
{
    const char *wanted = json_object_has_member(args, "file")
                         ? json_object_get_string_member(args, "file") : NULL;
    GString *running = g_string_new(NULL);
    unsigned stopped = 0;
    char *error;

    json_builder_begin_array(b);
    for (unsigned i = 0; i < FABRIC_MAX_CAPTURES; i++) {
        CaptureStatus status;
        char *file;

        if (!daemon->captures[i]) {
            continue;
        }
        file = g_strdup(capture_file(daemon->captures[i]));
        if (!wanted || !strcmp(file, wanted)) {
            daemon_capture_stop(daemon, i, &status);
            put_capture(b, file, &status);
            stopped++;
        } else {
            g_string_append_printf(running, "%s%s", running->len ? ", " : "",
                                   file);
        }
        g_free(file);
    }
    json_builder_end_array(b);
    error = wanted && !stopped
            ? g_strdup_printf("nothing is captured to '%s'; running: %s",
                              wanted, running->len ? running->str : "none")
            : NULL;
    g_string_free(running, true);
    return error;
}

/* Counters. */

static void put_cable_counters(JsonBuilder *b, const Snapshot *snapshot,
                               unsigned cable)
{
    const TopologyCable *t = &snapshot->topology->cables[cable];
    const FabricCableStats *stats = &snapshot->cables[cable].stats;

    json_builder_begin_object(b);
    json_add_string(b, "name", t->name);
    json_builder_set_member_name(b, "directions");
    json_builder_begin_array(b);
    for (int d = 0; d < 2; d++) {
        char *from = end_name(snapshot->topology, &t->ends[d]);
        char *to = end_name(snapshot->topology, &t->ends[!d]);

        json_builder_begin_object(b);
        json_add_string(b, "from", from);
        json_add_string(b, "to", to);
        json_add_int(b, "packets", stats->packets[d]);
        json_add_int(b, "bytes", stats->bytes[d]);
        json_add_int(b, "duplicated", stats->duplicated[d]);
        json_add_int(b, "corrupted", stats->corrupted[d]);
        json_add_int(b, "delayed", stats->delayed[d]);
        json_builder_set_member_name(b, "dropped");
        json_builder_begin_object(b);
        for (unsigned i = 1; i < FABRIC_DROP_COUNT; i++) {
            if (stats->drops[d][i]) {
                json_add_int(b, fabric_drop_name(i), stats->drops[d][i]);
            }
        }
        json_builder_end_object(b);
        json_builder_end_object(b);
        g_free(from);
        g_free(to);
    }
    json_builder_end_array(b);
    json_builder_end_object(b);
}

static void put_switch_counters(JsonBuilder *b, const Snapshot *snapshot,
                                unsigned node)
{
    static const struct { const char *name; size_t offset; } fields[] = {
#define FIELD(name) { #name, offsetof(IbPortCounters, name) }
        FIELD(xmit_pkts), FIELD(rcv_pkts), FIELD(xmit_data), FIELD(rcv_data),
        FIELD(xmit_discards), FIELD(rcv_errors),
        FIELD(rcv_switch_relay_errors), FIELD(vl15_dropped),
        FIELD(link_downed), FIELD(multicast_xmit_pkts),
        FIELD(multicast_rcv_pkts),
#undef FIELD
    };
    const TopologyNode *t = &snapshot->topology->nodes[node];

    json_builder_begin_object(b);
    json_add_string(b, "name", t->name);
    json_builder_set_member_name(b, "ports");
    json_builder_begin_array(b);
    for (unsigned p = 0; p <= t->num_ports; p++) {
        const PortSnapshot *port = &snapshot->nodes[node].ports[p];

        json_builder_begin_object(b);
        json_add_int(b, "port", p);
        for (size_t i = 0; i < G_N_ELEMENTS(fields); i++) {
            uint64_t value;

            memcpy(&value, (const uint8_t *)&port->counters +
                           fields[i].offset, sizeof(value));
            json_add_int(b, fields[i].name, value);
        }
        json_builder_end_object(b);
    }
    json_builder_end_array(b);
    json_builder_end_object(b);
}

static char *cmd_counters(Daemon *daemon, JsonObject *args, JsonBuilder *b)
{
    const Topology *topology = daemon->topology;
    Snapshot *snapshot;
    int only = -1;
    char *error;

    if (json_object_has_member(args, "cable")) {
        only = find_cable(daemon,
                          json_object_get_string_member(args, "cable"),
                          &error);
        if (only < 0) {
            return error;
        }
    }
    snapshot = take_snapshot(daemon);
    json_builder_begin_object(b);
    json_builder_set_member_name(b, "cables");
    json_builder_begin_array(b);
    for (int i = 0; i < (int)topology->num_cables; i++) {
        if (only < 0 || only == i) {
            put_cable_counters(b, snapshot, i);
        }
    }
    json_builder_end_array(b);
    json_builder_set_member_name(b, "switches");
    json_builder_begin_array(b);
    for (unsigned i = 0; i < topology->num_nodes && only < 0; i++) {
        if (topology->nodes[i].kind == TOPOLOGY_SWITCH) {
            put_switch_counters(b, snapshot, i);
        }
    }
    json_builder_end_array(b);
    json_builder_end_object(b);
    free_snapshot(snapshot);
    return NULL;
}

/* Events; their lines are JSON already. */

static char *kept_events(Daemon *daemon, JsonObject *args, GString *out,
                         int node)
{
    double since = number_or_0(args, "since");
    uint64_t gone;

    if (!(since >= 0 && since <= 0x1p53)) {
        return g_strdup("since is an event's seq, 0 or more");
    }
    g_string_append(out, "{\"events\": [");
    gone = events_since(daemon->events, since, node, out);
    g_string_append_printf(out, "], \"next\": %" G_GUINT64_FORMAT
                           ", \"lost\": %" G_GUINT64_FORMAT "}",
                           events_next_seq(daemon->events), gone);
    return NULL;
}

static char *cmd_events_since(Daemon *daemon, JsonObject *args, GString *out)
{
    return kept_events(daemon, args, out, -2);
}

static char *cmd_node_events(Daemon *daemon, JsonObject *args, GString *out)
{
    const char *name;
    int node = -1;

    if (json_object_has_member(args, "node")) {
        name = json_object_get_string_member(args, "node");
        node = topology_find_node(daemon->topology, name);
        if (node < 0) {
            char *names = topology_host_names(daemon->topology);
            char *shown = g_strescape(name, NULL);
            char *error = g_strdup_printf("there is no host '%s'; there "
                                          "are: %s", shown, names);

            g_free(names);
            g_free(shown);
            return error;
        }
    }
    return kept_events(daemon, args, out, node);
}

static char *cmd_commands(Daemon *daemon, JsonObject *args, JsonBuilder *b);

static const Command commands[] = {
    { .name = "qmp_capabilities", .run = cmd_nothing,
      .args = { { "enable", ARG_STRINGS, false } } },
    { .name = "query-version", .run = cmd_version },
    { .name = "query-commands", .run = cmd_commands },
    { .name = "list", .run = cmd_list },
    { .name = "status", .run = cmd_status },
    { .name = "pull", .run = cmd_pull,
      .args = { { "cable", ARG_STRING, true } } },
    { .name = "restore", .run = cmd_restore,
      .args = { { "cable", ARG_STRING, true } } },
    { .name = "fault", .run = cmd_fault,
      .args = { { "cable", ARG_STRING, true },
                { "drop", ARG_NUMBER, false },
                { "duplicate", ARG_NUMBER, false },
                { "corrupt", ARG_NUMBER, false },
                { "delay", ARG_NUMBER, false },
                { "delay-ms", ARG_NUMBER, false } } },
    { .name = "counters", .run = cmd_counters,
      .args = { { "cable", ARG_STRING, false } } },
    { .name = "capture-start", .run = cmd_capture_start,
      .args = { { "file", ARG_STRING, true },
                { "cables", ARG_STRINGS, false },
                { "format", ARG_STRING, false } } },
    { .name = "capture-stop", .run = cmd_capture_stop,
      .args = { { "file", ARG_STRING, false } } },
    { .name = "events-since", .print = cmd_events_since,
      .args = { { "since", ARG_NUMBER, false } } },
    { .name = "node-events", .print = cmd_node_events,
      .args = { { "node", ARG_STRING, false },
                { "since", ARG_NUMBER, false } } },
    { .name = "quit", .run = cmd_quit },
};

static char *cmd_commands(Daemon *daemon, JsonObject *args, JsonBuilder *b)
{
    json_builder_begin_array(b);
    for (size_t i = 0; i < G_N_ELEMENTS(commands); i++) {
        json_builder_begin_object(b);
        json_add_string(b, "name", commands[i].name);
        json_builder_end_object(b);
    }
    json_builder_end_array(b);
    return NULL;
}

/* The door for arguments. */

static bool has_type(JsonNode *node, ArgType type)
{
    GType value;

    if (type == ARG_STRINGS) {
        if (!JSON_NODE_HOLDS_ARRAY(node)) {
            return false;
        }
        for (guint i = 0;
             i < json_array_get_length(json_node_get_array(node)); i++) {
            if (!has_type(json_array_get_element(json_node_get_array(node),
                                                 i), ARG_STRING)) {
                return false;
            }
        }
        return true;
    }
    if (!JSON_NODE_HOLDS_VALUE(node)) {
        return false;
    }
    value = json_node_get_value_type(node);
    return type == ARG_STRING ? value == G_TYPE_STRING
                              : value == G_TYPE_INT64 ||
                                value == G_TYPE_DOUBLE;
}

static char *check_args(const Command *command, JsonObject *args)
{
    static const char *const types[] = {
        [ARG_STRING] = "a string", [ARG_NUMBER] = "a number",
        [ARG_STRINGS] = "an array of strings",
    };
    GList *members = json_object_get_members(args);
    GString *known = g_string_new(NULL);
    char *error = NULL;

    for (unsigned i = 0; i < MAX_ARGS && command->args[i].name; i++) {
        const Arg *arg = &command->args[i];

        g_string_append_printf(known, "%s%s", i ? ", " : "", arg->name);
        if (!json_object_has_member(args, arg->name)) {
            if (arg->required && !error) {
                error = g_strdup_printf("%s needs the argument '%s', %s",
                                        command->name, arg->name,
                                        types[arg->type]);
            }
        } else if (!has_type(json_object_get_member(args, arg->name),
                             arg->type) && !error) {
            error = g_strdup_printf("the argument '%s' of %s is %s",
                                    arg->name, command->name,
                                    types[arg->type]);
        }
    }
    for (GList *m = members; m && !error; m = m->next) {
        bool found = false;

        for (unsigned i = 0; i < MAX_ARGS && command->args[i].name; i++) {
            found |= !strcmp(m->data, command->args[i].name);
        }
        if (!found) {
            char *shown = g_strescape(m->data, NULL);

            error = g_strdup_printf("%s knows no argument '%s'; it knows: %s",
                                    command->name, shown,
                                    known->len ? known->str : "none");
            g_free(shown);
        }
    }
    g_string_free(known, true);
    g_list_free(members);
    return error;
}

static char *error_reply(const char *class, const char *desc, JsonNode *id)
{
    JsonBuilder *b = json_builder_new();
    char *text;

    json_builder_begin_object(b);
    json_builder_set_member_name(b, "error");
    json_builder_begin_object(b);
    json_add_string(b, "class", class);
    json_add_string(b, "desc", desc);
    json_builder_end_object(b);
    if (id) {
        json_builder_set_member_name(b, "id");
        json_builder_add_value(b, json_node_copy(id));
    }
    json_builder_end_object(b);
    text = json_to_text(json_builder_get_root(b));
    g_object_unref(b);
    return text;
}

/* {"return": @value, "id": @id}; takes the text of @value. */
static char *good_reply(GString *value, JsonNode *id)
{
    g_string_prepend(value, "{\"return\": ");
    if (id) {
        char *text = json_to_text(json_node_copy(id));

        g_string_append_printf(value, ", \"id\": %s", text);
        g_free(text);
    }
    g_string_append_c(value, '}');
    return g_string_free(value, false);
}

/* Runs it and appends what it returns; NULL or why not. */
static char *run_command(Daemon *daemon, const Command *command,
                         JsonObject *args, GString *out)
{
    JsonBuilder *b;
    char *error = check_args(command, args), *text;

    if (error) {
        return error;
    }
    if (command->print) {
        return command->print(daemon, args, out);
    }
    b = json_builder_new();
    error = command->run(daemon, args, b);
    if (!error) {
        text = json_to_text(json_builder_get_root(b));
        g_string_append(out, text);
        g_free(text);
    }
    g_object_unref(b);
    return error;
}

static char *execute(Daemon *daemon, const Command *command,
                     JsonObject *args, JsonNode *id)
{
    GString *out = g_string_new(NULL);
    char *error = run_command(daemon, command, args, out);
    char *reply;

    events_drain(daemon->events);
    if (daemon->links) {
        links_sync(daemon->links);
    }
    if (!error) {
        return good_reply(out, id);
    }
    g_string_free(out, true);
    reply = error_reply("GenericError", error, id);
    g_free(error);
    return reply;
}

static char *execute_object(Daemon *daemon, JsonObject *object)
{
    JsonNode *id = json_object_get_member(object, "id");
    JsonNode *name = json_object_get_member(object, "execute");
    JsonNode *args = json_object_get_member(object, "arguments");
    JsonObject *none;
    char *desc, *shown, *reply;

    if (!name || !has_type(name, ARG_STRING)) {
        return error_reply("GenericError", "a command is an object with "
                           "'execute', the command's name, and perhaps "
                           "'arguments' and 'id'", id);
    }
    if (args && !JSON_NODE_HOLDS_OBJECT(args)) {
        return error_reply("GenericError", "'arguments' is an object", id);
    }
    for (size_t i = 0; i < G_N_ELEMENTS(commands); i++) {
        if (strcmp(json_node_get_string(name), commands[i].name)) {
            continue;
        }
        none = json_object_new();
        reply = execute(daemon, &commands[i],
                        args ? json_node_get_object(args) : none, id);
        json_object_unref(none);
        return reply;
    }
    shown = g_strescape(json_node_get_string(name), NULL);
    desc = g_strdup_printf("there is no command '%s'; query-commands lists "
                           "them", shown);
    reply = error_reply("CommandNotFound", desc, id);
    g_free(desc);
    g_free(shown);
    return reply;
}

char *command_execute(Daemon *daemon, const char *text, size_t len)
{
    const char *problem;
    JsonNode *root = json_from_outside(text, len, &problem);
    char *reply, *desc;

    if (!root) {
        desc = g_strdup_printf("the command cannot be read: %s", problem);
        reply = error_reply("GenericError", desc, NULL);
        g_free(desc);
        return reply;
    }
    reply = execute_object(daemon, json_node_get_object(root));
    json_node_unref(root);
    return reply;
}
