/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The other side of a ring scribbles over counters, flags and lengths while
 * this side produces and consumes.  No access outside the ring, no endless
 * loop, broken stays broken; a packet that is taken has a length that fits.
 */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "ib/bytes.h"
#include "ib/ring.h"

static void scribble(IbRingShared *shared, FuzzInput *in)
{
    uint8_t what = fuzz_byte(in);
    uint32_t value = fuzz_u32(in);

    switch (what & 7) {
    case 0:
        shared->head = value;
        break;
    case 1:
        shared->tail = value;
        break;
    case 2:
        shared->consumer_waits = value;
        break;
    case 3:
        shared->producer_waits = value;
        break;
    case 4:
        shared->head += value & 0x8F;
        break;
    case 5:
        shared->tail += value & 0x8F;
        break;
    default:
        shared->slots[value % IB_RING_SLOTS].len = value >> 8;
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static IbRingShared *shared;
    FuzzInput in = { .data = data, .left = size };
    IbRing producer, consumer;
    uint8_t sum = 0;

    if (!shared) {
        shared = aligned_alloc(64, sizeof(*shared));
        if (!shared) {
            abort();
        }
    }
    memset(shared, 0, offsetof(IbRingShared, slots));
    for (unsigned i = 0; i < IB_RING_SLOTS; i++) {
        shared->slots[i].len = 0;
    }
    ib_ring_init_producer(&producer, shared);
    ib_ring_init_consumer(&consumer, shared);
    while (in.left) {
        uint8_t command = fuzz_byte(&in);
        bool was_broken = producer.broken || consumer.broken;
        const uint8_t *packet;
        uint32_t len = 0;
        uint8_t *slot;

        switch (command & 7) {
        case 0:
        case 1:
            slot = ib_ring_reserve(&producer);
            if (slot) {
                FUZZ_ASSERT(!producer.broken);
                slot[0] = slot[IB_RING_DATA_MAX - 1] = command;
                (void)ib_ring_commit(&producer, fuzz_u32(&in) & 0x1FFF);
            }
            break;
        case 2:
        case 3:
            packet = ib_ring_peek(&consumer, &len);
            if (packet) {
                FUZZ_ASSERT(len >= 1 && len <= IB_RING_DATA_MAX);
                sum += packet[0] + packet[len - 1];
                (void)ib_ring_consume(&consumer);
            }
            break;
        case 4:
            FUZZ_ASSERT(ib_ring_room(&producer) <= IB_RING_SLOTS);
            break;
        case 5:
            (void)ib_ring_producer_sleep(&producer);
            (void)ib_ring_consumer_sleep(&consumer);
            break;
        case 6:
            ib_ring_consumer_awake(&consumer);
            (void)ib_ring_consume(&consumer);
            break;
        case 7:
            scribble(shared, &in);
            break;
        }
        FUZZ_ASSERT(!was_broken || producer.broken || consumer.broken);
        FUZZ_ASSERT(!producer.broken || !ib_ring_reserve(&producer));
        FUZZ_ASSERT(!consumer.broken || !ib_ring_peek(&consumer, &len));
    }
    return sum == 1 ? 0 : 0;
}

size_t fuzz_seed(unsigned index, uint8_t *buf)
{
    size_t at = 0;

    if (index >= 8) {
        return 0;
    }
    for (unsigned i = 0; i < 200; i++) {
        buf[at++] = i % (index + 2) == 0 ? 2 : 0;
        if (buf[at - 1] == 0) {
            ib_put32(buf + at, 64 + i);
            at += 4;
        }
        if (i % 50 == 49) {
            buf[at++] = 7;
            buf[at++] = index;
            ib_put32(buf + at, index < 4 ? i : 1);
            at += 4;
        }
    }
    return at;
}
