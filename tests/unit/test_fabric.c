/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The fabric library on a virtual clock with rings in plain memory: links,
 * agents of switches, forwarding, multicast, credits, faults, hostile rings.
 *
 * The tests speak to the switches as a subnet manager does, by directed
 * route through the rings of the host "sm".
 */
#include <string.h>

#include <glib.h>

#include "fabric/fabric.h"
#include "ib/bytes.h"

#define RUN_BUDGET 10000
#define QPN 0x12
#define PAYLOAD 100

/* s1: 1 a, 2 sm, 3 s2, 4 b/1, 5 s2 again; s2: 1 s1, 2 b/2, 3 c, 4 s1. */
static const char topology_text[] =
    "switch s1 ports=5\n"
    "switch s2 ports=5\n"
    "host a ports=1\n"
    "host b ports=2\n"
    "host sm ports=1\n"
    "host c ports=1\n"
    "cable ca a/1 s1/1\n"
    "cable csm sm/1 s1/2\n"
    "cable cs s1/3 s2/1\n"
    "cable cb1 b/1 s1/4\n"
    "cable cb2 b/2 s2/2\n"
    "cable cc c/1 s2/3\n"
    "cable cs2 s1/5 s2/4\n";

enum { LID_A = 10, LID_SM = 11, LID_B1 = 12, LID_B2 = 13, LID_C = 14,
       LID_S1 = 20, LID_S2 = 21, LID_LOOP = 30, LID_BACK = 31,
       LID_NOWHERE = 32, MLID = 0xC001 };

typedef struct Host {
    const char *name;
    IbLinkPortMemory *memory[2];
    IbRing tx[3], rx[3];             /* 1-based */
    unsigned num_ports;
    bool up[3];
    unsigned kicks[3], broken[3];
    struct Host *kick_drains;        /* port 1 of that host */
} Host;

typedef struct Rig {
    IbClock clock;
    Topology *topology;
    Fabric *fabric;
    Host a, b, c, sm;
    uint64_t next_tid;
    unsigned events[FABRIC_EVENT_COUNT];
    FabricEvent last[FABRIC_EVENT_COUNT];
    unsigned captured, captured_drops;
    FabricDrop last_captured_drop;
} Rig;

static void on_link(void *opaque, void *node, unsigned port, bool up,
                    uint8_t speed, uint8_t width)
{
    Host *host = node;

    g_assert_cmpint(host->up[port], !=, up);
    g_assert_cmpuint(speed, ==, 1);
    g_assert_cmpuint(width, ==, 2);
    host->up[port] = up;
}

static void on_kick(void *opaque, void *node, unsigned port)
{
    Host *host = node;
    uint32_t len;

    host->kicks[port]++;
    if (host->kick_drains) {
        while (ib_ring_peek(&host->kick_drains->rx[1], &len)) {
            ib_ring_consume(&host->kick_drains->rx[1]);
        }
        g_assert_true(ib_ring_consumer_sleep(&host->kick_drains->rx[1]));
    }
}

static void on_broken(void *opaque, void *node, unsigned port)
{
    ((Host *)node)->broken[port]++;
}

static void on_event(void *opaque, const FabricEvent *event)
{
    Rig *rig = opaque;

    rig->events[event->type]++;
    rig->last[event->type] = *event;
}

static void on_capture(void *opaque, unsigned captures,
                       const FabricPacket *packet)
{
    Rig *rig = opaque;

    g_assert_cmpuint(captures, ==, 1);
    g_assert_cmpuint(packet->header_len, <=, IB_PACKET_MAX);
    rig->captured++;
    if (packet->drop) {
        rig->captured_drops++;
        rig->last_captured_drop = packet->drop;
    }
}

static const FabricOps ops = {
    .link = on_link, .kick = on_kick, .broken = on_broken,
    .event = on_event, .capture = on_capture,
};

static void run(Rig *rig)
{
    ib_clock_run(&rig->clock, 100);
    while (fabric_run(rig->fabric, RUN_BUDGET)) {
        continue;
    }
}

static void advance(Rig *rig, int64_t ns)
{
    int64_t end = ib_clock_now(&rig->clock) + ns;

    run(rig);
    while (ib_clock_deadline(&rig->clock) <= end) {
        ib_clock_set(&rig->clock, ib_clock_deadline(&rig->clock));
        run(rig);
    }
    ib_clock_set(&rig->clock, end);
    run(rig);
}

static void host_attach(Rig *rig, Host *host, const char *name,
                        unsigned ports)
{
    IbLinkHello hello = {
        .version = IB_LINK_VERSION, .num_ports = ports,
        .node_type = IB_NODE_CA, .node_guid = (uint64_t)g_str_hash(name) << 8,
    };
    char *error;

    memset(host, 0, sizeof(*host));
    host->name = name;
    host->num_ports = ports;
    strcpy(hello.name, name);
    for (unsigned p = 1; p <= ports; p++) {
        hello.port_guids[p - 1] = hello.node_guid + p;
        host->memory[p - 1] = g_new0(IbLinkPortMemory, 1);
        ib_ring_format(&host->memory[p - 1]->to_fabric);
        ib_ring_format(&host->memory[p - 1]->to_node);
        ib_ring_init_producer(&host->tx[p], &host->memory[p - 1]->to_fabric);
        ib_ring_init_consumer(&host->rx[p], &host->memory[p - 1]->to_node);
    }
    g_assert_true(fabric_node_attach(rig->fabric, &hello, host->memory, host,
                                     &error));
    for (unsigned p = 1; p <= ports; p++) {
        fabric_node_enable(rig->fabric,
                           topology_find_node(rig->topology, name), p, true);
    }
}

static void host_detach(Rig *rig, Host *host)
{
    fabric_node_detach(rig->fabric,
                       topology_find_node(rig->topology, host->name));
    for (unsigned p = 1; p <= host->num_ports; p++) {
        g_free(host->memory[p - 1]);
        host->memory[p - 1] = NULL;
    }
}

static int cable(Rig *rig, const char *name)
{
    int index = topology_find_cable(rig->topology, name);

    g_assert_cmpint(index, >=, 0);
    return index;
}

static void rig_init_seed(Rig *rig, const char *text, uint64_t seed)
{
    char *errors;

    memset(rig, 0, sizeof(*rig));
    ib_clock_init_virtual(&rig->clock);
    rig->topology = topology_parse("t", text, strlen(text), &errors);
    g_assert_nonnull(rig->topology);
    rig->fabric = fabric_new(rig->topology, &rig->clock, seed, &ops, rig);
}

static void rig_init(Rig *rig)
{
    rig_init_seed(rig, topology_text, 1);
    host_attach(rig, &rig->a, "a", 1);
    host_attach(rig, &rig->b, "b", 2);
    host_attach(rig, &rig->c, "c", 1);
    host_attach(rig, &rig->sm, "sm", 1);
    run(rig);
}

static void rig_fini(Rig *rig)
{
    Host *hosts[] = { &rig->a, &rig->b, &rig->c, &rig->sm };

    for (size_t i = 0; i < G_N_ELEMENTS(hosts); i++) {
        if (hosts[i]->memory[0]) {
            host_detach(rig, hosts[i]);
        }
    }
    fabric_free(rig->fabric);
    topology_free(rig->topology);
    ib_clock_fini(&rig->clock);
}

/* Sends bytes as they are; false: ring full. */
static bool transmit(Host *host, unsigned port, const uint8_t *p, size_t len)
{
    uint8_t *slot = ib_ring_reserve(&host->tx[port]);

    if (!slot) {
        return false;
    }
    memcpy(slot, p, len);
    ib_ring_commit(&host->tx[port], len);
    return true;
}

static size_t make_packet(uint8_t *p, uint16_t slid, uint16_t dlid,
                          uint32_t psn, size_t payload)
{
    IbPacket packet = {
        .lrh = { .slid = slid, .dlid = dlid },
        .bth = { .opcode = IB_TRANSPORT_RC | IB_OP_SEND_ONLY,
                 .pkey = IB_PKEY_DEFAULT, .dest_qpn = QPN, .psn = psn },
    };
    size_t header_len;

    if (ib_lid_is_multicast(dlid)) {
        packet.bth.opcode = IB_TRANSPORT_UD | IB_OP_SEND_ONLY;
        packet.bth.dest_qpn = IB_QPN_MULTICAST;
        packet.has_deth = true;
    }
    header_len = ib_packet_put_headers(p, &packet, payload);
    memset(p + header_len, psn, payload);
    return ib_packet_finish(p, header_len, payload);
}

static bool send_data(Host *host, unsigned port, uint16_t slid,
                      uint16_t dlid, uint32_t psn)
{
    uint8_t p[IB_PACKET_MAX];

    return transmit(host, port, p, make_packet(p, slid, dlid, psn, PAYLOAD));
}

/* Next packet of a port, checked; false: none. */
static bool receive(Host *host, unsigned port, IbPacket *packet)
{
    uint32_t len;
    const uint8_t *p = ib_ring_peek(&host->rx[port], &len);

    if (!p) {
        return false;
    }
    g_assert_cmpint(ib_packet_parse(packet, p, len), ==, IB_PACKET_OK);
    g_assert_true(ib_icrc_ok(p, len));
    ib_ring_consume(&host->rx[port]);
    return true;
}

static void expect_data(Host *host, unsigned port, uint32_t psn)
{
    IbPacket packet;

    g_assert_true(receive(host, port, &packet));
    g_assert_cmpuint(packet.bth.psn, ==, psn);
}

static void expect_nothing(Host *host, unsigned port)
{
    IbPacket packet;

    g_assert_false(receive(host, port, &packet));
}

/*
 * One directed-route SMP from sm/1, path given as out ports of the switches
 * (the first hop is the host's port 1).  Returns the status, -1: no answer.
 */
static int smp(Rig *rig, const char *path, uint8_t method, uint16_t attr,
               uint32_t mod, uint8_t *data)
{
    uint8_t mad[IB_MAD_LEN] = { 0 }, p[IB_PACKET_MAX];
    unsigned hops = 1 + strlen(path);
    IbSmp request = {
        .hdr = { .base_version = 1, .mgmt_class = IB_CLASS_SM_DR,
                 .class_version = 1, .method = method,
                 .hop_count = hops, .tid = ++rig->next_tid, .attr_id = attr,
                 .attr_mod = mod },
        .dr_slid = IB_LID_PERMISSIVE, .dr_dlid = IB_LID_PERMISSIVE,
    };
    IbMadAddress to = {
        .slid = IB_LID_PERMISSIVE, .dlid = IB_LID_PERMISSIVE,
        .vl = IB_VL_MANAGEMENT, .pkey = IB_PKEY_DEFAULT,
    };
    uint32_t len;
    const uint8_t *answer;
    IbSmp reply;

    mad[IB_SMP_INITIAL_PATH_OFFSET + 1] = 1;
    for (unsigned i = 2; i <= hops; i++) {
        mad[IB_SMP_INITIAL_PATH_OFFSET + i] = path[i - 2] - '0';
    }
    ib_smp_pack(mad, &request);
    memcpy(mad + IB_SMP_DATA_OFFSET, data, IB_SMP_DATA_LEN);
    g_assert_cmpint(ib_smp_send_directed(mad), ==, 1);
    g_assert_true(transmit(&rig->sm, 1, p, ib_mad_packet(p, &to, mad)));
    run(rig);
    for (;;) {
        IbPacket packet;

        answer = ib_ring_peek(&rig->sm.rx[1], &len);
        if (!answer) {
            return -1;
        }
        g_assert_cmpint(ib_packet_parse(&packet, answer, len), ==, 0);
        memcpy(mad, answer + packet.header_len, IB_MAD_LEN);
        ib_ring_consume(&rig->sm.rx[1]);
        ib_smp_unpack(&reply, mad);
        if (reply.hdr.tid == request.hdr.tid) {
            break;
        }
    }
    g_assert_cmpuint(reply.hdr.method, ==, IB_METHOD_GET_RESP);
    memcpy(data, mad + IB_SMP_DATA_OFFSET, IB_SMP_DATA_LEN);
    return reply.hdr.status & ~IB_MAD_STATUS_DIRECTION;
}

static void set_port_state(Rig *rig, const char *path, unsigned port,
                           unsigned state)
{
    uint8_t data[IB_SMP_DATA_LEN] = { 0 };
    IbPortInfo info;

    g_assert_cmpint(smp(rig, path, IB_METHOD_GET, IB_SM_PORT_INFO, port,
                        data), ==, 0);
    ib_port_info_unpack(&info, data);
    if (info.state == state) {
        return;
    }
    info.state = state;
    info.phys_state = IB_PHYS_NO_CHANGE;
    ib_port_info_pack(data, &info);
    g_assert_cmpint(smp(rig, path, IB_METHOD_SET, IB_SM_PORT_INFO, port,
                        data), ==, 0);
}

static void set_lid(Rig *rig, const char *path, uint16_t lid)
{
    uint8_t data[IB_SMP_DATA_LEN] = { 0 };
    IbPortInfo info;

    g_assert_cmpint(smp(rig, path, IB_METHOD_GET, IB_SM_PORT_INFO, 0, data),
                    ==, 0);
    ib_port_info_unpack(&info, data);
    info.lid = lid;
    info.sm_lid = LID_SM;
    info.state = info.phys_state = 0;
    ib_port_info_pack(data, &info);
    g_assert_cmpint(smp(rig, path, IB_METHOD_SET, IB_SM_PORT_INFO, 0, data),
                    ==, 0);
}

static void set_route(Rig *rig, const char *path, uint16_t lid, uint8_t port)
{
    uint8_t data[IB_SMP_DATA_LEN] = { 0 };

    g_assert_cmpint(smp(rig, path, IB_METHOD_GET, IB_SM_LINEAR_FT, lid / 64,
                        data), ==, 0);
    data[lid % 64] = port;
    g_assert_cmpint(smp(rig, path, IB_METHOD_SET, IB_SM_LINEAR_FT, lid / 64,
                        data), ==, 0);
}

static void set_multicast(Rig *rig, const char *path, uint16_t mask)
{
    uint8_t data[IB_SMP_DATA_LEN] = { 0 };

    ib_put16(data + 2 * (MLID % 32), mask);
    g_assert_cmpint(smp(rig, path, IB_METHOD_SET, IB_SM_MCAST_FT,
                        (MLID - IB_LID_MCAST_FIRST) / 32, data), ==, 0);
}

/* What an SM does, from "sm". */
static void configure(Rig *rig)
{
    static const struct { uint16_t lid; uint8_t s1, s2; } routes[] = {
        { LID_A, 1, 1 }, { LID_SM, 2, 1 }, { LID_B1, 4, 1 },
        { LID_B2, 3, 2 }, { LID_C, 3, 3 }, { LID_S1, 0, 1 },
        { LID_S2, 3, 0 }, { LID_LOOP, 3, 4 }, { LID_BACK, 1, 1 },
    };

    for (unsigned p = 1; p <= 5; p++) {
        const IbSma *s1 = fabric_switch_sma(rig->fabric, 0);
        const IbSma *s2 = fabric_switch_sma(rig->fabric, 1);

        if (s1->ports[p].info.state == IB_PORT_INIT) {
            set_port_state(rig, "", p, IB_PORT_ARMED);
            set_port_state(rig, "", p, IB_PORT_ACTIVE);
        }
        if (s2->ports[p].info.state == IB_PORT_INIT) {
            set_port_state(rig, "3", p, IB_PORT_ARMED);
            set_port_state(rig, "3", p, IB_PORT_ACTIVE);
        }
    }
    set_lid(rig, "", LID_S1);
    set_lid(rig, "3", LID_S2);
    for (size_t i = 0; i < G_N_ELEMENTS(routes); i++) {
        set_route(rig, "", routes[i].lid, routes[i].s1);
        set_route(rig, "3", routes[i].lid, routes[i].s2);
    }
    /* For LID_LOOP: s1/3 -> s2, s2/4 -> s1/5, s1/3 -> ... */
}

static const IbPortCounters *counters(Rig *rig, int sw, unsigned port)
{
    return &fabric_switch_sma(rig->fabric, sw)->ports[port].counters;
}

static uint64_t drops(Rig *rig, const char *name, unsigned direction,
                      FabricDrop drop)
{
    return fabric_cable_stats(rig->fabric, cable(rig, name))
        ->drops[direction][drop];
}

static void test_links(void)
{
    Rig rig;
    int a;

    rig_init(&rig);
    a = topology_find_node(rig.topology, "a");
    g_assert_true(rig.a.up[1] && rig.b.up[1] && rig.b.up[2] && rig.c.up[1]);
    g_assert_cmpint(fabric_switch_sma(rig.fabric, 0)->ports[1].info.state,
                    ==, IB_PORT_INIT);
    g_assert_cmpuint(rig.events[FABRIC_EVENT_NODE_ATTACHED], ==, 4);

    /* Pull, twice; restore. */
    g_assert_true(fabric_cable_set(rig.fabric, cable(&rig, "ca"), false));
    g_assert_false(fabric_cable_set(rig.fabric, cable(&rig, "ca"), false));
    g_assert_false(rig.a.up[1]);
    g_assert_false(fabric_cable_link(rig.fabric, cable(&rig, "ca")));
    g_assert_cmpint(fabric_switch_sma(rig.fabric, 0)->ports[1].info.state,
                    ==, IB_PORT_DOWN);
    g_assert_cmpuint(counters(&rig, 0, 1)->link_downed, ==, 1);
    g_assert_true(fabric_cable_set(rig.fabric, cable(&rig, "ca"), true));
    g_assert_true(rig.a.up[1]);

    /* The host does not want its link, then it does. */
    fabric_node_enable(rig.fabric, a, 1, false);
    g_assert_false(rig.a.up[1]);
    fabric_node_enable(rig.fabric, a, 1, true);
    fabric_node_enable(rig.fabric, a, 2, true);      /* no such port */
    g_assert_true(rig.a.up[1]);

    /* A host that dies is a host whose cables are pulled. */
    host_detach(&rig, &rig.a);
    g_assert_false(fabric_cable_link(rig.fabric, cable(&rig, "ca")));
    g_assert_cmpuint(rig.events[FABRIC_EVENT_NODE_GONE], ==, 1);
    host_attach(&rig, &rig.a, "a", 1);
    g_assert_true(rig.a.up[1]);
    rig_fini(&rig);
}

static void test_refusals(void)
{
    IbLinkHello hello = { .num_ports = 1, .node_guid = 1, .name = "sm" };
    IbLinkPortMemory *none[2] = { NULL, NULL }, *memory[2];
    char *error;
    Rig rig;

    memory[0] = memory[1] = g_new0(IbLinkPortMemory, 1);
    rig_init_seed(&rig, "host sm ports=1\nhost x ports=2 guid=0x5\n"
                  "switch s ports=1 guid=0x6\n", 1);
#define REFUSED(words) \
    g_assert_false(fabric_node_attach(rig.fabric, &hello, none, NULL, \
                                      &error)); \
    g_assert_nonnull(strstr(error, words)); \
    g_free(error)
    strcpy(hello.name, "nobody");
    REFUSED("'nobody' is not there in t; hosts are: sm, x");
    strcpy(hello.name, "s");
    REFUSED("'s' is a switch in t; hosts are: sm, x");
    strcpy(hello.name, "x");
    REFUSED("x has 1 ports, t:2 says ports=2");
    hello.num_ports = 2;
    REFUSED("x has GUID 0x0000000000000001, t:2 says");
    strcpy(hello.name, "sm");
    hello.num_ports = 1;
    hello.node_guid = 6;
    REFUSED("sm has GUID 0x0000000000000006, which is s's; GUIDs are unique");
    hello.node_guid = 5;
    REFUSED("sm has GUID 0x0000000000000005, which is x's; GUIDs are unique");
    hello.node_guid = 1;
    hello.port_guids[0] = 6;
    REFUSED("sm/1 has GUID 0x0000000000000006, which is s's;");
    /* A host that is there: its node's GUID, a port's; and one's own. */
    hello = (IbLinkHello) { .num_ports = 1, .node_guid = 0x70,
                            .port_guids = { 0x70 }, .name = "sm" };
    g_assert_true(fabric_node_attach(rig.fabric, &hello, memory, NULL,
                                     &error));
    hello = (IbLinkHello) { .num_ports = 2, .node_guid = 5,
                            .port_guids = { 0x71, 0x70 }, .name = "x" };
    REFUSED("x/2 has GUID 0x0000000000000070, which is sm's;");
    hello.port_guids[1] = 0x71;
    REFUSED("x/2 has GUID 0x0000000000000071, which is x/1's;");
    fabric_node_detach(rig.fabric, 0);
    hello = (IbLinkHello) { .num_ports = 1, .node_guid = 0x70,
                            .port_guids = { 0x72 }, .name = "sm" };
    g_assert_true(fabric_node_attach(rig.fabric, &hello, memory, NULL,
                                     &error));
    hello = (IbLinkHello) { .num_ports = 2, .node_guid = 5,
                            .port_guids = { 0x72, 0x73 }, .name = "x" };
    REFUSED("x/1 has GUID 0x0000000000000072, which is sm/1's;");
    hello.port_guids[0] = 0x71;
    g_assert_true(fabric_node_attach(rig.fabric, &hello, memory, NULL,
                                     &error));
    fabric_node_detach(rig.fabric, 1);
    fabric_node_detach(rig.fabric, 0);
    hello = (IbLinkHello) { .num_ports = 1, .name = "sm" };
    host_attach(&rig, &rig.sm, "sm", 1);
    hello.node_guid = 9;
    REFUSED("sm is here already");
#undef REFUSED
    rig_fini(&rig);
    g_free(memory[0]);
}

/* Gets and Sets of both switches through the wire. */
static void test_agents(void)
{
    uint8_t data[IB_SMP_DATA_LEN] = { 0 };
    IbSwitchInfo sw;
    IbNodeInfo node;
    Rig rig;

    rig_init(&rig);
    g_assert_cmpint(smp(&rig, "3", IB_METHOD_GET, IB_SM_NODE_INFO, 0, data),
                    ==, 0);
    ib_node_info_unpack(&node, data);
    g_assert_cmpuint(node.node_type, ==, IB_NODE_SWITCH);
    g_assert_cmpuint(node.num_ports, ==, 5);
    g_assert_cmpuint(node.local_port, ==, 1);
    g_assert_cmphex(node.node_guid, ==, rig.topology->nodes[1].guid);
    g_assert_cmpint(smp(&rig, "", IB_METHOD_GET, IB_SM_NODE_DESCRIPTION, 0,
                        data), ==, 0);
    g_assert_cmpstr((char *)data, ==, "s1");

    g_assert_cmpint(smp(&rig, "", IB_METHOD_GET, IB_SM_SWITCH_INFO, 0, data),
                    ==, 0);
    ib_switch_info_unpack(&sw, data);
    g_assert_cmpuint(sw.lft_cap, ==, 0xC000);
    g_assert_true(sw.enhanced_port0);
    g_assert_cmpuint(sw.port_state_change, ==, 1);

    /* Tables: as written, within their bounds. */
    set_route(&rig, "3", 0xBFFF, 4);
    g_assert_cmpint(smp(&rig, "3", IB_METHOD_GET, IB_SM_LINEAR_FT,
                        0xBFFF / 64, data), ==, 0);
    g_assert_cmpuint(data[63], ==, 4);
    g_assert_cmpuint(data[62], ==, 0xFF);
    g_assert_cmpint(smp(&rig, "3", IB_METHOD_SET, IB_SM_LINEAR_FT, 0xC000 / 64,
                        data), !=, 0);
    g_assert_cmpint(smp(&rig, "3", IB_METHOD_SET, IB_SM_LINEAR_FT, UINT32_MAX,
                        data), !=, 0);
    g_assert_cmpint(smp(&rig, "3", IB_METHOD_SET, IB_SM_MCAST_FT, 32, data),
                    !=, 0);
    g_assert_cmpint(smp(&rig, "3", IB_METHOD_SET, IB_SM_MCAST_FT, 1u << 28,
                        data), !=, 0);
    /* Out of a port that is not there, or has no link. */
    g_assert_cmpint(smp(&rig, "9", IB_METHOD_GET, IB_SM_NODE_INFO, 0, data),
                    ==, -1);
    g_assert_cmpint(smp(&rig, "35", IB_METHOD_GET, IB_SM_NODE_INFO, 0, data),
                    ==, -1);
    rig_fini(&rig);
}

static void test_forward(void)
{
    Rig rig;

    rig_init(&rig);
    /* Init: no data. */
    send_data(&rig.a, 1, LID_A, LID_B1, 1);
    run(&rig);
    g_assert_cmpuint(drops(&rig, "ca", 0, FABRIC_DROP_PORT_STATE), ==, 1);
    configure(&rig);

    send_data(&rig.a, 1, LID_A, LID_B1, 2);
    send_data(&rig.a, 1, LID_A, LID_B2, 3);
    send_data(&rig.a, 1, LID_A, LID_C, 4);
    send_data(&rig.c, 1, LID_C, LID_A, 5);
    run(&rig);
    expect_data(&rig.b, 1, 2);
    expect_data(&rig.b, 2, 3);
    expect_data(&rig.c, 1, 4);
    expect_data(&rig.a, 1, 5);
    expect_nothing(&rig.b, 1);
    g_assert_cmpuint(counters(&rig, 0, 1)->rcv_pkts, ==, 4);
    g_assert_cmpuint(counters(&rig, 0, 1)->xmit_pkts, ==, 1);
    g_assert_cmpuint(counters(&rig, 1, 3)->xmit_pkts, ==, 1);
    g_assert_cmpuint(counters(&rig, 1, 3)->unicast_xmit_pkts, ==, 1);
    g_assert_cmpuint(counters(&rig, 1, 3)->xmit_data, ==,
                     (8 + 12 + PAYLOAD + 4) / 4);

    /* Nowhere, back, round in circles. */
    send_data(&rig.a, 1, LID_A, LID_NOWHERE, 6);
    send_data(&rig.a, 1, LID_A, LID_BACK, 7);
    send_data(&rig.a, 1, LID_A, 0, 8);
    send_data(&rig.a, 1, LID_A, IB_LID_PERMISSIVE, 9);
    run(&rig);
    g_assert_cmpuint(drops(&rig, "ca", 0, FABRIC_DROP_NO_ROUTE), ==, 3);
    g_assert_cmpuint(drops(&rig, "ca", 0, FABRIC_DROP_SAME_PORT), ==, 1);
    g_assert_cmpuint(counters(&rig, 0, 1)->rcv_switch_relay_errors, ==, 4);
    send_data(&rig.a, 1, LID_A, LID_LOOP, 10);
    run(&rig);
    g_assert_cmpuint(rig.last[FABRIC_EVENT_PACKET_DROPPED].dropped.drop, ==,
                     FABRIC_DROP_LOOP);
    /* An agent that is not there: RC to a switch. */
    send_data(&rig.a, 1, LID_A, LID_S1, 11);
    run(&rig);
    g_assert_cmpuint(drops(&rig, "ca", 0, FABRIC_DROP_NOT_FOR_US), ==, 1);
    rig_fini(&rig);
}

static void test_mtu(void)
{
    uint8_t p[IB_PACKET_MAX], data[IB_SMP_DATA_LEN] = { 0 };
    IbPortInfo info;
    Rig rig;

    rig_init(&rig);
    configure(&rig);
    smp(&rig, "", IB_METHOD_GET, IB_SM_PORT_INFO, 4, data);
    ib_port_info_unpack(&info, data);
    info.neighbor_mtu = 1;
    info.state = info.phys_state = 0;
    ib_port_info_pack(data, &info);
    g_assert_cmpint(smp(&rig, "", IB_METHOD_SET, IB_SM_PORT_INFO, 4, data),
                    ==, 0);
    transmit(&rig.a, 1, p, make_packet(p, LID_A, LID_B1, 1, 256));
    transmit(&rig.a, 1, p, make_packet(p, LID_A, LID_B1, 2, 257));
    transmit(&rig.a, 1, p, make_packet(p, LID_A, LID_B2, 3, 4096));
    run(&rig);
    expect_data(&rig.b, 1, 1);
    expect_nothing(&rig.b, 1);
    expect_data(&rig.b, 2, 3);
    g_assert_cmpuint(counters(&rig, 0, 4)->xmit_discards, ==, 1);
    rig_fini(&rig);
}

static void test_multicast(void)
{
    IbPacket packet = { .bth.psn = 3 };
    Rig rig;

    rig_init(&rig);
    configure(&rig);
    send_data(&rig.a, 1, LID_A, MLID, 1);
    run(&rig);
    g_assert_cmpuint(drops(&rig, "ca", 0, FABRIC_DROP_NO_ROUTE), ==, 1);

    set_multicast(&rig, "", 1 << 1 | 1 << 3 | 1 << 4);
    set_multicast(&rig, "3", 1 << 1 | 1 << 2 | 1 << 3);
    send_data(&rig.a, 1, LID_A, MLID, 2);
    run(&rig);
    expect_nothing(&rig.a, 1);
    expect_data(&rig.b, 1, 2);
    expect_data(&rig.b, 2, 2);
    expect_data(&rig.c, 1, 2);
    expect_nothing(&rig.c, 1);
    g_assert_cmpuint(counters(&rig, 0, 3)->multicast_xmit_pkts, ==, 1);

    /* A loop of tables: ends, and is called by its name. */
    set_multicast(&rig, "", 1 << 1 | 1 << 3 | 1 << 4 | 1 << 5);
    set_multicast(&rig, "3", 1 << 1 | 1 << 2 | 1 << 4);
    send_data(&rig.a, 1, LID_A, MLID, 3);
    run(&rig);
    g_assert_cmpuint(rig.last[FABRIC_EVENT_PACKET_DROPPED].dropped.drop, ==,
                     FABRIC_DROP_LOOP);
    send_data(&rig.a, 1, LID_A, LID_C, 4);
    run(&rig);
    while (!receive(&rig.c, 1, &packet) || packet.bth.psn != 4) {
        g_assert_cmpuint(packet.bth.psn, ==, 3);
    }
    rig_fini(&rig);
}

/* A full ring holds its packets back; nothing is lost or reordered. */
static void test_credits(void)
{
    unsigned sent = 0, got = 0;
    Rig rig;

    rig_init(&rig);
    configure(&rig);
    while (sent < 3 * IB_RING_SLOTS) {
        while (send_data(&rig.a, 1, LID_A, LID_B1, sent)) {
            sent++;
        }
        run(&rig);
        if (sent >= 2 * IB_RING_SLOTS) {
            /* Both rings are full: b has to take some. */
            g_assert_false(send_data(&rig.a, 1, LID_A, LID_B1, sent));
            g_assert_cmpint(fabric_deadline(rig.fabric), !=,
                            IB_CLOCK_NEVER);
            for (int i = 0; i < 10; i++) {
                expect_data(&rig.b, 1, got++);
            }
            run(&rig);
        }
    }
    while (got < sent) {
        expect_data(&rig.b, 1, got++);
        run(&rig);
    }
    expect_nothing(&rig.b, 1);
    g_assert_cmpuint(counters(&rig, 0, 4)->xmit_discards, ==, 0);
    g_assert_cmpint(fabric_deadline(rig.fabric), ==, IB_CLOCK_NEVER);
    rig_fini(&rig);
}

/*
 * Kicks: a blocked packet goes on when room comes, through the flags that
 * real hosts use.
 */
static void test_sleep(void)
{
    IbPacket packet;
    Rig rig;
    unsigned n;

    rig_init(&rig);
    configure(&rig);
    g_assert_true(fabric_prepare_sleep(rig.fabric));
    g_assert_cmpuint(rig.a.memory[0]->to_fabric.consumer_waits, ==, 1);
    send_data(&rig.a, 1, LID_A, LID_B1, 0);
    g_assert_false(fabric_prepare_sleep(rig.fabric));
    g_assert_true(ib_ring_consumer_sleep(&rig.b.rx[1]));
    n = rig.b.kicks[1];
    run(&rig);
    g_assert_cmpuint(rig.b.kicks[1], ==, n + 1);
    for (n = 1; n <= IB_RING_SLOTS; n++) {
        send_data(&rig.a, 1, LID_A, LID_B1, n);
        run(&rig);
    }
    /* b is full, one waits at a: b is asked to kick when it takes one. */
    g_assert_true(fabric_prepare_sleep(rig.fabric));
    g_assert_true(receive(&rig.b, 1, &packet));
    g_assert_false(fabric_prepare_sleep(rig.fabric));
    run(&rig);
    g_assert_true(fabric_prepare_sleep(rig.fabric));
    for (n = 1; n <= IB_RING_SLOTS; n++) {
        expect_data(&rig.b, 1, n);
    }
    rig_fini(&rig);
}

/*
 * A multicast packet that cannot go on because one receiver is full has, on
 * its way, delivered what waited in the VL15 buffer of another: who sleeps
 * there is woken.
 */
static void test_kick_of_blocked(void)
{
    uint8_t data[IB_SMP_DATA_LEN] = { 0 };
    IbPacket packet;
    unsigned kicks;
    Rig rig;

    rig_init(&rig);
    configure(&rig);
    set_multicast(&rig, "", 1 << 1 | 1 << 4);
    for (unsigned i = 0; i < IB_RING_SLOTS; i++) {
        send_data(&rig.sm, 1, LID_SM, LID_A, i);
        send_data(&rig.sm, 1, LID_SM, LID_B1, i);
        run(&rig);
    }
    g_assert_cmpint(smp(&rig, "1", IB_METHOD_GET, IB_SM_NODE_INFO, 0, data),
                    ==, -1);
    g_assert_true(ib_ring_consumer_sleep(&rig.c.rx[1]));
    /* a takes its packets and sleeps after b's turn, before that of sm. */
    rig.c.kick_drains = &rig.a;
    send_data(&rig.b, 2, LID_B2, LID_C, 1);
    send_data(&rig.sm, 1, LID_SM, MLID, 2);
    kicks = rig.a.kicks[1];
    run(&rig);
    g_assert_cmpuint(rig.a.kicks[1], ==, kicks + 1);
    g_assert_true(receive(&rig.a, 1, &packet));
    g_assert_cmpuint(packet.lrh.vl, ==, IB_VL_MANAGEMENT);
    expect_nothing(&rig.a, 1);               /* the other waits for b */
    rig_fini(&rig);
}

/* A host that takes nothing: lifetime, stall, and others are not starved. */
static void test_lifetime(void)
{
    int64_t life = ib_timeout_ns(FABRIC_HOQ_LIFE);
    uint8_t data[IB_SMP_DATA_LEN] = { 0 };
    unsigned psn = 0;
    Rig rig;

    rig_init(&rig);
    configure(&rig);
    for (unsigned i = 0; i < IB_RING_SLOTS; i++) {
        send_data(&rig.a, 1, LID_A, LID_B1, psn++);
    }
    run(&rig);
    send_data(&rig.a, 1, LID_A, LID_B1, psn++);
    send_data(&rig.a, 1, LID_A, LID_C, 77);
    run(&rig);
    expect_nothing(&rig.c, 1);               /* head of line */
    send_data(&rig.sm, 1, LID_SM, LID_C, 78);
    run(&rig);
    expect_data(&rig.c, 1, 78);              /* others go on */
    advance(&rig, life - 1);
    expect_nothing(&rig.c, 1);
    advance(&rig, 1);
    expect_data(&rig.c, 1, 77);
    g_assert_cmpuint(counters(&rig, 0, 4)->xmit_discards, ==, 1);

    /* SMPs to it do not wait: a buffer, then VL15Dropped behaviour. */
    for (int i = 0; i < FABRIC_VL15_BUFFER + 3; i++) {
        g_assert_cmpint(smp(&rig, "4", IB_METHOD_GET, IB_SM_NODE_INFO, 0,
                            data), ==, -1);
    }
    g_assert_cmpuint(drops(&rig, "cb1", 1, FABRIC_DROP_VL15_FULL), ==, 3);

    /* After some lifetimes in a row the port is stalled: no more waiting. */
    for (unsigned i = 1; i < FABRIC_VL_STALL_COUNT; i++) {
        send_data(&rig.a, 1, LID_A, LID_B1, psn++);
        advance(&rig, life);
    }
    g_assert_cmpuint(drops(&rig, "cb1", 1, FABRIC_DROP_LIFETIME), ==,
                     FABRIC_VL_STALL_COUNT);
    send_data(&rig.a, 1, LID_A, LID_B1, psn++);
    send_data(&rig.a, 1, LID_A, LID_C, 79);
    run(&rig);
    expect_data(&rig.c, 1, 79);
    g_assert_cmpuint(drops(&rig, "cb1", 1, FABRIC_DROP_STALLED), ==, 1);

    /* It comes back to life: buffered SMPs first, then data again. */
    for (unsigned i = 0; i < IB_RING_SLOTS; i++) {
        expect_data(&rig.b, 1, i);
    }
    run(&rig);
    for (unsigned i = 0; i < FABRIC_VL15_BUFFER; i++) {
        IbPacket packet;

        g_assert_true(receive(&rig.b, 1, &packet));
        g_assert_cmpuint(packet.lrh.vl, ==, IB_VL_MANAGEMENT);
    }
    send_data(&rig.a, 1, LID_A, LID_B1, 1000);
    run(&rig);
    expect_data(&rig.b, 1, 1000);
    rig_fini(&rig);
}

/* A pulled cable: what the host sends is dropped, its ring never stuck. */
static void test_pull(void)
{
    Rig rig;

    rig_init(&rig);
    configure(&rig);
    for (int c = 0; c < (int)rig.topology->num_cables; c++) {
        fabric_cable_capture(rig.fabric, c, 1);
    }
    fabric_cable_set(rig.fabric, cable(&rig, "ca"), false);
    for (unsigned i = 0; i < 3 * IB_RING_SLOTS; i++) {
        g_assert_true(send_data(&rig.a, 1, LID_A, LID_B1, i));
        if (i % IB_RING_SLOTS == IB_RING_SLOTS - 1) {
            run(&rig);
        }
    }
    g_assert_cmpuint(drops(&rig, "ca", 0, FABRIC_DROP_LINK_DOWN), ==,
                     3 * IB_RING_SLOTS);
    g_assert_cmpuint(rig.captured_drops, ==, 3 * IB_RING_SLOTS);
    g_assert_cmpint(rig.last_captured_drop, ==, FABRIC_DROP_LINK_DOWN);
    g_assert_cmpuint(rig.events[FABRIC_EVENT_PACKET_DROPPED], ==,
                     FABRIC_DROP_EVENTS);
    /* Towards it: discarded where it would have left. */
    send_data(&rig.c, 1, LID_C, LID_A, 1);
    run(&rig);
    g_assert_cmpuint(counters(&rig, 0, 1)->xmit_discards, ==, 1);
    fabric_cable_set(rig.fabric, cable(&rig, "ca"), true);
    send_data(&rig.a, 1, LID_A, LID_B1, 1);
    run(&rig);
    expect_nothing(&rig.b, 1);               /* the port is Init again */
    configure(&rig);
    send_data(&rig.a, 1, LID_A, LID_B1, 2);
    run(&rig);
    expect_data(&rig.b, 1, 2);
    rig_fini(&rig);
}

/* A host that goes while others wait for it, and while it has packets. */
static void test_gone_while_blocked(void)
{
    Rig rig;

    rig_init(&rig);
    configure(&rig);
    for (unsigned i = 0; i < 2 * IB_RING_SLOTS; i++) {
        send_data(&rig.a, 1, LID_A, LID_B1, i);
        run(&rig);
    }
    send_data(&rig.b, 1, LID_B1, LID_A, 1);
    host_detach(&rig, &rig.b);
    run(&rig);
    g_assert_true(fabric_prepare_sleep(rig.fabric));
    g_assert_cmpuint(drops(&rig, "ca", 0, FABRIC_DROP_LINK_DOWN), ==,
                     IB_RING_SLOTS);
    host_attach(&rig, &rig.b, "b", 2);
    configure(&rig);
    send_data(&rig.a, 1, LID_A, LID_B1, 5);
    run(&rig);
    expect_data(&rig.b, 1, 5);
    rig_fini(&rig);
}

/* Trap 128 to the SM when a link changes, until it is repressed. */
static void test_trap(void)
{
    IbPacket packet;
    Rig rig;

    rig_init(&rig);
    configure(&rig);
    advance(&rig, 20 * IB_SEC);
    while (receive(&rig.sm, 1, &packet)) {
        continue;
    }
    fabric_cable_set(rig.fabric, cable(&rig, "cb1"), false);
    run(&rig);
    g_assert_cmpuint(rig.last[FABRIC_EVENT_TRAP].mad.trap, ==,
                     IB_TRAP_LINK_STATE);
    g_assert_true(rig.last[FABRIC_EVENT_TRAP].mad.delivered);
    g_assert_cmpint(rig.last[FABRIC_EVENT_TRAP].node, ==, 0);
    g_assert_true(receive(&rig.sm, 1, &packet));
    g_assert_cmpuint(packet.lrh.slid, ==, LID_S1);
    g_assert_cmpuint(packet.lrh.dlid, ==, LID_SM);
    g_assert_cmpuint(rig.last[FABRIC_EVENT_PORT_STATE].state.new_state, ==,
                     IB_PORT_DOWN);
    g_assert_cmpuint(rig.last[FABRIC_EVENT_PORT_STATE].port, ==, 4);
    /* The other switch's trap is routed through the first. */
    fabric_cable_set(rig.fabric, cable(&rig, "cc"), false);
    advance(&rig, IB_MSEC);
    g_assert_true(receive(&rig.sm, 1, &packet));
    g_assert_cmpuint(packet.lrh.slid, ==, LID_S2);
    rig_fini(&rig);
}

/* An SM disables a switch's port, and lets another one train anew. */
static void test_sm_disables_port(void)
{
    uint8_t data[IB_SMP_DATA_LEN] = { 0 };
    IbPortInfo info;
    Rig rig;

    rig_init(&rig);
    configure(&rig);
    smp(&rig, "", IB_METHOD_GET, IB_SM_PORT_INFO, 4, data);
    ib_port_info_unpack(&info, data);
    info.state = IB_PORT_DOWN;
    info.phys_state = IB_PHYS_DISABLED;
    ib_port_info_pack(data, &info);
    g_assert_cmpint(smp(&rig, "", IB_METHOD_SET, IB_SM_PORT_INFO, 4, data),
                    ==, 0);
    g_assert_false(rig.b.up[1]);
    smp(&rig, "", IB_METHOD_GET, IB_SM_PORT_INFO, 4, data);
    ib_port_info_unpack(&info, data);
    g_assert_cmpuint(info.phys_state, ==, IB_PHYS_DISABLED);
    info.state = 0;
    info.phys_state = IB_PHYS_POLLING;
    ib_port_info_pack(data, &info);
    smp(&rig, "", IB_METHOD_SET, IB_SM_PORT_INFO, 4, data);
    g_assert_true(rig.b.up[1]);

    /* Polling while it is up: down and up again, both ends start over. */
    smp(&rig, "", IB_METHOD_GET, IB_SM_PORT_INFO, 1, data);
    ib_port_info_unpack(&info, data);
    g_assert_cmpuint(info.state, ==, IB_PORT_ACTIVE);
    info.state = 0;
    info.phys_state = IB_PHYS_POLLING;
    ib_port_info_pack(data, &info);
    rig.events[FABRIC_EVENT_LINK] = 0;
    g_assert_cmpint(smp(&rig, "", IB_METHOD_SET, IB_SM_PORT_INFO, 1, data),
                    ==, 0);
    g_assert_cmpuint(rig.events[FABRIC_EVENT_LINK], ==, 2);
    g_assert_true(rig.a.up[1]);
    g_assert_cmpint(fabric_switch_sma(rig.fabric, 0)->ports[1].info.state,
                    ==, IB_PORT_INIT);
    rig_fini(&rig);
}

/* PortCounters by GMP from a to the far switch. */
static void test_pma(void)
{
    uint8_t mad[IB_MAD_LEN] = { 0 }, p[IB_PACKET_MAX];
    IbMadHeader header = {
        .base_version = 1, .mgmt_class = IB_CLASS_PM, .class_version = 1,
        .method = IB_METHOD_GET, .tid = 5, .attr_id = IB_PM_PORT_COUNTERS,
    };
    IbMadAddress to = {
        .slid = LID_A, .dlid = LID_S2, .src_qpn = 1, .dest_qpn = 1,
        .qkey = IB_QKEY_QP1, .pkey = IB_PKEY_DEFAULT,
    };
    const uint8_t *answer;
    IbPacket packet;
    uint32_t len;
    size_t n;
    Rig rig;

    rig_init(&rig);
    configure(&rig);
    ib_mad_header_pack(mad, &header);
    mad[IB_PM_DATA_OFFSET + 1] = 1;          /* PortSelect */
    transmit(&rig.a, 1, p, ib_mad_packet(p, &to, mad));
    run(&rig);
    answer = ib_ring_peek(&rig.a.rx[1], &len);
    g_assert_nonnull(answer);
    g_assert_cmpint(ib_packet_parse(&packet, answer, len), ==, 0);
    g_assert_cmpuint(packet.lrh.slid, ==, LID_S2);
    ib_mad_header_unpack(&header, answer + packet.header_len);
    g_assert_cmpuint(header.method, ==, IB_METHOD_GET_RESP);
    g_assert_cmpuint(header.status, ==, 0);
    g_assert_cmpuint(header.tid, ==, 5);
    ib_ring_consume(&rig.a.rx[1]);

    /* Wrong Q_Key, wrong P_Key, wrong ICRC: no answer. */
    to.qkey = 1;
    transmit(&rig.a, 1, p, ib_mad_packet(p, &to, mad));
    to.qkey = IB_QKEY_QP1;
    to.pkey = 0x8123;
    transmit(&rig.a, 1, p, ib_mad_packet(p, &to, mad));
    to.pkey = IB_PKEY_DEFAULT;
    n = ib_mad_packet(p, &to, mad);
    p[n - 1] ^= 1;
    transmit(&rig.a, 1, p, n);
    run(&rig);
    expect_nothing(&rig.a, 1);
    g_assert_cmpuint(drops(&rig, "cs", 0, FABRIC_DROP_NOT_FOR_US), ==, 2);
    g_assert_cmpuint(drops(&rig, "cs", 0, FABRIC_DROP_BAD_ICRC), ==, 1);
    rig_fini(&rig);
}

/* CM messages and SA reports are told, with what they say. */
static void test_mad_events(void)
{
    uint8_t mad[IB_MAD_LEN] = { 0 }, p[IB_PACKET_MAX];
    IbMadHeader header = {
        .base_version = 1, .mgmt_class = IB_CLASS_CM, .class_version = 2,
        .method = IB_METHOD_SEND, .tid = 5, .attr_id = IB_CM_APR,
    };
    IbMadAddress to = {
        .slid = LID_A, .dlid = LID_B1, .src_qpn = 1, .dest_qpn = 1,
        .qkey = IB_QKEY_QP1, .pkey = IB_PKEY_DEFAULT,
    };
    IbNotice notice = { .generic = true, .trap = 65, .issuer_lid = LID_SM };
    const FabricEvent *event;
    Rig rig;

    rig_init(&rig);
    configure(&rig);
    event = &rig.last[FABRIC_EVENT_MAD];
    ib_mad_header_pack(mad, &header);
    ib_put32(mad + IB_MAD_HEADER_LEN, 0x11111111);
    ib_put32(mad + IB_MAD_HEADER_LEN + 4, 0x22222222);
    mad[IB_MAD_HEADER_LEN + 9] = 6;
    transmit(&rig.a, 1, p, ib_mad_packet(p, &to, mad));
    run(&rig);
    g_assert_cmpuint(rig.events[FABRIC_EVENT_MAD], ==, 1);
    g_assert_cmpuint(event->mad.attr_id, ==, IB_CM_APR);
    g_assert_cmphex(event->mad.local_id, ==, 0x11111111);
    g_assert_cmphex(event->mad.remote_id, ==, 0x22222222);
    g_assert_cmpuint(event->mad.reason, ==, 6);
    g_assert_cmpuint(event->mad.dlid, ==, LID_B1);
    g_assert_true(event->mad.delivered);
    g_assert_cmpint(event->cable, ==, cable(&rig, "ca"));

    fabric_cable_set(rig.fabric, cable(&rig, "cb1"), false);
    memset(mad, 0, sizeof(mad));
    header.mgmt_class = IB_CLASS_SA;
    header.method = IB_METHOD_REPORT;
    header.attr_id = IB_ATTR_NOTICE;
    ib_mad_header_pack(mad, &header);
    memset(notice.details + 6, 0xAB, 16);
    ib_notice_pack(mad + IB_SA_DATA_OFFSET, &notice, IB_NOTICE_LEN);
    transmit(&rig.a, 1, p, ib_mad_packet(p, &to, mad));
    run(&rig);
    g_assert_cmpuint(rig.events[FABRIC_EVENT_MAD], ==, 2);
    g_assert_cmpuint(event->mad.trap, ==, 65);
    g_assert_true(event->mad.has_gid);
    g_assert_cmphex(event->mad.gid[15], ==, 0xAB);
    g_assert_false(event->mad.delivered);

    /* Who sends many is told of some of them, and that there were more. */
    for (unsigned i = 0; i < FABRIC_NODE_EVENTS + 100; i++) {
        transmit(&rig.a, 1, p, ib_mad_packet(p, &to, mad));
        run(&rig);
    }
    g_assert_cmpuint(rig.events[FABRIC_EVENT_MAD], ==, FABRIC_NODE_EVENTS);
    g_assert_cmpuint(event->mad.suppressed, ==, 0);
    ib_clock_set(&rig.clock, ib_clock_now(&rig.clock) + IB_SEC);
    transmit(&rig.a, 1, p, ib_mad_packet(p, &to, mad));
    run(&rig);
    g_assert_cmpuint(event->mad.suppressed, ==, 102);
    rig_fini(&rig);
}

typedef struct Tally {
    unsigned packets, duplicates, bad, reordered;
    uint32_t hash;
} Tally;

/* Sends @n packets from a to c over @fault on the switches' cable. */
static Tally fault_run(uint64_t seed, const FabricFault *fault, unsigned n)
{
    Tally tally = { .hash = 5381 };
    int last = -1;
    Rig rig;

    rig_init_seed(&rig, topology_text, seed);
    host_attach(&rig, &rig.a, "a", 1);
    host_attach(&rig, &rig.b, "b", 2);
    host_attach(&rig, &rig.c, "c", 1);
    host_attach(&rig, &rig.sm, "sm", 1);
    configure(&rig);
    g_assert_true(fabric_cable_fault(rig.fabric, cable(&rig, "cs"), fault));
    for (unsigned i = 0; i < n; i++) {
        const uint8_t *p;
        uint32_t len;

        g_assert_true(send_data(&rig.a, 1, LID_A, LID_C, i));
        advance(&rig, IB_MSEC);
        while ((p = ib_ring_peek(&rig.c.rx[1], &len))) {
            IbPacket packet;

            if (!ib_icrc_ok(p, len)) {
                tally.bad++;
            }
            tally.packets++;
            if (ib_packet_parse(&packet, p, len) == IB_PACKET_OK &&
                ib_icrc_ok(p, len)) {
                tally.duplicates += (int)packet.bth.psn == last;
                tally.reordered += (int)packet.bth.psn < last;
                last = packet.bth.psn;
            }
            for (uint32_t k = 0; k < len; k++) {
                tally.hash = tally.hash * 33 + p[k];
            }
            ib_ring_consume(&rig.c.rx[1]);
        }
    }
    rig_fini(&rig);
    return tally;
}

static void test_faults(void)
{
    FabricFault fault = { .drop = 0.3 };
    Tally tally, again;

    tally = fault_run(1, &fault, 1000);
    g_assert_cmpuint(tally.packets, >, 600);
    g_assert_cmpuint(tally.packets, <, 800);
    g_assert_cmpuint(tally.bad, ==, 0);

    fault = (FabricFault) { .duplicate = 0.5 };
    tally = fault_run(1, &fault, 1000);
    g_assert_cmpuint(tally.packets, >, 1400);
    g_assert_cmpuint(tally.duplicates, ==, tally.packets - 1000);

    fault = (FabricFault) { .corrupt = 1.0 };
    tally = fault_run(1, &fault, 300);
    g_assert_cmpuint(tally.packets, ==, 300);
    /* A flip in BTH's variant byte is what the ICRC cannot see. */
    g_assert_cmpuint(tally.bad, >=, 270);

    fault = (FabricFault) {
        .delay = 0.2, .delay_ns = 20 * IB_MSEC, .duplicate = 0.1,
        .drop = 0.1, .corrupt = 0.1,
    };
    tally = fault_run(7, &fault, 1000);
    again = fault_run(7, &fault, 1000);
    g_assert_cmpuint(tally.reordered, ==, 0);
    g_assert_cmpmem(&tally, sizeof(tally), &again, sizeof(again));
    again = fault_run(8, &fault, 1000);
    g_assert_cmpuint(tally.hash, !=, again.hash);
}

static void test_fault_values(void)
{
    FabricFault fault = { .drop = 1.5 };

    g_assert_nonnull(fabric_fault_check(&fault));
    fault = (FabricFault) { .corrupt = -0.1 };
    g_assert_nonnull(fabric_fault_check(&fault));
    fault = (FabricFault) { .drop = 0.0 / 0.0 };
    g_assert_nonnull(fabric_fault_check(&fault));
    fault = (FabricFault) { .delay = 0.5 };
    g_assert_nonnull(fabric_fault_check(&fault));
    fault = (FabricFault) { .delay = 0.5, .delay_ns = 11 * IB_SEC };
    g_assert_nonnull(fabric_fault_check(&fault));
    fault = (FabricFault) { .delay = 1, .delay_ns = 1, .drop = 1 };
    g_assert_null(fabric_fault_check(&fault));
}

/* Delayed packets are on the wire: lost when the cable is pulled. */
static void test_delay_and_pull(void)
{
    FabricFault fault = { .delay = 1, .delay_ns = 50 * IB_MSEC };
    unsigned sent = 0;
    Rig rig;

    rig_init(&rig);
    configure(&rig);
    fabric_cable_fault(rig.fabric, cable(&rig, "cs"), &fault);
    send_data(&rig.a, 1, LID_A, LID_C, 1);
    run(&rig);
    expect_nothing(&rig.c, 1);
    g_assert_cmpint(fabric_deadline(rig.fabric), ==,
                    ib_clock_now(&rig.clock) + 50 * IB_MSEC);
    advance(&rig, 50 * IB_MSEC);
    expect_data(&rig.c, 1, 1);

    /* More than the line holds: the sender waits, all arrive in order. */
    while (send_data(&rig.a, 1, LID_A, LID_C, sent)) {
        sent++;
        run(&rig);
    }
    g_assert_cmpuint(sent, ==, FABRIC_DELAY_LINE + IB_RING_SLOTS);
    for (unsigned i = 0; i < sent; i++) {
        IbPacket packet;

        while (!receive(&rig.c, 1, &packet)) {
            advance(&rig, 10 * IB_MSEC);
        }
        g_assert_cmpuint(packet.bth.psn, ==, i);
        run(&rig);
    }

    for (unsigned i = 0; i < 3; i++) {
        send_data(&rig.a, 1, LID_A, LID_C, i);
    }
    run(&rig);
    fabric_cable_set(rig.fabric, cable(&rig, "cs"), false);
    fabric_cable_set(rig.fabric, cable(&rig, "cs"), true);
    advance(&rig, IB_SEC);
    expect_nothing(&rig.c, 1);
    g_assert_cmpuint(drops(&rig, "cs", 0, FABRIC_DROP_LINK_DOWN), ==, 3);
    rig_fini(&rig);
}

/* What arrives was checked, whatever was sent. */
static void drain(Host *host, unsigned port)
{
    IbPacket packet;
    const uint8_t *p;
    uint32_t len;

    while ((p = ib_ring_peek(&host->rx[port], &len))) {
        g_assert_cmpint(ib_packet_parse(&packet, p, len), ==, IB_PACKET_OK);
        ib_ring_consume(&host->rx[port]);
    }
}

/* Bytes of any kind in slots, counters of any kind in rings. */
static void test_hostile(void)
{
    GRand *rand = g_rand_new_with_seed(3);
    uint8_t good[IB_PACKET_MAX];
    size_t len;
    Rig rig;

    rig_init(&rig);
    configure(&rig);
    for (int c = 0; c < (int)rig.topology->num_cables; c++) {
        fabric_cable_capture(rig.fabric, c, 1);
    }
    for (int i = 0; i < 100000; i++) {
        static const uint16_t lids[] = {
            LID_A, LID_B1, LID_C, LID_S1, LID_S2, MLID, LID_LOOP, 0xFFFF,
        };
        uint8_t p[IB_RING_DATA_MAX];

        len = make_packet(good, LID_A,
                          lids[g_rand_int_range(rand, 0,
                                                G_N_ELEMENTS(lids))],
                          i, g_rand_int_range(rand, 0, 300));
        memcpy(p, good, len);
        for (int k = g_rand_int_range(rand, 0, 4); k > 0; k--) {
            p[g_rand_int_range(rand, 0, MIN(len, 40))] =
                g_rand_int_range(rand, 0, 256);
        }
        if (g_rand_int_range(rand, 0, 8) == 0) {
            len = g_rand_int_range(rand, 1, IB_RING_DATA_MAX + 1);
        }
        g_assert_true(transmit(&rig.a, 1, p, len));
        run(&rig);
        drain(&rig.a, 1);
        drain(&rig.b, 1);
        drain(&rig.b, 2);
        drain(&rig.c, 1);
        drain(&rig.sm, 1);
    }
    /* Still in order. */
    g_assert_cmpuint(rig.a.broken[1], ==, 0);
    configure(&rig);

    /* An impossible length; an impossible counter. */
    make_packet(good, LID_A, LID_B1, 0, 10);
    ib_ring_reserve(&rig.a.tx[1]);
    rig.a.memory[0]->to_fabric.slots[rig.a.tx[1].mine % IB_RING_SLOTS].len =
        UINT32_MAX;
    rig.a.memory[0]->to_fabric.head++;
    run(&rig);
    g_assert_cmpuint(rig.a.broken[1], ==, 1);
    g_assert_false(rig.a.up[1]);
    run(&rig);
    g_assert_cmpuint(rig.a.broken[1], ==, 1);
    rig.c.memory[0]->to_node.tail += 5000;
    send_data(&rig.b, 1, LID_B1, LID_C, 1);
    run(&rig);
    g_assert_cmpuint(rig.c.broken[1], ==, 1);
    g_assert_false(rig.c.up[1]);
    g_assert_true(fabric_prepare_sleep(rig.fabric));

    /* Gone and back with fresh memory: good as new. */
    host_detach(&rig, &rig.a);
    host_detach(&rig, &rig.c);
    host_attach(&rig, &rig.a, "a", 1);
    host_attach(&rig, &rig.c, "c", 1);
    configure(&rig);
    send_data(&rig.a, 1, LID_A, LID_C, 3);
    run(&rig);
    expect_data(&rig.c, 1, 3);
    g_rand_free(rand);
    rig_fini(&rig);
}

/* One who sends without end does not keep the others from their turn. */
static void test_fairness(void)
{
    unsigned from_a = 0, from_sm = 0;
    IbPacket packet;
    Rig rig;

    rig_init(&rig);
    configure(&rig);
    for (int round = 0; round < 50; round++) {
        while (send_data(&rig.a, 1, LID_A, LID_NOWHERE, 0)) {
            from_a++;
        }
        g_assert_true(send_data(&rig.sm, 1, LID_SM, LID_C, round));
        /* Less than what a has waiting: both get some of it. */
        g_assert_true(fabric_run(rig.fabric, 2 * FABRIC_TURN));
        while (receive(&rig.c, 1, &packet)) {
            from_sm++;
        }
    }
    g_assert_cmpuint(from_sm, ==, 50);
    g_assert_cmpuint(from_a, >=, IB_RING_SLOTS + 49 * FABRIC_TURN);
    rig_fini(&rig);
}

/* Two hosts, no switch. */
static void test_back_to_back(void)
{
    unsigned sent = 0;
    Rig rig;

    rig_init_seed(&rig, "host a ports=1\nhost b ports=2\n"
                  "cable x a/1 b/2\n", 1);
    host_attach(&rig, &rig.a, "a", 1);
    g_assert_false(rig.a.up[1]);
    host_attach(&rig, &rig.b, "b", 2);
    g_assert_true(rig.a.up[1]);
    g_assert_true(rig.b.up[2]);
    g_assert_false(rig.b.up[1]);
    send_data(&rig.b, 1, 0, 0, 3);           /* nothing plugged in */
    while (send_data(&rig.a, 1, 1, 2, sent)) {
        sent++;
        run(&rig);
    }
    g_assert_cmpuint(sent, ==, 2 * IB_RING_SLOTS);
    for (unsigned i = 0; i < sent; i++) {
        expect_data(&rig.b, 2, i);
        run(&rig);
    }
    rig_fini(&rig);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/fabric/links", test_links);
    g_test_add_func("/fabric/refusals", test_refusals);
    g_test_add_func("/fabric/agents", test_agents);
    g_test_add_func("/fabric/forward", test_forward);
    g_test_add_func("/fabric/mtu", test_mtu);
    g_test_add_func("/fabric/multicast", test_multicast);
    g_test_add_func("/fabric/credits", test_credits);
    g_test_add_func("/fabric/sleep", test_sleep);
    g_test_add_func("/fabric/kick-of-blocked", test_kick_of_blocked);
    g_test_add_func("/fabric/lifetime", test_lifetime);
    g_test_add_func("/fabric/pull", test_pull);
    g_test_add_func("/fabric/gone-while-blocked", test_gone_while_blocked);
    g_test_add_func("/fabric/trap", test_trap);
    g_test_add_func("/fabric/sm-disables-port", test_sm_disables_port);
    g_test_add_func("/fabric/pma", test_pma);
    g_test_add_func("/fabric/mad-events", test_mad_events);
    g_test_add_func("/fabric/faults", test_faults);
    g_test_add_func("/fabric/fault-values", test_fault_values);
    g_test_add_func("/fabric/delay-and-pull", test_delay_and_pull);
    g_test_add_func("/fabric/hostile", test_hostile);
    g_test_add_func("/fabric/fairness", test_fairness);
    g_test_add_func("/fabric/back-to-back", test_back_to_back);
    return g_test_run();
}
