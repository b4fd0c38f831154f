/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Link messages and shared memory between a node and the fabric, as link.h
 * describes them.  Everything a peer sends passes decode_body() or
 * ib_link_memory_map(): the two doors.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
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

static bool set_nonblocking(int fd)
{
    int flags = fcntl(fd, F_GETFL);

    return flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) >= 0;
}

/*
 * Anything else (a file, a closed pipe) would be readable for ever and keep
 * its reader busy.  Where there is no /proc the peer is believed.
 */
static bool may_be_eventfd(int fd)
{
    char path[32], name[32];
    ssize_t len;

    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    len = readlink(path, name, sizeof(name) - 1);
    if (len < 0) {
        return true;
    }
    name[len] = '\0';
    return !strcmp(name, "anon_inode:[eventfd]");
}

bool ib_link_port_init(IbLinkPort *port, const int fds[IB_LINK_FDS_PER_PORT],
                       const char **error)
{
    memset(port, 0, sizeof(*port));
    port->memory = ib_link_memory_map(fds[0], error);
    close(fds[0]);
    port->wake_self_fd = fds[1];
    port->wake_peer_fd = fds[2];
    if (!port->memory) {
        ib_link_port_fini(port);
        return false;
    }
    /* The peer chose what is behind them: check, and never wait for it. */
    if (!may_be_eventfd(fds[1]) || !may_be_eventfd(fds[2])) {
        *error = "event descriptors are no eventfds";
        ib_link_port_fini(port);
        return false;
    }
    if (!set_nonblocking(fds[1]) || !set_nonblocking(fds[2])) {
        *error = "event descriptors cannot be made non-blocking";
        ib_link_port_fini(port);
        return false;
    }
    ib_ring_init_producer(&port->tx, &port->memory->to_fabric);
    ib_ring_init_consumer(&port->rx, &port->memory->to_node);
    return true;
}

void ib_link_port_fini(IbLinkPort *port)
{
    /* 0: a port of zeroes that was never wired must not close stdin. */
    ib_link_memory_unmap(port->memory);
    if (port->wake_self_fd > 0) {
        close(port->wake_self_fd);
    }
    if (port->wake_peer_fd > 0) {
        close(port->wake_peer_fd);
    }
    memset(port, 0, sizeof(*port));
    port->wake_self_fd = -1;
    port->wake_peer_fd = -1;
}

void ib_link_kick(int eventfd)
{
    uint64_t one = 1;

    /* EAGAIN: the counter is full, so the other side is awake already. */
    while (write(eventfd, &one, sizeof(one)) < 0 && errno == EINTR) {
        continue;
    }
}

void ib_link_unkick(int eventfd)
{
    uint64_t count;

    while (read(eventfd, &count, sizeof(count)) < 0 && errno == EINTR) {
        continue;
    }
}
