"""Prefix hit rate by tokens, as the server reported it.

    prefix_hit = sum(cached_tokens) / sum(prompt_tokens), over requests that report cached_tokens

Null, never 0, when the server does not report it.
"""

from __future__ import annotations

from reports.columns import Floats
from reports.frame import Frame
from reports.metric import Better, Share


def terms(f: Frame) -> tuple[Floats, Floats]:
    return f.client("cached_tokens"), f.client("prompt_tokens")


METRIC = Share(
    "prefix_hit",
    "Prefix hit rate, token-weighted",
    "1",
    Better.HIGHER,
    ("requests.cached_tokens", "requests.prompt_tokens"),
    terms,
    headline=True,
)
