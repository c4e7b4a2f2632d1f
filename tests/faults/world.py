"""A cell to be faulty in, without processes or packets of a real one."""

from __future__ import annotations

import asyncio
import time

from harness.clock import take_anchor
from harness.faults import FaultError
from harness.link import Direction, LinkError, LinkProfile

BASE = LinkProfile(
    name="base", a_to_b=Direction(delay_ms=10, rate_mbit=50), b_to_a=Direction(delay_ms=10, rate_mbit=50)
)


class FakeLink:
    """Remembers what was applied, and when (epoch ns by `anchor`)."""

    def __init__(self, anchor, refuses=()):
        self._anchor = anchor
        self._refuses = refuses
        self.applied: list[tuple[int, LinkProfile]] = []

    async def apply(self, profile):
        await asyncio.sleep(0)
        for name in self._refuses:
            if getattr(profile.a_to_b, name):
                raise LinkError(f"a_to_b.{name}: cannot")
        self.applied.append((self._anchor.epoch_ns(time.monotonic_ns()), profile))

    @property
    def names(self):
        return [profile.name for _, profile in self.applied]


class World:
    """Fills `harness.faults.Surroundings`."""

    def __init__(self, pids=None, *, link=True, refuses=()):
        self.anchor = take_anchor()
        self.link = FakeLink(self.anchor, refuses) if link else None
        self.profile = BASE
        self.rows = []
        self._pids = pids or {}

    def pid(self, process):
        try:
            return self._pids[process]
        except KeyError:
            raise FaultError(f"process {process!r}: unknown; there are: {', '.join(self._pids)}") from None

    def now_ns(self):
        return self.anchor.epoch_ns(time.monotonic_ns())
