/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Helpers for tests that compare with bytes written down by hand: a format is
 * given as hexadecimal text, blanks and line breaks ignored.
 */
#ifndef TESTS_HEX_H
#define TESTS_HEX_H

#include <glib.h>
#include <stdint.h>
#include <string.h>

/* Text to bytes; returns how many.  Fails the test when it is no hex. */
static inline size_t hex_bytes(uint8_t *out, size_t size, const char *hex)
{
    size_t n = 0;
    int high = -1;

    for (; *hex; hex++) {
        int digit = g_ascii_xdigit_value(*hex);

        if (g_ascii_isspace(*hex)) {
            continue;
        }
        g_assert_cmpint(digit, >=, 0);
        if (high < 0) {
            high = digit;
        } else {
            g_assert_cmpuint(n, <, size);
            out[n++] = high << 4 | digit;
            high = -1;
        }
    }
    g_assert_cmpint(high, <, 0);
    return n;
}

static inline char *hex_text(const uint8_t *p, size_t len)
{
    GString *s = g_string_new(NULL);

    for (size_t i = 0; i < len; i++) {
        g_string_append_printf(s, "%02x%s", p[i],
                               i + 1 == len ? "" : i % 16 == 15 ? "\n"
                               : i % 4 == 3 ? " " : "");
    }
    return g_string_free(s, FALSE);
}

/* The @len bytes at @p are what @hex says. */
static inline void assert_hex(const uint8_t *p, size_t len, const char *hex)
{
    uint8_t want[8192];
    size_t want_len = hex_bytes(want, sizeof(want), hex);

    if (want_len != len || memcmp(p, want, len) != 0) {
        g_autofree char *got_text = hex_text(p, len);
        g_autofree char *want_text = hex_text(want, want_len);

        g_error("got %zu bytes:\n%s\nwanted %zu bytes:\n%s", len, got_text,
                want_len, want_text);
    }
}

#endif
