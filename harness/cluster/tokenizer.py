"""Text in front of a cluster that speaks token ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Tokenizer(Protocol):
    """The model's own tokenizer; ids and text of the model that the workers run."""

    @property
    def end_ids(self) -> tuple[int, ...]:
        """Ids that end an answer unless the client ignores them."""
        ...

    def encode(self, text: str) -> list[int]: ...

    def decode(self, ids: Sequence[int]) -> bytes:
        """The bytes of these ids; a character may be split between two calls."""
        ...

    def chat(self, messages: Sequence[tuple[str, str]]) -> list[int]:
        """Ids of a conversation of (role, content), ending where the assistant is to speak."""
        ...
