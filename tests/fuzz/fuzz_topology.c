/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Any bytes as a topology file: refused with a message, or a topology that
 * keeps its promises and makes a fabric.
 */
#include <string.h>

#include "fabric/fabric.h"
#include "fuzz.h"

size_t fuzz_seed(unsigned index, uint8_t *buf)
{
    static const char *const seeds[] = {
        "switch s ports=3 mtu=2048\nhost a ports=2 guid=0x77\n"
        "cable c a/1 s/2 width=4x speed=SDR plugged=no\ncable d a/2 s/1\n",
        "# two\nhost a ports=1\nhost b ports=8\ncable x b/8 a/1\n",
        "switch s ports=64\nswitch t ports=64 guid=0x1\n"
        "cable st s/64 t/64 width=12x speed=qdr\ncable ss s/1 s/2\n",
    };

    if (index >= G_N_ELEMENTS(seeds)) {
        return 0;
    }
    memcpy(buf, seeds[index], strlen(seeds[index]));
    return strlen(seeds[index]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Topology *topology;
    IbClock clock;
    Fabric *fabric;
    char *text;

    topology = topology_parse("f", (const char *)data, size, &text);
    FUZZ_ASSERT(!topology == !!text);
    if (!topology) {
        FUZZ_ASSERT(g_str_has_prefix(text, "f:") && strchr(text, '\n'));
        g_free(text);
        return 0;
    }
    for (unsigned i = 0; i < topology->num_cables; i++) {
        for (unsigned e = 0; e < 2; e++) {
            const TopologyEnd *end = &topology->cables[i].ends[e];

            FUZZ_ASSERT(end->node < topology->num_nodes);
            FUZZ_ASSERT(end->port >= 1 &&
                        end->port <= topology->nodes[end->node].num_ports);
        }
    }
    text = topology_to_json(topology);
    g_free(text);
    ib_clock_init_virtual(&clock);
    fabric = fabric_new(topology, &clock, 1, NULL, NULL);
    fabric_run(fabric, 100);
    fabric_free(fabric);
    ib_clock_fini(&clock);
    topology_free(topology);
    return 0;
}
