"""Virtual time: a heap of calls, and alarms beside it."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from typing import Any, Final

from harness.sim.alarms import Alarms

_push, _pop = heapq.heappush, heapq.heappop


class EventQueue:
    """Calls in order of (instant, order of scheduling); `now_ns` never decreases."""

    __slots__ = ("_alarms", "_heap", "_next_alarm_ns", "_order", "now_ns")

    def __init__(self) -> None:
        self.now_ns = 0
        self._heap: Final[list[tuple[int, int, Callable[[Any], None], Any]]] = []
        self._order = 0
        self._alarms: Final = Alarms()
        self._next_alarm_ns: float = math.inf
        """No alarm is due before this."""

    def at(self, at_ns: int, call: Callable[[Any], None], argument: Any) -> None:
        """Make `call(argument)` at `at_ns` (now, if that has passed)."""
        self._order += 1
        _push(self._heap, (at_ns, self._order, call, argument))

    def set_alarm(self, name: str, at_ns: int, call: Callable[[str], None]) -> None:
        """Make `call(name)` at `at_ns`, after all other calls due then, unless the alarm is set anew or
        cleared by that time."""
        self._alarms.set(name, at_ns, at_ns - self.now_ns, call)
        self._next_alarm_ns = min(self._next_alarm_ns, at_ns)

    def clear_alarm(self, name: str) -> None:
        self._alarms.clear(name)

    def run(self) -> None:
        """Make calls until neither calls nor alarms are left."""
        heap, pop = self._heap, _pop
        while True:
            while heap:
                call = pop(heap)
                at_ns = call[0]
                if at_ns > self._next_alarm_ns:
                    _push(heap, call)
                    break
                if at_ns > self.now_ns:
                    self.now_ns = at_ns
                call[2](call[3])
            if not self._ring(heap[0][0] if heap else math.inf) and not heap:
                return

    def _ring(self, before_ns: float) -> bool:
        """Let the next alarm ring if it is due before `before_ns`."""
        due = self._alarms.first()
        self._next_alarm_ns = math.inf if due is None else due[0]
        if due is None or due[0] >= before_ns:
            return False
        at_ns, name, call = due
        self._alarms.clear(name)
        self.now_ns = max(self.now_ns, at_ns)
        call(name)
        return True

    @property
    def calls(self) -> int:
        """Calls made so far, alarms apart."""
        return self._order - len(self._heap)

    def __len__(self) -> int:
        return len(self._heap) + len(self._alarms)
