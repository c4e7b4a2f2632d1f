"""`pddbench worker`: one machine's part of a distributed load generation."""

from __future__ import annotations

import click


@click.command("worker")
@click.option("--master-host", required=True, help="Where `pddbench run --master` runs.")
@click.option("--master-port", default=5557, show_default=True, help="Its port.")
@click.option(
    "--run-dir",
    type=click.Path(file_okay=False),
    help="Where this worker's records go. Default: the run directory the master names, on this machine.",
)
@click.option("--join-s", default=60.0, show_default=True, help="How long to look for the master.")
def command(master_host: str, master_port: int, run_dir: str | None, join_s: float) -> None:
    """Join a distributed load generation: take a shard of the sessions and replay it.

    The master deals the sessions out by their ids, measures the offset of this machine's clock and
    starts all workers at one instant. Records stay on this machine, as Parquet shards that merge with
    the others' when they lie in one run directory. The API key, if the job wants one, is read here.

    \b
    Examples:
      pddbench run experiment.toml --master 2      (on one machine)
      pddbench worker --master-host 10.0.0.1       (twice, on others)
    """
    import subprocess
    import sys

    # A process of its own: Locust makes the standard library cooperative when it is imported, and
    # the command line has used it already.
    arguments = [
        sys.executable,
        "-m",
        "harness.loadgen.join",
        master_host,
        str(master_port),
        "--join-s",
        str(join_s),
    ]
    if run_dir is not None:
        arguments += ["--run-dir", run_dir]
    with subprocess.Popen(arguments) as process:
        while True:
            try:
                code = process.wait()
                break
            except KeyboardInterrupt:
                continue  # it has had the signal too: the first drains, the second stops
    sys.exit(code)
