/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Clients of the control socket.
 *
 * Theory of operation: a client gets a greeting, then sends JSON objects (a
 * newline behind them is not needed) and gets one reply each, in order, and
 * every event.  All output goes through a buffer of the client; one that does
 * not read until CLIENT_OUT_MAX has gathered is disconnected, so that it
 * holds up neither the others nor the fabric; if ALL_OUT_MAX has gathered for
 * all together, the one with most goes.  When all places are taken, a
 * client of the process that has the most makes room for a new one.
 */
#include <errno.h>
#include <glib-unix.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fabric/daemon.h"

#define MAX_CLIENTS 64
#define CLIENT_IN_MAX (64u << 10)    /* longest command */
#define CLIENT_OUT_MAX (8u << 20)
#define ALL_OUT_MAX (64u << 20)
#define CLIENT_OUT_KEPT (64u << 10)  /* a buffer's memory when it is empty */
#define CLIENT_READ 4096

typedef struct Client {
    Control *control;
    Guest guest;
    int fd;
    guint in_source, out_source;
    GString *in, *out;
    gsize out_done;
    JsonFramer framer;
    bool dead;                       /* freed at the next safe moment */
} Client;

struct Control {
    Daemon *daemon;
    Listener *listener;
    guint bury_source;
    GPtrArray *clients;
    gsize waiting;                   /* bytes for all of them */
};

static gsize waiting(const Client *client)
{
    return client->out->len - client->out_done;
}

/* Nothing waits any more; neither does the memory that it took. */
static void empty_out(Client *client)
{
    client->control->waiting -= waiting(client);
    client->out_done = 0;
    if (client->out->allocated_len > CLIENT_OUT_KEPT) {
        g_string_free(client->out, true);
        client->out = g_string_new(NULL);
    } else {
        g_string_set_size(client->out, 0);
    }
}

static void client_free(Client *client)
{
    if (client->in_source) {
        g_source_remove(client->in_source);
    }
    if (client->out_source) {
        g_source_remove(client->out_source);
    }
    close(client->fd);
    empty_out(client);
    g_string_free(client->in, true);
    g_string_free(client->out, true);
    g_ptr_array_remove(client->control->clients, client);
    g_free(client);
}

static gboolean bury(gpointer opaque)
{
    Control *control = opaque;

    control->bury_source = 0;
    for (unsigned i = control->clients->len; i-- > 0; ) {
        Client *client = g_ptr_array_index(control->clients, i);

        if (client->dead) {
            client_free(client);
        }
    }
    return G_SOURCE_REMOVE;
}

/* A client may turn out dead while the list of them is being walked. */
static void client_die(Client *client)
{
    client->dead = true;
    empty_out(client);
    if (!client->control->bury_source) {
        /* However much there is to do: idle sources might never run. */
        client->control->bury_source =
            g_idle_add_full(G_PRIORITY_DEFAULT, bury, client->control, NULL);
    }
}

static gboolean on_writable(gint fd, GIOCondition condition, gpointer opaque);

static void client_flush(Client *client)
{
    while (!client->dead && client->out_done < client->out->len) {
        ssize_t n = send(client->fd, client->out->str + client->out_done,
                         client->out->len - client->out_done,
                         MSG_NOSIGNAL | MSG_DONTWAIT);

        if (n > 0) {
            client->out_done += n;
            client->control->waiting -= n;
        } else if (n < 0 && errno == EAGAIN) {
            if (!client->out_source) {
                client->out_source = g_unix_fd_add(client->fd, G_IO_OUT,
                                                   on_writable, client);
            }
            return;
        } else if (n == 0 || errno != EINTR) {
            client_die(client);
            return;
        }
    }
    empty_out(client);
}

static gboolean on_writable(gint fd, GIOCondition condition, gpointer opaque)
{
    Client *client = opaque;

    client->out_source = 0;
    client_flush(client);
    return G_SOURCE_REMOVE;
}

/* Too much for all together: who has most of it goes. */
static void relieve(Control *control)
{
    while (control->waiting > ALL_OUT_MAX) {
        Client *worst = NULL;

        for (unsigned i = 0; i < control->clients->len; i++) {
            Client *client = g_ptr_array_index(control->clients, i);

            if (!worst || waiting(client) > waiting(worst)) {
                worst = client;
            }
        }
        client_die(worst);
    }
}

static void client_send(Client *client, const char *line)
{
    gsize before = client->out->len;

    if (client->dead) {
        return;
    }
    if (waiting(client) + strlen(line) > CLIENT_OUT_MAX) {
        client_die(client);
        return;
    }
    if (client->out_done > CLIENT_OUT_MAX / 2) {
        g_string_erase(client->out, 0, client->out_done);
        before -= client->out_done;
        client->out_done = 0;
    }
    g_string_append(client->out, line);
    g_string_append(client->out, "\r\n");
    client->control->waiting += client->out->len - before;
    if (!client->out_source) {
        client_flush(client);
    }
    relieve(client->control);
}

void control_broadcast(Control *control, const char *line)
{
    for (unsigned i = 0; i < control->clients->len; i++) {
        client_send(g_ptr_array_index(control->clients, i), line);
    }
}

/* Takes bytes; executes each command that is complete. */
static void client_input(Client *client, const char *data, size_t len)
{
    Daemon *daemon = client->control->daemon;

    for (size_t i = 0; i < len && !client->dead; i++) {
        char *reply;

        g_string_append_c(client->in, data[i]);
        if (json_framer_byte(&client->framer, data[i])) {
            client->guest.spoke = true;
            reply = command_execute(daemon, client->in->str,
                                    client->in->len);
            client_send(client, reply);
            g_free(reply);
            g_string_set_size(client->in, 0);
        } else if (client->in->len == CLIENT_IN_MAX) {
            client_send(client, "{\"error\": {\"class\": \"GenericError\", "
                        "\"desc\": \"a command is at most 65536 bytes; "
                        "the connection is closed\"}}");
            client_die(client);
        }
    }
}

static gboolean on_readable(gint fd, GIOCondition condition, gpointer opaque)
{
    Client *client = opaque;
    char buf[CLIENT_READ];
    ssize_t n;

    if (client->dead) {
        client->in_source = 0;
        return G_SOURCE_REMOVE;
    }
    n = recv(fd, buf, sizeof(buf), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        return G_SOURCE_CONTINUE;
    }
    if (n <= 0) {
        client->in_source = 0;
        client_die(client);
        return G_SOURCE_REMOVE;
    }
    client_input(client, buf, n);
    return G_SOURCE_CONTINUE;
}

/* False: the new one must go. */
static bool make_room(Control *control)
{
    const Guest *guests[MAX_CLIENTS];
    Client *client;
    int who;

    if (control->clients->len < MAX_CLIENTS) {
        return true;
    }
    for (unsigned i = 0; i < MAX_CLIENTS; i++) {
        client = g_ptr_array_index(control->clients, i);
        if (client->dead) {
            client_free(client);
            return true;
        }
        guests[i] = &client->guest;
    }
    who = guest_who_goes(guests, MAX_CLIENTS);
    if (who < 0) {
        return false;
    }
    client = g_ptr_array_index(control->clients, who);
    client_send(client, "{\"error\": {\"class\": \"GenericError\", \"desc\": "
                "\"64 clients are connected, most of them by this process; "
                "the connection is closed\"}}");
    client_free(client);
    return true;
}

static void come(void *opaque, int client_fd)
{
    Control *control = opaque;
    Client *client;

    if (!make_room(control)) {
        static const char sorry[] =
            "{\"error\": {\"class\": \"GenericError\", \"desc\": "
            "\"64 clients are connected already; close one\"}}\r\n";

        if (send(client_fd, sorry, sizeof(sorry) - 1,
                 MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
            /* It will see the connection close. */
        }
        close(client_fd);
        return;
    }
    client = g_new0(Client, 1);
    client->control = control;
    client->fd = client_fd;
    guest_init(&client->guest, client_fd);
    client->in = g_string_new(NULL);
    client->out = g_string_new(NULL);
    client->in_source = g_unix_fd_add(client_fd, G_IO_IN | G_IO_HUP,
                                      on_readable, client);
    g_ptr_array_add(control->clients, client);
    client_send(client, "{\"QMP\": {\"version\": {\"ehca-fabric\": \""
                FABRIC_VERSION "\", \"package\": \"ehcalab\"}, "
                "\"capabilities\": []}}");
}

Control *control_new(Daemon *daemon, int listen_fd)
{
    Control *control = g_new0(Control, 1);

    control->daemon = daemon;
    control->clients = g_ptr_array_new();
    control->listener = listener_new(listen_fd, come, control);
    return control;
}

void control_free(Control *control)
{
    if (!control) {
        return;
    }
    listener_free(control->listener);
    if (control->bury_source) {
        g_source_remove(control->bury_source);
    }
    while (control->clients->len) {
        client_free(g_ptr_array_index(control->clients, 0));
    }
    g_ptr_array_free(control->clients, true);
    g_free(control);
}
