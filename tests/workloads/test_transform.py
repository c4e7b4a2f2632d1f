"""Transformations change what they say and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from tests.workloads.prompts import TRACES, needs_traces, paths
from workloads.caches import infinite_hits
from workloads.errors import TraceError
from workloads.formats import open_trace
from workloads.generator.parameters import Arrivals
from workloads.statistics.trace_statistics import trace_statistics
from workloads.trace import NO_CLOCK
from workloads.transform.arrivals import retime, stretch_to_rate
from workloads.transform.gaps import cap_gaps
from workloads.transform.heads import share_heads
from workloads.transform.join import loop, merge
from workloads.transform.sample import sample_sessions
from workloads.transform.scale import scale_time, scale_tokens
from workloads.transform.schedule import rescheduled
from workloads.transform.select import first_sessions, take_sessions
from workloads.transform.steps import Steps, changed


@pytest.fixture(scope="module")
def trace():
    return open_trace("preset:report", seed=1, sessions=60)


def rates(trace):
    return trace.hit_tokens(infinite_hits(trace)) / trace.turns.input_tokens


def gaps_inside(trace):
    at = trace.turns.arrival_ns - np.repeat(trace.session_start_ns, np.diff(trace.turn_start))
    return at.tolist()


@pytest.mark.parametrize("scale", [0.5, 1 / 16, 1 / 64, 3.0])
def test_whole_blocks_scale_exactly(trace, scale):
    scaled = scale_tokens(trace, scale)
    assert scaled.header.block_size == 64 * scale
    np.testing.assert_array_equal(infinite_hits(scaled), infinite_hits(trace))
    np.testing.assert_allclose(rates(scaled), rates(trace), atol=0.07)
    assert rates(scaled).mean() == pytest.approx(rates(trace).mean(), abs=0.001)
    assert scaled.header.token_scale == scale


@pytest.mark.parametrize("scale", [0.3, 0.01, 1.7])
def test_other_scales_are_told_by_the_token(trace, scale):
    scaled = scale_tokens(trace, scale)
    assert scaled.header.block_size == 1
    t = scaled.turns
    np.testing.assert_array_equal(scaled.tree.depth_of(t.node), t.input_tokens)
    np.testing.assert_allclose(t.input_tokens, trace.turns.input_tokens * scale, atol=1.01)
    assert rates(scaled).mean() == pytest.approx(rates(trace).mean(), abs=0.005)


def test_a_part_filled_block_that_is_shared_stays_shared(tmp_path):
    rows = b"".join(
        b'{"timestamp": %d, "input_length": 700, "output_length": 5, "hash_ids": [1, 2]}\n' % n
        for n in range(3)
    )
    (tmp_path / "m.jsonl").write_bytes(rows)
    whole = open_trace(tmp_path / "m.jsonl")
    for scale in (0.5, 0.3):
        scaled = scale_tokens(whole, scale)
        assert rates(scaled).tolist() == [0, 1, 1], scale


def test_time_scales_all_times(trace):
    faster = scale_time(trace, 0.1)
    np.testing.assert_allclose(faster.turns.delay_ns, trace.turns.delay_ns * 0.1, atol=1)
    np.testing.assert_allclose(faster.turns.arrival_ns, trace.turns.arrival_ns * 0.1, atol=1)
    assert paths(faster) == paths(trace)


@pytest.mark.parametrize("scale", [0, -1, float("nan"), float("inf")])
def test_a_scale_is_above_0(trace, scale):
    for change in (scale_tokens, scale_time):
        with pytest.raises(TraceError, match="above 0"):
            change(trace, scale)


def test_a_gap_cap_cuts_waits_moves_sends_and_is_recorded(trace):
    capped = cap_gaps(trace, 5.0)
    follows = np.diff(trace.turns.after_start) > 0
    np.testing.assert_array_equal(
        capped.turns.delay_ns[follows], np.minimum(trace.turns.delay_ns, 5 * 10**9)[follows]
    )
    assert capped.header.gap_cap_ns == 5 * 10**9
    assert any("capped" in line for line in capped.header.warnings)
    assert capped.turns.arrival_ns.max() < trace.turns.arrival_ns.max()
    assert cap_gaps(capped, 60.0).header.gap_cap_ns == 5 * 10**9
    np.testing.assert_array_equal(cap_gaps(trace, 1e9).turns.arrival_ns, trace.turns.arrival_ns)


def test_a_recorded_schedule_follows_from_waits_and_service(trace):
    np.testing.assert_array_equal(rescheduled(trace).turns.arrival_ns, trace.turns.arrival_ns)


@needs_traces
def test_a_schedule_with_parallel_turns_is_near_the_recorded_one():
    subagents = open_trace(TRACES / "weka_subagent")
    again = rescheduled(subagents)
    # Parents' times are whole seconds.
    drift = np.abs(again.turns.arrival_ns - subagents.turns.arrival_ns) / 1e9
    assert drift.max() < 1.5 * np.sqrt(len(drift))


def test_a_sample_keeps_the_bands_and_follows_its_seed():
    whole = open_trace("preset:weka-like", seed=1, sessions=400)
    small = sample_sessions(whole, 80, seed=3)
    assert len(small.session_ids) == 80
    assert set(small.session_ids) < set(whole.session_ids)
    assert sample_sessions(whole, 80, seed=3).session_ids == small.session_ids
    assert sample_sessions(whole, 80, seed=4).session_ids != small.session_ids
    bands = [np.array(trace_statistics(t).hits[0].band_shares) for t in (whole, small)]
    assert np.abs(bands[0] - bands[1]).max() < 0.04
    with pytest.raises(TraceError, match=r"1\.\.400"):
        sample_sessions(whole, 401, seed=0)


def test_taken_sessions_keep_their_prompts(trace):
    kept = take_sessions(trace, np.array([7, 3]))
    assert kept.session_ids == (trace.session_ids[7], trace.session_ids[3])
    every = paths(trace)
    expected = [p for s in (7, 3) for p in every[trace.turn_start[s] : trace.turn_start[s + 1]]]
    assert paths(kept) == expected
    assert kept.tree.nodes < trace.tree.nodes


def test_first_sessions_are_those_that_start_first(trace):
    assert first_sessions(trace, 5).session_ids == trace.session_ids[:5]


def test_a_loop_repeats_hits_and_invents_none(trace):
    period = float(trace.session_start_ns[-1]) / 1e9
    looped = loop(trace, 2.5 * period)
    assert looped.header.copies == 3
    assert len(set(looped.session_ids)) == len(looped.session_ids)
    n = len(trace)
    np.testing.assert_allclose(rates(looped)[n : 2 * n], rates(trace))
    assert not set(map(tuple, paths(looped)[n])) & set(map(tuple, paths(trace)[0]))
    assert looped.session_start_ns.max() / 1e9 <= 2.5 * period
    assert not trace_statistics(looped).defects


def test_a_loop_needs_arrivals():
    together = open_trace("preset:report", seed=1, sessions=1)
    with pytest.raises(TraceError, match="set arrivals"):
        loop(take_sessions(together, np.array([0])), 10)


def test_merged_traces_play_side_by_side_and_share_nothing(trace):
    both = merge([trace, trace])
    assert len(both) == 2 * len(trace)
    assert sorted(rates(both).tolist()) == sorted(np.tile(rates(trace), 2).tolist())
    assert merge([trace]) is trace
    with pytest.raises(TraceError, match="block_size"):
        merge([trace, scale_tokens(trace, 0.5)])


def test_retimed_sessions_keep_their_order_and_inside(trace):
    again = retime(trace, Arrivals(rate_per_s=3, cv=1.5), seed=2)
    assert gaps_inside(again) == gaps_inside(trace)
    assert (np.diff(again.session_start_ns) >= 0).all()
    np.testing.assert_array_equal(again.turns.delay_ns, trace.turns.delay_ns)


def test_a_stretch_keeps_the_pattern_and_meets_the_rate(trace):
    again = stretch_to_rate(trace, 2.0)
    assert (len(again.session_ids) - 1) / (again.session_start_ns[-1] / 1e9) == pytest.approx(2.0)
    ratio = again.session_start_ns[1:] / trace.session_start_ns[1:]
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-6)
    assert gaps_inside(again) == gaps_inside(trace)


@needs_traces
def test_heads_of_one_length_become_common():
    weka = open_trace(TRACES / "weka_le64k" / "traces")
    shared = share_heads(weka)
    first = weka.turn_start[:-1]
    head_blocks = weka.turns.shared_tokens[first] // 64
    hits = infinite_hits(shared)[first]
    own = infinite_hits(weka)
    seen: set[int] = set()
    for blocks, hit in zip(head_blocks.tolist(), hits.tolist(), strict=True):
        assert hit == (blocks if blocks in seen else 0)
        seen.add(blocks)
    # What was shared inside a session still is, and lengths are untouched.
    assert (infinite_hits(shared) >= own).all()
    np.testing.assert_array_equal(
        shared.tree.depth_of(shared.turns.node), weka.tree.depth_of(weka.turns.node)
    )


@needs_traces
def test_arrivals_end_the_warning_that_there_are_none():
    weka = open_trace(TRACES / "weka_le40k" / "traces")
    assert NO_CLOCK in weka.header.warnings
    steps = Steps(rate_per_s=0.5, cv=2.0, loop_s=120.0, gap_cap_s=60.0, time_scale=0.1, token_scale=1 / 16)
    small = changed([weka], steps)
    assert NO_CLOCK not in small.header.warnings
    assert small.header.gap_cap_ns == 6 * 10**9
    assert rates(small).mean() == pytest.approx(rates(weka).mean(), abs=0.02)
