"""Successful requests per second of the measured window.

request_throughput = count(status = ok) / window
"""

from __future__ import annotations

from reports.columns import Floats
from reports.frame import Frame
from reports.metric import Better, Share


def terms(f: Frame) -> tuple[Floats, float]:
    return f.is_client("status", "ok").astype(float), f.window_s


METRIC = Share(
    "request_throughput",
    "Requests completed",
    "req/s",
    Better.HIGHER,
    ("requests.status",),
    terms,
    headline=True,
)
