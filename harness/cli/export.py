"""`pddbench export`: a run for other tools."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("export")
@click.argument("run", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option(
    "--format",
    "form",
    required=True,
    metavar="FORMAT",
    help="aiperf (profile_export.jsonl), vllm-bench (summary JSON), csv (requests), figures (CSV of every "
    "figure) or otlp (spans as OTLP JSON lines).",
)
@click.option("--cell", "cells", multiple=True, help="Only this cell; may be given several times.")
@click.option("--rep", type=int, help="Only this repetition; all by default.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="Folder to write into [default: RUN/export]."
)
def command(run: Path, form: str, cells: tuple[str, ...], rep: int | None, output: Path | None) -> None:
    """Export RUN to another tool's format: one file for each cell and repetition.

    The Parquet tables need no export: pandas, DuckDB and Polars read RUN/requests/**/*.parquet as it is.

    \b
    Examples:
      pddbench export runs/quickstart --format aiperf
      pddbench export runs/quickstart --format otlp --cell pdd -o /var/tmp/spans
    """
    import os

    # Thousands of small matrix products: more threads only wait for each other.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

    from reports.export_table import export
    from reports.run import Run

    opened = Run.open(run)
    folder = output or run / "export"
    for name in cells or [cell.name for cell in opened.cells if opened.reps(cell.name)]:
        opened.cell(name)
        reps = opened.reps(name) if rep is None else [rep]
        for number in reps[:1] if form == "figures" else reps:
            where = folder / name if form == "figures" else folder / name / f"rep-{number}"
            click.echo(export(opened, form, name, number, where))
