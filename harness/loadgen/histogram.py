"""Counts of durations in buckets of equal relative width: small, mergeable, exact to 1.6 %.

For live display and for the instrument's own verdict; a run's figures come from its raw records.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

_BITS: Final = 6  # buckets per doubling: 2 ** (_BITS - 1)


class Histogram(msgspec.Struct):
    """Bucket → count of non-negative integers (negative ones count as 0)."""

    buckets: dict[int, int] = {}
    count: int = 0
    worst: int = 0

    def add(self, value: int, times: int = 1) -> None:
        value = max(0, value)
        shift = max(0, value.bit_length() - _BITS)
        bucket = (shift << _BITS) + (value >> shift)
        self.buckets[bucket] = self.buckets.get(bucket, 0) + times
        self.count += times
        self.worst = max(self.worst, value)

    def merge(self, others: Iterable[Histogram]) -> None:
        for other in others:
            for bucket, times in other.buckets.items():
                self.buckets[bucket] = self.buckets.get(bucket, 0) + times
            self.count += other.count
            self.worst = max(self.worst, other.worst)

    def since(self, earlier: Histogram | None) -> Histogram:
        """What was added after `earlier`, a copy of this one; its worst is bounded by its highest bucket."""
        if earlier is None:
            return self.copy()
        gained = {
            b: n - earlier.buckets.get(b, 0) for b, n in self.buckets.items() if n > earlier.buckets.get(b, 0)
        }
        highest = bucket_value(max(gained)) if gained else 0
        return Histogram(gained, self.count - earlier.count, max(highest, 0))

    def copy(self) -> Histogram:
        return Histogram(dict(self.buckets), self.count, self.worst)

    def quantile(self, share: float) -> int | None:
        """Middle of the bucket that holds the quantile; None when nothing was counted."""
        if not self.count:
            return None
        wanted = share * self.count
        seen = 0
        for bucket in sorted(self.buckets):
            seen += self.buckets[bucket]
            if seen >= wanted:
                return min(self.worst, bucket_value(bucket))
        return self.worst


def bucket_value(bucket: int) -> int:
    """Middle of a bucket."""
    shift = bucket >> _BITS
    return ((bucket & ((1 << _BITS) - 1)) << shift) + ((1 << shift) >> 1)
