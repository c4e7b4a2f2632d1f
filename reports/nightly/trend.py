"""The trend page: every figure over all nights, with the nights that failed the gate and the steps found."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from reports.chart import COLOURS, DASHES, SYMBOLS, axis, layout
from reports.nightly.gate import GateSettings
from reports.nightly.record import Night
from reports.render import put, script_json, template
from reports.stats.change_point import segment_starts


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
    places = {night: index for index, night in enumerate(order)}
    found = []
    keys = ["figure", "job", "cell"]
    for (figure, job, cell), rows in figures[figures["night"].isin(places)].groupby(keys, sort=True):
        rows = rows.sort_values("night")  # noqa: PLW2901
        values = rows["value"].to_numpy(np.float64)
        finite = np.isfinite(values)
        starts = segment_starts(values[finite]) if finite.sum() else [0]
        steps = [str(rows["night"][finite].iloc[start]) for start in starts[1:]]
        found.append(
            {
                "figure": figure,
                "job": job,
                "cell": cell,
                "title": rows["title"].iloc[0],
                "unit": rows["unit"].iloc[0],
                "night": rows["night"].tolist(),
                "value": [_finite(v) for v in values],
                "low": [_finite(v) for v in rows["low"]],
                "high": [_finite(v) for v in rows["high"]],
                "valid": rows["valid"].tolist(),
                "steps": steps,
            }
        )
    return found


def _finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)
