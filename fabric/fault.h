/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Faults of one cable, each by a probability of its own.
 *
 * Theory of operation: nothing here keeps a state.  What happens to a packet
 * is a function of the fabric's seed, the cable, the direction, the source
 * the packet comes from and its number in that source.  So a packet that has
 * to wait for room and is tried again meets the same fate each time, and a
 * run with the same seed and the same packets is the same run.
 */
#ifndef FABRIC_FAULT_H
#define FABRIC_FAULT_H

#include <stdbool.h>
#include <stdint.h>

/* Longest delay that may be asked for, in ns of clock time. */
#define FABRIC_FAULT_DELAY_MAX (INT64_C(10) * 1000000000)

typedef struct FabricFault {
    double drop;              /* probabilities, 0.0 .. 1.0 */
    double duplicate;
    double corrupt;           /* one bit behind the LRH is flipped */
    double delay;             /* a delayed packet holds up those behind it */
    int64_t delay_ns;
} FabricFault;

typedef struct FabricFate {
    bool drop, duplicate, corrupt, delay;
    uint32_t bit;             /* to flip: modulo the number of bits */
} FabricFate;

typedef struct FabricFaultKey {
    uint64_t seed;
    uint32_t cable;
    uint32_t direction;       /* 0: from ends[0] to ends[1] */
    uint32_t source;
    uint64_t number;          /* of the packet in its source */
} FabricFaultKey;

bool fabric_fault_any(const FabricFault *fault);
/* NULL when all values are legal, else a sentence (static). */
const char *fabric_fault_check(const FabricFault *fault);
void fabric_fault_draw(const FabricFault *fault, const FabricFaultKey *key,
                       FabricFate *fate);

#endif
