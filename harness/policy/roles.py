"""Roles of workers, pipelines of requests, and the vocabulary of handoffs."""

from __future__ import annotations

import enum


class Role(enum.StrEnum):
    PREFILL = "prefill"
    RELAY_DECODE = "relay_decode"
    MAIN_DECODE = "main_decode"
    COLOCATED = "colocated"


class Pipeline(enum.StrEnum):
    """The way of a request through the cluster."""

    COLOCATED = "colocated"
    """One worker does everything."""
    DIRECT = "direct"
    """P-MD."""
    RELAYED = "relayed"
    """P-RLD-MD."""
    LOCAL = "local"
    """P-RLD: ends on the relay decoder (ablation, odd traffic, or no main decoder left)."""
    APPEND = "append"
    """MD prefills the suffix itself; no KV crosses."""


class HandoffPayload(enum.StrEnum):
    EXTEND_DECODE = "extend_decode"
    """Token ids cross; MD recomputes their KV in one batch (M4)."""
    KV_TRANSFER = "kv_transfer"
    """RLD's incremental KV crosses (M5)."""


class HandoffMode(enum.StrEnum):
    ONE_SHOT = "one_shot"
    """RLD stops and hands everything over at once (M6)."""
    CATCH_UP = "catch_up"
    """RLD goes on while MD catches up in batches; a short switch at the end (M7)."""
    DYNAMIC = "dynamic"
    """One of the two by RLD's load (M8)."""


class TransferStart(enum.StrEnum):
    AFTER_PREFILL = "after_prefill"
    PER_CHUNK = "per_chunk"
    """KV leaves P chunk by chunk while later chunks are computed."""


class TransferPurpose(enum.StrEnum):
    """Why KV moves: to the relay decoder, to the main decoder, or from the one to the other."""

    RELAY = "relay"
    MAIN = "main"
    HANDOFF = "handoff"
