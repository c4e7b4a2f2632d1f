"""The replay plan: what is kept, what is appended, and what hit is expected of the prompts really sent."""

from __future__ import annotations

import numpy as np
import pytest

from workloads.errors import TraceError
from workloads.formats import open_trace
from workloads.replay import make_plan, read_plan, write_plan
from workloads.trace import Trace
from workloads.vocabulary import Vocabulary

VOCABULARY = Vocabulary(first_normal_id=3, vocab_size=49152)


def live_prompts(plan, *, seed=7):
    """Prompts that a replay would send, with random answers of the planned lengths."""
    rng = np.random.default_rng(seed)
    sent = []
    for session in plan.sessions:
        prompts, answers = [], []
        for turn in session.turns:
            parts = []
            if turn.base is not None:
                assert turn.base in _closure(session, turn.turn)
                parts.append(prompts[turn.base][: turn.kept_tokens])
                if turn.keeps_answer:
                    assert turn.kept_tokens == len(prompts[turn.base])
                    parts.append(answers[turn.base])
            new = turn.new_ids()
            assert len(new) == turn.new_tokens
            parts.append(new)
            prompts.append(np.concatenate(parts))
            assert len(prompts[-1]) == turn.prompt_tokens
            answers.append(rng.integers(60_000, 1 << 31, turn.output_tokens, dtype=np.uint32))
        sent.append(prompts)
    return sent


def _closure(session, turn):
    found, todo = set(), [turn]
    while todo:
        for a in session.turns[todo.pop()].after:
            if a not in found:
                found.add(a)
                todo.append(a)
    return found


def longest_prefix(prompt, earlier):
    best = 0
    for other in earlier:
        n = min(len(prompt), len(other))
        unequal = np.flatnonzero(prompt[:n] != other[:n])
        best = max(best, int(unequal[0]) if len(unequal) else n)
    return best


def send_order(plan):
    """(arrival, session, turn) in the order of recorded sends."""
    keys = [
        (t.arrival_ns if t.arrival_ns is not None else s.start_ns, i, t.turn)
        for i, s in enumerate(plan.sessions)
        for t in s.turns
    ]
    return sorted(keys)


@pytest.mark.parametrize("seed", [1])
def test_expected_hits_are_the_prefixes_that_earlier_prompts_really_share(seed):
    trace = open_trace("preset:small-engine", seed=seed, sessions=4)
    plan = make_plan(trace, vocabulary=VOCABULARY, seed=seed)
    sent = live_prompts(plan)
    before = []
    for _, s, t in send_order(plan):
        true = longest_prefix(sent[s][t], before)
        expected = plan.sessions[s].turns[t].expected_hit_tokens
        # Chance adds a token where two texts part; a prompt's end inside a block may add its rest.
        assert expected <= true <= expected + trace.header.block_size, (s, t)
        before.append(sent[s][t])


def test_another_salt_shares_nothing_and_keeps_the_structure():
    trace = open_trace("preset:small-engine", seed=1, sessions=4)
    first = make_plan(trace, vocabulary=VOCABULARY, seed=1, salt="cell 0, repetition 0")
    second = make_plan(trace, vocabulary=VOCABULARY, seed=1, salt="cell 0, repetition 1")
    shape = [[(t.kept_tokens, t.new_tokens, t.expected_hit_tokens) for t in s.turns] for s in first.sessions]
    assert shape == [
        [(t.kept_tokens, t.new_tokens, t.expected_hit_tokens) for t in s.turns] for s in second.sessions
    ]
    a = [p for s in live_prompts(first) for p in s]
    for prompt in (p for s in live_prompts(second) for p in s):
        assert longest_prefix(prompt, a) <= 2


def test_a_plan_survives_its_file_and_shards_partition_it(tmp_path):
    plan = make_plan(open_trace("preset:small-engine", seed=3, sessions=10), vocabulary=VOCABULARY, seed=3)
    write_plan(plan, tmp_path / "plan")
    whole = read_plan(tmp_path / "plan")
    assert whole == plan
    shards = [read_plan(tmp_path / "plan", shard=i, shards=3) for i in range(3)]
    names = [s.session_id for shard in shards for s in shard.sessions]
    assert sorted(names) == sorted(s.session_id for s in plan.sessions)
    assert all(shard.header == plan.header for shard in shards)


def test_a_cut_off_plan_is_refused(tmp_path):
    plan = make_plan(open_trace("preset:small-engine", seed=3, sessions=3), vocabulary=VOCABULARY, seed=3)
    write_plan(plan, tmp_path / "plan")
    data = (tmp_path / "plan").read_bytes()
    for cut in (0, 4, 30, len(data) // 2, len(data) - 1):
        (tmp_path / "cut").write_bytes(data[:cut])
        with pytest.raises(TraceError, match="replay plan"):
            read_plan(tmp_path / "cut")


def test_sessions_beyond_the_context_are_dropped_whole_and_counted():
    trace = open_trace("preset:small-engine", seed=5, sessions=30)
    limit = 3000
    plan = make_plan(trace, vocabulary=VOCABULARY, seed=5, max_context_tokens=limit)
    long = trace.turns.input_tokens + trace.turns.output_tokens > limit
    bad = {trace.session_ids[s] for s in trace.session_of[long]}
    assert plan.header.dropped_sessions == len(bad) > 0
    assert {s.session_id for s in plan.sessions} == set(trace.session_ids) - bad


@pytest.mark.parametrize("scale", [0.5, 1 / 16, 0.3])
def test_token_scale_keeps_the_expected_hit(scale):
    trace: Trace = open_trace("preset:report", seed=1, sessions=20)
    full = make_plan(trace, vocabulary=VOCABULARY, seed=1)
    small = make_plan(trace, vocabulary=VOCABULARY, seed=1, token_scale=scale)
    assert small.header.expected_request_hit == pytest.approx(full.header.expected_request_hit, abs=0.004)
    assert small.header.expected_token_hit == pytest.approx(full.header.expected_token_hit, abs=0.004)
