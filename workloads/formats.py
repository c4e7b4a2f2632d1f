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
    "weka": "workloads.readers.weka",
    "mooncake": "workloads.readers.mooncake",
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
    """Name of the format of a file, or of a directory by its first file."""
    probe = path
    if path.is_dir():
        inside = sorted(p for p in path.iterdir() if p.is_file())
        if not inside:
            raise TraceError("the directory holds no file", file=path)
        probe = inside[0]
    start = head(probe)
    for name in READERS:
        if reader(name).sniff(probe, start):
            return name
    raise TraceError(f"not recognised as any of {', '.join(READERS)}; name it with --format", file=path)


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
