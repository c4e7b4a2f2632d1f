"""AIPerf's profile_export.jsonl: one record a request, with its session, instants and lengths.

A record does not say what its prompt has in common with others, so no hit rate can be stated. Records of
other phases than `profiling`, and failed ones, are left out and counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from workloads.builder import Place, TraceBuilder
from workloads.errors import TraceError
from workloads.prefix_tree import NO_NODE
from workloads.readers.azure import LENGTHS_ONLY
from workloads.readers.json_lines import rows
from workloads.source import digest, files
from workloads.trace import Tail, Trace

if TYPE_CHECKING:
    from pathlib import Path

    from workloads.readers.options import ReadOptions

NAME: Final = "aiperf"
_PHASE: Final = "profiling"


class _Value(msgspec.Struct):
    value: float | list[float]


class _Metadata(msgspec.Struct):
    request_start_ns: int
    request_end_ns: int
    turn_index: int = 0
    session_num: int | None = None
    x_correlation_id: str | None = None
    conversation_id: str | None = None
    benchmark_phase: str = _PHASE


class _Record(msgspec.Struct):
    metadata: _Metadata
    metrics: dict[str, _Value]
    error: dict[str, object] | None = None


_DECODER: Final = msgspec.json.Decoder(_Record)


def sniff(_path: Path, head: bytes) -> bool:
    """Whether these are the first bytes of AIPerf's records."""
    line = head.split(b"\n", 1)[0]
    return b'"request_start_ns"' in line and b'"metrics"' in line and b'"metadata"' in line


def read(path: Path, _options: ReadOptions) -> Trace:
    """One file."""
    kept: list[tuple[_Record, Place]] = []
    left = {"of another phase": 0, "failed": 0}
    for source in files(path, (".jsonl",)):
        for record, place in rows(source, _DECODER, "an AIPerf record"):
            if record.metadata.benchmark_phase != _PHASE:
                left["of another phase"] += 1
            elif record.error is not None:
                left["failed"] += 1
            else:
                kept.append((record, place))
    if not kept:
        raise TraceError("holds no successful request of the profiling phase", file=path)
    reader = _Reader(min(record.metadata.request_start_ns for record, _ in kept))
    for record, place in sorted(kept, key=lambda pair: pair[0].metadata.request_start_ns):
        reader.add(record, place)
    return reader.builder.build(
        name=path.name,
        source_format=NAME,
        digest=digest(files(path, (".jsonl",))),
        warnings=[
            LENGTHS_ONLY,
            *(f"{count} records left out: {why}" for why, count in left.items() if count),
        ],
    )


class _Reader:
    def __init__(self, origin_ns: int) -> None:
        self.builder = TraceBuilder(block_size=1, tail=Tail.WHOLE, prefix_known=False)
        self.origin_ns = origin_ns
        self.sessions: dict[str, int] = {}
        self.end_ns: dict[int, int] = {}

    def add(self, record: _Record, place: Place) -> None:
        m = record.metadata
        told = (m.x_correlation_id, m.conversation_id, m.session_num)
        name = next((str(value) for value in told if value is not None), f"line {place.line}")
        at_ns = m.request_start_ns - self.origin_ns
        session = self.sessions.get(name)
        if session is None:
            session = self.sessions[name] = self.builder.open_session(name, at_ns, place)
        turn = self.builder.turns_in(session)
        if m.request_end_ns < m.request_start_ns:
            raise TraceError(
                "ends before it starts",
                file=place.file,
                line=place.line,
                field="request_end_ns",
                value=m.request_end_ns,
            )
        self.builder.add_turn(
            session,
            place,
            input_tokens=_tokens(record, "input_sequence_length", place),
            output_tokens=_tokens(record, "output_sequence_length", place),
            node=NO_NODE,
            after=[turn - 1] if turn else [],
            base=None,
            delay_ns=max(0, at_ns - self.end_ns[session]) if turn else 0,
            arrival_ns=at_ns,
            service_ns=m.request_end_ns - m.request_start_ns,
        )
        self.end_ns[session] = m.request_end_ns - self.origin_ns


def _tokens(record: _Record, name: str, place: Place) -> int:
    found = record.metrics.get(name)
    if found is None:
        raise TraceError("is missing", file=place.file, line=place.line, field=f"metrics.{name}")
    value = found.value
    if isinstance(value, list) or not float(value).is_integer():
        raise TraceError(
            "must be a whole number", file=place.file, line=place.line, field=f"metrics.{name}", value=value
        )
    return int(value)
