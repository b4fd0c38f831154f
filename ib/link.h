/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The link between a node's process (QEMU, the subnet manager, a simulated
 * host) and the fabric's: messages over a unix stream socket, packets through
 * two rings per port in shared memory.  docs/link-protocol.md has the prose.
 *
 * Theory of operation:
 *   node -> fabric  HELLO     who I am; with a descriptor (SCM_RIGHTS) by
 *                             which the fabric wakes the node
 *   fabric -> node  WELCOME   with one by which the node wakes the fabric, and
 *                             for each port a memfd (IbLinkPortMemory)
 *            or     REFUSE    with a sentence that says why; then close
 *   node -> fabric  PHYS      port wants its link (Polling) or not (Disabled)
 *   fabric -> node  LINK      port's link is up (speed, width) or down
 *   node -> fabric  EVENT     a JSON object for the timeline (see docs)
 * A closed socket means, to both, that all cables of the node are pulled.
 * The fabric makes and seals the memory; the node checks the seals, so that
 * neither can truncate it under the other's feet.
 *
 * Every message: 8-byte header { be16 type, be16 port, be32 length } and
 * length bytes of body, at most IB_LINK_BODY_MAX.
 */
#ifndef IB_LINK_H
#define IB_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "ring.h"

#define IB_LINK_VERSION 2
#define IB_LINK_HEADER_LEN 8
#define IB_LINK_BODY_MAX 2048
#define IB_LINK_NAME_MAX 64
#define IB_LINK_MAX_PORTS 8
/* Descriptors that WELCOME may bring. */
#define IB_LINK_MAX_FDS (1 + IB_LINK_MAX_PORTS)

typedef enum IbLinkType {
    IB_LINK_HELLO = 1,
    IB_LINK_WELCOME = 2,
    IB_LINK_REFUSE = 3,
    IB_LINK_PHYS = 4,
    IB_LINK_LINK = 5,
    IB_LINK_EVENT = 6,
} IbLinkType;

typedef struct IbLinkHello {
    uint16_t version;
    uint8_t num_ports;
    uint8_t node_type;               /* IB_NODE_CA */
    uint64_t node_guid;
    uint64_t port_guids[IB_LINK_MAX_PORTS];
    char name[IB_LINK_NAME_MAX];     /* the host's name in the topology */
} IbLinkHello;

typedef struct IbLinkMessage {
    IbLinkType type;
    uint16_t port;                   /* 1-based; 0 where it means nothing */
    union {
        IbLinkHello hello;
        struct { uint16_t version; uint8_t num_ports; } welcome;
        struct { bool enabled; } phys;
        struct { bool up; uint8_t speed, width; } link;
        char text[IB_LINK_BODY_MAX + 1];  /* REFUSE, EVENT */
    };
} IbLinkMessage;

/* One port's memory: what the node sends and what it receives. */
typedef struct IbLinkPortMemory {
    IbRingShared to_fabric;
    IbRingShared to_node;
} IbLinkPortMemory;

/* "HELLO", "WELCOME", ...; "unknown" for the rest. */
const char *ib_link_type_name(unsigned type);

/*
 * Returns the length written to @buf (header + IB_LINK_BODY_MAX fit).
 * Bodies, all numbers big-endian:
 *   HELLO    u16 version, u8 num_ports, u8 node_type, u64 node_guid,
 *            u64 port_guids[8] (zero beyond num_ports), char name[64]
 *   WELCOME  u16 version, u8 num_ports, u8 zero
 *   REFUSE, EVENT  1 to IB_LINK_BODY_MAX bytes of text, no NUL
 *   PHYS     u8 enabled, 3 bytes zero
 *   LINK     u8 up, u8 speed, u8 width, u8 zero
 * The port is 1-based in PHYS and LINK, may be 0 in EVENT, else is 0.
 */
size_t ib_link_encode(uint8_t *buf, const IbLinkMessage *message);

/* Takes a byte stream apart; feed it whatever arrives. */
typedef struct IbLinkParser {
    uint8_t buf[IB_LINK_HEADER_LEN + IB_LINK_BODY_MAX];
    size_t have;
} IbLinkParser;
void ib_link_parser_init(IbLinkParser *parser);
/* Bytes it can take now: at least 1. */
size_t ib_link_parser_want(const IbLinkParser *parser);
/*
 * Takes at most ib_link_parser_want() bytes.  1: @message is complete;
 * 0: feed more; -1: the peer broke the protocol, *error says how (static):
 * close the connection.  Whether a port exists at all is the caller's check.
 */
int ib_link_parser_feed(IbLinkParser *parser, const void *data, size_t len,
                        IbLinkMessage *message, const char **error);

/* Fabric's side: a sealed memfd with formatted rings; -1 and errno. */
int ib_link_memory_create(const char *name);
/* Either side: checks size and seals, maps; NULL and *error (static). */
IbLinkPortMemory *ib_link_memory_map(int fd, const char **error);
void ib_link_memory_unmap(IbLinkPortMemory *memory);

/*
 * Wake-ups.  A side that sleeps makes a pair of connected sockets: it sleeps
 * on one and gives the peer a copy of the other.  So nobody reads from what
 * the peer has too, where the peer could hold him up, and writing waits for
 * nothing, whatever the peer did to it: how a socket is written to is said
 * with each call.  (The file flags of an eventfd belong to all who have it.)
 * The own copy of the far end stays open: only a peer that shuts it down, not
 * one that dies, makes ib_link_unkick() fail.
 */
typedef struct IbLinkWake {
    int self_fd;                     /* to sleep on; nobody else has it */
    int self_end;                    /* its far end: a copy is the peer's */
    int peer_fd;                     /* far end of the peer's, -1: none yet */
} IbLinkWake;
/* Makes the own pair; false and errno. */
bool ib_link_wake_init(IbLinkWake *wake);
void ib_link_wake_fini(IbLinkWake *wake);
/* Takes the peer's descriptor; when it returns false, *error, and closed. */
bool ib_link_wake_accept(IbLinkWake *wake, int fd, const char **error);
/* Wakes the peer. */
void ib_link_kick(const IbLinkWake *wake);
/* After a sleep; false: the peer has broken it, do not sleep on it again. */
bool ib_link_unkick(const IbLinkWake *wake);

/* Descriptors on their way: a message's, until they are taken. */
typedef struct IbLinkFds {
    int fds[IB_LINK_MAX_FDS];
    unsigned num;
    bool surplus;                    /* more came; they are closed */
} IbLinkFds;
void ib_link_fds_add(IbLinkFds *fds, int fd);
void ib_link_fds_close(IbLinkFds *fds);
/* recv() and sendmsg() that wait for nothing; EINTR is the caller's. */
ssize_t ib_link_receive(int sock, void *buf, size_t len, IbLinkFds *fds);
ssize_t ib_link_send(int sock, const void *buf, size_t len, const int *fds,
                     unsigned num_fds);

/* A node's end of one port. */
typedef struct IbLinkPort {
    IbLinkPortMemory *memory;
    IbRing tx, rx;
    bool up;
} IbLinkPort;

/*
 * Node's side: wires its @num_ports ports, 1-based, and @wake from what came
 * with WELCOME.  NULL, or what is wrong (static): then nothing is wired.  The
 * descriptors are used up or closed.
 */
const char *ib_link_wire(IbLinkWake *wake, IbLinkPort *ports,
                         unsigned num_ports, IbLinkFds *fds);
void ib_link_unwire(IbLinkPort *ports, unsigned num_ports);

/*
 * Node side for plain processes (SM, simulated hosts): connects and shakes
 * hands, blocking, within @timeout_ms.  NULL and a sentence in *error (free
 * with free()).
 */
typedef struct IbLinkClient {
    int fd;
    IbLinkParser parser;
    IbLinkWake wake;
    unsigned num_ports;
    IbLinkPort ports[IB_LINK_MAX_PORTS + 1];   /* 1-based */
} IbLinkClient;
IbLinkClient *ib_link_client_connect(const char *path,
                                     const IbLinkHello *hello,
                                     int timeout_ms, char **error);
void ib_link_client_close(IbLinkClient *client);
bool ib_link_client_send(IbLinkClient *client, const IbLinkMessage *message);
/*
 * Non-blocking read of the socket.  1: one message (LINK is also noted in
 * ports[].up); 0: nothing now; -1: connection lost.
 */
int ib_link_client_poll(IbLinkClient *client, IbLinkMessage *message);

#endif
