/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Captures; capture.h has the theory of operation.
 *
 * The ring is one producer's and one consumer's.  A record never wraps: when
 * the rest of the buffer is too short, a record of length 0 says "go on at
 * the start".  Positions run free, the buffer's size is a power of two.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "fabric/capture.h"

/* Bytes gathered before a write. */
#define WRITE_SIZE (256u << 10)
/* A pipe without a reader is tried again after this. */
#define REOPEN_MS 200
/*
 * How long a reader has to take the rest, in all, when the capture is stopped:
 * the control thread waits for it.
 */
#define LAST_WRITE_NS IB_SEC
#define COMMENT_MAX 256

G_STATIC_ASSERT((CAPTURE_BUFFER & (CAPTURE_BUFFER - 1)) == 0);

typedef struct Record {
    uint32_t size;                   /* of it all, 0: go on at the start */
    uint32_t len;                    /* of the packet behind it */
    int64_t now_ns;
    int32_t cable, drop_node;
    uint32_t drop_port, corrupt_bit;
    uint8_t direction, drop, error, corrupted, duplicate;
} Record;

struct Capture {
    const Topology *topology;
    char *file;
    PcapngFormat format;
    bool is_pipe;
    int fd;                          /* -1: a pipe without a reader */
    int64_t real_offset_ns;          /* CLOCK_REALTIME - CLOCK_MONOTONIC */
    int32_t *interfaces;             /* by cable, -1: not captured */
    uint64_t *received, *lost;       /* by cable, in this capture */
    pthread_t thread;
    int wake_fd;
    IbClock clock;
    int64_t last_write_ns;           /* until then, when it was stopped */
    uint8_t *buffer;
    _Alignas(64) _Atomic uint64_t head;
    _Atomic uint64_t dropped;
    _Alignas(64) _Atomic uint64_t tail;
    atomic_bool sleeping, quit, ready;
    _Atomic uint64_t packets, bytes;
    _Atomic(const char *) failure;
};

/* Forwarding thread. */

static void count_lost(Capture *capture, const FabricPacket *packet)
{
    atomic_fetch_add_explicit(&capture->dropped, 1, memory_order_relaxed);
    capture->lost[packet->cable]++;
}

void capture_push(Capture *capture, const FabricPacket *packet)
{
    uint64_t head, tail, at;
    size_t len = packet->header_len + packet->rest_len;
    size_t size = (sizeof(Record) + len + 7) & ~(size_t)7;
    size_t skip;
    Record *record;
    uint8_t *data;

    if (!atomic_load_explicit(&capture->ready, memory_order_relaxed)) {
        if (atomic_load_explicit(&capture->failure, memory_order_relaxed)) {
            count_lost(capture, packet);
        }
        return;
    }
    head = atomic_load_explicit(&capture->head, memory_order_relaxed);
    tail = atomic_load_explicit(&capture->tail, memory_order_acquire);
    at = head % CAPTURE_BUFFER;
    skip = CAPTURE_BUFFER - at < size ? CAPTURE_BUFFER - at : 0;
    if (head + skip + size - tail > CAPTURE_BUFFER) {
        count_lost(capture, packet);
        return;
    }
    if (skip) {
        /* Records are multiples of 8: there is room for the word. */
        memset(capture->buffer + at, 0, sizeof(record->size));
        at = 0;
    }
    record = (Record *)(void *)(capture->buffer + at);
    *record = (Record) {
        .size = size, .len = len, .now_ns = packet->now_ns,
        .cable = packet->cable, .direction = packet->direction,
        .drop = packet->drop, .error = packet->error,
        .drop_node = packet->drop_node, .drop_port = packet->drop_port,
        .corrupted = packet->corrupted, .corrupt_bit = packet->corrupt_bit,
        .duplicate = packet->duplicate,
    };
    data = (uint8_t *)(record + 1);
    memcpy(data, packet->header, packet->header_len);
    memcpy(data + packet->header_len, packet->rest, packet->rest_len);
    if (packet->corrupted && packet->corrupt_bit / 8 < len) {
        data[packet->corrupt_bit / 8] ^= 1u << packet->corrupt_bit % 8;
    }
    capture->received[packet->cable]++;
    atomic_store(&capture->head, head + skip + size);
    if (atomic_load(&capture->sleeping) &&
        atomic_exchange(&capture->sleeping, false)) {
        eventfd_write(capture->wake_fd, 1);
    }
}

/* The writer's thread. */

static void wake_read(Capture *capture)
{
    eventfd_t count;

    eventfd_read(capture->wake_fd, &count);
}

static void sleep_until_woken(Capture *capture, int timeout_ms)
{
    struct pollfd pfd = { .fd = capture->wake_fd, .events = POLLIN };

    if (poll(&pfd, 1, timeout_ms) > 0) {
        wake_read(capture);
    }
}

static void fail(Capture *capture, const char *why)
{
    atomic_store(&capture->failure, why);
    atomic_store(&capture->ready, false);
}

/* Milliseconds that a write may wait now, -1: as long as it takes. */
static int patience_ms(Capture *capture)
{
    int64_t now;

    if (!atomic_load(&capture->quit)) {
        return -1;
    }
    now = ib_clock_now(&capture->clock);
    if (!capture->last_write_ns) {
        capture->last_write_ns = now + LAST_WRITE_NS;
    }
    return MAX(capture->last_write_ns - now, 0) / IB_MSEC;
}

static void put_interfaces(Capture *capture, GByteArray *out)
{
    const Topology *topology = capture->topology;
    int32_t next = 0;

    pcapng_section(out);
    for (unsigned i = 0; i < topology->num_cables; i++) {
        const TopologyCable *cable = &topology->cables[i];
        char *description;

        if (capture->interfaces[i] < 0) {
            continue;
        }
        capture->interfaces[i] = next++;
        description = g_strdup_printf(
            "%s/%u (outbound) to %s/%u (inbound)",
            topology->nodes[cable->ends[0].node].name, cable->ends[0].port,
            topology->nodes[cable->ends[1].node].name, cable->ends[1].port);
        pcapng_interface(out, capture->format, cable->name, description);
        g_free(description);
    }
}

/* A pipe gets its reader: it starts with a section of its own. */
static bool open_pipe(Capture *capture, GByteArray *out)
{
    struct stat st;

    if (!capture->is_pipe) {
        return false;                /* a file that failed */
    }
    capture->fd = open(capture->file, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    if (capture->fd < 0) {
        if (errno != ENXIO) {
            fail(capture, "the pipe cannot be opened any more");
        }
        return false;
    }
    if (fstat(capture->fd, &st) < 0 || !S_ISFIFO(st.st_mode)) {
        close(capture->fd);
        capture->fd = -1;
        fail(capture, "the pipe is not a pipe any more");
        return false;
    }
    g_byte_array_set_size(out, 0);
    put_interfaces(capture, out);
    atomic_store(&capture->failure, NULL);
    atomic_store(&capture->ready, true);
    return true;
}

static void close_pipe(Capture *capture, GByteArray *out)
{
    atomic_store(&capture->ready, false);
    close(capture->fd);
    capture->fd = -1;
    g_byte_array_set_size(out, 0);
}

/* True when all of @out is written (or was given up). */
static void flush(Capture *capture, GByteArray *out)
{
    size_t done = 0;

    while (done < out->len && capture->fd >= 0) {
        ssize_t n = write(capture->fd, out->data + done, out->len - done);

        if (n > 0) {
            done += n;
            continue;
        }
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0 && errno == EAGAIN) {
            struct pollfd pfds[2] = {
                { .fd = capture->fd, .events = POLLOUT },
                { .fd = capture->wake_fd, .events = POLLIN },
            };
            int patience = patience_ms(capture);

            if (poll(pfds, patience < 0 ? 2 : 1, patience) == 0) {
                /* Nobody reads, or too slowly: the rest is lost. */
                close_pipe(capture, out);
                return;
            }
            if (patience < 0 && (pfds[1].revents & POLLIN)) {
                wake_read(capture);
            }
            continue;
        }
        if (capture->is_pipe) {
            close_pipe(capture, out);
            return;
        }
        /* What is behind a block that is cut cannot be read: no more. */
        fail(capture, errno == ENOSPC ? "the disk is full"
                                      : "writing the file failed");
        close(capture->fd);
        capture->fd = -1;
    }
    atomic_fetch_add(&capture->bytes, done);
    g_byte_array_set_size(out, 0);
}

static const char *node_name(const Capture *capture, int node)
{
    return node < 0 ? "?" : capture->topology->nodes[node].name;
}

static const char *comment(const Capture *capture, const Record *record,
                           char *text)
{
    size_t len = 0;

    text[0] = 0;
    if (record->drop) {
        const char *what = record->drop == FABRIC_DROP_BAD_PACKET
                           ? ib_packet_error_name(record->error)
                           : fabric_drop_text(record->drop);

        len = g_snprintf(text, COMMENT_MAX, "dropped at %s/%u: %s",
                         node_name(capture, record->drop_node),
                         record->drop_port, what);
    }
    if (record->corrupted && len < COMMENT_MAX) {
        len += g_snprintf(text + len, COMMENT_MAX - len,
                          "%sfault injection: bit %u flipped",
                          len ? "; " : "", record->corrupt_bit);
    }
    if (record->duplicate && len < COMMENT_MAX) {
        len += g_snprintf(text + len, COMMENT_MAX - len,
                          "%sfault injection: duplicate", len ? "; " : "");
    }
    return len ? text : NULL;
}

/* Turns one record into a block; false: none there. */
static bool take(Capture *capture, GByteArray *out)
{
    uint64_t tail = atomic_load_explicit(&capture->tail,
                                         memory_order_relaxed);
    char text[COMMENT_MAX];
    const Record *record;
    size_t at;

    if (tail == atomic_load(&capture->head)) {
        return false;
    }
    at = tail % CAPTURE_BUFFER;
    record = (const Record *)(const void *)(capture->buffer + at);
    if (!record->size) {
        tail += CAPTURE_BUFFER - at;
        record = (const Record *)(const void *)capture->buffer;
    }
    if (capture->fd >= 0 && capture->interfaces[record->cable] >= 0) {
        pcapng_packet(out, capture->format,
                      capture->interfaces[record->cable],
                      record->now_ns + capture->real_offset_ns,
                      record->direction, (const uint8_t *)(record + 1),
                      record->len, comment(capture, record, text));
        atomic_fetch_add_explicit(&capture->packets, 1,
                                  memory_order_relaxed);
    }
    atomic_store_explicit(&capture->tail, tail + record->size,
                          memory_order_release);
    return true;
}

static void *writer_thread(void *opaque)
{
    Capture *capture = opaque;
    GByteArray *out = g_byte_array_new();
    bool quit;

    if (!capture->is_pipe) {
        put_interfaces(capture, out);
    }
    do {
        quit = atomic_load(&capture->quit);
        if (capture->fd < 0 && !open_pipe(capture, out)) {
            while (take(capture, out)) {
                continue;
            }
            if (!quit) {
                sleep_until_woken(capture, REOPEN_MS);
            }
            continue;
        }
        while (take(capture, out)) {
            if (out->len >= WRITE_SIZE) {
                flush(capture, out);
            }
        }
        flush(capture, out);
        if (quit || capture->fd < 0) {
            continue;
        }
        atomic_store(&capture->sleeping, true);
        if (atomic_load(&capture->head) == atomic_load(&capture->tail) &&
            !atomic_load(&capture->quit)) {
            sleep_until_woken(capture, -1);
        }
        atomic_store(&capture->sleeping, false);
    } while (!quit);

    if (capture->fd >= 0) {
        struct timespec now;

        clock_gettime(CLOCK_REALTIME, &now);
        for (unsigned i = 0; i < capture->topology->num_cables; i++) {
            if (capture->interfaces[i] >= 0) {
                pcapng_statistics(out, capture->interfaces[i],
                                  now.tv_sec * IB_SEC + now.tv_nsec,
                                  capture->received[i], capture->lost[i]);
            }
        }
        flush(capture, out);
    }
    g_byte_array_free(out, true);
    return NULL;
}

/* Control thread. */

static int64_t real_offset(void)
{
    struct timespec real, mono;

    clock_gettime(CLOCK_REALTIME, &real);
    clock_gettime(CLOCK_MONOTONIC, &mono);
    return (real.tv_sec - mono.tv_sec) * IB_SEC +
           (real.tv_nsec - mono.tv_nsec);
}

static bool open_file(Capture *capture, char **error)
{
    struct stat st;

    if (stat(capture->file, &st) == 0 && S_ISFIFO(st.st_mode)) {
        capture->is_pipe = true;
        return true;
    }
    capture->fd = open(capture->file, O_WRONLY | O_CREAT | O_TRUNC |
                       O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0666);
    if (capture->fd < 0) {
        *error = g_strdup_printf("capture file '%s' cannot be written: %s; "
                                 "name a file in a directory that is there, "
                                 "or a pipe made by mkfifo", capture->file,
                                 g_strerror(errno));
        return false;
    }
    if (fstat(capture->fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        close(capture->fd);
        capture->fd = -1;
        *error = g_strdup_printf("capture file '%s' is neither a regular "
                                 "file nor a pipe", capture->file);
        return false;
    }
    return true;
}

/* Without its thread. */
static void release(Capture *capture)
{
    if (capture->fd >= 0) {
        close(capture->fd);
    }
    if (capture->wake_fd >= 0) {
        close(capture->wake_fd);
    }
    ib_clock_fini(&capture->clock);
    g_free(capture->interfaces);
    g_free(capture->received);
    g_free(capture->lost);
    g_free(capture->buffer);
    g_free(capture->file);
    g_free(capture);
}

Capture *capture_new(const Topology *topology, const char *file,
                     PcapngFormat format, const uint8_t *cables,
                     char **error)
{
    Capture *capture = g_new0(Capture, 1);

    capture->topology = topology;
    capture->file = g_strdup(file);
    capture->format = format;
    capture->fd = -1;
    capture->wake_fd = -1;
    capture->real_offset_ns = real_offset();
    ib_clock_init_real(&capture->clock);
    capture->buffer = g_try_malloc(CAPTURE_BUFFER);
    if (!capture->buffer) {
        *error = g_strdup("no memory for the capture's buffer");
        goto failed;
    }
    if (!open_file(capture, error)) {
        goto failed;
    }
    capture->interfaces = g_new(int32_t, topology->num_cables + 1);
    capture->received = g_new0(uint64_t, topology->num_cables + 1);
    capture->lost = g_new0(uint64_t, topology->num_cables + 1);
    for (unsigned i = 0; i < topology->num_cables; i++) {
        capture->interfaces[i] = cables[i] ? 0 : -1;
    }
    atomic_store(&capture->ready, !capture->is_pipe);
    capture->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (capture->wake_fd < 0 ||
        pthread_create(&capture->thread, NULL, writer_thread, capture)) {
        *error = g_strdup_printf("cannot start the capture's thread: %s",
                                 g_strerror(errno));
        goto failed;
    }
    pthread_setname_np(capture->thread, "capture");
    return capture;

failed:
    release(capture);
    return NULL;
}

void capture_status(Capture *capture, CaptureStatus *status)
{
    status->file = capture->file;
    status->is_pipe = capture->is_pipe;
    status->connected = !capture->is_pipe || atomic_load(&capture->ready);
    status->packets = atomic_load(&capture->packets);
    status->bytes = atomic_load(&capture->bytes);
    status->dropped = atomic_load(&capture->dropped);
    status->failure = atomic_load(&capture->failure);
}

const char *capture_file(const Capture *capture)
{
    return capture->file;
}

void capture_free(Capture *capture, CaptureStatus *status)
{
    atomic_store(&capture->quit, true);
    eventfd_write(capture->wake_fd, 1);
    pthread_join(capture->thread, NULL);
    capture_status(capture, status);
    status->file = NULL;
    release(capture);
}
