/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Writes a capture of every kind of packet the library builds, for an
 * independent dissector to read (check_tshark.py).  To standard output goes
 * one line per packet with the fields that it must find:
 *   NUMBER FIELD=VALUE ...
 *
 * The capture's link type is ERF with records of type InfiniBand: released
 * Wireshark versions do not know LINKTYPE_INFINIBAND (247) and show such
 * packets as unknown.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ib/bytes.h"
#include "ib/mad.h"
#include "ib/packet.h"

#define LINKTYPE_ERF 197
#define ERF_HEADER_LEN 16
#define ERF_TYPE_INFINIBAND 21
#define ERF_FLAG_VARYING_LENGTH 4

static FILE *pcap;
static unsigned frames;

static void put(const void *p, size_t len)
{
    if (fwrite(p, 1, len, pcap) != len) {
        perror("pcap");
        exit(1);
    }
}

static void put_u32(uint32_t v)
{
    put(&v, sizeof(v));
}

static void put_file_header(void)
{
    const uint16_t version[2] = { 2, 4 };

    put_u32(0xA1B2C3D4);
    put(version, sizeof(version));
    put_u32(0);
    put_u32(0);
    put_u32(65535);
    put_u32(LINKTYPE_ERF);
}

/* Adds the packet with its VCRC, and says what is to be found in it. */
__attribute__((format(printf, 3, 4)))
static void add(uint8_t *p, size_t len, const char *fields, ...)
{
    uint8_t erf[ERF_HEADER_LEN] = { 0 };
    uint16_t vcrc = ib_vcrc(p, len);
    uint32_t seconds = 1700000000 + frames;
    va_list args;

    ib_put16(p + len, vcrc);
    put_u32(seconds);
    put_u32(0);
    put_u32(ERF_HEADER_LEN + len + IB_VCRC_LEN);
    put_u32(ERF_HEADER_LEN + len + IB_VCRC_LEN);
    memcpy(erf + 4, &seconds, sizeof(seconds));     /* 32.32, little endian */
    erf[8] = ERF_TYPE_INFINIBAND;
    erf[9] = ERF_FLAG_VARYING_LENGTH;
    ib_put16(erf + 10, ERF_HEADER_LEN + len + IB_VCRC_LEN);
    ib_put16(erf + 14, len + IB_VCRC_LEN);
    put(erf, sizeof(erf));
    put(p, len + IB_VCRC_LEN);
    printf("%u infiniband.invariant.crc=0x%08x infiniband.variant.crc=0x%04x"
           " ", ++frames, ib_get32(p + len - IB_ICRC_LEN), vcrc);
    va_start(args, fields);
    vprintf(fields, args);
    va_end(args);
    putchar('\n');
}

static void add_opcode(uint8_t opcode, bool grh, size_t payload)
{
    static uint8_t p[IB_PACKET_MAX + IB_VCRC_LEN];
    IbPacket packet = {
        .lrh = { .vl = 2, .sl = 3, .dlid = 0x1234, .slid = 0x0567 },
        .has_grh = grh,
        .grh = { .traffic_class = 0x21, .flow_label = 0x54321,
                 .hop_limit = 0x3F,
                 .sgid = { 0xFE, 0x80, [15] = 1 },
                 .dgid = { 0xFE, 0x80, [15] = 2 } },
        .bth = { .opcode = opcode, .solicited = true,
                 .migreq = opcode & 1, .pkey = 0x8001,
                 .dest_qpn = 0x0A0B0C, .ack_request = opcode & 2,
                 .psn = 0xABCDEF },
        .deth = { .qkey = IB_QKEY_QP1, .src_qpn = 0x123 },
        .reth = { .va = 0x1122334455667788, .rkey = 0x99AABBCC,
                  .length = 0x1000 },
        .atomic = { .va = 0x1122334455667788, .rkey = 0x99AABBCC,
                    .swap_add = 0x0102030405060708,
                    .compare = 0x1112131415161718 },
        .aeth = { .syndrome = IB_AETH_NAK | IB_NAK_REMOTE_ACCESS,
                  .msn = 0x112233 },
        .atomic_ack = 0x2122232425262728,
        .imm = 0xCAFEF00D,
    };
    size_t header_len = ib_packet_put_headers(p, &packet, payload);
    char more[400] = "";
    size_t at = 0, len;

    memset(p + header_len, 0x5A, payload);
    len = ib_packet_finish(p, header_len, payload);
    if (grh) {
        at += snprintf(more + at, sizeof(more) - at,
                       " infiniband.grh.tclass=0x21"
                       " infiniband.grh.flowlabel=0x54321"
                       " infiniband.grh.hoplmt=63 infiniband.grh.paylen=%zu"
                       " infiniband.grh.sgid=fe80::1"
                       " infiniband.grh.dgid=fe80::2", len - 48);
    }
    if (packet.has_deth) {
        at += snprintf(more + at, sizeof(more) - at,
                       " infiniband.deth.q_key=0x80010000"
                       " infiniband.deth.srcqp=0x123");
    }
    if (packet.has_reth || packet.has_atomic) {
        at += snprintf(more + at, sizeof(more) - at,
                       " infiniband.reth.va=0x1122334455667788"
                       " infiniband.reth.r_key=0x99aabbcc");
    }
    if (packet.has_reth) {
        at += snprintf(more + at, sizeof(more) - at,
                       " infiniband.reth.dmalen=0x1000");
    }
    if (packet.has_atomic) {
        at += snprintf(more + at, sizeof(more) - at,
                       " infiniband.atomiceth.swapdt=0x0102030405060708"
                       " infiniband.atomiceth.cmpdt=0x1112131415161718");
    }
    if (packet.has_aeth) {
        at += snprintf(more + at, sizeof(more) - at,
                       " infiniband.aeth.syndrome.opcode=3"
                       " infiniband.aeth.syndrome.error_code=2"
                       " infiniband.aeth.msn=0x112233");
    }
    if (opcode == (IB_TRANSPORT_RC | IB_OP_ATOMIC_ACK)) {
        at += snprintf(more + at, sizeof(more) - at,
                       " infiniband.atomicacketh.origremdt="
                       "0x2122232425262728");
    }
    if (packet.has_imm) {
        at += snprintf(more + at, sizeof(more) - at,
                       " infiniband.immdt=cafef00d");
    }
    add(p, len, "infiniband.lrh.vl=2 infiniband.lrh.sl=3"
        " infiniband.lrh.lnh=%u infiniband.lrh.dlid=0x1234"
        " infiniband.lrh.slid=0x567 infiniband.lrh.pktlen=%zu"
        " infiniband.bth.opcode=%u infiniband.bth.se=1 infiniband.bth.m=%u"
        " infiniband.bth.padcnt=%zu infiniband.bth.p_key=0x8001"
        " infiniband.bth.destqp=0x0a0b0c infiniband.bth.a=%u"
        " infiniband.bth.psn=0xabcdef%s", grh ? 3 : 2, len / 4, opcode,
        opcode & 1, (4 - payload % 4) % 4, opcode >> 1 & 1, more);
}

static void add_opcodes(void)
{
    for (unsigned opcode = 0; opcode < 256; opcode++) {
        unsigned op = opcode & IB_OP_MASK;
        bool payload = opcode >= IB_TRANSPORT_UC ||
                       (op != IB_OP_READ_REQUEST && op < IB_OP_ACK);

        if (!strcmp(ib_opcode_name(opcode), "reserved")) {
            continue;
        }
        add_opcode(opcode, false, payload ? 61 : 0);
        add_opcode(opcode, true, payload ? 64 : 0);
    }
    add_opcode(IB_OP_SEND_ONLY, false, 0);
    add_opcode(IB_OP_SEND_MIDDLE, false, 4096);
}

static uint8_t mad[IB_MAD_LEN];
static uint8_t mad_packet[IB_PACKET_MAX + IB_VCRC_LEN];

static size_t smp_packet(uint8_t mgmt_class, uint8_t method, uint16_t attr,
                         uint32_t mod)
{
    const IbMadAddress to = { .slid = 7, .dlid = 1, .vl = IB_VL_MANAGEMENT,
                              .pkey = IB_PKEY_DEFAULT };
    IbSmp smp = {
        .hdr = { .base_version = 1, .mgmt_class = mgmt_class,
                 .class_version = 1, .method = method,
                 .tid = 0x0102030405060708, .attr_id = attr,
                 .attr_mod = mod },
        .m_key = 0x1122334455667788,
    };

    if (mgmt_class == IB_CLASS_SM_DR) {
        smp.hdr.hop_pointer = 1;
        smp.hdr.hop_count = 2;
        smp.dr_slid = smp.dr_dlid = IB_LID_PERMISSIVE;
    }
    ib_smp_pack(mad, &smp);
    return ib_mad_packet(mad_packet, &to, mad);
}

static void add_smps(void)
{
    const IbNodeInfo node = {
        .base_version = 1, .class_version = 1, .node_type = IB_NODE_SWITCH,
        .num_ports = 36, .sys_image_guid = 0x0002C90200000001,
        .node_guid = 0x0002C90200000002, .port_guid = 0x0002C90200000003,
        .partition_cap = 32, .device_id = 0x1234, .revision = 0xA1,
        .local_port = 7, .vendor_id = 0x0002C9,
    };
    const IbSwitchInfo swi = {
        .lft_cap = 0xC000, .mft_cap = 0x400, .lft_top = 17,
        .default_port = 0xFF, .default_mcast_primary = 0xFE,
        .default_mcast_not_primary = 0xFD, .life_time_value = 18,
        .port_state_change = 1, .lids_per_port = 1, .partition_enf_cap = 32,
        .inbound_enf = true, .filter_raw_in = true, .enhanced_port0 = true,
    };
    const IbPortInfo port = {
        .m_key = 0x8877665544332211, .gid_prefix = 0xFE80000000000000,
        .lid = 0x1234, .sm_lid = 0x5678, .capability_mask = 0x02010868,
        .diag_code = 0x9ABC, .m_key_lease = 60, .local_port = 3,
        .width_enabled = 1, .width_supported = 3, .width_active = 2,
        .speed_supported = 7, .state = IB_PORT_ACTIVE,
        .phys_state = IB_PHYS_LINK_UP, .down_default = 2, .m_key_protect = 2,
        .lmc = 5, .speed_active = 4, .speed_enabled = 6, .neighbor_mtu = 4,
        .sm_sl = 9, .vl_cap = 3, .init_type = 1, .vl_high_limit = 0xB1,
        .vl_arb_high_cap = 8, .vl_arb_low_cap = 9, .init_type_reply = 2,
        .mtu_cap = 5, .vl_stall_count = 5, .hoq_life = 19,
        .operational_vls = 2, .part_enf_in = true, .filter_raw_in = true,
        .m_key_violations = 1, .p_key_violations = 2, .q_key_violations = 3,
        .guid_cap = 8, .client_reregister = true, .subnet_timeout = 18,
        .resp_time = 17, .local_phy_errors = 7, .overrun_errors = 6,
        .max_credit_hint = 0x1234, .link_round_trip = 0x123456,
    };
    const IbSmInfo sm = { .guid = 0x0002C90300000001, .sm_key = 5,
                          .act_count = 77, .priority = 14, .state = 3 };
    IbNotice notice = {
        .generic = true, .type = IB_NOTICE_URGENT, .producer = IB_NODE_SWITCH,
        .trap = IB_TRAP_LINK_STATE, .issuer_lid = 8,
    };
    uint8_t *data = mad + IB_SMP_DATA_OFFSET;
    size_t len;

    memset(mad, 0, sizeof(mad));
    mad[IB_SMP_INITIAL_PATH_OFFSET + 1] = 1;
    mad[IB_SMP_INITIAL_PATH_OFFSET + 2] = 9;
    len = smp_packet(IB_CLASS_SM_DR, IB_METHOD_GET, IB_SM_NODE_INFO, 0);
    add(mad_packet, len, "infiniband.lrh.vl=15 infiniband.bth.destqp=0"
        " infiniband.bth.opcode=0x64 infiniband.deth.srcqp=0"
        " infiniband.mad.mgmtclass=0x81 infiniband.mad.method=1"
        " infiniband.mad.transactionid=0x0102030405060708"
        " infiniband.mad.attributeid=0x11"
        " infiniband.smpdirected.hoppointer=1"
        " infiniband.smpdirected.hopcount=2"
        " infiniband.smpdirected.drslid=0xffff"
        " infiniband.smpdirected.drdlid=0xffff");

    ib_node_info_pack(data, &node);
    len = smp_packet(IB_CLASS_SM_LID, IB_METHOD_GET_RESP, IB_SM_NODE_INFO,
                     0);
    add(mad_packet, len, "infiniband.mad.method=0x81"
        " infiniband.smplid.mkey=0x1122334455667788"
        " infiniband.nodeinfo.nodetype=2 infiniband.nodeinfo.numports=36"
        " infiniband.nodeinfo.systemimageguid=0x0002c90200000001"
        " infiniband.nodeinfo.nodeguid=0x0002c90200000002"
        " infiniband.nodeinfo.portguid=0x0002c90200000003"
        " infiniband.nodeinfo.partitioncap=32"
        " infiniband.nodeinfo.deviceid=0x1234"
        " infiniband.nodeinfo.revision=0xa1"
        " infiniband.nodeinfo.localportnum=7"
        " infiniband.nodeinfo.vendorid=0x2c9");

    memset(data, 0, IB_SMP_DATA_LEN);
    ib_switch_info_pack(data, &swi);
    len = smp_packet(IB_CLASS_SM_LID, IB_METHOD_GET_RESP, IB_SM_SWITCH_INFO,
                     0);
    add(mad_packet, len, "infiniband.switchinfo.linearfdbcap=0xc000"
        " infiniband.switchinfo.multicastfdbcap=0x400"
        " infiniband.switchinfo.linearfdbtop=17"
        " infiniband.switchinfo.defaultport=0xff"
        " infiniband.switchinfo.defaultmulticastprimaryport=0xfe"
        " infiniband.switchinfo.defaultmulticastnotprimaryport=0xfd"
        " infiniband.switchinfo.lidsperport=1"
        " infiniband.switchinfo.partitionenforcementcap=32");

    ib_port_info_pack(data, &port);
    len = smp_packet(IB_CLASS_SM_LID, IB_METHOD_GET_RESP, IB_SM_PORT_INFO,
                     3);
    add(mad_packet, len, "infiniband.portinfo.m_key=0x8877665544332211"
        " infiniband.portinfo.guid=0xfe80000000000000"
        " infiniband.portinfo.lid=0x1234"
        " infiniband.portinfo.mastersmlid=0x5678"
        " infiniband.portinfo.capabilitymask=0x02010868"
        " infiniband.portinfo.diagcode=0x9abc"
        " infiniband.portinfo.m_keyleaseperiod=60"
        " infiniband.portinfo.localportnum=3"
        " infiniband.portinfo.linkwidthenabled=1"
        " infiniband.portinfo.linkwidthsupported=3"
        " infiniband.portinfo.linkwidthactive=2"
        " infiniband.portinfo.linkspeedsupported=7"
        " infiniband.portinfo.portstate=4"
        " infiniband.portinfo.portphysicalstate=5"
        " infiniband.portinfo.linkdowndefaultstate=2"
        " infiniband.portinfo.m_keyprotectbits=2 infiniband.portinfo.lmc=5"
        " infiniband.portinfo.linkspeedactive=4"
        " infiniband.portinfo.linkspeedenabled=6"
        " infiniband.portinfo.neighbormtu=4 infiniband.portinfo.mastersmsl=9"
        " infiniband.portinfo.vlcap=3 infiniband.portinfo.inittype=1"
        " infiniband.portinfo.vlhighlimit=0xb1"
        " infiniband.portinfo.vlarbitrationhighcap=8"
        " infiniband.portinfo.vlarbitrationlowcap=9"
        " infiniband.portinfo.inittypereply=2 infiniband.portinfo.mtucap=5"
        " infiniband.portinfo.vlstallcount=5 infiniband.portinfo.hoqlife=19"
        " infiniband.portinfo.operationalvls=2"
        " infiniband.portinfo.partitionenforcementinbound=1"
        " infiniband.portinfo.partitionenforcementoutbound=0"
        " infiniband.portinfo.filterrawinbound=1"
        " infiniband.portinfo.filterrawoutbound=0"
        " infiniband.portinfo.m_keyviolations=1"
        " infiniband.portinfo.p_keyviolations=2"
        " infiniband.portinfo.q_keyviolations=3"
        " infiniband.portinfo.guidcap=8"
        " infiniband.portinfo.clientreregister=1"
        " infiniband.portinfo.subnettimeout=18"
        " infiniband.portinfo.resptimevalue=17"
        " infiniband.portinfo.localphyerrors=7"
        " infiniband.portinfo.overrunerrors=6"
        " infiniband.portinfo.maxcredithint=0x1234"
        " infiniband.portinfo.linkroundtriplatency=0x123456");

    memset(data, 0, IB_SMP_DATA_LEN);
    ib_sm_info_pack(data, &sm);
    len = smp_packet(IB_CLASS_SM_DR, IB_METHOD_GET_RESP, IB_SM_SM_INFO, 0);
    add(mad_packet, len, "infiniband.sminfo.guid=0x0002c90300000001"
        " infiniband.sminfo.sm_key=5 infiniband.sminfo.actcount=77"
        " infiniband.sminfo.priority=14 infiniband.sminfo.smstate=3");

    notice.details[1] = 8;
    ib_notice_pack(data, &notice, IB_SMP_DATA_LEN);
    len = smp_packet(IB_CLASS_SM_LID, IB_METHOD_TRAP, IB_ATTR_NOTICE, 0);
    add(mad_packet, len, "infiniband.mad.method=5"
        " infiniband.notice.isgeneric=1 infiniband.notice.type=1"
        " infiniband.notice.producertypevendorid=2"
        " infiniband.notice.trapnumberdeviceid=128"
        " infiniband.notice.issuerlid=8");
}

static size_t gsi_packet(bool grh)
{
    const IbMadAddress to = {
        .slid = 7, .dlid = 1, .sl = 1, .src_qpn = 1, .dest_qpn = 1,
        .qkey = IB_QKEY_QP1, .pkey = 0x8001, .has_grh = grh,
        .sgid = { 0xFE, 0x80, [15] = 7 }, .dgid = { 0xFE, 0x80, [15] = 1 },
    };

    return ib_mad_packet(mad_packet, &to, mad);
}

static void add_sa(void)
{
    IbSaHeader header = {
        .hdr = { .base_version = 1, .mgmt_class = IB_CLASS_SA,
                 .class_version = 2, .method = IB_METHOD_GET_RESP,
                 .tid = 0x99, .attr_id = IB_SA_PATH_RECORD },
        .sm_key = 0x3132333435363738, .attr_offset = 8,
        .component_mask = 0x1C,
    };
    const IbPathRecord path = {
        .dgid = { 0xFE, 0x80, [15] = 2 }, .sgid = { 0xFE, 0x80, [15] = 1 },
        .dlid = 0x12, .slid = 0x21, .flow_label = 0x12345, .hop_limit = 0x3F,
        .tclass = 0x55, .reversible = true, .num_paths = 5, .pkey = 0xFFFF,
        .sl = 13, .mtu_selector = 2, .mtu = 4, .rate_selector = 1, .rate = 3,
        .life_selector = 2, .life = 18, .preference = 7,
    };
    const IbMcMemberRecord member = {
        .mgid = { 0xFF, 0x12, [15] = 2 },
        .port_gid = { 0xFE, 0x80, [15] = 1 }, .qkey = 0x01020304,
        .mlid = 0xC001, .mtu_selector = 2, .mtu = 5, .tclass = 0x11,
        .pkey = 0x8002, .rate_selector = 2, .rate = 6, .life = 19,
        .life_selector = 1, .sl = 3, .flow_label = 0x45678,
        .hop_limit = 0x9A, .scope = 5, .join_state = 1, .proxy_join = true,
    };
    const IbInformInfo inform = {
        .lid_begin = 0xFFFF, .is_generic = 1, .subscribe = 1, .type = 0xFFFF,
        .trap = 65, .qpn = 1, .resp_time = 19, .producer = 0xFFFFFF,
    };
    size_t len;

    memset(mad, 0, sizeof(mad));
    ib_sa_header_pack(mad, &header);
    ib_path_record_pack(mad + IB_SA_DATA_OFFSET, &path);
    len = gsi_packet(false);
    add(mad_packet, len, "infiniband.bth.destqp=1"
        " infiniband.mad.mgmtclass=3 infiniband.mad.attributeid=0x35"
        " infiniband.sa.smkey=0x3132333435363738"
        " infiniband.sa.attributeoffset=8 infiniband.sa.componentmask=0x1c"
        " infiniband.pathrecord.dgid=fe80::2"
        " infiniband.pathrecord.sgid=fe80::1"
        " infiniband.pathrecord.dlid=0x12 infiniband.pathrecord.slid=0x21"
        " infiniband.pathrecord.flowlabel=0x12345"
        " infiniband.pathrecord.hoplimit=0x3f"
        " infiniband.pathrecord.tclass=0x55"
        " infiniband.pathrecord.p_key=0xffff");

    header.hdr.attr_id = IB_SA_MCMEMBER_RECORD;
    header.attr_offset = 7;
    memset(mad, 0, sizeof(mad));
    ib_sa_header_pack(mad, &header);
    ib_mcmember_record_pack(mad + IB_SA_DATA_OFFSET, &member);
    len = gsi_packet(true);
    add(mad_packet, len, "infiniband.lrh.lnh=3"
        " infiniband.mcmemberrecord.mgid=ff12::2"
        " infiniband.mcmemberrecord.portgid=fe80::1"
        " infiniband.mcmemberrecord.q_key=0x01020304"
        " infiniband.mcmemberrecord.mlid=0xc001"
        " infiniband.mcmemberrecord.tclass=0x11"
        " infiniband.mcmemberrecord.p_key=0x8002");

    header.hdr.attr_id = IB_ATTR_INFORM_INFO;
    header.hdr.method = IB_METHOD_SET;
    header.attr_offset = 0;
    memset(mad, 0, sizeof(mad));
    ib_sa_header_pack(mad, &header);
    ib_inform_info_pack(mad + IB_SA_DATA_OFFSET, &inform);
    len = gsi_packet(false);
    add(mad_packet, len, "infiniband.informinfo.lidrangebegin=0xffff"
        " infiniband.informinfo.isgeneric=1"
        " infiniband.informinfo.subscribe=1"
        " infiniband.informinfo.type=0xffff"
        " infiniband.informinfo.trapnumberdeviceid=65"
        " infiniband.informinfo.qpn=1");
}

static void add_pm(void)
{
    const IbMadHeader header = {
        .base_version = 1, .mgmt_class = IB_CLASS_PM, .class_version = 1,
        .method = IB_METHOD_GET_RESP, .tid = 5,
        .attr_id = IB_PM_PORT_COUNTERS,
    };
    IbMadHeader extended = header;
    const IbPortCounters counters = {
        .symbol_error = 0x101, .link_error_recovery = 2, .link_downed = 3,
        .rcv_errors = 4, .rcv_remote_physical_errors = 5,
        .rcv_switch_relay_errors = 6, .xmit_discards = 7,
        .xmit_constraint_errors = 8, .rcv_constraint_errors = 9,
        .local_link_integrity_errors = 10, .excessive_buffer_overrun = 11,
        .vl15_dropped = 12, .xmit_data = 13, .rcv_data = 14, .xmit_pkts = 15,
        .rcv_pkts = 16, .unicast_xmit_pkts = 17, .unicast_rcv_pkts = 18,
        .multicast_xmit_pkts = 19, .multicast_rcv_pkts = 20,
    };
    size_t len;

    memset(mad, 0, sizeof(mad));
    ib_mad_header_pack(mad, &header);
    ib_port_counters_pack(mad + IB_PM_DATA_OFFSET, &counters, 1, 0xFFFF);
    len = gsi_packet(false);
    add(mad_packet, len, "infiniband.mad.mgmtclass=4"
        " infiniband.portcounters.portselect=1"
        " infiniband.portcounters.counterselect=0xffff"
        " infiniband.portcounters.symbolerrorcounter=0x101"
        " infiniband.portcounters.linkerrorrecoverycounter=2"
        " infiniband.portcounters.linkdownedcounter=3"
        " infiniband.portcounters.portrcverrors=4"
        " infiniband.portcounters.portrcvremotephysicalerrors=5"
        " infiniband.portcounters.portrcvswitchrelayerrors=6"
        " infiniband.portcounters.portxmitdiscards=7"
        " infiniband.portcounters.portxmitconstrainterrors=8"
        " infiniband.portcounters.portrcvconstrainterrors=9"
        " infiniband.portcounters.locallinkintegrityerrors=10"
        " infiniband.portcounters.excessivebufferoverrunerrors=11"
        " infiniband.portcounters.vl15dropped=12"
        " infiniband.portcounters.portxmitdata=13"
        " infiniband.portcounters.portrcvdata=14"
        " infiniband.portcounters.portxmitpkts=15"
        " infiniband.portcounters.portrcvpkts=16");

    extended.attr_id = IB_PM_PORT_COUNTERS_EXT;
    memset(mad, 0, sizeof(mad));
    ib_mad_header_pack(mad, &extended);
    ib_port_counters_ext_pack(mad + IB_PM_DATA_OFFSET, &counters, 1, 0xFF);
    len = gsi_packet(false);
    add(mad_packet, len, "infiniband.portcounters_ext.portselect=1"
        " infiniband.portcounters_ext.portxmitdata=13"
        " infiniband.portcounters_ext.portrcvdata=14"
        " infiniband.portcounters_ext.portxmitpkts=15"
        " infiniband.portcounters_ext.portrcvpkts=16"
        " infiniband.portcounters_ext.portunicastxmitpkts=17"
        " infiniband.portcounters_ext.portunicastrcvpkts=18"
        " infiniband.portcounters_ext.portmulticastxmitpkts=19"
        " infiniband.portcounters_ext.portmulticastrcvpkts=20");
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: %s FILE.pcap\n", argv[0]);
        return 2;
    }
    pcap = fopen(argv[1], "wb");
    if (!pcap) {
        perror(argv[1]);
        return 1;
    }
    put_file_header();
    add_opcodes();
    add_smps();
    add_sa();
    add_pm();
    if (fclose(pcap)) {
        perror(argv[1]);
        return 1;
    }
    return 0;
}
