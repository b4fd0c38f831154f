/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Fuzz targets.  Each is one LLVMFuzzerTestOneInput() and, for the short
 * deterministic run without libFuzzer (fuzz_main.c), a few good inputs that
 * are worth spoiling.
 */
#ifndef TESTS_FUZZ_H
#define TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define FUZZ_SEED_MAX 8192

/* Writes good input number @index; returns its length, 0: no more. */
size_t fuzz_seed(unsigned index, uint8_t *buf);

/* Ends the process at once: what libFuzzer and CI look for. */
#define FUZZ_ASSERT(condition) do { \
    if (!(condition)) { \
        __builtin_trap(); \
    } \
} while (0)

/* Takes values off the input; zeroes behind its end. */
typedef struct FuzzInput {
    const uint8_t *data;
    size_t left;
} FuzzInput;

static inline uint8_t fuzz_byte(FuzzInput *in)
{
    if (in->left == 0) {
        return 0;
    }
    in->left--;
    return *in->data++;
}

static inline uint32_t fuzz_u32(FuzzInput *in)
{
    uint32_t v = 0;

    for (unsigned i = 0; i < 4; i++) {
        v = v << 8 | fuzz_byte(in);
    }
    return v;
}

#endif
