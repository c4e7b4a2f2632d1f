"""New arrival times for the sessions of a trace."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from workloads.errors import TraceError
from workloads.generator.arrivals import arrival_times
from workloads.generator.parameters import Arrivals
from workloads.trace import NO_CLOCK, UNKNOWN, Trace


def retime(trace: Trace, arrivals: Arrivals, *, seed: int) -> Trace:
    """Let the sessions arrive by another process, in the order they have; what is inside a session keeps."""
    rng = np.random.default_rng(seed)
    at_s, _ = arrival_times(arrivals, len(trace.session_ids), rng)
    order = np.argsort(trace.session_start_ns, kind="stable")
    start = np.empty(len(order), np.int64)
    start[order] = np.round(at_s * 1e9).astype(np.int64)
    line = (
        f"sessions arrive at {arrivals.rate_per_s:g}/s, {arrivals.process} of CV {arrivals.cv:g}, seed {seed}"
    )
    return _started(trace, start).warned(line)


def stretch_to_rate(trace: Trace, rate_per_s: float) -> Trace:
    """Stretch the session starts to a mean rate, keeping their pattern; what is inside a session keeps."""
    if not (math.isfinite(rate_per_s) and rate_per_s > 0):
        raise TraceError("must be above 0", field="rate", value=rate_per_s)
    starts = trace.session_start_ns
    span_ns = int(starts.max() - starts.min())
    if span_ns == 0:
        raise TraceError(
            "all sessions start at one instant: there is no pattern to keep; name a CV", field="rate"
        )
    factor = (len(starts) - 1) / rate_per_s * 1e9 / span_ns
    start = np.round((starts - starts.min()) * factor).astype(np.int64)
    return _started(trace, start).warned(f"session starts stretched by {factor:.4g} to {rate_per_s:g}/s")


def _started(trace: Trace, start: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Trace:
    t = trace.turns
    shift = np.repeat(start - trace.session_start_ns, np.diff(trace.turn_start))
    arrival = np.where(t.arrival_ns >= 0, t.arrival_ns + shift, UNKNOWN)
    told = tuple(line for line in trace.header.warnings if line != NO_CLOCK)
    return replace(
        trace,
        header=replace(trace.header, warnings=told),
        session_start_ns=start,
        turns=replace(t, arrival_ns=arrival),
    )
