"""Prefix hit rate of MD's radix cache: what the decode-side cache saves the WAN.

main_hit = sum(main_hit_tokens) / sum(prompt_tokens)
"""

from __future__ import annotations

from reports.columns import Floats
from reports.frame import Frame
from reports.metric import Better, Share


def terms(f: Frame) -> tuple[Floats, Floats]:
    return f.router("main_hit_tokens"), f.client("prompt_tokens")


METRIC = Share(
    "main_hit",
    "MD's own prefix hit",
    "1",
    Better.HIGHER,
    ("handoffs.main_hit_tokens", "requests.prompt_tokens"),
    terms,
    headline=True,
)
