"""What the HTML page shows, gathered from an analysis; the template only places it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from reports import numbers
from reports.analysis import Analysis
from reports.breakdown import FIGURES, Group, breakdown
from reports.chart import COLOURS, names
from reports.comparison import Comparison, Figure, Row, Verdict
from reports.metric_table import formula, metric
from reports.run import Run
from reports.survival import Survival, survivals
from reports.terminal import verdict_mark

_PERCENTILES: Final = ("ttft_p50", "ttft_p90", "ttft_p99")
_BREAKDOWNS: Final = {
    "phase": "Before, during and after the faults",
    "pipeline": "By pipeline",
    "band": "By prefix hit",
    "turn": "By turn",
    "tenant": "By tenant",
}


@dataclass(frozen=True, slots=True)
class Dot:
    """One percentile on the shared scale; places in percent of its width."""

    name: str
    text: str
    place: float
    low: float
    width: float
    few: bool


@dataclass(frozen=True, slots=True)
class Mode:
    """One row of the first screen."""

    label: str
    colour: str
    base: bool
    dots: tuple[Dot, ...]
    change: str
    around: str
    certainty: str
    verdict: str
    wan: str
    wan_change: str
    goodput: str
    relayed: str
    requests: str


@dataclass(frozen=True, slots=True)
class TableRow:
    """One figure of the full table: cells as (text, interval, change, verdict class, p)."""

    key: str
    title: str
    headline: bool
    cells: tuple[tuple[str, str, str, str, str], ...]


@dataclass(frozen=True, slots=True)
class Scale:
    """A logarithmic scale with its ticks."""

    low: float
    high: float

    def place(self, value: float) -> float:
        share = (math.log(value) - math.log(self.low)) / (math.log(self.high) - math.log(self.low))
        return round(100 * min(max(share, 0.0), 1.0), 2)

    @property
    def ticks(self) -> list[tuple[float, str]]:
        found = []
        for exponent in range(-2, 8):
            for step in (1, 2, 5):
                value = step * 10.0**exponent
                if self.low <= value <= self.high:
                    found.append((self.place(value), numbers.value(value, "ms")))
        return found[:: max(1, math.ceil(len(found) / 7))]


def scale(analysis: Analysis) -> Scale | None:
    values = [
        edge
        for side in range(len(analysis.sides))
        for key in _PERCENTILES
        for estimate in (_figure(analysis, side, key).estimate,)
        for edge in (estimate.value, estimate.low, estimate.high)
        if edge is not None and edge > 0 and math.isfinite(edge)
    ]
    return Scale(min(values) / 1.15, max(values) * 1.15) if values else None


def modes(analysis: Analysis) -> list[Mode]:
    shared = scale(analysis)
    found = []
    for index, (side, label) in enumerate(zip(analysis.sides, names(analysis.sides), strict=True)):
        comparison = analysis.comparisons[index - 1] if index else None
        tail = comparison.row(_tail_key(analysis)) if comparison else None
        wan = comparison.row("wan_kv_bytes") if comparison else None
        relays = (_figure(analysis, index, "relay_token_share").estimate.value or 0) > 0
        size = len(side.frame)
        reps = len(side.frame.columns.reps)
        found.append(
            Mode(
                label=label,
                colour=COLOURS[index % len(COLOURS)],
                base=index == 0,
                dots=tuple(_dots(analysis, index, shared)) if shared else (),
                change=verdict_mark(tail) if tail else "",
                around=numbers.change_interval(tail.change, tail.base.metric)
                if tail and tail.significant
                else "",
                certainty=_certainty(tail) if tail else "",
                verdict=_class(tail) if tail else "base",
                wan=_text(analysis, index, "wan_kv_bytes"),
                wan_change=verdict_mark(wan) if wan and wan.change else "",
                goodput=_text(analysis, index, "request_goodput"),
                relayed=_text(analysis, index, "relay_token_share") if relays else "",
                requests=f"{size} requests, {reps} repetition{'' if reps == 1 else 's'}",
            )
        )
    return found


def tail_name(analysis: Analysis) -> str:
    return _tail_key(analysis).rpartition("_")[2].upper()


def table(analysis: Analysis) -> list[TableRow]:
    rows = []
    for index, figure in enumerate(analysis.figures[0]):
        across = [side[index] for side in analysis.figures]
        if all(one.estimate.value is None for one in across):
            continue
        cells = [(_value(across[0]), numbers.interval(across[0].estimate, figure.metric.unit), "", "", "")]
        for comparison, one in zip(analysis.comparisons, across[1:], strict=True):
            row = comparison.rows[index]
            cells.append(
                (
                    _value(one),
                    numbers.interval(one.estimate, figure.metric.unit),
                    verdict_mark(row) if row.change else "",
                    _class(row),
                    _certainty(row),
                )
            )
        rows.append(TableRow(figure.key, figure.metric.title, figure.headline, tuple(cells)))
    return rows


def effects(comparison: Comparison) -> list[tuple[str, str, str, str]]:
    """Whole distributions: title, Cliff's delta, p, paired ratio with interval."""
    found = []
    for effect in comparison.effects:
        ratio = effect.paired_ratio
        paired = ""
        if ratio is not None and ratio.value is not None and ratio.low is not None and ratio.high is not None:
            paired = f"{ratio.value:.3f} ({ratio.low:.3f} … {ratio.high:.3f})"
        delta = f"{effect.cliffs_delta:+.2f}".replace("-", "\N{MINUS SIGN}")
        found.append((metric(effect.metric).title, delta, numbers.p_value(effect.adjusted_p), paired))
    return found


def breakdowns(analysis: Analysis) -> list[dict[str, Any]]:
    """Tables of groups with the figures that any of them has."""
    found = []
    for by, title in _BREAKDOWNS.items():
        groups = [(name, g) for name, side in _named(analysis) for g in breakdown(side.frame, by)]
        if len({group.label for _, group in groups}) < 2:
            continue
        keys = [key for key in FIGURES if any(g.figures[key] is not None for _, g in groups)]
        order = list(dict.fromkeys(group.label for _, group in groups))
        groups.sort(key=lambda pair: order.index(pair[1].label))
        found.append(
            {
                "title": title,
                "keys": keys,
                "rows": [
                    (name, g.label, g.requests, [_group_value(g, key) for key in keys]) for name, g in groups
                ],
            }
        )
    return found


def fault_matrix(analysis: Analysis) -> dict[str, Any] | None:
    """Mode by fault; None without faults."""
    rows: list[tuple[str, dict[str, Survival]]] = []
    for name, side in _named(analysis):
        found = survivals(side)
        if found:
            rows.append((name, {s.fault: s for s in found}))
    if not rows:
        return None
    columns = list(dict.fromkeys(fault for _, found in rows for fault in found))
    best = {c: min(_harm(found[c]) for _, found in rows if c in found) for c in columns}
    return {
        "faults": columns,
        "rows": [
            (
                name,
                [
                    _survival(found[c], best=len(rows) > 1 and _harm(found[c]) <= best[c] + _ALIKE)
                    if c in found
                    else None
                    for c in columns
                ],
            )
            for name, found in rows
        ],
    }


def chips(run: Run) -> list[str]:
    """What the figures hold for, in a few words each."""
    info = run.info
    found = []
    engines = sorted({f"{e.engine} · {e.model}" for cell in run.cells for e in cell.engines})
    found += engines[:2]
    if info.simulated:
        found.append("simulated")
    if info.emulated:
        found.append("emulated engine")
    for link in {cell.link.profile: cell.link for cell in run.cells if cell.link}.values():
        rate = f", {link.a_to_b_rate_bit_s / 1e6:g} Mbit/s" if link.a_to_b_rate_bit_s else ""
        delay = f", {link.a_to_b_delay_ms:g} ms one way" if link.a_to_b_delay_ms is not None else ""
        modelled = " (modelled)" if link.modelled else ""
        found.append(f"WAN {link.profile}{delay}{rate} by {link.driver}{modelled}")
    if info.trace:
        scaled = f", tokens x {info.token_scale:g}" if info.token_scale != 1 else ""
        found.append(f"trace {info.trace.name}{scaled}")
    found.append(f"{info.host.cpu_model}, {info.host.cores} cores")
    return found


def started(run: Run) -> str:
    if run.info.simulated:
        return ""
    return datetime.fromtimestamp(run.info.started_ns / 1e9, UTC).strftime("%Y-%m-%d %H:%M UTC")


def facts(run: Run) -> list[tuple[str, str]]:
    """The small print: versions, host, clocks, links, engines."""
    info = run.info
    commit = (info.versions.git_commit or "unknown")[:12] + (
        " with local changes" if info.versions.git_dirty else ""
    )
    packages = ", ".join(f"{name} {version}" for name, version in sorted(info.versions.packages.items()))
    host = f"{info.host.cpu_model}, {info.host.cores} cores, {info.host.memory_bytes / 2**30:.0f} GiB"
    host += f", kernel {info.host.kernel} ({info.host.host_class})"
    found = [
        ("pddbench", f"{info.versions.pddbench}, commit {commit}, Python {info.versions.python}"),
        ("packages", packages),
        ("host", host),
        ("seed", str(info.seed)),
        ("scales", f"tokens x {info.token_scale:g}, gaps x {info.time_scale:g}"),
        ("clocks", ", ".join(f"{c.process} ± {c.error_ns / 1000:g} µs" for c in info.clocks)),
        ("objectives", ", ".join(f"{name} ≤ {limit:g}" for name, limit in info.slo.items())),
    ]
    if info.trace:
        found.append(
            ("trace", f"{info.trace.name}, digest {info.trace.digest}, {info.trace.source}".rstrip(", "))
        )
    for cell in run.cells:
        if cell.link:
            details = ", ".join(f"{key} {value}" for key, value in cell.link.details.items())
            found.append(
                (
                    f"WAN of {cell.name}",
                    f"{cell.link.driver}, profile {cell.link.profile}, {details}".rstrip(", "),
                )
            )
        for engine in cell.engines:
            digest = f", {engine.model_digest}" if engine.model_digest else ""
            told = (
                f"{engine.role} in {engine.cluster}: {engine.engine}, {engine.model}{digest} {engine.build}"
            )
            found.append((f"{cell.name} · {engine.worker}", told.rstrip()))
    return [(name, text) for name, text in found if text]


def glossary(analysis: Analysis) -> list[tuple[str, str, str]]:
    """Metrics of the table: name, title, definition."""
    used = dict.fromkeys(
        figure.metric.name
        for side in analysis.figures
        for figure in side
        if figure.estimate.value is not None
    )
    return [(name, metric(name).title, formula(name)) for name in used]


def _named(analysis: Analysis) -> list[tuple[str, Any]]:
    return list(zip(names(analysis.sides), analysis.sides, strict=True))


def _figure(analysis: Analysis, side: int, key: str) -> Figure:
    return next(figure for figure in analysis.figures[side] if figure.key == key)


def _text(analysis: Analysis, side: int, key: str) -> str:
    figure = _figure(analysis, side, key)
    if figure.estimate.value is None:
        return ""
    return numbers.value(figure.estimate.value, figure.metric.unit)


def _tail_key(analysis: Analysis) -> str:
    for key in reversed(_PERCENTILES):
        if not any(_figure(analysis, side, key).few_beyond for side in range(len(analysis.sides))):
            return key
    return "ttft_p50"


def _dots(analysis: Analysis, side: int, shared: Scale) -> list[Dot]:
    dots = []
    for key in _PERCENTILES:
        figure = _figure(analysis, side, key)
        estimate = figure.estimate
        if estimate.value is None or not math.isfinite(estimate.value) or estimate.value <= 0:
            continue
        low = shared.place(max(estimate.low or estimate.value, shared.low))
        high = shared.place(min(estimate.high or estimate.value, shared.high))
        text = numbers.value(estimate.value, "ms")
        name = key.rpartition("_")[2].upper()
        dots.append(
            Dot(name, text, shared.place(estimate.value), low, round(high - low, 2), figure.few_beyond)
        )
    return dots


def _value(figure: Figure) -> str:
    if figure.estimate.value is None:
        return ""
    return numbers.value(figure.estimate.value, figure.metric.unit) + ("*" if figure.few_beyond else "")


def _certainty(row: Row) -> str:
    if row.change is None or row.change.absolute == 0:
        return ""
    if row.verdict is Verdict.NOT_SIGNIFICANT:
        seen = numbers.detectable(row.change, row.base.estimate, row.base.metric)
        return f"seen if {seen}" if seen else numbers.p_value(row.adjusted_p)
    return numbers.p_value(row.adjusted_p)


def _class(row: Row) -> str:
    match row.verdict:
        case Verdict.NOT_SIGNIFICANT:
            return "same"
        case Verdict.UNDEFINED:
            return "unknown"
        case _:
            return row.verdict.value


def _group_value(group: Group, key: str) -> str:
    known = metric(key) if key in _WHOLE else metric(key.rpartition("_")[0])
    number = group.figures[key]
    return "" if number is None else numbers.value(number, known.unit)


_ALIKE: Final = 0.02
"""Modes within two points of the best are all marked best."""
_WHOLE: Final = frozenset(key for key in FIGURES if not key.endswith(("_p50", "_p90", "_p99")))


def _harm(survival: Survival) -> float:
    """Share of requests that missed an objective, or failed where there are none: smaller is better."""
    if survival.good_share is None:
        return survival.failed / max(survival.requests, 1)
    return 1 - survival.good_share


def _survival(survival: Survival, *, best: bool) -> dict[str, Any]:
    recovery = survival.recovery_s
    told = (
        ""
        if recovery is None
        else "not recovered"
        if math.isinf(recovery)
        else f"recovered in {recovery:.1f} s"
    )
    good = "" if survival.good_share is None else f"{survival.good_share:.0%} good"
    return {
        "best": best,
        "good": good,
        "ttft": f"P99 {numbers.value(survival.ttft_p99_ms, 'ms')}",
        "before": f"before {numbers.value(survival.before_ttft_p99_ms, 'ms')}",
        "failed": f"{survival.failed} of {survival.requests} failed"
        if survival.failed
        else f"{survival.requests} requests",
        "recovery": told,
    }
