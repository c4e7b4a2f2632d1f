"""The planner's arithmetic, screening and front; one small search end to end."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from functools import partial
from types import SimpleNamespace

import pytest

from harness.costs.profile import load_accelerator, load_line, load_model
from harness.sim.planning.arena import TraceArena
from harness.sim.planning.candidate import Candidate, Evaluation, Prices, Slo, pareto
from harness.sim.planning.estimate import stage_rates
from harness.sim.planning.executor import ExecutorError, Processes, RayCluster
from harness.sim.planning.plan import PlanError, make_plan
from harness.sim.planning.report_setting import report_arena, report_baseline, report_prices, report_space
from harness.sim.planning.search import SearchEffort, Space
from harness.sim.reproduce.calibration import load_calibration
from tests.sim.cells import chain

PRICES = Prices(1.0, 1.25, 0.0175)
SLO = Slo(ttft_s=3.0, tpot_ms=60.0, share=0.95)


def candidate(**changes: object) -> Candidate:
    values: dict[str, object] = {
        "prefill_workers": 1,
        "prefill_devices": 16,
        "relay_workers": 1,
        "relay_devices": 16,
        "main_workers": 1,
        "main_devices": 16,
        "mode": "pdd",
        "relay_bound_ms": 250.0,
        "line_gbit": 20.0,
    }
    return Candidate(**(values | changes))  # type: ignore[arg-type]


def arena() -> TraceArena:
    sessions = tuple(chain(f"s{i}", 0, [(8000, 40), (500, 40), (500, 40)], think_ns=10**9) for i in range(20))
    line = load_line("wan-20g")
    return TraceArena(
        sessions, load_model("deepseek-v3.2"), load_accelerator("h100"), load_accelerator("h200"), line, 0.02
    )


def test_the_reports_cluster_costs_what_the_report_says() -> None:
    calibration = load_calibration()
    base = report_baseline(calibration)
    assert (base.a_devices, base.b_devices) == (43, 32)
    for premium, line, total in ((0.2, 0.32, 81.72), (0.3, 0.35, 84.95)):
        prices = Prices(1.0, 1 + premium, line / 20)
        assert base.cost(prices) == pytest.approx(total)
    assert base in set(report_space(calibration).candidates())
    assert report_prices(calibration).b == pytest.approx(1.25)


def test_the_front_holds_what_nothing_else_beats_in_both() -> None:
    made = [
        Evaluation(candidate(main_workers=i + 1), rate, cost)
        for i, (rate, cost) in enumerate([(5, 10), (6, 9), (8, 20), (7, 25)])
    ]
    assert [(e.rate, e.cost) for e in pareto(made)] == [(6, 9), (8, 20)]


def test_more_of_a_stage_raises_that_stage_alone() -> None:
    place, traffic = arena(), arena().traffic()
    before = stage_rates(place, candidate(), traffic, SLO)
    after = stage_rates(place, candidate(prefill_workers=2), traffic, SLO)
    assert after["prefill"] == pytest.approx(2 * before["prefill"])
    assert after["main"] == before["main"]
    assert after["line"] == before["line"]


def test_a_search_ranks_what_it_simulated_and_tells_what_moves_the_answer() -> None:
    space = Space(((1, 16), (2, 16)), ((0, 0), (1, 16)), ((1, 16),), ("pdd",), (250.0,), (20.0,))
    plan = make_plan(
        arena(),
        space,
        PRICES,
        SLO,
        SearchEffort(keep=2, requests=500, halvings=2),
        Processes(1),
        baseline=candidate(),
    )
    assert plan.best.bcr == max(e.bcr for e in plan.evaluations)
    assert plan.baseline is not None
    assert plan.best.bcr >= plan.baseline.bcr
    assert {m.what for m in plan.moves} >= {"B 20% dearer than A", "B 30% dearer than A", "line of 20 Gbit/s"}


def test_a_bound_that_no_cluster_meets_is_an_error_that_says_so() -> None:
    space = Space(((1, 16),), ((0, 0),), ((1, 16),), (), (), (20.0,))
    with pytest.raises(PlanError, match="TPOT"):
        make_plan(arena(), space, PRICES, Slo(3.0, 0.001), SearchEffort(), Processes(1))


def test_ray_is_asked_for_by_name_where_it_is_missing() -> None:
    if importlib.util.find_spec("ray") is not None:
        pytest.skip("ray is installed here: nothing is missing")
    with pytest.raises(ExecutorError, match="ray is not installed"):
        RayCluster()


class FakeRay:
    """As strict as Ray is: it takes plain functions only, and passes what was put by reference."""

    def __init__(self) -> None:
        self.store: list[object] = []

    def is_initialized(self) -> bool:
        return True

    def put(self, value: object) -> tuple[str, int]:
        self.store.append(value)
        return ("ref", len(self.store) - 1)

    def remote(self, **_: object) -> object:
        def decorate(function: object) -> object:
            if not inspect.isfunction(function):
                raise TypeError("The @ray.remote decorator must be applied to either a function or a class.")
            return SimpleNamespace(remote=lambda *args: self.put(function(*map(self.get, args))))

        return decorate

    def get(self, reference: object) -> object:
        return self.store[reference[1]] if isinstance(reference, tuple) else reference

    def wait(self, pending: list[object], num_returns: int) -> tuple[list[object], list[object]]:
        return pending[-num_returns:], pending[:-num_returns]


def test_a_ray_cluster_evaluates_every_item_and_tells_which_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", FakeRay())
    found = dict(RayCluster().map(partial(pow, 2), [3, 5, 8]))
    assert found == {0: 8, 1: 32, 2: 256}


def test_a_cluster_that_meets_the_slo_at_no_rate_is_not_on_the_front() -> None:
    made = [Evaluation(candidate(), 0.0, 1.0), Evaluation(candidate(prefill_workers=2), 5.0, 9.0)]
    assert [e.rate for e in pareto(made)] == [5.0]


def test_a_shifted_hit_changes_what_prefill_computes() -> None:
    calibration = load_calibration()
    usual, lower = report_arena(calibration).traffic(), report_arena(calibration, -0.02).traffic()
    assert lower.miss_tokens > usual.miss_tokens
    assert usual.miss_tokens == pytest.approx(6550, rel=0.05)
