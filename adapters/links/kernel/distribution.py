"""Delay distributions as netem wants them: a table of the inverse distribution, scaled by 8192 a deviation.

The tables are of mean 0 and standard deviation 1 (uniform: half width 1, as netem's own without a table).
"""

from __future__ import annotations

import math
import statistics
from typing import Final, assert_never

from harness.link import JitterDistribution

SCALE: Final = 8192
SIZE: Final = 4096
_SHAPE: Final = 3.0
"""Of the Pareto distribution: finite mean and deviation, a heavy tail."""


def table(distribution: JitterDistribution) -> list[int]:
    """SIZE values of -32768 to 32767; netem draws one of them uniformly."""
    shares = [(i + 0.5) / SIZE for i in range(SIZE)]
    match distribution:
        case JitterDistribution.UNIFORM:
            values = [2 * share - 1 for share in shares]
        case JitterDistribution.NORMAL:
            values = _normal(shares)
        case JitterDistribution.PARETO:
            values = _standardised(_pareto(shares))
        case JitterDistribution.PARETONORMAL:
            # A quarter normal, three quarters Pareto of the same rank.
            values = _standardised(
                [
                    0.25 * n + 0.75 * p
                    for n, p in zip(_normal(shares), _standardised(_pareto(shares)), strict=True)
                ]
            )
        case _:
            assert_never(distribution)
    return [max(-32768, min(32767, round(SCALE * value))) for value in values]


def _normal(shares: list[float]) -> list[float]:
    inverse = statistics.NormalDist().inv_cdf
    return [inverse(share) for share in shares]


def _pareto(shares: list[float]) -> list[float]:
    return [math.pow(1 - share, -1 / _SHAPE) for share in shares]


def _standardised(values: list[float]) -> list[float]:
    mean, deviation = statistics.fmean(values), statistics.pstdev(values)
    return [(value - mean) / deviation for value in values]
