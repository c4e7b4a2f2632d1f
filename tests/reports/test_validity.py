"""A run that must not be decided by says so, and why."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
from fake_run import FakeRun

from reports.run import Run
from reports.runinfo import RunInfo, RunState, Validity
from reports.schema import REQUESTS
from reports.stats.steady import trend, warmup_length
from reports.validity import judge
from reports.writer import TableWriter

SMALL = FakeRun(cells=("pdd",), sessions=12, turns=4, reps=1)


def test_a_clean_run_is_valid(two_modes: Run) -> None:
    verdict = judge(two_modes)
    assert verdict.valid
    assert verdict.reasons == ()


@pytest.mark.parametrize("state", [RunState.RUNNING, RunState.INTERRUPTED, RunState.FAILED])
def test_a_run_cut_short_is_partial(runs: Path, state: RunState) -> None:
    run = replace(SMALL, state=state).write(runs / "run")
    assert run.partial
    assert judge(run).reasons[0].startswith("partial: the run is")


def test_a_shard_that_was_never_finished_makes_a_run_partial_and_counts(runs: Path) -> None:
    run = SMALL.write(runs / "run")
    row = run.table("requests").drop_columns(["cell", "rep"]).to_pylist()[-1]
    out = TableWriter(runs / "run", REQUESTS, cell="pdd", rep=0, shard="killed")
    out.write({**row, "request_id": "late"})
    out.flush()
    reopened = Run.open(runs / "run")
    assert reopened.partial
    assert "partial: 1 records were cut short (requests/pdd/0/killed)" in judge(reopened).reasons
    assert reopened.table("requests").num_rows == run.table("requests").num_rows + 1
    out.close()


def test_reasons_of_the_runner_are_kept_with_their_place(runs: Path) -> None:
    run = SMALL.write(runs / "run")
    bad = Validity(False, ("a_to_b carried 43 % of the profile's rate",))
    rep = msgspec.structs.replace(run.info.reps[0], validity=bad)
    msgspec.structs.replace(run.info, reps=(rep,)).write(run.path)
    verdict = judge(Run.open(run.path))
    assert not verdict.valid
    assert verdict.reasons == ("pdd rep 0: a_to_b carried 43 % of the profile's rate",)


def edited(run: Run, change: object) -> Run:
    """The run with another repetition made of its changed rows."""
    rows = run.table("requests").drop_columns(["cell", "rep"]).to_pylist()
    with TableWriter(run.path, REQUESTS, cell="pdd", rep=1, shard="x") as out:
        for row in rows:
            change(row)  # type: ignore[operator]
            out.write(row)
    return Run.open(run.path)


def test_a_cache_that_was_warm_by_accident_is_found(runs: Path) -> None:
    def warm(row: dict[str, object]) -> None:
        row["cached_tokens"] = row["prompt_tokens"]

    verdict = judge(edited(SMALL.write(runs / "run"), warm))
    assert any("where the trace implies" in reason for reason in verdict.reasons)


def test_a_late_generator_is_found(runs: Path) -> None:
    def late(row: dict[str, int]) -> None:
        row["intended_ns"] -= 900_000_000

    verdict = judge(edited(SMALL.write(runs / "run"), late))
    assert any("sent late: P99" in reason for reason in verdict.reasons)


def test_requests_cut_off_by_the_end_are_found(runs: Path) -> None:
    def cut(row: dict[str, object]) -> None:
        row["status"] = "unfinished"

    verdict = judge(edited(SMALL.write(runs / "run"), cut))
    assert any("cut off by the end" in reason for reason in verdict.reasons)


def test_warm_up_and_trend_are_told_apart_from_steady_service() -> None:
    rng = np.random.default_rng(4)
    steady = rng.normal(100, 5, 600)
    assert warmup_length(steady) < 60
    assert trend(steady).p > 0.01
    warming = steady.copy()
    warming[:80] += np.linspace(200, 0, 80)
    assert 40 <= warmup_length(warming) <= 120
    overload = steady + np.linspace(0, 300, 600)
    assert trend(overload).p < 0.001
    assert trend(overload).relative > 1
    assert warmup_length(np.ones(10)) == 0


def test_run_json_round_trips_and_refuses_the_future(runs: Path) -> None:
    run = SMALL.write(runs / "run")
    assert RunInfo.read(run.path) == run.info
    msgspec.structs.replace(run.info, format=99).write(run.path)
    with pytest.raises(ValueError, match=r"format 99 was written by a newer pddbench \(0.1.0\)"):
        Run.open(run.path)
    (run.path / "run.json").write_text("{")
    with pytest.raises(ValueError, match=r"run\.json: Input data was truncated"):
        Run.open(run.path)
