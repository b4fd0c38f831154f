/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Subnet administration: records against bytes made by hand, component masks,
 * statuses of bad requests, RMPP, multicast groups; and MADs and packets that
 * mean harm.
 */
#include <inttypes.h>
#include <string.h>

#include "sm_lab.h"

/* alice and bob on two rails; carol on rail 1 alone, by a 1x cable. */
static const char topology[] =
    "switch rail1 ports=8 mtu=2048\n"
    "switch rail2 ports=24\n"
    "host alice ports=2\n"
    "host bob ports=2\n"
    "host carol ports=1\n"
    "host sm ports=1\n"
    "cable a1 alice/1 rail1/1\n"
    "cable a2 alice/2 rail2/17\n"
    "cable b1 bob/1 rail1/2\n"
    "cable b2 bob/2 rail2/18\n"
    "cable c1 carol/1 rail1/3 width=1x\n"
    "cable isl rail1/7 rail2/7\n"
    "cable csm sm/1 rail1/8\n";

typedef struct Rig {
    SmLab *lab;
    LabHost *alice, *bob, *carol;
} Rig;

static void rig_init(Rig *rig, const void *unused)
{
    rig->lab = lab_new(topology, 1);
    rig->alice = lab_host(rig->lab, "alice");
    rig->bob = lab_host(rig->lab, "bob");
    rig->carol = lab_host(rig->lab, "carol");
    lab_start_sm(rig->lab, "sm", NULL);
    lab_settle(rig->lab, 2 * IB_SEC);
}

static void rig_fini(Rig *rig, const void *unused)
{
    lab_free(rig->lab);
}

static IbSaHeader ask(unsigned method, unsigned attr, uint64_t mask)
{
    return (IbSaHeader) {
        .hdr = { .method = method, .attr_id = attr },
        .component_mask = mask,
    };
}

/* PathRecord */

enum { PR_DGID = 1 << 2, PR_SGID = 1 << 3, PR_DLID = 1 << 4,
       PR_SLID = 1 << 5, PR_REVERSIBLE = 1 << 11, PR_NUMB = 1 << 12,
       PR_PKEY = 1 << 13, PR_MTU = 3 << 16, PR_RATE = 3 << 18 };

/* What Linux's ib_sa asks, and the bytes it must get. */
static void test_path_bytes(Rig *rig, const void *unused)
{
    IbSaHeader header = ask(IB_METHOD_GET, IB_SA_PATH_RECORD,
                            PR_DGID | PR_SGID | PR_REVERSIBLE | PR_NUMB |
                            PR_PKEY);
    uint8_t data[IB_SA_DATA_LEN] = { 0 }, reply[IB_SA_DATA_LEN];
    uint8_t want[IB_PATH_RECORD_LEN] = { 0 };

    lab_gid(rig->bob, 1, data + 8);
    lab_gid(rig->alice, 2, data + 24);
    data[49] = 0x80 | 1;                  /* reversible, one path */
    data[50] = 0xFF;
    data[51] = 0xFF;                      /* P_Key */
    memcpy(want, data, sizeof(want));
    ib_put16(want + 40, lab_lid(rig->bob, 1));
    ib_put16(want + 42, lab_lid(rig->alice, 2));
    want[54] = 0x80 | 4;                  /* exactly 2048 */
    want[55] = 0x80 | 3;                  /* exactly 10 Gb/s: 4x SDR */
    want[56] = 0x80 | 14;
    g_assert_cmpint(lab_sa(rig->alice, 2, &header, data, reply), ==, 0);
    g_assert_cmpmem(reply, IB_PATH_RECORD_LEN, want, IB_PATH_RECORD_LEN);
    g_assert_cmpuint(header.rmpp_flags & 1, ==, 0);
    g_assert_cmpuint(header.attr_offset, ==, 8);
}

static int get_path(Rig *rig, LabHost *from, unsigned from_port,
                    LabHost *to, unsigned to_port, uint64_t mask,
                    IbPathRecord *path)
{
    IbSaHeader header = ask(IB_METHOD_GET, IB_SA_PATH_RECORD,
                            mask | PR_DGID | PR_SGID);
    uint8_t data[IB_SA_DATA_LEN] = { 0 }, reply[IB_SA_DATA_LEN];
    int status;

    lab_gid(from, from_port, path->sgid);
    lab_gid(to, to_port, path->dgid);
    ib_path_record_pack(data, path);
    status = lab_sa(rig->alice, 1, &header, data, reply);
    if (status == 0) {
        ib_path_record_unpack(path, reply);
    }
    return status;
}

static void test_path(Rig *rig, const void *unused)
{
    IbPathRecord path = { 0 };

    /* Along rail 2 alone the MTU is 4096; to carol one lane. */
    g_assert_cmpint(get_path(rig, rig->alice, 2, rig->bob, 2, 0, &path), ==,
                    0);
    g_assert_cmpuint(path.mtu, ==, 5);
    g_assert_cmpuint(path.rate, ==, 3);
    g_assert_cmpuint(path.dlid, ==, lab_lid(rig->bob, 2));
    g_assert_cmpuint(path.slid, ==, lab_lid(rig->alice, 2));
    g_assert_cmpuint(path.hop_limit, ==, 0);
    g_assert_true(path.reversible);
    path = (IbPathRecord) { 0 };
    g_assert_cmpint(get_path(rig, rig->alice, 2, rig->carol, 1, 0, &path),
                    ==, 0);
    g_assert_cmpuint(path.mtu, ==, 4);
    g_assert_cmpuint(path.rate, ==, 2);
    /* To itself. */
    path = (IbPathRecord) { 0 };
    g_assert_cmpint(get_path(rig, rig->bob, 2, rig->bob, 2, 0, &path), ==,
                    0);
    g_assert_cmpuint(path.dlid, ==, path.slid);
    /* Selectors: more than 2048; less than 10 Gb/s; exactly 2.5. */
    path = (IbPathRecord) { .mtu_selector = 0, .mtu = 4 };
    g_assert_cmpint(get_path(rig, rig->alice, 2, rig->bob, 2, PR_MTU, &path),
                    ==, 0);
    path = (IbPathRecord) { .mtu_selector = 0, .mtu = 4 };
    g_assert_cmpint(get_path(rig, rig->alice, 1, rig->bob, 2, PR_MTU, &path),
                    ==, IB_SA_STATUS_NO_RECORDS);
    path = (IbPathRecord) { .rate_selector = 1, .rate = 3 };
    g_assert_cmpint(get_path(rig, rig->alice, 2, rig->bob, 2, PR_RATE,
                             &path), ==, IB_SA_STATUS_NO_RECORDS);
    path = (IbPathRecord) { .rate_selector = 2, .rate = 2 };
    g_assert_cmpint(get_path(rig, rig->alice, 2, rig->carol, 1, PR_RATE,
                             &path), ==, 0);
    path = (IbPathRecord) { .pkey = 0x8001 };
    g_assert_cmpint(get_path(rig, rig->alice, 2, rig->bob, 2, PR_PKEY,
                             &path), ==, IB_SA_STATUS_NO_RECORDS);
    path = (IbPathRecord) { .num_paths = 0 };
    g_assert_cmpint(get_path(rig, rig->alice, 2, rig->bob, 2, PR_NUMB,
                             &path), ==, IB_SA_STATUS_REQ_INVALID);
    /* A port that is away has no path, then its GID is unknown. */
    lab_cable(rig->lab, "b2", false);
    lab_run(rig->lab, 200 * IB_MSEC);
    path = (IbPathRecord) { 0 };
    g_assert_cmpint(get_path(rig, rig->alice, 2, rig->bob, 2, 0, &path), ==,
                    IB_SA_STATUS_BAD_GID);
    /* Islands: Active, known, but not connected is never answered. */
    lab_cable(rig->lab, "b2", true);
    lab_run(rig->lab, 200 * IB_MSEC);
    path = (IbPathRecord) { 0 };
    g_assert_cmpint(get_path(rig, rig->alice, 2, rig->bob, 2, 0, &path), ==,
                    0);
    lab_cable(rig->lab, "isl", false);
    lab_run(rig->lab, 200 * IB_MSEC);
    path = (IbPathRecord) { 0 };
    g_assert_cmpint(get_path(rig, rig->alice, 1, rig->bob, 2, 0, &path), ==,
                    IB_SA_STATUS_BAD_GID);
    path = (IbPathRecord) { 0 };
    g_assert_cmpint(get_path(rig, rig->alice, 1, rig->bob, 1, 0, &path), ==,
                    0);
}

static void test_path_table(Rig *rig, const void *unused)
{
    IbSaHeader header = ask(0, IB_SA_PATH_RECORD, 0);
    uint8_t data[IB_SA_DATA_LEN] = { 0 };
    GByteArray *bytes;
    int status;

    /* 6 ports of hosts, 2 of switches: all pairs, loopbacks included. */
    bytes = lab_sa_table(rig->alice, 1, &header, data, &status);
    g_assert_cmpint(status, ==, 0);
    g_assert_cmpuint(bytes->len, ==, 8 * 8 * IB_PATH_RECORD_LEN);
    g_byte_array_free(bytes, true);
    /* From a LID: 8. To a LID that nobody has: a table of none. */
    header = ask(0, IB_SA_PATH_RECORD, PR_SLID);
    ib_put16(data + 42, lab_lid(rig->alice, 1));
    bytes = lab_sa_table(rig->alice, 1, &header, data, &status);
    g_assert_cmpuint(bytes->len, ==, 8 * IB_PATH_RECORD_LEN);
    g_byte_array_free(bytes, true);
    header = ask(0, IB_SA_PATH_RECORD, PR_SLID);
    ib_put16(data + 42, 999);
    bytes = lab_sa_table(rig->alice, 1, &header, data, &status);
    g_assert_cmpuint(bytes->len, ==, 0);
    g_byte_array_free(bytes, true);
}

/* Multicast groups joined and left */

enum { MC_MGID = 1 << 0, MC_PORT_GID = 1 << 1, MC_QKEY = 1 << 2,
       MC_TCLASS = 1 << 6, MC_PKEY = 1 << 7, MC_SL = 1 << 12,
       MC_FLOW = 1 << 13, MC_JOIN = 1 << 16, MC_MTU = 3 << 4,
       MC_JOINS = MC_MGID | MC_PORT_GID | MC_JOIN,
       MC_CREATES = MC_JOINS | MC_QKEY | MC_TCLASS | MC_PKEY | MC_SL |
                    MC_FLOW };

static const uint8_t ipoib_mgid[16] = {
    0xFF, 0x12, 0x40, 0x1B, 0xFF, 0xFF, 0, 0, 0, 0, 0, 0,
    0xFF, 0xFF, 0xFF, 0xFF,
};
static const uint8_t my_mgid[16] = {
    0xFF, 0x12, 0xA0, 0x1B, 0xFE, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1,
};

static int mcast(LabHost *host, unsigned port, unsigned method,
                 const uint8_t mgid[16], unsigned join_state, uint64_t mask,
                 IbMcMemberRecord *rec)
{
    IbSaHeader header = ask(method, IB_SA_MCMEMBER_RECORD, mask);
    uint8_t data[IB_SA_DATA_LEN] = { 0 }, reply[IB_SA_DATA_LEN];
    IbMcMemberRecord want = {
        .qkey = 0x1234, .pkey = 0xFFFF, .mtu_selector = 2, .mtu = 4,
        .join_state = join_state,
    };
    int status;

    memcpy(want.mgid, mgid, 16);
    lab_gid(host, port, want.port_gid);
    ib_mcmember_record_pack(data, &want);
    status = lab_sa(host, port, &header, data, reply);
    if (status == 0 && rec) {
        ib_mcmember_record_unpack(rec, reply);
    }
    return status;
}

/* Other records */

static void test_records(Rig *rig, const void *unused)
{
    static const struct {
        unsigned attr, len, count;
    } tables[] = {
        { IB_SA_NODE_RECORD, 112, 8 },
        /* 6 of hosts; 8 + 1 and 24 + 1 of switches */
        { IB_SA_PORT_INFO_RECORD, 72, 6 + 9 + 25 },
        { IB_SA_SWITCH_INFO_RECORD, 24, 2 },
        { IB_SA_LFT_RECORD, 72, 2 },
        { IB_SA_MFT_RECORD, 72, 3 },
        { IB_SA_PKEY_TABLE_RECORD, 72, 8 },
        { IB_SA_SERVICE_RECORD, 176, 0 },
        { IB_SA_SM_INFO_RECORD, 32, 1 },
        { IB_SA_LINK_RECORD, 8, 14 },
        { IB_SA_INFORM_INFO_RECORD, 64, 0 },
        { IB_SA_MCMEMBER_RECORD, 56, 1 },
    };
    uint8_t data[IB_SA_DATA_LEN] = { 0 };

    for (size_t i = 0; i < G_N_ELEMENTS(tables); i++) {
        IbSaHeader header = ask(0, tables[i].attr, 0);
        int status;
        GByteArray *bytes = lab_sa_table(rig->alice, 1, &header, data,
                                         &status);

        g_assert_cmpint(status, ==, 0);
        g_assert_cmpuint(header.attr_offset, ==, tables[i].len / 8);
        g_assert_cmpuint(bytes->len, ==, tables[i].len * tables[i].count);
        g_byte_array_free(bytes, true);
    }
}

static void test_node_record(Rig *rig, const void *unused)
{
    IbSaHeader header = ask(IB_METHOD_GET, IB_SA_NODE_RECORD, 1 << 0);
    uint8_t data[IB_SA_DATA_LEN] = { 0 }, reply[IB_SA_DATA_LEN];
    IbNodeInfo info;

    ib_put16(data, lab_lid(rig->bob, 2));
    g_assert_cmpint(lab_sa(rig->alice, 1, &header, data, reply), ==, 0);
    g_assert_cmpuint(ib_get16(reply), ==, lab_lid(rig->bob, 2));
    ib_node_info_unpack(&info, reply + 4);
    g_assert_cmphex(info.node_guid, ==, lab_guid(rig->bob, 0));
    g_assert_cmphex(info.port_guid, ==, lab_guid(rig->bob, 2));
    g_assert_cmpuint(info.local_port, ==, 2);
    g_assert_cmpuint(info.num_ports, ==, 2);
    g_assert_cmpstr((char *)reply + 44, ==, "bob");
    /* By node GUID there are two. */
    header = ask(IB_METHOD_GET, IB_SA_NODE_RECORD, 1 << 7);
    ib_put64(data + 16, lab_guid(rig->bob, 0));
    g_assert_cmpint(lab_sa(rig->alice, 1, &header, data, reply), ==,
                    IB_SA_STATUS_TOO_MANY);
    header = ask(IB_METHOD_GET, IB_SA_NODE_RECORD, 1 << 7);
    ib_put64(data + 16, 12345);
    g_assert_cmpint(lab_sa(rig->alice, 1, &header, data, reply), ==,
                    IB_SA_STATUS_NO_RECORDS);
    /* By description. */
    header = ask(IB_METHOD_GET, IB_SA_NODE_RECORD, 1 << 14);
    strcpy((char *)data + 44, "carol");
    g_assert_cmpint(lab_sa(rig->alice, 1, &header, data, reply), ==, 0);
    g_assert_cmpuint(ib_get16(reply), ==, lab_lid(rig->carol, 1));
}

static void test_port_record(Rig *rig, const void *unused)
{
    IbSaHeader header = ask(IB_METHOD_GET, IB_SA_PORT_INFO_RECORD,
                            1 << 0 | 1 << 1);
    uint8_t data[IB_SA_DATA_LEN] = { 0 }, reply[IB_SA_DATA_LEN];
    IbPortInfo info;

    ib_put16(data, lab_lid(rig->carol, 1));
    data[2] = 1;
    g_assert_cmpint(lab_sa(rig->alice, 1, &header, data, reply), ==, 0);
    ib_port_info_unpack(&info, reply + 4);
    g_assert_cmpuint(info.lid, ==, lab_lid(rig->carol, 1));
    g_assert_cmpuint(info.state, ==, IB_PORT_ACTIVE);
    g_assert_cmpuint(info.sm_lid, ==, sm_lid(lab_sm(rig->lab)));
    g_assert_cmpuint(info.neighbor_mtu, ==, 4);
    g_assert_cmpuint(info.subnet_timeout, ==, 14);
    g_assert_cmpuint(info.width_active, ==, 1);
    data[2] = 2;
    header = ask(IB_METHOD_GET, IB_SA_PORT_INFO_RECORD, 1 << 0 | 1 << 1);
    g_assert_cmpint(lab_sa(rig->alice, 1, &header, data, reply), ==,
                    IB_SA_STATUS_NO_RECORDS);
}

/* All that the mask names, or, by the modifier, at least the bits given. */
static void test_capability_match(Rig *rig, const void *unused)
{
    IbSaHeader header = ask(0, IB_SA_PORT_INFO_RECORD, 1 << 7);
    uint8_t data[IB_SA_DATA_LEN] = { 0 };
    GByteArray *bytes;
    int status;

    ib_put32(data + 4 + 20, IB_CAP_SM);
    bytes = lab_sa_table(rig->alice, 1, &header, data, &status);
    g_assert_cmpuint(bytes->len, ==, 0);
    g_byte_array_free(bytes, true);
    header = ask(0, IB_SA_PORT_INFO_RECORD, 1 << 7);
    header.hdr.attr_mod = 1u << 31;
    bytes = lab_sa_table(rig->alice, 1, &header, data, &status);
    g_assert_cmpuint(bytes->len, ==, 72);
    g_assert_cmpuint(ib_get16(bytes->data), ==, sm_lid(lab_sm(rig->lab)));
    g_byte_array_free(bytes, true);
}

static uint16_t switch_lid(const Rig *rig, const char *name)
{
    int node = topology_find_node(rig->lab->topology, name);

    return fabric_switch_sma(rig->lab->fabric, node)->ports[0].info.lid;
}

static void test_mft_record(Rig *rig, const void *unused)
{
    IbSaHeader header = ask(IB_METHOD_GET, IB_SA_MFT_RECORD,
                            1 << 0 | 1 << 1 | 1 << 3);
    uint8_t data[IB_SA_DATA_LEN] = { 0 }, reply[IB_SA_DATA_LEN];

    /* Ports 17 and 18 of rail2 join the broadcast group. */
    g_assert_cmpint(mcast(rig->alice, 2, IB_METHOD_SET, ipoib_mgid, 1,
                          MC_JOINS, NULL), ==, 0);
    g_assert_cmpint(mcast(rig->bob, 2, IB_METHOD_SET, ipoib_mgid, 1,
                          MC_JOINS, NULL), ==, 0);
    ib_put16(data, switch_lid(rig, "rail2"));
    ib_put16(data + 2, 1 << 12);          /* position 1, block 0 */
    g_assert_cmpint(lab_sa(rig->carol, 1, &header, data, reply), ==, 0);
    g_assert_cmpmem(reply, 4, data, 4);
    g_assert_cmphex(ib_get16(reply + 8), ==, 1 << 1 | 1 << 2);
    g_assert_cmphex(ib_get16(reply + 10), ==, 0);
    data[3] = 1;                          /* block 1 */
    header = ask(IB_METHOD_GET, IB_SA_MFT_RECORD, 1 << 0 | 1 << 1 | 1 << 3);
    g_assert_cmpint(lab_sa(rig->carol, 1, &header, data, reply), ==,
                    IB_SA_STATUS_NO_RECORDS);
}

static void test_pkey_record(Rig *rig, const void *unused)
{
    IbSaHeader header = ask(IB_METHOD_GET, IB_SA_PKEY_TABLE_RECORD,
                            1 << 0 | 1 << 1 | 1 << 2);
    uint8_t data[IB_SA_DATA_LEN] = { 0 }, reply[IB_SA_DATA_LEN];

    rig->bob->sma.ports[2].pkeys[31] = 0x8005;
    sm_sweep(lab_sm(rig->lab));
    lab_settle(rig->lab, 1 * IB_SEC);
    ib_put16(data, lab_lid(rig->bob, 2));
    data[4] = 2;
    g_assert_cmpint(lab_sa(rig->alice, 1, &header, data, reply), ==, 0);
    g_assert_cmpmem(reply, 8, data, 8);
    g_assert_cmphex(ib_get16(reply + 8), ==, 0xFFFF);
    g_assert_cmphex(ib_get16(reply + 8 + 62), ==, 0x8005);
}

/* ServiceRecord: @who says it of @port; ServiceID @id, lease, key. */
static int service(LabHost *who, unsigned port, LabHost *of, unsigned method,
                   uint64_t id, uint32_t lease, uint8_t key, uint64_t mask,
                   uint8_t reply[IB_SA_DATA_LEN])
{
    IbSaHeader header = ask(method, IB_SA_SERVICE_RECORD, mask);
    uint8_t data[IB_SA_DATA_LEN] = { 0 };

    ib_put64(data, id);
    lab_gid(of, port, data + 8);
    ib_put32(data + 28, lease);
    data[32 + 15] = key;
    strcpy((char *)data + 48, "printer");
    data[112] = 11;                       /* ServiceData8.1 */
    ib_put64(data + 168, 22);             /* ServiceData64.2 */
    return lab_sa(who, port, &header, data, reply);
}

enum { SR_ID = 1, SR_GID = 2, SR_LEASE = 1 << 4, SR_KEY = 1 << 5,
       SR_NAME = 1 << 6, SR_DATA8_1 = 1 << 7 };
#define SR_DATA64_2 (UINT64_C(1) << 36)
#define SR_SET (SR_ID | SR_GID | SR_LEASE | SR_KEY | SR_NAME | SR_DATA8_1 | \
                SR_DATA64_2)

static unsigned services(Rig *rig)
{
    SmStats stats;

    sm_get_stats(lab_sm(rig->lab), &stats);
    return stats.services;
}

static void test_service(Rig *rig, const void *unused)
{
    LabHost *alice = rig->alice, *bob = rig->bob;
    uint8_t reply[IB_SA_DATA_LEN];

    /* Whose, and of what, must be said; for oneself only. */
    g_assert_cmpint(service(alice, 1, alice, IB_METHOD_SET, 7, 10, 3,
                            SR_SET & ~SR_GID, reply), ==,
                    IB_SA_STATUS_COMPONENTS);
    g_assert_cmpint(service(alice, 1, bob, IB_METHOD_SET, 7, 10, 3, SR_SET,
                            reply), ==, IB_SA_STATUS_REQ_INVALID);
    g_assert_cmpint(service(alice, 1, alice, IB_METHOD_SET, 7, 0, 3, SR_SET,
                            reply), ==, IB_SA_STATUS_REQ_INVALID);
    g_assert_cmpint(service(alice, 1, alice, IB_METHOD_SET, 7, 10, 3, SR_SET,
                            reply), ==, 0);
    g_assert_cmphex(ib_get16(reply + 24), ==, 0xFFFF);
    g_assert_cmpuint(services(rig), ==, 1);
    /* Found by name and data; the key is nobody else's business. */
    lab_run(rig->lab, 3500 * IB_MSEC);
    g_assert_cmpint(service(bob, 1, alice, IB_METHOD_GET, 0, 0, 0,
                            SR_NAME | SR_DATA8_1 | SR_DATA64_2, reply), ==,
                    0);
    g_assert_cmpuint(ib_get64(reply), ==, 7);
    g_assert_cmpuint(ib_get32(reply + 28), ==, 7);       /* of its lease */
    g_assert_cmpuint(reply[47], ==, 0);
    g_assert_cmpstr((char *)reply + 48, ==, "printer");
    g_assert_cmpint(service(bob, 1, alice, IB_METHOD_GET, 8, 0, 0, SR_ID,
                            reply), ==, IB_SA_STATUS_NO_RECORDS);
    /* Only who knows the key renews or ends it. */
    g_assert_cmpint(service(alice, 1, alice, IB_METHOD_SET, 7, 99, 4, SR_SET,
                            reply), ==, IB_SA_STATUS_REQ_INVALID);
    g_assert_cmpint(service(alice, 1, alice, IB_METHOD_DELETE, 7, 0, 4,
                            SR_ID | SR_GID | SR_KEY, reply), ==,
                    IB_SA_STATUS_REQ_INVALID);
    g_assert_cmpint(service(alice, 1, alice, IB_METHOD_SET, 7, 20, 3, SR_SET,
                            reply), ==, 0);
    lab_run(rig->lab, 15 * IB_SEC);
    g_assert_cmpint(service(bob, 1, alice, IB_METHOD_GET, 7, 0, 0, SR_ID,
                            reply), ==, 0);
    lab_run(rig->lab, 6 * IB_SEC);
    g_assert_cmpint(service(bob, 1, alice, IB_METHOD_GET, 7, 0, 0, SR_ID,
                            reply), ==, IB_SA_STATUS_NO_RECORDS);
    g_assert_cmpuint(services(rig), ==, 0);
    /* Without a lease it stays, until it is deleted. */
    g_assert_cmpint(service(alice, 1, alice, IB_METHOD_SET, 7, 0, 3,
                            SR_SET & ~SR_LEASE, reply), ==, 0);
    g_assert_cmphex(ib_get32(reply + 28), ==, 0xFFFFFFFF);
    lab_run(rig->lab, 3600 * IB_SEC);
    g_assert_cmpint(service(alice, 1, alice, IB_METHOD_DELETE, 7, 0, 3,
                            SR_ID | SR_GID | SR_KEY, reply), ==, 0);
    g_assert_cmpstr((char *)reply + 48, ==, "printer");
    g_assert_cmpint(service(alice, 1, alice, IB_METHOD_DELETE, 7, 0, 3,
                            SR_ID | SR_GID | SR_KEY, reply), ==,
                    IB_SA_STATUS_NO_RECORDS);
    /* Not more than so many. */
    for (unsigned i = 0; i < 2 * SM_MAX_SERVICES_PER_PORT; i++) {
        g_assert_cmpint(service(alice, 1, alice, IB_METHOD_SET, i, 10, 3,
                                SR_SET, reply), ==,
                        i < SM_MAX_SERVICES_PER_PORT
                        ? 0 : IB_SA_STATUS_NO_RESOURCES);
    }
    g_assert_cmpint(service(bob, 1, bob, IB_METHOD_SET, 7, 10, 3, SR_SET,
                            reply), ==, 0);
    g_assert_cmpint(service(bob, 1, alice, IB_METHOD_GET, 7, 0, 0, SR_ID,
                            reply), ==, IB_SA_STATUS_TOO_MANY);
}

static void test_class_port_info(Rig *rig, const void *unused)
{
    IbSaHeader header = ask(IB_METHOD_GET, IB_ATTR_CLASS_PORT_INFO, 0);
    uint8_t reply[IB_SA_DATA_LEN];

    g_assert_cmpint(lab_sa(rig->alice, 1, &header, NULL, reply), ==, 0);
    /* UD multicast, CapabilityMask match; send-only full members; 0.5 s. */
    g_assert_cmphex(ib_get32(reply), ==, 0x01022200);
    g_assert_cmphex(ib_get32(reply + 4), ==, 8 << 5 | 17);
}

static void test_inform_record(Rig *rig, const void *unused)
{
    IbSaHeader header = ask(IB_METHOD_GET, IB_SA_INFORM_INFO_RECORD, 1 << 0);
    uint8_t data[IB_SA_DATA_LEN] = { 0 }, reply[IB_SA_DATA_LEN];
    IbInformInfo info;

    g_assert_cmpint(lab_subscribe(rig->bob, 2, 64, true), ==, 0);
    lab_gid(rig->bob, 2, data);
    g_assert_cmpint(lab_sa(rig->alice, 1, &header, data, reply), ==, 0);
    ib_inform_info_unpack(&info, reply + 24);
    g_assert_cmpuint(info.trap, ==, 64);
    g_assert_cmpuint(info.subscribe, ==, 1);
}

/* Requests that are wrong, and what is said of them. */
static void test_bad_requests(Rig *rig, const void *unused)
{
    uint8_t data[IB_SA_DATA_LEN] = { 0 };
    IbSaHeader header;

    header = ask(0x7E, IB_SA_PATH_RECORD, 0);
    g_assert_cmpint(lab_sa(rig->alice, 1, &header, data, NULL), ==,
                    IB_MAD_STATUS_BAD_METHOD);
    header = ask(IB_METHOD_SET, IB_SA_PATH_RECORD, 0);
    g_assert_cmpint(lab_sa(rig->alice, 1, &header, data, NULL), ==,
                    IB_MAD_STATUS_BAD_METHOD_ATTR);
    header = ask(IB_METHOD_GET, 0x7777, 0);
    g_assert_cmpint(lab_sa(rig->alice, 1, &header, data, NULL), ==,
                    IB_MAD_STATUS_BAD_METHOD_ATTR);
    header = ask(IB_METHOD_GET, IB_SA_PATH_RECORD, 0);
    header.hdr.class_version = 1;
    g_assert_cmpint(lab_sa(rig->alice, 1, &header, data, NULL), ==,
                    IB_MAD_STATUS_BAD_VERSION);
    header = ask(IB_METHOD_GET, IB_SA_NODE_RECORD, 0);
    header.sm_key = 42;
    g_assert_cmpint(lab_sa(rig->alice, 1, &header, data, NULL), ==,
                    IB_SA_STATUS_REQ_INVALID);
    header = ask(IB_METHOD_GET, IB_SA_NODE_RECORD, 0);
    g_assert_cmpint(lab_sa(rig->alice, 1, &header, data, NULL), ==,
                    IB_SA_STATUS_TOO_MANY);
    header = ask(IB_METHOD_SET, IB_ATTR_INFORM_INFO, 0);
    data[23] = 2;                         /* subscribe */
    g_assert_cmpint(lab_sa(rig->alice, 1, &header, data, NULL), ==,
                    IB_SA_STATUS_REQ_INVALID);
}

/* RMPP */

static uint64_t start_table(LabHost *host, IbSaHeader *header)
{
    static const IbMadAddress to = {
        .src_qpn = 1, .dest_qpn = 1, .qkey = IB_QKEY_QP1,
        .pkey = IB_PKEY_DEFAULT,
    };
    uint8_t mad[IB_MAD_LEN] = { 0 };

    *header = ask(IB_METHOD_GET_TABLE, IB_SA_PORT_INFO_RECORD, 0);
    header->hdr.base_version = 1;
    header->hdr.mgmt_class = IB_CLASS_SA;
    header->hdr.class_version = 2;
    header->hdr.tid = ++host->lab->next_tid;
    ib_sa_header_pack(mad, header);
    lab_flush(host);
    lab_send(host, 1, &to, mad);
    lab_run(host->lab, 1 * IB_MSEC);
    return header->hdr.tid;
}

static void send_rmpp(LabHost *host, IbSaHeader header, unsigned version,
                      unsigned type, uint32_t data1, uint32_t data2)
{
    static const IbMadAddress to = {
        .src_qpn = 1, .dest_qpn = 1, .qkey = IB_QKEY_QP1,
        .pkey = IB_PKEY_DEFAULT,
    };
    uint8_t mad[IB_MAD_LEN] = { 0 };

    header.rmpp_version = version;
    header.rmpp_type = type;
    header.rmpp_flags = 1;
    header.rmpp_data1 = data1;
    header.rmpp_data2 = data2;
    ib_sa_header_pack(mad, &header);
    lab_send(host, 1, &to, mad);
    lab_run(host->lab, 1 * IB_MSEC);
}

/* The next RMPP packet; fails if there is none. */
static IbSaHeader next_rmpp(LabHost *host)
{
    LabMad *mad = lab_next_mad(host);
    IbSaHeader header;

    g_assert_nonnull(mad);
    ib_sa_header_unpack(&header, mad->mad);
    g_free(mad);
    return header;
}

static unsigned rmpp_active(Rig *rig)
{
    SmStats stats;

    sm_get_stats(lab_sm(rig->lab), &stats);
    return stats.rmpp_active;
}

static void test_rmpp(Rig *rig, const void *unused)
{
    const unsigned segments = (40 * 72 + 199) / 200;
    IbSaHeader request, header;

    /* The first goes alone, its length counts 20 bytes per segment. */
    start_table(rig->alice, &request);
    header = next_rmpp(rig->alice);
    g_assert_cmpuint(header.rmpp_data1, ==, 1);
    g_assert_cmpuint(header.rmpp_flags, ==, 3);
    g_assert_cmpuint(header.rmpp_data2, ==, 40 * 72 + 20 * segments);
    g_assert_null(lab_next_mad(rig->alice));
    /* The same request again: no second answer. */
    send_rmpp(rig->alice, request, 1, 2, 1, 4);
    for (unsigned i = 2; i <= 4; i++) {
        header = next_rmpp(rig->alice);
        g_assert_cmpuint(header.rmpp_data1, ==, i);
        g_assert_cmpuint(header.rmpp_flags, ==, 1);
    }
    g_assert_null(lab_next_mad(rig->alice));
    /* 3 and 4 were lost: again after a second, from 3 on. */
    send_rmpp(rig->alice, request, 1, 2, 2, 4);
    lab_run(rig->lab, 1500 * IB_MSEC);
    header = next_rmpp(rig->alice);
    g_assert_cmpuint(header.rmpp_data1, ==, 3);
    header = next_rmpp(rig->alice);
    g_assert_cmpuint(header.rmpp_data1, ==, 4);
    send_rmpp(rig->alice, request, 1, 2, 4, 1000);
    for (unsigned i = 5; i <= segments; i++) {
        header = next_rmpp(rig->alice);
        g_assert_cmpuint(header.rmpp_data1, ==, i);
    }
    g_assert_cmpuint(header.rmpp_flags, ==, 5);
    g_assert_cmpuint(header.rmpp_data2, ==,
                     40 * 72 - 200 * (segments - 1) + 20);
    g_assert_cmpuint(rmpp_active(rig), ==, 1);
    send_rmpp(rig->alice, request, 1, 2, segments, segments);
    g_assert_cmpuint(rmpp_active(rig), ==, 0);
    g_assert_null(lab_next_mad(rig->alice));
}

static void expect_abort(Rig *rig, unsigned status)
{
    IbSaHeader header = next_rmpp(rig->alice);

    while (header.rmpp_type == 1) {
        header = next_rmpp(rig->alice);
    }
    g_assert_cmpuint(header.rmpp_type, ==, 4);
    g_assert_cmpuint(header.rmpp_status, ==, status);
    g_assert_cmpuint(rmpp_active(rig), ==, 0);
}

static void test_rmpp_broken(Rig *rig, const void *unused)
{
    IbSaHeader request;

    start_table(rig->alice, &request);    /* segment never sent */
    send_rmpp(rig->alice, request, 1, 2, 2, 9);
    expect_abort(rig, 123);
    start_table(rig->alice, &request);    /* window behind the segment */
    send_rmpp(rig->alice, request, 1, 2, 1, 0);
    expect_abort(rig, 122);
    start_table(rig->alice, &request);
    send_rmpp(rig->alice, request, 9, 2, 1, 9);
    expect_abort(rig, 125);
    start_table(rig->alice, &request);
    send_rmpp(rig->alice, request, 1, 77, 1, 9);
    expect_abort(rig, 121);
    start_table(rig->alice, &request);    /* ABORT and STOP are obeyed */
    send_rmpp(rig->alice, request, 1, 4, 0, 0);
    g_assert_cmpuint(rmpp_active(rig), ==, 0);
    start_table(rig->alice, &request);
    send_rmpp(rig->alice, request, 1, 3, 0, 0);
    g_assert_cmpuint(rmpp_active(rig), ==, 0);
    start_table(rig->alice, &request);    /* silence */
    lab_run(rig->lab, 10 * IB_SEC);
    expect_abort(rig, 126);
    /* Progress by the drop: a segment in 4.5 s, cut off after a minute. */
    start_table(rig->alice, &request);
    for (unsigned i = 1; i < 15; i++) {
        g_assert_cmpuint(rmpp_active(rig), ==, 1);
        send_rmpp(rig->alice, request, 1, 2, i, i + 1);
        lab_run(rig->lab, 4500 * IB_MSEC);
    }
    lab_run(rig->lab, 4 * IB_SEC);
    expect_abort(rig, 118);
    /* Too many at once from one client: BUSY, and all end in time. */
    for (unsigned i = 0; i < 40; i++) {
        start_table(rig->alice, &request);
    }
    g_assert_cmpuint(rmpp_active(rig), ==, 8);
    g_assert_cmphex(next_rmpp(rig->alice).hdr.status, ==,
                    IB_MAD_STATUS_BUSY);
    lab_run(rig->lab, 20 * IB_SEC);
    g_assert_cmpuint(rmpp_active(rig), ==, 0);
}

/* Multicast */

static bool group_reaches(LabHost *from, unsigned from_port, uint16_t mlid,
                          LabHost *to, unsigned to_port, unsigned *copies)
{
    uint8_t mad[IB_MAD_LEN] = { 1, IB_CLASS_CM, 2, IB_METHOD_SEND };
    IbMadAddress address = {
        .dlid = mlid, .src_qpn = 1, .dest_qpn = 1, .qkey = IB_QKEY_QP1,
        .pkey = IB_PKEY_DEFAULT,
    };
    LabMad *got;

    *copies = 0;
    lab_flush(to);
    ib_put64(mad + 8, from->lab->next_tid++);
    lab_send(from, from_port, &address, mad);
    lab_run(from->lab, 1 * IB_MSEC);
    while ((got = lab_next_mad(to))) {
        *copies += memcmp(got->mad, mad, IB_MAD_LEN) == 0 &&
                   got->port == to_port;
        g_free(got);
    }
    return *copies == 1;
}

/* IPoIB's broadcast group as Linux joins it. */
static void test_mcast_ipoib(Rig *rig, const void *unused)
{
    IbMcMemberRecord rec;
    unsigned copies;
    uint8_t gid[16];

    g_assert_cmpint(mcast(rig->alice, 1, IB_METHOD_SET, ipoib_mgid, 1,
                          MC_JOINS | MC_PKEY, &rec), ==, 0);
    g_assert_cmphex(rec.mlid, ==, 0xC000);
    g_assert_cmphex(rec.qkey, ==, 0x0B1B);
    g_assert_cmpuint(rec.mtu, ==, 4);
    g_assert_cmpuint(rec.mtu_selector, ==, 2);
    g_assert_cmpuint(rec.rate, ==, 3);
    g_assert_cmpuint(rec.join_state, ==, 1);
    lab_gid(rig->alice, 1, gid);
    g_assert_cmpmem(rec.port_gid, 16, gid, 16);
    g_assert_cmpint(mcast(rig->bob, 2, IB_METHOD_SET, ipoib_mgid, 1,
                          MC_JOINS | MC_PKEY, &rec), ==, 0);
    /* Across the switches, port 18 of the second: position 1. */
    g_assert_true(group_reaches(rig->alice, 1, rec.mlid, rig->bob, 2,
                                &copies));
    g_assert_true(group_reaches(rig->bob, 2, rec.mlid, rig->alice, 1,
                                &copies));
    g_assert_false(group_reaches(rig->alice, 1, rec.mlid, rig->bob, 1,
                                 &copies));
    g_assert_cmpuint(copies, ==, 0);
    /* Carol's one lane is slower than the group. */
    g_assert_cmpint(mcast(rig->carol, 1, IB_METHOD_SET, ipoib_mgid, 1,
                          MC_JOINS | MC_PKEY, NULL), ==,
                    IB_SA_STATUS_REQ_INVALID);
    /* Leave. */
    g_assert_cmpint(mcast(rig->bob, 2, IB_METHOD_DELETE, ipoib_mgid, 1,
                          MC_JOINS, NULL), ==, 0);
    g_assert_false(group_reaches(rig->alice, 1, rec.mlid, rig->bob, 2,
                                 &copies));
    g_assert_cmpint(mcast(rig->bob, 2, IB_METHOD_DELETE, ipoib_mgid, 1,
                          MC_JOINS, NULL), ==, IB_SA_STATUS_REQ_INVALID);
}

static void test_mcast_group(Rig *rig, const void *unused)
{
    IbMcMemberRecord rec, other;
    IbSaHeader header;
    IbNotice notice;
    uint8_t data[IB_SA_DATA_LEN] = { 0 }, reply[IB_SA_DATA_LEN];
    unsigned copies;
    SmStats stats;

    g_assert_cmpint(lab_subscribe(rig->carol, 1, 66, true), ==, 0);
    g_assert_cmpint(lab_subscribe(rig->carol, 1, 67, true), ==, 0);
    /* Not enough to create; not a full member; nobody to speak for. */
    g_assert_cmpint(mcast(rig->alice, 1, IB_METHOD_SET, my_mgid, 1, MC_JOINS,
                          NULL), ==, IB_SA_STATUS_COMPONENTS);
    g_assert_cmpint(mcast(rig->alice, 1, IB_METHOD_SET, my_mgid, 4,
                          MC_CREATES, NULL), ==, IB_SA_STATUS_REQ_INVALID);
    header = ask(IB_METHOD_SET, IB_SA_MCMEMBER_RECORD, MC_CREATES);
    memcpy(data, my_mgid, 16);
    lab_gid(rig->bob, 1, data + 16);
    ib_put16(data + 40, 0xFFFF);
    data[48] = 0x21;
    g_assert_cmpint(lab_sa(rig->alice, 1, &header, data, reply), ==,
                    IB_SA_STATUS_REQ_INVALID);

    g_assert_cmpint(mcast(rig->alice, 1, IB_METHOD_SET, my_mgid, 1,
                          MC_CREATES | MC_MTU, &rec), ==, 0);
    g_assert_true(ib_lid_is_multicast(rec.mlid));
    g_assert_cmphex(rec.mlid, !=, 0xC000);
    g_assert_true(lab_report(rig->carol, &notice));
    g_assert_cmpuint(notice.trap, ==, 66);
    g_assert_cmpmem(notice.details + 6, 16, my_mgid, 16);
    g_assert_cmpint(mcast(rig->bob, 2, IB_METHOD_SET, my_mgid, 1, MC_JOINS,
                          &other), ==, 0);
    g_assert_cmphex(other.mlid, ==, rec.mlid);
    /* Bob's other port sends only: heard, but hears nothing. */
    g_assert_cmpint(mcast(rig->bob, 1, IB_METHOD_SET, my_mgid, 4, MC_JOINS,
                          &other), ==, 0);
    g_assert_true(group_reaches(rig->bob, 1, rec.mlid, rig->alice, 1,
                                &copies));
    g_assert_false(group_reaches(rig->alice, 1, rec.mlid, rig->bob, 1,
                                 &copies));
    /* Wrong idea of the group. */
    g_assert_cmpint(mcast(rig->alice, 2, IB_METHOD_SET, ipoib_mgid, 1,
                          MC_JOINS | MC_QKEY, NULL), ==,
                    IB_SA_STATUS_REQ_INVALID);
    /* Trusted sees three members, others one group. */
    memset(data, 0, sizeof(data));
    memcpy(data, my_mgid, 16);
    header = ask(IB_METHOD_GET, IB_SA_MCMEMBER_RECORD, MC_MGID);
    g_assert_cmpint(lab_sa(rig->carol, 1, &header, data, reply), ==, 0);
    g_assert_cmpuint(ib_get64(reply + 24), ==, 0);
    g_assert_cmpuint(ib_get16(reply + 36), ==, rec.mlid);
    header = ask(IB_METHOD_GET, IB_SA_MCMEMBER_RECORD, MC_MGID);
    header.sm_key = 1;
    g_assert_cmpint(lab_sa(rig->carol, 1, &header, data, reply), ==,
                    IB_SA_STATUS_TOO_MANY);

    /* Alice's cable goes: she is no member any more, bob still is. */
    lab_cable(rig->lab, "a1", false);
    lab_run(rig->lab, 200 * IB_MSEC);
    sm_get_stats(lab_sm(rig->lab), &stats);
    g_assert_cmpuint(stats.members, ==, 2);
    /* The last full member ends it, send-only or not. */
    g_assert_cmpint(mcast(rig->bob, 2, IB_METHOD_DELETE, my_mgid, 1,
                          MC_JOINS, NULL), ==, 0);
    g_assert_true(lab_report(rig->carol, &notice));
    g_assert_cmpuint(notice.trap, ==, 67);
    sm_get_stats(lab_sm(rig->lab), &stats);
    g_assert_cmpuint(stats.members, ==, 0);
    g_assert_cmpuint(stats.groups, ==, 1);
}

/* What a creator may ask of MTU and rate, and what comes of it. */
static void test_mcast_selectors(Rig *rig, const void *unused)
{
    /* alice/1 is on the 2048-byte switch, at 10 Gb/s. */
    static const struct {
        uint8_t mtu_selector, mtu, rate_selector, rate;
        int status;
        uint8_t got_mtu, got_rate;
    } cases[] = {
        { 2, 4, 2, 3, 0, 4, 3 },
        { 2, 1, 2, 2, 0, 1, 2 },
        { 2, 5, 2, 3, IB_SA_STATUS_REQ_INVALID, 0, 0 },
        { 0, 2, 0, 2, 0, 3, 3 },
        { 0, 4, 2, 3, IB_SA_STATUS_REQ_INVALID, 0, 0 },
        { 1, 4, 1, 3, 0, 3, 2 },
        { 1, 1, 2, 3, IB_SA_STATUS_REQ_INVALID, 0, 0 },
        { 3, 0, 3, 0, 0, 4, 3 },
        { 2, 4, 2, 6, IB_SA_STATUS_REQ_INVALID, 0, 0 },
        { 2, 4, 2, 63, IB_SA_STATUS_REQ_INVALID, 0, 0 },
        { 2, 4, 0, 3, IB_SA_STATUS_REQ_INVALID, 0, 0 },
        { 2, 4, 1, 2, IB_SA_STATUS_REQ_INVALID, 0, 0 },
        { 2, 63, 2, 3, IB_SA_STATUS_REQ_INVALID, 0, 0 },
    };

    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        IbSaHeader header = ask(IB_METHOD_SET, IB_SA_MCMEMBER_RECORD,
                                MC_CREATES | MC_MTU | 3 << 8);
        uint8_t data[IB_SA_DATA_LEN] = { 0 }, reply[IB_SA_DATA_LEN];
        IbMcMemberRecord rec = {
            .pkey = 0xFFFF, .join_state = 1,
            .mtu_selector = cases[i].mtu_selector, .mtu = cases[i].mtu,
            .rate_selector = cases[i].rate_selector, .rate = cases[i].rate,
        };

        memcpy(rec.mgid, my_mgid, 16);
        rec.mgid[15] = 0x10 + i;
        lab_gid(rig->alice, 1, rec.port_gid);
        ib_mcmember_record_pack(data, &rec);
        g_test_message("case %zu", i);
        g_assert_cmpint(lab_sa(rig->alice, 1, &header, data, reply), ==,
                        cases[i].status);
        if (cases[i].status == 0) {
            ib_mcmember_record_unpack(&rec, reply);
            g_assert_cmpuint(rec.mtu, ==, cases[i].got_mtu);
            g_assert_cmpuint(rec.rate, ==, cases[i].got_rate);
            g_assert_cmpuint(rec.mtu_selector, ==, 2);
        }
    }
}

/* The SA names the group when the creator does not. */
static void test_mcast_named_by_sa(Rig *rig, const void *unused)
{
    static const uint8_t none[16];
    IbMcMemberRecord one, two;
    IbPathRecord path = { 0 };
    IbSaHeader header;
    uint8_t data[IB_SA_DATA_LEN] = { 0 }, reply[IB_SA_DATA_LEN];

    g_assert_cmpint(mcast(rig->alice, 1, IB_METHOD_SET, none, 1,
                          MC_CREATES & ~MC_MGID, &one), ==, 0);
    g_assert_cmpint(mcast(rig->alice, 1, IB_METHOD_SET, none, 1,
                          MC_CREATES, &two), ==, 0);
    g_assert_cmphex(one.mgid[0], ==, 0xFF);
    g_assert_cmpint(memcmp(one.mgid, two.mgid, 16), !=, 0);
    g_assert_cmphex(one.mlid, !=, two.mlid);
    /* Not a multicast GID; scope 0. */
    memcpy(one.mgid, my_mgid, 16);
    one.mgid[0] = 0xFE;
    g_assert_cmpint(mcast(rig->alice, 1, IB_METHOD_SET, one.mgid, 1,
                          MC_CREATES, NULL), ==, IB_SA_STATUS_REQ_INVALID);
    one.mgid[0] = 0xFF;
    one.mgid[1] = 0x10;
    g_assert_cmpint(mcast(rig->alice, 1, IB_METHOD_SET, one.mgid, 1,
                          MC_CREATES, NULL), ==, IB_SA_STATUS_REQ_INVALID);
    /* The path to a group ends at its MLID. */
    memcpy(path.dgid, two.mgid, 16);
    lab_gid(rig->bob, 1, path.sgid);
    ib_path_record_pack(data, &path);
    header = ask(IB_METHOD_GET, IB_SA_PATH_RECORD, PR_DGID | PR_SGID);
    g_assert_cmpint(lab_sa(rig->alice, 1, &header, data, reply), ==, 0);
    ib_path_record_unpack(&path, reply);
    g_assert_cmphex(path.dlid, ==, two.mlid);
    g_assert_cmphex(path.slid, ==, lab_lid(rig->bob, 1));
    g_assert_cmpuint(path.mtu, ==, two.mtu);
    data[8 + 15] ^= 0x55;
    header = ask(IB_METHOD_GET, IB_SA_PATH_RECORD, PR_DGID | PR_SGID);
    g_assert_cmpint(lab_sa(rig->alice, 1, &header, data, reply), ==,
                    IB_SA_STATUS_NO_RECORDS);
}

/* Members on one switch: the packet stays there. */
static void test_mcast_pruned(void)
{
    SmLab *lab = lab_new("switch s1 ports=4\nswitch s2 ports=4\n"
                         "switch s3 ports=4\nhost h1 ports=1\n"
                         "host h2 ports=1\nhost h3 ports=1\n"
                         "host h4 ports=1\nhost sm ports=1\n"
                         "cable r12 s1/1 s2/2\ncable r23 s2/1 s3/2\n"
                         "cable c1 h1/1 s1/3\ncable c2 h2/1 s1/4\n"
                         "cable c3 h3/1 s3/3\ncable c4 h4/1 s3/4\n"
                         "cable csm sm/1 s2/4\n", 1);
    static const char *const pairs[][2] = { { "h1", "h2" }, { "h3", "h4" } };

    lab_start_sm(lab, "sm", NULL);
    lab_settle(lab, 2 * IB_SEC);
    for (size_t i = 0; i < 2; i++) {
        LabHost *a = lab_host(lab, pairs[i][0]);
        LabHost *b = lab_host(lab, pairs[i][1]);
        IbMcMemberRecord rec = { 0 };
        uint64_t before[2], after[2];
        unsigned copies;
        uint8_t mgid[16];

        memcpy(mgid, my_mgid, 16);
        mgid[15] = i;
        g_assert_cmpint(mcast(a, 1, IB_METHOD_SET, mgid, 1, MC_CREATES,
                              &rec), ==, 0);
        g_assert_cmpint(mcast(b, 1, IB_METHOD_SET, mgid, 1, MC_JOINS,
                              NULL), ==, 0);
        lab_settle(lab, 1 * IB_SEC);
        for (unsigned k = 0; k < 3; k++) {
            uint64_t *sum = k == 0 ? before : after;
            const char *cables[] = { "r12", "r23" };

            for (unsigned c = 0; c < 2; c++) {
                const FabricCableStats *stats = fabric_cable_stats(
                    lab->fabric,
                    topology_find_cable(lab->topology, cables[c]));

                sum[c] = stats->packets[0] + stats->packets[1];
            }
            if (k == 0) {
                g_assert_true(group_reaches(a, 1, rec.mlid, b, 1, &copies));
            }
        }
        g_assert_cmpuint(before[0], ==, after[0]);
        g_assert_cmpuint(before[1], ==, after[1]);
    }
    lab_free(lab);
}

/* Rings carry one copy each, and no packet goes round. */
static void test_mcast_ring(void)
{
    SmLab *lab = lab_new("switch s1 ports=4\nswitch s2 ports=4\n"
                         "switch s3 ports=4\nhost h1 ports=1\n"
                         "host h2 ports=1\nhost h3 ports=1\n"
                         "host sm ports=1\n"
                         "cable r1 s1/1 s2/2\ncable r2 s2/1 s3/2\n"
                         "cable r3 s3/1 s1/2\ncable c1 h1/1 s1/3\n"
                         "cable c2 h2/1 s2/3\ncable c3 h3/1 s3/3\n"
                         "cable csm sm/1 s1/4\n", 1);
    const char *names[] = { "h1", "h2", "h3" };
    const char *cables[] = { NULL, "r1", "r2", "r3" };
    IbMcMemberRecord rec = { 0 };

    lab_start_sm(lab, "sm", NULL);
    lab_settle(lab, 2 * IB_SEC);
    for (size_t i = 0; i < 3; i++) {
        g_assert_cmpint(mcast(lab_host(lab, names[i]), 1, IB_METHOD_SET,
                              ipoib_mgid, 1, MC_JOINS, &rec), ==, 0);
    }
    for (size_t c = 0; c < G_N_ELEMENTS(cables); c++) {
        if (cables[c]) {
            lab_cable(lab, cables[c], false);
            lab_settle(lab, 2 * IB_SEC);
        }
        for (size_t i = 0; i < 9; i++) {
            unsigned copies;

            if (i / 3 != i % 3) {
                g_assert_true(group_reaches(lab_host(lab, names[i / 3]), 1,
                                            rec.mlid,
                                            lab_host(lab, names[i % 3]), 1,
                                            &copies));
            }
        }
        if (cables[c]) {
            lab_cable(lab, cables[c], true);
            lab_settle(lab, 2 * IB_SEC);
        }
    }
    lab_free(lab);
}

/* A restarted SM leaves rows alone until members had time to come back. */
static void test_mcast_restart(Rig *rig, const void *unused)
{
    IbMcMemberRecord rec, again;
    SmOptions options;
    unsigned copies;

    g_assert_cmpint(mcast(rig->alice, 1, IB_METHOD_SET, my_mgid, 1,
                          MC_CREATES, &rec), ==, 0);
    g_assert_cmpint(mcast(rig->bob, 2, IB_METHOD_SET, my_mgid, 1, MC_JOINS,
                          &rec), ==, 0);
    lab_stop_sm(rig->lab, "sm");
    sm_options_init(&options);
    options.seed = 2;
    lab_start_sm(rig->lab, "sm", &options);
    lab_settle(rig->lab, 2 * IB_SEC);
    g_assert_true(group_reaches(rig->alice, 1, rec.mlid, rig->bob, 2,
                                &copies));
    g_assert_cmpint(mcast(rig->bob, 2, IB_METHOD_SET, my_mgid, 1,
                          MC_CREATES, &again), ==, 0);
    g_assert_cmphex(again.mlid, ==, rec.mlid);
    g_assert_cmpint(mcast(rig->alice, 1, IB_METHOD_SET, my_mgid, 1, MC_JOINS,
                          &again), ==, 0);
    lab_run(rig->lab, 60 * IB_SEC);
    g_assert_true(group_reaches(rig->alice, 1, rec.mlid, rig->bob, 2,
                                &copies));
    /* Nobody comes back: gone when the time is over. */
    lab_stop_sm(rig->lab, "sm");
    options.seed = 3;
    lab_start_sm(rig->lab, "sm", &options);
    lab_run(rig->lab, 60 * IB_SEC);
    g_assert_false(group_reaches(rig->alice, 1, rec.mlid, rig->bob, 2,
                                 &copies));
    g_assert_cmpuint(copies, ==, 0);
}

static void test_mcast_limit(Rig *rig, const void *unused)
{
    uint8_t mgid[16];
    unsigned created = 0;
    SmStats stats;

    memcpy(mgid, my_mgid, 16);
    for (unsigned i = 0; i < SM_MAX_GROUPS + 10; i++) {
        ib_put32(mgid + 12, i);
        created += mcast(rig->alice, 1, IB_METHOD_SET, mgid, 1, MC_CREATES,
                         NULL) == 0;
    }
    sm_get_stats(lab_sm(rig->lab), &stats);
    g_assert_cmpuint(stats.groups, ==, created + 1);
    g_assert_cmpuint(created, ==, SM_MAX_GROUPS_PER_PORT);
    lab_cable(rig->lab, "a1", false);
    lab_settle(rig->lab, 2 * IB_SEC);
    sm_get_stats(lab_sm(rig->lab), &stats);
    g_assert_cmpuint(stats.groups, ==, 1);
    g_assert_cmpuint(stats.members, ==, 0);
}

/* Harm */

/* A trap as a switch's, with issuer and source as told. */
static void send_trap(LabHost *host, unsigned trap, uint16_t issuer,
                      uint64_t tid)
{
    uint8_t mad[IB_MAD_LEN] = { 0 };
    IbMadAddress to = { .vl = IB_VL_MANAGEMENT, .pkey = IB_PKEY_DEFAULT };
    IbSmp smp = {
        .hdr = { .base_version = 1, .mgmt_class = IB_CLASS_SM_LID,
                 .class_version = 1, .method = IB_METHOD_TRAP, .tid = tid,
                 .attr_id = IB_ATTR_NOTICE },
    };
    IbNotice notice = {
        .generic = true, .type = 1, .producer = 2, .trap = trap,
        .issuer_lid = issuer,
    };

    ib_smp_pack(mad, &smp);
    ib_notice_pack(mad + IB_SMP_DATA_OFFSET, &notice, IB_SMP_DATA_LEN);
    lab_send(host, 1, &to, mad);
}

static void test_bad_traps(Rig *rig, const void *unused)
{
    SmStats before, after;

    sm_get_stats(lab_sm(rig->lab), &before);
    /* A host is no switch; it cannot speak for another; nor be repeated. */
    send_trap(rig->alice, 128, lab_lid(rig->alice, 1), 1);
    send_trap(rig->alice, 144, lab_lid(rig->bob, 1), 2);
    lab_run(rig->lab, 1 * IB_SEC);
    sm_get_stats(lab_sm(rig->lab), &after);
    g_assert_cmpuint(after.heavy_sweeps, ==, before.heavy_sweeps);
    g_assert_cmpuint(after.traps_received, ==, before.traps_received + 2);
    for (unsigned i = 0; i < 10; i++) {
        send_trap(rig->alice, 144, lab_lid(rig->alice, 1), 3);
    }
    lab_run(rig->lab, 1 * IB_SEC);
    sm_get_stats(lab_sm(rig->lab), &after);
    g_assert_cmpuint(after.heavy_sweeps, ==, before.heavy_sweeps + 1);
    g_assert_cmpuint(after.traps_repeated, ==, 9);
}

static void test_trap_flood(Rig *rig, const void *unused)
{
    SmStats before, after;
    unsigned lines = 0;

    sm_get_stats(lab_sm(rig->lab), &before);
    g_string_truncate(rig->lab->log, 0);
    for (unsigned i = 0; i < 2000; i++) {
        send_trap(rig->alice, 144, lab_lid(rig->alice, 1), 100 + i);
        lab_run(rig->lab, 1 * IB_MSEC);
    }
    lab_run(rig->lab, 1 * IB_SEC);
    sm_get_stats(lab_sm(rig->lab), &after);
    /* 50 at once, then one each 200 ms of the two seconds. */
    g_assert_cmpuint(after.heavy_sweeps - before.heavy_sweeps, <=, 50 + 13);
    g_assert_cmpuint(after.heavy_sweeps - before.heavy_sweeps, >=, 50);
    g_assert_cmpuint(after.traps_throttled, ==, 2000 - 50);
    for (const char *at = rig->lab->log->str;
         (at = strstr(at, "info: trap 144")); at++) {
        lines++;
    }
    g_assert_cmpuint(lines, ==, 50);
    /* It does not hurt others, and the throttled one is heard in the end. */
    g_assert_cmpint(lab_subscribe(rig->carol, 1, 65, true), ==, 0);
    lab_cable(rig->lab, "b1", false);
    lab_run(rig->lab, 100 * IB_MSEC);
    {
        IbNotice notice;

        g_assert_true(lab_report(rig->carol, &notice));
        g_assert_cmpuint(notice.trap, ==, 65);
    }
}

/* One wrong thing each: dropped at the door, and not answered. */
static void test_door(Rig *rig, const void *unused)
{
    for (unsigned i = 0; i < 10; i++) {
        uint8_t mad[IB_MAD_LEN] = { 0 }, packet[IB_PACKET_MAX];
        IbSaHeader header = ask(IB_METHOD_GET, IB_ATTR_CLASS_PORT_INFO, 0);
        IbMadAddress to = {
            .slid = lab_lid(rig->alice, 1), .dlid = sm_lid(lab_sm(rig->lab)),
            .src_qpn = 1, .dest_qpn = 1, .qkey = IB_QKEY_QP1,
            .pkey = IB_PKEY_DEFAULT,
        };
        SmStats before, after;
        size_t len;

        header.hdr.base_version = 1;
        header.hdr.mgmt_class = IB_CLASS_SA;
        header.hdr.class_version = 2;
        switch (i) {
        case 1:
            to.qkey = 0x80010001;
            break;
        case 2:
            to.pkey = 0x8001;
            break;
        case 3:
            to.dlid++;
            break;
        case 4:
            to.dest_qpn = 2;
            break;
        case 5:
            to.vl = IB_VL_MANAGEMENT;
            break;
        case 6:
            to.src_qpn = 0;
            break;
        case 7:
            header.hdr.mgmt_class = 0x09;
            break;
        }
        ib_sa_header_pack(mad, &header);
        len = ib_mad_packet(packet, &to, mad);
        if (i == 8) {
            packet[len - 1] ^= 1;         /* ICRC */
        } else if (i == 9) {
            len -= 4;
        }
        sm_get_stats(lab_sm(rig->lab), &before);
        sm_receive(lab_sm(rig->lab), packet, len);
        lab_run(rig->lab, 1 * IB_MSEC);
        sm_get_stats(lab_sm(rig->lab), &after);
        g_test_message("case %u", i);
        g_assert_cmpuint(after.packets_dropped - before.packets_dropped, ==,
                         i ? 1 : 0);
        g_assert_cmpuint(rig->alice->mads.length, ==, i ? 0 : 1);
        lab_flush(rig->alice);
    }
}

/* Random MADs of every kind to QP0 and QP1; then the SM still works. */
static void test_fuzz(Rig *rig, const void *unused)
{
    static const uint8_t classes[] = { 1, 3, 4, 7, 0x81, 0x21 };
    static const uint8_t methods[] = { 1, 2, 3, 5, 6, 7, 0x12, 0x15, 0x81,
                                       0x86, 0x92, 0x95 };
    static const uint16_t attrs[] = { 1, 2, 3, 0x10, 0x11, 0x12, 0x13, 0x14,
                                      0x15, 0x18, 0x19, 0x1B, 0x20, 0x35,
                                      0x38, 0xF3 };
    GRand *rand = rig->lab->rand;
    IbPathRecord path = { 0 };

    for (unsigned i = 0; i < 50000; i++) {
        uint8_t mad[IB_MAD_LEN], packet[IB_PACKET_MAX];
        bool qp0 = g_rand_boolean(rand);
        IbMadAddress to = {
            .slid = g_rand_int_range(rand, 0, 10) ? lab_lid(rig->alice, 1)
                                                  : g_rand_int(rand),
            .dlid = sm_lid(lab_sm(rig->lab)),
            .vl = qp0 ? IB_VL_MANAGEMENT : 0,
            .src_qpn = qp0 ? 0 : 1 + g_rand_int_range(rand, 0, 3),
            .dest_qpn = qp0 ? 0 : 1, .qkey = qp0 ? 0 : IB_QKEY_QP1,
            .pkey = IB_PKEY_DEFAULT,
            .has_grh = !g_rand_int_range(rand, 0, 8),
        };
        size_t len;

        for (unsigned j = 0; j < IB_MAD_LEN; j++) {
            mad[j] = g_rand_int_range(rand, 0, 3) ? 0 : g_rand_int(rand);
        }
        mad[0] = 1;
        mad[1] = classes[g_rand_int_range(rand, 0, G_N_ELEMENTS(classes))];
        mad[2] = mad[1] == 3 || mad[1] == 7 ? 2 : 1;
        mad[3] = methods[g_rand_int_range(rand, 0, G_N_ELEMENTS(methods))];
        ib_put16(mad + 16, attrs[g_rand_int_range(rand, 0,
                                                  G_N_ELEMENTS(attrs))]);
        if (mad[1] == 3) {
            ib_put64(mad + 36, g_rand_int_range(rand, 0, 3));
            mad[26] = g_rand_int_range(rand, 0, 4) ? 0 : g_rand_int(rand);
        }
        len = ib_mad_packet(packet, &to, mad);
        if (!g_rand_int_range(rand, 0, 10)) {
            packet[g_rand_int_range(rand, 0, len)] ^=
                1 << g_rand_int_range(rand, 0, 8);
        }
        if (!g_rand_int_range(rand, 0, 50)) {
            len = g_rand_int_range(rand, 0, len + 1);
        }
        /* Past the fabric's own checks, as a hostile fabric could. */
        sm_receive(lab_sm(rig->lab), packet, len);
        if (i % 50 == 0) {
            lab_run(rig->lab, 2 * IB_MSEC);
            lab_flush(rig->alice);
            lab_flush(rig->bob);
            lab_flush(rig->carol);
        }
    }
    lab_run(rig->lab, 30 * IB_SEC);
    lab_settle(rig->lab, 10 * IB_SEC);
    lab_flush(rig->alice);
    g_assert_cmpint(sm_state(lab_sm(rig->lab)), ==, SM_MASTER);
    g_assert_cmpint(get_path(rig, rig->alice, 2, rig->bob, 2, 0, &path), ==,
                    0);
}

/*
 * A hostile fabric answers the SM's own SMPs with anything that could be an
 * answer: right TID and attribute, wrong everything else.  Whatever it
 * invents must be bounded; an Sm on its own clock, without a lab.
 */
typedef struct Liar {
    Sm *sm;
    GRand *rand;
    GQueue sent;                 /* 256-byte MADs */
    unsigned answered;
} Liar;

static bool liar_takes(void *opaque, const uint8_t *packet, size_t len)
{
    Liar *liar = opaque;
    IbPacket parsed;

    g_assert_cmpint(ib_packet_parse(&parsed, packet, len), ==, IB_PACKET_OK);
    g_assert_cmpuint(parsed.payload_len, ==, IB_MAD_LEN);
    g_queue_push_tail(&liar->sent,
                      g_memdup2(packet + parsed.header_len, IB_MAD_LEN));
    return true;
}

static void liar_answers(Liar *liar, uint8_t *mad)
{
    static const IbMadAddress to = {
        .slid = IB_LID_PERMISSIVE, .dlid = IB_LID_PERMISSIVE,
        .vl = IB_VL_MANAGEMENT, .pkey = IB_PKEY_DEFAULT,
    };
    uint8_t packet[IB_PACKET_MAX];
    uint8_t *data = mad + IB_SMP_DATA_OFFSET;
    GRand *rand = liar->rand;

    mad[3] = IB_METHOD_GET_RESP;
    mad[4] |= 0x80;
    mad[6] = 1;
    for (unsigned i = 0; i < IB_SMP_DATA_LEN; i++) {
        if (!g_rand_int_range(rand, 0, 4)) {
            data[i] = g_rand_int(rand);
        }
    }
    if (ib_get16(mad + 16) == IB_SM_NODE_INFO) {
        IbNodeInfo info;

        /* Few GUIDs, so that they meet again where they cannot be. */
        ib_node_info_unpack(&info, data);
        info.node_type = g_rand_int_range(rand, 0, 4);
        info.node_guid = g_rand_int_range(rand, 0, 20);
        info.port_guid = g_rand_int_range(rand, 0, 30);
        info.num_ports = g_rand_int_range(rand, 0, 6);
        info.local_port = g_rand_int_range(rand, 0, 6);
        ib_node_info_pack(data, &info);
    } else if (ib_get16(mad + 16) == IB_SM_PORT_INFO) {
        IbPortInfo info;

        ib_port_info_unpack(&info, data);
        info.state = g_rand_int_range(rand, 0, 6);
        info.lid = g_rand_int_range(rand, 0, 40);
        ib_port_info_pack(data, &info);
    }
    liar->answered++;
    if (!g_rand_int_range(rand, 0, 20)) {
        SmStats before, after;

        /* An answer to what was asked long ago, by the number's look. */
        mad[12 + g_rand_int_range(rand, 0, 3)] ^= 0x10;
        sm_get_stats(liar->sm, &before);
        sm_receive(liar->sm, packet, ib_mad_packet(packet, &to, mad));
        sm_get_stats(liar->sm, &after);
        g_assert_cmpuint(after.packets_dropped, ==,
                         before.packets_dropped + 1);
        return;
    }
    sm_receive(liar->sm, packet, ib_mad_packet(packet, &to, mad));
}

static void test_hostile_answers(void)
{
    static const SmOps ops = { .send = liar_takes };
    unsigned answered = 0;

    for (uint32_t seed = 1; seed <= 100; seed++) {
        Liar liar = { .rand = g_rand_new_with_seed(seed) };
        SmOptions options;
        SmStats stats;
        IbClock clock;
        char *error;
        uint8_t *mad;

        ib_clock_init_virtual(&clock);
        sm_options_init(&options);
        options.node_guid = 1;
        options.port_guid = 2;
        options.lmc = seed % 4;
        g_queue_init(&liar.sent);
        liar.sm = sm_new(&clock, &options, &ops, &liar, &error);
        g_assert_nonnull(liar.sm);
        sm_link(liar.sm, true, 1, 2);
        for (unsigned i = 0; i < 3000; i++) {
            mad = g_queue_pop_head(&liar.sent);
            if (mad && g_rand_int_range(liar.rand, 0, 20)) {
                liar_answers(&liar, mad);
            } else if (ib_clock_deadline(&clock) != IB_CLOCK_NEVER) {
                ib_clock_set(&clock, ib_clock_deadline(&clock));
            }
            g_free(mad);
            ib_clock_run(&clock, 10);
            if (i % 1000 == 999) {
                sm_link(liar.sm, false, 0, 0);
                sm_link(liar.sm, true, 1, 2);
            }
        }
        sm_get_stats(liar.sm, &stats);
        g_assert_cmpuint(stats.nodes, <=, SM_MAX_NODES);
        answered += liar.answered;
        sm_free(liar.sm);
        ib_clock_fini(&clock);
        while ((mad = g_queue_pop_head(&liar.sent))) {
            g_free(mad);
        }
        g_rand_free(liar.rand);
    }
    g_assert_cmpuint(answered, >, 10000);
}

#define ADD(path, fn) \
    g_test_add(path, Rig, NULL, rig_init, fn, rig_fini)

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    ADD("/sa/path/bytes", test_path_bytes);
    ADD("/sa/path", test_path);
    ADD("/sa/path/table", test_path_table);
    ADD("/sa/records", test_records);
    ADD("/sa/node-record", test_node_record);
    ADD("/sa/port-record", test_port_record);
    ADD("/sa/capability-match", test_capability_match);
    ADD("/sa/mft-record", test_mft_record);
    ADD("/sa/pkey-record", test_pkey_record);
    ADD("/sa/service", test_service);
    ADD("/sa/class-port-info", test_class_port_info);
    ADD("/sa/inform-record", test_inform_record);
    ADD("/sa/bad-requests", test_bad_requests);
    ADD("/sa/rmpp", test_rmpp);
    ADD("/sa/rmpp/broken", test_rmpp_broken);
    ADD("/sa/mcast/ipoib", test_mcast_ipoib);
    ADD("/sa/mcast/group", test_mcast_group);
    ADD("/sa/mcast/selectors", test_mcast_selectors);
    ADD("/sa/mcast/named-by-sa", test_mcast_named_by_sa);
    g_test_add_func("/sa/mcast/pruned", test_mcast_pruned);
    g_test_add_func("/sa/mcast/ring", test_mcast_ring);
    ADD("/sa/mcast/restart", test_mcast_restart);
    ADD("/sa/mcast/limit", test_mcast_limit);
    ADD("/sa/bad-traps", test_bad_traps);
    ADD("/sa/trap-flood", test_trap_flood);
    ADD("/sa/door", test_door);
    ADD("/sa/fuzz", test_fuzz);
    g_test_add_func("/sa/hostile-answers", test_hostile_answers);
    return g_test_run();
}
