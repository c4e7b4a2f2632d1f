"""`pddbench run EXPERIMENT.toml`."""

from __future__ import annotations

from pathlib import Path

import click

from harness.cli.conclusion import conclude
from harness.cli.settings import overrides_of


@click.command("run")
@click.argument("experiment", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("runs"),
    show_default=True,
    help="Folder that the run's own folder is made in.",
)
@click.option("--link", "driver", help="Driver of the WAN: auto, netem, uml or relay; wins over the file.")
@click.option("--model", help="Model of the workers: tiny, smollm2 or a GGUF file; wins over the file.")
@click.option("--seed", type=int, help="Seed of everything random; wins over the file.")
@click.option(
    "--repetitions", type=click.IntRange(min=1), help="Repetitions of each cell; wins over the file."
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Override any key, e.g. --set workload.token_scale=0.1 (VALUE in TOML). Repeatable.",
)
@click.option(
    "--processes",
    type=click.IntRange(min=1),
    help="Load generator processes on this machine; wins over the file.",
)
@click.option(
    "--master",
    "workers",
    type=click.IntRange(min=1),
    metavar="WORKERS",
    help="Let so many `pddbench worker` processes, here or elsewhere, send the load.",
)
@click.option("--master-bind", default="127.0.0.1:5557", show_default=True, help="Where they find this one.")
@click.option("--web", is_flag=True, help="Serve Locust's web interface at 127.0.0.1:8089 while under load.")
@click.option("--json", "as_json", is_flag=True, help="Print the run's folder, verdict and files as JSON.")
@click.option("--no-report", is_flag=True, help="Record only; `pddbench report RUN` reports later.")
def command(
    experiment: Path,
    out: Path,
    driver: str | None,
    model: str | None,
    seed: int | None,
    repetitions: int | None,
    settings: tuple[str, ...],
    processes: int | None,
    workers: int | None,
    master_bind: str,
    web: bool,
    as_json: bool,
    no_report: bool,
) -> None:
    """Run EXPERIMENT on a live cluster: every cell, every repetition, then the report.

    The cells are run interleaved (A B B A …), each on a freshly started cluster with cold caches. All
    that is measured goes to Parquet tables in the run's folder as the run goes, so a run that is cut
    short keeps what it has.

    \b
    Examples:
      pddbench run experiments/quickstart.toml
      pddbench run experiments/modes.toml --repetitions 4 --link relay
      pddbench run experiments/quickstart.toml --set link.profile='"metro"'

    Ctrl-C once drains and reports, twice stops.
    """
    import asyncio

    from rich.console import Console

    from harness.experiment.check import check
    from harness.experiment.config import load_experiment
    from harness.experiment.runner import new_run_dir, run_experiment

    host, _, port = master_bind.rpartition(":")
    if not host or not port.isdigit():
        raise click.UsageError(f"--master-bind {master_bind}: needs HOST:PORT, e.g. 0.0.0.0:5557")
    named = {
        "link.driver": driver,
        "cluster.model": model,
        "seed": seed,
        "repetitions": repetitions,
        "load.processes": processes,
        "load.master": {"workers": workers, "host": host, "port": int(port)} if workers else None,
        "load.web": {} if web else None,
    }
    overrides = overrides_of(settings, named)
    loaded = load_experiment(experiment, overrides)
    check(loaded)
    console = Console(stderr=as_json)
    run_dir = new_run_dir(out, loaded.name)
    console.print(f"{loaded.name}: seed {loaded.seed}, recording into {run_dir}", highlight=False)
    info = asyncio.run(run_experiment(loaded, run_dir, console))
    conclude(info, run_dir, console, as_json=as_json, no_report=no_report)
