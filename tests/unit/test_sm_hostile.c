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
    return g_test_run();
}
