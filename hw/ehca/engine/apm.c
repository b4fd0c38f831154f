/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Automatic Path Migration (IBTA 17.2.8, 9.6.1.5; apm-and-cm section 1).
 *
 * Theory of operation.
 *
 *   MIGRATED --H_MODIFY_QP: REARM--> REARM --packet with MigReq 0 on the
 *   primary path, QP in RTS--> ARMED --retries used up, H_MODIFY_QP: MIGRATED,
 *   or packet with MigReq 1 on the alternate path--> MIGRATED
 *
 * MIGRATED sends MigReq 1, REARM and ARMED send 0, in every packet.  A
 * migration copies the alternate path over the primary (port, P_Key index,
 * address, SL, rate, ACK timeout), reloads the retry budget and sends again
 * from the oldest unacknowledged PSN; the QP stays in RTS.  Each side raises
 * PATH_MIG once.  The old primary is forgotten: going back needs a new load.
 *
 * The receive side is the table below: what is checked, and what a packet
 * that passes does.  The check comes before the PSN's, so duplicates and bare
 * acknowledgements arm and migrate as well.
 *
 * A request to migrate that fails the alternate's check is dropped; the guest
 * gets PATH_MIG_FAILED, once per armed period, so that a peer that repeats
 * itself does not flood the event queue.
 */
#include <string.h>

#include "internal.h"

typedef enum Passed { PASS_PROCESS, PASS_ARM, PASS_MIGRATE } Passed;
typedef enum Failed { FAIL_DROP, FAIL_REFUSE } Failed;

/* apm-and-cm 1.4; rows: EHCA_MIG_*, columns: MigReq. */
static const struct {
    uint8_t path;
    uint8_t passed;
    uint8_t failed;
} truth_table[EHCA_MIG_ARMED + 1][2] = {
    [EHCA_MIG_MIGRATED] = {
        { EHCA_PRIMARY, PASS_PROCESS, FAIL_DROP },
        { EHCA_PRIMARY, PASS_PROCESS, FAIL_DROP },
    },
    [EHCA_MIG_REARM] = {
        { EHCA_PRIMARY, PASS_ARM, FAIL_DROP },
        { EHCA_PRIMARY, PASS_PROCESS, FAIL_DROP },
    },
    [EHCA_MIG_ARMED] = {
        { EHCA_PRIMARY, PASS_PROCESS, FAIL_DROP },
        { EHCA_ALTERNATE, PASS_MIGRATE, FAIL_REFUSE },
    },
};

/* H_MODIFY_QP (1.9): rows: state now, columns: state asked for. */
static const char *const request_table[EHCA_MIG_ARMED + 1]
                                      [EHCA_MIG_ARMED + 1] = {
    [EHCA_MIG_MIGRATED] = {
        [EHCA_MIG_ARMED] = "only a packet of the peer arms a QP",
    },
    [EHCA_MIG_REARM] = {
        [EHCA_MIG_MIGRATED] = "a QP in REARM cannot be migrated by software; "
                              "it must be ARMED",
        [EHCA_MIG_ARMED] = "only a packet of the peer arms a QP",
    },
    [EHCA_MIG_ARMED] = {
        [EHCA_MIG_REARM] = "the QP is ARMED; migrate it first, or load the "
                           "alternate path alone",
        [EHCA_MIG_ARMED] = "only a packet of the peer arms a QP",
    },
};

const char *ehca_mig_state_name(unsigned state)
{
    switch (state) {
    case EHCA_MIG_MIGRATED:
        return "MIGRATED";
    case EHCA_MIG_REARM:
        return "REARM";
    case EHCA_MIG_ARMED:
        return "ARMED";
    default:
        return "unknown";
    }
}

const char *ehca_path_fault_name(EhcaPathFault fault)
{
    static const char *const names[EHCA_PATH_FAULTS] = {
        [EHCA_PATH_OK] = "ok",
        [EHCA_PATH_NO_ALTERNATE] = "no_alternate",
        [EHCA_PATH_GRH] = "grh",
        [EHCA_PATH_GID] = "gid",
        [EHCA_PATH_PKEY] = "pkey",
        [EHCA_PATH_SLID] = "slid",
        [EHCA_PATH_PORT] = "port",
    };

    return (unsigned)fault < EHCA_PATH_FAULTS ? names[fault] : "unknown";
}

bool ehca_apm_migreq(const EhcaQp *qp)
{
    return qp->attr.mig_state == EHCA_MIG_MIGRATED;
}

const char *ehca_apm_check_request(const EhcaQpAttr *attr, unsigned request)
{
    if (request < EHCA_MIG_MIGRATED || request > EHCA_MIG_ARMED) {
        return "path migration states are 1 MIGRATED, 2 REARM";
    }
    if (request == EHCA_MIG_REARM && !attr->alt_loaded) {
        return "no alternate path was loaded";
    }
    return request_table[attr->mig_state][request];
}

/* GIDs are equal, or differ in the prefix only and that is the default. */
static bool gid_ok(const uint8_t *a, const uint8_t *b)
{
    static const uint8_t link_local[8] = { 0xFE, 0x80 };

    return memcmp(a + 8, b + 8, 8) == 0 &&
           (memcmp(a, b, 8) == 0 || memcmp(a, link_local, 8) == 0);
}

/* Section 1.5, in its order. */
static EhcaPathFault check_path(EhcaQp *qp, EhcaPort *port,
                                const IbPacket *pkt, unsigned which)
{
    const EhcaPath *path = &qp->attr.path[which];
    uint8_t own[16];

    if (which == EHCA_ALTERNATE && !qp->attr.alt_loaded) {
        return EHCA_PATH_NO_ALTERNATE;
    }
    if (pkt->has_grh != !!path->send_grh) {
        return EHCA_PATH_GRH;
    }
    if (pkt->has_grh) {
        ehca_port_gid(port, path->source_gid_idx, own);
        if (!gid_ok(pkt->grh.dgid, own) ||
            !gid_ok(pkt->grh.sgid, path->dest_gid)) {
            return EHCA_PATH_GID;
        }
    }
    if (!ehca_pkey_match(pkt->bth.pkey,
                         ehca_port_pkey(port, path->pkey_idx))) {
        ehca_port_bad_pkey(port, pkt, qp->attr.dest_qpn);
        return EHCA_PATH_PKEY;
    }
    if (pkt->lrh.slid != path->dlid) {
        return EHCA_PATH_SLID;
    }
    if (port->number != path->port) {
        return EHCA_PATH_PORT;
    }
    return EHCA_PATH_OK;
}

void ehca_apm_set_state(EhcaQp *qp, unsigned state, EhcaCause cause)
{
    const EhcaPath *now = &qp->attr.path[EHCA_PRIMARY];
    unsigned from = qp->attr.mig_state;

    qp->attr.mig_state = state;
    if (state == EHCA_MIG_REARM) {
        qp->stats.since_rearm[0] = qp->stats.since_rearm[1] = 0;
        qp->stats.qualifying = 0;
        qp->rearm_time_ns = ehca_now(qp->adapter);
    }
    qp->refused_told = false;
    if (from == state) {
        return;
    }
    qp->history[qp->history_count++ % EHCA_HISTORY] = (EhcaMigChange) {
        .time_ns = ehca_now(qp->adapter), .from = from, .to = state,
        .cause = cause, .old_port = now->port, .new_port = now->port,
        .dlid = now->dlid,
    };
    ehca_emit(qp->adapter, &(EhcaEvent) {
        .kind = EHCA_EVENT_MIG_STATE, .cause = cause, .qpn = qp->qpn,
        .port = now->port, .from = from, .to = state, .dlid = now->dlid,
    });
}

void ehca_apm_migrate(EhcaQp *qp, EhcaCause cause)
{
    EhcaPath *primary = &qp->attr.path[EHCA_PRIMARY];
    const EhcaPath *alternate = &qp->attr.path[EHCA_ALTERNATE];
    uint8_t old_port = primary->port;
    uint32_t retry = primary->retry_count;
    uint32_t rnr_retry = primary->rnr_retry_count;

    *primary = *alternate;
    /* Counts belong to the QP unless the load named some (1.1). */
    if (!qp->attr.alt_retry_loaded) {
        primary->retry_count = retry;
    }
    if (!qp->attr.alt_rnr_loaded) {
        primary->rnr_retry_count = rnr_retry;
    }
    qp->stats.migrations++;
    qp->await_first_payload = true;
    ehca_apm_set_state(qp, EHCA_MIG_MIGRATED, cause);
    qp->history[(qp->history_count - 1) % EHCA_HISTORY].old_port = old_port;
    ehca_eq_qp_event(qp, EHCA_EQE_PATH_MIG);

    ehca_requester_reload(qp);
    ehca_requester_restart(qp);
    /* What waited for the old port's ring goes to the new one's. */
    ehca_unblock(qp);
}

bool ehca_apm_retries_used_up(EhcaQp *qp)
{
    if (qp->attr.mig_state != EHCA_MIG_ARMED) {
        return false;
    }
    ehca_apm_migrate(qp, EHCA_CAUSE_RETRIES_USED_UP);
    return true;
}

bool ehca_apm_receive(EhcaQp *qp, EhcaPort *port, const IbPacket *pkt,
                      bool loopback)
{
    unsigned state = qp->attr.mig_state;
    unsigned column = pkt->bth.migreq;
    unsigned which = truth_table[state][column].path;
    EhcaPathFault fault = check_path(qp, port, pkt, which);

    if (state != EHCA_MIG_MIGRATED) {
        qp->stats.since_rearm[column]++;
    }
    if (fault != EHCA_PATH_OK) {
        qp->stats.path_faults[fault]++;
        if (truth_table[state][column].failed == FAIL_REFUSE) {
            qp->stats.refused++;
            if (!qp->refused_told) {
                qp->refused_told = true;
                ehca_eq_qp_event(qp, EHCA_EQE_PATH_MIG_FAILED);
                ehca_emit(qp->adapter, &(EhcaEvent) {
                    .kind = EHCA_EVENT_MIG_REFUSED, .qpn = qp->qpn,
                    .port = port->number, .from = state, .to = state,
                    .dlid = pkt->lrh.slid,
                    .cause = EHCA_CAUSE_PACKET_MIGREQ_1,
                });
            }
        }
        return false;
    }
    switch (truth_table[state][column].passed) {
    case PASS_PROCESS:
        break;
    case PASS_ARM:
        /* In RTS only; packets to ourselves arm nothing (1.8). */
        if (qp->attr.state == EHCA_QPS_RTS && !loopback) {
            qp->stats.qualifying++;
            ehca_apm_set_state(qp, EHCA_MIG_ARMED,
                               EHCA_CAUSE_PACKET_MIGREQ_0);
        }
        break;
    case PASS_MIGRATE:
        ehca_apm_migrate(qp, EHCA_CAUSE_PACKET_MIGREQ_1);
        break;
    }
    return true;
}

/* A payload went through on the path migrated to: the timeline's end. */
void ehca_apm_payload_seen(EhcaQp *qp)
{
    const EhcaPath *path = &qp->attr.path[EHCA_PRIMARY];

    if (qp->await_first_payload) {
        qp->await_first_payload = false;
        ehca_emit(qp->adapter, &(EhcaEvent) {
            .kind = EHCA_EVENT_FIRST_PAYLOAD, .qpn = qp->qpn,
            .port = path->port, .dlid = path->dlid,
        });
    }
}
