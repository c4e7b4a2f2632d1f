"""What of the reproduction is arithmetic or cheap is exact here; the long simulations are `slow`."""

from __future__ import annotations

import numpy as np
import pytest

from harness.costs.deployment import deploy
from harness.costs.profile import ProfileError
from harness.sim.reproduce import bandwidth, bathtub, handoff, wan_test
from harness.sim.reproduce.calibration import load_calibration
from harness.sim.reproduce.effort import Effort
from harness.sim.reproduce.fit import _search
from harness.sim.reproduce.setting import Setting, run, sessions_of
from harness.sim.reproduce.targets import EXPERIMENTS, TARGETS, judge

SMALL = Effort(seeds=1, requests=2000)


def test_every_experiment_has_targets_and_every_target_bounds_that_hold_its_value() -> None:
    assert {t.experiment for t in TARGETS} == set(EXPERIMENTS)
    assert len({t.key for t in TARGETS}) == len(TARGETS)
    for target in TARGETS:
        low, high = target.bounds
        assert low < high or target.value == low == high
    assert any(t.experiment == "E1" and not t.fitted for t in TARGETS), "something must be held out"


def test_every_parameter_has_a_source_and_free_ones_lie_within_their_bounds() -> None:
    calibration = load_calibration()
    for values in calibration.groups.values():
        for quantity in values.values():
            assert quantity.source
    assert set(calibration.free()) >= {
        "latency.prefill_tokens_s",
        "latency_line.connections",
        "wan_test.rate_sigma",
    }
    with pytest.raises(ProfileError, match="missing"):
        calibration("latency.nonsense")


def test_bandwidth_is_the_reports_arithmetic() -> None:
    found = bandwidth.measure(load_calibration(), SMALL)
    assert all(v.met for v in judge(("E5",), found.values, found.notes))


def test_tail_chunks_dip_where_the_report_has_them_and_filling_repairs_them() -> None:
    deployment = deploy("deepseek-v3", "h100x16")
    alone = {
        h: bathtub.relative_throughput(deployment, 65_536, h, 16_384, fill_tail=False)
        for h in (0.2, 0.4, 0.7, 0.5, 0.1)
    }
    assert [round(alone[h], 2) for h in (0.2, 0.4, 0.7)] == [0.91, 0.96, 0.80]
    assert alone[0.5] == pytest.approx(1.0, abs=0.01)
    assert alone[0.1] == pytest.approx(1.0, abs=0.01)
    for h in (0.2, 0.4, 0.7):
        assert bathtub.relative_throughput(deployment, 65_536, h, 16_384, fill_tail=True) > 0.99


def test_a_bathtub_exists_exactly_where_its_condition_says() -> None:
    hits = np.linspace(0, 1, 2001)
    for a in (0.02, 0.1):
        for q in (0.0, 0.3, 0.7):
            for d in (0.0, 0.05):
                for p in (0.05, 0.12, 0.2, 0.6, 0.9):
                    curve = bathtub.closed_form(a, q, d, p, hits)
                    inside = 0 < int(curve.argmin()) < len(hits) - 1
                    assert inside == bathtub.has_bathtub(a, q, d, p), (a, q, d, p)


def test_extend_is_slower_on_average_and_steadier_than_kv() -> None:
    found = handoff.measure(load_calibration(), SMALL)
    assert all(v.met for v in judge(("E2",), found.values, found.notes)), found.values


def test_narrow_hits_have_a_longer_median_than_skewed_ones_of_the_same_load() -> None:
    values = wan_test.measure(load_calibration(), SMALL).values
    assert values["narrow_p50"] > 2 * values["skewed_p50"]


def test_the_setting_offers_64k_prompts_with_the_reports_hits() -> None:
    calibration = load_calibration()
    sessions, cached = sessions_of(calibration, Setting("pdd", 9.0, 4000, 0, 1))
    turns = [t for s in sessions for t in s.turns if t.output_tokens]
    assert len(turns) == 4000
    assert {t.prompt_tokens for t in turns} == {65_536}
    hits = np.array([t.kept_tokens / t.prompt_tokens for t in turns])
    assert hits.mean() == pytest.approx(0.89, abs=0.02)  # cold turns find the shared head besides
    assert 0.70 < (hits > 0.95).mean() < 0.85
    assert cached


def test_a_fit_moves_free_parameters_only_and_never_gets_worse() -> None:
    calibration = load_calibration()
    bounds = {"latency_line.flow_mbit_s": (60.0, 400.0)}
    steps = list(_search(calibration, bounds, lambda c: (c("latency_line.flow_mbit_s") - 200) ** 2, 30))
    losses = [step.loss for step, _ in steps if step.best]
    assert losses == sorted(losses, reverse=True)
    best = steps[-1][1]
    assert best("latency_line.flow_mbit_s") == pytest.approx(200, abs=15)
    changed = {n for n in calibration.free() if best(n) != calibration(n)}
    assert changed == set(bounds)


def test_the_same_setting_and_seed_give_the_same_figures() -> None:
    calibration = load_calibration()
    setting = Setting("pdd", 11.0, 600, 100, 7)
    first, second = run(calibration, setting), run(calibration, setting)
    assert first.column("ttft_s").tobytes() == second.column("ttft_s").tobytes()
    assert first.pipelines.tolist() == second.pipelines.tolist()
