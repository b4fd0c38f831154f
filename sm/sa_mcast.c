/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * MCMemberRecord and the multicast groups (15.2.5.17).
 *
 * Theory of operation: a Set joins.  To a group that exists the requester's
 * ideas must fit, and its port must be able to carry the group's MTU and rate;
 * a group that does not is created if the request says enough (P_Key, Q_Key,
 * SL, flow label, traffic class) and joins as a full member, receiving or not.
 * A Delete takes back the join states it names; the group ends with its last
 * full member.  A port that is gone is a member no more.  Each change asks for
 * new multicast tables (route.c) and groups that come and go are reported
 * (traps 66, 67).
 *
 * A node speaks for its own ports only: there is no proxy join.
 *
 * The MLID comes from a hash of the MGID, so that a restarted SM gives a group
 * the MLID that its members still use.  IPoIB's broadcast group of the default
 * partition always exists (RFC 4391 wants it created beforehand; Linux joins it
 * without the components to create it).
 */
#include <string.h>

#include "sm/internal.h"

/* Component mask (table 210). */
enum {
    C_MGID = 1 << 0, C_PORT_GID = 1 << 1, C_QKEY = 1 << 2, C_MLID = 1 << 3,
    C_MTU = 3 << 4, C_TCLASS = 1 << 6, C_PKEY = 1 << 7, C_RATE = 3 << 8,
    C_LIFE = 3 << 10, C_SL = 1 << 12, C_FLOW = 1 << 13, C_HOP = 1 << 14,
    C_SCOPE = 1 << 15, C_JOIN_STATE = 1 << 16,
    C_JOIN = C_PORT_GID | C_JOIN_STATE,
    C_CREATE = C_JOIN | C_QKEY | C_TCLASS | C_PKEY | C_SL | C_FLOW,
};

#define JOIN_FULL_ANY (SM_JOIN_FULL | SM_JOIN_SEND_ONLY_FULL)

/* What a group gets when its creator leaves it open: 2048 bytes, 10 Gb/s. */
#define DEFAULT_MTU 4
#define DEFAULT_RATE 3
#define LINK_LOCAL_SCOPE 2

static const SmComponent components[] = {
    { 0, 0, 128 },           /* MGID */
    { 1, 128, 128 },         /* PortGID */
    { 2, 256, 32 },          /* Q_Key */
    { 3, 288, 16 },          /* MLID */
    { 6, 312, 8 },           /* TClass */
    { 7, 320, 16 },          /* P_Key */
    { 12, 352, 4 },          /* SL */
    { 13, 356, 20 },         /* FlowLabel */
    { 14, 376, 8 },          /* HopLimit */
    { 15, 384, 4 },          /* Scope */
    { 16, 388, 4 },          /* JoinState */
};

static bool wants(uint64_t mask, unsigned component)
{
    return (mask & component) == component;
}

static guint mgid_hash(gconstpointer key)
{
    const uint8_t *mgid = key;
    guint hash = 2166136261u;             /* FNV-1a */

    for (unsigned i = 0; i < 16; i++) {
        hash = (hash ^ mgid[i]) * 16777619u;
    }
    return hash;
}

static gboolean mgid_equal(gconstpointer a, gconstpointer b)
{
    return memcmp(a, b, 16) == 0;
}

SmGroup *sm_group_find(const Sm *sm, const uint8_t mgid[16])
{
    return g_hash_table_lookup(sm->group_by_mgid, mgid);
}

static void group_free(SmGroup *group)
{
    g_array_free(group->members, true);
    g_free(group);
}

static uint16_t choose_mlid(const Sm *sm, const uint8_t mgid[16])
{
    unsigned n = sm_mcast_capacity(sm);
    unsigned start = n ? mgid_hash(mgid) % n : 0;

    for (unsigned i = 0; i < n; i++) {
        unsigned row = (start + i) % n;

        if (!sm->group_by_mlid[row]) {
            return IB_LID_MCAST_FIRST + row;
        }
    }
    return 0;
}

static SmGroup *group_add(Sm *sm, const IbMcMemberRecord *rec, uint16_t mlid)
{
    SmGroup *group = g_new0(SmGroup, 1);

    group->rec = *rec;
    group->rec.mlid = mlid;
    memset(group->rec.port_gid, 0, 16);
    group->rec.join_state = 0;
    group->rec.proxy_join = false;
    group->rec.mtu_selector = 2;
    group->rec.rate_selector = 2;
    group->rec.life_selector = 2;
    group->members = g_array_new(false, false, sizeof(SmMember));
    g_ptr_array_add(sm->groups, group);
    g_hash_table_insert(sm->group_by_mgid, group->rec.mgid, group);
    sm->group_by_mlid[mlid - IB_LID_MCAST_FIRST] = group;
    return group;
}

static void member_gone(Sm *sm, uint64_t guid)
{
    SmPort *port = sm_port_find(sm, guid);

    if (port) {
        port->memberships--;
    }
    sm->members--;
}

static void group_remove(Sm *sm, SmGroup *group)
{
    for (unsigned i = 0; i < group->members->len; i++) {
        member_gone(sm, g_array_index(group->members, SmMember, i).guid);
    }
    g_hash_table_remove(sm->group_by_mgid, group->rec.mgid);
    sm->group_by_mlid[group->rec.mlid - IB_LID_MCAST_FIRST] = NULL;
    g_ptr_array_remove_fast(sm->groups, group);
    group_free(group);
    sm->mcast_wanted = true;
}

/* RFC 4391, 5: ff12:401b:<P_Key>::ffff:ffff. */
static void add_ipoib(Sm *sm)
{
    static const IbMcMemberRecord broadcast = {
        .mgid = { 0xFF, 0x12, 0x40, 0x1B, 0xFF, 0xFF, 0, 0,
                  0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF },
        .qkey = 0x0B1B,
        .mtu = DEFAULT_MTU,
        .pkey = IB_PKEY_DEFAULT,
        .rate = DEFAULT_RATE,
        .life = 14,
        .scope = LINK_LOCAL_SCOPE,
    };
    SmGroup *group;

    if (sm->opts.ipoib) {
        group = group_add(sm, &broadcast, IB_LID_MCAST_FIRST);
        group->permanent = true;
        group->rec.life = sm->opts.packet_life;
    }
}

void sm_mcast_init(Sm *sm)
{
    sm->groups = g_ptr_array_new();
    sm->group_by_mgid = g_hash_table_new(mgid_hash, mgid_equal);
    sm->group_by_mlid = g_new0(SmGroup *, SM_MAX_GROUPS);
    add_ipoib(sm);
}

void sm_mcast_fini(Sm *sm)
{
    while (sm->groups->len) {
        group_remove(sm, g_ptr_array_index(sm->groups, 0));
    }
    g_ptr_array_free(sm->groups, true);
    g_hash_table_destroy(sm->group_by_mgid);
    g_free(sm->group_by_mlid);
}

void sm_mcast_forget(Sm *sm)
{
    while (sm->groups->len) {
        group_remove(sm, g_ptr_array_index(sm->groups, 0));
    }
    sm->mcast_wanted = false;
    add_ipoib(sm);
}

static SmMember *find_member(const SmGroup *group, uint64_t guid,
                             unsigned *index)
{
    for (unsigned i = 0; i < group->members->len; i++) {
        SmMember *member = &g_array_index(group->members, SmMember, i);

        if (member->guid == guid) {
            *index = i;
            return member;
        }
    }
    return NULL;
}

static bool has_full_member(const SmGroup *group)
{
    for (unsigned i = 0; i < group->members->len; i++) {
        if (g_array_index(group->members, SmMember, i).join_state &
            JOIN_FULL_ANY) {
            return true;
        }
    }
    return false;
}

/* Takes states from a member; ends member and group if nothing is left. */
static void leave(Sm *sm, SmGroup *group, unsigned index, uint8_t states)
{
    SmMember *member = &g_array_index(group->members, SmMember, index);

    member->join_state &= ~states;
    if (!member->join_state) {
        member_gone(sm, member->guid);
        g_array_remove_index_fast(group->members, index);
    }
    sm->mcast_wanted = true;
    if (!group->permanent && !has_full_member(group)) {
        uint8_t mgid[16];

        memcpy(mgid, group->rec.mgid, 16);
        sm_logf(sm, SM_LOG_DEBUG, "multicast group with MLID 0x%04x ends",
                group->rec.mlid);
        group_remove(sm, group);
        sm_report_gid(sm, 67, mgid);
    }
}

void sm_mcast_port_gone(Sm *sm, uint64_t guid)
{
    /* Backwards: leave() may take the group out of the array. */
    for (unsigned i = sm->groups->len; i-- > 0;) {
        SmGroup *group = g_ptr_array_index(sm->groups, i);
        unsigned index;

        if (find_member(group, guid, &index)) {
            leave(sm, group, index, 0xF);
        }
    }
}

/* 15.2.5.17 and 4.1.1: what may be the name of a group. */
static bool mgid_valid(const uint8_t mgid[16])
{
    unsigned scope = mgid[1] & 0xF;

    return mgid[0] == 0xFF && scope != 0 && scope != 0xF;
}

/* The one value of MTU or rate that a creator's selector asks for. */
static bool choose_mtu(uint64_t mask, const IbMcMemberRecord *want,
                       unsigned most, uint8_t *mtu)
{
    unsigned value = MIN(DEFAULT_MTU, most);

    if (wants(mask, C_MTU)) {
        switch (want->mtu_selector) {
        case 0:
            value = want->mtu + 1;
            break;
        case 1:
            value = MIN(want->mtu - 1u, most);
            break;
        case 2:
            value = want->mtu;
            break;
        default:
            value = most;
            break;
        }
    }
    *mtu = value;
    return value >= 1 && value <= most;
}

static bool choose_rate(uint64_t mask, const IbMcMemberRecord *want,
                        uint8_t most, uint8_t *rate)
{
    unsigned limit = sm_rate_mbps(most), wanted = sm_rate_mbps(want->rate);

    *rate = sm_rate_mbps(DEFAULT_RATE) <= limit ? DEFAULT_RATE : most;
    if (wants(mask, C_RATE)) {
        switch (want->rate_selector) {
        case 0:
        case 3:
            *rate = most;
            return want->rate_selector == 3 || limit > wanted;
        case 1:
            *rate = 2;
            return wanted > sm_rate_mbps(2);
        default:
            *rate = want->rate;
            return wanted && wanted <= limit;
        }
    }
    return true;
}

static uint16_t create(Sm *sm, uint64_t mask, const IbMcMemberRecord *want,
                       const SmPort *port, SmGroup **group)
{
    IbMcMemberRecord rec = *want;
    uint16_t mlid;

    if (!wants(mask, C_CREATE)) {
        return IB_SA_STATUS_COMPONENTS;
    }
    if (!(want->join_state & JOIN_FULL_ANY) ||
        !ib_pkey_match(want->pkey, IB_PKEY_DEFAULT) || want->sl != 0 ||
        !choose_mtu(mask, want, port->info.neighbor_mtu, &rec.mtu) ||
        !choose_rate(mask, want, sm_port_rate(&port->info), &rec.rate)) {
        return IB_SA_STATUS_REQ_INVALID;
    }
    rec.pkey = want->pkey | 0x8000;
    rec.life = sm->opts.packet_life;
    rec.hop_limit = wants(mask, C_HOP) ? want->hop_limit : 0;
    if (!wants(mask, C_MGID) || ib_get64(want->mgid) == 0) {
        /* The SA names it (15.2.5.17.2): transient, link-local. */
        memset(rec.mgid, 0, 16);
        rec.mgid[0] = 0xFF;
        rec.mgid[1] = 0x12;
        rec.mgid[2] = 0xA0;
        rec.mgid[3] = 0x1B;
        do {
            ib_put64(rec.mgid + 8, sm->opts.port_guid);
            ib_put32(rec.mgid + 4, ++sm->next_mgid);
        } while (sm_group_find(sm, rec.mgid));
    } else if (!mgid_valid(want->mgid)) {
        return IB_SA_STATUS_REQ_INVALID;
    }
    rec.scope = rec.mgid[1] & 0xF;
    mlid = choose_mlid(sm, rec.mgid);
    if (!mlid) {
        return IB_SA_STATUS_NO_RESOURCES;
    }
    *group = group_add(sm, &rec, mlid);
    sm_logf(sm, SM_LOG_DEBUG, "multicast group with MLID 0x%04x for port %s",
            mlid, sm_port_name(port).s);
    return IB_MAD_STATUS_OK;
}

/* Do the requester's ideas fit the group, and the group its port? */
static bool fits(uint64_t mask, const IbMcMemberRecord *want,
                 const SmGroup *group, const SmPort *port)
{
    const IbMcMemberRecord *rec = &group->rec;

    return !(wants(mask, C_QKEY) && want->qkey != rec->qkey) &&
           !(wants(mask, C_PKEY) && !ib_pkey_match(want->pkey, rec->pkey)) &&
           !(wants(mask, C_TCLASS) && want->tclass != rec->tclass) &&
           !(wants(mask, C_FLOW) && want->flow_label != rec->flow_label) &&
           !(wants(mask, C_SL) && want->sl != rec->sl) &&
           !(wants(mask, C_SCOPE) && want->scope != rec->scope) &&
           !(wants(mask, C_MLID) && want->mlid != rec->mlid) &&
           !(wants(mask, C_MTU) &&
             !sm_selector_ok(want->mtu_selector, want->mtu, rec->mtu)) &&
           !(wants(mask, C_RATE) &&
             !sm_selector_ok(want->rate_selector, sm_rate_mbps(want->rate),
                             sm_rate_mbps(rec->rate))) &&
           !(wants(mask, C_LIFE) &&
             !sm_selector_ok(want->life_selector, want->life, rec->life)) &&
           port->info.neighbor_mtu >= rec->mtu &&
           sm_rate_mbps(sm_port_rate(&port->info)) >=
           sm_rate_mbps(rec->rate);
}

/* The port a request is about, if the requester may speak for it. */
static SmPort *subject(Sm *sm, const SmClient *client,
                       const IbMcMemberRecord *want)
{
    SmPort *port = sm_port_find(sm, ib_get64(want->port_gid + 8));
    uint8_t gid[16];

    if (!port || !client->port || port->node != client->port->node ||
        !sm_port_usable(port)) {
        return NULL;
    }
    sm_port_gid(sm, port->guid, gid);
    return memcmp(gid, want->port_gid, 16) == 0 ? port : NULL;
}

static void pack(uint8_t *data, size_t len, const SmGroup *group,
                 const uint8_t port_gid[16], uint8_t join_state)
{
    IbMcMemberRecord rec = group->rec;

    memcpy(rec.port_gid, port_gid, 16);
    rec.join_state = join_state;
    memset(data, 0, len);
    ib_mcmember_record_pack(data, &rec);
}

uint16_t sm_mcast_set(Sm *sm, const SmClient *client,
                      const IbSaHeader *header, uint8_t *data)
{
    uint64_t mask = header->component_mask;
    IbMcMemberRecord want;
    SmGroup *group = NULL;
    SmMember *member = NULL;
    SmPort *port;
    unsigned index;
    bool created = false;
    uint16_t status;

    ib_mcmember_record_unpack(&want, data);
    if (!wants(mask, C_JOIN)) {
        return IB_SA_STATUS_COMPONENTS;
    }
    port = subject(sm, client, &want);
    if (!port || !want.join_state || want.proxy_join) {
        return IB_SA_STATUS_REQ_INVALID;
    }
    if (wants(mask, C_MGID)) {
        group = sm_group_find(sm, want.mgid);
    }
    member = group ? find_member(group, port->guid, &index) : NULL;
    if (!member && (sm->members >= SM_MAX_MEMBERS ||
                    port->memberships >= SM_MAX_GROUPS_PER_PORT)) {
        return IB_SA_STATUS_NO_RESOURCES;
    }
    if (!group) {
        status = create(sm, mask, &want, port, &group);
        if (status != IB_MAD_STATUS_OK) {
            return status;
        }
        created = true;
    } else if (!fits(mask, &want, group, port)) {
        return IB_SA_STATUS_REQ_INVALID;
    }
    if (!member) {
        SmMember new = { .guid = port->guid };

        g_array_append_val(group->members, new);
        sm->members++;
        port->memberships++;
        member = &g_array_index(group->members, SmMember,
                                group->members->len - 1);
    }
    if ((member->join_state | want.join_state) != member->join_state) {
        member->join_state |= want.join_state;
        sm->mcast_wanted = true;
    }
    pack(data, IB_SA_DATA_LEN, group, want.port_gid, member->join_state);
    if (created) {
        sm_report_gid(sm, 66, group->rec.mgid);
    }
    /* The answer goes first, the tables follow at once. */
    ib_timer_set(&sm->wake, ib_clock_now(sm->clock));
    return IB_MAD_STATUS_OK;
}

uint16_t sm_mcast_delete(Sm *sm, const SmClient *client,
                         const IbSaHeader *header, uint8_t *data)
{
    uint64_t mask = header->component_mask;
    IbMcMemberRecord want;
    SmGroup *group;
    SmMember *member;
    SmPort *port;
    unsigned index;

    ib_mcmember_record_unpack(&want, data);
    if (!wants(mask, C_JOIN | C_MGID)) {
        return IB_SA_STATUS_COMPONENTS;
    }
    port = subject(sm, client, &want);
    group = sm_group_find(sm, want.mgid);
    member = port && group ? find_member(group, port->guid, &index) : NULL;
    if (!member || !want.join_state ||
        (member->join_state & want.join_state) != want.join_state) {
        return IB_SA_STATUS_REQ_INVALID;
    }
    pack(data, IB_SA_DATA_LEN, group, want.port_gid, want.join_state);
    leave(sm, group, index, want.join_state);
    ib_timer_set(&sm->wake, ib_clock_now(sm->clock));
    return IB_MAD_STATUS_OK;
}

/* Selectors are compared by value, not bit by bit. */
static bool group_match(const uint8_t *record, const uint8_t *data,
                        const IbSaHeader *header, const SmGroup *group)
{
    uint64_t mask = header->component_mask;
    IbMcMemberRecord want;

    ib_mcmember_record_unpack(&want, data);
    return sm_record_match(record, data, mask, components,
                           G_N_ELEMENTS(components)) &&
           !(wants(mask, C_MTU) &&
             !sm_selector_ok(want.mtu_selector, want.mtu,
                             group->rec.mtu)) &&
           !(wants(mask, C_RATE) &&
             !sm_selector_ok(want.rate_selector, sm_rate_mbps(want.rate),
                             sm_rate_mbps(group->rec.rate))) &&
           !(wants(mask, C_LIFE) &&
             !sm_selector_ok(want.life_selector, want.life,
                             group->rec.life));
}

static void add_record(SmRecords *records, const uint8_t *record)
{
    uint8_t *place = sm_records_add(records);

    if (place) {
        memcpy(place, record, IB_MCMEMBER_RECORD_LEN);
    }
}

/*
 * Who is trusted sees each member.  Others see each group once, and of its
 * members only the ports of their own node when they name one.
 */
uint16_t sm_mcast_get(Sm *sm, const SmClient *client,
                      const IbSaHeader *header, const uint8_t *data,
                      SmRecords *records)
{
    static const uint8_t no_gid[16];
    uint8_t record[IB_MCMEMBER_RECORD_LEN];
    bool by_port = header->component_mask & C_PORT_GID;

    for (unsigned i = 0; i < sm->groups->len; i++) {
        const SmGroup *group = g_ptr_array_index(sm->groups, i);

        records->examined += 1 + group->members->len;
        if (!by_port && (!client->trusted || !group->members->len)) {
            pack(record, sizeof(record), group, no_gid, 0);
            if (group_match(record, data, header, group)) {
                add_record(records, record);
            }
            continue;
        }
        for (unsigned j = 0; j < group->members->len; j++) {
            const SmMember *member = &g_array_index(group->members, SmMember,
                                                    j);
            const SmPort *port = sm_port_find(sm, member->guid);
            uint8_t gid[16];

            if (!client->trusted &&
                (!port || !client->port ||
                 port->node != client->port->node)) {
                continue;
            }
            sm_port_gid(sm, member->guid, gid);
            pack(record, sizeof(record), group, gid, member->join_state);
            if (group_match(record, data, header, group)) {
                add_record(records, record);
            }
        }
    }
    return IB_MAD_STATUS_OK;
}
