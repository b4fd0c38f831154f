# SPDX-License-Identifier: GPL-2.0-or-later
"""Numbers of the adapter's interface, from the interface reference.

Not taken from guest-driver/include/ehca_abi.h on purpose: a wrong number
there would otherwise agree with itself.
"""
from __future__ import annotations

H_RESET_EVENTS = 0x15C
H_ALLOC_RESOURCE = 0x160
H_FREE_RESOURCE = 0x164
H_MODIFY_QP = 0x168
H_QUERY_QP = 0x16C
H_REREGISTER_PMR = 0x170
H_REGISTER_SMR = 0x174
H_QUERY_MR = 0x178
H_QUERY_MW = 0x17C
H_QUERY_HCA = 0x180
H_QUERY_PORT = 0x184
H_MODIFY_PORT = 0x188
H_DEFINE_AQP1 = 0x18C
H_GET_TRACE_BUFFER = 0x190
H_DEFINE_AQP0 = 0x194
H_RESIZE_MR = 0x198
H_ATTACH_MCQP = 0x19C
H_DETACH_MCQP = 0x1A0
H_CREATE_RPT = 0x1A4
H_REMOVE_RPT = 0x1A8
H_REGISTER_RPAGES = 0x1AC
H_DISABLE_AND_GETC = 0x1B0
H_ERROR_DATA = 0x1B4
H_GET_HCA_INFO = 0x1B8
H_GET_PERF_COUNT = 0x1BC
H_MANAGE_TRACE = 0x1C0
H_QUERY_INT_STATE = 0x1E4

ALL_HCALLS = (
    H_RESET_EVENTS, H_ALLOC_RESOURCE, H_FREE_RESOURCE, H_MODIFY_QP,
    H_QUERY_QP, H_REREGISTER_PMR, H_REGISTER_SMR, H_QUERY_MR, H_QUERY_MW,
    H_QUERY_HCA, H_QUERY_PORT, H_MODIFY_PORT, H_DEFINE_AQP1,
    H_GET_TRACE_BUFFER, H_DEFINE_AQP0, H_RESIZE_MR, H_ATTACH_MCQP,
    H_DETACH_MCQP, H_CREATE_RPT, H_REMOVE_RPT, H_REGISTER_RPAGES,
    H_DISABLE_AND_GETC, H_ERROR_DATA, H_GET_HCA_INFO, H_GET_PERF_COUNT,
    H_MANAGE_TRACE, H_QUERY_INT_STATE)

H_SUCCESS = 0
H_BUSY = 1
H_PAGE_REGISTERED = 15
H_FUNCTION = -2
H_PARAMETER = -4
H_RESOURCE = -16
H_ADAPTER_PARM = -17
H_RH_PARM = -18
H_RCQ_PARM = -19
H_SCQ_PARM = -20
H_EQ_PARM = -21
H_RT_PARM = -22
H_MEM_PARM = -28
H_PORT_PARM = -31
H_MCG_PARM = -32
H_MASK_PARM = -37
H_ALIAS_EXIST = -39
H_NOT_ENOUGH_RESOURCES = -44
H_R_STATE = -45

# H_ALLOC_RESOURCE, r5 (reference 29.1)
ALLOC_EQ = 0x0100000000000003
ALLOC_NEQ = 0x8000000000000003
ALLOC_CQ = 2
ALLOC_MR = 5
ALLOC_MW = 6
ALLOC_RC = 0x0000010000000001
ALLOC_UC = 0x0001010000000001
ALLOC_UD = 0x0003010000000001
ALLOC_SRQ = 0x0030010000000001

LOCAL_WRITE = 0x00800000
REMOTE_WRITE = 0x00400000
REMOTE_READ = 0x00200000

# QP states and their names in H_MODIFY_QP (11.2)
RESET, INIT, RTR, RTS, SQD, SQE, ERR = 1, 2, 3, 5, 6, 8, 128
MIGRATED, REARM, ARMED = 1, 2, 3

# Fields of the QP block: word, mask bit in IBM's counting (11.1)
QP_FIELDS = {
    "qkey": (0, 0), "send_psn": (2, 2), "receive_psn": (3, 3),
    "port": (4, 4), "alt_port": (5, 5), "pkey_index": (6, 6),
    "alt_pkey_index": (7, 7), "rdma_atomic_ctrl": (8, 8), "state": (9, 9),
    "resp_res": (11, 11), "mig_state": (12, 12), "outst_dest": (13, 13),
    "dest_qpn": (14, 14), "min_rnr": (15, 15), "sl": (16, 16),
    "grh": (17, 17), "retry": (18, 18), "timeout": (19, 19),
    "mtu": (20, 20), "rate": (21, 21), "dlid": (22, 22),
    "rnr_retry": (23, 23), "path_bits": (24, 24), "sl_al": (34, 31),
    "grh_al": (35, 32), "retry_al": (36, 33), "timeout_al": (37, 34),
    "rate_al": (38, 35), "dlid_al": (39, 36), "rnr_retry_al": (40, 37),
    "path_bits_al": (41, 38), "enable": (62, 48),
}

# Register pages (12.1)
QPX_SQA, QPX_RQA = 0x20, 0x30
CQX_FEC, CQX_FECA, CQX_EP, CQX_N0, CQX_N1 = 0x30, 0x38, 0x40, 0x58, 0x60

# WQEs and CQEs (15, 16)
OP_SEND, OP_READ, OP_WRITE = 0x80, 0x40, 0x20
SIGNALLED = 0x80
CQE_RECV = 0x01
CQE_IS_RECV = 0x80

# Events (14)
EQE_VALID = 1 << 63
EQE_COMPLETION = 1 << 62
NEQ_PORT_AVAILABILITY = 0x30
NEQ_AVAILABLE = 1 << 47

# Ports (10.2)
PORT_DOWN, PORT_INIT, PORT_ARMED, PORT_ACTIVE = 1, 2, 3, 4
