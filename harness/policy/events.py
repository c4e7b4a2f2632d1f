"""What a driver tells the policy. Counts are tokens unless the name says otherwise.

Every piece of work the policy starts carries a work id and ends with exactly one event that names
it: Opened, PrefillDone, TransferDone, ExtendDone, TokensDecoded with `finish`, Closed, Cancelled or
WorkFailed. An event that names ended work is late, and is ignored and counted.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from harness.policy.roles import Role

RequestId: TypeAlias = str
WorkId: TypeAlias = int
WorkerName: TypeAlias = str


class _Event(msgspec.Struct, frozen=True, gc=False, tag=True):
    pass


class RequestArrived(_Event, frozen=True):
    """A client wants `max_tokens` after a prompt of `prompt_tokens`; `session` keys its prefix."""

    request: RequestId
    session: str
    prompt_tokens: int
    max_tokens: int


class ClientGone(_Event, frozen=True):
    """The client closed the connection or cancelled."""

    request: RequestId


class Opened(_Event, frozen=True):
    """The receiver holds `held` positions of the context already (its own prefix hit)."""

    request: RequestId
    work: WorkId
    held: int


class PrefillDone(_Event, frozen=True):
    """P holds the KV asked for; `cached` of it was its own hit, `computed` was computed now."""

    request: RequestId
    work: WorkId
    cached: int
    computed: int


class TransferDone(_Event, frozen=True):
    """The receiver has joined the KV; `kv_bytes` of payload crossed, `copy_ns` went to the device copy."""

    request: RequestId
    work: WorkId
    kv_bytes: int
    copy_ns: int = 0


class TokensDecoded(_Event, frozen=True):
    """`count` answer tokens from index `first`; `finish` ('length' or 'stop') ends the decode."""

    request: RequestId
    work: WorkId
    first: int
    count: int
    finish: str | None = None


class ExtendDone(_Event, frozen=True):
    """The ids of an Extend are computed."""

    request: RequestId
    work: WorkId


class Closed(_Event, frozen=True):
    """The sequence is closed and `held` positions stay cached for the session."""

    request: RequestId
    work: WorkId
    held: int


class Cancelled(_Event, frozen=True):
    """Cancelled work has ended; `kv_bytes` had been sent by then (transfers)."""

    request: RequestId
    work: WorkId
    kv_bytes: int = 0


class WorkFailed(_Event, frozen=True):
    """The work has ended without its result; its worker may be well."""

    request: RequestId
    work: WorkId
    error: str


class DeadlineReached(_Event, frozen=True):
    """The timer of SetDeadline fired."""

    request: RequestId


class CacheEvicted(_Event, frozen=True):
    """A worker evicted cached positions of a session; `held` remain."""

    worker: WorkerName
    session: str
    held: int


class WorkerJoined(_Event, frozen=True):
    """A worker is ready. `cluster` is 'A' or 'B'; `slots` is how many sequences it takes at once."""

    worker: WorkerName
    role: Role
    cluster: str
    slots: int
    kv_bytes_per_token: float


class WorkerDraining(_Event, frozen=True):
    """The worker takes no new work and leaves when it is idle."""

    worker: WorkerName


class WorkerLost(_Event, frozen=True):
    """The worker died, left, or cannot be reached: everything on it is gone and will not report."""

    worker: WorkerName
    error: str


class LinkMeasured(_Event, frozen=True):
    """What the WAN is measured to carry, A to B."""

    rate_bytes_s: float
    rtt_ns: int


Event: TypeAlias = (
    RequestArrived
    | ClientGone
    | Opened
    | PrefillDone
    | TransferDone
    | TokensDecoded
    | ExtendDone
    | Closed
    | Cancelled
    | WorkFailed
    | DeadlineReached
    | CacheEvicted
    | WorkerJoined
    | WorkerDraining
    | WorkerLost
    | LinkMeasured
)
