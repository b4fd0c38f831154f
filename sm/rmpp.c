/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Reliable multi-packet transaction protocol, sending side (IBTA 13.6).
 *
 * Theory of operation: a table response is cut into segments of 200 bytes.
 * The first goes alone; each ACK says which segment has arrived in order and
 * up to which one the receiver takes more.  What is not acknowledged within
 * SM_RMPP_TIMEOUT is sent again from the last acknowledged one on, up to
 * SM_RMPP_TRIES times without any progress; a receiver that makes progress too
 * slowly is cut off after SM_RMPP_TOTAL.  ABORT and STOP end it, as does an
 * ACK that cannot be (which is answered by ABORT with the reason).
 *
 * States of a transaction: free; sending (timer set for the very next turn,
 * after SM_RMPP_BURST segments or a full ring); waiting for an ACK.
 *
 * PayloadLength counts 20 bytes of each segment's SA header as payload: in the
 * first segment the sum of all, in the last its own (13.6.2.1, 15.2.1.3).
 */
#include <string.h>

#include "sm/internal.h"

#define SEGMENT_OVERHEAD 20u

enum {
    TYPE_DATA = 1, TYPE_ACK = 2, TYPE_STOP = 3, TYPE_ABORT = 4,
    FLAG_ACTIVE = 1, FLAG_FIRST = 2, FLAG_LAST = 4,
    STATUS_TOTAL_TIME = 118, STATUS_BAD_TYPE = 121,
    STATUS_WINDOW_TOO_SMALL = 122, STATUS_SEGMENT_TOO_BIG = 123,
    STATUS_BAD_VERSION = 125, STATUS_TOO_MANY_RETRIES = 126,
    STATUS_UNSPECIFIED = 127,
};

static void rmpp_timer(void *opaque);

void sm_rmpp_init(Sm *sm)
{
    for (unsigned i = 0; i < SM_MAX_RMPP; i++) {
        sm->rmpp[i].sm = sm;
        ib_timer_init(&sm->rmpp[i].timer, sm->clock, rmpp_timer,
                      &sm->rmpp[i]);
    }
}

static void finish(SmRmpp *rmpp)
{
    ib_timer_cancel(&rmpp->timer);
    g_free(rmpp->data);
    rmpp->data = NULL;
    rmpp->used = false;
}

void sm_rmpp_abort_all(Sm *sm)
{
    for (unsigned i = 0; i < SM_MAX_RMPP; i++) {
        if (sm->rmpp[i].used) {
            finish(&sm->rmpp[i]);
        }
    }
}

void sm_rmpp_fini(Sm *sm)
{
    sm_rmpp_abort_all(sm);
    for (unsigned i = 0; i < SM_MAX_RMPP; i++) {
        ib_timer_fini(&sm->rmpp[i].timer);
    }
}

static bool send_segment(SmRmpp *rmpp, uint32_t segment)
{
    size_t at = (size_t)(segment - 1) * IB_SA_DATA_LEN;
    size_t len = MIN(rmpp->len - at, (size_t)IB_SA_DATA_LEN);
    IbSaHeader header = rmpp->header;
    uint8_t mad[IB_MAD_LEN] = { 0 };

    header.rmpp_version = 1;
    header.rmpp_type = TYPE_DATA;
    header.rmpp_resp_time = 0x1F;         /* none given */
    header.rmpp_flags = FLAG_ACTIVE;
    header.rmpp_status = 0;
    header.rmpp_data1 = segment;
    if (segment == 1) {
        header.rmpp_flags |= FLAG_FIRST;
        header.rmpp_data2 = rmpp->len + rmpp->segments * SEGMENT_OVERHEAD;
    }
    if (segment == rmpp->segments) {
        header.rmpp_flags |= FLAG_LAST;
        header.rmpp_data2 = len + SEGMENT_OVERHEAD;
    }
    ib_sa_header_pack(mad, &header);
    if (len) {
        memcpy(mad + IB_SA_DATA_OFFSET, rmpp->data + at, len);
    }
    rmpp->sm->stats.rmpp_segments++;
    return sm_send_mad(rmpp->sm, &rmpp->to, mad);
}

static void send_window(SmRmpp *rmpp)
{
    int64_t now = ib_clock_now(rmpp->sm->clock);
    uint32_t last = MIN(rmpp->window_last, rmpp->segments);
    unsigned burst = 0;

    while (rmpp->next <= last && burst < SM_RMPP_BURST) {
        bool sent = send_segment(rmpp, rmpp->next++);

        burst++;
        if (!sent) {
            break;                        /* the timeout covers it */
        }
    }
    rmpp->highest = MAX(rmpp->highest, rmpp->next - 1);
    rmpp->sending = burst == SM_RMPP_BURST && rmpp->next <= last;
    ib_timer_set(&rmpp->timer,
                 rmpp->sending ? now : now + SM_RMPP_TIMEOUT);
}

static void abort_transfer(Sm *sm, const IbMadAddress *to,
                           const IbSaHeader *of, uint8_t status)
{
    IbSaHeader header = *of;
    uint8_t mad[IB_MAD_LEN] = { 0 };

    header.rmpp_version = 1;
    header.rmpp_type = TYPE_ABORT;
    header.rmpp_flags = FLAG_ACTIVE;
    header.rmpp_status = status;
    header.rmpp_data1 = 0;
    header.rmpp_data2 = 0;
    header.sm_key = 0;
    ib_sa_header_pack(mad, &header);
    sm_send_mad(sm, to, mad);
    sm->stats.rmpp_aborted++;
}

static void send_abort(SmRmpp *rmpp, uint8_t status)
{
    abort_transfer(rmpp->sm, &rmpp->to, &rmpp->header, status);
    finish(rmpp);
}

void sm_rmpp_refuse(Sm *sm, const IbMadAddress *to, const IbSaHeader *header)
{
    IbSaHeader of = *header;

    of.hdr.method |= IB_METHOD_RESPONSE_BIT;
    abort_transfer(sm, to, &of, STATUS_UNSPECIFIED);
}

static void rmpp_timer(void *opaque)
{
    SmRmpp *rmpp = opaque;

    if (ib_clock_now(rmpp->sm->clock) - rmpp->started_ns > SM_RMPP_TOTAL) {
        send_abort(rmpp, STATUS_TOTAL_TIME);
        return;
    }
    if (!rmpp->sending) {
        if (++rmpp->tries > SM_RMPP_TRIES) {
            send_abort(rmpp, STATUS_TOO_MANY_RETRIES);
            return;
        }
        rmpp->next = rmpp->acked + 1;
    }
    send_window(rmpp);
}

bool sm_rmpp_start(Sm *sm, const IbMadAddress *to, const IbSaHeader *header,
                   uint8_t *data, size_t len)
{
    SmRmpp *rmpp = NULL;
    unsigned of_client = 0;

    for (unsigned i = 0; i < SM_MAX_RMPP; i++) {
        SmRmpp *slot = &sm->rmpp[i];

        if (!slot->used) {
            rmpp = rmpp ? rmpp : slot;
        } else if (slot->to.dlid == to->dlid) {
            of_client++;
        }
    }
    if (!rmpp || of_client >= SM_MAX_RMPP_PER_CLIENT) {
        g_free(data);
        return false;
    }
    rmpp->used = true;
    rmpp->header = *header;
    rmpp->to = *to;
    rmpp->data = data;
    rmpp->len = len;
    rmpp->segments = len ? (len + IB_SA_DATA_LEN - 1) / IB_SA_DATA_LEN : 1;
    rmpp->acked = 0;
    rmpp->window_last = 1;
    rmpp->next = 1;
    rmpp->highest = 0;
    rmpp->tries = 0;
    rmpp->sending = false;
    rmpp->started_ns = ib_clock_now(sm->clock);
    send_window(rmpp);
    return true;
}

static SmRmpp *find(const Sm *sm, const IbMadAddress *to, uint64_t tid)
{
    for (unsigned i = 0; i < SM_MAX_RMPP; i++) {
        const SmRmpp *rmpp = &sm->rmpp[i];

        if (rmpp->used && rmpp->header.hdr.tid == tid &&
            rmpp->to.dlid == to->dlid && rmpp->to.dest_qpn == to->dest_qpn) {
            return (SmRmpp *)rmpp;
        }
    }
    return NULL;
}

bool sm_rmpp_busy(const Sm *sm, const IbMadAddress *to, uint64_t tid)
{
    return find(sm, to, tid) != NULL;
}

static void acknowledge(SmRmpp *rmpp, uint32_t segment, uint32_t window)
{
    if (segment > rmpp->highest) {
        send_abort(rmpp, STATUS_SEGMENT_TOO_BIG);
        return;
    }
    if (window < segment) {
        send_abort(rmpp, STATUS_WINDOW_TOO_SMALL);
        return;
    }
    if (segment < rmpp->acked) {
        return;                           /* overtaken by a later one */
    }
    if (segment > rmpp->acked) {
        rmpp->acked = segment;
        rmpp->tries = 0;
    }
    if (rmpp->acked == rmpp->segments) {
        finish(rmpp);
        return;
    }
    rmpp->window_last = MAX(rmpp->window_last, window);
    rmpp->next = MAX(rmpp->next, rmpp->acked + 1);
    if (rmpp->next <= MIN(rmpp->window_last, rmpp->segments)) {
        send_window(rmpp);
    }
}

void sm_rmpp_receive(Sm *sm, const IbMadAddress *to,
                     const IbSaHeader *header)
{
    SmRmpp *rmpp = find(sm, to, header->hdr.tid);

    if (!rmpp) {
        sm->stats.packets_dropped++;
        return;
    }
    if (header->rmpp_version != 1) {
        send_abort(rmpp, STATUS_BAD_VERSION);
        return;
    }
    switch (header->rmpp_type) {
    case TYPE_ACK:
        acknowledge(rmpp, header->rmpp_data1, header->rmpp_data2);
        break;
    case TYPE_STOP:
    case TYPE_ABORT:
        sm->stats.rmpp_aborted++;
        finish(rmpp);
        break;
    default:
        send_abort(rmpp, STATUS_BAD_TYPE);
        break;
    }
}
