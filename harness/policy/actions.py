"""What the policy asks of a driver. A sequence is named by the work that opened it.

The context of a request is its prompt followed by the answer tokens emitted so far. Position `i`
of the context is token `i`; ranges are half-open. The driver knows the ids, the policy only counts.

`p0` is what the policy knows the sequence to hold. The worker goes by its own length: if that is more
(a transfer landed whose news was lost), it skips what it has; if it is less, the work fails.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from harness.policy.events import RequestId, WorkerName, WorkId
from harness.policy.roles import Pipeline, Role, TransferPurpose


class _Action(msgspec.Struct, frozen=True, gc=False, tag=True):
    pass


class Prefill(_Action, frozen=True):
    """Open a sequence on P for context [0, positions] and compute the KV of [0, positions)."""

    request: RequestId
    work: WorkId
    worker: WorkerName
    positions: int


class Open(_Action, frozen=True):
    """Open a sequence on a receiver for context [0, positions]; it answers with its own hit."""

    request: RequestId
    work: WorkId
    worker: WorkerName
    positions: int


class Transfer(_Action, frozen=True):
    """Move KV of [p0, p1) from sequence `source_seq` on `source` to `target_seq` on `target`.

    With `follow` the source still computes: send what is there and go on as it grows."""

    request: RequestId
    work: WorkId
    purpose: TransferPurpose
    source: WorkerName
    source_seq: WorkId
    target: WorkerName
    target_seq: WorkId
    p0: int
    p1: int
    follow: bool


class Demote(_Action, frozen=True):
    """Let a running transfer go on only when no other wants the line (back-fill)."""

    request: RequestId
    work: WorkId


class Extend(_Action, frozen=True):
    """Compute context [p0, p1) on an open sequence; nothing is sampled."""

    request: RequestId
    work: WorkId
    worker: WorkerName
    seq: WorkId
    p0: int
    p1: int


class Decode(_Action, frozen=True):
    """Compute context [p0, end) on an open sequence and sample on from answer index `first`."""

    request: RequestId
    work: WorkId
    worker: WorkerName
    seq: WorkId
    p0: int
    first: int


class Cancel(_Action, frozen=True):
    """End this work early; the driver answers Cancelled, or the result if it came first."""

    request: RequestId
    work: WorkId


class Close(_Action, frozen=True):
    """Close a sequence; with `keep` its positions stay cached for the session."""

    request: RequestId
    work: WorkId
    worker: WorkerName
    seq: WorkId
    keep: bool


class Decided(_Action, frozen=True):
    """The pipeline of a request (again after a restart), and the estimate it was decided by."""

    request: RequestId
    pipeline: Pipeline
    estimated_transfer_ns: int


class Emit(_Action, frozen=True):
    """Forward answer tokens [first, first + count), made by a worker of this role, to the client."""

    request: RequestId
    first: int
    count: int
    role: Role


class Finish(_Action, frozen=True):
    """Tell the client that the answer is complete."""

    request: RequestId
    reason: str


class Fail(_Action, frozen=True):
    """Tell the client that the request failed, in one line."""

    request: RequestId
    error: str


class SetDeadline(_Action, frozen=True):
    """Fire DeadlineReached at this instant; replaces the earlier one of the request."""

    request: RequestId
    at_ns: int


class Settled(_Action, frozen=True):
    """The request owns nothing any more. `cache_gap` is by how much MD now trails P for the session."""

    request: RequestId
    outcome: str
    retries: int
    cache_gap: int
    saved_kv_bytes: int


class Retire(_Action, frozen=True):
    """A draining worker is idle: it may leave."""

    worker: WorkerName


Action: TypeAlias = (
    Prefill
    | Open
    | Transfer
    | Demote
    | Extend
    | Decode
    | Cancel
    | Close
    | Decided
    | Emit
    | Finish
    | Fail
    | SetDeadline
    | Settled
    | Retire
)
