/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A simulated host: the adapter's engine and the smallest driver that can use
 * it, as a guest would: only ehca_hcall(), big-endian queues in the guest's
 * memory and the register pages.  No thread, no QEMU; time is the clock's.
 *
 * Theory of operation.  Guest memory is one block, handed out page by page
 * and never taken back.  Queue pages are registered in descending order, so
 * that a ring is never contiguous; MR addresses are I/O virtual addresses
 * that differ from guest addresses.  A host is wired by its ports' memory
 * (host_memory()): either to the fabric library, or by a HostCable, which
 * is a wire with a switch's manners: it can be pulled, look at each packet,
 * change, drop or inject some, and play the subnet manager's part for one
 * port (host_cable_activate()).  HostPair is the ready-made bench of unit
 * tests: two hosts, two cables, all ports Active.
 *
 * What a caller must not do wrong (creating objects) aborts with a sentence;
 * what tests are about (modifying, posting) returns the adapter's answer.
 */
#ifndef SIM_HOST_H
#define SIM_HOST_H

#include "guest-driver/include/ehca_abi.h"
#include "hw/ehca/engine/ehca.h"
#include "ib/clock.h"
#include "ib/link.h"
#include "ib/packet.h"

#define HOST_IOVA_BASE UINT64_C(0x700000000000)
#define HOST_GALPA_BASE UINT64_C(0x4000000000)
#define HOST_PD 0x5EED0001u
#define HOST_MAX_CQS 64
#define HOST_MAX_QPS 64
#define HOST_MAX_SGES 4
#define HOST_QUEUE_PAGES 64

typedef struct Host Host;

typedef void HostEventFn(void *opaque, Host *host, const EhcaEvent *event);

typedef struct HostOptions {
    const char *name;                /* also its name in a topology */
    uint64_t handle;                 /* 0: taken from the name's letters */
    uint64_t node_guid;              /* 0: made from the handle */
    unsigned num_ports;              /* 0: 2 */
    size_t memory;                   /* bytes; 0: 4 MiB */
    EhcaPortActivation activation;
    HostEventFn *event;              /* timeline; may be NULL */
    void *opaque;
    bool quiet;                      /* swallow guest errors (counted) */
} HostOptions;

/* A ring of entries in guest memory, page by page. */
typedef struct HostRing {
    uint64_t pages[HOST_QUEUE_PAGES];
    unsigned num_pages, stride, entries;
    unsigned next;                   /* entry to write (WQ) or read (CQ, EQ) */
    bool toggle;                     /* valid bit expected now (CQ, EQ) */
} HostRing;

typedef struct HostCq {
    Host *host;
    uint64_t handle, regs;
    uint32_t token;
    HostRing ring;
    bool event;                      /* completion EQE since last asked */
    uint64_t events;
} HostCq;

typedef struct HostQp {
    Host *host;
    uint64_t handle, regs;
    uint32_t qpn, token;
    unsigned service;                /* EHCA_SERVICE_* */
    HostCq *send_cq, *recv_cq;
    HostRing sq, rq;
    unsigned sq_new, rq_new;         /* written, not announced yet */
} HostQp;

typedef struct HostMr HostMr;
struct HostMr {
    Host *host;
    HostMr *next;
    uint64_t handle;
    uint64_t addr;                   /* guest address of its first byte */
    uint64_t iova, length;
    uint32_t lkey, rkey;
    uint8_t *bytes;                  /* the memory itself */
};

typedef struct HostSge {
    uint64_t addr;
    uint32_t lkey, length;
} HostSge;

typedef struct HostSendWr {
    uint64_t wr_id;
    uint8_t optype;                  /* EHCA_WQE_OPTYPE_* */
    uint8_t flags;                   /* EHCA_WQE_FLAG_* */
    uint32_t imm;
    uint64_t raddr;                  /* RDMA; atomics */
    uint32_t rkey;
    uint64_t operand[2];             /* atomics: swap or add, compare */
    unsigned num_sges;
    HostSge sges[HOST_MAX_SGES];
    /* UD and GSI. */
    uint32_t dest_qpn, qkey;
    uint16_t dlid, pkey_index;
    uint8_t sl, path_bits;
    bool grh;
    uint8_t sgid[16], dgid[16];
} HostSendWr;

typedef struct HostRecvWr {
    uint64_t wr_id;
    unsigned num_sges;
    HostSge sges[HOST_MAX_SGES];
} HostRecvWr;

typedef struct HostCqe {
    uint64_t wr_id;
    uint8_t optype, flags, sl;
    uint32_t bytes, imm, local_qpn, token, remote_qpn, status;
    uint16_t rlid, dlid, pkey_index;
} HostCqe;

/* An entry of the EQ that is no completion, or of the NEQ. */
typedef struct HostEqe {
    unsigned id;                     /* EHCA_EQE_*, EHCA_NEQE_* */
    uint32_t number, token;          /* EQ */
    unsigned port;                   /* NEQ */
    bool flag;                       /* NEQ: EHCA_NEQE_PORT_FLAG */
    unsigned specific;               /* NEQ */
    uint64_t raw;
} HostEqe;

/* An address vector as H_MODIFY_QP takes it. */
typedef struct HostPath {
    unsigned port;
    uint16_t dlid;
    unsigned pkey_index, sl, path_bits, static_rate;
    unsigned timeout, retry_count, rnr_retry_count;
    bool grh;
    unsigned sgid_index, hop_limit, traffic_class, flow_label;
    uint8_t dgid[16];
} HostPath;

typedef struct HostPortInfo {
    unsigned state, phys_state, lid, lmc, sm_lid, mtu;
    uint32_t capability_mask;
    unsigned pkey_violations, qkey_violations;
    uint64_t gid_prefix, guid;
} HostPortInfo;

struct Host {
    char name[IB_LINK_NAME_MAX];
    HostOptions options;
    EhcaConfig config;
    EhcaAdapter *adapter;
    IbClock *clock;
    uint8_t *ram;
    size_t ram_size, ram_used;
    uint64_t block;                  /* guest address of a control block */
    uint64_t list;                   /* ... of a page list */
    IbLinkPortMemory *memory[EHCA_MAX_PORTS + 1];
    uint64_t eq_handle, neq_handle;
    HostRing eq, neq;
    unsigned irqs;                   /* taken, not answered yet */
    HostCq *cqs[HOST_MAX_CQS];       /* by token */
    HostQp *qps[HOST_MAX_QPS];       /* by token */
    HostMr *mrs;
    HostCq *gsi_cq[EHCA_MAX_PORTS + 1];
    HostQp *gsi[EHCA_MAX_PORTS + 1];
    bool running;                    /* wake() since the last host_run() */
    /* Told by the engine; whoever owns the wire asks for it between runs. */
    bool wants_link[EHCA_MAX_PORTS + 1];
    uint64_t guest_errors;
    char last_guest_error[256];
};

Host *host_new(const HostOptions *options, IbClock *clock);
void host_free(Host *host);
/* EQ, NEQ, and per port a CQ and the GSI QP: ports leave Disabled. */
void host_start(Host *host);
/* One ehca_run(); true: there is more to do. */
bool host_run(Host *host);
bool host_run_budget(Host *host, unsigned budget);

/* What goes to fabric_node_attach(): @memory gets num_ports pointers. */
void host_hello(Host *host, IbLinkHello *hello, IbLinkPortMemory **memory);
/* Formats the port's rings anew and attaches the engine to them. */
void host_attach(Host *host, unsigned port);

/* Raw hypercall. */
int64_t host_hcall(Host *host, uint64_t number, const uint64_t in[9],
                   uint64_t out[9]);
/* Guest memory: page-aligned, zeroed. */
uint64_t host_alloc(Host *host, size_t bytes);
void *host_ptr(Host *host, uint64_t addr);
/* Zeroed 4 KiB control block of this host (one per host, reused). */
uint8_t *host_block(Host *host);
int64_t host_query_port(Host *host, unsigned port, HostPortInfo *info);
void host_gid(Host *host, unsigned port, uint8_t gid[16]);

HostCq *host_cq_new(Host *host, unsigned entries);
int64_t host_cq_free(HostCq *cq, bool force);
/* Up to @max CQEs; consumed ones are given back with one store. */
unsigned host_cq_poll(HostCq *cq, HostCqe *cqes, unsigned max);
void host_cq_arm(HostCq *cq, bool solicited_only);

/* @access: EHCA_MR_*; page size 4 KiB. */
HostMr *host_mr_new(Host *host, size_t length, uint32_t access);
static inline HostSge host_sge(const HostMr *mr, uint64_t offset,
                               uint32_t length)
{
    return (HostSge) { mr->iova + offset, mr->lkey, length };
}

HostQp *host_qp_new(Host *host, unsigned service, HostCq *send_cq,
                    HostCq *recv_cq, unsigned send_wrs, unsigned recv_wrs);
int64_t host_qp_free(HostQp *qp);
/* A GSI QP of @port, not defined as such by anybody else yet. */
HostQp *host_gsi_new(Host *host, unsigned port, HostCq *cq);

/* @block: EHCA_QPCB_SIZE bytes; NULL: what host_block() holds. */
int64_t host_qp_modify(HostQp *qp, uint64_t mask, const uint8_t *block);
/* Result is in host_block(). */
int64_t host_qp_query(HostQp *qp);
/* One 32-bit field, EHCA_QPCB_*, by H_QUERY_QP. */
uint32_t host_qp_field(HostQp *qp, unsigned offset);
unsigned host_qp_state(HostQp *qp);
unsigned host_qp_mig(HostQp *qp);

int64_t host_qp_init(HostQp *qp, unsigned port);
int64_t host_qp_ud_init(HostQp *qp, unsigned port, uint32_t qkey);
/* RC, UC; @alternate may be NULL. */
int64_t host_qp_rtr(HostQp *qp, const HostPath *primary,
                    const HostPath *alternate, unsigned mtu_code,
                    uint32_t dest_qpn, uint32_t rq_psn);
/* @rearm: PATH_MIG_STATE = REARM in the same call. */
int64_t host_qp_rts(HostQp *qp, const HostPath *primary, uint32_t sq_psn,
                    bool rearm);
int64_t host_qp_ud_ready(HostQp *qp, uint32_t sq_psn);  /* RTR, RTS */
int64_t host_qp_to(HostQp *qp, unsigned state);         /* state only */
/* In RTS: alternate path, and PATH_MIG_STATE if @mig is not 0. */
int64_t host_qp_load_alt(HostQp *qp, const HostPath *alternate,
                         unsigned mig);
int64_t host_qp_set_mig(HostQp *qp, unsigned mig);
/* Puts fields into @block, returns their mask. */
uint64_t host_put_path(uint8_t *block, const HostPath *path, bool alternate);

void host_post_send(HostQp *qp, const HostSendWr *wr);
void host_post_recv(HostQp *qp, const HostRecvWr *wr);
/* Rings the doorbells for what was posted. */
void host_ring(HostQp *qp);

/*
 * Next entry of the EQ that is not a completion; completions set their CQ's
 * `event` and clear its cqx_ep on the way.  False: EQ is empty.
 */
bool host_next_eqe(Host *host, HostEqe *eqe);
bool host_next_neqe(Host *host, HostEqe *eqe);

/* ------------------------------------------------------------------ */
/* A cable without a fabric                                           */
/* ------------------------------------------------------------------ */

/*
 * Looks at a packet that entered at @end; may change it (then reseal it) and
 * its length.  False drops it.
 */
typedef bool HostCableFilter(void *opaque, unsigned end, uint8_t *packet,
                             size_t *len);

typedef struct HostCableEnd {
    Host *host;
    unsigned port;
    IbRing rx, tx;                   /* the cable's ends of the port's rings */
} HostCableEnd;

typedef struct HostCable {
    HostCableEnd ends[2];
    bool plugged, up;
    HostCableFilter *filter;
    void *filter_opaque;
    uint64_t packets[2], dropped[2];
    uint8_t smp[256];                /* last SMP that a host answered with */
    bool have_smp;
} HostCable;

/* Plugged from the start. */
HostCable *host_cable_new(Host *a, unsigned port_a, Host *b, unsigned port_b);
void host_cable_free(HostCable *cable);
void host_cable_set(HostCable *cable, bool plugged);
/* Moves what is there; true: something moved. */
bool host_cable_run(HostCable *cable);
/* Puts a packet on the wire towards @end; false: no room or link down. */
bool host_cable_inject(HostCable *cable, unsigned end, const uint8_t *packet,
                       size_t len);
/* As a subnet manager: LID, Armed, Active for the port at @end. */
bool host_cable_activate(HostCable *cable, unsigned end, uint16_t lid,
                         uint8_t lmc);
/* New ICRC for a packet that was changed. */
void host_packet_seal(uint8_t *packet, size_t len);

/* ------------------------------------------------------------------ */
/* Two hosts, two cables                                              */
/* ------------------------------------------------------------------ */

/* Host h, port p has LID 2 * p + h - 1: h0p1 1, h1p1 2, h0p2 3, h1p2 4. */
typedef struct HostPair {
    IbClock clock;
    Host *hosts[2];
    HostCable *cables[2];            /* [0]: ports 1, [1]: ports 2 */
} HostPair;

HostPair *host_pair_new(HostEventFn *event, void *opaque);
void host_pair_free(HostPair *pair);
uint16_t host_pair_lid(unsigned host, unsigned port);
/* Both ports of cable @rail to Active (again). */
void host_pair_activate(HostPair *pair, unsigned rail);
/* Runs until @done says so or @ns passed; returns what @done said last. */
bool host_pair_run(HostPair *pair, int64_t ns, bool (*done)(void *opaque),
                   void *opaque);
/* The path from @host over @rail (0, 1) to the other one; defaults filled. */
void host_pair_path(unsigned host, unsigned rail, HostPath *path);
/*
 * One QP on each side, connected over @rail to RTS, with the other rail as
 * the alternate and REARM asked for if @apm.
 */
void host_pair_connect(HostPair *pair, unsigned service, unsigned rail,
                       bool apm, HostCq *const cqs[2], HostQp *qps[2]);

#endif
