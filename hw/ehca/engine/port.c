/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Ports: activation, state and port events, sorting of incoming packets,
 * sending, and the firmware's agents (interface sections 8.2 to 8.5, 10,
 * 14.4, 18; apm-and-cm section 5).
 *
 * Theory of operation.
 *
 * Activation.  A port is Disabled until its rule is fulfilled (QP1 defined,
 * QP0 in RTR, or always); then it is Polling and tells the fabric that it
 * wants its link.  With the link up it is in Init, and the subnet manager
 * brings it to Armed and Active.  When the rule does not hold any more (the QP
 * is freed), the port is Disabled again.
 *
 * Events for the guest, none before H_DEFINE_AQP1 of the port (14.4):
 *   becomes Active                    0x30 available
 *   leaves Active                     0x30 unavailable
 *   LID, LMC, SM, P_Keys, GIDs
 *     change while Active             0x31 not disruptive
 *   SM asks for re-registration       0x34 / 0x80
 *   H_DEFINE_AQP1 on an Active port   0x30 available
 *
 * Incoming packets are checked in this order: form (ib_packet_parse), ICRC,
 * port state, DLID, VL, then by destination QP:
 *   0         SMPs: the firmware's SMA; responses go to the QP of
 *             H_DEFINE_AQP0 if there is one
 *   1         the GSI QP, performance MADs included: the driver redirects
 *             those to
 *   PMA QPN   the firmware's performance agent
 *   multicast all attached QPs of the port
 *   other     the QP's requester, responder or UD receiver
 * What the firmware has to send waits in a bounded queue per port; when that
 * is full it is dropped and counted, as VL15 may be.
 */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

#define MGMT_MASK (EHCA_MGMT_SLOTS - 1)
#define DEFAULT_GID_PREFIX UINT64_C(0xFE80000000000000)
/* Capability bits that H_MODIFY_PORT may change (8.3). */
#define CHANGEABLE_CAPABILITIES 0x001B0202u

_Static_assert((EHCA_MGMT_SLOTS & MGMT_MASK) == 0, "a ring");

/* ------------------------------------------------------------------ */
/* What a port is and has                                             */
/* ------------------------------------------------------------------ */

bool ehca_port_active(const EhcaPort *port)
{
    return ib_sma_port_usable(&port->adapter->sma, port->number);
}

bool ehca_port_own_lid(const EhcaPort *port, uint16_t lid)
{
    const IbPortInfo *info = &ehca_sma_port(port)->info;

    return info->lid && lid >> info->lmc == info->lid >> info->lmc;
}

uint16_t ehca_port_slid(const EhcaPort *port, unsigned path_bits)
{
    const IbPortInfo *info = &ehca_sma_port(port)->info;

    return info->lid | (path_bits & ((1u << info->lmc) - 1));
}

uint8_t ehca_port_vl(const EhcaPort *port, uint8_t sl)
{
    uint8_t pair = ehca_sma_port(port)->sl_to_vl[(sl & 15) / 2];

    return sl & 1 ? pair & 15 : pair >> 4;
}

uint16_t ehca_port_pkey(const EhcaPort *port, unsigned index)
{
    return index < IB_SMA_PKEYS ? ehca_sma_port(port)->pkeys[index] : 0;
}

static unsigned gid_count(const EhcaPort *port)
{
    unsigned cap = ehca_sma_port(port)->info.guid_cap;

    return cap >= 1 && cap <= IB_SMA_GUIDS ? cap : IB_SMA_GUIDS;
}

void ehca_port_gid(const EhcaPort *port, unsigned index, uint8_t gid[16])
{
    const IbSmaPort *sp = ehca_sma_port(port);

    ib_put64(gid, sp->info.gid_prefix ? sp->info.gid_prefix
                                      : DEFAULT_GID_PREFIX);
    ib_put64(gid + 8, index < IB_SMA_GUIDS ? sp->guids[index] : 0);
}

/* Same partition, and at least one of the two a full member (10.9.3). */
bool ehca_pkey_match(uint16_t a, uint16_t b)
{
    return (a & 0x7FFF) && (a & 0x7FFF) == (b & 0x7FFF) && ((a | b) & 0x8000);
}

/* Notice details of traps 257 and 258 (apm-and-cm 4.1, less 10 bytes). */
static void key_trap(EhcaPort *port, uint16_t trap, uint32_t key,
                     const IbPacket *pkt, uint32_t src_qpn)
{
    uint8_t details[54] = { 0 };

    ib_put16(details + 2, pkt->lrh.slid);
    ib_put16(details + 4, pkt->lrh.dlid);
    ib_put32(details + 6, key);
    details[10] = pkt->lrh.sl << 4;
    ib_put24(details + 11, src_qpn);
    ib_put24(details + 15, pkt->bth.dest_qpn);
    if (pkt->has_grh) {
        memcpy(details + 18, pkt->grh.sgid, 16);
        memcpy(details + 34, pkt->grh.dgid, 16);
    }
    ib_sma_trap(&port->adapter->sma, port->number, trap, details);
}

static void count16(uint16_t *counter)
{
    if (*counter != UINT16_MAX) {
        (*counter)++;
    }
}

void ehca_port_bad_pkey(EhcaPort *port, const IbPacket *pkt, uint32_t qp1)
{
    count16(&ehca_sma_port(port)->info.p_key_violations);
    key_trap(port, IB_TRAP_BAD_PKEY, pkt->bth.pkey, pkt, qp1);
}

void ehca_port_bad_qkey(EhcaPort *port, const IbPacket *pkt, uint32_t qp1)
{
    count16(&ehca_sma_port(port)->info.q_key_violations);
    key_trap(port, IB_TRAP_BAD_QKEY, pkt->deth.qkey, pkt, qp1);
}

/* ------------------------------------------------------------------ */
/* State                                                              */
/* ------------------------------------------------------------------ */

bool ehca_port_splice_waiters(EhcaPort *port)
{
    EhcaAdapter *a = port->adapter;
    bool active = ehca_port_active(port);
    bool requests = false;
    bool room[EHCA_RINGS] = {
        [EHCA_RING_WIRE] = !active || !port->attached ||
                           port->tx.broken || ib_ring_room(&port->tx) > 0,
        [EHCA_RING_LOOP] = !active || ib_ring_room(&port->loop_tx) > 0,
    };

    for (int i = 0; i < EHCA_RINGS; i++) {
        if (room[i]) {
            requests |= !ehca_list_empty(&port->wait[i].req);
            /* Before those who come only now: they would take the room. */
            ehca_list_prepend(&a->resp_run, &port->wait[i].resp);
            ehca_list_prepend(&a->req_run, &port->wait[i].req);
        }
    }
    return requests;
}

static bool link_is_up(const EhcaPort *port)
{
    return ehca_sma_port(port)->info.phys_state == IB_PHYS_LINK_UP;
}

/*
 * What the port wants of its cable may have changed, or what the cable does.
 * A port that starts to want its link finds it trained if the owner never
 * said that it went down.
 */
static void update_link(EhcaPort *port)
{
    EhcaAdapter *a = port->adapter;
    unsigned phys = ehca_sma_port(port)->info.phys_state;
    bool wants = port->enabled && phys != IB_PHYS_DISABLED &&
                 phys != IB_PHYS_SLEEP;

    if (wants != port->wants_link) {
        port->wants_link = wants;
        if (a->started) {
            a->ops.port_enable(a->opaque, port->number, wants);
        }
    }
    if (port->wants_link && port->cable_up && !link_is_up(port)) {
        ib_sma_link_up(&a->sma, port->number, port->cable_speed,
                       port->cable_width);
    }
}

bool ehca_port_wants_link(const EhcaAdapter *a, unsigned port)
{
    return port >= 1 && port <= a->config.num_ports &&
           a->ports[port].wants_link;
}

static void sma_changed(void *opaque, unsigned number, unsigned changes,
                        unsigned old_state)
{
    EhcaAdapter *a = opaque;
    EhcaPort *port = ehca_port(a, number);
    unsigned state;

    if (!port) {
        return;
    }
    state = ehca_sma_port(port)->info.state;
    if (changes & IB_SMA_CHANGE_STATE && state != old_state) {
        ehca_emit(a, &(EhcaEvent) {
            .kind = EHCA_EVENT_PORT_STATE, .port = number,
            .from = old_state, .to = state,
        });
        if (state == IB_PORT_ACTIVE) {
            ehca_neq_port(port, EHCA_NEQE_PORT_AVAIL, EHCA_NEQE_PORT_FLAG);
        } else if (old_state == IB_PORT_ACTIVE) {
            ehca_neq_port(port, EHCA_NEQE_PORT_AVAIL, 0);
        }
        /* What waits for room of a port that carries nothing is lost. */
        ehca_port_splice_waiters(port);
        ehca_wake(a);
    } else if (state == IB_PORT_ACTIVE &&
               changes & (IB_SMA_CHANGE_LID | IB_SMA_CHANGE_SM |
                          IB_SMA_CHANGE_PKEY | IB_SMA_CHANGE_GID)) {
        ehca_neq_port(port, EHCA_NEQE_PORT_CONFIG, 0);
    }
    if (changes & IB_SMA_CHANGE_REREGISTER) {
        ehca_neq_port(port, EHCA_NEQE_SPECIFIC,
                      (uint64_t)EHCA_NEQE_CLIENT_REREGISTER <<
                      EHCA_NEQE_SPECIFIC_SHIFT);
    }
    if (changes & IB_SMA_CHANGE_PHYS && port->wants_link &&
        ehca_sma_port(port)->info.phys_state == IB_PHYS_POLLING &&
        port->cable_up && a->started) {
        /* The SM took the port down: the other end shall see that. */
        a->ops.port_enable(a->opaque, number, false);
        a->ops.port_enable(a->opaque, number, true);
    }
    update_link(port);
}

void ehca_port_set_enabled(EhcaPort *port, bool enabled)
{
    if (port->enabled != enabled) {
        port->enabled = enabled;
        ib_sma_port_enable(&port->adapter->sma, port->number, enabled);
        update_link(port);
    }
}

/* The state of the QP defined as QP0 changed: a rule may depend on it. */
void ehca_port_qp0_changed(EhcaPort *port)
{
    unsigned state = port->smi ? port->smi->attr.state : EHCA_QPS_RESET;

    if (port->adapter->config.activation == EHCA_ACTIVATE_QP0) {
        ehca_port_set_enabled(port, state == EHCA_QPS_RTR ||
                              state == EHCA_QPS_RTS ||
                              state == EHCA_QPS_SQD || state == EHCA_QPS_SQE);
    }
}

void ehca_port_forget_qp(EhcaQp *qp)
{
    EhcaPort *port = ehca_port(qp->adapter, qp->special_port);

    if (!port) {
        return;
    }
    if (port->gsi == qp) {
        port->gsi = NULL;
        if (qp->adapter->config.activation == EHCA_ACTIVATE_AQP1) {
            ehca_port_set_enabled(port, false);
        }
    }
    if (port->smi == qp) {
        port->smi = NULL;
        ehca_port_qp0_changed(port);
    }
    qp->special_port = 0;
}

void ehca_port_attach(EhcaAdapter *a, unsigned number, const IbRing *tx,
                      const IbRing *rx)
{
    EhcaPort *port = ehca_port(a, number);

    if (port) {
        port->tx = *tx;
        port->rx = *rx;
        port->attached = true;
        ehca_port_splice_waiters(port);
        ehca_wake(a);
    }
}

void ehca_port_detach(EhcaAdapter *a, unsigned number)
{
    EhcaPort *port = ehca_port(a, number);

    if (port) {
        ehca_port_link(a, number, false, 0, 0);
        port->attached = false;
        port->mgmt_head = port->mgmt_tail;
        ehca_port_splice_waiters(port);
    }
}

void ehca_port_link(EhcaAdapter *a, unsigned number, bool up, uint8_t speed,
                    uint8_t width)
{
    EhcaPort *port = ehca_port(a, number);

    if (!port) {
        return;
    }
    port->cable_up = up;
    port->cable_speed = speed;
    port->cable_width = width;
    if (!up) {
        ib_sma_link_down(&a->sma, number);
        port->mgmt_head = port->mgmt_tail;
    }
    update_link(port);
}

/* ------------------------------------------------------------------ */
/* Sending                                                            */
/* ------------------------------------------------------------------ */

EhcaTxResult ehca_tx_begin(EhcaPort *port, uint16_t dlid, bool smp,
                           EhcaTx *tx)
{
    tx->port = port;
    tx->multicast = dlid >= IB_LID_MCAST_FIRST && dlid <= IB_LID_MCAST_LAST;
    tx->loop = ehca_port_own_lid(port, dlid);
    if (smp ? !link_is_up(port) : !ehca_port_active(port)) {
        port->stats.dropped_not_active++;
        ehca_sma_port(port)->counters.xmit_discards++;
        return EHCA_TX_DEAD;
    }
    tx->ring = tx->loop ? &port->loop_tx : &port->tx;
    if (!tx->loop && (!port->attached || port->tx.broken)) {
        ehca_sma_port(port)->counters.xmit_discards++;
        return EHCA_TX_DEAD;
    }
    tx->p = ib_ring_reserve(tx->ring);
    if (tx->p) {
        return EHCA_TX_OK;
    }
    if (tx->ring->broken) {
        ehca_sma_port(port)->counters.xmit_discards++;
        return EHCA_TX_DEAD;
    }
    if (tx->loop) {
        return EHCA_TX_WAIT_LOOP;
    }
    ehca_sma_port(port)->counters.xmit_wait++;
    return EHCA_TX_WAIT_WIRE;
}

void ehca_tx_end(EhcaTx *tx, size_t len)
{
    EhcaPort *port = tx->port;
    IbPortCounters *counters = &ehca_sma_port(port)->counters;

    if (tx->multicast && ehca_mcast_local(port, ib_get16(tx->p + 2))) {
        uint8_t *copy = ib_ring_reserve(&port->loop_tx);

        if (copy) {
            memcpy(copy, tx->p, len);
            ib_ring_commit(&port->loop_tx, len);
        } else {
            port->stats.dropped_mcast++;
        }
    }
    if (tx->loop) {
        ib_ring_commit(tx->ring, len);
        return;
    }
    counters->xmit_pkts++;
    counters->xmit_data += len / 4;
    if (tx->multicast) {
        counters->multicast_xmit_pkts++;
    } else {
        counters->unicast_xmit_pkts++;
    }
    if (ib_ring_commit(tx->ring, len)) {
        port->kick_due = true;
    }
}

void ehca_tx_path(const EhcaQp *qp, EhcaPort *port, IbPacket *pkt)
{
    const EhcaPath *path = &qp->attr.path[EHCA_PRIMARY];

    pkt->lrh.sl = path->service_level;
    pkt->lrh.vl = ehca_port_vl(port, path->service_level);
    pkt->lrh.dlid = path->dlid;
    pkt->lrh.slid = ehca_port_slid(port, path->source_path_bits);
    pkt->bth.pkey = ehca_port_pkey(port, path->pkey_idx);
    pkt->has_grh = path->send_grh;
    if (path->send_grh) {
        pkt->grh.traffic_class = path->traffic_class;
        pkt->grh.flow_label = path->flow_label;
        pkt->grh.hop_limit = path->hop_limit;
        ehca_port_gid(port, path->source_gid_idx, pkt->grh.sgid);
        memcpy(pkt->grh.dgid, path->dest_gid, 16);
    }
}

static void mgmt_queue(EhcaPort *port, const IbMadAddress *to,
                       const uint8_t *mad)
{
    EhcaMgmt *m;

    if (port->mgmt_head - port->mgmt_tail == EHCA_MGMT_SLOTS) {
        port->stats.dropped_mgmt++;
        ehca_sma_port(port)->counters.vl15_dropped++;
        return;
    }
    m = &port->mgmt[port->mgmt_head++ & MGMT_MASK];
    m->to = *to;
    if (to->dest_qpn == 0) {
        m->to.vl = IB_VL_MANAGEMENT;
    }
    memcpy(m->mad, mad, IB_MAD_LEN);
    ehca_wake(port->adapter);
}

unsigned ehca_port_send_mgmt(EhcaPort *port, unsigned budget)
{
    unsigned sent = 0;

    while (sent < budget && port->mgmt_tail != port->mgmt_head) {
        EhcaMgmt *m = &port->mgmt[port->mgmt_tail & MGMT_MASK];
        EhcaTx tx;

        switch (ehca_tx_begin(port, m->to.dlid, m->to.dest_qpn == 0, &tx)) {
        case EHCA_TX_OK:
            ehca_tx_end(&tx, ib_mad_packet(tx.p, &m->to, m->mad));
            break;
        case EHCA_TX_DEAD:
            break;
        case EHCA_TX_WAIT_WIRE:
        case EHCA_TX_WAIT_LOOP:
            return sent;
        }
        port->mgmt_tail++;
        sent++;
    }
    return sent;
}

static void sma_send(void *opaque, unsigned number, const IbMadAddress *to,
                     const uint8_t *mad)
{
    EhcaPort *port = ehca_port(opaque, number);

    if (port) {
        mgmt_queue(port, to, mad);
    }
}

/* ------------------------------------------------------------------ */
/* Receiving                                                          */
/* ------------------------------------------------------------------ */

/* MADs that an SM or a MAD client asked for, not questions to an agent. */
static bool is_answer(const uint8_t *mad)
{
    IbMadHeader hdr;

    ib_mad_header_unpack(&hdr, mad);
    return hdr.method & IB_METHOD_RESPONSE_BIT ||
           hdr.method == IB_METHOD_TRAP ||
           hdr.attr_id == IB_SM_SM_INFO;
}

static void receive_smp(EhcaPort *port, const IbPacket *pkt,
                        const uint8_t *grh, const uint8_t *payload)
{
    EhcaAdapter *a = port->adapter;
    uint8_t mad[IB_MAD_LEN];
    IbMadAddress from, to;
    unsigned out_number = port->number;
    EhcaPort *out;

    if (pkt->payload_len != IB_MAD_LEN ||
        pkt->bth.opcode != (IB_TRANSPORT_UD | IB_OP_SEND_ONLY)) {
        port->stats.dropped_vl15++;
        return;
    }
    memcpy(mad, payload, IB_MAD_LEN);
    if (mad[1] != IB_CLASS_SM_LID && mad[1] != IB_CLASS_SM_DR) {
        port->stats.dropped_vl15++;
        return;
    }
    if (port->smi && is_answer(mad)) {
        ehca_ud_receive(port->smi, port, pkt, grh, payload);
        return;
    }
    ib_mad_address_from(&from, pkt);
    memset(&to, 0, sizeof(to));
    switch (ib_sma_receive(&a->sma, port->number, &from, mad, &out_number,
                           &to)) {
    case IB_SMA_REPLY:
        out = ehca_port(a, out_number);
        mgmt_queue(out ? out : port, &to, mad);
        break;
    case IB_SMA_FORWARD:               /* a CA forwards nothing */
    case IB_SMA_DELIVER:               /* there is no SM here */
    case IB_SMA_DROP:
        break;
    }
}

static void receive_pma(EhcaPort *port, const IbPacket *pkt,
                        const uint8_t *payload)
{
    uint8_t mad[IB_MAD_LEN];
    IbMadAddress from, to;

    if (pkt->payload_len != IB_MAD_LEN ||
        pkt->bth.opcode != (IB_TRANSPORT_UD | IB_OP_SEND_ONLY)) {
        port->stats.dropped_mgmt++;
        return;
    }
    if (pkt->deth.qkey != EHCA_QP1_QKEY) {
        ehca_port_bad_qkey(port, pkt, pkt->deth.src_qpn);
        return;
    }
    memcpy(mad, payload, IB_MAD_LEN);
    if (mad[1] != IB_CLASS_PM ||
        !ib_pma_receive(&port->adapter->sma, port->number, mad)) {
        port->stats.dropped_mgmt++;
        return;
    }
    ib_mad_address_from(&from, pkt);
    ib_mad_address_turn(&to, &from);
    to.vl = ehca_port_vl(port, to.sl);
    mgmt_queue(port, &to, mad);
}

static bool dlid_is_ours(EhcaPort *port, const IbPacket *pkt)
{
    uint16_t dlid = pkt->lrh.dlid;

    if (dlid == IB_LID_PERMISSIVE) {
        return pkt->bth.dest_qpn == 0;
    }
    if (dlid >= IB_LID_MCAST_FIRST) {
        return pkt->bth.dest_qpn == IB_QPN_MULTICAST;
    }
    return ehca_port_own_lid(port, dlid);
}

static void receive_qp(EhcaPort *port, const IbPacket *pkt, const uint8_t *grh,
                       const uint8_t *payload, bool loopback)
{
    EhcaQp *qp = ehca_qp_by_number(port->adapter, pkt->bth.dest_qpn);
    unsigned transport = pkt->bth.opcode & IB_TRANSPORT_MASK;
    static const uint8_t transports[] = {
        [EHCA_SERVICE_RC] = IB_TRANSPORT_RC,
        [EHCA_SERVICE_UC] = IB_TRANSPORT_UC,
        [EHCA_SERVICE_RD] = IB_TRANSPORT_RD,
        [EHCA_SERVICE_UD] = IB_TRANSPORT_UD,
    };

    if (!qp || qp->kind == EHCA_QPKIND_SRQ || qp->special_port ||
        transports[qp->service] != transport) {
        port->stats.dropped_qpn++;
        return;
    }
    if (transport == IB_TRANSPORT_UD) {
        ehca_ud_receive(qp, port, pkt, grh, payload);
        return;
    }
    if (qp->attr.state != EHCA_QPS_RTR && qp->attr.state != EHCA_QPS_RTS &&
        qp->attr.state != EHCA_QPS_SQD) {
        qp->stats.dropped_state++;
        return;
    }
    if (!ehca_apm_receive(qp, port, pkt, loopback)) {
        return;
    }
    qp->stats.packets_received++;
    qp->stats.bytes_received += pkt->payload_len;
    switch (pkt->bth.opcode & IB_OP_MASK) {
    case IB_OP_READ_RESP_FIRST:
    case IB_OP_READ_RESP_MIDDLE:
    case IB_OP_READ_RESP_LAST:
    case IB_OP_READ_RESP_ONLY:
    case IB_OP_ACK:
    case IB_OP_ATOMIC_ACK:
        ehca_requester_response(qp, pkt, payload);
        break;
    default:
        ehca_responder_request(qp, port, pkt, payload);
        break;
    }
}

static void receive_packet(EhcaPort *port, const uint8_t *p, uint32_t len,
                           bool loopback)
{
    IbPortCounters *counters = &ehca_sma_port(port)->counters;
    uint8_t headers[IB_HEADERS_MAX];
    const uint8_t *grh = headers + IB_LRH_LEN;
    IbPacketError error;
    IbPacket pkt;

    /*
     * The other side may write to the slot while we look at it: everything
     * that is decided upon is decided from this copy.  The parser reads no
     * further than the headers.
     */
    memcpy(headers, p, len < sizeof(headers) ? len : sizeof(headers));
    error = ib_packet_parse(&pkt, headers, len);
    if (error == IB_PACKET_OK && !ib_icrc_ok(p, len)) {
        error = IB_PACKET_BAD_ICRC;
    }
    if (error != IB_PACKET_OK) {
        port->stats.packet_errors[error]++;
        counters->rcv_errors++;
        return;
    }
    if (!loopback) {
        counters->rcv_pkts++;
        counters->rcv_data += len / 4;
        if (pkt.lrh.dlid >= IB_LID_MCAST_FIRST &&
            pkt.lrh.dlid <= IB_LID_MCAST_LAST) {
            counters->multicast_rcv_pkts++;
        } else {
            counters->unicast_rcv_pkts++;
        }
    }
    if (pkt.bth.dest_qpn == 0 ? !link_is_up(port) : !ehca_port_active(port)) {
        port->stats.dropped_rx_not_active++;
        return;
    }
    if (!dlid_is_ours(port, &pkt)) {
        port->stats.dropped_lid++;
        return;
    }
    /* VL 15 is for SMPs, and SMPs are for VL 15 (3.5.7). */
    if ((pkt.lrh.vl == IB_VL_MANAGEMENT) != (pkt.bth.dest_qpn == 0)) {
        port->stats.dropped_vl15++;
        return;
    }
    p += pkt.header_len;
    if (pkt.bth.dest_qpn == 0) {
        receive_smp(port, &pkt, grh, p);
    } else if (pkt.bth.dest_qpn == 1) {
        if (port->gsi && pkt.has_deth) {
            ehca_ud_receive(port->gsi, port, &pkt, grh, p);
        } else {
            port->stats.dropped_qpn++;
        }
    } else if (pkt.bth.dest_qpn == port->pma_qpn) {
        receive_pma(port, &pkt, p);
    } else if (pkt.bth.dest_qpn == IB_QPN_MULTICAST) {
        if (pkt.has_grh && pkt.has_deth &&
            pkt.lrh.dlid >= IB_LID_MCAST_FIRST) {
            ehca_mcast_receive(port, &pkt, grh, p);
        } else {
            port->stats.dropped_mcast++;
        }
    } else {
        receive_qp(port, &pkt, grh, p, loopback);
    }
}

static unsigned receive_ring(EhcaPort *port, IbRing *ring, unsigned budget,
                             bool loopback)
{
    unsigned received = 0;
    const uint8_t *p;
    uint32_t len;

    while (received < budget && (p = ib_ring_peek(ring, &len))) {
        receive_packet(port, p, len, loopback);
        if (ib_ring_consume(ring) && !loopback) {
            port->kick_due = true;
        }
        received++;
    }
    return received;
}

unsigned ehca_port_receive(EhcaPort *port, unsigned budget)
{
    /* Each its own share: talking to oneself must not starve the wire. */
    unsigned received = receive_ring(port, &port->loop_rx, budget, true);

    if (port->attached) {
        ib_ring_consumer_awake(&port->rx);
        received += receive_ring(port, &port->rx, budget, false);
    }
    return received;
}

bool ehca_port_has_work(EhcaPort *port)
{
    uint32_t len;

    if (ib_ring_peek(&port->loop_rx, &len)) {
        return true;
    }
    if (!port->attached) {
        return false;
    }
    if (ib_ring_peek(&port->rx, &len)) {
        return true;
    }
    return port->mgmt_head != port->mgmt_tail && ib_ring_room(&port->tx) > 0;
}

/* ------------------------------------------------------------------ */
/* Hypervisor calls                                                   */
/* ------------------------------------------------------------------ */

int64_t ehca_port_query(EhcaCall *call)
{
    EhcaAdapter *a = call->a;
    EhcaPort *port = call->port;
    const IbSmaPort *sp = ehca_sma_port(port);
    const IbPortInfo *info = &sp->info;
    bool negotiated = info->state >= IB_PORT_ARMED &&
                      ib_mtu_bytes(info->neighbor_mtu);
    const struct { uint16_t offset; uint32_t value; } words[] = {
        { EHCA_PORTCB_STATE, info->state },
        { EHCA_PORTCB_BAD_PKEY_CNTR, info->p_key_violations },
        { EHCA_PORTCB_LMC, info->lmc },
        { EHCA_PORTCB_LID, info->lid },
        { EHCA_PORTCB_SUBNET_TIMEOUT, info->subnet_timeout },
        { EHCA_PORTCB_QKEY_VIOL_CNTR, info->q_key_violations },
        { EHCA_PORTCB_SM_SL, info->sm_sl },
        { EHCA_PORTCB_SM_LID, info->sm_lid },
        { EHCA_PORTCB_CAPABILITY_MASK, info->capability_mask },
        { EHCA_PORTCB_INIT_TYPE_REPLY, info->init_type_reply },
        { EHCA_PORTCB_PKEY_TBL_LEN, EHCA_MAX_PKEYS },
        { EHCA_PORTCB_GID_TBL_LEN, gid_count(port) },
        { EHCA_PORTCB_PORT_NR, port->number },
        { EHCA_PORTCB_MAX_MTU, negotiated ? info->neighbor_mtu
                                          : info->mtu_cap },
        { EHCA_PORTCB_VL_CAP, info->vl_cap },
        { EHCA_PORTCB_PHYS_PSTATE, info->phys_state },
        { EHCA_PORTCB_PHYS_STATE, info->state },
        { EHCA_PORTCB_PHYS_SPEED, info->speed_active ? info->speed_active
                                                     : EHCA_SPEED_SDR },
        { EHCA_PORTCB_PHYS_WIDTH, info->width_active ? info->width_active
                                                     : EHCA_WIDTH_4X },
    };
    uint8_t cb[EHCA_PORTCB_SIZE] = { 0 };

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        ib_put32(cb + words[i].offset, words[i].value);
    }
    ib_put64(cb + EHCA_PORTCB_GID_PREFIX,
             info->gid_prefix ? info->gid_prefix : DEFAULT_GID_PREFIX);
    ib_put64(cb + EHCA_PORTCB_MAX_MSG_SZ, EHCA_MAX_MESSAGE);
    for (unsigned i = 0; i < EHCA_MAX_PKEYS; i++) {
        ib_put16(cb + EHCA_PORTCB_PKEY_ENTRIES + 2 * i, sp->pkeys[i]);
        /*
         * Mirrors for drivers that step by 32 bytes, where nothing else is
         * (10.3): not 2 and 3.
         */
        if (i == 1 || i >= 4) {
            ib_put16(cb + EHCA_PORTCB_PKEY_ENTRIES + 32 * i, sp->pkeys[i]);
        }
    }
    for (unsigned i = 0; i < gid_count(port); i++) {
        ib_put64(cb + EHCA_PORTCB_GUID_ENTRIES + 8 * i, sp->guids[i]);
    }
    a->ops.dma_write(a->opaque, call->block, cb, sizeof(cb));
    return EHCA_RC_SUCCESS;
}

/* Section 8.3: r6 is the new capability mask. */
int64_t ehca_port_modify(EhcaCall *call)
{
    EhcaPort *port = call->port;
    IbPortInfo *info = &ehca_sma_port(port)->info;
    uint32_t mask = call->in[2] & EHCA_MODPORT_CAPMASK;

    if (mask & EHCA_MODPORT_RESET_QKEY_CNTR &&
        !(info->capability_mask & EHCA_MODPORT_RESET_QKEY_CNTR)) {
        info->q_key_violations = 0;
    }
    ib_sma_set_capability(&call->a->sma, port->number,
                          (info->capability_mask & ~CHANGEABLE_CAPABILITIES) |
                          (mask & CHANGEABLE_CAPABILITIES));
    return EHCA_RC_SUCCESS;
}

int64_t ehca_port_perf_count(EhcaCall *call)
{
    EhcaAdapter *a = call->a;
    const IbSmaPort *sp = ehca_sma_port(call->port);
    const IbPortCounters *c = &sp->counters;
    const struct { uint16_t offset; uint64_t value; } counters[] = {
        { EHCA_PERF_SYMBOL_ERROR, c->symbol_error },
        { EHCA_PERF_LINK_ERROR_RECOVERY, c->link_error_recovery },
        { EHCA_PERF_LINK_DOWNED, c->link_downed },
        { EHCA_PERF_RCV_ERRORS, c->rcv_errors },
        { EHCA_PERF_RCV_REMOTE_PHYSICAL_ERRORS,
          c->rcv_remote_physical_errors },
        { EHCA_PERF_RCV_SWITCH_RELAY_ERRORS, c->rcv_switch_relay_errors },
        { EHCA_PERF_XMIT_DISCARDS, c->xmit_discards },
        { EHCA_PERF_XMIT_CONSTRAINT_ERRORS, c->xmit_constraint_errors },
        { EHCA_PERF_RCV_CONSTRAINT_ERRORS, c->rcv_constraint_errors },
        { EHCA_PERF_LOCAL_LINK_INTEGRITY_ERRORS,
          c->local_link_integrity_errors },
        { EHCA_PERF_EXCESSIVE_BUFFER_OVERRUN_ERRORS,
          c->excessive_buffer_overrun },
        { EHCA_PERF_VL15_DROPPED, c->vl15_dropped },
        { EHCA_PERF_XMIT_DATA, c->xmit_data },
        { EHCA_PERF_RCV_DATA, c->rcv_data },
        { EHCA_PERF_XMIT_PKTS, c->xmit_pkts },
        { EHCA_PERF_RCV_PKTS, c->rcv_pkts },
        { EHCA_PERF_UNICAST_XMIT_PKTS, c->unicast_xmit_pkts },
        { EHCA_PERF_UNICAST_RCV_PKTS, c->unicast_rcv_pkts },
        { EHCA_PERF_MULTICAST_XMIT_PKTS, c->multicast_xmit_pkts },
        { EHCA_PERF_MULTICAST_RCV_PKTS, c->multicast_rcv_pkts },
        { EHCA_PERF_XMIT_WAIT, c->xmit_wait },
        { EHCA_PERF_QKEY_VIOLATIONS, sp->info.q_key_violations },
        { EHCA_PERF_PKEY_VIOLATIONS, sp->info.p_key_violations },
    };
    uint8_t block[EHCA_PERF_SIZE] = { 0 };

    ib_put32(block + EHCA_PERF_VERSION, EHCA_PERF_VERSION_1);
    ib_put32(block + EHCA_PERF_PORT, call->port->number);
    for (size_t i = 0; i < sizeof(counters) / sizeof(counters[0]); i++) {
        ib_put64(block + counters[i].offset, counters[i].value);
    }
    a->ops.dma_write(a->opaque, call->block, block, sizeof(block));
    return EHCA_RC_SUCCESS;
}

/* Common to AQP1 and AQP0: may @qp become the special QP of a port? */
static int64_t check_special(EhcaCall *call, EhcaQp *present)
{
    if (call->qp->service != EHCA_SERVICE_UD ||
        call->qp->kind != EHCA_QPKIND_NORMAL) {
        ehca_guest_error(call->a, "%s: QP 0x%x is no plain UD QP", call->name,
                         call->qp->qpn);
        return EHCA_RC_PARAMETER;
    }
    if (present || call->qp->special_port) {
        ehca_guest_error(call->a, "%s: port %u has QP 0x%x as such already; "
            "free it first", call->name, call->port->number,
            present ? present->qpn : call->qp->qpn);
        return EHCA_RC_ALIAS_EXIST;
    }
    return EHCA_RC_SUCCESS;
}

int64_t ehca_port_define_aqp1(EhcaCall *call)
{
    EhcaPort *port = call->port;
    int64_t rc = check_special(call, port->gsi);

    if (rc != EHCA_RC_SUCCESS) {
        return rc;
    }
    port->gsi = call->qp;
    call->qp->special_port = port->number;
    call->qp->attr.path[EHCA_PRIMARY].port = port->number;
    ehca_emit(call->a, &(EhcaEvent) {
        .kind = EHCA_EVENT_AQP1_DEFINED, .port = port->number,
        .qpn = call->qp->qpn,
    });
    if (ehca_port_active(port)) {
        ehca_neq_port(port, EHCA_NEQE_PORT_AVAIL, EHCA_NEQE_PORT_FLAG);
    }
    if (call->a->config.activation == EHCA_ACTIVATE_AQP1) {
        ehca_port_set_enabled(port, true);
    }
    call->out[0] = port->pma_qpn;
    call->out[1] = port->bma_qpn;
    return EHCA_RC_SUCCESS;
}

int64_t ehca_port_define_aqp0(EhcaCall *call)
{
    EhcaPort *port = call->port;
    int64_t rc = check_special(call, port->smi);

    if (rc != EHCA_RC_SUCCESS) {
        return rc;
    }
    port->smi = call->qp;
    call->qp->special_port = port->number;
    call->qp->is_smi = true;
    call->qp->attr.path[EHCA_PRIMARY].port = port->number;
    ehca_port_qp0_changed(port);
    return EHCA_RC_SUCCESS;
}

/* ------------------------------------------------------------------ */
/* Life                                                               */
/* ------------------------------------------------------------------ */

static const IbSmaOps sma_ops = {
    .changed = sma_changed,
    .send = sma_send,
};

/*
 * The loop is ours alone: its slots need no zeroes, and stay untouched, so
 * without memory behind them, until somebody talks to himself.
 */
static void format_loop(EhcaPort *port)
{
    memset(port->loop, 0, offsetof(IbRingShared, slots));
    ib_ring_init_producer(&port->loop_tx, port->loop);
    ib_ring_init_consumer(&port->loop_rx, port->loop);
}

bool ehca_ports_init(EhcaAdapter *a)
{
    ib_sma_init(&a->sma, a->clock, IB_NODE_CA, a->config.num_ports,
                a->config.node_guid, a->config.description, &sma_ops, a);
    a->sma.node.vendor_id = EHCA_VENDOR_ID;
    a->sma.node.device_id = EHCA_PART_ID;
    a->sma.node.revision = EHCA_HW_VERSION;
    a->sma.node.partition_cap = EHCA_MAX_PKEYS;
    for (unsigned p = 1; p <= a->config.num_ports; p++) {
        EhcaPort *port = &a->ports[p];
        IbSmaPort *sp = &a->sma.ports[p];

        port->adapter = a;
        port->number = p;
        port->pma_qpn = EHCA_QPN_FIRMWARE + 2 * (p - 1);
        port->bma_qpn = port->pma_qpn + 1;
        for (int i = 0; i < EHCA_RINGS; i++) {
            ehca_list_init(&port->wait[i].resp);
            ehca_list_init(&port->wait[i].req);
        }
        sp->guids[0] = a->config.port_guids[p - 1];
        sp->info.capability_mask |= IB_CAP_AUTO_MIGRATION;
        port->base_capabilities = sp->info.capability_mask;
        port->loop = aligned_alloc(64, sizeof(*port->loop));
        if (!port->loop) {
            return false;
        }
        format_loop(port);
        ib_sma_port_enable(&a->sma, p, false);
        ehca_port_set_enabled(port, a->config.activation ==
                                    EHCA_ACTIVATE_ALWAYS);
    }
    return true;
}

void ehca_ports_fini(EhcaAdapter *a)
{
    for (unsigned p = 1; p <= a->config.num_ports; p++) {
        free(a->ports[p].loop);
        a->ports[p].loop = NULL;
    }
    if (a->sma.ports) {
        ib_sma_fini(&a->sma);
    }
}

void ehca_ports_reset(EhcaAdapter *a)
{
    for (unsigned p = 1; p <= a->config.num_ports; p++) {
        EhcaPort *port = &a->ports[p];

        ehca_port_set_enabled(port, a->config.activation ==
                                    EHCA_ACTIVATE_ALWAYS);
        format_loop(port);
        port->mgmt_head = port->mgmt_tail = 0;
        ib_sma_set_capability(&a->sma, p, port->base_capabilities);
    }
}
