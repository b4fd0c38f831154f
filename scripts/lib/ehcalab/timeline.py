# SPDX-License-Identifier: GPL-2.0-or-later
"""Events as lines for people.

One line an event: seconds since the run began (to the millisecond), who, and
what happened in words.

Theory of operation
  A Teller is given all events, in the order in which they are to be told, and
  learns from them whose GIDs and LIDs they are and which step is played.  Each
  event has words in a table of its source: a form with the event's fields in
  braces, or a function where the words depend on a field.  `{field:kind}`
  puts a value into words (WORDS, Form.kinds).  Events in QUIET are not shown
  on the screen unless asked for: they would drown the rest.

  An event can carry anything, or nothing: nothing here may raise, and what
  comes out has passed clean().
"""
from __future__ import annotations

import errno
import os
import string
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .clean import clean
from .eventlog import Event
from .names import Names, number

Data = dict[str, Any]
Words = str | Callable[[Data], str]

TRAPS = {64: "GID in service", 65: "GID out of service",
         66: "multicast group created", 67: "multicast group deleted",
         128: "link state changed", 144: "capability mask changed",
         256: "bad M_Key", 257: "bad P_Key", 258: "bad Q_Key"}
CLASSES = {"ComMgt": "CM", "SubnAdm": "SA", "SubnLID": "SM", "SubnDir": "SM"}
# kind of field -> a part's own words -> people's
WORDS = {
    "rail": {"primary": "primary path", "alternate": "alternate path",
             "lap": "new alternate path"},
    "dir": {"both": "both ways", "out": "sending only",
            "in": "receiving only"},
    "wrong": {"dup": "doubled", "short": "too short"},
    "by": {"command": "this side's command", "peer": "the peer",
           "error": "an error", "device": "its device, which goes",
           "count": "its count, which is reached"},
    "why": {"command": "a command", "port_err": "its port's PORT_ERR",
            "sa_gid_out": "the SA's notice that a port is out of service"},
}
LAP_ERRORS = {"timeout": "LAP not answered: no APR came in time",
              "crossed": "LAP given up: it crossed one of the peer",
              "disconnect": "LAP given up: the connection ends",
              "send": "LAP or its answer could not be sent"}


def _errno(value: object) -> str:
    code = number(value)
    if code is None or code not in errno.errorcode:
        return f"errno {value}"
    return f"{errno.errorcode[code]} ({os.strerror(code)})"


def _trap(value: object) -> str:
    words = TRAPS.get(number(value) or 0)
    return f"trap {value}" + (f" ({words})" if words else "")


def cause(value: object) -> str:
    """An adapter's cause in words."""
    return str(value).replace("_", " ").replace("migreq", "MigReq")


def _alternate(value: object) -> str:
    return f"alternate port {value}" if value else "no alternate path"


def _milliseconds(value: object) -> str:
    # IBTA 12.6.6: a response time is 4.096 us times two to the field's value.
    code = number(value)
    if code is None or not 0 <= code < 32:
        return f"{value}"
    return f"{4.096e-3 * 2 ** code:.0f} ms"


class Form(string.Formatter):
    """Puts an event's fields into a form, whatever they are."""

    def __init__(self, names: Names) -> None:
        self.kinds: dict[str, Callable[[object], str]] = {
            "gid": names.gid, "port": names.port, "lid": names.lid,
            "errno": _errno, "trap": _trap, "cause": cause,
            "alternate": _alternate, "response": _milliseconds,
            "rate": lambda v: f"{v} a second" if v else "as fast as it goes",
        }

    def get_value(self, key: int | str, args: Sequence[Any],
                  kwargs: Mapping[str, Any]) -> Any:
        """Fields that an event does not carry show as '?'."""
        return kwargs.get(str(key), "?")

    def format_field(self, value: Any, format_spec: str) -> str:
        """A field, by its kind."""
        if format_spec in WORDS:
            return clean(WORDS[format_spec].get(str(value), value))
        kind = self.kinds.get(format_spec)
        return clean(value if kind is None else kind(value))


def _either(key: str, with_it: str, without: str) -> Words:
    """One form if the event carries a field, another if not."""
    return lambda data: with_it if data.get(key) is not None else without


def _fault(data: Data) -> str:
    return "FAULT on cable {cable}: " + (" ".join(
        f"{kind} {{{kind}}}" for kind in data if kind != "cable") or "none")


def _mad(data: Data) -> str:
    return ("on {cable}: " + CLASSES.get(str(data.get("class")), "{class}")
            + " {attribute} from {slid:lid} to {dlid:lid}"
            + (": {text}" if data.get("text") else "")
            + (" {gid:gid}" if data.get("gid") else "")
            + (", status {status}" if data.get("status") else "")
            + (", LOST on the way" if data.get("delivered") is False else ""))


def _dropped(data: Data) -> str:
    return ("DROPPED on cable {cable}: {text}"
            + (": {opcode} from {slid:lid} to {dlid:lid}, QP {dest_qpn}, "
               "PSN {psn}" if data.get("opcode") else "")
            + ("; {suppressed} more were not told"
               if data.get("suppressed") else ""))


def _stopped(data: Data) -> str:
    wrong = [f"{{{key}}} {words}" for key, words in (
        ("lost", "lost"), ("dup", "doubled"), ("reordered", "reordered"),
        ("corrupt", "corrupt"), ("short", "too short"),
        ("peer_errors", "errors of the peer")) if data.get(key)]
    return ("traffic stopped: sent {tx}, received {rx}; "
            + (", ".join(wrong) if wrong else
               "none lost, doubled, reordered or corrupt"))


def _auto(data: Data) -> str:
    switches = ", ".join(f"{key} {'on' if data.get(key) else 'off'}"
                         for key in ("lap", "rearm", "migrate", "notify"))
    return f"policies: {switches}, APR {{apr}}, MRA {{mra}} ms"


def _command(data: Data) -> str:
    if not data.get("errno"):
        return "command done: {cmd}"
    return ("command REFUSED: {cmd}: {errno:errno}"
            + (", {word} is '{value}'; expected {expected}"
               if data.get("expected") else ""))


# name -> words; the source decides which table is asked.
LAB: dict[str, Words] = {
    "fabric_started": "fabric started: {topology}, {hosts} hosts, "
                      "{switches} switches, {cables} cables",
    "sm_started": "subnet manager started",
    "sm_stopped": "subnet manager stopped",
    "sm_killed": "subnet manager KILLED",
    "guest_started": "guest {node} started",
    "guest_stopped": "guest {node} stopped",
    "guest_killed": "guest {node} KILLED",
    "guest_deaf": "guest {node} does not power off; its QEMU is stopped",
    "step": "{title}",
    "pull": "PULL cable {cable}",
    "restore": "RESTORE cable {cable}",
    "fault": _fault,
    "lid_set": "the subnet manager's file now says LID {lid} for {port}",
    "consumer_command": "tell {node}: {command}",
    "port_is": "port {port} is {state}",
    "status_is": "{node}: {conditions}",
    "ran": "{node}$ {command}",
    "note": "-- {text}",
    "adapter_report": "adapter of {node} asked for its report",
    "explained": "why: {text}",
    "failed": "FAILED {why}",
}

FABRIC: dict[str, Words] = {
    "cable": lambda d: "cable {cable} is "
                       + ("in" if d.get("plugged") else "out"),
    "capture": _either("failure", "capture {what}: {failure}",
                       "capture {what}: {packets} packets, {dropped} lost"),
    "events_lost": "{count} events were LOST: too many at once",
    "link": lambda d: "link of cable {cable} ({a} - {b}) is "
                      + ("up" if d.get("up") else "down"),
    "mad": _mad,
    "node_attached": "{node} joined the fabric",
    "node_error": "{node} was refused, or broke the protocol: {why}",
    "node_gone": "{node} left the fabric",
    "packet_dropped": _dropped,
    "port_state": "switch port {node}/{port}: {from} -> {to}",
    "trap": "{trap:trap} from {node}, {lid:lid}",
}

SM: dict[str, Words] = {
    "events_lost": "{count} events were LOST: too many at once",
    "sm_lid_changed": "port {node}/{port} says LID {old}; it gets LID {lid}",
    "sm_port_active": "port {node}/{port} (LID {lid}) is Active",
    "sm_port_gone": "port {node}/{port} (LID {lid}) is gone",
    "sm_report_sent": "tells {to} port {to_port}: {trap:trap}: {gid:gid}",
    "sm_state": "{old} -> {new}",
    "sm_sweep_done": "sweep done: {usable_ports} usable ports",
    "sm_took_over": "took the subnet over, its own LID is {lid}",
}

HCA: dict[str, Words] = {
    "alt_loaded": "QP {qpn}: alternate path loaded: port {port} to "
                  "{dlid:lid}",
    "aqp1_defined": "QP1 of port {port} defined",
    "events_lost": "{count} events were LOST: too many at once",
    "first_payload": "QP {qpn}: first payload over the new path, port {port}",
    "mig_refused": "QP {qpn}: a request to migrate, from {dlid:lid} on port "
                   "{port}, REFUSED: not its alternate path",
    "mig_state": "QP {qpn}: {from} -> {to} ({cause:cause}), port {port}",
    "port_state": "adapter port {port}: {from} -> {to}",
    "qp_error": "QP {qpn} in ERROR: {cause:cause}",
    "qp_state": "QP {qpn}: {from} -> {to} ({cause:cause})",
}

GUEST: dict[str, Words] = {
    # What the runner notes.
    "booted": "booted, kernel {kernel}",
    "driver_loaded": "driver, CM and consumer loaded",
    "driver_unloaded": "driver, CM and consumer unloaded",
    "qemu_guest_panicked": "its kernel PANICKED",
    "qemu_reset": "its machine was reset",
    "qemu_shutdown": "its machine shut down ({reason})",
    "qemu_stop": "its machine is stopped",
    "unreadable": "an event that cannot be read: {line}",
    # What its consumer tells.
    "alternate_loaded": "loaded {alt_port:alternate}, not rearmed; the QP is "
                        "{state}",
    "apr_received": "APR received: {text}",
    "apr_sent": "APR sent: {text}",
    "armed": "ARMED: QP {qpn}, {after_ms} ms after REARM",
    "auto": _auto,
    "bench": _either("errno", "{op} of {size} bytes FAILED: {errno:errno}",
                     "{op} of {size} bytes, {count} times: {mb_s} MB/s"),
    "client_reregister": "port {port}: CLIENT_REREGISTER, the SM wants "
                         "subscriptions anew",
    "cm_lost": "{kind} lost before the CM saw it, {left} more to lose",
    "cm_notified": _either("errno", "the CM could not be told of port {port}: "
                           "{errno:errno}", "CM uses port {port} now"),
    "comm_est": "COMM_EST: QP {qpn} got a message before RTU",
    "command": _command,
    "completion_error": "completion error: {op}: {text}",
    "connect_failed": lambda d: "connecting FAILED: {why}" + (
        " (reason {reason} of REJ)" if "reason" in d else ", {errno:errno}"),
    "connected": "CONNECTED: QP {qpn} on port {port} with QP {peer_qpn} of "
                 "{peer_gid:port}, {alt_port:alternate}, {state}",
    "connecting": "REQ to {peer_gid:port}, service {service}",
    "device_added": "device {dev} with {ports} ports is there",
    "device_fatal": "device {dev} FAILED: DEVICE_FATAL",
    "device_removed": "device {dev} is gone",
    "disconnected": "disconnected by {by:by}",
    "events_lost": "{count} events were LOST: their reader was too slow",
    "first_ack_after_migration":
        "first message acknowledged over the new path: number {tx_seq}",
    "first_message_after_migration":
        "first message received over the new path: number {rx_seq}",
    "gid_change": "port {port}: GID_CHANGE",
    "lap_error": lambda d: LAP_ERRORS.get(str(d.get("why")), "LAP: {why}")
                 + (": {errno:errno}" if "errno" in d else ""),
    "lap_received": "LAP received: {alt_port:alternate} to "
                    "{alt_peer_gid:port}",
    "lap_sent": "LAP sent: {alt_port:alternate} to {alt_peer_gid:port} "
                "(try {try})",
    "lid_change": "port {port}: LID_CHANGE",
    "listening": "listens on service {service}",
    "mark": "{text}",
    "message_error": "MESSAGE {kind:wrong}: expected {expected}, got {got}",
    "migrate_refused": "MIGRATED could not be written: {errno:errno}; the QP "
                       "is {state}",
    "migrated_by_software": "wrote MIGRATED because of {why:why}",
    "module_loaded": "consumer loaded, version {version}",
    "mra_received": "MRA received: the answer takes up to "
                    "{service_timeout:response} longer",
    "mra_sent": "MRA sent: APR in {ms} ms",
    "path_mig": "PATH_MIG: QP {qpn} now on port {port} (was {old_port})",
    "path_mig_err": "PATH_MIG_ERR: QP {qpn} refused a request to migrate",
    "path_resolved": "{rail:rail}: port {port}, {slid:lid} to {dlid:lid}",
    "path_retry": "{rail:rail}: the SA has none from port {port} to "
                  "{dgid:port} yet (try {try}): {errno:errno}",
    "pkey_change": "port {port}: PKEY_CHANGE",
    "port_active": "port {port}: PORT_ACTIVE",
    "port_err": "port {port}: PORT_ERR",
    "qp_error": "QP {qpn} ERROR: {what}",
    "rearm_refused": "REARM could not be written: {errno:errno}; the QP is "
                     "{state}",
    "rearmed": "loaded {alt_port:alternate}; the QP is {state}",
    "req_received": "REQ received from {peer_gid:port}, service {service}",
    "reset": "consumer reset",
    "sa_gid_in": "SA notice on port {port}: {gid:gid} is in service",
    "sa_gid_out": "SA notice on port {port}: {gid:gid} is OUT of service",
    "sa_subscribed": "port {port}: subscribed to {trap:trap}",
    "sa_unsubscribed": "port {port}: subscription to {trap:trap} to be "
                       "renewed",
    "sm_change": "port {port}: SM_CHANGE",
    "sq_drained": "SQ_DRAINED: QP {qpn}",
    "still_rearm": "still REARM after {after_ms} ms: no packet with MigReq 0 "
                   "came",
    "traffic_started": "traffic started ({dir:dir}, {rate:rate})",
    "traffic_stopped": _stopped,
    "traffic_stopping": "traffic is stopped by {by:by}",
}

# In timeline.txt and with -v only: they would drown the rest on a screen, or
# are told there by another event (a pull, the adapter's first payload).
# What was explained is repeated, in order, at the end of a run.
QUIET = frozenset({
    ("lab", "adapter_report"), ("lab", "explained"),
    ("fabric", "cable"), ("fabric", "capture"), ("fabric", "mad"),
    ("fabric", "packet_dropped"), ("fabric", "port_state"),
    ("fabric", "trap"),
    ("sm", "sm_port_gone"), ("sm", "sm_report_sent"), ("sm", "sm_sweep_done"),
    ("hca", "alt_loaded"), ("hca", "aqp1_defined"), ("hca", "qp_state"),
    ("guest", "auto"), ("guest", "client_reregister"),
    ("guest", "cm_notified"), ("guest", "comm_est"), ("guest", "command"),
    ("guest", "device_added"), ("guest", "first_ack_after_migration"),
    ("guest", "first_message_after_migration"),
    ("guest", "gid_change"), ("guest", "lid_change"),
    ("guest", "module_loaded"), ("guest", "pkey_change"),
    ("guest", "sa_subscribed"), ("guest", "sa_unsubscribed"),
    ("guest", "sm_change"),
    ("guest", "traffic_stopping")})


def kind_of(source: str) -> str:
    """Which table an event's source belongs to."""
    if source in ("lab", "fabric", "sm"):
        return source
    return "hca" if source.endswith("/hca") else "guest"


TABLES = {"lab": LAB, "fabric": FABRIC, "sm": SM, "hca": HCA, "guest": GUEST}


class Teller:
    """Tells the events of one run, one after the other."""

    def __init__(self) -> None:
        self.names = Names()
        self.form = Form(self.names)
        self.step = 0

    def learn(self, event: Event) -> None:
        """Take in an event that is not told, or before it is."""
        self.names.learn(event)
        self.step += (event.source, event.name) == ("lab", "step")

    def words(self, event: Event) -> str:
        """What happened, in words."""
        words = TABLES[kind_of(event.source)].get(event.name)
        if words is None:
            # No part of ours has such an event; a guest can make one up.
            return clean(f"{event.name} " + " ".join(
                f"{key}={value}" for key, value in event.data.items()))
        form = words if isinstance(words, str) else words(event.data)
        return clean(self.form.vformat(form, (), event.data))

    def line(self, event: Event, started: float, everything: bool = False
             ) -> str | None:
        """One line of the timeline; None: not for the screen."""
        self.learn(event)
        kind = kind_of(event.source)
        if not everything and (kind, event.name) in QUIET:
            return None
        time = f"{event.t - started:9.3f}"
        if (kind, event.name) == ("lab", "step"):
            return f"\n{time}  == Step {self.step}: {self.words(event)}"
        return f"{time}  {clean(event.source):<11} {self.words(event)}"
