"""When decoding steps end: all sequences of a worker step together, and each step is a little longer.

Between two changes of the batch the k-th step takes first + (k - 1) * growth seconds, because every
sequence's context grows by a token a step; so any number of steps is one closed formula, exact to the step.
"""

from __future__ import annotations

import bisect
import math
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Instants: TypeAlias = NDArray[np.int64]
"""When tokens were made: int64[tokens], ns."""


class DecodeClock:
    """Steps since the worker started, and the epoch under way. `log` keeps when past steps ended."""

    __slots__ = ("_first_s", "_growth_s", "_log", "_start_ns", "steps")

    def __init__(self, *, log: bool) -> None:
        self.steps = 0
        """Steps done when the epoch began."""
        self._start_ns = 0
        self._first_s = 0.0
        self._growth_s = 0.0
        self._log: list[tuple[int, int, float, float]] | None = [] if log else None

    def begin(self, start_ns: int, first_s: float, growth_s: float) -> None:
        """A new epoch from here on."""
        self._start_ns = start_ns
        self._first_s = first_s
        self._growth_s = growth_s
        if self._log is not None:
            self._log.append((self.steps, start_ns, first_s, growth_s))

    def end_ns(self, k: int) -> int:
        """When the k-th step of this epoch ends (0: its beginning)."""
        return self._start_ns + round((k * self._first_s + self._growth_s * k * (k - 1) / 2) * 1e9)

    def done_by(self, now_ns: int) -> int:
        """Steps of this epoch that have ended by `now_ns`."""
        elapsed_s = (now_ns - self._start_ns) * 1e-9
        first_s, growth_s = self._first_s, self._growth_s
        if elapsed_s <= 0 or first_s <= 0:
            return 0
        if growth_s <= 0:
            k = int(elapsed_s / first_s)
        else:
            half = first_s - growth_s / 2
            k = int((math.sqrt(half * half + 2 * growth_s * elapsed_s) - half) / growth_s)
        end_ns = self.end_ns
        while end_ns(k + 1) <= now_ns:
            k += 1
        while k > 0 and end_ns(k) > now_ns:
            k -= 1
        return k

    def advance(self, k: int) -> None:
        """The first `k` steps of the epoch are done; the rest of it begins where they ended."""
        if k:
            self._start_ns = self.end_ns(k)
            self.steps += k
            self._first_s += k * self._growth_s
            if self._log is not None:
                self._log.append((self.steps, self._start_ns, self._first_s, self._growth_s))

    def stand_still(self, pause_ns: int) -> None:
        """What is left of this epoch comes so much later."""
        self.begin(self._start_ns + pause_ns, self._first_s, self._growth_s)

    def ends_ns(self, first: int, count: int) -> Instants:
        """When steps first + 1 .. first + count (of all steps) ended; needs the log."""
        assert self._log is not None
        log, last = self._log, first + count
        begin = bisect.bisect_right(log, first, key=_base) - 1
        end = bisect.bisect_left(log, last, key=_base)
        epochs = log[begin : max(end, begin + 1)]
        steps = np.arange(first + 1, last + 1)
        bases = np.array([epoch[0] for epoch in epochs])
        of = np.searchsorted(bases, steps, side="left") - 1
        k = (steps - bases[of]).astype(np.float64)
        ends: Instants = np.array([epoch[1] for epoch in epochs], np.int64)[of]
        first_s, growth_s = np.array([epoch[2:] for epoch in epochs]).T[:, of]
        ends += np.rint((k * first_s + growth_s * k * (k - 1) / 2) * 1e9).astype(np.int64)
        return ends

    def forget_before(self, step: int) -> None:
        """Epochs that ended before `step` will not be asked for again."""
        if self._log is None or len(self._log) < 256:
            return
        keep = max(0, bisect.bisect_right(self._log, step, key=_base) - 1)
        del self._log[:keep]


def _base(epoch: tuple[int, int, float, float]) -> int:
    return epoch[0]
