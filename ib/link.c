/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Link messages and shared memory between a node and the fabric, as link.h
 * describes them.  Everything a peer sends passes decode_body() or
 * ib_link_memory_map(), their descriptors ib_link_wire() and
 * ib_link_wake_accept(): the doors.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ib/bytes.h"
#include "ib/link.h"
#include "ib/mad.h"

#define HELLO_GUIDS_OFFSET 12
#define HELLO_NAME_OFFSET (HELLO_GUIDS_OFFSET + 8 * IB_LINK_MAX_PORTS)
#define HELLO_LEN (HELLO_NAME_OFFSET + IB_LINK_NAME_MAX)
#define WELCOME_LEN 4
#define PHYS_LEN 4
#define LINK_LEN 4
/* What must be sealed, lest the peer shrinks what we have mapped. */
#define WANTED_SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

_Static_assert(HELLO_LEN <= IB_LINK_BODY_MAX, "HELLO fits");

const char *ib_link_type_name(unsigned type)
{
    static const char *const names[] = {
        [IB_LINK_HELLO] = "HELLO",
        [IB_LINK_WELCOME] = "WELCOME",
        [IB_LINK_REFUSE] = "REFUSE",
        [IB_LINK_PHYS] = "PHYS",
        [IB_LINK_LINK] = "LINK",
        [IB_LINK_EVENT] = "EVENT",
    };

    return type < sizeof(names) / sizeof(names[0]) && names[type]
           ? names[type] : "unknown";
}

static size_t encode_body(uint8_t *p, const IbLinkMessage *message)
{
    const IbLinkHello *hello = &message->hello;
    size_t len;

    switch (message->type) {
    case IB_LINK_HELLO:
        memset(p, 0, HELLO_LEN);
        ib_put16(p, hello->version);
        p[2] = hello->num_ports;
        p[3] = hello->node_type;
        ib_put64(p + 4, hello->node_guid);
        for (unsigned i = 0; i < IB_LINK_MAX_PORTS &&
                             i < hello->num_ports; i++) {
            ib_put64(p + HELLO_GUIDS_OFFSET + 8 * i, hello->port_guids[i]);
        }
        len = strnlen(hello->name, IB_LINK_NAME_MAX - 1);
        memcpy(p + HELLO_NAME_OFFSET, hello->name, len);
        return HELLO_LEN;
    case IB_LINK_WELCOME:
        ib_put16(p, message->welcome.version);
        p[2] = message->welcome.num_ports;
        p[3] = 0;
        return WELCOME_LEN;
    case IB_LINK_PHYS:
        memset(p, 0, PHYS_LEN);
        p[0] = message->phys.enabled;
        return PHYS_LEN;
    case IB_LINK_LINK:
        p[0] = message->link.up;
        p[1] = message->link.speed;
        p[2] = message->link.width;
        p[3] = 0;
        return LINK_LEN;
    case IB_LINK_REFUSE:
    case IB_LINK_EVENT:
        len = strnlen(message->text, IB_LINK_BODY_MAX);
        memcpy(p, message->text, len);
        return len;
    }
    return 0;
}

size_t ib_link_encode(uint8_t *buf, const IbLinkMessage *message)
{
    size_t len = encode_body(buf + IB_LINK_HEADER_LEN, message);

    ib_put16(buf, message->type);
    ib_put16(buf + 2, message->port);
    ib_put32(buf + 4, len);
    return IB_LINK_HEADER_LEN + len;
}

static const char *decode_hello(IbLinkHello *hello, const uint8_t *p)
{
    size_t name_len;

    hello->version = ib_get16(p);
    hello->num_ports = p[2];
    hello->node_type = p[3];
    hello->node_guid = ib_get64(p + 4);
    if (hello->num_ports < 1 || hello->num_ports > IB_LINK_MAX_PORTS) {
        return "HELLO: number of ports is not 1 to 8";
    }
    if (hello->node_type < IB_NODE_CA || hello->node_type > IB_NODE_ROUTER) {
        return "HELLO: node type is not CA, switch or router";
    }
    if (hello->node_guid == 0) {
        return "HELLO: node GUID is 0";
    }
    for (unsigned i = 0; i < IB_LINK_MAX_PORTS; i++) {
        hello->port_guids[i] = ib_get64(p + HELLO_GUIDS_OFFSET + 8 * i);
        if ((hello->port_guids[i] != 0) != (i < hello->num_ports)) {
            return "HELLO: one GUID per port is needed, and no more";
        }
    }
    memcpy(hello->name, p + HELLO_NAME_OFFSET, IB_LINK_NAME_MAX);
    name_len = strnlen(hello->name, IB_LINK_NAME_MAX);
    if (name_len == 0 || name_len == IB_LINK_NAME_MAX) {
        return "HELLO: name is empty or not terminated";
    }
    for (size_t i = 0; i < name_len; i++) {
        if (hello->name[i] <= ' ' || hello->name[i] > '~') {
            return "HELLO: name is not printable ASCII without blanks";
        }
    }
    return NULL;
}

/* Fills @message from a whole body; returns what is wrong with it or NULL. */
static const char *decode_body(IbLinkMessage *message, const uint8_t *p,
                               size_t len)
{
    switch (message->type) {
    case IB_LINK_HELLO:
        if (len != HELLO_LEN) {
            return "HELLO: wrong length";
        }
        return decode_hello(&message->hello, p);
    case IB_LINK_WELCOME:
        if (len != WELCOME_LEN) {
            return "WELCOME: wrong length";
        }
        message->welcome.version = ib_get16(p);
        message->welcome.num_ports = p[2];
        if (p[2] < 1 || p[2] > IB_LINK_MAX_PORTS) {
            return "WELCOME: number of ports is not 1 to 8";
        }
        return NULL;
    case IB_LINK_PHYS:
        if (len != PHYS_LEN) {
            return "PHYS: wrong length";
        }
        if (p[0] > 1) {
            return "PHYS: neither enabled nor disabled";
        }
        message->phys.enabled = p[0];
        return NULL;
    case IB_LINK_LINK:
        if (len != LINK_LEN) {
            return "LINK: wrong length";
        }
        if (p[0] > 1) {
            return "LINK: neither up nor down";
        }
        message->link.up = p[0];
        message->link.speed = p[1];
        message->link.width = p[2];
        return NULL;
    case IB_LINK_REFUSE:
    case IB_LINK_EVENT:
        if (len == 0) {
            return "text message without text";
        }
        if (memchr(p, 0, len)) {
            return "text message with a NUL";
        }
        memcpy(message->text, p, len);
        message->text[len] = 0;
        return NULL;
    }
    return "unknown message type";
}

/* What the header alone tells, so that no body of a bad one is awaited. */
static const char *check_header(unsigned type, unsigned port, uint32_t len)
{
    switch (type) {
    case IB_LINK_PHYS:
    case IB_LINK_LINK:
        if (port == 0) {
            return "PHYS or LINK for port 0: ports count from 1";
        }
        break;
    case IB_LINK_EVENT:
        break;
    case IB_LINK_HELLO:
    case IB_LINK_WELCOME:
    case IB_LINK_REFUSE:
        if (port != 0) {
            return "port given where none is meant";
        }
        break;
    default:
        return "unknown message type";
    }
    if (port > IB_LINK_MAX_PORTS) {
        return "port number above 8";
    }
    if (len > IB_LINK_BODY_MAX) {
        return "body longer than 2048 bytes";
    }
    return NULL;
}

void ib_link_parser_init(IbLinkParser *parser)
{
    memset(parser, 0, sizeof(*parser));
}

size_t ib_link_parser_want(const IbLinkParser *parser)
{
    if (parser->have < IB_LINK_HEADER_LEN) {
        return IB_LINK_HEADER_LEN - parser->have;
    }
    return IB_LINK_HEADER_LEN + ib_get32(parser->buf + 4) - parser->have;
}

int ib_link_parser_feed(IbLinkParser *parser, const void *data, size_t len,
                        IbLinkMessage *message, const char **error)
{
    bool had_header = parser->have >= IB_LINK_HEADER_LEN;

    *error = NULL;
    if (len > ib_link_parser_want(parser)) {
        *error = "more bytes than the parser asked for";
    } else if (len > 0) {
        memcpy(parser->buf + parser->have, data, len);
        parser->have += len;
    }
    if (!*error && parser->have < IB_LINK_HEADER_LEN) {
        return 0;
    }
    if (!*error && !had_header) {
        *error = check_header(ib_get16(parser->buf),
                              ib_get16(parser->buf + 2),
                              ib_get32(parser->buf + 4));
    }
    if (!*error) {
        if (ib_link_parser_want(parser) > 0) {
            return 0;
        }
        message->type = ib_get16(parser->buf);
        message->port = ib_get16(parser->buf + 2);
        *error = decode_body(message, parser->buf + IB_LINK_HEADER_LEN,
                             parser->have - IB_LINK_HEADER_LEN);
    }
    parser->have = 0;
    return *error ? -1 : 1;
}

int ib_link_memory_create(const char *name)
{
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    int saved_errno;

    if (fd < 0) {
        return -1;
    }
    /* Fresh memory is all zero, which is what a formatted ring looks like. */
    if (ftruncate(fd, sizeof(IbLinkPortMemory)) < 0 ||
        fcntl(fd, F_ADD_SEALS, WANTED_SEALS) < 0) {
        saved_errno = errno;
        close(fd);
        errno = saved_errno;
        return -1;
    }
    return fd;
}

IbLinkPortMemory *ib_link_memory_map(int fd, const char **error)
{
    struct stat st;
    void *memory;
    int seals;

    seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0) {
        *error = "port memory is not a memfd";
        return NULL;
    }
    if ((seals & WANTED_SEALS) != WANTED_SEALS) {
        *error = "port memory is not sealed against resizing";
        return NULL;
    }
    if (fstat(fd, &st) < 0 || st.st_size != sizeof(IbLinkPortMemory)) {
        *error = "port memory has the wrong size: versions differ";
        return NULL;
    }
    memory = mmap(NULL, sizeof(IbLinkPortMemory), PROT_READ | PROT_WRITE,
                  MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) {
        *error = "port memory cannot be mapped";
        return NULL;
    }
    *error = NULL;
    return memory;
}

void ib_link_memory_unmap(IbLinkPortMemory *memory)
{
    if (memory) {
        munmap(memory, sizeof(*memory));
    }
}

/* Wake-ups and descriptors. */

static void close_fd(int *fd)
{
    if (*fd >= 0) {
        close(*fd);
        *fd = -1;
    }
}

bool ib_link_wake_init(IbLinkWake *wake)
{
    int pair[2] = { -1, -1 };
    bool made = socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0;

    *wake = (IbLinkWake) {
        .self_fd = pair[0], .self_end = pair[1], .peer_fd = -1,
    };
    return made;
}

void ib_link_wake_fini(IbLinkWake *wake)
{
    close_fd(&wake->self_fd);
    close_fd(&wake->self_end);
    close_fd(&wake->peer_fd);
}

/*
 * Of a unix stream socket it is known that a send with MSG_DONTWAIT waits for
 * nobody: no lock is taken that its other holders could keep.
 */
static bool may_be_kicked(int fd)
{
    int domain, type;
    socklen_t domain_len = sizeof(domain), type_len = sizeof(type);

    return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &domain_len) == 0 &&
           getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &type_len) == 0 &&
           domain == AF_UNIX && type == SOCK_STREAM;
}

bool ib_link_wake_accept(IbLinkWake *wake, int fd, const char **error)
{
    if (!may_be_kicked(fd)) {
        *error = "the wake-up descriptor is no unix stream socket";
        close(fd);
        return false;
    }
    wake->peer_fd = fd;
    return true;
}

void ib_link_kick(const IbLinkWake *wake)
{
    /* EAGAIN: many kicks are there already.  EPIPE: it wants none. */
    while (send(wake->peer_fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 &&
           errno == EINTR) {
        continue;
    }
}

bool ib_link_unkick(const IbLinkWake *wake)
{
    char kicks[64];
    ssize_t n;

    do {
        n = recv(wake->self_fd, kicks, sizeof(kicks), MSG_DONTWAIT);
    } while (n < 0 && errno == EINTR);
    return n > 0 || (n < 0 && errno == EAGAIN);
}

void ib_link_fds_add(IbLinkFds *fds, int fd)
{
    if (fds->num < IB_LINK_MAX_FDS) {
        fds->fds[fds->num++] = fd;
    } else {
        close(fd);
        fds->surplus = true;
    }
}

void ib_link_fds_close(IbLinkFds *fds)
{
    while (fds->num) {
        close_fd(&fds->fds[--fds->num]);
    }
    fds->surplus = false;
}

/* Control data with room for that many descriptors. */
typedef union FdsControl {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(IB_LINK_MAX_FDS * sizeof(int))];
} FdsControl;

ssize_t ib_link_receive(int sock, void *buf, size_t len, IbLinkFds *fds)
{
    FdsControl control;
    struct iovec iov = { .iov_base = buf, .iov_len = len };
    struct msghdr msg = {
        .msg_iov = &iov,
        .msg_iovlen = 1,
        .msg_control = control.bytes,
        .msg_controllen = sizeof(control.bytes),
    };
    ssize_t n = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);

    if (n < 0) {
        return n;
    }
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c;
         c = CMSG_NXTHDR(&msg, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) {
            continue;
        }
        for (size_t at = 0; at + sizeof(int) <= c->cmsg_len - CMSG_LEN(0);
             at += sizeof(int)) {
            int fd;

            memcpy(&fd, CMSG_DATA(c) + at, sizeof(fd));
            ib_link_fds_add(fds, fd);
        }
    }
    fds->surplus |= (msg.msg_flags & MSG_CTRUNC) != 0;
    return n;
}

ssize_t ib_link_send(int sock, const void *buf, size_t len, const int *fds,
                     unsigned num_fds)
{
    FdsControl control = { 0 };
    struct iovec iov = { .iov_base = (void *)buf, .iov_len = len };
    struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };

    if (num_fds) {
        struct cmsghdr *c;

        msg.msg_control = control.bytes;
        msg.msg_controllen = CMSG_SPACE(num_fds * sizeof(int));
        c = CMSG_FIRSTHDR(&msg);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(num_fds * sizeof(int));
        memcpy(CMSG_DATA(c), fds, num_fds * sizeof(int));
    }
    return sendmsg(sock, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* A node's ports. */

static const char *wire(IbLinkWake *wake, IbLinkPort *ports,
                        unsigned num_ports, IbLinkFds *fds)
{
    const char *error = NULL;
    int peer_fd;

    if (fds->surplus || fds->num != 1 + num_ports) {
        return "WELCOME needs one descriptor for the wake-ups and one for "
               "each port, no more";
    }
    for (unsigned p = 1; p <= num_ports; p++) {
        ports[p].memory = ib_link_memory_map(fds->fds[p], &error);
        if (error) {
            return error;
        }
        ib_ring_init_producer(&ports[p].tx, &ports[p].memory->to_fabric);
        ib_ring_init_consumer(&ports[p].rx, &ports[p].memory->to_node);
    }
    peer_fd = fds->fds[0];
    fds->fds[0] = -1;
    ib_link_wake_accept(wake, peer_fd, &error);
    return error;
}

const char *ib_link_wire(IbLinkWake *wake, IbLinkPort *ports,
                         unsigned num_ports, IbLinkFds *fds)
{
    const char *error;

    memset(ports, 0, (num_ports + 1) * sizeof(*ports));
    error = wire(wake, ports, num_ports, fds);
    if (error) {
        ib_link_unwire(ports, num_ports);
    }
    ib_link_fds_close(fds);
    return error;
}

void ib_link_unwire(IbLinkPort *ports, unsigned num_ports)
{
    for (unsigned p = 1; p <= num_ports; p++) {
        ib_link_memory_unmap(ports[p].memory);
        memset(&ports[p], 0, sizeof(ports[p]));
    }
}
