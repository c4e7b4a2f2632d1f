"""TTFT by prefix-hit band, and how many requests each band has."""

from __future__ import annotations

from reports.analysis import Analysis
from reports.breakdown import breakdown
from reports.chart import GRID, Chart, axis, layout, line, log_ms, marker, names


def draw(analysis: Analysis) -> Chart | None:
    traces: list[dict[str, object]] = []
    labels: list[str] = []
    for index, (side, name) in enumerate(zip(analysis.sides, names(analysis.sides), strict=True)):
        groups = breakdown(side.frame, "band")
        if not groups:
            continue
        x = [group.label for group in groups]
        if not traces:
            labels = x
            traces.append(
                {
                    "type": "bar",
                    "name": "requests",
                    "x": x,
                    "y": [group.share for group in groups],
                    "yaxis": "y2",
                    "marker": {"color": GRID},
                    "hovertemplate": "%{y:.1%} of requests<extra></extra>",
                }
            )
        for key, dash, size in (("ttft_p50", "solid", 7), ("ttft_p99", "dot", 9)):
            traces.append(
                {
                    "type": "scatter",
                    "mode": "lines+markers",
                    "name": f"{name} {key.rpartition('_')[2].upper()}",
                    "x": x,
                    "y": [group.figures[key] for group in groups],
                    "line": line(index, dash=dash),
                    "marker": marker(index, size),
                    "customdata": [group.requests for group in groups],
                    "hovertemplate": "%{y:.4~s} ms, n = %{customdata}<extra>" + name + "</extra>",
                }
            )
    if not traces:
        return None
    return Chart(
        "hit_bands",
        "By prefix hit",
        "TTFT by the share of the prompt that the trace lets be cached; bars are the share of requests. The "
        "low-hit tail carries most of the uncached tokens, and is where modes part.",
        {
            "data": traces,
            "layout": layout(
                xaxis=axis("prefix hit", categoryorder="array", categoryarray=labels, type="category"),
                yaxis=log_ms("time to first token", overlaying="y2"),
                yaxis2=axis(
                    "",
                    side="right",
                    range=[0, 2],
                    showgrid=False,
                    tickformat=".0%",
                    tickvals=[0, 0.5, 1],
                ),
            ),
        },
    )
