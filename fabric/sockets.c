/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Listening on unix sockets.  A socket file that is left over from a process
 * which died is replaced; one that somebody listens on is not.
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "fabric/daemon.h"

#define BACKLOG 64

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
