"""The middle of the netem driver: a bridge in a namespace of its own, its ports shaped by this kernel."""

from __future__ import annotations

import asyncio
import platform
from typing import TYPE_CHECKING, Final

from pyroute2 import IPRoute

from adapters.links.kernel import ports
from adapters.links.kernel.namespace import Namespace
from adapters.links.kernel.shaper import Counters, Shaper

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.link import LinkProfile

_PORTS: Final = ("to_a", "to_b")
_END: Final = "end"


class BridgedMiddle:
    """An `adapters.links.kernel.middle.Middle`."""

    def __init__(self, seed: int) -> None:
        self.kernel = f"Linux {platform.release()}"
        self.burst_ms = 2.0
        self.processes: Mapping[str, int] = {}
        self._seed = seed
        self._namespace = Namespace()

    async def start(self, a: Namespace, b: Namespace) -> None:
        await self._namespace.do(self._join, a.descriptor, b.descriptor)
        await asyncio.gather(a.do(ports.end_up, "A", _END), b.do(ports.end_up, "B", _END))

    async def shape(self, profile: LinkProfile, limit_packets: tuple[int, int]) -> None:
        await self._namespace.do(self._shape, profile, limit_packets)

    async def count(self) -> tuple[Counters, Counters]:
        return await self._namespace.do(lambda: (self._towards_b.counters(), self._towards_a.counters()))

    async def close(self) -> None:
        self._namespace.close()

    def _join(self, a: int, b: int) -> None:
        with IPRoute() as netlink:
            for port, end in zip(_PORTS, (a, b), strict=True):
                netlink.link("add", ifname=port, kind="veth", peer={"ifname": _END, "net_ns_fd": end})
        for port in _PORTS:
            ports.plain_packets(port)
        ports.join(ports.bridge(_PORTS), _PORTS)
        self._towards_a, self._towards_b = (
            Shaper(port, mtu=ports.MTU, burst_ms=self.burst_ms, seed=self._seed + i)
            for i, port in enumerate(_PORTS)
        )

    def _shape(self, profile: LinkProfile, limit_packets: tuple[int, int]) -> None:
        self._towards_b.apply(profile.a_to_b, limit_packets=limit_packets[0])
        self._towards_a.apply(profile.b_to_a, limit_packets=limit_packets[1])
