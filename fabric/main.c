/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * ehca-fabric: the switches and cables of a lab.  docs/fabric.md is its
 * manual.  Exit status: 0 ended as asked, 1 could not start, 2 wrong command
 * line or topology.
 */
#include <errno.h>
#include <fcntl.h>
#include <glib-unix.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "fabric/daemon.h"

#define EXIT_START 1
#define EXIT_USAGE 2

typedef struct Options {
    char *topology, *check, *socket, *control, *capture, *format, *pidfile;
    PcapngFormat capture_format;
    gboolean json, version;
    gint64 seed;
} Options;

static int G_GNUC_PRINTF(2, 3) complain(int status, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    fprintf(stderr, "ehca-fabric: ");
    vfprintf(stderr, format, args);
    fprintf(stderr, "\n");
    va_end(args);
    return status;
}

static int check(const Options *options)
{
    Topology *topology;
    char *text;
    unsigned switches = 0;

    topology = topology_load(options->check, &text);
    if (!topology) {
        fputs(text, stderr);
        g_free(text);
        return EXIT_USAGE;
    }
    if (options->json) {
        text = topology_to_json(topology);
        puts(text);
        g_free(text);
    } else {
        for (unsigned i = 0; i < topology->num_nodes; i++) {
            switches += topology->nodes[i].kind == TOPOLOGY_SWITCH;
        }
        printf("%s: good: %u switches, %u hosts, %u cables\n",
               topology->file, switches, topology->num_nodes - switches,
               topology->num_cables);
    }
    topology_free(topology);
    return fflush(stdout) == 0 ? 0 : EXIT_START;
}

static void on_woken(void *opaque)
{
    Daemon *daemon = opaque;

    events_drain(daemon->events);
    if (daemon->links) {
        links_sync(daemon->links);
    }
}

static gboolean on_signal(gpointer opaque)
{
    Daemon *daemon = opaque;

    g_main_loop_quit(daemon->loop);
    return G_SOURCE_CONTINUE;
}

static bool write_pidfile(const char *path)
{
    char text[32];
    int n = g_snprintf(text, sizeof(text), "%d\n", (int)getpid());
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    bool good = fd >= 0 && write(fd, text, n) == n;

    if (fd >= 0) {
        close(fd);
    }
    return good;
}

static bool start_capture(Daemon *daemon, const Options *options,
                          char **error)
{
    uint8_t *cables = g_malloc(daemon->topology->num_cables + 1);
    bool good;

    memset(cables, 1, daemon->topology->num_cables);
    good = daemon_capture_start(daemon, options->capture,
                                options->capture_format, cables, error);
    g_free(cables);
    return good;
}

/* With both sockets open and nothing else started yet. */
static int serve(const Options *options, Topology *topology, int link_fd,
                 int control_fd)
{
    Daemon daemon = { .topology = topology, .seed = options->seed };
    CaptureStatus status;
    char *error = NULL;
    int result = 0;

    ib_clock_init_real(&daemon.clock);
    daemon.started_ns = ib_clock_now(&daemon.clock);
    daemon.loop = g_main_loop_new(NULL, false);
    daemon.events = events_new(&daemon);
    daemon.runner = runner_new(topology, options->seed, on_woken, &daemon,
                               &error);
    if (!daemon.runner) {
        result = complain(EXIT_START, "%s", error);
    } else if (options->capture &&
               !start_capture(&daemon, options, &error)) {
        result = complain(EXIT_START, "%s", error);
    } else if (options->pidfile && !write_pidfile(options->pidfile)) {
        result = complain(EXIT_START, "pidfile '%s' cannot be written: %s",
                          options->pidfile, g_strerror(errno));
    } else {
        daemon.control = control_new(&daemon, control_fd);
        daemon.links = links_new(&daemon, link_fd);
        g_unix_signal_add(SIGTERM, on_signal, &daemon);
        g_unix_signal_add(SIGINT, on_signal, &daemon);
        g_main_loop_run(daemon.loop);
        links_free(daemon.links);
        daemon.links = NULL;
    }
    for (unsigned i = 0; i < FABRIC_MAX_CAPTURES; i++) {
        if (daemon.captures[i]) {
            daemon_capture_stop(&daemon, i, &status);
        }
    }
    control_free(daemon.control);
    daemon.control = NULL;
    runner_free(daemon.runner);
    events_free(daemon.events);
    g_main_loop_unref(daemon.loop);
    ib_clock_fini(&daemon.clock);
    if (options->pidfile && result == 0) {
        unlink(options->pidfile);
    }
    g_free(error);
    return result;
}

/* Three of a host, and some: the usual soft limit is for few hosts. */
static void raise_descriptors(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static int run(const Options *options)
{
    Topology *topology;
    int link_fd, control_fd, result;
    char *error;

    topology = topology_load(options->topology, &error);
    if (!topology) {
        fputs(error, stderr);
        g_free(error);
        return EXIT_USAGE;
    }
    raise_descriptors();
    link_fd = socket_listen(options->socket, "link socket", &error);
    if (link_fd < 0) {
        result = complain(EXIT_START, "%s", error);
        g_free(error);
        topology_free(topology);
        return result;
    }
    control_fd = socket_listen(options->control, "control socket", &error);
    if (control_fd < 0) {
        result = complain(EXIT_START, "%s", error);
        g_free(error);
    } else {
        result = serve(options, topology, link_fd, control_fd);
    }
    socket_unlisten(control_fd, options->control);
    socket_unlisten(link_fd, options->socket);
    topology_free(topology);
    return result;
}

static int decide(Options *options)
{
    if (options->version) {
        puts("ehca-fabric " FABRIC_VERSION);
        return 0;
    }
    if (options->check) {
        return check(options);
    }
    if (options->json) {
        return complain(EXIT_USAGE, "--json goes with --check FILE");
    }
    if (options->format && !pcapng_format_parse(options->format,
                                                &options->capture_format)) {
        return complain(EXIT_USAGE, "--capture-format %s is not known; it is "
                        "erf or infiniband", options->format);
    }
    if (!options->topology || !options->socket || !options->control) {
        return complain(EXIT_USAGE, "--%s is missing; --topology FILE, "
                        "--socket PATH and --control PATH are needed",
                        !options->topology ? "topology" :
                        !options->socket ? "socket" : "control");
    }
    return run(options);
}

int main(int argc, char **argv)
{
    Options options = { .seed = 1 };
    const GOptionEntry entries[] = {
        { "topology", 't', 0, G_OPTION_ARG_FILENAME, &options.topology,
          "switches, hosts and cables to make (docs/topology.md)", "FILE" },
        { "socket", 's', 0, G_OPTION_ARG_FILENAME, &options.socket,
          "link socket, where hosts join", "PATH" },
        { "control", 'c', 0, G_OPTION_ARG_FILENAME, &options.control,
          "control socket, for commands and events", "PATH" },
        { "capture", 'w', 0, G_OPTION_ARG_FILENAME, &options.capture,
          "capture all cables into this pcapng file or pipe", "FILE" },
        { "capture-format", 0, 0, G_OPTION_ARG_STRING, &options.format,
          "erf (default: what Wireshark knows) or infiniband (link type 247)",
          "NAME" },
        { "seed", 0, 0, G_OPTION_ARG_INT64, &options.seed,
          "seed of the cables' faults (default 1)", "N" },
        { "pidfile", 0, 0, G_OPTION_ARG_FILENAME, &options.pidfile,
          "write the process's number there", "FILE" },
        { "check", 0, 0, G_OPTION_ARG_FILENAME, &options.check,
          "read a topology file, say what is wrong with it, and end",
          "FILE" },
        { "json", 0, 0, G_OPTION_ARG_NONE, &options.json,
          "with --check: print what was read as JSON", NULL },
        { "version", 0, 0, G_OPTION_ARG_NONE, &options.version,
          "print the version and end", NULL },
        { NULL },
    };
    GOptionContext *context;
    GError *error = NULL;
    bool parsed;
    int result;

    setlocale(LC_ALL, "");
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);        /* a capture beyond "ulimit -f" */
    context = g_option_context_new("- InfiniBand switches and cables");
    g_option_context_add_main_entries(context, entries, NULL);
    parsed = g_option_context_parse(context, &argc, &argv, &error);
    g_option_context_free(context);
    if (!parsed) {
        complain(EXIT_USAGE, "%s; see ehca-fabric --help", error->message);
        g_error_free(error);
        return EXIT_USAGE;
    }
    if (argc > 1) {
        return complain(EXIT_USAGE, "'%s' is not an option; see ehca-fabric "
                        "--help", argv[1]);
    }
    result = decide(&options);
    g_free(options.topology);
    g_free(options.check);
    g_free(options.socket);
    g_free(options.control);
    g_free(options.capture);
    g_free(options.format);
    g_free(options.pidfile);
    return result;
}
