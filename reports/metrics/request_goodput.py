"""Goodput: requests that meet every objective of the run's [slo], per second of the measured window.

    request_goodput = count(good) / window

Null when the run has no objectives.
"""

from __future__ import annotations

from reports.columns import Floats
from reports.frame import Frame
from reports.metric import Better, Share
from reports.slo import good_requests


def terms(f: Frame) -> tuple[Floats, Floats | float] | None:
    good = good_requests(f)
    return None if good is None else (good.astype(float), f.window_s)


METRIC = Share(
    "request_goodput",
    "Requests meeting all objectives",
    "req/s",
    Better.HIGHER,
    ("requests.status",),
    terms,
    headline=True,
)
