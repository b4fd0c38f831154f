/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Node's end of the link for plain processes: connect, shake hands, exchange
 * messages.  QEMU does not use this file: there a chardev owns the socket.
 */
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "ib/clock.h"
#include "ib/link.h"

/* A full listen queue is tried again after this. */
#define CONNECT_RETRY_MS 10
/* A peer that takes no bytes for this long is lost. */
#define SEND_TIMEOUT_MS 2000

/* A handshake under way: what must be undone if it fails. */
typedef struct Handshake {
    IbLinkClient *client;
    IbClock clock;
    int64_t deadline_ns;
    IbLinkFds fds;
    char **error;
} Handshake;

__attribute__((format(printf, 2, 3)))
static bool fail(char **error, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    if (error && vasprintf(error, format, args) < 0) {
        *error = NULL;
    }
    va_end(args);
    return false;
}

/* Waits for @events; false when the time is up or poll() fails. */
static bool wait_for(int fd, short events, IbClock *clock,
                     int64_t deadline_ns)
{
    for (;;) {
        struct pollfd pfd = { .fd = fd, .events = events };
        int64_t left = deadline_ns - ib_clock_now(clock);
        int n;

        if (left <= 0) {
            return false;
        }
        n = poll(&pfd, 1, (left + IB_MSEC - 1) / IB_MSEC);
        if (n > 0) {
            return true;
        }
        if (n < 0 && errno != EINTR) {
            return false;
        }
    }
}

/* A descriptor, if there is one, goes with the first byte. */
static bool send_all(int fd, const uint8_t *p, size_t len, const int *with_fd,
                     IbClock *clock, int64_t deadline_ns)
{
    while (len) {
        ssize_t n = ib_link_send(fd, p, len, with_fd, with_fd ? 1 : 0);

        if (n > 0) {
            p += n;
            len -= n;
            with_fd = NULL;
        } else if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            if (!wait_for(fd, POLLOUT, clock, deadline_ns)) {
                return false;
            }
        } else if (n == 0 || errno != EINTR) {
            return false;
        }
    }
    return true;
}

static bool connect_socket(Handshake *hs, const char *path)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    int fd;

    if (strlen(path) >= sizeof(address.sun_path)) {
        return fail(hs->error, "socket path '%s' is longer than %zu bytes: "
                    "use a shorter directory", path,
                    sizeof(address.sun_path) - 1);
    }
    strcpy(address.sun_path, path);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return fail(hs->error, "socket: %s", strerror(errno));
    }
    hs->client->fd = fd;
    while (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0) {
        if (errno == EINTR || errno == EAGAIN) {
            /* A unix socket's full listen queue cannot be polled for. */
            poll(NULL, 0, CONNECT_RETRY_MS);
            if (ib_clock_now(&hs->clock) < hs->deadline_ns) {
                continue;
            }
        }
        return fail(hs->error, "cannot connect to '%s': %s%s", path,
                    strerror(errno),
                    errno == ENOENT || errno == ECONNREFUSED
                    ? " (is the fabric running?)" : "");
    }
    return true;
}

/* Reads messages until one is complete. */
static bool receive_answer(Handshake *hs, IbLinkMessage *message)
{
    IbLinkClient *client = hs->client;
    uint8_t buf[IB_LINK_HEADER_LEN + IB_LINK_BODY_MAX];
    const char *problem;

    for (;;) {
        ssize_t n;

        if (!wait_for(client->fd, POLLIN, &hs->clock, hs->deadline_ns)) {
            return fail(hs->error, "the fabric did not answer HELLO in time");
        }
        n = ib_link_receive(client->fd, buf,
                            ib_link_parser_want(&client->parser), &hs->fds);
        if (n < 0) {
            if (errno == EINTR || errno == EAGAIN) {
                continue;
            }
            return fail(hs->error, "handshake: %s", strerror(errno));
        }
        if (n == 0) {
            return fail(hs->error,
                        "the fabric closed the connection after HELLO");
        }
        switch (ib_link_parser_feed(&client->parser, buf, n, message,
                                    &problem)) {
        case 1:
            return true;
        case -1:
            return fail(hs->error, "the fabric broke the protocol: %s",
                        problem);
        }
    }
}

static bool take_welcome(Handshake *hs, const IbLinkHello *hello,
                         const IbLinkMessage *message)
{
    IbLinkClient *client = hs->client;
    const char *problem;

    switch (message->type) {
    case IB_LINK_WELCOME:
        break;
    case IB_LINK_REFUSE:
        return fail(hs->error, "the fabric refused '%s': %s", hello->name,
                    message->text);
    default:
        return fail(hs->error, "the fabric answered HELLO with %s",
                    ib_link_type_name(message->type));
    }
    if (message->welcome.version != IB_LINK_VERSION) {
        return fail(hs->error, "the fabric speaks link version %u, we %u: "
                    "update the older one", message->welcome.version,
                    IB_LINK_VERSION);
    }
    if (message->welcome.num_ports != hello->num_ports) {
        return fail(hs->error, "WELCOME for %u ports; '%s' has %u",
                    message->welcome.num_ports, hello->name,
                    hello->num_ports);
    }
    problem = ib_link_wire(&client->wake, client->ports, hello->num_ports,
                           &hs->fds);
    if (problem) {
        return fail(hs->error, "link of '%s': %s", hello->name, problem);
    }
    client->num_ports = hello->num_ports;
    return true;
}

static bool shake_hands(Handshake *hs, const IbLinkHello *hello)
{
    uint8_t buf[IB_LINK_HEADER_LEN + IB_LINK_BODY_MAX];
    IbLinkMessage message = { .type = IB_LINK_HELLO, .hello = *hello };
    size_t len = ib_link_encode(buf, &message);

    if (!ib_link_wake_init(&hs->client->wake)) {
        return fail(hs->error, "socketpair: %s", strerror(errno));
    }
    if (!send_all(hs->client->fd, buf, len, &hs->client->wake.self_end,
                  &hs->clock, hs->deadline_ns)) {
        return fail(hs->error, "cannot send HELLO: %s", strerror(errno));
    }
    return receive_answer(hs, &message) && take_welcome(hs, hello, &message);
}

IbLinkClient *ib_link_client_connect(const char *path,
                                     const IbLinkHello *hello,
                                     int timeout_ms, char **error)
{
    Handshake hs = { .error = error };
    bool good;

    *error = NULL;
    if (hello->num_ports < 1 || hello->num_ports > IB_LINK_MAX_PORTS) {
        fail(error, "'%s' has %u ports: a node has 1 to %u", hello->name,
             hello->num_ports, IB_LINK_MAX_PORTS);
        return NULL;
    }
    hs.client = calloc(1, sizeof(*hs.client));
    if (!hs.client) {
        fail(error, "no memory for a link client");
        return NULL;
    }
    hs.client->fd = -1;
    hs.client->wake = (IbLinkWake) { -1, -1, -1 };
    ib_link_parser_init(&hs.client->parser);
    ib_clock_init_real(&hs.clock);
    hs.deadline_ns = ib_clock_now(&hs.clock) + timeout_ms * IB_MSEC;
    good = connect_socket(&hs, path) && shake_hands(&hs, hello);
    ib_clock_fini(&hs.clock);
    ib_link_fds_close(&hs.fds);
    if (!good) {
        ib_link_client_close(hs.client);
        return NULL;
    }
    return hs.client;
}

void ib_link_client_close(IbLinkClient *client)
{
    if (!client) {
        return;
    }
    ib_link_unwire(client->ports, client->num_ports);
    ib_link_wake_fini(&client->wake);
    if (client->fd >= 0) {
        close(client->fd);
    }
    free(client);
}

static void lost(IbLinkClient *client)
{
    /* Half a message may be out: nothing sensible can follow it. */
    shutdown(client->fd, SHUT_RDWR);
    for (unsigned port = 1; port <= client->num_ports; port++) {
        client->ports[port].up = false;
    }
}

bool ib_link_client_send(IbLinkClient *client, const IbLinkMessage *message)
{
    uint8_t buf[IB_LINK_HEADER_LEN + IB_LINK_BODY_MAX];
    size_t len = ib_link_encode(buf, message);
    IbClock clock;
    bool sent;

    ib_clock_init_real(&clock);
    sent = send_all(client->fd, buf, len, NULL, &clock,
                    ib_clock_now(&clock) + SEND_TIMEOUT_MS * IB_MSEC);
    ib_clock_fini(&clock);
    if (!sent) {
        lost(client);
    }
    return sent;
}

int ib_link_client_poll(IbLinkClient *client, IbLinkMessage *message)
{
    uint8_t buf[IB_LINK_HEADER_LEN + IB_LINK_BODY_MAX];
    const char *problem;

    for (;;) {
        /* No room for control data: descriptors that come are dropped. */
        ssize_t n = recv(client->fd, buf,
                         ib_link_parser_want(&client->parser), MSG_DONTWAIT);
        int verdict;

        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            return 0;
        }
        if (n <= 0) {
            break;
        }
        verdict = ib_link_parser_feed(&client->parser, buf, n, message,
                                      &problem);
        if (verdict == 0) {
            continue;
        }
        if (verdict < 0) {
            break;
        }
        switch (message->type) {
        case IB_LINK_LINK:
            if (message->port > client->num_ports) {
                goto broken;
            }
            client->ports[message->port].up = message->link.up;
            return 1;
        case IB_LINK_REFUSE:
            /* Why the fabric is about to close. */
            return 1;
        default:
            goto broken;
        }
    }
broken:
    lost(client);
    return -1;
}
