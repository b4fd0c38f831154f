/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The daemon's forwarding thread, which owns the Fabric, and the ways between
 * it and the control thread.
 *
 * Theory of operation: the control thread (GMainLoop) never touches the
 * fabric itself.  It asks with runner_call(), which runs a function in the
 * forwarding thread between two batches of packets and waits for it: some
 * microseconds, for commands that people and scripts give.  The other way go
 *   events       through a bounded queue; when it is full they are counted
 *   link states  as one word per host port, of which only the last counts,
 *                so that none can be lost
 * and one eventfd that wakes the control thread.  No lock is taken on the way
 * of a packet.
 */
#ifndef FABRIC_RUNNER_H
#define FABRIC_RUNNER_H

#include <stdatomic.h>

#include "fabric/capture.h"
#include "fabric/fabric.h"

/* Events on their way to the control thread. */
#define RUNNER_EVENTS 4096
/* Packets between two looks at timers and calls. */
#define RUNNER_BATCH 1024
/* After traffic, look again for this long before going to sleep. */
#define RUNNER_LOOK_AGAIN_NS 15000

typedef struct Runner Runner;

/* A host's part that the forwarding thread uses; node_opaque of the fabric. */
typedef struct RunnerNode {
    Runner *runner;
    IbLinkWake wake;
    atomic_uint link_words[IB_LINK_MAX_PORTS + 1];
    atomic_uint broken_port;         /* wrote nonsense into this one's ring */
    atomic_bool wake_broken;         /* shut its end of wake down */
} RunnerNode;

/*
 * A link word counts the changes, so that a link that went down and up again
 * before anyone looked is not taken for one that stayed up.
 */
#define RUNNER_LINK_COUNT_SHIFT 17
#define RUNNER_LINK_UP (1u << 16)
#define RUNNER_LINK_SPEED(word) ((word) >> 8 & 0xFF)
#define RUNNER_LINK_WIDTH(word) ((word) & 0xFF)

typedef void RunnerFn(Fabric *fabric, void *data);

/* @woken is called in the main context: events or link words to look at. */
Runner *runner_new(const Topology *topology, uint64_t seed,
                   void (*woken)(void *opaque), void *opaque, char **error);
void runner_free(Runner *runner);

void runner_call(Runner *runner, RunnerFn *fn, void *data);
bool runner_next_event(Runner *runner, FabricEvent *event);
/* Events that did not fit so far. */
uint64_t runner_events_lost(Runner *runner);

bool runner_watch(Runner *runner, RunnerNode *node);
void runner_unwatch(Runner *runner, RunnerNode *node);

/* To be called through runner_call() only: @slot < FABRIC_MAX_CAPTURES. */
void runner_set_capture(Runner *runner, unsigned slot, Capture *capture);

#endif
