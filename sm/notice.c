/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Traps in, subscriptions, reports out (IBTA 13.4.8 to 13.4.11, 14.3.4).
 *
 * Theory of operation: a trap is answered with TrapRepress before anything
 * else, so that its sender falls silent.  Then it is looked at: it must come
 * from a port we know, say that port's LID as its issuer, and be new (the
 * sender repeats a TID until our TrapRepress has reached it).  128 and 144
 * start a heavy sweep, at once when none is under way.  A port that sends more
 * than SM_TRAP_BURST traps in SM_TRAP_WINDOW is still answered, but its traps
 * start sweeps only every SM_TRAP_SLOW_SWEEP: late, never lost.
 *
 * A subscription (InformInfo) has a queue of reports; one is under way, sent
 * again every SM_REPORT_TIMEOUT up to SM_REPORT_TRIES times, so a subscriber
 * gets them in order and a dead one holds up nobody else.  Reports for a port
 * that is gone are dropped; the subscription stays for its return.  After
 * SM_REPORT_FAILURES reports in a row without an answer from a port that is
 * there, it ends, and the port is told ClientReregister, in case somebody
 * there still cares.
 */
#include <string.h>

#include "sm/internal.h"

/* Details of trap 144, offsets from the details (notice offset - 10). */
#define D144_LOCAL_CHANGE 5
#define D144_FLAGS 10
#define D144_NODE_DESC 0x01
/* Details of trap 256. */
#define D256_LID 2
#define D256_METHOD 6
#define D256_ATTR 8
/* Details of traps 64 to 67: the GID. */
#define D64_GID 6

#define ANY_LID 0xFFFF
#define ANY_TYPE 0xFFFF
#define ANY_TRAP 0xFFFF
#define ANY_PRODUCER 0xFFFFFF
#define PRODUCER_CLASS_MANAGER 4
#define FIRST_REPORT_TID 0x02DAB000u

static bool is_security(unsigned trap)
{
    return trap >= IB_TRAP_BAD_MKEY && trap <= 259;
}

/* Link integrity, buffer overrun, flow control: not forwarded (4.2). */
static bool is_link_quality(unsigned trap)
{
    return trap >= 129 && trap <= 131;
}

/* Reports */

static void send_report(SmSubscription *sub)
{
    Sm *sm = sub->sm;
    const SmPort *port = sm_port_find(sm, sub->guid);
    const SmReport *report = g_queue_peek_head(&sub->queue);
    IbSaHeader header = {
        .hdr = {
            .base_version = 1,
            .mgmt_class = IB_CLASS_SA,
            .class_version = 2,
            .method = IB_METHOD_REPORT,
            .tid = sub->tid,
            .attr_id = IB_ATTR_NOTICE,
        },
    };
    uint8_t mad[IB_MAD_LEN] = { 0 };

    if (sm_port_by_lid(sm, sub->to.dlid) != port) {
        sub->to.dlid = port->lid;         /* its LID had to change */
    }
    sub->to.slid = sm->own->lid;
    ib_sa_header_pack(mad, &header);
    memcpy(mad + IB_SA_DATA_OFFSET, report->notice, IB_NOTICE_LEN);
    sub->tries++;
    sm->stats.reports_sent++;
    ib_timer_set(&sub->timer,
                 ib_clock_now(sm->clock) + SM_REPORT_TIMEOUT);
    sm_send_mad(sm, &sub->to, mad);
}

static void pop_report(SmSubscription *sub)
{
    g_free(g_queue_pop_head(&sub->queue));
    sub->sm->reports_queued--;
}

static void drop_reports(SmSubscription *sub)
{
    while (sub->queue.length) {
        sub->sm->stats.reports_dropped++;
        pop_report(sub);
    }
    ib_timer_cancel(&sub->timer);
}

static void tell_report(Sm *sm, const IbNotice *notice, const SmPort *port)
{
    GString *gid = g_string_new(NULL);

    for (unsigned i = 0; i < 16; i += 2) {
        g_string_append_printf(gid, "%s%04x", i ? ":" : "",
                               ib_get16(notice->details + D64_GID + i));
    }
    sm_eventf(sm, "{\"event\":\"sm_report_sent\",\"trap\":%u,"
              "\"gid\":\"%s\",\"to\":\"%s\",\"to_port\":%u,"
              "\"to_lid\":%u}", notice->trap, gid->str, port->node->desc,
              port->num, port->lid);
    g_string_free(gid, true);
}

/* Begins the report at the head of the queue, if there is one. */
static void next_report(SmSubscription *sub)
{
    Sm *sm = sub->sm;
    const SmPort *port = sm_port_find(sm, sub->guid);
    IbNotice notice;

    ib_timer_cancel(&sub->timer);
    g_hash_table_remove(sm->report_by_tid, &sub->tid);
    if (!sub->queue.length) {
        return;
    }
    if (!port || !port->lid || !sm->own || !sm->own->lid) {
        drop_reports(sub);
        return;
    }
    sub->tries = 0;
    sub->tid = (uint64_t)sm->opts.seed << 32 |
               (uint32_t)(FIRST_REPORT_TID + sm->next_report++);
    g_hash_table_insert(sm->report_by_tid, &sub->tid, sub);
    ib_notice_unpack(&notice,
                     ((SmReport *)g_queue_peek_head(&sub->queue))->notice,
                     IB_NOTICE_LEN);
    sm_logf(sm, SM_LOG_INFO, "report of trap %u (%s) to port %s",
            notice.trap, ib_trap_name(notice.trap), sm_port_name(port).s);
    tell_report(sm, &notice, port);
    send_report(sub);
}

static void subscription_free(SmSubscription *sub)
{
    Sm *sm = sub->sm;

    drop_reports(sub);
    g_hash_table_remove(sm->report_by_tid, &sub->tid);
    g_ptr_array_remove(sm->subscriptions, sub);
    ib_timer_fini(&sub->timer);
    g_free(sub);
}

static void report_timer(void *opaque)
{
    SmSubscription *sub = opaque;
    Sm *sm = sub->sm;
    SmPort *port = sm_port_find(sm, sub->guid);

    if (!port || !port->lid || !sm->own || !sm->own->lid || !sm->link_up) {
        drop_reports(sub);
        return;
    }
    if (sub->tries < SM_REPORT_TRIES) {
        send_report(sub);
        return;
    }
    sm->stats.reports_failed++;
    sm_logf(sm, SM_LOG_WARN, "port %s did not answer a report %u times",
            sm_port_name(port).s, SM_REPORT_TRIES);
    if (++sub->failures >= SM_REPORT_FAILURES) {
        sm_logf(sm, SM_LOG_WARN, "port %s: its subscription to trap %u ends "
                "after %u reports without an answer", sm_port_name(port).s,
                sub->info.trap, SM_REPORT_FAILURES);
        port->need_reregister = true;
        subscription_free(sub);
        return;
    }
    pop_report(sub);
    next_report(sub);
}

void sm_report_response(Sm *sm, const IbMadAddress *to,
                        const IbSaHeader *header)
{
    uint64_t tid = header->hdr.tid;
    SmSubscription *sub = g_hash_table_lookup(sm->report_by_tid, &tid);

    if (!sub || !sub->queue.length ||
        sm_port_by_lid(sm, to->dlid) != sm_port_find(sm, sub->guid)) {
        sm->stats.packets_dropped++;
        return;
    }
    sm->stats.reports_answered++;
    sub->failures = 0;
    pop_report(sub);
    next_report(sub);
}

static bool subscribed(const Sm *sm, const SmSubscription *sub,
                       const IbNotice *notice)
{
    static const uint8_t no_gid[16];
    const IbInformInfo *info = &sub->info;
    uint16_t end = info->lid_end ? info->lid_end : info->lid_begin;

    if (memcmp(info->gid, no_gid, 16) != 0) {
        if (memcmp(info->gid, notice->issuer_gid, 16) != 0) {
            return false;
        }
    } else if (info->lid_begin != ANY_LID &&
               (notice->issuer_lid < info->lid_begin ||
                notice->issuer_lid > end)) {
        return false;
    }
    return info->is_generic == notice->generic &&
           (info->type == ANY_TYPE || info->type == notice->type) &&
           (info->trap == ANY_TRAP || info->trap == notice->trap) &&
           (info->producer == ANY_PRODUCER ||
            info->producer == notice->producer) &&
           (sub->trusted || !is_security(notice->trap));
}

static void report(Sm *sm, const IbNotice *notice)
{
    for (unsigned i = 0; i < sm->subscriptions->len; i++) {
        SmSubscription *sub = g_ptr_array_index(sm->subscriptions, i);
        SmReport *new;

        if (!subscribed(sm, sub, notice)) {
            continue;
        }
        if (sub->queue.length >= SM_MAX_REPORTS_QUEUED) {
            sm->stats.reports_dropped++;
            continue;
        }
        new = g_new0(SmReport, 1);
        ib_notice_pack(new->notice, notice, IB_NOTICE_LEN);
        g_queue_push_tail(&sub->queue, new);
        sm->reports_queued++;
        if (sub->queue.length == 1) {
            next_report(sub);
        }
    }
}

void sm_report_gid(Sm *sm, uint16_t trap, const uint8_t gid[16])
{
    IbNotice notice = {
        .generic = true,
        .type = IB_NOTICE_SM,
        .producer = PRODUCER_CLASS_MANAGER,
        .trap = trap,
        .issuer_lid = sm->own ? sm->own->lid : 0,
    };

    memcpy(notice.details + D64_GID, gid, 16);
    sm_own_gid(sm, notice.issuer_gid);
    report(sm, &notice);
}

bool sm_reports_pending(const Sm *sm)
{
    return sm->reports_queued != 0;
}

/* Subscriptions */

void sm_notice_init(Sm *sm)
{
    sm->subscriptions = g_ptr_array_new();
    sm->report_by_tid = g_hash_table_new(g_int64_hash, g_int64_equal);
}

void sm_subscriptions_clear(Sm *sm)
{
    while (sm->subscriptions->len) {
        subscription_free(g_ptr_array_index(sm->subscriptions,
                                            sm->subscriptions->len - 1));
    }
}

void sm_notice_fini(Sm *sm)
{
    sm_subscriptions_clear(sm);
    g_ptr_array_free(sm->subscriptions, true);
    g_hash_table_destroy(sm->report_by_tid);
}

static SmSubscription *find_subscription(const Sm *sm, uint64_t guid,
                                         const IbInformInfo *info)
{
    for (unsigned i = 0; i < sm->subscriptions->len; i++) {
        SmSubscription *sub = g_ptr_array_index(sm->subscriptions, i);
        const IbInformInfo *have = &sub->info;

        if (sub->guid == guid && have->qpn == info->qpn &&
            memcmp(have->gid, info->gid, 16) == 0 &&
            have->lid_begin == info->lid_begin &&
            have->lid_end == info->lid_end &&
            have->is_generic == info->is_generic &&
            have->type == info->type && have->trap == info->trap &&
            have->producer == info->producer) {
            return sub;
        }
    }
    return NULL;
}

/* Room for one more, if need be in place of somebody who is away. */
static bool make_room(Sm *sm, uint64_t guid)
{
    unsigned of_port = 0;

    for (unsigned i = 0; i < sm->subscriptions->len; i++) {
        SmSubscription *sub = g_ptr_array_index(sm->subscriptions, i);

        of_port += sub->guid == guid;
    }
    if (of_port >= SM_MAX_SUBSCRIPTIONS_PER_PORT) {
        return false;
    }
    for (unsigned i = 0; i < sm->subscriptions->len &&
         sm->subscriptions->len >= SM_MAX_SUBSCRIPTIONS; i++) {
        SmSubscription *sub = g_ptr_array_index(sm->subscriptions, i);

        if (!sm_port_find(sm, sub->guid)) {
            subscription_free(sub);
            break;
        }
    }
    return sm->subscriptions->len < SM_MAX_SUBSCRIPTIONS;
}

uint16_t sm_inform_info_set(Sm *sm, SmClient *client, IbInformInfo *info)
{
    IbInformInfo key = *info;
    SmSubscription *sub;

    if (info->subscribe > 1 || info->is_generic > 1 || !client->port ||
        (info->is_generic && is_security(info->trap) && !client->trusted)) {
        return IB_SA_STATUS_REQ_INVALID;
    }
    if (!key.qpn) {
        key.qpn = client->reply.dest_qpn; /* reports never go to QP0 */
    }
    sub = find_subscription(sm, client->port->guid, &key);
    if (!info->subscribe) {
        if (!sub) {
            return IB_SA_STATUS_REQ_INVALID;
        }
        sm_logf(sm, SM_LOG_INFO, "port %s no longer wants trap %u",
                sm_port_name(client->port).s, info->trap);
        subscription_free(sub);
        return IB_MAD_STATUS_OK;
    }
    if (!sub) {
        if (!make_room(sm, client->port->guid)) {
            info->subscribe = 0;
            return IB_SA_STATUS_NO_RESOURCES;
        }
        sub = g_new0(SmSubscription, 1);
        sub->sm = sm;
        sub->guid = client->port->guid;
        sub->id = sm->next_subscription++;
        g_queue_init(&sub->queue);
        ib_timer_init(&sub->timer, sm->clock, report_timer, sub);
        g_ptr_array_add(sm->subscriptions, sub);
        sm_logf(sm, SM_LOG_INFO, "port %s wants trap %u",
                sm_port_name(client->port).s, info->trap);
    }
    sub->info = key;
    sub->to = client->reply;
    sub->to.dest_qpn = key.qpn;
    sub->trusted = client->trusted;
    sub->failures = 0;
    return IB_MAD_STATUS_OK;
}

/* Traps */

static void repress(Sm *sm, const IbMadAddress *from, const uint8_t *trap)
{
    uint8_t mad[IB_MAD_LEN];
    IbMadAddress to = {
        .slid = from->dlid,
        .dlid = from->slid,
        .sl = from->sl,
        .vl = IB_VL_MANAGEMENT,
        .pkey = IB_PKEY_DEFAULT,
    };
    IbSmp smp;

    memcpy(mad, trap, sizeof(mad));
    ib_smp_unpack(&smp, mad);
    smp.hdr.method = IB_METHOD_TRAP_REPRESS;
    smp.hdr.status = 0;
    smp.m_key = sm->opts.m_key;
    ib_smp_pack(mad, &smp);
    sm->act_count++;
    sm_send_mad(sm, &to, mad);
}

/* How long the sweep that this trap asks for has to wait. */
static int64_t throttle(Sm *sm, SmPort *port)
{
    int64_t now = ib_clock_now(sm->clock);

    if (now - port->trap_window_ns >= SM_TRAP_WINDOW ||
        port->trap_count == 0) {
        port->trap_window_ns = now;
        port->trap_count = 0;
    }
    port->trap_count++;
    if (port->trap_count <= SM_TRAP_BURST) {
        return 0;
    }
    if (port->trap_count == SM_TRAP_BURST + 1) {
        sm_logf(sm, SM_LOG_WARN, "port %s sent more than %u traps within %"
                PRId64 " s: its traps start sweeps more slowly",
                sm_port_name(port).s, SM_TRAP_BURST,
                SM_TRAP_WINDOW / IB_SEC);
    }
    sm->stats.traps_throttled++;
    return SM_TRAP_SLOW_SWEEP;
}

void sm_trap_receive(Sm *sm, const IbMadAddress *from, const uint8_t *mad)
{
    IbMadHeader header;
    IbNotice notice;
    SmPort *port;
    int64_t delay;

    ib_mad_header_unpack(&header, mad);
    if (sm->state != SM_MASTER || header.attr_id != IB_ATTR_NOTICE ||
        !ib_lid_is_unicast(from->slid) || from->dlid != sm_lid(sm)) {
        sm->stats.packets_dropped++;
        return;
    }
    sm->stats.traps_received++;
    repress(sm, from, mad);
    ib_notice_unpack(&notice, mad + IB_SMP_DATA_OFFSET, IB_SMP_DATA_LEN);
    port = sm_port_by_lid(sm, from->slid);
    if (!port || !notice.generic || notice.issuer_lid != from->slid ||
        (notice.trap == IB_TRAP_LINK_STATE && !port->node->sw)) {
        sm_logf(sm, SM_LOG_DEBUG, "trap %u from LID %u, issuer LID %u: not "
                "believed", notice.trap, from->slid, notice.issuer_lid);
        return;
    }
    if (port->trap_seen && port->trap_tid == header.tid) {
        sm->stats.traps_repeated++;
        return;
    }
    port->trap_seen = true;
    port->trap_tid = header.tid;
    delay = throttle(sm, port);
    /* A port that floods us must not fill the disk with our log. */
    sm_logf(sm, delay == 0 ? SM_LOG_INFO : SM_LOG_DEBUG,
            "trap %u (%s) from port %s", notice.trap,
            ib_trap_name(notice.trap), sm_port_name(port).s);
    switch (notice.trap) {
    case IB_TRAP_LINK_STATE:
        sm_want_heavy(sm, "trap 128", delay);
        break;
    case IB_TRAP_CAPABILITY:
        if ((notice.details[D144_LOCAL_CHANGE] & 1) &&
            (ib_get16(notice.details + D144_FLAGS) & D144_NODE_DESC)) {
            sm->desc_wanted = true;
        }
        sm_want_heavy(sm, "trap 144", delay);
        break;
    case 145:
        sm_want_heavy(sm, "trap 145", delay);
        break;
    case IB_TRAP_BAD_MKEY:
        sm_logf(sm, delay == 0 ? SM_LOG_WARN : SM_LOG_DEBUG,
                "port %s: wrong M_Key in %s %s from LID %u",
                sm_port_name(port).s,
                ib_method_name(notice.details[D256_METHOD]),
                ib_attr_name(IB_CLASS_SM_LID,
                             ib_get16(notice.details + D256_ATTR)),
                ib_get16(notice.details + D256_LID));
        break;
    }
    if (delay == 0 && !is_link_quality(notice.trap)) {
        sm_port_gid(sm, port->guid, notice.issuer_gid);
        report(sm, &notice);
    }
    sm_schedule(sm);
    sm_pump(sm);
}
