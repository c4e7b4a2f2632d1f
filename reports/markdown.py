"""The comparison as GitHub-flavoured Markdown: for pull requests, job summaries and notebooks."""

from __future__ import annotations

from reports import numbers
from reports.analysis import Analysis
from reports.answer import answer
from reports.comparison import Row, Verdict
from reports.row_text import mark


def markdown(analysis: Analysis, *, everything: bool = False) -> str:
    """One document: answer, validity, a table for every cell against the base."""
    lines = [f"## {' / '.join(run.info.name for run in analysis.runs)}", ""]
    told = answer(analysis)
    if told is not None:
        lines += [f"**{told.headline}** {' '.join(told.details)}", ""]
    for run, verdict in zip(analysis.runs, analysis.validity, strict=True):
        lines += [f"- `{run.path.name}`: {'valid' if verdict.valid else '**invalid**'}"]
        lines += [f"  - {reason}" for reason in verdict.reasons]
        lines += [f"  - caution: {caution}" for caution in verdict.cautions]
    lines += [f"- compared although {line}" for line in analysis.waived]
    if analysis.comparisons:
        for comparison in analysis.comparisons:
            base, other = comparison.base, comparison.other
            lines += [
                "",
                f"### {other.label} against {base.label}",
                "",
                f"n = {len(base.frame)} / {len(other.frame)}, {'' if comparison.paired else 'un'}paired",
                "",
                f"| figure | {base.cell.name} | {other.cell.name} | change | 95 % interval | adj. p |",
                "|---|---:|---:|---:|---:|---:|",
            ]
            lines += [_row(row) for row in comparison.rows if _shown(row, everything=everything)]
        lines += ["", "`~`: not significant. `*`: fewer than ten requests beyond this percentile."]
    else:
        lines += ["", "| figure | value | 95 % interval |", "|---|---:|---:|"]
        for figure in analysis.figures[0]:
            if figure.estimate.value is not None and (figure.headline or everything):
                unit = figure.metric.unit
                shown = numbers.value(figure.estimate.value, unit)
                lines.append(
                    f"| {figure.key} | {shown} | {numbers.interval(figure.estimate, figure.metric)} |"
                )
    return "\n".join(lines) + "\n"


def _shown(row: Row, *, everything: bool) -> bool:
    known = row.base.estimate.value is not None or row.other.estimate.value is not None
    return known and (row.base.headline or everything)


def _row(row: Row) -> str:
    unit = row.base.metric.unit
    values = [
        numbers.value(figure.estimate.value, unit) + ("*" if figure.few_beyond else "")
        for figure in (row.base, row.other)
    ]
    change = mark(row)
    if row.verdict in {Verdict.BETTER, Verdict.WORSE}:
        change = f"**{change}**"
    around = numbers.change_interval(row.change, row.base.metric)
    p = numbers.p_value(row.adjusted_p).removeprefix("p = ").removeprefix("p ")
    return f"| {row.base.key} | {values[0]} | {values[1]} | {change} | {around} | {p} |"
