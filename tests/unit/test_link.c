/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Link messages against hand-made bytes, hostile streams, hostile memory, and
 * the client's handshake with a fabric that does right and one that does not.
 */
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <glib/gstdio.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "hex.h"
#include "ib/bytes.h"
#include "ib/link.h"
#include "ib/mad.h"
#include "scratch.h"

#define BUF_LEN (IB_LINK_HEADER_LEN + IB_LINK_BODY_MAX)
#define TIMEOUT_MS 20000

static const char hello_hex[] =
    "0001 0000 0000008c"
    "0002 02 01 0002c90300000010 0002c90300000011 0002c90300000012"
    "0000000000000000 0000000000000000 0000000000000000 0000000000000000"
    "0000000000000000 0000000000000000"
    "686f737461 00000000000000000000000000000000000000000000000000000000"
    "00000000000000000000000000000000000000000000000000000000000000";

static IbLinkHello hello_example(void)
{
    IbLinkHello hello = {
        .version = 2, .num_ports = 2, .node_type = IB_NODE_CA,
        .node_guid = 0x0002C90300000010,
        .port_guids = { 0x0002C90300000011, 0x0002C90300000012 },
        .name = "hosta",
    };

    return hello;
}

/* Feeds @len bytes in pieces of at most @piece; the last verdict. */
static int feed(const uint8_t *p, size_t len, size_t piece,
                IbLinkMessage *message, const char **error)
{
    IbLinkParser parser;
    int verdict = 0;

    ib_link_parser_init(&parser);
    while (len && verdict == 0) {
        size_t n = ib_link_parser_want(&parser);

        g_assert_cmpuint(n, >=, 1);
        n = MIN(n, MIN(len, piece));
        verdict = ib_link_parser_feed(&parser, p, n, message, error);
        p += n;
        len -= n;
    }
    if (verdict > 0) {
        g_assert_cmpuint(len, ==, 0);
    }
    return verdict;
}

static void test_messages(void)
{
    static uint8_t buf[BUF_LEN];
    IbLinkMessage m = { .type = IB_LINK_HELLO, .hello = hello_example() };
    IbLinkMessage *back = g_new0(IbLinkMessage, 1);
    const char *error;
    size_t len = ib_link_encode(buf, &m);

    assert_hex(buf, len, hello_hex);
    for (size_t piece = 1; piece <= len; piece++) {
        memset(back, 0xEE, sizeof(*back));
        g_assert_cmpint(feed(buf, len, piece, back, &error), ==, 1);
        g_assert_cmpint(back->type, ==, IB_LINK_HELLO);
        g_assert_cmpuint(back->hello.num_ports, ==, 2);
        g_assert_cmphex(back->hello.node_guid, ==, 0x0002C90300000010);
        g_assert_cmphex(back->hello.port_guids[1], ==, 0x0002C90300000012);
        g_assert_cmpstr(back->hello.name, ==, "hosta");
    }

    m = (IbLinkMessage) { .type = IB_LINK_WELCOME,
                          .welcome = { .version = 1, .num_ports = 2 } };
    len = ib_link_encode(buf, &m);
    assert_hex(buf, len, "0002 0000 00000004 0001 02 00");
    g_assert_cmpint(feed(buf, len, len, back, &error), ==, 1);
    g_assert_cmpuint(back->welcome.num_ports, ==, 2);

    m = (IbLinkMessage) { .type = IB_LINK_PHYS, .port = 2,
                          .phys = { .enabled = true } };
    len = ib_link_encode(buf, &m);
    assert_hex(buf, len, "0004 0002 00000004 01 000000");
    g_assert_cmpint(feed(buf, len, len, back, &error), ==, 1);
    g_assert_cmpuint(back->port, ==, 2);
    g_assert_true(back->phys.enabled);

    m = (IbLinkMessage) { .type = IB_LINK_LINK, .port = 1,
                          .link = { .up = true, .speed = 4, .width = 2 } };
    len = ib_link_encode(buf, &m);
    assert_hex(buf, len, "0005 0001 00000004 01 04 02 00");
    g_assert_cmpint(feed(buf, len, 3, back, &error), ==, 1);
    g_assert_true(back->link.up);
    g_assert_cmpuint(back->link.speed, ==, 4);
    g_assert_cmpuint(back->link.width, ==, 2);

    m = (IbLinkMessage) { .type = IB_LINK_REFUSE, .text = "no" };
    len = ib_link_encode(buf, &m);
    assert_hex(buf, len, "0003 0000 00000002 6e6f");
    g_assert_cmpint(feed(buf, len, 1, back, &error), ==, 1);
    g_assert_cmpstr(back->text, ==, "no");

    /* The longest text there is. */
    m = (IbLinkMessage) { .type = IB_LINK_EVENT };
    memset(m.text, 'x', IB_LINK_BODY_MAX);
    len = ib_link_encode(buf, &m);
    g_assert_cmpuint(len, ==, BUF_LEN);
    g_assert_cmpint(feed(buf, len, 1000, back, &error), ==, 1);
    g_assert_cmpuint(strlen(back->text), ==, IB_LINK_BODY_MAX);
    g_assert_cmpstr(ib_link_type_name(IB_LINK_EVENT), ==, "EVENT");
    g_assert_cmpstr(ib_link_type_name(99), ==, "unknown");
    g_free(back);
}

/* Two messages in one stream: the parser asks for no byte of the second. */
static void test_stream(void)
{
    static const char hex[] = "0005 0001 00000004 01 04 02 00"
                              "0005 0002 00000004 00 00 00 00";
    IbLinkMessage *m = g_new0(IbLinkMessage, 1);
    uint8_t buf[64];
    size_t len = hex_bytes(buf, sizeof(buf), hex), at = 0;
    IbLinkParser parser;
    const char *error;
    unsigned seen = 0;

    ib_link_parser_init(&parser);
    while (at < len) {
        size_t n = MIN(ib_link_parser_want(&parser), len - at);

        if (ib_link_parser_feed(&parser, buf + at, n, m, &error) == 1) {
            seen++;
            g_assert_cmpuint(m->port, ==, seen);
            g_assert_cmpint(m->link.up, ==, seen == 1);
        }
        at += n;
    }
    g_assert_cmpuint(seen, ==, 2);
    g_free(m);
}

static void test_hostile_messages(void)
{
    static const struct {
        const char *hex;
        const char *error;
    } cases[] = {
        { "0000 0000 00000000", "unknown message type" },
        { "0007 0000 00000004", "unknown message type" },
        { "ffff ffff ffffffff", "unknown message type" },
        /* Refused by the header: no body is waited for. */
        { "0006 0000 00000801", "body longer than 2048 bytes" },
        { "0006 0000 ffffffff", "body longer than 2048 bytes" },
        { "0005 0000 00000004",
          "PHYS or LINK for port 0: ports count from 1" },
        { "0005 0009 00000004", "port number above 8" },
        { "0001 0001 0000008c", "port given where none is meant" },
        { "0002 0000 00000003 000102", "WELCOME: wrong length" },
        { "0002 0000 00000000", "WELCOME: wrong length" },
        { "0002 0000 00000004 0001 00 00",
          "WELCOME: number of ports is not 1 to 8" },
        { "0002 0000 00000004 0001 09 00",
          "WELCOME: number of ports is not 1 to 8" },
        { "0004 0001 00000004 02 000000",
          "PHYS: neither enabled nor disabled" },
        { "0005 0001 00000004 02 000000", "LINK: neither up nor down" },
        { "0005 0001 00000005 01 00000000", "LINK: wrong length" },
        { "0003 0000 00000000", "text message without text" },
        { "0006 0000 00000003 610062", "text message with a NUL" },
        { "0001 0000 00000004 0001 02 01", "HELLO: wrong length" },
    };
    IbLinkMessage *m = g_new0(IbLinkMessage, 1);

    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        uint8_t buf[64];
        size_t len = hex_bytes(buf, sizeof(buf), cases[i].hex);
        const char *error = NULL;

        g_assert_cmpint(feed(buf, len, len, m, &error), ==, -1);
        g_assert_cmpstr(error, ==, cases[i].error);
    }
    g_free(m);
}

static void test_hostile_hello(void)
{
    static const struct {
        unsigned offset;             /* in the whole message */
        uint8_t value;
        const char *error;
    } cases[] = {
        { 10, 0, "HELLO: number of ports is not 1 to 8" },
        { 10, 9, "HELLO: number of ports is not 1 to 8" },
        { 10, 1, "HELLO: one GUID per port is needed, and no more" },
        { 10, 3, "HELLO: one GUID per port is needed, and no more" },
        { 11, 0, "HELLO: node type is not CA, switch or router" },
        { 11, 4, "HELLO: node type is not CA, switch or router" },
        { 84, 0, "HELLO: name is empty or not terminated" },
        { 84, '\n', "HELLO: name is not printable ASCII without blanks" },
        { 85, 0xC3, "HELLO: name is not printable ASCII without blanks" },
    };
    IbLinkMessage *m = g_new0(IbLinkMessage, 1);
    const char *error = NULL;
    uint8_t buf[256];
    size_t len;

    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        len = hex_bytes(buf, sizeof(buf), hello_hex);
        buf[cases[i].offset] = cases[i].value;
        g_assert_cmpint(feed(buf, len, 7, m, &error), ==, -1);
        g_assert_cmpstr(error, ==, cases[i].error);
    }
    len = hex_bytes(buf, sizeof(buf), hello_hex);
    memset(buf + 12, 0, 8);
    g_assert_cmpint(feed(buf, len, len, m, &error), ==, -1);
    g_assert_cmpstr(error, ==, "HELLO: node GUID is 0");
    len = hex_bytes(buf, sizeof(buf), hello_hex);
    memset(buf + 84, 'a', IB_LINK_NAME_MAX);
    g_assert_cmpint(feed(buf, len, len, m, &error), ==, -1);
    g_assert_cmpstr(error, ==, "HELLO: name is empty or not terminated");
    g_free(m);
}

static void test_overfed(void)
{
    IbLinkMessage *m = g_new0(IbLinkMessage, 1);
    uint8_t buf[16] = { 0 };
    IbLinkParser parser;
    const char *error;

    ib_link_parser_init(&parser);
    g_assert_cmpint(ib_link_parser_feed(&parser, buf, 0, m, &error), ==, 0);
    g_assert_cmpint(ib_link_parser_feed(&parser, buf, 9, m, &error), ==, -1);
    g_free(m);
}

static void test_memory(void)
{
    const char *error = NULL;
    IbLinkPortMemory *a, *b;
    IbRing tx, rx;
    uint32_t len;
    int fd;

    fd = ib_link_memory_create("test");
    g_assert_cmpint(fd, >=, 0);
    g_assert_cmpint(ftruncate(fd, 100), <, 0);
    g_assert_cmpint(errno, ==, EPERM);
    a = ib_link_memory_map(fd, &error);
    b = ib_link_memory_map(fd, &error);
    g_assert_nonnull(a);
    g_assert_nonnull(b);
    ib_ring_init_producer(&tx, &a->to_fabric);
    ib_ring_init_consumer(&rx, &b->to_fabric);
    memset(ib_ring_reserve(&tx), 0x77, 64);
    ib_ring_commit(&tx, 64);
    g_assert_cmphex(ib_ring_peek(&rx, &len)[63], ==, 0x77);
    g_assert_cmpuint(len, ==, 64);
    ib_link_memory_unmap(a);
    ib_link_memory_unmap(b);
    ib_link_memory_unmap(NULL);
    close(fd);

    /* Not sealed: the peer could shrink it under us. */
    fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    g_assert_cmpint(ftruncate(fd, sizeof(IbLinkPortMemory)), ==, 0);
    g_assert_null(ib_link_memory_map(fd, &error));
    g_assert_cmpstr(error, ==, "port memory is not sealed against resizing");
    /* Sealed, but of another size. */
    g_assert_cmpint(ftruncate(fd, sizeof(IbLinkPortMemory) - 1), ==, 0);
    g_assert_cmpint(fcntl(fd, F_ADD_SEALS,
                          F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), ==, 0);
    g_assert_null(ib_link_memory_map(fd, &error));
    g_assert_cmpstr(error, ==,
                    "port memory has the wrong size: versions differ");
    close(fd);
    fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    g_assert_null(ib_link_memory_map(fd, &error));
    g_assert_cmpstr(error, ==, "port memory is not a memfd");
    close(fd);
    g_assert_null(ib_link_memory_map(-1, &error));
}

static unsigned open_fds(void)
{
    GDir *dir = g_dir_open("/proc/self/fd", 0, NULL);
    unsigned n = 0;

    g_assert_nonnull(dir);
    while (g_dir_read_name(dir)) {
        n++;
    }
    g_dir_close(dir);
    return n;
}

/* Two sides that each know the other's descriptor. */
static void wake_pair(IbLinkWake *a, IbLinkWake *b)
{
    const char *error;

    g_assert_true(ib_link_wake_init(a));
    g_assert_true(ib_link_wake_init(b));
    g_assert_true(ib_link_wake_accept(a, dup(b->self_end), &error));
    g_assert_true(ib_link_wake_accept(b, dup(a->self_end), &error));
}

static bool has_kick(const IbLinkWake *wake)
{
    struct pollfd pfd = { .fd = wake->self_fd, .events = POLLIN };

    return poll(&pfd, 1, 0) == 1;
}

static void test_kicks(void)
{
    unsigned fds_before = open_fds();
    IbLinkWake a, b;

    wake_pair(&a, &b);
    g_assert_false(has_kick(&a));
    ib_link_kick(&b);
    ib_link_kick(&b);
    g_assert_true(has_kick(&a));
    g_assert_false(has_kick(&b));
    g_assert_true(ib_link_unkick(&a));      /* both at once */
    g_assert_false(has_kick(&a));
    g_assert_true(ib_link_unkick(&a));      /* nothing there: no wait */
    ib_link_kick(&a);
    g_assert_true(has_kick(&b));
    ib_link_wake_fini(&a);
    /* The other one died: that is no reason to wake up. */
    g_assert_true(ib_link_unkick(&b));
    g_assert_false(has_kick(&b));
    ib_link_kick(&b);
    ib_link_wake_fini(&b);
    g_assert_cmpuint(open_fds(), ==, fds_before);
}

/*
 * A peer that does with the descriptors, which it has too, what it can: no
 * kick waits and no reading does.
 */
static void test_hostile_kicks(void)
{
    static const int how[] = { SHUT_RD, SHUT_WR, SHUT_RDWR };
    char block[4096] = { 0 };
    IbLinkWake good, evil;
    int pair[2];

    for (size_t i = 0; i < G_N_ELEMENTS(how); i++) {
        /* The evil one reads nothing, and fills what the good one sends. */
        wake_pair(&good, &evil);
        fcntl(evil.self_end, F_SETFL, 0);
        fcntl(evil.self_fd, F_SETFL, 0);
        while (send(evil.self_end, block, sizeof(block), MSG_DONTWAIT) > 0) {
            continue;
        }
        g_assert_cmpint(errno, ==, EAGAIN);
        ib_link_kick(&good);
        /* What it has of the good one's: full, then empty, then shut. */
        fcntl(evil.peer_fd, F_SETFL, 0);
        while (send(evil.peer_fd, block, sizeof(block), MSG_DONTWAIT) > 0) {
            continue;
        }
        while (has_kick(&good)) {
            g_assert_true(ib_link_unkick(&good));
        }
        g_assert_true(ib_link_unkick(&good));
        g_assert_cmpint(shutdown(evil.peer_fd, how[i]), ==, 0);
        g_assert_cmpint(shutdown(evil.self_end, how[i]), ==, 0);
        g_assert_true(ib_link_unkick(&good) == (how[i] == SHUT_RD));
        ib_link_kick(&good);
        ib_link_wake_fini(&good);
        ib_link_wake_fini(&evil);
    }

    /* Descriptors of other kinds, whose writers may have to wait. */
    g_assert_true(ib_link_wake_init(&good));
    for (int i = 0; i < 5; i++) {
        const char *error = NULL;
        int fd = -1;

        if (i == 0) {
            fd = eventfd(0, EFD_NONBLOCK);
        } else if (i == 1) {
            fd = socket(AF_UNIX, SOCK_DGRAM, 0);
        } else if (i == 2) {
            fd = socket(AF_INET, SOCK_STREAM, 0);
        } else if (i == 3) {
            g_assert_cmpint(pipe(pair), ==, 0);
            fd = pair[1];
            close(pair[0]);
        }
        g_assert_false(ib_link_wake_accept(&good, fd, &error));
        g_assert_cmpstr(error, ==, "the wake-up descriptor is no unix "
                        "stream socket");
        g_assert_cmpint(good.peer_fd, ==, -1);
        if (fd >= 0) {
            g_assert_cmpint(fcntl(fd, F_GETFD), <, 0);    /* closed */
        }
    }
    ib_link_wake_fini(&good);
}

/* --- The client against a fabric made of a thread --- */

typedef enum Manners {
    GOOD, REFUSES, WRONG_VERSION, FEW_FDS, OTHER_PORTS, UNSEALED, CLOSES,
    SILENT, JUNK, LINK_FIRST, MANY_FDS, NO_WAKE,
} Manners;

typedef struct FakeFabric {
    Manners manners;
    int listener;
    char *path, *dir;
    GThread *thread;
    IbLinkWake wake;
    int fds[3];                  /* as in WELCOME: wake-ups, two memories */
    int connection;              /* left open for the test when GOOD */
} FakeFabric;

static void send_message(int fd, const IbLinkMessage *m, const int *fds,
                         size_t num_fds, size_t split)
{
    static uint8_t buf[BUF_LEN];
    size_t len = ib_link_encode(buf, m);
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(64 * sizeof(int))];
    } control = { 0 };
    struct iovec iov = { .iov_base = buf, .iov_len = split ? split : len };
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
    g_assert_cmpint(sendmsg(fd, &msg, MSG_NOSIGNAL), ==, iov.iov_len);
    if (split) {
        g_assert_cmpint(send(fd, buf + split, len - split, MSG_NOSIGNAL), ==,
                        len - split);
    }
}

static void *fake_fabric(void *opaque)
{
    FakeFabric *f = opaque;
    IbLinkMessage *m = g_new0(IbLinkMessage, 1);
    uint8_t buf[256];
    int fd = accept(f->listener, NULL, NULL);
    const char *error;
    IbLinkFds fds = { .num = 0 };
    size_t have = 0;
    int many[64];

    g_assert_cmpint(fd, >=, 0);
    while (have < 148) {
        ssize_t n = ib_link_receive(fd, buf + have, 148 - have, &fds);

        if (n < 0 && errno == EAGAIN) {
            g_usleep(1000);
            continue;
        }
        g_assert_cmpint(n, >, 0);
        have += n;
    }
    g_assert_cmpuint(fds.num, ==, 1);
    g_assert_true(ib_link_wake_accept(&f->wake, fds.fds[0], &error));
    g_assert_cmpint(feed(buf, have, have, m, &error), ==, 1);
    g_assert_cmpint(m->type, ==, IB_LINK_HELLO);
    g_assert_cmpstr(m->hello.name, ==, "hosta");

    memset(m, 0, sizeof(*m));
    m->type = IB_LINK_WELCOME;
    m->welcome.version = IB_LINK_VERSION;
    m->welcome.num_ports = 2;
    switch (f->manners) {
    case GOOD:
    case UNSEALED:
    case NO_WAKE:
        send_message(fd, m, f->fds, 3, 5);
        break;
    case REFUSES:
        m->type = IB_LINK_REFUSE;
        strcpy(m->text, "host 'hosta' is not in the topology");
        send_message(fd, m, NULL, 0, 0);
        break;
    case WRONG_VERSION:
        m->welcome.version = 9;
        send_message(fd, m, f->fds, 3, 0);
        break;
    case FEW_FDS:
        send_message(fd, m, f->fds, 2, 0);
        break;
    case OTHER_PORTS:
        m->welcome.num_ports = 1;
        send_message(fd, m, f->fds, 2, 0);
        break;
    case CLOSES:
        close(fd);
        fd = -1;
        break;
    case SILENT:
        break;
    case JUNK:
        g_assert_cmpint(send(fd, "HTTP/1.0 400 Bad", 16, MSG_NOSIGNAL), ==,
                        16);
        break;
    case LINK_FIRST:
        *m = (IbLinkMessage) { .type = IB_LINK_LINK, .port = 1 };
        send_message(fd, m, NULL, 0, 0);
        break;
    case MANY_FDS:
        for (size_t i = 0; i < G_N_ELEMENTS(many); i++) {
            many[i] = f->fds[1];
        }
        send_message(fd, m, many, G_N_ELEMENTS(many), 0);
        break;
    }
    f->connection = fd;
    g_free(m);
    return NULL;
}

static void fabric_start(FakeFabric *f, Manners manners)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };

    *f = (FakeFabric) { .manners = manners };
    f->dir = g_dir_make_tmp("ib-link-XXXXXX", NULL);
    g_assert_nonnull(f->dir);
    f->path = g_build_filename(f->dir, "sock", NULL);
    g_assert_cmpuint(strlen(f->path), <, sizeof(address.sun_path));
    strcpy(address.sun_path, f->path);
    f->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    g_assert_cmpint(bind(f->listener, (struct sockaddr *)&address,
                         sizeof(address)), ==, 0);
    g_assert_cmpint(listen(f->listener, 1), ==, 0);
    g_assert_true(ib_link_wake_init(&f->wake));
    f->fds[0] = manners == NO_WAKE ? eventfd(0, EFD_CLOEXEC)
                                   : dup(f->wake.self_end);
    f->fds[1] = ib_link_memory_create("port");
    f->fds[2] = manners == UNSEALED ? memfd_create("bad", MFD_CLOEXEC)
                                    : ib_link_memory_create("port");
    f->thread = g_thread_new("fabric", fake_fabric, f);
}

static void fabric_stop(FakeFabric *f)
{
    if (f->connection >= 0) {
        close(f->connection);
    }
    for (unsigned i = 0; i < G_N_ELEMENTS(f->fds); i++) {
        close(f->fds[i]);
    }
    ib_link_wake_fini(&f->wake);
    close(f->listener);
    g_unlink(f->path);
    g_rmdir(f->dir);
    g_free(f->path);
    g_free(f->dir);
}

static int poll_message(IbLinkClient *client, IbLinkMessage *m)
{
    int verdict;

    while ((verdict = ib_link_client_poll(client, m)) == 0) {
        g_usleep(1000);
    }
    return verdict;
}

static void test_client(void)
{
    IbLinkMessage *m = g_new0(IbLinkMessage, 1);
    IbLinkHello hello = hello_example();
    unsigned fds_before = open_fds();
    IbLinkPortMemory *memory;
    IbLinkClient *client;
    const char *problem;
    uint8_t buf[64];
    char *error;
    FakeFabric f;
    uint32_t len;
    IbRing tx;

    fabric_start(&f, GOOD);
    client = ib_link_client_connect(f.path, &hello, TIMEOUT_MS, &error);
    g_thread_join(f.thread);
    g_assert_cmpstr(error, ==, NULL);
    g_assert_nonnull(client);
    g_assert_cmpuint(client->num_ports, ==, 2);
    g_assert_false(client->ports[1].up);
    g_assert_cmpint(ib_link_client_poll(client, m), ==, 0);

    /* Packets: fabric to node's port 2, with wake-ups. */
    memory = ib_link_memory_map(f.fds[2], &problem);
    ib_ring_init_producer(&tx, &memory->to_node);
    memset(ib_ring_reserve(&tx), 0x42, 32);
    g_assert_true(ib_ring_consumer_sleep(&client->ports[2].rx));
    g_assert_true(ib_ring_commit(&tx, 32));
    g_assert_false(has_kick(&client->wake));
    ib_link_kick(&f.wake);
    g_assert_true(has_kick(&client->wake));
    g_assert_true(ib_link_unkick(&client->wake));
    g_assert_cmphex(ib_ring_peek(&client->ports[2].rx, &len)[31], ==, 0x42);
    g_assert_nonnull(ib_ring_reserve(&client->ports[2].tx));
    ib_link_kick(&client->wake);
    g_assert_true(has_kick(&f.wake));
    ib_link_memory_unmap(memory);

    /* Messages both ways, in two pieces. */
    *m = (IbLinkMessage) { .type = IB_LINK_LINK, .port = 2,
                           .link = { true, 4, 2 } };
    send_message(f.connection, m, NULL, 0, 9);
    g_assert_cmpint(poll_message(client, m), ==, 1);
    g_assert_cmpint(m->type, ==, IB_LINK_LINK);
    g_assert_true(client->ports[2].up);
    g_assert_false(client->ports[1].up);
    *m = (IbLinkMessage) { .type = IB_LINK_PHYS, .port = 1,
                           .phys = { true } };
    g_assert_true(ib_link_client_send(client, m));
    g_assert_cmpint(recv(f.connection, buf, sizeof(buf), 0), ==, 12);
    assert_hex(buf, 12, "0004 0001 00000004 01000000");

    /* The fabric goes: all cables are pulled. */
    close(f.connection);
    f.connection = -1;
    g_assert_cmpint(poll_message(client, m), ==, -1);
    g_assert_false(client->ports[2].up);
    g_assert_false(ib_link_client_send(client, m));
    ib_link_client_close(client);
    fabric_stop(&f);
    g_assert_cmpuint(open_fds(), ==, fds_before);
    ib_link_client_close(NULL);
    g_free(m);
}

static void test_client_bad_fabric(void)
{
    static const struct {
        Manners manners;
        const char *error;
    } cases[] = {
        { REFUSES, "the fabric refused 'hosta': host 'hosta' is not in the "
                   "topology" },
        { WRONG_VERSION, "the fabric speaks link version 9, we 2: update the "
                         "older one" },
        { FEW_FDS, "link of 'hosta': WELCOME needs one descriptor for the "
                   "wake-ups and one for each port, no more" },
        { OTHER_PORTS, "WELCOME for 1 ports; 'hosta' has 2" },
        { UNSEALED, "link of 'hosta': port memory is not sealed against "
                    "resizing" },
        { NO_WAKE, "link of 'hosta': the wake-up descriptor is no unix "
                   "stream socket" },
        { CLOSES, "the fabric closed the connection after HELLO" },
        { SILENT, "the fabric did not answer HELLO in time" },
        { JUNK, "the fabric broke the protocol: unknown message type" },
        { LINK_FIRST, "the fabric answered HELLO with LINK" },
        { MANY_FDS, "link of 'hosta': WELCOME needs one descriptor for the "
                    "wake-ups and one for each port, no more" },
    };
    IbLinkHello hello = hello_example();

    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        unsigned fds_before = open_fds();
        IbLinkClient *client;
        FakeFabric f;
        char *error;

        fabric_start(&f, cases[i].manners);
        client = ib_link_client_connect(f.path, &hello,
                                        cases[i].manners == SILENT
                                        ? 50 : TIMEOUT_MS, &error);
        g_thread_join(f.thread);
        g_assert_null(client);
        g_assert_cmpstr(error, ==, cases[i].error);
        free(error);
        fabric_stop(&f);
        /* Nothing that came over is left open. */
        g_assert_cmpuint(open_fds(), ==, fds_before);
    }
}

/* After the handshake the fabric may say LINK (or REFUSE), nothing else. */
static void test_client_bad_messages(void)
{
    IbLinkMessage bad[] = {
        { .type = IB_LINK_LINK, .port = 3, .link = { true, 1, 1 } },
        { .type = IB_LINK_PHYS, .port = 1 },
        { .type = IB_LINK_WELCOME, .welcome = { 1, 2 } },
    };
    IbLinkHello hello = hello_example();
    IbLinkMessage *m = g_new0(IbLinkMessage, 1);

    for (size_t i = 0; i < G_N_ELEMENTS(bad); i++) {
        IbLinkClient *client;
        FakeFabric f;
        char *error;

        fabric_start(&f, GOOD);
        client = ib_link_client_connect(f.path, &hello, TIMEOUT_MS, &error);
        g_thread_join(f.thread);
        g_assert_nonnull(client);
        send_message(f.connection, &bad[i], NULL, 0, 0);
        g_assert_cmpint(poll_message(client, m), ==, -1);
        ib_link_client_close(client);
        fabric_stop(&f);
    }
    g_free(m);
}

static void test_client_no_fabric(void)
{
    IbLinkHello hello = hello_example();
    char *error;
    char long_path[200];

    g_assert_null(ib_link_client_connect("/nonexistent/sock", &hello, 1000,
                                         &error));
    g_assert_cmpstr(error, ==, "cannot connect to '/nonexistent/sock': No "
                    "such file or directory (is the fabric running?)");
    free(error);
    memset(long_path, 'x', sizeof(long_path) - 1);
    long_path[sizeof(long_path) - 1] = 0;
    g_assert_null(ib_link_client_connect(long_path, &hello, 1000, &error));
    g_assert_nonnull(strstr(error, "use a shorter directory"));
    free(error);
    hello.num_ports = 9;
    g_assert_null(ib_link_client_connect("x", &hello, 1000, &error));
    g_assert_cmpstr(error, ==, "'hosta' has 9 ports: a node has 1 to 8");
    free(error);
}

int main(int argc, char **argv)
{
    scratch_init();
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/link/messages", test_messages);
    g_test_add_func("/link/stream", test_stream);
    g_test_add_func("/link/hostile-messages", test_hostile_messages);
    g_test_add_func("/link/hostile-hello", test_hostile_hello);
    g_test_add_func("/link/overfed", test_overfed);
    g_test_add_func("/link/memory", test_memory);
    g_test_add_func("/link/kicks", test_kicks);
    g_test_add_func("/link/hostile-kicks", test_hostile_kicks);
    g_test_add_func("/link/client", test_client);
    g_test_add_func("/link/client-bad-fabric", test_client_bad_fabric);
    g_test_add_func("/link/client-bad-messages", test_client_bad_messages);
    g_test_add_func("/link/client-no-fabric", test_client_no_fabric);
    return g_test_run();
}
