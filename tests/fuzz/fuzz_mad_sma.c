/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Streams of management datagrams, cable events and time against the agents
 * of a CA and of a switch.  Input: records of one command byte and its
 * arguments.  Checked all the time: port states that can be, replies that
 * leave by ports that are there, traps that end.
 */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "ib/bytes.h"
#include "ib/sma.h"

#define CA_PORTS 2
#define SWITCH_PORTS 4
#define MAX_COMMANDS 64

static unsigned traps_sent;

static void changed(void *opaque, unsigned port, unsigned changes,
                    unsigned old_state)
{
    IbSma *sma = *(IbSma **)opaque;

    FUZZ_ASSERT(port <= sma->num_ports);
    FUZZ_ASSERT(changes);
    FUZZ_ASSERT(!(changes & IB_SMA_CHANGE_STATE) ||
                sma->ports[port].info.state != old_state);
}

static void send_trap(void *opaque, unsigned port, const IbMadAddress *to,
                      const uint8_t *mad)
{
    IbSma *sma = *(IbSma **)opaque;

    traps_sent++;
    FUZZ_ASSERT(ib_lid_is_unicast(to->dlid) && ib_lid_is_unicast(to->slid));
    FUZZ_ASSERT(ib_sma_port_usable(sma, port));
    FUZZ_ASSERT(mad[3] == IB_METHOD_TRAP);
}

static bool attribute(void *opaque, unsigned port, bool set, uint16_t attr_id,
                      uint32_t attr_mod, uint8_t *data)
{
    data[63] ^= set;
    return attr_mod & 1;
}

static const IbSmaOps ops = {
    .changed = changed, .send = send_trap, .attribute = attribute,
};

static void check(const IbSma *sma)
{
    for (unsigned port = 0; port <= sma->num_ports; port++) {
        const IbPortInfo *info = &sma->ports[port].info;
        bool up = info->phys_state == IB_PHYS_LINK_UP;

        FUZZ_ASSERT(info->state >= IB_PORT_DOWN &&
                    info->state <= IB_PORT_ACTIVE);
        FUZZ_ASSERT(info->phys_state >= IB_PHYS_SLEEP &&
                    info->phys_state <= IB_PHYS_LINK_UP);
        FUZZ_ASSERT(up == (info->state != IB_PORT_DOWN));
        FUZZ_ASSERT(info->lid == 0 || ib_lid_is_unicast(info->lid));
        FUZZ_ASSERT(info->neighbor_mtu >= 1 &&
                    info->neighbor_mtu <= info->mtu_cap);
        FUZZ_ASSERT(info->lmc <= 7);
        FUZZ_ASSERT(!(info->width_enabled & ~info->width_supported));
    }
}

static void receive(IbSma *sma, FuzzInput *in)
{
    uint8_t *mad = malloc(IB_MAD_LEN);
    unsigned in_port = fuzz_byte(in) % (sma->num_ports + 2);
    IbMadAddress from = { .slid = fuzz_byte(in), .dlid = fuzz_byte(in) };
    IbMadAddress to;
    unsigned out_port = 1000;

    if (!mad) {
        abort();
    }
    for (unsigned i = 0; i < IB_MAD_LEN; i++) {
        mad[i] = fuzz_byte(in);
    }
    if (mad[1] == IB_CLASS_PM) {
        (void)ib_pma_receive(sma, in_port, mad);
    } else {
        switch (ib_sma_receive(sma, in_port, &from, mad, &out_port, &to)) {
        case IB_SMA_REPLY:
            FUZZ_ASSERT(mad[3] == IB_METHOD_GET_RESP);
            /* fallthrough */
        case IB_SMA_FORWARD:
            FUZZ_ASSERT(out_port <= sma->num_ports);
            break;
        case IB_SMA_DROP:
        case IB_SMA_DELIVER:
            break;
        }
    }
    free(mad);
}

static void run_timers(IbClock *clock, int64_t ns)
{
    ib_clock_set(clock, ib_clock_now(clock) + ns);
    (void)ib_clock_run(clock, 1000);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    FuzzInput in = { .data = data, .left = size };
    IbSma ca, sw, *ca_ptr = &ca, *sw_ptr = &sw;
    IbClock clock;

    traps_sent = 0;
    ib_clock_init_virtual(&clock);
    ib_sma_init(&ca, &clock, IB_NODE_CA, CA_PORTS, 0x100, "ca", &ops,
                &ca_ptr);
    ib_sma_init(&sw, &clock, IB_NODE_SWITCH, SWITCH_PORTS, 0x200, "switch",
                &ops, &sw_ptr);
    sw.switch_info.lft_cap = 0x1000;
    for (unsigned n = 0; n < MAX_COMMANDS && in.left; n++) {
        uint8_t command = fuzz_byte(&in);
        IbSma *sma = command & 0x80 ? &sw : &ca;
        unsigned port = 1 + (command >> 4 & 7) % sma->num_ports;

        switch (command & 0x0F) {
        case 0:
            ib_sma_link_up(sma, port, 1 << (fuzz_byte(&in) % 3), 2);
            break;
        case 1:
            ib_sma_link_down(sma, port);
            break;
        case 2:
            ib_sma_port_enable(sma, port, fuzz_byte(&in) & 1);
            break;
        case 3:
            run_timers(&clock, (int64_t)fuzz_u32(&in) * IB_USEC);
            break;
        case 4:
            ib_sma_trap(sma, port, fuzz_u32(&in), NULL);
            break;
        case 5:
            ib_sma_set_capability(sma, port, fuzz_u32(&in));
            break;
        default:
            receive(sma, &in);
            break;
        }
        check(&ca);
        check(&sw);
    }
    /* Left alone, everything comes to rest. */
    for (unsigned i = 0; i < 2 * IB_SMA_TRAP_TRIES &&
                         ib_clock_deadline(&clock) != IB_CLOCK_NEVER; i++) {
        run_timers(&clock, ib_timeout_ns(31));
    }
    FUZZ_ASSERT(ib_clock_deadline(&clock) == IB_CLOCK_NEVER);
    FUZZ_ASSERT(traps_sent <= (MAX_COMMANDS + 1) * 2 * IB_SMA_TRAP_TRIES *
                              IB_SMA_TRAPS);
    ib_sma_fini(&ca);
    ib_sma_fini(&sw);
    ib_clock_fini(&clock);
    return 0;
}

/* One record: port up, Set(PortInfo) to Armed and Active, then @attr. */
static size_t put_smp(uint8_t *p, uint8_t command, uint8_t in_port,
                      uint8_t mgmt_class, uint8_t method, uint16_t attr,
                      uint32_t mod, const IbPortInfo *info)
{
    IbSmp smp = {
        .hdr = { .base_version = 1, .mgmt_class = mgmt_class,
                 .class_version = 1, .method = method, .tid = 1,
                 .attr_id = attr, .attr_mod = mod },
        .dr_slid = IB_LID_PERMISSIVE, .dr_dlid = IB_LID_PERMISSIVE,
    };

    if (mgmt_class == IB_CLASS_SM_DR) {
        smp.hdr.hop_count = 2;
        smp.hdr.hop_pointer = 1 + (mod & 1);
    }
    p[0] = command;
    p[1] = in_port;
    p[2] = 1;
    p[3] = 5;
    memset(p + 4, 0, IB_MAD_LEN);
    ib_smp_pack(p + 4, &smp);
    if (info) {
        ib_port_info_pack(p + 4 + IB_SMP_DATA_OFFSET, info);
    }
    p[4 + IB_SMP_INITIAL_PATH_OFFSET + 1] = 1;
    p[4 + IB_SMP_INITIAL_PATH_OFFSET + 2] = 2;
    return 4 + IB_MAD_LEN;
}

size_t fuzz_seed(unsigned index, uint8_t *buf)
{
    static const struct {
        uint8_t class, method;
        uint16_t attr;
    } last[] = {
        { 0x01, 1, IB_SM_NODE_INFO }, { 0x81, 1, IB_SM_NODE_INFO },
        { 0x01, 2, IB_SM_PORT_INFO }, { 0x81, 2, IB_SM_PORT_INFO },
        { 0x81, 2, IB_SM_SWITCH_INFO }, { 0x01, 2, IB_SM_GUID_INFO },
        { 0x01, 2, IB_SM_PKEY_TABLE }, { 0x01, 2, IB_SM_VL_ARB },
        { 0x01, 2, IB_SM_SL_TO_VL }, { 0x01, 2, IB_SM_LINEAR_FT },
        { 0x01, 7, IB_ATTR_NOTICE }, { 0x04, 1, IB_PM_PORT_COUNTERS },
        { 0x04, 2, IB_PM_PORT_COUNTERS_EXT }, { 0x81, 0x81, 0x11 },
    };
    uint8_t top = index & 1 ? 0x80 : 0;
    IbPortInfo info = {
        .gid_prefix = 1, .lid = 5, .sm_lid = 1, .neighbor_mtu = 4,
        .subnet_timeout = 5,
    };
    size_t at = 0;

    if (index >= 2 * sizeof(last) / sizeof(last[0])) {
        return 0;
    }
    buf[at++] = top;
    buf[at++] = 0;
    if (top) {
        at += put_smp(buf + at, 0x8F, 1, 0x01, 2, IB_SM_PORT_INFO, 0, &info);
    }
    info.state = IB_PORT_ARMED;
    at += put_smp(buf + at, top | 0x0F, 1, 0x01, 2, IB_SM_PORT_INFO, 1,
                  &info);
    info.state = IB_PORT_ACTIVE;
    at += put_smp(buf + at, top | 0x0F, 1, 0x01, 2, IB_SM_PORT_INFO, 1,
                  &info);
    buf[at++] = top | 0x04;
    ib_put32(buf + at, IB_TRAP_BAD_PKEY);
    at += 4;
    at += put_smp(buf + at, top | 0x0F, 1, last[index / 2].class,
                  last[index / 2].method, last[index / 2].attr, index & 3,
                  NULL);
    buf[at++] = top | 0x01;
    buf[at++] = 0x03;
    ib_put32(buf + at, 1000);
    return at + 4;
}
