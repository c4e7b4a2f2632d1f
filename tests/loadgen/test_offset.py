from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from harness.loadgen.offset import Exchange, estimate_offset

MS = 1_000_000


@given(
    st.integers(-(10**15), 10**15),
    st.lists(st.tuples(st.integers(0, 50 * MS), st.integers(0, 50 * MS)), min_size=1, max_size=16),
)
def test_the_true_offset_lies_within_the_error(truth, legs):
    exchanges = [Exchange(1000, 1000 + there + truth, 1000 + there + back) for there, back in legs]
    found = estimate_offset(exchanges)
    assert abs(found.offset_ns - truth) <= found.error_ns
    assert found.error_ns <= min(there + back for there, back in legs) // 2 + 1


def test_an_offset_within_its_error_is_not_applied():
    assert estimate_offset([Exchange(0, 3, 10)]).applied_ns == 0
    assert estimate_offset([Exchange(0, 10**9, 10)]).applied_ns == 10**9 - 5
