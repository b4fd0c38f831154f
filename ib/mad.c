/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Management datagrams: every header and attribute is one table of fields.
 *
 * Theory of operation: an IbField names where a value lies on the wire (bit
 * offset from the attribute's start, most significant bit first, and width)
 * and where in the structure (offset, size).  pack() clears the attribute,
 * then writes each field; unpack() reads each.  Byte arrays (GIDs, details of
 * a notice) are fields wider than 64 bits on byte boundaries.  So a layout is
 * written down once, in the words and order of the specification.
 *
 * Bit positions: IBTA volume 1 release 1.2.1, 13.4.2 (MAD), 13.4.8 (common
 * attributes), 14.2.1 (SMP), 14.2.5 (SM), 15.2.1 and 15.2.5 (SA), 16.1.3 (PM).
 */
#include <string.h>

#include "ib/bytes.h"
#include "ib/mad.h"
#include "ib/packet.h"

typedef struct IbField {
    uint16_t bit;
    uint16_t width;
    uint16_t offset;
    uint16_t size;
} IbField;

typedef struct IbLayout {
    const IbField *fields;
    size_t num_fields;
    size_t len;                  /* bytes that pack() overwrites */
} IbLayout;

#define F(bit_, width_, Type, member) \
    { bit_, width_, offsetof(Type, member), sizeof(((Type *)0)->member) }
#define LAYOUT(fields_, len_) \
    { fields_, sizeof(fields_) / sizeof((fields_)[0]), len_ }

static void put_bits(uint8_t *p, unsigned bit, unsigned width, uint64_t v)
{
    while (width) {
        unsigned room = 8 - bit % 8;
        unsigned n = width < room ? width : room;
        unsigned shift = room - n;
        uint8_t mask = (0xFFu >> (8 - n)) << shift;
        uint8_t value = v >> (width - n) << shift;

        p[bit / 8] = (p[bit / 8] & ~mask) | (value & mask);
        bit += n;
        width -= n;
    }
}

static uint64_t get_bits(const uint8_t *p, unsigned bit, unsigned width)
{
    uint64_t v = 0;

    while (width) {
        unsigned room = 8 - bit % 8;
        unsigned n = width < room ? width : room;

        v = v << n | (p[bit / 8] >> (room - n) & 0xFFu >> (8 - n));
        bit += n;
        width -= n;
    }
    return v;
}

static uint64_t load_member(const void *v, const IbField *f)
{
    const uint8_t *p = (const uint8_t *)v + f->offset;
    uint16_t v16;
    uint32_t v32;
    uint64_t v64;

    switch (f->size) {
    case 1:
        return *p;
    case 2:
        memcpy(&v16, p, sizeof(v16));
        return v16;
    case 4:
        memcpy(&v32, p, sizeof(v32));
        return v32;
    default:
        memcpy(&v64, p, sizeof(v64));
        return v64;
    }
}

static void store_member(void *v, const IbField *f, uint64_t value)
{
    uint8_t *p = (uint8_t *)v + f->offset;
    uint16_t v16 = value;
    uint32_t v32 = value;

    switch (f->size) {
    case 1:
        *p = value;
        break;
    case 2:
        memcpy(p, &v16, sizeof(v16));
        break;
    case 4:
        memcpy(p, &v32, sizeof(v32));
        break;
    default:
        memcpy(p, &value, sizeof(value));
        break;
    }
}

static void layout_pack(uint8_t *p, const void *v, const IbLayout *layout,
                        bool saturate)
{
    memset(p, 0, layout->len);
    for (size_t i = 0; i < layout->num_fields; i++) {
        const IbField *f = &layout->fields[i];
        uint64_t value;

        if (f->width > 64) {
            memcpy(p + f->bit / 8, (const uint8_t *)v + f->offset, f->size);
            continue;
        }
        value = load_member(v, f);
        if (saturate && f->width < 64 && value >> f->width) {
            value = (UINT64_C(1) << f->width) - 1;
        }
        put_bits(p, f->bit, f->width, value);
    }
}

static void layout_unpack(void *v, const uint8_t *p, const IbLayout *layout)
{
    for (size_t i = 0; i < layout->num_fields; i++) {
        const IbField *f = &layout->fields[i];

        if (f->width > 64) {
            memcpy((uint8_t *)v + f->offset, p + f->bit / 8, f->size);
        } else {
            store_member(v, f, get_bits(p, f->bit, f->width));
        }
    }
}

/* Common MAD header, 13.4.2; bytes 6 and 7 are the class's own. */
#define HEADER_FIELDS(Type, m) \
    F(0, 8, Type, m base_version), \
    F(8, 8, Type, m mgmt_class), \
    F(16, 8, Type, m class_version), \
    F(24, 8, Type, m method), \
    F(32, 16, Type, m status), \
    F(48, 8, Type, m hop_pointer), \
    F(56, 8, Type, m hop_count), \
    F(64, 64, Type, m tid), \
    F(128, 16, Type, m attr_id), \
    F(160, 32, Type, m attr_mod)

static const IbField mad_header_fields[] = {
    HEADER_FIELDS(IbMadHeader, ),
};
static const IbLayout mad_header_layout =
    LAYOUT(mad_header_fields, IB_MAD_HEADER_LEN);

void ib_mad_header_pack(uint8_t *mad, const IbMadHeader *header)
{
    layout_pack(mad, header, &mad_header_layout, false);
}

void ib_mad_header_unpack(IbMadHeader *header, const uint8_t *mad)
{
    layout_unpack(header, mad, &mad_header_layout);
}

static const IbField smp_fields[] = {
    HEADER_FIELDS(IbSmp, hdr.),
    F(192, 64, IbSmp, m_key),
    F(256, 16, IbSmp, dr_slid),
    F(272, 16, IbSmp, dr_dlid),
};
static const IbLayout smp_layout = LAYOUT(smp_fields, IB_SMP_DATA_OFFSET);

void ib_smp_pack(uint8_t *mad, const IbSmp *smp)
{
    layout_pack(mad, smp, &smp_layout, false);
}

void ib_smp_unpack(IbSmp *smp, const uint8_t *mad)
{
    layout_unpack(smp, mad, &smp_layout);
}

static const IbField sa_header_fields[] = {
    HEADER_FIELDS(IbSaHeader, hdr.),
    F(192, 8, IbSaHeader, rmpp_version),
    F(200, 8, IbSaHeader, rmpp_type),
    F(208, 5, IbSaHeader, rmpp_resp_time),
    F(213, 3, IbSaHeader, rmpp_flags),
    F(216, 8, IbSaHeader, rmpp_status),
    F(224, 32, IbSaHeader, rmpp_data1),
    F(256, 32, IbSaHeader, rmpp_data2),
    F(288, 64, IbSaHeader, sm_key),
    F(352, 16, IbSaHeader, attr_offset),
    F(384, 64, IbSaHeader, component_mask),
};
static const IbLayout sa_header_layout =
    LAYOUT(sa_header_fields, IB_SA_DATA_OFFSET);

void ib_sa_header_pack(uint8_t *mad, const IbSaHeader *header)
{
    layout_pack(mad, header, &sa_header_layout, false);
}

void ib_sa_header_unpack(IbSaHeader *header, const uint8_t *mad)
{
    layout_unpack(header, mad, &sa_header_layout);
}

/* The attributes: a layout and the two functions that mad.h declares. */
#define DEFINE_ATTR(Type, name, len) \
    static const IbLayout name##_layout = LAYOUT(name##_fields, len); \
    void ib_##name##_pack(uint8_t *p, const Type *v) \
    { \
        layout_pack(p, v, &name##_layout, false); \
    } \
    void ib_##name##_unpack(Type *v, const uint8_t *p) \
    { \
        layout_unpack(v, p, &name##_layout); \
    }

/* 14.2.5.3 */
static const IbField node_info_fields[] = {
    F(0, 8, IbNodeInfo, base_version),
    F(8, 8, IbNodeInfo, class_version),
    F(16, 8, IbNodeInfo, node_type),
    F(24, 8, IbNodeInfo, num_ports),
    F(32, 64, IbNodeInfo, sys_image_guid),
    F(96, 64, IbNodeInfo, node_guid),
    F(160, 64, IbNodeInfo, port_guid),
    F(224, 16, IbNodeInfo, partition_cap),
    F(240, 16, IbNodeInfo, device_id),
    F(256, 32, IbNodeInfo, revision),
    F(288, 8, IbNodeInfo, local_port),
    F(296, 24, IbNodeInfo, vendor_id),
};
DEFINE_ATTR(IbNodeInfo, node_info, IB_NODE_INFO_LEN)

/* 14.2.5.4 */
static const IbField switch_info_fields[] = {
    F(0, 16, IbSwitchInfo, lft_cap),
    F(16, 16, IbSwitchInfo, rft_cap),
    F(32, 16, IbSwitchInfo, mft_cap),
    F(48, 16, IbSwitchInfo, lft_top),
    F(64, 8, IbSwitchInfo, default_port),
    F(72, 8, IbSwitchInfo, default_mcast_primary),
    F(80, 8, IbSwitchInfo, default_mcast_not_primary),
    F(88, 5, IbSwitchInfo, life_time_value),
    F(93, 1, IbSwitchInfo, port_state_change),
    F(94, 2, IbSwitchInfo, opt_sl_to_vl),
    F(96, 16, IbSwitchInfo, lids_per_port),
    F(112, 16, IbSwitchInfo, partition_enf_cap),
    F(128, 1, IbSwitchInfo, inbound_enf),
    F(129, 1, IbSwitchInfo, outbound_enf),
    F(130, 1, IbSwitchInfo, filter_raw_in),
    F(131, 1, IbSwitchInfo, filter_raw_out),
    F(132, 1, IbSwitchInfo, enhanced_port0),
    F(144, 16, IbSwitchInfo, mft_top),
};
DEFINE_ATTR(IbSwitchInfo, switch_info, IB_SWITCH_INFO_LEN)

/* 14.2.5.6 */
static const IbField port_info_fields[] = {
    F(0, 64, IbPortInfo, m_key),
    F(64, 64, IbPortInfo, gid_prefix),
    F(128, 16, IbPortInfo, lid),
    F(144, 16, IbPortInfo, sm_lid),
    F(160, 32, IbPortInfo, capability_mask),
    F(192, 16, IbPortInfo, diag_code),
    F(208, 16, IbPortInfo, m_key_lease),
    F(224, 8, IbPortInfo, local_port),
    F(232, 8, IbPortInfo, width_enabled),
    F(240, 8, IbPortInfo, width_supported),
    F(248, 8, IbPortInfo, width_active),
    F(256, 4, IbPortInfo, speed_supported),
    F(260, 4, IbPortInfo, state),
    F(264, 4, IbPortInfo, phys_state),
    F(268, 4, IbPortInfo, down_default),
    F(272, 2, IbPortInfo, m_key_protect),
    F(277, 3, IbPortInfo, lmc),
    F(280, 4, IbPortInfo, speed_active),
    F(284, 4, IbPortInfo, speed_enabled),
    F(288, 4, IbPortInfo, neighbor_mtu),
    F(292, 4, IbPortInfo, sm_sl),
    F(296, 4, IbPortInfo, vl_cap),
    F(300, 4, IbPortInfo, init_type),
    F(304, 8, IbPortInfo, vl_high_limit),
    F(312, 8, IbPortInfo, vl_arb_high_cap),
    F(320, 8, IbPortInfo, vl_arb_low_cap),
    F(328, 4, IbPortInfo, init_type_reply),
    F(332, 4, IbPortInfo, mtu_cap),
    F(336, 3, IbPortInfo, vl_stall_count),
    F(339, 5, IbPortInfo, hoq_life),
    F(344, 4, IbPortInfo, operational_vls),
    F(348, 1, IbPortInfo, part_enf_in),
    F(349, 1, IbPortInfo, part_enf_out),
    F(350, 1, IbPortInfo, filter_raw_in),
    F(351, 1, IbPortInfo, filter_raw_out),
    F(352, 16, IbPortInfo, m_key_violations),
    F(368, 16, IbPortInfo, p_key_violations),
    F(384, 16, IbPortInfo, q_key_violations),
    F(400, 8, IbPortInfo, guid_cap),
    F(408, 1, IbPortInfo, client_reregister),
    F(411, 5, IbPortInfo, subnet_timeout),
    F(419, 5, IbPortInfo, resp_time),
    F(424, 4, IbPortInfo, local_phy_errors),
    F(428, 4, IbPortInfo, overrun_errors),
    F(432, 16, IbPortInfo, max_credit_hint),
    F(456, 24, IbPortInfo, link_round_trip),
};
DEFINE_ATTR(IbPortInfo, port_info, IB_PORT_INFO_LEN)

/* 14.2.5.13 */
static const IbField sm_info_fields[] = {
    F(0, 64, IbSmInfo, guid),
    F(64, 64, IbSmInfo, sm_key),
    F(128, 32, IbSmInfo, act_count),
    F(160, 4, IbSmInfo, priority),
    F(164, 4, IbSmInfo, state),
};
DEFINE_ATTR(IbSmInfo, sm_info, IB_SM_INFO_LEN)

/* 13.4.8.3 */
static const IbField inform_info_fields[] = {
    F(0, 128, IbInformInfo, gid),
    F(128, 16, IbInformInfo, lid_begin),
    F(144, 16, IbInformInfo, lid_end),
    F(176, 8, IbInformInfo, is_generic),
    F(184, 8, IbInformInfo, subscribe),
    F(192, 16, IbInformInfo, type),
    F(208, 16, IbInformInfo, trap),
    F(224, 24, IbInformInfo, qpn),
    F(251, 5, IbInformInfo, resp_time),
    F(264, 24, IbInformInfo, producer),
};
DEFINE_ATTR(IbInformInfo, inform_info, IB_INFORM_INFO_LEN)

/* 13.4.8.1 */
static const IbField class_port_info_fields[] = {
    F(0, 8, IbClassPortInfo, base_version),
    F(8, 8, IbClassPortInfo, class_version),
    F(16, 16, IbClassPortInfo, capability_mask),
    F(32, 27, IbClassPortInfo, capability_mask2),
    F(59, 5, IbClassPortInfo, resp_time),
    F(64, 128, IbClassPortInfo, redirect_gid),
    F(192, 8, IbClassPortInfo, redirect_tclass),
    F(200, 4, IbClassPortInfo, redirect_sl),
    F(204, 20, IbClassPortInfo, redirect_flow),
    F(224, 16, IbClassPortInfo, redirect_lid),
    F(240, 16, IbClassPortInfo, redirect_pkey),
    F(264, 24, IbClassPortInfo, redirect_qpn),
    F(288, 32, IbClassPortInfo, redirect_qkey),
    F(320, 128, IbClassPortInfo, trap_gid),
    F(448, 8, IbClassPortInfo, trap_tclass),
    F(456, 4, IbClassPortInfo, trap_sl),
    F(460, 20, IbClassPortInfo, trap_flow),
    F(480, 16, IbClassPortInfo, trap_lid),
    F(496, 16, IbClassPortInfo, trap_pkey),
    F(512, 8, IbClassPortInfo, trap_hop_limit),
    F(520, 24, IbClassPortInfo, trap_qpn),
    F(544, 32, IbClassPortInfo, trap_qkey),
};
DEFINE_ATTR(IbClassPortInfo, class_port_info, IB_CLASS_PORT_INFO_LEN)

/* 15.2.5.16 */
static const IbField path_record_fields[] = {
    F(0, 64, IbPathRecord, service_id),
    F(64, 128, IbPathRecord, dgid),
    F(192, 128, IbPathRecord, sgid),
    F(320, 16, IbPathRecord, dlid),
    F(336, 16, IbPathRecord, slid),
    F(352, 1, IbPathRecord, raw_traffic),
    F(356, 20, IbPathRecord, flow_label),
    F(376, 8, IbPathRecord, hop_limit),
    F(384, 8, IbPathRecord, tclass),
    F(392, 1, IbPathRecord, reversible),
    F(393, 7, IbPathRecord, num_paths),
    F(400, 16, IbPathRecord, pkey),
    F(416, 12, IbPathRecord, qos_class),
    F(428, 4, IbPathRecord, sl),
    F(432, 2, IbPathRecord, mtu_selector),
    F(434, 6, IbPathRecord, mtu),
    F(440, 2, IbPathRecord, rate_selector),
    F(442, 6, IbPathRecord, rate),
    F(448, 2, IbPathRecord, life_selector),
    F(450, 6, IbPathRecord, life),
    F(456, 8, IbPathRecord, preference),
};
DEFINE_ATTR(IbPathRecord, path_record, IB_PATH_RECORD_LEN)

/* 15.2.5.17 */
static const IbField mcmember_record_fields[] = {
    F(0, 128, IbMcMemberRecord, mgid),
    F(128, 128, IbMcMemberRecord, port_gid),
    F(256, 32, IbMcMemberRecord, qkey),
    F(288, 16, IbMcMemberRecord, mlid),
    F(304, 2, IbMcMemberRecord, mtu_selector),
    F(306, 6, IbMcMemberRecord, mtu),
    F(312, 8, IbMcMemberRecord, tclass),
    F(320, 16, IbMcMemberRecord, pkey),
    F(336, 2, IbMcMemberRecord, rate_selector),
    F(338, 6, IbMcMemberRecord, rate),
    F(344, 2, IbMcMemberRecord, life_selector),
    F(346, 6, IbMcMemberRecord, life),
    F(352, 4, IbMcMemberRecord, sl),
    F(356, 20, IbMcMemberRecord, flow_label),
    F(376, 8, IbMcMemberRecord, hop_limit),
    F(384, 4, IbMcMemberRecord, scope),
    F(388, 4, IbMcMemberRecord, join_state),
    F(392, 1, IbMcMemberRecord, proxy_join),
};
DEFINE_ATTR(IbMcMemberRecord, mcmember_record, IB_MCMEMBER_RECORD_LEN)

/* 13.4.8.2; an SMP has room for the first 64 bytes only. */
#define NOTICE_FIELDS \
    F(0, 1, IbNotice, generic), \
    F(1, 7, IbNotice, type), \
    F(8, 24, IbNotice, producer), \
    F(32, 16, IbNotice, trap), \
    F(48, 16, IbNotice, issuer_lid), \
    F(64, 1, IbNotice, toggle), \
    F(65, 15, IbNotice, count), \
    F(80, 432, IbNotice, details)

static const IbField notice_smp_fields[] = { NOTICE_FIELDS };
static const IbField notice_fields[] = {
    NOTICE_FIELDS,
    F(512, 128, IbNotice, issuer_gid),
};
static const IbLayout notice_smp_layout =
    LAYOUT(notice_smp_fields, IB_SMP_DATA_LEN);
static const IbLayout notice_layout = LAYOUT(notice_fields, IB_NOTICE_LEN);

void ib_notice_pack(uint8_t *p, const IbNotice *v, size_t len)
{
    layout_pack(p, v, len >= IB_NOTICE_LEN ? &notice_layout
                                           : &notice_smp_layout, false);
}

void ib_notice_unpack(IbNotice *v, const uint8_t *p, size_t len)
{
    memset(v->issuer_gid, 0, sizeof(v->issuer_gid));
    layout_unpack(v, p, len >= IB_NOTICE_LEN ? &notice_layout
                                             : &notice_smp_layout);
}

/* 16.1.3.5 */
static const IbField port_counters_fields[] = {
    F(32, 16, IbPortCounters, symbol_error),
    F(48, 8, IbPortCounters, link_error_recovery),
    F(56, 8, IbPortCounters, link_downed),
    F(64, 16, IbPortCounters, rcv_errors),
    F(80, 16, IbPortCounters, rcv_remote_physical_errors),
    F(96, 16, IbPortCounters, rcv_switch_relay_errors),
    F(112, 16, IbPortCounters, xmit_discards),
    F(128, 8, IbPortCounters, xmit_constraint_errors),
    F(136, 8, IbPortCounters, rcv_constraint_errors),
    F(152, 4, IbPortCounters, local_link_integrity_errors),
    F(156, 4, IbPortCounters, excessive_buffer_overrun),
    F(176, 16, IbPortCounters, vl15_dropped),
    F(192, 32, IbPortCounters, xmit_data),
    F(224, 32, IbPortCounters, rcv_data),
    F(256, 32, IbPortCounters, xmit_pkts),
    F(288, 32, IbPortCounters, rcv_pkts),
    F(320, 32, IbPortCounters, xmit_wait),
};
static const IbLayout port_counters_layout =
    LAYOUT(port_counters_fields, IB_PORT_COUNTERS_LEN);

/* 16.1.4.11: these do not saturate in practice, they are 64 bits wide. */
static const IbField port_counters_ext_fields[] = {
    F(64, 64, IbPortCounters, xmit_data),
    F(128, 64, IbPortCounters, rcv_data),
    F(192, 64, IbPortCounters, xmit_pkts),
    F(256, 64, IbPortCounters, rcv_pkts),
    F(320, 64, IbPortCounters, unicast_xmit_pkts),
    F(384, 64, IbPortCounters, unicast_rcv_pkts),
    F(448, 64, IbPortCounters, multicast_xmit_pkts),
    F(512, 64, IbPortCounters, multicast_rcv_pkts),
};
static const IbLayout port_counters_ext_layout =
    LAYOUT(port_counters_ext_fields, IB_PORT_COUNTERS_EXT_LEN);

void ib_port_counters_pack(uint8_t *p, const IbPortCounters *v,
                           uint8_t port_select, uint16_t counter_select)
{
    layout_pack(p, v, &port_counters_layout, true);
    p[1] = port_select;
    ib_put16(p + 2, counter_select);
}

void ib_port_counters_ext_pack(uint8_t *p, const IbPortCounters *v,
                               uint8_t port_select, uint16_t counter_select)
{
    layout_pack(p, v, &port_counters_ext_layout, true);
    p[1] = port_select;
    ib_put16(p + 2, counter_select);
}

void ib_mad_address_from(IbMadAddress *from, const IbPacket *packet)
{
    *from = (IbMadAddress) {
        .slid = packet->lrh.slid,
        .dlid = packet->lrh.dlid,
        .sl = packet->lrh.sl,
        .vl = packet->lrh.vl,
        .src_qpn = packet->deth.src_qpn,
        .dest_qpn = packet->bth.dest_qpn,
        .qkey = packet->deth.qkey,
        .pkey = packet->bth.pkey,
        .has_grh = packet->has_grh,
    };
    memcpy(from->sgid, packet->grh.sgid, sizeof(from->sgid));
    memcpy(from->dgid, packet->grh.dgid, sizeof(from->dgid));
}

void ib_mad_address_turn(IbMadAddress *to, const IbMadAddress *from)
{
    *to = *from;
    to->slid = from->dlid;
    to->dlid = from->slid;
    to->src_qpn = from->dest_qpn;
    to->dest_qpn = from->src_qpn;
    memcpy(to->sgid, from->dgid, sizeof(to->sgid));
    memcpy(to->dgid, from->sgid, sizeof(to->dgid));
}

size_t ib_mad_packet(uint8_t *p, const IbMadAddress *to, const uint8_t *mad)
{
    IbPacket packet = {
        .lrh = {
            .vl = to->vl,
            .sl = to->sl,
            .dlid = to->dlid,
            .slid = to->slid,
        },
        .has_grh = to->has_grh,
        .grh = {
            .hop_limit = 0xFF,
        },
        .bth = {
            .opcode = IB_TRANSPORT_UD | IB_OP_SEND_ONLY,
            .migreq = true,           /* no APM here: MigReq 1 for life */
            .pkey = to->pkey,
            .dest_qpn = to->dest_qpn,
        },
        .deth = {
            .qkey = to->qkey,
            .src_qpn = to->src_qpn,
        },
    };
    size_t header_len;

    memcpy(packet.grh.sgid, to->sgid, sizeof(packet.grh.sgid));
    memcpy(packet.grh.dgid, to->dgid, sizeof(packet.grh.dgid));
    header_len = ib_packet_put_headers(p, &packet, IB_MAD_LEN);
    memcpy(p + header_len, mad, IB_MAD_LEN);
    return ib_packet_finish(p, header_len, IB_MAD_LEN);
}
