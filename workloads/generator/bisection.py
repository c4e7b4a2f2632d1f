"""The root of a monotone function, without loading an optimiser."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_STEPS = 80  # halves an interval to the last bit of a float


def root(function: Callable[[float], float], low: float, high: float) -> float:
    """Where `function` changes sign between `low` and `high`."""
    rises = function(low) < function(high)
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if (function(middle) < 0) == rises:
            low = middle
        else:
            high = middle
    return (low + high) / 2
