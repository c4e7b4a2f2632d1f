"""What a metric is. Each metric is one file of reports/metrics: its formula in the module's docstring,
and one of these as METRIC. Formulas are asked block by block of rows: what they say of a row may depend on
that row alone."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from reports.columns import Floats
from reports.frame import Frame
from reports.run import Run
from reports.stats.group_sums import group_sums
from reports.stats.sample import Sample
from reports.stats.statistic import PerRepetition, Quantile, Ratio

QUANTILES: Final[dict[str, float]] = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999}
TAIL_SIZE: Final = 10
"""A quantile resting on fewer observations beyond it is marked: it is little more than the maximum."""


Terms = Callable[[Frame], tuple[Floats, Floats | float] | None]


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

    def values(self, frame: Frame) -> Floats:
        """Of each request of the frame, NaN for failures."""
        found = np.empty(len(frame))
        for here, block in frame.blocks():
            found[here] = np.where(block.ok, self.observe(block), np.nan)
        return found

    def sample(self, frame: Frame) -> Sample:
        """Values of successes."""
        return Sample.of(self.values(frame), frame.groups, frame.reps)

    def sample_with_failures(self, frame: Frame) -> Sample:
        """The same, failed requests counted as never having ended (+inf)."""
        values = np.where(frame.failed, np.inf, self.values(frame))
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

    terms: Terms
    headline: bool = False

    def statistic(self, frame: Frame) -> Ratio | None:
        """None where undefined."""
        _, first = next(frame.blocks(), (None, None))
        terms = None if first is None else self.terms(first)
        if terms is None:
            return None
        _, below = terms
        # A window is spent on all requests, also on those that are left out of a pairing.
        return self._rate(frame.whole, below) if isinstance(below, float) else sums(frame, self.terms)

    def _rate(self, frame: Frame, below: float) -> Ratio:
        def terms(block: Frame) -> tuple[Floats, Floats | float] | None:
            found = self.terms(block)
            return None if found is None else (found[0], np.ones(len(block)))

        ratio = sums(frame, terms)
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
        group_sums(sample.groups, weighted, groups),
        group_sums(sample.groups, counts, groups),
        np.array(by_rep, np.float64),
        np.array([rep.size for rep in sample.by_rep], np.float64),
        sample.size,
    )


def sums(frame: Frame, terms: Terms) -> Ratio:
    """Sum over sum by cluster and repetition; rows with NaN in either are left out."""
    by_group = np.zeros((2, frame.group_count))
    by_rep = np.zeros((2, max(frame.columns.reps, default=0) + 1))
    size = 0
    for _, block in frame.blocks():
        found = terms(block)
        assert found is not None
        above, below = found
        known = ~(np.isnan(above) | np.isnan(below))
        groups, reps = block.groups[known], block.reps[known]
        for place, term in enumerate(found):
            values = np.broadcast_to(term, known.shape)[known]
            by_group[place] += np.bincount(groups, values, by_group.shape[1])
            by_rep[place] += np.bincount(reps, values, by_rep.shape[1])
        size += len(groups)
    return Ratio(by_group[0], by_group[1], by_rep[0], by_rep[1], size)


def quantile(sample: Sample, name: str) -> Quantile:
    return Quantile(sample, QUANTILES[name])
