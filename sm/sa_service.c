/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * ServiceRecord (15.2.5.14): who offers what, told by himself.
 *
 * Theory of operation: a Set registers a service for a lease of so many
 * seconds, or renews it; a Delete takes it back; both name it by ServiceID,
 * ServiceGID and ServiceP_Key, and must know its ServiceKey, which others are
 * not shown.  A node speaks for its own ports only.  A lease that has ended is
 * noticed by the next request.  Services are in the memory of the master only:
 * who hears ClientReregister registers again.
 */
#include <string.h>

#include "sm/internal.h"

#define RID_LEN 26u          /* ServiceID, ServiceGID, ServiceP_Key */
#define GID_AT 8u
#define PKEY_AT 24u
#define LEASE_AT 28u
#define KEY_AT 32u
#define KEY_LEN 16u
#define LEASE_FOREVER UINT32_MAX

enum { C_ID = 1 << 0, C_GID = 1 << 1, C_PKEY = 1 << 2, C_LEASE = 1 << 4 };

#define DATA8(i) { 7 + (i), 896 + 8 * (i), 8 }
#define DATA16(i) { 23 + (i), 1024 + 16 * (i), 16 }
#define DATA32(i) { 31 + (i), 1152 + 32 * (i), 32 }
#define DATA64(i) { 35 + (i), 1280 + 64 * (i), 64 }

static const SmComponent components[] = {
    { 0, 0, 64 },            /* ServiceID */
    { 1, 64, 128 },          /* ServiceGID */
    { 2, 192, 16 },          /* ServiceP_Key */
    { 4, 224, 32 },          /* ServiceLease */
    { 5, 256, 128 },         /* ServiceKey */
    { 6, 384, 512 },         /* ServiceName */
    DATA8(0), DATA8(1), DATA8(2), DATA8(3), DATA8(4), DATA8(5), DATA8(6),
    DATA8(7), DATA8(8), DATA8(9), DATA8(10), DATA8(11), DATA8(12),
    DATA8(13), DATA8(14), DATA8(15),
    DATA16(0), DATA16(1), DATA16(2), DATA16(3), DATA16(4), DATA16(5),
    DATA16(6), DATA16(7),
    DATA32(0), DATA32(1), DATA32(2), DATA32(3),
    DATA64(0), DATA64(1),
};

typedef struct Service {
    uint8_t record[SM_SERVICE_RECORD_LEN];
    uint64_t owner;          /* port that registered it */
    int64_t ends_ns;         /* IB_CLOCK_NEVER: it does not */
} Service;

void sm_service_init(Sm *sm)
{
    sm->services = g_array_new(false, false, sizeof(Service));
}

void sm_service_fini(Sm *sm)
{
    g_array_free(sm->services, true);
}

void sm_service_forget(Sm *sm)
{
    g_array_set_size(sm->services, 0);
}

static Service *service_at(const Sm *sm, unsigned i)
{
    return &g_array_index(sm->services, Service, i);
}

static void drop_ended(Sm *sm)
{
    int64_t now = ib_clock_now(sm->clock);

    for (unsigned i = sm->services->len; i-- > 0;) {
        if (service_at(sm, i)->ends_ns <= now) {
            g_array_remove_index_fast(sm->services, i);
        }
    }
}

/* The service that a request to change it is about; its index or -1. */
static int find(const Sm *sm, const uint8_t *record)
{
    for (unsigned i = 0; i < sm->services->len; i++) {
        if (memcmp(service_at(sm, i)->record, record, RID_LEN) == 0) {
            return i;
        }
    }
    return -1;
}

/* Room for one more, if need be in place of somebody who is away. */
static bool make_room(Sm *sm, uint64_t guid)
{
    unsigned of_port = 0;

    for (unsigned i = 0; i < sm->services->len; i++) {
        of_port += service_at(sm, i)->owner == guid;
    }
    if (of_port >= SM_MAX_SERVICES_PER_PORT) {
        return false;
    }
    for (unsigned i = 0; i < sm->services->len &&
         sm->services->len >= SM_MAX_SERVICES; i++) {
        if (!sm_port_find(sm, service_at(sm, i)->owner)) {
            g_array_remove_index_fast(sm->services, i);
        }
    }
    return sm->services->len < SM_MAX_SERVICES;
}

/* Checks what Set and Delete have in common, and finds the service. */
static uint16_t check(Sm *sm, const SmClient *client,
                      const IbSaHeader *header, uint8_t *data, int *index)
{
    uint64_t mask = header->component_mask;
    const SmPort *port;
    uint8_t gid[16];

    if (!(mask & C_ID) || !(mask & C_GID)) {
        return IB_SA_STATUS_COMPONENTS;
    }
    if (!(mask & C_PKEY)) {
        ib_put16(data + PKEY_AT, IB_PKEY_DEFAULT);
    }
    port = sm_port_find(sm, ib_get64(data + GID_AT + 8));
    if (!client->port || !port || port->node != client->port->node ||
        !ib_pkey_match(ib_get16(data + PKEY_AT), IB_PKEY_DEFAULT)) {
        return IB_SA_STATUS_REQ_INVALID;
    }
    sm_port_gid(sm, port->guid, gid);
    if (memcmp(gid, data + GID_AT, 16) != 0) {
        return IB_SA_STATUS_REQ_INVALID;
    }
    drop_ended(sm);
    *index = find(sm, data);
    if (*index >= 0 && memcmp(service_at(sm, *index)->record + KEY_AT,
                              data + KEY_AT, KEY_LEN) != 0) {
        return IB_SA_STATUS_REQ_INVALID;
    }
    return IB_MAD_STATUS_OK;
}

uint16_t sm_service_set(Sm *sm, const SmClient *client,
                        const IbSaHeader *header, uint8_t *data)
{
    uint32_t lease = ib_get32(data + LEASE_AT);
    Service service;
    uint16_t status;
    int index;

    if (!(header->component_mask & C_LEASE)) {
        lease = LEASE_FOREVER;
        ib_put32(data + LEASE_AT, lease);
    }
    status = check(sm, client, header, data, &index);
    if (status != IB_MAD_STATUS_OK) {
        return status;
    }
    if (!lease) {
        return IB_SA_STATUS_REQ_INVALID;
    }
    memcpy(service.record, data, sizeof(service.record));
    service.owner = client->port->guid;
    service.ends_ns = lease == LEASE_FOREVER
                      ? IB_CLOCK_NEVER
                      : ib_clock_now(sm->clock) + lease * IB_SEC;
    if (index >= 0) {
        *service_at(sm, index) = service;
        return IB_MAD_STATUS_OK;
    }
    if (!make_room(sm, client->port->guid)) {
        return IB_SA_STATUS_NO_RESOURCES;
    }
    g_array_append_val(sm->services, service);
    return IB_MAD_STATUS_OK;
}

uint16_t sm_service_delete(Sm *sm, const SmClient *client,
                           const IbSaHeader *header, uint8_t *data)
{
    uint16_t status;
    int index;

    status = check(sm, client, header, data, &index);
    if (status != IB_MAD_STATUS_OK) {
        return status;
    }
    if (index < 0) {
        return IB_SA_STATUS_NO_RECORDS;
    }
    memcpy(data, service_at(sm, index)->record, SM_SERVICE_RECORD_LEN);
    g_array_remove_index_fast(sm->services, index);
    return IB_MAD_STATUS_OK;
}

/* The lease that is left is shown; the key only to who is trusted. */
uint16_t sm_service_get(Sm *sm, const SmClient *client,
                        const IbSaHeader *header, const uint8_t *data,
                        SmRecords *records)
{
    int64_t now = ib_clock_now(sm->clock);

    drop_ended(sm);
    for (unsigned i = 0; i < sm->services->len; i++) {
        const Service *service = service_at(sm, i);
        uint8_t record[SM_SERVICE_RECORD_LEN], *place;

        memcpy(record, service->record, sizeof(record));
        if (service->ends_ns != IB_CLOCK_NEVER) {
            ib_put32(record + LEASE_AT,
                     (service->ends_ns - now + IB_SEC - 1) / IB_SEC);
        }
        if (!client->trusted) {
            memset(record + KEY_AT, 0, KEY_LEN);
        }
        records->examined++;
        if (sm_record_match(record, data, header->component_mask, components,
                            G_N_ELEMENTS(components))) {
            place = sm_records_add(records);
            if (place) {
                memcpy(place, record, sizeof(record));
            }
        }
    }
    return IB_MAD_STATUS_OK;
}
