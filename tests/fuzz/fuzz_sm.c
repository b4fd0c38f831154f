/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The subnet manager against a subnet of one switch and one host, whose
 * answers are good, spoiled or missing, and who are written to by others; SA
 * requests, traps and raw packets; cables and time.  Input: records of one
 * command byte and its arguments.  Checked all the time: whatever the SM sends
 * is a good packet, and what it keeps is bounded.
 */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "ib/bytes.h"
#include "ib/sma.h"
#include "sm/sm.h"

#define MAX_COMMANDS 400
#define QUEUE 128            /* as a ring */
#define SWITCH_PORTS 4
#define HOST_AT 2            /* port of the switch; the SM is at port 1 */
#define MAX_SPOILED 8

#define TABLE_BLOCKS 8       /* of each forwarding table */

enum { ANSWER, ANSWER_ALL, SPOIL, LOSE, TIME, SA, TRAP, RAW, CABLE, HOST,
       WRITE, COMMANDS };

typedef struct Subnet {
    IbClock clock;
    Sm *sm;
    IbSma sw, host;
    uint8_t mads[QUEUE][IB_MAD_LEN];     /* SMPs of the SM */
    unsigned head, count;
    uint8_t lft[TABLE_BLOCKS][IB_SMP_DATA_LEN];
    uint8_t mft[TABLE_BLOCKS][IB_SMP_DATA_LEN];
} Subnet;

static bool sm_sends(void *opaque, const uint8_t *p, size_t len)
{
    Subnet *net = opaque;
    IbPacket packet;

    FUZZ_ASSERT(ib_packet_parse(&packet, p, len) == IB_PACKET_OK);
    FUZZ_ASSERT(ib_icrc_ok(p, len));
    FUZZ_ASSERT(packet.payload_len == IB_MAD_LEN);
    FUZZ_ASSERT(packet.bth.opcode == (IB_TRANSPORT_UD | IB_OP_SEND_ONLY));
    FUZZ_ASSERT((packet.bth.dest_qpn == 0) ==
                (packet.lrh.vl == IB_VL_MANAGEMENT));
    if (packet.bth.dest_qpn) {
        FUZZ_ASSERT(packet.deth.qkey == IB_QKEY_QP1);
        FUZZ_ASSERT(ib_lid_is_unicast(packet.lrh.dlid));
        return true;
    }
    if (net->count == QUEUE) {
        return false;
    }
    memcpy(net->mads[(net->head + net->count++) % QUEUE],
           p + packet.header_len, IB_MAD_LEN);
    return true;
}

static void sm_tells(void *opaque, const char *json)
{
    FUZZ_ASSERT(json[0] == '{' && json[strlen(json) - 1] == '}');
    FUZZ_ASSERT(!strchr(json, '\n') && strlen(json) < 2048);
}

static void sm_says(void *opaque, SmLogLevel level, const char *line)
{
    FUZZ_ASSERT(!strchr(line, '\n'));
}

static const SmOps sm_ops = {
    .send = sm_sends, .log = sm_says, .event = sm_tells,
};

static bool tables(void *opaque, unsigned port, bool set, uint16_t attr_id,
                   uint32_t attr_mod, uint8_t *data)
{
    Subnet *net = opaque;
    uint8_t *block;

    switch (attr_id) {
    case IB_SM_LINEAR_FT:
        block = net->lft[attr_mod % TABLE_BLOCKS];
        break;
    case IB_SM_MCAST_FT:
        block = net->mft[attr_mod % TABLE_BLOCKS];
        break;
    default:
        return false;
    }
    memcpy(set ? block : data, set ? data : block, IB_SMP_DATA_LEN);
    return true;
}

static const IbSmaOps no_ops, switch_ops = { .attribute = tables };

static const IbMadAddress permissive = {
    .slid = IB_LID_PERMISSIVE, .dlid = IB_LID_PERMISSIVE,
    .vl = IB_VL_MANAGEMENT, .pkey = IB_PKEY_DEFAULT,
};

static void to_sm(Subnet *net, const IbMadAddress *to, const uint8_t *mad)
{
    uint8_t packet[IB_PACKET_MAX];

    sm_receive(net->sm, packet, ib_mad_packet(packet, to, mad));
}

/* Takes the SM's next SMP to its node and back; false: it got lost. */
static bool travel(Subnet *net, uint8_t *mad)
{
    IbMadAddress to;
    unsigned out = 0;
    IbSmaVerdict verdict;

    memcpy(mad, net->mads[net->head], IB_MAD_LEN);
    net->head = (net->head + 1) % QUEUE;
    net->count--;
    verdict = ib_sma_receive(&net->sw, 1, &permissive, mad, &out, &to);
    if (verdict == IB_SMA_FORWARD && out == HOST_AT &&
        net->sw.ports[HOST_AT].info.state != IB_PORT_DOWN) {
        if (ib_sma_receive(&net->host, 1, &permissive, mad, &out, &to) !=
            IB_SMA_REPLY) {
            return false;
        }
        verdict = ib_sma_receive(&net->sw, HOST_AT, &permissive, mad, &out,
                                 &to);
        return verdict == IB_SMA_FORWARD && out == 1;
    }
    return verdict == IB_SMA_REPLY;
}

static void answer(Subnet *net, FuzzInput *in, bool spoil)
{
    uint8_t mad[IB_MAD_LEN];

    if (!net->count || !travel(net, mad)) {
        return;
    }
    for (unsigned n = spoil ? fuzz_byte(in) % MAX_SPOILED : 0; n; n--) {
        mad[fuzz_byte(in)] = fuzz_byte(in);
    }
    to_sm(net, &permissive, mad);
}

/* From the host, as if it had whatever LID. */
static void from_host(Subnet *net, FuzzInput *in, bool trap)
{
    uint8_t mad[IB_MAD_LEN] = { 0 };
    IbMadAddress to = {
        .slid = net->host.ports[1].info.lid, .dlid = sm_lid(net->sm),
        .src_qpn = 1, .dest_qpn = 1, .qkey = IB_QKEY_QP1,
        .pkey = IB_PKEY_DEFAULT,
    };

    if (trap) {
        to.vl = IB_VL_MANAGEMENT;
        to.src_qpn = to.dest_qpn = to.qkey = 0;
        to.slid = fuzz_byte(in);
        mad[1] = IB_CLASS_SM_LID;
        mad[2] = 1;
        mad[3] = IB_METHOD_TRAP;
        mad[15] = fuzz_byte(in);
        ib_put16(mad + 16, IB_ATTR_NOTICE);
        mad[64] = 0x81;
        ib_put16(mad + 68, fuzz_u32(in));
        ib_put16(mad + 70, fuzz_byte(in));
    } else {
        uint8_t flags = fuzz_byte(in);

        mad[1] = IB_CLASS_SA;
        mad[2] = 2;
        mad[3] = fuzz_byte(in);
        mad[15] = fuzz_byte(in);
        ib_put16(mad + 16, fuzz_u32(in));
        if (flags & 1) {
            mad[24] = 1;                  /* RMPP */
            mad[25] = fuzz_byte(in);
            mad[26] = 1;
            ib_put32(mad + 28, fuzz_byte(in));
            ib_put32(mad + 32, fuzz_byte(in));
        }
        mad[43] = flags >> 7;             /* SM_Key */
        ib_put32(mad + 52, fuzz_u32(in));
        if (flags & 2) {                  /* GIDs where joins have them */
            ib_put64(mad + 72, UINT64_C(0xFE80000000000000));
            ib_put64(mad + 80, net->host.ports[1].guids[0]);
        }
        if (flags & 8) {                  /* ... and where services do */
            ib_put64(mad + 64, UINT64_C(0xFE80000000000000));
            ib_put64(mad + 72, net->host.ports[1].guids[0]);
        }
        for (unsigned n = fuzz_byte(in) % 32; n; n--) {
            mad[56 + fuzz_byte(in) % IB_SA_DATA_LEN] = fuzz_byte(in);
        }
        if (flags & 4) {
            to.has_grh = true;
        }
    }
    mad[0] = 1;
    to_sm(net, &to, mad);
}

/* Somebody else writes to the agents. */
static void write_behind(Subnet *net, FuzzInput *in)
{
    IbSma *sma = fuzz_byte(in) & 1 ? &net->sw : &net->host;
    IbPortInfo *info = &sma->ports[fuzz_byte(in) % 2].info;
    uint8_t what = fuzz_byte(in), where = fuzz_byte(in);

    switch (what % 6) {
    case 0:
        net->lft[where / 64 % 2][where % 64] = fuzz_byte(in);
        break;
    case 1:
        net->mft[where / 64 % 2][where % 64] = fuzz_byte(in);
        break;
    case 2:
        net->sw.switch_info.lft_top = fuzz_u32(in);
        net->sw.switch_info.mft_top = fuzz_u32(in);
        break;
    case 3:
        info->lid = fuzz_u32(in);
        info->sm_lid = fuzz_byte(in);
        break;
    case 4:
        info->neighbor_mtu = fuzz_byte(in) % 6;
        info->m_key = fuzz_byte(in);
        break;
    case 5:
        net->host.ports[1].pkeys[where % IB_SMA_PKEYS] = fuzz_u32(in);
        break;
    }
    sm_sweep(net->sm);
}

static void pass_time(Subnet *net, unsigned steps)
{
    while (steps-- && ib_clock_deadline(&net->clock) != IB_CLOCK_NEVER) {
        ib_clock_set(&net->clock, ib_clock_deadline(&net->clock));
        ib_clock_run(&net->clock, 100);
    }
}

static void raw(Subnet *net, FuzzInput *in)
{
    uint8_t packet[IB_PACKET_MAX];
    size_t len = fuzz_u32(in) % 400;

    for (size_t i = 0; i < len; i++) {
        packet[i] = fuzz_byte(in);
    }
    sm_receive(net->sm, packet, len);
}

static void command(Subnet *net, FuzzInput *in)
{
    uint8_t byte = fuzz_byte(in);
    bool on = byte & 0x80;

    switch ((byte & 0x7F) % COMMANDS) {
    case ANSWER:
        answer(net, in, false);
        break;
    case ANSWER_ALL:
        for (unsigned i = 0; i < 2000 && net->count; i++) {
            answer(net, in, false);
        }
        break;
    case SPOIL:
        answer(net, in, true);
        break;
    case LOSE:
        if (net->count) {
            net->head = (net->head + 1) % QUEUE;
            net->count--;
        }
        break;
    case TIME:
        pass_time(net, fuzz_byte(in) % 32);
        break;
    case SA:
        from_host(net, in, false);
        break;
    case TRAP:
        from_host(net, in, true);
        break;
    case RAW:
        raw(net, in);
        break;
    case CABLE:
        net->count = on ? net->count : 0;
        if (on) {
            ib_sma_link_up(&net->sw, 1, 1, 2);
        } else {
            ib_sma_link_down(&net->sw, 1);
        }
        sm_link(net->sm, on, 1, 2);
        break;
    case WRITE:
        write_behind(net, in);
        break;
    case HOST:
        if (on) {
            ib_sma_link_up(&net->sw, HOST_AT, 1, 2);
            ib_sma_link_up(&net->host, 1, 1, 2);
        } else {
            ib_sma_link_down(&net->sw, HOST_AT);
            ib_sma_link_down(&net->host, 1);
        }
        sm_sweep(net->sm);
        break;
    }
}

static void check(const Subnet *net)
{
    SmStats stats;

    sm_get_stats(net->sm, &stats);
    FUZZ_ASSERT(stats.nodes <= SM_MAX_NODES);
    FUZZ_ASSERT(stats.switches <= stats.nodes);
    FUZZ_ASSERT(stats.subscriptions <= SM_MAX_SUBSCRIPTIONS);
    FUZZ_ASSERT(stats.groups <= SM_MAX_GROUPS);
    FUZZ_ASSERT(stats.members <= SM_MAX_MEMBERS);
    FUZZ_ASSERT(stats.rmpp_active <= SM_MAX_RMPP);
    FUZZ_ASSERT(stats.services <= SM_MAX_SERVICES_PER_PORT);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    FuzzInput in = { data, size };
    Subnet *net = calloc(1, sizeof(*net));
    SmOptions options;
    char *error;

    FUZZ_ASSERT(net);
    ib_clock_init_virtual(&net->clock);
    sm_options_init(&options);
    options.node_guid = 0x5300;
    options.port_guid = 0x5301;
    options.log_level = SM_LOG_DEBUG;
    options.lmc = fuzz_byte(&in) % 3;
    options.m_key = in.left % 2 ? 0 : 0x4B;
    ib_sma_init(&net->sw, &net->clock, IB_NODE_SWITCH, SWITCH_PORTS, 0x100,
                "switch", &switch_ops, net);
    net->sw.switch_info.lft_cap = 0xC000;
    net->sw.switch_info.mft_cap = 64;
    ib_sma_init(&net->host, &net->clock, IB_NODE_CA, 1, 0x200, "host",
                &no_ops, net);
    ib_sma_link_up(&net->sw, 1, 1, 2);
    ib_sma_link_up(&net->sw, HOST_AT, 1, 2);
    ib_sma_link_up(&net->host, 1, 1, 2);
    net->sm = sm_new(&net->clock, &options, &sm_ops, net, &error);
    FUZZ_ASSERT(net->sm);
    sm_link(net->sm, true, 1, 2);
    for (unsigned i = 0; i < MAX_COMMANDS && in.left; i++) {
        command(net, &in);
        check(net);
    }
    sm_free(net->sm);
    ib_sma_fini(&net->host);
    ib_sma_fini(&net->sw);
    ib_clock_fini(&net->clock);
    free(net);
    return 0;
}

/* A subnet that comes up, then one kind of trouble or another. */
size_t fuzz_seed(unsigned index, uint8_t *buf)
{
    static const uint8_t up[] = { 0, ANSWER_ALL, TIME, 1, ANSWER_ALL };
    static const uint8_t subscribe[] = {
        SA, 0, 0x02, 9, 0, 0, 0, 3, 0, 0, 0, 0, 9,
        16, 0xFF, 17, 0xFF, 22, 1, 23, 1, 24, 0xFF, 25, 0xFF, 26, 0xFF,
        27, 0xFF, 33, 0xFF, 34,
    };
    static const uint8_t create[] = {
        SA, 2, 0x02, 7, 0, 0, 0, 0x38, 0, 1, 0x30, 0xC7, 7,
        0, 0xFF, 1, 0x12, 15, 7, 40, 0xFF, 41, 0xFF, 48, 0x21, 46, 0,
        TIME, 1, ANSWER_ALL,
    };
    static const uint8_t table[] = {
        SA, 0, 0x12, 7, 0, 0, 0, 0x12, 0, 0, 0, 0, 0,
        SA, 1, 0x12, 7, 0, 0, 0, 0x12, 2, 1, 9, 0, 0, 0, 0, 0,
    };
    static const uint8_t paths[] = {
        SA, 0, 0x12, 8, 0, 0, 0, 0x35, 0, 0, 0, 0, 0, TIME, 9,
    };
    static const uint8_t pull[] = {
        HOST, ANSWER_ALL, HOST | 0x80, ANSWER_ALL, TRAP, 2, 1, 0, 0, 0, 128,
        2, ANSWER_ALL, CABLE, TIME, 3, CABLE | 0x80, ANSWER_ALL,
    };
    static const uint8_t write[] = {
        WRITE, 1, 0, 0, 2, 7, ANSWER_ALL, WRITE, 1, 0, 1, 1, 7, ANSWER_ALL,
        WRITE, 1, 0, 3, 0, 0, 0, 0, 99, 5, ANSWER_ALL,
        WRITE, 0, 1, 5, 3, 0, 0, 0x80, 0x05, ANSWER_ALL,
    };
    static const uint8_t service[] = {
        SA, 8, 0x02, 7, 0, 0, 0, 0x31, 0, 0, 0, 0x53, 4,
        31, 9, 47, 1, 48, 'x', 7, 5,
        SA, 0, 0x12, 8, 0, 0, 0, 0x31, 0, 0, 0, 1, 1, 7, 5, TIME, 9,
        SA, 8, 0x15, 7, 0, 0, 0, 0x31, 0, 0, 0, 0x23, 2, 47, 1, 7, 5,
    };
    static const struct {
        const uint8_t *bytes;
        size_t len;
    } parts[] = {
        { subscribe, sizeof(subscribe) }, { create, sizeof(create) },
        { table, sizeof(table) }, { paths, sizeof(paths) },
        { pull, sizeof(pull) }, { write, sizeof(write) },
        { service, sizeof(service) },
    };
    size_t len = sizeof(up);

    if (index > sizeof(parts) / sizeof(parts[0])) {
        return 0;
    }
    memcpy(buf, up, len);
    if (index == 0) {
        /* The whole first sweep, one spoiled byte in each answer. */
        len = 1;
        for (unsigned i = 0; i < 60; i++) {
            buf[len++] = SPOIL;
            buf[len++] = 1;
            buf[len++] = 64 + i % 64;
            buf[len++] = i * 37;
        }
        return len;
    }
    for (size_t i = 0; i < index; i++) {
        memcpy(buf + len, parts[i].bytes, parts[i].len);
        len += parts[i].len;
    }
    return len;
}
