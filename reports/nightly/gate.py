"""The gate: is tonight worse than the last good nights, by more than they differ among themselves?

Each series is one figure of one cell of one job, over nights that compare (same trace, scales, drivers,
engine, model and class of machine). Its reference are the good nights since its last change of level
(reports.stats.change_point), not one previous run. Tonight is tested against them by a t-test whose noise is
that between nights, moderated by that within a night (reports.stats.uncertainty); p-values are corrected
over all series of the night. A small loss that no single night shows is caught as a change of level whose
last stretch includes tonight.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec
import numpy as np
import pandas as pd

from reports.metric import Better
from reports.nightly.record import Night, NightVerdict
from reports.stats.change_point import segment_starts
from reports.stats.correction import benjamini_hochberg
from reports.stats.uncertainty import Uncertainty, combined

_GOOD: Final = frozenset({NightVerdict.PASSED, NightVerdict.ACCEPTED, NightVerdict.INCOMPLETE})
_INTERVAL_WIDTH_SD: Final = 2 * 1.96
_RECENT_NIGHTS: Final = 7
_DEFAULT_FIGURES: Final = (
    "ttft_p50",
    "ttft_p90",
    "ttft_p99",
    "tpot_p50",
    "tpot_p99",
    "itl_p99",
    "e2e_latency_p50",
    "handoff_gap_p50",
    "wan_kv_bytes",
    "prefix_hit",
    "slo_attainment",
    "request_goodput",
    "output_token_throughput",
    "error_rate",
)


class GateSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Section [gate] of a suite."""

    figures: tuple[str, ...] = _DEFAULT_FIGURES
    """Figures that may fail a night; all others are only shown."""
    alpha: float = 0.01
    """Chance of a false alarm in a night, over all series together."""
    min_change_pct: float = 5.0
    """Smaller changes pass even when they are certain (points, for figures around zero)."""
    min_nights: int = 2
    """Good nights a series needs before it is judged."""


class Outcome(enum.StrEnum):
    PASSED = "passed"
    REGRESSED = "regressed"
    IMPROVED = "improved"
    UNKNOWN = "unknown"
    """Too few good nights, or an invalid run."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What the gate says of one series."""

    job: str
    cell: str
    figure: str
    unit: str
    outcome: Outcome
    value: float
    reference: float | None
    """Mean of the good nights since the last change of level."""
    change: float | None
    """Relative to the reference; absolute where that is 0."""
    adjusted_p: float | None
    nights: int
    since: str | None = None
    """First night of the new level, where it began before tonight."""
    reason: str = ""


def good_nights(nights: Sequence[Night]) -> list[str]:
    """Nights that may serve as a reference: none before the last one whose new level was accepted.

    Of an incomplete night the valid runs count.
    """
    accepted = [i for i, night in enumerate(nights) if night.verdict is NightVerdict.ACCEPTED]
    since = nights[accepted[-1] :] if accepted else nights
    return [night.night for night in since if night.verdict in _GOOD]


def judge(
    history: pd.DataFrame, tonight: pd.DataFrame, good: Collection[str], settings: GateSettings
) -> list[Finding]:
    """Findings for the gated figures of tonight; `history` are the figures of all earlier nights."""
    past = history[history["night"].isin(list(good)) & history["valid"]]
    rows = tonight[tonight["figure"].isin(settings.figures)]
    tested = [_test(row, past, settings) for row in rows.itertuples()]
    adjusted = benjamini_hochberg(
        np.array([np.nan if found.adjusted_p is None else found.adjusted_p for found in tested])
    )
    return [
        _decide(found, None if np.isnan(p) else float(p), better, settings)
        for found, p, better in zip(tested, adjusted, rows["better"], strict=True)
    ]


def _series(past: pd.DataFrame, row: object) -> tuple[pd.DataFrame, list[str]]:
    """Nights of the same series that compare, and in what the last one that does not compare differs."""
    same = np.ones(len(past), bool)
    for column in ("job", "cell", "figure"):
        same &= (past[column] == getattr(row, column)).to_numpy()
    series = past[same].sort_values("night")
    ours = str(row.comparable)  # type: ignore[attr-defined]
    comparable = (series["comparable"] == ours).to_numpy(bool)
    differs: list[str] = []
    if not comparable.all():
        theirs = str(series["comparable"][~comparable].iloc[-1])
        pairs = zip(ours.split("; "), theirs.split("; "), strict=False)
        differs = [a.partition("=")[0] for a, b in pairs if a != b]
    return series[comparable], differs


def _test(row: object, past: pd.DataFrame, settings: GateSettings) -> Finding:
    """Finding with the uncorrected p; outcome still open."""
    series, differs = _series(past, row)
    value = float(row.value)  # type: ignore[attr-defined]
    head = (row.job, row.cell, row.figure, row.unit)  # type: ignore[attr-defined]
    values = series["value"].to_numpy(np.float64)
    if not row.valid:  # type: ignore[attr-defined]
        return Finding(*head, Outcome.UNKNOWN, value, None, None, None, 0, reason="the run is invalid")
    if len(values) < settings.min_nights:
        reason = f"{len(values)} good nights to compare with; {settings.min_nights} are needed"
        if differs:
            reason += f" (earlier ones do not compare: other {', '.join(differs)})"
        return Finding(*head, Outcome.UNKNOWN, value, None, None, None, len(values), reason=reason)
    if not (np.isfinite(values).all() and math.isfinite(value)):
        same = bool(np.array_equal(values, np.full(len(values), value)))
        return Finding(*head, Outcome.PASSED, value, None, None, 1.0 if same else None, len(values))
    within = within_night([*zip(series["low"], series["high"], strict=True), (row.low, row.high)])  # type: ignore[attr-defined]
    reference = values[segment_starts(values, within)[-1] :]
    mean = float(reference.mean())
    change = value - mean if mean == 0 else value / mean - 1
    p = _predicted(reference, within).p(value - mean)
    since = None
    shifted = _shift(np.append(values, value), within)
    if shifted is not None and shifted[0] < p:
        p, start, before = shifted
        since = None if start >= len(values) else str(series["night"].iloc[start])
        mean = before
        change = value - mean if mean == 0 else value / mean - 1
    return Finding(*head, Outcome.PASSED, value, mean, change, p, len(reference), since=since)


def _predicted(reference: np.ndarray[tuple[int], np.dtype[np.float64]], within: float) -> Uncertainty:
    """Uncertainty of one more night's difference from the mean of the reference."""
    count = len(reference)
    widen = math.sqrt(1 + 1 / count)
    between = None
    if count > 1:
        between = Uncertainty(float(reference.std(ddof=1)) * widen, count - 1)
    return combined(within * widen, between)


def _shift(
    values: np.ndarray[tuple[int], np.dtype[np.float64]], within: float
) -> tuple[float, int, float] | None:
    """(p, start, mean before) of a recent change of level that tonight belongs to."""
    starts = segment_starts(values, within)
    if len(starts) < 2 or starts[-1] < len(values) - _RECENT_NIGHTS:
        return None
    before, after = values[starts[-2] : starts[-1]], values[starts[-1] :]
    freedom = len(before) + len(after) - 2
    if freedom < 1:
        return None
    scatter = math.sqrt(
        (((before - before.mean()) ** 2).sum() + ((after - after.mean()) ** 2).sum()) / freedom
    )
    widen = math.sqrt(1 / len(before) + 1 / len(after))
    known = combined(within * widen, Uncertainty(scatter * widen, freedom))
    # The place of the change was searched for among all nights: the p pays for the search.
    p = min(known.p(float(after.mean() - before.mean())) * (len(values) - 1), 1.0)
    return p, starts[-1], float(before.mean())


def within_night(intervals: list[tuple[float | None, float | None]]) -> float:
    """Median standard error within a night, from the 95 % intervals; 0 when unknown."""
    widths = [high - low for low, high in intervals if low is not None and high is not None]  # NaN: unknown
    known = [width for width in widths if math.isfinite(width)]
    return float(np.median(known)) / _INTERVAL_WIDTH_SD if known else 0.0


def _decide(found: Finding, p: float | None, better: str, settings: GateSettings) -> Finding:
    if found.outcome is Outcome.UNKNOWN:
        return found
    outcome = Outcome.PASSED
    bound = settings.min_change_pct / 100
    if found.change is not None and p is not None and p < settings.alpha and abs(found.change) >= bound:
        match Better(better):
            case Better.LOWER:
                outcome = Outcome.REGRESSED if found.change > 0 else Outcome.IMPROVED
            case Better.HIGHER:
                outcome = Outcome.REGRESSED if found.change < 0 else Outcome.IMPROVED
            case Better.NEITHER:
                outcome = Outcome.PASSED
    return replace(found, outcome=outcome, adjusted_p=p)
