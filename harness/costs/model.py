"""One model: what its tokens cost in FLOPs, memory and bytes on a link."""

from __future__ import annotations

import enum

import msgspec

from harness.costs.figure import Figure


class Precision(enum.StrEnum):
    """Number format of the matrix products, which decides the peak rate that applies."""

    BF16 = "bf16"
    FP8 = "fp8"


class Model(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Sizes of one model. The KV of positions [p0, p1) weighs `kv_bytes(p0, p1)`."""

    name: str
    doc: str
    precision: Precision
    expert_efficiency: Figure
    """Prefill rate of the linear layers ÷ that of a dense model of the same FLOPs (grouped products,
    all-to-all); 1 for a dense model."""
    active_parameters: Figure
    weight_bytes: Figure
    """All weights of one replica as served."""
    always_read_bytes: Figure
    """Weights that every decoding step reads (all of them for a dense model)."""
    routed_share_per_token: Figure
    """Share of the routed experts that one token takes; 0 for a dense model."""
    attention_flops_per_pair: Figure
    """FLOPs of attention per (new token, earlier token) pair, all layers."""
    kv_bytes_per_token: Figure
    """Long-context KV, as stored and sent."""
    kv_recent_bytes_per_token: Figure
    """What a position of the last `kv_recent_tokens` of a range weighs on top (uncompressed window)."""
    kv_recent_tokens: Figure
    kv_read_share: Figure
    """Share of a sequence's long-context KV that one decoding step reads (below 1: sparse attention)."""
    saturation_tokens: Figure
    """A prefill chunk below this many tokens takes as long as one of this many."""
    max_context_tokens: Figure
    accelerators: Figure
    """Devices of one worker, where an experiment does not say otherwise."""

    def kv_bytes(self, p0: int, p1: int) -> int:
        """Payload of the KV of positions [p0, p1), the uncompressed window at its end included."""
        n = max(0, p1 - p0)
        recent = min(float(n), self.kv_recent_tokens.value)
        return round(n * self.kv_bytes_per_token.value + recent * self.kv_recent_bytes_per_token.value)

    def attention_share_of_flops(self, length: int) -> float:
        """Attention's part of all FLOPs of a full prefill of `length` tokens (q of the bathtub model)."""
        attention = self.attention_flops_per_pair.value * length / 2
        return attention / (attention + 2 * self.active_parameters.value)
