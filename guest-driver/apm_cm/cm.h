/* SPDX-License-Identifier: GPL-2.0 */
/*
 * apm_cm internals: what the protocol part (cm_core.c), the message formats
 * (cm_msg.c) and the device part (cm_dev.c) share.
 */
#ifndef APM_CM_CM_H
#define APM_CM_CM_H

#include <linux/list.h>
#include <linux/workqueue.h>
#include <rdma/ib_mad.h>
#include <rdma/ib_sa.h>
#include <rdma/ibta_vol1_c12.h>

#include "apm_cm.h"

#define CM_CLASS_VERSION	2
#define CM_MAD_SIZE		256

/* Limits; nothing a peer sends makes the module keep more than this. */
#define CM_MAX_CONNECTIONS	1024	/* live, pending and in TIMEWAIT */
#define CM_MAX_RX_QUEUED	512	/* received MADs waiting for work */
#define CM_MAX_TX_QUEUED	256	/* per port */
#define CM_MAX_WAIT_MS		60000	/* any one wait, MRA included */

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

extern struct mutex cm_lock;

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
__be64 cm_dev_tid(struct cm_device *dev);
int cm_path_init(struct cm_device *dev, const struct sa_path_rec *rec,
		 u8 timeout, struct cm_path *path);
bool cm_port_active(struct cm_device *dev, u32 port);
int cm_dev_send(struct cm_device *dev, const struct cm_via *via,
		const struct cm_mad *mad, bool retry);
void cm_count(enum apm_cm_counter_group group, u16 attr);
void cm_count_dropped(void);
void cm_dev_counters(struct apm_cm_counters *counters);
bool cm_tap_lost(bool sent, u32 port, struct cm_mad *mad);

/* cm_core.c */
int cm_core_init(void);
void cm_core_exit(void);
void cm_core_receive(struct cm_port *port, struct ib_mad_recv_wc *wc);
void cm_core_device_gone(struct cm_device *dev);
void cm_core_flush(void);
bool cm_core_queue(struct work_struct *work);
u32 cm_core_connections(void);

#endif /* APM_CM_CM_H */
