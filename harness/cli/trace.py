"""`pddbench trace …`: inspect, synthesise and convert traces."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable

    from workloads.readers.options import ReadOptions
    from workloads.trace import Trace

_FILE = click.Path(dir_okay=False, path_type=Path)


@click.group("trace")
def command() -> None:
    """Inspect, synthesise and convert traces.

    A trace is a file or directory in any known format (`pddbench trace formats`), or preset:NAME for a
    synthetic one (`pddbench trace presets`).
    """


def _reading(function: Callable[..., None]) -> Callable[..., None]:
    """Options of every command that reads a trace."""
    options = (
        click.option("--format", "format_", help="Format of the trace; told by its first bytes otherwise."),
        click.option(
            "--block-size", type=click.IntRange(min=1), help="Tokens a block id stands for, where open."
        ),
        click.option(
            "--rows",
            type=click.Choice(["cumulative", "delta"]),
            help="Whether a row's input length is the whole prompt or what the turn adds, where open.",
        ),
        click.option(
            "--keep-forks", is_flag=True, help="Keep sessions the file marks as duplicates of a fork."
        ),
        click.option("--repair", is_flag=True, help="Mend known defects and say what was changed."),
        click.option("--seed", type=int, default=0, show_default=True, help="Seed of everything random."),
    )
    for option in reversed(options):
        function = option(function)
    return function


@command.command("stats")
@click.argument("source")
@_reading
@click.option(
    "--lru",
    type=click.IntRange(min=0),
    multiple=True,
    metavar="TOKENS",
    help="Also an LRU cache. Repeatable.",
)
@click.option(
    "--ttl",
    type=click.FloatRange(min=0),
    multiple=True,
    metavar="SECONDS",
    help="Also a TTL cache. Repeatable.",
)
@click.option(
    "--warm-prefix", is_flag=True, help="Take every session's tools and system prompt as always cached."
)
@click.option(
    "--share-heads",
    is_flag=True,
    help="Take tools and system prompts of equal length as shared between sessions.",
)
@click.option(
    "--long-input",
    type=click.IntRange(min=1),
    default=8192,
    show_default=True,
    help="Ultra-short class: input at least.",
)
@click.option(
    "--ultra-short",
    type=click.IntRange(min=0),
    default=31,
    show_default=True,
    help="Ultra-short class: output at most.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
@click.option("--html", "html_file", type=_FILE, help="Also write a page with tables and plots.")
def stats(source: str, *, as_json: bool, html_file: Path | None, **given: Any) -> None:
    """Print the figures of a trace: hits under several caches, bands, lengths, waits, arrivals, defects.

    \b
    Examples:
      pddbench trace stats traces/weka
      pddbench trace stats traces/weka --ttl 120 --warm-prefix --lru 2000000
      pddbench trace stats preset:report --html report.html
    """
    from workloads.statistics.trace_statistics import Questions, trace_statistics

    trace = _opened(source, given)
    if given["share_heads"]:
        from workloads.transform.heads import share_heads

        trace = share_heads(trace)
    questions = Questions(
        lru_tokens=given["lru"],
        ttl_s=given["ttl"],
        warm_prefix=given["warm_prefix"],
        long_input_tokens=given["long_input"],
        ultra_short_tokens=given["ultra_short"],
    )
    figures = trace_statistics(trace, questions)
    if html_file is not None:
        from workloads.statistics.page import page

        html_file.write_text(page(trace, figures, warm_prefix=given["warm_prefix"]), encoding="utf-8")
    if as_json:
        import msgspec

        click.echo(msgspec.json.format(msgspec.json.encode(figures)))
        return
    _print(figures)
    if html_file is not None:
        click.echo(f"wrote {html_file}")


@command.command("synth")
@click.option("--preset", "preset_name", help="Named parameters; see `pddbench trace presets`.")
@click.option("--parameters", "file", type=_FILE, help="TOML file of parameters, instead of a preset.")
@click.option(
    "-n", "--requests", type=click.IntRange(min=1), help="Requests to make; the preset's sessions otherwise."
)
@click.option(
    "--sessions", type=click.IntRange(min=1), help="Conversations to make, instead of a number of requests."
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed; equal seeds give equal traces.")
@click.option(
    "--mean", type=click.FloatRange(0, 1), help="Skew: mean hit rate, with --above-95 and --below-50."
)
@click.option("--above-95", type=click.FloatRange(0, 1), help="Skew: share of requests that hit above 95 %.")
@click.option("--below-50", type=click.FloatRange(0, 1), help="Skew: share of requests that hit below 50 %.")
@click.option("--bands", metavar="S,S,S,S,S,S,S", help="Skew: shares of the seven bands, 0-90 % to 99-100 %.")
@click.option(
    "--cv", type=click.FloatRange(min=0, min_open=True), help="Coefficient of variation of session arrivals."
)
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), help="Session arrivals per second.")
@click.option("-o", "--output", type=_FILE, required=True, help="Native trace file to write (.parquet).")
def synth(preset_name: str | None, file: Path | None, output: Path, **given: Any) -> None:
    """Generate an agentic trace, solve for the skew asked for, and show target against achieved.

    \b
    Examples:
      pddbench trace synth --preset report -n 50000 --seed 1 -o t.parquet
      pddbench trace synth --preset report --mean .9 --above-95 .8 --below-50 .04 -o t.parquet
      pddbench trace synth --preset weka-like --bands .2,.1,.1,.1,.1,.2,.2 -o t.parquet
    """
    from workloads.generator.presets import parameters_from, preset
    from workloads.generator.request import PART_REQUESTS, asked, synthesise, synthesise_parts
    from workloads.statistics.trace_statistics import trace_statistics
    from workloads.writers import native

    if (preset_name is None) == (file is None):
        raise click.UsageError("name either a --preset or a file of --parameters")
    parameters = preset(preset_name) if preset_name is not None else parameters_from(_given(file))
    parameters = asked(
        parameters,
        sessions=given["sessions"],
        mean=given["mean"],
        above_95=given["above_95"],
        below_50=given["below_50"],
        bands=_shares(given["bands"]),
        cv=given["cv"],
        rate_per_s=given["rate"],
    )
    name = preset_name or _given(file).stem
    requests = given["requests"]
    if requests is not None and requests > 2 * PART_REQUESTS:
        parts = synthesise_parts(parameters, name=name, seed=given["seed"], requests=requests)
        written = native.write_parts(parts, output)
        click.echo(f"wrote {output}: {written:,} requests; see `pddbench trace stats`")
        return
    trace = synthesise(parameters, name=name, seed=given["seed"], requests=requests)
    native.write(trace, output)
    _print(trace_statistics(trace), only=("Contents", "Prefix hits", "Bands", "Target against achieved"))
    click.echo(f"wrote {output}: {len(trace):,} requests in {len(trace.session_ids):,} sessions")


@command.command("convert")
@click.argument("sources", nargs=-1, required=True)
@_reading
@click.option(
    "--to", "to", help="Format to write; by the file's ending otherwise (.parquet native, .jsonl mooncake)."
)
@click.option(
    "--allow-loss", is_flag=True, help="Write even what the format cannot say in full, and say what went."
)
@click.option(
    "--share-heads", is_flag=True, help="Make tools and system prompts of equal length common to sessions."
)
@click.option(
    "--sample", type=click.IntRange(min=1), metavar="SESSIONS", help="Keep so many, stratified by hit band."
)
@click.option(
    "--rate",
    type=click.FloatRange(min=0, min_open=True),
    metavar="PER_S",
    help="Session arrivals per second.",
)
@click.option(
    "--cv", type=click.FloatRange(min=0, min_open=True), help="With --rate: a new gamma process of this CV."
)
@click.option(
    "--loop", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS", help="Repeat with fresh ids."
)
@click.option(
    "--gap-cap", type=click.FloatRange(min=0), metavar="SECONDS", help="Cut waits to this; recorded."
)
@click.option(
    "--time-scale", type=click.FloatRange(min=0, min_open=True), default=1.0, help="Factor on all times."
)
@click.option(
    "--token-scale", type=click.FloatRange(min=0, min_open=True), default=1.0, help="Factor on all lengths."
)
@click.option("-o", "--output", type=_FILE, required=True, help="File to write.")
def convert(
    sources: tuple[str, ...], *, output: Path, to: str | None, allow_loss: bool, **given: Any
) -> None:
    """Read traces, change them, and write one in another format.

    Several SOURCES are merged. Changes are made in the order of the options above: repair, shared heads,
    sample, arrivals (--rate), loop, gap cap, time scale, token scale. A format that cannot say all that the
    trace holds refuses, and names what would be lost.

    \b
    Examples:
      pddbench trace convert traces/weka -o weka.parquet
      pddbench trace convert weka.parquet --to mooncake -o weka.jsonl
      pddbench trace convert traces/weka --repair --rate 0.1 --cv 2 --token-scale 0.0625 -o small.parquet
    """
    from workloads.convert import format_of, write_trace
    from workloads.transform.steps import Steps, changed

    if any(output.exists() and Path(s).exists() and output.samefile(s) for s in sources):
        raise click.BadParameter("is also what is read; name another file", param_hint="--output")
    chosen = to or format_of(output)
    steps = Steps(
        share_heads=given["share_heads"],
        sample=given["sample"],
        rate_per_s=given["rate"],
        cv=given["cv"],
        loop_s=given["loop"],
        gap_cap_s=given["gap_cap"],
        time_scale=given["time_scale"],
        token_scale=given["token_scale"],
        seed=given["seed"],
    )
    trace = changed([_opened(source, given) for source in sources], steps)
    lost = write_trace(trace, output, format=chosen, allow_loss=allow_loss)
    for line in (*trace.header.warnings, *(f"lost: {what}" for what in lost)):
        click.echo(f"note: {line}", err=True)
    click.echo(f"wrote {output} ({chosen}): {len(trace):,} requests in {len(trace.session_ids):,} sessions")


@command.command("presets")
def presets() -> None:
    """List the generator's presets."""
    from workloads.generator.presets import PRESETS, preset

    for name in PRESETS:
        click.echo(f"{name:15} {preset(name).about}")


@command.command("formats")
def formats() -> None:
    """List the trace formats that can be read and written."""
    from workloads.convert import WRITERS
    from workloads.formats import READERS, reader

    for name in READERS:
        first = (reader(name).__doc__ or "").split("\n", 1)[0]
        click.echo(f"{name:10} {'reads, writes' if name in WRITERS else 'reads':14} {first}")


def _given(file: Path | None) -> Path:
    assert file is not None
    return file


def _shares(text: str | None) -> tuple[float, ...] | None:
    if text is None:
        return None
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise click.BadParameter("must be seven numbers with commas between", param_hint="--bands") from None


def _options(given: dict[str, Any]) -> ReadOptions:
    from workloads.readers.options import ReadOptions, Rows

    return ReadOptions(
        block_size=given["block_size"],
        rows=None if given["rows"] is None else Rows(given["rows"]),
        keep_forks=given["keep_forks"],
        seed=given["seed"],
    )


def _opened(source: str, given: dict[str, Any]) -> Trace:
    from workloads.formats import open_trace

    return open_trace(
        source, format=given["format_"], seed=given["seed"], repair=given["repair"], options=_options(given)
    )


def _print(figures: Any, only: tuple[str, ...] | None = None) -> None:
    from rich.console import Console
    from rich.table import Table

    from workloads.statistics.summary import sections

    # A file or a pipe has no width: never cut a figure there.
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 160)
    for line in figures.warnings:
        console.print(f"note: {line}", markup=False)
    for section in sections(figures):
        if only is not None and section.title not in only:
            continue
        console.print(f"\n[bold]{section.title}[/bold]")
        if section.rows:
            table = Table(box=None, pad_edge=False, show_header=any(section.head))
            for at, column in enumerate(section.head):
                table.add_column(column, justify="left" if at == 0 else "right", no_wrap=True)
            for row in section.rows:
                table.add_row(*row)
            console.print(table)
        for note in section.notes:
            console.print(note, style="dim", markup=False)
