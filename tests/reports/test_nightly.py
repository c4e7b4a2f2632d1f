"""Nights: what the gate finds and leaves alone, what the store keeps, and how a night goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec
import numpy as np
import pandas as pd
import pytest
from fake_run import FakeRun

from harness.cli.settings import overrides_of
from harness.experiment.config import ConfigError
from harness.experiment.nightly import _flat, _month_before, _Night, _toml, accept, run_night
from harness.experiment.suite import PlannedJob, Suite, load_suite
from reports.errors import ReportError
from reports.nightly.gate import GateSettings, Outcome, judge
from reports.nightly.record import Job, JobState, Night, NightVerdict
from reports.nightly.store import Store
from reports.numbers import possible
from reports.runinfo import VersionInfo
from reports.stats.change_point import segment_starts

EXPERIMENTS = Path(__file__).resolve().parents[2] / "experiments"


def rows(
    values: np.ndarray, *, better: str = "lower", half: float = 2.0, figure: str = "ttft_p50"
) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "night": [f"n{i:03d}" for i in range(len(values))],
            "job": "j",
            "cell": "pdd",
            "comparable": "same",
            "figure": figure,
            "unit": "ms",
            "better": better,
            "value": values,
            "low": values - half,
            "high": values + half,
            "valid": True,
        }
    )


def last_night(values: np.ndarray, settings: GateSettings | None = None, **more: object) -> Outcome:
    table = rows(values, **more)  # type: ignore[arg-type]
    history, tonight = table[:-1], table[-1:]
    (found,) = judge(history, tonight, set(history["night"]), settings or GateSettings(figures=("ttft_p50",)))
    return found.outcome


def test_noise_between_nights_passes_and_a_step_does_not() -> None:
    rng = np.random.default_rng(1)
    nights = rng.normal(100, 3, 12)
    assert last_night(nights) is Outcome.PASSED
    assert last_night(np.append(nights, 125)) is Outcome.REGRESSED
    assert last_night(np.append(nights, 75)) is Outcome.IMPROVED
    assert last_night(np.append(nights, 75), better="higher") is Outcome.REGRESSED


def test_two_good_nights_are_enough_for_a_large_loss() -> None:
    assert last_night(np.array([100.0, 102.0, 160.0]), half=4.0) is Outcome.REGRESSED
    assert last_night(np.array([100.0, 104.0, 103.0]), half=4.0) is Outcome.PASSED
    assert last_night(np.array([100.0, 160.0])) is Outcome.UNKNOWN


def test_certain_but_small_changes_pass() -> None:
    assert last_night(np.array([100.0] * 8 + [102.0]), half=0.1) is Outcome.PASSED


def test_false_alarms_are_rare_on_noisy_nights() -> None:
    rng = np.random.default_rng(2)
    alarms = sum(
        last_night(100 * np.exp(rng.normal(0, 0.1, rng.integers(3, 15)))) is Outcome.REGRESSED
        for _ in range(200)
    )
    print(f"{alarms} of 200")
    assert alarms <= 8  # alpha is .01


def test_a_loss_that_no_single_night_shows_is_found_as_a_change_of_level() -> None:
    rng = np.random.default_rng(3)
    nights = np.concatenate([rng.normal(100, 2.5, 20), rng.normal(107, 2.5, 6)])
    table = rows(nights, half=3.0)
    (found,) = judge(table[:-1], table[-1:], set(table["night"][:-1]), GateSettings(figures=("ttft_p50",)))
    assert found.outcome is Outcome.REGRESSED
    assert found.since in {"n019", "n020", "n021"}


def test_after_a_change_of_level_the_new_level_is_the_reference() -> None:
    rng = np.random.default_rng(4)
    faster = np.concatenate([rng.normal(100, 2, 10), rng.normal(60, 2, 9)])
    assert last_night(np.append(faster, 80)) is Outcome.REGRESSED
    assert last_night(np.append(faster, 60)) in {Outcome.PASSED, Outcome.IMPROVED}


def test_one_odd_night_is_no_new_level() -> None:
    steady = np.array([10.0, 10.1, 9.9, 14.0, 10.0, 10.1, 9.9, 10.0])
    assert segment_starts(steady) == [0]
    assert segment_starts(np.concatenate([steady[:3], steady[:3] + 5])) == [0, 3]
    assert segment_starts(np.array([1.0, 9.0])) == [0]


# ---------------------------------------------------------------------- nights on made-up runs


@pytest.fixture
def suite() -> Suite:
    return Suite(name="fake", jobs=(), gate=GateSettings(figures=("ttft_mean", "ttft_p50", "tpot_p50")))


JOBS = (PlannedJob("a", Path("a.toml"), "live", {}), PlannedJob("b", Path("b.toml"), "live", {}))


@pytest.fixture
def night(
    tmp_path: Path, suite: Suite, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[object, list[str]]]:
    """Run one night whose jobs write made-up runs."""
    # The commit must not change under a test while somebody commits.
    versions = VersionInfo(pddbench="0.1.0", python="3.11", git_commit="c0ffee", git_dirty=False)
    monkeypatch.setattr("harness.experiment.nightly.probe_versions", lambda *_: versions)
    spec = FakeRun(cells=("pdd",), sessions=12, turns=3, reps=2, rep_noise=0.01)
    count = [0]

    def go(slower: float = 1.0, die_in: str | None = None, **more: object) -> tuple[object, list[str]]:
        def start(self: _Night, planned: PlannedJob, folder: Path) -> Job:
            count[0] += 1
            if planned.name == die_in:
                raise KeyboardInterrupt
            made = replace(spec, seed=count[0], slower={"pdd": slower if planned.name == "a" else 1.0})
            run = made.write(folder / "run")
            return Job(
                planned.name, JobState.DONE, run=str(run.path.relative_to(self._store.path)), valid=True
            )

        monkeypatch.setattr(_Night, "_start", start)
        said: list[str] = []
        arguments = {"budget_s": None, **more}
        store = Store(tmp_path / "store")
        return run_night(suite, JOBS, "digest", store, say=said.append, **arguments), said  # type: ignore[arg-type]

    return go


def test_two_nights_pass_and_a_slowed_engine_fails_with_the_metric_named(
    night: Callable, tmp_path: Path
) -> None:
    for _ in range(2):
        result, _ = night()
        assert result.night.verdict is NightVerdict.PASSED
    result, said = night(slower=2.5)
    assert result.night.verdict is NightVerdict.REGRESSED
    assert any("a / pdd: ttft_p50" in line for line in result.findings)
    assert not any("tpot" in line or "b / pdd" in line for line in result.findings)
    assert "a: regressed; running it once more" in said

    root = ET.parse(result.junit).getroot()
    failed = [case.get("name") for case in root.iter("testcase") if case.find("failure") is not None]
    assert "ttft_p50" in failed
    assert "tpot_p50" not in failed
    summary = result.summary.read_text()
    assert "## fake: regressed" in summary
    assert "| a | pdd | ttft_p50 |" in summary
    trend = result.trend.read_text()
    assert 'Last night: <span class="worse">regressed' in trend
    assert trend.count('"night":') >= 3

    accept(Store(tmp_path / "store"), "fake", result.night.night)
    result, _ = night(slower=2.5)
    assert result.night.verdict is NightVerdict.PASSED


def test_a_night_that_was_cut_off_is_taken_up_without_doing_twice(night: Callable, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        night(die_in="b")
    store = Store(tmp_path / "store")
    (cut,) = store.nights()
    assert [job.state for job in cut.jobs] == [JobState.DONE, JobState.RUNNING]
    result, said = night()
    assert result.night.night == cut.night
    assert said[0].startswith("taking up night")
    assert not any(line.startswith("a:") for line in said)
    assert [job.state for job in result.night.jobs] == [JobState.DONE, JobState.DONE]
    assert sorted(store.figures()["job"].unique()) == ["a", "b"]


def test_what_does_not_fit_the_budget_is_skipped_and_comes_first_next_time(
    night: Callable, tmp_path: Path
) -> None:
    night()
    store = Store(tmp_path / "store")
    first = store.nights()[0]
    long = first.with_job(msgspec.structs.replace(first.job("b"), seconds=9_999.0))
    long.write(store.night_folder(first.night))
    result, said = night(budget_s=3600.0)
    assert result.night.job("b").state is JobState.SKIPPED
    assert any("it took 9999 s last time" in line for line in said)
    assert result.night.verdict is NightVerdict.INCOMPLETE
    _, said = night()
    assert said[0].startswith("b: running")


def test_a_store_in_use_is_refused(night: Callable, tmp_path: Path) -> None:
    with Store(tmp_path / "store").locked(), pytest.raises(ReportError, match="another nightly run is using"):
        night()


def test_compaction_and_retention_lose_no_figure(night: Callable, tmp_path: Path) -> None:
    for _ in range(3):
        night()
    store = Store(tmp_path / "store")
    before = store.figures()
    month = before["date"].iloc[0][:7]
    assert store.compact(month) == []
    made = store.compact("9999-01")
    assert [path.name for path in made] == [f"{month}.parquet"]
    assert not list((store.path / "figures").glob("date=*"))
    pd.testing.assert_frame_equal(store.figures(), before)
    assert store.compact("9999-01") == []
    assert len(store.retire(keep_nights=1)) == 2
    assert len(list((store.path / "runs").glob("*"))) == 1
    assert len(store.nights()) == 3


def test_month_arithmetic_keeps_the_asked_months_loose() -> None:
    assert _month_before("2026-11-30", 1) == "2026-11"
    assert _month_before("2026-01-05", 2) == "2025-12"


# ---------------------------------------------------------------------- suites


def test_the_shipped_suite_is_read_and_resolved() -> None:
    suite, jobs, digest = load_suite(EXPERIMENTS / "nightly-small.toml", {})
    assert [job.name for job in jobs] == ["quickstart", "handoff-payload-sim"]
    assert suite.budget_minutes == 30
    assert digest != load_suite(EXPERIMENTS / "nightly-small.toml", {"seed": 7})[2]


def test_a_matrix_is_every_combination_with_a_name_of_its_own(tmp_path: Path) -> None:
    experiment = EXPERIMENTS / "quickstart.toml"
    text = f'name = "m"\n[[jobs]]\nexperiment = "{experiment}"\n'
    text += 'links = ["metro", "quickstart"]\nseeds = [1, 2]\n'
    (tmp_path / "m.toml").write_text(text)
    _, jobs, _ = load_suite(tmp_path / "m.toml", {})
    assert [job.name for job in jobs] == [
        "quickstart-metro-seed1",
        "quickstart-metro-seed2",
        "quickstart-quickstart-seed1",
        "quickstart-quickstart-seed2",
    ]
    assert jobs[1].overrides == {"link": {"profile": "metro"}, "seed": 2}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('name = "m"\njobs = []', "at least one"),
        ('name = "m"\n[[jobs]]\nexperiment = "gone.toml"', "no such file"),
        ('name = "m"\nbudgt = 3\n[[jobs]]\nexperiment = "x.toml"', "budgt"),
    ],
)
def test_a_wrong_suite_is_refused_before_the_night(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "m.toml").write_text(text)
    with pytest.raises(ConfigError, match=message):
        load_suite(tmp_path / "m.toml", {})


def test_overrides_survive_the_command_line() -> None:
    wanted = {
        "seed": 3,
        "link": {"profile": 'a "b"'},
        "load": {"bounds": {"lateness_p99_ms": 1.5}},
        "faults": [{"type": "worker_slowdown", "share": 0.5, "on": True}],
    }
    settings = tuple(f"{key}={_toml(value)}" for key, value in _flat(wanted))
    assert overrides_of(settings, {}) == wanted


def test_night_record_round_trips(tmp_path: Path) -> None:
    night = Night("20261130-213000", "s", "d", 1, "host", "c", False, (Job("a"),))
    night.write(tmp_path)
    assert Night.read(tmp_path) == night
    assert night.date == "2026-11-30"
    (tmp_path / "night.json").write_text("[]")
    with pytest.raises(ReportError, match="not the record of a night"):
        Night.read(tmp_path)


def test_what_no_longer_compares_is_not_judged_and_says_in_what_it_differs() -> None:
    table = rows(np.array([100.0, 101.0, 99.0, 200.0])).assign(comparable="trace=a; model=x")
    table.loc[3, "comparable"] = "trace=a; model=y"
    (found,) = judge(table[:-1], table[-1:], set(table["night"][:-1]), GateSettings(figures=("ttft_p50",)))
    assert found.outcome is Outcome.UNKNOWN
    assert found.reason.endswith("(earlier ones do not compare: other model)")


def test_intervals_on_the_page_keep_to_what_is_possible() -> None:
    assert possible(0.2, -2.0, 3.0, bounded=True) == (0.0, 1.0)
    assert possible(40.0, -200.0, 480.0, bounded=False) == (0.0, 480.0)
    assert possible(-1.0, -3.0, 1.0, bounded=False) == (-3.0, 1.0)
