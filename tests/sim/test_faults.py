"""Faults in virtual time do what their live counterparts do, or are refused by name."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from harness.experiment.config import ConfigError, load_experiment, resolve
from harness.experiment.simulated_faults import sim_faults
from harness.sim.cell import Pause, SimFault, Slowdown
from harness.sim.clients import Load
from harness.sim.request import SimRequest
from harness.sim.simulation import Simulation
from tests.sim.cells import Witness, cell, chain, check_rest

S = 10**9
_EXPERIMENT = Path(__file__).resolve().parents[2] / "experiments" / "drc.toml"


def answered(*faults: SimFault, segment_tokens: int | None = None) -> SimRequest:
    """One request of 2,000 tokens, a millisecond each, decoded by MD."""
    witness = Witness()
    made = cell("xdc", faults=faults, segment_tokens=segment_tokens)
    sim = Simulation(made, iter([chain("s", 0, [(100, 2000)])]), Load(), witness, seed=1)
    sim.run()
    check_rest(sim, deaths=False)
    (request,) = witness.ended_requests
    assert request.status == "ok"
    return request


@pytest.mark.parametrize("segment_tokens", [None, 1024], ids=["datacenter", "live"])
def test_a_paused_worker_goes_on_where_it_stood(segment_tokens: int | None) -> None:
    calm = answered(segment_tokens=segment_tokens)
    paused = answered(SimFault(S, pause=Pause("md2", 3 * S)), segment_tokens=segment_tokens)
    assert paused.end_ns - calm.end_ns == pytest.approx(2 * S, abs=10)
    gaps = [b - a for a, b in pairwise(paused.instants().tolist())]
    assert sum(gap > 1.5 * S for gap in gaps) == 1


def test_what_reaches_a_paused_worker_waits_for_it() -> None:
    """P is paused before the prompt comes."""
    calm, paused = answered(), answered(SimFault(0, pause=Pause("p0", S)))
    assert paused.end_ns - calm.end_ns == pytest.approx(S, abs=10)


def test_pauses_that_overlap_are_one() -> None:
    twice = answered(SimFault(S, pause=Pause("md2", 3 * S)), SimFault(2 * S, pause=Pause("md2", 4 * S)))
    assert twice.end_ns == pytest.approx(answered(SimFault(S, pause=Pause("md2", 4 * S))).end_ns, abs=10)


def test_a_slowed_worker_takes_longer_steps_for_a_while() -> None:
    slowed = answered(
        SimFault(S, slowdown=Slowdown("md2", 4.0)), SimFault(2 * S, slowdown=Slowdown("md2", 0.25))
    )
    gaps = [b - a for a, b in pairwise(slowed.instants().tolist())]
    calm_ns = gaps[0]
    assert sum(gap > 3 * calm_ns for gap in gaps) == pytest.approx(S / (4 * calm_ns), rel=0.05)
    assert gaps[-1] < 1.5 * calm_ns


def simulated(fault: dict[str, object]) -> tuple[tuple[SimFault, ...], list[dict[str, object]]]:
    experiment = load_experiment(_EXPERIMENT, {"faults": [fault]})
    return sim_faults(resolve(experiment)[0], 1)


def test_an_experiments_worker_faults_become_changes_of_that_worker() -> None:
    changes, rows = simulated({"kind": "worker_pause", "at_s": 2, "duration_s": 3, "worker": "main-0"})
    assert changes == (SimFault(2 * S, pause=Pause("main-0", 5 * S)),)
    assert (rows[0]["applied_ns"], rows[0]["cleared_ns"]) == (2 * S, 5 * S)
    slow = {"kind": "worker_slowdown", "at_s": 1, "duration_s": 1, "worker": "prefill-1", "share": 0.75}
    changes, _ = simulated(slow)
    assert changes == (
        SimFault(S, slowdown=Slowdown("prefill-1", 4.0)),
        SimFault(2 * S, slowdown=Slowdown("prefill-1", 0.25)),
    )


@pytest.mark.parametrize(
    "fault",
    [
        {"kind": "bufferbloat", "at_s": 1, "duration_s": 1},
        {"kind": "record_disk_full", "at_s": 1, "duration_s": 1},
    ],
    ids=lambda fault: str(fault["kind"]),
)
def test_what_virtual_time_does_not_know_is_refused_in_one_line(fault: dict[str, object]) -> None:
    with pytest.raises(
        ConfigError, match=f"{fault['kind']} is not simulated; leave it out, or run live"
    ) as e:
        simulated(fault)
    assert "\n" not in str(e.value)


def test_a_worker_that_is_not_there_is_refused() -> None:
    with pytest.raises(ConfigError, match="'main-7' is none of"):
        simulated({"kind": "worker_pause", "at_s": 1, "duration_s": 1, "worker": "main-7"})
