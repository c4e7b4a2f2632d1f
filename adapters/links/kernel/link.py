"""The agent of the netem and uml drivers: two ends, a middle between them, and what is seen of the line."""

from __future__ import annotations

import asyncio
import socket
import time
from typing import TYPE_CHECKING, Final

from adapters.links.cross_traffic import CrossTraffic
from adapters.links.kernel import ports, tcp, windows
from adapters.links.kernel.namespace import Namespace
from adapters.links.kernel.probe import Probe
from harness.clock import take_anchor
from harness.link import Direction, LinkProfile, LinkSample

if TYPE_CHECKING:
    from adapters.links.kernel.middle import Middle
    from adapters.links.kernel.shaper import Counters

_CROSS_TRAFFIC_PORT: Final = 9
"""Below what any process of a cluster is given."""


class KernelLink:
    """An `adapters.links.serving.Agent`."""

    def __init__(self, driver: str, middle: Middle) -> None:
        self._driver = driver
        self._middle = middle
        self._anchor = take_anchor()
        self._profile = LinkProfile(name="unshaped", a_to_b=Direction(), b_to_a=Direction())
        self._window_bytes: int | None = None
        self._probe = Probe()
        self._probing: asyncio.Task[None] | None = None
        self._cross_traffic: CrossTraffic | None = None
        self.a, self.b = Namespace(), Namespace()

    async def start(self) -> None:
        await asyncio.gather(self.a.do(ports.loopback_up), self.b.do(ports.loopback_up))
        await self._middle.start(self.a, self.b)
        self._probing = asyncio.create_task(self._probe.run(self.a, self.b))
        self._cross_traffic = CrossTraffic(await self.b.do(_listener), self._dial)

    async def close(self) -> None:
        """In reverse order."""
        if self._probing is not None:
            self._probing.cancel()
        if self._cross_traffic is not None:
            self._cross_traffic.close()
        await self._middle.close()
        self.b.close()
        self.a.close()

    async def route(self, host: str, port: int) -> tuple[str, int]:
        # Packets are forwarded, not connections: every address of B is reached as it is.
        return host, port

    async def apply(self, profile: LinkProfile) -> dict[str, str]:
        details = {}
        if self._window_bytes is None:
            # Once: a host's settings do not change with a fault on the line.
            self._window_bytes = windows.window_bytes(profile)
            await self.b.do(windows.tune, self._window_bytes)
            details = await self.a.do(windows.tune, self._window_bytes)
        limits = tuple(
            windows.limit_packets(direction, window=self._window_bytes, mtu=ports.MTU)
            for direction in (profile.a_to_b, profile.b_to_a)
        )
        await self._middle.shape(profile, (limits[0], limits[1]))
        self._profile = profile
        assert self._cross_traffic is not None
        self._cross_traffic.set(profile)
        return details | {"a_to_b.limit_packets": str(limits[0]), "b_to_a.limit_packets": str(limits[1])}

    async def sample(self) -> list[LinkSample]:
        a_to_b, b_to_a = await self._middle.count()
        t_ns = self._anchor.epoch_ns(time.monotonic_ns())
        rtt_ns = self._probe.take_rtt_ns()
        rtt_a, retransmits_a = await self.a.do(_tcp, ports.ADDRESSES["B"])
        rtt_b, retransmits_b = await self.b.do(_tcp, ports.ADDRESSES["A"])
        return [
            self._sample("a_to_b", a_to_b, t_ns, rtt_ns, (rtt_a, retransmits_a)),
            self._sample("b_to_a", b_to_a, t_ns, rtt_ns, (rtt_b, retransmits_b)),
        ]

    async def _dial(self) -> socket.socket:
        """A connection from A to the cross traffic's listener in B."""
        connection = await self.a.do(_socket)
        await asyncio.get_running_loop().sock_connect(connection, (ports.ADDRESSES["B"], _CROSS_TRAFFIC_PORT))
        return connection

    def _sample(
        self, side: str, seen: Counters, t_ns: int, rtt_ns: int | None, tcp_seen: tuple[int | None, int]
    ) -> LinkSample:
        direction: Direction = getattr(self._profile, side)
        return LinkSample(
            t_ns=t_ns,
            direction=side,
            driver=self._driver,
            profile=self._profile.name,
            sent_bytes=seen.sent_bytes,
            sent_packets=seen.sent_packets,
            dropped_packets=seen.dropped_packets,
            queue_dropped_packets=seen.queue_dropped_packets,
            overlimits=seen.overlimits,
            backlog_bytes=seen.backlog_bytes,
            rate_bit_s=None if direction.rate_mbit is None else round(direction.rate_mbit * 1_000_000),
            rtt_ns=rtt_ns,
            tcp_rtt_ns=tcp_seen[0],
            retransmits=tcp_seen[1],
        )


def _socket() -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    made.setblocking(False)
    return made


def _listener() -> socket.socket:
    made = _socket()
    made.bind((ports.ADDRESSES["B"], _CROSS_TRAFFIC_PORT))
    made.listen(128)
    return made


def _tcp(other_end: str) -> tuple[int | None, int]:
    return tcp.median_rtt_ns(other_end), tcp.retransmitted_segments()
