from __future__ import annotations

import numpy as np
import pytest

from harness.loadgen.arrivals import start_offsets
from harness.loadgen.job import (
    ClosedLoop,
    ConstantArrivals,
    EveryTurn,
    GammaArrivals,
    PoissonArrivals,
    RecordedArrivals,
)


@pytest.mark.parametrize("arrivals", [RecordedArrivals(), ClosedLoop(3), EveryTurn()])
def test_the_plan_or_the_loop_decides(arrivals):
    assert start_offsets(arrivals, 10, 1) is None


def test_constant_arrivals_do_not_drift():
    offsets = start_offsets(ConstantArrivals(7.0), 100_000, 1)
    assert offsets[70_000] == 10_000 * 10**9


def test_poisson_gaps_have_the_rate_and_spread_of_an_exponential():
    gaps = np.diff(start_offsets(PoissonArrivals(50.0), 200_000, 1)) / 1e9
    assert gaps.mean() == pytest.approx(1 / 50, rel=0.01)
    assert gaps.std() / gaps.mean() == pytest.approx(1.0, rel=0.02)


def test_gamma_gaps_have_the_asked_coefficient_of_variation():
    gaps = np.diff(start_offsets(GammaArrivals(50.0, cv=3.0), 400_000, 1)) / 1e9
    assert gaps.mean() == pytest.approx(1 / 50, rel=0.03)
    assert gaps.std() / gaps.mean() == pytest.approx(3.0, rel=0.05)


def test_a_ramp_rises_linearly_to_the_rate_and_stays_there():
    offsets = start_offsets(ConstantArrivals(100.0, ramp_s=10.0), 2000, 1) / 1e9
    counts = np.histogram(offsets, bins=np.arange(0, 16))[0]
    assert counts[0] == pytest.approx(5, abs=1)
    assert counts[5] == pytest.approx(55, abs=1)
    assert counts[9] == pytest.approx(95, abs=1)
    assert counts[10:15] == pytest.approx([100] * 5, abs=1)


def test_the_same_seed_gives_the_same_instants_and_another_does_not():
    first = start_offsets(PoissonArrivals(5.0), 50, 1)
    assert (first == start_offsets(PoissonArrivals(5.0), 50, 1)).all()
    assert (first != start_offsets(PoissonArrivals(5.0), 50, 2)).any()
