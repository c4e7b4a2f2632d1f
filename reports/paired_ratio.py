"""The same request on both sides: how many times as long did it take?"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from reports.columns import Floats
from reports.sides import Side
from reports.stats.change import Estimate, estimate
from reports.stats.group_sums import group_sums
from reports.stats.resample import Weights
from reports.stats.sample import Sample
from reports.stats.statistic import Quantile


class PairedRatio:
    """Median over trace requests of other / base, each the mean over its repetitions."""

    def __init__(self, base: Side, other: Side) -> None:
        self._sides: Final = (base, other)
        self._count: Final = max(int(side.pairs.max(initial=-1)) for side in self._sides) + 1
        self._seen: Final = tuple(np.bincount(side.pairs, minlength=self._count) for side in self._sides)
        self._groups: Final = np.zeros(self._count, np.int32)
        self._groups[base.pairs] = base.frame.groups

    def of(self, base: Floats, other: Floats, weights: Weights) -> Estimate | None:
        """`base`, `other`: a value for each row of either side, NaN where undefined; None when no pair is."""
        means = [
            self._means(side, seen, values)
            for side, seen, values in zip(self._sides, self._seen, (base, other), strict=True)
        ]
        with np.errstate(invalid="ignore", divide="ignore"):
            ratio = np.where(means[0] > 0, means[1] / means[0], np.nan)
        sample = Sample.of(ratio, self._groups, np.zeros(self._count, np.int16))
        return estimate(Quantile(sample, 0.5), weights) if sample.size else None

    def _means(self, side: Side, seen: npt.NDArray[np.int64], values: Floats) -> Floats:
        undefined = np.isnan(values)
        if undefined.any():
            seen = seen - np.bincount(side.pairs[undefined], minlength=self._count)
            values = np.where(undefined, 0.0, values)
        sums = group_sums(side.pairs, values, self._count)
        with np.errstate(invalid="ignore", divide="ignore"):
            return sums / seen
