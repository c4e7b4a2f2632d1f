"""How each cell came through each fault."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from reports.columns import Mask
from reports.frame import Frame
from reports.metrics.ttft import METRIC
from reports.recovery import faults, recoveries
from reports.sides import Side
from reports.slo import good_requests


@dataclass(frozen=True, slots=True)
class Survival:
    """One fault of one cell, over all repetitions. A request is during a fault when its life touches it."""

    fault: str
    kind: str
    requests: int
    failed: int
    ttft_p99_ms: float | None
    before_ttft_p99_ms: float | None
    good_share: float | None
    """Share of the requests during the fault that met all objectives; None without objectives."""
    recovery_s: float | None
    """Longest of the repetitions; inf: not recovered before the end."""


def survivals(side: Side) -> list[Survival]:
    """Faults in the order in which they struck."""
    frame = side.frame
    during: dict[str, Mask] = {}
    kinds: dict[str, str] = {}
    recovered: dict[str, list[float]] = {}
    before = np.zeros(len(frame), bool)
    sent, ended = frame.client("sent_ns"), frame.client("end_ns")
    ended = np.where(np.isnan(ended), sent, ended)
    for rep in frame.columns.reps:
        here = frame.reps == rep
        origin = frame.columns.origin_ns(rep)
        known = faults(side.run, side.cell.name, rep)
        if known:
            before |= here & (ended < known[0].applied_ns - origin)
        for fault in known:
            until = np.inf if fault.cleared_ns is None else fault.cleared_ns - origin
            rows = here & (ended >= fault.applied_ns - origin) & (sent <= until)
            during[fault.name] = during.get(fault.name, np.zeros(len(frame), bool)) | rows
            kinds[fault.name] = fault.kind
        for found in recoveries(side.run, side.cell.name, rep):
            if found.recovery_s is not None:
                recovered.setdefault(found.fault.name, []).append(found.recovery_s)
    usual = _p99(frame, before)
    good = good_requests(frame)
    return [
        Survival(
            fault=name,
            kind=kinds[name],
            requests=int(rows.sum()),
            failed=int((rows & frame.failed).sum()),
            ttft_p99_ms=_p99(frame, rows),
            before_ttft_p99_ms=usual,
            good_share=None if good is None or not rows.any() else float(good[rows].mean()),
            recovery_s=max(recovered[name]) if name in recovered else None,
        )
        for name, rows in during.items()
    ]


def _p99(frame: Frame, rows: Mask) -> float | None:
    return METRIC.sample_with_failures(frame.chosen(rows)).quantile(0.99)
