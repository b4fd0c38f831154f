/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Any bytes to the control socket's commands, and as EVENT of a host, with a
 * fabric behind them: one line of JSON comes back, whatever was asked, and is
 * what clients get of the event.  JSON by the letter of RFC 8259, so that any
 * client's parser takes it: read by the code below, not by json-glib.
 */
#include <string.h>

#include "fabric/daemon.h"
#include "fuzz.h"

static const char text[] =
    "switch s ports=4\nhost a ports=1\ncable ca a/1 s/1\n";

static Daemon the_daemon;

static void woken(void *opaque)
{
}

static void start(void)
{
    char *error;

    the_daemon.topology = topology_parse("f", text, sizeof(text) - 1,
                                         &error);
    ib_clock_init_real(&the_daemon.clock);
    the_daemon.loop = g_main_loop_new(NULL, false);
    the_daemon.events = events_new(&the_daemon);
    the_daemon.runner = runner_new(the_daemon.topology, 1, woken,
                                   &the_daemon, &error);
    FUZZ_ASSERT(the_daemon.runner);
}

static const char *blanks(const char *p)
{
    return p + strspn(p, " \t\r\n");
}

static const char *digits(const char *p)
{
    size_t n = strspn(p, "0123456789");

    FUZZ_ASSERT(n);
    return p + n;
}

static const char *read_string(const char *p)
{
    FUZZ_ASSERT(*p == '"');
    for (p++; *p != '"'; p++) {
        FUZZ_ASSERT((unsigned char)*p >= ' ');
        if (*p == '\\') {
            p++;
            FUZZ_ASSERT(*p && strchr("\"\\/bfnrtu", *p));
            if (*p == 'u') {
                FUZZ_ASSERT(strspn(p + 1, "0123456789abcdefABCDEF") >= 4);
            }
        }
    }
    return p + 1;
}

static const char *read_value(const char *p, unsigned depth)
{
    static const char *const words[] = { "true", "false", "null" };

    FUZZ_ASSERT(depth < 2 * JSON_DEPTH_MAX);
    p = blanks(p);
    if (*p == '{' || *p == '[') {
        char close = *p == '{' ? '}' : ']';

        p = blanks(p + 1);
        while (*p != close) {
            if (close == '}') {
                p = blanks(read_string(p));
                FUZZ_ASSERT(*p == ':');
                p++;
            }
            p = blanks(read_value(p, depth + 1));
            FUZZ_ASSERT(*p == close || *p == ',');
            if (*p == ',') {
                p = blanks(p + 1);
                FUZZ_ASSERT(*p != close);
            }
        }
        return p + 1;
    }
    if (*p == '"') {
        return read_string(p);
    }
    for (size_t i = 0; i < G_N_ELEMENTS(words); i++) {
        if (g_str_has_prefix(p, words[i])) {
            return p + strlen(words[i]);
        }
    }
    p += *p == '-';
    p = *p == '0' ? p + 1 : digits(p);
    p = *p == '.' ? digits(p + 1) : p;
    if (*p == 'e' || *p == 'E') {
        p++;
        p += *p == '+' || *p == '-';
        p = digits(p);
    }
    return p;
}

/* One object, on one line, and nothing else. */
static void check_line(const char *line)
{
    FUZZ_ASSERT(g_utf8_validate(line, -1, NULL));
    FUZZ_ASSERT(*line == '{' && !strchr(line, '\n'));
    FUZZ_ASSERT(*blanks(read_value(line, 0)) == '\0');
}

size_t fuzz_seed(unsigned index, uint8_t *buf)
{
    static const char *const seeds[] = {
        "{\"execute\":\"pull\",\"arguments\":{\"cable\":\"ca\"},\"id\":[1]}"
        "{\"execute\":\"restore\",\"arguments\":{\"cable\":\"ca\"}}",
        "{\"execute\":\"fault\",\"arguments\":{\"cable\":\"ca\",\"drop\":0.5,"
        "\"delay\":1,\"delay-ms\":2}}{\"execute\":\"counters\"}\n",
        "{\"execute\":\"status\"}{\"execute\":\"list\"}\n"
        "{\"execute\":\"events-since\",\"arguments\":{\"since\":99999999}}",
        "{\"execute\":\"node-events\",\"arguments\":{\"node\":\"a\","
        "\"since\":99999999}}\n"
        "{\"execute\":\"query-commands\"}{\"execute\":\"quit\"}",
        "{\"execute\"/*\"*/:[[['\"'//\"\n]]],\"id\":\"\\\"\\u0001\"}",
        "{\"event\":\"mig_state\",\"qpn\":5,\"x\":[{},null,1.5e3,\"\\u00e9\"]}",
        "{\"execute\":\"query-version\",\"id\":[1e22,1e999,010,0x1F,nan,1.]}",
        "{\"execute\":\"query-version\",\"id\":[1E+3,-0,\"\\/\",\"\\u0000\"]}",
        "{\"event\":\"\\u001f\\u0001\\u007f\\b/\"}",
        "{\"execute\":\"list\",\"id\":[-9223372036854775808,9e14,0.1,1e-300]}",
    };

    if (index >= G_N_ELEMENTS(seeds)) {
        return 0;
    }
    memcpy(buf, seeds[index], strlen(seeds[index]));
    return strlen(seeds[index]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    JsonFramer framer = { 0 };
    char *copy, *reply;
    size_t start_at = 0;
    uint64_t seq;

    if (!the_daemon.runner) {
        start();
    }
    copy = g_strndup((const char *)data, size);
    /* Files are none of a fuzzer's business. */
    if (!g_strstr_len((const char *)data, size, "capture")) {
        for (size_t i = 0; i < size; i++) {
            if (!json_framer_byte(&framer, data[i])) {
                continue;
            }
            reply = command_execute(&the_daemon,
                                    (const char *)data + start_at,
                                    i + 1 - start_at);
            check_line(reply);
            g_free(reply);
            start_at = i + 1;
        }
    }
    seq = events_next_seq(the_daemon.events);
    events_node_event(the_daemon.events, 1, 1, copy);
    if (events_next_seq(the_daemon.events) != seq) {
        GString *line = g_string_new(NULL);

        events_since(the_daemon.events, seq, -2, line);
        check_line(line->str);
        g_string_free(line, true);
    }
    g_free(copy);
    return 0;
}
