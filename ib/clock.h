/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Clock and timers.  Nobody in this project asks the system for the time:
 * the daemons and the adapter own a real clock, the simulator a virtual one,
 * so that the same protocol code runs on either.
 *
 * Theory of operation: a clock is a heap of armed timers and a source of
 * "now".  It belongs to one thread at a time (its owner's lock covers it).
 * The owner sleeps until ib_clock_deadline() and calls ib_clock_run().
 * Timers with the same deadline fire in the order in which they were set,
 * so a virtual run is the same each time.  ib_timer_init() makes the room
 * that ib_timer_set() needs: setting a timer never allocates.
 */
#ifndef IB_CLOCK_H
#define IB_CLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define IB_CLOCK_NEVER INT64_MAX
#define IB_USEC INT64_C(1000)
#define IB_MSEC INT64_C(1000000)
#define IB_SEC INT64_C(1000000000)

typedef struct IbClock IbClock;
typedef struct IbTimer IbTimer;
typedef void IbTimerFn(void *opaque);

struct IbTimer {
    IbClock *clock;
    IbTimerFn *fn;
    void *opaque;
    int64_t deadline_ns;
    uint64_t order;          /* ties fire in the order of ib_timer_set() */
    size_t heap_index;       /* 1-based place in the heap, 0: not armed */
};

struct IbClock {
    bool is_virtual;
    int64_t virtual_ns;
    uint64_t next_order;
    IbTimer **heap;          /* 1-based binary heap */
    size_t armed;
    size_t capacity;         /* entries that fit, >= timers initialised */
    size_t timers;
};

/* Starts at CLOCK_MONOTONIC (real) or at 0 (virtual). */
void ib_clock_init_real(IbClock *clock);
void ib_clock_init_virtual(IbClock *clock);
/* All timers of the clock must have been finished. */
void ib_clock_fini(IbClock *clock);

int64_t ib_clock_now(IbClock *clock);
/* Deadline of the earliest timer, IB_CLOCK_NEVER if none is armed. */
int64_t ib_clock_deadline(const IbClock *clock);
/* Fires at most @max timers that are due; returns how many it fired. */
unsigned ib_clock_run(IbClock *clock, unsigned max);
/* All timers that are armed become due by @ns later: their owner slept. */
void ib_clock_delay(IbClock *clock, int64_t ns);
/* Virtual clocks only: moves time to @now_ns (never backwards), fires none. */
void ib_clock_set(IbClock *clock, int64_t now_ns);

void ib_timer_init(IbTimer *timer, IbClock *clock, IbTimerFn *fn,
                   void *opaque);
void ib_timer_fini(IbTimer *timer);
void ib_timer_set(IbTimer *timer, int64_t deadline_ns);
void ib_timer_cancel(IbTimer *timer);

static inline bool ib_timer_armed(const IbTimer *timer)
{
    return timer->heap_index != 0;
}

/*
 * Timeout code of the specification to nanoseconds: 4.096 us * 2^code
 * (9.9.2.1.1 and others); 5 bits.  Code 0 means "no timeout" for a QP's
 * local ACK timeout: the caller deals with that.
 */
static inline int64_t ib_timeout_ns(unsigned code)
{
    return INT64_C(4096) << (code & 31);
}

#endif
