/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The engine between a hostile guest and a hostile peer.  An input is a
 * program: hypercalls, register stores, scribbling in guest memory, packets,
 * and time that passes, on one of two hosts with a connected QP each.  The
 * adapter may refuse, drop and complete in error; it must stay alive.
 */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "ib/bytes.h"
#include "tests/sim/host.h"

#define MAX_STEPS 64
#define MAX_POOL 32

enum { DO_HCALL, DO_STORE, DO_SCRIBBLE, DO_PACKET, DO_RUN, DO_KINDS };

static const uint64_t numbers[] = {
    EHCA_H_RESET_EVENTS, EHCA_H_ALLOC_RESOURCE, EHCA_H_FREE_RESOURCE,
    EHCA_H_MODIFY_QP, EHCA_H_QUERY_QP, EHCA_H_REREGISTER_PMR,
    EHCA_H_REGISTER_SMR, EHCA_H_QUERY_MR, EHCA_H_QUERY_MW, EHCA_H_QUERY_HCA,
    EHCA_H_QUERY_PORT, EHCA_H_MODIFY_PORT, EHCA_H_DEFINE_AQP1,
    EHCA_H_DEFINE_AQP0, EHCA_H_ATTACH_MCQP, EHCA_H_DETACH_MCQP,
    EHCA_H_REGISTER_RPAGES, EHCA_H_DISABLE_AND_GETC, EHCA_H_ERROR_DATA,
    EHCA_H_GET_PERF_COUNT, EHCA_H_QUERY_INT_STATE,
};
#define NUMBERS (sizeof(numbers) / sizeof(numbers[0]))

typedef struct Lab {
    HostPair *pair;
    HostQp *qps[2];
    HostMr *mrs[2];
    uint64_t pool[2][MAX_POOL];        /* handles to play with */
    unsigned pooled[2];
} Lab;

static bool never(void *opaque)
{
    return false;
}

static void lab_new(Lab *lab, unsigned service)
{
    HostCq *cqs[2];

    memset(lab, 0, sizeof(*lab));
    lab->pair = host_pair_new(NULL, NULL);
    for (unsigned h = 0; h < 2; h++) {
        Host *host = lab->pair->hosts[h];

        cqs[h] = host_cq_new(host, 64);
        lab->mrs[h] = host_mr_new(host, 65536, EHCA_MR_LOCAL_WRITE |
                                  EHCA_MR_REMOTE_WRITE |
                                  EHCA_MR_REMOTE_READ |
                                  EHCA_MR_REMOTE_ATOMIC);
    }
    host_pair_connect(lab->pair, service, 0, true, cqs, lab->qps);
    for (unsigned h = 0; h < 2; h++) {
        Host *host = lab->pair->hosts[h];
        uint64_t known[] = { lab->qps[h]->handle, cqs[h]->handle,
                             lab->mrs[h]->handle, host->eq_handle,
                             host->neq_handle, host->gsi[1]->handle };

        memcpy(lab->pool[h], known, sizeof(known));
        lab->pooled[h] = sizeof(known) / sizeof(known[0]);
    }
}

/* A register's value: a handle, a page, something small, or anything. */
static uint64_t argument(Lab *lab, unsigned h, FuzzInput *in)
{
    uint8_t how = fuzz_byte(in);
    uint8_t value = fuzz_byte(in);

    switch (how % 6) {
    case 0:
        return lab->pool[h][value % lab->pooled[h]];
    case 1:
        return lab->pair->hosts[h]->block;
    case 2:
        return (uint64_t)value << 12;
    case 3:
        return value;
    case 4:
        return UINT64_C(1) << (value & 63);
    default:
        return (uint64_t)fuzz_u32(in) << 32 | fuzz_u32(in);
    }
}

static void do_hcall(Lab *lab, unsigned h, FuzzInput *in)
{
    Host *host = lab->pair->hosts[h];
    uint64_t number = numbers[fuzz_byte(in) % NUMBERS];
    uint64_t r[9] = { host->config.handle }, out[9];
    unsigned args = fuzz_byte(in) % 9;
    int64_t rc;

    for (unsigned i = 1; i <= args; i++) {
        r[i] = argument(lab, h, in);
    }
    rc = host_hcall(host, number, r, out);
    for (unsigned i = 0; rc < 0 && i < 9; i++) {
        FUZZ_ASSERT(out[i] == 0);
    }
    if (rc == EHCA_RC_SUCCESS && number == EHCA_H_ALLOC_RESOURCE &&
        lab->pooled[h] < MAX_POOL) {
        lab->pool[h][lab->pooled[h]++] = out[EHCA_OUT_HANDLE];
    }
}

static void do_store(Lab *lab, unsigned h, FuzzInput *in)
{
    Host *host = lab->pair->hosts[h];
    static const uint16_t regs[] = {
        EHCA_QPX_SQA, EHCA_QPX_RQA, EHCA_CQX_FECA, EHCA_CQX_EP, EHCA_CQX_N0,
        EHCA_CQX_N1,
    };
    uint8_t page = fuzz_byte(in);
    uint64_t offset = (page & 0x80
                       ? host->config.max_qp + (page & 0x3F) : page) *
                      (uint64_t)EHCA_REGS_SIZE +
                      regs[fuzz_byte(in) % (sizeof(regs) / sizeof(regs[0]))];

    ehca_mmio_write(host->adapter, offset,
                    (uint64_t)fuzz_byte(in) << 56 | fuzz_byte(in));
    ehca_mmio_read(host->adapter, offset);
}

/* Bytes of the input into a queue page or the control block. */
static void do_scribble(Lab *lab, unsigned h, FuzzInput *in)
{
    HostQp *qp = lab->qps[h];
    Host *host = lab->pair->hosts[h];
    uint8_t where = fuzz_byte(in), len = fuzz_byte(in) & 0x7F;
    const HostRing *ring = where & 1 ? &qp->sq : &qp->rq;
    uint8_t *p = where & 2 ? host_block(host)
        : host_ptr(host, ring->pages[(where >> 2) % ring->num_pages]) +
          (where >> 4) * 128;

    for (unsigned i = 0; i < len; i++) {
        p[i] = fuzz_byte(in);
    }
    if (where & 8 && !(where & 2)) {
        ib_put64(p + EHCA_WQE_SGES, lab->mrs[h]->iova + fuzz_byte(in));
        ib_put32(p + EHCA_WQE_SGES + 8, lab->mrs[h]->lkey);
        ib_put32(p + EHCA_WQE_SGES + 12, fuzz_u32(in) & 0xFFFF);
        ib_put64(p + EHCA_WQE_RADDR, lab->mrs[!h]->iova);
        ib_put32(p + EHCA_WQE_RKEY, lab->mrs[!h]->rkey);
        p[EHCA_WQE_NR_SGES] = 1;
    }
}

/* A packet whose headers are right as far as the input does not say. */
static void do_packet(Lab *lab, unsigned h, FuzzInput *in)
{
    uint8_t packet[IB_PACKET_MAX];
    uint8_t flags = fuzz_byte(in);
    unsigned rail = flags & 1;
    IbPacket pkt = {
        .lrh = {
            .slid = host_pair_lid(!h, rail + 1),
            .dlid = host_pair_lid(h, rail + 1),
            .vl = flags & 2 ? 15 : 0,
        },
        .has_grh = flags & 4,
        .bth = {
            .opcode = fuzz_byte(in), .migreq = flags & 8, .pkey = 0xFFFF,
            .solicited = flags & 16, .ack_request = true,
            .dest_qpn = flags & 32 ? fuzz_byte(in) & 7 : lab->qps[h]->qpn,
            .psn = fuzz_byte(in),
        },
        .reth = {
            .va = lab->mrs[h]->iova + fuzz_byte(in),
            .rkey = lab->mrs[h]->rkey, .length = fuzz_byte(in) * 64,
        },
        .aeth = { .syndrome = fuzz_byte(in) },
        .deth = { .qkey = 0x80010000, .src_qpn = 1 },
    };
    size_t payload = flags & 64 ? 256 : fuzz_byte(in) * 16;
    size_t header_len, len;

    pkt.atomic.va = pkt.reth.va;
    pkt.atomic.rkey = pkt.reth.rkey;
    header_len = ib_packet_put_headers(packet, &pkt, payload);
    memset(packet + header_len, 0, payload);
    for (unsigned i = 0; flags & 128 && i < 32 && i < payload; i++) {
        packet[header_len + i] = fuzz_byte(in);
    }
    len = ib_packet_finish(packet, header_len, payload);
    host_cable_inject(lab->pair->cables[rail], h, packet, len);
}

static void do_run(Lab *lab, FuzzInput *in)
{
    static const int64_t spans[] = {
        IB_USEC, 100 * IB_USEC, 10 * IB_MSEC, IB_SEC,
    };
    uint8_t how = fuzz_byte(in);

    if (how & 4) {
        host_cable_set(lab->pair->cables[how & 1], how & 2);
    }
    host_pair_run(lab->pair, spans[how >> 6], never, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    FuzzInput in = { data, size };
    uint8_t first = fuzz_byte(&in);
    Lab lab;

    lab_new(&lab, first & 1 ? EHCA_SERVICE_UC : EHCA_SERVICE_RC);
    for (unsigned step = 0; in.left && step < MAX_STEPS; step++) {
        uint8_t op = fuzz_byte(&in);
        unsigned h = op >> 7;

        switch (op % DO_KINDS) {
        case DO_HCALL:
            do_hcall(&lab, h, &in);
            break;
        case DO_STORE:
            do_store(&lab, h, &in);
            break;
        case DO_SCRIBBLE:
            do_scribble(&lab, h, &in);
            break;
        case DO_PACKET:
            do_packet(&lab, h, &in);
            break;
        default:
            do_run(&lab, &in);
            break;
        }
    }
    host_pair_run(lab.pair, IB_MSEC, never, NULL);
    for (unsigned h = 0; h < 2; h++) {
        char *report = ehca_report(lab.pair->hosts[h]->adapter);

        FUZZ_ASSERT(report && report[0] == '{');
        free(report);
    }
    host_pair_free(lab.pair);
    return 0;
}

/* Programs that do something sensible: send, read, migrate, ask. */
size_t fuzz_seed(unsigned index, uint8_t *buf)
{
    size_t n = 0;

    if (index >= 8) {
        return 0;
    }
    buf[n++] = index & 1;
    for (unsigned i = 0; i < 4; i++) {
        static const uint8_t ops[] = { 0x80, 0x40, 0x20, 0x08 };

        /* A WQE of this kind, its SG entry good; then the doorbell. */
        buf[n++] = 2;
        buf[n++] = 1 | 8;
        buf[n++] = 64;
        memset(buf + n, 0, 64);
        buf[n + EHCA_WQE_OPTYPE] = ops[(i + index) % 4];
        buf[n + EHCA_WQE_FLAGS] = EHCA_WQE_FLAG_SIGNALED;
        n += 64;
        memcpy(buf + n, (uint8_t[]) { 0, 0, 0, 0, 8 }, 5);
        n += 5;
        memcpy(buf + n, (uint8_t[]) { 1, 2, 0, 0, 1 }, 5);
        n += 5;
        memcpy(buf + n, (uint8_t[]) { 3, (uint8_t)(index * 9), (uint8_t)
               (0x0A + i), 0, 0, 4, 0x1F, 16 }, 8);
        n += 8;
        memcpy(buf + n, (uint8_t[]) { 4, (uint8_t)(i << 6 | index) }, 2);
        n += 2;
        memcpy(buf + n, (uint8_t[]) { 0, (uint8_t)(index * 3 + i), 3, 0, 0, 1,
               0, 1, 0 }, 9);
        n += 9;
    }
    return n;
}
