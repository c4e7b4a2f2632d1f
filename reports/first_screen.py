"""The first screen of the HTML report: which mode, by how much, sure or not, at what cost on the WAN."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from reports import numbers
from reports.analysis import Analysis
from reports.chart import COLOURS, names
from reports.comparison import Figure
from reports.row_text import certainty, css_class, mark

_PERCENTILES: Final = ("ttft_p50", "ttft_p90", "ttft_p99")


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
                change=mark(tail) if tail else "",
                around=numbers.change_interval(tail.change, tail.base.metric)
                if tail and tail.significant
                else "",
                certainty=certainty(tail) if tail else "",
                verdict=css_class(tail) if tail else "base",
                wan=_text(analysis, index, "wan_kv_bytes"),
                wan_change=mark(wan) if wan and wan.change else "",
                goodput=_text(analysis, index, "request_goodput"),
                relayed=_text(analysis, index, "relay_token_share") if relays else "",
                requests=f"{size} requests, {reps} repetition{'' if reps == 1 else 's'}",
            )
        )
    return found


def tail_name(analysis: Analysis) -> str:
    return _tail_key(analysis).rpartition("_")[2].upper()


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
