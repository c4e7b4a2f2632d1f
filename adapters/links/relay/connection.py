"""One relayed connection: a socket towards A, a socket towards B, and a flow each way."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from typing import TYPE_CHECKING, Final, cast

from adapters.links.relay.flow import Flow

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from adapters.links.relay.line import Line

SOCKET_BUFFER_BYTES: Final = 65536
"""Kernel buffers on the relay's sockets: small, since what waits there is outside the model."""
_READ_BYTES: Final = 65536
_CONNECT_TIMEOUT_S: Final = 10.0


class End(asyncio.BufferedProtocol):
    """One socket of the connection. Reads only as much as the flow that starts here has room for."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._buffer = memoryview(bytearray(_READ_BYTES))
        self._paused = False
        self._ended = False
        self.outgoing: Flow
        """Starts at this socket."""
        self.incoming: Flow
        """Is delivered to this socket."""
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        # At most one piece waits in user space before the receiver's slowness is felt by the line.
        self.transport.set_write_buffer_limits(high=_READ_BYTES)
        sock = self.transport.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.pause()
        self._connection.opened(self)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        return self._buffer[: max(1, self.outgoing.room_bytes)]

    def buffer_updated(self, nbytes: int) -> None:
        self.outgoing.put(bytes(self._buffer[:nbytes]))
        if self.outgoing.room_bytes == 0:
            self.pause()

    def eof_received(self) -> bool:
        self._ended = True
        self.outgoing.put_end()
        return True

    def pause_writing(self) -> None:
        self.incoming.hold()

    def resume_writing(self) -> None:
        self.incoming.release()

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        self._connection.lost(self, exc)

    def pause(self) -> None:
        if not self._paused and self.transport is not None:
            self._paused = True
            self.transport.pause_reading()

    def resume(self) -> None:
        """The flow has room again (or the connection has just been established)."""
        if self._paused and not self._ended and self.transport is not None and self.outgoing.room_bytes > 0:
            self._paused = False
            self.transport.resume_reading()

    def write(self, piece: memoryview) -> None:
        if self.transport is not None:
            self.transport.write(piece)

    def write_end(self) -> None:
        if self.transport is not None and self.transport.can_write_eof():
            # The peer may have closed meanwhile; then it hears of it by the reset.
            with contextlib.suppress(OSError):
                self.transport.write_eof()
        self._connection.ended(self)

    def abort(self) -> None:
        """Close so that the peer sees a reset, as it would across a real line."""
        if self.transport is not None:
            sock = self.transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.transport.abort()


class Connection:
    """Born when A connects to a listener; connects on to B one delay later, as a SYN would arrive."""

    def __init__(self, to_b: Line, to_a: Line, target: tuple[str, int], *, probe: bool) -> None:
        self._to_b, self._to_a = to_b, to_a
        self._target = target
        self.a, self.b = End(self), End(self)
        self.a.outgoing = self.b.incoming = Flow(
            to_b, deliver=self.b.write, deliver_end=self.b.write_end, credit=self.a.resume, probe=probe
        )
        self.b.outgoing = self.a.incoming = Flow(
            to_a, deliver=self.a.write, deliver_end=self.a.write_end, credit=self.b.resume, probe=probe
        )
        self._established = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._delivered_ends: set[End] = set()

    def opened(self, end: End) -> None:
        if end is self.a:
            self._do(self._establish())

    def ended(self, end: End) -> None:
        """Everything the other side had to say has been written to `end`."""
        self._delivered_ends.add(end)
        if len(self._delivered_ends) == 2:
            for each in (self.a, self.b):
                if each.transport is not None:
                    each.transport.close()

    def lost(self, end: End, exc: Exception | None) -> None:
        """A socket is gone: by a reset (the other side hears of it a delay later) or closed in order."""
        other, line = (self.b, self._to_b) if end is self.a else (self.a, self._to_a)
        if exc is not None:
            end.outgoing.close()
        end.incoming.close()
        if len(self._delivered_ends) < 2:
            self._do(self._reset(other, line))

    async def _establish(self) -> None:
        host, port = self._target
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SOCKET_BUFFER_BYTES)
            await self._to_b.cross()
            loop = asyncio.get_running_loop()
            await asyncio.wait_for(loop.sock_connect(sock, (host, port)), _CONNECT_TIMEOUT_S)
            await loop.create_connection(lambda: self.b, sock=sock)
        except OSError:
            sock.close()
            await self._to_a.cross()
            self.a.abort()
            return
        if self.a.transport is None:
            self.b.abort()
            return
        self._established = True
        await self._to_a.cross()
        self.b.resume()
        self.a.resume()

    async def _reset(self, other: End, line: Line) -> None:
        if self._established:
            await line.cross()
            other.abort()

    def _do(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
