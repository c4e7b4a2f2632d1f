"""A cap on waits."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from workloads.errors import TraceError
from workloads.trace import Trace
from workloads.transform.schedule import rescheduled


def cap_gaps(trace: Trace, cap_s: float) -> Trace:
    """Cut waits between turns to `cap_s` seconds and record the cap: short waits raise hit rates."""
    if not (math.isfinite(cap_s) and cap_s >= 0):
        raise TraceError("must be 0 or more seconds", field="gap_cap", value=cap_s)
    cap_ns = round(cap_s * 1e9)
    t = trace.turns
    over = (np.diff(t.after_start) > 0) & (t.delay_ns > cap_ns)
    old = trace.header.gap_cap_ns
    header = replace(trace.header, gap_cap_ns=cap_ns if old is None else min(old, cap_ns))
    capped = replace(trace, header=header, turns=replace(t, delay_ns=np.where(over, cap_ns, t.delay_ns)))
    line = f"waits capped at {cap_s:g} s ({int(over.sum())} were longer): short waits raise hit rates"
    return rescheduled(capped).warned(line)
