"""The closed formula agrees with stepping one by one."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from harness.sim.decode_clock import DecodeClock


@settings(deadline=None)  # a busy machine is no failure
@given(
    first_s=st.floats(1e-4, 0.1),
    growth_s=st.floats(0, 1e-4),
    cuts=st.lists(st.integers(1, 40), min_size=1, max_size=8),
    probe=st.floats(0, 1),
)
def test_steps_end_where_a_loop_would_end_them(
    first_s: float, growth_s: float, cuts: list[int], probe: float
) -> None:
    clock = DecodeClock(log=True)
    clock.begin(1000, first_s, growth_s)
    ends = [1000.0]
    for k in range(sum(cuts) + 1):
        ends.append(ends[-1] + (first_s + k * growth_s) * 1e9)
    for cut in cuts:
        clock.advance(cut)
    total = sum(cuts)
    assert clock.steps == total
    told = clock.ends_ns(0, total)
    assert all(abs(a - b) <= 1 + len(cuts) for a, b in zip(told, ends[1:], strict=False))
    at_ns = int(ends[total] + probe * (ends[total + 1] - ends[total]))
    assert clock.done_by(at_ns) in (0, 1)
    if probe < 0.99:
        assert clock.done_by(at_ns) == 0


def test_a_step_is_done_at_the_very_instant_it_ends() -> None:
    clock = DecodeClock(log=False)
    clock.begin(0, 0.001, 1e-6)
    for k in range(1, 2000):
        assert clock.done_by(clock.end_ns(k)) == k
        assert clock.done_by(clock.end_ns(k) - 1) == k - 1
