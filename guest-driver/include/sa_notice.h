/* SPDX-License-Identifier: GPL-2.0 */
/*
 * sa_notice: client of subnet administration's event forwarding (IBTA volume
 * 1, sections 13.4.8 and 15.2.5.12).  Tells consumers that a port somewhere in the
 * subnet came into or went out of service (traps 64 and 65).
 */
#ifndef SA_NOTICE_H
#define SA_NOTICE_H

#include <linux/list.h>
#include <rdma/ib_verbs.h>

enum sa_notice_type {
	SA_NOTICE_GID_IN,		/* trap 64 */
	SA_NOTICE_GID_OUT,		/* trap 65 */
	SA_NOTICE_SUBSCRIBED,		/* SA accepted the subscription */
	SA_NOTICE_UNSUBSCRIBED,		/* must be renewed, being tried */
};

struct sa_notice_event {
	enum sa_notice_type type;
	struct ib_device *device;
	u32 port;			/* local port it came in by */
	u16 trap;
	union ib_gid gid;		/* GID_IN, GID_OUT */
};

/*
 * The callback runs in process context, one at a time.  A consumer that
 * registers late is told SUBSCRIBED for what is subscribed already.
 */
struct sa_notice_consumer {
	void (*notify)(struct sa_notice_consumer *consumer,
		       const struct sa_notice_event *event);
	struct list_head list;		/* sa_notice's */
};

void sa_notice_register(struct sa_notice_consumer *consumer);
/* When it returns, no callback runs or will run. */
void sa_notice_unregister(struct sa_notice_consumer *consumer);

#endif /* SA_NOTICE_H */
