/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The eHCA adapter's engine: everything the adapter does, with no QEMU in it.
 *
 * Theory of operation.  The owner (QEMU's device, the simulator, a fuzzer)
 * creates an EhcaAdapter with a table of callbacks for guest memory and
 * notifications, wires each port to a pair of packet rings, and drives it:
 *
 *   ehca_hcall()   one hypervisor call of the guest        owner's lock held
 *   ehca_run()     packets, doorbells and timers, bounded  owner's lock held
 *   ehca_port_*()  what the cable does                     owner's lock held
 *   ehca_mmio_*()  register pages (doorbells, CQ arming)   any thread, no lock
 *   ehca_take_irqs() interrupts to pulse                   any thread, no lock
 *
 * The engine never blocks, never takes a lock, never asks the system for
 * time, and allocates only inside ehca_hcall().  A doorbell only notes work
 * and calls ops->wake(); the work is done by ehca_run().
 *
 * Lock order for owners with a lock of their own above this one (QEMU's big
 * lock): ehca_run() is called without it; interrupts are taken by
 * ehca_take_irqs() after the adapter's lock is dropped.
 */
#ifndef EHCA_ENGINE_H
#define EHCA_ENGINE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ib/clock.h"
#include "ib/ring.h"

#define EHCA_MAX_PORTS 2
#define EHCA_PAGE_SIZE 4096u

typedef struct EhcaAdapter EhcaAdapter;

/* When a port leaves Disabled and wants its link (device property). */
typedef enum EhcaPortActivation {
    EHCA_ACTIVATE_AQP1,      /* at H_DEFINE_AQP1: the IBM firmware's rule */
    EHCA_ACTIVATE_QP0,       /* when QP0 reaches RTR: other HCAs' rule */
    EHCA_ACTIVATE_ALWAYS,    /* from power-on */
} EhcaPortActivation;

/* What happened, for timelines.  Not for the guest. */
typedef enum EhcaEventKind {
    EHCA_EVENT_PORT_STATE,       /* port; from, to: IB_PORT_* */
    EHCA_EVENT_AQP1_DEFINED,     /* port, qpn */
    EHCA_EVENT_QP_STATE,         /* qpn; from, to: EHCA_QPS_* */
    EHCA_EVENT_MIG_STATE,        /* qpn; from, to: EHCA_MIG_*; cause */
    EHCA_EVENT_MIG_REFUSED,      /* qpn; MigReq=1 failed the path check */
    EHCA_EVENT_ALT_LOADED,       /* qpn; port, dlid of the alternate */
    EHCA_EVENT_FIRST_PAYLOAD,    /* qpn; first payload acknowledged or
                                    accepted on the path migrated to */
    EHCA_EVENT_QP_ERROR,         /* qpn; cause */
    EHCA_EVENT_KINDS
} EhcaEventKind;

/* Why a migration state changed or a QP failed. */
typedef enum EhcaCause {
    EHCA_CAUSE_NONE,
    EHCA_CAUSE_RESET,
    EHCA_CAUSE_SOFTWARE,         /* H_MODIFY_QP said so */
    EHCA_CAUSE_PACKET_MIGREQ_0,  /* REARM -> ARMED by a qualifying packet */
    EHCA_CAUSE_PACKET_MIGREQ_1,  /* the peer migrated */
    EHCA_CAUSE_RETRIES_USED_UP,
    EHCA_CAUSE_RNR_RETRIES_USED_UP,
    EHCA_CAUSE_LOCAL_ERROR,      /* bad WQE, key, length */
    EHCA_CAUSE_REMOTE_NAK,
    EHCA_CAUSE_RESPONDER_ERROR,
    EHCA_CAUSE_CQ_ERROR,
    EHCA_CAUSES
} EhcaCause;

typedef struct EhcaEvent {
    EhcaEventKind kind;
    EhcaCause cause;
    unsigned port;               /* 0: means nothing here */
    uint32_t qpn;
    unsigned from, to;
    uint16_t dlid;
    int64_t time_ns;             /* engine's clock */
} EhcaEvent;

const char *ehca_event_kind_name(EhcaEventKind kind);
const char *ehca_cause_name(EhcaCause cause);
/* A one-line JSON object with words, not numbers; returns its length. */
size_t ehca_event_json(const EhcaEvent *event, char *buf, size_t size);

typedef struct EhcaOps {
    /*
     * Guest memory by absolute address.  False when any byte of the range is
     * not RAM: nothing may be touched then.  Must not block, must not reach
     * a device.
     */
    bool (*dma_read)(void *opaque, uint64_t addr, void *buf, size_t len);
    bool (*dma_write)(void *opaque, uint64_t addr, const void *buf,
                      size_t len);
    /*
     * One aligned 64-bit big-endian store, seen by the guest after all
     * earlier dma_write()s: makes an EQE or CQE valid.
     */
    bool (*dma_store64)(void *opaque, uint64_t addr, uint64_t value);
    /* Is [addr, addr+len) RAM?  For page registration. */
    bool (*dma_valid)(void *opaque, uint64_t addr, size_t len);
    /* Port wants its link / does not (goes to the fabric as PHYS). */
    void (*port_enable)(void *opaque, unsigned port, bool enable);
    /* Fabric must look at the port's rings. */
    void (*kick)(void *opaque, unsigned port);
    /* ehca_run() has work now.  From any thread; must not block. */
    void (*wake)(void *opaque);
    /* Timeline.  May be NULL. */
    void (*event)(void *opaque, const EhcaEvent *event);
    /* The guest did something illegal: one sentence.  May be NULL. */
    void (*guest_error)(void *opaque, const char *sentence);
} EhcaOps;

typedef struct EhcaConfig {
    uint64_t handle;             /* ibm,hca-handle; r4 of each hcall */
    uint64_t node_guid;          /* 0: made from the handle */
    uint64_t port_guids[EHCA_MAX_PORTS];
    unsigned num_ports;          /* 1 or 2 */
    unsigned max_qp, max_cq, max_mr, max_mw;   /* 0: defaults */
    uint64_t max_mr_pages;       /* of all MRs together, 0: default */
    EhcaPortActivation activation;
    uint64_t galpa_base;         /* absolute address of the register pages */
    uint32_t ist_eq, ist_neq;    /* interrupt source numbers */
    char description[64];        /* node description */
} EhcaConfig;

/* Defaults filled in; needs no adapter: the owner sizes its MMIO with it. */
void ehca_config_complete(EhcaConfig *config);
/* Bytes of register pages at galpa_base. */
uint64_t ehca_mmio_size(const EhcaConfig *config);

EhcaAdapter *ehca_new(const EhcaConfig *config, IbClock *clock,
                      const EhcaOps *ops, void *opaque);
void ehca_free(EhcaAdapter *adapter);
/*
 * Machine reset: all resources gone, ports as after power-on; the links to
 * the fabric stay, PortInfo too as far as firmware keeps it.
 */
void ehca_reset(EhcaAdapter *adapter);

/*
 * One hypervisor call.  @in is r4..r12, @out receives r4..r12 (all nine are
 * written).  Returns r3.  EHCA_H_FUNCTION for a number that is not ours.
 */
int64_t ehca_hcall(EhcaAdapter *adapter, uint64_t number,
                   const uint64_t in[9], uint64_t out[9]);

/* Register pages; @offset from galpa_base; 8-byte accesses only. */
uint64_t ehca_mmio_read(EhcaAdapter *adapter, uint64_t offset);
void ehca_mmio_write(EhcaAdapter *adapter, uint64_t offset, uint64_t value);

enum { EHCA_IRQ_EQ = 1 << 0, EHCA_IRQ_NEQ = 1 << 1 };
/* Interrupts to pulse since the last call (bits), atomically cleared. */
unsigned ehca_take_irqs(EhcaAdapter *adapter);

/* The fabric is there: packets of @port go through these rings. */
void ehca_port_attach(EhcaAdapter *adapter, unsigned port,
                      const IbRing *tx, const IbRing *rx);
/* The fabric is gone: same as link down, rings are forgotten. */
void ehca_port_detach(EhcaAdapter *adapter, unsigned port);
/* speed, width: PortInfo codes. */
void ehca_port_link(EhcaAdapter *adapter, unsigned port, bool up,
                    uint8_t speed, uint8_t width);
/* Does the port want its link now (to tell a fabric that just came)? */
bool ehca_port_wants_link(const EhcaAdapter *adapter, unsigned port);

/*
 * Works off packets, doorbells and due timers, about @budget packets at the
 * most.  True: there is more to do at once.  False: nothing until wake(), a
 * packet, room in a ring, or ehca_deadline().
 */
bool ehca_run(EhcaAdapter *adapter, unsigned budget);
/*
 * About to sleep: marks rings so that the fabric kicks.  False: do not sleep,
 * something arrived.
 */
bool ehca_prepare_sleep(EhcaAdapter *adapter);
int64_t ehca_deadline(const EhcaAdapter *adapter);

/*
 * The adapter's state as one JSON object for people and tools: ports, QPs
 * with both paths, migration state and its history in counts (packets that
 * could arm, packets dropped by the path check and why), counters.  Free with
 * free().  Lock held.
 */
char *ehca_report(EhcaAdapter *adapter);

#endif
