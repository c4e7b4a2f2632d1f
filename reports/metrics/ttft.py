"""Time to first token: first non-empty output token - send time.

    ttft = first_token_ns - sent_ns

An empty role chunk is no token; a reasoning token is one. Null when no token came.
"""

from __future__ import annotations

from reports.columns import Floats
from reports.frame import Frame
from reports.metric import Better, PerRequest


def observe(f: Frame) -> Floats:
    return (f.client("first_token_ns") - f.client("sent_ns")) / 1e6


METRIC = PerRequest(
    "ttft",
    "Time to first token",
    "ms",
    Better.LOWER,
    ("requests.first_token_ns", "requests.sent_ns"),
    observe,
    headline=("p50", "p90", "p99"),
)
