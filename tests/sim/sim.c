/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The simulator's command line: worlds from seeds (world.h), and the table of
 * cases (cases.c).
 *
 *   sim --seed 7 --failovers 5000      one world, until that many failovers
 *   sim --seed 7 --worlds 20           seeds 7 to 26
 *   sim --seed 7 --minutes 60          seeds from 7 on, for an hour
 *   sim --seed 7 --twice               the same world twice: the same trace
 *   sim --cases [NAME]                 what apm-and-cm section 6 lists
 *
 * The real clock is only looked at between worlds, for --minutes.
 */
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cases.h"
#include "world.h"

#define DEFAULT_FAILOVERS 500u

typedef struct Arguments {
    WorldOptions world;
    uint64_t worlds;
    double minutes;
    bool twice, cases, list;
    const char *case_name;
    const char *trace_file;
    const char *faults;
} Arguments;

static const struct option long_options[] = {
    { "seed", required_argument, NULL, 's' },
    { "failovers", required_argument, NULL, 'f' },
    { "worlds", required_argument, NULL, 'w' },
    { "minutes", required_argument, NULL, 'm' },
    { "faults", required_argument, NULL, 'F' },
    { "topology", required_argument, NULL, 't' },
    { "trace", required_argument, NULL, 'T' },
    { "twice", no_argument, NULL, '2' },
    { "verbose", no_argument, NULL, 'v' },
    { "cases", optional_argument, NULL, 'c' },
    { "list", no_argument, NULL, 'l' },
    { "help", no_argument, NULL, 'h' },
    { NULL, 0, NULL, 0 },
};

static void usage(FILE *f)
{
    fprintf(f, "usage: sim [--seed S] [--failovers N] [--worlds N | "
            "--minutes M] [--twice]\n"
            "           [--faults LIST] [--topology NAME] [--verbose] "
            "[--trace FILE]\n"
            "       sim --cases [NAME] | --list\n"
            "faults: all, none, %s;\n"
            "        a list of names switches the others off, -name switches "
            "one off\n"
            "topologies: ", world_fault_names());
    for (unsigned t = 0; t < TOPOLOGIES; t++) {
        fprintf(f, "%s%s", t ? ", " : "", world_topology_name(t));
    }
    fputc('\n', f);
}

__attribute__((noreturn))
static void wrong(const char *what, const char *value, const char *right)
{
    fprintf(stderr, "sim: %s \"%s\": %s\n", what, value, right);
    exit(2);
}

static uint64_t number(const char *what, const char *value)
{
    char *end;
    uint64_t n = strtoull(value, &end, 0);

    if (!*value || *value == '-' || *end) {
        wrong(what, value, "must be a whole number");
    }
    return n;
}

static void parse(Arguments *a, int argc, char **argv)
{
    char error[512], *end;
    int c;

    a->world.seed = 1;
    a->world.failovers = DEFAULT_FAILOVERS;
    a->world.topology = -1;
    a->worlds = 1;
    a->faults = "all";
    while ((c = getopt_long(argc, argv, "v", long_options, NULL)) != -1) {
        switch (c) {
        case 's':
            a->world.seed = number("--seed", optarg);
            break;
        case 'f':
            a->world.failovers = number("--failovers", optarg);
            break;
        case 'w':
            a->worlds = number("--worlds", optarg);
            break;
        case 'm':
            a->minutes = strtod(optarg, &end);
            if (*end || a->minutes <= 0) {
                wrong("--minutes", optarg, "must be a number above 0");
            }
            break;
        case 'F':
            a->faults = optarg;
            break;
        case 't':
            for (unsigned t = 0; t < TOPOLOGIES; t++) {
                if (!strcmp(optarg, world_topology_name(t))) {
                    a->world.topology = t;
                }
            }
            if (a->world.topology < 0) {
                wrong("--topology", optarg, "there is none of that name; see "
                      "--help");
            }
            break;
        case 'T':
            a->trace_file = optarg;
            break;
        case '2':
            a->twice = true;
            break;
        case 'v':
            a->world.verbose = true;
            break;
        case 'c':
            a->cases = true;
            a->case_name = optarg;
            break;
        case 'l':
            a->list = true;
            break;
        case 'h':
            usage(stdout);
            exit(0);
        default:
            usage(stderr);
            exit(2);
        }
    }
    if (a->cases && !a->case_name && optind < argc) {
        a->case_name = argv[optind++];
    }
    if (optind < argc) {
        wrong("argument", argv[optind], "is not expected; see --help");
    }
    if (!world_faults_parse(&a->world.faults, a->faults, error,
                            sizeof(error))) {
        wrong("--faults", a->faults, error);
    }
}

static double real_seconds(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec + ts.tv_nsec / 1e9;
}

static uint64_t run_world(const WorldOptions *options)
{
    World *w = world_new(options);
    uint64_t hash;

    script_run(w);
    hash = w->hash;
    printf("%llu failovers, %llu messages, %.1f s of virtual time, %s, %u "
           "hosts, %u connections, %llu pulls, %llu reconnects, %llu subnet "
           "managers, %llu host deaths, seed %llu, trace 0x%016llx\n",
           (unsigned long long)w->failovers,
           (unsigned long long)w->messages, (double)world_now(w) / 1e9,
           world_topology_name(w->kind), w->num_hosts, w->num_conns,
           (unsigned long long)w->pulls, (unsigned long long)w->reconnects,
           (unsigned long long)w->sm_starts,
           (unsigned long long)w->host_deaths,
           (unsigned long long)options->seed, (unsigned long long)hash);
    fflush(stdout);
    world_free(w);
    return hash;
}

int main(int argc, char **argv)
{
    Arguments a = { 0 };
    char replay[512];
    double end;

    parse(&a, argc, argv);
    if (a.list) {
        cases_list();
        return 0;
    }
    if (a.cases) {
        return cases_run(a.case_name, a.world.verbose);
    }
    snprintf(replay, sizeof(replay), "%s --failovers %llu --faults %s%s%s",
             argv[0], (unsigned long long)a.world.failovers, a.faults,
             a.world.topology >= 0 ? " --topology " : "",
             a.world.topology >= 0 ? world_topology_name(a.world.topology)
                                   : "");
    a.world.replay = replay;
    a.world.progress = !a.twice && a.worlds == 1 && !a.minutes;
    if (a.trace_file) {
        a.world.trace = fopen(a.trace_file, "w");
        if (!a.world.trace) {
            wrong("--trace", a.trace_file, "cannot be written");
        }
    }
    end = real_seconds() + 60 * a.minutes;
    for (uint64_t i = 0; a.minutes ? real_seconds() < end : i < a.worlds;
         i++) {
        uint64_t hash = run_world(&a.world);

        if (a.twice && run_world(&a.world) != hash) {
            fprintf(stderr, "FAILED: seed %llu does not give the same trace "
                    "twice\n", (unsigned long long)a.world.seed);
            return 1;
        }
        a.world.seed++;
    }
    if (a.world.trace) {
        fclose(a.world.trace);
    }
    return 0;
}
