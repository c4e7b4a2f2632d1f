"""One number of a profile, with where it comes from."""

from __future__ import annotations

import enum

import msgspec


class ProfileError(ValueError):
    """A profile that cannot be used. One line: file, field, and what would be right."""


class FigureKind(enum.StrEnum):
    PUBLISHED = "published"
    """Stated by the source as it stands here."""
    DERIVED = "derived"
    """Computed from published figures; the source says how."""
    FITTED = "fitted"
    """Chosen so that a model meets measured results; never a prediction."""


class Figure(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A value, its kind and its source; `low` and `high` bound it where a range is known."""

    value: float
    kind: FigureKind
    source: str
    low: float | None = None
    high: float | None = None

    def __post_init__(self) -> None:
        if not self.source.strip():
            raise ValueError("source: must say where the value comes from")
        if self.low is not None and self.high is not None and not self.low <= self.value <= self.high:
            raise ValueError(f"value {self.value:g} is not within low {self.low:g} to high {self.high:g}")
