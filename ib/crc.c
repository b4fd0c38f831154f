/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The two CRCs of a packet (IBTA volume 1, 7.8).
 *
 * ICRC: Ethernet's CRC-32 over everything that no switch or router changes.
 * What they may change is replaced by ones for the computation (7.8.1):
 * without a GRH the LRH's VL; with a GRH the whole LRH (a router writes a new
 * one) and traffic class, flow label and hop limit; and always the byte of the
 * BTH that holds FECN, BECN and reserved bits.  The headers are copied,
 * masked, and the CRC goes on over the payload where it lies.
 *
 * VCRC: CRC-16 with polynomial 0x100B over LRH to ICRC, per link.  Only
 * captures need it, as our links do not corrupt by themselves.
 *
 * Both are bit-reflected CRCs and leave least significant byte first.  The
 * functions return the number whose big-endian bytes are the wire's.
 */
#include <string.h>

#include <libdeflate.h>

#include "ib/bytes.h"
#include "ib/packet.h"

#define VCRC_POLY_REFLECTED 0xD008u      /* 0x100B, bits mirrored */
#define VCRC_SLICES 8

uint32_t ib_icrc(const uint8_t *p, size_t len)
{
    uint8_t masked[IB_LRH_LEN + IB_GRH_LEN + IB_BTH_LEN];
    bool global = len >= IB_LRH_LEN && (p[1] & 3) == IB_LNH_GLOBAL;
    size_t bth = global ? IB_LRH_LEN + IB_GRH_LEN : IB_LRH_LEN;
    size_t n = bth + IB_BTH_LEN;
    uint32_t crc;

    if (len < n) {
        /* Too short to be a packet: masks what is there. */
        memset(masked, 0, sizeof(masked));
        n = len;
    }
    memcpy(masked, p, n);
    if (global) {
        memset(masked, 0xFF, IB_LRH_LEN);
        masked[IB_LRH_LEN] |= 0x0F;
        masked[IB_LRH_LEN + 1] = 0xFF;
        masked[IB_LRH_LEN + 2] = 0xFF;
        masked[IB_LRH_LEN + 3] = 0xFF;
        masked[IB_LRH_LEN + 7] = 0xFF;
    } else {
        masked[0] |= 0xF0;
    }
    masked[bth + 4] = 0xFF;
    crc = libdeflate_crc32(0, masked, n);
    if (len > n) {
        crc = libdeflate_crc32(crc, p + n, len - n);
    }
    return __builtin_bswap32(crc);
}

bool ib_icrc_ok(const uint8_t *p, size_t len)
{
    return len > IB_ICRC_LEN &&
           ib_icrc(p, len - IB_ICRC_LEN) == ib_get32(p + len - IB_ICRC_LEN);
}

/* vcrc_table[k][b]: the CRC of byte b followed by k zero bytes. */
static uint16_t vcrc_table[VCRC_SLICES][256];

__attribute__((constructor)) static void vcrc_make_tables(void)
{
    for (unsigned b = 0; b < 256; b++) {
        unsigned crc = b;

        for (int bit = 0; bit < 8; bit++) {
            crc = crc & 1 ? crc >> 1 ^ VCRC_POLY_REFLECTED : crc >> 1;
        }
        vcrc_table[0][b] = crc;
    }
    for (unsigned k = 1; k < VCRC_SLICES; k++) {
        for (unsigned b = 0; b < 256; b++) {
            uint16_t crc = vcrc_table[k - 1][b];

            vcrc_table[k][b] = crc >> 8 ^ vcrc_table[0][crc & 0xFF];
        }
    }
}

uint16_t ib_vcrc(const uint8_t *p, size_t len)
{
    uint16_t crc = 0xFFFF;

    for (; len >= VCRC_SLICES; len -= VCRC_SLICES, p += VCRC_SLICES) {
        crc = vcrc_table[7][p[0] ^ (crc & 0xFF)] ^
              vcrc_table[6][p[1] ^ crc >> 8] ^
              vcrc_table[5][p[2]] ^ vcrc_table[4][p[3]] ^
              vcrc_table[3][p[4]] ^ vcrc_table[2][p[5]] ^
              vcrc_table[1][p[6]] ^ vcrc_table[0][p[7]];
    }
    while (len--) {
        crc = crc >> 8 ^ vcrc_table[0][(crc & 0xFF) ^ *p++];
    }
    return __builtin_bswap16(~crc);
}
