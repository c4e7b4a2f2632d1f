"""Sums by place, in blocks that fit the processor's cache."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

_BLOCK: Final = 1 << 16


def group_sums(places: npt.NDArray[Any], values: npt.NDArray[Any], count: int) -> npt.NDArray[np.float64]:
    """Entry i: the sum of the `values` whose place is i, of `count` places."""
    found = np.zeros(count)
    for start in range(0, len(values), _BLOCK):
        block = slice(start, start + _BLOCK)
        found += np.bincount(places[block], values[block], count)
    return found
