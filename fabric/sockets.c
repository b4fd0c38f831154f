/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Listening on unix sockets.  A socket file that is left over from a process
 * which died is replaced; one that somebody listens on is not.
 *
 * Places are limited, and whoever may connect can take them all and do
 * nothing.  So a full house is no reason to turn a newcomer away: of the user,
 * and then the process, that has the most connections, one goes that has not
 * done anything yet, or else the oldest one (guest_who_goes()).
 */
#include <errno.h>
#include <glib-unix.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "fabric/daemon.h"

#define BACKLOG 64
/* Without descriptors for a connection, the next one is taken after this. */
#define ACCEPT_PAUSE_MS 100

struct Listener {
    int fd;
    guint source, pause_source;
    void (*come)(void *opaque, int fd);
    void *opaque;
};

/* Who listens there: its pid, 0 if unknown; -1: nobody. */
static pid_t listener(const struct sockaddr_un *address)
{
    struct ucred peer = { 0 };
    socklen_t len = sizeof(peer);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    pid_t pid = -1;

    if (fd >= 0 && (connect(fd, (const struct sockaddr *)address,
                            sizeof(*address)) == 0 || errno == EAGAIN)) {
        pid = getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0
              ? peer.pid : 0;
    }
    if (fd >= 0) {
        close(fd);
    }
    return pid;
}

/* NULL: the path is free now. */
static char *clear_path(const char *path, const char *what,
                        const struct sockaddr_un *address)
{
    struct stat st;
    pid_t pid;

    if (lstat(path, &st) < 0) {
        return NULL;                 /* bind() tells if it is not free */
    }
    if (!S_ISSOCK(st.st_mode)) {
        return g_strdup_printf("%s '%s' is there and is not a socket; name "
                               "another path", what, path);
    }
    pid = listener(address);
    if (pid >= 0) {
        return g_strdup_printf("%s '%s' is in use by process %d; stop that "
                               "one or name another path", what, path,
                               (int)pid);
    }
    if (unlink(path) < 0 && errno != ENOENT) {
        return g_strdup_printf("%s '%s' is left over from a process that is "
                               "gone and cannot be removed: %s", what, path,
                               g_strerror(errno));
    }
    return NULL;
}

int socket_listen(const char *path, const char *what, char **error)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    int fd;

    if (strlen(path) >= sizeof(address.sun_path)) {
        *error = g_strdup_printf("%s '%s' is longer than %zu bytes; use a "
                                 "shorter directory", what, path,
                                 sizeof(address.sun_path) - 1);
        return -1;
    }
    strcpy(address.sun_path, path);
    *error = clear_path(path, what, &address);
    if (*error) {
        return -1;
    }
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address,
                       sizeof(address)) < 0 || listen(fd, BACKLOG) < 0) {
        *error = g_strdup_printf("cannot listen on %s '%s': %s", what, path,
                                 g_strerror(errno));
        if (fd >= 0) {
            close(fd);
        }
        return -1;
    }
    return fd;
}

void socket_unlisten(int fd, const char *path)
{
    if (fd >= 0) {
        close(fd);
        unlink(path);
    }
}

static gboolean on_connection(gint fd, GIOCondition condition,
                              gpointer opaque);

static void listener_listen(Listener *listener)
{
    listener->source = g_unix_fd_add(listener->fd, G_IO_IN, on_connection,
                                     listener);
}

static gboolean on_pause_over(gpointer opaque)
{
    Listener *listener = opaque;

    listener->pause_source = 0;
    listener_listen(listener);
    return G_SOURCE_REMOVE;
}

static gboolean on_connection(gint fd, GIOCondition condition,
                              gpointer opaque)
{
    Listener *listener = opaque;

    /* All that wait: who comes behind many others has his turn as well. */
    for (int i = 0; i < BACKLOG; i++) {
        int guest = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

        if (guest >= 0) {
            listener->come(listener->opaque, guest);
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS ||
                   errno == ENOMEM) {
            /* It stays readable: not to go round and round meanwhile. */
            listener->source = 0;
            listener->pause_source = g_timeout_add(ACCEPT_PAUSE_MS,
                                                   on_pause_over, listener);
            return G_SOURCE_REMOVE;
        } else if (errno != EINTR && errno != ECONNABORTED) {
            break;
        }
    }
    return G_SOURCE_CONTINUE;
}

Listener *listener_new(int fd, void (*come)(void *opaque, int fd),
                       void *opaque)
{
    Listener *listener = g_new0(Listener, 1);

    listener->fd = fd;
    listener->come = come;
    listener->opaque = opaque;
    listener_listen(listener);
    return listener;
}

void listener_free(Listener *listener)
{
    if (listener->source) {
        g_source_remove(listener->source);
    }
    if (listener->pause_source) {
        g_source_remove(listener->pause_source);
    }
    g_free(listener);
}

void guest_init(Guest *guest, int fd)
{
    struct ucred peer = { .uid = -1 };
    socklen_t len = sizeof(peer);

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0) {
        /* It counts among those of whom nothing is known. */
        peer = (struct ucred) { .uid = -1 };
    }
    *guest = (Guest) { .uid = peer.uid, .pid = peer.pid };
}

int guest_who_goes(const Guest *const *guests, unsigned num)
{
    unsigned best_uid = 0, best_pid = 0;
    int best = -1;

    for (unsigned i = 0; i < num; i++) {
        unsigned same_uid = 0, same_pid = 0;
        bool worse;

        for (unsigned k = 0; k < num; k++) {
            same_uid += guests[k]->uid == guests[i]->uid;
            same_pid += guests[k]->pid == guests[i]->pid;
        }
        worse = best < 0 || same_uid > best_uid ||
                (same_uid == best_uid &&
                 (same_pid > best_pid ||
                  (same_pid == best_pid &&
                   guests[best]->spoke && !guests[i]->spoke)));
        if (worse) {
            best = i;
            best_uid = same_uid;
            best_pid = same_pid;
        }
    }
    return best >= 0 && best_pid == 1 && guests[best]->spoke ? -1 : best;
}
