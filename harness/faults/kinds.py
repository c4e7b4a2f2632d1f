"""The vocabulary of faults, as an experiment's `[[faults]]` writes it: a struct a kind, tagged by `kind`."""

from __future__ import annotations

import enum
import random
from typing import Annotated

import msgspec

from harness.link import Direction, JitterDistribution

Seconds = Annotated[float, msgspec.Meta(ge=0)]
PositiveSeconds = Annotated[float, msgspec.Meta(gt=0)]
Share = Annotated[float, msgspec.Meta(gt=0, lt=1)]
Window = tuple[float, float]
"""Begin and end in seconds after the start of the load."""


class Side(enum.StrEnum):
    BOTH = "both"
    A_TO_B = "a_to_b"
    B_TO_A = "b_to_a"

    def covers(self, direction: str) -> bool:
        return self is Side.BOTH or self == direction


class _Timed(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="kind"):
    at_s: Seconds
    """After the start of the load."""
    name: str | None = None
    """In tables and reports; None: the kind."""

    @property
    def kind(self) -> str:
        return str(self.__struct_config__.tag)

    @property
    def label(self) -> str:
        return self.name or self.kind


class _LinkFault(_Timed, frozen=True, forbid_unknown_fields=True, kw_only=True):
    duration_s: PositiveSeconds
    side: Side = Side.BOTH

    @property
    def target(self) -> str:
        return "link" if self.side is Side.BOTH else self.side.value

    def windows(self, rng: random.Random) -> list[Window]:  # noqa: ARG002 - only a flap draws
        """When the distortion holds."""
        return [(self.at_s, self.at_s + self.duration_s)]

    def distort(self, direction: Direction) -> Direction:
        """What the fault makes of a direction. ValueError when it makes no sense of it."""
        raise NotImplementedError


class BandwidthCollapse(_LinkFault, frozen=True, tag="bandwidth_collapse", kw_only=True):
    """The line's rate falls to `factor` of itself, or to `rate_mbit`."""

    factor: Share = 0.1
    rate_mbit: Annotated[float, msgspec.Meta(gt=0)] | None = None

    def distort(self, direction: Direction) -> Direction:
        if self.rate_mbit is None and direction.rate_mbit is None:
            raise ValueError("factor: the profile has no rate to take a part of; give rate_mbit")
        rate = self.rate_mbit if self.rate_mbit is not None else self.factor * (direction.rate_mbit or 0)
        return msgspec.structs.replace(direction, rate_mbit=rate)


class LatencySpike(_LinkFault, frozen=True, tag="latency_spike", kw_only=True):
    """A detour: `extra_ms` more, one way."""

    extra_ms: Annotated[float, msgspec.Meta(gt=0)] = 100.0

    def distort(self, direction: Direction) -> Direction:
        return msgspec.structs.replace(direction, delay_ms=direction.delay_ms + self.extra_ms)


class JitterStorm(_LinkFault, frozen=True, tag="jitter_storm", kw_only=True):
    """The delay varies by `jitter_ms` around a mean that is as much longer."""

    jitter_ms: Annotated[float, msgspec.Meta(gt=0)] = 20.0
    distribution: JitterDistribution = JitterDistribution.NORMAL

    def distort(self, direction: Direction) -> Direction:
        return msgspec.structs.replace(
            direction,
            delay_ms=direction.delay_ms + self.jitter_ms,
            jitter_ms=direction.jitter_ms + self.jitter_ms,
            jitter_distribution=self.distribution,
        )


class LossBurst(_LinkFault, frozen=True, tag="loss_burst", kw_only=True):
    """`loss_pct` of the packets are lost, in bursts of `burst_packets` on the average (Gilbert-Elliott)."""

    loss_pct: Annotated[float, msgspec.Meta(gt=0, lt=100)] = 3.0
    burst_packets: Annotated[float, msgspec.Meta(ge=1)] = 4.0

    def distort(self, direction: Direction) -> Direction:
        leave = 1 / self.burst_packets
        share = self.loss_pct / 100
        enter = leave * share / (1 - share)
        return msgspec.structs.replace(
            direction, loss_pct=0.0, burst_loss_enter_pct=100 * enter, burst_loss_leave_pct=100 * leave
        )


class Partition(_LinkFault, frozen=True, tag="partition", kw_only=True):
    """Nothing passes, in both directions or in one."""

    def distort(self, direction: Direction) -> Direction:
        return msgspec.structs.replace(direction, down=True)


class Flap(_LinkFault, frozen=True, tag="flap", kw_only=True):
    """The line goes down and comes back, again and again; each spell lasts between half and one and a half of
    its mean, drawn from the experiment's seed."""

    down_s: PositiveSeconds = 0.5
    up_s: PositiveSeconds = 1.0

    def windows(self, rng: random.Random) -> list[Window]:
        end = self.at_s + self.duration_s
        begin = self.at_s
        spells: list[Window] = []
        while begin < end:
            until = min(end, begin + self.down_s * rng.uniform(0.5, 1.5))
            spells.append((begin, until))
            begin = until + self.up_s * rng.uniform(0.5, 1.5)
        return spells

    def distort(self, direction: Direction) -> Direction:
        return msgspec.structs.replace(direction, down=True)


class Bufferbloat(_LinkFault, frozen=True, tag="bufferbloat", kw_only=True):
    """`flows` bulk transfers of somebody else fill a queue that hardly ever drops."""

    side: Side = Side.A_TO_B
    flows: Annotated[int, msgspec.Meta(ge=1, le=64)] = 8

    def distort(self, direction: Direction) -> Direction:
        return msgspec.structs.replace(
            direction, queue_packets=None, cross_traffic_flows=direction.cross_traffic_flows + self.flows
        )


class _ProcessFault(_Timed, frozen=True, forbid_unknown_fields=True, kw_only=True):
    @property
    def target(self) -> str:
        raise NotImplementedError


class WorkerKill(_ProcessFault, frozen=True, tag="worker_kill", kw_only=True):
    """SIGKILL; a killed worker does not come back."""

    worker: str

    @property
    def target(self) -> str:
        return self.worker


class WorkerPause(_ProcessFault, frozen=True, tag="worker_pause", kw_only=True):
    """SIGSTOP, then SIGCONT: connections stay, answers do not come."""

    worker: str
    duration_s: PositiveSeconds

    @property
    def target(self) -> str:
        return self.worker


class WorkerSlowdown(_ProcessFault, frozen=True, tag="worker_slowdown", kw_only=True):
    """Stopped for `share` of every `period_ms`."""

    worker: str
    duration_s: PositiveSeconds
    share: Share = 0.5
    period_ms: Annotated[float, msgspec.Meta(ge=10)] = 50.0

    @property
    def target(self) -> str:
        return self.worker


class RecordDiskFull(_ProcessFault, frozen=True, tag="record_disk_full", kw_only=True):
    """A process can write no more to its files, as on a full disk (by its file size limit; Linux only)."""

    process: str = "loadgen"
    duration_s: PositiveSeconds

    @property
    def target(self) -> str:
        return self.process


LinkFault = BandwidthCollapse | LatencySpike | JitterStorm | LossBurst | Partition | Flap | Bufferbloat
ProcessFault = WorkerKill | WorkerPause | WorkerSlowdown | RecordDiskFull
Fault = LinkFault | ProcessFault
