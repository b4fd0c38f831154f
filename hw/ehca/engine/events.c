/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Events for timelines: what happened in the adapter, in words.  Not for the
 * guest, which has its event queues (eq.c).
 */
#include <stdio.h>

#include "internal.h"

static const char *const kind_names[EHCA_EVENT_KINDS] = {
    [EHCA_EVENT_PORT_STATE] = "port_state",
    [EHCA_EVENT_AQP1_DEFINED] = "aqp1_defined",
    [EHCA_EVENT_QP_STATE] = "qp_state",
    [EHCA_EVENT_MIG_STATE] = "mig_state",
    [EHCA_EVENT_MIG_REFUSED] = "mig_refused",
    [EHCA_EVENT_ALT_LOADED] = "alt_loaded",
    [EHCA_EVENT_FIRST_PAYLOAD] = "first_payload",
    [EHCA_EVENT_QP_ERROR] = "qp_error",
};

static const char *const cause_names[EHCA_CAUSES] = {
    [EHCA_CAUSE_NONE] = "none",
    [EHCA_CAUSE_RESET] = "reset",
    [EHCA_CAUSE_SOFTWARE] = "software",
    [EHCA_CAUSE_PACKET_MIGREQ_0] = "packet_with_migreq_0",
    [EHCA_CAUSE_PACKET_MIGREQ_1] = "packet_with_migreq_1",
    [EHCA_CAUSE_RETRIES_USED_UP] = "retries_used_up",
    [EHCA_CAUSE_RNR_RETRIES_USED_UP] = "rnr_retries_used_up",
    [EHCA_CAUSE_LOCAL_ERROR] = "local_error",
    [EHCA_CAUSE_REMOTE_NAK] = "remote_nak",
    [EHCA_CAUSE_RESPONDER_ERROR] = "responder_error",
    [EHCA_CAUSE_CQ_ERROR] = "cq_error",
};

const char *ehca_event_kind_name(EhcaEventKind kind)
{
    return (unsigned)kind < EHCA_EVENT_KINDS ? kind_names[kind] : "unknown";
}

const char *ehca_cause_name(EhcaCause cause)
{
    return (unsigned)cause < EHCA_CAUSES ? cause_names[cause] : "unknown";
}

void ehca_emit(EhcaAdapter *a, EhcaEvent *event)
{
    if (a->ops.event && a->started) {
        event->time_ns = ehca_now(a);
        a->ops.event(a->opaque, event);
    }
}

/* A state in the words of its kind; NULL: the kind has no states. */
static const char *state_name(EhcaEventKind kind, unsigned state)
{
    switch (kind) {
    case EHCA_EVENT_PORT_STATE:
        return ib_port_state_name(state);
    case EHCA_EVENT_QP_STATE:
    case EHCA_EVENT_QP_ERROR:
        return state ? ehca_qp_state_name(state) : NULL;
    case EHCA_EVENT_MIG_STATE:
    case EHCA_EVENT_MIG_REFUSED:
        return state ? ehca_mig_state_name(state) : NULL;
    default:
        return NULL;
    }
}

size_t ehca_event_json(const EhcaEvent *e, char *buf, size_t size)
{
    const char *from = state_name(e->kind, e->from);
    const char *to = state_name(e->kind, e->to);
    char parts[256];
    size_t n = 0;
    int len;

    parts[0] = '\0';
    if (e->port) {
        n += snprintf(parts + n, sizeof(parts) - n, ",\"port\":%u", e->port);
    }
    if (e->qpn) {
        n += snprintf(parts + n, sizeof(parts) - n, ",\"qpn\":%u", e->qpn);
    }
    if (from) {
        n += snprintf(parts + n, sizeof(parts) - n, ",\"from\":\"%s\"", from);
    }
    if (to) {
        n += snprintf(parts + n, sizeof(parts) - n, ",\"to\":\"%s\"", to);
    }
    if (e->dlid) {
        n += snprintf(parts + n, sizeof(parts) - n, ",\"dlid\":%u", e->dlid);
    }
    if (e->cause != EHCA_CAUSE_NONE) {
        snprintf(parts + n, sizeof(parts) - n, ",\"cause\":\"%s\"",
                 ehca_cause_name(e->cause));
    }
    len = snprintf(buf, size, "{\"event\":\"%s\",\"t_ns\":%lld%s}",
                   ehca_event_kind_name(e->kind), (long long)e->time_ns,
                   parts);
    return len < 0 ? 0 : (size_t)len;
}
