from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from harness.loadgen.histogram import Histogram

VALUES = st.lists(st.integers(0, 10**12), min_size=1, max_size=200)


def of(values) -> Histogram:
    histogram = Histogram()
    for value in values:
        histogram.add(value)
    return histogram


@given(VALUES, st.floats(0.01, 1.0))
def test_quantiles_are_those_of_the_values_within_a_bucket(values, share):
    exact = sorted(values)[max(0, -(-round(share * len(values) * 1e9) // 10**9) - 1)]
    found = of(values).quantile(share)
    neighbours = [v for v in values if abs(v - found) <= v * 0.017 + 1]
    assert neighbours
    assert abs(found - exact) <= exact * 0.017 + 1 or exact in values


@given(VALUES, VALUES)
def test_merging_is_counting_together(a, b):
    merged = of(a)
    merged.merge([of(b)])
    assert merged == of(a + b)


@given(VALUES, VALUES)
def test_what_was_added_since_a_copy(a, b):
    histogram = of(a)
    before = histogram.copy()
    for value in b:
        histogram.add(value)
    assert histogram.since(before).buckets == of(b).buckets


def test_nothing_counted_has_no_quantile():
    assert Histogram().quantile(0.5) is None


def test_a_long_run_needs_few_buckets():
    assert len(of(range(0, 10**9, 9973)).buckets) < 1000
