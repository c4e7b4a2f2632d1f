"""Where a series of nights changed its level."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

_SHORTEST: Final = 2
_PENALTY: Final = 3.0
_MAD_TO_SD: Final = 1.4826


def segment_starts(values: Floats, noise: float = 0.0) -> list[int]:
    """Index at which each stretch of one level begins, the first being 0.

    PELT on squared error, penalty 3 sigma^2 log n; sigma is the robust spread of the steps from value to
    value (so that a change of level does not count as noise), but at least `noise`. Stretches have two values
    at least: a single odd night is no new level. Source: Killick, Fearnhead & Eckley 2012.
    """
    count = len(values)
    if count < 2 * _SHORTEST:
        return [0]
    import ruptures  # noqa: PLC0415 - slow to load, and needed for long series only

    # A median of three removes a lone outlier and leaves every step where it is.
    around = np.stack([values[:-2], values[1:-1], values[2:]])
    values = np.concatenate([values[:1], np.median(around, axis=0), values[-1:]])
    steps = np.diff(values)
    spread = _MAD_TO_SD * float(np.median(np.abs(steps - np.median(steps)))) / math.sqrt(2)
    sigma = max(spread, noise, 1e-12)
    search = ruptures.Pelt(model="l2", min_size=_SHORTEST, jump=1).fit((values / sigma).reshape(-1, 1))
    ends = search.predict(pen=_PENALTY * math.log(count))
    return [0, *(int(end) for end in ends[:-1])]
