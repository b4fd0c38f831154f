// SPDX-License-Identifier: GPL-2.0
/*
 * apm_traffic module: devices, their events, the character device and debugfs.
 */
#include <linux/debugfs.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <rdma/ib_cache.h>

#include "at.h"

struct at_device {
	struct list_head list;
	struct ib_device *ib;
	struct ib_event_handler events;
};

static DEFINE_MUTEX(at_devices_lock);
static LIST_HEAD(at_devices);
static unsigned int at_ndevices;
static struct dentry *at_debugfs;

static const char *at_port_state_str(enum ib_port_state state)
{
	static const char * const names[] = {
		[IB_PORT_NOP] = "NOP",
		[IB_PORT_DOWN] = "DOWN",
		[IB_PORT_INIT] = "INIT",
		[IB_PORT_ARMED] = "ARMED",
		[IB_PORT_ACTIVE] = "ACTIVE",
		[IB_PORT_ACTIVE_DEFER] = "ACTIVE_DEFER",
	};

	return state < ARRAY_SIZE(names) ? names[state] : "UNKNOWN";
}

/*
 * The pointer is good until at_control_device_gone() has returned for it,
 * which at_remove() waits for.
 */
struct ib_device *at_device_get(const char *name)
{
	struct ib_device *ib = NULL;
	struct at_device *d;

	mutex_lock(&at_devices_lock);
	list_for_each_entry(d, &at_devices, list) {
		if (!*name || !strcmp(name, dev_name(&d->ib->dev))) {
			ib = d->ib;
			break;
		}
	}
	mutex_unlock(&at_devices_lock);
	return ib;
}

/* Of the device in use, or else of the first: a lab wants to see them. */
void at_device_ports(struct seq_file *s, struct ib_device *ib)
{
	const char *sep = "";
	struct at_device *d;
	u32 port;

	seq_puts(s, "\"ports\":[");
	mutex_lock(&at_devices_lock);
	list_for_each_entry(d, &at_devices, list) {
		if (ib && d->ib != ib)
			continue;
		rdma_for_each_port(d->ib, port) {
			struct ib_port_attr attr;
			union ib_gid gid = {};

			if (port > AT_MAX_PORTS)
				break;
			if (ib_query_port(d->ib, port, &attr))
				continue;
			if (rdma_query_gid(d->ib, port, 0, &gid))
				memset(&gid, 0, sizeof(gid));
			seq_printf(s, "%s{\"dev\":\"%s\",\"port\":%u,\"state\":\"%s\",\"lid\":%u,\"sm_lid\":%u,\"gid\":\"%pI6c\"}",
				   sep, dev_name(&d->ib->dev), port,
				   at_port_state_str(attr.state), attr.lid,
				   attr.sm_lid, &gid);
			sep = ",";
		}
		break;
	}
	mutex_unlock(&at_devices_lock);
	seq_puts(s, "],");
}

static const char *at_event_name(enum ib_event_type event)
{
	switch (event) {
	case IB_EVENT_PORT_ERR:
		return "port_err";
	case IB_EVENT_PORT_ACTIVE:
		return "port_active";
	case IB_EVENT_LID_CHANGE:
		return "lid_change";
	case IB_EVENT_SM_CHANGE:
		return "sm_change";
	case IB_EVENT_CLIENT_REREGISTER:
		return "client_reregister";
	case IB_EVENT_PKEY_CHANGE:
		return "pkey_change";
	case IB_EVENT_GID_CHANGE:
		return "gid_change";
	case IB_EVENT_DEVICE_FATAL:
		return "device_fatal";
	default:
		return NULL;
	}
}

static void at_ib_event(struct ib_event_handler *handler,
			struct ib_event *event)
{
	const char *name = at_event_name(event->event);
	struct at_msg *m;

	if (!name)
		return;
	at_event(name, "\"dev\":\"%s\",\"port\":%u",
		 dev_name(&event->device->dev), event->element.port_num);
	m = at_msg_new(AT_MSG_PORT_EVENT, 0, GFP_ATOMIC);
	if (!m)
		return;
	m->u.port.dev = event->device;
	m->u.port.event = event->event;
	m->u.port.port = event->element.port_num;
	at_control_post(m);
}

static void at_sa_event(struct sa_notice_consumer *consumer,
			const struct sa_notice_event *ev)
{
	static const char * const name[] = {
		[SA_NOTICE_GID_IN] = "sa_gid_in",
		[SA_NOTICE_GID_OUT] = "sa_gid_out",
		[SA_NOTICE_SUBSCRIBED] = "sa_subscribed",
		[SA_NOTICE_UNSUBSCRIBED] = "sa_unsubscribed",
	};
	struct at_msg *m;

	if (ev->type == SA_NOTICE_GID_IN || ev->type == SA_NOTICE_GID_OUT)
		at_event(name[ev->type],
			 "\"dev\":\"%s\",\"port\":%u,\"gid\":\"%pI6c\"",
			 dev_name(&ev->device->dev), ev->port, &ev->gid);
	else
		at_event(name[ev->type],
			 "\"dev\":\"%s\",\"port\":%u,\"trap\":%u",
			 dev_name(&ev->device->dev), ev->port, ev->trap);
	m = at_msg_new(AT_MSG_SA, 0, GFP_KERNEL);
	if (!m)
		return;
	m->u.sa = *ev;
	at_control_post(m);
}

static struct sa_notice_consumer at_sa_consumer = {
	.notify = at_sa_event,
};

static struct ib_client at_client;

static int at_add(struct ib_device *ib)
{
	struct at_device *d;
	u32 port;

	if (!rdma_protocol_ib(ib, rdma_start_port(ib)))
		return -EOPNOTSUPP;
	d = kzalloc(sizeof(*d), GFP_KERNEL);
	if (!d)
		return -ENOMEM;
	d->ib = ib;
	mutex_lock(&at_devices_lock);
	if (at_ndevices >= AT_MAX_DEVICES) {
		mutex_unlock(&at_devices_lock);
		kfree(d);
		return -EMFILE;
	}
	at_ndevices++;
	ib_set_client_data(ib, &at_client, d);
	list_add_tail(&d->list, &at_devices);
	mutex_unlock(&at_devices_lock);

	at_event("device_added", "\"dev\":\"%s\",\"ports\":%u",
		 dev_name(&ib->dev), ib->phys_port_cnt);
	INIT_IB_EVENT_HANDLER(&d->events, ib, at_ib_event);
	ib_register_event_handler(&d->events);
	/* No event tells of what was Active before. */
	rdma_for_each_port(ib, port) {
		struct ib_port_attr attr;

		if (!ib_query_port(ib, port, &attr) &&
		    attr.state == IB_PORT_ACTIVE)
			at_event("port_active", "\"dev\":\"%s\",\"port\":%u",
				 dev_name(&ib->dev), port);
	}
	return 0;
}

static void at_remove(struct ib_device *ib, void *data)
{
	struct at_device *d = data;

	mutex_lock(&at_devices_lock);
	list_del(&d->list);
	at_ndevices--;
	mutex_unlock(&at_devices_lock);
	ib_unregister_event_handler(&d->events);
	at_control_device_gone(ib);
	at_event("device_removed", "\"dev\":\"%s\",\"ports\":%u",
		 dev_name(&ib->dev), ib->phys_port_cnt);
	kfree(d);
}

static struct ib_client at_client = {
	.name = "apm_traffic",
	.add = at_add,
	.remove = at_remove,
};

static struct miscdevice at_misc = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "apm_traffic",
	.fops = &at_fops,
	.mode = 0600,
};

static int status_show(struct seq_file *s, void *unused)
{
	at_control_status(s);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(status);

static int __init apm_traffic_init(void)
{
	int ret;

	ret = at_event_init();
	if (ret)
		return ret;
	at_event("module_loaded", "\"version\":\"%s\"", AT_VERSION);
	ret = at_control_init();
	if (ret)
		goto err_event;
	ret = ib_register_client(&at_client);
	if (ret)
		goto err_control;
	sa_notice_register(&at_sa_consumer);
	ret = misc_register(&at_misc);
	if (ret)
		goto err_client;
	at_debugfs = debugfs_create_dir("apm_traffic", NULL);
	debugfs_create_file("status", 0444, at_debugfs, NULL, &status_fops);
	return 0;

err_client:
	sa_notice_unregister(&at_sa_consumer);
	ib_unregister_client(&at_client);
err_control:
	at_control_exit();
err_event:
	at_event_exit();
	return ret;
}

static void __exit apm_traffic_exit(void)
{
	debugfs_remove(at_debugfs);
	misc_deregister(&at_misc);
	sa_notice_unregister(&at_sa_consumer);
	ib_unregister_client(&at_client);
	at_control_exit();
	at_event_exit();
}

module_init(apm_traffic_init);
module_exit(apm_traffic_exit);
MODULE_DESCRIPTION("Checked traffic over a connection with automatic path migration");
MODULE_LICENSE("GPL");
MODULE_SOFTDEP("pre: apm_cm sa_notice");
