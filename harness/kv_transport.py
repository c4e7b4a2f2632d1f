"""The transport port: another way for the bytes of KV than the workers' own connections.

Who sends what to whom, and when it may be let go, stays with the workers' protocol; a transport only moves
blobs of memory. The sender *offers* one and keeps it until the receiver says that it has *fetched* it, so
each reader has an offer of its own and none can let go of what another still reads.
"""

from __future__ import annotations

from typing import Protocol


class TransportError(RuntimeError):
    """The bytes did not come, or the transport cannot be had. One line."""


class KvTransport(Protocol):
    """Used from one event loop."""

    async def offer(self, blob: bytes, timeout_s: float) -> bytes:
        """Keep `blob` readable from afar; returns the ticket that names it. Waits for room, and raises
        TimeoutError when none comes."""
        ...

    def withdraw(self, ticket: bytes) -> None:
        """Let go of it. Whoever still reads gets bytes that no checksum accepts. Idempotent."""
        ...

    async def fetch(self, ticket: bytes, timeout_s: float) -> bytes:
        """The blob of a peer's ticket. Raises TransportError, also when it takes longer."""
        ...

    def close(self) -> None: ...
