"""Opening, extending, refusing: a refused call changes nothing."""

import pytest

from harness.engine import Decode, EngineError, Extended, NoCapacity
from tests.engines.driving import colocated, drain, prefill, prompt, tokens


def test_info_describes_a_usable_engine(engine):
    info = engine.info
    assert info.max_sequences == 6
    assert info.max_context_tokens == 512
    assert 0 <= info.first_normal_id < info.vocab_size
    assert info.kv_bytes_per_token > 0
    assert info.build
    assert len(info.model_hash) == len(info.layout_hash) == 64


def test_two_engines_of_the_same_options_agree_on_layout(make_engine):
    assert make_engine().info == make_engine().info


def test_a_new_prompt_holds_nothing(engine):
    assert engine.open(1, prompt(engine, 20)) == 0
    assert engine.length(1) == 0
    assert not engine.has_work()


def test_extend_reports_every_chunk(engine):
    ids = prompt(engine, 200)
    engine.open(1, ids)
    engine.extend(1, ids[:150])
    assert engine.has_work()
    chunks = [o for o in drain(engine) if isinstance(o, Extended)]
    assert [c.length for c in chunks] == [64, 128, 150]
    assert [c.pending for c in chunks] == [86, 22, 0]
    assert engine.length(1) == 150


def test_ids_may_be_queued_while_others_are_computed(engine):
    ids = prompt(engine, 200)
    engine.open(1, ids)
    engine.extend(1, ids[:100])
    engine.step()
    engine.extend(1, ids[100:199])
    drain(engine)
    assert engine.length(1) == 199


def test_a_sequence_may_go_on_beyond_its_prompt(engine):
    ids = prompt(engine, 60)
    engine.open(1, ids[:20])
    engine.extend(1, ids[:50])
    drain(engine)
    engine.extend(1, ids[50:], Decode(5))
    assert tokens(drain(engine), 1) == colocated(engine, 2, ids, Decode(5))


def _refusals(engine):
    ids = prompt(engine, 20)
    vocab = engine.info.vocab_size
    return {
        "open an open sequence": lambda: engine.open(1, ids),
        "open an empty prompt": lambda: engine.open(2, []),
        "open an id beyond the vocabulary": lambda: engine.open(2, [vocab]),
        "open a negative id": lambda: engine.open(2, [-1]),
        "open beyond the context": lambda: engine.open(2, prompt(engine, 513)),
        "extend what is not open": lambda: engine.extend(9, ids),
        "extend by nothing": lambda: engine.extend(1, []),
        "extend against the prompt": lambda: engine.extend(1, [ids[10] ^ 1]),
        "extend beyond the context": lambda: engine.extend(1, ids[10:] + prompt(engine, 493)),
        "extend by an id beyond the vocabulary": lambda: engine.extend(1, [*ids[10:], vocab]),
        "sample within the prompt": lambda: engine.extend(1, ids[10:19], Decode(5)),
        "sample nothing": lambda: engine.extend(1, ids[10:], Decode(0)),
        "export more than is held": lambda: engine.export_kv(1, 0, 11),
        "export nothing": lambda: engine.export_kv(1, 5, 5),
        "export before the start": lambda: engine.export_kv(1, -1, 5),
        "export what is not open": lambda: engine.export_kv(9, 0, 1),
        "length of what is not open": lambda: engine.length(9),
        "stop what is not open": lambda: engine.stop(9),
        "close what is not open": lambda: engine.close(9, keep=True),
    }


def test_refused_calls_change_nothing(engine):
    ids = prompt(engine, 20)
    engine.open(1, ids)
    engine.extend(1, ids[:10])
    drain(engine)
    before = engine.usage()
    for what, call in _refusals(engine).items():
        with pytest.raises(EngineError) as refused:
            call()
        assert "\n" not in str(refused.value), what
        assert engine.usage() == before, what
        assert engine.length(1) == 10, what
        assert not engine.has_work(), what
    engine.extend(1, ids[10:], Decode(8))
    assert tokens(drain(engine), 1) == colocated(engine, 2, ids, Decode(8))


def test_extending_while_sampling_is_refused(engine):
    ids = prompt(engine, 20)
    engine.open(1, ids)
    engine.extend(1, ids, Decode(10))
    engine.step()
    with pytest.raises(EngineError, match="sampling"):
        engine.extend(1, [ids[0]])
    assert len(tokens(drain(engine), 1)) == 9


def test_too_many_open_sequences_are_refused(engine):
    for seq in range(6):
        engine.open(seq, prompt(engine, 10, seed=seq))
    before = engine.usage()
    with pytest.raises(NoCapacity):
        engine.open(6, prompt(engine, 10))
    assert engine.usage() == before
    engine.close(3, keep=False)
    assert engine.open(6, prompt(engine, 10)) == 0


def test_a_closed_number_may_be_used_again(engine):
    ids = prompt(engine, 30)
    prefill(engine, 1, ids)
    engine.close(1, keep=False)
    assert engine.open(1, ids) == 0


def test_shutdown_is_idempotent(make_engine):
    engine = make_engine()
    engine.shutdown()
    engine.shutdown()
