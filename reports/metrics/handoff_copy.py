"""Device copy of a KV-transfer handoff.

handoff_copy = copy_ns
"""

from __future__ import annotations

from reports.columns import Floats
from reports.frame import Frame
from reports.metric import Better, PerRequest


def observe(f: Frame) -> Floats:
    return f.router("copy_ns") / 1e6


METRIC = PerRequest(
    "handoff_copy", "Handoff: device copy", "ms", Better.LOWER, ("handoffs.copy_ns",), observe
)
