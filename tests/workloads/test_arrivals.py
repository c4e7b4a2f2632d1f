"""Sessions arrive at the rate, with the burstiness and the wave asked for."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from workloads.generator.arrivals import arrival_times, renewal_gaps, weibull_shape, zipf_weights
from workloads.generator.parameters import Arrivals, Process
from workloads.statistics.arrivals import arrival_statistics

RNG = 11


@pytest.mark.parametrize("process", list(Process))
@pytest.mark.parametrize("cv", [1.0, 2.0, 3.5])
def test_gaps_have_the_mean_and_the_variation_asked_for(process, cv):
    gaps = renewal_gaps(Arrivals(rate_per_s=1, process=process, cv=cv), 400_000, np.random.default_rng(RNG))
    assert gaps.mean() == pytest.approx(1, rel=0.05)
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.06)


def test_a_weibull_of_cv_1_is_exponential():
    assert weibull_shape(1.0) == pytest.approx(1.0)


def test_the_rate_is_met():
    at, client = arrival_times(Arrivals(rate_per_s=4, cv=2), 20_000, np.random.default_rng(RNG))
    assert at[0] == 0
    assert (np.diff(at) >= 0).all()
    assert 20_000 / at[-1] == pytest.approx(4, rel=0.05)
    assert (client == 0).all()


def test_clients_are_skewed_by_zipf():
    arrivals = Arrivals(rate_per_s=4, cv=1, clients=5, client_zipf=1.5)
    _, client = arrival_times(arrivals, 50_000, np.random.default_rng(RNG))
    shares = np.bincount(client, minlength=5) / 50_000
    np.testing.assert_allclose(shares, zipf_weights(5, 1.5), atol=0.01)


def test_the_daily_wave_is_quiet_at_0_and_busy_half_a_period_on():
    arrivals = Arrivals(rate_per_s=10, cv=1, diurnal_swing=0.8, diurnal_period_s=1000)
    at, _ = arrival_times(arrivals, 100_000, np.random.default_rng(RNG))
    phase = np.histogram(at % 1000, bins=10, range=(0, 1000))[0]
    assert phase[4:6].sum() > 6 * (phase[0] + phase[-1])
    assert 100_000 / at[-1] == pytest.approx(10, rel=0.05)


def test_statistics_tell_bursts_from_poisson():
    rng = np.random.default_rng(RNG)
    for cv in (1.0, 3.0):
        at, _ = arrival_times(Arrivals(rate_per_s=5, cv=cv), 50_000, rng)
        s = arrival_statistics(np.round(at * 1e9).astype(np.int64))
        assert s is not None
        assert s.gap_cv == pytest.approx(cv, rel=0.1)
        assert s.dispersion["60 s"] == pytest.approx(cv**2, rel=0.25)
        assert s.rate_per_s == pytest.approx(5, rel=0.1)


@pytest.mark.parametrize("instants", [[], [1], [1, 2], [5, 5, 5, 5]])
def test_too_little_to_tell_is_none(instants):
    assert arrival_statistics(np.array(instants, np.int64)) is None


def test_times_equal_for_equal_seeds():
    arrivals = Arrivals(rate_per_s=1, cv=2, clients=3)
    one, two = (arrival_times(arrivals, 100, np.random.default_rng(3))[0] for _ in range(2))
    np.testing.assert_array_equal(one, two)
    other = msgspec.structs.replace(arrivals, cv=3)
    assert not np.array_equal(one, arrival_times(other, 100, np.random.default_rng(3))[0])
