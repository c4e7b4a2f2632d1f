"""Share of requests that took the pipeline P-RLD-MD.

relayed_share = count(pipeline = 'relayed') / count(pipeline known)
"""

from __future__ import annotations

from reports.columns import Floats
from reports.frame import Frame
from reports.metric import Better, Share


def terms(f: Frame) -> tuple[Floats, Floats]:
    known = f.has_router("pipeline")
    relayed = f.is_router("pipeline", "relayed")
    return relayed.astype(float), known.astype(float)


METRIC = Share(
    "relayed_share",
    "Share of requests relayed",
    "1",
    Better.NEITHER,
    ("handoffs.pipeline",),
    terms,
    headline=True,
)
