/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * PathRecord (15.2.5.16).
 *
 * Theory of operation: the request names source and destination by GID or LID
 * or leaves them open; every pair of usable ports that fits is walked through
 * the forwarding tables as the switches have them, so that a path in an answer
 * is a path that works, with the smallest MTU and rate met on the way.  Ports
 * that are not Active, or between which the tables do not lead, have no path:
 * who asks right after a cable came back is told so and asks again.
 *
 * A pair has one path for each LID of the longer of both LMC ranges, at most
 * NumbPath; Preference counts them up from 0.  Get takes the first.
 */
#include <string.h>

#include "sm/internal.h"

/* Component mask (table 205). */
enum {
    C_SERVICE_ID = 3 << 0, C_DGID = 1 << 2, C_SGID = 1 << 3, C_DLID = 1 << 4,
    C_SLID = 1 << 5, C_RAW = 1 << 6, C_FLOW = 1 << 8, C_HOP = 1 << 9,
    C_TCLASS = 1 << 10, C_NUMB_PATH = 1 << 12, C_PKEY = 1 << 13,
    C_QOS = 1 << 14, C_SL = 1 << 15,
    C_MTU = 3 << 16, C_RATE = 3 << 18, C_LIFE = 3 << 20,
};

#define NUMB_PATH_MAX 127u
/* A way of so many hops, there and back, is as much work as a record. */
#define HOPS_PER_RECORD 4u

static bool wants(uint64_t mask, unsigned component)
{
    return (mask & component) == component;
}

/* IBTA 14.2.5.6, 15.2.5.16: width and speed of a link to the rate code. */
uint8_t sm_port_rate(const IbPortInfo *info)
{
    static const struct {
        uint8_t width, speed, rate;
    } rates[] = {
        { 1, 1, 2 }, { 1, 2, 5 }, { 1, 4, 3 },
        { 2, 1, 3 }, { 2, 2, 6 }, { 2, 4, 7 },
        { 4, 1, 6 }, { 4, 2, 7 }, { 4, 4, 9 },
        { 8, 1, 4 }, { 8, 2, 8 }, { 8, 4, 10 },
    };

    for (size_t i = 0; i < G_N_ELEMENTS(rates); i++) {
        if (rates[i].width == info->width_active &&
            rates[i].speed == info->speed_active) {
            return rates[i].rate;
        }
    }
    return 2;                             /* 2.5 Gb/s: the least there is */
}

/* Rate codes are not in order of speed. */
unsigned sm_rate_mbps(unsigned rate)
{
    static const unsigned mbps[] = {
        [2] = 2500, [3] = 10000, [4] = 30000, [5] = 5000, [6] = 20000,
        [7] = 40000, [8] = 60000, [9] = 80000, [10] = 120000,
        [11] = 14000, [12] = 56000, [13] = 112000, [14] = 168000,
        [15] = 25000, [16] = 100000, [17] = 200000, [18] = 300000,
    };

    return rate < G_N_ELEMENTS(mbps) ? mbps[rate] : 0;
}

bool sm_selector_ok(unsigned selector, unsigned wanted, unsigned have)
{
    switch (selector) {
    case 0:
        return have > wanted;
    case 1:
        return have < wanted;
    case 2:
        return have == wanted;
    default:
        return true;                      /* the best there is */
    }
}

static void narrow(SmRoute *route, const SmPort *port)
{
    const IbPortInfo *info = &port->info;
    uint8_t mtu = info->neighbor_mtu;
    uint8_t rate = sm_port_rate(info);

    if (!mtu || (port->node->sw && port->num == 0)) {
        mtu = info->mtu_cap;
    }
    route->mtu = MIN(route->mtu, mtu);
    if (sm_rate_mbps(rate) < sm_rate_mbps(route->rate)) {
        route->rate = rate;
    }
}

static bool cross(SmRoute *route, const SmPort *port)
{
    if (!port->peer || port->info.state != IB_PORT_ACTIVE ||
        port->peer->info.state != IB_PORT_ACTIVE) {
        return false;
    }
    narrow(route, port);
    narrow(route, port->peer);
    return true;
}

bool sm_path_trace(const Sm *sm, const SmPort *from, const SmPort *to,
                   uint16_t dlid, SmRoute *route)
{
    const SmPort *port = from;
    const SmNode *node = from->node;

    *route = (SmRoute) { .mtu = 5, .rate = 10 };
    if (from == to) {
        narrow(route, from);
        return true;
    }
    if (!node->sw) {
        if (!cross(route, port)) {
            return false;
        }
        if (port->peer == to) {
            return true;                  /* back to back */
        }
        node = port->peer->node;
    }
    while (node->sw && route->hops++ <= SM_MAX_HOPS) {
        unsigned out = dlid < node->sw->lft_len ? node->sw->lft_dev[dlid]
                                                : SM_NO_ROUTE;

        if (out > node->num_ports) {
            return false;
        }
        port = &node->ports[out];
        if (out == 0) {
            narrow(route, port);
            return port == to;
        }
        if (!cross(route, port)) {
            return false;
        }
        if (!port->peer->node->sw) {
            return port->peer == to;
        }
        node = port->peer->node;
    }
    return false;
}

static bool prefix_known(const Sm *sm, const uint8_t gid[16])
{
    uint64_t prefix = ib_get64(gid);

    return prefix == sm->opts.gid_prefix ||
           prefix == UINT64_C(0xFE80000000000000);
}

/*
 * Ports that a GID and a LID, each if it was given, leave over.
 */
static uint16_t candidates(Sm *sm, bool by_gid, const uint8_t gid[16],
                           bool by_lid, uint16_t lid, GPtrArray *ports)
{
    SmPort *port = NULL;

    if (by_gid) {
        port = prefix_known(sm, gid) ? sm_port_find(sm, ib_get64(gid + 8))
                                     : NULL;
        if (!port) {
            return IB_SA_STATUS_BAD_GID;
        }
    }
    if (by_lid) {
        SmPort *other = sm_port_by_lid(sm, lid);

        if (!other || (port && port != other)) {
            return IB_SA_STATUS_NO_RECORDS;
        }
        port = other;
    }
    if (port) {
        if (sm_port_usable(port)) {
            g_ptr_array_add(ports, port);
        }
        return IB_MAD_STATUS_OK;
    }
    for (unsigned i = 0; i < sm->nodes->len; i++) {
        SmNode *node = g_ptr_array_index(sm->nodes, i);

        for (unsigned j = 0; j <= node->num_ports; j++) {
            if (sm_port_usable(&node->ports[j])) {
                g_ptr_array_add(ports, &node->ports[j]);
            }
        }
    }
    return IB_MAD_STATUS_OK;
}

/* What the requester may insist on, and gets back as it asked. */
static bool acceptable(const Sm *sm, uint64_t mask, const IbPathRecord *want,
                       const IbPathRecord *have)
{
    return !(wants(mask, C_MTU) &&
             !sm_selector_ok(want->mtu_selector, want->mtu, have->mtu)) &&
           !(wants(mask, C_RATE) &&
             !sm_selector_ok(want->rate_selector, sm_rate_mbps(want->rate),
                             sm_rate_mbps(have->rate))) &&
           !(wants(mask, C_LIFE) &&
             !sm_selector_ok(want->life_selector, want->life, have->life)) &&
           !(wants(mask, C_PKEY) && !ib_pkey_match(want->pkey, have->pkey)) &&
           !(wants(mask, C_SL) && want->sl != have->sl) &&
           !(wants(mask, C_RAW) && want->raw_traffic);
}

static bool add_path(Sm *sm, const IbSaHeader *header,
                     const IbPathRecord *want, const IbPathRecord *path,
                     SmRecords *records)
{
    uint64_t mask = header->component_mask;
    IbPathRecord record = *path;
    uint8_t *place;

    record.reversible = true;
    record.mtu_selector = 2;
    record.rate_selector = 2;
    record.life_selector = 2;
    if (!acceptable(sm, mask, want, &record)) {
        return false;
    }
    if (wants(mask, C_SERVICE_ID)) {
        record.service_id = want->service_id;
    }
    if (wants(mask, C_TCLASS)) {
        record.tclass = want->tclass;
    }
    if (wants(mask, C_FLOW)) {
        record.flow_label = want->flow_label;
    }
    if (wants(mask, C_QOS)) {
        record.qos_class = want->qos_class;
    }
    place = sm_records_add(records);
    if (place) {
        ib_path_record_pack(place, &record);
    }
    return true;
}

static void pair(Sm *sm, const IbSaHeader *header, const IbPathRecord *want,
                 const SmPort *from, const SmPort *to, SmRecords *records)
{
    uint64_t mask = header->component_mask;
    unsigned n = MAX(1u << from->lmc, 1u << to->lmc), found = 0;
    unsigned most = wants(mask, C_NUMB_PATH) ? want->num_paths
                                             : NUMB_PATH_MAX;
    bool get = header->hdr.method == IB_METHOD_GET;

    if (get) {
        most = 1;
    }
    for (unsigned i = 0; i < n && found < most; i++) {
        IbPathRecord path = {
            .slid = from->lid + (i & ((1u << from->lmc) - 1)),
            .dlid = to->lid + (i & ((1u << to->lmc) - 1)),
            .pkey = IB_PKEY_DEFAULT,
            .num_paths = wants(mask, C_NUMB_PATH) ? want->num_paths : 0,
            .life = sm->opts.packet_life,
            .preference = i,
        };
        SmRoute route, back;
        bool works;

        records->examined++;
        if ((wants(mask, C_SLID) && path.slid != want->slid) ||
            (wants(mask, C_DLID) && path.dlid != want->dlid)) {
            if (n > 1 && wants(mask, C_SLID) && wants(mask, C_DLID)) {
                /* Both given: any combination will do. */
                path.slid = want->slid;
                path.dlid = want->dlid;
                i = n;
            } else {
                continue;
            }
        }
        /* Reversible: the answer must find its way too. */
        works = sm_path_trace(sm, from, to, path.dlid, &route) &&
                sm_path_trace(sm, to, from, path.slid, &back);
        records->examined += route.hops / HOPS_PER_RECORD;
        if (!works) {
            continue;
        }
        path.mtu = MIN(route.mtu, back.mtu);
        path.rate = sm_rate_mbps(back.rate) < sm_rate_mbps(route.rate)
                    ? back.rate : route.rate;
        sm_port_gid(sm, from->guid, path.sgid);
        sm_port_gid(sm, to->guid, path.dgid);
        found += add_path(sm, header, want, &path, records);
    }
}

static uint16_t group_path(Sm *sm, const IbSaHeader *header,
                           const IbPathRecord *want, GPtrArray *sources,
                           SmRecords *records)
{
    const SmGroup *group = sm_group_find(sm, want->dgid);

    if (!group || (wants(header->component_mask, C_DLID) &&
                   want->dlid != group->rec.mlid)) {
        return IB_SA_STATUS_NO_RECORDS;
    }
    for (unsigned i = 0; i < sources->len; i++) {
        const SmPort *from = g_ptr_array_index(sources, i);
        IbPathRecord path = {
            .slid = from->lid,
            .dlid = group->rec.mlid,
            .pkey = group->rec.pkey,
            .sl = group->rec.sl,
            .mtu = group->rec.mtu,
            .rate = group->rec.rate,
            .life = group->rec.life,
            .flow_label = group->rec.flow_label,
            .tclass = group->rec.tclass,
            .hop_limit = group->rec.hop_limit,
            .num_paths = 1,
        };

        records->examined++;
        memcpy(path.dgid, group->rec.mgid, 16);
        sm_port_gid(sm, from->guid, path.sgid);
        add_path(sm, header, want, &path, records);
        if (records->count && header->hdr.method == IB_METHOD_GET) {
            break;
        }
    }
    return IB_MAD_STATUS_OK;
}

static uint16_t pairs(Sm *sm, const IbSaHeader *header,
                      const IbPathRecord *want, GPtrArray *from,
                      GPtrArray *to, SmRecords *records)
{
    unsigned examined = 0;

    for (unsigned i = 0; i < from->len; i++) {
        for (unsigned j = 0; j < to->len; j++) {
            if (++examined > SM_MAX_PATH_PAIRS || records->overflow) {
                return IB_SA_STATUS_NO_RESOURCES;
            }
            pair(sm, header, want, g_ptr_array_index(from, i),
                 g_ptr_array_index(to, j), records);
            if (records->count && header->hdr.method == IB_METHOD_GET) {
                return IB_MAD_STATUS_OK;
            }
        }
    }
    return IB_MAD_STATUS_OK;
}

uint16_t sm_sa_path(Sm *sm, const SmClient *client, const IbSaHeader *header,
                    const uint8_t *data, SmRecords *records)
{
    uint64_t mask = header->component_mask;
    GPtrArray *from = g_ptr_array_new(), *to = g_ptr_array_new();
    IbPathRecord want;
    uint16_t status;

    ib_path_record_unpack(&want, data);
    if (wants(mask, C_NUMB_PATH) && want.num_paths == 0) {
        status = IB_SA_STATUS_REQ_INVALID;
    } else {
        status = candidates(sm, wants(mask, C_SGID), want.sgid,
                            wants(mask, C_SLID), want.slid, from);
    }
    if (status == IB_MAD_STATUS_OK && wants(mask, C_DGID) &&
        want.dgid[0] == 0xFF) {
        status = group_path(sm, header, &want, from, records);
    } else if (status == IB_MAD_STATUS_OK) {
        status = candidates(sm, wants(mask, C_DGID), want.dgid,
                            wants(mask, C_DLID), want.dlid, to);
        if (status == IB_MAD_STATUS_OK) {
            status = pairs(sm, header, &want, from, to, records);
        }
    }
    /* A table of none is a good answer, also when a LID is unknown. */
    if (status == IB_SA_STATUS_NO_RECORDS &&
        header->hdr.method == IB_METHOD_GET_TABLE) {
        status = IB_MAD_STATUS_OK;
    }
    g_ptr_array_free(from, true);
    g_ptr_array_free(to, true);
    return status;
}
