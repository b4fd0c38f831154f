/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * IBM eHCA, an InfiniBand host channel adapter on the GX bus, for the
 * pseries machine: the QEMU device around the engine.
 *
 * The adapter shows itself to the guest by three things only: a node "lhca"
 * under the root of the device tree, hypervisor calls that name it by its
 * handle (hcall.c), and a window of register pages whose addresses those
 * calls return.  docs/device.md has the properties.
 */
#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "qemu/cutils.h"
#include "qemu/error-report.h"
#include "qemu/log.h"
#include "qemu/module.h"
#include "qemu/units.h"
#include "qapi/error.h"
#include "exec/address-spaces.h"
#include "hw/boards.h"
#include "hw/irq.h"
#include "hw/pci-host/spapr.h"
#include "hw/ppc/fdt.h"
#include "hw/ppc/spapr_irq.h"
#include "hw/qdev-properties.h"
#include "hw/qdev-properties-system.h"
#include "hw/resettable.h"
#include "migration/blocker.h"
#include "system/runstate.h"
#include "system/system.h"

#include <libfdt.h>

#include "guest-driver/include/ehca_abi.h"
#include "ehca-device.h"
#include "trace.h"

/*
 * Register pages: just below the PCI windows of the pseries machine, above
 * any RAM it can have, below 2^46 (interface reference, 12).  One window per
 * adapter.
 */
#define EHCA_GALPA_WINDOW (4 * GiB)
#define EHCA_GALPA_BASE \
    (SPAPR_PCI_BASE - EHCA_MAX_ADAPTERS * EHCA_GALPA_WINDOW)

/*
 * Interrupt sources: from the part of the XICS number space between the
 * fixed sources of the machine and those of the VIO bus.  Two per adapter.
 * (The bitmap allocator is for PCI MSIs, which must all be free at reset.)
 */
#define EHCA_IST_BASE (SPAPR_XIRQ_BASE + 0x80)

/* Lines of guest errors per second in the log. */
#define EHCA_ERRORS_PER_SECOND 20

/* IBM's company identifier, the upper 24 bits of its GUIDs. */
#define EHCA_IBM_OUI UINT64_C(0x000255)

QEMU_BUILD_BUG_ON(EHCA_IST_BASE + 2 * EHCA_MAX_ADAPTERS > SPAPR_IRQ_VIO);

static QLIST_HEAD(, EhcaDevice) ehca_adapters =
    QLIST_HEAD_INITIALIZER(ehca_adapters);
static Error *ehca_migration_blocker;

static const char *const ehca_activation_names[] = {
    [EHCA_ACTIVATE_AQP1] = "aqp1",
    [EHCA_ACTIVATE_QP0] = "qp0",
    [EHCA_ACTIVATE_ALWAYS] = "always",
};

EhcaDevice *ehca_device_find(uint64_t handle)
{
    EhcaDevice *s;

    QLIST_FOREACH(s, &ehca_adapters, next_adapter) {
        if (s->handle == handle) {
            return s;
        }
    }
    return NULL;
}

void ehca_device_lock(EhcaDevice *s)
{
    qemu_mutex_lock(&s->next);
    qemu_mutex_lock(&s->lock);
    qemu_mutex_unlock(&s->next);
}

void ehca_device_unlock(EhcaDevice *s)
{
    qemu_mutex_unlock(&s->lock);
}

void ehca_device_pulse(EhcaDevice *s, unsigned irqs)
{
    if (s->stopped) {
        s->irqs_kept |= irqs;
        return;
    }
    if (irqs & EHCA_IRQ_EQ) {
        trace_ehca_irq(s->name, "EQ", s->config.ist_eq);
        qemu_irq_pulse(s->irqs[0]);
    }
    if (irqs & EHCA_IRQ_NEQ) {
        trace_ehca_irq(s->name, "NEQ", s->config.ist_neq);
        qemu_irq_pulse(s->irqs[1]);
    }
}

/*
 * Guest memory.  The adapter reaches the machine's RAM at 0 and nothing
 * else: a device's registers could call back into us, and need the big lock.
 * All of it is one mapped cache; a machine whose RAM is put together from
 * several backends takes the slow path.
 */

static bool ehca_dma_valid(void *opaque, uint64_t addr, size_t len)
{
    EhcaDevice *s = opaque;

    return len <= s->ram_size && addr <= s->ram_size - len;
}

static bool ehca_dma_read(void *opaque, uint64_t addr, void *buf, size_t len)
{
    EhcaDevice *s = opaque;

    if (!ehca_dma_valid(s, addr, len)) {
        return false;
    }
    if (likely(s->ram.ptr)) {
        memcpy(buf, (uint8_t *)s->ram.ptr + addr, len);
        return true;
    }
    return address_space_read(&address_space_memory, addr,
                              MEMTXATTRS_UNSPECIFIED, buf, len) == MEMTX_OK;
}

static bool ehca_dma_write(void *opaque, uint64_t addr, const void *buf,
                           size_t len)
{
    EhcaDevice *s = opaque;

    if (!ehca_dma_valid(s, addr, len)) {
        return false;
    }
    if (likely(s->ram.ptr)) {
        if (len) {
            memcpy((uint8_t *)s->ram.ptr + addr, buf, len);
            /* Translated code and the dirty log must hear of it. */
            address_space_cache_invalidate(&s->ram, addr, len);
        }
        return true;
    }
    return address_space_write(&address_space_memory, addr,
                               MEMTXATTRS_UNSPECIFIED, buf, len) == MEMTX_OK;
}

static bool ehca_dma_store64(void *opaque, uint64_t addr, uint64_t value)
{
    EhcaDevice *s = opaque;
    hwaddr len = sizeof(value);
    uint64_t *host;

    if (!ehca_dma_valid(s, addr, len) || !QEMU_IS_ALIGNED(addr, len)) {
        return false;
    }
    /* The entry's other bytes before the one that makes it valid. */
    smp_wmb();
    if (likely(s->ram.ptr)) {
        host = (uint64_t *)((uint8_t *)s->ram.ptr + addr);
        qatomic_set(host, cpu_to_be64(value));
        address_space_cache_invalidate(&s->ram, addr, len);
        return true;
    }
    host = address_space_map(&address_space_memory, addr, &len, true,
                             MEMTXATTRS_UNSPECIFIED);
    if (!host) {
        return false;
    }
    if (len == sizeof(value)) {
        qatomic_set(host, cpu_to_be64(value));
    }
    address_space_unmap(&address_space_memory, host, len, true, len);
    return len == sizeof(value);
}

void ehca_device_log_guest_error(EhcaLogLimit *limit, const char *name,
                                 const char *sentence)
{
    int64_t now = get_clock();

    if (!qemu_loglevel_mask(LOG_GUEST_ERROR)) {
        return;
    }
    if (now - limit->since_ns >= NANOSECONDS_PER_SECOND) {
        if (limit->lines > EHCA_ERRORS_PER_SECOND) {
            qemu_log("%s: and %u more\n", name,
                     limit->lines - EHCA_ERRORS_PER_SECOND);
        }
        limit->since_ns = now;
        limit->lines = 0;
    }
    if (limit->lines++ < EHCA_ERRORS_PER_SECOND) {
        qemu_log("%s: %s\n", name, sentence);
    }
}

/* The engine's other callbacks: adapter's lock held, except for wake. */

static void ehca_op_port_enable(void *opaque, unsigned port, bool enable)
{
    ehca_link_phys(opaque, port, enable);
}

static void ehca_op_kick(void *opaque, unsigned port)
{
    EhcaDevice *s = opaque;

    if (s->link) {
        ib_link_kick(&s->link->wake);
    }
}

static void ehca_op_wake(void *opaque)
{
    ehca_thread_wake(opaque);
}

static void ehca_op_event(void *opaque, const EhcaEvent *event)
{
    EhcaDevice *s = opaque;

    if (trace_event_get_state_backends(TRACE_EHCA_EVENT)) {
        char json[IB_LINK_BODY_MAX];

        ehca_event_json(event, json, sizeof(json));
        trace_ehca_event(s->name, json);
    }
    ehca_link_event(s, event);
}

static void ehca_op_guest_error(void *opaque, const char *sentence)
{
    EhcaDevice *s = opaque;

    ehca_device_log_guest_error(&s->log_limit, s->name, sentence);
}

static const EhcaOps ehca_device_ops = {
    .dma_read = ehca_dma_read,
    .dma_write = ehca_dma_write,
    .dma_store64 = ehca_dma_store64,
    .dma_valid = ehca_dma_valid,
    .port_enable = ehca_op_port_enable,
    .kick = ehca_op_kick,
    .wake = ehca_op_wake,
    .event = ehca_op_event,
    .guest_error = ehca_op_guest_error,
};

/*
 * Register pages.  Only an aligned doubleword means anything.  The bus must
 * take the rest as well: an access that it refuses is a machine check, with
 * which whoever has a register page mapped could bring a guest down.
 */

static bool ehca_galpa_access_ok(hwaddr offset, unsigned size)
{
    return size == 8 && !(offset & 7);
}

static uint64_t ehca_galpa_read(void *opaque, hwaddr offset, unsigned size)
{
    EhcaDevice *s = opaque;
    uint64_t value = 0;

    if (ehca_galpa_access_ok(offset, size)) {
        value = ehca_mmio_read(s->adapter, offset);
    }
    trace_ehca_mmio_read(s->name, offset, value);
    return value;
}

static void ehca_galpa_write(void *opaque, hwaddr offset, uint64_t value,
                             unsigned size)
{
    EhcaDevice *s = opaque;

    trace_ehca_mmio_write(s->name, offset, value);
    if (ehca_galpa_access_ok(offset, size)) {
        ehca_thread_doorbell(s, offset, value);
    }
}

static const MemoryRegionOps ehca_galpa_ops = {
    .read = ehca_galpa_read,
    .write = ehca_galpa_write,
    .endianness = DEVICE_BIG_ENDIAN,
    .valid = { .min_access_size = 1, .max_access_size = 8,
               .unaligned = true },
    .impl = { .min_access_size = 1, .max_access_size = 8, .unaligned = true },
};

/* Device tree (interface reference, 3.1) */

void spapr_ehca_dt(void *fdt)
{
    EhcaDevice *s;

    QLIST_FOREACH(s, &ehca_adapters, next_adapter) {
        g_autofree char *name = g_strdup_printf(
            EHCA_DT_NODE_NAME "@%" PRIx64, s->config.galpa_base);
        uint64_t reg[2] = {
            cpu_to_be64(s->config.galpa_base),
            cpu_to_be64(ehca_mmio_size(&s->config)),
        };
        int node;

        _FDT((node = fdt_add_subnode(fdt, 0, name)));
        _FDT(fdt_setprop_string(fdt, node, "compatible",
                                EHCA_DT_COMPATIBLE));
        _FDT(fdt_setprop(fdt, node, "reg", reg, sizeof(reg)));
        _FDT(fdt_setprop_u64(fdt, node, EHCA_DT_HANDLE, s->handle));
        _FDT(fdt_setprop_string(fdt, node, EHCA_DT_LOC_CODE, s->loc_code));
    }
}

/* Reset, realize */

static void ehca_device_reset_hold(Object *obj, ResetType type)
{
    EhcaDevice *s = EHCA_DEVICE(obj);

    trace_ehca_reset(s->name);
    ehca_device_lock(s);
    ehca_reset(s->adapter);
    /* Whatever was to be raised belonged to the machine of before. */
    (void)ehca_take_irqs(s->adapter);
    s->irqs_kept = 0;
    ehca_device_unlock(s);
    ehca_thread_wake(s);
}

/* Big lock held; vCPUs stand still before "stop" and after "cont". */
static void ehca_device_vm_state(void *opaque, bool running, RunState state)
{
    EhcaDevice *s = opaque;

    if (s->stopped == !running) {
        return;
    }
    trace_ehca_vm_state(s->name, running ? "running" : "stopped");
    ehca_device_lock(s);
    s->stopped = !running;
    if (running) {
        ib_clock_delay(&s->clock, ib_clock_now(&s->clock) - s->stopped_ns);
    } else {
        s->stopped_ns = ib_clock_now(&s->clock);
    }
    ehca_device_unlock(s);
    if (running) {
        ehca_link_resume(s);
        ehca_device_pulse(s, s->irqs_kept);
        s->irqs_kept = 0;
    }
    ehca_thread_wake(s);
}

/*
 * A node GUID that is the same in each run and differs between the nodes of
 * a lab: made from the node's name in the topology, or from the machine's
 * name or UUID if it has no place in a topology.
 */
static uint64_t ehca_default_guid(EhcaDevice *s)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);   /* FNV-1a */
    g_autofree char *text = g_strdup_printf("%s/%u",
        s->node ?: qemu_get_vm_name() ?: "", s->index);

    for (const char *c = text; *c; c++) {
        hash = (hash ^ (uint8_t)*c) * UINT64_C(0x100000001b3);
    }
    hash ^= hash >> 32;
    /* The last byte is for the ports: GUID + port number. */
    return EHCA_IBM_OUI << 40 | (hash & 0xffffffff) << 8;
}

static bool ehca_device_configure(EhcaDevice *s, MachineState *machine,
                                  Error **errp)
{
    EhcaConfig *config = &s->config;
    unsigned activation;
    uint64_t top;

    for (activation = 0;
         activation < ARRAY_SIZE(ehca_activation_names); activation++) {
        if (!g_strcmp0(s->activation, ehca_activation_names[activation])) {
            break;
        }
    }
    if (activation == ARRAY_SIZE(ehca_activation_names)) {
        error_setg(errp, "ehca: port-activation=%s is not known; it is one "
                   "of aqp1, qp0, always", s->activation);
        return false;
    }
    if (s->num_ports < 1 || s->num_ports > EHCA_MAX_PORTS) {
        error_setg(errp, "ehca: ports=%u: the adapter has 1 or %u",
                   s->num_ports, EHCA_MAX_PORTS);
        return false;
    }
    if (qemu_chr_fe_backend_connected(&s->chr) && (!s->node || !*s->node)) {
        error_setg(errp, "ehca: a chardev but no node; node=NAME says which "
                   "host of the fabric's topology this guest is");
        return false;
    }
    if (s->node && strlen(s->node) >= IB_LINK_NAME_MAX) {
        error_setg(errp, "ehca: node=%s is longer than %u characters",
                   s->node, IB_LINK_NAME_MAX - 1);
        return false;
    }
    for (const char *c = s->node ?: ""; *c; c++) {
        if (!g_ascii_isgraph(*c)) {
            error_setg(errp, "ehca: node=%s has a blank or another character "
                       "that a name may not have", s->node);
            return false;
        }
    }

    for (s->index = 0; s->index < EHCA_MAX_ADAPTERS; s->index++) {
        EhcaDevice *other;

        QLIST_FOREACH(other, &ehca_adapters, next_adapter) {
            if (other->index == s->index) {
                break;
            }
        }
        if (!other) {
            break;
        }
    }
    if (s->index == EHCA_MAX_ADAPTERS) {
        error_setg(errp, "ehca: a guest has at most %u adapters",
                   EHCA_MAX_ADAPTERS);
        return false;
    }

    config->galpa_base = EHCA_GALPA_BASE + s->index * EHCA_GALPA_WINDOW;
    if (!s->handle) {
        s->handle = config->galpa_base | 1;
    }
    if (ehca_device_find(s->handle)) {
        error_setg(errp, "ehca: handle=0x%" PRIx64 " is taken by another "
                   "adapter; leave it out or choose another", s->handle);
        return false;
    }
    if (!s->node_guid) {
        s->node_guid = ehca_default_guid(s);
    }
    if (!s->loc_code) {
        s->loc_code = g_strdup_printf("U78A0.001.EHCA%03u-P1", s->index);
    }

    config->handle = s->handle;
    config->node_guid = s->node_guid;
    config->num_ports = s->num_ports;
    for (unsigned port = 1; port <= s->num_ports; port++) {
        config->port_guids[port - 1] = s->node_guid + port;
    }
    config->max_qp = s->max_qp;
    config->max_cq = s->max_cq;
    config->max_mr = s->max_mr;
    config->max_mw = s->max_mw;
    config->max_mr_pages = s->max_mr_pages;
    config->activation = activation;
    config->ist_eq = EHCA_IST_BASE + 2 * s->index;
    config->ist_neq = config->ist_eq + 1;
    pstrcpy(config->description, sizeof(config->description),
            s->node ?: s->name);
    ehca_config_complete(config);

    if (ehca_mmio_size(config) > EHCA_GALPA_WINDOW) {
        error_setg(errp, "ehca: max-qp=%u and max-cq=%u need register pages "
                   "of 0x%" PRIx64 " bytes, more than the window of 0x%"
                   PRIx64, config->max_qp, config->max_cq,
                   ehca_mmio_size(config), (uint64_t)EHCA_GALPA_WINDOW);
        return false;
    }
    top = ROUND_UP(machine->ram_size, SPAPR_DEVICE_MEM_ALIGN) +
          (machine->maxram_size - machine->ram_size);
    if (top > EHCA_GALPA_BASE) {
        error_setg(errp, "ehca: the machine's memory reaches 0x%" PRIx64
                   ", above the register pages at 0x%" PRIx64
                   "; give it a smaller maxmem", top,
                   (uint64_t)EHCA_GALPA_BASE);
        return false;
    }
    return true;
}

static void ehca_device_realize(DeviceState *dev, Error **errp)
{
    EhcaDevice *s = EHCA_DEVICE(dev);
    SysBusDevice *sbd = SYS_BUS_DEVICE(dev);
    MachineState *machine = MACHINE(qdev_get_machine());
    SpaprMachineState *spapr = (SpaprMachineState *)
        object_dynamic_cast(OBJECT(machine), TYPE_SPAPR_MACHINE);

    if (!spapr) {
        error_setg(errp, "ehca works with the pseries machine only");
        return;
    }
    s->name = dev->id ?: TYPE_EHCA;
    if (!ehca_device_configure(s, machine, errp)) {
        return;
    }

    for (unsigned i = 0; i < ARRAY_SIZE(s->irqs); i++) {
        /* Not level: the handler ends it before it looks (reference, 3.3) */
        if (spapr_irq_claim(spapr, s->config.ist_eq + i, false, errp) < 0) {
            while (i--) {
                spapr_irq_free(spapr, s->config.ist_eq + i, 1);
            }
            return;
        }
    }
    if (QLIST_EMPTY(&ehca_adapters)) {
        error_setg(&ehca_migration_blocker, "device 'ehca' cannot be saved "
                   "or migrated: its queue pairs, and the fabric's end of "
                   "its cables, live in this process");
        if (migrate_add_blocker(&ehca_migration_blocker, errp) < 0) {
            spapr_irq_free(spapr, s->config.ist_eq, ARRAY_SIZE(s->irqs));
            return;
        }
    }

    s->ram_size = machine->ram_size;
    if (address_space_cache_init(&s->ram, &address_space_memory, 0,
                                 s->ram_size, true) < (int64_t)s->ram_size) {
        address_space_cache_destroy(&s->ram);
        s->ram.ptr = NULL;
    }

    ehca_link_init(s);
    ib_clock_init_real(&s->clock);
    s->stopped = !runstate_is_running();
    s->stopped_ns = ib_clock_now(&s->clock);
    s->adapter = ehca_new(&s->config, &s->clock, &ehca_device_ops, s);
    if (!s->adapter) {
        /* As g_malloc() does. */
        error_report("%s: no memory for the adapter", s->name);
        abort();
    }

    memory_region_init_io(&s->mmio, OBJECT(s), &ehca_galpa_ops, s,
                          "ehca-registers", ehca_mmio_size(&s->config));
    sysbus_init_mmio(sbd, &s->mmio);
    sysbus_mmio_map(sbd, 0, s->config.galpa_base);
    for (unsigned i = 0; i < ARRAY_SIZE(s->irqs); i++) {
        sysbus_init_irq(sbd, &s->irqs[i]);
        sysbus_connect_irq(sbd, i, spapr_qirq(spapr, s->config.ist_eq + i));
    }

    QLIST_INSERT_HEAD(&ehca_adapters, s, next_adapter);
    trace_ehca_realize(s->name, s->handle, s->config.galpa_base,
                       s->config.ist_eq, s->config.ist_neq);
    qdev_add_vm_change_state_handler(dev, ehca_device_vm_state, s);
    ehca_thread_start(s);
    ehca_link_start(s);
}

static char *ehca_device_get_report(Object *obj, Error **errp)
{
    EhcaDevice *s = EHCA_DEVICE(obj);
    char *json, *text;

    if (!s->adapter) {
        error_setg(errp, "the adapter is not realized yet");
        return NULL;
    }
    ehca_device_lock(s);
    json = ehca_report(s->adapter);
    ehca_device_unlock(s);
    if (!json) {
        error_setg(errp, "no memory for the report");
        return NULL;
    }
    /* The caller uses g_free(). */
    text = g_strdup(json);
    free(json);
    return text;
}

static char *ehca_device_get_link(Object *obj, Error **errp)
{
    EhcaDevice *s = EHCA_DEVICE(obj);

    if (s->link_state != EHCA_LINK_READY && s->refusal) {
        return g_strdup_printf("%s: %s", ehca_link_state_name(s->link_state),
                               s->refusal);
    }
    return g_strdup(ehca_link_state_name(s->link_state));
}

static void ehca_device_init(Object *obj)
{
    EhcaDevice *s = EHCA_DEVICE(obj);

    qemu_mutex_init(&s->next);
    qemu_mutex_init(&s->lock);
    QSIMPLEQ_INIT(&s->retired);
    s->activation = g_strdup(ehca_activation_names[EHCA_ACTIVATE_AQP1]);
}

static void ehca_device_finalize(Object *obj)
{
    EhcaDevice *s = EHCA_DEVICE(obj);

    /* Never after realize: an adapter cannot be unplugged. */
    assert(!s->adapter);
    qemu_mutex_destroy(&s->lock);
    qemu_mutex_destroy(&s->next);
}

static const Property ehca_device_properties[] = {
    DEFINE_PROP_CHR("chardev", EhcaDevice, chr),
    DEFINE_PROP_STRING("node", EhcaDevice, node),
    DEFINE_PROP_STRING("port-activation", EhcaDevice, activation),
    DEFINE_PROP_UINT64("node-guid", EhcaDevice, node_guid, 0),
    DEFINE_PROP_UINT64("handle", EhcaDevice, handle, 0),
    DEFINE_PROP_STRING("loc-code", EhcaDevice, loc_code),
    DEFINE_PROP_UINT8("ports", EhcaDevice, num_ports, EHCA_MAX_PORTS),
    DEFINE_PROP_UINT32("max-qp", EhcaDevice, max_qp, 0),
    DEFINE_PROP_UINT32("max-cq", EhcaDevice, max_cq, 0),
    DEFINE_PROP_UINT32("max-mr", EhcaDevice, max_mr, 0),
    DEFINE_PROP_UINT32("max-mw", EhcaDevice, max_mw, 0),
    DEFINE_PROP_UINT64("max-mr-pages", EhcaDevice, max_mr_pages, 0),
};

static void ehca_device_class_init(ObjectClass *klass, void *data)
{
    DeviceClass *dc = DEVICE_CLASS(klass);
    ResettableClass *rc = RESETTABLE_CLASS(klass);

    dc->desc = "IBM eHCA InfiniBand adapter";
    dc->realize = ehca_device_realize;
    dc->hotpluggable = false;
    dc->user_creatable = true;
    set_bit(DEVICE_CATEGORY_NETWORK, dc->categories);
    rc->phases.hold = ehca_device_reset_hold;
    device_class_set_props(dc, ehca_device_properties);

    object_class_property_add_str(klass, "report", ehca_device_get_report,
                                  NULL);
    object_class_property_set_description(klass, "report",
        "State of the adapter as a JSON object");
    object_class_property_add_str(klass, "link", ehca_device_get_link, NULL);
    object_class_property_set_description(klass, "link",
        "State of the connection with the fabric");
}

static const TypeInfo ehca_device_types[] = {
    {
        .name = TYPE_EHCA,
        .parent = TYPE_DYNAMIC_SYS_BUS_DEVICE,
        .instance_size = sizeof(EhcaDevice),
        .instance_init = ehca_device_init,
        .instance_finalize = ehca_device_finalize,
        .class_init = ehca_device_class_init,
    },
};

DEFINE_TYPES(ehca_device_types)
