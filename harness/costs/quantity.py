"""A figure with where it comes from."""

from __future__ import annotations

import enum

import msgspec


class Basis(enum.StrEnum):
    PUBLISHED = "published"
    """Stated by the maker, or measured and published by an operator."""
    DERIVED = "derived"
    """Arithmetic on published figures; the source shows it."""
    FITTED = "fitted"
    """Chosen so that results match; predicts nothing by itself."""


class Quantity(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One value of a profile; its unit is the last word of its key."""

    value: float
    basis: Basis
    source: str
    low: float | None = None
    high: float | None = None
    """Bounds, where a range is known; a fit stays within them."""

    def __post_init__(self) -> None:
        if not self.source.strip():
            raise ValueError("source: must say where the value comes from")
        if not (self.low is None or self.low <= self.value) or not (
            self.high is None or self.value <= self.high
        ):
            raise ValueError(f"value {self.value:g} is not within low {self.low} to high {self.high}")
