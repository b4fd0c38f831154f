/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Topology files: what is understood, and how each mistake is told. */
#include <string.h>

#include <glib.h>
#include <glib/gstdio.h>
#include <json-glib/json-glib.h>

#include "fabric/topology.h"

static Topology *good(const char *text)
{
    char *errors;
    Topology *topology = topology_parse("t.topo", text, strlen(text),
                                        &errors);

    g_assert_cmpstr(errors, ==, NULL);
    g_assert_nonnull(topology);
    return topology;
}

/* @text is refused with exactly @expected. */
static void bad(const char *text, const char *expected)
{
    char *errors;
    Topology *topology = topology_parse("t.topo", text, strlen(text),
                                        &errors);

    g_assert_null(topology);
    g_assert_cmpstr(errors, ==, expected);
    g_free(errors);
}

static void test_good(void)
{
    Topology *t = good("# rails\n"
                       "switch rail1 ports=8 mtu=2048\r\n"
                       "\thost alice   ports=2 # a guest\n"
                       "\n"
                       "host bob ports=1 guid=0x00025500ABCDEF01\n"
                       "cable a1 alice/1 rail1/1\n"
                       "cable b1 rail1/8 bob/1 width=1x speed=qdr "
                       "plugged=no");

    g_assert_cmpuint(t->num_nodes, ==, 3);
    g_assert_cmpuint(t->num_cables, ==, 2);
    g_assert_cmpint(t->nodes[0].kind, ==, TOPOLOGY_SWITCH);
    g_assert_cmpuint(t->nodes[0].mtu, ==, 4);
    g_assert_cmphex(t->nodes[0].guid, !=, 0);
    g_assert_cmpint(t->nodes[1].kind, ==, TOPOLOGY_HOST);
    g_assert_cmphex(t->nodes[1].guid, ==, 0);
    g_assert_cmpuint(t->nodes[1].line, ==, 3);
    g_assert_cmphex(t->nodes[2].guid, ==, 0x00025500ABCDEF01);
    g_assert_cmpint(topology_find_node(t, "bob"), ==, 2);
    g_assert_cmpint(topology_find_node(t, "bo"), ==, -1);
    g_assert_cmpint(topology_find_cable(t, "b1"), ==, 1);
    g_assert_cmpuint(t->cables[0].width, ==, 2);
    g_assert_cmpuint(t->cables[0].speed, ==, 1);
    g_assert_true(t->cables[0].plugged);
    g_assert_cmpuint(t->cables[1].width, ==, 1);
    g_assert_cmpuint(t->cables[1].speed, ==, 4);
    g_assert_false(t->cables[1].plugged);
    g_assert_cmpuint(t->cables[1].ends[0].node, ==, 0);
    g_assert_cmpuint(t->cables[1].ends[0].port, ==, 8);
    topology_free(t);
}

/* Lines may end with CR LF, the file begin with a byte order mark. */
static void test_other_systems(void)
{
    topology_free(good("\xef\xbb\xbfhost a ports=1\r\n\r\n# b\r\n"));
}

/* A cable may come first, and a switch keeps its GUID. */
static void test_order(void)
{
    Topology *a = good("cable c a/1 s/1\nhost a ports=1\n"
                       "switch s ports=1\n");
    Topology *b = good("switch x ports=4\nswitch s ports=9\n");

    g_assert_cmphex(a->nodes[1].guid, ==, b->nodes[1].guid);
    g_assert_cmphex(b->nodes[0].guid, !=, b->nodes[1].guid);
    g_assert_cmphex(a->nodes[1].guid >> 56, ==, 2);
    topology_free(a);
    topology_free(b);
}

static void test_bad(void)
{
    bad("", "t.topo: no switch and no host in it; write for example "
        "'host alice ports=2'\n");
    bad("hots alice ports=2\nhost b ports=1\n",
        "t.topo:1: 'hots' is not known; a line begins with switch, host or "
        "cable\n");
    bad("host a ports=9\n",
        "t.topo:1: ports=9 of a; a host has 1 to 8 ports\n");
    bad("switch a ports=0x\n",
        "t.topo:1: ports=0x of a; a switch has 1 to 64 ports\n");
    bad("switch a\n",
        "t.topo:1: switch a has no number of ports; add ports=N (1 to 64)\n");
    bad("host\n",
        "t.topo:1: host without a name; write 'host NAME ports=N'\n");
    bad("host a/b ports=1\n",
        "t.topo:1: 'a/b' is no name for a host; a name is 1 to 63 letters, "
        "digits, '-', '_' or '.', the first a letter or digit\n");
    bad("host a ports=1\n\nswitch a ports=1\n",
        "t.topo:3: the name a is taken by line 1; every switch and host "
        "needs a name of its own\n");
    bad("host a ports=1 guid=12\n",
        "t.topo:1: guid=12 of a; a GUID is written as 0x and up to 16 "
        "hexadecimal digits, and is not 0\n");
    bad("host a ports=1 mtu=2048\n",
        "t.topo:1: 'mtu=2048' means nothing for a host; known are ports=N "
        "and guid=0x...\n");
    bad("switch a ports=1 mtu=1500\n",
        "t.topo:1: mtu=1500 of a; it is 256, 512, 1024, 2048 or 4096\n");
    bad("host a ports=1 guid=0x1\nhost b ports=1 guid=0x01\n",
        "t.topo:2: guid=0x0000000000000001 of b is also that of a (line 1); "
        "GUIDs are unique\n");
    bad("host a ports=2\ncable c a/1\n",
        "t.topo:2: a cable has a name and two ends; write 'cable NAME "
        "NODE/PORT NODE/PORT'\n");
    bad("host a ports=2\ncable c a/1 b/1\n",
        "t.topo:2: cable c ends at 'b', which no line declares; switches: "
        "none; hosts: a\n");
    bad("host a ports=2\ncable c a/1 a/3\n",
        "t.topo:2: cable c ends at port '3' of a; a has ports 1 to 2\n");
    bad("host a ports=2\ncable c a/1 a/1\n",
        "t.topo:2: both ends of cable c are a/1; a cable joins two ports\n");
    bad("host a ports=2\ncable c a/1 a/2\ncable d a/2 a/1\n",
        "t.topo:3: a/2 has cable c in it already (line 2); a port takes one "
        "cable\n"
        "t.topo:3: a/1 has cable c in it already (line 2); a port takes one "
        "cable\n");
    bad("host alice ports=2\nswitch rail1 ports=2\n"
        "cable c alcie/1 rial1/1\n",
        "t.topo:3: cable c ends at 'alcie', which no line declares; did you "
        "mean 'alice'? switches: rail1; hosts: alice\n"
        "t.topo:3: cable c ends at 'rial1', which no line declares; did you "
        "mean 'rail1'? switches: rail1; hosts: alice\n");
    bad("host a ports=2 ports=2\ncable c a/1 a/2 width=1x speed=SDR "
        "width=1x\n",
        "t.topo:1: 'ports=2' and 'ports=2' for the same host; leave one\n"
        "t.topo:2: 'width=1x' and 'width=1x' for the same cable; leave one"
        "\n");
    bad("host a ports=2\ncable c a/1 a/2 plugged=maybe\n",
        "t.topo:2: plugged=maybe of cable c; it is yes or no\n");
    bad("host a ports=2\ncable c a/1 a/2 speed=9 width=5x\n",
        "t.topo:2: speed=9 of cable c; it is SDR, DDR or QDR\n"
        "t.topo:2: width=5x of cable c; it is 1x, 4x, 8x or 12x\n");
}

/* All that is wrong in one go, but not without end. */
static void test_many_errors(void)
{
    GString *text = g_string_new("x\nhost a\ncable c a/1 a/2\n");
    char *errors;

    /* The cable is not blamed for the host that could not be read. */
    bad(text->str,
        "t.topo:1: 'x' is not known; a line begins with switch, host or "
        "cable\n"
        "t.topo:2: host a has no number of ports; add ports=N (1 to 8)\n");
    for (int i = 0; i < 100; i++) {
        g_string_append(text, "x\n");
    }
    g_assert_null(topology_parse("t.topo", text->str, text->len, &errors));
    g_assert_true(g_str_has_suffix(errors, "t.topo: 82 more errors\n"));
    g_free(errors);
    g_string_free(text, true);
}

static void test_binary(void)
{
    char *text = g_malloc(5000), *errors;

    memset(text, 'a', 5000);
    g_assert_null(topology_parse("t.topo", text, 5000, &errors));
    g_assert_nonnull(strstr(errors, "longer than 1024 characters"));
    g_free(errors);
    memcpy(text, "host a\0b ports=1\n", 17);
    g_assert_null(topology_parse("t.topo", text, 17, &errors));
    g_assert_nonnull(strstr(errors, "t.topo:1: the line has a zero byte"));
    g_free(errors);
    g_assert_null(topology_parse("t.topo", "\xff\x1b[1m a\n", 8, &errors));
    g_assert_nonnull(strstr(errors, "'??[1m'"));
    g_free(errors);
    g_free(text);
}

static void test_file(void)
{
    char *errors;

    g_assert_null(topology_load("/nonexistent/x.topo", &errors));
    g_assert_nonnull(strstr(errors, "/nonexistent/x.topo: No such file"));
    g_free(errors);
    g_assert_null(topology_load("/", &errors));
    g_assert_nonnull(strstr(errors, "/: not a regular file"));
    g_free(errors);
}

static void test_json(void)
{
    Topology *t = good("switch s ports=3\nhost a ports=1\n"
                       "cable c a/1 s/2 plugged=no\n");
    char *text = topology_to_json(t);
    JsonParser *parser = json_parser_new();
    JsonObject *root, *cable, *end;

    g_assert_true(json_parser_load_from_data(parser, text, -1, NULL));
    root = json_node_get_object(json_parser_get_root(parser));
    g_assert_cmpint(json_array_get_length(
        json_object_get_array_member(root, "switches")), ==, 1);
    cable = json_array_get_object_element(
        json_object_get_array_member(root, "cables"), 0);
    g_assert_cmpstr(json_object_get_string_member(cable, "name"), ==, "c");
    g_assert_false(json_object_get_boolean_member(cable, "plugged"));
    end = json_array_get_object_element(
        json_object_get_array_member(cable, "ends"), 1);
    g_assert_cmpstr(json_object_get_string_member(end, "node"), ==, "s");
    g_assert_cmpint(json_object_get_int_member(end, "port"), ==, 2);
    g_object_unref(parser);
    g_free(text);
    topology_free(t);
}

/* Whatever comes, it is answered: mutations of a good file. */
static void test_mutations(void)
{
    static const char seed[] =
        "switch s ports=3 mtu=2048\nhost a ports=2 guid=0x77\n"
        "cable c a/1 s/2 width=4x speed=SDR plugged=no\ncable d a/2 s/1\n";
    GRand *rand = g_rand_new_with_seed(1);
    char text[sizeof(seed)];

    for (int i = 0; i < 20000; i++) {
        int changes = g_rand_int_range(rand, 1, 6);
        Topology *topology;
        char *errors;

        memcpy(text, seed, sizeof(seed));
        for (int k = 0; k < changes; k++) {
            int at = g_rand_int_range(rand, 0, sizeof(seed) - 1);

            if (g_rand_boolean(rand)) {
                text[at] = g_rand_int_range(rand, 0, 256);
            } else {
                text[at] = seed[g_rand_int_range(rand, 0,
                                                 sizeof(seed) - 1)];
            }
        }
        topology = topology_parse("m", text, sizeof(seed) - 1, &errors);
        g_assert_true(!topology == !!errors);
        topology_free(topology);
        g_free(errors);
    }
    g_rand_free(rand);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/topology/good", test_good);
    g_test_add_func("/topology/other-systems", test_other_systems);
    g_test_add_func("/topology/order", test_order);
    g_test_add_func("/topology/bad", test_bad);
    g_test_add_func("/topology/many-errors", test_many_errors);
    g_test_add_func("/topology/binary", test_binary);
    g_test_add_func("/topology/file", test_file);
    g_test_add_func("/topology/json", test_json);
    g_test_add_func("/topology/mutations", test_mutations);
    return g_test_run();
}
