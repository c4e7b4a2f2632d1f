"""All figures of one trace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from workloads.caches import infinite_hits, lru_hits, ttl_hits
from workloads.errors import TraceError
from workloads.statistics.arrivals import ArrivalStatistics, arrival_statistics
from workloads.statistics.distribution import Distribution, distribution
from workloads.statistics.hits import HitStatistics, hit_statistics
from workloads.targets import Targets
from workloads.trace import MOST_S, NO_CLOCK, Trace, Trigger
from workloads.validation import Defect, defects

if TYPE_CHECKING:
    from numpy.typing import NDArray

SHORT_OUTPUT: Final = 500


class Questions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to compute beside the infinite cache.

    lru_tokens          capacities of least-recently-used caches
    ttl_s               lifetimes of time-to-live caches
    warm_prefix         take every session's tools and system prompt (`shared_tokens`) as always cached
    long_input_tokens, ultra_short_tokens   the class counted: input at least, output at most
    """

    lru_tokens: tuple[int, ...] = ()
    ttl_s: tuple[float, ...] = ()
    warm_prefix: bool = False
    long_input_tokens: int = 8192
    ultra_short_tokens: int = 31

    def __post_init__(self) -> None:
        for ttl_s in self.ttl_s:
            if not 0 <= ttl_s <= MOST_S:
                raise TraceError(f"must be 0..{MOST_S:g} seconds", field="ttl", value=ttl_s)


class TraceStatistics(msgspec.Struct, frozen=True):
    """The figures; token counts in tokens, gaps in seconds. `hits` is empty where prefixes are unknown."""

    name: str
    format: str
    digest: str
    block_size: int
    sessions: int
    turns: int
    block_references: int
    distinct_blocks: int
    input_tokens_total: int
    output_tokens_total: int
    hits: tuple[HitStatistics, ...]
    lengths: dict[str, Distribution]
    output_below_500_share: float
    long_input_ultra_short_share: float
    long_input_ultra_short: str
    session_arrivals: ArrivalStatistics | None
    request_arrivals: ArrivalStatistics | None
    gap_cap_s: float | None
    token_scale: float
    time_scale: float
    targets: Targets | None
    defects: tuple[Defect, ...]
    warnings: tuple[str, ...]


def trace_statistics(trace: Trace, questions: Questions | None = None) -> TraceStatistics:
    """Compute them all; array operations but for LRU and TTL, which walk the requests once each."""
    q = questions or Questions()
    t = trace.turns
    hits, missed = _hits(trace, q)
    ultra = (t.input_tokens >= q.long_input_tokens) & (t.output_tokens <= q.ultra_short_tokens)
    clock = NO_CLOCK not in trace.header.warnings
    at = t.arrival_ns[(t.arrival_ns >= 0) & clock]
    cap = trace.header.gap_cap_ns
    return TraceStatistics(
        name=trace.header.name,
        format=trace.header.format,
        digest=trace.header.digest,
        block_size=trace.header.block_size,
        sessions=len(trace.session_ids),
        turns=len(trace),
        block_references=int(trace.tree.depth_of(t.node).sum()),
        distinct_blocks=int((trace.tree.depth - trace.tree.start()).sum()),
        input_tokens_total=int(t.input_tokens.sum()),
        output_tokens_total=int(t.output_tokens.sum()),
        hits=hits,
        lengths=_lengths(trace, missed),
        output_below_500_share=float((t.output_tokens < SHORT_OUTPUT).mean()),
        long_input_ultra_short_share=float(ultra.mean()),
        long_input_ultra_short=f"input >= {q.long_input_tokens} and output <= {q.ultra_short_tokens} tokens",
        session_arrivals=arrival_statistics(trace.session_start_ns),
        request_arrivals=arrival_statistics(at),
        gap_cap_s=None if cap is None else cap / 1e9,
        token_scale=trace.header.token_scale,
        time_scale=trace.header.time_scale,
        targets=trace.header.targets,
        defects=defects(trace),
        warnings=trace.header.warnings,
    )


def infinite_hit_tokens(trace: Trace, *, warm_prefix: bool = False) -> NDArray[np.int64]:
    """Tokens of each prompt that an infinite cache holds when it comes."""
    return _warmed(trace, trace.hit_tokens(infinite_hits(trace)), warm=warm_prefix)


def _hits(trace: Trace, q: Questions) -> tuple[tuple[HitStatistics, ...], NDArray[np.int64] | None]:
    """Figures of every cache asked for, and what the infinite one misses."""
    if not trace.header.prefix_known:
        return (), None
    inputs = trace.turns.input_tokens
    note = ", warm tools and system prompt" if q.warm_prefix else ""
    infinite = infinite_hit_tokens(trace, warm_prefix=q.warm_prefix)
    out = [hit_statistics(f"infinite{note}", infinite, inputs)]
    for tokens in q.lru_tokens:
        held = trace.hit_tokens(lru_hits(trace, tokens // trace.header.block_size))
        out.append(
            hit_statistics(f"LRU {tokens:,} tokens{note}", _warmed(trace, held, warm=q.warm_prefix), inputs)
        )
    for ttl_s in q.ttl_s:
        held = trace.hit_tokens(ttl_hits(trace, round(ttl_s * 1e9)))
        out.append(hit_statistics(f"TTL {ttl_s:g} s{note}", _warmed(trace, held, warm=q.warm_prefix), inputs))
    return tuple(out), inputs - infinite


def _warmed(trace: Trace, hit_tokens: NDArray[np.int64], *, warm: bool) -> NDArray[np.int64]:
    return np.maximum(hit_tokens, trace.turns.shared_tokens) if warm else hit_tokens


def _lengths(trace: Trace, missed: NDArray[np.int64] | None) -> dict[str, Distribution]:
    t = trace.turns
    follows = np.diff(t.after_start) > 0
    delay_s = t.delay_ns / 1e9
    columns: dict[str, NDArray[np.generic]] = {
        "input tokens": t.input_tokens,
        "output tokens": t.output_tokens,
        "turns per session": np.diff(trace.turn_start),
        "gap after a tool (s)": delay_s[follows & (t.trigger == Trigger.TOOL)],
        "gap before a user turn (s)": delay_s[follows & (t.trigger == Trigger.USER)],
        "gap, trigger unknown (s)": delay_s[follows & (t.trigger == Trigger.UNKNOWN)],
        "service time (s)": t.service_ns[t.service_ns >= 0] / 1e9,
    }
    if missed is not None:
        columns["missed tokens"] = missed
    found = {name: distribution(values) for name, values in columns.items()}
    return {name: d for name, d in found.items() if d is not None}
