"""The plan as one HTML file: the front, every simulated candidate, and what moves the answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import jinja2
import plotly.offline

from harness.sim.planning.candidate import Evaluation
from harness.sim.planning.sensitivity import Move
from reports.chart import axis, layout, line, marker
from reports.render import put, script_json

_TEMPLATE: Final = Path(__file__).with_name("plan.html")


def write_page(
    path: Path,
    evaluations: list[Evaluation],
    front: list[Evaluation],
    baseline: Evaluation | None,
    moves: list[Move],
    title: str,
) -> None:
    """Write the page at once or not at all."""
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    template = environment.from_string(_TEMPLATE.read_text(encoding="utf-8"))
    text = template.render(
        title=title,
        evaluations=sorted(evaluations, key=lambda e: -e.bcr),
        front=front,
        baseline=baseline,
        moves=moves,
        data=script_json(_figure(evaluations, front, baseline)),
        plotly_js=plotly.offline.get_plotlyjs(),
    )
    put(path, text)


def _figure(
    evaluations: list[Evaluation], front: list[Evaluation], baseline: Evaluation | None
) -> dict[str, Any]:
    data = [
        _points("simulated", evaluations, {"mode": "markers", "marker": marker(0)}),
        _points("Pareto front", front, {"mode": "lines+markers", "line": line(1), "marker": marker(1)}),
    ]
    if baseline is not None:
        data.append(_points("baseline", [baseline], {"mode": "markers", "marker": marker(2, 12)}))
    return {
        "data": data,
        "layout": layout(xaxis=axis("cost per hour"), yaxis=axis("requests/s within the SLO"), height=460),
    }


def _points(name: str, evaluations: list[Evaluation], style: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "scatter",
        "name": name,
        "x": [round(e.cost, 3) for e in evaluations],
        "y": [round(e.rate, 3) for e in evaluations],
        "text": [str(e.candidate) for e in evaluations],
        **style,
    }
