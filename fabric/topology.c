/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Parser of topology files (docs/topology.md).
 *
 * Theory of operation: the text is read line by line; every line that can be
 * understood is kept, every one that cannot leaves a message, so that one
 * run tells about all that is wrong (up to TOPOLOGY_MAX_ERRORS).  Cables are
 * resolved at the end: they may be written before what they join.  A
 * topology is handed out only when there was no message at all.
 */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <json-glib/json-glib.h>

#include "fabric/topology.h"
#include "ib/link.h"
#include "ib/sma.h"

#define MAX_WORDS 16
/* Some editors begin a file with it. */
#define UTF8_BOM "\xef\xbb\xbf"
#define MAX_LINE 1024
/* Longest word of the file that a message repeats. */
#define SHOWN_MAX 64
#define NAMES_SHOWN 12
/* A name with more letters changed is no slip of the pen. */
#define GUESS_CHANGES 2

G_STATIC_ASSERT(TOPOLOGY_NAME_MAX + 1 <= IB_LINK_NAME_MAX);

typedef struct PendingCable {
    char *ends[2];
} PendingCable;

typedef struct Parser {
    const char *file;
    unsigned line;
    GArray *nodes;               /* TopologyNode */
    GArray *cables;              /* TopologyCable */
    GPtrArray *pending;          /* PendingCable, by cable */
    GHashTable *names;           /* node name -> index + 1 */
    GHashTable *cable_names;
    GString *errors;
    unsigned num_errors;
    bool node_failed;            /* a node's line was wrong */
} Parser;

static void G_GNUC_PRINTF(2, 3) complain(Parser *p, const char *format, ...)
{
    va_list args;

    p->num_errors++;
    if (p->num_errors > TOPOLOGY_MAX_ERRORS) {
        return;
    }
    g_string_append(p->errors, p->file);
    if (p->line) {
        g_string_append_printf(p->errors, ":%u", p->line);
    }
    g_string_append(p->errors, ": ");
    va_start(args, format);
    g_string_append_vprintf(p->errors, format, args);
    va_end(args);
    g_string_append_c(p->errors, '\n');
}

/* A word of the file, fit to be printed. Four may be in use at a time. */
static const char *shown(const char *word)
{
    static char text[4][SHOWN_MAX + 4];
    static unsigned next;
    char *out = text[next++ % G_N_ELEMENTS(text)];
    size_t i;

    for (i = 0; word[i] && i < SHOWN_MAX; i++) {
        out[i] = g_ascii_isprint(word[i]) ? word[i] : '?';
    }
    strcpy(out + i, word[i] ? "..." : "");
    return out;
}

static bool name_ok(const char *name)
{
    size_t i;

    for (i = 0; name[i]; i++) {
        if (!g_ascii_isalnum(name[i]) && !strchr("_.-", name[i])) {
            return false;
        }
    }
    return i > 0 && i <= TOPOLOGY_NAME_MAX && g_ascii_isalnum(name[0]);
}

static bool check_name(Parser *p, const char *what, const char *name)
{
    if (name_ok(name)) {
        return true;
    }
    complain(p, "'%s' is no name for a %s; a name is 1 to %d letters, "
             "digits, '-', '_' or '.', the first a letter or digit",
             shown(name), what, TOPOLOGY_NAME_MAX);
    return false;
}

static bool parse_number(const char *text, uint64_t max, uint64_t *value)
{
    char *end;
    int base = g_str_has_prefix(text, "0x") ? 16 : 10;

    if (!g_ascii_isdigit(text[0])) {
        return false;
    }
    errno = 0;
    *value = g_ascii_strtoull(text, &end, base);
    return !errno && !*end && *value <= max;
}

/* Code whose name is @text, or 0. */
static const struct { uint8_t code; const char *name; } widths[] = {
    { 1, "1x" }, { 2, "4x" }, { 4, "8x" }, { 8, "12x" },
}, speeds[] = {
    { 1, "SDR" }, { 2, "DDR" }, { 4, "QDR" },
};

const char *topology_width_name(unsigned width)
{
    for (size_t i = 0; i < G_N_ELEMENTS(widths); i++) {
        if (widths[i].code == width) {
            return widths[i].name;
        }
    }
    return "unknown";
}

const char *topology_speed_name(unsigned speed)
{
    for (size_t i = 0; i < G_N_ELEMENTS(speeds); i++) {
        if (speeds[i].code == speed) {
            return speeds[i].name;
        }
    }
    return "unknown";
}

static uint8_t width_code(const char *text)
{
    for (size_t i = 0; i < G_N_ELEMENTS(widths); i++) {
        if (!g_ascii_strcasecmp(widths[i].name, text)) {
            return widths[i].code;
        }
    }
    return 0;
}

static uint8_t speed_code(const char *text)
{
    for (size_t i = 0; i < G_N_ELEMENTS(speeds); i++) {
        if (!g_ascii_strcasecmp(speeds[i].name, text)) {
            return speeds[i].code;
        }
    }
    return 0;
}

/* @word is "key=value": the value, or NULL. */
static const char *value_of(const char *word, const char *key)
{
    size_t len = strlen(key);

    return !strncmp(word, key, len) && word[len] == '=' ? word + len + 1
                                                        : NULL;
}

/* Whether the key of the word @i stood before; a message says so. */
static bool twice(Parser *p, char **words, unsigned first, unsigned i)
{
    size_t len = strcspn(words[i], "=");

    for (unsigned k = first; k < i; k++) {
        if (!strncmp(words[k], words[i], len + 1)) {
            complain(p, "'%s' and '%s' for the same %s; leave one",
                     shown(words[k]), shown(words[i]), words[0]);
            return true;
        }
    }
    return false;
}

static void parse_node(Parser *p, char **words, unsigned count)
{
    bool is_switch = !strcmp(words[0], "switch");
    unsigned max_ports = is_switch ? IB_SMA_MAX_PORTS : IB_LINK_MAX_PORTS;
    TopologyNode node = {
        .kind = is_switch ? TOPOLOGY_SWITCH : TOPOLOGY_HOST,
        .mtu = 5, .line = p->line,
    };
    unsigned errors_before = p->num_errors;
    bool have_ports = false;
    const char *value;
    uint64_t number;
    gpointer other;

    if (count < 2) {
        complain(p, "%s without a name; write '%s NAME ports=N'",
                 words[0], words[0]);
        p->node_failed = true;
        return;
    }
    if (check_name(p, words[0], words[1])) {
        strcpy(node.name, words[1]);
        other = g_hash_table_lookup(p->names, words[1]);
        if (other) {
            complain(p, "the name %s is taken by line %u; every switch and "
                     "host needs a name of its own", words[1],
                     g_array_index(p->nodes, TopologyNode,
                                   GPOINTER_TO_UINT(other) - 1).line);
        }
    }
    for (unsigned i = 2; i < count; i++) {
        if (twice(p, words, 2, i)) {
            continue;
        }
        if ((value = value_of(words[i], "ports"))) {
            have_ports = true;
            if (!parse_number(value, max_ports, &number) || !number) {
                complain(p, "ports=%s of %s; a %s has 1 to %u ports",
                         shown(value), shown(words[1]), words[0], max_ports);
                continue;
            }
            node.num_ports = number;
        } else if ((value = value_of(words[i], "guid"))) {
            if (!g_str_has_prefix(value, "0x") ||
                !parse_number(value, UINT64_MAX, &number) || !number) {
                complain(p, "guid=%s of %s; a GUID is written as 0x and up to "
                         "16 hexadecimal digits, and is not 0",
                         shown(value), shown(words[1]));
                continue;
            }
            node.guid = number;
        } else if (is_switch && (value = value_of(words[i], "mtu"))) {
            for (node.mtu = 5; node.mtu; node.mtu--) {
                if (parse_number(value, IB_MTU_MAX, &number) &&
                    number == ib_mtu_bytes(node.mtu)) {
                    break;
                }
            }
            if (!node.mtu) {
                complain(p, "mtu=%s of %s; it is 256, 512, 1024, 2048 or 4096",
                         shown(value), shown(words[1]));
            }
        } else {
            complain(p, "'%s' means nothing for a %s; known are ports=N and "
                     "guid=0x...%s", shown(words[i]), words[0],
                     is_switch ? " and mtu=BYTES" : "");
        }
    }
    if (!have_ports) {
        complain(p, "%s %s has no number of ports; add ports=N (1 to %u)",
                 words[0], shown(words[1]), max_ports);
    }
    if (p->num_errors == errors_before &&
        p->nodes->len == TOPOLOGY_MAX_NODES) {
        complain(p, "more than %d switches and hosts; split the fabric",
                 TOPOLOGY_MAX_NODES);
    }
    if (p->num_errors != errors_before) {
        p->node_failed = true;
        return;
    }
    g_array_append_val(p->nodes, node);
    g_hash_table_insert(p->names, g_strdup(node.name),
                        GUINT_TO_POINTER(p->nodes->len));
}

static void pending_free(gpointer data)
{
    PendingCable *pending = data;

    g_free(pending->ends[0]);
    g_free(pending->ends[1]);
    g_free(pending);
}

static void parse_cable(Parser *p, char **words, unsigned count)
{
    TopologyCable cable = {
        .width = 2, .speed = 1, .plugged = true, .line = p->line,
    };
    unsigned errors_before = p->num_errors;
    PendingCable *pending;
    const char *value;
    gpointer other;

    if (count < 4 || strchr(words[1], '/') || strchr(words[2], '=') ||
        strchr(words[3], '=')) {
        complain(p, "a cable has a name and two ends; write "
                 "'cable NAME NODE/PORT NODE/PORT'");
        return;
    }
    if (check_name(p, "cable", words[1])) {
        strcpy(cable.name, words[1]);
        other = g_hash_table_lookup(p->cable_names, words[1]);
        if (other) {
            complain(p, "there is a cable %s in line %u already; cables are "
                     "pulled by name, so each needs its own", words[1],
                     g_array_index(p->cables, TopologyCable,
                                   GPOINTER_TO_UINT(other) - 1).line);
        }
    }
    for (unsigned i = 4; i < count; i++) {
        if (twice(p, words, 4, i)) {
            continue;
        }
        if ((value = value_of(words[i], "width"))) {
            cable.width = width_code(value);
            if (!cable.width) {
                complain(p, "width=%s of cable %s; it is 1x, 4x, 8x or 12x",
                         shown(value), shown(words[1]));
            }
        } else if ((value = value_of(words[i], "speed"))) {
            cable.speed = speed_code(value);
            if (!cable.speed) {
                complain(p, "speed=%s of cable %s; it is SDR, DDR or QDR",
                         shown(value), shown(words[1]));
            }
        } else if ((value = value_of(words[i], "plugged"))) {
            cable.plugged = !strcmp(value, "yes");
            if (!cable.plugged && strcmp(value, "no")) {
                complain(p, "plugged=%s of cable %s; it is yes or no",
                         shown(value), shown(words[1]));
            }
        } else {
            complain(p, "'%s' means nothing for a cable; known are width=4x, "
                     "speed=SDR and plugged=yes|no", shown(words[i]));
        }
    }
    if (p->num_errors == errors_before &&
        p->cables->len == TOPOLOGY_MAX_CABLES) {
        complain(p, "more than %d cables; split the fabric",
                 TOPOLOGY_MAX_CABLES);
    }
    if (p->num_errors != errors_before) {
        return;
    }
    g_array_append_val(p->cables, cable);
    g_hash_table_insert(p->cable_names, g_strdup(cable.name),
                        GUINT_TO_POINTER(p->cables->len));
    pending = g_new(PendingCable, 1);
    pending->ends[0] = g_strdup(words[2]);
    pending->ends[1] = g_strdup(words[3]);
    g_ptr_array_add(p->pending, pending);
}

static void parse_line(Parser *p, char *line)
{
    char *words[MAX_WORDS];
    unsigned count = 0;
    char *save = NULL;
    char *hash = strchr(line, '#');

    if (hash) {
        *hash = 0;
    }
    for (char *word = strtok_r(line, " \t\r", &save); word;
         word = strtok_r(NULL, " \t\r", &save)) {
        if (count == MAX_WORDS) {
            complain(p, "more than %d words; one switch, host or cable "
                     "per line", MAX_WORDS);
            return;
        }
        words[count++] = word;
    }
    if (!count) {
        return;
    }
    if (!strcmp(words[0], "switch") || !strcmp(words[0], "host")) {
        parse_node(p, words, count);
    } else if (!strcmp(words[0], "cable")) {
        parse_cable(p, words, count);
    } else {
        complain(p, "'%s' is not known; a line begins with switch, host "
                 "or cable", shown(words[0]));
    }
}

/* The names of all nodes of one kind, or of all. */
static void append_names(GString *out, const void *base, size_t stride,
                         unsigned count, int kind)
{
    unsigned listed = 0, more = 0;

    for (unsigned i = 0; i < count; i++) {
        const char *name;

        if (kind >= 0) {
            const TopologyNode *node = (const TopologyNode *)
                ((const char *)base + i * stride);

            if ((int)node->kind != kind) {
                continue;
            }
            name = node->name;
        } else {
            name = ((const TopologyCable *)
                    ((const char *)base + i * stride))->name;
        }
        if (listed < NAMES_SHOWN) {
            g_string_append_printf(out, "%s%s", listed ? ", " : "", name);
            listed++;
        } else {
            more++;
        }
    }
    if (more) {
        g_string_append_printf(out, " and %u more", more);
    }
    if (!listed) {
        g_string_append(out, "none");
    }
}

/* How many letters make one name of the other (Levenshtein's distance). */
static unsigned distance(const char *a, const char *b)
{
    unsigned row[TOPOLOGY_NAME_MAX + 1];
    size_t len = strlen(b);

    for (size_t j = 0; j <= len; j++) {
        row[j] = j;
    }
    for (size_t i = 0; a[i]; i++) {
        unsigned corner = row[0]++;

        for (size_t j = 0; j < len; j++) {
            unsigned change = corner + (a[i] != b[j]);

            corner = row[j + 1];
            row[j + 1] = MIN(MIN(corner, row[j]) + 1, change);
        }
    }
    return row[len];
}

/* The node that was perhaps meant, or NULL. */
static const char *nearest(const Parser *p, const char *name)
{
    const char *best = NULL;
    unsigned least = MIN(GUESS_CHANGES + 1, strlen(name));

    if (!name_ok(name) || p->num_errors >= TOPOLOGY_MAX_ERRORS) {
        return NULL;
    }
    for (unsigned i = 0; i < p->nodes->len; i++) {
        const char *node = g_array_index(p->nodes, TopologyNode, i).name;
        unsigned changes;

        if (MAX(strlen(name), strlen(node)) >=
            MIN(strlen(name), strlen(node)) + least) {
            continue;
        }
        changes = distance(name, node);
        if (changes < least) {
            least = changes;
            best = node;
        }
    }
    return best;
}

static bool resolve_end(Parser *p, const char *cable, const char *text,
                        TopologyEnd *end)
{
    const char *slash = strchr(text, '/');
    const TopologyNode *node;
    gpointer found;
    uint64_t port;
    char *name;

    if (!slash || !slash[1]) {
        complain(p, "'%s' is no end for cable %s; an end is NODE/PORT, "
                 "as in alice/1", shown(text), cable);
        return false;
    }
    name = g_strndup(text, slash - text);
    found = g_hash_table_lookup(p->names, name);
    if (!found) {
        if (!p->node_failed) {
            GString *known = g_string_new(NULL);
            const char *near = nearest(p, name);

            if (near) {
                g_string_append_printf(known, "did you mean '%s'? ", near);
            }
            g_string_append(known, "switches: ");
            append_names(known, p->nodes->data, sizeof(TopologyNode),
                         p->nodes->len, TOPOLOGY_SWITCH);
            g_string_append(known, "; hosts: ");
            append_names(known, p->nodes->data, sizeof(TopologyNode),
                         p->nodes->len, TOPOLOGY_HOST);
            complain(p, "cable %s ends at '%s', which no line declares; "
                     "%s", cable, shown(name), known->str);
            g_string_free(known, true);
        }
        g_free(name);
        return false;
    }
    g_free(name);
    end->node = GPOINTER_TO_UINT(found) - 1;
    node = &g_array_index(p->nodes, TopologyNode, end->node);
    if (!parse_number(slash + 1, node->num_ports, &port) || !port) {
        complain(p, "cable %s ends at port '%s' of %s; %s has ports 1 to %u",
                 cable, shown(slash + 1), node->name, node->name,
                 node->num_ports);
        return false;
    }
    end->port = port;
    return true;
}

static void resolve_cables(Parser *p)
{
    GHashTable *used = g_hash_table_new(g_direct_hash, g_direct_equal);

    for (unsigned i = 0; i < p->cables->len; i++) {
        TopologyCable *cable = &g_array_index(p->cables, TopologyCable, i);
        PendingCable *pending = g_ptr_array_index(p->pending, i);
        bool good[2];

        p->line = cable->line;
        for (int e = 0; e < 2; e++) {
            gpointer key, other;

            good[e] = resolve_end(p, cable->name, pending->ends[e],
                                  &cable->ends[e]);
            if (!good[e]) {
                continue;
            }
            if (e == 1 && good[0] &&
                !memcmp(&cable->ends[0], &cable->ends[1],
                        sizeof(TopologyEnd))) {
                complain(p, "both ends of cable %s are %s; a cable joins two "
                         "ports", cable->name, shown(pending->ends[e]));
                continue;
            }
            key = GUINT_TO_POINTER(cable->ends[e].node *
                                   (IB_SMA_MAX_PORTS + 1) +
                                   cable->ends[e].port);
            other = g_hash_table_lookup(used, key);
            if (other) {
                const TopologyCable *first = &g_array_index(
                    p->cables, TopologyCable, GPOINTER_TO_UINT(other) - 1);

                complain(p, "%s has cable %s in it already (line %u); a port "
                         "takes one cable", shown(pending->ends[e]),
                         first->name, first->line);
            } else {
                g_hash_table_insert(used, key, GUINT_TO_POINTER(i + 1));
            }
        }
    }
    g_hash_table_destroy(used);
}

/*
 * A switch's GUID follows from its name, so that it stays the same when other
 * lines come and go.  First byte 02: a locally administered EUI-64.
 */
static uint64_t guid_from_name(const char *name)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    for (; *name; name++) {
        hash = (hash ^ (uint8_t)*name) * UINT64_C(0x100000001b3);
    }
    return UINT64_C(0x0200000000000000) | (hash ^ hash >> 32) % (1ull << 48);
}

static void give_guids(Parser *p)
{
    GHashTable *guids = g_hash_table_new(g_int64_hash, g_int64_equal);

    for (unsigned i = 0; i < p->nodes->len; i++) {
        TopologyNode *node = &g_array_index(p->nodes, TopologyNode, i);
        const TopologyNode *first;

        if (!node->guid) {
            continue;
        }
        first = g_hash_table_lookup(guids, &node->guid);
        if (first) {
            p->line = node->line;
            complain(p, "guid=0x%016" G_GINT64_MODIFIER "x of %s is also that "
                     "of %s (line %u); GUIDs are unique", node->guid,
                     node->name, first->name, first->line);
        } else {
            g_hash_table_insert(guids, &node->guid, node);
        }
    }
    for (unsigned i = 0; i < p->nodes->len; i++) {
        TopologyNode *node = &g_array_index(p->nodes, TopologyNode, i);

        if (node->kind == TOPOLOGY_SWITCH && !node->guid) {
            node->guid = guid_from_name(node->name);
            while (g_hash_table_contains(guids, &node->guid)) {
                node->guid++;
            }
            g_hash_table_insert(guids, &node->guid, node);
        }
    }
    g_hash_table_destroy(guids);
}

Topology *topology_parse(const char *file, const char *text, size_t len,
                         char **errors)
{
    Parser p = {
        .file = file,
        .nodes = g_array_new(false, false, sizeof(TopologyNode)),
        .cables = g_array_new(false, false, sizeof(TopologyCable)),
        .pending = g_ptr_array_new_with_free_func(pending_free),
        .names = g_hash_table_new_full(g_str_hash, g_str_equal, g_free,
                                       NULL),
        .cable_names = g_hash_table_new_full(g_str_hash, g_str_equal, g_free,
                                             NULL),
        .errors = g_string_new(NULL),
    };
    Topology *topology = NULL;
    const char *end = text + len;

    if (len >= strlen(UTF8_BOM) && !memcmp(text, UTF8_BOM,
                                           strlen(UTF8_BOM))) {
        text += strlen(UTF8_BOM);
    }
    while (text < end) {
        const char *eol = memchr(text, '\n', end - text);
        size_t n = (eol ? eol : end) - text;

        p.line++;
        if (n > MAX_LINE) {
            complain(&p, "the line is longer than %d characters; is this a "
                     "topology file?", MAX_LINE);
        } else if (memchr(text, 0, n)) {
            complain(&p, "the line has a zero byte in it; is this a topology "
                     "file?");
        } else {
            char line[MAX_LINE + 1];

            memcpy(line, text, n);
            line[n] = 0;
            parse_line(&p, line);
        }
        text += n + 1;
    }
    resolve_cables(&p);
    give_guids(&p);
    p.line = 0;
    if (!p.num_errors && !p.nodes->len) {
        complain(&p, "no switch and no host in it; write for example "
                 "'host alice ports=2'");
    }
    if (p.num_errors > TOPOLOGY_MAX_ERRORS) {
        g_string_append_printf(p.errors, "%s: %u more errors\n", file,
                               p.num_errors - TOPOLOGY_MAX_ERRORS);
    }
    if (p.num_errors) {
        *errors = g_string_free(p.errors, false);
    } else {
        topology = g_new0(Topology, 1);
        topology->file = g_strdup(file);
        topology->num_nodes = p.nodes->len;
        topology->num_cables = p.cables->len;
        topology->nodes = (TopologyNode *)
            (void *)g_array_free(p.nodes, false);
        topology->cables = (TopologyCable *)
            (void *)g_array_free(p.cables, false);
        p.nodes = p.cables = NULL;
        g_string_free(p.errors, true);
        *errors = NULL;
    }
    if (p.nodes) {
        g_array_free(p.nodes, true);
        g_array_free(p.cables, true);
    }
    g_ptr_array_free(p.pending, true);
    g_hash_table_destroy(p.names);
    g_hash_table_destroy(p.cable_names);
    return topology;
}

Topology *topology_load(const char *file, char **errors)
{
    Topology *topology = NULL;
    struct stat st;
    char *text = NULL;
    size_t have = 0;
    ssize_t n = 0;
    int fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0 || fstat(fd, &st) < 0) {
        *errors = g_strdup_printf("%s: %s; name a topology file, for example "
                                  "scenarios/topologies/two-rails.topo\n",
                                  file, g_strerror(errno));
    } else if (!S_ISREG(st.st_mode)) {
        *errors = g_strdup_printf("%s: not a regular file; name a topology "
                                  "file\n", file);
    } else if (st.st_size > TOPOLOGY_MAX_FILE) {
        *errors = g_strdup_printf("%s: longer than %u bytes; is this a "
                                  "topology file?\n", file,
                                  TOPOLOGY_MAX_FILE);
    } else {
        text = g_malloc(TOPOLOGY_MAX_FILE);
        while (have < TOPOLOGY_MAX_FILE &&
               (n = read(fd, text + have, TOPOLOGY_MAX_FILE - have)) > 0) {
            have += n;
        }
        if (n < 0) {
            *errors = g_strdup_printf("%s: %s\n", file, g_strerror(errno));
        } else {
            topology = topology_parse(file, text, have, errors);
        }
        g_free(text);
    }
    if (fd >= 0) {
        close(fd);
    }
    return topology;
}

void topology_free(Topology *topology)
{
    if (topology) {
        g_free(topology->file);
        g_free(topology->nodes);
        g_free(topology->cables);
        g_free(topology);
    }
}

int topology_find_node(const Topology *topology, const char *name)
{
    for (unsigned i = 0; i < topology->num_nodes; i++) {
        if (!strcmp(topology->nodes[i].name, name)) {
            return i;
        }
    }
    return -1;
}

int topology_find_cable(const Topology *topology, const char *name)
{
    for (unsigned i = 0; i < topology->num_cables; i++) {
        if (!strcmp(topology->cables[i].name, name)) {
            return i;
        }
    }
    return -1;
}

char *topology_host_names(const Topology *topology)
{
    GString *out = g_string_new(NULL);

    append_names(out, topology->nodes, sizeof(TopologyNode),
                 topology->num_nodes, TOPOLOGY_HOST);
    return g_string_free(out, false);
}

char *topology_cable_names(const Topology *topology)
{
    GString *out = g_string_new(NULL);

    append_names(out, topology->cables, sizeof(TopologyCable),
                 topology->num_cables, -1);
    return g_string_free(out, false);
}

static void json_nodes(JsonBuilder *b, const Topology *topology,
                       TopologyKind kind)
{
    char guid[19];

    json_builder_begin_array(b);
    for (unsigned i = 0; i < topology->num_nodes; i++) {
        const TopologyNode *node = &topology->nodes[i];

        if (node->kind != kind) {
            continue;
        }
        json_builder_begin_object(b);
        json_builder_set_member_name(b, "name");
        json_builder_add_string_value(b, node->name);
        json_builder_set_member_name(b, "ports");
        json_builder_add_int_value(b, node->num_ports);
        json_builder_set_member_name(b, "guid");
        if (node->guid) {
            g_snprintf(guid, sizeof(guid), "0x%016" G_GINT64_MODIFIER "x",
                       node->guid);
            json_builder_add_string_value(b, guid);
        } else {
            json_builder_add_null_value(b);
        }
        if (kind == TOPOLOGY_SWITCH) {
            json_builder_set_member_name(b, "mtu");
            json_builder_add_int_value(b, ib_mtu_bytes(node->mtu));
        }
        json_builder_set_member_name(b, "line");
        json_builder_add_int_value(b, node->line);
        json_builder_end_object(b);
    }
    json_builder_end_array(b);
}

char *topology_to_json(const Topology *topology)
{
    JsonBuilder *b = json_builder_new();
    JsonGenerator *generator = json_generator_new();
    JsonNode *root;
    char *text;

    json_builder_begin_object(b);
    json_builder_set_member_name(b, "file");
    json_builder_add_string_value(b, topology->file);
    json_builder_set_member_name(b, "switches");
    json_nodes(b, topology, TOPOLOGY_SWITCH);
    json_builder_set_member_name(b, "hosts");
    json_nodes(b, topology, TOPOLOGY_HOST);
    json_builder_set_member_name(b, "cables");
    json_builder_begin_array(b);
    for (unsigned i = 0; i < topology->num_cables; i++) {
        const TopologyCable *cable = &topology->cables[i];

        json_builder_begin_object(b);
        json_builder_set_member_name(b, "name");
        json_builder_add_string_value(b, cable->name);
        json_builder_set_member_name(b, "ends");
        json_builder_begin_array(b);
        for (int e = 0; e < 2; e++) {
            json_builder_begin_object(b);
            json_builder_set_member_name(b, "node");
            json_builder_add_string_value(
                b, topology->nodes[cable->ends[e].node].name);
            json_builder_set_member_name(b, "port");
            json_builder_add_int_value(b, cable->ends[e].port);
            json_builder_end_object(b);
        }
        json_builder_end_array(b);
        json_builder_set_member_name(b, "plugged");
        json_builder_add_boolean_value(b, cable->plugged);
        json_builder_set_member_name(b, "width");
        json_builder_add_string_value(b, topology_width_name(cable->width));
        json_builder_set_member_name(b, "speed");
        json_builder_add_string_value(b, topology_speed_name(cable->speed));
        json_builder_set_member_name(b, "line");
        json_builder_add_int_value(b, cable->line);
        json_builder_end_object(b);
    }
    json_builder_end_array(b);
    json_builder_end_object(b);
    root = json_builder_get_root(b);
    json_generator_set_root(generator, root);
    json_generator_set_pretty(generator, true);
    text = json_generator_to_data(generator, NULL);
    json_node_unref(root);
    g_object_unref(generator);
    g_object_unref(b);
    return text;
}
