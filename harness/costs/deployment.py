"""One model on some devices: how long a step takes, how big KV is, how much of it fits.

    prefill step  max(t_floor, n / T_P) + attention        t_floor = saturation_tokens / T_P
    decode step   t_weights + KV read / bandwidth + 2 N_active B / FLOPs
    mixed step    the prefill step over all its ids, + the decodes' KV read
    kv bytes      n x kv_bytes_per_token + min(n, recent_tokens) x recent_extra_bytes_per_token

T_P is the sum over the devices of the model's prefill_tokens_s. Both steps carry step_overhead_ms. A
step of at most decode_kernel_tokens ids is a decode step, whatever sequences its ids belong to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from harness.costs.profile import Accelerator, ModelProfile, ProfileError, load_model, parse_devices

_FABRIC_SETUP_S: Final = 0.002
"""Registration and control messages of one transfer inside a datacenter."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """The coefficients, all in seconds, bytes and tokens; made by `deploy`."""

    name: str
    vocab_size: int
    linear_s_per_token: float
    """Prefill kernels, without attention."""
    floor_s: float
    attention_s_per_pair: float
    weights_s: float
    """Reading the weights once."""
    kv_read_s_per_token: float
    decode_s_per_token: float
    overhead_s: float
    decode_kernel_tokens: int
    kv_bytes_per_token: float
    recent_tokens: int
    recent_extra_bytes_per_token: float
    kv_room_bytes: float
    """Device memory left for KV."""
    fabric_bytes_s: float
    """Network to other workers of the datacenter, one direction, all devices."""
    price_usd_h: float

    def prefill_s(self, tokens: int, start: int) -> float:
        """One step that computes `tokens` ids of one sequence after `start` held ones."""
        return self.step_s(tokens, attention_pairs(tokens, start), 0)

    def decode_s(self, sequences: int, context_tokens: int) -> float:
        """One step that samples one id for each of `sequences`, which hold `context_tokens` in all."""
        return self.step_s(sequences, 0, context_tokens)

    def step_s(self, tokens: int, pairs: int, context_tokens: int) -> float:
        """One step of `tokens` ids in all: `pairs` (computed, held) pairs of its chunks to attend to, and
        `context_tokens` positions held by its single ids' sequences to read. 0 ids take no time."""
        if tokens == 0:
            return 0.0
        if tokens <= self.decode_kernel_tokens:
            linear_s = self.weights_s + tokens * self.decode_s_per_token
        else:
            linear_s = max(self.floor_s, tokens * self.linear_s_per_token)
        return (
            self.overhead_s
            + linear_s
            + pairs * self.attention_s_per_pair
            + context_tokens * self.kv_read_s_per_token
        )

    def prompt_s(self, p0: int, p1: int, chunk_tokens: int) -> float:
        """Prefill of [p0, p1) alone on the devices, in chunks of `chunk_tokens`."""
        return sum(self.prefill_s(end - start, start) for start, end in chunks(p0, p1, chunk_tokens))

    def kv_bytes(self, p0: int, p1: int) -> float:
        """Size of the KV of positions [p0, p1) when p1 is the end of the context."""
        tokens = p1 - p0
        recent = min(tokens, self.recent_tokens)
        return tokens * self.kv_bytes_per_token + recent * self.recent_extra_bytes_per_token

    def fabric_s(self, kv_bytes: float) -> float:
        """Sending KV inside the datacenter."""
        return _FABRIC_SETUP_S + kv_bytes / self.fabric_bytes_s

    def capacity_tokens(self, sequences: int) -> int:
        """Positions that fit beside the weights when `sequences` are cached, each with its recent tokens."""
        recent_bytes = sequences * self.recent_tokens * self.recent_extra_bytes_per_token
        return max(0, int((self.kv_room_bytes - recent_bytes) / self.kv_bytes_per_token))

    def max_sequences(self, context_tokens: int) -> int:
        """How many sequences of this length fit at once (B_max)."""
        return int(self.kv_room_bytes / self.kv_bytes(0, context_tokens))


def attention_pairs(tokens: int, start: int) -> int:
    """(computed, held) pairs of a causal chunk of `tokens` after `start` held positions."""
    return tokens * start + tokens * (tokens + 1) // 2


def chunks(p0: int, p1: int, chunk_tokens: int) -> Iterator[tuple[int, int]]:
    """[p0, p1) in steps of at most `chunk_tokens`; the last one is the tail."""
    for start in range(p0, p1, chunk_tokens):
        yield start, min(start + chunk_tokens, p1)


def deploy(model: str, devices: str) -> Deployment:
    """The named model on devices such as 'h200x8'. Raises ProfileError for unknown names, and when the
    weights do not fit."""
    profile = load_model(model)
    accelerator, count = parse_devices(devices)
    return deployment_of(profile, accelerator, count)


def deployment_of(profile: ModelProfile, accelerator: Accelerator, count: int) -> Deployment:
    """As `deploy`, of profiles at hand (a calibration changes some values)."""
    name = f"{profile.name} on {accelerator.name}x{count}"
    room_bytes = (
        count * accelerator.hbm_bytes.value * profile.memory_fraction.value - profile.weight_bytes.value
    )
    if room_bytes <= 0:
        raise ProfileError(
            f"{name}: {profile.weight_bytes.value / 1e9:.0f} GB of weights do not fit; "
            f"{_least_devices(profile, accelerator)} devices are enough"
        )
    tokens_s = count * _prefill_tokens_s(profile, accelerator)
    bytes_s = count * accelerator.hbm_bytes_s.value * profile.bandwidth_efficiency.value
    attention_flops = count * accelerator.bf16_flops.value * profile.attention_mfu.value
    decode_flops = count * _linear_flops(profile, accelerator) * profile.decode_mfu.value
    return Deployment(
        name=name,
        vocab_size=int(profile.vocab_size.value),
        linear_s_per_token=1.0 / tokens_s,
        floor_s=profile.saturation_tokens.value / tokens_s,
        attention_s_per_pair=profile.attention_flops_per_pair.value / attention_flops,
        weights_s=profile.weight_bytes.value / bytes_s,
        kv_read_s_per_token=profile.kv_read_bytes_per_token.value / bytes_s,
        decode_s_per_token=2.0 * profile.active_parameters.value / decode_flops,
        overhead_s=profile.step_overhead_ms.value / 1e3,
        decode_kernel_tokens=int(profile.decode_kernel_tokens.value),
        kv_bytes_per_token=profile.kv_bytes_per_token.value,
        recent_tokens=int(profile.recent_tokens.value),
        recent_extra_bytes_per_token=profile.recent_extra_bytes_per_token.value,
        kv_room_bytes=room_bytes,
        fabric_bytes_s=count * accelerator.fabric_bytes_s.value,
        price_usd_h=count * accelerator.price_usd_h.value,
    )


def total_pairs(parts: Iterable[tuple[int, int]]) -> int:
    """`attention_pairs` over several (tokens, start)."""
    return sum(attention_pairs(tokens, start) for tokens, start in parts)


def _linear_flops(profile: ModelProfile, accelerator: Accelerator) -> float:
    match profile.linear_precision:
        case "fp8":
            return accelerator.fp8_flops.value
        case "bf16":
            return accelerator.bf16_flops.value
        case other:
            raise ProfileError(f"{profile.name}: linear_precision is {other!r}; known: bf16, fp8")


def _prefill_tokens_s(profile: ModelProfile, accelerator: Accelerator) -> float:
    """Per device."""
    known = profile.prefill_tokens_s.get(accelerator.name)
    if known is not None:
        return known.value
    flops = _linear_flops(profile, accelerator) * profile.prefill_mfu.value
    return flops / (2.0 * profile.active_parameters.value)


def _least_devices(profile: ModelProfile, accelerator: Accelerator) -> int:
    return int(profile.weight_bytes.value / (accelerator.hbm_bytes.value * profile.memory_fraction.value)) + 1
