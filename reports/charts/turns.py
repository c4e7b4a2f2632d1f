"""TTFT by turn of the session."""

from __future__ import annotations

from reports.analysis import Analysis
from reports.breakdown import breakdown
from reports.chart import Chart, axis, layout, line, log_ms, marker, names


def draw(analysis: Analysis) -> Chart | None:
    traces = []
    labels: list[str] = []
    for index, (side, name) in enumerate(zip(analysis.sides, names(analysis.sides), strict=True)):
        groups = breakdown(side.frame, "turn")
        labels = max(labels, [group.label for group in groups], key=len)
        for key, dash in (("ttft_p50", "solid"), ("ttft_p90", "dot")):
            traces.append(
                {
                    "type": "scatter",
                    "mode": "lines+markers",
                    "name": f"{name} {key.rpartition('_')[2].upper()}",
                    "x": [group.label for group in groups],
                    "y": [group.figures[key] for group in groups],
                    "line": line(index, dash=dash),
                    "marker": marker(index),
                    "customdata": [group.requests for group in groups],
                    "hovertemplate": "%{y:.4~s} ms, n = %{customdata}<extra>" + name + "</extra>",
                }
            )
    if len(labels) < 2:
        return None
    return Chart(
        "turns",
        "By turn of the session",
        "The first turn finds a cold cache; later ones send and compute only what is new, as long as the "
        "caches of P and MD keep up.",
        {
            "data": traces,
            "layout": layout(
                xaxis=axis("turn", type="category", categoryorder="array", categoryarray=labels),
                yaxis=log_ms("time to first token"),
            ),
        },
    )
