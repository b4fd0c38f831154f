/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Runs a fuzz target without libFuzzer: the same inputs each time, so that
 * "meson test --suite fuzz" is a regression test.  Inputs are the target's
 * good ones, these with a few bytes spoiled, cut or doubled, and noise.
 *
 *   fuzz_x            the deterministic run
 *   fuzz_x FILE...    these inputs only (to replay a finding)
 *   fuzz_x --seeds DIR    writes the good inputs, for libFuzzer to start from
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"

#ifndef ROUNDS
#define ROUNDS 20000
#endif

static uint64_t state = 0x9E3779B97F4A7C15;

/* xorshift64: the inputs must not depend on anybody's library. */
static uint32_t next_random(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state >> 32;
}

static void run(const uint8_t *data, size_t len)
{
    /* A copy of just this length: sanitizers see a byte too far. */
    uint8_t *copy = malloc(len ? len : 1);

    if (!copy) {
        abort();
    }
    memcpy(copy, data, len);
    LLVMFuzzerTestOneInput(copy, len);
    free(copy);
}

static size_t spoil(uint8_t *p, size_t len)
{
    static const uint8_t edges[] = { 0, 1, 0x7F, 0x80, 0xFE, 0xFF };
    unsigned times = 1 + next_random() % 4;

    while (times-- && len) {
        size_t at = next_random() % len;

        switch (next_random() % 5) {
        case 0:
            p[at] ^= 1 << next_random() % 8;
            break;
        case 1:
            p[at] = edges[next_random() % sizeof(edges)];
            break;
        case 2:
            p[at] = next_random();
            break;
        case 3:
            len = at;
            break;
        case 4:
            if (len + len - at <= FUZZ_SEED_MAX) {
                memmove(p + len, p + at, len - at);
                len += len - at;
            }
            break;
        }
    }
    return len;
}

static int replay(const char *path)
{
    FILE *file = fopen(path, "rb");
    uint8_t *data = malloc(1 << 20);
    size_t len;

    if (!file || !data) {
        perror(path);
        return 1;
    }
    len = fread(data, 1, 1 << 20, file);
    fclose(file);
    run(data, len);
    free(data);
    return 0;
}

static int write_seeds(const char *dir)
{
    static uint8_t buf[FUZZ_SEED_MAX];
    size_t len;

    for (unsigned i = 0; (len = fuzz_seed(i, buf)) > 0; i++) {
        char path[4096];
        FILE *file;

        snprintf(path, sizeof(path), "%s/seed-%u", dir, i);
        file = fopen(path, "wb");
        if (!file || fwrite(buf, 1, len, file) != len || fclose(file) != 0) {
            perror(path);
            return 1;
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    static uint8_t buf[FUZZ_SEED_MAX];
    unsigned seeds = 0, runs = 0;
    size_t len;

    if (argc == 3 && strcmp(argv[1], "--seeds") == 0) {
        return write_seeds(argv[2]);
    }
    if (argc > 1) {
        for (int i = 1; i < argc; i++) {
            if (replay(argv[i])) {
                return 1;
            }
        }
        return 0;
    }
    while ((len = fuzz_seed(seeds, buf)) > 0) {
        run(buf, len);
        seeds++;
    }
    for (unsigned i = 0; i < ROUNDS; i++) {
        if (seeds && i % 8) {
            len = spoil(buf, fuzz_seed(next_random() % seeds, buf));
        } else {
            len = next_random() % 600;
            for (size_t k = 0; k < len; k++) {
                buf[k] = next_random();
            }
        }
        run(buf, len);
        runs++;
    }
    printf("%u good inputs, %u spoiled ones and noise\n", seeds, runs);
    return 0;
}
