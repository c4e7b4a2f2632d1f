"""From the decision to hand over (MD's KV had landed) to MD's first token at the router.

    handoff_latency = switch_ns - handoff_start_ns = handoff_extend + handoff_resume

While RLD goes on decoding (catch-up) it is longer than what is felt: see handoff_gap.
"""

from __future__ import annotations

from reports.columns import Floats
from reports.frame import Frame
from reports.metric import Better, PerRequest


def observe(f: Frame) -> Floats:
    return (f.router("switch_ns") - f.router("handoff_start_ns")) / 1e6


METRIC = PerRequest(
    "handoff_latency",
    "Handoff latency",
    "ms",
    Better.LOWER,
    ("handoffs.switch_ns", "handoffs.handoff_start_ns"),
    observe,
    headline=("p50", "p99"),
)
