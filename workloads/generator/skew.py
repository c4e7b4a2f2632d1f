"""From the skew asked for to the hit rate each request is to have.

Requests keep their order: the one that hits least by the model's own nature gets the least of the target
rates, so what a request is (a first turn, a break, a small append) stays, only its rate moves. Requests
whose rate cannot be moved take their part of the target first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from workloads.errors import TraceError
from workloads.generator.bisection import root
from workloads.statistics.hits import BAND_EDGES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from workloads.generator.parameters import Skew

_ENOUGH: Final = 20  # natural rates in a segment before its shape is taken from them
_TOP: Final = 0.9995
_LOW, _HIGH = 0.5, 0.95


def target_rates(skew: Skew, natural: NDArray[np.float64], fixed: NDArray[np.float64]) -> NDArray[np.float64]:
    """Hit rate for each request whose natural rate is given, beside requests of `fixed` rates."""
    wanted = np.sort(_target(skew, np.sort(np.concatenate((natural, fixed)))))
    free = np.delete(wanted, _taken(wanted, np.sort(fixed)))
    rates = np.empty(len(natural))
    rates[np.argsort(natural, kind="stable")] = free
    return rates


def _target(skew: Skew, natural: NDArray[np.float64]) -> NDArray[np.float64]:
    """As many target rates as there are requests."""
    count = len(natural)
    if skew.quantiles is not None:
        points = np.array(skew.quantiles)
        return np.asarray(np.interp((np.arange(count) + 0.5) / count, points[:, 0], points[:, 1]))
    if skew.band_shares is not None:
        edges = (*BAND_EDGES, 1.0)
        sizes = _sizes(np.array(skew.band_shares), count)
        parts = [
            _shaped(natural, low, high, int(size))
            for low, high, size in zip(edges, edges[1:], sizes, strict=False)
        ]
        return np.concatenate(parts)
    return _summary(skew, natural)


def _summary(skew: Skew, natural: NDArray[np.float64]) -> NDArray[np.float64]:
    """Shares below .5 and above .95 as asked for; the part between is bent until the mean fits."""
    mean, above, below = skew.request_mean, skew.above_95_share, skew.below_50_share
    assert mean is not None
    assert above is not None
    assert below is not None
    if above + below > 1:
        raise TraceError(
            "above_95_share and below_50_share exceed 1 together", field="skew", value=(above, below)
        )
    sizes = _sizes(np.array([below, 1 - above - below, above]), len(natural))
    low = _shaped(natural, 0.0, _LOW, int(sizes[0]))
    middle = _shaped(natural, _LOW, _HIGH, int(sizes[1]))
    high = _shaped(natural, np.nextafter(_HIGH, 1), 1.0, int(sizes[2]))
    rest = mean * len(natural) - float(low.sum() + high.sum())
    unit = ((middle - _LOW) / (_HIGH - _LOW)).clip(1e-9, 1 - 1e-9)

    def excess(power: float) -> float:
        return float((_LOW + (_HIGH - _LOW) * unit**power).sum()) - rest

    if not excess(50.0) <= 0 <= excess(0.02):
        outer = float(low.sum() + high.sum())
        least, most = ((outer + edge * len(middle)) / len(natural) for edge in (_LOW, _HIGH))
        raise TraceError(
            f"with these shares above 95 % and below 50 % the mean can be {least:.3f}..{most:.3f}",
            field="skew.request_mean",
            value=mean,
        )
    power = root(excess, 0.02, 50.0)
    return np.concatenate((low, _LOW + (_HIGH - _LOW) * unit**power, high))


def _shaped(natural: NDArray[np.float64], low: float, high: float, count: int) -> NDArray[np.float64]:
    """`count` rates in low..high, spread as the natural ones (ascending) are there, or evenly if few."""
    at = (np.arange(count) + 0.5) / max(count, 1)
    inside = natural[(natural >= low) & ((natural < high) | (high >= 1.0))]
    if len(inside) >= _ENOUGH:
        return np.interp(at * (len(inside) - 1), np.arange(len(inside)), inside)
    return low + (min(high, _TOP) - low) * at


def _sizes(shares: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """Whole numbers in these proportions that sum to `count`."""
    edges = np.round(np.cumsum(shares) / shares.sum() * count).astype(np.int64)
    return np.asarray(np.diff(edges, prepend=0), np.int64)


def _taken(wanted: NDArray[np.float64], fixed: NDArray[np.float64]) -> NDArray[np.int64]:
    """Distinct places in `wanted`, each near the fixed rate it stands for; both ascend."""
    place = np.searchsorted(wanted, fixed)
    step = np.arange(len(fixed))
    place = np.maximum.accumulate(place - step) + step
    room = len(wanted) - len(fixed)
    return np.minimum(place, room + step)
