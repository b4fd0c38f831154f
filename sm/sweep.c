/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The sweep: from nobody known to everybody Active.
 *
 * Theory of operation: one thing is under way at a time, a phase; its SMPs
 * are queued, the transport keeps a window of them in flight, and when the
 * last is answered sm_phase_done() turns to the next:
 *
 *   DISCOVER       directed routes outwards from our own node: NodeInfo of
 *                  who is at the end of a cable, PortInfo of its ports, then
 *                  on through each port of a switch whose link is up.  A
 *                  switch met again is only noted as the other end of one
 *                  more cable, so loops end.  SMInfo of ports with an SM
 *     then         what was not seen is dropped; who is master is decided;
 *                  only a master goes on
 *   LIDS           Set(PortInfo): LID, SM LID, MTU, VLs, ClientReregister
 *   ROUTES         forwarding tables that differ
 *     then         reports 65
 *   ARM, ACTIVATE, ACTIVATE-CAS
 *                  Initialize -> Armed on both ends of each link, then Active:
 *                  switches first, so that a host that hears PORT_ACTIVE can
 *                  send at once
 *     then         reports 64
 *   VERIFY         read back the tables (verify.c)
 *
 * An Active port is never written a state: what lives is not bounced.  MTU and
 * VLs are set in Initialize only.
 *
 * Between heavy sweeps: LIGHT asks every switch for PortStateChange; MCAST
 * writes multicast tables after a join or leave; POLL is the standby's.
 *
 * What starts a heavy sweep: start, our own cable, handover, trap 128 or 144
 * (at once, or as soon as the one under way is done), a change found by a
 * light sweep, SM_LIGHT_PER_HEAVY light sweeps in a row, an interval without
 * any switch that could tell, errors in the last one (delay from
 * SM_RESWEEP_FIRST, doubling), sm_sweep().
 */
#include <string.h>

#include "sm/internal.h"

/* 14.2.4: who has no key may read all but the key, and write nothing. */
#define M_KEY_PROTECT 1

static void probe(Sm *sm, const SmPath *path, SmPort *via);

void sm_want_heavy(Sm *sm, const char *why, int64_t delay_ns)
{
    int64_t when = ib_clock_now(sm->clock) + delay_ns;

    if (!sm->heavy_wanted || when < sm->heavy_not_before) {
        sm->heavy_not_before = when;
        sm->why = why;
    }
    sm->heavy_wanted = true;
}

static void sweep_error(Sm *sm, const SmPort *port, const char *what)
{
    sm->errors = true;
    sm_logf(sm, SM_LOG_WARN, "port %s: %s", sm_port_name(port).s, what);
}

/* Discovery */

static bool is_linked(const Sm *sm, const SmPort *port)
{
    return port->peer_seen == sm->sweep;
}

static void link_ports(Sm *sm, SmPort *a, SmPort *b)
{
    if (a->peer != b || b->peer != a) {
        a->route_dirty = true;
        b->route_dirty = true;
    }
    a->peer = b;
    b->peer = a;
    a->peer_seen = sm->sweep;
    b->peer_seen = sm->sweep;
}

static void sm_info_reply(Sm *sm, SmRequest *request, const IbSmp *smp,
                          const uint8_t *data)
{
    SmOther *other;

    if (!smp) {
        return;                           /* an SM that is not running */
    }
    if (sm->num_others == SM_MAX_OTHERS) {
        sm_logf(sm, SM_LOG_WARN, "more than %u other SMs: the one at %s is "
                "not looked at", SM_MAX_OTHERS,
                sm_port_name(request->port).s);
        return;
    }
    other = &sm->others[sm->num_others++];
    ib_sm_info_unpack(&other->info, data);
    other->path = request->path;
}

/* SwitchInfo and port 0 are known: can our copy of its tables be right? */
static void check_tables(Sm *sm, SmPort *port0)
{
    SmSwitch *sw = port0->node->sw;
    bool reset = port0->lid && port0->info.lid != port0->lid;

    if (reset && sw->tables_known) {
        sm_logf(sm, SM_LOG_WARN, "switch %s has LID %u instead of %u: was it "
                "reset?", port0->node->desc, port0->info.lid, port0->lid);
    }
    if (!port0->info.lid) {
        if (!sw->tables_known || reset) {
            sm_switch_blank(port0->node);
        }
    } else if (!sw->tables_known || reset ||
               sw->info.lft_top < sw->wanted.lft_top) {
        sm_switch_read_tables(sm, port0->node);
    }
}

static void port_info_reply(Sm *sm, SmRequest *request, const IbSmp *smp,
                            const uint8_t *data)
{
    SmPort *port = request->port;
    SmSwitch *sw = port->node->sw;
    SmPath path;

    if (!smp) {
        sm->errors = true;
        if (port->node->told != sm->sweep) {
            sweep_error(sm, port, "PortInfo was not answered");
        }
        port->node->told = sm->sweep;
        return;
    }
    ib_port_info_unpack(&port->info, data);
    port->info.client_reregister = false;
    port->info_seen = sm->sweep;
    if (port->info.state < IB_PORT_ARMED) {
        port->configured = false;         /* its link was down */
        port->pkeys_known = false;
        port->no_pkeys = false;
    }
    port->seen = sm->sweep;
    sm->swept_ports++;
    if (port->known && port->told_active && !sw &&
        port->info.state != IB_PORT_ACTIVE) {
        sm_logf(sm, SM_LOG_INFO, "port %s is in state %s: its link was down",
                sm_port_name(port).s, ib_port_state_name(port->info.state));
        port->told_active = false;
    }
    if (port->endpoint && port != sm->own &&
        (port->info.capability_mask & IB_CAP_SM)) {
        sm_request(sm, &request->path, IB_METHOD_GET, IB_SM_SM_INFO, 0,
                   sm_info_reply)->port = port;
    }
    if (sw && port->num == 0) {
        check_tables(sm, port);
        return;
    }
    if ((sw || port == sm->own) && port->info.state >= IB_PORT_INIT &&
        !is_linked(sm, port)) {
        path = request->path;
        if (path.hops == SM_MAX_HOPS) {
            sweep_error(sm, port, "63 hops away: nothing behind it is "
                        "looked at");
            return;
        }
        path.port[++path.hops] = port->num;
        probe(sm, &path, port);
    }
}

static void ask_port(Sm *sm, const SmPath *path, SmPort *port)
{
    sm_request(sm, path, IB_METHOD_GET, IB_SM_PORT_INFO, port->num,
               port_info_reply)->port = port;
}

static void ask_switch_ports(Sm *sm, SmNode *node)
{
    for (unsigned i = 0; i <= node->num_ports; i++) {
        ask_port(sm, &node->path, &node->ports[i]);
    }
}

static void change_cleared(Sm *sm, SmRequest *request, const IbSmp *smp,
                           const uint8_t *data)
{
    if (!smp) {
        sweep_error(sm, &request->node->ports[0],
                    "PortStateChange could not be cleared");
    }
    /* Only now: what changes from here on sets the bit again. */
    ask_switch_ports(sm, request->node);
}

static void switch_info_reply(Sm *sm, SmRequest *request, const IbSmp *smp,
                              const uint8_t *data)
{
    SmNode *node = request->node;
    SmSwitch *sw = node->sw;

    if (!smp) {
        sweep_error(sm, &node->ports[0], "SwitchInfo was not answered");
        ask_switch_ports(sm, node);
        return;
    }
    ib_switch_info_unpack(&sw->info, data);
    sm_switch_info_check(sm, node);
    if (!sw->info.port_state_change) {
        ask_switch_ports(sm, node);
    } else if (sm->state != SM_MASTER) {
        /* Not ours to write: once master, clear it and look again. */
        sm_want_heavy(sm, "changes before we were master", 0);
        ask_switch_ports(sm, node);
    } else {
        SmRequest *set = sm_request(sm, &node->path, IB_METHOD_SET,
                                    IB_SM_SWITCH_INFO, 0, change_cleared);

        set->node = node;
        ib_switch_info_pack(set->data, &sw->info);
    }
}

static void node_desc_reply(Sm *sm, SmRequest *request, const IbSmp *smp,
                            const uint8_t *data)
{
    if (smp) {
        sm_node_set_desc(request->node, data);
    }
}

static void duplicate(Sm *sm, SmNode *node, const SmPort *via)
{
    sm->errors = true;
    if (!node->duplicate_logged) {
        sm_logf(sm, SM_LOG_ERROR, "node GUID 0x%016" PRIx64 " of %s was "
                "found once more behind port %s: GUIDs must be unique, the "
                "second is left out", node->guid, node->desc,
                via ? sm_port_name(via).s : "?");
    }
    node->duplicate_logged = true;
}

static bool node_info_valid(const IbNodeInfo *info)
{
    if (!info->node_guid || !info->num_ports || info->num_ports == 255) {
        return false;
    }
    if (info->node_type == IB_NODE_SWITCH) {
        return info->local_port <= info->num_ports;
    }
    return info->local_port >= 1 && info->local_port <= info->num_ports &&
           info->port_guid;
}

static void node_info_reply(Sm *sm, SmRequest *request, const IbSmp *smp,
                            const uint8_t *data)
{
    SmPort *via = request->port;          /* NULL: our own node */
    IbNodeInfo info;
    SmNode *node;
    SmPort *port;
    bool first;

    if (!smp) {
        if (via) {
            sweep_error(sm, via, "link is up, but nobody answers there");
        }
        return;
    }
    ib_node_info_unpack(&info, data);
    if (!node_info_valid(&info)) {
        sm->errors = true;
        sm_logf(sm, SM_LOG_ERROR, "NodeInfo behind port %s makes no sense "
                "(type %u, %u ports, came in by %u, GUIDs 0x%" PRIx64
                " and 0x%" PRIx64 "): left out",
                via ? sm_port_name(via).s : "?", info.node_type,
                info.num_ports, info.local_port, info.node_guid,
                info.port_guid);
        return;
    }
    node = sm_node_find(sm, info.node_guid);
    if (node && (node->num_ports != info.num_ports ||
                 !node->sw != (info.node_type != IB_NODE_SWITCH))) {
        if (node->seen == sm->sweep) {
            duplicate(sm, node, via);
        } else {
            /* Another kind of node since: it must go before it can come. */
            sm_want_heavy(sm, "a node came back as another kind", 0);
        }
        return;
    }
    if (!node) {
        node = sm_node_add(sm, &info);
        if (!node) {
            sm->errors = true;
            if (sm->full_told != sm->sweep) {
                sm->full_told = sm->sweep;
                sm_logf(sm, SM_LOG_ERROR, "more than %u nodes, %u switches "
                        "or %u ports: the node behind port %s and others "
                        "are left out", SM_MAX_NODES, SM_MAX_SWITCHES,
                        SM_MAX_PORTS, via ? sm_port_name(via).s : "?");
            }
            return;
        }
    }
    port = &node->ports[info.local_port];
    if (via) {
        bool right = port != via && (info.local_port || !node->sw) &&
                     (!is_linked(sm, port) || port->peer == via) &&
                     (!is_linked(sm, via) || via->peer == port) &&
                     port != sm->own;

        if (!right) {
            duplicate(sm, node, via);
            return;
        }
        /* The peer's peer of an earlier sweep must not point back. */
        link_ports(sm, via, port);
    }
    first = node->seen != sm->sweep;
    if (first) {
        node->seen = sm->sweep;
        node->info = info;
        sm->swept_nodes++;
    } else if (node->sw) {
        return;                           /* one more cable to it */
    }
    if (first && (!node->desc_known || sm->read_desc)) {
        sm_request(sm, &request->path, IB_METHOD_GET,
                   IB_SM_NODE_DESCRIPTION, 0, node_desc_reply)->node = node;
    }
    if (node->sw) {
        SmPort *port0 = &node->ports[0];
        uint64_t guid = info.port_guid ? info.port_guid : info.node_guid;

        if (!sm_port_register(sm, port0, guid)) {
            duplicate(sm, node, via);
        }
        node->path = request->path;
        sm_request(sm, &node->path, IB_METHOD_GET, IB_SM_SWITCH_INFO, 0,
                   switch_info_reply)->node = node;
        return;
    }
    if (port->known && port->guid != info.port_guid) {
        sm_want_heavy(sm, "a port changed its GUID", 0);
        return;
    }
    if (!sm_port_register(sm, port, info.port_guid)) {
        duplicate(sm, node, via);
        return;
    }
    port->path = request->path;
    if (!via) {
        sm->own = port;
    }
    ask_port(sm, &request->path, port);
}

static void probe(Sm *sm, const SmPath *path, SmPort *via)
{
    sm_request(sm, path, IB_METHOD_GET, IB_SM_NODE_INFO, 0,
               node_info_reply)->port = via;
}

static void start_heavy(Sm *sm)
{
    static const SmPath self;

    sm->sweep++;
    if (!sm->sweep) {
        sm->sweep = 1;
    }
    sm->stats.heavy_sweeps++;
    sm->phase = SM_PHASE_DISCOVER;
    sm->heavy_wanted = false;
    sm->read_desc = sm->desc_wanted;
    sm->desc_wanted = false;
    sm->errors = false;
    sm->num_others = 0;
    sm->handover_to = -1;
    sm->swept_nodes = 0;
    sm->swept_ports = 0;
    sm->sweep_started = ib_clock_now(sm->clock);
    sm_logf(sm, SM_LOG_DEBUG, "heavy sweep %u: %s", sm->sweep, sm->why);
    probe(sm, &self, NULL);
}

/* Who is master? */

static void acknowledged(Sm *sm, SmRequest *request, const IbSmp *smp,
                         const uint8_t *data)
{
    if (!smp) {
        sm_logf(sm, SM_LOG_WARN, "the former master did not answer our "
                "ACKNOWLEDGE");
    }
}

static void stand_by(Sm *sm, const SmOther *other, const char *why)
{
    sm->master = *other;
    sm->poll_failures = 0;
    sm->next_poll = ib_clock_now(sm->clock) + sm->opts.poll_ns;
    sm_set_state(sm, SM_STANDBY, why);
}

static void request_sm_info_set(Sm *sm, const SmPath *path, uint32_t mod,
                                SmReplyFn *fn)
{
    SmRequest *set = sm_request(sm, path, IB_METHOD_SET, IB_SM_SM_INFO, mod,
                                fn);
    IbSmInfo info = {
        .guid = sm->opts.port_guid,
        .act_count = sm->act_count,
        .priority = sm->opts.priority,
        .state = sm->state,
    };

    ib_sm_info_pack(set->data, &info);
}

static void elect(Sm *sm)
{
    for (unsigned i = 0; i < sm->num_others; i++) {
        const SmOther *other = &sm->others[i];
        bool theirs_better = !sm_better_than(sm, &other->info);

        if (other->info.guid == sm->opts.port_guid) {
            continue;                     /* it cannot be: leave it alone */
        }
        if (other->info.state == SM_MASTER &&
            (sm->state == SM_DISCOVERING || theirs_better)) {
            stand_by(sm, other, "another SM is master");
            return;
        }
        if (sm->state == SM_DISCOVERING && theirs_better &&
            (other->info.state == SM_DISCOVERING ||
             other->info.state == SM_STANDBY)) {
            stand_by(sm, other, "a better SM is about to be master");
            return;
        }
        if (sm->state == SM_MASTER && theirs_better &&
            other->info.state == SM_STANDBY) {
            sm->handover_to = i;
        }
    }
    if (sm->state != SM_DISCOVERING) {
        return;
    }
    if (sm->resume) {
        sm->resume = false;
        sm->state = SM_MASTER;
        sm_logf(sm, SM_LOG_INFO, "master again: nobody ruled meanwhile");
    } else {
        sm_set_state(sm, SM_MASTER, "there is no other master");
    }
}

/* LIDs and the rest of PortInfo */

static void state_checked(Sm *sm, SmRequest *request, const IbSmp *smp,
                          const uint8_t *data)
{
    SmPort *port = request->port;

    if (smp) {
        ib_port_info_unpack(&port->info, data);
        port->info.client_reregister = false;
    }
    if (!smp || port->info.state < (sm->phase == SM_PHASE_ARM
                                    ? IB_PORT_ARMED : IB_PORT_ACTIVE)) {
        sm->errors = true;
        sm_logf(sm, SM_LOG_WARN, "port %s did not become %s: %s",
                sm_port_name(port).s,
                sm->phase == SM_PHASE_ARM ? "Armed" : "Active",
                smp ? ib_port_state_name(port->info.state) : "no answer");
    }
}

static void set_port_reply(Sm *sm, SmRequest *request, const IbSmp *smp,
                           const uint8_t *data)
{
    SmPort *port = request->port;

    if (smp) {
        ib_port_info_unpack(&port->info, data);
        port->info.client_reregister = false;
        if (request->keep_reregister) {
            port->need_reregister = false;
        }
        return;
    }
    if (sm->phase == SM_PHASE_LIDS) {
        sweep_error(sm, port, "Set(PortInfo) was not answered or refused "
                    "(is there an M_Key that is not ours?)");
        return;
    }
    /*
     * Armed becomes Active by itself when data comes (7.2.7.2), a link may
     * have dropped, the answer may be lost: look where the port is.
     */
    sm_request(sm, &request->path, IB_METHOD_GET, IB_SM_PORT_INFO,
               request->mod, state_checked)->port = port;
}

static void set_port(Sm *sm, SmPort *port, const IbPortInfo *wanted,
                     unsigned state, bool reregister)
{
    IbPortInfo info = *wanted;
    SmRequest *request;

    /* 0 means "leave it" in all of these (14.2.5.6). */
    info.state = state;
    info.phys_state = IB_PHYS_NO_CHANGE;
    info.down_default = 0;
    info.width_enabled = 0;
    info.speed_enabled = 0;
    info.client_reregister = reregister;
    request = sm_request(sm, sm_port_path(port), IB_METHOD_SET,
                         IB_SM_PORT_INFO, port->num, set_port_reply);
    request->port = port;
    request->keep_reregister = reregister;
    ib_port_info_pack(request->data, &info);
    sm->stats.port_sets++;
}

static bool info_fresh(const Sm *sm, const SmPort *port)
{
    return port->info_seen == sm->sweep &&
           (!port->endpoint || port->known);
}

/* True if there is something to set; says what others have changed. */
static bool port_differs(Sm *sm, const SmPort *port, const IbPortInfo *wanted)
{
    const IbPortInfo *have = &port->info;
    const struct {
        const char *item;
        uint64_t found, wanted;
    } items[] = {
        { "LID", have->lid, wanted->lid },
        { "LMC", have->lmc, wanted->lmc },
        { "MasterSMLID", have->sm_lid, wanted->sm_lid },
        { "MasterSMSL", have->sm_sl, wanted->sm_sl },
        { "SubnetTimeOut", have->subnet_timeout, wanted->subnet_timeout },
        { "GidPrefix", have->gid_prefix, wanted->gid_prefix },
        { "NeighborMTU", have->neighbor_mtu, wanted->neighbor_mtu },
        { "OperationalVLs", have->operational_vls, wanted->operational_vls },
        { "M_KeyProtectBits", have->m_key_protect, wanted->m_key_protect },
        { "M_KeyLeasePeriod", have->m_key_lease, wanted->m_key_lease },
        /* It goes into the log: not the key itself. */
        { "M_Key (1: ours)", have->m_key == wanted->m_key, 1 },
    };
    bool differs = false;

    for (size_t i = 0; i < G_N_ELEMENTS(items); i++) {
        if (items[i].found != items[i].wanted) {
            differs = true;
            if (port->configured) {
                sm_tell_changed(sm, port, items[i].item, items[i].found,
                                items[i].wanted);
            }
        }
    }
    return differs;
}

static void configure_port(Sm *sm, SmPort *port)
{
    const IbPortInfo *have = &port->info;
    IbPortInfo wanted = *have;
    bool reregister = false;

    if (!info_fresh(sm, port)) {
        return;
    }
    if (port->endpoint && port->lid) {
        wanted.lid = port->lid;
        wanted.lmc = port->lmc;
        wanted.sm_lid = sm->own->lid;
        wanted.sm_sl = 0;
        wanted.subnet_timeout = sm->opts.subnet_timeout;
        wanted.gid_prefix = sm->opts.gid_prefix;
        if (sm->opts.m_key) {
            wanted.m_key = sm->opts.m_key;
            wanted.m_key_protect = M_KEY_PROTECT;
            wanted.m_key_lease = 0;       /* it never ends by itself */
        }
        if (!port->node->sw && port != sm->own) {
            if (sm->first_master || have->sm_lid != wanted.sm_lid) {
                port->need_reregister = true;
            }
            reregister = port->need_reregister &&
                         (have->capability_mask & IB_CAP_CLIENT_REREGISTER);
        }
    }
    if (have->state == IB_PORT_INIT && is_linked(sm, port) &&
        info_fresh(sm, port->peer)) {
        const IbPortInfo *peer = &port->peer->info;

        wanted.neighbor_mtu = MIN(have->mtu_cap, peer->mtu_cap);
        wanted.operational_vls = MIN(have->vl_cap, peer->vl_cap);
    } else if (port->configured) {
        wanted.neighbor_mtu = port->neighbor_mtu;
        wanted.operational_vls = port->operational_vls;
    }
    if (port_differs(sm, port, &wanted) || reregister) {
        set_port(sm, port, &wanted, IB_PORT_NO_CHANGE, reregister);
    }
    port->neighbor_mtu = wanted.neighbor_mtu;
    port->operational_vls = wanted.operational_vls;
    port->configured = true;
}

/* Moves all ports that are in @from, of switches or of CAs or both. */
static void move_ports(Sm *sm, unsigned from, unsigned to, bool switches,
                       bool cas)
{
    for (unsigned i = 0; i < sm->nodes->len; i++) {
        SmNode *node = g_ptr_array_index(sm->nodes, i);

        if (node->sw ? !switches : !cas) {
            continue;
        }
        for (unsigned j = 1; j <= node->num_ports; j++) {
            SmPort *port = &node->ports[j];

            if (info_fresh(sm, port) && port->info.state == from &&
                is_linked(sm, port) && info_fresh(sm, port->peer) &&
                (!port->endpoint ||
                 (port->lid && port->info.lid == port->lid))) {
                set_port(sm, port, &port->info, to, false);
            }
        }
    }
}

static void report_gone(Sm *sm)
{
    for (unsigned i = 0; i < sm->gone->len; i++) {
        uint8_t gid[16];

        sm_port_gid(sm, g_array_index(sm->gone, uint64_t, i), gid);
        sm_report_gid(sm, IB_TRAP_GID_OUT_OF_SERVICE, gid);
    }
    g_array_set_size(sm->gone, 0);
}

static unsigned count_active(Sm *sm)
{
    unsigned n = 0;

    for (unsigned i = 0; i < sm->nodes->len; i++) {
        const SmNode *node = g_ptr_array_index(sm->nodes, i);

        for (unsigned j = 1; !node->sw && j <= node->num_ports; j++) {
            const SmPort *port = &node->ports[j];

            n += port->known && port != sm->own &&
                 port->info.state == IB_PORT_ACTIVE;
        }
    }
    return n;
}

/* What the sweep has brought, told to who wants to know. */
static void tell(Sm *sm)
{
    unsigned active = 0;
    int64_t took = ib_clock_now(sm->clock) - sm->sweep_started;

    for (unsigned i = 0; i < sm->nodes->len; i++) {
        SmNode *node = g_ptr_array_index(sm->nodes, i);

        for (unsigned j = 0; j <= node->num_ports; j++) {
            SmPort *port = &node->ports[j];
            uint8_t gid[16];

            if (!port->known || !sm_port_usable(port)) {
                continue;
            }
            active++;
            if (!port->told_active) {
                port->told_active = true;
                sm_logf(sm, SM_LOG_INFO, "port %s is Active, GUID 0x%016"
                        PRIx64, sm_port_name(port).s, port->guid);
                sm_eventf(sm, "{\"event\":\"sm_port_active\",\"node\":\"%s\","
                          "\"port\":%u,\"guid\":\"0x%016" PRIx64 "\","
                          "\"lid\":%u}", node->desc, port->num, port->guid,
                          port->lid);
            }
            if (port->is_new && !sm->first_master) {
                sm_port_gid(sm, port->guid, gid);
                sm_report_gid(sm, IB_TRAP_GID_IN_SERVICE, gid);
            }
            port->is_new = false;
        }
    }
    if (sm->first_master) {
        if (sm->took_over) {
            sm_logf(sm, SM_LOG_INFO, "took over a living subnet: LIDs and "
                    "links stay as they are");
        }
        sm_eventf(sm, "{\"event\":\"sm_took_over\",\"lid\":%u,"
                  "\"nodes\":%u,\"living\":%s}", sm->own->lid,
                  sm->nodes->len, sm->took_over ? "true" : "false");
    }
    sm_logf(sm, sm->first_master ? SM_LOG_INFO : SM_LOG_DEBUG,
            "subnet up: %u nodes, %u switches, %u usable ports, %" PRId64
            ".%03" PRId64 " ms, SM LID %u", sm->nodes->len,
            sm->switches->len, active, took / IB_MSEC,
            took / IB_USEC % 1000, sm->own->lid);
    sm_eventf(sm, "{\"event\":\"sm_sweep_done\",\"sweep\":%u,\"nodes\":%u,"
              "\"switches\":%u,\"usable_ports\":%u,\"errors\":%s,"
              "\"took_us\":%" PRId64 "}", sm->sweep, sm->nodes->len,
              sm->switches->len, active, sm->errors ? "true" : "false",
              took / IB_USEC);
}

static void handed_over(Sm *sm, SmRequest *request, const IbSmp *smp,
                        const uint8_t *data)
{
    const SmOther *other = &sm->others[sm->handover_to];

    if (!smp) {
        sm_logf(sm, SM_LOG_WARN, "SM GUID 0x%016" PRIx64 " is better but "
                "did not take our HANDOVER", other->info.guid);
        return;
    }
    stand_by(sm, other, "handed over to a better SM");
}

/* Light sweep, poll */

static void light_reply(Sm *sm, SmRequest *request, const IbSmp *smp,
                        const uint8_t *data)
{
    IbSwitchInfo info;

    if (!smp) {
        sm->change_seen = true;
        return;
    }
    ib_switch_info_unpack(&info, data);
    if (info.port_state_change ||
        !sm_switch_info_same(&info, &request->node->sw->info)) {
        sm->change_seen = true;
    }
}

static void start_light(Sm *sm)
{
    sm->stats.light_sweeps++;
    sm->change_seen = false;
    sm->phase = SM_PHASE_LIGHT;
    for (unsigned i = 0; i < sm->switches->len; i++) {
        SmNode *node = g_ptr_array_index(sm->switches, i);

        sm_request(sm, &node->path, IB_METHOD_GET, IB_SM_SWITCH_INFO, 0,
                   light_reply)->node = node;
    }
}

static void poll_reply(Sm *sm, SmRequest *request, const IbSmp *smp,
                       const uint8_t *data)
{
    IbSmInfo info;

    if (smp) {
        ib_sm_info_unpack(&info, data);
        if (info.state == SM_MASTER &&
            info.guid == sm->master.info.guid) {
            sm->poll_failures = 0;
            return;
        }
    }
    sm->poll_failures++;
}

static void start_poll(Sm *sm)
{
    sm->phase = SM_PHASE_POLL;
    sm_request(sm, &sm->master.path, IB_METHOD_GET, IB_SM_SM_INFO, 0,
               poll_reply);
}

/* From phase to phase */

static void go_idle(Sm *sm)
{
    sm->phase = SM_PHASE_IDLE;
    sm_schedule(sm);
}

static void discovered(Sm *sm)
{
    bool takeover;

    if (!sm->own || !is_linked(sm, sm->own)) {
        /* Alone: whoever is at the other end does not answer (yet). */
        sm->errors = true;
    }
    sm_db_drop_unseen(sm);
    sm_route_index(sm);
    if (!sm->own) {
        sm_want_heavy(sm, "own SMA did not answer", SM_RESWEEP_FIRST);
        go_idle(sm);
        return;
    }
    elect(sm);
    if (sm->state != SM_MASTER) {
        g_array_set_size(sm->gone, 0);
        go_idle(sm);
        return;
    }
    if (sm->acknowledge) {
        sm->acknowledge = false;
        request_sm_info_set(sm, &sm->master.path, 2, acknowledged);
    }
    if (sm->first_master) {
        sm->took_over = count_active(sm) > 0;
    }
    sm->phase = SM_PHASE_LIDS;
    takeover = sm->takeover;
    sm_assign_lids(sm);
    sm->takeover = false;
    for (unsigned i = 0; i < sm->nodes->len; i++) {
        SmNode *node = g_ptr_array_index(sm->nodes, i);

        for (unsigned j = 0; j <= node->num_ports; j++) {
            if (takeover) {
                node->ports[j].configured = false;   /* by somebody else */
            }
            configure_port(sm, &node->ports[j]);
        }
    }
}

static void subnet_up(Sm *sm)
{
    tell(sm);
    sm->first_master = false;
    sm_lid_file_save(sm);
    sm_verify_start(sm);
}

static void sweep_done(Sm *sm)
{
    if (sm->errors) {
        sm->stats.sweep_errors++;
        sm->resweep_delay = sm->resweep_delay
                            ? MIN(sm->resweep_delay * 2, SM_RESWEEP_LAST)
                            : SM_RESWEEP_FIRST;
        sm_want_heavy(sm, "errors in the last sweep", sm->resweep_delay);
    } else {
        sm->resweep_delay = 0;
    }
    sm->light_in_row = 0;
    sm->next_light = ib_clock_now(sm->clock) + sm->opts.sweep_ns;
    if (sm->handover_to >= 0) {
        sm->phase = SM_PHASE_HANDOVER;
        request_sm_info_set(sm, &sm->others[sm->handover_to].path, 1,
                            handed_over);
        return;
    }
    go_idle(sm);
}

void sm_phase_done(Sm *sm)
{
    int64_t now = ib_clock_now(sm->clock);

    switch (sm->phase) {
    case SM_PHASE_IDLE:
        break;
    case SM_PHASE_LIGHT:
        sm->next_light = now + sm->opts.sweep_ns;
        if (sm->change_seen) {
            sm_want_heavy(sm, "a switch saw a change", 0);
        } else if (++sm->light_in_row >= SM_LIGHT_PER_HEAVY) {
            sm_want_heavy(sm, "it is time to look at everything", 0);
        }
        if (!sm->mcast_grace_over &&
            now >= sm->master_since + SM_MCAST_GRACE) {
            sm->mcast_grace_over = true;
            sm->mcast_wanted = true;
        }
        go_idle(sm);
        break;
    case SM_PHASE_DISCOVER:
        discovered(sm);
        break;
    case SM_PHASE_LIDS:
        sm->phase = SM_PHASE_ROUTES;
        sm->mcast_wanted = false;
        sm_route_all(sm);
        sm_mcast_route(sm);
        sm_route_write(sm);
        sm_mcast_write(sm);
        break;
    case SM_PHASE_ROUTES:
        report_gone(sm);
        sm->phase = SM_PHASE_ARM;
        move_ports(sm, IB_PORT_INIT, IB_PORT_ARMED, true, true);
        break;
    case SM_PHASE_ARM:
        sm->phase = SM_PHASE_ACTIVATE;
        move_ports(sm, IB_PORT_ARMED, IB_PORT_ACTIVE, true, false);
        break;
    case SM_PHASE_ACTIVATE:
        sm->phase = SM_PHASE_ACTIVATE_CAS;
        move_ports(sm, IB_PORT_ARMED, IB_PORT_ACTIVE, false, true);
        break;
    case SM_PHASE_ACTIVATE_CAS:
        subnet_up(sm);
        break;
    case SM_PHASE_VERIFY:
        if (!sm_verify_more(sm)) {
            sweep_done(sm);
        }
        break;
    case SM_PHASE_POLL:
        sm->next_poll = now + sm->opts.poll_ns;
        if (sm->state == SM_STANDBY &&
            sm->poll_failures >= SM_POLL_FAILURES) {
            sm_set_state(sm, SM_DISCOVERING, "the master is silent, or is "
                         "none");
            sm_want_heavy(sm, "the master is silent", 0);
        }
        go_idle(sm);
        break;
    case SM_PHASE_MCAST:
    case SM_PHASE_HANDOVER:
        go_idle(sm);
        break;
    }
}

void sm_sweep_abort(Sm *sm)
{
    if (sm->phase != SM_PHASE_IDLE) {
        sm->heavy_wanted = true;
        sm->heavy_not_before = 0;
        sm->why = "the last one was cut off";
    }
    sm_transport_abort(sm);
    sm->phase = SM_PHASE_IDLE;
    /* What the switches did with the last writes is not known. */
    sm_route_forget(sm);
    ib_timer_cancel(&sm->wake);
}

void sm_schedule(Sm *sm)
{
    int64_t now = ib_clock_now(sm->clock);
    int64_t next = IB_CLOCK_NEVER;

    if (sm->phase != SM_PHASE_IDLE || !sm->link_up ||
        sm->state == SM_NOT_ACTIVE) {
        return;
    }
    if (sm->state == SM_STANDBY) {
        if (now >= sm->next_poll) {
            start_poll(sm);
            return;
        }
        ib_timer_set(&sm->wake, sm->next_poll);
        return;
    }
    if (sm->heavy_wanted) {
        if (now >= sm->heavy_not_before) {
            start_heavy(sm);
            return;
        }
        next = sm->heavy_not_before;
    }
    if (sm->state == SM_MASTER) {
        if (sm->mcast_wanted) {
            sm->mcast_wanted = false;
            sm->phase = SM_PHASE_MCAST;
            sm_mcast_route(sm);
            sm_mcast_write(sm);
            return;
        }
        if (sm->opts.sweep_ns) {
            if (now >= sm->next_light) {
                if (sm->switches->len) {
                    start_light(sm);
                } else {
                    /* Nobody could tell: look ourselves. */
                    sm->next_light = now + sm->opts.sweep_ns;
                    sm->why = "there is no switch to tell of changes";
                    start_heavy(sm);
                }
                return;
            }
            next = MIN(next, sm->next_light);
        }
    }
    if (next != IB_CLOCK_NEVER) {
        ib_timer_set(&sm->wake, next);
    } else {
        ib_timer_cancel(&sm->wake);
    }
}
