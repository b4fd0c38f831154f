// SPDX-License-Identifier: GPL-2.0
/*
 * For people: /sys/kernel/debug/ib_ehca/ehcaN/
 *	qps	one line for each QP: number, type, state, migration state,
 *		both paths as the adapter has them now, events seen
 *	events	how often each kind of event was seen
 */
#include <linux/debugfs.h>
#include <linux/seq_file.h>

#include "ehca.h"

static struct dentry *ehca_debugfs_root;

static const char * const ehca_stat_names[EHCA_STAT_NR] = {
	[EHCA_STAT_EQ_COMPLETION]	= "completion_events",
	[EHCA_STAT_PATH_MIG]		= "path_migrated",
	[EHCA_STAT_PATH_MIG_FILTERED]	= "path_migrated_filtered",
	[EHCA_STAT_PATH_MIG_ERR]	= "path_migration_refused",
	[EHCA_STAT_COMM_EST]		= "communication_established",
	[EHCA_STAT_SQ_DRAINED]		= "send_queue_drained",
	[EHCA_STAT_QP_FATAL]		= "qp_error",
	[EHCA_STAT_CQ_ERR]		= "cq_error",
	[EHCA_STAT_SRQ_LIMIT]		= "srq_limit_reached",
	[EHCA_STAT_SRQ_ERR]		= "srq_error",
	[EHCA_STAT_EQ_OTHER]		= "other_eq_events",
	[EHCA_STAT_EQ_UNKNOWN_TOKEN]	= "events_for_destroyed_objects",
	[EHCA_STAT_PORT_ACTIVE]		= "port_active",
	[EHCA_STAT_PORT_ERR]		= "port_error",
	[EHCA_STAT_LID_CHANGE]		= "lid_change",
	[EHCA_STAT_PKEY_CHANGE]		= "pkey_change",
	[EHCA_STAT_SM_CHANGE]		= "sm_change",
	[EHCA_STAT_CLIENT_REREGISTER]	= "client_reregister",
	[EHCA_STAT_NEQ_OTHER]		= "other_notifications",
	[EHCA_STAT_CQE_ERROR]		= "error_completions",
	[EHCA_STAT_CQE_STALE]		= "stale_completions",
	[EHCA_STAT_CQE_PURGED]		= "purged_completions",
	[EHCA_STAT_FLUSHED]		= "flushed_by_software",
	[EHCA_STAT_HCALL_BUSY]		= "hcalls_long_busy",
	[EHCA_STAT_HCALL_FAILED]	= "hcalls_failed",
};

static const char *ehca_fw_state_str(u32 state)
{
	switch (state) {
	case EHCA_QPS_RESET:
		return "RESET";
	case EHCA_QPS_INIT:
		return "INIT";
	case EHCA_QPS_RTR:
		return "RTR";
	case EHCA_QPS_RTS:
		return "RTS";
	case EHCA_QPS_SQD:
		return "SQD";
	case EHCA_QPS_SQE:
		return "SQE";
	case EHCA_QPS_ERR:
		return "ERR";
	default:
		return "?";
	}
}

static const char *ehca_fw_mig_str(u32 mig)
{
	switch (mig) {
	case EHCA_MIG_MIGRATED:
		return "MIGRATED";
	case EHCA_MIG_REARM:
		return "REARM";
	case EHCA_MIG_ARMED:
		return "ARMED";
	default:
		return "?";
	}
}

static const char *ehca_qp_type_str(enum ib_qp_type type)
{
	switch (type) {
	case IB_QPT_SMI:
		return "SMI";
	case IB_QPT_GSI:
		return "GSI";
	case IB_QPT_RC:
		return "RC";
	case IB_QPT_UC:
		return "UC";
	case IB_QPT_UD:
		return "UD";
	default:
		return "?";
	}
}

static void ehca_qp_show(struct seq_file *s, struct ehca_qp *qp, void *block)
{
	long rc;

	memset(block, 0, EHCA_CB_SIZE);
	rc = ehca_h_query_qp(qp->dev, qp->handle, block, EHCA_CALL_QUIET);
	seq_printf(s, "qpn=0x%06x type=%s", qp->real_qpn,
		   ehca_qp_type_str(qp->ibqp.qp_type));
	if (rc) {
		seq_printf(s, " query=%s\n", ehca_rc_str(rc));
		return;
	}
	seq_printf(s, " state=%s",
		   ehca_fw_state_str(get32(block, EHCA_QPCB_QP_STATE)));
	if (qp->port)
		seq_printf(s, " port=%u", qp->port);
	if (!ehca_qp_is_ud(qp))
		seq_printf(s,
			   " mig=%s prim_port=%u prim_dlid=%u alt_port=%u alt_dlid=%u dest_qpn=0x%06x",
			   ehca_fw_mig_str(get32(block,
						 EHCA_QPCB_PATH_MIGRATION_STATE)),
			   get32(block, EHCA_QPCB_PRIM_PHYS_PORT) & 0xff,
			   get32(block, EHCA_QPCB_DLID),
			   get32(block, EHCA_QPCB_ALT_PHYS_PORT) & 0xff,
			   get32(block, EHCA_QPCB_DLID_AL),
			   get32(block, EHCA_QPCB_DEST_QP_NR));
	seq_printf(s, " sq=%llu/%llu rq=%llu/%llu",
		   READ_ONCE(qp->sq.tail), READ_ONCE(qp->sq.head),
		   READ_ONCE(qp->rq.tail), READ_ONCE(qp->rq.head));
	seq_printf(s,
		   " path_mig=%d path_mig_filtered=%d path_mig_err=%d comm_est=%d sq_drained=%d fatal=%d\n",
		   atomic_read(&qp->ev_path_mig),
		   atomic_read(&qp->ev_path_mig_filtered),
		   atomic_read(&qp->ev_path_mig_err),
		   atomic_read(&qp->ev_comm_est),
		   atomic_read(&qp->ev_sq_drained),
		   atomic_read(&qp->ev_fatal));
}

static int ehca_qps_show(struct seq_file *s, void *unused)
{
	struct ehca_dev *dev = s->private;
	unsigned long token;
	struct ehca_qp *qp;
	void *block, *entry;

	block = kzalloc(EHCA_CB_SIZE, GFP_KERNEL);
	if (!block)
		return -ENOMEM;
	xa_for_each(&dev->qps, token, entry) {
		qp = ehca_qp_get(dev, token);
		if (!qp)
			continue;
		ehca_qp_show(s, qp, block);
		ehca_qp_put(qp);
	}
	kfree(block);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(ehca_qps);

static void ehca_eq_show(struct seq_file *s, const struct ehca_eq *eq)
{
	seq_printf(s, "%s_interrupt %s\n", eq->name,
		   eq->have_irq ? "yes" : "no, polled");
	seq_printf(s, "%s_interrupts %ld\n", eq->name,
		   atomic_long_read(&eq->irqs));
	seq_printf(s, "%s_entries %llu\n", eq->name, eq->eqes);
	seq_printf(s, "%s_lost_interrupts %llu\n", eq->name, eq->lost_irqs);
}

static int ehca_events_show(struct seq_file *s, void *unused)
{
	struct ehca_dev *dev = s->private;
	unsigned int i;

	for (i = 0; i < EHCA_STAT_NR; i++)
		seq_printf(s, "%s %lld\n", ehca_stat_names[i],
			   (long long)atomic64_read(&dev->stat[i]));
	ehca_eq_show(s, &dev->eq);
	ehca_eq_show(s, &dev->neq);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(ehca_events);

void ehca_debugfs_init(void)
{
	ehca_debugfs_root = debugfs_create_dir(EHCA_DRV_NAME, NULL);
}

void ehca_debugfs_exit(void)
{
	debugfs_remove_recursive(ehca_debugfs_root);
}

void ehca_debugfs_add(struct ehca_dev *dev)
{
	dev->debugfs = debugfs_create_dir(dev_name(&dev->ibdev.dev),
					  ehca_debugfs_root);
	debugfs_create_file("qps", 0444, dev->debugfs, dev, &ehca_qps_fops);
	debugfs_create_file("events", 0444, dev->debugfs, dev,
			    &ehca_events_fops);
}

void ehca_debugfs_del(struct ehca_dev *dev)
{
	debugfs_remove_recursive(dev->debugfs);
}
