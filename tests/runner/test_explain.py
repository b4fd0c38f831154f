# SPDX-License-Identifier: GPL-2.0-or-later
"""Each reason for a migration that did not happen gets its own sentence."""
import sys
import unittest
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts" / "lib"))

from ehcalab.eventlog import EventLog  # noqa: E402
from ehcalab.explain import explain_node, explain_report  # noqa: E402


def report(**migration: Any) -> dict[str, Any]:
    """A report of an adapter with one RC QP."""
    path = {"port": 1, "dlid": 4}
    whole = {"state": "ARMED", "alternate_loaded": True, "migrations": 0,
             "refused": 0, "rearm_t_ns": 1_000_000_000,
             "since_rearm_migreq_0": 0, "since_rearm_migreq_1": 0,
             "since_rearm_qualifying": 0, "history": [],
             "path_check_drops": {"slid": 0, "port": 0}}
    whole.update(migration)
    return {"t_ns": 3_000_000_000, "ports": [{"port": 1, "lid": 9}], "qps": [
        {"qpn": 7, "state": "RTS", "special": "QP1"},
        {"qpn": 17, "state": "RTS", "primary": path, "alternate": path,
         "una_psn": 5, "nxt_psn": 5, "migration": whole}]}


MIGRATED = [{"t_ns": 2_500_000_000, "from": "ARMED", "to": "MIGRATED",
             "cause": "retries_used_up", "old_port": 1, "new_port": 2,
             "dlid": 5}]


class Explain(unittest.TestCase):
    """explain_report() on reports of each kind."""

    def text(self, one: dict[str, Any], at: float | None = None) -> str:
        return "\n".join(explain_report("alice", one, at=at))

    def test_rearm_without_a_packet(self) -> None:
        said = self.text(report(state="REARM"))
        self.assertIn("REARM for 2.000 s, and no packet has come since", said)
        self.assertNotIn("QP 7", said)

    def test_rearm_with_peer_that_is_migrated(self) -> None:
        # Not rearmed, or gone over already: the packets cannot tell.
        said = self.text(report(state="REARM", since_rearm_migreq_1=3))
        self.assertIn("3 packets came since, all with MigReq 1", said)
        self.assertIn("either not rearmed or gone over", said)

    def test_rearm_and_packets_on_another_path(self) -> None:
        said = self.text(report(state="REARM", since_rearm_migreq_0=1,
                                since_rearm_migreq_1=2,
                                path_check_drops={"slid": 1}))
        self.assertIn("of the 3 packets that came since, 1 had MigReq 0, but "
                      "not one of these passed", said)
        self.assertIn("1 from another LID", said)

    def test_rearm_on_its_own_port(self) -> None:
        one = report(state="REARM", since_rearm_migreq_0=8)
        one["qps"][1]["primary"] = {"port": 1, "dlid": 9}
        self.assertIn("connected to its own port", self.text(one))

    def test_never_armed(self) -> None:
        self.assertIn("was never ARMED", self.text(report(state="MIGRATED")))

    def test_armed_and_idle(self) -> None:
        one = report()
        self.assertIn("nothing that is not acknowledged", self.text(one))
        one["qps"][1]["nxt_psn"] = 6
        self.assertIn("waits for acknowledgements", self.text(one))
        one["qps"][1]["state"] = "ERR"
        self.assertIn("does not migrate: in error", self.text(one))

    def test_last_migration(self) -> None:
        one = report(state="MIGRATED", migrations=1, history=MIGRATED)
        self.assertIn("migrated last 0.500 s ago, from port 1 to 2: the "
                      "retries", self.text(one))
        self.assertIn("does not migrate again", self.text(one))
        self.assertIn("no alternate path loaded since", self.text(one))
        one["qps"][1]["alternate"] = {"port": 2, "dlid": 4}
        self.assertIn("alternate path port 2 to LID 4", self.text(one))

    def test_times_of_a_run(self) -> None:
        said = self.text(report(state="REARM", history=MIGRATED), at=12.0)
        self.assertIn("for 2.000 s, since 10.000 s", said)
        self.assertIn("migrated last at 11.500 s", said)
        self.assertNotIn("ago", said)

    def test_error_while_not_armed(self) -> None:
        one = report(state="REARM")
        one["qps"][1].update(state="ERR", error_cause="retries_used_up")
        self.assertIn("It was REARM; an ARMED QP would have", self.text(one))

    def test_nothing_connected(self) -> None:
        self.assertEqual(explain_report("bob", {"t_ns": 0, "qps": []}),
                         ["bob: no connected QP"])

    def test_in_a_run(self) -> None:
        log = EventLog()
        log.add("fabric", "node_attached", {"node": "bob", "ports": 2,
                                            "guid": "0x100"})
        log.add("sm", "sm_port_active", {"node": "bob", "port": 1, "lid": 4,
                                         "guid": "0x101"})
        lines = explain_node("alice", lambda node: report(), log)
        self.assertIn("primary path port 1 to LID 4 (bob port 1)", lines[0])
        self.assertEqual(log.events[-1].data["report"], report())


if __name__ == "__main__":
    unittest.main()
