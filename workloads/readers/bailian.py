"""Bailian usage traces: JSON lines in seconds, blocks of 16 tokens, chats that continue other chats.

`parent_chat_id` is -1 for a root; the chats under one root are one session, which may branch. A row's
blocks are the whole prompt. Only the starts of chats are told, so waits contain the service time before.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

import msgspec

from workloads.builder import Place, TraceBuilder
from workloads.errors import TraceError
from workloads.readers.blocks import PROBED_ROWS, infer
from workloads.readers.json_lines import rows
from workloads.readers.values import block_ids, seconds
from workloads.source import digest, files
from workloads.trace import Trace

if TYPE_CHECKING:
    from pathlib import Path

    from workloads.readers.options import ReadOptions

NAME: Final = "bailian"
_USUAL_BLOCK: Final = 16
_ROOT: Final = -1
_WHAT: Final = "a Bailian row"


class _Row(msgspec.Struct):
    chat_id: int
    parent_chat_id: int
    timestamp: float
    input_length: int
    output_length: int
    hash_ids: list[int]
    type: str | None = None


_DECODER: Final = msgspec.json.Decoder(_Row)


def sniff(_path: Path, head: bytes) -> bool:
    """Whether these are the first bytes of Bailian lines."""
    line = head.split(b"\n", 1)[0]
    return b'"chat_id"' in line and b'"parent_chat_id"' in line


def read(path: Path, options: ReadOptions) -> Trace:
    """One file, or a directory of .jsonl files read as one."""
    sources = files(path, (".jsonl",))
    probe = islice(rows(sources[0], _DECODER, _WHAT), PROBED_ROWS)
    pairs = [(row.input_length, len(row.hash_ids)) for row, _ in probe]
    block_size, tail = infer(pairs, usual=_USUAL_BLOCK, told=options.block_size)
    reader = _Reader(TraceBuilder(block_size=block_size, tail=tail))
    for source in sources:
        for row, place in rows(source, _DECODER, _WHAT):
            reader.add(row, place)
    warnings = ["waits are start-to-start gaps and contain the recorded service time"]
    if block_size != _USUAL_BLOCK:
        warnings.append(f"block ids stand for {block_size} tokens, by their counts")
    if reader.orphans:
        warnings.append(f"{reader.orphans} chats continue one that the trace does not hold: taken as roots")
    return reader.builder.build(name=path.name, source_format=NAME, digest=digest(sources), warnings=warnings)


class _Reader:
    """Places every chat in the session of its root."""

    def __init__(self, builder: TraceBuilder) -> None:
        self.builder = builder
        self.chats: dict[int, tuple[int, int, int, int]] = {}  # chat → session, turn, node, instant
        self.orphans = 0
        self.previous_ns = 0

    def add(self, row: _Row, place: Place) -> None:
        at_ns = seconds(row.timestamp, place.file, "timestamp", place.line)
        if at_ns < self.previous_ns:
            raise TraceError(
                "time runs backwards",
                file=place.file,
                line=place.line,
                field="timestamp",
                value=row.timestamp,
            )
        self.previous_ns = at_ns
        if row.chat_id in self.chats:
            raise TraceError(
                "this chat is there already",
                file=place.file,
                line=place.line,
                field="chat_id",
                value=row.chat_id,
            )
        parent = self.chats.get(row.parent_chat_id)
        if parent is None and row.parent_chat_id != _ROOT:
            self.orphans += 1
        ids = block_ids(row.hash_ids, place.file, "hash_ids", place.line)
        tree = self.builder.tree
        node = tree.insert(0, ids, len(self.builder))
        base: int | None = None
        delay_ns = 0
        if parent is None:
            session = self.builder.open_session(f"chat {row.chat_id}", at_ns, place)
            after: list[int] = []
        else:
            session, turn, parent_node, parent_ns = parent
            after = [turn]
            base = turn if tree.common_depth(parent_node, node) else None
            delay_ns = at_ns - parent_ns
        turn = self.builder.add_turn(
            session,
            place,
            input_tokens=row.input_length,
            output_tokens=row.output_length,
            node=node,
            after=after,
            base=base,
            delay_ns=delay_ns,
            arrival_ns=at_ns,
            tenant=row.type,
        )
        self.chats[row.chat_id] = (session, turn, node, at_ns)
