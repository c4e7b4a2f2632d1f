"""What `SlotEngine` needs of a computing backend: numbered slots of KV, and one batch at a time.

The backend knows no sequences, prefixes or queues; it does what it is told to slots it is told are valid.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from harness.engine import Decode, EngineInfo


@dataclass(frozen=True, slots=True)
class Row:
    """Compute `ids` at positions [start, start + len(ids)) of `slot`; with `decode`, sample answer token
    `index` from the last one's logits."""

    slot: int
    start: int
    ids: Sequence[int]
    decode: Decode | None
    index: int


@dataclass(frozen=True, slots=True)
class Sample:
    """One sampled id; `margin` is the logit gap to the runner-up, None where there is none."""

    token: int
    margin: float | None


class ComputeError(Exception):
    """The batch could not be computed; the rows' slots hold what they held before. One line."""


class Backend(Protocol):
    @property
    def info(self) -> EngineInfo: ...

    def compute(self, rows: Sequence[Row]) -> list[Sample | None]:
        """Compute one batch; one entry a row, a Sample where the row has `decode`. Raises ComputeError."""
        ...

    def read(self, slot: int, p0: int, p1: int) -> bytes | memoryview:
        """Payload of the KV of [p0, p1)."""
        ...

    def write(self, slot: int, p0: int, p1: int, payload: memoryview) -> None:
        """Append what `read` returned to a slot that holds exactly [0, p0). KvMismatch changes nothing."""
        ...

    def truncate(self, slot: int, length: int) -> None:
        """Drop every position of the slot from `length` on."""
        ...

    def copy(self, source: int, target: int, length: int) -> None:
        """Make the empty slot `target` hold the first `length` positions of `source`."""
        ...

    def free(self) -> None:
        """Release everything. Called once."""
        ...
