/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * JSON from outside, and shorthand for our own.  json-glib's parser recurses,
 * so the depth is checked before it sees the text.  It also takes more than
 * JSON (RFC 8259), such as comments and strings in single quotes, in which
 * brackets and quotes mean nothing to it: what the check cannot follow is
 * refused.
 */
#include <string.h>

#include "fabric/daemon.h"

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

/* May JSON have it outside of strings? */
static bool is_json_byte(char byte)
{
    return g_ascii_isalnum(byte) || (byte && strchr(" \t\r\n{}[]:,\"+-.", byte));
}

/* NULL, or what the parser must not see. */
static const char *check(const char *text, size_t len)
{
    JsonFramer framer = { 0 };

    for (size_t i = 0; i < len; i++) {
        if (!framer.in_string && !is_json_byte(text[i])) {
            return "it has, outside of strings, what JSON does not have "
                   "(comments, single quotes)";
        }
        json_framer_byte(&framer, text[i]);
        if (framer.depth > JSON_DEPTH_MAX) {
            return "it is nested too deeply";
        }
    }
    return NULL;
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
    char *text;

    json_generator_set_root(generator, node);
    text = json_generator_to_data(generator, NULL);
    g_object_unref(generator);
    json_node_unref(node);
    return text;
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
