# SPDX-License-Identifier: GPL-2.0-or-later
"""Events as lines for people.

One line an event: seconds since the run began (to the millisecond), who, and
what happened in words.  Events whose words are None are left out of the
short timeline; the JSON lines have everything.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .eventlog import Event

Words = Callable[[dict[str, Any]], str]


class _Lenient(dict):
    """Fields that an event does not carry show as '?'."""

    def __missing__(self, key: str) -> str:
        return "?"


def _words(form: str) -> Words:
    return lambda data: form.format_map(_Lenient(data))


def _fault(data: dict[str, Any]) -> str:
    kinds = " ".join(f"{k}={v:g}" for k, v in data.items() if k != "cable")
    return f"FAULT on cable {data.get('cable', '?')}: {kinds or 'none'}"


def _updown(data: dict[str, Any]) -> str:
    return "up" if data.get("up") else "down"


# name -> words; the source decides which table is asked.
LAB: dict[str, Words] = {
    "fabric_started": _words("fabric started: {topology}, {hosts} hosts, "
                             "{switches} switches, {cables} cables"),
    "sm_started": _words("subnet manager started"),
    "sm_stopped": _words("subnet manager stopped"),
    "sm_killed": _words("subnet manager KILLED"),
    "guest_started": _words("guest {node} started"),
    "guest_stopped": _words("guest {node} stopped"),
    "guest_killed": _words("guest {node} KILLED"),
    "guest_deaf": _words("guest {node} does not power off; its QEMU is "
                         "stopped"),
    "step": _words("== {title}"),
    "pull": _words("PULL cable {cable}"),
    "restore": _words("RESTORE cable {cable}"),
    "fault": _fault,
    "consumer_command": _words("tell {node}: {command}"),
    "port_is": _words("port {port} is {state}"),
    "status_is": _words("{node}: {conditions}"),
    "ran": _words("{node}$ {command}"),
    "note": _words("-- {text}"),
    "explained": _words("why: {text}"),
    "failed": _words("FAILED {why}"),
}

FABRIC: dict[str, Words] = {
    "cable": lambda d: f"cable {d.get('cable', d.get('name', '?'))} is "
                       + ("in" if d.get("plugged") else "out"),
    "link": lambda d: f"link of cable {d.get('cable', '?')} "
                      f"({d.get('a', '?')} - {d.get('b', '?')}) is "
                      + _updown(d),
    "port_state": _words("switch port {node}/{port}: {from} -> {to}"),
    "node_attached": _words("{node} joined the fabric"),
    "node_gone": _words("{node} left the fabric"),
    "mad": lambda d: f"on {d.get('cable', '?')}: {d.get('class', '')} "
                     f"{d.get('attribute', d.get('attr', '?'))} LID "
                     f"{d.get('slid', '?')} -> {d.get('dlid', '?')}"
                     + (f", {d['text']}" if d.get("text") else ""),
    "trap": _words("trap {trap} from LID {lid}"),
}

SM: dict[str, Words] = {
    "sm_port_active": _words("port {node}/{port} (LID {lid}) is Active"),
    "sm_port_gone": _words("port {node}/{port} (LID {lid}) is gone"),
    "sm_state": _words("{old} -> {new}"),
    "sm_took_over": _words("took the subnet over, its own LID is {lid}"),
    "sm_sweep_done": _words("sweep done"),
    "sm_report_sent": _words("tells subscribers: trap {trap} {gid}"),
}

HCA: dict[str, Words] = {
    "port_state": _words("adapter port {port}: {from} -> {to}"),
    "aqp1_defined": _words("QP1 of port {port} defined"),
    "mig_state": lambda d: f"QP {d.get('qpn', '?')}: {d.get('from', '?')} -> "
                           f"{d.get('to', '?')} ({d.get('cause', '?')})"
                           + (f", port {d['port']}" if d.get("port") else ""),
    "mig_refused": _words("QP {qpn}: migration request REFUSED: it failed "
                          "the path check"),
    "alt_loaded": _words("QP {qpn}: alternate path loaded: port {port}, "
                         "DLID {dlid}"),
    "first_payload": _words("QP {qpn}: first payload over the new path, "
                            "port {port}"),
    "qp_error": _words("QP {qpn} in ERROR: {cause}"),
}

GUEST: dict[str, Words] = {
    "booted": _words("booted, kernel {kernel}"),
    "driver_loaded": _words("driver, CM and consumer loaded"),
    "driver_unloaded": _words("driver, CM and consumer unloaded"),
    "port_err": _words("port {port}: PORT_ERR"),
    "port_active": _words("port {port}: PORT_ACTIVE"),
    "sa_subscribed": _words("port {port}: subscribed to trap {trap}"),
    "sa_gid_out": _words("SA notice: {gid} is OUT of service"),
    "sa_gid_in": _words("SA notice: {gid} is in service"),
    "listening": _words("listens on service {service}"),
    "path_resolved": _words("{rail} path: port {port}, LID {slid} -> {dlid}"),
    "req_received": _words("REQ received, service {service}"),
    "connected": _words("CONNECTED: QP {qpn}, port {port}, alternate port "
                        "{alt_port}, {state}"),
    "connect_failed": _words("connecting FAILED: {why}"),
    "path_mig": _words("PATH_MIG: QP {qpn} now on port {port} (was "
                       "{old_port})"),
    "path_mig_err": _words("PATH_MIG_ERR: QP {qpn}"),
    "cm_notified": _words("CM uses port {port} now"),
    "lap_sent": _words("LAP sent: alternate port {alt_port} (try {try})"),
    "lap_received": _words("LAP received: alternate port {alt_port}"),
    "lap_error": _words("LAP not answered: {why}"),
    "mra_sent": _words("MRA sent: APR in {ms} ms"),
    "mra_received": _words("MRA received: the answer takes longer"),
    "cm_lost": _words("{kind} lost before the CM saw it, {left} more to lose"),
    "apr_sent": _words("APR sent: {text}"),
    "apr_received": _words("APR received: {text}"),
    "alternate_loaded": _words("alternate loaded: port {alt_port}, not "
                               "rearmed"),
    "rearmed": _words("alternate loaded: port {alt_port}; state {state}"),
    "armed": _words("ARMED"),
    "still_rearm": _words("still REARM after {after_ms} ms: no packet with "
                          "MigReq 0 came"),
    "migrated_by_software": _words("wrote MIGRATED because of {why}"),
    "first_message_after_migration": _words(
        "first message received over the new path: number {rx_seq}"),
    "first_ack_after_migration": _words(
        "first message acknowledged over the new path: number {tx_seq}"),
    "message_error": _words("MESSAGE {kind}: expected {expected}, got {got}"),
    "completion_error": _words("completion error: {op}: {text}"),
    "qp_error": _words("QP {qpn} ERROR: {what}"),
    "traffic_started": _words("traffic started ({dir}, rate {rate})"),
    "traffic_stopped": _words(
        "traffic stopped: sent {tx}, received {rx}; lost {lost}, doubled "
        "{dup}, reordered {reordered}, corrupt {corrupt}"),
    "bench": _words("{op} of {size} bytes: {mb_s} MB/s"),
    "disconnected": _words("disconnected by {by}"),
    "mark": _words("{text}"),
}

# In the file and the JSON lines only: they would drown the rest on a screen.
QUIET = {("fabric", "port_state"), ("fabric", "packet_dropped"),
         ("sm", "sm_sweep_done"), ("hca", "qp_state"), ("guest", "command"),
         ("guest", "module_loaded"), ("guest", "device_added"),
         ("guest", "lid_change"), ("guest", "sm_change"),
         ("guest", "pkey_change"), ("guest", "client_reregister"),
         ("guest", "comm_est"), ("guest", "gid_change"),
         ("guest", "sa_unsubscribed"), ("fabric", "mad"),
         ("sm", "sm_port_gone"), ("sm", "sm_report_sent"),
         ("fabric", "trap"), ("fabric", "capture"), ("hca", "alt_loaded")}


def kind_of(source: str) -> str:
    """Which table an event's source belongs to."""
    if source in ("lab", "fabric", "sm"):
        return source
    return "hca" if source.endswith("/hca") else "guest"


TABLES = {"lab": LAB, "fabric": FABRIC, "sm": SM, "hca": HCA, "guest": GUEST}


def words_of(event: Event) -> str:
    """What happened, in words."""
    words = TABLES[kind_of(event.source)].get(event.name)
    if words is not None:
        return words(event.data)
    rest = " ".join(f"{k}={v}" for k, v in event.data.items())
    return f"{event.name} {rest}".rstrip()


def line_of(event: Event, started: float, everything: bool = False
            ) -> str | None:
    """One line of the timeline; None: not for the screen."""
    kind = kind_of(event.source)
    if not everything and (kind, event.name) in QUIET:
        return None
    if kind == "lab" and event.name == "step":
        return f"\n{event.t - started:9.3f}  {words_of(event)}"
    return f"{event.t - started:9.3f}  {event.source:<11} {words_of(event)}"
