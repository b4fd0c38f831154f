/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the subnet manager's files share.  Each file opens with its part of
 * the story:
 *
 *   sm.c         life, packets in and out, SM states and SMInfo
 *   transport.c  SMPs in flight: window, timeouts, retries
 *   db.c         nodes, ports, LIDs
 *   lidfile.c    LIDs on disk
 *   sweep.c      the sweep's phases, from discovery to Active
 *   route.c      unicast and multicast forwarding tables
 *   verify.c     is it still as we wrote it?
 *   notice.c     traps in, subscriptions, reports out
 *   sa.c         subnet administration: the door, and the simple records
 *   sa_path.c    PathRecord
 *   sa_mcast.c   MCMemberRecord and the groups
 *   sa_service.c ServiceRecord
 *   rmpp.c       tables longer than a MAD
 */
#ifndef SM_INTERNAL_H
#define SM_INTERNAL_H

#include <glib.h>
#include <inttypes.h>
#include <stdarg.h>

#include "ib/bytes.h"
#include "ib/packet.h"
#include "ib/sma.h"
#include "sm/sm.h"

/* IBTA 4.1.1: unicast LIDs 1 .. 0xBFFF. */
#define SM_LIDS IB_LID_MCAST_FIRST
#define SM_LFT_BLOCK 64u             /* LIDs per LinearForwardingTable */
#define SM_MFT_BLOCK 32u             /* MLIDs per MulticastForwardingTable */
#define SM_MFT_POSITION 16u          /* ports per position of the same */
#define SM_NO_ROUTE 0xFFu            /* LFT entry: discard */
#define SM_NO_PATH 0xFFu             /* hops: not connected */
#define SM_OWN_PORT 1u

/* Waits and budgets that are nobody's option. */
#define SM_REPORT_TIMEOUT (200 * IB_MSEC)
#define SM_REPORT_TRIES 4u
/* Reports in a row without an answer after which a subscription ends. */
#define SM_REPORT_FAILURES 10u
#define SM_RMPP_TIMEOUT (1 * IB_SEC)
#define SM_RMPP_TRIES 4u
#define SM_RMPP_TOTAL (60 * IB_SEC)
#define SM_MAX_RMPP_PER_CLIENT 8u
/* RMPP segments sent before others have their turn. */
#define SM_RMPP_BURST 16u
/* After a sweep that met errors the next waits this long, and doubles. */
#define SM_RESWEEP_FIRST (1 * IB_SEC)
#define SM_RESWEEP_LAST (10 * IB_SEC)
/* So many light sweeps in a row, then one that looks at everything. */
#define SM_LIGHT_PER_HEAVY 30u
/* More traps than these from one port in that time: sweeps slow down. */
#define SM_TRAP_BURST 50u
#define SM_TRAP_WINDOW (5 * IB_SEC)
#define SM_TRAP_SLOW_SWEEP (200 * IB_MSEC)
#define SM_POLL_FAILURES 3u
/*
 * What others can make us write, once a burst of it is used up (a large subnet
 * that comes up has a line and an event for each port): 20 lines a second.
 */
#define SM_LOG_COST (50 * IB_MSEC)
#define SM_LOG_BURST (20000 * SM_LOG_COST)
/*
 * Work for the SA: so much of the time per record looked at, request, and
 * change.  A port may run so far ahead of what it is due; so may all together,
 * but then those who asked little still get their answers.
 */
#define SM_SA_RECORD_COST (2 * IB_USEC)
#define SM_SA_REQUEST_COST (40 * IB_USEC)
#define SM_SA_CHANGE_COST (8 * IB_MSEC)
#define SM_SA_BURST_PORT (1 * IB_SEC)
#define SM_SA_BURST_ALL (2 * IB_SEC)
#define SM_SA_LITTLE (50 * IB_MSEC)
/* Foreign multicast rows found at take-over live that long. */
#define SM_MCAST_GRACE (30 * IB_SEC)

/* A directed route: leave by port[1], then by port[2] of the next, ... */
typedef struct SmPath {
    uint8_t hops;
    uint8_t port[SM_MAX_HOPS + 1];
} SmPath;

typedef struct SmNode SmNode;
typedef struct SmPort SmPort;

struct SmPort {
    SmNode *node;
    uint8_t num;
    bool endpoint;           /* has a GUID and a LID: CA port, switch port 0 */
    bool known;              /* endpoint that is in the database */
    bool is_new;             /* no trap 64 for it yet */
    bool need_reregister;    /* a Set with ClientReregister is due */
    bool told_active;        /* log and event went out */
    bool route_dirty;        /* where it is attached, or its LID, changed */
    uint64_t guid;
    uint32_t seen;           /* sweep that saw it last */
    uint32_t silent;         /* sweep in which its agent did not answer */
    uint32_t peer_seen;      /* sweep that saw peer last */
    SmPort *peer;            /* other end of the cable */
    SmPath path;             /* endpoints of CAs */
    IbPortInfo info;         /* as the port last told */
    uint32_t info_seen;      /* sweep in which it did */
    uint16_t lid;            /* ours, 0: none yet */
    uint8_t lmc;
    bool configured;         /* since its link came up: what differs from */
    uint8_t neighbor_mtu;    /* ... these and the LIDs, others have set */
    uint8_t operational_vls;
    bool pkeys_known, no_pkeys;
    uint8_t pkeys[IB_SMP_DATA_LEN];      /* first block, as last read */
    /* Where the routes to it were made for: switch and its port. */
    const SmPort *routed_to;
    /* Trap flood rule (notice.c). */
    int64_t trap_window_ns;
    unsigned trap_count;
    uint64_t trap_tid;
    bool trap_seen;
    /* Its use of the SA (sa.c, sa_mcast.c). */
    int64_t sa_due;
    bool sa_told;            /* that it asks too much */
    unsigned memberships;    /* in multicast groups */
};

typedef struct SmSwitch {
    IbSwitchInfo info;       /* as the switch last told */
    IbSwitchInfo wanted;     /* as we last asked for, if tables_known */
    unsigned index;          /* row and column of the hops table */
    bool tables_known;       /* dev tables were read, or written by us */
    bool fresh;              /* want tables start from what is found */
    bool rewrite;            /* never configured: write every block */
    /*
     * Linear forwarding table, whole blocks: what the device has and what it
     * is to have.
     */
    uint8_t *lft_dev, *lft_want;
    unsigned lft_len;
    /* Multicast: [mlid - 0xC000][position], rows allocated as needed. */
    uint16_t *mft_dev, *mft_want;
    unsigned mft_rows;       /* multiple of SM_MFT_BLOCK */
    unsigned positions;
    uint32_t *load;          /* LIDs routed through each port */
    bool cap_logged;
    uint32_t told_sweep;     /* that its tables had been changed */
    uint8_t up;              /* port towards its tree's root, 0: is root */
} SmSwitch;

struct SmNode {
    uint64_t guid;
    IbNodeInfo info;
    char desc[IB_NODE_DESC_LEN + 1];     /* printable, safe in JSON */
    uint8_t raw_desc[IB_NODE_DESC_LEN];
    bool desc_known;
    uint8_t num_ports;
    SmPort *ports;           /* [0 .. num_ports] */
    SmSwitch *sw;            /* NULL: channel adapter (or router) */
    SmPath path;             /* switches */
    uint32_t seen;
    uint32_t told;           /* sweep that said its PortInfo is missing */
    bool duplicate_logged;
};

/* Another subnet manager, as found in a sweep. */
typedef struct SmOther {
    IbSmInfo info;
    SmPath path;
    uint16_t lid;
} SmOther;
#define SM_MAX_OTHERS 16u

typedef struct SmRequest SmRequest;
/*
 * @smp is NULL when nobody answered, or the answer's status was not 0; @data
 * is its 64-byte attribute.
 */
typedef void SmReplyFn(Sm *sm, SmRequest *request, const IbSmp *smp,
                       const uint8_t *data);

struct SmRequest {
    SmRequest *next;
    SmReplyFn *fn;
    SmNode *node;            /* what it is about; fn knows which it needs */
    SmPort *port;
    uint32_t mod;
    uint16_t attr;
    uint8_t method;
    bool keep_reregister;    /* Set(PortInfo) that carries the bit */
    unsigned tries;
    SmPath path;
    uint8_t data[IB_SMP_DATA_LEN];
};

typedef struct SmSlot {
    Sm *sm;
    SmRequest *request;      /* NULL: free */
    uint64_t tid;
    IbTimer timer;
} SmSlot;

typedef enum SmPhase {
    SM_PHASE_IDLE,
    SM_PHASE_LIGHT,          /* ask each switch whether a port changed */
    SM_PHASE_DISCOVER,       /* who is there */
    SM_PHASE_LIDS,           /* LIDs, MTU, VLs, SM LID */
    SM_PHASE_ROUTES,         /* forwarding tables */
    SM_PHASE_ARM,            /* Initialize -> Armed */
    SM_PHASE_ACTIVATE,       /* Armed -> Active: switches' ports ... */
    SM_PHASE_ACTIVATE_CAS,   /* ... then those of channel adapters */
    SM_PHASE_VERIFY,         /* read back what nobody but us may write */
    SM_PHASE_MCAST,          /* multicast tables, between sweeps */
    SM_PHASE_POLL,           /* standby: is the master there? */
    SM_PHASE_HANDOVER,       /* master: a better one shall have it */
} SmPhase;

/* Where a MAD on QP1 came from, and how to answer. */
typedef struct SmClient {
    IbMadAddress reply;      /* to->slid is ours */
    SmPort *port;            /* by its source LID */
    bool trusted;            /* right, non-zero SM_Key */
} SmClient;

/* JoinState (15.2.5.17). */
enum {
    SM_JOIN_FULL = 1, SM_JOIN_NON = 2, SM_JOIN_SEND_ONLY = 4,
    SM_JOIN_SEND_ONLY_FULL = 8,
};

typedef struct SmMember {
    uint64_t guid;           /* of the port */
    uint8_t join_state;
} SmMember;

typedef struct SmGroup {
    IbMcMemberRecord rec;    /* group's properties; port_gid unused */
    bool permanent;          /* exists without members */
    bool dirty;              /* multicast tables are behind */
    GArray *members;         /* SmMember */
} SmGroup;

typedef struct SmReport {
    uint8_t notice[IB_NOTICE_LEN];
} SmReport;

typedef struct SmSubscription {
    Sm *sm;
    IbInformInfo info;
    uint64_t guid;           /* subscriber's port */
    IbMadAddress to;
    uint16_t id;             /* enum of InformInfoRecord */
    IbTimer timer;
    GQueue queue;            /* SmReport *, the head is under way */
    uint64_t tid;
    unsigned tries;
    unsigned failures;       /* reports in a row */
    bool trusted;
} SmSubscription;

typedef struct SmRmpp {
    Sm *sm;
    bool used;
    IbSaHeader header;       /* of the response */
    IbMadAddress to;
    uint8_t *data;
    size_t len;
    uint32_t segments;
    uint32_t acked;          /* last segment acknowledged */
    uint32_t window_last;    /* last one that may be sent */
    uint32_t next;           /* to send next */
    uint32_t highest;        /* last one ever sent */
    bool sending;            /* the timer is for going on, not for an ACK */
    int64_t started_ns;
    unsigned tries;
    IbTimer timer;
} SmRmpp;

struct Sm {
    IbClock *clock;
    SmOptions opts;
    char *lid_file;
    const SmOps *ops;
    void *opaque;
    IbSma sma;
    SmStats stats;
    int64_t log_due, event_due;
    unsigned log_lost, events_lost;

    /* State (14.4) */
    SmState state;
    bool link_up;
    bool resume;             /* was master when its own cable was pulled */
    bool takeover;           /* next sweep believes the ports, not us */
    bool first_master;       /* next sweep is our first as master */
    uint32_t act_count;
    SmOther others[SM_MAX_OTHERS];
    unsigned num_others;
    SmOther master;          /* standby: whom we poll */
    unsigned poll_failures;
    int handover_to;         /* index in others, -1: none */
    bool acknowledge;        /* handover to be acknowledged */

    /* Sweeps */
    SmPhase phase;
    uint32_t sweep;          /* number of the sweep, never 0 */
    bool heavy_wanted, mcast_wanted;
    bool desc_wanted, read_desc;         /* next sweep, this sweep */
    bool errors;             /* somebody did not answer in this sweep */
    bool took_over;          /* found Active ports in its first sweep */
    bool change_seen;        /* light sweep found one */
    unsigned light_in_row;   /* light sweeps since the last heavy one */
    unsigned verify_next;    /* node to be read back next ... */
    unsigned verify_left;    /* ... and how many in this sweep */
    const char *why;         /* the next heavy sweep is done */
    int64_t heavy_not_before;
    int64_t resweep_delay;
    int64_t next_light, next_poll;
    int64_t master_since;
    int64_t sweep_started;
    unsigned swept_nodes, swept_ports;
    IbTimer wake;

    /* SMPs */
    SmRequest *queue_head, **queue_tail;
    SmRequest *free_requests;
    unsigned queued;
    SmSlot slots[SM_MAX_WINDOW];
    unsigned outstanding;
    GRand *rand;             /* of TIDs */
    bool pumping;

    /* Database */
    GPtrArray *nodes;        /* SmNode *, in the order of discovery */
    unsigned num_switches, num_ports;    /* of all nodes */
    uint32_t full_told;      /* sweep that met one node too many */
    GHashTable *node_by_guid, *port_by_guid;
    SmPort *own;             /* our port, NULL before the first sweep */
    SmPort **by_lid;         /* [SM_LIDS] ports that are there */
    uint64_t *lid_guid;      /* [SM_LIDS] whose it is, there or not */
    uint8_t *lid_lmc;        /* [SM_LIDS] of the range, at its base */
    GHashTable *lid_of_guid; /* base LID; keys point into lid_guid */
    unsigned lids_before;    /* the highest in use when we took over */
    bool lids_changed;       /* the file is behind */
    bool lids_full_logged;
    GArray *gone;            /* uint64_t port GUIDs for trap 65 */

    /* Routes */
    GPtrArray *switches;     /* SmNode * */
    uint8_t *hops;           /* [switches][switches] */
    GByteArray *graph;       /* switches and links the routes stand for */
    bool graph_valid;
    unsigned *tree;          /* switches, each after the one above it */
    bool mcast_grace_over;
    uint16_t top_lid;        /* highest ever given: tables reach that far */

    /* SA */
    GPtrArray *groups;       /* SmGroup * */
    GHashTable *group_by_mgid;
    SmGroup **group_by_mlid; /* [SM_MAX_GROUPS] */
    unsigned members;
    GArray *services;
    int64_t sa_due, stranger_due;        /* of all, of ports unknown to us */
    unsigned sa_records;     /* looked at for the request at hand */
    GPtrArray *subscriptions;/* SmSubscription * */
    uint16_t next_subscription;
    GHashTable *report_by_tid;
    unsigned reports_queued;
    uint32_t next_report;
    uint32_t next_mgid;
    SmRmpp rmpp[SM_MAX_RMPP];
};

/* sm.c */
void sm_logf(Sm *sm, SmLogLevel level, const char *fmt, ...)
    G_GNUC_PRINTF(3, 4);
/* "alice/1 (LID 3)": what logs call a port. */
typedef struct SmName {
    char s[IB_NODE_DESC_LEN + 40];
} SmName;
SmName sm_port_name(const SmPort *port);
void sm_eventf(Sm *sm, const char *fmt, ...) G_GNUC_PRINTF(2, 3);
/*
 * Who pays @cost each time, and time pays back, is in debt until @due: true,
 * and paid, if that is not further off than @most.
 */
bool sm_afford(const Sm *sm, int64_t *due, int64_t cost, int64_t most);
bool sm_send_mad(Sm *sm, const IbMadAddress *to, const uint8_t *mad);
void sm_set_state(Sm *sm, SmState state, const char *why);
/* Is ours (priority, GUID) better than theirs?  14.4.1.2 */
bool sm_better_than(const Sm *sm, const IbSmInfo *other);
void sm_own_gid(const Sm *sm, uint8_t gid[16]);
void sm_port_gid(const Sm *sm, uint64_t guid, uint8_t gid[16]);

/* transport.c */
void sm_transport_init(Sm *sm);
void sm_transport_fini(Sm *sm);
SmRequest *sm_request(Sm *sm, const SmPath *path, uint8_t method,
                      uint16_t attr, uint32_t mod, SmReplyFn *fn);
/* Sends what the window allows; goes on with the next phase when all is
 * answered. */
void sm_pump(Sm *sm);
/* A response that arrived; false: not one of ours. */
bool sm_response(Sm *sm, const uint8_t *mad);
/* Forgets all requests without calling anybody. */
void sm_transport_abort(Sm *sm);

/* db.c */
void sm_db_init(Sm *sm);
void sm_db_fini(Sm *sm);
SmNode *sm_node_find(const Sm *sm, uint64_t guid);
SmNode *sm_node_add(Sm *sm, const IbNodeInfo *info);
void sm_node_set_desc(SmNode *node, const uint8_t *desc);
SmPort *sm_port_find(const Sm *sm, uint64_t guid);
/* Makes an endpoint known; false: its GUID is another port's. */
bool sm_port_register(Sm *sm, SmPort *port, uint64_t guid);
SmPort *sm_port_by_lid(const Sm *sm, uint16_t lid);
const SmPath *sm_port_path(const SmPort *port);
/* Endpoint that is there and usable: the SA may speak of it. */
bool sm_port_usable(const SmPort *port);
/* Ports and nodes that the sweep did not see. */
void sm_db_drop_unseen(Sm *sm);
void sm_assign_lids(Sm *sm);
/* Reserves a range for a GUID that need not be there; false: taken. */
bool sm_lid_reserve(Sm *sm, uint64_t guid, uint16_t lid, uint8_t lmc);

/* lidfile.c */
bool sm_lid_file_load(Sm *sm, char **error);
void sm_lid_file_save(Sm *sm);

/* sweep.c */
void sm_want_heavy(Sm *sm, const char *why, int64_t delay_ns);
/* Called when nothing is under way: starts what is due, or sleeps. */
void sm_schedule(Sm *sm);
void sm_phase_done(Sm *sm);
void sm_sweep_abort(Sm *sm);

/* route.c */
/* Numbers the switches of the sweep just discovered. */
void sm_route_index(Sm *sm);
void sm_route_all(Sm *sm);
void sm_route_write(Sm *sm);
void sm_mcast_route(Sm *sm);
void sm_mcast_write(Sm *sm);
void sm_switch_read_tables(Sm *sm, SmNode *node);
/* The switch has no tables yet worth reading. */
void sm_switch_blank(SmNode *node);
void sm_switch_free(SmSwitch *sw);
SmSwitch *sm_switch_new(unsigned num_ports);
/* Its multicast table as it has it: bits of 16 ports from 16 * position on. */
uint16_t sm_mft_entry(const SmSwitch *sw, unsigned row, unsigned position);
/* Asks for its tables, to write again what differs; how many SMPs. */
unsigned sm_switch_verify(Sm *sm, SmNode *node);
/* Largest number of groups the switches' tables have room for. */
unsigned sm_mcast_capacity(const Sm *sm);
void sm_route_forget(Sm *sm);
/* Switch port at which @port hangs (port 0: the switch itself), or NULL. */
const SmPort *sm_attachment(const SmPort *port);

/* verify.c */
/* Says "item is found instead of wanted" of what we had set ourselves. */
void sm_tell_changed(Sm *sm, const SmPort *port, const char *item,
                     uint64_t found, uint64_t wanted);
/* The same switch settings, whatever else changed? */
bool sm_switch_info_same(const IbSwitchInfo *a, const IbSwitchInfo *b);
/* SwitchInfo was read: says what is not as we set it. */
void sm_switch_info_check(Sm *sm, SmNode *node);
void sm_verify_start(Sm *sm);
/* Asks the next nodes; false: all were asked. */
bool sm_verify_more(Sm *sm);

/* notice.c */
void sm_notice_init(Sm *sm);
void sm_notice_fini(Sm *sm);
void sm_trap_receive(Sm *sm, const IbMadAddress *from, const uint8_t *mad);
void sm_report_gid(Sm *sm, uint16_t trap, const uint8_t gid[16]);
void sm_report_response(Sm *sm, const IbMadAddress *to,
                        const IbSaHeader *header);
uint16_t sm_inform_info_set(Sm *sm, SmClient *client, IbInformInfo *info);
void sm_subscriptions_clear(Sm *sm);
bool sm_reports_pending(const Sm *sm);

/* sa.c */
void sm_sa_receive(Sm *sm, const IbMadAddress *from, const uint8_t *mad);

/* Component of a record: bit of the mask, place in the record. */
typedef struct SmComponent {
    uint8_t bit;
    uint16_t pos, width;     /* in bits */
} SmComponent;
/* Do all components that @mask names and @table knows agree? */
bool sm_record_match(const uint8_t *record, const uint8_t *wanted,
                     uint64_t mask, const SmComponent *table, size_t n);

/* Records of a response, bounded by SM_MAX_RMPP_BYTES. */
typedef struct SmRecords {
    GByteArray *bytes;
    size_t record_len;       /* padded to 8 */
    unsigned count;
    unsigned examined;       /* to be paid for */
    bool overflow;
} SmRecords;
/* Appends a zeroed record; NULL: table is full (overflow is set). */
uint8_t *sm_records_add(SmRecords *records);

/* sa_path.c */
uint16_t sm_sa_path(Sm *sm, const SmClient *client, const IbSaHeader *header,
                    const uint8_t *data, SmRecords *records);
typedef struct SmRoute {
    uint8_t mtu, rate;
    unsigned hops;
} SmRoute;
/* Walks the tables from port to port. */
bool sm_path_trace(const Sm *sm, const SmPort *from, const SmPort *to,
                   uint16_t dlid, SmRoute *route);
uint8_t sm_port_rate(const IbPortInfo *info);
unsigned sm_rate_mbps(unsigned rate);
/* Selector of the specification: 0 >, 1 <, 2 =, 3 largest (or smallest). */
bool sm_selector_ok(unsigned selector, unsigned wanted, unsigned have);

/* sa_mcast.c */
void sm_mcast_init(Sm *sm);
void sm_mcast_fini(Sm *sm);
uint16_t sm_mcast_set(Sm *sm, const SmClient *client,
                      const IbSaHeader *header, uint8_t *data);
uint16_t sm_mcast_delete(Sm *sm, const SmClient *client,
                         const IbSaHeader *header, uint8_t *data);
uint16_t sm_mcast_get(Sm *sm, const SmClient *client,
                      const IbSaHeader *header, const uint8_t *data,
                      SmRecords *records);
/* The port is gone: it is in no group any more. */
void sm_mcast_port_gone(Sm *sm, uint64_t guid);
void sm_mcast_forget(Sm *sm);
SmGroup *sm_group_find(const Sm *sm, const uint8_t mgid[16]);

/* sa_service.c */
#define SM_SERVICE_RECORD_LEN 176
void sm_service_init(Sm *sm);
void sm_service_fini(Sm *sm);
void sm_service_forget(Sm *sm);
uint16_t sm_service_set(Sm *sm, const SmClient *client,
                        const IbSaHeader *header, uint8_t *data);
uint16_t sm_service_delete(Sm *sm, const SmClient *client,
                           const IbSaHeader *header, uint8_t *data);
uint16_t sm_service_get(Sm *sm, const SmClient *client,
                        const IbSaHeader *header, const uint8_t *data,
                        SmRecords *records);

/* rmpp.c */
void sm_rmpp_init(Sm *sm);
void sm_rmpp_fini(Sm *sm);
/* Takes @data over (g_free()); false: too many under way. */
bool sm_rmpp_start(Sm *sm, const IbMadAddress *to, const IbSaHeader *header,
                   uint8_t *data, size_t len);
/* An answer to this request is under way already. */
bool sm_rmpp_busy(const Sm *sm, const IbMadAddress *to, uint64_t tid);
void sm_rmpp_receive(Sm *sm, const IbMadAddress *to,
                     const IbSaHeader *header);
/* Nothing that comes to us may be longer than a MAD. */
void sm_rmpp_refuse(Sm *sm, const IbMadAddress *to, const IbSaHeader *header);
void sm_rmpp_abort_all(Sm *sm);

#endif
