"""Was the measured window in a steady state? Values in the order of time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy import special

Floats = npt.NDArray[np.float64]

_BATCH: Final = 5
_PARTS: Final = 20
_FEWEST: Final = 60


def warmup_length(values: Floats) -> int:
    """How many of the first values look like warm-up: MSER-5, 0 when there are too few to tell.

    Cuts where the standard error of the mean of the rest is least; a cut beyond the half means that the
    rule found no steady part, and gives 0. Source: White 1997.
    """
    if len(values) < _FEWEST:
        return 0
    batches = values[: len(values) // _BATCH * _BATCH].reshape(-1, _BATCH).mean(axis=1)
    count = len(batches)
    left = np.arange(count, 0, -1)
    total = np.cumsum(batches[::-1])[::-1]
    squares = np.cumsum((batches**2)[::-1])[::-1]
    score = (squares - total**2 / left) / left.astype(np.float64) ** 2
    cut = int(np.argmin(score[: count * 3 // 4]))
    return 0 if cut > count // 2 else cut * _BATCH


@dataclass(frozen=True, slots=True)
class Trend:
    """Median of the last quarter ÷ median of the first - 1, and Mann-Kendall p of no trend."""

    relative: float
    p: float


def trend(values: Floats) -> Trend | None:
    """Trend over the window, on the medians of 20 equal parts; None when there are too few values."""
    if len(values) < _FEWEST:
        return None
    medians = np.array([np.median(part) for part in np.array_split(values, _PARTS)])
    signs = np.sign(medians[None, :] - medians[:, None])
    score = float(np.triu(signs, 1).sum())
    sd = math.sqrt(_PARTS * (_PARTS - 1) * (2 * _PARTS + 5) / 18)
    p = float(2 * special.ndtr(-max(abs(score) - 1, 0) / sd))
    quarter = len(values) // 4
    first, last = float(np.median(values[:quarter])), float(np.median(values[-quarter:]))
    return Trend(last / first - 1 if first > 0 else 0.0, p)
