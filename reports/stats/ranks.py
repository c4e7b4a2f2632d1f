"""Mann-Whitney with clusters: is one side larger as a whole, and how often?"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from reports.stats.resample import Draws
from reports.stats.sample import Floats, Sample


def mann_whitney(both: Sample, draws: Draws) -> tuple[float, float]:
    """Permutation p of the difference of mean ranks, and Cliff's delta of the other side against the base.

    `both`: the two sides joined, the other's clusters counted from `draws.groups` on.

    Cliff's delta = P(other > base) - P(other < base): -1 … 1, 0 when neither is larger. Labels are
    permuted by cluster (swapped within sessions when paired), so that p holds with dependent turns.
    Source: Cliff 1993; cluster permutation after Datta & Satten 2005.
    """
    counts = np.ones(len(both.values)) if both.counts is None else both.counts.astype(np.float64)
    after = np.cumsum(counts)
    # Ties share the mean of the ranks they cover.
    first = np.flatnonzero(np.concatenate([[True], both.values[1:] != both.values[:-1]]))
    last = np.append(first[1:], len(counts)) - 1
    middle = (after[first] - counts[first] + 1 + after[last]) / 2
    rank = np.repeat(middle, last - first + 1)
    ranks = np.bincount(both.groups, rank * counts, 2 * draws.groups)
    sizes = np.bincount(both.groups, counts, 2 * draws.groups)
    seen = _mean_rank_difference(ranks, sizes, np.repeat([[1.0, 0.0]], draws.groups, axis=1).reshape(1, -1))[
        0
    ]
    permuted = _mean_rank_difference(ranks, sizes, draws.relabelled)
    p = (1 + int((np.abs(permuted) >= abs(seen) * (1 - 1e-9)).sum())) / (1 + len(permuted))
    return p, float(2 * seen / after[-1])


def _mean_rank_difference(
    ranks: npt.NDArray[Any], sizes: npt.NDArray[Any], as_base: npt.NDArray[Any]
) -> Floats:
    """Mean rank of the clusters counted as other, less that of those counted as base."""
    base, other = as_base @ sizes, (1 - as_base) @ sizes
    with np.errstate(divide="ignore", invalid="ignore"):
        difference = ((1 - as_base) @ ranks) / other - (as_base @ ranks) / base
    return np.asarray(np.nan_to_num(difference, nan=0.0))
