"""In-band round trips: a small datagram every tenth of a second from A to B and back."""

from __future__ import annotations

import asyncio
import socket
import time
from typing import TYPE_CHECKING, Final, cast

from adapters.links.kernel.ports import ADDRESSES

if TYPE_CHECKING:
    from adapters.links.kernel.namespace import Namespace

_PORT: Final = 7
_INTERVAL_S: Final = 0.1


class _Echo(asyncio.DatagramProtocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not an instance of it at run time.
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self._transport.sendto(data, addr)


class _Sender(asyncio.DatagramProtocol):
    def __init__(self, probe: Probe) -> None:
        self._probe = probe

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:  # noqa: ARG002
        self._probe.returned(int.from_bytes(data))

    def error_received(self, exc: Exception) -> None:
        """Nobody listens yet, or the line is down: the probe is lost, which is what it is there to tell."""


class Probe:
    """`take_rtt_ns` answers the latest round trip since it was last asked, None when none came back."""

    def __init__(self) -> None:
        self._rtt_ns: int | None = None

    def take_rtt_ns(self) -> int | None:
        rtt_ns, self._rtt_ns = self._rtt_ns, None
        return rtt_ns

    def returned(self, sent_ns: int) -> None:
        self._rtt_ns = time.monotonic_ns() - sent_ns

    async def run(self, a: Namespace, b: Namespace) -> None:
        """Send until cancelled."""
        loop = asyncio.get_running_loop()
        far = await b.do(_socket, ADDRESSES["B"], _PORT)
        near = await a.do(_socket, ADDRESSES["A"], 0)
        echo, _ = await loop.create_datagram_endpoint(_Echo, sock=far)
        sender, _ = await loop.create_datagram_endpoint(lambda: _Sender(self), sock=near)
        try:
            while True:
                sender.sendto(time.monotonic_ns().to_bytes(8), (ADDRESSES["B"], _PORT))
                await asyncio.sleep(_INTERVAL_S)
        finally:
            sender.close()
            echo.close()


def _socket(address: str, port: int) -> socket.socket:
    """Belongs to the namespace of the calling thread."""
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.setblocking(False)
    made.bind((address, port))
    return made
