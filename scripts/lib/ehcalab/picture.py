# SPDX-License-Identifier: GPL-2.0-or-later
"""The run as a picture: timeline.svg.

One lane a cable (in, out), one an adapter port (Down to Active), one a
connected queue pair (MIGRATED, REARM, ARMED), marks for what people look for
(PATH_MIG, LAP, APR, errors), and the steps as a ruler.  Any browser shows it;
holding the pointer over a bar or a mark tells its time and words.
"""
from __future__ import annotations

import html
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from .eventlog import Event
from .timeline import words_of

LABEL_WIDTH = 150
PIXELS = 1150
LANE = 24
BAR = 14
TOP = 46

COLOURS = {
    "in": "#7fb77e", "out": "#d9534f",
    "DOWN": "#d9534f", "INITIALIZE": "#f0ad4e", "ARMED-PORT": "#e6d36a",
    "ACTIVE": "#7fb77e",
    "MIGRATED": "#8fa8c8", "REARM": "#f0ad4e", "ARMED": "#5cb85c",
}
MARKS = {
    "path_mig": ("#6f42c1", "M"), "path_mig_err": ("#d9534f", "E"),
    "lap_sent": ("#0275d8", "L"), "lap_received": ("#0275d8", "l"),
    "apr_sent": ("#0275d8", "a"), "apr_received": ("#0275d8", "A"),
    "qp_error": ("#d9534f", "X"), "completion_error": ("#d9534f", "x"),
    "message_error": ("#d9534f", "!"),
    "migrated_by_software": ("#6f42c1", "S"),
}
LEGEND = ("M PATH_MIG   S software wrote MIGRATED   L/l LAP sent/received   "
          "a/A APR sent/received   x X errors")


@dataclass
class Lane:
    """A row of coloured stretches and marks."""

    name: str
    changes: list[tuple[float, str]] = field(default_factory=list)
    marks: list[Event] = field(default_factory=list)


def lanes_of(events: list[Event]) -> list[Lane]:
    """Sort events into lanes."""
    lanes: dict[tuple[int, str], Lane] = {}

    def lane(order: int, name: str) -> Lane:
        return lanes.setdefault((order, name), Lane(name))

    begin = events[0].t if events else 0.0
    for event in events:
        data = event.data
        if event.source == "lab" and event.name in ("pull", "restore"):
            row = lane(0, f"cable {data['cable']}")
            if not row.changes:
                row.changes.append(
                    (begin, "in" if event.name == "pull" else "out"))
            row.changes.append(
                (event.t, "out" if event.name == "pull" else "in"))
        elif event.source.endswith("/hca"):
            node = event.source[:-4]
            if event.name == "port_state":
                state = str(data.get("to", "")).upper()
                lane(1, f"{node} port {data.get('port')}").changes.append(
                    (event.t, "ARMED-PORT" if state == "ARMED" else state))
            elif event.name == "mig_state":
                lane(2, f"{node} path").changes.append(
                    (event.t, str(data.get("to"))))
        elif event.name in MARKS:
            lane(2, f"{event.source} path").marks.append(event)
    return [lanes[key] for key in sorted(lanes)]


def draw(events: Iterable[Event], title: str) -> str:
    """The SVG text."""
    ordered = sorted(events, key=lambda e: (e.t, e.seq))
    lanes = lanes_of(ordered)
    begin = ordered[0].t if ordered else 0.0
    end = max((e.t for e in ordered), default=1.0)
    scale = PIXELS / max(end - begin, 0.001)

    def x(t: float) -> float:
        return LABEL_WIDTH + (t - begin) * scale

    height = TOP + LANE * len(lanes) + 40
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" font-family="sans-serif"'
           f' font-size="11" width="{LABEL_WIDTH + PIXELS + 20}" '
           f'height="{height}">',
           '<rect width="100%" height="100%" fill="white"/>',
           f'<text x="8" y="16" font-size="14" font-weight="bold">'
           f'{html.escape(title)}</text>']
    number = 0
    for event in ordered:
        if event.source == "lab" and event.name == "step":
            number += 1
            out.append(
                f'<g><title>{event.t - begin:.3f} s: '
                f'{html.escape(str(event.data["title"]))}</title>'
                f'<line x1="{x(event.t):.1f}" x2="{x(event.t):.1f}" '
                f'y1="{TOP - 12}" y2="{height - 34}" stroke="#bbb"/>'
                f'<text x="{x(event.t) + 2:.1f}" y="{TOP - 4}" fill="#666">'
                f'{number}</text></g>')
    for row, lane in enumerate(lanes):
        y = TOP + row * LANE
        out.append(f'<text x="8" y="{y + 15}">{html.escape(lane.name)}'
                   '</text>')
        for at, (t, state) in enumerate(lane.changes):
            until = (lane.changes[at + 1][0] if at + 1 < len(lane.changes)
                     else end)
            out.append(
                f'<rect x="{x(t):.1f}" y="{y + 4}" height="{BAR}" '
                f'width="{max(x(until) - x(t), 1):.1f}" '
                f'fill="{COLOURS.get(state, "#ccc")}"><title>'
                f'{html.escape(state)} from {t - begin:.3f} to '
                f'{until - begin:.3f} s</title></rect>')
        for mark in lane.marks:
            colour, letter = MARKS[mark.name]
            out.append(
                f'<g><title>{mark.t - begin:.3f} s: '
                f'{html.escape(words_of(mark))}</title>'
                f'<line x1="{x(mark.t):.1f}" x2="{x(mark.t):.1f}" y1="{y + 1}"'
                f' y2="{y + 21}" stroke="{colour}" stroke-width="2"/>'
                f'<text x="{x(mark.t) + 2:.1f}" y="{y + 11}" font-size="9" '
                f'fill="{colour}" font-weight="bold">{letter}</text></g>')
    foot = height - 14
    out.append(f'<text x="8" y="{foot}" fill="#666">{end - begin:.1f} s   '
               f'{LEGEND}   ports and cables: green good, red out</text>')
    out.append("</svg>")
    return "\n".join(out) + "\n"


def write(path: Path, events: Iterable[Event], title: str) -> None:
    """Write the picture."""
    path.write_text(draw(events, title))
