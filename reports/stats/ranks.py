"""Mann-Whitney with clusters: is one side larger as a whole, and how often?"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from reports.stats.resample import Draws
from reports.stats.sample import Floats, Sample

_BLOCK: Final = 1 << 15


def mann_whitney(both: Sample, draws: Draws) -> tuple[float, float]:
    """Permutation p of the difference of mean ranks, and Cliff's delta of the other side against the base.

    `both`: the two sides joined, the other's clusters counted from `draws.groups` on.

    Cliff's delta = P(other > base) - P(other < base): -1 … 1, 0 when neither is larger. Labels are
    permuted by cluster (swapped within sessions when paired), so that p holds with dependent turns.
    Source: Cliff 1993; cluster permutation after Datta & Satten 2005.
    """
    ranks, sizes, total = _rank_sums(both, 2 * draws.groups)
    seen = _mean_rank_difference(ranks, sizes, np.repeat([[1.0, 0.0]], draws.groups, axis=1).reshape(1, -1))[
        0
    ]
    permuted = _mean_rank_difference(ranks, sizes, draws.relabelled)
    p = (1 + int((np.abs(permuted) >= abs(seen) * (1 - 1e-9)).sum())) / (1 + len(permuted))
    return p, float(2 * seen / total)


def _rank_sums(both: Sample, groups: int) -> tuple[Floats, Floats, float]:
    """Sum of ranks and size of each group, and the size of all. Ties share the mean of their ranks."""
    ranks, sizes = np.zeros(groups), np.zeros(groups)
    before = 0.0
    start = 0
    while start < len(both.values):
        # Blocks that fit the processor's cache, each up to the end of a tie.
        last = both.values[min(start + _BLOCK, len(both.values)) - 1]
        end = int(np.searchsorted(both.values, last, side="right"))
        values, places = both.values[start:end], both.groups[start:end]
        counts = np.ones(end - start) if both.counts is None else both.counts[start:end].astype(np.float64)
        after = before + np.cumsum(counts)
        first = np.flatnonzero(np.concatenate([[True], values[1:] != values[:-1]]))
        final = np.append(first[1:], len(counts)) - 1
        rank = np.repeat((after[first] - counts[first] + 1 + after[final]) / 2, final - first + 1)
        ranks += np.bincount(places, rank * counts, groups)
        sizes += np.bincount(places, counts, groups)
        before = float(after[-1])
        start = end
    return ranks, sizes, before


def _mean_rank_difference(
    ranks: npt.NDArray[Any], sizes: npt.NDArray[Any], as_base: npt.NDArray[Any]
) -> Floats:
    """Mean rank of the clusters counted as other, less that of those counted as base."""
    base, other = as_base @ sizes, (1 - as_base) @ sizes
    with np.errstate(divide="ignore", invalid="ignore"):
        difference = ((1 - as_base) @ ranks) / other - (as_base @ ranks) / base
    return np.asarray(np.nan_to_num(difference, nan=0.0))
