"""`pddbench sim EXPERIMENT.toml`."""

from __future__ import annotations

from pathlib import Path

import click

from harness.cli.conclusion import conclude
from harness.cli.settings import overrides_of


@click.command("sim")
@click.argument("experiment", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("runs"),
    show_default=True,
    help="Folder that the run's own folder is made in.",
)
@click.option("--seed", type=int, help="Seed of everything random; wins over the file.")
@click.option(
    "--repetitions", type=click.IntRange(min=1), help="Repetitions of each cell; wins over the file."
)
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    help="Cells simulated at once; as many as there are cores if not given.",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Override any key, e.g. --set sim.devices=h200x16 (VALUE in TOML). Repeatable.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the run's folder, verdict and files as JSON.")
@click.option("--no-report", is_flag=True, help="Record only; `pddbench report RUN` reports later.")
def command(
    experiment: Path,
    out: Path,
    seed: int | None,
    repetitions: int | None,
    jobs: int | None,
    settings: tuple[str, ...],
    as_json: bool,
    no_report: bool,
) -> None:
    """Run EXPERIMENT in virtual time: the same policy core, cost models instead of engines.

    The experiment file, the tables and the report are those of `pddbench run`; section [sim] names the
    cost profiles (model, devices, line). The same seed gives the same bytes on the same kind of machine.

    \b
    Examples:
      pddbench sim experiments/collapse.toml
      pddbench sim experiments/drc.toml --set sim.model='"deepseek-v3"'
      pddbench sim experiments/scarcity.toml --repetitions 3 --jobs 8
    """
    import os

    from rich.console import Console

    from harness.experiment.config import load_experiment
    from harness.experiment.runner import new_run_dir
    from harness.experiment.simulated import run_simulated

    loaded = load_experiment(experiment, overrides_of(settings, {"seed": seed, "repetitions": repetitions}))
    console = Console(stderr=as_json)
    run_dir = new_run_dir(out, loaded.name)
    console.print(f"{loaded.name}: seed {loaded.seed}, simulating into {run_dir}", highlight=False)
    info = run_simulated(loaded, run_dir, console, jobs=jobs or os.cpu_count() or 1)
    conclude(info, run_dir, console, as_json=as_json, no_report=no_report)
