/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Bench of the engine's unit tests.
 */
#include "engine_bench.h"

static void on_event(void *opaque, Host *host, const EhcaEvent *event)
{
    Bench *b = opaque;

    for (unsigned h = 0; b->pair && h < 2; h++) {
        if (b->pair->hosts[h] == host) {
            b->kinds[h][event->kind]++;
            b->last[h][event->kind] = *event;
        }
    }
}

Bench *bench_new_bare(void)
{
    Bench *b = g_new0(Bench, 1);

    b->pair = host_pair_new(on_event, b);
    for (unsigned h = 0; h < 2; h++) {
        b->cqs[h] = host_cq_new(b->pair->hosts[h], BENCH_CQ_ENTRIES);
        b->mrs[h] = host_mr_new(b->pair->hosts[h], BENCH_MR_BYTES,
                                BENCH_ALL_ACCESS);
    }
    return b;
}

Bench *bench_new(unsigned service, bool apm)
{
    Bench *b = bench_new_bare();

    host_pair_connect(b->pair, service, 0, apm, b->cqs, b->qps);
    return b;
}

void bench_free(Bench *b)
{
    host_pair_free(b->pair);
    g_free(b);
}

static bool never(void *opaque)
{
    return false;
}

void bench_run(Bench *b, int64_t ns)
{
    host_pair_run(b->pair, ns, never, NULL);
}

typedef struct Wanted {
    HostCq *cq;
    HostCqe *cqe;
} Wanted;

static bool got_cqe(void *opaque)
{
    Wanted *w = opaque;

    return host_cq_poll(w->cq, w->cqe, 1) == 1;
}

bool bench_cqe(Bench *b, unsigned h, HostCqe *cqe, int64_t ns)
{
    Wanted w = { b->cqs[h], cqe };

    return got_cqe(&w) || host_pair_run(b->pair, ns, got_cqe, &w);
}

void bench_events(Bench *b)
{
    HostEqe eqe;

    for (unsigned h = 0; h < 2; h++) {
        while (host_next_eqe(b->pair->hosts[h], &eqe)) {
            b->eqes[h][eqe.id]++;
        }
        while (host_next_neqe(b->pair->hosts[h], &eqe)) {
            b->neqes[h][eqe.id]++;
        }
    }
}

unsigned bench_eqes(Bench *b, unsigned h, unsigned id)
{
    bench_events(b);
    return b->eqes[h][id];
}

void bench_recv(Bench *b, unsigned h, uint64_t wr_id, uint64_t offset,
                uint32_t len)
{
    HostRecvWr wr = {
        .wr_id = wr_id, .num_sges = 1,
        .sges = { host_sge(b->mrs[h], offset, len) },
    };

    host_post_recv(b->qps[h], &wr);
    host_ring(b->qps[h]);
}

void bench_send(Bench *b, unsigned h, uint64_t wr_id, uint8_t optype,
                uint8_t flags, uint64_t offset, uint32_t len,
                uint64_t remote_offset)
{
    HostMr *remote = b->mrs[!h];
    HostSendWr wr = {
        .wr_id = wr_id, .optype = optype,
        .flags = flags | EHCA_WQE_FLAG_SIGNALED, .imm = 0xCAFE0000 + wr_id,
        .raddr = remote->iova + remote_offset, .rkey = remote->rkey,
        .num_sges = 1, .sges = { host_sge(b->mrs[h], offset, len) },
    };

    host_post_send(b->qps[h], &wr);
    host_ring(b->qps[h]);
}

void bench_fill(Bench *b, unsigned h, uint64_t offset, uint32_t len,
                uint8_t seed)
{
    for (uint32_t i = 0; i < len; i++) {
        b->mrs[h]->bytes[offset + i] = (uint8_t)(i * 7 + i / 251 + seed);
    }
}

void bench_dump(Bench *b)
{
    for (unsigned h = 0; h < 2; h++) {
        char *report = ehca_report(b->pair->hosts[h]->adapter);

        g_test_message("host %u: %s", h, report);
        free(report);
    }
}

bool bench_same(Bench *b, uint64_t offset0, uint64_t offset1, uint32_t len)
{
    return memcmp(b->mrs[0]->bytes + offset0, b->mrs[1]->bytes + offset1,
                  len) == 0;
}

void bench_ping(Bench *b, unsigned h)
{
    static uint8_t seed;
    HostCqe cqe;

    bench_fill(b, h, 0, 64, ++seed);
    memset(b->mrs[!h]->bytes, 0, 64);
    bench_recv(b, !h, 0x100 + seed, 0, 64);
    bench_send(b, h, 0x200 + seed, EHCA_WQE_OPTYPE_SEND, 0, 0, 64, 0);
    g_assert_true(bench_cqe(b, !h, &cqe, BENCH_SECOND));
    g_assert_cmphex(cqe.status, ==, 0);
    g_assert_cmpuint(cqe.wr_id, ==, 0x100 + seed);
    g_assert_true(bench_cqe(b, h, &cqe, BENCH_SECOND));
    g_assert_cmphex(cqe.status, ==, 0);
    g_assert_cmpuint(cqe.wr_id, ==, 0x200 + seed);
    g_assert_true(bench_same(b, 0, 0, 64));
}

size_t bench_packet(uint8_t *p, const BenchPacket *spec)
{
    IbPacket pkt = {
        .lrh = { .slid = spec->slid, .dlid = spec->dlid },
        .has_grh = spec->grh,
        .bth = {
            .opcode = spec->opcode, .migreq = spec->migreq,
            .pkey = spec->pkey ? spec->pkey : 0xFFFF,
            .dest_qpn = spec->qpn, .psn = spec->psn, .ack_request = true,
        },
        .reth = { spec->va, spec->rkey, spec->dmalen },
        .atomic = { .va = spec->va, .rkey = spec->rkey },
        .aeth = { .syndrome = spec->syndrome },
    };
    size_t header_len;

    memcpy(pkt.grh.sgid, spec->sgid, 16);
    memcpy(pkt.grh.dgid, spec->dgid, 16);
    header_len = ib_packet_put_headers(p, &pkt, spec->payload);
    memset(p + header_len, 0xA5, spec->payload);
    return ib_packet_finish(p, header_len, spec->payload);
}
