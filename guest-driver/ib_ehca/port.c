// SPDX-License-Identifier: GPL-2.0
/*
 * Ports: query and modify verbs, and port events (doc 8.2, 8.3, 10, 14.4).
 *
 * The firmware owns the port: its state, its subnet management agent, its
 * tables.  It tells us by notification events when a port becomes available
 * or not and when its configuration changed; what exactly changed we find by
 * comparing with what we remember in port->cfg.  Queries always ask the
 * firmware, in any port state.
 */
#include <rdma/ib_mad.h>

#include "ehca.h"

/* Capability bits a consumer may change (doc 8.3) */
#define EHCA_PORT_CAPS_CHANGEABLE \
	(IB_PORT_SM | IB_PORT_LED_INFO_SUP | IB_PORT_CM_SUP | \
	 IB_PORT_SNMP_TUNNEL_SUP | IB_PORT_DEVICE_MGMT_SUP | \
	 IB_PORT_VENDOR_CLASS_SUP)

static const char * const ehca_port_state_names[] = {
	[EHCA_PORT_STATE_NOP]		= "no state",
	[EHCA_PORT_STATE_DOWN]		= "Down",
	[EHCA_PORT_STATE_INIT]		= "Initialize",
	[EHCA_PORT_STATE_ARMED]		= "Armed",
	[EHCA_PORT_STATE_ACTIVE]	= "Active",
	[EHCA_PORT_STATE_ACTIVE_DEFER]	= "ActiveDefer",
};

static const char *ehca_port_state_str(u32 state)
{
	if (state < ARRAY_SIZE(ehca_port_state_names))
		return ehca_port_state_names[state];
	return "unknown";
}

/* A zeroed control block with the answer of H_QUERY_PORT, or an error */
static void *ehca_port_block(struct ehca_dev *dev, u8 num)
{
	void *block = kzalloc(EHCA_CB_SIZE, GFP_KERNEL);
	long rc;

	if (!block)
		return ERR_PTR(-ENOMEM);
	rc = ehca_h_query_port(dev, num, block);
	if (rc) {
		kfree(block);
		return ERR_PTR(ehca_rc_to_errno(rc) ?: -EIO);
	}
	return block;
}

static u32 ehca_block_pkey_len(const void *block)
{
	return min_t(u32, get32(block, EHCA_PORTCB_PKEY_TBL_LEN),
		     EHCA_PORTCB_MAX_PKEYS);
}

static u32 ehca_block_gid_len(const void *block)
{
	return min_t(u32, get32(block, EHCA_PORTCB_GID_TBL_LEN),
		     EHCA_PORTCB_MAX_GIDS);
}

/* doc 10.2: which field holds the port state depends on the firmware */
static bool ehca_block_has_phys(const void *block)
{
	return get32(block, EHCA_PORTCB_STATE) &&
	       get32(block, EHCA_PORTCB_PHYS_WIDTH);
}

static u32 ehca_block_state(const void *block)
{
	return get32(block, ehca_block_has_phys(block) ?
		     EHCA_PORTCB_PHYS_STATE : EHCA_PORTCB_STATE);
}

static void ehca_block_link(const void *block, u32 *width, u32 *speed)
{
	if (ehca_block_has_phys(block)) {
		*width = get32(block, EHCA_PORTCB_PHYS_WIDTH);
		*speed = get32(block, EHCA_PORTCB_PHYS_SPEED);
	} else {
		*width = EHCA_WIDTH_12X;
		*speed = EHCA_SPEED_SDR;
	}
}

static void ehca_block_to_cfg(const void *block, struct ehca_port_cfg *cfg)
{
	u32 width, speed, mult, i;

	memset(cfg, 0, sizeof(*cfg));
	cfg->lid = get32(block, EHCA_PORTCB_LID);
	cfg->lmc = get32(block, EHCA_PORTCB_LMC);
	cfg->sm_lid = get32(block, EHCA_PORTCB_SM_LID);
	cfg->sm_sl = get32(block, EHCA_PORTCB_SM_SL);
	cfg->pkey_len = ehca_block_pkey_len(block);
	for (i = 0; i < cfg->pkey_len; i++)
		cfg->pkey[i] = get16(block,
				     EHCA_PORTCB_PKEY_ENTRIES + 2 * i);

	ehca_block_link(block, &width, &speed);
	switch (width) {
	case EHCA_WIDTH_4X:
		mult = 4;
		break;
	case EHCA_WIDTH_8X:
		mult = 8;
		break;
	case EHCA_WIDTH_12X:
		mult = 12;
		break;
	default:
		mult = 1;
		break;
	}
	cfg->link_mult = min_t(u32, mult * clamp_t(u32, speed, 1, 16), 255);
	cfg->mtu = clamp_t(u32, get32(block, EHCA_PORTCB_MAX_MTU),
			   EHCA_MTU_256, EHCA_MTU_4096);
}

void ehca_port_get_cfg(struct ehca_port *port, struct ehca_port_cfg *cfg)
{
	unsigned long flags;

	spin_lock_irqsave(&port->cfg_lock, flags);
	*cfg = port->cfg;
	spin_unlock_irqrestore(&port->cfg_lock, flags);
}

/* Remember the configuration; the former one goes to @old. */
static int ehca_port_refresh(struct ehca_port *port,
			     struct ehca_port_cfg *now,
			     struct ehca_port_cfg *old)
{
	void *block = ehca_port_block(port->dev, port->num);
	unsigned long flags;

	if (IS_ERR(block))
		return PTR_ERR(block);
	ehca_block_to_cfg(block, now);
	kfree(block);
	spin_lock_irqsave(&port->cfg_lock, flags);
	*old = port->cfg;
	port->cfg = *now;
	spin_unlock_irqrestore(&port->cfg_lock, flags);
	return 0;
}

int ehca_port_init(struct ehca_dev *dev, u8 num)
{
	struct ehca_port *port = &dev->port[num - 1];
	struct ehca_port_cfg now, old;

	port->dev = dev;
	port->num = num;
	init_waitqueue_head(&port->active_wait);
	spin_lock_init(&port->cfg_lock);
	mutex_init(&port->special_lock);
	mutex_init(&port->perf_lock);
	return ehca_port_refresh(port, &now, &old);
}

static void ehca_port_tell_changes(struct ehca_port *port,
				   const struct ehca_port_cfg *now,
				   const struct ehca_port_cfg *old)
{
	struct ehca_dev *dev = port->dev;

	if (now->sm_sl != old->sm_sl || now->sm_lid != old->sm_lid)
		ehca_event(dev, IB_EVENT_SM_CHANGE, port->num);
	if (now->lid != old->lid || now->lmc != old->lmc)
		ehca_event(dev, IB_EVENT_LID_CHANGE, port->num);
	if (now->pkey_len != old->pkey_len ||
	    memcmp(now->pkey, old->pkey, sizeof(now->pkey)))
		ehca_event(dev, IB_EVENT_PKEY_CHANGE, port->num);
}

static void ehca_port_available(struct ehca_port *port, bool avail)
{
	struct ehca_port_cfg now, old;

	/* The firmware does not tell what changed while it was not Active. */
	if (avail && !ehca_port_refresh(port, &now, &old) && old.lid)
		ehca_port_tell_changes(port, &now, &old);
	WRITE_ONCE(port->active, avail);
	if (avail)
		wake_up_all(&port->active_wait);
	dev_info(&port->dev->pdev->dev, "port %u is %s\n", port->num,
		 avail ? "active" : "not available");
	ehca_event(port->dev, avail ? IB_EVENT_PORT_ACTIVE :
		   IB_EVENT_PORT_ERR, port->num);
}

static void ehca_port_config_changed(struct ehca_port *port)
{
	struct ehca_port_cfg now, old;

	if (!ehca_port_refresh(port, &now, &old))
		ehca_port_tell_changes(port, &now, &old);
}

/* A notification event with a port number (doc 14.4) */
void ehca_port_neqe(struct ehca_dev *dev, u64 neqe)
{
	u32 code = (neqe >> EHCA_EQE_ID_SHIFT) & EHCA_EQE_ID_MASK;
	u32 num = (neqe >> EHCA_NEQE_PORT_SHIFT) & EHCA_NEQE_PORT_MASK;
	u32 specific = (neqe >> EHCA_NEQE_SPECIFIC_SHIFT) &
		       EHCA_NEQE_SPECIFIC_MASK;
	struct ehca_port *port = ehca_port(dev, num);
	bool flag = neqe & EHCA_NEQE_PORT_FLAG;

	if (!port) {
		ehca_stat(dev, EHCA_STAT_NEQ_OTHER);
		dev_warn_ratelimited(&dev->pdev->dev,
				     "notification %#x for port %u ignored: the adapter has ports 1 to %u\n",
				     code, num, dev->num_ports);
		return;
	}

	switch (code) {
	case EHCA_NEQE_PORT_AVAIL:
		ehca_port_available(port, flag);
		break;
	case EHCA_NEQE_PORT_CONFIG:
		if (flag) {
			/* disruptive: as if the port had gone and come */
			ehca_port_available(port, false);
			ehca_port_available(port, true);
		} else {
			ehca_port_config_changed(port);
		}
		break;
	case EHCA_NEQE_SPECIFIC:
		if (specific == EHCA_NEQE_CLIENT_REREGISTER) {
			ehca_event(dev, IB_EVENT_CLIENT_REREGISTER, num);
			break;
		}
		ehca_stat(dev, EHCA_STAT_NEQ_OTHER);
		dev_warn_ratelimited(&dev->pdev->dev,
				     "port %u: specific event %#x is unknown\n",
				     num, specific);
		break;
	}
}

/*
 * Module option port_act_wait: let creation of QP1 wait for the port, as
 * the adapter's first drivers did.  Not needed for anything here.
 */
int ehca_port_wait_active(struct ehca_port *port, unsigned int seconds)
{
	struct ehca_dev *dev = port->dev;
	u32 state = EHCA_PORT_STATE_NOP;
	void *block;

	if (wait_event_timeout(port->active_wait, READ_ONCE(port->active),
			       (unsigned long)seconds * HZ))
		return 0;

	block = ehca_port_block(dev, port->num);
	if (!IS_ERR(block)) {
		state = ehca_block_state(block);
		kfree(block);
	}
	dev_err(&dev->pdev->dev,
		"port %u did not become Active in %u seconds (port_act_wait), it is %s: check the cable and that a subnet manager runs, or load with port_act_wait=0 to go on without\n",
		port->num, seconds, ehca_port_state_str(state));
	return -ETIMEDOUT;
}

/*
 * Static rates are inter-packet delays for the adapter (doc 22.2): with a
 * link of L and a path of P times 2.5 Gb/s, one packet time is followed by
 * about L / P - 1 idle ones.
 */
u8 ehca_port_ipd(struct ehca_port *port, u8 static_rate)
{
	int path, link;

	if (static_rate == IB_RATE_PORT_CURRENT)
		return 0;
	path = ib_rate_to_mult(static_rate);
	link = READ_ONCE(port->cfg.link_mult);
	if (path <= 0 || path >= link)
		return 0;
	return (link + path / 2) / path - 1;
}

u8 ehca_port_rate(struct ehca_port *port, u32 ipd)
{
	int link = READ_ONCE(port->cfg.link_mult);

	if (!ipd || ipd > 255)
		return IB_RATE_PORT_CURRENT;
	return mult_to_ib_rate(max(link / (int)(ipd + 1), 1));
}

int ehca_query_port(struct ib_device *ibdev, u32 num,
		    struct ib_port_attr *attr)
{
	struct ehca_dev *dev = to_edev(ibdev);
	u32 width, speed;
	void *block;

	if (!ehca_port(dev, num))
		return -EINVAL;
	block = ehca_port_block(dev, num);
	if (IS_ERR(block))
		return PTR_ERR(block);

	/* the core has zeroed attr */
	attr->state = ehca_block_state(block);
	attr->phys_state = ehca_block_has_phys(block) ?
			   get32(block, EHCA_PORTCB_PHYS_PSTATE) :
			   IB_PORT_PHYS_STATE_LINK_UP;
	ehca_block_link(block, &width, &speed);
	attr->active_width = width;
	attr->active_speed = speed;
	attr->max_mtu = get32(block, EHCA_PORTCB_MAX_MTU);
	attr->active_mtu = attr->max_mtu;
	attr->gid_tbl_len = ehca_block_gid_len(block);
	attr->pkey_tbl_len = ehca_block_pkey_len(block);
	attr->port_cap_flags = get32(block, EHCA_PORTCB_CAPABILITY_MASK);
	attr->max_msg_sz = (u32)get64(block, EHCA_PORTCB_MAX_MSG_SZ);
	if (!attr->max_msg_sz)
		attr->max_msg_sz = 0x80000000;
	attr->bad_pkey_cntr = get32(block, EHCA_PORTCB_BAD_PKEY_CNTR);
	attr->qkey_viol_cntr = get32(block, EHCA_PORTCB_QKEY_VIOL_CNTR);
	attr->lid = get32(block, EHCA_PORTCB_LID) & 0xffff;
	attr->lmc = get32(block, EHCA_PORTCB_LMC);
	attr->sm_lid = get32(block, EHCA_PORTCB_SM_LID) & 0xffff;
	attr->sm_sl = get32(block, EHCA_PORTCB_SM_SL);
	attr->subnet_timeout = get32(block, EHCA_PORTCB_SUBNET_TIMEOUT);
	attr->init_type_reply = get32(block, EHCA_PORTCB_INIT_TYPE_REPLY);
	attr->max_vl_num = get32(block, EHCA_PORTCB_VL_CAP);
	kfree(block);
	return 0;
}

int ehca_modify_port(struct ib_device *ibdev, u32 num, int mask,
		     struct ib_port_modify *props)
{
	struct ehca_dev *dev = to_edev(ibdev);
	struct ehca_port *port = ehca_port(dev, num);
	struct ehca_call c = {};
	void *block;
	u64 caps;
	long rc;

	if (!port)
		return -EINVAL;
	if ((props->set_port_cap_mask | props->clr_port_cap_mask) &
	    ~EHCA_PORT_CAPS_CHANGEABLE)
		return -EINVAL;
	if ((mask & IB_PORT_SHUTDOWN) && !(dev->caps & EHCA_CAP_SHUTDOWN_PORT))
		return -EOPNOTSUPP;
	if ((mask & IB_PORT_INIT_TYPE) && !(dev->caps & EHCA_CAP_INIT_TYPE))
		return -EOPNOTSUPP;
	if ((mask & IB_PORT_RESET_QKEY_CNTR) &&
	    !(dev->caps & EHCA_CAP_Q_KEY_VIOL_CTR))
		return -EOPNOTSUPP;

	/* one read-change-write at a time */
	mutex_lock(&port->special_lock);
	block = ehca_port_block(dev, num);
	if (IS_ERR(block)) {
		mutex_unlock(&port->special_lock);
		return PTR_ERR(block);
	}
	caps = get32(block, EHCA_PORTCB_CAPABILITY_MASK);
	kfree(block);

	caps |= props->set_port_cap_mask;
	caps &= ~(u64)props->clr_port_cap_mask;
	if (mask & IB_PORT_INIT_TYPE)
		caps |= (u64)(props->init_type & 0xf) <<
			EHCA_MODPORT_INIT_TYPE_SHIFT;
	if (mask & IB_PORT_SHUTDOWN)
		caps |= EHCA_MODPORT_SHUTDOWN;
	if (mask & IB_PORT_RESET_QKEY_CNTR)
		caps |= EHCA_MODPORT_RESET_QKEY_CNTR;
	c.in[0] = num;
	c.in[1] = caps;
	rc = ehca_hcall(dev, EHCA_H_MODIFY_PORT, &c, 0);
	mutex_unlock(&port->special_lock);
	return ehca_rc_to_errno(rc);
}

int ehca_query_gid(struct ib_device *ibdev, u32 num, int index,
		   union ib_gid *gid)
{
	struct ehca_dev *dev = to_edev(ibdev);
	void *block;
	int ret = 0;

	if (!ehca_port(dev, num) || index < 0)
		return -EINVAL;
	block = ehca_port_block(dev, num);
	if (IS_ERR(block))
		return PTR_ERR(block);
	if (index < ehca_block_gid_len(block)) {
		memcpy(gid->raw, block + EHCA_PORTCB_GID_PREFIX, 8);
		memcpy(gid->raw + 8,
		       block + EHCA_PORTCB_GUID_ENTRIES + 8 * index, 8);
	} else {
		ret = -EINVAL;
	}
	kfree(block);
	return ret;
}

int ehca_query_pkey(struct ib_device *ibdev, u32 num, u16 index, u16 *pkey)
{
	struct ehca_dev *dev = to_edev(ibdev);
	void *block;
	int ret = 0;

	if (!ehca_port(dev, num))
		return -EINVAL;
	block = ehca_port_block(dev, num);
	if (IS_ERR(block))
		return PTR_ERR(block);
	if (index < ehca_block_pkey_len(block))
		*pkey = get16(block, EHCA_PORTCB_PKEY_ENTRIES + 2 * index);
	else
		ret = -EINVAL;
	kfree(block);
	return ret;
}

int ehca_get_port_immutable(struct ib_device *ibdev, u32 num,
			    struct ib_port_immutable *imm)
{
	struct ib_port_attr attr = {};
	int ret;

	ret = ehca_query_port(ibdev, num, &attr);
	if (ret)
		return ret;
	imm->pkey_tbl_len = attr.pkey_tbl_len;
	imm->gid_tbl_len = attr.gid_tbl_len;
	imm->core_cap_flags = RDMA_CORE_PORT_IBA_IB;
	imm->max_mad_size = IB_MGMT_MAD_SIZE;
	return 0;
}
