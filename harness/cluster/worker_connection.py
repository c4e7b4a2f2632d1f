"""The router's connection to one worker: handshake, commands out in order, reports in."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Callable, Sequence
from typing import Annotated, Final

import aiohttp
import msgspec

from harness.cluster import messages as msg
from harness.cluster.frame import MAX_FRAME_BYTES, FrameError, pack_ids, unpack_ids
from harness.engine import EngineInfo
from harness.policy import events as ev
from harness.policy.roles import Role

_MAX_COMMANDS: Final = 100_000
_RETRY_S: Final = 0.05


class WorkerAddress(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A worker of the cluster, and where it is reached from cluster A."""

    name: str
    role: Role
    cluster: str
    host: str
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)]

    def url(self, path: str) -> str:
        return f"http://{self.host}:{self.port}{path}"


class WorkerRefusedError(RuntimeError):
    """The worker answered, and does not fit. One line that names what differs."""


class WorkerConnection:
    """One live control connection. `on_report` and `on_counters` are called as messages arrive."""

    def __init__(
        self, address: WorkerAddress, connection: aiohttp.ClientWebSocketResponse, info: EngineInfo
    ) -> None:
        self.address = address
        self.info = info
        self._connection = connection
        self._outbox: asyncio.Queue[tuple[msg.Command, Sequence[int]]] = asyncio.Queue(_MAX_COMMANDS)
        self._overrun = asyncio.Event()

    @classmethod
    async def open(
        cls,
        session: aiohttp.ClientSession,
        address: WorkerAddress,
        secret: str,
        hello: msg.Hello,
        *,
        start_timeout_s: float,
        heartbeat_s: float,
    ) -> WorkerConnection:
        """Connect, retrying until the worker listens. Raises WorkerRefusedError or TimeoutError."""
        async with asyncio.timeout(start_timeout_s):
            while True:
                try:
                    connection = await session.ws_connect(
                        address.url("/control"),
                        headers={msg.SECRET_HEADER: secret},
                        compress=0,
                        max_msg_size=MAX_FRAME_BYTES,
                        heartbeat=heartbeat_s,
                    )
                except aiohttp.WSServerHandshakeError as error:
                    raise WorkerRefusedError(
                        f"{address.name}: refused the connection with HTTP {error.status}"
                    ) from error
                except aiohttp.InvalidURL:
                    raise WorkerRefusedError(f"{address.name}: {address.host!r} is no host") from None
                except (aiohttp.ClientConnectionError, OSError):
                    await asyncio.sleep(_RETRY_S)
                    continue
                try:
                    return cls(address, connection, await _shake_hands(address, connection, hello))
                except BaseException:
                    # Also when time is up: a worker whose router does not answer takes no other.
                    await connection.close()
                    raise

    def send(self, command: msg.Command, ids: Sequence[int] = ()) -> None:
        """Queue a command; commands go out in order. A worker that takes none any more is lost."""
        try:
            self._outbox.put_nowait((command, ids))
        except asyncio.QueueFull:
            self._overrun.set()

    async def talk(
        self,
        on_report: Callable[[ev.Event, array[int]], None],
        on_counters: Callable[[msg.Counters], None],
    ) -> str:
        """Exchange messages until either direction ends; returns why it ended, in one line."""
        talking = [
            asyncio.create_task(self._read(on_report, on_counters)),
            asyncio.create_task(self._write()),
            asyncio.create_task(self._overrun.wait()),
        ]
        try:
            done, _ = await asyncio.wait(talking, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in talking:
                task.cancel()
            await asyncio.gather(*talking, return_exceptions=True)
            await self._connection.close()
        if self._overrun.is_set():
            return f"took no command while {_MAX_COMMANDS} waited"
        try:
            for task in done:
                task.result()
        except (FrameError, ConnectionError) as error:
            return str(error)
        broken = self._connection.exception()
        return f"connection lost: {broken}" if broken else "connection closed"

    async def aclose(self) -> None:
        await self._connection.close()

    async def _read(
        self,
        on_report: Callable[[ev.Event, array[int]], None],
        on_counters: Callable[[msg.Counters], None],
    ) -> None:
        async for frame in self._connection:
            if frame.type is not aiohttp.WSMsgType.BINARY:
                return
            message, body = msg.decode(frame.data)
            match message:
                case msg.Report():
                    ids, start = unpack_ids(body), 0
                    for event, n in zip(message.events, message.id_counts, strict=True):
                        on_report(event, ids[start : start + n])
                        start += n
                case msg.Counters():
                    on_counters(message)
                case _:
                    raise FrameError(f"sent an unexpected {type(message).__name__}")

    async def _write(self) -> None:
        while True:
            command, ids = await self._outbox.get()
            await self._connection.send_bytes(msg.encode(command, pack_ids(ids)))


async def _shake_hands(
    address: WorkerAddress, connection: aiohttp.ClientWebSocketResponse, hello: msg.Hello
) -> EngineInfo:
    """Raises WorkerRefusedError for any answer but Welcome, silence (the worker died) among them."""
    try:
        await connection.send_bytes(msg.encode(hello))
        frame = await connection.receive()
        if frame.type is not aiohttp.WSMsgType.BINARY:
            raise WorkerRefusedError(f"{address.name}: closed the connection during the handshake")
        answer, _ = msg.decode(frame.data)
    except (ConnectionError, FrameError) as error:
        raise WorkerRefusedError(f"{address.name}: handshake failed: {error}") from error
    match answer:
        case msg.Welcome():
            return answer.info
        case msg.Refusal():
            raise WorkerRefusedError(answer.error)
        case _:
            raise WorkerRefusedError(f"{address.name}: answered Hello with {type(answer).__name__}")
