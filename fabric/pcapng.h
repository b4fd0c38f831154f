/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * pcapng blocks for InfiniBand captures (draft-ietf-opsawg-pcapng): one
 * interface per cable, link type 247 (LRH ... VCRC), nanoseconds.
 * Each function appends one block to @out.
 */
#ifndef FABRIC_PCAPNG_H
#define FABRIC_PCAPNG_H

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

#define PCAPNG_LINKTYPE_INFINIBAND 247

void pcapng_section(GByteArray *out);
void pcapng_interface(GByteArray *out, const char *name,
                      const char *description);
/*
 * @data is LRH to ICRC; the VCRC is added.  @direction: 0 or 1, shown as
 * outbound or inbound.  @comment may be NULL.
 */
void pcapng_packet(GByteArray *out, uint32_t interface, int64_t real_ns,
                   unsigned direction, const uint8_t *data, uint32_t len,
                   const char *comment);
/* Statistics of an interface: packets lost by the capture itself. */
void pcapng_statistics(GByteArray *out, uint32_t interface, int64_t real_ns,
                       uint64_t received, uint64_t dropped);

#endif
