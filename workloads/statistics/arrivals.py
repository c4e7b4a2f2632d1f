"""How bursty arrivals are: the gaps' coefficient of variation and the counts' index of dispersion."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_WINDOWS_S: Final = (1.0, 10.0, 60.0, 600.0, 3600.0)
_LEAST_WINDOWS: Final = 10


class ArrivalStatistics(msgspec.Struct, frozen=True):
    """Of instants in order.

    gap_cv      standard deviation / mean of the gaps: 1 for Poisson, above for bursts
    dispersion  variance / mean of the counts in windows of so many seconds: 1 for Poisson at every size
    """

    count: int
    span_s: float
    rate_per_s: float
    gap_cv: float
    zero_gap_share: float
    dispersion: dict[str, float]


def arrival_statistics(instants_ns: NDArray[np.int64]) -> ArrivalStatistics | None:
    """Figures of three or more instants that are not all one; None otherwise."""
    at = np.sort(instants_ns)
    if len(at) < 3 or at[0] == at[-1]:
        return None
    gaps = np.diff(at) / 1e9
    span_s = float(at[-1] - at[0]) / 1e9
    dispersion: dict[str, float] = {}
    for window_s in _WINDOWS_S:
        windows = int(span_s / window_s)
        if windows < _LEAST_WINDOWS:
            continue
        slot = ((at - at[0]) / 1e9 / window_s).astype(np.int64)
        counts = np.bincount(slot[slot < windows], minlength=windows)
        dispersion[f"{window_s:g} s"] = float(counts.var() / counts.mean())
    return ArrivalStatistics(
        count=len(at),
        span_s=span_s,
        rate_per_s=(len(at) - 1) / span_s,
        gap_cv=float(gaps.std() / gaps.mean()),
        zero_gap_share=float((gaps == 0).mean()),
        dispersion=dispersion,
    )
