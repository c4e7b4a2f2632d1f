"""The instrument's judgement of itself: was it fast, punctual and exact enough for its figures to count?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from harness.loadgen.histogram import Histogram

if TYPE_CHECKING:
    from harness.loadgen.job import Bounds

_MS: Final = 1_000_000


class Spread(msgspec.Struct, frozen=True):
    """A distribution in ms; None where nothing was counted."""

    p50_ms: float | None
    p99_ms: float | None
    max_ms: float | None


def spread(histogram: Histogram) -> Spread:
    def at(share: float) -> float | None:
        value = histogram.quantile(share)
        return None if value is None else value / _MS

    return Spread(at(0.5), at(0.99), histogram.worst / _MS if histogram.count else None)


class Assessment(msgspec.Struct, frozen=True):
    """One shard's, or the merged, self-assessment; `reasons` is empty when it is valid."""

    shard: str
    valid: bool
    reasons: tuple[str, ...]
    seed: int
    started_ns: int  # epoch; the schedule's zero
    first_sent_ns: int | None
    ended_ns: int
    interrupted: bool
    planned_sessions: int
    planned_requests: int
    started_sessions: int
    requests: dict[str, int]  # by status
    not_sent: int  # turns that were not due yet when the run ended
    held: int
    errors: dict[str, int]
    lateness: Spread
    loop_lag: Spread
    cpu_share_p50: float | None
    cpu_share_p90: float | None
    clock_error_ms: float
    clock_drift_ms: float
    clock_offset_ms: float | None  # measured against the master's clock; None without a master
    events: int
    token_events: int
    merged_reads: int
    late_merges: int
    kernel_stamps: bool
    niceness: int
    connections: str
    recorded: int
    scrapes: int
    scrape_errors: int
    cpu_s: float  # of this process, between start and end
    peak_rss_mib: float
    lost_shards: tuple[str, ...] = ()


def judge(
    bounds: Bounds,
    *,
    lateness: Histogram,
    loop_lag: Histogram,
    cpu_share_p90: float | None,
    clock_error_ms: float,
    late_merges: int,
    token_events: int,
) -> tuple[str, ...]:
    """Reasons why the instrument was the bottleneck, one line each."""
    reasons: list[str] = []

    def check(what: str, value: float | None, bound: float, unit: str) -> None:
        if value is not None and value > bound:
            reasons.append(f"{what} {value:.3g}{unit} > {bound:g}{unit}")

    check("lateness p99", spread(lateness).p99_ms, bounds.lateness_p99_ms, " ms")
    check("loop lag p99", spread(loop_lag).p99_ms, bounds.loop_lag_p99_ms, " ms")
    check("CPU share p90", cpu_share_p90, bounds.cpu_share_p90, "")
    check("clock error", clock_error_ms, bounds.clock_error_ms, " ms")
    if token_events:
        check("late merged reads per token event", late_merges / token_events, bounds.merged_share, "")
    return tuple(reasons)


def write_assessment(assessment: Assessment, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}")
    temporary.write_bytes(msgspec.json.format(msgspec.json.encode(assessment)) + b"\n")
    temporary.replace(path)


def read_assessment(path: Path) -> Assessment:
    return msgspec.json.decode(path.read_bytes(), type=Assessment)
