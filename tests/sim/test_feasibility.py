"""Bandwidth by arithmetic, latency by the line model, and a verdict that follows from both."""

from __future__ import annotations

import math

import pytest

from harness.costs.profile import load_model
from harness.sim.feasibility import Feasibility, analyse
from harness.sim.wan import LineModel
from tests.sim.cells import chain

MODEL = load_model("llama-3-8b")  # 131,072 bytes a token, no window


def look(rate_gbit: float, rate: float = 1.0) -> Feasibility:
    sessions = [chain(f"s{i}", 0, [(9000, 100), (900, 100)]) for i in range(200)]
    line = LineModel(rate_gbit * 1e9 / 8, 0.02, efficiency=1.0, slow_start=False)
    return analyse(sessions, MODEL, line, rate=rate, arrival_cv2=1.0, bound_s=1.0, seed=1)


def test_demand_is_tokens_that_md_lacks_times_bytes_times_rate() -> None:
    found = look(100)
    assert found.with_cache.kv_bytes_s == pytest.approx((9000 + 900) / 2 * 131_072)
    assert found.without_cache.kv_bytes_s == pytest.approx((9000 + 10_000) / 2 * 131_072)
    assert found.with_cache.utilisation == pytest.approx(found.with_cache.kv_bytes_s * 8 / 100e9)


def test_a_wide_line_needs_no_relay() -> None:
    found = look(100)
    assert found.with_cache.beyond_share == 0
    assert found.verdict.startswith("feasible without a relay")


def test_a_narrow_line_saturates_without_the_cache_first() -> None:
    found = look(8)
    assert found.without_cache.utilisation > 1 > found.with_cache.utilisation
    assert math.isinf(found.without_cache.transfer_s[0])
    assert "without the decode-side cache it would not" in found.verdict


def test_a_line_that_is_too_small_is_called_so() -> None:
    assert look(2).verdict.startswith("not feasible")


def test_an_empty_trace_is_an_error() -> None:
    with pytest.raises(ValueError, match="no request"):
        analyse([], MODEL, LineModel(1e9, 0.02), rate=1, arrival_cv2=1, bound_s=1, seed=1)
