"""Step times read off the counters of a run are those that its workers had."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.costs.deployment import deploy
from harness.experiment.observed_steps import observed
from reports.run import Run
from tests.sim.test_sim_command import _TEXT, simulate


def test_a_simulated_runs_counters_give_its_cost_model_back(tmp_path: Path) -> None:
    text = _TEXT.replace("[sim]", "[sim]\nsample_s = 0.1").replace("sessions = 4", "sessions = 12")
    found = observed(Run.open(simulate(tmp_path / "a", text)))
    truth = deploy("llama-3-8b", "h100x1")
    assert found.overhead_s.value == pytest.approx(truth.overhead_s + truth.weights_s, rel=0.25)
    assert found.kv_bytes_per_token.value == truth.kv_bytes_per_token
    assert found.name == "sim llama-3-8b on h100x1"


def test_a_run_with_too_little_in_it_is_refused(tmp_path: Path) -> None:
    text = _TEXT.replace("[sim]", "[sim]\nsample_s = 1000.0")
    with pytest.raises(ValueError, match="intervals with steps; 20 are needed"):
        observed(Run.open(simulate(tmp_path / "a", text)))
