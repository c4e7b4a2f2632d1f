"""Sampling: indices, ends, keys, and independence of whatever else is computed."""

import pytest

from harness.engine import Decode, Extended, Sampled
from tests.engines.driving import colocated, drain, finish, prefill, prompt, sample_on, tokens

WARM = {"seed": 11, "temperature": 0.8}


def test_an_answer_has_its_indices_and_ends_by_length(engine):
    ids = prompt(engine, 40)
    engine.open(1, ids)
    engine.extend(1, ids, Decode(7, first_index=3))
    outputs = drain(engine)
    assert [o.index for o in outputs if isinstance(o, Sampled)] == list(range(3, 10))
    assert finish(outputs, 1) == ["length"]
    # The last sampled id is not computed: nothing would be sampled from it.
    assert engine.length(1) == 46


def test_the_first_id_comes_with_the_last_chunk(engine):
    ids = prompt(engine, 100)
    engine.open(1, ids)
    engine.extend(1, ids, Decode(1))
    kinds = [type(o) for o in drain(engine)]
    assert kinds[:3] == [Extended, Extended, Sampled]


def test_a_stop_id_ends_the_answer(engine):
    ids = prompt(engine, 40)
    answer = colocated(engine, 1, ids, Decode(20))
    stop = answer[5]
    engine.open(2, ids)
    engine.extend(2, ids, Decode(20, stop_ids=(stop,)))
    outputs = drain(engine)
    assert tokens(outputs, 2) == answer[: answer.index(stop) + 1]
    assert finish(outputs, 2) == ["stop"]


def test_the_end_of_the_context_ends_the_answer(engine):
    ids = prompt(engine, 500)
    engine.open(1, ids)
    engine.extend(1, ids, Decode(100))
    outputs = drain(engine)
    assert len(tokens(outputs, 1)) == 13
    assert finish(outputs, 1) == ["length"]
    assert engine.length(1) == 512


@pytest.mark.parametrize("sampling", [{}, WARM], ids=["greedy", "warm"])
def test_the_same_request_gives_the_same_answer(make_engine, sampling):
    first, second = make_engine(), make_engine()
    ids = prompt(first, 90)
    assert colocated(first, 1, ids, Decode(30, **sampling)) == colocated(
        second, 5, ids, Decode(30, **sampling)
    )


def test_seeds_matter_under_temperature_only(engine):
    ids = prompt(engine, 50)
    warm = [colocated(engine, 1, ids, Decode(20, seed=s, temperature=0.8)) for s in range(4)]
    cold = [colocated(engine, 1, ids, Decode(20, seed=s)) for s in range(4)]
    assert len({tuple(a) for a in warm}) == 4
    assert len({tuple(a) for a in cold}) == 1


def test_the_answer_depends_on_the_whole_prompt(engine):
    ids = prompt(engine, 120)
    answer = colocated(engine, 1, ids, Decode(60))
    for position in (0, 60, 118):
        other = list(ids)
        other[position] = (
            ids[position] - 1 if ids[position] > engine.info.first_normal_id else ids[position] + 1
        )
        assert colocated(engine, 1, other, Decode(60)) != answer


@pytest.mark.parametrize("sampling", [{}, WARM], ids=["greedy", "warm"])
def test_a_batch_of_many_answers_as_each_alone(make_engine, sampling):
    alone, together = make_engine(), make_engine()
    prompts = {seq: prompt(alone, 20 + 31 * seq, seed=seq) for seq in range(6)}
    expected = {seq: colocated(alone, seq, ids, Decode(25, **sampling)) for seq, ids in prompts.items()}
    outputs = []
    for seq, ids in prompts.items():
        # Sequences join while others are in the midst of theirs.
        together.open(seq, ids)
        together.extend(seq, ids, Decode(25, **sampling))
        outputs.extend(together.step())
    outputs.extend(drain(together))
    assert {seq: tokens(outputs, seq) for seq in prompts} == expected


@pytest.mark.parametrize("sampling", [{}, WARM], ids=["greedy", "warm"])
def test_extend_decode_equals_step_decode(make_engine, sampling):
    engine, other = make_engine(), make_engine()
    ids = prompt(engine, 100)
    answer = colocated(engine, 1, ids, Decode(60, **sampling))
    for relayed in (1, 2, 17, 40, 59):
        other.open(relayed, ids)
        rest = sample_on(
            other, relayed, ids + answer[:relayed], Decode(60 - relayed, first_index=relayed, **sampling)
        )
        assert rest == answer[relayed:], relayed
        other.close(relayed, keep=False)


def test_catch_up_in_batches_equals_one_shot(make_engine):
    engine, other = make_engine(), make_engine()
    ids = prompt(engine, 80)
    answer = colocated(engine, 1, ids, Decode(50))
    prefill(other, 1, ids)
    known = ids[:]
    for start, end in ((0, 16), (16, 20), (20, 33)):
        known += answer[start:end]
        # The last id of a batch is left for the next, as sampling may start from it.
        other.extend(1, known[other.length(1) : len(known) - 1])
        drain(other)
    assert sample_on(other, 1, known, Decode(17, first_index=33)) == answer[33:]


def test_margins_come_with_greedy_ids_only(engine, case):
    ids = prompt(engine, 30)
    engine.open(1, ids)
    engine.extend(1, ids, Decode(5))
    greedy = [o.margin for o in drain(engine) if isinstance(o, Sampled)]
    engine.stop(1)
    engine.extend(1, [ids[0]], Decode(5, temperature=0.8))
    warm = [o.margin for o in drain(engine) if isinstance(o, Sampled)]
    assert warm == [None] * 5
    assert all(m is None or m >= 0 for m in greedy)
    assert all((m is not None) == case.margins for m in greedy)


@pytest.mark.parametrize("batch_tokens", [6, 7, 33, 512])
def test_the_chunk_size_does_not_matter(make_engine, batch_tokens):
    engine, chunked = make_engine(), make_engine(batch_tokens=batch_tokens)
    ids = prompt(engine, 300)
    decode = Decode(20, **WARM)
    assert colocated(chunked, 1, ids, decode) == colocated(engine, 1, ids, decode)
