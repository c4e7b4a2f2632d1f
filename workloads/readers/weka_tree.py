"""The prefix tree of Weka's sessions as one CSV: a row a request, with its parent and the blocks shared.

Block ids are gone, the structure is whole: a request keeps the first `shared_blocks64` blocks of its
parent's prompt and has new ones after. Sessions the file marks as duplicates of a fork are left out
unless they are asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from workloads.builder import MAX_TOKENS, Place, TraceBuilder
from workloads.prefix_tree import NO_NODE
from workloads.readers.table import Row, rows
from workloads.readers.values import seconds
from workloads.readers.weka import CLOCK_GRAIN_NS
from workloads.source import digest
from workloads.trace import Tail, Trace, Trigger

if TYPE_CHECKING:
    from pathlib import Path

    from workloads.readers.options import ReadOptions

NAME: Final = "weka-tree"
_BLOCK: Final = 64
_COLUMNS: Final = (
    "trace_id",
    "dup_of_fork",
    "seq",
    "agent",
    "t_s",
    "in_tokens",
    "out_tokens",
    "n_blocks64",
    "parent_seq",
    "shared_blocks64",
    "input_kind",
    "api_time_s",
    "think_time_s",
    "tool_tokens",
    "system_tokens",
)


def sniff(_path: Path, head: bytes) -> bool:
    """Whether the header line is that of a Weka prefix tree."""
    return b"shared_blocks64" in head.split(b"\n", 1)[0]


def read(path: Path, options: ReadOptions) -> Trace:
    """One CSV file."""
    builder = TraceBuilder(block_size=_BLOCK, tail=Tail.WHOLE)
    session: _Session | None = None
    done: set[str] = set()
    marked = 0
    for row in rows(path, _COLUMNS):
        if row.has("dup_of_fork") and not options.keep_forks:
            marked += 1
            continue
        name = row.text("trace_id")
        if session is None or session.name != name:
            if name in done:
                raise row.wrong("trace_id", "rows of a session must stand together")
            done.add(name)
            session = _Session(builder, name, Place(row.file, row.line))
        session.add(row)
    warnings: list[str] = []
    if marked:
        warnings.append(f"{marked} requests left out that the file marks as duplicates of a fork")
    return builder.build(name=path.name, source_format=NAME, digest=digest([path]), warnings=warnings)


class _Session:
    """The turns of one session, by their `seq`."""

    def __init__(self, builder: TraceBuilder, name: str, place: Place) -> None:
        self.builder = builder
        self.name = name
        self.session = builder.open_session(name, 0, place)
        self.scope = builder.tree.scope(name)
        self.turn_of: dict[int, int] = {}  # seq → turn
        self.node: list[int] = []
        self.end_ns: list[int] = []
        self.last: dict[str, int] = {}  # agent → its latest turn
        self.running: dict[str, int] = {}  # subagent the main thread has not joined → its latest turn

    def add(self, row: Row) -> None:
        place = Place(row.file, row.line)
        turn = self.builder.turns_in(self.session)
        seq = row.integer("seq")
        if seq in self.turn_of:
            raise row.wrong("seq", "this session has the row already")
        arrival = seconds(row.number("t_s"), row.file, "t_s", row.line)
        service = (
            seconds(row.number("api_time_s"), row.file, "api_time_s", row.line)
            if row.has("api_time_s")
            else None
        )
        node, base = self._node(row, turn)
        agent = row.text("agent")
        after, joined = self._after(agent, arrival)
        if after and not joined and row.has("think_time_s"):
            delay = seconds(row.number("think_time_s"), row.file, "think_time_s", row.line)
        else:
            delay = max(0, arrival - max((self.end_ns[a] for a in after), default=0))
        self.builder.add_turn(
            self.session,
            place,
            input_tokens=row.integer("in_tokens"),
            output_tokens=row.integer("out_tokens"),
            node=node,
            after=after,
            base=base,
            delay_ns=delay,
            arrival_ns=arrival,
            service_ns=service,
            shared_tokens=max(0, row.integer("tool_tokens")) + max(0, row.integer("system_tokens")),
            trigger=_trigger(row.text("input_kind")),
            agent=agent,
        )
        self.turn_of[seq] = turn
        self.node.append(node)
        self.end_ns.append(arrival + (service or 0))
        self.last[agent] = turn
        if agent != "main":
            self.running[agent] = turn

    def _node(self, row: Row, turn: int) -> tuple[int, int | None]:
        parent = row.integer("parent_seq")
        shared = row.integer("shared_blocks64")
        blocks = row.integer("n_blocks64")
        if not 0 <= blocks < MAX_TOKENS:
            raise row.wrong("n_blocks64", f"must be 0 or more and below {MAX_TOKENS}")
        if parent < 0:
            if shared:
                raise row.wrong("shared_blocks64", "a request without a parent shares nothing")
            above, base = NO_NODE, None
        elif parent not in self.turn_of:
            raise row.wrong("parent_seq", "names no earlier row of the session")
        else:
            base = self.turn_of[parent]
            above = self.node[base]
        if not 0 <= shared <= min(blocks, self.builder.tree.depth(above)):
            raise row.wrong("shared_blocks64", "must not exceed the parent's blocks or its own")
        node = self.builder.tree.extend(self.scope, above, kept=shared, fresh=blocks - shared, owner=turn)
        return node, base if shared else None

    def _after(self, agent: str, arrival_ns: int) -> tuple[list[int], bool]:
        """Turns to wait for, and whether the wait cannot be the recorded think time of one of them."""
        if agent in self.last and agent != "main":
            return [self.last[agent]], False
        main = [self.last["main"]] if "main" in self.last else []
        if agent != "main":
            return main, True
        joined = [t for t in self.running.values() if self.end_ns[t] <= arrival_ns + CLOCK_GRAIN_NS]
        self.running = {a: t for a, t in self.running.items() if t not in joined}
        return main + joined, bool(joined)


def _trigger(kind: str) -> Trigger:
    if not kind:
        return Trigger.UNKNOWN
    return Trigger.TOOL if "tool_result" in kind.split("+") else Trigger.USER
