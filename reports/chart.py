"""What a chart is, and how charts look: colours that survive colour blindness and print, quiet axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from reports.analysis import Analysis
from reports.sides import Side

# Okabe & Ito 2008, the base in a neutral grey; the dash tells cells apart without colour.
COLOURS: Final = ("#59616d", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#8c6d31")
DASHES: Final = ("solid", "solid", "dash", "dot", "dashdot", "longdash", "longdashdot", "dash")
SYMBOLS: Final = ("circle", "diamond", "square", "triangle-up", "cross", "x", "star", "hexagon")
INK: Final = "#1d2330"
QUIET: Final = "#667085"
GRID: Final = "#e7eaef"
FAULT_FILL: Final = "rgba(213, 94, 0, 0.10)"
MANY_CELLS: Final = 4
"""With more cells than this, charts over time show base and winner first, the others on a click."""

_STEPS: Final = [step * 10.0**exponent for exponent in range(-2, 7) for step in (1, 2, 5)]
_TICKS: Final[dict[str, Any]] = {
    "tickvals": _STEPS,
    "ticktext": [f"{value:g} ms" if value < 1000 else f"{value / 1000:g} s" for value in _STEPS],
}

Figure = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Chart:
    """One figure of the page. `caption` says what is seen and how it was made, in a sentence or two."""

    name: str
    title: str
    caption: str
    figure: Figure
    height: int = 380
    extra: dict[str, Any] = field(default_factory=dict)
    """Data for the page's script (decision logs)."""


Draw = Callable[[Analysis], Chart | None]


def line(index: int, *, width: float = 2.0, dash: str | None = None) -> dict[str, Any]:
    return {
        "color": COLOURS[index % len(COLOURS)],
        "width": width,
        "dash": dash or DASHES[index % len(DASHES)],
    }


def marker(index: int, size: int = 7) -> dict[str, Any]:
    return {
        "color": COLOURS[index % len(COLOURS)],
        "size": size,
        "symbol": SYMBOLS[index % len(SYMBOLS)],
    }


def names(sides: Sequence[Side]) -> list[str]:
    """Short distinct names for legends."""
    if len({side.run.path for side in sides}) > 1:
        return [f"{side.run.path.name}:{side.cell.name}" for side in sides]
    return [side.label for side in sides]


def axis(title: str, **more: Any) -> dict[str, Any]:
    return {
        "title": {"text": title, "font": {"size": 12, "color": QUIET}, "standoff": 8},
        "gridcolor": GRID,
        "zeroline": False,
        "linecolor": GRID,
        "tickfont": {"size": 11, "color": QUIET},
        "automargin": True,
        **more,
    }


def layout(**more: Any) -> dict[str, Any]:
    return {
        "font": {
            "family": "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif",
            "color": INK,
            "size": 12,
        },
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "margin": {"l": 56, "r": 16, "t": 12, "b": 44},
        "legend": {"orientation": "h", "yanchor": "bottom", "y": 1.02, "xanchor": "left", "x": 0},
        "hoverlabel": {"font": {"size": 12}},
        "hovermode": "closest",
        **more,
    }


def log_ms(title: str, **more: Any) -> dict[str, Any]:
    """A logarithmic axis of milliseconds, labelled at 1, 2 and 5."""
    return axis(title, type="log", **_TICKS, **more)
