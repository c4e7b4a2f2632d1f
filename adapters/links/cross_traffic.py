"""Somebody else's bulk transfers over the same line: real TCP flows that compete for it and fill its queue.

Every flow is a connection from A to a listener in B; its first byte says which way the bulk goes.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from harness.link import LinkProfile

_TO_B, _TO_A = b"b", b"a"
_BULK: Final = bytes(65536)
_RETRY_S: Final = 0.5


class CrossTraffic:
    """As many flows as the profile in force asks for."""

    def __init__(self, listener: socket.socket, dial: Callable[[], Awaitable[socket.socket]]) -> None:
        """`listener` is in B and listening, `dial` connects to it from A; both non-blocking."""
        self._dial = dial
        self._tasks: dict[bytes, list[asyncio.Task[None]]] = {_TO_B: [], _TO_A: []}
        self._serving: set[asyncio.Task[None]] = set()
        self._accepting = asyncio.create_task(self._accept(listener))

    def set(self, profile: LinkProfile) -> None:
        for way, wanted in ((_TO_B, profile.a_to_b), (_TO_A, profile.b_to_a)):
            tasks = self._tasks[way]
            while len(tasks) > wanted.cross_traffic_flows:
                tasks.pop().cancel()
            while len(tasks) < wanted.cross_traffic_flows:
                tasks.append(asyncio.create_task(self._flow(way)))

    def close(self) -> None:
        for task in (*self._tasks[_TO_B], *self._tasks[_TO_A], *self._serving, self._accepting):
            task.cancel()

    async def _flow(self, way: bytes) -> None:
        """One flow, dialled again when the line broke it."""
        loop = asyncio.get_running_loop()
        while True:
            with contextlib.suppress(OSError), await self._dial() as connection:
                # Closed by a reset: what waits in the socket must not use the line any longer.
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                await loop.sock_sendall(connection, way)
                await (_send(connection) if way == _TO_B else _receive(connection))
            await asyncio.sleep(_RETRY_S)

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        with listener:
            while True:
                connection, _ = await loop.sock_accept(listener)
                task = loop.create_task(_attend(connection))
                self._serving.add(task)
                task.add_done_callback(self._serving.discard)


async def _attend(connection: socket.socket) -> None:
    with connection, contextlib.suppress(OSError):
        way = await asyncio.get_running_loop().sock_recv(connection, 1)
        await (_receive(connection) if way == _TO_B else _send(connection))


async def _send(connection: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    while True:
        await loop.sock_sendall(connection, _BULK)


async def _receive(connection: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    while await loop.sock_recv(connection, len(_BULK)):
        pass
