"""Trace, session and turn: the one model that every reader fills and every consumer reads.

The columns (`Trace`) are what is computed on; `Session` and `Turn` are views of one row for people and
for code off the hot path. Instants are nanoseconds from the trace's start, lengths are tokens.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from workloads.targets import Targets

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from workloads.prefix_tree import PrefixTree

NO_CLOCK: Final = "sessions carry no common clock: every one starts at 0 until arrivals are set"
MOST_S: Final = 1e9  # longest time that can be asked for; instants are nanoseconds in 64 bits
UNKNOWN: Final = -1  # in columns: not told by the trace (times, base, node, names)


class Trigger(enum.IntEnum):
    """What made the client send a turn."""

    UNKNOWN = 0
    USER = 1
    TOOL = 2


class Tail(enum.StrEnum):
    """Whether the last, partly filled block of a prompt has an id."""

    WHOLE = "whole"  # only full blocks have one: count = floor(tokens / block_size)
    PARTIAL = "partial"  # the partly filled one too: count = ceil(tokens / block_size)


@dataclass(frozen=True, slots=True)
class Header:
    """What holds for the whole trace.

    prefix_known  False: the format tells lengths only, so no hit rate can be stated
    sessions_known False: every request stands alone (Mooncake, Azure)
    gap_cap_ns    waits above this were cut to it, by the source or by a transformation; None: not cut
    copies        how often the same sessions stand in it, each time with ids of their own
    digest        sha256 of the source's bytes, or of the parameters that generated it
    targets       figures it was generated to have
    warnings      what a reader of the figures has to know, one line each
    """

    name: str
    format: str
    digest: str
    block_size: int
    tail: Tail
    prefix_known: bool = True
    sessions_known: bool = True
    gap_cap_ns: int | None = None
    token_scale: float = 1.0
    time_scale: float = 1.0
    copies: int = 1
    targets: Targets | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Turn:
    """One request of a session, as a view."""

    turn: int
    after: tuple[int, ...]  # turns of the session that must have ended before
    delay_ns: int  # think or tool time after the last of them; for roots: from the session's start
    arrival_ns: int | None  # recorded instant
    service_ns: int | None  # recorded duration of the answer
    base: int | None  # turn whose context this one continues
    input_tokens: int
    output_tokens: int
    new_tokens: int  # prompt tokens not shared with the base's prompt, by blocks
    block_ids: NDArray[np.uint64]
    scopes: tuple[str, ...]  # scope of each node of the path, root first
    trigger: Trigger
    agent: str
    tenant: str | None
    priority: int


@dataclass(frozen=True, slots=True)
class Session:
    """One conversation: a tree of turns with waits between them."""

    session_id: str
    start_ns: int
    turns: tuple[Turn, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Turns:
    """Columns of T turns, grouped by session and in the session's order.

    `after` and `base` count within the session. shared_tokens is the leading part (tools and system
    prompt) that other sessions are said to send too, without the ids saying so.
    """

    arrival_ns: NDArray[np.int64]
    service_ns: NDArray[np.int64]
    delay_ns: NDArray[np.int64]
    input_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]
    node: NDArray[np.int32]
    base: NDArray[np.int32]
    after_start: NDArray[np.int64]  # T + 1 offsets into `after`
    after: NDArray[np.int32]
    shared_tokens: NDArray[np.int64]
    trigger: NDArray[np.int8]
    agent: NDArray[np.int32]
    tenant: NDArray[np.int32]
    priority: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.input_tokens)


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """A whole trace: S sessions, T turns, one prefix tree."""

    header: Header
    session_ids: tuple[str, ...]
    session_start_ns: NDArray[np.int64]
    turn_start: NDArray[np.int64]  # S + 1 offsets: turns of session s are turn_start[s]:turn_start[s + 1]
    turns: Turns
    tree: PrefixTree
    agents: tuple[str, ...] = field(default=("main",))
    tenants: tuple[str, ...] = field(default=())

    def __len__(self) -> int:
        return len(self.turns)

    @property
    def session_of(self) -> NDArray[np.int64]:
        """Session index of each turn: int64[T]."""
        return np.repeat(np.arange(len(self.session_ids)), np.diff(self.turn_start))

    @property
    def base_turn(self) -> NDArray[np.int64]:
        """Global index of each turn's base, -1 for none: int64[T]."""
        first = np.repeat(self.turn_start[:-1], np.diff(self.turn_start))
        return np.where(self.turns.base >= 0, first + self.turns.base, UNKNOWN)

    def send_rank(self) -> NDArray[np.int64]:
        """Place of each turn in the order of recorded sends, ties in the trace's order: int64[T]."""
        at = np.where(
            self.turns.arrival_ns >= 0, self.turns.arrival_ns, self.session_start_ns[self.session_of]
        )
        rank = np.empty(len(self), np.int64)
        rank[np.argsort(at, kind="stable")] = np.arange(len(self))
        return rank

    def hit_tokens(self, blocks: NDArray[np.integer]) -> NDArray[np.int64]:
        """Tokens of each turn's prompt that its first `blocks` blocks hold."""
        return np.minimum(np.asarray(blocks, np.int64) * self.header.block_size, self.turns.input_tokens)

    def session(self, index: int) -> Session:
        """One session as a view."""
        lo, hi = int(self.turn_start[index]), int(self.turn_start[index + 1])
        return Session(
            session_id=self.session_ids[index],
            start_ns=int(self.session_start_ns[index]),
            turns=tuple(self._turn(lo, i) for i in range(lo, hi)),
        )

    def sessions(self) -> Iterator[Session]:
        """Every session as a view, one at a time."""
        return (self.session(i) for i in range(len(self.session_ids)))

    def warned(self, *lines: str) -> Trace:
        """The same trace with these lines added to its warnings."""
        new = tuple(line for line in lines if line not in self.header.warnings)
        return replace(self, header=replace(self.header, warnings=self.header.warnings + new))

    def _turn(self, first: int, i: int) -> Turn:
        t = self.turns
        base = int(t.base[i])
        node = int(t.node[i])
        shared = 0
        if base >= 0:
            shared = int(
                self.tree.common_depth(t.node[first + base : first + base + 1], t.node[i : i + 1])[0]
            )
        tokens = int(t.input_tokens[i])
        tenant = int(t.tenant[i])
        return Turn(
            turn=i - first,
            after=tuple(int(a) for a in t.after[t.after_start[i] : t.after_start[i + 1]]),
            delay_ns=int(t.delay_ns[i]),
            arrival_ns=_told(int(t.arrival_ns[i])),
            service_ns=_told(int(t.service_ns[i])),
            base=_told(base),
            input_tokens=tokens,
            output_tokens=int(t.output_tokens[i]),
            new_tokens=tokens - min(shared * self.header.block_size, tokens),
            block_ids=self.tree.path_ids(node),
            scopes=tuple(self.tree.scopes[self.tree.scope[n]] for n in self.tree.path(node)),
            trigger=Trigger(int(t.trigger[i])),
            agent=self.agents[t.agent[i]],
            tenant=None if tenant < 0 else self.tenants[tenant],
            priority=int(t.priority[i]),
        )


def _told(value: int) -> int | None:
    return None if value < 0 else value
