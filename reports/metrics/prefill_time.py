"""From asking P to P holding the prompt's KV, P's own queue included.

prefill_time = prefill_done_ns - prefill_start_ns
"""

from __future__ import annotations

from reports.columns import Floats
from reports.frame import Frame
from reports.metric import Better, PerRequest


def observe(f: Frame) -> Floats:
    return (f.router("prefill_done_ns") - f.router("prefill_start_ns")) / 1e6


METRIC = PerRequest(
    "prefill_time",
    "Prefill time",
    "ms",
    Better.LOWER,
    ("handoffs.prefill_done_ns", "handoffs.prefill_start_ns"),
    observe,
    headline=("p50",),
)
