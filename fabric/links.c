/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Hosts that join through the link socket (docs/link-protocol.md).
 *
 * Theory of operation: each connection is a peer.
 *
 *   accepted  --HELLO--> joined      memory and wake-ups made, host attached
 *      |                              to the fabric, WELCOME sent
 *      +--bad HELLO, name taken, 5 s--> refused (REFUSE), closed
 *   joined    --PHYS-->  port enabled or disabled
 *             --EVENT--> NODE_EVENT
 *             --closed, protocol, ring or wake-ups broken--> detached: all
 *                                     its cables count as pulled
 *
 * LINK messages follow the link words of runner.h: when the socket takes no
 * more, they wait in there, so nothing grows.  A peer that sends more than
 * PEER_MESSAGES or PEER_BYTES a second is not read for the rest of it, one
 * that joins more than JOINS times a second is refused until it is over.  Of
 * MAX_STRANGERS who have not said HELLO yet one makes room for the next who
 * comes.
 */
#include <errno.h>
#include <glib-unix.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fabric/daemon.h"

#define HANDSHAKE_MS 5000
#define MAX_STRANGERS 64             /* peers that have not said HELLO */
#define PEER_READS 64                /* reads before others have a turn */
#define PEER_MESSAGES 2000           /* a second */
#define PEER_BYTES (1u << 20)        /* and bytes of them */
#define BAD_EVENTS_TOLD 10           /* NODE_ERRORs about a host's EVENTs */
#define JOINS 20                     /* of a host in a second */

typedef struct Peer {
    Links *links;
    Guest guest;
    int fd;
    guint in_source, out_source, timeout_source, pause_source;
    IbLinkParser parser;
    int node;                        /* -1: has not joined */
    unsigned num_ports;
    IbLinkFds fds;                   /* that came with HELLO */
    RunnerNode rn;
    IbLinkPortMemory *memory[IB_LINK_MAX_PORTS];
    unsigned sent_words[IB_LINK_MAX_PORTS + 1];
    uint8_t out[2 * IB_LINK_HEADER_LEN + IB_LINK_BODY_MAX];
    size_t out_len, out_done;
    int64_t second_ns;
    unsigned messages, bytes;        /* in this second */
    unsigned bad_events;
} Peer;

/* How often a host of the topology joined in this second. */
typedef struct JoinCount {
    int64_t second_ns;
    unsigned joins;
} JoinCount;

struct Links {
    Daemon *daemon;
    Listener *listener;
    GPtrArray *peers;                /* in the order in which they came */
    unsigned strangers;
    JoinCount *joins;                /* by node */
};

static const char *peer_name(const Peer *peer)
{
    return peer->node < 0 ? "?" :
           peer->links->daemon->topology->nodes[peer->node].name;
}

static void remove_source(guint *source)
{
    if (*source) {
        g_source_remove(*source);
        *source = 0;
    }
}

static void close_fd(int *fd)
{
    if (*fd >= 0) {
        close(*fd);
        *fd = -1;
    }
}

typedef struct AttachCall {
    Peer *peer;
    const IbLinkHello *hello;
    bool attached;
    char *error;
} AttachCall;

static void call_attach(Fabric *fabric, void *data)
{
    AttachCall *call = data;
    Peer *peer = call->peer;

    call->attached = fabric_node_attach(fabric, call->hello, peer->memory,
                                        &peer->rn, &call->error);
    if (call->attached && !runner_watch(peer->rn.runner, &peer->rn)) {
        call->error = g_strdup("no room for its event descriptor");
        fabric_node_detach(fabric, peer->node);
        call->attached = false;
    }
}

static void call_detach(Fabric *fabric, void *data)
{
    Peer *peer = data;

    runner_unwatch(peer->rn.runner, &peer->rn);
    fabric_node_detach(fabric, peer->node);
}

typedef struct EnableCall {
    int node;
    unsigned port;
    bool enable;
} EnableCall;

static void call_enable(Fabric *fabric, void *data)
{
    const EnableCall *call = data;

    fabric_node_enable(fabric, call->node, call->port, call->enable);
}

/* Memory and descriptors of a peer, given back. */
static void release_memory(Peer *peer)
{
    for (unsigned p = 0; p < IB_LINK_MAX_PORTS; p++) {
        ib_link_memory_unmap(peer->memory[p]);
        peer->memory[p] = NULL;
    }
    ib_link_wake_fini(&peer->rn.wake);
    ib_link_fds_close(&peer->fds);
}

static void peer_free(Peer *peer)
{
    Links *links = peer->links;

    if (peer->node >= 0) {
        runner_call(links->daemon->runner, call_detach, peer);
        events_drain(links->daemon->events);
    } else {
        links->strangers--;
    }
    remove_source(&peer->in_source);
    remove_source(&peer->out_source);
    remove_source(&peer->timeout_source);
    remove_source(&peer->pause_source);
    release_memory(peer);
    close_fd(&peer->fd);
    g_ptr_array_remove(links->peers, peer);
    g_free(peer);
}

/* Output. */

static gboolean on_writable(gint fd, GIOCondition condition, gpointer opaque);

/* Sends what is in out[]; false: the connection is lost. */
static bool flush(Peer *peer)
{
    while (peer->out_done < peer->out_len) {
        ssize_t n = send(peer->fd, peer->out + peer->out_done,
                         peer->out_len - peer->out_done,
                         MSG_NOSIGNAL | MSG_DONTWAIT);

        if (n > 0) {
            peer->out_done += n;
        } else if (n < 0 && errno == EAGAIN) {
            if (!peer->out_source) {
                peer->out_source = g_unix_fd_add(peer->fd, G_IO_OUT,
                                                 on_writable, peer);
            }
            return true;
        } else if (n == 0 || errno != EINTR) {
            return false;
        }
    }
    peer->out_len = peer->out_done = 0;
    return true;
}

static void queue_link(Peer *peer, unsigned port, unsigned word, bool up)
{
    IbLinkMessage message = {
        .type = IB_LINK_LINK, .port = port,
        .link = { .up = up, .speed = RUNNER_LINK_SPEED(word),
                  .width = RUNNER_LINK_WIDTH(word) },
    };

    peer->out_len += ib_link_encode(peer->out + peer->out_len, &message);
}

/* LINK messages for what has changed; false: the connection is lost. */
static bool send_links(Peer *peer)
{
    for (unsigned p = 1; p <= peer->num_ports && !peer->out_len; p++) {
        unsigned word = atomic_load(&peer->rn.link_words[p]);
        unsigned sent = peer->sent_words[p];

        if (word == sent) {
            continue;
        }
        peer->sent_words[p] = word;
        if (word & sent & RUNNER_LINK_UP) {
            queue_link(peer, p, word, false);    /* it was down meanwhile */
        }
        if ((word | sent) & RUNNER_LINK_UP) {
            queue_link(peer, p, word, word & RUNNER_LINK_UP);
        }
        if (!flush(peer)) {
            return false;
        }
    }
    return true;
}

static gboolean on_writable(gint fd, GIOCondition condition, gpointer opaque)
{
    Peer *peer = opaque;

    peer->out_source = 0;
    if (!flush(peer) || !send_links(peer)) {
        peer_free(peer);
    }
    return G_SOURCE_REMOVE;
}

static void send_refuse(Peer *peer, const char *why)
{
    IbLinkMessage *message = g_new0(IbLinkMessage, 1);
    uint8_t buf[IB_LINK_HEADER_LEN + IB_LINK_BODY_MAX];
    size_t len;

    message->type = IB_LINK_REFUSE;
    g_strlcpy(message->text, why, sizeof(message->text));
    len = ib_link_encode(buf, message);
    g_free(message);
    if (peer->out_len == 0 &&
        send(peer->fd, buf, len, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
        /* It will see the connection close, then. */
    }
}

/* Tells the host and everybody why, and parts with it. */
static void peer_fail(Peer *peer, const char *why)
{
    Events *events = peer->links->daemon->events;

    send_refuse(peer, why);
    events_node_error(events, peer->node, why);
    peer_free(peer);
}

/* Joining. */

/* Wakes the host by the descriptor that came with its HELLO. */
static bool make_wake(Peer *peer, char **error)
{
    const char *problem;
    int peer_fd;

    if (peer->fds.num != 1 || peer->fds.surplus) {
        *error = g_strdup("HELLO needs one descriptor, for the host's "
                          "wake-ups");
        return false;
    }
    if (!ib_link_wake_init(&peer->rn.wake)) {
        *error = g_strdup_printf("the fabric has no descriptors for it: %s",
                                 g_strerror(errno));
        return false;
    }
    peer_fd = peer->fds.fds[0];
    peer->fds.num = 0;
    if (!ib_link_wake_accept(&peer->rn.wake, peer_fd, &problem)) {
        *error = g_strdup(problem);
        return false;
    }
    return true;
}

/* Fills the ports' places of @fds. */
static bool make_memory(Peer *peer, int *fds, char **error)
{
    const char *problem = NULL;

    for (unsigned p = 0; p < peer->num_ports; p++) {
        fds[1 + p] = ib_link_memory_create("ehca-port");
        if (fds[1 + p] >= 0) {
            peer->memory[p] = ib_link_memory_map(fds[1 + p], &problem);
        }
        if (!peer->memory[p]) {
            *error = g_strdup_printf("the fabric has no memory for it: %s",
                                     problem ? problem : g_strerror(errno));
            return false;
        }
    }
    return true;
}

static bool send_welcome(Peer *peer, const int *fds)
{
    IbLinkMessage message = {
        .type = IB_LINK_WELCOME,
        .welcome = { .version = IB_LINK_VERSION,
                     .num_ports = peer->num_ports },
    };
    uint8_t buf[IB_LINK_HEADER_LEN + IB_LINK_BODY_MAX];
    size_t len = ib_link_encode(buf, &message);

    /* Nothing was sent to this socket yet: it takes some bytes at once. */
    return ib_link_send(peer->fd, buf, len, fds, 1 + peer->num_ports) ==
           (ssize_t)len;
}

/* Is the other end of this connection gone, though we did not hear yet? */
static bool is_dead(const Peer *peer)
{
    char byte;
    ssize_t n = recv(peer->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);

    return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
}

static void bury_dead(Links *links, int node)
{
    for (unsigned i = 0; i < links->peers->len; i++) {
        Peer *other = g_ptr_array_index(links->peers, i);

        if (other->node == node && is_dead(other)) {
            peer_free(other);
            return;
        }
    }
}

static bool joins_too_often(Links *links, int node)
{
    JoinCount *count = &links->joins[node];
    int64_t now = ib_clock_now(&links->daemon->clock);

    if (now - count->second_ns >= IB_SEC) {
        *count = (JoinCount) { .second_ns = now };
    }
    return count->joins == JOINS;
}

/* False: the peer is no more. */
static bool join(Peer *peer, const IbLinkHello *hello)
{
    Links *links = peer->links;
    Daemon *daemon = links->daemon;
    AttachCall call = { .peer = peer, .hello = hello };
    int fds[IB_LINK_MAX_FDS];        /* in the order of WELCOME */
    int node = topology_find_node(daemon->topology, hello->name);
    char *error = NULL;
    bool good = false;

    for (unsigned i = 0; i < IB_LINK_MAX_FDS; i++) {
        fds[i] = -1;
    }
    if (hello->version != IB_LINK_VERSION) {
        error = g_strdup_printf("%s speaks link version %u, the fabric %u; "
                                "update the older one", hello->name,
                                hello->version, IB_LINK_VERSION);
    } else if (hello->node_type != IB_NODE_CA) {
        error = g_strdup_printf("%s says it is not a channel adapter; "
                                "switches are made by the topology",
                                hello->name);
    } else if (node >= 0 && joins_too_often(links, node)) {
        error = g_strdup_printf("%s joins more than %d times a second; let "
                                "it wait between its tries", hello->name,
                                JOINS);
    } else {
        if (node >= 0) {
            bury_dead(links, node);
        }
        peer->num_ports = hello->num_ports;
        peer->node = node;           /* for call_detach() */
        if (make_wake(peer, &error) && make_memory(peer, fds, &error)) {
            fds[0] = peer->rn.wake.self_end;
            runner_call(daemon->runner, call_attach, &call);
            error = call.error;
            good = call.attached;
        }
        if (!good) {
            peer->node = -1;
        }
    }
    if (good) {
        links->joins[node].joins++;
        links->strangers--;
        remove_source(&peer->timeout_source);
        good = send_welcome(peer, fds);
        events_drain(daemon->events);
        if (!good) {
            error = g_strdup("the connection took no WELCOME");
        }
    }
    for (unsigned p = 1; p < IB_LINK_MAX_FDS; p++) {
        close_fd(&fds[p]);
    }
    if (!good) {
        peer_fail(peer, error);
    }
    g_free(error);
    return good;
}

/* Input. */

static bool phys(Peer *peer, const IbLinkMessage *message)
{
    EnableCall call = {
        .node = peer->node, .port = message->port,
        .enable = message->phys.enabled,
    };
    Daemon *daemon = peer->links->daemon;

    if (message->port < 1 || message->port > peer->num_ports) {
        char *why = g_strdup_printf("PHYS for port %u; %s has ports 1 to %u",
                                    message->port, peer_name(peer),
                                    peer->num_ports);

        peer_fail(peer, why);
        g_free(why);
        return false;
    }
    runner_call(daemon->runner, call_enable, &call);
    events_drain(daemon->events);
    if (!send_links(peer)) {
        peer_free(peer);
        return false;
    }
    return true;
}

static bool node_event(Peer *peer, const IbLinkMessage *message)
{
    Events *events = peer->links->daemon->events;
    const char *error;

    error = events_node_event(events, peer->node, message->port,
                              message->text);
    if (error && peer->bad_events++ < BAD_EVENTS_TOLD) {
        char *why = g_strdup_printf("EVENT is thrown away: %s", error);

        events_node_error(events, peer->node, why);
        g_free(why);
    }
    return true;
}

/* False: the peer is no more. */
static bool take_message(Peer *peer, const IbLinkMessage *message)
{
    if (peer->node < 0) {
        if (message->type != IB_LINK_HELLO) {
            peer_fail(peer, "the first message must be HELLO");
            return false;
        }
        return join(peer, &message->hello);
    }
    switch (message->type) {
    case IB_LINK_PHYS:
        return phys(peer, message);
    case IB_LINK_EVENT:
        return node_event(peer, message);
    default:
        peer_fail(peer, "only PHYS and EVENT may come after HELLO");
        return false;
    }
}

static gboolean on_readable(gint fd, GIOCondition condition, gpointer opaque);

static gboolean on_pause_over(gpointer opaque)
{
    Peer *peer = opaque;

    peer->pause_source = 0;
    peer->in_source = g_unix_fd_add(peer->fd, G_IO_IN | G_IO_HUP,
                                    on_readable, peer);
    return G_SOURCE_REMOVE;
}

/* Too much for this second? */
static bool over_rate(Peer *peer)
{
    int64_t now = ib_clock_now(&peer->links->daemon->clock);

    if (now - peer->second_ns >= IB_SEC) {
        peer->second_ns = now;
        peer->messages = peer->bytes = 0;
    }
    return ++peer->messages > PEER_MESSAGES || peer->bytes > PEER_BYTES;
}

static gboolean on_readable(gint fd, GIOCondition condition, gpointer opaque)
{
    Peer *peer = opaque;
    uint8_t buf[IB_LINK_HEADER_LEN + IB_LINK_BODY_MAX];
    const char *error;

    for (int i = 0; i < PEER_READS; i++) {
        IbLinkMessage message;
        size_t want = ib_link_parser_want(&peer->parser);
        /* Only HELLO brings descriptors; the kernel closes others. */
        ssize_t n = peer->node < 0
                    ? ib_link_receive(fd, buf, want, &peer->fds)
                    : recv(fd, buf, want, MSG_DONTWAIT);

        if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
            return G_SOURCE_CONTINUE;
        }
        if (n <= 0) {
            peer->in_source = 0;
            peer_free(peer);
            return G_SOURCE_REMOVE;
        }
        peer->bytes += n;
        switch (ib_link_parser_feed(&peer->parser, buf, n, &message,
                                    &error)) {
        case 0:
            break;
        case 1:
            if (!take_message(peer, &message)) {
                return G_SOURCE_REMOVE;
            }
            if (over_rate(peer)) {
                peer->in_source = 0;
                peer->pause_source = g_timeout_add(1000, on_pause_over,
                                                   peer);
                return G_SOURCE_REMOVE;
            }
            break;
        default:
            peer_fail(peer, error);
            return G_SOURCE_REMOVE;
        }
    }
    return G_SOURCE_CONTINUE;
}

static gboolean on_handshake_timeout(gpointer opaque)
{
    Peer *peer = opaque;

    peer->timeout_source = 0;
    peer_fail(peer, "no HELLO came in 5 seconds");
    return G_SOURCE_REMOVE;
}

static void make_room(Links *links)
{
    const Guest *guests[MAX_STRANGERS];
    Peer *strangers[MAX_STRANGERS];
    unsigned num = 0;

    if (links->strangers < MAX_STRANGERS) {
        return;
    }
    for (unsigned i = 0; i < links->peers->len; i++) {
        Peer *peer = g_ptr_array_index(links->peers, i);

        if (peer->node < 0) {
            strangers[num] = peer;
            guests[num++] = &peer->guest;
        }
    }
    peer_fail(strangers[guest_who_goes(guests, num)],
              "too many connections have not said HELLO; this is the oldest "
              "of the process that has the most");
}

static void come(void *opaque, int peer_fd)
{
    Links *links = opaque;
    Peer *peer;

    make_room(links);
    peer = g_new0(Peer, 1);
    peer->links = links;
    peer->fd = peer_fd;
    guest_init(&peer->guest, peer_fd);
    peer->node = -1;
    peer->rn.runner = links->daemon->runner;
    peer->rn.wake = (IbLinkWake) { -1, -1, -1 };
    ib_link_parser_init(&peer->parser);
    peer->in_source = g_unix_fd_add(peer_fd, G_IO_IN | G_IO_HUP, on_readable,
                                    peer);
    peer->timeout_source = g_timeout_add(HANDSHAKE_MS, on_handshake_timeout,
                                         peer);
    links->strangers++;
    g_ptr_array_add(links->peers, peer);
}

void links_sync(Links *links)
{
    for (unsigned i = links->peers->len; i-- > 0; ) {
        Peer *peer = g_ptr_array_index(links->peers, i);
        unsigned broken = atomic_load(&peer->rn.broken_port);

        if (peer->node < 0) {
            continue;
        }
        if (broken) {
            char *why = g_strdup_printf("port %u: its ring holds what cannot "
                                        "be (a counter or a length)",
                                        broken);

            peer_fail(peer, why);
            g_free(why);
        } else if (atomic_load(&peer->rn.wake_broken)) {
            peer_fail(peer, "it shut down the socket that wakes the fabric");
        } else if (!send_links(peer)) {
            peer_free(peer);
        }
    }
}

Links *links_new(Daemon *daemon, int listen_fd)
{
    Links *links = g_new0(Links, 1);

    links->daemon = daemon;
    links->peers = g_ptr_array_new();
    links->joins = g_new0(JoinCount, daemon->topology->num_nodes);
    links->listener = listener_new(listen_fd, come, links);
    return links;
}

void links_free(Links *links)
{
    if (!links) {
        return;
    }
    listener_free(links->listener);
    while (links->peers->len) {
        peer_free(g_ptr_array_index(links->peers, 0));
    }
    g_ptr_array_free(links->peers, true);
    g_free(links->joins);
    g_free(links);
}
