"""Time to first token from when the schedule wanted the request sent.

    ttft_intended = first_token_ns - intended_ns

Free of coordinated omission: a late generator, or a target that holds the generator up, shows here.
"""

from __future__ import annotations

from reports.columns import Floats
from reports.frame import Frame
from reports.metric import Better, PerRequest


def observe(f: Frame) -> Floats:
    return (f.client("first_token_ns") - f.client("intended_ns")) / 1e6


METRIC = PerRequest(
    "ttft_intended",
    "Time to first token from the intended send",
    "ms",
    Better.LOWER,
    ("requests.first_token_ns", "requests.intended_ns"),
    observe,
    headline=("p99",),
)
