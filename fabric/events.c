/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Events as JSON lines (docs/fabric.md lists them): sent to every client of
 * the control socket and kept, the last EVENTS_KEPT of them or fewer that
 * make EVENTS_KEPT_BYTES, for those who come later.
 */
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "fabric/daemon.h"

typedef struct KeptEvent {
    char *line;
    size_t len;
    int node_event;                  /* node of a NODE_EVENT, else -1 */
} KeptEvent;

/*
 * NODE_ERRORs of a host in a second of the clock; the rest is counted.  What
 * a host does wrong must not push out what others do right.
 */
#define ERRORS_TOLD 20

typedef struct ErrorLimit {
    int64_t second_ns;
    unsigned told;
    uint64_t suppressed;
} ErrorLimit;

struct Events {
    Daemon *daemon;
    KeptEvent kept[EVENTS_KEPT];     /* by seq % EVENTS_KEPT */
    uint64_t first_seq;              /* the oldest one that is kept */
    uint64_t next_seq;               /* the first one is 1 */
    size_t kept_bytes;
    uint64_t lost_told;
    ErrorLimit *errors;              /* by node + 1; 0: of strangers */
};

static JsonBuilder *begin(const char *name)
{
    JsonBuilder *b = json_builder_new();

    json_builder_begin_object(b);
    json_add_string(b, "event", name);
    json_builder_set_member_name(b, "data");
    json_builder_begin_object(b);
    return b;
}

static void forget_oldest(Events *events)
{
    KeptEvent *kept = &events->kept[events->first_seq++ % EVENTS_KEPT];

    events->kept_bytes -= kept->len;
    g_clear_pointer(&kept->line, g_free);
}

/* Closes data, adds the times, keeps and sends it. */
static void end(Events *events, JsonBuilder *b, int64_t now_ns,
                int node_event)
{
    Daemon *daemon = events->daemon;
    uint64_t seq = events->next_seq;
    KeptEvent *kept = &events->kept[seq % EVENTS_KEPT];
    struct timespec real;
    int64_t real_ns;

    clock_gettime(CLOCK_REALTIME, &real);
    real_ns = real.tv_sec * IB_SEC + real.tv_nsec -
              (ib_clock_now(&daemon->clock) - now_ns);
    json_builder_end_object(b);
    json_builder_set_member_name(b, "timestamp");
    json_builder_begin_object(b);
    json_add_int(b, "seconds", real_ns / IB_SEC);
    json_add_int(b, "microseconds", real_ns % IB_SEC / IB_USEC);
    json_builder_end_object(b);
    json_add_int(b, "monotonic_ns", now_ns);
    json_add_int(b, "seq", seq);
    json_builder_end_object(b);

    if (seq - events->first_seq == EVENTS_KEPT) {
        forget_oldest(events);
    }
    kept->line = json_to_text(json_builder_get_root(b));
    kept->len = strlen(kept->line);
    kept->node_event = node_event;
    g_object_unref(b);
    events->kept_bytes += kept->len;
    events->next_seq++;
    /* One event is much smaller than the limit: the newest stays. */
    while (events->kept_bytes > EVENTS_KEPT_BYTES) {
        forget_oldest(events);
    }
    if (daemon->control) {
        control_broadcast(daemon->control, kept->line);
    }
}

static void add_where(JsonBuilder *b, const Topology *topology,
                      const FabricEvent *event)
{
    if (event->node >= 0) {
        json_add_string(b, "node", topology->nodes[event->node].name);
        if (event->type != FABRIC_EVENT_NODE_ATTACHED &&
            event->type != FABRIC_EVENT_NODE_GONE) {
            json_add_int(b, "port", event->port);
        }
    }
    if (event->cable >= 0) {
        json_add_string(b, "cable", topology->cables[event->cable].name);
    }
}

static void add_end(JsonBuilder *b, const char *name,
                    const Topology *topology, const TopologyEnd *end)
{
    char *text = g_strdup_printf("%s/%u", topology->nodes[end->node].name,
                                 end->port);

    json_add_string(b, name, text);
    g_free(text);
}

static void add_gid(JsonBuilder *b, const uint8_t *gid)
{
    GString *text = g_string_new(NULL);

    for (int i = 0; i < 16; i += 2) {
        g_string_append_printf(text, "%s%02x%02x", i ? ":" : "", gid[i],
                               gid[i + 1]);
    }
    json_add_string(b, "gid", text->str);
    g_string_free(text, true);
}

static void add_mad(JsonBuilder *b, const FabricEvent *event)
{
    json_add_string(b, "class", ib_class_name(event->mad.mgmt_class));
    json_add_string(b, "method", ib_method_name(event->mad.method));
    json_add_string(b, "attribute", ib_attr_name(event->mad.mgmt_class,
                                                 event->mad.attr_id));
    json_add_int(b, "status", event->mad.status);
    if (event->type == FABRIC_EVENT_TRAP) {
        json_add_int(b, "lid", event->mad.slid);      /* who traps */
    }
    json_add_int(b, "slid", event->mad.slid);
    json_add_int(b, "dlid", event->mad.dlid);
    json_add_hex64(b, "tid", event->mad.tid);
    json_add_bool(b, "delivered", event->mad.delivered);
    json_add_int(b, "suppressed", event->mad.suppressed);
    if (event->mad.mgmt_class == IB_CLASS_CM) {
        json_add_int(b, "local_id", event->mad.local_id);
        json_add_int(b, "remote_id", event->mad.remote_id);
        if (event->mad.attr_id == IB_CM_REJ) {
            json_add_int(b, "reason", event->mad.reason);
            json_add_string(b, "text", ib_cm_rej_name(event->mad.reason));
        } else if (event->mad.attr_id == IB_CM_APR) {
            json_add_int(b, "reason", event->mad.reason);
            json_add_string(b, "text", ib_cm_apr_name(event->mad.reason));
        }
    } else {
        json_add_int(b, "trap", event->mad.trap);
        json_add_string(b, "text", ib_trap_name(event->mad.trap));
        if (event->mad.has_gid) {
            add_gid(b, event->mad.gid);
        }
    }
}

static void add_dropped(JsonBuilder *b, const FabricEvent *event)
{
    json_add_string(b, "why", fabric_drop_name(event->dropped.drop));
    if (event->dropped.drop == FABRIC_DROP_BAD_PACKET) {
        json_add_string(b, "text", ib_packet_error_name(event->dropped.error));
    } else {
        json_add_string(b, "text", fabric_drop_text(event->dropped.drop));
        json_add_string(b, "opcode", ib_opcode_name(event->dropped.opcode));
    }
    json_add_int(b, "vl", event->dropped.vl);
    json_add_int(b, "slid", event->dropped.slid);
    json_add_int(b, "dlid", event->dropped.dlid);
    json_add_int(b, "dest_qpn", event->dropped.dest_qpn);
    json_add_int(b, "psn", event->dropped.psn);
    json_add_int(b, "suppressed", event->dropped.suppressed);
}

static void fabric_event_json(Events *events, const FabricEvent *event)
{
    const Topology *topology = events->daemon->topology;
    JsonBuilder *b = begin(fabric_event_name(event->type));

    add_where(b, topology, event);
    switch (event->type) {
    case FABRIC_EVENT_CABLE:
        json_add_bool(b, "plugged", event->plug.plugged);
        break;
    case FABRIC_EVENT_LINK:
        json_add_bool(b, "up", event->link.up);
        json_add_string(b, "speed", topology_speed_name(event->link.speed));
        json_add_string(b, "width", topology_width_name(event->link.width));
        add_end(b, "a", topology, &topology->cables[event->cable].ends[0]);
        add_end(b, "b", topology, &topology->cables[event->cable].ends[1]);
        break;
    case FABRIC_EVENT_PORT_STATE:
        json_add_string(b, "from", ib_port_state_name(event->state.old_state));
        json_add_string(b, "to", ib_port_state_name(event->state.new_state));
        json_add_int(b, "suppressed", event->state.suppressed);
        break;
    case FABRIC_EVENT_NODE_ATTACHED:
        json_add_hex64(b, "guid", event->attached.guid);
        json_add_int(b, "ports", event->attached.num_ports);
        break;
    case FABRIC_EVENT_NODE_GONE:
        break;
    case FABRIC_EVENT_TRAP:
    case FABRIC_EVENT_MAD:
        add_mad(b, event);
        break;
    case FABRIC_EVENT_PACKET_DROPPED:
        add_dropped(b, event);
        break;
    case FABRIC_EVENT_COUNT:
        g_assert_not_reached();
    }
    end(events, b, event->now_ns, -1);
}

void events_drain(Events *events)
{
    Daemon *daemon = events->daemon;
    FabricEvent event;
    uint64_t lost;

    while (runner_next_event(daemon->runner, &event)) {
        fabric_event_json(events, &event);
    }
    lost = runner_events_lost(daemon->runner);
    if (lost != events->lost_told) {
        JsonBuilder *b = begin("EVENTS_LOST");

        json_add_int(b, "count", lost - events->lost_told);
        events->lost_told = lost;
        end(events, b, ib_clock_now(&daemon->clock), -1);
    }
}

const char *events_node_event(Events *events, int node, unsigned port,
                              const char *text)
{
    Daemon *daemon = events->daemon;
    const char *error;
    JsonNode *object = json_from_outside(text, strlen(text), &error);
    JsonBuilder *b;

    if (!object) {
        return error;
    }
    b = begin("NODE_EVENT");
    json_add_string(b, "node", daemon->topology->nodes[node].name);
    if (port) {
        json_add_int(b, "port", port);
    }
    json_builder_set_member_name(b, "event");
    json_builder_add_value(b, object);
    end(events, b, ib_clock_now(&daemon->clock), node);
    return NULL;
}

/* For who started us by hand; a terminal or pipe that is full gets none. */
static void log_line(const char *who, const char *why)
{
    struct pollfd pfd = { .fd = STDERR_FILENO, .events = POLLOUT };

    if (poll(&pfd, 1, 0) == 1 && (pfd.revents & POLLOUT)) {
        dprintf(STDERR_FILENO, "ehca-fabric: %s: %.1000s\n", who, why);
    }
}

void events_node_error(Events *events, int node, const char *why)
{
    Daemon *daemon = events->daemon;
    const char *name = node >= 0 ? daemon->topology->nodes[node].name : NULL;
    ErrorLimit *limit = &events->errors[node + 1];
    int64_t now = ib_clock_now(&daemon->clock);
    JsonBuilder *b;

    if (now - limit->second_ns >= IB_SEC) {
        limit->second_ns = now;
        limit->told = 0;
    }
    if (limit->told == ERRORS_TOLD) {
        limit->suppressed++;
        return;
    }
    limit->told++;
    b = begin("NODE_ERROR");
    if (name) {
        json_add_string(b, "node", name);
    }
    json_add_string(b, "why", why);
    json_add_int(b, "suppressed", limit->suppressed);
    limit->suppressed = 0;
    end(events, b, now, -1);
    log_line(name ? name : "a host that did not join", why);
}

void events_capture(Events *events, const char *file, const char *what,
                    const CaptureStatus *status)
{
    JsonBuilder *b = begin("CAPTURE");

    json_add_string(b, "file", file);
    json_add_string(b, "what", what);
    json_add_int(b, "packets", status->packets);
    json_add_int(b, "dropped", status->dropped);
    if (status->failure) {
        json_add_string(b, "failure", status->failure);
    }
    end(events, b, ib_clock_now(&events->daemon->clock), -1);
}

uint64_t events_next_seq(const Events *events)
{
    return events->next_seq;
}

uint64_t events_since(const Events *events, uint64_t since, int node,
                      GString *out)
{
    uint64_t first = events->first_seq;
    bool any = false;
    uint64_t gone;

    since = MAX(since, 1);
    gone = since < first ? first - since : 0;
    for (uint64_t seq = MAX(since, first); seq < events->next_seq; seq++) {
        const KeptEvent *kept = &events->kept[seq % EVENTS_KEPT];

        if (node == -2 || (kept->node_event >= 0 &&
                           (node == -1 || kept->node_event == node))) {
            g_string_append_printf(out, "%s%s", any ? ", " : "", kept->line);
            any = true;
        }
    }
    return gone;
}

Events *events_new(Daemon *daemon)
{
    Events *events = g_new0(Events, 1);

    events->daemon = daemon;
    events->errors = g_new0(ErrorLimit, daemon->topology->num_nodes + 1);
    events->first_seq = events->next_seq = 1;
    return events;
}

void events_free(Events *events)
{
    if (events) {
        for (unsigned i = 0; i < EVENTS_KEPT; i++) {
            g_free(events->kept[i].line);
        }
        g_free(events->errors);
        g_free(events);
    }
}
