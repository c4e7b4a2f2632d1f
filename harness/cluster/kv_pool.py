"""Connections to one receiver's /kv: a bounded pool, first come first served.

A demoted transfer keeps its connection but gives its place in the pool back, and sends only while
no other transfer to this receiver is under way.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import aiohttp

from harness.cluster.messages import SECRET_HEADER

_NOTSENT_LOWAT_BYTES: Final = 128 << 10
"""What a cancelled transfer may still have to push out of the kernel's buffer."""


class KvPool:
    """At most `size` transfers at a time, each alone on its connection."""

    def __init__(
        self, session: aiohttp.ClientSession, url: str, secret: str, size: int, connect_s: float
    ) -> None:
        self._session = session
        self._url = url
        self._secret = secret
        self._connect_s = connect_s
        self._places = asyncio.Semaphore(size)
        self._idle: list[aiohttp.ClientWebSocketResponse] = []
        self._normal = 0
        self._quiet = asyncio.Event()
        self._quiet.set()

    @asynccontextmanager
    async def lease(self) -> AsyncIterator[Lease]:
        """A place and a connection. A connection goes back only when its transfer came to a clean end."""
        self._normal += 1
        self._quiet.clear()
        lease: Lease | None = None
        try:
            await self._places.acquire()
            try:
                connection = await self._connect()
            except BaseException:
                self._places.release()
                raise
            lease = Lease(self, connection)
            yield lease
        finally:
            if lease is None:
                self._leave()
            else:
                if not lease.demoted:
                    self._places.release()
                    self._leave()
                if lease.clean and not lease.connection.closed:
                    self._idle.append(lease.connection)
                else:
                    await lease.connection.close()

    def demote(self) -> None:
        """One leased transfer steps back."""
        self._places.release()
        self._leave()

    async def until_quiet(self) -> None:
        """Wait until no transfer but demoted ones is under way."""
        await self._quiet.wait()

    async def aclose(self) -> None:
        for connection in self._idle:
            await connection.close()
        self._idle.clear()

    def _leave(self) -> None:
        self._normal -= 1
        if self._normal == 0:
            self._quiet.set()

    async def _connect(self) -> aiohttp.ClientWebSocketResponse:
        while self._idle:
            connection = self._idle.pop()
            if not connection.closed:
                return connection
        async with asyncio.timeout(self._connect_s):
            connection = await self._session.ws_connect(
                self._url, headers={SECRET_HEADER: self._secret}, compress=0, max_msg_size=1 << 20
            )
        plug = connection.get_extra_info("socket")
        if plug is not None and hasattr(socket, "TCP_NOTSENT_LOWAT"):
            plug.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _NOTSENT_LOWAT_BYTES)
        return connection


class Lease:
    """One transfer's hold on a connection."""

    def __init__(self, pool: KvPool, connection: aiohttp.ClientWebSocketResponse) -> None:
        self._pool = pool
        self.connection = connection
        self.demoted = False
        self.clean = False
        """The transfer and its acknowledgement are through: the connection may carry another."""

    def demote(self) -> None:
        if not self.demoted:
            self.demoted = True
            self._pool.demote()

    async def turn(self) -> None:
        """Wait for the right to send the next part."""
        if self.demoted:
            await self._pool.until_quiet()
