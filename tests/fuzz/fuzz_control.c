/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Any bytes to the control socket's commands, and as EVENT of a host, with a
 * fabric behind them: one line of JSON comes back, whatever was asked.
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
    JsonNode *node;

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
            FUZZ_ASSERT(!strchr(reply, '\n'));
            node = json_from_string(reply, NULL);
            FUZZ_ASSERT(node && JSON_NODE_HOLDS_OBJECT(node));
            json_node_unref(node);
            g_free(reply);
            start_at = i + 1;
        }
    }
    events_node_event(the_daemon.events, 1, 1, copy);
    g_free(copy);
    return 0;
}
