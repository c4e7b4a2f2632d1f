"""Faults: which requests they touched, and when service was as before."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from fake_run import FakeFault, FakeRun

from reports.breakdown import breakdown
from reports.metric_table import metric
from reports.recovery import faults, recoveries
from reports.run import Run
from reports.sides import open_sides
from reports.survival import survivals


def test_requests_are_before_during_and_after(with_faults: Run) -> None:
    frame = open_sides([(with_faults, "xdc")]).sides[0].frame
    groups = {group.label: group for group in breakdown(frame, "phase")}
    assert list(groups) == ["before", "during", "after"]
    assert sum(group.requests for group in groups.values()) == len(frame)
    assert groups["during"].figures["ttft_p50"] > 1.5 * groups["before"].figures["ttft_p50"]
    assert groups["before"].figures["error_rate"] == 0
    assert groups["during"].figures["error_rate"] > 0


def test_recovery_is_prompt_when_the_fault_only_slows(with_faults: Run) -> None:
    first, second = recoveries(with_faults, "pdd", 0)
    assert (first.fault.name, second.fault.name) == ("collapse", "partition")
    assert first.recovery_s is not None
    assert first.recovery_s < 5
    assert metric("recovery_time").statistic(with_faults, "pdd").point() is not None


def test_service_that_stays_down_never_recovers(runs: Path) -> None:
    fault = FakeFault("outage", 8, 60, slow=1.0, error_rate=0.9)
    run = FakeRun(cells=("pdd",), sessions=30, turns=4, reps=1, faults=(fault,)).write(runs / "run")
    table = run.path / "faults"
    assert len(faults(run, "pdd", 0)) == 1
    (found,) = recoveries(run, "pdd", 0)
    assert table.exists()
    assert found.recovery_s in {None, math.inf}


def test_survival_tells_the_modes_apart(with_faults: Run) -> None:
    by_mode = {
        side.cell.name: {s.fault: s for s in survivals(side)}
        for side in open_sides([(with_faults, "xdc"), (with_faults, "pdd")]).sides
    }
    collapse = {mode: found["collapse"] for mode, found in by_mode.items()}
    assert collapse["pdd"].ttft_p99_ms < collapse["xdc"].ttft_p99_ms
    assert collapse["pdd"].failed == 0
    assert by_mode["pdd"]["partition"].failed > 0
    assert by_mode["pdd"]["partition"].ttft_p99_ms == np.inf
