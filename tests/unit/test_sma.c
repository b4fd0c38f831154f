/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Subnet management agent: which moves are legal, directed routes hop by hop,
 * M_Key, traps and their repress, and the performance agent.
 */
#include <glib.h>
#include <string.h>

#include "hex.h"
#include "ib/bytes.h"
#include "ib/sma.h"

#define CA_GUID UINT64_C(0x0002C90000000100)
#define SWITCH_GUID UINT64_C(0x0002C90000000200)
#define SUBNET_TIMEOUT_18 INT64_C(1073741824)
#define NO_REPLY 0xFFFFFF

/* A node under test and what it told us. */
typedef struct Node {
    IbSma sma;
    IbClock *clock;
    unsigned changes;            /* of the last call */
    unsigned calls;
    unsigned changed_port, old_state;
    IbPortInfo seen;             /* PortInfo at the time of the call */
    unsigned traps;
    uint8_t trap[IB_MAD_LEN];
    IbMadAddress trap_to;
    unsigned trap_port;
    uint16_t owner_attr;
    bool owner_set;
} Node;

static void changed(void *opaque, unsigned port, unsigned changes,
                    unsigned old_state)
{
    Node *node = opaque;

    node->calls++;
    node->changes = changes;
    node->changed_port = port;
    node->old_state = old_state;
    node->seen = node->sma.ports[port].info;
}

static void send_trap(void *opaque, unsigned port, const IbMadAddress *to,
                      const uint8_t *mad)
{
    Node *node = opaque;

    node->traps++;
    node->trap_port = port;
    node->trap_to = *to;
    memcpy(node->trap, mad, IB_MAD_LEN);
}

static bool attribute(void *opaque, unsigned port, bool set, uint16_t attr_id,
                      uint32_t attr_mod, uint8_t *data)
{
    Node *node = opaque;

    node->owner_attr = attr_id;
    node->owner_set = set;
    if (attr_id != IB_SM_LINEAR_FT) {
        return false;
    }
    data[0] = attr_mod + 1;
    return true;
}

static const IbSmaOps ops = {
    .changed = changed, .send = send_trap, .attribute = attribute,
};
static const IbSmaOps no_ops;

static void node_init(Node *node, IbClock *clock, uint8_t type,
                      unsigned ports)
{
    memset(node, 0, sizeof(*node));
    node->clock = clock;
    ib_sma_init(&node->sma, clock, type, ports,
                type == IB_NODE_CA ? CA_GUID : SWITCH_GUID, "test node",
                &ops, node);
    if (type == IB_NODE_SWITCH) {
        node->sma.switch_info.lft_cap = 0xC000;
    }
}

/* One SMP by LID; returns its status, or NO_REPLY. */
static unsigned ask_key(Node *node, unsigned port, uint8_t method,
                        uint16_t attr, uint32_t mod, uint64_t m_key,
                        uint8_t *data)
{
    const IbMadAddress from = { .slid = 77, .dlid = 5, .sl = 2,
                                .vl = IB_VL_MANAGEMENT,
                                .pkey = IB_PKEY_DEFAULT };
    IbSmp smp = {
        .hdr = { .base_version = 1, .mgmt_class = IB_CLASS_SM_LID,
                 .class_version = 1, .method = method, .tid = 0xABCDEF,
                 .attr_id = attr, .attr_mod = mod },
        .m_key = m_key,
    };
    uint8_t mad[IB_MAD_LEN] = { 0 };
    unsigned out_port = 99;
    IbMadAddress to;

    ib_smp_pack(mad, &smp);
    memcpy(mad + IB_SMP_DATA_OFFSET, data, IB_SMP_DATA_LEN);
    if (ib_sma_receive(&node->sma, port, &from, mad, &out_port, &to) !=
        IB_SMA_REPLY) {
        return NO_REPLY;
    }
    ib_smp_unpack(&smp, mad);
    memcpy(data, mad + IB_SMP_DATA_OFFSET, IB_SMP_DATA_LEN);
    g_assert_cmphex(smp.hdr.method, ==, IB_METHOD_GET_RESP);
    g_assert_cmphex(smp.hdr.tid, ==, 0xABCDEF);
    g_assert_cmphex(smp.hdr.attr_id, ==, attr);
    g_assert_cmphex(smp.hdr.attr_mod, ==, mod);
    g_assert_cmpuint(to.dlid, ==, 77);
    g_assert_cmpuint(to.vl, ==, IB_VL_MANAGEMENT);
    g_assert_cmpuint(to.dest_qpn, ==, 0);
    g_assert_cmpuint(out_port, ==,
                     node->sma.node.node_type == IB_NODE_SWITCH ? 0 : port);
    return smp.hdr.status;
}

static unsigned ask(Node *node, unsigned port, uint8_t method, uint16_t attr,
                    uint32_t mod, uint8_t *data)
{
    return ask_key(node, port, method, attr, mod, 0, data);
}

static unsigned get_port_info(Node *node, unsigned port, uint32_t mod,
                              IbPortInfo *info)
{
    uint8_t data[IB_SMP_DATA_LEN] = { 0 };
    unsigned status = ask(node, port, IB_METHOD_GET, IB_SM_PORT_INFO, mod,
                          data);

    ib_port_info_unpack(info, data);
    return status;
}

/* Set(PortInfo); @info becomes what the reply says. */
static unsigned set_port_info(Node *node, unsigned port, uint32_t mod,
                              IbPortInfo *info)
{
    uint8_t data[IB_SMP_DATA_LEN];
    unsigned status;

    ib_port_info_pack(data, info);
    node->calls = node->changes = 0;
    status = ask(node, port, IB_METHOD_SET, IB_SM_PORT_INFO, mod, data);
    ib_port_info_unpack(info, data);
    return status;
}

/* What an SM sends that wants nothing changed. */
static IbPortInfo unchanged(const Node *node, unsigned port)
{
    IbPortInfo info = node->sma.ports[port].info;

    info.state = IB_PORT_NO_CHANGE;
    info.phys_state = IB_PHYS_NO_CHANGE;
    info.client_reregister = false;
    return info;
}

static void set_state(Node *node, unsigned port, unsigned state)
{
    IbPortInfo info = unchanged(node, port);

    info.state = state;
    g_assert_cmphex(set_port_info(node, port, port, &info), ==, 0);
    g_assert_cmpuint(info.state, ==, state);
}

/* Brings a port to @state the legal way, LID 5 and SM 1. */
static void bring_to(Node *node, unsigned port, unsigned state)
{
    IbPortInfo info;

    ib_sma_link_up(&node->sma, port, 2, 2);
    info = unchanged(node, port);
    info.lid = 5;
    info.sm_lid = 1;
    if (node->sma.node.node_type == IB_NODE_CA) {
        g_assert_cmphex(set_port_info(node, port, port, &info), ==, 0);
    }
    if (state >= IB_PORT_ARMED) {
        set_state(node, port, IB_PORT_ARMED);
    }
    if (state >= IB_PORT_ACTIVE) {
        set_state(node, port, IB_PORT_ACTIVE);
    }
    if (state == IB_PORT_DOWN) {
        ib_sma_link_down(&node->sma, port);
    }
    g_assert_cmpuint(node->sma.ports[port].info.state, ==, state);
    node->calls = node->changes = 0;
}

/* --- Port states ------------------------------------------------------- */

static void test_link(void)
{
    IbClock clock;
    Node ca;

    ib_clock_init_virtual(&clock);
    node_init(&ca, &clock, IB_NODE_CA, 2);
    g_assert_cmpuint(ca.sma.ports[1].info.state, ==, IB_PORT_DOWN);
    g_assert_cmpuint(ca.sma.ports[1].info.phys_state, ==, IB_PHYS_POLLING);
    g_assert_cmphex(ca.sma.ports[2].guids[0], ==, CA_GUID + 2);
    g_assert_cmphex(ca.sma.ports[1].pkeys[0], ==, IB_PKEY_DEFAULT);

    ib_sma_link_up(&ca.sma, 1, 4, 2);
    g_assert_cmpuint(ca.calls, ==, 1);
    g_assert_cmphex(ca.changes, ==, IB_SMA_CHANGE_STATE);
    g_assert_cmpuint(ca.old_state, ==, IB_PORT_DOWN);
    g_assert_cmpuint(ca.seen.state, ==, IB_PORT_INIT);
    g_assert_cmpuint(ca.seen.phys_state, ==, IB_PHYS_LINK_UP);
    g_assert_cmpuint(ca.seen.speed_active, ==, 4);
    g_assert_cmpuint(ca.sma.ports[2].info.state, ==, IB_PORT_DOWN);
    ib_sma_link_up(&ca.sma, 1, 1, 2);        /* again: no event */
    g_assert_cmpuint(ca.calls, ==, 1);
    g_assert_false(ib_sma_port_usable(&ca.sma, 1));

    bring_to(&ca, 1, IB_PORT_ACTIVE);
    g_assert_true(ib_sma_port_usable(&ca.sma, 1));
    ca.sma.ports[1].pkeys[3] = 0x8003;
    ib_sma_link_down(&ca.sma, 1);
    g_assert_cmpuint(ca.calls, ==, 1);
    g_assert_cmpuint(ca.old_state, ==, IB_PORT_ACTIVE);
    g_assert_cmpuint(ca.seen.state, ==, IB_PORT_DOWN);
    g_assert_cmpuint(ca.seen.phys_state, ==, IB_PHYS_POLLING);
    /* These survive a pulled cable. */
    g_assert_cmpuint(ca.seen.lid, ==, 5);
    g_assert_cmpuint(ca.seen.sm_lid, ==, 1);
    g_assert_cmphex(ca.sma.ports[1].pkeys[3], ==, 0x8003);
    g_assert_cmpuint(ca.sma.ports[1].counters.link_downed, ==, 1);
    ib_sma_link_down(&ca.sma, 1);
    g_assert_cmpuint(ca.calls, ==, 1);
    g_assert_cmpuint(ca.sma.ports[1].counters.link_downed, ==, 1);

    /* The owner does not want the port: no link can come up. */
    bring_to(&ca, 1, IB_PORT_ARMED);
    ib_sma_port_enable(&ca.sma, 1, false);
    g_assert_cmpuint(ca.calls, ==, 1);
    g_assert_cmpuint(ca.seen.state, ==, IB_PORT_DOWN);
    g_assert_cmpuint(ca.seen.phys_state, ==, IB_PHYS_DISABLED);
    ib_sma_link_up(&ca.sma, 1, 1, 2);
    g_assert_cmpuint(ca.sma.ports[1].info.state, ==, IB_PORT_DOWN);
    ib_sma_link_down(&ca.sma, 1);
    g_assert_cmpuint(ca.sma.ports[1].info.phys_state, ==, IB_PHYS_DISABLED);
    ib_sma_port_enable(&ca.sma, 1, true);
    g_assert_cmpuint(ca.sma.ports[1].info.phys_state, ==, IB_PHYS_POLLING);
    g_assert_cmpuint(ca.calls, ==, 1);
    ib_sma_link_up(&ca.sma, 1, 1, 2);
    g_assert_cmpuint(ca.sma.ports[1].info.state, ==, IB_PORT_INIT);
    ib_sma_fini(&ca.sma);
    ib_clock_fini(&clock);
}

/* Which PortState and PortPhysicalState an SM may ask for, and when. */
static void test_state_moves(void)
{
    enum { NC = 0, DOWN = 1, INIT = 2, ARMED = 3, ACTIVE = 4 };
    enum { SLEEP = 1, POLLING = 2, DISABLED = 3, UP = 5 };
    static const struct {
        uint8_t now, set_state, set_phys;
        bool legal;
        uint8_t state, phys;         /* afterwards */
        unsigned changes;
    } moves[] = {
        /* Down: no move up without a link. */
        { DOWN, NC, NC, true, DOWN, POLLING, 0 },
        { DOWN, DOWN, NC, true, DOWN, POLLING, 0 },
        { DOWN, INIT, NC, false, DOWN, POLLING, 0 },
        { DOWN, ARMED, NC, false, DOWN, POLLING, 0 },
        { DOWN, ACTIVE, NC, false, DOWN, POLLING, 0 },
        { DOWN, NC, POLLING, true, DOWN, POLLING, 0 },
        { DOWN, NC, DISABLED, true, DOWN, DISABLED, IB_SMA_CHANGE_PHYS },
        { DOWN, DOWN, DISABLED, true, DOWN, DISABLED, IB_SMA_CHANGE_PHYS },
        { DOWN, NC, SLEEP, true, DOWN, SLEEP, IB_SMA_CHANGE_PHYS },
        { DOWN, NC, 4, false, DOWN, POLLING, 0 },
        { DOWN, NC, 5, false, DOWN, POLLING, 0 },
        { DOWN, NC, 15, false, DOWN, POLLING, 0 },
        /* Initialize. */
        { INIT, NC, NC, true, INIT, UP, 0 },
        { INIT, INIT, NC, false, INIT, UP, 0 },
        { INIT, ARMED, NC, true, ARMED, UP, IB_SMA_CHANGE_STATE },
        { INIT, ACTIVE, NC, false, INIT, UP, 0 },
        { INIT, 5, NC, false, INIT, UP, 0 },
        { INIT, DOWN, NC, true, DOWN, POLLING,
          IB_SMA_CHANGE_STATE | IB_SMA_CHANGE_PHYS },
        /* A physical state goes with Down or no change only. */
        { INIT, ARMED, POLLING, false, INIT, UP, 0 },
        { INIT, ARMED, DISABLED, false, INIT, UP, 0 },
        { INIT, NC, POLLING, true, DOWN, POLLING,
          IB_SMA_CHANGE_STATE | IB_SMA_CHANGE_PHYS },
        /* Armed. */
        { ARMED, NC, NC, true, ARMED, UP, 0 },
        { ARMED, INIT, NC, false, ARMED, UP, 0 },
        { ARMED, ARMED, NC, false, ARMED, UP, 0 },
        { ARMED, ACTIVE, NC, true, ACTIVE, UP, IB_SMA_CHANGE_STATE },
        { ARMED, ACTIVE, POLLING, false, ARMED, UP, 0 },
        { ARMED, DOWN, NC, true, DOWN, POLLING,
          IB_SMA_CHANGE_STATE | IB_SMA_CHANGE_PHYS },
        /* Active. */
        { ACTIVE, NC, NC, true, ACTIVE, UP, 0 },
        { ACTIVE, INIT, NC, false, ACTIVE, UP, 0 },
        { ACTIVE, ARMED, NC, false, ACTIVE, UP, 0 },
        { ACTIVE, ACTIVE, NC, false, ACTIVE, UP, 0 },
        { ACTIVE, DOWN, NC, true, DOWN, POLLING,
          IB_SMA_CHANGE_STATE | IB_SMA_CHANGE_PHYS },
        { ACTIVE, DOWN, DISABLED, true, DOWN, DISABLED,
          IB_SMA_CHANGE_STATE | IB_SMA_CHANGE_PHYS },
        { ACTIVE, NC, DISABLED, true, DOWN, DISABLED,
          IB_SMA_CHANGE_STATE | IB_SMA_CHANGE_PHYS },
        { ACTIVE, NC, UP, false, ACTIVE, UP, 0 },
    };

    for (unsigned type = IB_NODE_CA; type <= IB_NODE_SWITCH; type++) {
        for (size_t i = 0; i < G_N_ELEMENTS(moves); i++) {
            IbPortInfo info;
            IbClock clock;
            Node node;

            ib_clock_init_virtual(&clock);
            node_init(&node, &clock, type, 2);
            bring_to(&node, 2, moves[i].now);
            info = unchanged(&node, 2);
            info.state = moves[i].set_state;
            info.phys_state = moves[i].set_phys;
            g_test_message("node type %u: %s, set %s and %s", type,
                           ib_port_state_name(moves[i].now),
                           ib_port_state_name(moves[i].set_state),
                           ib_phys_state_name(moves[i].set_phys));
            g_assert_cmphex(set_port_info(&node, 2, 2, &info), ==,
                            moves[i].legal ? 0 : IB_MAD_STATUS_BAD_FIELD);
            g_assert_cmpuint(info.state, ==, moves[i].state);
            g_assert_cmpuint(info.phys_state, ==, moves[i].phys);
            g_assert_cmphex(node.changes, ==, moves[i].changes);
            g_assert_cmpuint(node.calls, ==, moves[i].changes ? 1 : 0);
            if (moves[i].changes) {
                g_assert_cmpuint(node.changed_port, ==, 2);
                g_assert_cmpuint(node.old_state, ==, moves[i].now);
            }
            ib_sma_fini(&node.sma);
            ib_clock_fini(&clock);
        }
    }
}

/* After the SM disabled and enabled the port, the link trains again. */
static void test_disable_enable(void)
{
    IbPortInfo info;
    IbClock clock;
    Node ca;

    ib_clock_init_virtual(&clock);
    node_init(&ca, &clock, IB_NODE_CA, 1);
    bring_to(&ca, 1, IB_PORT_ACTIVE);
    info = unchanged(&ca, 1);
    info.phys_state = IB_PHYS_DISABLED;
    g_assert_cmphex(set_port_info(&ca, 1, 1, &info), ==, 0);
    ib_sma_link_up(&ca.sma, 1, 1, 2);
    g_assert_cmpuint(ca.sma.ports[1].info.state, ==, IB_PORT_DOWN);
    /* Down alone does not wake a disabled port. */
    info = unchanged(&ca, 1);
    info.state = IB_PORT_DOWN;
    g_assert_cmphex(set_port_info(&ca, 1, 1, &info), ==, 0);
    g_assert_cmpuint(info.phys_state, ==, IB_PHYS_DISABLED);
    g_assert_cmpuint(ca.calls, ==, 0);
    info = unchanged(&ca, 1);
    info.state = IB_PORT_DOWN;
    info.phys_state = IB_PHYS_POLLING;
    g_assert_cmphex(set_port_info(&ca, 1, 1, &info), ==, 0);
    g_assert_cmphex(ca.changes, ==, IB_SMA_CHANGE_PHYS);
    ib_sma_link_up(&ca.sma, 1, 1, 2);
    g_assert_cmpuint(ca.sma.ports[1].info.state, ==, IB_PORT_INIT);
    ib_sma_fini(&ca.sma);
    ib_clock_fini(&clock);
}

/* --- Set(PortInfo) components ------------------------------------------ */

#define OFF(member) offsetof(IbPortInfo, member), \
                    sizeof(((IbPortInfo *)0)->member)

static void poke(IbPortInfo *info, size_t offset, size_t size, uint64_t v)
{
    memcpy((uint8_t *)info + offset, &v, size);
}

static uint64_t peek(const IbPortInfo *info, size_t offset, size_t size)
{
    uint64_t v = 0;

    memcpy(&v, (const uint8_t *)info + offset, size);
    return v;
}

static void test_components(void)
{
    enum { SAME = 0 };
    static const struct {
        size_t offset, size;
        uint64_t set;
        bool legal;
        uint64_t now;                /* afterwards */
        unsigned changes;
    } cases[] = {
        /* LID and LMC: CA port has LID 5 and LMC 0 before. */
        { OFF(lid), 6, true, 6, IB_SMA_CHANGE_LID },
        { OFF(lid), 0xBFFF, true, 0xBFFF, IB_SMA_CHANGE_LID },
        { OFF(lid), 0, false, 5, 0 },
        { OFF(lid), 0xC000, false, 5, 0 },
        { OFF(lid), 0xFFFF, false, 5, 0 },
        { OFF(lmc), 1, false, 0, 0 },            /* LID 5 is odd */
        { OFF(sm_lid), 2, true, 2, IB_SMA_CHANGE_SM },
        { OFF(sm_lid), 0, false, 1, 0 },
        { OFF(sm_lid), 0xC000, false, 1, 0 },
        { OFF(sm_sl), 7, true, 7, IB_SMA_CHANGE_SM },
        { OFF(gid_prefix), 0x1234, true, 0x1234, IB_SMA_CHANGE_GID },
        { OFF(m_key), 99, true, 99, 0 },
        { OFF(m_key_protect), 3, true, 3, 0 },
        { OFF(m_key_lease), 77, true, 77, 0 },
        { OFF(subnet_timeout), 10, true, 10, 0 },
        { OFF(init_type_reply), 3, true, 3, 0 },
        /* The link. */
        { OFF(neighbor_mtu), 1, true, 1, 0 },
        { OFF(neighbor_mtu), 0, false, 4, 0 },
        { OFF(neighbor_mtu), 5, false, 4, 0 },   /* MTUCap is 4 */
        { OFF(width_enabled), 1, true, 1, 0 },
        { OFF(width_enabled), 0, true, 3, 0 },
        { OFF(width_enabled), 0xFF, true, 3, 0 },
        { OFF(width_enabled), 4, false, 3, 0 },
        { OFF(speed_enabled), 1, true, 1, 0 },
        { OFF(speed_enabled), 0, true, 7, 0 },
        { OFF(speed_enabled), 15, true, 7, 0 },
        { OFF(speed_enabled), 8, false, 7, 0 },
        { OFF(down_default), 1, true, 1, 0 },
        { OFF(down_default), 0, true, 2, 0 },
        { OFF(down_default), 3, false, 2, 0 },
        { OFF(operational_vls), 0, true, 1, 0 },
        { OFF(operational_vls), 2, false, 1, 0 },
        { OFF(hoq_life), 7, true, 7, 0 },
        { OFF(vl_stall_count), 7, true, 7, 0 },
        { OFF(vl_high_limit), 200, true, 200, 0 },
        { OFF(part_enf_in), 1, true, 1, 0 },
        { OFF(local_phy_errors), 2, true, 2, 0 },
        { OFF(overrun_errors), 2, true, 2, 0 },
        /* Read only: silently kept. */
        { OFF(capability_mask), 0xFFFFFFFF, true,
          IB_CAP_TRAP | IB_CAP_SYS_IMAGE_GUID | IB_CAP_MASK_NOTICE |
          IB_CAP_CLIENT_REREGISTER, 0 },
        { OFF(mtu_cap), 5, true, 4, 0 },
        { OFF(vl_cap), 5, true, 1, 0 },
        { OFF(guid_cap), 99, true, 8, 0 },
        { OFF(speed_supported), 15, true, 7, 0 },
        { OFF(speed_active), 9, true, 2, 0 },
        { OFF(width_active), 9, true, 2, 0 },
        { OFF(resp_time), 1, true, 18, 0 },
        /* Counters: zero clears, anything else is ignored. */
        { OFF(m_key_violations), 0, true, 0, 0 },
        { OFF(m_key_violations), 3, true, 9, 0 },
        { OFF(p_key_violations), 0, true, 0, 0 },
        { OFF(p_key_violations), 3, true, 9, 0 },
        { OFF(q_key_violations), 0, true, 0, 0 },
        { OFF(client_reregister), 1, true, 1, IB_SMA_CHANGE_REREGISTER },
    };

    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        IbPortInfo info, before, after;
        IbClock clock;
        Node ca;

        ib_clock_init_virtual(&clock);
        node_init(&ca, &clock, IB_NODE_CA, 2);
        ca.sma.ports[2].info.mtu_cap = 4;
        ca.sma.ports[2].info.neighbor_mtu = 4;
        bring_to(&ca, 2, IB_PORT_ACTIVE);
        ca.sma.ports[2].info.m_key_violations = 9;
        ca.sma.ports[2].info.p_key_violations = 9;
        ca.sma.ports[2].info.q_key_violations = 9;
        before = ca.sma.ports[2].info;
        info = unchanged(&ca, 2);
        poke(&info, cases[i].offset, cases[i].size, cases[i].set);
        g_test_message("case %zu", i);
        g_assert_cmphex(set_port_info(&ca, 2, 2, &info), ==,
                        cases[i].legal ? 0 : IB_MAD_STATUS_BAD_FIELD);
        g_assert_cmphex(peek(&info, cases[i].offset, cases[i].size), ==,
                        cases[i].now);
        g_assert_cmphex(ca.changes, ==, cases[i].changes);
        /* Nothing else moved. */
        after = ca.sma.ports[2].info;
        poke(&before, cases[i].offset, cases[i].size, 0);
        poke(&after, cases[i].offset, cases[i].size, 0);
        g_assert_cmpmem(&after, sizeof(after), &before, sizeof(before));
        g_assert_cmpuint(ca.sma.ports[1].info.lid, ==, SAME);
        ib_sma_fini(&ca.sma);
        ib_clock_fini(&clock);
    }
}

/* One illegal component: nothing of the Set happens. */
static void test_all_or_nothing(void)
{
    IbPortInfo info, before;
    IbClock clock;
    Node ca;

    ib_clock_init_virtual(&clock);
    node_init(&ca, &clock, IB_NODE_CA, 1);
    bring_to(&ca, 1, IB_PORT_INIT);
    before = ca.sma.ports[1].info;
    info = unchanged(&ca, 1);
    info.lid = 9;
    info.m_key = 1;
    info.state = IB_PORT_ACTIVE;            /* not from Initialize */
    g_assert_cmphex(set_port_info(&ca, 1, 1, &info), ==,
                    IB_MAD_STATUS_BAD_FIELD);
    g_assert_cmpuint(ca.calls, ==, 0);
    g_assert_cmpmem(&ca.sma.ports[1].info, sizeof(before), &before,
                    sizeof(before));

    /* All of it in one call, and the LID is there when Active is told. */
    info = unchanged(&ca, 1);
    info.lid = 16;
    info.lmc = 4;
    info.sm_lid = 3;
    info.client_reregister = true;
    info.state = IB_PORT_ARMED;
    g_assert_cmphex(set_port_info(&ca, 1, 1, &info), ==, 0);
    g_assert_cmpuint(ca.calls, ==, 1);
    g_assert_cmphex(ca.changes, ==, IB_SMA_CHANGE_STATE | IB_SMA_CHANGE_LID |
                    IB_SMA_CHANGE_SM | IB_SMA_CHANGE_REREGISTER);
    g_assert_cmpuint(ca.seen.lid, ==, 16);
    g_assert_cmpuint(ca.seen.state, ==, IB_PORT_ARMED);
    g_assert_cmpuint(ca.old_state, ==, IB_PORT_INIT);
    /* ClientReregister: in the Set's reply, not in a Get. */
    g_assert_true(info.client_reregister);
    g_assert_cmphex(get_port_info(&ca, 1, 1, &info), ==, 0);
    g_assert_false(info.client_reregister);
    /* A port that cannot do it does not. */
    ca.sma.ports[1].info.capability_mask &= ~IB_CAP_CLIENT_REREGISTER;
    info = unchanged(&ca, 1);
    info.client_reregister = true;
    g_assert_cmphex(set_port_info(&ca, 1, 1, &info), ==, 0);
    g_assert_false(info.client_reregister);
    g_assert_cmphex(ca.changes, ==, 0);
    /* The last LID of the LMC range must be unicast too. */
    info = unchanged(&ca, 1);
    info.lid = 0xBF80;
    info.lmc = 7;
    g_assert_cmphex(set_port_info(&ca, 1, 1, &info), ==, 0);
    info = unchanged(&ca, 1);
    info.lid = 0xBFC0;                      /* not a multiple of 128 */
    g_assert_cmphex(set_port_info(&ca, 1, 1, &info), ==,
                    IB_MAD_STATUS_BAD_FIELD);
    ib_sma_fini(&ca.sma);
    ib_clock_fini(&clock);
}

static void test_switch_ports(void)
{
    IbPortInfo info;
    IbClock clock;
    Node sw;

    ib_clock_init_virtual(&clock);
    node_init(&sw, &clock, IB_NODE_SWITCH, 4);
    g_assert_cmpuint(sw.sma.ports[0].info.state, ==, IB_PORT_INIT);
    g_assert_cmpuint(sw.sma.ports[0].info.phys_state, ==, IB_PHYS_LINK_UP);
    g_assert_cmphex(sw.sma.ports[0].guids[0], ==, SWITCH_GUID);

    /* An external port has no LID: what is sent for it does not matter. */
    ib_sma_link_up(&sw.sma, 3, 1, 2);
    info = unchanged(&sw, 3);
    info.lid = 0xFFFF;
    info.sm_lid = 0xFFFF;
    info.m_key = 5;
    info.state = IB_PORT_ARMED;
    g_assert_cmphex(set_port_info(&sw, 1, 3, &info), ==, 0);
    g_assert_cmphex(sw.changes, ==, IB_SMA_CHANGE_STATE);
    g_assert_cmpuint(sw.sma.ports[3].info.lid, ==, 0);
    g_assert_cmphex(sw.sma.ports[3].info.m_key, ==, 0);
    g_assert_cmpuint(info.local_port, ==, 1);       /* where it came in */

    /* Port 0: Active with its LID; its state cannot be pushed about. */
    info = unchanged(&sw, 0);
    info.lid = 8;
    info.sm_lid = 1;
    g_assert_cmphex(set_port_info(&sw, 1, 0, &info), ==, 0);
    g_assert_cmpuint(info.state, ==, IB_PORT_ACTIVE);
    g_assert_cmphex(sw.changes, ==, IB_SMA_CHANGE_STATE | IB_SMA_CHANGE_LID |
                    IB_SMA_CHANGE_SM);
    g_assert_cmpuint(sw.changed_port, ==, 0);
    info = unchanged(&sw, 0);
    info.state = IB_PORT_DOWN;
    info.phys_state = IB_PHYS_DISABLED;
    g_assert_cmphex(set_port_info(&sw, 1, 0, &info), ==, 0);
    g_assert_cmpuint(info.state, ==, IB_PORT_ACTIVE);
    info = unchanged(&sw, 0);
    info.lmc = 1;                           /* base port 0 has one LID */
    g_assert_cmphex(set_port_info(&sw, 1, 0, &info), ==,
                    IB_MAD_STATUS_BAD_FIELD);
    sw.sma.switch_info.enhanced_port0 = true;
    info = unchanged(&sw, 0);
    info.lmc = 1;
    g_assert_cmphex(set_port_info(&sw, 1, 0, &info), ==, 0);

    g_assert_cmphex(get_port_info(&sw, 2, 5, &info), ==,
                    IB_MAD_STATUS_BAD_FIELD);
    g_assert_cmphex(get_port_info(&sw, 2, 0x80000001, &info), ==,
                    IB_MAD_STATUS_BAD_FIELD);
    ib_sma_fini(&sw.sma);
    ib_clock_fini(&clock);
}

static void test_ca_ports(void)
{
    IbPortInfo info;
    IbClock clock;
    Node ca;

    ib_clock_init_virtual(&clock);
    node_init(&ca, &clock, IB_NODE_CA, 2);
    ca.sma.ports[1].info.lid = 11;
    ca.sma.ports[2].info.lid = 12;
    /* 0 means the port that was asked. */
    g_assert_cmphex(get_port_info(&ca, 2, 0, &info), ==, 0);
    g_assert_cmpuint(info.lid, ==, 12);
    g_assert_cmpuint(info.local_port, ==, 2);
    g_assert_cmphex(get_port_info(&ca, 2, 1, &info), ==, 0);
    g_assert_cmpuint(info.lid, ==, 11);
    g_assert_cmphex(get_port_info(&ca, 2, 3, &info), ==,
                    IB_MAD_STATUS_BAD_FIELD);
    /* Set only through the port itself. */
    info = unchanged(&ca, 1);
    info.lid = 21;
    g_assert_cmphex(set_port_info(&ca, 2, 1, &info), ==,
                    IB_MAD_STATUS_BAD_FIELD);
    g_assert_cmpuint(ca.sma.ports[1].info.lid, ==, 11);
    info = unchanged(&ca, 1);
    info.lid = 21;
    g_assert_cmphex(set_port_info(&ca, 1, 0, &info), ==, 0);
    g_assert_cmpuint(ca.sma.ports[1].info.lid, ==, 21);
    ib_sma_fini(&ca.sma);
    ib_clock_fini(&clock);
}

/* --- Other attributes -------------------------------------------------- */

static void test_attributes(void)
{
    uint8_t data[IB_SMP_DATA_LEN] = { 0 };
    IbSwitchInfo swi;
    IbClock clock;
    Node ca, sw;

    ib_clock_init_virtual(&clock);
    node_init(&ca, &clock, IB_NODE_CA, 2);
    node_init(&sw, &clock, IB_NODE_SWITCH, 4);

    g_assert_cmphex(ask(&ca, 1, IB_METHOD_GET, IB_SM_NODE_DESCRIPTION, 0,
                        data), ==, 0);
    g_assert_cmpstr((char *)data, ==, "test node");
    g_assert_cmphex(ask(&ca, 1, IB_METHOD_SET, IB_SM_NODE_DESCRIPTION, 0,
                        data), ==, IB_MAD_STATUS_BAD_METHOD_ATTR);

    ca.sma.node.vendor_id = 0x5076;
    g_assert_cmphex(ask(&ca, 2, IB_METHOD_GET, IB_SM_NODE_INFO, 0, data), ==,
                    0);
    assert_hex(data, 64, "01 01 01 02 0002c90000000100 0002c90000000100"
               "0002c90000000102 0020 0000 00000000 02 005076"
               "000000000000000000000000000000000000000000000000");
    g_assert_cmphex(ask(&sw, 3, IB_METHOD_GET, IB_SM_NODE_INFO, 0, data), ==,
                    0);
    assert_hex(data, 40, "01 01 02 04 0002c90000000200 0002c90000000200"
               "0002c90000000200 0020 0000 00000000 03 000000");
    g_assert_cmphex(ask(&ca, 1, IB_METHOD_SET, IB_SM_NODE_INFO, 0, data), ==,
                    IB_MAD_STATUS_BAD_METHOD_ATTR);

    /* SwitchInfo. */
    g_assert_cmphex(ask(&ca, 1, IB_METHOD_GET, IB_SM_SWITCH_INFO, 0, data),
                    ==, IB_MAD_STATUS_BAD_METHOD_ATTR);
    ib_sma_link_up(&sw.sma, 1, 1, 2);
    g_assert_cmphex(ask(&sw, 1, IB_METHOD_GET, IB_SM_SWITCH_INFO, 0, data),
                    ==, 0);
    ib_switch_info_unpack(&swi, data);
    g_assert_cmpuint(swi.port_state_change, ==, 1);
    g_assert_cmphex(swi.lft_cap, ==, 0xC000);
    swi.lft_top = 40;
    swi.lft_cap = 1;                        /* read only */
    swi.life_time_value = 9;
    swi.port_state_change = 0;              /* 0 does not clear */
    ib_switch_info_pack(data, &swi);
    g_assert_cmphex(ask(&sw, 1, IB_METHOD_SET, IB_SM_SWITCH_INFO, 0, data),
                    ==, 0);
    ib_switch_info_unpack(&swi, data);
    g_assert_cmpuint(swi.lft_top, ==, 40);
    g_assert_cmphex(swi.lft_cap, ==, 0xC000);
    g_assert_cmpuint(swi.port_state_change, ==, 1);
    swi.port_state_change = 1;
    ib_switch_info_pack(data, &swi);
    g_assert_cmphex(ask(&sw, 1, IB_METHOD_SET, IB_SM_SWITCH_INFO, 0, data),
                    ==, 0);
    g_assert_cmpuint(sw.sma.switch_info.port_state_change, ==, 0);
    swi.lft_top = 0xC000;
    ib_switch_info_pack(data, &swi);
    g_assert_cmphex(ask(&sw, 1, IB_METHOD_SET, IB_SM_SWITCH_INFO, 0, data),
                    ==, IB_MAD_STATUS_BAD_FIELD);
    g_assert_cmpuint(sw.sma.switch_info.lft_top, ==, 40);

    /* GUIDInfo: entry 0 is fixed, one block. */
    g_assert_cmphex(ask(&ca, 1, IB_METHOD_GET, IB_SM_GUID_INFO, 0, data), ==,
                    0);
    g_assert_cmphex(ib_get64(data), ==, CA_GUID + 1);
    ib_put64(data, 0xBAD);
    ib_put64(data + 8, 0x600D);
    ca.calls = 0;
    g_assert_cmphex(ask(&ca, 1, IB_METHOD_SET, IB_SM_GUID_INFO, 0, data), ==,
                    0);
    g_assert_cmphex(ca.sma.ports[1].guids[0], ==, CA_GUID + 1);
    g_assert_cmphex(ca.sma.ports[1].guids[1], ==, 0x600D);
    g_assert_cmphex(ca.changes, ==, IB_SMA_CHANGE_GID);
    g_assert_cmphex(ask(&ca, 1, IB_METHOD_SET, IB_SM_GUID_INFO, 0, data), ==,
                    0);
    g_assert_cmpuint(ca.calls, ==, 1);      /* the same again: no news */
    g_assert_cmphex(ask(&ca, 1, IB_METHOD_GET, IB_SM_GUID_INFO, 1, data), ==,
                    IB_MAD_STATUS_BAD_FIELD);

    /* P_KeyTable. */
    g_assert_cmphex(ask(&ca, 2, IB_METHOD_GET, IB_SM_PKEY_TABLE, 0, data),
                    ==, 0);
    g_assert_cmphex(ib_get16(data), ==, 0xFFFF);
    ib_put16(data + 2 * 31, 0x8123);
    g_assert_cmphex(ask(&ca, 2, IB_METHOD_SET, IB_SM_PKEY_TABLE, 0, data),
                    ==, 0);
    g_assert_cmphex(ca.sma.ports[2].pkeys[31], ==, 0x8123);
    g_assert_cmphex(ca.sma.ports[1].pkeys[31], ==, 0);
    g_assert_cmphex(ca.changes, ==, IB_SMA_CHANGE_PKEY);
    g_assert_cmpuint(ca.changed_port, ==, 2);
    g_assert_cmphex(ask(&ca, 2, IB_METHOD_GET, IB_SM_PKEY_TABLE, 1, data),
                    ==, IB_MAD_STATUS_BAD_FIELD);
    g_assert_cmphex(ask(&sw, 1, IB_METHOD_SET, IB_SM_PKEY_TABLE, 4 << 16,
                        data), ==, 0);
    g_assert_cmphex(sw.sma.ports[4].pkeys[31], ==, 0x8123);
    g_assert_cmphex(ask(&sw, 1, IB_METHOD_SET, IB_SM_PKEY_TABLE, 5 << 16,
                        data), ==, IB_MAD_STATUS_BAD_FIELD);

    /* SLtoVL and VLArb. */
    memset(data, 0x12, sizeof(data));
    g_assert_cmphex(ask(&sw, 1, IB_METHOD_SET, IB_SM_SL_TO_VL, 0x0102, data),
                    ==, 0);
    assert_hex(data, 16, "1212121212121212 0000000000000000");
    g_assert_cmphex(sw.sma.ports[2].sl_to_vl[7], ==, 0x12);
    g_assert_cmphex(ask(&sw, 1, IB_METHOD_GET, IB_SM_SL_TO_VL, 0x0105, data),
                    ==, IB_MAD_STATUS_BAD_FIELD);
    g_assert_cmphex(ask(&sw, 1, IB_METHOD_GET, IB_SM_SL_TO_VL, 0x0501, data),
                    ==, IB_MAD_STATUS_BAD_FIELD);
    memset(data, 0x34, sizeof(data));
    g_assert_cmphex(ask(&ca, 1, IB_METHOD_SET, IB_SM_VL_ARB, 4 << 16, data),
                    ==, 0);
    g_assert_cmphex(ca.sma.ports[1].vl_arb[3][63], ==, 0x34);
    g_assert_cmphex(ask(&ca, 1, IB_METHOD_GET, IB_SM_VL_ARB, 0, data), ==,
                    IB_MAD_STATUS_BAD_FIELD);
    g_assert_cmphex(ask(&ca, 1, IB_METHOD_GET, IB_SM_VL_ARB, 5 << 16, data),
                    ==, IB_MAD_STATUS_BAD_FIELD);

    /* What the owner keeps, and what nobody knows. */
    g_assert_cmphex(ask(&sw, 1, IB_METHOD_SET, IB_SM_LINEAR_FT, 6, data), ==,
                    0);
    g_assert_cmphex(data[0], ==, 7);
    g_assert_true(sw.owner_set);
    g_assert_cmphex(ask(&sw, 1, IB_METHOD_GET, IB_SM_SM_INFO, 0, data), ==,
                    IB_MAD_STATUS_BAD_METHOD_ATTR);
    g_assert_cmphex(sw.owner_attr, ==, IB_SM_SM_INFO);
    g_assert_cmphex(ask(&sw, 1, IB_METHOD_GET, 0xFF00, 0, data), ==,
                    IB_MAD_STATUS_BAD_METHOD_ATTR);
    sw.sma.ops = &no_ops;
    g_assert_cmphex(ask(&sw, 1, IB_METHOD_GET, IB_SM_LINEAR_FT, 0, data), ==,
                    IB_MAD_STATUS_BAD_METHOD_ATTR);
    ib_sma_fini(&ca.sma);
    ib_sma_fini(&sw.sma);
    ib_clock_fini(&clock);
}

static void test_headers(void)
{
    const IbMadAddress from = { .slid = 3, .dlid = 6 };
    static const struct {
        uint8_t base, class, class_version, method;
        IbSmaVerdict verdict;
        uint16_t status;
    } cases[] = {
        { 1, 0x01, 1, IB_METHOD_GET, IB_SMA_REPLY, 0 },
        { 2, 0x01, 1, IB_METHOD_GET, IB_SMA_REPLY, 0x0004 },
        { 1, 0x01, 2, IB_METHOD_GET, IB_SMA_REPLY, 0x0004 },
        { 1, 0x01, 1, IB_METHOD_SEND, IB_SMA_REPLY, 0x0008 },
        { 1, 0x01, 1, 0x7F, IB_SMA_REPLY, 0x0008 },
        /* Never an answer to an answer. */
        { 1, 0x01, 1, IB_METHOD_GET_RESP, IB_SMA_DELIVER, 0 },
        { 1, 0x01, 1, 0x82, IB_SMA_DELIVER, 0 },
        { 2, 0x01, 9, 0x81, IB_SMA_DELIVER, 0 },
        { 1, 0x01, 1, IB_METHOD_TRAP, IB_SMA_DELIVER, 0 },
        { 1, 0x01, 1, IB_METHOD_TRAP_REPRESS, IB_SMA_DROP, 0 },
        { 1, 0x04, 1, IB_METHOD_GET, IB_SMA_DROP, 0 },
        { 1, 0x07, 2, IB_METHOD_SEND, IB_SMA_DROP, 0 },
    };
    IbClock clock;
    Node ca;

    ib_clock_init_virtual(&clock);
    node_init(&ca, &clock, IB_NODE_CA, 1);
    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        const IbSmp smp = {
            .hdr = { .base_version = cases[i].base,
                     .mgmt_class = cases[i].class,
                     .class_version = cases[i].class_version,
                     .method = cases[i].method,
                     .attr_id = IB_SM_NODE_INFO },
        };
        uint8_t mad[IB_MAD_LEN] = { 0 };
        IbMadAddress to;
        unsigned out;

        ib_smp_pack(mad, &smp);
        g_assert_cmpint(ib_sma_receive(&ca.sma, 1, &from, mad, &out, &to),
                        ==, cases[i].verdict);
        if (cases[i].verdict == IB_SMA_REPLY) {
            g_assert_cmphex(ib_get16(mad + 4), ==, cases[i].status);
            g_assert_cmphex(mad[3], ==, IB_METHOD_GET_RESP);
        }
    }
    ib_sma_fini(&ca.sma);
    ib_clock_fini(&clock);
}

/* The reply leaves with the LID that was asked, within the LMC range. */
static void test_reply_lid(void)
{
    IbMadAddress from = { .slid = 3, .sl = 5 }, to;
    static const struct {
        uint16_t asked, slid;
    } cases[] = { { 16, 16 }, { 19, 19 }, { 20, 16 }, { 0xFFFF, 16 } };
    IbClock clock;
    Node ca;

    ib_clock_init_virtual(&clock);
    node_init(&ca, &clock, IB_NODE_CA, 1);
    ca.sma.ports[1].info.lid = 16;
    ca.sma.ports[1].info.lmc = 2;
    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        const IbSmp smp = { .hdr = { .base_version = 1, .mgmt_class = 1,
                                     .class_version = 1, .method = 1,
                                     .attr_id = IB_SM_NODE_INFO } };
        uint8_t mad[IB_MAD_LEN] = { 0 };
        unsigned out;

        ib_smp_pack(mad, &smp);
        from.dlid = cases[i].asked;
        g_assert_cmpint(ib_sma_receive(&ca.sma, 1, &from, mad, &out, &to),
                        ==, IB_SMA_REPLY);
        g_assert_cmpuint(to.slid, ==, cases[i].slid);
        g_assert_cmpuint(to.dlid, ==, 3);
        g_assert_cmpuint(to.sl, ==, 5);
    }
    ib_sma_fini(&ca.sma);
    ib_clock_fini(&clock);
}

/* --- M_Key ------------------------------------------------------------- */

static void test_m_key(void)
{
    enum { KEY = 0x1234, OTHER = 0x9999 };
    static const struct {
        uint8_t protect, method;
        uint64_t offered;
        bool answered;
        uint64_t shown;              /* M_Key in the reply */
    } cases[] = {
        { 0, IB_METHOD_GET, OTHER, true, KEY },
        { 0, IB_METHOD_GET, KEY, true, KEY },
        { 0, IB_METHOD_SET, OTHER, false, 0 },
        { 0, IB_METHOD_SET, KEY, true, KEY },
        { 1, IB_METHOD_GET, OTHER, true, 0 },
        { 1, IB_METHOD_GET, KEY, true, KEY },
        { 1, IB_METHOD_SET, OTHER, false, 0 },
        { 1, IB_METHOD_SET, KEY, true, KEY },
        { 2, IB_METHOD_GET, OTHER, false, 0 },
        { 2, IB_METHOD_GET, KEY, true, KEY },
        { 2, IB_METHOD_SET, 0, false, 0 },
        { 2, IB_METHOD_SET, KEY, true, KEY },
        { 3, IB_METHOD_GET, OTHER, false, 0 },
        { 3, IB_METHOD_GET, KEY, true, KEY },
    };

    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        uint8_t data[IB_SMP_DATA_LEN];
        IbPortInfo info;
        IbNotice notice;
        IbClock clock;
        Node ca;

        ib_clock_init_virtual(&clock);
        node_init(&ca, &clock, IB_NODE_CA, 1);
        bring_to(&ca, 1, IB_PORT_ACTIVE);
        ca.sma.ports[1].info.m_key = KEY;
        ca.sma.ports[1].info.m_key_protect = cases[i].protect;
        info = unchanged(&ca, 1);
        ib_port_info_pack(data, &info);
        g_assert_cmphex(ask_key(&ca, 1, cases[i].method, IB_SM_PORT_INFO, 1,
                                cases[i].offered, data), ==,
                        cases[i].answered ? 0 : NO_REPLY);
        g_assert_cmpuint(ca.sma.ports[1].info.m_key_violations, ==,
                         !cases[i].answered);
        g_assert_cmpuint(ca.traps, ==, !cases[i].answered);
        if (cases[i].answered) {
            ib_port_info_unpack(&info, data);
            g_assert_cmphex(info.m_key, ==, cases[i].shown);
        } else {
            ib_notice_unpack(&notice, ca.trap + IB_SMP_DATA_OFFSET,
                             IB_SMP_DATA_LEN);
            g_assert_cmpuint(notice.trap, ==, IB_TRAP_BAD_MKEY);
            g_assert_cmpuint(notice.type, ==, IB_NOTICE_SECURITY);
            g_assert_cmpuint(ib_get16(notice.details + 2), ==, 77);
            g_assert_cmpuint(notice.details[6], ==, cases[i].method);
            g_assert_cmphex(ib_get16(notice.details + 8), ==,
                            IB_SM_PORT_INFO);
            g_assert_cmphex(ib_get64(notice.details + 14), ==,
                            cases[i].offered);
        }
        ib_sma_fini(&ca.sma);
        ib_clock_fini(&clock);
    }
}

static void test_m_key_lease(void)
{
    uint8_t data[IB_SMP_DATA_LEN] = { 0 };
    IbPortInfo info;
    IbClock clock;
    Node ca;

    ib_clock_init_virtual(&clock);
    node_init(&ca, &clock, IB_NODE_CA, 1);
    bring_to(&ca, 1, IB_PORT_ACTIVE);
    ca.sma.ports[1].info.m_key = 7;
    ca.sma.ports[1].info.m_key_protect = 2;
    ca.sma.ports[1].info.m_key_lease = 10;       /* seconds */
    g_assert_cmphex(ask_key(&ca, 1, IB_METHOD_GET, IB_SM_PORT_INFO, 1, 8,
                            data), ==, NO_REPLY);
    /* The right key stops the countdown. */
    ib_clock_set(&clock, 9 * IB_SEC);
    g_assert_cmphex(ask_key(&ca, 1, IB_METHOD_GET, IB_SM_PORT_INFO, 1, 7,
                            data), ==, 0);
    ib_clock_set(&clock, 11 * IB_SEC);
    g_assert_cmphex(ask_key(&ca, 1, IB_METHOD_GET, IB_SM_PORT_INFO, 1, 8,
                            data), ==, NO_REPLY);
    ib_clock_set(&clock, 20 * IB_SEC);
    g_assert_cmphex(ask_key(&ca, 1, IB_METHOD_GET, IB_SM_PORT_INFO, 1, 8,
                            data), ==, NO_REPLY);
    /* Ten seconds without it: protection falls to level 0. */
    ib_clock_set(&clock, 21 * IB_SEC);
    g_assert_cmphex(ask_key(&ca, 1, IB_METHOD_GET, IB_SM_PORT_INFO, 1, 8,
                            data), ==, 0);
    ib_port_info_unpack(&info, data);
    g_assert_cmpuint(info.m_key_protect, ==, 0);
    g_assert_cmphex(info.m_key, ==, 7);
    ib_sma_fini(&ca.sma);
    ib_clock_fini(&clock);
}

/* --- Directed route ---------------------------------------------------- */

/*
 * SM's host A (port 1) - 1 S1 3 - 2 S2 4 - 2 B (a CA with two ports).
 * S1's LID is 10, S2's 20.
 */
typedef struct Fabric {
    IbClock clock;
    Node a, s1, s2, b;
} Fabric;

static void fabric_init(Fabric *f)
{
    ib_clock_init_virtual(&f->clock);
    node_init(&f->a, &f->clock, IB_NODE_CA, 1);
    node_init(&f->s1, &f->clock, IB_NODE_SWITCH, 4);
    node_init(&f->s2, &f->clock, IB_NODE_SWITCH, 4);
    node_init(&f->b, &f->clock, IB_NODE_CA, 2);
    f->a.sma.ports[1].info.lid = 1;
    f->s1.sma.ports[0].info.lid = 10;
    f->s2.sma.ports[0].info.lid = 20;
    f->b.sma.ports[2].info.lid = 30;
}

static void fabric_fini(Fabric *f)
{
    ib_sma_fini(&f->a.sma);
    ib_sma_fini(&f->s1.sma);
    ib_sma_fini(&f->s2.sma);
    ib_sma_fini(&f->b.sma);
    ib_clock_fini(&f->clock);
}

static void directed(uint8_t *mad, uint8_t method, uint16_t attr,
                     uint32_t mod, const uint8_t *path, unsigned hops)
{
    const IbSmp smp = {
        .hdr = { .base_version = 1, .mgmt_class = IB_CLASS_SM_DR,
                 .class_version = 1, .method = method, .hop_count = hops,
                 .tid = 0x42, .attr_id = attr, .attr_mod = mod },
        .dr_slid = IB_LID_PERMISSIVE, .dr_dlid = IB_LID_PERMISSIVE,
    };

    memset(mad, 0, IB_MAD_LEN);
    ib_smp_pack(mad, &smp);
    for (unsigned i = 0; i < hops; i++) {
        mad[IB_SMP_INITIAL_PATH_OFFSET + 1 + i] = path[i];
    }
}

static const IbMadAddress permissive = {
    .slid = IB_LID_PERMISSIVE, .dlid = IB_LID_PERMISSIVE,
    .vl = IB_VL_MANAGEMENT, .pkey = IB_PKEY_DEFAULT,
};

/* One step; checks the permissive address and returns the port, -1: drop. */
static int step(Node *node, unsigned in_port, uint8_t *mad,
                IbSmaVerdict want)
{
    unsigned out_port = 99;
    IbMadAddress to;

    g_assert_cmpint(ib_sma_receive(&node->sma, in_port, &permissive, mad,
                                   &out_port, &to), ==, want);
    if (want != IB_SMA_REPLY && want != IB_SMA_FORWARD) {
        return -1;
    }
    g_assert_cmphex(to.slid, ==, IB_LID_PERMISSIVE);
    g_assert_cmphex(to.dlid, ==, IB_LID_PERMISSIVE);
    g_assert_cmpuint(to.vl, ==, IB_VL_MANAGEMENT);
    g_assert_cmphex(to.pkey, ==, IB_PKEY_DEFAULT);
    return out_port;
}

static void test_directed_walk(void)
{
    static const uint8_t path[] = { 1, 3, 4 };
    uint8_t mad[IB_MAD_LEN];
    Fabric f;

    fabric_init(&f);
    directed(mad, IB_METHOD_GET, IB_SM_NODE_INFO, 0, path, 3);
    g_assert_cmpint(ib_smp_send_directed(mad), ==, 1);
    g_assert_cmpuint(mad[6], ==, 1);
    g_assert_cmpint(step(&f.s1, 1, mad, IB_SMA_FORWARD), ==, 3);
    g_assert_cmpuint(mad[6], ==, 2);
    g_assert_cmpint(step(&f.s2, 2, mad, IB_SMA_FORWARD), ==, 4);
    g_assert_cmpuint(mad[6], ==, 3);
    /* At B: answered, turned round, out of the port it came in. */
    g_assert_cmpint(step(&f.b, 2, mad, IB_SMA_REPLY), ==, 2);
    assert_hex(mad, 24, "01 81 01 81 8000 03 03 0000000000000042"
               "0011 0000 00000000");
    /* Return path: where it came in at S1, S2, B. */
    assert_hex(mad + IB_SMP_RETURN_PATH_OFFSET, 8, "00 01 02 02 00000000");
    assert_hex(mad + IB_SMP_INITIAL_PATH_OFFSET, 8, "00 01 03 04 00000000");
    g_assert_cmphex(ib_get64(mad + IB_SMP_DATA_OFFSET + 20), ==,
                    CA_GUID + 2);
    g_assert_cmpint(step(&f.s2, 4, mad, IB_SMA_FORWARD), ==, 2);
    g_assert_cmpuint(mad[6], ==, 2);
    g_assert_cmpint(step(&f.s1, 3, mad, IB_SMA_FORWARD), ==, 1);
    g_assert_cmpuint(mad[6], ==, 1);
    g_assert_cmpint(step(&f.a, 1, mad, IB_SMA_DELIVER), ==, -1);
    g_assert_cmpuint(mad[6], ==, 0);
    fabric_fini(&f);
}

static void test_directed_to_switch(void)
{
    static const uint8_t path[] = { 1, 3 };
    uint8_t mad[IB_MAD_LEN];
    IbPortInfo info;
    Fabric f;

    fabric_init(&f);
    /* One hop. */
    directed(mad, IB_METHOD_GET, IB_SM_SWITCH_INFO, 0, path, 1);
    g_assert_cmpint(ib_smp_send_directed(mad), ==, 1);
    g_assert_cmpint(step(&f.s1, 1, mad, IB_SMA_REPLY), ==, 1);
    g_assert_cmphex(ib_get16(mad + 4), ==, 0x8000);
    g_assert_cmpuint(mad[6], ==, 1);
    g_assert_cmpint(step(&f.a, 1, mad, IB_SMA_DELIVER), ==, -1);

    /* Two hops, a Set, with a status: D bit and status together. */
    directed(mad, IB_METHOD_SET, IB_SM_PORT_INFO, 3, path, 2);
    info = unchanged(&f.s2, 3);
    info.state = IB_PORT_ACTIVE;
    ib_port_info_pack(mad + IB_SMP_DATA_OFFSET, &info);
    g_assert_cmpint(ib_smp_send_directed(mad), ==, 1);
    g_assert_cmpint(step(&f.s1, 1, mad, IB_SMA_FORWARD), ==, 3);
    g_assert_cmpint(step(&f.s2, 2, mad, IB_SMA_REPLY), ==, 2);
    g_assert_cmphex(ib_get16(mad + 4), ==, 0x801C);
    g_assert_cmpint(step(&f.s1, 3, mad, IB_SMA_FORWARD), ==, 1);

    /* No hop: asked on the spot, and not for a key. */
    f.a.sma.ports[1].info.m_key = 0x1234;
    f.a.sma.ports[1].info.m_key_protect = 3;
    directed(mad, IB_METHOD_GET, IB_SM_NODE_INFO, 0, path, 1);
    mad[6] = 1;
    g_assert_cmpint(step(&f.a, 1, mad, IB_SMA_DROP), ==, -1);
    directed(mad, IB_METHOD_GET, IB_SM_NODE_INFO, 0, NULL, 0);
    g_assert_cmpint(ib_smp_send_directed(mad), ==, -1);
    g_assert_cmpint(step(&f.a, 0, mad, IB_SMA_REPLY), ==, 0);
    g_assert_cmphex(ib_get64(mad + IB_SMP_DATA_OFFSET + 20), ==,
                    CA_GUID + 1);
    g_assert_cmpuint(mad[6], ==, 0);
    fabric_fini(&f);
}

static void test_directed_bad(void)
{
    static const uint8_t path[] = { 1, 9, 1, 1 };
    static const struct {
        uint8_t hops, pointer;
        bool returning;
    } cases[] = {
        { 2, 1, false },         /* S1 has no port 9 */
        { 4, 3, false },         /* path goes on to a port 0 */
        { 1, 3, false },         /* pointer beyond count + 1 */
        { 1, 255, false },
        { 64, 1, false },        /* paths have 63 hops at most */
        { 255, 255, false },
        { 1, 3, true },
        { 64, 2, true },
        { 3, 3, true },          /* return path names no port */
    };
    uint8_t mad[IB_MAD_LEN];
    Fabric f;

    fabric_init(&f);
    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        directed(mad, cases[i].returning ? IB_METHOD_GET_RESP
                 : IB_METHOD_GET, IB_SM_NODE_INFO, 0, path, 4);
        mad[6] = cases[i].pointer;
        mad[7] = cases[i].hops;
        mad[4] = cases[i].returning ? 0x80 : 0;
        mad[IB_SMP_INITIAL_PATH_OFFSET + 4] = 0;
        step(&f.s1, 1, mad, IB_SMA_DROP);
    }
    g_assert_cmpuint(f.s1.sma.ports[1].counters.vl15_dropped, ==,
                     G_N_ELEMENTS(cases));
    /* A CA passes nothing on, either way. */
    directed(mad, IB_METHOD_GET, IB_SM_NODE_INFO, 0, path, 3);
    mad[6] = 1;
    step(&f.b, 1, mad, IB_SMA_DROP);
    directed(mad, IB_METHOD_GET_RESP, IB_SM_NODE_INFO, 0, path, 3);
    mad[4] = 0x80;
    mad[6] = 2;
    step(&f.b, 1, mad, IB_SMA_DROP);
    /* A port that is not there. */
    step(&f.b, 3, mad, IB_SMA_DROP);
    g_assert_cmpint(({ mad[7] = 64; ib_smp_send_directed(mad); }), ==, -1);
    fabric_fini(&f);
}

/* Longest route: 63 hops through one switch's ports 1 and 2. */
static void test_directed_longest(void)
{
    uint8_t path[63], mad[IB_MAD_LEN];
    unsigned out = 1;
    Fabric f;

    fabric_init(&f);
    memset(path, 2, sizeof(path));
    path[0] = 1;
    directed(mad, IB_METHOD_GET, IB_SM_NODE_INFO, 0, path, 63);
    g_assert_cmpint(ib_smp_send_directed(mad), ==, 1);
    for (unsigned hop = 1; hop < 63; hop++) {
        g_assert_cmpint(step(&f.s1, 1, mad, IB_SMA_FORWARD), ==, 2);
        g_assert_cmpuint(mad[6], ==, hop + 1);
    }
    g_assert_cmpint(step(&f.s2, 1, mad, IB_SMA_REPLY), ==, 1);
    for (unsigned hop = 63; hop > 1; hop--) {
        g_assert_cmpuint(mad[6], ==, hop);
        out = step(&f.s1, 2, mad, IB_SMA_FORWARD);
        g_assert_cmpuint(out, ==, 1);
    }
    step(&f.a, 1, mad, IB_SMA_DELIVER);
    fabric_fini(&f);
}

/* Directed part in the middle: DrSLID and DrDLID (14.2.2.1). */
static void test_directed_with_lids(void)
{
    static const uint8_t path[] = { 3 };
    IbMadAddress from = permissive, to;
    uint8_t mad[IB_MAD_LEN];
    unsigned out;
    Fabric f;

    fabric_init(&f);
    /* By LID from 1 to S1 (10), by path out of 3 to S2, by LID to B (30). */
    directed(mad, IB_METHOD_GET, IB_SM_NODE_INFO, 0, path, 1);
    ib_put16(mad + 32, 1);
    ib_put16(mad + 34, 30);
    from.slid = 1;
    from.dlid = 10;
    g_assert_cmpint(ib_sma_receive(&f.s1.sma, 1, &from, mad, &out, &to), ==,
                    IB_SMA_FORWARD);
    g_assert_cmpuint(out, ==, 3);
    g_assert_cmpuint(mad[6], ==, 1);
    g_assert_cmphex(to.dlid, ==, IB_LID_PERMISSIVE);
    g_assert_cmpint(ib_sma_receive(&f.s2.sma, 2, &to, mad, &out, &to), ==,
                    IB_SMA_FORWARD);
    g_assert_cmpuint(out, ==, 0);
    g_assert_cmpuint(to.slid, ==, 20);
    g_assert_cmpuint(to.dlid, ==, 30);
    g_assert_cmpuint(mad[6], ==, 2);
    from = to;
    g_assert_cmpint(ib_sma_receive(&f.b.sma, 2, &from, mad, &out, &to), ==,
                    IB_SMA_REPLY);
    g_assert_cmpuint(out, ==, 2);
    g_assert_cmpuint(to.slid, ==, 30);
    g_assert_cmpuint(to.dlid, ==, 20);
    g_assert_cmpuint(mad[6], ==, 2);
    /* Back at S2 by LID: onto the return path. */
    from = to;
    g_assert_cmpint(ib_sma_receive(&f.s2.sma, 4, &from, mad, &out, &to), ==,
                    IB_SMA_FORWARD);
    g_assert_cmpuint(out, ==, 2);
    g_assert_cmphex(to.dlid, ==, IB_LID_PERMISSIVE);
    g_assert_cmpuint(mad[6], ==, 1);
    /* S1 is the end of it: on to DrSLID. */
    g_assert_cmpint(ib_sma_receive(&f.s1.sma, 3, &to, mad, &out, &to), ==,
                    IB_SMA_FORWARD);
    g_assert_cmpuint(out, ==, 0);
    g_assert_cmpuint(to.slid, ==, 10);
    g_assert_cmpuint(to.dlid, ==, 1);
    g_assert_cmpuint(mad[6], ==, 0);
    from = to;
    g_assert_cmpint(ib_sma_receive(&f.a.sma, 1, &from, mad, &out, &to), ==,
                    IB_SMA_DELIVER);

    /* DrDLID is the switch itself. */
    directed(mad, IB_METHOD_GET, IB_SM_NODE_INFO, 0, path, 1);
    ib_put16(mad + 34, 20);
    mad[6] = 1;
    g_assert_cmpint(step(&f.s2, 2, mad, IB_SMA_REPLY), ==, 2);
    /* A CA at the path's end that is not meant. */
    directed(mad, IB_METHOD_GET, IB_SM_NODE_INFO, 0, path, 1);
    ib_put16(mad + 34, 20);
    mad[6] = 1;
    step(&f.b, 2, mad, IB_SMA_DROP);
    /* DrDLID that is no LID. */
    directed(mad, IB_METHOD_GET, IB_SM_NODE_INFO, 0, path, 1);
    ib_put16(mad + 34, 0xC000);
    mad[6] = 1;
    step(&f.s2, 2, mad, IB_SMA_DROP);
    fabric_fini(&f);
}

/* --- Traps ------------------------------------------------------------- */

static void run_to(Node *node, int64_t ns)
{
    ib_clock_set(node->clock, ns);
    ib_clock_run(node->clock, 100);
}

static void repress(Node *node, uint64_t tid)
{
    const IbMadAddress from = { .slid = 1, .dlid = 5 };
    const IbSmp smp = {
        .hdr = { .base_version = 1, .mgmt_class = IB_CLASS_SM_LID,
                 .class_version = 1, .method = IB_METHOD_TRAP_REPRESS,
                 .tid = tid, .attr_id = IB_ATTR_NOTICE },
    };
    uint8_t mad[IB_MAD_LEN] = { 0 };
    IbMadAddress to;
    unsigned out;

    ib_smp_pack(mad, &smp);
    g_assert_cmpint(ib_sma_receive(&node->sma, 1, &from, mad, &out, &to), ==,
                    IB_SMA_DROP);
}

static uint64_t trap_tid(const Node *node)
{
    return ib_get64(node->trap + 8);
}

static void test_trap_128(void)
{
    IbPortInfo info;
    IbClock clock;
    Node sw;

    ib_clock_init_virtual(&clock);
    node_init(&sw, &clock, IB_NODE_SWITCH, 4);
    /* No LID, no SM: nobody to tell. */
    ib_sma_link_up(&sw.sma, 1, 1, 2);
    g_assert_cmpuint(sw.traps, ==, 0);
    g_assert_cmpuint(sw.sma.switch_info.port_state_change, ==, 1);
    info = unchanged(&sw, 0);
    info.lid = 8;
    info.sm_lid = 0x0102;
    info.sm_sl = 3;
    g_assert_cmphex(set_port_info(&sw, 1, 0, &info), ==, 0);
    run_to(&sw, 10 * SUBNET_TIMEOUT_18);
    g_assert_cmpuint(sw.traps, ==, 0);

    ib_sma_link_down(&sw.sma, 1);
    g_assert_cmpuint(sw.traps, ==, 1);
    g_assert_cmpuint(sw.trap_port, ==, 0);
    assert_hex(sw.trap, 24, "01 01 01 05 0000 0000 0000000000000001"
               "0002 0000 00000000");
    assert_hex(sw.trap + 24, 40, "0000000000000000 00000000"
               "00000000000000000000000000000000000000000000000000000000");
    assert_hex(sw.trap + IB_SMP_DATA_OFFSET, 14,
               "81 000002 0080 0008 0000 0008 0000");
    g_assert_cmpuint(sw.trap_to.slid, ==, 8);
    g_assert_cmpuint(sw.trap_to.dlid, ==, 0x0102);
    g_assert_cmpuint(sw.trap_to.sl, ==, 3);
    g_assert_cmpuint(sw.trap_to.vl, ==, IB_VL_MANAGEMENT);
    g_assert_cmpuint(sw.trap_to.dest_qpn, ==, 0);
    g_assert_cmphex(sw.trap_to.pkey, ==, IB_PKEY_DEFAULT);
    /* An SM's own doing is no news: Set does not trap. */
    repress(&sw, 1);
    run_to(&sw, 20 * SUBNET_TIMEOUT_18);
    g_assert_cmpuint(sw.traps, ==, 1);
    ib_sma_link_up(&sw.sma, 1, 1, 2);
    g_assert_cmpuint(sw.traps, ==, 2);
    repress(&sw, trap_tid(&sw));
    run_to(&sw, 30 * SUBNET_TIMEOUT_18);
    set_state(&sw, 1, IB_PORT_ARMED);
    set_state(&sw, 1, IB_PORT_ACTIVE);
    info = unchanged(&sw, 1);
    info.phys_state = IB_PHYS_DISABLED;
    g_assert_cmphex(set_port_info(&sw, 1, 1, &info), ==, 0);
    g_assert_cmpuint(sw.traps, ==, 2);
    ib_sma_fini(&sw.sma);
    ib_clock_fini(&clock);
}

static void test_trap_resend_and_repress(void)
{
    const int64_t t = SUBNET_TIMEOUT_18;
    uint8_t details[54] = { 0 };
    IbClock clock;
    Node ca;

    ib_clock_init_virtual(&clock);
    node_init(&ca, &clock, IB_NODE_CA, 1);
    bring_to(&ca, 1, IB_PORT_ACTIVE);
    details[3] = 0x11;
    ib_sma_trap(&ca.sma, 1, IB_TRAP_BAD_PKEY, details);
    g_assert_cmpuint(ca.traps, ==, 1);
    g_assert_cmphex(ca.trap[64 + 13], ==, 0x11);
    run_to(&ca, t - 1);
    g_assert_cmpuint(ca.traps, ==, 1);
    run_to(&ca, t);
    g_assert_cmpuint(ca.traps, ==, 2);       /* the same again */
    g_assert_cmphex(trap_tid(&ca), ==, 1);
    repress(&ca, 99);                        /* somebody else's */
    run_to(&ca, 2 * t);
    g_assert_cmpuint(ca.traps, ==, 3);
    repress(&ca, 1);
    run_to(&ca, 50 * t);
    g_assert_cmpuint(ca.traps, ==, 3);

    /* Many events in a moment: one now, the last one a period later. */
    details[3] = 0x21;
    ib_sma_trap(&ca.sma, 1, IB_TRAP_BAD_PKEY, details);
    for (unsigned i = 0; i < 100; i++) {
        details[3] = 0x22 + i;
        ib_sma_trap(&ca.sma, 1, IB_TRAP_BAD_PKEY, details);
    }
    g_assert_cmpuint(ca.traps, ==, 4);
    g_assert_cmphex(ca.trap[64 + 13], ==, 0x21);
    /* The repress of the first does not stop the later one. */
    repress(&ca, trap_tid(&ca));
    run_to(&ca, 51 * t);
    g_assert_cmpuint(ca.traps, ==, 5);
    g_assert_cmphex(ca.trap[64 + 13], ==, 0x22 + 99);
    repress(&ca, trap_tid(&ca));
    /* Repressed, but a new one still has to wait for its turn. */
    ib_sma_trap(&ca.sma, 1, IB_TRAP_BAD_PKEY, details);
    g_assert_cmpuint(ca.traps, ==, 5);
    run_to(&ca, 52 * t);
    g_assert_cmpuint(ca.traps, ==, 6);
    repress(&ca, trap_tid(&ca));
    /* Different kinds do not wait for each other. */
    ib_sma_trap(&ca.sma, 1, IB_TRAP_BAD_QKEY, NULL);
    g_assert_cmpuint(ca.traps, ==, 7);
    repress(&ca, trap_tid(&ca));
    run_to(&ca, 60 * t);

    /* Nobody answers: given up after ten. */
    ca.traps = 0;
    ib_sma_trap(&ca.sma, 1, IB_TRAP_BAD_PKEY, details);
    for (unsigned i = 61; i < 100; i++) {
        run_to(&ca, i * t);
    }
    g_assert_cmpuint(ca.traps, ==, IB_SMA_TRAP_TRIES);
    g_assert_cmpint(ib_clock_deadline(&clock), ==, IB_CLOCK_NEVER);
    g_assert_cmpuint(ca.sma.traps_lost, ==, 1);

    /* The port goes down: the rest of the tries is off. */
    ca.traps = 0;
    ib_sma_trap(&ca.sma, 1, IB_TRAP_BAD_PKEY, details);
    ib_sma_link_down(&ca.sma, 1);
    run_to(&ca, 200 * t);
    g_assert_cmpuint(ca.traps, ==, 1);
    ib_sma_trap(&ca.sma, 1, IB_TRAP_BAD_PKEY, details);
    run_to(&ca, 300 * t);
    g_assert_cmpuint(ca.traps, ==, 1);
    g_assert_cmpint(ib_clock_deadline(&clock), ==, IB_CLOCK_NEVER);
    ib_sma_fini(&ca.sma);
    ib_clock_fini(&clock);
}

static void test_trap_when(void)
{
    static const struct {
        unsigned state;
        uint16_t sm_lid;
        bool sent;
    } cases[] = {
        { IB_PORT_DOWN, 1, false },
        { IB_PORT_INIT, 1, false },
        { IB_PORT_ARMED, 1, false },
        { IB_PORT_ACTIVE, 1, true },
        { IB_PORT_ACTIVE, 0, false },
        { IB_PORT_ACTIVE, 0xFFFF, false },
    };

    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        IbClock clock;
        Node ca;

        ib_clock_init_virtual(&clock);
        node_init(&ca, &clock, IB_NODE_CA, 1);
        bring_to(&ca, 1, cases[i].state);
        ca.sma.ports[1].info.sm_lid = cases[i].sm_lid;
        ib_sma_trap(&ca.sma, 1, IB_TRAP_BAD_QKEY, NULL);
        g_assert_cmpuint(ca.traps, ==, cases[i].sent);
        ib_sma_fini(&ca.sma);
        ib_clock_fini(&clock);
    }
}

static void test_capability(void)
{
    IbClock clock;
    Node ca;

    ib_clock_init_virtual(&clock);
    node_init(&ca, &clock, IB_NODE_CA, 2);
    ib_sma_set_capability(&ca.sma, 1, 0x10);
    g_assert_cmpuint(ca.traps, ==, 0);       /* not Active */
    bring_to(&ca, 1, IB_PORT_ACTIVE);
    bring_to(&ca, 2, IB_PORT_ACTIVE);
    ib_sma_set_capability(&ca.sma, 1, 0x10);
    g_assert_cmpuint(ca.traps, ==, 0);       /* nothing changed */
    ib_sma_set_capability(&ca.sma, 1, 0x02010848);
    g_assert_cmpuint(ca.traps, ==, 1);
    assert_hex(ca.trap + IB_SMP_DATA_OFFSET, 22,
               "84 000001 0090 0005 0000 0000 0005 00 00 02010848 0000");
    /* Two ports, two traps. */
    ib_sma_set_capability(&ca.sma, 2, 0x30);
    g_assert_cmpuint(ca.traps, ==, 2);
    g_assert_cmpuint(ca.trap_port, ==, 2);
    ib_sma_fini(&ca.sma);
    ib_clock_fini(&clock);
}

/* --- Performance agent ------------------------------------------------- */

static unsigned pma(Node *node, uint8_t method, uint16_t attr,
                    uint8_t port_select, uint16_t counter_select,
                    uint8_t *data)
{
    const IbMadHeader header = {
        .base_version = 1, .mgmt_class = IB_CLASS_PM, .class_version = 1,
        .method = method, .tid = 0x77, .attr_id = attr,
    };
    uint8_t mad[IB_MAD_LEN] = { 0 };

    ib_mad_header_pack(mad, &header);
    mad[IB_PM_DATA_OFFSET + 1] = port_select;
    ib_put16(mad + IB_PM_DATA_OFFSET + 2, counter_select);
    if (!ib_pma_receive(&node->sma, 1, mad)) {
        return NO_REPLY;
    }
    g_assert_cmphex(mad[3], ==, IB_METHOD_GET_RESP);
    g_assert_cmphex(ib_get64(mad + 8), ==, 0x77);
    memcpy(data, mad + IB_PM_DATA_OFFSET, IB_PM_DATA_LEN);
    return ib_get16(mad + 4);
}

static void test_pma(void)
{
    uint8_t data[IB_PM_DATA_LEN];
    IbClock clock;
    Node ca, sw;

    ib_clock_init_virtual(&clock);
    node_init(&ca, &clock, IB_NODE_CA, 2);
    node_init(&sw, &clock, IB_NODE_SWITCH, 3);
    g_assert_cmphex(pma(&ca, IB_METHOD_GET, IB_ATTR_CLASS_PORT_INFO, 0, 0,
                        data), ==, 0);
    assert_hex(data, 8, "01 01 1200 00000012");
    g_assert_cmphex(pma(&sw, IB_METHOD_GET, IB_ATTR_CLASS_PORT_INFO, 0, 0,
                        data), ==, 0);
    assert_hex(data, 8, "01 01 1300 00000012");

    ca.sma.ports[2].counters.xmit_data = 0x1FFFFFFFF;
    ca.sma.ports[2].counters.rcv_pkts = 7;
    ca.sma.ports[2].counters.link_downed = 300;
    ca.sma.ports[2].counters.xmit_wait = 5;
    g_assert_cmphex(pma(&ca, IB_METHOD_GET, IB_PM_PORT_COUNTERS, 2, 0xFFFF,
                        data), ==, 0);
    assert_hex(data, IB_PORT_COUNTERS_LEN,
               "00 02 ffff 0000 00 ff 0000 0000 0000 0000 00 00 00 00 0000"
               "0000 ffffffff 00000000 00000000 00000007 00000005");
    g_assert_cmphex(pma(&ca, IB_METHOD_GET, IB_PM_PORT_COUNTERS_EXT, 2, 0,
                        data), ==, 0);
    g_assert_cmphex(ib_get64(data + 8), ==, 0x1FFFFFFFF);
    /* Get clears nothing; Set what is selected: bit 2 and bit 12. */
    g_assert_cmphex(pma(&ca, IB_METHOD_SET, IB_PM_PORT_COUNTERS, 2,
                        1 << 2 | 1 << 12, data), ==, 0);
    g_assert_cmpuint(ca.sma.ports[2].counters.link_downed, ==, 0);
    g_assert_cmpuint(ca.sma.ports[2].counters.xmit_data, ==, 0);
    g_assert_cmpuint(ca.sma.ports[2].counters.rcv_pkts, ==, 7);
    g_assert_cmpuint(ca.sma.ports[2].counters.xmit_wait, ==, 5);
    g_assert_cmpuint(data[7], ==, 0);
    ca.sma.ports[2].counters.multicast_rcv_pkts = 3;
    ca.sma.ports[2].counters.symbol_error = 3;
    g_assert_cmphex(pma(&ca, IB_METHOD_SET, IB_PM_PORT_COUNTERS_EXT, 2,
                        0xFF, data), ==, 0);
    g_assert_cmpuint(ca.sma.ports[2].counters.multicast_rcv_pkts, ==, 0);
    g_assert_cmpuint(ca.sma.ports[2].counters.rcv_pkts, ==, 0);
    g_assert_cmpuint(ca.sma.ports[2].counters.symbol_error, ==, 3);

    /* Ports. */
    g_assert_cmphex(pma(&ca, IB_METHOD_GET, IB_PM_PORT_COUNTERS, 0, 0, data),
                    ==, IB_MAD_STATUS_BAD_FIELD);
    g_assert_cmphex(pma(&ca, IB_METHOD_GET, IB_PM_PORT_COUNTERS, 3, 0, data),
                    ==, IB_MAD_STATUS_BAD_FIELD);
    g_assert_cmphex(pma(&ca, IB_METHOD_GET, IB_PM_PORT_COUNTERS, 0xFF, 0,
                        data), ==, IB_MAD_STATUS_BAD_FIELD);
    for (unsigned port = 1; port <= 3; port++) {
        sw.sma.ports[port].counters.rcv_pkts = port * 10;
        sw.sma.ports[port].counters.xmit_pkts = UINT64_MAX - 1;
    }
    g_assert_cmphex(pma(&sw, IB_METHOD_GET, IB_PM_PORT_COUNTERS_EXT, 0xFF, 0,
                        data), ==, 0);
    g_assert_cmpuint(ib_get64(data + 32), ==, 60);
    g_assert_cmphex(ib_get64(data + 24), ==, UINT64_MAX);
    g_assert_cmphex(pma(&sw, IB_METHOD_SET, IB_PM_PORT_COUNTERS, 0xFF,
                        1 << 15, data), ==, 0);
    g_assert_cmpuint(sw.sma.ports[1].counters.rcv_pkts, ==, 0);
    g_assert_cmpuint(sw.sma.ports[3].counters.rcv_pkts, ==, 0);

    /* What we do not have, and what is not for us. */
    g_assert_cmphex(pma(&ca, IB_METHOD_GET, IB_PM_PORT_SAMPLES_CONTROL, 1, 0,
                        data), ==, IB_MAD_STATUS_BAD_METHOD_ATTR);
    g_assert_cmphex(pma(&ca, IB_METHOD_SET, IB_ATTR_CLASS_PORT_INFO, 1, 0,
                        data), ==, IB_MAD_STATUS_BAD_METHOD_ATTR);
    g_assert_cmphex(pma(&ca, IB_METHOD_SEND, IB_PM_PORT_COUNTERS, 1, 0,
                        data), ==, IB_MAD_STATUS_BAD_METHOD);
    g_assert_cmphex(pma(&ca, IB_METHOD_GET_RESP, IB_PM_PORT_COUNTERS, 1, 0,
                        data), ==, NO_REPLY);
    ib_sma_fini(&ca.sma);
    ib_sma_fini(&sw.sma);
    ib_clock_fini(&clock);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/sma/link", test_link);
    g_test_add_func("/sma/state-moves", test_state_moves);
    g_test_add_func("/sma/disable-enable", test_disable_enable);
    g_test_add_func("/sma/components", test_components);
    g_test_add_func("/sma/all-or-nothing", test_all_or_nothing);
    g_test_add_func("/sma/switch-ports", test_switch_ports);
    g_test_add_func("/sma/ca-ports", test_ca_ports);
    g_test_add_func("/sma/attributes", test_attributes);
    g_test_add_func("/sma/headers", test_headers);
    g_test_add_func("/sma/reply-lid", test_reply_lid);
    g_test_add_func("/sma/m-key", test_m_key);
    g_test_add_func("/sma/m-key-lease", test_m_key_lease);
    g_test_add_func("/sma/directed/walk", test_directed_walk);
    g_test_add_func("/sma/directed/switch", test_directed_to_switch);
    g_test_add_func("/sma/directed/bad", test_directed_bad);
    g_test_add_func("/sma/directed/longest", test_directed_longest);
    g_test_add_func("/sma/directed/lids", test_directed_with_lids);
    g_test_add_func("/sma/trap/128", test_trap_128);
    g_test_add_func("/sma/trap/resend", test_trap_resend_and_repress);
    g_test_add_func("/sma/trap/when", test_trap_when);
    g_test_add_func("/sma/trap/capability", test_capability);
    g_test_add_func("/sma/pma", test_pma);
    return g_test_run();
}
