/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * pcapng blocks for InfiniBand captures (draft-ietf-opsawg-pcapng): one
 * interface per cable, nanoseconds.  Two formats:
 *
 *   ERF         link type 197, each packet behind a 16-byte header of the
 *               Extensible Record Format, type INFINIBAND.  The default: it is
 *               the way in which Wireshark and tshark know InfiniBand
 *   INFINIBAND  link type 247, the bare packet.  What libpcap defines;
 *               Wireshark 4.0 has no dissector attached to it
 *
 * Each function appends one block to @out.
 */
#ifndef FABRIC_PCAPNG_H
#define FABRIC_PCAPNG_H

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

typedef enum PcapngFormat {
    PCAPNG_ERF,
    PCAPNG_INFINIBAND,
} PcapngFormat;

/* "erf", "infiniband"; false: neither. */
bool pcapng_format_parse(const char *name, PcapngFormat *format);

void pcapng_section(GByteArray *out);
void pcapng_interface(GByteArray *out, PcapngFormat format,
                      const char *name, const char *description);
/*
 * @data is LRH to ICRC; the VCRC is added.  @direction: 0 or 1, shown as
 * outbound or inbound.  @comment may be NULL.
 */
void pcapng_packet(GByteArray *out, PcapngFormat format, uint32_t interface,
                   int64_t real_ns, unsigned direction, const uint8_t *data,
                   uint32_t len, const char *comment);
/* Statistics of an interface: packets lost by the capture itself. */
void pcapng_statistics(GByteArray *out, uint32_t interface, int64_t real_ns,
                       uint64_t received, uint64_t dropped);

#endif
