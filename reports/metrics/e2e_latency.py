"""End-to-end latency: last output token - send time.

e2e_latency = last_token_ns - sent_ns
"""

from __future__ import annotations

from reports.columns import Floats
from reports.frame import Frame
from reports.metric import Better, PerRequest


def observe(f: Frame) -> Floats:
    return (f.client("last_token_ns") - f.client("sent_ns")) / 1e6


METRIC = PerRequest(
    "e2e_latency",
    "End-to-end latency",
    "ms",
    Better.LOWER,
    ("requests.last_token_ns", "requests.sent_ns"),
    observe,
    headline=("p50", "p99"),
)
