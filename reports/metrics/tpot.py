"""Time per output token after the first, one value a request.

    tpot = (last_token_ns - first_token_ns) / (output_tokens - 1)

Null for fewer than two tokens.
"""

from __future__ import annotations

import numpy as np

from reports.columns import Floats
from reports.frame import Frame
from reports.metric import Better, PerRequest


def observe(f: Frame) -> Floats:
    tokens = f.client("output_tokens")
    steps = np.where(tokens > 1, tokens - 1, np.nan)
    return (f.client("last_token_ns") - f.client("first_token_ns")) / steps / 1e6


METRIC = PerRequest(
    "tpot",
    "Time per output token",
    "ms",
    Better.LOWER,
    ("requests.last_token_ns", "requests.first_token_ns", "requests.output_tokens"),
    observe,
    headline=("p50", "p99"),
)
