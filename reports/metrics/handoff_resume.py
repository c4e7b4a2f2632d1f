"""Last part of the handoff latency: from MD's last extend step to its first token at the router.

handoff_resume = switch_ns - extend_done_ns
"""

from __future__ import annotations

from reports.columns import Floats
from reports.frame import Frame
from reports.metric import Better, PerRequest


def observe(f: Frame) -> Floats:
    return (f.router("switch_ns") - f.router("extend_done_ns")) / 1e6


METRIC = PerRequest(
    "handoff_resume",
    "Handoff: extend done to first token",
    "ms",
    Better.LOWER,
    ("handoffs.switch_ns", "handoffs.extend_done_ns"),
    observe,
)
