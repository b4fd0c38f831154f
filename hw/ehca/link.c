/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The adapter's link with the fabric: messages of ib/link.h over a chardev,
 * normally
 *
 *   -chardev socket,id=ib0,path=fabric.sock,reconnect-ms=500
 *
 * Theory of operation.
 *
 *   state     event                  action                      next
 *   CLOSED    chardev opened         make wake-ups, send HELLO   GREETED
 *   GREETED   WELCOME, descriptors   map rings, attach ports,    READY
 *                                    send PHYS of wanted ports
 *             REFUSE                 say why once, disconnect    CLOSED
 *   READY     LINK                   tell the engine             READY
 *   any       chardev closed         detach ports                CLOSED
 *             protocol or wake-ups   say why once, disconnect    CLOSED
 *             broken
 *   NONE      (no chardev)           both ports stay dark        NONE
 *
 * The chardev opens itself again ("reconnect-ms"); a fabric that is gone
 * looks to the guest like both cables pulled.
 *
 * Everything here runs in the main loop, which keeps the chardev's rules
 * simple; packets do not pass here.  The engine's threads leave what they
 * have to say, state of the ports and events for the timeline, under the
 * adapter's lock, and schedule a bottom half.  Neither can grow: of events
 * the newest are kept and the rest counted; of a port its present state is
 * sent, and before that once that it dropped its link, if it did: a port that
 * the SM takes down wants its link again at once, and the other end must see
 * both (IBTA 14.2.5.6, PortState).  Nothing is taken from either while
 * EHCA_OUT_MAX bytes wait for a fabric that does not read.
 *
 * While the machine is stopped nothing is read from the chardev.
 *
 * Descriptors come with the first bytes of a message.  The chardev gives them
 * to whoever asks after a read, and closes what the next read finds unclaimed.
 */
#include "qemu/osdep.h"
#include "qemu/cutils.h"
#include "qemu/error-report.h"
#include "qemu/main-loop.h"
#include "qemu/units.h"

#include "ib/mad.h"
#include "ehca-device.h"
#include "trace.h"

/* Room that there must be before a message is made: any message fits. */
#define EHCA_OUT_RESERVE \
    (EHCA_MAX_PORTS * (IB_LINK_HEADER_LEN + IB_LINK_BODY_MAX))

const char *ehca_link_state_name(EhcaLinkState state)
{
    static const char *const names[] = {
        [EHCA_LINK_NONE] = "no chardev",
        [EHCA_LINK_CLOSED] = "disconnected",
        [EHCA_LINK_GREETED] = "waiting for the fabric's welcome",
        [EHCA_LINK_READY] = "connected",
    };

    return names[state];
}

static void ehca_link_set_state(EhcaDevice *s, EhcaLinkState state,
                                const char *why)
{
    trace_ehca_link_state(s->name, ehca_link_state_name(s->link_state),
                          ehca_link_state_name(state), why);
    s->link_state = state;
}

/* Sending */

static void ehca_link_flush(EhcaDevice *s);

static gboolean ehca_link_writable(void *do_not_use, GIOCondition condition,
                                   void *opaque)
{
    EhcaDevice *s = opaque;

    s->out_watch = 0;
    ehca_link_flush(s);
    /* Room again: events may be waiting. */
    qemu_bh_schedule(s->link_bh);
    return G_SOURCE_REMOVE;
}

static void ehca_link_flush(EhcaDevice *s)
{
    while (s->out->len && !s->out_watch) {
        int len = qemu_chr_fe_write(&s->chr, s->out->data, s->out->len);

        if (len > 0) {
            g_byte_array_remove_range(s->out, 0, len);
            continue;
        }
        s->out_watch = qemu_chr_fe_add_watch(&s->chr, G_IO_OUT | G_IO_HUP,
                                             ehca_link_writable, s);
        if (!s->out_watch) {
            /* A chardev without a connection: CLOSED is on its way. */
            g_byte_array_set_size(s->out, 0);
        }
    }
}

static void ehca_link_send(EhcaDevice *s, const IbLinkMessage *message)
{
    uint8_t buf[IB_LINK_HEADER_LEN + IB_LINK_BODY_MAX];

    g_byte_array_append(s->out, buf, ib_link_encode(buf, message));
    ehca_link_flush(s);
}

static bool ehca_link_has_room(EhcaDevice *s)
{
    return s->out->len < EHCA_OUT_MAX - EHCA_OUT_RESERVE;
}

/* Tearing down */

/* Adapter's lock held.  The thread may be sleeping on it: it is the closer. */
static void ehca_link_retire(EhcaDevice *s, EhcaLink *link)
{
    QSIMPLEQ_INSERT_TAIL(&s->retired, link, next);
}

/* Adapter's lock held. */
static void ehca_link_detach(EhcaDevice *s)
{
    for (unsigned port = 1; port <= s->num_ports; port++) {
        ehca_port_detach(s->adapter, port);
        s->phys_sent[port] = false;
    }
    ehca_link_retire(s, s->link);
    s->link = NULL;
    s->link_lost = false;
    s->wake_broken = false;
}

static void ehca_link_closed(EhcaDevice *s, const char *why)
{
    if (s->out_watch) {
        g_source_remove(s->out_watch);
        s->out_watch = 0;
    }
    g_byte_array_set_size(s->out, 0);
    ib_link_fds_close(&s->fds);
    ib_link_parser_init(&s->parser);
    ehca_device_lock(s);
    if (s->greeted) {
        ehca_link_retire(s, g_steal_pointer(&s->greeted));
    }
    /* Ports that go down are told to the guest: not while it stands still. */
    s->link_lost = s->link != NULL;
    if (s->link_lost && !s->stopped) {
        ehca_link_detach(s);
    }
    ehca_device_unlock(s);
    ehca_thread_wake(s);
    ehca_link_set_state(s, EHCA_LINK_CLOSED, why);
}

/* The connection is useless; say so, once per reason. */
static void ehca_link_give_up(EhcaDevice *s, const char *why)
{
    if (g_strcmp0(s->refusal, why)) {
        /* What HELLO said, by the properties that made it so. */
        error_report("%s: no link with the fabric as node=%s,node-guid=0x%016"
                     PRIx64 ",ports=%u: %s", s->name, s->node, s->node_guid,
                     s->num_ports, why);
        g_free(s->refusal);
        s->refusal = g_strdup(why);
    }
    ehca_link_closed(s, why);
    qemu_chr_fe_disconnect(&s->chr);
}

/* Talking */

static void ehca_link_send_phys_of(EhcaDevice *s, unsigned port, bool enabled)
{
    IbLinkMessage message = {
        .type = IB_LINK_PHYS,
        .port = port,
        .phys.enabled = enabled,
    };

    if (enabled == s->phys_sent[port]) {
        return;
    }
    trace_ehca_link_phys(s->name, port, enabled ? "enabled" : "disabled");
    s->phys_sent[port] = enabled;
    ehca_link_send(s, &message);
}

static void ehca_link_send_phys(EhcaDevice *s)
{
    bool wanted[EHCA_MAX_PORTS + 1] = { false };
    bool dropped[EHCA_MAX_PORTS + 1] = { false };

    if (!ehca_link_has_room(s)) {
        return;
    }
    ehca_device_lock(s);
    s->phys_changed = false;
    for (unsigned port = 1; port <= s->num_ports; port++) {
        wanted[port] = ehca_port_wants_link(s->adapter, port);
        dropped[port] = s->phys_dropped[port];
        s->phys_dropped[port] = false;
    }
    ehca_device_unlock(s);

    for (unsigned port = 1; port <= s->num_ports; port++) {
        if (dropped[port]) {
            ehca_link_send_phys_of(s, port, false);
        }
        ehca_link_send_phys_of(s, port, wanted[port]);
    }
}

static void ehca_link_send_events(EhcaDevice *s)
{
    for (;;) {
        IbLinkMessage message = { .type = IB_LINK_EVENT };
        EhcaEvent event;
        uint64_t lost;

        if (!ehca_link_has_room(s)) {
            return;
        }
        ehca_device_lock(s);
        lost = s->events_lost;
        s->events_lost = 0;
        if (!lost && !s->events_count) {
            ehca_device_unlock(s);
            return;
        }
        if (!lost) {
            event = s->events[s->events_first];
            s->events_first = (s->events_first + 1) % EHCA_EVENT_QUEUE;
            s->events_count--;
        }
        ehca_device_unlock(s);

        if (lost) {
            trace_ehca_link_lost_events(s->name, lost);
            snprintf(message.text, sizeof(message.text),
                     "{\"event\":\"events_lost\",\"count\":%" PRIu64 "}",
                     lost);
        } else {
            ehca_event_json(&event, message.text, sizeof(message.text));
        }
        ehca_link_send(s, &message);
    }
}

static void ehca_link_bh(void *opaque)
{
    EhcaDevice *s = opaque;

    bool wake_broken;

    ehca_device_lock(s);
    wake_broken = s->wake_broken;
    ehca_device_unlock(s);
    if (wake_broken) {
        ehca_link_give_up(s, "it shut down the socket that wakes the "
                          "adapter");
    } else if (s->link_state == EHCA_LINK_READY) {
        ehca_link_send_phys(s);
        ehca_link_send_events(s);
    }
}

void ehca_link_phys(EhcaDevice *s, unsigned port, bool enable)
{
    if (!enable) {
        s->phys_dropped[port] = true;
    }
    if (s->link_bh && !s->phys_changed) {
        s->phys_changed = true;
        qemu_bh_schedule(s->link_bh);
    }
}

void ehca_link_event(EhcaDevice *s, const EhcaEvent *event)
{
    if (!s->link_bh) {
        return;
    }
    if (s->events_count == EHCA_EVENT_QUEUE) {
        s->events_first = (s->events_first + 1) % EHCA_EVENT_QUEUE;
        s->events_count--;
        s->events_lost++;
    }
    s->events[(s->events_first + s->events_count++) % EHCA_EVENT_QUEUE] =
        *event;
    if (s->events_count == 1) {
        qemu_bh_schedule(s->link_bh);
    }
}

static void ehca_link_hello(EhcaDevice *s)
{
    IbLinkMessage message = {
        .type = IB_LINK_HELLO,
        .hello = {
            .version = IB_LINK_VERSION,
            .num_ports = s->num_ports,
            .node_type = IB_NODE_CA,
            .node_guid = s->config.node_guid,
        },
    };

    for (unsigned i = 0; i < s->num_ports; i++) {
        message.hello.port_guids[i] = s->config.port_guids[i];
    }
    pstrcpy(message.hello.name, sizeof(message.hello.name), s->node);

    s->greeted = g_new0(EhcaLink, 1);
    if (!ib_link_wake_init(&s->greeted->wake)) {
        ehca_link_give_up(s, "no descriptors are left for a pair of sockets");
    } else if (qemu_chr_fe_set_msgfds(&s->chr, &s->greeted->wake.self_end,
                                      1) < 0) {
        ehca_link_give_up(s, "the chardev must be a unix socket: descriptors "
                          "have to pass through it");
    } else {
        ehca_link_set_state(s, EHCA_LINK_GREETED, "opened");
        ehca_link_send(s, &message);
    }
}

/* NULL, or why not. */
static const char *ehca_link_welcome(EhcaDevice *s,
                                     const IbLinkMessage *message)
{
    EhcaLink *link = s->greeted;
    const char *error;

    if (s->link_state != EHCA_LINK_GREETED) {
        return "a WELCOME that nobody asked for";
    }
    if (message->welcome.version != IB_LINK_VERSION) {
        return "the fabric speaks another version of the link protocol; "
               "build both from the same source";
    }
    if (message->welcome.num_ports != s->num_ports) {
        return "the topology gives this node another number of ports; "
               "change it or the device's property 'ports'";
    }
    error = ib_link_wire(&link->wake, link->ports, s->num_ports, &s->fds);
    if (error) {
        return error;
    }
    link->num_ports = s->num_ports;
    s->greeted = NULL;

    ehca_device_lock(s);
    s->link = link;
    for (unsigned port = 1; port <= s->num_ports; port++) {
        s->phys_sent[port] = false;
        s->phys_dropped[port] = false;
        ehca_port_attach(s->adapter, port, &link->ports[port].tx,
                         &link->ports[port].rx);
    }
    ehca_device_unlock(s);
    /* It sleeps on other descriptors. */
    ehca_thread_wake(s);

    g_clear_pointer(&s->refusal, g_free);
    ehca_link_set_state(s, EHCA_LINK_READY, "welcome");
    qemu_bh_schedule(s->link_bh);
    return NULL;
}

void ehca_link_wake_broken(EhcaDevice *s, const EhcaLink *link)
{
    ehca_device_lock(s);
    s->wake_broken |= s->link == link;
    ehca_device_unlock(s);
    qemu_bh_schedule(s->link_bh);
}

/* NULL, or why not. */
static const char *ehca_link_link(EhcaDevice *s, const IbLinkMessage *message)
{
    if (s->link_state != EHCA_LINK_READY) {
        return "a LINK message before WELCOME";
    }
    if (message->port < 1 || message->port > s->num_ports) {
        return "a LINK message for a port that is not there";
    }
    trace_ehca_link_port(s->name, message->port,
                         message->link.up ? "up" : "down",
                         message->link.speed, message->link.width);
    ehca_device_lock(s);
    ehca_port_link(s->adapter, message->port, message->link.up,
                   message->link.speed, message->link.width);
    ehca_device_unlock(s);
    ehca_thread_wake(s);
    return NULL;
}

/* Receiving */

/* The fabric's words go to the user's terminal. */
static const char *ehca_link_printable(char *text)
{
    for (char *c = text; *c; c++) {
        if (!g_ascii_isprint(*c)) {
            *c = '?';
        }
    }
    return *text ? text : "the fabric refused and did not say why";
}

static void ehca_link_take_fds(EhcaDevice *s)
{
    /* One more than there may be, so that too many are noticed. */
    int fds[IB_LINK_MAX_FDS + 1];
    int num = qemu_chr_fe_get_msgfds(&s->chr, fds, ARRAY_SIZE(fds));

    for (int i = 0; i < num; i++) {
        ib_link_fds_add(&s->fds, fds[i]);
    }
}

static int ehca_link_can_read(void *opaque)
{
    EhcaDevice *s = opaque;

    return s->stopped ? 0 : ib_link_parser_want(&s->parser);
}

static void ehca_link_read(void *opaque, const uint8_t *buf, int size)
{
    EhcaDevice *s = opaque;

    ehca_link_take_fds(s);
    while (size > 0 && s->link_state > EHCA_LINK_CLOSED) {
        int len = MIN(size, ib_link_parser_want(&s->parser));
        const char *why = NULL;
        IbLinkMessage message;
        int got;

        got = ib_link_parser_feed(&s->parser, buf, len, &message, &why);
        buf += len;
        size -= len;
        if (got == 0) {
            continue;
        }
        if (got > 0) {
            switch (message.type) {
            case IB_LINK_WELCOME:
                why = ehca_link_welcome(s, &message);
                break;
            case IB_LINK_REFUSE:
                why = ehca_link_printable(message.text);
                break;
            case IB_LINK_LINK:
                why = ehca_link_link(s, &message);
                break;
            default:
                why = "a message that only a node may send";
                break;
            }
            /* Descriptors of a message that has none to give. */
            ib_link_fds_close(&s->fds);
        }
        if (why) {
            ehca_link_give_up(s, why);
        }
    }
}

static void ehca_link_chr_event(void *opaque, QEMUChrEvent event)
{
    EhcaDevice *s = opaque;

    switch (event) {
    case CHR_EVENT_OPENED:
        if (s->link_state != EHCA_LINK_CLOSED) {
            ehca_link_closed(s, "opened anew");
        }
        ehca_link_hello(s);
        break;
    case CHR_EVENT_CLOSED:
        if (s->link_state != EHCA_LINK_CLOSED) {
            ehca_link_closed(s, "connection lost");
        }
        break;
    case CHR_EVENT_BREAK:
    case CHR_EVENT_MUX_IN:
    case CHR_EVENT_MUX_OUT:
        break;
    }
}

void ehca_link_resume(EhcaDevice *s)
{
    if (s->link_lost) {
        ehca_device_lock(s);
        ehca_link_detach(s);
        ehca_device_unlock(s);
    }
    qemu_chr_fe_accept_input(&s->chr);
}

void ehca_link_init(EhcaDevice *s)
{
    s->out = g_byte_array_new();
    ib_link_parser_init(&s->parser);
    if (qemu_chr_fe_backend_connected(&s->chr)) {
        s->link_state = EHCA_LINK_CLOSED;
        s->link_bh = qemu_bh_new(ehca_link_bh, s);
    }
}

void ehca_link_start(EhcaDevice *s)
{
    if (s->link_state == EHCA_LINK_NONE) {
        warn_report("%s: no chardev, so no fabric: its ports stay dark; "
                    "-chardev socket,id=ID,path=FABRIC,reconnect-ms=500 and "
                    "chardev=ID,node=NAME connect it", s->name);
        return;
    }
    qemu_chr_fe_set_handlers(&s->chr, ehca_link_can_read, ehca_link_read,
                             ehca_link_chr_event, NULL, s, NULL, true);
}
