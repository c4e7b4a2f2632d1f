"""Writes Azure CSVs: instant, context tokens and generated tokens of every request. Lengths only."""

from __future__ import annotations

import csv
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

import numpy as np

from workloads.transform.schedule import instants

if TYPE_CHECKING:
    from pathlib import Path

    from workloads.trace import Trace

NAME: Final = "azure"
_START: Final = datetime(2024, 1, 1, tzinfo=UTC)  # the format wants a date; traces count from their start


def losses(trace: Trace) -> list[str]:
    """What the format cannot say about this trace."""
    out = []
    if trace.header.prefix_known:
        out.append("what prompts have in common")
    if trace.header.sessions_known:
        out.append("sessions and what their turns wait for")
    if trace.tenants:
        out.append("tenants")
    return out


def write(trace: Trace, path: Path) -> None:
    """Write the trace in order of its sends."""
    at_ns = instants(trace)
    t = trace.turns
    with path.open("w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out)
        writer.writerow(["TIMESTAMP", "ContextTokens", "GeneratedTokens"])
        for turn in np.argsort(at_ns, kind="stable").tolist():
            at = _START + timedelta(microseconds=int(at_ns[turn]) // 1000)
            writer.writerow([at.isoformat(sep=" "), int(t.input_tokens[turn]), int(t.output_tokens[turn])])
