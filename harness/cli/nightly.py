"""`pddbench nightly`: a suite every night, judged against the nights before."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import click

from harness.cli.settings import overrides_of

_INCOMPLETE = 3
_REGRESSED = 4
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


@click.command("nightly")
@click.argument("suite", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--store",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of results over all nights; made at the first.",
)
@click.option("--budget", metavar="TIME", help="No job begins that is not expected to end in time: 90m, 2h.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Override a key of every experiment of the suite (VALUE in TOML). Repeatable.",
)
@click.option("--junit", type=click.Path(dir_okay=False, path_type=Path), help="Copy the JUnit XML here.")
@click.option("--markdown", type=click.Path(dir_okay=False, path_type=Path), help="Append the summary here.")
@click.option(
    "--accept", metavar="NIGHT", help="Run nothing: take the level of this night as the new normal."
)
@click.option("--json", "as_json", is_flag=True, help="Print night, verdict, findings and paths as JSON.")
def command(
    suite: Path,
    store: Path,
    budget: str | None,
    settings: tuple[str, ...],
    junit: Path | None,
    markdown: Path | None,
    accept: str | None,
    as_json: bool,
) -> None:
    """Run SUITE once, put its figures into the store, and fail when they are worse than on good nights.

    A figure regresses when it differs from the good nights since its last change of level by more than
    those differ among themselves (and by more than gate.min_change_pct); a job that regressed is run
    once more before the night is called regressed. A night that was cut off is taken up again.

    \b
    Exit codes: 0 passed, 2 wrong suite, 3 a job failed or is invalid, 4 regressed.

    \b
    Examples:
      pddbench nightly experiments/nightly-small.toml --store ~/nights
      pddbench nightly SUITE.toml --store S --budget 90m --junit out.xml --markdown "$GITHUB_STEP_SUMMARY"
      pddbench nightly SUITE.toml --store S --accept 20261130-213000
    """
    import os

    # Thousands of small matrix products: more threads only wait for each other.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

    import msgspec

    from harness.experiment.nightly import accept as accept_night
    from harness.experiment.nightly import run_night
    from harness.experiment.suite import load_suite
    from reports.nightly.record import NightVerdict
    from reports.nightly.store import Store

    budget_s = None if budget is None else _seconds(budget)
    loaded, jobs, digest = load_suite(suite, overrides_of(settings, {}))
    if accept is not None:
        night = accept_night(Store(store), loaded.name, accept)
        click.echo(f"{night.night}: accepted; later nights are held against it")
        return
    result = run_night(
        loaded,
        jobs,
        digest,
        Store(store),
        budget_s=budget_s,
        say=lambda line: click.echo(line, err=as_json),
    )
    if junit is not None:
        shutil.copyfile(result.junit, junit)
    if markdown is not None:
        with markdown.open("a", encoding="utf-8") as file:
            file.write(result.summary.read_text(encoding="utf-8"))
    if as_json:
        click.echo(msgspec.json.encode(msgspec.to_builtins(result, enc_hook=str)))
    else:
        assert result.night.verdict is not None
        click.echo(f"\n{result.night.night}: {result.night.verdict.value}")
        for line in result.findings:
            click.echo(f"  {line}")
        click.echo(f"summary: {result.summary}\njunit:   {result.junit}\ntrend:   {result.trend}")
    if result.night.verdict is NightVerdict.REGRESSED:
        sys.exit(_REGRESSED)
    if result.night.verdict is NightVerdict.INCOMPLETE:
        sys.exit(_INCOMPLETE)


def _seconds(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text)
    if match is None:
        raise click.UsageError(f"--budget {text}: needs a number and s, m or h, e.g. 90m")
    return float(match[1]) * _UNITS[match[2]]
