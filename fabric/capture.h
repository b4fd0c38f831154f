/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Capture of packets into a pcapng file or pipe.
 *
 * Theory of operation: the forwarding thread copies packets into a ring of
 * CAPTURE_BUFFER bytes and never waits; what does not fit is counted.  A
 * thread of the capture's own writes them out, so that a slow disk or a
 * Wireshark that does not read holds up nobody.  A pipe (FIFO) waits for its
 * reader, and when the reader goes, for the next one, which gets a new
 * section; packets are not kept while nobody reads.
 */
#ifndef FABRIC_CAPTURE_H
#define FABRIC_CAPTURE_H

#include "fabric/fabric.h"
#include "fabric/pcapng.h"

#define CAPTURE_BUFFER (8u << 20)

typedef struct Capture Capture;

typedef struct CaptureStatus {
    const char *file;
    bool is_pipe, connected;
    uint64_t packets, bytes, dropped;
    const char *failure;             /* NULL, or why nothing is written */
} CaptureStatus;

/*
 * Opens @file (made anew; or an existing FIFO).  @cables has a byte per cable
 * of the topology: those that get an interface.  NULL and *error.
 */
Capture *capture_new(const Topology *topology, const char *file,
                     PcapngFormat format, const uint8_t *cables,
                     char **error);
/* Writes what is left and closes; fills @status (file: freed by caller). */
void capture_free(Capture *capture, CaptureStatus *status);

/* Forwarding thread. */
void capture_push(Capture *capture, const FabricPacket *packet);
/* Control thread. */
void capture_status(Capture *capture, CaptureStatus *status);
const char *capture_file(const Capture *capture);

#endif
