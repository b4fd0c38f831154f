/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the subnet manager knows: nodes, ports, LIDs.
 *
 * Theory of operation: a node is known by its node GUID, an endpoint (port of
 * a channel adapter, port 0 of a switch) by its port GUID.  Each sweep has a
 * number; what it meets is stamped with it, what keeps an old stamp is gone
 * (sm_db_drop_unseen).
 *
 * A LID, once given to a port GUID, stays reserved for it when the port goes
 * away, as long as there are others to give (lid_guid, lid_of_guid; with a LID
 * file over restarts as well).  by_lid holds only ports that are there.
 *
 * Rules of sm_assign_lids(), best claim first; a port that has its LID from us
 * keeps it in ordinary sweeps.  In the first sweep after somebody else may
 * have ruled (start, our own cable back, handover) all claims are heard anew:
 *   1. Armed or Active port reports a LID that is reserved for its GUID
 *   2. Armed or Active port reports a LID that no other port there has;
 *      a reservation of somebody who is away gives way
 *   3. the LID reserved for the GUID
 *   4. the reported LID of a port not yet Armed, if nobody has reserved it
 *   5. our own port: the SM LID that most Active ports hold, if it is free,
 *      so that a restarted SM is found where the last one was
 *   6. the lowest free range above what was in use before us, as far as the
 *      switches tell (LinearFDBTop): a port that is away while an SM without
 *      its memory starts shall find its LID free.  If there is none, the
 *      lowest free one; if there is none either, that of somebody away
 * Two living ports with one LID: the first by these rules keeps it, the other
 * gets a new one and a line in the log: that is a broken subnet already.
 */
#include <string.h>

#include "sm/internal.h"

#define FIRST_LID 1u

void sm_db_init(Sm *sm)
{
    sm->nodes = g_ptr_array_new();
    sm->node_by_guid = g_hash_table_new(g_int64_hash, g_int64_equal);
    sm->port_by_guid = g_hash_table_new(g_int64_hash, g_int64_equal);
    sm->by_lid = g_new0(SmPort *, SM_LIDS);
    sm->lid_guid = g_new0(uint64_t, SM_LIDS);
    sm->lid_lmc = g_new0(uint8_t, SM_LIDS);
    sm->lid_of_guid = g_hash_table_new(g_int64_hash, g_int64_equal);
    sm->gone = g_array_new(false, false, sizeof(uint64_t));
    sm->switches = g_ptr_array_new();
    sm->graph = g_byte_array_new();
}

static void node_free(SmNode *node)
{
    sm_switch_free(node->sw);
    g_free(node->ports);
    g_free(node);
}

void sm_db_fini(Sm *sm)
{
    for (unsigned i = 0; i < sm->nodes->len; i++) {
        node_free(g_ptr_array_index(sm->nodes, i));
    }
    g_ptr_array_free(sm->nodes, true);
    g_hash_table_destroy(sm->node_by_guid);
    g_hash_table_destroy(sm->port_by_guid);
    g_hash_table_destroy(sm->lid_of_guid);
    g_free(sm->by_lid);
    g_free(sm->lid_guid);
    g_free(sm->lid_lmc);
    g_array_free(sm->gone, true);
    g_ptr_array_free(sm->switches, true);
    g_byte_array_free(sm->graph, true);
    g_free(sm->hops);
    g_free(sm->tree);
}

SmNode *sm_node_find(const Sm *sm, uint64_t guid)
{
    return g_hash_table_lookup(sm->node_by_guid, &guid);
}

SmNode *sm_node_add(Sm *sm, const IbNodeInfo *info)
{
    bool is_switch = info->node_type == IB_NODE_SWITCH;
    SmNode *node;

    if (sm->nodes->len >= SM_MAX_NODES ||
        sm->num_ports + info->num_ports + 1 > SM_MAX_PORTS ||
        sm->num_switches + is_switch > SM_MAX_SWITCHES) {
        return NULL;
    }
    sm->num_ports += info->num_ports + 1;
    sm->num_switches += is_switch;
    node = g_new0(SmNode, 1);
    node->guid = info->node_guid;
    node->info = *info;
    node->num_ports = info->num_ports;
    node->ports = g_new0(SmPort, node->num_ports + 1);
    for (unsigned i = 0; i <= node->num_ports; i++) {
        node->ports[i].node = node;
        node->ports[i].num = i;
    }
    if (is_switch) {
        node->ports[0].endpoint = true;
        node->sw = sm_switch_new(node->num_ports);
        sm->graph_valid = false;
    } else {
        for (unsigned i = 1; i <= node->num_ports; i++) {
            node->ports[i].endpoint = true;
        }
    }
    g_snprintf(node->desc, sizeof(node->desc), "0x%016" PRIx64, node->guid);
    g_ptr_array_add(sm->nodes, node);
    g_hash_table_insert(sm->node_by_guid, &node->guid, node);
    return node;
}

void sm_node_set_desc(SmNode *node, const uint8_t *desc)
{
    size_t len = 0;

    memcpy(node->raw_desc, desc, IB_NODE_DESC_LEN);
    while (len < IB_NODE_DESC_LEN && desc[len]) {
        uint8_t c = desc[len];

        /* It goes into logs and JSON as it is. */
        node->desc[len++] = c < 0x20 || c > 0x7E || c == '"' || c == '\\'
                            ? '?' : c;
    }
    while (len && node->desc[len - 1] == ' ') {
        len--;
    }
    node->desc[len] = '\0';
    if (!len) {
        g_snprintf(node->desc, sizeof(node->desc), "0x%016" PRIx64,
                   node->guid);
    }
    node->desc_known = true;
}

SmPort *sm_port_find(const Sm *sm, uint64_t guid)
{
    return g_hash_table_lookup(sm->port_by_guid, &guid);
}

bool sm_port_register(Sm *sm, SmPort *port, uint64_t guid)
{
    SmPort *other;

    if (port->known && port->guid == guid) {
        return true;
    }
    other = sm_port_find(sm, guid);
    if (!guid || port->known || other) {
        return false;
    }
    port->guid = guid;
    port->known = true;
    port->is_new = true;
    port->need_reregister = true;
    g_hash_table_insert(sm->port_by_guid, &port->guid, port);
    return true;
}

SmPort *sm_port_by_lid(const Sm *sm, uint16_t lid)
{
    return ib_lid_is_unicast(lid) ? sm->by_lid[lid] : NULL;
}

const SmPath *sm_port_path(const SmPort *port)
{
    return port->node->sw ? &port->node->path : &port->path;
}

bool sm_port_usable(const SmPort *port)
{
    return port->known && port->lid &&
           (port->node->sw || port->info.state == IB_PORT_ACTIVE);
}

static void set_owner(Sm *sm, uint16_t lid, uint8_t lmc, SmPort *port)
{
    for (unsigned i = 0; i < 1u << lmc; i++) {
        sm->by_lid[lid + i] = port;
    }
}

static void port_forget(Sm *sm, SmPort *port)
{
    if (port->lid) {
        set_owner(sm, port->lid, port->lmc, NULL);
    }
    g_hash_table_remove(sm->port_by_guid, &port->guid);
    if (port == sm->own) {
        sm->own = NULL;
    }
}

static void port_gone(Sm *sm, SmPort *port)
{
    bool told = !port->is_new;

    sm_logf(sm, SM_LOG_INFO, "port %s, GUID 0x%016" PRIx64 ", is gone",
            sm_port_name(port).s, port->guid);
    sm_eventf(sm, "{\"event\":\"sm_port_gone\",\"node\":\"%s\",\"port\":%u,"
              "\"guid\":\"0x%016" PRIx64 "\",\"lid\":%u}", port->node->desc,
              port->num, port->guid, port->lid);
    /* 65 answers to a 64, or to having been there when we became master. */
    if (told) {
        g_array_append_val(sm->gone, port->guid);
    }
    sm_mcast_port_gone(sm, port->guid);
    port_forget(sm, port);
    port->known = false;
    port->lid = 0;
    port->guid = 0;
    port->told_active = false;
    port->routed_to = NULL;
    port->trap_seen = false;
    port->pkeys_known = false;
}

void sm_db_drop_unseen(Sm *sm)
{
    unsigned kept = 0;

    for (unsigned i = 0; i < sm->nodes->len; i++) {
        SmNode *node = g_ptr_array_index(sm->nodes, i);
        bool node_gone = node->seen != sm->sweep;

        for (unsigned j = 0; j <= node->num_ports; j++) {
            SmPort *port = &node->ports[j];

            if (port->peer_seen != sm->sweep) {
                port->peer = NULL;
            }
            if (port->known && (node_gone || port->seen != sm->sweep)) {
                port_gone(sm, port);
            }
        }
        if (node_gone) {
            sm->graph_valid = sm->graph_valid && !node->sw;
            sm->num_switches -= node->sw != NULL;
            sm->num_ports -= node->num_ports + 1;
            g_hash_table_remove(sm->node_by_guid, &node->guid);
            node_free(node);
        } else {
            g_ptr_array_index(sm->nodes, kept++) = node;
        }
    }
    g_ptr_array_set_size(sm->nodes, kept);
}

static bool range_valid(unsigned lid, unsigned lmc)
{
    unsigned n = 1u << lmc;

    return lid >= FIRST_LID && lid + n <= SM_LIDS && !(lid & (n - 1));
}

/* No port that is there has any of the range. */
static bool range_free(const Sm *sm, unsigned lid, unsigned lmc)
{
    for (unsigned i = 0; i < 1u << lmc; i++) {
        if (sm->by_lid[lid + i]) {
            return false;
        }
    }
    return true;
}

/* Nobody but @guid (0: nobody at all) has reserved any of the range. */
static bool range_unreserved(const Sm *sm, unsigned lid, unsigned lmc,
                             uint64_t guid)
{
    for (unsigned i = 0; i < 1u << lmc; i++) {
        if (sm->lid_guid[lid + i] && sm->lid_guid[lid + i] != guid) {
            return false;
        }
    }
    return true;
}

static void unreserve(Sm *sm, uint64_t guid)
{
    gpointer value;
    unsigned lid, lmc;

    if (!g_hash_table_lookup_extended(sm->lid_of_guid, &guid, NULL,
                                      &value)) {
        return;
    }
    lid = GPOINTER_TO_UINT(value);
    lmc = sm->lid_lmc[lid];
    g_hash_table_remove(sm->lid_of_guid, &guid);
    for (unsigned i = 0; i < 1u << lmc; i++) {
        sm->lid_guid[lid + i] = 0;
    }
    sm->lid_lmc[lid] = 0;
    sm->lids_changed = true;
}

bool sm_lid_reserve(Sm *sm, uint64_t guid, uint16_t lid, uint8_t lmc)
{
    if (!guid || lmc > 7 || !range_valid(lid, lmc) ||
        !range_unreserved(sm, lid, lmc, 0) ||
        g_hash_table_contains(sm->lid_of_guid, &guid)) {
        return false;
    }
    for (unsigned i = 0; i < 1u << lmc; i++) {
        sm->lid_guid[lid + i] = guid;
    }
    sm->lid_lmc[lid] = lmc;
    g_hash_table_insert(sm->lid_of_guid, &sm->lid_guid[lid],
                        GUINT_TO_POINTER(lid));
    sm->lids_changed = true;
    return true;
}

static void give(Sm *sm, SmPort *port, unsigned lid, unsigned lmc)
{
    if (sm->lid_guid[lid] != port->guid || sm->lid_lmc[lid] != lmc) {
        unreserve(sm, port->guid);
        for (unsigned i = 0; i < 1u << lmc; i++) {
            uint64_t other = sm->lid_guid[lid + i];

            if (other) {
                sm_logf(sm, SM_LOG_WARN, "LID %u was kept for port GUID "
                        "0x%016" PRIx64 "; port GUID 0x%016" PRIx64
                        " has it now", lid + i, other, port->guid);
                unreserve(sm, other);
            }
        }
        sm_lid_reserve(sm, port->guid, lid, lmc);
    }
    port->lid = lid;
    port->lmc = lmc;
    port->route_dirty = true;
    set_owner(sm, lid, lmc, port);
}

static bool reserved_lid(const Sm *sm, const SmPort *port, unsigned *lid)
{
    gpointer value;

    if (!g_hash_table_lookup_extended(sm->lid_of_guid, &port->guid, NULL,
                                      &value)) {
        return false;
    }
    *lid = GPOINTER_TO_UINT(value);
    return true;
}

/* Base port 0 of a switch has one LID (14.2.5.6), whatever the LMC. */
static unsigned wanted_lmc(const Sm *sm, const SmPort *port)
{
    return port->node->sw ? 0 : sm->opts.lmc;
}

static bool claim_living(Sm *sm, SmPort *port, bool reserved_only)
{
    unsigned lid = port->info.lid, lmc = port->info.lmc;

    if (port->info.state < IB_PORT_ARMED || !range_valid(lid, lmc) ||
        !range_free(sm, lid, lmc) ||
        (reserved_only && sm->lid_guid[lid] != port->guid)) {
        return false;
    }
    give(sm, port, lid, lmc);
    return true;
}

static bool claim_reserved(Sm *sm, SmPort *port)
{
    unsigned lid, lmc;

    if (!reserved_lid(sm, port, &lid)) {
        return false;
    }
    lmc = sm->lid_lmc[lid];
    if (!range_free(sm, lid, lmc)) {
        return false;
    }
    give(sm, port, lid, lmc);
    return true;
}

static bool claim_reported(Sm *sm, SmPort *port)
{
    unsigned lid = port->info.lid, lmc = wanted_lmc(sm, port);

    if (!range_valid(lid, lmc) || !range_free(sm, lid, lmc) ||
        !range_unreserved(sm, lid, lmc, port->guid)) {
        return false;
    }
    give(sm, port, lid, lmc);
    return true;
}

/* Rule 5: where the fabric believes the SM to be. */
static bool claim_sm_lid(Sm *sm, GPtrArray *ports, SmPort *own)
{
    unsigned lmc = wanted_lmc(sm, own);
    unsigned best = 0, best_votes = 0;
    GHashTable *votes = g_hash_table_new(NULL, NULL);

    for (unsigned i = 0; i < ports->len; i++) {
        const SmPort *port = g_ptr_array_index(ports, i);
        gpointer lid = GUINT_TO_POINTER((guint)port->info.sm_lid);
        unsigned n;

        if (port->info.state != IB_PORT_ACTIVE) {
            continue;
        }
        n = GPOINTER_TO_UINT(g_hash_table_lookup(votes, lid)) + 1;
        g_hash_table_insert(votes, lid, GUINT_TO_POINTER(n));
        if (n > best_votes && range_valid(port->info.sm_lid, lmc) &&
            range_free(sm, port->info.sm_lid, lmc) &&
            range_unreserved(sm, port->info.sm_lid, lmc, own->guid)) {
            best = port->info.sm_lid;
            best_votes = n;
        }
    }
    g_hash_table_destroy(votes);
    if (!best) {
        return false;
    }
    give(sm, own, best, lmc);
    return true;
}

/* The lowest range from @from to @end that @away may have reserved or not. */
static bool claim_lowest(Sm *sm, SmPort *port, unsigned from, unsigned end,
                         bool away)
{
    unsigned lmc = wanted_lmc(sm, port), step = 1u << lmc;

    for (unsigned lid = (from + step - 1) & ~(step - 1); lid + step <= end;
         lid += step) {
        if (range_valid(lid, lmc) && range_free(sm, lid, lmc) &&
            (away || range_unreserved(sm, lid, lmc, 0))) {
            give(sm, port, lid, lmc);
            return true;
        }
    }
    return false;
}

/* LIDs that every switch's table has room for. */
static unsigned lids_with_room(const Sm *sm)
{
    unsigned end = SM_LIDS;

    for (unsigned i = 0; i < sm->switches->len; i++) {
        const SmNode *node = g_ptr_array_index(sm->switches, i);

        if (node->sw->info.lft_cap) {
            end = MIN(end, node->sw->info.lft_cap);
        }
    }
    return end;
}

/* How far the LIDs of whoever ruled before us went. */
static void note_lids_before(Sm *sm)
{
    for (unsigned i = 0; i < sm->switches->len; i++) {
        const SmNode *node = g_ptr_array_index(sm->switches, i);
        unsigned top = MIN(node->sw->info.lft_top, SM_LIDS - 1);

        if (node->ports[0].info.lid) {
            sm->top_lid = MAX(sm->top_lid, top);
        }
    }
    sm->lids_before = sm->top_lid;
}

static void tell_new_lid(Sm *sm, const SmPort *port)
{
    const SmPort *other = sm_port_by_lid(sm, port->info.lid);
    bool living = port->info.state >= IB_PORT_ARMED;

    sm_logf(sm, living ? SM_LOG_ERROR : SM_LOG_WARN,
            "LID %u of port %s/%u is %s: it gets LID %u", port->info.lid,
            port->node->desc, port->num,
            other ? "also that of another port" : "not its own", port->lid);
    sm_eventf(sm, "{\"event\":\"sm_lid_changed\",\"node\":\"%s\","
              "\"port\":%u,\"guid\":\"0x%016" PRIx64 "\",\"old\":%u,"
              "\"lid\":%u}", port->node->desc, port->num, port->guid,
              port->info.lid, port->lid);
}

void sm_assign_lids(Sm *sm)
{
    GPtrArray *ports = g_ptr_array_new();
    unsigned from, end = lids_with_room(sm);

    if (sm->takeover) {
        note_lids_before(sm);
    }
    from = sm->lids_before + 1;
    for (unsigned i = 0; i < sm->nodes->len; i++) {
        SmNode *node = g_ptr_array_index(sm->nodes, i);

        for (unsigned j = 0; j <= node->num_ports; j++) {
            SmPort *port = &node->ports[j];

            if (!port->known || port->info_seen != sm->sweep) {
                continue;
            }
            if (sm->takeover && port->lid) {
                set_owner(sm, port->lid, port->lmc, NULL);
                port->lid = 0;
            }
            if (!port->lid) {
                g_ptr_array_add(ports, port);
            }
        }
    }
    for (unsigned rule = 1; rule <= 6; rule++) {
        for (unsigned i = 0; i < ports->len; i++) {
            SmPort *port = g_ptr_array_index(ports, i);

            if (port->lid) {
                continue;
            }
            switch (rule) {
            case 1:
                claim_living(sm, port, true);
                break;
            case 2:
                claim_living(sm, port, false);
                break;
            case 3:
                claim_reserved(sm, port);
                break;
            case 4:
                claim_reported(sm, port);
                break;
            case 5:
                if (port == sm->own) {
                    claim_sm_lid(sm, ports, port);
                }
                break;
            case 6:
                if (claim_lowest(sm, port, from, end, false)) {
                    from = port->lid;     /* no need to look below again */
                } else if (!claim_lowest(sm, port, FIRST_LID, SM_LIDS,
                                         false) &&
                           !claim_lowest(sm, port, FIRST_LID, SM_LIDS,
                                         true)) {
                    if (!sm->lids_full_logged) {
                        sm_logf(sm, SM_LOG_ERROR, "all %u LIDs are in use: "
                                "port %s gets none", SM_LIDS - FIRST_LID,
                                sm_port_name(port).s);
                    }
                    sm->lids_full_logged = true;
                }
                break;
            }
        }
    }
    for (unsigned i = 0; i < ports->len; i++) {
        const SmPort *port = g_ptr_array_index(ports, i);

        if (port->lid && port->info.lid && port->info.lid != port->lid) {
            tell_new_lid(sm, port);
        }
    }
    g_ptr_array_free(ports, true);
}
