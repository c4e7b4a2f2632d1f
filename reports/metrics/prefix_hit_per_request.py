"""Prefix hit rate, every request counting once.

prefix_hit_per_request = mean(cached_tokens / prompt_tokens)
"""

from __future__ import annotations

import numpy as np

from reports.columns import Floats
from reports.frame import Frame
from reports.metric import Better, Share


def terms(f: Frame) -> tuple[Floats, Floats]:
    hit = f.client("cached_tokens") / f.client("prompt_tokens")
    return hit, np.ones(len(hit))


METRIC = Share(
    "prefix_hit_per_request",
    "Prefix hit rate, mean of requests",
    "1",
    Better.HIGHER,
    ("requests.cached_tokens", "requests.prompt_tokens"),
    terms,
)
