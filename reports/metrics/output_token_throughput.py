"""Output tokens of successful requests per second of the measured window.

output_token_throughput = sum(output_tokens where status = ok) / window
"""

from __future__ import annotations

import numpy as np

from reports.columns import Floats
from reports.frame import Frame
from reports.metric import Better, Share


def terms(f: Frame) -> tuple[Floats, float]:
    return np.where(f.ok, np.nan_to_num(f.client("output_tokens")), 0.0), f.window_s


METRIC = Share(
    "output_token_throughput",
    "Output tokens",
    "tok/s",
    Better.HIGHER,
    ("requests.output_tokens",),
    terms,
    headline=True,
)
