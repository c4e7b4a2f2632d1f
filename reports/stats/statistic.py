"""The three kinds of statistic a metric offers, and how each is recomputed under a reweighting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from reports.stats.resample import Weights
from reports.stats.sample import Sample

Floats = npt.NDArray[np.float64]


class Statistic(Protocol):
    """One number of one cell, recomputable from clusters drawn again."""

    @property
    def size(self) -> int:
        """Observations it rests on."""
        ...

    def point(self) -> float | None: ...

    def per_rep(self) -> Floats:
        """The same number within each repetition."""
        ...

    def weighted(self, weights: Weights) -> Floats:
        """The number under each row of weights [draws, groups]."""
        ...


@dataclass(frozen=True, slots=True)
class Quantile:
    """A quantile of a sample."""

    sample: Sample
    q: float

    @property
    def size(self) -> int:
        return self.sample.size

    def point(self) -> float | None:
        return self.sample.quantile(self.q)

    def per_rep(self) -> Floats:
        return self.sample.rep_quantiles(self.q)

    def weighted(self, weights: Weights) -> Floats:
        return self.sample.weighted_quantiles(weights, self.q)


@dataclass(frozen=True, slots=True)
class Ratio:
    """A sum over a sum (a mean, a share) or, with `constant`, a sum over a constant (a rate).

    `numerator`, `denominator`: sums per cluster [groups]; `rep_*`: per repetition.
    """

    numerator: Floats
    denominator: Floats
    rep_numerator: Floats
    rep_denominator: Floats
    size: int
    constant: float | None = None

    def point(self) -> float | None:
        below = self.denominator.sum() if self.constant is None else self.constant
        return float(self.numerator.sum() / below) if self.size and below else None

    def per_rep(self) -> Floats:
        known = self.rep_denominator > 0
        return self.rep_numerator[known] / self.rep_denominator[known]

    def weighted(self, weights: Weights) -> Floats:
        above = weights @ self.numerator
        below = weights @ self.denominator if self.constant is None else np.full(len(above), self.constant)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(below > 0, above / below, np.nan)

    def pooled(self, other: Ratio, groups: int) -> tuple[Ratio, Ratio]:
        """Both sides' clusters in one statistic, over the base's and over the other's constant."""
        assert len(self.numerator) == groups
        above = np.concatenate([self.numerator, other.numerator])
        below = np.concatenate([self.denominator, other.denominator])
        none = np.empty(0)
        size = self.size + other.size
        return (
            Ratio(above, below, none, none, size, self.constant),
            Ratio(above, below, none, none, size, other.constant),
        )


@dataclass(frozen=True, slots=True)
class PerRepetition:
    """One number per repetition; only repetitions can be drawn, so it is tested between them."""

    values: Floats

    @property
    def size(self) -> int:
        return len(self.values)

    def point(self) -> float | None:
        return float(self.values.mean()) if len(self.values) else None

    def per_rep(self) -> Floats:
        return self.values
