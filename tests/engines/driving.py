"""How the conformance tests drive an engine."""

from __future__ import annotations

import random
from collections.abc import Sequence

from harness.engine import Decode, Engine, Finished, Output, Sampled, SequenceFailed

_STEP_LIMIT = 5000


def prompt(engine: Engine, length: int, seed: int = 0) -> list[int]:
    """Random normal ids."""
    draw = random.Random(seed)
    return [draw.randrange(engine.info.first_normal_id, engine.info.vocab_size) for _ in range(length)]


def drain(engine: Engine) -> list[Output]:
    """Step until there is no work left. A failed sequence fails the test."""
    outputs: list[Output] = []
    for _ in range(_STEP_LIMIT):
        outputs.extend(engine.step())
        if not engine.has_work():
            break
    else:
        raise AssertionError(f"still at work after {_STEP_LIMIT} steps")
    failed = [o for o in outputs if isinstance(o, SequenceFailed)]
    assert not failed, failed
    return outputs


def tokens(outputs: Sequence[Output], seq: int) -> list[int]:
    """The ids sampled for `seq`; their indices must follow each other."""
    sampled = [o for o in outputs if isinstance(o, Sampled) and o.seq == seq]
    if sampled:
        first = sampled[0].index
        assert [o.index for o in sampled] == list(range(first, first + len(sampled)))
    return [o.token for o in sampled]


def finish(outputs: Sequence[Output], seq: int) -> list[str]:
    return [o.reason for o in outputs if isinstance(o, Finished) and o.seq == seq]


def prefill(engine: Engine, seq: int, ids: Sequence[int]) -> int:
    """What P does: KV of positions [0, len(ids) - 1). Returns p0."""
    p0 = engine.open(seq, ids)
    if p0 < len(ids) - 1:
        engine.extend(seq, ids[p0 : len(ids) - 1])
        drain(engine)
    assert engine.length(seq) == max(p0, len(ids) - 1)
    return p0


def sample_on(engine: Engine, seq: int, ids: Sequence[int], decode: Decode) -> list[int]:
    """What D does once it holds the KV: compute what of `ids` is missing, and sample."""
    engine.extend(seq, ids[engine.length(seq) :], decode)
    return tokens(drain(engine), seq)


def colocated(engine: Engine, seq: int, ids: Sequence[int], decode: Decode) -> list[int]:
    """The whole answer on one engine, leaving nothing behind: the reference of every other way."""
    engine.open(seq, ids)
    answer = sample_on(engine, seq, ids, decode)
    engine.close(seq, keep=False)
    return answer
