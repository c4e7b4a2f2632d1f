"""The answer in a few sentences: which mode, by how much, sure or not, at what cost on the WAN."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from reports import numbers
from reports.analysis import Analysis
from reports.comparison import Comparison, Row, Verdict
from reports.sides import Side

_TAILS: Final = ("p99", "p90", "p50")
_ALIKE: Final = 0.005


@dataclass(frozen=True, slots=True)
class Answer:
    """`winner` is None when nothing is shown to be better than the base."""

    key: str
    """The figure it is decided by: the highest TTFT percentile that rests on enough requests."""
    winner: Side | None
    sure: bool
    headline: str
    details: tuple[str, ...]


def answer(analysis: Analysis) -> Answer | None:
    """None for one cell, which has nothing to be compared with."""
    if not analysis.comparisons:
        return None
    key = _deciding_figure(analysis)
    best: tuple[Comparison, Row] | None = None
    for comparison in analysis.comparisons:
        row = comparison.row(key)
        if row is None or row.change is None or row.verdict is not Verdict.BETTER:
            continue
        if best is None or row.change.absolute < _absolute(best[1]):
            best = (comparison, row)
    return _none_better(analysis, key) if best is None else _better(analysis, key, *best)


def _absolute(row: Row) -> float:
    assert row.change is not None
    return row.change.absolute


def _deciding_figure(analysis: Analysis) -> str:
    for tail in _TAILS:
        rows = [comparison.row(f"ttft_{tail}") for comparison in analysis.comparisons]
        if all(row is not None and not (row.base.few_beyond or row.other.few_beyond) for row in rows):
            return f"ttft_{tail}"
    return "ttft_p50"


def _name(key: str) -> str:
    return f"TTFT {key.rpartition('_')[2].upper()}"


def _better(analysis: Analysis, key: str, comparison: Comparison, row: Row) -> Answer:
    assert row.change is not None
    base, other = row.base.estimate.value, row.other.estimate.value
    less = numbers.percent(row.change.relative).lstrip("\N{MINUS SIGN}")
    headline = (
        f"{comparison.other.label} is faster to the first token: {_name(key)} {numbers.value(other, 'ms')} "
        f"against {numbers.value(base, 'ms')} for {comparison.base.label}, {less} less."
    )
    around = numbers.change_interval(row.change, row.base.metric)
    p = numbers.p_value(row.adjusted_p)
    details = [f"Sure: {p} after correction; 95 % interval of the change {around}."]
    if row.change.low is not None and row.change.high is not None and row.change.low <= 0 <= row.change.high:
        wide = f"but the 95 % interval of the change, {around}, includes 0"
        details = [f"Likely: {p} after correction, {wide}: more repetitions would tell."]
    runner_up = _close_second(analysis, key, comparison, row)
    if runner_up:
        details.append(runner_up)
    details += _wan(comparison)
    return Answer(key, comparison.other, True, headline, tuple(details))


def _close_second(analysis: Analysis, key: str, best: Comparison, row: Row) -> str:
    """Other modes whose interval overlaps the best one's: not told apart by comparing with the base."""
    close = [
        c.other.label
        for c in analysis.comparisons
        if c is not best
        and (r := c.row(key)) is not None
        and r.other.estimate.low is not None
        and row.other.estimate.high is not None
        and r.other.estimate.low <= row.other.estimate.high
    ]
    return f"Not told apart from it: {', '.join(close)}." if close else ""


def _none_better(analysis: Analysis, key: str) -> Answer:
    base = analysis.comparisons[0].base.label
    worse = [c for c in analysis.comparisons if (r := c.row(key)) is not None and r.verdict is Verdict.WORSE]
    details = []
    for comparison in analysis.comparisons:
        row = comparison.row(key)
        if row is None or row.change is None:
            continue
        seen = numbers.detectable(row.change, row.base.estimate, row.base.metric)
        sure = row.verdict is Verdict.WORSE
        told = f"{comparison.other.label}: {_name(key)} {numbers.change(row.change, row.base.metric)}"
        if sure:
            details.append(f"{told}, {numbers.p_value(row.adjusted_p)}.")
        else:
            known = f"; a difference {seen} would have been found" if seen else ""
            details.append(f"{told}, not significant ({numbers.p_value(row.adjusted_p)}){known}.")
        details += _wan(comparison)
    if worse and len(worse) == len(analysis.comparisons):
        headline = f"{base} stays the fastest to the first token."
    else:
        headline = f"Nothing is shown to be faster to the first token than {base}."
    return Answer(key, None, bool(worse), headline, tuple(details))


def _wan(comparison: Comparison) -> list[str]:
    """Cost in WAN bytes, by the KV payload per request."""
    row = comparison.row("wan_kv_bytes")
    if row is None or row.other.estimate.value is None:
        return []
    told = f"On the WAN it costs {numbers.value(row.other.estimate.value, 'bytes')} of KV per request"
    if row.change is None:
        return [f"{told}."]
    base = numbers.value(row.base.estimate.value, "bytes")
    if row.change.relative is not None and abs(row.change.relative) < _ALIKE:
        return [f"{told}, as much as {comparison.base.label}."]
    if not row.significant:
        return [f"{told} (base {base}, no significant difference)."]
    return [f"{told} (base {base}, {numbers.change(row.change, row.base.metric)})."]
