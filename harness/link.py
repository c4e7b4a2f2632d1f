"""The link port: one vocabulary of link profiles, and what a driver must do to put one between A and B.

A profile is per direction and one-way. A driver that cannot do a parameter refuses it by name.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Cluster(enum.StrEnum):
    A = "A"
    B = "B"


class JitterDistribution(enum.StrEnum):
    """Shape of the jitter around `delay_ms`; `jitter_ms` is its standard deviation (uniform: half width)."""

    UNIFORM = "uniform"
    NORMAL = "normal"
    PARETO = "pareto"
    PARETONORMAL = "paretonormal"


class Direction(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Shaping of one direction. `None` or 0 means: not shaped. ValueError for what cannot be."""

    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    """Keeps the order of the packets: only `reorder_pct` reorders."""
    jitter_distribution: JitterDistribution = JitterDistribution.NORMAL
    loss_pct: float = 0.0
    burst_loss_enter_pct: float = 0.0
    """Gilbert-Elliott: chance per packet to enter the lossy state (in which every packet is lost)."""
    burst_loss_leave_pct: float = 100.0
    """Gilbert-Elliott: chance per packet to leave it."""
    rate_mbit: float | None = None
    queue_packets: int | None = None
    """Full-size packets the bottleneck holds, those in flight not counted. None: room for the windows of 16
    TCP flows (see `docs/wan.md`)."""
    reorder_pct: float = 0.0
    duplicate_pct: float = 0.0
    corrupt_pct: float = 0.0
    cross_traffic_flows: int = 0
    """Bulk TCP flows of somebody else that compete for this direction."""
    down: bool = False
    """Nothing passes in this direction: a partition."""

    def __post_init__(self) -> None:
        for name in ("delay_ms", "jitter_ms"):
            if not 0 <= getattr(self, name) <= 60_000:
                raise ValueError(f"{name}: {getattr(self, name)} is not within 0 to 60000")
        for name in (
            "loss_pct",
            "burst_loss_enter_pct",
            "burst_loss_leave_pct",
            "reorder_pct",
            "duplicate_pct",
            "corrupt_pct",
        ):
            if not 0 <= getattr(self, name) <= 100:
                raise ValueError(f"{name}: {getattr(self, name)} is not within 0 to 100")
        if self.jitter_ms > self.delay_ms:
            raise ValueError(f"jitter_ms: {self.jitter_ms:g} exceeds delay_ms {self.delay_ms:g}")
        if self.loss_pct and self.burst_loss_enter_pct:
            raise ValueError("loss_pct and burst_loss_enter_pct: one loss model a direction, not both")
        if self.burst_loss_enter_pct and not self.burst_loss_leave_pct:
            raise ValueError("burst_loss_leave_pct: 0 never leaves the lossy state; down = true says that")
        if self.reorder_pct and not self.delay_ms:
            raise ValueError("reorder_pct needs delay_ms: a packet overtakes by skipping the delay")
        if self.rate_mbit is not None and not 0.01 <= self.rate_mbit <= 100_000:
            raise ValueError(f"rate_mbit: {self.rate_mbit} is not within 0.01 to 100000 (none: leave it out)")
        if not 0 <= self.cross_traffic_flows <= 64:
            raise ValueError(f"cross_traffic_flows: {self.cross_traffic_flows} is not within 0 to 64")
        if self.queue_packets is not None and not 1 <= self.queue_packets <= 10_000_000:
            raise ValueError(f"queue_packets: {self.queue_packets} is not within 1 to 10000000")


class LinkProfile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Both directions of a link, with where the figures come from."""

    name: str
    a_to_b: Direction
    b_to_a: Direction
    source: str = ""

    @property
    def rtt_ms(self) -> float:
        """Round trip of an empty link."""
        return self.a_to_b.delay_ms + self.b_to_a.delay_ms


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
    queue_dropped_packets: int | None = None
    overlimits: int | None = None
    backlog_bytes: int | None = None
    rate_bit_s: int | None = None
    rtt_ns: int | None = None
    tcp_rtt_ns: int | None = None
    retransmits: int | None = None


class LinkError(RuntimeError):
    """One line: what could not be done, where, and what would be right."""


class Link(Protocol):
    """A live link. Everything between the clusters crosses it; nothing else joins them."""

    @property
    def description(self) -> LinkDescription: ...

    @property
    def processes(self) -> Mapping[str, int]:
        """Name → pid of the link's own processes, for the ledger that a later start sweeps by."""
        ...

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
