// SPDX-License-Identifier: GPL-2.0
/*
 * The two event queues (doc 14).
 *
 * EQ: completion events and affiliated events of CQs and QPs, read by a
 * tasklet.  NEQ: port and adapter events, read by a work item since it must
 * sleep in hypervisor calls.  Entries carry a valid bit that toggles with
 * each pass through the ring; the adapter is not told what we consumed.
 *
 * Interrupts behave as messages: one per entry, none lost as long as we
 * look at the queue after each.  A look every second catches what is lost
 * nevertheless, counts it and says so once.  If the interrupt source cannot
 * be used at all, both queues are polled.
 *
 * The tasklet also calls the completion handlers of CQs for which software
 * made completions (flush.c): ehca_cq_kick() puts them on a list.
 */
#include <linux/irq.h>
#include <linux/irqdomain.h>
#include <linux/module.h>

#include "ehca.h"

static const char * const ehca_eqe_names[EHCA_EQE_ID_MASK + 1] = {
	[EHCA_EQE_PATH_MIG]		= "path migrated",
	[EHCA_EQE_COMM_EST]		= "communication established",
	[EHCA_EQE_SQ_DRAINED]		= "send queue drained",
	[EHCA_EQE_QP_ERR]		= "QP error",
	[EHCA_EQE_QP_ERR_2]		= "QP error",
	[EHCA_EQE_CQ_ERR]		= "CQ error",
	[EHCA_EQE_CQ_ERR_2]		= "CQ error",
	[EHCA_EQE_MR_TABLE_ERR]		= "memory region table error",
	[EHCA_EQE_PORT]			= "port event",
	[EHCA_EQE_MR_ACCESS_ERR]	= "memory region access error",
	[EHCA_EQE_EQ_ERR]		= "event queue error",
	[EHCA_EQE_KEY_MISMATCH]		= "P_Key or Q_Key mismatch",
	[EHCA_EQE_SAMPLING_COMPLETE]	= "sampling complete",
	[EHCA_EQE_UNAFFILIATED_ACCESS_ERR] = "unaffiliated access error",
	[EHCA_EQE_PATH_MIGRATING]	= "path migrating",
	[EHCA_EQE_TRACE_STOPPED]	= "trace stopped",
	[EHCA_EQE_FIRST_ERR_CAPTURE]	= "first error capture",
	[EHCA_EQE_SRQ_LIMIT]		= "SRQ limit reached",
	[EHCA_EQE_PATH_MIG_FAILED]	= "path migration refused",
};

/* Tell the core about a port event, once it listens (doc 14.4) */
void ehca_event(struct ehca_dev *dev, enum ib_event_type type, u8 port)
{
	struct ib_event ev = {
		.device = &dev->ibdev,
		.event = type,
		.element.port_num = port,
	};

	switch (type) {
	case IB_EVENT_PORT_ACTIVE:
		ehca_stat(dev, EHCA_STAT_PORT_ACTIVE);
		break;
	case IB_EVENT_PORT_ERR:
		ehca_stat(dev, EHCA_STAT_PORT_ERR);
		break;
	case IB_EVENT_LID_CHANGE:
		ehca_stat(dev, EHCA_STAT_LID_CHANGE);
		break;
	case IB_EVENT_PKEY_CHANGE:
		ehca_stat(dev, EHCA_STAT_PKEY_CHANGE);
		break;
	case IB_EVENT_SM_CHANGE:
		ehca_stat(dev, EHCA_STAT_SM_CHANGE);
		break;
	case IB_EVENT_CLIENT_REREGISTER:
		ehca_stat(dev, EHCA_STAT_CLIENT_REREGISTER);
		break;
	default:
		break;
	}
	if (READ_ONCE(dev->live))
		ib_dispatch_event(&ev);
}

static u64 *ehca_eq_slot(struct ehca_eq *eq)
{
	return eq->q.va + (size_t)READ_ONCE(eq->idx) * EHCA_EQE_SIZE;
}

static bool ehca_eq_valid(struct ehca_eq *eq, u64 *eqe)
{
	*eqe = be64_to_cpu(READ_ONCE(*(__be64 *)ehca_eq_slot(eq)));
	return !!(*eqe & EHCA_EQE_VALID) == eq->toggle;
}

static bool ehca_eq_next(struct ehca_eq *eq, u64 *eqe)
{
	if (!ehca_eq_valid(eq, eqe))
		return false;
	if (eq->idx + 1 == eq->entries) {
		eq->toggle = !eq->toggle;
		WRITE_ONCE(eq->idx, 0);
	} else {
		WRITE_ONCE(eq->idx, eq->idx + 1);
	}
	eq->eqes++;
	/* what the event tells about was written before it */
	dma_rmb();
	return true;
}

static void ehca_cq_err(struct ehca_dev *dev, u32 token)
{
	struct ehca_cq *cq = ehca_cq_get(dev, token);
	struct ib_event ev = {
		.device = &dev->ibdev,
		.event = IB_EVENT_CQ_ERR,
	};

	if (!cq) {
		ehca_stat(dev, EHCA_STAT_EQ_UNKNOWN_TOKEN);
		return;
	}
	ehca_stat(dev, EHCA_STAT_CQ_ERR);
	dev_err(&dev->pdev->dev,
		"CQ %#llx is in error, most likely it overflowed: create it with more entries\n",
		cq->handle);
	ev.element.cq = &cq->ibcq;
	if (cq->ibcq.event_handler)
		cq->ibcq.event_handler(&ev, cq->ibcq.cq_context);
	ehca_cq_put(cq);
}

static void ehca_eqe(struct ehca_dev *dev, u64 eqe)
{
	u32 token = eqe & EHCA_EQE_TOKEN_MASK;
	u32 id = (eqe >> EHCA_EQE_ID_SHIFT) & EHCA_EQE_ID_MASK;
	struct ehca_cq *cq;

	if (eqe & EHCA_EQE_COMPLETION) {
		ehca_stat(dev, EHCA_STAT_EQ_COMPLETION);
		cq = ehca_cq_get(dev, token);
		if (!cq) {
			/* normal for a moment after destroy */
			ehca_stat(dev, EHCA_STAT_EQ_UNKNOWN_TOKEN);
			return;
		}
		/* let the CQ raise its next event before the consumer runs */
		ehca_reg_write(cq->regs, EHCA_CQX_EP, 0);
		ehca_reg_read(cq->regs, EHCA_CQX_EP);
		ehca_cq_complete(cq);
		ehca_cq_put(cq);
		return;
	}

	switch (id) {
	case EHCA_EQE_PATH_MIG:
	case EHCA_EQE_PATH_MIG_FAILED:
	case EHCA_EQE_COMM_EST:
	case EHCA_EQE_SQ_DRAINED:
	case EHCA_EQE_QP_ERR:
	case EHCA_EQE_QP_ERR_2:
		ehca_qp_eqe(dev, id, token);
		break;
	case EHCA_EQE_SRQ_LIMIT:
		ehca_srq_eqe(dev, id, token);
		break;
	case EHCA_EQE_CQ_ERR:
	case EHCA_EQE_CQ_ERR_2:
		ehca_cq_err(dev, token);
		break;
	default:
		ehca_stat(dev, EHCA_STAT_EQ_OTHER);
		dev_info_ratelimited(&dev->pdev->dev,
				     "event %#x (%s), number %#llx, token %#x: nothing to do\n",
				     id, ehca_eqe_names[id] ?: "unknown",
				     (eqe >> EHCA_EQE_NUMBER_SHIFT) &
				     EHCA_EQE_NUMBER_MASK, token);
	}
}

/* Call the handler of a CQ from the tasklet, if its consumer waits for it */
void ehca_cq_kick(struct ehca_cq *cq)
{
	struct ehca_dev *dev = cq->dev;
	unsigned long flags;

	/* pairs with the barrier in ehca_req_notify_cq() */
	smp_mb();
	if (!READ_ONCE(cq->armed))
		return;
	spin_lock_irqsave(&dev->kick_lock, flags);
	if (list_empty(&cq->kick_entry))
		list_add_tail(&cq->kick_entry, &dev->kick_list);
	spin_unlock_irqrestore(&dev->kick_lock, flags);
	tasklet_hi_schedule(&dev->eq_tasklet);
}

static struct ehca_cq *ehca_kicked_cq(struct ehca_dev *dev)
{
	struct ehca_cq *cq;
	unsigned long flags;

	spin_lock_irqsave(&dev->kick_lock, flags);
	cq = list_first_entry_or_null(&dev->kick_list, struct ehca_cq,
				      kick_entry);
	if (cq) {
		list_del_init(&cq->kick_entry);
		refcount_inc(&cq->ref);
	}
	spin_unlock_irqrestore(&dev->kick_lock, flags);
	return cq;
}

static void ehca_eq_tasklet(struct tasklet_struct *t)
{
	struct ehca_dev *dev = from_tasklet(dev, t, eq_tasklet);
	struct ehca_call c = { .in = { dev->eq.ist } };
	unsigned int budget = EHCA_EQ_BUDGET;
	unsigned int tries = 100;
	struct ehca_cq *cq;
	u64 eqe;

	/* doc 8.11: until the interrupt state is taken up */
	if (!xchg(&dev->eq_int_pending, 0))
		tries = 0;
	while (tries--) {
		if (!ehca_hcall(dev, EHCA_H_QUERY_INT_STATE, &c,
				EHCA_CALL_ATOMIC))
			break;
	}

	while (budget && ehca_eq_next(&dev->eq, &eqe)) {
		ehca_eqe(dev, eqe);
		budget--;
	}
	while (budget && (cq = ehca_kicked_cq(dev))) {
		ehca_cq_complete(cq);
		ehca_cq_put(cq);
		budget--;
	}
	if (!budget)
		tasklet_hi_schedule(&dev->eq_tasklet);
}

static void ehca_neqe(struct ehca_dev *dev, u64 neqe)
{
	u32 code = (neqe >> EHCA_EQE_ID_SHIFT) & EHCA_EQE_ID_MASK;

	if (neqe & EHCA_EQE_COMPLETION)
		return;
	switch (code) {
	case EHCA_NEQE_PORT_AVAIL:
	case EHCA_NEQE_PORT_CONFIG:
	case EHCA_NEQE_SPECIFIC:
		ehca_port_neqe(dev, neqe);
		break;
	case EHCA_NEQE_ADAPTER_MALFUNCTION:
		ehca_stat(dev, EHCA_STAT_NEQ_OTHER);
		dev_err(&dev->pdev->dev, "adapter malfunction (%#llx)\n",
			neqe);
		break;
	case EHCA_NEQE_TRACE_STOPPED:
		ehca_stat(dev, EHCA_STAT_NEQ_OTHER);
		break;
	default:
		ehca_stat(dev, EHCA_STAT_NEQ_OTHER);
		dev_warn_ratelimited(&dev->pdev->dev,
				     "notification %#x is unknown (%#llx)\n",
				     code, neqe);
	}
}

static void ehca_neq_work(struct work_struct *work)
{
	struct ehca_dev *dev = container_of(work, struct ehca_dev, neq_work);
	struct ehca_call c = {
		.in = { dev->neq.handle, EHCA_RESET_EVENTS_ALL }
	};
	u64 neqe;

	do {
		while (ehca_eq_next(&dev->neq, &neqe))
			ehca_neqe(dev, neqe);
		/* doc 8.10; then look again for what came meanwhile */
		ehca_hcall(dev, EHCA_H_RESET_EVENTS, &c, 0);
	} while (ehca_eq_valid(&dev->neq, &neqe));
}

static irqreturn_t ehca_eq_irq(int irq, void *arg)
{
	struct ehca_dev *dev = arg;

	atomic_long_inc(&dev->eq.irqs);
	xchg(&dev->eq_int_pending, 1);
	tasklet_hi_schedule(&dev->eq_tasklet);
	return IRQ_HANDLED;
}

static irqreturn_t ehca_neq_irq(int irq, void *arg)
{
	struct ehca_dev *dev = arg;

	atomic_long_inc(&dev->neq.irqs);
	queue_work(dev->wq, &dev->neq_work);
	return IRQ_HANDLED;
}

/*
 * True if an entry waits in the queue although neither an interrupt came
 * nor anything was read since the last look.
 */
static bool ehca_eq_stuck(struct ehca_dev *dev, struct ehca_eq *eq)
{
	unsigned long irqs = atomic_long_read(&eq->irqs);
	u32 idx = READ_ONCE(eq->idx);
	bool quiet = irqs == eq->watch_irqs && idx == eq->watch_idx;
	u64 eqe;

	eq->watch_irqs = irqs;
	eq->watch_idx = idx;
	if (!ehca_eq_valid(eq, &eqe))
		return false;
	if (!eq->have_irq)
		return true;
	if (!quiet)
		return false;
	if (!eq->lost_irqs++)
		dev_warn(&dev->pdev->dev,
			 "%s interrupt %u (source %#x) was lost; going on\n",
			 eq->name, eq->virq, eq->ist);
	return true;
}

static void ehca_watch(struct work_struct *work)
{
	struct ehca_dev *dev = container_of(work, struct ehca_dev,
					    watch.work);
	unsigned int ms = dev->eq.have_irq && dev->neq.have_irq ?
			  EHCA_EQ_WATCH_MS : EHCA_EQ_POLL_MS;

	if (ehca_eq_stuck(dev, &dev->eq))
		tasklet_hi_schedule(&dev->eq_tasklet);
	if (ehca_eq_stuck(dev, &dev->neq))
		queue_work(dev->wq, &dev->neq_work);
	queue_delayed_work(dev->wq, &dev->watch, msecs_to_jiffies(ms));
}

/* Queue memory and resource of one event queue; interrupts come later. */
static int ehca_eq_create(struct ehca_dev *dev, struct ehca_eq *eq,
			  const char *name, u64 control, u32 entries)
{
	struct ehca_call c = { .in = { control, entries } };
	long rc;
	int ret;

	eq->name = name;
	eq->toggle = true;
	rc = ehca_hcall(dev, EHCA_H_ALLOC_RESOURCE, &c, 0);
	if (rc)
		return ehca_rc_to_errno(rc);
	eq->handle = c.out[EHCA_OUT_HANDLE];
	eq->ist = c.out[EHCA_OUT_EQ_IST];
	ret = ehca_queue_alloc(dev, &eq->q, (u32)c.out[EHCA_OUT_PAGES]);
	if (ret)
		goto err_free;
	/* the ring's length is that of its pages (doc 13.1) */
	eq->entries = eq->q.pages * EHCA_EQES_PER_PAGE;
	ret = ehca_queue_register(dev, &eq->q, eq->handle, EHCA_RPAGES_SQ,
				  true);
	if (ret)
		goto err_free;
	return 0;

err_free:
	/* else the adapter may write to it: keep the memory */
	if (!ehca_h_free(dev, eq->handle, false))
		ehca_queue_free(&eq->q);
	eq->handle = 0;
	return ret;
}

static void ehca_eq_irq_setup(struct ehca_dev *dev, struct ehca_eq *eq,
			      irq_handler_t handler)
{
	const char *what = "map";
	int ret = -EINVAL;

	/* the default domain is the interrupt presenter's (doc 3.3) */
	eq->virq = irq_create_mapping(NULL, eq->ist);
	if (eq->virq) {
		snprintf(eq->irq_name, sizeof(eq->irq_name), "ehca_%s@%s",
			 eq->name, dev_name(&dev->pdev->dev));
		ret = request_irq(eq->virq, handler, 0, eq->irq_name, dev);
		what = "request";
	}
	if (!ret) {
		eq->have_irq = true;
		return;
	}
	dev_warn(&dev->pdev->dev,
		 "cannot %s interrupt source %#x of the %s (%d): polling every %u ms instead; look at the machine's interrupt controller mode (ic-mode)\n",
		 what, eq->ist, eq->name, ret, EHCA_EQ_POLL_MS);
	if (eq->virq)
		irq_dispose_mapping(eq->virq);
	eq->virq = 0;
}

static void ehca_eq_irq_free(struct ehca_dev *dev, struct ehca_eq *eq)
{
	if (eq->have_irq) {
		free_irq(eq->virq, dev);
		irq_dispose_mapping(eq->virq);
	}
	eq->have_irq = false;
	eq->virq = 0;
}

static void ehca_eq_destroy(struct ehca_dev *dev, struct ehca_eq *eq)
{
	if (eq->handle && ehca_h_free(dev, eq->handle, false))
		/* the adapter may still write to it: keep the memory */
		return;
	eq->handle = 0;
	ehca_queue_free(&eq->q);
}

int ehca_eqs_create(struct ehca_dev *dev)
{
	u32 entries;
	int ret;

	spin_lock_init(&dev->kick_lock);
	INIT_LIST_HEAD(&dev->kick_list);
	tasklet_setup(&dev->eq_tasklet, ehca_eq_tasklet);
	INIT_WORK(&dev->neq_work, ehca_neq_work);
	INIT_DELAYED_WORK(&dev->watch, ehca_watch);

	dev->err_block = kzalloc(EHCA_CB_SIZE, GFP_KERNEL);
	if (!dev->err_block)
		return -ENOMEM;
	dev->wq = alloc_ordered_workqueue("ehca_%s", 0,
					  dev_name(&dev->pdev->dev));
	if (!dev->wq) {
		ret = -ENOMEM;
		goto err_block;
	}

	/* doc 9.4: room for all events that can be outstanding */
	entries = 2 * dev->lim.max_cq + 4 * dev->lim.max_qp;
	ret = ehca_eq_create(dev, &dev->eq, "eq", EHCA_ALLOC_EQ, entries);
	if (ret)
		goto err_wq;
	ret = ehca_eq_create(dev, &dev->neq, "neq", EHCA_ALLOC_NEQ,
			     EHCA_NEQ_ENTRIES);
	if (ret)
		goto err_eq;

	ehca_eq_irq_setup(dev, &dev->eq, ehca_eq_irq);
	ehca_eq_irq_setup(dev, &dev->neq, ehca_neq_irq);
	queue_delayed_work(dev->wq, &dev->watch, 0);
	return 0;

err_eq:
	ehca_eq_destroy(dev, &dev->eq);
err_wq:
	destroy_workqueue(dev->wq);
err_block:
	kfree(dev->err_block);
	return ret;
}

/* No port event reaches the core any more when this returns. */
void ehca_eqs_stop_neq(struct ehca_dev *dev)
{
	WRITE_ONCE(dev->live, false);
	flush_work(&dev->neq_work);
}

void ehca_eqs_destroy(struct ehca_dev *dev)
{
	cancel_delayed_work_sync(&dev->watch);
	ehca_eq_irq_free(dev, &dev->eq);
	ehca_eq_irq_free(dev, &dev->neq);
	tasklet_kill(&dev->eq_tasklet);
	cancel_work_sync(&dev->neq_work);
	ehca_eq_destroy(dev, &dev->eq);
	ehca_eq_destroy(dev, &dev->neq);
	destroy_workqueue(dev->wq);
	kfree(dev->err_block);
}
