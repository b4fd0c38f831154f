/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Subnet administration: the door of QP1, and the records that are read
 * straight from the database (IBTA chapter 15).
 *
 * Theory of operation: a request is checked once, here (version, SM_Key,
 * state of the SM, method and attribute), then its function fills either one
 * attribute (Get, Set, Delete) or a table of records, and says the status.
 * Which records belong in the answer is decided by sm_record_match(): a table
 * of components says where in the record each bit of the component mask
 * lies, and bits are compared with bits.
 *
 *   one record, Get            GetResp, no RMPP
 *   any number, GetTable       GetTableResp through RMPP (rmpp.c), a table
 *                              without records included
 *   Get that fits none / more  NO_RECORDS / TOO_MANY_RECORDS
 *   anything wrong             the same method's response with a status
 *
 * A SM_Key of 0 is anybody; the right one (SmOptions.sm_key) is trusted and
 * sees who is in which multicast group; any other is refused.
 *
 * A port pays for each request in time, by the records that were looked at,
 * and more for what changes something.  Who runs into debt is told BUSY until
 * time has paid it; when all together ask too much, those do who asked most.
 */
#include <string.h>

#include "sm/internal.h"

#define NODE_RECORD_LEN (4 + IB_NODE_INFO_LEN + IB_NODE_DESC_LEN)
#define PORT_RECORD_LEN (4 + IB_PORT_INFO_LEN)
#define SWITCH_RECORD_LEN (4 + IB_SWITCH_INFO_LEN)
#define LFT_RECORD_LEN (8 + SM_LFT_BLOCK)
#define MFT_RECORD_LEN (8 + IB_SMP_DATA_LEN)
#define PKEY_RECORD_LEN (8 + IB_SMP_DATA_LEN)
#define SM_RECORD_LEN (4 + IB_SM_INFO_LEN)
#define LINK_RECORD_LEN 8
#define INFORM_RECORD_LEN (24 + IB_INFORM_INFO_LEN)

/* How long an answer may take: ClassPortInfo RespTimeValue, 0.5 s. */
#define SA_RESP_TIME 17
/* ClassPortInfo: CapabilityMask (15.2.2), CapabilityMask2. */
#define SA_CAP_UD_MULTICAST (1u << 9)
#define SA_CAP_CAPABILITY_MATCH (1u << 13)
#define SA_CAP2_SEND_ONLY_FULL (1u << 3)
/* AttributeModifier: of CapabilityMask only the bits given must be set. */
#define CAPABILITY_MATCH (1u << 31)
#define C_CAPABILITY (1u << 7)

enum {
    RMPP_FLAG_ACTIVE = 1, RMPP_TYPE_DATA = 1,
};

/* Components: bit of the mask, place in the record (15.2.5). */
static const SmComponent node_components[] = {
    { 0, 0, 16 },            /* LID */
    { 2, 32, 8 },            /* BaseVersion */
    { 3, 40, 8 },            /* ClassVersion */
    { 4, 48, 8 },            /* NodeType */
    { 5, 56, 8 },            /* NumPorts */
    { 6, 64, 64 },           /* SystemImageGUID */
    { 7, 128, 64 },          /* NodeGUID */
    { 8, 192, 64 },          /* PortGUID */
    { 9, 256, 16 },          /* PartitionCap */
    { 10, 272, 16 },         /* DeviceID */
    { 11, 288, 32 },         /* Revision */
    { 12, 320, 8 },          /* LocalPortNum */
    { 13, 328, 24 },         /* VendorID */
    { 14, 352, 512 },        /* NodeDescription */
};

static const SmComponent port_components[] = {
    { 0, 0, 16 },            /* EndportLID */
    { 1, 16, 8 },            /* PortNum */
    { 4, 32 + 64, 64 },      /* GidPrefix */
    { 5, 32 + 128, 16 },     /* LID */
    { 6, 32 + 144, 16 },     /* MasterSMLID */
    { 7, 32 + 160, 32 },     /* CapabilityMask */
    { 8, 32 + 192, 16 },     /* DiagCode */
    { 9, 32 + 208, 16 },     /* M_KeyLeasePeriod */
    { 10, 32 + 224, 8 },     /* LocalPortNum */
    { 11, 32 + 232, 8 },     /* LinkWidthEnabled */
    { 12, 32 + 240, 8 },     /* LinkWidthSupported */
    { 13, 32 + 248, 8 },     /* LinkWidthActive */
    { 14, 32 + 256, 4 },     /* LinkSpeedSupported */
    { 15, 32 + 260, 4 },     /* PortState */
    { 16, 32 + 264, 4 },     /* PortPhysicalState */
    { 17, 32 + 268, 4 },     /* LinkDownDefaultState */
    { 18, 32 + 272, 2 },     /* M_KeyProtectBits */
    { 20, 32 + 277, 3 },     /* LMC */
    { 21, 32 + 280, 4 },     /* LinkSpeedActive */
    { 22, 32 + 284, 4 },     /* LinkSpeedEnabled */
    { 23, 32 + 288, 4 },     /* NeighborMTU */
    { 24, 32 + 292, 4 },     /* MasterSMSL */
    { 25, 32 + 296, 4 },     /* VLCap */
    { 26, 32 + 300, 4 },     /* InitType */
    { 27, 32 + 304, 8 },     /* VLHighLimit */
    { 28, 32 + 312, 8 },     /* VLArbitrationHighCap */
    { 29, 32 + 320, 8 },     /* VLArbitrationLowCap */
    { 30, 32 + 328, 4 },     /* InitTypeReply */
    { 31, 32 + 332, 4 },     /* MTUCap */
    { 32, 32 + 336, 3 },     /* VLStallCount */
    { 33, 32 + 339, 5 },     /* HOQLife */
    { 34, 32 + 344, 4 },     /* OperationalVLs */
    { 35, 32 + 348, 1 },     /* PartitionEnforcementInbound */
    { 36, 32 + 349, 1 },     /* PartitionEnforcementOutbound */
    { 37, 32 + 350, 1 },     /* FilterRawInbound */
    { 38, 32 + 351, 1 },     /* FilterRawOutbound */
    { 39, 32 + 352, 16 },    /* M_KeyViolations */
    { 40, 32 + 368, 16 },    /* P_KeyViolations */
    { 41, 32 + 384, 16 },    /* Q_KeyViolations */
    { 42, 32 + 400, 8 },     /* GUIDCap */
    { 44, 32 + 411, 5 },     /* SubnetTimeOut */
    { 46, 32 + 419, 5 },     /* RespTimeValue */
    { 47, 32 + 424, 4 },     /* LocalPhyErrors */
    { 48, 32 + 428, 4 },     /* OverrunErrors */
};

static const SmComponent switch_components[] = {
    { 0, 0, 16 },            /* LID */
    { 2, 32, 16 },           /* LinearFDBCap */
    { 3, 48, 16 },           /* RandomFDBCap */
    { 4, 64, 16 },           /* MulticastFDBCap */
    { 5, 80, 16 },           /* LinearFDBTop */
};

static const SmComponent lft_components[] = {
    { 0, 0, 16 },            /* LID */
    { 1, 16, 16 },           /* BlockNum */
};

static const SmComponent mft_components[] = {
    { 0, 0, 16 },            /* LID */
    { 1, 16, 4 },            /* Position */
    { 3, 23, 9 },            /* BlockNum */
};

static const SmComponent pkey_components[] = {
    { 0, 0, 16 },            /* LID */
    { 1, 16, 16 },           /* BlockNum */
    { 2, 32, 8 },            /* PortNum */
};

static const SmComponent sm_components[] = {
    { 0, 0, 16 },            /* LID */
    { 2, 32, 64 },           /* GUID */
    { 5, 32 + 160, 4 },      /* Priority */
    { 6, 32 + 164, 4 },      /* SMState */
};

static const SmComponent link_components[] = {
    { 0, 0, 16 },            /* FromLID */
    { 1, 16, 8 },            /* FromPort */
    { 2, 24, 8 },            /* ToPort */
    { 3, 32, 16 },           /* ToLID */
};

static const SmComponent inform_components[] = {
    { 0, 0, 128 },           /* SubscriberGID */
    { 1, 128, 16 },          /* Enum */
    { 3, 192, 128 },         /* GID */
    { 4, 192 + 128, 16 },    /* LIDRangeBegin */
    { 5, 192 + 144, 16 },    /* LIDRangeEnd */
    { 7, 192 + 176, 8 },     /* IsGeneric */
    { 8, 192 + 184, 8 },     /* Subscribe */
    { 9, 192 + 192, 16 },    /* Type */
    { 10, 192 + 208, 16 },   /* TrapNumber, DeviceID */
    { 11, 192 + 224, 24 },   /* QPN */
    { 13, 192 + 251, 5 },    /* RespTimeValue */
    { 15, 192 + 264, 24 },   /* ProducerType, VendorID */
};

static bool bits_equal(const uint8_t *a, const uint8_t *b, unsigned pos,
                       unsigned width)
{
    while (width) {
        unsigned room = 8 - pos % 8;
        unsigned n = MIN(width, room);
        uint8_t mask = (0xFFu >> (8 - n)) << (room - n);

        if ((a[pos / 8] ^ b[pos / 8]) & mask) {
            return false;
        }
        pos += n;
        width -= n;
    }
    return true;
}

bool sm_record_match(const uint8_t *record, const uint8_t *wanted,
                     uint64_t mask, const SmComponent *table, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if ((mask >> table[i].bit & 1) &&
            !bits_equal(record, wanted, table[i].pos, table[i].width)) {
            return false;
        }
    }
    return true;
}

uint8_t *sm_records_add(SmRecords *records)
{
    size_t at = records->bytes->len;

    if (at + records->record_len > SM_MAX_RMPP_BYTES) {
        records->overflow = true;
        return NULL;
    }
    g_byte_array_set_size(records->bytes, at + records->record_len);
    memset(records->bytes->data + at, 0, records->record_len);
    records->count++;
    return records->bytes->data + at;
}

/* Adds @record if the mask lets it. */
static void offer(SmRecords *records, const uint8_t *record, size_t len,
                  const IbSaHeader *header, const uint8_t *wanted,
                  const SmComponent *table, size_t n)
{
    uint8_t *place;

    records->examined++;
    if (sm_record_match(record, wanted, header->component_mask, table, n)) {
        place = sm_records_add(records);
        if (place) {
            memcpy(place, record, len);
        }
    }
}

#define OFFER(table) \
    offer(records, record, sizeof(record), header, data, table, \
          G_N_ELEMENTS(table))

static void node_records(Sm *sm, const IbSaHeader *header,
                         const uint8_t *data, SmRecords *records)
{
    for (unsigned i = 0; i < sm->nodes->len; i++) {
        const SmNode *node = g_ptr_array_index(sm->nodes, i);

        for (unsigned j = 0; j <= node->num_ports; j++) {
            const SmPort *port = &node->ports[j];
            uint8_t record[NODE_RECORD_LEN] = { 0 };
            IbNodeInfo info = node->info;

            if (!port->known || !port->lid) {
                continue;
            }
            info.port_guid = port->guid;
            info.local_port = port->num;
            ib_put16(record, port->lid);
            ib_node_info_pack(record + 4, &info);
            memcpy(record + 4 + IB_NODE_INFO_LEN, node->raw_desc,
                   IB_NODE_DESC_LEN);
            OFFER(node_components);
        }
    }
}

static void port_records(Sm *sm, const IbSaHeader *full_header,
                         const uint8_t *data, SmRecords *records)
{
    IbSaHeader of = *full_header, *header = &of;
    uint32_t capability = 0;

    if ((of.hdr.attr_mod & CAPABILITY_MATCH) &&
        (of.component_mask & C_CAPABILITY)) {
        IbPortInfo wanted;

        ib_port_info_unpack(&wanted, data + 4);
        capability = wanted.capability_mask;
        of.component_mask &= ~(uint64_t)C_CAPABILITY;
    }
    for (unsigned i = 0; i < sm->nodes->len; i++) {
        const SmNode *node = g_ptr_array_index(sm->nodes, i);

        for (unsigned j = 0; j <= node->num_ports; j++) {
            const SmPort *port = &node->ports[j];
            const SmPort *end = node->sw ? &node->ports[0] : port;
            uint8_t record[PORT_RECORD_LEN] = { 0 };
            IbPortInfo info = port->info;

            if (!end->known || !end->lid || !port->info_seen ||
                (info.capability_mask & capability) != capability) {
                continue;
            }
            info.m_key = 0;               /* nobody's business */
            info.local_port = port->num;
            ib_put16(record, end->lid);
            record[2] = port->num;
            ib_port_info_pack(record + 4, &info);
            OFFER(port_components);
        }
    }
}

static void switch_records(Sm *sm, const IbSaHeader *header,
                           const uint8_t *data, SmRecords *records)
{
    for (unsigned i = 0; i < sm->switches->len; i++) {
        const SmNode *node = g_ptr_array_index(sm->switches, i);
        uint8_t record[SWITCH_RECORD_LEN] = { 0 };

        if (!node->ports[0].lid) {
            continue;
        }
        ib_put16(record, node->ports[0].lid);
        ib_switch_info_pack(record + 4, &node->sw->info);
        OFFER(switch_components);
    }
}

static void lft_records(Sm *sm, const IbSaHeader *header,
                        const uint8_t *data, SmRecords *records)
{
    for (unsigned i = 0; i < sm->switches->len; i++) {
        const SmNode *node = g_ptr_array_index(sm->switches, i);

        for (unsigned first = 0; node->ports[0].lid &&
             first < node->sw->lft_len; first += SM_LFT_BLOCK) {
            uint8_t record[LFT_RECORD_LEN] = { 0 };

            ib_put16(record, node->ports[0].lid);
            ib_put16(record + 2, first / SM_LFT_BLOCK);
            memcpy(record + 8, node->sw->lft_dev + first, SM_LFT_BLOCK);
            OFFER(lft_components);
        }
    }
}

static void mft_records(Sm *sm, const IbSaHeader *header,
                        const uint8_t *data, SmRecords *records)
{
    for (unsigned i = 0; i < sm->switches->len; i++) {
        const SmNode *node = g_ptr_array_index(sm->switches, i);
        const SmSwitch *sw = node->sw;

        for (unsigned j = 0; node->ports[0].lid &&
             j < sw->mft_rows / SM_MFT_BLOCK * sw->positions; j++) {
            unsigned block = j / sw->positions, position = j % sw->positions;
            uint8_t record[MFT_RECORD_LEN] = { 0 };

            ib_put16(record, node->ports[0].lid);
            ib_put16(record + 2, position << 12 | block);
            for (unsigned k = 0; k < SM_MFT_BLOCK; k++) {
                ib_put16(record + 8 + 2 * k,
                         sm_mft_entry(sw, block * SM_MFT_BLOCK + k,
                                      position));
            }
            OFFER(mft_components);
        }
    }
}

/* First blocks, as last read by a sweep. */
static void pkey_records(Sm *sm, const IbSaHeader *header,
                         const uint8_t *data, SmRecords *records)
{
    for (unsigned i = 0; i < sm->nodes->len; i++) {
        const SmNode *node = g_ptr_array_index(sm->nodes, i);

        for (unsigned j = 0; j <= node->num_ports; j++) {
            const SmPort *port = &node->ports[j];
            uint8_t record[PKEY_RECORD_LEN] = { 0 };

            if (!port->known || !port->lid || !port->pkeys_known) {
                continue;
            }
            ib_put16(record, port->lid);
            record[4] = port->num;
            memcpy(record + 8, port->pkeys, sizeof(port->pkeys));
            OFFER(pkey_components);
        }
    }
}

static void sm_records(Sm *sm, const IbSaHeader *header,
                       const uint8_t *data, SmRecords *records)
{
    for (unsigned i = 0; i <= sm->num_others; i++) {
        uint8_t record[SM_RECORD_LEN] = { 0 };
        IbSmInfo info = {
            .guid = sm->opts.port_guid,
            .act_count = sm->act_count,
            .priority = sm->opts.priority,
            .state = sm->state,
        };
        const SmPort *port;

        if (i) {
            info = sm->others[i - 1].info;
            info.sm_key = 0;
        }
        port = sm_port_find(sm, info.guid);
        if (!port) {
            continue;
        }
        ib_put16(record, port->lid);
        ib_sm_info_pack(record + 4, &info);
        OFFER(sm_components);
    }
}

static uint16_t node_lid(const SmPort *port)
{
    return port->node->sw ? port->node->ports[0].lid : port->lid;
}

static void link_records(Sm *sm, const IbSaHeader *header,
                         const uint8_t *data, SmRecords *records)
{
    for (unsigned i = 0; i < sm->nodes->len; i++) {
        const SmNode *node = g_ptr_array_index(sm->nodes, i);

        for (unsigned j = 1; j <= node->num_ports; j++) {
            const SmPort *port = &node->ports[j];
            uint8_t record[LINK_RECORD_LEN] = { 0 };

            if (!port->peer || !node_lid(port) || !node_lid(port->peer)) {
                continue;
            }
            ib_put16(record, node_lid(port));
            record[2] = port->num;
            record[3] = port->peer->num;
            ib_put16(record + 4, node_lid(port->peer));
            OFFER(link_components);
        }
    }
}

static void inform_records(Sm *sm, const IbSaHeader *header,
                           const uint8_t *data, SmRecords *records)
{
    for (unsigned i = 0; i < sm->subscriptions->len; i++) {
        const SmSubscription *sub = g_ptr_array_index(sm->subscriptions, i);
        uint8_t record[INFORM_RECORD_LEN] = { 0 };

        sm_port_gid(sm, sub->guid, record);
        ib_put16(record + 16, sub->id);
        ib_inform_info_pack(record + 24, &sub->info);
        OFFER(inform_components);
    }
}

static void class_port_info(Sm *sm, uint8_t *data)
{
    IbClassPortInfo info = {
        .base_version = 1,
        .class_version = 2,
        .capability_mask = SA_CAP_UD_MULTICAST | SA_CAP_CAPABILITY_MATCH,
        .capability_mask2 = SA_CAP2_SEND_ONLY_FULL,
        .resp_time = SA_RESP_TIME,
    };

    memset(data, 0, IB_SA_DATA_LEN);
    ib_class_port_info_pack(data, &info);
}

static void respond(Sm *sm, const SmClient *client, IbSaHeader *header,
                    uint16_t status, size_t record_len, const uint8_t *data)
{
    uint8_t mad[IB_MAD_LEN] = { 0 };

    /* Set is answered by GetResp (13.4.5). */
    if (header->hdr.method == IB_METHOD_SET) {
        header->hdr.method = IB_METHOD_GET;
    }
    header->hdr.method |= IB_METHOD_RESPONSE_BIT;
    header->hdr.status = status;
    header->rmpp_version = 1;
    header->rmpp_type = 0;
    header->rmpp_resp_time = 0;
    header->rmpp_flags = 0;
    header->rmpp_status = 0;
    header->rmpp_data1 = 0;
    header->rmpp_data2 = 0;
    header->sm_key = 0;
    header->attr_offset = (record_len + 7) / 8;
    ib_sa_header_pack(mad, header);
    if (data) {
        memcpy(mad + IB_SA_DATA_OFFSET, data, IB_SA_DATA_LEN);
    }
    sm->stats.sa_errors += status != 0;
    sm_send_mad(sm, &client->reply, mad);
}

static void respond_table(Sm *sm, const SmClient *client, IbSaHeader *header,
                          SmRecords *records)
{
    size_t len = records->bytes->len;

    header->hdr.method |= IB_METHOD_RESPONSE_BIT;
    header->hdr.status = IB_MAD_STATUS_OK;
    header->sm_key = 0;
    header->attr_offset = records->record_len / 8;
    /* @records gives its bytes away. */
    if (!sm_rmpp_start(sm, &client->reply, header,
                       g_byte_array_free(records->bytes, false), len)) {
        header->hdr.method &= ~IB_METHOD_RESPONSE_BIT;
        respond(sm, client, header, IB_MAD_STATUS_BUSY, 0, NULL);
    }
    records->bytes = NULL;
}

typedef void RecordsFn(Sm *sm, const IbSaHeader *header, const uint8_t *data,
                       SmRecords *records);

typedef uint16_t GetFn(Sm *sm, const SmClient *client,
                       const IbSaHeader *header, const uint8_t *data,
                       SmRecords *records);
typedef uint16_t ChangeFn(Sm *sm, const SmClient *client,
                          const IbSaHeader *header, uint8_t *data);

typedef struct RecordKind {
    uint16_t attr;
    uint16_t len;
    RecordsFn *fn;           /* read from the database, or ... */
    GetFn *get;              /* ... has rules of its own */
    ChangeFn *set, *delete;
} RecordKind;

static const RecordKind kinds[] = {
    { IB_SA_NODE_RECORD, NODE_RECORD_LEN, .fn = node_records },
    { IB_SA_PORT_INFO_RECORD, PORT_RECORD_LEN, .fn = port_records },
    { IB_SA_SWITCH_INFO_RECORD, SWITCH_RECORD_LEN, .fn = switch_records },
    { IB_SA_LFT_RECORD, LFT_RECORD_LEN, .fn = lft_records },
    { IB_SA_MFT_RECORD, MFT_RECORD_LEN, .fn = mft_records },
    { IB_SA_PKEY_TABLE_RECORD, PKEY_RECORD_LEN, .fn = pkey_records },
    { IB_SA_SM_INFO_RECORD, SM_RECORD_LEN, .fn = sm_records },
    { IB_SA_LINK_RECORD, LINK_RECORD_LEN, .fn = link_records },
    { IB_SA_INFORM_INFO_RECORD, INFORM_RECORD_LEN, .fn = inform_records },
    { IB_SA_PATH_RECORD, IB_PATH_RECORD_LEN, .get = sm_sa_path },
    { IB_SA_MCMEMBER_RECORD, IB_MCMEMBER_RECORD_LEN, .get = sm_mcast_get,
      .set = sm_mcast_set, .delete = sm_mcast_delete },
    { IB_SA_SERVICE_RECORD, SM_SERVICE_RECORD_LEN, .get = sm_service_get,
      .set = sm_service_set, .delete = sm_service_delete },
};

static const RecordKind *find_kind(uint16_t attr)
{
    for (size_t i = 0; i < G_N_ELEMENTS(kinds); i++) {
        if (kinds[i].attr == attr) {
            return &kinds[i];
        }
    }
    return NULL;
}

static void query(Sm *sm, const SmClient *client, IbSaHeader *header,
                  const uint8_t *data, const RecordKind *kind)
{
    uint16_t status = IB_MAD_STATUS_OK;
    SmRecords records = {
        .bytes = g_byte_array_new(),
        .record_len = (kind->len + 7u) & ~7u,
    };

    if (kind->fn) {
        kind->fn(sm, header, data, &records);
    } else {
        status = kind->get(sm, client, header, data, &records);
    }
    sm->sa_records = records.examined;
    if (status == IB_MAD_STATUS_OK && records.overflow) {
        status = IB_SA_STATUS_NO_RESOURCES;
    }
    if (status == IB_MAD_STATUS_OK && header->hdr.method == IB_METHOD_GET) {
        if (records.count == 0) {
            status = IB_SA_STATUS_NO_RECORDS;
        } else if (records.count > 1) {
            status = IB_SA_STATUS_TOO_MANY;
        }
    }
    if (status != IB_MAD_STATUS_OK) {
        respond(sm, client, header, status, 0, NULL);
    } else if (header->hdr.method == IB_METHOD_GET_TABLE) {
        respond_table(sm, client, header, &records);
    } else {
        uint8_t one[IB_SA_DATA_LEN] = { 0 };

        memcpy(one, records.bytes->data, kind->len);
        respond(sm, client, header, status, kind->len, one);
    }
    if (records.bytes) {
        g_byte_array_free(records.bytes, true);
    }
}

static void serve(Sm *sm, SmClient *client, IbSaHeader *header,
                  const uint8_t *request)
{
    const RecordKind *kind = find_kind(header->hdr.attr_id);
    uint8_t data[IB_SA_DATA_LEN];
    uint16_t status = IB_MAD_STATUS_BAD_METHOD_ATTR;
    size_t record_len = 0;

    memcpy(data, request, sizeof(data));
    switch (header->hdr.method) {
    case IB_METHOD_GET:
        if (header->hdr.attr_id == IB_ATTR_CLASS_PORT_INFO) {
            class_port_info(sm, data);
            status = IB_MAD_STATUS_OK;
            break;
        }
        /* fall through */
    case IB_METHOD_GET_TABLE:
        if (kind) {
            query(sm, client, header, data, kind);
            return;
        }
        break;
    case IB_METHOD_SET:
        if (header->hdr.attr_id == IB_ATTR_INFORM_INFO) {
            IbInformInfo info;

            ib_inform_info_unpack(&info, data);
            status = sm_inform_info_set(sm, client, &info);
            memset(data, 0, sizeof(data));
            ib_inform_info_pack(data, &info);
            record_len = IB_INFORM_INFO_LEN;
        } else if (kind && kind->set) {
            status = kind->set(sm, client, header, data);
            record_len = kind->len;
        }
        break;
    case IB_METHOD_DELETE:
        if (kind && kind->delete) {
            status = kind->delete(sm, client, header, data);
            record_len = kind->len;
        }
        break;
    default:
        status = IB_MAD_STATUS_BAD_METHOD;
        break;
    }
    respond(sm, client, header, status, record_len, data);
}

static bool asks_too_much(Sm *sm, const SmClient *client)
{
    SmPort *port = client->port;
    int64_t now = ib_clock_now(sm->clock);
    int64_t debt = (port ? port->sa_due : sm->stranger_due) - now;

    if (debt <= SM_SA_LITTLE ||
        (debt <= SM_SA_BURST_PORT && sm->sa_due - now <= SM_SA_BURST_ALL)) {
        if (port && debt <= 0) {
            port->sa_told = false;
        }
        return false;
    }
    sm->stats.sa_refused++;
    if (port && !port->sa_told) {
        port->sa_told = true;
        sm_logf(sm, SM_LOG_WARN, "port %s asks the SA too much: it is told "
                "BUSY", sm_port_name(port).s);
    }
    return true;
}

static void pay(Sm *sm, const SmClient *client, unsigned method)
{
    bool change = method == IB_METHOD_SET || method == IB_METHOD_DELETE;
    int64_t cost = SM_SA_REQUEST_COST + sm->sa_records * SM_SA_RECORD_COST +
                   (change ? SM_SA_CHANGE_COST : 0);

    sm_afford(sm, client->port ? &client->port->sa_due : &sm->stranger_due,
              cost, INT64_MAX);
    sm_afford(sm, &sm->sa_due, cost, INT64_MAX);
}

void sm_sa_receive(Sm *sm, const IbMadAddress *from, const uint8_t *mad)
{
    SmClient client = { 0 };
    IbSaHeader header;
    unsigned method;

    ib_sa_header_unpack(&header, mad);
    client.port = sm_port_by_lid(sm, from->slid);
    ib_mad_address_turn(&client.reply, from);
    client.reply.vl = 0;
    client.reply.pkey = IB_PKEY_DEFAULT;
    if (header.hdr.base_version != 1 || sm->state != SM_MASTER) {
        sm->stats.packets_dropped++;
        return;
    }
    if (header.rmpp_flags & RMPP_FLAG_ACTIVE) {
        if (header.rmpp_type != RMPP_TYPE_DATA) {
            sm_rmpp_receive(sm, &client.reply, &header);
        } else if (header.hdr.method & IB_METHOD_RESPONSE_BIT) {
            sm->stats.packets_dropped++;
        } else {
            sm_rmpp_refuse(sm, &client.reply, &header);
        }
        return;
    }
    if (header.hdr.method == IB_METHOD_REPORT_RESP) {
        sm_report_response(sm, &client.reply, &header);
        return;
    }
    if ((header.hdr.method & IB_METHOD_RESPONSE_BIT) ||
        header.hdr.method == IB_METHOD_TRAP_REPRESS) {
        sm->stats.packets_dropped++;
        return;
    }
    sm->stats.sa_requests++;
    client.trusted = header.sm_key && header.sm_key == sm->opts.sm_key;
    if (header.hdr.class_version != 2) {
        respond(sm, &client, &header, IB_MAD_STATUS_BAD_VERSION, 0, NULL);
    } else if (sm->first_master) {
        /* LIDs and routes are being made: ask again. */
        respond(sm, &client, &header, IB_MAD_STATUS_BUSY, 0, NULL);
    } else if (header.sm_key && !client.trusted) {
        respond(sm, &client, &header, IB_SA_STATUS_REQ_INVALID, 0, NULL);
    } else if (header.hdr.method == IB_METHOD_GET_TABLE &&
               sm_rmpp_busy(sm, &client.reply, header.hdr.tid)) {
        sm->stats.packets_dropped++;      /* asked twice, answer under way */
    } else if (asks_too_much(sm, &client)) {
        respond(sm, &client, &header, IB_MAD_STATUS_BUSY, 0, NULL);
    } else {
        method = header.hdr.method;
        sm->sa_records = 0;
        serve(sm, &client, &header, mad + IB_SA_DATA_OFFSET);
        pay(sm, &client, method);
    }
}
