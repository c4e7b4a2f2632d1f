"""Clusters and their reweightings: what makes intervals and tests honest about sessions.

The turns of a session share its lengths, its cache state and its luck, so sessions are what is drawn,
not requests. Where two sides replayed the same sessions, the same draw is applied to both (paired).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

Weights = npt.NDArray[np.float64]

DRAWS: Final = 1000


@dataclass(frozen=True, slots=True)
class Draws:
    """Reweightings of `groups` clusters, the same for every metric of a comparison.

    `bootstrap[b, g]`: how often cluster g of the base was drawn; `other_bootstrap` for the other side
    (the same array when paired). `relabelled[b, g]`: 1 where cluster g (base clusters first, then the
    other's, from `groups` on) counts as base in permutation b; `relabelled_other`: the reverse.
    """

    groups: int
    paired: bool
    bootstrap: Weights
    other_bootstrap: Weights
    relabelled: Weights
    relabelled_other: Weights


def draw(
    base: npt.NDArray[np.bool_], other: npt.NDArray[np.bool_], *, paired: bool, seed: int, draws: int = DRAWS
) -> Draws:
    """Draw for clusters present in `base` and `other` (booleans per cluster)."""
    rng = np.random.default_rng(seed)
    groups = len(base)
    bootstrap = _multinomial(rng, base | other if paired else base, draws)
    other_bootstrap = bootstrap if paired else _multinomial(rng, other, draws)
    if paired:
        keep = (rng.random((draws, groups)) < 0.5).astype(np.float64)
        relabelled = np.concatenate([keep, 1 - keep], axis=1)
    else:
        present = np.flatnonzero(np.concatenate([base, other]))
        order = rng.permuted(np.tile(np.arange(len(present)), (draws, 1)), axis=1)
        relabelled = np.zeros((draws, 2 * groups))
        relabelled[:, present] = order < int(base.sum())
    return Draws(groups, paired, bootstrap, other_bootstrap, relabelled, 1 - relabelled)


def _multinomial(rng: np.random.Generator, present: npt.NDArray[np.bool_], draws: int) -> Weights:
    weights = np.zeros((draws, len(present)))
    where = np.flatnonzero(present)
    if len(where):
        weights[:, where] = rng.multinomial(len(where), np.full(len(where), 1 / len(where)), draws)
    return weights
