/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Is it still as we wrote it?
 *
 * Theory of operation: without an M_Key any node may write to any agent, and
 * nothing tells the SM of it.  So a heavy sweep reads back what the SM has
 * set, writes again what differs and says so, in a line that names the node,
 * the item, what was found and what it has to be:
 *
 *   PortInfo, SwitchInfo   are read by the sweep anyway; sweep.c and route.c
 *                          compare them with what was set
 *   forwarding tables      are read in the sweep's last phase, VERIFY, when
 *                          links and reports are done: nobody waits for it
 *   P_Key tables           are read there too, for P_KeyTableRecord; the SM
 *                          sets none, so what others write stays, and is told
 *
 * VERIFY asks a few nodes at a time, ends early when the next heavy sweep is
 * due, and goes on there with the node after the last one.
 */
#include <string.h>

#include "sm/internal.h"

#define PKEYS_PER_BLOCK (IB_SMP_DATA_LEN / 2)

void sm_tell_changed(Sm *sm, const SmPort *port, const char *item,
                     uint64_t found, uint64_t wanted)
{
    sm->stats.mended++;
    sm_logf(sm, SM_LOG_WARN, "port %s: %s is %" PRIu64 " instead of %" PRIu64
            ": set again", sm_port_name(port).s, item, found, wanted);
}

bool sm_switch_info_same(const IbSwitchInfo *a, const IbSwitchInfo *b)
{
    return a->lft_top == b->lft_top && a->mft_top == b->mft_top &&
           a->default_port == b->default_port &&
           a->default_mcast_primary == b->default_mcast_primary &&
           a->default_mcast_not_primary == b->default_mcast_not_primary &&
           a->life_time_value == b->life_time_value;
}

void sm_switch_info_check(Sm *sm, SmNode *node)
{
    const IbSwitchInfo *have = &node->sw->info, *want = &node->sw->wanted;
    const struct {
        const char *item;
        unsigned found, wanted;
    } items[] = {
        { "LinearFDBTop", have->lft_top, want->lft_top },
        { "MulticastFDBTop", have->mft_top, want->mft_top },
        { "DefaultPort", have->default_port, want->default_port },
        { "DefaultMulticastPrimaryPort", have->default_mcast_primary,
          want->default_mcast_primary },
        { "DefaultMulticastNotPrimaryPort", have->default_mcast_not_primary,
          want->default_mcast_not_primary },
        { "LifeTimeValue", have->life_time_value, want->life_time_value },
    };

    for (size_t i = 0; node->sw->tables_known && i < G_N_ELEMENTS(items);
         i++) {
        if (items[i].found != items[i].wanted) {
            sm_tell_changed(sm, &node->ports[0], items[i].item,
                            items[i].found, items[i].wanted);
        }
    }
}

static void pkeys_read(Sm *sm, SmRequest *request, const IbSmp *smp,
                       const uint8_t *data)
{
    SmPort *port = request->port;

    if (!smp) {
        port->no_pkeys = true;            /* not once more for nothing */
        return;
    }
    for (unsigned i = 0; port->pkeys_known && i < PKEYS_PER_BLOCK; i++) {
        uint16_t found = ib_get16(data + 2 * i);
        uint16_t was = ib_get16(port->pkeys + 2 * i);

        if (found != was) {
            sm_logf(sm, SM_LOG_WARN, "port %s: entry %u of its P_Key table "
                    "is 0x%04x, was 0x%04x: left so", sm_port_name(port).s,
                    i, found, was);
            break;
        }
    }
    memcpy(port->pkeys, data, sizeof(port->pkeys));
    port->pkeys_known = true;
}

static unsigned verify_node(Sm *sm, SmNode *node)
{
    unsigned asked = node->sw ? sm_switch_verify(sm, node) : 0;

    for (unsigned i = 0; i <= node->num_ports; i++) {
        SmPort *port = &node->ports[i];

        if (port->known && port->info_seen == sm->sweep &&
            node->info.partition_cap && !port->no_pkeys) {
            sm_request(sm, sm_port_path(port), IB_METHOD_GET,
                       IB_SM_PKEY_TABLE, 0, pkeys_read)->port = port;
            asked++;
        }
    }
    return asked;
}

/* So many nodes that the window is full; false: none is left. */
static bool verify_some(Sm *sm)
{
    unsigned asked = 0;

    while (sm->verify_left && asked < sm->opts.window) {
        sm->verify_left--;
        sm->verify_next = (sm->verify_next + 1) % sm->nodes->len;
        asked += verify_node(sm, g_ptr_array_index(sm->nodes,
                                                   sm->verify_next));
    }
    return asked != 0;
}

void sm_verify_start(Sm *sm)
{
    sm->phase = SM_PHASE_VERIFY;
    sm->verify_left = sm->nodes->len;
    verify_some(sm);
}

bool sm_verify_more(Sm *sm)
{
    return !(sm->heavy_wanted &&
             ib_clock_now(sm->clock) >= sm->heavy_not_before) &&
           verify_some(sm);
}
