"""A timing model of an accelerator behind the engine port: no weights, real bytes, deterministic ids."""
