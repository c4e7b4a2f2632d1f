"""Every figure of a cell with its interval as CSV; all repetitions together."""

from __future__ import annotations

import csv
from pathlib import Path

from reports.analysis import Analysis
from reports.run import Run


def write(run: Run, cell: str, rep: int, path: Path) -> None:  # noqa: ARG001
    """`rep` does not matter: figures are of all repetitions."""
    analysis = Analysis.of_cells([(run, cell)])
    with path.open("w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out)
        writer.writerow(
            ["run", "cell", "figure", "metric", "statistic", "unit", "value", "low", "high", "n", "reps"]
        )
        for figure in analysis.figures[0]:
            e = figure.estimate
            if e.value is not None:
                head = [
                    run.info.name,
                    cell,
                    figure.key,
                    figure.metric.name,
                    figure.statistic,
                    figure.metric.unit,
                ]
                writer.writerow([*head, e.value, e.low, e.high, e.size, e.reps])
