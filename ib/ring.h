/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Packet ring: single producer, single consumer, in memory that two
 * processes (or, in the simulator, two objects) share.
 *
 * Theory of operation: IB_RING_SLOTS slots hold one packet each, as on the
 * wire from LRH to ICRC (no VCRC: it belongs to a physical link).  head
 * counts packets produced, tail packets consumed; both run free.  A full ring
 * is what InfiniBand calls "no credits": the producer waits, nothing is lost.
 *
 * Wake-ups cost more than copies, so a side that is about to sleep says so
 * (consumer_waits / producer_waits) and only then must the other side kick
 * it (ib_link_kick()).  ib_ring_commit() and ib_ring_consume() return true when a
 * kick is due; callers collect and kick once per batch.
 *
 * Each side keeps its own counter privately in its IbRing, reads the other's
 * from shared memory and distrusts it: a counter or a length that cannot be
 * marks the ring broken; from then on it is full for its producer and empty
 * for its consumer.  A consumer must also expect the bytes of a slot
 * to change under its eyes until it consumes it: copy what you check.
 */
#ifndef IB_RING_H
#define IB_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "packet.h"

#define IB_RING_SLOTS 128u
#define IB_RING_SLOT_SIZE 4352u
#define IB_RING_DATA_MAX (IB_RING_SLOT_SIZE - 64u)

typedef struct IbRingSlot {
    uint32_t len;
    uint8_t pad[60];
    uint8_t data[IB_RING_DATA_MAX];
} IbRingSlot;

typedef struct IbRingShared {
    _Alignas(64) uint32_t head;
    uint32_t producer_waits;
    _Alignas(64) uint32_t tail;
    uint32_t consumer_waits;
    _Alignas(64) IbRingSlot slots[IB_RING_SLOTS];
} IbRingShared;

_Static_assert(sizeof(IbRingSlot) == IB_RING_SLOT_SIZE, "slot layout");
_Static_assert(IB_RING_DATA_MAX >= IB_PACKET_MAX, "a packet fits a slot");

/* One end of a ring: used by its producer only or by its consumer only. */
typedef struct IbRing {
    IbRingShared *shared;
    uint32_t mine;           /* own counter: head or tail */
    uint32_t theirs;         /* last believable value of the other's */
    bool broken;             /* the other side wrote what cannot be */
} IbRing;

/* Zeroes the shared part; done once, by who made the memory. */
void ib_ring_format(IbRingShared *shared);
void ib_ring_init_producer(IbRing *ring, IbRingShared *shared);
void ib_ring_init_consumer(IbRing *ring, IbRingShared *shared);

/* Producer: room for a packet of up to IB_RING_DATA_MAX, NULL when full. */
uint8_t *ib_ring_reserve(IbRing *ring);
/* Free slots (0 when full or broken). */
uint32_t ib_ring_room(IbRing *ring);
/* Publishes the reserved slot with @len bytes; true: kick the consumer. */
bool ib_ring_commit(IbRing *ring, uint32_t len);
/*
 * Producer says that it waits for room; false: there is room already (the
 * flag is cleared again).
 */
bool ib_ring_producer_sleep(IbRing *ring);

/* Consumer: next packet, not consumed yet; NULL when empty. */
const uint8_t *ib_ring_peek(IbRing *ring, uint32_t *len);
/* Gives the peeked slot back; true: kick the producer. */
bool ib_ring_consume(IbRing *ring);
/* Consumer says that it is about to sleep; false: look again first. */
bool ib_ring_consumer_sleep(IbRing *ring);
/* Consumer is awake again (optional: spares the producer needless kicks). */
void ib_ring_consumer_awake(IbRing *ring);

#endif
