"""Which ids the next batch computes: running decodes first, then prefill chunks in order of arrival.

A decode costs one id of the budget, so a long prefill slows decodes by at most one chunk a step, and a
chunk shrinks by what the decodes take (stall-free chunked prefill).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from adapters.engines.slots import Slot
from harness.engine import Decode, SeqId


@dataclass(slots=True)
class Sequence:
    """An open sequence and its queue: positions [slot.held, end) are to be computed."""

    seq: SeqId
    slot: Slot
    prompt_length: int
    end: int
    decode: Decode | None = None
    next_index: int = 0
    decoding: bool = False
    """Whether its queue is one sampled id, fed back."""
    arrival: int = 0
    failed: bool = False

    @property
    def pending(self) -> int:
        return self.end - self.slot.held


def next_batch(sequences: Iterable[Sequence], budget_tokens: int) -> list[tuple[Sequence, int]]:
    """(sequence, ids to compute) of one batch of at most `budget_tokens` ids."""
    waiting = [s for s in sequences if s.pending > 0]
    waiting.sort(key=lambda s: (not s.decoding, s.arrival))
    batch: list[tuple[Sequence, int]] = []
    for sequence in waiting:
        if budget_tokens == 0:
            break
        n = min(sequence.pending, budget_tokens)
        batch.append((sequence, n))
        budget_tokens -= n
    return batch
