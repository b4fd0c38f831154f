/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Subnet manager among hostile nodes: agents written to behind its back, nodes
 * that answer its SMPs with lies, and hosts that ask without end.  What it
 * must do each time: stay bounded, say so, and serve all others.
 */
#include <inttypes.h>
#include <string.h>

#include "sm_lab.h"

/* mallory is the one who means harm. */
static const char topology[] =
    "switch s1 ports=8\n"
    "switch s2 ports=24\n"
    "host alice ports=2\n"
    "host bob ports=2\n"
    "host mallory ports=2\n"
    "host sm ports=1\n"
    "cable a1 alice/1 s1/1\n"
    "cable a2 alice/2 s2/1\n"
    "cable b1 bob/1 s1/2\n"
    "cable b2 bob/2 s2/2\n"
    "cable m1 mallory/1 s1/3\n"
    "cable m2 mallory/2 s2/3\n"
    "cable isl s1/7 s2/7\n"
    "cable csm sm/1 s1/8\n";

typedef struct Rig {
    SmLab *lab;
    LabHost *alice, *bob, *mallory;
} Rig;

static void rig_down_init(Rig *rig, const void *unused)
{
    rig->lab = lab_new(topology, 1);
    rig->alice = lab_host(rig->lab, "alice");
    rig->bob = lab_host(rig->lab, "bob");
    rig->mallory = lab_host(rig->lab, "mallory");
}

static void rig_init(Rig *rig, const void *unused)
{
    rig_down_init(rig, unused);
    lab_start_sm(rig->lab, "sm", NULL);
    lab_settle(rig->lab, 2 * IB_SEC);
    g_string_truncate(rig->lab->log, 0);
}

static void rig_fini(Rig *rig, const void *unused)
{
    lab_free(rig->lab);
}

static SmStats stats(const Rig *rig)
{
    SmStats s;

    sm_get_stats(lab_sm(rig->lab), &s);
    return s;
}

/* How often the log has @text. */
static unsigned said(const Rig *rig, const char *text)
{
    unsigned n = 0;

    for (const char *at = rig->lab->log->str; (at = strstr(at, text)); at++) {
        n++;
    }
    return n;
}

/* Those who mean no harm are Active and reach each other. */
static void check_honest(Rig *rig)
{
    LabHost *hosts[] = { rig->alice, rig->bob };

    g_assert_cmpint(sm_state(lab_sm(rig->lab)), ==, SM_MASTER);
    for (unsigned i = 0; i < 4; i++) {
        LabHost *from = hosts[i / 2];

        g_assert_cmpuint(lab_state(from, 1 + i % 2), ==, IB_PORT_ACTIVE);
        for (unsigned j = 0; j < 4; j++) {
            g_assert_true(i == j ||
                          lab_reaches(rig->lab, from, 1 + i % 2,
                                      hosts[j / 2], 1 + j % 2));
        }
    }
}

static uint16_t switch_lid(const Rig *rig, const char *name)
{
    int node = topology_find_node(rig->lab->topology, name);

    return fabric_switch_sma(rig->lab->fabric, node)->ports[0].info.lid;
}

static int mallory_sets(Rig *rig, uint16_t dlid, unsigned attr, uint32_t mod,
                        uint8_t *data)
{
    return lab_smp(rig->mallory, 1, dlid, IB_METHOD_SET, attr, mod, 0, data);
}

static void get(Rig *rig, uint16_t dlid, unsigned attr, uint32_t mod,
                uint8_t *data)
{
    memset(data, 0, IB_SMP_DATA_LEN);
    g_assert_cmpint(lab_smp(rig->alice, 1, dlid, IB_METHOD_GET, attr, mod, 0,
                            data), ==, 0);
}

static void sweep(Rig *rig)
{
    sm_sweep(lab_sm(rig->lab));
    lab_settle(rig->lab, 2 * IB_SEC);
}

/* Agents written to by others */

static void test_forwarding_table(Rig *rig, const void *unused)
{
    uint16_t s1 = switch_lid(rig, "s1"), bob = lab_lid(rig->bob, 1);
    uint8_t was[IB_SMP_DATA_LEN], data[IB_SMP_DATA_LEN];
    g_autofree char *line = NULL;
    SmStats before;

    get(rig, s1, IB_SM_LINEAR_FT, 0, was);
    memcpy(data, was, sizeof(data));
    data[bob] = 3;                        /* to mallory */
    data[50] = 3;
    g_assert_cmpint(mallory_sets(rig, s1, IB_SM_LINEAR_FT, 0, data), ==, 0);
    g_assert_false(lab_reaches(rig->lab, rig->alice, 1, rig->bob, 1));
    before = stats(rig);
    sweep(rig);
    get(rig, s1, IB_SM_LINEAR_FT, 0, data);
    g_assert_cmpmem(data, sizeof(data), was, sizeof(was));
    g_assert_cmpuint(stats(rig).lft_blocks_written, ==,
                     before.lft_blocks_written + 1);
    line = g_strdup_printf("warning: port s1/0 (LID %u): entry of LID %u in "
                           "its forwarding table is 3 instead of 2: set "
                           "again\n", s1, bob);
    g_assert_cmpuint(said(rig, line), ==, 1);
    g_assert_cmpuint(said(rig, "instead of"), ==, 1);
    check_honest(rig);
    /* Nothing is changed: nothing is written, nothing is said. */
    before = stats(rig);
    sweep(rig);
    g_assert_cmpuint(stats(rig).lft_blocks_written, ==,
                     before.lft_blocks_written);
    g_assert_cmpuint(stats(rig).mended, ==, 1);
}

/* Nobody asks for a sweep: it is found all the same. */
static void test_found_in_time(Rig *rig, const void *unused)
{
    uint16_t s1 = switch_lid(rig, "s1");
    uint8_t data[IB_SMP_DATA_LEN];
    SmStats before;

    get(rig, s1, IB_SM_LINEAR_FT, 0, data);
    data[lab_lid(rig->bob, 1)] = 3;
    g_assert_cmpint(mallory_sets(rig, s1, IB_SM_LINEAR_FT, 0, data), ==, 0);
    before = stats(rig);
    lab_run(rig->lab, 290 * IB_SEC);
    g_assert_cmpuint(stats(rig).heavy_sweeps, ==, before.heavy_sweeps);
    lab_run(rig->lab, 20 * IB_SEC);
    g_assert_cmpuint(stats(rig).heavy_sweeps, ==, before.heavy_sweeps + 1);
    g_assert_cmpuint(stats(rig).mended, ==, 1);
    check_honest(rig);
}

static void test_multicast_table(Rig *rig, const void *unused)
{
    uint16_t s2 = switch_lid(rig, "s2");
    uint8_t data[IB_SMP_DATA_LEN];
    SmStats before = stats(rig);

    /* Second position of the broadcast group's row: port 23. */
    get(rig, s2, IB_SM_MCAST_FT, 1u << 28, data);
    g_assert_cmpuint(ib_get16(data), ==, 0);
    ib_put16(data, 1 << 7);
    g_assert_cmpint(mallory_sets(rig, s2, IB_SM_MCAST_FT, 1u << 28, data),
                    ==, 0);
    sweep(rig);
    get(rig, s2, IB_SM_MCAST_FT, 1u << 28, data);
    g_assert_cmpuint(ib_get16(data), ==, 0);
    g_assert_cmpuint(stats(rig).mft_blocks_written, ==,
                     before.mft_blocks_written + 1);
    g_assert_cmpuint(said(rig, "port mask 1 of MLID 0xc000 in its "
                          "forwarding table is 128 instead of 0"), ==, 1);
}

/* Found by a light sweep: SwitchInfo is asked for there anyway. */
static void test_switch_info(Rig *rig, const void *unused)
{
    uint16_t s1 = switch_lid(rig, "s1");
    uint8_t data[IB_SMP_DATA_LEN];
    IbSwitchInfo info, was;

    get(rig, s1, IB_SM_SWITCH_INFO, 0, data);
    ib_switch_info_unpack(&was, data);
    info = was;
    info.lft_top = 40;
    info.mft_top = 0xC100;
    info.default_mcast_primary = 3;       /* to mallory, what nobody wants */
    ib_switch_info_pack(data, &info);
    g_assert_cmpint(mallory_sets(rig, s1, IB_SM_SWITCH_INFO, 0, data), ==,
                    0);
    lab_run(rig->lab, 11 * IB_SEC);
    get(rig, s1, IB_SM_SWITCH_INFO, 0, data);
    ib_switch_info_unpack(&info, data);
    g_assert_cmpuint(info.lft_top, ==, was.lft_top);
    g_assert_cmpuint(info.mft_top, ==, was.mft_top);
    g_assert_cmpuint(info.default_mcast_primary, ==,
                     was.default_mcast_primary);
    g_assert_cmpuint(said(rig, "LinearFDBTop is 40 instead of "), ==, 1);
    g_assert_cmpuint(said(rig, "DefaultMulticastPrimaryPort is 3 instead of "
                          "255"), ==, 1);
    check_honest(rig);
}

static void test_port_info(Rig *rig, const void *unused)
{
    uint16_t sm = sm_lid(lab_sm(rig->lab)), lid = lab_lid(rig->bob, 1);
    uint16_t s1 = switch_lid(rig, "s1"), lids[] = { lid, s1, sm };
    uint8_t data[IB_SMP_DATA_LEN];
    IbPortInfo info;

    /* Port 7 of s1: the cable to s2. */
    get(rig, s1, IB_SM_PORT_INFO, 7, data);
    ib_port_info_unpack(&info, data);
    g_assert_cmpuint(info.neighbor_mtu, ==, 5);
    info.neighbor_mtu = 1;
    info.state = IB_PORT_NO_CHANGE;
    info.phys_state = IB_PHYS_NO_CHANGE;
    ib_port_info_pack(data, &info);
    g_assert_cmpint(mallory_sets(rig, s1, IB_SM_PORT_INFO, 7, data), ==, 0);
    sweep(rig);
    get(rig, s1, IB_SM_PORT_INFO, 7, data);
    ib_port_info_unpack(&info, data);
    g_assert_cmpuint(info.neighbor_mtu, ==, 5);
    g_assert_cmpuint(info.state, ==, IB_PORT_ACTIVE);
    g_assert_cmpuint(said(rig, "port s1/7: NeighborMTU is 1 instead of 5"),
                     ==, 1);
    /* LIDs: of a host, of a switch, of the SM itself. */
    for (size_t i = 0; i < G_N_ELEMENTS(lids); i++) {
        g_autofree char *line = g_strdup_printf("LID is 600 instead of %u",
                                                lids[i]);

        get(rig, lids[i], IB_SM_PORT_INFO, 0, data);
        ib_port_info_unpack(&info, data);
        info.lid = 600;
        info.sm_lid = 601;
        info.state = IB_PORT_NO_CHANGE;
        info.phys_state = IB_PHYS_NO_CHANGE;
        ib_port_info_pack(data, &info);
        g_assert_cmpint(mallory_sets(rig, lids[i], IB_SM_PORT_INFO, 0, data),
                        ==, 0);
        if (lids[i] != sm) {
            sm_sweep(lab_sm(rig->lab));
        }
        lab_run(rig->lab, 1 * IB_SEC);
        get(rig, lids[i], IB_SM_PORT_INFO, 0, data);
        ib_port_info_unpack(&info, data);
        g_assert_cmpuint(info.lid, ==, lids[i]);
        g_assert_cmpuint(info.sm_lid, ==, sm);
        g_assert_cmpuint(said(rig, line), ==, 1);
        check_honest(rig);
    }
    g_assert_cmpuint(said(rig, "MasterSMLID is 601 instead of"), ==, 3);
    g_assert_cmpuint(rig->bob->dropped, ==, 0);
}

/* The SM sets no P_Keys: it tells, and leaves them. */
static void test_pkeys(Rig *rig, const void *unused)
{
    uint8_t data[IB_SMP_DATA_LEN];

    get(rig, lab_lid(rig->bob, 1), IB_SM_PKEY_TABLE, 0, data);
    ib_put16(data + 6, 0x8123);
    g_assert_cmpint(mallory_sets(rig, lab_lid(rig->bob, 1), IB_SM_PKEY_TABLE,
                                 0, data), ==, 0);
    for (unsigned i = 0; i < 3; i++) {
        sweep(rig);
        g_assert_cmpuint(said(rig, "entry 3 of its P_Key table is 0x8123, "
                              "was 0x0000: left so"), ==, 1);
    }
    g_assert_cmpuint(rig->bob->sma.ports[1].pkeys[3], ==, 0x8123);
}

/* With an M_Key nobody else writes at all. */
static void test_m_key(Rig *rig, const void *unused)
{
    const uint64_t key = UINT64_C(0x123456789ABCDEF0);
    uint8_t data[IB_SMP_DATA_LEN], was[IB_SMP_DATA_LEN];
    SmOptions options;
    IbPortInfo info;
    uint16_t s1, bob;
    SmStats before;

    sm_options_init(&options);
    options.m_key = key;
    lab_start_sm(rig->lab, "sm", &options);
    lab_settle(rig->lab, 2 * IB_SEC);
    s1 = switch_lid(rig, "s1");
    bob = lab_lid(rig->bob, 1);
    check_honest(rig);
    get(rig, bob, IB_SM_PORT_INFO, 1, data);
    ib_port_info_unpack(&info, data);
    g_assert_cmphex(info.m_key, ==, 0);   /* hidden */
    g_assert_cmphex(rig->bob->sma.ports[1].info.m_key, ==, key);
    g_assert_cmphex(rig->bob->sma.ports[2].info.m_key, ==, key);
    g_assert_cmpint(mallory_sets(rig, bob, IB_SM_PORT_INFO, 1, data), ==, -1);
    get(rig, s1, IB_SM_LINEAR_FT, 0, was);
    memcpy(data, was, sizeof(data));
    data[bob] = 3;
    g_string_truncate(rig->lab->log, 0);
    g_assert_cmpint(mallory_sets(rig, s1, IB_SM_LINEAR_FT, 0, data), ==, -1);
    get(rig, s1, IB_SM_LINEAR_FT, 0, data);
    g_assert_cmpmem(data, sizeof(data), was, sizeof(was));
    {
        g_autofree char *line = g_strdup_printf(
            "port s1/0 (LID %u): wrong M_Key in Set LinearForwardingTable "
            "from LID %u\n", s1, lab_lid(rig->mallory, 1));

        g_assert_cmpuint(said(rig, line), ==, 1);
    }
    /* TrapRepress has the key: the trap comes once. */
    before = stats(rig);
    lab_run(rig->lab, 2 * IB_SEC);
    g_assert_cmpuint(stats(rig).traps_received, ==, before.traps_received);
    /* Restarted with the key it goes on, ... */
    lab_stop_sm(rig->lab, "sm");
    options.seed = 2;
    lab_start_sm(rig->lab, "sm", &options);
    lab_settle(rig->lab, 2 * IB_SEC);
    lab_cable(rig->lab, "b1", false);
    lab_settle(rig->lab, 2 * IB_SEC);
    lab_cable(rig->lab, "b1", true);
    lab_settle(rig->lab, 2 * IB_SEC);
    check_honest(rig);
    g_assert_cmpuint(lab_lid(rig->bob, 1), ==, bob);
    /* ... without it, it says what may be wrong. */
    lab_stop_sm(rig->lab, "sm");
    options.seed = 3;
    options.m_key = 0;
    g_string_truncate(rig->lab->log, 0);
    lab_start_sm(rig->lab, "sm", &options);
    lab_run(rig->lab, 5 * IB_SEC);
    g_assert_cmpuint(said(rig, "(is there an M_Key that is not ours?)"), >,
                     0);
    g_assert_cmpuint(rig->alice->dropped, ==, 0);
}

/* Lies */

static const IbMadAddress permissive = {
    .slid = IB_LID_PERMISSIVE, .dlid = IB_LID_PERMISSIVE,
    .vl = IB_VL_MANAGEMENT, .pkey = IB_PKEY_DEFAULT,
};

/* Behind mallory's port, as its SMA would: false, nothing to answer. */
static bool honest_answer(LabHost *host, unsigned port, const uint8_t *mad,
                          uint8_t *reply)
{
    IbMadAddress to;
    unsigned out = port;

    memcpy(reply, mad, IB_MAD_LEN);
    return ib_sma_receive(&host->sma, port, &permissive, reply, &out, &to) ==
           IB_SMA_REPLY;
}

/*
 * mallory pretends to be a switch with others behind it, and others behind
 * those: @hosts of its ports lead to a host, @switches to one more of its kind,
 * the first port goes up, and all else is down.
 */
typedef struct Tree {
    unsigned switches, hosts;
    bool huge_tables;
    unsigned asked;
} Tree;

#define TREE_PORTS 254u

static bool tree_lies(LabHost *host, unsigned port, const uint8_t *mad)
{
    Tree *tree = host->lie_data;
    unsigned depth = mad[6], hops = mad[7];
    unsigned last = mad[IB_SMP_INITIAL_PATH_OFFSET + hops];
    bool is_switch = hops == depth || last <= 1 + tree->switches;
    uint64_t guid = UINT64_C(0xCBF29CE484222325);
    uint8_t reply[IB_MAD_LEN];
    uint8_t *data = reply + IB_SMP_DATA_OFFSET;
    unsigned attr = ib_get16(mad + 16), mod = ib_get32(mad + 20);

    if (mad[1] != IB_CLASS_SM_DR || (mad[3] & IB_METHOD_RESPONSE_BIT)) {
        return true;
    }
    tree->asked++;
    for (unsigned i = depth + 1; i <= hops; i++) {
        guid = (guid ^ mad[IB_SMP_INITIAL_PATH_OFFSET + i]) *
               UINT64_C(0x100000001B3);
    }
    memcpy(reply, mad, sizeof(reply));
    reply[3] = IB_METHOD_GET_RESP;
    ib_put16(reply + 4, IB_MAD_STATUS_DIRECTION);
    if (mad[3] == IB_METHOD_SET) {
        if (attr == IB_SM_PORT_INFO) {
            data[32] = IB_PORT_ACTIVE;
        }
        lab_send_smp(host, port, reply);
        return true;
    }
    memset(data, 0, IB_SMP_DATA_LEN);
    if (attr == IB_SM_NODE_INFO) {
        IbNodeInfo info = {
            .base_version = 1, .class_version = 1,
            .node_type = is_switch ? IB_NODE_SWITCH : IB_NODE_CA,
            .num_ports = is_switch ? TREE_PORTS : 1, .local_port = 1,
            .node_guid = guid, .port_guid = guid + 1,
        };

        ib_node_info_pack(data, &info);
    } else if (attr == IB_SM_PORT_INFO) {
        IbPortInfo info = host->sma.ports[1].info;

        info.lid = 0;
        info.state = IB_PORT_ACTIVE;
        if (is_switch && mod > 1 + tree->switches + tree->hosts) {
            info.state = IB_PORT_DOWN;
        }
        ib_port_info_pack(data, &info);
    } else if (attr == IB_SM_SWITCH_INFO) {
        IbSwitchInfo info = {
            .lft_cap = 49152, .mft_cap = 16384,
            .lft_top = tree->huge_tables ? 49151 : 0,
            .mft_top = tree->huge_tables ? 0xFFFE : 0xBFFF,
        };

        ib_switch_info_pack(data, &info);
    }
    lab_send_smp(host, port, reply);
    return true;
}

static void grow_tree(Rig *rig, Tree *tree)
{
    lab_cable(rig->lab, "m2", false);
    rig->mallory->lie = tree_lies;
    rig->mallory->lie_data = tree;
    lab_start_sm(rig->lab, "sm", NULL);
    lab_run(rig->lab, 1 * IB_SEC);
    g_assert_cmpuint(tree->asked, >, 1000);
    check_honest(rig);
}

/* It never ends: the SM does, by the number of ports. */
static void test_endless(Rig *rig, const void *unused)
{
    Tree tree = { .switches = 3 };

    grow_tree(rig, &tree);
    g_assert_cmpuint(stats(rig).switches, >, 500);
    g_assert_cmpuint((stats(rig).nodes - 8) * TREE_PORTS, <=, SM_MAX_PORTS);
    g_assert_cmpuint(said(rig, "are left out"), <=,
                     stats(rig).heavy_sweeps);
    g_assert_cmpuint(said(rig, "are left out"), >, 0);
}

/* As deep as a directed route goes. */
static void test_deep(Rig *rig, const void *unused)
{
    Tree tree = { .switches = 1, .huge_tables = true };

    grow_tree(rig, &tree);
    g_assert_cmpuint(said(rig, "63 hops away"), ==,
                     stats(rig).heavy_sweeps);
    g_assert_cmpuint(stats(rig).nodes, <, 80);
}

/* As many hosts as there may be nodes; the SA is asked for all paths. */
static void test_crowd(Rig *rig, const void *unused)
{
    Tree tree = { .switches = 1, .hosts = 250 };
    IbSaHeader header = { .hdr = { .attr_id = IB_SA_PATH_RECORD } };
    uint8_t data[IB_SA_DATA_LEN] = { 0 };
    unsigned refused = 0;
    int64_t start;
    int status;

    grow_tree(rig, &tree);
    g_assert_cmpuint(stats(rig).nodes, >, 10000);
    start = g_get_monotonic_time();
    g_assert_null(lab_sa_table(rig->alice, 1, &header, data, &status));
    g_test_message("all paths among %u nodes: refused after %" PRId64 " us",
                   stats(rig).nodes, g_get_monotonic_time() - start);
    g_assert_cmphex(status, ==, IB_SA_STATUS_NO_RESOURCES);
    /* Again and again: that is too much, and others are served. */
    for (unsigned i = 0; i < 20; i++) {
        g_assert_null(lab_sa_table(rig->alice, 1, &header, data, &status));
        refused += status == IB_MAD_STATUS_BUSY;
    }
    g_assert_cmpuint(refused, >=, 15);
    g_assert_cmpuint(stats(rig).sa_refused, ==, refused);
    g_assert_cmpuint(said(rig, "asks the SA too much"), ==, 1);
    g_assert_cmpint(lab_subscribe(rig->bob, 1, 64, true), ==, 0);
    lab_run(rig->lab, 2 * IB_SEC);
    g_assert_null(lab_sa_table(rig->alice, 1, &header, data, &status));
    g_assert_cmphex(status, ==, IB_SA_STATUS_NO_RESOURCES);
}

/* Asks without end */

/* @n requests at once; the number of answers with each of two statuses. */
static void flood(Rig *rig, LabHost *host, unsigned method, unsigned attr,
                  uint64_t mask, const uint8_t *attribute, unsigned n,
                  void (*vary)(uint8_t *attribute, unsigned i),
                  unsigned *good, unsigned *busy)
{
    static const IbMadAddress to = {
        .src_qpn = 1, .dest_qpn = 1, .qkey = IB_QKEY_QP1,
        .pkey = IB_PKEY_DEFAULT,
    };
    LabMad *got;

    *good = *busy = 0;
    lab_flush(host);
    for (unsigned i = 0; i < n; i++) {
        IbSaHeader header = {
            .hdr = { .base_version = 1, .mgmt_class = IB_CLASS_SA,
                     .class_version = 2, .method = method, .attr_id = attr,
                     .tid = host->lab->next_tid++ },
            .component_mask = mask,
        };
        uint8_t mad[IB_MAD_LEN] = { 0 };

        ib_sa_header_pack(mad, &header);
        memcpy(mad + IB_SA_DATA_OFFSET, attribute, IB_SA_DATA_LEN);
        if (vary) {
            vary(mad + IB_SA_DATA_OFFSET, i);
        }
        lab_send(host, 1, &to, mad);
        lab_run(rig->lab, 0);             /* no time goes by */
    }
    lab_run(rig->lab, 1 * IB_MSEC);
    while ((got = lab_next_mad(host))) {
        if (got->mad[3] & IB_METHOD_RESPONSE_BIT) {
            *good += ib_get16(got->mad + 4) == 0;
            *busy += ib_get16(got->mad + 4) == IB_MAD_STATUS_BUSY;
        }
        g_free(got);
    }
}

static void test_query_flood(Rig *rig, const void *unused)
{
    uint8_t data[IB_SA_DATA_LEN] = { 0 };
    unsigned good, busy;

    ib_put16(data, lab_lid(rig->bob, 1));
    flood(rig, rig->mallory, IB_METHOD_GET, IB_SA_NODE_RECORD, 1, data, 50000,
          NULL, &good, &busy);
    g_assert_cmpuint(good + busy, ==, 50000);
    g_assert_cmpuint(good, >, 1000);
    g_assert_cmpuint(busy, >, 1000);
    g_assert_cmpuint(said(rig, "asks the SA too much"), ==, 1);
    g_assert_cmpint(lab_subscribe(rig->alice, 1, 65, true), ==, 0);
    /* Time pays. */
    lab_run(rig->lab, 2 * IB_SEC);
    flood(rig, rig->mallory, IB_METHOD_GET, IB_SA_NODE_RECORD, 1, data, 100,
          NULL, &good, &busy);
    g_assert_cmpuint(good, ==, 100);
}

static void vary_trap(uint8_t *attribute, unsigned i)
{
    IbInformInfo info = {
        .lid_begin = 0xFFFF, .is_generic = 1, .subscribe = 1, .type = 0xFFFF,
        .trap = i, .qpn = 1, .resp_time = 18, .producer = 0xFFFFFF,
    };

    ib_inform_info_pack(attribute, &info);
}

static void test_subscription_flood(Rig *rig, const void *unused)
{
    uint8_t data[IB_SA_DATA_LEN] = { 0 };
    unsigned good, busy;

    for (unsigned i = 0; i < 10; i++) {
        flood(rig, rig->mallory, IB_METHOD_SET, IB_ATTR_INFORM_INFO, 0, data,
              200, vary_trap, &good, &busy);
        lab_run(rig->lab, 10 * IB_SEC);
    }
    g_assert_cmpuint(stats(rig).subscriptions, ==,
                     SM_MAX_SUBSCRIPTIONS_PER_PORT);
    g_assert_cmpint(lab_subscribe(rig->alice, 1, 65, true), ==, 0);
}

static void vary_group(uint8_t *attribute, unsigned i)
{
    static unsigned next;

    ib_put32(attribute + 12, next++);
}

static void test_join_flood(Rig *rig, const void *unused)
{
    IbMcMemberRecord want = {
        .mgid = { 0xFF, 0x12, 0xA0, 0x1B, 0xFE, 0x80 },
        .qkey = 1, .pkey = 0xFFFF, .join_state = 1,
    };
    const uint64_t mask = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 6 | 1 << 7 |
                          1 << 12 | 1 << 13 | 1 << 16;
    uint8_t data[IB_SA_DATA_LEN] = { 0 };
    IbSaHeader header = {
        .hdr = { .method = IB_METHOD_SET, .attr_id = IB_SA_MCMEMBER_RECORD },
        .component_mask = mask,
    };
    unsigned good, busy;

    lab_gid(rig->mallory, 1, want.port_gid);
    ib_mcmember_record_pack(data, &want);
    for (unsigned i = 0; i < 5; i++) {
        flood(rig, rig->mallory, IB_METHOD_SET, IB_SA_MCMEMBER_RECORD, mask,
              data, 1500, vary_group, &good, &busy);
        g_assert_cmpuint(busy, >, 1000);
        lab_run(rig->lab, 10 * IB_SEC);
    }
    g_assert_cmpuint(stats(rig).members, ==, SM_MAX_GROUPS_PER_PORT);
    /* There is room for others. */
    lab_gid(rig->alice, 1, want.port_gid);
    want.mgid[12] = 99;
    ib_mcmember_record_pack(data, &want);
    g_assert_cmpint(lab_sa(rig->alice, 1, &header, data, NULL), ==, 0);
    lab_cable(rig->lab, "m1", false);
    lab_settle(rig->lab, 2 * IB_SEC);
    g_assert_cmpuint(stats(rig).members, ==, 1);
}

/* In and out for hours: the log stays small, and says that it does. */
static void test_log_flood(Rig *rig, const void *unused)
{
    for (unsigned i = 0; i < 12000; i++) {
        lab_subscribe(rig->mallory, 1, 65, i % 2 == 0);
    }
    g_assert_cmpuint(said(rig, "mallory/1"), >, 10000);
    g_assert_cmpuint(stats(rig).lines_lost, ==, 0);
    for (unsigned i = 0; i < 20000; i++) {
        lab_subscribe(rig->mallory, 1, 65, i % 2 == 0);
    }
    g_assert_cmpuint(stats(rig).lines_lost, >, 0);
    /* 20000 at once and 20 in each of the 320 s. */
    g_assert_cmpuint(said(rig, "\n"), <, 20000 + 320 * 20 * 2);
    lab_run(rig->lab, 10 * IB_SEC);
    lab_subscribe(rig->alice, 1, 64, true);
    g_assert_cmpuint(said(rig, "lines were left out"), >, 0);
    g_assert_cmpuint(said(rig, "port alice/1 (LID"), >, 0);
}

/* A group that comes and goes: the same for events. */
static void test_event_flood(Rig *rig, const void *unused)
{
    IbMcMemberRecord want = {
        .mgid = { 0xFF, 0x12, 0xA0, 0x1B, 0xFE, 0x80 },
        .qkey = 1, .pkey = 0xFFFF, .join_state = 1,
    };
    uint8_t data[IB_SA_DATA_LEN] = { 0 };
    unsigned told = 0;

    lab_gid(rig->mallory, 1, want.port_gid);
    ib_mcmember_record_pack(data, &want);
    g_assert_cmpint(lab_subscribe(rig->alice, 1, 0xFFFF, true), ==, 0);
    for (unsigned i = 0; i < 32000; i++) {
        IbSaHeader header = {
            .hdr = { .method = i % 2 ? IB_METHOD_DELETE : IB_METHOD_SET,
                     .attr_id = IB_SA_MCMEMBER_RECORD },
            .component_mask = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 6 | 1 << 7 |
                              1 << 12 | 1 << 13 | 1 << 16,
        };

        g_assert_cmpint(lab_sa(rig->mallory, 1, &header, data, NULL), ==, 0);
        lab_flush(rig->alice);
    }
    g_assert_cmpuint(stats(rig).events_lost, >, 0);
    g_assert_cmpuint(stats(rig).reports_answered, ==, 32000);
    for (const char *at = rig->lab->events->str; (at = strchr(at, '\n'));
         at++) {
        told++;
    }
    g_assert_cmpuint(told, <, 20000 + 320 * 20 * 2);
    g_assert_nonnull(strstr(rig->lab->events->str,
                            "{\"event\":\"events_lost\",\"count\":"));
    check_honest(rig);
}

/* A request in segments: refused at once, nobody waits for an answer. */
static void test_segmented_request(Rig *rig, const void *unused)
{
    IbMadAddress to = {
        .src_qpn = 1, .dest_qpn = 1, .qkey = IB_QKEY_QP1,
        .pkey = IB_PKEY_DEFAULT,
    };
    IbSaHeader header = {
        .hdr = { .base_version = 1, .mgmt_class = IB_CLASS_SA,
                 .class_version = 2, .method = 0x14,     /* GetMulti */
                 .attr_id = IB_SA_MULTIPATH_RECORD, .tid = 77 },
        .rmpp_version = 1, .rmpp_type = 1, .rmpp_flags = 7, .rmpp_data1 = 1,
        .rmpp_data2 = 220,
    };
    uint8_t mad[IB_MAD_LEN] = { 0 };
    LabMad *got;

    ib_sa_header_pack(mad, &header);
    lab_send(rig->mallory, 1, &to, mad);
    lab_run(rig->lab, 1 * IB_MSEC);
    got = lab_next_mad(rig->mallory);
    g_assert_nonnull(got);
    ib_sa_header_unpack(&header, got->mad);
    g_assert_cmphex(header.hdr.method, ==, 0x94);
    g_assert_cmpuint(header.hdr.tid, ==, 77);
    g_assert_cmpuint(header.rmpp_type, ==, 4);           /* ABORT */
    g_assert_cmpuint(header.rmpp_status, ==, 127);
    g_assert_cmpuint(stats(rig).rmpp_active, ==, 0);
    g_free(got);
}

/* Who is asked something cannot tell the number of the next question. */
static bool tid_lies(LabHost *host, unsigned port, const uint8_t *mad)
{
    if (mad[1] == IB_CLASS_SM_DR && !(mad[3] & IB_METHOD_RESPONSE_BIT)) {
        uint32_t tid = ib_get32(mad + 12);

        g_array_append_val(host->lie_data, tid);
    }
    return false;
}

static void test_tids(Rig *rig, const void *unused)
{
    GArray *tids = g_array_new(false, false, sizeof(uint32_t));
    unsigned near = 0;

    rig->mallory->lie = tid_lies;
    rig->mallory->lie_data = tids;
    for (unsigned i = 0; i < 100; i++) {
        sweep(rig);
    }
    g_assert_cmpuint(tids->len, >, 300);
    for (unsigned i = 1; i < tids->len; i++) {
        uint32_t step = (g_array_index(tids, uint32_t, i) >> 6) -
                        (g_array_index(tids, uint32_t, i - 1) >> 6);

        near += (step & 0x3FFFFFF) < 10000;
    }
    g_assert_cmpuint(near, <, 10);
    rig->mallory->lie = NULL;
    g_array_free(tids, true);
}

/* One lie each about a node that is a good one otherwise. */
typedef enum Lie {
    LIE_NEW_GUIDS,           /* other GUIDs in each answer */
    LIE_TWO_NODES,           /* each port names another node GUID */
    LIE_PORT_GUID,           /* both ports have alice's first GUID */
    LIE_ALICE,               /* it is alice */
    LIE_SM,                  /* it is the SM */
    LIE_PORTS,               /* 255 ports */
    LIE_LOCAL_PORT,          /* came in by a port that it has not */
    LIE_SWITCH,              /* is a switch with a table of 49152 LIDs */
    LIE_SILENT,              /* the same, and does not show the table */
    LIE_STATE,               /* its ports are Armed, whatever is set */
    LIE_LID,                 /* its ports have the SM's LID, Active */
    LIE_THRICE,              /* says everything three times */
    LIE_LATE,                /* says everything one question too late */
    LIE_CROSSED,             /* answers from its other port */
    LIE_MASTER_PATH,         /* answers as if another had been asked */
    LIES,
} Lie;

typedef struct Liar {
    Lie lie;
    uint64_t next_guid;
    uint8_t last[3][IB_MAD_LEN];
} Liar;

static void lie_node_info(const Liar *liar, unsigned port, IbNodeInfo *info)
{
    switch (liar->lie) {
    case LIE_NEW_GUIDS:
        info->node_guid = liar->next_guid;
        info->port_guid = liar->next_guid + 1;
        break;
    case LIE_TWO_NODES:
        info->node_guid += 0x1000 * port;
        break;
    case LIE_PORT_GUID:
        info->port_guid = UINT64_C(0x0200000000030001);
        break;
    case LIE_ALICE:
        info->node_guid = UINT64_C(0x0200000000030000);
        info->port_guid = info->node_guid + port;
        break;
    case LIE_SM:
        info->node_guid = LAB_SM_GUID;
        info->port_guid = LAB_SM_GUID + 1;
        info->num_ports = 1;
        info->local_port = 1;
        break;
    case LIE_PORTS:
        info->num_ports = 255;
        break;
    case LIE_LOCAL_PORT:
        info->local_port = 3;
        break;
    case LIE_SWITCH:
    case LIE_SILENT:
        info->node_type = IB_NODE_SWITCH;
        info->num_ports = TREE_PORTS;
        break;
    default:
        break;
    }
}

static bool liar_lies(LabHost *host, unsigned port, const uint8_t *mad)
{
    Liar *liar = host->lie_data;
    unsigned attr = ib_get16(mad + 16);
    uint8_t reply[IB_MAD_LEN];
    uint8_t *data = reply + IB_SMP_DATA_OFFSET;

    if (mad[1] != IB_CLASS_SM_DR || (mad[3] & IB_METHOD_RESPONSE_BIT)) {
        return false;
    }
    if (liar->lie == LIE_SILENT &&
        (attr == IB_SM_LINEAR_FT || attr == IB_SM_MCAST_FT)) {
        return true;
    }
    liar->next_guid += 16;
    if (!honest_answer(host, port, mad, reply)) {
        return true;
    }
    if (attr == IB_SM_NODE_INFO) {
        IbNodeInfo info;

        ib_node_info_unpack(&info, data);
        lie_node_info(liar, port, &info);
        ib_node_info_pack(data, &info);
    } else if (attr == IB_SM_PORT_INFO) {
        IbPortInfo info;

        ib_port_info_unpack(&info, data);
        if (liar->lie == LIE_STATE) {
            info.state = IB_PORT_ARMED;
        } else if (liar->lie == LIE_LID) {
            info.state = IB_PORT_ACTIVE;
            info.lid = sm_lid(lab_sm(host->lab));
        }
        ib_port_info_pack(data, &info);
    } else if (attr == IB_SM_SWITCH_INFO && (liar->lie == LIE_SWITCH ||
                                             liar->lie == LIE_SILENT)) {
        IbSwitchInfo info = {
            .lft_cap = 49152, .lft_top = 49151, .mft_cap = 16384,
            .mft_top = 0xFFFE,
        };

        ib_put16(reply + 4, IB_MAD_STATUS_DIRECTION);
        ib_switch_info_pack(data, &info);
    }
    switch (liar->lie) {
    case LIE_THRICE:
        lab_send_smp(host, port, reply);
        lab_send_smp(host, port, reply);
        lab_send_smp(host, port, reply);
        break;
    case LIE_LATE:
        if (liar->last[port][0]) {
            lab_send_smp(host, port, liar->last[port]);
        }
        memcpy(liar->last[port], reply, sizeof(reply));
        break;
    case LIE_CROSSED:
        lab_send_smp(host, 3 - port, reply);
        break;
    case LIE_MASTER_PATH:
        reply[IB_SMP_INITIAL_PATH_OFFSET + 2] = 1;       /* alice's port */
        lab_send_smp(host, port, reply);
        break;
    default:
        lab_send_smp(host, port, reply);
        break;
    }
    return true;
}

static void test_liar(gconstpointer p)
{
    Liar liar = { .lie = GPOINTER_TO_UINT(p), .next_guid = 1 << 20 };
    Rig rig;

    rig_down_init(&rig, NULL);
    rig.mallory->lie = liar_lies;
    rig.mallory->lie_data = &liar;
    /* One who lies from the start, and one who begins to. */
    for (unsigned i = 0; i < 2; i++) {
        SmStats before;

        lab_start_sm(rig.lab, "sm", NULL);
        lab_run(rig.lab, 10 * IB_SEC);
        check_honest(&rig);
        before = stats(&rig);
        lab_run(rig.lab, 300 * IB_SEC);
        check_honest(&rig);
        g_assert_cmpuint(stats(&rig).heavy_sweeps - before.heavy_sweeps, <,
                         40);
        /* Silence must not hold a sweep up for each block of a table. */
        g_assert_cmpuint(stats(&rig).heavy_sweeps - before.heavy_sweeps, >,
                         liar.lie == LIE_SILENT ? 20 : 0);
        g_assert_cmpuint(stats(&rig).nodes, <, 10);
        g_assert_cmpuint(said(&rig, "\n"), <, 1000);
        lab_stop_sm(rig.lab, "sm");
        if (i == 0) {
            rig.mallory->lie = NULL;
            lab_start_sm(rig.lab, "sm", NULL);
            lab_settle(rig.lab, 40 * IB_SEC);
            check_honest(&rig);
            rig.mallory->lie = liar_lies;
            lab_stop_sm(rig.lab, "sm");
            g_string_truncate(rig.lab->log, 0);
        }
    }
    rig_fini(&rig, NULL);
}

#define ADD(path, fn) \
    g_test_add(path, Rig, NULL, rig_init, fn, rig_fini)

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    ADD("/hostile/written/forwarding-table", test_forwarding_table);
    ADD("/hostile/written/found-in-time", test_found_in_time);
    ADD("/hostile/written/multicast-table", test_multicast_table);
    ADD("/hostile/written/switch-info", test_switch_info);
    ADD("/hostile/written/port-info", test_port_info);
    ADD("/hostile/written/pkeys", test_pkeys);
    g_test_add("/hostile/m-key", Rig, NULL, rig_down_init, test_m_key,
               rig_fini);
    g_test_add("/hostile/endless", Rig, NULL, rig_down_init, test_endless,
               rig_fini);
    g_test_add("/hostile/deep", Rig, NULL, rig_down_init, test_deep,
               rig_fini);
    g_test_add("/hostile/crowd", Rig, NULL, rig_down_init, test_crowd,
               rig_fini);
    ADD("/hostile/flood/queries", test_query_flood);
    ADD("/hostile/flood/subscriptions", test_subscription_flood);
    ADD("/hostile/flood/joins", test_join_flood);
    ADD("/hostile/flood/log", test_log_flood);
    ADD("/hostile/flood/events", test_event_flood);
    ADD("/hostile/segmented-request", test_segmented_request);
    ADD("/hostile/tids", test_tids);
    for (unsigned i = 0; i < LIES; i++) {
        g_autofree char *path = g_strdup_printf("/hostile/lie/%u", i);

        g_test_add_data_func(path, GUINT_TO_POINTER(i), test_liar);
    }
    return g_test_run();
}
