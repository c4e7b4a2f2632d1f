"""How late the load generator sent: a figure of the instrument, not of the system.

send_lateness = sent_ns - intended_ns
"""

from __future__ import annotations

from reports.columns import Floats
from reports.frame import Frame
from reports.metric import Better, PerRequest


def observe(f: Frame) -> Floats:
    return (f.client("sent_ns") - f.client("intended_ns")) / 1e6


METRIC = PerRequest(
    "send_lateness",
    "Send lateness",
    "ms",
    Better.LOWER,
    ("requests.sent_ns", "requests.intended_ns"),
    observe,
)
