"""TraceLab CSVs: rounds of a session with their cached prefix, new input, output and the tool's wait after.

A round's prompt is prefix_len + input_len tokens; prefix_len is what the session had before, answers
included. A first round's prefix came from elsewhere: it is taken as tools and system prompt, which other
sessions may share, though the file does not say which. Arrival times are in milliseconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from workloads.builder import MAX_TOKENS, Place, TraceBuilder
from workloads.prefix_tree import NO_NODE
from workloads.readers.table import Row, rows
from workloads.readers.values import milliseconds
from workloads.source import digest, files
from workloads.trace import Tail, Trace, Trigger

if TYPE_CHECKING:
    from pathlib import Path

    from workloads.readers.options import ReadOptions

NAME: Final = "tracelab"
_COLUMNS: Final = ("session_id", "round_idx", "prefix_len", "input_len", "output_len", "tool_wait_after_ms")


def sniff(_path: Path, head: bytes) -> bool:
    """Whether the header line is TraceLab's."""
    line = head.split(b"\n", 1)[0]
    return b"round_idx" in line and b"tool_wait_after_ms" in line


def read(path: Path, _options: ReadOptions) -> Trace:
    """One CSV file, or a directory of them; there the file's name is part of the session's."""
    sources = files(path, (".csv",))
    builder = TraceBuilder(block_size=1, tail=Tail.WHOLE)
    for source in sources:
        prefix = f"{source.name.split('.')[0]}/" if len(sources) > 1 else ""
        sessions: dict[str, _Session] = {}
        for row in rows(source, _COLUMNS):
            name = row.text("session_id").strip()
            if name not in sessions:
                sessions[name] = _Session(builder, prefix + name, row)
            sessions[name].add(row)
    return builder.build(name=path.name, source_format=NAME, digest=digest(sources))


class _Session:
    def __init__(self, builder: TraceBuilder, name: str, row: Row) -> None:
        start = 0
        if row.has("arrival_time"):
            start = milliseconds(row.number("arrival_time"), row.file, "arrival_time", row.line)
        self.builder = builder
        self.session = builder.open_session(name, start, Place(row.file, row.line))
        self.scope = builder.tree.scope(name)
        self.node = NO_NODE
        self.tokens = 0  # prompt and answer of the round before
        self.wait_ns = 0

    def add(self, row: Row) -> None:
        place = Place(row.file, row.line)
        turn = self.builder.turns_in(self.session)
        if row.integer("round_idx") != turn:
            raise row.wrong("round_idx", f"round {turn} of this session comes next")
        prefix, new, output = (row.integer(c) for c in ("prefix_len", "input_len", "output_len"))
        for column, value in (("prefix_len", prefix), ("input_len", new)):
            if not 0 <= value < MAX_TOKENS:
                raise row.wrong(column, f"must be 0 or more and below {MAX_TOKENS}")
        if turn and prefix > self.tokens:
            raise row.wrong("prefix_len", f"exceeds the {self.tokens} tokens that the session had before")
        tree = self.builder.tree
        kept = min(prefix, tree.depth(self.node))
        node = tree.extend(self.scope, self.node, kept=kept, fresh=prefix + new - kept, owner=turn)
        self.builder.add_turn(
            self.session,
            place,
            input_tokens=prefix + new,
            output_tokens=output,
            node=node,
            after=[turn - 1] if turn else [],
            base=turn - 1 if turn and kept else None,
            delay_ns=self.wait_ns,
            shared_tokens=0 if turn else prefix,
            trigger=Trigger.TOOL if turn else Trigger.USER,
        )
        self.node = node
        self.tokens = prefix + new + max(output, 0)
        self.wait_ns = milliseconds(
            row.number("tool_wait_after_ms"), row.file, "tool_wait_after_ms", row.line
        )
