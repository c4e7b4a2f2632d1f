"""The report on a terminal, as benchstat would print it: values, change, interval, p, `~`."""

from __future__ import annotations

from typing import Final

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from reports import numbers
from reports.analysis import Analysis
from reports.answer import answer
from reports.comparison import Comparison, Figure, Row, Verdict
from reports.row_text import mark
from reports.run import Run

_WIDEST: Final = 3
"""More cells than this are rows of a short table; all figures of them need a wide terminal."""
_NARROW: Final = 100
"""Terminals of fewer columns get the changes without their intervals."""
_SHORT: Final = (
    "ttft_p50",
    "ttft_p90",
    "ttft_p99",
    "tpot_p50",
    "handoff_gap_p99",
    "relay_token_share",
    "wan_kv_bytes",
    "request_goodput",
    "error_rate",
)
_STYLES: Final = {
    Verdict.BETTER: "green",
    Verdict.WORSE: "red",
    Verdict.DIFFERENT: "cyan",
    Verdict.NOT_SIGNIFICANT: "dim",
    Verdict.UNDEFINED: "dim",
}


def print_report(run: Run, console: Console) -> None:
    """Print a run's cells side by side, the first as base."""
    print_analysis(Analysis.of_run(run), console)


def print_analysis(analysis: Analysis, console: Console, *, everything: bool = False) -> None:
    """Print the answer, the table (every figure with `everything`), and the verdict on validity."""
    _print_head(analysis, console)
    told = answer(analysis)
    if told is not None:
        console.print()
        console.print(Text(told.headline, style="bold green" if told.winner else "bold"))
        for line in told.details:
            console.print(f"  {line}", highlight=False)
    console.print()
    if len(analysis.sides) > _WIDEST:
        console.print(_by_cell(analysis))
    if len(analysis.sides) <= _WIDEST or everything:
        console.print(_table(analysis, everything=everything, narrow=console.width < _NARROW))
    _print_notes(analysis, console)


def _print_head(analysis: Analysis, console: Console) -> None:
    for run, verdict in zip(analysis.runs, analysis.validity, strict=True):
        mark = Text("VALID", style="green") if verdict.valid else Text("INVALID", style="bold red")
        kind = " · simulated" if run.info.simulated else " · emulated engine" if run.info.emulated else ""
        console.print(Text.assemble((f"{run.info.name}", "bold"), f"  {run.path}{kind}  ", mark))
        for reason in verdict.reasons:
            console.print(Text(f"  ✗ {reason}", style="red"))


def _table(analysis: Analysis, *, everything: bool, narrow: bool) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    table.add_column("", no_wrap=True)
    for index, side in enumerate(analysis.sides):
        repeats = len({s.run.path for s in analysis.sides}) > 1
        name = f"{side.run.path.name}:{side.cell.name}" if repeats else side.cell.name
        size = len(side.frame)
        reps = len(side.frame.columns.reps)
        head = f"{name}\n[dim]n = {size}, {reps} rep{'s' if reps != 1 else ''}[/]"
        table.add_column(head, justify="right")
        if index:
            table.add_column("change" if narrow else "change\n[dim]95 % interval[/]", justify="right")
            table.add_column("\n[dim]adj. p[/]", justify="right")
    section = ""
    for index, figure in enumerate(analysis.figures[0]):
        row = [side[index] for side in analysis.figures]
        if not _shown(row, everything=everything):
            continue
        begun = figure.metric.name
        cells = [_label(figure), _value(row[0])]
        for comparison, other in zip(analysis.comparisons, row[1:], strict=True):
            cells += [
                _value(other),
                _change(comparison.rows[index], narrow=narrow),
                _p(comparison.rows[index]),
            ]
        if section and begun.split("_")[0] != section.split("_", maxsplit=1)[0] and everything:
            table.add_section()
        section = begun
        table.add_row(*cells)
    return table


def _by_cell(analysis: Analysis) -> Table:
    """One row a cell: its values and, below, the changes against the base."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), collapse_padding=True)
    table.add_column("", no_wrap=True)
    places = {figure.key: index for index, figure in enumerate(analysis.figures[0])}
    # Unknown or nought everywhere, such as the share of errors, is not worth its width.
    keys = [k for k in _SHORT if any(side[places[k]].estimate.value for side in analysis.figures)]
    for key in keys:
        table.add_column(key.replace("_", "\n"), justify="right", min_width=6)
    for index, side in enumerate(analysis.sides):
        values = [_value(analysis.figures[index][places[key]]) for key in keys]
        if index:
            changes = [_short_change(analysis.comparisons[index - 1].rows[places[key]]) for key in keys]
            values = [
                Text.assemble(value, "\n", change) for value, change in zip(values, changes, strict=True)
            ]
        table.add_row(f"{side.cell.name}\n[dim]n = {len(side.frame)}[/]", *values)
    return table


def _short_change(row: Row) -> Text:
    if row.change is None:
        return Text("")
    return Text(mark(row), style=_STYLES[row.verdict])


def _shown(row: list[Figure], *, everything: bool) -> bool:
    known = any(figure.estimate.value is not None for figure in row)
    return known and (everything or row[0].headline)


def _label(figure: Figure) -> Text:
    name = figure.key if figure.statistic else figure.metric.name
    return Text(name)


def _value(figure: Figure) -> Text:
    text = Text(numbers.value(figure.estimate.value, figure.metric.unit))
    if figure.few_beyond and figure.estimate.value is not None:
        text.append("*", style="yellow")
    return text


def _change(row: Row, *, narrow: bool) -> Text:
    text = Text(mark(row), style=_STYLES[row.verdict])
    if narrow:
        return text
    around = numbers.change_interval(row.change, row.base.metric)
    if row.verdict is Verdict.NOT_SIGNIFICANT:
        seen = numbers.detectable(row.change, row.base.estimate, row.base.metric)
        return text.append(f" (seen if {seen})", style="dim") if seen else text
    return text.append(f"  {around}", style="dim") if around else text


def _p(row: Row) -> Text:
    if row.change is None or row.change.absolute == 0:
        return Text("")
    return Text(numbers.p_value(row.adjusted_p).removeprefix("p = ").removeprefix("p "), style="dim")


def _print_notes(analysis: Analysis, console: Console) -> None:
    notes = []
    if any(row.verdict is Verdict.NOT_SIGNIFICANT for c in analysis.comparisons for row in c.rows):
        notes.append('~  not significant; "seen if" is the smallest difference found 8 times in 10')
    if any(f.few_beyond and f.headline and f.estimate.value is not None for s in analysis.figures for f in s):
        notes.append("*  fewer than ten requests lie beyond this percentile: little more than the maximum")
    notes += [_agreed(c) for c in analysis.comparisons if c.agreement]
    notes += [f"!  compared although {line}" for line in analysis.waived]
    cautions = [line for c in analysis.comparisons for line in c.cautions]
    cautions += [line for verdict in analysis.validity for line in verdict.cautions]
    notes += [f"!  {line}" for line in dict.fromkeys(cautions)]
    for note in notes:
        console.print(Text(note, style="yellow" if note.startswith("!") else "dim"))


def _agreed(comparison: Comparison) -> str:
    assert comparison.agreement is not None
    same, both = comparison.agreement
    return f"=  {comparison.other.cell.name}: {same} of {both} answers have the same tokens as the base's"
