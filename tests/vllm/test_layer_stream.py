"""KV that leaves layer by layer while it is computed is the KV that would be exported afterwards."""

import pytest

from harness.engine import Decode, EngineOptions, StreamsKv
from tests.engines.driving import colocated, drain, prefill, prompt, sample_on
from tests.vllm.pool import load_engine

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def engines():
    options = EngineOptions(max_sequences=4, max_context_tokens=512, batch_tokens=96)
    made = [load_engine("vllm", options) for _ in range(2)]
    yield made
    for engine in made:
        engine.shutdown()


def blobs(pieces):
    """Whole blobs by range; parts must come in order and none may be missing."""
    gathered = {}
    for piece in pieces:
        parts = gathered.setdefault((piece.p0, piece.p1), [])
        assert piece.part == len(parts)
        parts.append(piece)
    for parts in gathered.values():
        assert len(parts) == parts[0].parts
        assert sum(len(p.data) for p in parts) == parts[0].blob_bytes
    return {at: b"".join(p.data for p in parts) for at, parts in gathered.items()}


def test_pieces_together_are_the_export(engines):
    p, d = engines
    assert isinstance(p, StreamsKv)
    ids = prompt(p, 300)
    expected = colocated(p, 1, ids, Decode(20))
    p.open(2, ids)
    pieces = []
    assert p.follow_kv(2, pieces.append) == 0
    p.extend(2, ids[:299])
    at_step = []
    while p.has_work():
        p.step()
        at_step.append(len(pieces))
    # Two layers a step: neither waits for the end of the prefill.
    assert at_step == [2, 4, 6, 8]
    d.open(1, ids)
    for (p0, p1), blob in blobs(pieces).items():
        assert blob == p.export_kv(2, p0, p1)
        d.import_kv(1, p0, p1, blob)
    assert sample_on(d, 1, ids, Decode(20)) == expected
    p.close(2, keep=False)
    d.close(1, keep=False)


def test_the_first_layer_leaves_before_the_last_is_computed(engines):
    p = engines[0]
    ids = prompt(p, 90, seed=1)
    p.open(1, ids)
    steps_done = []
    p.follow_kv(1, lambda piece: steps_done.append((piece.part, p.usage().steps, p.length(1))))
    p.extend(1, ids[:89])
    before = p.usage().steps
    drain(p)
    # Both were told from within the one step, while nothing of it was reported yet.
    assert steps_done == [(0, before, 0), (1, before, 0)]
    p.close(1, keep=False)


def test_following_begins_where_it_is_asked_for_and_ends_when_told(engines):
    p = engines[0]
    ids = prompt(p, 400, seed=2)
    p.open(1, ids)
    p.extend(1, ids[:399])
    p.step()
    pieces, others = [], []
    held = p.follow_kv(1, pieces.append)
    also = others.append
    assert p.follow_kv(1, also) == held == 96
    p.step()
    p.unfollow_kv(1, also)
    p.step()
    assert (len(others), len(pieces)) == (2, 4)
    p.unfollow_kv(1, pieces.append)
    p.unfollow_kv(1, pieces.append)
    drain(p)
    pieces = pieces[:2]
    assert list(blobs(pieces)) == [(96, 192)]
    assert blobs(pieces)[96, 192] == p.export_kv(1, 96, 192)
    p.close(1, keep=False)


def test_relayed_tokens_are_followed_as_well(engines):
    p = engines[0]
    ids = prompt(p, 50, seed=3)
    prefill(p, 1, ids)
    pieces = []
    held = p.follow_kv(1, pieces.append)
    sample_on(p, 1, ids, Decode(8))
    assert held == 49
    # The last token sampled has no KV yet.
    assert list(blobs(pieces)) == [(i, i + 1) for i in range(49, 57)]
    for (p0, p1), blob in list(blobs(pieces).items())[-1:]:
        assert blob == p.export_kv(1, p0, p1)
    p.close(1, keep=False)
