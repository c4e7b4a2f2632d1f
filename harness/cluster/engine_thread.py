"""The engine's own thread: it alone touches the engine, and computes whenever there is work.

Between steps it takes jobs from the event loop, in order. Their answers go back before the next step, its
results in one batch when it is over.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from harness.cluster.desk import Desk
from harness.engine import Engine
from harness.policy import events as ev

_T = TypeVar("_T")
_IDLE_S: Final = 0.5
_MAX_JOBS: Final = 100_000

Told = list[tuple[ev.Event, Sequence[int]]]
Progress = dict[ev.WorkId, int]


class EngineThread:
    """Runs `engine` until `stop`. `deliver` and `crashed` are called on the event loop."""

    def __init__(
        self,
        name: str,
        engine: Engine,
        loop: asyncio.AbstractEventLoop,
        deliver: Callable[[Told, Progress], None],
        crashed: Callable[[BaseException], None],
    ) -> None:
        self.engine = engine
        self.desk = Desk(name, engine, self._tell, self._note_progress)
        self._loop = loop
        self._deliver = deliver
        self._crashed = crashed
        self._jobs: queue.Queue[Callable[[], None]] = queue.Queue(_MAX_JOBS)
        self._told: Told = []
        self._progress: Progress = {}
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=f"engine-{name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float = 5.0) -> None:
        """End after the step under way and free the engine."""
        self._stopping = True
        self.post(lambda: None)
        self._thread.join(timeout_s)

    def post(self, job: Callable[[], None]) -> None:
        """Run `job` on the engine's thread between two steps."""
        self._jobs.put_nowait(job)

    def call(self, job: Callable[[], _T]) -> asyncio.Future[_T]:
        """Run `job` on the engine's thread; the future has its result or its exception."""
        future: asyncio.Future[_T] = self._loop.create_future()

        def settle(result: Any, error: BaseException | None) -> None:
            if future.cancelled():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)

        def run() -> None:
            try:
                result = job()
            except Exception as error:  # noqa: BLE001 - it belongs to the caller, who awaits the future
                self._loop.call_soon_threadsafe(settle, None, error)
            else:
                self._loop.call_soon_threadsafe(settle, result, None)

        self.post(run)
        return future

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._take_jobs()
                self._flush()  # answers to commands do not wait for the step that follows
                if self.engine.has_work():
                    self.desk.take(self.engine.step())
                    self._flush()
        except BaseException as error:  # noqa: BLE001 - the process must end with it, not go on deaf
            self._loop.call_soon_threadsafe(self._crashed, error)
        finally:
            self.engine.shutdown()

    def _take_jobs(self) -> None:
        try:
            job = self._jobs.get(timeout=_IDLE_S) if not self.engine.has_work() else self._jobs.get_nowait()
            while True:
                job()
                job = self._jobs.get_nowait()
        except queue.Empty:
            return

    def _tell(self, event: ev.Event, ids: Sequence[int]) -> None:
        self._told.append((event, ids))

    def _note_progress(self, seq: ev.WorkId, positions: int) -> None:
        self._progress[seq] = positions

    def _flush(self) -> None:
        if self._told or self._progress:
            told, progress = self._told, self._progress
            self._told, self._progress = [], {}
            self._loop.call_soon_threadsafe(self._deliver, told, progress)
