"""Quantiles of one quantity."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

QUANTILES: Final = (0.01, 0.10, 0.25, 0.50, 0.75, 0.90, 0.99)


class Distribution(msgspec.Struct, frozen=True):
    """Moments and quantiles, in the unit of the quantity."""

    count: int
    mean: float
    sd: float
    min: float
    p01: float
    p10: float
    p25: float
    p50: float
    p75: float
    p90: float
    p99: float
    max: float


def distribution(values: NDArray[np.generic]) -> Distribution | None:
    """The distribution of some values, None of none."""
    if not len(values):
        return None
    numbers = np.asarray(values, np.float64)
    p01, p10, p25, p50, p75, p90, p99 = (float(q) for q in np.quantile(numbers, QUANTILES))
    return Distribution(
        count=len(numbers),
        mean=float(numbers.mean()),
        sd=float(numbers.std()),
        min=float(numbers.min()),
        p01=p01,
        p10=p10,
        p25=p25,
        p50=p50,
        p75=p75,
        p90=p90,
        p99=p99,
        max=float(numbers.max()),
    )
