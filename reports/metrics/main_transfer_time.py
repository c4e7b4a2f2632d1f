"""Time of the KV copy to MD across the WAN.

main_transfer_time = main_transfer_done_ns - main_transfer_start_ns
"""

from __future__ import annotations

from reports.columns import Floats
from reports.frame import Frame
from reports.metric import Better, PerRequest


def observe(f: Frame) -> Floats:
    return (f.router("main_transfer_done_ns") - f.router("main_transfer_start_ns")) / 1e6


METRIC = PerRequest(
    "main_transfer_time",
    "KV transfer to MD (WAN)",
    "ms",
    Better.LOWER,
    ("handoffs.main_transfer_done_ns", "handoffs.main_transfer_start_ns"),
    observe,
    headline=("p50", "p99"),
)
