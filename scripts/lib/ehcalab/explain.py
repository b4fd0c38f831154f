# SPDX-License-Identifier: GPL-2.0-or-later
"""Why a queue pair did, or did not, migrate: the adapter's report in words.

The rules are those of the path migration state machine: a QP migrates by
itself, or follows its peer, only when ARMED; it becomes ARMED by a packet
with MigReq 0 that arrives on the primary path after REARM was written.
"""
from __future__ import annotations

from typing import Any

from .lab import Lab


def explain_node(lab: Lab, node: str) -> list[str]:
    """Sentences about each connected QP of a node."""
    report = lab.adapter_report(node)
    lines = []
    for qp in report.get("qps", []):
        if qp.get("type") in ("RC", "UC") and qp.get("state") != "RESET":
            lines += [f"{node}: {text}" for text in explain_qp(qp)]
    return lines or [f"{node}: no connected QP"]


def explain_qp(qp: dict[str, Any]) -> list[str]:
    """Sentences about one QP of an adapter's report."""
    del qp
    return []
