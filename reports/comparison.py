"""Cells against a base cell: every metric with its interval, its change, and whether that is significant."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from reports.columns import Floats
from reports.metric import (
    QUANTILES,
    TAIL_SIZE,
    AnyMetric,
    Better,
    PerRep,
    PerRequest,
    PerToken,
    Share,
    mean,
    quantile,
)
from reports.metric_table import METRICS, metric
from reports.paired_ratio import PairedRatio
from reports.sides import Side, Sides, shared_codes
from reports.stats.change import ALPHA, AnyStatistic, Change, Estimate, change, estimate
from reports.stats.correction import benjamini_hochberg
from reports.stats.ranks import mann_whitney
from reports.stats.resample import DRAWS, Draws, draw
from reports.stats.sample import Sample
from reports.stats.statistic import PerRepetition, Quantile

WITH_FAILURES: Final = "_with_failures"
_UNDEFINED: Final = PerRepetition(np.empty(0))
_THREADS: Final = 2
_FAILURE_METRICS: Final = frozenset({"ttft", "ttft_intended", "e2e_latency"})


class Verdict(enum.StrEnum):
    BETTER = "better"
    WORSE = "worse"
    DIFFERENT = "different"
    """Significant, of a metric that is neither better high nor low."""
    NOT_SIGNIFICANT = "~"
    UNDEFINED = "undefined"
    """One side has no value, or there is nothing to test it by."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One statistic of one metric of one cell. `key`: what conditions and JSON call it."""

    key: str
    metric: AnyMetric
    statistic: str
    """'mean', 'p50' … 'p999', with '_with_failures' where those count as +inf; '' for shares and rates."""
    headline: bool
    estimate: Estimate
    few_beyond: bool
    """Fewer than ten observations lie beyond the quantile."""


@dataclass(frozen=True, slots=True)
class Row:
    """A figure on both sides."""

    base: Figure
    other: Figure
    change: Change | None
    adjusted_p: float | None
    verdict: Verdict

    @property
    def significant(self) -> bool:
        return self.verdict in {Verdict.BETTER, Verdict.WORSE, Verdict.DIFFERENT}


@dataclass(frozen=True, slots=True)
class Effect:
    """How large the difference of a whole distribution is.

    `cliffs_delta`: P(other > base) - P(other < base). `paired_ratio`: median over trace requests of the
    mean over repetitions, other ÷ base; None when the sides are not paired.
    """

    metric: str
    cliffs_delta: float
    p: float
    adjusted_p: float
    paired_ratio: Estimate | None


@dataclass(frozen=True, slots=True)
class Comparison:
    base: Side
    other: Side
    rows: tuple[Row, ...]
    effects: tuple[Effect, ...]
    paired: bool
    cautions: tuple[str, ...]
    agreement: tuple[int, int] | None
    """Paired requests with equal output ids on both sides, of how many; None when not recorded."""

    def row(self, key: str) -> Row | None:
        return next((row for row in self.rows if row.base.key == key), None)


@dataclass(frozen=True, slots=True)
class _Measured:
    figure: Figure
    statistic: AnyStatistic
    sample: Sample | None
    values: Floats | None = None
    """Of each request, NaN where undefined: with the first statistic of what is set in relation by pairs."""


def figures(sides: Sides, *, seed: int = 0, draws: int = DRAWS) -> list[list[Figure]]:
    """Every figure of every side, by itself."""
    present = [_present(side, sides.groups) for side in sides.sides]
    failures = any(bool(side.frame.failed.any()) for side in sides.sides)
    weights = [draw(p, p, paired=True, seed=seed, draws=draws) for p in present]
    return [
        [m.figure for name in METRICS for m in _measure(side, metric(name), drawn, with_failures=failures)]
        for side, drawn in zip(sides.sides, weights, strict=True)
    ]


def compare_sides(sides: Sides, *, seed: int = 0, draws: int = DRAWS) -> list[Comparison]:
    """The first side against each of the others."""
    base = sides.sides[0]
    present = [_present(side, sides.groups) for side in sides.sides]
    failures = any(bool(side.frame.failed.any()) for side in sides.sides)
    drawn = [draw(present[0], p, paired=sides.paired, seed=seed, draws=draws) for p in present[1:]]
    ratios = [PairedRatio(base, other) if sides.paired else None for other in sides.sides[1:]]
    # Metric by metric, on two threads: what is held at a time are the sorted samples of two metrics.
    with ThreadPoolExecutor(_THREADS) as pool:
        done = list(
            pool.map(lambda name: _compare_metric(sides, metric(name), drawn, ratios, failures), METRICS)
        )
    return [
        Comparison(
            base,
            other,
            _judged([row for rows, _ in done for row in rows[index]]),
            _adjusted([e for _, effects in done if (e := effects[index]) is not None]),
            sides.paired,
            sides.cautions + _repetition_caution(base, other),
            _agreement(base, other) if sides.paired else None,
        )
        for index, other in enumerate(sides.sides[1:])
    ]


def _compare_metric(
    sides: Sides,
    known: AnyMetric,
    drawn: Sequence[Draws],
    ratios: Sequence[PairedRatio | None],
    failures: bool,
) -> tuple[list[list[Row]], list[Effect | None]]:
    """Rows and effect of one metric for each other side."""
    base = sides.sides[0]
    rows: list[list[Row]] = []
    effects: list[Effect | None] = []
    ours: list[_Measured] | None = None
    for other, draws, ratio in zip(sides.sides[1:], drawn, ratios, strict=True):
        ours = ours or list(_measure(base, known, draws, with_failures=failures))
        mirrored = replace(draws, bootstrap=draws.other_bootstrap)
        theirs = list(_measure(other, known, mirrored, with_failures=failures))
        joined: dict[int, Sample] = {}
        rows.append([_row(a, b, draws, joined) for a, b in zip(ours, theirs, strict=True)])
        effects.append(_effect(known, ours[0], theirs[0], draws, joined.get(id(ours[0].sample)), ratio))
    return rows, effects


def _present(side: Side, groups: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    present = np.zeros(groups, bool)
    present[side.frame.groups] = True
    return present


def _measure(side: Side, known: AnyMetric, drawn: Draws, *, with_failures: bool) -> Iterator[_Measured]:
    """All statistics of a metric on one side, the same in number on every side."""
    frame = side.frame
    groups = frame.group_count
    match known:
        case PerRequest():
            values = known.values(frame)
            kept = values.copy() if known.headline and drawn.paired else None
            sample = Sample.of(values, frame.groups, frame.reps)
            first, *others = _distribution(known, sample, groups, drawn, "")
            yield replace(first, values=kept)
            yield from others
            if with_failures and known.name in _FAILURE_METRICS:
                failing = known.sample_with_failures(frame)
                yield from _distribution(known, failing, groups, drawn, WITH_FAILURES)
        case PerToken():
            yield from _distribution(known, known.pool(frame), groups, drawn, "")
        case Share():
            yield _one(known, known.statistic(frame), drawn)
        case PerRep():
            yield _one(known, known.statistic(side.run, side.cell.name), drawn)


def _one(known: Share | PerRep, statistic: AnyStatistic | None, drawn: Draws) -> _Measured:
    statistic = statistic if statistic is not None else _UNDEFINED
    found = estimate(statistic, drawn.bootstrap)
    return _Measured(Figure(known.name, known, "", known.headline, found, False), statistic, None)


def _distribution(
    known: PerRequest | PerToken, sample: Sample, groups: int, drawn: Draws, suffix: str
) -> Iterator[_Measured]:
    statistics: dict[str, AnyStatistic] = {} if suffix else {"mean": mean(sample, groups)}
    statistics |= {name: quantile(sample, name) for name in QUANTILES}
    for name, statistic in statistics.items():
        few = False
        if isinstance(statistic, Quantile):
            few = bool(sample.size) and min(sample.beyond(statistic.q), sample.size) < TAIL_SIZE
        figure = Figure(
            key=f"{known.name}_{name}{suffix}",
            metric=known,
            statistic=name + suffix,
            headline=name in known.headline and not suffix,
            estimate=estimate(statistic, drawn.bootstrap),
            few_beyond=few,
        )
        yield _Measured(figure, statistic, sample)


def _row(a: _Measured, b: _Measured, draws: Draws, joined: dict[int, Sample]) -> Row:
    both: Sample | None = None
    if a.sample is not None and b.sample is not None and a.sample.size and b.sample.size:
        both = joined.get(id(a.sample))
        if both is None:
            both = joined[id(a.sample)] = a.sample.joined(b.sample, draws.groups)
    found = change(a.statistic, b.statistic, draws, both)
    return Row(a.figure, b.figure, found, None, Verdict.UNDEFINED)


def _effect(
    known: AnyMetric,
    ours: _Measured,
    theirs: _Measured,
    draws: Draws,
    joined: Sample | None,
    ratio: PairedRatio | None,
) -> Effect | None:
    if joined is None:
        return None
    p, delta = mann_whitney(joined, draws)
    paired = None
    if ratio is not None and ours.values is not None and theirs.values is not None:
        paired = ratio.of(ours.values, theirs.values, draws.bootstrap)
    return Effect(known.name, delta, p, p, paired)


def _agreement(base: Side, other: Side) -> tuple[int, int] | None:
    """Compares the first repetition of either side."""
    count = max(int(side.pairs.max(initial=-1)) for side in (base, other)) + 1
    codes_of, _ = shared_codes([side.frame.columns.text("output_digest") for side in (base, other)])
    digests = []
    for side, codes in zip((base, other), codes_of, strict=True):
        ours = codes[side.frame.rows]
        known = side.frame.ok & (side.frame.reps == min(side.frame.columns.reps)) & (ours >= 0)
        told = np.full(count, -1, np.int64)
        told[side.pairs[known]] = ours[known]
        digests.append(told)
    both = (digests[0] >= 0) & (digests[1] >= 0)
    return (int((digests[0] == digests[1])[both].sum()), int(both.sum())) if both.any() else None


def _judged(rows: Sequence[Row]) -> tuple[Row, ...]:
    """Correct for the number of questions: the headline's by themselves, the rest by themselves."""
    judged = list(rows)
    for headline in (True, False):
        places = [i for i, row in enumerate(rows) if row.base.headline is headline]
        p = np.array([np.nan if (c := rows[i].change) is None or c.p is None else c.p for i in places])
        for i, adjusted in zip(places, benjamini_hochberg(p), strict=True):
            known = None if np.isnan(adjusted) else float(adjusted)
            judged[i] = replace(rows[i], adjusted_p=known, verdict=_verdict(rows[i], known))
    return tuple(judged)


def _verdict(row: Row, adjusted_p: float | None) -> Verdict:
    if row.change is None or adjusted_p is None:
        return Verdict.UNDEFINED
    if adjusted_p >= ALPHA or row.change.absolute == 0:
        return Verdict.NOT_SIGNIFICANT
    match row.base.metric.better:
        case Better.NEITHER:
            return Verdict.DIFFERENT
        case Better.LOWER:
            return Verdict.BETTER if row.change.absolute < 0 else Verdict.WORSE
        case Better.HIGHER:
            return Verdict.BETTER if row.change.absolute > 0 else Verdict.WORSE


def _adjusted(effects: Sequence[Effect]) -> tuple[Effect, ...]:
    adjusted = benjamini_hochberg(np.array([effect.p for effect in effects]))
    return tuple(replace(e, adjusted_p=float(p)) for e, p in zip(effects, adjusted, strict=True))


def _repetition_caution(base: Side, other: Side) -> tuple[str, ...]:
    if min(len(base.frame.columns.reps), len(other.frame.columns.reps)) > 1:
        return ()
    return ("one repetition only: how much the machine differs from run to run was not measured",)
