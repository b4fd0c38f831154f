// SPDX-License-Identifier: GPL-2.0
/*
 * A peer for apm_traffic that uses the kernel's own connection manager, ib_cm,
 * and behaves as consumers of rdma_cm do: the alternate path of a REQ is loaded
 * and armed, a migration is told to the CM, and a LAP is an event it does not
 * know, so nobody answers it (ib_cm has no ib_send_cm_apr() since Linux 5.6).
 *
 * Loaded without "call" it listens and takes one connection at a time; with
 * "call" and "alternate", GIDs of the peer's ports, it connects from its own
 * first two ports, and loading ends when it is connected.  Unloading
 * disconnects.  It receives messages, counts them, and sends none.
 *
 *	insmod ib_cm_peer.ko service=0x1000
 *	grep . /sys/module/ib_cm_peer/parameters/messages
 */
#include <linux/completion.h>
#include <linux/inet.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/slab.h>
#include <rdma/ib_cache.h>
#include <rdma/ib_cm.h>
#include <rdma/ib_sa.h>
#include <rdma/ib_verbs.h>

#include "sa_compat.h"

#define DEPTH		64
#define MSG_MAX		8192
#define WAIT_MS		10000
#define RESP		18		/* CM response time: 1 s */
#define RQ_PSN		0x654321	/* what the peer begins to send with */

static char *device = "ehca0";
module_param(device, charp, 0444);
MODULE_PARM_DESC(device, "device (default ehca0)");

static unsigned long long service = 0x1000;
module_param(service, ullong, 0444);
MODULE_PARM_DESC(service, "service id (default 0x1000)");

static char *call = "";
module_param(call, charp, 0444);
MODULE_PARM_DESC(call, "GID of the peer's first port: connect to it");

static char *alternate = "";
module_param(alternate, charp, 0444);
MODULE_PARM_DESC(alternate, "GID of the peer's second port, for the alternate path");

/* Results */
static int established, messages, laps, path_migs, disconnects, errors;
module_param(established, int, 0444);
MODULE_PARM_DESC(established, "result: connections so far");
module_param(messages, int, 0444);
MODULE_PARM_DESC(messages, "result: messages received");
module_param(laps, int, 0444);
MODULE_PARM_DESC(laps, "result: LAPs that nobody answered");
module_param(path_migs, int, 0444);
MODULE_PARM_DESC(path_migs, "result: migrations");
module_param(disconnects, int, 0444);
MODULE_PARM_DESC(disconnects, "result: connections that the peer ended");
module_param(errors, int, 0444);
MODULE_PARM_DESC(errors, "result: bad completions, refused calls");

/* REQ and REP private data of apm_traffic; no memory is offered here. */
struct peer_private {
	__le32 magic;
	__le16 version;
	__le16 depth;
	__le32 size;
	u8 none[32];
} __packed;

#define PRIVATE_MAGIC	0x61706d74
#define PRIVATE_VERSION	1
#define PRIVATE_SIZE	4096

struct slot {
	struct ib_cqe cqe;
	void *buf;
	u64 dma;
};

static struct ib_device *dev;
static struct ib_pd *pd;
static struct ib_cq *cq;
static struct ib_qp *qp;
static struct ib_cm_id *listener;
static struct ib_cm_id *conn;		/* under lock */
static struct slot slots[DEPTH];
static DEFINE_MUTEX(lock);
static DECLARE_COMPLETION(connected);
static struct work_struct mig_work;

/* ------------------------------------------------------------------ */
/* Messages */

static int post(struct slot *slot)
{
	struct ib_sge sge = {
		.addr = slot->dma,
		.length = MSG_MAX,
		.lkey = pd->local_dma_lkey,
	};
	struct ib_recv_wr wr = {
		.wr_cqe = &slot->cqe,
		.sg_list = &sge,
		.num_sge = 1,
	};

	return ib_post_recv(qp, &wr, NULL);
}

static void on_receive(struct ib_cq *from, struct ib_wc *wc)
{
	struct slot *slot = container_of(wc->wr_cqe, struct slot, cqe);

	if (wc->status == IB_WC_WR_FLUSH_ERR)
		return;
	if (wc->status != IB_WC_SUCCESS) {
		pr_info("ib_cm_peer: receive: %s\n",
			ib_wc_status_msg(wc->status));
		errors++;
		return;
	}
	messages++;
	if (post(slot))
		errors++;
}

static void on_qp_event(struct ib_event *ev, void *context)
{
	pr_info("ib_cm_peer: %s\n", ib_event_msg(ev->event));
	if (ev->event == IB_EVENT_PATH_MIG)
		schedule_work(&mig_work);
}

static void on_mig_work(struct work_struct *work)
{
	mutex_lock(&lock);
	path_migs++;
	if (!conn || ib_cm_notify(conn, IB_EVENT_PATH_MIG))
		pr_info("ib_cm_peer: ib_cm did not take PATH_MIG\n");
	mutex_unlock(&lock);
}

/* ------------------------------------------------------------------ */
/* The queue pair; under lock */

static int make_qp(void)
{
	struct ib_qp_init_attr init = {
		.event_handler = on_qp_event,
		.send_cq = cq,
		.recv_cq = cq,
		.cap = {
			.max_send_wr = 1,
			.max_recv_wr = DEPTH + 1,	/* and the drain's */
			.max_send_sge = 1,
			.max_recv_sge = 1,
		},
		.sq_sig_type = IB_SIGNAL_ALL_WR,
		.qp_type = IB_QPT_RC,
	};

	qp = ib_create_qp(pd, &init);
	if (IS_ERR(qp)) {
		int ret = PTR_ERR(qp);

		qp = NULL;
		return ret;
	}
	return 0;
}

static void end_qp(void)
{
	if (qp) {
		ib_drain_rq(qp);
		ib_destroy_qp(qp);
	}
	qp = NULL;
}

static int move(struct ib_cm_id *id, enum ib_qp_state state)
{
	struct ib_qp_attr attr = { .qp_state = state };
	int mask, ret;

	ret = ib_cm_init_qp_attr(id, &attr, &mask);
	/* ib_cm knows it of the called side only when the REP is sent. */
	attr.rq_psn = RQ_PSN;
	return ret ? ret : ib_modify_qp(qp, &attr, mask);
}

static int ready(struct ib_cm_id *id)
{
	unsigned int i;
	int ret = move(id, IB_QPS_INIT);

	for (i = 0; !ret && i < DEPTH; i++)
		ret = post(&slots[i]);
	return ret ? ret : move(id, IB_QPS_RTR);
}

/* ------------------------------------------------------------------ */
/* Connection manager events */

static int on_req(struct ib_cm_id *id, const struct ib_cm_event *ev)
{
	const struct ib_cm_req_event_param *req = &ev->param.req_rcvd;
	struct ib_cm_rep_param rep = {
		/* Its own data back: the same parameters */
		.private_data = ev->private_data,
		.private_data_len = sizeof(struct peer_private),
		.starting_psn = RQ_PSN,
		.responder_resources = req->responder_resources,
		.initiator_depth = req->initiator_depth,
		.rnr_retry_count = req->rnr_retry_count,
	};
	int ret = -EBUSY;

	if (conn)
		goto refuse;
	ret = make_qp();
	if (ret)
		goto refuse;
	ret = ready(id);
	if (ret)
		goto refuse_qp;
	rep.qp_num = qp->qp_num;
	ret = ib_send_cm_rep(id, &rep);
	if (!ret)
		ret = move(id, IB_QPS_RTS);
	if (ret)
		goto refuse_qp;
	conn = id;
	return 0;

refuse_qp:
	end_qp();
refuse:
	pr_info("ib_cm_peer: refused a REQ (error %d)\n", ret);
	errors++;
	ib_send_cm_rej(id, IB_CM_REJ_NO_RESOURCES, NULL, 0, NULL, 0);
	return ret;
}

static int on_rep(struct ib_cm_id *id, const struct ib_cm_event *ev)
{
	int ret = ready(id);

	if (!ret)
		ret = move(id, IB_QPS_RTS);
	if (!ret)
		ret = ib_send_cm_rtu(id, NULL, 0);
	if (ret) {
		pr_info("ib_cm_peer: REP: error %d\n", ret);
		errors++;
		return 0;
	}
	established++;
	complete(&connected);
	return 0;
}

static int on_event_locked(struct ib_cm_id *id, const struct ib_cm_event *ev)
{
	switch (ev->event) {
	case IB_CM_REQ_RECEIVED:
		return on_req(id, ev);
	case IB_CM_REP_RECEIVED:
		return on_rep(id, ev);
	case IB_CM_RTU_RECEIVED:
	case IB_CM_USER_ESTABLISHED:
		established++;
		return 0;
	case IB_CM_LAP_RECEIVED:
		/* What rdma_cm does: */
		laps++;
		pr_info("ib_cm_peer: LAP, an event nobody handles\n");
		return 0;
	case IB_CM_DREQ_RECEIVED:
		disconnects++;
		ib_send_cm_drep(id, NULL, 0);
		return 0;
	case IB_CM_REJ_RECEIVED:
		pr_info("ib_cm_peer: REJ, reason %d\n",
			ev->param.rej_rcvd.reason);
		errors++;
		fallthrough;
	case IB_CM_REQ_ERROR:
	case IB_CM_REP_ERROR:
		complete(&connected);
		fallthrough;
	case IB_CM_TIMEWAIT_EXIT:
		if (id != conn)
			return 0;
		end_qp();
		/* The caller's is destroyed when the module goes. */
		if (!listener)
			return 0;
		conn = NULL;
		return 1;
	default:
		return 0;
	}
}

static int on_event(struct ib_cm_id *id, const struct ib_cm_event *ev)
{
	int ret;

	mutex_lock(&lock);
	ret = on_event_locked(id, ev);
	mutex_unlock(&lock);
	return ret;
}

/* ------------------------------------------------------------------ */
/* Calling */

struct ask {
	struct completion done;
	struct sa_path_rec rec;
	int status;
};

static void on_path(int status, struct sa_path_rec *rec, sa_num_records num,
		    void *context)
{
	struct ask *ask = context;

	ask->status = status;
	if (!status)
		ask->rec = *rec;
	complete(&ask->done);
}

static int find_path(struct ib_sa_client *client, u32 port, const char *gid,
		     struct sa_path_rec *rec)
{
	struct ask *ask = kzalloc(sizeof(*ask), GFP_KERNEL);
	struct ib_sa_query *query;
	u16 pkey;
	int ret;

	if (!ask)
		return -ENOMEM;
	init_completion(&ask->done);
	ask->rec.rec_type = SA_PATH_REC_TYPE_IB;
	ret = -EINVAL;
	if (!in6_pton(gid, -1, ask->rec.dgid.raw, -1, NULL))
		goto out;
	ret = rdma_query_gid(dev, port, 0, &ask->rec.sgid);
	if (!ret)
		ret = ib_get_cached_pkey(dev, port, 0, &pkey);
	if (ret)
		goto out;
	ask->rec.pkey = cpu_to_be16(pkey);
	ask->rec.numb_path = 1;
	ret = ib_sa_path_rec_get(client, dev, port, &ask->rec,
				 IB_SA_PATH_REC_SGID | IB_SA_PATH_REC_DGID |
				 IB_SA_PATH_REC_NUMB_PATH |
				 IB_SA_PATH_REC_PKEY, 2000, GFP_KERNEL,
				 on_path, ask, &query);
	if (ret < 0)
		goto out;
	/* The SA client always answers, within the time it was given. */
	wait_for_completion(&ask->done);
	ret = ask->status;
	*rec = ask->rec;
out:
	kfree(ask);
	return ret;
}

static int connect_to_peer(void)
{
	struct peer_private private = {
		.magic = cpu_to_le32(PRIVATE_MAGIC),
		.version = cpu_to_le16(PRIVATE_VERSION),
		.depth = cpu_to_le16(DEPTH),
		.size = cpu_to_le32(PRIVATE_SIZE),
	};
	struct sa_path_rec path, alt;
	struct ib_cm_req_param req = {
		.primary_path = &path,
		.alternate_path = *alternate ? &alt : NULL,
		.service_id = cpu_to_be64(service),
		.qp_type = IB_QPT_RC,
		.starting_psn = RQ_PSN,
		.private_data = &private,
		.private_data_len = sizeof(private),
		.responder_resources = 4,
		.initiator_depth = 4,
		.remote_cm_response_timeout = RESP,
		.local_cm_response_timeout = RESP,
		.retry_count = 7,
		.rnr_retry_count = 7,
		.max_cm_retries = 7,
	};
	struct ib_sa_client client;
	int ret;

	ib_sa_register_client(&client);
	ret = find_path(&client, 1, call, &path);
	if (!ret && *alternate)
		ret = find_path(&client, 2, alternate, &alt);
	ib_sa_unregister_client(&client);
	if (ret) {
		pr_err("ib_cm_peer: no path (error %d)\n", ret);
		return ret;
	}

	mutex_lock(&lock);
	ret = make_qp();
	if (ret)
		goto out;
	req.qp_num = qp->qp_num;
	conn = ib_create_cm_id(dev, on_event, NULL);
	if (IS_ERR(conn)) {
		ret = PTR_ERR(conn);
		conn = NULL;
		goto out;
	}
	ret = ib_send_cm_req(conn, &req);
out:
	mutex_unlock(&lock);
	if (ret) {
		pr_err("ib_cm_peer: cannot call (error %d)\n", ret);
		return ret;
	}
	wait_for_completion_timeout(&connected, msecs_to_jiffies(WAIT_MS));
	return established ? 0 : -ECONNREFUSED;
}

/* ------------------------------------------------------------------ */
/* Beginning and end */

static void end_all(void)
{
	struct ib_cm_id *id;
	unsigned int i;

	/* Ids first, without the lock: handlers take it. */
	if (listener)
		ib_destroy_cm_id(listener);
	mutex_lock(&lock);
	id = conn;
	conn = NULL;
	mutex_unlock(&lock);
	if (id)
		ib_destroy_cm_id(id);
	end_qp();
	cancel_work_sync(&mig_work);
	if (cq)
		ib_free_cq(cq);
	for (i = 0; i < DEPTH; i++) {
		if (!slots[i].buf)
			continue;
		ib_dma_unmap_single(dev, slots[i].dma, MSG_MAX,
				    DMA_FROM_DEVICE);
		kfree(slots[i].buf);
	}
	if (pd)
		ib_dealloc_pd(pd);
	ib_device_put(dev);
}

static int begin(void)
{
	unsigned int i;

	pd = ib_alloc_pd(dev, 0);
	if (IS_ERR(pd)) {
		int ret = PTR_ERR(pd);

		pd = NULL;
		return ret;
	}
	cq = ib_alloc_cq(dev, NULL, 2 * DEPTH + 2, 0, IB_POLL_WORKQUEUE);
	if (IS_ERR(cq)) {
		int ret = PTR_ERR(cq);

		cq = NULL;
		return ret;
	}
	for (i = 0; i < DEPTH; i++) {
		slots[i].cqe.done = on_receive;
		slots[i].buf = kzalloc(MSG_MAX, GFP_KERNEL);
		if (!slots[i].buf)
			return -ENOMEM;
		slots[i].dma = ib_dma_map_single(dev, slots[i].buf, MSG_MAX,
						 DMA_FROM_DEVICE);
	}
	if (*call)
		return connect_to_peer();
	listener = ib_create_cm_id(dev, on_event, NULL);
	if (IS_ERR(listener)) {
		int ret = PTR_ERR(listener);

		listener = NULL;
		return ret;
	}
	return ib_cm_listen(listener, cpu_to_be64(service));
}

static int __init peer_init(void)
{
	int ret;

	INIT_WORK(&mig_work, on_mig_work);
	dev = ib_device_get_by_name(device, RDMA_DRIVER_UNKNOWN);
	if (!dev) {
		pr_err("ib_cm_peer: no device %s\n", device);
		return -ENODEV;
	}
	ret = begin();
	if (ret) {
		pr_err("ib_cm_peer: not started (error %d)\n", ret);
		end_all();
	}
	return ret;
}

static void __exit peer_exit(void)
{
	end_all();
}

module_init(peer_init);
module_exit(peer_exit);
MODULE_DESCRIPTION("Peer of apm_traffic that uses the kernel's ib_cm");
MODULE_LICENSE("GPL");
