"""Recorded instants recomputed from starts, waits and service times."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from workloads.trace import Trace


def rescheduled(trace: Trace) -> Trace:
    """The trace with every turn sent `delay_ns` after the last turn it waits for ended.

    Where the service time is not told a turn ends when it is sent. Traces that tell no arrivals keep none.
    """
    if not (trace.turns.arrival_ns >= 0).any():
        return trace
    return replace(trace, turns=replace(trace.turns, arrival_ns=_planned(trace)))


def instants(trace: Trace) -> NDArray[np.int64]:
    """When each turn was sent: as recorded, or by waits and service times where that is not told."""
    told = trace.turns.arrival_ns
    return told if (told >= 0).all() else _planned(trace)


def _planned(trace: Trace) -> NDArray[np.int64]:
    t = trace.turns
    counts = np.diff(trace.turn_start)
    start = np.repeat(trace.session_start_ns, counts)
    service = np.maximum(t.service_ns, 0)
    within = np.arange(len(t)) - np.repeat(trace.turn_start[:-1], counts)
    waits = np.diff(t.after_start)
    chain = bool((waits == (within > 0)).all()) and np.array_equal(t.after, within[within > 0] - 1)
    if chain:
        step = t.delay_ns + np.where(within > 0, np.concatenate(([0], service[:-1])), 0)
        total = np.cumsum(step)
        before = total[trace.turn_start[:-1]] - step[trace.turn_start[:-1]]
        return start + total - np.repeat(before, counts)
    first = np.repeat(trace.turn_start[:-1], counts).tolist()
    at, end = [0] * len(t), [0] * len(t)
    offsets, after = t.after_start.tolist(), t.after.tolist()
    rows = zip(t.delay_ns.tolist(), service.tolist(), start.tolist(), strict=True)
    for i, (delay, lasts, began) in enumerate(rows):
        ended = [end[first[i] + a] for a in after[offsets[i] : offsets[i + 1]]]
        at[i] = (max(ended) if ended else began) + delay
        end[i] = at[i] + lasts
    return np.array(at, np.int64)
