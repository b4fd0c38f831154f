/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Management datagrams (IBTA volume 1, chapters 13 to 16): the common header,
 * directed-route SMPs, and the attributes of the SM, SA, PM and CM classes.
 *
 * Each attribute is a structure in host order with a pair of functions,
 * ib_xxx_pack() and ib_xxx_unpack(), driven by a table of fields (mad.c) that
 * names position and width of each: the only place that knows the layout.
 * pack() overwrites the whole attribute, reserved bits become zero.
 */
#ifndef IB_MAD_H
#define IB_MAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "packet.h"

#define IB_MAD_LEN 256
#define IB_MAD_HEADER_LEN 24
#define IB_SMP_DATA_OFFSET 64       /* both LID and directed route */
#define IB_SMP_DATA_LEN 64
#define IB_SMP_INITIAL_PATH_OFFSET 128
#define IB_SMP_RETURN_PATH_OFFSET 192
#define IB_SMP_MAX_HOPS 64
#define IB_SA_DATA_OFFSET 56
#define IB_SA_DATA_LEN 200
#define IB_PM_DATA_OFFSET 64
#define IB_PM_DATA_LEN 192
/* What pack() overwrites: an attribute's own length, as in an SA record. */
#define IB_NODE_INFO_LEN 40
#define IB_SWITCH_INFO_LEN 20
#define IB_PORT_INFO_LEN 64
#define IB_SM_INFO_LEN 21
#define IB_INFORM_INFO_LEN 36
#define IB_CLASS_PORT_INFO_LEN 72
#define IB_PORT_COUNTERS_LEN 44
#define IB_PORT_COUNTERS_EXT_LEN 72

/* Management classes. */
enum {
    IB_CLASS_SM_LID = 0x01, IB_CLASS_SM_DR = 0x81, IB_CLASS_SA = 0x03,
    IB_CLASS_PM = 0x04, IB_CLASS_BM = 0x05, IB_CLASS_CM = 0x07,
};

enum {
    IB_METHOD_GET = 0x01, IB_METHOD_SET = 0x02, IB_METHOD_SEND = 0x03,
    IB_METHOD_TRAP = 0x05, IB_METHOD_REPORT = 0x06,
    IB_METHOD_TRAP_REPRESS = 0x07, IB_METHOD_GET_RESP = 0x81,
    IB_METHOD_REPORT_RESP = 0x86, IB_METHOD_GET_TABLE = 0x12,
    IB_METHOD_GET_TABLE_RESP = 0x92, IB_METHOD_DELETE = 0x15,
    IB_METHOD_DELETE_RESP = 0x95,
    IB_METHOD_RESPONSE_BIT = 0x80,
};

/* Common attributes, and those of the SM, PM, SA and CM classes. */
enum {
    IB_ATTR_CLASS_PORT_INFO = 0x0001, IB_ATTR_NOTICE = 0x0002,
    IB_ATTR_INFORM_INFO = 0x0003,
    IB_SM_NODE_DESCRIPTION = 0x0010, IB_SM_NODE_INFO = 0x0011,
    IB_SM_SWITCH_INFO = 0x0012, IB_SM_GUID_INFO = 0x0014,
    IB_SM_PORT_INFO = 0x0015, IB_SM_PKEY_TABLE = 0x0016,
    IB_SM_SL_TO_VL = 0x0017, IB_SM_VL_ARB = 0x0018,
    IB_SM_LINEAR_FT = 0x0019, IB_SM_RANDOM_FT = 0x001A,
    IB_SM_MCAST_FT = 0x001B, IB_SM_SM_INFO = 0x0020,
    IB_SM_VENDOR_DIAG = 0x0030, IB_SM_LED_INFO = 0x0031,
    IB_PM_PORT_SAMPLES_CONTROL = 0x0010, IB_PM_PORT_COUNTERS = 0x0012,
    IB_PM_PORT_COUNTERS_EXT = 0x001D,
    IB_SA_NODE_RECORD = 0x0011, IB_SA_PORT_INFO_RECORD = 0x0012,
    IB_SA_SL_TO_VL_RECORD = 0x0013, IB_SA_SWITCH_INFO_RECORD = 0x0014,
    IB_SA_LFT_RECORD = 0x0015, IB_SA_MFT_RECORD = 0x0017,
    IB_SA_SM_INFO_RECORD = 0x0018,
    IB_SA_LINK_RECORD = 0x0020, IB_SA_SERVICE_RECORD = 0x0031,
    IB_SA_PKEY_TABLE_RECORD = 0x0033, IB_SA_PATH_RECORD = 0x0035,
    IB_SA_MCMEMBER_RECORD = 0x0038, IB_SA_MULTIPATH_RECORD = 0x003A,
    IB_SA_INFORM_INFO_RECORD = 0x00F3, IB_SA_GUID_INFO_RECORD = 0x0030,
    IB_CM_REQ = 0x0010, IB_CM_MRA = 0x0011, IB_CM_REJ = 0x0012,
    IB_CM_REP = 0x0013, IB_CM_RTU = 0x0014, IB_CM_DREQ = 0x0015,
    IB_CM_DREP = 0x0016, IB_CM_SIDR_REQ = 0x0017, IB_CM_SIDR_REP = 0x0018,
    IB_CM_LAP = 0x0019, IB_CM_APR = 0x001A,
};

/* MAD status, low 8 bits (13.4.7); SA and CM put codes into the high byte. */
enum {
    IB_MAD_STATUS_OK = 0x0000, IB_MAD_STATUS_BUSY = 0x0001,
    IB_MAD_STATUS_REDIRECT = 0x0002, IB_MAD_STATUS_BAD_VERSION = 0x0004,
    IB_MAD_STATUS_BAD_METHOD = 0x0008,
    IB_MAD_STATUS_BAD_METHOD_ATTR = 0x000C,
    IB_MAD_STATUS_BAD_FIELD = 0x001C,
    IB_MAD_STATUS_DIRECTION = 0x8000,         /* directed route: D bit */
    IB_SA_STATUS_NO_RESOURCES = 0x0100, IB_SA_STATUS_REQ_INVALID = 0x0200,
    IB_SA_STATUS_NO_RECORDS = 0x0300, IB_SA_STATUS_TOO_MANY = 0x0400,
    IB_SA_STATUS_BAD_GID = 0x0500, IB_SA_STATUS_COMPONENTS = 0x0600,
};

enum {
    IB_NODE_CA = 1, IB_NODE_SWITCH = 2, IB_NODE_ROUTER = 3,
};

enum {
    IB_PORT_NO_CHANGE = 0, IB_PORT_DOWN = 1, IB_PORT_INIT = 2,
    IB_PORT_ARMED = 3, IB_PORT_ACTIVE = 4,
};

enum {
    IB_PHYS_NO_CHANGE = 0, IB_PHYS_SLEEP = 1, IB_PHYS_POLLING = 2,
    IB_PHYS_DISABLED = 3, IB_PHYS_TRAINING = 4, IB_PHYS_LINK_UP = 5,
    IB_PHYS_RECOVERY = 6,
};

/* PortInfo CapabilityMask. */
enum {
    IB_CAP_SM = 1 << 1, IB_CAP_NOTICE = 1 << 2, IB_CAP_TRAP = 1 << 3,
    IB_CAP_AUTO_MIGRATION = 1 << 5, IB_CAP_SYS_IMAGE_GUID = 1 << 11,
    IB_CAP_CM = 1 << 16, IB_CAP_MASK_NOTICE = 1 << 22,
    IB_CAP_CLIENT_REREGISTER = 1 << 25,
};

enum {
    IB_TRAP_GID_IN_SERVICE = 64, IB_TRAP_GID_OUT_OF_SERVICE = 65,
    IB_TRAP_LINK_STATE = 128, IB_TRAP_CAPABILITY = 144,
    IB_TRAP_BAD_MKEY = 256, IB_TRAP_BAD_PKEY = 257, IB_TRAP_BAD_QKEY = 258,
};

/* Notice types (13.4.8.2). */
enum {
    IB_NOTICE_FATAL = 0, IB_NOTICE_URGENT = 1, IB_NOTICE_SECURITY = 2,
    IB_NOTICE_SM = 3, IB_NOTICE_INFO = 4, IB_NOTICE_EMPTY = 0x7F,
};

const char *ib_port_state_name(unsigned state);
const char *ib_phys_state_name(unsigned state);
const char *ib_class_name(unsigned mgmt_class);
const char *ib_method_name(unsigned method);
/* Attribute names depend on the class. */
const char *ib_attr_name(unsigned mgmt_class, unsigned attr);
const char *ib_trap_name(unsigned trap);
const char *ib_cm_rej_name(unsigned reason);
const char *ib_cm_apr_name(unsigned status);

typedef struct IbMadHeader {
    uint8_t base_version;     /* 1 */
    uint8_t mgmt_class;
    uint8_t class_version;
    uint8_t method;
    uint16_t status;          /* directed route: D bit and 15 bits */
    uint8_t hop_pointer;      /* directed route only */
    uint8_t hop_count;        /* directed route only */
    uint64_t tid;
    uint16_t attr_id;
    uint32_t attr_mod;
} IbMadHeader;

void ib_mad_header_pack(uint8_t *mad, const IbMadHeader *header);
void ib_mad_header_unpack(IbMadHeader *header, const uint8_t *mad);

/* SMP fields behind the common header (14.2.1). */
typedef struct IbSmp {
    IbMadHeader hdr;
    uint64_t m_key;
    uint16_t dr_slid;
    uint16_t dr_dlid;
} IbSmp;
void ib_smp_pack(uint8_t *mad, const IbSmp *smp);
void ib_smp_unpack(IbSmp *smp, const uint8_t *mad);

/* SA header behind the common header (15.2.1.1). */
typedef struct IbSaHeader {
    IbMadHeader hdr;
    uint8_t rmpp_version, rmpp_type, rmpp_resp_time, rmpp_flags, rmpp_status;
    uint32_t rmpp_data1, rmpp_data2;
    uint64_t sm_key;
    uint16_t attr_offset;     /* in 8-byte units */
    uint64_t component_mask;
} IbSaHeader;
void ib_sa_header_pack(uint8_t *mad, const IbSaHeader *header);
void ib_sa_header_unpack(IbSaHeader *header, const uint8_t *mad);

#define IB_NODE_DESC_LEN 64

typedef struct IbNodeInfo {
    uint8_t base_version, class_version, node_type, num_ports;
    uint64_t sys_image_guid, node_guid, port_guid;
    uint16_t partition_cap, device_id;
    uint32_t revision;
    uint8_t local_port;
    uint32_t vendor_id;
} IbNodeInfo;

typedef struct IbSwitchInfo {
    uint16_t lft_cap, rft_cap, mft_cap, lft_top;
    uint8_t default_port, default_mcast_primary, default_mcast_not_primary;
    uint8_t life_time_value, port_state_change;
    uint8_t opt_sl_to_vl;
    uint16_t lids_per_port, partition_enf_cap;
    bool inbound_enf, outbound_enf, filter_raw_in, filter_raw_out;
    bool enhanced_port0;
    uint16_t mft_top;
} IbSwitchInfo;

typedef struct IbPortInfo {
    uint64_t m_key, gid_prefix;
    uint16_t lid, sm_lid;
    uint32_t capability_mask;
    uint16_t diag_code, m_key_lease;
    uint8_t local_port;
    uint8_t width_enabled, width_supported, width_active;
    uint8_t speed_supported, state, phys_state, down_default;
    uint8_t m_key_protect, lmc, speed_active, speed_enabled;
    uint8_t neighbor_mtu, sm_sl, vl_cap, init_type;
    uint8_t vl_high_limit, vl_arb_high_cap, vl_arb_low_cap;
    uint8_t init_type_reply, mtu_cap, vl_stall_count, hoq_life;
    uint8_t operational_vls;
    bool part_enf_in, part_enf_out, filter_raw_in, filter_raw_out;
    uint16_t m_key_violations, p_key_violations, q_key_violations;
    uint8_t guid_cap;
    bool client_reregister;
    uint8_t subnet_timeout, resp_time, local_phy_errors, overrun_errors;
    uint16_t max_credit_hint;
    uint32_t link_round_trip;
} IbPortInfo;

typedef struct IbSmInfo {
    uint64_t guid, sm_key;
    uint32_t act_count;
    uint8_t priority, state;
} IbSmInfo;

/* 80 bytes with the issuer GID, of which 64 travel in an SMP trap. */
typedef struct IbNotice {
    bool generic;
    uint8_t type;
    uint32_t producer;        /* producer type, or vendor id */
    uint16_t trap;            /* trap number, or device id */
    uint16_t issuer_lid;
    bool toggle;
    uint16_t count;
    uint8_t details[54];
    uint8_t issuer_gid[16];
} IbNotice;
#define IB_NOTICE_LEN 80

typedef struct IbInformInfo {
    uint8_t gid[16];
    uint16_t lid_begin, lid_end;
    uint8_t is_generic, subscribe;
    uint16_t type, trap;
    uint32_t qpn;
    uint8_t resp_time;
    uint32_t producer;
} IbInformInfo;

typedef struct IbClassPortInfo {
    uint8_t base_version, class_version;
    uint16_t capability_mask;
    uint32_t capability_mask2;    /* 27 bits */
    uint8_t resp_time;            /* 5 bits */
    uint8_t redirect_gid[16];
    uint8_t redirect_tclass, redirect_sl;
    uint32_t redirect_flow;
    uint16_t redirect_lid, redirect_pkey;
    uint32_t redirect_qpn, redirect_qkey;
    uint8_t trap_gid[16];
    uint8_t trap_tclass, trap_sl;
    uint32_t trap_flow;
    uint16_t trap_lid, trap_pkey;
    uint8_t trap_hop_limit;
    uint32_t trap_qpn, trap_qkey;
} IbClassPortInfo;

/* SA PathRecord (15.2.5.16), 64 bytes. */
typedef struct IbPathRecord {
    uint64_t service_id;
    uint8_t dgid[16], sgid[16];
    uint16_t dlid, slid;
    bool raw_traffic;
    uint32_t flow_label;
    uint8_t hop_limit, tclass;
    bool reversible;
    uint8_t num_paths;
    uint16_t pkey;
    uint16_t qos_class;           /* 12 bits */
    uint8_t sl;
    uint8_t mtu_selector, mtu, rate_selector, rate;
    uint8_t life_selector, life, preference;
} IbPathRecord;
#define IB_PATH_RECORD_LEN 64

/* SA MCMemberRecord (15.2.5.17), 52 bytes. */
typedef struct IbMcMemberRecord {
    uint8_t mgid[16], port_gid[16];
    uint32_t qkey;
    uint16_t mlid;
    uint8_t mtu_selector, mtu, tclass;
    uint16_t pkey;
    uint8_t rate_selector, rate, life_selector, life, sl;
    uint32_t flow_label;
    uint8_t hop_limit, scope, join_state;
    bool proxy_join;
} IbMcMemberRecord;
#define IB_MCMEMBER_RECORD_LEN 52

/* PortCounters (16.1.3.5) as the 32-bit attribute saturates them. */
typedef struct IbPortCounters {
    uint64_t symbol_error, link_error_recovery, link_downed, rcv_errors;
    uint64_t rcv_remote_physical_errors, rcv_switch_relay_errors;
    uint64_t xmit_discards, xmit_constraint_errors, rcv_constraint_errors;
    uint64_t local_link_integrity_errors, excessive_buffer_overrun;
    uint64_t vl15_dropped;
    uint64_t xmit_data, rcv_data;      /* in 4-byte words, VCRC excluded */
    uint64_t xmit_pkts, rcv_pkts;
    uint64_t unicast_xmit_pkts, unicast_rcv_pkts;
    uint64_t multicast_xmit_pkts, multicast_rcv_pkts;
    uint64_t xmit_wait;
} IbPortCounters;

#define IB_DECLARE_ATTR(Type, name) \
    void ib_##name##_pack(uint8_t *p, const Type *v); \
    void ib_##name##_unpack(Type *v, const uint8_t *p)

IB_DECLARE_ATTR(IbNodeInfo, node_info);
IB_DECLARE_ATTR(IbSwitchInfo, switch_info);
IB_DECLARE_ATTR(IbPortInfo, port_info);
IB_DECLARE_ATTR(IbSmInfo, sm_info);
IB_DECLARE_ATTR(IbInformInfo, inform_info);
IB_DECLARE_ATTR(IbClassPortInfo, class_port_info);
IB_DECLARE_ATTR(IbPathRecord, path_record);
IB_DECLARE_ATTR(IbMcMemberRecord, mcmember_record);
/* @len is 64 (SMP trap) or 80 (SA Report): with or without issuer GID. */
void ib_notice_pack(uint8_t *p, const IbNotice *v, size_t len);
void ib_notice_unpack(IbNotice *v, const uint8_t *p, size_t len);
/* Values beyond a field's width saturate, as the specification demands. */
void ib_port_counters_pack(uint8_t *p, const IbPortCounters *v,
                           uint8_t port_select, uint16_t counter_select);
void ib_port_counters_ext_pack(uint8_t *p, const IbPortCounters *v,
                               uint8_t port_select, uint16_t counter_select);

/*
 * A MAD in a UD packet, for those who keep no queue pairs (firmware agents,
 * switches, the SM): builds LRH [GRH] BTH DETH MAD ICRC.
 */
typedef struct IbMadAddress {
    uint16_t slid, dlid;
    uint8_t sl, vl;
    uint32_t src_qpn, dest_qpn;   /* 0 or 1, or a redirected QP */
    uint32_t qkey;
    uint16_t pkey;
    bool has_grh;
    uint8_t sgid[16], dgid[16];
} IbMadAddress;
/* Where a MAD came from, as it arrived. */
void ib_mad_address_from(IbMadAddress *from, const IbPacket *packet);
/* The way back: both ends exchanged, all else as it came. */
void ib_mad_address_turn(IbMadAddress *to, const IbMadAddress *from);
/* Returns the packet's length; @p has room for IB_PACKET_MAX. */
size_t ib_mad_packet(uint8_t *p, const IbMadAddress *to, const uint8_t *mad);

#endif
