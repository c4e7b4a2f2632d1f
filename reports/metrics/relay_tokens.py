"""Output tokens made by RLD that reached the client, of requests that were relayed.

relay_tokens = relay_tokens where pipeline = 'relayed'
"""

from __future__ import annotations

import numpy as np

from reports.columns import Floats
from reports.frame import Frame
from reports.metric import Better, PerRequest


def observe(f: Frame) -> Floats:
    return np.where(f.is_router("pipeline", "relayed"), f.router("relay_tokens"), np.nan)


METRIC = PerRequest(
    "relay_tokens",
    "Tokens relayed per relayed request",
    "tokens",
    Better.NEITHER,
    ("handoffs.relay_tokens", "handoffs.pipeline"),
    observe,
)
