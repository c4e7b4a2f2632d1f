"""A deployment whose coefficients were measured on a real engine instead of derived from a profile."""

from __future__ import annotations

from pathlib import Path

import msgspec

from harness.costs.deployment import Deployment
from harness.costs.profile import ProfileError
from harness.costs.quantity import Quantity


class Measured(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Step-time coefficients fitted to an engine's own steps; see `Deployment` for their meaning."""

    name: str
    linear_s_per_token: Quantity
    attention_s_per_pair: Quantity
    decode_s_per_token: Quantity
    kv_read_s_per_token: Quantity
    overhead_s: Quantity
    decode_kernel_tokens: Quantity
    kv_bytes_per_token: Quantity
    capacity_tokens: Quantity
    fabric_bytes_s: Quantity


def load_measured(path: Path) -> Deployment:
    """Read a file that harness.experiment.measure_steps wrote. Raises ProfileError."""
    try:
        m = msgspec.toml.decode(path.read_bytes(), type=Measured)
    except OSError as error:
        raise ProfileError(f"{path}: {error.strerror}") from None
    except msgspec.MsgspecError as error:
        raise ProfileError(f"{path}: {error}") from None
    return deployment(m)


def deployment(m: Measured) -> Deployment:
    return Deployment(
        name=m.name,
        vocab_size=0,
        linear_s_per_token=m.linear_s_per_token.value,
        floor_s=0.0,
        attention_s_per_pair=m.attention_s_per_pair.value,
        weights_s=0.0,
        kv_read_s_per_token=m.kv_read_s_per_token.value,
        decode_s_per_token=m.decode_s_per_token.value,
        overhead_s=m.overhead_s.value,
        decode_kernel_tokens=int(m.decode_kernel_tokens.value),
        kv_bytes_per_token=m.kv_bytes_per_token.value,
        recent_tokens=0,
        recent_extra_bytes_per_token=0.0,
        kv_room_bytes=m.capacity_tokens.value * m.kv_bytes_per_token.value,
        fabric_bytes_s=m.fabric_bytes_s.value,
        price_usd_h=0.0,
    )
