"""Time in the router before prefill was asked of P.

queue_time = prefill_start_ns - arrived_ns
"""

from __future__ import annotations

from reports.columns import Floats
from reports.frame import Frame
from reports.metric import Better, PerRequest


def observe(f: Frame) -> Floats:
    return (f.router("prefill_start_ns") - f.router("arrived_ns")) / 1e6


METRIC = PerRequest(
    "queue_time",
    "Time before prefill",
    "ms",
    Better.LOWER,
    ("handoffs.prefill_start_ns", "handoffs.arrived_ns"),
    observe,
)
