"""What forwards between the ends and shapes: the port that both drivers' middles fill."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from adapters.links.kernel.namespace import Namespace
    from adapters.links.kernel.shaper import Counters
    from harness.link import LinkProfile


class Middle(Protocol):
    kernel: str
    """That shapes, as the description shows it."""

    burst_ms: float
    """What the line may send at once after a late timer."""

    processes: Mapping[str, int]

    async def start(self, a: Namespace, b: Namespace) -> None:
        """Join the ends, unshaped; their interfaces are up afterwards."""
        ...

    async def shape(self, profile: LinkProfile, limit_packets: tuple[int, int]) -> None: ...

    async def count(self) -> tuple[Counters, Counters]:
        """A to B, B to A."""
        ...

    async def close(self) -> None: ...
