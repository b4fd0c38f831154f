// SPDX-License-Identifier: GPL-2.0
/*
 * sa_notice: subscribes at subnet administration for "GID in service" (trap
 * 64) and "GID out of service" (65) on each port, and tells consumers of the
 * Reports that come.  IBTA volume 1, sections 13.4.8 (Notice), 13.4.8.3
 * (InformInfo) and 15.2.5.12.
 *
 * Theory of operation
 * - Each InfiniBand port has a MAD agent that owns method Report of class
 *   SubnAdm.  The kernel's ib_sa registers no methods, so both live together.
 * - A subscription per port and trap: Set(InformInfo) to the port's SM LID,
 *   while the port is Active.  No answer or a bad one: again after 0.5 s, then
 *   doubled up to 16 s.  The MAD layer's own repetition is not used, so one
 *   attempt is at most one packet out at a time.
 * - A subscription lives in the SM's memory only.  CLIENT_REREGISTER,
 *   SM_CHANGE, LID_CHANGE and PORT_ACTIVE renew it at once; besides, each is
 *   refreshed every minute for subnet managers that restart silently.
 * - Every Report from the port's SM LID is answered with ReportResp, even those
 *   of other traps, or the SA would repeat them.  Others are refused.
 * - Consumers are called from one ordered work queue.
 */
#include <linux/completion.h>
#include <linux/debugfs.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/workqueue.h>
#include <rdma/ib_cache.h>
#include <rdma/ib_mad.h>
#include <rdma/ib_sa.h>

#include "sa_notice.h"

#define SN_CLASS_VERSION	2
#define SN_ATTR_NOTICE		0x0002
#define SN_ATTR_INFORM_INFO	0x0003

#define SN_TRAPS		2
#define SN_TRAP_GID_IN		64
#define SN_TRAP_GID_OUT		65

#define SN_ANSWER_MS		1000	/* wait for one GetResp */
#define SN_BACKOFF_MIN_MS	500
#define SN_BACKOFF_MAX_MS	16000
#define SN_REFRESH_MS		60000
#define SN_UNSUBSCRIBE_MS	300	/* at unload, per port at most */
#define SN_MAX_EVENTS_QUEUED	1024
#define SN_MAX_TX_QUEUED	64	/* answers per port */
#define SN_RESPONSE_TIME	18	/* 4.096 us * 2^18, 1.07 s */

/* On the wire, in the 200 bytes of SA data */
struct sn_inform_info {
	u8 gid[16];
	__be16 lid_begin;
	__be16 lid_end;
	__be16 reserved;
	u8 is_generic;
	u8 subscribe;
	__be16 type;
	__be16 trap;
	__be32 qpn_resp;		/* QPN 24, reserved 3, time 5 */
	__be32 producer;		/* reserved 8, producer 24 */
} __packed;

struct sn_notice {
	u8 generic_type;		/* generic 1, type 7 */
	u8 producer[3];
	__be16 trap;
	__be16 issuer_lid;
	__be16 toggle_count;
	u8 details[54];			/* 64, 65: GID at byte 6 */
	u8 issuer_gid[16];
} __packed;

#define SN_DETAIL_GID		6

struct sn_sub {
	bool inflight;
	bool stale;			/* renewed while in flight */
	bool subscribed;
	u64 last_report_tid;
	bool have_report;
};

struct sn_port {
	struct sn_device *dev;
	struct ib_mad_agent *agent;
	u32 num;
	atomic_t tx_queued;
	struct mutex lock;		/* the fields below */
	struct sn_sub sub[SN_TRAPS];
	unsigned int backoff_ms;
	bool stopping;
	struct completion unsubscribed;
	struct delayed_work work;
};

struct sn_device {
	struct list_head list;
	struct ib_device *ib;
	struct ib_event_handler events;
	u32 nports;
	struct sn_port ports[];
};

struct sn_event_work {
	struct work_struct work;
	struct sa_notice_event event;
};

static DEFINE_MUTEX(sn_consumers_lock);
static LIST_HEAD(sn_consumers);		/* under sn_consumers_lock */
static DEFINE_MUTEX(sn_devices_lock);
static LIST_HEAD(sn_devices);		/* under sn_devices_lock */
static struct workqueue_struct *sn_wq;
static atomic_t sn_events_queued;
static atomic_t sn_tid;

/* Counters, shown in debugfs */
static atomic64_t sn_sets, sn_sets_good, sn_sets_bad, sn_sets_unanswered;
static atomic64_t sn_reports, sn_reports_repeated, sn_reports_refused;
static atomic64_t sn_events_dropped;
static struct dentry *sn_debugfs;

static const u16 sn_trap_number[SN_TRAPS] = {
	SN_TRAP_GID_IN, SN_TRAP_GID_OUT
};

/* ------------------------------------------------------------------ */
/* Consumers */

static void sn_tell(const struct sa_notice_event *event)
{
	struct sa_notice_consumer *c;

	lockdep_assert_held(&sn_consumers_lock);
	list_for_each_entry(c, &sn_consumers, list)
		c->notify(c, event);
}

static void sn_event_work(struct work_struct *work)
{
	struct sn_event_work *ew =
		container_of(work, struct sn_event_work, work);

	mutex_lock(&sn_consumers_lock);
	sn_tell(&ew->event);
	mutex_unlock(&sn_consumers_lock);
	kfree(ew);
	atomic_dec(&sn_events_queued);
}

static void sn_queue_event(const struct sa_notice_event *event)
{
	struct sn_event_work *ew = NULL;

	if (atomic_inc_return(&sn_events_queued) <= SN_MAX_EVENTS_QUEUED)
		ew = kmalloc(sizeof(*ew), GFP_KERNEL);
	if (!ew) {
		atomic_dec(&sn_events_queued);
		atomic64_inc(&sn_events_dropped);
		return;
	}
	INIT_WORK(&ew->work, sn_event_work);
	ew->event = *event;
	queue_work(sn_wq, &ew->work);
}

static void sn_queue_state(struct sn_port *port, unsigned int i, bool on)
{
	struct sa_notice_event event = {
		.type = on ? SA_NOTICE_SUBSCRIBED : SA_NOTICE_UNSUBSCRIBED,
		.device = port->dev->ib,
		.port = port->num,
		.trap = sn_trap_number[i],
	};

	sn_queue_event(&event);
}

void sa_notice_register(struct sa_notice_consumer *consumer)
{
	struct sn_device *dev;
	unsigned int i;
	u32 p;

	/* Late consumers hear of what is subscribed already. */
	mutex_lock(&sn_devices_lock);
	mutex_lock(&sn_consumers_lock);
	list_for_each_entry(dev, &sn_devices, list) {
		for (p = 0; p < dev->nports; p++) {
			for (i = 0; i < SN_TRAPS; i++) {
				struct sa_notice_event event = {
					.type = SA_NOTICE_SUBSCRIBED,
					.device = dev->ib,
					.port = p + 1,
					.trap = sn_trap_number[i],
				};

				if (READ_ONCE(dev->ports[p].sub[i].subscribed))
					consumer->notify(consumer, &event);
			}
		}
	}
	list_add_tail(&consumer->list, &sn_consumers);
	mutex_unlock(&sn_consumers_lock);
	mutex_unlock(&sn_devices_lock);
}
EXPORT_SYMBOL_GPL(sa_notice_register);

void sa_notice_unregister(struct sa_notice_consumer *consumer)
{
	/* Callbacks run under this lock. */
	mutex_lock(&sn_consumers_lock);
	list_del(&consumer->list);
	mutex_unlock(&sn_consumers_lock);
}
EXPORT_SYMBOL_GPL(sa_notice_unregister);

/* ------------------------------------------------------------------ */
/* Subscribing */

static void sn_fill_inform(struct ib_sa_mad *mad, struct sn_port *port,
			   unsigned int i, bool subscribe)
{
	struct sn_inform_info *info = (struct sn_inform_info *)mad->data;

	BUILD_BUG_ON(sizeof(*info) != 36);
	memset(mad, 0, sizeof(*mad));
	mad->mad_hdr.base_version = IB_MGMT_BASE_VERSION;
	mad->mad_hdr.mgmt_class = IB_MGMT_CLASS_SUBN_ADM;
	mad->mad_hdr.class_version = SN_CLASS_VERSION;
	mad->mad_hdr.method = IB_MGMT_METHOD_SET;
	mad->mad_hdr.attr_id = cpu_to_be16(SN_ATTR_INFORM_INFO);
	mad->mad_hdr.tid = cpu_to_be64((u64)port->agent->hi_tid << 32 |
				       (u32)atomic_inc_return(&sn_tid));
	/* All issuers, all producers, all types, this trap */
	info->lid_begin = cpu_to_be16(0xffff);
	info->is_generic = 1;
	info->subscribe = subscribe;
	info->type = cpu_to_be16(0xffff);
	info->trap = cpu_to_be16(sn_trap_number[i]);
	info->qpn_resp = cpu_to_be32(1 << 8 | SN_RESPONSE_TIME);
	info->producer = cpu_to_be32(0xffffff);
}

/* Under port->lock. The send handler learns the trap by context[0]. */
static int sn_send_inform(struct sn_port *port, unsigned int i, bool subscribe,
			  const struct ib_port_attr *attr)
{
	struct rdma_ah_attr ah_attr = {};
	struct ib_mad_send_buf *buf;
	struct ib_ah *ah;
	u16 pkey_index;
	int ret;

	ret = ib_find_cached_pkey(port->dev->ib, port->num,
				  IB_DEFAULT_PKEY_FULL, &pkey_index);
	if (ret)
		return ret;
	ah_attr.type = rdma_ah_find_type(port->dev->ib, port->num);
	rdma_ah_set_port_num(&ah_attr, port->num);
	rdma_ah_set_dlid(&ah_attr, attr->sm_lid);
	rdma_ah_set_sl(&ah_attr, attr->sm_sl);
	ah = rdma_create_ah(port->agent->qp->pd, &ah_attr, 0);
	if (IS_ERR(ah))
		return PTR_ERR(ah);
	buf = ib_create_send_mad(port->agent, 1, pkey_index, 0,
				 IB_MGMT_SA_HDR, IB_MGMT_SA_DATA, GFP_KERNEL,
				 IB_MGMT_BASE_VERSION);
	if (IS_ERR(buf)) {
		ret = PTR_ERR(buf);
		goto out_ah;
	}
	buf->ah = ah;
	buf->timeout_ms = subscribe ? SN_ANSWER_MS : SN_UNSUBSCRIBE_MS;
	buf->retries = 0;
	buf->context[0] = (void *)(uintptr_t)(i + 1);
	sn_fill_inform(buf->mad, port, i, subscribe);
	ret = ib_post_send_mad(buf, NULL);
	if (ret)
		goto out_buf;
	atomic64_inc(&sn_sets);
	return 0;

out_buf:
	ib_free_send_mad(buf);
out_ah:
	rdma_destroy_ah(ah, 0);
	return ret;
}

static void sn_work(struct work_struct *work)
{
	struct sn_port *port = container_of(to_delayed_work(work),
					    struct sn_port, work);
	struct ib_port_attr attr;
	unsigned int i;

	mutex_lock(&port->lock);
	if (port->stopping)
		goto out;
	/* Not Active or no SM known: PORT_ACTIVE or SM_CHANGE starts us. */
	if (ib_query_port(port->dev->ib, port->num, &attr) ||
	    attr.state != IB_PORT_ACTIVE || !attr.sm_lid)
		goto out;
	for (i = 0; i < SN_TRAPS; i++) {
		if (port->sub[i].inflight)
			continue;
		if (!sn_send_inform(port, i, true, &attr))
			port->sub[i].inflight = true;
	}
	/* The answers change this: later when good, sooner when bad. */
	queue_delayed_work(sn_wq, &port->work,
			   msecs_to_jiffies(SN_ANSWER_MS + port->backoff_ms));
out:
	mutex_unlock(&port->lock);
}

/* One attempt is over. Under no lock. */
static void sn_attempt_done(struct sn_port *port, unsigned int i, bool good)
{
	bool was, all = true;
	unsigned int k;

	mutex_lock(&port->lock);
	was = port->sub[i].subscribed;
	port->sub[i].inflight = false;
	/* The answer may be that of a subnet manager that is no more. */
	if (port->sub[i].stale) {
		port->sub[i].stale = false;
		port->backoff_ms = SN_BACKOFF_MIN_MS;
		good = false;
	}
	port->sub[i].subscribed = good;
	for (k = 0; k < SN_TRAPS; k++)
		all = all && port->sub[k].subscribed;
	if (port->stopping) {
		complete(&port->unsubscribed);
		goto out;
	}
	if (all) {
		port->backoff_ms = SN_BACKOFF_MIN_MS;
		mod_delayed_work(sn_wq, &port->work,
				 msecs_to_jiffies(SN_REFRESH_MS));
	} else if (!good) {
		mod_delayed_work(sn_wq, &port->work,
				 msecs_to_jiffies(port->backoff_ms));
		port->backoff_ms = min_t(unsigned int, port->backoff_ms * 2,
					 SN_BACKOFF_MAX_MS);
	}
	if (was != good)
		sn_queue_state(port, i, good);
out:
	mutex_unlock(&port->lock);
}

static void sn_send_done(struct ib_mad_agent *agent,
			 struct ib_mad_send_wc *wc)
{
	struct sn_port *port = agent->context;
	struct ib_mad_send_buf *buf = wc->send_buf;
	uintptr_t which = (uintptr_t)buf->context[0];

	if (!which) {
		/* An answer of ours went out. */
		atomic_dec(&port->tx_queued);
	} else if (wc->status != IB_WC_SUCCESS) {
		atomic64_inc(&sn_sets_unanswered);
		sn_attempt_done(port, which - 1, false);
	}
	/* Success: the answer itself has reported, see sn_receive(). */
	rdma_destroy_ah(buf->ah, 0);
	ib_free_send_mad(buf);
}

static void sn_renew(struct sn_port *port)
{
	unsigned int i;

	mutex_lock(&port->lock);
	if (!port->agent || port->stopping)
		goto out;
	for (i = 0; i < SN_TRAPS; i++) {
		if (port->sub[i].subscribed)
			sn_queue_state(port, i, false);
		port->sub[i].subscribed = false;
		port->sub[i].stale = port->sub[i].inflight;
		port->sub[i].have_report = false;
	}
	port->backoff_ms = SN_BACKOFF_MIN_MS;
	mod_delayed_work(sn_wq, &port->work, 0);
out:
	mutex_unlock(&port->lock);
}

/* Process context since Linux 5.6 */
static void sn_ib_event(struct ib_event_handler *handler,
			struct ib_event *event)
{
	struct sn_device *dev = container_of(handler, struct sn_device,
					     events);
	u32 port = event->element.port_num;

	switch (event->event) {
	case IB_EVENT_CLIENT_REREGISTER:
	case IB_EVENT_SM_CHANGE:
	case IB_EVENT_LID_CHANGE:
	case IB_EVENT_PORT_ACTIVE:
		if (port >= 1 && port <= dev->nports)
			sn_renew(&dev->ports[port - 1]);
		break;
	default:
		break;
	}
}

/* ------------------------------------------------------------------ */
/* Reports */

static void sn_answer_report(struct sn_port *port, struct ib_mad_recv_wc *wc)
{
	struct ib_mad_send_buf *buf;
	struct ib_sa_mad *mad;
	struct ib_ah *ah;

	if (atomic_inc_return(&port->tx_queued) > SN_MAX_TX_QUEUED)
		goto out;
	ah = ib_create_ah_from_wc(port->agent->qp->pd, wc->wc,
				  wc->recv_buf.grh, port->num);
	if (IS_ERR(ah))
		goto out;
	buf = ib_create_send_mad(port->agent, wc->wc->src_qp,
				 wc->wc->pkey_index, 0, IB_MGMT_SA_HDR,
				 IB_MGMT_SA_DATA, GFP_KERNEL,
				 IB_MGMT_BASE_VERSION);
	if (IS_ERR(buf)) {
		rdma_destroy_ah(ah, 0);
		goto out;
	}
	mad = buf->mad;
	memcpy(mad, wc->recv_buf.mad, sizeof(*mad));
	mad->mad_hdr.method = IB_MGMT_METHOD_REPORT_RESP;
	mad->mad_hdr.status = 0;
	buf->ah = ah;
	buf->timeout_ms = 0;
	buf->context[0] = NULL;
	if (ib_post_send_mad(buf, NULL)) {
		ib_free_send_mad(buf);
		rdma_destroy_ah(ah, 0);
		goto out;
	}
	return;
out:
	/* The SA repeats the Report. */
	atomic_dec(&port->tx_queued);
}

static void sn_report(struct sn_port *port, struct ib_mad_recv_wc *wc)
{
	const struct ib_sa_mad *mad = (const void *)wc->recv_buf.mad;
	const struct sn_notice *notice = (const void *)mad->data;
	struct sa_notice_event event = {
		.device = port->dev->ib,
		.port = port->num,
	};
	struct ib_port_attr attr;
	struct sn_sub *sub;
	unsigned int i;
	u64 tid = be64_to_cpu(mad->mad_hdr.tid);

	BUILD_BUG_ON(sizeof(*notice) != 80);
	atomic64_inc(&sn_reports);
	if (be16_to_cpu(mad->mad_hdr.attr_id) != SN_ATTR_NOTICE ||
	    ib_query_port(port->dev->ib, port->num, &attr) ||
	    wc->wc->slid != attr.sm_lid) {
		atomic64_inc(&sn_reports_refused);
		return;
	}
	sn_answer_report(port, wc);

	event.trap = be16_to_cpu(notice->trap);
	for (i = 0; i < SN_TRAPS; i++)
		if (event.trap == sn_trap_number[i])
			break;
	if (!(notice->generic_type & 0x80) || i == SN_TRAPS)
		return;

	/* Our answer was lost: answer again, tell once. */
	mutex_lock(&port->lock);
	sub = &port->sub[i];
	if (sub->have_report && sub->last_report_tid == tid) {
		atomic64_inc(&sn_reports_repeated);
		mutex_unlock(&port->lock);
		return;
	}
	sub->have_report = true;
	sub->last_report_tid = tid;
	mutex_unlock(&port->lock);

	event.type = event.trap == SN_TRAP_GID_IN ? SA_NOTICE_GID_IN :
						    SA_NOTICE_GID_OUT;
	memcpy(event.gid.raw, notice->details + SN_DETAIL_GID,
	       sizeof(event.gid.raw));
	sn_queue_event(&event);
}

static void sn_receive(struct ib_mad_agent *agent,
		       struct ib_mad_send_buf *send_buf,
		       struct ib_mad_recv_wc *wc)
{
	const struct ib_mad_hdr *hdr = &wc->recv_buf.mad->mad_hdr;
	struct sn_port *port = agent->context;

	if (send_buf) {
		uintptr_t which = (uintptr_t)send_buf->context[0];
		u16 status = be16_to_cpu(hdr->status);
		bool good = !status && hdr->method == IB_MGMT_METHOD_GET_RESP;

		atomic64_inc(good ? &sn_sets_good : &sn_sets_bad);
		if (!good)
			pr_notice_ratelimited("sa_notice: %s port %u: SA refused the subscription for trap %u (MAD status %#x); trying again\n",
					      dev_name(&port->dev->ib->dev),
					      port->num, which ?
					      sn_trap_number[which - 1] : 0,
					      status);
		if (which)
			sn_attempt_done(port, which - 1, good);
	} else if (hdr->method == IB_MGMT_METHOD_REPORT) {
		sn_report(port, wc);
	}
	ib_free_recv_mad(wc);
}

/* ------------------------------------------------------------------ */
/* Devices */

static struct ib_client sn_client;

static int sn_add(struct ib_device *ib)
{
	struct ib_mad_reg_req req = {
		.mgmt_class = IB_MGMT_CLASS_SUBN_ADM,
		.mgmt_class_version = SN_CLASS_VERSION,
	};
	struct sn_device *dev;
	unsigned int good = 0;
	u32 i;

	dev = kzalloc(struct_size(dev, ports, ib->phys_port_cnt), GFP_KERNEL);
	if (!dev)
		return -ENOMEM;
	dev->ib = ib;
	dev->nports = ib->phys_port_cnt;
	set_bit(IB_MGMT_METHOD_REPORT, req.method_mask);

	for (i = 0; i < dev->nports; i++) {
		struct sn_port *port = &dev->ports[i];
		struct ib_mad_agent *agent;

		port->dev = dev;
		port->num = i + 1;
		port->backoff_ms = SN_BACKOFF_MIN_MS;
		mutex_init(&port->lock);
		init_completion(&port->unsubscribed);
		INIT_DELAYED_WORK(&port->work, sn_work);
		if (!rdma_cap_ib_sa(ib, port->num))
			continue;
		agent = ib_register_mad_agent(ib, port->num, IB_QPT_GSI, &req,
					      0, sn_send_done, sn_receive,
					      port, 0);
		if (IS_ERR(agent)) {
			pr_err("sa_notice: %s port %u: no MAD agent for SA Reports (error %ld); is another notice client loaded?\n",
			       dev_name(&ib->dev), port->num, PTR_ERR(agent));
			continue;
		}
		port->agent = agent;
		good++;
	}
	if (!good) {
		kfree(dev);
		return -EOPNOTSUPP;
	}

	ib_set_client_data(ib, &sn_client, dev);
	mutex_lock(&sn_devices_lock);
	list_add_tail(&dev->list, &sn_devices);
	mutex_unlock(&sn_devices_lock);
	INIT_IB_EVENT_HANDLER(&dev->events, ib, sn_ib_event);
	ib_register_event_handler(&dev->events);
	for (i = 0; i < dev->nports; i++)
		if (dev->ports[i].agent)
			queue_delayed_work(sn_wq, &dev->ports[i].work, 0);
	return 0;
}

/* Good manners: the SA need not send Reports nobody reads. Bounded wait. */
static void sn_unsubscribe(struct sn_port *port)
{
	struct ib_port_attr attr;
	unsigned int i, out = 0;

	mutex_lock(&port->lock);
	port->stopping = true;
	if (!ib_query_port(port->dev->ib, port->num, &attr) &&
	    attr.state == IB_PORT_ACTIVE && attr.sm_lid)
		for (i = 0; i < SN_TRAPS; i++)
			if (port->sub[i].subscribed &&
			    !port->sub[i].inflight &&
			    !sn_send_inform(port, i, false, &attr))
				out++;
	mutex_unlock(&port->lock);
	while (out--)
		wait_for_completion_timeout(&port->unsubscribed,
					    msecs_to_jiffies(SN_UNSUBSCRIBE_MS));
}

static void sn_remove(struct ib_device *ib, void *data)
{
	struct sn_device *dev = data;
	u32 i;

	mutex_lock(&sn_devices_lock);
	list_del(&dev->list);
	mutex_unlock(&sn_devices_lock);

	ib_unregister_event_handler(&dev->events);
	for (i = 0; i < dev->nports; i++) {
		struct sn_port *port = &dev->ports[i];

		if (!port->agent)
			continue;
		sn_unsubscribe(port);
		cancel_delayed_work_sync(&port->work);
		/* Sends that are out come back as flushed before it returns. */
		ib_unregister_mad_agent(port->agent);
		cancel_delayed_work_sync(&port->work);
	}
	/* Events that are queued carry the device. */
	flush_workqueue(sn_wq);
	kfree(dev);
}

static struct ib_client sn_client = {
	.name = "sa_notice",
	.add = sn_add,
	.remove = sn_remove,
};

static int status_show(struct seq_file *s, void *unused)
{
	const char *sep = "";
	struct sn_device *dev;
	u32 i;

	seq_puts(s, "{\"ports\":[");
	mutex_lock(&sn_devices_lock);
	list_for_each_entry(dev, &sn_devices, list) {
		for (i = 0; i < dev->nports; i++) {
			struct sn_port *port = &dev->ports[i];

			seq_printf(s, "%s{\"dev\":\"%s\",\"port\":%u,\"gid_in\":%d,\"gid_out\":%d}",
				   sep, dev_name(&dev->ib->dev), port->num,
				   READ_ONCE(port->sub[0].subscribed),
				   READ_ONCE(port->sub[1].subscribed));
			sep = ",";
		}
	}
	mutex_unlock(&sn_devices_lock);
	seq_printf(s, "],\"sets\":%lld,\"sets_good\":%lld,\"sets_bad\":%lld,\"sets_unanswered\":%lld,\"reports\":%lld,\"reports_repeated\":%lld,\"reports_refused\":%lld,\"events_dropped\":%lld}\n",
		   atomic64_read(&sn_sets), atomic64_read(&sn_sets_good),
		   atomic64_read(&sn_sets_bad),
		   atomic64_read(&sn_sets_unanswered),
		   atomic64_read(&sn_reports),
		   atomic64_read(&sn_reports_repeated),
		   atomic64_read(&sn_reports_refused),
		   atomic64_read(&sn_events_dropped));
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(status);

static int __init sa_notice_init(void)
{
	int ret;

	sn_wq = alloc_ordered_workqueue("sa_notice", 0);
	if (!sn_wq)
		return -ENOMEM;
	atomic_set(&sn_tid, get_random_u32());
	ret = ib_register_client(&sn_client);
	if (ret) {
		destroy_workqueue(sn_wq);
		return ret;
	}
	sn_debugfs = debugfs_create_dir("sa_notice", NULL);
	debugfs_create_file("status", 0444, sn_debugfs, NULL, &status_fops);
	return 0;
}

static void __exit sa_notice_exit(void)
{
	debugfs_remove(sn_debugfs);
	ib_unregister_client(&sn_client);
	destroy_workqueue(sn_wq);
}

module_init(sa_notice_init);
module_exit(sa_notice_exit);
MODULE_DESCRIPTION("InfiniBand SA notice client: ports in and out of service");
MODULE_LICENSE("GPL");
