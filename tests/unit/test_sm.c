/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Subnet manager: from cables to an Active subnet, and what happens when
 * cables, hosts and the subnet manager itself come and go.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <glib/gstdio.h>

#include "scratch.h"
#include "sm_lab.h"

static const char one_switch[] =
    "switch s1 ports=8\n"
    "host alice ports=2\n"
    "host bob ports=2\n"
    "host sm ports=1\n"
    "cable a1 alice/1 s1/1\n"
    "cable a2 alice/2 s1/2\n"
    "cable b1 bob/1 s1/3\n"
    "cable b2 bob/2 s1/4\n"
    "cable csm sm/1 s1/8\n";

static const char two_rails[] =
    "switch rail1 ports=8\n"
    "switch rail2 ports=8\n"
    "host alice ports=2\n"
    "host bob ports=2\n"
    "host sm ports=1\n"
    "cable a1 alice/1 rail1/1\n"
    "cable a2 alice/2 rail2/1\n"
    "cable b1 bob/1 rail1/2\n"
    "cable b2 bob/2 rail2/2\n"
    "cable isl rail1/7 rail2/7\n"
    "cable csm sm/1 rail1/8\n";

static const char ring[] =
    "switch s1 ports=6\nswitch s2 ports=6\nswitch s3 ports=6\n"
    "switch s4 ports=6\nswitch s5 ports=6\n"
    "host h1 ports=1\nhost h2 ports=1\nhost h3 ports=1\nhost h4 ports=1\n"
    "host h5 ports=1\nhost sm ports=1\n"
    "cable r12 s1/1 s2/2\ncable r23 s2/1 s3/2\ncable r34 s3/1 s4/2\n"
    "cable r45 s4/1 s5/2\ncable r51 s5/1 s1/2\n"
    "cable c1 h1/1 s1/3\ncable c2 h2/1 s2/3\ncable c3 h3/1 s3/3\n"
    "cable c4 h4/1 s4/3\ncable c5 h5/1 s5/3\ncable csm sm/1 s1/4\n";

static const char back_to_back[] =
    "host alice ports=1\nhost sm ports=1\ncable c alice/1 sm/1\n";

/* Every attached port of every host: Active, with a LID of its own. */
static void check_up(SmLab *lab)
{
    g_autofree bool *used = g_new0(bool, 0x10000);

    used[sm_lid(lab_sm(lab))] = true;
    g_assert_cmpuint(sm_lid(lab_sm(lab)), !=, 0);
    for (unsigned i = 0; i < lab->topology->num_nodes; i++) {
        const IbSma *sma = fabric_switch_sma(lab->fabric, i);

        if (sma) {
            uint16_t lid = sma->ports[0].info.lid;

            g_assert_true(ib_lid_is_unicast(lid));
            g_assert_false(used[lid]);
            used[lid] = true;
        }
    }
    for (unsigned i = 0; i < lab->hosts->len; i++) {
        LabHost *host = g_ptr_array_index(lab->hosts, i);

        for (unsigned p = 1; !host->sm && p <= host->num_ports; p++) {
            if (!host->attached || lab_state(host, p) == IB_PORT_DOWN) {
                continue;
            }
            g_assert_cmpstr(ib_port_state_name(lab_state(host, p)), ==,
                            ib_port_state_name(IB_PORT_ACTIVE));
            g_assert_true(ib_lid_is_unicast(lab_lid(host, p)));
            g_assert_false(used[lab_lid(host, p)]);
            used[lab_lid(host, p)] = true;
            g_assert_cmpuint(host->sma.ports[p].info.sm_lid, ==,
                             sm_lid(lab_sm(lab)));
            g_assert_cmpuint(sm_lid_of(lab_sm(lab), lab_guid(host, p)), ==,
                             lab_lid(host, p));
            g_assert_true(sm_port_active(lab_sm(lab), lab_guid(host, p)));
        }
    }
}

/* Every port reaches every other by the tables. */
static void check_all_pairs(SmLab *lab)
{
    for (unsigned i = 0; i < lab->hosts->len; i++) {
        LabHost *from = g_ptr_array_index(lab->hosts, i);

        for (unsigned j = 0; j < lab->hosts->len && !from->sm; j++) {
            LabHost *to = g_ptr_array_index(lab->hosts, j);

            for (unsigned p = 1; !to->sm && p <= from->num_ports; p++) {
                for (unsigned q = 1; q <= to->num_ports; q++) {
                    if ((from != to || p != q) &&
                        lab_state(from, p) == IB_PORT_ACTIVE &&
                        lab_state(to, q) == IB_PORT_ACTIVE &&
                        !lab_reaches(lab, from, p, to, q)) {
                        g_error("%s/%u does not reach %s/%u\n%s", from->name,
                                p, to->name, q, lab->log->str);
                    }
                }
            }
        }
    }
}

static SmLab *lab_up(const char *topology)
{
    SmLab *lab = lab_new(topology, 1);

    lab_run(lab, 1 * IB_SEC);
    lab_start_sm(lab, "sm", NULL);
    lab_settle(lab, 2 * IB_SEC);
    return lab;
}

/* Nobody else wrote, and the SM does not think so. */
static void check_nothing_mended(SmLab *lab, Sm *sm)
{
    SmStats stats;

    sm_get_stats(sm, &stats);
    g_assert_cmpuint(stats.mended, ==, 0);
    g_assert_null(strstr(lab->log->str, "set again"));
}

static void test_up(gconstpointer topology)
{
    SmLab *lab = lab_up(topology);
    SmStats stats;

    check_up(lab);
    check_all_pairs(lab);
    sm_get_stats(lab_sm(lab), &stats);
    g_assert_cmpuint(stats.smp_timeouts, ==, 0);
    g_assert_cmpuint(stats.smp_bad_status, ==, 0);
    g_assert_cmpuint(stats.sweep_errors, ==, 0);
    /* Quiet from now on: light sweeps change nothing. */
    lab_run(lab, 60 * IB_SEC);
    check_up(lab);
    lab_free(lab);
}

/* A second sweep of a healthy subnet only asks. */
static void test_idempotent(void)
{
    SmLab *lab = lab_up(ring);
    SmStats before, after;

    sm_get_stats(lab_sm(lab), &before);
    sm_sweep(lab_sm(lab));
    lab_settle(lab, 1 * IB_SEC);
    sm_get_stats(lab_sm(lab), &after);
    g_assert_cmpuint(after.heavy_sweeps, >, before.heavy_sweeps);
    g_assert_cmpuint(after.port_sets, ==, before.port_sets);
    g_assert_cmpuint(after.lft_blocks_written, ==, before.lft_blocks_written);
    g_assert_cmpuint(after.mft_blocks_written, ==, before.mft_blocks_written);
    lab_free(lab);
}

/* What a sweep may not change on a living subnet. */
static void note(GArray *words, uint64_t word)
{
    g_array_append_val(words, word);
}

static GArray *snapshot(SmLab *lab)
{
    GArray *words = g_array_new(false, false, sizeof(uint64_t));

    for (unsigned i = 0; i < lab->hosts->len; i++) {
        LabHost *host = g_ptr_array_index(lab->hosts, i);

        for (unsigned p = 1; strcmp(host->name, "sm") &&
             p <= host->num_ports; p++) {
            note(words, lab_lid(host, p));
            note(words, host->sma.ports[p].info.sm_lid);
            note(words, host->state_changes);
            note(words, host->lid_changes);
        }
    }
    for (unsigned i = 0; i < lab->topology->num_nodes; i++) {
        const IbSma *sma = fabric_switch_sma(lab->fabric, i);

        if (sma) {
            note(words, sma->ports[0].info.lid);
        }
    }
    return words;
}

static void assert_same(GArray *a, GArray *b)
{
    g_assert_cmpmem(a->data, a->len * sizeof(uint64_t), b->data,
                    b->len * sizeof(uint64_t));
    g_array_free(a, true);
    g_array_free(b, true);
}

/* Killed, restarted: nothing changes but the one bit ClientReregister. */
static void test_restart(gconstpointer topology)
{
    SmLab *lab = lab_up(topology);
    GArray *before = snapshot(lab);
    SmOptions options;
    SmStats stats;
    unsigned reregisters = 0;

    lab_stop_sm(lab, "sm");
    lab_run(lab, 3 * IB_SEC);
    for (unsigned i = 0; i < lab->hosts->len; i++) {
        LabHost *host = g_ptr_array_index(lab->hosts, i);

        host->reregisters = 0;
        reregisters += host->sm || !strcmp(host->name, "sm")
                       ? 0 : host->num_ports;
    }
    sm_options_init(&options);
    options.seed = 77;
    lab_start_sm(lab, "sm", &options);
    lab_settle(lab, 2 * IB_SEC);
    assert_same(before, snapshot(lab));
    check_up(lab);
    check_all_pairs(lab);
    for (unsigned i = 0; i < lab->hosts->len; i++) {
        reregisters -= ((LabHost *)g_ptr_array_index(lab->hosts,
                                                     i))->reregisters;
    }
    g_assert_cmpuint(reregisters, ==, 0);
    sm_get_stats(lab_sm(lab), &stats);
    g_assert_cmpuint(stats.lft_blocks_written, ==, 0);
    g_assert_nonnull(strstr(lab->events->str, "\"living\":true"));
    check_nothing_mended(lab, lab_sm(lab));
    lab_free(lab);
}

/* Another SM's LIDs and routes, in no order of ours, are left alone. */
static void test_foreign_lids(void)
{
    SmLab *lab = lab_up(two_rails);
    LabHost *alice = lab_host(lab, "alice"), *bob = lab_host(lab, "bob");
    GArray *before;
    SmOptions options;

    lab_stop_sm(lab, "sm");
    /* As a file for the next: everybody somewhere else. */
    {
        g_autofree char *dir = g_dir_make_tmp("sm-XXXXXX", NULL);
        g_autofree char *file = g_build_filename(dir, "lids", NULL);
        g_autofree char *text = g_strdup_printf(
            "# hand-made\n0x%016" PRIx64 " 0x1234 0\n"
            "0x%016" PRIx64 " 5000 0\n0x%016" PRIx64 " 77 0\n",
            lab_guid(alice, 1), lab_guid(bob, 2), LAB_SM_GUID + 1);

        g_assert_true(g_file_set_contents(file, text, -1, NULL));
        lab_detach(alice);
        lab_detach(bob);
        lab_attach(alice);
        lab_attach(bob);
        sm_options_init(&options);
        options.seed = 2;
        options.lid_file = file;
        lab_start_sm(lab, "sm", &options);
        lab_settle(lab, 5 * IB_SEC);
        g_assert_cmpuint(lab_lid(alice, 1), ==, 0x1234);
        g_assert_cmpuint(lab_lid(bob, 2), ==, 5000);
        g_assert_cmpuint(sm_lid(lab_sm(lab)), ==, 77);
        check_up(lab);
        check_all_pairs(lab);
        lab_stop_sm(lab, "sm");
        g_remove(file);
        g_remove(dir);
    }
    before = snapshot(lab);
    options.lid_file = NULL;
    options.seed = 3;
    lab_start_sm(lab, "sm", &options);
    lab_settle(lab, 2 * IB_SEC);
    assert_same(before, snapshot(lab));
    check_all_pairs(lab);
    /* Its own LID it has from those who knew it. */
    g_assert_cmpuint(sm_lid(lab_sm(lab)), ==, 77);
    lab_free(lab);
}

/* Another SM ruled while our cable was out: its LIDs count. */
static void test_foreign_lids_meanwhile(void)
{
    SmLab *lab = lab_up(one_switch);
    LabHost *alice = lab_host(lab, "alice");

    lab_cable(lab, "csm", false);
    lab_run(lab, 1 * IB_SEC);
    alice->sma.ports[1].info.lid = 0x200;
    alice->sma.ports[1].info.sm_lid = 0x300;
    alice->reregisters = 0;
    lab_cable(lab, "csm", true);
    lab_settle(lab, 2 * IB_SEC);
    g_assert_cmpuint(lab_lid(alice, 1), ==, 0x200);
    g_assert_cmpuint(alice->reregisters, ==, 1);
    check_up(lab);
    check_all_pairs(lab);
    lab_free(lab);
}

static void test_lid_file(void)
{
    g_autofree char *dir = g_dir_make_tmp("sm-XXXXXX", NULL);
    g_autofree char *file = g_build_filename(dir, "lids", NULL);
    SmLab *lab = lab_new(one_switch, 1);
    LabHost *alice = lab_host(lab, "alice");
    SmOptions options;
    uint16_t lids[2];

    sm_options_init(&options);
    options.lid_file = file;
    lab_start_sm(lab, "sm", &options);
    lab_settle(lab, 2 * IB_SEC);
    lids[0] = lab_lid(alice, 1);
    lids[1] = lab_lid(alice, 2);
    /* Alice is away while the SM starts anew, and bob could take them. */
    lab_detach(alice);
    lab_stop_sm(lab, "sm");
    lab_detach(lab_host(lab, "bob"));
    lab_attach(lab_host(lab, "bob"));
    options.seed = 9;
    lab_start_sm(lab, "sm", &options);
    lab_settle(lab, 5 * IB_SEC);
    check_up(lab);
    lab_attach(alice);
    lab_settle(lab, 5 * IB_SEC);
    check_up(lab);
    g_assert_cmpuint(lab_lid(alice, 1), ==, lids[0]);
    g_assert_cmpuint(lab_lid(alice, 2), ==, lids[1]);
    lab_free(lab);
    g_remove(file);
    g_remove(dir);
}

static const char three_hosts[] =
    "switch s1 ports=8\n"
    "host alice ports=1\nhost bob ports=1\nhost carol ports=1\n"
    "host sm ports=1\n"
    "cable a alice/1 s1/1\ncable b bob/1 s1/2\ncable c carol/1 s1/3\n"
    "cable csm sm/1 s1/8\n";

static void restart_sm(SmLab *lab)
{
    SmOptions options;

    lab_stop_sm(lab, "sm");
    sm_options_init(&options);
    options.seed = ++lab->next_tid;
    lab_start_sm(lab, "sm", &options);
    lab_settle(lab, 2 * IB_SEC);
}

/*
 * Without a file: a port that is away while the SM restarts, even twice, finds
 * its LID free, because the switches know how far LIDs went.  If they do not,
 * who is there keeps it, and the other is told a new one.
 */
static void test_lid_of_absent(gconstpointer switch_knows)
{
    SmLab *lab = lab_new(three_hosts, 1);
    LabHost *bob = lab_host(lab, "bob"), *carol = lab_host(lab, "carol");
    int s1 = topology_find_node(lab->topology, "s1");
    g_autofree char *event = NULL;
    uint16_t lid;

    lab_detach(carol);
    lab_start_sm(lab, "sm", NULL);
    lab_settle(lab, 2 * IB_SEC);
    lid = lab_lid(bob, 1);
    g_assert_cmpuint(lid, ==, 4);         /* the highest */
    lab_cable(lab, "b", false);
    lab_settle(lab, 2 * IB_SEC);
    restart_sm(lab);
    if (!switch_knows) {
        lab_stop_sm(lab, "sm");
        ((IbSma *)fabric_switch_sma(lab->fabric, s1))->switch_info.lft_top =
            3;
        lab_start_sm(lab, "sm", NULL);
        lab_settle(lab, 2 * IB_SEC);
    } else {
        restart_sm(lab);
    }
    lab_attach(carol);
    lab_settle(lab, 2 * IB_SEC);
    check_up(lab);
    g_assert_cmpuint(lab_lid(carol, 1), ==, switch_knows ? 5 : lid);
    lab_cable(lab, "b", true);
    lab_settle(lab, 2 * IB_SEC);
    check_up(lab);
    check_all_pairs(lab);
    g_assert_cmpuint(lab_lid(bob, 1), ==, switch_knows ? lid : 5);
    event = g_strdup_printf("\"sm_lid_changed\",\"node\":\"bob\",\"port\":1,"
                            "\"guid\":\"0x%016" PRIx64 "\",\"old\":4,"
                            "\"lid\":5}", lab_guid(bob, 1));
    g_assert_cmpint(!strstr(lab->events->str, event), ==, !!switch_knows);
    g_assert_cmpint(!strstr(lab->log->str, "LID 4 of port bob/1 is also that "
                            "of another port: it gets LID 5"), ==,
                    !!switch_knows);
    lab_free(lab);
}

static void bad_lid_file(const char *text, const char *expected)
{
    g_autofree char *dir = g_dir_make_tmp("sm-XXXXXX", NULL);
    g_autofree char *file = g_build_filename(dir, "lids", NULL);
    static const SmOps ops = { 0 };
    SmOptions options;
    IbClock clock;
    char *error;

    g_assert_true(g_file_set_contents(file, text, -1, NULL));
    ib_clock_init_virtual(&clock);
    sm_options_init(&options);
    options.node_guid = options.port_guid = 1;
    options.lid_file = file;
    g_assert_null(sm_new(&clock, &options, &ops, NULL, &error));
    g_assert_nonnull(strstr(error, expected));
    free(error);
    ib_clock_fini(&clock);
    g_remove(file);
    g_remove(dir);
}

static void test_bad_lid_files(void)
{
    bad_lid_file("0x1 0x1 0\n\nx 2 0\n", "line 3: not three numbers");
    bad_lid_file("0x1 0x1\n", "line 1: 2 words");
    bad_lid_file("0x1 0xC000 0\n", "line 1: GUID");
    bad_lid_file("0x1 0 0\n", "line 1: GUID");
    bad_lid_file("0x1 3 1\n", "line 1: GUID");
    bad_lid_file("0x1 4 9\n", "line 1: GUID");
    bad_lid_file("0x0 4 0\n", "line 1: GUID");
    bad_lid_file("0x1 4 0\n0x2 4 0\n", "line 2: GUID");
    bad_lid_file("0x1 4 0\n0x1 5 0\n", "line 2: GUID");
    bad_lid_file("0x1 99999999999999999999999 0\n", "line 1: not three");
}

static void expect_report(LabHost *host, unsigned trap, LabHost *whose,
                          unsigned port)
{
    IbNotice notice;
    uint8_t gid[16];

    if (!lab_report(host, &notice)) {
        g_error("no report of trap %u for %s/%u", trap, whose->name, port);
    }
    g_assert_cmpuint(notice.trap, ==, trap);
    g_assert_true(notice.generic);
    g_assert_cmpuint(notice.type, ==, 3);
    g_assert_cmpuint(notice.producer, ==, 4);
    g_assert_cmpuint(notice.issuer_lid, ==, sm_lid(lab_sm(host->lab)));
    g_assert_cmphex(ib_get64(notice.issuer_gid + 8), ==, LAB_SM_GUID + 1);
    lab_gid(whose, port, gid);
    g_assert_cmpmem(notice.details + 6, 16, gid, 16);
}

static void expect_no_report(LabHost *host)
{
    IbNotice notice;

    if (lab_report(host, &notice)) {
        g_error("unexpected report of trap %u", notice.trap);
    }
}

/* Every trap was answered at its first sending. */
static void check_repressed(SmLab *lab)
{
    SmStats stats;

    sm_get_stats(lab_sm(lab), &stats);
    g_assert_cmpuint(stats.traps_repeated, ==, 0);
    g_assert_cmpuint(stats.traps_received, >, 0);
    for (unsigned i = 0; i < lab->topology->num_nodes; i++) {
        const IbSma *sma = fabric_switch_sma(lab->fabric, i);

        for (unsigned j = 0; sma && j < IB_SMA_TRAPS; j++) {
            g_assert_false(sma->traps[j].pending);
        }
    }
}

/* A pulled cable: trap, sweep, 65 at once; back: 64 when it is Active. */
static void test_pull(void)
{
    SmLab *lab = lab_up(two_rails);
    LabHost *alice = lab_host(lab, "alice"), *bob = lab_host(lab, "bob");
    uint16_t lid = lab_lid(bob, 1);

    g_assert_cmpint(lab_subscribe(alice, 1, 64, true), ==, 0);
    g_assert_cmpint(lab_subscribe(alice, 1, 65, true), ==, 0);
    for (unsigned i = 0; i < 20; i++) {
        int64_t before = ib_clock_now(&lab->clock);

        lab_cable(lab, "b1", false);
        lab_run(lab, 100 * IB_MSEC);
        g_assert_cmpint(ib_clock_now(&lab->clock) - before, <=,
                        100 * IB_MSEC);
        expect_report(alice, 65, bob, 1);
        expect_no_report(alice);
        g_assert_false(sm_port_active(lab_sm(lab), lab_guid(bob, 1)));
        lab_cable(lab, "b1", true);
        lab_run(lab, 100 * IB_MSEC);
        expect_report(alice, 64, bob, 1);
        expect_no_report(alice);
        g_assert_cmpuint(lab_state(bob, 1), ==, IB_PORT_ACTIVE);
        g_assert_cmpuint(lab_lid(bob, 1), ==, lid);
    }
    g_assert_true(sm_settled(lab_sm(lab)));
    check_up(lab);
    check_all_pairs(lab);
    check_repressed(lab);
    check_nothing_mended(lab, lab_sm(lab));
    lab_free(lab);
}

/* Out and in again before the SM could look: the port is simply set up. */
static void test_bounce(void)
{
    SmLab *lab = lab_up(one_switch);
    LabHost *alice = lab_host(lab, "alice"), *bob = lab_host(lab, "bob");

    g_assert_cmpint(lab_subscribe(alice, 1, 0xFFFF, true), ==, 0);
    lab_flush(alice);
    lab_cable(lab, "b1", false);
    lab_cable(lab, "b1", true);
    lab_run(lab, 200 * IB_MSEC);
    g_assert_cmpuint(lab_state(bob, 1), ==, IB_PORT_ACTIVE);
    check_up(lab);
    lab_free(lab);
}

/* A subscriber that is silent gets each report a few times, then no more. */
static void test_reports_repeated(void)
{
    SmLab *lab = lab_up(one_switch);
    LabHost *alice = lab_host(lab, "alice"), *bob = lab_host(lab, "bob");
    SmStats stats;

    g_assert_cmpint(lab_subscribe(alice, 1, 65, true), ==, 0);
    g_assert_cmpint(lab_subscribe(bob, 1, 65, true), ==, 0);
    alice->no_report_resp = true;
    lab_cable(lab, "b2", false);
    lab_run(lab, 5 * IB_SEC);
    g_assert_cmpuint(alice->reports, ==, 4);
    g_assert_cmpuint(bob->reports, ==, 1);
    sm_get_stats(lab_sm(lab), &stats);
    g_assert_cmpuint(stats.reports_failed, ==, 1);
    g_assert_cmpuint(stats.subscriptions, ==, 2);
    /* Ten in a row: the subscription ends, and the port is told. */
    alice->reregisters = 0;
    for (unsigned i = 0; i < 9; i++) {
        lab_cable(lab, "b2", true);
        lab_run(lab, 2 * IB_SEC);
        lab_cable(lab, "b2", false);
        lab_run(lab, 2 * IB_SEC);
    }
    lab_settle(lab, 5 * IB_SEC);
    sm_get_stats(lab_sm(lab), &stats);
    g_assert_cmpuint(stats.subscriptions, ==, 1);
    sm_sweep(lab_sm(lab));
    lab_settle(lab, 1 * IB_SEC);
    g_assert_cmpuint(alice->reregisters, ==, 1);
    g_assert_cmpuint(bob->reregisters, ==, 9 + 2);
    lab_free(lab);
}

/* Set(PortInfo) of a port's M_Key from alice, by LID; the answer's status. */
static int set_m_key(SmLab *lab, uint16_t lid, uint64_t key)
{
    LabHost *alice = lab_host(lab, "alice");
    uint8_t mad[IB_MAD_LEN] = { 0 };
    IbMadAddress to = {
        .dlid = lid, .vl = IB_VL_MANAGEMENT, .pkey = IB_PKEY_DEFAULT,
    };
    IbSmp smp = {
        .hdr = { .base_version = 1, .mgmt_class = IB_CLASS_SM_LID,
                 .class_version = 1, .method = IB_METHOD_SET,
                 .tid = lab->next_tid++, .attr_id = IB_SM_PORT_INFO,
                 .attr_mod = 1 },
    };
    IbPortInfo info = alice->sma.ports[1].info;

    info.lid = lid;
    info.state = IB_PORT_NO_CHANGE;
    info.phys_state = IB_PHYS_NO_CHANGE;
    info.m_key = key;
    info.m_key_protect = 3;
    ib_smp_pack(mad, &smp);
    ib_port_info_pack(mad + IB_SMP_DATA_OFFSET, &info);
    alice->last_smp_status = -1;
    lab_send(alice, 1, &to, mad);
    lab_run(lab, 1 * IB_MSEC);
    return alice->last_smp_status;
}

/* A key on the SM's own port keeps others out, not the SM. */
static void test_own_m_key(void)
{
    SmLab *lab = lab_up(one_switch);
    LabHost *alice = lab_host(lab, "alice"), *bob = lab_host(lab, "bob");
    SmStats stats;

    g_assert_cmpint(lab_subscribe(alice, 1, 65, true), ==, 0);
    alice->no_report_resp = true;
    lab_cable(lab, "b2", false);
    lab_run(lab, 100 * IB_MSEC);
    sm_get_stats(lab_sm(lab), &stats);
    g_assert_cmpuint(stats.reports_sent, >, 0);
    g_assert_cmpint(set_m_key(lab, sm_lid(lab_sm(lab)), 0x1234), ==, 0);
    /* In the middle of a report, and what comes after. */
    sm_sweep(lab_sm(lab));
    lab_run(lab, 10 * IB_SEC);
    lab_cable(lab, "b2", true);
    lab_settle(lab, 5 * IB_SEC);
    g_assert_cmpuint(lab_state(bob, 2), ==, IB_PORT_ACTIVE);
    check_up(lab);
    lab_free(lab);
}

static void test_subscriptions(void)
{
    SmLab *lab = lab_up(one_switch);
    LabHost *alice = lab_host(lab, "alice"), *bob = lab_host(lab, "bob");
    SmStats stats;

    g_assert_cmpint(lab_subscribe(alice, 1, 65, false), ==,
                    IB_SA_STATUS_REQ_INVALID);
    g_assert_cmpint(lab_subscribe(alice, 1, 65, true), ==, 0);
    g_assert_cmpint(lab_subscribe(alice, 1, 65, true), ==, 0);
    g_assert_cmpint(lab_subscribe(alice, 1, 64, true), ==, 0);
    sm_get_stats(lab_sm(lab), &stats);
    g_assert_cmpuint(stats.subscriptions, ==, 2);
    g_assert_cmpint(lab_subscribe(alice, 1, 256, true), ==,
                    IB_SA_STATUS_REQ_INVALID);
    g_assert_cmpint(lab_subscribe(alice, 1, 65, false), ==, 0);
    lab_flush(alice);
    lab_cable(lab, "b1", false);
    lab_run(lab, 1 * IB_SEC);
    expect_no_report(alice);
    lab_cable(lab, "b1", true);
    lab_run(lab, 1 * IB_SEC);
    expect_report(alice, 64, bob, 1);
    /* The limit of one port; the others are not touched by it. */
    for (unsigned i = 0; i < SM_MAX_SUBSCRIPTIONS_PER_PORT - 1; i++) {
        g_assert_cmpint(lab_subscribe(alice, 1, 1000 + i, true), ==, 0);
    }
    g_assert_cmpint(lab_subscribe(alice, 1, 2000, true), ==,
                    IB_SA_STATUS_NO_RESOURCES);
    g_assert_cmpint(lab_subscribe(bob, 1, 2000, true), ==, 0);
    lab_free(lab);
}

/* Subscriptions survive the subscriber's own cable. */
static void test_subscriber_pulled(void)
{
    SmLab *lab = lab_up(one_switch);
    LabHost *alice = lab_host(lab, "alice"), *bob = lab_host(lab, "bob");

    g_assert_cmpint(lab_subscribe(alice, 1, 65, true), ==, 0);
    lab_cable(lab, "a1", false);
    lab_run(lab, 1 * IB_SEC);
    expect_no_report(alice);
    lab_cable(lab, "a1", true);
    lab_run(lab, 1 * IB_SEC);
    lab_cable(lab, "b1", false);
    lab_run(lab, 1 * IB_SEC);
    expect_report(alice, 65, bob, 1);
    lab_free(lab);
}

static void test_own_cable(void)
{
    SmLab *lab = lab_up(two_rails);
    LabHost *alice = lab_host(lab, "alice"), *bob = lab_host(lab, "bob");
    GArray *before;

    g_assert_cmpint(lab_subscribe(alice, 1, 65, true), ==, 0);
    alice->reregisters = 0;
    before = snapshot(lab);
    lab_cable(lab, "csm", false);
    lab_run(lab, 20 * IB_SEC);
    lab_cable(lab, "csm", true);
    lab_settle(lab, 2 * IB_SEC);
    assert_same(before, snapshot(lab));
    check_up(lab);
    check_all_pairs(lab);
    g_assert_cmpuint(alice->reregisters, ==, 0);
    expect_no_report(alice);
    /* What vanished meanwhile is told when it is back. */
    lab_cable(lab, "csm", false);
    lab_run(lab, 1 * IB_SEC);
    lab_cable(lab, "b2", false);
    lab_run(lab, 1 * IB_SEC);
    expect_no_report(alice);
    lab_cable(lab, "csm", true);
    lab_settle(lab, 2 * IB_SEC);
    lab_run(lab, 10 * IB_MSEC);
    expect_report(alice, 65, bob, 2);
    check_nothing_mended(lab, lab_sm(lab));
    lab_free(lab);
}

/* The cable goes in the middle of a sweep, at each of its steps. */
static void test_own_cable_in_sweep(void)
{
    SmLab *lab = lab_up(ring);

    for (unsigned i = 0; i < 50; i++) {
        sm_sweep(lab_sm(lab));
        for (unsigned j = 0; j < i; j++) {
            fabric_run(lab->fabric, 1);
            if (j % 3 == 0) {
                lab_run(lab, 0);
            }
        }
        lab_cable(lab, "csm", false);
        lab_run(lab, 300 * IB_MSEC);
        lab_cable(lab, "csm", true);
        lab_settle(lab, 20 * IB_SEC);
        check_up(lab);
    }
    check_all_pairs(lab);
    lab_free(lab);
}

/* An inter-switch cable: routes go the other way round the ring. */
static void test_reroute(void)
{
    static const char *const cables[] = { "r12", "r23", "r34", "r45", "r51" };
    SmLab *lab = lab_up(ring);

    for (size_t i = 0; i < G_N_ELEMENTS(cables); i++) {
        lab_cable(lab, cables[i], false);
        lab_settle(lab, 2 * IB_SEC);
        check_up(lab);
        check_all_pairs(lab);
        lab_cable(lab, cables[i], true);
        lab_settle(lab, 2 * IB_SEC);
        check_all_pairs(lab);
    }
    /* Two at once: islands; the SM keeps its own and takes the rest back. */
    lab_cable(lab, "r23", false);
    lab_cable(lab, "r51", false);
    lab_settle(lab, 2 * IB_SEC);
    g_assert_true(sm_port_active(lab_sm(lab),
                                 lab_guid(lab_host(lab, "h2"), 1)));
    g_assert_false(sm_port_active(lab_sm(lab),
                                  lab_guid(lab_host(lab, "h4"), 1)));
    g_assert_true(lab_reaches(lab, lab_host(lab, "h1"), 1,
                              lab_host(lab, "h2"), 1));
    lab_cable(lab, "r23", true);
    lab_cable(lab, "r51", true);
    lab_settle(lab, 2 * IB_SEC);
    check_up(lab);
    check_all_pairs(lab);
    check_nothing_mended(lab, lab_sm(lab));
    lab_free(lab);
}

/* A switch that forgot everything is set up like a new one. */
static void test_switch_reset(void)
{
    SmLab *lab = lab_up(ring);
    int s3 = topology_find_node(lab->topology, "s3");
    IbSma *sma = (IbSma *)fabric_switch_sma(lab->fabric, s3);
    uint16_t lid = sma->ports[0].info.lid;

    for (unsigned forget_lid = 0; forget_lid < 2; forget_lid++) {
        if (forget_lid) {
            sma->ports[0].info.lid = 0;
            sma->ports[0].info.sm_lid = 0;
        }
        sma->switch_info.lft_top = 0;
        sma->switch_info.port_state_change = 1;
        g_assert_false(lab_reaches(lab, lab_host(lab, "h2"), 1,
                                   lab_host(lab, "h4"), 1));
        lab_run(lab, 15 * IB_SEC);        /* the light sweep sees it */
        g_assert_cmpuint(sma->ports[0].info.lid, ==, lid);
        check_up(lab);
        check_all_pairs(lab);
    }
    lab_free(lab);
}

static const char parallel[] =
    "switch s1 ports=6\nswitch s2 ports=6\n"
    "host h1 ports=1\nhost h2 ports=1\nhost h3 ports=1\nhost sm ports=1\n"
    "cable p1 s1/1 s2/1\ncable p2 s1/2 s2/2\n"
    "cable c1 h1/1 s1/3\ncable c2 h2/1 s2/3\ncable c3 h3/1 s2/4\n"
    "cable csm sm/1 s1/4\n";

/* Routes that are good stay as they are when a better balance was possible. */
static void test_routes_kept(void)
{
    SmLab *lab = lab_new(parallel, 1);
    SmStats before, after;
    const FabricCableStats *stats;
    int p2;

    lab_cable(lab, "p2", false);
    lab_start_sm(lab, "sm", NULL);
    lab_settle(lab, 2 * IB_SEC);
    sm_get_stats(lab_sm(lab), &before);
    lab_cable(lab, "p2", true);
    lab_settle(lab, 2 * IB_SEC);
    check_all_pairs(lab);
    sm_get_stats(lab_sm(lab), &after);
    g_assert_cmpuint(after.lft_blocks_written, ==, before.lft_blocks_written);
    /* A host that comes and goes costs no table at all. */
    lab_cable(lab, "c2", false);
    lab_settle(lab, 2 * IB_SEC);
    lab_cable(lab, "c2", true);
    lab_settle(lab, 2 * IB_SEC);
    check_all_pairs(lab);
    sm_get_stats(lab_sm(lab), &after);
    g_assert_cmpuint(after.lft_blocks_written, ==, before.lft_blocks_written);
    /* From nothing, both cables are used. */
    lab_free(lab);
    lab = lab_up(parallel);
    check_all_pairs(lab);
    p2 = topology_find_cable(lab->topology, "p2");
    stats = fabric_cable_stats(lab->fabric, p2);
    {
        uint64_t there = stats->packets[0], back = stats->packets[1];

        check_all_pairs(lab);
        stats = fabric_cable_stats(lab->fabric, p2);
        g_assert_cmpuint(stats->packets[0] + stats->packets[1], >,
                         there + back);
    }
    lab_free(lab);
}

/* Hosts come and go; a host comes back as new, with its LIDs. */
static void test_host_restart(void)
{
    SmLab *lab = lab_up(one_switch);
    LabHost *alice = lab_host(lab, "alice");
    uint16_t lids[2] = { lab_lid(alice, 1), lab_lid(alice, 2) };

    for (unsigned i = 0; i < 5; i++) {
        lab_detach(alice);
        lab_settle(lab, 2 * IB_SEC);
        lab_run(lab, i * 30 * IB_MSEC);
        alice->reregisters = 0;
        lab_attach(alice);
        lab_settle(lab, 2 * IB_SEC);
        check_up(lab);
        g_assert_cmpuint(lab_lid(alice, 1), ==, lids[0]);
        g_assert_cmpuint(lab_lid(alice, 2), ==, lids[1]);
        g_assert_cmpuint(alice->reregisters, ==, 2);
    }
    check_nothing_mended(lab, lab_sm(lab));
    lab_free(lab);
}

/* A node that does not answer is left out, and taken in when it does. */
static void test_mute(void)
{
    SmLab *lab = lab_up(one_switch);
    LabHost *alice = lab_host(lab, "alice"), *bob = lab_host(lab, "bob");

    g_assert_cmpint(lab_subscribe(alice, 1, 65, true), ==, 0);
    bob->mute = true;
    sm_sweep(lab_sm(lab));
    lab_run(lab, 2 * IB_SEC);
    expect_report(alice, 65, bob, 1);
    expect_report(alice, 65, bob, 2);
    bob->mute = false;
    lab_settle(lab, 30 * IB_SEC);
    check_up(lab);
    g_assert_cmpuint(bob->dropped, ==, 0);
    lab_free(lab);
}

/* A tenth of what arrives at each host is lost: it only takes longer. */
static void test_lossy(void)
{
    for (uint32_t seed = 1; seed <= 10; seed++) {
        SmLab *lab = lab_new(ring, seed);

        for (unsigned i = 0; i < lab->hosts->len; i++) {
            ((LabHost *)g_ptr_array_index(lab->hosts, i))->drop_percent = 10;
        }
        lab_start_sm(lab, "sm", NULL);
        lab_run(lab, 60 * IB_SEC);
        for (unsigned i = 0; i < lab->hosts->len; i++) {
            ((LabHost *)g_ptr_array_index(lab->hosts, i))->drop_percent = 0;
        }
        lab_settle(lab, 30 * IB_SEC);
        check_up(lab);
        check_all_pairs(lab);
        check_nothing_mended(lab, lab_sm(lab));
        lab_free(lab);
    }
}

/* Two Active ports with one LID. */
static void test_conflict(void)
{
    SmLab *lab = lab_up(one_switch);
    LabHost *alice = lab_host(lab, "alice"), *bob = lab_host(lab, "bob");
    uint16_t lid = lab_lid(alice, 1);
    SmOptions options;

    lab_stop_sm(lab, "sm");
    bob->sma.ports[1].info.lid = lid;
    sm_options_init(&options);
    options.seed = 5;
    lab_start_sm(lab, "sm", &options);
    lab_settle(lab, 2 * IB_SEC);
    check_up(lab);
    g_assert_true((lab_lid(alice, 1) == lid) != (lab_lid(bob, 1) == lid));
    g_assert_nonnull(strstr(lab->log->str, "is also that of another port"));
    g_assert_cmpuint(alice->dropped + bob->dropped, ==, 0);
    lab_free(lab);
}

/* The same, but the LID file knows whose it is. */
static void test_conflict_reserved(gconstpointer rightful)
{
    g_autofree char *dir = g_dir_make_tmp("sm-XXXXXX", NULL);
    g_autofree char *file = g_build_filename(dir, "lids", NULL);
    g_autofree char *text = NULL;
    SmLab *lab = lab_up(one_switch);
    LabHost *alice = lab_host(lab, "alice"), *bob = lab_host(lab, "bob");
    LabHost *right = lab_host(lab, rightful);
    uint16_t lid = lab_lid(alice, 1);
    SmOptions options;

    lab_stop_sm(lab, "sm");
    bob->sma.ports[1].info.lid = lid;
    text = g_strdup_printf("0x%016" PRIx64 " %u 0\n", lab_guid(right, 1),
                           lid);
    g_assert_true(g_file_set_contents(file, text, -1, NULL));
    sm_options_init(&options);
    options.seed = 5;
    options.lid_file = file;
    lab_start_sm(lab, "sm", &options);
    lab_settle(lab, 2 * IB_SEC);
    check_up(lab);
    g_assert_cmpuint(lab_lid(right, 1), ==, lid);
    lab_free(lab);
    g_remove(file);
    g_remove(dir);
}

/* GUIDs that are there twice: the first is served, the second left out. */
static void test_duplicate_guid(void)
{
    SmLab *lab = lab_new(one_switch, 1);
    LabHost *alice = lab_host(lab, "alice"), *bob = lab_host(lab, "bob");

    bob->sma.node.node_guid = alice->sma.node.node_guid;
    bob->sma.ports[1].guids[0] = alice->sma.ports[1].guids[0];
    bob->sma.ports[2].guids[0] = alice->sma.ports[2].guids[0];
    lab_start_sm(lab, "sm", NULL);
    lab_run(lab, 5 * IB_SEC);
    g_assert_cmpint(sm_state(lab_sm(lab)), ==, SM_MASTER);
    g_assert_nonnull(strstr(lab->log->str, "was found once more"));
    g_assert_cmpuint((lab_state(alice, 1) == IB_PORT_ACTIVE) +
                     (lab_state(bob, 1) == IB_PORT_ACTIVE), ==, 1);
    lab_free(lab);
}

static void test_lmc(void)
{
    SmLab *lab = lab_new(two_rails, 1);
    LabHost *alice = lab_host(lab, "alice");
    SmOptions options;

    sm_options_init(&options);
    options.lmc = 2;
    lab_start_sm(lab, "sm", &options);
    lab_settle(lab, 2 * IB_SEC);
    check_up(lab);
    check_all_pairs(lab);
    g_assert_cmpuint(alice->sma.ports[1].info.lmc, ==, 2);
    g_assert_cmpuint(lab_lid(alice, 1) % 4, ==, 0);
    /* Restarted without: what lives keeps its range. */
    lab_stop_sm(lab, "sm");
    options.lmc = 0;
    options.seed = 2;
    lab_start_sm(lab, "sm", &options);
    lab_settle(lab, 2 * IB_SEC);
    g_assert_cmpuint(alice->sma.ports[1].info.lmc, ==, 2);
    check_all_pairs(lab);
    check_nothing_mended(lab, lab_sm(lab));
    lab_free(lab);
}

static const char two_sms[] =
    "switch s1 ports=6\nswitch s2 ports=6\nhost alice ports=1\n"
    "host sm ports=1\nhost sm2 ports=1\n"
    "cable a alice/1 s1/1\ncable csm sm/1 s1/2\ncable csm2 sm2/1 s2/2\n"
    "cable isl s1/3 s2/3\n";

static SmOptions second_options(unsigned priority)
{
    SmOptions options;

    sm_options_init(&options);
    options.node_guid = LAB_SM_GUID + 0x100;
    options.port_guid = LAB_SM_GUID + 0x101;
    options.priority = priority;
    options.seed = 1000;
    return options;
}

/* The worse one waits, and takes over when the master falls silent. */
static void test_standby(void)
{
    SmLab *lab = lab_up(two_sms);
    SmOptions options = second_options(0);
    LabHost *alice = lab_host(lab, "alice");
    uint16_t lid = lab_lid(alice, 1);
    Sm *second;

    second = lab_start_sm(lab, "sm2", &options);
    lab_run(lab, 10 * IB_SEC);
    g_assert_cmpint(sm_state(lab_sm(lab)), ==, SM_MASTER);
    g_assert_cmpint(sm_state(second), ==, SM_STANDBY);
    alice->reregisters = 0;
    lab_stop_sm(lab, "sm");
    lab_run(lab, 20 * IB_SEC);
    g_assert_cmpint(sm_state(second), ==, SM_MASTER);
    g_assert_cmpuint(alice->reregisters, ==, 1);
    g_assert_cmpuint(lab_lid(alice, 1), ==, lid);
    g_assert_cmpuint(alice->dropped, ==, 0);
    g_assert_cmpuint(alice->sma.ports[1].info.sm_lid, ==, sm_lid(second));
    /* The first comes back: it waits now, until the better one hands over. */
    sm_options_init(&options);
    options.seed = 3;
    lab_start_sm(lab, "sm", &options);
    lab_run(lab, 30 * IB_SEC);
    g_assert_cmpint(sm_state(lab_sm(lab)), ==, SM_MASTER);
    g_assert_cmpint(sm_state(second), ==, SM_STANDBY);
    g_assert_cmpuint(lab_lid(alice, 1), ==, lid);
    g_assert_cmpuint(alice->dropped, ==, 0);
    check_nothing_mended(lab, lab_sm(lab));
    lab_free(lab);
}

static void test_handover(void)
{
    SmLab *lab = lab_up(two_sms);
    SmOptions options = second_options(9);
    LabHost *alice = lab_host(lab, "alice");
    Sm *second;

    second = lab_start_sm(lab, "sm2", &options);
    lab_run(lab, 30 * IB_SEC);
    g_assert_cmpint(sm_state(lab_sm(lab)), ==, SM_STANDBY);
    g_assert_cmpint(sm_state(second), ==, SM_MASTER);
    g_assert_cmpuint(alice->sma.ports[1].info.sm_lid, ==, sm_lid(second));
    g_assert_cmpuint(alice->dropped, ==, 0);
    lab_run(lab, 30 * IB_SEC);
    g_assert_cmpint(sm_state(second), ==, SM_MASTER);
    check_nothing_mended(lab, second);
    lab_free(lab);
}

/* What another SM did while it was master is no damage to be mended. */
static void test_taken_back(void)
{
    SmLab *lab = lab_new(two_sms, 1);
    SmOptions options = second_options(9);
    LabHost *alice = lab_host(lab, "alice");
    uint16_t lid;

    lab_detach(alice);
    lab_start_sm(lab, "sm", NULL);
    lab_settle(lab, 2 * IB_SEC);
    lab_start_sm(lab, "sm2", &options);
    lab_run(lab, 30 * IB_SEC);
    g_assert_cmpint(sm_state(lab_sm(lab)), ==, SM_STANDBY);
    lab_attach(alice);
    lab_run(lab, 10 * IB_SEC);
    g_assert_cmpuint(lab_state(alice, 1), ==, IB_PORT_ACTIVE);
    lid = lab_lid(alice, 1);
    lab_stop_sm(lab, "sm2");
    lab_run(lab, 30 * IB_SEC);
    g_assert_cmpint(sm_state(lab_sm(lab)), ==, SM_MASTER);
    g_assert_cmpuint(lab_lid(alice, 1), ==, lid);
    g_assert_cmpuint(alice->dropped, ==, 0);
    check_nothing_mended(lab, lab_sm(lab));
    lab_free(lab);
}

/* Set(SMInfo) from somewhere, by LID; returns the answer's status. */
static int control(SmLab *lab, Sm *to_sm, uint64_t guid, unsigned mod)
{
    LabHost *alice = lab_host(lab, "alice");
    uint8_t mad[IB_MAD_LEN] = { 0 };
    IbMadAddress to = {
        .dlid = sm_lid(to_sm), .vl = IB_VL_MANAGEMENT,
        .pkey = IB_PKEY_DEFAULT,
    };
    IbSmp smp = {
        .hdr = { .base_version = 1, .mgmt_class = IB_CLASS_SM_LID,
                 .class_version = 1, .method = IB_METHOD_SET,
                 .tid = lab->next_tid++, .attr_id = IB_SM_SM_INFO,
                 .attr_mod = mod },
    };
    IbSmInfo info = { .guid = guid, .state = SM_MASTER };

    ib_smp_pack(mad, &smp);
    ib_sm_info_pack(mad + IB_SMP_DATA_OFFSET, &info);
    alice->last_smp_status = -1;
    lab_send(alice, 1, &to, mad);
    lab_run(lab, 1 * IB_MSEC);
    return alice->last_smp_status;
}

/* Control packets count only from the master, and only where they may. */
static void test_control(void)
{
    enum { HANDOVER = 1, DISABLE = 3, STANDBY = 4, DISCOVER = 5 };
    SmLab *lab = lab_up(two_sms);
    SmOptions options = second_options(0);
    Sm *second = lab_start_sm(lab, "sm2", &options);
    const uint64_t master = LAB_SM_GUID + 1, stranger = 0x1234;

    lab_run(lab, 5 * IB_SEC);
    g_assert_cmpint(sm_state(second), ==, SM_STANDBY);
    g_assert_cmphex(control(lab, lab_sm(lab), stranger, DISABLE), ==, 0xC);
    g_assert_cmphex(control(lab, lab_sm(lab), master, HANDOVER), ==, 0xC);
    g_assert_cmphex(control(lab, second, stranger, DISABLE), ==, 0xC);
    g_assert_cmphex(control(lab, second, stranger, HANDOVER), ==, 0xC);
    g_assert_cmphex(control(lab, second, master, STANDBY), ==, 0xC);
    g_assert_cmphex(control(lab, second, master, DISCOVER), ==, 0xC);
    g_assert_cmphex(control(lab, second, master, 99), ==, 0xC);
    g_assert_cmpint(sm_state(second), ==, SM_STANDBY);
    g_assert_cmphex(control(lab, second, master, DISABLE), ==, 0);
    g_assert_cmpint(sm_state(second), ==, SM_NOT_ACTIVE);
    lab_stop_sm(lab, "sm");
    lab_run(lab, 20 * IB_SEC);
    g_assert_cmpint(sm_state(second), ==, SM_NOT_ACTIVE);
    g_assert_cmphex(control(lab, second, master, STANDBY), ==, 0);
    lab_run(lab, 20 * IB_SEC);
    g_assert_cmpint(sm_state(second), ==, SM_MASTER);
    lab_free(lab);
}

/* Two subnets become one. */
static void test_merge(void)
{
    SmLab *lab = lab_new(two_sms, 1);
    SmOptions options = second_options(0);
    Sm *second;

    lab_cable(lab, "isl", false);
    lab_start_sm(lab, "sm", NULL);
    second = lab_start_sm(lab, "sm2", &options);
    lab_run(lab, 5 * IB_SEC);
    g_assert_cmpint(sm_state(lab_sm(lab)), ==, SM_MASTER);
    g_assert_cmpint(sm_state(second), ==, SM_MASTER);
    lab_cable(lab, "isl", true);
    lab_run(lab, 60 * IB_SEC);
    g_assert_cmpint(sm_state(lab_sm(lab)), ==, SM_MASTER);
    g_assert_cmpint(sm_state(second), ==, SM_STANDBY);
    lab_settle(lab, 5 * IB_SEC);
    check_up(lab);
    check_nothing_mended(lab, lab_sm(lab));
    lab_free(lab);
}

static char *random_topology(uint32_t seed)
{
    GRand *rand = g_rand_new_with_seed(seed);
    GString *text = g_string_new(NULL);
    unsigned switches = g_rand_int_range(rand, 1, 9);
    unsigned hosts = g_rand_int_range(rand, 1, 13);
    unsigned next[9] = { 0 }, cables = 0;

    for (unsigned i = 0; i < switches; i++) {
        g_string_append_printf(text, "switch s%u ports=40\n", i);
    }
    for (unsigned i = 1; i < switches; i++) {
        unsigned other = g_rand_int_range(rand, 0, i);

        g_string_append_printf(text, "cable t%u s%u/%u s%u/%u\n", cables++,
                               i, ++next[i], other, ++next[other]);
    }
    for (unsigned n = g_rand_int_range(rand, 0, 7); n; n--) {
        unsigned a = g_rand_int_range(rand, 0, switches);
        unsigned b = g_rand_int_range(rand, 0, switches);

        if (a != b) {
            g_string_append_printf(text, "cable x%u s%u/%u s%u/%u\n",
                                   cables++, a, ++next[a], b, ++next[b]);
        }
    }
    for (unsigned i = 0; i < hosts; i++) {
        unsigned ports = g_rand_int_range(rand, 1, 3);

        g_string_append_printf(text, "host h%u ports=%u\n", i, ports);
        for (unsigned p = 1; p <= ports; p++) {
            unsigned s = g_rand_int_range(rand, 0, switches);

            g_string_append_printf(text, "cable h%u_%u h%u/%u s%u/%u\n", i, p,
                                   i, p, s, ++next[s]);
        }
    }
    g_string_append_printf(text, "host sm ports=1\ncable csm sm/1 s0/%u\n",
                           ++next[0]);
    g_rand_free(rand);
    return g_string_free(text, false);
}

static void test_random(void)
{
    for (uint32_t seed = 1; seed <= 50; seed++) {
        g_autofree char *text = random_topology(seed);
        SmLab *lab = lab_new(text, seed);
        GArray *before;
        SmStats stats;
        SmOptions options;

        g_test_message("seed %u", seed);
        lab_start_sm(lab, "sm", NULL);
        lab_settle(lab, 5 * IB_SEC);
        check_up(lab);
        check_all_pairs(lab);
        sm_get_stats(lab_sm(lab), &stats);
        g_assert_cmpuint(stats.sweep_errors, ==, 0);
        before = snapshot(lab);
        lab_stop_sm(lab, "sm");
        sm_options_init(&options);
        options.seed = seed + 1;
        lab_start_sm(lab, "sm", &options);
        lab_settle(lab, 5 * IB_SEC);
        assert_same(before, snapshot(lab));
        check_all_pairs(lab);
        /* Cables at random, then all back in: it heals. */
        for (unsigned i = 0; i < 10; i++) {
            unsigned c = g_rand_int_range(lab->rand, 0,
                                          lab->topology->num_cables);

            fabric_cable_set(lab->fabric, c, g_rand_boolean(lab->rand));
            lab_run(lab, g_rand_int_range(lab->rand, 0, 300) * IB_MSEC);
        }
        for (unsigned c = 0; c < lab->topology->num_cables; c++) {
            fabric_cable_set(lab->fabric, c, true);
        }
        lab_run(lab, 1 * IB_SEC);
        lab_settle(lab, 60 * IB_SEC);
        check_up(lab);
        check_all_pairs(lab);
        check_nothing_mended(lab, lab_sm(lab));
        lab_free(lab);
    }
}

int main(int argc, char **argv)
{
    scratch_init();
    g_test_init(&argc, &argv, NULL);
    g_test_add_data_func("/sm/up/one-switch", one_switch, test_up);
    g_test_add_data_func("/sm/up/two-rails", two_rails, test_up);
    g_test_add_data_func("/sm/up/ring", ring, test_up);
    g_test_add_data_func("/sm/up/back-to-back", back_to_back, test_up);
    g_test_add_func("/sm/idempotent", test_idempotent);
    g_test_add_data_func("/sm/restart/one-switch", one_switch, test_restart);
    g_test_add_data_func("/sm/restart/two-rails", two_rails, test_restart);
    g_test_add_data_func("/sm/restart/ring", ring, test_restart);
    g_test_add_func("/sm/foreign-lids", test_foreign_lids);
    g_test_add_func("/sm/foreign-lids/meanwhile",
                    test_foreign_lids_meanwhile);
    g_test_add_func("/sm/lid-file", test_lid_file);
    g_test_add_func("/sm/lid-file/bad", test_bad_lid_files);
    g_test_add_data_func("/sm/lid-of-absent/known", "known",
                         test_lid_of_absent);
    g_test_add_data_func("/sm/lid-of-absent/unknown", NULL,
                         test_lid_of_absent);
    g_test_add_func("/sm/pull", test_pull);
    g_test_add_func("/sm/bounce", test_bounce);
    g_test_add_func("/sm/reports-repeated", test_reports_repeated);
    g_test_add_func("/sm/own-m-key", test_own_m_key);
    g_test_add_func("/sm/subscriptions", test_subscriptions);
    g_test_add_func("/sm/subscriber-pulled", test_subscriber_pulled);
    g_test_add_func("/sm/own-cable", test_own_cable);
    g_test_add_func("/sm/own-cable/in-sweep", test_own_cable_in_sweep);
    g_test_add_func("/sm/reroute", test_reroute);
    g_test_add_func("/sm/switch-reset", test_switch_reset);
    g_test_add_func("/sm/routes-kept", test_routes_kept);
    g_test_add_func("/sm/host-restart", test_host_restart);
    g_test_add_func("/sm/mute", test_mute);
    g_test_add_func("/sm/lossy", test_lossy);
    g_test_add_func("/sm/conflict", test_conflict);
    g_test_add_data_func("/sm/conflict/alice", "alice",
                         test_conflict_reserved);
    g_test_add_data_func("/sm/conflict/bob", "bob", test_conflict_reserved);
    g_test_add_func("/sm/duplicate-guid", test_duplicate_guid);
    g_test_add_func("/sm/lmc", test_lmc);
    g_test_add_func("/sm/standby", test_standby);
    g_test_add_func("/sm/handover", test_handover);
    g_test_add_func("/sm/taken-back", test_taken_back);
    g_test_add_func("/sm/control", test_control);
    g_test_add_func("/sm/merge", test_merge);
    g_test_add_func("/sm/random", test_random);
    return g_test_run();
}
