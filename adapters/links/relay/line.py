"""One direction of the modelled line, shared by its flows: rate, delay, jitter, down."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from typing import TYPE_CHECKING, Final, assert_never

from harness.link import Direction, JitterDistribution, LinkError

if TYPE_CHECKING:
    import random

    from adapters.links.relay.flow import Flow

_QUANTUM_S: Final = 0.001
_MIN_QUANTUM_BYTES: Final = 1460
_MAX_QUANTUM_BYTES: Final = 65536
_CATCH_UP_S: Final = 0.02
"""A late timer may make up for at most this much line time."""
_MIN_WINDOW_BYTES: Final = 65536
_UNLIMITED_WINDOW_BYTES: Final = 16 << 20


class Line:
    """Serialises the flows' bytes at its rate, a quantum of each in turn."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._loop = asyncio.get_running_loop()
        self._round: deque[Flow] = deque()
        self._free_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._up = asyncio.Event()
        self.carried_bytes = 0
        self.shape(Direction(), acknowledge_delay_ms=0)

    def shape(self, direction: Direction, *, acknowledge_delay_ms: float) -> None:
        """`acknowledge_delay_ms` is the delay of the way back, which closes the window's control loop."""
        self.direction = direction
        self.acknowledge_delay_s = acknowledge_delay_ms / 1000
        self._delay_s = direction.delay_ms / 1000
        self._jitter_s = direction.jitter_ms / 1000
        self._bytes_per_s = None if direction.rate_mbit is None else direction.rate_mbit * 125_000
        if self._bytes_per_s is None:
            self._quantum_bytes = _MAX_QUANTUM_BYTES
            self.window_bytes = _UNLIMITED_WINDOW_BYTES
        else:
            quantum = math.ceil(self._bytes_per_s * _QUANTUM_S)
            self._quantum_bytes = min(max(quantum, _MIN_QUANTUM_BYTES), _MAX_QUANTUM_BYTES)
            in_flight = self._bytes_per_s * (self._delay_s + self.acknowledge_delay_s)
            self.window_bytes = max(_MIN_WINDOW_BYTES, math.ceil(2 * in_flight))
        if direction.down:
            self._up.clear()
        else:
            self._up.set()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        # What was promised at the old rate does not bind the new one.
        self._free_s = min(self._free_s, self._loop.time())
        self._run()

    async def cross(self) -> None:
        """One empty packet: wait until the line is up, then its delay."""
        await self._up.wait()
        await asyncio.sleep(self._delay_s)

    @property
    def backlog_bytes(self) -> int:
        return sum(flow.queued_bytes for flow in self._round)

    def offer(self, flow: Flow) -> None:
        """The flow has something to send."""
        if not flow.waiting:
            flow.waiting = True
            self._round.append(flow)
        if self._timer is None:
            self._free_s = max(self._free_s, self._loop.time())
            self._run()

    def _run(self) -> None:
        self._timer = None
        if self.direction.down:
            return
        now = self._loop.time()
        self._free_s = max(self._free_s, now - _CATCH_UP_S)
        while self._round:
            if self._free_s > now and self._bytes_per_s is not None:
                self._timer = self._loop.call_at(self._free_s, self._run)
                return
            flow = self._round.popleft()
            self._send(flow, now)
            if flow.empty:
                flow.waiting = False
            else:
                self._round.append(flow)

    def _send(self, flow: Flow, now: float) -> None:
        """A quantum of this flow onto the wire."""
        left = self._quantum_bytes
        while left > 0 and (piece := flow.take(left)) is not None:
            left -= len(piece)
            if self._bytes_per_s is None:
                self._free_s = now
            else:
                self._free_s += len(piece) / self._bytes_per_s
            if not flow.probe:
                self.carried_bytes += len(piece)
            flow.travel(piece, max(self._free_s, now) + max(0.0, self._delay_s + self._draw_jitter_s()))

    def _draw_jitter_s(self) -> float:
        if not self._jitter_s:
            return 0.0
        match self.direction.jitter_distribution:
            case JitterDistribution.UNIFORM:
                return self._jitter_s * self._rng.uniform(-1, 1)
            case JitterDistribution.NORMAL:
                return self._rng.gauss(0, self._jitter_s)
            case JitterDistribution.PARETO | JitterDistribution.PARETONORMAL as shape:
                raise LinkError(f"jitter_distribution: the relay cannot do {shape}")
        assert_never(self.direction.jitter_distribution)
