"""What a comparison says of runs whose truth is known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fake_run import FakeRun

from reports.analysis import Analysis, match_cells
from reports.answer import answer
from reports.comparability import check
from reports.comparison import Verdict, compare_sides
from reports.condition import Condition, met
from reports.document import document
from reports.errors import ReportError
from reports.run import Run
from reports.sides import open_sides

SMALL = FakeRun(cells=("pdd",), sessions=24, turns=6)


def test_a_run_compared_with_itself_differs_nowhere(two_modes: Run) -> None:
    for cell in ("xdc", "pdd"):
        (found,) = compare_sides(open_sides([(two_modes, cell), (two_modes, cell)]))
        assert {row.verdict for row in found.rows} <= {Verdict.NOT_SIGNIFICANT, Verdict.UNDEFINED}
        assert all(row.change is None or row.change.absolute == 0 for row in found.rows)
        assert {effect.adjusted_p for effect in found.effects} == {1.0}
        same, both = found.agreement or (0, 0)
        assert same == both > 100


def test_the_injected_difference_is_found_where_it_is(runs: Path) -> None:
    base = replace(SMALL, seed=1).write(runs / "a")
    slower = replace(SMALL, seed=2, slower={"pdd": 1.25}).write(runs / "b")
    (found,) = Analysis.of_cells([(base, "pdd"), (slower, "pdd")]).comparisons
    assert found.row("ttft_p50").verdict is Verdict.WORSE
    assert found.row("ttft_p50").change.relative == pytest.approx(
        0.1, abs=0.05
    )  # a part of ttft is not slowed
    for untouched in ("tpot_p50", "prefix_hit", "error_rate", "relayed_share"):
        assert found.row(untouched).verdict is Verdict.NOT_SIGNIFICANT, untouched
    assert found.paired


@pytest.mark.slow
def test_false_alarms_and_finds_over_ten_seeds(runs: Path) -> None:
    """False 'significant' in at most 5 %; +10 % of the median TTFT found in at least 9 of 10."""
    spec = FakeRun(cells=("pdd",), sessions=40, turns=8, reps=3, rep_noise=0.01)
    false = tested = found = 0
    injected = []
    for seed in range(10):
        a = replace(spec, seed=100 + seed).write(runs / f"a{seed}")
        same = replace(spec, seed=200 + seed).write(runs / f"same{seed}")
        slow = replace(spec, seed=300 + seed, slower={"pdd": 1.25}).write(runs / f"slow{seed}")
        (equal,) = Analysis.of_cells([(a, "pdd"), (same, "pdd")]).comparisons
        (worse,) = Analysis.of_cells([(a, "pdd"), (slow, "pdd")]).comparisons
        false += sum(row.significant for row in equal.rows)
        tested += sum(row.verdict is not Verdict.UNDEFINED for row in equal.rows)
        median = worse.row("ttft_p50")
        injected.append(median.change.relative)
        found += median.verdict is Verdict.WORSE
    print(f"false {false} of {tested}; found {found} of 10, {np.mean(injected):+.1%} on average")
    assert np.mean(injected) < 0.11
    assert false <= 0.05 * tested
    assert found >= 9


def test_sessions_of_another_trace_are_not_paired(runs: Path) -> None:
    a = replace(SMALL, trace_seed=1, trace_digest="one").write(runs / "a")
    b = replace(SMALL, trace_seed=2, trace_digest="two").write(runs / "b")
    with pytest.raises(ReportError, match=r"replayed another trace.*--allow trace"):
        Analysis.of_cells([(a, "pdd"), (b, "pdd")])
    analysis = Analysis.of_cells([(a, "pdd"), (b, "pdd")], allow=["trace"])
    assert not analysis.comparisons[0].paired
    assert "replayed another trace" in analysis.waived[0]


def test_requests_that_only_one_side_has_are_left_out_and_told(runs: Path) -> None:
    a = replace(SMALL, turns=6).write(runs / "a")
    b = replace(SMALL, turns=5).write(runs / "b")
    (found,) = Analysis.of_cells([(a, "pdd"), (b, "pdd")]).comparisons
    assert len(found.base.frame) < found.base.frame.columns.rows
    assert any("not replayed by every side" in line for line in found.cautions)


def test_another_machine_is_refused_by_name(runs: Path) -> None:
    a = SMALL.write(runs / "a")
    b = replace(SMALL, host_class="other/64c/512g/linux").write(runs / "b")
    with pytest.raises(ReportError, match="not comparable: b:pdd ran on another class of machine"):
        check((a, "pdd"), (b, "pdd"))
    assert len(check((a, "pdd"), (b, "pdd"), ["host"])) == 1
    with pytest.raises(ReportError, match="--allow hots: unknown; known: trace"):
        check((a, "pdd"), (b, "pdd"), ["hots"])


def test_one_repetition_and_few_sessions_are_cautioned(runs: Path) -> None:
    run = FakeRun(sessions=4, turns=6, reps=1).write(runs / "a")
    (found,) = Analysis.of_run(run).comparisons
    assert any("one repetition only" in line for line in found.cautions)
    assert any("only 4 sessions" in line for line in found.cautions)


def test_the_answer_names_the_mode_the_amount_and_the_wan(two_modes: Run) -> None:
    told = answer(Analysis.of_run(two_modes))
    assert told.winner.cell.name == "pdd"
    assert "faster to the first token" in told.headline
    assert any(line.startswith("Sure: p") for line in told.details)
    assert any("On the WAN it costs" in line for line in told.details)


def test_the_answer_to_no_difference_says_what_would_have_been_seen(runs: Path) -> None:
    a, b = (replace(SMALL, seed=seed).write(runs / str(seed)) for seed in (1, 2))
    told = answer(Analysis.of_cells([(a, "pdd"), (b, "pdd")]))
    assert told.winner is None
    assert any("not significant" in line and "would have been found" in line for line in told.details)


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("ttft_p90 < -5%", True),
        ("ttft_p90 > +5%", False),
        ("ttft_p90 < -10ms", True),
        ("ttft_p90 > 1ms", True),
        ("ttft_p90 > 100000 ms", False),
        ("tpot_p50 > +50%", False),
        ("error_rate > 0.5", False),
        ("relayed_share > 0.01", True),
    ],
)
def test_conditions(two_modes: Run, text: str, holds: bool) -> None:
    analysis = Analysis.of_run(two_modes)
    assert bool(met([Condition.parse(text)], analysis.comparisons)) is holds


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ttft > +5%", "say which statistic: ttft_p50"),
        ("latency_p99 > +5%", "no figure 'latency_p99'; metrics: ttft"),
        ("ttft_p99 > 5%", r"write \+5% or -5% for a change"),
        ("ttft_p99 > 5s", "ttft_p99 is in ms, not s"),
        ("ttft_p99 = 5", "expected e.g."),
    ],
)
def test_conditions_that_mean_nothing_are_refused(text: str, message: str) -> None:
    with pytest.raises(ReportError, match=message):
        Condition.parse(text)


def test_cells_are_matched_by_name(two_modes: Run, runs: Path) -> None:
    single = SMALL.write(runs / "single")
    groups = match_cells([str(two_modes.path), str(two_modes.path)])
    assert [[cell for _, cell in group] for group in groups] == [["xdc", "xdc"], ["pdd", "pdd"]]
    groups = match_cells([f"{two_modes.path}:xdc", str(single.path)])
    assert [cell for _, cell in groups[0]] == ["xdc", "pdd"]
    with pytest.raises(ReportError, match="no cell 'pd'; cells: xdc, pdd"):
        match_cells([f"{two_modes.path}:pd", str(single.path)])
    with pytest.raises(ReportError, match=r"say which cell: .*:xdc"):
        match_cells([str(two_modes.path), f"{single.path}:pdd"])


def test_json_has_every_change_of_the_table(two_modes: Run) -> None:
    analysis = Analysis.of_run(two_modes)
    found = document(analysis)
    assert found["answer"]["winner"] == "pdd"
    changes = found["comparisons"][0]["changes"]
    assert changes["ttft_p90"]["verdict"] == "better"
    assert set(changes) == {row.base.key for row in analysis.comparisons[0].rows if row.change}
