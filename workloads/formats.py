"""The table of trace formats, and the one way to open a trace."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Final

from workloads.errors import TraceError
from workloads.readers.options import ReadOptions
from workloads.repair import repair as repaired
from workloads.source import head
from workloads.transform.select import first_sessions

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
    turns: float | None = None,
    repair: bool = False,
    options: ReadOptions | None = None,
) -> Trace:
    """A trace from a file, a directory, 'preset:NAME' of the generator, or a .toml file of its parameters.

    seed      of the generator; elsewhere for spreading quantised timestamps
    sessions  how many conversations to generate; of a file, the first so many sessions are kept
    turns     mean turns of a generated conversation; a file's are what they are
    repair    mend known defects; the trace's warnings say what was changed
    """
    text = str(source)
    if text.startswith(PRESET) or text.endswith(".toml"):
        trace = _generated(text, seed=seed, sessions=sessions, turns=turns)
        sessions = None
    else:
        if turns is not None:
            raise TraceError(
                "is for generated traces only: a recorded one has its own", field="turns", value=turns
            )
        path = Path(source)
        trace = reader(format or detect(path)).read(path, options or ReadOptions(seed=seed))
    if repair:
        trace = repaired(trace)
    if sessions is not None and sessions < len(trace.session_ids):
        return first_sessions(trace, sessions)
    return trace


def _generated(source: str, *, seed: int, sessions: int | None, turns: float | None) -> Trace:
    from workloads.generator.presets import parameters_from, preset  # noqa: PLC0415 - not needed to read a file
    from workloads.generator.request import asked, synthesise  # noqa: PLC0415

    named = source.startswith(PRESET)
    name = source.removeprefix(PRESET) if named else Path(source).stem
    parameters = preset(name) if named else parameters_from(Path(source))
    return synthesise(asked(parameters, sessions=sessions, turns_mean=turns), name=name, seed=seed)
