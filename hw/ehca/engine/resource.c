/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Resources: numbers, handles, and the queues in guest memory.
 *
 * A handle is kind << 56 | generation << 32 | slot.  The slot of a CQ is its
 * CQ number (low 16 bits, interface section 2).  A generation makes handles
 * and QP numbers of freed objects invalid for a long while.
 */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

#define HANDLE_KIND_SHIFT 56
#define HANDLE_GENERATION_SHIFT 32
#define HANDLE_GENERATION_MASK 0xFFFFFFu

const char *ehca_kind_name(EhcaKind kind)
{
    static const char *const names[EHCA_KINDS] = {
        [EHCA_KIND_NONE] = "nothing",
        [EHCA_KIND_QP] = "QP",
        [EHCA_KIND_CQ] = "CQ",
        [EHCA_KIND_EQ] = "EQ",
        [EHCA_KIND_NEQ] = "NEQ",
        [EHCA_KIND_MR] = "MR",
        [EHCA_KIND_MW] = "MW",
    };

    return (unsigned)kind < EHCA_KINDS ? names[kind] : "unknown";
}

bool ehca_slots_init(EhcaSlots *slots, uint32_t size)
{
    slots->objects = calloc(size, sizeof(*slots->objects));
    slots->generation = calloc(size, sizeof(*slots->generation));
    slots->free_queue = malloc(size * sizeof(*slots->free_queue));
    if (!slots->objects || !slots->generation || !slots->free_queue) {
        return false;
    }
    for (uint32_t i = 0; i < size; i++) {
        slots->free_queue[i] = i;
    }
    slots->size = size;
    slots->used = 0;
    slots->head = 0;
    return true;
}

void ehca_slots_fini(EhcaSlots *slots)
{
    free(slots->objects);
    free(slots->generation);
    free(slots->free_queue);
    memset(slots, 0, sizeof(*slots));
}

bool ehca_slots_take(EhcaSlots *slots, void *object, uint32_t *slot,
                     uint32_t *generation)
{
    uint32_t n;

    if (slots->used == slots->size) {
        return false;
    }
    n = slots->free_queue[slots->head];
    slots->head = (slots->head + 1) % slots->size;
    slots->used++;
    slots->objects[n] = object;
    slots->generation[n]++;
    *slot = n;
    *generation = slots->generation[n];
    return true;
}

void ehca_slots_give(EhcaSlots *slots, uint32_t slot)
{
    uint32_t tail = (slots->head + (slots->size - slots->used)) % slots->size;

    slots->objects[slot] = NULL;
    slots->free_queue[tail] = slot;
    slots->used--;
}

uint64_t ehca_handle(EhcaKind kind, uint32_t generation, uint32_t index)
{
    return (uint64_t)kind << HANDLE_KIND_SHIFT |
           (uint64_t)(generation & HANDLE_GENERATION_MASK) <<
           HANDLE_GENERATION_SHIFT | index;
}

EhcaKind ehca_handle_kind(uint64_t handle)
{
    uint64_t kind = handle >> HANDLE_KIND_SHIFT;

    return kind < EHCA_KINDS ? (EhcaKind)kind : EHCA_KIND_NONE;
}

static void *find(const EhcaSlots *slots, uint64_t handle)
{
    uint32_t index = (uint32_t)handle;

    return index < slots->size ? slots->objects[index] : NULL;
}

EhcaQp *ehca_find_qp(EhcaAdapter *a, uint64_t handle)
{
    EhcaQp *qp;

    if (ehca_handle_kind(handle) != EHCA_KIND_QP) {
        return NULL;
    }
    qp = find(&a->qps, handle);
    return qp && qp->handle == handle ? qp : NULL;
}

EhcaCq *ehca_find_cq(EhcaAdapter *a, uint64_t handle)
{
    EhcaCq *cq;

    if (ehca_handle_kind(handle) != EHCA_KIND_CQ) {
        return NULL;
    }
    cq = find(&a->cqs, handle);
    return cq && cq->handle == handle ? cq : NULL;
}

EhcaEq *ehca_find_eq(EhcaAdapter *a, uint64_t handle)
{
    if (a->eq.kind != EHCA_KIND_NONE && a->eq.handle == handle) {
        return &a->eq;
    }
    if (a->neq.kind != EHCA_KIND_NONE && a->neq.handle == handle) {
        return &a->neq;
    }
    return NULL;
}

EhcaMr *ehca_find_mr(EhcaAdapter *a, uint64_t handle)
{
    EhcaKind kind = ehca_handle_kind(handle);
    EhcaMr *mr;

    if (kind != EHCA_KIND_MR && kind != EHCA_KIND_MW) {
        return NULL;
    }
    mr = find(&a->keys, handle);
    return mr && mr->handle == handle ? mr : NULL;
}

EhcaQp *ehca_qp_by_number(EhcaAdapter *a, uint32_t qpn)
{
    uint32_t slot = (qpn & 0xFFFF) - EHCA_QPN_FIRST;
    EhcaQp *qp;

    if (slot >= a->qps.size) {
        return NULL;
    }
    qp = a->qps.objects[slot];
    return qp && qp->qpn == qpn ? qp : NULL;
}

bool ehca_queue_alloc(EhcaAdapter *a, EhcaQueue *queue, uint32_t pages,
                      uint32_t entry_size)
{
    memset(queue, 0, sizeof(*queue));
    if (pages > EHCA_MAX_QUEUE_PAGES - a->queue_pages) {
        return false;
    }
    queue->pages = calloc(pages, sizeof(*queue->pages));
    if (!queue->pages) {
        return false;
    }
    a->queue_pages += pages;
    queue->num_pages = pages;
    queue->entry_size = entry_size;
    queue->entries = pages * (EHCA_PAGE_SIZE / entry_size);
    return true;
}

void ehca_queue_free(EhcaAdapter *a, EhcaQueue *queue)
{
    a->queue_pages -= queue->num_pages;
    free(queue->pages);
    memset(queue, 0, sizeof(*queue));
}

uint64_t ehca_queue_addr(const EhcaQueue *queue, uint32_t index)
{
    uint64_t offset = (uint64_t)index * queue->entry_size;

    return queue->pages[offset / EHCA_PAGE_SIZE] + offset % EHCA_PAGE_SIZE;
}

/* Machine reset, or the end: in an order that leaves no dangling pointer. */
void ehca_free_all(EhcaAdapter *a)
{
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < a->qps.size; i++) {
            EhcaQp *qp = a->qps.objects[i];

            /* Users of an SRQ go before it. */
            if (qp && (pass == 1 || qp->kind != EHCA_QPKIND_SRQ)) {
                ehca_qp_destroy(qp);
            }
        }
    }
    for (uint32_t i = 0; i < a->cqs.size; i++) {
        EhcaCq *cq = a->cqs.objects[i];

        if (cq) {
            atomic_store(&cq->regs->entries, 0);
            ehca_queue_free(a, &cq->queue);
            ehca_slots_give(&a->cqs, i);
            free(cq);
        }
    }
    for (uint32_t i = 0; i < a->keys.size; i++) {
        if (a->keys.objects[i]) {
            ehca_mr_destroy(a, a->keys.objects[i]);
        }
    }
    ehca_queue_free(a, &a->eq.queue);
    ehca_queue_free(a, &a->neq.queue);
    a->eq.kind = EHCA_KIND_NONE;
    a->neq.kind = EHCA_KIND_NONE;
    a->eq.users = a->neq.users = 0;
}
