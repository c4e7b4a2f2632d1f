"""The table of formats that can be written, and the one way to write a trace."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

from workloads.errors import TraceError

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

    from workloads.trace import Trace

# Name → module with losses(trace) and write(trace, path).
WRITERS: Final[dict[str, str]] = {
    "native": "workloads.writers.native",
    "mooncake": "workloads.writers.mooncake",
    "tracelab": "workloads.writers.tracelab",
    "azure": "workloads.writers.azure",
}


_BY_SUFFIX: Final = {".parquet": "native", ".jsonl": "mooncake"}


def format_of(path: Path) -> str:
    """The format a file's ending stands for."""
    try:
        return _BY_SUFFIX[path.suffix]
    except KeyError:
        known = ", ".join(f"{suffix} ({name})" for suffix, name in _BY_SUFFIX.items())
        raise TraceError(f"its ending names no format ({known}); name one with --to", file=path) from None


def writer(name: str) -> ModuleType:
    """The writer of a format by name."""
    try:
        return importlib.import_module(WRITERS[name])
    except KeyError:
        raise TraceError(
            f"cannot be written; formats that can: {', '.join(WRITERS)}", field="format", value=name
        ) from None


def write_trace(trace: Trace, path: Path, *, format: str, allow_loss: bool = False) -> tuple[str, ...]:  # noqa: A002
    """Write a trace in a format, and give what was lost; without `allow_loss` a loss is refused."""
    module = writer(format)
    lost: tuple[str, ...] = tuple(module.losses(trace))
    if lost and not allow_loss:
        raise TraceError(f"{format} would lose {'; '.join(lost)}", file=trace.header.name, field="format")
    module.write(trace, path)
    return lost
