# SPDX-License-Identifier: GPL-2.0-or-later
"""Each reason for a migration that did not happen gets its own sentence."""
import sys
import unittest
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts" / "lib"))

from ehcalab.explain import explain_report  # noqa: E402


def report(**migration: Any) -> dict[str, Any]:
    """A report of an adapter with one RC QP."""
    path = {"port": 1, "dlid": 4}
    whole = {"state": "ARMED", "alternate_loaded": True, "migrations": 0,
             "refused": 0, "rearm_t_ns": 1_000_000_000,
             "since_rearm_migreq_0": 0, "since_rearm_migreq_1": 0,
             "since_rearm_qualifying": 0, "history": [],
             "path_check_drops": {"slid": 0, "port": 0}}
    whole.update(migration)
    return {"t_ns": 3_000_000_000, "qps": [
        {"qpn": 7, "state": "RTS", "special": "QP1"},
        {"qpn": 17, "state": "RTS", "primary": path, "alternate": path,
         "migration": whole}]}


class Explain(unittest.TestCase):
    """explain_report() on reports of each kind."""

    def text(self, one: dict[str, Any]) -> str:
        return "\n".join(explain_report("alice", one))

    def test_rearm_without_a_packet(self) -> None:
        said = self.text(report(state="REARM"))
        self.assertIn("REARM for 2.000 s: no packet has come", said)
        self.assertNotIn("QP 7", said)

    def test_rearm_with_unarmed_peer(self) -> None:
        said = self.text(report(state="REARM", since_rearm_migreq_1=3))
        self.assertIn("3 packets came since, all with MigReq 1", said)

    def test_rearm_and_peer_gone(self) -> None:
        said = self.text(report(state="REARM", since_rearm_migreq_0=1,
                                path_check_drops={"slid": 1}))
        self.assertIn("none passed the check", said)
        self.assertIn("1 from another LID", said)

    def test_never_armed(self) -> None:
        self.assertIn("was never ARMED", self.text(report(state="MIGRATED")))

    def test_last_migration(self) -> None:
        said = self.text(report(state="MIGRATED", migrations=1, history=[
            {"t_ns": 2_500_000_000, "from": "ARMED", "to": "MIGRATED",
             "cause": "retries_used_up", "old_port": 1, "new_port": 2,
             "dlid": 5}]))
        self.assertIn("0.500 s ago, port 1 to 2, because the retries", said)

    def test_error_while_not_armed(self) -> None:
        one = report(state="REARM")
        one["qps"][1].update(state="ERR", error_cause="retries_used_up")
        self.assertIn("it was REARM, and only an ARMED", self.text(one))

    def test_nothing_connected(self) -> None:
        self.assertEqual(explain_report("bob", {"t_ns": 0, "qps": []}),
                         ["bob: no connected QP"])


if __name__ == "__main__":
    unittest.main()
