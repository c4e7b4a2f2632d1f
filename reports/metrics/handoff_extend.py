"""First part of the handoff latency: token ids (or KV) to MD, and MD's extend steps.

handoff_extend = extend_done_ns - handoff_start_ns
"""

from __future__ import annotations

from reports.columns import Floats
from reports.frame import Frame
from reports.metric import Better, PerRequest


def observe(f: Frame) -> Floats:
    return (f.router("extend_done_ns") - f.router("handoff_start_ns")) / 1e6


METRIC = PerRequest(
    "handoff_extend",
    "Handoff: ids across and extend step",
    "ms",
    Better.LOWER,
    ("handoffs.extend_done_ns", "handoffs.handoff_start_ns"),
    observe,
)
