/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * SMPs in flight.
 *
 * Theory of operation: requests wait in one queue; sm_pump() moves them into
 * free slots and sends them, so that at most opts.window are on their way.  A
 * slot's number is in its TID, with a random number that tells a late answer
 * to an earlier request from one to this, and that nobody who was asked
 * something can guess to answer for others; and the seed of this start of the
 * program that tells it from one to an earlier incarnation.  A slot's timer
 * sends again, opts.mad_retries times, then the request's function is called
 * with nothing, and so are those of all that waits for the same agent until the
 * next heavy sweep: who is silent, or wants to be, holds up the others for one
 * timeout, not for one each.  Requests to our own node never leave it: the SMA
 * answers on the spot.
 *
 * When queue and slots are empty the phase of the sweep is over and
 * sm_phase_done() asks for the next.  All of it runs from sm_pump()'s loop,
 * never from within itself, so stacks stay shallow.
 */
#include <string.h>

#include "sm/internal.h"

#define SLOT_BITS 6

_Static_assert(1u << SLOT_BITS == SM_MAX_WINDOW, "slot number fits the TID");

static void timed_out(void *opaque);

void sm_transport_init(Sm *sm)
{
    const guint32 seed[] = { sm->opts.seed, sm->opts.seed >> 32 };

    sm->queue_tail = &sm->queue_head;
    sm->rand = g_rand_new_with_seed_array(seed, G_N_ELEMENTS(seed));
    for (unsigned i = 0; i < SM_MAX_WINDOW; i++) {
        sm->slots[i].sm = sm;
        ib_timer_init(&sm->slots[i].timer, sm->clock, timed_out,
                      &sm->slots[i]);
    }
}

static void request_free(Sm *sm, SmRequest *request)
{
    request->next = sm->free_requests;
    sm->free_requests = request;
}

void sm_transport_abort(Sm *sm)
{
    for (unsigned i = 0; i < SM_MAX_WINDOW; i++) {
        SmSlot *slot = &sm->slots[i];

        if (slot->request) {
            ib_timer_cancel(&slot->timer);
            request_free(sm, slot->request);
            slot->request = NULL;
        }
    }
    while (sm->queue_head) {
        SmRequest *request = sm->queue_head;

        sm->queue_head = request->next;
        request_free(sm, request);
    }
    sm->queue_tail = &sm->queue_head;
    sm->queued = 0;
    sm->outstanding = 0;
}

void sm_transport_fini(Sm *sm)
{
    sm_transport_abort(sm);
    g_rand_free(sm->rand);
    while (sm->free_requests) {
        SmRequest *request = sm->free_requests;

        sm->free_requests = request->next;
        g_free(request);
    }
    for (unsigned i = 0; i < SM_MAX_WINDOW; i++) {
        ib_timer_fini(&sm->slots[i].timer);
    }
}

SmRequest *sm_request(Sm *sm, const SmPath *path, uint8_t method,
                      uint16_t attr, uint32_t mod, SmReplyFn *fn)
{
    SmRequest *request = sm->free_requests;

    if (request) {
        sm->free_requests = request->next;
        memset(request, 0, sizeof(*request));
    } else {
        request = g_new0(SmRequest, 1);
    }
    request->path = *path;
    request->method = method;
    request->attr = attr;
    request->mod = mod;
    request->fn = fn;
    *sm->queue_tail = request;
    sm->queue_tail = &request->next;
    sm->queued++;
    return request;
}

static void answer(Sm *sm, SmSlot *slot, const IbSmp *smp,
                   const uint8_t *data)
{
    SmRequest *request = slot->request;

    ib_timer_cancel(&slot->timer);
    slot->request = NULL;
    sm->outstanding--;
    request->fn(sm, request, smp, data);
    request_free(sm, request);
}

static void send_request(Sm *sm, SmSlot *slot)
{
    static const IbMadAddress permissive = {
        .slid = IB_LID_PERMISSIVE,
        .dlid = IB_LID_PERMISSIVE,
        .vl = IB_VL_MANAGEMENT,
        .pkey = IB_PKEY_DEFAULT,
    };
    SmRequest *request = slot->request;
    uint8_t mad[IB_MAD_LEN] = { 0 };
    IbSmp smp = {
        .hdr = {
            .base_version = 1,
            .mgmt_class = IB_CLASS_SM_DR,
            .class_version = 1,
            .method = request->method,
            .hop_count = request->path.hops,
            .tid = slot->tid,
            .attr_id = request->attr,
            .attr_mod = request->mod,
        },
        .m_key = sm->opts.m_key,
        .dr_slid = IB_LID_PERMISSIVE,
        .dr_dlid = IB_LID_PERMISSIVE,
    };

    ib_smp_pack(mad, &smp);
    memcpy(mad + IB_SMP_DATA_OFFSET, request->data, IB_SMP_DATA_LEN);
    memcpy(mad + IB_SMP_INITIAL_PATH_OFFSET, request->path.port,
           IB_SMP_MAX_HOPS);
    mad[IB_SMP_INITIAL_PATH_OFFSET] = 0;
    request->tries++;
    sm->act_count++;
    sm->stats.smps_sent++;
    if (ib_smp_send_directed(mad) < 0) {
        IbMadAddress to;
        unsigned out_port;

        if (ib_sma_receive(&sm->sma, 0, &permissive, mad, &out_port, &to) !=
            IB_SMA_REPLY || !sm_response(sm, mad)) {
            sm_logf(sm, SM_LOG_ERROR, "own SMA does not answer %s",
                    ib_attr_name(IB_CLASS_SM_LID, request->attr));
            answer(sm, slot, NULL, NULL);
        }
        return;
    }
    ib_timer_set(&slot->timer,
                 ib_clock_now(sm->clock) + sm->opts.mad_timeout_ns);
    sm_send_mad(sm, &permissive, mad);    /* not sent is as good as lost */
}

/* Who has to answer it: port 0 of a switch, a CA's port; NULL: not known. */
static SmPort *addressee(const SmRequest *request)
{
    SmNode *node = request->port ? request->port->node : request->node;

    if (!node || request->attr == IB_SM_NODE_INFO) {
        return NULL;
    }
    return node->sw ? &node->ports[0] : request->port;
}

static void timed_out(void *opaque)
{
    SmSlot *slot = opaque;
    Sm *sm = slot->sm;
    SmRequest *request = slot->request;
    SmPort *port = addressee(request);

    if (request->tries <= sm->opts.mad_retries) {
        send_request(sm, slot);
        return;
    }
    if (port) {
        port->silent = sm->sweep;
    }
    sm->stats.smp_timeouts++;
    sm_logf(sm, SM_LOG_DEBUG, "no answer to %s %s over %u hops",
            ib_method_name(request->method),
            ib_attr_name(IB_CLASS_SM_LID, request->attr),
            request->path.hops);
    answer(sm, slot, NULL, NULL);
    sm_pump(sm);
}

bool sm_response(Sm *sm, const uint8_t *mad)
{
    const uint16_t status_mask = (uint16_t)~IB_MAD_STATUS_DIRECTION;
    SmSlot *slot;
    IbSmp smp;

    ib_smp_unpack(&smp, mad);
    slot = &sm->slots[smp.hdr.tid & (SM_MAX_WINDOW - 1)];
    if (!slot->request || slot->tid != smp.hdr.tid ||
        smp.hdr.mgmt_class != IB_CLASS_SM_DR ||
        !(smp.hdr.status & IB_MAD_STATUS_DIRECTION) ||
        smp.hdr.attr_id != slot->request->attr ||
        smp.hdr.attr_mod != slot->request->mod ||
        smp.hdr.hop_count != slot->request->path.hops ||
        memcmp(mad + IB_SMP_INITIAL_PATH_OFFSET + 1,
               slot->request->path.port + 1, smp.hdr.hop_count) != 0) {
        return false;
    }
    if (smp.hdr.status & status_mask) {
        sm->stats.smp_bad_status++;
        sm_logf(sm, SM_LOG_DEBUG, "%s %s over %u hops: status 0x%04x",
                ib_method_name(slot->request->method),
                ib_attr_name(IB_CLASS_SM_LID, slot->request->attr),
                smp.hdr.hop_count, smp.hdr.status & status_mask);
        answer(sm, slot, NULL, NULL);
    } else {
        answer(sm, slot, &smp, mad + IB_SMP_DATA_OFFSET);
    }
    sm_pump(sm);
    return true;
}

static SmSlot *free_slot(Sm *sm)
{
    for (unsigned i = 0; i < sm->opts.window; i++) {
        if (!sm->slots[i].request) {
            return &sm->slots[i];
        }
    }
    return NULL;
}

void sm_pump(Sm *sm)
{
    if (sm->pumping) {
        return;
    }
    sm->pumping = true;
    for (;;) {
        while (sm->queue_head && sm->outstanding < sm->opts.window) {
            SmSlot *slot = free_slot(sm);
            SmRequest *request = sm->queue_head;
            const SmPort *port = addressee(request);

            sm->queue_head = request->next;
            sm->queued--;
            if (!sm->queue_head) {
                sm->queue_tail = &sm->queue_head;
            }
            if (port && port->silent == sm->sweep) {
                request->fn(sm, request, NULL, NULL);
                request_free(sm, request);
                continue;
            }
            request->next = NULL;
            slot->request = request;
            slot->tid = (uint64_t)sm->opts.seed << 32 |
                        (uint32_t)(g_rand_int(sm->rand) << SLOT_BITS) |
                        (slot - sm->slots);
            sm->outstanding++;
            send_request(sm, slot);
        }
        if (sm->outstanding || sm->phase == SM_PHASE_IDLE) {
            break;
        }
        sm_phase_done(sm);
    }
    sm->pumping = false;
}
