"""What one worker (some accelerators serving one replica) takes for a step, and how much KV it holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from harness.costs.accelerator import Accelerator
from harness.costs.figure import ProfileError
from harness.costs.model import Model, Precision

_EXTEND_TOKENS: Final = 512
"""Up to so many prompt tokens a step runs on decoding kernels (as speculative verification does)."""
_FABRIC_SETUP_S: Final = 0.002
"""Registration and control messages of one transfer inside a datacenter."""


class Chunk(NamedTuple):
    """`new` tokens of one prompt computed in one step after `past` earlier positions."""

    new: int
    past: int


class WorkerCosts:
    """Pure functions of (accelerator, model, devices); see docs/costs.md for the formulae."""

    def __init__(self, accelerator: Accelerator, model: Model, accelerators: int | None = None) -> None:
        a, m = accelerator, model
        self.accelerator = accelerator
        self.model = model
        self.accelerators = int(m.accelerators.value) if accelerators is None else accelerators
        n = self.accelerators
        if n < 1:
            raise ProfileError(f"accelerators: {n} of {a.name}; a worker has at least 1")
        peak = n * (a.fp8_flops_s if m.precision is Precision.FP8 else a.bf16_flops_s).value
        self.prefill_tokens_s: Final = (
            a.prefill_share.value * m.expert_efficiency.value * peak / (2 * m.active_parameters.value)
        )
        """Linear layers' rate at full chunks, attention apart."""
        self.capacity_tokens: Final = int(
            (n * a.hbm_bytes.value * (1 - a.reserved_share.value) - m.weight_bytes.value)
            / m.kv_bytes_per_token.value
        )
        """KV positions that fit beside the weights."""
        if self.capacity_tokens < 1:
            raise ProfileError(
                f"{m.name}: {m.weight_bytes.value / 1e9:.0f} GB of weights do not fit {n} x {a.name} "
                f"({n * a.hbm_bytes.value * (1 - a.reserved_share.value) / 1e9:.0f} GB usable); "
                "give the worker more accelerators"
            )
        bandwidth = n * a.hbm_bytes_s.value * a.bandwidth_share.value
        self._floor_s = m.saturation_tokens.value / self.prefill_tokens_s
        self._pair_s = m.attention_flops_per_pair.value / (n * a.bf16_flops_s.value * a.attention_share.value)
        self._always_s = m.always_read_bytes.value / bandwidth
        self._routed_s = (m.weight_bytes.value - m.always_read_bytes.value) / bandwidth
        self._unrouted = 1 - m.routed_share_per_token.value
        self._kv_read_s = m.kv_bytes_per_token.value * m.kv_read_share.value / bandwidth
        self._token_s = 2 * m.active_parameters.value / (peak * a.decode_flops_share.value)
        self._overhead_s = a.step_overhead_s.value
        self._fabric_bytes_s = n * a.fabric_bytes_s.value

    @property
    def kv_bytes_per_token(self) -> float:
        return self.model.kv_bytes_per_token.value

    @property
    def price_per_hour(self) -> float:
        return self.accelerators * self.accelerator.price_per_hour.value

    def prefill_s(self, new: int, past: int) -> float:
        """One prefill chunk alone: max(floor, n / T_P) and attention over past and itself."""
        return self.step_s((Chunk(new, past),))

    def decode_s(self, batch: int, context_tokens: int) -> float:
        """One decoding step of `batch` sequences that hold `context_tokens` positions together."""
        return self.step_s((), batch=batch, context_tokens=context_tokens)

    def extend_s(self, new: int, past: int) -> float:
        """`new` known ids verified at once after `past` positions, in a step of its own."""
        return self.step_s((Chunk(new, past),))

    def step_s(self, chunks: Sequence[Chunk], *, batch: int = 0, context_tokens: int = 0) -> float:
        """One engine step: prompt chunks and `batch` decodes over `context_tokens` positions together."""
        new = 0
        pairs = 0.0
        read_tokens = float(context_tokens)
        for n, past in chunks:
            new += n
            pairs += n * (past + n / 2)
            read_tokens += past
        if new > _EXTEND_TOKENS:
            linear_s = max(self._floor_s, new / self.prefill_tokens_s) + pairs * self._pair_s
            if batch:
                linear_s += batch * self._token_s + context_tokens * self._kv_read_s
            return self._overhead_s + linear_s
        tokens = new + batch
        if tokens == 0:
            return 0.0
        touched = 1.0 if self._unrouted >= 1 else 1 - self._unrouted**tokens
        return (
            self._overhead_s
            + self._always_s
            + self._routed_s * touched
            + read_tokens * self._kv_read_s
            + tokens * self._token_s
            + pairs * self._pair_s
        )

    def max_batch(self, tokens_per_sequence: int) -> int:
        """B_max: sequences of this length whose KV fits beside the weights."""
        return self.capacity_tokens // max(1, tokens_per_sequence)

    def fast_transfer_s(self, kv_bytes: float) -> float:
        """KV over the fabric inside one datacenter."""
        return _FABRIC_SETUP_S + kv_bytes / self._fabric_bytes_s
