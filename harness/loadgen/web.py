"""Locust's web interface with this benchmark's own figures: a tab of live rows, and a page of charts."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final

import gevent
from flask import Response, jsonify
from locust.stats import stats_history

from harness.loadgen.histogram import Histogram
from harness.loadgen.live_stats import ROWS, LiveStats
from harness.loadgen.progress import Warned

if TYPE_CHECKING:
    from locust.env import Environment

    from harness.loadgen.job import Web
    from harness.loadgen.progress import Announcer
    from harness.loadgen.tally import Tally

HISTORY_POINTS: Final = 3600
_MS: Final = 1e6
_QUANTILES: Final = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))


class LiveWeb:
    """The web interface of a run; `update` once a second."""

    def __init__(self, environment: Environment, web: Web, announcer: Announcer) -> None:
        self._stats: Final = LiveStats(environment.stats)
        self._latest: dict[str, Any] = {"rows": [], "state": "starting"}
        self._history: deque[dict[str, Any]] = deque(maxlen=HISTORY_POINTS)
        self._before: dict[str, Histogram] = {}
        self._started_s = time.monotonic()
        self._ui: Any = environment.create_web_ui(web.host, web.port, delayed_start=True)
        self._ui.template_args |= {
            "extended_tabs": [{"title": "Tokens", "key": "pddbench-rows"}],
            "extended_tables": [
                {
                    "key": "pddbench-rows",
                    "structure": [{"key": key, "title": title} for key, title in _COLUMNS],
                }
            ],
        }
        app: Any = self._ui.app
        app.add_url_rule("/pddbench-rows", "pddbench_rows", self._rows)
        app.add_url_rule("/pddbench", "pddbench_page", self._page)
        app.add_url_rule("/pddbench/live", "pddbench_live", self._live)
        app.add_url_rule("/pddbench/plotly.js", "pddbench_plotly", _plotly)
        self._ui.start()  # type: ignore[no-untyped-call]
        self._charts: Final = gevent.spawn(stats_history, environment.runner)
        announcer.say(
            Warned(
                f"web interface: http://{web.host}:{web.port}/ (charts: http://{web.host}:{web.port}/pddbench)"
            )
        )

    def update(self, tally: Tally) -> None:
        """Rows of the whole run, a chart point of what came since the last time."""
        self._stats.update(tally)
        point: dict[str, Any] = {
            "t_s": round(time.monotonic() - self._started_s, 1),
            "live_sessions": tally.live_sessions,
            "in_flight": tally.in_flight,
            "output_tokens": tally.output_tokens,
            "done": tally.done,
        }
        rows = []
        for field, name in ROWS:
            histogram: Histogram = getattr(tally, field)
            rows.append(
                {
                    "name": name,
                    "count": histogram.count,
                    **_quantiles(histogram),
                    "max": histogram.worst / _MS,
                }
            )
            recent = histogram.since(self._before.get(field))
            self._before[field] = histogram.copy()
            point |= {f"{field}_{name}": value for name, value in _quantiles(recent).items()}
        self._latest = {"rows": rows}
        self._history.append(point)

    def close(self) -> None:
        self._charts.kill()
        self._ui.stop()

    def _rows(self) -> Response:
        return jsonify({"key": "pddbench-rows", "stats": self._latest["rows"]})

    def _live(self) -> Response:
        return jsonify({"rows": self._latest["rows"], "points": list(self._history)})

    @staticmethod
    def _page() -> Response:
        return Response(_PAGE, mimetype="text/html")


_COLUMNS: Final = (
    ("name", "ms"),
    ("count", "count"),
    ("p50", "p50"),
    ("p90", "p90"),
    ("p99", "p99"),
    ("max", "max"),
)


def _quantiles(histogram: Histogram) -> dict[str, float | None]:
    found = {name: histogram.quantile(share) for name, share in _QUANTILES}
    return {name: None if value is None else round(value / _MS, 3) for name, value in found.items()}


def _plotly() -> Response:
    from plotly.offline import get_plotlyjs  # noqa: PLC0415 - four megabytes, only when the page is opened

    return Response(get_plotlyjs(), mimetype="application/javascript")


_PAGE: Final = """<!doctype html><meta charset="utf-8"><title>pddbench</title>
<style>body{font:14px system-ui;margin:1em}.chart{height:260px}</style>
<h1>pddbench, live</h1><p><a href="/">Locust</a> — quantiles of each second, in ms</p>
<div id="ttft" class="chart"></div><div id="itl" class="chart"></div>
<div id="handoff_gap" class="chart"></div><div id="load" class="chart"></div>
<script src="/pddbench/plotly.js"></script>
<script>
const titles = {ttft: "TTFT", itl: "ITL", handoff_gap: "handoff gap"};
async function draw() {
  try {
    const points = (await (await fetch("/pddbench/live")).json()).points;
    const x = points.map(p => p.t_s);
    for (const [key, title] of Object.entries(titles))
      Plotly.react(key, ["p50", "p90", "p99"].map(q => ({x, y: points.map(p => p[key + "_" + q]), name: q})),
        {title: {text: title}, margin: {t: 40}, yaxis: {title: {text: "ms"}, type: "log"}});
    Plotly.react("load", [{x, y: points.map(p => p.live_sessions), name: "live sessions"},
      {x, y: points.map(p => p.in_flight), name: "in flight"}], {title: {text: "load"}, margin: {t: 40}});
  } finally { setTimeout(draw, 1000); }
}
draw();
</script>
"""
