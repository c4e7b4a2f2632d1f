"""What stands for KV: for every position a 64-bit state that depends on all ids up to it.

    state[i]  = state[i-1] + mix(id[i] + stride x i)
    digest[i] = digest[i-1] + mix(state[i])             all modulo 2**64

A slot goes on from the states that it holds, computed or imported, and samples from its digest; so a
range that is lost, doubled or of another prompt gives other ids from there on, as wrong KV would.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from harness.engine import Decode

Words = npt.NDArray[np.uint64]

WORD_BYTES = 8
_STRIDE = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_MASK = 0xFFFF_FFFF_FFFF_FFFF


def mix(words: Words) -> Words:
    """The finalizer of splitmix64, element by element."""
    words = (words ^ (words >> np.uint64(30))) * _FIRST
    words = (words ^ (words >> np.uint64(27))) * _SECOND
    return words ^ (words >> np.uint64(31))


class Chain:
    """States and digests of one slot, growing at the end."""

    def __init__(self) -> None:
        self._states = np.zeros(0, np.uint64)
        self._digests = np.zeros(0, np.uint64)
        self.length = 0

    def compute(self, ids: Sequence[int]) -> None:
        """Append the positions of `ids`."""
        n = len(ids)
        at = np.arange(self.length, self.length + n, dtype=np.uint64)
        states = mix(np.asarray(ids, np.int64).astype(np.uint64) + at * _STRIDE).cumsum(dtype=np.uint64)
        if self.length:
            states += self._states[self.length - 1]
        self.append(states)

    def append(self, states: Words) -> None:
        """Append positions with these states, whatever came before."""
        end = self.length + len(states)
        if end > len(self._states):
            grown = max(end, 2 * len(self._states), 256)
            self._states = np.resize(self._states, grown)
            self._digests = np.resize(self._digests, grown)
        digests = mix(states).cumsum(dtype=np.uint64)
        if self.length:
            digests += self._digests[self.length - 1]
        self._states[self.length : end] = states
        self._digests[self.length : end] = digests
        self.length = end

    def states(self, p0: int, p1: int) -> Words:
        """A copy of [p0, p1)."""
        return self._states[p0:p1].copy()

    def sample(self, decode: Decode, index: int, ids: int) -> int:
        """A number below `ids`; by seed and index only under temperature, as with real logits."""
        word = int(self._digests[self.length - 1])
        if decode.temperature > 0.0:
            word = (word + int(_STRIDE) * (decode.seed * 2 + 1) + int(_FIRST) * (index + 1)) & _MASK
        return int(mix(np.array([word], np.uint64))[0]) % ids
