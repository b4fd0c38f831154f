// SPDX-License-Identifier: GPL-2.0
/*
 * Hypervisor calls of the eHCA adapter (doc 4 to 8).
 *
 * ehca_hcall() is the one door to the hypervisor: it repeats calls that
 * answer "long busy", serialises calls if the adapter asks for it, counts
 * and logs failures.
 */
#include <linux/delay.h>
#include <asm/hvcall.h>

#include "ehca.h"

static const struct {
	unsigned long op;
	const char *name;
} ehca_call_names[] = {
	{ EHCA_H_RESET_EVENTS,		"H_RESET_EVENTS" },
	{ EHCA_H_ALLOC_RESOURCE,	"H_ALLOC_RESOURCE" },
	{ EHCA_H_FREE_RESOURCE,		"H_FREE_RESOURCE" },
	{ EHCA_H_MODIFY_QP,		"H_MODIFY_QP" },
	{ EHCA_H_QUERY_QP,		"H_QUERY_QP" },
	{ EHCA_H_REGISTER_SMR,		"H_REGISTER_SMR" },
	{ EHCA_H_QUERY_HCA,		"H_QUERY_HCA" },
	{ EHCA_H_QUERY_PORT,		"H_QUERY_PORT" },
	{ EHCA_H_MODIFY_PORT,		"H_MODIFY_PORT" },
	{ EHCA_H_DEFINE_AQP0,		"H_DEFINE_AQP0" },
	{ EHCA_H_DEFINE_AQP1,		"H_DEFINE_AQP1" },
	{ EHCA_H_ATTACH_MCQP,		"H_ATTACH_MCQP" },
	{ EHCA_H_DETACH_MCQP,		"H_DETACH_MCQP" },
	{ EHCA_H_REGISTER_RPAGES,	"H_REGISTER_RPAGES" },
	{ EHCA_H_DISABLE_AND_GETC,	"H_DISABLE_AND_GETC" },
	{ EHCA_H_ERROR_DATA,		"H_ERROR_DATA" },
	{ EHCA_H_GET_PERF_COUNT,	"H_GET_PERF_COUNT" },
	{ EHCA_H_QUERY_INT_STATE,	"H_QUERY_INT_STATE" },
};

static const struct {
	long rc;
	const char *name;
} ehca_rc_names[] = {
	{ EHCA_RC_SUCCESS,		"H_SUCCESS" },
	{ EHCA_RC_BUSY,			"H_BUSY" },
	{ EHCA_RC_CLOSED,		"H_CLOSED" },
	{ EHCA_RC_NOT_AVAILABLE,	"H_NOT_AVAILABLE" },
	{ EHCA_RC_CONSTRAINED,		"H_CONSTRAINED" },
	{ EHCA_RC_PARTIAL,		"H_PARTIAL" },
	{ EHCA_RC_IN_PROGRESS,		"H_IN_PROGRESS" },
	{ EHCA_RC_PAGE_REGISTERED,	"H_PAGE_REGISTERED" },
	{ EHCA_RC_HARDWARE,		"H_HARDWARE" },
	{ EHCA_RC_FUNCTION,		"H_FUNCTION" },
	{ EHCA_RC_PRIVILEGE,		"H_PRIVILEGE" },
	{ EHCA_RC_PARAMETER,		"H_PARAMETER" },
	{ EHCA_RC_NO_MEM,		"H_NO_MEM" },
	{ EHCA_RC_AUTHORITY,		"H_AUTHORITY" },
	{ EHCA_RC_PERMISSION,		"H_PERMISSION" },
	{ EHCA_RC_RESOURCE,		"H_RESOURCE" },
	{ EHCA_RC_ADAPTER_PARM,		"H_ADAPTER_PARM" },
	{ EHCA_RC_RH_PARM,		"H_RH_PARM" },
	{ EHCA_RC_RCQ_PARM,		"H_RCQ_PARM" },
	{ EHCA_RC_SCQ_PARM,		"H_SCQ_PARM" },
	{ EHCA_RC_EQ_PARM,		"H_EQ_PARM" },
	{ EHCA_RC_RT_PARM,		"H_RT_PARM" },
	{ EHCA_RC_ST_PARM,		"H_ST_PARM" },
	{ EHCA_RC_SIGT_PARM,		"H_SIGT_PARM" },
	{ EHCA_RC_TOKEN_PARM,		"H_TOKEN_PARM" },
	{ EHCA_RC_MLENGTH_PARM,		"H_MLENGTH_PARM" },
	{ EHCA_RC_MEM_PARM,		"H_MEM_PARM" },
	{ EHCA_RC_MEM_ACCESS_PARM,	"H_MEM_ACCESS_PARM" },
	{ EHCA_RC_ATTR_PARM,		"H_ATTR_PARM" },
	{ EHCA_RC_PORT_PARM,		"H_PORT_PARM" },
	{ EHCA_RC_MCG_PARM,		"H_MCG_PARM" },
	{ EHCA_RC_VL_PARM,		"H_VL_PARM" },
	{ EHCA_RC_TSIZE_PARM,		"H_TSIZE_PARM" },
	{ EHCA_RC_TRACE_PARM,		"H_TRACE_PARM" },
	{ EHCA_RC_MASK_PARM,		"H_MASK_PARM" },
	{ EHCA_RC_MCG_FULL,		"H_MCG_FULL" },
	{ EHCA_RC_ALIAS_EXIST,		"H_ALIAS_EXIST" },
	{ EHCA_RC_P_COUNTER,		"H_P_COUNTER" },
	{ EHCA_RC_TABLE_FULL,		"H_TABLE_FULL" },
	{ EHCA_RC_ALT_TABLE,		"H_ALT_TABLE" },
	{ EHCA_RC_MR_CONDITION,		"H_MR_CONDITION" },
	{ EHCA_RC_NOT_ENOUGH_RESOURCES,	"H_NOT_ENOUGH_RESOURCES" },
	{ EHCA_RC_R_STATE,		"H_R_STATE" },
	{ EHCA_RC_RESCINDED,		"H_RESCINDED" },
};

static const char *ehca_call_str(unsigned long op)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(ehca_call_names); i++) {
		if (ehca_call_names[i].op == op)
			return ehca_call_names[i].name;
	}
	return "unknown call";
}

const char *ehca_rc_str(long rc)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(ehca_rc_names); i++) {
		if (ehca_rc_names[i].rc == rc)
			return ehca_rc_names[i].name;
	}
	return "unknown code";
}

int ehca_rc_to_errno(long rc)
{
	switch (rc) {
	case EHCA_RC_SUCCESS:
		return 0;
	case EHCA_RC_BUSY:
	case EHCA_RC_RESOURCE:
	case EHCA_RC_ALIAS_EXIST:
		return -EBUSY;
	case EHCA_RC_NOT_ENOUGH_RESOURCES:
	case EHCA_RC_CONSTRAINED:
	case EHCA_RC_NO_MEM:
	case EHCA_RC_MCG_FULL:
	case EHCA_RC_TABLE_FULL:
		return -ENOMEM;
	case EHCA_RC_FUNCTION:
		return -EOPNOTSUPP;
	case EHCA_RC_HARDWARE:
		return -EIO;
	default:
		return -EINVAL;
	}
}

static unsigned int ehca_long_busy_ms(long rc)
{
	switch (rc) {
	case EHCA_RC_LONG_BUSY_1_MSEC:
		return 1;
	case EHCA_RC_LONG_BUSY_10_MSEC:
		return 10;
	case EHCA_RC_LONG_BUSY_100_MSEC:
		return 100;
	case EHCA_RC_LONG_BUSY_1_SEC:
		return 1000;
	case EHCA_RC_LONG_BUSY_10_SEC:
		return 10000;
	case EHCA_RC_LONG_BUSY_100_SEC:
		return 100000;
	default:
		return 0;
	}
}

static long ehca_hcall_raw(struct ehca_dev *dev, unsigned long op,
			   struct ehca_call *c)
{
	return plpar_hcall9(op, c->out, dev->handle, c->in[0], c->in[1],
			    c->in[2], c->in[3], c->in[4], c->in[5], c->in[6],
			    c->in[7]);
}

static long ehca_hcall_once(struct ehca_dev *dev, unsigned long op,
			    struct ehca_call *c)
{
	unsigned long flags;
	long rc;

	if (dev->caps & EHCA_CAP_H_ALLOC_RES_SYNC)
		return ehca_hcall_raw(dev, op, c);
	spin_lock_irqsave(&dev->hcall_lock, flags);
	rc = ehca_hcall_raw(dev, op, c);
	spin_unlock_irqrestore(&dev->hcall_lock, flags);
	return rc;
}

/*
 * Make a call; answers one of EHCA_RC_*.  A "long busy" is repeated up to
 * EHCA_HCALL_TRIES calls in all and is then EHCA_RC_BUSY (doc 4.1).  Where
 * we may not sleep the adapter is not allowed to answer it.
 */
long ehca_hcall(struct ehca_dev *dev, unsigned long op,
		struct ehca_call *c, unsigned int flags)
{
	unsigned int ms, tries = 0;
	long rc;

	for (;;) {
		memset(c->out, 0, sizeof(c->out));
		rc = ehca_hcall_once(dev, op, c);
		ms = ehca_long_busy_ms(rc);
		if (!ms)
			break;
		ehca_stat(dev, EHCA_STAT_HCALL_BUSY);
		rc = EHCA_RC_BUSY;
		if ((flags & EHCA_CALL_ATOMIC) || ++tries >= EHCA_HCALL_TRIES)
			break;
		msleep(ms);
	}

	if (rc < 0) {
		ehca_stat(dev, EHCA_STAT_HCALL_FAILED);
		if (!(flags & EHCA_CALL_QUIET))
			dev_err_ratelimited(&dev->pdev->dev,
					    "%s(%#llx, %#llx, %#llx, %#llx) answered %s (%ld)\n",
					    ehca_call_str(op), c->in[0],
					    c->in[1], c->in[2], c->in[3],
					    ehca_rc_str(rc), rc);
	}
	return rc;
}

long ehca_h_free(struct ehca_dev *dev, u64 handle, bool force)
{
	struct ehca_call c = { .in = { handle, force } };

	return ehca_hcall(dev, EHCA_H_FREE_RESOURCE, &c, 0);
}

long ehca_h_register_page(struct ehca_dev *dev, u64 handle, u32 qtype,
			  u32 pgcode, u64 addr, u32 count)
{
	struct ehca_call c = { .in = {
		qtype | (pgcode << EHCA_RPAGES_PGSIZE_SHIFT),
		handle, addr, count,
	} };

	return ehca_hcall(dev, EHCA_H_REGISTER_RPAGES, &c, 0);
}

long ehca_h_query_hca(struct ehca_dev *dev, void *block)
{
	struct ehca_call c = { .in = { __pa(block) } };

	return ehca_hcall(dev, EHCA_H_QUERY_HCA, &c, 0);
}

long ehca_h_query_port(struct ehca_dev *dev, u8 port, void *block)
{
	struct ehca_call c = { .in = { port, __pa(block) } };

	return ehca_hcall(dev, EHCA_H_QUERY_PORT, &c, 0);
}

long ehca_h_query_qp(struct ehca_dev *dev, u64 handle, void *block,
		     unsigned int flags)
{
	struct ehca_call c = { .in = { handle, __pa(block) } };

	return ehca_hcall(dev, EHCA_H_QUERY_QP, &c, flags);
}

long ehca_h_modify_qp(struct ehca_dev *dev, u64 handle, u64 mask,
		      const void *block)
{
	struct ehca_call c = { .in = { handle, mask, __pa(block) } };

	return ehca_hcall(dev, EHCA_H_MODIFY_QP, &c, 0);
}

long ehca_h_error_data(struct ehca_dev *dev, u64 handle, void *block)
{
	struct ehca_call c = { .in = { handle, __pa(block) } };

	return ehca_hcall(dev, EHCA_H_ERROR_DATA, &c,
			  EHCA_CALL_ATOMIC | EHCA_CALL_QUIET);
}

/* The function code comes before the handle here (doc 8.8). */
long ehca_h_getc(struct ehca_dev *dev, u64 handle, u32 function,
		 u64 *sq_addr, u64 *rq_addr, unsigned int flags)
{
	struct ehca_call c = { .in = { function, handle } };
	long rc;

	rc = ehca_hcall(dev, EHCA_H_DISABLE_AND_GETC, &c, flags);
	if (sq_addr)
		*sq_addr = c.out[0] & ~EHCA_GETC_FLAG;
	if (rq_addr)
		*rq_addr = c.out[1] & ~EHCA_GETC_FLAG;
	return rc;
}
