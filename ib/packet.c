/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Packet headers to and from the wire, and the parser that checks packets.
 *
 * One table says, for each opcode of the services we carry, which extended
 * headers follow the BTH and whether a payload may follow (9.2.1, table 38).
 * Parser and builder both walk it, in the order of the specification:
 * DETH, RETH, AtomicETH, AETH, AtomicAckETH, ImmDt.
 */
#include <string.h>

#include "ib/bytes.h"
#include "ib/packet.h"

#define LRH_LENGTH_MASK 0x7FF            /* 11 bits, in words */
#define GRH_IP_VERSION 6
#define GRH_NEXT_HEADER_IBA 0x1B

enum {
    H_DETH = 1 << 0,
    H_RETH = 1 << 1,
    H_ATOMIC = 1 << 2,
    H_AETH = 1 << 3,
    H_ATOMIC_ACK = 1 << 4,
    H_IMM = 1 << 5,
    H_PAYLOAD = 1 << 6,      /* may carry a payload */
    H_KNOWN = 1 << 7,        /* an opcode of this service */
};

#define K H_KNOWN
#define P (H_KNOWN | H_PAYLOAD)

static const uint8_t rc_headers[IB_OP_MASK + 1] = {
    [IB_OP_SEND_FIRST] = P,
    [IB_OP_SEND_MIDDLE] = P,
    [IB_OP_SEND_LAST] = P,
    [IB_OP_SEND_LAST_IMM] = P | H_IMM,
    [IB_OP_SEND_ONLY] = P,
    [IB_OP_SEND_ONLY_IMM] = P | H_IMM,
    [IB_OP_WRITE_FIRST] = P | H_RETH,
    [IB_OP_WRITE_MIDDLE] = P,
    [IB_OP_WRITE_LAST] = P,
    [IB_OP_WRITE_LAST_IMM] = P | H_IMM,
    [IB_OP_WRITE_ONLY] = P | H_RETH,
    [IB_OP_WRITE_ONLY_IMM] = P | H_RETH | H_IMM,
    [IB_OP_READ_REQUEST] = K | H_RETH,
    [IB_OP_READ_RESP_FIRST] = P | H_AETH,
    [IB_OP_READ_RESP_MIDDLE] = P,
    [IB_OP_READ_RESP_LAST] = P | H_AETH,
    [IB_OP_READ_RESP_ONLY] = P | H_AETH,
    [IB_OP_ACK] = K | H_AETH,
    [IB_OP_ATOMIC_ACK] = K | H_AETH | H_ATOMIC_ACK,
    [IB_OP_COMPARE_SWAP] = K | H_ATOMIC,
    [IB_OP_FETCH_ADD] = K | H_ATOMIC,
};

static const uint8_t uc_headers[IB_OP_MASK + 1] = {
    [IB_OP_SEND_FIRST] = P,
    [IB_OP_SEND_MIDDLE] = P,
    [IB_OP_SEND_LAST] = P,
    [IB_OP_SEND_LAST_IMM] = P | H_IMM,
    [IB_OP_SEND_ONLY] = P,
    [IB_OP_SEND_ONLY_IMM] = P | H_IMM,
    [IB_OP_WRITE_FIRST] = P | H_RETH,
    [IB_OP_WRITE_MIDDLE] = P,
    [IB_OP_WRITE_LAST] = P,
    [IB_OP_WRITE_LAST_IMM] = P | H_IMM,
    [IB_OP_WRITE_ONLY] = P | H_RETH,
    [IB_OP_WRITE_ONLY_IMM] = P | H_RETH | H_IMM,
};

static const uint8_t ud_headers[IB_OP_MASK + 1] = {
    [IB_OP_SEND_ONLY] = P | H_DETH,
    [IB_OP_SEND_ONLY_IMM] = P | H_DETH | H_IMM,
};

#undef K
#undef P

/* 0: an opcode that is reserved or belongs to a service we do not carry. */
static unsigned opcode_headers(uint8_t opcode)
{
    switch (opcode & IB_TRANSPORT_MASK) {
    case IB_TRANSPORT_RC:
        return rc_headers[opcode & IB_OP_MASK];
    case IB_TRANSPORT_UC:
        return uc_headers[opcode & IB_OP_MASK];
    case IB_TRANSPORT_UD:
        return ud_headers[opcode & IB_OP_MASK];
    default:
        return 0;
    }
}

void ib_lrh_put(uint8_t *p, const IbLrh *lrh)
{
    p[0] = lrh->vl << 4;
    p[1] = lrh->sl << 4 | (lrh->lnh & 3);
    ib_put16(p + 2, lrh->dlid);
    ib_put16(p + 4, lrh->length / 4 & LRH_LENGTH_MASK);
    ib_put16(p + 6, lrh->slid);
}

void ib_lrh_get(IbLrh *lrh, const uint8_t *p)
{
    lrh->vl = p[0] >> 4;
    lrh->sl = p[1] >> 4;
    lrh->lnh = p[1] & 3;
    lrh->dlid = ib_get16(p + 2);
    lrh->length = (ib_get16(p + 4) & LRH_LENGTH_MASK) * 4;
    lrh->slid = ib_get16(p + 6);
}

void ib_grh_put(uint8_t *p, const IbGrh *grh)
{
    ib_put32(p, (uint32_t)GRH_IP_VERSION << 28 |
                (uint32_t)grh->traffic_class << 20 |
                (grh->flow_label & 0xFFFFF));
    ib_put16(p + 4, grh->payload_length);
    p[6] = grh->next_header;
    p[7] = grh->hop_limit;
    memcpy(p + 8, grh->sgid, 16);
    memcpy(p + 24, grh->dgid, 16);
}

void ib_grh_get(IbGrh *grh, const uint8_t *p)
{
    uint32_t word = ib_get32(p);

    grh->traffic_class = word >> 20;
    grh->flow_label = word & 0xFFFFF;
    grh->payload_length = ib_get16(p + 4);
    grh->next_header = p[6];
    grh->hop_limit = p[7];
    memcpy(grh->sgid, p + 8, 16);
    memcpy(grh->dgid, p + 24, 16);
}

void ib_bth_put(uint8_t *p, const IbBth *bth)
{
    p[0] = bth->opcode;
    p[1] = (bth->solicited ? 0x80 : 0) | (bth->migreq ? 0x40 : 0) |
           (bth->pad_count & 3) << 4 | (bth->tver & 0xF);
    ib_put16(p + 2, bth->pkey);
    ib_put32(p + 4, bth->dest_qpn & 0xFFFFFF);
    ib_put32(p + 8, (bth->ack_request ? 0x80000000u : 0) |
                    (bth->psn & IB_PSN_MASK));
}

void ib_bth_get(IbBth *bth, const uint8_t *p)
{
    bth->opcode = p[0];
    bth->solicited = p[1] & 0x80;
    bth->migreq = p[1] & 0x40;
    bth->pad_count = p[1] >> 4 & 3;
    bth->tver = p[1] & 0xF;
    bth->pkey = ib_get16(p + 2);
    bth->dest_qpn = ib_get24(p + 5);
    bth->ack_request = p[8] & 0x80;
    bth->psn = ib_get24(p + 9);
}

void ib_deth_put(uint8_t *p, const IbDeth *deth)
{
    ib_put32(p, deth->qkey);
    ib_put32(p + 4, deth->src_qpn & 0xFFFFFF);
}

static void deth_get(IbDeth *deth, const uint8_t *p)
{
    deth->qkey = ib_get32(p);
    deth->src_qpn = ib_get24(p + 5);
}

void ib_reth_put(uint8_t *p, const IbReth *reth)
{
    ib_put64(p, reth->va);
    ib_put32(p + 8, reth->rkey);
    ib_put32(p + 12, reth->length);
}

static void reth_get(IbReth *reth, const uint8_t *p)
{
    reth->va = ib_get64(p);
    reth->rkey = ib_get32(p + 8);
    reth->length = ib_get32(p + 12);
}

void ib_atomiceth_put(uint8_t *p, const IbAtomicEth *atomic)
{
    ib_put64(p, atomic->va);
    ib_put32(p + 8, atomic->rkey);
    ib_put64(p + 12, atomic->swap_add);
    ib_put64(p + 20, atomic->compare);
}

static void atomiceth_get(IbAtomicEth *atomic, const uint8_t *p)
{
    atomic->va = ib_get64(p);
    atomic->rkey = ib_get32(p + 8);
    atomic->swap_add = ib_get64(p + 12);
    atomic->compare = ib_get64(p + 20);
}

void ib_aeth_put(uint8_t *p, const IbAeth *aeth)
{
    ib_put32(p, (uint32_t)aeth->syndrome << 24 | (aeth->msn & 0xFFFFFF));
}

static void aeth_get(IbAeth *aeth, const uint8_t *p)
{
    aeth->syndrome = p[0];
    aeth->msn = ib_get24(p + 1);
}

static size_t extended_len(unsigned headers)
{
    return (headers & H_DETH ? IB_DETH_LEN : 0) +
           (headers & H_RETH ? IB_RETH_LEN : 0) +
           (headers & H_ATOMIC ? IB_ATOMICETH_LEN : 0) +
           (headers & H_AETH ? IB_AETH_LEN : 0) +
           (headers & H_ATOMIC_ACK ? IB_ATOMICACKETH_LEN : 0) +
           (headers & H_IMM ? IB_IMMDT_LEN : 0);
}

IbPacketError ib_packet_parse(IbPacket *packet, const uint8_t *p, size_t len)
{
    size_t bth_offset, header_len;
    unsigned headers;

    memset(packet, 0, sizeof(*packet));
    if (len < IB_LRH_LEN) {
        return IB_PACKET_TOO_SHORT;
    }
    if (len > IB_PACKET_MAX) {
        return IB_PACKET_TOO_LONG;
    }
    ib_lrh_get(&packet->lrh, p);
    if (p[0] & 0xF) {
        return IB_PACKET_BAD_LVER;
    }
    if (packet->lrh.length != len) {
        return IB_PACKET_BAD_LENGTH;
    }
    if (packet->lrh.lnh == IB_LNH_RAW || packet->lrh.lnh == IB_LNH_IP) {
        return IB_PACKET_RAW;
    }

    packet->has_grh = packet->lrh.lnh == IB_LNH_GLOBAL;
    bth_offset = IB_LRH_LEN + (packet->has_grh ? IB_GRH_LEN : 0);
    if (len < bth_offset + IB_BTH_LEN + IB_ICRC_LEN) {
        return IB_PACKET_TOO_SHORT;
    }
    if (packet->has_grh) {
        ib_grh_get(&packet->grh, p + IB_LRH_LEN);
        if (p[IB_LRH_LEN] >> 4 != GRH_IP_VERSION ||
            packet->grh.next_header != GRH_NEXT_HEADER_IBA ||
            packet->grh.payload_length != len - bth_offset) {
            return IB_PACKET_BAD_GRH;
        }
    }

    ib_bth_get(&packet->bth, p + bth_offset);
    if (packet->bth.tver != 0) {
        return IB_PACKET_BAD_TVER;
    }
    headers = opcode_headers(packet->bth.opcode);
    if (!headers) {
        return IB_PACKET_BAD_OPCODE;
    }
    header_len = bth_offset + IB_BTH_LEN + extended_len(headers);
    if (len < header_len + IB_ICRC_LEN) {
        return IB_PACKET_TOO_SHORT;
    }
    if (len - header_len - IB_ICRC_LEN < packet->bth.pad_count) {
        return IB_PACKET_BAD_PAD;
    }
    packet->header_len = header_len;
    packet->payload_len = len - header_len - IB_ICRC_LEN -
                          packet->bth.pad_count;
    if (packet->payload_len > (headers & H_PAYLOAD ? IB_MTU_MAX : 0)) {
        return IB_PACKET_TOO_LONG;
    }

    p += bth_offset + IB_BTH_LEN;
    if (headers & H_DETH) {
        packet->has_deth = true;
        deth_get(&packet->deth, p);
        p += IB_DETH_LEN;
    }
    if (headers & H_RETH) {
        packet->has_reth = true;
        reth_get(&packet->reth, p);
        p += IB_RETH_LEN;
    }
    if (headers & H_ATOMIC) {
        packet->has_atomic = true;
        atomiceth_get(&packet->atomic, p);
        p += IB_ATOMICETH_LEN;
    }
    if (headers & H_AETH) {
        packet->has_aeth = true;
        aeth_get(&packet->aeth, p);
        p += IB_AETH_LEN;
    }
    if (headers & H_ATOMIC_ACK) {
        packet->atomic_ack = ib_get64(p);
        p += IB_ATOMICACKETH_LEN;
    }
    if (headers & H_IMM) {
        packet->has_imm = true;
        packet->imm = ib_get32(p);
    }
    return IB_PACKET_OK;
}

size_t ib_packet_put_headers(uint8_t *p, IbPacket *packet, size_t payload_len)
{
    unsigned headers = opcode_headers(packet->bth.opcode);
    unsigned pad = -payload_len & 3;
    size_t bth_offset = IB_LRH_LEN + (packet->has_grh ? IB_GRH_LEN : 0);
    size_t header_len, len;

    if (headers) {
        packet->has_deth = headers & H_DETH;
        packet->has_reth = headers & H_RETH;
        packet->has_atomic = headers & H_ATOMIC;
        packet->has_aeth = headers & H_AETH;
        packet->has_imm = headers & H_IMM;
    } else {
        /* No opcode of ours, for those who test others: as has_* says. */
        headers = (packet->has_deth ? H_DETH : 0) |
                  (packet->has_reth ? H_RETH : 0) |
                  (packet->has_atomic ? H_ATOMIC : 0) |
                  (packet->has_aeth ? H_AETH : 0) |
                  (packet->has_imm ? H_IMM : 0);
    }
    header_len = bth_offset + IB_BTH_LEN + extended_len(headers);
    len = header_len + payload_len + pad + IB_ICRC_LEN;

    packet->header_len = header_len;
    packet->payload_len = payload_len;
    packet->lrh.length = len;
    packet->lrh.lnh = packet->has_grh ? IB_LNH_GLOBAL : IB_LNH_LOCAL;
    packet->bth.pad_count = pad;
    ib_lrh_put(p, &packet->lrh);
    if (packet->has_grh) {
        packet->grh.next_header = GRH_NEXT_HEADER_IBA;
        packet->grh.payload_length = len - bth_offset;
        ib_grh_put(p + IB_LRH_LEN, &packet->grh);
    }
    ib_bth_put(p + bth_offset, &packet->bth);

    p += bth_offset + IB_BTH_LEN;
    if (headers & H_DETH) {
        ib_deth_put(p, &packet->deth);
        p += IB_DETH_LEN;
    }
    if (headers & H_RETH) {
        ib_reth_put(p, &packet->reth);
        p += IB_RETH_LEN;
    }
    if (headers & H_ATOMIC) {
        ib_atomiceth_put(p, &packet->atomic);
        p += IB_ATOMICETH_LEN;
    }
    if (headers & H_AETH) {
        ib_aeth_put(p, &packet->aeth);
        p += IB_AETH_LEN;
    }
    if (headers & H_ATOMIC_ACK) {
        ib_put64(p, packet->atomic_ack);
        p += IB_ATOMICACKETH_LEN;
    }
    if (headers & H_IMM) {
        ib_put32(p, packet->imm);
    }
    return header_len;
}

size_t ib_packet_finish(uint8_t *p, size_t header_len, size_t payload_len)
{
    size_t len = header_len + payload_len;

    while (len & 3) {
        p[len++] = 0;
    }
    ib_put32(p + len, ib_icrc(p, len));
    return len + IB_ICRC_LEN;
}
