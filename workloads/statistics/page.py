"""The figures of a trace as one HTML page that needs nothing from the network."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from workloads.statistics.hits import BAND_NAMES, bands, hit_rates
from workloads.statistics.summary import sections
from workloads.statistics.trace_statistics import TraceStatistics, infinite_hit_tokens
from workloads.trace import Trigger

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from workloads.trace import Trace

_TIME_BINS: Final = 60
_POINTS: Final = 400  # of a curve: more would not be seen
_COLOURS: Final = ("#b2182b", "#ef8a62", "#fddbc7", "#d1e5f0", "#92c5de", "#4393c3", "#2166ac")
_STYLE: Final = """
body { font: 15px/1.45 system-ui, sans-serif; max-width: 1100px; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.5rem } h2 { font-size: 1.15rem; margin-top: 2rem }
table { border-collapse: collapse; margin: .5rem 0 1rem }
td, th { padding: .15rem .8rem .15rem 0; text-align: right }
td:first-child, th:first-child { text-align: left } th { border-bottom: 1px solid #999; font-weight: 600 }
.note { color: #666 } .warning { color: #8a4b00 } .plot { margin: 1rem 0 }
"""


def page(trace: Trace, statistics: TraceStatistics, *, warm_prefix: bool = False) -> str:
    """HTML of the tables and the plots."""
    title = html.escape(f"Trace {statistics.name}")
    parts = [
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>",
        f"<title>{title}</title><style>{_STYLE}</style><script>{get_plotlyjs()}</script></head><body>",
        f"<h1>{title}</h1>",
        *(f"<p class='warning'>{html.escape(line)}</p>" for line in statistics.warnings),
    ]
    for section in sections(statistics):
        parts.append(f"<h2>{html.escape(section.title)}</h2>")
        parts.append(_table(section.head, section.rows))
        parts += [f"<p class='note'>{html.escape(note)}</p>" for note in section.notes]
    for figure in _figures(trace, statistics, warm_prefix=warm_prefix):
        parts.append(
            "<div class='plot'>" + figure.to_html(full_html=False, include_plotlyjs=False) + "</div>"
        )
    parts.append("</body></html>")
    return "\n".join(parts)


def _table(head: tuple[str, ...], rows: tuple[tuple[str, ...], ...]) -> str:
    cells = "".join(f"<th>{html.escape(cell)}</th>" for cell in head)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<table><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table>"


def _figures(trace: Trace, statistics: TraceStatistics, *, warm_prefix: bool) -> list[Any]:
    figures: list[Any] = []
    t = trace.turns
    if trace.header.prefix_known:
        hit = infinite_hit_tokens(trace, warm_prefix=warm_prefix)
        rates = hit_rates(hit, t.input_tokens)
        figures += [_band_bars(statistics), _bands_over_time(trace, rates), _miss_mass(t.input_tokens - hit)]
    figures.append(_lengths(trace))
    gaps = _gaps(trace)
    if gaps is not None:
        figures.append(gaps)
    if statistics.session_arrivals is not None:
        figures.append(_arrivals(trace))
    return figures


def _band_bars(statistics: TraceStatistics) -> Any:
    figure = _figure("Hit rate of requests: the seven bands", "hit rate", "share of requests (%)")
    for hits in statistics.hits:
        figure.add_bar(x=BAND_NAMES, y=[100 * s for s in hits.band_shares], name=hits.cache)
    if statistics.targets is not None and statistics.targets.band_shares is not None:
        figure.add_bar(x=BAND_NAMES, y=[100 * s for s in statistics.targets.band_shares], name="target")
    return figure


def _bands_over_time(trace: Trace, rates: NDArray[np.float64]) -> Any:
    at = trace.turns.arrival_ns / 1e9
    figure = _figure("Bands over trace time", "time from the trace's start (s)", "share of requests (%)")
    edges = np.linspace(0, max(float(at.max()), 1e-9), _TIME_BINS + 1)
    slot = np.clip(np.searchsorted(edges, at, side="right") - 1, 0, _TIME_BINS - 1)
    counts = np.zeros((_TIME_BINS, len(BAND_NAMES)))
    np.add.at(counts, (slot, bands(rates)), 1)
    shares = 100 * counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    for band, name in enumerate(BAND_NAMES):
        figure.add_bar(x=edges[:-1], y=shares[:, band], name=name, marker_color=_COLOURS[band])
    figure.update_layout(barmode="stack", bargap=0)
    return figure


def _miss_mass(missed: NDArray[np.int64]) -> Any:
    figure = _figure(
        "Where the missed tokens lie",
        "share of requests, those that miss most first (%)",
        "of all missed tokens (%)",
    )
    descending = np.sort(missed)[::-1]
    pick = _picked(len(descending))
    share = 100 * np.cumsum(descending)[pick] / max(int(descending.sum()), 1)
    figure.add_scatter(x=100 * (pick + 1) / len(descending), y=share, mode="lines", name="missed tokens")
    figure.update_xaxes(type="log")
    return figure


def _lengths(trace: Trace) -> Any:
    figure = _figure("Lengths", "tokens", "share of requests at or below (%)")
    for name, values in (("input", trace.turns.input_tokens), ("output", trace.turns.output_tokens)):
        _cumulative(figure, name, np.maximum(values, 1))
    figure.update_xaxes(type="log")
    return figure


def _gaps(trace: Trace) -> Any:
    t = trace.turns
    figure = _figure("Waits before turns", "seconds (zeros at 1 ms)", "share at or below (%)")
    follows = np.diff(t.after_start) > 0
    drawn = False
    for trigger, name in (
        (Trigger.TOOL, "tool"),
        (Trigger.USER, "user"),
        (Trigger.UNKNOWN, "trigger unknown"),
    ):
        values = t.delay_ns[follows & (t.trigger == trigger)] / 1e9
        if len(values):
            _cumulative(figure, name, np.maximum(values, 1e-3))
            drawn = True
    figure.update_xaxes(type="log")
    return figure if drawn else None


def _arrivals(trace: Trace) -> Any:
    figure = _figure("Session arrivals", "time from the trace's start (s)", "sessions per bin")
    at = trace.session_start_ns / 1e9
    counts, edges = np.histogram(at, bins=_TIME_BINS)
    figure.add_bar(x=edges[:-1], y=counts, name="sessions")
    figure.update_layout(bargap=0)
    return figure


def _cumulative(figure: Any, name: str, values: NDArray[Any]) -> None:
    ordered = np.sort(values)
    pick = _picked(len(ordered))
    figure.add_scatter(x=ordered[pick], y=100 * (pick + 1) / len(ordered), mode="lines", name=name)


def _picked(count: int) -> NDArray[np.int64]:
    """Indices that draw a curve of `count` points with few: dense at both ends."""
    if count <= 2 * _POINTS:
        return np.arange(count)
    low = np.geomspace(1, count, _POINTS).astype(np.int64) - 1
    return np.unique(np.concatenate((low, count - 1 - low)))


def _figure(title: str, x: str, y: str) -> Any:
    figure = go.Figure()
    figure.update_layout(
        title=title,
        xaxis_title=x,
        yaxis_title=y,
        template="plotly_white",
        height=380,
        margin={"l": 60, "r": 20, "t": 50, "b": 50},
    )
    return figure
