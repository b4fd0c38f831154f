/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Forwarding tables.
 *
 * Theory of operation: for every switch there are two copies of each table:
 * what the device has, as read or as it answered our last write, and what it
 * is to have.  Only blocks that differ are written.
 *
 * Unicast: a LID goes by a port from which the way is shortest (breadth-first
 * search from each switch); of several such ports the one that the table names
 * already is kept, else the one with the fewest LIDs.  So a table that works
 * is left alone, whoever wrote it.  The hops table and all LIDs are computed
 * anew only when the switches or the cables between them have changed; a host
 * that comes or moves costs its own LID only.  The entries of a host that left
 * stay until then: its LID stays its own and nothing can answer there.
 * Shortest paths may deadlock in a lossless fabric with rings of switches
 * (credit loops); see docs/sm.md.
 *
 * Multicast: one spanning tree over the switches of each connected part,
 * rooted at the lowest GUID; a group has the part of it that joins its
 * members.  Senders that do not receive are joined without their own port.
 * Rows that a former SM wrote for groups we do not know stay SM_MCAST_GRACE,
 * until their members had time to join again.
 */
#include <string.h>

#include "sm/internal.h"

#define LFT_GROW(lid) (((lid) / SM_LFT_BLOCK + 1) * SM_LFT_BLOCK)

SmSwitch *sm_switch_new(unsigned num_ports)
{
    SmSwitch *sw = g_new0(SmSwitch, 1);

    sw->fresh = true;
    sw->positions = num_ports / SM_MFT_POSITION + 1;
    sw->load = g_new0(uint32_t, num_ports + 1);
    return sw;
}

void sm_switch_free(SmSwitch *sw)
{
    if (sw) {
        g_free(sw->lft_dev);
        g_free(sw->lft_want);
        g_free(sw->mft_dev);
        g_free(sw->mft_want);
        g_free(sw->load);
        g_free(sw);
    }
}

static void lft_grow(SmSwitch *sw, unsigned lid)
{
    unsigned len = LFT_GROW(lid);

    if (len > sw->lft_len) {
        sw->lft_dev = g_realloc(sw->lft_dev, len);
        sw->lft_want = g_realloc(sw->lft_want, len);
        memset(sw->lft_dev + sw->lft_len, SM_NO_ROUTE, len - sw->lft_len);
        memset(sw->lft_want + sw->lft_len, SM_NO_ROUTE, len - sw->lft_len);
        sw->lft_len = len;
    }
}

static void mft_grow(SmSwitch *sw, unsigned row)
{
    unsigned rows = (row / SM_MFT_BLOCK + 1) * SM_MFT_BLOCK;
    size_t old = (size_t)sw->mft_rows * sw->positions;
    size_t len = (size_t)rows * sw->positions;

    if (rows > sw->mft_rows) {
        sw->mft_dev = g_renew(uint16_t, sw->mft_dev, len);
        sw->mft_want = g_renew(uint16_t, sw->mft_want, len);
        memset(sw->mft_dev + old, 0, (len - old) * sizeof(uint16_t));
        memset(sw->mft_want + old, 0, (len - old) * sizeof(uint16_t));
        sw->mft_rows = rows;
    }
}

static uint16_t *mft_at(SmSwitch *sw, uint16_t *table, unsigned row,
                        unsigned position)
{
    return &table[(size_t)row * sw->positions + position];
}

/* Rows up to MulticastFDBTop, as many as we would ever use. */
static unsigned mft_rows_used(const SmSwitch *sw)
{
    return sw->info.mft_top < IB_LID_MCAST_FIRST ? 0
           : MIN(sw->info.mft_top - IB_LID_MCAST_FIRST + 1u,
                 MIN(sw->info.mft_cap, SM_MAX_GROUPS));
}

uint16_t sm_mft_entry(const SmSwitch *sw, unsigned row, unsigned position)
{
    return sw->mft_dev[(size_t)row * sw->positions + position];
}

/* Reading */

/* What it has is not known any more; said once until it is read again. */
static void tables_failed(Sm *sm, SmNode *node, const char *what)
{
    sm->errors = true;
    if (node->sw->tables_known) {
        sm_logf(sm, SM_LOG_WARN, "switch %s: its forwarding tables cannot "
                "be %s", node->desc, what);
    }
    node->sw->tables_known = false;
}

static void lft_read(Sm *sm, SmRequest *request, const IbSmp *smp,
                     const uint8_t *data)
{
    SmSwitch *sw = request->node->sw;
    unsigned first = request->mod * SM_LFT_BLOCK;

    if (!smp) {
        tables_failed(sm, request->node, "read");
        return;
    }
    lft_grow(sw, first);
    memcpy(sw->lft_dev + first, data, SM_LFT_BLOCK);
    if (sw->fresh) {
        memcpy(sw->lft_want + first, data, SM_LFT_BLOCK);
    }
}

static void mft_read(Sm *sm, SmRequest *request, const IbSmp *smp,
                     const uint8_t *data)
{
    SmSwitch *sw = request->node->sw;
    unsigned first = (request->mod & 0x1FF) * SM_MFT_BLOCK;
    unsigned position = request->mod >> 28;

    if (!smp) {
        tables_failed(sm, request->node, "read");
        return;
    }
    mft_grow(sw, first);
    for (unsigned i = 0; i < SM_MFT_BLOCK; i++) {
        *mft_at(sw, sw->mft_dev, first + i, position) =
            ib_get16(data + 2 * i);
    }
}

void sm_switch_blank(SmNode *node)
{
    SmSwitch *sw = node->sw;

    sw->tables_known = true;
    sw->rewrite = true;
    if (sw->fresh) {
        sw->wanted = sw->info;
    }
    if (sw->lft_len) {
        memset(sw->lft_dev, SM_NO_ROUTE, sw->lft_len);
    }
    if (sw->mft_rows) {
        memset(sw->mft_dev, 0, (size_t)sw->mft_rows * sw->positions *
               sizeof(uint16_t));
    }
}

void sm_switch_read_tables(Sm *sm, SmNode *node)
{
    SmSwitch *sw = node->sw;
    unsigned top = MIN(sw->info.lft_top, SM_LIDS - 1);
    unsigned rows = mft_rows_used(sw);

    sm_switch_blank(node);
    sw->rewrite = false;                  /* unless a read fails */
    if (sm->queued > SM_MAX_QUEUED) {
        tables_failed(sm, node, "read");            /* in another sweep */
        return;
    }
    if (top) {
        for (unsigned block = 0; block <= top / SM_LFT_BLOCK; block++) {
            sm_request(sm, &node->path, IB_METHOD_GET, IB_SM_LINEAR_FT,
                       block, lft_read)->node = node;
        }
    }
    for (unsigned block = 0; block * SM_MFT_BLOCK < rows; block++) {
        for (unsigned i = 0; i < sw->positions; i++) {
            sm_request(sm, &node->path, IB_METHOD_GET, IB_SM_MCAST_FT,
                       i << 28 | block, mft_read)->node = node;
        }
    }
}

void sm_route_forget(Sm *sm)
{
    for (unsigned i = 0; i < sm->nodes->len; i++) {
        SmNode *node = g_ptr_array_index(sm->nodes, i);

        if (node->sw) {
            node->sw->tables_known = false;
            node->sw->fresh = true;
        }
    }
    sm->graph_valid = false;
}

/* The graph of switches */

static SmNode *switch_at(const Sm *sm, unsigned index)
{
    return g_ptr_array_index(sm->switches, index);
}

/* Switch behind a port of a switch, if it takes part in routing. */
static SmNode *next_switch(const SmPort *port)
{
    SmNode *node = port->peer ? port->peer->node : NULL;

    return node && node->sw ? node : NULL;
}

void sm_route_index(Sm *sm)
{
    g_ptr_array_set_size(sm->switches, 0);
    for (unsigned i = 0; i < sm->nodes->len; i++) {
        SmNode *node = g_ptr_array_index(sm->nodes, i);

        if (node->sw) {
            node->sw->index = sm->switches->len;
            g_ptr_array_add(sm->switches, node);
        }
    }
}

static GByteArray *describe_graph(const Sm *sm)
{
    GByteArray *graph = g_byte_array_new();

    for (unsigned i = 0; i < sm->switches->len; i++) {
        const SmNode *node = switch_at(sm, i);

        g_byte_array_append(graph, (const guint8 *)&node->guid,
                            sizeof(node->guid));
        for (unsigned j = 1; j <= node->num_ports; j++) {
            const SmNode *next = next_switch(&node->ports[j]);
            uint8_t link[6];

            if (next) {
                link[0] = j;
                link[1] = node->ports[j].peer->num;
                ib_put32(link + 2, next->sw->index);
                g_byte_array_append(graph, link, sizeof(link));
            }
        }
    }
    return graph;
}

static uint8_t *hops_row(const Sm *sm, unsigned to)
{
    return sm->hops + (size_t)to * sm->switches->len;
}

/* Breadth-first from switch @to; fills its row of the hops table. */
static void measure(Sm *sm, unsigned to, unsigned *queue)
{
    uint8_t *hops = hops_row(sm, to);
    unsigned head = 0, tail = 0;

    memset(hops, SM_NO_PATH, sm->switches->len);
    hops[to] = 0;
    queue[tail++] = to;
    while (head < tail) {
        const SmNode *node = switch_at(sm, queue[head++]);
        unsigned here = hops[node->sw->index];

        if (here == SM_NO_PATH - 1) {
            continue;
        }
        for (unsigned j = 1; j <= node->num_ports; j++) {
            const SmNode *next = next_switch(&node->ports[j]);

            if (next && hops[next->sw->index] == SM_NO_PATH) {
                hops[next->sw->index] = here + 1;
                queue[tail++] = next->sw->index;
            }
        }
    }
}

/* Spanning trees for multicast: sm->tree in order, sw->up. */
static void grow_trees(Sm *sm)
{
    unsigned n = sm->switches->len, head = 0, tail = 0;
    bool *in_tree = g_new0(bool, n + 1);

    sm->tree = g_renew(unsigned, sm->tree, n + 1);
    while (tail < n) {
        SmNode *root = NULL;

        for (unsigned i = 0; i < n; i++) {
            SmNode *node = switch_at(sm, i);

            if (!in_tree[i] && (!root || node->guid < root->guid)) {
                root = node;
            }
        }
        root->sw->up = 0;
        in_tree[root->sw->index] = true;
        sm->tree[tail++] = root->sw->index;
        while (head < tail) {
            SmNode *node = switch_at(sm, sm->tree[head++]);

            for (unsigned j = 1; j <= node->num_ports; j++) {
                SmNode *next = next_switch(&node->ports[j]);

                if (next && !in_tree[next->sw->index]) {
                    in_tree[next->sw->index] = true;
                    next->sw->up = node->ports[j].peer->num;
                    sm->tree[tail++] = next->sw->index;
                }
            }
        }
    }
    g_free(in_tree);
}

const SmPort *sm_attachment(const SmPort *port)
{
    if (port->node->sw) {
        return port;
    }
    return port->peer && next_switch(port) ? port->peer : NULL;
}

/* Unicast */

static bool leads_to(const Sm *sm, const SmNode *node, unsigned port,
                     const uint8_t *hops)
{
    const SmNode *next;

    if (port == 0 || port > node->num_ports) {
        return false;
    }
    next = next_switch(&node->ports[port]);
    return next && hops[next->sw->index] != SM_NO_PATH &&
           hops[next->sw->index] + 1 == hops[node->sw->index];
}

static uint8_t best_port(const Sm *sm, const SmNode *node,
                         const uint8_t *hops)
{
    unsigned best = SM_NO_ROUTE;

    for (unsigned j = 1; j <= node->num_ports; j++) {
        if (leads_to(sm, node, j, hops) &&
            (best == SM_NO_ROUTE ||
             node->sw->load[j] < node->sw->load[best])) {
            best = j;
        }
    }
    return best;
}

/*
 * One LID at one switch.  @assign false: only what needs no choice or is
 * there already; true if that settled it.
 */
static bool route_lid(Sm *sm, SmNode *node, unsigned lid,
                      const SmPort *attachment, bool assign)
{
    SmSwitch *sw = node->sw;
    const uint8_t *hops;
    uint8_t *entry;

    if (lid >= sw->info.lft_cap) {
        if (!sw->cap_logged && sw->info.lft_cap) {
            sm_logf(sm, SM_LOG_ERROR, "switch %s has room for LIDs below %u: "
                    "LID %u cannot be reached through it", node->desc,
                    sw->info.lft_cap, lid);
            sw->cap_logged = true;
        }
        return true;
    }
    lft_grow(sw, lid);
    entry = &sw->lft_want[lid];
    if (attachment->node == node) {
        *entry = attachment->num;
        return true;
    }
    hops = hops_row(sm, attachment->node->sw->index);
    if (hops[sw->index] == SM_NO_PATH) {
        *entry = SM_NO_ROUTE;
        return true;
    }
    if (!leads_to(sm, node, *entry, hops)) {
        if (!assign) {
            return false;
        }
        *entry = best_port(sm, node, hops);
    }
    if (*entry != SM_NO_ROUTE) {
        sw->load[*entry]++;
    }
    return true;
}

static void route_switch(Sm *sm, SmNode *node)
{
    SmSwitch *sw = node->sw;
    GArray *todo = g_array_new(false, false, sizeof(unsigned));

    memset(sw->load, 0, (node->num_ports + 1) * sizeof(*sw->load));
    for (unsigned lid = 1; lid <= sm->top_lid || lid < sw->lft_len; lid++) {
        const SmPort *port = sm->by_lid[lid];
        const SmPort *attachment = port ? sm_attachment(port) : NULL;

        if (!attachment) {
            if (lid < sw->lft_len) {
                sw->lft_want[lid] = SM_NO_ROUTE;
            }
        } else if (!route_lid(sm, node, lid, attachment, false)) {
            g_array_append_val(todo, lid);
        }
    }
    for (unsigned i = 0; i < todo->len; i++) {
        unsigned lid = g_array_index(todo, unsigned, i);

        route_lid(sm, node, lid, sm_attachment(sm->by_lid[lid]), true);
    }
    g_array_free(todo, true);
    sw->fresh = false;
}

static void route_port(Sm *sm, SmPort *port, const SmPort *attachment)
{
    for (unsigned i = 0; i < sm->switches->len; i++) {
        for (unsigned j = 0; j < 1u << port->lmc; j++) {
            route_lid(sm, switch_at(sm, i), port->lid + j, attachment, true);
        }
    }
}

void sm_route_all(Sm *sm)
{
    GByteArray *graph = describe_graph(sm);
    bool changed = !sm->graph_valid || graph->len != sm->graph->len ||
                   (graph->len && memcmp(graph->data, sm->graph->data,
                                         graph->len) != 0);
    size_t n = sm->switches->len;

    g_byte_array_free(sm->graph, true);
    sm->graph = graph;
    sm->graph_valid = true;
    if (changed) {
        unsigned *queue = g_new(unsigned, n + 1);

        sm->hops = g_realloc(sm->hops, n * n + 1);
        for (unsigned i = 0; i < n; i++) {
            measure(sm, i, queue);
        }
        g_free(queue);
        grow_trees(sm);
        sm_logf(sm, SM_LOG_DEBUG, "routes for %zu switches anew", n);
    }
    for (unsigned i = 0; i < sm->nodes->len; i++) {
        SmNode *node = g_ptr_array_index(sm->nodes, i);

        for (unsigned j = 0; j <= node->num_ports; j++) {
            SmPort *port = &node->ports[j];
            const SmPort *attachment;

            if (!port->known || !port->lid) {
                continue;
            }
            sm->top_lid = MAX(sm->top_lid, port->lid + (1u << port->lmc) - 1);
            attachment = sm_attachment(port);
            if (!changed && attachment &&
                (port->route_dirty || port->routed_to != attachment)) {
                route_port(sm, port, attachment);
            }
            port->route_dirty = false;
            port->routed_to = attachment;
        }
    }
    for (unsigned i = 0; changed && i < n; i++) {
        route_switch(sm, switch_at(sm, i));
    }
}

static void lft_written(Sm *sm, SmRequest *request, const IbSmp *smp,
                        const uint8_t *data)
{
    SmSwitch *sw = request->node->sw;

    if (!smp) {
        /* It may have arrived, or not. */
        tables_failed(sm, request->node, "written");
        return;
    }
    memcpy(sw->lft_dev + request->mod * SM_LFT_BLOCK, request->data,
           SM_LFT_BLOCK);
}

static void lft_write_block(Sm *sm, SmNode *node, unsigned block)
{
    SmRequest *set = sm_request(sm, &node->path, IB_METHOD_SET,
                                IB_SM_LINEAR_FT, block, lft_written);

    set->node = node;
    memcpy(set->data, node->sw->lft_want + block * SM_LFT_BLOCK,
           SM_LFT_BLOCK);
    sm->stats.lft_blocks_written++;
}

void sm_route_write(Sm *sm)
{
    for (unsigned i = 0; i < sm->switches->len; i++) {
        SmNode *node = switch_at(sm, i);
        SmSwitch *sw = node->sw;

        if (!sw->tables_known) {
            continue;                     /* cannot be asked: next sweep */
        }
        for (unsigned first = 0; first < sw->lft_len;
             first += SM_LFT_BLOCK) {
            if (sw->rewrite ||
                memcmp(sw->lft_dev + first, sw->lft_want + first,
                       SM_LFT_BLOCK) != 0) {
                lft_write_block(sm, node, first / SM_LFT_BLOCK);
            }
        }
        sw->rewrite = false;
    }
}

/* Multicast */

unsigned sm_mcast_capacity(const Sm *sm)
{
    unsigned capacity = SM_MAX_GROUPS;

    for (unsigned i = 0; i < sm->switches->len; i++) {
        capacity = MIN(capacity, switch_at(sm, i)->sw->info.mft_cap);
    }
    return capacity;
}

static void set_bit(SmSwitch *sw, unsigned row, unsigned port)
{
    *mft_at(sw, sw->mft_want, row, port / SM_MFT_POSITION) |=
        1u << port % SM_MFT_POSITION;
}

static void clear_bit(SmSwitch *sw, unsigned row, unsigned port)
{
    *mft_at(sw, sw->mft_want, row, port / SM_MFT_POSITION) &=
        ~(1u << port % SM_MFT_POSITION);
}

/* What a switch has to do with the group at hand. */
typedef struct Branch {
    bool member;             /* one of its own ports is */
    unsigned children;       /* switches below with members */
    unsigned child;          /* the last of them */
    bool used;
} Branch;

static void route_group(Sm *sm, const SmGroup *group, Branch *branches)
{
    unsigned n = sm->switches->len;
    unsigned row = group->rec.mlid - IB_LID_MCAST_FIRST;

    memset(branches, 0, n * sizeof(*branches));
    for (unsigned i = 0; i < n; i++) {
        SmSwitch *sw = switch_at(sm, i)->sw;

        mft_grow(sw, row);
        memset(mft_at(sw, sw->mft_want, row, 0), 0,
               sw->positions * sizeof(uint16_t));
    }
    for (unsigned i = 0; i < group->members->len; i++) {
        const SmMember *member = &g_array_index(group->members, SmMember, i);
        const SmPort *port = sm_port_find(sm, member->guid);
        const SmPort *at = port ? sm_attachment(port) : NULL;

        if (!at || at->node->sw->index >= n) {
            continue;
        }
        branches[at->node->sw->index].member = true;
        branches[at->node->sw->index].used = true;
        if (member->join_state & (SM_JOIN_FULL | SM_JOIN_NON)) {
            set_bit(at->node->sw, row, at->num);
        }
    }
    /* From the leaves up: join what is used to its tree. */
    for (unsigned i = n; i-- > 0;) {
        SmNode *node = switch_at(sm, sm->tree[i]);
        Branch *branch = &branches[node->sw->index];
        SmPort *up;

        if (!branch->used || !node->sw->up) {
            continue;
        }
        up = &node->ports[node->sw->up];
        set_bit(node->sw, row, up->num);
        set_bit(up->peer->node->sw, row, up->peer->num);
        branch = &branches[up->peer->node->sw->index];
        branch->used = true;
        branch->children++;
        branch->child = node->sw->index;
    }
    /* From the root down: a stem that leads to one branch only is cut. */
    for (unsigned i = 0; i < n; i++) {
        SmNode *node = switch_at(sm, sm->tree[i]);
        Branch *branch = &branches[node->sw->index];

        if (node->sw->up || !branch->used) {
            continue;
        }
        while (!branch->member && branch->children == 1) {
            SmNode *below = switch_at(sm, branch->child);
            SmPort *up = &below->ports[below->sw->up];

            clear_bit(below->sw, row, up->num);
            clear_bit(node->sw, row, up->peer->num);
            node = below;
            branch = &branches[node->sw->index];
        }
    }
}

void sm_mcast_route(Sm *sm)
{
    unsigned n = sm->switches->len;
    Branch *branches;

    if (!sm->graph_valid || !n) {
        return;
    }
    branches = g_new(Branch, n);
    for (unsigned i = 0; i < n; i++) {
        SmSwitch *sw = switch_at(sm, i)->sw;
        size_t len = (size_t)sw->mft_rows * sw->positions *
                     sizeof(uint16_t);

        if (!len) {
            continue;
        }
        if (sm->mcast_grace_over) {
            memset(sw->mft_want, 0, len);
        } else {
            memcpy(sw->mft_want, sw->mft_dev, len);
        }
    }
    for (unsigned i = 0; i < sm->groups->len; i++) {
        route_group(sm, g_ptr_array_index(sm->groups, i), branches);
    }
    g_free(branches);
}

static void mft_written(Sm *sm, SmRequest *request, const IbSmp *smp,
                        const uint8_t *data)
{
    SmSwitch *sw = request->node->sw;
    unsigned first = (request->mod & 0x1FF) * SM_MFT_BLOCK;

    if (!smp) {
        tables_failed(sm, request->node, "written");
        sm_want_heavy(sm, "a multicast table could not be written",
                      SM_RESWEEP_FIRST);
        return;
    }
    for (unsigned i = 0; i < SM_MFT_BLOCK; i++) {
        *mft_at(sw, sw->mft_dev, first + i, request->mod >> 28) =
            ib_get16(request->data + 2 * i);
    }
}

/* Writes it if it differs. */
static void mft_write_block(Sm *sm, SmNode *node, unsigned block,
                            unsigned position)
{
    SmSwitch *sw = node->sw;
    uint8_t data[IB_SMP_DATA_LEN];
    bool differs = false;
    SmRequest *set;

    for (unsigned i = 0; i < SM_MFT_BLOCK; i++) {
        unsigned row = block * SM_MFT_BLOCK + i;
        uint16_t want = *mft_at(sw, sw->mft_want, row, position);

        differs |= want != *mft_at(sw, sw->mft_dev, row, position);
        ib_put16(data + 2 * i, want);
    }
    if (!differs) {
        return;
    }
    set = sm_request(sm, &node->path, IB_METHOD_SET, IB_SM_MCAST_FT,
                     position << 28 | block, mft_written);
    set->node = node;
    memcpy(set->data, data, sizeof(data));
    sm->stats.mft_blocks_written++;
}

static void tops_written(Sm *sm, SmRequest *request, const IbSmp *smp,
                         const uint8_t *data)
{
    SmSwitch *sw = request->node->sw;

    if (!smp) {
        sm->errors = true;
        sm_logf(sm, SM_LOG_WARN, "switch %s: SwitchInfo could not be "
                "written", request->node->desc);
        return;
    }
    ib_switch_info_unpack(&sw->info, data);
}

/* How far the tables reach: what is behind was never written. */
static void write_tops(Sm *sm, SmNode *node, unsigned mft_top)
{
    SmSwitch *sw = node->sw;
    SmRequest *set;

    sw->wanted.port_state_change = 0;     /* 1 would clear it */
    sw->wanted.lft_top = MIN(sm->top_lid, sw->info.lft_cap - 1);
    if (mft_top >= IB_LID_MCAST_FIRST) {
        sw->wanted.mft_top = MAX(sw->wanted.mft_top, mft_top);
    }
    if (sm_switch_info_same(&sw->wanted, &sw->info)) {
        return;
    }
    set = sm_request(sm, &node->path, IB_METHOD_SET, IB_SM_SWITCH_INFO, 0,
                     tops_written);
    set->node = node;
    ib_switch_info_pack(set->data, &sw->wanted);
}

void sm_mcast_write(Sm *sm)
{
    unsigned mft_top = 0;

    for (unsigned i = 0; i < sm->groups->len; i++) {
        SmGroup *group = g_ptr_array_index(sm->groups, i);

        mft_top = MAX(mft_top, group->rec.mlid);
    }
    for (unsigned i = 0; i < sm->switches->len; i++) {
        SmNode *node = switch_at(sm, i);
        SmSwitch *sw = node->sw;

        if (!sw->tables_known || !sw->info.lft_cap) {
            continue;
        }
        for (unsigned block = 0; block < sw->mft_rows / SM_MFT_BLOCK;
             block++) {
            for (unsigned j = 0; j < sw->positions; j++) {
                mft_write_block(sm, node, block, j);
            }
        }
        write_tops(sm, node, mft_top);
    }
}

/* Reading back, see verify.c */

static void lft_verified(Sm *sm, SmRequest *request, const IbSmp *smp,
                         const uint8_t *data)
{
    SmNode *node = request->node;
    SmSwitch *sw = node->sw;
    uint8_t *have = sw->lft_dev + request->mod * SM_LFT_BLOCK;

    if (!smp) {
        tables_failed(sm, node, "read");
        return;
    }
    for (unsigned i = 0; i < SM_LFT_BLOCK; i++) {
        if (have[i] != data[i]) {
            g_autofree char *item = g_strdup_printf(
                "entry of LID %u in its forwarding table",
                request->mod * SM_LFT_BLOCK + i);

            if (sw->told_sweep != sm->sweep) {
                sm_tell_changed(sm, &node->ports[0], item, data[i], have[i]);
            }
            sw->told_sweep = sm->sweep;
            memcpy(have, data, SM_LFT_BLOCK);
            lft_write_block(sm, node, request->mod);
            return;
        }
    }
}

static void mft_verified(Sm *sm, SmRequest *request, const IbSmp *smp,
                         const uint8_t *data)
{
    SmNode *node = request->node;
    SmSwitch *sw = node->sw;
    unsigned block = request->mod & 0x1FF, position = request->mod >> 28;

    if (!smp) {
        tables_failed(sm, node, "read");
        return;
    }
    mft_grow(sw, block * SM_MFT_BLOCK);
    for (unsigned i = 0; i < SM_MFT_BLOCK; i++) {
        unsigned row = block * SM_MFT_BLOCK + i;
        uint16_t *have = mft_at(sw, sw->mft_dev, row, position);
        uint16_t found = ib_get16(data + 2 * i);

        if (*have != found && sw->told_sweep != sm->sweep) {
            g_autofree char *item = g_strdup_printf(
                "port mask %u of MLID 0x%04x in its forwarding table",
                position, IB_LID_MCAST_FIRST + row);

            sm_tell_changed(sm, &node->ports[0], item, found, *have);
            sw->told_sweep = sm->sweep;
        }
        *have = found;
    }
    mft_write_block(sm, node, block, position);
}

unsigned sm_switch_verify(Sm *sm, SmNode *node)
{
    SmSwitch *sw = node->sw;
    unsigned rows = MAX(sw->mft_rows, mft_rows_used(sw));
    unsigned asked = 0;

    if (!sw->tables_known) {
        return 0;
    }
    for (unsigned i = 0; i < sw->lft_len / SM_LFT_BLOCK; i++, asked++) {
        sm_request(sm, &node->path, IB_METHOD_GET, IB_SM_LINEAR_FT, i,
                   lft_verified)->node = node;
    }
    for (unsigned i = 0; i * SM_MFT_BLOCK < rows; i++) {
        for (unsigned j = 0; j < sw->positions; j++, asked++) {
            sm_request(sm, &node->path, IB_METHOD_GET, IB_SM_MCAST_FT,
                       j << 28 | i, mft_verified)->node = node;
        }
    }
    return asked;
}
