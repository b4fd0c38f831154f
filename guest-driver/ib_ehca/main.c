// SPDX-License-Identifier: GPL-2.0
/*
 * Module, adapters and registration with the InfiniBand core.
 *
 * Distribution kernels for little-endian POWER have no ibmebus, so the
 * module looks for its adapters itself: each child of the device tree's root
 * named "lhca" and compatible with "IBM,lhca" gets a platform device and,
 * from that, an ib_device ehca0, ehca1, ...
 *
 * Probe (doc 25.1): attributes, event queues with interrupts, max-MR,
 * registration.  Registration lets the MAD layer create QP0 and QP1 of each
 * port, which activates the ports; nothing waits for that.
 */
#include <linux/memory.h>
#include <linux/module.h>
#include <linux/of.h>
#include <linux/of_platform.h>
#include <linux/slab.h>
#include <linux/utsname.h>
#include <rdma/ib_verbs.h>

#include "ehca.h"

MODULE_DESCRIPTION("Verbs driver for the IBM eHCA InfiniBand adapter");
MODULE_LICENSE("GPL");

static int ehca_query_device(struct ib_device *ibdev,
			     struct ib_device_attr *attr,
			     struct ib_udata *udata)
{
	struct ehca_dev *dev = to_edev(ibdev);
	const struct ehca_limits *lim = &dev->lim;
	static const struct {
		u64 fw;
		u64 verbs;
	} caps[] = {
		{ EHCA_CAP_AH_PORT_NR_CHECK,	IB_DEVICE_UD_AV_PORT_ENFORCE },
		{ EHCA_CAP_AUTO_PATH_MIG,	IB_DEVICE_AUTO_PATH_MIG },
		{ EHCA_CAP_BAD_P_KEY_CTR,	IB_DEVICE_BAD_PKEY_CNTR },
		{ EHCA_CAP_Q_KEY_VIOL_CTR,	IB_DEVICE_BAD_QKEY_CNTR },
		{ EHCA_CAP_CUR_QP_STATE_MOD,	IB_DEVICE_CURR_QP_STATE_MOD },
		{ EHCA_CAP_SHUTDOWN_PORT,	IB_DEVICE_SHUTDOWN_PORT },
		{ EHCA_CAP_PORT_ACTIVE_EVENT,	IB_DEVICE_PORT_ACTIVE_EVENT },
	};
	unsigned int i;

	memset(attr, 0, sizeof(*attr));
	attr->fw_ver = lim->hw_ver;
	attr->sys_image_guid = dev->node_guid;
	attr->max_mr_size = lim->max_mr_size;
	attr->page_size_cap = SZ_4K;
	if (dev->pgsizes & EHCA_PGSIZE_SUP_64K)
		attr->page_size_cap |= SZ_64K;
	if (dev->pgsizes & EHCA_PGSIZE_SUP_1M)
		attr->page_size_cap |= SZ_1M;
	attr->vendor_id = lim->vendor_id >> EHCA_VENDOR_ID_SHIFT;
	attr->vendor_part_id = lim->vendor_part_id >> EHCA_VENDOR_PART_SHIFT;
	attr->hw_ver = lim->hw_ver;
	attr->max_qp = lim->max_qp;
	attr->max_qp_wr = lim->max_wr;
	attr->device_cap_flags = IB_DEVICE_SYS_IMAGE_GUID |
				 IB_DEVICE_RC_RNR_NAK_GEN;
	for (i = 0; i < ARRAY_SIZE(caps); i++) {
		if (dev->caps & caps[i].fw)
			attr->device_cap_flags |= caps[i].verbs;
	}
	attr->max_send_sge = lim->max_sge;
	attr->max_recv_sge = lim->max_sge;
	attr->max_sge_rd = lim->max_sge_rd;
	attr->max_cq = lim->max_cq;
	attr->max_cqe = lim->max_cqe;
	attr->max_mr = lim->max_mr;
	attr->max_pd = lim->max_pd;
	attr->max_mw = lim->max_mw;
	attr->max_qp_rd_atom = lim->max_rd_atomic_resp;
	attr->max_qp_init_rd_atom = lim->max_rd_atomic_init;
	attr->max_res_rd_atom = lim->max_rd_atomic_hca;
	attr->atomic_cap = dev->caps & EHCA_CAP_ATOMIC ? IB_ATOMIC_HCA :
			   IB_ATOMIC_NONE;
	attr->max_mcast_grp = lim->max_mcast_grp;
	attr->max_mcast_qp_attach = lim->max_mcast_attach;
	attr->max_total_mcast_qp_attach = lim->max_total_mcast_attach;
	attr->max_ah = lim->max_ah;
	if (dev->caps & EHCA_CAP_SRQ) {
		attr->max_srq = lim->max_qp;
		attr->max_srq_wr = lim->max_wr;
		attr->max_srq_sge = EHCA_SRQ_MAX_SGES;
	}
	attr->max_pkeys = EHCA_PORTCB_MAX_PKEYS;
	attr->local_ca_ack_delay = lim->ack_delay;
	return 0;
}

static enum rdma_link_layer ehca_get_link_layer(struct ib_device *ibdev,
						u32 port)
{
	return IB_LINK_LAYER_INFINIBAND;
}

void ehca_get_fw_str(struct ib_device *ibdev, char *str)
{
	u32 ver = to_edev(ibdev)->lim.hw_ver;

	snprintf(str, IB_FW_VERSION_NAME_MAX, "%x.%x",
		 ver >> EHCA_HWVER_VERSION_SHIFT,
		 ver & EHCA_HWVER_REVISION_MASK);
}

/* Called by the core when it is ready for events, before its clients. */
static int ehca_enable(struct ib_device *ibdev)
{
	WRITE_ONCE(to_edev(ibdev)->live, true);
	return 0;
}

static ssize_t hw_rev_show(struct device *device,
			   struct device_attribute *attr, char *buf)
{
	struct ehca_dev *dev =
		rdma_device_to_drv_device(device, struct ehca_dev, ibdev);

	return sysfs_emit(buf, "%x\n", dev->lim.hw_ver);
}
static DEVICE_ATTR_RO(hw_rev);

static ssize_t hca_type_show(struct device *device,
			     struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "IBM,lhca\n");
}
static DEVICE_ATTR_RO(hca_type);

static ssize_t adapter_handle_show(struct device *device,
				   struct device_attribute *attr, char *buf)
{
	struct ehca_dev *dev =
		rdma_device_to_drv_device(device, struct ehca_dev, ibdev);

	return sysfs_emit(buf, "%llx\n", dev->handle);
}
static DEVICE_ATTR_RO(adapter_handle);

static struct attribute *ehca_attrs[] = {
	&dev_attr_hw_rev.attr,
	&dev_attr_hca_type.attr,
	&dev_attr_adapter_handle.attr,
	NULL,
};

static const struct attribute_group ehca_attr_group = {
	.attrs = ehca_attrs,
};

/* offered if the adapter has SRQs (doc 19.1) */
static const struct ib_device_ops ehca_srq_ops = {
	.create_srq = ehca_create_srq,
	.destroy_srq = ehca_destroy_srq,
	.modify_srq = ehca_modify_srq,
	.post_srq_recv = ehca_post_srq_recv,
	.query_srq = ehca_query_srq,

	INIT_RDMA_OBJ_SIZE(ib_srq, ehca_srq, ibsrq),
};

static const struct ib_device_ops ehca_dev_ops = {
	.owner = THIS_MODULE,
	.driver_id = RDMA_DRIVER_UNKNOWN,
	.uverbs_abi_ver = EHCA_UVERBS_ABI_VERSION,
	.device_group = &ehca_attr_group,

	.alloc_pd = ehca_alloc_pd,
	.attach_mcast = ehca_attach_mcast,
	.create_ah = ehca_create_ah,
	.create_cq = ehca_create_cq,
	.create_qp = ehca_create_qp,
	.dealloc_pd = ehca_dealloc_pd,
	.dereg_mr = ehca_dereg_mr,
	.destroy_ah = ehca_destroy_ah,
	.destroy_cq = ehca_destroy_cq,
	.destroy_qp = ehca_destroy_qp,
	.detach_mcast = ehca_detach_mcast,
	.enable_driver = ehca_enable,
	.get_dev_fw_str = ehca_get_fw_str,
	.get_dma_mr = ehca_get_dma_mr,
	.get_link_layer = ehca_get_link_layer,
	.get_port_immutable = ehca_get_port_immutable,
	.modify_port = ehca_modify_port,
	.modify_qp = ehca_modify_qp,
	.poll_cq = ehca_poll_cq,
	.post_recv = ehca_post_recv,
	.post_send = ehca_post_send,
	.process_mad = ehca_process_mad,
	.query_ah = ehca_query_ah,
	.query_device = ehca_query_device,
	.query_gid = ehca_query_gid,
	.query_pkey = ehca_query_pkey,
	.query_port = ehca_query_port,
	.query_qp = ehca_query_qp,
	.reg_user_mr = ehca_reg_user_mr,
	.req_notify_cq = ehca_req_notify_cq,

	INIT_RDMA_OBJ_SIZE(ib_ah, ehca_ah, ibah),
	INIT_RDMA_OBJ_SIZE(ib_cq, ehca_cq, ibcq),
	INIT_RDMA_OBJ_SIZE(ib_pd, ehca_pd, ibpd),
	INIT_RDMA_OBJ_SIZE(ib_qp, ehca_qp, ibqp),
};

/* The verbs have them as int: cut to 31 bits (doc 9.1). */
static u32 ehca_hca_max(const void *block, unsigned int off)
{
	return min_t(u32, get32(block, off), INT_MAX);
}

#define LIMIT(field)	ehca_hca_max(block, EHCA_HCACB_##field)

static int ehca_sense(struct ehca_dev *dev)
{
	struct device *d = &dev->pdev->dev;
	struct ehca_limits *lim = &dev->lim;
	void *block;
	u32 ports;
	long rc;
	u8 i;
	int ret = 0;

	block = kzalloc(EHCA_CB_SIZE, GFP_KERNEL);
	if (!block)
		return -ENOMEM;
	rc = ehca_h_query_hca(dev, block);
	if (rc) {
		dev_err(d, "H_QUERY_HCA answered %s: no adapter with handle %#llx\n",
			ehca_rc_str(rc), dev->handle);
		ret = -ENODEV;
		goto out;
	}

	dev->caps = get64(block, EHCA_HCACB_HCA_CAP_INDICATORS);
	dev->pgsizes = get32(block, EHCA_HCACB_MEMORY_PAGE_SIZE_SUPPORTED);
	memcpy(&dev->node_guid, block + EHCA_HCACB_NODE_GUID, 8);
	lim->max_qp = min_t(u32, LIMIT(MAX_QP), EHCA_QP_LIMIT);
	lim->max_cq = min_t(u32, LIMIT(MAX_CQ), EHCA_CQ_LIMIT);
	lim->max_mr = LIMIT(MAX_MR);
	lim->max_mw = LIMIT(MAX_MW);
	lim->max_pd = LIMIT(MAX_PD);
	lim->max_ah = LIMIT(MAX_AH);
	lim->max_cqe = LIMIT(MAX_CQE);
	/* one more than asked for is requested, in 16 bits */
	lim->max_wr = min_t(u32, LIMIT(MAX_WQES_WQ), 0xfffe);
	lim->max_sge = min_t(u32, LIMIT(MAX_SGE), EHCA_MAX_SGES_UD);
	lim->max_sge_rd = min(LIMIT(MAX_SGE_RD), lim->max_sge);
	lim->max_mcast_grp = LIMIT(MAX_MCAST_GRP);
	lim->max_mcast_attach = LIMIT(MAX_MCAST_QP_ATTACH);
	lim->max_total_mcast_attach = LIMIT(MAX_TOTAL_MCAST_QP_ATTACH);
	lim->max_rd_atomic_resp = min_t(u32, LIMIT(MAX_RR_QP), 255);
	lim->max_rd_atomic_init = min_t(u32, LIMIT(MAX_ACT_WQS_QP), 255);
	lim->max_rd_atomic_hca = LIMIT(MAX_RR_HCA);
	lim->vendor_id = get32(block, EHCA_HCACB_VENDOR_ID);
	lim->vendor_part_id = get32(block, EHCA_HCACB_VENDOR_PART_ID);
	lim->hw_ver = get32(block, EHCA_HCACB_HW_VER);
	lim->max_mr_size = get64(block, EHCA_HCACB_MAX_MR_SIZE);
	lim->ack_delay = get32(block, EHCA_HCACB_LOCAL_CA_ACK_DELAY) & 0xff;
	if (!lim->ack_delay)
		lim->ack_delay = 12;

	ports = get32(block, EHCA_HCACB_NUM_PORTS) & 0xff;
	if (ports < 1 || ports > EHCA_MAX_PORTS) {
		dev_err(d, "firmware reports %u ports, possible are 1 to %u\n",
			ports, EHCA_MAX_PORTS);
		ret = -EINVAL;
		goto out;
	}
	if (!lim->max_qp || !lim->max_cq || !lim->max_sge || !lim->max_wr) {
		dev_err(d, "firmware reports limits of zero: %u QPs, %u CQs, %u SGEs, %u work requests\n",
			lim->max_qp, lim->max_cq, lim->max_sge, lim->max_wr);
		ret = -EINVAL;
		goto out;
	}
	dev->num_ports = ports;
	for (i = 1; i <= ports && !ret; i++)
		ret = ehca_port_init(dev, i);
out:
	kfree(block);
	return ret;
}

static int ehca_probe(struct platform_device *pdev)
{
	struct ehca_dev *dev;
	struct ib_device *ibdev;
	u64 handle;
	int ret;

	if (of_property_read_u64(pdev->dev.of_node, EHCA_DT_HANDLE, &handle) ||
	    !handle) {
		dev_err(&pdev->dev, "%pOF has no " EHCA_DT_HANDLE "\n",
			pdev->dev.of_node);
		return -ENODEV;
	}

	dev = ib_alloc_device(ehca_dev, ibdev);
	if (!dev)
		return -ENOMEM;
	ibdev = &dev->ibdev;
	dev->pdev = pdev;
	dev->handle = handle;
	spin_lock_init(&dev->hcall_lock);
	xa_init_flags(&dev->cqs, XA_FLAGS_ALLOC | XA_FLAGS_LOCK_IRQ);
	xa_init_flags(&dev->qps, XA_FLAGS_ALLOC | XA_FLAGS_LOCK_IRQ);
	xa_init_flags(&dev->srqs, XA_FLAGS_LOCK_IRQ);
	ida_init(&dev->pd_ida);

	ret = ehca_sense(dev);
	if (ret)
		goto err_dealloc;
	ret = ehca_eqs_create(dev);
	if (ret)
		goto err_dealloc;
	ret = ehca_max_mr_create(dev);
	if (ret)
		goto err_eqs;

	ibdev->node_type = RDMA_NODE_IB_CA;
	ibdev->phys_port_cnt = dev->num_ports;
	ibdev->num_comp_vectors = 1;
	ibdev->node_guid = dev->node_guid;
	ibdev->dev.parent = &pdev->dev;
	/* the firmware's own, seen in the fabric, cannot be asked for */
	strscpy(ibdev->node_desc, init_utsname()->nodename,
		sizeof(ibdev->node_desc));
	ib_set_device_ops(ibdev, &ehca_dev_ops);
	if (dev->caps & EHCA_CAP_SRQ)
		ib_set_device_ops(ibdev, &ehca_srq_ops);
	platform_set_drvdata(pdev, dev);

	/* no DMA device: DMA addresses are kernel addresses, see mr.c */
	ret = ib_register_device(ibdev, "ehca%d", NULL);
	if (ret) {
		dev_err(&pdev->dev,
			"registration with the InfiniBand core failed (%d)\n",
			ret);
		goto err_mr;
	}
	ehca_debugfs_add(dev);
	dev_info(&pdev->dev, "%s: %u ports, node GUID %016llx\n",
		 dev_name(&ibdev->dev), dev->num_ports,
		 be64_to_cpu(dev->node_guid));
	return 0;

err_mr:
	ehca_eqs_stop_neq(dev);
	ehca_max_mr_destroy(dev);
err_eqs:
	ehca_eqs_destroy(dev);
err_dealloc:
	xa_destroy(&dev->cqs);
	xa_destroy(&dev->qps);
	xa_destroy(&dev->srqs);
	ida_destroy(&dev->pd_ida);
	ib_dealloc_device(ibdev);
	return ret;
}

static void ehca_remove(struct platform_device *pdev)
{
	struct ehca_dev *dev = platform_get_drvdata(pdev);

	ehca_debugfs_del(dev);
	ehca_eqs_stop_neq(dev);
	ib_unregister_device(&dev->ibdev);
	ehca_max_mr_destroy(dev);
	ehca_eqs_destroy(dev);
	xa_destroy(&dev->cqs);
	xa_destroy(&dev->qps);
	xa_destroy(&dev->srqs);
	ida_destroy(&dev->pd_ida);
	ib_dealloc_device(&dev->ibdev);
}

static const struct of_device_id ehca_of_match[] = {
	{ .name = EHCA_DT_NODE_NAME, .compatible = EHCA_DT_COMPATIBLE },
	{},
};
MODULE_DEVICE_TABLE(of, ehca_of_match);

static struct platform_driver ehca_driver = {
	.probe = ehca_probe,
	EHCA_PLATFORM_REMOVE = ehca_remove,
	.driver = {
		.name = EHCA_DRV_NAME,
		.of_match_table = ehca_of_match,
		.suppress_bind_attrs = true,
	},
};

/* The platform devices we made, to take them away again */
#define EHCA_MAX_ADAPTERS	16

static struct platform_device *ehca_adapter[EHCA_MAX_ADAPTERS];

/* The max-MR covers the RAM of probe time only (mr.c). */
static int ehca_memory_event(struct notifier_block *nb, unsigned long action,
			     void *data)
{
	if (action != MEM_GOING_ONLINE)
		return NOTIFY_OK;
	pr_err(EHCA_DRV_NAME
	       ": memory cannot be added while the adapter is in use: unload the module first\n");
	return NOTIFY_BAD;
}

static struct notifier_block ehca_memory_nb = {
	.notifier_call = ehca_memory_event,
};

static void ehca_find_adapters(void)
{
	struct device_node *root = of_find_node_by_path("/");
	struct device_node *np;
	unsigned int n = 0;

	for_each_child_of_node(root, np) {
		if (!of_node_name_eq(np, EHCA_DT_NODE_NAME) ||
		    !of_device_is_compatible(np, EHCA_DT_COMPATIBLE))
			continue;
		if (n == EHCA_MAX_ADAPTERS) {
			pr_warn(EHCA_DRV_NAME ": %pOF ignored: no more than %u adapters\n",
				np, EHCA_MAX_ADAPTERS);
			continue;
		}
		ehca_adapter[n] = of_platform_device_create(np, NULL, NULL);
		if (ehca_adapter[n])
			n++;
		else
			pr_err(EHCA_DRV_NAME ": no device for %pOF\n", np);
	}
	of_node_put(root);
	if (!n)
		pr_info(EHCA_DRV_NAME
			": no adapter in the device tree (node \"lhca\" compatible with \"IBM,lhca\")\n");
}

static void ehca_forget_adapters(void)
{
	unsigned int i;

	for (i = 0; i < EHCA_MAX_ADAPTERS; i++) {
		if (ehca_adapter[i])
			of_platform_device_destroy(&ehca_adapter[i]->dev,
						   NULL);
		ehca_adapter[i] = NULL;
	}
}

static int __init ehca_init(void)
{
	int ret;

	ehca_debugfs_init();
	ret = register_memory_notifier(&ehca_memory_nb);
	if (ret)
		goto err_debugfs;
	ret = platform_driver_register(&ehca_driver);
	if (ret)
		goto err_notifier;
	ehca_find_adapters();
	return 0;

err_notifier:
	unregister_memory_notifier(&ehca_memory_nb);
err_debugfs:
	ehca_debugfs_exit();
	return ret;
}

static void __exit ehca_exit(void)
{
	ehca_forget_adapters();
	platform_driver_unregister(&ehca_driver);
	unregister_memory_notifier(&ehca_memory_nb);
	ehca_debugfs_exit();
}

module_init(ehca_init);
module_exit(ehca_exit);
