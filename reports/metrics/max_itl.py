"""The longest gap between two successive tokens of a request: the stall its reader felt.

    max_itl = max over i of token_offsets_ns[i] - token_offsets_ns[i - 1]

Null for fewer than two tokens.
"""

from __future__ import annotations

from reports.columns import Floats
from reports.frame import Frame
from reports.metric import Better, PerRequest


def observe(f: Frame) -> Floats:
    return f.max_itl_ns / 1e6


METRIC = PerRequest(
    "max_itl",
    "Longest stall of a request",
    "ms",
    Better.LOWER,
    ("requests.token_offsets_ns", "handoffs.switch_index"),
    observe,
    headline=("p50", "p99"),
)
