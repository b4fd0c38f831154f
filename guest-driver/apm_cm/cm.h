/* SPDX-License-Identifier: GPL-2.0 */
/*
 * apm_cm internals: a connection, and what the files of the module share.
 *
 *	cm_core.c	ids, the timed message, events, dispatch (theory there)
 *	cm_connect.c	REQ, REP, RTU, MRA
 *	cm_release.c	REJ, DREQ, DREP
 *	cm_lap.c	LAP, APR, migration
 *	cm_path.c	paths: our end of them, and what a peer says of them
 *	cm_qp.c		attributes for the consumer's queue pair
 *	cm_msg.c	formats and names
 *	cm_dev.c	devices, MAD agents, counters
 */
#ifndef APM_CM_CM_H
#define APM_CM_CM_H

#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/workqueue.h>
#include <rdma/ib_mad.h>
#include <rdma/ib_sa.h>
#include <rdma/ibta_vol1_c12.h>

#include "apm_cm.h"

#define CM_CLASS_VERSION	2
#define CM_MAD_SIZE		256

/* Limits; nothing a peer sends makes the module keep more than this. */
#define CM_MAX_CONNECTIONS	1024	/* live, pending and in TIMEWAIT */
#define CM_MAX_FOR_PEERS	768	/* so many, and REQs are refused */
#define CM_MAX_RX_QUEUED	512	/* received MADs waiting for work */
#define CM_MAX_TX_QUEUED	256	/* per port */
#define CM_MAX_WAIT_MS		60000	/* any one wait, MRA included */

#define CM_LAP_BODY		64	/* LAP bytes before private data */

enum cm_attr {
	CM_ATTR_REQ = 0x10,
	CM_ATTR_MRA,
	CM_ATTR_REJ,
	CM_ATTR_REP,
	CM_ATTR_RTU,
	CM_ATTR_DREQ,
	CM_ATTR_DREP,
	CM_ATTR_SIDR_REQ,
	CM_ATTR_SIDR_REP,
	CM_ATTR_LAP,
	CM_ATTR_APR,
};

/* Values of "message MRAed" and "message rejected" */
enum cm_which {
	CM_WHICH_REQ = 0,
	CM_WHICH_REP = 1,
	CM_WHICH_LAP = 2,	/* MRA */
	CM_WHICH_OTHER = 2,	/* REJ */
};

struct cm_port {
	struct cm_device *dev;
	struct ib_mad_agent *agent;
	u32 num;
	atomic_t tx_queued;
	bool cap_set;
};

struct cm_device {
	struct list_head list;
	struct ib_device *ib;
	bool gone;			/* under cm_lock */
	u32 nports;
	struct cm_port ports[];		/* [0] is port 1 */
};

/* Where an answer goes: back by the way the message came. */
struct cm_via {
	u32 port;
	u16 pkey_index;
	struct rdma_ah_attr ah;
};

/* A path as seen from here, ready for an address handle or a QP. */
struct cm_path {
	bool valid;
	u8 timeout;
	struct cm_via via;
	struct sa_path_rec rec;
};

/* What is wrong with a path that a peer named, ... */
enum cm_path_fault {
	CM_PATH_GOOD,
	CM_PATH_BAD_GID,
	CM_PATH_BAD_PKEY,
	CM_PATH_BAD_LID,
	CM_PATH_BAD_RATE,
	CM_PATH_FAULTS,
};

/* ... and what REJ or APR says would be right */
struct cm_path_hint {
	union {
		union ib_gid gid;
		__be16 lid;
	};
	u8 len;
};

struct cm_mad {
	union {
		u8 bytes[CM_MAD_SIZE];
		struct ib_mad_hdr hdr;
		struct cm_req_msg req;
		struct cm_mra_msg mra;
		struct cm_rej_msg rej;
		struct cm_rep_msg rep;
		struct cm_rtu_msg rtu;
		struct cm_dreq_msg dreq;
		struct cm_drep_msg drep;
		struct cm_lap_msg lap;
		struct cm_apr_msg apr;
		struct cm_sidr_req_msg sidr_req;
		struct cm_sidr_rep_msg sidr_rep;
	};
};

struct cm_conn {
	struct apm_cm_id id;		/* the consumer's part */
	struct list_head list;
	struct cm_device *dev;		/* NULL: device removed */
	enum apm_cm_state state;
	enum apm_cm_lap_state lap_state;
	bool active;			/* sent the REQ */
	bool orphan;			/* consumer gone */
	bool dead;			/* waits to be freed */
	bool tell_removed;
	bool timeout_asked;		/* consumer chose the ACK timeout */
	bool migrated;			/* PATH_MIG since alt was agreed */
	u32 local_id;
	u32 remote_id;
	u32 local_qpn;
	u32 remote_qpn;
	__be64 remote_ca_guid;
	enum ib_qp_type qp_type;

	struct cm_path pri, alt, pend;

	/* A starting PSN is that which the other side begins to send with. */
	u32 sq_psn;			/* the peer told us */
	u32 rq_psn;			/* we tell */
	u8 path_mtu;
	u8 responder_resources;
	u8 initiator_depth;
	u8 retry_count;
	u8 rnr_retry_count;
	u8 target_ack_delay;
	u8 remote_resp;			/* response time of the peer's CM */
	u8 max_retries;

	/* The timed message */
	struct cm_mad msg;
	bool msg_live;
	unsigned int msg_try;
	unsigned int msg_tries;
	unsigned long msg_interval;	/* jiffies */
	struct delayed_work timer;

	/* The exchange the peer began, and our last answer */
	struct cm_via via;
	__be64 peer_tid;
	struct cm_mad answer;
	u16 answer_attr;
	bool mra_held;			/* MRA waits for a duplicate */

	/* The LAP the peer sent last, and our APR */
	__be64 lap_tid;
	u8 lap_body[CM_LAP_BODY];
	struct cm_via lap_via;
	struct cm_mad apr;
	bool apr_valid;
	u8 apr_status;
	unsigned long apr_at;
};

/* A message received */
struct cm_rx {
	struct cm_device *dev;
	struct cm_mad *mad;
	struct cm_via via;		/* back to the sender */
};

extern struct mutex cm_lock;

/* QPs 0 and 1 are special, the last one means multicast (IBTA 3.5.10). */
static inline bool cm_qpn_valid(u32 qpn)
{
	return qpn > 1 && qpn < IB_MULTICAST_QPN;
}

/* cm_msg.c */
void cm_msg_start(struct cm_mad *mad, enum cm_attr attr, __be64 tid);
void cm_msg_put_req_path(struct cm_req_msg *req, const struct cm_path *path,
			 bool alternate);
/* Reversed: what the sender calls local is remote here. */
void cm_msg_get_req_path(const struct cm_req_msg *req, bool alternate,
			 struct sa_path_rec *rec, u8 *timeout);
void cm_msg_put_lap_path(struct cm_lap_msg *lap, const struct cm_path *path);
void cm_msg_get_lap_path(const struct cm_lap_msg *lap, __be16 pkey, u8 mtu,
			 struct sa_path_rec *rec, u8 *timeout);
bool cm_msg_req_has_alternate(const struct cm_req_msg *req);
bool cm_msg_lap_is_routed(const struct cm_lap_msg *lap);
bool cm_msg_req_is_routed(const struct cm_req_msg *req, bool alternate);
unsigned int cm_time_ms(u8 encoded);
u8 cm_ack_timeout(u8 ca_ack_delay, u8 packet_life);

/* cm_dev.c */
int cm_dev_init(void);
void cm_dev_exit(void);
struct cm_device *cm_dev_find(struct ib_device *ib);
struct cm_port *cm_dev_port(struct cm_device *dev, u32 num);
__be64 cm_dev_tid(struct cm_device *dev);
int cm_dev_send(struct cm_device *dev, const struct cm_via *via,
		const struct cm_mad *mad, bool retry);
void cm_count(enum apm_cm_counter_group group, u16 attr);
void cm_count_dropped(void);
void cm_dev_counters(struct apm_cm_counters *counters);
bool cm_tap_lost(bool sent, u32 port, struct cm_mad *mad);

/* cm_path.c */
bool cm_port_active(struct cm_device *dev, u32 port);
int cm_path_init(struct cm_device *dev, const struct sa_path_rec *rec,
		 u8 timeout, struct cm_path *path);
bool cm_same_path(const struct cm_path *a, const struct cm_path *b);
enum cm_path_fault cm_path_from_peer(struct cm_rx *rx, struct sa_path_rec *rec,
				     bool routed, u8 timeout, u32 hint_port,
				     struct cm_path *path,
				     struct cm_path_hint *hint);
bool cm_apm_supported(struct cm_device *dev, u32 port);

/* cm_core.c: all but the first three under cm_lock */
int cm_core_init(void);
void cm_core_exit(void);
void cm_core_receive(struct cm_port *port, struct ib_mad_recv_wc *wc);
void cm_core_device_gone(struct cm_device *dev);
void cm_core_flush(void);
bool cm_core_queue(struct work_struct *work);
u32 cm_core_connections(void);

struct cm_conn *cm_of(struct apm_cm_id *id);
struct cm_conn *cm_conn_new(struct cm_device *dev, apm_cm_handler handler,
			    void *context, unsigned int limit);
void cm_conn_bury(struct cm_conn *c);
struct cm_conn *cm_find_local(u32 local_id);
struct cm_conn *cm_find(struct cm_device *dev, u32 local_id, u32 remote_id);
struct cm_conn *cm_find_remote(struct cm_device *dev, u32 remote_id,
			       __be64 guid);
struct cm_conn *cm_find_remote_qpn(struct cm_device *dev, u32 qpn,
				   __be64 guid);
struct cm_conn *cm_find_listener(struct cm_device *dev, __be64 service_id);
void cm_deliver(struct cm_conn *c, struct apm_cm_event *ev);
void cm_deliver_request(struct cm_conn *c, struct cm_conn *listener,
			struct apm_cm_event *ev);
void cm_deliver_simple(struct cm_conn *c, enum apm_cm_event_type type,
		       const void *private_data, u8 len);
void cm_start_timed(struct cm_conn *c, unsigned int interval_ms);
void cm_stop_timed(struct cm_conn *c);
void cm_prolong_timed(struct cm_conn *c, unsigned int ms);
unsigned int cm_response_ms(const struct cm_conn *c);
void cm_put_ids(struct cm_mad *mad, u32 local_id, u32 remote_id);
int cm_send_answer(struct cm_conn *c);
void cm_start_answer(struct cm_conn *c, enum cm_attr attr);
void cm_repeat_answer(struct cm_conn *c, u16 attr);
void cm_reply(struct cm_rx *rx, struct cm_mad *mad);
void cm_enter_timewait(struct cm_conn *c);
void cm_enter_idle(struct cm_conn *c);

/* cm_connect.c */
void cm_rx_req(struct cm_rx *rx);
void cm_rx_rep(struct cm_rx *rx);
void cm_rx_rtu(struct cm_rx *rx);
void cm_rx_mra(struct cm_rx *rx);
struct cm_conn *cm_establish(struct cm_conn *c);

/* cm_release.c */
void cm_rx_rej(struct cm_rx *rx);
void cm_rx_dreq(struct cm_rx *rx);
void cm_rx_drep(struct cm_rx *rx);
void cm_reply_rej(struct cm_rx *rx, enum cm_which which, u32 remote_id,
		  u16 reason, const void *ari, u8 ari_len);
void cm_send_rej_now(struct cm_conn *c, u16 reason, const void *ari,
		     u8 ari_len, const void *private_data, u8 len);
void cm_send_rej_timeout(struct cm_conn *c);
void cm_start_dreq(struct cm_conn *c, const void *private_data, u8 len);
void cm_answer_drep(struct cm_conn *c, const void *private_data, u8 len);

/* cm_lap.c */
void cm_rx_lap(struct cm_rx *rx);
void cm_rx_apr(struct cm_rx *rx);
bool cm_lap_out(const struct cm_conn *c);
struct cm_conn *cm_tell_lap_over(struct cm_conn *c, bool was_out);

#endif /* APM_CM_CM_H */
