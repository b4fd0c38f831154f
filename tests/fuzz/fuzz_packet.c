/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Any bytes through the packet parser.  What it accepts must add up, and a
 * packet built from what it found must parse to the same again.
 */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "ib/packet.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t again[IB_PACKET_MAX];
    IbPacket packet, back;
    size_t header_len, len;
    IbPacketError error = ib_packet_parse(&packet, data, size);

    (void)ib_icrc_ok(data, size);
    (void)ib_vcrc(data, size);
    FUZZ_ASSERT(strcmp(ib_packet_error_name(error), "reserved"));
    if (error != IB_PACKET_OK) {
        return 0;
    }
    FUZZ_ASSERT((size_t)packet.header_len + packet.payload_len +
                packet.bth.pad_count + IB_ICRC_LEN == size);
    FUZZ_ASSERT(packet.header_len <= IB_HEADERS_MAX);
    FUZZ_ASSERT(packet.payload_len <= IB_MTU_MAX);
    FUZZ_ASSERT(strcmp(ib_opcode_name(packet.bth.opcode), "reserved"));

    back = packet;
    header_len = ib_packet_put_headers(again, &back, packet.payload_len);
    FUZZ_ASSERT(header_len == packet.header_len);
    memcpy(again + header_len, data + header_len, packet.payload_len);
    len = ib_packet_finish(again, header_len, packet.payload_len);
    /* A pad count beyond what is needed does not come back. */
    FUZZ_ASSERT(len <= size);
    FUZZ_ASSERT(ib_icrc_ok(again, len));
    FUZZ_ASSERT(ib_packet_parse(&back, again, len) == IB_PACKET_OK);
    back.lrh.length = packet.lrh.length;
    back.grh.payload_length = packet.grh.payload_length;
    back.bth.pad_count = packet.bth.pad_count;
    FUZZ_ASSERT(memcmp(&back.lrh, &packet.lrh, sizeof(back.lrh)) == 0);
    FUZZ_ASSERT(back.bth.psn == packet.bth.psn &&
                back.bth.dest_qpn == packet.bth.dest_qpn &&
                back.bth.migreq == packet.bth.migreq &&
                back.bth.opcode == packet.bth.opcode);
    FUZZ_ASSERT(back.imm == packet.imm && back.reth.va == packet.reth.va &&
                back.atomic.compare == packet.atomic.compare &&
                back.atomic_ack == packet.atomic_ack &&
                back.aeth.msn == packet.aeth.msn &&
                back.deth.src_qpn == packet.deth.src_qpn);
    FUZZ_ASSERT(back.payload_len == packet.payload_len);
    return 0;
}

size_t fuzz_seed(unsigned index, uint8_t *buf)
{
    static const uint8_t opcodes[] = {
        0x00, 0x03, 0x04, 0x06, 0x0B, 0x0C, 0x0D, 0x0E, 0x11, 0x12, 0x13,
        0x24, 0x2B, 0x64, 0x65,
    };
    unsigned opcode = opcodes[index / 2 % sizeof(opcodes)];
    unsigned op = opcode & IB_OP_MASK;
    size_t payload = op >= IB_OP_ACK || op == IB_OP_READ_REQUEST
                     ? 0 : index * 7;
    IbPacket packet = {
        .lrh = { .sl = 1, .dlid = 2, .slid = 3 },
        .has_grh = index & 1,
        .bth = { .opcode = opcode, .migreq = true, .pkey = 0xFFFF,
                 .dest_qpn = 0x123, .psn = 0x456 },
        .reth = { .va = 0x1000, .rkey = 5, .length = 64 },
        .aeth = { .syndrome = 0x1F, .msn = 9 },
    };
    size_t header_len;

    if (index >= 2 * sizeof(opcodes)) {
        return 0;
    }
    memset(buf, index, FUZZ_SEED_MAX);
    header_len = ib_packet_put_headers(buf, &packet, payload);
    return ib_packet_finish(buf, header_len, payload);
}
