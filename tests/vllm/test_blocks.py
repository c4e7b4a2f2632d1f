"""Where tokens and vLLM's blocks disagree: every cut must give the same answer, without recomputation."""

import itertools
import random

import pytest

from harness.engine import Decode, EngineOptions, SequenceFailed
from tests.engines.driving import colocated, drain, prefill, prompt, sample_on
from tests.vllm.pool import load_engine

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("ignore")]
BLOCK = 32


@pytest.fixture(scope="module")
def engines():
    """P, RLD and MD, one after the other emptied by the tests."""
    options = EngineOptions(max_sequences=8, max_context_tokens=512, batch_tokens=64)
    made = [load_engine("vllm", options) for _ in range(3)]
    yield made
    for engine in made:
        engine.shutdown()


def close_all(*pairs):
    for engine, seq in pairs:
        engine.close(seq, keep=False)


@pytest.mark.parametrize("held", [BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK])
@pytest.mark.parametrize("relayed", [1, BLOCK - 1, BLOCK, BLOCK + 1])
def test_a_handoff_at_any_offset_in_a_block_is_exact(engines, held, relayed):
    p, rld, md = engines
    ids = prompt(p, held + 1, seed=held)
    expected = colocated(p, 1, ids, Decode(relayed + 20))
    prefill(p, 2, ids)
    blob = p.export_kv(2, 0, held)
    for worker in (rld, md):
        worker.open(1, ids)
        worker.import_kv(1, 0, held, blob)
    computed = md.usage().computed_tokens
    answer = sample_on(rld, 1, ids, Decode(relayed))
    answer += sample_on(md, 1, ids + answer, Decode(20, first_index=relayed))
    assert answer == expected
    assert md.usage().computed_tokens - computed == 1 + relayed + 19
    assert [e.audit() for e in engines] == [None, None, None]
    close_all((p, 2), (rld, 1), (md, 1))


def test_kv_arrives_in_pieces_cut_anywhere(engines):
    p, _, md = engines
    seed = 11
    draw = random.Random(seed)
    ids = prompt(p, 200, seed=seed)
    expected = colocated(p, 1, ids, Decode(10))
    prefill(p, 2, ids)
    for round_ in range(20):
        cuts = [0, *sorted(draw.sample(range(1, 199), draw.randrange(6))), 199]
        md.open(round_, ids)
        before = md.usage()
        for p0, p1 in itertools.pairwise(cuts):
            md.import_kv(round_, p0, p1, p.export_kv(2, p0, p1))
        assert sample_on(md, round_, ids, Decode(10)) == expected, (seed, cuts)
        after = md.usage()
        assert after.external_tokens - before.external_tokens == 199
        assert after.computed_tokens - before.computed_tokens == 10
        md.close(round_, keep=False)
    assert md.audit() is None
    p.close(2, keep=False)


def test_kv_leaves_while_prefill_runs(engines):
    p, _, md = engines
    ids = prompt(p, 400, seed=3)
    expected = colocated(p, 1, ids, Decode(10))
    p.open(2, ids)
    p.extend(2, ids[:399])
    md.open(2, ids)
    sent = 0
    while p.has_work():
        p.step()
        held = p.length(2)
        md.import_kv(2, sent, held, p.export_kv(2, sent, held))
        sent = held
    assert sent == 399
    assert sample_on(md, 2, ids, Decode(10)) == expected
    close_all((p, 2), (md, 2))


def test_two_readers_of_one_producer_at_their_own_pace(engines):
    p, rld, md = engines
    ids = prompt(p, 150, seed=4)
    expected = colocated(p, 1, ids, Decode(30))
    prefill(p, 2, ids)
    rld.open(1, ids)
    rld.import_kv(1, 0, 149, p.export_kv(2, 0, 149))
    head = sample_on(rld, 1, ids, Decode(10))
    # RLD is through; its reading has taken nothing from MD, which starts only now.
    md.open(1, ids)
    md.import_kv(1, 0, 149, p.export_kv(2, 0, 149))
    p.close(2, keep=False)
    assert head + sample_on(md, 1, ids + head, Decode(20, first_index=10)) == expected
    close_all((rld, 1), (md, 1))


def test_a_prefetch_holds_under_pressure_until_the_handoff():
    """What MD has of an open sequence is never evicted; what it had cached is, and is told."""
    options = EngineOptions(max_sequences=4, max_context_tokens=256, batch_tokens=64, capacity_tokens=512)
    p, md = load_engine("vllm", options), load_engine("vllm", options)
    ids = prompt(p, 200, seed=5)
    expected = colocated(p, 1, ids, Decode(20))
    prefill(p, 2, ids)
    md.open(1, ids)
    md.import_kv(1, 0, 199, p.export_kv(2, 0, 199))
    for other in range(10, 16):
        others = prompt(md, 150, seed=other)
        md.open(other, others)
        sample_on(md, other, others, Decode(5))
        md.close(other, keep=True)
    assert md.usage().evicted_tokens > 0
    assert md.length(1) == 199
    computed = md.usage().computed_tokens
    assert sample_on(md, 1, ids, Decode(20)) == expected
    assert md.usage().computed_tokens - computed == 20
    assert md.audit() is None
    for engine in (p, md):
        engine.shutdown()


def test_a_prefix_computed_by_another_sequence_meanwhile_is_not_computed_again(engines):
    p = engines[0]
    ids = prompt(p, 130, seed=6)
    expected = colocated(p, 1, ids, Decode(10))
    p.open(1, ids)
    p.open(2, ids)
    p.extend(1, ids[:129])
    drain(p)
    before = p.usage()
    assert sample_on(p, 2, ids, Decode(10)) == expected
    after = p.usage()
    assert after.cached_tokens - before.cached_tokens == 4 * BLOCK
    assert after.computed_tokens - before.computed_tokens == 130 - 4 * BLOCK + 9
    assert p.audit() is None
    close_all((p, 1), (p, 2))


def test_kv_that_vllm_has_lost_fails_the_sequence_instead_of_being_computed_anew(engines):
    p, rld, _ = engines
    ids = prompt(p, 200, seed=8)
    expected = colocated(p, 1, ids, Decode(5))
    prefill(rld, 1, ids)
    pool = rld._core._manager.block_pool
    pool.evict_blocks({block.block_id for block in pool.blocks if block.block_hash is not None})
    rld.extend(1, ids[199:], Decode(5))
    outputs = []
    while rld.has_work():
        outputs += rld.step()
    (failure,) = outputs
    assert isinstance(failure, SequenceFailed)
    assert "computes anew what was held: 199 positions" in failure.error
    assert rld.close(1, keep=True) == 0
    assert "recomputed" in rld.audit()
    rld.counts.recomputed_tokens = 0
    assert colocated(rld, 2, ids, Decode(5)) == expected


def test_an_idle_engine_has_nothing_to_step_for(engines):
    """KV that is on its way parks no request: between its pieces nothing is computed and nothing polls."""
    p, _, md = engines
    ids = prompt(p, 100, seed=7)
    prefill(p, 1, ids)
    md.open(1, ids)
    steps = md.usage().steps
    for p0 in range(0, 99, 33):
        assert not md.has_work()
        md.import_kv(1, p0, p0 + 33, p.export_kv(1, p0, p0 + 33))
    assert not md.has_work()
    assert list(md.step()) == []
    assert md.usage().steps == steps
    close_all((p, 1), (md, 1))
