"""A request in the policy: its legs, the work under way, and who owns the stream."""

from __future__ import annotations

import enum

import msgspec

from harness.policy.events import RequestId, WorkerName, WorkId
from harness.policy.phase import Phase
from harness.policy.roles import Pipeline, TransferPurpose


class WorkKind(enum.StrEnum):
    PREFILL = "prefill"
    OPEN = "open"
    TRANSFER = "transfer"
    EXTEND = "extend"
    DECODE = "decode"
    CLOSE = "close"


class LegName(enum.StrEnum):
    PREFILL = "prefill"
    RELAY = "relay"
    MAIN = "main"


_RELAY, _MAIN = LegName.RELAY, LegName.MAIN  # a member of an enum costs ten times a global in Python 3.11


class Work(msgspec.Struct, eq=False):
    """One started piece of work; it lives until the event that ends it."""

    kind: WorkKind
    leg: LegName
    worker: WorkerName
    seq: WorkId
    cancelled: bool = False
    purpose: TransferPurpose | None = None
    source: WorkerName | None = None
    kv_bytes: float = 0.0
    saves: bool = False
    span: int = 0
    """Tokens an extend computes."""


class Leg(msgspec.Struct, eq=False):
    """One open sequence of the request. `held` counts positions it is known to hold."""

    name: LegName
    worker: WorkerName
    seq: WorkId
    opened: bool = False
    held: int = 0
    landed: bool = False
    transfer: WorkId | None = None
    compute: WorkId | None = None
    """The prefill, extend or decode under way."""
    batches: int = 0


class Request(msgspec.Struct, eq=False):
    """Everything the policy knows of one request."""

    id: RequestId
    session: str
    prompt_tokens: int
    max_tokens: int
    phase: Phase = Phase.LOADING
    pipeline: Pipeline = Pipeline.DIRECT
    emitted: int = 0
    goal: int = 0
    """Positions a leg must hold to have landed: the context at the (re)start, less its last token."""
    retries: int = 0
    prefill: Leg | None = None
    relay: Leg | None = None
    main: Leg | None = None
    works: dict[WorkId, Work] = msgspec.field(default_factory=dict)
    sequences: dict[WorkId, WorkerName] = msgspec.field(default_factory=dict)
    aligning: bool = False
    """SETTLING still waits for MD's cache to be brought level."""
    outcome: str = "ok"
    saved_kv_bytes: int = 0
    p_worker: WorkerName | None = None
    md_worker: WorkerName | None = None

    @property
    def context(self) -> int:
        """Prompt and the answer so far, in tokens."""
        return self.prompt_tokens + self.emitted

    def leg(self, name: LegName) -> Leg | None:
        if name is _MAIN:
            return self.main
        return self.relay if name is _RELAY else self.prefill
