"""Prefix hit rate of the prefill worker's own cache.

prefill_hit = sum(prefill_cached_tokens) / sum(prompt_tokens)
"""

from __future__ import annotations

from reports.columns import Floats
from reports.frame import Frame
from reports.metric import Better, Share


def terms(f: Frame) -> tuple[Floats, Floats]:
    return f.router("prefill_cached_tokens"), f.client("prompt_tokens")


METRIC = Share(
    "prefill_hit",
    "P's own prefix hit",
    "1",
    Better.HIGHER,
    ("handoffs.prefill_cached_tokens", "requests.prompt_tokens"),
    terms,
)
