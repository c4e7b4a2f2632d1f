"""The token ids a prompt may be made of."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from workloads.errors import TraceError

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Vocabulary(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Ids first_normal_id..vocab_size - 1 without `special_ids`: no prompt ever holds a special token.

    Ranks 0..size - 1 count the normal ids upwards.
    """

    first_normal_id: int
    vocab_size: int
    special_ids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.first_normal_id < self.vocab_size <= 1 << 32:
            raise TraceError(
                "needs 0 <= first_normal_id < vocab_size <= 2**32",
                field="vocabulary",
                value=(self.first_normal_id, self.vocab_size),
            )
        if self.size < 2:
            raise TraceError("needs two normal ids at least", field="vocabulary", value=self.size)

    @property
    def _special_inside(self) -> list[int]:
        return sorted({s for s in self.special_ids if self.first_normal_id <= s < self.vocab_size})

    @property
    def size(self) -> int:
        """Number of normal ids."""
        return self.vocab_size - self.first_normal_id - len(self._special_inside)

    @property
    def digits(self) -> int:
        """Tokens needed to spell a 64-bit word: blocks this long never coincide for different ids."""
        return math.ceil(64 / math.log2(self.size) - 1e-9)

    def ids(self, rank: NDArray[np.uint64]) -> NDArray[np.uint32]:
        """Token ids of ranks."""
        token = rank + np.uint64(self.first_normal_id)
        for special in self._special_inside:  # ascending: each one passed shifts the rest by one
            token += token >= special
        return token.astype(np.uint32)
