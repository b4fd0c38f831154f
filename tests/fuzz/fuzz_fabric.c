/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Two hosts that write anything into their rings, around a switch with
 * routes; cables are pulled meanwhile.  What the honest third host gets is
 * well formed, and the fabric comes to rest.
 *
 * Input: operations of one byte each, with their operands behind.
 */
#include <string.h>

#include "fabric/fabric.h"
#include "fuzz.h"

#define MAX_OPS 400
#define MAX_RUNS 200
#define HOSTS 3

static const char text[] =
    "switch s ports=4\nhost a ports=1\nhost b ports=1\nhost c ports=1\n"
    "cable a a/1 s/1\ncable b b/1 s/2\ncable c c/1 s/3\n";

static void set_attribute(IbSma *sma, uint16_t attr, uint8_t *data)
{
    FUZZ_ASSERT(sma->ops->attribute(sma->opaque, 0, true, attr, 0, data));
}

/* Ports Active, LIDs 1 to 3 routed, a multicast group of all. */
static void configure(Fabric *fabric)
{
    IbSma *sma = (IbSma *)fabric_switch_sma(fabric, 0);
    uint8_t lft[64], mft[64];

    memset(lft, 0xFF, sizeof(lft));
    memset(mft, 0, sizeof(mft));
    for (unsigned p = 1; p <= HOSTS; p++) {
        sma->ports[p].info.state = IB_PORT_ACTIVE;
        lft[p] = p;
    }
    lft[4] = 0;
    lft[5] = 4;
    mft[1] = 0x1E;
    sma->ports[0].info.lid = 4;
    set_attribute(sma, IB_SM_LINEAR_FT, lft);
    set_attribute(sma, IB_SM_MCAST_FT, mft);
}

/* A packet that is good but for what the input changes in it. */
static void put_packet(FuzzInput *in, IbRingShared *ring)
{
    IbPacket packet = {
        .lrh = { .slid = 1, .dlid = 1 + fuzz_byte(in) % 6 },
        .bth = { .opcode = IB_TRANSPORT_UD | IB_OP_SEND_ONLY,
                 .pkey = IB_PKEY_DEFAULT, .dest_qpn = fuzz_byte(in) & 3 },
        .deth = { .qkey = IB_QKEY_QP1, .src_qpn = 1 },
    };
    IbRingSlot *slot = &ring->slots[ring->head % IB_RING_SLOTS];
    uint8_t flags = fuzz_byte(in);
    size_t header_len;

    if (flags & 1) {
        packet.lrh.dlid = IB_LID_MCAST_FIRST;
    }
    if (flags & 2) {
        packet.lrh.vl = IB_VL_MANAGEMENT;
        packet.bth.dest_qpn = 0;
        packet.lrh.dlid = flags & 4 ? IB_LID_PERMISSIVE : packet.lrh.dlid;
    }
    header_len = ib_packet_put_headers(slot->data, &packet, IB_MAD_LEN);
    for (unsigned i = 0; i < IB_MAD_LEN; i++) {
        slot->data[header_len + i] = i < 80 ? fuzz_byte(in) : 0;
    }
    slot->len = ib_packet_finish(slot->data, header_len, IB_MAD_LEN);
    for (unsigned n = flags >> 6; n; n--) {
        slot->data[fuzz_byte(in)] = fuzz_byte(in);
    }
    ring->head++;
}

static void drain(IbRing *rx)
{
    IbPacket packet;
    const uint8_t *p;
    uint32_t len;

    while ((p = ib_ring_peek(rx, &len))) {
        FUZZ_ASSERT(ib_packet_parse(&packet, p, len) == IB_PACKET_OK);
        ib_ring_consume(rx);
    }
    FUZZ_ASSERT(!rx->broken);
}

/* Packets of all kinds between things that happen to cables and rings. */
size_t fuzz_seed(unsigned index, uint8_t *buf)
{
    static const uint8_t flags[] = { 0, 1, 2, 6, 0x40, 0xC6 };
    static const uint8_t mads[][4] = {
        { 1, 0x81, 1, 1 }, { 1, 0x01, 1, 2 }, { 1, 0x04, 1, 1 },
        { 1, 0x07, 2, 3 }, { 1, 0x03, 2, 6 }, { 1, 0x01, 1, 5 },
    };
    size_t len = 0;

    if (index >= 6) {
        return 0;
    }
    for (unsigned i = 0; i < 40; i++) {
        buf[len++] = 0x39 | (i & 1) << 7;        /* put, run, drain */
        buf[len++] = i;                          /* DLID */
        buf[len++] = i % 3;                      /* QP */
        buf[len++] = flags[(i + index) % 6];
        memset(buf + len, 0, 80);
        memcpy(buf + len, mads[index], 4);
        buf[len + 7] = i % 4;                    /* hop count */
        buf[len + 17] = 0x10 + i % 16;           /* attribute */
        len += 80;
        if (i % 5 == 0) {
            buf[len++] = 3 + i / 5;
            buf[len++] = i;
            buf[len++] = i & 1;
        }
    }
    return len;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static IbLinkPortMemory memory[HOSTS];
    FuzzInput in = { data, size };
    FabricFault fault = { .delay = 0.5, .delay_ns = IB_MSEC, .drop = 0.1,
                          .duplicate = 0.2, .corrupt = 0.1 };
    Topology *topology;
    IbClock clock;
    Fabric *fabric;
    IbRing rx;
    char *error;

    topology = topology_parse("f", text, sizeof(text) - 1, &error);
    ib_clock_init_virtual(&clock);
    fabric = fabric_new(topology, &clock, 1, NULL, NULL);
    for (unsigned h = 0; h < HOSTS; h++) {
        IbLinkHello hello = { .num_ports = 1, .node_guid = h + 1,
                              .name = { 'a' + h } };
        IbLinkPortMemory *one[1] = { &memory[h] };

        ib_ring_format(&memory[h].to_fabric);
        ib_ring_format(&memory[h].to_node);
        FUZZ_ASSERT(fabric_node_attach(fabric, &hello, one, NULL, &error));
        fabric_node_enable(fabric, h + 1, 1, true);
    }
    ib_ring_init_consumer(&rx, &memory[2].to_node);
    configure(fabric);

    for (int op = 0; op < MAX_OPS && in.left; op++) {
        uint8_t what = fuzz_byte(&in), slot;
        IbLinkPortMemory *m = &memory[what >> 7];

        switch (what & 0xF) {
        case 0:
            m->to_fabric.head += fuzz_u32(&in);
            break;
        case 1:
            m->to_node.tail += fuzz_u32(&in);
            break;
        case 2:
            slot = fuzz_byte(&in) % IB_RING_SLOTS;
            m->to_fabric.slots[slot].len = fuzz_u32(&in);
            break;
        case 3:
            fabric_cable_set(fabric, fuzz_byte(&in) % 3, fuzz_byte(&in) & 1);
            break;
        case 4:
            fabric_node_enable(fabric, 1 + (what >> 7), 1, fuzz_byte(&in) & 1);
            break;
        case 5:
            fabric_cable_fault(fabric, fuzz_byte(&in) % 3, &fault);
            break;
        case 6:
            ib_clock_set(&clock, ib_clock_now(&clock) +
                                 fuzz_byte(&in) * 10 * IB_MSEC);
            ib_clock_run(&clock, 100);
            break;
        case 7:
            configure(fabric);
            break;
        case 8:
            m->to_node.tail = m->to_node.head;
            break;
        default:
            put_packet(&in, &m->to_fabric);
            break;
        }
        if (what & 0x10) {
            fabric_run(fabric, 64);
        }
        if (what & 0x20) {
            drain(&rx);
        }
    }

    /* It rests, with a deadline if something waits. */
    for (int i = 0; fabric_run(fabric, 1000); i++) {
        FUZZ_ASSERT(i < MAX_RUNS);
    }
    drain(&rx);
    fabric_prepare_sleep(fabric);
    for (int i = 1; i <= HOSTS; i++) {
        fabric_node_detach(fabric, i);
    }
    fabric_run(fabric, 1000);
    FUZZ_ASSERT(fabric_prepare_sleep(fabric));
    fabric_free(fabric);
    ib_clock_fini(&clock);
    topology_free(topology);
    return 0;
}
