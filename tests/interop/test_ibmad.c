/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Our attribute layouts against those of libibmad (infiniband-diags): random
 * bytes, taken apart by both, must give the same values.
 */
#include <glib.h>
#include <string.h>

/* Both headers have these enumerators, with the same values. */
#define IB_NODE_CA IBMAD_NODE_CA
#define IB_NODE_SWITCH IBMAD_NODE_SWITCH
#define IB_NODE_ROUTER IBMAD_NODE_ROUTER
#include <infiniband/mad.h>
#undef IB_NODE_CA
#undef IB_NODE_SWITCH
#undef IB_NODE_ROUTER

#include "ib/mad.h"

#define ROUNDS 200

typedef struct Field {
    enum MAD_FIELDS theirs;
    size_t offset, size;
} Field;

#define F(theirs, Type, member) \
    { theirs, offsetof(Type, member), sizeof(((Type *)0)->member) }

static void compare(const Field *fields, size_t n, uint8_t *wire,
                    const void *ours)
{
    for (size_t i = 0; i < n; i++) {
        const Field *f = &fields[i];
        const uint8_t *member = (const uint8_t *)ours + f->offset;
        uint64_t value = 0;
        uint8_t array[64];

        if (f->size > 8) {
            mad_get_array(wire, 0, f->theirs, array);
            g_assert_cmpmem(member, f->size, array, f->size);
            continue;
        }
        memcpy(&value, member, f->size);
        if (f->size == 8) {
            g_assert_cmphex(value, ==, mad_get_field64(wire, 0, f->theirs));
        } else if (value != mad_get_field(wire, 0, f->theirs)) {
            g_error("%s: libibmad reads %#x, we %#lx",
                    mad_field_name(f->theirs),
                    mad_get_field(wire, 0, f->theirs), (long)value);
        }
    }
}

#define COMPARE(Type, name, fields) do { \
    GRand *rand_ = g_rand_new_with_seed(7); \
    for (unsigned round_ = 0; round_ < ROUNDS; round_++) { \
        uint8_t wire_[IB_MAD_LEN]; \
        Type ours_; \
        for (unsigned i_ = 0; i_ < IB_MAD_LEN; i_++) { \
            wire_[i_] = g_rand_int(rand_); \
        } \
        memset(&ours_, 0, sizeof(ours_)); \
        ib_##name##_unpack(&ours_, wire_); \
        compare(fields, G_N_ELEMENTS(fields), wire_, &ours_); \
    } \
    g_rand_free(rand_); \
} while (0)

static void test_headers(void)
{
    static const Field smp[] = {
        F(IB_MAD_BASEVER_F, IbSmp, hdr.base_version),
        F(IB_MAD_MGMTCLASS_F, IbSmp, hdr.mgmt_class),
        F(IB_MAD_CLASSVER_F, IbSmp, hdr.class_version),
        F(IB_MAD_STATUS_F, IbSmp, hdr.status),
        F(IB_DRSMP_HOPPTR_F, IbSmp, hdr.hop_pointer),
        F(IB_DRSMP_HOPCNT_F, IbSmp, hdr.hop_count),
        F(IB_MAD_TRID_F, IbSmp, hdr.tid),
        F(IB_MAD_ATTRID_F, IbSmp, hdr.attr_id),
        F(IB_MAD_ATTRMOD_F, IbSmp, hdr.attr_mod),
        F(IB_MAD_MKEY_F, IbSmp, m_key),
        F(IB_DRSMP_DRSLID_F, IbSmp, dr_slid),
        F(IB_DRSMP_DRDLID_F, IbSmp, dr_dlid),
    };
    static const Field sa[] = {
        F(IB_SA_RMPP_VERS_F, IbSaHeader, rmpp_version),
        F(IB_SA_RMPP_TYPE_F, IbSaHeader, rmpp_type),
        F(IB_SA_RMPP_RESP_F, IbSaHeader, rmpp_resp_time),
        F(IB_SA_RMPP_FLAGS_F, IbSaHeader, rmpp_flags),
        F(IB_SA_RMPP_STATUS_F, IbSaHeader, rmpp_status),
        F(IB_SA_RMPP_D1_F, IbSaHeader, rmpp_data1),
        F(IB_SA_RMPP_D2_F, IbSaHeader, rmpp_data2),
        F(IB_SA_MKEY_F, IbSaHeader, sm_key),
        F(IB_SA_ATTROFFS_F, IbSaHeader, attr_offset),
        F(IB_SA_COMPMASK_F, IbSaHeader, component_mask),
    };

    COMPARE(IbSmp, smp, smp);
    COMPARE(IbSaHeader, sa_header, sa);
}

static void test_sm(void)
{
    static const Field node[] = {
        F(IB_NODE_BASE_VERS_F, IbNodeInfo, base_version),
        F(IB_NODE_CLASS_VERS_F, IbNodeInfo, class_version),
        F(IB_NODE_TYPE_F, IbNodeInfo, node_type),
        F(IB_NODE_NPORTS_F, IbNodeInfo, num_ports),
        F(IB_NODE_SYSTEM_GUID_F, IbNodeInfo, sys_image_guid),
        F(IB_NODE_GUID_F, IbNodeInfo, node_guid),
        F(IB_NODE_PORT_GUID_F, IbNodeInfo, port_guid),
        F(IB_NODE_PARTITION_CAP_F, IbNodeInfo, partition_cap),
        F(IB_NODE_DEVID_F, IbNodeInfo, device_id),
        F(IB_NODE_REVISION_F, IbNodeInfo, revision),
        F(IB_NODE_LOCAL_PORT_F, IbNodeInfo, local_port),
        F(IB_NODE_VENDORID_F, IbNodeInfo, vendor_id),
    };
    static const Field swi[] = {
        F(IB_SW_LINEAR_FDB_CAP_F, IbSwitchInfo, lft_cap),
        F(IB_SW_RANDOM_FDB_CAP_F, IbSwitchInfo, rft_cap),
        F(IB_SW_MCAST_FDB_CAP_F, IbSwitchInfo, mft_cap),
        F(IB_SW_LINEAR_FDB_TOP_F, IbSwitchInfo, lft_top),
        F(IB_SW_DEF_PORT_F, IbSwitchInfo, default_port),
        F(IB_SW_DEF_MCAST_PRIM_F, IbSwitchInfo, default_mcast_primary),
        F(IB_SW_DEF_MCAST_NOT_PRIM_F, IbSwitchInfo,
          default_mcast_not_primary),
        F(IB_SW_LIFE_TIME_F, IbSwitchInfo, life_time_value),
        F(IB_SW_STATE_CHANGE_F, IbSwitchInfo, port_state_change),
        F(IB_SW_OPT_SLTOVL_MAPPING_F, IbSwitchInfo, opt_sl_to_vl),
        F(IB_SW_LIDS_PER_PORT_F, IbSwitchInfo, lids_per_port),
        F(IB_SW_PARTITION_ENFORCE_CAP_F, IbSwitchInfo, partition_enf_cap),
        F(IB_SW_PARTITION_ENF_INB_F, IbSwitchInfo, inbound_enf),
        F(IB_SW_PARTITION_ENF_OUTB_F, IbSwitchInfo, outbound_enf),
        F(IB_SW_FILTER_RAW_INB_F, IbSwitchInfo, filter_raw_in),
        F(IB_SW_FILTER_RAW_OUTB_F, IbSwitchInfo, filter_raw_out),
        F(IB_SW_ENHANCED_PORT0_F, IbSwitchInfo, enhanced_port0),
        F(IB_SW_MCAST_FDB_TOP_F, IbSwitchInfo, mft_top),
    };
    static const Field port[] = {
        F(IB_PORT_MKEY_F, IbPortInfo, m_key),
        F(IB_PORT_GID_PREFIX_F, IbPortInfo, gid_prefix),
        F(IB_PORT_LID_F, IbPortInfo, lid),
        F(IB_PORT_SMLID_F, IbPortInfo, sm_lid),
        F(IB_PORT_CAPMASK_F, IbPortInfo, capability_mask),
        F(IB_PORT_DIAG_F, IbPortInfo, diag_code),
        F(IB_PORT_MKEY_LEASE_F, IbPortInfo, m_key_lease),
        F(IB_PORT_LOCAL_PORT_F, IbPortInfo, local_port),
        F(IB_PORT_LINK_WIDTH_ENABLED_F, IbPortInfo, width_enabled),
        F(IB_PORT_LINK_WIDTH_SUPPORTED_F, IbPortInfo, width_supported),
        F(IB_PORT_LINK_WIDTH_ACTIVE_F, IbPortInfo, width_active),
        F(IB_PORT_LINK_SPEED_SUPPORTED_F, IbPortInfo, speed_supported),
        F(IB_PORT_STATE_F, IbPortInfo, state),
        F(IB_PORT_PHYS_STATE_F, IbPortInfo, phys_state),
        F(IB_PORT_LINK_DOWN_DEF_F, IbPortInfo, down_default),
        F(IB_PORT_MKEY_PROT_BITS_F, IbPortInfo, m_key_protect),
        F(IB_PORT_LMC_F, IbPortInfo, lmc),
        F(IB_PORT_LINK_SPEED_ACTIVE_F, IbPortInfo, speed_active),
        F(IB_PORT_LINK_SPEED_ENABLED_F, IbPortInfo, speed_enabled),
        F(IB_PORT_NEIGHBOR_MTU_F, IbPortInfo, neighbor_mtu),
        F(IB_PORT_SMSL_F, IbPortInfo, sm_sl),
        F(IB_PORT_VL_CAP_F, IbPortInfo, vl_cap),
        F(IB_PORT_INIT_TYPE_F, IbPortInfo, init_type),
        F(IB_PORT_VL_HIGH_LIMIT_F, IbPortInfo, vl_high_limit),
        F(IB_PORT_VL_ARBITRATION_HIGH_CAP_F, IbPortInfo, vl_arb_high_cap),
        F(IB_PORT_VL_ARBITRATION_LOW_CAP_F, IbPortInfo, vl_arb_low_cap),
        F(IB_PORT_INIT_TYPE_REPLY_F, IbPortInfo, init_type_reply),
        F(IB_PORT_MTU_CAP_F, IbPortInfo, mtu_cap),
        F(IB_PORT_VL_STALL_COUNT_F, IbPortInfo, vl_stall_count),
        F(IB_PORT_HOQ_LIFE_F, IbPortInfo, hoq_life),
        F(IB_PORT_OPER_VLS_F, IbPortInfo, operational_vls),
        F(IB_PORT_PART_EN_INB_F, IbPortInfo, part_enf_in),
        F(IB_PORT_PART_EN_OUTB_F, IbPortInfo, part_enf_out),
        F(IB_PORT_FILTER_RAW_INB_F, IbPortInfo, filter_raw_in),
        F(IB_PORT_FILTER_RAW_OUTB_F, IbPortInfo, filter_raw_out),
        F(IB_PORT_MKEY_VIOL_F, IbPortInfo, m_key_violations),
        F(IB_PORT_PKEY_VIOL_F, IbPortInfo, p_key_violations),
        F(IB_PORT_QKEY_VIOL_F, IbPortInfo, q_key_violations),
        F(IB_PORT_GUID_CAP_F, IbPortInfo, guid_cap),
        F(IB_PORT_CLIENT_REREG_F, IbPortInfo, client_reregister),
        F(IB_PORT_SUBN_TIMEOUT_F, IbPortInfo, subnet_timeout),
        F(IB_PORT_RESP_TIME_VAL_F, IbPortInfo, resp_time),
        F(IB_PORT_LOCAL_PHYS_ERR_F, IbPortInfo, local_phy_errors),
        F(IB_PORT_OVERRUN_ERR_F, IbPortInfo, overrun_errors),
        F(IB_PORT_MAX_CREDIT_HINT_F, IbPortInfo, max_credit_hint),
        F(IB_PORT_LINK_ROUND_TRIP_F, IbPortInfo, link_round_trip),
    };
    static const Field sm[] = {
        F(IB_SMINFO_GUID_F, IbSmInfo, guid),
        F(IB_SMINFO_KEY_F, IbSmInfo, sm_key),
        F(IB_SMINFO_ACT_F, IbSmInfo, act_count),
        F(IB_SMINFO_PRIO_F, IbSmInfo, priority),
        F(IB_SMINFO_STATE_F, IbSmInfo, state),
    };

    COMPARE(IbNodeInfo, node_info, node);
    COMPARE(IbSwitchInfo, switch_info, swi);
    COMPARE(IbPortInfo, port_info, port);
    COMPARE(IbSmInfo, sm_info, sm);
}

static void test_notice(void)
{
    static const Field notice[] = {
        F(IB_NOTICE_IS_GENERIC_F, IbNotice, generic),
        F(IB_NOTICE_TYPE_F, IbNotice, type),
        F(IB_NOTICE_PRODUCER_F, IbNotice, producer),
        F(IB_NOTICE_TRAP_NUMBER_F, IbNotice, trap),
        F(IB_NOTICE_ISSUER_LID_F, IbNotice, issuer_lid),
        F(IB_NOTICE_TOGGLE_F, IbNotice, toggle),
        F(IB_NOTICE_COUNT_F, IbNotice, count),
    };
    uint8_t wire[IB_NOTICE_LEN];
    GRand *rand = g_rand_new_with_seed(8);

    for (unsigned round = 0; round < ROUNDS; round++) {
        IbNotice ours;

        for (unsigned i = 0; i < sizeof(wire); i++) {
            wire[i] = g_rand_int(rand);
        }
        ib_notice_unpack(&ours, wire, IB_NOTICE_LEN);
        compare(notice, G_N_ELEMENTS(notice), wire, &ours);
    }
    g_rand_free(rand);
}

static void test_class_port_info(void)
{
    static const Field info[] = {
        F(IB_CPI_BASEVER_F, IbClassPortInfo, base_version),
        F(IB_CPI_CLASSVER_F, IbClassPortInfo, class_version),
        F(IB_CPI_CAPMASK_F, IbClassPortInfo, capability_mask),
        F(IB_CPI_CAPMASK2_F, IbClassPortInfo, capability_mask2),
        F(IB_CPI_RESP_TIME_VALUE_F, IbClassPortInfo, resp_time),
        F(IB_CPI_REDIRECT_GID_F, IbClassPortInfo, redirect_gid),
        F(IB_CPI_REDIRECT_TC_F, IbClassPortInfo, redirect_tclass),
        F(IB_CPI_REDIRECT_SL_F, IbClassPortInfo, redirect_sl),
        F(IB_CPI_REDIRECT_FL_F, IbClassPortInfo, redirect_flow),
        F(IB_CPI_REDIRECT_LID_F, IbClassPortInfo, redirect_lid),
        F(IB_CPI_REDIRECT_PKEY_F, IbClassPortInfo, redirect_pkey),
        F(IB_CPI_REDIRECT_QP_F, IbClassPortInfo, redirect_qpn),
        F(IB_CPI_REDIRECT_QKEY_F, IbClassPortInfo, redirect_qkey),
        F(IB_CPI_TRAP_GID_F, IbClassPortInfo, trap_gid),
        F(IB_CPI_TRAP_TC_F, IbClassPortInfo, trap_tclass),
        F(IB_CPI_TRAP_SL_F, IbClassPortInfo, trap_sl),
        F(IB_CPI_TRAP_FL_F, IbClassPortInfo, trap_flow),
        F(IB_CPI_TRAP_LID_F, IbClassPortInfo, trap_lid),
        F(IB_CPI_TRAP_PKEY_F, IbClassPortInfo, trap_pkey),
        F(IB_CPI_TRAP_HL_F, IbClassPortInfo, trap_hop_limit),
        F(IB_CPI_TRAP_QP_F, IbClassPortInfo, trap_qpn),
        F(IB_CPI_TRAP_QKEY_F, IbClassPortInfo, trap_qkey),
    };

    COMPARE(IbClassPortInfo, class_port_info, info);
}

static void test_sa(void)
{
    static const Field path[] = {
        F(IB_SA_PR_DGID_F, IbPathRecord, dgid),
        F(IB_SA_PR_SGID_F, IbPathRecord, sgid),
        F(IB_SA_PR_DLID_F, IbPathRecord, dlid),
        F(IB_SA_PR_SLID_F, IbPathRecord, slid),
        F(IB_SA_PR_NPATH_F, IbPathRecord, num_paths),
        F(IB_SA_PR_SL_F, IbPathRecord, sl),
    };
    static const Field member[] = {
        F(IB_SA_MCM_MGID_F, IbMcMemberRecord, mgid),
        F(IB_SA_MCM_PORTGID_F, IbMcMemberRecord, port_gid),
        F(IB_SA_MCM_QKEY_F, IbMcMemberRecord, qkey),
        F(IB_SA_MCM_MLID_F, IbMcMemberRecord, mlid),
        F(IB_SA_MCM_SL_F, IbMcMemberRecord, sl),
        F(IB_SA_MCM_MTU_F, IbMcMemberRecord, mtu),
        F(IB_SA_MCM_RATE_F, IbMcMemberRecord, rate),
        F(IB_SA_MCM_TCLASS_F, IbMcMemberRecord, tclass),
        F(IB_SA_MCM_PKEY_F, IbMcMemberRecord, pkey),
        F(IB_SA_MCM_FLOW_LABEL_F, IbMcMemberRecord, flow_label),
        F(IB_SA_MCM_JOIN_STATE_F, IbMcMemberRecord, join_state),
        F(IB_SA_MCM_PROXY_JOIN_F, IbMcMemberRecord, proxy_join),
    };

    COMPARE(IbPathRecord, path_record, path);
    COMPARE(IbMcMemberRecord, mcmember_record, member);
}

static void test_counters(void)
{
    static const enum MAD_FIELDS fields[] = {
        IB_PC_ERR_SYM_F, IB_PC_LINK_RECOVERS_F, IB_PC_LINK_DOWNED_F,
        IB_PC_ERR_RCV_F, IB_PC_ERR_PHYSRCV_F, IB_PC_ERR_SWITCH_REL_F,
        IB_PC_XMT_DISCARDS_F, IB_PC_ERR_XMTCONSTR_F, IB_PC_ERR_RCVCONSTR_F,
        IB_PC_ERR_LOCALINTEG_F, IB_PC_ERR_EXCESS_OVR_F, IB_PC_VL15_DROPPED_F,
        IB_PC_XMT_BYTES_F, IB_PC_RCV_BYTES_F, IB_PC_XMT_PKTS_F,
        IB_PC_RCV_PKTS_F, IB_PC_XMT_WAIT_F,
    };
    static const enum MAD_FIELDS extended[] = {
        IB_PC_EXT_XMT_BYTES_F, IB_PC_EXT_RCV_BYTES_F, IB_PC_EXT_XMT_PKTS_F,
        IB_PC_EXT_RCV_PKTS_F, IB_PC_EXT_XMT_UPKTS_F, IB_PC_EXT_RCV_UPKTS_F,
        IB_PC_EXT_XMT_MPKTS_F, IB_PC_EXT_RCV_MPKTS_F,
    };
    const IbPortCounters c = {
        .symbol_error = 1, .link_error_recovery = 2, .link_downed = 3,
        .rcv_errors = 4, .rcv_remote_physical_errors = 5,
        .rcv_switch_relay_errors = 6, .xmit_discards = 7,
        .xmit_constraint_errors = 8, .rcv_constraint_errors = 9,
        .local_link_integrity_errors = 10, .excessive_buffer_overrun = 11,
        .vl15_dropped = 12, .xmit_data = 13, .rcv_data = 14, .xmit_pkts = 15,
        .rcv_pkts = 16, .xmit_wait = 17,
    };
    const IbPortCounters e = {
        .xmit_data = 1, .rcv_data = 2, .xmit_pkts = 3, .rcv_pkts = 4,
        .unicast_xmit_pkts = 5, .unicast_rcv_pkts = 6,
        .multicast_xmit_pkts = 7, .multicast_rcv_pkts = 8,
    };
    uint8_t wire[IB_PM_DATA_LEN] = { 0 };

    ib_port_counters_pack(wire, &c, 0x12, 0x3456);
    for (unsigned i = 0; i < G_N_ELEMENTS(fields); i++) {
        g_assert_cmpuint(mad_get_field(wire, 0, fields[i]), ==, i + 1);
    }
    g_assert_cmphex(mad_get_field(wire, 0, IB_PC_PORT_SELECT_F), ==, 0x12);
    g_assert_cmphex(mad_get_field(wire, 0, IB_PC_COUNTER_SELECT_F), ==,
                    0x3456);
    ib_port_counters_ext_pack(wire, &e, 0x12, 0x3456);
    for (unsigned i = 0; i < G_N_ELEMENTS(extended); i++) {
        g_assert_cmpuint(mad_get_field64(wire, 0, extended[i]), ==, i + 1);
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/ibmad/headers", test_headers);
    g_test_add_func("/ibmad/sm", test_sm);
    g_test_add_func("/ibmad/notice", test_notice);
    g_test_add_func("/ibmad/class-port-info", test_class_port_info);
    g_test_add_func("/ibmad/sa", test_sa);
    g_test_add_func("/ibmad/counters", test_counters);
    return g_test_run();
}
