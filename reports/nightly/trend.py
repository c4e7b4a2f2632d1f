"""The trend page: every figure over all nights, with the nights that failed the gate and the steps found."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

from reports.chart import COLOURS, DASHES, SYMBOLS, axis, layout
from reports.metric_table import METRICS, metric
from reports.nightly.gate import GateSettings, within_night
from reports.nightly.record import Night
from reports.numbers import is_bounded, possible
from reports.render import put, script_json, template
from reports.stats.change_point import segment_starts

_COLUMNS: Final = ("night", "figure", "job", "cell", "title", "unit", "value", "low", "high", "valid")


def write_trend(
    path: Path, suite: str, figures: pd.DataFrame, nights: Sequence[Night], settings: GateSettings
) -> None:
    """Write the page for one suite."""
    put(path, render(suite, figures, nights, settings))


def render(suite: str, figures: pd.DataFrame, nights: Sequence[Night], settings: GateSettings) -> str:
    order = [night.night for night in nights]
    series = _series(figures, order)
    names = sorted({s["figure"] for s in series}, key=lambda name: (name not in settings.figures, name))
    data = {
        "nights": [
            {
                "night": night.night,
                "commit": (night.commit or "unknown")[:12],
                "verdict": night.verdict.value if night.verdict else "unfinished",
            }
            for night in nights
        ],
        "series": series,
        "gated": [name for name in settings.figures if name in names],
        "colours": COLOURS,
        "dashes": DASHES,
        "symbols": SYMBOLS,
        "layout": layout(xaxis=axis("", type="category"), yaxis=axis("", rangemode="tozero")),
    }
    return template("trend.html").render(
        suite=suite, nights=list(reversed(nights)), figures=names, data=script_json(data)
    )


def _series(figures: pd.DataFrame, order: Sequence[str]) -> list[dict[str, Any]]:
    """One series a figure, job and cell; plain rows, since a store has thousands of short groups."""
    known = set(order)
    groups: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    records: list[dict[str, Any]] = figures[list(_COLUMNS)].to_dict("records")  # type: ignore[assignment]
    for row in records:
        if row["night"] in known:
            groups.setdefault((row["figure"], row["job"], row["cell"]), []).append(row)
    return [_one(key, sorted(rows, key=lambda row: row["night"])) for key, rows in sorted(groups.items())]


def _one(key: tuple[str, str, str], rows: list[dict[str, Any]]) -> dict[str, Any]:
    finite = [row for row in rows if math.isfinite(row["value"])]
    noise = within_night([(row["low"], row["high"]) for row in finite])
    bounded = key[0] in METRICS and is_bounded(metric(key[0]))
    bars = [possible(row["value"], row["low"], row["high"], bounded=bounded) for row in rows]
    starts = segment_starts(np.array([row["value"] for row in finite]), noise) if finite else [0]
    return {
        "figure": key[0],
        "job": key[1],
        "cell": key[2],
        "title": rows[0]["title"],
        "unit": rows[0]["unit"],
        "night": [row["night"] for row in rows],
        "value": [_finite(row["value"]) for row in rows],
        "low": [_finite(low) for low, _ in bars],
        "high": [_finite(high) for _, high in bars],
        "valid": [bool(row["valid"]) for row in rows],
        "steps": [finite[start]["night"] for start in starts[1:]],
    }


def _finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)
