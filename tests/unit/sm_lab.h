/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A subnet for the tests of the subnet manager: the real fabric library, a
 * real Sm, and hosts that are a real SMA with a QP1 that keeps what it gets;
 * all on one virtual clock.
 */
#ifndef TESTS_SM_LAB_H
#define TESTS_SM_LAB_H

#include <glib.h>

#include "fabric/fabric.h"
#include "ib/bytes.h"
#include "ib/mad.h"
#include "ib/sma.h"
#include "sm/sm.h"

#define LAB_SM_GUID UINT64_C(0x0200000000005300)

typedef struct SmLab SmLab;

/* A MAD that came to QP1. */
typedef struct LabMad {
    unsigned port;
    IbMadAddress from;
    uint8_t mad[IB_MAD_LEN];
} LabMad;

typedef struct LabHost LabHost;
struct LabHost {
    SmLab *lab;
    char name[64];
    int index;                   /* in the topology */
    unsigned num_ports;
    bool attached;
    Sm *sm;                      /* NULL: an ordinary host */
    IbSma sma;                   /* ordinary hosts */
    IbLinkPortMemory *memory[IB_LINK_MAX_PORTS];
    IbRing tx[IB_LINK_MAX_PORTS + 1], rx[IB_LINK_MAX_PORTS + 1];
    GQueue mads;                 /* LabMad * */
    bool mute;                   /* answers no SMPs */
    bool no_report_resp;         /* answers no reports */
    unsigned drop_percent;       /* of what arrives */
    unsigned reregisters, lid_changes, sm_changes, state_changes, dropped;
    int last_smp_status;         /* of a GetResp to an SMP it sent */
    uint8_t last_smp[IB_SMP_DATA_LEN];   /* and its attribute */
    /*
     * What it does with an SMP instead of answering as it should: false: not
     * this one.  It sends what it likes by lab_send_smp().
     */
    bool (*lie)(LabHost *host, unsigned port, const uint8_t *mad);
    void *lie_data;
    unsigned reports;            /* received, repeated ones too */
};

struct SmLab {
    IbClock clock;
    Topology *topology;
    Fabric *fabric;
    GPtrArray *hosts;            /* LabHost *, one per host of the topology */
    GRand *rand;
    uint64_t next_tid;
    bool verbose;
    GString *log;                /* what the SMs said */
    GString *events;
};

/* All hosts but "sm*" are attached and enabled. */
SmLab *lab_new(const char *topology, uint32_t seed);
void lab_free(SmLab *lab);
LabHost *lab_host(SmLab *lab, const char *name);

void lab_attach(LabHost *host);
/* As if killed: all its cables pulled, all it knew is gone. */
void lab_detach(LabHost *host);
/* @options NULL: defaults.  GUIDs 0: LAB_SM_GUID. */
Sm *lab_start_sm(SmLab *lab, const char *name, const SmOptions *options);
void lab_stop_sm(SmLab *lab, const char *name);
Sm *lab_sm(SmLab *lab);          /* that of the host "sm" */

void lab_run(SmLab *lab, int64_t ns);
/* Until the SM of host "sm" is settled; fails after @limit_ns. */
void lab_settle(SmLab *lab, int64_t limit_ns);
void lab_cable(SmLab *lab, const char *cable, bool plugged);

uint64_t lab_guid(const LabHost *host, unsigned port);
uint16_t lab_lid(const LabHost *host, unsigned port);
unsigned lab_state(const LabHost *host, unsigned port);
void lab_gid(const LabHost *host, unsigned port, uint8_t gid[16]);

/* Puts a MAD on the wire; @from->dlid 0 means the port's SM. */
void lab_send(LabHost *host, unsigned port, const IbMadAddress *to,
              const uint8_t *mad);
void lab_send_raw(LabHost *host, unsigned port, const void *p, size_t len);
LabMad *lab_next_mad(LabHost *host);         /* NULL: none; g_free() */
void lab_flush(LabHost *host);

/* A directed-route MAD as it is, out of the port. */
void lab_send_smp(LabHost *host, unsigned port, const uint8_t *mad);
/*
 * Asks the agent at @dlid by LID; @data is the attribute, in and out.  Returns
 * the status; -1: no answer.
 */
int lab_smp(LabHost *host, unsigned port, uint16_t dlid, unsigned method,
            unsigned attr, uint32_t mod, uint64_t m_key, uint8_t *data);

/*
 * One request to the SA.  @header: method, attribute, mask and so on; the rest
 * is filled in.  Returns the status; -1: no answer within a second.
 */
int lab_sa(LabHost *host, unsigned port, IbSaHeader *header,
           const uint8_t *data, uint8_t reply[IB_SA_DATA_LEN]);
/* GetTable with RMPP; records (g_byte_array_free()) or NULL and a status. */
GByteArray *lab_sa_table(LabHost *host, unsigned port, IbSaHeader *header,
                         const uint8_t *data, int *status);
int lab_subscribe(LabHost *host, unsigned port, unsigned trap,
                  bool subscribe);
/* The next Report among the host's MADs; false: none. */
bool lab_report(LabHost *host, IbNotice *notice);

/* Does a packet from port to port get there by the tables? */
bool lab_reaches(SmLab *lab, LabHost *from, unsigned from_port, LabHost *to,
                 unsigned to_port);

#endif
