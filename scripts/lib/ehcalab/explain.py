# SPDX-License-Identifier: GPL-2.0-or-later
"""Why a queue pair did, or did not, migrate: the adapter's report in words.

The rules are those of the path migration state machine (IBTA 17.2.8): a QP
migrates by itself, or follows its peer, only when ARMED; it becomes ARMED by a
packet with MigReq 0 that arrives on the primary path after REARM was written.
What is said of packets is what the adapter counted: those that were whole and
for this queue pair.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .eventlog import EventLog
from .names import Names

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
Report = dict[str, Any]


class Explainer:
    """Explains the queue pairs of one adapter's report.

    at is when the report was made, in seconds since the run began; None: by
    itself, of a lab that stays.
    """

    def __init__(self, report: Report, names: Names | None = None,
                 at: float | None = None) -> None:
        self.report = report
        self.names = names or Names()
        self.at = at

    def lines(self) -> list[str]:
        """Sentences about each connected QP."""
        return [line for qp in self.report.get("qps", [])
                if "migration" in qp and qp["state"] != "RESET"
                and not qp.get("special") for line in self.qp(qp)]

    def _when(self, t_ns: int) -> str:
        """'at 5.282 s', as the timeline has it, or '1.3 s ago'."""
        ago = (self.report["t_ns"] - t_ns) / 1e9
        return (f"{ago:.3f} s ago" if self.at is None
                else f"at {self.at - ago:.3f} s")

    def _since(self, t_ns: int) -> str:
        ago = (self.report["t_ns"] - t_ns) / 1e9
        return f"for {ago:.3f} s" + (
            "" if self.at is None else f", since {self.at - ago:.3f} s")

    def _path(self, path: Report) -> str:
        return f"port {path['port']} to {self.names.lid(path['dlid'])}"

    def _alternate(self, qp: Report) -> str:
        if not qp["migration"]["alternate_loaded"]:
            return "no alternate path loaded"
        # After a migration both sets of fields have the same path.
        if qp["migration"]["migrations"] and all(
                qp["primary"][key] == qp["alternate"][key]
                for key in ("port", "dlid")):
            return "no alternate path loaded since its last migration"
        return f"alternate path {self._path(qp['alternate'])}"

    def qp(self, qp: Report) -> list[str]:
        """Sentences about one QP."""
        mig = qp["migration"]
        name = f"QP {qp['qpn']}"
        lines = [f"{name} is {mig['state']}, QP state {qp['state']}; primary "
                 f"path {self._path(qp['primary'])}, {self._alternate(qp)}; "
                 f"{_count(mig['migrations'], 'migration')} so far"]
        if "error_cause" in qp:
            lines.append(f"{name} {_why_error(qp, mig)}")
        lines.append(f"{name} " + {"REARM": self._why_rearm,
                                   "ARMED": self._why_armed}.get(
                                       mig["state"], _why_migrated)(qp, mig))
        last = next((h for h in reversed(mig["history"])
                     if h["from"] == "ARMED" and h["to"] == "MIGRATED"), None)
        if last is not None:
            lines.append(
                f"{name} migrated last {self._when(last['t_ns'])}, from port "
                f"{last['old_port']} to {last['new_port']}: "
                f"{CAUSES.get(last['cause'], last['cause'])}")
        if mig["refused"]:
            lines.append(f"{name} refused {_count(mig['refused'], 'packet')} "
                         "with MigReq 1: not from its alternate path")
        drops = [f"{count} {FAULTS.get(fault, fault)}"
                 for fault, count in mig["path_check_drops"].items() if count]
        if drops:
            lines.append(f"{name} dropped packets that failed the path check: "
                         + "; ".join(drops))
        return lines

    def _why_rearm(self, qp: Report, mig: Report) -> str:
        zero, one = mig["since_rearm_migreq_0"], mig["since_rearm_migreq_1"]
        if any(port["port"] == qp["primary"]["port"]
               and port["lid"] == qp["primary"]["dlid"]
               for port in self.report.get("ports", [])):
            why = "it is connected to its own port; such a QP never arms"
        elif zero + one == 0:
            why = "no packet has come since"
        elif zero == 0:
            why = (f"{_count(one, 'packet')} came since, all with MigReq 1: "
                   "the peer is MIGRATED, either not rearmed or gone over to "
                   "its other path already")
        else:
            why = (f"of the {_count(zero + one, 'packet')} that came since, "
                   f"{zero} had MigReq 0, but not one of these passed the "
                   "check of the primary path")
        return ("does not migrate, as it is not ARMED: it has been REARM "
                f"{self._since(mig['rearm_t_ns'])}, and {why}. Only a packet "
                "with MigReq 0 on the primary path arms it")

    def _why_armed(self, qp: Report, _mig: Report) -> str:
        if qp["state"] == "ERR":
            return "does not migrate: in error, it sends and takes nothing"
        idle = qp.get("una_psn") == qp.get("nxt_psn")
        retries = ("UC has no retries" if qp.get("service") == "UC" else
                   "it has sent nothing that is not acknowledged, so no "
                   "retries can run out" if idle else
                   "it waits for acknowledgements")
        return ("migrates when its retries run out, when a packet with MigReq "
                "1 comes on its alternate path, or by software. Now "
                + retries)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")


def _why_migrated(_qp: Report, mig: Report) -> str:
    if not mig["migrations"]:
        return ("does not migrate: it was never ARMED, as software has not "
                "written REARM")
    return ("does not migrate again: software has not written REARM since its "
            "last migration. Its packets carry MigReq 1 and arm nobody")


def _why_error(qp: Report, mig: Report) -> str:
    cause = qp["error_cause"]
    text = f"is in error: {CAUSES.get(cause, cause)}"
    if cause == "retries_used_up":
        text += (f". It was {mig['state']}; an ARMED QP would have migrated "
                 "instead")
    return text


def explain_report(node: str, report: Report, names: Names | None = None,
                   at: float | None = None) -> list[str]:
    """Sentences about each connected QP of an adapter's report."""
    lines = Explainer(report, names, at).lines()
    return [f"{node}: {line}" for line in lines or ["no connected QP"]]


def explain_node(node: str, ask: Callable[[str], Report], log: EventLog
                 ) -> list[str]:
    """The same of a guest in a run; its adapter's report goes into the log.

    So that what is said here can be held against what the adapter counted.
    """
    report = ask(node)
    event = log.add("lab", "adapter_report", {"node": node, "report": report})
    names = Names()
    for known in log.since(0):
        names.learn(known)
    return explain_report(node, report, names, event.t - log.started)
