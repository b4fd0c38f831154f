# SPDX-License-Identifier: GPL-2.0-or-later
"""The list of event names is that of those who send them."""
import re
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts" / "lib"))

from ehcalab import events, timeline  # noqa: E402


class Names(unittest.TestCase):
    """events.py against the sources and the manual."""

    def test_consumer_source(self) -> None:
        sent = set()
        for path in (ROOT / "guest-driver" / "apm_traffic").glob("*.c"):
            sent |= set(re.findall(r'at_event\(\s*"([a-z_]+)"',
                                   path.read_text()))
        self.assertTrue(sent)
        self.assertEqual(sent - events.CONSUMER, set())

    def test_consumer_manual(self) -> None:
        text = (ROOT / "docs" / "consumer.md").read_text()
        table = text.split("## Events")[1].split("\n## ")[0]
        told = set()
        for line in table.splitlines():
            if line.startswith("| `"):
                told |= set(re.findall(r"`([a-z_]+)`", line.split("|")[1]))
        self.assertIn("path_mig", told)
        self.assertEqual(told - events.CONSUMER, set())

    def test_subnet_manager(self) -> None:
        sent = set()
        for path in (ROOT / "sm").glob("*.c"):
            sent |= set(re.findall(r'\{\\"event\\":\\"([a-z_]+)',
                                   path.read_text()))
        self.assertEqual(sent, set(events.SM))

    def test_adapter(self) -> None:
        text = (ROOT / "hw" / "ehca" / "engine" / "events.c").read_text()
        sent = set(re.findall(r'\[EHCA_EVENT_\w+\] = "([a-z0-9_]+)"', text))
        self.assertEqual(sent | {"events_lost"}, set(events.ADAPTER))

    def test_timeline_words(self) -> None:
        self.assertEqual(set(timeline.GUEST)
                         - events.CONSUMER - events.RUNNER, set())
        self.assertEqual(set(timeline.HCA) - events.ADAPTER, set())
        self.assertEqual(set(timeline.FABRIC) - events.FABRIC, set())
        self.assertEqual(set(timeline.SM) - events.SM, set())


if __name__ == "__main__":
    unittest.main()
