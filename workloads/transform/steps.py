"""Several changes to several traces, in the one order that makes sense."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from workloads.errors import TraceError
from workloads.generator.parameters import Arrivals
from workloads.transform.arrivals import retime, stretch_to_rate
from workloads.transform.gaps import cap_gaps
from workloads.transform.heads import share_heads
from workloads.transform.join import loop, merge
from workloads.transform.sample import sample_sessions
from workloads.transform.scale import scale_time, scale_tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

    from workloads.trace import Trace


class Steps(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Changes in the order they are made; None and 1 leave things as they are.

    rate_per_s with cv lets sessions arrive by a new gamma process; alone it stretches the pattern there is.
    """

    share_heads: bool = False
    sample: int | None = None
    rate_per_s: float | None = None
    cv: float | None = None
    loop_s: float | None = None
    gap_cap_s: float | None = None
    time_scale: float = 1.0
    token_scale: float = 1.0
    seed: int = 0


def changed(traces: Sequence[Trace], steps: Steps) -> Trace:
    """One trace, merged from several and changed."""
    trace = merge(traces)
    if steps.share_heads:
        trace = share_heads(trace)
    if steps.sample is not None:
        trace = sample_sessions(trace, steps.sample, seed=steps.seed)
    if steps.cv is not None and steps.rate_per_s is None:
        raise TraceError("needs a rate", field="cv", value=steps.cv)
    if steps.rate_per_s is not None:
        if steps.cv is None:
            trace = stretch_to_rate(trace, steps.rate_per_s)
        else:
            trace = retime(trace, Arrivals(rate_per_s=steps.rate_per_s, cv=steps.cv), seed=steps.seed)
    if steps.loop_s is not None:
        trace = loop(trace, steps.loop_s)
    if steps.gap_cap_s is not None:
        trace = cap_gaps(trace, steps.gap_cap_s)
    return scale_tokens(scale_time(trace, steps.time_scale), steps.token_scale)
