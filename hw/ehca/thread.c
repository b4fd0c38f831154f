/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The adapter's thread.
 *
 * Theory of operation.  One thread per adapter runs the engine in steps:
 *
 *   run     adapter's lock; at most EHCA_RUN_BUDGET packets; unlock
 *   raise   big lock; pulse the interrupts that the step asked for; unlock
 *   look    a few microseconds more, if the step before did something
 *   sleep   until a register page is written, a packet comes, a ring has
 *           room, or the engine's next timer is due
 *
 * "work" says that somebody has something for the engine, "asleep" that the
 * thread must be woken by its notifier.  The thread sets asleep before it
 * looks at work for the last time, wakers set work before they look at
 * asleep: one of the two sees the other.
 *
 * Waking a thread on another core costs more than carrying a small message
 * (docs/architecture.md), so a doorbell that finds the thread asleep runs one
 * short step on the vCPU's thread, and wakes the adapter's thread only if
 * there is more to do or an earlier timer to wait for.
 *
 * While the machine is stopped it sleeps on its notifier alone.
 *
 * Descriptors of a link are closed and its rings unmapped by this thread
 * alone: it may be sleeping on them.
 */
#include "qemu/osdep.h"
#include "qemu/main-loop.h"
#include "qemu/rcu.h"
#include "qemu/processor.h"

#include <poll.h>

#include "ehca-device.h"
#include "trace.h"

/* Packets per step: bounds how long a vCPU waits for the adapter's lock. */
#define EHCA_RUN_BUDGET 16
/* Packets that a doorbell carries itself. */
#define EHCA_DOORBELL_BUDGET 4
/* How long to look once more before sleeping. */
#define EHCA_LOOK_NS (4 * IB_USEC)

/* The adapter whose doorbell this thread is about to carry itself. */
static __thread EhcaDevice *ehca_in_doorbell;

void ehca_thread_wake(EhcaDevice *s)
{
    if (ehca_in_doorbell == s) {
        return;
    }
    qatomic_set(&s->work, 1);
    /* work before asleep: pairs with ehca_thread_prepare_sleep(). */
    smp_mb();
    if (qatomic_read(&s->asleep) && qatomic_xchg(&s->asleep, 0)) {
        trace_ehca_thread_wake(s->name);
        event_notifier_set(&s->wake);
    }
}

void ehca_thread_check_deadline(EhcaDevice *s)
{
    if (qatomic_read(&s->asleep) &&
        ehca_deadline(s->adapter) < s->sleeps_until_ns) {
        ehca_thread_wake(s);
    }
}

void ehca_thread_doorbell(EhcaDevice *s, uint64_t offset, uint64_t value)
{
    unsigned irqs;
    bool done;

    if (s->stopped || !qatomic_read(&s->asleep) ||
        qemu_mutex_trylock(&s->lock)) {
        ehca_mmio_write(s->adapter, offset, value);
        return;
    }
    ehca_in_doorbell = s;
    ehca_mmio_write(s->adapter, offset, value);
    /* The rings were left marked for kicks, and must be again. */
    done = !ehca_run(s->adapter, EHCA_DOORBELL_BUDGET) &&
           ehca_prepare_sleep(s->adapter) &&
           ehca_deadline(s->adapter) >= s->sleeps_until_ns;
    irqs = ehca_take_irqs(s->adapter);
    ehca_in_doorbell = NULL;
    ehca_device_unlock(s);
    if (!done) {
        ehca_thread_wake(s);
    }
    ehca_device_pulse(s, irqs);
}

/* Adapter's lock held. */
static void ehca_thread_close_retired(EhcaDevice *s)
{
    EhcaLink *link;

    while ((link = QSIMPLEQ_FIRST(&s->retired))) {
        QSIMPLEQ_REMOVE_HEAD(&s->retired, next);
        ib_link_unwire(link->ports, link->num_ports);
        ib_link_wake_fini(&link->wake);
        g_free(link);
    }
}

static void ehca_thread_look(EhcaDevice *s)
{
    int64_t until = get_clock() + EHCA_LOOK_NS;

    do {
        cpu_relax();
    } while (!qatomic_read(&s->work) && get_clock() < until);
}

/* What it sleeps on: the notifier and, if there is one, a link. */
typedef struct EhcaSleep {
    struct pollfd fds[2];
    EhcaLink *link;
    struct timespec timeout;
    bool forever;
} EhcaSleep;

/* Fills @on, true: sleep now. */
static bool ehca_thread_prepare_sleep(EhcaDevice *s, EhcaSleep *on)
{
    int64_t ns = 0;
    bool sleep;

    ehca_device_lock(s);
    on->link = s->stopped || s->wake_broken ? NULL : s->link;
    on->fds[0] = (struct pollfd) {
        .fd = event_notifier_get_fd(&s->wake),
        .events = POLLIN,
    };
    on->fds[1] = (struct pollfd) {
        /* poll() passes over a negative one. */
        .fd = on->link ? on->link->wake.self_fd : -1,
        .events = POLLIN,
    };
    s->sleeps_until_ns = s->stopped ? IB_CLOCK_NEVER
                                    : ehca_deadline(s->adapter);
    on->forever = s->sleeps_until_ns == IB_CLOCK_NEVER;
    if (!on->forever) {
        ns = MAX(0, s->sleeps_until_ns - ib_clock_now(&s->clock));
        on->timeout.tv_sec = ns / IB_SEC;
        on->timeout.tv_nsec = ns % IB_SEC;
    }
    qatomic_set(&s->asleep, 1);
    /* asleep before work: pairs with ehca_thread_wake(). */
    smp_mb();
    sleep = !qatomic_read(&s->work) && QSIMPLEQ_EMPTY(&s->retired) &&
            (on->forever || ns) &&
            (s->stopped || ehca_prepare_sleep(s->adapter));
    if (!sleep) {
        qatomic_set(&s->asleep, 0);
    }
    ehca_device_unlock(s);
    if (sleep) {
        trace_ehca_thread_sleep(s->name, on->forever ? -1 : ns);
    }
    return sleep;
}

static void *ehca_thread(void *opaque)
{
    EhcaDevice *s = opaque;
    EhcaSleep sleep;

    rcu_register_thread();
    for (;;) {
        unsigned irqs;
        bool more;

        qatomic_set(&s->work, 0);
        /* What is noted after this must be seen by the run or set it anew. */
        smp_mb();
        ehca_device_lock(s);
        ehca_thread_close_retired(s);
        more = !s->stopped && ehca_run(s->adapter, EHCA_RUN_BUDGET);
        ehca_device_unlock(s);

        irqs = ehca_take_irqs(s->adapter);
        if (irqs) {
            bql_lock();
            ehca_device_pulse(s, irqs);
            bql_unlock();
        }
        if (more) {
            continue;
        }
        ehca_thread_look(s);
        if (qatomic_read(&s->work) || !ehca_thread_prepare_sleep(s, &sleep)) {
            continue;
        }
        if (ppoll(sleep.fds, ARRAY_SIZE(sleep.fds),
                  sleep.forever ? NULL : &sleep.timeout, NULL) > 0) {
            if (sleep.fds[0].revents) {
                event_notifier_test_and_clear(&s->wake);
            }
            if (sleep.fds[1].revents && !ib_link_unkick(&sleep.link->wake)) {
                ehca_link_wake_broken(s, sleep.link);
            }
        }
        qatomic_set(&s->asleep, 0);
    }
    return NULL;
}

void ehca_thread_start(EhcaDevice *s)
{
    if (event_notifier_init(&s->wake, 0) < 0) {
        /* As qemu_mutex_init() and qemu_thread_create() do. */
        perror("ehca: event notifier");
        abort();
    }
    qemu_thread_create(&s->thread, "ehca", ehca_thread, s,
                       QEMU_THREAD_DETACHED);
}
