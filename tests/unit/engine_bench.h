/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Bench of the engine's unit tests: two simulated hosts on two cables, one
 * connected QP and one memory region on each, and counts of what the event
 * queues and timelines said.
 */
#ifndef ENGINE_BENCH_H
#define ENGINE_BENCH_H

#include <glib.h>
#include <string.h>

#include "ib/bytes.h"
#include "ib/packet.h"
#include "tests/sim/host.h"

#define BENCH_MR_BYTES (256u * 1024)
#define BENCH_ALL_ACCESS (EHCA_MR_LOCAL_WRITE | EHCA_MR_REMOTE_WRITE | \
                          EHCA_MR_REMOTE_READ | EHCA_MR_REMOTE_ATOMIC)
#define BENCH_CQ_ENTRIES 512
#define BENCH_SECOND IB_SEC

typedef struct Bench {
    HostPair *pair;
    HostCq *cqs[2];
    HostQp *qps[2];
    HostMr *mrs[2];
    unsigned eqes[2][EHCA_EQE_ID_MASK + 1];
    unsigned neqes[2][EHCA_EQE_ID_MASK + 1];
    unsigned kinds[2][EHCA_EVENT_KINDS];
    EhcaEvent last[2][EHCA_EVENT_KINDS];
} Bench;

/* @service: EHCA_SERVICE_*; @apm: rail 1 is the alternate, REARM. */
Bench *bench_new(unsigned service, bool apm);
/* Ports up, CQs and MRs, but no QPs. */
Bench *bench_new_bare(void);
void bench_free(Bench *b);

/* Lets @ns pass. */
void bench_run(Bench *b, int64_t ns);
/* Next CQE of host @h's CQ; false: none within @ns. */
bool bench_cqe(Bench *b, unsigned h, HostCqe *cqe, int64_t ns);
/* Takes what is in the event queues into b->eqes, b->neqes. */
void bench_events(Bench *b);
unsigned bench_eqes(Bench *b, unsigned h, unsigned id);

/* One receive WQE for @len bytes at @offset of the MR; rung. */
void bench_recv(Bench *b, unsigned h, uint64_t wr_id, uint64_t offset,
                uint32_t len);
/* Signalled; @optype with flags beside; rung. */
void bench_send(Bench *b, unsigned h, uint64_t wr_id, uint8_t optype,
                uint8_t flags, uint64_t offset, uint32_t len,
                uint64_t remote_offset);
/* A message of 64 bytes from @h, received, completed, compared. */
void bench_ping(Bench *b, unsigned h);
void bench_fill(Bench *b, unsigned h, uint64_t offset, uint32_t len,
                uint8_t seed);
/* Both adapters' reports into the test's log. */
void bench_dump(Bench *b);
bool bench_same(Bench *b, uint64_t offset0, uint64_t offset1, uint32_t len);

/* Builds an RC acknowledgement, or UC's nothing, sealed; returns length. */
typedef struct BenchPacket {
    uint16_t slid, dlid, pkey;
    uint32_t qpn, psn;
    uint8_t opcode, syndrome;
    bool migreq, grh;
    uint8_t sgid[16], dgid[16];
    size_t payload;
    uint64_t va;
    uint32_t rkey, dmalen;
} BenchPacket;
size_t bench_packet(uint8_t *p, const BenchPacket *spec);

#endif
