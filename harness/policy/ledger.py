"""What each worker has told about the prefixes it holds, by session.

Told at closing and at eviction, corrected at each opening; never inferred. Only routing and the
accounting of cache gaps read it: what crosses a link is always settled by the receiver itself.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from harness.policy.events import WorkerName

_MAX_SESSIONS: Final = 200_000  # bounds memory; the oldest sessions are forgotten first


class CacheLedger:
    """Tokens held per session and worker, as last told."""

    def __init__(self) -> None:
        self._held: OrderedDict[str, dict[WorkerName, int]] = OrderedDict()

    def tell(self, worker: WorkerName, session: str, held: int) -> None:
        by_worker = self._held.get(session)
        if by_worker is None:
            if held == 0:
                return
            by_worker = self._held[session] = {}
            if len(self._held) > _MAX_SESSIONS:
                self._held.popitem(last=False)
        if held:
            by_worker[worker] = held
        else:
            by_worker.pop(worker, None)
            if not by_worker:
                del self._held[session]

    def held(self, session: str) -> dict[WorkerName, int]:
        """Tokens by worker; workers that hold nothing are absent."""
        return self._held.get(session, {})

    def forget(self, worker: WorkerName) -> None:
        """The worker is gone and its cache with it."""
        for session in [s for s, by_worker in self._held.items() if worker in by_worker]:
            self.tell(worker, session, 0)
