"""Share of requests that meet every objective of the run's [slo]; failed ones do not.

    slo_attainment = count(good) / count(status in (ok, error, timeout))

Null when the run has no objectives.
"""

from __future__ import annotations

from reports.columns import Floats
from reports.frame import Frame
from reports.metric import Better, Share
from reports.slo import good_requests


def terms(f: Frame) -> tuple[Floats, Floats | float] | None:
    good = good_requests(f)
    if good is None:
        return None
    counted = f.ok | f.failed
    return good.astype(float), counted.astype(float)


METRIC = Share(
    "slo_attainment",
    "Requests that meet all objectives",
    "1",
    Better.HIGHER,
    ("requests.status",),
    terms,
    headline=True,
)
