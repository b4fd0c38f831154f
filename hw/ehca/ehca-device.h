/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The eHCA adapter as a QEMU device: state shared by the files of this
 * folder.
 *
 * Theory of operation.  The engine (engine/ehca.h) is the adapter; this
 * folder joins it to QEMU and does nothing else:
 *
 *   ehca.c    QOM device, properties, register pages, guest memory,
 *             interrupts, device tree, reset, report
 *   hcall.c   hypervisor calls
 *   thread.c  the adapter's thread, which runs the engine
 *   link.c    messages to and from the fabric over the chardev
 *   qtest.c   a hypervisor call as a qtest command
 *
 * Threads.  vCPUs (hypervisor calls, register pages) and the main loop (link,
 * reset, report) come with QEMU's big lock held; the adapter's thread comes
 * without.  What one has of the other is covered by the adapter's lock.
 *
 * Lock order: big lock, then the adapter's lock.  The adapter's thread
 * therefore never asks for the big lock while it has the adapter's; it
 * collects interrupts (ehca_take_irqs()) after it has dropped it.
 *
 * While the machine is stopped ("stop", a breakpoint of gdb, a snapshot) the
 * adapter stands still with it: "stopped" is written with both locks held and
 * looked at with either.  Then the engine does not run, so that nothing is
 * written to guest memory; interrupts are kept; nothing is read from the
 * fabric, and that it is gone is noted only.  Packets wait in the rings, the
 * links stay as they were, and timers go on from where they were.
 *
 * The adapter's lock is two mutexes, so that a thread that runs the engine
 * in a loop cannot keep a vCPU out: whoever wants the lock holds "next" while
 * he waits, and the loop must get "next" before it can have the lock again.
 */
#ifndef HW_EHCA_EHCA_DEVICE_H
#define HW_EHCA_EHCA_DEVICE_H

#include "chardev/char-fe.h"
#include "hw/ppc/spapr.h"
#include "hw/sysbus.h"
#include "qemu/event_notifier.h"
#include "qemu/queue.h"
#include "qemu/thread.h"
#include "qom/object.h"

#include "engine/ehca.h"
#include "ib/link.h"
#include "spapr_ehca.h"

/* Adapters in one guest; each has a window of register pages and two ISTs. */
#define EHCA_MAX_ADAPTERS 8

/* Events that wait for the main loop or for the fabric to come. */
#define EHCA_EVENT_QUEUE 512
/* Bytes for the fabric that its socket does not take yet. */
#define EHCA_OUT_MAX (64 * KiB)

/* Connection with the fabric. */
typedef enum EhcaLinkState {
    EHCA_LINK_NONE,              /* no chardev */
    EHCA_LINK_CLOSED,            /* nobody at the other end */
    EHCA_LINK_GREETED,           /* HELLO sent, WELCOME not here yet */
    EHCA_LINK_READY,
} EhcaLinkState;

/* What a guest can provoke must not fill the log. */
typedef struct EhcaLogLimit {
    int64_t since_ns;
    unsigned lines;
} EhcaLogLimit;

/* What one connection with the fabric has brought. */
typedef struct EhcaLink {
    IbLinkWake wake;
    IbLinkPort ports[EHCA_MAX_PORTS + 1];
    unsigned num_ports;          /* that are wired */
    QSIMPLEQ_ENTRY(EhcaLink) next;
} EhcaLink;

typedef struct EhcaDevice EhcaDevice;
DECLARE_INSTANCE_CHECKER(EhcaDevice, EHCA_DEVICE, TYPE_EHCA)

struct EhcaDevice {
    SysBusDevice parent_obj;

    /* Properties */
    CharBackend chr;
    char *node;
    char *activation;
    char *loc_code;
    uint64_t handle;
    uint64_t node_guid;
    uint8_t num_ports;
    uint32_t max_qp, max_cq, max_mr, max_mw;
    uint64_t max_mr_pages;

    /* Fixed at realize */
    const char *name;            /* for messages: id or "ehca" */
    unsigned index;
    EhcaConfig config;
    MemoryRegion mmio;
    qemu_irq irqs[2];            /* EQ, NEQ */
    uint64_t ram_size;
    MemoryRegionCache ram;
    QLIST_ENTRY(EhcaDevice) next_adapter;

    /* The lock and what it covers */
    QemuMutex next, lock;
    EhcaAdapter *adapter;
    IbClock clock;
    bool stopped;
    int64_t stopped_ns;          /* since when */
    EhcaLink *link;              /* NULL: not attached */
    QSIMPLEQ_HEAD(, EhcaLink) retired;   /* for the thread to close */
    bool wake_broken;            /* the fabric shut its end of link down */
    EhcaEvent events[EHCA_EVENT_QUEUE];
    unsigned events_first, events_count;
    uint64_t events_lost;
    bool phys_changed;
    bool phys_dropped[EHCA_MAX_PORTS + 1];  /* since PHYS was last sent */
    EhcaLogLimit log_limit;
    int64_t sleeps_until_ns;     /* the thread's, while it sleeps */

    /* The adapter's thread */
    QemuThread thread;
    EventNotifier wake;
    int work;                    /* atomic: run the engine */
    int asleep;                  /* atomic: needs the notifier to wake up */

    /* Big lock held */
    unsigned irqs_kept;          /* while stopped */

    /* Main loop only */
    QEMUBH *link_bh;
    EhcaLinkState link_state;
    IbLinkParser parser;
    EhcaLink *greeted;           /* HELLO is out, for WELCOME to wire */
    IbLinkFds fds;
    bool link_lost;              /* while stopped: link is to be detached */
    GByteArray *out;
    guint out_watch;
    bool phys_sent[EHCA_MAX_PORTS + 1];
    char *refusal;               /* last reason, so that it is said once */
};

/* ehca.c */
EhcaDevice *ehca_device_find(uint64_t handle);
void ehca_device_lock(EhcaDevice *s);
void ehca_device_unlock(EhcaDevice *s);
/* Pulses what the engine asks for; big lock held, adapter's lock not. */
void ehca_device_pulse(EhcaDevice *s, unsigned irqs);

void ehca_device_log_guest_error(EhcaLogLimit *limit, const char *name,
                                 const char *sentence);

/* thread.c */
void ehca_thread_start(EhcaDevice *s);
/* There is something for the engine; any thread. */
void ehca_thread_wake(EhcaDevice *s);
/* A store to a register page; big lock held. */
void ehca_thread_doorbell(EhcaDevice *s, uint64_t offset, uint64_t value);
/*
 * Adapter's lock held, after a call that may have set timers: wakes the
 * thread if it would sleep too long.
 */
void ehca_thread_check_deadline(EhcaDevice *s);

/* link.c */
/* Before the engine exists, and after it may be spoken to. */
void ehca_link_init(EhcaDevice *s);
void ehca_link_start(EhcaDevice *s);
/* The machine goes on; adapter's lock not held. */
void ehca_link_resume(EhcaDevice *s);
/* The fabric shut its wake-ups down; the adapter's thread, no lock. */
void ehca_link_wake_broken(EhcaDevice *s, const EhcaLink *link);
/* Adapter's lock held, any thread. */
void ehca_link_event(EhcaDevice *s, const EhcaEvent *event);
void ehca_link_phys(EhcaDevice *s, unsigned port, bool enable);
const char *ehca_link_state_name(EhcaLinkState state);

#endif
