"""Gives drawn sessions the hit rates asked for, by changing how much they grow or where they are edited.

A high rate is met by growth: what is kept over the rate is the new length. A low one is met by an edit: the
length is the one drawn, and the context is replaced from the point that leaves the rate. Where the context
is compacted, or would pass its limit, it shrinks and keeps as much of its beginning as the rate asks.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from workloads.generator.sessions import Event, SessionTurns

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from workloads.generator.parameters import Parameters

_GROWS: Final = 0.85  # below this rate a turn is an edit, not one huge append


def reshape(p: Parameters, drawn: SessionTurns, rates: NDArray[np.float64]) -> SessionTurns:
    """The sessions with these hit rates; sessions without a shared head keep their first turn."""
    shape = _Shape(p, drawn, rates)
    shape.run()
    return replace(
        drawn,
        event=shape.event,
        input_tokens=shape.tokens,
        output_tokens=shape.output,
        kept_blocks=shape.kept,
    )


class _Shape:
    def __init__(self, p: Parameters, drawn: SessionTurns, rates: NDArray[np.float64]) -> None:
        self.p = p
        self.drawn = drawn
        self.rates = rates.clip(0, 1)
        self.event = drawn.event.copy()
        self.tokens = drawn.input_tokens.copy()
        self.output = drawn.output_tokens.copy()
        self.kept = drawn.kept_blocks.copy()
        self.room = p.context_tokens - 1
        self.least = np.repeat(drawn.head_tokens + p.block_size, drawn.turns)
        sizes = drawn.input_tokens
        ratio = sizes / np.concatenate(([1], sizes[:-1]))
        self.squeeze = np.where(
            drawn.event == Event.COMPACTION, ratio.clip(0.01, 1), p.breaks.compaction.median
        )

    def run(self) -> None:
        turns, start = self.drawn.turns, self.drawn.start
        shared = np.flatnonzero(self.drawn.group >= 0)
        head = self.drawn.head_tokens[shared]
        self._first(start[shared], head)
        alive = np.flatnonzero(turns > 1)
        for k in range(1, int(turns.max(initial=1))):
            alive = alive[turns[alive] > k]
            self._next(start[alive] + k)

    def _first(self, at: NDArray[np.int64], head: NDArray[np.int64]) -> None:
        """First turns: the head over the rate is the length, or part of the head is kept."""
        block = self.p.block_size
        length = np.minimum(_over(head, self.rates[at]), self.room - self.output[at])
        length = np.maximum(length, head + block)
        self.tokens[at] = length
        self.kept[at] = np.minimum(np.round(self.rates[at] * length / block).astype(np.int64), head // block)

    def _next(self, at: NDArray[np.int64]) -> None:
        block, rate = self.p.block_size, self.rates[at]
        before = self.tokens[at - 1]
        depth = before // block
        most = self.room - self.output[at]
        least_new = self.p.growth.least_new
        # Blocks are kept whole: the part-filled last one is replaced where the rate leaves no other way.
        least = depth * block + 1 if least_new is None else before + 1 + least_new
        length = np.maximum(_over(depth * block, rate), least)
        grows = (rate >= _GROWS) & (length <= most)
        natural = before + self.drawn.growth[at]
        compacts = (self.drawn.event[at] == Event.COMPACTION) | (natural > most)
        grows &= ~compacts
        natural = np.where(compacts, (before * self.squeeze[at]).astype(np.int64), natural)
        natural = np.minimum(natural, _over(depth * block, rate))
        natural = np.minimum(np.maximum(natural, self.least[at]), most)
        edited = np.minimum(
            np.round(rate * natural / block).astype(np.int64), np.minimum(depth, natural // block)
        )
        self.tokens[at] = np.where(grows, length, natural)
        self.kept[at] = np.where(grows, depth, edited)
        self.event[at] = np.where(grows & (length > before), Event.PLAIN, Event.EDIT)
        if least_new is not None:
            # The answer before has to fit into what was appended.
            room = np.where(grows, length - before - least_new, self.output[at - 1]).clip(1)
            self.output[at - 1] = np.minimum(self.output[at - 1], room)


def _over(kept: NDArray[np.int64], rate: NDArray[np.float64]) -> NDArray[np.int64]:
    """The largest length of which `kept` is `rate`."""
    return np.floor(kept / np.maximum(rate, 1e-6)).astype(np.int64)
