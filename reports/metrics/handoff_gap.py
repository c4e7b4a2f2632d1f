"""The inter-token latency that spans the switch from RLD to MD, as the client saw it.

    handoff_gap = token_offsets_ns[switch_index] - token_offsets_ns[switch_index - 1]

Null for requests that were not relayed.
"""

from __future__ import annotations

from reports.columns import Floats
from reports.frame import Frame
from reports.metric import Better, PerRequest


def observe(f: Frame) -> Floats:
    return f.handoff_gap_ns / 1e6


METRIC = PerRequest(
    "handoff_gap",
    "Handoff gap",
    "ms",
    Better.LOWER,
    ("requests.token_offsets_ns", "handoffs.switch_index"),
    observe,
    headline=("p50", "p99"),
)
