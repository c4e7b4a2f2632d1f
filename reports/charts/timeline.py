"""Service and link over time on one axis, with the faults shaded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from reports.analysis import Analysis
from reports.chart import (
    FAULT_FILL,
    GRID,
    INK,
    MANY_CELLS,
    QUIET,
    Chart,
    axis,
    layout,
    line,
    names,
)
from reports.columns import Floats
from reports.frame import Frame
from reports.link_use import LinkUse, link_use
from reports.recovery import Fault, faults
from reports.sides import Side
from reports.slo import good_requests

_WINDOWS: Final = 80
_SHORTEST_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class _Line:
    """One curve of one panel: seconds and values."""

    x: Floats
    y: Floats
    dash: str | None = None
    name: str = ""


@dataclass(frozen=True, slots=True)
class _Panel:
    title: str
    lines: Callable[[_Rep], list[_Line]]
    log: bool = False


@dataclass(frozen=True, slots=True)
class _Rep:
    """One repetition of one side."""

    side: Side
    frame: Frame
    origin_ns: int
    edges_s: Floats
    link: list[LinkUse]

    @property
    def sent_s(self) -> Floats:
        return self.frame.client("sent_ns") / 1e9

    @property
    def first_s(self) -> Floats:
        return self.frame.client("first_token_ns") / 1e9

    def windows(self, at_s: Floats, reduce: Callable[[np.ndarray[Any, np.dtype[np.bool_]]], float]) -> Floats:
        """`reduce` of the rows of each window; NaN where none."""
        place = np.digitize(at_s, self.edges_s) - 1
        found = np.full(len(self.edges_s) - 1, np.nan)
        for window in np.unique(place[(place >= 0) & (place < len(found)) & ~np.isnan(at_s)]):
            found[window] = reduce(place == window)
        return found

    @property
    def middle_s(self) -> Floats:
        return np.asarray((self.edges_s[1:] + self.edges_s[:-1]) / 2)


def draw(analysis: Analysis) -> Chart | None:
    reps = [_open(side) for side in analysis.sides]
    labels = names(analysis.sides)
    drawn = [(p, [p.lines(rep) for rep in reps]) for p in _PANELS]
    panels = [(p, lines) for p, lines in drawn if any(lines)]
    if not panels:
        return None
    figure_layout = layout(hovermode="x", margin={"l": 64, "r": 16, "t": 30, "b": 44})
    gap, height = 0.035, 1 / len(panels)
    traces: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for row, (panel, lines) in enumerate(panels):
        suffix = "" if row == 0 else str(row + 1)
        top = 1 - row * height
        figure_layout[f"yaxis{suffix}"] = axis(
            "", domain=[top - height + gap, top - gap / 2], anchor="x", rangemode="tozero",
            **({"type": "log", "dtick": "D2", "tickformat": "~s"} if panel.log else {"tickformat": "~s"}),
        )  # fmt: skip
        annotations.append(_panel_title(panel.title, top - gap / 2))
        for index, (ours, label) in enumerate(zip(lines, labels, strict=True)):
            traces += [
                _trace(one, label, index, suffix, first=row == 0 and place == 0)
                for place, one in enumerate(ours)
            ]
    figure_layout["xaxis"] = axis(
        "seconds since the repetition began", anchor="y" if len(panels) == 1 else f"y{len(panels)}"
    )
    shaded = _shaded(reps)
    figure_layout["shapes"] = [shape for shape, _ in shaded]
    figure_layout["annotations"] = annotations + [text for _, text in shaded]
    if len(reps) > MANY_CELLS:
        for trace in traces:
            trace["visible"] = True if trace["legendgroup"] in labels[:2] else "legendonly"
    told = " Faults are shaded from taking effect to being cleared." if shaded else ""
    return Chart(
        "timeline",
        "Over time",
        f"First repetition of each cell, by send time, in windows of equal length.{told} Where the WAN "
        "reaches the line's rate (dotted), transfers queue.",
        {"data": traces, "layout": figure_layout},
        height=130 * len(panels) + 90,
    )


def _open(side: Side) -> _Rep:
    first = min(side.frame.columns.reps)
    frame = side.frame.chosen(side.frame.reps == first)
    sent = frame.client("sent_ns") / 1e9
    end = float(np.nanmax(sent, initial=1.0))
    width = max(_SHORTEST_S, end / _WINDOWS)
    return _Rep(
        side,
        frame,
        side.frame.columns.origin_ns(first),
        np.arange(0, end + width, width),
        link_use(side.run, side.cell.name, first),
    )


def _ttft(rep: _Rep) -> list[_Line]:
    ttft = 1000 * (rep.first_s - rep.sent_s)
    ok = rep.frame.ok & ~np.isnan(ttft)
    at = np.where(ok, rep.sent_s, np.nan)
    return [
        _Line(rep.middle_s, rep.windows(at, lambda rows: float(np.median(ttft[rows & ok]))), None, "P50"),
        _Line(rep.middle_s, rep.windows(at, lambda rows: float(np.max(ttft[rows & ok]))), "dot", "worst"),
    ]


def _gap(rep: _Rep) -> list[_Line]:
    gap = rep.frame.handoff_gap_ns / 1e6
    if np.isnan(gap).all():
        return []
    at = np.where(np.isnan(gap), np.nan, rep.frame.router("switch_ns") / 1e9)
    return [_Line(rep.middle_s, rep.windows(at, lambda rows: float(np.median(gap[rows]))))]


def _good(rep: _Rep) -> list[_Line]:
    good = good_requests(rep.frame)
    counted = rep.frame.ok if good is None else good
    width = float(rep.edges_s[1] - rep.edges_s[0])
    y = rep.windows(rep.sent_s, lambda rows: float((rows & counted).sum()) / width)
    return [_Line(rep.middle_s, np.nan_to_num(y))]


def _relayed(rep: _Rep) -> list[_Line]:
    if not rep.frame.has_router("pipeline").any():
        return []
    relayed = rep.frame.is_router("pipeline", "relayed")
    return [_Line(rep.middle_s, rep.windows(rep.sent_s, lambda rows: float(100 * relayed[rows].mean())))]


def _rate(rep: _Rep) -> list[_Line]:
    found = []
    for use in rep.link:
        if use.direction != "a_to_b":
            continue
        x = (use.t_ns - rep.origin_ns) / 1e9
        found.append(_Line(x, use.carried_bit_s / 1e6, None, "carried"))
        if not np.isnan(use.rate_bit_s).all():
            found.append(_Line(x, use.rate_bit_s / 1e6, "dot", "line's rate"))
    return found


def _backlog(rep: _Rep) -> list[_Line]:
    return [
        _Line((use.t_ns - rep.origin_ns) / 1e9, use.backlog_bytes / 1e3)
        for use in rep.link
        if use.direction == "a_to_b" and np.nansum(use.backlog_bytes) > 0
    ]


def _rtt(rep: _Rep) -> list[_Line]:
    return [
        _Line((use.t_ns - rep.origin_ns) / 1e9, use.rtt_ms)
        for use in rep.link
        if use.direction == "a_to_b" and not np.isnan(use.rtt_ms).all()
    ]


_PANELS: Final = (
    _Panel("TTFT (ms): median, worst dotted", _ttft, log=True),
    _Panel("handoff gap (ms)", _gap),
    _Panel("good requests per second", _good),
    _Panel("relayed requests (%)", _relayed),
    _Panel("WAN A to B (Mbit/s), line's rate dotted", _rate),
    _Panel("WAN backlog (kB)", _backlog),
    _Panel("WAN round trip (ms)", _rtt),
)


def _trace(one: _Line, label: str, index: int, suffix: str, *, first: bool) -> dict[str, Any]:
    told = f"{label} {one.name}".rstrip()
    return {
        "type": "scatter",
        "mode": "lines",
        "name": label,
        "legendgroup": label,
        "showlegend": first,
        "x": np.round(one.x, 3).tolist(),
        "y": [None if np.isnan(v) else round(float(v), 3) for v in one.y],
        "yaxis": f"y{suffix}",
        "connectgaps": False,
        "line": line(index, width=1.6 if one.dash is None else 1.1, dash=one.dash or "solid"),
        "hovertemplate": "%{y:.4~g}<extra>" + told + "</extra>",
    }


def _panel_title(text: str, top: float) -> dict[str, Any]:
    return {
        "xref": "paper",
        "x": 0,
        "xanchor": "left",
        "yref": "paper",
        "y": top,
        "yanchor": "bottom",
        "text": text,
        "showarrow": False,
        "font": {"size": 12, "color": QUIET},
    }


def _shaded(reps: list[_Rep]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """A band and a label for each distinct fault of the drawn repetitions."""
    found: dict[tuple[str, int], tuple[Fault, float, float]] = {}
    for rep in reps:
        for fault in faults(rep.side.run, rep.side.cell.name, min(rep.side.frame.columns.reps)):
            start = (fault.applied_ns - rep.origin_ns) / 1e9
            cleared = fault.cleared_ns
            end = float(rep.edges_s[-1]) if cleared is None else (cleared - rep.origin_ns) / 1e9
            found.setdefault((fault.name, round(start)), (fault, start, end))
    shaded = []
    for fault, start, end in found.values():
        band = {
            "type": "rect",
            "xref": "x",
            "x0": start,
            "x1": end,
            "yref": "paper",
            "y0": 0,
            "y1": 1,
            "fillcolor": FAULT_FILL,
            "line": {"width": 0},
            "layer": "below",
        }
        label = {
            "xref": "x",
            "x": (start + end) / 2,
            "yref": "paper",
            "y": 1,
            "yanchor": "bottom",
            "text": fault.name,
            "showarrow": False,
            "font": {"size": 11, "color": INK},
            "bgcolor": "rgba(255,255,255,0.7)",
            "bordercolor": GRID,
        }
        shaded.append((band, label))
    return shaded
