"""The HTML report: one file that needs nothing else, opened from disk without a network."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any, Final

import jinja2
import plotly.offline

from reports import first_screen, page
from reports.analysis import Analysis
from reports.answer import answer
from reports.chart_table import draw_all
from reports.errors import RecordingError
from reports.run import Run

_FOLDER: Final = Path(__file__).parent / "html"


def write_html(run: Run, path: Path) -> None:
    """Write the report of a run's cells to `path`, at once or not at all."""
    write_analysis(Analysis.of_run(run), path)


def write_analysis(analysis: Analysis, path: Path) -> None:
    """Write the report of an analysis to `path`, at once or not at all."""
    put(path, render(analysis))


def put(path: Path, text: str) -> None:
    """Replace a file by `text`, at once or not at all."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise RecordingError(f"{path}: cannot write ({error.strerror})") from error


def render(analysis: Analysis) -> str:
    """The page."""
    charts = draw_all(analysis)
    return template("report.html").render(
        analysis=analysis,
        answer=answer(analysis),
        charts=charts,
        comparisons=[(c, page.effects(c)) for c in analysis.comparisons],
        data=script_json({c.name: {**c.figure, "height": c.height, **c.extra} for c in charts}),
        first=first_screen,
        page=page,
    )


def template(name: str) -> jinja2.Template:
    """A template of this package, with the style sheet and plotly at hand."""
    return _environment().get_template(name)


def script_json(value: Any) -> str:
    """JSON that may stand inside a script element."""
    return (
        json.dumps(value, allow_nan=False, separators=(",", ":"))
        .replace("</", "<\\/")
        .replace("<!--", "<\\!--")
    )


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["style"] = (_FOLDER / "report.css").read_text(encoding="utf-8")
    environment.globals["script"] = (_FOLDER / "report.js").read_text(encoding="utf-8")
    environment.globals["plotly_js"] = plotly.offline.get_plotlyjs
    return environment
