"""Where the time of single requests went: the fastest, the median, the P99 and the worst of each mode."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute

from reports.analysis import Analysis
from reports.answer import answer
from reports.chart import Chart, axis, layout, names
from reports.metrics.ttft import METRIC
from reports.sides import Side

_MOST_CELLS: Final = 3
_MOST_DECISIONS: Final = 60
pc: Final[Any] = pyarrow.compute

# Segment: colour, whether it lies beside the stream (KV on its way) rather than in it.
_SEGMENTS: Final = {
    "queue": ("#c3c9d3", False),
    "prefill": ("#56b4e9", False),
    "until first token": ("#e6e9ee", False),
    "relay tokens (RLD)": ("#e69f00", False),
    "switch": ("#d55e00", False),
    "main tokens (MD)": ("#0072b2", False),
    "KV to RLD": ("#cc79a7", True),
    "KV to MD over the WAN": ("#009e73", True),
}


@dataclass(frozen=True, slots=True)
class _Picked:
    side: Side
    label: str
    row: int
    """Place in the side's frame."""


def draw(analysis: Analysis) -> Chart | None:
    picked = _pick(analysis)
    if not picked:
        return None
    picked.reverse()  # plotly counts rows from below
    bars: dict[str, dict[str, list[Any]]] = {
        name: {"x": [], "base": [], "y": [], "width": [], "request": []} for name in _SEGMENTS
    }
    decisions: dict[str, list[dict[str, Any]]] = {}
    requests = []
    for place, one in enumerate(picked):
        request = _request_id(one)
        requests.append(request)
        decisions[request] = _decisions(one.side, request, one.row)
        for name, start, end in _segments(one):
            if np.isnan(start) or np.isnan(end) or end <= start:
                continue
            beside = _SEGMENTS[name][1]
            bar = bars[name]
            bar["base"].append(round(start, 3))
            bar["x"].append(round(end - start, 3))
            bar["y"].append(place - 0.31 if beside else place + 0.08)
            bar["width"].append(0.16 if beside else 0.5)
            bar["request"].append(request)
    traces = [
        {
            "type": "bar",
            "orientation": "h",
            "name": name,
            "base": bar["base"],
            "x": bar["x"],
            "y": bar["y"],
            "width": bar["width"],
            "customdata": bar["request"],
            "marker": {"color": _SEGMENTS[name][0], "line": {"width": 0}},
            "hovertemplate": "from %{base:.1f} ms for %{x:.1f} ms<extra>" + name + "</extra>",
        }
        for name, bar in bars.items()
        if bar["x"]
    ]
    return Chart(
        "waterfall",
        "Single requests",
        "The base's fastest, median, P99 and worst request by TTFT, the same request in other modes, and "
        "their own worst, from the send. KV travels beside the stream: with the relay, tokens flow while it "
        "is on the WAN. Click a bar for the decisions taken for that request. Router and client instants "
        "agree within their clocks' stated errors.",
        {
            "data": traces,
            "layout": layout(
                barmode="overlay",
                xaxis=axis("ms since the request was sent", rangemode="tozero"),
                yaxis=axis(
                    "",
                    tickvals=list(range(len(picked))),
                    ticktext=[one.label for one in picked],
                    range=[-0.6, len(picked) - 0.4],
                    showgrid=False,
                ),
            ),
        },
        height=46 * len(picked) + 140,
        extra={"decisions": decisions},
    )


def _pick(analysis: Analysis) -> list[_Picked]:
    """Requests of the base by rank, each followed by the same request of the other cells when paired."""
    cells = _cells(analysis)
    base, base_name = cells[0]
    if not all(comparison.paired for comparison in analysis.comparisons):
        return [
            _Picked(side, f"{what}, {name}", row)
            for side, name in cells
            for what, row in _ranked(side).items()
        ]
    picked = []
    for what, row in _ranked(base).items():
        picked.append(_Picked(base, f"{what}, {base_name}", row))
        for side, name in cells[1:]:
            same = np.flatnonzero((side.pairs == base.pairs[row]) & side.frame.ok)
            if len(same):
                picked.append(_Picked(side, f"the same, {name}", int(same[0])))
    picked += [
        _Picked(side, f"worst, {name}", _ranked(side)["worst"]) for side, name in cells[1:] if _ranked(side)
    ]
    return picked


def _cells(analysis: Analysis) -> list[tuple[Side, str]]:
    """The base, the winner, then others as long as there is room."""
    told = answer(analysis)
    order = [0]
    if told is not None and told.winner is not None:
        order.append(next(i for i, s in enumerate(analysis.sides) if s is told.winner))
    order += [i for i in range(len(analysis.sides)) if i not in order]
    labels = names(analysis.sides)
    short = [s.cell.name for s in analysis.sides]
    distinct = short if len(set(short)) == len(short) else labels
    return [(analysis.sides[i], distinct[i]) for i in order[:_MOST_CELLS]]


def _ranked(side: Side) -> dict[str, int]:
    """Rows of the fastest, median, P99 and worst successful request by TTFT."""
    ttft = np.where(side.frame.ok, METRIC.observe(side.frame), np.nan)
    order = np.argsort(ttft)[: int((~np.isnan(ttft)).sum())]
    if not len(order):
        return {}
    ranks = {"fastest": 0, "median": (len(order) - 1) // 2, "P99": int(np.ceil(0.99 * len(order))) - 1}
    ranks["worst"] = len(order) - 1
    return {what: int(order[rank]) for what, rank in ranks.items()}


def _segments(one: _Picked) -> list[tuple[str, float, float]]:
    frame = one.side.frame
    sent = float(frame.client("sent_ns")[one.row])

    def client(name: str) -> float:
        return (float(frame.client(name)[one.row]) - sent) / 1e6

    def router(name: str) -> float:
        return (float(frame.router(name)[one.row]) - sent) / 1e6

    first, last = client("first_token_ns"), client("last_token_ns")
    prefill_start, prefill_done = router("prefill_start_ns"), router("prefill_done_ns")
    gap = float(frame.handoff_gap_ns[one.row]) / 1e6
    switch = router("switch_ns")
    segments = [
        ("queue", 0.0, prefill_start),
        ("prefill", prefill_start, prefill_done),
        ("until first token", 0.0 if np.isnan(prefill_done) else prefill_done, first),
        ("KV to RLD", router("relay_transfer_start_ns"), router("relay_transfer_done_ns")),
        ("KV to MD over the WAN", router("main_transfer_start_ns"), router("main_transfer_done_ns")),
    ]
    if not np.isnan(gap):
        segments += [
            ("relay tokens (RLD)", first, switch - gap),
            ("switch", switch - gap, switch),
            ("main tokens (MD)", switch, last),
        ]
    elif not np.isnan(router("relay_first_token_ns")):  # RLD finished it alone
        segments.append(("relay tokens (RLD)", first, last))
    else:
        segments.append(("main tokens (MD)", first, last))
    return segments


def _request_id(one: _Picked) -> str:
    frame = one.side.frame
    place = one.row if isinstance(frame.rows, slice) else int(frame.rows[one.row])
    return str(frame.columns.text("request_id")[place].as_py())


def _decisions(side: Side, request: str, row: int) -> list[dict[str, Any]]:
    """Events and actions of one request, in order, by ms since its send."""
    rep = int(side.frame.reps[row])
    sent_ns = float(side.frame.client("sent_ns")[row]) + side.frame.columns.origin_ns(rep)
    found: list[dict[str, Any]] = []
    names_ = ["seq", "now_ns", "request_id", "event", "actions"]
    for batch in side.run.batches("decisions", side.cell.name, rep, names_):
        chosen = batch.filter(pc.equal(batch.column("request_id"), pa.scalar(request)))
        found += [
            {
                "ms": round((entry["now_ns"] - sent_ns) / 1e6, 3),
                "event": entry["event"],
                "actions": entry["actions"],
            }
            for entry in chosen.to_pylist()
        ]
        if len(found) >= _MOST_DECISIONS:
            break
    return found[:_MOST_DECISIONS]
