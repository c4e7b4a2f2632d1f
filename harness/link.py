"""The link port: one vocabulary of link profiles, and what a driver must do to put one between A and B.

A profile is per direction and one-way. A driver that cannot do a parameter refuses it by name.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Protocol

import msgspec


class Cluster(enum.StrEnum):
    A = "A"
    B = "B"


class Direction(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Shaping of one direction. `None` or 0 means: not shaped."""

    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    jitter_distribution: str = "normal"
    loss_pct: float = 0.0
    burst_loss_enter_pct: float = 0.0
    """Gilbert-Elliott: chance per packet to enter the lossy state (in which every packet is lost)."""
    burst_loss_leave_pct: float = 100.0
    """Gilbert-Elliott: chance per packet to leave it."""
    rate_mbit: float | None = None
    queue_packets: int | None = None
    """Queue limit; None sizes it from rate x delay so that the queue itself drops nothing unasked."""
    reorder_pct: float = 0.0
    duplicate_pct: float = 0.0
    corrupt_pct: float = 0.0


class LinkProfile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Both directions of a link, with where the figures come from."""

    name: str
    a_to_b: Direction
    b_to_a: Direction
    source: str = ""


class LinkDescription(msgspec.Struct, frozen=True):
    """What the link really is; goes into every result. Results of different drivers do not compare."""

    driver: str
    modelled: bool
    """True where TCP over the link is only modelled (relay)."""
    kernel: str
    details: dict[str, str]
    """qdisc parameters, congestion control, socket limits, MTU … as strings."""


class LinkSample(msgspec.Struct, frozen=True):
    """One row of reports.schema.LINK_SAMPLES (same names and units; None where not known)."""

    t_ns: int
    direction: str
    driver: str
    profile: str
    sent_bytes: int | None = None
    sent_packets: int | None = None
    dropped_packets: int | None = None
    overlimits: int | None = None
    backlog_bytes: int | None = None
    rate_bit_s: int | None = None
    rtt_ns: int | None = None
    tcp_rtt_ns: int | None = None
    retransmits: int | None = None


class LinkError(Exception):
    """One line: what could not be done, where, and what would be right."""


class Link(Protocol):
    """A live link. Everything between the clusters crosses it; nothing else joins them."""

    @property
    def description(self) -> LinkDescription: ...

    def host(self, cluster: Cluster) -> str:
        """The address that processes of this cluster bind to."""
        ...

    def command_prefix(self, cluster: Cluster) -> Sequence[str]:
        """What to put before a command so that it runs inside the cluster's network ([] if the host's)."""
        ...

    async def route(self, host: str, port: int) -> tuple[str, int]:
        """The address at which a process in A reaches (host, port) in B, through the link."""
        ...

    async def apply(self, profile: LinkProfile) -> None:
        """Shape to `profile`, in at most 100 ms; idempotent. Raises LinkError for what it cannot do."""
        ...

    async def sample(self) -> Sequence[LinkSample]:
        """Counters and probe of both directions now."""
        ...

    async def aclose(self) -> None:
        """Undo everything, in reverse order; idempotent, also after a failure half-way."""
        ...
