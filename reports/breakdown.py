"""Requests by group: per turn, hit band, pipeline, phase around a fault, tenant."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from reports.columns import Codes
from reports.errors import ReportError
from reports.frame import Frame
from reports.metric import QUANTILES, PerRequest, Share
from reports.metric_table import metric
from reports.recovery import fault_phase
from reports.stats.sample import Sorted

Grouping = Callable[[Frame], tuple[Codes, list[str]]]

BAND_EDGES: Final = (0.90, 0.95, 0.96, 0.97, 0.98, 0.99)
_TURN_EDGES: Final = (1, 2, 3, 4, 6, 11, 21)
_TURN_LABELS: Final = ("0", "1", "2", "3", "4-5", "6-10", "11-20", "21+")


def hit_band(frame: Frame) -> tuple[Codes, list[str]]:
    """Seven bands of the prefix hit that the trace implies (reported, where the trace implies none)."""
    expected, cached = frame.client("expected_cached_tokens"), frame.client("cached_tokens")
    hit = np.where(np.isnan(expected), cached, expected) / frame.client("prompt_tokens")
    codes = np.digitize(np.nan_to_num(hit), BAND_EDGES).astype(np.int32)
    codes[np.isnan(hit)] = -1
    edges = [0, *(round(100 * edge) for edge in BAND_EDGES), 100]
    return codes, [f"{low}-{high} %" for low, high in pairwise(edges)]


def turn(frame: Frame) -> tuple[Codes, list[str]]:
    """Index of the turn in its session, later ones thrown together."""
    codes = np.digitize(frame.client("turn"), _TURN_EDGES).astype(np.int32)
    return codes, list(_TURN_LABELS)


def pipeline(frame: Frame) -> tuple[Codes, list[str]]:
    return frame.labels("handoffs", "pipeline")


def tenant(frame: Frame) -> tuple[Codes, list[str]]:
    return frame.labels("requests", "tenant")


GROUPINGS: Final[dict[str, Grouping]] = {
    "turn": turn,
    "band": hit_band,
    "pipeline": pipeline,
    "phase": fault_phase,
    "tenant": tenant,
}
FIGURES: Final = (
    "ttft_p50",
    "ttft_p90",
    "ttft_p99",
    "tpot_p50",
    "e2e_latency_p50",
    "handoff_gap_p50",
    "handoff_gap_p99",
    "relay_token_share",
    "prefix_hit",
    "wan_kv_bytes",
    "slo_attainment",
    "error_rate",
)


@dataclass(frozen=True, slots=True)
class Group:
    """One group of one cell; figures by key, None where undefined."""

    label: str
    requests: int
    share: float
    figures: dict[str, float | None]


def breakdown(frame: Frame, by: str) -> list[Group]:
    """Groups that have requests, in their natural order. Point values: intervals are for whole cells."""
    if by not in GROUPINGS:
        raise ReportError(f"no breakdown by {by!r}; known: {', '.join(GROUPINGS)}")
    codes, labels = GROUPINGS[by](frame)
    total = max(int((codes >= 0).sum()), 1)
    groups = []
    for code, label in enumerate(labels):
        rows = codes == code
        count = int(rows.sum())
        if count:
            groups.append(Group(label, count, count / total, _figures(frame.chosen(rows))))
    return groups


def _figures(frame: Frame) -> dict[str, float | None]:
    found: dict[str, float | None] = {}
    ordered: dict[str, Sorted] = {}
    for key in FIGURES:
        name, _, statistic = key.rpartition("_")
        known = metric(name) if statistic in QUANTILES else metric(key)
        if isinstance(known, PerRequest):
            if name not in ordered:
                values = known.values(frame)
                ordered[name] = Sorted(np.sort(values[~np.isnan(values)]), None)
            found[key] = ordered[name].quantile(QUANTILES[statistic])
        elif isinstance(known, Share):
            ratio = known.statistic(frame)
            found[key] = None if ratio is None else ratio.point()
    return found
