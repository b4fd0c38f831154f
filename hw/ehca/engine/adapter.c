/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The adapter: its life, its doorbells, and the loop that does its work.
 *
 * Theory of operation.
 *
 * Goals: no lock, no allocation and no waiting on the data path; whatever a
 * guest or a peer does costs bounded work and bounded memory; every packet,
 * to ourselves too, goes through the same code.
 *
 * Flow.  A doorbell (any thread) adds a count to the QP slot's doorbell and
 * pushes the slot on a lock-free stack.  ehca_run() then does, in this order,
 *   timers      -> QPs that must send again; the SMA's traps
 *   doorbells   -> counts become WQEs of the queues; send queues get a turn
 *   receive     -> port.c sorts packets: SMA, PMA, UD, requester, responder.
 *                  Receiving never needs room to send: what must be answered
 *                  is remembered in the QP (one acknowledgement, a bounded
 *                  table of READs) and the QP is put on the response list
 *   management  -> the firmware's own MADs
 *   responses   -> acknowledgements and READ responses: before requests, so
 *                  that answering does not wait behind asking
 *   requests    -> send queues, round robin, EHCA_TURN packets per turn
 * A QP that finds no room in a ring goes to that ring's wait list and comes
 * back when there is room: "no credits", nothing is lost.  As receiving goes
 * on meanwhile, two adapters that fill each other's rings cannot deadlock.
 * Whoever comes first takes the room that there is.  So while requests wait
 * for some, they and the responses come first in turn: a peer that reads all
 * the time does not silence us.
 *
 * Choices where the interface leaves them open (its section 24):
 *   - Send doorbells count in RESET, INIT and RTR and wait for RTS; receive
 *     doorbells in RESET are dropped (18.4).  In SQE and ERR both are dropped.
 *     A move to RESET forgets all counts.
 *   - A doorbell that announces more WQEs than the ring holds is cut to the
 *     ring's length; the guest is told (guest_error), the QP goes on.
 *   - A failing WQE gets one error CQE; flush CQEs are not written (20.1) but
 *     for one: the WQE of an SRQ that a QP had in work when it stopped, which
 *     no H_DISABLE_AND_GETC tells of.
 *   - A full CQ loses the CQE: CQ error event 0x07 once, the CQ takes nothing
 *     more, a QP that must complete into it goes to ERR with event 0x05.
 *     Event ids 0x06 and 0x08 are not used.
 *   - The EQ's consumer is known from cqx_ep stores and H_QUERY_INT_STATE, the
 *     NEQ's from H_RESET_EVENTS.  An event that would overwrite one not seen
 *     yet is dropped and counted; a completion event dropped so leaves its CQ
 *     armed.  A queue found full by such a call gets one more interrupt.
 *   - A move to ERR by software raises event 0x05 for SRQ base QPs only (24.6).
 *   - A CQE that arrives while its CQ is armed and event-pending keeps the
 *     arm (14.3).  Error completions count as solicited.
 *   - Special QPs may be modified whatever the port's state.
 *   - lkey and rkey of an MR are one number; an object's number is part of its
 *     handle, with a generation, so stale ones are refused.
 *   - rdma_atomic_ctrl is remembered only; access rights are the MR's.
 *   - IPD (static rate) is remembered, moved at a migration, not enforced.
 *   - A message of more than 2^22 packets (1 GiB at MTU 256) is a local length
 *     error, as one of more than 2 GiB is; a peer that asks for one by READ
 *     makes an invalid request.
 *   - WQEs of an SRQ have at most 4 SG entries: they are copied when taken.
 *   - UD messages longer than the receive buffer are dropped and counted, the
 *     WQE stays.
 *   - GRH word 0 of address vectors is read as the driver writes it (15.5).
 *   - Multicast sends are also delivered to the sender's own attached QPs, as
 *     HCAs do; consumers filter by source.
 *   - A QP with an own LID as destination never arms (apm-and-cm 6, item 23).
 *   - Machine reset drops everything; PortInfo stays.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

#define DEFAULT_HANDLE_GUID_PREFIX UINT64_C(0x0002550000000000)

void ehca_guest_error(EhcaAdapter *a, const char *format, ...)
{
    char sentence[256];
    va_list args;

    if (!a->ops.guest_error) {
        return;
    }
    va_start(args, format);
    vsnprintf(sentence, sizeof(sentence), format, args);
    va_end(args);
    a->ops.guest_error(a->opaque, sentence);
}

/* Work came up outside ehca_run(): its owner must call it. */
void ehca_wake(EhcaAdapter *a)
{
    if (!a->running && a->started && a->ops.wake) {
        a->ops.wake(a->opaque);
    }
}

/* ------------------------------------------------------------------ */
/* Scheduling                                                         */
/* ------------------------------------------------------------------ */

void ehca_schedule_resp(EhcaQp *qp)
{
    if (!ehca_linked(&qp->resp_link)) {
        ehca_list_append(&qp->adapter->resp_run, &qp->resp_link);
        ehca_wake(qp->adapter);
    }
}

void ehca_schedule_req(EhcaQp *qp)
{
    if (!ehca_linked(&qp->req_link)) {
        ehca_list_append(&qp->adapter->req_run, &qp->req_link);
        ehca_wake(qp->adapter);
    }
}

void ehca_unschedule(EhcaQp *qp)
{
    if (ehca_linked(&qp->resp_link)) {
        ehca_list_remove(&qp->resp_link);
    }
    if (ehca_linked(&qp->req_link)) {
        ehca_list_remove(&qp->req_link);
    }
}

void ehca_unblock(EhcaQp *qp)
{
    if (ehca_linked(&qp->resp_link)) {
        ehca_list_remove(&qp->resp_link);
        ehca_schedule_resp(qp);
    }
    if (ehca_linked(&qp->req_link)) {
        ehca_list_remove(&qp->req_link);
        ehca_schedule_req(qp);
    }
}

/* ------------------------------------------------------------------ */
/* Doorbells                                                          */
/* ------------------------------------------------------------------ */

/* Any thread. */
static void ring_doorbell(EhcaAdapter *a, uint32_t slot, uint32_t send,
                          uint32_t recv)
{
    EhcaDoorbell *d = &a->doorbells[slot];

    if (send) {
        atomic_fetch_add(&d->send, send);
    }
    if (recv) {
        atomic_fetch_add(&d->recv, recv);
    }
    if (!atomic_exchange(&d->queued, 1)) {
        EhcaDoorbell *head = atomic_load(&a->rung);

        do {
            d->next = head;
        } while (!atomic_compare_exchange_weak(&a->rung, &head, d));
        a->ops.wake(a->opaque);
    }
}

/* WQEs that fit into the ring are taken; more cannot be meant. */
static void add_posted(EhcaQp *qp, EhcaQueue *queue, uint64_t count,
                       const char *name)
{
    uint32_t room = queue->entries - queue->posted;

    if (count > room) {
        qp->stats.adder_overflows++;
        if (!qp->overflow_told) {
            qp->overflow_told = true;
            ehca_guest_error(qp->adapter, "QP 0x%x: doorbell announces %llu "
                "WQEs for a %s queue with room for %u; cut to that", qp->qpn,
                (unsigned long long)count, name, room);
        }
        count = room;
    }
    queue->posted += count;
}

/* Takes what the guest has announced so far into the queues. */
void ehca_collect_doorbells(EhcaQp *qp)
{
    EhcaDoorbell *d = &qp->adapter->doorbells[qp->slot];
    uint64_t send = atomic_exchange(&d->send, 0);
    uint64_t recv = atomic_exchange(&d->recv, 0);
    unsigned state = qp->attr.state;

    if (state == EHCA_QPS_ERR || state == EHCA_QPS_SQE) {
        send = 0;
    }
    if (state == EHCA_QPS_ERR || state == EHCA_QPS_RESET) {
        recv = 0;
    }
    if (send && qp->sq.num_pages) {
        add_posted(qp, &qp->sq, send, "send");
        ehca_schedule_req(qp);
    }
    if (recv && qp->rq.num_pages) {
        add_posted(qp, &qp->rq, recv, "receive");
    }
}

static void collect_rung(EhcaAdapter *a)
{
    EhcaDoorbell *d = atomic_exchange(&a->rung, NULL);
    EhcaDoorbell *oldest = NULL;

    /* The stack has the latest first: turn it round. */
    while (d) {
        EhcaDoorbell *next = d->next;

        d->next = oldest;
        oldest = d;
        d = next;
    }
    while (oldest) {
        EhcaQp *qp;

        d = oldest;
        oldest = d->next;
        /* From here on a new store queues the slot again. */
        atomic_store(&d->queued, 0);
        qp = a->qps.objects[d - a->doorbells];
        if (qp) {
            ehca_collect_doorbells(qp);
        } else {
            atomic_store(&d->send, 0);
            atomic_store(&d->recv, 0);
        }
    }
}

uint64_t ehca_mmio_read(EhcaAdapter *a, uint64_t offset)
{
    uint64_t page = offset / EHCA_REGS_SIZE;
    unsigned reg = offset % EHCA_REGS_SIZE;

    if (reg & 7 || page < a->config.max_qp ||
        page >= (uint64_t)a->config.max_qp + a->config.max_cq) {
        return 0;                      /* QP registers read as zero */
    }
    return ehca_cq_read_reg(&a->cq_regs[page - a->config.max_qp], reg);
}

void ehca_mmio_write(EhcaAdapter *a, uint64_t offset, uint64_t value)
{
    uint64_t page = offset / EHCA_REGS_SIZE;
    unsigned reg = offset % EHCA_REGS_SIZE;

    if (reg & 7) {
        return;
    }
    if (page < a->config.max_qp) {
        uint32_t count = value & EHCA_QPX_ADDER_MASK;

        if (count && reg == EHCA_QPX_SQA) {
            ring_doorbell(a, page, count, 0);
        } else if (count && reg == EHCA_QPX_RQA) {
            ring_doorbell(a, page, 0, count);
        }
    } else if (page < (uint64_t)a->config.max_qp + a->config.max_cq) {
        ehca_cq_write_reg(a, &a->cq_regs[page - a->config.max_qp], reg, value);
    }
}

unsigned ehca_take_irqs(EhcaAdapter *a)
{
    return atomic_exchange(&a->irqs, 0);
}

/* ------------------------------------------------------------------ */
/* The loop                                                           */
/* ------------------------------------------------------------------ */

static EhcaPort *path_port(EhcaQp *qp)
{
    EhcaPort *port = ehca_port(qp->adapter, qp->special_port ?
                               qp->special_port :
                               qp->attr.path[EHCA_PRIMARY].port);

    return port ? port : &qp->adapter->ports[1];
}

static EhcaTurn turn_resp(EhcaQp *qp, unsigned *budget)
{
    return ehca_responder_run(qp, budget);
}

static EhcaTurn turn_req(EhcaQp *qp, unsigned *budget)
{
    return ehca_qp_connected(qp) ? ehca_requester_run(qp, budget)
                                 : ehca_ud_run(qp, budget);
}

/*
 * One round over the QPs that were on the list at the start, so that each
 * gets a turn before any gets two.  One that finds no room waits for it; but
 * one that got some before, and so took it from the others, asks again behind
 * them.
 */
static unsigned run_list(EhcaAdapter *a, bool resp, unsigned budget)
{
    EhcaLink *list = resp ? &a->resp_run : &a->req_run;
    EhcaLink round;
    unsigned left = budget;

    ehca_list_init(&round);
    ehca_list_splice(&round, list);
    while (left && !ehca_list_empty(&round)) {
        EhcaLink *link = round.next;
        EhcaQp *qp = resp ? EHCA_CONTAINER(link, EhcaQp, resp_link)
                          : EHCA_CONTAINER(link, EhcaQp, req_link);
        unsigned turn = left < EHCA_TURN ? left : EHCA_TURN;
        unsigned rest = turn;
        EhcaTurn result;

        ehca_list_remove(link);
        result = resp ? turn_resp(qp, &rest) : turn_req(qp, &rest);
        if (result != EHCA_TURN_IDLE && !ehca_linked(link)) {
            EhcaWait *wait = &path_port(qp)->wait[
                result == EHCA_TURN_WAIT_LOOP ? EHCA_RING_LOOP
                                              : EHCA_RING_WIRE];

            if (result == EHCA_TURN_MORE || rest < turn) {
                ehca_list_append(list, link);
            } else {
                ehca_list_append(resp ? &wait->resp : &wait->req, link);
                qp->stats.ring_full++;
            }
        }
        left -= rest < turn ? turn - rest : 1;
    }
    /* Those without a turn keep their place, before those who had one. */
    ehca_list_prepend(list, &round);
    return budget - left;
}

static bool has_work(EhcaAdapter *a)
{
    if (atomic_load(&a->rung) || !ehca_list_empty(&a->resp_run) ||
        !ehca_list_empty(&a->req_run)) {
        return true;
    }
    for (unsigned p = 1; p <= a->config.num_ports; p++) {
        if (ehca_port_has_work(&a->ports[p])) {
            return true;
        }
    }
    return false;
}

bool ehca_run(EhcaAdapter *a, unsigned budget)
{
    unsigned ports = a->config.num_ports;
    unsigned share = budget / 2 / ports;
    bool waited = false;

    if (share == 0) {
        share = 1;
    }
    a->running = true;
    ib_clock_run(a->clock, EHCA_TIMERS_PER_RUN);
    collect_rung(a);
    for (unsigned i = 0; i < ports; i++) {
        ehca_port_receive(&a->ports[1 + (a->next_port + i) % ports], share);
    }
    a->next_port = (a->next_port + 1) % ports;
    for (unsigned p = 1; p <= ports; p++) {
        waited |= ehca_port_splice_waiters(&a->ports[p]);
        ehca_port_send_mgmt(&a->ports[p], share);
    }
    a->requests_first = waited && !a->requests_first;
    run_list(a, !a->requests_first, budget);
    run_list(a, a->requests_first, budget);
    for (unsigned p = 1; p <= ports; p++) {
        if (a->ports[p].kick_due) {
            a->ports[p].kick_due = false;
            a->ops.kick(a->opaque, p);
        }
    }
    a->running = false;
    return has_work(a) || ib_clock_deadline(a->clock) <= ehca_now(a);
}

bool ehca_prepare_sleep(EhcaAdapter *a)
{
    if (has_work(a)) {
        return false;
    }
    for (unsigned p = 1; p <= a->config.num_ports; p++) {
        EhcaPort *port = &a->ports[p];
        EhcaWait *wait = &port->wait[EHCA_RING_WIRE];

        if (!port->attached) {
            continue;
        }
        if (!ib_ring_consumer_sleep(&port->rx)) {
            return false;
        }
        if ((!ehca_list_empty(&wait->resp) || !ehca_list_empty(&wait->req) ||
             port->mgmt_head != port->mgmt_tail) &&
            !ib_ring_producer_sleep(&port->tx)) {
            return false;
        }
    }
    /* A doorbell may have come in between: it wakes us, but why sleep. */
    return !atomic_load(&a->rung);
}

int64_t ehca_deadline(const EhcaAdapter *a)
{
    return ib_clock_deadline(a->clock);
}

/* ------------------------------------------------------------------ */
/* Life                                                               */
/* ------------------------------------------------------------------ */

static unsigned limited(unsigned value, unsigned fallback, unsigned limit)
{
    if (value == 0) {
        value = fallback;
    }
    return value > limit ? limit : value;
}

void ehca_config_complete(EhcaConfig *c)
{
    c->num_ports = limited(c->num_ports, EHCA_MAX_PORTS, EHCA_MAX_PORTS);
    c->max_qp = limited(c->max_qp, EHCA_DEFAULT_QPS, EHCA_LIMIT_QPS);
    c->max_cq = limited(c->max_cq, EHCA_DEFAULT_CQS, EHCA_LIMIT_CQS);
    c->max_mr = limited(c->max_mr, EHCA_DEFAULT_MRS, EHCA_LIMIT_MRS);
    c->max_mw = limited(c->max_mw, EHCA_DEFAULT_MWS, EHCA_LIMIT_MRS);
    if (c->max_mr_pages == 0) {
        c->max_mr_pages = EHCA_DEFAULT_MR_PAGES;
    } else if (c->max_mr_pages > EHCA_LIMIT_MR_PAGES) {
        c->max_mr_pages = EHCA_LIMIT_MR_PAGES;
    }
    if (c->node_guid == 0) {
        c->node_guid = DEFAULT_HANDLE_GUID_PREFIX |
                       (c->handle & UINT64_C(0xFFFFFFFF)) << 8;
    }
    for (unsigned p = 0; p < EHCA_MAX_PORTS; p++) {
        if (c->port_guids[p] == 0) {
            c->port_guids[p] = c->node_guid + 1 + p;
        }
    }
    c->description[sizeof(c->description) - 1] = '\0';
    if (c->description[0] == '\0') {
        snprintf(c->description, sizeof(c->description), "eHCA %llx",
                 (unsigned long long)c->handle);
    }
}

uint64_t ehca_mmio_size(const EhcaConfig *config)
{
    EhcaConfig c = *config;

    ehca_config_complete(&c);
    return ((uint64_t)c.max_qp + c.max_cq) * EHCA_REGS_SIZE;
}

static void init_mcast(EhcaAdapter *a)
{
    memset(a->mcast, 0, sizeof(a->mcast));
    a->mcast_free = NULL;
    a->mcast_used = 0;
    for (unsigned i = EHCA_MAX_MCAST; i-- > 0;) {
        a->mcast_pool[i].next = a->mcast_free;
        a->mcast_free = &a->mcast_pool[i];
    }
}

EhcaAdapter *ehca_new(const EhcaConfig *config, IbClock *clock,
                      const EhcaOps *ops, void *opaque)
{
    EhcaAdapter *a = calloc(1, sizeof(*a));

    if (!a) {
        return NULL;
    }
    a->config = *config;
    ehca_config_complete(&a->config);
    a->clock = clock;
    a->ops = *ops;
    a->opaque = opaque;
    ehca_list_init(&a->resp_run);
    ehca_list_init(&a->req_run);
    init_mcast(a);
    a->doorbells = calloc(a->config.max_qp, sizeof(*a->doorbells));
    a->cq_regs = calloc(a->config.max_cq, sizeof(*a->cq_regs));
    if (!a->doorbells || !a->cq_regs ||
        !ehca_slots_init(&a->qps, a->config.max_qp) ||
        !ehca_slots_init(&a->cqs, a->config.max_cq) ||
        !ehca_slots_init(&a->keys, a->config.max_mr + a->config.max_mw) ||
        !ehca_ports_init(a)) {
        ehca_free(a);
        return NULL;
    }
    a->started = true;
    return a;
}

void ehca_free(EhcaAdapter *a)
{
    if (!a) {
        return;
    }
    a->started = false;
    if (a->qps.objects && a->cqs.objects && a->keys.objects) {
        ehca_free_all(a);
    }
    ehca_ports_fini(a);
    ehca_slots_fini(&a->qps);
    ehca_slots_fini(&a->cqs);
    ehca_slots_fini(&a->keys);
    free(a->doorbells);
    free(a->cq_regs);
    free(a);
}

void ehca_reset(EhcaAdapter *a)
{
    ehca_free_all(a);
    for (unsigned i = 0; i < a->config.max_qp; i++) {
        atomic_store(&a->doorbells[i].send, 0);
        atomic_store(&a->doorbells[i].recv, 0);
    }
    init_mcast(a);
    ehca_ports_reset(a);
    atomic_store(&a->irqs, 0);
}
