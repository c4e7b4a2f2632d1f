"""The native format gives back what was written, and conversion keeps or refuses."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from tests.workloads import samples
from tests.workloads.prompts import TRACES, assert_same, needs_traces, prompts, trace_of
from workloads.caches import infinite_hits
from workloads.convert import WRITERS, format_of, write_trace
from workloads.errors import TraceError
from workloads.formats import READERS, open_trace
from workloads.transform.join import loop
from workloads.writers import native


def round_trip(trace, path):
    native.write(trace, path)
    return open_trace(path)


@pytest.mark.parametrize("name", samples.SAMPLES)
def test_a_trace_of_any_format_comes_back(name, tmp_path):
    file, make = samples.SAMPLES[name]
    (tmp_path / file).write_bytes(make())
    trace = open_trace(tmp_path / file)
    assert_same(trace, round_trip(trace, tmp_path / "n.parquet"))


@pytest.mark.parametrize("name", ["report", "small-engine", "mooncake-like", "cold"])
def test_generated_traces_come_back(name, tmp_path):
    trace = open_trace(f"preset:{name}", seed=2, sessions=15)
    assert_same(trace, round_trip(trace, tmp_path / "n.parquet"))


def test_copies_with_scopes_of_their_own_come_back(tmp_path):
    trace = open_trace("preset:report", seed=2, sessions=10)
    looped = loop(trace, 3 * float(trace.session_start_ns[-1]) / 1e9)
    assert_same(looped, round_trip(looped, tmp_path / "n.parquet"))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(prompts)
def test_any_tree_comes_back(tmp_path, ids):
    trace = trace_of(ids)
    assert_same(trace, round_trip(trace, tmp_path / "n.parquet"))


@needs_traces
@pytest.mark.parametrize("name", ["weka_le64k/traces", "mooncake/conversation_trace.jsonl", "weka_subagent"])
def test_real_traces_come_back(name, tmp_path):
    trace = open_trace(TRACES / name)
    assert_same(trace, round_trip(trace, tmp_path / "n.parquet"))


def by_turn(trace):
    """Lengths and hits of every turn, by session and place in it."""
    hits = trace.hit_tokens(infinite_hits(trace))
    t = trace.turns
    rows = {}
    for s, name in enumerate(trace.session_ids):
        for i in range(int(trace.turn_start[s]), int(trace.turn_start[s + 1])):
            rows[name, i - int(trace.turn_start[s])] = (
                int(t.input_tokens[i]),
                int(t.output_tokens[i]),
                int(hits[i]),
                int(t.delay_ns[i]) // 1000,
            )
    return rows


@pytest.mark.parametrize("name", ["report", "weka-like", "small-engine"])
def test_native_to_mooncake_to_native_keeps_hits_lengths_and_waits(name, tmp_path):
    trace = open_trace(f"preset:{name}", seed=3, sessions=40)
    assert write_trace(trace, tmp_path / "m.jsonl", format="mooncake") == ()
    moon = open_trace(tmp_path / "m.jsonl")
    write_trace(moon, tmp_path / "n.parquet", format="native")
    before, after = by_turn(trace), by_turn(open_trace(tmp_path / "n.parquet"))
    # A first turn's wait before the session's start is part of the start.
    assert before.keys() == after.keys()
    assert [v[:3] for v in before.values()] == [after[k][:3] for k in before]
    assert [before[k][3] for k in before if k[1]] == [after[k][3] for k in before if k[1]]


@needs_traces
def test_mooncake_itself_survives_the_round_trip(tmp_path):
    trace = open_trace(TRACES / "mooncake")
    write_trace(trace, tmp_path / "m.jsonl", format="mooncake")
    again = open_trace(tmp_path / "m.jsonl", options=None)
    np.testing.assert_array_equal(infinite_hits(again), infinite_hits(trace))
    np.testing.assert_array_equal(again.turns.input_tokens, trace.turns.input_tokens)


def test_tracelab_survives_its_own_format(tmp_path):
    (tmp_path / "a.csv").write_bytes(samples.tracelab())
    trace = open_trace(tmp_path / "a.csv")
    assert write_trace(trace, tmp_path / "b.csv", format="tracelab") == ()
    again = open_trace(tmp_path / "b.csv")
    np.testing.assert_array_equal(infinite_hits(again), infinite_hits(trace))
    np.testing.assert_array_equal(again.turns.delay_ns, trace.turns.delay_ns)


@pytest.mark.parametrize(
    ("name", "to", "lost"),
    [
        ("weka", "mooncake", "2 turns that run in parallel or wait for several"),
        ("tracelab", "mooncake", "prefixes known to the token"),
        ("azure", "mooncake", "block ids"),
        ("azure", "tracelab", "prefixes are unknown"),
        ("mooncake", "tracelab", "2 turns share with other sessions"),
        ("mooncake", "azure", "what prompts have in common"),
    ],
)
def test_what_a_format_cannot_say_is_refused_until_it_is_allowed(name, to, lost, tmp_path):
    file, make = samples.SAMPLES[name]
    (tmp_path / file).write_bytes(make())
    trace = open_trace(tmp_path / file)
    out = tmp_path / "out"
    with pytest.raises(TraceError, match=lost):
        write_trace(trace, out, format=to)
    assert not out.exists()
    said = write_trace(trace, out, format=to, allow_loss=True)
    assert any(lost in line for line in said)
    assert len(open_trace(out, format=to)) == len(trace)


def test_every_writer_is_a_reader_too():
    assert set(WRITERS) <= set(READERS)


def test_the_ending_names_the_format(tmp_path):
    assert format_of(tmp_path / "a.parquet") == "native"
    assert format_of(tmp_path / "a.jsonl") == "mooncake"
    with pytest.raises(TraceError, match="--to"):
        format_of(tmp_path / "a.csv")
    with pytest.raises(TraceError, match="formats that can: native"):
        write_trace(open_trace("preset:cold", sessions=2), tmp_path / "a", format="otel")
