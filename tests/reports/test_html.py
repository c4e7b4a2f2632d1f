"""The HTML report: whole by itself, valid figures, and readable in a real browser."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
import pytest
from fake_run import FakeRun

from reports.analysis import Analysis
from reports.chart_table import CHARTS, draw_all
from reports.charts.ttft_tail import ccdf
from reports.render import render, script_json, write_html
from reports.run import Run


@pytest.fixture(scope="module")
def page(with_faults: Run) -> str:
    return render(Analysis.of_run(with_faults))


def test_every_chart_is_drawn_and_valid(with_faults: Run) -> None:
    charts = draw_all(Analysis.of_run(with_faults))
    assert [chart.name for chart in charts] == list(CHARTS)
    for chart in charts:
        figure = go.Figure(chart.figure)
        assert len(figure.data) > 0
        assert chart.caption
        json.dumps(chart.figure, allow_nan=False)


def test_faults_are_shaded_on_the_time_axis(with_faults: Run) -> None:
    timeline = next(c for c in draw_all(Analysis.of_run(with_faults)) if c.name == "timeline")
    shapes = timeline.figure["layout"]["shapes"]
    # Seconds count from the first measured request, up to a second after the repetition's start.
    assert [s["x1"] - s["x0"] for s in shapes] == pytest.approx([4, 3], abs=0.01)
    assert [s["x0"] for s in shapes] == pytest.approx([8, 18], abs=1.1)
    labels = [a["text"] for a in timeline.figure["layout"]["annotations"]]
    assert {"collapse", "partition"} <= set(labels)
    assert any("handoff gap" in text for text in labels)
    assert any("line's rate" in text for text in labels)


def test_the_page_needs_nothing_from_anywhere(page: str) -> None:
    without_plotly = re.sub(r"<script>/\*\*.*?</script>", "", page, flags=re.DOTALL)
    assert "plotly.js" not in re.findall(r"<script[^>]*src=[^>]*>", page)
    for attribute in ("src=", "href="):
        for target in re.findall(attribute + r'"([^"]*)"', without_plotly):
            assert target.startswith("#"), target
    assert "@import" not in without_plotly
    assert page.count("<script>/**") == 1


def test_the_first_screen_answers(page: str) -> None:
    top = html.unescape(page[: page.index("<nav>")])
    for part in ("faster to the first token", "Sure: p", "On the WAN it costs", "change of P", "goodput"):
        assert part in top


def test_the_decisions_of_the_drawn_requests_are_in_the_page(with_faults: Run) -> None:
    waterfall = next(c for c in draw_all(Analysis.of_run(with_faults)) if c.name == "waterfall")
    drawn = {request for bar in waterfall.figure["data"] for request in bar["customdata"]}
    assert drawn == set(waterfall.extra["decisions"])
    assert all(len(rows) == 2 for rows in waterfall.extra["decisions"].values())


def test_thinning_keeps_the_whole_tail_and_the_scale() -> None:
    values = np.sort(np.random.default_rng(1).lognormal(size=100_000))
    x, y = ccdf(values)
    assert len(x) <= 801
    assert np.isin(values[-400:-1], x).all()
    for quantile in (0.1, 0.5, 0.9):
        assert np.interp(1 - quantile, y[::-1], x[::-1]) == pytest.approx(
            np.quantile(values, quantile), rel=0.01
        )


def test_text_from_records_cannot_break_out_of_the_page(runs: Path) -> None:
    assert "</script>" not in script_json({"a": "</script><script>alert(1)</script><!--"})
    run = FakeRun(cells=("pdd",), sessions=3, turns=2, reps=1).write(runs / "run")
    text = (run.path / "run.json").read_text().replace('"PDD (P-RLD-MD, one-shot)"', '"<img onerror=x>"')
    (run.path / "run.json").write_text(text)
    page = render(Analysis.of_run(Run.open(run.path)))
    # Within the JSON of the figures it is text, and plotly knows no such tag.
    assert "<img onerror" not in re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    assert "&lt;img onerror" in page


def test_a_single_cell_without_router_records_still_renders(runs: Path) -> None:
    run = FakeRun(cells=("xdc",), sessions=3, turns=2, reps=1).write(runs / "run")
    for table in ("handoffs", "decisions", "link_samples", "worker_samples"):
        shutil.rmtree(run.path / table)
    write_html(Run.open(run.path), runs / "report.html")
    assert "One cell: nothing to compare it with." in (runs / "report.html").read_text()


def chromium(page: Path, profile: Path, *arguments: str) -> str:
    """Load a page headless, with its scripts, and without a network to speak of."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert program, "install chromium: the browser tests need it"
    done = subprocess.run(
        [
            program,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--hide-scrollbars",
            f"--user-data-dir={profile}",
            "--virtual-time-budget=20000",
            *arguments,
            f"file://{page}",
        ],
        capture_output=True,
        text=True,
        timeout=110,
        check=True,
    )
    return done.stdout


@pytest.mark.browser
@pytest.mark.parametrize("width", [390, 1400])
def test_a_browser_draws_every_chart_without_scrolling_sideways(page: str, runs: Path, width: int) -> None:
    """A frame of the given width; chromium itself refuses windows below 500 pixels."""
    probe = """<script>
      const told = () => parent.postMessage(JSON.stringify({
        width: document.documentElement.scrollWidth, drawn: window.drawn || 0, errors: window.errors || 0,
        plots: document.querySelectorAll(".main-svg").length,
      }), "*");
      setTimeout(told, 9000);
    </script>"""
    guard = "<script>addEventListener('error', () => { window.errors = (window.errors || 0) + 1; });</script>"
    (runs / "page.html").write_text(page.replace("<head>", "<head>" + guard) + probe)
    frame = f"""<body style="margin:0"><pre id="told"></pre>
      <script>
        addEventListener("message", (m) => {{ document.getElementById("told").textContent = m.data; }});
      </script>
      <iframe src="page.html#all" style="border:0;width:{width}px;height:1200px"></iframe></body>"""
    (runs / "frame.html").write_text(frame)
    dom = chromium(runs / "frame.html", runs / "profile", "--window-size=1500,1300", "--dump-dom")
    found = re.search(r'<pre id="told">(\{.*?\})</pre>', dom)
    assert found, dom[-500:]
    told = json.loads(html.unescape(found[1]))
    print(told, file=sys.stderr)
    assert told["errors"] == 0
    assert told["drawn"] == len(CHARTS)
    assert told["plots"] >= len(CHARTS)
    assert told["width"] <= width


@pytest.mark.browser
def test_a_screenshot_shows_more_than_an_empty_page(page: str, runs: Path) -> None:
    (runs / "page.html").write_text(page)
    for name, height in (("short", 900), ("long", 3000)):
        chromium(
            runs / "page.html",
            runs / f"profile-{name}",
            f"--window-size=1400,{height}",
            f"--screenshot={runs / name}.png",
        )
    sizes = [(runs / f"{name}.png").stat().st_size for name in ("short", "long")]
    print(sizes, file=sys.stderr)
    assert sizes[0] > 60_000  # an empty white page of this size compresses to under 10 kB
    assert sizes[1] > 1.5 * sizes[0]
