/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Packet ring in shared memory.  ring.h has the theory of operation; here is
 * the reasoning about memory order:
 *
 * - A slot's bytes are written before head (release) and read after head
 *   (acquire); the same with tail for giving slots back.
 * - Falling asleep is Dekker's algorithm: the sleeper writes its flag, then
 *   reads the counter; the waker writes the counter, then reads the flag.
 *   Both have a full fence in between, so at least one sees the other.
 * - Whoever kicks clears the flag, so that one sleep costs one kick.
 */
#include <string.h>

#include "ib/ring.h"

#define SLOT_MASK (IB_RING_SLOTS - 1)

_Static_assert((IB_RING_SLOTS & SLOT_MASK) == 0, "slots: a power of two");

void ib_ring_format(IbRingShared *shared)
{
    memset(shared, 0, sizeof(*shared));
}

static void ring_init(IbRing *ring, IbRingShared *shared)
{
    ring->shared = shared;
    ring->mine = 0;
    ring->theirs = 0;
    ring->broken = false;
}

void ib_ring_init_producer(IbRing *ring, IbRingShared *shared)
{
    ring_init(ring, shared);
}

void ib_ring_init_consumer(IbRing *ring, IbRingShared *shared)
{
    ring_init(ring, shared);
}

/* Sleeper's half of Dekker: the flag is out before the counter is read. */
static void flag_raise(uint32_t *flag)
{
    __atomic_store_n(flag, 1, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

/* Waker's half: the counter is out before the flag is read. */
static bool flag_take(uint32_t *flag)
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (!__atomic_load_n(flag, __ATOMIC_RELAXED)) {
        return false;
    }
    return __atomic_exchange_n(flag, 0, __ATOMIC_RELAXED) != 0;
}

/* Producer: reads tail; it may only move towards head, never beyond. */
static void producer_refresh(IbRing *ring)
{
    uint32_t tail = __atomic_load_n(&ring->shared->tail, __ATOMIC_ACQUIRE);

    if (ring->mine - tail > ring->mine - ring->theirs) {
        ring->broken = true;
        return;
    }
    ring->theirs = tail;
}

/* Consumer: reads head; it may only move away, at most a ring's length. */
static void consumer_refresh(IbRing *ring)
{
    uint32_t head = __atomic_load_n(&ring->shared->head, __ATOMIC_ACQUIRE);

    if (head - ring->mine > IB_RING_SLOTS ||
        head - ring->mine < ring->theirs - ring->mine) {
        ring->broken = true;
        return;
    }
    ring->theirs = head;
}

uint32_t ib_ring_room(IbRing *ring)
{
    if (!ring->broken) {
        producer_refresh(ring);
    }
    return ring->broken ? 0 : IB_RING_SLOTS - (ring->mine - ring->theirs);
}

uint8_t *ib_ring_reserve(IbRing *ring)
{
    if (ring->broken) {
        return NULL;
    }
    if (ring->mine - ring->theirs == IB_RING_SLOTS &&
        ib_ring_room(ring) == 0) {
        return NULL;
    }
    return ring->shared->slots[ring->mine & SLOT_MASK].data;
}

bool ib_ring_commit(IbRing *ring, uint32_t len)
{
    if (ring->broken || len == 0 || len > IB_RING_DATA_MAX ||
        ring->mine - ring->theirs == IB_RING_SLOTS) {
        return false;
    }
    __atomic_store_n(&ring->shared->slots[ring->mine & SLOT_MASK].len, len,
                     __ATOMIC_RELAXED);
    ring->mine++;
    __atomic_store_n(&ring->shared->head, ring->mine, __ATOMIC_RELEASE);
    return flag_take(&ring->shared->consumer_waits);
}

bool ib_ring_producer_sleep(IbRing *ring)
{
    if (ring->broken) {
        return true;
    }
    flag_raise(&ring->shared->producer_waits);
    if (ib_ring_room(ring) == 0) {
        return true;
    }
    __atomic_store_n(&ring->shared->producer_waits, 0, __ATOMIC_RELAXED);
    return false;
}

const uint8_t *ib_ring_peek(IbRing *ring, uint32_t *len)
{
    IbRingSlot *slot;
    uint32_t slot_len;

    if (ring->broken) {
        return NULL;
    }
    if (ring->mine == ring->theirs) {
        consumer_refresh(ring);
        if (ring->broken || ring->mine == ring->theirs) {
            return NULL;
        }
    }
    slot = &ring->shared->slots[ring->mine & SLOT_MASK];
    slot_len = __atomic_load_n(&slot->len, __ATOMIC_RELAXED);
    if (slot_len == 0 || slot_len > IB_RING_DATA_MAX) {
        ring->broken = true;
        return NULL;
    }
    *len = slot_len;
    return slot->data;
}

bool ib_ring_consume(IbRing *ring)
{
    if (ring->broken || ring->mine == ring->theirs) {
        return false;
    }
    ring->mine++;
    __atomic_store_n(&ring->shared->tail, ring->mine, __ATOMIC_RELEASE);
    return flag_take(&ring->shared->producer_waits);
}

bool ib_ring_consumer_sleep(IbRing *ring)
{
    if (ring->broken) {
        return true;
    }
    flag_raise(&ring->shared->consumer_waits);
    if (ring->mine == ring->theirs) {
        consumer_refresh(ring);
    }
    if (ring->broken || ring->mine == ring->theirs) {
        return true;
    }
    ib_ring_consumer_awake(ring);
    return false;
}

void ib_ring_consumer_awake(IbRing *ring)
{
    if (__atomic_load_n(&ring->shared->consumer_waits, __ATOMIC_RELAXED)) {
        __atomic_store_n(&ring->shared->consumer_waits, 0, __ATOMIC_RELAXED);
    }
}
