"""Block size and rule of counting, where a format leaves them open: by the rows themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from workloads.trace import Tail

if TYPE_CHECKING:
    from collections.abc import Iterable

PROBED_ROWS: Final = 64
_SIZES: Final = (16, 32, 64, 128, 256, 512, 1024, 1)


def infer(pairs: Iterable[tuple[int, int]], *, usual: int, told: int | None) -> tuple[int, Tail]:
    """The size and rule that most (tokens, blocks) pairs agree with; the usual size where several do."""
    known = [(tokens, blocks) for tokens, blocks in pairs if blocks]  # no ids say nothing of their size
    sizes = (told,) if told is not None else (usual, *(s for s in _SIZES if s != usual))
    best, best_fit = (sizes[0], Tail.PARTIAL), -1
    for size in sizes:
        for tail in (Tail.PARTIAL, Tail.WHOLE):
            fit = sum(blocks == expected(tokens, size, tail) for tokens, blocks in known)
            if fit > best_fit:
                best, best_fit = (size, tail), fit
    return best


def expected(tokens: int, block_size: int, tail: Tail) -> int:
    """Block ids that a prompt of so many tokens has."""
    return tokens // block_size if tail is Tail.WHOLE else -(-tokens // block_size)
