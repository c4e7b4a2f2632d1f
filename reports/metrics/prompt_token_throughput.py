"""Prompt tokens of successful requests per second of the measured window, cached ones included.

prompt_token_throughput = sum(prompt_tokens where status = ok) / window
"""

from __future__ import annotations

import numpy as np

from reports.columns import Floats
from reports.frame import Frame
from reports.metric import Better, Share


def terms(f: Frame) -> tuple[Floats, float]:
    return np.where(f.ok, f.client("prompt_tokens"), 0.0), f.window_s


METRIC = Share(
    "prompt_token_throughput", "Prompt tokens", "tok/s", Better.HIGHER, ("requests.prompt_tokens",), terms
)
