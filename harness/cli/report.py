"""`pddbench report`: what a run measured."""

from __future__ import annotations

import os
from pathlib import Path

import click


@click.command("report")
@click.argument("run", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--all", "everything", is_flag=True, help="Print every figure, not only the important ones.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print JSON (all figures and changes) and nothing else."
)
@click.option("--html/--no-html", default=True, show_default=True, help="Write RUN/report.html.")
@click.option(
    "--recover",
    is_flag=True,
    help="First turn records that a killed process left unfinished into Parquet, for other tools to read.",
)
def command(run: Path, *, everything: bool, as_json: bool, html: bool, recover: bool) -> None:
    """Print a run's cells side by side, the first one as the base, and write RUN/report.html.

    Works on interrupted runs too, and says that they are partial. A change is printed when it is
    significant at 5 % after correction for the number of figures, else `~` with the smallest difference
    that would have been seen.

    \b
    Examples:
      pddbench report runs/quickstart
      pddbench report runs/quickstart --all --no-html
      pddbench report runs/quickstart --json | jq .answer
    """
    # Thousands of small matrix products: more threads only wait for each other.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

    from rich.console import Console

    from reports.analysis import Analysis
    from reports.document import encode
    from reports.render import write_analysis
    from reports.run import Run
    from reports.shard import finish_abandoned
    from reports.terminal import print_analysis

    if recover:
        for path in finish_abandoned(run):
            click.echo(f"recovered {path}", err=True)
    analysis = Analysis.of_run(Run.open(run))
    if as_json:
        click.echo(encode(analysis), nl=False)
    else:
        print_analysis(analysis, Console(), everything=everything)
    if html:
        path = run / "report.html"
        write_analysis(analysis, path)
        if not as_json:
            click.echo(f"\n{path}")
