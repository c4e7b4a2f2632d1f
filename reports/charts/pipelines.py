"""Share of the pipelines over time."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from reports.analysis import Analysis
from reports.chart import QUIET, Chart, axis, layout, names

_WINDOWS: Final = 40
_MOST_CELLS: Final = 6
_COLOURS: Final = {
    "direct": "#56b4e9",
    "relayed": "#e69f00",
    "local": "#cc79a7",
    "append": "#009e73",
    "colocated": "#8a93a3",
}
_LABELS: Final = {
    "direct": "direct (P-MD)",
    "relayed": "relayed (P-RLD-MD)",
    "local": "local (P-RLD)",
    "append": "append (MD)",
    "colocated": "colocated",
}


def draw(analysis: Analysis) -> Chart | None:
    drawn = []
    for side, label in zip(analysis.sides, names(analysis.sides), strict=True):
        codes, pipelines = side.frame.labels("handoffs", "pipeline")
        used = [code for code in range(len(pipelines)) if (codes == code).any()]
        if len(used) > 1:
            drawn.append((side, label, codes, pipelines))
    drawn = drawn[:_MOST_CELLS]
    if not drawn:
        return None
    traces: list[dict[str, Any]] = []
    figure_layout = layout(hovermode="x")
    annotations = []
    height = 1 / len(drawn)
    seen: set[str] = set()
    for row, (side, label, codes, pipelines) in enumerate(drawn):
        suffix = "" if row == 0 else str(row + 1)
        top = 1 - row * height
        first = min(side.frame.columns.reps)
        here = side.frame.reps == first
        sent = side.frame.client("sent_ns") / 1e9
        edges = np.linspace(0, float(np.nanmax(sent[here], initial=1.0)) + 1e-6, _WINDOWS + 1)
        place = np.digitize(sent, edges) - 1
        counts = np.array(
            [
                np.bincount(place[here & (codes == code)], minlength=_WINDOWS)[:_WINDOWS]
                for code in range(len(pipelines))
            ]
        )
        total = counts.sum(axis=0)
        share = np.where(total > 0, counts / np.maximum(total, 1), np.nan)
        for code, pipeline in enumerate(pipelines):
            if not counts[code].any():
                continue
            traces.append(
                {
                    "type": "bar",
                    "name": _LABELS.get(pipeline, pipeline),
                    "legendgroup": pipeline,
                    "showlegend": pipeline not in seen,
                    "x": np.round((edges[1:] + edges[:-1]) / 2, 2).tolist(),
                    "y": [None if np.isnan(v) else round(float(v), 4) for v in share[code]],
                    "yaxis": f"y{suffix}",
                    "marker": {"color": _COLOURS.get(pipeline, "#8c6d31")},
                    "hovertemplate": "%{y:.0%}<extra>" + _LABELS.get(pipeline, pipeline) + "</extra>",
                }
            )
            seen.add(pipeline)
        domain = [top - height + (0.12 * height), top - 0.1 * height]
        figure_layout[f"yaxis{suffix}"] = axis(
            "", domain=domain, anchor="x", tickformat=".0%", range=[0, 1], nticks=3
        )
        annotations.append(
            {
                "xref": "paper",
                "x": 0,
                "xanchor": "left",
                "yref": "paper",
                "y": domain[1],
                "yanchor": "bottom",
                "text": label,
                "showarrow": False,
                "font": {"size": 12, "color": QUIET},
            }
        )
    last = "" if len(drawn) == 1 else str(len(drawn))
    figure_layout["xaxis"] = axis("seconds since the repetition began", anchor=f"y{last}")
    figure_layout |= {"annotations": annotations, "barmode": "stack", "bargap": 0}
    return Chart(
        "pipelines",
        "Pipelines over time",
        "Share of requests by the pipeline the router chose, by send time, first repetition. Cells with a "
        "single pipeline are left out.",
        {"data": traces, "layout": figure_layout},
        height=120 * len(drawn) + 130,
    )
