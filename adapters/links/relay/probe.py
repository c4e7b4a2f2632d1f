"""In-band round trips: one small message at a time over a relayed connection of the relay's own."""

from __future__ import annotations

import asyncio
from typing import Final

_INTERVAL_S: Final = 0.1
_MESSAGE_BYTES: Final = 8


class Probe:
    """`take_rtt_ns` answers the latest round trip since it was last asked, None when none came back."""

    def __init__(self) -> None:
        self._rtt_ns: int | None = None

    def take_rtt_ns(self) -> int | None:
        rtt_ns, self._rtt_ns = self._rtt_ns, None
        return rtt_ns

    async def run(self, address: tuple[str, int]) -> None:
        """Send and time until cancelled."""
        loop = asyncio.get_running_loop()
        reader, writer = await asyncio.open_connection(*address)
        try:
            while True:
                sent_s = loop.time()
                writer.write(bytes(_MESSAGE_BYTES))
                await reader.readexactly(_MESSAGE_BYTES)
                taken_s = loop.time() - sent_s
                self._rtt_ns = round(taken_s * 1e9)
                await asyncio.sleep(max(0.0, _INTERVAL_S - taken_s))
        finally:
            writer.close()


class Echo(asyncio.Protocol):
    """The far end: sends back what it gets."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)
