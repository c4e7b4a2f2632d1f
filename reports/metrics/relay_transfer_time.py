"""Time of the KV copy to RLD over the fast link of cluster A.

relay_transfer_time = relay_transfer_done_ns - relay_transfer_start_ns
"""

from __future__ import annotations

from reports.columns import Floats
from reports.frame import Frame
from reports.metric import Better, PerRequest


def observe(f: Frame) -> Floats:
    return (f.router("relay_transfer_done_ns") - f.router("relay_transfer_start_ns")) / 1e6


METRIC = PerRequest(
    "relay_transfer_time",
    "KV transfer to RLD",
    "ms",
    Better.LOWER,
    ("handoffs.relay_transfer_done_ns", "handoffs.relay_transfer_start_ns"),
    observe,
)
