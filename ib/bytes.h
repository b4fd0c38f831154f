/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Big-endian loads and stores.  InfiniBand is big-endian on the wire, in
 * management datagrams and in the eHCA's queues; all three use these.
 */
#ifndef IB_BYTES_H
#define IB_BYTES_H

#include <stdint.h>
#include <string.h>

static inline uint16_t ib_get16(const void *p)
{
    uint16_t v;

    memcpy(&v, p, sizeof(v));
    return __builtin_bswap16(v);
}

static inline uint32_t ib_get24(const void *p)
{
    const uint8_t *b = p;

    return (uint32_t)b[0] << 16 | (uint32_t)b[1] << 8 | b[2];
}

static inline uint32_t ib_get32(const void *p)
{
    uint32_t v;

    memcpy(&v, p, sizeof(v));
    return __builtin_bswap32(v);
}

static inline uint64_t ib_get64(const void *p)
{
    uint64_t v;

    memcpy(&v, p, sizeof(v));
    return __builtin_bswap64(v);
}

static inline void ib_put16(void *p, uint16_t v)
{
    v = __builtin_bswap16(v);
    memcpy(p, &v, sizeof(v));
}

static inline void ib_put24(void *p, uint32_t v)
{
    uint8_t *b = p;

    b[0] = v >> 16;
    b[1] = v >> 8;
    b[2] = v;
}

static inline void ib_put32(void *p, uint32_t v)
{
    v = __builtin_bswap32(v);
    memcpy(p, &v, sizeof(v));
}

static inline void ib_put64(void *p, uint64_t v)
{
    v = __builtin_bswap64(v);
    memcpy(p, &v, sizeof(v));
}

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the helpers above swap: a big-endian host needs them without"
#endif

#endif
