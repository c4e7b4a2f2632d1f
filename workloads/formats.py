"""The table of trace formats, and the one way to open a trace."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Final

from workloads.errors import TraceError
from workloads.readers.options import ReadOptions
from workloads.source import head

if TYPE_CHECKING:
    from types import ModuleType

    from workloads.trace import Trace

# Name → module with NAME, sniff(path, head) and read(path, options); told apart in this order.
READERS: Final[dict[str, str]] = {
    "native": "workloads.readers.native",
    "weka-tree": "workloads.readers.weka_tree",
    "weka": "workloads.readers.weka",
    "mooncake": "workloads.readers.mooncake",
    "bailian": "workloads.readers.bailian",
    "tracelab": "workloads.readers.tracelab",
    "baseten": "workloads.readers.baseten",
    "otel": "workloads.readers.otel",
    "chat": "workloads.readers.chat",
    "azure": "workloads.readers.azure",
    "aiperf": "workloads.readers.aiperf",
}
PRESET: Final = "preset:"


def reader(name: str) -> ModuleType:
    """The reader of a format by name."""
    try:
        return importlib.import_module(READERS[name])
    except KeyError:
        raise TraceError(
            f"unknown format; known formats: {', '.join(READERS)}", field="format", value=name
        ) from None


def detect(path: Path) -> str:
    """Name of the format of a file, or of the trace files in a directory."""
    if not path.is_dir():
        found = _sniffed(path)
        if found is None:
            raise TraceError(
                f"not recognised as any of {', '.join(READERS)}; name it with --format", file=path
            )
        return found
    inside = {_sniffed(p) for p in sorted(path.iterdir()) if p.is_file()} - {None}
    names = sorted(str(name) for name in inside)
    if len(names) != 1:
        what = f"holds files of several formats ({', '.join(names)})" if names else "holds no trace file"
        raise TraceError(f"this directory {what}; name a file in it, or --format", file=path)
    return names[0]


def _sniffed(path: Path) -> str | None:
    start = head(path)
    return next((name for name in READERS if reader(name).sniff(path, start)), None)


def open_trace(
    source: str | Path,
    *,
    format: str | None = None,  # noqa: A002 - the word users know from the command line
    seed: int = 0,
    sessions: int | None = None,
    options: ReadOptions | None = None,
) -> Trace:
    """A trace from a file, a directory, or 'preset:NAME' of the generator.

    seed      of a preset's generator; elsewhere for spreading quantised timestamps
    sessions  how many to generate; for files, the first so many sessions are kept
    """
    text = str(source)
    if text.startswith(PRESET):
        from workloads.generator.presets import generate_preset  # noqa: PLC0415 - not needed to read a file

        return generate_preset(text.removeprefix(PRESET), seed=seed, sessions=sessions)
    path = Path(source)
    chosen = options or ReadOptions(seed=seed)
    trace: Trace = reader(format or detect(path)).read(path, chosen)
    if sessions is not None and sessions < len(trace.session_ids):
        from workloads.transform.select import first_sessions  # noqa: PLC0415 - only when asked for

        return first_sessions(trace, sessions)
    return trace
