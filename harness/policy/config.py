"""Configuration of the policy, and the named modes built from it."""

from __future__ import annotations

from typing import Final

import msgspec

from harness.policy.roles import HandoffMode, HandoffPayload, TransferStart


class HandoffConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the stream changes hands from RLD to MD."""

    payload: HandoffPayload = HandoffPayload.EXTEND_DECODE
    mode: HandoffMode = HandoffMode.ONE_SHOT
    catch_up_threshold_tokens: int = 64
    """Catch up only when more ids than this wait; fewer are handed over at once."""
    catch_up_batch_tokens: int = 256
    """Most ids MD recomputes in one batch."""
    switch_tokens: int = 12
    """Switch when at most this many ids wait."""
    catch_up_batches: int = 8
    """Switch after this many batches even if MD does not catch up."""
    busy_share: float = 0.75
    """dynamic: at this share of RLD's slots in use, hand over at once."""
    spare_share: float = 0.5
    """dynamic: below this share, catch up again (hysteresis between the two)."""


class RoutingConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where requests go."""

    relay_bound_ms: float = 250.0
    """Relay when MD's copy is estimated to take longer than this."""
    relay_slots: int | None = None
    """Sequences one RLD admits; None takes what the worker offers. Overflow goes P-MD."""
    append_hit_share: float = 0.9
    """append: MD prefills the suffix itself from this estimated hit share on."""
    affinity_slack: int = 4
    """Prefer the worker that holds the session's prefix unless it has this many more sequences open
    than the least busy one."""


class PolicyConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Every switch of the policy. The named modes below are values of this."""

    colocated: bool = False
    """No disaggregation at all."""
    relay: bool = False
    """P-RLD-MD allowed."""
    append: bool = False
    """MD may prefill high-hit suffixes (ppd)."""
    local: bool = False
    """Ablation M10: requests over the relay bound end on RLD."""
    decode_radix_cache: bool = True
    """MD keeps earlier turns (DRC)."""
    odd_traffic_filter: bool = False
    """Stop MD's transfer when RLD has already finished the answer (M12)."""
    back_fill: bool = False
    """Let such a transfer go on at low priority instead of stopping it."""
    transfer: TransferStart = TransferStart.AFTER_PREFILL
    handoff: HandoffConfig = HandoffConfig()
    routing: RoutingConfig = RoutingConfig()
    max_retries: int = 2
    deadline_s: float = 120.0
    settle_s: float = 10.0
    """After the client's end, how long to wait for workers before giving their work up."""


class Mode(msgspec.Struct, frozen=True):
    """A named pipeline: the policy, and where the main decoder stands."""

    policy: PolicyConfig
    main_cluster: str
    doc: str


_PDD: Final = PolicyConfig(relay=True)

MODES: Final[dict[str, Mode]] = {
    "colocated": Mode(PolicyConfig(colocated=True), "A", "one worker does everything, no disaggregation"),
    "idc": Mode(PolicyConfig(), "A", "prefill and decode disaggregated inside one datacenter"),
    "xdc": Mode(PolicyConfig(), "B", "naive cross-datacenter: every request P-MD"),
    "ppd": Mode(PolicyConfig(append=True), "B", "high-hit turns prefill their suffix at MD, no KV crosses"),
    "pdd": Mode(_PDD, "B", "P-RLD-MD by estimated transfer time, one-shot extend-decode"),
    "pdd-catch-up": Mode(
        msgspec.structs.replace(_PDD, handoff=HandoffConfig(mode=HandoffMode.CATCH_UP)),
        "B",
        "as pdd, RLD goes on while MD catches up",
    ),
    "pdd-dynamic": Mode(
        msgspec.structs.replace(_PDD, handoff=HandoffConfig(mode=HandoffMode.DYNAMIC)),
        "B",
        "as pdd, one-shot or catch-up by RLD's load",
    ),
    "pdd-kv": Mode(
        msgspec.structs.replace(_PDD, handoff=HandoffConfig(payload=HandoffPayload.KV_TRANSFER)),
        "B",
        "as pdd, RLD's incremental KV crosses instead of ids",
    ),
}
