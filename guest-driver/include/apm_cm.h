/* SPDX-License-Identifier: GPL-2.0 */
/*
 * apm_cm: InfiniBand communication manager with Automatic Path Migration.
 *
 * The kernel's own ib_cm lost its LAP and APR senders in Linux 5.6.  This
 * module speaks the same protocol (IBTA volume 1, chapter 12) and offers an
 * interface in the spirit of ib_cm as it was while it had ib_send_cm_lap().
 *
 * Rules for consumers
 * - All functions may sleep.  None may be called from atomic context; a QP
 *   event handler queues work and calls from there.
 * - Handlers run one at a time for the whole module, in process context,
 *   with no lock of apm_cm held.  A handler may call every function of this
 *   file, apm_cm_destroy_id() included, but must not wait for another CM
 *   event: nothing more is delivered until it returns.
 * - A non-zero return value destroys the id, as it does with ib_cm.
 */
#ifndef APM_CM_H
#define APM_CM_H

#include <linux/types.h>
#include <rdma/ib_verbs.h>
#include <rdma/ib_sa.h>

enum apm_cm_state {
	APM_CM_IDLE,
	APM_CM_LISTEN,
	APM_CM_REQ_SENT,
	APM_CM_REQ_RCVD,
	APM_CM_MRA_REQ_SENT,
	APM_CM_MRA_REQ_RCVD,
	APM_CM_REP_SENT,
	APM_CM_REP_RCVD,
	APM_CM_MRA_REP_SENT,
	APM_CM_MRA_REP_RCVD,
	APM_CM_ESTABLISHED,
	APM_CM_DREQ_SENT,
	APM_CM_DREQ_RCVD,
	APM_CM_TIMEWAIT,
};

enum apm_cm_lap_state {
	APM_CM_LAP_UNINIT,
	APM_CM_LAP_IDLE,
	APM_CM_LAP_SENT,
	APM_CM_LAP_RCVD,
	APM_CM_MRA_LAP_SENT,
	APM_CM_MRA_LAP_RCVD,
};

enum apm_cm_event_type {
	APM_CM_REQ_RECEIVED,	/* id is new; handler, context as listener */
	APM_CM_REQ_ERROR,	/* REQ never answered; id is IDLE */
	APM_CM_REP_RECEIVED,
	APM_CM_REP_ERROR,	/* REP never answered; id is TIMEWAIT */
	APM_CM_RTU_RECEIVED,
	APM_CM_USER_ESTABLISHED, /* by apm_cm_notify(COMM_EST), LAP or DREQ */
	APM_CM_MRA_RECEIVED,
	APM_CM_REJ_RECEIVED,
	APM_CM_LAP_RECEIVED,	/* answer with apm_cm_send_apr() */
	APM_CM_LAP_ERROR,	/* own LAP ended unanswered; LAP state IDLE */
	APM_CM_APR_RECEIVED,	/* own LAP answered, see status */
	APM_CM_DREQ_RECEIVED,	/* answer with apm_cm_send_drep() */
	APM_CM_DREQ_ERROR,	/* DREQ never answered; id is TIMEWAIT */
	APM_CM_DREP_RECEIVED,
	APM_CM_TIMEWAIT_EXIT,	/* id is IDLE */
	APM_CM_DEVICE_REMOVED,	/* destroy the id */
};

/* IBTA volume 1, section 12.6.7.2 */
enum apm_cm_rej_reason {
	APM_CM_REJ_NO_QP = 1,
	APM_CM_REJ_NO_EEC = 2,
	APM_CM_REJ_NO_RESOURCES = 3,
	APM_CM_REJ_TIMEOUT = 4,
	APM_CM_REJ_UNSUPPORTED = 5,
	APM_CM_REJ_INVALID_COMM_ID = 6,
	APM_CM_REJ_INVALID_COMM_INSTANCE = 7,
	APM_CM_REJ_INVALID_SERVICE_ID = 8,
	APM_CM_REJ_INVALID_TRANSPORT_TYPE = 9,
	APM_CM_REJ_STALE_CONN = 10,
	APM_CM_REJ_RDC_NOT_EXIST = 11,
	APM_CM_REJ_INVALID_GID = 12,
	APM_CM_REJ_INVALID_LID = 13,
	APM_CM_REJ_INVALID_SL = 14,
	APM_CM_REJ_INVALID_TRAFFIC_CLASS = 15,
	APM_CM_REJ_INVALID_HOP_LIMIT = 16,
	APM_CM_REJ_INVALID_PACKET_RATE = 17,
	APM_CM_REJ_INVALID_ALT_GID = 18,
	APM_CM_REJ_INVALID_ALT_LID = 19,
	APM_CM_REJ_INVALID_ALT_SL = 20,
	APM_CM_REJ_INVALID_ALT_TRAFFIC_CLASS = 21,
	APM_CM_REJ_INVALID_ALT_HOP_LIMIT = 22,
	APM_CM_REJ_INVALID_ALT_PACKET_RATE = 23,
	APM_CM_REJ_PORT_CM_REDIRECT = 24,
	APM_CM_REJ_PORT_REDIRECT = 25,
	APM_CM_REJ_INVALID_MTU = 26,
	APM_CM_REJ_INSUFFICIENT_RESP_RESOURCES = 27,
	APM_CM_REJ_CONSUMER_DEFINED = 28,
	APM_CM_REJ_INVALID_RNR_RETRY = 29,
	APM_CM_REJ_DUPLICATE_LOCAL_COMM_ID = 30,
	APM_CM_REJ_INVALID_CLASS_VERSION = 31,
	APM_CM_REJ_INVALID_FLOW_LABEL = 32,
	APM_CM_REJ_INVALID_ALT_FLOW_LABEL = 33,
};

/* IBTA volume 1, section 12.8.2 */
enum apm_cm_apr_status {
	APM_CM_APR_SUCCESS = 0,
	APM_CM_APR_INVALID_COMM_ID = 1,
	APM_CM_APR_UNSUPPORTED = 2,
	APM_CM_APR_REJECT = 3,
	APM_CM_APR_REDIRECT = 4,
	APM_CM_APR_IS_CURRENT = 5,
	APM_CM_APR_INVALID_QPN = 6,
	APM_CM_APR_INVALID_LID = 7,
	APM_CM_APR_INVALID_GID = 8,
	APM_CM_APR_INVALID_FLOW_LABEL = 9,
	APM_CM_APR_INVALID_TRAFFIC_CLASS = 10,
	APM_CM_APR_INVALID_HOP_LIMIT = 11,
	APM_CM_APR_INVALID_PACKET_RATE = 12,
	APM_CM_APR_INVALID_SL = 13,
};

/* REP "failover accepted" */
enum apm_cm_failover {
	APM_CM_FAILOVER_ACCEPTED = 0,
	APM_CM_FAILOVER_NOT_SUPPORTED = 1,
	APM_CM_FAILOVER_REJECTED = 2,
};

/* Why a LAP ended without an APR */
enum apm_cm_lap_error {
	APM_CM_LAP_TIMEOUT,	/* all retries on all paths used up */
	APM_CM_LAP_CROSSED,	/* gave way to the active side's LAP */
	APM_CM_LAP_DISCONNECT,	/* the peer's DREQ or REJ ended the connection */
};

#define APM_CM_REQ_PRIVATE_DATA_SIZE	92
#define APM_CM_REP_PRIVATE_DATA_SIZE	196
#define APM_CM_RTU_PRIVATE_DATA_SIZE	224
#define APM_CM_MRA_PRIVATE_DATA_SIZE	222
#define APM_CM_REJ_PRIVATE_DATA_SIZE	148
#define APM_CM_DREQ_PRIVATE_DATA_SIZE	220
#define APM_CM_DREP_PRIVATE_DATA_SIZE	224
#define APM_CM_LAP_PRIVATE_DATA_SIZE	168
#define APM_CM_APR_PRIVATE_DATA_SIZE	148
#define APM_CM_INFO_SIZE		72	/* REJ ARI and APR info */

/* Service timeout of an MRA: do not send it before a duplicate comes */
#define APM_CM_MRA_DELAY	0x80

struct seq_file;
struct apm_cm_id;
struct apm_cm_event;

typedef int (*apm_cm_handler)(struct apm_cm_id *id,
			      const struct apm_cm_event *event);

struct apm_cm_id {
	apm_cm_handler handler;
	void *context;
	struct ib_device *device;
	__be64 service_id;
	__be32 local_id;
	__be32 remote_id;
};

struct apm_cm_req_param {
	const struct sa_path_rec *primary_path;
	const struct sa_path_rec *alternate_path;	/* or NULL */
	__be64 service_id;
	u32 qp_num;
	enum ib_qp_type qp_type;			/* RC or UC */
	u32 starting_psn;				/* rq_psn of this side */
	const void *private_data;
	u8 private_data_len;
	u8 responder_resources;
	u8 initiator_depth;
	u8 remote_cm_response_timeout;	/* 4.096 us * 2^n, as all times */
	u8 local_cm_response_timeout;
	u8 ack_timeout;			/* 0: packet life and CA delay */
	u8 retry_count;
	u8 rnr_retry_count;
	u8 max_cm_retries;
	bool flow_control;
	bool srq;
};

struct apm_cm_rep_param {
	u32 qp_num;
	u32 starting_psn;			/* rq_psn of this side */
	const void *private_data;
	u8 private_data_len;
	u8 responder_resources;
	u8 initiator_depth;
	enum apm_cm_failover failover_accepted;
	u8 rnr_retry_count;
	bool flow_control;
	bool srq;
};

struct apm_cm_lap_param {
	const struct sa_path_rec *alternate_path;
	u8 ack_timeout;			/* 0: packet life and CA delay */
	u8 remote_cm_response_timeout;	/* 0: as in the REQ */
	const void *private_data;
	u8 private_data_len;
};

struct apm_cm_req_event {
	struct apm_cm_id *listen_id;
	u32 port;
	/* As seen from here: sgid and slid are local */
	struct sa_path_rec primary_path;
	struct sa_path_rec alternate_path;
	bool has_alternate;
	__be64 remote_ca_guid;
	u32 remote_qpn;
	enum ib_qp_type qp_type;
	u32 starting_psn;
	u8 responder_resources;
	u8 initiator_depth;
	u8 local_cm_response_timeout;
	u8 remote_cm_response_timeout;
	u8 retry_count;
	u8 rnr_retry_count;
	bool flow_control;
	bool srq;
};

struct apm_cm_rep_event {
	__be64 remote_ca_guid;
	u32 remote_qpn;
	u32 starting_psn;
	u8 responder_resources;
	u8 initiator_depth;
	u8 target_ack_delay;
	enum apm_cm_failover failover_accepted;
	u8 rnr_retry_count;
	bool flow_control;
	bool srq;
};

struct apm_cm_event {
	enum apm_cm_event_type event;
	union {
		struct apm_cm_req_event req;
		struct apm_cm_rep_event rep;
		struct {
			u16 reason;
			const void *ari;
			u8 ari_length;
		} rej;
		struct {
			u8 service_timeout;
		} mra;
		struct {
			/* As seen from here */
			struct sa_path_rec alternate_path;
			u32 port;
		} lap;
		struct {
			enum apm_cm_lap_error why;
		} lap_error;
		struct {
			u8 status;
			const void *info;
			u8 info_length;
		} apr;
	} u;
	const void *private_data;
	u8 private_data_len;
};

/* What apm_cm_query() tells */
struct apm_cm_info {
	enum apm_cm_state state;
	enum apm_cm_lap_state lap_state;
	bool active;			/* this side sent the REQ */
	bool alternate_valid;
	u32 port;
	u32 alternate_port;
	u32 remote_qpn;
	struct sa_path_rec path;
	struct sa_path_rec alternate;
};

enum apm_cm_counter_group {
	APM_CM_TX,		/* messages sent, repetitions included */
	APM_CM_TX_RETRIES,
	APM_CM_RX,
	APM_CM_RX_DUPLICATES,
	APM_CM_COUNTER_GROUPS,
};

/* Indices are attribute id - first: REQ, MRA, REJ, REP, RTU, ... APR */
#define APM_CM_FIRST_ATTR	0x10
#define APM_CM_MSG_KINDS	11

struct apm_cm_counters {
	u64 n[APM_CM_COUNTER_GROUPS][APM_CM_MSG_KINDS];
	u64 rx_dropped;		/* malformed, unknown, or over a limit */
	u64 tx_failed;
	u32 connections;	/* ids, listeners, and what ends by itself */
};

struct apm_cm_id *apm_cm_create_id(struct ib_device *device,
				   apm_cm_handler handler, void *context);

/*
 * Waits for a handler of this id that runs, of a listener also for that of a
 * new connection (REQ_RECEIVED), unless called from it.  A live connection is
 * disconnected in the background (DREQ, TIMEWAIT).
 */
void apm_cm_destroy_id(struct apm_cm_id *id);

int apm_cm_listen(struct apm_cm_id *id, __be64 service_id);

int apm_cm_send_req(struct apm_cm_id *id, const struct apm_cm_req_param *p);
int apm_cm_send_rep(struct apm_cm_id *id, const struct apm_cm_rep_param *p);
int apm_cm_send_rtu(struct apm_cm_id *id, const void *private_data, u8 len);
int apm_cm_send_rej(struct apm_cm_id *id, enum apm_cm_rej_reason reason,
		    const void *ari, u8 ari_length,
		    const void *private_data, u8 len);
int apm_cm_send_mra(struct apm_cm_id *id, u8 service_timeout,
		    const void *private_data, u8 len);
int apm_cm_send_dreq(struct apm_cm_id *id, const void *private_data, u8 len);
int apm_cm_send_drep(struct apm_cm_id *id, const void *private_data, u8 len);

/*
 * Offers an alternate path.  Either end may; one LAP at a time (-EBUSY).  The
 * path in use until now as alternate stays until APR 0.  Ends with
 * APR_RECEIVED or LAP_ERROR, unless this side disconnects or destroys the id.
 */
int apm_cm_send_lap(struct apm_cm_id *id, const struct apm_cm_lap_param *p);

/*
 * Answers a LAP.  Load the QP (apm_cm_init_rearm_attr(), ib_modify_qp())
 * before APR 0: the peer arms as soon as it has the answer.
 */
int apm_cm_send_apr(struct apm_cm_id *id, enum apm_cm_apr_status status,
		    const void *info, u8 info_length,
		    const void *private_data, u8 len);

/*
 * IB_EVENT_COMM_EST: the first message came before the RTU.
 * IB_EVENT_PATH_MIG: the QP has migrated; from now on messages go by the path
 * that was the alternate.  -EINVAL without an alternate (path unchanged).
 */
int apm_cm_notify(struct apm_cm_id *id, enum ib_event_type event);

/*
 * attr->qp_state says which transition: INIT, RTR (with the alternate path if
 * there is one) or RTS (with REARM if there is one).  After the first LAP, RTS
 * gives what apm_cm_init_rearm_attr() gives.
 *
 * The starting PSN of a REQ or REP is the one the receiver of the message begins
 * to send with (IBTA 12.7.31): one's own rq_psn.  The called side's is known from
 * apm_cm_send_rep() on; who goes to RTR before puts in the one that the REP is
 * going to say.
 */
int apm_cm_init_qp_attr(struct apm_cm_id *id, struct ib_qp_attr *attr,
			int *attr_mask);

/*
 * ALT_PATH + PATH_MIG_STATE = REARM for RTS to RTS: the path of the LAP just
 * received, or else the alternate agreed on.  -ENOENT when there is none.
 */
int apm_cm_init_rearm_attr(struct apm_cm_id *id, struct ib_qp_attr *attr,
			   int *attr_mask);

void apm_cm_query(struct apm_cm_id *id, struct apm_cm_info *info);
void apm_cm_get_counters(struct apm_cm_counters *counters);
/* As one JSON object, without a newline */
void apm_cm_show_counters(struct seq_file *s);

/*
 * For tests: sees each message on its way out (after the state machine, before
 * the MAD layer) and in (the other way round), may change its 256 bytes, and
 * loses it by returning true, as a cable might.  Called in process context with
 * the module's lock held: it must call no function of this file.
 */
struct apm_cm_tap {
	bool (*message)(struct apm_cm_tap *tap, bool sent, u32 port,
			void *mad);
};

/* One at a time (-EBUSY). When apm_cm_clear_tap() returns, none is running. */
int apm_cm_set_tap(struct apm_cm_tap *tap);
void apm_cm_clear_tap(struct apm_cm_tap *tap);

const char *apm_cm_state_str(enum apm_cm_state state);
const char *apm_cm_lap_state_str(enum apm_cm_lap_state state);
const char *apm_cm_event_str(enum apm_cm_event_type event);
const char *apm_cm_rej_str(u16 reason);
const char *apm_cm_apr_str(u8 status);
const char *apm_cm_msg_str(unsigned int kind);

#endif /* APM_CM_H */
