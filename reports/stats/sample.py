"""Observations sorted once, so that a quantile under thousands of reweightings costs little.

Quantiles are nearest-rank (the smallest observation with at least a share q at or below it): defined
for +inf, never interpolated between a fast and a failed request.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_PIECES: Final = 512
_TINY: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Sample:
    """`values` ascending, each seen `counts` times in cluster `groups` of repetition `reps`."""

    values: Floats
    groups: npt.NDArray[np.int32]
    reps: npt.NDArray[np.int16]
    counts: Ints

    @classmethod
    def of(
        cls,
        values: Floats,
        groups: npt.NDArray[np.int32],
        reps: npt.NDArray[np.int16],
        counts: Ints | None = None,
    ) -> Self:
        """Sort; NaN (undefined) is left out."""
        known = ~np.isnan(values)
        if counts is None:
            counts = np.ones(len(values), np.int64)
        order = np.argsort(values[known], kind="stable")
        return cls(
            values[known][order],
            groups[known][order].astype(np.int32),
            reps[known][order].astype(np.int16),
            counts[known][order],
        )

    @property
    def size(self) -> int:
        return int(self.counts.sum())

    def quantile(self, q: float) -> float | None:
        """None when there is no observation."""
        if not len(self.values):
            return None
        return _quantile(self.values, self.counts, q)

    def rep_quantiles(self, q: float) -> Floats:
        """The quantile within each repetition that has observations."""
        found = []
        for rep in np.unique(self.reps):
            here = self.reps == rep
            found.append(_quantile(self.values[here], self.counts[here], q))
        return np.array(found)

    def beyond(self, q: float) -> int:
        """Observations strictly above the nearest rank of q: what a tail quantile rests on."""
        return self.size - math.ceil(q * self.size - _TINY)

    def joined(self, other: Sample, groups: int) -> Sample:
        """Both samples in one, the groups of `other` counted from `groups` on."""
        return Sample.of(
            np.concatenate([self.values, other.values]),
            np.concatenate([self.groups, other.groups + np.int32(groups)]),
            np.concatenate([self.reps, other.reps]),
            np.concatenate([self.counts, other.counts]),
        )

    def weighted_quantiles(self, weights: npt.NDArray[np.float32], q: float) -> Floats:
        """The quantile when each group counts `weights[b, group]` times, for every row b; NaN for no weight.

        Only the ranks that any row can reach are looked at: a window around q of several standard
        deviations of the reweighted rank, widened until no row leaves it. Within the window the sum is
        exact for up to 512 observations and piecewise linear in rank above.
        """
        groups = weights.shape[1]
        per_group = np.bincount(self.groups, self.counts, groups)
        total = weights @ per_group
        cumulative = np.cumsum(self.counts)
        size = int(cumulative[-1])
        centre = int(np.searchsorted(cumulative, q * size - _TINY))
        below = np.bincount(self.groups[: centre + 1], self.counts[: centre + 1], groups)
        mean = float(weights.mean()) or 1.0
        spread = float(weights.std()) / mean * math.sqrt(float(((below - q * per_group) ** 2).sum()))
        reach = 6.0 * spread + 8.0
        while True:
            low = int(np.searchsorted(cumulative, q * size - reach))
            high = min(int(np.searchsorted(cumulative, q * size + reach)) + 1, len(cumulative))
            found = self._within(weights, np.asarray(total * (q - _TINY)), low, high)
            if found is not None:
                found[total <= 0] = np.nan
                return found
            reach *= 2.0

    def _within(
        self, weights: npt.NDArray[np.float32], target: npt.NDArray[Any], low: int, high: int
    ) -> Floats | None:
        """Values at weighted rank `target`, None when one lies outside entries [low, high)."""
        groups = weights.shape[1]
        need = target - weights @ np.bincount(self.groups[:low], self.counts[:low], groups)
        if low > 0 and need.min() <= 0:
            return None
        starts = np.linspace(low, high, min(_PIECES, high - low), endpoint=False).astype(np.int64)
        piece = np.repeat(np.arange(len(starts)), np.diff(starts, append=high))
        cells = self.groups[low:high].astype(np.int64) * len(starts) + piece
        table = np.bincount(cells, self.counts[low:high], groups * len(starts)).reshape(groups, -1)
        # float32 counts exactly up to 2^24; larger sums are looked up by bins anyway.
        reached = weights @ np.cumsum(table, axis=1).astype(np.float32)
        last = reached[:, -1]
        if high < len(self.values) and (need > last).any():
            return None
        index = (reached >= np.minimum(need, last)[:, None]).argmax(axis=1)
        rows = np.arange(len(index))
        before = np.where(index > 0, reached[rows, index - 1], 0.0)
        share = (need - before) / np.maximum(reached[rows, index] - before, _TINY)
        length = np.diff(starts, append=high)[index]
        step = np.clip(np.ceil(share * length - _TINY) - 1, 0, length - 1).astype(np.int64)
        return np.array(self.values[starts[index] + step])


def _quantile(values: Floats, counts: Ints, q: float) -> float:
    cumulative = np.cumsum(counts)
    return float(values[np.searchsorted(cumulative, q * int(cumulative[-1]) - _TINY)])
