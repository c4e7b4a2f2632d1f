"""Virtual time: a heap of calls."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any


class EventQueue:
    """Calls in order of (instant, order of scheduling); `now_ns` never decreases."""

    __slots__ = ("_heap", "_order", "calls", "now_ns")

    def __init__(self) -> None:
        self.now_ns = 0
        self.calls = 0
        self._heap: list[tuple[int, int, Callable[[Any], None], Any]] = []
        self._order = 0

    def at(self, at_ns: int, call: Callable[[Any], None], argument: Any) -> None:
        """Make `call(argument)` at `at_ns` (now, if that has passed)."""
        self._order += 1
        heapq.heappush(self._heap, (at_ns, self._order, call, argument))

    def run(self, until_ns: int | None = None) -> None:
        """Make calls until none is left, or the next one is due after `until_ns`."""
        heap, pop = self._heap, heapq.heappop
        while heap:
            if until_ns is not None and heap[0][0] > until_ns:
                self.now_ns = max(self.now_ns, until_ns)
                return
            at_ns, _, call, argument = pop(heap)
            if at_ns > self.now_ns:  # noqa: PLR1730 - max() costs a call, in the innermost loop
                self.now_ns = at_ns
            self.calls += 1
            call(argument)

    def __len__(self) -> int:
        return len(self._heap)
