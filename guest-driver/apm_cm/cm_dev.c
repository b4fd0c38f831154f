// SPDX-License-Identifier: GPL-2.0
/*
 * apm_cm devices: one MAD agent for class 0x07 on each port, sending,
 * receiving, the port capability bit, and the message counters.
 *
 * Theory of operation
 * - Messages are sent without a MAD-layer timeout: the send is over when the
 *   HCA has it.  Repetition is the state machine's own timer (cm_core.c), so no
 *   MAD can outlive the exchange it belongs to, and each try may take another
 *   path.
 * - Received MADs go to one ordered work queue; at most CM_MAX_RX_QUEUED wait
 *   there, more are dropped and counted (the peer repeats).
 * - Only one agent can own class 0x07 on a port.  If the kernel's ib_cm has
 *   it, this module says so and does not load.
 */
#include <linux/debugfs.h>
#include <linux/module.h>
#include <linux/seq_file.h>

#include "cm.h"

static LIST_HEAD(cm_devices);		/* under cm_lock */
static atomic_t cm_tid_next;
static atomic_t cm_rx_queued;
static bool cm_class_taken;		/* while the client registers */
static unsigned int cm_ports_owned;

static atomic64_t cm_counter[APM_CM_COUNTER_GROUPS][APM_CM_MSG_KINDS];
static atomic64_t cm_dropped, cm_tx_failed;
static struct dentry *cm_debugfs;
static struct apm_cm_tap *cm_tap;	/* under cm_lock */

void cm_count(enum apm_cm_counter_group group, u16 attr)
{
	if (attr >= CM_ATTR_REQ && attr <= CM_ATTR_APR)
		atomic64_inc(&cm_counter[group][attr - CM_ATTR_REQ]);
}

void cm_count_dropped(void)
{
	atomic64_inc(&cm_dropped);
}

void cm_dev_counters(struct apm_cm_counters *c)
{
	unsigned int g, k;

	for (g = 0; g < APM_CM_COUNTER_GROUPS; g++)
		for (k = 0; k < APM_CM_MSG_KINDS; k++)
			c->n[g][k] = atomic64_read(&cm_counter[g][k]);
	c->rx_dropped = atomic64_read(&cm_dropped);
	c->tx_failed = atomic64_read(&cm_tx_failed);
	c->connections = cm_core_connections();
}

int apm_cm_set_tap(struct apm_cm_tap *tap)
{
	int ret = 0;

	mutex_lock(&cm_lock);
	if (cm_tap)
		ret = -EBUSY;
	else
		cm_tap = tap;
	mutex_unlock(&cm_lock);
	return ret;
}
EXPORT_SYMBOL_GPL(apm_cm_set_tap);

void apm_cm_clear_tap(struct apm_cm_tap *tap)
{
	mutex_lock(&cm_lock);
	if (cm_tap == tap)
		cm_tap = NULL;
	mutex_unlock(&cm_lock);
}
EXPORT_SYMBOL_GPL(apm_cm_clear_tap);

bool cm_tap_lost(bool sent, u32 port, struct cm_mad *mad)
{
	lockdep_assert_held(&cm_lock);
	return cm_tap && cm_tap->message(cm_tap, sent, port, mad);
}

struct cm_device *cm_dev_find(struct ib_device *ib)
{
	struct cm_device *dev;

	lockdep_assert_held(&cm_lock);
	list_for_each_entry(dev, &cm_devices, list)
		if (dev->ib == ib && !dev->gone)
			return dev;
	return NULL;
}

struct cm_port *cm_dev_port(struct cm_device *dev, u32 num)
{
	if (!dev || dev->gone || num < 1 || num > dev->nports)
		return NULL;
	return dev->ports[num - 1].agent ? &dev->ports[num - 1] : NULL;
}

/*
 * One transaction id per exchange, kept over repetitions on other ports.
 * Unlike Linux's, it is never used twice, so a LAP is not mistaken for a
 * repetition of the one before.
 */
__be64 cm_dev_tid(struct cm_device *dev)
{
	u64 hi = 0;
	u32 i;

	for (i = 0; i < dev->nports; i++) {
		if (dev->ports[i].agent) {
			hi = dev->ports[i].agent->hi_tid;
			break;
		}
	}
	return cpu_to_be64(hi << 32 | (u32)atomic_inc_return(&cm_tid_next));
}

static void cm_send_done(struct ib_mad_agent *agent,
			 struct ib_mad_send_wc *wc)
{
	struct cm_port *port = agent->context;

	if (wc->status != IB_WC_SUCCESS)
		atomic64_inc(&cm_tx_failed);
	rdma_destroy_ah(wc->send_buf->ah, 0);
	ib_free_send_mad(wc->send_buf);
	atomic_dec(&port->tx_queued);
}

int cm_dev_send(struct cm_device *dev, const struct cm_via *via,
		const struct cm_mad *mad, bool retry)
{
	struct cm_port *port = cm_dev_port(dev, via->port);
	struct rdma_ah_attr ah_attr = via->ah;
	struct ib_mad_send_buf *buf;
	struct ib_ah *ah;
	int ret;

	lockdep_assert_held(&cm_lock);
	if (!port)
		return -ENODEV;
	if (atomic_inc_return(&port->tx_queued) > CM_MAX_TX_QUEUED) {
		ret = -ENOBUFS;
		goto out;
	}
	ah = rdma_create_ah(port->agent->qp->pd, &ah_attr, 0);
	if (IS_ERR(ah)) {
		ret = PTR_ERR(ah);
		goto out;
	}
	buf = ib_create_send_mad(port->agent, 1, via->pkey_index, 0,
				 IB_MGMT_MAD_HDR, IB_MGMT_MAD_DATA,
				 GFP_KERNEL, IB_MGMT_BASE_VERSION);
	if (IS_ERR(buf)) {
		ret = PTR_ERR(buf);
		goto out_ah;
	}
	memcpy(buf->mad, mad->bytes, CM_MAD_SIZE);
	buf->ah = ah;
	buf->timeout_ms = 0;
	buf->retries = 0;
	if (cm_tap_lost(true, via->port, buf->mad)) {
		ib_free_send_mad(buf);
		rdma_destroy_ah(ah, 0);
		atomic_dec(&port->tx_queued);
	} else {
		ret = ib_post_send_mad(buf, NULL);
		if (ret)
			goto out_buf;
	}
	cm_count(APM_CM_TX, be16_to_cpu(mad->hdr.attr_id));
	if (retry)
		cm_count(APM_CM_TX_RETRIES, be16_to_cpu(mad->hdr.attr_id));
	return 0;

out_buf:
	ib_free_send_mad(buf);
out_ah:
	rdma_destroy_ah(ah, 0);
out:
	atomic_dec(&port->tx_queued);
	atomic64_inc(&cm_tx_failed);
	return ret;
}

struct cm_rx_work {
	struct work_struct work;
	struct cm_port *port;
	struct ib_mad_recv_wc *wc;
};

static void cm_rx_work(struct work_struct *work)
{
	struct cm_rx_work *rx = container_of(work, struct cm_rx_work, work);

	cm_core_receive(rx->port, rx->wc);
	ib_free_recv_mad(rx->wc);
	kfree(rx);
	atomic_dec(&cm_rx_queued);
}

static void cm_receive(struct ib_mad_agent *agent,
		       struct ib_mad_send_buf *send_buf,
		       struct ib_mad_recv_wc *wc)
{
	const struct ib_mad_hdr *hdr = &wc->recv_buf.mad->mad_hdr;
	u16 attr = be16_to_cpu(hdr->attr_id);
	struct cm_rx_work *rx;

	if (wc->mad_len < CM_MAD_SIZE || attr < CM_ATTR_REQ ||
	    attr > CM_ATTR_APR)
		goto drop;
	cm_count(APM_CM_RX, attr);
	if (atomic_inc_return(&cm_rx_queued) > CM_MAX_RX_QUEUED)
		goto drop_dec;
	rx = kmalloc(sizeof(*rx), GFP_KERNEL);
	if (!rx)
		goto drop_dec;
	INIT_WORK(&rx->work, cm_rx_work);
	rx->port = agent->context;
	rx->wc = wc;
	cm_core_queue(&rx->work);
	return;

drop_dec:
	atomic_dec(&cm_rx_queued);
drop:
	cm_count_dropped();
	ib_free_recv_mad(wc);
}

static void cm_dev_set_cap(struct cm_port *port, bool on)
{
	struct ib_port_modify modify = {};
	int ret;

	if (on)
		modify.set_port_cap_mask = IB_PORT_CM_SUP;
	else
		modify.clr_port_cap_mask = IB_PORT_CM_SUP;
	ret = ib_modify_port(port->dev->ib, port->num, 0, &modify);
	port->cap_set = on && !ret;
	/* Not fatal: the bit only tells others what they find out anyway. */
	if (ret)
		pr_notice("apm_cm: %s port %u: cannot %s capability bit 16 (error %d)\n",
			  dev_name(&port->dev->ib->dev), port->num,
			  on ? "set" : "clear", ret);
}

static struct ib_client cm_client;

static int cm_dev_add(struct ib_device *ib)
{
	struct ib_mad_reg_req req = {
		.mgmt_class = IB_MGMT_CLASS_CM,
		.mgmt_class_version = CM_CLASS_VERSION,
	};
	unsigned int good = 0;
	struct cm_device *dev;
	u32 i;

	dev = kzalloc(struct_size(dev, ports, ib->phys_port_cnt), GFP_KERNEL);
	if (!dev)
		return -ENOMEM;
	dev->ib = ib;
	dev->nports = ib->phys_port_cnt;
	set_bit(IB_MGMT_METHOD_SEND, req.method_mask);

	for (i = 0; i < dev->nports; i++) {
		struct cm_port *port = &dev->ports[i];
		struct ib_mad_agent *agent;

		port->dev = dev;
		port->num = i + 1;
		/* Plain InfiniBand only: RoCE has no alternate paths. */
		if (!rdma_protocol_ib(ib, port->num) ||
		    !rdma_cap_ib_cm(ib, port->num))
			continue;
		agent = ib_register_mad_agent(ib, port->num, IB_QPT_GSI, &req,
					      0, cm_send_done, cm_receive,
					      port, 0);
		if (IS_ERR(agent)) {
			/* The MAD layer's answer when the class is taken */
			if (PTR_ERR(agent) == -EINVAL) {
				cm_class_taken = true;
				pr_err("apm_cm: %s port %u: management class 0x07 has an owner already, most likely the kernel's ib_cm; one port can have one CM only. Unload ib_cm and what uses it (rdma_ucm, rdma_cm, ib_srp, ib_srpt, ib_ipoib), then load apm_cm\n",
				       dev_name(&ib->dev), port->num);
			} else {
				pr_err("apm_cm: %s port %u: no MAD agent (error %ld)\n",
				       dev_name(&ib->dev), port->num,
				       PTR_ERR(agent));
			}
			continue;
		}
		port->agent = agent;
		good++;
	}
	if (!good) {
		kfree(dev);
		return -EOPNOTSUPP;
	}

	ib_set_client_data(ib, &cm_client, dev);
	mutex_lock(&cm_lock);
	list_add_tail(&dev->list, &cm_devices);
	cm_ports_owned += good;
	mutex_unlock(&cm_lock);

	for (i = 0; i < dev->nports; i++)
		if (dev->ports[i].agent)
			cm_dev_set_cap(&dev->ports[i], true);
	return 0;
}

static void cm_dev_remove(struct ib_device *ib, void *data)
{
	struct cm_device *dev = data;
	u32 i;

	mutex_lock(&cm_lock);
	dev->gone = true;
	list_del(&dev->list);
	cm_core_device_gone(dev);
	mutex_unlock(&cm_lock);

	for (i = 0; i < dev->nports; i++) {
		struct cm_port *port = &dev->ports[i];

		if (!port->agent)
			continue;
		if (port->cap_set)
			cm_dev_set_cap(port, false);
		ib_unregister_mad_agent(port->agent);
	}
	/* No more is queued; what is queued finds dev->gone. */
	cm_core_flush();
	kfree(dev);
}

static struct ib_client cm_client = {
	.name = "apm_cm",
	.add = cm_dev_add,
	.remove = cm_dev_remove,
};

void apm_cm_show_counters(struct seq_file *s)
{
	static const char * const group[] = {
		[APM_CM_TX] = "tx",
		[APM_CM_TX_RETRIES] = "tx_retries",
		[APM_CM_RX] = "rx",
		[APM_CM_RX_DUPLICATES] = "rx_duplicates",
	};
	struct apm_cm_counters c;
	unsigned int g, k;

	cm_dev_counters(&c);
	seq_putc(s, '{');
	for (g = 0; g < APM_CM_COUNTER_GROUPS; g++) {
		seq_printf(s, "\"%s\":{", group[g]);
		for (k = 0; k < APM_CM_MSG_KINDS; k++)
			seq_printf(s, "%s\"%s\":%llu", k ? "," : "",
				   apm_cm_msg_str(k), c.n[g][k]);
		seq_puts(s, "},");
	}
	seq_printf(s, "\"rx_dropped\":%llu,\"tx_failed\":%llu,\"connections\":%u}",
		   c.rx_dropped, c.tx_failed, c.connections);
}
EXPORT_SYMBOL_GPL(apm_cm_show_counters);

static int counters_show(struct seq_file *s, void *unused)
{
	apm_cm_show_counters(s);
	seq_putc(s, '\n');
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(counters);

int cm_dev_init(void)
{
	int ret;

	atomic_set(&cm_tid_next, get_random_u32());
	ret = ib_register_client(&cm_client);
	if (ret)
		return ret;
	if (cm_class_taken && !cm_ports_owned) {
		ib_unregister_client(&cm_client);
		return -EBUSY;
	}
	cm_debugfs = debugfs_create_dir("apm_cm", NULL);
	debugfs_create_file("counters", 0444, cm_debugfs, NULL,
			    &counters_fops);
	return 0;
}

void cm_dev_exit(void)
{
	debugfs_remove(cm_debugfs);
	ib_unregister_client(&cm_client);
}
