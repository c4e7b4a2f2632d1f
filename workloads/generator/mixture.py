"""Draws from lognormal mixtures through their quantiles, so that correlated normals stay correlated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from scipy.special import ndtr, ndtri

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from workloads.generator.parameters import Lognormal

_GRID: Final = 4096
_REACH: Final = 6.0  # standard deviations either side that the table covers


def cdf(parts: tuple[Lognormal, ...], x: NDArray[np.float64]) -> NDArray[np.float64]:
    """P(value ≤ x) of the mixture; shares are normalised."""
    total = sum(p.share for p in parts)
    log_x = np.log(np.maximum(x, 1e-300))
    out = np.zeros_like(log_x)
    for p in parts:
        out += p.share / total * ndtr((log_x - np.log(p.median)) / max(p.sigma, 1e-9))
    return out


class Mixture:
    """Quantile table of a lognormal mixture."""

    def __init__(self, parts: tuple[Lognormal, ...]) -> None:
        low = min(np.log(p.median) - _REACH * max(p.sigma, 1e-6) for p in parts)
        high = max(np.log(p.median) + _REACH * max(p.sigma, 1e-6) for p in parts)
        self._log_x = np.linspace(low, high, _GRID)
        self._z = _probit(cdf(parts, np.exp(self._log_x)))

    def at_normal(self, z: NDArray[np.float64]) -> NDArray[np.float64]:
        """The value whose quantile is that of the standard normal at z."""
        return np.exp(np.interp(z, self._z, self._log_x))


def _probit(p: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(ndtri(np.clip(p, 1e-12, 1 - 1e-12)), np.float64)
