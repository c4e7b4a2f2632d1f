"""Inference engines behind the port `harness.engine`."""

from __future__ import annotations

import importlib

from harness.engine import Engine, EngineError, EngineOptions, Tokenizer

_ENGINES = {
    "emulated": "adapters.engines.emulated.engine",
    "llamacpp": "adapters.engines.llamacpp.engine",
    "openai": "adapters.engines.openai.engine",
    "vllm": "adapters.engines.vllm.engine",
}


_TOKENIZERS = {
    "llamacpp": "adapters.engines.llamacpp.tokenizer:LlamaTokenizer",
}


def load_tokenizer(name: str, options: EngineOptions) -> Tokenizer | None:
    """Text for the engine called `name`; None for an engine that knows token ids only."""
    if name not in _TOKENIZERS:
        return None
    module, _, kind = _TOKENIZERS[name].partition(":")
    tokenizer: Tokenizer = getattr(importlib.import_module(module), kind)(options)
    return tokenizer


def load_engine(name: str, options: EngineOptions) -> Engine:
    """Load the engine called `name`. Raises EngineError with the known names, or with what the engine
    found wrong in the options."""
    module = _ENGINES.get(name)
    if module is None:
        raise EngineError(f"engine {name!r} is not known; known: {', '.join(sorted(_ENGINES))}")
    for size in ("max_sequences", "max_context_tokens", "capacity_tokens", "batch_tokens", "threads"):
        value = getattr(options, size)
        if value is not None and value < 1:
            raise EngineError(f"{name}: options.{size} is {value}; it must be at least 1")
    for scale in ("time_scale", "byte_scale"):
        value = getattr(options, scale)
        if not value > 0:
            raise EngineError(f"{name}: options.{scale} is {value}; it must be above 0")
    engine: Engine = importlib.import_module(module).load(options)
    return engine
