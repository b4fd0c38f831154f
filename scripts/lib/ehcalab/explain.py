# SPDX-License-Identifier: GPL-2.0-or-later
"""Why a queue pair did, or did not, migrate: the adapter's report in words.

The rules are those of the path migration state machine: a QP migrates by
itself, or follows its peer, only when ARMED; it becomes ARMED by a packet
with MigReq 0 that arrives on the primary path after REARM was written.
"""
from __future__ import annotations

from typing import Any

CAUSES = {
    "software": "software wrote it",
    "reset": "the QP was reset",
    "packet_with_migreq_0": "a packet with MigReq 0 came on the primary path",
    "packet_with_migreq_1": "the peer migrated (a packet with MigReq 1 came "
                            "on the alternate path)",
    "retries_used_up": "the retries on the primary path were used up",
    "rnr_retries_used_up": "the peer was never ready to receive",
    "local_error": "of a bad work request",
    "remote_nak": "the peer refused a request",
    "responder_error": "a request of the peer could not be carried out",
    "cq_error": "its completion queue overflowed",
}
FAULTS = {
    "no_alternate": "no alternate path was loaded",
    "grh": "with or without GRH, unlike the path",
    "gid": "another GID than the path's",
    "pkey": "another P_Key than the path's",
    "slid": "from another LID than the path's",
    "port": "on another port than the path's",
}


def explain_report(node: str, report: dict[str, Any]) -> list[str]:
    """Sentences about each connected QP of an adapter's report."""
    lines = []
    for qp in report.get("qps", []):
        if "migration" in qp and qp["state"] != "RESET" and \
                not qp.get("special"):
            lines += [f"{node}: {text}" for text in
                      explain_qp(qp, report["t_ns"])]
    return lines or [f"{node}: no connected QP"]


def _path(path: dict[str, Any]) -> str:
    return f"port {path['port']} to LID {path['dlid']}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")


def explain_qp(qp: dict[str, Any], now_ns: int) -> list[str]:
    """Sentences about one QP."""
    mig = qp["migration"]
    name = f"QP {qp['qpn']}"
    lines = [f"{name} is {mig['state']} ({qp['state']}); primary "
             f"{_path(qp['primary'])}"
             + (f", alternate {_path(qp['alternate'])}"
                if mig["alternate_loaded"] else ", no alternate was loaded")
             + f"; {_count(mig['migrations'], 'migration')} so far"]
    if mig["state"] == "REARM":
        lines.append(f"{name} {_why_rearm(mig, now_ns)}")
    elif mig["state"] == "MIGRATED" and not mig["migrations"]:
        lines.append(f"{name} was never ARMED: software has not written "
                     "REARM, so nothing migrates it")
    elif mig["state"] == "MIGRATED":
        lines.append(f"{name} has not been rearmed since its last migration; "
                     "its packets carry MigReq 1")
    last = next((h for h in reversed(mig["history"])
                 if h["from"] == "ARMED" and h["to"] == "MIGRATED"), None)
    if last is not None:
        lines.append(
            f"{name} migrated last {(now_ns - last['t_ns']) / 1e9:.3f} s ago, "
            f"port {last['old_port']} to {last['new_port']}, because "
            f"{CAUSES.get(last['cause'], last['cause'])}")
    if mig["refused"]:
        lines.append(f"{name} refused {mig['refused']} packets with MigReq 1: "
                     "they did not fit its alternate path")
    drops = [f"{count} {FAULTS.get(fault, fault)}"
             for fault, count in mig["path_check_drops"].items() if count]
    if drops:
        lines.append(f"{name} dropped packets that failed the path check: "
                     + "; ".join(drops))
    if "error_cause" in qp:
        lines.append(_why_error(name, qp, mig))
    return lines


def _why_rearm(mig: dict[str, Any], now_ns: int) -> str:
    since = f"has been REARM for {(now_ns - mig['rearm_t_ns']) / 1e9:.3f} s: "
    zero, one = mig["since_rearm_migreq_0"], mig["since_rearm_migreq_1"]
    if zero + one == 0:
        return (since + "no packet has come since, and only a packet with "
                "MigReq 0 on the primary path arms it; until then it does "
                "not migrate and gets no PATH_MIG")
    if zero == 0:
        return (since + f"{_count(one, 'packet')} came since, all with MigReq "
                "1: the peer has not rearmed, so it is not armed either")
    return (since + f"{_count(zero, 'packet')} with MigReq 0 came since, but "
            "none passed the check of the primary path: the peer has migrated "
            "and sends by the other path")


def _why_error(name: str, qp: dict[str, Any], mig: dict[str, Any]) -> str:
    cause = qp["error_cause"]
    text = f"{name} is in error: {CAUSES.get(cause, cause)}"
    if cause == "retries_used_up":
        text += (f"; it was {mig['state']}, and only an ARMED queue pair "
                 "migrates instead")
    return text
