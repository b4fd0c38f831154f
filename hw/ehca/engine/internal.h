/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the engine's files share: the adapter, its resources, the ports, and
 * the few functions by which they call one another.
 *
 * Theory of operation (goals, flow, states) is in adapter.c; the sections of
 * the interface reference that a structure follows are named beside it.
 */
#ifndef EHCA_INTERNAL_H
#define EHCA_INTERNAL_H

#include <stdatomic.h>

#include "ehca.h"
#include "guest-driver/include/ehca_abi.h"
#include "ib/bytes.h"
#include "ib/clock.h"
#include "ib/mad.h"
#include "ib/packet.h"
#include "ib/ring.h"
#include "ib/sma.h"

/* ------------------------------------------------------------------ */
/* Limits                                                             */
/* ------------------------------------------------------------------ */
#define EHCA_DEFAULT_QPS 4096u
#define EHCA_DEFAULT_CQS 4096u
#define EHCA_DEFAULT_MRS 16384u
#define EHCA_DEFAULT_MWS 1024u
#define EHCA_DEFAULT_MR_PAGES (UINT64_C(4) << 20)
#define EHCA_LIMIT_QPS 65000u          /* 16 bits of a QPN, less firmware's */
#define EHCA_LIMIT_CQS 65535u          /* CQ number: 16 bits of the handle */
#define EHCA_LIMIT_MRS (1u << 20)
#define EHCA_LIMIT_MR_PAGES (UINT64_C(1) << 30)
#define EHCA_MAX_QUEUE_PAGES (UINT64_C(1) << 20)  /* of all queues together */
#define EHCA_MAX_EQES (1u << 20)
#define EHCA_MAX_CQES 65535u           /* reported; 20 more are accepted */
#define EHCA_MAX_WQES 16383u           /* reported; 2 more are accepted */
#define EHCA_MAX_MCAST 1024u           /* attachments of the adapter */
#define EHCA_MCAST_BUCKETS 64u
#define EHCA_MAX_SGES_REPORTED 250u
#define EHCA_MAX_MESSAGE (UINT64_C(1) << 31)
#define EHCA_MAX_PKEYS EHCA_PORTCB_MAX_PKEYS
/* What H_QUERY_HCA and NodeInfo tell alike. */
#define EHCA_VENDOR_ID 0x000255u
#define EHCA_PART_ID 1u
#define EHCA_HW_VERSION (2u << EHCA_HWVER_VERSION_SHIFT | 0x20)
#define EHCA_MAX_RD_RES 16u            /* READs and atomics at a time */
#define EHCA_SEND_CTXS 32u             /* WQEs in flight per QP */
#define EHCA_WINDOW 64                 /* unacknowledged PSNs per QP */
/*
 * PSNs of a message: with a window before it, the two ends must stay less
 * than half the PSN circle apart.  Felt at MTU 256 only, beyond 1 GiB.
 */
#define EHCA_MAX_PSNS (1u << 22)
#define EHCA_ACK_EVERY 16u             /* AckReq at least on each n-th PSN */
#define EHCA_TURN 16u                  /* packets per QP and turn */
#define EHCA_MGMT_SLOTS 64u            /* firmware's MADs waiting for room */
#define EHCA_HISTORY 16u               /* migration state changes remembered */
#define EHCA_TIMERS_PER_RUN 64u
#define EHCA_CA_ACK_DELAY 15u
#define EHCA_QPN_FIRMWARE 2u           /* PMA and BMA of the ports */
#define EHCA_QPN_FIRST 16u             /* of slot 0 */
#define EHCA_QP1_QKEY 0x80010000u

_Static_assert((EHCA_SEND_CTXS & (EHCA_SEND_CTXS - 1)) == 0, "a ring");
_Static_assert((EHCA_MAX_RD_RES & (EHCA_MAX_RD_RES - 1)) == 0, "a ring");
_Static_assert(EHCA_DEFAULT_QPS <= EHCA_LIMIT_QPS, "default QPs");

/* ------------------------------------------------------------------ */
/* Intrusive lists                                                    */
/* ------------------------------------------------------------------ */
typedef struct EhcaLink EhcaLink;
struct EhcaLink {
    EhcaLink *prev, *next;             /* NULL: not in a list */
};

#define EHCA_CONTAINER(ptr, Type, member) \
    ((Type *)((char *)(ptr) - offsetof(Type, member)))

static inline void ehca_list_init(EhcaLink *list)
{
    list->prev = list->next = list;
}

static inline bool ehca_list_empty(const EhcaLink *list)
{
    return list->next == list;
}

static inline bool ehca_linked(const EhcaLink *link)
{
    return link->next != NULL;
}

static inline void ehca_list_append(EhcaLink *list, EhcaLink *link)
{
    link->prev = list->prev;
    link->next = list;
    list->prev->next = link;
    list->prev = link;
}

static inline void ehca_list_remove(EhcaLink *link)
{
    link->prev->next = link->next;
    link->next->prev = link->prev;
    link->prev = link->next = NULL;
}

/* Appends all of @from to @list; @from is empty then. */
static inline void ehca_list_splice(EhcaLink *list, EhcaLink *from)
{
    if (!ehca_list_empty(from)) {
        from->next->prev = list->prev;
        list->prev->next = from->next;
        from->prev->next = list;
        list->prev = from->prev;
        ehca_list_init(from);
    }
}

/* Puts all of @from before those of @list; @from is empty then. */
static inline void ehca_list_prepend(EhcaLink *list, EhcaLink *from)
{
    ehca_list_splice(from, list);
    ehca_list_splice(list, from);
}

/* ------------------------------------------------------------------ */
/* Resources                                                          */
/* ------------------------------------------------------------------ */
typedef struct EhcaPort EhcaPort;
typedef struct EhcaQp EhcaQp;
typedef struct EhcaCq EhcaCq;
typedef struct EhcaMr EhcaMr;

typedef enum EhcaKind {
    EHCA_KIND_NONE,
    EHCA_KIND_QP,
    EHCA_KIND_CQ,
    EHCA_KIND_EQ,
    EHCA_KIND_NEQ,
    EHCA_KIND_MR,
    EHCA_KIND_MW,
    EHCA_KINDS
} EhcaKind;

/*
 * Numbered objects of one kind.  Free numbers are kept in a queue, so that a
 * number is reused as late as possible; the generation goes up with each use
 * and is part of handles, keys and QPNs.
 */
typedef struct EhcaSlots {
    void **objects;
    uint32_t *generation;
    uint32_t *free_queue;
    uint32_t size, used;
    uint32_t head;                     /* of free_queue */
} EhcaSlots;

/* A queue in guest memory: pages registered one by one (section 13). */
typedef struct EhcaQueue {
    uint64_t *pages;
    uint32_t num_pages, registered;
    uint32_t entry_size, entries;
    uint32_t head;                     /* WQs: oldest entry not completed */
    uint32_t posted;                   /* WQs: announced, not completed */
} EhcaQueue;

/* Event queue, also the notification event queue (section 14). */
typedef struct EhcaEq {
    EhcaKind kind;                     /* EQ or NEQ; NONE: not allocated */
    uint64_t handle;
    uint32_t generation;
    EhcaQueue queue;
    uint64_t produced;
    _Atomic uint64_t consumed;         /* what the guest must have seen */
    uint64_t produced_at_ack;
    uint64_t overflows;
    uint32_t users;                    /* CQs and QPs */
} EhcaEq;

/* Register-page state of a CQ: touched by vCPU threads without a lock. */
enum {
    EHCA_CQ_ARMED_SOLICITED = 1 << 0,
    EHCA_CQ_ARMED_ANY = 1 << 1,
    EHCA_CQ_PENDING = 1 << 2,
};

typedef struct EhcaCqRegs {
    _Atomic uint32_t flags;
    _Atomic uint32_t used;             /* entries not given back by feca */
    _Atomic uint32_t entries;
    _Atomic uint64_t eqe_after;        /* EQ position behind its last event */
} EhcaCqRegs;

struct EhcaCq {
    uint64_t handle;
    uint32_t slot, token;
    EhcaQueue queue;
    EhcaCqRegs *regs;
    uint32_t producer;                 /* next entry */
    bool toggle;                       /* valid bit of this pass */
    bool error;                        /* overflowed */
    uint32_t users;                    /* QPs (twice if send and receive) */
    uint64_t cqes, events, lost;
};

/* Pages of an MR, shared by H_REGISTER_SMR. */
typedef struct EhcaMrPages {
    uint64_t *pages;
    uint64_t num_pages, registered;
    uint32_t refs;
    uint8_t shift;                     /* 0: no usable page size */
} EhcaMrPages;

struct EhcaMr {
    EhcaKind kind;                     /* MR or MW */
    uint64_t handle;
    uint32_t slot;
    uint32_t key;                      /* lkey and rkey are the same */
    uint64_t start, length;
    uint32_t access, pd;
    EhcaMrPages *pages;                /* MW, unmapped FMR: NULL */
};

/* One path of a QP, as in the control block of H_MODIFY_QP (11.1). */
typedef struct EhcaPath {
    uint32_t port;
    uint32_t pkey_idx;
    uint32_t service_level;
    uint32_t send_grh;
    uint32_t retry_count;
    uint32_t timeout;
    uint32_t static_rate;
    uint32_t dlid;
    uint32_t rnr_retry_count;
    uint32_t source_path_bits;
    uint32_t traffic_class;
    uint32_t hop_limit;
    uint32_t source_gid_idx;
    uint32_t flow_label;
    uint8_t dest_gid[16];
} EhcaPath;

enum { EHCA_PRIMARY, EHCA_ALTERNATE, EHCA_PATHS };

typedef struct EhcaQpAttr {
    uint32_t state;
    uint32_t mig_state;
    uint32_t qkey;
    uint32_t send_psn, receive_psn;
    uint32_t rdma_atomic_ctrl;
    uint32_t resp_res;
    uint32_t init_depth;
    uint32_t dest_qpn;
    uint32_t min_rnr_timer;
    uint32_t path_mtu;
    uint32_t max_send_wr, max_recv_wr;
    uint32_t disable_ete;
    uint32_t enable;
    uint32_t srq_limit;
    uint64_t aaelog, shared_rq_handle;
    EhcaPath path[EHCA_PATHS];
    bool alt_loaded;                   /* an alternate was ever given */
    bool alt_retry_loaded;             /* ... with its retry count */
    bool alt_rnr_loaded;               /* ... with its RNR retry count */
} EhcaQpAttr;

/* A send WQE between its fetch and its completion. */
typedef struct EhcaSendCtx {
    uint64_t wr_id;
    uint64_t raddr;
    uint64_t operand[2];
    uint64_t length;
    uint64_t cursor_pos;               /* message offset of the cursor */
    uint32_t rkey, imm;
    uint32_t first_psn, psns;
    uint32_t wqe;                      /* ring index */
    uint32_t status;                   /* CQE status of a local error */
    uint32_t cursor_sge, cursor_off;
    uint8_t optype, flags, sges;
} EhcaSendCtx;

typedef struct EhcaSge {
    uint64_t addr;
    uint32_t lkey, length;
} EhcaSge;

/* A receive WQE that a message is being put into. */
typedef struct EhcaRecvCtx {
    bool active;
    bool from_srq;                     /* its slot is already given back */
    uint64_t wr_id;
    uint32_t wqe;
    uint32_t sges;
    uint64_t capacity, used;
    uint32_t cursor_sge, cursor_off;
    EhcaSge srq_sges[EHCA_SGES_4];     /* from_srq: copied */
} EhcaRecvCtx;

/* A READ or atomic request that the responder answers (or answered). */
typedef struct EhcaReadRes {
    uint32_t psn, psns;
    uint64_t va, length, result;
    uint32_t rkey;
    uint8_t opcode;                    /* IB_OP_READ_REQUEST or atomic */
    bool answered;                     /* completely, at least once */
} EhcaReadRes;

typedef struct EhcaMigChange {
    int64_t time_ns;
    uint8_t from, to, cause;
    uint8_t old_port, new_port;
    uint16_t dlid;                     /* of the primary afterwards */
} EhcaMigChange;

/* Why a packet failed the path check (apm-and-cm 1.5). */
typedef enum EhcaPathFault {
    EHCA_PATH_OK,
    EHCA_PATH_NO_ALTERNATE,
    EHCA_PATH_GRH,
    EHCA_PATH_GID,
    EHCA_PATH_PKEY,
    EHCA_PATH_SLID,
    EHCA_PATH_PORT,
    EHCA_PATH_FAULTS
} EhcaPathFault;

/* What a QP's counters count, for ehca_report() and tests. */
typedef struct EhcaQpStats {
    uint64_t packets_sent, packets_received;
    uint64_t bytes_sent, bytes_received;
    uint64_t retransmits;              /* packets sent again */
    uint64_t timeouts;
    uint64_t nak_sequence_sent, nak_sequence_received;
    uint64_t rnr_nak_sent, rnr_nak_received;
    uint64_t duplicates;
    uint64_t dropped_state;            /* arrived in a state not for it */
    uint64_t dropped_no_wqe;           /* UD, UC */
    uint64_t dropped_length;
    uint64_t dropped_qkey, dropped_pkey;
    uint64_t path_faults[EHCA_PATH_FAULTS];
    uint64_t since_rearm[2];           /* packets by MigReq since REARM */
    uint64_t qualifying;               /* ... that could arm */
    uint64_t migrations, refused;
    uint64_t ring_full;                /* turns that ended without room */
    uint64_t adder_overflows;
    uint64_t cqes;
} EhcaQpStats;

typedef enum EhcaMsgKind {
    EHCA_MSG_NONE,
    EHCA_MSG_SEND,
    EHCA_MSG_WRITE,
} EhcaMsgKind;

struct EhcaQp {
    EhcaAdapter *adapter;
    uint64_t handle;
    uint32_t slot, qpn, token, pd;
    uint8_t kind, service, sigt;
    uint8_t special_port;              /* GSI or SMI QP of this port, or 0 */
    bool is_smi;
    EhcaCq *send_cq, *recv_cq;
    EhcaQp *srq;
    uint32_t srq_users;
    uint32_t send_wrs, recv_wrs;       /* as requested */
    uint32_t send_sges, recv_sges;     /* actual */
    EhcaQueue sq, rq;
    uint32_t registrations_left;
    EhcaQpAttr attr;

    EhcaLink resp_link, req_link;      /* run or wait lists */

    /* Requester. */
    EhcaSendCtx ctx[EHCA_SEND_CTXS];
    uint32_t ctx_head, ctx_tail;       /* free running */
    uint32_t ctx_send;                 /* the one nxt_psn belongs to */
    uint32_t una_psn, nxt_psn, max_psn, new_psn;
    uint8_t retries_left, rnr_left;
    bool rnr_wait;
    bool rnr_probe;                    /* one packet, to see if it is over */
    bool implied_nak_done;             /* once per episode */
    bool sq_drained_told;
    IbTimer timer;                     /* ACK timeout or RNR wait */

    /* Responder. */
    uint32_t epsn, msn;
    bool nak_sent;                     /* once per episode */
    bool comm_est_told;
    EhcaMsgKind msg;
    uint64_t msg_va, msg_left, msg_done;
    uint32_t msg_rkey;
    EhcaRecvCtx recv;
    bool ack_due;
    uint8_t ack_syndrome;
    uint32_t ack_psn;
    EhcaReadRes res[EHCA_MAX_RD_RES];
    uint32_t res_head, res_cur;        /* free running */
    uint32_t res_valid;                /* entries that may be repeated */
    uint32_t res_sent;                 /* packets of the current one */
    bool srq_limit_armed;

    /* APM. */
    bool refused_told;                 /* once per armed period */
    bool await_first_payload;
    int64_t rearm_time_ns;
    EhcaMigChange history[EHCA_HISTORY];
    uint64_t history_count;

    /* Errors. */
    bool event_posted;                 /* 0x05 since the last RESET */
    bool overflow_told;
    EhcaCause error_cause;
    uint32_t error_status;
    uint64_t aer;                      /* for H_ERROR_DATA */
    EhcaQpStats stats;
};

/* Doorbells of a QP slot; valid as long as the adapter lives. */
typedef struct EhcaDoorbell EhcaDoorbell;
struct EhcaDoorbell {
    _Atomic uint64_t send, recv;       /* WQEs announced, not taken yet */
    _Atomic uint32_t queued;           /* is in the adapter's stack */
    EhcaDoorbell *next;
};

/* ------------------------------------------------------------------ */
/* Ports                                                              */
/* ------------------------------------------------------------------ */
typedef struct EhcaMgmt {
    IbMadAddress to;
    uint8_t mad[IB_MAD_LEN];
} EhcaMgmt;

enum { EHCA_RING_WIRE, EHCA_RING_LOOP, EHCA_RINGS };

typedef struct EhcaWait {
    EhcaLink resp, req;
} EhcaWait;

typedef struct EhcaPortStats {
    uint64_t packet_errors[IB_PACKET_BAD_ICRC + 1];
    uint64_t dropped_not_active;       /* sends, port not Active */
    uint64_t dropped_rx_not_active;
    uint64_t dropped_lid;
    uint64_t dropped_qpn;
    uint64_t dropped_mgmt;
    uint64_t dropped_mcast;
    uint64_t dropped_vl15;
} EhcaPortStats;

struct EhcaPort {
    EhcaAdapter *adapter;
    unsigned number;
    bool attached;
    bool cable_up;                     /* as the owner last said */
    uint8_t cable_speed, cable_width;
    bool enabled;                      /* activation rule fulfilled */
    bool wants_link;                   /* last told by ops->port_enable */
    bool kick_due;
    IbRing tx, rx;                     /* wire */
    IbRingShared *loop;                /* packets to ourselves */
    IbRing loop_tx, loop_rx;
    EhcaWait wait[EHCA_RINGS];         /* QPs that wait for room */
    EhcaQp *gsi, *smi;
    uint32_t pma_qpn, bma_qpn;
    uint32_t base_capabilities;        /* without what the guest added */
    EhcaMgmt mgmt[EHCA_MGMT_SLOTS];
    uint32_t mgmt_head, mgmt_tail;     /* free running */
    EhcaPortStats stats;
};

typedef struct EhcaMcast EhcaMcast;
struct EhcaMcast {
    EhcaMcast *next;
    EhcaQp *qp;
    uint16_t mlid;
    uint8_t mgid[16];
};

/* ------------------------------------------------------------------ */
/* The adapter                                                        */
/* ------------------------------------------------------------------ */
struct EhcaAdapter {
    EhcaConfig config;
    IbClock *clock;
    EhcaOps ops;
    void *opaque;

    EhcaSlots qps, cqs, keys;
    uint32_t mrs, mws;
    EhcaDoorbell *doorbells;           /* per QP slot */
    EhcaCqRegs *cq_regs;               /* per CQ slot */
    _Atomic(EhcaDoorbell *) rung;      /* stack of doorbells to look at */
    _Atomic unsigned irqs;

    EhcaEq eq, neq;
    uint64_t queue_pages;              /* of EHCA_MAX_QUEUE_PAGES */
    uint64_t mr_pages;                 /* of config.max_mr_pages */

    IbSma sma;
    EhcaPort ports[EHCA_MAX_PORTS + 1];
    EhcaMcast mcast_pool[EHCA_MAX_MCAST];
    EhcaMcast *mcast_free;
    EhcaMcast *mcast[EHCA_MCAST_BUCKETS];
    uint32_t mcast_used;

    EhcaLink resp_run, req_run;
    bool running;                      /* inside ehca_run() */
    bool started;                      /* ehca_new() is over */
    unsigned next_port;                /* receive round robin */
    bool requests_first;               /* in the last run */
};

static inline int64_t ehca_now(EhcaAdapter *a)
{
    return ib_clock_now(a->clock);
}

static inline EhcaPort *ehca_port(EhcaAdapter *a, unsigned port)
{
    return port >= 1 && port <= a->config.num_ports ? &a->ports[port] : NULL;
}

static inline IbSmaPort *ehca_sma_port(const EhcaPort *port)
{
    return &port->adapter->sma.ports[port->number];
}

/* adapter.c */
void ehca_wake(EhcaAdapter *a);
void ehca_collect_doorbells(EhcaQp *qp);
void ehca_schedule_resp(EhcaQp *qp);
void ehca_schedule_req(EhcaQp *qp);
void ehca_unschedule(EhcaQp *qp);
/* Waits for nothing any more: path changed or port's state did. */
void ehca_unblock(EhcaQp *qp);
__attribute__((format(printf, 2, 3)))
void ehca_guest_error(EhcaAdapter *a, const char *format, ...);

/* What a QP's turn came to. */
typedef enum EhcaTurn {
    EHCA_TURN_IDLE,                    /* nothing to do until an event */
    EHCA_TURN_MORE,                    /* budget used up */
    EHCA_TURN_WAIT_WIRE,               /* no room in the port's ring */
    EHCA_TURN_WAIT_LOOP,               /* no room in the port's loop */
} EhcaTurn;

/* hcall.c: what a handler gets, its arguments already checked. */
typedef struct EhcaCall {
    EhcaAdapter *a;
    const char *name;
    const uint64_t *in;                /* r4 .. r12 */
    uint64_t *out;
    EhcaQp *qp;
    EhcaCq *cq;
    EhcaEq *eq;
    EhcaMr *mr;
    EhcaPort *port;
    uint64_t block;                    /* address of a control block */
} EhcaCall;

/* resource.c */
bool ehca_slots_init(EhcaSlots *slots, uint32_t size);
void ehca_slots_fini(EhcaSlots *slots);
/* Puts @object into a free slot; false: none left. */
bool ehca_slots_take(EhcaSlots *slots, void *object, uint32_t *slot,
                     uint32_t *generation);
void ehca_slots_give(EhcaSlots *slots, uint32_t slot);
uint64_t ehca_handle(EhcaKind kind, uint32_t generation, uint32_t index);
EhcaKind ehca_handle_kind(uint64_t handle);
const char *ehca_kind_name(EhcaKind kind);
/* By handle; NULL when there is no such object (any more). */
EhcaQp *ehca_find_qp(EhcaAdapter *a, uint64_t handle);
EhcaCq *ehca_find_cq(EhcaAdapter *a, uint64_t handle);
EhcaEq *ehca_find_eq(EhcaAdapter *a, uint64_t handle);
EhcaMr *ehca_find_mr(EhcaAdapter *a, uint64_t handle);
EhcaQp *ehca_qp_by_number(EhcaAdapter *a, uint32_t qpn);
bool ehca_queue_alloc(EhcaAdapter *a, EhcaQueue *queue, uint32_t pages,
                      uint32_t entry_size);
void ehca_queue_free(EhcaAdapter *a, EhcaQueue *queue);
/* Absolute address of an entry. */
uint64_t ehca_queue_addr(const EhcaQueue *queue, uint32_t index);
void ehca_free_all(EhcaAdapter *a);

/* eq.c */
void ehca_eq_completion(EhcaAdapter *a, EhcaCq *cq);
void ehca_eq_cq_event(EhcaAdapter *a, EhcaCq *cq, unsigned id);
void ehca_eq_qp_event(EhcaQp *qp, unsigned id);
/* NEQ entries; nothing before the port's H_DEFINE_AQP1. */
void ehca_neq_port(EhcaPort *port, unsigned code, uint64_t detail);
void ehca_eq_ack(EhcaAdapter *a, EhcaEq *eq);

/* cq.c */
typedef struct EhcaCompletion {
    uint64_t wr_id;
    uint32_t bytes, imm, status;
    uint32_t remote_qpn;
    uint16_t rlid, pkey_index;
    uint8_t optype, flags, service_level, path_bits;
    bool solicited;
} EhcaCompletion;
/* False: the CQ is in error or overflowed now; the QP must go to ERR. */
bool ehca_cq_post(EhcaQp *qp, EhcaCq *cq, const EhcaCompletion *c);
uint64_t ehca_cq_read_reg(EhcaCqRegs *regs, unsigned offset);
void ehca_cq_write_reg(EhcaAdapter *a, EhcaCqRegs *regs, unsigned offset,
                       uint64_t value);

/* mr.c */
/* MR pages and keys; see the file for the rules. */
typedef enum EhcaKeyError {
    EHCA_KEY_OK,
    EHCA_KEY_UNKNOWN,
    EHCA_KEY_PD,
    EHCA_KEY_RANGE,
    EHCA_KEY_ACCESS,
    EHCA_KEY_UNMAPPED,                 /* pages not (all) registered */
} EhcaKeyError;
const char *ehca_key_error_name(EhcaKeyError error);
EhcaKeyError ehca_key_check(EhcaAdapter *a, uint32_t key, uint32_t pd,
                            uint64_t va, uint64_t len, uint32_t access,
                            EhcaMr **mr);
/* After a good ehca_key_check() of at least this range. */
bool ehca_mr_read(EhcaAdapter *a, EhcaMr *mr, uint64_t va, void *buf,
                  size_t len);
bool ehca_mr_write(EhcaAdapter *a, EhcaMr *mr, uint64_t va, const void *buf,
                   size_t len);
void ehca_mr_destroy(EhcaAdapter *a, EhcaMr *mr);
/* Return codes are EHCA_RC_*. */
int64_t ehca_mr_alloc(EhcaAdapter *a, uint64_t start, uint64_t length,
                      uint32_t access, uint32_t pd, EhcaMr **out);
int64_t ehca_mw_alloc(EhcaAdapter *a, uint32_t pd, EhcaMr **out);
int64_t ehca_mr_register_pages(EhcaAdapter *a, EhcaMr *mr, unsigned code,
                               uint64_t addr, uint64_t count);
int64_t ehca_mr_share(EhcaAdapter *a, EhcaMr *original, uint64_t start,
                      uint32_t access, uint32_t pd, EhcaMr **out);
int64_t ehca_mr_reregister(EhcaAdapter *a, EhcaMr *mr, uint64_t start,
                           uint64_t length, uint32_t access, uint32_t pd,
                           uint64_t list);

/* wqe.c */
enum { EHCA_STATUS_REMOTE_ACCESS = 0x80001007u };
static inline uint32_t ehca_status(unsigned code)
{
    return EHCA_CQE_STATUS_ERROR | code;
}
static inline uint32_t ehca_status_remote(unsigned sub)
{
    return EHCA_CQE_STATUS_ERROR | sub << EHCA_CQE_STATUS_SUBCODE_SHIFT |
           EHCA_CQE_CODE_REMOTE;
}
/* Fetches RC/UC WQE at ring index @index; errors go to ctx->status. */
void ehca_wqe_fetch(EhcaQp *qp, uint32_t index, EhcaSendCtx *ctx);
/* Gathers [pos, pos+len) of the message into @buf; status or 0. */
uint32_t ehca_wqe_gather(EhcaQp *qp, EhcaSendCtx *ctx, unsigned sge_offset,
                         uint64_t pos, uint8_t *buf, size_t len);
/* READ responses: scatters into the SGEs of a send WQE; status or 0. */
uint32_t ehca_wqe_scatter(EhcaQp *qp, EhcaSendCtx *ctx, uint64_t pos,
                          const uint8_t *buf, size_t len);
/* Length into ctx->length; all keys, for @access; status or 0. */
uint32_t ehca_wqe_check_sges(EhcaQp *qp, EhcaSendCtx *ctx,
                             unsigned sge_offset, uint32_t access);
/* Takes the next receive WQE (of the SRQ, if there is one). */
typedef enum EhcaRecvResult {
    EHCA_RECV_OK,
    EHCA_RECV_EMPTY,
    EHCA_RECV_BAD,                     /* WQE unreadable or malformed */
} EhcaRecvResult;
EhcaRecvResult ehca_recv_start(EhcaQp *qp);
uint32_t ehca_recv_scatter(EhcaQp *qp, const uint8_t *buf, size_t len);
/* Skips the GRH area of UD. */
void ehca_recv_skip(EhcaQp *qp, size_t len);
/* Completes the active receive WQE. */
void ehca_recv_complete(EhcaQp *qp, EhcaCompletion *c);
/* Puts the active receive WQE back, as if it had not been taken. */
void ehca_recv_abort(EhcaQp *qp);
/* The QP stops in the middle of a message: ends what is nobody else's. */
void ehca_recv_flush(EhcaQp *qp);

/* qp.c */
const char *ehca_qp_state_name(unsigned state);
const char *ehca_service_name(unsigned service);
void ehca_qp_set_state(EhcaQp *qp, unsigned state, EhcaCause cause);
/* To ERR because something failed; event 0x05 if @event or SRQ base. */
void ehca_qp_error(EhcaQp *qp, EhcaCause cause, uint32_t status, bool event);
void ehca_qp_destroy(EhcaQp *qp);
unsigned ehca_qp_mtu(const EhcaQp *qp);
int64_t ehca_qp_alloc(EhcaCall *call);
int64_t ehca_qp_modify(EhcaCall *call);
int64_t ehca_qp_query(EhcaCall *call);
int64_t ehca_qp_disable_and_getc(EhcaCall *call);

static inline bool ehca_qp_connected(const EhcaQp *qp)
{
    return qp->service == EHCA_SERVICE_RC || qp->service == EHCA_SERVICE_UC;
}

/* requester.c */
void ehca_requester_reset(EhcaQp *qp);
void ehca_requester_start(EhcaQp *qp);     /* RTR -> RTS */
EhcaTurn ehca_requester_run(EhcaQp *qp, unsigned *budget);
void ehca_requester_response(EhcaQp *qp, const IbPacket *pkt,
                             const uint8_t *payload);
/* Sends again from the oldest unacknowledged PSN. */
void ehca_requester_restart(EhcaQp *qp);
void ehca_requester_reload(EhcaQp *qp);    /* full retry budget */
void ehca_requester_timer(void *opaque);
/* In SQD with nothing in flight: event 0x04, once. */
void ehca_requester_check_drained(EhcaQp *qp);

/* responder.c */
void ehca_responder_reset(EhcaQp *qp);
void ehca_responder_request(EhcaQp *qp, EhcaPort *port, const IbPacket *pkt,
                            const uint8_t *payload);
EhcaTurn ehca_responder_run(EhcaQp *qp, unsigned *budget);

/* ud.c */
EhcaTurn ehca_ud_run(EhcaQp *qp, unsigned *budget);
void ehca_ud_receive(EhcaQp *qp, EhcaPort *port, const IbPacket *pkt,
                     const uint8_t *grh, const uint8_t *payload);
int64_t ehca_mcast_attach(EhcaCall *call);
int64_t ehca_mcast_detach(EhcaCall *call);
/* Is any QP of @port attached to a group with this LID? */
bool ehca_mcast_local(EhcaPort *port, uint16_t mlid);
void ehca_mcast_receive(EhcaPort *port, const IbPacket *pkt,
                        const uint8_t *grh, const uint8_t *payload);
void ehca_mcast_forget(EhcaQp *qp);

/* apm.c */
const char *ehca_mig_state_name(unsigned state);
const char *ehca_path_fault_name(EhcaPathFault fault);
/* True: the packet may be processed (now on the primary path). */
bool ehca_apm_receive(EhcaQp *qp, EhcaPort *port, const IbPacket *pkt,
                      bool loopback);
void ehca_apm_set_state(EhcaQp *qp, unsigned state, EhcaCause cause);
/* ARMED -> MIGRATED; alternate becomes primary. */
void ehca_apm_migrate(EhcaQp *qp, EhcaCause cause);
/* Retries used up: true when that led to a migration. */
bool ehca_apm_retries_used_up(EhcaQp *qp);
/* What H_MODIFY_QP may ask for in this state; NULL or why not. */
const char *ehca_apm_check_request(const EhcaQpAttr *attr, unsigned request);
bool ehca_apm_migreq(const EhcaQp *qp);
void ehca_apm_payload_seen(EhcaQp *qp);

/* port.c */
int64_t ehca_port_query(EhcaCall *call);
int64_t ehca_port_modify(EhcaCall *call);
int64_t ehca_port_perf_count(EhcaCall *call);
int64_t ehca_port_define_aqp1(EhcaCall *call);
int64_t ehca_port_define_aqp0(EhcaCall *call);
/* @qp goes away: its port has no QP1 (QP0) any more. */
void ehca_port_forget_qp(EhcaQp *qp);
bool ehca_ports_init(EhcaAdapter *a);
void ehca_ports_fini(EhcaAdapter *a);
void ehca_ports_reset(EhcaAdapter *a);
void ehca_port_set_enabled(EhcaPort *port, bool enabled);
void ehca_port_qp0_changed(EhcaPort *port);
bool ehca_port_active(const EhcaPort *port);
bool ehca_port_own_lid(const EhcaPort *port, uint16_t lid);
uint16_t ehca_port_slid(const EhcaPort *port, unsigned path_bits);
uint8_t ehca_port_vl(const EhcaPort *port, uint8_t sl);
uint16_t ehca_port_pkey(const EhcaPort *port, unsigned index);
void ehca_port_gid(const EhcaPort *port, unsigned index, uint8_t gid[16]);
bool ehca_pkey_match(uint16_t a, uint16_t b);
void ehca_port_bad_pkey(EhcaPort *port, const IbPacket *pkt, uint32_t qp1);
void ehca_port_bad_qkey(EhcaPort *port, const IbPacket *pkt, uint32_t qp1);
unsigned ehca_port_receive(EhcaPort *port, unsigned budget);
unsigned ehca_port_send_mgmt(EhcaPort *port, unsigned budget);
bool ehca_port_has_work(EhcaPort *port);
/* To their run lists, if there is room now; true: requests were among them. */
bool ehca_port_splice_waiters(EhcaPort *port);

typedef enum EhcaTxResult {
    EHCA_TX_OK,                        /* build into tx->p */
    EHCA_TX_WAIT_WIRE, EHCA_TX_WAIT_LOOP,
    EHCA_TX_DEAD,                      /* lost: port not Active; counted */
} EhcaTxResult;
typedef struct EhcaTx {
    EhcaPort *port;
    IbRing *ring;
    uint8_t *p;
    bool loop, multicast;
} EhcaTx;
/* @smp: may leave as soon as the link is up, others only when Active. */
EhcaTxResult ehca_tx_begin(EhcaPort *port, uint16_t dlid, bool smp,
                           EhcaTx *tx);
void ehca_tx_end(EhcaTx *tx, size_t len);
/* LRH and GRH of a connected QP's primary path. */
void ehca_tx_path(const EhcaQp *qp, EhcaPort *port, IbPacket *pkt);

/* events.c */
void ehca_emit(EhcaAdapter *a, EhcaEvent *event);

#endif
