"""The same experiment live on emulated workers and in virtual time: the same decisions, the same TTFT."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from rich.console import Console

from harness.experiment.agreement import agreement
from harness.experiment.config import load_experiment
from harness.experiment.runner import run_experiment
from harness.experiment.simulated import run_simulated
from reports.run import Run
from tests.sim.test_sim_command import simulate

_EXPERIMENT = Path(__file__).resolve().parents[2] / "experiments" / "agreement.toml"
_SHORT = {"load": {"limits": {"duration_s": 60}}, "workload": {"sessions": 16}}


def test_a_run_agrees_with_itself(tmp_path: Path) -> None:
    run = Run.open(simulate(tmp_path / "a"))
    for cell in agreement(run, run):
        assert cell.same_pipeline == 1.0
        assert all(cell.ttft_error(q) == 0 for q in (50, 90, 99))
        assert cell.requests == len(run.table("requests", cell.cell, 0))


@pytest.mark.live
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_virtual_time_agrees_with_live_workers(tmp_path: Path) -> None:
    """Two and a half minutes. On a machine too busy for the live run it says so and skips."""
    experiment = load_experiment(_EXPERIMENT, _SHORT)
    console = Console(quiet=True)
    asyncio.run(run_experiment(experiment, tmp_path / "live", console))
    run_simulated(experiment, tmp_path / "sim", console, jobs=1)
    live = Run.open(tmp_path / "live")
    faults = [why for rep in live.info.reps if not rep.validity.valid for why in rep.validity.reasons]
    if faults:
        pytest.skip(f"the live run is invalid on this machine: {faults[0]}")
    for cell in agreement(live, Run.open(tmp_path / "sim")):
        assert cell.same_pipeline is not None
        assert cell.same_pipeline >= 0.95, cell
        assert abs(cell.ttft_error(50)) <= 0.10, cell
        assert abs(cell.ttft_error(99)) <= 0.20, cell
