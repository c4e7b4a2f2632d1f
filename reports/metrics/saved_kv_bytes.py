"""KV payload not sent because the odd-traffic filter stopped the transfer, per request.

saved_kv_bytes = sum(saved_kv_bytes) / count(requests), null as 0
"""

from __future__ import annotations

import numpy as np

from reports.columns import Floats
from reports.frame import Frame
from reports.metric import Better, Share


def terms(f: Frame) -> tuple[Floats, Floats]:
    seen = ~np.isnan(f.router("output_tokens"))
    return np.where(seen, np.nan_to_num(f.router("saved_kv_bytes")), np.nan), np.ones(len(seen))


METRIC = Share(
    "saved_kv_bytes",
    "KV bytes saved by the odd-traffic filter per request",
    "bytes",
    Better.NEITHER,
    ("handoffs.saved_kv_bytes", "handoffs.output_tokens"),
    terms,
)
