"""One monotonic clock per process, anchored once to the epoch.

Instants of different processes may be compared only within the sum of their anchors' errors.
"""

from __future__ import annotations

import time

import msgspec


class Anchor(msgspec.Struct, frozen=True):
    """`epoch_ns = monotonic_ns + offset_ns`, known to ± `error_ns`."""

    offset_ns: int
    error_ns: int

    def epoch_ns(self, monotonic_ns: int) -> int:
        return monotonic_ns + self.offset_ns

    def monotonic_ns(self, epoch_ns: int) -> int:
        return epoch_ns - self.offset_ns


def take_anchor(tries: int = 32) -> Anchor:
    """Read the realtime clock between two monotonic reads; keep the tightest bracket of `tries`."""
    best: Anchor | None = None
    for _ in range(tries):
        before = time.monotonic_ns()
        epoch = time.time_ns()
        after = time.monotonic_ns()
        error = (after - before + 1) // 2
        if best is None or error < best.error_ns:
            best = Anchor(epoch - (before + after) // 2, error)
    assert best is not None
    return best
