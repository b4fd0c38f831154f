/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The forwarding thread between two hosts that are threads, all on the same
 * memory, so that ThreadSanitizer sees what they do to each other.  A wake-up
 * that is lost leaves somebody asleep for good, which is what the long wait in
 * host_sleep() finds.  $RUNNER_STRESS is how many times as long it runs.
 */
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fabric/runner.h"
#include "ib/packet.h"

#define PACKETS 20000
#define PATIENCE_MS 20000

static const char text[] =
    "host a ports=1\nhost b ports=1\ncable ab a/1 b/1\n";

typedef struct Host {
    const char *name;
    IbLinkPortMemory *memory;
    RunnerNode rn;                   /* the fabric's side */
    IbLinkWake wake;                 /* ours */
    IbRing tx, rx;
    Runner *runner;
    int node;
    uint32_t total, sent, received, sleeps;
    uint32_t burst;                  /* at most that many in a row */
    uint32_t ahead;                  /* of what it has received */
    GRand *rand;
    bool kick;
} Host;

static void call_attach(Fabric *fabric, void *data)
{
    Host *host = data;
    IbLinkHello hello = {
        .version = IB_LINK_VERSION, .num_ports = 1, .node_type = IB_NODE_CA,
        .node_guid = 0x100 + 0x10 * host->name[0],
        .port_guids = { 0x101 + 0x10 * host->name[0] },
    };
    char *error;

    strcpy(hello.name, host->name);
    g_assert_true(fabric_node_attach(fabric, &hello, &host->memory, &host->rn,
                                     &error));
    g_assert_true(runner_watch(host->runner, &host->rn));
    fabric_node_enable(fabric, host->node, 1, true);
}

static void call_detach(Fabric *fabric, void *data)
{
    Host *host = data;

    runner_unwatch(host->runner, &host->rn);
    fabric_node_detach(fabric, host->node);
}

static void host_init(Host *host, const char *name, Runner *runner,
                      const Topology *topology)
{
    const char *error;

    *host = (Host) { .name = name, .runner = runner };
    host->node = topology_find_node(topology, name);
    host->rand = g_rand_new_with_seed(name[0]);
    host->memory = aligned_alloc(64, sizeof(*host->memory));
    g_assert_nonnull(host->memory);
    ib_ring_format(&host->memory->to_fabric);
    ib_ring_format(&host->memory->to_node);
    ib_ring_init_producer(&host->tx, &host->memory->to_fabric);
    ib_ring_init_consumer(&host->rx, &host->memory->to_node);
    g_assert_true(ib_link_wake_init(&host->wake));
    g_assert_true(ib_link_wake_init(&host->rn.wake));
    g_assert_true(ib_link_wake_accept(&host->wake,
                                      dup(host->rn.wake.self_end), &error));
    g_assert_true(ib_link_wake_accept(&host->rn.wake,
                                      dup(host->wake.self_end), &error));
    host->rn.runner = runner;
    runner_call(runner, call_attach, host);
}

static void host_fini(Host *host)
{
    runner_call(host->runner, call_detach, host);
    ib_link_wake_fini(&host->wake);
    ib_link_wake_fini(&host->rn.wake);
    free(host->memory);
    g_rand_free(host->rand);
}

static bool host_send(Host *host)
{
    IbPacket packet = {
        .lrh = { .slid = 1, .dlid = 2 },
        .bth = { .opcode = IB_TRANSPORT_RC | IB_OP_SEND_ONLY,
                 .pkey = IB_PKEY_DEFAULT, .dest_qpn = 5, .psn = host->sent },
    };
    uint8_t *slot = ib_ring_reserve(&host->tx);
    size_t header_len;

    if (!slot) {
        return false;
    }
    header_len = ib_packet_put_headers(slot, &packet, 64);
    memset(slot + header_len, host->sent, 64);
    host->kick |= ib_ring_commit(&host->tx,
                                 ib_packet_finish(slot, header_len, 64));
    host->sent++;
    return true;
}

static bool host_receive(Host *host)
{
    IbPacket packet;
    uint32_t len;
    const uint8_t *p = ib_ring_peek(&host->rx, &len);

    if (!p) {
        g_assert_false(host->rx.broken);
        return false;
    }
    g_assert_cmpint(ib_packet_parse(&packet, p, len), ==, IB_PACKET_OK);
    g_assert_cmpuint(packet.bth.psn, ==, host->received);
    host->received++;
    host->kick |= ib_ring_consume(&host->rx);
    return true;
}

static void host_sleep(Host *host, bool wants_room)
{
    struct pollfd pfd = { .fd = host->wake.self_fd, .events = POLLIN };

    if (!ib_ring_consumer_sleep(&host->rx) ||
        (wants_room && !ib_ring_producer_sleep(&host->tx))) {
        return;
    }
    host->sleeps++;
    if (poll(&pfd, 1, PATIENCE_MS) != 1) {
        g_error("%s sleeps for good: sent %u, received %u of %u", host->name,
                host->sent, host->received, host->total);
    }
    g_assert_true(ib_link_unkick(&host->wake));
}

static void *host_run(void *opaque)
{
    Host *host = opaque;

    while (host->sent < host->total || host->received < host->total) {
        uint32_t burst = g_rand_int_range(host->rand, 1, host->burst + 1);
        bool full = false, moved = false;

        while (burst-- && host->sent < host->total &&
               host->sent < host->received + host->ahead && !full) {
            full = !host_send(host);
            moved |= !full;
        }
        while (host_receive(host)) {
            moved = true;
        }
        if (host->kick) {
            host->kick = false;
            ib_link_kick(&host->wake);
        }
        if (!moved) {
            host_sleep(host, full);
        }
    }
    return NULL;
}

static void woken(void *opaque)
{
}

static void call_nothing(Fabric *fabric, void *data)
{
    *(uint64_t *)data = fabric_moved(fabric);
}

/* @a, @b: how far each may be ahead of what the other has sent it. */
static void traffic(uint32_t burst, uint32_t a, uint32_t b)
{
    const char *times = g_getenv("RUNNER_STRESS");
    uint32_t total = PACKETS * (times ? atoi(times) : 1);
    FabricEvent event;
    uint64_t moved = 0;
    GThread *threads[2];
    Topology *topology;
    Runner *runner;
    Host hosts[2];
    char *error;

    topology = topology_parse("t", text, sizeof(text) - 1, &error);
    g_assert_nonnull(topology);
    runner = runner_new(topology, 1, woken, NULL, &error);
    g_assert_nonnull(runner);
    host_init(&hosts[0], "a", runner, topology);
    host_init(&hosts[1], "b", runner, topology);
    hosts[0].ahead = a;
    hosts[1].ahead = b;
    for (int i = 0; i < 2; i++) {
        hosts[i].total = total;
        hosts[i].burst = burst;
        threads[i] = g_thread_new(hosts[i].name, host_run, &hosts[i]);
    }
    /* The control thread has its calls served all the while. */
    while (moved < 2 * (uint64_t)total) {
        runner_call(runner, call_nothing, &moved);
        g_usleep(1000);
    }
    for (int i = 0; i < 2; i++) {
        g_thread_join(threads[i]);
        g_assert_cmpuint(hosts[i].received, ==, total);
        g_test_message("%s slept %u times", hosts[i].name, hosts[i].sleeps);
    }
    host_fini(&hosts[0]);
    host_fini(&hosts[1]);
    while (runner_next_event(runner, &event)) {
        g_assert_cmpint(event.type, !=, FABRIC_EVENT_PACKET_DROPPED);
    }
    runner_free(runner);
    topology_free(topology);
}

/* One packet that goes to and fro: it finds everybody asleep. */
static void test_ping_pong(void)
{
    traffic(1, 1, 0);
}

/* Rings that are full, and empty again. */
static void test_bursts(void)
{
    traffic(300, UINT32_MAX / 2, UINT32_MAX / 2);
}

static void test_single(void)
{
    traffic(1, 3, 2);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/runner/ping-pong", test_ping_pong);
    g_test_add_func("/runner/bursts", test_bursts);
    g_test_add_func("/runner/single", test_single);
    return g_test_run();
}
