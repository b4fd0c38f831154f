# SPDX-License-Identifier: GPL-2.0-or-later
"""All events and their fields, by who has them.

A scenario that waits for, or forbids, an event that does not exist, or one
with a field or a value it never has, is wrong: an `expect` would wait in vain,
a `never` would never fail.  tests/runner/test_events.py compares these tables
with those who send the events and with the manuals.
"""
from __future__ import annotations

from . import values
from .values import Kind, one_of

MIG = one_of("MIGRATED", "REARM", "ARMED", "UNKNOWN")
QP_STATE = one_of("RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR",
                  "UNKNOWN")
PORT_STATE = one_of("Down", "Initialize", "Armed", "Active")
CM_MESSAGE = one_of("REQ", "MRA", "REJ", "REP", "RTU", "DREQ", "DREP",
                    "SIDR_REQ", "SIDR_REP", "LAP", "APR")
SM_STATE = one_of("Discovering", "Standby", "Master", "Not-Active")

# What a field is, by its name; "NAME:KIND" in a table below says otherwise.
KINDS: dict[str, Kind] = {
    **dict.fromkeys(("port", "old_port", "alt_port"), values.PORT),
    **dict.fromkeys(("gid", "dgid", "peer_gid", "alt_peer_gid"), values.GID),
    **dict.fromkeys(("service", "guid", "tid"), values.HEX),
    **dict.fromkeys(("up", "plugged", "delivered", "living", "errors"),
                    values.BOOL),
    **dict.fromkeys((
        "a", "action", "attribute", "b", "class", "cmd", "dev", "expected",
        "failure", "file", "guest", "info", "line", "method", "opcode",
        "text", "value", "version", "what", "why",
        "word"), values.TEXT),
    **dict.fromkeys((
        "acked", "after_ms", "alt_dlid", "alternate", "corrupt", "count",
        "dest_qpn", "dlid", "dropped", "dup", "errno", "gap_ms", "got",
        "left", "lid", "local_id", "lost", "ms", "mtu", "nodes", "ns", "ok",
        "packets", "peer_errors", "peer_qpn", "peer_rx", "peer_tx", "ports",
        "psn", "qpn", "rate", "reads", "reason", "remote_id", "reordered",
        "rx", "rx_seq", "seq", "service_timeout", "short", "size", "slid",
        "status", "suppressed", "sweep", "switches", "to_lid", "to_port",
        "took_us", "trap", "try", "tx", "tx_seq", "usable_ports", "vendor",
        "vl"), values.NUMBER),
    "number": values.NUMBER,
    "signed": values.number(-1),
    "mb_s": values.DECIMAL,
    "on_off": one_of("0", "1"),
    "apr": one_of("accept", "reject"),
    "cable": values.CABLE,
    "node": values.NODE,
    "state": MIG,
    "mig": MIG,
    "qp_state": QP_STATE,
    "port_state": PORT_STATE,
    "sm_state": SM_STATE,
    "cause": one_of("reset", "software", "packet_with_migreq_0",
                    "packet_with_migreq_1", "retries_used_up",
                    "rnr_retries_used_up", "local_error", "remote_nak",
                    "responder_error", "cq_error"),
    "drop": one_of("bad-packet", "bad-smp", "bad-icrc", "link-down",
                   "port-state", "no-route", "same-port", "loop", "mtu",
                   "lifetime", "stalled", "vl15-full", "fault",
                   "not-for-us"),
    "speed": one_of("SDR", "DDR", "QDR"),
    "width": one_of("1x", "4x", "8x", "12x"),
    "capture": one_of("started", "stopped"),
    "rail": one_of("primary", "alternate", "lap"),
    "role": one_of("active", "passive"),
    "message": CM_MESSAGE,
    "kind": one_of("lost", "dup", "reordered", "corrupt", "short"),
    "lap_why": one_of("timeout", "crossed", "disconnect", "send"),
    "mig_why": one_of("command", "port_err", "sa_gid_out"),
    "dir": one_of("both", "out", "in"),
    "op": one_of("send", "write", "read"),
    "by": one_of("command", "peer", "error", "device"),
    "start_by": one_of("command", "peer"),
    "stop_by": one_of("command", "peer", "count"),
}

Fields = dict[str, Kind]


def fields(text: str, kinds: dict[str, Kind]) -> Fields:
    """The fields of a line of words, each NAME or NAME:KIND."""
    return {name: kinds[kind or name] for name, _, kind in
            (word.partition(":") for word in text.split())}


def _table(text: str, every: str = "") -> dict[str, Fields]:
    """Lines `EVENT: FIELD...`, indented ones go on; every: in all."""
    lines = " ".join(text.split("\n        ")).strip().splitlines()
    split = (line.partition(": ") for line in lines)
    return {name.strip(" :"): fields(f"{rest} {every}", KINDS)
            for name, _, rest in split}


CONSUMER = _table("""
    alternate_loaded: qpn port alt_port alt_dlid state
    apr_received: qpn port status text
    apr_sent: qpn port status text
    armed: qpn port state after_ms
    auto: lap:on_off rearm:on_off migrate:on_off notify:on_off apr mra:number
    bench: qpn op size count ns mb_s errno
    client_reregister: dev port
    cm_lost: kind:message port left
    cm_notified: qpn port peer_gid errno
    comm_est: qpn port what state
    command: cmd errno word value expected
    completion_error: qpn op:text status:signed text vendor
    connect_failed: why reason errno
    connected: qpn peer_qpn port peer_gid alt_port alt_peer_gid role state
    connecting: qpn service peer_gid alternate
    device_added: dev ports
    device_fatal: dev port
    device_removed: dev ports
    disconnected: qpn port by
    events_lost: count
    first_ack_after_migration: qpn tx_seq gap_ms
    first_message_after_migration: qpn rx_seq gap_ms
    gid_change: dev port
    lap_error: qpn port why:lap_why errno
    lap_received: qpn port alt_port alt_peer_gid
    lap_sent: qpn port alt_port alt_peer_gid try
    lid_change: dev port
    listening: service
    mark: text
    message_error: qpn kind expected:number got
    migrate_refused: qpn port errno state why:mig_why
    migrated_by_software: qpn port why:mig_why state
    module_loaded: version
    mra_received: qpn port service_timeout
    mra_sent: qpn port ms
    path_mig: qpn port old_port state dlid count
    path_mig_err: qpn port what state
    path_resolved: rail port slid dlid dgid mtu
    path_retry: rail port dgid errno try
    pkey_change: dev port
    port_active: dev port
    port_err: dev port
    qp_error: qpn port what state
    rearm_refused: qpn port errno state
    rearmed: qpn port alt_port alt_dlid state
    req_received: service peer_gid alternate
    reset:
    sa_gid_in: dev port gid
    sa_gid_out: dev port gid
    sa_subscribed: dev port trap
    sa_unsubscribed: dev port trap
    sm_change: dev port
    sq_drained: qpn port what state
    still_rearm: qpn port state after_ms
    traffic_started: qpn rate dir op count by:start_by
    traffic_stopped: qpn tx acked rx reads peer_tx peer_rx lost dup reordered
        corrupt short peer_errors ok
    traffic_stopping: qpn by:stop_by
    """, "seq")
# What the runner itself notes about a guest (lab.py).
RUNNER = _table("""
    booted: kernel:text
    driver_loaded: port_act_wait:number
    driver_unloaded:
    qemu_guest_panicked: action info
    qemu_reset: guest reason:text
    qemu_shutdown: guest reason:text
    qemu_stop:
    unreadable: line
    """)
ADAPTER = _table("""
    alt_loaded: qpn port dlid
    aqp1_defined: port qpn
    events_lost: count
    first_payload: qpn port dlid
    mig_refused: qpn port from:mig to:mig dlid cause
    mig_state: qpn port from:mig to:mig dlid cause
    port_state: port from:port_state to:port_state
    qp_error: qpn port from:qp_state to:qp_state cause
    qp_state: qpn port from:qp_state to:qp_state cause
    """)
_MAD = ("node port cable class method attribute status slid dlid tid "
        "delivered local_id remote_id reason text trap gid")
FABRIC = _table(f"""
    cable: cable plugged
    capture: file what:capture packets dropped failure
    events_lost: count
    link: cable up speed width a b
    mad: {_MAD}
    node_attached: node guid ports
    node_error: node why
    node_gone: node
    packet_dropped: node port cable why:drop text opcode vl slid dlid dest_qpn
        psn suppressed
    port_state: node port cable from:port_state to:port_state
    trap: {_MAD} lid
    """)
SM = _table("""
    events_lost: count
    sm_lid_changed: node:text port guid old:number lid
    sm_port_active: node:text port guid lid
    sm_port_gone: node:text port guid lid
    sm_report_sent: trap gid to:text to_port to_lid
    sm_state: old:sm_state new:sm_state
    sm_sweep_done: sweep nodes switches usable_ports errors took_us
    sm_took_over: lid nodes living
    """)


def events_of(source: str) -> dict[str, Fields]:
    """The events a source can have: NODE, NODE/hca, all, fabric or sm."""
    if source.endswith("/hca"):
        return ADAPTER
    return {"fabric": FABRIC, "sm": SM}.get(source, {**CONSUMER, **RUNNER})
