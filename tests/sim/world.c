/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The world's nodes, its time, its trace and how it fails; see world.h.
 */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "ib/mad.h"
#include "world.h"

#define HOST_MEMORY ((size_t)32 << 20)
#define HEAVY 5.0                    /* an era of much worse cables */
#define SETTLE_LIMIT 1000000u
#define TIMERS_PER_TURN 64u
#define SM_GUID UINT64_C(0x0000A0000000A000)
#define HOST_GUID UINT64_C(0x0002550000100000)

/* ------------------------------------------------------------------ */
/* Faults by name                                                     */
/* ------------------------------------------------------------------ */

typedef struct FaultName {
    const char *name;
    size_t offset;                   /* of its bool `on` */
} FaultName;

#define FAULT(name, member) { name, offsetof(WorldFaults, member.on) }

static const FaultName fault_names[] = {
    FAULT("drop", drop), FAULT("duplicate", duplicate),
    FAULT("corrupt", corrupt), FAULT("delay", delay), FAULT("pull", pull),
    FAULT("alternate", alternate), FAULT("bounce", bounce),
    FAULT("both", both), FAULT("trunk", trunk),
    FAULT("software", software), FAULT("sm-kill", sm_kill),
    FAULT("sm-cable", sm_cable), FAULT("host", host), FAULT("rnr", rnr),
    FAULT("reload", reload), FAULT("drain", drain),
};

#define NUM_FAULTS (sizeof(fault_names) / sizeof(fault_names[0]))

static const WorldFaults fault_defaults = {
    .drop = { true, 0.02 },
    .duplicate = { true, 0.05 },
    .corrupt = { true, 0.01 },
    .delay = { true, 0.2, 300 * IB_USEC },
    .pull = { true, 60 },
    .alternate = { true, 6 },
    .bounce = { true, 4 },
    .both = { true, 1 },
    .trunk = { true, 3 },
    .software = { true, 14 },
    .sm_kill = { true, 3 },
    .sm_cable = { true, 2 },
    .host = { true, 1 },
    .rnr = { true, 3 },
    .reload = { true, 3 },
    .drain = { true, 3 },
};

static bool *fault_on(WorldFaults *faults, size_t i)
{
    return (bool *)((char *)faults + fault_names[i].offset);
}

const char *world_fault_names(void)
{
    static char names[256];

    if (!names[0]) {
        for (size_t i = 0; i < NUM_FAULTS; i++) {
            strcat(names, i ? "," : "");
            strcat(names, fault_names[i].name);
        }
    }
    return names;
}

bool world_faults_parse(WorldFaults *faults, const char *list, char *error,
                        size_t size)
{
    bool first = true;

    *faults = fault_defaults;
    while (*list) {
        size_t len = strcspn(list, ",");
        bool minus = *list == '-';
        const char *word = list + minus;
        size_t word_len = len - minus;
        bool all = word_len == 3 && !strncmp(word, "all", 3);
        bool none = word_len == 4 && !strncmp(word, "none", 4);
        bool found = all || none;

        /* A list that starts with a name names what is on. */
        if (first && !minus && !all) {
            for (size_t i = 0; i < NUM_FAULTS; i++) {
                *fault_on(faults, i) = false;
            }
        }
        first = false;
        for (size_t i = 0; i < NUM_FAULTS; i++) {
            if (strlen(fault_names[i].name) == word_len &&
                !strncmp(fault_names[i].name, word, word_len)) {
                *fault_on(faults, i) = !minus;
                found = true;
            }
        }
        if (!found) {
            snprintf(error, size, "there is no fault \"%.*s\"; there are all, "
                     "none, %s", (int)len, list, world_fault_names());
            return false;
        }
        list += len;
        list += *list == ',';
    }
    return true;
}

/* ------------------------------------------------------------------ */
/* Random numbers (xoroshiro128+, seeded by splitmix64)               */
/* ------------------------------------------------------------------ */

static uint64_t splitmix(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9E3779B97F4A7C15);

    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

static uint64_t rotate(uint64_t v, unsigned n)
{
    return v << n | v >> (64 - n);
}

uint64_t world_random(World *w)
{
    uint64_t a = w->random[0], b = w->random[1];
    uint64_t result = a + b;

    b ^= a;
    w->random[0] = rotate(a, 24) ^ b ^ b << 16;
    w->random[1] = rotate(b, 37);
    return result;
}

uint64_t world_below(World *w, uint64_t n)
{
    return (world_random(w) >> 11) % n;
}

bool world_chance(World *w, double probability)
{
    return (double)(world_random(w) >> 11) / (double)(UINT64_C(1) << 53) <
           probability;
}

int64_t world_between(World *w, int64_t min, int64_t max)
{
    return min + (int64_t)world_below(w, (uint64_t)(max - min) + 1);
}

/* ------------------------------------------------------------------ */
/* Trace                                                              */
/* ------------------------------------------------------------------ */

typedef struct NoteName {
    const char *name;
    const char *words[4];
    bool shown;                      /* with --verbose */
} NoteName;

static const NoteName note_names[NOTE_KINDS] = {
    [NOTE_ACT] = { "act", { "a", "b" }, true },
    [NOTE_PORT] = { "port", { "port", "from", "to" }, true },
    [NOTE_QP] = { "qp", { "qpn", "from", "to", "cause" }, true },
    [NOTE_MIG] = { "mig", { "qpn", "from", "to", "cause" }, true },
    [NOTE_QP_ERROR] = { "qp_error", { "qpn", "from", "to", "cause" }, true },
    [NOTE_ALT] = { "alternate", { "qpn", "port", "dlid" }, true },
    [NOTE_FIRST_PAYLOAD] = { "first_payload", { "qpn", "port", "dlid" },
                             true },
    [NOTE_MIG_REFUSED] = { "mig_refused", { "qpn", "port", "dlid" }, true },
    [NOTE_EQE] = { "eqe", { "id", "number", "token" }, true },
    [NOTE_NEQE] = { "neqe", { "id", "port", "flag", "specific" }, true },
    [NOTE_CABLE] = { "cable", { "plugged" }, true },
    [NOTE_LINK] = { "link", { "up" }, true },
    [NOTE_SWITCH_PORT] = { "switch_port", { "port", "from", "to" }, true },
    [NOTE_NODE] = { "node", { "attached" }, true },
    [NOTE_SM] = { "sm", { "hash" }, true },
    [NOTE_POST] = { "post", { "kind", "seq", "len" }, false },
    [NOTE_DONE] = { "done", { "kind", "seq", "status" }, false },
    [NOTE_RECEIVED] = { "received", { "seq", "len" }, false },
    [NOTE_CONN] = { "conn", { "state", "rail", "epoch" }, true },
};

static void print_note(World *w, FILE *f, const Note *n)
{
    const NoteName *name = &note_names[n->kind];

    fprintf(f, "%14.6f ms %-13s %2u", (double)n->time_ns / 1e6, name->name,
            n->who);
    for (unsigned i = 0; i < 4 && name->words[i]; i++) {
        fprintf(f, " %s=%llu", name->words[i],
                (unsigned long long)n->word[i]);
    }
    switch (n->kind) {
    case NOTE_CABLE:
    case NOTE_LINK:
        fprintf(f, "  %s", w->topology->cables[n->who].name);
        break;
    case NOTE_SWITCH_PORT:
    case NOTE_NODE:
        fprintf(f, "  %s", w->topology->nodes[n->who].name);
        break;
    default:
        break;
    }
    fputc('\n', f);
}

static void hash_word(World *w, uint64_t word)
{
    w->hash = (w->hash ^ word) * UINT64_C(0x9E3779B97F4A7C15);
    w->hash ^= w->hash >> 32;
}

void world_note(World *w, NoteKind kind, uint32_t who, uint64_t a,
                uint64_t b, uint64_t c, uint64_t d)
{
    Note *n = &w->notes[w->num_notes++ % WORLD_NOTES];

    *n = (Note) { world_now(w), kind, who, { a, b, c, d } };
    hash_word(w, (uint64_t)n->time_ns);
    hash_word(w, (uint64_t)kind << 32 | who);
    hash_word(w, a);
    hash_word(w, b);
    hash_word(w, c);
    hash_word(w, d);
    if (w->options.trace) {
        print_note(w, w->options.trace, n);
    }
    if (w->options.verbose && note_names[kind].shown) {
        print_note(w, stdout, n);
    }
}

void world_fail(World *w, const char *format, ...)
{
    uint64_t n = w->num_notes > WORLD_NOTES ? w->num_notes - WORLD_NOTES : 0;
    va_list args;

    fflush(stdout);
    fprintf(stderr, "last notes:\n");
    for (; n < w->num_notes; n++) {
        print_note(w, stderr, &w->notes[n % WORLD_NOTES]);
    }
    fprintf(stderr, "\nFAILED at %.6f ms, after %llu failovers: ",
            (double)world_now(w) / 1e6, (unsigned long long)w->failovers);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fprintf(stderr, "\nseed %llu, topology %s; replay with:\n  %s",
            (unsigned long long)w->options.seed,
            world_topology_name(w->kind), w->options.replay);
    if (!w->options.replay_is_whole) {
        fprintf(stderr, " --seed %llu", (unsigned long long)w->options.seed);
    }
    fputc('\n', stderr);
    if (w->options.trace) {
        fflush(w->options.trace);
    }
    exit(1);
}

/* ------------------------------------------------------------------ */
/* Topologies                                                         */
/* ------------------------------------------------------------------ */

const char *world_topology_name(unsigned topology)
{
    static const char *const names[TOPOLOGIES] = {
        [TOPOLOGY_ONE_SWITCH] = "one-switch",
        [TOPOLOGY_TWO_RAILS] = "two-rails",
        [TOPOLOGY_RING] = "ring",
        [TOPOLOGY_FAT_TREE] = "fat-tree",
        [TOPOLOGY_BACK_TO_BACK] = "back-to-back",
    };

    return topology < TOPOLOGIES ? names[topology] : "unknown";
}

/* Switch of each port; ports of switches are given out in order. */
typedef struct Builder {
    char text[4096];
    size_t len;
    unsigned used[16];               /* ports of each switch */
    unsigned cables;
} Builder;

__attribute__((format(printf, 2, 3)))
static void add(Builder *b, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    b->len += vsnprintf(b->text + b->len, sizeof(b->text) - b->len, format,
                        args);
    va_end(args);
}

static void add_trunk(Builder *b, unsigned from, unsigned to)
{
    add(b, "cable trunk-%u s%u/%u s%u/%u\n", ++b->cables, from,
        ++b->used[from], to, ++b->used[to]);
}

static void build_topology(World *w)
{
    Builder b = { .len = 0 };
    unsigned switches = 1, first, second;
    char *errors = NULL;

    switch (w->kind) {
    case TOPOLOGY_TWO_RAILS:
        switches = 2;
        break;
    case TOPOLOGY_RING:
        switches = 3 + world_below(w, 3);
        break;
    case TOPOLOGY_FAT_TREE:
        switches = 4;
        break;
    case TOPOLOGY_BACK_TO_BACK:
        switches = 0;
        break;
    default:
        break;
    }
    for (unsigned s = 0; s < switches; s++) {
        add(&b, "switch s%u ports=16\n", s);
    }
    for (unsigned h = 0; h < w->num_hosts; h++) {
        add(&b, "host h%u ports=2\n", h);
    }
    if (switches) {
        add(&b, "host sm ports=1\n");
    }
    switch (w->kind) {
    case TOPOLOGY_TWO_RAILS:
        add_trunk(&b, 0, 1);
        break;
    case TOPOLOGY_RING:
        for (unsigned s = 0; s < switches; s++) {
            add_trunk(&b, s, (s + 1) % switches);
        }
        break;
    case TOPOLOGY_FAT_TREE:          /* 0, 1: leaves; 2, 3: spines */
        for (unsigned s = 0; s < 4; s++) {
            add_trunk(&b, s & 1, 2 + (s >> 1));
        }
        break;
    case TOPOLOGY_BACK_TO_BACK:
        for (unsigned p = 1; p <= RAILS; p++) {
            add(&b, "cable direct-%u h0/%u h1/%u\n", p, p, p);
        }
        break;
    default:
        break;
    }
    for (unsigned h = 0; switches && h < w->num_hosts; h++) {
        first = 0;
        second = switches > 1 ? 1 : 0;
        if (w->kind == TOPOLOGY_RING) {
            first = world_below(w, switches);
            second = (first + 1 + world_below(w, switches - 1)) % switches;
        }
        add(&b, "cable h%u-1 h%u/1 s%u/%u\n", h, h, first, ++b.used[first]);
        add(&b, "cable h%u-2 h%u/2 s%u/%u\n", h, h, second,
            ++b.used[second]);
    }
    if (switches) {
        first = world_below(w, switches);
        add(&b, "cable sm-1 sm/1 s%u/%u\n", first, ++b.used[first]);
    }
    w->topology = topology_parse("(simulator)", b.text, b.len, &errors);
    if (!w->topology) {
        world_fail(w, "topology: %s", errors);
    }
    for (unsigned c = 0; c < w->topology->num_cables; c++) {
        if (!strncmp(w->topology->cables[c].name, "trunk", 5)) {
            w->trunks[w->num_trunks++] = c;
        }
    }
}

/* ------------------------------------------------------------------ */
/* Fabric's side                                                      */
/* ------------------------------------------------------------------ */

static void on_link(void *opaque, void *node, unsigned port, bool up,
                    uint8_t speed, uint8_t width)
{
    World *w = opaque;

    if (node == &w->sm) {
        sm_link(w->sm.sm, up, speed, width);
    } else {
        SimHost *sim = node;

        ehca_port_link(sim->host->adapter, port, up, speed, width);
    }
}

static void on_fabric_event(void *opaque, const FabricEvent *e)
{
    World *w = opaque;

    switch (e->type) {
    case FABRIC_EVENT_CABLE:
        world_note(w, NOTE_CABLE, e->cable, e->plug.plugged, 0, 0, 0);
        break;
    case FABRIC_EVENT_LINK:
        world_note(w, NOTE_LINK, e->cable, e->link.up, 0, 0, 0);
        break;
    case FABRIC_EVENT_PORT_STATE:
        /* A switch's port 0 has no link: Active once it has a LID. */
        if (e->port && !(e->state.new_state == IB_PORT_DOWN ||
                         e->state.new_state == e->state.old_state + 1)) {
            world_fail(w, "switch %s port %u went from %s to %s",
                       w->topology->nodes[e->node].name, e->port,
                       ib_port_state_name(e->state.old_state),
                       ib_port_state_name(e->state.new_state));
        }
        world_note(w, NOTE_SWITCH_PORT, e->node, e->port,
                   e->state.old_state, e->state.new_state, 0);
        break;
    case FABRIC_EVENT_NODE_ATTACHED:
    case FABRIC_EVENT_NODE_GONE:
        world_note(w, NOTE_NODE, e->node,
                   e->type == FABRIC_EVENT_NODE_ATTACHED, 0, 0, 0);
        break;
    default:
        break;
    }
}

static void on_broken(void *opaque, void *node, unsigned port)
{
    world_fail(opaque, "the fabric found a ring of port %u broken", port);
}

static const FabricOps fabric_ops = {
    .link = on_link,
    .event = on_fabric_event,
    .broken = on_broken,
};

/* ------------------------------------------------------------------ */
/* Back to back                                                       */
/* ------------------------------------------------------------------ */

#define DIRECT_LID_STEP 8u           /* room for any LMC here */

static bool direct_filter(void *opaque, unsigned end, uint8_t *packet,
                          size_t *len)
{
    SimDirect *d = opaque;
    World *w = d->world;

    if (world_chance(w, d->fault.drop)) {
        return false;
    }
    if (world_chance(w, d->fault.duplicate)) {
        host_cable_inject(d->cable, !end, packet, *len);
    }
    if (world_chance(w, d->fault.corrupt)) {
        uint64_t bit = IB_LRH_LEN * 8 +
                       world_below(w, (*len - IB_LRH_LEN) * 8);

        packet[bit / 8] ^= 1u << bit % 8;
    }
    return true;
}

static bool direct_port_in(World *w, unsigned rail, unsigned state)
{
    return w->hosts[0].ports[rail + 1].state == state &&
           w->hosts[1].ports[rail + 1].state == state;
}

/* A cable lives as long as both hosts do. */
static void direct_update(World *w)
{
    for (unsigned rail = 0; rail < RAILS && !w->fabric; rail++) {
        SimDirect *d = &w->direct[rail];
        bool alive = w->hosts[0].host && w->hosts[1].host;

        if (!alive && d->cable) {
            host_cable_free(d->cable);
            d->cable = NULL;
        } else if (alive && !d->cable) {
            d->cable = host_cable_new(w->hosts[0].host, rail + 1,
                                      w->hosts[1].host, rail + 1);
            d->cable->filter = direct_filter;
            d->cable->filter_opaque = d;
            host_cable_set(d->cable, d->plugged);
        }
    }
}

static bool direct_run(World *w, unsigned rail)
{
    SimDirect *d = &w->direct[rail];
    bool any;

    if (!d->cable) {
        return false;
    }
    any = host_cable_run(d->cable);
    if (!d->cable->up) {
        d->activate_ns = 0;
    } else if (d->activate_ns == 0 && direct_port_in(w, rail, IB_PORT_INIT)) {
        d->activate_ns = world_now(w) + world_between(w, 1, 20 * IB_MSEC);
    } else if (d->activate_ns && world_now(w) >= d->activate_ns) {
        d->activate_ns = 0;
        for (unsigned h = 0; h < 2; h++) {
            uint16_t lid = DIRECT_LID_STEP * (1 + 2 * rail + h);

            if (!host_cable_activate(d->cable, h, lid, w->sm_options.lmc)) {
                world_fail(w, "host h%u: port %u cannot be made Active", h,
                           rail + 1);
            }
        }
        any = true;
    }
    return any;
}

static int64_t direct_deadline(World *w)
{
    int64_t deadline = IB_CLOCK_NEVER;

    for (unsigned rail = 0; rail < RAILS; rail++) {
        int64_t ns = w->direct[rail].activate_ns;

        if (ns && ns < deadline) {
            deadline = ns;
        }
    }
    return deadline;
}

/* ------------------------------------------------------------------ */
/* Cables                                                             */
/* ------------------------------------------------------------------ */

void world_cable(World *w, int cable, bool plugged)
{
    if (!w->fabric) {
        world_note(w, NOTE_CABLE, cable, plugged, 0, 0, 0);
        w->direct[cable].plugged = plugged;
        if (w->direct[cable].cable) {
            host_cable_set(w->direct[cable].cable, plugged);
        }
        return;
    }
    for (unsigned t = 0; t < w->num_trunks; t++) {
        if (w->trunks[t] == cable) {
            w->route_bad_ns = world_now(w);
        }
    }
    fabric_cable_set(w->fabric, cable, plugged);
}

static bool cable_link(World *w, int cable)
{
    return w->fabric ? fabric_cable_link(w->fabric, cable)
                     : w->direct[cable].cable && w->direct[cable].cable->up;
}

const IbSma *world_switch_sma(World *w, unsigned n)
{
    return w->fabric ? fabric_switch_sma(w->fabric, n) : NULL;
}

bool world_ready(World *w)
{
    if (w->fabric && (!w->sm.sm || !sm_settled(w->sm.sm))) {
        return false;
    }
    for (unsigned c = 0; c < w->topology->num_cables; c++) {
        for (unsigned e = 0; e < 2; e++) {
            const TopologyEnd *end = &w->topology->cables[c].ends[e];
            const IbSma *sma = world_switch_sma(w, end->node);

            if (!cable_link(w, c) ||
                (sma && sma->ports[end->port].info.state != IB_PORT_ACTIVE)) {
                return false;
            }
        }
    }
    return true;
}

void world_packet_faults(World *w, bool on)
{
    const WorldFaults *f = &w->options.faults;
    bool drop = on && f->drop.on && world_chance(w, 0.3);
    bool duplicate = on && f->duplicate.on && world_chance(w, 0.3);
    bool corrupt = on && f->corrupt.on && world_chance(w, 0.3);
    bool delay = on && f->delay.on && world_chance(w, 0.4);
    double scale = (double)world_below(w, 1000) / 1000.0 *
                   (world_chance(w, 0.1) ? HEAVY : 1);

    w->lossy = false;
    w->ghost_until_ns = duplicate || delay
                        ? IB_CLOCK_NEVER : world_now(w) + 10 * IB_MSEC;
    for (unsigned c = 0; c < w->topology->num_cables; c++) {
        FabricFault fault = { 0 };

        if (world_chance(w, 0.5)) {
            fault.drop = drop ? scale * f->drop.max_rate : 0;
            fault.duplicate = duplicate ? scale * f->duplicate.max_rate : 0;
            fault.corrupt = corrupt ? scale * f->corrupt.max_rate : 0;
            fault.delay = delay ? scale * f->delay.max_rate : 0;
            fault.delay_ns = delay ? world_between(w, 1, f->delay.max_ns)
                                   : 0;
        }
        w->lossy = w->lossy || fault.drop > 0 || fault.corrupt > 0;
        if (!w->fabric) {
            w->direct[c].fault = fault;
        } else if (!fabric_cable_fault(w->fabric, c, &fault)) {
            world_fail(w, "no memory for the delay line of cable %u", c);
        }
    }
}

/* ------------------------------------------------------------------ */
/* Hosts                                                              */
/* ------------------------------------------------------------------ */

static void on_engine_event(void *opaque, Host *host, const EhcaEvent *event)
{
    check_event(opaque, event);
}

void world_host_start(World *w, SimHost *sim)
{
    HostOptions options = {
        .node_guid = sim->guid,
        .num_ports = RAILS,
        .memory = HOST_MEMORY,
        .event = on_engine_event,
        .opaque = sim,
        .quiet = true,
    };
    IbLinkPortMemory *memory[EHCA_MAX_PORTS];
    IbLinkHello hello;
    char name[16], *error;

    snprintf(name, sizeof(name), "h%u", sim->index);
    options.name = name;
    sim->host = host_new(&options, &w->clock);
    for (unsigned p = 1; p <= RAILS; p++) {
        host_attach(sim->host, p);
        sim->ports[p].state = IB_PORT_DOWN;
        sim->ports[p].available = false;
        sim->ports[p].told_enabled = false;
        /* Only who saw it before it died gives it the same LID. */
        if (w->sm_starts != sim->death_sm_starts) {
            sim->ports[p].lid = 0;
        }
    }
    host_hello(sim->host, &hello, memory);
    if (!w->fabric) {
        direct_update(w);
    } else if (!fabric_node_attach(w->fabric, &hello, memory, sim, &error)) {
        world_fail(w, "host %s was refused: %s", name, error);
    }
    host_start(sim->host);
}

void world_host_kill(World *w, SimHost *sim)
{
    for (unsigned p = 1; p <= RAILS; p++) {
        sim->ports[p].bad_ns = world_now(w);
    }
    sim->death_sm_starts = w->sm_starts;
    conn_host_died(w, sim);
    if (w->fabric) {
        fabric_node_detach(w->fabric, sim->node);
        host_free(sim->host);
        sim->host = NULL;
    } else {
        Host *h = sim->host;

        sim->host = NULL;
        direct_update(w);
        host_free(h);
    }
}

bool world_port_usable(World *w, SimHost *sim, unsigned port)
{
    return sim->host && sim->ports[port].available &&
           cable_link(w, sim->ports[port].cable);
}

static bool run_host(World *w, SimHost *sim)
{
    Host *h = sim->host;
    bool more;
    HostEqe eqe;

    if (!h) {
        return false;
    }
    for (unsigned p = 1; w->fabric && p <= RAILS; p++) {
        if (sim->ports[p].told_enabled != h->wants_link[p]) {
            sim->ports[p].told_enabled = h->wants_link[p];
            fabric_node_enable(w->fabric, sim->node, p, h->wants_link[p]);
        }
    }
    more = host_run_budget(h, w->host_budget);
    while (host_next_eqe(h, &eqe)) {
        world_note(w, NOTE_EQE, sim->index, eqe.id, eqe.number, eqe.token, 0);
        check_eqe(sim, &eqe);
        more = true;
    }
    while (host_next_neqe(h, &eqe)) {
        world_note(w, NOTE_NEQE, sim->index, eqe.id, eqe.port, eqe.flag,
                   eqe.specific);
        check_neqe(sim, &eqe);
        more = true;
    }
    return conn_poll(w, sim) || more || h->running;
}

/* ------------------------------------------------------------------ */
/* Subnet manager                                                     */
/* ------------------------------------------------------------------ */

static bool sm_send(void *opaque, const uint8_t *packet, size_t len)
{
    World *w = opaque;
    uint8_t *p = ib_ring_reserve(&w->sm.tx);

    if (!p) {
        return false;
    }
    memcpy(p, packet, len);
    ib_ring_commit(&w->sm.tx, len);
    return true;
}

static void sm_log(void *opaque, SmLogLevel level, const char *line)
{
    World *w = opaque;

    if (w->options.verbose || w->options.trace) {
        fprintf(w->options.verbose ? stdout : w->options.trace,
                "%14.6f ms sm %s: %s\n", (double)world_now(w) / 1e6,
                sm_log_level_name(level), line);
    }
}

static void sm_event(void *opaque, const char *json)
{
    uint64_t hash = UINT64_C(0xCBF29CE484222325);

    for (const char *c = json; *c; c++) {
        hash = (hash ^ (uint8_t)*c) * UINT64_C(0x100000001B3);
    }
    world_note(opaque, NOTE_SM, 0, hash, 0, 0, 0);
}

static const SmOps sm_ops = {
    .send = sm_send, .log = sm_log, .event = sm_event,
};

void world_sm_start(World *w)
{
    IbLinkHello hello = {
        .version = IB_LINK_VERSION, .num_ports = 1, .node_type = IB_NODE_CA,
        .node_guid = SM_GUID, .port_guids = { SM_GUID + 1 }, .name = "sm",
    };
    char *error;

    w->sm_options.seed = ++w->sm.starts * 1000 + world_below(w, 1000);
    w->sm.sm = sm_new(&w->clock, &w->sm_options, &sm_ops, w, &error);
    if (!w->sm.sm) {
        world_fail(w, "subnet manager: %s", error);
    }
    ib_ring_format(&w->sm.memory->to_fabric);
    ib_ring_format(&w->sm.memory->to_node);
    ib_ring_init_producer(&w->sm.tx, &w->sm.memory->to_fabric);
    ib_ring_init_consumer(&w->sm.rx, &w->sm.memory->to_node);
    if (!fabric_node_attach(w->fabric, &hello, &w->sm.memory, &w->sm,
                            &error)) {
        world_fail(w, "subnet manager was refused: %s", error);
    }
    w->sm_starts++;
    w->route_bad_ns = world_now(w);
    fabric_node_enable(w->fabric, w->sm.node, 1, true);
}

void world_sm_kill(World *w)
{
    fabric_node_detach(w->fabric, w->sm.node);
    sm_free(w->sm.sm);
    w->sm.sm = NULL;
}

static bool run_sm(World *w)
{
    uint8_t packet[IB_RING_DATA_MAX];
    bool any = false;
    const uint8_t *p;
    uint32_t len;

    while (w->sm.sm && (p = ib_ring_peek(&w->sm.rx, &len))) {
        memcpy(packet, p, len);
        ib_ring_consume(&w->sm.rx);
        sm_receive(w->sm.sm, packet, len);
        any = true;
    }
    return any;
}

/* ------------------------------------------------------------------ */
/* Time                                                               */
/* ------------------------------------------------------------------ */

void world_settle(World *w)
{
    unsigned rounds = 0;
    bool more;

    do {
        unsigned first = world_below(w, w->num_hosts);
        uint64_t moved = w->fabric ? fabric_moved(w->fabric) : 0;

        more = ib_clock_run(&w->clock, TIMERS_PER_TURN) != 0;
        for (unsigned i = 0; i < w->num_hosts; i++) {
            more = run_host(w, &w->hosts[(first + i) % w->num_hosts]) || more;
        }
        more = run_sm(w) || more;
        more = conn_run(w) || more;
        if (w->fabric) {
            more = fabric_run(w->fabric, w->fabric_budget) || more;
            more = more || fabric_moved(w->fabric) != moved;
        } else {
            more = direct_run(w, 0) || more;
            more = direct_run(w, 1) || more;
        }
        if (++rounds > SETTLE_LIMIT) {
            world_fail(w, "the instant does not end: something goes round "
                       "without time passing");
        }
    } while (more);
    check_instant(w);
}

static int64_t next_deadline(World *w)
{
    int64_t clock = ib_clock_deadline(&w->clock);
    int64_t conn = conn_deadline(w);
    int64_t direct = direct_deadline(w);
    int64_t next = clock < conn ? clock : conn;

    return next < direct ? next : direct;
}

void world_step(World *w)
{
    int64_t next;

    world_settle(w);
    next = next_deadline(w);
    if (next == IB_CLOCK_NEVER) {
        world_fail(w, "nothing will ever happen again");
    }
    ib_clock_set(&w->clock, next);
}

bool world_wait(World *w, int64_t ns, WorldCondition *done, void *opaque)
{
    int64_t end = world_now(w) + ns;

    for (;;) {
        int64_t next;

        world_settle(w);
        if (done && done(w, opaque)) {
            return true;
        }
        next = next_deadline(w);
        if (next > end) {
            ib_clock_set(&w->clock, end);
            return done && done(w, opaque);
        }
        ib_clock_set(&w->clock, next);
    }
}

void world_sleep(World *w, int64_t ns)
{
    world_wait(w, ns, NULL, NULL);
}

/* ------------------------------------------------------------------ */
/* Life                                                               */
/* ------------------------------------------------------------------ */

static void *zalloc(size_t align, size_t size)
{
    void *p;

    if (posix_memalign(&p, align, size) != 0) {
        fprintf(stderr, "sim: no memory for %zu bytes\n", size);
        abort();
    }
    memset(p, 0, size);
    return p;
}

static bool all_active(World *w, void *opaque)
{
    for (unsigned h = 0; h < w->num_hosts; h++) {
        for (unsigned p = 1; p <= RAILS; p++) {
            if (!world_port_usable(w, &w->hosts[h], p)) {
                return false;
            }
        }
    }
    return true;
}

World *world_new(const WorldOptions *options)
{
    static const unsigned budgets[] = { 8, 32, 256 };
    World *w = zalloc(64, sizeof(*w));
    uint64_t seed = options->seed;
    unsigned conns;

    w->options = *options;
    w->random[0] = splitmix(&seed);
    w->random[1] = splitmix(&seed);
    w->hash = options->seed;
    w->route_bad_ns = -IB_SEC;
    ib_clock_init_virtual(&w->clock);
    w->kind = world_below(w, TOPOLOGIES);
    if (options->topology >= 0) {
        w->kind = options->topology;
    }
    w->num_hosts = w->kind == TOPOLOGY_BACK_TO_BACK
                   ? 2 : 2 + world_below(w, 2);
    conns = 1 + world_below(w, 4);
    w->host_budget = budgets[world_below(w, 3)];
    w->fabric_budget = budgets[world_below(w, 3)];
    w->pace_ns = 500 * IB_USEC;
    build_topology(w);
    if (w->kind != TOPOLOGY_BACK_TO_BACK) {
        w->fabric = fabric_new(w->topology, &w->clock, options->seed,
                               &fabric_ops, w);
        w->sm.memory = zalloc(64, sizeof(IbLinkPortMemory));
        w->sm.node = topology_find_node(w->topology, "sm");
        w->sm.cable = topology_find_cable(w->topology, "sm-1");
    }
    for (unsigned rail = 0; rail < RAILS; rail++) {
        w->direct[rail].world = w;
        w->direct[rail].plugged = true;
    }
    sm_options_init(&w->sm_options);
    w->sm_options.node_guid = SM_GUID;
    w->sm_options.port_guid = SM_GUID + 1;
    w->sm_options.lmc = world_chance(w, 0.3) ? 1 + world_below(w, 2) : 0;
    w->sm_options.sweep_ns = world_between(w, 1, 10) * IB_SEC;
    w->sm_options.mad_timeout_ns = world_between(w, 10, 200) * IB_MSEC;
    w->sm_options.log_level = SM_LOG_WARN;
    for (unsigned h = 0; h < w->num_hosts; h++) {
        SimHost *sim = &w->hosts[h];
        char name[16];

        sim->world = w;
        sim->index = h;
        sim->guid = HOST_GUID + 0x100 * h;
        snprintf(name, sizeof(name), "h%u", h);
        sim->node = topology_find_node(w->topology, name);
        for (unsigned p = 1; p <= RAILS; p++) {
            unsigned end;

            sim->ports[p].cable = w->fabric
                ? fabric_port_cable(w->fabric, sim->node, p, &end)
                : (int)p - 1;
        }
        world_host_start(w, sim);
    }
    if (world_chance(w, 0.5)) {
        world_sleep(w, world_between(w, 0, 100) * IB_MSEC);
    }
    if (w->fabric) {
        world_sm_start(w);
    }
    if (!world_wait(w, 30 * IB_SEC, all_active, NULL)) {
        world_fail(w, "not all ports were Active 30 s after the start");
    }
    for (unsigned c = 0; c < conns; c++) {
        conn_new(w, c);
    }
    w->num_conns = conns;
    return w;
}

void world_free(World *w)
{
    if (w->sm.sm) {
        world_sm_kill(w);
    }
    for (unsigned h = 0; h < w->num_hosts; h++) {
        if (w->hosts[h].host) {
            world_host_kill(w, &w->hosts[h]);
        }
    }
    if (w->fabric) {
        fabric_free(w->fabric);
    }
    topology_free(w->topology);
    ib_clock_fini(&w->clock);
    free(w->sm.memory);
    free(w);
}
