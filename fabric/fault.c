/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Faults of a cable; see fault.h for how chance is made. */
#include <math.h>
#include <stddef.h>

#include "fabric/fault.h"

/* A step of splitmix64 (public domain, S. Vigna): mixes all 64 bits. */
static uint64_t mix(uint64_t x)
{
    x += UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
    return x ^ x >> 31;
}

/* 53 random bits as a number from [0, 1). */
static bool hits(double probability, uint64_t random)
{
    return (double)(random >> 11) * 0x1p-53 < probability;
}

bool fabric_fault_any(const FabricFault *fault)
{
    return fault->drop > 0 || fault->duplicate > 0 || fault->corrupt > 0 ||
           fault->delay > 0;
}

static bool is_probability(double value)
{
    return isfinite(value) && value >= 0.0 && value <= 1.0;
}

const char *fabric_fault_check(const FabricFault *fault)
{
    if (!is_probability(fault->drop) || !is_probability(fault->duplicate) ||
        !is_probability(fault->corrupt) || !is_probability(fault->delay)) {
        return "drop, duplicate, corrupt and delay are probabilities, "
               "from 0 to 1";
    }
    if (fault->delay_ns < 0 || fault->delay_ns > FABRIC_FAULT_DELAY_MAX) {
        return "the delay is from 0 to 10 seconds";
    }
    if (fault->delay > 0 && !fault->delay_ns) {
        return "a delay needs its length";
    }
    return NULL;
}

void fabric_fault_draw(const FabricFault *fault, const FabricFaultKey *key,
                       FabricFate *fate)
{
    uint64_t state = mix(key->seed ^ mix((uint64_t)key->cable << 32 |
                                         key->source));

    state = mix(state ^ mix(key->number << 1 | (key->direction & 1)));
    fate->drop = hits(fault->drop, state = mix(state));
    fate->duplicate = hits(fault->duplicate, state = mix(state));
    fate->corrupt = hits(fault->corrupt, state = mix(state));
    fate->delay = hits(fault->delay, state = mix(state));
    fate->bit = mix(state) >> 32;
}
