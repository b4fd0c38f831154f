/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The daemon ehca-fabric as others meet it: options, link socket, control
 * socket, captures.  $EHCA_FABRIC is the program.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <glib.h>
#include <glib/gstdio.h>
#include <json-glib/json-glib.h>

#include "ib/bytes.h"
#include "ib/clock.h"
#include "ib/link.h"
#include "ib/mad.h"
#include "ib/packet.h"
#include "scratch.h"

/* Nothing takes this long; only a failure waits so. */
#define PATIENCE_MS 20000
#define LINE_MAX_BYTES (16u << 20)

static const char back_to_back[] =
    "host a ports=1\nhost b ports=2\nhost c ports=1\n"
    "cable ab a/1 b/1\ncable cb c/1 b/2 plugged=no\n";

typedef struct Control {
    int fd;
    GString *in;
    GPtrArray *events;               /* JsonNode, as they came */
    gsize bytes;                     /* that came so far */
    int64_t next_id;
} Control;

typedef struct Rig {
    char *dir, *topology, *socket, *control_path;
    GPid pid;
    Control *control;
} Rig;

static const char *program(void)
{
    const char *path = g_getenv("EHCA_FABRIC");

    g_assert_nonnull(path);
    return path;
}

/* Runs it to its end; returns the exit status. */
static int run_to_end(char **out, char **err, const char *const *args)
{
    GPtrArray *argv = g_ptr_array_new();
    int status;

    g_ptr_array_add(argv, (char *)program());
    for (; *args; args++) {
        g_ptr_array_add(argv, (char *)*args);
    }
    g_ptr_array_add(argv, NULL);
    g_assert_true(g_spawn_sync(NULL, (char **)argv->pdata, NULL, 0, NULL,
                               NULL, out, err, &status, NULL));
    g_ptr_array_free(argv, true);
    g_assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static int connect_to(const char *path)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    g_assert_cmpint(fd, >=, 0);
    g_assert_cmpuint(strlen(path), <, sizeof(address.sun_path));
    strcpy(address.sun_path, path);
    if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Next line that the daemon sends, as JSON. */
static JsonNode *next_line(Control *control)
{
    JsonNode *node = NULL;
    GError *error = NULL;
    char *newline, *line;

    while (!(newline = strchr(control->in->str, '\n'))) {
        struct pollfd pfd = { .fd = control->fd, .events = POLLIN };
        char buf[65536];
        ssize_t n;

        g_assert_cmpint(poll(&pfd, 1, PATIENCE_MS), ==, 1);
        n = recv(control->fd, buf, sizeof(buf), 0);
        g_assert_cmpint(n, >, 0);
        g_string_append_len(control->in, buf, n);
        control->bytes += n;
        g_assert_cmpuint(control->in->len, <, LINE_MAX_BYTES);
    }
    line = g_strndup(control->in->str, newline - control->in->str);
    g_string_erase(control->in, 0, newline + 1 - control->in->str);
    node = json_from_string(line, &error);
    g_assert_no_error(error);
    g_free(line);
    return node;
}

static Control *control_open(const char *path)
{
    Control *control = g_new0(Control, 1);
    JsonNode *greeting;

    control->fd = connect_to(path);
    g_assert_cmpint(control->fd, >=, 0);
    control->in = g_string_new(NULL);
    control->events =
        g_ptr_array_new_with_free_func((GDestroyNotify)json_node_unref);
    greeting = next_line(control);
    g_assert_true(json_object_has_member(json_node_get_object(greeting),
                                         "QMP"));
    json_node_unref(greeting);
    return control;
}

static void control_close(Control *control)
{
    close(control->fd);
    g_string_free(control->in, true);
    g_ptr_array_free(control->events, true);
    g_free(control);
}

static void control_write(Control *control, const char *text)
{
    g_assert_cmpint(send(control->fd, text, strlen(text), 0), ==,
                    strlen(text));
}

/* The next reply; events on the way are kept. */
static JsonNode *next_reply(Control *control)
{
    for (;;) {
        JsonNode *node = next_line(control);

        if (!json_object_has_member(json_node_get_object(node), "event")) {
            return node;
        }
        g_ptr_array_add(control->events, node);
    }
}

/* Sends {"execute": ..., ...}; takes @text literally. */
static JsonNode *command(Control *control, const char *text)
{
    control_write(control, text);
    return next_reply(control);
}

static JsonObject *result_of(JsonNode *reply)
{
    JsonObject *object = json_node_get_object(reply);

    if (!json_object_has_member(object, "return")) {
        char *text = json_to_string(reply, false);

        g_error("%s", text);
    }
    return json_object_get_object_member(object, "return");
}

/* A command that must work and whose result does not matter. */
static void good(Control *control, const char *text)
{
    JsonNode *reply = command(control, text);

    g_assert_true(json_object_has_member(json_node_get_object(reply),
                                         "return"));
    json_node_unref(reply);
}

/* A command that must be refused with a sentence that has @words. */
static void refused(Control *control, const char *text, const char *words)
{
    JsonNode *reply = command(control, text);
    JsonObject *object = json_node_get_object(reply);
    const char *desc;

    g_assert_true(json_object_has_member(object, "error"));
    desc = json_object_get_string_member(
        json_object_get_object_member(object, "error"), "desc");
    if (!strstr(desc, words)) {
        g_error("'%s' is not in: %s", words, desc);
    }
    json_node_unref(reply);
}

static JsonObject *event_data(JsonNode *event, const char *name)
{
    JsonObject *object = json_node_get_object(event);

    if (strcmp(json_object_get_string_member(object, "event"), name)) {
        return NULL;
    }
    g_assert_true(json_object_has_member(object, "timestamp"));
    g_assert_true(json_object_has_member(object, "monotonic_ns"));
    g_assert_true(json_object_has_member(object, "seq"));
    return json_object_get_object_member(object, "data");
}

/*
 * Waits for an event @name, with member @key equal to @value if given;
 * earlier ones are thrown away.
 */
static JsonObject *await(Control *control, const char *name, const char *key,
                         const char *value)
{
    for (;;) {
        while (control->events->len) {
            JsonObject *data = event_data(control->events->pdata[0], name);

            if (data && (!key || !g_strcmp0(
                    json_object_get_string_member_with_default(data, key,
                                                               NULL),
                    value))) {
                return data;         /* valid until the next await() */
            }
            g_ptr_array_remove_index(control->events, 0);
        }
        g_ptr_array_add(control->events, next_line(control));
    }
}

static void forget(Control *control)
{
    g_ptr_array_set_size(control->events, 0);
}

/* In the daemon before it is executed: not to outlive a failed test. */
static void die_with_us(gpointer opaque)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
}

static GPid start(const Rig *rig, const char *const *more)
{
    GPtrArray *argv = g_ptr_array_new();
    GPid pid;

    g_ptr_array_add(argv, (char *)program());
    g_ptr_array_add(argv, "--topology");
    g_ptr_array_add(argv, rig->topology);
    g_ptr_array_add(argv, "--socket");
    g_ptr_array_add(argv, rig->socket);
    g_ptr_array_add(argv, "--control");
    g_ptr_array_add(argv, rig->control_path);
    while (more && *more) {
        g_ptr_array_add(argv, (char *)*more++);
    }
    g_ptr_array_add(argv, NULL);
    g_assert_true(g_spawn_async(NULL, (char **)argv->pdata, NULL,
                                G_SPAWN_DO_NOT_REAP_CHILD, die_with_us, NULL,
                                &pid, NULL));
    g_ptr_array_free(argv, true);
    return pid;
}

static void rig_init(Rig *rig, const char *topology, const char *const *more)
{
    int fd = -1;

    rig->dir = g_dir_make_tmp("fabric-XXXXXX", NULL);
    rig->topology = g_build_filename(rig->dir, "t.topo", NULL);
    rig->socket = g_build_filename(rig->dir, "link", NULL);
    rig->control_path = g_build_filename(rig->dir, "control", NULL);
    g_assert_true(g_file_set_contents(rig->topology, topology, -1, NULL));
    rig->pid = start(rig, more);
    for (int i = 0; i < PATIENCE_MS / 10 && fd < 0; i++) {
        g_usleep(10000);
        fd = connect_to(rig->control_path);
    }
    g_assert_cmpint(fd, >=, 0);
    close(fd);
    rig->control = control_open(rig->control_path);
}

static int await_exit(GPid pid)
{
    int status;

    g_assert_cmpint(waitpid(pid, &status, 0), ==, pid);
    g_spawn_close_pid(pid);
    g_assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void remove_dir(const char *dir)
{
    const char *name;
    GDir *d = g_dir_open(dir, 0, NULL);

    while ((name = g_dir_read_name(d))) {
        char *path = g_build_filename(dir, name, NULL);

        g_unlink(path);
        g_free(path);
    }
    g_dir_close(d);
    g_assert_cmpint(g_rmdir(dir), ==, 0);
}

/* Ends it by SIGTERM: in good order, with its sockets gone. */
static void rig_fini(Rig *rig)
{
    kill(rig->pid, SIGTERM);
    g_assert_cmpint(await_exit(rig->pid), ==, 0);
    g_assert_false(g_file_test(rig->socket, G_FILE_TEST_EXISTS));
    g_assert_false(g_file_test(rig->control_path, G_FILE_TEST_EXISTS));
    control_close(rig->control);
    remove_dir(rig->dir);
    g_free(rig->dir);
    g_free(rig->topology);
    g_free(rig->socket);
    g_free(rig->control_path);
}

static IbLinkHello hello_of(const char *name, unsigned ports)
{
    IbLinkHello hello = {
        .version = IB_LINK_VERSION, .num_ports = ports,
        .node_type = IB_NODE_CA, .node_guid = (uint64_t)g_str_hash(name) << 8,
    };

    for (unsigned p = 0; p < ports; p++) {
        hello.port_guids[p] = hello.node_guid + 1 + p;
    }
    strcpy(hello.name, name);
    return hello;
}

static void enable(IbLinkClient *client, unsigned port, bool enabled)
{
    IbLinkMessage message = {
        .type = IB_LINK_PHYS, .port = port, .phys.enabled = enabled,
    };

    g_assert_true(ib_link_client_send(client, &message));
}

static IbLinkClient *join(const Rig *rig, const char *name, unsigned ports)
{
    IbLinkHello hello = hello_of(name, ports);
    IbLinkClient *client;
    char *error;

    client = ib_link_client_connect(rig->socket, &hello, PATIENCE_MS,
                                    &error);
    g_assert_cmpstr(error, ==, NULL);
    for (unsigned p = 1; p <= ports; p++) {
        enable(client, p, true);
    }
    return client;
}

/* Reads messages until the port's link is as wanted. */
static void await_link(IbLinkClient *client, unsigned port, bool up)
{
    IbLinkMessage message;

    while (client->ports[port].up != up) {
        struct pollfd pfd = { .fd = client->fd, .events = POLLIN };

        g_assert_cmpint(poll(&pfd, 1, PATIENCE_MS), ==, 1);
        g_assert_cmpint(ib_link_client_poll(client, &message), >=, 0);
    }
}

static void not_joined(const Rig *rig, const char *name, unsigned ports,
                       const char *words)
{
    IbLinkHello hello = hello_of(name, ports);
    char *error;

    g_assert_null(ib_link_client_connect(rig->socket, &hello, PATIENCE_MS,
                                         &error));
    if (!strstr(error, words)) {
        g_error("'%s' is not in: %s", words, error);
    }
    free(error);
}

static size_t make_packet(uint8_t *p, uint32_t psn)
{
    IbPacket packet = {
        .lrh = { .slid = 1, .dlid = 2 },
        .bth = { .opcode = IB_TRANSPORT_RC | IB_OP_SEND_ONLY,
                 .pkey = IB_PKEY_DEFAULT, .dest_qpn = 5, .psn = psn },
    };
    size_t header_len = ib_packet_put_headers(p, &packet, 64);

    memset(p + header_len, psn, 64);
    return ib_packet_finish(p, header_len, 64);
}

static bool try_send(IbLinkClient *client, unsigned port, const uint8_t *p,
                     size_t len)
{
    IbRing *tx = &client->ports[port].tx;
    uint8_t *slot = ib_ring_reserve(tx);

    if (!slot) {
        return false;
    }
    memcpy(slot, p, len);
    if (ib_ring_commit(tx, len)) {
        ib_link_kick(&client->wake);
    }
    return true;
}

/* Sleeps as a host does until there may be something to do. */
static void sleep_on(IbLinkClient *client)
{
    struct pollfd pfd = { .fd = client->wake.self_fd, .events = POLLIN };

    g_assert_cmpint(poll(&pfd, 1, PATIENCE_MS), ==, 1);
    g_assert_true(ib_link_unkick(&client->wake));
}

static void send_packet(IbLinkClient *client, unsigned port, uint32_t psn)
{
    uint8_t p[IB_PACKET_MAX];
    size_t len = make_packet(p, psn);

    while (!try_send(client, port, p, len)) {
        if (ib_ring_producer_sleep(&client->ports[port].tx)) {
            sleep_on(client);
        }
    }
}

static uint32_t receive_packet(IbLinkClient *client, unsigned port)
{
    IbRing *rx = &client->ports[port].rx;
    IbPacket packet;
    const uint8_t *p;
    uint32_t len;

    while (!(p = ib_ring_peek(rx, &len))) {
        if (ib_ring_consumer_sleep(rx)) {
            sleep_on(client);
        }
    }
    g_assert_cmpint(ib_packet_parse(&packet, p, len), ==, IB_PACKET_OK);
    g_assert_true(ib_icrc_ok(p, len));
    if (ib_ring_consume(rx)) {
        ib_link_kick(&client->wake);
    }
    return packet.bth.psn;
}

/* Tests. */

static void test_options(void)
{
    static const struct { const char *args[6]; int status; const char *err; }
    cases[] = {
        { { NULL }, 2, "--topology is missing" },
        { { "--topology", "x", NULL }, 2, "--socket is missing" },
        { { "--frob", NULL }, 2, "--frob" },
        { { "frob", NULL }, 2, "'frob' is not an option" },
        { { "--json", NULL }, 2, "--json goes with --check" },
        { { "--check", "/nonexistent", NULL }, 2, "/nonexistent: No such" },
    };
    char *out, *err;

    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_assert_cmpint(run_to_end(&out, &err, cases[i].args), ==,
                        cases[i].status);
        if (!strstr(err, cases[i].err)) {
            g_error("'%s' is not in: %s", cases[i].err, err);
        }
        g_assert_cmpstr(out, ==, "");
        g_free(out);
        g_free(err);
    }
    g_assert_cmpint(run_to_end(&out, &err,
                               (const char *[]){ "--version", NULL }), ==, 0);
    g_assert_true(g_str_has_prefix(out, "ehca-fabric "));
    g_free(out);
    g_free(err);
}

/* Sockets that are in use, stale, or no sockets; topology with errors. */
static void test_start(void)
{
    const char *args[8];
    char *out, *err, *other;
    GPid second;
    Rig rig;

    rig_init(&rig, back_to_back, NULL);
    other = g_build_filename(rig.dir, "other", NULL);
    args[0] = "--topology";
    args[1] = rig.topology;
    args[2] = "--socket";
    args[3] = rig.socket;
    args[4] = "--control";
    args[5] = other;
    args[6] = NULL;
    g_assert_cmpint(run_to_end(&out, &err, args), ==, 1);
    g_assert_nonnull(strstr(err, "is in use by process"));
    g_free(out);
    g_free(err);
    g_assert_true(g_file_test(rig.socket, G_FILE_TEST_EXISTS));
    args[3] = rig.topology;
    g_assert_cmpint(run_to_end(&out, &err, args), ==, 1);
    g_assert_nonnull(strstr(err, "is there and is not a socket"));
    g_free(out);
    g_free(err);
    g_assert_true(g_file_test(rig.topology, G_FILE_TEST_EXISTS));
    g_assert_false(g_file_test(other, G_FILE_TEST_EXISTS));
    g_free(other);

    /* Killed: its sockets stay, and the next one takes their place. */
    kill(rig.pid, SIGKILL);
    waitpid(rig.pid, NULL, 0);
    g_assert_true(g_file_test(rig.socket, G_FILE_TEST_EXISTS));
    control_close(rig.control);
    second = start(&rig, NULL);
    for (int fd = -1; fd < 0; ) {
        g_usleep(10000);
        fd = connect_to(rig.control_path);
        if (fd >= 0) {
            close(fd);
        }
    }
    rig.control = control_open(rig.control_path);
    rig.pid = second;
    rig_fini(&rig);
}

static void test_join(void)
{
    IbLinkClient *a, *b;
    JsonObject *data;
    Rig rig;

    rig_init(&rig, back_to_back, NULL);
    a = join(&rig, "a", 1);
    data = await(rig.control, "NODE_ATTACHED", "node", "a");
    g_assert_cmpint(json_object_get_int_member(data, "ports"), ==, 1);
    b = join(&rig, "b", 2);
    await_link(a, 1, true);
    await_link(b, 1, true);
    g_assert_false(b->ports[2].up);
    data = await(rig.control, "LINK", "cable", "ab");
    g_assert_true(json_object_get_boolean_member(data, "up"));
    g_assert_cmpstr(json_object_get_string_member(data, "width"), ==, "4x");
    g_assert_cmpstr(json_object_get_string_member(data, "a"), ==, "a/1");

    not_joined(&rig, "a", 1, "a is here already");
    not_joined(&rig, "c", 2, "c has 2 ports");
    not_joined(&rig, "eve", 1, "'eve' is not there in");
    await(rig.control, "NODE_ERROR", NULL, NULL);

    /* A port that its owner does not want. */
    enable(a, 1, false);
    await_link(b, 1, false);
    enable(a, 1, true);
    await_link(b, 1, true);

    /* Gone, however: the link is down. */
    forget(rig.control);
    ib_link_client_close(a);
    await_link(b, 1, false);
    await(rig.control, "NODE_GONE", "node", "a");
    a = join(&rig, "a", 1);
    await_link(b, 1, true);
    ib_link_client_close(a);
    ib_link_client_close(b);
    rig_fini(&rig);
}

/* A host that is killed with its sockets in other hands. */
static void test_kill_9(void)
{
    IbLinkClient *b;
    pid_t child;
    int status, ready[2];
    char byte;
    Rig rig;

    rig_init(&rig, back_to_back, NULL);
    g_assert_cmpint(pipe(ready), ==, 0);
    child = fork();
    if (child == 0) {
        IbLinkHello hello = hello_of("a", 1);
        char *error;
        IbLinkClient *a = ib_link_client_connect(rig.socket, &hello,
                                                 PATIENCE_MS, &error);

        if (a) {
            enable(a, 1, true);
        }
        if (write(ready[1], "x", 1) != 1) {
            _exit(1);
        }
        for (;;) {
            pause();
        }
    }
    g_assert_cmpint(read(ready[0], &byte, 1), ==, 1);
    b = join(&rig, "b", 2);
    await_link(b, 1, true);
    kill(child, SIGKILL);
    await_link(b, 1, false);
    waitpid(child, &status, 0);
    await(rig.control, "NODE_GONE", "node", "a");
    close(ready[0]);
    close(ready[1]);
    ib_link_client_close(b);
    rig_fini(&rig);
}

static void test_traffic(void)
{
    IbLinkClient *a, *b;
    Rig rig;

    rig_init(&rig, back_to_back, NULL);
    a = join(&rig, "a", 1);
    b = join(&rig, "b", 2);
    await_link(a, 1, true);
    await_link(b, 1, true);
    /* To and fro, asleep each time; then in bursts that fill rings. */
    for (uint32_t i = 0; i < 2000; i++) {
        send_packet(a, 1, i);
        g_assert_cmpuint(receive_packet(b, 1), ==, i);
        send_packet(b, 1, i);
        g_assert_cmpuint(receive_packet(a, 1), ==, i);
    }
    for (uint32_t i = 0, got = 0; got < 20000; ) {
        for (int n = 0; n < 200 && i < 20000; n++) {
            send_packet(a, 1, i++);
        }
        while (got < i) {
            g_assert_cmpuint(receive_packet(b, 1), ==, got);
            got++;
        }
    }
    ib_link_client_close(a);
    ib_link_client_close(b);
    rig_fini(&rig);
}

static void test_pull(void)
{
    IbLinkClient *a, *b;
    JsonObject *data;
    JsonNode *reply;
    Rig rig;

    rig_init(&rig, back_to_back, NULL);
    a = join(&rig, "a", 1);
    b = join(&rig, "b", 2);
    await_link(a, 1, true);
    await(rig.control, "LINK", "cable", "ab");
    forget(rig.control);

    reply = command(rig.control, "{\"execute\":\"pull\","
                    "\"arguments\":{\"cable\":\"ab\"},\"id\":[7,\"x\"]}\n");
    data = result_of(reply);
    g_assert_true(json_object_get_boolean_member(data, "changed"));
    g_assert_false(json_object_get_boolean_member(data, "up"));
    g_assert_cmpint(json_array_get_int_element(
        json_object_get_array_member(json_node_get_object(reply), "id"), 0),
        ==, 7);
    json_node_unref(reply);
    /* Its events came before its reply. */
    g_assert_cmpuint(rig.control->events->len, ==, 2);
    data = await(rig.control, "CABLE", "cable", "ab");
    g_assert_false(json_object_get_boolean_member(data, "plugged"));
    data = await(rig.control, "LINK", "cable", "ab");
    g_assert_false(json_object_get_boolean_member(data, "up"));
    await_link(a, 1, false);
    await_link(b, 1, false);

    /* What is sent now is lost, told and counted; nobody is stuck. */
    for (uint32_t i = 0; i < 500; i++) {
        send_packet(a, 1, i);
    }
    data = await(rig.control, "PACKET_DROPPED", "cable", "ab");
    g_assert_cmpstr(json_object_get_string_member(data, "why"), ==,
                    "link-down");
    good(rig.control, "{\"execute\":\"restore\","
         "\"arguments\":{\"cable\":\"ab\"}}");
    await_link(a, 1, true);
    await_link(b, 1, true);
    reply = command(rig.control, "{\"execute\":\"list\"}");
    data = json_array_get_object_element(
        json_object_get_array_member(result_of(reply), "cables"), 0);
    g_assert_true(json_object_get_boolean_member(data, "plugged"));
    g_assert_true(json_object_get_boolean_member(data, "up"));
    json_node_unref(reply);

    /* Down and up again before anybody looks: both are heard of. */
    {
        IbLinkMessage message;
        unsigned downs = 0, ups = 0;

        control_write(rig.control,
                      "{\"execute\":\"pull\",\"arguments\":{\"cable\":"
                      "\"ab\"}}{\"execute\":\"restore\",\"arguments\":"
                      "{\"cable\":\"ab\"}}");
        json_node_unref(next_reply(rig.control));
        json_node_unref(next_reply(rig.control));
        while (ups < 1) {
            struct pollfd pfd = { .fd = a->fd, .events = POLLIN };

            g_assert_cmpint(poll(&pfd, 1, PATIENCE_MS), ==, 1);
            while (ib_link_client_poll(a, &message) == 1) {
                downs += !message.link.up;
                ups += message.link.up;
            }
        }
        g_assert_cmpuint(downs, ==, 1);
    }
    ib_link_client_close(a);
    ib_link_client_close(b);
    rig_fini(&rig);
}

static void test_commands(void)
{
    static const char number[] = "number that JSON does not have";
    static const char large[] = "number that is too large";
    static const char word[] = "a word other than";
    static const struct { const char *value, *why; } not_json[] = {
        { "1e999", large }, { "-1e999", large }, { "1e22", large },
        { "9223372036854775808", large }, { "[1e308,1]", large },
        { "1e-300", large },
        { "12345678901234567890123456789012345678901", "40 characters" },
        { "010", number }, { "1.", number }, { "-", number },
        { "1e", number }, { "-x", number }, { "0x10", word },
        { "NaN", word }, { "Infinity", word }, { "nul", word },
        { "+5", "what JSON does not have" },
        { ".5", "what JSON does not have" },
        { "1.5.5", "what JSON does not have" },
        { "\"\\u0000\"", "a NUL" }, { "\"a\\q\"", "an escape" },
        { "\"\001\"", "a control character" },
        { "\"\\ud800\"", "not a JSON object" },
    };
    static const char *const values[] = {
        "9223372036854775807", "-9223372036854775808", "0", "-1.5", "0.001",
        "999999999999999.0", "[true,false,null]", "\"\\\"\\\\/\\u0001\\u001f\"",
        "{\"a\":[{}]}", "\"\303\251\360\237\230\200\"",
    };
    char *text;
    JsonNode *node;
    Control *other;
    JsonObject *data;
    JsonNode *reply;
    Rig rig;

    rig_init(&rig, back_to_back, NULL);
    good(rig.control, "{\"execute\":\"qmp_capabilities\"}");
    refused(rig.control, "{\"execute\":\"pull\",\"arguments\":{\"cable\":"
            "\"xy\"}}", "there is no cable 'xy'; there are: ab, cb");
    refused(rig.control, "{\"execute\":\"pull\"}",
            "pull needs the argument 'cable', a string");
    refused(rig.control, "{\"execute\":\"pull\",\"arguments\":{\"cable\":"
            "5}}", "the argument 'cable' of pull is a string");
    refused(rig.control, "{\"execute\":\"pull\",\"arguments\":{\"cable\":"
            "\"ab\",\"hard\":1}}",
            "pull knows no argument 'hard'; it knows: cable");
    refused(rig.control, "{\"execute\":\"shove\"}",
            "there is no command 'shove'");
    refused(rig.control, "{\"execute\":5}", "a command is an object with");
    refused(rig.control, "[1]", "not a JSON object");
    refused(rig.control, "hello\n", "cannot be read");
    refused(rig.control, "{\"execute\":\"list\",\"arguments\":[]}",
            "'arguments' is an object");
    refused(rig.control, "{\"a\":[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]}",
            "nested too deeply");
    for (size_t i = 0; i < G_N_ELEMENTS(not_json); i++) {
        text = g_strdup_printf("{\"execute\":\"list\",\"id\":%s}\n",
                               not_json[i].value);
        refused(rig.control, text, not_json[i].why);
        g_free(text);
    }
    /* What is taken comes back as it is. */
    for (size_t i = 0; i < G_N_ELEMENTS(values); i++) {
        text = g_strdup_printf("{\"execute\":\"query-version\",\"id\":%s}",
                               values[i]);
        reply = command(rig.control, text);
        g_free(text);
        node = json_from_string(values[i], NULL);
        g_assert_true(json_node_equal(node, json_object_get_member(
            json_node_get_object(reply), "id")));
        json_node_unref(node);
        json_node_unref(reply);
    }
    refused(rig.control, "{\"\xff\":1}", "not UTF-8");
    refused(rig.control, "{\"execute\":\"fault\",\"arguments\":{\"cable\":"
            "\"ab\",\"drop\":2}}", "probabilities");
    refused(rig.control, "{\"execute\":\"fault\",\"arguments\":{\"cable\":"
            "\"ab\",\"delay\":1,\"delay-ms\":1e9}}", "from 0 to 10000");
    refused(rig.control, "{\"execute\":\"capture-start\",\"arguments\":"
            "{\"file\":\"/nonexistent/x\"}}", "'/nonexistent/x' cannot be");
    refused(rig.control, "{\"execute\":\"capture-start\",\"arguments\":"
            "{\"file\":\"/dev/null\"}}", "neither a regular file nor");
    refused(rig.control, "{\"execute\":\"capture-stop\",\"arguments\":"
            "{\"file\":\"x\"}}", "nothing is captured to 'x'");
    refused(rig.control, "{\"execute\":\"events-since\",\"arguments\":"
            "{\"since\":-1}}", "since is an event's seq");
    refused(rig.control, "{\"execute\":\"node-events\",\"arguments\":"
            "{\"node\":\"zed\"}}", "there is no host 'zed'");

    reply = command(rig.control, "{\"execute\":\"fault\",\"arguments\":"
                    "{\"cable\":\"ab\",\"drop\":0.25,\"delay\":1,"
                    "\"delay-ms\":2.5}}");
    data = json_object_get_object_member(result_of(reply), "fault");
    g_assert_cmpfloat(json_object_get_double_member(data, "drop"), ==, 0.25);
    g_assert_cmpfloat(json_object_get_double_member(data, "delay-ms"), ==,
                      2.5);
    json_node_unref(reply);
    good(rig.control, "{\"execute\":\"counters\"}");
    good(rig.control, "{\"execute\":\"query-commands\"}");
    reply = command(rig.control, "{\"execute\":\"status\"}");
    data = json_array_get_object_element(
        json_object_get_array_member(result_of(reply), "cables"), 0);
    g_assert_true(json_object_has_member(data, "fault"));
    json_node_unref(reply);

    /* Everybody hears of it; and later, who asks for what was. */
    other = control_open(rig.control_path);
    good(rig.control, "{\"execute\":\"restore\",\"arguments\":{\"cable\":"
         "\"cb\"}}");
    data = await(other, "CABLE", "cable", "cb");
    g_assert_true(json_object_get_boolean_member(data, "plugged"));
    control_close(other);
    other = control_open(rig.control_path);
    reply = command(other, "{\"execute\":\"events-since\"}");
    data = result_of(reply);
    g_assert_cmpint(json_object_get_int_member(data, "lost"), ==, 0);
    g_assert_cmpint(json_array_get_length(
        json_object_get_array_member(data, "events")), ==,
        json_object_get_int_member(data, "next") - 1);
    json_node_unref(reply);
    good(other, "{\"execute\":\"quit\"}");
    control_close(other);
    g_assert_cmpint(await_exit(rig.pid), ==, 0);

    rig.pid = start(&rig, NULL);
    control_close(rig.control);
    for (int fd = -1; fd < 0; ) {
        g_usleep(10000);
        fd = connect_to(rig.control_path);
        if (fd >= 0) {
            close(fd);
        }
    }
    rig.control = control_open(rig.control_path);
    rig_fini(&rig);
}

static void test_node_events(void)
{
    static const char *const quotes[] = {
        "{\"a\":/*\"*/", "{//\"\n\"a\":", "{'\"':", "{\"a\":1e999,\"b\":",
        NULL
    };
    IbLinkMessage *message = g_new0(IbLinkMessage, 1);
    IbLinkClient *a;
    JsonObject *data;
    JsonNode *reply;
    Rig rig;

    rig_init(&rig, back_to_back, NULL);
    a = join(&rig, "a", 1);
    message->type = IB_LINK_EVENT;
    message->port = 1;
    strcpy(message->text, "{\"event\":\"mig_state\",\"qpn\":5}");
    g_assert_true(ib_link_client_send(a, message));
    data = await(rig.control, "NODE_EVENT", "node", "a");
    data = json_object_get_object_member(data, "event");
    g_assert_cmpstr(json_object_get_string_member(data, "event"), ==,
                    "mig_state");

    /* Not JSON, not an object, too deep: thrown away, the host stays. */
    strcpy(message->text, "{\"event\":");
    g_assert_true(ib_link_client_send(a, message));
    await(rig.control, "NODE_ERROR", "node", "a");
    forget(rig.control);
    memset(message->text, '[', IB_LINK_BODY_MAX);
    g_assert_true(ib_link_client_send(a, message));
    await(rig.control, "NODE_ERROR", "node", "a");
    /* As deep, behind a quote that the parser would not take for one. */
    for (const char *const *quote = quotes; *quote; quote++) {
        memset(message->text, 0, sizeof(message->text));
        strcpy(message->text, *quote);
        memset(message->text + strlen(*quote), '[', 1000);
        memset(message->text + strlen(*quote) + 1000, ']', 1000);
        strcat(message->text, "}");
        g_assert_true(ib_link_client_send(a, message));
        await(rig.control, "NODE_ERROR", "node", "a");
        forget(rig.control);
    }
    memset(message->text, 0, sizeof(message->text));
    strcpy(message->text, "{\"event\":\"second\"}");
    g_assert_true(ib_link_client_send(a, message));
    await(rig.control, "NODE_EVENT", "node", "a");
    reply = command(rig.control, "{\"execute\":\"node-events\","
                    "\"arguments\":{\"node\":\"a\"}}");
    g_assert_cmpuint(json_array_get_length(json_object_get_array_member(
        result_of(reply), "events")), ==, 2);
    json_node_unref(reply);
    ib_link_client_close(a);
    g_free(message);
    rig_fini(&rig);
}

/* A host that talks a lot: what is kept fits into what a client may get. */
static void test_many_node_events(void)
{
    IbLinkMessage *message = g_new0(IbLinkMessage, 1);
    uint64_t sent = 0, kept;
    const unsigned kept_bytes = 4u << 20;
    JsonObject *result;
    JsonNode *reply;
    IbLinkClient *a;
    Rig rig;

    rig_init(&rig, back_to_back, NULL);
    a = join(&rig, "a", 1);
    message->type = IB_LINK_EVENT;
    memset(message->text, 'x', IB_LINK_BODY_MAX);
    memcpy(message->text, "{\"e\":\"", 6);
    memcpy(message->text + IB_LINK_BODY_MAX - 2, "\"}", 2);
    do {
        g_assert_true(ib_link_client_send(a, message));
        await(rig.control, "NODE_EVENT", "node", "a");
        forget(rig.control);
    } while (++sent < kept_bytes / IB_LINK_BODY_MAX + 100);
    reply = command(rig.control, "{\"execute\":\"node-events\"}");
    result = result_of(reply);
    kept = json_array_get_length(json_object_get_array_member(result,
                                                              "events"));
    g_assert_cmpuint(kept, >, 100);
    g_assert_cmpuint(kept, <=, kept_bytes / IB_LINK_BODY_MAX);
    g_assert_cmpint(json_object_get_int_member(result, "lost"), ==,
                    json_object_get_int_member(result, "next") - 1 - kept);
    json_node_unref(reply);
    ib_link_client_close(a);
    g_free(message);
    rig_fini(&rig);
}

/* A client that does not read is left behind; the others are not. */
static void test_slow_client(void)
{
    Control *slow;
    Rig rig;

    rig_init(&rig, back_to_back, NULL);
    slow = control_open(rig.control_path);
    for (int i = 0; ; i++) {
        struct pollfd pfd = { .fd = slow->fd, .events = 0 };

        good(rig.control, "{\"execute\":\"restore\",\"arguments\":"
             "{\"cable\":\"cb\"}}");
        good(rig.control, "{\"execute\":\"pull\",\"arguments\":"
             "{\"cable\":\"cb\"}}");
        forget(rig.control);
        /* It is disconnected once 8 MiB wait for it. */
        if (poll(&pfd, 1, 0) == 1 && (pfd.revents & POLLHUP)) {
            break;
        }
        g_assert_cmpint(i, <, 200000);
    }
    control_close(slow);
    good(rig.control, "{\"execute\":\"status\"}");
    rig_fini(&rig);
}

/* Many of them: what waits for all together has its limit, too. */
static void test_slow_clients(void)
{
    enum { SLOW = 40 };
    bool gone = false;
    Control *slow[SLOW];
    Rig rig;

    rig_init(&rig, back_to_back, NULL);
    for (int i = 0; i < SLOW; i++) {
        slow[i] = control_open(rig.control_path);
    }
    while (!gone) {
        good(rig.control, "{\"execute\":\"restore\",\"arguments\":"
             "{\"cable\":\"cb\"}}");
        good(rig.control, "{\"execute\":\"pull\",\"arguments\":"
             "{\"cable\":\"cb\"}}");
        forget(rig.control);
        for (int i = 0; i < SLOW; i++) {
            struct pollfd pfd = { .fd = slow[i]->fd, .events = 0 };

            gone |= poll(&pfd, 1, 0) == 1 && (pfd.revents & POLLHUP);
        }
        /* Each may have 8 MiB, all together 64. */
        g_assert_cmpuint(rig.control->bytes, <, 4u << 20);
    }
    for (int i = 0; i < SLOW; i++) {
        control_close(slow[i]);
    }
    good(rig.control, "{\"execute\":\"status\"}");
    rig_fini(&rig);
}

/* A process with @num connections to @path that says nothing and stays. */
static pid_t silent_crowd(const char *path, unsigned num)
{
    int ready[2];
    pid_t child;
    char byte;

    g_assert_cmpint(pipe(ready), ==, 0);
    child = fork();
    if (child == 0) {
        die_with_us(NULL);
        for (unsigned i = 0; i < num; i++) {
            if (connect_to(path) < 0) {
                _exit(1);
            }
        }
        if (write(ready[1], "x", 1) != 1) {
            _exit(1);
        }
        for (;;) {
            pause();
        }
    }
    close(ready[1]);
    g_assert_cmpint(read(ready[0], &byte, 1), ==, 1);
    close(ready[0]);
    return child;
}

static void end_crowd(pid_t child)
{
    kill(child, SIGKILL);
    g_assert_cmpint(waitpid(child, NULL, 0), ==, child);
}

/* Strangers who take all places and say nothing: others come in at once. */
static void test_strangers(void)
{
    IbLinkClient *a, *b;
    pid_t crowd;
    Rig rig;

    rig_init(&rig, back_to_back, NULL);
    crowd = silent_crowd(rig.socket, 100);
    await(rig.control, "NODE_ERROR", NULL, NULL);
    a = join(&rig, "a", 1);
    b = join(&rig, "b", 2);
    await_link(a, 1, true);
    await_link(b, 1, true);
    end_crowd(crowd);
    ib_link_client_close(a);
    ib_link_client_close(b);
    rig_fini(&rig);
}

/* The same at the control socket, for those who are there and who come. */
static void test_control_crowd(void)
{
    Control *other;
    pid_t crowd;
    Rig rig;

    rig_init(&rig, back_to_back, NULL);
    crowd = silent_crowd(rig.control_path, 200);
    good(rig.control, "{\"execute\":\"list\"}");
    other = control_open(rig.control_path);
    good(other, "{\"execute\":\"restore\",\"arguments\":{\"cable\":"
         "\"cb\"}}");
    await(rig.control, "CABLE", "cable", "cb");
    end_crowd(crowd);
    control_close(other);
    rig_fini(&rig);
}

/* Who does wrong again and again is told of a few times, and counted. */
static void test_error_flood(void)
{
    enum { FLOOD = 200 };
    IbLinkClient *b;
    JsonObject *data;
    uint64_t told = 0, counted = 0;
    Rig rig;

    rig_init(&rig, back_to_back, NULL);
    for (unsigned i = 0; i < FLOOD; i++) {
        not_joined(&rig, "eve", 1, "'eve' is not there");
    }
    /* A second later the rest is told as a number. */
    do {
        g_usleep(50000);
        not_joined(&rig, "mallory", 1, "'mallory' is not there");
        good(rig.control, "{\"execute\":\"query-version\"}");
        told = counted = 0;
        for (unsigned i = 0; i < rig.control->events->len; i++) {
            data = event_data(rig.control->events->pdata[i], "NODE_ERROR");
            if (data && strstr(json_object_get_string_member(data, "why"),
                               "eve")) {
                told++;
            }
            if (data) {
                counted += json_object_get_int_member(data, "suppressed");
            }
        }
    } while (!counted);
    g_assert_cmpuint(told, <, FLOOD);
    g_assert_cmpuint(told + counted, >=, FLOOD);

    /* Joining and leaving: after some times it has to wait. */
    for (unsigned i = 0; ; i++) {
        IbLinkHello hello = hello_of("a", 1);
        char *error;
        IbLinkClient *a = ib_link_client_connect(rig.socket, &hello,
                                                 PATIENCE_MS, &error);

        if (!a) {
            g_assert_nonnull(strstr(error, "a joins more than 20 times"));
            free(error);
            break;
        }
        ib_link_client_close(a);
        g_assert_cmpuint(i, <, 10000);
    }
    b = join(&rig, "b", 2);
    ib_link_client_close(b);
    rig_fini(&rig);
}

/* Bytes without sense to both sockets; the daemon goes on. */
static void test_garbage(void)
{
    GRand *rand = g_rand_new_with_seed(5);
    Rig rig;

    rig_init(&rig, back_to_back, NULL);
    for (int i = 0; i < 300; i++) {
        int fd = connect_to(i & 1 ? rig.socket : rig.control_path);
        uint8_t bytes[512];
        size_t n = g_rand_int_range(rand, 1, sizeof(bytes));

        g_assert_cmpint(fd, >=, 0);
        for (size_t k = 0; k < n; k++) {
            bytes[k] = g_rand_int_range(rand, 0, 256);
        }
        if (i % 4 == 1) {
            /* A header that makes sense at first. */
            ib_put16(bytes, g_rand_int_range(rand, 0, 8));
            ib_put16(bytes + 2, 0);
            ib_put32(bytes + 4, g_rand_int_range(rand, 0, 3000));
        }
        if (send(fd, bytes, n, MSG_NOSIGNAL) < 0) {
            g_assert_cmpint(errno, ==, EPIPE);
        }
        close(fd);
    }
    /* A command without end. */
    {
        int fd = connect_to(rig.control_path);
        char *text = g_strnfill(100000, '{');
        struct pollfd pfd = { .fd = fd, .events = POLLIN };
        char buf[4096];

        if (send(fd, text, 100000, MSG_NOSIGNAL) < 0) {
            g_assert_cmpint(errno, ==, EPIPE);
        }
        while (poll(&pfd, 1, PATIENCE_MS) == 1 &&
               recv(fd, buf, sizeof(buf), 0) > 0) {
            continue;
        }
        g_assert_cmpint(pfd.revents & (POLLIN | POLLHUP), !=, 0);
        g_free(text);
        close(fd);
    }
    good(rig.control, "{\"execute\":\"status\"}");
    g_rand_free(rand);
    rig_fini(&rig);
}

/* A ring with nonsense: the host is shown the door, others go on. */
static void test_broken_ring(void)
{
    IbLinkClient *a, *b, *c;
    IbLinkMessage message;
    Rig rig;

    rig_init(&rig, back_to_back, NULL);
    a = join(&rig, "a", 1);
    b = join(&rig, "b", 2);
    c = join(&rig, "c", 1);
    good(rig.control, "{\"execute\":\"restore\",\"arguments\":{\"cable\":"
         "\"cb\"}}");
    await_link(b, 1, true);
    await_link(b, 2, true);
    a->ports[1].memory->to_fabric.head += 100000;
    ib_link_kick(&a->wake);
    await_link(b, 1, false);
    while (ib_link_client_poll(a, &message) != 1 ||
           message.type != IB_LINK_REFUSE) {
        struct pollfd pfd = { .fd = a->fd, .events = POLLIN };

        g_assert_cmpint(poll(&pfd, 1, PATIENCE_MS), ==, 1);
    }
    g_assert_nonnull(strstr(message.text, "port 1: its ring holds"));
    await(rig.control, "NODE_GONE", "node", "a");
    send_packet(c, 1, 9);
    g_assert_cmpuint(receive_packet(b, 2), ==, 9);
    ib_link_client_close(a);
    a = join(&rig, "a", 1);
    await_link(b, 1, true);
    ib_link_client_close(a);
    ib_link_client_close(b);
    ib_link_client_close(c);
    rig_fini(&rig);
}

/*
 * A host that lets no kick through, and wants one for each packet: whatever it
 * does to the sockets, the fabric waits for nothing.
 */
static void test_hostile_wake(void)
{
    char block[4096] = { 0 };
    IbLinkClient *a, *b, *c;
    JsonObject *data;
    Rig rig;

    rig_init(&rig, back_to_back, NULL);
    a = join(&rig, "a", 1);
    b = join(&rig, "b", 2);
    c = join(&rig, "c", 1);
    good(rig.control, "{\"execute\":\"restore\",\"arguments\":{\"cable\":"
         "\"cb\"}}");
    await_link(b, 1, true);
    await_link(b, 2, true);
    /* Both ways full, and as blocking as file flags can make them. */
    g_assert_cmpint(fcntl(a->wake.self_end, F_SETFL, 0), ==, 0);
    g_assert_cmpint(fcntl(a->wake.peer_fd, F_SETFL, 0), ==, 0);
    while (send(a->wake.self_end, block, sizeof(block), MSG_DONTWAIT) > 0) {
        continue;
    }
    for (uint32_t i = 0; i < 1000; i++) {
        if (send(a->wake.peer_fd, block, sizeof(block), MSG_DONTWAIT) < 0) {
            g_assert_cmpint(errno, ==, EAGAIN);
        }
        __atomic_store_n(&a->ports[1].memory->to_node.consumer_waits, 1,
                         __ATOMIC_SEQ_CST);
        send_packet(b, 1, i);
        g_assert_cmpuint(receive_packet(a, 1), ==, i);
        send_packet(c, 1, i);
        g_assert_cmpuint(receive_packet(b, 2), ==, i);
    }
    /* One that is shut down wakes nobody, for ever readable as it is. */
    g_assert_cmpint(shutdown(a->wake.self_end, SHUT_RDWR), ==, 0);
    send_packet(b, 1, 1);
    g_assert_cmpint(shutdown(a->wake.peer_fd, SHUT_RDWR), ==, 0);
    data = await(rig.control, "NODE_ERROR", "node", "a");
    g_assert_cmpstr(json_object_get_string_member(data, "why"), ==,
                    "it shut down the socket that wakes the fabric");
    await(rig.control, "NODE_GONE", "node", "a");
    send_packet(c, 1, 9);
    g_assert_cmpuint(receive_packet(b, 2), ==, 9);
    ib_link_client_close(a);
    ib_link_client_close(b);
    ib_link_client_close(c);
    rig_fini(&rig);
}

/*
 * A host that keeps the descriptor of its memory cannot take it away; it can
 * punch holes into it: zeroes, where there were counters.
 */
static void test_memory_taken(void)
{
    uint8_t buf[IB_LINK_HEADER_LEN + IB_LINK_BODY_MAX];
    IbLinkMessage message = { .type = IB_LINK_HELLO };
    IbLinkPortMemory *memory;
    IbLinkFds fds = { .num = 0 };
    IbLinkClient *b;
    IbLinkWake wake;
    IbRing tx;
    const char *error;
    JsonObject *data;
    size_t len;
    int fd;
    Rig rig;

    rig_init(&rig, back_to_back, NULL);
    b = join(&rig, "b", 2);
    g_assert_true(ib_link_wake_init(&wake));
    fd = connect_to(rig.socket);
    message.hello = hello_of("a", 1);
    len = ib_link_encode(buf, &message);
    g_assert_cmpint(ib_link_send(fd, buf, len, &wake.self_end, 1), ==, len);
    while (fds.num < 2) {
        struct pollfd pfd = { .fd = fd, .events = POLLIN };

        g_assert_cmpint(poll(&pfd, 1, PATIENCE_MS), ==, 1);
        g_assert_cmpint(ib_link_receive(fd, buf, sizeof(buf), &fds), >, 0);
    }
    g_assert_true(ib_link_wake_accept(&wake, fds.fds[0], &error));
    g_assert_cmpint(ftruncate(fds.fds[1], 0), <, 0);
    g_assert_cmpint(ftruncate(fds.fds[1], 1 << 30), <, 0);
    g_assert_cmpint(fcntl(fds.fds[1], F_ADD_SEALS, F_SEAL_WRITE), <, 0);
    memory = ib_link_memory_map(fds.fds[1], &error);
    g_assert_nonnull(memory);
    message = (IbLinkMessage) { .type = IB_LINK_PHYS, .port = 1,
                                .phys.enabled = true };
    len = ib_link_encode(buf, &message);
    g_assert_cmpint(send(fd, buf, len, 0), ==, len);
    await_link(b, 1, true);

    ib_ring_init_producer(&tx, &memory->to_fabric);
    len = make_packet(ib_ring_reserve(&tx), 1);
    ib_ring_commit(&tx, len);
    ib_link_kick(&wake);
    g_assert_cmpuint(receive_packet(b, 1), ==, 1);
    g_assert_cmpint(fallocate(fds.fds[1],
                              FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                              sizeof(*memory)), ==, 0);
    ib_link_kick(&wake);
    data = await(rig.control, "NODE_ERROR", "node", "a");
    g_assert_nonnull(strstr(json_object_get_string_member(data, "why"),
                            "its ring holds what cannot be"));
    await_link(b, 1, false);
    ib_link_memory_unmap(memory);
    ib_link_wake_fini(&wake);
    close(fds.fds[1]);
    close(fd);
    ib_link_client_close(b);
    rig_fini(&rig);
}

/* HELLO with other descriptors than the one that it needs. */
static void test_hello_fds(void)
{
    static const char no[] = "HELLO needs one descriptor";
    static const struct { unsigned num; bool wrong; const char *why; }
    cases[] = {
        { 0, false, no }, { 2, false, no }, { 9, false, no },
        { 1, true, "the wake-up descriptor is no unix stream socket" },
        { 1, false, NULL },
    };
    uint8_t buf[IB_LINK_HEADER_LEN + IB_LINK_BODY_MAX];
    IbLinkMessage message = { .type = IB_LINK_HELLO };
    int pair[2], null = open("/dev/null", O_RDWR);
    JsonObject *data;
    size_t len;
    Rig rig;

    rig_init(&rig, back_to_back, NULL);
    g_assert_cmpint(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), ==, 0);
    message.hello = hello_of("a", 1);
    len = ib_link_encode(buf, &message);
    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        int fds[IB_LINK_MAX_FDS], fd = connect_to(rig.socket);

        for (unsigned n = 0; n < cases[i].num; n++) {
            fds[n] = cases[i].wrong ? null : pair[0];
        }
        g_assert_cmpint(ib_link_send(fd, buf, len, fds, cases[i].num), ==,
                        len);
        if (cases[i].why) {
            data = await(rig.control, "NODE_ERROR", NULL, NULL);
            if (!strstr(json_object_get_string_member(data, "why"),
                        cases[i].why)) {
                g_error("%s", json_object_get_string_member(data, "why"));
            }
            forget(rig.control);
        } else {
            await(rig.control, "NODE_ATTACHED", "node", "a");
        }
        close(fd);
    }
    close(pair[0]);
    close(pair[1]);
    close(null);
    rig_fini(&rig);
}

/* VCRC bit by bit, as 7.8.2 defines it (ib/crc.c uses tables). */
static uint16_t slow_vcrc(const uint8_t *p, size_t len)
{
    uint16_t crc = 0xFFFF;

    for (size_t i = 0; i < len; i++) {
        for (int bit = 0; bit < 8; bit++) {
            unsigned in = (p[i] >> bit & 1) ^ (crc & 1);

            crc = crc >> 1 ^ (in ? 0xD008 : 0);
        }
    }
    return ~crc;
}

typedef struct Capture {
    unsigned interfaces, packets, comments, statistics;
    uint64_t dropped;
} Capture;

static uint32_t word(const uint8_t *p)
{
    uint32_t v;

    memcpy(&v, p, sizeof(v));
    return v;
}

/* Walks a pcapng file; checks each packet's CRCs. */
static void read_capture(const char *file, unsigned linktype,
                         Capture *capture)
{
    unsigned skip = linktype == 197 ? 16 : 0;     /* ERF header */
    gsize len, at = 0;
    char *text;

    memset(capture, 0, sizeof(*capture));
    g_assert_true(g_file_get_contents(file, &text, &len, NULL));
    while (at < len) {
        const uint8_t *block = (uint8_t *)text + at, *options;
        uint32_t type = word(block), size = word(block + 4), caplen, vcrc;

        g_assert_cmpuint(size, >=, 12);
        g_assert_cmpuint(at + size, <=, len);
        g_assert_cmpuint(word(block + size - 4), ==, size);
        if (type == 1) {
            capture->interfaces++;
            g_assert_cmpuint(block[8] | block[9] << 8, ==, linktype);
        } else if (type == 5) {
            capture->statistics++;
        } else if (type == 6) {
            const uint8_t *data = block + 28;

            caplen = word(block + 20);
            options = data + ((caplen + 3) & ~3u);
            if (skip) {
                g_assert_cmpuint(data[8], ==, 21);
                g_assert_cmpuint(ib_get16(data + 10), ==, caplen);
                g_assert_cmpuint(ib_get16(data + 14), ==, caplen - 16);
            }
            data += skip;
            caplen -= skip;
            capture->packets++;
            g_assert_true(ib_icrc_ok(data, caplen - 2));
            vcrc = slow_vcrc(data, caplen - 2);
            g_assert_cmphex(data[caplen - 2] | data[caplen - 1] << 8, ==,
                            vcrc);
            capture->comments += (options[0] | options[1] << 8) == 1;
        }
        at += size;
    }
    g_free(text);
}

static char *tshark(const char *file, const char *const *fields)
{
    GPtrArray *argv = g_ptr_array_new();
    char *out, *err;
    int status;

    g_ptr_array_add(argv, "tshark");
    g_ptr_array_add(argv, "-r");
    g_ptr_array_add(argv, (char *)file);
    g_ptr_array_add(argv, "-T");
    g_ptr_array_add(argv, "fields");
    for (; *fields; fields++) {
        g_ptr_array_add(argv, "-e");
        g_ptr_array_add(argv, (char *)*fields);
    }
    g_ptr_array_add(argv, NULL);
    g_assert_true(g_spawn_sync(NULL, (char **)argv->pdata, NULL,
                               G_SPAWN_SEARCH_PATH, NULL, NULL, &out, &err,
                               &status, NULL));
    g_ptr_array_free(argv, true);
    g_assert_cmpint(status, ==, 0);
    /* Only its remark about running as root is no complaint. */
    if (*err && !strstr(err, "This could be dangerous")) {
        g_error("tshark: %s", err);
    }
    g_free(err);
    return out;
}

static void send_mad(IbLinkClient *client, unsigned port,
                     uint8_t mgmt_class, uint16_t attr)
{
    uint8_t mad[IB_MAD_LEN] = { 0 }, p[IB_PACKET_MAX];
    IbMadHeader header = {
        .base_version = 1, .mgmt_class = mgmt_class, .class_version = 2,
        .method = IB_METHOD_SEND, .tid = 5, .attr_id = attr,
    };
    IbMadAddress to = {
        .slid = 1, .dlid = 2, .src_qpn = 1, .dest_qpn = 1,
        .qkey = IB_QKEY_QP1, .pkey = IB_PKEY_DEFAULT,
    };

    ib_mad_header_pack(mad, &header);
    g_assert_true(try_send(client, port, p, ib_mad_packet(p, &to, mad)));
}

static void test_capture(void)
{
    static const char *const fields[] = {
        "frame.interface_name", "infiniband.bth.opcode",
        "infiniband.mad.attributeid", "frame.comment", "_ws.malformed",
        "_ws.expert.message", NULL,
    };
    IbLinkClient *a, *b;
    char *file, *text, *found;
    Capture capture;
    JsonObject *data;
    Rig rig;

    rig_init(&rig, back_to_back, NULL);
    file = g_build_filename(rig.dir, "x.pcapng", NULL);
    a = join(&rig, "a", 1);
    b = join(&rig, "b", 2);
    await_link(a, 1, true);
    await_link(b, 1, true);
    text = g_strdup_printf("{\"execute\":\"capture-start\",\"arguments\":"
                           "{\"file\":\"%s\"}}", file);
    good(rig.control, text);
    refused(rig.control, text, "is being captured to already");
    g_free(text);
    for (uint32_t i = 0; i < 10; i++) {
        send_packet(a, 1, i);
        receive_packet(b, 1);
    }
    send_mad(a, 1, IB_CLASS_CM, IB_CM_LAP);
    data = await(rig.control, "MAD", NULL, NULL);
    g_assert_cmpstr(json_object_get_string_member(data, "attribute"), ==,
                    "LAP");
    g_assert_true(json_object_get_boolean_member(data, "delivered"));
    good(rig.control, "{\"execute\":\"pull\",\"arguments\":{\"cable\":"
         "\"ab\"}}");
    send_packet(a, 1, 11);
    await(rig.control, "PACKET_DROPPED", NULL, NULL);
    good(rig.control, "{\"execute\":\"capture-stop\"}");
    await(rig.control, "CAPTURE", "what", "stopped");

    read_capture(file, 197, &capture);
    g_assert_cmpuint(capture.interfaces, ==, 2);
    g_assert_cmpuint(capture.packets, ==, 12);
    g_assert_cmpuint(capture.comments, ==, 1);
    g_assert_cmpuint(capture.statistics, ==, 2);

    found = g_find_program_in_path("tshark");
    if (found) {
        char **lines;

        text = tshark(file, fields);
        lines = g_strsplit(text, "\n", -1);
        g_assert_cmpstr(lines[0], ==, "ab\t4\t\t\t\t");
        g_assert_cmpstr(lines[10], ==, "ab\t100\t0x0019\t\t\t");
        g_assert_true(g_str_has_prefix(lines[11],
                                       "ab\t4\t\tdropped at a/1: link is "
                                       "down\t"));
        g_assert_cmpstr(lines[12], ==, "");
        g_strfreev(lines);
        g_free(text);
        g_free(found);
    } else {
        g_test_message("no tshark: the file was read by this test only");
    }
    ib_link_client_close(a);
    ib_link_client_close(b);
    g_free(file);
    rig_fini(&rig);
}

/* More than the buffer holds, at full speed, to a file: all is there. */
static void test_capture_many(void)
{
    enum { COUNT = 50000 };
    IbLinkClient *a, *b;
    Capture capture;
    char *file, *dir = g_dir_make_tmp("capture-XXXXXX", NULL);
    const char *more[5];
    JsonObject *data;
    JsonArray *array;
    JsonNode *reply;
    Rig rig;

    file = g_build_filename(dir, "x.pcapng", NULL);
    more[0] = "--capture";
    more[1] = file;
    more[2] = "--capture-format";
    more[3] = "infiniband";
    more[4] = NULL;
    rig_init(&rig, back_to_back, more);
    a = join(&rig, "a", 1);
    b = join(&rig, "b", 2);
    await_link(a, 1, true);
    await_link(b, 1, true);
    for (uint32_t i = 0, got = 0; got < COUNT; ) {
        for (int n = 0; n < 100 && i < COUNT; n++) {
            send_packet(a, 1, i++);
        }
        while (got < i) {
            g_assert_cmpuint(receive_packet(b, 1), ==, got);
            got++;
        }
    }
    reply = command(rig.control, "{\"execute\":\"capture-stop\"}");
    array = json_object_get_array_member(json_node_get_object(reply),
                                         "return");
    data = json_array_get_object_element(array, 0);
    read_capture(file, 247, &capture);
    /* Whatever the disk could not take is counted, not forgotten. */
    g_assert_cmpuint(capture.packets +
                     json_object_get_int_member(data, "dropped"), ==, COUNT);
    g_assert_cmpuint(capture.packets, ==,
                     json_object_get_int_member(data, "packets"));
    json_node_unref(reply);
    ib_link_client_close(a);
    ib_link_client_close(b);
    rig_fini(&rig);
    remove_dir(dir);
    g_free(file);
    g_free(dir);
}

/* To a pipe: readers may come and go, the fabric does not care. */
static void test_capture_pipe(void)
{
    IbLinkClient *a, *b;
    char *file, *text;
    Rig rig;

    rig_init(&rig, back_to_back, NULL);
    file = g_build_filename(rig.dir, "pipe", NULL);
    g_assert_cmpint(mkfifo(file, 0600), ==, 0);
    a = join(&rig, "a", 1);
    b = join(&rig, "b", 2);
    await_link(a, 1, true);
    await_link(b, 1, true);
    text = g_strdup_printf("{\"execute\":\"capture-start\",\"arguments\":"
                           "{\"file\":\"%s\",\"cables\":[\"ab\"]}}", file);
    good(rig.control, text);
    g_free(text);
    for (int reader = 0; reader < 2; reader++) {
        uint8_t head[12];
        size_t have = 0;
        int fd;

        send_packet(a, 1, 1);        /* nobody reads: not kept */
        receive_packet(b, 1);
        fd = open(file, O_RDONLY);
        g_assert_cmpint(fd, >=, 0);
        while (have < sizeof(head)) {
            ssize_t n = read(fd, head + have, sizeof(head) - have);

            g_assert_cmpint(n, >, 0);
            have += n;
        }
        g_assert_cmphex(word(head), ==, 0x0A0D0D0A);
        g_assert_cmphex(word(head + 8), ==, 0x1A2B3C4D);
        close(fd);
        /* It finds out when it writes. */
        for (int i = 0; i < 100; i++) {
            send_packet(a, 1, i);
            receive_packet(b, 1);
            g_usleep(1000);
        }
    }
    /* A reader that does not read, and much more than a pipe holds. */
    {
        int fd = open(file, O_RDONLY);

        for (int i = 0; i < 5000; i++) {
            send_packet(a, 1, i);
            receive_packet(b, 1);
        }
        good(rig.control, "{\"execute\":\"capture-stop\"}");
        close(fd);
    }
    ib_link_client_close(a);
    ib_link_client_close(b);
    g_free(file);
    rig_fini(&rig);
}

/* What a capture's status says, by member. */
static JsonNode *capture_member(Rig *rig, const char *name)
{
    JsonNode *reply = command(rig->control, "{\"execute\":\"status\"}");
    JsonArray *captures = json_object_get_array_member(result_of(reply),
                                                       "captures");
    JsonObject *capture = json_array_get_object_element(captures, 0);
    JsonNode *node = json_object_has_member(capture, name)
                     ? json_node_copy(json_object_get_member(capture, name))
                     : NULL;

    json_node_unref(reply);
    return node;
}

static void await_failure(Rig *rig, const char *why)
{
    JsonNode *node;

    while (!(node = capture_member(rig, "failure"))) {
        g_usleep(10000);
    }
    g_assert_cmpstr(json_node_get_string(node), ==, why);
    json_node_unref(node);
}

/* A file that can grow no more: it is said, and what is lost is counted. */
static void test_capture_full(void)
{
    /* The ports' memory is a file as well. */
    const unsigned size_max = sizeof(IbLinkPortMemory) + 4096;
    struct rlimit limit, old;
    IbLinkClient *a, *b;
    char *file, *text;
    JsonNode *node;
    struct stat st;
    uint32_t i;
    Rig rig;

    g_assert_cmpint(getrlimit(RLIMIT_FSIZE, &old), ==, 0);
    limit = old;
    limit.rlim_cur = size_max;
    g_assert_cmpint(setrlimit(RLIMIT_FSIZE, &limit), ==, 0);
    rig_init(&rig, back_to_back, NULL);
    g_assert_cmpint(setrlimit(RLIMIT_FSIZE, &old), ==, 0);
    file = g_build_filename(rig.dir, "x.pcapng", NULL);
    a = join(&rig, "a", 1);
    b = join(&rig, "b", 2);
    await_link(a, 1, true);
    await_link(b, 1, true);
    text = g_strdup_printf("{\"execute\":\"capture-start\",\"arguments\":"
                           "{\"file\":\"%s\"}}", file);
    good(rig.control, text);
    for (i = 0; i < size_max / 64; i++) {
        send_packet(a, 1, i);
        g_assert_cmpuint(receive_packet(b, 1), ==, i);
    }
    await_failure(&rig, "writing the file failed");
    for (uint32_t more = i + 100; i < more; i++) {
        send_packet(a, 1, i);
        g_assert_cmpuint(receive_packet(b, 1), ==, i);
    }
    node = capture_member(&rig, "dropped");
    g_assert_cmpint(json_node_get_int(node), >=, 100);
    json_node_unref(node);
    good(rig.control, "{\"execute\":\"capture-stop\"}");
    g_assert_cmpint(stat(file, &st), ==, 0);
    g_assert_cmpint(st.st_size, <=, size_max);
    ib_link_client_close(a);
    ib_link_client_close(b);
    g_free(text);
    g_free(file);
    rig_fini(&rig);
}

/* Reads a page now and then, until the writer is gone. */
static void *slow_reader(void *opaque)
{
    int fd = open(opaque, O_RDONLY | O_CLOEXEC);
    char page[4096];

    g_assert_cmpint(fd, >=, 0);
    while (read(fd, page, sizeof(page)) > 0) {
        g_usleep(200000);
    }
    close(fd);
    return NULL;
}

/* A reader that is too slow holds up nobody; nor does a pipe that is none. */
static void test_capture_slow_pipe(void)
{
    IbLinkClient *a, *b;
    char *file, *text;
    GThread *reader;
    JsonNode *node;
    bool connected = false;
    Rig rig;

    rig_init(&rig, back_to_back, NULL);
    file = g_build_filename(rig.dir, "pipe", NULL);
    g_assert_cmpint(mkfifo(file, 0600), ==, 0);
    a = join(&rig, "a", 1);
    b = join(&rig, "b", 2);
    await_link(a, 1, true);
    await_link(b, 1, true);
    text = g_strdup_printf("{\"execute\":\"capture-start\",\"arguments\":"
                           "{\"file\":\"%s\"}}", file);
    good(rig.control, text);
    reader = g_thread_new("reader", slow_reader, file);
    while (!connected) {
        node = capture_member(&rig, "connected");
        connected = json_node_get_boolean(node);
        json_node_unref(node);
    }
    for (uint32_t i = 0; i < 10000; i++) {
        send_packet(a, 1, i);
        g_assert_cmpuint(receive_packet(b, 1), ==, i);
    }
    good(rig.control, "{\"execute\":\"capture-stop\"}");
    g_thread_join(reader);

    good(rig.control, text);
    g_assert_cmpint(unlink(file), ==, 0);
    g_assert_true(g_file_set_contents(file, "mine", -1, NULL));
    await_failure(&rig, "the pipe is not a pipe any more");
    send_packet(a, 1, 1);
    receive_packet(b, 1);
    good(rig.control, "{\"execute\":\"capture-stop\"}");
    g_free(text);
    g_assert_true(g_file_get_contents(file, &text, NULL, NULL));
    g_assert_cmpstr(text, ==, "mine");
    ib_link_client_close(a);
    ib_link_client_close(b);
    g_free(text);
    g_free(file);
    rig_fini(&rig);
}

int main(int argc, char **argv)
{
    scratch_init();
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/daemon/options", test_options);
    g_test_add_func("/daemon/start", test_start);
    g_test_add_func("/daemon/join", test_join);
    g_test_add_func("/daemon/kill-9", test_kill_9);
    g_test_add_func("/daemon/traffic", test_traffic);
    g_test_add_func("/daemon/pull", test_pull);
    g_test_add_func("/daemon/commands", test_commands);
    g_test_add_func("/daemon/node-events", test_node_events);
    g_test_add_func("/daemon/many-node-events", test_many_node_events);
    g_test_add_func("/daemon/slow-client", test_slow_client);
    g_test_add_func("/daemon/slow-clients", test_slow_clients);
    g_test_add_func("/daemon/strangers", test_strangers);
    g_test_add_func("/daemon/control-crowd", test_control_crowd);
    g_test_add_func("/daemon/error-flood", test_error_flood);
    g_test_add_func("/daemon/garbage", test_garbage);
    g_test_add_func("/daemon/broken-ring", test_broken_ring);
    g_test_add_func("/daemon/hostile-wake", test_hostile_wake);
    g_test_add_func("/daemon/hello-fds", test_hello_fds);
    g_test_add_func("/daemon/memory-taken", test_memory_taken);
    g_test_add_func("/daemon/capture", test_capture);
    g_test_add_func("/daemon/capture-many", test_capture_many);
    g_test_add_func("/daemon/capture-pipe", test_capture_pipe);
    g_test_add_func("/daemon/capture-full", test_capture_full);
    g_test_add_func("/daemon/capture-slow-pipe", test_capture_slow_pipe);
    return g_test_run();
}
