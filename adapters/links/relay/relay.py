"""The relay: two lines, a listener for each routed endpoint, and the probe."""

from __future__ import annotations

import asyncio
import random
import socket
from typing import Final

from adapters.links.cross_traffic import CrossTraffic
from adapters.links.relay.connection import SOCKET_BUFFER_BYTES, Connection
from adapters.links.relay.line import Line
from adapters.links.relay.probe import Echo, Probe
from adapters.links.relay.refusal import refuse
from harness.clock import take_anchor
from harness.link import LinkProfile, LinkSample

HOST: Final = "127.0.0.1"


class Relay:
    """An `adapters.links.serving.Agent`."""

    def __init__(self, seed: int) -> None:
        self._to_b = Line(random.Random(f"a_to_b {seed}"))
        self._to_a = Line(random.Random(f"b_to_a {seed}"))
        self._profile = "unshaped"
        self._anchor = take_anchor()
        self._routes: dict[tuple[str, int], tuple[str, int]] = {}
        self._probe = Probe()
        self._probing: asyncio.Task[None] | None = None
        self._cross_traffic: CrossTraffic | None = None

    async def start(self) -> None:
        echo = await asyncio.get_running_loop().create_server(Echo, HOST, 0)
        address = await self._listen(echo.sockets[0].getsockname(), probe=True)
        self._probing = asyncio.create_task(self._probe.run(address))
        bulk = socket.create_server((HOST, 0), backlog=128)
        bulk.setblocking(False)
        bulk_address = await self._listen(bulk.getsockname(), probe=False)

        async def dial() -> socket.socket:
            connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            connection.setblocking(False)
            await asyncio.get_running_loop().sock_connect(connection, bulk_address)
            return connection

        self._cross_traffic = CrossTraffic(bulk, dial)

    async def route(self, host: str, port: int) -> tuple[str, int]:
        if (host, port) not in self._routes:
            self._routes[host, port] = await self._listen((host, port), probe=False)
        return self._routes[host, port]

    async def apply(self, profile: LinkProfile) -> dict[str, str]:
        refuse(profile)
        self._profile = profile.name
        self._to_b.shape(profile.a_to_b, acknowledge_delay_ms=profile.b_to_a.delay_ms)
        self._to_a.shape(profile.b_to_a, acknowledge_delay_ms=profile.a_to_b.delay_ms)
        assert self._cross_traffic is not None
        self._cross_traffic.set(profile)
        return {
            f"{side}.window_bytes": str(line.window_bytes)
            for side, line in (("a_to_b", self._to_b), ("b_to_a", self._to_a))
        }

    async def sample(self) -> list[LinkSample]:
        t_ns = self._anchor.epoch_ns(round(asyncio.get_running_loop().time() * 1e9))
        rtt_ns = self._probe.take_rtt_ns()
        return [
            LinkSample(
                t_ns=t_ns,
                direction=side,
                driver="relay",
                profile=self._profile,
                sent_bytes=line.carried_bytes,
                backlog_bytes=line.backlog_bytes,
                rate_bit_s=None
                if line.direction.rate_mbit is None
                else round(line.direction.rate_mbit * 1_000_000),
                rtt_ns=rtt_ns,
            )
            for side, line in (("a_to_b", self._to_b), ("b_to_a", self._to_a))
        ]

    async def _listen(self, target: tuple[str, int], *, probe: bool) -> tuple[str, int]:
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        # Accepted sockets inherit it; set later it would not bound the window already told to the peer.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SOCKET_BUFFER_BYTES)
        listener.bind((HOST, 0))
        address: tuple[str, int] = listener.getsockname()
        await asyncio.get_running_loop().create_server(
            lambda: Connection(self._to_b, self._to_a, target, probe=probe).a, sock=listener, backlog=4096
        )
        return address
