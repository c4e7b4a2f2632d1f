"""Text and tokens without a model's tokenizer: an estimate of what a text costs, and text of a known cost."""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

ESTIMATED: Final = "texts are cut by a rule of thumb of word pieces; a model's own tokenizer counts otherwise"

# Pieces as byte-pair tokenizers tend to cut: a blank with up to seven letters, up to three digits, one sign.
_PIECES: Final = re.compile(r" ?[^\W\d_]{1,7}|\d{1,3}| ?[^\w\s]|_|\s+", re.UNICODE)


class PieceTable:
    """Ids of pieces of text: the same piece always has the same 64-bit id."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}

    def ids(self, text: str) -> list[int]:
        """Ids of the pieces of a text."""
        known = self._ids
        out: list[int] = []
        for piece in _PIECES.findall(text):
            found = known.get(piece)
            if found is None:
                found = known[piece] = _id(piece)
            out.append(found)
        return out

    def marked(self, role: str, text: str) -> list[int]:
        """Ids of a chat message: what a template puts around it, and its pieces."""
        return [_id(f"\0begin {role}"), *self.ids(text), _id("\0end")]

    def opening(self, role: str) -> list[int]:
        """Ids of what a template puts before an answer."""
        return [_id(f"\0begin {role}")]


def as_ids(ids: list[int]) -> NDArray[np.uint64]:
    """Ids as a column."""
    return np.array(ids, np.uint64)


def _id(piece: str) -> int:
    return int.from_bytes(blake2b(piece.encode(errors="surrogatepass"), digest_size=8).digest(), "little")
