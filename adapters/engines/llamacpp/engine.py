"""Builds the llama.cpp engine."""

from __future__ import annotations

from adapters.engines.llamacpp import models
from adapters.engines.llamacpp.context import LlamaContext
from adapters.engines.slot_engine import SlotEngine
from harness.engine import Engine, EngineError, EngineOptions


def load(options: EngineOptions) -> Engine:
    """See `adapters.engines.load_engine`."""
    if (options.devices, options.time_scale, options.byte_scale) != (None, 1.0, 1.0):
        raise EngineError(
            "llamacpp: devices, time_scale and byte_scale are options of the emulated engine only"
        )
    backend = LlamaContext(models.resolve(options.model, options.model_sha256), options)
    all_slots = options.max_sequences * options.max_context_tokens
    capacity_tokens = min(all_slots, options.capacity_tokens or all_slots)
    return SlotEngine(backend, capacity_tokens=capacity_tokens, batch_tokens=options.batch_tokens)
