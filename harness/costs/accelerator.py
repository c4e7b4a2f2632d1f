"""One accelerator: what it computes, reads, holds and costs."""

from __future__ import annotations

import msgspec

from harness.costs.figure import Figure


class Accelerator(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Peak rates of one device, and the shares of them that serving reaches.

    `prefill_share` and `attention_share` are shares of the peak FLOPs at the model's precision that large
    prefill chunks reach in their linear layers and in attention; `decode_flops_share` and
    `bandwidth_share` hold for decoding steps."""

    name: str
    doc: str
    bf16_flops_s: Figure
    fp8_flops_s: Figure
    hbm_bytes: Figure
    hbm_bytes_s: Figure
    fabric_bytes_s: Figure
    """Network of one device to other workers of the same datacenter, one direction."""
    prefill_share: Figure
    attention_share: Figure
    decode_flops_share: Figure
    bandwidth_share: Figure
    reserved_share: Figure
    """Part of the memory that neither weights nor KV may use (activations, graphs, fragmentation)."""
    step_overhead_s: Figure
    """Launch, sampling and scheduling of one step."""
    price_per_hour: Figure
