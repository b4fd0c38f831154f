/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A peer on the link that writes anything: bytes of the socket through the
 * message parser, in pieces of any size; what it accepts encodes to the same
 * bytes.
 */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "ib/link.h"
#include "ib/mad.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t encoded[IB_LINK_HEADER_LEN + IB_LINK_BODY_MAX];
    static IbLinkMessage message;
    const uint8_t *start;
    IbLinkParser parser;
    const char *error;
    size_t piece;

    if (size < 1) {
        return 0;
    }
    piece = 1 + *data++;
    size--;
    ib_link_parser_init(&parser);
    start = data;
    while (size) {
        size_t want = ib_link_parser_want(&parser);
        size_t n = want < piece ? want : piece;
        int verdict;

        FUZZ_ASSERT(want >= 1 && want <= IB_LINK_BODY_MAX);
        n = n < size ? n : size;
        verdict = ib_link_parser_feed(&parser, data, n, &message, &error);
        data += n;
        size -= n;
        if (verdict < 0) {
            FUZZ_ASSERT(error && *error);
            return 0;
        }
        FUZZ_ASSERT(!error);
        if (verdict > 0) {
            size_t len = ib_link_encode(encoded, &message);

            FUZZ_ASSERT(message.port <= IB_LINK_MAX_PORTS);
            FUZZ_ASSERT(strcmp(ib_link_type_name(message.type), "unknown"));
            FUZZ_ASSERT(len == (size_t)(data - start));
            /* Padding is not kept, nor what follows a name's end. */
            if (message.type == IB_LINK_EVENT ||
                message.type == IB_LINK_REFUSE) {
                FUZZ_ASSERT(memcmp(encoded, start, len) == 0);
            }
            start = data;
        }
    }
    return 0;
}

size_t fuzz_seed(unsigned index, uint8_t *buf)
{
    IbLinkMessage m = { .type = IB_LINK_HELLO + index };
    size_t len;

    switch (m.type) {
    case IB_LINK_HELLO:
        m.hello = (IbLinkHello) { .version = 1, .num_ports = 2,
                                  .node_type = IB_NODE_CA, .node_guid = 1,
                                  .port_guids = { 2, 3 }, .name = "host" };
        break;
    case IB_LINK_WELCOME:
        m.welcome.version = 1;
        m.welcome.num_ports = 2;
        break;
    case IB_LINK_PHYS:
        m.port = 1;
        m.phys.enabled = true;
        break;
    case IB_LINK_LINK:
        m.port = 2;
        m.link.up = true;
        break;
    case IB_LINK_REFUSE:
    case IB_LINK_EVENT:
        strcpy(m.text, "{ \"event\": \"text\" }");
        break;
    default:
        return 0;
    }
    buf[0] = index * 3;
    len = 1 + ib_link_encode(buf + 1, &m);
    /* Two in a row. */
    memcpy(buf + len, buf + 1, len - 1);
    return 2 * len - 1;
}
