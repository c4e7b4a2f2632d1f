"""When sessions start: instants on one absolute axis, drawn once for the whole run before it is sharded."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

import numpy as np

from harness.loadgen.job import (
    Arrivals,
    ClosedLoop,
    ConstantArrivals,
    EveryTurn,
    GammaArrivals,
    PoissonArrivals,
    RecordedArrivals,
)

if TYPE_CHECKING:
    import numpy.typing as npt

_NS = 1e9


def start_offsets(arrivals: Arrivals, sessions: int, seed: int) -> npt.NDArray[np.int64] | None:
    """Start of each session in ns from the run's start, ascending; None where the plan or the loop decides.

    The gaps are drawn in units of "expected sessions" and mapped to time through the rate, so a ramp
    (rate rising linearly from 0 over `ramp_s`) keeps their shape.
    """
    rng = np.random.default_rng([seed, 0x5E55])
    match arrivals:
        case RecordedArrivals() | ClosedLoop() | EveryTurn():
            return None
        case ConstantArrivals():
            position = np.arange(sessions, dtype=np.float64)
        case PoissonArrivals():
            position = np.cumsum(rng.exponential(1.0, sessions))
        case GammaArrivals():
            shape = 1.0 / arrivals.cv**2
            position = np.cumsum(rng.gamma(shape, 1.0 / shape, sessions))
        case _:
            assert_never(arrivals)
    return np.rint(_time_of(position, arrivals.rate_s, arrivals.ramp_s) * _NS).astype(np.int64)


def _time_of(position: npt.NDArray[np.float64], rate_s: float, ramp_s: float) -> npt.NDArray[np.float64]:
    """Seconds at which `position` sessions are expected to have started: rate·t²/(2·ramp), then linear."""
    in_ramp = rate_s * ramp_s / 2.0
    ramped = (
        np.sqrt(2.0 * ramp_s * np.minimum(position, in_ramp) / rate_s) if ramp_s else np.zeros_like(position)
    )
    return ramped + np.maximum(0.0, position - in_ramp) / rate_s
