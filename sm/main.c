/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * ehca-sm: the subnet manager as a node of the fabric.  docs/sm.md is its
 * manual.  Exit status: 0 ended as asked, 1 could not start, 2 wrong command
 * line.
 *
 * Theory of operation: one thread, one Sm that lives as long as the process,
 * and a link to the fabric that may come and go:
 *
 *   away       no fabric: try to connect, wait longer each time
 *   attached   packets and link states go to the Sm; between them the process
 *              sleeps in ppoll() until its clock's next deadline
 *
 * A packet is taken from the ring only while there is room for the answers,
 * so a burst of queries waits in the fabric instead of losing its answers.
 */
#include <errno.h>
#include <glib.h>
#include <locale.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "ib/link.h"
#include "sm/sm.h"

#define EXIT_START 1
#define EXIT_USAGE 2
#define OWN_PORT 1
#define CONNECT_TIMEOUT_MS 2000
#define RECONNECT_FIRST (50 * IB_MSEC)
#define RECONNECT_LAST (2 * IB_SEC)
/* Packets and timers between two looks at everything else. */
#define PACKET_BUDGET 64
#define TIMER_BUDGET 64
/* Answers that one packet may cause before the next is taken. */
#define ROOM_FOR_ANSWERS 32
/* With less room than that, look again after so long. */
#define ROOM_LOOK (1 * IB_MSEC)
#define SWEEP_MAX_S 86400.0

typedef struct Options {
    char *socket, *node, *guid, *log, *lid_file, *m_key;
    double sweep;
    int priority, lmc, packet_life, subnet_timeout;
    gboolean no_ipoib, version;
} Options;

typedef struct Daemon {
    const Options *options;
    SmOptions sm_options;
    IbClock clock;
    Sm *sm;
    IbLinkClient *client;        /* NULL: away */
    bool kick;                   /* the fabric has packets to take */
    bool stalled;                /* packets wait until there is room */
    int signal_fd;
    int64_t next_try, delay;
    char *last_error;            /* each reason is told once */
} Daemon;

static void say(SmLogLevel level, const char *line)
{
    struct timespec now;
    struct tm tm;
    char text[32];

    clock_gettime(CLOCK_REALTIME, &now);
    localtime_r(&now.tv_sec, &tm);
    strftime(text, sizeof(text), "%F %T", &tm);
    fprintf(stderr, "%s.%03ld %s: %s\n", text, now.tv_nsec / 1000000,
            sm_log_level_name(level), line);
}

static void sm_said(void *opaque, SmLogLevel level, const char *line)
{
    say(level, line);
}

static bool sm_sends(void *opaque, const uint8_t *packet, size_t len)
{
    Daemon *daemon = opaque;
    IbRing *tx;
    uint8_t *slot;

    if (!daemon->client) {
        return false;
    }
    tx = &daemon->client->ports[OWN_PORT].tx;
    slot = ib_ring_reserve(tx);
    if (!slot) {
        return false;
    }
    memcpy(slot, packet, len);
    if (ib_ring_commit(tx, len)) {
        daemon->kick = true;
    }
    return true;
}

static void sm_tells(void *opaque, const char *json)
{
    Daemon *daemon = opaque;
    IbLinkMessage message = { .type = IB_LINK_EVENT };

    if (daemon->client && strlen(json) <= IB_LINK_BODY_MAX) {
        g_strlcpy(message.text, json, sizeof(message.text));
        ib_link_client_send(daemon->client, &message);
    }
}

static const SmOps sm_ops = {
    .send = sm_sends, .log = sm_said, .event = sm_tells,
};

/* Away */

static void try_later(Daemon *daemon, const char *why)
{
    if (g_strcmp0(why, daemon->last_error) != 0) {
        g_autofree char *line = g_strdup_printf("%s; trying again", why);

        say(SM_LOG_WARN, line);
        g_free(daemon->last_error);
        daemon->last_error = g_strdup(why);
    }
    daemon->next_try = ib_clock_now(&daemon->clock) + daemon->delay;
    daemon->delay = MIN(daemon->delay * 2, RECONNECT_LAST);
}

static void attach(Daemon *daemon)
{
    IbLinkHello hello = {
        .version = IB_LINK_VERSION,
        .num_ports = 1,
        .node_type = IB_NODE_CA,
        .node_guid = daemon->sm_options.node_guid,
        .port_guids = { daemon->sm_options.port_guid },
    };
    IbLinkMessage enable = {
        .type = IB_LINK_PHYS, .port = OWN_PORT, .phys = { .enabled = true },
    };
    g_autofree char *line = NULL;
    char *error;

    g_strlcpy(hello.name, daemon->options->node, sizeof(hello.name));
    daemon->client = ib_link_client_connect(daemon->options->socket, &hello,
                                            CONNECT_TIMEOUT_MS, &error);
    if (!daemon->client) {
        try_later(daemon, error ? error : "out of memory");
        free(error);
        return;
    }
    line = g_strdup_printf("attached to the fabric at %s as '%s'",
                           daemon->options->socket, daemon->options->node);
    say(SM_LOG_INFO, line);
    g_clear_pointer(&daemon->last_error, g_free);
    daemon->delay = RECONNECT_FIRST;
    ib_link_client_send(daemon->client, &enable);
}

static void detach(Daemon *daemon, const char *why)
{
    ib_link_client_close(daemon->client);
    daemon->client = NULL;
    daemon->kick = false;
    daemon->stalled = false;
    sm_link(daemon->sm, false, 0, 0);
    try_later(daemon, why);
}

/* Attached */

/* False: the connection is lost. */
static bool take_messages(Daemon *daemon)
{
    IbLinkMessage message;
    int n;

    while ((n = ib_link_client_poll(daemon->client, &message)) > 0) {
        if (message.type == IB_LINK_LINK && message.port == OWN_PORT) {
            sm_link(daemon->sm, message.link.up, message.link.speed,
                    message.link.width);
        } else if (message.type == IB_LINK_REFUSE) {
            detach(daemon, message.text);
            return false;
        }
    }
    if (n < 0) {
        detach(daemon, "the connection to the fabric is lost");
        return false;
    }
    return true;
}

/* True: there may be more. */
static bool take_packets(Daemon *daemon)
{
    IbLinkPort *port = &daemon->client->ports[OWN_PORT];

    if (port->rx.broken || port->tx.broken) {
        detach(daemon, "the fabric wrote nonsense into a packet ring");
        return false;
    }

    for (unsigned i = 0; i < PACKET_BUDGET; i++) {
        const uint8_t *packet;
        uint32_t len;

        daemon->stalled = ib_ring_room(&port->tx) < ROOM_FOR_ANSWERS;
        if (daemon->stalled) {
            return false;
        }
        packet = ib_ring_peek(&port->rx, &len);
        if (!packet) {
            return false;
        }
        sm_receive(daemon->sm, packet, len);
        if (ib_ring_consume(&port->rx)) {
            daemon->kick = true;
        }
    }
    return true;
}

/* When to look again at the latest; 0: at once. */
static int64_t next_look(Daemon *daemon)
{
    IbLinkPort *port = &daemon->client->ports[OWN_PORT];

    if (!daemon->stalled) {
        return ib_ring_consumer_sleep(&port->rx) ? IB_CLOCK_NEVER : 0;
    }
    /* The fabric tells only of the first room in a full ring. */
    return ib_ring_producer_sleep(&port->tx)
           ? IB_CLOCK_NEVER : ib_clock_now(&daemon->clock) + ROOM_LOOK;
}

static bool sleep_until(Daemon *daemon, int64_t deadline)
{
    struct pollfd fds[3] = {
        { .fd = daemon->signal_fd, .events = POLLIN },
    };
    nfds_t n = 1;
    int64_t left = 0;
    struct timespec timeout;

    if (daemon->client) {
        fds[n++] = (struct pollfd) { .fd = daemon->client->fd,
                                     .events = POLLIN };
        fds[n++] = (struct pollfd) {
            .fd = daemon->client->wake.self_fd,
            .events = POLLIN,
        };
    }
    if (deadline != IB_CLOCK_NEVER) {
        left = MAX(deadline - ib_clock_now(&daemon->clock), 0);
    }
    timeout.tv_sec = left / IB_SEC;
    timeout.tv_nsec = left % IB_SEC;
    if (ppoll(fds, n, deadline == IB_CLOCK_NEVER ? NULL : &timeout, NULL) < 0
        && errno != EINTR) {
        g_error("ppoll: %s", g_strerror(errno));
    }
    if (n == 3 && fds[2].revents && !ib_link_unkick(&daemon->client->wake)) {
        detach(daemon, "the fabric shut down its wake-ups");
    }
    return !(fds[0].revents & POLLIN);
}

static void run(Daemon *daemon)
{
    for (;;) {
        int64_t deadline;
        bool more = false;

        ib_clock_run(&daemon->clock, TIMER_BUDGET);
        if (!daemon->client &&
            ib_clock_now(&daemon->clock) >= daemon->next_try) {
            attach(daemon);
        }
        if (daemon->client && take_messages(daemon)) {
            more = take_packets(daemon);
        }
        if (daemon->client && daemon->kick) {
            daemon->kick = false;
            ib_link_kick(&daemon->client->wake);
        }
        deadline = ib_clock_deadline(&daemon->clock);
        if (!daemon->client) {
            deadline = MIN(deadline, daemon->next_try);
        } else {
            deadline = MIN(deadline, more ? 0 : next_look(daemon));
        }
        if (!sleep_until(daemon, deadline)) {
            return;
        }
    }
}

/* Start */

static int G_GNUC_PRINTF(2, 3) complain(int status, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    fprintf(stderr, "ehca-sm: ");
    vfprintf(stderr, format, args);
    fprintf(stderr, "\n");
    va_end(args);
    return status;
}

static int block_signals(void)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    if (sigprocmask(SIG_BLOCK, &set, NULL) < 0) {
        return -1;
    }
    signal(SIGPIPE, SIG_IGN);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

static int serve(const Options *options, const SmOptions *sm_options)
{
    Daemon daemon = {
        .options = options, .sm_options = *sm_options,
        .delay = RECONNECT_FIRST,
    };
    char *error;
    int result = 0;

    daemon.signal_fd = block_signals();
    if (daemon.signal_fd < 0) {
        return complain(EXIT_START, "signals: %s", g_strerror(errno));
    }
    ib_clock_init_real(&daemon.clock);
    daemon.sm = sm_new(&daemon.clock, sm_options, &sm_ops, &daemon, &error);
    if (!daemon.sm) {
        result = complain(EXIT_START, "%s", error ? error : "out of memory");
        free(error);
    } else {
        run(&daemon);
        say(SM_LOG_INFO, "stopped: LIDs and routes stay as they are");
        ib_link_client_close(daemon.client);
        daemon.client = NULL;
        sm_free(daemon.sm);
    }
    ib_clock_fini(&daemon.clock);
    close(daemon.signal_fd);
    g_free(daemon.last_error);
    return result;
}

/* Locally administered, the same for a name at each start. */
static uint64_t guid_of_name(const char *name)
{
    return UINT64_C(0x02534D0000000000) | (uint64_t)g_str_hash(name) << 4;
}

static bool parse_level(const char *name, SmLogLevel *level)
{
    for (unsigned i = SM_LOG_ERROR; i <= SM_LOG_DEBUG; i++) {
        if (g_strcmp0(name, sm_log_level_name(i)) == 0) {
            *level = i;
            return true;
        }
    }
    return false;
}

/* Of 64 bits, and not 0. */
static bool parse_u64(const char *text, uint64_t *value)
{
    char *end;

    errno = 0;
    *value = g_ascii_strtoull(text, &end, 0);
    return !errno && !*end && end != text && *value && *text != '-';
}

static int parse(const Options *options, SmOptions *sm)
{
    sm_options_init(sm);
    if (!options->socket) {
        return complain(EXIT_USAGE, "--socket PATH is missing: the link "
                        "socket of ehca-fabric");
    }
    if (!*options->node || strlen(options->node) >= IB_LINK_NAME_MAX) {
        return complain(EXIT_USAGE, "--node '%s': a host's name has 1 to %u "
                        "bytes", options->node, IB_LINK_NAME_MAX - 1);
    }
    sm->node_guid = guid_of_name(options->node);
    if ((options->guid && !parse_u64(options->guid, &sm->node_guid)) ||
        sm->node_guid == UINT64_MAX) {
        return complain(EXIT_USAGE, "--guid '%s': wanted is a number of 64 "
                        "bits such as 0x0200000000005300", options->guid);
    }
    if (options->m_key && !parse_u64(options->m_key, &sm->m_key)) {
        return complain(EXIT_USAGE, "--m-key: wanted is a number of 64 bits "
                        "other than 0");
    }
    sm->port_guid = sm->node_guid + 1;
    if (!(options->sweep >= 0 && options->sweep <= SWEEP_MAX_S) ||
        (options->sweep > 0 && options->sweep < 0.1)) {
        return complain(EXIT_USAGE, "--sweep %g: seconds from 0.1 to %g, or "
                        "0 for never", options->sweep, SWEEP_MAX_S);
    }
    sm->sweep_ns = llround(options->sweep * IB_SEC);
    if (options->priority < 0 || options->priority > 15) {
        return complain(EXIT_USAGE, "--priority %d: 0 to 15",
                        options->priority);
    }
    sm->priority = options->priority;
    if (options->lmc < 0 || options->lmc > 7) {
        return complain(EXIT_USAGE, "--lmc %d: 0 to 7", options->lmc);
    }
    sm->lmc = options->lmc;
    if (options->packet_life < 0 || options->packet_life > 31 ||
        options->subnet_timeout < 0 || options->subnet_timeout > 31) {
        return complain(EXIT_USAGE, "--packet-life and --subnet-timeout are "
                        "codes from 0 to 31 (4.096 us * 2^code)");
    }
    sm->packet_life = options->packet_life;
    sm->subnet_timeout = options->subnet_timeout;
    if (!parse_level(options->log, &sm->log_level)) {
        return complain(EXIT_USAGE, "--log '%s': one of error, warning, "
                        "info, debug", options->log);
    }
    sm->ipoib = !options->no_ipoib;
    sm->lid_file = options->lid_file;
    sm->description = options->node;
    if (getrandom(&sm->seed, sizeof(sm->seed), 0) != sizeof(sm->seed)) {
        sm->seed = getpid();
    }
    return 0;
}

int main(int argc, char **argv)
{
    Options options = {
        .sweep = 10, .packet_life = 14, .subnet_timeout = 14,
    };
    const GOptionEntry entries[] = {
        { "socket", 's', 0, G_OPTION_ARG_FILENAME, &options.socket,
          "Link socket of ehca-fabric", "PATH" },
        { "node", 'n', 0, G_OPTION_ARG_STRING, &options.node,
          "Which host of the topology to be (sm)", "NAME" },
        { "guid", 0, 0, G_OPTION_ARG_STRING, &options.guid,
          "Node GUID; the port's is one more (made from the name)", "GUID" },
        { "sweep", 0, 0, G_OPTION_ARG_DOUBLE, &options.sweep,
          "Interval of light sweeps, 0: never (10)", "SEC" },
        { "priority", 0, 0, G_OPTION_ARG_INT, &options.priority,
          "Among several subnet managers, 15 is best (0)", "N" },
        { "lmc", 0, 0, G_OPTION_ARG_INT, &options.lmc,
          "2^N LIDs for each port of a channel adapter (0)", "N" },
        { "lid-file", 0, 0, G_OPTION_ARG_FILENAME, &options.lid_file,
          "Remember LIDs of ports that are away here", "FILE" },
        { "m-key", 0, 0, G_OPTION_ARG_STRING, &options.m_key,
          "M_Key of all ports: nobody else may set anything (none)", "KEY" },
        { "packet-life", 0, 0, G_OPTION_ARG_INT, &options.packet_life,
          "PacketLifeTime of path records (14: 67 ms)", "CODE" },
        { "subnet-timeout", 0, 0, G_OPTION_ARG_INT, &options.subnet_timeout,
          "SubnetTimeOut of ports: least time between two traps (14)",
          "CODE" },
        { "no-ipoib", 0, 0, G_OPTION_ARG_NONE, &options.no_ipoib,
          "Do not create IPoIB's broadcast group", NULL },
        { "log", 0, 0, G_OPTION_ARG_STRING, &options.log,
          "error, warning, info or debug (info)", "LEVEL" },
        { "version", 0, 0, G_OPTION_ARG_NONE, &options.version,
          "Say which version this is", NULL },
        { NULL },
    };
    GOptionContext *context = g_option_context_new(
        "- subnet manager of an InfiniBand lab");
    GError *error = NULL;
    SmOptions sm_options;
    int result;

    setlocale(LC_ALL, "");
    setlocale(LC_NUMERIC, "C");
    setvbuf(stderr, NULL, _IOLBF, 0);
    g_option_context_add_main_entries(context, entries, NULL);
    if (!g_option_context_parse(context, &argc, &argv, &error)) {
        result = complain(EXIT_USAGE, "%s (see ehca-sm --help)",
                          error->message);
        g_error_free(error);
    } else if (argc > 1) {
        result = complain(EXIT_USAGE, "'%s' is too much: there are only "
                          "options (see ehca-sm --help)", argv[1]);
    } else if (options.version) {
        printf("ehca-sm %s\n", EHCALAB_VERSION);
        result = 0;
    } else {
        options.node = options.node ? options.node : g_strdup("sm");
        options.log = options.log ? options.log : g_strdup("info");
        result = parse(&options, &sm_options);
        if (result == 0) {
            result = serve(&options, &sm_options);
        }
    }
    g_option_context_free(context);
    g_free(options.socket);
    g_free(options.node);
    g_free(options.guid);
    g_free(options.log);
    g_free(options.lid_file);
    g_free(options.m_key);
    return result;
}
