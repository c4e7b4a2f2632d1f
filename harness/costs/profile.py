"""Accelerator and model profiles: TOML files beside this module, every value with its source."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import TypeVar

import msgspec

from harness.costs.quantity import Quantity

_DIRECTORY = Path(__file__).parent / "profiles"

ProfileT = TypeVar("ProfileT", "Accelerator", "ModelProfile", "Line")


class ProfileError(ValueError):
    """A profile that does not exist, or is not one. One line."""


class Accelerator(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One device. FLOPs are dense, not sparse."""

    name: str
    hbm_bytes: Quantity
    hbm_bytes_s: Quantity
    bf16_flops: Quantity
    fp8_flops: Quantity
    fabric_bytes_s: Quantity
    """Network of one device to other workers of its datacenter, one direction."""
    price_usd_h: Quantity


class ModelProfile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One model, and how well its kernels use a device."""

    name: str
    linear_precision: str
    """'fp8' or 'bf16': which FLOPs the matrix products use."""
    vocab_size: Quantity
    active_parameters: Quantity
    weight_bytes: Quantity
    kv_bytes_per_token: Quantity
    """Of a token anywhere in the context."""
    recent_tokens: Quantity
    """The newest ones, each `recent_extra_bytes_per_token` bigger (sliding windows, uncompressed tails)."""
    recent_extra_bytes_per_token: Quantity
    kv_read_bytes_per_token: Quantity
    """Read per held token for each decoded one; below kv_bytes_per_token where attention is sparse."""
    attention_flops_per_pair: Quantity
    """Of one computed token attending to one held token, all layers and heads."""
    prefill_tokens_s: dict[str, Quantity]
    """Linear part per device, by accelerator; where an accelerator is missing, by prefill_mfu."""
    prefill_mfu: Quantity
    attention_mfu: Quantity
    """Share of the bf16 FLOPs."""
    decode_mfu: Quantity
    bandwidth_efficiency: Quantity
    saturation_tokens: Quantity
    """Ids in one prefill step below which the step takes no less time."""
    decode_kernel_tokens: Quantity
    """Ids up to which a step runs on decode kernels, so that a short extension costs no prefill floor."""
    step_overhead_ms: Quantity
    """Launch, scheduling and communication of every step."""
    memory_fraction: Quantity
    """Share of the device memory that weights and KV may take."""


class Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One line between the datacenters: what a pool of connections gets out of it.

    A transfer i of the pool gets w_i * min(flow limit, efficiency * rate / sum of w), w lognormal with
    `rate_sigma`; see harness.sim.wan."""

    name: str
    rate_bit_s: Quantity
    rtt_ms: Quantity
    loss_share: Quantity
    """Packet loss that TCP sees; 0: none."""
    efficiency: Quantity
    """Payload of KV over the line's rate when the line is full."""
    flow_bit_s: Quantity
    """Most that one connection of weight 1 carries (window, CPU, per-flow policing)."""
    connections: Quantity
    """Size of the pool; further transfers wait in order."""
    rate_sigma: Quantity
    """Spread of the connections' weights (sigma of the logarithm)."""
    price_usd_h: Quantity


def _names(kind: str) -> list[str]:
    return sorted(path.stem for path in (_DIRECTORY / kind).glob("*.toml"))


def _read(kind: str, name: str, profile: type[ProfileT]) -> ProfileT:
    own = name.endswith(".toml")
    if not own and name not in _names(kind):
        raise ProfileError(
            f"{kind}: {name!r} is not known; known: {', '.join(_names(kind))}, or a path ending in .toml"
        )
    path = Path(name) if own else _DIRECTORY / kind / f"{name}.toml"
    try:
        read = msgspec.toml.decode(path.read_bytes(), type=profile)
    except OSError as error:
        raise ProfileError(f"{path}: {error.strerror}") from None
    except msgspec.MsgspecError as error:
        raise ProfileError(f"{path}: {error}") from None
    if read.name != path.stem:
        raise ProfileError(f"{path}: name is {read.name!r}, expected {path.stem!r}, as the file")
    return read


@functools.cache
def load_accelerator(name: str) -> Accelerator:
    """Raises ProfileError, listing the known names, for an unknown one."""
    return _read("accelerators", name, Accelerator)


@functools.cache
def load_model(name: str) -> ModelProfile:
    """Raises ProfileError, listing the known names, for an unknown one."""
    return _read("models", name, ModelProfile)


@functools.cache
def load_line(name: str) -> Line:
    """Raises ProfileError, listing the known names, for an unknown one."""
    return _read("lines", name, Line)


def known_lines() -> list[str]:
    return _names("lines")


def known_accelerators() -> list[str]:
    return _names("accelerators")


def known_models() -> list[str]:
    return _names("models")


def parse_devices(text: str) -> tuple[Accelerator, int]:
    """'h200x8' is eight H200; 'h200' is one. Raises ProfileError."""
    match = re.fullmatch(r"([a-z0-9-]+?|.+\.toml)(?:x([1-9][0-9]*))?", text)
    if match is None:
        raise ProfileError(f"devices {text!r}: expected NAME or NAMExCOUNT, such as 'h200x8'")
    return load_accelerator(match[1]), int(match[2] or 1)
