"""One cell as the simulator needs it: policy, workers, line, and the details of both."""

from __future__ import annotations

import msgspec

from harness.costs.deployment import Deployment
from harness.policy.config import PolicyConfig
from harness.policy.roles import Role
from harness.sim.wan import LineModel


class SimWorkerSpec(msgspec.Struct, frozen=True):
    """One worker."""

    name: str
    role: Role
    cluster: str
    deployment: Deployment
    max_sequences: int
    chunk_tokens: int
    capacity_tokens: int | None = None
    """None: what fits the devices' memory."""


class Pause(msgspec.Struct, frozen=True):
    """A worker stands still: it computes nothing and hears nothing until an instant."""

    worker: str
    until_ns: int


class Slowdown(msgspec.Struct, frozen=True):
    """A worker's steps take `factor` times as long from now on."""

    worker: str
    factor: float


class SimFault(msgspec.Struct, frozen=True):
    """Something that happens at an instant: a worker dies, stands still or slows down, or the line becomes
    another one."""

    at_ns: int
    kill: str | None = None
    line: LineModel | None = None
    pause: Pause | None = None
    slowdown: Slowdown | None = None


class SimCell(msgspec.Struct, frozen=True):
    """Everything the driver needs besides the sessions."""

    policy: PolicyConfig
    workers: tuple[SimWorkerSpec, ...]
    line: LineModel
    byte_scale: float = 1.0
    time_scale: float = 1.0
    message_s: float = 0.0
    believed_bytes_s: float | None = None
    """What the policy is told of the line at first; None: what the pool carries."""
    segment_tokens: int | None = None
    """Workers take commands, export KV and join KV between their steps, in segments of so many tokens, as
    pddbench's own do. None: beside their steps, in one piece, as with RDMA."""
    handoff_extra_s: float = 0.0
    handoff_extra_sd_s: float = 0.0
    copy_s: float = 0.0
    fill_tail: bool = True
    token_instants: bool = False
    sample_s: float | None = 1.0
    """Interval of link and worker samples at first (it doubles every 1,000 samples); None: none."""
    cancel_share: float = 0.0
    """Share of the requests that their client gives up after `cancel_after_s`."""
    cancel_after_s: float = 0.0
    faults: tuple[SimFault, ...] = ()
