// SPDX-License-Identifier: GPL-2.0
/*
 * apm_cm message formats: IBTA volume 1, section 12.6 (REQ, REP, ...) and
 * 12.8 (LAP, APR), through the kernel's field tables.  Plus the names of all
 * enumerations.  No state here.
 */
#include <linux/string.h>

#include "cm.h"

#define CM_LID_PERMISSIVE	0xffff

void cm_msg_start(struct cm_mad *mad, enum cm_attr attr, __be64 tid)
{
	memset(mad, 0, sizeof(*mad));
	mad->hdr.base_version = IB_MGMT_BASE_VERSION;
	mad->hdr.mgmt_class = IB_MGMT_CLASS_CM;
	mad->hdr.class_version = CM_CLASS_VERSION;
	mad->hdr.method = IB_MGMT_METHOD_SEND;
	mad->hdr.attr_id = cpu_to_be16(attr);
	mad->hdr.tid = tid;
}

/* 4.096 us * 2^n, in milliseconds, as Linux does it: 2^(n - 8), at least 1 */
unsigned int cm_time_ms(u8 encoded)
{
	unsigned int ms = 1;

	if (encoded > 8)
		ms = 1U << min_t(unsigned int, encoded - 8, 30);
	return min_t(unsigned int, ms, CM_MAX_WAIT_MS);
}

/*
 * IBTA 12.7.34: twice the packet life plus the CA's delay, in the logarithmic
 * coding: the greater of the two, one more if they are close.
 */
u8 cm_ack_timeout(u8 ca_ack_delay, u8 packet_life)
{
	unsigned int wire = packet_life + 1;
	unsigned int hi = max_t(unsigned int, wire, ca_ack_delay);
	unsigned int lo = min_t(unsigned int, wire, ca_ack_delay);

	return min_t(unsigned int, hi + (lo + 1 >= hi), 31);
}

static u16 cm_lid_of(__be16 lid, bool routed)
{
	return routed ? CM_LID_PERMISSIVE : be16_to_cpu(lid);
}

void cm_msg_put_req_path(struct cm_req_msg *req, const struct cm_path *path,
			 bool alternate)
{
	const struct sa_path_rec *r = &path->rec;
	bool routed = r->hop_limit > 1;

	/* Two tables of constants: the macros need literal field names. */
	if (!alternate) {
		IBA_SET(CM_REQ_PRIMARY_LOCAL_PORT_LID, req,
			cm_lid_of(r->ib.slid, routed));
		IBA_SET(CM_REQ_PRIMARY_REMOTE_PORT_LID, req,
			cm_lid_of(r->ib.dlid, routed));
		*IBA_GET_MEM_PTR(CM_REQ_PRIMARY_LOCAL_PORT_GID, req) = r->sgid;
		*IBA_GET_MEM_PTR(CM_REQ_PRIMARY_REMOTE_PORT_GID, req) = r->dgid;
		IBA_SET(CM_REQ_PRIMARY_FLOW_LABEL, req,
			be32_to_cpu(r->flow_label) & 0xfffff);
		IBA_SET(CM_REQ_PRIMARY_PACKET_RATE, req, r->rate & 0x3f);
		IBA_SET(CM_REQ_PRIMARY_TRAFFIC_CLASS, req, r->traffic_class);
		IBA_SET(CM_REQ_PRIMARY_HOP_LIMIT, req, r->hop_limit);
		IBA_SET(CM_REQ_PRIMARY_SL, req, r->sl & 0xf);
		IBA_SET(CM_REQ_PRIMARY_SUBNET_LOCAL, req, !routed);
		IBA_SET(CM_REQ_PRIMARY_LOCAL_ACK_TIMEOUT, req,
			path->timeout & 0x1f);
	} else {
		IBA_SET(CM_REQ_ALTERNATE_LOCAL_PORT_LID, req,
			cm_lid_of(r->ib.slid, routed));
		IBA_SET(CM_REQ_ALTERNATE_REMOTE_PORT_LID, req,
			cm_lid_of(r->ib.dlid, routed));
		*IBA_GET_MEM_PTR(CM_REQ_ALTERNATE_LOCAL_PORT_GID, req) =
			r->sgid;
		*IBA_GET_MEM_PTR(CM_REQ_ALTERNATE_REMOTE_PORT_GID, req) =
			r->dgid;
		IBA_SET(CM_REQ_ALTERNATE_FLOW_LABEL, req,
			be32_to_cpu(r->flow_label) & 0xfffff);
		IBA_SET(CM_REQ_ALTERNATE_PACKET_RATE, req, r->rate & 0x3f);
		IBA_SET(CM_REQ_ALTERNATE_TRAFFIC_CLASS, req, r->traffic_class);
		IBA_SET(CM_REQ_ALTERNATE_HOP_LIMIT, req, r->hop_limit);
		IBA_SET(CM_REQ_ALTERNATE_SL, req, r->sl & 0xf);
		IBA_SET(CM_REQ_ALTERNATE_SUBNET_LOCAL, req, !routed);
		IBA_SET(CM_REQ_ALTERNATE_LOCAL_ACK_TIMEOUT, req,
			path->timeout & 0x1f);
	}
}

static void cm_rec_common(struct sa_path_rec *rec, u8 timeout)
{
	rec->rec_type = SA_PATH_REC_TYPE_IB;
	rec->reversible = 1;
	rec->numb_path = 1;
	rec->mtu_selector = IB_SA_EQ;
	rec->rate_selector = IB_SA_EQ;
	rec->packet_life_time_selector = IB_SA_EQ;
	/* The sender made the ACK timeout from twice the packet life. */
	rec->packet_life_time = timeout ? timeout - 1 : 0;
}

void cm_msg_get_req_path(const struct cm_req_msg *creq, bool alternate,
			 struct sa_path_rec *rec, u8 *timeout)
{
	/* The field macros take no pointer to const. */
	struct cm_req_msg *req = (struct cm_req_msg *)creq;

	memset(rec, 0, sizeof(*rec));
	rec->pkey = cpu_to_be16(IBA_GET(CM_REQ_PARTITION_KEY, req));
	rec->mtu = IBA_GET(CM_REQ_PATH_PACKET_PAYLOAD_MTU, req);
	rec->service_id = cpu_to_be64(IBA_GET(CM_REQ_SERVICE_ID, req));
	if (!alternate) {
		rec->sgid = *IBA_GET_MEM_PTR(CM_REQ_PRIMARY_REMOTE_PORT_GID,
					     req);
		rec->dgid = *IBA_GET_MEM_PTR(CM_REQ_PRIMARY_LOCAL_PORT_GID,
					     req);
		rec->ib.slid =
			cpu_to_be16(IBA_GET(CM_REQ_PRIMARY_REMOTE_PORT_LID, req));
		rec->ib.dlid =
			cpu_to_be16(IBA_GET(CM_REQ_PRIMARY_LOCAL_PORT_LID, req));
		rec->flow_label =
			cpu_to_be32(IBA_GET(CM_REQ_PRIMARY_FLOW_LABEL, req));
		rec->rate = IBA_GET(CM_REQ_PRIMARY_PACKET_RATE, req);
		rec->traffic_class = IBA_GET(CM_REQ_PRIMARY_TRAFFIC_CLASS, req);
		rec->hop_limit = IBA_GET(CM_REQ_PRIMARY_HOP_LIMIT, req);
		rec->sl = IBA_GET(CM_REQ_PRIMARY_SL, req);
		*timeout = IBA_GET(CM_REQ_PRIMARY_LOCAL_ACK_TIMEOUT, req);
	} else {
		rec->sgid = *IBA_GET_MEM_PTR(CM_REQ_ALTERNATE_REMOTE_PORT_GID,
					     req);
		rec->dgid = *IBA_GET_MEM_PTR(CM_REQ_ALTERNATE_LOCAL_PORT_GID,
					     req);
		rec->ib.slid =
			cpu_to_be16(IBA_GET(CM_REQ_ALTERNATE_REMOTE_PORT_LID, req));
		rec->ib.dlid =
			cpu_to_be16(IBA_GET(CM_REQ_ALTERNATE_LOCAL_PORT_LID, req));
		rec->flow_label =
			cpu_to_be32(IBA_GET(CM_REQ_ALTERNATE_FLOW_LABEL, req));
		rec->rate = IBA_GET(CM_REQ_ALTERNATE_PACKET_RATE, req);
		rec->traffic_class =
			IBA_GET(CM_REQ_ALTERNATE_TRAFFIC_CLASS, req);
		rec->hop_limit = IBA_GET(CM_REQ_ALTERNATE_HOP_LIMIT, req);
		rec->sl = IBA_GET(CM_REQ_ALTERNATE_SL, req);
		*timeout = IBA_GET(CM_REQ_ALTERNATE_LOCAL_ACK_TIMEOUT, req);
	}
	cm_rec_common(rec, *timeout);
}

/* Judged by the LID, as all receivers of plain InfiniBand do. */
bool cm_msg_req_has_alternate(const struct cm_req_msg *creq)
{
	struct cm_req_msg *req = (struct cm_req_msg *)creq;

	return IBA_GET(CM_REQ_ALTERNATE_LOCAL_PORT_LID, req) != 0;
}

bool cm_msg_req_is_routed(const struct cm_req_msg *creq, bool alternate)
{
	struct cm_req_msg *req = (struct cm_req_msg *)creq;

	if (alternate)
		return !IBA_GET(CM_REQ_ALTERNATE_SUBNET_LOCAL, req);
	return !IBA_GET(CM_REQ_PRIMARY_SUBNET_LOCAL, req);
}

bool cm_msg_lap_is_routed(const struct cm_lap_msg *clap)
{
	struct cm_lap_msg *lap = (struct cm_lap_msg *)clap;

	return !IBA_GET(CM_LAP_ALTERNATE_SUBNET_LOCAL, lap);
}

void cm_msg_put_lap_path(struct cm_lap_msg *lap, const struct cm_path *path)
{
	const struct sa_path_rec *r = &path->rec;
	bool routed = r->hop_limit > 1;

	IBA_SET(CM_LAP_ALTERNATE_LOCAL_PORT_LID, lap,
		cm_lid_of(r->ib.slid, routed));
	IBA_SET(CM_LAP_ALTERNATE_REMOTE_PORT_LID, lap,
		cm_lid_of(r->ib.dlid, routed));
	*IBA_GET_MEM_PTR(CM_LAP_ALTERNATE_LOCAL_PORT_GID, lap) = r->sgid;
	*IBA_GET_MEM_PTR(CM_LAP_ALTERNATE_REMOTE_PORT_GID, lap) = r->dgid;
	IBA_SET(CM_LAP_ALTERNATE_FLOW_LABEL, lap,
		be32_to_cpu(r->flow_label) & 0xfffff);
	IBA_SET(CM_LAP_ALTERNATE_TRAFFIC_CLASS, lap, r->traffic_class);
	IBA_SET(CM_LAP_ALTERNATE_HOP_LIMIT, lap, r->hop_limit);
	IBA_SET(CM_LAP_ALTERNATE_PACKET_RATE, lap, r->rate & 0x3f);
	IBA_SET(CM_LAP_ALTERNATE_SL, lap, r->sl & 0xf);
	IBA_SET(CM_LAP_ALTERNATE_SUBNET_LOCAL, lap, !routed);
	IBA_SET(CM_LAP_ALTERNATE_LOCAL_ACK_TIMEOUT, lap, path->timeout & 0x1f);
}

void cm_msg_get_lap_path(const struct cm_lap_msg *clap, __be16 pkey, u8 mtu,
			 struct sa_path_rec *rec, u8 *timeout)
{
	struct cm_lap_msg *lap = (struct cm_lap_msg *)clap;

	memset(rec, 0, sizeof(*rec));
	rec->pkey = pkey;
	rec->mtu = mtu;
	rec->sgid = *IBA_GET_MEM_PTR(CM_LAP_ALTERNATE_REMOTE_PORT_GID, lap);
	rec->dgid = *IBA_GET_MEM_PTR(CM_LAP_ALTERNATE_LOCAL_PORT_GID, lap);
	rec->ib.slid =
		cpu_to_be16(IBA_GET(CM_LAP_ALTERNATE_REMOTE_PORT_LID, lap));
	rec->ib.dlid =
		cpu_to_be16(IBA_GET(CM_LAP_ALTERNATE_LOCAL_PORT_LID, lap));
	rec->flow_label =
		cpu_to_be32(IBA_GET(CM_LAP_ALTERNATE_FLOW_LABEL, lap));
	rec->rate = IBA_GET(CM_LAP_ALTERNATE_PACKET_RATE, lap);
	rec->traffic_class = IBA_GET(CM_LAP_ALTERNATE_TRAFFIC_CLASS, lap);
	rec->hop_limit = IBA_GET(CM_LAP_ALTERNATE_HOP_LIMIT, lap);
	rec->sl = IBA_GET(CM_LAP_ALTERNATE_SL, lap);
	*timeout = IBA_GET(CM_LAP_ALTERNATE_LOCAL_ACK_TIMEOUT, lap);
	cm_rec_common(rec, *timeout);
}

static const char *cm_str(const char * const *names, unsigned int count,
			  unsigned int i)
{
	return i < count && names[i] ? names[i] : "UNKNOWN";
}

static const char * const cm_state_names[] = {
	[APM_CM_IDLE] = "IDLE",
	[APM_CM_LISTEN] = "LISTEN",
	[APM_CM_REQ_SENT] = "REQ_SENT",
	[APM_CM_REQ_RCVD] = "REQ_RCVD",
	[APM_CM_MRA_REQ_SENT] = "MRA_REQ_SENT",
	[APM_CM_MRA_REQ_RCVD] = "MRA_REQ_RCVD",
	[APM_CM_REP_SENT] = "REP_SENT",
	[APM_CM_REP_RCVD] = "REP_RCVD",
	[APM_CM_MRA_REP_SENT] = "MRA_REP_SENT",
	[APM_CM_MRA_REP_RCVD] = "MRA_REP_RCVD",
	[APM_CM_ESTABLISHED] = "ESTABLISHED",
	[APM_CM_DREQ_SENT] = "DREQ_SENT",
	[APM_CM_DREQ_RCVD] = "DREQ_RCVD",
	[APM_CM_TIMEWAIT] = "TIMEWAIT",
};

static const char * const cm_lap_state_names[] = {
	[APM_CM_LAP_UNINIT] = "UNINIT",
	[APM_CM_LAP_IDLE] = "IDLE",
	[APM_CM_LAP_SENT] = "LAP_SENT",
	[APM_CM_LAP_RCVD] = "LAP_RCVD",
	[APM_CM_MRA_LAP_SENT] = "MRA_LAP_SENT",
	[APM_CM_MRA_LAP_RCVD] = "MRA_LAP_RCVD",
};

static const char * const cm_event_names[] = {
	[APM_CM_REQ_RECEIVED] = "REQ_RECEIVED",
	[APM_CM_REQ_ERROR] = "REQ_ERROR",
	[APM_CM_REP_RECEIVED] = "REP_RECEIVED",
	[APM_CM_REP_ERROR] = "REP_ERROR",
	[APM_CM_RTU_RECEIVED] = "RTU_RECEIVED",
	[APM_CM_USER_ESTABLISHED] = "USER_ESTABLISHED",
	[APM_CM_MRA_RECEIVED] = "MRA_RECEIVED",
	[APM_CM_REJ_RECEIVED] = "REJ_RECEIVED",
	[APM_CM_LAP_RECEIVED] = "LAP_RECEIVED",
	[APM_CM_LAP_ERROR] = "LAP_ERROR",
	[APM_CM_APR_RECEIVED] = "APR_RECEIVED",
	[APM_CM_DREQ_RECEIVED] = "DREQ_RECEIVED",
	[APM_CM_DREQ_ERROR] = "DREQ_ERROR",
	[APM_CM_DREP_RECEIVED] = "DREP_RECEIVED",
	[APM_CM_TIMEWAIT_EXIT] = "TIMEWAIT_EXIT",
	[APM_CM_DEVICE_REMOVED] = "DEVICE_REMOVED",
};

static const char * const cm_rej_names[] = {
	[APM_CM_REJ_NO_QP] = "no QP",
	[APM_CM_REJ_NO_EEC] = "no EEC",
	[APM_CM_REJ_NO_RESOURCES] = "no resources",
	[APM_CM_REJ_TIMEOUT] = "timeout",
	[APM_CM_REJ_UNSUPPORTED] = "unsupported request",
	[APM_CM_REJ_INVALID_COMM_ID] = "invalid communication id",
	[APM_CM_REJ_INVALID_COMM_INSTANCE] = "invalid communication instance",
	[APM_CM_REJ_INVALID_SERVICE_ID] = "invalid service id",
	[APM_CM_REJ_INVALID_TRANSPORT_TYPE] = "invalid transport type",
	[APM_CM_REJ_STALE_CONN] = "stale connection",
	[APM_CM_REJ_RDC_NOT_EXIST] = "RDC does not exist",
	[APM_CM_REJ_INVALID_GID] = "primary GID refused",
	[APM_CM_REJ_INVALID_LID] = "primary LID refused",
	[APM_CM_REJ_INVALID_SL] = "primary SL refused",
	[APM_CM_REJ_INVALID_TRAFFIC_CLASS] = "primary traffic class refused",
	[APM_CM_REJ_INVALID_HOP_LIMIT] = "primary hop limit refused",
	[APM_CM_REJ_INVALID_PACKET_RATE] = "primary packet rate refused",
	[APM_CM_REJ_INVALID_ALT_GID] = "alternate GID refused",
	[APM_CM_REJ_INVALID_ALT_LID] = "alternate LID refused",
	[APM_CM_REJ_INVALID_ALT_SL] = "alternate SL refused",
	[APM_CM_REJ_INVALID_ALT_TRAFFIC_CLASS] =
		"alternate traffic class refused",
	[APM_CM_REJ_INVALID_ALT_HOP_LIMIT] = "alternate hop limit refused",
	[APM_CM_REJ_INVALID_ALT_PACKET_RATE] = "alternate packet rate refused",
	[APM_CM_REJ_PORT_CM_REDIRECT] = "port and CM redirection",
	[APM_CM_REJ_PORT_REDIRECT] = "port redirection",
	[APM_CM_REJ_INVALID_MTU] = "MTU refused",
	[APM_CM_REJ_INSUFFICIENT_RESP_RESOURCES] =
		"too few responder resources",
	[APM_CM_REJ_CONSUMER_DEFINED] = "consumer reject",
	[APM_CM_REJ_INVALID_RNR_RETRY] = "RNR retry count refused",
	[APM_CM_REJ_DUPLICATE_LOCAL_COMM_ID] = "duplicate local id",
	[APM_CM_REJ_INVALID_CLASS_VERSION] = "class version unsupported",
	[APM_CM_REJ_INVALID_FLOW_LABEL] = "primary flow label refused",
	[APM_CM_REJ_INVALID_ALT_FLOW_LABEL] = "alternate flow label refused",
};

static const char * const cm_apr_names[] = {
	[APM_CM_APR_SUCCESS] = "loaded",
	[APM_CM_APR_INVALID_COMM_ID] = "invalid communication id",
	[APM_CM_APR_UNSUPPORTED] = "alternate paths unsupported",
	[APM_CM_APR_REJECT] = "failover port rejected",
	[APM_CM_APR_REDIRECT] = "redirected",
	[APM_CM_APR_IS_CURRENT] = "same as current primary path",
	[APM_CM_APR_INVALID_QPN] = "QPN mismatch",
	[APM_CM_APR_INVALID_LID] = "LID refused",
	[APM_CM_APR_INVALID_GID] = "GID refused",
	[APM_CM_APR_INVALID_FLOW_LABEL] = "flow label refused",
	[APM_CM_APR_INVALID_TRAFFIC_CLASS] = "traffic class refused",
	[APM_CM_APR_INVALID_HOP_LIMIT] = "hop limit refused",
	[APM_CM_APR_INVALID_PACKET_RATE] = "packet rate refused",
	[APM_CM_APR_INVALID_SL] = "SL refused",
};

static const char * const cm_msg_names[] = {
	"REQ", "MRA", "REJ", "REP", "RTU", "DREQ", "DREP", "SIDR_REQ",
	"SIDR_REP", "LAP", "APR",
};

const char *apm_cm_state_str(enum apm_cm_state state)
{
	return cm_str(cm_state_names, ARRAY_SIZE(cm_state_names), state);
}
EXPORT_SYMBOL_GPL(apm_cm_state_str);

const char *apm_cm_lap_state_str(enum apm_cm_lap_state state)
{
	return cm_str(cm_lap_state_names, ARRAY_SIZE(cm_lap_state_names), state);
}
EXPORT_SYMBOL_GPL(apm_cm_lap_state_str);

const char *apm_cm_event_str(enum apm_cm_event_type event)
{
	return cm_str(cm_event_names, ARRAY_SIZE(cm_event_names), event);
}
EXPORT_SYMBOL_GPL(apm_cm_event_str);

const char *apm_cm_rej_str(u16 reason)
{
	return cm_str(cm_rej_names, ARRAY_SIZE(cm_rej_names), reason);
}
EXPORT_SYMBOL_GPL(apm_cm_rej_str);

const char *apm_cm_apr_str(u8 status)
{
	return cm_str(cm_apr_names, ARRAY_SIZE(cm_apr_names), status);
}
EXPORT_SYMBOL_GPL(apm_cm_apr_str);

const char *apm_cm_msg_str(unsigned int kind)
{
	return cm_str(cm_msg_names, ARRAY_SIZE(cm_msg_names), kind);
}
EXPORT_SYMBOL_GPL(apm_cm_msg_str);
