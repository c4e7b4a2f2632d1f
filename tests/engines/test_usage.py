"""Counters: every position held has exactly one origin."""

from harness.engine import Decode
from tests.engines.driving import drain, prefill, prompt, sample_on


def test_counters_tell_origin_and_fate_of_every_position(make_engine):
    p, d = make_engine(), make_engine()
    ids = prompt(p, 100)
    prefill(p, 1, ids)
    assert p.usage().computed_tokens == 99
    d.open(1, ids)
    d.import_kv(1, 0, 99, p.export_kv(1, 0, 99))
    answer = sample_on(d, 1, ids, Decode(10))
    usage = d.usage()
    assert (usage.cached_tokens, usage.external_tokens, usage.computed_tokens) == (0, 99, 10)
    assert usage.decoded_tokens == 10
    assert usage.held_tokens == d.length(1) == 109
    d.close(1, keep=True)
    longer = ids + answer + prompt(p, 20, seed=1)
    assert d.open(2, longer) == 109
    sample_on(d, 2, longer, Decode(5))
    usage = d.usage()
    assert (usage.cached_tokens, usage.external_tokens, usage.computed_tokens) == (109, 99, 10 + 21 + 4)
    assert usage.decoded_tokens == 15


def test_running_and_waiting_count_open_sequences(engine):
    ids = prompt(engine, 20)
    for seq in range(3):
        engine.open(seq, ids)
    engine.extend(1, ids)
    assert (engine.usage().running, engine.usage().waiting) == (1, 2)
    drain(engine)
    assert (engine.usage().running, engine.usage().waiting) == (0, 3)


def test_steps_and_busy_time_grow_with_work_only(engine):
    ids = prompt(engine, 130)
    engine.open(1, ids)
    assert engine.step() == []
    assert (engine.usage().steps, engine.usage().busy_ns) == (0, 0)
    engine.extend(1, ids)
    drain(engine)
    assert engine.usage().steps == 3
    assert engine.usage().busy_ns > 0


def test_capacity_is_told(make_engine):
    assert make_engine(capacity_tokens=1000).usage().capacity_tokens == 1000
    assert make_engine().usage().capacity_tokens >= 512
