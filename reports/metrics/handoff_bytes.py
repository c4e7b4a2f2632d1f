"""Payload of the handoff itself: token ids, or RLD's incremental KV.

handoff_bytes = handoff_bytes
"""

from __future__ import annotations

from reports.columns import Floats
from reports.frame import Frame
from reports.metric import Better, PerRequest


def observe(f: Frame) -> Floats:
    return f.router("handoff_bytes")


METRIC = PerRequest(
    "handoff_bytes",
    "Handoff payload",
    "bytes",
    Better.LOWER,
    ("handoffs.handoff_bytes",),
    observe,
    headline=("p50",),
)
