"""Shipped profiles by name, and profiles of one's own by path."""

from __future__ import annotations

from pathlib import Path
from typing import Final, TypeVar

import msgspec

from harness.costs.accelerator import Accelerator
from harness.costs.figure import ProfileError
from harness.costs.line import Line
from harness.costs.model import Model

_HERE: Final = Path(__file__).parent
_P = TypeVar("_P", Accelerator, Model, Line)


def names(kind: str) -> tuple[str, ...]:
    """Shipped profiles of a kind ('accelerators', 'models' or 'lines'), sorted."""
    return tuple(sorted(p.stem for p in (_HERE / kind).glob("*.toml")))


def load_accelerator(name: str) -> Accelerator:
    """By name, or by a path ending in .toml. Raises ProfileError."""
    return _load("accelerators", name, Accelerator)


def load_model(name: str) -> Model:
    """By name, or by a path ending in .toml. Raises ProfileError."""
    return _load("models", name, Model)


def load_line(name: str) -> Line:
    """By name, or by a path ending in .toml. Raises ProfileError."""
    return _load("lines", name, Line)


def _load(kind: str, name: str, struct: type[_P]) -> _P:
    own = name.endswith(".toml")
    path = Path(name) if own else _HERE / kind / f"{name}.toml"
    try:
        data = path.read_bytes()
    except OSError as error:
        hint = error.strerror if own else f"known {kind}: {', '.join(names(kind))}; or a path ending in .toml"
        raise ProfileError(f"{kind[:-1]} {name!r}: {hint}") from error
    try:
        return msgspec.toml.decode(data, type=struct)
    except msgspec.DecodeError as error:
        raise ProfileError(f"{path}: {error}") from error
