"""`pddbench feasibility`."""

from __future__ import annotations

import click


@click.command("feasibility")
@click.option(
    "--model", default="v4-class", show_default=True, help="Model profile, or a path ending in .toml."
)
@click.option(
    "--trace", default="preset:report", show_default=True, help="Trace file, folder, or preset:NAME."
)
@click.option(
    "--sessions", type=click.IntRange(min=1), default=200, show_default=True, help="Sessions of the trace."
)
@click.option(
    "--rate", type=click.FloatRange(min=0, min_open=True), default=10.0, show_default=True, help="Requests/s."
)
@click.option(
    "--line-gbit",
    type=click.FloatRange(min=0, min_open=True),
    default=20.0,
    show_default=True,
    help="Line rate.",
)
@click.option(
    "--rtt-ms", type=click.FloatRange(min=0), default=20.0, show_default=True, help="Round trip of the line."
)
@click.option(
    "--loss-pct", type=click.FloatRange(min=0, max=100), default=0.0, show_default=True, help="Packet loss."
)
@click.option(
    "--line",
    "line_name",
    default="wan-20g",
    show_default=True,
    help="Line profile: how a pool of connections behaves.",
)
@click.option(
    "--bound-s",
    type=click.FloatRange(min=0, min_open=True),
    default=1.0,
    show_default=True,
    help="Tolerable transfer.",
)
@click.option(
    "--burstiness",
    type=click.FloatRange(min=0.1),
    default=4.0,
    show_default=True,
    help="CV² of the arrivals.",
)
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print the analysis as JSON.")
def command(
    model: str,
    trace: str,
    sessions: int,
    rate: float,
    line_gbit: float,
    rtt_ms: float,
    loss_pct: float,
    line_name: str,
    bound_s: float,
    burstiness: float,
    seed: int,
    as_json: bool,
) -> None:
    """Say whether a WAN line carries a model's KV traffic, with and without the decode-side cache.

    Two questions: bandwidth (KV bytes a second against the line) and latency (how long a request's transfer
    takes among the others). The first is arithmetic; the second offers the trace's transfers to the
    flow-level line model at the given rate.

    \b
    Examples:
      pddbench feasibility --rate 80 --line-gbit 20
      pddbench feasibility --model llama-3-70b --line-gbit 100 --trace my-trace/ --bound-s 0.5
    """
    import msgspec
    from rich.console import Console
    from rich.table import Table

    from harness.costs.profile import load_line, load_model
    from harness.sim.feasibility import analyse
    from harness.sim.wan import line_model
    from workloads.formats import open_trace
    from workloads.replay import make_plan
    from workloads.vocabulary import Vocabulary

    profile = load_model(model)
    plan = make_plan(
        open_trace(trace, seed=seed, sessions=sessions),
        vocabulary=Vocabulary(3, int(profile.vocab_size.value)),
        seed=seed,
    )
    line = line_model(
        load_line(line_name), rate_bytes_s=line_gbit * 1e9 / 8, rtt_s=rtt_ms / 1e3, loss_share=loss_pct / 100
    )
    found = analyse(
        plan.sessions, profile, line, rate=rate, arrival_cv2=burstiness, bound_s=bound_s, seed=seed
    )
    if as_json:
        click.echo(msgspec.json.encode(found))
        return
    console = Console()
    console.print(
        f"{profile.name}, {found.requests} requests of {plan.header.trace} "
        f"({found.mean_prompt_tokens:,.0f} tokens, "
        f"MD holds {found.mean_hit:.1%} of a prompt), {rate:g} req/s, {line_gbit:g} Gbit/s, {rtt_ms:g} ms",
        highlight=False,
    )
    table = Table(box=None, pad_edge=False)
    for name in ("", "KV", "line used", "transfer P50", "P90", "P99", "P99.9", f"beyond {bound_s:g} s"):
        table.add_column(name, justify="left" if not name else "right")
    for name, demand in (("with decode-side cache", found.with_cache), ("without", found.without_cache)):
        times = ("-" if t == float("inf") else f"{t:.3g} s" for t in demand.transfer_s)
        table.add_row(
            name,
            f"{demand.kv_bytes_s * 8 / 1e9:.3g} Gbit/s",
            f"{demand.utilisation:.0%}",
            *times,
            f"{demand.beyond_share:.1%}",
        )
    console.print(table)
    console.print(found.verdict, highlight=False)
