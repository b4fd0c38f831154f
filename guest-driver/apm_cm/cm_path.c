// SPDX-License-Identifier: GPL-2.0
/*
 * apm_cm: paths.  Which local port a path leaves by, and whether what a peer
 * says of its path can be.
 */
#include <rdma/ib_cache.h>

#include "cm.h"

bool cm_port_active(struct cm_device *dev, u32 port)
{
	enum ib_port_state state;

	if (!cm_dev_port(dev, port))
		return false;
	return !ib_get_cached_port_state(dev->ib, port, &state) &&
	       state == IB_PORT_ACTIVE;
}

/* The path's source GID says which local port it leaves by. */
int cm_path_init(struct cm_device *dev, const struct sa_path_rec *rec,
		 u8 timeout, struct cm_path *path)
{
	const struct ib_gid_attr *gid;
	u32 sgid_index, port;
	u8 lmc;
	int ret;

	memset(path, 0, sizeof(*path));
	if (rec->rec_type != SA_PATH_REC_TYPE_IB)
		return -EINVAL;

	gid = rdma_find_gid(dev->ib, &rec->sgid, IB_GID_TYPE_IB, NULL);
	if (IS_ERR(gid))
		return -EADDRNOTAVAIL;
	port = gid->port_num;
	sgid_index = gid->index;
	rdma_put_gid_attr(gid);
	if (!cm_dev_port(dev, port))
		return -EADDRNOTAVAIL;

	ret = ib_find_cached_pkey(dev->ib, port, be16_to_cpu(rec->pkey),
				  &path->via.pkey_index);
	if (ret)
		return -ENOKEY;
	ret = ib_get_cached_lmc(dev->ib, port, &lmc);
	if (ret)
		return ret;

	path->rec = *rec;
	path->timeout = timeout;
	path->via.port = port;
	path->via.ah.type = rdma_ah_find_type(dev->ib, port);
	rdma_ah_set_port_num(&path->via.ah, port);
	rdma_ah_set_dlid(&path->via.ah, be16_to_cpu(rec->ib.dlid));
	rdma_ah_set_sl(&path->via.ah, rec->sl);
	rdma_ah_set_path_bits(&path->via.ah,
			      be16_to_cpu(rec->ib.slid) & ((1 << lmc) - 1));
	rdma_ah_set_static_rate(&path->via.ah, rec->rate);
	if (rec->hop_limit > 1) {
		union ib_gid dgid = rec->dgid;

		rdma_ah_set_grh(&path->via.ah, &dgid,
				be32_to_cpu(rec->flow_label), sgid_index,
				rec->hop_limit, rec->traffic_class);
	}
	path->valid = true;
	return 0;
}

bool cm_same_path(const struct cm_path *a, const struct cm_path *b)
{
	return !memcmp(&a->rec.sgid, &b->rec.sgid, sizeof(a->rec.sgid)) &&
	       !memcmp(&a->rec.dgid, &b->rec.dgid, sizeof(a->rec.dgid)) &&
	       a->rec.ib.slid == b->rec.ib.slid &&
	       a->rec.ib.dlid == b->rec.ib.dlid;
}

/*
 * IBTA 12.7.21 and 12.9.10: hop limits above 1 carry no LIDs.  The way to the
 * router is that by which the message came; our end is the port with the path's
 * GID, which need not be the one the message came in by.
 */
static void cm_fix_routed(struct cm_rx *rx, struct sa_path_rec *rec)
{
	const struct ib_gid_attr *gid;
	struct ib_port_attr attr;

	rec->ib.dlid = cpu_to_be16(rdma_ah_get_dlid(&rx->via.ah));
	rec->sl = rdma_ah_get_sl(&rx->via.ah);
	gid = rdma_find_gid(rx->dev->ib, &rec->sgid, IB_GID_TYPE_IB, NULL);
	if (IS_ERR(gid))
		return;			/* refused for its GID */
	if (!ib_query_port(rx->dev->ib, gid->port_num, &attr))
		rec->ib.slid = cpu_to_be16(attr.lid);
	rdma_put_gid_attr(gid);
}

static bool cm_lid_is_unicast(__be16 lid)
{
	return lid && be16_to_cpu(lid) < be16_to_cpu(IB_MULTICAST_LID_BASE);
}

/* The path's source LID must be one of its port's; that of other ports too */
static bool cm_lid_is_ours(struct cm_device *dev, const struct cm_path *path,
			   __be16 *right)
{
	struct ib_port_attr attr;
	u32 lid = be16_to_cpu(path->rec.ib.slid);

	if (ib_query_port(dev->ib, path->via.port, &attr))
		return false;
	*right = cpu_to_be16(attr.lid);
	return lid >= attr.lid && lid < attr.lid + (1U << attr.lmc);
}

static bool cm_rate_known(u8 rate)
{
	return rate == IB_RATE_PORT_CURRENT || ib_rate_to_mbps(rate) > 0;
}

/*
 * The one door for paths that peers name, in REQ and LAP: @rec to @path, or
 * what cannot be.  @hint: what would have been right; for a GID that of port
 * @hint_port.
 */
enum cm_path_fault cm_path_from_peer(struct cm_rx *rx, struct sa_path_rec *rec,
				     bool routed, u8 timeout, u32 hint_port,
				     struct cm_path *path,
				     struct cm_path_hint *hint)
{
	int ret;

	memset(hint, 0, sizeof(*hint));
	if (routed)
		cm_fix_routed(rx, rec);
	ret = cm_path_init(rx->dev, rec, timeout, path);
	if (ret == -ENOKEY)
		return CM_PATH_BAD_PKEY;
	if (ret) {
		if (!rdma_query_gid(rx->dev->ib, hint_port, 0, &hint->gid))
			hint->len = sizeof(hint->gid);
		return CM_PATH_BAD_GID;
	}
	/* The peer's own is where our messages and packets will go to. */
	if (!cm_lid_is_unicast(rec->ib.dlid))
		return CM_PATH_BAD_LID;
	if (!cm_lid_is_unicast(rec->ib.slid) ||
	    !cm_lid_is_ours(rx->dev, path, &hint->lid)) {
		hint->len = sizeof(hint->lid);
		return CM_PATH_BAD_LID;
	}
	if (!cm_rate_known(rec->rate))
		return CM_PATH_BAD_RATE;
	return CM_PATH_GOOD;
}

bool cm_apm_supported(struct cm_device *dev, u32 port)
{
	struct ib_port_attr attr;

	return !ib_query_port(dev->ib, port, &attr) &&
	       (attr.port_cap_flags & IB_PORT_AUTO_MIGR_SUP);
}
