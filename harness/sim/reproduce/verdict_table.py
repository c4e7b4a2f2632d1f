"""The verdicts on a terminal, the progress of a fit, and a fitted calibration as a file."""

from __future__ import annotations

import math
from pathlib import Path

import tomli_w
from rich.console import Console
from rich.table import Table

from harness.sim.reproduce.calibration import Calibration
from harness.sim.reproduce.fit import FitStep
from harness.sim.reproduce.page import shown
from harness.sim.reproduce.targets import Verdict
from reports.render import put


def print_verdicts(console: Console, verdicts: tuple[Verdict, ...]) -> None:
    """One line a figure; notes of what was missed below."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name, right in (
        ("", False),
        ("figure", False),
        ("report", True),
        ("ours", True),
        ("tolerance", True),
        ("", False),
        ("", False),
    ):
        table.add_column(name, justify="right" if right else "left", no_wrap=right)
    for v in verdicts:
        low, high = v.target.bounds
        table.add_row(
            v.target.experiment,
            v.target.title + (" (sec)" if v.target.secondary else ""),
            f"{shown(v.target.value)} {v.target.unit}",
            shown(v.ours),
            _bounds(low, high),
            "met" if v.met else "MISSED",
            "fitted" if v.target.fitted else "held out",
            style=None if v.met else "yellow",
        )
    console.print(table)
    met = sum(1 for v in verdicts if v.met)
    console.print(f"{met} of {len(verdicts)} within tolerance", highlight=False)
    for v in verdicts:
        if v.note:
            mark = "" if v.met else "missed: "
            console.print(f"  {v.target.experiment} {v.target.title}: {mark}{v.note}", highlight=False)


def print_fit(console: Console, experiment: str, step: FitStep) -> None:
    values = ", ".join(f"{name.partition('.')[2]} {shown(value)}" for name, value in step.values.items())
    console.print(
        f"fit {experiment}: loss {step.loss:.4f}{' best' if step.best else ''}: {values}", highlight=False
    )


def write_calibration(calibration: Calibration, path: Path) -> None:
    """The calibration as TOML, to be given back by --calibration."""
    plain = {
        group: {
            key: {
                k: v
                for k, v in {
                    "value": q.value,
                    "basis": q.basis.value,
                    "source": q.source,
                    "low": q.low,
                    "high": q.high,
                }.items()
                if v is not None
            }
            for key, q in values.items()
        }
        for group, values in calibration.groups.items()
    }
    put(path, tomli_w.dumps(plain))


def _bounds(low: float, high: float) -> str:
    if math.isinf(high):
        return f"≥ {shown(low)}"
    if math.isinf(low):
        return f"≤ {shown(high)}"
    return f"{shown(low)} … {shown(high)}"
