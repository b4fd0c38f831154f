/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The subnet manager's life: options, packets in and out, the states that
 * several SMs agree on.
 *
 * Theory of operation: every packet from the cable enters by sm_receive(),
 * the one door: it is copied, parsed, its ICRC checked, and only a MAD-sized
 * UD SEND to QP0 or QP1 goes on.  From there
 *
 *   QP0  everything           -> our own SMA (ib/sma.h), which does the work
 *                                of a directed route; it answers Get and Set
 *                                (SMInfo comes back here as an attribute that
 *                                it lacks) and hands the rest on:
 *        GetResp              -> transport.c, which knows the TID
 *        Trap                 -> notice.c, when master
 *   QP1  class SA             -> sa.c, when master
 *        class PM             -> our own performance agent
 *
 * States (14.4.1) and what moves them:
 *
 *   DISCOVERING -> STANDBY      the sweep found a master, or a better SM
 *   DISCOVERING -> MASTER       it found none
 *   STANDBY -> DISCOVERING      the master no longer answers, or is none
 *   STANDBY -> MASTER           HANDOVER from the master
 *   MASTER -> STANDBY           a sweep found a better master, or a better
 *                               SM took our HANDOVER
 *   any -> DISCOVERING          the cable of our port came back
 *   STANDBY <-> NOT-ACTIVE      DISABLE, STANDBY from the master
 *
 * Better is the higher priority, then the lower GUID.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sm/internal.h"

/* Longest packet that a MAD fits in: with a GRH. */
#define MAD_PACKET_MAX (IB_LRH_LEN + IB_GRH_LEN + IB_BTH_LEN + IB_DETH_LEN + \
                        IB_MAD_LEN + IB_ICRC_LEN)

/* AttributeModifier of Set(SMInfo), table 145. */
enum {
    SMINFO_HANDOVER = 1, SMINFO_ACKNOWLEDGE = 2, SMINFO_DISABLE = 3,
    SMINFO_STANDBY = 4, SMINFO_DISCOVER = 5,
};

const char *sm_log_level_name(SmLogLevel level)
{
    static const char *const names[] = {
        [SM_LOG_ERROR] = "error", [SM_LOG_WARN] = "warning",
        [SM_LOG_INFO] = "info", [SM_LOG_DEBUG] = "debug",
    };

    return (unsigned)level < G_N_ELEMENTS(names) ? names[level] : "unknown";
}

const char *sm_state_name(SmState state)
{
    static const char *const names[] = {
        [SM_NOT_ACTIVE] = "Not-Active", [SM_DISCOVERING] = "Discovering",
        [SM_STANDBY] = "Standby", [SM_MASTER] = "Master",
    };

    return (unsigned)state < G_N_ELEMENTS(names) ? names[state] : "unknown";
}

void sm_options_init(SmOptions *options)
{
    *options = (SmOptions) {
        .description = "ehca-sm",
        .gid_prefix = UINT64_C(0xFE80000000000000),
        .sm_key = 1,
        .subnet_timeout = 14,
        .packet_life = 14,
        .window = 32,
        .mad_retries = 3,
        .mad_timeout_ns = 200 * IB_MSEC,
        .sweep_ns = 10 * IB_SEC,
        .poll_ns = 1 * IB_SEC,
        .ipoib = true,
        .seed = 1,
        .log_level = SM_LOG_INFO,
    };
}

static char *check_options(const SmOptions *o)
{
    if (!o->port_guid || !o->node_guid) {
        return g_strdup("the SM's GUIDs must not be 0");
    }
    if (o->priority > 15) {
        return g_strdup_printf("priority %u: SMInfo has room for 0 to 15",
                               o->priority);
    }
    if (o->lmc > 7) {
        return g_strdup_printf("LMC %u: PortInfo has room for 0 to 7",
                               o->lmc);
    }
    if (o->subnet_timeout > 31 || o->packet_life > 31) {
        return g_strdup_printf("subnet timeout %u, packet lifetime %u: both "
                               "are codes from 0 to 31", o->subnet_timeout,
                               o->packet_life);
    }
    if (o->window < 1 || o->window > SM_MAX_WINDOW) {
        return g_strdup_printf("window %u: 1 to %u SMPs may be in flight",
                               o->window, SM_MAX_WINDOW);
    }
    if (o->mad_timeout_ns <= 0 || o->mad_retries > 100 || o->sweep_ns < 0 ||
        o->poll_ns <= 0) {
        return g_strdup("MAD timeout and poll interval must be above 0, "
                        "sweep interval 0 or more, retries at most 100");
    }
    return NULL;
}

bool sm_afford(const Sm *sm, int64_t *due, int64_t cost, int64_t most)
{
    int64_t now = ib_clock_now(sm->clock);

    if (*due - now > most) {
        return false;
    }
    *due = MAX(*due, now) + cost;
    return true;
}

void sm_logf(Sm *sm, SmLogLevel level, const char *fmt, ...)
{
    g_autofree char *line = NULL;
    va_list ap;

    if (level > sm->opts.log_level || !sm->ops->log) {
        return;
    }
    /* Who asks for debugging gets all of it. */
    if (sm->opts.log_level < SM_LOG_DEBUG &&
        !sm_afford(sm, &sm->log_due, SM_LOG_COST, SM_LOG_BURST)) {
        sm->log_lost++;
        sm->stats.lines_lost++;
        return;
    }
    if (sm->log_lost) {
        g_autofree char *lost = g_strdup_printf(
            "%u lines were left out: there were too many", sm->log_lost);

        sm->log_lost = 0;
        sm->ops->log(sm->opaque, SM_LOG_WARN, lost);
    }
    va_start(ap, fmt);
    line = g_strdup_vprintf(fmt, ap);
    va_end(ap);
    sm->ops->log(sm->opaque, level, line);
}

void sm_eventf(Sm *sm, const char *fmt, ...)
{
    g_autofree char *json = NULL;
    unsigned lost = sm->events_lost;
    va_list ap;

    if (!sm->ops->event) {
        return;
    }
    /* After a loss there must be room for two. */
    if (!sm_afford(sm, &sm->event_due, SM_LOG_COST,
                   SM_LOG_BURST - (lost ? 2 * SM_LOG_COST : 0))) {
        sm->events_lost++;
        sm->stats.events_lost++;
        return;
    }
    if (lost) {
        sm->events_lost = 0;
        sm_eventf(sm, "{\"event\":\"events_lost\",\"count\":%u}", lost);
    }
    va_start(ap, fmt);
    json = g_strdup_vprintf(fmt, ap);
    va_end(ap);
    sm->ops->event(sm->opaque, json);
}

SmName sm_port_name(const SmPort *port)
{
    SmName name;

    if (port->lid) {
        snprintf(name.s, sizeof(name.s), "%s/%u (LID %u)", port->node->desc,
                 port->num, port->lid);
    } else {
        snprintf(name.s, sizeof(name.s), "%s/%u", port->node->desc,
                 port->num);
    }
    return name;
}

void sm_port_gid(const Sm *sm, uint64_t guid, uint8_t gid[16])
{
    ib_put64(gid, sm->opts.gid_prefix);
    ib_put64(gid + 8, guid);
}

void sm_own_gid(const Sm *sm, uint8_t gid[16])
{
    sm_port_gid(sm, sm->opts.port_guid, gid);
}

bool sm_better_than(const Sm *sm, const IbSmInfo *other)
{
    if (sm->opts.priority != other->priority) {
        return sm->opts.priority > other->priority;
    }
    return sm->opts.port_guid < other->guid;
}

void sm_set_state(Sm *sm, SmState state, const char *why)
{
    if (state == sm->state) {
        return;
    }
    sm_logf(sm, SM_LOG_INFO, "%s -> %s: %s", sm_state_name(sm->state),
            sm_state_name(state), why);
    sm_eventf(sm, "{\"event\":\"sm_state\",\"old\":\"%s\",\"new\":\"%s\"}",
              sm_state_name(sm->state), sm_state_name(state));
    sm->state = state;
    sm->resume = false;
    if (state == SM_MASTER) {
        sm->first_master = true;
        sm->takeover = true;
        sm->master_since = ib_clock_now(sm->clock);
        sm->mcast_grace_over = false;
    } else {
        sm_rmpp_abort_all(sm);
        sm_subscriptions_clear(sm);
        sm_mcast_forget(sm);
        sm_service_forget(sm);
        sm_route_forget(sm);              /* others may write tables now */
    }
}

bool sm_send_mad(Sm *sm, const IbMadAddress *to, const uint8_t *mad)
{
    uint8_t packet[IB_PACKET_MAX];
    size_t len;

    if (!sm->link_up) {
        return false;
    }
    len = ib_mad_packet(packet, to, mad);
    if (!sm->ops->send(sm->opaque, packet, len)) {
        sm->stats.packets_not_sent++;
        return false;
    }
    return true;
}

static IbPortInfo *own_info(Sm *sm)
{
    return &sm->sma.ports[SM_OWN_PORT].info;
}

static void sma_send(void *opaque, unsigned port, const IbMadAddress *to,
                     const uint8_t *mad)
{
    Sm *sm = opaque;

    /* A trap of our own node for ourselves would tell us nothing. */
    if (to->dlid != own_info(sm)->lid) {
        sm_send_mad(sm, to, mad);
    }
}

static void control(Sm *sm, uint32_t mod, const IbSmInfo *from)
{
    sm_logf(sm, SM_LOG_INFO, "SMInfo control packet %u from SM GUID 0x%016"
            PRIx64, mod, from->guid);
    switch (mod) {
    case SMINFO_HANDOVER:
        sm->acknowledge = true;
        sm_set_state(sm, SM_MASTER, "the master handed over");
        sm_want_heavy(sm, "handover", 0);
        break;
    case SMINFO_DISABLE:
        sm_set_state(sm, SM_NOT_ACTIVE, "the master said DISABLE");
        break;
    case SMINFO_STANDBY:
        sm_set_state(sm, SM_STANDBY, "the master said STANDBY");
        sm->next_poll = ib_clock_now(sm->clock) + sm->opts.poll_ns;
        break;
    }
    /* We are deep inside the SMA: go on from the timer. */
    ib_timer_set(&sm->wake, ib_clock_now(sm->clock));
}

/* SMInfo, the one attribute that the SMA asks us for (14.2.5.13). */
static bool sma_attribute(void *opaque, unsigned port, bool set,
                          uint16_t attr_id, uint32_t attr_mod, uint8_t *data)
{
    Sm *sm = opaque;
    IbSmInfo info;

    if (attr_id != IB_SM_SM_INFO) {
        return false;
    }
    if (set) {
        bool from_master;

        ib_sm_info_unpack(&info, data);
        from_master = sm->master.info.guid &&
                      info.guid == sm->master.info.guid;
        switch (attr_mod) {
        case SMINFO_HANDOVER:
        case SMINFO_DISABLE:
            if (sm->state != SM_STANDBY || !from_master) {
                return false;
            }
            break;
        case SMINFO_STANDBY:
            if (sm->state != SM_NOT_ACTIVE || !from_master) {
                return false;
            }
            break;
        case SMINFO_ACKNOWLEDGE:
            break;
        default:
            return false;
        }
        control(sm, attr_mod, &info);
    }
    info = (IbSmInfo) {
        .guid = sm->opts.port_guid,
        .act_count = sm->act_count,
        .priority = sm->opts.priority,
        .state = sm->state,
    };
    memset(data, 0, IB_SMP_DATA_LEN);
    ib_sm_info_pack(data, &info);
    return true;
}

/*
 * Whoever writes another LID into our own port makes us deaf to the subnet,
 * which nobody else can tell us.
 */
static void sma_changed(void *opaque, unsigned port, unsigned changes,
                        unsigned old_state)
{
    Sm *sm = opaque;

    if (sm->state == SM_MASTER && sm->own && sm->own->lid &&
        own_info(sm)->lid != sm->own->lid) {
        sm_want_heavy(sm, "own LID was changed", SM_TRAP_SLOW_SWEEP);
        ib_timer_set(&sm->wake, ib_clock_now(sm->clock));
    }
}

static const IbSmaOps sma_ops = {
    .changed = sma_changed,
    .send = sma_send,
    .attribute = sma_attribute,
};

static void wake(void *opaque)
{
    Sm *sm = opaque;

    sm_schedule(sm);
    sm_pump(sm);
}

Sm *sm_new(IbClock *clock, const SmOptions *options, const SmOps *ops,
           void *opaque, char **error)
{
    char *wrong = check_options(options);
    Sm *sm;

    *error = NULL;
    if (wrong) {
        *error = strdup(wrong);
        g_free(wrong);
        return NULL;
    }
    sm = g_new0(Sm, 1);
    sm->clock = clock;
    sm->opts = *options;
    sm->lid_file = g_strdup(options->lid_file);
    sm->opts.lid_file = sm->lid_file;
    sm->ops = ops;
    sm->opaque = opaque;
    sm->state = SM_DISCOVERING;
    sm->takeover = true;
    sm->handover_to = -1;
    sm_db_init(sm);
    if (sm->lid_file && !sm_lid_file_load(sm, error)) {
        sm_db_fini(sm);
        g_free(sm->lid_file);
        g_free(sm);
        return NULL;
    }
    ib_timer_init(&sm->wake, clock, wake, sm);
    sm_transport_init(sm);
    sm_rmpp_init(sm);
    sm_notice_init(sm);
    sm_mcast_init(sm);
    sm_service_init(sm);
    ib_sma_init(&sm->sma, clock, IB_NODE_CA, SM_OWN_PORT,
                sm->opts.node_guid, sm->opts.description, &sma_ops, sm);
    sm->opts.description = NULL;          /* the SMA has its copy */
    sm->sma.ports[SM_OWN_PORT].guids[0] = sm->opts.port_guid;
    ib_sma_set_capability(&sm->sma, SM_OWN_PORT,
                          own_info(sm)->capability_mask | IB_CAP_SM);
    ib_sma_port_enable(&sm->sma, SM_OWN_PORT, true);
    sm_want_heavy(sm, "start", 0);
    return sm;
}

void sm_free(Sm *sm)
{
    if (!sm) {
        return;
    }
    sm_sweep_abort(sm);
    sm_notice_fini(sm);
    sm_rmpp_fini(sm);
    sm_mcast_fini(sm);
    sm_service_fini(sm);
    sm_transport_fini(sm);
    ib_timer_fini(&sm->wake);
    ib_sma_fini(&sm->sma);
    sm_db_fini(sm);
    g_free(sm->lid_file);
    g_free(sm);
}

void sm_link(Sm *sm, bool up, uint8_t speed, uint8_t width)
{
    if (up == sm->link_up) {
        return;
    }
    if (up) {
        sm->link_up = true;
        ib_sma_link_up(&sm->sma, SM_OWN_PORT, speed, width);
        sm_logf(sm, SM_LOG_INFO, "own port has its link");
        sm->takeover = true;
        if (sm->state == SM_MASTER) {
            /* Somebody else may have become master while we were away. */
            sm->state = SM_DISCOVERING;
            sm->resume = true;
        } else if (sm->state != SM_NOT_ACTIVE) {
            sm_set_state(sm, SM_DISCOVERING, "own port has its link again");
        }
        sm_want_heavy(sm, "own port has its link", 0);
        sm_schedule(sm);
        sm_pump(sm);
        return;
    }
    /*
     * The database stays: LIDs, groups and subscriptions are as they were
     * when the cable is back, unless another SM has taken over meanwhile.
     */
    ib_sma_link_down(&sm->sma, SM_OWN_PORT);
    sm->link_up = false;
    sm_sweep_abort(sm);
    sm_rmpp_abort_all(sm);
    sm_logf(sm, SM_LOG_WARN, "own port lost its link: LIDs are kept, nothing "
            "is managed until it is back");
}

static void receive_qp0(Sm *sm, const IbMadAddress *from, uint8_t *mad)
{
    IbMadHeader header;
    IbMadAddress to;
    unsigned out_port = SM_OWN_PORT;

    ib_mad_header_unpack(&header, mad);
    if (header.base_version != 1 || header.class_version != 1 ||
        (header.mgmt_class != IB_CLASS_SM_LID &&
         header.mgmt_class != IB_CLASS_SM_DR)) {
        sm->stats.packets_dropped++;
        return;
    }
    memset(&to, 0, sizeof(to));
    switch (ib_sma_receive(&sm->sma, SM_OWN_PORT, from, mad, &out_port,
                           &to)) {
    case IB_SMA_REPLY:
        sm_send_mad(sm, &to, mad);
        return;
    case IB_SMA_DELIVER:
        if (header.method == IB_METHOD_GET_RESP && sm_response(sm, mad)) {
            return;
        }
        if (header.method == IB_METHOD_TRAP &&
            header.mgmt_class == IB_CLASS_SM_LID) {
            sm_trap_receive(sm, from, mad);
            return;
        }
        break;
    case IB_SMA_FORWARD:                  /* we are no switch */
    case IB_SMA_DROP:
        break;
    }
    if (header.method != IB_METHOD_TRAP_REPRESS) {
        sm->stats.packets_dropped++;
    }
}

static void receive_qp1(Sm *sm, const IbMadAddress *from, uint8_t *mad)
{
    IbMadAddress to;

    switch (mad[1]) {
    case IB_CLASS_SA:
        sm_sa_receive(sm, from, mad);
        return;
    case IB_CLASS_PM:
        if (!ib_pma_receive(&sm->sma, SM_OWN_PORT, mad)) {
            break;
        }
        ib_mad_address_turn(&to, from);
        sm_send_mad(sm, &to, mad);
        return;
    }
    sm->stats.packets_dropped++;
}

void sm_receive(Sm *sm, const uint8_t *data, size_t len)
{
    const IbPortInfo *own = own_info(sm);
    uint8_t copy[MAD_PACKET_MAX];
    uint8_t mad[IB_MAD_LEN];
    IbPacket packet;
    IbMadAddress from;
    bool right;

    sm->stats.packets_received++;
    if (len > sizeof(copy) || !sm->link_up) {
        sm->stats.packets_dropped++;
        return;
    }
    memcpy(copy, data, len);              /* it may change in a shared ring */
    if (ib_packet_parse(&packet, copy, len) != IB_PACKET_OK ||
        packet.bth.opcode != (IB_TRANSPORT_UD | IB_OP_SEND_ONLY) ||
        packet.payload_len != IB_MAD_LEN || !ib_icrc_ok(copy, len) ||
        !ib_pkey_match(packet.bth.pkey, IB_PKEY_DEFAULT)) {
        sm->stats.packets_dropped++;
        return;
    }
    switch (packet.bth.dest_qpn) {
    case 0:
        right = packet.lrh.vl == IB_VL_MANAGEMENT && !packet.has_grh &&
                (packet.lrh.dlid == IB_LID_PERMISSIVE ||
                 packet.lrh.dlid == own->lid);
        break;
    case 1:
        right = packet.lrh.vl != IB_VL_MANAGEMENT &&
                packet.deth.qkey == IB_QKEY_QP1 &&
                own->state == IB_PORT_ACTIVE &&
                (packet.lrh.dlid & ~((1u << own->lmc) - 1)) == own->lid &&
                ib_lid_is_unicast(packet.lrh.slid) &&
                packet.deth.src_qpn != 0;
        break;
    default:
        right = false;
        break;
    }
    if (!right) {
        sm->stats.packets_dropped++;
        return;
    }
    ib_mad_address_from(&from, &packet);
    memcpy(mad, copy + packet.header_len, sizeof(mad));
    if (packet.bth.dest_qpn == 0) {
        receive_qp0(sm, &from, mad);
    } else {
        receive_qp1(sm, &from, mad);
    }
}

void sm_sweep(Sm *sm)
{
    sm_want_heavy(sm, "asked for", 0);
    sm_schedule(sm);
    sm_pump(sm);
}

bool sm_settled(const Sm *sm)
{
    return sm->state == SM_MASTER && sm->link_up &&
           sm->phase == SM_PHASE_IDLE && !sm->heavy_wanted &&
           !sm->mcast_wanted && !sm->first_master &&
           !sm_reports_pending(sm);
}

SmState sm_state(const Sm *sm)
{
    return sm->state;
}

uint16_t sm_lid(const Sm *sm)
{
    return sm->sma.ports[SM_OWN_PORT].info.lid;
}

uint16_t sm_lid_of(const Sm *sm, uint64_t port_guid)
{
    const SmPort *port = sm_port_find(sm, port_guid);

    return port ? port->lid : 0;
}

bool sm_port_active(const Sm *sm, uint64_t port_guid)
{
    const SmPort *port = sm_port_find(sm, port_guid);

    return port && sm_port_usable(port);
}

void sm_get_stats(const Sm *sm, SmStats *stats)
{
    *stats = sm->stats;
    stats->nodes = sm->nodes->len;
    stats->switches = sm->switches->len;
    stats->subscriptions = sm->subscriptions->len;
    stats->groups = sm->groups->len;
    stats->members = sm->members;
    stats->services = sm->services->len;
    stats->rmpp_active = 0;
    for (unsigned i = 0; i < SM_MAX_RMPP; i++) {
        stats->rmpp_active += sm->rmpp[i].used;
    }
}
