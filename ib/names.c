/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * String tables: logs, captures and tests read as the specification's words.
 * Values without a name come out as "reserved" or "unknown".
 */
#include <stddef.h>

#include "ib/mad.h"
#include "ib/packet.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

typedef struct Name {
    unsigned value;
    const char *name;
} Name;

static const char *find_name(const Name *names, size_t n, unsigned value)
{
    for (size_t i = 0; i < n; i++) {
        if (names[i].value == value) {
            return names[i].name;
        }
    }
    return "unknown";
}

static const char *table_name(const char *const *table, size_t n,
                              unsigned value)
{
    return value < n && table[value] ? table[value] : "reserved";
}

const char *ib_packet_error_name(IbPacketError error)
{
    static const char *const names[] = {
        [IB_PACKET_OK] = "good",
        [IB_PACKET_TOO_SHORT] = "shorter than its headers",
        [IB_PACKET_TOO_LONG] = "too long",
        [IB_PACKET_BAD_LENGTH] = "LRH length wrong",
        [IB_PACKET_BAD_LVER] = "LRH version not 0",
        [IB_PACKET_RAW] = "raw packet",
        [IB_PACKET_BAD_GRH] = "GRH wrong",
        [IB_PACKET_BAD_TVER] = "BTH version not 0",
        [IB_PACKET_BAD_OPCODE] = "opcode reserved or service not carried",
        [IB_PACKET_BAD_PAD] = "more pad than payload",
        [IB_PACKET_BAD_ICRC] = "ICRC wrong",
    };

    return table_name(names, COUNT(names), error);
}

#define OPCODES_RC_AND_UC(base, service) \
    [base | IB_OP_SEND_FIRST] = service " SEND First", \
    [base | IB_OP_SEND_MIDDLE] = service " SEND Middle", \
    [base | IB_OP_SEND_LAST] = service " SEND Last", \
    [base | IB_OP_SEND_LAST_IMM] = service " SEND Last with Immediate", \
    [base | IB_OP_SEND_ONLY] = service " SEND Only", \
    [base | IB_OP_SEND_ONLY_IMM] = service " SEND Only with Immediate", \
    [base | IB_OP_WRITE_FIRST] = service " RDMA WRITE First", \
    [base | IB_OP_WRITE_MIDDLE] = service " RDMA WRITE Middle", \
    [base | IB_OP_WRITE_LAST] = service " RDMA WRITE Last", \
    [base | IB_OP_WRITE_LAST_IMM] = \
        service " RDMA WRITE Last with Immediate", \
    [base | IB_OP_WRITE_ONLY] = service " RDMA WRITE Only", \
    [base | IB_OP_WRITE_ONLY_IMM] = service " RDMA WRITE Only with Immediate"

const char *ib_opcode_name(uint8_t opcode)
{
    static const char *const names[] = {
        OPCODES_RC_AND_UC(IB_TRANSPORT_RC, "RC"),
        [IB_TRANSPORT_RC | IB_OP_READ_REQUEST] = "RC RDMA READ Request",
        [IB_TRANSPORT_RC | IB_OP_READ_RESP_FIRST] =
            "RC RDMA READ response First",
        [IB_TRANSPORT_RC | IB_OP_READ_RESP_MIDDLE] =
            "RC RDMA READ response Middle",
        [IB_TRANSPORT_RC | IB_OP_READ_RESP_LAST] =
            "RC RDMA READ response Last",
        [IB_TRANSPORT_RC | IB_OP_READ_RESP_ONLY] =
            "RC RDMA READ response Only",
        [IB_TRANSPORT_RC | IB_OP_ACK] = "RC Acknowledge",
        [IB_TRANSPORT_RC | IB_OP_ATOMIC_ACK] = "RC ATOMIC Acknowledge",
        [IB_TRANSPORT_RC | IB_OP_COMPARE_SWAP] = "RC CmpSwap",
        [IB_TRANSPORT_RC | IB_OP_FETCH_ADD] = "RC FetchAdd",
        OPCODES_RC_AND_UC(IB_TRANSPORT_UC, "UC"),
        [IB_TRANSPORT_UD | IB_OP_SEND_ONLY] = "UD SEND Only",
        [IB_TRANSPORT_UD | IB_OP_SEND_ONLY_IMM] =
            "UD SEND Only with Immediate",
    };

    return table_name(names, COUNT(names), opcode);
}

const char *ib_port_state_name(unsigned state)
{
    static const char *const names[] = {
        [IB_PORT_NO_CHANGE] = "No change",
        [IB_PORT_DOWN] = "Down",
        [IB_PORT_INIT] = "Initialize",
        [IB_PORT_ARMED] = "Armed",
        [IB_PORT_ACTIVE] = "Active",
        [5] = "ActiveDefer",
    };

    return table_name(names, COUNT(names), state);
}

const char *ib_phys_state_name(unsigned state)
{
    static const char *const names[] = {
        [IB_PHYS_NO_CHANGE] = "No change",
        [IB_PHYS_SLEEP] = "Sleep",
        [IB_PHYS_POLLING] = "Polling",
        [IB_PHYS_DISABLED] = "Disabled",
        [IB_PHYS_TRAINING] = "PortConfigurationTraining",
        [IB_PHYS_LINK_UP] = "LinkUp",
        [IB_PHYS_RECOVERY] = "LinkErrorRecovery",
        [7] = "PhyTest",
    };

    return table_name(names, COUNT(names), state);
}

const char *ib_class_name(unsigned mgmt_class)
{
    static const Name names[] = {
        { IB_CLASS_SM_LID, "SubnLID" },
        { IB_CLASS_SM_DR, "SubnDirected" },
        { IB_CLASS_SA, "SubnAdm" },
        { IB_CLASS_PM, "Perf" },
        { IB_CLASS_BM, "BM" },
        { 0x06, "DevMgt" },
        { IB_CLASS_CM, "ComMgt" },
        { 0x08, "SNMP" },
    };

    return find_name(names, COUNT(names), mgmt_class);
}

const char *ib_method_name(unsigned method)
{
    static const Name names[] = {
        { IB_METHOD_GET, "Get" },
        { IB_METHOD_SET, "Set" },
        { IB_METHOD_SEND, "Send" },
        { IB_METHOD_TRAP, "Trap" },
        { IB_METHOD_REPORT, "Report" },
        { IB_METHOD_TRAP_REPRESS, "TrapRepress" },
        { IB_METHOD_GET_RESP, "GetResp" },
        { IB_METHOD_REPORT_RESP, "ReportResp" },
        { IB_METHOD_GET_TABLE, "GetTable" },
        { IB_METHOD_GET_TABLE_RESP, "GetTableResp" },
        { IB_METHOD_DELETE, "Delete" },
        { IB_METHOD_DELETE_RESP, "DeleteResp" },
    };

    return find_name(names, COUNT(names), method);
}

static const Name common_attrs[] = {
    { IB_ATTR_CLASS_PORT_INFO, "ClassPortInfo" },
    { IB_ATTR_NOTICE, "Notice" },
    { IB_ATTR_INFORM_INFO, "InformInfo" },
};

static const Name sm_attrs[] = {
    { IB_SM_NODE_DESCRIPTION, "NodeDescription" },
    { IB_SM_NODE_INFO, "NodeInfo" },
    { IB_SM_SWITCH_INFO, "SwitchInfo" },
    { IB_SM_GUID_INFO, "GUIDInfo" },
    { IB_SM_PORT_INFO, "PortInfo" },
    { IB_SM_PKEY_TABLE, "P_KeyTable" },
    { IB_SM_SL_TO_VL, "SLtoVLMappingTable" },
    { IB_SM_VL_ARB, "VLArbitrationTable" },
    { IB_SM_LINEAR_FT, "LinearForwardingTable" },
    { IB_SM_RANDOM_FT, "RandomForwardingTable" },
    { IB_SM_MCAST_FT, "MulticastForwardingTable" },
    { IB_SM_SM_INFO, "SMInfo" },
    { IB_SM_VENDOR_DIAG, "VendorDiag" },
    { IB_SM_LED_INFO, "LedInfo" },
};

static const Name pm_attrs[] = {
    { IB_PM_PORT_SAMPLES_CONTROL, "PortSamplesControl" },
    { IB_PM_PORT_COUNTERS, "PortCounters" },
    { IB_PM_PORT_COUNTERS_EXT, "PortCountersExtended" },
};

static const Name sa_attrs[] = {
    { IB_SA_NODE_RECORD, "NodeRecord" },
    { IB_SA_PORT_INFO_RECORD, "PortInfoRecord" },
    { IB_SA_SL_TO_VL_RECORD, "SLtoVLMappingTableRecord" },
    { IB_SA_SWITCH_INFO_RECORD, "SwitchInfoRecord" },
    { IB_SA_LFT_RECORD, "LinearForwardingTableRecord" },
    { IB_SA_MFT_RECORD, "MulticastForwardingTableRecord" },
    { IB_SA_SM_INFO_RECORD, "SMInfoRecord" },
    { IB_SA_LINK_RECORD, "LinkRecord" },
    { IB_SA_GUID_INFO_RECORD, "GuidInfoRecord" },
    { IB_SA_SERVICE_RECORD, "ServiceRecord" },
    { IB_SA_PKEY_TABLE_RECORD, "P_KeyTableRecord" },
    { IB_SA_PATH_RECORD, "PathRecord" },
    { IB_SA_MCMEMBER_RECORD, "MCMemberRecord" },
    { IB_SA_MULTIPATH_RECORD, "MultiPathRecord" },
    { IB_SA_INFORM_INFO_RECORD, "InformInfoRecord" },
};

static const Name cm_attrs[] = {
    { IB_CM_REQ, "REQ" },
    { IB_CM_MRA, "MRA" },
    { IB_CM_REJ, "REJ" },
    { IB_CM_REP, "REP" },
    { IB_CM_RTU, "RTU" },
    { IB_CM_DREQ, "DREQ" },
    { IB_CM_DREP, "DREP" },
    { IB_CM_SIDR_REQ, "SIDR_REQ" },
    { IB_CM_SIDR_REP, "SIDR_REP" },
    { IB_CM_LAP, "LAP" },
    { IB_CM_APR, "APR" },
};

const char *ib_attr_name(unsigned mgmt_class, unsigned attr)
{
    for (size_t i = 0; i < COUNT(common_attrs); i++) {
        if (common_attrs[i].value == attr) {
            return common_attrs[i].name;
        }
    }
    switch (mgmt_class) {
    case IB_CLASS_SM_LID:
    case IB_CLASS_SM_DR:
        return find_name(sm_attrs, COUNT(sm_attrs), attr);
    case IB_CLASS_PM:
        return find_name(pm_attrs, COUNT(pm_attrs), attr);
    case IB_CLASS_SA:
        return find_name(sa_attrs, COUNT(sa_attrs), attr);
    case IB_CLASS_CM:
        return find_name(cm_attrs, COUNT(cm_attrs), attr);
    default:
        return "unknown";
    }
}

const char *ib_trap_name(unsigned trap)
{
    static const Name names[] = {
        { IB_TRAP_GID_IN_SERVICE, "GID in service" },
        { IB_TRAP_GID_OUT_OF_SERVICE, "GID out of service" },
        { 66, "multicast group created" },
        { 67, "multicast group deleted" },
        { IB_TRAP_LINK_STATE, "link state changed" },
        { 129, "local link integrity threshold reached" },
        { 130, "excessive buffer overrun threshold reached" },
        { 131, "flow control watchdog expired" },
        { IB_TRAP_CAPABILITY, "capability mask or local setting changed" },
        { 145, "system image GUID changed" },
        { IB_TRAP_BAD_MKEY, "bad M_Key" },
        { IB_TRAP_BAD_PKEY, "bad P_Key" },
        { IB_TRAP_BAD_QKEY, "bad Q_Key" },
        { 259, "bad P_Key at a switch port" },
    };

    return find_name(names, COUNT(names), trap);
}

/* 12.6.7.2 */
const char *ib_cm_rej_name(unsigned reason)
{
    static const char *const names[] = {
        [1] = "no QP available",
        [2] = "no EEC available",
        [3] = "no resources available",
        [4] = "timeout",
        [5] = "unsupported request",
        [6] = "invalid communication ID",
        [7] = "invalid communication instance",
        [8] = "invalid service ID",
        [9] = "invalid transport service type",
        [10] = "stale connection",
        [11] = "RDC does not exist",
        [12] = "primary remote port GID rejected",
        [13] = "primary remote port LID rejected",
        [14] = "invalid primary SL",
        [15] = "invalid primary traffic class",
        [16] = "invalid primary hop limit",
        [17] = "invalid primary packet rate",
        [18] = "alternate remote port GID rejected",
        [19] = "alternate remote port LID rejected",
        [20] = "invalid alternate SL",
        [21] = "invalid alternate traffic class",
        [22] = "invalid alternate hop limit",
        [23] = "invalid alternate packet rate",
        [24] = "port and CM redirection",
        [25] = "port redirection",
        [26] = "invalid path MTU",
        [27] = "insufficient responder resources",
        [28] = "consumer reject",
        [29] = "RNR retry count reject",
        [30] = "duplicate local communication ID",
        [31] = "unsupported class version",
        [32] = "invalid primary flow label",
        [33] = "invalid alternate flow label",
    };

    return table_name(names, COUNT(names), reason);
}

/* 12.8.2.1 */
const char *ib_cm_apr_name(unsigned status)
{
    static const char *const names[] = {
        [0] = "path information loaded",
        [1] = "invalid communication ID",
        [2] = "alternate paths not supported",
        [3] = "failover port rejected",
        [4] = "redirect",
        [5] = "proposed alternate is the current primary",
        [6] = "QPN or EECN mismatch",
        [7] = "LID rejected",
        [8] = "GID rejected",
        [9] = "flow label rejected",
        [10] = "traffic class rejected",
        [11] = "hop limit rejected",
        [12] = "packet rate rejected",
        [13] = "SL rejected",
    };

    return table_name(names, COUNT(names), status);
}
