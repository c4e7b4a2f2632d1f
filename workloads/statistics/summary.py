"""The figures of a trace as tables of text, for the terminal and for the page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from workloads.statistics.hits import BAND_NAMES
from workloads.targets import aims

if TYPE_CHECKING:
    from workloads.statistics.trace_statistics import TraceStatistics


@dataclass(frozen=True, slots=True)
class Section:
    """A titled table and what must be said below it."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()


def sections(s: TraceStatistics) -> tuple[Section, ...]:
    """All tables of the statistics, in reading order."""
    found = [_contents(s), *_hits(s), *_targets(s), _lengths(s), _shares(s), *_arrivals(s), *_defects(s)]
    return tuple(found)


def _contents(s: TraceStatistics) -> Section:
    rows = [
        ("format", s.format),
        ("sessions", f"{s.sessions:,}"),
        ("requests", f"{s.turns:,}"),
        ("input tokens", f"{s.input_tokens_total:,}"),
        ("output tokens", f"{s.output_tokens_total:,}"),
        ("block size", f"{s.block_size} tokens"),
        ("block references", f"{s.block_references:,}"),
        ("distinct blocks", f"{s.distinct_blocks:,}"),
        ("waits capped at", "no" if s.gap_cap_s is None else f"{s.gap_cap_s:g} s"),
        ("scale of tokens, of time", f"{s.token_scale:g}, {s.time_scale:g}"),
        ("sha256", s.digest[:16]),
    ]
    return Section("Contents", ("", ""), tuple(rows))


def _hits(s: TraceStatistics) -> list[Section]:
    if not s.hits:
        note = "The format tells lengths only: no prefix is known, so no hit rate can be stated."
        return [Section("Prefix hits", ("", ""), (), (note,))]
    head = ("cache", "mean", "by tokens", "> 95 %", "< 50 %", "top 1 %", "top 10 %")
    rows = tuple(
        (
            h.cache,
            f"{h.request_mean:.4f}",
            f"{h.token_weighted:.4f}",
            _percent(h.above_95_share),
            _percent(h.below_50_share),
            _percent(h.missed_by_top_1pct),
            _percent(h.missed_by_top_10pct),
        )
        for h in s.hits
    )
    notes = (
        "hit = cached / prompt tokens of a request; mean over requests, by tokens over all tokens.",
        "top n %: share of all missed tokens carried by the n % of requests that miss most.",
    )
    bands = tuple((h.cache, *(_percent(share) for share in h.band_shares)) for h in s.hits)
    return [
        Section("Prefix hits", head, rows, notes),
        Section("Bands", ("share of requests", *BAND_NAMES), bands),
    ]


def _targets(s: TraceStatistics) -> list[Section]:
    if s.targets is None or not s.hits:
        return []
    rows = tuple(
        (aim.name, _percent(aim.target), _percent(aim.achieved), f"{100 * (aim.achieved - aim.target):+.2f}")
        for aim in aims(s.targets, s.hits[0], s.output_below_500_share)
    )
    return [Section("Target against achieved", ("", "target", "achieved", "points"), rows)]


def _lengths(s: TraceStatistics) -> Section:
    head = ("", "count", "mean", "p1", "p10", "p50", "p90", "p99", "max")
    rows = tuple(
        (name, f"{d.count:,}", *(_number(v) for v in (d.mean, d.p01, d.p10, d.p50, d.p90, d.p99, d.max)))
        for name, d in s.lengths.items()
    )
    return Section("Lengths and waits", head, rows)


def _shares(s: TraceStatistics) -> Section:
    rows = (
        ("output < 500 tokens", _percent(s.output_below_500_share)),
        (
            f"ultra-short ({s.long_input_ultra_short})",
            _percent(s.long_input_ultra_short_share),
        ),
    )
    return Section("Shares of requests", ("", ""), rows)


def _arrivals(s: TraceStatistics) -> list[Section]:
    named = (("sessions", s.session_arrivals), ("requests", s.request_arrivals))
    told = [(name, a) for name, a in named if a is not None]
    if not told:
        return []
    windows = tuple(dict.fromkeys(window for _, a in told for window in a.dispersion))
    rows = tuple(
        (
            name,
            f"{a.count:,}",
            _number(a.span_s),
            f"{a.rate_per_s:.4g}",
            f"{a.gap_cv:.2f}",
            _percent(a.zero_gap_share),
            *(f"{a.dispersion[w]:.2f}" if w in a.dispersion else "" for w in windows),
        )
        for name, a in told
    )
    head = ("", "count", "span (s)", "per s", "CV", "zero gaps", *(f"D {window}" for window in windows))
    notes = ("CV of the gaps, and D = variance / mean of the counts per window: 1 for Poisson arrivals.",)
    return [Section("Arrivals", head, rows, notes)]


def _defects(s: TraceStatistics) -> list[Section]:
    if not s.defects:
        return []
    rows = tuple((d.kind.value, f"{d.count} {d.of}", d.example) for d in s.defects)
    notes = ("--repair mends fork duplicates and zero outputs and says what it changed.",)
    return [Section("Defects", ("kind", "how many", "example"), rows, notes)]


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
