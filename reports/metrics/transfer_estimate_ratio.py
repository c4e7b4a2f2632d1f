"""How good the router's estimate of the WAN transfer was: 1 is exact, below 1 was optimistic.

transfer_estimate_ratio = estimated_transfer_ns / (main_transfer_done_ns - main_transfer_start_ns)
"""

from __future__ import annotations

import numpy as np

from reports.columns import Floats
from reports.frame import Frame
from reports.metric import Better, PerRequest


def observe(f: Frame) -> Floats:
    actual = f.router("main_transfer_done_ns") - f.router("main_transfer_start_ns")
    return f.router("estimated_transfer_ns") / np.where(actual > 0, actual, np.nan)


METRIC = PerRequest(
    "transfer_estimate_ratio",
    "Estimated ÷ actual transfer time",
    "1",
    Better.NEITHER,
    ("handoffs.estimated_transfer_ns", "handoffs.main_transfer_done_ns", "handoffs.main_transfer_start_ns"),
    observe,
)
