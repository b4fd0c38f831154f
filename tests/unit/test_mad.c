/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Management attributes against bytes worked out by hand from the
 * specification's tables: every field has a value that shows where it lies.
 */
#include <glib.h>
#include <string.h>

#include "hex.h"
#include "ib/bytes.h"
#include "ib/mad.h"
#include "ib/packet.h"

static void gid(uint8_t *p, uint8_t first)
{
    for (unsigned i = 0; i < 16; i++) {
        p[i] = first + i;
    }
}

/*
 * pack() gives @hex and writes nothing behind it; unpack() of @hex packs to
 * the same again.
 */
#define CHECK_ATTR(Type, name, value, len, hex) do { \
    uint8_t p_[IB_MAD_LEN]; \
    Type back_; \
    memset(p_, 0xEE, sizeof(p_)); \
    ib_##name##_pack(p_, value); \
    assert_hex(p_, len, hex); \
    g_assert_cmphex(p_[len], ==, 0xEE); \
    memset(&back_, 0, sizeof(back_)); \
    ib_##name##_unpack(&back_, p_); \
    memset(p_, 0xEE, sizeof(p_)); \
    ib_##name##_pack(p_, &back_); \
    assert_hex(p_, len, hex); \
} while (0)

static void test_header(void)
{
    const IbMadHeader header = {
        .base_version = 1, .mgmt_class = IB_CLASS_SM_DR, .class_version = 1,
        .method = IB_METHOD_SET, .status = 0x8000, .hop_pointer = 3,
        .hop_count = 5, .tid = 0x0102030405060708, .attr_id = IB_SM_PORT_INFO,
        .attr_mod = 0x00A00003,
    };

    CHECK_ATTR(IbMadHeader, mad_header, &header, 24,
               "01 81 01 02 8000 03 05 0102030405060708 0015 0000 00a00003");
}

static void test_smp(void)
{
    const IbSmp smp = {
        .hdr = { .base_version = 1, .mgmt_class = IB_CLASS_SM_DR,
                 .class_version = 1, .method = IB_METHOD_GET, .tid = 0x99,
                 .hop_count = 2, .attr_id = IB_SM_NODE_INFO },
        .m_key = 0x1122334455667788, .dr_slid = 0xFFFF, .dr_dlid = 0x1234,
    };

    CHECK_ATTR(IbSmp, smp, &smp, 64,
               "01 81 01 01 0000 00 02 0000000000000099 0011 0000 00000000"
               "1122334455667788 ffff 1234"
               "00000000 00000000 00000000 00000000 00000000 00000000"
               "00000000");
}

static void test_sa_header(void)
{
    const IbSaHeader header = {
        .hdr = { .base_version = 1, .mgmt_class = IB_CLASS_SA,
                 .class_version = 2, .method = IB_METHOD_GET_TABLE_RESP,
                 .tid = 0x0A0B, .attr_id = IB_SA_PATH_RECORD },
        .rmpp_version = 1, .rmpp_type = 2, .rmpp_resp_time = 0x02,
        .rmpp_flags = 7, .rmpp_status = 5, .rmpp_data1 = 0x11121314,
        .rmpp_data2 = 0x21222324, .sm_key = 0x3132333435363738,
        .attr_offset = 8, .component_mask = 0x4142434445464748,
    };

    CHECK_ATTR(IbSaHeader, sa_header, &header, 56,
               "01 03 02 92 0000 00 00 0000000000000a0b 0035 0000 00000000"
               "01 02 17 05 11121314 21222324 3132333435363738 0008 0000"
               "4142434445464748");
}

static void test_node_info(void)
{
    const IbNodeInfo info = {
        .base_version = 1, .class_version = 1, .node_type = IB_NODE_SWITCH,
        .num_ports = 0x24, .sys_image_guid = 0x0002C90200000001,
        .node_guid = 0x0002C90200000002, .port_guid = 0x0002C90200000003,
        .partition_cap = 0x20, .device_id = 0x1234, .revision = 0xA1,
        .local_port = 7, .vendor_id = 0x0002C9,
    };

    CHECK_ATTR(IbNodeInfo, node_info, &info, IB_NODE_INFO_LEN,
               "01 01 02 24 0002c90200000001 0002c90200000002"
               "0002c90200000003 0020 1234 000000a1 07 0002c9");
}

static void test_switch_info(void)
{
    const IbSwitchInfo info = {
        .lft_cap = 0xC000, .mft_cap = 0x0400, .lft_top = 0x0011,
        .default_port = 0xFF, .default_mcast_primary = 0xFE,
        .default_mcast_not_primary = 0xFD, .life_time_value = 0x12,
        .port_state_change = 1, .opt_sl_to_vl = 2, .lids_per_port = 1,
        .partition_enf_cap = 0x20, .inbound_enf = true,
        .filter_raw_in = true, .enhanced_port0 = true, .mft_top = 0xC0FF,
    };

    CHECK_ATTR(IbSwitchInfo, switch_info, &info, IB_SWITCH_INFO_LEN,
               "c000 0000 0400 0011 ff fe fd 96 0001 0020 a8 00 c0ff");
}

static void test_port_info(void)
{
    const IbPortInfo info = {
        .m_key = 0x1122334455667788, .gid_prefix = 0xFE80000000000001,
        .lid = 0x1234, .sm_lid = 0x5678, .capability_mask = 0x02410848,
        .diag_code = 0x9ABC, .m_key_lease = 0x0F0F, .local_port = 3,
        .width_enabled = 1, .width_supported = 3, .width_active = 2,
        .speed_supported = 7, .state = IB_PORT_ACTIVE,
        .phys_state = IB_PHYS_LINK_UP, .down_default = 2, .m_key_protect = 2,
        .lmc = 5, .speed_active = 2, .speed_enabled = 6, .neighbor_mtu = 4,
        .sm_sl = 9, .vl_cap = 3, .init_type = 0xA, .vl_high_limit = 0xB1,
        .vl_arb_high_cap = 0xC2, .vl_arb_low_cap = 0xD3,
        .init_type_reply = 0xE, .mtu_cap = 5, .vl_stall_count = 5,
        .hoq_life = 0x13, .operational_vls = 2, .part_enf_in = true,
        .filter_raw_in = true, .filter_raw_out = true,
        .m_key_violations = 0x0102, .p_key_violations = 0x0304,
        .q_key_violations = 0x0506, .guid_cap = 8, .client_reregister = true,
        .subnet_timeout = 0x12, .resp_time = 0x11, .local_phy_errors = 7,
        .overrun_errors = 6, .max_credit_hint = 0xABCD,
        .link_round_trip = 0x123456,
    };

    CHECK_ATTR(IbPortInfo, port_info, &info, IB_PORT_INFO_LEN,
               "1122334455667788 fe80000000000001 1234 5678 02410848"
               "9abc 0f0f 03 01 03 02 74 52 85 26 49 3a b1 c2 d3 e5 b3 2b"
               "0102 0304 0506 08 92 11 76 abcd 00 123456 00000000");
}

static void test_sm_info(void)
{
    const IbSmInfo info = {
        .guid = 0x0102030405060708, .sm_key = 0x1112131415161718,
        .act_count = 0x21222324, .priority = 0xA, .state = 3,
    };

    CHECK_ATTR(IbSmInfo, sm_info, &info, IB_SM_INFO_LEN,
               "0102030405060708 1112131415161718 21222324 a3");
}

static void test_notice(void)
{
    IbNotice notice = {
        .generic = true, .type = IB_NOTICE_URGENT, .producer = IB_NODE_SWITCH,
        .trap = IB_TRAP_LINK_STATE, .issuer_lid = 0x0005, .toggle = true,
        .count = 0x1234,
    };
    static const char smp_hex[] =
        "81 000002 0080 0005 9234 0005 00000000 00000000 00000000 00000000"
        "00000000 00000000 00000000 00000000 00000000 00000000 00000000"
        "00000000 000000aa";
    static const char gid_hex[] = "202122232425262728292a2b2c2d2e2f";
    g_autofree char *full = g_strconcat(smp_hex, gid_hex, NULL);
    uint8_t p[96];
    IbNotice back;

    notice.details[1] = 5;
    notice.details[53] = 0xAA;
    gid(notice.issuer_gid, 0x20);
    memset(p, 0xEE, sizeof(p));
    ib_notice_pack(p, &notice, IB_SMP_DATA_LEN);
    assert_hex(p, 64, smp_hex);
    g_assert_cmphex(p[64], ==, 0xEE);
    ib_notice_unpack(&back, p, IB_SMP_DATA_LEN);
    g_assert_cmphex(back.issuer_gid[0], ==, 0);
    ib_notice_pack(p, &notice, IB_NOTICE_LEN);
    assert_hex(p, 80, full);
    g_assert_cmphex(p[80], ==, 0xEE);
    memset(&back, 0xEE, sizeof(back));
    ib_notice_unpack(&back, p, IB_NOTICE_LEN);
    g_assert_cmpuint(back.trap, ==, 128);
    g_assert_true(back.generic && back.toggle);
    g_assert_cmphex(back.count, ==, 0x1234);
    g_assert_cmpmem(back.issuer_gid, 16, notice.issuer_gid, 16);
    g_assert_cmpmem(back.details, 54, notice.details, 54);
}

static void test_inform_info(void)
{
    IbInformInfo info = {
        .lid_begin = 0xFFFF, .lid_end = 0x1234, .is_generic = 1,
        .subscribe = 1, .type = 0xFFFF, .trap = 65, .qpn = 0x0A0B0C,
        .resp_time = 0x13, .producer = 0xFFFFFF,
    };

    gid(info.gid, 0x30);
    CHECK_ATTR(IbInformInfo, inform_info, &info, IB_INFORM_INFO_LEN,
               "303132333435363738393a3b3c3d3e3f ffff 1234 0000 01 01"
               "ffff 0041 0a0b0c 13 00 ffffff");
}

static void test_class_port_info(void)
{
    IbClassPortInfo info = {
        .base_version = 1, .class_version = 2, .capability_mask = 0x0302,
        .capability_mask2 = 0x1234567, .resp_time = 0x12,
        .redirect_tclass = 0xA1, .redirect_sl = 0xB, .redirect_flow = 0xCDEF0,
        .redirect_lid = 0x1111, .redirect_pkey = 0x8001, .redirect_qpn = 5,
        .redirect_qkey = IB_QKEY_QP1, .trap_tclass = 0xA2, .trap_sl = 3,
        .trap_flow = 0x45678, .trap_lid = 0x2222, .trap_pkey = 0xFFFF,
        .trap_hop_limit = 0x40, .trap_qpn = 1, .trap_qkey = 0x80010001,
    };

    gid(info.redirect_gid, 0x40);
    gid(info.trap_gid, 0x50);
    CHECK_ATTR(IbClassPortInfo, class_port_info, &info,
               IB_CLASS_PORT_INFO_LEN,
               "01 02 0302 2468acf2 404142434445464748494a4b4c4d4e4f"
               "a1 bcdef0 1111 8001 00 000005 80010000"
               "505152535455565758595a5b5c5d5e5f"
               "a2 345678 2222 ffff 40 000001 80010001");
}

static void test_path_record(void)
{
    IbPathRecord record = {
        .service_id = 0x0102030405060708, .dlid = 0x1112, .slid = 0x2122,
        .raw_traffic = true, .flow_label = 0x12345, .hop_limit = 0x3F,
        .tclass = 0x55, .reversible = true, .num_paths = 5, .pkey = 0xFFFE,
        .qos_class = 0xABC, .sl = 0xD, .mtu_selector = 2, .mtu = 4,
        .rate_selector = 1, .rate = 3, .life_selector = 3, .life = 0x12,
        .preference = 7,
    };

    gid(record.dgid, 0x60);
    gid(record.sgid, 0x70);
    CHECK_ATTR(IbPathRecord, path_record, &record, IB_PATH_RECORD_LEN,
               "0102030405060708 606162636465666768696a6b6c6d6e6f"
               "707172737475767778797a7b7c7d7e7f 1112 2122 8123453f"
               "55 85 fffe abcd 84 43 d2 07 000000000000");
}

static void test_mcmember_record(void)
{
    IbMcMemberRecord record = {
        .qkey = 0x01020304, .mlid = 0xC001, .mtu_selector = 2, .mtu = 5,
        .tclass = 0x11, .pkey = 0x8002, .rate_selector = 2, .rate = 6,
        .life_selector = 0, .life = 0x13, .sl = 3, .flow_label = 0x45678,
        .hop_limit = 0x9A, .scope = 5, .join_state = 1, .proxy_join = true,
    };

    gid(record.mgid, 0x80);
    gid(record.port_gid, 0x90);
    CHECK_ATTR(IbMcMemberRecord, mcmember_record, &record,
               IB_MCMEMBER_RECORD_LEN,
               "808182838485868788898a8b8c8d8e8f"
               "909192939495969798999a9b9c9d9e9f 01020304 c001 85 11"
               "8002 86 13 3456789a 51 80 0000");
}

static void test_port_counters(void)
{
    const IbPortCounters counters = {
        .symbol_error = 0x10000, .link_error_recovery = 0x12,
        .link_downed = 0x100, .rcv_errors = 0x0102,
        .rcv_remote_physical_errors = 0x0304,
        .rcv_switch_relay_errors = 0x0506, .xmit_discards = 0x0708,
        .xmit_constraint_errors = 9, .rcv_constraint_errors = 0xA,
        .local_link_integrity_errors = 0x11, .excessive_buffer_overrun = 3,
        .vl15_dropped = 0x0B0C, .xmit_data = UINT64_C(0x100000000),
        .rcv_data = 0x01020304, .xmit_pkts = 5, .rcv_pkts = UINT64_MAX,
        .unicast_xmit_pkts = 0x11, .unicast_rcv_pkts = 0x12,
        .multicast_xmit_pkts = 0x13, .multicast_rcv_pkts = 0x14,
        .xmit_wait = 7,
    };
    uint8_t p[IB_PM_DATA_LEN];

    memset(p, 0xEE, sizeof(p));
    ib_port_counters_pack(p, &counters, 3, 0xABCD);
    assert_hex(p, IB_PORT_COUNTERS_LEN,
               "00 03 abcd ffff 12 ff 0102 0304 0506 0708 09 0a 00 f3"
               "0000 0b0c ffffffff 01020304 00000005 ffffffff 00000007");
    g_assert_cmphex(p[IB_PORT_COUNTERS_LEN], ==, 0xEE);
    ib_port_counters_ext_pack(p, &counters, 0xFF, 0x1234);
    assert_hex(p, IB_PORT_COUNTERS_EXT_LEN,
               "00 ff 1234 00000000 0000000100000000 0000000001020304"
               "0000000000000005 ffffffffffffffff 0000000000000011"
               "0000000000000012 0000000000000013 0000000000000014");
}

static void test_mad_packet(void)
{
    const IbMadAddress smi = {
        .slid = 7, .dlid = 1, .vl = IB_VL_MANAGEMENT, .pkey = IB_PKEY_DEFAULT,
    };
    IbMadAddress gsi = {
        .slid = 7, .dlid = 0xC001, .sl = 2, .vl = 1, .src_qpn = 1,
        .dest_qpn = 0x123, .qkey = IB_QKEY_QP1, .pkey = 0x8001,
        .has_grh = true,
    };
    uint8_t p[IB_PACKET_MAX], mad[IB_MAD_LEN];
    IbMadAddress from, to;
    IbPacket packet;
    size_t len;

    for (unsigned i = 0; i < IB_MAD_LEN; i++) {
        mad[i] = i;
    }
    len = ib_mad_packet(p, &smi, mad);
    g_assert_cmpuint(len, ==, 288);
    assert_hex(p, 28, "f0 02 0001 0048 0007"
               "64 40 ffff 00 000000 00 000000 00000000 00 000000");
    g_assert_cmpmem(p + 28, IB_MAD_LEN, mad, IB_MAD_LEN);
    g_assert_true(ib_icrc_ok(p, len));

    gid(gsi.sgid, 0x10);
    gid(gsi.dgid, 0x20);
    len = ib_mad_packet(p, &gsi, mad);
    g_assert_cmpuint(len, ==, 328);
    assert_hex(p, 68, "10 23 c001 0052 0007 60000000 0118 1b ff"
               "101112131415161718191a1b1c1d1e1f"
               "202122232425262728292a2b2c2d2e2f"
               "64 40 8001 00 000123 00 000000 80010000 00 000001");
    g_assert_cmpint(ib_packet_parse(&packet, p, len), ==, IB_PACKET_OK);
    g_assert_true(ib_icrc_ok(p, len));
    g_assert_cmpuint(packet.payload_len, ==, IB_MAD_LEN);

    /* And back: the answer to it. */
    ib_mad_address_from(&from, &packet);
    ib_mad_address_turn(&to, &from);
    len = ib_mad_packet(p, &to, mad);
    assert_hex(p, 68, "10 23 0007 0052 c001 60000000 0118 1b ff"
               "202122232425262728292a2b2c2d2e2f"
               "101112131415161718191a1b1c1d1e1f"
               "64 40 8001 00 000001 00 000000 80010000 00 000123");
}

static void test_names(void)
{
    g_assert_cmpstr(ib_port_state_name(IB_PORT_INIT), ==, "Initialize");
    g_assert_cmpstr(ib_port_state_name(99), ==, "reserved");
    g_assert_cmpstr(ib_phys_state_name(IB_PHYS_LINK_UP), ==, "LinkUp");
    g_assert_cmpstr(ib_class_name(IB_CLASS_CM), ==, "ComMgt");
    g_assert_cmpstr(ib_class_name(0x55), ==, "unknown");
    g_assert_cmpstr(ib_method_name(IB_METHOD_TRAP_REPRESS), ==,
                    "TrapRepress");
    /* The same number names other things in other classes. */
    g_assert_cmpstr(ib_attr_name(IB_CLASS_SM_DR, 0x0012), ==, "SwitchInfo");
    g_assert_cmpstr(ib_attr_name(IB_CLASS_PM, 0x0012), ==, "PortCounters");
    g_assert_cmpstr(ib_attr_name(IB_CLASS_SA, 0x0012), ==, "PortInfoRecord");
    g_assert_cmpstr(ib_attr_name(IB_CLASS_CM, 0x0012), ==, "REJ");
    g_assert_cmpstr(ib_attr_name(IB_CLASS_CM, IB_CM_APR), ==, "APR");
    g_assert_cmpstr(ib_trap_name(65), ==, "GID out of service");
    g_assert_cmpstr(ib_cm_rej_name(10), ==, "stale connection");
    g_assert_cmpstr(ib_cm_apr_name(5), ==,
                    "proposed alternate is the current primary");
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/mad/header", test_header);
    g_test_add_func("/mad/smp", test_smp);
    g_test_add_func("/mad/sa-header", test_sa_header);
    g_test_add_func("/mad/node-info", test_node_info);
    g_test_add_func("/mad/switch-info", test_switch_info);
    g_test_add_func("/mad/port-info", test_port_info);
    g_test_add_func("/mad/sm-info", test_sm_info);
    g_test_add_func("/mad/notice", test_notice);
    g_test_add_func("/mad/inform-info", test_inform_info);
    g_test_add_func("/mad/class-port-info", test_class_port_info);
    g_test_add_func("/mad/path-record", test_path_record);
    g_test_add_func("/mad/mcmember-record", test_mcmember_record);
    g_test_add_func("/mad/port-counters", test_port_counters);
    g_test_add_func("/mad/packet", test_mad_packet);
    g_test_add_func("/mad/names", test_names);
    return g_test_run();
}
