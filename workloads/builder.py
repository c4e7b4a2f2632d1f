"""Fills a Trace one session and one turn at a time, checking each value as it comes."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from workloads.errors import TraceError
from workloads.prefix_tree import NO_NODE
from workloads.trace import NO_CLOCK, UNKNOWN, Header, Tail, Trace, Trigger, Turns
from workloads.tree_builder import TreeBuilder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

MAX_TOKENS: Final = 1 << 31
MAX_NS: Final = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value was read: for the error, if it is a bad one."""

    file: str
    line: int | None = None


class TraceBuilder:
    """Collects turns of any number of sessions in any order; `build` groups them by session.

    prefix_known  False: prompts have lengths only, and their node is -1
    """

    def __init__(self, *, block_size: int, tail: Tail, prefix_known: bool = True) -> None:
        self.block_size = block_size
        self.prefix_known = prefix_known
        self.tail = tail
        self.tree = TreeBuilder(block_size)
        self._session_ids: list[str] = []
        self._session_start = array("q")
        self._session_turns = array("q")
        self._by_id: dict[str, int] = {}
        self._session = array("q")
        self._columns: dict[str, array[int]] = {
            name: array("q")
            for name in (
                "arrival_ns",
                "service_ns",
                "delay_ns",
                "input_tokens",
                "output_tokens",
                "node",
                "base",
                "shared_tokens",
                "trigger",
                "agent",
                "tenant",
                "priority",
            )
        }
        self._after = array("q")
        self._after_start = array("q", [0])
        self._agents: dict[str, int] = {"main": 0}
        self._tenants: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._session)

    def open_session(self, session_id: str, start_ns: int, place: Place) -> int:
        """Index of a new session; an id that is there already is an error."""
        if session_id in self._by_id:
            raise TraceError(
                "this session id is there already; ids must be unique",
                file=place.file,
                line=place.line,
                value=session_id,
            )
        self._by_id[session_id] = len(self._session_ids)
        self._session_ids.append(session_id)
        self._session_start.append(self._time("session start", start_ns, place))
        self._session_turns.append(0)
        return len(self._session_ids) - 1

    def turns_in(self, session: int) -> int:
        """Turns added to a session so far: the index of the next one."""
        return self._session_turns[session]

    def add_turn(
        self,
        session: int,
        place: Place,
        *,
        input_tokens: int,
        output_tokens: int,
        node: int,
        after: Sequence[int],
        base: int | None,
        delay_ns: int,
        arrival_ns: int | None = None,
        service_ns: int | None = None,
        shared_tokens: int = 0,
        trigger: Trigger = Trigger.UNKNOWN,
        agent: str = "main",
        tenant: str | None = None,
        priority: int = 0,
    ) -> int:
        """Append a turn and give its index in the session."""
        turn = self._session_turns[session]
        self._lengths(input_tokens, output_tokens, node, place)
        for name, earlier in (
            *(("after", a) for a in after),
            *((("base", base),) if base is not None else ()),
        ):
            if not 0 <= earlier < turn:
                raise TraceError(
                    f"must name an earlier turn of the session, 0..{turn - 1}",
                    file=place.file,
                    line=place.line,
                    field=name,
                    value=earlier,
                )
        row = {
            "arrival_ns": UNKNOWN if arrival_ns is None else self._time("arrival", arrival_ns, place),
            "service_ns": UNKNOWN if service_ns is None else self._time("service time", service_ns, place),
            "delay_ns": self._time("delay", delay_ns, place),
            "input_tokens": input_tokens,
            "output_tokens": output_tokens,
            "node": node,
            "base": UNKNOWN if base is None else base,
            "shared_tokens": min(shared_tokens, input_tokens),
            "trigger": int(trigger),
            "agent": self._agents.setdefault(agent, len(self._agents)),
            "tenant": UNKNOWN if tenant is None else self._tenants.setdefault(tenant, len(self._tenants)),
            "priority": priority,
        }
        for name, value in row.items():
            self._columns[name].append(value)
        self._after.extend(sorted(set(after)))
        self._after_start.append(len(self._after))
        self._session.append(session)
        self._session_turns[session] = turn + 1
        return turn

    def insert(self, scope: int, ids: NDArray[np.uint64], session_turn: int) -> tuple[int, int | None]:
        """Put a prompt of a session-local scope in the tree: its node, and the earlier turn it continues."""
        node = self.tree.insert(scope, ids, session_turn)
        here = node
        while here >= 0 and self.tree.owner(here) == session_turn:
            here = self.tree.parent(here)
        return node, (self.tree.owner(here) if here >= 0 else None)

    def build(
        self,
        *,
        name: str,
        source_format: str,
        digest: str,
        sessions_known: bool = True,
        warnings: Sequence[str] = (),
    ) -> Trace:
        """The finished trace; without a single turn it is an error."""
        if not len(self):
            raise TraceError("holds no request at all", file=name)
        session = np.array(self._session, np.int64)
        order = np.argsort(session, kind="stable")
        if not self.is_sorted(session):
            columns = {k: np.array(v, np.int64)[order] for k, v in self._columns.items()}
        else:
            columns = {k: np.array(v, np.int64) for k, v in self._columns.items()}
        after_start, after = _reordered(
            np.array(self._after_start, np.int64), np.array(self._after, np.int32), order
        )
        tree, place = self.tree.freeze()
        node = (
            np.where(columns["node"] >= 0, place[columns["node"]], NO_NODE) if len(place) else columns["node"]
        )
        counts = np.array(self._session_turns, np.int64)
        if (counts == 0).any():
            empty = self._session_ids[int(np.flatnonzero(counts == 0)[0])]
            raise TraceError("this session holds no request", file=name, value=empty)
        lines = list(warnings)
        if len(self._session_ids) > 1 and not any(self._session_start):
            lines.append(NO_CLOCK)
        return Trace(
            header=Header(
                name=name,
                format=source_format,
                digest=digest,
                block_size=self.block_size,
                tail=self.tail,
                prefix_known=self.prefix_known,
                sessions_known=sessions_known,
                warnings=tuple(lines),
            ),
            session_ids=tuple(self._session_ids),
            session_start_ns=np.array(self._session_start, np.int64),
            turn_start=np.concatenate(([0], np.cumsum(counts))),
            turns=Turns(
                arrival_ns=columns["arrival_ns"],
                service_ns=columns["service_ns"],
                delay_ns=columns["delay_ns"],
                input_tokens=columns["input_tokens"],
                output_tokens=columns["output_tokens"],
                node=node.astype(np.int32),
                base=columns["base"].astype(np.int32),
                after_start=after_start,
                after=after,
                shared_tokens=columns["shared_tokens"],
                trigger=columns["trigger"].astype(np.int8),
                agent=columns["agent"].astype(np.int32),
                tenant=columns["tenant"].astype(np.int32),
                priority=columns["priority"].astype(np.int32),
            ),
            tree=tree,
            agents=tuple(self._agents),
            tenants=tuple(self._tenants),
        )

    @staticmethod
    def is_sorted(values: NDArray[np.int64]) -> bool:
        return bool((values[1:] >= values[:-1]).all())

    def _lengths(self, input_tokens: int, output_tokens: int, node: int, place: Place) -> None:
        for name, value, least in (("input tokens", input_tokens, 1), ("output tokens", output_tokens, 0)):
            if not least <= value < MAX_TOKENS:
                raise TraceError(
                    f"must be {least}..{MAX_TOKENS - 1}",
                    file=place.file,
                    line=place.line,
                    field=name,
                    value=value,
                )
        if not self.prefix_known:
            return
        blocks = self.tree.depth(node)
        whole, rest = divmod(input_tokens, self.block_size)
        right = whole if self.tail is Tail.WHOLE else whole + (rest > 0)
        if blocks != right:
            rule = "floor" if self.tail is Tail.WHOLE else "ceil"
            raise TraceError(
                f"{input_tokens} input tokens need {rule}(n/{self.block_size}) = {right} block ids",
                file=place.file,
                line=place.line,
                field="block ids",
                value=blocks,
            )

    @staticmethod
    def _time(name: str, value: int, place: Place) -> int:
        if not 0 <= value <= MAX_NS:
            raise TraceError(
                "must be 0 or later, in 64 bits of ns",
                file=place.file,
                line=place.line,
                field=name,
                value=value,
            )
        return value


def _reordered(
    start: NDArray[np.int64], values: NDArray[np.int32], order: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Rows of a CSR array in a new order."""
    sizes = np.diff(start)[order]
    out = np.concatenate(([0], np.cumsum(sizes)))
    take = np.repeat(start[:-1][order] - out[:-1], sizes) + np.arange(int(out[-1]))
    return out, values[take]
