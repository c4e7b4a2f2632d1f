"""What the records cannot say of workers that hold no KV, but recompute."""

from __future__ import annotations

from typing import Final

from harness.policy.journal import Row

KV_COLUMNS: Final = (
    "prefill_cached_tokens",
    "prefill_computed_tokens",
    "relay_hit_tokens",
    "relay_transfer_start_ns",
    "relay_kv_bytes",
    "main_hit_tokens",
    "main_transfer_start_ns",
    "main_kv_bytes",
    "saved_kv_bytes",
    "cache_gap_tokens",
)
"""Of `handoffs`. That a leg holds the prompt's KV (`*_transfer_done_ns`) stays true: it has computed it."""


def without_kv(row: Row) -> Row:
    """The row with those columns null."""
    return {name: value for name, value in row.items() if name not in KV_COLUMNS}
