"""Benefit-cost ratio: good requests per unit of cost (the run's currency), hardware and line together.

    bcr = request_goodput * 3600 / cost_per_hour = count(good) / (window * cost_per_hour / 3600)

Null without objectives or without a cost of the cell.
"""

from __future__ import annotations

from reports.columns import Floats
from reports.frame import Frame
from reports.metric import Better, Share
from reports.slo import good_requests


def terms(f: Frame) -> tuple[Floats, Floats | float] | None:
    good = good_requests(f)
    if good is None or not f.cost_per_hour:
        return None
    return good.astype(float), f.window_s * f.cost_per_hour / 3600


METRIC = Share(
    "bcr",
    "Benefit-cost ratio: good requests per unit of cost",
    "req/unit",
    Better.HIGHER,
    ("requests.status",),
    terms,
    headline=True,
)
