"""A row of a comparison in words."""

from __future__ import annotations

from reports import numbers
from reports.comparison import Row, Verdict


def mark(row: Row) -> str:
    """The change as it is printed: `~` in place of a figure that is not significant."""
    if row.verdict is Verdict.NOT_SIGNIFICANT:
        return "~"
    return numbers.change(row.change, row.base.metric)


def certainty(row: Row) -> str:
    if row.change is None or row.change.absolute == 0:
        return ""
    if row.verdict is Verdict.NOT_SIGNIFICANT:
        seen = numbers.detectable(row.change, row.base.estimate, row.base.metric)
        return f"seen if {seen}" if seen else numbers.p_value(row.adjusted_p)
    return numbers.p_value(row.adjusted_p)


def css_class(row: Row) -> str:
    match row.verdict:
        case Verdict.NOT_SIGNIFICANT:
            return "same"
        case Verdict.UNDEFINED:
            return "unknown"
        case _:
            return row.verdict.value
