/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Clock and timers: order, ties, re-arming, bounds, against a plain sort. */
#include <glib.h>
#include <string.h>

#include "ib/clock.h"

#define MANY 500

typedef struct Probe {
    IbTimer timer;
    IbClock *clock;
    unsigned id;
    int64_t again_ns;            /* > 0: sets itself again after so long */
    IbTimer *cancels;
    GArray *log;
} Probe;

static void probe_fire(void *opaque)
{
    Probe *probe = opaque;

    g_array_append_val(probe->log, probe->id);
    if (probe->cancels) {
        ib_timer_cancel(probe->cancels);
    }
    if (probe->again_ns >= 0) {
        ib_timer_set(&probe->timer,
                     ib_clock_now(probe->clock) + probe->again_ns);
    }
}

static void probe_init(Probe *probe, IbClock *clock, unsigned id, GArray *log)
{
    *probe = (Probe) { .clock = clock, .id = id, .again_ns = -1,
                       .log = log };
    ib_timer_init(&probe->timer, clock, probe_fire, probe);
}

static void assert_log(GArray *log, const unsigned *want, unsigned n)
{
    g_assert_cmpuint(log->len, ==, n);
    for (unsigned i = 0; i < n; i++) {
        g_assert_cmpuint(g_array_index(log, unsigned, i), ==, want[i]);
    }
    g_array_set_size(log, 0);
}

static void test_order(void)
{
    GArray *log = g_array_new(FALSE, FALSE, sizeof(unsigned));
    IbClock clock;
    Probe p[5];

    ib_clock_init_virtual(&clock);
    g_assert_cmpint(ib_clock_now(&clock), ==, 0);
    g_assert_cmpint(ib_clock_deadline(&clock), ==, IB_CLOCK_NEVER);
    for (unsigned i = 0; i < G_N_ELEMENTS(p); i++) {
        probe_init(&p[i], &clock, i, log);
    }
    /* Ties fire in the order of setting; setting again goes to the end. */
    ib_timer_set(&p[0].timer, 30);
    ib_timer_set(&p[1].timer, 10);
    ib_timer_set(&p[2].timer, 30);
    ib_timer_set(&p[3].timer, 20);
    ib_timer_set(&p[4].timer, 30);
    ib_timer_set(&p[0].timer, 30);
    g_assert_cmpint(ib_clock_deadline(&clock), ==, 10);
    g_assert_cmpuint(ib_clock_run(&clock, 100), ==, 0);
    ib_clock_set(&clock, 20);
    g_assert_cmpuint(ib_clock_run(&clock, 100), ==, 2);
    assert_log(log, (unsigned[]) { 1, 3 }, 2);
    g_assert_false(ib_timer_armed(&p[1].timer));
    ib_clock_set(&clock, 10);               /* never backwards */
    g_assert_cmpint(ib_clock_now(&clock), ==, 20);
    ib_clock_set(&clock, 1000);
    g_assert_cmpuint(ib_clock_run(&clock, 2), ==, 2);
    assert_log(log, (unsigned[]) { 2, 4 }, 2);
    g_assert_cmpint(ib_clock_deadline(&clock), ==, 30);
    g_assert_cmpuint(ib_clock_run(&clock, 2), ==, 1);
    assert_log(log, (unsigned[]) { 0 }, 1);
    for (unsigned i = 0; i < G_N_ELEMENTS(p); i++) {
        ib_timer_fini(&p[i].timer);
    }
    ib_clock_fini(&clock);
    g_array_unref(log);
}

static void test_callbacks(void)
{
    GArray *log = g_array_new(FALSE, FALSE, sizeof(unsigned));
    IbClock clock;
    Probe p[3];

    ib_clock_init_virtual(&clock);
    for (unsigned i = 0; i < G_N_ELEMENTS(p); i++) {
        probe_init(&p[i], &clock, i, log);
    }
    /* 0 sets itself again for now: bounded by max.  1 cancels 2. */
    p[0].again_ns = 0;
    p[1].cancels = &p[2].timer;
    ib_timer_set(&p[0].timer, 5);
    ib_timer_set(&p[1].timer, 5);
    ib_timer_set(&p[2].timer, 5);
    ib_clock_set(&clock, 5);
    g_assert_cmpuint(ib_clock_run(&clock, 4), ==, 4);
    assert_log(log, (unsigned[]) { 0, 1, 0, 0 }, 4);
    g_assert_false(ib_timer_armed(&p[2].timer));
    ib_timer_cancel(&p[2].timer);           /* harmless when not armed */
    /* An armed timer's fini takes it out. */
    ib_timer_fini(&p[0].timer);
    g_assert_cmpint(ib_clock_deadline(&clock), ==, IB_CLOCK_NEVER);
    ib_timer_fini(&p[0].timer);             /* and again: nothing */
    ib_timer_fini(&p[1].timer);
    ib_timer_fini(&p[2].timer);
    ib_clock_fini(&clock);
    g_array_unref(log);
}

typedef struct Want {
    int64_t deadline;
    uint64_t order;
    unsigned id;
} Want;

static int want_compare(const void *a, const void *b)
{
    const Want *x = a, *y = b;

    if (x->deadline != y->deadline) {
        return x->deadline < y->deadline ? -1 : 1;
    }
    return x->order < y->order ? -1 : 1;
}

/* Random setting, moving and cancelling against a sorted list. */
static void test_against_sort(void)
{
    GArray *log = g_array_new(FALSE, FALSE, sizeof(unsigned));
    GRand *rand = g_rand_new_with_seed(42);
    Probe *p = g_new0(Probe, MANY);
    IbClock clock;

    ib_clock_init_virtual(&clock);
    for (unsigned i = 0; i < MANY; i++) {
        probe_init(&p[i], &clock, i, log);
    }
    for (unsigned round = 0; round < 50; round++) {
        int64_t now = ib_clock_now(&clock);
        Want want[MANY];
        uint64_t order = 0;
        unsigned n = 0, ids[MANY];

        memset(want, 0, sizeof(want));
        for (unsigned step = 0; step < 3 * MANY; step++) {
            unsigned i = g_rand_int_range(rand, 0, MANY);

            if (g_rand_int_range(rand, 0, 4) == 0) {
                ib_timer_cancel(&p[i].timer);
                want[i].id = 0;
            } else {
                want[i] = (Want) {
                    .deadline = now + g_rand_int_range(rand, 1, 50),
                    .order = order++,
                    .id = i + 1,
                };
                ib_timer_set(&p[i].timer, want[i].deadline);
            }
        }
        for (unsigned i = 0; i < MANY; i++) {
            g_assert_cmpint(ib_timer_armed(&p[i].timer), ==, want[i].id != 0);
            if (want[i].id) {
                want[n++] = want[i];
            }
        }
        qsort(want, n, sizeof(want[0]), want_compare);
        for (unsigned i = 0; i < n; i++) {
            ids[i] = want[i].id - 1;
        }
        ib_clock_set(&clock, now + 100);
        g_assert_cmpuint(ib_clock_run(&clock, MANY), ==, n);
        assert_log(log, ids, n);
    }
    for (unsigned i = 0; i < MANY; i++) {
        ib_timer_fini(&p[i].timer);
    }
    ib_clock_fini(&clock);
    g_free(p);
    g_rand_free(rand);
    g_array_unref(log);
}

/* Time that does not count: everything is due as much later, in order. */
static void test_delay(void)
{
    GArray *log = g_array_new(FALSE, FALSE, sizeof(unsigned));
    IbClock clock;
    Probe p[4];

    ib_clock_init_virtual(&clock);
    for (unsigned i = 0; i < 4; i++) {
        probe_init(&p[i], &clock, i, log);
        if (i < 3) {
            ib_timer_set(&p[i].timer, 30 - 10 * i);
        }
    }
    ib_clock_set(&clock, 1000);
    ib_clock_delay(&clock, 995);
    g_assert_false(ib_timer_armed(&p[3].timer));
    g_assert_cmpint(ib_clock_deadline(&clock), ==, 1005);
    g_assert_cmpuint(ib_clock_run(&clock, 4), ==, 0);
    ib_timer_set(&p[3].timer, 1010);
    ib_clock_set(&clock, 1015);
    g_assert_cmpuint(ib_clock_run(&clock, 4), ==, 3);
    assert_log(log, (const unsigned[]) { 2, 3, 1 }, 3);
    ib_clock_set(&clock, 1025);
    g_assert_cmpuint(ib_clock_run(&clock, 4), ==, 1);
    for (unsigned i = 0; i < 4; i++) {
        ib_timer_fini(&p[i].timer);
    }
    ib_clock_delay(&clock, 1);
    ib_clock_fini(&clock);
    g_array_unref(log);
}

static void test_real(void)
{
    GArray *log = g_array_new(FALSE, FALSE, sizeof(unsigned));
    IbClock clock;
    int64_t before;
    Probe p;

    ib_clock_init_real(&clock);
    probe_init(&p, &clock, 0, log);
    before = ib_clock_now(&clock);
    g_assert_cmpint(before, >, 0);
    ib_timer_set(&p.timer, before);
    g_assert_cmpuint(ib_clock_run(&clock, 1), ==, 1);
    ib_timer_set(&p.timer, before + 3600 * IB_SEC);
    g_assert_cmpuint(ib_clock_run(&clock, 1), ==, 0);
    g_assert_cmpint(ib_clock_now(&clock), >=, before);
    ib_timer_fini(&p.timer);
    ib_clock_fini(&clock);
    g_array_unref(log);
}

static void test_timeout_codes(void)
{
    g_assert_cmpint(ib_timeout_ns(0), ==, 4096);
    g_assert_cmpint(ib_timeout_ns(1), ==, 8192);
    g_assert_cmpint(ib_timeout_ns(14), ==, 67108864);
    g_assert_cmpint(ib_timeout_ns(18), ==, 1073741824);
    g_assert_cmpint(ib_timeout_ns(31), ==, INT64_C(8796093022208));
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/clock/order", test_order);
    g_test_add_func("/clock/callbacks", test_callbacks);
    g_test_add_func("/clock/against-sort", test_against_sort);
    g_test_add_func("/clock/delay", test_delay);
    g_test_add_func("/clock/real", test_real);
    g_test_add_func("/clock/timeout-codes", test_timeout_codes);
    return g_test_run();
}
