"""What a trace has that a simpler format may not be able to say."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from workloads.caches import infinite_hits

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from workloads.trace import Trace


def branches(trace: Trace) -> int:
    """Turns that do not simply follow the turn before: parallel ones and those that wait for several."""
    return int(waits_oddly(trace).sum())


def waits_oddly(trace: Trace) -> NDArray[np.bool_]:
    """Whether each turn waits for anything but the turn before it, or, as a first one, for nothing."""
    t = trace.turns
    within = np.arange(len(t)) - np.repeat(trace.turn_start[:-1], np.diff(trace.turn_start))
    counts = np.diff(t.after_start)
    plain = counts == (within > 0)
    one = np.flatnonzero(counts == 1)
    plain[one] &= t.after[t.after_start[one]] == within[one] - 1
    oddly: NDArray[np.bool_] = ~plain
    return oddly


def hits_across_sessions(trace: Trace) -> int:
    """Turns whose longest cached prefix came from another session."""
    if not trace.header.prefix_known:
        return 0
    base = trace.base_turn
    node = trace.turns.node
    inside = np.where(base >= 0, trace.tree.common_depth(node[np.maximum(base, 0)], node), 0)
    return int((infinite_hits(trace) > inside).sum())
