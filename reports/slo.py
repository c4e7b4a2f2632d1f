"""Service-level objectives: what a request must meet to count as good."""

from __future__ import annotations

import numpy as np

from reports.columns import Mask
from reports.errors import ReportError
from reports.frame import Frame
from reports.metric import PerRequest
from reports.metric_table import METRICS, metric


def good_requests(frame: Frame) -> Mask | None:
    """Successful requests that meet every objective; None when the run has none.

    An objective is named `<metric>_<unit>`, e.g. ttft_ms, tpot_ms, handoff_gap_ms, e2e_latency_ms; a
    metric that is undefined for a request (tpot of one token) is met by it.
    """
    if not frame.slo:
        return None
    good = frame.ok
    for name, limit in frame.slo.items():
        values = objective(name).observe(frame)
        good = good & ~(np.nan_to_num(values, nan=-np.inf) > limit)
    return good


def objective(name: str) -> PerRequest:
    """The metric an objective is about."""
    found, _, unit = name.rpartition("_")
    if found in METRICS:
        chosen = metric(found)
        if isinstance(chosen, PerRequest) and chosen.unit == unit:
            return chosen
    raise ReportError(
        f"slo.{name}: no such objective; known: <metric>_ms with a metric of one value per request, such as "
        "ttft_ms, ttft_intended_ms, tpot_ms, max_itl_ms, handoff_gap_ms, e2e_latency_ms"
    )
