"""The tiny model's logits are the same bits whatever the batch: what all exactness rests on."""

import random

import numpy as np
import pytest

from adapters.engines.backend import Row
from adapters.engines.llamacpp import models, tiny
from adapters.engines.llamacpp.context import LlamaContext
from harness.engine import Decode, EngineOptions

PROBE = Decode(1)


class Bits:
    """A context whose logits of the last batch can be seen."""

    def __init__(self, model: str, threads: int = 1) -> None:
        options = EngineOptions(
            model=model, max_sequences=6, max_context_tokens=1600, batch_tokens=512, threads=threads
        )
        self.context = LlamaContext(models.resolve(model, None), options)

    def feed(self, slot: int, start: int, ids: list[int], chunk: int) -> None:
        self.context.truncate(slot, start)
        for at in range(0, len(ids), chunk):
            self.context.compute([Row(slot, start + at, ids[at : at + chunk], None, 0)])

    def last(self, rows: list[Row]) -> bytes:
        """Logits after the last id of the first row."""
        self.context.compute(rows)
        return self.context._logits(len(rows[0].ids) - 1).tobytes()


@pytest.fixture(
    params=[
        "tiny",
        pytest.param("tiny:kv=4390", marks=pytest.mark.slow),
        pytest.param("tiny:kv=500,seed=3", marks=pytest.mark.slow),
    ]
)
def bits(request):
    made = Bits(request.param)
    yield made
    made.context.free()


def _ids(count: int, seed: int) -> list[int]:
    draw = random.Random(seed)
    return [draw.randrange(3, 514) for _ in range(count)]


@pytest.mark.parametrize(
    "length", [1, 100, 257, *(pytest.param(n, marks=pytest.mark.slow) for n in (5, 255, 256, 1100))]
)
def test_logits_do_not_depend_on_the_batch(bits, length):
    ids, other = _ids(length + 1, length), _ids(1300, 99)
    last = Row(0, length, ids[length:], PROBE, 0)
    bits.feed(0, 0, ids[:length], 512)
    expected = bits.last([last])
    for chunk in (1, 2, 3, 7, 64, 100):
        start = max(0, length - 3 * chunk)
        bits.feed(0, 0, ids[:start], 512)
        bits.feed(0, start, ids[start:length], chunk)
        assert bits.last([last]) == expected, f"chunks of {chunk}"
    for tail in (2, 3, 4, 5, 8, 16, 33, 50):
        if tail <= length:
            start = length + 1 - tail
            bits.context.truncate(0, start)
            assert bits.last([Row(0, start, ids[start:], PROBE, 0)]) == expected, f"tail of {tail}"
    for slot in range(1, 5):
        bits.feed(slot, 0, other[:700], 512)
    for held, more in ((700, 1), (200, 40), (10, 9), (0, 1)):
        for others in (1, 2, 4):
            bits.context.truncate(0, length)
            rows = []
            for slot in range(1, 1 + others):
                bits.context.truncate(slot, held)
                rows.append(Row(slot, held, other[held : held + more], PROBE, 0))
            assert bits.last([last, *rows]) == expected, f"beside {others} with {held} + {more}"


def test_logits_after_import_and_copy_are_the_same_bits(bits):
    ids = _ids(301, 1)
    last = Row(0, 300, ids[300:], PROBE, 0)
    bits.feed(0, 0, ids[:300], 512)
    expected = bits.last([last])
    bits.context.copy(0, 3, 300)
    assert bits.last([Row(3, 300, ids[300:], PROBE, 0)]) == expected
    bits.context.write(4, 0, 120, bits.context.read(0, 0, 120))
    bits.context.write(4, 120, 300, bits.context.read(3, 120, 300))
    assert bits.context.read(4, 0, 300) == bits.context.read(0, 0, 300)
    assert bits.last([Row(4, 300, ids[300:], PROBE, 0)]) == expected


def test_threads_do_not_change_the_bits():
    ids = _ids(301, 1)
    results = set()
    for threads in (1, 2):
        bits = Bits("tiny", threads)
        bits.feed(0, 0, ids[:300], 512)
        results.add(bits.last([Row(0, 300, ids[300:], PROBE, 0)]))
        bits.context.free()
    assert len(results) == 1


def test_logits_are_finite_and_spread():
    bits = Bits("tiny")
    bits.feed(0, 0, _ids(300, 1), 512)
    logits = np.frombuffer(bits.last([Row(0, 300, [7], PROBE, 0)]), np.float32)
    bits.context.free()
    assert np.isfinite(logits).all()
    assert logits.std() > 0.3


@pytest.mark.parametrize(("wanted", "error"), [(500, 50), (1824, 0), (2048, 48), (4390, 70), (20000, 400)])
def test_kv_bytes_per_token_can_be_dialled(wanted, error):
    shape = tiny.shape_for(wanted, 0)
    assert abs(shape.kv_bytes_per_token - wanted) <= error
    assert shape.layers >= 2
    assert shape.head_width % 4 == 2
