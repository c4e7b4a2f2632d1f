"""Numbers as people read them."""

from __future__ import annotations

import math
from typing import Final

from reports.metric import AnyMetric, Share
from reports.stats.change import Change, Estimate

_MINUS: Final = "\N{MINUS SIGN}"
_SPACE: Final = "\N{NO-BREAK SPACE}"
NONE: Final = "\N{EN DASH}"
_BYTES: Final = ("B", "kB", "MB", "GB", "TB")


def value(number: float | None, unit: str) -> str:
    """A value with its unit: three significant digits, larger units where they read better."""
    if number is None:
        return NONE
    if math.isinf(number):
        return "∞"
    if unit == "1":
        return f"{_digits(100 * number)}{_SPACE}%"
    if unit == "ms":
        return (
            f"{_digits(number / 1000)}{_SPACE}s" if abs(number) >= 10_000 else f"{_digits(number)}{_SPACE}ms"
        )
    if unit == "bytes":
        step = 0 if abs(number) < 1 else min(int(math.log10(abs(number)) / 3), len(_BYTES) - 1)
        return f"{_digits(number / 1000**step)}{_SPACE}{_BYTES[step]}"
    return f"{_digits(number)}{_SPACE}{unit}".rstrip()


def interval(estimate: Estimate, metric: AnyMetric) -> str:
    """The 95 % interval; empty where unknown."""
    if estimate.value is None or estimate.low is None or estimate.high is None:
        return ""
    ends = possible(estimate.value, estimate.low, estimate.high, bounded=is_bounded(metric))
    low, high = (value(end, metric.unit) for end in ends)
    if low.rpartition(_SPACE)[2] == high.rpartition(_SPACE)[2]:
        low = low.rpartition(_SPACE)[0]
    return f"{low} … {high}"


def possible(point: float, low: float, high: float, *, bounded: bool) -> tuple[float, float]:
    """An interval cut to what can be: where repetitions widen it, it may reach beyond. For the eye only."""
    return max(low, 0.0) if point >= 0 else low, min(high, 1.0) if bounded else high


def is_bounded(metric: AnyMetric) -> bool:
    """Whether the metric is a share, 0 to 1."""
    return isinstance(metric, Share) and metric.unit == "1"


def percent(share: float | None) -> str:
    """A relative change with its sign."""
    if share is None:
        return NONE
    if math.isinf(share):
        return "+∞" if share > 0 else f"{_MINUS}∞"
    size = 100 * abs(share)
    if size >= 999.5:
        return f"\N{MULTIPLICATION SIGN}{_digits(1 + share)}"
    text = f"{size:.0f}" if size >= 99.5 else f"{size:.1f}"
    if float(text) == 0:
        return f"0.0{_SPACE}%"
    return f"{'+' if share > 0 else _MINUS}{text}{_SPACE}%"


def change(found: Change | None, metric: AnyMetric) -> str:
    """A change: relative where the base is not 0, else absolute."""
    if found is None:
        return NONE
    if found.relative is not None:
        return percent(found.relative)
    if found.absolute == 0:
        return f"0.0{_SPACE}%"
    sign = "+" if found.absolute > 0 else _MINUS
    return sign + value(abs(found.absolute), metric.unit)


def change_interval(found: Change | None, metric: AnyMetric) -> str:
    """The change's 95 % interval; empty where unknown."""
    if found is None:
        return ""
    if found.relative_low is not None and found.relative_high is not None:
        return f"{percent(found.relative_low)} … {percent(found.relative_high)}"
    if found.relative is None and found.low is not None and found.high is not None and found.absolute:
        return f"{value(found.low, metric.unit)} … {value(found.high, metric.unit)}"
    return ""


def p_value(p: float | None) -> str:
    if p is None:
        return ""
    return "p < .001" if p < 0.001 else f"p = {p:.3f}".replace("0.", ".")


def detectable(found: Change | None, base: Estimate, metric: AnyMetric) -> str:
    """The smallest difference that would have been found; empty where unknown."""
    if found is None or found.detectable is None:
        return ""
    if base.value:
        return f"≥{_SPACE}{_digits(100 * found.detectable / abs(base.value))}{_SPACE}%"
    return f"≥{_SPACE}{value(found.detectable, metric.unit)}"


def _digits(number: float) -> str:
    """Three significant digits without an exponent."""
    if number == 0:
        return "0"
    size = abs(number)
    places = max(0, 2 - math.floor(math.log10(size) + 1e-12)) if size >= 1e-6 else 2
    if size >= 999.5:
        return f"{number:,.0f}".replace(",", "\N{NARROW NO-BREAK SPACE}").replace("-", _MINUS)
    return f"{number:.{min(places, 6)}f}".replace("-", _MINUS)
