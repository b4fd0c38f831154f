/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The subnet of the subnet manager's tests; see sm_lab.h.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sm_lab.h"

#define FABRIC_BUDGET 10000
#define TIMER_BUDGET 1000

static bool put(LabHost *host, unsigned port, const void *p, size_t len)
{
    uint8_t *slot = ib_ring_reserve(&host->tx[port]);

    if (!slot) {
        return false;
    }
    memcpy(slot, p, len);
    ib_ring_commit(&host->tx[port], len);
    return true;
}

static void on_link(void *opaque, void *node, unsigned port, bool up,
                    uint8_t speed, uint8_t width)
{
    LabHost *host = node;

    if (host->sm) {
        sm_link(host->sm, up, speed, width);
    } else if (up) {
        ib_sma_link_up(&host->sma, port, speed, width);
    } else {
        ib_sma_link_down(&host->sma, port);
    }
}

static const FabricOps fabric_ops = { .link = on_link };

/* Hosts */

static void host_changed(void *opaque, unsigned port, unsigned changes,
                         unsigned old_state)
{
    LabHost *host = opaque;

    host->reregisters += !!(changes & IB_SMA_CHANGE_REREGISTER);
    host->lid_changes += !!(changes & IB_SMA_CHANGE_LID);
    host->sm_changes += !!(changes & IB_SMA_CHANGE_SM);
    if (changes & IB_SMA_CHANGE_STATE) {
        host->state_changes++;
        host->dropped += old_state == IB_PORT_ACTIVE;
    }
}

static void host_send(void *opaque, unsigned port, const IbMadAddress *to,
                      const uint8_t *mad)
{
    uint8_t packet[IB_PACKET_MAX];

    put(opaque, port, packet, ib_mad_packet(packet, to, mad));
}

static const IbSmaOps host_ops = {
    .changed = host_changed, .send = host_send,
};

static void answer_report(LabHost *host, const LabMad *report)
{
    uint8_t mad[IB_MAD_LEN];
    IbMadAddress to = {
        .dlid = report->from.slid, .src_qpn = 1,
        .dest_qpn = report->from.src_qpn, .qkey = IB_QKEY_QP1,
        .pkey = IB_PKEY_DEFAULT,
    };

    memcpy(mad, report->mad, sizeof(mad));
    mad[3] = IB_METHOD_REPORT_RESP;
    lab_send(host, report->port, &to, mad);
}

static void host_receive(LabHost *host, unsigned port, const uint8_t *p,
                         size_t len)
{
    IbPacket packet;
    IbMadAddress from, to;
    uint8_t mad[IB_MAD_LEN];
    unsigned out_port = port;
    LabMad *keep;

    g_assert_cmpint(ib_packet_parse(&packet, p, len), ==, IB_PACKET_OK);
    g_assert_true(ib_icrc_ok(p, len));
    if (packet.payload_len != IB_MAD_LEN) {
        return;
    }
    memcpy(mad, p + packet.header_len, IB_MAD_LEN);
    ib_mad_address_from(&from, &packet);
    if (packet.bth.dest_qpn == 0) {
        g_assert_cmpuint(packet.lrh.vl, ==, IB_VL_MANAGEMENT);
        if (mad[3] == IB_METHOD_GET_RESP) {
            host->last_smp_status = ib_get16(mad + 4);
            memcpy(host->last_smp, mad + IB_SMP_DATA_OFFSET,
                   IB_SMP_DATA_LEN);
        }
        memset(&to, 0, sizeof(to));
        if (host->lie && host->lie(host, port, mad)) {
            return;
        }
        if (!host->mute &&
            ib_sma_receive(&host->sma, port, &from, mad, &out_port, &to) ==
            IB_SMA_REPLY) {
            host_send(host, out_port, &to, mad);
        }
        return;
    }
    g_assert_cmpuint(packet.lrh.vl, ==, 0);
    g_assert_cmphex(packet.deth.qkey, ==, IB_QKEY_QP1);
    keep = g_new0(LabMad, 1);
    keep->port = port;
    keep->from = from;
    memcpy(keep->mad, mad, IB_MAD_LEN);
    g_queue_push_tail(&host->mads, keep);
    if (mad[1] == IB_CLASS_SA && mad[3] == IB_METHOD_REPORT) {
        host->reports++;
        if (!host->no_report_resp) {
            answer_report(host, keep);
        }
    }
}

void lab_send_raw(LabHost *host, unsigned port, const void *p, size_t len)
{
    g_assert_true(put(host, port, p, len));
}

void lab_send(LabHost *host, unsigned port, const IbMadAddress *to,
              const uint8_t *mad)
{
    uint8_t packet[IB_PACKET_MAX];
    IbMadAddress address = *to;
    const IbPortInfo *info = &host->sma.ports[port].info;

    if (!address.slid) {
        address.slid = info->lid;
    }
    if (!address.dlid) {
        address.dlid = info->sm_lid;
    }
    lab_send_raw(host, port, packet, ib_mad_packet(packet, &address, mad));
}

void lab_send_smp(LabHost *host, unsigned port, const uint8_t *mad)
{
    static const IbMadAddress to = {
        .slid = IB_LID_PERMISSIVE, .dlid = IB_LID_PERMISSIVE,
        .vl = IB_VL_MANAGEMENT, .pkey = IB_PKEY_DEFAULT,
    };

    host_send(host, port, &to, mad);
}

int lab_smp(LabHost *host, unsigned port, uint16_t dlid, unsigned method,
            unsigned attr, uint32_t mod, uint64_t m_key, uint8_t *data)
{
    IbMadAddress to = {
        .dlid = dlid, .vl = IB_VL_MANAGEMENT, .pkey = IB_PKEY_DEFAULT,
    };
    IbSmp smp = {
        .hdr = { .base_version = 1, .mgmt_class = IB_CLASS_SM_LID,
                 .class_version = 1, .method = method,
                 .tid = host->lab->next_tid++, .attr_id = attr,
                 .attr_mod = mod },
        .m_key = m_key,
    };
    uint8_t mad[IB_MAD_LEN] = { 0 };

    ib_smp_pack(mad, &smp);
    memcpy(mad + IB_SMP_DATA_OFFSET, data, IB_SMP_DATA_LEN);
    host->last_smp_status = -1;
    lab_send(host, port, &to, mad);
    lab_run(host->lab, 1 * IB_MSEC);
    if (host->last_smp_status >= 0) {
        memcpy(data, host->last_smp, IB_SMP_DATA_LEN);
    }
    return host->last_smp_status;
}

LabMad *lab_next_mad(LabHost *host)
{
    return g_queue_pop_head(&host->mads);
}

void lab_flush(LabHost *host)
{
    LabMad *mad;

    while ((mad = lab_next_mad(host))) {
        g_free(mad);
    }
}

/* The SM */

static bool sm_put(void *opaque, const uint8_t *packet, size_t len)
{
    return put(opaque, 1, packet, len);
}

static void sm_said(void *opaque, SmLogLevel level, const char *line)
{
    LabHost *host = opaque;

    g_string_append_printf(host->lab->log, "%s: %s\n",
                           sm_log_level_name(level), line);
    if (host->lab->verbose) {
        g_test_message("%10.3f ms %s %s: %s",
                       ib_clock_now(&host->lab->clock) / 1e6, host->name,
                       sm_log_level_name(level), line);
    }
}

static void sm_told(void *opaque, const char *json)
{
    LabHost *host = opaque;

    g_string_append_printf(host->lab->events, "%s\n", json);
}

static const SmOps sm_ops = {
    .send = sm_put, .log = sm_said, .event = sm_told,
};

/* The lab */

static void attach(LabHost *host, uint64_t guid)
{
    IbLinkHello hello = {
        .version = IB_LINK_VERSION, .num_ports = host->num_ports,
        .node_type = IB_NODE_CA, .node_guid = guid,
    };
    char *error;

    strcpy(hello.name, host->name);
    for (unsigned p = 1; p <= host->num_ports; p++) {
        hello.port_guids[p - 1] = guid + p;
        host->memory[p - 1] = g_new0(IbLinkPortMemory, 1);
        ib_ring_format(&host->memory[p - 1]->to_fabric);
        ib_ring_format(&host->memory[p - 1]->to_node);
        ib_ring_init_producer(&host->tx[p], &host->memory[p - 1]->to_fabric);
        ib_ring_init_consumer(&host->rx[p], &host->memory[p - 1]->to_node);
    }
    if (!fabric_node_attach(host->lab->fabric, &hello, host->memory, host,
                            &error)) {
        g_error("%s", error);
    }
    host->attached = true;
    for (unsigned p = 1; p <= host->num_ports; p++) {
        fabric_node_enable(host->lab->fabric, host->index, p, true);
    }
}

static void detach(LabHost *host)
{
    fabric_node_detach(host->lab->fabric, host->index);
    for (unsigned p = 0; p < host->num_ports; p++) {
        g_free(host->memory[p]);
        host->memory[p] = NULL;
    }
    host->attached = false;
}

uint64_t lab_guid(const LabHost *host, unsigned port)
{
    return UINT64_C(0x0200000000000000) | (uint64_t)(host->index + 1) << 16 |
           port;
}

void lab_attach(LabHost *host)
{
    ib_sma_init(&host->sma, &host->lab->clock, IB_NODE_CA, host->num_ports,
                lab_guid(host, 0), host->name, &host_ops, host);
    attach(host, lab_guid(host, 0));
}

void lab_detach(LabHost *host)
{
    detach(host);
    ib_sma_fini(&host->sma);
    lab_flush(host);
}

LabHost *lab_host(SmLab *lab, const char *name)
{
    for (unsigned i = 0; i < lab->hosts->len; i++) {
        LabHost *host = g_ptr_array_index(lab->hosts, i);

        if (strcmp(host->name, name) == 0) {
            return host;
        }
    }
    g_error("no host %s", name);
}

SmLab *lab_new(const char *text, uint32_t seed)
{
    SmLab *lab = g_new0(SmLab, 1);
    char *errors;

    ib_clock_init_virtual(&lab->clock);
    lab->topology = topology_parse("lab", text, strlen(text), &errors);
    if (!lab->topology) {
        g_error("%s", errors);
    }
    lab->fabric = fabric_new(lab->topology, &lab->clock, seed, &fabric_ops,
                             lab);
    lab->hosts = g_ptr_array_new();
    lab->rand = g_rand_new_with_seed(seed);
    lab->next_tid = 1;
    lab->log = g_string_new(NULL);
    lab->events = g_string_new(NULL);
    lab->verbose = g_getenv("SM_LAB_VERBOSE") != NULL;
    for (unsigned i = 0; i < lab->topology->num_nodes; i++) {
        const TopologyNode *node = &lab->topology->nodes[i];
        LabHost *host;

        if (node->kind != TOPOLOGY_HOST) {
            continue;
        }
        host = g_new0(LabHost, 1);
        host->lab = lab;
        host->index = i;
        host->num_ports = node->num_ports;
        g_strlcpy(host->name, node->name, sizeof(host->name));
        g_queue_init(&host->mads);
        g_ptr_array_add(lab->hosts, host);
        if (strncmp(host->name, "sm", 2) != 0) {
            lab_attach(host);
        }
    }
    return lab;
}

void lab_free(SmLab *lab)
{
    for (unsigned i = 0; i < lab->hosts->len; i++) {
        LabHost *host = g_ptr_array_index(lab->hosts, i);

        if (host->sm) {
            lab_stop_sm(lab, host->name);
        } else if (host->attached) {
            lab_detach(host);
        }
    }
    for (unsigned i = 0; i < lab->hosts->len; i++) {
        g_free(g_ptr_array_index(lab->hosts, i));
    }
    g_ptr_array_free(lab->hosts, true);
    fabric_free(lab->fabric);
    topology_free(lab->topology);
    g_rand_free(lab->rand);
    g_string_free(lab->log, true);
    g_string_free(lab->events, true);
    ib_clock_fini(&lab->clock);
    g_free(lab);
}

Sm *lab_start_sm(SmLab *lab, const char *name, const SmOptions *options)
{
    LabHost *host = lab_host(lab, name);
    SmOptions defaults;
    char *error;

    if (!options) {
        sm_options_init(&defaults);
    } else {
        defaults = *options;
    }
    if (!defaults.node_guid) {
        defaults.node_guid = LAB_SM_GUID;
        defaults.port_guid = LAB_SM_GUID + 1;
    }
    if (lab->verbose) {
        defaults.log_level = SM_LOG_DEBUG;
    }
    host->sm = sm_new(&lab->clock, &defaults, &sm_ops, host, &error);
    if (!host->sm) {
        g_error("%s", error);
    }
    attach(host, defaults.node_guid);
    return host->sm;
}

void lab_stop_sm(SmLab *lab, const char *name)
{
    LabHost *host = lab_host(lab, name);

    detach(host);
    sm_free(host->sm);
    host->sm = NULL;
}

Sm *lab_sm(SmLab *lab)
{
    return lab_host(lab, "sm")->sm;
}

static bool host_run(LabHost *host)
{
    bool did = false;

    for (unsigned p = 1; host->attached && p <= host->num_ports; p++) {
        const uint8_t *packet;
        uint32_t len;

        while ((packet = ib_ring_peek(&host->rx[p], &len))) {
            did = true;
            if ((unsigned)g_rand_int_range(host->lab->rand, 0, 100) <
                host->drop_percent) {
                /* lost */
            } else if (host->sm) {
                sm_receive(host->sm, packet, len);
            } else {
                host_receive(host, p, packet, len);
            }
            ib_ring_consume(&host->rx[p]);
        }
    }
    return did;
}

static void run_now(SmLab *lab)
{
    bool again;

    do {
        again = ib_clock_run(&lab->clock, TIMER_BUDGET) != 0;
        while (fabric_run(lab->fabric, FABRIC_BUDGET)) {
            continue;
        }
        for (unsigned i = 0; i < lab->hosts->len; i++) {
            again |= host_run(g_ptr_array_index(lab->hosts, i));
        }
        while (fabric_run(lab->fabric, FABRIC_BUDGET)) {
            again = true;
        }
    } while (again);
}

static void step(SmLab *lab, int64_t end)
{
    int64_t next = MIN(ib_clock_deadline(&lab->clock), end);

    ib_clock_set(&lab->clock, next);
    run_now(lab);
}

void lab_run(SmLab *lab, int64_t ns)
{
    int64_t end = ib_clock_now(&lab->clock) + ns;

    run_now(lab);
    while (ib_clock_now(&lab->clock) < end) {
        step(lab, end);
    }
}

void lab_settle(SmLab *lab, int64_t limit_ns)
{
    int64_t end = ib_clock_now(&lab->clock) + limit_ns;

    /* A switch may have to hold its trap for a SubnetTimeOut. */
    lab_run(lab, 100 * IB_MSEC);
    while (!sm_settled(lab_sm(lab))) {
        if (ib_clock_now(&lab->clock) >= end) {
            g_test_message("%s", lab->log->str);
            g_error("the SM is not settled after %" G_GINT64_FORMAT " ms",
                    limit_ns / IB_MSEC);
        }
        step(lab, end);
    }
}

void lab_cable(SmLab *lab, const char *cable, bool plugged)
{
    int index = topology_find_cable(lab->topology, cable);

    g_assert_cmpint(index, >=, 0);
    fabric_cable_set(lab->fabric, index, plugged);
}

uint16_t lab_lid(const LabHost *host, unsigned port)
{
    return host->sma.ports[port].info.lid;
}

unsigned lab_state(const LabHost *host, unsigned port)
{
    return host->sma.ports[port].info.state;
}

void lab_gid(const LabHost *host, unsigned port, uint8_t gid[16])
{
    ib_put64(gid, UINT64_C(0xFE80000000000000));
    ib_put64(gid + 8, lab_guid(host, port));
}

/* SA */

static const IbMadAddress to_sa = {
    .src_qpn = 1, .dest_qpn = 1, .qkey = IB_QKEY_QP1,
    .pkey = IB_PKEY_DEFAULT,
};

static void sa_send(LabHost *host, unsigned port, IbSaHeader *header,
                    const uint8_t *data)
{
    uint8_t mad[IB_MAD_LEN] = { 0 };

    header->hdr.base_version = 1;
    header->hdr.mgmt_class = IB_CLASS_SA;
    if (!header->hdr.class_version) {
        header->hdr.class_version = 2;
    }
    header->hdr.tid = 0x4C414200000000 | host->lab->next_tid++;
    ib_sa_header_pack(mad, header);
    if (data) {
        memcpy(mad + IB_SA_DATA_OFFSET, data, IB_SA_DATA_LEN);
    }
    lab_send(host, port, &to_sa, mad);
}

/* Takes the answer to @tid out of what has arrived. */
static LabMad *take(LabHost *host, uint64_t tid)
{
    for (GList *l = host->mads.head; l; l = l->next) {
        LabMad *mad = l->data;

        if (ib_get64(mad->mad + 8) == tid &&
            (mad->mad[3] & IB_METHOD_RESPONSE_BIT)) {
            g_queue_delete_link(&host->mads, l);
            return mad;
        }
    }
    return NULL;
}

int lab_sa(LabHost *host, unsigned port, IbSaHeader *header,
           const uint8_t *data, uint8_t reply[IB_SA_DATA_LEN])
{
    uint64_t tid;
    unsigned method = header->hdr.method;
    LabMad *mad;
    int status;

    sa_send(host, port, header, data);
    tid = header->hdr.tid;
    lab_run(host->lab, 10 * IB_MSEC);
    mad = take(host, tid);
    if (!mad) {
        return -1;
    }
    ib_sa_header_unpack(header, mad->mad);
    g_assert_cmphex(header->hdr.method, ==,
                    (method == IB_METHOD_SET ? IB_METHOD_GET : method) |
                    IB_METHOD_RESPONSE_BIT);
    g_assert_cmpuint(header->sm_key, ==, 0);
    if (reply) {
        memcpy(reply, mad->mad + IB_SA_DATA_OFFSET, IB_SA_DATA_LEN);
    }
    status = header->hdr.status;
    g_free(mad);
    return status;
}

GByteArray *lab_sa_table(LabHost *host, unsigned port, IbSaHeader *header,
                         const uint8_t *data, int *status)
{
    GByteArray *bytes = g_byte_array_new();
    uint32_t next = 1, total = 0;
    uint64_t tid;

    header->hdr.method = IB_METHOD_GET_TABLE;
    sa_send(host, port, header, data);
    tid = header->hdr.tid;
    for (unsigned i = 0; i < 100000; i++) {
        LabMad *mad;
        IbSaHeader h, ack;
        uint8_t out[IB_MAD_LEN] = { 0 };
        uint32_t len = IB_SA_DATA_LEN;

        lab_run(host->lab, 1 * IB_MSEC);
        mad = take(host, tid);
        if (!mad) {
            continue;
        }
        ib_sa_header_unpack(&h, mad->mad);
        if (h.hdr.status || !(h.rmpp_flags & 1)) {
            *status = h.hdr.status;
            g_free(mad);
            g_byte_array_free(bytes, true);
            return NULL;
        }
        g_assert_cmphex(h.hdr.method, ==, IB_METHOD_GET_TABLE_RESP);
        g_assert_cmpuint(h.rmpp_version, ==, 1);
        g_assert_cmpuint(h.rmpp_type, ==, 1);
        g_assert_cmpint(!!(h.rmpp_flags & 2), ==, h.rmpp_data1 == 1);
        if (h.rmpp_data1 == next) {
            if (next == 1) {
                total = h.rmpp_data2;
            }
            if (h.rmpp_flags & 4) {
                len = h.rmpp_data2 - 20;
            }
            g_byte_array_append(bytes, mad->mad + IB_SA_DATA_OFFSET, len);
            next++;
        }
        /* As Linux does it: the ACK has the request's method. */
        ack = h;
        ack.hdr.method ^= IB_METHOD_RESPONSE_BIT;
        ack.rmpp_type = 2;
        ack.rmpp_flags = 1;
        ack.rmpp_data1 = next - 1;
        ack.rmpp_data2 = next - 1 + 64;
        ib_sa_header_pack(out, &ack);
        lab_send(host, port, &to_sa, out);
        if ((h.rmpp_flags & 4) && h.rmpp_data1 == next - 1) {
            g_assert_cmpuint(total, ==, bytes->len + 20 * (next - 1));
            *header = h;
            *status = 0;
            g_free(mad);
            lab_run(host->lab, 1 * IB_MSEC);
            return bytes;
        }
        g_free(mad);
    }
    *status = -1;
    g_byte_array_free(bytes, true);
    return NULL;
}

int lab_subscribe(LabHost *host, unsigned port, unsigned trap,
                  bool subscribe)
{
    IbSaHeader header = {
        .hdr = { .method = IB_METHOD_SET, .attr_id = IB_ATTR_INFORM_INFO },
    };
    IbInformInfo info = {
        .lid_begin = 0xFFFF, .is_generic = 1, .subscribe = subscribe,
        .type = 0xFFFF, .trap = trap, .qpn = 1, .resp_time = 18,
        .producer = 0xFFFFFF,
    };
    uint8_t data[IB_SA_DATA_LEN] = { 0 }, reply[IB_SA_DATA_LEN];
    int status;

    ib_inform_info_pack(data, &info);
    status = lab_sa(host, port, &header, data, reply);
    if (status == 0) {
        g_assert_cmpmem(reply, IB_INFORM_INFO_LEN, data, IB_INFORM_INFO_LEN);
    }
    return status;
}

bool lab_report(LabHost *host, IbNotice *notice)
{
    for (GList *l = host->mads.head; l; l = l->next) {
        LabMad *mad = l->data;

        if (mad->mad[1] == IB_CLASS_SA && mad->mad[3] == IB_METHOD_REPORT) {
            g_assert_cmphex(ib_get16(mad->mad + 16), ==, IB_ATTR_NOTICE);
            ib_notice_unpack(notice, mad->mad + IB_SA_DATA_OFFSET,
                             IB_NOTICE_LEN);
            g_queue_delete_link(&host->mads, l);
            g_free(mad);
            return true;
        }
    }
    return false;
}

bool lab_reaches(SmLab *lab, LabHost *from, unsigned from_port, LabHost *to,
                 unsigned to_port)
{
    IbMadAddress address = to_sa;
    uint8_t mad[IB_MAD_LEN] = { 1, IB_CLASS_CM, 2, IB_METHOD_SEND };
    LabMad *got;
    bool found = false;

    lab_flush(to);
    address.dlid = lab_lid(to, to_port);
    ib_put64(mad + 8, lab->next_tid++);
    lab_send(from, from_port, &address, mad);
    run_now(lab);
    while ((got = lab_next_mad(to))) {
        found |= memcmp(got->mad, mad, IB_MAD_LEN) == 0 &&
                 got->port == to_port &&
                 got->from.slid == lab_lid(from, from_port);
        g_free(got);
    }
    return found;
}
