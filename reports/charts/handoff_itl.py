"""Inter-token latency around the handoff, aligned on the switch."""

from __future__ import annotations

import numpy as np

from reports.analysis import Analysis
from reports.chart import COLOURS, QUIET, Chart, axis, layout, line, names
from reports.token_scan import ALIGNED_AFTER, ALIGNED_BEFORE

_FEWEST = 5


def draw(analysis: Analysis) -> Chart | None:
    offsets = np.arange(-ALIGNED_BEFORE, ALIGNED_AFTER + 1)
    traces: list[dict[str, object]] = []
    for index, (side, name) in enumerate(zip(analysis.sides, names(analysis.sides), strict=True)):
        aligned = side.frame.tokens.aligned
        known = (~np.isnan(aligned)).sum(axis=0) >= _FEWEST
        if not known.any():
            continue
        low, middle, high = np.nanpercentile(aligned[:, known], [10, 50, 90], axis=0)
        x = offsets[known]
        traces += [
            {
                "type": "scatter",
                "x": [*x.tolist(), *x[::-1].tolist()],
                "y": [*high.tolist(), *low[::-1].tolist()],
                "fill": "toself",
                "fillcolor": _faint(COLOURS[index % len(COLOURS)]),
                "line": {"width": 0},
                "hoverinfo": "skip",
                "showlegend": False,
            },
            {
                "type": "scatter",
                "mode": "lines",
                "name": f"{name} ({len(aligned)} handoffs)",
                "x": x.tolist(),
                "y": middle.tolist(),
                "line": line(index),
                "hovertemplate": "token %{x:+d}: %{y:.1f} ms<extra>" + name + "</extra>",
            },
        ]
    if not traces:
        return None
    return Chart(
        "handoff_itl",
        "Tokens around the handoff",
        "Wait before each token, counted from the first token of MD (0): the line is the median, the band "
        "holds 80 % of the handoffs. A spike at 0 is what the reader feels of the switch.",
        {
            "data": traces,
            "layout": layout(
                xaxis=axis("token, relative to the switch"),
                yaxis=axis("inter-token latency (ms)", rangemode="tozero"),
                shapes=[
                    {
                        "type": "line",
                        "x0": 0,
                        "x1": 0,
                        "yref": "paper",
                        "y0": 0,
                        "y1": 1,
                        "line": {"color": QUIET, "width": 1, "dash": "dot"},
                    }
                ],
            ),
        },
    )


def _faint(colour: str) -> str:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red}, {green}, {blue}, 0.15)"
