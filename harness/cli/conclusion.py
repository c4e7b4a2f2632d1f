"""How `run` and `sim` end: the report, the paths, and the exit code."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

if TYPE_CHECKING:
    from rich.console import Console

    from reports.runinfo import RunInfo


def conclude(info: RunInfo, run_dir: Path, console: Console, *, as_json: bool, no_report: bool) -> NoReturn:
    """Print and render the report of a run that has just ended, and exit by its verdict."""
    import msgspec

    from reports.errors import ReportError
    from reports.run import Run
    from reports.runinfo import RunState

    html = run_dir / "report.html"
    reported = False
    if not no_report:
        from reports.render import write_html
        from reports.terminal import print_report

        run = Run.open(run_dir)
        try:
            print_report(run, console)
            write_html(run, html)
        except ReportError as error:
            if info.state is RunState.COMPLETE:
                raise
            # Interrupted before a cell had measured anything: nothing is wrong with the run but that.
            console.print(f"no report: {error}", highlight=False, soft_wrap=True)
        else:
            reported = True
            console.print(f"report:  {html}\ntables:  {run_dir}", highlight=False, soft_wrap=True)
    if as_json:
        body = {
            "run": str(run_dir),
            "state": info.state,
            "validity": _verdict(info),
            "report": str(html) if reported else None,
        }
        click.echo(msgspec.json.encode(body))
    if info.state is RunState.INTERRUPTED:
        sys.exit(130)
    sys.exit(0 if info.validity.valid else 3)


def _verdict(info: RunInfo) -> dict[str, object]:
    """The run's own reasons, and those of each repetition."""
    of_reps = [f"{rep.cell} rep {rep.rep}: {reason}" for rep in info.reps for reason in rep.validity.reasons]
    return {
        "valid": info.validity.valid,
        "reasons": [*info.validity.reasons, *of_reps],
        "cautions": info.validity.cautions,
    }
