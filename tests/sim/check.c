/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What must never be wrong in the simulated world:
 *   states      only moves that the specification knows, of ports (7.2.7), QPs
 *               (10.3.1) and migration (17.2.8, with who may cause what)
 *   PATH_MIG    one EQE for each migration of each side, no other
 *   LIDs        unique, and never another for a port that has one
 *   ports       the driver hears of each coming and going once, in turn
 *   the guest   is never told that it did something illegal: the driver does
 *               nothing illegal
 * Messages and completions are checked where they arrive (conn.c), failovers
 * where they are caused (script.c).
 */
#include <string.h>

#include "ib/mad.h"
#include "world.h"

static bool port_move_ok(unsigned from, unsigned to)
{
    return to == IB_PORT_DOWN || (from >= IB_PORT_DOWN && to == from + 1 &&
                                  to <= IB_PORT_ACTIVE);
}

static bool qp_move_ok(unsigned from, unsigned to)
{
    switch (to) {
    case EHCA_QPS_RESET:
        return true;
    case EHCA_QPS_INIT:
        return from == EHCA_QPS_RESET;
    case EHCA_QPS_RTR:
        return from == EHCA_QPS_INIT;
    case EHCA_QPS_RTS:
        return from == EHCA_QPS_RTR || from == EHCA_QPS_SQD ||
               from == EHCA_QPS_SQE;
    case EHCA_QPS_SQD:
    case EHCA_QPS_SQE:
        return from == EHCA_QPS_RTS;
    case EHCA_QPS_ERR:
        return from != EHCA_QPS_RESET;
    default:
        return false;
    }
}

static bool mig_move_ok(unsigned from, unsigned to, EhcaCause cause)
{
    switch (to) {
    case EHCA_MIG_REARM:
        return from == EHCA_MIG_MIGRATED && cause == EHCA_CAUSE_SOFTWARE;
    case EHCA_MIG_ARMED:
        return from == EHCA_MIG_REARM && cause == EHCA_CAUSE_PACKET_MIGREQ_0;
    case EHCA_MIG_MIGRATED:
        return cause == EHCA_CAUSE_RESET ||
               (from == EHCA_MIG_ARMED &&
                (cause == EHCA_CAUSE_SOFTWARE ||
                 cause == EHCA_CAUSE_PACKET_MIGREQ_1 ||
                 cause == EHCA_CAUSE_RETRIES_USED_UP));
    default:
        return false;
    }
}

static void illegal(SimHost *sim, const EhcaEvent *event)
{
    char json[512];

    ehca_event_json(event, json, sizeof(json));
    world_fail(sim->world, "host h%u: illegal move: %s", sim->index, json);
}

void check_event(SimHost *sim, const EhcaEvent *e)
{
    World *w = sim->world;
    SimPort *port = &sim->ports[e->port <= RAILS ? e->port : 0];

    switch (e->kind) {
    case EHCA_EVENT_PORT_STATE:
        world_note(w, NOTE_PORT, sim->index, e->port, e->from, e->to, 0);
        if (!port_move_ok(e->from, e->to) || e->from != port->state) {
            illegal(sim, e);
        }
        port->state = e->to;
        if (e->to != IB_PORT_ACTIVE) {
            port->bad_ns = world_now(w);
        } else {
            sim->look_at_lids = true;
        }
        break;
    case EHCA_EVENT_QP_STATE:
        world_note(w, NOTE_QP, sim->index, e->qpn, e->from, e->to, e->cause);
        if (!qp_move_ok(e->from, e->to)) {
            illegal(sim, e);
        }
        break;
    case EHCA_EVENT_MIG_STATE:
        world_note(w, NOTE_MIG, sim->index, e->qpn, e->from, e->to, e->cause);
        if (!mig_move_ok(e->from, e->to, e->cause)) {
            illegal(sim, e);
        }
        break;
    case EHCA_EVENT_QP_ERROR:
        world_note(w, NOTE_QP_ERROR, sim->index, e->qpn, e->from, e->to,
                   e->cause);
        break;
    case EHCA_EVENT_ALT_LOADED:
        world_note(w, NOTE_ALT, sim->index, e->qpn, e->port, e->dlid, 0);
        break;
    case EHCA_EVENT_FIRST_PAYLOAD:
        world_note(w, NOTE_FIRST_PAYLOAD, sim->index, e->qpn, e->port,
                   e->dlid, 0);
        break;
    case EHCA_EVENT_MIG_REFUSED:
        world_note(w, NOTE_MIG_REFUSED, sim->index, e->qpn, e->port, e->dlid,
                   0);
        break;
    default:
        break;
    }
    conn_event(sim, e);
}

void check_eqe(SimHost *sim, const HostEqe *eqe)
{
    World *w = sim->world;
    Side *side = conn_side_by_token(sim, eqe->token);

    switch (eqe->id) {
    case EHCA_EQE_PATH_MIG:
        if (!side || ++side->path_migs > side->migrations) {
            world_fail(w, "host h%u: PATH_MIG for QP 0x%x, which did not "
                       "migrate", sim->index, eqe->number);
        }
        break;
    case EHCA_EQE_PATH_MIG_FAILED:
        w->refused++;
        /*
         * A packet that was delayed while its sender migrated there and back
         * asks for a migration that is long done; routes that change let
         * packets overtake.
         */
        if (world_now(w) >= w->ghost_until_ns &&
            world_now(w) - w->route_bad_ns > IB_SEC) {
            world_fail(w, "host h%u: QP 0x%x refused a migration although "
                       "both sides' alternates match", sim->index,
                       eqe->number);
        }
        break;
    case EHCA_EQE_COMM_EST:
        break;
    case EHCA_EQE_SQ_DRAINED:
        if (!side) {
            world_fail(w, "host h%u: SQ_DRAINED for nobody", sim->index);
        }
        side->drained++;
        break;
    default:
        world_fail(w, "host h%u: event 0x%02x for QP or CQ 0x%x, token %u",
                   sim->index, eqe->id, eqe->number, eqe->token);
    }
}

void check_neqe(SimHost *sim, const HostEqe *eqe)
{
    SimPort *port = &sim->ports[eqe->port];

    if (eqe->port < 1 || eqe->port > RAILS) {
        world_fail(sim->world, "host h%u: NEQ entry for port %u", sim->index,
                   eqe->port);
    }
    if (eqe->id == EHCA_NEQE_PORT_AVAIL) {
        if (port->available == eqe->flag) {
            world_fail(sim->world, "host h%u: port %u told %s twice",
                       sim->index, eqe->port,
                       eqe->flag ? "available" : "unavailable");
        }
        port->available = eqe->flag;
        conn_faster(sim->world);
    }
}

/* ------------------------------------------------------------------ */
/* LIDs                                                               */
/* ------------------------------------------------------------------ */

/* Is @lid in use by anybody but this port? */
static void check_unique(World *w, const SimHost *own, unsigned own_port,
                         uint16_t lid)
{
    unsigned count = 1u << w->sm_options.lmc;

    for (unsigned h = 0; h < w->num_hosts; h++) {
        for (unsigned p = 1; p <= RAILS; p++) {
            uint16_t other = w->hosts[h].ports[p].lid;

            if ((&w->hosts[h] != own || p != own_port) && w->hosts[h].host &&
                other && lid < other + count && other < lid + count) {
                world_fail(w, "LID 0x%x of h%u port %u is also h%u port %u's "
                           "(0x%x, LMC %u)", lid, own->index, own_port, h, p,
                           other, w->sm_options.lmc);
            }
        }
    }
    for (unsigned n = 0; n < w->topology->num_nodes; n++) {
        const IbSma *sma = world_switch_sma(w, n);
        uint16_t other = sma ? sma->ports[0].info.lid : 0;

        if (other && other >= lid && other < lid + count) {
            world_fail(w, "LID 0x%x of h%u port %u is also switch %s's", lid,
                       own->index, own_port, w->topology->nodes[n].name);
        }
    }
}

static void check_lids(World *w, SimHost *sim)
{
    sim->look_at_lids = false;
    for (unsigned p = 1; sim->host && p <= RAILS; p++) {
        SimPort *port = &sim->ports[p];
        HostPortInfo info;

        if (host_query_port(sim->host, p, &info) != EHCA_RC_SUCCESS) {
            world_fail(w, "host h%u: H_QUERY_PORT %u failed", sim->index, p);
        }
        if (port->state == IB_PORT_ACTIVE && !ib_lid_is_unicast(info.lid)) {
            world_fail(w, "host h%u: port %u is Active with LID 0x%x",
                       sim->index, p, info.lid);
        }
        if (info.lid && port->lid && info.lid != port->lid) {
            world_fail(w, "host h%u: LID of port %u changed from 0x%x to "
                       "0x%x", sim->index, p, port->lid, info.lid);
        }
        if (info.lid) {
            port->lid = info.lid;
            check_unique(w, sim, p, info.lid);
        }
    }
}

/* ------------------------------------------------------------------ */

void check_instant(World *w)
{
    for (unsigned h = 0; h < w->num_hosts; h++) {
        SimHost *sim = &w->hosts[h];

        if (!sim->host) {
            continue;
        }
        if (sim->look_at_lids) {
            check_lids(w, sim);
        }
        if (sim->host->guest_errors) {
            world_fail(w, "host h%u: the adapter complains: %s", h,
                       sim->host->last_guest_error);
        }
    }
    for (unsigned c = 0; c < w->num_conns; c++) {
        for (unsigned s = 0; s < 2; s++) {
            Side *side = &w->conns[c].sides[s];

            if (side->qp && side->path_migs != side->migrations) {
                world_fail(w, "connection %u side %u: %llu migrations, %llu "
                           "PATH_MIG events", c, s,
                           (unsigned long long)side->migrations,
                           (unsigned long long)side->path_migs);
            }
        }
    }
}

/* What H_QUERY_QP says must be what the events said. */
static void check_side(World *w, Side *side)
{
    unsigned port = side->conn->ports[side->rail][side->index];
    unsigned peer_port = side->conn->ports[side->rail][!side->index];
    uint16_t dlid = side->peer->sim->ports[peer_port].lid +
                    side->peer->path_bits;
    unsigned mig = host_qp_mig(side->qp), state = host_qp_state(side->qp);

    if (mig != side->mig || mig != EHCA_MIG_ARMED || state != EHCA_QPS_RTS) {
        world_fail(w, "connection %u side %u: H_QUERY_QP says state %u, "
                   "migration state %u; it must be RTS and ARMED",
                   side->conn->index, side->index, state, mig);
    }
    if (host_qp_field(side->qp, EHCA_QPCB_PRIM_PHYS_PORT) != port ||
        host_qp_field(side->qp, EHCA_QPCB_DLID) != dlid) {
        world_fail(w, "connection %u side %u: primary path by port %u to LID "
                   "0x%x; it must be port %u, 0x%x", side->conn->index,
                   side->index,
                   host_qp_field(side->qp, EHCA_QPCB_PRIM_PHYS_PORT),
                   host_qp_field(side->qp, EHCA_QPCB_DLID), port, dlid);
    }
    if (side->rail != side->peer->rail) {
        world_fail(w, "connection %u: one side on rail %u, the other on %u",
                   side->conn->index, side->rail, side->peer->rail);
    }
    if (side->await_payload && side->visible_since > 1) {
        world_fail(w, "connection %u side %u: migrated, %llu messages since, "
                   "but no first payload was told", side->conn->index,
                   side->index, (unsigned long long)side->visible_since);
    }
}

void check_healed(World *w)
{
    for (unsigned h = 0; h < w->num_hosts; h++) {
        check_lids(w, &w->hosts[h]);
        for (unsigned p = 1; p <= RAILS; p++) {
            SimHost *sim = &w->hosts[h];
            uint64_t guid = sim->host->config.port_guids[p - 1];

            if (!w->fabric) {
                continue;
            }
            if (sm_lid_of(w->sm.sm, guid) != sim->ports[p].lid ||
                !sm_port_active(w->sm.sm, guid)) {
                world_fail(w, "the subnet manager knows LID 0x%x for h%u port "
                           "%u, which has 0x%x; %s", sm_lid_of(w->sm.sm, guid),
                           h, p, sim->ports[p].lid,
                           sm_port_active(w->sm.sm, guid) ? "Active"
                                                          : "not Active");
            }
        }
    }
    for (unsigned c = 0; c < w->num_conns; c++) {
        for (unsigned s = 0; s < 2; s++) {
            check_side(w, &w->conns[c].sides[s]);
        }
    }
}
