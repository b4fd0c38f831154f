/* SPDX-License-Identifier: GPL-2.0-or-later */
/* pcapng blocks, in the byte order of this host as the format allows. */
#include <string.h>

#include "fabric/pcapng.h"
#include "ib/bytes.h"
#include "ib/packet.h"

enum {
    BLOCK_SECTION = 0x0A0D0D0A, BLOCK_INTERFACE = 1, BLOCK_STATISTICS = 5,
    BLOCK_PACKET = 6,
};

#define BYTE_ORDER_MAGIC 0x1A2B3C4Du

enum {
    OPT_END = 0, OPT_COMMENT = 1,
    OPT_SHB_USERAPPL = 4,
    OPT_IF_NAME = 2, OPT_IF_DESCRIPTION = 3, OPT_IF_TSRESOL = 9,
    OPT_EPB_FLAGS = 2,
    OPT_ISB_IFRECV = 4, OPT_ISB_IFDROP = 5,
};

#define LINKTYPE_ERF 197
#define LINKTYPE_INFINIBAND 247
#define ERF_HEADER_LEN 16
#define ERF_TYPE_INFINIBAND 21
#define ERF_FLAG_VARYING_LENGTH 4
#define NS_PER_SECOND 1000000000u
#define TSRESOL_NS 9
#define FLAG_INBOUND 1u
#define FLAG_OUTBOUND 2u

static void put16(GByteArray *out, uint16_t value)
{
    g_byte_array_append(out, (const uint8_t *)&value, sizeof(value));
}

static void put32(GByteArray *out, uint32_t value)
{
    g_byte_array_append(out, (const uint8_t *)&value, sizeof(value));
}

static void put_padded(GByteArray *out, const void *data, uint32_t len)
{
    static const uint8_t zeroes[4];

    g_byte_array_append(out, data, len);
    g_byte_array_append(out, zeroes, -len & 3);
}

static void option(GByteArray *out, uint16_t code, const void *value,
                   uint16_t len)
{
    put16(out, code);
    put16(out, len);
    put_padded(out, value, len);
}

static void option_text(GByteArray *out, uint16_t code, const char *text)
{
    option(out, code, text, MIN(strlen(text), UINT16_MAX - 3));
}

static guint begin(GByteArray *out, uint32_t type)
{
    guint start = out->len;

    put32(out, type);
    put32(out, 0);                   /* length, by end() */
    return start;
}

static void end(GByteArray *out, guint start)
{
    uint32_t len;

    option(out, OPT_END, NULL, 0);
    len = out->len - start + 4;
    put32(out, len);
    memcpy(out->data + start + 4, &len, sizeof(len));
}

static void put_time(GByteArray *out, int64_t real_ns)
{
    put32(out, (uint64_t)real_ns >> 32);
    put32(out, (uint64_t)real_ns);
}

void pcapng_section(GByteArray *out)
{
    guint start = begin(out, BLOCK_SECTION);
    static const int64_t unknown_length = -1;

    put32(out, BYTE_ORDER_MAGIC);
    put16(out, 1);
    put16(out, 0);
    g_byte_array_append(out, (const uint8_t *)&unknown_length,
                        sizeof(unknown_length));
    option_text(out, OPT_SHB_USERAPPL, "ehca-fabric");
    end(out, start);
}

bool pcapng_format_parse(const char *name, PcapngFormat *format)
{
    if (!strcmp(name, "erf")) {
        *format = PCAPNG_ERF;
    } else if (!strcmp(name, "infiniband")) {
        *format = PCAPNG_INFINIBAND;
    } else {
        return false;
    }
    return true;
}

void pcapng_interface(GByteArray *out, PcapngFormat format,
                      const char *name, const char *description)
{
    guint start = begin(out, BLOCK_INTERFACE);
    uint8_t resolution = TSRESOL_NS;

    put16(out, format == PCAPNG_ERF ? LINKTYPE_ERF : LINKTYPE_INFINIBAND);
    put16(out, 0);
    put32(out, 0);                   /* no snapshot length */
    option_text(out, OPT_IF_NAME, name);
    option_text(out, OPT_IF_DESCRIPTION, description);
    option(out, OPT_IF_TSRESOL, &resolution, sizeof(resolution));
    end(out, start);
}

/*
 * ERF: time (32.32 fixed point, little-endian), type, flags, record length,
 * loss counter, wire length (big-endian).
 */
static void put_erf_header(GByteArray *out, int64_t real_ns, uint32_t len)
{
    uint64_t seconds = (uint64_t)real_ns / NS_PER_SECOND;
    uint64_t fraction = ((uint64_t)real_ns % NS_PER_SECOND << 32) /
                        NS_PER_SECOND;
    uint64_t time = GUINT64_TO_LE(seconds << 32 | fraction);
    uint8_t header[ERF_HEADER_LEN];

    memcpy(header, &time, sizeof(time));
    header[8] = ERF_TYPE_INFINIBAND;
    header[9] = ERF_FLAG_VARYING_LENGTH;
    ib_put16(header + 10, ERF_HEADER_LEN + len);
    ib_put16(header + 12, 0);
    ib_put16(header + 14, len);
    g_byte_array_append(out, header, sizeof(header));
}

void pcapng_packet(GByteArray *out, PcapngFormat format, uint32_t interface,
                   int64_t real_ns, unsigned direction, const uint8_t *data,
                   uint32_t len, const char *comment)
{
    static const uint8_t zeroes[4];
    guint start = begin(out, BLOCK_PACKET);
    uint32_t flags = direction ? FLAG_INBOUND : FLAG_OUTBOUND;
    uint32_t whole = len + IB_VCRC_LEN;
    uint32_t stored = whole + (format == PCAPNG_ERF ? ERF_HEADER_LEN : 0);
    uint8_t vcrc[IB_VCRC_LEN];

    ib_put16(vcrc, ib_vcrc(data, len));
    put32(out, interface);
    put_time(out, real_ns);
    put32(out, stored);
    put32(out, stored);
    if (format == PCAPNG_ERF) {
        put_erf_header(out, real_ns, whole);
    }
    g_byte_array_append(out, data, len);
    g_byte_array_append(out, vcrc, sizeof(vcrc));
    g_byte_array_append(out, zeroes, -stored & 3);
    if (comment) {
        option_text(out, OPT_COMMENT, comment);
    }
    option(out, OPT_EPB_FLAGS, &flags, sizeof(flags));
    end(out, start);
}

void pcapng_statistics(GByteArray *out, uint32_t interface, int64_t real_ns,
                       uint64_t received, uint64_t dropped)
{
    guint start = begin(out, BLOCK_STATISTICS);

    put32(out, interface);
    put_time(out, real_ns);
    option(out, OPT_ISB_IFRECV, &received, sizeof(received));
    option(out, OPT_ISB_IFDROP, &dropped, sizeof(dropped));
    end(out, start);
}
