"""One simulated request, as the client and the driver see it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from harness.policy.events import RequestId, WorkId
from harness.sim.decode_clock import Instants
from harness.sim.session import Session, Turn

if TYPE_CHECKING:
    from harness.sim.clients import LiveSession
    from harness.sim.worker import SimWorker


class SimRequest(msgspec.Struct, eq=False):
    """Lives from its arrival until the policy has settled it and the client has its end."""

    id: RequestId
    live: LiveSession
    session: Session
    turn: Turn
    arrived_ns: int
    prompt_tokens: int
    max_tokens: int
    warmup: bool = False
    output_tokens: int = 0
    relay_tokens: int = 0
    first_token_ns: int | None = None
    last_token_ns: int | None = None
    end_ns: int | None = None
    status: str = "unfinished"
    error: str | None = None
    cached_tokens: int | None = None
    pipeline: str = ""
    main_kv_bytes: int = 0
    transfer_start_ns: int | None = None
    transfer_ns: int | None = None
    prefill_done_ns: int | None = None
    stall_ns: int = 0
    """Longest wait between two tokens around the switch from the relay to the main decoder."""
    token_instants: list[Instants] | None = None
    """Of the answer so far, a piece an event; None: not kept."""
    decoding: tuple[SimWorker, WorkId] | None = None
    """Where its tokens come from now, when that is a relay (its progress is asked for)."""
    works: dict[WorkId, SimWorker] = msgspec.field(default_factory=dict)
    relayed: bool = False
    settled: bool = False

    def instants(self) -> Instants | None:
        """When each token was made; None when that is not kept."""
        pieces = self.token_instants
        if pieces is None:
            return None
        return np.concatenate(pieces) if pieces else np.zeros(0, np.int64)
