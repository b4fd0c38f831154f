/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A test program's temporary files lie in a directory of its own, which goes
 * with it however it ends: a child waits for the end, then removes it.  The
 * child leads a session, so that who kills the program's process group does
 * not kill it too.
 */
#ifndef TESTS_UNIT_SCRATCH_H
#define TESTS_UNIT_SCRATCH_H

#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

#include <glib.h>

/* To be called first: GLib remembers the directory for temporary files. */
static inline void scratch_init(void)
{
    const char *parent = g_getenv("TMPDIR");
    g_autofree char *dir = g_build_filename(parent ? parent : "/tmp",
                                            "ehca-test-XXXXXX", NULL);
    int life[2], null;
    char byte;

    g_assert_nonnull(mkdtemp(dir));
    g_assert_cmpint(pipe2(life, O_CLOEXEC), ==, 0);
    switch (fork()) {
    case -1:
        g_error("fork failed");
        break;
    case 0:
        setsid();
        null = open("/dev/null", O_RDWR);
        for (int fd = 0; fd < 3; fd++) {
            dup2(null, fd);
        }
        close(life[1]);
        /* Nobody writes: it returns when the program is gone. */
        if (read(life[0], &byte, 1) == 0) {
            execlp("rm", "rm", "-rf", "--", dir, NULL);
        }
        _exit(1);
    }
    close(life[0]);
    g_setenv("TMPDIR", dir, true);
}

#endif
