"""Token ids from block ids by a keyed hash.

A block's 64-bit word is a bijection of its id under the key of its scope, so within a scope two ids never
share a word. The block's first `Vocabulary.digits` tokens spell the word in the vocabulary's base: two
blocks long enough to hold them never read alike. The tokens after that follow from the word by mixing.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from workloads.vocabulary import Vocabulary

_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)
_MIX_1: Final = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2: Final = np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31 = np.uint64(30), np.uint64(27), np.uint64(31)


def mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of splitmix64: a bijection on 64 bits. Steele, Lea, Flood 2014."""
    x = (x ^ (x >> _S30)) * _MIX_1
    x = (x ^ (x >> _S27)) * _MIX_2
    return x ^ (x >> _S31)


def scope_key(seed: int, salt: str, scope: str) -> int:
    """64-bit key of a scope: other seeds, salts and scopes give other tokens for the same ids."""
    text = f"{seed}\0{salt}\0{scope}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


@dataclass(frozen=True, slots=True)
class Spelling:
    """Spells blocks of `block_size` tokens in a vocabulary."""

    vocabulary: Vocabulary
    block_size: int

    def tokens(self, words: NDArray[np.uint64]) -> NDArray[np.uint32]:
        """Tokens of blocks, given their words (`word`): uint32[len(words) x block_size]."""
        base = np.uint64(self.vocabulary.size)
        spelled = min(self.vocabulary.digits, self.block_size)
        rank = np.empty((len(words), self.block_size), np.uint64)
        rest = words.copy()
        for j in range(spelled):
            rank[:, j] = rest % base
            rest //= base
        if spelled == self.vocabulary.digits:
            # The last digit takes few values: shift it by a hash of the others, which keeps words apart.
            low = words % base ** np.uint64(spelled - 1)
            rank[:, spelled - 1] = (rank[:, spelled - 1] + mix(low + _GOLDEN) % base) % base
        if self.block_size > spelled:
            step = np.arange(spelled, self.block_size, dtype=np.uint64) * _GOLDEN
            rank[:, spelled:] = mix(words[:, None] + step) % base
        return self.vocabulary.ids(rank.reshape(-1))


def word(key: int, ids: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """64-bit words of block ids under a scope's key."""
    return mix(ids ^ np.uint64(key))
