"""`pddbench reproduce [E1 … E8 M10]`."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("reproduce")
@click.argument("experiments", nargs=-1, metavar="[E1 … E8 M10]")
@click.option(
    "--quick", is_flag=True, help="One seed and half the requests: minutes become one, figures noisier."
)
@click.option("--seeds", type=click.IntRange(min=1), help="Repetitions of each simulation (3).")
@click.option("--requests", type=click.IntRange(min=500), help="Requests of each simulation (8000).")
@click.option(
    "--jobs", type=click.IntRange(min=1), help="Simulations at once; as many as there are cores if not given."
)
@click.option(
    "--calibration",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Parameters of your own instead of the shipped ones.",
)
@click.option(
    "--fit", "fitted", is_flag=True, help="Fit the free parameters of the experiments named (E1, E6) first."
)
@click.option(
    "--evaluations",
    type=click.IntRange(min=2),
    default=30,
    show_default=True,
    help="Simulations a fit may take.",
)
@click.option(
    "--html",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("reproduction.html"),
    show_default=True,
    help="Where to write the page with the plots.",
)
@click.option("--json", "as_json", is_flag=True, help="Print targets, values and verdicts as JSON.")
@click.option("--fail-if-missed", is_flag=True, help="Exit with 4 when a figure is outside its tolerance.")
def command(
    experiments: tuple[str, ...],
    quick: bool,
    seeds: int | None,
    requests: int | None,
    jobs: int | None,
    calibration: Path | None,
    fitted: bool,
    evaluations: int,
    html: Path,
    as_json: bool,
    fail_if_missed: bool,
) -> None:
    """Reproduce the PDD report's results in simulation and hold them against its figures.

    Every line says what the report has, what we get, the tolerance, and whether a parameter was fitted to
    that figure (then meeting it predicts nothing) or the figure was held out. Misses stay in the table,
    with the reason where one is known; see docs/reproduction.md.

    \b
    Examples:
      pddbench reproduce                 everything (minutes)
      pddbench reproduce E5 E8           arithmetic and the bathtub (seconds)
      pddbench reproduce E6 --fit        fit the line's free parameters first
    """
    import os
    import sys

    import msgspec
    from rich.console import Console

    from harness.sim.reproduce.calibration import load_calibration
    from harness.sim.reproduce.effort import QUICK, Effort
    from harness.sim.reproduce.experiments import measure
    from harness.sim.reproduce.fit import GROUPS, fit
    from harness.sim.reproduce.page import write_page
    from harness.sim.reproduce.targets import EXPERIMENTS, ReproductionChart, Verdict, judge
    from harness.sim.reproduce.verdict_table import print_fit, print_verdicts, write_calibration

    chosen = tuple(e.upper() for e in experiments) or EXPERIMENTS
    for name in chosen:
        if name not in EXPERIMENTS:
            raise click.UsageError(f"{name}: unknown experiment; known: {', '.join(EXPERIMENTS)}")
    console = Console(stderr=as_json)
    base = QUICK if quick else Effort()
    effort = Effort(seeds or base.seeds, requests or base.requests, jobs or os.cpu_count() or 1)
    used = load_calibration(calibration)
    if fitted:
        for name in (n for n in chosen if n in GROUPS):
            for step, best in fit(name, used, effort, evaluations):
                print_fit(console, name, step)
                used = best
        path = html.with_suffix(".toml")
        write_calibration(used, path)
        console.print(f"fitted parameters: {path}", highlight=False)
    verdicts: list[Verdict] = []
    charts: list[ReproductionChart] = []
    for done, findings in measure(chosen, used, effort):
        verdicts += judge(done, findings.values, findings.notes)
        charts += findings.charts
        console.print(f"{', '.join(done)}: done", highlight=False)
    ordered = tuple(sorted(verdicts, key=lambda v: EXPERIMENTS.index(v.target.experiment)))
    print_verdicts(console, ordered)
    write_page(html, ordered, used, tuple(charts))
    console.print(f"page: {html}", highlight=False)
    if as_json:
        click.echo(
            msgspec.json.encode(
                [{"target": v.target, "ours": v.ours, "met": v.met, "note": v.note} for v in ordered]
            )
        )
    sys.exit(4 if fail_if_missed and not all(v.met for v in ordered) else 0)
