"""The same request on both sides: how many times as long did it take?"""

from __future__ import annotations

from typing import Final

import numpy as np

from reports.columns import Floats
from reports.sides import Side
from reports.stats.change import Estimate, estimate
from reports.stats.resample import Weights
from reports.stats.sample import Sample
from reports.stats.statistic import Quantile

_BLOCK: Final = 1 << 16


class PairedRatio:
    """Median over trace requests of other / base, each the mean over its repetitions."""

    def __init__(self, base: Side, other: Side) -> None:
        self._sides: Final = (base, other)
        self._count: Final = max(int(side.pairs.max(initial=-1)) for side in self._sides) + 1
        self._groups: Final = np.zeros(self._count, np.int32)
        self._groups[base.pairs] = base.frame.groups

    def of(self, base: Floats, other: Floats, weights: Weights) -> Estimate | None:
        """`base`, `other`: a value for each row of either side, NaN where undefined; None when no pair is."""
        below, ratio = (
            self._means(side, values) for side, values in zip(self._sides, (base, other), strict=True)
        )
        below[below <= 0] = np.nan
        ratio /= below
        sample = Sample.of(ratio, self._groups, np.zeros(self._count, np.int16))
        return estimate(Quantile(sample, 0.5), weights) if sample.size else None

    def _means(self, side: Side, values: Floats) -> Floats:
        """Mean of each trace request, NaN where there is none."""
        means = np.zeros(self._count)
        seen = np.zeros(self._count, np.int32)
        for start in range(0, len(values), _BLOCK):
            here = values[start : start + _BLOCK]
            known = ~np.isnan(here)
            places = side.pairs[start : start + _BLOCK][known].astype(np.intp)
            np.add.at(means, places, here[known])
            np.add.at(seen, places, 1)
        with np.errstate(invalid="ignore", divide="ignore"):
            means /= seen
        return means
