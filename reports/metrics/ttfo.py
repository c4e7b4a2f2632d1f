"""Time to first output token: first non-reasoning token - send time.

ttfo = first_output_ns - sent_ns
"""

from __future__ import annotations

from reports.columns import Floats
from reports.frame import Frame
from reports.metric import Better, PerRequest


def observe(f: Frame) -> Floats:
    return (f.client("first_output_ns") - f.client("sent_ns")) / 1e6


METRIC = PerRequest(
    "ttfo",
    "Time to first output token",
    "ms",
    Better.LOWER,
    ("requests.first_output_ns", "requests.sent_ns"),
    observe,
)
