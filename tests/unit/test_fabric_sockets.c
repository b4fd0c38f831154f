/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Who must go when a house is full: users, processes, and those who spoke. */
#include "fabric/daemon.h"

#define MAX_GUESTS 8

static void test_who_goes(void)
{
    static const struct {
        const char *what;
        int who;
        unsigned num;
        Guest guests[MAX_GUESTS];
    } cases[] = {
        { "nobody is there", -1, 0, { { 0 } } },
        { "one process has most", 1, 4,
          { { 1, 10, true }, { 1, 11, true }, { 1, 11, true },
            { 1, 12, false } } },
        { "of it the silent one", 2, 4,
          { { 1, 10, false }, { 1, 11, true }, { 1, 11, false },
            { 1, 11, false } } },
        { "a user with many processes", 2, 5,
          { { 1, 10, false }, { 1, 10, false }, { 2, 20, false },
            { 2, 21, false }, { 2, 22, false } } },
        { "of that user the process with most", 3, 6,
          { { 1, 10, false }, { 1, 10, false }, { 2, 20, false },
            { 2, 21, true }, { 2, 21, true }, { 2, 22, false } } },
        { "all alike: the oldest", 0, 3,
          { { 1, 10, false }, { 1, 11, false }, { 1, 12, false } } },
        { "one connection each: the silent one", 1, 3,
          { { 1, 10, true }, { 1, 11, false }, { 1, 12, true } } },
        { "one connection each, all spoke", -1, 3,
          { { 1, 10, true }, { 1, 11, true }, { 1, 12, true } } },
    };

    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        const Guest *guests[MAX_GUESTS];

        for (unsigned g = 0; g < cases[i].num; g++) {
            guests[g] = &cases[i].guests[g];
        }
        g_test_message("%s", cases[i].what);
        g_assert_cmpint(guest_who_goes(guests, cases[i].num), ==,
                        cases[i].who);
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/sockets/who-goes", test_who_goes);
    return g_test_run();
}
