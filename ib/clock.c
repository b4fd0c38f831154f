/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Clock and timers: a binary heap ordered by (deadline, order of setting).
 * See clock.h for how a clock is owned and driven.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ib/clock.h"

#define HEAP_FIRST_CAPACITY 16

void ib_clock_init_real(IbClock *clock)
{
    memset(clock, 0, sizeof(*clock));
}

void ib_clock_init_virtual(IbClock *clock)
{
    memset(clock, 0, sizeof(*clock));
    clock->is_virtual = true;
}

void ib_clock_fini(IbClock *clock)
{
    assert(clock->timers == 0);
    free(clock->heap);
    memset(clock, 0, sizeof(*clock));
}

int64_t ib_clock_now(IbClock *clock)
{
    struct timespec ts;

    if (clock->is_virtual) {
        return clock->virtual_ns;
    }
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec * IB_SEC + ts.tv_nsec;
}

int64_t ib_clock_deadline(const IbClock *clock)
{
    return clock->armed ? clock->heap[1]->deadline_ns : IB_CLOCK_NEVER;
}

void ib_clock_set(IbClock *clock, int64_t now_ns)
{
    assert(clock->is_virtual);
    if (now_ns > clock->virtual_ns) {
        clock->virtual_ns = now_ns;
    }
}

static bool fires_before(const IbTimer *a, const IbTimer *b)
{
    if (a->deadline_ns != b->deadline_ns) {
        return a->deadline_ns < b->deadline_ns;
    }
    return a->order < b->order;
}

static void heap_place(IbClock *clock, IbTimer *timer, size_t index)
{
    clock->heap[index] = timer;
    timer->heap_index = index;
}

/* Moves @timer from the hole at @index to where it belongs. */
static void heap_sift(IbClock *clock, IbTimer *timer, size_t index)
{
    while (index > 1 && fires_before(timer, clock->heap[index / 2])) {
        heap_place(clock, clock->heap[index / 2], index);
        index /= 2;
    }
    for (;;) {
        size_t child = index * 2;

        if (child > clock->armed) {
            break;
        }
        if (child < clock->armed &&
            fires_before(clock->heap[child + 1], clock->heap[child])) {
            child++;
        }
        if (!fires_before(clock->heap[child], timer)) {
            break;
        }
        heap_place(clock, clock->heap[child], index);
        index = child;
    }
    heap_place(clock, timer, index);
}

void ib_timer_init(IbTimer *timer, IbClock *clock, IbTimerFn *fn, void *opaque)
{
    memset(timer, 0, sizeof(*timer));
    timer->clock = clock;
    timer->fn = fn;
    timer->opaque = opaque;

    /* Room for every timer there is, so that ib_timer_set() cannot fail. */
    clock->timers++;
    if (clock->timers > clock->capacity) {
        size_t capacity = clock->capacity ? clock->capacity * 2
                                          : HEAP_FIRST_CAPACITY;
        IbTimer **heap = realloc(clock->heap,
                                 (capacity + 1) * sizeof(*heap));

        if (!heap) {
            fprintf(stderr, "clock: no memory for %zu timers\n", capacity);
            abort();
        }
        clock->heap = heap;
        clock->capacity = capacity;
    }
}

void ib_timer_fini(IbTimer *timer)
{
    if (!timer->clock) {
        return;
    }
    ib_timer_cancel(timer);
    assert(timer->clock->timers > 0);
    timer->clock->timers--;
    timer->clock = NULL;
}

void ib_timer_set(IbTimer *timer, int64_t deadline_ns)
{
    IbClock *clock = timer->clock;
    size_t index = timer->heap_index;

    timer->deadline_ns = deadline_ns;
    timer->order = clock->next_order++;
    if (index == 0) {
        index = ++clock->armed;
        assert(index <= clock->capacity);
    }
    heap_sift(clock, timer, index);
}

void ib_timer_cancel(IbTimer *timer)
{
    IbClock *clock = timer->clock;
    size_t index = timer->heap_index;
    IbTimer *last;

    if (index == 0) {
        return;
    }
    last = clock->heap[clock->armed--];
    timer->heap_index = 0;
    if (last != timer) {
        heap_sift(clock, last, index);
    }
}

void ib_clock_delay(IbClock *clock, int64_t ns)
{
    /* The same for each: the heap's order stays. */
    for (size_t i = 1; i <= clock->armed; i++) {
        clock->heap[i]->deadline_ns += ns;
    }
}

unsigned ib_clock_run(IbClock *clock, unsigned max)
{
    /* Read once: a timer that sets itself again must not keep us here. */
    int64_t now = ib_clock_now(clock);
    unsigned fired = 0;

    while (fired < max && clock->armed &&
           clock->heap[1]->deadline_ns <= now) {
        IbTimer *timer = clock->heap[1];

        ib_timer_cancel(timer);
        fired++;
        timer->fn(timer->opaque);
    }
    return fired;
}
