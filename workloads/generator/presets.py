"""Named parameter sets: TOML files beside this one."""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING, Final

import msgspec

from workloads.errors import TraceError
from workloads.generator.parameters import Parameters

if TYPE_CHECKING:
    from pathlib import Path

PRESETS: Final = (
    "report",
    "small-engine",
    "weka-like",
    "mooncake-like",
    "cold",
    "uniform-90",
    "low-hit-turns",
    "quickstart",
    "long-answers",
)


def preset(name: str) -> Parameters:
    """Parameters of a preset by name."""
    if name not in PRESETS:
        raise TraceError(f"unknown preset; known presets: {', '.join(PRESETS)}", field="preset", value=name)
    text = (resources.files("workloads.generator") / "presets" / f"{name}.toml").read_bytes()
    return _decoded(text, f"preset {name}")


def parameters_from(path: Path) -> Parameters:
    """Parameters from a TOML file of one's own."""
    try:
        text = path.read_bytes()
    except OSError as e:
        raise TraceError(f"cannot be read: {e.strerror or e}", file=path) from e
    return _decoded(text, str(path))


def _decoded(text: bytes, where: str) -> Parameters:
    try:
        return msgspec.toml.decode(text, type=Parameters)
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as e:
        if isinstance(e, TraceError):
            raise
        raise TraceError(f"not generator parameters: {e}", file=where) from e
