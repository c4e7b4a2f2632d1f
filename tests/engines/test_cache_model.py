"""Random operation sequences on two workers against a model of what they must hold.

The model knows each sequence's ids and length, and which cached ones are left; an oracle engine that
computes every context from nothing says which id must be sampled.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from harness.engine import (
    Decode,
    Engine,
    EngineOptions,
    Evicted,
    Extended,
    Finished,
    KvMismatch,
    NoCapacity,
    Output,
    Sampled,
    SequenceFailed,
)
from tests.engines.conftest import Case
from tests.engines.driving import colocated, prompt

SLOTS, CONTEXT, CAPACITY, BATCH = 4, 128, 260, 24


@dataclass
class Known:
    """What the model knows of one open sequence."""

    ids: list[int]
    """The prompt, then every id queued or sampled."""
    prompt_length: int
    length: int
    queued: int = 0
    decode: Decode | None = None
    index: int = 0

    def pinned(self) -> int:
        return max(self.prompt_length, self.length + self.queued)

    def forget_queue(self) -> None:
        self.decode, self.queued = None, 0
        del self.ids[max(self.length, self.prompt_length) :]


@dataclass
class Worker:
    engine: Engine
    open: dict[int, Known] = field(default_factory=dict)
    kept: dict[int, list[int]] = field(default_factory=dict)
    """Cached sequences: the ids whose KV they hold."""
    taken: dict[int, list[int]] = field(default_factory=dict)
    """Those that went on under another name; of equals, it may have been another one."""
    origins: int = 0
    """Positions that ever came to be."""
    sampled: int = 0
    evicted: int = 0

    def pinned(self) -> int:
        return sum(known.pinned() for known in self.open.values())

    def reach(self, known: Known, length: int) -> None:
        assert length > known.length
        self.origins += length - known.length
        known.queued -= length - known.length
        known.length = length

    def evict(self, seq: int, length: int) -> None:
        if seq not in self.kept:
            twin = next(name for name, ids in self.kept.items() if ids == self.taken[seq])
            self.taken[twin] = self.kept.pop(twin)
            self.kept[seq] = self.taken.pop(seq)
        self.evicted += len(self.kept[seq]) - length
        self.kept[seq] = self.kept[seq][:length]
        if length == 0 or any(k.ids[: k.length] == self.kept[seq] for k in self.open.values()):
            del self.kept[seq]


class Operations:
    """Every method but the underscored ones is one operation; some find nothing to do."""

    def __init__(self, case: Case, seed: int) -> None:
        options = {
            "max_sequences": SLOTS,
            "max_context_tokens": CONTEXT,
            "capacity_tokens": CAPACITY,
            "batch_tokens": BATCH,
            **case.options,
        }
        self._draw = random.Random(seed)
        self._engines = [case.load(case.name, EngineOptions(**options)) for _ in range(3)]
        self._workers = [Worker(engine) for engine in self._engines[:2]]
        self._oracle = self._engines[2]
        # Prompts share stems, so that prefixes are found.
        self._stems = [prompt(self._oracle, 70, seed=s) for s in range(3)]
        self._answers: dict[tuple[tuple[int, ...], int, float], int] = {}
        self._names = 0

    def _run(self, operations: int) -> None:
        names = [name for name in vars(Operations) if not name.startswith("_")]
        try:
            for _ in range(operations):
                getattr(self, self._draw.choice(names))()
                self._check()
        finally:
            for engine in self._engines:
                engine.shutdown()

    def _pick(self) -> tuple[Worker, int, Known] | None:
        worker = self._draw.choice(self._workers)
        if not worker.open:
            return None
        seq = self._draw.choice(sorted(worker.open))
        return worker, seq, worker.open[seq]

    def open(self) -> None:
        draw = self._draw
        stem, tail = draw.choice(self._stems)[: draw.randint(1, 70)], draw.randint(0, 9)
        self._open(draw.choice(self._workers), stem + prompt(self._oracle, tail, seed=tail))

    def next_turn(self) -> None:
        """Open what goes on from a cached sequence."""
        worker, more = self._draw.choice(self._workers), self._draw.randint(1, 12)
        if worker.kept:
            base = worker.kept[self._draw.choice(sorted(worker.kept))]
            if len(base) + more <= CONTEXT:
                self._open(worker, base + prompt(self._oracle, more, seed=more))

    def _open(self, worker: Worker, ids: list[int]) -> int | None:
        held = [k.ids[: k.length] for k in worker.open.values()] + list(worker.kept.values())
        fits = len(worker.open) < SLOTS and worker.pinned() + len(ids) <= CAPACITY
        before = worker.engine.usage()
        seq = self._names = self._names + 1
        try:
            p0 = worker.engine.open(seq, ids)
        except NoCapacity:
            assert not fits
            assert worker.engine.usage() == before
            return None
        assert fits
        assert p0 == min(max((_common(ids, h) for h in held), default=0), len(ids) - 1)
        worker.open[seq] = Known(list(ids), len(ids), p0)
        worker.origins += p0
        # A cached sequence that the prompt continues lives on in the new one.
        continued = [name for name, cached in sorted(worker.kept.items()) if cached == ids[:p0]]
        if continued:
            worker.taken[continued[0]] = worker.kept.pop(continued[0])
        self._take(worker, worker.engine.step())
        return seq

    def extend(self) -> None:
        picked = self._pick()
        if picked is None:
            return
        worker, seq, known = picked
        n, sample, warm = self._draw.randint(1, 60), self._draw.random() < 0.6, self._draw.random() < 0.5
        start = known.length + known.queued
        ids = known.ids[start : start + n] or prompt(self._oracle, n % 5 + 1, seed=n)
        sample = sample and start + len(ids) >= known.prompt_length
        if known.decode is not None or start + len(ids) > CONTEXT:
            return
        decode = Decode(n % 8 + 1, seed=7, temperature=0.8 if warm else 0.0) if sample else None
        others = worker.pinned() - known.pinned()
        before = worker.engine.usage()
        try:
            worker.engine.extend(seq, ids, decode)
        except NoCapacity:
            assert others + start + len(ids) > CAPACITY
            assert worker.engine.usage() == before
            return
        if start >= known.prompt_length:
            known.ids += ids
        known.queued += len(ids)
        known.decode, known.index = decode, 0
        self._take(worker, worker.engine.step())

    def step(self) -> None:
        worker = self._draw.choice(self._workers)
        for _ in range(self._draw.randint(1, 6)):
            self._take(worker, worker.engine.step())

    def _take(self, worker: Worker, outputs: Sequence[Output]) -> None:
        failed: list[int] = []
        for output in outputs:
            match output:
                case Extended(seq=seq, length=length, pending=pending):
                    known = worker.open[seq]
                    assert length + pending == known.length + known.queued
                    worker.reach(known, length)
                case Sampled():
                    self._take_sampled(worker, output)
                case Finished(seq=seq, reason=reason):
                    known = worker.open[seq]
                    assert reason == "length"
                    assert known.decode is not None
                    assert known.index == known.decode.max_tokens or known.length == CONTEXT
                    known.forget_queue()
                case Evicted(seq=seq, length=length):
                    worker.evict(seq, length)
                case SequenceFailed(seq=seq, error=error):
                    assert "no room" in error
                    assert worker.pinned() >= CAPACITY
                    failed.append(seq)
        for seq in failed:
            del worker.open[seq]
            assert worker.engine.close(seq, keep=True) == 0

    def _take_sampled(self, worker: Worker, sampled: Sampled) -> None:
        known = worker.open[sampled.seq]
        assert known.decode is not None
        if known.queued:
            # The id sampled before was fed back, which no Extended tells.
            assert known.queued == 1
            worker.reach(known, known.length + 1)
        assert sampled.index == known.index
        assert sampled.token == self._expected(known.ids[: known.length], known.decode, sampled.index)
        worker.sampled += 1
        known.index += 1
        if known.index < known.decode.max_tokens and known.length < CONTEXT:
            known.ids.append(sampled.token)
            known.queued = 1

    def _expected(self, context: list[int], decode: Decode, index: int) -> int:
        key = (tuple(context), index if decode.temperature else 0, decode.temperature)
        if key not in self._answers:
            once = Decode(1, first_index=index, seed=decode.seed, temperature=decode.temperature)
            self._answers[key] = colocated(self._oracle, 0, context, once)[0]
        return self._answers[key]

    def stop(self) -> None:
        picked = self._pick()
        if picked is not None:
            worker, seq, known = picked
            worker.engine.stop(seq)
            known.forget_queue()

    def close(self) -> None:
        picked, keep = self._pick(), self._draw.random() < 0.8
        if picked is None:
            return
        worker, seq, known = picked
        assert worker.engine.close(seq, keep=keep) == (known.length if keep else 0)
        del worker.open[seq]
        if keep and known.length:
            worker.kept[seq] = known.ids[: known.length]

    def transfer(self) -> None:
        """Move what one worker holds of a sequence to the other, from where that one's hit ends."""
        source, target = self._draw.sample(self._workers, 2)
        names = sorted(name for name, known in source.open.items() if known.length)
        if not names:
            return
        name = self._draw.choice(names)
        ids = source.open[name].ids[: source.open[name].length]
        seq = self._open(target, [*ids, ids[0]][:CONTEXT])
        if seq is None or target.open[seq].length >= len(ids) or target.open[seq].prompt_length == len(ids):
            return
        p0, p1 = target.open[seq].length, len(ids)
        blob = bytearray(source.engine.export_kv(name, p0, p1))
        if self._draw.random() < 0.3:
            blob[self._draw.randrange(len(blob))] ^= 1 << self._draw.randrange(8)
            before = target.engine.usage()
            with pytest.raises(KvMismatch):
                target.engine.import_kv(seq, p0, p1, blob)
            assert target.engine.usage() == before
        else:
            target.engine.import_kv(seq, p0, p1, blob)
            target.origins += p1 - p0
            target.open[seq].length = p1

    def _check(self) -> None:
        for worker in self._workers:
            for seq, known in worker.open.items():
                assert worker.engine.length(seq) == known.length
            queued = [known for known in worker.open.values() if known.queued]
            assert worker.engine.has_work() == bool(queued)
            usage = worker.engine.usage()
            assert (usage.running, usage.waiting) == (len(queued), len(worker.open) - len(queued))
            assert usage.cached_tokens + usage.external_tokens + usage.computed_tokens == worker.origins
            assert usage.decoded_tokens == worker.sampled
            assert usage.evicted_tokens == worker.evicted
            held = [known.length for known in worker.open.values()] + [
                len(ids) for ids in worker.kept.values()
            ]
            assert usage.held_tokens == sum(held) <= CAPACITY


def _common(a: list[int], b: list[int]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


@pytest.mark.parametrize("seed", range(8))
def test_any_sequence_of_operations_agrees_with_the_model(case: Case, seed: int) -> None:
    """Replay a failure by its seed, which is in the test's name."""
    Operations(case, seed)._run(250)
