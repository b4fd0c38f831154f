/* SPDX-License-Identifier: GPL-2.0 */
/*
 * apm_traffic internals.
 *
 * Theory of operation
 * - Control is an actor: everything that decides (commands, CM events, QP and
 *   port events, SA notices, path answers, timers) is a message on one ordered
 *   work queue, so the state in struct at_session needs no lock.  Sources
 *   only note the time and queue.
 * - Data (data.c) runs in a sender thread and in the completion queue's work;
 *   its state is under at_conn.lock.  It tells control by the same queue.
 * - Events go to a ring from any context (event.c).
 * - A message for a connection carries its generation; what arrives for a
 *   connection that is gone is dropped.
 */
#ifndef APM_TRAFFIC_AT_H
#define APM_TRAFFIC_AT_H

#include <linux/completion.h>
#include <linux/kthread.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/spinlock.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <rdma/ib_sa.h>
#include <rdma/ib_verbs.h>

#include "apm_cm.h"
#include "sa_notice.h"

#define AT_VERSION		"1"

/* Limits */
#define AT_EVENTS		4096
#define AT_EVENT_TEXT		1024
#define AT_CMD_MAX		1024
#define AT_MSG_MIN		64
#define AT_MSG_MAX		65536
#define AT_DEPTH_MAX		256
#define AT_CTL_SLOTS		8
#define AT_BENCH_BYTES		BIT(20)
#define AT_BENCH_DEPTH		8
#define AT_BENCH_COUNT_MAX	1000000
#define AT_RATE_MAX		1000000
#define AT_SEEN_WINDOW		4096	/* for telling dup from reordered */
#define AT_ERROR_LINES		32
#define AT_MAX_DEVICES		16
#define AT_MAX_PORTS		8	/* shown and watched per device */
#define AT_MAX_QUEUED		4096	/* control messages */

#define AT_PATH_RETRY_MS	1000
#define AT_LAP_FIRST_MS		50U
#define AT_LAP_RETRY_MS		2000U
#define AT_ARM_POLL_MIN_MS	20
#define AT_ARM_POLL_MAX_MS	500
#define AT_STILL_REARM_MS	2000
#define AT_SA_TIMEOUT_MS	1000
#define AT_STALE_RETRIES	10
#define AT_FLUSH_MS		2000
#define AT_MRA_MS_MAX		30000
#define AT_LOSE_MAX		1000000

enum at_state {
	AT_IDLE,
	AT_LISTENING,
	AT_RESOLVING,
	AT_CONNECTING,
	AT_CONNECTED,
	AT_DISCONNECTING,
	AT_ERROR,
};

enum at_op {
	AT_OP_SEND,
	AT_OP_WRITE,
	AT_OP_READ,
};

enum at_dir {
	AT_DIR_BOTH,
	AT_DIR_OUT,
	AT_DIR_IN,
};

struct at_time {
	u64 real_ns;
	u64 ns;
};

/* ------------------------------------------------------------------ */
/* Data */

struct at_conn;

struct at_slot {
	struct ib_cqe cqe;
	struct at_conn *c;
	void *buf;
	u64 dma;
	bool busy;
	u64 seq;			/* data */
	u16 kind;			/* control: of the message in it */
	bool read;
};

/* REQ and REP private data, little endian */
struct at_private {
	__le32 magic;
	__le16 version;
	__le16 depth;
	__le32 size;
	__le32 rkey;
	__le64 addr;			/* bench buffer, then write ring */
	__le32 len;
	__le32 ring_slots;
	__le64 ring_addr;
} __packed;

struct at_params {
	char dev[IB_DEVICE_NAME_MAX];
	u64 service;
	struct {
		bool given;
		u32 port;
		union ib_gid dgid;
	} rail[2];
	u32 timeout, retry, rnr;
	u32 size, depth;
	u32 cmtimeout, cmretries;
};

struct at_traffic_params {
	u32 rate;			/* 0: max */
	enum at_dir dir;
	enum at_op op;
	u64 count;			/* 0: no end */
};

struct at_counts {
	u64 tx, acked, rx, tx_seq, rx_seq, peer_rx;
	u64 lost, dup, reordered, corrupt, short_msgs, reads;
	u64 last_tx_ns, last_ack_ns, last_rx_ns;
};

/* Where the end of a run stands, see data.c */
struct at_stop {
	bool wanted;
	bool by_peer;
	bool stop_sent, stopped_sent, peer_stopped;
	bool final_sent, final_acked, peer_final;
	u64 peer_tx;
	u64 peer_rx;
	u64 peer_bad;
};

struct at_conn {
	u32 gen;
	struct ib_device *dev;
	struct ib_pd *pd;
	struct ib_cq *cq;
	struct ib_qp *qp;
	u32 size, depth, rq_depth;
	u32 rq_psn;			/* the peer begins to send with */
	struct at_slot *tx, *rx, ctl[AT_CTL_SLOTS];
	bool rx_posted;

	spinlock_t lock;		/* the fields down to seen */
	struct at_counts n;
	u32 rate;
	enum at_op op;
	bool tx_on;
	u64 tx_until;			/* stop after this seq, 0 never */
	bool counting;			/* we end the run by count */
	u64 rx_until;
	u64 due_ns;
	u64 credit_sent;		/* rx_seq told last, for writes */
	u32 tx_next;			/* slot */
	u32 tx_out;			/* slots busy */
	u32 error_lines;
	bool dead;			/* no more posting */
	bool error_told;
	struct at_stop stop;
	bool start_pending;		/* peer's START came during a stop */
	struct at_traffic_params peer_ask;
	u32 inflight;			/* posted sends of all kinds */
	u32 rx_inflight;
	bool mig_rx, mig_tx;		/* first one after PATH_MIG wanted */
	DECLARE_BITMAP(seen, AT_SEEN_WINDOW);

	struct task_struct *task;
	wait_queue_head_t wait;

	/* RDMA: ours for the peer, the peer's for us */
	void *bench_mem;		/* target, pattern in it */
	u64 bench_dma;
	void *ring_mem;			/* peer's writes land here */
	u64 ring_dma;
	u32 ring_slots;
	bool have_peer;
	u64 peer_addr, peer_ring;
	u32 peer_rkey, peer_len, peer_ring_slots, peer_size;

	struct {
		struct work_struct work;
		bool running;
		u32 size, count;
		void *src;
		u64 dma;
		struct ib_cqe cqe;
		u32 posted, done;
		int error;
		wait_queue_head_t wait;
	} bench;
};

struct at_conn *at_conn_create(struct ib_device *dev, u32 gen, u32 size,
			       u32 depth);
int at_conn_start(struct at_conn *c);	/* receives, sender thread */
void at_conn_destroy(struct at_conn *c);
void at_conn_private(struct at_conn *c, struct at_private *p);
int at_conn_set_peer(struct at_conn *c, const void *data, u8 len);
int at_traffic_start(struct at_conn *c, const struct at_traffic_params *p,
		     const char *by);
int at_traffic_stop(struct at_conn *c, const char *by);
void at_conn_migrated(struct at_conn *c);
int at_bench_start(struct at_conn *c, u32 size, u32 count);
void at_conn_counts(struct at_conn *c, struct at_counts *n, bool *on,
		    u32 *rate);

/* ------------------------------------------------------------------ */
/* Events */

int at_event_init(void);
void at_event_exit(void);
void at_now(struct at_time *t);
__printf(2, 3) void at_event(const char *name, const char *fmt, ...);
__printf(3, 4) void at_event_at(const struct at_time *t, const char *name,
				const char *fmt, ...);
/* Escapes for use inside a JSON string; returns dst. */
const char *at_json(char *dst, size_t size, const char *src);

extern const struct file_operations at_fops;

/* ------------------------------------------------------------------ */
/* Control */

struct at_rail {			/* a path as this side sees it */
	bool valid;
	u32 port;
	struct sa_path_rec rec;
};

struct at_auto {
	bool lap, rearm, migrate, notify, apr_reject;
	u32 mra_ms;			/* 0: none */
};

struct at_session {
	enum at_state state;
	bool active;			/* role */
	bool closing;			/* module or device goes */
	struct at_params p;
	struct ib_device *dev;
	struct apm_cm_id *listen_id;
	struct apm_cm_id *id;
	u32 gen;
	struct at_conn *c;

	struct at_rail rail[2];		/* primary, alternate of connect */
	u32 path_try[2];
	u32 stale_try;
	struct at_rail cur, alt, old;	/* of the connection */
	unsigned int migrations;
	bool accepted;			/* passive: REP sent */

	/* LAP of ours */
	bool lap_wanted;		/* by policy, until APR 0 */
	bool lap_query;			/* SA asked */
	bool lap_out;			/* CM has it */
	u32 lap_try;
	u32 lap_port;
	union ib_gid lap_dgid;
	struct at_rail lap;

	/* Watching for ARMED */
	bool arm_watch;
	bool still_told;
	u64 arm_from_ns;
	unsigned int arm_poll_ms;
	struct delayed_work arm_work;
	struct delayed_work lap_work;
	struct delayed_work path_work;

	/* A LAP answered with MRA, waiting for its APR */
	bool lap_asked;
	u32 asked_port;
	struct sa_path_rec asked;
	struct delayed_work apr_work;
};

enum at_msg_type {
	AT_MSG_CMD,
	AT_MSG_CM,
	AT_MSG_QP_EVENT,
	AT_MSG_PORT_EVENT,
	AT_MSG_SA,
	AT_MSG_PATH,
	AT_MSG_DATA_ERROR,
	AT_MSG_DEVICE_GONE,
	AT_MSG_CLOSE,
};

struct at_cmd;

struct at_msg {
	struct work_struct work;
	enum at_msg_type type;
	struct at_time t;
	u32 gen;
	union {
		struct {
			struct at_cmd *cmd;
		} cmd;
		struct {
			struct apm_cm_id *id;
			struct apm_cm_event ev;
			u8 data[APM_CM_RTU_PRIVATE_DATA_SIZE];
		} cm;
		struct {
			enum ib_event_type event;
		} qp;
		struct {
			struct ib_device *dev;
			enum ib_event_type event;
			u32 port;
		} port;
		struct sa_notice_event sa;
		struct {
			unsigned int rail;	/* 0, 1; 2 is LAP */
			int status;
			struct sa_path_rec rec;
		} path;
		struct {
			struct ib_device *dev;
		} gone;
	} u;
	struct completion *done;
};

enum at_verb {
	AT_CMD_LISTEN,
	AT_CMD_CONNECT,
	AT_CMD_TRAFFIC_START,
	AT_CMD_TRAFFIC_STOP,
	AT_CMD_LAP,
	AT_CMD_AUTO,
	AT_CMD_MIGRATE,
	AT_CMD_REARM,
	AT_CMD_BENCH_WRITE,
	AT_CMD_LOSE,
	AT_CMD_MARK,
	AT_CMD_DISCONNECT,
	AT_CMD_RESET,
};

struct at_cmd {
	enum at_verb verb;
	struct at_params p;
	struct at_traffic_params traffic;
	struct {
		bool port_given, dgid_given;
		u32 port;
		union ib_gid dgid;
	} lap;
	struct {
		/* -1 as it is, 0 off, 1 on */
		s8 lap, rearm, migrate, notify, apr;
		bool mra_given;
		u32 mra;
	} au;
	struct {
		s8 kind;		/* APM_CM_MSG_KINDS */
		u32 count;
	} lose;
	struct {
		u32 size, count;
	} bench;
	char mark[256];

	/* Filled when something is wrong */
	char bad_word[32];
	char bad_value[96];
	char expected[160];
	int ret;
};

/* cmd.c: text to struct; 0 or -EINVAL with bad_word ... filled */
int at_cmd_parse(char *text, struct at_cmd *cmd);

/* conn.c */
int at_control_init(void);
void at_control_exit(void);
int at_control_command(struct at_cmd *cmd);
void at_control_post(struct at_msg *m);
struct at_msg *at_msg_new(enum at_msg_type type, u32 gen, gfp_t gfp);
void at_control_status(struct seq_file *s);
void at_control_device_gone(struct ib_device *dev);
extern struct at_auto at_auto;

/* main.c */
struct ib_device *at_device_get(const char *name);
void at_device_ports(struct seq_file *s, struct ib_device *dev);

const char *at_mig_str(enum ib_mig_state state);
const char *at_state_str(enum at_state state);

#endif /* APM_TRAFFIC_AT_H */
