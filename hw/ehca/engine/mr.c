/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Memory regions: keys and translation (interface sections 5.4, 21).
 *
 * An MR is [start, start + length) of I/O addresses under one PD, backed by a
 * list of pages of one size.  Address A is at page
 * (A - (start & ~(size - 1))) / size.  Page lists may be shared by several
 * MRs (H_REGISTER_SMR), each with its own start, rights, PD and key.
 *
 * Key: slot + 1 << 8 | 8 bits of generation.  lkey and rkey are the same
 * number (21.7: no relation is assumed); rights come from the access word.
 * Local read is always implied.
 */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

const char *ehca_key_error_name(EhcaKeyError error)
{
    static const char *const names[] = {
        [EHCA_KEY_OK] = "ok",
        [EHCA_KEY_UNKNOWN] = "unknown key",
        [EHCA_KEY_PD] = "other protection domain",
        [EHCA_KEY_RANGE] = "outside the region",
        [EHCA_KEY_ACCESS] = "access not granted",
        [EHCA_KEY_UNMAPPED] = "pages not registered",
    };

    return names[error];
}

EhcaKeyError ehca_key_check(EhcaAdapter *a, uint32_t key, uint32_t pd,
                            uint64_t va, uint64_t len, uint32_t access,
                            EhcaMr **out)
{
    uint32_t slot = (key >> 8) - 1;
    EhcaMr *mr;

    *out = NULL;
    if (slot >= a->keys.size) {
        return EHCA_KEY_UNKNOWN;
    }
    mr = a->keys.objects[slot];
    if (!mr || mr->key != key) {
        return EHCA_KEY_UNKNOWN;
    }
    if (mr->pd != pd) {
        return EHCA_KEY_PD;
    }
    if (mr->kind != EHCA_KIND_MR || !mr->pages || !mr->pages->shift ||
        mr->pages->registered != mr->pages->num_pages) {
        return EHCA_KEY_UNMAPPED;
    }
    if ((mr->access & access) != access) {
        return EHCA_KEY_ACCESS;
    }
    if (va < mr->start || va - mr->start > mr->length ||
        len > mr->length - (va - mr->start)) {
        return EHCA_KEY_RANGE;
    }
    *out = mr;
    return EHCA_KEY_OK;
}

static bool mr_copy(EhcaAdapter *a, EhcaMr *mr, uint64_t va, uint8_t *buf,
                    size_t len, bool write)
{
    uint64_t size = UINT64_C(1) << mr->pages->shift;
    uint64_t offset = va - (mr->start & ~(size - 1));

    while (len) {
        uint64_t page = offset >> mr->pages->shift;
        uint64_t in_page = offset & (size - 1);
        size_t n = size - in_page < len ? size - in_page : len;
        uint64_t addr;

        if (page >= mr->pages->num_pages) {
            return false;
        }
        addr = mr->pages->pages[page] + in_page;
        if (write ? !a->ops.dma_write(a->opaque, addr, buf, n)
                  : !a->ops.dma_read(a->opaque, addr, buf, n)) {
            return false;
        }
        buf += n;
        offset += n;
        len -= n;
    }
    return true;
}

bool ehca_mr_read(EhcaAdapter *a, EhcaMr *mr, uint64_t va, void *buf,
                  size_t len)
{
    return mr_copy(a, mr, va, buf, len, false);
}

bool ehca_mr_write(EhcaAdapter *a, EhcaMr *mr, uint64_t va, const void *buf,
                   size_t len)
{
    return mr_copy(a, mr, va, (uint8_t *)buf, len, true);
}

static void pages_unref(EhcaAdapter *a, EhcaMrPages *pages)
{
    if (pages && --pages->refs == 0) {
        a->mr_pages -= pages->num_pages;
        free(pages->pages);
        free(pages);
    }
}

void ehca_mr_destroy(EhcaAdapter *a, EhcaMr *mr)
{
    pages_unref(a, mr->pages);
    if (mr->kind == EHCA_KIND_MR) {
        a->mrs--;
    } else {
        a->mws--;
    }
    ehca_slots_give(&a->keys, mr->slot);
    free(mr);
}

static uint32_t make_key(uint32_t slot, uint32_t generation)
{
    return (slot + 1) << 8 | (generation & 0xFF);
}

static EhcaMr *mr_new(EhcaAdapter *a, EhcaKind kind)
{
    uint32_t generation;
    EhcaMr *mr;

    if (kind == EHCA_KIND_MR ? a->mrs >= a->config.max_mr
                             : a->mws >= a->config.max_mw) {
        return NULL;
    }
    mr = calloc(1, sizeof(*mr));
    if (!mr) {
        return NULL;
    }
    if (!ehca_slots_take(&a->keys, mr, &mr->slot, &generation)) {
        free(mr);
        return NULL;
    }
    mr->kind = kind;
    mr->handle = ehca_handle(kind, generation, mr->slot);
    mr->key = make_key(mr->slot, generation);
    if (kind == EHCA_KIND_MR) {
        a->mrs++;
    } else {
        a->mws++;
    }
    return mr;
}

/* A new key for the same MR: the old one is refused from now on. */
static void mr_rekey(EhcaAdapter *a, EhcaMr *mr)
{
    mr->key = make_key(mr->slot, ++a->keys.generation[mr->slot]);
}

/* Pages of @length bytes at @start (section 7); UINT64_MAX: too many. */
static uint64_t page_count(uint64_t start, uint64_t length, unsigned shift)
{
    uint64_t in_page = start & ((UINT64_C(1) << shift) - 1);
    uint64_t last;

    if (length == 0) {
        return 0;
    }
    if (__builtin_add_overflow(in_page, length - 1, &last)) {
        return UINT64_MAX;
    }
    return (last >> shift) + 1;
}

static EhcaMrPages *pages_new(EhcaAdapter *a, uint64_t count, uint8_t shift)
{
    EhcaMrPages *pages;

    if (count > a->config.max_mr_pages - a->mr_pages) {
        return NULL;
    }
    pages = calloc(1, sizeof(*pages));
    if (!pages) {
        return NULL;
    }
    pages->pages = calloc(count ? count : 1, sizeof(*pages->pages));
    if (!pages->pages) {
        free(pages);
        return NULL;
    }
    a->mr_pages += count;
    pages->num_pages = count;
    pages->refs = 1;
    pages->shift = shift;
    return pages;
}

static bool range_wraps(uint64_t start, uint64_t length)
{
    return length && start + (length - 1) < start;
}

/*
 * The unmodified driver's FMR fallback asks for page-size code 0xFD (21.5):
 * accepted, such an MR takes no pages.
 */
int64_t ehca_mr_alloc(EhcaAdapter *a, uint64_t start, uint64_t length,
                      uint32_t access, uint32_t pd, EhcaMr **out)
{
    unsigned code = access >> EHCA_MR_PGSIZE_SHIFT & EHCA_MR_PGSIZE_MASK;
    unsigned shift = code <= EHCA_MR_PGSIZE_16M ? EHCA_MR_PGSHIFT(code) : 0;
    uint64_t count = shift ? page_count(start, length, shift) : 0;
    EhcaMr *mr;

    if (range_wraps(start, length)) {
        ehca_guest_error(a, "MR of %llu bytes at 0x%llx runs over the end of "
            "the address space", (unsigned long long)length,
            (unsigned long long)start);
        return EHCA_RC_MLENGTH_PARM;
    }
    mr = mr_new(a, EHCA_KIND_MR);
    if (!mr) {
        ehca_guest_error(a, "MR: all %u are in use", a->config.max_mr);
        return EHCA_RC_NOT_ENOUGH_RESOURCES;
    }
    mr->pages = pages_new(a, count, shift);
    if (!mr->pages) {
        ehca_guest_error(a, "MR of %llu pages: %llu of the adapter's %llu are "
            "left; use larger pages or fewer regions",
            (unsigned long long)count,
            (unsigned long long)(a->config.max_mr_pages - a->mr_pages),
            (unsigned long long)a->config.max_mr_pages);
        ehca_mr_destroy(a, mr);
        return EHCA_RC_NOT_ENOUGH_RESOURCES;
    }
    mr->start = start;
    mr->length = length;
    mr->access = access;
    mr->pd = pd;
    *out = mr;
    return EHCA_RC_SUCCESS;
}

int64_t ehca_mw_alloc(EhcaAdapter *a, uint32_t pd, EhcaMr **out)
{
    EhcaMr *mr = mr_new(a, EHCA_KIND_MW);

    if (!mr) {
        ehca_guest_error(a, "MW: all %u are in use", a->config.max_mw);
        return EHCA_RC_NOT_ENOUGH_RESOURCES;
    }
    mr->pd = pd;
    *out = mr;
    return EHCA_RC_SUCCESS;
}

static int64_t add_page(EhcaAdapter *a, EhcaMrPages *pages, uint64_t addr)
{
    uint64_t size = UINT64_C(1) << pages->shift;

    if (addr & (size - 1)) {
        ehca_guest_error(a, "MR page 0x%llx is not aligned to its size %llu",
            (unsigned long long)addr, (unsigned long long)size);
        return EHCA_RC_PARAMETER;
    }
    if (!a->ops.dma_valid(a->opaque, addr, size)) {
        ehca_guest_error(a, "MR page 0x%llx of %llu bytes is not RAM",
            (unsigned long long)addr, (unsigned long long)size);
        return EHCA_RC_MEM_PARM;
    }
    pages->pages[pages->registered++] = addr;
    return EHCA_RC_SUCCESS;
}

/* Entries of a page list; all or nothing. */
static int64_t add_list(EhcaAdapter *a, EhcaMrPages *pages, uint64_t list,
                        uint64_t count)
{
    uint64_t before = pages->registered;

    if (list & (EHCA_PAGE_SIZE - 1)) {
        ehca_guest_error(a, "MR page list 0x%llx is not 4 KiB aligned",
                         (unsigned long long)list);
        return EHCA_RC_PARAMETER;
    }
    for (uint64_t i = 0; i < count; i++) {
        uint8_t entry[8];
        int64_t rc;

        if (!a->ops.dma_read(a->opaque, list + i * 8, entry, 8)) {
            ehca_guest_error(a, "MR page list 0x%llx is not RAM",
                             (unsigned long long)list);
            rc = EHCA_RC_MEM_PARM;
        } else {
            rc = add_page(a, pages, ib_get64(entry));
        }
        if (rc != EHCA_RC_SUCCESS) {
            pages->registered = before;
            return rc;
        }
    }
    return EHCA_RC_SUCCESS;
}

int64_t ehca_mr_register_pages(EhcaAdapter *a, EhcaMr *mr, unsigned code,
                               uint64_t addr, uint64_t count)
{
    EhcaMrPages *pages = mr->pages;
    int64_t rc;

    if (mr->kind != EHCA_KIND_MR || !pages || !pages->shift) {
        ehca_guest_error(a, "%s 0x%llx takes no pages",
            ehca_kind_name(mr->kind), (unsigned long long)mr->handle);
        return EHCA_RC_PARAMETER;
    }
    if (code > EHCA_MR_PGSIZE_16M ||
        EHCA_MR_PGSHIFT(code) != (unsigned)pages->shift) {
        ehca_guest_error(a, "MR 0x%llx: page size code %u is not the one it "
            "was allocated with", (unsigned long long)mr->handle, code);
        return EHCA_RC_PARAMETER;
    }
    if (count == 0 || count > EHCA_RPAGES_MAX ||
        count > pages->num_pages - pages->registered) {
        ehca_guest_error(a, "MR 0x%llx: %llu pages offered, %llu of %llu are "
            "missing, at most %u per call", (unsigned long long)mr->handle,
            (unsigned long long)count,
            (unsigned long long)(pages->num_pages - pages->registered),
            (unsigned long long)pages->num_pages, EHCA_RPAGES_MAX);
        return EHCA_RC_PARAMETER;
    }
    /* The max-MR with 16 MiB pages passes a list of one (21.3). */
    if (count == 1 &&
        !(code == EHCA_MR_PGSIZE_16M &&
          addr & ((UINT64_C(1) << pages->shift) - 1))) {
        rc = add_page(a, pages, addr);
    } else {
        rc = add_list(a, pages, addr, count);
    }
    if (rc != EHCA_RC_SUCCESS) {
        return rc;
    }
    return pages->registered == pages->num_pages ? EHCA_RC_SUCCESS
                                                 : EHCA_RC_PAGE_REGISTERED;
}

int64_t ehca_mr_share(EhcaAdapter *a, EhcaMr *original, uint64_t start,
                      uint32_t access, uint32_t pd, EhcaMr **out)
{
    EhcaMrPages *pages = original->pages;
    uint64_t in_page;
    EhcaMr *mr;

    if (original->kind != EHCA_KIND_MR || !pages || !pages->shift) {
        ehca_guest_error(a, "H_REGISTER_SMR: %s 0x%llx has no pages to share",
            ehca_kind_name(original->kind),
            (unsigned long long)original->handle);
        return EHCA_RC_RH_PARM;
    }
    in_page = (UINT64_C(1) << pages->shift) - 1;
    if ((start ^ original->start) & in_page ||
        range_wraps(start, original->length)) {
        ehca_guest_error(a, "H_REGISTER_SMR: start 0x%llx must lie in its page "
            "as the original's 0x%llx does", (unsigned long long)start,
            (unsigned long long)original->start);
        return EHCA_RC_MEM_PARM;
    }
    mr = mr_new(a, EHCA_KIND_MR);
    if (!mr) {
        ehca_guest_error(a, "MR: all %u are in use", a->config.max_mr);
        return EHCA_RC_NOT_ENOUGH_RESOURCES;
    }
    pages->refs++;
    mr->pages = pages;
    mr->start = start;
    mr->length = original->length;
    mr->access = access;
    mr->pd = pd;
    *out = mr;
    return EHCA_RC_SUCCESS;
}

/* Both forms of H_REREGISTER_PMR (8.16). */
int64_t ehca_mr_reregister(EhcaAdapter *a, EhcaMr *mr, uint64_t start,
                           uint64_t length, uint32_t access, uint32_t pd,
                           uint64_t list)
{
    unsigned code = access >> EHCA_MR_PGSIZE_SHIFT & EHCA_MR_PGSIZE_MASK;
    EhcaMrPages *pages;
    uint64_t count;
    int64_t rc;

    if (mr->kind != EHCA_KIND_MR) {
        return EHCA_RC_RH_PARM;
    }
    if (mr->pages && mr->pages->refs > 1) {
        ehca_guest_error(a, "H_REREGISTER_PMR: the pages of MR 0x%llx are "
            "shared", (unsigned long long)mr->handle);
        return EHCA_RC_MR_CONDITION;
    }
    if (list == 0 && length == 0) {
        if (mr->pages) {
            mr->pages->registered = 0;
        }
        mr->start = mr->length = 0;
        mr->access = access;
        mr->pd = pd;
        /* Nothing is in [0, 0), so the key opens nothing. */
        mr_rekey(a, mr);
        return EHCA_RC_SUCCESS;
    }
    if (code > EHCA_MR_PGSIZE_16M || range_wraps(start, length)) {
        return EHCA_RC_MEM_PARM;
    }
    count = page_count(start, length, EHCA_MR_PGSHIFT(code));
    if (count == 0 || count > EHCA_RPAGES_MAX) {
        ehca_guest_error(a, "H_REREGISTER_PMR: %llu pages, a list holds 1 to "
            "%u", (unsigned long long)count, EHCA_RPAGES_MAX);
        return EHCA_RC_MLENGTH_PARM;
    }
    pages = pages_new(a, count, EHCA_MR_PGSHIFT(code));
    if (!pages) {
        return EHCA_RC_NOT_ENOUGH_RESOURCES;
    }
    rc = add_list(a, pages, list, count);
    if (rc != EHCA_RC_SUCCESS) {
        pages_unref(a, pages);
        return rc;
    }
    pages_unref(a, mr->pages);
    mr->pages = pages;
    mr->start = start;
    mr->length = length;
    mr->access = access;
    mr->pd = pd;
    mr_rekey(a, mr);
    return EHCA_RC_SUCCESS;
}
