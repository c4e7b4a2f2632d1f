"""An event loop whose timers are exact to some 50 us: epoll alone rounds up to whole milliseconds."""

from __future__ import annotations

import asyncio
import select
import selectors
import sys

if sys.platform == "linux":

    class _FineSelector(selectors.EpollSelector):
        """Waits in select(2), which takes microseconds, for the epoll descriptor itself, then asks epoll."""

        def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
            if timeout is None or timeout > 0:
                select.select([self.fileno()], [], [], timeout)
            return super().select(0)


def fine_event_loop() -> asyncio.AbstractEventLoop:
    # kqueue, the default on macOS, already takes nanoseconds.
    return asyncio.SelectorEventLoop(_FineSelector() if sys.platform == "linux" else None)
