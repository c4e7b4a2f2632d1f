"""The charts of the HTML report in the order of the page; a chart that has nothing to show is left out."""

from __future__ import annotations

import importlib
from typing import Final, cast

from reports.analysis import Analysis
from reports.chart import Chart, Draw

CHARTS: Final[tuple[str, ...]] = (
    "ttft_tail",
    "handoff_itl",
    "waterfall",
    "timeline",
    "pipelines",
    "hit_bands",
    "turns",
    "throughput_latency",
)


def draw_all(analysis: Analysis) -> list[Chart]:
    """Every chart that has data."""
    drawn = []
    for name in CHARTS:
        draw = cast("Draw", importlib.import_module(f"reports.charts.{name}").draw)
        chart = draw(analysis)
        if chart is not None:
            drawn.append(chart)
    return drawn
