// SPDX-License-Identifier: GPL-2.0
/*
 * Protection domains, address handles and multicast attachment.
 *
 * Protection domains and address handles are no objects of the adapter: the
 * former are numbers we choose and it compares, the latter are address
 * vectors that are copied into each UD work request (doc 2, 15.5).
 */
#include <rdma/ib_addr.h>

#include "ehca.h"

int ehca_alloc_pd(struct ib_pd *ibpd, struct ib_udata *udata)
{
	struct ehca_dev *dev = to_edev(ibpd->device);
	int id;

	id = ida_alloc_min(&dev->pd_ida, 1, GFP_KERNEL);
	if (id < 0)
		return id;
	to_epd(ibpd)->value = id;
	return 0;
}

int ehca_dealloc_pd(struct ib_pd *ibpd, struct ib_udata *udata)
{
	ida_free(&to_edev(ibpd->device)->pd_ida, to_epd(ibpd)->value);
	return 0;
}

/* May be called where sleeping is forbidden: makes no hypervisor call. */
int ehca_create_ah(struct ib_ah *ibah, struct rdma_ah_init_attr *init,
		   struct ib_udata *udata)
{
	struct ehca_dev *dev = to_edev(ibah->device);
	struct rdma_ah_attr *attr = init->ah_attr;
	struct ehca_ah *ah = to_eah(ibah);
	struct ehca_port *port;
	u32 dlid;

	port = ehca_port(dev, rdma_ah_get_port_num(attr));
	dlid = rdma_ah_get_dlid(attr);
	if (!port || attr->type != RDMA_AH_ATTR_TYPE_IB || dlid > 0xffff ||
	    rdma_ah_get_sl(attr) > 15)
		return -EINVAL;

	ah->attr = *attr;
	ah->attr.grh.sgid_attr = NULL;	/* the core keeps the reference */

	memset(ah->av, 0, sizeof(ah->av));
	put8(ah->av, EHCA_AV_SL, rdma_ah_get_sl(attr));
	put16(ah->av, EHCA_AV_DLID, dlid);
	put8(ah->av, EHCA_AV_SLID_PATH_BITS,
	     rdma_ah_get_path_bits(attr) & 0x7f);
	put8(ah->av, EHCA_AV_IPD,
	     ehca_port_ipd(port, rdma_ah_get_static_rate(attr)));
	put8(ah->av, EHCA_AV_PMTU, READ_ONCE(port->cfg.mtu));
	if (rdma_ah_get_ah_flags(attr) & IB_AH_GRH) {
		const struct ib_global_route *grh = rdma_ah_read_grh(attr);

		if (!grh->sgid_attr)
			return -EINVAL;
		put8(ah->av, EHCA_AV_LNH, EHCA_AV_LNH_GRH);
		put64(ah->av, EHCA_AV_GRH0,
		      EHCA_GRH0_IPVER << EHCA_GRH0_IPVER_SHIFT |
		      (u64)grh->traffic_class << EHCA_GRH0_TCLASS_SHIFT |
		      (grh->flow_label & EHCA_GRH0_FLOW_MASK) <<
			EHCA_GRH0_FLOW_SHIFT |
		      EHCA_GRH0_NXTHDR << EHCA_GRH0_NXTHDR_SHIFT |
		      grh->hop_limit);
		memcpy(ah->av + EHCA_AV_SGID, grh->sgid_attr->gid.raw, 16);
		memcpy(ah->av + EHCA_AV_DGID, grh->dgid.raw, 16);
	}
	return 0;
}

int ehca_query_ah(struct ib_ah *ibah, struct rdma_ah_attr *attr)
{
	*attr = to_eah(ibah)->attr;
	return 0;
}

int ehca_destroy_ah(struct ib_ah *ibah, u32 flags)
{
	return 0;
}

static int ehca_mcast(struct ib_qp *ibqp, unsigned long op,
		      union ib_gid *gid, u16 lid)
{
	struct ehca_call c = { .in = {
		to_eqp(ibqp)->handle, lid,
		/* low half first (doc 8.9) */
		be64_to_cpu(gid->global.interface_id),
		be64_to_cpu(gid->global.subnet_prefix),
	} };

	return ehca_rc_to_errno(ehca_hcall(to_edev(ibqp->device), op, &c, 0));
}

int ehca_attach_mcast(struct ib_qp *ibqp, union ib_gid *gid, u16 lid)
{
	if (ibqp->qp_type != IB_QPT_UD || gid->raw[0] != 0xff ||
	    lid < 0xc000 || lid == 0xffff)
		return -EINVAL;
	return ehca_mcast(ibqp, EHCA_H_ATTACH_MCQP, gid, lid);
}

int ehca_detach_mcast(struct ib_qp *ibqp, union ib_gid *gid, u16 lid)
{
	if (ibqp->qp_type != IB_QPT_UD)
		return -EINVAL;
	return ehca_mcast(ibqp, EHCA_H_DETACH_MCQP, gid, lid);
}
