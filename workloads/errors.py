"""What goes wrong with a trace, said in one line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

_SHOWN: Final = 60


class TraceError(ValueError):
    """A trace or a plan cannot be used: file, line, field, value, and what would be right, on one line."""

    def __init__(
        self,
        message: str,
        *,
        file: str | Path | None = None,
        line: int | None = None,
        field: str | None = None,
        value: object = None,
    ) -> None:
        self.file = None if file is None else str(file)
        self.line = line
        self.field = field
        self.value = value
        place = ":".join(str(part) for part in (self.file, line) if part is not None)
        head = ": ".join(part for part in (place, field) if part)
        text = f"{head}: {message}" if head else message
        if value is not None:
            text += f" (got {shown(value)})"
        super().__init__(text)


def shown(value: object) -> str:
    """The value as it fits on one line of an error."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
