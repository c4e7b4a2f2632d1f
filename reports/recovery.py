"""Phases of a repetition around its faults, and the time to recover.

A request is *during* a fault when any part of its life (sent … end) lies between the fault taking effect
and its clearing, *before* when it ended before the first fault, *after* otherwise. Service is cut into
windows; a window is healthy when the share of its requests (by send time) that are good reaches 90 % of
the share before the fault. Good means meeting the run's objectives or, when it has none, ok and a TTFT
no larger than the 95th percentile before the fault. Recovered: the first of three healthy windows in a
row, windows without requests passed over. The recovery time counts from the clearing of the fault to
the start of that window, 0 when service never left.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from reports.columns import Columns, Floats, Mask
from reports.frame import Frame
from reports.run import Run
from reports.slo import good_requests

HEALTHY_SHARE: Final = 0.9
HEALTHY_WINDOWS: Final = 3
_WINDOWS: Final = 60
_SHORTEST_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault as it happened; epoch ns. `cleared_ns` is None when the run ended first."""

    name: str
    kind: str
    target: str
    applied_ns: int
    cleared_ns: int | None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Recovery:
    """Seconds from clearing to service as before; inf: not before the end; None: cannot be told."""

    fault: Fault
    recovery_s: float | None


def faults(run: Run, cell: str, rep: int) -> list[Fault]:
    """Faults that took effect, by time."""
    rows = run.table("faults", cell, rep).to_pylist()
    found = [
        Fault(r["fault"], r["kind"], r["target"], r["applied_ns"], r["cleared_ns"], r["error"])
        for r in rows
        if r["applied_ns"] is not None
    ]
    return sorted(found, key=lambda f: f.applied_ns)


def fault_phase(frame: Frame) -> tuple[npt.NDArray[np.int32], list[str]]:
    """Phase of each request: codes into ['before', 'during', 'after']; -1 without any fault."""
    sent, ended = frame.client("sent_ns"), frame.client("end_ns")
    ended = np.where(np.isnan(ended), sent, ended)
    codes = np.full(len(frame), -1, np.int32)
    for rep in frame.columns.reps:
        known = faults(frame.columns.run, frame.columns.cell, rep)
        if not known:
            continue
        here = frame.reps == rep
        origin = frame.columns.origin_ns(rep)
        first = known[0].applied_ns - origin
        codes[here] = np.where(ended[here] < first, 0, 2)
        for fault in known:
            until = math.inf if fault.cleared_ns is None else fault.cleared_ns - origin
            codes[here & (ended >= fault.applied_ns - origin) & (sent <= until)] = 1
    return codes, ["before", "during", "after"]


def recoveries(run: Run, cell: str, rep: int) -> list[Recovery]:
    """Recovery of every fault of a repetition."""
    known = faults(run, cell, rep)
    if not known:
        return []
    columns = Columns(run, cell)
    if rep not in columns.reps:
        return [Recovery(fault, None) for fault in known]
    whole = Frame(columns, slo=run.info.slo, windows_s={})
    frame = whole.chosen(whole.reps == rep)
    origin = columns.origin_ns(rep)
    sent = frame.client("sent_ns")
    good = _good(frame, sent < known[0].applied_ns - origin)
    until = [following.applied_ns - origin for following in known[1:]] + [math.inf]
    return [
        Recovery(fault, _recovery_s(sent, good, fault, origin, end))
        for fault, end in zip(known, until, strict=True)
    ]


def _good(frame: Frame, before: Mask) -> Mask:
    good = good_requests(frame)
    if good is not None:
        return good
    ttft = frame.client("first_token_ns") - frame.client("sent_ns")
    usual = ttft[before & frame.ok]
    limit = np.quantile(usual, 0.95) if len(usual) else math.inf
    return frame.ok & (np.nan_to_num(ttft, nan=math.inf) <= limit)


def _recovery_s(sent: Floats, good: Mask, fault: Fault, origin: int, end: float) -> float | None:
    before = sent < fault.applied_ns - origin
    counted = ~np.isnan(sent)
    if fault.cleared_ns is None or not before.any():
        return None
    usual = good[before].mean()
    cleared = fault.cleared_ns - origin
    width = max(_SHORTEST_S * 1e9, float(np.nanmax(sent)) / _WINDOWS)
    after = counted & (sent >= cleared) & (sent < end)
    window = ((sent[after] - cleared) // width).astype(np.int64)
    healthy = 0
    for index in np.unique(window):
        if good[after][window == index].mean() < HEALTHY_SHARE * usual:
            healthy = 0
            continue
        if healthy == 0:
            start = float(index)
        healthy += 1
        if healthy == HEALTHY_WINDOWS:
            return start * width / 1e9
    return math.inf
