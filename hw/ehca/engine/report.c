/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The adapter's state as JSON, for people and tools: ports, queue pairs with
 * both paths, and enough about path migration to say why one did not happen
 * (which state, what arrived since REARM, what the path check dropped).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

/* Text that grows; a failed allocation leaves it NULL for good. */
typedef struct Text {
    char *buf;
    size_t len, size;
    bool failed;
    bool comma;                        /* next member needs one before it */
} Text;

__attribute__((format(printf, 2, 3)))
static void put(Text *t, const char *format, ...)
{
    va_list args;
    int n;

    if (t->failed) {
        return;
    }
    for (;;) {
        va_start(args, format);
        n = vsnprintf(t->buf ? t->buf + t->len : NULL,
                      t->size - t->len, format, args);
        va_end(args);
        if (n >= 0 && t->len + n < t->size) {
            t->len += n;
            return;
        }
        t->size = (t->size ? t->size * 2 : 4096) + (n > 0 ? n : 0);
        char *bigger = realloc(t->buf, t->size);
        if (!bigger) {
            t->failed = true;
            return;
        }
        t->buf = bigger;
    }
}

static void comma(Text *t)
{
    if (t->comma) {
        put(t, ",");
    }
    t->comma = true;
}

static void open_key(Text *t, const char *key, char bracket)
{
    comma(t);
    if (key) {
        put(t, "\"%s\":", key);
    }
    put(t, "%c", bracket);
    t->comma = false;
}

static void close_bracket(Text *t, char bracket)
{
    put(t, "%c", bracket);
    t->comma = true;
}

static void number(Text *t, const char *key, uint64_t value)
{
    comma(t);
    put(t, "\"%s\":%llu", key, (unsigned long long)value);
}

static void truth(Text *t, const char *key, bool value)
{
    comma(t);
    put(t, "\"%s\":%s", key, value ? "true" : "false");
}

/* Words of ours only: nothing that would need escaping. */
static void word(Text *t, const char *key, const char *value)
{
    comma(t);
    put(t, "\"%s\":\"%s\"", key, value);
}

static void gid(Text *t, const char *key, const uint8_t *g)
{
    comma(t);
    put(t, "\"%s\":\"", key);
    for (int i = 0; i < 16; i += 2) {
        put(t, "%s%x", i ? ":" : "", ib_get16(g + i));
    }
    put(t, "\"");
}

static void report_port(Text *t, EhcaPort *port)
{
    const IbSmaPort *sp = ehca_sma_port(port);
    const IbPortInfo *info = &sp->info;
    uint8_t g[16];

    open_key(t, NULL, '{');
    number(t, "port", port->number);
    word(t, "state", ib_port_state_name(info->state));
    word(t, "phys_state", ib_phys_state_name(info->phys_state));
    truth(t, "wants_link", port->wants_link);
    truth(t, "fabric_attached", port->attached);
    truth(t, "aqp1_defined", port->gsi);
    number(t, "lid", info->lid);
    number(t, "lmc", info->lmc);
    number(t, "sm_lid", info->sm_lid);
    ehca_port_gid(port, 0, g);
    gid(t, "gid", g);
    number(t, "pma_qpn", port->pma_qpn);
    truth(t, "tx_ring_broken", port->tx.broken);
    truth(t, "rx_ring_broken", port->rx.broken);

    open_key(t, "counters", '{');
    number(t, "xmit_pkts", sp->counters.xmit_pkts);
    number(t, "rcv_pkts", sp->counters.rcv_pkts);
    number(t, "xmit_data", sp->counters.xmit_data);
    number(t, "rcv_data", sp->counters.rcv_data);
    number(t, "rcv_errors", sp->counters.rcv_errors);
    number(t, "xmit_discards", sp->counters.xmit_discards);
    number(t, "xmit_wait", sp->counters.xmit_wait);
    number(t, "link_downed", sp->counters.link_downed);
    number(t, "vl15_dropped", sp->counters.vl15_dropped);
    number(t, "p_key_violations", info->p_key_violations);
    number(t, "q_key_violations", info->q_key_violations);
    close_bracket(t, '}');

    open_key(t, "dropped", '{');
    number(t, "sent_while_not_active", port->stats.dropped_not_active);
    number(t, "received_while_not_active",
           port->stats.dropped_rx_not_active);
    number(t, "lid_not_ours", port->stats.dropped_lid);
    number(t, "no_such_qp", port->stats.dropped_qpn);
    number(t, "management", port->stats.dropped_mgmt);
    number(t, "multicast", port->stats.dropped_mcast);
    number(t, "vl15", port->stats.dropped_vl15);
    for (unsigned e = 1; e <= IB_PACKET_BAD_ICRC; e++) {
        if (port->stats.packet_errors[e]) {
            comma(t);
            put(t, "\"packet: %s\":%llu", ib_packet_error_name(e),
                (unsigned long long)port->stats.packet_errors[e]);
        }
    }
    close_bracket(t, '}');
    close_bracket(t, '}');
}

static void report_path(Text *t, const char *key, const EhcaPath *path)
{
    open_key(t, key, '{');
    number(t, "port", path->port);
    number(t, "dlid", path->dlid);
    number(t, "sl", path->service_level);
    number(t, "pkey_index", path->pkey_idx);
    number(t, "source_path_bits", path->source_path_bits);
    number(t, "static_rate", path->static_rate);
    number(t, "timeout", path->timeout);
    number(t, "retry_count", path->retry_count);
    number(t, "rnr_retry_count", path->rnr_retry_count);
    truth(t, "grh", path->send_grh);
    if (path->send_grh) {
        gid(t, "dgid", path->dest_gid);
        number(t, "sgid_index", path->source_gid_idx);
    }
    close_bracket(t, '}');
}

static void report_migration(Text *t, EhcaQp *qp)
{
    const EhcaQpStats *s = &qp->stats;
    uint64_t first = qp->history_count > EHCA_HISTORY
                     ? qp->history_count - EHCA_HISTORY : 0;

    open_key(t, "migration", '{');
    word(t, "state", ehca_mig_state_name(qp->attr.mig_state));
    truth(t, "alternate_loaded", qp->attr.alt_loaded);
    number(t, "migrations", s->migrations);
    number(t, "refused", s->refused);
    if (qp->attr.mig_state != EHCA_MIG_MIGRATED) {
        number(t, "rearm_t_ns", qp->rearm_time_ns);
    }
    number(t, "since_rearm_migreq_0", s->since_rearm[0]);
    number(t, "since_rearm_migreq_1", s->since_rearm[1]);
    number(t, "since_rearm_qualifying", s->qualifying);
    open_key(t, "path_check_drops", '{');
    for (unsigned f = 1; f < EHCA_PATH_FAULTS; f++) {
        number(t, ehca_path_fault_name(f), s->path_faults[f]);
    }
    close_bracket(t, '}');
    open_key(t, "history", '[');
    for (uint64_t i = first; i < qp->history_count; i++) {
        const EhcaMigChange *h = &qp->history[i % EHCA_HISTORY];

        open_key(t, NULL, '{');
        number(t, "t_ns", h->time_ns);
        word(t, "from", ehca_mig_state_name(h->from));
        word(t, "to", ehca_mig_state_name(h->to));
        word(t, "cause", ehca_cause_name(h->cause));
        number(t, "old_port", h->old_port);
        number(t, "new_port", h->new_port);
        number(t, "dlid", h->dlid);
        close_bracket(t, '}');
    }
    close_bracket(t, ']');
    close_bracket(t, '}');
}

static void report_qp(Text *t, EhcaQp *qp)
{
    static const char *const kinds[] = { "normal", "llqp", "srq_base", "srq" };
    const EhcaQpStats *s = &qp->stats;

    open_key(t, NULL, '{');
    number(t, "qpn", qp->qpn);
    number(t, "token", qp->token);
    word(t, "service", ehca_service_name(qp->service));
    word(t, "kind", kinds[qp->kind & 3]);
    word(t, "state", ehca_qp_state_name(qp->attr.state));
    if (qp->special_port) {
        word(t, "special", qp->is_smi ? "QP0" : "QP1");
        number(t, "special_port", qp->special_port);
    }
    if (qp->error_cause != EHCA_CAUSE_NONE) {
        word(t, "error_cause", ehca_cause_name(qp->error_cause));
        number(t, "error_status", qp->error_status);
    }
    number(t, "send_posted", qp->sq.posted);
    number(t, "recv_posted", qp->rq.posted);
    if (ehca_qp_connected(qp) && qp->kind != EHCA_QPKIND_SRQ) {
        number(t, "dest_qpn", qp->attr.dest_qpn);
        number(t, "mtu", ehca_qp_mtu(qp));
        report_path(t, "primary", &qp->attr.path[EHCA_PRIMARY]);
        report_path(t, "alternate", &qp->attr.path[EHCA_ALTERNATE]);
        number(t, "una_psn", qp->una_psn);
        number(t, "nxt_psn", qp->nxt_psn);
        number(t, "max_psn", qp->max_psn);
        number(t, "new_psn", qp->new_psn);
        number(t, "expected_psn", qp->epsn);
        number(t, "msn", qp->msn);
        number(t, "retries_left", qp->retries_left);
        number(t, "rnr_retries_left", qp->rnr_left);
        truth(t, "rnr_wait", qp->rnr_wait);
        report_migration(t, qp);
    }
    open_key(t, "counters", '{');
    number(t, "packets_sent", s->packets_sent);
    number(t, "packets_received", s->packets_received);
    number(t, "bytes_sent", s->bytes_sent);
    number(t, "bytes_received", s->bytes_received);
    number(t, "retransmits", s->retransmits);
    number(t, "timeouts", s->timeouts);
    number(t, "nak_sequence_sent", s->nak_sequence_sent);
    number(t, "nak_sequence_received", s->nak_sequence_received);
    number(t, "rnr_nak_sent", s->rnr_nak_sent);
    number(t, "rnr_nak_received", s->rnr_nak_received);
    number(t, "duplicates", s->duplicates);
    number(t, "dropped_state", s->dropped_state);
    number(t, "dropped_no_wqe", s->dropped_no_wqe);
    number(t, "dropped_length", s->dropped_length);
    number(t, "dropped_qkey", s->dropped_qkey);
    number(t, "dropped_pkey", s->dropped_pkey);
    number(t, "ring_full", s->ring_full);
    number(t, "adder_overflows", s->adder_overflows);
    number(t, "cqes", s->cqes);
    close_bracket(t, '}');
    close_bracket(t, '}');
}

static void report_eq(Text *t, const EhcaEq *eq, const char *key)
{
    open_key(t, key, '{');
    truth(t, "allocated", eq->kind != EHCA_KIND_NONE);
    number(t, "entries", eq->queue.entries);
    number(t, "produced", eq->produced);
    number(t, "dropped", eq->overflows);
    close_bracket(t, '}');
}

char *ehca_report(EhcaAdapter *a)
{
    Text t = { 0 };

    open_key(&t, NULL, '{');
    word(&t, "adapter", "ehca");
    number(&t, "t_ns", ehca_now(a));
    comma(&t);
    put(&t, "\"node_guid\":\"0x%016llx\"",
        (unsigned long long)a->config.node_guid);
    open_key(&t, "in_use", '{');
    number(&t, "qp", a->qps.used);
    number(&t, "cq", a->cqs.used);
    number(&t, "mr", a->mrs);
    number(&t, "mw", a->mws);
    number(&t, "mr_pages", a->mr_pages);
    number(&t, "queue_pages", a->queue_pages);
    number(&t, "multicast", a->mcast_used);
    close_bracket(&t, '}');
    report_eq(&t, &a->eq, "eq");
    report_eq(&t, &a->neq, "neq");
    open_key(&t, "ports", '[');
    for (unsigned p = 1; p <= a->config.num_ports; p++) {
        report_port(&t, &a->ports[p]);
    }
    close_bracket(&t, ']');
    open_key(&t, "qps", '[');
    for (uint32_t i = 0; i < a->qps.size; i++) {
        if (a->qps.objects[i]) {
            report_qp(&t, a->qps.objects[i]);
        }
    }
    close_bracket(&t, ']');
    open_key(&t, "cqs", '[');
    for (uint32_t i = 0; i < a->cqs.size; i++) {
        const EhcaCq *cq = a->cqs.objects[i];

        if (cq) {
            open_key(&t, NULL, '{');
            number(&t, "cq", i);
            number(&t, "token", cq->token);
            number(&t, "entries", cq->queue.entries);
            number(&t, "used", atomic_load(&cq->regs->used));
            number(&t, "cqes", cq->cqes);
            number(&t, "events", cq->events);
            truth(&t, "error", cq->error);
            close_bracket(&t, '}');
        }
    }
    close_bracket(&t, ']');
    close_bracket(&t, '}');
    if (t.failed) {
        free(t.buf);
        return NULL;
    }
    return t.buf;
}
