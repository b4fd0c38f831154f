# SPDX-License-Identifier: GPL-2.0-or-later
"""The commands and the status object of the guests' consumer.

The consumer itself refuses what is wrong (docs/consumer.md); a scenario is to
hear of it before anything is started.  tests/runner/test_events.py compares
these tables with the module's source.
"""
from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from . import values
from .events import CM_MESSAGE, KINDS, MIG, QP_STATE, Fields, fields
from .values import Kind, Where, exactly, guess, is_gid, shown, whole

COMMAND_MAX = 1024                    # bytes, with GIDs put in
GID_MAX = "fe80:0000:0000:0000:0000:0000:0000:0000"


def _count(low: int, high: int) -> Kind:
    """A number as the kernel reads it: decimal or 0x."""
    def fits(text: str, _: Where) -> bool:
        if re.fullmatch("0x[0-9a-fA-F]{1,16}", text):
            return low <= int(text, 16) <= high
        # A leading 0 would be octal.
        return not re.match("0[0-9]", text) and \
            whole(text, low, high) is not None
    return Kind(fits, f"a number from {low} to {high}")


def _rail(none: bool) -> Kind:
    """PORT:DGID, or none."""
    def fits(text: str, where: Where) -> bool:
        port, _, gid = text.partition(":")
        return (none and text == "none") or \
            (whole(port, 1, where.ports) is not None and is_gid(gid))
    return Kind(fits, "PORT:GID, PORT a local one from 1 to {ports}, such as "
                "1:{{gid:bob/1}}" + (", or none" if none else ""))


_SERVICE = _count(1, values.U64_MAX)
_DEV = Kind(lambda text, _: 0 < len(text) < 64, "a name such as ehca0")
_SIZE = _count(64, 65536)
_DEPTH = _count(1, 256)
_RATE = Kind(lambda text, where: text == "max" or
             _count(1, 1000000).fits(text, where),
             "max, or a number from 1 to 1000000")
_SWITCH = exactly("off", "on")
_PORT = Kind(lambda text, where: _count(1, where.ports).fits(text, where),
             "a port from 1 to {ports}")
_MESSAGE = exactly(*CM_MESSAGE.choices(Where()))

# "!" marks a word that must be there.
COMMANDS: dict[str, Fields] = {
    "listen": {"service!": _SERVICE, "dev": _DEV, "size": _SIZE,
               "depth": _DEPTH},
    "connect": {"service!": _SERVICE, "primary!": _rail(False),
                "alternate": _rail(True), "dev": _DEV,
                "timeout": _count(1, 31), "retry": _count(0, 7),
                "rnr": _count(0, 7), "size": _SIZE, "depth": _DEPTH,
                "cmtimeout": _count(8, 24), "cmretries": _count(0, 15)},
    "traffic start": {"rate": _RATE, "dir": exactly("both", "out", "in"),
                      "op": exactly("send", "write", "read"),
                      "count": _count(1, 2 ** 63 - 1)},
    "traffic stop": {},
    "lap": {"port": _PORT, "dgid": values.GID},
    "auto": {"lap": _SWITCH, "rearm": _SWITCH, "migrate": _SWITCH,
             "notify": _SWITCH, "apr": exactly("accept", "reject"),
             "mra": _count(0, 30000)},
    "migrate": {},
    "rearm": {},
    "bench write": {"size": _count(1, 1 << 20), "count": _count(1, 1000000)},
    "lose": {"kind!": _MESSAGE, "count": _count(0, 1000000)},
    "mark": {},
    "disconnect": {},
    "reset": {},
}

_PATH = "valid:on_off port gid peer_gid"
_KINDS = {
    **KINDS,
    "running": KINDS["on_off"], "lap_wanted": KINDS["on_off"],
    "valid": KINDS["on_off"],
    "role": values.one_of("none", "active", "passive"),
    "state": values.one_of("idle", "listening", "resolving", "connecting",
                           "connected", "disconnecting", "error"),
    "cm_state": values.one_of(
        "IDLE", "LISTEN", "REQ_SENT", "REQ_RCVD", "MRA_REQ_SENT",
        "MRA_REQ_RCVD", "REP_SENT", "REP_RCVD", "MRA_REP_SENT",
        "MRA_REP_RCVD", "ESTABLISHED", "DREQ_SENT", "DREQ_RCVD", "TIMEWAIT",
        "UNKNOWN"),
    "lap_state": values.one_of(
        "UNINIT", "IDLE", "LAP_SENT", "LAP_RCVD", "MRA_LAP_SENT",
        "MRA_LAP_RCVD", "UNKNOWN"),
    "qp_state": QP_STATE, "mig": MIG,
}
_OBJECTS = {
    "": "version t_real_ns:number t_ns:number dev role state cm_state "
        "lap_state migrations:number lap_wanted",
    "qp": "qpn peer_qpn state:qp_state mig port dlid alt_port alt_dlid "
          "timeout:number retry:number",
    "path": _PATH, "alternate": _PATH, "old": _PATH,
    "traffic": "running rate tx acked rx reads tx_seq rx_seq peer_rx lost "
               "dup reordered corrupt short last_tx_ns:number "
               "last_ack_ns:number last_rx_ns:number",
    "auto": "lap:on_off rearm:on_off migrate:on_off notify:on_off apr "
            "mra:number",
    "cm_counters": "rx_dropped:number tx_failed:number connections:number",
    **{f"cm_counters.{group}": " ".join(
        f"{kind}:number" for kind in CM_MESSAGE.choices(Where()))
       for group in ("tx", "tx_retries", "rx", "rx_duplicates")},
}
# Dotted names.  `ports` is a list: `wait port` is there for it.
STATUS: Fields = {
    f"{where}.{name}".lstrip("."): kind
    for where, text in _OBJECTS.items()
    for name, kind in fields(text, _KINDS).items()}


def flat(data: dict[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """The values of a status object by their dotted names."""
    for key, value in data.items():
        if isinstance(value, dict):
            yield from flat(value, f"{above}{key}.")
        elif not isinstance(value, list):
            yield above + key, value


def check_command(text: str, where: Where) -> tuple[str, str] | None:
    """What is wrong with a command, and what would be right."""
    text = re.sub(r"\{gid:[^}]*\}", GID_MAX, text)
    if len(text.encode()) >= COMMAND_MAX:
        return (f"a command of {len(text.encode())} bytes",
                f"write at most {COMMAND_MAX - 1}")
    words = text.split()
    verb = next((v for v in (" ".join(words[:2]), words[0] if words else "")
                 if v in COMMANDS), None)
    if verb is None:
        return (f"the consumer has no command '{shown(' '.join(words[:2]))}'",
                guess(" ".join(words[:2]), COMMANDS))
    if verb == "mark":
        return None
    table = {name.rstrip("!"): kind for name, kind in COMMANDS[verb].items()}
    given: set[str] = set()
    for word in words[len(verb.split()):]:
        name, sep, value = word.partition("=")
        if name not in table:
            return (f"'{verb}' has no word '{shown(name)}'",
                    guess(name, table) if table else
                    "nothing stands behind it")
        if not sep:
            return f"'{name}' of '{verb}' has no value", f"write {name}=VALUE"
        if name in given:
            return f"'{verb}' has '{name}' twice", "leave one"
        given.add(name)
        right = table[name].wrong(value, where)
        if right:
            return f"bad value '{shown(value)}' of {name}", right
    for name in COMMANDS[verb]:
        if name.endswith("!") and name[:-1] not in given:
            return f"'{verb}' lacks {name[:-1]}=", f"add {name[:-1]}=VALUE"
    if verb == "lap" and len(given) == 1:
        return ("'lap' has only one of port= and dgid=",
                "write both, or neither")
    if verb == "traffic start" and "count" in given and \
            "op=read" in words:
        return "op=read with count=", "leave count, and stop by traffic stop"
    return None
