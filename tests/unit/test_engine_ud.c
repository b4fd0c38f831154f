/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Datagrams, special QPs, ports and their events: UD with and without GRH,
 * GSI and the performance agent behind it, multicast, SQE and its repair,
 * shared receive queues, activation rules, port events.
 */
#include "engine_bench.h"
#include "ib/mad.h"

#define QKEY 0x12345u
#define DATA 20000                     /* offsets in the MRs */
#define BUFFER 40000

static void ud_pair(Bench *b)
{
    for (unsigned h = 0; h < 2; h++) {
        b->qps[h] = host_qp_new(b->pair->hosts[h], EHCA_SERVICE_UD,
                                b->cqs[h], b->cqs[h], 16, 16);
        g_assert_cmpint(host_qp_ud_init(b->qps[h], 1, QKEY), ==, 0);
        g_assert_cmpint(host_qp_ud_ready(b->qps[h], 0), ==, 0);
    }
}

static HostSendWr ud_wr(Bench *b, uint32_t len)
{
    return (HostSendWr) {
        .wr_id = 1, .optype = EHCA_WQE_OPTYPE_SEND,
        .flags = EHCA_WQE_FLAG_SIGNALED, .num_sges = 1,
        .sges = { host_sge(b->mrs[0], DATA, len) },
        .dest_qpn = b->qps[1]->qpn, .qkey = QKEY,
        .dlid = host_pair_lid(1, 1),
    };
}

static void post(HostQp *qp, const HostSendWr *wr)
{
    host_post_send(qp, wr);
    host_ring(qp);
}

static void test_ud(void)
{
    for (unsigned grh = 0; grh < 2; grh++) {
        Bench *b = bench_new_bare();
        HostSendWr wr;
        HostCqe cqe;

        ud_pair(b);
        wr = ud_wr(b, 500);
        wr.grh = grh;
        wr.imm = 0x01020304;
        wr.flags |= EHCA_WQE_FLAG_IMM;
        wr.sl = 3;
        host_gid(b->pair->hosts[0], 1, wr.sgid);
        host_gid(b->pair->hosts[1], 1, wr.dgid);
        bench_fill(b, 0, DATA, 500, 7);
        memset(b->mrs[1]->bytes + BUFFER, 0xEE, 600);
        bench_recv(b, 1, 9, BUFFER, 540);
        post(b->qps[0], &wr);
        g_assert_true(bench_cqe(b, 1, &cqe, BENCH_SECOND));
        g_assert_cmphex(cqe.status, ==, 0);
        g_assert_cmpuint(cqe.bytes, ==, 540);
        g_assert_cmphex(cqe.imm, ==, 0x01020304);
        g_assert_cmphex(cqe.flags, ==, EHCA_CQE_FLAG_RECV |
                        EHCA_CQE_FLAG_IMM | (grh ? EHCA_CQE_FLAG_GRH : 0));
        g_assert_cmpuint(cqe.remote_qpn, ==, b->qps[0]->qpn);
        g_assert_cmpuint(cqe.rlid, ==, host_pair_lid(0, 1));
        g_assert_cmpuint(cqe.sl, ==, 3);
        g_assert_true(bench_same(b, DATA, BUFFER + 40, 500));
        if (grh) {
            g_assert_cmpmem(b->mrs[1]->bytes + BUFFER + 8, 16, wr.sgid, 16);
            g_assert_cmpmem(b->mrs[1]->bytes + BUFFER + 24, 16, wr.dgid, 16);
        } else {
            g_assert_cmphex(b->mrs[1]->bytes[BUFFER], ==, 0xEE);
        }
        g_assert_true(bench_cqe(b, 0, &cqe, BENCH_SECOND));
        g_assert_cmphex(cqe.status, ==, 0);
        bench_free(b);
    }
}

/* Nothing of it arrives, nothing breaks, and the next message does. */
static void test_ud_dropped(void)
{
    Bench *b = bench_new_bare();
    HostPortInfo info;
    HostSendWr wr;
    HostCqe cqe;

    ud_pair(b);
    /* No receive WQE. */
    wr = ud_wr(b, 64);
    post(b->qps[0], &wr);
    bench_run(b, IB_MSEC);
    /* Wrong Q_Key. */
    bench_recv(b, 1, 9, BUFFER, 104);
    wr.qkey++;
    post(b->qps[0], &wr);
    bench_run(b, IB_MSEC);
    host_query_port(b->pair->hosts[1], 1, &info);
    g_assert_cmpuint(info.qkey_violations, ==, 1);
    /* Too long by a byte. */
    wr = ud_wr(b, 65);
    post(b->qps[0], &wr);
    bench_run(b, IB_MSEC);
    /* No such QP. */
    wr = ud_wr(b, 64);
    wr.dest_qpn ^= 0x10000;
    post(b->qps[0], &wr);
    bench_run(b, IB_MSEC);
    g_assert_false(bench_cqe(b, 1, &cqe, 0));
    wr = ud_wr(b, 64);
    post(b->qps[0], &wr);
    g_assert_true(bench_cqe(b, 1, &cqe, BENCH_SECOND));
    g_assert_cmphex(cqe.status, ==, 0);
    g_assert_cmpuint(cqe.wr_id, ==, 9);
    for (int i = 0; i < 5; i++) {
        g_assert_true(bench_cqe(b, 0, &cqe, 0));
        g_assert_cmphex(cqe.status, ==, 0);
    }
    bench_free(b);
}

/* A datagram of 64 bytes for host 1's QP, good but for what is changed. */
static void inject_datagram(Bench *b, const IbPacket *change)
{
    uint8_t p[IB_PACKET_MAX];
    IbPacket pkt = *change;
    size_t header_len;

    header_len = ib_packet_put_headers(p, &pkt, 64);
    memset(p + header_len, 0x5A, 64);
    g_assert_true(host_cable_inject(b->pair->cables[0], 1, p,
                                    ib_packet_finish(p, header_len, 64)));
    bench_run(b, 10 * IB_USEC);
}

static IbPacket datagram(Bench *b)
{
    return (IbPacket) {
        .lrh = { .slid = host_pair_lid(0, 1), .dlid = host_pair_lid(1, 1) },
        .bth = {
            .opcode = IB_TRANSPORT_UD | IB_OP_SEND_ONLY, .migreq = true,
            .pkey = 0xFFFF, .dest_qpn = b->qps[1]->qpn,
        },
        .deth = { .qkey = QKEY, .src_qpn = b->qps[0]->qpn },
    };
}

/* In which states a datagram is received, and with which keys. */
static void test_ud_arrivals(void)
{
    static const struct { unsigned state; bool taken; } states[] = {
        { EHCA_QPS_INIT, false }, { EHCA_QPS_RTR, true },
        { EHCA_QPS_RTS, true }, { EHCA_QPS_SQD, true },
        { EHCA_QPS_ERR, false },
    };
    /* 0x7FFF: the same partition, a limited member; the QP is a full one. */
    static const struct { uint16_t pkey; uint32_t qkey; bool taken; } keys[] = {
        { 0xFFFF, QKEY, true }, { 0x7FFF, QKEY, true },
        { 0x8001, QKEY, false }, { 0x0000, QKEY, false },
        { 0x8000, QKEY, false }, { 0xFFFF, QKEY + 1, false },
        { 0xFFFF, 0, false }, { 0xFFFF, QKEY | 0x80000000u, false },
    };
    HostPortInfo info;
    HostCqe cqe;

    for (unsigned i = 0; i < G_N_ELEMENTS(states); i++) {
        Bench *b = bench_new_bare();
        HostQp *qp = host_qp_new(b->pair->hosts[1], EHCA_SERVICE_UD,
                                 b->cqs[1], b->cqs[1], 8, 8);
        IbPacket pkt;

        b->qps[0] = b->qps[1] = qp;
        g_assert_cmpint(host_qp_ud_init(qp, 1, QKEY), ==, 0);
        if (states[i].state != EHCA_QPS_INIT) {
            g_assert_cmpint(host_qp_to(qp, EHCA_QPS_RTR), ==, 0);
        }
        if (states[i].state > EHCA_QPS_RTR) {
            g_assert_cmpint(host_qp_to(qp, EHCA_QPS_RTS), ==, 0);
            g_assert_cmpint(host_qp_to(qp, states[i].state), ==, 0);
        }
        bench_recv(b, 1, 9, BUFFER, 104);
        pkt = datagram(b);
        inject_datagram(b, &pkt);
        g_assert_true(bench_cqe(b, 1, &cqe, 0) == states[i].taken);
        bench_free(b);
    }
    for (unsigned i = 0; i < G_N_ELEMENTS(keys); i++) {
        Bench *b = bench_new_bare();
        bool bad_qkey = keys[i].qkey != QKEY;
        IbPacket pkt;

        ud_pair(b);
        bench_recv(b, 1, 9, BUFFER, 104);
        pkt = datagram(b);
        pkt.bth.pkey = keys[i].pkey;
        pkt.deth.qkey = keys[i].qkey;
        inject_datagram(b, &pkt);
        g_assert_true(bench_cqe(b, 1, &cqe, 0) == keys[i].taken);
        host_query_port(b->pair->hosts[1], 1, &info);
        g_assert_cmpuint(info.pkey_violations, ==,
                         !keys[i].taken && !bad_qkey);
        g_assert_cmpuint(info.qkey_violations, ==, bad_qkey);
        bench_free(b);
    }
}

/* A receive WQE that is wrong itself: its CQE, and the QP is in ERR. */
static void test_ud_recv_errors(void)
{
    static const struct { uint32_t key_change; uint8_t sges;
                          uint32_t status; } bad[] = {
        { 1, 1, 0x80000004 }, { 0, 200, 0x80000002 },
    };

    for (unsigned i = 0; i < G_N_ELEMENTS(bad); i++) {
        Bench *b = bench_new_bare();
        HostRecvWr rr = { .wr_id = 9, .num_sges = 1 };
        IbPacket pkt;
        uint8_t *wqe;
        HostCqe cqe;

        ud_pair(b);
        rr.sges[0] = host_sge(b->mrs[1], BUFFER, 200);
        rr.sges[0].lkey ^= bad[i].key_change;
        host_post_recv(b->qps[1], &rr);
        wqe = host_ptr(b->pair->hosts[1], b->qps[1]->rq.pages[0]);
        wqe[EHCA_WQE_NR_SGES] = bad[i].sges;
        host_ring(b->qps[1]);
        pkt = datagram(b);
        inject_datagram(b, &pkt);
        g_assert_true(bench_cqe(b, 1, &cqe, 0));
        g_assert_cmphex(cqe.status, ==, bad[i].status);
        g_assert_cmpuint(cqe.wr_id, ==, 9);
        g_assert_cmphex(cqe.optype, ==, EHCA_CQE_OPTYPE_RECV);
        g_assert_cmphex(cqe.flags & EHCA_CQE_FLAG_RECV, !=, 0);
        g_assert_cmpuint(host_qp_state(b->qps[1]), ==, EHCA_QPS_ERR);
        bench_free(b);
    }
}

/* A failing WQE stops the queue; purged ones repair it (20.3). */
static void test_sqe(void)
{
    Bench *b = bench_new_bare();
    uint64_t handle = b->pair->hosts[0]->config.handle;
    uint64_t in[9], out[9];
    HostSendWr wr;
    uint8_t *wqe;
    HostCqe cqe;

    ud_pair(b);
    bench_recv(b, 1, 9, BUFFER, 200);
    wr = ud_wr(b, 64);
    post(b->qps[0], &wr);
    wr.wr_id = 2;
    wr.sges[0].lkey ^= 0xFF00;
    host_post_send(b->qps[0], &wr);
    wr = ud_wr(b, 64);
    wr.wr_id = 3;
    host_post_send(b->qps[0], &wr);
    wr.wr_id = 4;
    host_post_send(b->qps[0], &wr);
    host_ring(b->qps[0]);
    g_assert_true(bench_cqe(b, 0, &cqe, BENCH_SECOND));
    g_assert_cmpuint(cqe.wr_id, ==, 1);
    g_assert_true(bench_cqe(b, 0, &cqe, BENCH_SECOND));
    g_assert_cmpuint(cqe.wr_id, ==, 2);
    g_assert_cmphex(cqe.status, ==, 0x80000004);
    g_assert_false(bench_cqe(b, 0, &cqe, IB_SEC));
    g_assert_cmpuint(host_qp_state(b->qps[0]), ==, EHCA_QPS_SQE);
    memcpy(in, (uint64_t[9]) { handle, EHCA_GETC_SQE, b->qps[0]->handle },
           sizeof(in));
    g_assert_cmpint(host_hcall(b->pair->hosts[0], EHCA_H_DISABLE_AND_GETC,
                               in, out), ==, 0);
    g_assert_cmphex(out[0], ==, b->qps[0]->sq.pages[0] +
                    b->qps[0]->sq.stride);
    /* Three WQEs from there on are purged: the failed one and two more. */
    for (unsigned i = 0; i < 3; i++) {
        wqe = host_ptr(b->pair->hosts[0], out[0] + i * b->qps[0]->sq.stride);
        wqe[EHCA_WQE_NR_SGES] = 0;
        wqe[EHCA_WQE_WQEF] = EHCA_WQEF_PURGE;
    }
    g_assert_cmpint(host_qp_to(b->qps[0], EHCA_QPS_RTS), ==, 0);
    b->qps[0]->sq_new = 2;
    host_ring(b->qps[0]);
    for (unsigned id = 2; id <= 4; id++) {
        g_assert_true(bench_cqe(b, 0, &cqe, BENCH_SECOND));
        g_assert_cmpuint(cqe.wr_id, ==, id);
        g_assert_cmphex(cqe.status, ==, 0x80000010);
        g_assert_cmpuint(cqe.local_qpn, ==, b->qps[0]->qpn);
    }
    wr = ud_wr(b, 64);
    wr.wr_id = 5;
    bench_recv(b, 1, 10, BUFFER, 200);
    post(b->qps[0], &wr);
    g_assert_true(bench_cqe(b, 0, &cqe, BENCH_SECOND));
    g_assert_cmpuint(cqe.wr_id, ==, 5);
    g_assert_cmphex(cqe.status, ==, 0);
    bench_free(b);
}

static void test_ud_errors(void)
{
    const struct { uint16_t dlid; uint32_t qpn, len; uint32_t status; }
    bad[] = {
        { 2, 0, 64, 0x80000002 },          /* QP0 is not for us */
        { 0, 0x20, 64, 0x80000002 },
        { 0xFFFF, 0x20, 64, 0x80000002 },
        { 0xC001, 0x20, 64, 0x80000002 },  /* multicast without GRH */
        { 2, 0x20, 2049, 0x80000001 },     /* beyond the MTU */
    };

    for (size_t i = 0; i < G_N_ELEMENTS(bad); i++) {
        Bench *b = bench_new_bare();
        HostSendWr wr;
        HostCqe cqe;

        ud_pair(b);
        wr = ud_wr(b, bad[i].len);
        wr.dlid = bad[i].dlid;
        wr.dest_qpn = bad[i].qpn;
        wr.flags = 0;
        post(b->qps[0], &wr);
        g_assert_true(bench_cqe(b, 0, &cqe, BENCH_SECOND));
        g_assert_cmphex(cqe.status, ==, bad[i].status);
        g_assert_cmpuint(host_qp_state(b->qps[0]), ==, EHCA_QPS_SQE);
        bench_free(b);
    }
}

/* SG entries end where the WQE ends; the address vector takes two's room. */
static void test_ud_sges(void)
{
    for (unsigned more = 0; more < 2; more++) {
        Bench *b = bench_new_bare();
        HostQp *qp;
        HostSendWr wr;
        HostCqe cqe;
        uint8_t *wqe;

        ud_pair(b);
        qp = b->qps[0];
        bench_recv(b, 1, 9, BUFFER, 200);
        wr = ud_wr(b, 64);
        host_post_send(qp, &wr);
        wqe = host_ptr(b->pair->hosts[0], qp->sq.pages[0]);
        wqe[EHCA_WQE_NR_SGES] = more + (qp->sq.stride - EHCA_WQE_UD_SGES) /
                                EHCA_SGE_SIZE;
        host_ring(qp);
        g_assert_true(bench_cqe(b, 0, &cqe, BENCH_SECOND));
        g_assert_cmphex(cqe.status, ==, more ? 0x80000002 : 0);
        bench_free(b);
    }
}

/* ------------------------------------------------------------------ */
/* QP1, PMA                                                           */
/* ------------------------------------------------------------------ */

static void gsi_recv(Bench *b, unsigned h)
{
    HostRecvWr wr = {
        .wr_id = 77, .num_sges = 1,
        .sges = { host_sge(b->mrs[h], BUFFER, 296) },
    };

    host_post_recv(b->pair->hosts[h]->gsi[1], &wr);
    host_ring(b->pair->hosts[h]->gsi[1]);
}

static bool gsi_cqe(Bench *b, unsigned h, HostCqe *cqe)
{
    for (int i = 0; i < 100; i++) {
        if (host_cq_poll(b->pair->hosts[h]->gsi_cq[1], cqe, 1)) {
            return true;
        }
        bench_run(b, 10 * IB_USEC);
    }
    return false;
}

static void gsi_send(Bench *b, unsigned h, uint16_t dlid, uint32_t qpn)
{
    HostSendWr wr = {
        .wr_id = 78, .optype = EHCA_WQE_OPTYPE_SEND, .num_sges = 1,
        .sges = { host_sge(b->mrs[h], DATA, IB_MAD_LEN) },
        .dest_qpn = qpn, .qkey = 0x80010000, .dlid = dlid,
    };

    post(b->pair->hosts[h]->gsi[1], &wr);
}

static void perf_get(Bench *b, unsigned h)
{
    uint8_t *mad = b->mrs[h]->bytes + DATA;
    IbMadHeader hdr = {
        .base_version = 1, .mgmt_class = IB_CLASS_PM, .class_version = 1,
        .method = IB_METHOD_GET, .tid = 0x1122334455667788,
        .attr_id = IB_PM_PORT_COUNTERS,
    };

    memset(mad, 0, IB_MAD_LEN);
    ib_mad_header_pack(mad, &hdr);
    mad[IB_PM_DATA_OFFSET + 1] = 1;    /* port select */
}

/* Performance MADs to QP1 are the driver's; the PMA has its own QP. */
static void test_pma(void)
{
    Bench *b = bench_new_bare();
    uint8_t *buffer[2] = { b->mrs[0]->bytes + BUFFER,
                           b->mrs[1]->bytes + BUFFER };
    IbMadHeader hdr;
    HostCqe cqe;

    perf_get(b, 0);
    gsi_recv(b, 1);
    gsi_send(b, 0, host_pair_lid(1, 1), 1);
    g_assert_true(gsi_cqe(b, 1, &cqe));
    g_assert_cmphex(cqe.status, ==, 0);
    g_assert_cmpuint(cqe.remote_qpn, ==, 1);
    g_assert_cmpuint(cqe.bytes, ==, 296);
    ib_mad_header_unpack(&hdr, buffer[1] + 40);
    g_assert_cmpuint(hdr.mgmt_class, ==, IB_CLASS_PM);
    g_assert_cmpuint(hdr.method, ==, IB_METHOD_GET);
    /* 2: what H_DEFINE_AQP1 answered for port 1. */
    gsi_recv(b, 0);
    gsi_send(b, 0, host_pair_lid(1, 1), 2);
    g_assert_true(gsi_cqe(b, 0, &cqe));
    g_assert_cmphex(cqe.status, ==, 0);
    g_assert_cmpuint(cqe.remote_qpn, ==, 2);
    ib_mad_header_unpack(&hdr, buffer[0] + 40);
    g_assert_cmphex(hdr.method, ==, IB_METHOD_GET_RESP);
    g_assert_cmphex(hdr.status, ==, 0);
    g_assert_cmphex(hdr.tid, ==, 0x1122334455667788);
    /* And our own, which does not leave the adapter. */
    gsi_recv(b, 0);
    gsi_send(b, 0, host_pair_lid(0, 1), 2);
    g_assert_true(gsi_cqe(b, 0, &cqe));
    g_assert_cmpuint(cqe.remote_qpn, ==, 2);
    bench_free(b);
}

/* As the subnet manager: one SMP for the port at the end of cable 0. */
static void inject_smp(Bench *b, unsigned h, uint8_t method, uint16_t attr,
                       const uint8_t *data)
{
    IbMadAddress to = {
        .slid = IB_LID_PERMISSIVE, .dlid = IB_LID_PERMISSIVE,
        .vl = IB_VL_MANAGEMENT, .pkey = IB_PKEY_DEFAULT,
    };
    IbSmp smp = {
        .hdr = {
            .base_version = 1, .mgmt_class = IB_CLASS_SM_DR,
            .class_version = 1, .method = method, .tid = 77, .attr_id = attr,
        },
        .dr_slid = IB_LID_PERMISSIVE, .dr_dlid = IB_LID_PERMISSIVE,
    };
    uint8_t mad[IB_MAD_LEN] = { 0 }, p[IB_PACKET_MAX];

    ib_smp_pack(mad, &smp);
    if (data) {
        memcpy(mad + IB_SMP_DATA_OFFSET, data, IB_SMP_DATA_LEN);
    }
    g_assert_true(host_cable_inject(b->pair->cables[0], h, p,
                                    ib_mad_packet(p, &to, mad)));
}

/* A QP0 of the guest gets what an SM asked for, and no questions. */
static void test_qp0(void)
{
    static const struct { uint8_t method; uint16_t attr; bool to_guest; }
    smps[] = {
        { IB_METHOD_GET_RESP, IB_SM_NODE_INFO, true },
        { IB_METHOD_TRAP, IB_ATTR_NOTICE, true },
        { IB_METHOD_GET, IB_SM_SM_INFO, true },
        { IB_METHOD_GET, IB_SM_NODE_INFO, false },
        { IB_METHOD_SET, IB_SM_PORT_INFO, false },
    };

    for (unsigned i = 0; i < G_N_ELEMENTS(smps); i++) {
        Bench *b = bench_new_bare();
        Host *host = b->pair->hosts[0];
        HostQp *qp = host_qp_new(host, EHCA_SERVICE_UD, b->cqs[0], b->cqs[0],
                                 8, 8);
        uint64_t in[9] = { host->config.handle, qp->handle, 1 }, out[9];
        HostCqe cqe;

        b->qps[0] = qp;
        g_assert_cmpint(host_hcall(host, EHCA_H_DEFINE_AQP0, in, out), ==, 0);
        g_assert_cmpint(host_hcall(host, EHCA_H_DEFINE_AQP0, in, out), ==,
                        EHCA_RC_ALIAS_EXIST);
        g_assert_cmpint(host_qp_ud_init(qp, 1, 0), ==, 0);
        g_assert_cmpint(host_qp_ud_ready(qp, 0), ==, 0);
        bench_recv(b, 0, 9, BUFFER, 296);
        inject_smp(b, 0, smps[i].method, smps[i].attr, NULL);
        bench_run(b, 10 * IB_USEC);
        g_assert_true(bench_cqe(b, 0, &cqe, 0) == smps[i].to_guest);
        if (smps[i].to_guest) {
            g_assert_cmpuint(cqe.remote_qpn, ==, 0);
            g_assert_cmpuint(cqe.bytes, ==, 296);
        }
        /* It can send there, and nowhere else. */
        post(qp, &(HostSendWr) {
            .optype = EHCA_WQE_OPTYPE_SEND, .flags = EHCA_WQE_FLAG_SIGNALED,
            .num_sges = 1, .sges = { host_sge(b->mrs[0], DATA, 256) },
            .dlid = IB_LID_PERMISSIVE, .dest_qpn = i & 1,
        });
        g_assert_true(bench_cqe(b, 0, &cqe, IB_MSEC));
        g_assert_cmphex(cqe.status, ==, i & 1 ? 0x80000002 : 0);
        bench_free(b);
    }
}

/* The agents answer from a bounded queue; the rest is dropped, not kept. */
static void test_smp_flood(void)
{
    Bench *b = bench_new(EHCA_SERVICE_RC, false);
    Host *host = b->pair->hosts[0];
    HostCable *cable = b->pair->cables[0];
    unsigned answers = 0;
    uint32_t len;

    /* A wire that takes nothing any more. */
    bench_send(b, 0, 1, EHCA_WQE_OPTYPE_RDMA_WRITE, 0, 0, 100000, 0);
    bench_send(b, 0, 2, EHCA_WQE_OPTYPE_RDMA_WRITE, 0, 0, 100000, 0);
    for (unsigned i = 0; i < 1000; i++) {
        inject_smp(b, 0, IB_METHOD_GET, IB_SM_NODE_INFO, NULL);
        host_run(host);
    }
    /* A ring and a queue of them at the most. */
    while (ib_ring_peek(&cable->ends[0].rx, &len)) {
        ib_ring_consume(&cable->ends[0].rx);
        host_run(host);
        answers++;
    }
    g_assert_cmpuint(answers, >=, IB_RING_SLOTS + 64);
    g_assert_cmpuint(answers, <, 2 * IB_RING_SLOTS + 64);
    bench_free(b);
}

/* The SM asks for re-registration: NEQ entry 0x34/0x80, once each time. */
static void test_reregister(void)
{
    Bench *b = bench_new_bare();
    Host *host = b->pair->hosts[0];
    IbPortInfo info;
    HostEqe eqe;
    uint8_t data[IB_SMP_DATA_LEN];

    bench_events(b);
    inject_smp(b, 0, IB_METHOD_GET, IB_SM_PORT_INFO, NULL);
    b->pair->cables[0]->have_smp = false;
    for (unsigned i = 0; i < 8 && !b->pair->cables[0]->have_smp; i++) {
        host_run(host);
        host_cable_run(b->pair->cables[0]);
    }
    ib_port_info_unpack(&info, b->pair->cables[0]->smp + IB_SMP_DATA_OFFSET);
    info.state = IB_PORT_NO_CHANGE;
    info.phys_state = IB_PHYS_NO_CHANGE;
    info.speed_enabled = info.width_enabled = 0;
    for (unsigned i = 0; i < 4; i++) {
        info.client_reregister = i & 1;
        memset(data, 0, sizeof(data));
        ib_port_info_pack(data, &info);
        inject_smp(b, 0, IB_METHOD_SET, IB_SM_PORT_INFO, data);
        bench_run(b, 10 * IB_USEC);
        g_assert_true(host_next_neqe(host, &eqe) == (i & 1));
        if (i & 1) {
            g_assert_cmpuint(eqe.id, ==, EHCA_NEQE_SPECIFIC);
            g_assert_cmphex(eqe.specific, ==, EHCA_NEQE_CLIENT_REREGISTER);
            g_assert_cmpuint(eqe.port, ==, 1);
            /* 29.1, but for the valid bit. */
            g_assert_cmphex(eqe.raw & ~EHCA_EQE_VALID, ==,
                            UINT64_C(0x3401800000000000));
            g_assert_false(host_next_neqe(host, &eqe));
        }
    }
    bench_free(b);
}

/* ------------------------------------------------------------------ */
/* Multicast                                                          */
/* ------------------------------------------------------------------ */

static int64_t mcast(Host *host, uint64_t number, HostQp *qp, uint64_t mlid,
                     uint64_t prefix, uint64_t id)
{
    uint64_t in[9] = { host->config.handle, qp->handle, mlid, id, prefix };
    uint64_t out[9];

    return host_hcall(host, number, in, out);
}

static void test_multicast(void)
{
    const uint64_t prefix = UINT64_C(0xFF12401BFFFF0000), id = 0xFFFFFFFF;
    Bench *b = bench_new_bare();
    Host *host = b->pair->hosts[1];
    HostQp *second;
    HostSendWr wr;
    HostCqe cqe;
    unsigned got = 0;

    ud_pair(b);
    second = host_qp_new(host, EHCA_SERVICE_UD, b->cqs[1], b->cqs[1], 16, 16);
    host_qp_ud_init(second, 1, QKEY);
    host_qp_ud_ready(second, 0);
    /* LIDs and MGIDs that are none. */
    g_assert_cmpint(mcast(host, EHCA_H_ATTACH_MCQP, second, 5, prefix, id),
                    ==, EHCA_RC_MCG_PARM);
    g_assert_cmpint(mcast(host, EHCA_H_ATTACH_MCQP, second, 0xFFFF, prefix,
                          id), ==, EHCA_RC_MCG_PARM);
    g_assert_cmpint(mcast(host, EHCA_H_ATTACH_MCQP, second, 0xC000, 0xFE, id),
                    ==, EHCA_RC_MCG_PARM);
    g_assert_cmpint(mcast(host, EHCA_H_DETACH_MCQP, second, 0xC000, prefix,
                          id), ==, EHCA_RC_MCG_PARM);
    g_assert_cmpint(mcast(host, EHCA_H_ATTACH_MCQP, second, 0xC000, prefix,
                          id), ==, 0);
    g_assert_cmpint(mcast(host, EHCA_H_ATTACH_MCQP, b->qps[1], 0xC000, prefix,
                          id), ==, 0);
    /* The sender is a member too. */
    g_assert_cmpint(mcast(b->pair->hosts[0], EHCA_H_ATTACH_MCQP, b->qps[0],
                          0xC000, prefix, id), ==, 0);
    bench_recv(b, 0, 1, BUFFER, 200);
    bench_recv(b, 1, 2, BUFFER, 200);
    {
        HostRecvWr rr = {
            .wr_id = 3, .num_sges = 1,
            .sges = { host_sge(b->mrs[1], BUFFER + 1000, 200) },
        };

        host_post_recv(second, &rr);
        host_ring(second);
    }
    wr = ud_wr(b, 100);
    wr.dlid = 0xC000;
    wr.dest_qpn = IB_QPN_MULTICAST;
    wr.grh = true;
    host_gid(b->pair->hosts[0], 1, wr.sgid);
    ib_put64(wr.dgid, prefix);
    ib_put64(wr.dgid + 8, id);
    wr.flags = 0;
    bench_fill(b, 0, DATA, 100, 1);
    post(b->qps[0], &wr);
    bench_run(b, IB_MSEC);
    while (bench_cqe(b, 1, &cqe, 0)) {
        g_assert_cmphex(cqe.status, ==, 0);
        g_assert_cmpuint(cqe.bytes, ==, 140);
        got++;
    }
    g_assert_cmpuint(got, ==, 2);
    g_assert_true(bench_same(b, DATA, BUFFER + 40, 100));
    g_assert_true(bench_same(b, DATA, BUFFER + 1040, 100));
    g_assert_true(bench_cqe(b, 0, &cqe, 0));
    g_assert_cmpuint(cqe.wr_id, ==, 1);
    /* A QP that goes leaves its groups. */
    g_assert_cmpint(host_qp_free(second), ==, 0);
    post(b->qps[0], &wr);
    bench_run(b, IB_MSEC);
    bench_free(b);
}

/* ------------------------------------------------------------------ */
/* SRQ                                                                */
/* ------------------------------------------------------------------ */


/* An SRQ of @wrs WQEs with limit @limit, made by hand. */
static HostQp *srq_new(Bench *b, unsigned wrs, unsigned limit)
{
    Host *host = b->pair->hosts[1];
    HostQp *srq = g_new0(HostQp, 1);
    uint64_t in[9] = {
        host->config.handle,
        EHCA_RT_QP | (uint64_t)EHCA_QPKIND_SRQ << EHCA_ALLOC_QP_KIND_SHIFT |
        (uint64_t)EHCA_SIGT_PER_WQE << EHCA_ALLOC_QP_SIGT_SHIFT,
        0, 0, host->eq_handle, (uint64_t)999 << 32 | HOST_PD,
        (uint64_t)2 << 48 | (uint64_t)(wrs + 1) << 32 | 3 << 16, 0, limit,
    };
    uint64_t out[9];

    g_assert_cmpint(host_hcall(host, EHCA_H_ALLOC_RESOURCE, in, out), ==, 0);
    srq->host = host;
    srq->handle = out[EHCA_OUT_HANDLE];
    srq->qpn = out[EHCA_OUT_QPN];
    srq->regs = out[EHCA_OUT_QP_REGS];
    g_assert_cmpuint(out[EHCA_OUT_QP_PAGES] >> 32, ==, 0);
    g_assert_cmpuint(out[EHCA_OUT_QP_SGES] >> EHCA_OUT_QP_RECV_SGES_SHIFT &
                     EHCA_OUT_QP_SGES_MASK, ==, 4);
    srq->rq.num_pages = out[EHCA_OUT_QP_PAGES] & EHCA_OUT_QP_PAGES_MASK;
    srq->rq.stride = 128;
    srq->rq.entries = srq->rq.num_pages * 4096 / 128;
    for (unsigned i = 0; i < srq->rq.num_pages; i++) {
        uint64_t page[9] = { host->config.handle, EHCA_RPAGES_RQ, srq->handle,
                             srq->rq.pages[i] = host_alloc(host, 4096), 1 };

        g_assert_cmpint(host_hcall(host, EHCA_H_REGISTER_RPAGES, page, out),
                        ==, i + 1 == srq->rq.num_pages
                            ? EHCA_RC_SUCCESS : EHCA_RC_PAGE_REGISTERED);
    }
    g_assert_cmpint(host_qp_to(srq, EHCA_QPS_INIT), ==, 0);
    g_assert_cmpint(host_qp_to(srq, EHCA_QPS_RTR), ==, 0);
    return srq;
}

static void base_qp(Bench *b, HostQp *srq)
{
    Host *host = b->pair->hosts[1];
    HostQp *qp = b->qps[1];
    uint64_t in[9] = {
        host->config.handle,
        EHCA_RT_QP |
        (uint64_t)EHCA_QPKIND_SRQBASE << EHCA_ALLOC_QP_KIND_SHIFT |
        (uint64_t)EHCA_SIGT_PER_WQE << EHCA_ALLOC_QP_SIGT_SHIFT,
        b->cqs[1]->handle, b->cqs[1]->handle, host->eq_handle,
        (uint64_t)888 << 32 | HOST_PD,
        (uint64_t)9 << 48 | (uint64_t)1 << 32 | 1 << 24 | 1 << 16,
        (uint64_t)888 << 32, srq->qpn,
    };
    uint64_t out[9];

    g_assert_cmpint(host_hcall(host, EHCA_H_ALLOC_RESOURCE, in, out), ==, 0);
    qp->host = host;
    qp->handle = out[EHCA_OUT_HANDLE];
    qp->qpn = out[EHCA_OUT_QPN];
    qp->regs = out[EHCA_OUT_QP_REGS];
    qp->sq.num_pages = out[EHCA_OUT_QP_PAGES] >> 32;
    g_assert_cmpuint(out[EHCA_OUT_QP_PAGES] & 0xFFFFFFFF, ==, 0);
    for (unsigned i = 0; i < qp->sq.num_pages; i++) {
        uint64_t page[9] = { host->config.handle, EHCA_RPAGES_SQ, qp->handle,
                             host_alloc(host, 4096), 1 };

        g_assert_cmpint(host_hcall(host, EHCA_H_REGISTER_RPAGES, page, out),
                        ==, i + 1 == qp->sq.num_pages
                            ? EHCA_RC_SUCCESS : EHCA_RC_PAGE_REGISTERED);
    }
}

/* An RC QP at host 0, connected to one at host 1 that uses @srq. */
static void srq_connect(Bench *b, HostQp *srq)
{
    HostPath path;

    b->qps[1] = g_new0(HostQp, 1);
    base_qp(b, srq);
    b->qps[0] = host_qp_new(b->pair->hosts[0], EHCA_SERVICE_RC, b->cqs[0],
                            b->cqs[0], 16, 16);
    for (unsigned h = 0; h < 2; h++) {
        host_pair_path(h, 0, &path);
        g_assert_cmpint(host_qp_init(b->qps[h], 1), ==, 0);
        g_assert_cmpint(host_qp_rtr(b->qps[h], &path, NULL, EHCA_MTU_2048,
                                    b->qps[!h]->qpn, 0), ==, 0);
        g_assert_cmpint(host_qp_rts(b->qps[h], &path, 0, false), ==, 0);
    }
}

static void srq_end(Bench *b, HostQp *srq)
{
    g_free(b->qps[1]);
    g_free(srq);
    bench_free(b);
}

static void test_srq(void)
{
    Bench *b = bench_new_bare();
    HostQp *srq = srq_new(b, 8, 3);
    HostCqe cqe;

    srq_connect(b, srq);
    for (unsigned i = 0; i < 6; i++) {
        HostRecvWr rr = {
            .wr_id = 100 + i, .num_sges = 1,
            .sges = { host_sge(b->mrs[1], 10000 * i, 9000) },
        };

        host_post_recv(srq, &rr);
    }
    host_ring(srq);
    for (unsigned i = 0; i < 6; i++) {
        bench_fill(b, 0, DATA, 9000, i);
        bench_send(b, 0, i, EHCA_WQE_OPTYPE_SEND, 0, DATA, 9000, 0);
        g_assert_true(bench_cqe(b, 1, &cqe, BENCH_SECOND));
        g_assert_cmphex(cqe.status, ==, 0);
        g_assert_cmpuint(cqe.wr_id, ==, 100 + i);
        g_assert_cmpuint(cqe.token, ==, 888);
        g_assert_true(bench_same(b, DATA, 10000 * i, 9000));
        g_assert_true(bench_cqe(b, 0, &cqe, BENCH_SECOND));
        /* The limit event comes once, when fewer than 3 are left. */
        g_assert_cmpuint(bench_eqes(b, 1, EHCA_EQE_SRQ_LIMIT), ==, i >= 3);
    }
    /* Told once; armed again by a new limit and the log bit (19.1). */
    for (unsigned i = 0; i < 4; i++) {
        uint8_t block[EHCA_QPCB_SIZE] = { 0 };
        HostRecvWr rr = {
            .wr_id = 200, .num_sges = 1,
            .sges = { host_sge(b->mrs[1], 0, 9000) },
        };

        ib_put32(block + EHCA_QPCB_CURR_SRQ_LIMIT, i & 1 ? 2 : 1);
        ib_put64(block + EHCA_QPCB_QP_AFF_ASYN_EV_LOG_REG,
                 EHCA_AAELOG_RESET_SRQ_LIMIT);
        g_assert_cmpint(host_qp_modify(srq, EHCA_QPMASK_CURR_SRQ_LIMIT |
            (i < 2 ? 0 : EHCA_QPMASK_QP_AFF_ASYN_EV_LOG_REG), block), ==, 0);
        g_assert_cmpuint(host_qp_field(srq, EHCA_QPCB_CURR_SRQ_LIMIT), ==,
                         i & 1 ? 2 : 1);
        host_post_recv(srq, &rr);
        host_ring(srq);
        bench_send(b, 0, i, EHCA_WQE_OPTYPE_SEND, 0, DATA, 8, 0);
        g_assert_true(bench_cqe(b, 1, &cqe, BENCH_SECOND));
        g_assert_true(bench_cqe(b, 0, &cqe, BENCH_SECOND));
        g_assert_cmpuint(bench_eqes(b, 1, EHCA_EQE_SRQ_LIMIT), ==,
                         i < 2 ? 1 : i);
    }
    /* In use it cannot go; moving its user to ERR is told. */
    g_assert_cmpint(host_hcall(b->pair->hosts[1], EHCA_H_FREE_RESOURCE,
        (uint64_t[9]) { b->pair->hosts[1]->config.handle, srq->handle },
        (uint64_t[9]) { 0 }), ==, EHCA_RC_RESOURCE);
    g_assert_cmpint(host_qp_to(b->qps[1], EHCA_QPS_ERR), ==, 0);
    g_assert_cmpuint(bench_eqes(b, 1, EHCA_EQE_QP_ERR), ==, 1);
    for (int i = 0; i < 2; i++) {
        g_assert_cmpint(host_hcall(b->pair->hosts[1], EHCA_H_FREE_RESOURCE,
            (uint64_t[9]) { b->pair->hosts[1]->config.handle,
                            i ? srq->handle : b->qps[1]->handle },
            (uint64_t[9]) { 0 }), ==, 0);
    }
    srq_end(b, srq);
}

static bool only_first(void *opaque, unsigned end, uint8_t *p, size_t *len)
{
    return p[0] >> 4 == IB_VL_MANAGEMENT ||
           (p[8] & IB_OP_MASK) == IB_OP_SEND_FIRST;
}

static int64_t free_resource(Host *host, uint64_t handle)
{
    uint64_t in[9] = { host->config.handle, handle }, out[9];

    return host_hcall(host, EHCA_H_FREE_RESOURCE, in, out);
}

/*
 * A QP that stops in the middle of a message gives the SRQ's WQE back with a
 * CQE: nothing else tells of it.  Whatever stops it: ERR, RESET, its end.
 */
static void test_srq_stopped(void)
{
    for (unsigned how = 0; how < 4; how++) {
        Bench *b = bench_new_bare();
        HostQp *srq = srq_new(b, 8, 0);
        Host *host = b->pair->hosts[1];
        HostRecvWr rr = {
            .wr_id = 100, .num_sges = 1,
            .sges = { host_sge(b->mrs[1], 0, 9000) },
        };
        HostCqe cqe;

        srq_connect(b, srq);
        host_post_recv(srq, &rr);
        host_ring(srq);
        b->pair->cables[0]->filter = only_first;
        bench_send(b, 0, 1, EHCA_WQE_OPTYPE_SEND, 0, DATA, 9000, 0);
        g_assert_false(bench_cqe(b, 1, &cqe, IB_MSEC));
        if (how < 2) {
            g_assert_cmpint(host_qp_to(b->qps[1], how ? EHCA_QPS_RESET
                                                      : EHCA_QPS_ERR), ==, 0);
        } else {
            if (how == 3) {
                uint64_t in[9] = { host->config.handle,
                                   EHCA_GETC_BEFORE_FREE,
                                   b->qps[1]->handle };
                uint64_t out[9];

                g_assert_cmpint(host_hcall(host, EHCA_H_DISABLE_AND_GETC, in,
                                           out), ==, 0);
            }
            g_assert_cmpint(free_resource(host, b->qps[1]->handle), ==, 0);
        }
        g_assert_true(bench_cqe(b, 1, &cqe, IB_SEC));
        g_assert_cmphex(cqe.status, ==, 0x80000005);
        g_assert_cmpuint(cqe.wr_id, ==, 100);
        g_assert_cmphex(cqe.flags, ==, EHCA_CQE_FLAG_RECV);
        g_assert_cmpuint(cqe.token, ==, 888);
        g_assert_false(bench_cqe(b, 1, &cqe, IB_SEC));
        if (how < 2) {
            g_assert_cmpint(free_resource(host, b->qps[1]->handle), ==, 0);
            g_assert_false(bench_cqe(b, 1, &cqe, IB_MSEC));
        }
        g_assert_cmpint(free_resource(host, srq->handle), ==, 0);
        srq_end(b, srq);
    }
}

/*
 * WQEs of an SRQ are finished in any order, so the ring comes round to the
 * slot of one that is still in work: what the guest writes there is the next
 * WQE, not this one.
 */
static void test_srq_slot_reused(void)
{
    Bench *b = bench_new_bare();
    HostQp *srq = srq_new(b, 8, 0);
    Host *host = b->pair->hosts[1];
    HostRecvWr rr = {
        .wr_id = 100, .num_sges = 2,
        .sges = { host_sge(b->mrs[1], 0, 3000),
                  host_sge(b->mrs[1], 3000, 6000) },
    };
    HostCqe cqe;

    srq_connect(b, srq);
    host_post_recv(srq, &rr);
    host_ring(srq);
    bench_fill(b, 0, DATA, 9000, 5);
    b->pair->cables[0]->filter = only_first;
    bench_send(b, 0, 1, EHCA_WQE_OPTYPE_SEND, 0, DATA, 9000, 0);
    bench_run(b, 10 * IB_USEC);
    rr.wr_id = 200;
    rr.sges[0] = host_sge(b->mrs[1], BUFFER, 9000);
    rr.num_sges = 1;
    srq->rq.next = 0;
    host_post_recv(srq, &rr);
    srq->rq_new = 0;
    b->pair->cables[0]->filter = NULL;
    g_assert_true(bench_cqe(b, 1, &cqe, IB_SEC));
    g_assert_cmphex(cqe.status, ==, 0);
    g_assert_cmpuint(cqe.wr_id, ==, 100);
    g_assert_true(bench_same(b, DATA, 0, 9000));
    for (unsigned i = 0; i < 9000; i++) {
        g_assert_cmphex(b->mrs[1]->bytes[BUFFER + i], ==, 0);
    }
    g_assert_cmpint(free_resource(host, b->qps[1]->handle), ==, 0);
    srq_end(b, srq);
}

/* So an SRQ's WQEs have no more entries than are kept of one (5.3). */
static void test_srq_sges(void)
{
    Bench *b = bench_new_bare();
    Host *host = b->pair->hosts[1];

    for (uint64_t sges = 0; sges < 8; sges++) {
        uint64_t in[9] = {
            host->config.handle,
            EHCA_RT_QP | (uint64_t)EHCA_QPKIND_SRQ << EHCA_ALLOC_QP_KIND_SHIFT |
            (uint64_t)EHCA_SIGT_PER_WQE << EHCA_ALLOC_QP_SIGT_SHIFT,
            0, 0, host->eq_handle, HOST_PD,
            (uint64_t)2 << 48 | (uint64_t)9 << 32 | sges << 16,
        };
        uint64_t out[9];

        g_assert_cmpint(host_hcall(host, EHCA_H_ALLOC_RESOURCE, in, out), ==,
                        sges <= 4 ? 0 : EHCA_RC_PARAMETER);
    }
    bench_free(b);
}

static bool no_last(void *opaque, unsigned end, uint8_t *p, size_t *len)
{
    return p[0] >> 4 == IB_VL_MANAGEMENT ||
           (p[8] & IB_OP_MASK) != IB_OP_SEND_LAST;
}

/*
 * Consumers of an SRQ take event 0x05 for "last WQE reached": no CQE may come
 * behind it, so none of the EQ's entries for the CQ either.
 */
static void test_srq_last_wqe(void)
{
    Bench *b = bench_new_bare();
    HostQp *srq = srq_new(b, 8, 0);
    Host *host = b->pair->hosts[1];
    HostMr *mr = host_mr_new(host, 131072, EHCA_MR_REMOTE_READ);
    HostRecvWr rr = {
        .wr_id = 100, .num_sges = 1,
        .sges = { host_sge(b->mrs[1], 0, 20000) },
    };
    HostSendWr read = {
        .wr_id = 1, .optype = EHCA_WQE_OPTYPE_RDMA_READ, .num_sges = 1,
        .sges = { host_sge(b->mrs[0], 0, 65536) },
        .raddr = mr->iova, .rkey = mr->rkey,
    };
    uint64_t completion, error;
    unsigned next;
    HostCqe cqe;

    srq_connect(b, srq);
    b->pair->cables[0]->filter = no_last;
    bench_events(b);
    next = host->eq.next;
    host_cq_arm(b->cqs[1], false);
    host_post_recv(srq, &rr);
    host_ring(srq);
    post(b->qps[0], &read);
    bench_send(b, 0, 2, EHCA_WQE_OPTYPE_SEND, 0, DATA, 20000, 0);
    host_run(b->pair->hosts[0]);
    host_cable_run(b->pair->cables[0]);
    /* Half a SEND is in, and what the READ wants is gone. */
    while (host_qp_field(b->qps[1], EHCA_QPCB_RECEIVE_PSN) < 32 + 2) {
        host_run_budget(host, 2);
    }
    g_assert_cmpint(free_resource(host, mr->handle), ==, 0);
    bench_run(b, IB_MSEC);
    g_assert_true(bench_cqe(b, 1, &cqe, 0));
    g_assert_cmphex(cqe.status, ==, 0x80000005);
    completion = ib_get64(host_ptr(host, host->eq.pages[0] + 8 * next));
    error = ib_get64(host_ptr(host, host->eq.pages[0] + 8 * (next + 1)));
    g_assert_cmphex(completion & EHCA_EQE_COMPLETION, !=, 0);
    g_assert_cmphex(error >> EHCA_EQE_ID_SHIFT & EHCA_EQE_ID_MASK, ==,
                    EHCA_EQE_QP_ERR);
    g_assert_cmphex(error & EHCA_EQE_TOKEN_MASK, ==, 888);
    g_assert_cmpint(free_resource(host, b->qps[1]->handle), ==, 0);
    srq_end(b, srq);
}

/* ------------------------------------------------------------------ */
/* Ports                                                              */
/* ------------------------------------------------------------------ */

static unsigned drain_neq(Host *host, HostEqe *eqes, unsigned max)
{
    unsigned n = 0;

    while (n < max && host_next_neqe(host, &eqes[n])) {
        n++;
    }
    return n;
}

/* Definition of QP1 enables, freeing it disables; no events before. */
static void test_activation(void)
{
    HostOptions options = { .name = "one", .num_ports = 2, .quiet = true };
    HostOptions other = { .name = "two", .num_ports = 2, .quiet = true };
    IbClock clock;
    Host *a, *peer;
    HostCable *cable;
    HostPortInfo info;
    HostEqe eqes[16];

    ib_clock_init_virtual(&clock);
    a = host_new(&options, &clock);
    peer = host_new(&other, &clock);
    cable = host_cable_new(a, 1, peer, 1);
    host_query_port(a, 1, &info);
    g_assert_cmpuint(info.phys_state, ==, IB_PHYS_DISABLED);
    g_assert_false(ehca_port_wants_link(a->adapter, 1));
    host_start(peer);
    host_start(a);
    g_assert_true(ehca_port_wants_link(a->adapter, 1));
    host_cable_run(cable);
    host_query_port(a, 1, &info);
    g_assert_cmpuint(info.state, ==, IB_PORT_INIT);
    g_assert_cmpuint(info.phys_state, ==, IB_PHYS_LINK_UP);
    g_assert_cmpuint(drain_neq(a, eqes, 16), ==, 0);
    g_assert_true(host_cable_activate(cable, 0, 7, 0));
    g_assert_cmpuint(drain_neq(a, eqes, 16), ==, 1);
    g_assert_cmpuint(eqes[0].id, ==, EHCA_NEQE_PORT_AVAIL);
    g_assert_cmpuint(eqes[0].port, ==, 1);
    g_assert_true(eqes[0].flag);
    /* Cable out: unavailable, LID stays. */
    host_cable_set(cable, false);
    g_assert_cmpuint(drain_neq(a, eqes, 16), ==, 1);
    g_assert_false(eqes[0].flag);
    host_query_port(a, 1, &info);
    g_assert_cmpuint(info.state, ==, IB_PORT_DOWN);
    g_assert_cmpuint(info.phys_state, ==, IB_PHYS_POLLING);
    g_assert_cmpuint(info.lid, ==, 7);
    host_cable_set(cable, true);
    g_assert_true(host_cable_activate(cable, 0, 7, 0));
    g_assert_cmpuint(drain_neq(a, eqes, 16), ==, 1);
    /* The GSI QP goes: Disabled, link given up. */
    g_assert_cmpint(host_qp_free(a->gsi[1]), ==, 0);
    a->gsi[1] = NULL;
    g_assert_false(ehca_port_wants_link(a->adapter, 1));
    host_query_port(a, 1, &info);
    g_assert_cmpuint(info.state, ==, IB_PORT_DOWN);
    g_assert_cmpuint(info.phys_state, ==, IB_PHYS_DISABLED);
    g_assert_cmpuint(drain_neq(a, eqes, 16), ==, 0);
    /* And comes back. */
    a->gsi[1] = host_gsi_new(a, 1, a->gsi_cq[1]);
    host_cable_run(cable);
    g_assert_true(host_cable_activate(cable, 0, 7, 0));
    g_assert_cmpuint(drain_neq(a, eqes, 16), ==, 1);
    g_assert_true(eqes[0].flag);
    host_cable_free(cable);
    host_free(a);
    host_free(peer);
    ib_clock_fini(&clock);
}

/* QP1 defined on a port that is Active already: told at once. */
static void test_late_qp1(void)
{
    HostOptions options = { .name = "one", .num_ports = 2, .quiet = true,
                            .activation = EHCA_ACTIVATE_ALWAYS };
    HostOptions other = options;
    IbClock clock;
    Host *a, *peer;
    HostCable *cable;
    HostPortInfo info;
    HostEqe eqes[16];

    other.name = "two";
    ib_clock_init_virtual(&clock);
    a = host_new(&options, &clock);
    peer = host_new(&other, &clock);
    g_assert_true(ehca_port_wants_link(a->adapter, 1));
    a->wants_link[1] = peer->wants_link[1] = true;
    cable = host_cable_new(a, 1, peer, 1);
    g_assert_true(host_cable_activate(cable, 0, 7, 0));
    host_query_port(a, 1, &info);
    g_assert_cmpuint(info.state, ==, IB_PORT_ACTIVE);
    host_start(a);
    g_assert_cmpuint(drain_neq(a, eqes, 16), ==, 1);
    g_assert_cmpuint(eqes[0].id, ==, EHCA_NEQE_PORT_AVAIL);
    g_assert_true(eqes[0].flag);
    host_cable_free(cable);
    host_free(a);
    host_free(peer);
    ib_clock_fini(&clock);
}

/* The other HCAs' rule: QP0 in RTR. */
static void test_qp0_activation(void)
{
    HostOptions options = { .name = "one", .num_ports = 2, .quiet = true,
                            .activation = EHCA_ACTIVATE_QP0 };
    IbClock clock;
    HostQp *qp;
    Host *a;

    ib_clock_init_virtual(&clock);
    a = host_new(&options, &clock);
    host_start(a);
    g_assert_false(ehca_port_wants_link(a->adapter, 2));
    qp = host_qp_new(a, EHCA_SERVICE_UD, a->gsi_cq[2], a->gsi_cq[2], 8, 8);
    g_assert_cmpint(host_hcall(a, EHCA_H_DEFINE_AQP0,
        (uint64_t[9]) { a->config.handle, qp->handle, 2 },
        (uint64_t[9]) { 0 }), ==, 0);
    g_assert_cmpint(host_qp_ud_init(qp, 2, 0), ==, 0);
    g_assert_false(ehca_port_wants_link(a->adapter, 2));
    g_assert_cmpint(host_qp_ud_ready(qp, 0), ==, 0);
    g_assert_true(ehca_port_wants_link(a->adapter, 2));
    g_assert_false(ehca_port_wants_link(a->adapter, 1));
    g_assert_cmpint(host_qp_to(qp, EHCA_QPS_RESET), ==, 0);
    g_assert_false(ehca_port_wants_link(a->adapter, 2));
    g_assert_cmpint(host_qp_ud_init(qp, 2, 0), ==, 0);
    g_assert_cmpint(host_qp_ud_ready(qp, 0), ==, 0);
    g_assert_true(ehca_port_wants_link(a->adapter, 2));
    g_assert_cmpint(host_qp_free(qp), ==, 0);
    g_assert_false(ehca_port_wants_link(a->adapter, 2));
    host_free(a);
    ib_clock_fini(&clock);
}

/* A LID change while Active: configuration changed, not disruptive. */
static void test_config_change(void)
{
    Bench *b = bench_new_bare();
    HostEqe eqes[16];

    bench_events(b);
    /* host_cable_activate() goes down the whole way again: pull first. */
    host_cable_set(b->pair->cables[0], false);
    host_cable_set(b->pair->cables[0], true);
    bench_run(b, IB_MSEC);
    g_assert_cmpuint(drain_neq(b->pair->hosts[0], eqes, 16), ==, 1);
    g_assert_false(eqes[0].flag);
    g_assert_true(host_cable_activate(b->pair->cables[0], 0, 9, 0));
    /* LID 9 came with Armed, before Active: the one event tells all. */
    g_assert_cmpuint(drain_neq(b->pair->hosts[0], eqes, 16), ==, 1);
    g_assert_cmpuint(eqes[0].id, ==, EHCA_NEQE_PORT_AVAIL);
    g_assert_true(eqes[0].flag);
    bench_free(b);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/engine/ud/traffic", test_ud);
    g_test_add_func("/engine/ud/dropped", test_ud_dropped);
    g_test_add_func("/engine/ud/arrivals", test_ud_arrivals);
    g_test_add_func("/engine/ud/recv-errors", test_ud_recv_errors);
    g_test_add_func("/engine/ud/sqe", test_sqe);
    g_test_add_func("/engine/ud/errors", test_ud_errors);
    g_test_add_func("/engine/ud/sges", test_ud_sges);
    g_test_add_func("/engine/ud/pma", test_pma);
    g_test_add_func("/engine/qp0", test_qp0);
    g_test_add_func("/engine/port/smp-flood", test_smp_flood);
    g_test_add_func("/engine/port/reregister", test_reregister);
    g_test_add_func("/engine/ud/multicast", test_multicast);
    g_test_add_func("/engine/srq", test_srq);
    g_test_add_func("/engine/srq-stopped", test_srq_stopped);
    g_test_add_func("/engine/srq-slot-reused", test_srq_slot_reused);
    g_test_add_func("/engine/srq-sges", test_srq_sges);
    g_test_add_func("/engine/srq-last-wqe", test_srq_last_wqe);
    g_test_add_func("/engine/port/activation", test_activation);
    g_test_add_func("/engine/port/late-qp1", test_late_qp1);
    g_test_add_func("/engine/port/qp0-activation", test_qp0_activation);
    g_test_add_func("/engine/port/config-change", test_config_change);
    return g_test_run();
}
