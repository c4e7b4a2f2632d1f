"""The published figures of the real traces come out of their files."""

from __future__ import annotations

from functools import cache

import pytest

from tests.workloads.prompts import TRACES, needs_traces
from workloads.formats import open_trace
from workloads.readers.options import ReadOptions
from workloads.statistics.trace_statistics import Questions, TraceStatistics, trace_statistics
from workloads.trace import Trace

pytestmark = needs_traces

MEAN, POINTS = 0.005, 0.005


@cache
def opened(name: str, *, keep_forks: bool) -> Trace:
    return open_trace(TRACES / name, options=ReadOptions(keep_forks=keep_forks))


def figures(name: str, questions: Questions | None = None, *, keep_forks: bool = False) -> TraceStatistics:
    return trace_statistics(opened(name, keep_forks=keep_forks), questions)


@pytest.mark.parametrize(
    ("name", "requests", "mean", "above_95", "below_50", "out_500"),
    [
        ("weka_le64k/traces", 975, 0.890, 0.709, 0.071, 0.77),
        ("weka_le64k/flat_block64.jsonl", 975, 0.890, 0.709, 0.071, 0.77),
        ("weka_le40k/traces", 303, 0.876, 0.703, 0.089, 0.78),
        ("weka_prefix_tree.csv.gz", 44_758, 0.950, 0.881, 0.035, 0.80),
        ("mooncake/conversation_trace.jsonl", 12_031, 0.409, 0.098, 0.576, 0.79),
    ],
)
def test_infinite_cache(name, requests, mean, above_95, below_50, out_500):
    s = figures(name)
    (hits,) = s.hits
    assert s.turns == requests
    assert hits.request_mean == pytest.approx(mean, abs=MEAN)
    assert hits.above_95_share == pytest.approx(above_95, abs=POINTS)
    assert hits.below_50_share == pytest.approx(below_50, abs=POINTS)
    assert s.output_below_500_share == pytest.approx(out_500, abs=0.006)


def test_ttl_of_two_minutes_with_warm_heads():
    """The published line counts every session, forks too, and takes tools and system prompts as warm."""
    s = figures("weka_prefix_tree.csv.gz", Questions(ttl_s=(120.0,), warm_prefix=True), keep_forks=True)
    hits = s.hits[1]
    assert s.turns == 49_334
    assert hits.request_mean == pytest.approx(0.890, abs=MEAN)
    assert hits.above_95_share == pytest.approx(0.813, abs=POINTS)
    assert hits.below_50_share == pytest.approx(0.110, abs=POINTS)


def test_few_requests_carry_most_of_the_missed_tokens():
    (hits,) = figures("weka_prefix_tree.csv.gz").hits
    assert hits.missed_by_top_1pct == pytest.approx(0.45, abs=0.01)
    assert hits.missed_by_top_10pct == pytest.approx(0.79, abs=0.01)


def test_all_block_references_are_counted():
    assert figures("weka_prefix_tree.csv.gz", keep_forks=True).block_references == 94_310_647


def test_forks_that_the_file_marks_are_those_found_by_their_first_turns():
    s = figures("weka_prefix_tree.csv.gz", keep_forks=True)
    assert {d.kind.value: d.count for d in s.defects} == {"zero_output": 27, "fork_duplicate": 34}


def test_ticks_of_three_seconds_are_spread_and_said():
    s = figures("mooncake/conversation_trace.jsonl")
    assert s.request_arrivals is not None
    assert s.request_arrivals.zero_gap_share < 0.01
    assert s.request_arrivals.gap_cv == pytest.approx(1.0, abs=0.05)
    assert any("ticks" in line for line in s.warnings)
