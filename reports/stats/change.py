"""How much one side differs from the other, how sure that is, and what could have been seen.

Intervals are percentile intervals of the cluster bootstrap, p-values those of permuted labels; both
widened where repetitions scatter more than sessions explain (reports.stats.uncertainty).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from reports.stats.resample import Draws, Weights
from reports.stats.sample import Sample
from reports.stats.statistic import PerRepetition, Quantile, Ratio
from reports.stats.uncertainty import Uncertainty, between_repetitions, combined

Floats = npt.NDArray[np.float64]
AnyStatistic = Quantile | Ratio | PerRepetition

ALPHA: Final = 0.05
_SHAPELESS: Final = 6.0
"""Beyond this stretch the shape that sessions give an interval says nothing about repetitions."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A statistic of one cell with its 95 % interval; None where undefined."""

    value: float | None
    low: float | None
    high: float | None
    size: int
    reps: int


@dataclass(frozen=True, slots=True)
class Change:
    """The other side less the base. `relative*` are None when the base is 0."""

    absolute: float
    low: float | None
    high: float | None
    relative: float | None
    relative_low: float | None
    relative_high: float | None
    p: float | None
    """Not yet corrected for the number of questions; None where it cannot be tested."""
    detectable: float | None
    """Minimum detectable difference (absolute): found 8 times in 10 at p < .05."""


def estimate(statistic: AnyStatistic, weights: Weights) -> Estimate:
    """Point and interval of one cell."""
    point = statistic.point()
    reps = statistic.per_rep()
    if point is None:
        return Estimate(None, None, None, 0, len(reps))
    between = between_repetitions(reps)
    if isinstance(statistic, PerRepetition):
        if between is None:
            return Estimate(point, None, None, statistic.size, len(reps))
        half = between.half_width
        return Estimate(point, point - half, point + half, statistic.size, len(reps))
    drawn = statistic.weighted(weights)
    low, high = _interval(point, drawn, combined(_spread(drawn), between))
    return Estimate(point, low, high, statistic.size, len(reps))


def change(
    base: AnyStatistic, other: AnyStatistic, draws: Draws, joined: Sample | None = None
) -> Change | None:
    """None when either side is undefined. `joined`: both samples of a quantile in one."""
    a, b = base.point(), other.point()
    if a is None or b is None:
        return None
    if not (math.isfinite(a) and math.isfinite(b)):
        return _of_infinite(a, b)
    between = between_repetitions(base.per_rep(), other.per_rep())
    if isinstance(base, PerRepetition) or isinstance(other, PerRepetition):
        return _of_repetitions(a, b, between)
    drawn_a, drawn_b = base.weighted(draws.bootstrap), other.weighted(draws.other_bootstrap)
    with np.errstate(invalid="ignore"):
        difference = drawn_b - drawn_a
    known_by = combined(_spread(difference), between)
    p: float | None
    if isinstance(base, Ratio) and base.constant is not None:
        # Time passed as a whole: no relabelling of sessions could have changed it.
        p = 1.0 if a == b else None if between is None else known_by.p(b - a)
    else:
        p = _permutation_p(base, other, b - a, draws, joined)
        if math.isfinite(known_by.freedom):
            p = max(p, known_by.p(b - a))
    low, high = _interval(b - a, difference, known_by)
    detectable = known_by.detectable or None
    if not a:
        return Change(b - a, low, high, None, None, None, p, detectable)
    relative_low, relative_high = _relative_interval(a, b, drawn_a, drawn_b, known_by)
    return Change(b - a, low, high, b / a - 1, relative_low, relative_high, p, detectable)


def _permutation_p(
    base: Quantile | Ratio, other: Quantile | Ratio, seen: float, draws: Draws, joined: Sample | None
) -> float:
    as_base: Quantile | Ratio
    as_other: Quantile | Ratio
    if isinstance(base, Ratio):
        assert isinstance(other, Ratio)
        as_base, as_other = base.pooled(other, draws.groups)
    else:
        assert joined is not None
        as_base = as_other = Quantile(joined, base.q)
    permuted = as_other.weighted(draws.relabelled_other) - as_base.weighted(draws.relabelled)
    permuted = np.nan_to_num(permuted, nan=0.0, posinf=math.inf, neginf=-math.inf)
    # A hair's breadth of tolerance: sums in another order must not count as smaller.
    extreme = np.abs(permuted) >= abs(seen) * (1 - 1e-6)
    return (1 + int(extreme.sum())) / (1 + len(permuted))


def _interval(point: float, drawn: Floats, known_by: Uncertainty) -> tuple[float | None, float | None]:
    """95 % percentile interval of `drawn`, stretched about the point where repetitions scatter more."""
    known = drawn[~np.isnan(drawn)]
    if not len(known) or not math.isfinite(point):
        return None, None
    ordered = np.sort(known)
    low, high = (float(ordered[round(q * (len(ordered) - 1))]) for q in (ALPHA / 2, 1 - ALPHA / 2))
    spread = _spread(known)
    if known_by.half_width >= _SHAPELESS * spread:
        return point - known_by.half_width, point + known_by.half_width
    stretch = max(1.0, known_by.half_width / (1.96 * spread))
    return float(point + (low - point) * stretch), float(point + (high - point) * stretch)


def _relative_interval(
    a: float, b: float, drawn_a: Floats, drawn_b: Floats, known_by: Uncertainty
) -> tuple[float | None, float | None]:
    """Interval of b / a - 1, on the logarithm where that exists: never below -100 %."""
    with np.errstate(invalid="ignore", divide="ignore"):
        if a > 0 and b > 0 and (drawn_a > 0).all() and (drawn_b > 0).all():
            scaled = Uncertainty(known_by.error / math.sqrt(a * b), known_by.freedom)
            low, high = _interval(math.log(b / a), np.log(drawn_b / drawn_a), scaled)
            return (None, None) if low is None or high is None else (math.expm1(low), math.expm1(high))
        scaled = Uncertainty(known_by.error / abs(a), known_by.freedom)
        return _interval(b / a - 1, drawn_b / drawn_a - 1, scaled)


def _spread(drawn: Floats) -> float:
    known = drawn[np.isfinite(drawn)]
    return float(known.std()) if len(known) else 0.0


def _of_repetitions(a: float, b: float, between: Uncertainty | None) -> Change:
    relative = b / a - 1 if a else None
    if between is None:
        return Change(b - a, None, None, relative, None, None, 1.0 if a == b else None, None)
    half = between.half_width
    p, detectable = between.p(b - a), between.detectable or None
    if relative is None:
        return Change(b - a, b - a - half, b - a + half, None, None, None, p, detectable)
    share = half / abs(a)
    return Change(
        b - a, b - a - half, b - a + half, relative, relative - share, relative + share, p, detectable
    )


def _of_infinite(a: float, b: float) -> Change:
    """A quantile that falls among failures: equal, or different without a measure of how much."""
    same = a == b
    return Change(0.0 if same else b - a, None, None, None, None, None, 1.0 if same else None, None)
