"""Answers through P, RLD and MD under load, against the same request alone on one worker.

The three workers live through all cases: prefixes are found and evicted, other sequences compute in the
same batches, KV travels in pieces, the handoff comes at any id, in one shot or in batches.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from harness.engine import Decode, Engine, Evicted, Output
from tests.engines.driving import colocated, prompt, tokens

CONTEXT = 1024


class Worker:
    """An engine that always has other sequences in its batches."""

    def __init__(self, engine: Engine, draw: random.Random) -> None:
        self.engine = engine
        self.evictions = 0
        self._draw = draw
        self._noise: list[int] = []
        self._names = iter(range(10**9, 2 * 10**9))

    def run(self) -> list[Output]:
        """Step until the sequences of interest have no work left, with noise joining on the way."""
        outputs: list[Output] = []
        while self.engine.has_work():
            self._make_noise()
            new = self.engine.step()
            self.evictions += sum(isinstance(o, Evicted) for o in new)
            outputs.extend(new)
        return outputs

    def _make_noise(self) -> None:
        draw = self._draw
        if len(self._noise) < 2 and draw.random() < 0.1:
            seq = next(self._names)
            ids = prompt(self.engine, draw.randint(1, 120), seed=draw.randrange(20))
            p0 = self.engine.open(seq, ids)
            self.engine.extend(seq, ids[p0:], Decode(draw.randint(1, 12), temperature=1.0))
            self._noise.append(seq)
        elif self._noise and draw.random() < 0.1:
            self.engine.close(self._noise.pop(0), keep=draw.random() < 0.5)


class Pipeline:
    """P, RLD and MD with a random course for every request."""

    def __init__(self, make: Callable[[int], Engine], seed: int) -> None:
        self._draw = random.Random(seed)
        self.reference = make(512)
        self.p, self.rld, self.md = (Worker(make(size), self._draw) for size in (160, 48, 96))

    def request(self, seq: int, ids: list[int], decode: Decode) -> tuple[list[int], list[int]]:
        """(answer through the pipeline, answer of the reference)."""
        draw = self._draw
        handoff = draw.randint(0, decode.max_tokens - 1)
        self._prefill(seq, ids)
        answer: list[int] = []
        if handoff:
            self._receive(self.rld, seq, ids)
            answer = self._decode(self.rld, seq, ids, self._part(decode, 0, handoff))
        self._receive(self.md, seq, ids)
        known = len(ids) - 1
        while draw.random() < 0.5 and known < len(ids) + handoff - 1:
            # Catch-up: some ids ahead of the switch.
            upto = draw.randint(known + 1, len(ids) + handoff - 1)
            if upto > self.md.engine.length(seq):
                self.md.engine.extend(seq, (ids + answer)[self.md.engine.length(seq) : upto])
                self.md.run()
            known = upto
        main = self._part(decode, handoff, decode.max_tokens - handoff)
        answer += self._decode(self.md, seq, ids + answer, main)
        for worker in (self.p, self.rld, self.md) if handoff else (self.p, self.md):
            worker.engine.close(seq, keep=draw.random() < 0.8)
        return answer, colocated(self.reference, seq, ids, decode)

    def _prefill(self, seq: int, ids: list[int]) -> None:
        p0 = self.p.engine.open(seq, ids)
        if p0 < len(ids) - 1:
            self.p.engine.extend(seq, ids[p0 : len(ids) - 1])
            self.p.run()

    def _receive(self, worker: Worker, seq: int, ids: list[int]) -> None:
        p0, end = worker.engine.open(seq, ids), len(ids) - 1
        while p0 < end:
            p1 = self._draw.choice((end, self._draw.randint(p0 + 1, end)))
            worker.engine.import_kv(seq, p0, p1, self.p.engine.export_kv(seq, p0, p1))
            p0 = p1

    @staticmethod
    def _decode(worker: Worker, seq: int, ids: list[int], decode: Decode) -> list[int]:
        worker.engine.extend(seq, ids[worker.engine.length(seq) :], decode)
        return tokens(worker.run(), seq)

    @staticmethod
    def _part(decode: Decode, first: int, count: int) -> Decode:
        return Decode(count, first_index=first, seed=decode.seed, temperature=decode.temperature)


def _compare(make_engine: Callable[..., Engine], seed: int, requests: int) -> Pipeline:
    def make(batch_tokens: int) -> Engine:
        return make_engine(max_context_tokens=CONTEXT, batch_tokens=batch_tokens, capacity_tokens=4000)

    draw = random.Random(seed)
    pipeline = Pipeline(make, seed + 1)
    sessions: list[list[int]] = [[] for _ in range(4)]
    for seq in range(requests):
        session = draw.randrange(len(sessions))
        new = prompt(pipeline.reference, draw.randint(1, 250), seed=draw.randrange(50))
        ids = sessions[session] + new
        if len(ids) > CONTEXT - 80:
            ids = new
        decode = Decode(draw.randint(1, 60), seed=seq, temperature=draw.choice((0.0, 0.8)))
        answer, expected = pipeline.request(seq, ids, decode)
        assert len(answer) == decode.max_tokens
        assert answer == expected, f"request {seq} of seed {seed}: {decode}, prompt of {len(ids)}"
        sessions[session] = ids + answer
    return pipeline


@pytest.mark.parametrize("seed", [1, 2])
def test_any_course_gives_the_answer_of_one_worker(make_engine, seed):
    pipeline = _compare(make_engine, seed, requests=12)
    assert pipeline.md.engine.usage().cached_tokens > 0
    assert pipeline.md.engine.usage().external_tokens > 0


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(10, 18))
def test_hundreds_of_courses_give_the_answers_of_one_worker(make_engine, seed):
    pipeline = _compare(make_engine, seed, requests=50)
    assert pipeline.p.evictions > 0
