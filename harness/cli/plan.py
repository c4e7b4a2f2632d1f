"""`pddbench plan`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import click


def _range(_: click.Context, option: click.Parameter, text: str) -> tuple[int, ...]:
    """'2' or '1-4' or '1,2,4' as numbers."""
    try:
        numbers: list[int] = []
        for part in text.split(","):
            low, dash, high = part.partition("-")
            numbers += range(int(low), int(high if dash else low) + 1)
    except ValueError:
        raise click.BadParameter(
            f"{text!r}: a number, a range such as 1-4, or a list such as 1,2,4", param=option
        ) from None
    return tuple(numbers)


@click.command("plan")
@click.option(
    "--trace", help="Trace file, folder or preset:NAME; without one, the report's setting is planned."
)
@click.option(
    "--sessions", type=click.IntRange(min=1), default=100, show_default=True, help="Sessions of the trace."
)
@click.option("--model", default="v4-class", show_default=True, help="Model profile.")
@click.option("--a", "a_name", default="h100", show_default=True, help="Accelerator of cluster A.")
@click.option("--b", "b_name", default="h200", show_default=True, help="Accelerator of cluster B.")
@click.option(
    "--devices", type=click.IntRange(min=1), default=16, show_default=True, help="Devices of one worker."
)
@click.option(
    "--prefill", callback=_range, default="1-4", show_default=True, help="Numbers of prefill workers."
)
@click.option("--relay", callback=_range, default="0-1", show_default=True, help="Numbers of relay workers.")
@click.option("--main", callback=_range, default="1-3", show_default=True, help="Numbers of main workers.")
@click.option("--lines", callback=_range, default="10,20,40", show_default=True, help="Line rates, Gbit/s.")
@click.option(
    "--line-price",
    type=click.FloatRange(min=0),
    default=0.0435,
    show_default=True,
    help="Price of 1 Gbit/s per hour.",
)
@click.option(
    "--premium",
    type=float,
    help="B's price over A's (0.25: a quarter dearer); the profiles' prices if not given.",
)
@click.option("--ttft-s", type=click.FloatRange(min=0, min_open=True), help="SLO: TTFT.")
@click.option("--tpot-ms", type=click.FloatRange(min=0, min_open=True), help="SLO: time per output token.")
@click.option(
    "--keep", type=click.IntRange(min=1), default=10, show_default=True, help="Candidates to simulate."
)
@click.option(
    "--requests", type=click.IntRange(min=500), default=3000, show_default=True, help="Requests a simulation."
)
@click.option("--seeds", type=click.IntRange(min=1), default=1, show_default=True, help="Simulations a rate.")
@click.option(
    "--jobs", type=click.IntRange(min=1), help="Simulations at once; as many as there are cores if not given."
)
@click.option("--executor", type=click.Choice(["processes", "ray"]), default="processes", show_default=True)
@click.option(
    "--html", type=click.Path(dir_okay=False, path_type=Path), default=Path("plan.html"), show_default=True
)
@click.option("--json", "as_json", is_flag=True, help="Print candidates, front and sensitivity as JSON.")
def command(
    trace: str | None,
    sessions: int,
    model: str,
    a_name: str,
    b_name: str,
    devices: int,
    prefill: tuple[int, ...],
    relay: tuple[int, ...],
    main: tuple[int, ...],
    lines: tuple[int, ...],
    line_price: float,
    premium: float | None,
    ttft_s: float | None,
    tpot_ms: float | None,
    keep: int,
    requests: int,
    seeds: int,
    jobs: int | None,
    executor: str,
    html: Path,
    as_json: bool,
) -> None:
    """Search cluster sizes, handoff mode, relay bound and line rate for the best benefit-cost ratio.

    Every combination is screened by arithmetic; the best are simulated for the highest rate at which 99 %
    of the requests meet the SLO. Without --trace the report's setting is planned, against its own 43 A and
    32 B. Prices are per device and hour, for the report in units of one A.

    \b
    Examples:
      pddbench plan
      pddbench plan --trace preset:report --model deepseek-v3.2 --ttft-s 5 --tpot-ms 60 --prefill 2-6
      pddbench plan --executor ray --keep 200
    """
    import os

    import msgspec
    from rich.console import Console

    from harness.costs.profile import load_accelerator, load_line, load_model
    from harness.sim.planning.arena import Arena, TraceArena, plain
    from harness.sim.planning.candidate import Candidate, Prices, Slo
    from harness.sim.planning.executor import Processes, RayCluster
    from harness.sim.planning.page import write_page
    from harness.sim.planning.plan import make_plan
    from harness.sim.planning.plan_table import print_evaluation, print_plan
    from harness.sim.planning.report_setting import (
        report_arena,
        report_baseline,
        report_prices,
        report_slo,
        report_space,
    )
    from harness.sim.planning.search import SearchEffort, Space
    from harness.sim.reproduce.calibration import load_calibration
    from workloads.formats import open_trace
    from workloads.replay import make_plan as make_replay
    from workloads.vocabulary import Vocabulary

    console = Console(stderr=as_json)
    effort = SearchEffort(keep, requests, seeds)
    workers = RayCluster() if executor == "ray" else Processes(jobs or os.cpu_count() or 1)
    arena: Arena
    baseline: Candidate | None = None
    shifted: Callable[[float], Arena] | None = None
    if trace is None:
        calibration = load_calibration()
        arena, space, baseline = (
            report_arena(calibration),
            report_space(calibration),
            report_baseline(calibration),
        )
        prices, slo, title = report_prices(calibration), report_slo(), "The report's setting, planned"
        shifted = partial(report_arena, calibration)
    else:
        profile, a, b = load_model(model), load_accelerator(a_name), load_accelerator(b_name)
        replay = make_replay(
            open_trace(trace, seed=1, sessions=sessions),
            vocabulary=Vocabulary(3, int(profile.vocab_size.value)),
            seed=1,
        )
        line = load_line("wan-20g")
        arena = TraceArena(tuple(map(plain, replay.sessions)), profile, a, b, line, line.rtt_ms.value / 1e3)
        space = Space(
            tuple((n, devices) for n in prefill),
            tuple((n, devices if n else 0) for n in relay),
            tuple((n, devices) for n in main),
            ("pdd", "pdd-dynamic"),
            (100.0, 250.0, 1000.0),
            tuple(float(g) for g in lines),
        )
        prices = Prices(a.price_usd_h.value, b.price_usd_h.value, line_price)
        slo, title = Slo(5.0, 60.0), f"{profile.name}, {replay.header.trace}, planned"
    if premium is not None:
        prices = prices.with_premium(premium)
    slo = Slo(ttft_s or slo.ttft_s, tpot_ms or slo.tpot_ms, slo.share)
    console.print(
        f"{title}: TTFT {slo.ttft_s:g} s and TPOT {slo.tpot_ms:g} ms for {slo.share:.0%} of the requests; "
        f"A {prices.a:g}, B {prices.b:g} a device-hour",
        highlight=False,
    )
    plan = make_plan(
        arena,
        space,
        prices,
        slo,
        effort,
        workers,
        baseline=baseline,
        shifted=shifted,
        progress=partial(print_evaluation, console),
    )
    print_plan(console, plan)
    write_page(html, plan.evaluations, plan.front, plan.baseline, plan.moves, title)
    console.print(f"page: {html}", highlight=False)
    if as_json:
        click.echo(msgspec.json.encode(plan))
