// SPDX-License-Identifier: GPL-2.0
/*
 * Memory regions (doc 5.4, 7, 8.17, 21).
 *
 * The max-MR covers all RAM with one linear mapping: its I/O address is the
 * kernel virtual address of the linear map, PAGE_OFFSET + physical address.
 * Physical addresses without RAM (holes between memory nodes) are filled
 * with one page that belongs to us, so that a wrong address cannot reach
 * anything else.  DMA MRs share the max-MR's pages with rights and
 * protection domain of their own (H_REGISTER_SMR); this costs one call.
 *
 * Memory that is added later is not covered, main.c refuses it.
 */
#include <linux/ioport.h>
#include <linux/memory.h>
#include <linux/mm.h>
#include <linux/slab.h>
#include <rdma/iter.h>

#include "ehca.h"

/* Pages above 1 MiB are left alone: doc 21.3 tells of their odd lists. */
static u32 ehca_best_pgcode(struct ehca_dev *dev)
{
	if (dev->pgsizes & EHCA_PGSIZE_SUP_1M)
		return EHCA_MR_PGSIZE_1M;
	if (dev->pgsizes & EHCA_PGSIZE_SUP_64K)
		return EHCA_MR_PGSIZE_64K;
	return EHCA_MR_PGSIZE_4K;
}

static u32 ehca_access(int access)
{
	u32 acl = 0;

	if (access & IB_ACCESS_LOCAL_WRITE)
		acl |= EHCA_MR_LOCAL_WRITE;
	if (access & IB_ACCESS_REMOTE_WRITE)
		acl |= EHCA_MR_REMOTE_WRITE;
	if (access & IB_ACCESS_REMOTE_READ)
		acl |= EHCA_MR_REMOTE_READ;
	if (access & IB_ACCESS_REMOTE_ATOMIC)
		acl |= EHCA_MR_REMOTE_ATOMIC;
	if (access & IB_ACCESS_MW_BIND)
		acl |= EHCA_MR_MW_BIND;
	return acl;
}

static_assert(EHCA_RPAGES_MAX * sizeof(__be64) == EHCA_CB_SIZE);

static bool ehca_access_ok(int access)
{
	/* as IBTA 11.2.8.2 and the adapter's own drivers demand */
	return !(access & (IB_ACCESS_REMOTE_WRITE | IB_ACCESS_REMOTE_ATOMIC)) ||
	       (access & IB_ACCESS_LOCAL_WRITE);
}

static long ehca_h_alloc_mr(struct ehca_dev *dev, u64 start, u64 length,
			    u32 acl, u32 pgcode, u32 pd, struct ehca_call *c)
{
	memset(c, 0, sizeof(*c));
	c->in[0] = EHCA_RT_MR;
	c->in[1] = start;
	c->in[2] = length;
	c->in[3] = (u64)(acl | pgcode << EHCA_MR_PGSIZE_SHIFT) <<
		   EHCA_MR_ACCESS_SHIFT;
	c->in[4] = pd;
	return ehca_hcall(dev, EHCA_H_ALLOC_RESOURCE, c, 0);
}

/* Collects page addresses and registers them in lists of up to 512. */
struct ehca_page_list {
	struct ehca_dev *dev;
	u64 handle;
	u32 pgcode;
	__be64 *list;
	u32 n;
	u64 left;		/* pages not registered yet */
};

static int ehca_page_list_flush(struct ehca_page_list *pl)
{
	long rc, want;

	if (!pl->n)
		return 0;
	want = pl->n == pl->left ? EHCA_RC_SUCCESS : EHCA_RC_PAGE_REGISTERED;
	rc = ehca_h_register_page(pl->dev, pl->handle, EHCA_RPAGES_SQ,
				  pl->pgcode, pl->n == 1 ?
				  be64_to_cpu(pl->list[0]) : __pa(pl->list),
				  pl->n);
	if (rc != want) {
		dev_err(&pl->dev->pdev->dev,
			"%u pages of memory region %#llx, %llu missing: firmware answered %s, expected %s\n",
			pl->n, pl->handle, pl->left - pl->n, ehca_rc_str(rc),
			ehca_rc_str(want));
		return rc < 0 ? ehca_rc_to_errno(rc) : -EIO;
	}
	pl->left -= pl->n;
	pl->n = 0;
	return 0;
}

static int ehca_page_list_add(struct ehca_page_list *pl, u64 addr)
{
	if (pl->n >= pl->left)
		return -EINVAL;
	pl->list[pl->n++] = cpu_to_be64(addr);
	return pl->n == EHCA_RPAGES_MAX || pl->n == pl->left ?
	       ehca_page_list_flush(pl) : 0;
}

/* RAM by ranges, ascending */
struct ehca_ram {
	struct ehca_page_list *pl;
	u64 next;		/* first physical address without a page yet */
	u64 end;
	u64 pgsize;
	u64 hole;
	int ret;
};

static int ehca_ram_end(unsigned long pfn, unsigned long nr, void *arg)
{
	u64 *end = arg;

	*end = max_t(u64, *end, PFN_PHYS(pfn + nr));
	return 0;
}

static int ehca_ram_until(struct ehca_ram *ram, u64 to, bool is_ram)
{
	int ret = 0;

	while (ram->next + ram->pgsize <= to && !ret) {
		ret = ehca_page_list_add(ram->pl,
					 is_ram ? ram->next : ram->hole);
		ram->next += ram->pgsize;
	}
	return ret;
}

static int ehca_ram_range(unsigned long pfn, unsigned long nr, void *arg)
{
	struct ehca_ram *ram = arg;
	/* a page that is partly RAM counts as a hole */
	u64 start = ALIGN(PFN_PHYS(pfn), ram->pgsize);

	ram->ret = ehca_ram_until(ram, start, false);
	if (!ram->ret)
		ram->ret = ehca_ram_until(ram, PFN_PHYS(pfn + nr), true);
	return ram->ret;
}

int ehca_max_mr_create(struct ehca_dev *dev)
{
	u32 pgcode = ehca_best_pgcode(dev);
	struct ehca_page_list pl = { .dev = dev, .pgcode = pgcode };
	u64 pgsize = 1ULL << EHCA_MR_PGSHIFT(pgcode);
	struct ehca_ram ram = { .pl = &pl, .pgsize = pgsize };
	struct ehca_call c;
	int ret;
	long rc;

	walk_system_ram_range(0, ULONG_MAX >> PAGE_SHIFT, &ram.end,
			      ehca_ram_end);
	ram.end = ALIGN(ram.end, pgsize);
	if (!ram.end)
		return -EINVAL;

	pl.list = kzalloc(EHCA_CB_SIZE, GFP_KERNEL);
	dev->hole_order = get_order(pgsize);
	dev->hole = alloc_pages(GFP_KERNEL | __GFP_ZERO, dev->hole_order);
	ret = ida_alloc_min(&dev->pd_ida, 1, GFP_KERNEL);
	if (ret < 0)
		goto err_mem;
	dev->max_mr_pd = ret;
	ret = -ENOMEM;
	if (!pl.list || !dev->hole)
		goto err_pd;
	ram.hole = page_to_phys(dev->hole);
	pl.left = ram.end / pgsize;

	/* its own keys are never used: no rights */
	rc = ehca_h_alloc_mr(dev, PAGE_OFFSET, ram.end, 0, pgcode,
			     dev->max_mr_pd, &c);
	ret = ehca_rc_to_errno(rc);
	if (ret)
		goto err_pd;
	dev->max_mr_handle = c.out[EHCA_OUT_HANDLE];
	dev->max_mr_size = ram.end;
	dev->max_mr_pgcode = pgcode;
	pl.handle = dev->max_mr_handle;

	walk_system_ram_range(0, ULONG_MAX >> PAGE_SHIFT, &ram,
			      ehca_ram_range);
	ret = ram.ret ?: ehca_ram_until(&ram, ram.end, false);
	if (!ret && pl.left)
		ret = -EINVAL;
	if (ret) {
		if (ehca_h_free(dev, dev->max_mr_handle, false)) {
			/* still registered: the pages must stay */
			kfree(pl.list);
			return ret;
		}
		goto err_pd;
	}
	kfree(pl.list);
	return 0;

err_pd:
	ida_free(&dev->pd_ida, dev->max_mr_pd);
err_mem:
	if (dev->hole)
		__free_pages(dev->hole, dev->hole_order);
	kfree(pl.list);
	return ret;
}

void ehca_max_mr_destroy(struct ehca_dev *dev)
{
	if (ehca_h_free(dev, dev->max_mr_handle, false))
		return;
	ida_free(&dev->pd_ida, dev->max_mr_pd);
	__free_pages(dev->hole, dev->hole_order);
}

struct ib_mr *ehca_get_dma_mr(struct ib_pd *ibpd, int access)
{
	struct ehca_dev *dev = to_edev(ibpd->device);
	struct ehca_call c = { .in = {
		dev->max_mr_handle, PAGE_OFFSET,
		(u64)(ehca_access(access) |
		      dev->max_mr_pgcode << EHCA_MR_PGSIZE_SHIFT) <<
		EHCA_MR_ACCESS_SHIFT,
		to_epd(ibpd)->value,
	} };
	struct ehca_mr *mr;
	long rc;

	if (!ehca_access_ok(access))
		return ERR_PTR(-EINVAL);
	mr = kzalloc(sizeof(*mr), GFP_KERNEL);
	if (!mr)
		return ERR_PTR(-ENOMEM);
	rc = ehca_hcall(dev, EHCA_H_REGISTER_SMR, &c, 0);
	if (rc) {
		kfree(mr);
		return ERR_PTR(ehca_rc_to_errno(rc));
	}
	mr->handle = c.out[EHCA_OUT_HANDLE];
	mr->ibmr.lkey = c.out[EHCA_OUT_LKEY];
	mr->ibmr.rkey = c.out[EHCA_OUT_RKEY];
	return &mr->ibmr;
}

static unsigned long ehca_pgsz_bitmap(struct ehca_dev *dev)
{
	unsigned long bitmap = SZ_4K;

	if (dev->pgsizes & EHCA_PGSIZE_SUP_64K)
		bitmap |= SZ_64K;
	if (dev->pgsizes & EHCA_PGSIZE_SUP_1M)
		bitmap |= SZ_1M;
	return bitmap;
}

struct ib_mr *ehca_reg_user_mr(struct ib_pd *ibpd, u64 start, u64 length,
			       u64 virt, int access, struct ib_udata *udata)
{
	struct ehca_dev *dev = to_edev(ibpd->device);
	struct ehca_page_list pl = { .dev = dev };
	struct ib_block_iter biter;
	unsigned long pgsz;
	struct ehca_call c;
	struct ehca_mr *mr;
	int ret;

	if (!ehca_access_ok(access) || !length)
		return ERR_PTR(-EINVAL);
	mr = kzalloc(sizeof(*mr), GFP_KERNEL);
	pl.list = kzalloc(EHCA_CB_SIZE, GFP_KERNEL);
	if (!mr || !pl.list) {
		ret = -ENOMEM;
		goto err_mem;
	}
	mr->umem = ib_umem_get(ibpd->device, start, length, access);
	if (IS_ERR(mr->umem)) {
		ret = PTR_ERR(mr->umem);
		goto err_mem;
	}
	pgsz = ib_umem_find_best_pgsz(mr->umem, ehca_pgsz_bitmap(dev), virt);
	if (!pgsz) {
		ret = -EINVAL;
		goto err_umem;
	}
	/* codes step by factors of 16 from 4 KiB */
	pl.pgcode = (ilog2(pgsz) - EHCA_HW_PAGE_SHIFT) / 4;
	pl.left = ib_umem_num_dma_blocks(mr->umem, pgsz);

	ret = ehca_rc_to_errno(ehca_h_alloc_mr(dev, virt, length,
					       ehca_access(access), pl.pgcode,
					       to_epd(ibpd)->value, &c));
	if (ret)
		goto err_umem;
	mr->handle = c.out[EHCA_OUT_HANDLE];
	pl.handle = mr->handle;

	rdma_umem_for_each_dma_block(mr->umem, &biter, pgsz) {
		/* without a DMA device these are kernel addresses */
		u64 va = rdma_block_iter_dma_address(&biter);

		ret = ehca_page_list_add(&pl, __pa(va));
		if (ret)
			break;
	}
	if (!ret && pl.left)
		ret = -EINVAL;
	if (ret)
		goto err_free;

	kfree(pl.list);
	mr->ibmr.lkey = c.out[EHCA_OUT_LKEY];
	mr->ibmr.rkey = c.out[EHCA_OUT_RKEY];
	mr->ibmr.length = length;
	mr->ibmr.iova = virt;
	mr->ibmr.page_size = pgsz;
	return &mr->ibmr;

err_free:
	if (ehca_h_free(dev, mr->handle, false)) {
		/* still registered: the pages must stay */
		kfree(pl.list);
		return ERR_PTR(ret);
	}
err_umem:
	ib_umem_release(mr->umem);
err_mem:
	kfree(pl.list);
	kfree(mr);
	return ERR_PTR(ret);
}

int ehca_dereg_mr(struct ib_mr *ibmr, struct ib_udata *udata)
{
	struct ehca_mr *mr = to_emr(ibmr);
	int ret;

	ret = ehca_rc_to_errno(ehca_h_free(to_edev(ibmr->device), mr->handle,
					   false));
	if (ret)
		return ret;
	ib_umem_release(mr->umem);
	kfree(mr);
	return 0;
}
