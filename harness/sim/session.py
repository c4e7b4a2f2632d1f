"""Sessions as the simulator replays them: lengths and lineage, no token ids.

`workloads.replay_plan.ReplaySession` and `ReplayTurn` satisfy these protocols as they are; generated
workloads at scale use `PlainTurn` and `PlainSession`, which hold nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

_NO_LIMIT: Final = 1 << 62


class Turn(Protocol):
    """One request; see workloads.replay_plan.ReplayTurn for the meaning of the fields."""

    @property
    def turn(self) -> int: ...
    @property
    def after(self) -> tuple[int, ...]: ...
    @property
    def delay_ns(self) -> int: ...
    @property
    def arrival_ns(self) -> int | None: ...
    @property
    def base(self) -> int | None: ...
    @property
    def kept_tokens(self) -> int: ...
    @property
    def keeps_answer(self) -> bool: ...
    @property
    def base_output_tokens(self) -> int: ...
    @property
    def new_tokens(self) -> int: ...
    @property
    def output_tokens(self) -> int: ...
    @property
    def expected_hit_tokens(self) -> int: ...
    @property
    def tenant(self) -> str | None: ...
    @property
    def prompt_tokens(self) -> int: ...


class Session(Protocol):
    """`turns[i].turn == i`; shared_prefix names the head shared with other sessions, and its tokens."""

    @property
    def session_id(self) -> str: ...
    @property
    def start_ns(self) -> int: ...
    @property
    def turns(self) -> Sequence[Turn]: ...
    @property
    def shared_prefix(self) -> tuple[str, int] | None: ...


class PlainTurn(NamedTuple):
    """A turn without ids. One whose `output_tokens` are 0 is never sent: context from before the run."""

    turn: int
    prompt_tokens: int
    output_tokens: int
    base: int | None = None
    kept_tokens: int = 0
    keeps_answer: bool = False
    base_output_tokens: int = 0
    delay_ns: int = 0
    after: tuple[int, ...] = ()
    arrival_ns: int | None = None
    expected_hit_tokens: int = 0
    tenant: str | None = None

    @property
    def new_tokens(self) -> int:
        return self.prompt_tokens - self.kept_tokens - self.base_output_tokens


class PlainSession(NamedTuple):
    """A session without ids."""

    session_id: str
    start_ns: int
    turns: tuple[PlainTurn, ...]
    shared_prefix: tuple[str, int] | None = None


def common_tokens(session: Session, one: int, other: int) -> int:
    """Leading tokens that the contexts (prompt and answer) of two turns have in common."""
    turns = session.turns
    if one == other:
        turn = turns[one]
        return turn.prompt_tokens + turn.output_tokens
    limit = _NO_LIMIT
    while one != other:
        if one < other:
            one, other = other, one
        turn = turns[one]
        base = turn.base
        if base is None:
            return min(limit, session.shared_prefix[1] if session.shared_prefix else 0)
        kept = turn.kept_tokens + turn.base_output_tokens
        if kept < limit:
            limit = kept
        one = base
    return limit


def head_tokens(session: Session, turn: int) -> int:
    """Leading tokens of a turn's context that are the head shared with other sessions."""
    if session.shared_prefix is None:
        return 0
    limit = session.shared_prefix[1]
    it = session.turns[turn]
    while it.base is not None:
        limit = min(limit, it.kept_tokens + it.base_output_tokens)
        it = session.turns[it.base]
    return min(limit, it.prompt_tokens)
