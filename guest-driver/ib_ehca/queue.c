// SPDX-License-Identifier: GPL-2.0
/*
 * Queue memory (doc 13): one piece of kernel virtual memory, registered with
 * the adapter as single 4 KiB pages.  On kernels with 64 KiB pages each
 * kernel page gives up to 16 of them.
 */
#include <linux/mm.h>
#include <linux/vmalloc.h>

#include "ehca.h"

int ehca_queue_alloc(struct ehca_dev *dev, struct ehca_queue *q, u64 pages)
{
	u32 i;

	if (pages < 1 || pages > EHCA_MAX_QUEUE_PAGES) {
		dev_err(&dev->pdev->dev,
			"firmware wants %llu pages for a queue, allowed are 1 to %u; the queue is not created\n",
			pages, EHCA_MAX_QUEUE_PAGES);
		return -EINVAL;
	}
	q->page = kvmalloc_array(pages, sizeof(*q->page), GFP_KERNEL);
	/* zeroed, and fit to be mapped to user space */
	q->va = vmalloc_user(pages * EHCA_HW_PAGE_SIZE);
	if (!q->page || !q->va) {
		ehca_queue_free(q);
		return -ENOMEM;
	}
	q->pages = pages;
	for (i = 0; i < pages; i++) {
		void *p = q->va + (size_t)i * EHCA_HW_PAGE_SIZE;

		q->page[i] = page_to_phys(vmalloc_to_page(p)) +
			     offset_in_page(p);
	}
	return 0;
}

void ehca_queue_free(struct ehca_queue *q)
{
	kvfree(q->page);
	vfree(q->va);
	q->page = NULL;
	q->va = NULL;
	q->pages = 0;
}

/*
 * Register all pages of a queue.  @completes: the last page of this queue is
 * the last one of the whole object, which the adapter must confirm with
 * H_SUCCESS where all others are answered H_PAGE_REGISTERED (doc 7).
 */
int ehca_queue_register(struct ehca_dev *dev, struct ehca_queue *q,
			u64 handle, u32 qtype, bool completes)
{
	long rc, want;
	u32 i;

	for (i = 0; i < q->pages; i++) {
		want = completes && i == q->pages - 1 ?
		       EHCA_RC_SUCCESS : EHCA_RC_PAGE_REGISTERED;
		rc = ehca_h_register_page(dev, handle, qtype,
					  EHCA_MR_PGSIZE_4K, q->page[i], 1);
		if (rc == want)
			continue;
		dev_err(&dev->pdev->dev,
			"page %u of %u of %s queue of resource %#llx: firmware answered %s, expected %s\n",
			i + 1, q->pages, qtype == EHCA_RPAGES_RQ ? "receive" :
			"send, completion or event", handle, ehca_rc_str(rc),
			ehca_rc_str(want));
		return rc < 0 ? ehca_rc_to_errno(rc) : -EIO;
	}
	return 0;
}

/* Offset in the queue of a real address, or -1 if it lies outside */
int ehca_queue_offset(const struct ehca_queue *q, u64 addr)
{
	u64 base = addr & ~(u64)(EHCA_HW_PAGE_SIZE - 1);
	u32 i;

	for (i = 0; i < q->pages; i++) {
		if (q->page[i] == base)
			return i * EHCA_HW_PAGE_SIZE + (addr - base);
	}
	return -1;
}
