"""One direction of one relayed connection: bytes queued for the line, on the wire, and delivered."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from adapters.links.relay.line import Line

INITIAL_WINDOW_BYTES: Final = 10 * 1460
"""Linux's initial congestion window."""

_END: Final = memoryview(b"")


class Flow:
    """A FIFO with a window. The connection reads into it, the line moves it on, `deliver` writes it out."""

    def __init__(
        self,
        line: Line,
        *,
        deliver: Callable[[memoryview], None],
        deliver_end: Callable[[], None],
        credit: Callable[[], None],
        probe: bool,
    ) -> None:
        self._line = line
        self._deliver = deliver
        self._deliver_end = deliver_end
        self._credit = credit
        self._loop = asyncio.get_running_loop()
        self._queue: deque[memoryview] = deque()
        self._wire: deque[tuple[float, memoryview]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._window_bytes = float(INITIAL_WINDOW_BYTES)
        self._unacknowledged_bytes = 0
        self._last_arrival_s = 0.0
        self._held = False
        self._closed = False
        self.probe = probe
        """Bytes of the in-band probe share the line but are not counted as carried."""
        self.queued_bytes = 0
        self.waiting = False
        """In the line's round: kept by the line."""

    @property
    def room_bytes(self) -> int:
        """How much may be read now."""
        window = min(self._window_bytes, self._line.window_bytes)
        return max(0, int(window) - self.queued_bytes - self._unacknowledged_bytes)

    def put(self, data: bytes) -> None:
        if not self._closed:
            self._queue.append(memoryview(data))
            self.queued_bytes += len(data)
            self._line.offer(self)

    def put_end(self) -> None:
        """The sender will send no more; told to the receiver after the bytes before it."""
        if not self._closed:
            self._queue.append(_END)
            self._line.offer(self)

    def take(self, limit_bytes: int) -> memoryview | None:
        """Next piece for the line, at most `limit_bytes`; empty for the end mark, None when there is none."""
        if not self._queue:
            return None
        piece = self._queue.popleft()
        if len(piece) > limit_bytes:
            self._queue.appendleft(piece[limit_bytes:])
            piece = piece[:limit_bytes]
        self.queued_bytes -= len(piece)
        return piece

    @property
    def empty(self) -> bool:
        return not self._queue

    def travel(self, piece: memoryview, arrival_s: float) -> None:
        """On the wire until `arrival_s`; never overtakes what left before."""
        self._last_arrival_s = max(self._last_arrival_s, arrival_s)
        self._unacknowledged_bytes += len(piece)
        self._wire.append((self._last_arrival_s, piece))
        self._set_timer()

    def hold(self) -> None:
        """The receiver's socket is full."""
        self._held = True

    def release(self) -> None:
        self._held = False
        self._set_timer()

    def close(self) -> None:
        """Forget what has not been delivered."""
        self._closed = True
        self._queue.clear()
        self._wire.clear()
        self.queued_bytes = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set_timer(self) -> None:
        if self._timer is None and self._wire and not self._held:
            self._timer = self._loop.call_at(self._wire[0][0], self._arrive)

    def _arrive(self) -> None:
        self._timer = None
        now = self._loop.time()
        while self._wire and self._wire[0][0] <= now and not self._held:
            _, piece = self._wire.popleft()
            if not piece:
                self._deliver_end()
                continue
            self._loop.call_later(self._line.acknowledge_delay_s, self._acknowledge, len(piece))
            self._deliver(piece)
        self._set_timer()

    def _acknowledge(self, count: int) -> None:
        self._unacknowledged_bytes -= count
        if self._window_bytes < self._line.window_bytes:
            self._window_bytes += count
        if not self._closed:
            self._credit()
