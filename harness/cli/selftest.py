"""`pddbench selftest`: how wrong is the instrument on this machine, now?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from harness.loadgen.calibration import Calibration, Error

EXCEEDED: Final = 4


@click.command("selftest")
@click.option("--rate", default=100.0, show_default=True, help="Requests per second, Poisson, open loop.")
@click.option("--seconds", default=5.0, show_default=True, help="How long requests are sent.")
@click.option("--tokens", default=64, show_default=True, help="Output tokens of each request.")
@click.option("--ttft-ms", default=200.0, show_default=True, help="True TTFT of the calibrated server.")
@click.option("--itl-ms", default=20.0, show_default=True, help="True ITL of the calibrated server.")
@click.option(
    "--max-ttft-error-ms",
    default=0.5,
    show_default=True,
    help="Bound on the P99 error of the first token's stamp.",
)
@click.option(
    "--max-event-error-ms",
    default=1.0,
    show_default=True,
    help="Bound on the P99 error of any token's stamp.",
)
@click.option(
    "--max-lateness-ms",
    default=5.0,
    show_default=True,
    help="Bound on the P99 lateness against the schedule.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def command(
    rate: float,
    seconds: float,
    tokens: int,
    ttft_ms: float,
    itl_ms: float,
    max_ttft_error_ms: float,
    max_event_error_ms: float,
    max_lateness_ms: float,
    as_json: bool,
) -> None:
    """Replay requests against a built-in server of known TTFT and ITL, and print the error of every figure.

    The server stamps each token just before it sends it; the load generator runs exactly as in a
    benchmark. Exit code 4 when a bound is exceeded: on a busy machine that says the machine is too
    busy to measure on, not that the figures of a quiet one are wrong.

    \b
    Examples:
      pddbench selftest
      pddbench selftest --rate 305 --seconds 20 --max-lateness-ms 0.5
      pddbench selftest --json | jq .ttft_error.p99_ms
    """
    import sys
    import tempfile
    from pathlib import Path

    import msgspec

    from harness.loadgen.calibration import Scenario, measure
    from harness.loadgen.job import PoissonArrivals

    scenario = Scenario(
        name="selftest",
        sessions=max(1, round(rate * seconds)),
        arrivals=PoissonArrivals(rate),
        output_tokens=tokens,
        ttft_ms=ttft_ms,
        itl_ms=itl_ms,
    )
    with tempfile.TemporaryDirectory(prefix="pddbench-selftest-") as folder:
        result = measure(scenario, Path(folder))
    bounds = (
        ("first token stamp", result.first_token_error, max_ttft_error_ms),
        ("TTFT", result.ttft_error, None),
        ("every token stamp", result.event_error, max_event_error_ms),
        ("lateness", result.lateness, max_lateness_ms),
        ("connect time", result.connect, None),
    )
    exceeded = [
        f"{name} P99 {error.p99_ms:.3f} ms > {bound:g} ms"
        for name, error, bound in bounds
        if bound is not None and not error.p99_ms <= bound
    ]
    if result.ok != result.requests:
        exceeded.append(f"{result.requests - result.ok} of {result.requests} requests failed")
    if as_json:
        figures = msgspec.to_builtins(result) | {"exceeded": exceeded}
        click.echo(msgspec.json.format(msgspec.json.encode(figures)).decode())
    else:
        _print(result, bounds, exceeded)
    if exceeded:
        sys.exit(EXCEEDED)


def _print(
    result: Calibration, bounds: tuple[tuple[str, Error, float | None], ...], exceeded: list[str]
) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="errors of the instrument (ms)", title_justify="left")
    for column in ("", "p50", "p99", "p99.9", "max", "bound (p99)"):
        table.add_column(column, justify="left" if not column else "right")
    for name, error, bound in bounds:
        figures = (error.p50_ms, error.p99_ms, error.p999_ms, error.max_ms)
        table.add_row(name, *(f"{value:.3f}" for value in figures), "" if bound is None else f"{bound:g}")
    console = Console()
    console.print(table)
    stamps = "kernel" if result.kernel_stamps else "user-space"
    console.print(
        f"{result.ok} of {result.requests} requests, {result.events} tokens, {stamps} stamps, "
        f"{result.merged_reads} merged reads; {result.rate_s:.1f} requests/s of "
        f"{result.asked_rate_s or 0:.1f} asked, {result.cpu_us_per_event:.1f} µs of CPU per event, "
        f"{result.peak_rss_mib:.0f} MiB; first request {result.to_first_request_s:.2f} s after the command, "
        f"exit {result.to_exit_s:.2f} s after the last answer"
    )
    for line in exceeded:
        console.print(f"[red]exceeded:[/red] {line}")
    if not exceeded:
        console.print("within bounds")
