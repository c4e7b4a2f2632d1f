"""The KV segments of one transfer, in order.

A segment is exported between two steps of the engine. An engine that streams gives it away layer by layer
from within the step that computes it, so that the line carries the first layer while the last is still to
come. What comes faster than it can be sent is not kept: it is exported later.
"""

from __future__ import annotations

import asyncio
from collections import deque
from types import TracebackType
from typing import Final, Self

from harness.cluster.engine_thread import EngineThread
from harness.cluster.progress import ProgressBoard
from harness.engine import KvPiece, StreamsKv
from harness.policy import actions as act

_MAX_STREAMED: Final = 2  # segments that wait to be sent: the one under way, and the next


class Segment:
    """KV of [p0, p1): a blob of `blob_bytes`, not all of which need be there yet."""

    def __init__(self, p0: int, p1: int, blob_bytes: int, data: bytes = b"") -> None:
        self.p0 = p0
        self.p1 = p1
        self.blob_bytes = blob_bytes
        self._data = bytearray(data)
        self._grown = asyncio.Event()

    def add(self, data: bytes) -> None:
        self._data += data
        self._grown.set()

    async def piece(self, start: int, end: int, timeout_s: float) -> bytes:
        """Bytes [start, end) of the blob, once they are there. Raises TimeoutError."""
        async with asyncio.timeout(timeout_s):
            while len(self._data) < end:
                self._grown.clear()
                await self._grown.wait()
        return bytes(self._data[start:end])


class KvFeed:
    """Used as a context: it follows the engine, if there is something to follow, until it is left."""

    def __init__(
        self,
        thread: EngineThread,
        board: ProgressBoard,
        action: act.Transfer,
        *,
        segment_tokens: int,
        stall_s: float,
    ) -> None:
        self._thread = thread
        self._board = board
        self._action = action
        self._segment_tokens = segment_tokens
        self._stall_s = stall_s
        self._loop = asyncio.get_running_loop()
        self._streamed: deque[Segment] = deque()
        self._filling: Segment | None = None
        self._began = asyncio.Event()

    async def __aenter__(self) -> Self:
        engine = self._thread.engine
        if self._action.follow and isinstance(engine, StreamsKv):
            await self._thread.call(lambda: engine.follow_kv(self._action.source_seq, self._tell))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        engine = self._thread.engine
        if self._action.follow and isinstance(engine, StreamsKv):
            self._thread.post(lambda: engine.unfollow_kv(self._action.source_seq, self._tell))

    async def next(self, position: int) -> Segment:
        """The segment that begins at `position`. Raises TimeoutError, KeyError when the sequence is closed,
        or EngineError."""
        while self._streamed and self._streamed[0].p1 <= position:
            self._streamed.popleft()
        if not self._streamed:
            await self._either(position)
        end = self._action.p1
        if self._streamed:
            first = self._streamed[0]
            if first.p0 == position and first.p1 <= end:
                return self._streamed.popleft()
            end = min(end, first.p1 if first.p0 <= position else first.p0)
        return await self._export(position, end)

    async def _export(self, position: int, end: int) -> Segment:
        seq, block = self._action.source_seq, self._thread.engine.info.block_tokens
        # A cut within a block would send that block twice.
        least = min(end, (position // block + 1) * block)
        held = await self._board.beyond(seq, least - 1, self._stall_s)
        p1 = min(held, end, position + self._segment_tokens)
        if p1 < end:
            p1 = max(least, p1 - p1 % block)
        blob = await self._thread.call(lambda: self._thread.engine.export_kv(seq, position, p1))
        return Segment(position, p1, len(blob), blob)

    async def _either(self, position: int) -> None:
        """Wait until a streamed segment begins or the sequence has grown beyond `position`."""
        self._began.clear()
        waits = {
            asyncio.ensure_future(self._began.wait()),
            asyncio.ensure_future(self._board.beyond(self._action.source_seq, position, self._stall_s)),
        }
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waits:
                task.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
        for task in done:
            task.result()

    def _tell(self, piece: KvPiece) -> None:
        """Called on the engine's thread."""
        self._loop.call_soon_threadsafe(self._take, piece)

    def _take(self, piece: KvPiece) -> None:
        if piece.part == 0:
            self._filling = None
            if len(self._streamed) < _MAX_STREAMED:
                self._filling = Segment(piece.p0, piece.p1, piece.blob_bytes)
                self._streamed.append(self._filling)
                self._began.set()
        if self._filling is not None:
            self._filling.add(piece.data)
