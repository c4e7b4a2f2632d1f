"""The figures of the reproduction page, as plotly data in the style of the reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from harness.sim.reproduce.targets import ReproductionChart
from reports.chart import axis, layout, line, marker

_POINTS: Final = 400


def survival(
    curves: Mapping[str, NDArray[np.float64]], percentiles: NDArray[np.float64]
) -> ReproductionChart:
    """TTFT: the share of requests that still wait after so long."""
    data = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": name,
            "x": np.round(values, 3).tolist(),
            "y": np.round(1 - percentiles / 100, 4).tolist(),
            "line": line(i),
        }
        for i, (name, values) in enumerate(curves.items())
    ]
    figure = {
        "data": data,
        "layout": layout(xaxis=axis("TTFT (s)"), yaxis=axis("share of requests beyond", type="log")),
    }
    return _chart(
        "ttft-survival",
        "E1: TTFT by mode",
        "Means of the seeds' quantiles; lower and further left is better.",
        figure,
    )


def percentile_bars(
    ours: Mapping[str, Sequence[float]], theirs: Mapping[str, Sequence[float]]
) -> ReproductionChart:
    """The nine TTFT figures, ours beside the report's."""
    names = ["P50", "P90", "P99"]
    data: list[dict[str, Any]] = []
    for i, (label, values) in enumerate(ours.items()):
        x = [f"{label} {q}" for q in names]
        data.append(
            {
                "type": "bar",
                "name": f"{label}, simulated",
                "x": x,
                "y": [round(v, 2) for v in values],
                "marker": marker(i),
            }
        )
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": f"{label}, report",
                "x": x,
                "y": list(theirs[label]),
                "marker": {"symbol": "line-ew-open", "size": 26, "color": "#1d2330", "line": {"width": 3}},
                "error_y": {"type": "data", "array": [0.2 * v for v in theirs[label]], "color": "#667085"},
                "showlegend": i == 0,
            }
        )
    figure = {"data": data, "layout": layout(yaxis=axis("TTFT (s)"), xaxis=axis(""))}
    return _chart(
        "ttft-percentiles",
        "E1: against the report",
        "Bars: simulated. Marks: the report's figures with the tolerance of 20 %.",
        figure,
    )


def transfer_distribution(times: Mapping[str, NDArray[np.float64]]) -> ReproductionChart:
    """E6: cumulative distribution of transfer times on a logarithmic axis."""
    share = np.linspace(0.001, 0.999, _POINTS)
    data = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": f"{name} hits",
            "x": np.round(np.quantile(values, share), 4).tolist(),
            "y": np.round(share, 4).tolist(),
            "line": line(i),
        }
        for i, (name, values) in enumerate(times.items())
    ]
    reported = {"x": [0.248, 18.9, 1.21, 25.5], "y": [0.5, 0.99, 0.5, 0.99]}
    data.append({"type": "scatter", "mode": "markers", "name": "report", **reported, "marker": marker(2, 9)})
    figure = {
        "data": data,
        "layout": layout(
            xaxis=axis("transfer time (s)", type="log"), yaxis=axis("share of transfers within")
        ),
    }
    return _chart(
        "transfer-distribution",
        "E6: transfer times on 20 Gbit/s, skewed against narrow hits",
        "The same load in bytes: skewed hits make most transfers short and the tail no longer.",
        figure,
    )


def handoff_strip(kv_ms: Sequence[float], extend_ms: Sequence[float]) -> ReproductionChart:
    """E2: every repetition of both handoffs."""
    data = [
        {
            "type": "box",
            "name": name,
            "y": [round(v, 1) for v in values],
            "boxpoints": "all",
            "jitter": 0.4,
            "marker": marker(i, 4),
        }
        for i, (name, values) in enumerate((("KV transfer", kv_ms), ("extend-decode", extend_ms)))
    ]
    figure = {"data": data, "layout": layout(yaxis=axis("handoff (ms)"), showlegend=False)}
    return _chart(
        "handoff", "E2: 100 tokens handed over", "KV is quicker on average and far less even.", figure
    )


def cost_table(rows: Sequence[tuple[float, float, float, float, float]]) -> ReproductionChart:
    """E4: the arithmetic, in units of one A accelerator."""
    header = ["B's premium", "line", "43 A + 32 B + line", "against 88 A", "BCR"]
    cells = [
        [f"{p:.0%}" for p, *_ in rows],
        [f"{line_cost:.2f}" for _, line_cost, *_ in rows],
        [f"{total:.2f}" for _, _, total, *_ in rows],
        [f"{cost:+.1f} %" for *_, cost, _ in rows],
        [f"{bcr:+.1f} %" for *_, bcr in rows],
    ]
    figure = {
        "data": [{"type": "table", "header": {"values": header}, "cells": {"values": cells}}],
        "layout": layout(),
    }
    return _chart(
        "cost",
        "E4: cost in units of one A",
        "Throughput gain taken from the report: 9.0 to 11.5 req/s.",
        figure,
    )


def bathtub_curves(
    grid: NDArray[np.float64],
    forms: Mapping[float, NDArray[np.float64]],
    hits: NDArray[np.float64],
    simulated: Mapping[float, NDArray[np.float64]],
) -> ReproductionChart:
    """E8: revenue per time by hit rate, closed form and simulated, for several prices of a cached token."""
    data: list[dict[str, Any]] = []
    for i, (price, curve) in enumerate(forms.items()):
        x, y = np.round(grid, 3).tolist(), np.round(curve, 4).tolist()
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": f"price {price:g}, closed form",
                "x": x,
                "y": y,
                "line": line(i),
            }
        )
    for i, (price, curve) in enumerate(simulated.items()):
        x, y = np.round(hits, 3).tolist(), np.round(curve, 4).tolist()
        data.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": f"price {price:g}, simulated",
                "x": x,
                "y": y,
                "line": line(i, width=1, dash="dot"),
                "marker": marker(i, 4),
                "visible": True if price in (0.1, 0.25) else "legendonly",
            }
        )
    figure = {
        "data": data,
        "layout": layout(
            xaxis=axis("prefix hit rate"), yaxis=axis("revenue per time, 1 at no hits", range=[0, 3])
        ),
    }
    return _chart(
        "bathtub",
        "E8: the bathtub",
        "A cached token pays `price`. A bathtub exists iff (a + d) / (1 + q) < price < a + q + d.",
        figure,
    )


def dip_bars(grid: Sequence[float], alone: Sequence[float], filled: Sequence[float]) -> ReproductionChart:
    """E8: relative prefill throughput by hit rate, tail chunks alone and filled."""
    x = [f"{h:.0%}" for h in grid]
    data = [
        {"type": "bar", "name": name, "x": x, "y": [round(v, 3) for v in values], "marker": marker(i)}
        for i, (name, values) in enumerate(
            (("tail chunk alone", alone), ("filled with the next prompt", filled))
        )
    ]
    figure = {
        "data": data,
        "layout": layout(
            xaxis=axis("prefix hit rate"),
            yaxis=axis("throughput of the linear layers", range=[0.7, 1.02]),
            barmode="group",
        ),
    }
    return _chart(
        "dips",
        "E8: tail-chunk dips and their repair",
        "64K prompts in chunks of 16K; a chunk below 8K takes as long as 8K.",
        figure,
    )


def collapse_lines(shares: Mapping[str, Sequence[float]], predicted: Sequence[float]) -> ReproductionChart:
    """M10: share of turns on the relay decoder, turn by turn."""
    data: list[dict[str, Any]] = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": name,
            "x": list(range(len(v))),
            "y": [round(s, 4) for s in v],
            "line": line(i),
        }
        for i, (name, v) in enumerate(shares.items())
    ]
    data.append(
        {
            "type": "scatter",
            "mode": "lines",
            "name": "1 - (1 - .25)^t",
            "x": list(range(1, len(predicted) + 1)),
            "y": [round(v, 4) for v in predicted],
            "line": line(2, width=1, dash="dot"),
        }
    )
    figure = {
        "data": data,
        "layout": layout(
            xaxis=axis("turn of the session"), yaxis=axis("share of turns on RLD", range=[0, 1.02])
        ),
    }
    return _chart(
        "collapse",
        "M10: what P-RLD does to a session",
        "A quarter of the turns bring a long tool result.",
        figure,
    )


def _chart(name: str, title: str, caption: str, figure: dict[str, Any]) -> ReproductionChart:
    return ReproductionChart(name, title, caption, figure)
