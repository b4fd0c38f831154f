/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Packet ring: order, fullness, wake-ups, a peer that writes nonsense, and
 * two threads that sleep on eventfds (a lost wake-up hangs the test).
 */
#include <errno.h>
#include <glib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "ib/ring.h"

typedef struct Pair {
    IbRingShared *shared;
    IbRing producer, consumer;
} Pair;

static void pair_init(Pair *pair)
{
    pair->shared = g_aligned_alloc0(1, sizeof(IbRingShared), 64);
    memset(pair->shared, 0xA5, sizeof(IbRingShared));
    ib_ring_format(pair->shared);
    ib_ring_init_producer(&pair->producer, pair->shared);
    ib_ring_init_consumer(&pair->consumer, pair->shared);
}

static void pair_fini(Pair *pair)
{
    g_aligned_free(pair->shared);
}

static bool put(Pair *pair, uint8_t value, uint32_t len)
{
    uint8_t *slot = ib_ring_reserve(&pair->producer);

    g_assert_nonnull(slot);
    memset(slot, value, len);
    return ib_ring_commit(&pair->producer, len);
}

static void expect(Pair *pair, uint8_t value, uint32_t len)
{
    uint32_t got_len = 0;
    const uint8_t *p = ib_ring_peek(&pair->consumer, &got_len);

    g_assert_nonnull(p);
    g_assert_cmpuint(got_len, ==, len);
    g_assert_cmpuint(p[0], ==, value);
    g_assert_cmpuint(p[len - 1], ==, value);
}

static void test_order_and_room(void)
{
    uint32_t len;
    Pair pair;

    pair_init(&pair);
    g_assert_null(ib_ring_peek(&pair.consumer, &len));
    g_assert_false(ib_ring_consume(&pair.consumer));
    for (unsigned round = 0; round < 5; round++) {
        g_assert_cmpuint(ib_ring_room(&pair.producer), ==, IB_RING_SLOTS);
        for (unsigned i = 0; i < IB_RING_SLOTS; i++) {
            g_assert_false(put(&pair, i + round, 24 + i * 32));
            g_assert_cmpuint(ib_ring_room(&pair.producer), ==,
                             IB_RING_SLOTS - 1 - i);
        }
        g_assert_null(ib_ring_reserve(&pair.producer));
        g_assert_false(ib_ring_commit(&pair.producer, 24));
        /* One slot given back is one packet of room. */
        expect(&pair, round, 24);
        expect(&pair, round, 24);           /* peek does not consume */
        g_assert_false(ib_ring_consume(&pair.consumer));
        g_assert_cmpuint(ib_ring_room(&pair.producer), ==, 1);
        put(&pair, 0xEE, IB_RING_DATA_MAX);
        g_assert_null(ib_ring_reserve(&pair.producer));
        for (unsigned i = 1; i < IB_RING_SLOTS; i++) {
            expect(&pair, i + round, 24 + i * 32);
            ib_ring_consume(&pair.consumer);
        }
        expect(&pair, 0xEE, IB_RING_DATA_MAX);
        ib_ring_consume(&pair.consumer);
        g_assert_null(ib_ring_peek(&pair.consumer, &len));
    }
    g_assert_false(pair.producer.broken || pair.consumer.broken);
    pair_fini(&pair);
}

static void test_own_lengths(void)
{
    uint32_t len;
    Pair pair;

    pair_init(&pair);
    g_assert_nonnull(ib_ring_reserve(&pair.producer));
    g_assert_false(ib_ring_commit(&pair.producer, 0));
    g_assert_false(ib_ring_commit(&pair.producer, IB_RING_DATA_MAX + 1));
    g_assert_null(ib_ring_peek(&pair.consumer, &len));
    pair_fini(&pair);
}

/* Counters run through zero. */
static void test_wrap(void)
{
    uint32_t len, start = UINT32_MAX - 5;
    Pair pair;

    pair_init(&pair);
    pair.shared->head = pair.shared->tail = start;
    pair.producer.mine = pair.producer.theirs = start;
    pair.consumer.mine = pair.consumer.theirs = start;
    for (unsigned i = 0; i < IB_RING_SLOTS; i++) {
        put(&pair, i, 100);
    }
    g_assert_null(ib_ring_reserve(&pair.producer));
    for (unsigned i = 0; i < IB_RING_SLOTS; i++) {
        expect(&pair, i, 100);
        ib_ring_consume(&pair.consumer);
    }
    g_assert_null(ib_ring_peek(&pair.consumer, &len));
    g_assert_cmpuint(pair.shared->head, ==, IB_RING_SLOTS - 6);
    pair_fini(&pair);
}

static void test_kicks(void)
{
    uint32_t len;
    Pair pair;

    pair_init(&pair);
    /* Nobody sleeps: no kicks.  A sleeping consumer: one. */
    g_assert_false(put(&pair, 1, 24));
    g_assert_false(ib_ring_consumer_sleep(&pair.consumer));
    g_assert_cmpuint(pair.shared->consumer_waits, ==, 0);
    g_assert_nonnull(ib_ring_peek(&pair.consumer, &len));
    g_assert_false(ib_ring_consume(&pair.consumer));
    g_assert_true(ib_ring_consumer_sleep(&pair.consumer));
    g_assert_true(put(&pair, 2, 24));
    g_assert_false(put(&pair, 3, 24));
    ib_ring_consume(&pair.consumer);
    g_assert_nonnull(ib_ring_peek(&pair.consumer, &len));
    ib_ring_consume(&pair.consumer);
    /* Awake again by itself: no kick. */
    while (ib_ring_peek(&pair.consumer, &len)) {
        ib_ring_consume(&pair.consumer);
    }
    g_assert_true(ib_ring_consumer_sleep(&pair.consumer));
    ib_ring_consumer_awake(&pair.consumer);
    g_assert_false(put(&pair, 4, 24));

    /* The producer's side: sleeps only when full. */
    g_assert_false(ib_ring_producer_sleep(&pair.producer));
    while (ib_ring_reserve(&pair.producer)) {
        put(&pair, 5, 24);
    }
    g_assert_true(ib_ring_producer_sleep(&pair.producer));
    g_assert_nonnull(ib_ring_peek(&pair.consumer, &len));
    g_assert_true(ib_ring_consume(&pair.consumer));
    g_assert_nonnull(ib_ring_peek(&pair.consumer, &len));
    g_assert_false(ib_ring_consume(&pair.consumer));
    g_assert_false(ib_ring_producer_sleep(&pair.producer));
    g_assert_cmpuint(pair.shared->producer_waits, ==, 0);
    pair_fini(&pair);
}

/* What the other side may write, and whether it can be. */
static void test_hostile_tail(void)
{
    static const struct {
        uint32_t tail;
        bool broken;
    } cases[] = {
        { 10, false },               /* all consumed */
        { 4, false },
        { 3, false },
        { 2, true },                 /* backwards: 3 were consumed before */
        { 11, true },                /* more than was produced */
        { 0x80000000, true },
        { UINT32_MAX, true },
    };

    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        Pair pair;

        pair_init(&pair);
        for (unsigned n = 0; n < 10; n++) {
            put(&pair, n, 24);
        }
        pair.shared->tail = 3;
        g_assert_cmpuint(ib_ring_room(&pair.producer), ==,
                         IB_RING_SLOTS - 7);
        pair.shared->tail = cases[i].tail;
        if (cases[i].broken) {
            g_assert_cmpuint(ib_ring_room(&pair.producer), ==, 0);
            pair.shared->tail = 10;          /* no way back */
            g_assert_cmpuint(ib_ring_room(&pair.producer), ==, 0);
            g_assert_null(ib_ring_reserve(&pair.producer));
            g_assert_false(ib_ring_commit(&pair.producer, 24));
            g_assert_true(ib_ring_producer_sleep(&pair.producer));
        } else {
            g_assert_cmpuint(ib_ring_room(&pair.producer), ==,
                             IB_RING_SLOTS - (10 - cases[i].tail));
        }
        g_assert_cmpint(pair.producer.broken, ==, cases[i].broken);
        pair_fini(&pair);
    }
}

static void test_hostile_head(void)
{
    static const struct {
        uint32_t head;
        bool broken;
    } cases[] = {
        { IB_RING_SLOTS, false },
        { 5, false },
        { IB_RING_SLOTS + 1, true }, /* more than the ring holds */
        { 0x80000000, true },
        { UINT32_MAX, true },        /* backwards */
    };

    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        uint32_t len;
        Pair pair;

        pair_init(&pair);
        put(&pair, 1, 24);
        pair.shared->head = cases[i].head;
        pair.shared->slots[0].len = 24;
        g_assert_cmpint(ib_ring_peek(&pair.consumer, &len) != NULL, ==,
                        !cases[i].broken);
        g_assert_cmpint(pair.consumer.broken, ==, cases[i].broken);
        if (cases[i].broken) {
            pair.shared->head = 1;
            g_assert_null(ib_ring_peek(&pair.consumer, &len));
            g_assert_false(ib_ring_consume(&pair.consumer));
            g_assert_true(ib_ring_consumer_sleep(&pair.consumer));
        }
        pair_fini(&pair);
    }
}

static void test_hostile_length(void)
{
    static const uint32_t lengths[] = {
        0, IB_RING_DATA_MAX + 1, IB_RING_SLOT_SIZE, 0x80000000, UINT32_MAX,
    };

    for (size_t i = 0; i < G_N_ELEMENTS(lengths); i++) {
        uint32_t len = 12345;
        Pair pair;

        pair_init(&pair);
        put(&pair, 1, 24);
        pair.shared->slots[0].len = lengths[i];
        g_assert_null(ib_ring_peek(&pair.consumer, &len));
        g_assert_cmpuint(len, ==, 12345);
        g_assert_true(pair.consumer.broken);
        pair_fini(&pair);
    }
}

/* --- Two threads --- */

#define STRESS_PACKETS 300000u

typedef struct Stress {
    Pair pair;
    int to_consumer, to_producer;
} Stress;

static void kick(int fd)
{
    uint64_t one = 1;

    g_assert_cmpint(write(fd, &one, sizeof(one)), ==, sizeof(one));
}

static void wait_kick(int fd)
{
    uint64_t count;

    while (read(fd, &count, sizeof(count)) < 0) {
        g_assert_cmpint(errno, ==, EINTR);
    }
}

static uint32_t stress_len(uint32_t i)
{
    return 8 + i * 2654435761u % 300;
}

static void *stress_producer(void *opaque)
{
    Stress *stress = opaque;

    for (uint32_t i = 0; i < STRESS_PACKETS; i++) {
        uint8_t *p;

        while (!(p = ib_ring_reserve(&stress->pair.producer))) {
            g_assert_false(stress->pair.producer.broken);
            if (ib_ring_producer_sleep(&stress->pair.producer)) {
                wait_kick(stress->to_producer);
            }
        }
        memset(p, i, stress_len(i));
        memcpy(p, &i, sizeof(i));
        if (ib_ring_commit(&stress->pair.producer, stress_len(i))) {
            kick(stress->to_consumer);
        }
        /* Short pauses make both sides fall asleep often. */
        if (i % 1000 == 0) {
            g_usleep(1);
        }
    }
    return NULL;
}

static void test_two_threads(void)
{
    Stress stress;
    GThread *thread;

    pair_init(&stress.pair);
    stress.to_consumer = eventfd(0, EFD_CLOEXEC);
    stress.to_producer = eventfd(0, EFD_CLOEXEC);
    thread = g_thread_new("producer", stress_producer, &stress);
    for (uint32_t i = 0; i < STRESS_PACKETS; i++) {
        const uint8_t *p;
        uint32_t len, number;

        while (!(p = ib_ring_peek(&stress.pair.consumer, &len))) {
            g_assert_false(stress.pair.consumer.broken);
            if (ib_ring_consumer_sleep(&stress.pair.consumer)) {
                wait_kick(stress.to_consumer);
            }
        }
        memcpy(&number, p, sizeof(number));
        g_assert_cmpuint(number, ==, i);
        g_assert_cmpuint(len, ==, stress_len(i));
        for (uint32_t k = sizeof(i); k < len; k++) {
            if (p[k] != (uint8_t)i) {
                g_error("packet %u byte %u is %02x", i, k, p[k]);
            }
        }
        if (ib_ring_consume(&stress.pair.consumer)) {
            kick(stress.to_producer);
        }
        if (i % 1777 == 0) {
            g_usleep(1);
        }
    }
    g_thread_join(thread);
    close(stress.to_consumer);
    close(stress.to_producer);
    pair_fini(&stress.pair);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/ring/order-and-room", test_order_and_room);
    g_test_add_func("/ring/own-lengths", test_own_lengths);
    g_test_add_func("/ring/wrap", test_wrap);
    g_test_add_func("/ring/kicks", test_kicks);
    g_test_add_func("/ring/hostile-tail", test_hostile_tail);
    g_test_add_func("/ring/hostile-head", test_hostile_head);
    g_test_add_func("/ring/hostile-length", test_hostile_length);
    g_test_add_func("/ring/two-threads", test_two_threads);
    return g_test_run();
}
