"""Prefix hit rate by tokens that the trace implies with an infinite cache: what prefix_hit is held against.

expected_prefix_hit = sum(expected_cached_tokens) / sum(prompt_tokens)
"""

from __future__ import annotations

from reports.columns import Floats
from reports.frame import Frame
from reports.metric import Better, Share


def terms(f: Frame) -> tuple[Floats, Floats]:
    return f.client("expected_cached_tokens"), f.client("prompt_tokens")


METRIC = Share(
    "expected_prefix_hit",
    "Prefix hit rate the trace implies",
    "1",
    Better.HIGHER,
    ("requests.expected_cached_tokens", "requests.prompt_tokens"),
    terms,
)
