/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * JSON from outside, and shorthand for our own.
 *
 * json-glib's parser recurses, takes more than JSON (RFC 8259), such as
 * comments, strings in single quotes, octal numbers and bare words, cuts
 * strings at a NUL, and writes some numbers that it took so that nobody can
 * read them (1e999 as inf.0, 1e22 as 1e+22.0).  What hosts tell is passed on
 * to all clients.  So everything passes a lexer first: only tokens that are
 * JSON's and that come out as they went in reach the parser.
 */
#include <errno.h>
#include <string.h>

#include "fabric/daemon.h"

#define NUMBER_MAX 40                /* characters */

bool json_framer_byte(JsonFramer *framer, char byte)
{
    if (framer->in_string) {
        if (framer->escaped) {
            framer->escaped = false;
        } else if (byte == '\\') {
            framer->escaped = true;
        } else if (byte == '"') {
            framer->in_string = false;
        }
        return false;
    }
    switch (byte) {
    case '"':
        framer->in_string = true;
        framer->any = true;
        return false;
    case '{':
    case '[':
        framer->depth++;
        framer->any = true;
        return false;
    case '}':
    case ']':
        framer->any = true;
        if (framer->depth > 1) {
            framer->depth--;
            return false;
        }
        break;
    case '\n':
        /* A line without any bracket cannot become an object. */
        if (framer->depth || !framer->any) {
            return false;
        }
        break;
    case ' ':
    case '\t':
    case '\r':
        return false;
    default:
        framer->any = true;
        return false;
    }
    memset(framer, 0, sizeof(*framer));
    return true;
}

/* The tokens: each returns the first byte behind it, or NULL and *error. */

static const char *skip_string(const char *p, const char *end,
                               const char **error)
{
    for (p++; p < end && *p != '"'; p++) {
        if ((unsigned char)*p < ' ') {
            *error = "it has a control character in a string; \\u00XX is how "
                     "to write it";
            return NULL;
        }
        if (*p != '\\') {
            continue;
        }
        p++;
        if (p < end && *p == 'u') {
            if (end - p > 4 && !memcmp(p + 1, "0000", 4)) {
                *error = "it has a NUL (\\u0000) in a string";
                return NULL;
            }
        } else if (p < end && !strchr("\"\\/bfnrt", *p)) {
            *error = "it has an escape in a string that JSON does not have";
            return NULL;
        }
    }
    /* One that has no end is the parser's to complain of. */
    return p < end ? p + 1 : end;
}

static const char *skip_digits(const char *p, const char *end)
{
    while (p < end && g_ascii_isdigit(*p)) {
        p++;
    }
    return p;
}

static bool is_int64(const char *text)
{
    errno = 0;
    g_ascii_strtoll(text, NULL, 10);
    return errno == 0;
}

/* json-glib appends ".0" to what has no point: not behind an exponent. */
static bool is_written_well(const char *text)
{
    char buf[G_ASCII_DTOSTR_BUF_SIZE];

    g_ascii_dtostr(buf, sizeof(buf), g_ascii_strtod(text, NULL));
    return strchr(buf, '.') || !strpbrk(buf, "ein");
}

/* RFC 8259, 6. */
static const char *skip_number(const char *p, const char *end,
                               const char **error)
{
    static const char bad[] = "it has a number that JSON does not have";
    char text[NUMBER_MAX + 1];
    const char *start = p, *digits;
    bool whole = true;

    p += *p == '-';
    digits = p;
    p = skip_digits(p, end);
    if (p == digits || (*digits == '0' && p > digits + 1)) {
        *error = bad;
        return NULL;
    }
    if (p < end && *p == '.') {
        whole = false;
        digits = ++p;
        p = skip_digits(p, end);
        if (p == digits) {
            *error = bad;
            return NULL;
        }
    }
    if (p < end && (*p == 'e' || *p == 'E')) {
        whole = false;
        p++;
        p += p < end && (*p == '+' || *p == '-');
        digits = p;
        p = skip_digits(p, end);
        if (p == digits) {
            *error = bad;
            return NULL;
        }
    }
    if (p - start > NUMBER_MAX) {
        *error = "it has a number of more than 40 characters";
        return NULL;
    }
    memcpy(text, start, p - start);
    text[p - start] = 0;
    if (!(whole ? is_int64(text) : is_written_well(text))) {
        *error = "it has a number that is too large, or too small";
        return NULL;
    }
    return p;
}

static const char *skip_word(const char *p, const char *end,
                             const char **error)
{
    static const char *const words[] = { "true", "false", "null" };
    const char *start = p;

    while (p < end && g_ascii_isalnum(*p)) {
        p++;
    }
    for (size_t i = 0; i < G_N_ELEMENTS(words); i++) {
        if ((size_t)(p - start) == strlen(words[i]) &&
            !memcmp(start, words[i], p - start)) {
            return p;
        }
    }
    *error = "it has a word other than true, false and null";
    return NULL;
}

/* NULL, or what the parser must not see. */
static const char *check(const char *p, size_t len)
{
    const char *end = p + len, *error = NULL;
    unsigned depth = 0;

    while (p && p < end) {
        if (*p == '"') {
            p = skip_string(p, end, &error);
        } else if (*p == '-' || g_ascii_isdigit(*p)) {
            p = skip_number(p, end, &error);
        } else if (g_ascii_isalpha(*p)) {
            p = skip_word(p, end, &error);
        } else if (*p && strchr(" \t\r\n{}[]:,", *p)) {
            if (*p == '{' || *p == '[') {
                if (++depth > JSON_DEPTH_MAX) {
                    return "it is nested too deeply";
                }
            } else if ((*p == '}' || *p == ']') && depth) {
                depth--;
            }
            p++;
        } else {
            return "it has, outside of strings, what JSON does not have "
                   "(comments, single quotes)";
        }
    }
    return error;
}

JsonNode *json_from_outside(const char *text, size_t len, const char **error)
{
    JsonParser *parser;
    JsonNode *root = NULL;

    if (!g_utf8_validate(text, len, NULL)) {
        *error = "it is not UTF-8";
        return NULL;
    }
    *error = check(text, len);
    if (*error) {
        return NULL;
    }
    parser = json_parser_new_immutable();
    if (json_parser_load_from_data(parser, text, len, NULL)) {
        root = json_parser_steal_root(parser);
    }
    g_object_unref(parser);
    if (!root || !JSON_NODE_HOLDS_OBJECT(root)) {
        *error = "it is not a JSON object";
        if (root) {
            json_node_unref(root);
        }
        return NULL;
    }
    return root;
}

char *json_to_text(JsonNode *node)
{
    JsonGenerator *generator = json_generator_new();
    GString *text;

    json_generator_set_root(generator, node);
    text = json_generator_to_gstring(generator, g_string_new(NULL));
    g_object_unref(generator);
    json_node_unref(node);
    /* The one control character that json-glib 1.6 leaves as it is. */
    if (strchr(text->str, '\x1f')) {
        g_string_replace(text, "\x1f", "\\u001f", 0);
    }
    return g_string_free(text, false);
}

void json_add_string(JsonBuilder *b, const char *name, const char *value)
{
    json_builder_set_member_name(b, name);
    json_builder_add_string_value(b, value);
}

void json_add_int(JsonBuilder *b, const char *name, int64_t value)
{
    json_builder_set_member_name(b, name);
    json_builder_add_int_value(b, value);
}

void json_add_bool(JsonBuilder *b, const char *name, bool value)
{
    json_builder_set_member_name(b, name);
    json_builder_add_boolean_value(b, value);
}

void json_add_hex64(JsonBuilder *b, const char *name, uint64_t value)
{
    char text[19];

    g_snprintf(text, sizeof(text), "0x%016" G_GINT64_MODIFIER "x", value);
    json_add_string(b, name, text);
}
