/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * InfiniBand packet headers (IBTA volume 1, chapters 5 to 9): LRH, GRH, BTH
 * and the extended transport headers, opcodes, and a parser that is the one
 * door through which a packet from the wire is checked.
 *
 * Values in these structures are in host order; the functions put them into
 * and take them from wire bytes.
 */
#ifndef IB_PACKET_H
#define IB_PACKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define IB_LRH_LEN 8
#define IB_GRH_LEN 40
#define IB_BTH_LEN 12
#define IB_DETH_LEN 8
#define IB_RETH_LEN 16
#define IB_ATOMICETH_LEN 28
#define IB_AETH_LEN 4
#define IB_ATOMICACKETH_LEN 8
#define IB_IMMDT_LEN 4
#define IB_IETH_LEN 4
#define IB_ICRC_LEN 4
#define IB_VCRC_LEN 2
#define IB_MTU_MAX 4096
/* Longest legal packet, LRH to ICRC. */
#define IB_PACKET_MAX (IB_LRH_LEN + IB_GRH_LEN + IB_BTH_LEN + \
                       IB_ATOMICETH_LEN + IB_IMMDT_LEN + IB_MTU_MAX + \
                       IB_ICRC_LEN)
#define IB_HEADERS_MAX (IB_LRH_LEN + IB_GRH_LEN + IB_BTH_LEN + \
                        IB_ATOMICETH_LEN + IB_IMMDT_LEN)

#define IB_LID_PERMISSIVE 0xFFFF
#define IB_LID_MCAST_FIRST 0xC000
#define IB_LID_MCAST_LAST 0xFFFE
#define IB_QPN_MULTICAST 0xFFFFFF
#define IB_QKEY_QP1 0x80010000u
#define IB_PKEY_DEFAULT 0xFFFF
#define IB_VL_MANAGEMENT 15
#define IB_PSN_MASK 0xFFFFFFu

static inline bool ib_lid_is_unicast(uint16_t lid)
{
    return lid != 0 && lid < IB_LID_MCAST_FIRST;
}

static inline bool ib_lid_is_multicast(uint16_t lid)
{
    return lid >= IB_LID_MCAST_FIRST && lid <= IB_LID_MCAST_LAST;
}

/* P_Key match (10.9.3): same base, not both limited. */
static inline bool ib_pkey_match(uint16_t a, uint16_t b)
{
    return (a & 0x7FFF) == (b & 0x7FFF) && (a & 0x7FFF) &&
           ((a | b) & 0x8000);
}

/* a - b in the 24-bit PSN circle, -2^23 .. 2^23 - 1 (9.7.1). */
static inline int32_t ib_psn_diff(uint32_t a, uint32_t b)
{
    return (int32_t)((a - b) << 8) >> 8;
}

/* MTU code of the specification to bytes: 1..5 -> 256..4096, else 0. */
static inline unsigned ib_mtu_bytes(unsigned code)
{
    return code >= 1 && code <= 5 ? 128u << code : 0;
}

/* Link next header (7.7.5). */
enum {
    IB_LNH_RAW = 0, IB_LNH_IP = 1, IB_LNH_LOCAL = 2, IB_LNH_GLOBAL = 3,
};

/* Transport service, upper 3 bits of the BTH opcode (9.2.1). */
enum {
    IB_TRANSPORT_RC = 0x00, IB_TRANSPORT_UC = 0x20,
    IB_TRANSPORT_RD = 0x40, IB_TRANSPORT_UD = 0x60,
    IB_TRANSPORT_MASK = 0xE0,
};

/* Operation, lower 5 bits of the BTH opcode (table 38). */
enum {
    IB_OP_SEND_FIRST = 0x00,
    IB_OP_SEND_MIDDLE = 0x01,
    IB_OP_SEND_LAST = 0x02,
    IB_OP_SEND_LAST_IMM = 0x03,
    IB_OP_SEND_ONLY = 0x04,
    IB_OP_SEND_ONLY_IMM = 0x05,
    IB_OP_WRITE_FIRST = 0x06,
    IB_OP_WRITE_MIDDLE = 0x07,
    IB_OP_WRITE_LAST = 0x08,
    IB_OP_WRITE_LAST_IMM = 0x09,
    IB_OP_WRITE_ONLY = 0x0A,
    IB_OP_WRITE_ONLY_IMM = 0x0B,
    IB_OP_READ_REQUEST = 0x0C,
    IB_OP_READ_RESP_FIRST = 0x0D,
    IB_OP_READ_RESP_MIDDLE = 0x0E,
    IB_OP_READ_RESP_LAST = 0x0F,
    IB_OP_READ_RESP_ONLY = 0x10,
    IB_OP_ACK = 0x11,
    IB_OP_ATOMIC_ACK = 0x12,
    IB_OP_COMPARE_SWAP = 0x13,
    IB_OP_FETCH_ADD = 0x14,
    IB_OP_MASK = 0x1F,
};

typedef struct IbLrh {
    uint8_t vl;
    uint8_t sl;
    uint8_t lnh;
    uint16_t dlid;
    uint16_t slid;
    uint16_t length;      /* bytes LRH..ICRC; on the wire in 4-byte words */
} IbLrh;

typedef struct IbGrh {
    uint8_t traffic_class;
    uint32_t flow_label;
    uint16_t payload_length;  /* bytes after the GRH, ICRC included */
    uint8_t next_header;      /* 0x1B */
    uint8_t hop_limit;
    uint8_t sgid[16];
    uint8_t dgid[16];
} IbGrh;

typedef struct IbBth {
    uint8_t opcode;
    bool solicited;
    bool migreq;
    uint8_t pad_count;
    uint8_t tver;
    uint16_t pkey;
    uint32_t dest_qpn;
    bool ack_request;
    uint32_t psn;
} IbBth;

typedef struct IbDeth {
    uint32_t qkey;
    uint32_t src_qpn;
} IbDeth;

typedef struct IbReth {
    uint64_t va;
    uint32_t rkey;
    uint32_t length;
} IbReth;

typedef struct IbAtomicEth {
    uint64_t va;
    uint32_t rkey;
    uint64_t swap_add;
    uint64_t compare;
} IbAtomicEth;

/* AETH syndrome (table 44): bits 6..5 say what, bits 4..0 carry a value. */
enum {
    IB_AETH_ACK = 0x00,          /* | credit count, 0x1F: no credits used */
    IB_AETH_RNR_NAK = 0x20,      /* | RNR timer code */
    IB_AETH_NAK = 0x60,          /* | NAK code */
    IB_AETH_KIND_MASK = 0x60,
    IB_AETH_VALUE_MASK = 0x1F,
    IB_NAK_PSN_SEQUENCE = 0,
    IB_NAK_INVALID_REQUEST = 1,
    IB_NAK_REMOTE_ACCESS = 2,
    IB_NAK_REMOTE_OPERATIONAL = 3,
    IB_NAK_INVALID_RD_REQUEST = 4,
};

typedef struct IbAeth {
    uint8_t syndrome;
    uint32_t msn;
} IbAeth;

/* What the parser found.  Headers that are not there are left zero. */
typedef struct IbPacket {
    IbLrh lrh;
    IbGrh grh;
    IbBth bth;
    IbDeth deth;
    IbReth reth;
    IbAtomicEth atomic;
    IbAeth aeth;
    uint64_t atomic_ack;      /* AtomicAckETH: original remote data */
    uint32_t imm;             /* ImmDt, big-endian number */
    bool has_grh, has_deth, has_reth, has_atomic, has_aeth, has_imm;
    uint16_t header_len;      /* LRH .. last extended header */
    uint16_t payload_len;     /* without pad and ICRC */
} IbPacket;

typedef enum IbPacketError {
    IB_PACKET_OK,
    IB_PACKET_TOO_SHORT,      /* shorter than its headers say */
    IB_PACKET_TOO_LONG,       /* than any packet, or than its opcode allows */
    IB_PACKET_BAD_LENGTH,     /* LRH length differs from what arrived */
    IB_PACKET_BAD_LVER,
    IB_PACKET_RAW,            /* LNH raw: not carried */
    IB_PACKET_BAD_GRH,        /* IPVer, next header, or length */
    IB_PACKET_BAD_TVER,
    IB_PACKET_BAD_OPCODE,     /* reserved, or a service we do not carry */
    IB_PACKET_BAD_PAD,
    IB_PACKET_BAD_ICRC,
} IbPacketError;

const char *ib_packet_error_name(IbPacketError error);
/* "RC SEND First", "UD SEND Only", ...; "reserved" for the rest. */
const char *ib_opcode_name(uint8_t opcode);

void ib_lrh_put(uint8_t *p, const IbLrh *lrh);
void ib_lrh_get(IbLrh *lrh, const uint8_t *p);
void ib_grh_put(uint8_t *p, const IbGrh *grh);
void ib_grh_get(IbGrh *grh, const uint8_t *p);
void ib_bth_put(uint8_t *p, const IbBth *bth);
void ib_bth_get(IbBth *bth, const uint8_t *p);
void ib_deth_put(uint8_t *p, const IbDeth *deth);
void ib_reth_put(uint8_t *p, const IbReth *reth);
void ib_atomiceth_put(uint8_t *p, const IbAtomicEth *atomic);
void ib_aeth_put(uint8_t *p, const IbAeth *aeth);

/*
 * Parses @len bytes (LRH .. ICRC).  Checks every length and field that must
 * be known before the packet is used; the ICRC is a call of its own, since
 * switches do not check it.
 */
IbPacketError ib_packet_parse(IbPacket *packet, const uint8_t *p, size_t len);

/*
 * Builds LRH [GRH] BTH and the extended headers that opcode and has_* call
 * for, from @packet; computes lrh.length, grh.payload_length and
 * bth.pad_count from @payload_len.  Returns the header length: the caller
 * puts the payload there, then calls ib_packet_finish().
 * @p has room for IB_PACKET_MAX bytes.
 */
size_t ib_packet_put_headers(uint8_t *p, IbPacket *packet,
                             size_t payload_len);
/* Adds pad bytes and ICRC behind the payload; returns the whole length. */
size_t ib_packet_finish(uint8_t *p, size_t header_len, size_t payload_len);

/*
 * Invariant CRC (7.8.1) over LRH .. payload and pad: the number whose
 * big-endian bytes go on the wire (the specification's sample packet gives
 * 0x9625B75A).  ib_vcrc() likewise.
 */
uint32_t ib_icrc(const uint8_t *p, size_t len_without_icrc);
/* True when the last four of @len bytes are the right ICRC. */
bool ib_icrc_ok(const uint8_t *p, size_t len);
/* Variant CRC (7.8.2) over LRH .. ICRC. */
uint16_t ib_vcrc(const uint8_t *p, size_t len);

#endif
