"""Weka native traces: one JSON document a session, block ids local to the file, subagents nested.

A subagent's requests form a chain of their own that starts after the parent's request before it. The
parent's next request waits for the subagents that had ended when it was sent; one that was still running
then is waited for by a later request. Nested times count from the subagent's start in raw files and from
the session's in later releases: they are relative when the first lies before the subagent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from workloads.builder import Place, TraceBuilder
from workloads.errors import TraceError
from workloads.readers.json_lines import check_keys
from workloads.readers.values import block_ids, seconds
from workloads.source import digest, files, read_all
from workloads.trace import Tail, Trace, Trigger

if TYPE_CHECKING:
    from pathlib import Path

    from workloads.readers.options import ReadOptions

NAME: Final = "weka"
CLOCK_GRAIN_NS: Final = 1_000_000_000  # parents' times are whole seconds


class _Request(msgspec.Struct, tag_field="type", tag="n"):
    t: float
    input_tokens: int = msgspec.field(name="in")
    output_tokens: int = msgspec.field(name="out")
    hash_ids: list[int]
    think_time: float | None = None
    api_time: float | None = None
    input_types: list[str] = []


class _Streamed(_Request, tag="s"):
    pass


class _Subagent(msgspec.Struct, tag_field="type", tag="subagent"):
    t: float
    requests: list[_Request | _Streamed]
    agent_id: str = "subagent"
    tool_tokens: int = 0
    system_tokens: int = 0


class _Document(msgspec.Struct):
    id: str
    block_size: int
    requests: list[_Request | _Streamed | _Subagent]
    hash_id_scope: str = "local"
    tool_tokens: int = 0
    system_tokens: int = 0


_DECODER: Final = msgspec.json.Decoder(_Document)


def sniff(path: Path, head: bytes) -> bool:
    """Whether these are the first bytes of a Weka session."""
    return not path.name.endswith("l") and b'"hash_ids"' in head and b'"requests"' in head and b'"in"' in head


def read(path: Path, _options: ReadOptions) -> Trace:
    """One file or a directory of them, one session a file."""
    sources = files(path, (".json",))
    builder: TraceBuilder | None = None
    for source in sources:
        document = _document(source)
        if builder is None:
            builder = TraceBuilder(block_size=document.block_size, tail=Tail.WHOLE)
        if document.block_size != builder.block_size:
            raise TraceError(
                f"block size differs from the other files' {builder.block_size}",
                file=source,
                field="block_size",
                value=document.block_size,
            )
        _Session(builder, document, source).add()
    if builder is None:
        raise TraceError("holds no session", file=path)
    return builder.build(
        name=path.name,
        source_format=NAME,
        digest=digest(sources),
    )


def _document(source: Path) -> _Document:
    content = read_all(source)
    try:
        document = _DECODER.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError) as e:
        raise TraceError(f"not a Weka session: {e}", file=source) from e
    if not 0 < document.block_size <= 1 << 20:
        raise TraceError("must be 1..1048576", file=source, field="block_size", value=document.block_size)
    if document.hash_id_scope not in ("local", "global"):
        raise TraceError(
            "must be 'local' or 'global'", file=source, field="hash_id_scope", value=document.hash_id_scope
        )
    if any(content.count(key) > count for key, count in _key_counts(document)):
        check_keys(content, Place(str(source)))
    return document


def _key_counts(document: _Document) -> list[tuple[bytes, int]]:
    """How often the keys that matter stand in a document that holds none of them twice."""
    nested = [item.requests for item in document.requests if isinstance(item, _Subagent)]
    items = len(document.requests) + sum(len(requests) for requests in nested)
    calls = items - len(nested)
    once = [(b'"id"', 1), (b'"block_size"', 1), (b'"hash_id_scope"', 1), (b'"requests"', 1 + len(nested))]
    each = [(f'"{key}"'.encode(), calls) for key in ("in", "out", "hash_ids", "think_time", "api_time")]
    return [*once, *each, (b'"t"', items), (b'"type"', items)]


class _Session:
    """Turns of one document, in the order they were sent."""

    def __init__(self, builder: TraceBuilder, document: _Document, source: Path) -> None:
        self.builder = builder
        self.document = document
        self.file = str(source)
        self.session = builder.open_session(document.id, 0, Place(self.file))
        self.local = document.hash_id_scope == "local"
        self.scope = builder.tree.scope(document.id if self.local else "")
        self.end_ns: list[int] = []  # recorded end of each turn
        self.node: list[int] = []

    def add(self) -> None:
        main: int | None = None
        running: list[int] = []
        seen_t = -1.0
        for index, item in enumerate(self.document.requests):
            where = f"requests[{index}]"
            if item.t < seen_t:
                raise TraceError("time runs backwards", file=self.file, field=f"{where}.t", value=item.t)
            if isinstance(item, _Subagent):
                last = self._subagent(item, main, where)
                if last is not None:
                    running.append(last)
                continue
            seen_t = item.t
            joined = [a for a in running if self.end_ns[a] <= item.t * 1e9 + CLOCK_GRAIN_NS]
            running = [a for a in running if a not in joined]
            after = ([] if main is None else [main]) + joined
            main = self._request(
                item,
                item.t,
                after=after,
                before=main,
                where=where,
                agent="main",
                head_tokens=self._head(self.document),
                joins=bool(joined),
            )
        if self.local:
            self.builder.tree.close_scope(self.scope)

    def _subagent(self, agent: _Subagent, parent: int | None, where: str) -> int | None:
        offset = agent.t if agent.requests and agent.requests[0].t < agent.t else 0.0
        last: int | None = None
        for index, item in enumerate(agent.requests):
            after = [last] if last is not None else [] if parent is None else [parent]
            last = self._request(
                item,
                item.t + offset,
                after=after,
                before=last,
                where=f"{where}.requests[{index}]",
                agent=agent.agent_id,
                head_tokens=self._head(agent),
                joins=last is None,
            )
        return last

    def _request(
        self,
        item: _Request,
        at_s: float,
        *,
        after: list[int],
        before: int | None,
        where: str,
        agent: str,
        head_tokens: int,
        joins: bool,
    ) -> int:
        place = Place(self.file)
        arrival = seconds(at_s, self.file, f"{where}.t")
        service = None if item.api_time is None else seconds(item.api_time, self.file, f"{where}.api_time")
        turn = self.builder.turns_in(self.session)
        node, base = self._node(item, turn, before, where)
        if joins or item.think_time is None or not after:
            # Counted from the last of several: the recorded think time is from the parent's own answer.
            delay = max(0, arrival - max((self.end_ns[a] for a in after), default=0))
        else:
            delay = seconds(item.think_time, self.file, f"{where}.think_time")
        self.builder.add_turn(
            self.session,
            place,
            input_tokens=item.input_tokens,
            output_tokens=item.output_tokens,
            node=node,
            after=after,
            base=base,
            delay_ns=delay,
            arrival_ns=arrival,
            service_ns=service,
            shared_tokens=head_tokens,
            trigger=_trigger(item.input_types),
            agent=agent,
        )
        self.end_ns.append(arrival + (service or 0))
        self.node.append(node)
        return turn

    def _node(self, item: _Request, turn: int, before: int | None, where: str) -> tuple[int, int | None]:
        ids = block_ids(item.hash_ids, self.file, f"{where}.hash_ids")
        node, base = self.builder.insert(self.scope, ids, turn)
        if base is not None and before is not None:
            tree = self.builder.tree
            # The request before in the same thread is the one continued, if no other shares more.
            if tree.common_depth(self.node[before], node) == tree.common_depth(self.node[base], node):
                base = before
        return node, base

    @staticmethod
    def _head(of: _Document | _Subagent) -> int:
        return max(0, of.tool_tokens) + max(0, of.system_tokens)


def _trigger(kinds: list[str]) -> Trigger:
    if not kinds:
        return Trigger.UNKNOWN
    return Trigger.TOOL if "tool_result" in kinds else Trigger.USER
