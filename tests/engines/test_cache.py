"""The prefix cache: what a new prompt finds, what must go, and that reuse never changes an answer."""

import pytest

from harness.engine import Decode, Evicted, NoCapacity
from tests.engines.driving import colocated, drain, prefill, prompt, sample_on


def evictions(outputs):
    return [(o.seq, o.length) for o in outputs if isinstance(o, Evicted)]


def test_turns_of_a_session_reuse_the_answers_before(make_engine):
    engine, fresh = make_engine(), make_engine()
    ids = prompt(engine, 60)
    held = 0
    for turn in range(4):
        assert engine.open(turn, ids) == held
        answer = sample_on(engine, turn, ids, Decode(20))
        assert answer == colocated(fresh, 1, ids, Decode(20))
        held = engine.close(turn, keep=True)
        assert held == len(ids) + 19
        ids = ids + answer + prompt(engine, 15, seed=turn + 1)
    assert evictions(engine.step()) == []
    # All turns lived in one slot.
    assert engine.usage().held_tokens == held


def test_at_most_all_but_the_last_id_is_cached(engine):
    ids = prompt(engine, 40)
    engine.open(1, ids)
    engine.extend(1, ids)
    drain(engine)
    assert engine.close(1, keep=True) == 40
    assert engine.open(2, ids) == 39
    assert engine.length(2) == 39


def test_dropped_sequences_leave_nothing(engine):
    ids = prompt(engine, 40)
    prefill(engine, 1, ids)
    assert engine.close(1, keep=False) == 0
    assert engine.usage().held_tokens == 0
    assert engine.open(2, ids) == 0


def test_a_shared_prefix_is_copied_and_stays_for_others(make_engine):
    engine, fresh = make_engine(), make_engine()
    system = prompt(engine, 80)
    a, b = system + prompt(engine, 20, seed=1), system + prompt(engine, 20, seed=2)
    prefill(engine, 1, a)
    engine.close(1, keep=True)
    assert engine.open(2, b) == 80
    assert sample_on(engine, 2, b, Decode(20)) == colocated(fresh, 1, b, Decode(20))
    engine.close(2, keep=True)
    assert engine.open(3, a) == 99
    assert sample_on(engine, 3, a, Decode(20)) == colocated(fresh, 1, a, Decode(20))


def test_the_prefix_of_a_running_sequence_is_reused(make_engine):
    engine, fresh = make_engine(), make_engine()
    ids = prompt(engine, 90)
    prefill(engine, 1, ids)
    branch = ids[:70] + prompt(engine, 10, seed=1)
    assert engine.open(2, branch) == 70
    engine.extend(1, ids[89:], Decode(10))
    assert sample_on(engine, 2, branch, Decode(10)) == colocated(fresh, 1, branch, Decode(10))


def test_the_least_recently_used_goes_first(engine):
    prompts = {seq: prompt(engine, 30, seed=seq) for seq in range(6)}
    for seq, ids in prompts.items():
        prefill(engine, seq, ids)
        engine.close(seq, keep=True)
    # 0 is used again, so 1 is the oldest.
    assert prefill(engine, 10, prompts[0]) == 29
    engine.close(10, keep=True)
    engine.open(11, prompt(engine, 30, seed=99))
    assert evictions(engine.step()) == [(1, 0)]
    assert engine.usage().evicted_tokens == 29
    engine.close(11, keep=False)
    assert engine.open(12, prompts[1]) == 0
    assert engine.open(13, prompts[2]) == 29


def test_the_tail_goes_when_only_its_own_slot_is_left(make_engine):
    engine = make_engine(max_sequences=1)
    ids = prompt(engine, 50)
    prefill(engine, 1, ids)
    engine.close(1, keep=True)
    branch = ids[:30] + prompt(engine, 20, seed=1)
    assert engine.open(2, branch) == 30
    assert evictions(engine.step()) == [(1, 30)]
    assert engine.usage().evicted_tokens == 19
    assert sample_on(engine, 2, branch, Decode(5)) == colocated(make_engine(), 1, branch, Decode(5))


def test_memory_is_bounded_and_makes_room_by_eviction(make_engine):
    engine = make_engine(capacity_tokens=300)
    for seq in range(3):
        prefill(engine, seq, prompt(engine, 90, seed=seq))
        engine.close(seq, keep=True)
    assert engine.usage().held_tokens == 267
    engine.open(3, prompt(engine, 150, seed=3))
    assert evictions(engine.step()) == [(0, 0), (1, 0)]
    assert engine.usage().held_tokens == 89
    with pytest.raises(NoCapacity):
        engine.open(4, prompt(engine, 151, seed=4))
    assert engine.usage().held_tokens == 89
    assert engine.open(5, prompt(engine, 150, seed=5)) == 0


def test_a_growing_answer_evicts_what_is_cached(make_engine):
    engine = make_engine(capacity_tokens=100)
    prefill(engine, 1, prompt(engine, 41, seed=1))
    engine.close(1, keep=True)
    ids = prompt(engine, 50, seed=2)
    engine.open(2, ids)
    engine.extend(2, ids, Decode(30))
    outputs = drain(engine)
    assert evictions(outputs) == [(1, 0)]
    assert engine.length(2) == 79


def test_without_room_for_one_more_the_sequence_fails_alone(make_engine):
    engine = make_engine(capacity_tokens=100)
    for seq, length in ((1, 45), (2, 50)):
        engine.open(seq, prompt(engine, length, seed=seq))
    engine.extend(1, prompt(engine, 45, seed=1), Decode(4))
    engine.extend(2, prompt(engine, 50, seed=2), Decode(30))
    outputs = []
    while engine.has_work():
        outputs.extend(engine.step())
    assert [o.seq for o in outputs if type(o).__name__ == "SequenceFailed"] == [2]
    assert [o.reason for o in outputs if type(o).__name__ == "Finished"] == ["length"]
    assert engine.close(2, keep=True) == 0
    assert engine.close(1, keep=True) == 48


def test_extending_beyond_memory_is_refused(make_engine):
    engine = make_engine(capacity_tokens=100)
    ids = prompt(engine, 120)
    engine.open(1, ids[:80])
    before = engine.usage()
    with pytest.raises(NoCapacity):
        engine.extend(1, ids)
    assert engine.usage() == before
    engine.extend(1, ids[:100])
    drain(engine)
    assert engine.length(1) == 100


def test_stopping_gives_unused_room_back(make_engine):
    engine = make_engine(capacity_tokens=100)
    ids = prompt(engine, 90)
    engine.open(1, ids[:20])
    engine.extend(1, ids)
    with pytest.raises(NoCapacity):
        engine.open(2, prompt(engine, 40, seed=1))
    engine.stop(1)
    assert engine.open(2, prompt(engine, 40, seed=1)) == 0
