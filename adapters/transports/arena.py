"""Ranges of one block of memory, first fit."""

from __future__ import annotations


class Arena:
    """Which parts of `size` bytes are in use."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._taken: list[tuple[int, int]] = []
        """(start, end), in order."""

    def take(self, size: int) -> int | None:
        """Start of a free range; None when there is none that long."""
        at = 0
        for index, (start, end) in enumerate(self._taken):
            if start - at >= size:
                self._taken.insert(index, (at, at + size))
                return at
            at = end
        if self.size - at < size:
            return None
        self._taken.append((at, at + size))
        return at

    def give_back(self, start: int) -> None:
        """Free the range that begins there, if one does."""
        self._taken = [taken for taken in self._taken if taken[0] != start]
