"""The TTFT tail: share of requests that waited longer than x."""

from __future__ import annotations

from typing import Final

import numpy as np

from reports.analysis import Analysis
from reports.chart import QUIET, Chart, axis, layout, line, log_ms, names
from reports.columns import Floats
from reports.metrics.ttft import METRIC

_TAIL: Final = 400
_BODY: Final = 400


def draw(analysis: Analysis) -> Chart | None:
    traces = []
    least = 1.0
    for index, (side, name) in enumerate(zip(analysis.sides, names(analysis.sides), strict=True)):
        values = np.sort(METRIC.sample_with_failures(side.frame).values)
        if not len(values):
            continue
        x, y = ccdf(values)
        least = min(least, float(y[y > 0].min(initial=1.0)))
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": name,
                "x": x.tolist(),
                "y": y.tolist(),
                "line": {**line(index), "shape": "hv"},
                "hovertemplate": "%{y:.2%} wait longer than %{x:.4~s} ms<extra>" + name + "</extra>",
            }
        )
    if not traces:
        return None
    marks = [(0.5, "P50"), (0.1, "P90"), (0.01, "P99"), (0.001, "P99.9")]
    shown = [(share, name) for share, name in marks if share >= least]
    return Chart(
        "ttft_tail",
        "TTFT tail",
        "Share of requests whose first token came later than x, both axes logarithmic: further left is "
        "faster, and the right end is the worst request. Failed requests count as never answered, so a curve "
        "that ends above the others' had failures. Every request of the tail is drawn.",
        {
            "data": traces,
            "layout": layout(
                xaxis=log_ms("time to first token"),
                yaxis=axis(
                    "share of requests later",
                    type="log",
                    tickvals=[1, 0.5, 0.1, 0.01, 0.001, 0.0001],
                    ticktext=["100 %", "50 %", "10 %", "1 %", "0.1 %", "0.01 %"],
                    range=[float(np.log10(least)) - 0.05, 0.05],
                ),
                annotations=[
                    {
                        "xref": "paper",
                        "x": 1,
                        "xanchor": "right",
                        "yref": "y",
                        "y": float(np.log10(share)),
                        "yanchor": "bottom",
                        "text": name,
                        "showarrow": False,
                        "font": {"size": 11, "color": QUIET},
                    }
                    for share, name in shown
                ],
            ),
        },
        height=420,
    )


def ccdf(values: Floats) -> tuple[Floats, Floats]:
    """Points (x, share > x) of ascending `values`: all of the tail, the body thinned evenly in rank."""
    size = len(values)
    later = np.arange(size - 1, -1, -1) / size
    keep = np.unique(
        np.concatenate([np.linspace(0, size - 1, _BODY).astype(int), np.arange(max(size - _TAIL, 0), size)])
    )
    keep = keep[np.isfinite(values[keep]) & (later[keep] > 0)]
    return values[keep], later[keep]
