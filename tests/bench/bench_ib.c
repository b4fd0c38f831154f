/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the wire library costs on this machine: ns per operation, median of
 * several runs.  Prints, judges nothing.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ib/clock.h"
#include "ib/mad.h"
#include "ib/packet.h"
#include "ib/ring.h"
#include "ib/sma.h"

#define RUNS 9
#define PAYLOAD 4096

static uint8_t packet[IB_PACKET_MAX], out[IB_PACKET_MAX];
static size_t packet_len;
static IbRingShared *shared;
static IbRing tx, rx;
static IbSma sma;
static unsigned sink;

static size_t build(uint8_t *p, size_t payload, bool finish)
{
    IbPacket h = {
        .lrh = { .dlid = 2, .slid = 3 },
        .bth = { .opcode = IB_OP_SEND_MIDDLE, .migreq = true, .pkey = 0xFFFF,
                 .dest_qpn = 0x123, .psn = 0x456 },
    };
    size_t header_len = ib_packet_put_headers(p, &h, payload);

    return finish ? ib_packet_finish(p, header_len, payload)
                  : header_len + payload + IB_ICRC_LEN;
}

static void bench_icrc(void)
{
    sink += ib_icrc(packet, packet_len - IB_ICRC_LEN);
}

static void bench_vcrc(void)
{
    sink += ib_vcrc(packet, packet_len);
}

static void bench_headers(void)
{
    IbPacket h;

    sink += build(out, PAYLOAD, false);
    sink += ib_packet_parse(&h, out, packet_len);
}

static void bench_small(void)
{
    IbPacket h;
    size_t len = build(out, 64, true);

    sink += ib_packet_parse(&h, out, len);
    sink += ib_icrc_ok(out, len);
}

static void ring_once(size_t len)
{
    uint8_t *slot = ib_ring_reserve(&tx);
    const uint8_t *p;
    uint32_t got;

    memcpy(slot, packet, len);
    sink += ib_ring_commit(&tx, len);
    p = ib_ring_peek(&rx, &got);
    memcpy(out, p, got);
    sink += ib_ring_consume(&rx);
}

static void bench_ring_4k(void)
{
    ring_once(packet_len);
}

static void bench_ring_64(void)
{
    ring_once(64);
}

static void bench_ring_empty(void)
{
    const uint8_t *p;
    uint32_t got;

    sink += ib_ring_reserve(&tx)[0];
    sink += ib_ring_commit(&tx, 64);
    p = ib_ring_peek(&rx, &got);
    sink += p[0];
    sink += ib_ring_consume(&rx);
}

static void bench_whole_way(void)
{
    uint8_t *slot = ib_ring_reserve(&tx);
    const uint8_t *p;
    uint32_t got;
    IbPacket h;
    size_t header_len = 20, len;

    len = build(slot, PAYLOAD, false);
    memcpy(slot + header_len, packet + header_len, PAYLOAD);
    len = ib_packet_finish(slot, header_len, PAYLOAD);
    sink += ib_ring_commit(&tx, len);
    p = ib_ring_peek(&rx, &got);
    sink += ib_packet_parse(&h, p, got);
    memcpy(out, p, got);
    sink += ib_icrc_ok(out, got);
    sink += ib_ring_consume(&rx);
}

static void bench_smp(void)
{
    const IbMadAddress from = { .slid = 1, .dlid = 2 };
    const IbSmp smp = { .hdr = { .base_version = 1, .mgmt_class = 1,
                                 .class_version = 1, .method = 1,
                                 .attr_id = IB_SM_PORT_INFO,
                                 .attr_mod = 1 } };
    IbMadAddress to;
    unsigned port;

    ib_smp_pack(out, &smp);
    sink += ib_sma_receive(&sma, 1, &from, out, &port, &to);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static void measure(const char *name, void (*fn)(void), unsigned times)
{
    double ns[RUNS];
    IbClock clock;

    ib_clock_init_real(&clock);
    for (unsigned run = 0; run < RUNS; run++) {
        int64_t start = ib_clock_now(&clock);

        for (unsigned i = 0; i < times; i++) {
            fn();
            __asm__ volatile("" ::: "memory");
        }
        ns[run] = (double)(ib_clock_now(&clock) - start) / times;
    }
    ib_clock_fini(&clock);
    qsort(ns, RUNS, sizeof(ns[0]), compare);
    printf("%-44s %8.1f ns\n", name, ns[RUNS / 2]);
}

int main(void)
{
    static const IbSmaOps ops;
    IbClock clock;

    for (size_t i = 0; i < sizeof(packet); i++) {
        packet[i] = i * 31;
    }
    packet_len = build(packet, PAYLOAD, true);
    shared = aligned_alloc(64, sizeof(*shared));
    if (!shared) {
        return 1;
    }
    ib_ring_format(shared);
    ib_ring_init_producer(&tx, shared);
    ib_ring_init_consumer(&rx, shared);
    ib_clock_init_virtual(&clock);
    ib_sma_init(&sma, &clock, IB_NODE_CA, 1, 1, "bench", &ops, NULL);

    measure("ICRC of a 4 KiB packet", bench_icrc, 50000);
    measure("VCRC of a 4 KiB packet", bench_vcrc, 5000);
    measure("headers of a 4 KiB packet: build and parse", bench_headers,
            200000);
    measure("64-byte packet: build, ICRC, parse, check", bench_small, 200000);
    measure("ring, 4 KiB copied in and out", bench_ring_4k, 50000);
    measure("ring, 64 bytes copied in and out", bench_ring_64, 200000);
    measure("ring, no copy", bench_ring_empty, 200000);
    measure("4 KiB: build, copy, ICRC, ring, parse, check", bench_whole_way,
            20000);
    measure("SMA: Get(PortInfo)", bench_smp, 50000);
    ib_sma_fini(&sma);
    ib_clock_fini(&clock);
    free(shared);
    return sink == 0x12345678;
}
