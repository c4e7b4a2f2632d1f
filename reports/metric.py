"""What a metric is. Each metric is one file of reports/metrics: its formula in the module's docstring,
and one of these as METRIC."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from reports.columns import Floats
from reports.frame import Frame
from reports.run import Run
from reports.stats.sample import Sample
from reports.stats.statistic import PerRepetition, Quantile, Ratio

QUANTILES: Final[dict[str, float]] = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999}
TAIL_SIZE: Final = 10
"""A quantile resting on fewer observations beyond it is marked: it is little more than the maximum."""


class Better(enum.StrEnum):
    LOWER = "lower"
    HIGHER = "higher"
    NEITHER = "neither"


@dataclass(frozen=True, slots=True)
class Metric:
    """`needs`: columns as 'table.column'; without them in the records the metric is null."""

    name: str
    title: str
    unit: str
    better: Better
    needs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PerRequest(Metric):
    """One value per successful request; NaN where undefined."""

    observe: Callable[[Frame], Floats]
    headline: tuple[str, ...] = ()
    """Statistics of it on the first table: 'mean' or names of QUANTILES."""

    def sample(self, frame: Frame) -> Sample:
        """Values of successes."""
        return Sample.of(np.where(frame.ok, self.observe(frame), np.nan), frame.groups, frame.reps)

    def sample_with_failures(self, frame: Frame) -> Sample:
        """The same, failed requests counted as never having ended (+inf)."""
        values = np.where(frame.ok, self.observe(frame), np.where(frame.failed, np.inf, np.nan))
        return Sample.of(values, frame.groups, frame.reps)


@dataclass(frozen=True, slots=True)
class PerToken(Metric):
    """Values pooled over the tokens of successful requests."""

    pool: Callable[[Frame], Sample]
    headline: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Share(Metric):
    """A sum over a sum: a mean, a share or, over a constant, a rate.

    `terms` gives numerator and denominator per request (NaN: not counted), or numerator and a constant.
    """

    terms: Callable[[Frame], tuple[Floats, Floats | float] | None]
    headline: bool = False

    def statistic(self, frame: Frame) -> Ratio | None:
        """None where undefined."""
        terms = self.terms(frame)
        if terms is None or not len(frame):
            return None
        above, below = terms
        if isinstance(below, float):
            # A window is spent on all requests, also on those that are left out of a pairing.
            return self._rate(frame.whole, below)
        return sums(frame, above, below)

    def _rate(self, frame: Frame, below: float) -> Ratio | None:
        terms = self.terms(frame)
        if terms is None:
            return None
        ratio = sums(frame, terms[0], np.ones(len(frame)))
        # A repetition has its share of the constant by its share of the measured time.
        part = np.zeros(len(ratio.rep_numerator))
        for rep, window_s in frame.windows_s.items():
            part[rep] = below * window_s / frame.window_s
        return Ratio(ratio.numerator, ratio.denominator, ratio.rep_numerator, part, ratio.size, below)


@dataclass(frozen=True, slots=True)
class PerRep(Metric):
    """One value per repetition, from tables that know no requests; None where undefined."""

    measure: Callable[[Run, str, int], float | None]
    headline: bool = False

    def statistic(self, run: Run, cell: str) -> PerRepetition:
        values = [self.measure(run, cell, rep) for rep in run.reps(cell)]
        return PerRepetition(np.array([v for v in values if v is not None]))


AnyMetric = PerRequest | PerToken | Share | PerRep


def mean(sample: Sample, groups: int) -> Ratio:
    """Mean of a sample as a statistic."""
    counts = np.ones(len(sample.values)) if sample.counts is None else sample.counts
    weighted = sample.values if sample.counts is None else sample.values * sample.counts
    by_rep = [(r.values if r.counts is None else r.values * r.counts).sum() for r in sample.by_rep]
    return Ratio(
        _sums(sample.groups, weighted, groups),
        _sums(sample.groups, counts, groups),
        np.array(by_rep, np.float64),
        np.array([rep.size for rep in sample.by_rep], np.float64),
        sample.size,
    )


def sums(frame: Frame, above: Floats, below: Floats) -> Ratio:
    """Sum over sum by cluster and repetition; rows with NaN in either are left out."""
    known = ~(np.isnan(above) | np.isnan(below))
    above, below = above[known], below[known]
    groups, reps = frame.groups[known], frame.reps[known]
    rep_count = max(frame.columns.reps, default=0) + 1
    return Ratio(
        _sums(groups, above, frame.group_count),
        _sums(groups, below, frame.group_count),
        _sums(reps, above, rep_count),
        _sums(reps, below, rep_count),
        int(known.sum()),
    )


def _sums(places: npt.NDArray[Any], values: npt.NDArray[Any], count: int) -> Floats:
    return np.asarray(np.bincount(places, values, count), np.float64)


def quantile(sample: Sample, name: str) -> Quantile:
    return Quantile(sample, QUANTILES[name])
