"""`pddbench replay RUN`."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("replay")
@click.argument("run", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(run: Path, as_json: bool) -> None:
    """Replay the decision log of RUN through the policy core.

    Every event the router told its policy is told again, at the recorded instants; the actions must be
    the recorded ones. That makes a decision of last night's run explainable today, and shows whether a
    change of the policy would have decided otherwise.
    """
    import sys

    import msgspec

    from harness.experiment.decision_replay import replay_decisions
    from reports.run import Run

    results = replay_decisions(Run.open(run))
    if as_json:
        click.echo(msgspec.json.encode(results))
    else:
        for result in results:
            verdict = "same actions" if result.differs is None else f"DIFFERS at {result.differs}"
            click.echo(f"{result.cell} rep {result.rep}: {result.events} events, {verdict}")
    sys.exit(1 if any(r.differs for r in results) else 0)
