"""By how many tokens MD's cache trails P's for a session after a request, on average.

cache_gap_tokens = mean(cache_gap_tokens)
"""

from __future__ import annotations

import numpy as np

from reports.columns import Floats
from reports.frame import Frame
from reports.metric import Better, Share


def terms(f: Frame) -> tuple[Floats, Floats]:
    gap = f.router("cache_gap_tokens")
    return gap, np.ones(len(gap))


METRIC = Share(
    "cache_gap_tokens", "How far MD trails P", "tokens", Better.LOWER, ("handoffs.cache_gap_tokens",), terms
)
