"""Small plans for tests: the workloads contract's shapes, made by hand."""

from __future__ import annotations

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class Turn:
    turn: int
    new_tokens: int
    output_tokens: int
    after: tuple[int, ...] = ()
    delay_ns: int = 0
    arrival_ns: int | None = None
    base: int | None = None
    kept_tokens: int = 0
    keeps_answer: bool = False
    expected_hit_tokens: int = 0
    tenant: str | None = None
    prompt_tokens: int = 0

    def new_ids(self) -> np.ndarray:
        return np.arange(self.turn * 100 + 1, self.turn * 100 + 1 + self.new_tokens, dtype=np.uint32)


@dataclasses.dataclass(frozen=True)
class Session:
    session_id: str
    start_ns: int
    turns: tuple[Turn, ...]


def one_turn_sessions(starts_ns, *, new_tokens: int = 8, output_tokens: int = 4) -> list[Session]:
    return [
        Session(f"s{number}", int(start), (Turn(0, new_tokens, output_tokens, arrival_ns=int(start)),))
        for number, start in enumerate(starts_ns)
    ]


def chained(
    session_id: str, turns: int, *, start_ns: int = 0, delay_ns: int = 0, output_tokens: int = 4
) -> Session:
    """Each turn continues the one before with its live answer."""
    first = Turn(0, 8, output_tokens)
    rest = (
        Turn(
            index,
            3,
            output_tokens,
            after=(index - 1,),
            delay_ns=delay_ns,
            base=index - 1,
            kept_tokens=10**6,
            keeps_answer=True,
        )
        for index in range(1, turns)
    )
    return Session(session_id, start_ns, (first, *rest))
