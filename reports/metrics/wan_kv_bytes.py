"""KV and handoff payload that crossed the WAN, per request that the router saw.

    wan_kv_bytes = (sum(main_kv_bytes) + sum(handoff_bytes)) / count(requests), null as 0; 0 without a WAN

Payload as counted by the router; what the line carried, control and retransmits included, is wan_bytes.
Workers that hold no KV, but recompute, tell nothing of it: then it is not known.
"""

from __future__ import annotations

import numpy as np

from reports.columns import Floats
from reports.frame import Frame
from reports.metric import Better, Share

_TOLD_OF_KV = ("prefill_computed_tokens", "relay_hit_tokens", "main_hit_tokens")


def terms(f: Frame) -> tuple[Floats, Floats]:
    seen = ~np.isnan(f.router("output_tokens"))
    seen &= any((~np.isnan(f.router(column))).any() for column in _TOLD_OF_KV)
    sent = np.nan_to_num(f.router("main_kv_bytes")) + np.nan_to_num(f.router("handoff_bytes"))
    crossed = sent if f.has_wan else np.zeros(len(sent))
    return np.where(seen, crossed, np.nan), np.ones(len(seen))


METRIC = Share(
    "wan_kv_bytes",
    "KV bytes across the WAN per request",
    "bytes",
    Better.LOWER,
    (
        "handoffs.main_kv_bytes",
        "handoffs.handoff_bytes",
        "handoffs.output_tokens",
        *(f"handoffs.{column}" for column in _TOLD_OF_KV),
    ),
    terms,
    headline=True,
)
