"""Throughput against latency: one point a cell, joined by mode."""

from __future__ import annotations

from reports.analysis import Analysis
from reports.chart import Chart, axis, layout, line, log_ms, marker, names
from reports.comparison import Figure


def draw(analysis: Analysis) -> Chart | None:
    if len(analysis.sides) < 2:
        return None
    modes: dict[str, list[int]] = {}
    for index, side in enumerate(analysis.sides):
        modes.setdefault(side.cell.mode, []).append(index)
    labels = names(analysis.sides)
    traces = []
    for place, (mode, members) in enumerate(modes.items()):
        rates = [_figure(analysis, i, "request_throughput") for i in members]
        tails = [_figure(analysis, i, "ttft_p99") for i in members]
        points = sorted(
            (r.estimate.value, t.estimate.value, t.estimate.low, t.estimate.high, labels[i])
            for i, r, t in zip(members, rates, tails, strict=True)
            if r.estimate.value is not None and t.estimate.value is not None
        )
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers" if len(points) > 1 else "markers",
                "name": mode if len(points) > 1 else labels[members[0]],
                "x": [p[0] for p in points],
                "y": [p[1] for p in points],
                "error_y": {
                    "type": "data",
                    "symmetric": False,
                    "array": [(p[3] or p[1]) - p[1] for p in points],
                    "arrayminus": [p[1] - (p[2] or p[1]) for p in points],
                    "thickness": 1,
                    "width": 4,
                },
                "line": line(place),
                "marker": marker(place, 9),
                "text": [p[4] for p in points],
                "hovertemplate": "%{text}<br>%{x:.3~g} req/s, P99 %{y:.4~s} ms<extra></extra>",
            }
        )
    return Chart(
        "throughput_latency",
        "Throughput and latency",
        "Completed requests per second against TTFT P99 with its 95 % interval. Cells of one mode at several "
        "rates make a curve: the knee is where the mode saturates.",
        {
            "data": traces,
            "layout": layout(
                xaxis=axis("completed requests per second", rangemode="tozero"),
                yaxis=log_ms("TTFT P99"),
            ),
        },
    )


def _figure(analysis: Analysis, side: int, key: str) -> Figure:
    return next(figure for figure in analysis.figures[side] if figure.key == key)
