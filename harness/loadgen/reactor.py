"""One event loop inside gevent's: sockets and an absolute schedule, served by callbacks in the hub.

On Linux a single epoll descriptor, watched by gevent's hub, holds all sockets of the load generator and
a timerfd; a drain serves what is ready and looks at the schedule between any two sockets. Greenlets
(Locust's own) wake only when something for them has happened. Elsewhere each socket has its own hub
watcher: the same interface, slower.
"""

from __future__ import annotations

import heapq
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol

from gevent import get_hub, monkey

from harness.loadgen.timerfd import TimerFd

Handler = Callable[[int], None]
READ: Final = 1  # EPOLLIN, and libev's EV_READ
WRITE: Final = 4  # EPOLLOUT

_READ_HANGUP: Final = 0x2000  # EPOLLRDHUP: idle connections learn at once that the server has left
_BATCH: Final = 64  # sockets per poll: what is due waits for no more than this many reads
_DUE_BATCH: Final = 32  # due callbacks run before the sockets are looked at again
_MANY: Final = 8  # ready sockets after which it pays to poll again before going back to the hub
_MAX_IDLE: Final = 4096  # pieces of idle work waiting; under full load it simply is not done ahead
_ROUNDS: Final = 16  # polls per drain, then the hub's other watchers get their turn
_IDLE_MARGIN_NS: Final = 500_000  # idle work starts only when nothing is due for this long

now_ns = time.monotonic_ns


class Timer:
    """A callback due at an instant; `cancel` is final."""

    __slots__ = ("callback", "due_ns")

    def __init__(self, due_ns: int, callback: Callable[[], None]) -> None:
        self.due_ns = due_ns
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class Reactor(Protocol):
    """What the client, the replay and the recorder's pipe need of an event loop."""

    worst_lag_ns: int

    def watch(self, fd: int, handler: Handler) -> None:
        """Call `handler(mask)` whenever `fd` is readable or has hung up."""

    def want_write(self, fd: int, *, wanted: bool) -> None:
        """Call the handler also when `fd` is writable."""

    def unwatch(self, fd: int) -> None: ...

    def call_at(self, due_ns: int, callback: Callable[[], None]) -> Timer:
        """Call back at `due_ns` (monotonic), never before."""

    def when_idle(self, piece: Callable[[], None]) -> bool:
        """Run a short piece of work when nothing is ready or due soon; False when too much waits already."""

    def close(self) -> None: ...


class Schedule:
    """Timers in order of their due instants, and idle work. The base of both reactors."""

    def __init__(self, on_error: Callable[[BaseException], None]) -> None:
        self._heap: list[tuple[int, int, Timer]] = []
        self._sequence = 0
        self._idle: deque[Callable[[], None]] = deque()
        self._on_error = on_error
        self.worst_lag_ns = 0  # since whoever reads it last set it back to 0

    def _push(self, due_ns: int, callback: Callable[[], None]) -> Timer:
        timer = Timer(due_ns, callback)
        self._sequence += 1
        heapq.heappush(self._heap, (due_ns, self._sequence, timer))
        return timer

    def _push_idle(self, piece: Callable[[], None]) -> bool:
        if len(self._idle) >= _MAX_IDLE:
            return False
        self._idle.append(piece)
        return True

    def _run_due(self) -> int:
        """Run what is due, a bounded number; returns the next due instant, 0 when there is none.

        Bounded, because a schedule that has fallen behind must not keep the sockets from being read: answers
        would age, their connections would not come free, and every late request would open one more.
        """
        heap = self._heap
        for _ in range(_DUE_BATCH):
            if not heap:
                return 0
            due_ns, _, timer = heap[0]
            if timer.callback is None:
                heapq.heappop(heap)
                continue
            late_ns = now_ns() - due_ns
            if late_ns < 0:
                return due_ns
            heapq.heappop(heap)
            self.worst_lag_ns = max(self.worst_lag_ns, late_ns)
            callback, timer.callback = timer.callback, None
            callback()
        return heap[0][0] if heap else 0


class EpollReactor(Schedule):
    """Linux: one epoll descriptor in gevent's hub, a timerfd on the absolute monotonic clock."""

    def __init__(self, on_error: Callable[[BaseException], None]) -> None:
        super().__init__(on_error)
        epoll = monkey.get_original("select", "epoll")()
        self._epoll: Final = epoll
        self._handlers: dict[int, Handler] = {}
        self._timer: Final = TimerFd()
        self._draining = False
        epoll.register(self._timer.fd, READ)
        self._watcher: Final = get_hub().loop.io(epoll.fileno(), 1)
        self._watcher.start(self._drain)

    def watch(self, fd: int, handler: Handler) -> None:
        self._handlers[fd] = handler
        self._epoll.register(fd, READ | _READ_HANGUP)

    def want_write(self, fd: int, *, wanted: bool) -> None:
        self._epoll.modify(fd, READ | _READ_HANGUP | (WRITE if wanted else 0))

    def unwatch(self, fd: int) -> None:
        if self._handlers.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def call_at(self, due_ns: int, callback: Callable[[], None]) -> Timer:
        timer = self._push(due_ns, callback)
        if not self._draining and not 0 < self._timer.due_ns <= due_ns:
            self._timer.arm(due_ns)
        return timer

    def when_idle(self, piece: Callable[[], None]) -> bool:
        accepted = self._push_idle(piece)
        if accepted and not self._draining:
            self._timer.arm(now_ns())
        return accepted

    def close(self) -> None:
        self._watcher.stop()
        self._watcher.close()
        self._epoll.close()
        self._timer.close()

    def _drain(self) -> None:
        # A callback that raises would be printed by the hub and forgotten: the replay has to end instead.
        self._draining = True
        try:
            self._serve()
        except BaseException as error:  # noqa: BLE001
            self._on_error(error)
        finally:
            self._draining = False

    def _serve(self) -> None:
        handlers = self._handlers
        poll = self._epoll.poll
        timer_fd = self._timer.fd
        clock = now_ns
        due_ns = self._run_due()
        for _ in range(_ROUNDS):
            ready = poll(0, _BATCH)
            for fd, mask in ready:
                if due_ns and clock() >= due_ns:
                    due_ns = self._run_due()
                if fd != timer_fd:
                    handler = handlers.get(fd)  # gone when an earlier handler of this batch closed it
                    if handler is not None:
                        handler(mask)
            due_ns = self._run_due()
            if len(ready) >= _MANY:
                continue
            if not self._idle or (due_ns and due_ns - clock() < _IDLE_MARGIN_NS):
                break  # what became ready meanwhile wakes the hub again
            if not ready or ready[-1][0] == timer_fd:
                self._idle.popleft()()
                due_ns = self._run_due()
        if self._idle and not (due_ns and due_ns - clock() < _IDLE_MARGIN_NS):
            due_ns = clock()
        self._timer.arm(due_ns)


class HubReactor(Schedule):
    """Anywhere gevent runs: a hub watcher for each socket, libev's timer (its grain is about 1 ms)."""

    def __init__(self, on_error: Callable[[BaseException], None]) -> None:
        super().__init__(on_error)
        self._loop: Final = get_hub().loop
        self._watchers: dict[int, Any] = {}
        self._handlers: dict[int, Handler] = {}
        self._timer: Any = None

    def watch(self, fd: int, handler: Handler) -> None:
        self._handlers[fd] = handler
        self._set(fd, 1)

    def want_write(self, fd: int, *, wanted: bool) -> None:
        self._set(fd, 3 if wanted else 1)

    def unwatch(self, fd: int) -> None:
        self._handlers.pop(fd, None)
        watcher = self._watchers.pop(fd, None)
        if watcher is not None:
            watcher.stop()
            watcher.close()

    def call_at(self, due_ns: int, callback: Callable[[], None]) -> Timer:
        timer = self._push(due_ns, callback)
        if self._heap[0][2] is timer:
            self._arm(due_ns)
        return timer

    def when_idle(self, piece: Callable[[], None]) -> bool:
        accepted = self._push_idle(piece)
        if accepted:
            self._arm(now_ns())
        return accepted

    def close(self) -> None:
        for fd in list(self._watchers):
            self.unwatch(fd)
        self._disarm()

    def _set(self, fd: int, events: int) -> None:
        old = self._watchers.pop(fd, None)
        if old is not None:
            old.stop()
            old.close()
        watcher = self._watchers[fd] = self._loop.io(fd, events)
        watcher.start(self._ready, fd, watcher, pass_events=True)

    def _ready(self, events: int, fd: int, watcher: object) -> None:
        if self._watchers.get(fd) is watcher:
            mask = (READ if events & 1 else 0) | (WRITE if events & 2 else 0)
            self._guard(lambda: self._handlers[fd](mask))

    def _arm(self, due_ns: int) -> None:
        self._disarm()
        # Without `update` the delay would count from the loop's cached time, which is in the past.
        self._timer = self._loop.timer(max(0.0, (due_ns - now_ns()) / 1e9))
        self._timer.start(self._due, update=True)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.stop()
            self._timer.close()
            self._timer = None

    def _due(self) -> None:
        self._guard(self._serve)

    def _serve(self) -> None:
        due_ns = self._run_due()
        if self._idle and not (due_ns and due_ns - now_ns() < _IDLE_MARGIN_NS):
            self._idle.popleft()()
            due_ns = self._run_due()
            if self._idle:
                due_ns = now_ns()
        if due_ns:
            self._arm(due_ns)

    def _guard(self, call: Callable[[], None]) -> None:
        try:
            call()
        except BaseException as error:  # noqa: BLE001 - the hub would print it and go on
            self._on_error(error)


def make_reactor(on_error: Callable[[BaseException], None]) -> Reactor:
    """The best reactor of this platform; `on_error` gets whatever a callback raises."""
    return EpollReactor(on_error) if sys.platform == "linux" else HubReactor(on_error)
