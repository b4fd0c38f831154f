/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The forwarding thread; runner.h has the theory of operation. */
#include <errno.h>
#include <glib-unix.h>
#include <pthread.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "fabric/runner.h"

#define EPOLL_EVENTS 16
#define TIMERS_PER_ROUND 64

struct Runner {
    const Topology *topology;
    IbClock clock;
    Fabric *fabric;
    pthread_t thread;
    int epoll_fd;
    int call_fd;                     /* wakes the forwarding thread */
    int notify_fd;                   /* wakes the control thread */
    guint notify_source;
    void (*woken)(void *opaque);
    void *opaque;
    bool no_pwait2;                  /* kernel older than 5.11 */

    /* Calls from the control thread: one at a time. */
    GMutex mutex;
    GCond cond;
    RunnerFn *call_fn;
    void *call_data;
    atomic_bool call_pending;
    atomic_bool quit;

    /* Events: the forwarding thread writes head, the control thread tail. */
    FabricEvent *events;
    atomic_uint head, tail;
    _Atomic uint64_t lost;
    atomic_bool notified;

    Capture *captures[FABRIC_MAX_CAPTURES];
};

static void notify(Runner *runner)
{
    if (!atomic_exchange(&runner->notified, true)) {
        eventfd_write(runner->notify_fd, 1);
    }
}

/* Callbacks of the fabric, in the forwarding thread. */

static void on_link(void *opaque, void *node_opaque, unsigned port, bool up,
                    uint8_t speed, uint8_t width)
{
    RunnerNode *node = node_opaque;
    unsigned count = atomic_load(&node->link_words[port]) >>
                     RUNNER_LINK_COUNT_SHIFT;

    atomic_store(&node->link_words[port],
                 (count + 1) << RUNNER_LINK_COUNT_SHIFT |
                 (up ? RUNNER_LINK_UP : 0) | (unsigned)speed << 8 | width);
    notify(opaque);
}

static void on_kick(void *opaque, void *node_opaque, unsigned port)
{
    RunnerNode *node = node_opaque;

    ib_link_kick(&node->wake);
}

static void on_broken(void *opaque, void *node_opaque, unsigned port)
{
    RunnerNode *node = node_opaque;

    atomic_store(&node->broken_port, port);
    notify(opaque);
}

static void on_event(void *opaque, const FabricEvent *event)
{
    Runner *runner = opaque;
    unsigned head = atomic_load_explicit(&runner->head,
                                         memory_order_relaxed);

    if (head - atomic_load_explicit(&runner->tail, memory_order_acquire) ==
        RUNNER_EVENTS) {
        atomic_fetch_add(&runner->lost, 1);
        return;
    }
    runner->events[head % RUNNER_EVENTS] = *event;
    atomic_store_explicit(&runner->head, head + 1, memory_order_release);
    notify(runner);
}

static void on_capture(void *opaque, unsigned captures,
                       const FabricPacket *packet)
{
    Runner *runner = opaque;

    for (unsigned i = 0; i < FABRIC_MAX_CAPTURES; i++) {
        if ((captures >> i & 1) && runner->captures[i]) {
            capture_push(runner->captures[i], packet);
        }
    }
}

static const FabricOps runner_ops = {
    .link = on_link, .kick = on_kick, .broken = on_broken,
    .event = on_event, .capture = on_capture,
};

void runner_set_capture(Runner *runner, unsigned slot, Capture *capture)
{
    runner->captures[slot] = capture;
}

/* The thread. */

static void run_call(Runner *runner)
{
    if (!atomic_load_explicit(&runner->call_pending, memory_order_acquire)) {
        return;
    }
    g_mutex_lock(&runner->mutex);
    runner->call_fn(runner->fabric, runner->call_data);
    atomic_store(&runner->call_pending, false);
    g_cond_signal(&runner->cond);
    g_mutex_unlock(&runner->mutex);
}

/* Each kick that woke us is read, lest it wakes us again. */
static void take_kicks(Runner *runner, const struct epoll_event *events,
                       int num)
{
    for (int i = 0; i < num; i++) {
        RunnerNode *node = events[i].data.ptr;
        eventfd_t count;

        if (!node) {
            eventfd_read(runner->call_fd, &count);
        } else if (!ib_link_unkick(&node->wake)) {
            runner_unwatch(runner, node);
            atomic_store(&node->wake_broken, true);
            notify(runner);
        }
    }
}

/* Sleeps until a kick, a call, or the clock's next deadline. */
static void nap(Runner *runner)
{
    struct epoll_event events[EPOLL_EVENTS];
    int64_t deadline = ib_clock_deadline(&runner->clock);
    struct timespec timeout, *wait = NULL;
    int n, timeout_ms = -1;

    if (deadline != IB_CLOCK_NEVER) {
        int64_t left = MAX(deadline - ib_clock_now(&runner->clock), 0);

        timeout.tv_sec = left / IB_SEC;
        timeout.tv_nsec = left % IB_SEC;
        timeout_ms = MIN((left + IB_MSEC - 1) / IB_MSEC, INT32_MAX);
        wait = &timeout;
    }
    if (!runner->no_pwait2) {
        n = epoll_pwait2(runner->epoll_fd, events, EPOLL_EVENTS, wait, NULL);
        if (n >= 0 || errno != ENOSYS) {
            take_kicks(runner, events, n);
            return;
        }
        runner->no_pwait2 = true;
    }
    n = epoll_wait(runner->epoll_fd, events, EPOLL_EVENTS, timeout_ms);
    take_kicks(runner, events, n);
}

static void *forward_thread(void *opaque)
{
    Runner *runner = opaque;
    uint64_t moved = 0;
    int64_t moved_at = 0;

    while (!atomic_load_explicit(&runner->quit, memory_order_relaxed)) {
        ib_clock_run(&runner->clock, TIMERS_PER_ROUND);
        run_call(runner);
        if (fabric_run(runner->fabric, RUNNER_BATCH)) {
            continue;
        }
        /* Waking up costs more than looking a little longer. */
        if (fabric_moved(runner->fabric) != moved) {
            moved = fabric_moved(runner->fabric);
            moved_at = ib_clock_now(&runner->clock);
            continue;
        }
        if (ib_clock_now(&runner->clock) - moved_at < RUNNER_LOOK_AGAIN_NS) {
            continue;
        }
        if (!fabric_prepare_sleep(runner->fabric)) {
            continue;
        }
        if (!atomic_load(&runner->call_pending)) {
            nap(runner);
        }
    }
    return NULL;
}

/* The control thread's side. */

void runner_call(Runner *runner, RunnerFn *fn, void *data)
{
    g_mutex_lock(&runner->mutex);
    runner->call_fn = fn;
    runner->call_data = data;
    atomic_store(&runner->call_pending, true);
    eventfd_write(runner->call_fd, 1);
    while (atomic_load(&runner->call_pending)) {
        g_cond_wait(&runner->cond, &runner->mutex);
    }
    g_mutex_unlock(&runner->mutex);
}

bool runner_next_event(Runner *runner, FabricEvent *event)
{
    unsigned tail = atomic_load_explicit(&runner->tail,
                                         memory_order_relaxed);

    if (tail == atomic_load_explicit(&runner->head, memory_order_acquire)) {
        return false;
    }
    *event = runner->events[tail % RUNNER_EVENTS];
    atomic_store_explicit(&runner->tail, tail + 1, memory_order_release);
    return true;
}

uint64_t runner_events_lost(Runner *runner)
{
    return atomic_load(&runner->lost);
}

static gboolean on_notify(gint fd, GIOCondition condition, gpointer opaque)
{
    Runner *runner = opaque;
    eventfd_t count;

    eventfd_read(fd, &count);
    /* An exchange: what was left by one who found it set is seen below. */
    (void)atomic_exchange(&runner->notified, false);
    runner->woken(runner->opaque);
    return G_SOURCE_CONTINUE;
}

/* @node: whose kicks, NULL: calls. */
static bool watch_fd(Runner *runner, int fd, RunnerNode *node)
{
    struct epoll_event event = { .events = EPOLLIN, .data.ptr = node };

    return epoll_ctl(runner->epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0;
}

bool runner_watch(Runner *runner, RunnerNode *node)
{
    return watch_fd(runner, node->wake.self_fd, node);
}

void runner_unwatch(Runner *runner, RunnerNode *node)
{
    epoll_ctl(runner->epoll_fd, EPOLL_CTL_DEL, node->wake.self_fd, NULL);
}

Runner *runner_new(const Topology *topology, uint64_t seed,
                   void (*woken)(void *opaque), void *opaque, char **error)
{
    Runner *runner = g_new0(Runner, 1);

    runner->topology = topology;
    runner->woken = woken;
    runner->opaque = opaque;
    runner->events = g_new(FabricEvent, RUNNER_EVENTS);
    g_mutex_init(&runner->mutex);
    g_cond_init(&runner->cond);
    runner->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    runner->call_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    runner->notify_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (runner->epoll_fd < 0 || runner->call_fd < 0 ||
        runner->notify_fd < 0 ||
        !watch_fd(runner, runner->call_fd, NULL)) {
        *error = g_strdup_printf("cannot set up the forwarding thread: %s",
                                 g_strerror(errno));
        /* The daemon ends now; nothing was started. */
        return NULL;
    }
    ib_clock_init_real(&runner->clock);
    runner->fabric = fabric_new(topology, &runner->clock, seed, &runner_ops,
                                runner);
    runner->notify_source = g_unix_fd_add(runner->notify_fd, G_IO_IN,
                                          on_notify, runner);
    if (pthread_create(&runner->thread, NULL, forward_thread, runner)) {
        *error = g_strdup_printf("cannot start the forwarding thread: %s",
                                 g_strerror(errno));
        return NULL;
    }
    pthread_setname_np(runner->thread, "forward");
    return runner;
}

void runner_free(Runner *runner)
{
    if (!runner) {
        return;
    }
    atomic_store(&runner->quit, true);
    eventfd_write(runner->call_fd, 1);
    pthread_join(runner->thread, NULL);
    g_source_remove(runner->notify_source);
    fabric_free(runner->fabric);
    ib_clock_fini(&runner->clock);
    close(runner->epoll_fd);
    close(runner->call_fd);
    close(runner->notify_fd);
    g_mutex_clear(&runner->mutex);
    g_cond_clear(&runner->cond);
    g_free(runner->events);
    g_free(runner);
}
