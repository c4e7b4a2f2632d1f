"""Values as trace files write them, checked: times to nanoseconds, block ids to 64-bit columns."""

from __future__ import annotations

import math
from array import array
from typing import TYPE_CHECKING, Final

import numpy as np

from workloads.errors import TraceError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_MAX_S: Final = 9.2e9  # int64 nanoseconds


def seconds(value: float, file: str, field: str, line: int | None = None) -> int:
    """Seconds to nanoseconds."""
    if not math.isfinite(value) or not 0 <= value <= _MAX_S:
        raise TraceError(
            "must be a time of 0 or more seconds", file=file, line=line, field=field, value=value
        )
    return round(value * 1e9)


def milliseconds(value: float, file: str, field: str, line: int | None = None) -> int:
    """Milliseconds to nanoseconds."""
    if not math.isfinite(value) or not 0 <= value <= _MAX_S * 1e3:
        raise TraceError(
            "must be a time of 0 or more milliseconds", file=file, line=line, field=field, value=value
        )
    return round(value * 1e6)


def block_ids(values: Sequence[int], file: str, field: str, line: int | None = None) -> NDArray[np.uint64]:
    """Block ids as uint64: never cut to fewer bits, never negative."""
    try:
        return np.frombuffer(array("Q", values), np.uint64)
    except (OverflowError, TypeError):
        for value in values:
            if not isinstance(value, int) or not 0 <= value < 1 << 64:
                raise TraceError(
                    "block ids must be non-negative and fit 64 bits",
                    file=file,
                    line=line,
                    field=field,
                    value=value,
                ) from None
        raise


def sorted_spread(ticks: NDArray[np.int64], seed: int) -> tuple[NDArray[np.int64], float]:
    """Instants that sit on ticks, spread uniformly inside them; and the share of zero gaps there was.

    Timestamps cut to a tick make bursts that never happened. `ticks` ascend; the order is kept.
    """
    gaps = np.diff(ticks)
    zero = float((gaps == 0).mean()) if len(gaps) else 0.0
    starts = np.flatnonzero(np.concatenate(([True], gaps > 0)))
    if len(starts) < 2:
        return ticks, zero
    widths = np.diff(ticks[starts])
    widths = np.append(np.minimum(widths, int(np.median(widths))), int(np.median(widths)))
    group = np.cumsum(np.concatenate(([True], gaps > 0))) - 1
    part = np.random.default_rng(seed).random(len(ticks))
    part = part[np.lexsort((part, group))]
    return ticks + (part * widths[group]).astype(np.int64), zero
