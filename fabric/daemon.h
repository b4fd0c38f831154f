/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Control thread of ehca-fabric: what its parts share.
 *
 *   links.c    hosts that join through the link socket
 *   events.c   events as JSON lines, and the last of them
 *   control.c  clients of the control socket
 *   command.c  what they can ask for
 *   sockets.c  unix sockets: listening, and who may stay when many come
 *
 * Everything here runs in the main context; what belongs to the forwarding
 * thread is reached through runner_call() (runner.h).
 */
#ifndef FABRIC_DAEMON_H
#define FABRIC_DAEMON_H

#include <json-glib/json-glib.h>

#include "fabric/capture.h"
#include "fabric/runner.h"

#define FABRIC_VERSION "0.1"

/*
 * Events that events-since can give, and their bytes: a reply fits into what
 * may wait for a client, whatever hosts tell.
 */
#define EVENTS_KEPT 4096
#define EVENTS_KEPT_BYTES (4u << 20)
/* JSON from outside: deeper than this is refused unread. */
#define JSON_DEPTH_MAX 16

typedef struct Links Links;
typedef struct Control Control;
typedef struct Events Events;

typedef struct Daemon {
    Topology *topology;
    uint64_t seed;
    IbClock clock;                   /* the control thread's own */
    int64_t started_ns;
    GMainLoop *loop;
    Runner *runner;
    Links *links;
    Control *control;
    Events *events;
    Capture *captures[FABRIC_MAX_CAPTURES];
} Daemon;

/* sockets.c: a listening socket, -1 and *error (a whole sentence). */
int socket_listen(const char *path, const char *what, char **error);
/* Removes @path if it is still the socket @fd. */
void socket_unlisten(int fd, const char *path);

/* Takes connections and hands each to @come, which owns it then. */
typedef struct Listener Listener;
Listener *listener_new(int fd, void (*come)(void *opaque, int fd),
                       void *opaque);
void listener_free(Listener *listener);

/* What decides who goes when a house is full. */
typedef struct Guest {
    uid_t uid;
    pid_t pid;
    bool spoke;                      /* it did what one connects for */
} Guest;
void guest_init(Guest *guest, int fd);
/*
 * Of @num guests, in the order in which they came, the one that must make
 * room for another; -1: all have better reasons to be here.
 */
int guest_who_goes(const Guest *const *guests, unsigned num);

/* links.c */
Links *links_new(Daemon *daemon, int listen_fd);
void links_free(Links *links);
/* Link words or broken hosts to look at. */
void links_sync(Links *links);

/* events.c */
Events *events_new(Daemon *daemon);
void events_free(Events *events);
/* Takes what the forwarding thread has told, in order. */
void events_drain(Events *events);
/* EVENT of a host; NULL or what is wrong with @text (static). */
const char *events_node_event(Events *events, int node, unsigned port,
                              const char *text);
void events_node_error(Events *events, int node, const char *why);
void events_capture(Events *events, const char *file, const char *what,
                    const CaptureStatus *status);
uint64_t events_next_seq(const Events *events);
/*
 * Appends "EVENT, EVENT, ..." of those with seq >= @since; @node: only
 * NODE_EVENTs, of that one or (-1) of any; -2: all kinds.  Returns how many
 * of the wanted numbers are not kept any more.
 */
uint64_t events_since(const Events *events, uint64_t since, int node,
                      GString *out);

/* control.c */
Control *control_new(Daemon *daemon, int listen_fd);
void control_free(Control *control);
/* One line (without newline) to every client. */
void control_broadcast(Control *control, const char *line);

/* command.c */
/* One command (text of a JSON object); the reply as text, g_free(). */
char *command_execute(Daemon *daemon, const char *text, size_t len);
bool daemon_capture_start(Daemon *daemon, const char *file,
                          PcapngFormat format, const uint8_t *cables,
                          char **error);
void daemon_capture_stop(Daemon *daemon, unsigned slot,
                         CaptureStatus *status);

/* json.c */
/*
 * Text from outside: a JSON object, or NULL and *error (static); bounded
 * depth, valid UTF-8.  Free with json_node_unref().
 */
JsonNode *json_from_outside(const char *text, size_t len,
                            const char **error);
char *json_to_text(JsonNode *node);          /* one line; takes @node */
/* Members of the object that is being built. */
void json_add_string(JsonBuilder *b, const char *name, const char *value);
void json_add_int(JsonBuilder *b, const char *name, int64_t value);
void json_add_bool(JsonBuilder *b, const char *name, bool value);
void json_add_hex64(JsonBuilder *b, const char *name, uint64_t value);

/*
 * Finds where one object ends in a stream of bytes.  Feed them one by one;
 * true: that byte ends an object (or what cannot be one).
 */
typedef struct JsonFramer {
    unsigned depth;
    bool in_string, escaped, any;
} JsonFramer;
bool json_framer_byte(JsonFramer *framer, char byte);

#endif
