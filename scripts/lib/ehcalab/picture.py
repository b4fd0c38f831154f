# SPDX-License-Identifier: GPL-2.0-or-later
"""The run as a picture: timeline.svg.

Theory of operation
  The run's steps are laid out one after the other, in strips of a page's
  width below one another, like lines of music; each strip repeats the lanes
  (lanes.py).  Half a minute of booting and half a second of failover would
  not fit into one scale, so each step has a width of its own, by the root of
  its duration; within a step time runs evenly.  The figures above a strip say
  where on the clock each step began.

  The size is bounded: of long runs the first and the last steps are drawn,
  the ones between as one narrow stretch; stretches too narrow to be seen one
  by one become one; marks that would overlap are written as one label.  Every
  label's box is kept in Page.boxes, for the tests: none overlaps another.

  Letters have a fixed width, as only that makes boxes known in every viewer;
  colours are given in full, with the background, so that dark and light
  viewers show the same.  Holding the pointer over something tells its time
  and words.
"""
from __future__ import annotations

import html
import math
import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from .clean import clean, clean_lines
from .eventlog import Event
from .lanes import Lane, Mark, Span, Step, Story, collect

WIDTH = 1240
LEFT = 158                           # where the lanes begin
RIGHT = WIDTH - 16
LANE = 20
APART = 6                            # between two groups of lanes
BAR = 14
RULER = 36
STEPS_A_STRIP = 12
STRIPS_MAX = 4
STEPS_MAX = STEPS_A_STRIP * STRIPS_MAX
STEP_MIN = 30.0                      # pixels; its number fits
TINY = 2.0                           # pixels; less cannot be seen
FONT = "'DejaVu Sans Mono',Menlo,Consolas,'Liberation Mono',monospace"
# Width of a letter, in sizes of the font: the widest of the above.
EM = 0.605

INK, PALE, PAPER = "#1f2933", "#5b6770", "#ffffff"
# kind of lane -> state -> colour, colour of letters on it
STATES = {
    "subnet manager, guest": {"booting": ("#c9d3dc", INK),
                              "running": ("#93a4b3", INK),
                              "killed": ("#b3202c", PAPER)},
    "cable": {"in": ("#8cc9a1", INK), "faults": ("#d9a5e0", INK),
              "no link": ("#e4d5b7", INK), "pulled": ("#b3202c", PAPER)},
    "port": {"Active": ("#8cc9a1", INK), "Armed": ("#cfe08a", INK),
             "Initialize": ("#f2c14e", INK), "Down": ("#b3202c", PAPER)},
    "queue pair": {"MIGRATED": ("#8db4e8", INK), "REARM": ("#f2c14e", INK),
                   "ARMED": ("#3f8f5f", PAPER), "ERROR": ("#6b0f1a", PAPER)},
}
MIXED = "several"                    # states, each too short to be drawn
STATES["any, in a short time"] = {MIXED: ("#6d6875", PAPER)}
COLOURS = {state: pair for kind in STATES.values()
           for state, pair in kind.items()}
OTHER = ("#d0d0d0", INK)
LETTERS = {
    "C": ("#3a4a58", "connected"), "M": ("#6a2fb5", "PATH_MIG"),
    "P": ("#1f7a44", "first payload"), "L": ("#0b62c4", "LAP"),
    "A": ("#0a7f8f", "APR"), "S": ("#a3480f", "software wrote MIGRATED"),
    "D": ("#3a4a58", "disconnected"), "X": ("#b3202c", "error"),
}
Box = tuple[float, float, float, float]


def cells(text: str) -> int:
    """How many letters wide a text is; some take the place of two."""
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1
               for c in text)


def fit(text: str, width: float, size: int) -> str:
    """As much of a text as fits; ends in an ellipsis if cut."""
    room = int(width / (EM * size))
    text = clean(text)
    if cells(text) <= room:
        return text
    shown = ""
    for char in text:
        if cells(shown + char) > room - 1:
            break
        shown += char
    return shown + "\u2026" if room > 1 else ""


def _xml(text: str) -> str:
    return html.escape(clean_lines(text))


class Page:
    """Collects elements, and the boxes of all labels."""

    def __init__(self) -> None:
        self.out: list[str] = []
        self.boxes: list[tuple[Box, str]] = []

    def text(self, x: float, y: float, words: str, size: int = 11, *,
             fill: str = INK, bold: bool = False, middle: bool = False,
             parts: list[tuple[str, str]] | None = None) -> None:
        """A label; y is its base line.  parts: its pieces, with colours."""
        wide = cells(words) * EM * size
        left = x - wide / 2 if middle else x
        self.boxes.append(((left, y - size * 0.8, left + wide,
                            y + size * 0.25), words))
        inner = "".join(f'<tspan fill="{colour}">{_xml(piece)}'
                        '</tspan>' for piece, colour in parts or ()
                        ) or _xml(words)
        self.out.append(
            f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{fill}"'
            + (' text-anchor="middle"' if middle else "")
            + (' font-weight="bold"' if bold else "") + f'>{inner}</text>')

    def bar(self, x: float, y: float, width: float, height: float, fill: str,
            tip: str = "") -> None:
        """A rectangle."""
        self.out.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" '
            f'height="{height:.1f}" fill="{fill}"'
            + (f'><title>{_xml(tip)}</title></rect>' if tip
               else '/>'))

    def line(self, x: float, top: float, bottom: float, stroke: str) -> None:
        """A line down the page."""
        self.out.append(f'<path d="M{x:.1f} {top:.1f}V{bottom:.1f}" '
                        f'stroke="{stroke}"/>')


@dataclass
class Band:
    """A step's place in a strip."""

    step: Step
    left: float
    right: float
    gap: bool = False                # stands for steps that are not drawn

    def x(self, t: float) -> float:
        """Where a time within the step is."""
        step = self.step
        part = (t - step.start) / max(step.end - step.start, 1e-6)
        return self.left + (self.right - self.left) * min(max(part, 0), 1)


class Strip:
    """Some steps side by side."""

    def __init__(self, steps: list[Step]) -> None:
        self.start, self.end = steps[0].start, steps[-1].end
        weights = [0.0 if step.number == 0 else
                   max(math.sqrt(max(step.end - step.start, 0)), 0.05)
                   for step in steps]
        room = RIGHT - LEFT - STEP_MIN * len(steps)
        scale = room / (sum(weights) or 1)
        self.bands, left = [], float(LEFT)
        for step, weight in zip(steps, weights):
            right = left + STEP_MIN + weight * scale
            self.bands.append(Band(step, left, right, step.number == 0))
            left = right

    def x(self, t: float) -> float:
        """Where a time of this strip is."""
        band = next((b for b in self.bands if t < b.step.end),
                    self.bands[-1])
        return band.x(t)


def strips_of(steps: list[Step]) -> list[Strip]:
    """The steps in strips of about the same number."""
    if len(steps) > STEPS_MAX:
        half = STEPS_MAX // 2
        first, last = steps[:half], steps[half + 1 - STEPS_MAX:]
        gap = Step(0, f"steps {first[-1].number + 1} to "
                   f"{last[0].number - 1}: not drawn", first[-1].end,
                   last[0].start)
        steps = [*first, gap, *last]
    count = math.ceil(len(steps) / STEPS_A_STRIP)
    size = math.ceil(len(steps) / count)
    return [Strip(steps[at:at + size]) for at in range(0, len(steps), size)]


def _clock(seconds: float) -> str:
    return f"{seconds:.3f}" if seconds < 1000 else f"{seconds:.1f}"


def _ruler(page: Page, strip: Strip, story: Story, y: float, bottom: float
           ) -> None:
    free = 0.0                       # up to here the clock's row is written
    for at, band in enumerate(strip.bands):
        step, width = band.step, band.right - band.left
        fill = ("#f6d5d8" if step.failed else "#e9edf1" if band.gap else
                "#f3f5f7" if at % 2 else "#fafbfc")
        tip = (f"{step.number}: {step.title}, from "
               f"{_clock(step.start - story.begin)} to "
               f"{_clock(step.end - story.begin)} s")
        page.bar(band.left, y, width, bottom - y, fill,
                 step.title if band.gap else tip)
        page.line(band.left, y, bottom, "#c5ced6")
        page.text((band.left + band.right) / 2, y + 13,
                  "\u2026" if band.gap else str(step.number), 12, bold=True,
                  fill="#b3202c" if step.failed else INK, middle=True)
        clock = _clock(step.start - story.begin)
        wide = cells(clock) * EM * 9
        if band.left + 2 >= free and band.left + 2 + wide <= RIGHT:
            page.text(band.left + 2, y + 28, clock, 9, fill=PALE)
            free = band.left + wide + 6


def _visible(lane: Lane, strip: Strip) -> list[tuple[float, float, Span]]:
    """Left and right end of each stretch; the tiny ones in a row are one."""
    found: list[tuple[float, float, Span]] = []
    gaps = [band for band in strip.bands if band.gap]
    for span in lane.spans:
        if span.end < strip.start or span.start >= strip.end:
            continue
        left, right = strip.x(span.start), strip.x(span.end)
        for gap in gaps:
            left = gap.right if gap.left < left < gap.right else left
            right = gap.left if gap.left < right < gap.right else right
        if right < left:
            continue
        if found and right - left < TINY:
            before = found[-1]
            if before[1] - before[0] < TINY * 2 and \
                    left - before[0] < TINY * 2:
                found[-1] = (before[0], right, Span(
                    before[2].start, span.end, MIXED))
                continue
        found.append((left, right, span))
    return found


def _spans(page: Page, lane: Lane, strip: Strip, begin: float, y: float
           ) -> None:
    found = _visible(lane, strip)
    # The narrow ones last: their least width must not be painted over.
    for left, right, span in sorted(found, key=lambda one: one[0] - one[1]):
        fill, ink = COLOURS.get(span.state, OTHER)
        words = f"{span.state} {span.note}".rstrip()
        page.bar(left, y, max(right - left, TINY), BAR, fill,
                 f"{lane.name}: {words} from {_clock(span.start - begin)} to "
                 f"{_clock(span.end - begin)} s")
        for label in (words, span.note, span.state):
            if label and cells(label) * EM * 10 + 6 <= right - left:
                page.text((left + right) / 2, y + 10.5, label, 10, fill=ink,
                          middle=True)
                break


class Cluster:
    """Marks that share a label."""

    def __init__(self, x: float, mark: Mark) -> None:
        self.low = self.high = x
        self.marks = [mark]
        self.counts = Counter(mark.letter)

    def take(self, other: Cluster) -> None:
        """Add the marks of the next cluster."""
        self.high = max(self.high, other.high)
        self.marks += other.marks
        self.counts += other.counts

    def parts(self) -> list[tuple[str, str]]:
        """The label: letters, how many of each, and their colours."""
        return [(letter + (str(min(count, 99)) if count > 1 else ""),
                 LETTERS[letter][0]) for letter, count in self.counts.items()]

    def place(self) -> tuple[float, float]:
        """Left and right end of the label."""
        wide = cells("".join(word for word, _ in self.parts())) * EM * 11
        middle = min(max((self.low + self.high) / 2, LEFT + wide / 2),
                     RIGHT - wide / 2)
        return middle - wide / 2, middle + wide / 2


def _marks(page: Page, lane: Lane, strip: Strip, begin: float, y: float
           ) -> None:
    clusters: list[Cluster] = []
    gaps = [band for band in strip.bands if band.gap]
    for mark in lane.marks:
        if not strip.start <= mark.t < strip.end or any(
                gap.step.start <= mark.t < gap.step.end for gap in gaps):
            continue
        clusters.append(Cluster(strip.x(mark.t), mark))
        while len(clusters) > 1 and \
                clusters[-2].place()[1] + 3 > clusters[-1].place()[0]:
            last = clusters.pop()
            clusters[-1].take(last)
    for one in clusters:
        parts = one.parts()
        middle = sum(one.place()) / 2
        tip = "\n".join(f"{_clock(m.t - begin)} s: {m.words}"
                        for m in one.marks[:20])
        if len(one.marks) > 20:
            tip += f"\nand {len(one.marks) - 20} more"
        page.out.append(f"<g><title>{_xml(tip)}</title>")
        page.bar(one.low - 1, y - 3, max(one.high - one.low, 0) + 2, 2,
                 parts[0][1])
        page.text(middle, y + 10, "".join(w for w, _ in parts),
                  11, bold=True, middle=True, parts=parts)
        page.out.append("</g>")


def _titles(page: Page, strip: Strip, story: Story, y: float) -> float:
    """The list of a strip's steps, in two columns; where it ends."""
    half = math.ceil(len(strip.bands) / 2)
    column = (WIDTH - 32) / 2
    for at, band in enumerate(strip.bands):
        step = band.step
        words = (f"{'' if band.gap else step.number:>4}  "
                 + ("FAILED: " if step.failed else "") + step.title)
        page.text(16 + column * (at // half), y + 13 + 14 * (at % half),
                  fit(words, column - 12, 10), 10,
                  fill="#b3202c" if step.failed else INK)
    return y + 14 * half + 12


def _legend(page: Page, story: Story, y: float) -> float:
    for kind, states in STATES.items():
        page.text(16, y + 10, kind, 10, fill=PALE)
        x = 180.0
        for state, (fill, ink) in states.items():
            wide = cells(state) * EM * 10 + 16
            page.bar(x, y, wide, BAR, fill)
            page.text(x + wide / 2, y + 10.5, state, 10, fill=ink,
                      middle=True)
            x += wide + 10
        y += 19
    page.text(16, y + 10, "events", 10, fill=PALE)
    x = 180.0
    for letter, (colour, words) in LETTERS.items():
        whole = f"{letter} {words}"
        page.text(x, y + 10, whole, 10, parts=[(f"{letter} ", colour),
                                               (words, INK)])
        x += (cells(whole) + 2) * EM * 10
    y += 22
    for words in (
            "Each step has a scale of its own: the figures above it are "
            "seconds since the run began. LAP, APR: sent or received; hold "
            "the pointer over a mark or a stretch for its time and words.",
            *("Not drawn: " + words for words in story.left_out)):
        page.text(16, y + 10, fit(words, WIDTH - 32, 9), 9, fill=PALE)
        y += 14
    return y + 6


def draw(story: Story, title: str, verdict: str) -> tuple[str, Page]:
    """The SVG text, and the page with the boxes of its labels."""
    page = Page()
    page.text(16, 26, fit(title, WIDTH - 32, 16), 16, bold=True)
    page.text(16, 44, fit(
        f"{len(story.steps)} steps, {story.end - story.begin:.1f} s. "
        + verdict, WIDTH - 32, 11), 11, fill=PALE)
    y = 58.0
    for strip in strips_of(story.steps):
        bottom = y + RULER + 4 + sum(LANE + APART * lane.head
                                     for lane in story.lanes)
        _ruler(page, strip, story, y, bottom)
        row = y + RULER
        for lane in story.lanes:
            row += APART * lane.head
            page.text(16, row + 11, fit(lane.name, LEFT - 22, 11), 11,
                      bold=lane.head)
            _spans(page, lane, strip, story.begin, row)
            _marks(page, lane, strip, story.begin, row)
            row += LANE
        y = _titles(page, strip, story, bottom + 4)
    height = _legend(page, story, y)
    head = (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" '
            f'height="{height:.0f}" viewBox="0 0 {WIDTH} {height:.0f}" '
            f'font-family="{html.escape(FONT)}" xml:space="preserve">\n'
            f'<title>{_xml(title)}</title>\n'
            f'<rect width="100%" height="100%" fill="{PAPER}"/>\n')
    return head + "\n".join(page.out) + "\n</svg>\n", page


def write(path: Path, events: Iterable[Event], begin: float, end: float,
          title: str, verdict: str) -> None:
    """Write the picture."""
    text, _ = draw(collect(events, begin, end), title, verdict)
    path.write_text(text, encoding="utf-8")
