/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Hypervisor calls (interface sections 4 to 9).
 *
 * Theory of operation: one table names each call, says what its registers
 * hold, and gives the handler.  The door, ehca_hcall(), checks the adapter's
 * handle and every register by its kind before the handler sees it, so that
 * a handler only has to look at meaning.  Every refusal comes with a sentence
 * for the guest's log.
 *
 * Codes of the door:
 *   other adapter          H_ADAPTER_PARM
 *   stale or wrong handle  H_RH_PARM
 *   port                   H_PORT_PARM
 *   control block          H_PARAMETER (not 4 KiB aligned, not RAM)
 *   number not ours        H_FUNCTION
 * Calls of the interface that no driver uses and that are not implemented
 * (trace buffers, H_RESIZE_MR, RPTs, H_GET_HCA_INFO): H_FUNCTION.
 * None of the calls ever returns long busy (4.1).
 */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

#define MAX_ARGS 8                     /* r5 .. r12 */

/* What a register holds. */
typedef enum Arg {
    ARG_ANY,                           /* the handler knows, or unused */
    ARG_QP,
    ARG_EQ_OR_NEQ,
    ARG_NEQ,
    ARG_MR,
    ARG_MW,
    ARG_QP_OR_CQ,
    ARG_RESOURCE,
    ARG_PORT,
    ARG_BLOCK,
} Arg;

typedef struct Hcall {
    uint64_t number;
    const char *name;
    int64_t (*handler)(EhcaCall *call);
    Arg args[MAX_ARGS];
} Hcall;

/* ------------------------------------------------------------------ */
/* H_ALLOC_RESOURCE, H_FREE_RESOURCE, H_REGISTER_RPAGES               */
/* ------------------------------------------------------------------ */

static uint32_t pages_for(uint64_t entries, unsigned entry_size)
{
    return (entries * entry_size + EHCA_PAGE_SIZE - 1) / EHCA_PAGE_SIZE;
}

static int64_t alloc_eq(EhcaCall *call)
{
    EhcaAdapter *a = call->a;
    bool is_neq = call->in[1] & EHCA_ALLOC_EQ_NEQ;
    EhcaEq *eq = is_neq ? &a->neq : &a->eq;
    uint64_t entries = call->in[2] & 0xFFFFFFFFu;
    EhcaQueue queue;

    if (eq->kind != EHCA_KIND_NONE) {
        ehca_guest_error(a, "H_ALLOC_RESOURCE: the adapter has one %s and it "
            "is in use; free it first", is_neq ? "NEQ" : "EQ");
        return EHCA_RC_NOT_ENOUGH_RESOURCES;
    }
    if (entries == 0 || entries > EHCA_MAX_EQES) {
        ehca_guest_error(a, "H_ALLOC_RESOURCE: %llu entries for an event "
            "queue; 1 to %u are possible", (unsigned long long)entries,
            EHCA_MAX_EQES);
        return EHCA_RC_EQ_PARM;
    }
    if (!ehca_queue_alloc(a, &queue, pages_for(entries, EHCA_EQE_SIZE),
                          EHCA_EQE_SIZE)) {
        return EHCA_RC_NOT_ENOUGH_RESOURCES;
    }
    eq->kind = is_neq ? EHCA_KIND_NEQ : EHCA_KIND_EQ;
    eq->handle = ehca_handle(eq->kind, ++eq->generation, 0);
    eq->queue = queue;
    eq->produced = eq->produced_at_ack = eq->overflows = 0;
    atomic_store(&eq->consumed, 0);
    eq->users = 0;
    call->out[EHCA_OUT_HANDLE] = eq->handle;
    call->out[EHCA_OUT_ENTRIES] = queue.entries;
    call->out[EHCA_OUT_PAGES] = queue.num_pages;
    call->out[EHCA_OUT_EQ_IST] = is_neq ? a->config.ist_neq
                                        : a->config.ist_eq;
    return EHCA_RC_SUCCESS;
}

static int64_t alloc_cq(EhcaCall *call)
{
    EhcaAdapter *a = call->a;
    EhcaEq *eq = ehca_find_eq(a, call->in[2]);
    uint64_t entries = call->in[4] & 0xFFFFFFFFu;
    uint32_t generation;
    EhcaCq *cq;

    if (!eq || eq->kind != EHCA_KIND_EQ) {
        ehca_guest_error(a, "H_ALLOC_RESOURCE CQ: 0x%llx is no EQ",
                         (unsigned long long)call->in[2]);
        return EHCA_RC_EQ_PARM;
    }
    if (entries == 0 || entries > EHCA_MAX_CQES + EHCA_CQ_SPARE_ENTRIES) {
        ehca_guest_error(a, "H_ALLOC_RESOURCE CQ: %llu entries; 1 to %u are "
            "possible", (unsigned long long)entries,
            EHCA_MAX_CQES + EHCA_CQ_SPARE_ENTRIES);
        return EHCA_RC_PARAMETER;
    }
    cq = calloc(1, sizeof(*cq));
    if (!cq) {
        return EHCA_RC_NO_MEM;
    }
    if (!ehca_queue_alloc(a, &cq->queue, pages_for(entries, EHCA_CQE_SIZE),
                          EHCA_CQE_SIZE)) {
        free(cq);
        return EHCA_RC_NOT_ENOUGH_RESOURCES;
    }
    if (!ehca_slots_take(&a->cqs, cq, &cq->slot, &generation)) {
        ehca_guest_error(a, "CQ: all %u are in use", a->config.max_cq);
        ehca_queue_free(a, &cq->queue);
        free(cq);
        return EHCA_RC_NOT_ENOUGH_RESOURCES;
    }
    cq->handle = ehca_handle(EHCA_KIND_CQ, generation, cq->slot);
    cq->token = call->in[3];
    cq->toggle = true;
    cq->regs = &a->cq_regs[cq->slot];
    atomic_store(&cq->regs->flags, 0);
    atomic_store(&cq->regs->used, 0);
    atomic_store(&cq->regs->eqe_after, 0);
    atomic_store(&cq->regs->entries, cq->queue.entries);
    eq->users++;
    call->out[EHCA_OUT_HANDLE] = cq->handle;
    call->out[EHCA_OUT_ENTRIES] = cq->queue.entries;
    call->out[EHCA_OUT_PAGES] = cq->queue.num_pages;
    call->out[EHCA_OUT_CQ_REGS] = a->config.galpa_base +
        ((uint64_t)a->config.max_qp + cq->slot) * EHCA_REGS_SIZE;
    call->out[EHCA_OUT_CQ_USER_REGS] = call->out[EHCA_OUT_CQ_REGS];
    return EHCA_RC_SUCCESS;
}

static int64_t alloc_mr(EhcaCall *call)
{
    EhcaMr *mr;
    int64_t rc = ehca_mr_alloc(call->a, call->in[2], call->in[3],
                               call->in[4] >> EHCA_MR_ACCESS_SHIFT,
                               call->in[5], &mr);

    if (rc == EHCA_RC_SUCCESS) {
        call->out[EHCA_OUT_HANDLE] = mr->handle;
        call->out[EHCA_OUT_LKEY] = mr->key;
        call->out[EHCA_OUT_RKEY] = mr->key;
    }
    return rc;
}

static int64_t alloc_mw(EhcaCall *call)
{
    EhcaMr *mr;
    int64_t rc = ehca_mw_alloc(call->a, call->in[2], &mr);

    if (rc == EHCA_RC_SUCCESS) {
        call->out[EHCA_OUT_HANDLE] = mr->handle;
        call->out[EHCA_OUT_RKEY] = mr->key;
    }
    return rc;
}

static int64_t h_alloc_resource(EhcaCall *call)
{
    unsigned type = call->in[1] & EHCA_RT_MASK;

    switch (type) {
    case EHCA_RT_QP:
        return ehca_qp_alloc(call);
    case EHCA_RT_CQ:
        return alloc_cq(call);
    case EHCA_RT_EQ:
        return alloc_eq(call);
    case EHCA_RT_MR:
        return alloc_mr(call);
    case EHCA_RT_MW:
        return alloc_mw(call);
    default:
        ehca_guest_error(call->a, "H_ALLOC_RESOURCE: resource type %u is none "
                         "of QP 1, CQ 2, EQ 3, MR 5, MW 6", type);
        return EHCA_RC_RT_PARM;
    }
}

static int64_t in_use(EhcaCall *call, const char *what, uint32_t users)
{
    ehca_guest_error(call->a, "H_FREE_RESOURCE: %s 0x%llx is used by %u "
        "others; free those first", what, (unsigned long long)call->in[1],
        users);
    return EHCA_RC_RESOURCE;
}

static int64_t free_cq(EhcaCall *call, EhcaCq *cq)
{
    EhcaAdapter *a = call->a;

    if (cq->users) {
        return in_use(call, "CQ", cq->users);
    }
    if (cq->error && !(call->in[2] & 1)) {
        return EHCA_RC_R_STATE;        /* section 6: again with force */
    }
    atomic_store(&cq->regs->entries, 0);
    a->eq.users--;
    ehca_queue_free(a, &cq->queue);
    ehca_slots_give(&a->cqs, cq->slot);
    free(cq);
    return EHCA_RC_SUCCESS;
}

static int64_t h_free_resource(EhcaCall *call)
{
    EhcaAdapter *a = call->a;

    if (call->qp) {
        if (call->qp->srq_users) {
            return in_use(call, "SRQ", call->qp->srq_users);
        }
        ehca_recv_flush(call->qp);
        ehca_qp_destroy(call->qp);
        return EHCA_RC_SUCCESS;
    }
    if (call->cq) {
        return free_cq(call, call->cq);
    }
    if (call->mr) {
        ehca_mr_destroy(a, call->mr);
        return EHCA_RC_SUCCESS;
    }
    if (call->eq->users) {
        return in_use(call, ehca_kind_name(call->eq->kind), call->eq->users);
    }
    ehca_queue_free(a, &call->eq->queue);
    call->eq->kind = EHCA_KIND_NONE;
    return EHCA_RC_SUCCESS;
}

/* One 4 KiB queue page. */
static int64_t register_queue_page(EhcaCall *call, EhcaQueue *queue,
                                   const char *what)
{
    EhcaAdapter *a = call->a;
    uint64_t addr = call->in[3];

    if (call->in[4] != 1) {
        ehca_guest_error(a, "H_REGISTER_RPAGES: %llu pages of a %s; queue "
            "pages come one by one", (unsigned long long)call->in[4], what);
        return EHCA_RC_PARAMETER;
    }
    if (queue->registered == queue->num_pages) {
        ehca_guest_error(a, "H_REGISTER_RPAGES: %s 0x%llx has all its %u "
            "pages", what, (unsigned long long)call->in[2],
            queue->num_pages);
        return EHCA_RC_R_STATE;
    }
    if (addr & (EHCA_PAGE_SIZE - 1)) {
        ehca_guest_error(a, "H_REGISTER_RPAGES: page 0x%llx is not 4 KiB "
            "aligned", (unsigned long long)addr);
        return EHCA_RC_PARAMETER;
    }
    if (!a->ops.dma_valid(a->opaque, addr, EHCA_PAGE_SIZE)) {
        ehca_guest_error(a, "H_REGISTER_RPAGES: page 0x%llx is not RAM",
            (unsigned long long)addr);
        return EHCA_RC_MEM_PARM;
    }
    queue->pages[queue->registered++] = addr;
    return queue->registered == queue->num_pages ? EHCA_RC_SUCCESS
                                                 : EHCA_RC_PAGE_REGISTERED;
}

/* Send queue first; only the very last page answers 0 (section 7). */
static int64_t register_qp_page(EhcaCall *call, unsigned queue_type)
{
    EhcaQp *qp = call->qp;
    EhcaQueue *queue = queue_type == EHCA_RPAGES_RQ ? &qp->rq : &qp->sq;
    int64_t rc;

    if (!queue->num_pages) {
        ehca_guest_error(call->a, "H_REGISTER_RPAGES: QP 0x%x has no %s queue",
            qp->qpn, queue_type == EHCA_RPAGES_RQ ? "receive" : "send");
        return EHCA_RC_PARAMETER;
    }
    if (queue_type == EHCA_RPAGES_RQ &&
        qp->sq.registered != qp->sq.num_pages) {
        ehca_guest_error(call->a, "H_REGISTER_RPAGES: QP 0x%x: the send "
            "queue's pages come before the receive queue's", qp->qpn);
        return EHCA_RC_R_STATE;
    }
    rc = register_queue_page(call, queue, "QP");
    if (rc == EHCA_RC_SUCCESS && (qp->sq.registered != qp->sq.num_pages ||
                                  qp->rq.registered != qp->rq.num_pages)) {
        return EHCA_RC_PAGE_REGISTERED;
    }
    return rc;
}

static int64_t h_register_rpages(EhcaCall *call)
{
    unsigned queue_type = call->in[1] & EHCA_RPAGES_QTYPE_MASK;
    unsigned code = call->in[1] >> EHCA_RPAGES_PGSIZE_SHIFT & 0xFF;

    if (queue_type > EHCA_RPAGES_RQ || (queue_type && !call->qp)) {
        ehca_guest_error(call->a, "H_REGISTER_RPAGES: queue type %u for a %s",
            queue_type, ehca_kind_name(ehca_handle_kind(call->in[2])));
        return EHCA_RC_PARAMETER;
    }
    if (call->mr) {
        return ehca_mr_register_pages(call->a, call->mr, code, call->in[3],
                                      call->in[4]);
    }
    if (code) {
        ehca_guest_error(call->a, "H_REGISTER_RPAGES: page size code %u; "
            "queues have pages of 4 KiB, code 0", code);
        return EHCA_RC_PARAMETER;
    }
    if (call->qp) {
        return register_qp_page(call, queue_type);
    }
    return register_queue_page(call, call->cq ? &call->cq->queue
                                              : &call->eq->queue,
                               call->cq ? "CQ" : "EQ");
}

/* ------------------------------------------------------------------ */
/* H_QUERY_HCA                                                        */
/* ------------------------------------------------------------------ */

static int64_t h_query_hca(EhcaCall *call)
{
    EhcaAdapter *a = call->a;
    const EhcaConfig *c = &a->config;
    uint32_t eqs = (a->eq.kind != EHCA_KIND_NONE) +
                   (a->neq.kind != EHCA_KIND_NONE);
    const struct { uint16_t offset; uint32_t value; } words[] = {
        { EHCA_HCACB_CUR_QP, a->qps.used },
        { EHCA_HCACB_CUR_CQ, a->cqs.used },
        { EHCA_HCACB_CUR_EQ, eqs },
        { EHCA_HCACB_CUR_MR, a->mrs },
        { EHCA_HCACB_CUR_MW, a->mws },
        { EHCA_HCACB_CUR_QP_ATTACHED_MCAST_GRP, a->mcast_used },
        { EHCA_HCACB_MAX_QP, c->max_qp },
        { EHCA_HCACB_MAX_CQ, c->max_cq },
        { EHCA_HCACB_MAX_EQ, 2 },
        { EHCA_HCACB_MAX_MR, c->max_mr },
        { EHCA_HCACB_MAX_MW, c->max_mw },
        { EHCA_HCACB_MAX_MRWPTE, c->max_mr_pages > UINT32_MAX ? UINT32_MAX
                                               : (uint32_t)c->max_mr_pages },
        { EHCA_HCACB_MAX_MCAST_GRP, EHCA_MAX_MCAST },
        { EHCA_HCACB_MAX_TOTAL_MCAST_QP_ATTACH, EHCA_MAX_MCAST },
        { EHCA_HCACB_MAX_MCAST_QP_ATTACH, EHCA_MAX_MCAST },
        { EHCA_HCACB_MAX_PD, 0x7FFFFFFF },
        { EHCA_HCACB_MAX_AH, 0x7FFFFFFF },
        { EHCA_HCACB_MAX_CQE, EHCA_MAX_CQES },
        { EHCA_HCACB_MAX_WQES_WQ, EHCA_MAX_WQES },
        { EHCA_HCACB_MAX_PARTITIONS, EHCA_MAX_PKEYS },
        { EHCA_HCACB_MAX_RR_QP, EHCA_MAX_RD_RES },
        { EHCA_HCACB_MAX_RR_HCA, EHCA_MAX_RD_RES * c->max_qp },
        { EHCA_HCACB_MAX_ACT_WQS_QP, EHCA_MAX_RD_RES },
        { EHCA_HCACB_MAX_SGE, EHCA_MAX_SGES_REPORTED },
        { EHCA_HCACB_MAX_SGE_RD, EHCA_MAX_SGES_REPORTED },
        { EHCA_HCACB_MEMORY_PAGE_SIZE_SUPPORTED,
          EHCA_PGSIZE_SUP_4K | EHCA_PGSIZE_SUP_64K | EHCA_PGSIZE_SUP_1M },
        { EHCA_HCACB_LOCAL_CA_ACK_DELAY, EHCA_CA_ACK_DELAY },
        { EHCA_HCACB_NUM_PORTS, c->num_ports },
        { EHCA_HCACB_VENDOR_ID, EHCA_VENDOR_ID << EHCA_VENDOR_ID_SHIFT },
        { EHCA_HCACB_VENDOR_PART_ID, EHCA_PART_ID << EHCA_VENDOR_PART_SHIFT },
        { EHCA_HCACB_HW_VER, EHCA_HW_VERSION },
        { EHCA_HCACB_DATA_COUNTER_REGISTER_SIZE, 64 },
        { EHCA_HCACB_MAX_SHARED_RQ, c->max_qp },
        { EHCA_HCACB_MAX_ISNS_EQ, 1 },
        { EHCA_HCACB_MAX_NEQ, 1 },
    };
    uint8_t cb[EHCA_HCACB_SIZE] = { 0 };

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        ib_put32(cb + words[i].offset, words[i].value);
    }
    ib_put64(cb + EHCA_HCACB_MAX_MR_SIZE, INT64_MAX);
    ib_put64(cb + EHCA_HCACB_NODE_GUID, c->node_guid);
    ib_put64(cb + EHCA_HCACB_HCA_CAP_INDICATORS,
             EHCA_CAP_ATOMIC | EHCA_CAP_AUTO_PATH_MIG |
             EHCA_CAP_BAD_P_KEY_CTR | EHCA_CAP_INIT_TYPE |
             EHCA_CAP_PORT_ACTIVE_EVENT | EHCA_CAP_Q_KEY_VIOL_CTR |
             EHCA_CAP_SRQ | EHCA_CAP_H_ALLOC_RES_SYNC);
    a->ops.dma_write(a->opaque, call->block, cb, sizeof(cb));
    return EHCA_RC_SUCCESS;
}

/* ------------------------------------------------------------------ */
/* MRs, events, errors                                                */
/* ------------------------------------------------------------------ */

static int64_t h_query_mr(EhcaCall *call)
{
    EhcaMr *mr = call->mr;

    call->out[0] = mr->length;
    call->out[1] = mr->start;
    call->out[4] = (uint64_t)mr->access << 32;
    call->out[5] = (uint64_t)mr->key << 32 | mr->key;
    return EHCA_RC_SUCCESS;
}

static int64_t h_query_mw(EhcaCall *call)
{
    call->out[3] = call->mr->key;
    return EHCA_RC_SUCCESS;
}

static int64_t h_reregister_pmr(EhcaCall *call)
{
    int64_t rc = ehca_mr_reregister(call->a, call->mr, call->in[2],
                                    call->in[3], call->in[4] >> 32,
                                    call->in[4], call->in[5]);

    if (rc == EHCA_RC_SUCCESS) {
        call->out[1] = call->mr->start;
        call->out[2] = call->mr->key;
        call->out[3] = call->mr->key;
    }
    return rc;
}

static int64_t h_register_smr(EhcaCall *call)
{
    EhcaMr *mr;
    int64_t rc = ehca_mr_share(call->a, call->mr, call->in[2],
                               call->in[3] >> 32, call->in[4], &mr);

    if (rc == EHCA_RC_SUCCESS) {
        call->out[0] = mr->handle;
        call->out[2] = mr->key;
        call->out[3] = mr->key;
    }
    return rc;
}

static int64_t h_reset_events(EhcaCall *call)
{
    ehca_eq_ack(call->a, call->eq);
    return EHCA_RC_SUCCESS;
}

static int64_t h_query_int_state(EhcaCall *call)
{
    EhcaAdapter *a = call->a;
    uint64_t ist = call->in[1];

    if (ist == a->config.ist_eq) {
        ehca_eq_ack(a, &a->eq);
    } else if (ist != a->config.ist_neq) {
        ehca_guest_error(a, "H_QUERY_INT_STATE: 0x%llx is no interrupt source "
            "of this adapter", (unsigned long long)ist);
        return EHCA_RC_PARAMETER;
    }
    return EHCA_RC_SUCCESS;
}

static int64_t h_error_data(EhcaCall *call)
{
    enum { ERROR_DATA_LEN = 0x48, STATUS_OFFSET = 0x38, CAUSE_OFFSET = 0x40 };
    uint8_t block[ERROR_DATA_LEN] = { 0 };
    bool is_qp = call->qp;

    if (is_qp ? call->qp->attr.state != EHCA_QPS_ERR &&
                call->qp->attr.state != EHCA_QPS_SQE
              : !call->cq->error) {
        return EHCA_RC_R_STATE;
    }
    ib_put64(block + EHCA_ERRDATA_LENGTH, ERROR_DATA_LEN);
    ib_put64(block + EHCA_ERRDATA_RESOURCE, call->in[1]);
    ib_put64(block + EHCA_ERRDATA_TYPE,
             (uint64_t)(is_qp ? EHCA_ERRDATA_TYPE_QP : EHCA_ERRDATA_TYPE_CQ)
             << EHCA_ERRDATA_TYPE_SHIFT);
    if (is_qp) {
        ib_put64(block + EHCA_ERRDATA_AER, call->qp->aer);
        ib_put64(block + STATUS_OFFSET, call->qp->error_status);
        ib_put64(block + CAUSE_OFFSET, call->qp->error_cause);
    } else {
        ib_put64(block + EHCA_ERRDATA_AER, call->cq->lost);
    }
    call->a->ops.dma_write(call->a->opaque, call->block, block,
                           sizeof(block));
    return EHCA_RC_SUCCESS;
}

/* ------------------------------------------------------------------ */
/* The table and the door                                             */
/* ------------------------------------------------------------------ */

static const Hcall hcalls[] = {
    /* r5, r6, r7, ... */
    { EHCA_H_RESET_EVENTS, "H_RESET_EVENTS", h_reset_events, { ARG_NEQ } },
    { EHCA_H_ALLOC_RESOURCE, "H_ALLOC_RESOURCE", h_alloc_resource, { 0 } },
    { EHCA_H_FREE_RESOURCE, "H_FREE_RESOURCE", h_free_resource,
      { ARG_RESOURCE } },
    { EHCA_H_MODIFY_QP, "H_MODIFY_QP", ehca_qp_modify,
      { ARG_QP, ARG_ANY, ARG_BLOCK } },
    { EHCA_H_QUERY_QP, "H_QUERY_QP", ehca_qp_query, { ARG_QP, ARG_BLOCK } },
    { EHCA_H_REREGISTER_PMR, "H_REREGISTER_PMR", h_reregister_pmr,
      { ARG_MR } },
    { EHCA_H_REGISTER_SMR, "H_REGISTER_SMR", h_register_smr, { ARG_MR } },
    { EHCA_H_QUERY_MR, "H_QUERY_MR", h_query_mr, { ARG_MR } },
    { EHCA_H_QUERY_MW, "H_QUERY_MW", h_query_mw, { ARG_MW } },
    { EHCA_H_QUERY_HCA, "H_QUERY_HCA", h_query_hca, { ARG_BLOCK } },
    { EHCA_H_QUERY_PORT, "H_QUERY_PORT", ehca_port_query,
      { ARG_PORT, ARG_BLOCK } },
    { EHCA_H_MODIFY_PORT, "H_MODIFY_PORT", ehca_port_modify, { ARG_PORT } },
    { EHCA_H_DEFINE_AQP1, "H_DEFINE_AQP1", ehca_port_define_aqp1,
      { ARG_QP, ARG_PORT } },
    { EHCA_H_DEFINE_AQP0, "H_DEFINE_AQP0", ehca_port_define_aqp0,
      { ARG_QP, ARG_PORT } },
    { EHCA_H_ATTACH_MCQP, "H_ATTACH_MCQP", ehca_mcast_attach, { ARG_QP } },
    { EHCA_H_DETACH_MCQP, "H_DETACH_MCQP", ehca_mcast_detach, { ARG_QP } },
    { EHCA_H_REGISTER_RPAGES, "H_REGISTER_RPAGES", h_register_rpages,
      { ARG_ANY, ARG_RESOURCE } },
    { EHCA_H_DISABLE_AND_GETC, "H_DISABLE_AND_GETC",
      ehca_qp_disable_and_getc, { ARG_ANY, ARG_QP } },
    { EHCA_H_ERROR_DATA, "H_ERROR_DATA", h_error_data,
      { ARG_QP_OR_CQ, ARG_BLOCK } },
    { EHCA_H_GET_PERF_COUNT, "H_GET_PERF_COUNT", ehca_port_perf_count,
      { ARG_PORT, ARG_BLOCK } },
    { EHCA_H_QUERY_INT_STATE, "H_QUERY_INT_STATE", h_query_int_state, { 0 } },
};

static int64_t check_handle(EhcaCall *call, Arg arg, unsigned reg,
                            uint64_t value)
{
    EhcaAdapter *a = call->a;
    bool ok = false;

    call->qp = NULL;
    call->cq = NULL;
    call->eq = NULL;
    call->mr = NULL;
    switch (ehca_handle_kind(value)) {
    case EHCA_KIND_QP:
        call->qp = ehca_find_qp(a, value);
        ok = call->qp && (arg == ARG_QP || arg == ARG_QP_OR_CQ ||
                          arg == ARG_RESOURCE);
        break;
    case EHCA_KIND_CQ:
        call->cq = ehca_find_cq(a, value);
        ok = call->cq && (arg == ARG_QP_OR_CQ || arg == ARG_RESOURCE);
        break;
    case EHCA_KIND_EQ:
    case EHCA_KIND_NEQ:
        call->eq = ehca_find_eq(a, value);
        ok = call->eq && (arg == ARG_EQ_OR_NEQ || arg == ARG_RESOURCE ||
                          (arg == ARG_NEQ &&
                           call->eq->kind == EHCA_KIND_NEQ));
        break;
    case EHCA_KIND_MR:
    case EHCA_KIND_MW:
        call->mr = ehca_find_mr(a, value);
        ok = call->mr && (arg == ARG_RESOURCE ||
                          arg == (call->mr->kind == EHCA_KIND_MR ? ARG_MR
                                                                 : ARG_MW));
        break;
    default:
        break;
    }
    if (!ok) {
        ehca_guest_error(a, "%s: r%u = 0x%llx is not the handle of a resource "
            "of the kind wanted", call->name, reg, (unsigned long long)value);
        return EHCA_RC_RH_PARM;
    }
    return EHCA_RC_SUCCESS;
}

static int64_t check_arg(EhcaCall *call, Arg arg, unsigned reg,
                         uint64_t value)
{
    EhcaAdapter *a = call->a;

    switch (arg) {
    case ARG_ANY:
        return EHCA_RC_SUCCESS;
    case ARG_PORT:
        call->port = value <= EHCA_MAX_PORTS ? ehca_port(a, value) : NULL;
        if (!call->port) {
            ehca_guest_error(a, "%s: port %llu; the adapter has ports 1 to %u",
                call->name, (unsigned long long)value, a->config.num_ports);
            return EHCA_RC_PORT_PARM;
        }
        return EHCA_RC_SUCCESS;
    case ARG_BLOCK:
        if (value & (EHCA_CB_SIZE - 1) ||
            !a->ops.dma_valid(a->opaque, value, EHCA_CB_SIZE)) {
            ehca_guest_error(a, "%s: control block 0x%llx must be 4 KiB of "
                "RAM, 4 KiB aligned", call->name, (unsigned long long)value);
            return EHCA_RC_PARAMETER;
        }
        call->block = value;
        return EHCA_RC_SUCCESS;
    default:
        return check_handle(call, arg, reg, value);
    }
}

int64_t ehca_hcall(EhcaAdapter *a, uint64_t number, const uint64_t in[9],
                   uint64_t out[9])
{
    const Hcall *hcall = NULL;
    EhcaCall call = { .a = a, .in = in, .out = out };
    int64_t rc;

    memset(out, 0, 9 * sizeof(*out));
    for (size_t i = 0; i < sizeof(hcalls) / sizeof(hcalls[0]); i++) {
        if (hcalls[i].number == number) {
            hcall = &hcalls[i];
            break;
        }
    }
    if (!hcall) {
        ehca_guest_error(a, "hypervisor call 0x%llx is not implemented",
                         (unsigned long long)number);
        return EHCA_RC_FUNCTION;
    }
    call.name = hcall->name;
    if (in[0] != a->config.handle) {
        ehca_guest_error(a, "%s: r4 = 0x%llx is not this adapter's handle "
            "0x%llx", hcall->name, (unsigned long long)in[0],
            (unsigned long long)a->config.handle);
        return EHCA_RC_ADAPTER_PARM;
    }
    for (unsigned i = 0; i < MAX_ARGS; i++) {
        rc = check_arg(&call, hcall->args[i], 5 + i, in[1 + i]);
        if (rc != EHCA_RC_SUCCESS) {
            return rc;
        }
    }
    rc = hcall->handler(&call);
    if (rc < 0) {
        memset(out, 0, 9 * sizeof(*out));
    }
    return rc;
}
