"""The reproduction as one HTML file: verdicts, parameters, residuals and figures."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import jinja2
import plotly.offline

from harness.sim.reproduce.calibration import Calibration
from harness.sim.reproduce.targets import ReproductionChart, Verdict
from reports.render import put, script_json

_TEMPLATE: Final = Path(__file__).with_name("reproduction.html")
_HEIGHT: Final = 420


def write_page(
    path: Path, verdicts: tuple[Verdict, ...], calibration: Calibration, charts: tuple[ReproductionChart, ...]
) -> None:
    """Write the page at once or not at all."""
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    template = environment.from_string(_TEMPLATE.read_text(encoding="utf-8"))
    data = {c.name: {**c.figure, "height": _HEIGHT} for c in charts}
    text = template.render(
        verdicts=verdicts,
        groups=calibration.groups,
        charts=charts,
        data=script_json(data),
        plotly_js=plotly.offline.get_plotlyjs(),
        shown=shown,
    )
    put(path, text)


def shown(value: float) -> str:
    """Three or four significant digits."""
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
