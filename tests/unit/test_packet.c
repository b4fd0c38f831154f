/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Packet headers, parser and CRCs against bytes computed by hand, the
 * specification's own sample packet, and an independent bit-by-bit CRC.
 */
#include <glib.h>
#include <stdlib.h>
#include <string.h>

#include "hex.h"
#include "ib/bytes.h"
#include "ib/packet.h"

/* IBTA volume 1, 7.8.1: sample packet with its ICRC. */
static const char sample[] =
    "70 12 37 5c 00 0e 17 d2  0a 20 24 87 00 87 b1 b3 00 0d ec 2a"
    "01 71 0a 1c 01 5d 40 02 38 f2 7a 05 00 00 00 0e"
    "bb 88 4d 85 fd 5c fb a4 72 8b c0 69 0e d4 00 00  96 25 b7 5a";

static void test_sample_packet(void)
{
    uint8_t p[64];
    size_t len = hex_bytes(p, sizeof(p), sample);
    IbPacket packet;

    g_assert_cmpuint(len, ==, 56);
    g_assert_cmphex(ib_icrc(p, 52), ==, 0x9625B75A);
    g_assert_true(ib_icrc_ok(p, len));

    g_assert_cmpint(ib_packet_parse(&packet, p, len), ==, IB_PACKET_OK);
    g_assert_cmpuint(packet.lrh.vl, ==, 7);
    g_assert_cmpuint(packet.lrh.sl, ==, 1);
    g_assert_cmpuint(packet.lrh.lnh, ==, IB_LNH_LOCAL);
    g_assert_cmphex(packet.lrh.dlid, ==, 0x375C);
    g_assert_cmphex(packet.lrh.slid, ==, 0x17D2);
    g_assert_cmpuint(packet.lrh.length, ==, 56);
    g_assert_cmphex(packet.bth.opcode, ==,
                    IB_TRANSPORT_RC | IB_OP_WRITE_ONLY);
    g_assert_false(packet.bth.solicited);
    g_assert_false(packet.bth.migreq);
    g_assert_cmpuint(packet.bth.pad_count, ==, 2);
    g_assert_cmphex(packet.bth.pkey, ==, 0x2487);
    g_assert_cmphex(packet.bth.dest_qpn, ==, 0x87B1B3);
    g_assert_cmphex(packet.bth.psn, ==, 0x0DEC2A);
    g_assert_true(packet.has_reth);
    g_assert_cmphex(packet.reth.va, ==, 0x01710A1C015D4002);
    g_assert_cmphex(packet.reth.rkey, ==, 0x38F27A05);
    g_assert_cmpuint(packet.reth.length, ==, 14);
    g_assert_cmpuint(packet.header_len, ==, 36);
    g_assert_cmpuint(packet.payload_len, ==, 14);
}

static void test_sample_rebuilt(void)
{
    uint8_t p[IB_PACKET_MAX], want[64];
    size_t len = hex_bytes(want, sizeof(want), sample);
    size_t header_len;
    IbPacket packet = {
        .lrh = { .vl = 7, .sl = 1, .dlid = 0x375C, .slid = 0x17D2 },
        .bth = { .opcode = IB_OP_WRITE_ONLY, .pkey = 0x2487,
                 .dest_qpn = 0x87B1B3, .psn = 0x0DEC2A },
        .reth = { .va = 0x01710A1C015D4002, .rkey = 0x38F27A05,
                  .length = 14 },
    };

    memset(p, 0xEE, sizeof(p));
    header_len = ib_packet_put_headers(p, &packet, 14);
    g_assert_cmpuint(header_len, ==, 36);
    memcpy(p + header_len, want + 36, 14);
    g_assert_cmpuint(ib_packet_finish(p, header_len, 14), ==, len);
    g_assert_cmpmem(p, len, want, len);
    g_assert_true(packet.has_reth);
    g_assert_cmpuint(packet.lrh.length, ==, 56);
}

static void test_headers(void)
{
    const IbLrh lrh = { .vl = 5, .sl = 9, .lnh = IB_LNH_GLOBAL,
                        .dlid = 0x1234, .slid = 0xABCD, .length = 0x124 };
    IbGrh grh = { .traffic_class = 0xA5, .flow_label = 0xBCDEF,
                  .payload_length = 0x0114, .next_header = 0x1B,
                  .hop_limit = 0x3F };
    const IbBth bth = { .opcode = 0x64, .solicited = true, .migreq = true,
                        .pad_count = 2, .pkey = 0x8001, .dest_qpn = 0x123456,
                        .ack_request = true, .psn = 0xABCDEF };
    const IbBth bth_wide = { .opcode = 0xFF, .pad_count = 0xFF, .tver = 0xFF,
                             .pkey = 0xFFFF, .dest_qpn = 0xFFFFFFFF,
                             .psn = 0xFFFFFFFF };
    const IbDeth deth = { .qkey = IB_QKEY_QP1, .src_qpn = 1 };
    const IbReth reth = { .va = 0x0102030405060708, .rkey = 0x11121314,
                          .length = 0x80000000 };
    const IbAtomicEth atomic = { .va = 0x0102030405060708, .rkey = 0x11121314,
                                 .swap_add = 0x2122232425262728,
                                 .compare = 0x3132333435363738 };
    const IbAeth aeth = { .syndrome = IB_AETH_RNR_NAK | 14, .msn = 0x0A0B0C };
    IbLrh lrh_back;
    IbGrh grh_back;
    IbBth bth_back;
    uint8_t p[64];

    ib_lrh_put(p, &lrh);
    assert_hex(p, 8, "50 93 12 34 00 49 ab cd");
    ib_lrh_get(&lrh_back, p);
    g_assert_cmpuint(lrh_back.length, ==, 0x124);
    g_assert_cmpuint(lrh_back.vl, ==, 5);
    g_assert_cmpuint(lrh_back.sl, ==, 9);
    g_assert_cmpuint(lrh_back.lnh, ==, 3);

    memcpy(grh.sgid, "0123456789abcdef", 16);
    memcpy(grh.dgid, "ghijklmnopqrstuv", 16);
    ib_grh_put(p, &grh);
    assert_hex(p, 40, "6a 5b cd ef 01 14 1b 3f"
               "30313233343536373839616263646566"
               "6768696a6b6c6d6e6f70717273747576");
    ib_grh_get(&grh_back, p);
    g_assert_cmphex(grh_back.traffic_class, ==, 0xA5);
    g_assert_cmphex(grh_back.flow_label, ==, 0xBCDEF);

    ib_bth_put(p, &bth);
    assert_hex(p, 12, "64 e0 80 01 00 12 34 56 80 ab cd ef");
    ib_bth_get(&bth_back, p);
    g_assert_true(bth_back.solicited && bth_back.migreq &&
                  bth_back.ack_request);
    g_assert_cmpuint(bth_back.pad_count, ==, 2);
    /* Values beyond their field must not reach the neighbours. */
    ib_bth_put(p, &bth_wide);
    assert_hex(p, 12, "ff 3f ff ff 00 ff ff ff 00 ff ff ff");

    ib_deth_put(p, &deth);
    assert_hex(p, 8, "80 01 00 00 00 00 00 01");
    ib_reth_put(p, &reth);
    assert_hex(p, 16, "0102030405060708 11121314 80000000");
    ib_atomiceth_put(p, &atomic);
    assert_hex(p, 28, "0102030405060708 11121314"
               "2122232425262728 3132333435363738");
    ib_aeth_put(p, &aeth);
    assert_hex(p, 4, "2e 0a 0b 0c");
}

/*
 * Independent statement of table 38: opcode, extended headers in order
 * (D=DETH R=RETH A=AtomicETH K=AETH O=AtomicAckETH I=ImmDt), payload or not.
 */
static const struct {
    uint8_t opcode;
    const char *headers;
    bool payload;
    const char *name;
} opcodes[] = {
    { 0x00, "", true, "RC SEND First" },
    { 0x01, "", true, "RC SEND Middle" },
    { 0x02, "", true, "RC SEND Last" },
    { 0x03, "I", true, "RC SEND Last with Immediate" },
    { 0x04, "", true, "RC SEND Only" },
    { 0x05, "I", true, "RC SEND Only with Immediate" },
    { 0x06, "R", true, "RC RDMA WRITE First" },
    { 0x07, "", true, "RC RDMA WRITE Middle" },
    { 0x08, "", true, "RC RDMA WRITE Last" },
    { 0x09, "I", true, "RC RDMA WRITE Last with Immediate" },
    { 0x0A, "R", true, "RC RDMA WRITE Only" },
    { 0x0B, "RI", true, "RC RDMA WRITE Only with Immediate" },
    { 0x0C, "R", false, "RC RDMA READ Request" },
    { 0x0D, "K", true, "RC RDMA READ response First" },
    { 0x0E, "", true, "RC RDMA READ response Middle" },
    { 0x0F, "K", true, "RC RDMA READ response Last" },
    { 0x10, "K", true, "RC RDMA READ response Only" },
    { 0x11, "K", false, "RC Acknowledge" },
    { 0x12, "KO", false, "RC ATOMIC Acknowledge" },
    { 0x13, "A", false, "RC CmpSwap" },
    { 0x14, "A", false, "RC FetchAdd" },
    { 0x20, "", true, "UC SEND First" },
    { 0x21, "", true, "UC SEND Middle" },
    { 0x22, "", true, "UC SEND Last" },
    { 0x23, "I", true, "UC SEND Last with Immediate" },
    { 0x24, "", true, "UC SEND Only" },
    { 0x25, "I", true, "UC SEND Only with Immediate" },
    { 0x26, "R", true, "UC RDMA WRITE First" },
    { 0x27, "", true, "UC RDMA WRITE Middle" },
    { 0x28, "", true, "UC RDMA WRITE Last" },
    { 0x29, "I", true, "UC RDMA WRITE Last with Immediate" },
    { 0x2A, "R", true, "UC RDMA WRITE Only" },
    { 0x2B, "RI", true, "UC RDMA WRITE Only with Immediate" },
    { 0x64, "D", true, "UD SEND Only" },
    { 0x65, "DI", true, "UD SEND Only with Immediate" },
};

static int opcode_index(unsigned opcode)
{
    for (size_t i = 0; i < G_N_ELEMENTS(opcodes); i++) {
        if (opcodes[i].opcode == opcode) {
            return i;
        }
    }
    return -1;
}

static size_t headers_length(const char *headers)
{
    size_t len = 0;

    for (; *headers; headers++) {
        switch (*headers) {
        case 'D':
            len += 8;
            break;
        case 'R':
            len += 16;
            break;
        case 'A':
            len += 28;
            break;
        case 'K':
        case 'I':
            len += 4;
            break;
        case 'O':
            len += 8;
            break;
        }
    }
    return len;
}

/* Parses a copy with nothing behind it, so that ASan sees a read too far. */
static IbPacketError parse(IbPacket *packet, const uint8_t *p, size_t len)
{
    uint8_t *copy = g_malloc(len ? len : 1);
    IbPacketError error;

    if (len) {
        memcpy(copy, p, len);
    }
    error = ib_packet_parse(packet, copy, len);
    g_free(copy);
    return error;
}

/* A packet of any opcode with @payload_len bytes, by its own arithmetic. */
static size_t build_raw(uint8_t *p, uint8_t opcode, bool grh,
                        size_t extended_len, size_t payload_len)
{
    size_t pad = (4 - payload_len % 4) % 4;
    size_t bth = 8 + (grh ? 40 : 0);
    size_t len = bth + 12 + extended_len + payload_len + pad + 4;

    memset(p, 0x5A, len);
    p[0] = 0x00;
    p[1] = grh ? 0x03 : 0x02;
    ib_put16(p + 4, len / 4);
    if (grh) {
        p[8] = 0x60;
        ib_put16(p + 12, len - 48);
        p[14] = 0x1B;
    }
    p[bth] = opcode;
    p[bth + 1] = pad << 4;
    return len;
}

static void test_every_opcode(void)
{
    uint8_t p[IB_PACKET_MAX + 64];
    IbPacket packet;

    for (unsigned opcode = 0; opcode < 256; opcode++) {
        int index = opcode_index(opcode);
        const char *h = index < 0 ? "" : opcodes[index].headers;
        size_t ext = headers_length(h);

        for (int grh = 0; grh <= 1; grh++) {
            size_t want_header = (grh ? 60 : 20) + ext;
            size_t len = build_raw(p, opcode, grh, ext, 0);

            if (index < 0) {
                g_assert_cmpint(parse(&packet, p, len), ==,
                                IB_PACKET_BAD_OPCODE);
                g_assert_cmpstr(ib_opcode_name(opcode), ==, "reserved");
                continue;
            }
            g_assert_cmpstr(ib_opcode_name(opcode), ==, opcodes[index].name);
            g_assert_cmpint(parse(&packet, p, len), ==, IB_PACKET_OK);
            g_assert_cmpuint(packet.header_len, ==, want_header);
            g_assert_cmpuint(packet.payload_len, ==, 0);
            g_assert_cmpint(packet.has_grh, ==, grh);
            g_assert_cmpint(packet.has_deth, ==, !!strchr(h, 'D'));
            g_assert_cmpint(packet.has_reth, ==, !!strchr(h, 'R'));
            g_assert_cmpint(packet.has_atomic, ==, !!strchr(h, 'A'));
            g_assert_cmpint(packet.has_aeth, ==, !!strchr(h, 'K'));
            g_assert_cmpint(packet.has_imm, ==, !!strchr(h, 'I'));
            g_assert_cmphex(packet.atomic_ack, ==,
                            strchr(h, 'O') ? 0x5A5A5A5A5A5A5A5A : 0);

            /* Every shorter length, with an LRH that tells the same lie. */
            for (size_t cut = 0; cut < len; cut++) {
                uint8_t q[128];

                memcpy(q, p, len);
                g_assert_cmpint(parse(&packet, q, cut), !=, IB_PACKET_OK);
                if (cut >= 8 && cut % 4 == 0) {
                    ib_put16(q + 4, cut / 4);
                    if (grh && cut >= 48) {
                        ib_put16(q + 12, cut - 48);
                    }
                    g_assert_cmpint(parse(&packet, q, cut), ==,
                                    IB_PACKET_TOO_SHORT);
                }
            }

            /* Payloads of each pad count, the longest, and one too long. */
            for (size_t payload = 1; payload <= 5; payload++) {
                len = build_raw(p, opcode, grh, ext, payload);
                g_assert_cmpint(parse(&packet, p, len), ==,
                                opcodes[index].payload ? IB_PACKET_OK
                                : IB_PACKET_TOO_LONG);
                if (opcodes[index].payload) {
                    g_assert_cmpuint(packet.payload_len, ==, payload);
                    g_assert_cmpuint(packet.header_len, ==, want_header);
                }
            }
            if (opcodes[index].payload) {
                len = build_raw(p, opcode, grh, ext, IB_MTU_MAX);
                g_assert_cmpint(parse(&packet, p, len), ==, IB_PACKET_OK);
                g_assert_cmpuint(packet.payload_len, ==, IB_MTU_MAX);
                len = build_raw(p, opcode, grh, ext, IB_MTU_MAX + 1);
                g_assert_cmpint(parse(&packet, p, len), ==,
                                IB_PACKET_TOO_LONG);
            }
        }
    }
}

static void test_parser_errors(void)
{
    uint8_t good[128], p[IB_PACKET_MAX + 8];
    size_t len = build_raw(good, 0x04, false, 0, 8);
    size_t grh_len;
    uint8_t good_grh[128];
    IbPacket packet;

    g_assert_cmpint(parse(&packet, good, len), ==, IB_PACKET_OK);
    memcpy(p, good, len);
    p[0] = 0x01;
    g_assert_cmpint(parse(&packet, p, len), ==, IB_PACKET_BAD_LVER);
    memcpy(p, good, len);
    ib_put16(p + 4, len / 4 + 1);
    g_assert_cmpint(parse(&packet, p, len), ==, IB_PACKET_BAD_LENGTH);
    /* Reserved bits above the 11 of the length are not part of it. */
    ib_put16(p + 4, 0xF800 | len / 4);
    g_assert_cmpint(parse(&packet, p, len), ==, IB_PACKET_OK);
    memcpy(p, good, len);
    p[1] = 0x00;
    g_assert_cmpint(parse(&packet, p, len), ==, IB_PACKET_RAW);
    p[1] = 0x01;
    g_assert_cmpint(parse(&packet, p, len), ==, IB_PACKET_RAW);
    memcpy(p, good, len);
    p[9] |= 0x01;
    g_assert_cmpint(parse(&packet, p, len), ==, IB_PACKET_BAD_TVER);
    memcpy(p, good, len);
    p[8] = 0x44;        /* RD SEND Only */
    g_assert_cmpint(parse(&packet, p, len), ==, IB_PACKET_BAD_OPCODE);
    len = build_raw(p, 0x04, false, 0, 0);
    p[9] = 0x10;        /* one pad byte and nothing to pad */
    g_assert_cmpint(parse(&packet, p, len), ==, IB_PACKET_BAD_PAD);

    grh_len = build_raw(good_grh, 0x04, true, 0, 8);
    g_assert_cmpint(parse(&packet, good_grh, grh_len), ==, IB_PACKET_OK);
    memcpy(p, good_grh, grh_len);
    p[8] = 0x40;
    g_assert_cmpint(parse(&packet, p, grh_len), ==, IB_PACKET_BAD_GRH);
    memcpy(p, good_grh, grh_len);
    p[14] = 0x11;
    g_assert_cmpint(parse(&packet, p, grh_len), ==, IB_PACKET_BAD_GRH);
    memcpy(p, good_grh, grh_len);
    p[13]++;
    g_assert_cmpint(parse(&packet, p, grh_len), ==, IB_PACKET_BAD_GRH);

    memset(p, 0, sizeof(p));
    g_assert_cmpint(parse(&packet, p, sizeof(p)), ==, IB_PACKET_TOO_LONG);
    g_assert_cmpint(parse(&packet, p, 0), ==, IB_PACKET_TOO_SHORT);
    g_assert_cmpstr(ib_packet_error_name(IB_PACKET_BAD_ICRC), ==,
                    "ICRC wrong");
}

/* Bits that routers and switches may change, so no ICRC covers them. */
static bool is_variant(bool grh, size_t byte, unsigned bit)
{
    if (!grh) {
        return (byte == 0 && bit >= 4) || byte == 12;
    }
    return byte < 8 || (byte == 8 && bit < 4) || (byte >= 9 && byte < 12) ||
           byte == 15 || byte == 52;
}

static void test_icrc_covers(void)
{
    for (int grh = 0; grh <= 1; grh++) {
        uint8_t p[IB_PACKET_MAX];
        IbPacket packet = {
            .lrh = { .vl = 3, .sl = 4, .dlid = 5, .slid = 6 },
            .has_grh = grh,
            .grh = { .hop_limit = 7, .flow_label = 8, .traffic_class = 9 },
            .bth = { .opcode = 0x04, .pkey = 0xFFFF, .dest_qpn = 77 },
        };
        size_t header_len = ib_packet_put_headers(p, &packet, 21), len;

        for (unsigned i = 0; i < 21; i++) {
            p[header_len + i] = i * 37;
        }
        len = ib_packet_finish(p, header_len, 21);
        g_assert_true(ib_icrc_ok(p, len));
        for (size_t byte = 0; byte < len; byte++) {
            for (unsigned bit = 0; bit < 8; bit++) {
                /* LNH says what is covered: leave it alone. */
                if (byte == 1 && bit < 2) {
                    continue;
                }
                p[byte] ^= 1 << bit;
                g_assert_cmpint(ib_icrc_ok(p, len), ==,
                                is_variant(grh, byte, bit));
                p[byte] ^= 1 << bit;
            }
        }
        for (size_t cut = 0; cut < len; cut++) {
            g_assert_false(ib_icrc_ok(p, cut));
        }
    }
}

/*
 * VCRC as 7.8.2 words it: polynomial 0x100B, bits of a byte least significant
 * first, seed and result inverted; the remainder leaves in the same bit order.
 */
static uint16_t vcrc_bit_by_bit(const uint8_t *p, size_t len)
{
    unsigned reg = 0xFFFF, out = 0;

    for (size_t i = 0; i < len; i++) {
        for (unsigned bit = 0; bit < 8; bit++) {
            unsigned top = reg >> 15 ^ (p[i] >> bit & 1);

            reg = reg << 1 & 0xFFFF;
            if (top) {
                reg ^= 0x100B;
            }
        }
    }
    reg ^= 0xFFFF;
    /* Coefficient of x^15 first: it is bit 0 of the first byte. */
    for (unsigned bit = 0; bit < 16; bit++) {
        if (reg >> (15 - bit) & 1) {
            out |= 1u << (bit < 8 ? 8 + bit : bit - 8);
        }
    }
    return out;
}

static void test_vcrc(void)
{
    uint8_t p[64 + 2];
    size_t len = hex_bytes(p, sizeof(p), sample);
    GRand *rand = g_rand_new_with_seed(1);

    g_assert_cmphex(ib_vcrc(p, len), ==, vcrc_bit_by_bit(p, len));
    for (len = 0; len <= 64; len++) {
        for (size_t i = 0; i < len; i++) {
            p[i] = g_rand_int(rand);
        }
        g_assert_cmphex(ib_vcrc(p, len), ==, vcrc_bit_by_bit(p, len));
    }
    g_rand_free(rand);
}

static void test_psn_circle(void)
{
    static const struct {
        uint32_t a, b;
        int32_t diff;
    } cases[] = {
        { 0, 0, 0 },
        { 1, 0, 1 },
        { 0, 1, -1 },
        { 0, 0xFFFFFF, 1 },
        { 0xFFFFFF, 0, -1 },
        { 0x7FFFFF, 0, 0x7FFFFF },
        { 0x800000, 0, -0x800000 },
        { 5, 0xFFFFF0, 21 },
        { 0xFFFFF0, 5, -21 },
        { 0x1000003, 1, 2 },       /* bits above the 24 do not count */
    };

    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_assert_cmpint(ib_psn_diff(cases[i].a, cases[i].b), ==,
                        cases[i].diff);
    }
}

static void test_pkey_match(void)
{
    static const struct {
        uint16_t a, b;
        bool match;
    } cases[] = {
        { 0xFFFF, 0xFFFF, true },
        { 0xFFFF, 0x7FFF, true },
        { 0x7FFF, 0xFFFF, true },
        { 0x7FFF, 0x7FFF, false },     /* limited members do not talk */
        { 0x8001, 0x8001, true },
        { 0x8001, 0x0001, true },
        { 0x8001, 0x8002, false },
        { 0x0000, 0x0000, false },
        { 0x8000, 0x8000, false },     /* base 0 is no P_Key */
        { 0x8000, 0x0000, false },
    };

    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_assert_cmpint(ib_pkey_match(cases[i].a, cases[i].b), ==,
                        cases[i].match);
    }
}

static void test_small_numbers(void)
{
    static const unsigned mtu[] = { 0, 256, 512, 1024, 2048, 4096, 0, 0 };

    for (unsigned code = 0; code < G_N_ELEMENTS(mtu); code++) {
        g_assert_cmpuint(ib_mtu_bytes(code), ==, mtu[code]);
    }
    g_assert_false(ib_lid_is_unicast(0));
    g_assert_true(ib_lid_is_unicast(1));
    g_assert_true(ib_lid_is_unicast(0xBFFF));
    g_assert_false(ib_lid_is_unicast(0xC000));
    g_assert_true(ib_lid_is_multicast(0xC000));
    g_assert_true(ib_lid_is_multicast(0xFFFE));
    g_assert_false(ib_lid_is_multicast(0xFFFF));
    g_assert_false(ib_lid_is_unicast(0xFFFF));
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/packet/sample", test_sample_packet);
    g_test_add_func("/packet/sample-rebuilt", test_sample_rebuilt);
    g_test_add_func("/packet/headers", test_headers);
    g_test_add_func("/packet/every-opcode", test_every_opcode);
    g_test_add_func("/packet/parser-errors", test_parser_errors);
    g_test_add_func("/packet/icrc-covers", test_icrc_covers);
    g_test_add_func("/packet/vcrc", test_vcrc);
    g_test_add_func("/packet/psn-circle", test_psn_circle);
    g_test_add_func("/packet/pkey-match", test_pkey_match);
    g_test_add_func("/packet/small-numbers", test_small_numbers);
    return g_test_run();
}
