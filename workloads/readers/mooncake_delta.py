"""Mooncake rows declared as deltas: each tells what a turn adds to all that its session had before.

The prompt of a turn is the prompt before, the answer before and the row's own input. Block ids, where a row
has any, name its own input only; blocks no longer begin at multiples of their size, so the trace is told by
the token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from workloads.builder import MAX_TOKENS, TraceBuilder
from workloads.errors import TraceError
from workloads.readers.blocks import expected
from workloads.trace import Tail

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from workloads.builder import Place

_FRESH: Final = 1 << 62  # token ids above are nobody's block


class DeltaPrompts:
    """Puts the prompts of delta rows into the tree."""

    def __init__(self, block_size: int, tail: Tail) -> None:
        self.builder = TraceBuilder(block_size=1, tail=Tail.WHOLE)
        self._block_size = block_size
        self._tail = tail
        self._context: dict[int, NDArray[np.uint64]] = {}  # session → ids of prompt and answer so far
        self._blocks: dict[int, int] = {}  # block id → the number its tokens are counted from
        self._fresh = _FRESH

    def prompt(
        self, session: int, place: Place, *, added: int, output: int, ids: list[int]
    ) -> tuple[int, int]:
        """Node and length of the whole prompt."""
        if not 0 <= added < MAX_TOKENS or not 0 <= output < MAX_TOKENS:
            raise TraceError(
                "lengths must be 0 or more", file=place.file, line=place.line, value=(added, output)
            )
        before = self._context.get(session, np.zeros(0, np.uint64))
        tokens = np.concatenate((before, self._tokens(added, ids, place)))
        node = self.builder.tree.insert(0, tokens, len(self.builder))
        self._context[session] = np.concatenate((tokens, self._new(output)))
        return node, len(tokens)

    def _tokens(self, added: int, ids: list[int], place: Place) -> NDArray[np.uint64]:
        if not ids:
            return self._new(added)
        right = expected(added, self._block_size, self._tail)
        if len(ids) != right:
            raise TraceError(
                f"{added} added tokens need {right} block ids of {self._block_size}",
                file=place.file,
                line=place.line,
                field="hash_ids",
                value=len(ids),
            )
        numbers = np.array([self._blocks.setdefault(i, len(self._blocks)) for i in ids], np.uint64)
        offsets = np.arange(self._block_size, dtype=np.uint64)
        told = (numbers[:, None] * np.uint64(self._block_size) + offsets).reshape(-1)[:added]
        return np.concatenate((told, self._new(added - len(told))))

    def _new(self, count: int) -> NDArray[np.uint64]:
        first = self._fresh
        self._fresh += count
        return np.arange(first, first + count, dtype=np.uint64)
