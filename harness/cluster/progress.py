"""How far each open sequence has come, for transfers that follow a prefill."""

from __future__ import annotations

import asyncio
from typing import Final

from harness.policy.events import WorkId

CLOSED: Final = -1
"""Instead of a count: the sequence is no more, and whoever waits for it learns that."""


class ProgressBoard:
    """Positions held per sequence; transfers wait here for more."""

    def __init__(self) -> None:
        self._held: dict[WorkId, int] = {}
        self._grown: dict[WorkId, asyncio.Event] = {}

    def update(self, progress: dict[WorkId, int]) -> None:
        for seq, held in progress.items():
            if held == CLOSED:
                self._held.pop(seq, None)
            else:
                self._held[seq] = held
            if (event := self._grown.pop(seq, None)) is not None:
                event.set()

    async def beyond(self, seq: WorkId, position: int, timeout_s: float) -> int:
        """Positions held, once they exceed `position`. Raises TimeoutError, or KeyError when closed."""
        async with asyncio.timeout(timeout_s):
            while (held := self._held[seq]) <= position:
                await self._grown.setdefault(seq, asyncio.Event()).wait()
            return held
