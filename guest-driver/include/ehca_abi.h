/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * IBM eHCA adapter: numbers of the hypervisor-call, register and queue
 * interface, shared by the guest driver and the device model.
 *
 * Constants only: no types, no functions, no includes, so that a Linux
 * module, the QEMU glue and the adapter engine can all include it.
 * "doc N.M" names a section of the interface reference.
 *
 * Everything in memory (control blocks, queue entries, page lists) and in
 * the register pages is big-endian (doc 1).  Offsets are in bytes; a field
 * is a be32 unless a comment says otherwise.
 *
 * Bit numbers in comments are IBM's: bit 0 is the most significant of 64.
 */
#ifndef EHCA_ABI_H
#define EHCA_ABI_H

/* IBM-numbered bit and field of a 64-bit doubleword */
#define EHCA_BIT(n)				(1ULL << (63 - (n)))

/* ------------------------------------------------------------------ */
/* Device tree (doc 3.1)                                              */
/* ------------------------------------------------------------------ */
#define EHCA_DT_NODE_NAME			"lhca"
#define EHCA_DT_COMPATIBLE			"IBM,lhca"
#define EHCA_DT_HANDLE				"ibm,hca-handle"
#define EHCA_DT_LOC_CODE			"ibm,loc-code"

/* ------------------------------------------------------------------ */
/* Hypervisor calls (doc 4.3)                                         */
/* ------------------------------------------------------------------ */
#define EHCA_H_RESET_EVENTS			0x15c
#define EHCA_H_ALLOC_RESOURCE			0x160
#define EHCA_H_FREE_RESOURCE			0x164
#define EHCA_H_MODIFY_QP			0x168
#define EHCA_H_QUERY_QP				0x16c
#define EHCA_H_REREGISTER_PMR			0x170
#define EHCA_H_REGISTER_SMR			0x174
#define EHCA_H_QUERY_MR				0x178
#define EHCA_H_QUERY_MW				0x17c
#define EHCA_H_QUERY_HCA			0x180
#define EHCA_H_QUERY_PORT			0x184
#define EHCA_H_MODIFY_PORT			0x188
#define EHCA_H_DEFINE_AQP1			0x18c
#define EHCA_H_GET_TRACE_BUFFER			0x190
#define EHCA_H_DEFINE_AQP0			0x194
#define EHCA_H_RESIZE_MR			0x198
#define EHCA_H_ATTACH_MCQP			0x19c
#define EHCA_H_DETACH_MCQP			0x1a0
#define EHCA_H_CREATE_RPT			0x1a4
#define EHCA_H_REMOVE_RPT			0x1a8
#define EHCA_H_REGISTER_RPAGES			0x1ac
#define EHCA_H_DISABLE_AND_GETC			0x1b0
#define EHCA_H_ERROR_DATA			0x1b4
#define EHCA_H_GET_HCA_INFO			0x1b8
#define EHCA_H_GET_PERF_COUNT			0x1bc
#define EHCA_H_MANAGE_TRACE			0x1c0
#define EHCA_H_QUERY_INT_STATE			0x1e4

/* Return codes (doc 4.2) */
#define EHCA_RC_SUCCESS				0
#define EHCA_RC_BUSY				1
#define EHCA_RC_CLOSED				2
#define EHCA_RC_NOT_AVAILABLE			3
#define EHCA_RC_CONSTRAINED			4
#define EHCA_RC_PARTIAL				5
#define EHCA_RC_IN_PROGRESS			14
#define EHCA_RC_PAGE_REGISTERED			15
#define EHCA_RC_LONG_BUSY_1_MSEC		9900
#define EHCA_RC_LONG_BUSY_10_MSEC		9901
#define EHCA_RC_LONG_BUSY_100_MSEC		9902
#define EHCA_RC_LONG_BUSY_1_SEC			9903
#define EHCA_RC_LONG_BUSY_10_SEC		9904
#define EHCA_RC_LONG_BUSY_100_SEC		9905
#define EHCA_RC_HARDWARE			(-1)
#define EHCA_RC_FUNCTION			(-2)
#define EHCA_RC_PRIVILEGE			(-3)
#define EHCA_RC_PARAMETER			(-4)
#define EHCA_RC_NO_MEM				(-9)
#define EHCA_RC_AUTHORITY			(-10)
#define EHCA_RC_PERMISSION			(-11)
#define EHCA_RC_RESOURCE			(-16)
#define EHCA_RC_ADAPTER_PARM			(-17)
#define EHCA_RC_RH_PARM				(-18)
#define EHCA_RC_RCQ_PARM			(-19)
#define EHCA_RC_SCQ_PARM			(-20)
#define EHCA_RC_EQ_PARM				(-21)
#define EHCA_RC_RT_PARM				(-22)
#define EHCA_RC_ST_PARM				(-23)
#define EHCA_RC_SIGT_PARM			(-24)
#define EHCA_RC_TOKEN_PARM			(-25)
#define EHCA_RC_MLENGTH_PARM			(-27)
#define EHCA_RC_MEM_PARM			(-28)
#define EHCA_RC_MEM_ACCESS_PARM			(-29)
#define EHCA_RC_ATTR_PARM			(-30)
#define EHCA_RC_PORT_PARM			(-31)
#define EHCA_RC_MCG_PARM			(-32)
#define EHCA_RC_VL_PARM				(-33)
#define EHCA_RC_TSIZE_PARM			(-34)
#define EHCA_RC_TRACE_PARM			(-35)
#define EHCA_RC_MASK_PARM			(-37)
#define EHCA_RC_MCG_FULL			(-38)
#define EHCA_RC_ALIAS_EXIST			(-39)
#define EHCA_RC_P_COUNTER			(-40)
#define EHCA_RC_TABLE_FULL			(-41)
#define EHCA_RC_ALT_TABLE			(-42)
#define EHCA_RC_MR_CONDITION			(-43)
#define EHCA_RC_NOT_ENOUGH_RESOURCES		(-44)
#define EHCA_RC_R_STATE				(-45)
#define EHCA_RC_RESCINDED			(-46)

/* A long-busy answer is repeated at most this often in total (doc 4.1) */
#define EHCA_HCALL_TRIES			5

/* Control blocks: zeroed, 4 KiB aligned, 4 KiB long (doc 4.4) */
#define EHCA_CB_SIZE				4096
#define EHCA_HW_PAGE_SHIFT			12
#define EHCA_HW_PAGE_SIZE			4096

/* ------------------------------------------------------------------ */
/* H_ALLOC_RESOURCE (doc 5): r5 allocation controls                   */
/* ------------------------------------------------------------------ */
#define EHCA_RT_MASK				0xffULL
#define EHCA_RT_QP				1
#define EHCA_RT_CQ				2
#define EHCA_RT_EQ				3
#define EHCA_RT_MR				5
#define EHCA_RT_MW				6

/* EQ and NEQ (doc 5.1) */
#define EHCA_ALLOC_EQ_IST			EHCA_BIT(7)
#define EHCA_ALLOC_EQ_NEQ			EHCA_BIT(0)
#define EHCA_ALLOC_EQ				(EHCA_RT_EQ | EHCA_ALLOC_EQ_IST)
#define EHCA_ALLOC_NEQ				(EHCA_RT_EQ | EHCA_ALLOC_EQ_NEQ)
#define EHCA_NEQ_ENTRIES			513	/* what drivers ask for */
#define EHCA_CQ_SPARE_ENTRIES			20	/* asked for on top, doc 5.2 */

/* QP: fields of r5 (doc 5.3) */
#define EHCA_ALLOC_QP_KIND_SHIFT		52
#define EHCA_ALLOC_QP_KIND_MASK			7ULL
#define EHCA_QPKIND_NORMAL			0
#define EHCA_QPKIND_LLQP			1
#define EHCA_QPKIND_SRQBASE			2
#define EHCA_QPKIND_SRQ				3
#define EHCA_ALLOC_QP_PTE_PIN			EHCA_BIT(12)
#define EHCA_ALLOC_QP_SERVICE_SHIFT		48
#define EHCA_ALLOC_QP_SERVICE_MASK		7ULL
#define EHCA_SERVICE_RC				0
#define EHCA_SERVICE_UC				1
#define EHCA_SERVICE_RD				2
#define EHCA_SERVICE_UD				3
#define EHCA_ALLOC_QP_STORAGE_SHIFT		46
#define EHCA_ALLOC_QP_STORAGE_MASK		3ULL
#define EHCA_ALLOC_QP_LL_RQ_CQE			EHCA_BIT(18)
#define EHCA_ALLOC_QP_LL_SQ_CQE_SHIFT		42
#define EHCA_ALLOC_QP_LL_SQ_CQE_MASK		7ULL
#define EHCA_ALLOC_QP_SIGT_SHIFT		40
#define EHCA_ALLOC_QP_SIGT_MASK			3ULL
#define EHCA_SIGT_NONE				0
#define EHCA_SIGT_PER_WQE			1
#define EHCA_SIGT_EVERY				2
#define EHCA_ALLOC_QP_UD_AV_LKEY		EHCA_BIT(31)
#define EHCA_ALLOC_QP_SMALL_SQ_SHIFT		28
#define EHCA_ALLOC_QP_SMALL_RQ_SHIFT		24
#define EHCA_ALLOC_QP_SMALL_MASK		0xfULL
#define EHCA_SMALL_NONE				0
#define EHCA_SMALL_512				2	/* 128 << code bytes */
#define EHCA_SMALL_1024				3

/* QP: r9 = token << 32 | pd; fields of r10, r11, r12 */
#define EHCA_ALLOC_QP_TOKEN_SHIFT		32
#define EHCA_ALLOC_QP_SEND_WRS_SHIFT		48
#define EHCA_ALLOC_QP_RECV_WRS_SHIFT		32
#define EHCA_ALLOC_QP_WRS_MASK			0xffffULL
#define EHCA_ALLOC_QP_SEND_SGES_SHIFT		24
#define EHCA_ALLOC_QP_RECV_SGES_SHIFT		16
#define EHCA_ALLOC_QP_SGES_MASK			0xffULL
#define EHCA_ALLOC_QP_R11_TOKEN_SHIFT		32
#define EHCA_ALLOC_QP_R12_SRQ_LIMIT_MASK	0xffffULL
#define EHCA_ALLOC_QP_R12_SRQ_QPN_MASK		0xffffffULL

/* QP: fields of outs[2], outs[3], outs[4] */
#define EHCA_OUT_QP_SEND_WRS_SHIFT		32
#define EHCA_OUT_QP_RECV_WRS_SHIFT		0
#define EHCA_OUT_QP_WRS_MASK			0xffffULL
#define EHCA_OUT_QP_SEND_SGES_SHIFT		48
#define EHCA_OUT_QP_RECV_SGES_SHIFT		32
#define EHCA_OUT_QP_SGES_MASK			0xffULL
#define EHCA_OUT_QP_SQ_PAGES_SHIFT		32
#define EHCA_OUT_QP_RQ_PAGES_SHIFT		0
#define EHCA_OUT_QP_PAGES_MASK			0xffffffffULL

/* Index into outs[] of what H_ALLOC_RESOURCE returns */
#define EHCA_OUT_HANDLE				0
#define EHCA_OUT_QPN				1	/* QP */
#define EHCA_OUT_QP_WRS				2	/* QP */
#define EHCA_OUT_QP_SGES			3	/* QP */
#define EHCA_OUT_QP_PAGES			4	/* QP */
#define EHCA_OUT_QP_REGS			6	/* QP */
#define EHCA_OUT_ENTRIES			3	/* EQ, CQ */
#define EHCA_OUT_PAGES				4	/* EQ, CQ */
#define EHCA_OUT_EQ_IST				5	/* EQ */
#define EHCA_OUT_CQ_REGS			5	/* CQ, kernel page */
#define EHCA_OUT_CQ_USER_REGS			6	/* CQ, user page */
#define EHCA_OUT_LKEY				2	/* MR */
#define EHCA_OUT_RKEY				3	/* MR, MW */

/* SGEs per WQE that make a stride divide a page (doc 5.3, 13.3) */
#define EHCA_SGES_4				4
#define EHCA_SGES_12				12
#define EHCA_SGES_28				28
#define EHCA_SGES_60				60
#define EHCA_SGES_124				124
#define EHCA_SGES_252				252
#define EHCA_WQE_STRIDE(sges)			(64 + 16 * (sges))
#define EHCA_LLQP_STRIDE(sges)			(128 << (sges))
#define EHCA_MAX_SGES_RC			252
#define EHCA_MAX_SGES_UD			250
#define EHCA_UD_AV_SGES				2	/* SGE slots the AV takes */
#define EHCA_SRQ_MAX_SGES			3
#define EHCA_MAX_RING_WQES			65536	/* index is 16 bits */
#define EHCA_TOKEN_LIMIT			0x2000000
#define EHCA_QPN_MASK				0xffffff
#define EHCA_PSN_MASK				0xffffff
#define EHCA_MAX_PORTS				2

/* MR access control word (doc 5.4), a 32-bit value in bits 0..31 of r8 */
#define EHCA_MR_ACCESS_SHIFT			32
#define EHCA_MR_LOCAL_WRITE			0x00800000
#define EHCA_MR_REMOTE_WRITE			0x00400000
#define EHCA_MR_REMOTE_READ			0x00200000
#define EHCA_MR_REMOTE_ATOMIC			0x00100000
#define EHCA_MR_MW_BIND				0x00080000
#define EHCA_MR_HIGH_PERF			0x00000001
#define EHCA_MR_PGSIZE_SHIFT			24
#define EHCA_MR_PGSIZE_MASK			0xff
#define EHCA_MR_PGSIZE_4K			0
#define EHCA_MR_PGSIZE_64K			1
#define EHCA_MR_PGSIZE_1M			2
#define EHCA_MR_PGSIZE_16M			3
#define EHCA_MR_PGSHIFT(code)			(12 + 4 * (code))

/* H_REGISTER_RPAGES (doc 7): r5 = queue type | page size code << 8 */
#define EHCA_RPAGES_SQ				0	/* also EQ, CQ, MR */
#define EHCA_RPAGES_RQ				1
#define EHCA_RPAGES_QTYPE_MASK			0xff
#define EHCA_RPAGES_PGSIZE_SHIFT		8
#define EHCA_RPAGES_MAX				512	/* entries of a page list */

/* H_MODIFY_PORT (doc 8.3): fields of r6 over the capability mask */
#define EHCA_MODPORT_CAPMASK			0xffffffffULL
#define EHCA_MODPORT_INIT_TYPE_SHIFT		16
#define EHCA_MODPORT_SHUTDOWN			0x8000ULL
#define EHCA_MODPORT_RESET_QKEY_CNTR		0x4000ULL

/* H_DISABLE_AND_GETC (doc 8.8): function code in r5, QP handle in r6 */
#define EHCA_GETC_BEFORE_FREE			1
#define EHCA_GETC_SQE				2
#define EHCA_GETC_ERR				4
#define EHCA_GETC_FLAG				EHCA_BIT(0)

/* H_ERROR_DATA block (doc 8.13), all be64 */
#define EHCA_ERRDATA_LENGTH			0x00
#define EHCA_ERRDATA_LENGTH_MASK		0xfffULL
#define EHCA_ERRDATA_RESOURCE			0x08
#define EHCA_ERRDATA_TYPE			0x10
#define EHCA_ERRDATA_TYPE_SHIFT			56
#define EHCA_ERRDATA_TYPE_QP			1
#define EHCA_ERRDATA_TYPE_CQ			4
#define EHCA_ERRDATA_AER			0x30

/*
 * H_GET_PERF_COUNT: free in the interface reference, defined by this
 * project.  r4 adapter, r5 port, r6 address of a 4 KiB block.
 * Works in every port state.  Counters are be64 and never saturate.
 */
#define EHCA_PERF_VERSION			0x00	/* be32 */
#define EHCA_PERF_VERSION_1			1
#define EHCA_PERF_PORT				0x04	/* be32 */
#define EHCA_PERF_SYMBOL_ERROR			0x10
#define EHCA_PERF_LINK_ERROR_RECOVERY		0x18
#define EHCA_PERF_LINK_DOWNED			0x20
#define EHCA_PERF_RCV_ERRORS			0x28
#define EHCA_PERF_RCV_REMOTE_PHYSICAL_ERRORS	0x30
#define EHCA_PERF_RCV_SWITCH_RELAY_ERRORS	0x38
#define EHCA_PERF_XMIT_DISCARDS			0x40
#define EHCA_PERF_XMIT_CONSTRAINT_ERRORS	0x48
#define EHCA_PERF_RCV_CONSTRAINT_ERRORS		0x50
#define EHCA_PERF_LOCAL_LINK_INTEGRITY_ERRORS	0x58
#define EHCA_PERF_EXCESSIVE_BUFFER_OVERRUN_ERRORS 0x60
#define EHCA_PERF_VL15_DROPPED			0x68
#define EHCA_PERF_XMIT_DATA			0x70	/* 32-bit words */
#define EHCA_PERF_RCV_DATA			0x78	/* 32-bit words */
#define EHCA_PERF_XMIT_PKTS			0x80
#define EHCA_PERF_RCV_PKTS			0x88
#define EHCA_PERF_UNICAST_XMIT_PKTS		0x90
#define EHCA_PERF_UNICAST_RCV_PKTS		0x98
#define EHCA_PERF_MULTICAST_XMIT_PKTS		0xa0
#define EHCA_PERF_MULTICAST_RCV_PKTS		0xa8
#define EHCA_PERF_XMIT_WAIT			0xb0
#define EHCA_PERF_QKEY_VIOLATIONS		0xb8
#define EHCA_PERF_PKEY_VIOLATIONS		0xc0
#define EHCA_PERF_SIZE				0xc8

/* ------------------------------------------------------------------ */
/* H_QUERY_HCA control block (doc 9.1)                                */
/* ------------------------------------------------------------------ */
#define EHCA_HCACB_CUR_RELIABLE_DG		0x000
#define EHCA_HCACB_CUR_QP			0x004
#define EHCA_HCACB_CUR_CQ			0x008
#define EHCA_HCACB_CUR_EQ			0x00c
#define EHCA_HCACB_CUR_MR			0x010
#define EHCA_HCACB_CUR_MW			0x014
#define EHCA_HCACB_CUR_EE_CONTEXT		0x018
#define EHCA_HCACB_CUR_MCAST_GRP		0x01c
#define EHCA_HCACB_CUR_QP_ATTACHED_MCAST_GRP	0x020
#define EHCA_HCACB_CUR_IPV6_QP			0x028
#define EHCA_HCACB_CUR_ETH_QP			0x02c
#define EHCA_HCACB_CUR_HP_MR			0x030
#define EHCA_HCACB_MAX_RD_DOMAIN		0x040
#define EHCA_HCACB_MAX_QP			0x044
#define EHCA_HCACB_MAX_CQ			0x048
#define EHCA_HCACB_MAX_EQ			0x04c
#define EHCA_HCACB_MAX_MR			0x050
#define EHCA_HCACB_MAX_HP_MR			0x054
#define EHCA_HCACB_MAX_MW			0x058
#define EHCA_HCACB_MAX_MRWPTE			0x05c
#define EHCA_HCACB_MAX_SPECIAL_MRWPTE		0x060
#define EHCA_HCACB_MAX_RD_EE_CONTEXT		0x064
#define EHCA_HCACB_MAX_MCAST_GRP		0x068
#define EHCA_HCACB_MAX_TOTAL_MCAST_QP_ATTACH	0x06c
#define EHCA_HCACB_MAX_MCAST_QP_ATTACH		0x070
#define EHCA_HCACB_MAX_RAW_IPV6_QP		0x074
#define EHCA_HCACB_MAX_RAW_ETHY_QP		0x078
#define EHCA_HCACB_INTERNAL_CLOCK_FREQUENCY	0x07c
#define EHCA_HCACB_MAX_PD			0x080
#define EHCA_HCACB_MAX_AH			0x084
#define EHCA_HCACB_MAX_CQE			0x088
#define EHCA_HCACB_MAX_WQES_WQ			0x08c
#define EHCA_HCACB_MAX_PARTITIONS		0x090
#define EHCA_HCACB_MAX_RR_EE_CONTEXT		0x094
#define EHCA_HCACB_MAX_RR_QP			0x098
#define EHCA_HCACB_MAX_RR_HCA			0x09c
#define EHCA_HCACB_MAX_ACT_WQS_EE_CONTEXT	0x0a0
#define EHCA_HCACB_MAX_ACT_WQS_QP		0x0a4
#define EHCA_HCACB_MAX_SGE			0x0a8
#define EHCA_HCACB_MAX_SGE_RD			0x0ac
#define EHCA_HCACB_MEMORY_PAGE_SIZE_SUPPORTED	0x0b0
#define EHCA_HCACB_MAX_MR_SIZE			0x0b4	/* be64 */
#define EHCA_HCACB_LOCAL_CA_ACK_DELAY		0x0bc
#define EHCA_HCACB_NUM_PORTS			0x0c0
#define EHCA_HCACB_VENDOR_ID			0x0c4
#define EHCA_HCACB_VENDOR_PART_ID		0x0c8
#define EHCA_HCACB_HW_VER			0x0cc
#define EHCA_HCACB_NODE_GUID			0x0d0	/* be64 */
#define EHCA_HCACB_HCA_CAP_INDICATORS		0x0d8	/* be64 */
#define EHCA_HCACB_DATA_COUNTER_REGISTER_SIZE	0x0e0
#define EHCA_HCACB_MAX_SHARED_RQ		0x0e4
#define EHCA_HCACB_MAX_ISNS_EQ			0x0e8
#define EHCA_HCACB_MAX_NEQ			0x0ec
#define EHCA_HCACB_SIZE				0x0f0

/* memory_page_size_supported (doc 9.2) */
#define EHCA_PGSIZE_SUP_4K			0x80000000
#define EHCA_PGSIZE_SUP_64K			0x40000000
#define EHCA_PGSIZE_SUP_1M			0x20000000
#define EHCA_PGSIZE_SUP_16M			0x10000000

/* hca_cap_indicators (doc 9.3) */
#define EHCA_CAP_AH_PORT_NR_CHECK		EHCA_BIT(0)
#define EHCA_CAP_ATOMIC				EHCA_BIT(1)
#define EHCA_CAP_AUTO_PATH_MIG			EHCA_BIT(2)
#define EHCA_CAP_BAD_P_KEY_CTR			EHCA_BIT(3)
#define EHCA_CAP_SQD_RTS_PORT_CHANGE		EHCA_BIT(4)
#define EHCA_CAP_CUR_QP_STATE_MOD		EHCA_BIT(5)
#define EHCA_CAP_INIT_TYPE			EHCA_BIT(6)
#define EHCA_CAP_PORT_ACTIVE_EVENT		EHCA_BIT(7)
#define EHCA_CAP_Q_KEY_VIOL_CTR			EHCA_BIT(8)
#define EHCA_CAP_WQE_RESIZE			EHCA_BIT(9)
#define EHCA_CAP_RAW_PACKET_MCAST		EHCA_BIT(10)
#define EHCA_CAP_SHUTDOWN_PORT			EHCA_BIT(11)
#define EHCA_CAP_RC_LL_QP			EHCA_BIT(12)
#define EHCA_CAP_SRQ				EHCA_BIT(13)
#define EHCA_CAP_UD_LL_QP			EHCA_BIT(16)
#define EHCA_CAP_RESIZE_MR			EHCA_BIT(17)
#define EHCA_CAP_MINI_QP			EHCA_BIT(18)
#define EHCA_CAP_H_ALLOC_RES_SYNC		EHCA_BIT(19)

/* hw_ver (doc 9.5) */
#define EHCA_HWVER_VERSION_SHIFT		24
#define EHCA_HWVER_REVISION_MASK		0xffffff
#define EHCA_VENDOR_ID_SHIFT			8
#define EHCA_VENDOR_PART_SHIFT			16

/* ------------------------------------------------------------------ */
/* H_QUERY_PORT control block (doc 10.1)                              */
/* ------------------------------------------------------------------ */
#define EHCA_PORTCB_STATE			0x000
#define EHCA_PORTCB_BAD_PKEY_CNTR		0x004
#define EHCA_PORTCB_LMC				0x008
#define EHCA_PORTCB_LID				0x00c
#define EHCA_PORTCB_SUBNET_TIMEOUT		0x010
#define EHCA_PORTCB_QKEY_VIOL_CNTR		0x014
#define EHCA_PORTCB_SM_SL			0x018
#define EHCA_PORTCB_SM_LID			0x01c
#define EHCA_PORTCB_CAPABILITY_MASK		0x020
#define EHCA_PORTCB_INIT_TYPE_REPLY		0x024
#define EHCA_PORTCB_PKEY_TBL_LEN		0x028
#define EHCA_PORTCB_GID_TBL_LEN			0x02c
#define EHCA_PORTCB_GID_PREFIX			0x030	/* be64 */
#define EHCA_PORTCB_PORT_NR			0x038
#define EHCA_PORTCB_PKEY_ENTRIES		0x03c	/* 32 bytes */
#define EHCA_PORTCB_TRENT_SIZE			0x07c
#define EHCA_PORTCB_TRBUF_SIZE			0x080
#define EHCA_PORTCB_MAX_MSG_SZ			0x084	/* be64 */
#define EHCA_PORTCB_MAX_MTU			0x08c
#define EHCA_PORTCB_VL_CAP			0x090
#define EHCA_PORTCB_PHYS_PSTATE			0x094
#define EHCA_PORTCB_PHYS_STATE			0x098
#define EHCA_PORTCB_PHYS_SPEED			0x09c
#define EHCA_PORTCB_PHYS_WIDTH			0x0a0
#define EHCA_PORTCB_GUID_ENTRIES		0x800	/* 2040 bytes */
#define EHCA_PORTCB_SIZE			0xff8
#define EHCA_PORTCB_MAX_PKEYS			16
#define EHCA_PORTCB_MAX_GIDS			255

/* Encodings (doc 10.2) */
#define EHCA_PORT_STATE_NOP			0
#define EHCA_PORT_STATE_DOWN			1
#define EHCA_PORT_STATE_INIT			2
#define EHCA_PORT_STATE_ARMED			3
#define EHCA_PORT_STATE_ACTIVE			4
#define EHCA_PORT_STATE_ACTIVE_DEFER		5
#define EHCA_MTU_256				1
#define EHCA_MTU_512				2
#define EHCA_MTU_1024				3
#define EHCA_MTU_2048				4
#define EHCA_MTU_4096				5
#define EHCA_VL_1				1
#define EHCA_VL_2				2
#define EHCA_VL_4				3
#define EHCA_VL_8				4
#define EHCA_VL_15				5
#define EHCA_SPEED_SDR				1
#define EHCA_SPEED_DDR				2
#define EHCA_SPEED_QDR				4
#define EHCA_WIDTH_1X				1
#define EHCA_WIDTH_4X				2
#define EHCA_WIDTH_8X				4
#define EHCA_WIDTH_12X				8

/* ------------------------------------------------------------------ */
/* H_MODIFY_QP / H_QUERY_QP control block (doc 11.1)                  */
/* ------------------------------------------------------------------ */
#define EHCA_QPCB_QKEY				0x000
#define EHCA_QPCB_RDD				0x004
#define EHCA_QPCB_SEND_PSN			0x008
#define EHCA_QPCB_RECEIVE_PSN			0x00c
#define EHCA_QPCB_PRIM_PHYS_PORT		0x010
#define EHCA_QPCB_ALT_PHYS_PORT			0x014
#define EHCA_QPCB_PRIM_P_KEY_IDX		0x018
#define EHCA_QPCB_ALT_P_KEY_IDX			0x01c
#define EHCA_QPCB_RDMA_ATOMIC_CTRL		0x020
#define EHCA_QPCB_QP_STATE			0x024
#define EHCA_QPCB_RDMA_NR_ATOMIC_RESP_RES	0x02c
#define EHCA_QPCB_PATH_MIGRATION_STATE		0x030
#define EHCA_QPCB_RDMA_ATOMIC_OUTST_DEST_QP	0x034
#define EHCA_QPCB_DEST_QP_NR			0x038
#define EHCA_QPCB_MIN_RNR_NAK_TIMER_FIELD	0x03c
#define EHCA_QPCB_SERVICE_LEVEL			0x040
#define EHCA_QPCB_SEND_GRH_FLAG			0x044
#define EHCA_QPCB_RETRY_COUNT			0x048
#define EHCA_QPCB_TIMEOUT			0x04c
#define EHCA_QPCB_PATH_MTU			0x050
#define EHCA_QPCB_MAX_STATIC_RATE		0x054
#define EHCA_QPCB_DLID				0x058
#define EHCA_QPCB_RNR_RETRY_COUNT		0x05c
#define EHCA_QPCB_SOURCE_PATH_BITS		0x060
#define EHCA_QPCB_TRAFFIC_CLASS			0x064
#define EHCA_QPCB_HOP_LIMIT			0x068
#define EHCA_QPCB_SOURCE_GID_IDX		0x06c
#define EHCA_QPCB_FLOW_LABEL			0x070
#define EHCA_QPCB_DEST_GID			0x078	/* 16 bytes */
#define EHCA_QPCB_SERVICE_LEVEL_AL		0x088
#define EHCA_QPCB_SEND_GRH_FLAG_AL		0x08c
#define EHCA_QPCB_RETRY_COUNT_AL		0x090
#define EHCA_QPCB_TIMEOUT_AL			0x094
#define EHCA_QPCB_MAX_STATIC_RATE_AL		0x098
#define EHCA_QPCB_DLID_AL			0x09c
#define EHCA_QPCB_RNR_RETRY_COUNT_AL		0x0a0
#define EHCA_QPCB_SOURCE_PATH_BITS_AL		0x0a4
#define EHCA_QPCB_TRAFFIC_CLASS_AL		0x0a8
#define EHCA_QPCB_HOP_LIMIT_AL			0x0ac
#define EHCA_QPCB_SOURCE_GID_IDX_AL		0x0b0
#define EHCA_QPCB_FLOW_LABEL_AL			0x0b4
#define EHCA_QPCB_DEST_GID_AL			0x0c0	/* 16 bytes */
#define EHCA_QPCB_MAX_NR_OUTST_SEND_WR		0x0d0
#define EHCA_QPCB_MAX_NR_OUTST_RECV_WR		0x0d4
#define EHCA_QPCB_DISABLE_ETE_CREDIT_CHECK	0x0d8
#define EHCA_QPCB_QP_NUMBER			0x0dc
#define EHCA_QPCB_SEND_QUEUE_HANDLE		0x0e0	/* be64 */
#define EHCA_QPCB_RECV_QUEUE_HANDLE		0x0e8	/* be64 */
#define EHCA_QPCB_ACTUAL_NR_SGES_IN_SQ_WQE	0x0f0
#define EHCA_QPCB_ACTUAL_NR_SGES_IN_RQ_WQE	0x0f4
#define EHCA_QPCB_QP_ENABLE			0x0f8
#define EHCA_QPCB_CURR_SRQ_LIMIT		0x0fc
#define EHCA_QPCB_QP_AFF_ASYN_EV_LOG_REG	0x100	/* be64 */
#define EHCA_QPCB_SHARED_RQ_HNDL		0x108	/* be64 */
#define EHCA_QPCB_TRIGG_DOORBELL_QP_HNDL	0x110	/* be64 */
#define EHCA_QPCB_SIZE				0x200

/*
 * Update mask of H_MODIFY_QP (r6).  Up to word 28 a mask bit is the word
 * number; behind it the two differ (doc 11.1).
 */
#define EHCA_QPMASK_QKEY			EHCA_BIT(0)
#define EHCA_QPMASK_SEND_PSN			EHCA_BIT(2)
#define EHCA_QPMASK_RECEIVE_PSN			EHCA_BIT(3)
#define EHCA_QPMASK_PRIM_PHYS_PORT		EHCA_BIT(4)
#define EHCA_QPMASK_ALT_PHYS_PORT		EHCA_BIT(5)
#define EHCA_QPMASK_PRIM_P_KEY_IDX		EHCA_BIT(6)
#define EHCA_QPMASK_ALT_P_KEY_IDX		EHCA_BIT(7)
#define EHCA_QPMASK_RDMA_ATOMIC_CTRL		EHCA_BIT(8)
#define EHCA_QPMASK_QP_STATE			EHCA_BIT(9)
#define EHCA_QPMASK_RDMA_NR_ATOMIC_RESP_RES	EHCA_BIT(11)
#define EHCA_QPMASK_PATH_MIGRATION_STATE	EHCA_BIT(12)
#define EHCA_QPMASK_RDMA_ATOMIC_OUTST_DEST_QP	EHCA_BIT(13)
#define EHCA_QPMASK_DEST_QP_NR			EHCA_BIT(14)
#define EHCA_QPMASK_MIN_RNR_NAK_TIMER_FIELD	EHCA_BIT(15)
#define EHCA_QPMASK_SERVICE_LEVEL		EHCA_BIT(16)
#define EHCA_QPMASK_SEND_GRH_FLAG		EHCA_BIT(17)
#define EHCA_QPMASK_RETRY_COUNT			EHCA_BIT(18)
#define EHCA_QPMASK_TIMEOUT			EHCA_BIT(19)
#define EHCA_QPMASK_PATH_MTU			EHCA_BIT(20)
#define EHCA_QPMASK_MAX_STATIC_RATE		EHCA_BIT(21)
#define EHCA_QPMASK_DLID			EHCA_BIT(22)
#define EHCA_QPMASK_RNR_RETRY_COUNT		EHCA_BIT(23)
#define EHCA_QPMASK_SOURCE_PATH_BITS		EHCA_BIT(24)
#define EHCA_QPMASK_TRAFFIC_CLASS		EHCA_BIT(25)
#define EHCA_QPMASK_HOP_LIMIT			EHCA_BIT(26)
#define EHCA_QPMASK_SOURCE_GID_IDX		EHCA_BIT(27)
#define EHCA_QPMASK_FLOW_LABEL			EHCA_BIT(28)
#define EHCA_QPMASK_DEST_GID			EHCA_BIT(30)
#define EHCA_QPMASK_SERVICE_LEVEL_AL		EHCA_BIT(31)
#define EHCA_QPMASK_SEND_GRH_FLAG_AL		EHCA_BIT(32)
#define EHCA_QPMASK_RETRY_COUNT_AL		EHCA_BIT(33)
#define EHCA_QPMASK_TIMEOUT_AL			EHCA_BIT(34)
#define EHCA_QPMASK_MAX_STATIC_RATE_AL		EHCA_BIT(35)
#define EHCA_QPMASK_DLID_AL			EHCA_BIT(36)
#define EHCA_QPMASK_RNR_RETRY_COUNT_AL		EHCA_BIT(37)
#define EHCA_QPMASK_SOURCE_PATH_BITS_AL		EHCA_BIT(38)
#define EHCA_QPMASK_TRAFFIC_CLASS_AL		EHCA_BIT(39)
#define EHCA_QPMASK_HOP_LIMIT_AL		EHCA_BIT(40)
#define EHCA_QPMASK_SOURCE_GID_IDX_AL		EHCA_BIT(41)
#define EHCA_QPMASK_FLOW_LABEL_AL		EHCA_BIT(42)
#define EHCA_QPMASK_DEST_GID_AL			EHCA_BIT(44)
#define EHCA_QPMASK_MAX_NR_OUTST_SEND_WR	EHCA_BIT(45)
#define EHCA_QPMASK_MAX_NR_OUTST_RECV_WR	EHCA_BIT(46)
#define EHCA_QPMASK_DISABLE_ETE_CREDIT_CHECK	EHCA_BIT(47)
#define EHCA_QPMASK_QP_ENABLE			EHCA_BIT(48)
#define EHCA_QPMASK_CURR_SRQ_LIMIT		EHCA_BIT(49)
#define EHCA_QPMASK_QP_AFF_ASYN_EV_LOG_REG	EHCA_BIT(50)
#define EHCA_QPMASK_SHARED_RQ_HNDL		EHCA_BIT(51)

/* Field values (doc 11.2) */
#define EHCA_QPS_RESET				1
#define EHCA_QPS_INIT				2
#define EHCA_QPS_RTR				3
#define EHCA_QPS_RTS				5
#define EHCA_QPS_SQD				6
#define EHCA_QPS_SQE				8
#define EHCA_QPS_ERR				0x80
#define EHCA_MIG_MIGRATED			1
#define EHCA_MIG_REARM				2
#define EHCA_MIG_ARMED				3	/* read only */
#define EHCA_RDMA_ATOMIC_CTRL_ALL		3
#define EHCA_AAELOG_RESET_SRQ_LIMIT		EHCA_BIT(3)

/* ------------------------------------------------------------------ */
/* Register pages (doc 12): 8-byte accesses only                      */
/* ------------------------------------------------------------------ */
#define EHCA_REGS_SIZE				4096

/* QP page */
#define EHCA_QPX_HCR				0x000
#define EHCA_QPX_C				0x008
#define EHCA_QPX_HERR				0x010
#define EHCA_QPX_AER				0x018
#define EHCA_QPX_SQA				0x020
#define EHCA_QPX_SQC				0x028
#define EHCA_QPX_RQA				0x030
#define EHCA_QPX_RQC				0x038
#define EHCA_QPX_ST				0x040
#define EHCA_QPX_PMSTATE			0x048
#define EHCA_QPX_PMFA				0x050
#define EHCA_QPX_PKEY				0x058
#define EHCA_QPX_PKEYA				0x060
#define EHCA_QPX_PKEYB				0x068
#define EHCA_QPX_PKEYC				0x070
#define EHCA_QPX_PKEYD				0x078
#define EHCA_QPX_QKEY				0x080
#define EHCA_QPX_DQP				0x088
#define EHCA_QPX_DLIDP				0x090
#define EHCA_QPX_PORTP				0x098
#define EHCA_QPX_SLIDP				0x0a0
#define EHCA_QPX_SLIDPP				0x0a8
#define EHCA_QPX_DLIDA				0x0b0
#define EHCA_QPX_PORTA				0x0b8
#define EHCA_QPX_SLIDA				0x0c0
#define EHCA_QPX_SLIDPA				0x0c8
#define EHCA_QPX_SLVL				0x0d0
#define EHCA_QPX_IPD				0x0d8
#define EHCA_QPX_MTU				0x0e0
#define EHCA_QPX_LATO				0x0e8
#define EHCA_QPX_RLIMIT				0x0f0
#define EHCA_QPX_RNRLIMIT			0x0f8
#define EHCA_QPX_T				0x100
#define EHCA_QPX_SQHP				0x108
#define EHCA_QPX_SQPTP				0x110
#define EHCA_QPX_NSPSN				0x118
#define EHCA_QPX_NSPSNHWM			0x120
#define EHCA_QPX_SDSI				0x130
#define EHCA_QPX_SDSBC				0x138
#define EHCA_QPX_SQWSIZE			0x140
#define EHCA_QPX_SQWTS				0x148
#define EHCA_QPX_LSN				0x150
#define EHCA_QPX_NSSN				0x158
#define EHCA_QPX_MOR				0x160
#define EHCA_QPX_COR				0x168
#define EHCA_QPX_SQSIZE				0x170
#define EHCA_QPX_ERC				0x178
#define EHCA_QPX_RNRRC				0x180
#define EHCA_QPX_ERNRWT				0x188
#define EHCA_QPX_RNRRESP			0x190
#define EHCA_QPX_LMSNA				0x198
#define EHCA_QPX_SQHPC				0x1a0
#define EHCA_QPX_SQCPTP				0x1a8
#define EHCA_QPX_SIGT				0x1b0
#define EHCA_QPX_WQECNT				0x1b8
#define EHCA_QPX_RQHP				0x1c0
#define EHCA_QPX_RQPTP				0x1c8
#define EHCA_QPX_RQSIZE				0x1d0
#define EHCA_QPX_NRR				0x1d8
#define EHCA_QPX_RDMAC				0x1e0
#define EHCA_QPX_NRPSN				0x1e8
#define EHCA_QPX_LAPSN				0x1f0
#define EHCA_QPX_LCR				0x1f8
#define EHCA_QPX_RWC				0x200
#define EHCA_QPX_RWVA				0x208
#define EHCA_QPX_RDSI				0x210
#define EHCA_QPX_RDSBC				0x218
#define EHCA_QPX_RQWSIZE			0x220
#define EHCA_QPX_CRMSN				0x228
#define EHCA_QPX_RDD				0x230
#define EHCA_QPX_LARPSN				0x238
#define EHCA_QPX_PD				0x240
#define EHCA_QPX_SCQN				0x248
#define EHCA_QPX_RCQN				0x250
#define EHCA_QPX_AEQN				0x258
#define EHCA_QPX_AAELOG				0x260
#define EHCA_QPX_RAM				0x268
#define EHCA_QPX_RDMAQE0			0x270
#define EHCA_QPX_RDMAQE1			0x278
#define EHCA_QPX_RDMAQE2			0x280
#define EHCA_QPX_RDMAQE3			0x288
#define EHCA_QPX_NRPSNHWM			0x290
#define EHCA_QPEDX_PHH				0x400
#define EHCA_QPEDX_PPSGP			0x408
#define EHCA_QPEDX_PPSGU			0x410
#define EHCA_QPEDX_PPDGP			0x418
#define EHCA_QPEDX_PPDGU			0x420
#define EHCA_QPEDX_APH				0x428
#define EHCA_QPEDX_APSGP			0x430
#define EHCA_QPEDX_APSGU			0x438
#define EHCA_QPEDX_APDGP			0x440
#define EHCA_QPEDX_APDGU			0x448
#define EHCA_QPEDX_APAV				0x450
#define EHCA_QPEDX_APSAV			0x458
#define EHCA_QPEDX_HCR				0x460
#define EHCA_QPEDX_RRL0				0x488
#define EHCA_QPEDX_RRRKEY0			0x490
#define EHCA_QPEDX_RRVA0			0x498
#define EHCA_QPEDX_RRL1				0x4a8
#define EHCA_QPEDX_RRRKEY1			0x4b0
#define EHCA_QPEDX_RRVA1			0x4b8
#define EHCA_QPEDX_RRL2				0x4c8
#define EHCA_QPEDX_RRRKEY2			0x4d0
#define EHCA_QPEDX_RRVA2			0x4d8
#define EHCA_QPEDX_RRL3				0x4e8
#define EHCA_QPEDX_RRRKEY3			0x4f0
#define EHCA_QPEDX_RRVA3			0x4f8

#define EHCA_QPX_ADDER_MASK			0xffffULL	/* sqa, rqa */

/* CQ page */
#define EHCA_CQX_HCR				0x000
#define EHCA_CQX_C				0x008
#define EHCA_CQX_HERR				0x010
#define EHCA_CQX_AER				0x018
#define EHCA_CQX_PTP				0x020
#define EHCA_CQX_TP				0x028
#define EHCA_CQX_FEC				0x030
#define EHCA_CQX_FECA				0x038
#define EHCA_CQX_EP				0x040
#define EHCA_CQX_EQ				0x048
#define EHCA_CQX_N0				0x058
#define EHCA_CQX_N1				0x060

#define EHCA_CQX_FEC_MASK			0xffffffffULL	/* fec, feca */
#define EHCA_CQX_ARM				EHCA_BIT(0)	/* n0, n1 */

/* ------------------------------------------------------------------ */
/* Queues (doc 13)                                                    */
/* ------------------------------------------------------------------ */
#define EHCA_EQE_SIZE				8
#define EHCA_CQE_SIZE				64
#define EHCA_EQES_PER_PAGE			512
#define EHCA_CQES_PER_PAGE			64

/* EQE (doc 14.1), one be64 */
#define EHCA_EQE_VALID				EHCA_BIT(0)
#define EHCA_EQE_COMPLETION			EHCA_BIT(1)
#define EHCA_EQE_ID_SHIFT			56
#define EHCA_EQE_ID_MASK			0x3fULL
#define EHCA_EQE_NUMBER_SHIFT			32
#define EHCA_EQE_NUMBER_MASK			0xffffffULL
#define EHCA_EQE_TOKEN_MASK			0xffffffffULL

/* EQE event identifiers (doc 14.2) */
#define EHCA_EQE_PATH_MIG			0x02
#define EHCA_EQE_COMM_EST			0x03
#define EHCA_EQE_SQ_DRAINED			0x04
#define EHCA_EQE_QP_ERR				0x05
#define EHCA_EQE_QP_ERR_2			0x06
#define EHCA_EQE_CQ_ERR				0x07
#define EHCA_EQE_CQ_ERR_2			0x08
#define EHCA_EQE_MR_TABLE_ERR			0x09
#define EHCA_EQE_PORT				0x0a
#define EHCA_EQE_MR_ACCESS_ERR			0x0b
#define EHCA_EQE_EQ_ERR				0x0c
#define EHCA_EQE_KEY_MISMATCH			0x0d
#define EHCA_EQE_SAMPLING_COMPLETE		0x10
#define EHCA_EQE_UNAFFILIATED_ACCESS_ERR	0x11
#define EHCA_EQE_PATH_MIGRATING			0x12
#define EHCA_EQE_TRACE_STOPPED			0x13
#define EHCA_EQE_FIRST_ERR_CAPTURE		0x14
#define EHCA_EQE_SRQ_LIMIT			0x15
/*
 * Not in the interface reference: a path migration request came in and was
 * not accepted, or a commanded migration failed.  Drivers that do not know
 * it log an unknown event and go on.
 */
#define EHCA_EQE_PATH_MIG_FAILED		0x16

/* NEQ entry (doc 14.4), one be64; valid and completion bits as EQE */
#define EHCA_NEQE_PORT_SHIFT			48
#define EHCA_NEQE_PORT_MASK			0xffULL
#define EHCA_NEQE_PORT_FLAG			EHCA_BIT(16)
#define EHCA_NEQE_SPECIFIC_SHIFT		40
#define EHCA_NEQE_SPECIFIC_MASK			0xffULL
#define EHCA_NEQE_PORT_AVAIL			0x30	/* flag: available */
#define EHCA_NEQE_PORT_CONFIG			0x31	/* flag: disruptive */
#define EHCA_NEQE_ADAPTER_MALFUNCTION		0x32
#define EHCA_NEQE_TRACE_STOPPED			0x33
#define EHCA_NEQE_SPECIFIC			0x34
#define EHCA_NEQE_CLIENT_REREGISTER		0x80	/* specific event */
#define EHCA_RESET_EVENTS_ALL			(~0ULL)

/* ------------------------------------------------------------------ */
/* Work queue elements (doc 15)                                       */
/* ------------------------------------------------------------------ */
#define EHCA_WQE_ID				0x00	/* be64 */
#define EHCA_WQE_ID_INDEX_MASK			0xffffULL
#define EHCA_WQE_OPTYPE				0x08	/* u8 */
#define EHCA_WQE_FLAGS				0x09	/* u8 */
#define EHCA_WQE_PKEYI				0x0a	/* be16 */
#define EHCA_WQE_WQEF				0x0c	/* u8 */
#define EHCA_WQE_NR_SGES			0x0d	/* u8 */
#define EHCA_WQE_SLID				0x0e	/* be16 */
#define EHCA_WQE_DEST_QPN			0x10	/* QPN << 8 */
#define EHCA_WQE_DEST_QPN_SHIFT			8
#define EHCA_WQE_RESYNC_PSN			0x14
#define EHCA_WQE_QKEY				0x18
#define EHCA_WQE_IMM				0x1c	/* wire byte order */
#define EHCA_WQE_HDR_SIZE			0x20
#define EHCA_WQE_CLEAR_SIZE			96	/* zeroed for each WQE */

/* RC, UC send (doc 15.6) */
#define EHCA_WQE_RADDR				0x20	/* be64 */
#define EHCA_WQE_RKEY				0x28
#define EHCA_WQE_TOTAL_LEN			0x30	/* be64 */
#define EHCA_WQE_ATOMIC_1			0x30	/* be64 */
#define EHCA_WQE_ATOMIC_2			0x38	/* be64 */
#define EHCA_WQE_SGES				0x40	/* RC, UC, receive */

/* UD, SMI, GSI send (doc 15.4) */
#define EHCA_WQE_AV				0x20
#define EHCA_WQE_UD_SGES			0x60

/* Memory window bind (doc 15.10) */
#define EHCA_WQE_BIND_RKEY			0x28
#define EHCA_WQE_BIND_OLD_RKEY			0x2c
#define EHCA_WQE_BIND_VA			0x40	/* be64 */
#define EHCA_WQE_BIND_LENGTH			0x4c
#define EHCA_WQE_BIND_ACCESS			0x57	/* u8 */
#define EHCA_WQE_BIND_LKEY			0x58

/* optype of a send WQE (doc 15.2) */
#define EHCA_WQE_OPTYPE_SEND			0x80
#define EHCA_WQE_OPTYPE_RDMA_READ		0x40
#define EHCA_WQE_OPTYPE_RDMA_WRITE		0x20
#define EHCA_WQE_OPTYPE_CMP_SWAP		0x10
#define EHCA_WQE_OPTYPE_FETCH_ADD		0x08
#define EHCA_WQE_OPTYPE_BIND_MW			0x04
#define EHCA_WQE_OPTYPE_END			0xff	/* software marker */

/* wr_flag and wqef (doc 15.3) */
#define EHCA_WQE_FLAG_SIGNALED			0x80
#define EHCA_WQE_FLAG_FENCE			0x40
#define EHCA_WQE_FLAG_IMM			0x20
#define EHCA_WQE_FLAG_SOLICITED			0x10
#define EHCA_WQEF_CACHE_HINT			0x80
#define EHCA_WQEF_RW_CACHE_HINT			0x40
#define EHCA_WQEF_TIMED				0x20
#define EHCA_WQEF_PURGE				0x08
#define EHCA_WQEF_END				0xff

/* Scatter/gather entry (doc 15.9) */
#define EHCA_SGE_SIZE				16
#define EHCA_SGE_ADDR				0	/* be64 */
#define EHCA_SGE_LKEY				8
#define EHCA_SGE_LENGTH				12

/* Address vector (doc 15.5): offsets from its start */
#define EHCA_AV_SIZE				64
#define EHCA_AV_SL				0x00	/* u8 */
#define EHCA_AV_LNH				0x01	/* u8: 1 GRH present */
#define EHCA_AV_LNH_GRH				1
#define EHCA_AV_DLID				0x02	/* be16 */
#define EHCA_AV_SLID_PATH_BITS			0x07	/* u8 */
#define EHCA_AV_IPD				0x09	/* u8 */
#define EHCA_AV_PMTU				0x0b	/* u8 */
#define EHCA_AV_GRH0				0x18	/* be64 */
#define EHCA_AV_SGID				0x20	/* 16 bytes */
#define EHCA_AV_DGID				0x30	/* 16 bytes */

/* GRH word 0 as drivers write it (not the wire's layout) */
#define EHCA_GRH0_IPVER_SHIFT			60
#define EHCA_GRH0_IPVER				6ULL
#define EHCA_GRH0_TCLASS_SHIFT			51
#define EHCA_GRH0_TCLASS_MASK			0x1ffULL
#define EHCA_GRH0_FLOW_SHIFT			32
#define EHCA_GRH0_FLOW_MASK			0x7ffffULL
#define EHCA_GRH0_NXTHDR_SHIFT			8
#define EHCA_GRH0_NXTHDR			0x1bULL
#define EHCA_GRH0_HOP_MASK			0xffULL
#define EHCA_UD_GRH_SIZE			40	/* at start of UD buffers */

/* ------------------------------------------------------------------ */
/* Completion queue elements (doc 16)                                 */
/* ------------------------------------------------------------------ */
#define EHCA_CQE_ID				0x00	/* be64 */
#define EHCA_CQE_OPTYPE				0x08	/* u8 */
#define EHCA_CQE_FLAGS				0x09	/* u8 */
#define EHCA_CQE_BYTES				0x0c
#define EHCA_CQE_IMM				0x10
#define EHCA_CQE_LOCAL_QPN			0x14
#define EHCA_CQE_FREED_COUNT			0x18	/* u8 */
#define EHCA_CQE_SL				0x19	/* u8 */
#define EHCA_CQE_WQE_COUNT			0x1a	/* be16 */
#define EHCA_CQE_QP_TOKEN			0x1c
#define EHCA_CQE_QKEY				0x20
#define EHCA_CQE_REMOTE_QPN			0x24	/* not shifted */
#define EHCA_CQE_DLID				0x28	/* be16 */
#define EHCA_CQE_RLID				0x2a	/* be16 */
#define EHCA_CQE_PKEY_INDEX			0x2e	/* be16 */
#define EHCA_CQE_TIMESTAMP			0x30
#define EHCA_CQE_WQE_TIMESTAMP			0x34
#define EHCA_CQE_TIMESTAMP_VALID		0x38	/* u8 */
#define EHCA_CQE_VALID				0x3b	/* u8 */
#define EHCA_CQE_VALID_BIT			0x80
#define EHCA_CQE_STATUS				0x3c

/* optype of a CQE (doc 16.2) */
#define EHCA_CQE_OPTYPE_RECV			0x01
#define EHCA_CQE_OPTYPE_RECV_RDMA_IMM		0x02
#define EHCA_CQE_OPTYPE_BIND_MW			0x04
#define EHCA_CQE_OPTYPE_FETCH_ADD		0x08
#define EHCA_CQE_OPTYPE_CMP_SWAP		0x10
#define EHCA_CQE_OPTYPE_RDMA_WRITE		0x20
#define EHCA_CQE_OPTYPE_RDMA_READ		0x40
#define EHCA_CQE_OPTYPE_SEND			0x80

/* w_completion_flags (doc 16.3) */
#define EHCA_CQE_FLAG_RECV			0x80
#define EHCA_CQE_FLAG_IMM			0x40
#define EHCA_CQE_FLAG_GRH			0x20
#define EHCA_CQE_FLAG_SOLICITED			0x10

/* status (doc 16.4) */
#define EHCA_CQE_STATUS_ERROR			0x80000000
#define EHCA_CQE_STATUS_SUBCODE_SHIFT		11
#define EHCA_CQE_STATUS_SUBCODE_MASK		0x1f
#define EHCA_CQE_STATUS_PURGE			0x00000010
#define EHCA_CQE_STATUS_CODE_MASK		0x0000003f

#define EHCA_CQE_CODE_LOC_LEN			0x01
#define EHCA_CQE_CODE_LOC_QP_OP			0x02
#define EHCA_CQE_CODE_LOC_EEC_OP		0x03
#define EHCA_CQE_CODE_LOC_PROT			0x04
#define EHCA_CQE_CODE_FLUSH			0x05
#define EHCA_CQE_CODE_MW_BIND			0x06
#define EHCA_CQE_CODE_REMOTE			0x07	/* see sub-code */
#define EHCA_CQE_CODE_RETRY_EXC			0x08
#define EHCA_CQE_CODE_RNR_RETRY_EXC		0x09
#define EHCA_CQE_CODE_REM_ABORT			0x0a
#define EHCA_CQE_CODE_INV_EECN			0x0b
#define EHCA_CQE_CODE_INV_EEC_STATE		0x0c
#define EHCA_CQE_CODE_BAD_RESP			0x0d
#define EHCA_CQE_CODE_PURGED			0x10
#define EHCA_CQE_CODE_LOC_LEN_2			0x21
#define EHCA_CQE_CODE_LOC_QP_OP_2		0x22
#define EHCA_CQE_CODE_LOC_EEC_OP_2		0x23
#define EHCA_CQE_CODE_LOC_PROT_2		0x24
#define EHCA_CQE_CODE_FLUSH_2			0x25
#define EHCA_CQE_CODE_REM_ABORT_2		0x2d
#define EHCA_CQE_CODE_INV_EECN_2		0x2e
#define EHCA_CQE_CODE_INV_EEC_STATE_2		0x2f

#define EHCA_CQE_SUBCODE_PSN			0
#define EHCA_CQE_SUBCODE_REM_INV_REQ		1
#define EHCA_CQE_SUBCODE_REM_ACCESS		2
#define EHCA_CQE_SUBCODE_REM_OP			3
#define EHCA_CQE_SUBCODE_REM_INV_RD_REQ		4

/* ------------------------------------------------------------------ */
/* uverbs mmap key: file offset / kernel page size (doc 23.4)         */
/* ------------------------------------------------------------------ */
#define EHCA_UVERBS_ABI_VERSION			8
#define EHCA_MMAP_TOKEN_MASK			0x1ffffff
#define EHCA_MMAP_RESOURCE_SHIFT		25
#define EHCA_MMAP_RESOURCE_MASK			3
#define EHCA_MMAP_REGS				0
#define EHCA_MMAP_CQ_QUEUE			1
#define EHCA_MMAP_RQ				1
#define EHCA_MMAP_SQ				2
#define EHCA_MMAP_QP				(1 << 27)

#endif /* EHCA_ABI_H */
