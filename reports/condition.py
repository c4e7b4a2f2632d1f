"""Conditions on a comparison, for jobs that must fail: `ttft_p99 > +5%`.

    <figure> > +5%     changed by more than +5 %, significantly
    <figure> < -5%     changed by less than -5 %, significantly
    <figure> > +20ms   changed by more than 20 ms, significantly (units: as printed, or none)
    <figure> > 800ms   the compared cell's own value, whatever the base

Figures are called as in the table and in JSON: `<metric>_<p50|p90|p95|p99|p999|mean>`, or the metric alone
for shares and rates (`request_goodput < -5%`).
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Self

from reports.comparison import Comparison, Row
from reports.errors import ReportError
from reports.metric import QUANTILES, PerRep, PerRequest, PerToken, Share
from reports.metric_table import METRICS, metric

_GRAMMAR: Final = re.compile(
    r"\s*(?P<key>[a-z][a-z0-9_]*)\s*(?P<op>[<>])\s*(?P<sign>[+-]?)(?P<value>[0-9]*\.?[0-9]+)\s*(?P<unit>\S*)\s*"
)


class _Of(enum.Enum):
    RELATIVE = enum.auto()
    ABSOLUTE = enum.auto()
    LEVEL = enum.auto()


@dataclass(frozen=True, slots=True)
class Condition:
    """One parsed condition."""

    text: str
    key: str
    above: bool
    bound: float
    of: _Of

    @classmethod
    def parse(cls, text: str) -> Self:
        match = _GRAMMAR.fullmatch(text)
        if match is None:
            raise ReportError(f'--fail-if {text!r}: expected e.g. "ttft_p99 > +5%", "ttft_p99 > 800ms"')
        key, unit = match["key"], match["unit"]
        known = _unit_of(text, key)
        value = float(match["sign"] + match["value"])
        if unit == "%":
            if not match["sign"]:
                raise ReportError(f"--fail-if {text!r}: write +{value:g}% or -{value:g}% for a change")
            return cls(text, key, match["op"] == ">", value / 100, _Of.RELATIVE)
        if unit not in {"", known}:
            raise ReportError(f"--fail-if {text!r}: {key} is in {known or 'no unit'}, not {unit}")
        return cls(text, key, match["op"] == ">", value, _Of.ABSOLUTE if match["sign"] else _Of.LEVEL)


@dataclass(frozen=True, slots=True)
class Met:
    """A condition that holds, and where."""

    condition: Condition
    comparison: Comparison
    row: Row

    def __str__(self) -> str:
        cell = f"{self.comparison.other.run.path.name}:{self.comparison.other.cell.name}"
        value = self.row.other.estimate.value
        change = self.row.change
        unit = self.row.base.metric.unit
        told = "" if change is None or change.relative is None else f", {change.relative:+.1%}"
        return f"{self.condition.text}: {cell} has {value:.6g}{'' if unit == '1' else ' ' + unit}{told}"


def met(conditions: Iterable[Condition], comparisons: Iterable[Comparison]) -> list[Met]:
    """Conditions that hold. A change counts only when it is significant."""
    known = list(comparisons)
    found = []
    for condition in conditions:
        for comparison in known:
            row = comparison.row(condition.key)
            if row is not None and _holds(condition, row):
                found.append(Met(condition, comparison, row))
    return found


def _holds(condition: Condition, row: Row) -> bool:
    match condition.of:
        case _Of.LEVEL:
            value = row.other.estimate.value
        case _Of.ABSOLUTE:
            value = row.change.absolute if row.change and row.significant else None
        case _Of.RELATIVE:
            value = row.change.relative if row.change and row.significant else None
    if value is None:
        return False
    return value > condition.bound if condition.above else value < condition.bound


def _unit_of(text: str, key: str) -> str:
    """Unit of a figure; raises for a figure that does not exist."""
    if key in METRICS and isinstance(known := metric(key), Share | PerRep):
        return known.unit
    name, _, statistic = key.removesuffix("_with_failures").rpartition("_")
    if name in METRICS and statistic in {"mean", *QUANTILES}:
        known = metric(name)
        if isinstance(known, PerRequest | PerToken):
            return known.unit
    if key in METRICS:
        raise ReportError(f"--fail-if {text!r}: say which statistic: {key}_p50, {key}_p99, {key}_mean …")
    raise ReportError(f"--fail-if {text!r}: no figure {key!r}; metrics: {', '.join(METRICS)}")
