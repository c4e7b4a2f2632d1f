"""KV ranges between engines: lossless, self-describing, refused when anything is off."""

import pytest

from harness.engine import Decode, EngineError, KvMismatch
from tests.engines.driving import colocated, drain, prefill, prompt, sample_on, tokens

WARM = {"seed": 3, "temperature": 0.8}


@pytest.mark.parametrize("sampling", [{}, WARM], ids=["greedy", "warm"])
def test_prefill_relay_main_answers_as_one_worker(make_engine, sampling):
    p, rld, md = make_engine(), make_engine(), make_engine()
    ids = prompt(p, 150)
    n = len(ids)
    expected = colocated(p, 1, ids, Decode(40, **sampling))
    prefill(p, 2, ids)
    blob = p.export_kv(2, 0, n - 1)
    for worker in (rld, md):
        worker.open(1, ids)
        worker.import_kv(1, 0, n - 1, blob)
        assert worker.length(1) == n - 1
    relayed = sample_on(rld, 1, ids, Decode(15, **sampling))
    main = sample_on(md, 1, ids + relayed, Decode(25, first_index=15, **sampling))
    assert relayed + main == expected
    assert rld.usage().computed_tokens == 1 + 14
    assert md.usage().computed_tokens == 1 + 15 + 24


def test_kv_transfer_handoff_needs_no_computation_of_relayed_ids(make_engine):
    p, rld, md = make_engine(), make_engine(), make_engine()
    ids = prompt(p, 90)
    n = len(ids)
    expected = colocated(p, 1, ids, Decode(40))
    prefill(p, 2, ids)
    for worker in (rld, md):
        worker.open(1, ids)
        worker.import_kv(1, 0, n - 1, p.export_kv(2, 0, n - 1))
    relayed = sample_on(rld, 1, ids, Decode(12))
    held = rld.length(1)
    assert held == n + 11
    md.import_kv(1, n - 1, held, rld.export_kv(1, n - 1, held), ids=relayed[:-1])
    assert sample_on(md, 1, ids + relayed, Decode(28, first_index=12)) == expected[12:]
    assert md.usage().computed_tokens == 28


def test_a_range_in_pieces_is_the_range_in_one(make_engine):
    p, d = make_engine(), make_engine()
    ids = prompt(p, 120)
    prefill(p, 1, ids)
    d.open(1, ids)
    for p0, p1 in ((0, 1), (1, 50), (50, 51), (51, 119)):
        d.import_kv(1, p0, p1, p.export_kv(1, p0, p1))
    assert d.export_kv(1, 0, 119) == p.export_kv(1, 0, 119)
    assert sample_on(d, 1, ids, Decode(20)) == colocated(p, 2, ids, Decode(20))


def test_only_the_missing_range_needs_to_travel(make_engine):
    p, md = make_engine(), make_engine()
    ids = prompt(p, 200)
    prefill(md, 1, ids[:101])
    md.close(1, keep=True)
    prefill(p, 1, ids)
    p0 = md.open(2, ids)
    assert p0 == 100
    md.import_kv(2, p0, 199, p.export_kv(1, p0, 199))
    assert sample_on(md, 2, ids, Decode(20)) == colocated(p, 3, ids, Decode(20))


def test_export_and_import_while_other_sequences_run(make_engine):
    p, d = make_engine(), make_engine()
    busy, ids = prompt(p, 100, seed=1), prompt(p, 100, seed=2)
    expected = colocated(p, 9, busy, Decode(30)), colocated(p, 9, ids, Decode(30))
    prefill(p, 1, ids)
    p.open(2, busy)
    p.extend(2, busy)
    p.step()
    blob = p.export_kv(1, 0, 99)
    d.open(2, busy)
    d.extend(2, busy, Decode(30))
    outputs = [*d.step(), *d.step(), *d.step()]
    d.open(1, ids)
    d.import_kv(1, 0, 99, blob)
    d.extend(1, ids[99:], Decode(30))
    outputs += drain(d)
    assert (tokens(outputs, 2), tokens(outputs, 1)) == expected


def test_a_blob_weighs_what_the_engine_says(engine):
    ids = prompt(engine, 201)
    prefill(engine, 1, ids)
    blob = engine.export_kv(1, 0, 200)
    positions = -(-200 // engine.info.block_tokens) * engine.info.block_tokens
    assert len(blob) == pytest.approx(positions * engine.info.kv_bytes_per_token, rel=0.05)


def test_wrong_kv_gives_other_ids(make_engine):
    p, d = make_engine(), make_engine()
    ids, other = prompt(p, 100, seed=1), prompt(p, 100, seed=2)
    prefill(p, 1, other)
    d.open(1, ids)
    d.import_kv(1, 0, 99, p.export_kv(1, 0, 99))
    assert sample_on(d, 1, ids, Decode(30)) != colocated(p, 2, ids, Decode(30))


def _damages(blob):
    size = len(blob)
    for position in (0, 5, 8, 12, 16, 20, 28, 33, 60, 64, 65, size // 2, size - 1):
        yield f"bit of byte {position}", blob[:position] + bytes([blob[position] ^ 4]) + blob[position + 1 :]
    yield "cut", blob[:-1]
    yield "longer", blob + b"\0"
    yield "empty", b""
    yield "header only", blob[:64]
    yield "swapped halves", blob[:64] + blob[64 + size // 2 :] + blob[64 : 64 + size // 2]


def test_any_damage_is_refused_and_changes_nothing(make_engine):
    p, d = make_engine(), make_engine()
    ids = prompt(p, 80)
    prefill(p, 1, ids)
    prefill(d, 1, ids[:31])
    d.close(1, keep=True)
    d.open(2, ids)
    blob = p.export_kv(1, 30, 79)
    before = d.usage()
    for what, damaged in _damages(blob):
        with pytest.raises(KvMismatch) as refused:
            d.import_kv(2, 30, 79, damaged)
        assert "\n" not in str(refused.value), what
        assert (d.usage(), d.length(2)) == (before, 30), what
    d.import_kv(2, 30, 79, memoryview(blob))
    assert sample_on(d, 2, ids, Decode(20)) == colocated(p, 3, ids, Decode(20))


def test_imports_that_do_not_fit_are_refused(make_engine):
    p, d = make_engine(), make_engine()
    ids = prompt(p, 60)
    prefill(p, 1, ids)
    p.extend(1, [*ids[59:], *ids[:10]])
    drain(p)
    d.open(1, ids)
    d.import_kv(1, 0, 40, p.export_kv(1, 0, 40))
    before = d.usage()
    for p0, p1, given in (
        (0, 40, ()),  # held already
        (41, 50, ()),  # a gap
        (39, 50, ()),  # an overlap
        (40, 40, ()),  # nothing
        (40, 65, ()),  # beyond the prompt without ids
        (40, 65, ids[:4]),  # too few ids
        (40, 50, ids[:1]),  # ids that are known
    ):
        blob = p.export_kv(1, min(p0, p1 - 1), p1)
        with pytest.raises(EngineError):
            d.import_kv(1, p0, p1, blob, ids=given)
        assert (d.usage(), d.length(1)) == (before, 40), (p0, p1)
    with pytest.raises(KvMismatch, match="positions"):
        d.import_kv(1, 40, 50, p.export_kv(1, 41, 51))
    d.extend(1, ids[40:50])
    with pytest.raises(EngineError, match="queued"):
        d.import_kv(1, 40, 50, p.export_kv(1, 40, 50))


def test_kv_of_another_model_is_refused_by_name(make_engine, case):
    engine, other = make_engine(), make_engine(**case.other)
    assert engine.info.layout_hash != other.info.layout_hash
    ids = prompt(engine, 30)
    prefill(engine, 1, ids)
    other.open(1, ids)
    with pytest.raises(KvMismatch, match="layout"):
        other.import_kv(1, 0, 29, engine.export_kv(1, 0, 29))
