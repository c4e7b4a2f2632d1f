"""Share of all output tokens that RLD made.

relay_token_share = sum(relay_tokens, null as 0) / sum(output_tokens)   (router's count)
"""

from __future__ import annotations

import numpy as np

from reports.columns import Floats
from reports.frame import Frame
from reports.metric import Better, Share


def terms(f: Frame) -> tuple[Floats, Floats]:
    tokens = f.router("output_tokens")
    return np.where(np.isnan(tokens), np.nan, np.nan_to_num(f.router("relay_tokens"))), tokens


METRIC = Share(
    "relay_token_share",
    "Share of output tokens made by RLD",
    "1",
    Better.NEITHER,
    ("handoffs.relay_tokens", "handoffs.output_tokens"),
    terms,
    headline=True,
)
