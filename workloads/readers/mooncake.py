"""Mooncake traces: JSON lines with a timestamp in milliseconds, lengths and global block ids of 512 tokens.

Without session ids every request stands alone. Published files carry timestamps cut to 3 s ticks: rows on
one tick are spread inside it, and the trace says so. Rows may carry `session_id` and `turn`; then the gap
between the starts of two turns is all that is known, so it stands as the delay and the trace says so.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Final

import msgspec

from workloads.builder import Place, TraceBuilder
from workloads.errors import TraceError
from workloads.readers.blocks import PROBED_ROWS, infer
from workloads.readers.json_lines import rows
from workloads.readers.mooncake_delta import DeltaPrompts
from workloads.readers.options import Rows
from workloads.readers.values import block_ids, milliseconds, sorted_spread
from workloads.source import digest, files
from workloads.trace import Trace, Trigger

if TYPE_CHECKING:
    from pathlib import Path

    from workloads.readers.options import ReadOptions

NAME: Final = "mooncake"
USUAL_BLOCK: Final = 512
_QUANTISED: Final = 0.5  # more than half the gaps zero: a clock cut to ticks, not a burst
_WHAT: Final = "a Mooncake row"
_TRIGGERS: Final = {
    "tool_result": Trigger.TOOL,
    "tool": Trigger.TOOL,
    "text": Trigger.USER,
    "user": Trigger.USER,
}


class _Row(msgspec.Struct):
    timestamp: float
    input_length: int
    output_length: int
    hash_ids: list[int] = []
    session_id: str | int | None = None
    turn: int | None = None
    priority: int = 0
    delay: float | None = None
    api_time_ms: float | None = None
    shareable_prefix_tokens: int = 0
    tenant: str | None = None
    agent: str = "main"
    trigger: str = ""


_DECODER: Final = msgspec.json.Decoder(_Row)


def sniff(_path: Path, head: bytes) -> bool:
    """Whether these are the first bytes of Mooncake lines."""
    line = head.split(b"\n", 1)[0]
    told = b'"hash_ids"' in line or b'"session_id"' in line
    return told and b'"input_length"' in line and b'"chat_id"' not in line


def read(path: Path, options: ReadOptions) -> Trace:
    """One file, or a directory of .jsonl files read as one."""
    sources = files(path, (".jsonl",))
    probe = islice(rows(sources[0], _DECODER, _WHAT), PROBED_ROWS)
    pairs = [(row.input_length, len(row.hash_ids)) for row, _ in probe]
    block_size, tail = infer(pairs, usual=USUAL_BLOCK, told=options.block_size)
    delta = DeltaPrompts(block_size, tail) if options.rows == Rows.DELTA else None
    builder = TraceBuilder(block_size=block_size, tail=tail) if delta is None else delta.builder
    reader = _Reader(builder, delta)
    for source in sources:
        for row, place in rows(source, _DECODER, _WHAT):
            reader.add(row, place)
    return reader.finish(path, digest(sources), options)


class _Reader:
    """Collects rows; the timestamps of rows that stand alone are spread at the end."""

    def __init__(self, builder: TraceBuilder, delta: DeltaPrompts | None) -> None:
        self.builder = builder
        self.delta = delta
        self.sessions: dict[str, int] = {}
        self.nodes: dict[int, list[int]] = {}
        self.last_ns: dict[int, int] = {}
        self.previous_ns = 0
        self.told_delay = True

    def add(self, row: _Row, place: Place) -> None:
        at_ns = milliseconds(row.timestamp, place.file, "timestamp", place.line)
        if row.session_id is None:
            if at_ns < self.previous_ns:
                raise TraceError(
                    "time runs backwards",
                    file=place.file,
                    line=place.line,
                    field="timestamp",
                    value=row.timestamp,
                )
            self.previous_ns = at_ns
            session = self.builder.open_session(f"r{len(self.builder)}", at_ns, place)
        else:
            name = str(row.session_id)
            found = self.sessions.get(name)
            session = self.builder.open_session(name, at_ns, place) if found is None else found
            self.sessions[name] = session
        turn = self.builder.turns_in(session)
        if row.turn is not None and row.turn != turn:
            raise TraceError(
                f"turn {turn} of this session comes next",
                file=place.file,
                line=place.line,
                field="turn",
                value=row.turn,
            )
        node, inputs = self._prompt(row, session, place)
        self.builder.add_turn(
            session,
            place,
            input_tokens=inputs,
            output_tokens=row.output_length,
            node=node,
            after=[turn - 1] if turn else [],
            base=self.builder.tree.most_shared(self.nodes[session], node) if turn else None,
            delay_ns=self._delay(row, session, at_ns, place) if turn else 0,
            arrival_ns=at_ns,
            service_ns=None
            if row.api_time_ms is None
            else milliseconds(row.api_time_ms, place.file, "api_time_ms", place.line),
            shared_tokens=max(0, row.shareable_prefix_tokens),
            trigger=_TRIGGERS.get(row.trigger, Trigger.UNKNOWN),
            agent=row.agent,
            tenant=row.tenant,
            priority=row.priority,
        )
        if row.session_id is not None:
            self.nodes.setdefault(session, []).append(node)
            self.last_ns[session] = at_ns

    def _prompt(self, row: _Row, session: int, place: Place) -> tuple[int, int]:
        """Node and length of the row's prompt."""
        ids = block_ids(row.hash_ids, place.file, "hash_ids", place.line)
        if self.delta is None:
            return self.builder.tree.insert(0, ids, len(self.builder)), row.input_length
        if row.session_id is None:
            raise TraceError(
                "delta rows need a session_id", file=place.file, line=place.line, field="session_id"
            )
        return self.delta.prompt(
            session, place, added=row.input_length, output=row.output_length, ids=row.hash_ids
        )

    def finish(self, path: Path, source_digest: str, options: ReadOptions) -> Trace:
        warnings: list[str] = []
        if self.delta is not None:
            warnings.append("rows taken as deltas: prompts are the history and what each row adds")
        elif self.builder.block_size != USUAL_BLOCK:
            warnings.append(f"block ids stand for {self.builder.block_size} tokens, by their counts")
        if not self.told_delay:
            warnings.append("delays are start-to-start gaps and contain the recorded service time")
        trace = self.builder.build(
            name=path.name,
            source_format=NAME,
            digest=source_digest,
            sessions_known=bool(self.sessions),
            warnings=warnings,
        )
        return trace if self.sessions else _spread(trace, options.seed)

    def _delay(self, row: _Row, session: int, at_ns: int, place: Place) -> int:
        gap = at_ns - self.last_ns[session]
        if gap < 0:
            raise TraceError(
                "time runs backwards within the session",
                file=place.file,
                line=place.line,
                field="timestamp",
                value=row.timestamp,
            )
        if row.delay is not None:
            return milliseconds(row.delay, place.file, "delay", place.line)
        if row.api_time_ms is None:
            self.told_delay = False
        return gap


def _spread(trace: Trace, seed: int) -> Trace:
    instants, zero = sorted_spread(trace.turns.arrival_ns, seed)
    if zero <= _QUANTISED:
        return trace
    spread = replace(trace, session_start_ns=instants, turns=replace(trace.turns, arrival_ns=instants))
    return spread.warned(
        f"{zero:.0%} of the gaps were zero: timestamps sat on ticks and are spread inside them"
    )
