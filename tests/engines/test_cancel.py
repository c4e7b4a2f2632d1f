"""Stopping at any time leaves a sequence that can go on, and others undisturbed."""

import random

import pytest

from harness.engine import Decode, Sampled
from tests.engines.driving import colocated, drain, prompt, sample_on, tokens


def test_stop_in_the_midst_of_prefill_keeps_what_is_computed(make_engine):
    engine, fresh = make_engine(), make_engine()
    ids = prompt(engine, 200)
    engine.open(1, ids)
    engine.extend(1, ids, Decode(10))
    engine.step()
    engine.stop(1)
    assert not engine.has_work()
    assert engine.length(1) == 64
    assert sample_on(engine, 1, ids, Decode(10)) == colocated(fresh, 1, ids, Decode(10))


def test_stop_in_the_midst_of_an_answer_ends_it(engine):
    ids = prompt(engine, 30)
    expected = colocated(engine, 9, ids, Decode(20))
    engine.open(1, ids)
    engine.extend(1, ids, Decode(20))
    outputs = [*engine.step(), *engine.step(), *engine.step()]
    engine.stop(1)
    engine.stop(1)
    assert engine.step() == []
    got = tokens(outputs, 1)
    assert got == expected[:3]
    # The third id was sampled but not computed yet.
    assert engine.length(1) == 32
    assert sample_on(engine, 1, ids + got, Decode(17, first_index=3)) == expected[3:]


def test_a_stopped_answer_may_take_another_course(make_engine):
    engine, fresh = make_engine(), make_engine()
    ids, other = prompt(engine, 30), prompt(engine, 10, seed=5)
    engine.open(1, ids)
    engine.extend(1, ids, Decode(20))
    engine.step()
    engine.stop(1)
    assert sample_on(engine, 1, ids + other, Decode(10)) == colocated(fresh, 1, ids + other, Decode(10))


@pytest.mark.parametrize("keep", [True, False])
def test_close_at_any_time_leaves_others_undisturbed(make_engine, keep):
    fresh = make_engine()
    ids = {seq: prompt(fresh, 70 + seq, seed=seq) for seq in range(3)}
    expected = {seq: colocated(fresh, 9, ids[seq], Decode(12)) for seq in ids}
    for steps in range(10):
        engine = make_engine()
        for seq, its_ids in ids.items():
            engine.open(seq, its_ids)
            engine.extend(seq, its_ids, Decode(12))
        outputs = [o for _ in range(steps) for o in engine.step()]
        held = engine.length(1)
        assert engine.close(1, keep=keep) == (held if keep else 0)
        outputs += drain(engine)
        assert {s: tokens(outputs, s) for s in (0, 2)} == {s: expected[s] for s in (0, 2)}
        late = [o for o in outputs[-1:] if isinstance(o, Sampled) and o.seq == 1]
        assert not late
        engine.open(4, ids[1])
        assert sample_on(engine, 4, ids[1], Decode(12)) == expected[1]


def test_random_cancellations_never_change_an_answer(make_engine):
    seed = 20
    draw = random.Random(seed)
    fresh, engine = make_engine(), make_engine()
    for round_ in range(12):
        ids = prompt(fresh, draw.randrange(1, 150), seed=draw.randrange(4))
        expected = colocated(fresh, 1, ids, Decode(10))
        engine.open(round_, ids)
        engine.extend(round_, ids[engine.length(round_) :], Decode(10))
        for _ in range(draw.randrange(6)):
            engine.step()
        engine.stop(round_)
        assert engine.length(round_) <= len(ids) + 9
        engine.close(round_, keep=draw.random() < 0.7)
        engine.open(round_, ids)
        assert sample_on(engine, round_, ids, Decode(10)) == expected, (seed, round_)
        engine.close(round_, keep=True)
