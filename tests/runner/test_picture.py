# SPDX-License-Identifier: GPL-2.0-or-later
"""The picture: no label over another, bounded, well-formed, nothing lost."""
import unittest
import xml.etree.ElementTree as ET
from itertools import combinations

import made

from ehcalab import lanes, picture
from ehcalab.picture import Page

SVG = "{http://www.w3.org/2000/svg}"


def draw(run: made.Run, title: str = "a run") -> tuple[str, Page]:
    """The picture of a run."""
    return picture.draw(lanes.collect(
        run.events, made.BEGIN, made.BEGIN + run.now), title, "PASSED")


def crowd() -> made.Run:
    """Everything at once, at nearly the same time, with long names."""
    run = made.failovers(3)
    run.step("A step whose title is long" * 20)
    for number in range(200):
        node = f"node-with-a-long-name-{number % 40}"
        run.mig(node, 1, "MIGRATED", "REARM", "software", qpn=number)
        for name in lanes.MARKS:
            run.add(node, name, qpn=number)
        run.add("lab", "pull", cable=f"cable-with-a-long-name-{number}")
        run.add("alice/hca", "mig_state", port=1, qpn=number, to="REARM",
                **{"from": "MIGRATED"})
    run.step("")
    run.step("\u6df1\u3044\u7dda" * 40)
    run.add("lab", "failed", why="of everything")
    return run


class Drawing(unittest.TestCase):
    """Runs of all sizes."""

    def check(self, run: made.Run) -> str:
        """What holds of every picture."""
        text, page = draw(run)
        root = ET.fromstring(text)
        width, height = float(root.get("width", 0)), float(
            root.get("height", 0))
        for (left, top, right, bottom), words in page.boxes:
            self.assertTrue(0 <= left and right <= width and 0 <= top
                            and bottom <= height, words)
        for (one, a), (two, b) in combinations(page.boxes, 2):
            self.assertFalse(
                one[0] < two[2] and two[0] < one[2]
                and one[1] < two[3] and two[1] < one[3], f"{a!r} over {b!r}")
        return text

    def test_runs(self) -> None:
        for count in (0, 1, 2, 24, 60):
            with self.subTest(count):
                self.check(made.failovers(count))

    def test_crowd(self) -> None:
        self.assertLess(len(self.check(crowd())), 1_000_000)

    def test_failed_step(self) -> None:
        run = made.failovers(1)
        run.add("lab", "failed", why="no")
        _, page = draw(run)
        self.assertIn("FAILED: Cable 1 fails and returns",
                      "\n".join(words for _, words in page.boxes))

    def test_nothing(self) -> None:
        self.check(made.Run())

    def test_size_is_bounded(self) -> None:
        short, page = draw(made.failovers(100))
        long, _ = draw(made.failovers(1000))
        self.assertLess(len(long), len(short) * 1.1)
        self.assertIn("steps 25 to 78: not drawn",
                      "\n".join(words for _, words in page.boxes))

    def test_one_step_with_everything(self) -> None:
        run = made.Run()
        run.start()
        for _ in range(5000):
            run.migrate(2)
            run.arm(2)
            run.migrate(1)
            run.arm(1)
        self.assertLess(len(self.check(run)), 400_000)

    def test_text_has_every_step_and_colour(self) -> None:
        text, page = draw(made.failovers(4))
        words = [words for _, words in page.boxes]
        for number, title in ((1, "Start everything and connect"),
                              (5, "Cable 2 fails and returns")):
            self.assertTrue(any(w.split() == [str(number), *title.split()]
                                for w in words), title)
        for state, (colour, _) in picture.COLOURS.items():
            self.assertIn(state, words)
            self.assertIn(colour, text)

    def test_hostile_words(self) -> None:
        run = made.failovers(1)
        evil = "\x1b[2J\0<script>&\"'\u202e\ud800\uffff]]>" + "x" * 9000
        run.step(evil)
        run.add("alice", "connected", qpn=[evil], peer_gid={evil: 1})
        run.add("alice/hca", "mig_state", qpn=evil, port=evil, to=evil)
        run.add("alice/hca", "port_state", port=evil, to=evil)
        run.add("fabric", "link", cable=evil, up=False)
        run.add(evil, "path_mig", port=evil)
        text, _ = draw(run, evil)
        self.assertNotIn("<script", text)
        self.assertTrue(all(line.isprintable()
                            for line in text.splitlines()))
        ET.fromstring(text.encode())


class Lanes(unittest.TestCase):
    """What is in the lanes."""

    def spans(self, run: made.Run, name: str) -> list[tuple[str, str]]:
        """States and notes of a lane."""
        story = lanes.collect(run.events, made.BEGIN, made.BEGIN + run.now)
        lane = next(one for one in story.lanes if one.name == name)
        return [(span.state, span.note) for span in lane.spans]

    def test_failover(self) -> None:
        run = made.failovers(1)
        self.assertEqual(self.spans(run, "cable alice-1"), [
            ("in", ""), ("pulled", ""), ("no link", ""), ("in", "")])
        self.assertEqual(self.spans(run, "alice port 1"), [
            ("Initialize", ""), ("Active", ""), ("Down", ""),
            ("Active", "")])
        self.assertEqual(self.spans(run, f"bob QP {made.QPN}"), [
            ("REARM", "port 1"), ("ARMED", "port 1"), ("MIGRATED", "port 2"),
            ("REARM", "port 2"), ("ARMED", "port 2")])

    def test_error_and_end_of_a_queue_pair(self) -> None:
        run = made.failovers(0)
        run.add("bob/hca", "qp_error", qpn=made.QPN, cause="remote_nak")
        run.add("bob/hca", "qp_state", qpn=made.QPN, to="ERR",
                cause="remote_nak")
        self.assertEqual(self.spans(run, f"bob QP {made.QPN}")[-1],
                         ("ERROR", ""))
        run.add("alice/hca", "qp_state", qpn=made.QPN, to="ERR",
                cause="software")
        end = run.now
        run.now += 1
        story = lanes.collect(run.events, made.BEGIN, made.BEGIN + run.now)
        lane = next(one for one in story.lanes
                    if one.name == f"alice QP {made.QPN}")
        self.assertAlmostEqual(lane.spans[-1].end, made.BEGIN + end, 5)

    def test_queue_pairs_one_after_the_other_share_a_lane(self) -> None:
        run = made.failovers(0)
        for qpn in range(50):
            run.mig("alice", 1, "MIGRATED", "REARM", "software", qpn)
            run.add("alice/hca", "qp_state", qpn=qpn, to="RESET")
        self.assertEqual(self.spans(run, "alice 50 QPs")[7],
                         ("REARM", "QP 7 port 1"))

    def test_untouched_cables_are_named(self) -> None:
        run = made.failovers(1)
        story = lanes.collect(run.events, made.BEGIN, made.BEGIN + run.now)
        self.assertEqual(story.left_out, [
            "cables that were always in: alice-2, bob-1, bob-2"])

    def test_killed_guest(self) -> None:
        run = made.failovers(0)
        run.add("lab", "guest_killed", node="bob")
        run.add("fabric", "node_gone", node="bob")
        gone = run.now
        run.now += 1
        story = lanes.collect(run.events, made.BEGIN, made.BEGIN + run.now)
        self.assertEqual(self.spans(run, "bob")[-1][0], "killed")
        for lane in story.lanes:
            if lane.name.startswith("bob port"):
                self.assertAlmostEqual(lane.spans[-1].end,
                                       made.BEGIN + gone, 5)


if __name__ == "__main__":
    unittest.main()
