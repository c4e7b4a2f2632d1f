"""Caches over whole runs of blocks do what caches of single blocks do."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.workloads.prompts import infinite, lru, prompts, trace_of, ttl
from workloads.caches import infinite_hits, lru_hits, ttl_hits
from workloads.errors import TraceError


@given(prompts)
def test_an_infinite_cache_holds_every_prefix_ever_sent(ids):
    assert infinite_hits(trace_of(ids)).tolist() == infinite(ids)


@given(prompts, st.integers(0, 40))
def test_lru_matches_a_cache_of_single_blocks(ids, capacity):
    assert lru_hits(trace_of(ids), capacity).tolist() == lru(ids, capacity)


@given(prompts, st.integers(0, 100))
def test_ttl_matches_a_cache_of_single_blocks(ids, ttl_ns):
    assert ttl_hits(trace_of(ids, gap_ns=10), ttl_ns).tolist() == ttl(ids, 10, ttl_ns)


@given(prompts)
def test_large_caches_are_infinite(ids):
    trace = trace_of(ids)
    assert lru_hits(trace, 10_000).tolist() == ttl_hits(trace, 10**15).tolist() == infinite(ids)


def test_a_use_lasts_until_its_request_has_ended():
    ids = [[1, 2], [1, 2]]
    assert ttl_hits(trace_of(ids, gap_ns=100), 50).tolist() == [0, 0]
    assert ttl_hits(trace_of(ids, gap_ns=100, service_ns=60), 50).tolist() == [0, 2]


@pytest.mark.parametrize("simulate", [lru_hits, ttl_hits])
def test_a_negative_size_is_refused(simulate):
    with pytest.raises(TraceError, match="0 or more"):
        simulate(trace_of([[1]]), -1)


def test_hits_come_in_the_order_of_sends():
    trace = trace_of([[1, 2], [1, 2, 3]])
    late_first = np.array([100, 0])
    object.__setattr__(trace.turns, "arrival_ns", late_first)
    assert infinite_hits(trace).tolist() == [2, 0]
