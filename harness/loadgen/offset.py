"""How far another machine's clock is from ours, from questions and answers. No I/O."""

from __future__ import annotations

from typing import NamedTuple


class Exchange(NamedTuple):
    """Asked and heard on our clock, answered on theirs; ns."""

    asked_ns: int
    answered_ns: int
    heard_ns: int


class Offset(NamedTuple):
    """Their clock minus ours, ± error; ns."""

    offset_ns: int
    error_ns: int

    @property
    def applied_ns(self) -> int:
        """Within its error an offset is no offset: processes of one machine share their clock."""
        return self.offset_ns if abs(self.offset_ns) > self.error_ns else 0


def estimate_offset(exchanges: list[Exchange]) -> Offset:
    """From the quickest exchange: the answer was written between asking and hearing it."""
    best = min(exchanges, key=lambda one: one.heard_ns - one.asked_ns)
    half = (best.heard_ns - best.asked_ns + 1) // 2
    return Offset(best.answered_ns - best.asked_ns - half, half)
