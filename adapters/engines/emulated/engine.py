"""Builds the emulated engine."""

from __future__ import annotations

from adapters.engines.emulated.backend import EmulatedDevices
from adapters.engines.slot_engine import SlotEngine
from harness.costs.deployment import deploy
from harness.costs.profile import ProfileError
from harness.engine import Engine, EngineError, EngineOptions


def load(options: EngineOptions) -> Engine:
    """See `adapters.engines.load_engine`."""
    if options.devices is None:
        raise EngineError("emulated: options.devices is not set; name them, such as 'h100x8'")
    if options.model_sha256 is not None:
        raise EngineError(
            "emulated: options.model_sha256 is set, but a profile has no model file; leave it out"
        )
    try:
        deployment = deploy(options.model, options.devices)
    except ProfileError as error:
        raise EngineError(f"emulated: {error}") from None
    fits_tokens = deployment.capacity_tokens(options.max_sequences)
    capacity_tokens = min(fits_tokens, options.capacity_tokens or fits_tokens)
    if capacity_tokens < 1:
        raise EngineError(
            f"emulated: {deployment.name} has no room for {options.max_sequences} sequences; use more devices"
        )
    backend = EmulatedDevices(deployment, options)
    return SlotEngine(backend, capacity_tokens=capacity_tokens, batch_tokens=options.batch_tokens)
