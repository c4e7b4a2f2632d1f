"""Receiving KV: parts are gathered into segments, each segment is joined as soon as it is whole."""

from __future__ import annotations

import contextlib
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field

from aiohttp import WSMsgType, web

from harness.cluster import messages as msg
from harness.cluster.engine_thread import EngineThread
from harness.cluster.frame import FrameError, unpack_ids
from harness.cluster.progress import ProgressBoard
from harness.engine import EngineError
from harness.kv_transport import KvTransport, TransportError
from harness.policy import events as ev


@dataclass(slots=True)
class _Incoming:
    begin: msg.KvBegin
    ids: array[int]
    segment: bytearray = field(default_factory=bytearray)
    next_part: int = 0
    kv_bytes: int = 0
    join_ns: int = 0
    held: int = 0
    error: str | None = None


class KvReceiver:
    """The /kv endpoint of one worker."""

    def __init__(
        self,
        name: str,
        thread: EngineThread,
        board: ProgressBoard,
        tell: Callable[[ev.Event], None],
        transport: KvTransport | None = None,
        *,
        stall_s: float,
    ) -> None:
        self._name = name
        self._thread = thread
        self._board = board
        self._tell = tell
        self._transport = transport
        self._stall_s = stall_s

    async def serve(self, connection: web.WebSocketResponse) -> None:
        """Handle one connection until it ends; transfers on it come one after the other."""
        incoming: _Incoming | None = None
        async for frame in connection:
            if frame.type is not WSMsgType.BINARY:
                break
            message, body = msg.decode(frame.data)
            match message:
                case msg.KvBegin():
                    incoming = _Incoming(message, unpack_ids(body))
                    if message.layout_hash != self._thread.engine.info.layout_hash:
                        incoming.error = (
                            f"{self._name}: KV layout {message.layout_hash} cannot be joined; "
                            f"this worker's is {self._thread.engine.info.layout_hash}"
                        )
                case msg.KvSegment() if incoming is not None:
                    await self._take(incoming, message, body)
                case msg.KvOffer() if incoming is not None and message.work == incoming.begin.work:
                    await self._fetch(incoming, message, bytes(body))
                    with contextlib.suppress(ConnectionError):  # the sender has given up
                        await connection.send_bytes(msg.encode(msg.KvTaken(message.work)))
                case msg.KvEnd() if incoming is not None and message.work == incoming.begin.work:
                    await self._finish(connection, incoming)
                    incoming = None
                case msg.KvAbort():
                    incoming = None
                case _:
                    raise FrameError(f"{type(message).__name__} out of order on a KV connection")

    async def _take(self, incoming: _Incoming, segment: msg.KvSegment, body: memoryview) -> None:
        if segment.work != incoming.begin.work or segment.part != incoming.next_part:
            raise FrameError(f"part {segment.part} of transfer {segment.work}; expected {incoming.next_part}")
        if len(incoming.segment) + len(body) > segment.blob_bytes:
            raise FrameError(f"transfer {segment.work}: more than the {segment.blob_bytes} bytes announced")
        incoming.segment += body
        incoming.kv_bytes += len(body)
        incoming.next_part += 1
        if incoming.next_part < segment.parts:
            return
        blob = bytes(incoming.segment)
        incoming.segment.clear()
        incoming.next_part = 0
        if incoming.error is not None:
            return
        if len(blob) != segment.blob_bytes:
            incoming.error = (
                f"{self._name}: segment of {len(blob)} bytes; {segment.blob_bytes} were announced"
            )
            return
        await self._join(incoming, segment.p0, segment.p1, blob)

    async def _fetch(self, incoming: _Incoming, offer: msg.KvOffer, ticket: bytes) -> None:
        if incoming.error is not None:
            return
        if self._transport is None:
            incoming.error = f"{self._name}: offered KV to fetch, but has no transport for it"
            return
        try:
            blob = await self._transport.fetch(ticket, self._stall_s)
        except TransportError as error:
            incoming.error = f"{self._name}: {error}"
            return
        incoming.kv_bytes += len(blob)
        await self._join(incoming, offer.p0, offer.p1, blob)

    async def _join(self, incoming: _Incoming, p0: int, p1: int, blob: bytes) -> None:
        begin = incoming.begin
        ids = incoming.ids[p0 - begin.p0 : p1 - begin.p0]
        started_ns = time.monotonic_ns()
        try:
            incoming.held = await self._thread.call(
                lambda: self._thread.desk.join(begin.seq, p0, p1, blob, ids)
            )
        except EngineError as error:
            incoming.error = f"{self._name}: {error}"
        incoming.join_ns += time.monotonic_ns() - started_ns

    async def _finish(self, connection: web.WebSocketResponse, incoming: _Incoming) -> None:
        begin = incoming.begin
        if incoming.error is None and incoming.held < begin.p1:
            await self._until_held(incoming)
        if incoming.error is None:
            self._tell(ev.TransferDone(begin.request, begin.work, incoming.kv_bytes, incoming.join_ns))
        with contextlib.suppress(
            ConnectionError
        ):  # the sender has given up or is gone; nobody waits for this
            await connection.send_bytes(msg.encode(msg.KvAck(begin.work, incoming.error)))

    async def _until_held(self, incoming: _Incoming) -> None:
        """An engine that recomputes holds what it was given only later."""
        begin = incoming.begin
        started_ns = time.monotonic_ns()
        try:
            await self._board.beyond(begin.seq, begin.p1 - 1, self._stall_s)
        except TimeoutError:
            incoming.error = f"{self._name}: [{begin.p0}, {begin.p1}) not held within {self._stall_s:g} s"
        except KeyError:
            why = await self._thread.call(lambda: self._thread.desk.failure(begin.seq))
            incoming.error = f"{self._name}: {why}"
        incoming.join_ns += time.monotonic_ns() - started_ns
