"""What the HTML page shows, gathered from an analysis; the template only places it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from reports import numbers
from reports.analysis import Analysis
from reports.breakdown import FIGURES, Group, breakdown
from reports.chart import names
from reports.comparison import Comparison, Figure
from reports.metric_table import formula, metric
from reports.row_text import certainty, css_class, mark
from reports.run import Run
from reports.survival import Survival, survivals

_BREAKDOWNS: Final = {
    "phase": "Before, during and after the faults",
    "pipeline": "By pipeline",
    "band": "By prefix hit",
    "turn": "By turn",
    "tenant": "By tenant",
}


@dataclass(frozen=True, slots=True)
class TableRow:
    """One figure of the full table: cells as (text, interval, change, verdict class, p)."""

    key: str
    title: str
    headline: bool
    cells: tuple[tuple[str, str, str, str, str], ...]


def table(analysis: Analysis) -> list[TableRow]:
    rows = []
    for index, figure in enumerate(analysis.figures[0]):
        across = [side[index] for side in analysis.figures]
        if all(one.estimate.value is None for one in across):
            continue
        cells = [(_value(across[0]), numbers.interval(across[0].estimate, figure.metric), "", "", "")]
        for comparison, one in zip(analysis.comparisons, across[1:], strict=True):
            row = comparison.rows[index]
            cells.append(
                (
                    _value(one),
                    numbers.interval(one.estimate, figure.metric),
                    mark(row) if row.change else "",
                    css_class(row),
                    certainty(row),
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
        if link.driver == "none":
            continue
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


def _value(figure: Figure) -> str:
    if figure.estimate.value is None:
        return ""
    return numbers.value(figure.estimate.value, figure.metric.unit) + ("*" if figure.few_beyond else "")


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
