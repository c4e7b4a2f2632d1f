"""The statistics against brute force, and their error rates on data of known truth."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import false_discovery_control, mannwhitneyu

from reports.stats.change import change, estimate
from reports.stats.correction import benjamini_hochberg
from reports.stats.ranks import mann_whitney
from reports.stats.resample import draw
from reports.stats.sample import Sample
from reports.stats.statistic import PerRepetition, Quantile, Ratio

BOTH = np.ones(40, bool)


def sample(values: list[float] | np.ndarray, groups: object = None, reps: object = None) -> Sample:
    values = np.array(values, float)
    groups = np.arange(len(values)) if groups is None else groups
    reps = np.zeros(len(values)) if reps is None else reps
    return Sample.of(values, np.asarray(groups, np.int32), np.asarray(reps, np.int16))


def test_each_value_keeps_its_group_when_sorted():
    rng = np.random.default_rng(7)
    values = np.concatenate([rng.normal(0, 1e3, 500), [np.inf, -0.5, 0.0, np.nan, 1e-300, -1e300]])
    groups = rng.integers(0, 256, len(values))
    found = sample(values, groups)
    expected = sorted((v, int(g)) for v, g in zip(values, groups, strict=True) if not np.isnan(v))
    assert list(zip(found.values, found.groups, strict=True)) == expected
    both = found.joined(found, 256)
    assert np.array_equal(np.bincount(both.groups % 256), 2 * np.bincount(found.groups))
    assert np.array_equal(both.values, np.repeat(found.values, 2))
    assert (both.groups > 255).sum() == len(found.values)


@settings(max_examples=60, deadline=None)
@given(
    values=st.lists(st.sampled_from([1.0, 2.0, 2.0, 3.5, 8.0, float("inf")]), min_size=1, max_size=60),
    q=st.sampled_from([0.01, 0.5, 0.9, 0.99, 0.999, 1.0]),
    seed=st.integers(0, 2**20),
)
def test_weighted_quantile_equals_brute_force(values: list[float], q: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    groups = rng.integers(0, 7, len(values))
    s = sample(values, groups)
    weights = rng.integers(0, 4, (20, 7)).astype(np.float32)
    found = s.weighted_quantiles(weights, q)
    for row, quantile in zip(weights, found, strict=True):
        repeated = np.repeat(s.values, row[s.groups].astype(int))
        if not len(repeated):
            assert np.isnan(quantile)
        else:
            assert quantile == np.quantile(repeated, q, method="inverted_cdf")


def test_weighted_quantile_of_many_is_within_a_hair_of_brute_force() -> None:
    rng = np.random.default_rng(3)
    groups = rng.integers(0, 200, 200_000)
    s = sample(rng.lognormal(size=200_000) * (1 + groups / 100), groups)
    weights = rng.multinomial(200, np.full(200, 1 / 200), 10).astype(np.float32)
    for q in (0.5, 0.99):
        brute = [
            np.quantile(np.repeat(s.values, row[s.groups].astype(int)), q, method="inverted_cdf")
            for row in weights
        ]
        spread = np.std(brute)
        assert np.abs(s.weighted_quantiles(weights, q) - brute).max() < spread / 50


def test_quantile_is_the_nearest_rank() -> None:
    s = sample([5.0, 1.0, np.nan, 3.0, np.inf])
    assert [s.quantile(q) for q in (0.25, 0.5, 0.75, 1.0)] == [1.0, 3.0, 5.0, np.inf]
    assert sample([]).quantile(0.5) is None
    assert s.beyond(0.5) == 2


def test_mann_whitney_equals_scipy_when_clusters_are_single() -> None:
    rng = np.random.default_rng(5)
    a, b = rng.normal(size=40).round(1), rng.normal(0.5, size=40).round(1)
    draws = draw(BOTH, BOTH, paired=False, seed=1)
    p, delta = mann_whitney(sample(a).joined(sample(b), 40), draws)
    known = mannwhitneyu(b, a)
    assert delta == pytest.approx(2 * known.statistic / 1600 - 1)
    assert p == pytest.approx(known.pvalue, abs=0.02)


def test_benjamini_hochberg_equals_scipy_and_skips_the_undefined() -> None:
    p = np.array([0.04, 0.001, 0.03, 0.9])
    assert benjamini_hochberg(np.insert(p, 2, np.nan))[[0, 1, 3, 4]] == pytest.approx(
        false_discovery_control(p)
    )


def test_a_side_compared_with_itself_never_differs() -> None:
    s = sample(np.random.default_rng(1).lognormal(size=400), np.arange(400) % 40)
    draws = draw(BOTH, BOTH, paired=True, seed=1)
    found = change(Quantile(s, 0.99), Quantile(s, 0.99), draws, s.joined(s, 40))
    assert found is not None
    assert (found.absolute, found.low, found.high, found.p) == (0, 0, 0, 1)


def sessions(
    rng: np.random.Generator, level: np.ndarray, factor: float, reps: int = 3, noise: float = 0.0
) -> Sample:
    """40 sessions of 12 turns, correlated within a session, `factor` slower, whole repetitions noisy."""
    turns = 12
    groups = np.tile(np.repeat(np.arange(40), turns), reps)
    rep = np.repeat(np.arange(reps), 40 * turns)
    values = np.exp(level[groups] + 0.3 * rng.normal(size=len(groups))) * factor
    return sample(values * np.exp(noise * rng.normal(size=reps))[rep], groups, rep)


@pytest.mark.parametrize("q", [0.5, 0.99])
@pytest.mark.parametrize("noise", [0.0, 0.05])
@pytest.mark.parametrize("paired", [True, False])
def test_equal_sides_differ_significantly_about_as_often_as_alpha_allows(
    q: float, noise: float, paired: bool
) -> None:
    rng = np.random.default_rng(17)
    false = 0
    for round_ in range(60):
        level = rng.normal(scale=0.5, size=40)
        other = level if paired else rng.normal(scale=0.5, size=40)
        a, b = sessions(rng, level, 1, noise=noise), sessions(rng, other, 1, noise=noise)
        draws = draw(BOTH, BOTH, paired=paired, seed=round_, draws=200)
        found = change(Quantile(a, q), Quantile(b, q), draws, a.joined(b, 40))
        assert found is not None
        assert found.p is not None
        false += found.p < 0.05
    print(f"{false} of 60")
    assert false <= 9  # a rate of 5 % exceeds 9 of 60 once in a thousand


def test_ten_percent_is_found_in_the_median_and_the_tail() -> None:
    rng = np.random.default_rng(23)
    found = {0.5: 0, 0.9: 0}
    for round_ in range(10):
        level = rng.normal(scale=0.5, size=40)
        a, b = sessions(rng, level, 1), sessions(rng, level, 1.1)
        draws = draw(BOTH, BOTH, paired=True, seed=round_)
        for q in found:
            result = change(Quantile(a, q), Quantile(b, q), draws, a.joined(b, 40))
            assert result is not None
            assert result.p is not None
            found[q] += result.p < 0.05
    print(found)
    assert found[0.5] >= 9


def test_interval_covers_the_truth_about_95_times_in_100() -> None:
    rng = np.random.default_rng(29)
    covered = 0
    for round_ in range(200):
        values = rng.exponential(size=(40, 5)) + rng.exponential(size=(40, 1))
        s = sample(values.ravel(), np.repeat(np.arange(40), 5))
        draws = draw(BOTH, BOTH, paired=True, seed=round_, draws=400)
        e = estimate(Quantile(s, 0.5), draws.bootstrap)
        covered += e.low <= 1.678 <= e.high  # median of a gamma(2)
    assert 180 <= covered <= 199


def test_detectable_difference_is_found_8_times_in_10() -> None:
    rng = np.random.default_rng(31)
    found = 0
    for round_ in range(40):
        level = rng.normal(scale=0.5, size=40)
        a = sessions(rng, level, 1)
        draws = draw(BOTH, BOTH, paired=True, seed=round_, draws=200)
        b = sessions(rng, level, 1)
        detectable = change(Quantile(a, 0.5), Quantile(b, 0.5), draws, a.joined(b, 40)).detectable
        b = sessions(rng, level, 1 + detectable / a.quantile(0.5))
        found += change(Quantile(a, 0.5), Quantile(b, 0.5), draws, a.joined(b, 40)).p < 0.05
    assert 25 <= found <= 39


def test_rates_and_shares_are_drawn_by_session() -> None:
    good = np.array([3.0, 0.0, 5.0])
    rate = Ratio(good, np.zeros(3), good, np.array([4.0]), 8, constant=4.0)
    assert rate.point() == 2.0
    assert rate.weighted(np.array([[1, 1, 1], [0, 3, 0]], np.float32)).tolist() == [2.0, 0.0]
    share = Ratio(good, np.array([3.0, 2.0, 5.0]), good, good, 10)
    assert share.point() == 0.8
    assert Ratio(good * 0, good * 0, good, good, 0).point() is None


def test_numbers_per_repetition_need_repetitions() -> None:
    one = change(PerRepetition(np.array([1.0])), PerRepetition(np.array([2.0])), None)
    assert one.p is None
    many = change(PerRepetition(np.array([1.0, 1.1, 0.9])), PerRepetition(np.array([2.0, 2.1, 1.9])), None)
    assert many.p < 0.001
    assert many.low < 1.0 < many.high
