/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Topology files: which switches, hosts and cables a fabric has.
 * docs/topology.md describes the format; this parser is the only reader of
 * it (other programs ask `ehca-fabric --check --json`).
 *
 * A host is whatever joins by its name through the link socket: a guest's
 * adapter, the subnet manager, a simulated host.
 */
#ifndef FABRIC_TOPOLOGY_H
#define FABRIC_TOPOLOGY_H

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

/* Names go into HELLO and into file names: short, no blanks, no '/'. */
#define TOPOLOGY_NAME_MAX 63
#define TOPOLOGY_MAX_NODES 16384
#define TOPOLOGY_MAX_CABLES 65536
#define TOPOLOGY_MAX_FILE (4u << 20)
#define TOPOLOGY_MAX_ERRORS 20

typedef enum TopologyKind {
    TOPOLOGY_HOST,
    TOPOLOGY_SWITCH,
} TopologyKind;

typedef struct TopologyNode {
    TopologyKind kind;
    char name[TOPOLOGY_NAME_MAX + 1];
    unsigned num_ports;
    uint64_t guid;            /* 0: a host that did not ask for a certain one */
    uint8_t mtu;              /* MTU code of PortInfo */
    unsigned line;
} TopologyNode;

typedef struct TopologyEnd {
    unsigned node;            /* index into nodes */
    unsigned port;            /* 1 .. num_ports */
} TopologyEnd;

typedef struct TopologyCable {
    char name[TOPOLOGY_NAME_MAX + 1];
    TopologyEnd ends[2];
    uint8_t width, speed;     /* PortInfo codes: 2 = 4x, 1 = SDR */
    bool plugged;
    unsigned line;
} TopologyCable;

typedef struct Topology {
    char *file;
    TopologyNode *nodes;
    unsigned num_nodes;
    TopologyCable *cables;
    unsigned num_cables;
} Topology;

/*
 * NULL when there is anything wrong; then *errors holds up to
 * TOPOLOGY_MAX_ERRORS lines "FILE:LINE: what is wrong; what would be right",
 * each ended by a newline (free with g_free()).
 */
Topology *topology_load(const char *file, char **errors);
/* The same from memory; @file is only for the messages. */
Topology *topology_parse(const char *file, const char *text, size_t len,
                         char **errors);
void topology_free(Topology *topology);

/* Index, or -1. */
int topology_find_node(const Topology *topology, const char *name);
int topology_find_cable(const Topology *topology, const char *name);
/* "a, b, c" of all hosts / all cables (bounded), for messages. */
char *topology_host_names(const Topology *topology);
char *topology_cable_names(const Topology *topology);

/* What --check --json prints; free with g_free(). */
char *topology_to_json(const Topology *topology);

const char *topology_width_name(unsigned width);   /* "4x" */
const char *topology_speed_name(unsigned speed);   /* "SDR" */

#endif
