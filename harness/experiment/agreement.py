"""How far a simulated run agrees with the live run of the same experiment.

    python -m harness.experiment.agreement LIVE_RUN SIMULATED_RUN

Requests are matched by their place in the trace. Of those that both runs answered: the share whose pipeline
is the same, and the percentiles of TTFT (from the send to the first token, at the client). A live run that
its own instrument calls invalid says nothing about the simulator; that is told, too.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import click
import msgspec
import numpy as np
from numpy.typing import NDArray

from reports.run import Run

_PERCENTILES: Final = (50, 90, 99)


class CellAgreement(msgspec.Struct, frozen=True):
    """One cell, all repetitions."""

    cell: str
    requests: int
    """Answered in both runs."""
    same_pipeline: float | None
    """Share of them, 0 to 1; None when nothing was decided."""
    live_ttft_ms: dict[int, float]
    """By percentile."""
    simulated_ttft_ms: dict[int, float]
    valid: bool
    """Whether the live run is."""

    def ttft_error(self, percentile: int) -> float:
        """Simulated over live, less 1."""
        return self.simulated_ttft_ms[percentile] / self.live_ttft_ms[percentile] - 1


def agreement(live: Run, simulated: Run) -> list[CellAgreement]:
    """Cells that both runs have. ValueError when they share no answered request."""
    found = []
    for cell in [c.name for c in live.cells if c.name in {other.name for other in simulated.cells}]:
        ours, theirs = _answered(live, cell), _answered(simulated, cell)
        both = sorted(ours.keys() & theirs.keys())
        if not both:
            raise ValueError(f"cell {cell}: no request was answered in both runs")
        decided = [k for k in both if ours[k][1] is not None and theirs[k][1] is not None]
        same = [ours[k][1] == theirs[k][1] for k in decided]
        found.append(
            CellAgreement(
                cell,
                len(both),
                sum(same) / len(same) if same else None,
                _percentiles(np.array([ours[k][0] for k in both])),
                _percentiles(np.array([theirs[k][0] for k in both])),
                all(rep.validity.valid for rep in live.info.reps if rep.cell == cell),
            )
        )
    return found


def _answered(run: Run, cell: str) -> dict[tuple[int, str], tuple[float, str | None]]:
    """(repetition, request of the trace) to (TTFT in ms, pipeline)."""
    found: dict[tuple[int, str], tuple[float, str | None]] = {}
    for rep in run.reps(cell):
        handoffs = run.table("handoffs", cell, rep).select(["request_id", "pipeline"]).to_pylist()
        pipelines: dict[str, str] = {row["request_id"]: row["pipeline"] for row in handoffs}
        columns = ["request_id", "trace_request", "sent_ns", "first_token_ns", "status"]
        for row in run.table("requests", cell, rep).select(columns).to_pylist():
            if row["status"] == "ok" and row["first_token_ns"] is not None:
                ttft_ms = (row["first_token_ns"] - row["sent_ns"]) / 1e6
                found[rep, row["trace_request"]] = (ttft_ms, pipelines.get(row["request_id"]))
    return found


def _percentiles(values: NDArray[np.float64]) -> dict[int, float]:
    return {q: float(np.percentile(values, q)) for q in _PERCENTILES}


def _line(found: CellAgreement) -> dict[str, Any]:
    return {
        **msgspec.to_builtins(found),
        "ttft_error": {q: round(found.ttft_error(q), 4) for q in _PERCENTILES},
    }


@click.command()
@click.argument("live", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("simulated", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def main(live: Path, simulated: Path, as_json: bool) -> None:
    """Hold a simulated run against the live run of the same experiment."""
    try:
        found = agreement(Run.open(live), Run.open(simulated))
    except ValueError as error:
        raise click.ClickException(str(error)) from None
    if as_json:
        click.echo(json.dumps([_line(cell) for cell in found], indent=2))
        return
    for cell in found:
        same = "n/a" if cell.same_pipeline is None else f"{cell.same_pipeline:.1%}"
        click.echo(f"{cell.cell}: {cell.requests} requests, same pipeline {same}")
        for q in _PERCENTILES:
            click.echo(
                f"  TTFT P{q}: live {cell.live_ttft_ms[q]:.0f} ms, simulated "
                f"{cell.simulated_ttft_ms[q]:.0f} ms ({cell.ttft_error(q):+.1%})"
            )
        if not cell.valid:
            click.echo("  the live run's own instrument calls it invalid: repeat it on a quieter machine")


if __name__ == "__main__":
    main()
