// SPDX-License-Identifier: GPL-2.0
/*
 * MADs answered by the driver: the core calls process_mad for what arrives
 * on QP1, for SMPs a local user sends to this node, and for the counter
 * files in sysfs (then without a work completion).
 *
 * Performance management (IBTA vol 1, chapter 16.1).  The firmware has the
 * counters and hands them out with H_GET_PERF_COUNT in any port state, so
 * the files work with no cable, no LID and no subnet manager.  Its counters
 * are never reset; a Set is kept as a base that is subtracted.  Firmware
 * without that call answers PMA queries on a QP of its own: we then redirect
 * requesters to it (doc 22.4).
 *
 * Subnet management (chapter 14).  The firmware owns the agent; here are
 * only the Gets which tools send to their own node (as in smpquery -D 0).
 * A Set from a local user is refused.
 */
#include <rdma/ib_mad.h>
#include <rdma/ib_pma.h>
#include <rdma/ib_smi.h>

#include "ehca.h"

#define EHCA_MAD_BAD_VERSION	cpu_to_be16(0x0004)
#define EHCA_MAD_BAD_METHOD	cpu_to_be16(0x0008)
#define EHCA_MAD_BAD_ATTR	cpu_to_be16(0x000c)
#define EHCA_MAD_BAD_FIELD	cpu_to_be16(0x001c)
#define EHCA_MAD_REDIRECT	cpu_to_be16(0x0002)

#define EHCA_PMA_RESP_TIME	18
#define EHCA_REPLY		(IB_MAD_RESULT_SUCCESS | IB_MAD_RESULT_REPLY)

#define PERF(off)		EHCA_PERF_IDX(EHCA_PERF_##off)

/* Fetch the raw counters of a port; perf_lock held */
static long ehca_perf_read(struct ehca_port *port, u64 *val)
{
	struct ehca_dev *dev = port->dev;
	struct ehca_call c = {};
	u32 version;
	void *block;
	long rc;
	u32 i;

	block = kzalloc(EHCA_CB_SIZE, GFP_KERNEL);
	if (!block)
		return EHCA_RC_NO_MEM;
	c.in[0] = port->num;
	c.in[1] = __pa(block);
	rc = ehca_hcall(dev, EHCA_H_GET_PERF_COUNT, &c, EHCA_CALL_QUIET);
	if (rc)
		goto out;
	version = get32(block, EHCA_PERF_VERSION);
	if (version != EHCA_PERF_VERSION_1) {
		dev_err_once(&dev->pdev->dev,
			     "H_GET_PERF_COUNT returned block version %u, known is %u: port counters are not available\n",
			     version, EHCA_PERF_VERSION_1);
		rc = EHCA_RC_PARAMETER;
		goto out;
	}
	for (i = 0; i < EHCA_PERF_NR; i++)
		val[i] = get64(block, EHCA_PERF_SYMBOL_ERROR + 8 * i);
out:
	kfree(block);
	return rc;
}

static u32 ehca_sat(u64 val, unsigned int bits)
{
	u64 max = (1ULL << bits) - 1;

	return min(val, max);
}

/* PortCounters, chapter 16.1.3.5: counters stick at their maximum */
static void ehca_pma_fill(struct ib_pma_portcounters *pc, const u64 *c)
{
	pc->symbol_error_counter =
		cpu_to_be16(ehca_sat(c[PERF(SYMBOL_ERROR)], 16));
	pc->link_error_recovery_counter =
		ehca_sat(c[PERF(LINK_ERROR_RECOVERY)], 8);
	pc->link_downed_counter = ehca_sat(c[PERF(LINK_DOWNED)], 8);
	pc->port_rcv_errors = cpu_to_be16(ehca_sat(c[PERF(RCV_ERRORS)], 16));
	pc->port_rcv_remphys_errors =
		cpu_to_be16(ehca_sat(c[PERF(RCV_REMOTE_PHYSICAL_ERRORS)], 16));
	pc->port_rcv_switch_relay_errors =
		cpu_to_be16(ehca_sat(c[PERF(RCV_SWITCH_RELAY_ERRORS)], 16));
	pc->port_xmit_discards =
		cpu_to_be16(ehca_sat(c[PERF(XMIT_DISCARDS)], 16));
	pc->port_xmit_constraint_errors =
		ehca_sat(c[PERF(XMIT_CONSTRAINT_ERRORS)], 8);
	pc->port_rcv_constraint_errors =
		ehca_sat(c[PERF(RCV_CONSTRAINT_ERRORS)], 8);
	pc->link_overrun_errors =
		ehca_sat(c[PERF(LOCAL_LINK_INTEGRITY_ERRORS)], 4) << 4 |
		ehca_sat(c[PERF(EXCESSIVE_BUFFER_OVERRUN_ERRORS)], 4);
	pc->vl15_dropped = cpu_to_be16(ehca_sat(c[PERF(VL15_DROPPED)], 16));
	pc->port_xmit_data = cpu_to_be32(ehca_sat(c[PERF(XMIT_DATA)], 32));
	pc->port_rcv_data = cpu_to_be32(ehca_sat(c[PERF(RCV_DATA)], 32));
	pc->port_xmit_packets = cpu_to_be32(ehca_sat(c[PERF(XMIT_PKTS)], 32));
	pc->port_rcv_packets = cpu_to_be32(ehca_sat(c[PERF(RCV_PKTS)], 32));
	pc->port_xmit_wait = cpu_to_be32(ehca_sat(c[PERF(XMIT_WAIT)], 32));
}

/* PortCountersExtended, chapter 16.1.4.11 */
static void ehca_pma_fill_ext(struct ib_pma_portcounters_ext *pc,
			      const u64 *c)
{
	pc->port_xmit_data = cpu_to_be64(c[PERF(XMIT_DATA)]);
	pc->port_rcv_data = cpu_to_be64(c[PERF(RCV_DATA)]);
	pc->port_xmit_packets = cpu_to_be64(c[PERF(XMIT_PKTS)]);
	pc->port_rcv_packets = cpu_to_be64(c[PERF(RCV_PKTS)]);
	pc->port_unicast_xmit_packets =
		cpu_to_be64(c[PERF(UNICAST_XMIT_PKTS)]);
	pc->port_unicast_rcv_packets = cpu_to_be64(c[PERF(UNICAST_RCV_PKTS)]);
	pc->port_multicast_xmit_packets =
		cpu_to_be64(c[PERF(MULTICAST_XMIT_PKTS)]);
	pc->port_multicast_rcv_packets =
		cpu_to_be64(c[PERF(MULTICAST_RCV_PKTS)]);
}

/* Counters by bit of CounterSelect of the two attributes */
static const u8 ehca_pma_select[16] = {
	PERF(SYMBOL_ERROR), PERF(LINK_ERROR_RECOVERY), PERF(LINK_DOWNED),
	PERF(RCV_ERRORS), PERF(RCV_REMOTE_PHYSICAL_ERRORS),
	PERF(RCV_SWITCH_RELAY_ERRORS), PERF(XMIT_DISCARDS),
	PERF(XMIT_CONSTRAINT_ERRORS), PERF(RCV_CONSTRAINT_ERRORS),
	PERF(LOCAL_LINK_INTEGRITY_ERRORS),
	PERF(EXCESSIVE_BUFFER_OVERRUN_ERRORS), PERF(VL15_DROPPED),
	PERF(XMIT_DATA), PERF(RCV_DATA), PERF(XMIT_PKTS), PERF(RCV_PKTS),
};

static const u8 ehca_pma_select_ext[8] = {
	PERF(XMIT_DATA), PERF(RCV_DATA), PERF(XMIT_PKTS), PERF(RCV_PKTS),
	PERF(UNICAST_XMIT_PKTS), PERF(UNICAST_RCV_PKTS),
	PERF(MULTICAST_XMIT_PKTS), PERF(MULTICAST_RCV_PKTS),
};

static void ehca_pma_clear(struct ehca_port *port, const u64 *raw,
			   u16 select, const u8 *map, unsigned int n)
{
	unsigned int i;

	for (i = 0; i < n; i++) {
		if (select & (1 << i))
			port->perf_base[map[i]] = raw[map[i]];
	}
}

static int ehca_pma_counters(struct ehca_dev *dev, struct ib_pma_mad *pm,
			     bool set)
{
	bool ext = pm->mad_hdr.attr_id == IB_PMA_PORT_COUNTERS_EXT;
	/* both attributes begin alike */
	struct ib_pma_portcounters *pc = (void *)pm->data;
	struct ehca_port *port = ehca_port(dev, pc->port_select);
	u16 select = be16_to_cpu(pc->counter_select);
	u64 raw[EHCA_PERF_NR], val[EHCA_PERF_NR];
	unsigned int i;
	long rc;

	if (!port || pm->mad_hdr.attr_mod) {
		pm->mad_hdr.status = EHCA_MAD_BAD_FIELD;
		return EHCA_REPLY;
	}

	mutex_lock(&port->perf_lock);
	rc = ehca_perf_read(port, raw);
	if (rc) {
		mutex_unlock(&port->perf_lock);
		return IB_MAD_RESULT_FAILURE;
	}
	if (set && ext)
		ehca_pma_clear(port, raw, select, ehca_pma_select_ext,
			       ARRAY_SIZE(ehca_pma_select_ext));
	else if (set)
		ehca_pma_clear(port, raw, select, ehca_pma_select,
			       ARRAY_SIZE(ehca_pma_select));
	/* CounterSelect2, bit 0 is PortXmitWait (first byte of reserved1) */
	if (set && !ext && (pc->reserved1 & 1))
		port->perf_base[PERF(XMIT_WAIT)] = raw[PERF(XMIT_WAIT)];
	for (i = 0; i < EHCA_PERF_NR; i++) {
		/* after a reset of the adapter the base is too high */
		if (raw[i] < port->perf_base[i])
			port->perf_base[i] = 0;
		val[i] = raw[i] - port->perf_base[i];
	}
	mutex_unlock(&port->perf_lock);

	memset(pm->data, 0, sizeof(pm->data));
	pc->port_select = port->num;
	pc->counter_select = cpu_to_be16(select);
	if (ext)
		ehca_pma_fill_ext((void *)pm->data, val);
	else
		ehca_pma_fill(pc, val);
	return EHCA_REPLY;
}

static bool ehca_perf_works(struct ehca_port *port)
{
	u64 raw[EHCA_PERF_NR];
	long rc;

	mutex_lock(&port->perf_lock);
	rc = ehca_perf_read(port, raw);
	mutex_unlock(&port->perf_lock);
	return !rc;
}

/* The firmware answers on a QP of its own: send the requester there. */
static int ehca_pma_redirect(struct ehca_port *port, const struct ib_wc *wc,
			     const struct ib_grh *grh, struct ib_pma_mad *pm)
{
	struct ib_class_port_info *cpi = (void *)pm->data;
	struct ehca_port_cfg cfg;
	u32 vtf = 0;

	if (!wc)
		return IB_MAD_RESULT_FAILURE;
	ehca_port_get_cfg(port, &cfg);
	memset(pm->data, 0, sizeof(pm->data));
	if (grh) {
		memcpy(cpi->redirect_gid, grh->dgid.raw, 16);
		vtf = be32_to_cpu(grh->version_tclass_flow);
	}
	cpi->base_version = 1;
	cpi->class_version = 1;
	ib_set_cpi_resp_time(cpi, EHCA_PMA_RESP_TIME);
	cpi->redirect_tcslfl = cpu_to_be32((vtf >> 20 & 0xff) << 24 |
					   (wc->sl & 0xf) << 20 |
					   (vtf & 0xfffff));
	cpi->redirect_lid = cpu_to_be16(cfg.lid | wc->dlid_path_bits);
	if (wc->pkey_index < cfg.pkey_len)
		cpi->redirect_pkey = cpu_to_be16(cfg.pkey[wc->pkey_index]);
	cpi->redirect_qp = cpu_to_be32(port->pma_qpn);
	cpi->redirect_qkey = cpu_to_be32(IB_QP1_QKEY);
	pm->mad_hdr.attr_id = IB_MGMT_CLASSPORTINFO_ATTR_ID;
	pm->mad_hdr.status = EHCA_MAD_REDIRECT;
	return EHCA_REPLY;
}

static int ehca_pma(struct ehca_port *port, const struct ib_wc *wc,
		    const struct ib_grh *grh, struct ib_pma_mad *pm)
{
	struct ib_class_port_info *cpi = (void *)pm->data;
	u8 method = pm->mad_hdr.method;
	bool set = method == IB_MGMT_METHOD_SET;
	int ret;

	if (method & IB_MGMT_METHOD_RESP || method == IB_MGMT_METHOD_TRAP_REPRESS)
		return IB_MAD_RESULT_SUCCESS;	/* for whoever asked */

	pm->mad_hdr.method = IB_MGMT_METHOD_GET_RESP;
	pm->mad_hdr.status = 0;
	if (pm->mad_hdr.class_version != 1) {
		pm->mad_hdr.status = EHCA_MAD_BAD_VERSION;
		return EHCA_REPLY;
	}
	if (method != IB_MGMT_METHOD_GET && !set) {
		pm->mad_hdr.status = EHCA_MAD_BAD_METHOD;
		return EHCA_REPLY;
	}

	switch (pm->mad_hdr.attr_id) {
	case IB_PMA_PORT_COUNTERS:
	case IB_PMA_PORT_COUNTERS_EXT:
		ret = ehca_pma_counters(port->dev, pm, set);
		if (ret == IB_MAD_RESULT_FAILURE)
			ret = ehca_pma_redirect(port, wc, grh, pm);
		return ret;
	case IB_PMA_CLASS_PORT_INFO:
		if (!ehca_perf_works(port))
			return ehca_pma_redirect(port, wc, grh, pm);
		if (set)
			break;
		memset(pm->data, 0, sizeof(pm->data));
		cpi->base_version = 1;
		cpi->class_version = 1;
		cpi->capability_mask = IB_PMA_CLASS_CAP_EXT_WIDTH |
				       IB_PMA_CLASS_CAP_XMIT_WAIT;
		ib_set_cpi_resp_time(cpi, EHCA_PMA_RESP_TIME);
		return EHCA_REPLY;
	}
	pm->mad_hdr.status = EHCA_MAD_BAD_ATTR;
	return EHCA_REPLY;
}

static void ehca_smp_node_info(struct ehca_dev *dev, u8 num,
			       const void *block, struct ib_smp *smp)
{
	struct ib_node_info *ni = (void *)smp->data;

	memset(smp->data, 0, sizeof(smp->data));
	ni->base_version = 1;
	ni->class_version = 1;
	ni->node_type = 1;	/* channel adapter */
	ni->num_ports = dev->num_ports;
	ni->sys_guid = dev->ibdev.attrs.sys_image_guid;
	ni->node_guid = dev->node_guid;
	memcpy(&ni->port_guid, block + EHCA_PORTCB_GUID_ENTRIES, 8);
	ni->partition_cap = cpu_to_be16(get32(block,
					      EHCA_PORTCB_PKEY_TBL_LEN));
	ni->device_id = cpu_to_be16(dev->ibdev.attrs.vendor_part_id);
	ni->revision = cpu_to_be32(dev->lim.hw_ver);
	ni->local_port_num = num;
	ni->vendor_id[0] = dev->ibdev.attrs.vendor_id >> 16;
	ni->vendor_id[1] = dev->ibdev.attrs.vendor_id >> 8;
	ni->vendor_id[2] = dev->ibdev.attrs.vendor_id;
}

/* As much of PortInfo as H_QUERY_PORT tells; the M_Key is never shown. */
static int ehca_smp_port_info(struct ehca_dev *dev, u8 num,
			      struct ib_smp *smp)
{
	struct ib_port_info *pi = (void *)smp->data;
	u32 mod = be32_to_cpu(smp->attr_mod) & 0xff;
	struct ib_port_attr attr = {};
	union ib_gid gid;
	u32 asked = mod ?: num;

	if (!ehca_port(dev, asked) ||
	    ehca_query_port(&dev->ibdev, asked, &attr) ||
	    ehca_query_gid(&dev->ibdev, asked, 0, &gid))
		return -EINVAL;

	memset(smp->data, 0, sizeof(smp->data));
	pi->gid_prefix = gid.global.subnet_prefix;
	pi->lid = cpu_to_be16(attr.lid);
	pi->sm_lid = cpu_to_be16(attr.sm_lid);
	pi->cap_mask = cpu_to_be32(attr.port_cap_flags);
	pi->local_port_num = num;
	pi->link_width_enabled = attr.active_width;
	pi->link_width_supported = attr.active_width;
	pi->link_width_active = attr.active_width;
	pi->linkspeed_portstate = (attr.active_speed & 0xf) << 4 |
				  (attr.state & 0xf);
	pi->portphysstate_linkdown = (attr.phys_state & 0xf) << 4 | 2;
	pi->mkeyprot_resv_lmc = attr.lmc & 7;
	pi->linkspeedactive_enabled = (attr.active_speed & 0xf) << 4 |
				      (attr.active_speed & 0xf);
	pi->neighbormtu_mastersmsl = (attr.active_mtu & 0xf) << 4 |
				     (attr.sm_sl & 0xf);
	pi->vlcap_inittype = (attr.max_vl_num & 0xf) << 4;
	pi->inittypereply_mtucap = (attr.init_type_reply & 0xf) << 4 |
				   (attr.max_mtu & 0xf);
	pi->operationalvl_pei_peo_fpi_fpo = (attr.max_vl_num & 0xf) << 4;
	pi->pkey_violations = cpu_to_be16(ehca_sat(attr.bad_pkey_cntr, 16));
	pi->qkey_violations = cpu_to_be16(ehca_sat(attr.qkey_viol_cntr, 16));
	pi->guid_cap = min(attr.gid_tbl_len, 255);
	pi->clientrereg_resv_subnetto = attr.subnet_timeout & 0x1f;
	pi->resv_resptimevalue = EHCA_PMA_RESP_TIME;
	return 0;
}

static int ehca_smp_get(struct ehca_dev *dev, u8 num, struct ib_smp *smp)
{
	u32 mod = be32_to_cpu(smp->attr_mod);
	u32 first, len, i;
	void *block;
	long rc;
	int ret = 0;

	block = kzalloc(EHCA_CB_SIZE, GFP_KERNEL);
	if (!block)
		return -ENOMEM;
	rc = ehca_h_query_port(dev, num, block);
	if (rc) {
		kfree(block);
		return -EIO;
	}

	switch (smp->attr_id) {
	case IB_SMP_ATTR_NODE_DESC:
		memset(smp->data, 0, sizeof(smp->data));
		memcpy(smp->data, dev->ibdev.node_desc,
		       min_t(size_t, sizeof(smp->data),
			     IB_DEVICE_NODE_DESC_MAX));
		break;
	case IB_SMP_ATTR_NODE_INFO:
		ehca_smp_node_info(dev, num, block, smp);
		break;
	case IB_SMP_ATTR_PORT_INFO:
		ret = ehca_smp_port_info(dev, num, smp);
		break;
	case IB_SMP_ATTR_PKEY_TABLE:
		first = (mod & 0xffff) * 32;
		len = min_t(u32, get32(block, EHCA_PORTCB_PKEY_TBL_LEN),
			    EHCA_PORTCB_MAX_PKEYS);
		if (first >= len) {
			ret = -EINVAL;
			break;
		}
		memset(smp->data, 0, sizeof(smp->data));
		memcpy(smp->data, block + EHCA_PORTCB_PKEY_ENTRIES, 2 * len);
		break;
	case IB_SMP_ATTR_GUID_INFO:
		len = min_t(u32, get32(block, EHCA_PORTCB_GID_TBL_LEN),
			    EHCA_PORTCB_MAX_GIDS);
		if (mod >= DIV_ROUND_UP(len, 8)) {
			ret = -EINVAL;
			break;
		}
		memset(smp->data, 0, sizeof(smp->data));
		for (i = 0; i < 8 && mod * 8 + i < len; i++)
			memcpy(smp->data + 8 * i,
			       block + EHCA_PORTCB_GUID_ENTRIES +
			       8 * (mod * 8 + i), 8);
		break;
	default:
		ret = -EOPNOTSUPP;
	}
	kfree(block);
	return ret;
}

static int ehca_smp(struct ehca_port *port, struct ib_smp *smp)
{
	__be16 direction = 0;
	int ret = -EOPNOTSUPP;

	if (smp->method != IB_MGMT_METHOD_GET &&
	    smp->method != IB_MGMT_METHOD_SET)
		return IB_MAD_RESULT_SUCCESS;	/* traps, responses */

	if (smp->mgmt_class == IB_MGMT_CLASS_SUBN_DIRECTED_ROUTE)
		direction = IB_SMP_DIRECTION;
	if (smp->class_version != 1) {
		smp->method = IB_MGMT_METHOD_GET_RESP;
		smp->status = EHCA_MAD_BAD_VERSION | direction;
		return EHCA_REPLY;
	}
	/* SMInfo belongs to a subnet manager in user space, if one runs */
	if (smp->attr_id == IB_SMP_ATTR_SM_INFO)
		return IB_MAD_RESULT_SUCCESS;

	if (smp->method == IB_MGMT_METHOD_GET)
		ret = ehca_smp_get(port->dev, port->num, smp);
	smp->method = IB_MGMT_METHOD_GET_RESP;
	switch (ret) {
	case 0:
		smp->status = direction;
		break;
	case -EOPNOTSUPP:
		smp->status = EHCA_MAD_BAD_ATTR | direction;
		break;
	case -EINVAL:
		smp->status = EHCA_MAD_BAD_FIELD | direction;
		break;
	default:
		return IB_MAD_RESULT_FAILURE;
	}
	return EHCA_REPLY;
}

int ehca_process_mad(struct ib_device *ibdev, int flags, u32 port_num,
		     const struct ib_wc *in_wc, const struct ib_grh *in_grh,
		     const struct ib_mad *in, struct ib_mad *out,
		     size_t *out_size, u16 *out_pkey_index)
{
	struct ehca_port *port = ehca_port(to_edev(ibdev), port_num);

	if (!port)
		return IB_MAD_RESULT_FAILURE;

	switch (in->mad_hdr.mgmt_class) {
	case IB_MGMT_CLASS_PERF_MGMT:
		*out = *in;
		return ehca_pma(port, in_wc, in_grh, (void *)out);
	case IB_MGMT_CLASS_SUBN_LID_ROUTED:
	case IB_MGMT_CLASS_SUBN_DIRECTED_ROUTE:
		*out = *in;
		return ehca_smp(port, (void *)out);
	default:
		return IB_MAD_RESULT_SUCCESS;
	}
}
