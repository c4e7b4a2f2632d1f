"""Observations sorted once, so that a quantile under a thousand reweightings costs little.

Quantiles are nearest-rank (the smallest observation with at least a share q at or below it): defined
for +inf, never interpolated between a fast and a failed request.
"""

from __future__ import annotations

import math
import threading
from functools import cached_property
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Groups = npt.NDArray[np.integer[Any]]

MOST_GROUPS: Final = 256
"""Clusters of one side."""
_GROUP_BITS: Final = np.int64(2 * MOST_GROUPS - 1)  # both sides joined
_PIECES: Final = 400
_BLOCKS: Final = 512
_TINY: Final = 1e-9


class Sorted:
    """Ascending values, each seen `counts` times (None: once)."""

    def __init__(self, values: Floats, counts: Ints | None) -> None:
        self.values: Final = values
        self.counts: Final = counts

    @cached_property
    def _cumulative(self) -> Ints | None:
        return None if self.counts is None else np.cumsum(self.counts)

    @property
    def size(self) -> int:
        return len(self.values) if self._cumulative is None else int(self._cumulative[-1:].sum())

    def place(self, rank: float) -> int:
        """Index of the first value with at least `rank` observations at or below it."""
        if self._cumulative is None:
            return min(max(math.ceil(rank - _TINY) - 1, 0), len(self.values))
        return int(np.searchsorted(self._cumulative, rank - _TINY))

    def quantile(self, q: float) -> float | None:
        """None when there is no observation."""
        if not len(self.values):
            return None
        return float(self.values[self.place(q * self.size)])


class Sample(Sorted):
    """Values with the cluster of each; `by_rep`: the same values by repetition."""

    def __init__(
        self, values: Floats, groups: Groups, counts: Ints | None, by_rep: tuple[Sorted, ...] = ()
    ) -> None:
        super().__init__(values, counts)
        self.groups: Final = groups
        self.by_rep: Final = by_rep
        self._prefix: npt.NDArray[np.float64] | None = None

    @classmethod
    def of(cls, values: Floats, groups: Groups, reps: npt.NDArray[np.int16]) -> Self:
        """Sort; NaN (undefined) is left out. `values` is sorted in place where nothing has to be left out."""
        known = ~np.isnan(values)
        if not known.all():
            values, groups, reps = values[known], groups[known], reps[known]
        by_rep: tuple[Sorted, ...] = ()
        if (several := np.unique(reps)).size > 1:
            by_rep = tuple(Sorted(np.sort(values[reps == rep]), None) for rep in several)
        places = _sort(values, groups)
        if several.size == 1:
            by_rep = (Sorted(values, None),)
        return cls(values, places, None, by_rep)

    def rep_quantiles(self, q: float) -> Floats:
        """The quantile within each repetition that has observations."""
        return np.array([value for rep in self.by_rep if (value := rep.quantile(q)) is not None])

    def beyond(self, q: float) -> int:
        """Observations above the nearest rank of q: what a tail quantile rests on."""
        return self.size - math.ceil(q * self.size - _TINY)

    def joined(self, other: Sample, groups: int) -> Sample:
        """Both samples in one, the groups of `other` counted from `groups` on; without repetitions."""
        assert groups <= MOST_GROUPS
        values = np.concatenate([self.values, other.values])
        places = np.concatenate([self.groups, other.groups + np.int16(groups)])
        if self.counts is None or other.counts is None:
            places = _sort(values, places)
            return Sample(values, places, None)
        order = np.argsort(values, kind="stable")
        return Sample(values[order], places[order], np.concatenate([self.counts, other.counts])[order])

    def weighted_quantiles(self, weights: Floats, q: float) -> Floats:
        """The quantile when each group counts `weights[b, group]` times, for every row b; NaN for no weight.

        Only the ranks that any row can reach are looked at: a window around q of several standard
        deviations of the reweighted rank, widened until no row leaves it. Within the window the sum is
        exact for up to 400 observations and piecewise linear in rank above.
        """
        groups = weights.shape[1]
        per_group = self._below(len(self.values), groups)
        total = weights @ per_group
        size = self.size
        off = self._below(self.place(q * size) + 1, groups) - q * per_group
        mean = float(weights.mean()) or 1.0
        squares = float(np.vdot(weights, weights)) / max(weights.size, 1)
        spread = math.sqrt(max(squares / mean**2 - 1.0, 0.0)) * math.sqrt(float((off**2).sum()))
        reach = 6.0 * spread + 8.0
        while True:
            low = self.place(max(q * size - reach, 0.0))
            high = min(self.place(q * size + reach) + 1, len(self.values))
            found = self._within(weights, np.asarray(total * (q - _TINY)), low, high)
            if found is not None:
                found[total <= 0] = np.nan
                return found
            reach *= 2.0

    def _within(self, weights: Floats, target: npt.NDArray[Any], low: int, high: int) -> Floats | None:
        """Values at weighted rank `target`, None when one lies outside entries [low, high)."""
        groups = weights.shape[1]
        need = target - weights @ self._below(low, groups)
        if low > 0 and need.min() <= 0:
            return None
        starts = np.linspace(low, high, min(_PIECES, high - low), endpoint=False).astype(np.int64)
        lengths = np.diff(starts, append=high)
        cells = self.groups[low:high].astype(np.int64) * len(starts) + np.repeat(
            np.arange(len(starts)), lengths
        )
        seen = None if self.counts is None else self.counts[low:high]
        table = np.bincount(cells, seen, groups * len(starts)).reshape(groups, -1)
        reached = weights @ np.cumsum(table, axis=1).astype(np.float64)
        last = reached[:, -1]
        if high < len(self.values) and (need > last).any():
            return None
        index = (reached >= np.minimum(need, last)[:, None]).argmax(axis=1)
        rows = np.arange(len(index))
        before = np.where(index > 0, reached[rows, index - 1], 0.0)
        share = (need - before) / np.maximum(reached[rows, index] - before, _TINY)
        step = np.clip(np.ceil(share * lengths[index] - _TINY) - 1, 0, lengths[index] - 1).astype(np.int64)
        return np.array(self.values[starts[index] + step])

    def _below(self, index: int, groups: int) -> npt.NDArray[np.float64]:
        """Observations of each group before entry `index`."""
        block = max(1, -(-len(self.values) // _BLOCKS))
        if self._prefix is None or self._prefix.shape[1] != groups:
            steps = [self._count(at, at + block, groups) for at in range(0, len(self.values), block)]
            self._prefix = np.cumsum([np.zeros(groups), *steps], axis=0)
        whole = min(index // block, len(self._prefix) - 1)
        return np.asarray(self._prefix[whole] + self._count(whole * block, index, groups))

    def _count(self, start: int, end: int, groups: int) -> npt.NDArray[np.float64]:
        seen = None if self.counts is None else self.counts[start:end]
        return np.bincount(self.groups[start:end], seen, groups).astype(np.float64)


class _Keys(threading.local):
    """Room for the keys of one sort: memory that is used again costs far less than new one."""

    def __init__(self) -> None:
        self._room = np.empty(0, np.int64)

    def of(self, values: Floats) -> Ints:
        if len(self._room) < len(values):
            self._room = np.empty(len(values), np.int64)
        keys = self._room[: len(values)]
        keys[:] = values.view(np.int64)
        return keys


_KEYS: Final = _Keys()


def _sort(values: Floats, groups: Groups) -> npt.NDArray[np.int16]:
    """Sort in place, and return the group of each.

    Sorting indices takes six times as long as sorting numbers. So the groups are sorted in the low bits of
    keys that order as the values do, and the values by themselves. Of values equal to 13 digits (2^-43), the
    groups may change places.
    """
    keys = _KEYS.of(values)
    negative = keys < 0
    if negative.any():
        keys[negative] ^= np.int64((1 << 63) - 1)  # the larger, the lower
    keys &= ~_GROUP_BITS
    keys |= groups
    keys.sort()
    keys &= _GROUP_BITS
    values.sort()
    return keys.astype(np.int16)
