/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The engine between a hostile guest and a hostile peer.  An input is a
 * program: hypercalls, register stores, scribbling in guest memory, packets,
 * and time that passes, on one of two hosts with a connected QP each.  The
 * adapter may refuse, drop and complete in error; it must stay alive and keep
 * its books in order.
 *
 * Two kinds of step for the same thing: any numbers at all, and numbers that
 * are right but for a few bytes.  The first finds doors that are open, the
 * second gets behind them.
 */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "hw/ehca/engine/internal.h"
#include "tests/sim/host.h"

#define MAX_STEPS 128
#define MAX_POOL 32
#define MAX_QPS 16
#define QUEUE_PAGES 4
#define ARENA_PAGES 64
#define GROUP UINT64_C(0xFF12401BFFFF0000)

enum {
    DO_HCALL, DO_STORE, DO_SCRIBBLE, DO_PACKET, DO_RUN, DO_CREATE, DO_MODIFY,
    DO_WQE, DO_MCAST, DO_RESET, DO_CQ, DO_MAD, DO_KINDS
};

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

/* A QP to play with: the bench's, or one that the input made. */
typedef struct FuzzQp {
    uint64_t handle, regs;
    uint32_t qpn;
    uint64_t page[2];                  /* first of SQ, RQ; 0: has none */
    uint32_t stride[2];
} FuzzQp;

typedef struct Lab {
    HostPair *pair;
    HostQp *qps[2];
    HostMr *mrs[2];
    HostCq *cqs[2];
    uint64_t arena[2];                 /* guest pages for queues and lists */
    uint64_t pool[2][MAX_POOL];        /* handles to play with */
    unsigned pooled[2];
    FuzzQp qp[2][MAX_QPS];
    unsigned num_qps[2];
    uint32_t srq_qpn[2];               /* of the last SRQ made */
    bool dead[2];                      /* was reset: handles are stale */
} Lab;

static bool never(void *opaque)
{
    return false;
}

static void know_qp(Lab *lab, unsigned h, const HostQp *qp)
{
    lab->qp[h][lab->num_qps[h]++] = (FuzzQp) {
        .handle = qp->handle, .regs = qp->regs, .qpn = qp->qpn,
        .page = { qp->sq.pages[0], qp->rq.pages[0] },
        .stride = { qp->sq.stride, qp->rq.stride },
    };
}

static void lab_new(Lab *lab, unsigned service)
{
    memset(lab, 0, sizeof(*lab));
    lab->pair = host_pair_new(NULL, NULL);
    for (unsigned h = 0; h < 2; h++) {
        Host *host = lab->pair->hosts[h];

        lab->cqs[h] = host_cq_new(host, 44);
        lab->mrs[h] = host_mr_new(host, 65536, EHCA_MR_LOCAL_WRITE |
                                  EHCA_MR_REMOTE_WRITE |
                                  EHCA_MR_REMOTE_READ |
                                  EHCA_MR_REMOTE_ATOMIC);
        lab->arena[h] = host_alloc(host, ARENA_PAGES * EHCA_PAGE_SIZE);
    }
    host_pair_connect(lab->pair, service, 0, true, lab->cqs, lab->qps);
    for (unsigned h = 0; h < 2; h++) {
        Host *host = lab->pair->hosts[h];
        uint64_t known[] = { lab->qps[h]->handle, lab->cqs[h]->handle,
                             lab->mrs[h]->handle, host->eq_handle,
                             host->neq_handle, host->gsi[1]->handle };

        memcpy(lab->pool[h], known, sizeof(known));
        lab->pooled[h] = sizeof(known) / sizeof(known[0]);
        know_qp(lab, h, lab->qps[h]);
        know_qp(lab, h, host->gsi[1]);
    }
}

/* ------------------------------------------------------------------ */
/* What must hold whatever happened                                   */
/* ------------------------------------------------------------------ */

static void check_queue(const EhcaQueue *q, uint64_t *pages)
{
    FUZZ_ASSERT(q->registered <= q->num_pages);
    FUZZ_ASSERT(q->num_pages == 0 ||
                (q->head < q->entries && q->posted <= q->entries));
    *pages += q->num_pages;
}

static void check_qp(const EhcaQp *qp, uint64_t *pages)
{
    check_queue(&qp->sq, pages);
    check_queue(&qp->rq, pages);
    FUZZ_ASSERT(qp->ctx_tail - qp->ctx_head <= EHCA_SEND_CTXS);
    FUZZ_ASSERT(qp->ctx_send - qp->ctx_head <= qp->ctx_tail - qp->ctx_head);
    FUZZ_ASSERT(qp->res_head - qp->res_cur <= EHCA_MAX_RD_RES);
    FUZZ_ASSERT(qp->res_valid <= EHCA_MAX_RD_RES);
    FUZZ_ASSERT(!((qp->una_psn | qp->nxt_psn | qp->max_psn | qp->new_psn |
                   qp->epsn | qp->msn) & ~IB_PSN_MASK));
    FUZZ_ASSERT(ib_psn_diff(qp->nxt_psn, qp->una_psn) >= 0);
    FUZZ_ASSERT(ib_psn_diff(qp->max_psn, qp->nxt_psn) >= 0);
    if (qp->attr.state == EHCA_QPS_RTS || qp->attr.state == EHCA_QPS_SQD) {
        FUZZ_ASSERT(qp->ctx_tail - qp->ctx_head <= qp->sq.posted);
    }
    FUZZ_ASSERT(!qp->recv.active || qp->recv.used <= qp->recv.capacity);
}

static void check_books(Lab *lab, unsigned h)
{
    EhcaAdapter *a = lab->pair->hosts[h]->adapter;
    uint64_t pages = 0;
    uint32_t users = 0, mrs = 0, mws = 0;

    check_queue(&a->eq.queue, &pages);
    check_queue(&a->neq.queue, &pages);
    for (uint32_t i = 0; i < a->qps.size; i++) {
        if (a->qps.objects[i]) {
            check_qp(a->qps.objects[i], &pages);
            users++;
        }
    }
    FUZZ_ASSERT(users == a->qps.used);
    for (uint32_t i = 0; i < a->cqs.size; i++) {
        const EhcaCq *cq = a->cqs.objects[i];

        if (cq) {
            check_queue(&cq->queue, &pages);
            FUZZ_ASSERT(cq->producer < cq->queue.entries);
            users++;
        }
    }
    FUZZ_ASSERT(users == a->eq.users && users == a->qps.used + a->cqs.used);
    for (uint32_t i = 0; i < a->keys.size; i++) {
        const EhcaMr *mr = a->keys.objects[i];

        mrs += mr && mr->kind == EHCA_KIND_MR;
        mws += mr && mr->kind == EHCA_KIND_MW;
    }
    FUZZ_ASSERT(mrs == a->mrs && mws == a->mws);
    FUZZ_ASSERT(pages == a->queue_pages);
    FUZZ_ASSERT(a->mr_pages <= a->config.max_mr_pages);
}

/* ------------------------------------------------------------------ */
/* Hypercalls                                                         */
/* ------------------------------------------------------------------ */

static uint64_t arena_page(Lab *lab, unsigned h, uint8_t value)
{
    return lab->arena[h] + value % ARENA_PAGES * EHCA_PAGE_SIZE;
}

/* A register's value: a handle, a page, something small, or anything. */
static uint64_t argument(Lab *lab, unsigned h, FuzzInput *in)
{
    uint8_t how = fuzz_byte(in);
    uint8_t value = fuzz_byte(in);

    switch (how % 7) {
    case 0:
        return lab->pool[h][value % lab->pooled[h]];
    case 1:
        return lab->pair->hosts[h]->block;
    case 2:
        return arena_page(lab, h, value);
    case 3:
        return value;
    case 4:
        return UINT64_C(1) << (value & 63);
    case 5:
        return UINT64_MAX << (value & 63);
    default:
        return (uint64_t)fuzz_u32(in) << 32 | fuzz_u32(in);
    }
}

static void know_handle(Lab *lab, unsigned h, uint64_t handle)
{
    if (lab->pooled[h] < MAX_POOL) {
        lab->pool[h][lab->pooled[h]++] = handle;
    } else {
        lab->pool[h][6 + handle % (MAX_POOL - 6)] = handle;
    }
}

static int64_t checked_call(Lab *lab, unsigned h, uint64_t number,
                            const uint64_t in[9], uint64_t out[9])
{
    int64_t rc = host_hcall(lab->pair->hosts[h], number, in, out);

    for (unsigned i = 0; rc < 0 && i < 9; i++) {
        FUZZ_ASSERT(out[i] == 0);
    }
    if (rc == EHCA_RC_SUCCESS && (number == EHCA_H_ALLOC_RESOURCE ||
                                  number == EHCA_H_REGISTER_SMR)) {
        know_handle(lab, h, out[EHCA_OUT_HANDLE]);
    }
    return rc;
}

static void do_hcall(Lab *lab, unsigned h, FuzzInput *in)
{
    uint64_t number = numbers[fuzz_byte(in) % NUMBERS];
    uint64_t r[9] = { lab->pair->hosts[h]->config.handle }, out[9];
    unsigned args = fuzz_byte(in) % 9;

    for (unsigned i = 1; i <= args; i++) {
        r[i] = argument(lab, h, in);
    }
    checked_call(lab, h, number, r, out);
}

/* Pages of the arena for a queue; @skip leaves so many out at the end. */
static void give_pages(Lab *lab, unsigned h, uint64_t handle, unsigned type,
                       unsigned pages, unsigned skip, uint8_t first)
{
    for (unsigned i = 0; i + skip < pages && i < QUEUE_PAGES; i++) {
        uint64_t r[9] = { lab->pair->hosts[h]->config.handle, type, handle,
                          arena_page(lab, h, first + i), 1 };
        uint64_t out[9];

        checked_call(lab, h, EHCA_H_REGISTER_RPAGES, r, out);
    }
}

/* Objects that are right but for what the input's bytes say. */
static void do_create(Lab *lab, unsigned h, FuzzInput *in)
{
    Host *host = lab->pair->hosts[h];
    uint8_t what = fuzz_byte(in), sizes = fuzz_byte(in);
    uint8_t page = fuzz_byte(in), skip = fuzz_byte(in) > 0xF0;
    uint64_t sigt = (uint64_t)(1 + (what >> 7)) << EHCA_ALLOC_QP_SIGT_SHIFT;
    uint64_t cq = lab->cqs[h]->handle;
    uint64_t wrs = (uint64_t)(sizes & 0x1F) << EHCA_ALLOC_QP_SEND_WRS_SHIFT |
        (uint64_t)(sizes & 0x1F) << EHCA_ALLOC_QP_RECV_WRS_SHIFT |
        (uint64_t)(sizes >> 6) * 3 << EHCA_ALLOC_QP_SEND_SGES_SHIFT |
        (uint64_t)(sizes >> 6) * 3 << EHCA_ALLOC_QP_RECV_SGES_SHIFT;
    static const struct { uint8_t kind, service; } shapes[] = {
        { EHCA_QPKIND_NORMAL, EHCA_SERVICE_RC },
        { EHCA_QPKIND_NORMAL, EHCA_SERVICE_UC },
        { EHCA_QPKIND_NORMAL, EHCA_SERVICE_UD },
        { EHCA_QPKIND_SRQ, EHCA_SERVICE_RC },
        { EHCA_QPKIND_SRQBASE, EHCA_SERVICE_RC },
        { EHCA_QPKIND_SRQBASE, EHCA_SERVICE_UD },
    };
    unsigned shape = what & 7;
    uint64_t r[9] = { host->config.handle }, out[9];

    if (shape >= sizeof(shapes) / sizeof(shapes[0])) {
        if (shape == 6) {
            /* A small CQ: the next QPs overflow it. */
            r[1] = EHCA_RT_CQ;
            r[2] = host->eq_handle;
            r[3] = 63;
            r[4] = 1;
        } else {
            r[1] = EHCA_RT_MR;
            r[2] = lab->mrs[h]->iova + sizes;
            r[3] = (uint64_t)page << 8;
            r[4] = (uint64_t)(sizes & 0xF0) << 48;
            r[5] = HOST_PD;
        }
        if (checked_call(lab, h, EHCA_H_ALLOC_RESOURCE, r, out) ==
            EHCA_RC_SUCCESS) {
            give_pages(lab, h, out[0], 0, out[EHCA_OUT_PAGES] +
                       (shape == 7 ? QUEUE_PAGES : 0), skip, page);
        }
        return;
    }
    r[1] = EHCA_RT_QP | sigt |
        (uint64_t)shapes[shape].kind << EHCA_ALLOC_QP_KIND_SHIFT |
        (uint64_t)shapes[shape].service << EHCA_ALLOC_QP_SERVICE_SHIFT;
    r[2] = cq;
    r[3] = lab->pool[h][sizes % lab->pooled[h]] >> 56 == EHCA_KIND_CQ
           ? lab->pool[h][sizes % lab->pooled[h]] : cq;
    r[4] = host->eq_handle;
    r[5] = (uint64_t)62 << EHCA_ALLOC_QP_TOKEN_SHIFT | HOST_PD;
    r[6] = wrs;
    r[8] = shapes[shape].kind == EHCA_QPKIND_SRQ ? sizes & 3
                                                 : lab->srq_qpn[h];
    if (checked_call(lab, h, EHCA_H_ALLOC_RESOURCE, r, out) !=
        EHCA_RC_SUCCESS) {
        return;
    }
    if (shapes[shape].kind == EHCA_QPKIND_SRQ) {
        lab->srq_qpn[h] = out[EHCA_OUT_QPN];
    }
    give_pages(lab, h, out[0], EHCA_RPAGES_SQ, out[EHCA_OUT_QP_PAGES] >> 32,
               skip, page);
    give_pages(lab, h, out[0], EHCA_RPAGES_RQ,
               (uint32_t)out[EHCA_OUT_QP_PAGES], skip, page + QUEUE_PAGES);
    lab->qp[h][lab->num_qps[h] < MAX_QPS ? lab->num_qps[h]++ : MAX_QPS - 1] =
        (FuzzQp) {
            .handle = out[0], .regs = out[EHCA_OUT_QP_REGS],
            .qpn = out[EHCA_OUT_QPN],
            .page = { arena_page(lab, h, page),
                      arena_page(lab, h, page + QUEUE_PAGES) },
            .stride = {
                EHCA_WQE_STRIDE(out[EHCA_OUT_QP_SGES] >>
                                EHCA_OUT_QP_SEND_SGES_SHIFT & 0xFF),
                EHCA_WQE_STRIDE(out[EHCA_OUT_QP_SGES] >>
                                EHCA_OUT_QP_RECV_SGES_SHIFT & 0xFF),
            },
        };
}

static FuzzQp *pick_qp(Lab *lab, unsigned h, uint8_t value)
{
    return &lab->qp[h][value % lab->num_qps[h]];
}

/* One step of a QP's life, a few fields changed. */
static void do_modify(Lab *lab, unsigned h, FuzzInput *in)
{
    Host *host = lab->pair->hosts[h];
    FuzzQp *qp = pick_qp(lab, h, fuzz_byte(in));
    uint8_t move = fuzz_byte(in), changes = fuzz_byte(in);
    HostPath primary, alternate;
    uint8_t *b = host_block(host);
    uint64_t path, alt, mask = EHCA_QPMASK_QP_STATE;
    uint64_t out[9];

    host_pair_path(h, move >> 7, &primary);
    host_pair_path(h, !(move >> 7), &alternate);
    if (move & 0x40) {
        primary.dlid = host_pair_lid(h, primary.port);   /* to itself */
    }
    primary.grh = alternate.grh = (move & 0x20) != 0;
    memset(b, 0, EHCA_CB_SIZE);
    path = host_put_path(b, &primary, false);
    alt = host_put_path(b, &alternate, true);
    ib_put32(b + EHCA_QPCB_QKEY, IB_QKEY_QP1);
    ib_put32(b + EHCA_QPCB_PATH_MTU, 1 + changes % 5);
    ib_put32(b + EHCA_QPCB_DEST_QP_NR,
             lab->qp[move & 0x40 ? h : !h][changes % 4].qpn);
    ib_put32(b + EHCA_QPCB_RDMA_NR_ATOMIC_RESP_RES, changes % 17);
    ib_put32(b + EHCA_QPCB_RDMA_ATOMIC_OUTST_DEST_QP, changes % 17);
    ib_put32(b + EHCA_QPCB_RETRY_COUNT, changes % 8);
    ib_put32(b + EHCA_QPCB_RNR_RETRY_COUNT, changes % 8);
    ib_put32(b + EHCA_QPCB_TIMEOUT, 8);
    ib_put32(b + EHCA_QPCB_MIN_RNR_NAK_TIMER_FIELD, 1);
    ib_put32(b + EHCA_QPCB_RECEIVE_PSN, changes & 1 ? 0xFFFFFE : 0x100);
    ib_put32(b + EHCA_QPCB_SEND_PSN, changes & 1 ? 0xFFFFFE : 0x100);
    ib_put32(b + EHCA_QPCB_CURR_SRQ_LIMIT, changes & 3);
    ib_put64(b + EHCA_QPCB_QP_AFF_ASYN_EV_LOG_REG,
             EHCA_AAELOG_RESET_SRQ_LIMIT);
    ib_put32(b + EHCA_QPCB_PATH_MIGRATION_STATE, 1 + changes % 2);
    switch (move & 15) {
    case 0:
        ib_put32(b + EHCA_QPCB_QP_STATE, EHCA_QPS_INIT);
        mask |= EHCA_QPMASK_PRIM_PHYS_PORT | EHCA_QPMASK_PRIM_P_KEY_IDX;
        break;
    case 1:
        ib_put32(b + EHCA_QPCB_QP_STATE, EHCA_QPS_INIT);
        mask |= EHCA_QPMASK_PRIM_PHYS_PORT | EHCA_QPMASK_QKEY;
        break;
    case 2:
        ib_put32(b + EHCA_QPCB_QP_STATE, EHCA_QPS_RTR);
        break;
    case 3:
        ib_put32(b + EHCA_QPCB_QP_STATE, EHCA_QPS_RTR);
        mask |= path | EHCA_QPMASK_PATH_MTU | EHCA_QPMASK_DEST_QP_NR |
                EHCA_QPMASK_RECEIVE_PSN | EHCA_QPMASK_RDMA_NR_ATOMIC_RESP_RES;
        mask |= changes & 0x80 ? alt : 0;
        break;
    case 4:
        ib_put32(b + EHCA_QPCB_QP_STATE, EHCA_QPS_RTS);
        mask |= EHCA_QPMASK_SEND_PSN;
        break;
    case 5:
        ib_put32(b + EHCA_QPCB_QP_STATE, EHCA_QPS_RTS);
        mask |= EHCA_QPMASK_SEND_PSN | EHCA_QPMASK_TIMEOUT |
                EHCA_QPMASK_RETRY_COUNT | EHCA_QPMASK_RNR_RETRY_COUNT |
                EHCA_QPMASK_RDMA_ATOMIC_OUTST_DEST_QP;
        break;
    case 6:
        ib_put32(b + EHCA_QPCB_QP_STATE, EHCA_QPS_RTS);
        mask |= alt;
        break;
    case 7:
        ib_put32(b + EHCA_QPCB_QP_STATE, EHCA_QPS_RTS);
        mask |= EHCA_QPMASK_PATH_MIGRATION_STATE;
        break;
    case 8:
        ib_put32(b + EHCA_QPCB_QP_STATE, EHCA_QPS_RTS);
        mask |= alt | EHCA_QPMASK_PATH_MIGRATION_STATE;
        break;
    case 9:
        ib_put32(b + EHCA_QPCB_QP_STATE, EHCA_QPS_SQD);
        break;
    case 10:
        ib_put32(b + EHCA_QPCB_QP_STATE, EHCA_QPS_SQD);
        mask |= path | EHCA_QPMASK_PRIM_PHYS_PORT | EHCA_QPMASK_RETRY_COUNT |
                EHCA_QPMASK_RDMA_NR_ATOMIC_RESP_RES |
                EHCA_QPMASK_RDMA_ATOMIC_OUTST_DEST_QP;
        break;
    case 11:
        ib_put32(b + EHCA_QPCB_QP_STATE, EHCA_QPS_ERR);
        break;
    case 12:
        ib_put32(b + EHCA_QPCB_QP_STATE, EHCA_QPS_RESET);
        break;
    case 13:
        mask = EHCA_QPMASK_CURR_SRQ_LIMIT | EHCA_QPMASK_QP_AFF_ASYN_EV_LOG_REG;
        break;
    case 14:
        mask = EHCA_QPMASK_QP_ENABLE;
        break;
    default:
        mask = (uint64_t)fuzz_u32(in) << 32 | fuzz_u32(in);
        ib_put32(b + EHCA_QPCB_QP_STATE, fuzz_byte(in));
        break;
    }
    for (unsigned i = 0; i < (changes >> 4 & 3); i++) {
        b[(fuzz_byte(in) << 1 | 1) % EHCA_QPCB_SIZE] = fuzz_byte(in);
    }
    checked_call(lab, h, EHCA_H_MODIFY_QP,
                 (uint64_t[9]) { host->config.handle, qp->handle, mask,
                                 host->block }, out);
    checked_call(lab, h, EHCA_H_QUERY_QP,
                 (uint64_t[9]) { host->config.handle, qp->handle,
                                 host->block }, out);
}

static void do_mcast(Lab *lab, unsigned h, FuzzInput *in)
{
    Host *host = lab->pair->hosts[h];
    uint8_t how = fuzz_byte(in);
    uint64_t out[9];

    checked_call(lab, h, how & 1 ? EHCA_H_ATTACH_MCQP : EHCA_H_DETACH_MCQP,
                 (uint64_t[9]) { host->config.handle,
                                 pick_qp(lab, h, how >> 4)->handle,
                                 0xC000 + (how >> 1 & 1), how >> 2 & 1,
                                 GROUP }, out);
}

/* ------------------------------------------------------------------ */
/* Registers and queues                                               */
/* ------------------------------------------------------------------ */

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

static void put_sge(uint8_t *p, const HostMr *mr, uint32_t offset,
                    uint32_t length)
{
    ib_put64(p + EHCA_SGE_ADDR, mr->iova + offset);
    ib_put32(p + EHCA_SGE_LKEY, mr->lkey);
    ib_put32(p + EHCA_SGE_LENGTH, length);
}

/* A WQE that is right but for a few bytes, and perhaps its doorbell. */
static void do_wqe(Lab *lab, unsigned h, FuzzInput *in)
{
    static const uint8_t ops[] = {
        EHCA_WQE_OPTYPE_SEND, EHCA_WQE_OPTYPE_SEND, EHCA_WQE_OPTYPE_RDMA_READ,
        EHCA_WQE_OPTYPE_RDMA_WRITE, EHCA_WQE_OPTYPE_CMP_SWAP,
        EHCA_WQE_OPTYPE_FETCH_ADD, EHCA_WQE_OPTYPE_BIND_MW, 0,
    };
    Host *host = lab->pair->hosts[h];
    FuzzQp *qp = pick_qp(lab, h, fuzz_byte(in));
    uint8_t how = fuzz_byte(in), slot = fuzz_byte(in), op = fuzz_byte(in);
    uint8_t size = fuzz_byte(in), changes = fuzz_byte(in);
    unsigned recv = how & 1;
    bool datagram = how & 2;
    uint32_t length = (how & 0x80 ? 256u : 1u) * size;
    uint8_t *w;

    if (!qp->page[recv]) {
        return;
    }
    w = (uint8_t *)host_ptr(host, qp->page[recv]) +
        slot * qp->stride[recv] % EHCA_PAGE_SIZE;
    memset(w, 0, 112);
    ib_put64(w + EHCA_WQE_ID, slot);
    w[EHCA_WQE_NR_SGES] = 1 + (op >> 7);
    if (recv) {
        put_sge(w + EHCA_WQE_SGES, lab->mrs[h], size, length);
        put_sge(w + EHCA_WQE_SGES + 16, lab->mrs[h], 0, length);
    } else if (datagram) {
        uint8_t *av = w + EHCA_WQE_AV;
        bool group = how & 4;

        w[EHCA_WQE_OPTYPE] = EHCA_WQE_OPTYPE_SEND;
        w[EHCA_WQE_FLAGS] = op & 0xF0;
        ib_put32(w + EHCA_WQE_DEST_QPN,
                 (group ? IB_QPN_MULTICAST : how & 8 ? 1u + (op & 3)
                  : pick_qp(lab, !h, op)->qpn) << EHCA_WQE_DEST_QPN_SHIFT);
        ib_put32(w + EHCA_WQE_QKEY, IB_QKEY_QP1);
        ib_put16(av + EHCA_AV_DLID, group ? 0xC000 + (op & 1)
                 : host_pair_lid(how & 16 ? h : !h, 1));
        av[EHCA_AV_LNH] = group || how & 32 ? EHCA_AV_LNH_GRH : 0;
        av[EHCA_AV_PMTU] = EHCA_MTU_2048;
        ib_put64(av + EHCA_AV_DGID, GROUP);
        ib_put64(av + EHCA_AV_DGID + 8, op >> 1 & 1);
        put_sge(w + EHCA_WQE_UD_SGES, lab->mrs[h], size, length);
    } else {
        w[EHCA_WQE_OPTYPE] = ops[op & 7];
        w[EHCA_WQE_FLAGS] = op & 0xF0;
        ib_put64(w + EHCA_WQE_RADDR, lab->mrs[!h]->iova + (size & 0xF8));
        ib_put32(w + EHCA_WQE_RKEY, lab->mrs[!h]->rkey);
        put_sge(w + EHCA_WQE_SGES, lab->mrs[h], size, how & 64 ? 8 : length);
        put_sge(w + EHCA_WQE_SGES + 16, lab->mrs[h], 0, length);
    }
    if (changes & 1) {
        w[fuzz_byte(in) % 112] = fuzz_byte(in);
    }
    if (changes & 2) {
        /* All WQEs of the page like this one. */
        uint8_t *page = host_ptr(host, qp->page[recv]);

        for (unsigned i = 0; i < EHCA_PAGE_SIZE; i += qp->stride[recv]) {
            memmove(page + i, w, 112);
        }
    }
    ehca_mmio_write(host->adapter, qp->regs - HOST_GALPA_BASE +
                    (recv ? EHCA_QPX_RQA : EHCA_QPX_SQA), changes >> 2);
}

/* What a guest's interrupt handler does: some of it. */
static void do_cq(Lab *lab, unsigned h, FuzzInput *in)
{
    Host *host = lab->pair->hosts[h];
    HostCq *cq = lab->cqs[h];
    uint64_t out[9];
    uint8_t how = fuzz_byte(in);
    HostEqe eqe;
    HostCqe cqe;

    if (how & 1) {
        host_cq_arm(cq, how & 2);
    }
    if (how & 4) {
        checked_call(lab, h, EHCA_H_QUERY_INT_STATE,
                     (uint64_t[9]) { host->config.handle,
                                     host->config.ist_eq }, out);
    }
    if (how & 8) {
        checked_call(lab, h, EHCA_H_ERROR_DATA,
                     (uint64_t[9]) { host->config.handle,
                                     how & 16 ? cq->handle
                                     : pick_qp(lab, h, how >> 5)->handle,
                                     host->block }, out);
    }
    if (lab->dead[h]) {
        return;
    }
    for (unsigned n = how >> 5; n-- && host_next_eqe(host, &eqe);) {
    }
    for (unsigned n = how >> 5; n-- && host_cq_poll(cq, &cqe, 1);) {
    }
}

/* Bytes of the input into a queue page, the control block, or the arena. */
static void do_scribble(Lab *lab, unsigned h, FuzzInput *in)
{
    Host *host = lab->pair->hosts[h];
    uint8_t where = fuzz_byte(in), at = fuzz_byte(in);
    uint8_t len = fuzz_byte(in) & 0x7F;
    const HostRing *ring = where & 1 ? &lab->qps[h]->sq : &lab->qps[h]->rq;
    uint8_t *p;

    switch (where >> 1 & 3) {
    case 0:
        p = host_ptr(host, ring->pages[at % ring->num_pages]) +
            (at >> 4) * 128;
        break;
    case 1:
        p = host_block(host);
        break;
    default:
        p = (uint8_t *)host_ptr(host, arena_page(lab, h, where >> 3)) +
            (at & 0x1F) * 120;
        break;
    }
    for (unsigned i = 0; i < len; i++) {
        p[i] = fuzz_byte(in);
    }
}

/* ------------------------------------------------------------------ */
/* Packets, time                                                      */
/* ------------------------------------------------------------------ */

static uint32_t query(Lab *lab, unsigned h, FuzzQp *qp, unsigned offset)
{
    Host *host = lab->pair->hosts[h];
    uint64_t out[9];

    memset(host_block(host), 0, EHCA_CB_SIZE);
    checked_call(lab, h, EHCA_H_QUERY_QP,
                 (uint64_t[9]) { host->config.handle, qp->handle,
                                 host->block }, out);
    return ib_get32(host_block(host) + offset);
}

/* A packet whose headers are right as far as the input does not say. */
static void do_packet(Lab *lab, unsigned h, FuzzInput *in)
{
    uint8_t packet[IB_PACKET_MAX];
    uint8_t flags = fuzz_byte(in), more = fuzz_byte(in);
    uint8_t opcode = fuzz_byte(in), to = fuzz_byte(in);
    int8_t psn = fuzz_byte(in);
    uint8_t size = fuzz_byte(in), syndrome = fuzz_byte(in);
    unsigned rail = flags & 1, op = opcode & IB_OP_MASK;
    FuzzQp *qp = pick_qp(lab, h, to);
    bool response = op >= IB_OP_READ_RESP_FIRST && op <= IB_OP_ATOMIC_ACK;
    IbPacket pkt = {
        .lrh = {
            .slid = host_pair_lid(!h, rail + 1),
            .dlid = more & 1 ? 0xC000 + (to & 1) : host_pair_lid(h, rail + 1),
            .vl = flags & 2 ? 15 : 0,
        },
        .has_grh = flags & 4,
        .bth = {
            .opcode = opcode, .migreq = flags & 8, .pkey = 0xFFFF,
            .solicited = flags & 16, .ack_request = more & 2,
            .dest_qpn = more & 1 ? IB_QPN_MULTICAST
                        : flags & 32 ? to & 7 : qp->qpn,
            .psn = (query(lab, h, qp, response ? EHCA_QPCB_SEND_PSN
                                               : EHCA_QPCB_RECEIVE_PSN) +
                    psn) & IB_PSN_MASK,
        },
        .reth = {
            .va = lab->mrs[h]->iova + (size & 0xF8),
            .rkey = lab->mrs[h]->rkey,
            .length = more & 4 ? size << 4 : size << 8,
        },
        .atomic = { .swap_add = 1 },
        .aeth = { .syndrome = syndrome },
        .deth = { .qkey = 0x80010000, .src_qpn = 1 },
    };
    size_t payload, header_len, len;

    /* Mostly what the QP's MTU and the opcode call for. */
    payload = more & 8 ? ib_mtu_bytes(query(lab, h, qp, EHCA_QPCB_PATH_MTU))
        : more & 16 ? 256 : size;
    if (op == IB_OP_READ_REQUEST || op >= IB_OP_ACK) {
        payload = more & 32 ? payload : 0;
    }
    ib_put64(pkt.grh.dgid, GROUP);
    pkt.grh.dgid[15] = to >> 1 & 1;
    pkt.atomic.va = pkt.reth.va;
    pkt.atomic.rkey = pkt.reth.rkey;
    header_len = ib_packet_put_headers(packet, &pkt, payload);
    memset(packet + header_len, 0, payload);
    for (unsigned i = 0; flags & 128 && i < 32 && i < payload; i++) {
        packet[header_len + i] = fuzz_byte(in);
    }
    len = ib_packet_finish(packet, header_len, payload);
    if (more & 64) {
        packet[fuzz_byte(in) % header_len] = fuzz_byte(in);
        host_packet_seal(packet, len);
    }
    if (more & 128) {
        len = (len & ~(size_t)3) - fuzz_byte(in) % len;
    }
    if (len) {
        host_cable_inject(lab->pair->cables[rail], h, packet, len);
    }
}

/* A management datagram that the firmware's agents may like. */
static void do_mad(Lab *lab, unsigned h, FuzzInput *in)
{
    static const uint8_t classes[] = { 0x81, 0x01, 0x04, 0x07 };
    static const uint8_t methods[] = { 1, 2, 3, 5, 6, 7, 0x81, 0x82 };
    static const uint8_t attributes[] = {
        0x10, 0x11, 0x12, 0x14, 0x15, 0x16, 0x17, 0x18, 0x20, 0x01, 0x1D,
    };
    uint8_t packet[IB_PACKET_MAX], mad[IB_MAD_LEN] = { 1 };
    uint8_t what = fuzz_byte(in), attribute = fuzz_byte(in);
    uint8_t modifier = fuzz_byte(in), len = fuzz_byte(in);
    unsigned rail = what >> 7;
    bool smp = !(what & 2);
    IbMadAddress to = {
        .slid = smp ? IB_LID_PERMISSIVE : host_pair_lid(!h, rail + 1),
        .dlid = smp ? IB_LID_PERMISSIVE : host_pair_lid(h, rail + 1),
        .vl = smp ? IB_VL_MANAGEMENT : 0, .pkey = IB_PKEY_DEFAULT,
        .dest_qpn = smp ? 0 : what & 4 ? 1 : 2 + 2 * rail,
        .src_qpn = smp ? 0 : 1,
        .qkey = what & 8 ? IB_QKEY_QP1 + modifier : smp ? 0 : IB_QKEY_QP1,
    };

    mad[1] = classes[what & 3];
    mad[2] = 1;
    mad[3] = methods[attribute >> 4 & 7];
    mad[17] = attributes[(attribute & 15) % sizeof(attributes)];
    mad[23] = modifier;
    memset(mad + 32, 0xFF, 4);         /* DrSLID, DrDLID: permissive */
    for (unsigned i = 0; i < len; i++) {
        mad[64 + i % (IB_MAD_LEN - 64)] = fuzz_byte(in);
    }
    host_cable_inject(lab->pair->cables[rail], h, packet,
                      ib_mad_packet(packet, &to, mad));
}

static void do_run(Lab *lab, FuzzInput *in)
{
    static const int64_t spans[] = {
        IB_USEC, 50 * IB_USEC, IB_MSEC, 20 * IB_MSEC,
    };
    uint8_t how = fuzz_byte(in);
    HostCqe cqe;

    if (how & 4) {
        host_cable_set(lab->pair->cables[how & 1], how & 2);
        if (how & 2 && !lab->dead[0] && !lab->dead[1]) {
            /* Ports stay where the SM left them but for the cable's. */
            for (unsigned h = 0; h < 2; h++) {
                host_cable_activate(lab->pair->cables[how & 1], h,
                                    host_pair_lid(h, 1 + (how & 1)), 0);
            }
        }
    }
    for (unsigned h = 0; how & 8 && h < 2; h++) {
        while (!lab->dead[h] && host_cq_poll(lab->cqs[h], &cqe, 1)) {
        }
    }
    if (how & 16) {
        /* In the middle of things: a few packets' worth and no more. */
        host_run_budget(lab->pair->hosts[how & 1], 1 + (how >> 5 & 3));
        return;
    }
    host_pair_run(lab->pair, spans[how >> 6], never, NULL);
}

static void do_reset(Lab *lab, unsigned h, FuzzInput *in)
{
    /* Seldom: little is left to play with afterwards. */
    if (fuzz_byte(in) == 0xA5) {
        ehca_reset(lab->pair->hosts[h]->adapter);
        lab->dead[h] = true;
    }
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
        case DO_CREATE:
            do_create(&lab, h, &in);
            break;
        case DO_MODIFY:
            do_modify(&lab, h, &in);
            break;
        case DO_WQE:
            do_wqe(&lab, h, &in);
            break;
        case DO_MCAST:
            do_mcast(&lab, h, &in);
            break;
        case DO_RESET:
            do_reset(&lab, h, &in);
            break;
        case DO_CQ:
            do_cq(&lab, h, &in);
            break;
        case DO_MAD:
            do_mad(&lab, h, &in);
            break;
        default:
            do_run(&lab, &in);
            break;
        }
        check_books(&lab, h);
    }
    host_pair_run(lab.pair, IB_MSEC, never, NULL);
    for (unsigned h = 0; h < 2; h++) {
        char *report = ehca_report(lab.pair->hosts[h]->adapter);

        check_books(&lab, h);
        FUZZ_ASSERT(report && report[0] == '{');
        free(report);
    }
    host_pair_free(lab.pair);
    return 0;
}

static size_t add(uint8_t *buf, size_t n, const uint8_t *bytes, size_t len)
{
    memcpy(buf + n, bytes, len);
    return n + len;
}

#define ADD(...) \
    n = add(buf, n, (const uint8_t[]) { __VA_ARGS__ }, \
            sizeof((const uint8_t[]) { __VA_ARGS__ }))

/* A step's first byte: the step, and the host in its top bit. */
enum { HOST_1 = (128 + DO_KINDS - 1) / DO_KINDS * DO_KINDS };

/* Programs that do something sensible: send, read, migrate, share, ask. */
size_t fuzz_seed(unsigned index, uint8_t *buf)
{
    size_t n = 0;

    if (index >= 16) {
        return 0;
    }
    buf[n++] = index & 1;
    if (index < 8) {
        for (uint8_t i = 0; i < 4; i++) {
            uint8_t op = (index + i) % 6;

            /* Receive WQE at host 1, send WQE at host 0, time, a packet. */
            ADD(DO_WQE + HOST_1, 0, 0x81, i, 0, 4, 4);
            ADD(DO_WQE, 0, 0x80, i, op | 0x80, 1 + i,
                index == 7 ? 0xFE : 4);
            ADD(DO_CQ, (uint8_t)(1 | i << 1 | index << 4));
            ADD(DO_MAD + HOST_1, (uint8_t)(i | index << 4),
                (uint8_t)(i << 4 | index), 1, 0);
            ADD(DO_RUN, (uint8_t)(i << 6 | 8));
            ADD(DO_PACKET + HOST_1, 8, 8, (uint8_t)(index * 3 + i), 0, 0, 4,
                31);
            ADD(DO_PACKET, 0, 2, IB_OP_ACK, 0, 0xFF, 0, 31);
            /* SQD, RTS; pull and put back the cable. */
            ADD(DO_MODIFY, 0, (uint8_t)(9 + i), 2, DO_MODIFY, 0, 7, 0);
            ADD(DO_RUN, (uint8_t)(4 | (i & 1) << 1), DO_RUN, 0xC8);
            ADD(DO_MODIFY, 0, 8, 1, DO_MODIFY + HOST_1, 0, 8, 1);
        }
        return n;
    }
    /* SRQ and a base QP, a UD QP, a loop; each brought up and used. */
    for (uint8_t shape = 2; shape < 6; shape++) {
        uint8_t qp = shape;            /* the order they are made in */
        uint8_t to = shape == 2 || shape == 5;

        ADD(DO_CREATE, shape, 0x48, (uint8_t)(shape * 8), 0);
        ADD(DO_MODIFY, qp, to, 3);
        ADD(DO_MODIFY, qp, (uint8_t)(to || shape == 3 ? 2 : 3 | 0x40), 3);
        ADD(DO_MODIFY, qp, (uint8_t)(to ? 4 : 5), 3);
        ADD(DO_MCAST, (uint8_t)(1 | qp << 4));
        ADD(DO_WQE, qp, 1, 0, 0, 200, 4);
        ADD(DO_WQE, qp, (uint8_t)(to ? 2 | (index & 4) | (index & 1) << 4 : 0),
            0, 0x80, 64, 4);
        ADD(DO_RUN, 0x48);
        ADD(DO_PACKET, (uint8_t)(index & 1 ? 4 : 0), (uint8_t)(8 | (index & 1)),
            (uint8_t)(to ? 0x64 : 4), qp, 0, 8, 0);
        ADD(DO_RUN, 8, DO_MODIFY, qp, (uint8_t)(9 + index % 4), 0);
    }
    return n;
}
