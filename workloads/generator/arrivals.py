"""When sessions arrive: renewal processes of skewed clients, with a daily wave."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import gamma as gamma_function

from workloads.generator.bisection import root
from workloads.generator.parameters import Arrivals, Process

if TYPE_CHECKING:
    from numpy.typing import NDArray


def arrival_times(
    arrivals: Arrivals, count: int, rng: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Ascending arrival seconds of `count` sessions from 0, and the client each belongs to."""
    return ArrivalClock(arrivals).arrivals(count, rng)


class ArrivalClock:
    """Arrivals in parts that follow on one another."""

    def __init__(self, arrivals: Arrivals) -> None:
        self._arrivals = arrivals
        self._begin_s = 0.0  # of the next part, in time without the daily wave

    def arrivals(self, count: int, rng: np.random.Generator) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Arrival seconds of the next `count` sessions, and the client each belongs to."""
        at, client = _renewals(self._arrivals, count, rng)
        at = self._begin_s + at - at[0]
        self._begin_s = float(at[-1]) + 1 / self._arrivals.rate_per_s
        return _waved(self._arrivals, at), client


def _renewals(
    arrivals: Arrivals, count: int, rng: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Arrivals of all clients in order."""
    weight = zipf_weights(arrivals.clients, arrivals.client_zipf)
    client = np.sort(rng.choice(arrivals.clients, size=count, p=weight))
    at = np.empty(count)
    for c in range(arrivals.clients):
        mine = np.flatnonzero(client == c)
        if len(mine):
            gaps = renewal_gaps(arrivals, len(mine), rng) / (arrivals.rate_per_s * weight[c])
            at[mine] = np.cumsum(gaps)
    order = np.argsort(at, kind="stable")
    return at[order], client[order]


def renewal_gaps(arrivals: Arrivals, count: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Gaps of mean 1 and the process's coefficient of variation."""
    match arrivals.process:
        case Process.GAMMA:
            shape = 1 / arrivals.cv**2
            return rng.gamma(shape, 1 / shape, count)
        case Process.WEIBULL:
            shape = weibull_shape(arrivals.cv)
            return np.array(rng.weibull(shape, count) / float(gamma_function(1 + 1 / shape)), np.float64)


def weibull_shape(cv: float) -> float:
    """Shape of the Weibull law with this coefficient of variation."""

    def excess(shape: float) -> float:
        return float(gamma_function(1 + 2 / shape) / gamma_function(1 + 1 / shape) ** 2 - 1 - cv**2)

    return root(excess, 0.12, 50.0)


def zipf_weights(count: int, exponent: float) -> NDArray[np.float64]:
    """Popularity of ranks 1..count, summing to 1."""
    weight = np.arange(1, count + 1, dtype=np.float64) ** -exponent
    share: NDArray[np.float64] = weight / weight.sum()
    return share


def _waved(arrivals: Arrivals, at: NDArray[np.float64]) -> NDArray[np.float64]:
    """Warp time to a rate of 1 - swing x cos(2π t / period): quiet at 0, busy half a period on."""
    if arrivals.diurnal_swing == 0:
        return at
    period, swing = arrivals.diurnal_period_s, arrivals.diurnal_swing
    top = float(at[-1]) + period
    grid = np.linspace(0, top, max(1024, int(top / period * 256)))
    cumulative = grid - swing * period / (2 * np.pi) * np.sin(2 * np.pi * grid / period)
    return np.interp(at, cumulative, grid)
