"""`pddbench compare`: runs against each other."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

_INVALID = 3
_CONDITION_MET = 4


@click.command("compare")
@click.argument("runs", nargs=-1, required=True)
@click.option("--all", "everything", is_flag=True, help="Print every figure, not only the important ones.")
@click.option(
    "--fail-if",
    "conditions",
    multiple=True,
    metavar="CONDITION",
    help='Exit with 4 when this holds, e.g. "ttft_p99 > +5%" (a significant change), "ttft_p99 > 800ms" (the '
    "value itself). May be given several times.",
)
@click.option(
    "--allow",
    default="",
    metavar="RULE,…",
    help="Compare although these differ: trace, token-scale, time-scale, load-driver, link-driver, engine, "
    "model, host, or all.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON and nothing else.")
@click.option("--markdown", "as_markdown", is_flag=True, help="Print Markdown and nothing else.")
@click.option(
    "--html", type=click.Path(path_type=Path, dir_okay=False), help="Write the HTML report here as well."
)
@click.option("--seed", default=0, show_default=True, help="Seed of bootstrap and permutations.")
def command(
    runs: tuple[str, ...],
    *,
    everything: bool,
    conditions: tuple[str, ...],
    allow: str,
    as_json: bool,
    as_markdown: bool,
    html: Path | None,
    seed: int,
) -> None:
    """Compare RUN… with the first: every figure with its interval, its change, and whether it is significant.

    RUN is a run directory or RUN:cell. Of runs with several cells, cells of the same name are compared.
    Requests are paired by trace request, sessions are the unit of resampling, and p-values are corrected
    for the number of figures. Runs that do not compare (another trace, scale, driver, engine or class of
    machine) are refused with the reason.

    \b
    Exit codes: 0 compared, 2 refused, 3 a run is invalid, 4 a --fail-if condition holds.

    \b
    Examples:
      pddbench compare runs/monday runs/tuesday
      pddbench compare runs/a:xdc runs/a:pdd --fail-if "ttft_p99 > +5%"
      pddbench compare runs/a runs/b --allow host --markdown >> "$GITHUB_STEP_SUMMARY"
    """
    from reports.render import write_analysis

    # Thousands of small matrix products: more threads only wait for each other.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

    from rich.console import Console

    from reports.analysis import Analysis, match_cells
    from reports.condition import Condition, met
    from reports.document import encode
    from reports.errors import ReportError
    from reports.markdown import markdown
    from reports.terminal import print_analysis

    parsed = [Condition.parse(text) for text in conditions]
    groups = match_cells(runs)
    if len(groups[0]) < 2:
        raise ReportError(f"compare {runs[0]}: name at least two runs, or two cells as RUN:cell RUN:cell")
    if html is not None and len(groups) > 1:
        raise ReportError(f"--html {html}: one comparison a file; name the cells as RUN:cell RUN:cell")
    allowed = [name for name in allow.split(",") if name]
    found = [Analysis.of_cells(group, allow=allowed, seed=seed) for group in groups]
    if as_json:
        documents = [encode(analysis).decode() for analysis in found]
        click.echo(documents[0] if len(documents) == 1 else f"[{','.join(documents)}]", nl=False)
    elif as_markdown:
        click.echo("\n".join(markdown(analysis, everything=everything) for analysis in found), nl=False)
    else:
        for analysis in found:
            print_analysis(analysis, Console(), everything=everything)
    if html is not None:
        write_analysis(found[0], html)
    holding = met(parsed, [comparison for analysis in found for comparison in analysis.comparisons])
    for one in holding:
        click.echo(f"--fail-if {one}", err=True)
    if not all(analysis.valid for analysis in found):
        sys.exit(_INVALID)
    if holding:
        sys.exit(_CONDITION_MET)
