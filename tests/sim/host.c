/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The simulated host; see host.h.  "doc N" names a section of the interface
 * reference that a piece of driver follows.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "host.h"
#include "ib/bytes.h"
#include "ib/mad.h"

#define DEFAULT_RAM (UINT64_C(4) << 20)
#define EQ_ENTRIES 1024u
#define GSI_SEND_WRS 32u
#define GSI_RECV_WRS 128u
#define IST_EQ 0x1001u
#define IST_NEQ 0x1002u
#define RUN_BUDGET 256u
#define DEFAULT_TIMEOUT 10u            /* 4.2 ms */
#define DEFAULT_RETRY 2u
#define DEFAULT_RNR_RETRY 7u

__attribute__((noreturn, format(printf, 2, 3)))
static void host_die(const Host *h, const char *format, ...)
{
    va_list args;

    fprintf(stderr, "host %s: ", h->name);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fprintf(stderr, "%s%s\n", h->last_guest_error[0] ? "; adapter said: " : "",
            h->last_guest_error);
    abort();
}

static void *zalloc(size_t size)
{
    void *p = calloc(1, size);

    if (!p) {
        fprintf(stderr, "host: no memory for %zu bytes\n", size);
        abort();
    }
    return p;
}

/* ------------------------------------------------------------------ */
/* What the engine asks for                                           */
/* ------------------------------------------------------------------ */

static bool ram_ok(const Host *h, uint64_t addr, size_t len)
{
    return addr <= h->ram_size && len <= h->ram_size - addr;
}

static bool op_dma_read(void *opaque, uint64_t addr, void *buf, size_t len)
{
    Host *h = opaque;

    if (!ram_ok(h, addr, len)) {
        return false;
    }
    memcpy(buf, h->ram + addr, len);
    return true;
}

static bool op_dma_write(void *opaque, uint64_t addr, const void *buf,
                         size_t len)
{
    Host *h = opaque;

    if (!ram_ok(h, addr, len)) {
        return false;
    }
    memcpy(h->ram + addr, buf, len);
    return true;
}

static bool op_dma_store64(void *opaque, uint64_t addr, uint64_t value)
{
    Host *h = opaque;

    if (addr & 7 || !ram_ok(h, addr, 8)) {
        return false;
    }
    ib_put64(h->ram + addr, value);
    return true;
}

static bool op_dma_valid(void *opaque, uint64_t addr, size_t len)
{
    return ram_ok(opaque, addr, len);
}

static void op_port_enable(void *opaque, unsigned port, bool enable)
{
    Host *h = opaque;

    h->wants_link[port] = enable;
}

static void op_kick(void *opaque, unsigned port)
{
    /* Whoever owns the wire looks at the rings after each run. */
}

static void op_wake(void *opaque)
{
    Host *h = opaque;

    h->running = true;
}

static void op_event(void *opaque, const EhcaEvent *event)
{
    Host *h = opaque;

    if (h->options.event) {
        h->options.event(h->options.opaque, h, event);
    }
}

static void op_guest_error(void *opaque, const char *sentence)
{
    Host *h = opaque;

    h->guest_errors++;
    snprintf(h->last_guest_error, sizeof(h->last_guest_error), "%s",
             sentence);
    if (!h->options.quiet) {
        fprintf(stderr, "# host %s: %s\n", h->name, sentence);
    }
}

static const EhcaOps host_ops = {
    .dma_read = op_dma_read,
    .dma_write = op_dma_write,
    .dma_store64 = op_dma_store64,
    .dma_valid = op_dma_valid,
    .port_enable = op_port_enable,
    .kick = op_kick,
    .wake = op_wake,
    .event = op_event,
    .guest_error = op_guest_error,
};

/* ------------------------------------------------------------------ */
/* Life, memory, hypercalls                                           */
/* ------------------------------------------------------------------ */

static uint64_t handle_of_name(const char *name)
{
    uint64_t hash = UINT64_C(0xCBF29CE484222325);

    for (; *name; name++) {
        hash = (hash ^ (uint8_t)*name) * UINT64_C(0x100000001B3);
    }
    return (hash >> 32 ^ hash) & 0xFFFFFFFF ? (hash >> 32 ^ hash) & 0xFFFFFFFF
                                            : 1;
}

Host *host_new(const HostOptions *options, IbClock *clock)
{
    Host *h = zalloc(sizeof(*h));

    h->options = *options;
    h->clock = clock;
    snprintf(h->name, sizeof(h->name), "%s", options->name);
    h->ram_size = options->memory ? options->memory : DEFAULT_RAM;
    h->ram_size &= ~(size_t)(EHCA_HW_PAGE_SIZE - 1);
    h->ram = zalloc(h->ram_size);
    h->ram_used = EHCA_HW_PAGE_SIZE;   /* address 0 is nobody's */
    h->block = host_alloc(h, EHCA_CB_SIZE);
    h->list = host_alloc(h, EHCA_CB_SIZE);
    h->config = (EhcaConfig) {
        .handle = options->handle ? options->handle
                                  : handle_of_name(options->name),
        .node_guid = options->node_guid,
        .num_ports = options->num_ports,
        .max_qp = HOST_MAX_QPS,
        .max_cq = HOST_MAX_CQS,
        .max_mr = 256,
        .max_mw = 16,
        .activation = options->activation,
        .galpa_base = HOST_GALPA_BASE,
        .ist_eq = IST_EQ,
        .ist_neq = IST_NEQ,
    };
    snprintf(h->config.description, sizeof(h->config.description),
             "simulated host %.48s", h->name);
    ehca_config_complete(&h->config);
    h->adapter = ehca_new(&h->config, clock, &host_ops, h);
    if (!h->adapter) {
        host_die(h, "no memory for an adapter");
    }
    for (unsigned p = 1; p <= h->config.num_ports; p++) {
        /* As the fabric's: zeroes, and no memory before it is touched. */
        h->memory[p] = mmap(NULL, sizeof(IbLinkPortMemory),
                            PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (h->memory[p] == MAP_FAILED) {
            host_die(h, "no memory for port %u", p);
        }
        h->wants_link[p] = ehca_port_wants_link(h->adapter, p);
    }
    return h;
}

void host_free(Host *h)
{
    if (!h) {
        return;
    }
    for (unsigned p = 1; p <= h->config.num_ports; p++) {
        ehca_port_detach(h->adapter, p);
    }
    ehca_free(h->adapter);
    for (unsigned p = 1; p <= h->config.num_ports; p++) {
        munmap(h->memory[p], sizeof(IbLinkPortMemory));
    }
    for (unsigned i = 0; i < HOST_MAX_QPS; i++) {
        free(h->qps[i]);
    }
    for (unsigned i = 0; i < HOST_MAX_CQS; i++) {
        free(h->cqs[i]);
    }
    while (h->mrs) {
        HostMr *mr = h->mrs;

        h->mrs = mr->next;
        free(mr);
    }
    free(h->ram);
    free(h);
}

uint64_t host_alloc(Host *h, size_t bytes)
{
    uint64_t addr = h->ram_used;
    size_t size = (bytes + EHCA_HW_PAGE_SIZE - 1) &
                  ~(size_t)(EHCA_HW_PAGE_SIZE - 1);

    if (size > h->ram_size - h->ram_used) {
        host_die(h, "%zu bytes asked for, %zu of %zu left (HostOptions.memory)",
                 bytes, h->ram_size - h->ram_used, h->ram_size);
    }
    h->ram_used += size;
    return addr;
}

void *host_ptr(Host *h, uint64_t addr)
{
    return h->ram + addr;
}

uint8_t *host_block(Host *h)
{
    return h->ram + h->block;
}

int64_t host_hcall(Host *h, uint64_t number, const uint64_t in[9],
                   uint64_t out[9])
{
    return ehca_hcall(h->adapter, number, in, out);
}

/* Inputs are r5 .. r12; r4 is the adapter. */
static int64_t call(Host *h, uint64_t number, const uint64_t args[8],
                    uint64_t out[9])
{
    uint64_t in[9] = { h->config.handle };
    uint64_t ignored[9];

    memcpy(in + 1, args, 8 * sizeof(*args));
    return ehca_hcall(h->adapter, number, in, out ? out : ignored);
}

#define ARGS(...) ((const uint64_t[8]) { __VA_ARGS__ })

bool host_run_budget(Host *h, unsigned budget)
{
    h->running = false;
    return ehca_run(h->adapter, budget);
}

bool host_run(Host *h)
{
    return host_run_budget(h, RUN_BUDGET);
}

void host_attach(Host *h, unsigned port)
{
    IbRing tx, rx;

    /* The counters only: slots are written before they are read. */
    memset(&h->memory[port]->to_fabric, 0, offsetof(IbRingShared, slots));
    memset(&h->memory[port]->to_node, 0, offsetof(IbRingShared, slots));
    ib_ring_init_producer(&tx, &h->memory[port]->to_fabric);
    ib_ring_init_consumer(&rx, &h->memory[port]->to_node);
    ehca_port_attach(h->adapter, port, &tx, &rx);
}

void host_hello(Host *h, IbLinkHello *hello, IbLinkPortMemory **memory)
{
    memset(hello, 0, sizeof(*hello));
    hello->version = IB_LINK_VERSION;
    hello->num_ports = h->config.num_ports;
    hello->node_type = IB_NODE_CA;
    hello->node_guid = h->config.node_guid;
    snprintf(hello->name, sizeof(hello->name), "%s", h->name);
    for (unsigned p = 1; p <= h->config.num_ports; p++) {
        hello->port_guids[p - 1] = h->config.port_guids[p - 1];
        memory[p - 1] = h->memory[p];
    }
}

/* ------------------------------------------------------------------ */
/* Rings                                                              */
/* ------------------------------------------------------------------ */

static uint8_t *ring_entry(Host *h, const HostRing *ring, unsigned index)
{
    uint64_t offset = (uint64_t)index * ring->stride;

    return h->ram + ring->pages[offset / EHCA_HW_PAGE_SIZE] +
           offset % EHCA_HW_PAGE_SIZE;
}

static void ring_advance(HostRing *ring)
{
    if (++ring->next == ring->entries) {
        ring->next = 0;
        ring->toggle = !ring->toggle;
    }
}

static void ring_reset(HostRing *ring)
{
    ring->next = 0;
    ring->toggle = true;
}

/* Pages first to last, each below the one before; doc 7. */
static void ring_register(Host *h, HostRing *ring, uint64_t handle,
                          unsigned queue_type, unsigned num_pages,
                          unsigned stride, bool last_answers_0)
{
    uint64_t base;

    if (num_pages == 0 || num_pages > HOST_QUEUE_PAGES) {
        host_die(h, "a queue of %u pages; 1 to %u are possible", num_pages,
                 HOST_QUEUE_PAGES);
    }
    base = host_alloc(h, (size_t)num_pages * EHCA_HW_PAGE_SIZE);
    ring->num_pages = num_pages;
    ring->stride = stride;
    ring->entries = num_pages * EHCA_HW_PAGE_SIZE / stride;
    ring_reset(ring);
    for (unsigned i = 0; i < num_pages; i++) {
        int64_t due = i == num_pages - 1 && last_answers_0
                      ? EHCA_RC_SUCCESS : EHCA_RC_PAGE_REGISTERED;
        int64_t rc;

        ring->pages[i] = base + (uint64_t)(num_pages - 1 - i) *
                                EHCA_HW_PAGE_SIZE;
        rc = call(h, EHCA_H_REGISTER_RPAGES,
                  ARGS(queue_type, handle, ring->pages[i], 1), NULL);
        if (rc != due) {
            host_die(h, "H_REGISTER_RPAGES page %u of %u answered %lld "
                     "instead of %lld", i + 1, num_pages, (long long)rc,
                     (long long)due);
        }
    }
}

static void mmio(Host *h, uint64_t regs, unsigned offset, uint64_t value)
{
    ehca_mmio_write(h->adapter, regs - HOST_GALPA_BASE + offset, value);
}

/* ------------------------------------------------------------------ */
/* Event queues (doc 14)                                              */
/* ------------------------------------------------------------------ */

static uint64_t eq_new(Host *h, HostRing *ring, uint64_t type,
                       unsigned entries, uint32_t ist)
{
    uint64_t out[9];
    int64_t rc = call(h, EHCA_H_ALLOC_RESOURCE, ARGS(type, entries), out);

    if (rc != EHCA_RC_SUCCESS || (uint32_t)out[EHCA_OUT_EQ_IST] != ist) {
        host_die(h, "H_ALLOC_RESOURCE EQ answered %lld, IST 0x%x",
                 (long long)rc, (uint32_t)out[EHCA_OUT_EQ_IST]);
    }
    ring_register(h, ring, out[EHCA_OUT_HANDLE], 0,
                  (uint32_t)out[EHCA_OUT_PAGES], EHCA_EQE_SIZE, true);
    return out[EHCA_OUT_HANDLE];
}

/* Next valid entry; 0: none. */
static uint64_t eq_take(Host *h, HostRing *ring)
{
    uint64_t entry;

    if (ring->entries == 0) {
        return 0;
    }
    entry = ib_get64(ring_entry(h, ring, ring->next));
    if (!!(entry & EHCA_EQE_VALID) != ring->toggle) {
        return 0;
    }
    ring_advance(ring);
    return entry | EHCA_EQE_VALID;
}

static void take_irqs(Host *h)
{
    h->irqs |= ehca_take_irqs(h->adapter);
}

bool host_next_eqe(Host *h, HostEqe *eqe)
{
    for (;;) {
        uint64_t entry = eq_take(h, &h->eq);
        uint32_t token = entry & EHCA_EQE_TOKEN_MASK;

        if (!entry) {
            take_irqs(h);
            if (!(h->irqs & EHCA_IRQ_EQ)) {
                return false;
            }
            /* Drained: all that is there may be overwritten (doc 8.11). */
            h->irqs &= ~(unsigned)EHCA_IRQ_EQ;
            call(h, EHCA_H_QUERY_INT_STATE, ARGS(IST_EQ), NULL);
            continue;
        }
        if (entry & EHCA_EQE_COMPLETION) {
            HostCq *cq = token < HOST_MAX_CQS ? h->cqs[token] : NULL;

            if (cq) {
                mmio(h, cq->regs, EHCA_CQX_EP, 0);
                cq->event = true;
                cq->events++;
            }
            continue;
        }
        *eqe = (HostEqe) {
            .id = entry >> EHCA_EQE_ID_SHIFT & EHCA_EQE_ID_MASK,
            .number = entry >> EHCA_EQE_NUMBER_SHIFT & EHCA_EQE_NUMBER_MASK,
            .token = token,
            .raw = entry,
        };
        return true;
    }
}

bool host_next_neqe(Host *h, HostEqe *eqe)
{
    uint64_t entry = eq_take(h, &h->neq);

    while (!entry) {
        take_irqs(h);
        if (!(h->irqs & EHCA_IRQ_NEQ)) {
            return false;
        }
        h->irqs &= ~(unsigned)EHCA_IRQ_NEQ;
        call(h, EHCA_H_RESET_EVENTS,
             ARGS(h->neq_handle, EHCA_RESET_EVENTS_ALL), NULL);
        entry = eq_take(h, &h->neq);
    }
    *eqe = (HostEqe) {
        .id = entry >> EHCA_EQE_ID_SHIFT & EHCA_EQE_ID_MASK,
        .port = entry >> EHCA_NEQE_PORT_SHIFT & EHCA_NEQE_PORT_MASK,
        .flag = entry & EHCA_NEQE_PORT_FLAG,
        .specific = entry >> EHCA_NEQE_SPECIFIC_SHIFT &
                    EHCA_NEQE_SPECIFIC_MASK,
        .raw = entry,
    };
    return true;
}

/* ------------------------------------------------------------------ */
/* Ports                                                              */
/* ------------------------------------------------------------------ */

int64_t host_query_port(Host *h, unsigned port, HostPortInfo *info)
{
    uint8_t *block = host_block(h);
    int64_t rc;

    memset(block, 0, EHCA_CB_SIZE);
    rc = call(h, EHCA_H_QUERY_PORT, ARGS(port, h->block), NULL);
    if (rc == EHCA_RC_SUCCESS) {
        *info = (HostPortInfo) {
            .state = ib_get32(block + EHCA_PORTCB_PHYS_STATE),
            .phys_state = ib_get32(block + EHCA_PORTCB_PHYS_PSTATE),
            .lid = ib_get32(block + EHCA_PORTCB_LID),
            .lmc = ib_get32(block + EHCA_PORTCB_LMC),
            .sm_lid = ib_get32(block + EHCA_PORTCB_SM_LID),
            .mtu = ib_get32(block + EHCA_PORTCB_MAX_MTU),
            .capability_mask = ib_get32(block + EHCA_PORTCB_CAPABILITY_MASK),
            .pkey_violations = ib_get32(block + EHCA_PORTCB_BAD_PKEY_CNTR),
            .qkey_violations = ib_get32(block + EHCA_PORTCB_QKEY_VIOL_CNTR),
            .gid_prefix = ib_get64(block + EHCA_PORTCB_GID_PREFIX),
            .guid = ib_get64(block + EHCA_PORTCB_GUID_ENTRIES),
        };
    }
    return rc;
}

void host_gid(Host *h, unsigned port, uint8_t gid[16])
{
    HostPortInfo info;

    if (host_query_port(h, port, &info) != EHCA_RC_SUCCESS) {
        host_die(h, "there is no port %u", port);
    }
    ib_put64(gid, info.gid_prefix);
    ib_put64(gid + 8, info.guid);
}

void host_start(Host *h)
{
    h->eq_handle = eq_new(h, &h->eq, EHCA_ALLOC_EQ, EQ_ENTRIES, IST_EQ);
    h->neq_handle = eq_new(h, &h->neq, EHCA_ALLOC_NEQ, EHCA_NEQ_ENTRIES,
                           IST_NEQ);
    for (unsigned p = 1; p <= h->config.num_ports; p++) {
        h->gsi_cq[p] = host_cq_new(h, GSI_SEND_WRS + GSI_RECV_WRS);
        h->gsi[p] = host_gsi_new(h, p, h->gsi_cq[p]);
    }
}

/* ------------------------------------------------------------------ */
/* Completion queues (doc 16)                                         */
/* ------------------------------------------------------------------ */

HostCq *host_cq_new(Host *h, unsigned entries)
{
    HostCq *cq = zalloc(sizeof(*cq));
    uint64_t out[9];
    int64_t rc;

    while (cq->token < HOST_MAX_CQS && h->cqs[cq->token]) {
        cq->token++;
    }
    if (cq->token == HOST_MAX_CQS) {
        host_die(h, "more than %u CQs", HOST_MAX_CQS);
    }
    rc = call(h, EHCA_H_ALLOC_RESOURCE,
              ARGS(EHCA_RT_CQ, h->eq_handle, cq->token,
                   entries + EHCA_CQ_SPARE_ENTRIES), out);
    if (rc != EHCA_RC_SUCCESS) {
        host_die(h, "H_ALLOC_RESOURCE CQ answered %lld", (long long)rc);
    }
    cq->host = h;
    cq->handle = out[EHCA_OUT_HANDLE];
    cq->regs = out[EHCA_OUT_CQ_REGS];
    ring_register(h, &cq->ring, cq->handle, 0, (uint32_t)out[EHCA_OUT_PAGES],
                  EHCA_CQE_SIZE, true);
    h->cqs[cq->token] = cq;
    return cq;
}

int64_t host_cq_free(HostCq *cq, bool force)
{
    int64_t rc = call(cq->host, EHCA_H_FREE_RESOURCE, ARGS(cq->handle, force),
                      NULL);

    if (rc == EHCA_RC_SUCCESS) {
        cq->host->cqs[cq->token] = NULL;
        free(cq);
    }
    return rc;
}

unsigned host_cq_poll(HostCq *cq, HostCqe *cqes, unsigned max)
{
    Host *h = cq->host;
    unsigned n = 0;

    while (n < max) {
        const uint8_t *e = ring_entry(h, &cq->ring, cq->ring.next);

        if (!!(e[EHCA_CQE_VALID] & EHCA_CQE_VALID_BIT) != cq->ring.toggle) {
            break;
        }
        cqes[n++] = (HostCqe) {
            .wr_id = ib_get64(e + EHCA_CQE_ID),
            .optype = e[EHCA_CQE_OPTYPE],
            .flags = e[EHCA_CQE_FLAGS],
            .sl = e[EHCA_CQE_SL],
            .bytes = ib_get32(e + EHCA_CQE_BYTES),
            .imm = ib_get32(e + EHCA_CQE_IMM),
            .local_qpn = ib_get32(e + EHCA_CQE_LOCAL_QPN),
            .token = ib_get32(e + EHCA_CQE_QP_TOKEN),
            .remote_qpn = ib_get32(e + EHCA_CQE_REMOTE_QPN),
            .status = ib_get32(e + EHCA_CQE_STATUS),
            .rlid = ib_get16(e + EHCA_CQE_RLID),
            .dlid = ib_get16(e + EHCA_CQE_DLID),
            .pkey_index = ib_get16(e + EHCA_CQE_PKEY_INDEX),
        };
        ring_advance(&cq->ring);
    }
    if (n) {
        mmio(h, cq->regs, EHCA_CQX_FECA, n);
    }
    return n;
}

void host_cq_arm(HostCq *cq, bool solicited_only)
{
    mmio(cq->host, cq->regs, solicited_only ? EHCA_CQX_N0 : EHCA_CQX_N1,
         EHCA_CQX_ARM);
}

/* ------------------------------------------------------------------ */
/* Memory regions (doc 5.4, 7)                                        */
/* ------------------------------------------------------------------ */

HostMr *host_mr_new(Host *h, size_t length, uint32_t access)
{
    HostMr *mr = zalloc(sizeof(*mr));
    uint64_t pages, out[9];
    int64_t rc;

    mr->host = h;
    mr->length = length;
    mr->addr = host_alloc(h, length);
    mr->iova = HOST_IOVA_BASE + mr->addr;
    mr->bytes = h->ram + mr->addr;
    rc = call(h, EHCA_H_ALLOC_RESOURCE,
              ARGS(EHCA_RT_MR, mr->iova, length,
                   (uint64_t)access << EHCA_MR_ACCESS_SHIFT, HOST_PD), out);
    if (rc != EHCA_RC_SUCCESS) {
        host_die(h, "H_ALLOC_RESOURCE MR of %zu bytes answered %lld", length,
                 (long long)rc);
    }
    mr->handle = out[EHCA_OUT_HANDLE];
    mr->lkey = out[EHCA_OUT_LKEY];
    mr->rkey = out[EHCA_OUT_RKEY];
    pages = (length + EHCA_HW_PAGE_SIZE - 1) / EHCA_HW_PAGE_SIZE;
    for (uint64_t done = 0; done < pages;) {
        uint64_t count = pages - done;
        uint64_t addr = mr->addr + done * EHCA_HW_PAGE_SIZE;
        int64_t due;

        count = count > EHCA_RPAGES_MAX ? EHCA_RPAGES_MAX : count;
        if (count > 1) {
            for (uint64_t i = 0; i < count; i++) {
                ib_put64(h->ram + h->list + 8 * i,
                         addr + i * EHCA_HW_PAGE_SIZE);
            }
            addr = h->list;
        }
        done += count;
        due = done == pages ? EHCA_RC_SUCCESS : EHCA_RC_PAGE_REGISTERED;
        rc = call(h, EHCA_H_REGISTER_RPAGES,
                  ARGS(EHCA_MR_PGSIZE_4K << EHCA_RPAGES_PGSIZE_SHIFT,
                       mr->handle, addr, count), NULL);
        if (rc != due) {
            host_die(h, "H_REGISTER_RPAGES of an MR answered %lld instead of "
                     "%lld", (long long)rc, (long long)due);
        }
    }
    mr->next = h->mrs;
    h->mrs = mr;
    return mr;
}

/* ------------------------------------------------------------------ */
/* Queue pairs (doc 5.3, 11, 17)                                      */
/* ------------------------------------------------------------------ */

HostQp *host_qp_new(Host *h, unsigned service, HostCq *send_cq,
                    HostCq *recv_cq, unsigned send_wrs, unsigned recv_wrs)
{
    HostQp *qp = zalloc(sizeof(*qp));
    bool ud = service == EHCA_SERVICE_UD;
    uint64_t sges = HOST_MAX_SGES + (ud ? EHCA_UD_AV_SGES : 0);
    uint64_t swrs = send_wrs + 1 + (service == EHCA_SERVICE_RC);
    uint64_t rwrs = recv_wrs + 1;
    uint64_t out[9];
    int64_t rc;

    while (qp->token < HOST_MAX_QPS && h->qps[qp->token]) {
        qp->token++;
    }
    if (qp->token == HOST_MAX_QPS) {
        host_die(h, "more than %u QPs", HOST_MAX_QPS);
    }
    rc = call(h, EHCA_H_ALLOC_RESOURCE,
              ARGS(EHCA_RT_QP |
                   (uint64_t)service << EHCA_ALLOC_QP_SERVICE_SHIFT |
                   (uint64_t)EHCA_SIGT_PER_WQE << EHCA_ALLOC_QP_SIGT_SHIFT,
                   send_cq->handle, recv_cq->handle, h->eq_handle,
                   (uint64_t)qp->token << EHCA_ALLOC_QP_TOKEN_SHIFT | HOST_PD,
                   swrs << EHCA_ALLOC_QP_SEND_WRS_SHIFT |
                   rwrs << EHCA_ALLOC_QP_RECV_WRS_SHIFT |
                   sges << EHCA_ALLOC_QP_SEND_SGES_SHIFT |
                   sges << EHCA_ALLOC_QP_RECV_SGES_SHIFT), out);
    if (rc != EHCA_RC_SUCCESS) {
        host_die(h, "H_ALLOC_RESOURCE QP answered %lld", (long long)rc);
    }
    qp->host = h;
    qp->handle = out[EHCA_OUT_HANDLE];
    qp->qpn = out[EHCA_OUT_QPN];
    qp->regs = out[EHCA_OUT_QP_REGS];
    qp->service = service;
    qp->send_cq = send_cq;
    qp->recv_cq = recv_cq;
    ring_register(h, &qp->sq, qp->handle, EHCA_RPAGES_SQ,
                  out[EHCA_OUT_QP_PAGES] >> EHCA_OUT_QP_SQ_PAGES_SHIFT &
                  EHCA_OUT_QP_PAGES_MASK,
                  EHCA_WQE_STRIDE(out[EHCA_OUT_QP_SGES] >>
                                  EHCA_OUT_QP_SEND_SGES_SHIFT &
                                  EHCA_OUT_QP_SGES_MASK), false);
    ring_register(h, &qp->rq, qp->handle, EHCA_RPAGES_RQ,
                  out[EHCA_OUT_QP_PAGES] >> EHCA_OUT_QP_RQ_PAGES_SHIFT &
                  EHCA_OUT_QP_PAGES_MASK,
                  EHCA_WQE_STRIDE(out[EHCA_OUT_QP_SGES] >>
                                  EHCA_OUT_QP_RECV_SGES_SHIFT &
                                  EHCA_OUT_QP_SGES_MASK), true);
    h->qps[qp->token] = qp;
    return qp;
}

int64_t host_qp_free(HostQp *qp)
{
    int64_t rc;

    call(qp->host, EHCA_H_DISABLE_AND_GETC,
         ARGS(EHCA_GETC_BEFORE_FREE, qp->handle), NULL);
    rc = call(qp->host, EHCA_H_FREE_RESOURCE, ARGS(qp->handle, 0), NULL);
    if (rc == EHCA_RC_SUCCESS) {
        qp->host->qps[qp->token] = NULL;
        free(qp);
    }
    return rc;
}

int64_t host_qp_modify(HostQp *qp, uint64_t mask, const uint8_t *block)
{
    Host *h = qp->host;
    uint8_t copy[EHCA_QPCB_SIZE];
    int64_t rc;

    if (block && block != host_block(h)) {
        memcpy(copy, block, sizeof(copy));
        memset(host_block(h), 0, EHCA_CB_SIZE);
        memcpy(host_block(h), copy, sizeof(copy));
    }
    block = host_block(h);
    rc = call(h, EHCA_H_MODIFY_QP, ARGS(qp->handle, mask, h->block), NULL);
    if (rc == EHCA_RC_SUCCESS && mask & EHCA_QPMASK_QP_STATE &&
        ib_get32(block + EHCA_QPCB_QP_STATE) == EHCA_QPS_RESET) {
        ring_reset(&qp->sq);
        ring_reset(&qp->rq);
        qp->sq_new = qp->rq_new = 0;
    }
    return rc;
}

int64_t host_qp_query(HostQp *qp)
{
    memset(host_block(qp->host), 0, EHCA_CB_SIZE);
    return call(qp->host, EHCA_H_QUERY_QP, ARGS(qp->handle, qp->host->block),
                NULL);
}

uint32_t host_qp_field(HostQp *qp, unsigned offset)
{
    int64_t rc = host_qp_query(qp);

    if (rc != EHCA_RC_SUCCESS) {
        host_die(qp->host, "H_QUERY_QP 0x%x answered %lld", qp->qpn,
                 (long long)rc);
    }
    return ib_get32(host_block(qp->host) + offset);
}

unsigned host_qp_state(HostQp *qp)
{
    return host_qp_field(qp, EHCA_QPCB_QP_STATE);
}

unsigned host_qp_mig(HostQp *qp)
{
    return host_qp_field(qp, EHCA_QPCB_PATH_MIGRATION_STATE);
}

/* Where a path's fields stand in the control block, and their mask bits */
typedef struct PathFields {
    unsigned port, pkey_index, sl, send_grh, static_rate, dlid, path_bits;
    unsigned traffic_class, hop_limit, sgid_index, flow_label, dgid;
    uint64_t mask, grh_mask;
} PathFields;

#define PATH_FIELDS(which, al)                                              \
    {                                                                       \
        .port = EHCA_QPCB_##which##_PHYS_PORT,                              \
        .pkey_index = EHCA_QPCB_##which##_P_KEY_IDX,                        \
        .sl = EHCA_QPCB_SERVICE_LEVEL##al,                                  \
        .send_grh = EHCA_QPCB_SEND_GRH_FLAG##al,                            \
        .static_rate = EHCA_QPCB_MAX_STATIC_RATE##al,                       \
        .dlid = EHCA_QPCB_DLID##al,                                         \
        .path_bits = EHCA_QPCB_SOURCE_PATH_BITS##al,                        \
        .traffic_class = EHCA_QPCB_TRAFFIC_CLASS##al,                       \
        .hop_limit = EHCA_QPCB_HOP_LIMIT##al,                               \
        .sgid_index = EHCA_QPCB_SOURCE_GID_IDX##al,                         \
        .flow_label = EHCA_QPCB_FLOW_LABEL##al,                             \
        .dgid = EHCA_QPCB_DEST_GID##al,                                     \
        .mask = EHCA_QPMASK_SERVICE_LEVEL##al |                             \
                EHCA_QPMASK_SEND_GRH_FLAG##al |                             \
                EHCA_QPMASK_MAX_STATIC_RATE##al | EHCA_QPMASK_DLID##al |    \
                EHCA_QPMASK_SOURCE_PATH_BITS##al,                           \
        .grh_mask = EHCA_QPMASK_TRAFFIC_CLASS##al |                         \
                    EHCA_QPMASK_HOP_LIMIT##al |                             \
                    EHCA_QPMASK_SOURCE_GID_IDX##al |                        \
                    EHCA_QPMASK_FLOW_LABEL##al | EHCA_QPMASK_DEST_GID##al,  \
    }

static const PathFields path_fields[2] = {
    [false] = PATH_FIELDS(PRIM, ),
    [true] = PATH_FIELDS(ALT, _AL),
};

uint64_t host_put_path(uint8_t *b, const HostPath *p, bool alternate)
{
    const PathFields *f = &path_fields[alternate];
    uint64_t mask = f->mask;

    ib_put32(b + f->port, p->port);
    ib_put32(b + f->pkey_index, p->pkey_index);
    ib_put32(b + f->sl, p->sl);
    ib_put32(b + f->send_grh, p->grh);
    ib_put32(b + f->static_rate, p->static_rate);
    ib_put32(b + f->dlid, p->dlid);
    ib_put32(b + f->path_bits, p->path_bits);
    if (p->grh) {
        ib_put32(b + f->traffic_class, p->traffic_class);
        ib_put32(b + f->hop_limit, p->hop_limit);
        ib_put32(b + f->sgid_index, p->sgid_index);
        ib_put32(b + f->flow_label, p->flow_label);
        memcpy(b + f->dgid, p->dgid, 16);
        mask |= f->grh_mask;
    }
    /* The primary's port, P_Key and times are set with other transitions. */
    if (alternate) {
        ib_put32(b + EHCA_QPCB_RETRY_COUNT_AL, p->retry_count);
        ib_put32(b + EHCA_QPCB_TIMEOUT_AL, p->timeout);
        ib_put32(b + EHCA_QPCB_RNR_RETRY_COUNT_AL, p->rnr_retry_count);
        mask |= EHCA_QPMASK_ALT_PHYS_PORT | EHCA_QPMASK_ALT_P_KEY_IDX |
                EHCA_QPMASK_RETRY_COUNT_AL | EHCA_QPMASK_TIMEOUT_AL |
                EHCA_QPMASK_RNR_RETRY_COUNT_AL;
    }
    return mask;
}

/* Zeroed control block with the state to go to. */
static uint8_t *state_block(HostQp *qp, unsigned state)
{
    uint8_t *b = host_block(qp->host);

    memset(b, 0, EHCA_CB_SIZE);
    ib_put32(b + EHCA_QPCB_QP_STATE, state);
    return b;
}

static int64_t qp_enable(HostQp *qp)
{
    ib_put32(state_block(qp, EHCA_QPS_INIT) + EHCA_QPCB_QP_ENABLE, 1);
    return host_qp_modify(qp, EHCA_QPMASK_QP_ENABLE, NULL);
}

int64_t host_qp_init(HostQp *qp, unsigned port)
{
    uint8_t *b = state_block(qp, EHCA_QPS_INIT);
    int64_t rc;

    ib_put32(b + EHCA_QPCB_PRIM_PHYS_PORT, port);
    ib_put32(b + EHCA_QPCB_RDMA_ATOMIC_CTRL, EHCA_RDMA_ATOMIC_CTRL_ALL);
    rc = host_qp_modify(qp, EHCA_QPMASK_QP_STATE | EHCA_QPMASK_PRIM_PHYS_PORT |
                        EHCA_QPMASK_PRIM_P_KEY_IDX |
                        EHCA_QPMASK_RDMA_ATOMIC_CTRL, NULL);
    return rc == EHCA_RC_SUCCESS ? qp_enable(qp) : rc;
}

int64_t host_qp_ud_init(HostQp *qp, unsigned port, uint32_t qkey)
{
    uint8_t *b = state_block(qp, EHCA_QPS_INIT);
    uint64_t mask = EHCA_QPMASK_QP_STATE | EHCA_QPMASK_PRIM_P_KEY_IDX |
                    EHCA_QPMASK_QKEY;
    int64_t rc;

    ib_put32(b + EHCA_QPCB_PRIM_PHYS_PORT, port);
    ib_put32(b + EHCA_QPCB_QKEY, qkey);
    if (port) {
        mask |= EHCA_QPMASK_PRIM_PHYS_PORT;
    }
    rc = host_qp_modify(qp, mask, NULL);
    return rc == EHCA_RC_SUCCESS ? qp_enable(qp) : rc;
}

int64_t host_qp_rtr(HostQp *qp, const HostPath *primary,
                    const HostPath *alternate, unsigned mtu_code,
                    uint32_t dest_qpn, uint32_t rq_psn)
{
    uint8_t *b = state_block(qp, EHCA_QPS_RTR);
    uint64_t mask = host_put_path(b, primary, false) | EHCA_QPMASK_QP_STATE |
                    EHCA_QPMASK_PATH_MTU | EHCA_QPMASK_DEST_QP_NR |
                    EHCA_QPMASK_RECEIVE_PSN;

    ib_put32(b + EHCA_QPCB_PATH_MTU, mtu_code);
    ib_put32(b + EHCA_QPCB_DEST_QP_NR, dest_qpn);
    ib_put32(b + EHCA_QPCB_RECEIVE_PSN, rq_psn);
    ib_put32(b + EHCA_QPCB_RDMA_NR_ATOMIC_RESP_RES, 2);
    mask |= EHCA_QPMASK_RDMA_NR_ATOMIC_RESP_RES;
    if (qp->service == EHCA_SERVICE_RC) {
        /* 0.01 ms: the smallest wait there is (IBTA table 45). */
        ib_put32(b + EHCA_QPCB_MIN_RNR_NAK_TIMER_FIELD, 1);
        mask |= EHCA_QPMASK_MIN_RNR_NAK_TIMER_FIELD;
    }
    if (alternate) {
        mask |= host_put_path(b, alternate, true);
    }
    return host_qp_modify(qp, mask, NULL);
}

int64_t host_qp_rts(HostQp *qp, const HostPath *primary, uint32_t sq_psn,
                    bool rearm)
{
    uint8_t *b = state_block(qp, EHCA_QPS_RTS);
    uint64_t mask = EHCA_QPMASK_QP_STATE | EHCA_QPMASK_SEND_PSN;

    ib_put32(b + EHCA_QPCB_SEND_PSN, sq_psn);
    if (qp->service == EHCA_SERVICE_RC) {
        ib_put32(b + EHCA_QPCB_TIMEOUT, primary->timeout);
        ib_put32(b + EHCA_QPCB_RETRY_COUNT, primary->retry_count);
        ib_put32(b + EHCA_QPCB_RNR_RETRY_COUNT, primary->rnr_retry_count);
        ib_put32(b + EHCA_QPCB_RDMA_ATOMIC_OUTST_DEST_QP, 2);
        mask |= EHCA_QPMASK_TIMEOUT | EHCA_QPMASK_RETRY_COUNT |
                EHCA_QPMASK_RNR_RETRY_COUNT |
                EHCA_QPMASK_RDMA_ATOMIC_OUTST_DEST_QP;
    }
    if (rearm) {
        ib_put32(b + EHCA_QPCB_PATH_MIGRATION_STATE, EHCA_MIG_REARM);
        mask |= EHCA_QPMASK_PATH_MIGRATION_STATE;
    }
    return host_qp_modify(qp, mask, NULL);
}

int64_t host_qp_ud_ready(HostQp *qp, uint32_t sq_psn)
{
    uint8_t *b;
    int64_t rc;

    state_block(qp, EHCA_QPS_RTR);
    rc = host_qp_modify(qp, EHCA_QPMASK_QP_STATE, NULL);
    if (rc != EHCA_RC_SUCCESS) {
        return rc;
    }
    b = state_block(qp, EHCA_QPS_RTS);
    ib_put32(b + EHCA_QPCB_SEND_PSN, sq_psn);
    return host_qp_modify(qp, EHCA_QPMASK_QP_STATE | EHCA_QPMASK_SEND_PSN,
                          NULL);
}

int64_t host_qp_to(HostQp *qp, unsigned state)
{
    state_block(qp, state);
    return host_qp_modify(qp, EHCA_QPMASK_QP_STATE, NULL);
}

int64_t host_qp_load_alt(HostQp *qp, const HostPath *alternate, unsigned mig)
{
    uint8_t *b = state_block(qp, EHCA_QPS_RTS);
    uint64_t mask = EHCA_QPMASK_QP_STATE | host_put_path(b, alternate, true);

    if (mig) {
        ib_put32(b + EHCA_QPCB_PATH_MIGRATION_STATE, mig);
        mask |= EHCA_QPMASK_PATH_MIGRATION_STATE;
    }
    return host_qp_modify(qp, mask, NULL);
}

int64_t host_qp_set_mig(HostQp *qp, unsigned mig)
{
    uint8_t *b = state_block(qp, EHCA_QPS_RTS);

    ib_put32(b + EHCA_QPCB_PATH_MIGRATION_STATE, mig);
    return host_qp_modify(qp, EHCA_QPMASK_QP_STATE |
                          EHCA_QPMASK_PATH_MIGRATION_STATE, NULL);
}

HostQp *host_gsi_new(Host *h, unsigned port, HostCq *cq)
{
    HostQp *qp = host_qp_new(h, EHCA_SERVICE_UD, cq, cq, GSI_SEND_WRS,
                             GSI_RECV_WRS);
    int64_t rc = call(h, EHCA_H_DEFINE_AQP1, ARGS(qp->handle, port), NULL);

    if (rc == EHCA_RC_SUCCESS) {
        rc = host_qp_ud_init(qp, 0, IB_QKEY_QP1);
    }
    if (rc == EHCA_RC_SUCCESS) {
        rc = host_qp_ud_ready(qp, 0);
    }
    if (rc != EHCA_RC_SUCCESS) {
        host_die(h, "the GSI QP of port %u could not be made: %lld", port,
                 (long long)rc);
    }
    return qp;
}

/* ------------------------------------------------------------------ */
/* Posting (doc 15)                                                   */
/* ------------------------------------------------------------------ */

static uint8_t *next_wqe(HostQp *qp, HostRing *ring)
{
    uint8_t *w = ring_entry(qp->host, ring, ring->next);

    memset(w, 0, EHCA_WQE_CLEAR_SIZE);
    ring_advance(ring);
    return w;
}

static void put_sges(uint8_t *p, const HostSge *sges, unsigned count)
{
    for (unsigned i = 0; i < count; i++, p += EHCA_SGE_SIZE) {
        ib_put64(p + EHCA_SGE_ADDR, sges[i].addr);
        ib_put32(p + EHCA_SGE_LKEY, sges[i].lkey);
        ib_put32(p + EHCA_SGE_LENGTH, sges[i].length);
    }
}

void host_post_send(HostQp *qp, const HostSendWr *wr)
{
    uint8_t *w = next_wqe(qp, &qp->sq);
    uint8_t *av = w + EHCA_WQE_AV;
    uint64_t total = 0;

    ib_put64(w + EHCA_WQE_ID, wr->wr_id);
    w[EHCA_WQE_OPTYPE] = wr->optype;
    w[EHCA_WQE_FLAGS] = wr->flags;
    w[EHCA_WQE_NR_SGES] = wr->num_sges;
    ib_put32(w + EHCA_WQE_IMM, wr->imm);
    for (unsigned i = 0; i < wr->num_sges; i++) {
        total += wr->sges[i].length;
    }
    if (qp->service != EHCA_SERVICE_UD) {
        ib_put64(w + EHCA_WQE_RADDR, wr->raddr);
        ib_put32(w + EHCA_WQE_RKEY, wr->rkey);
        if (wr->optype == EHCA_WQE_OPTYPE_CMP_SWAP ||
            wr->optype == EHCA_WQE_OPTYPE_FETCH_ADD) {
            ib_put64(w + EHCA_WQE_ATOMIC_1, wr->operand[0]);
            ib_put64(w + EHCA_WQE_ATOMIC_2, wr->operand[1]);
        } else {
            ib_put64(w + EHCA_WQE_TOTAL_LEN, total);
        }
        put_sges(w + EHCA_WQE_SGES, wr->sges, wr->num_sges);
    } else {
        ib_put16(w + EHCA_WQE_PKEYI, wr->pkey_index);
        ib_put32(w + EHCA_WQE_DEST_QPN,
                 wr->dest_qpn << EHCA_WQE_DEST_QPN_SHIFT);
        ib_put32(w + EHCA_WQE_QKEY, wr->qkey);
        av[EHCA_AV_SL] = wr->sl;
        av[EHCA_AV_LNH] = wr->grh ? EHCA_AV_LNH_GRH : 0;
        ib_put16(av + EHCA_AV_DLID, wr->dlid);
        av[EHCA_AV_SLID_PATH_BITS] = wr->path_bits;
        av[EHCA_AV_PMTU] = EHCA_MTU_2048;
        ib_put64(av + EHCA_AV_GRH0,
                 EHCA_GRH0_IPVER << EHCA_GRH0_IPVER_SHIFT |
                 EHCA_GRH0_NXTHDR << EHCA_GRH0_NXTHDR_SHIFT |
                 EHCA_GRH0_HOP_MASK);
        memcpy(av + EHCA_AV_SGID, wr->sgid, 16);
        memcpy(av + EHCA_AV_DGID, wr->dgid, 16);
        put_sges(w + EHCA_WQE_UD_SGES, wr->sges, wr->num_sges);
    }
    qp->sq_new++;
}

void host_post_recv(HostQp *qp, const HostRecvWr *wr)
{
    uint8_t *w = next_wqe(qp, &qp->rq);

    ib_put64(w + EHCA_WQE_ID, wr->wr_id);
    w[EHCA_WQE_NR_SGES] = wr->num_sges;
    put_sges(w + EHCA_WQE_SGES, wr->sges, wr->num_sges);
    qp->rq_new++;
}

void host_ring(HostQp *qp)
{
    if (qp->rq_new) {
        mmio(qp->host, qp->regs, EHCA_QPX_RQA, qp->rq_new);
        qp->rq_new = 0;
    }
    if (qp->sq_new) {
        mmio(qp->host, qp->regs, EHCA_QPX_SQA, qp->sq_new);
        qp->sq_new = 0;
    }
}

/* ------------------------------------------------------------------ */
/* The cable without a fabric                                         */
/* ------------------------------------------------------------------ */

static void cable_end_init(HostCableEnd *end, Host *host, unsigned port)
{
    end->host = host;
    end->port = port;
    host_attach(host, port);
    ib_ring_init_consumer(&end->rx, &host->memory[port]->to_fabric);
    ib_ring_init_producer(&end->tx, &host->memory[port]->to_node);
}

HostCable *host_cable_new(Host *a, unsigned port_a, Host *b, unsigned port_b)
{
    HostCable *c = zalloc(sizeof(*c));

    cable_end_init(&c->ends[0], a, port_a);
    cable_end_init(&c->ends[1], b, port_b);
    c->plugged = true;
    return c;
}

void host_cable_free(HostCable *c)
{
    if (c) {
        for (unsigned e = 0; e < 2; e++) {
            ehca_port_detach(c->ends[e].host->adapter, c->ends[e].port);
        }
        free(c);
    }
}

static bool cable_update(HostCable *c)
{
    bool up = c->plugged;

    for (unsigned e = 0; e < 2; e++) {
        up = up && c->ends[e].host->wants_link[c->ends[e].port];
    }
    if (up == c->up) {
        return false;
    }
    c->up = up;
    for (unsigned e = 0; e < 2; e++) {
        ehca_port_link(c->ends[e].host->adapter, c->ends[e].port, up,
                       EHCA_SPEED_SDR, EHCA_WIDTH_4X);
    }
    return true;
}

void host_cable_set(HostCable *c, bool plugged)
{
    c->plugged = plugged;
    cable_update(c);
}

bool host_cable_inject(HostCable *c, unsigned end, const uint8_t *packet,
                       size_t len)
{
    uint8_t *p = c->up ? ib_ring_reserve(&c->ends[end].tx) : NULL;

    if (!p) {
        return false;
    }
    memcpy(p, packet, len);
    ib_ring_commit(&c->ends[end].tx, len);
    return true;
}

/* SMPs end here: the cable is the subnet manager, if anybody is. */
static bool cable_takes_smp(HostCable *c, const uint8_t *p, size_t len)
{
    IbPacket pkt;

    if (ib_packet_parse(&pkt, p, len) != IB_PACKET_OK ||
        pkt.lrh.vl != IB_VL_MANAGEMENT) {
        return false;
    }
    if (pkt.payload_len == IB_MAD_LEN &&
        p[pkt.header_len + 3] == IB_METHOD_GET_RESP) {
        memcpy(c->smp, p + pkt.header_len, IB_MAD_LEN);
        c->have_smp = true;
    }
    return true;
}

static bool cable_move(HostCable *c, unsigned e)
{
    HostCableEnd *from = &c->ends[e], *to = &c->ends[!e];
    uint8_t packet[IB_RING_DATA_MAX];
    const uint8_t *p;
    uint32_t len32;
    size_t len;

    p = ib_ring_peek(&from->rx, &len32);
    if (!p) {
        return false;
    }
    if (c->up && ib_ring_room(&to->tx) < 2) {
        return false;                  /* no credits; a filter may add one */
    }
    len = len32;
    memcpy(packet, p, len);
    ib_ring_consume(&from->rx);
    if (!c->up) {
        c->dropped[e]++;
    } else if (cable_takes_smp(c, packet, len)) {
        return true;
    } else if (c->filter && !c->filter(c->filter_opaque, e, packet, &len)) {
        c->dropped[e]++;
    } else {
        c->packets[e]++;
        memcpy(ib_ring_reserve(&to->tx), packet, len);
        ib_ring_commit(&to->tx, len);
    }
    return true;
}

bool host_cable_run(HostCable *c)
{
    bool moved = cable_update(c);

    for (unsigned e = 0; e < 2; e++) {
        while (cable_move(c, e)) {
            moved = true;
        }
    }
    return moved;
}

void host_packet_seal(uint8_t *packet, size_t len)
{
    ib_put32(packet + len - IB_ICRC_LEN,
             ib_icrc(packet, len - IB_ICRC_LEN));
}

/* One Get or Set of PortInfo, answered at once. */
static bool cable_port_info(HostCable *c, unsigned end, bool set,
                            IbPortInfo *info)
{
    IbMadAddress to = {
        .slid = IB_LID_PERMISSIVE, .dlid = IB_LID_PERMISSIVE,
        .vl = IB_VL_MANAGEMENT, .pkey = IB_PKEY_DEFAULT,
    };
    IbSmp smp = {
        .hdr = {
            .base_version = 1, .mgmt_class = IB_CLASS_SM_DR,
            .class_version = 1,
            .method = set ? IB_METHOD_SET : IB_METHOD_GET,
            .tid = 1, .attr_id = IB_SM_PORT_INFO,
        },
        .dr_slid = IB_LID_PERMISSIVE, .dr_dlid = IB_LID_PERMISSIVE,
    };
    uint8_t mad[IB_MAD_LEN] = { 0 };
    uint8_t packet[IB_PACKET_MAX];

    ib_smp_pack(mad, &smp);
    if (set) {
        ib_port_info_pack(mad + IB_SMP_DATA_OFFSET, info);
    }
    c->have_smp = false;
    if (!host_cable_inject(c, end, packet, ib_mad_packet(packet, &to, mad))) {
        return false;
    }
    for (unsigned i = 0; i < 16 && !c->have_smp; i++) {
        host_run(c->ends[end].host);
        host_cable_run(c);
    }
    if (!c->have_smp) {
        return false;
    }
    ib_smp_unpack(&smp, c->smp);
    ib_port_info_unpack(info, c->smp + IB_SMP_DATA_OFFSET);
    return (smp.hdr.status & ~IB_MAD_STATUS_DIRECTION) == IB_MAD_STATUS_OK;
}

bool host_cable_activate(HostCable *c, unsigned end, uint16_t lid,
                         uint8_t lmc)
{
    static const uint8_t states[] = { IB_PORT_ARMED, IB_PORT_ACTIVE };
    IbPortInfo info;

    cable_update(c);
    for (unsigned i = 0; i < sizeof(states); i++) {
        if (!cable_port_info(c, end, false, &info)) {
            return false;
        }
        info.lid = lid;
        info.lmc = lmc;
        info.sm_lid = lid;
        info.state = states[i];
        info.phys_state = IB_PHYS_NO_CHANGE;
        info.speed_enabled = 0;        /* both: no change */
        info.width_enabled = 0;
        if (!cable_port_info(c, end, true, &info)) {
            return false;
        }
    }
    return true;
}

/* ------------------------------------------------------------------ */
/* Two hosts, two cables                                              */
/* ------------------------------------------------------------------ */

uint16_t host_pair_lid(unsigned host, unsigned port)
{
    return 2 * port + host - 1;
}

HostPair *host_pair_new(HostEventFn *event, void *opaque)
{
    static const char *const names[2] = { "left", "right" };
    HostPair *pair = zalloc(sizeof(*pair));

    ib_clock_init_virtual(&pair->clock);
    for (unsigned i = 0; i < 2; i++) {
        HostOptions options = {
            .name = names[i], .num_ports = 2, .quiet = true,
            .event = event, .opaque = opaque,
        };

        pair->hosts[i] = host_new(&options, &pair->clock);
    }
    for (unsigned rail = 0; rail < 2; rail++) {
        pair->cables[rail] = host_cable_new(pair->hosts[0], rail + 1,
                                            pair->hosts[1], rail + 1);
    }
    for (unsigned i = 0; i < 2; i++) {
        host_start(pair->hosts[i]);
    }
    for (unsigned rail = 0; rail < 2; rail++) {
        host_pair_activate(pair, rail);
    }
    return pair;
}

void host_pair_free(HostPair *pair)
{
    for (unsigned i = 0; i < 2; i++) {
        host_cable_free(pair->cables[i]);
    }
    for (unsigned i = 0; i < 2; i++) {
        host_free(pair->hosts[i]);
    }
    ib_clock_fini(&pair->clock);
    free(pair);
}

void host_pair_activate(HostPair *pair, unsigned rail)
{
    for (unsigned i = 0; i < 2; i++) {
        if (!host_cable_activate(pair->cables[rail], i,
                                 host_pair_lid(i, rail + 1), 0)) {
            host_die(pair->hosts[i], "port %u did not become Active",
                     rail + 1);
        }
    }
}

/* Everything that can happen at this instant. */
static void pair_settle(HostPair *pair)
{
    bool more;

    do {
        more = ib_clock_run(&pair->clock, UINT32_MAX) != 0;
        for (unsigned i = 0; i < 2; i++) {
            more = host_run(pair->hosts[i]) || more;
        }
        for (unsigned i = 0; i < 2; i++) {
            more = host_cable_run(pair->cables[i]) || more;
        }
    } while (more || pair->hosts[0]->running || pair->hosts[1]->running);
}

bool host_pair_run(HostPair *pair, int64_t ns, bool (*done)(void *opaque),
                   void *opaque)
{
    int64_t end = ib_clock_now(&pair->clock) + ns;

    for (;;) {
        int64_t next;

        pair_settle(pair);
        if (done && done(opaque)) {
            return true;
        }
        next = ib_clock_deadline(&pair->clock);
        if (next > end) {
            ib_clock_set(&pair->clock, end);
            return done && done(opaque);
        }
        ib_clock_set(&pair->clock, next);
    }
}

void host_pair_path(unsigned host, unsigned rail, HostPath *path)
{
    *path = (HostPath) {
        .port = rail + 1,
        .dlid = host_pair_lid(!host, rail + 1),
        .timeout = DEFAULT_TIMEOUT,
        .retry_count = DEFAULT_RETRY,
        .rnr_retry_count = DEFAULT_RNR_RETRY,
    };
}

void host_pair_connect(HostPair *pair, unsigned service, unsigned rail,
                       bool apm, HostCq *const cqs[2], HostQp *qps[2])
{
    for (unsigned i = 0; i < 2; i++) {
        qps[i] = host_qp_new(pair->hosts[i], service, cqs[i], cqs[i], 64, 64);
    }
    for (unsigned i = 0; i < 2; i++) {
        HostPath primary, alternate;
        int64_t rc;

        host_pair_path(i, rail, &primary);
        host_pair_path(i, !rail, &alternate);
        rc = host_qp_init(qps[i], primary.port);
        if (rc == EHCA_RC_SUCCESS) {
            rc = host_qp_rtr(qps[i], &primary, apm ? &alternate : NULL,
                             EHCA_MTU_2048, qps[!i]->qpn, 0x100 * (2 - i));
        }
        if (rc == EHCA_RC_SUCCESS) {
            rc = host_qp_rts(qps[i], &primary, 0x100 * (1 + i), apm);
        }
        if (rc != EHCA_RC_SUCCESS) {
            host_die(pair->hosts[i], "QP 0x%x could not be connected: %lld",
                     qps[i]->qpn, (long long)rc);
        }
    }
}
