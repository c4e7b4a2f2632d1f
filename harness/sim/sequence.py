"""What a simulated worker holds and computes: sequences, and the pieces of work on them."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from harness.policy.events import RequestId, WorkId
from harness.sim.session import Session


class Sequence(msgspec.Struct, eq=False):
    """One open sequence. `hit` positions belong to the cache, the rest up to `charged` are its own."""

    seq: WorkId
    request: RequestId
    session: Session
    turn: int
    goal: int
    hit: int = 0
    found: int = 0
    """Positions held at its opening: the hit, or more where another open sequence's KV was copied."""
    held: int = 0
    charged: int = 0
    open: bool = False
    awaits_kv: bool = False
    """Opened for KV that is on its way, and not complete yet."""
    followers: list[Callable[[int], None]] = msgspec.field(default_factory=list)
    """Told of every growth of `held` while a prefill runs (transfers that follow it)."""


class Opening(msgspec.Struct, eq=False):
    """A sequence that waits for room. With `prefill`, its prompt is computed once it is open."""

    work: WorkId
    sequence: Sequence
    prefill: bool


class DecodeJob(msgspec.Struct, eq=False):
    """Sampling from answer index `first` on; all `total` tokens unless it is cancelled."""

    work: WorkId
    sequence: Sequence
    first: int
    total: int
    base: int = 0
    """Steps of the worker before this job's first token."""
    start_held: int = 0
    """Positions held when the first token was sampled."""
    reported: int = 0
    running: bool = False


class Compute(msgspec.Struct, eq=False):
    """Known ids to compute, up to position `end`; then sample on, with `decode`."""

    work: WorkId
    sequence: Sequence
    end: int
    prefill: bool = False
    decode: DecodeJob | None = None
