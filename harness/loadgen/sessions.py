"""One session's turns: what becomes due when an answer ends. No I/O, no clock.

A turn is due `delay_ns` after the last of the turns it waits for has ended (end to start, so the
service time is never counted twice); several turns that wait for the same one fan out in parallel.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from workloads.replay import ReplaySession, ReplayTurn


class Due(NamedTuple):
    """A turn and the instant its schedule wants it sent (monotonic ns)."""

    due_ns: int
    turn: ReplayTurn


class SessionTurns:
    """The state of one live session. Illegal calls raise KeyError and change nothing."""

    __slots__ = ("_ended_ns", "_held", "_open", "_turns", "_waiting", "_waiting_for", "started_ns")

    def __init__(self, session: ReplaySession) -> None:
        self._turns = {turn.turn: turn for turn in session.turns}
        self._waiting = {turn.turn: set(turn.after) for turn in session.turns if turn.after}
        self._waiting_for: dict[int, list[int]] = {}
        for turn in session.turns:
            for earlier in turn.after:
                self._waiting_for.setdefault(earlier, []).append(turn.turn)
        self._held: dict[int, int] = {}  # latest end among the turns waited for so far
        self._open: set[int] = set()  # due or on the wire
        self.started_ns = 0

    def start(self, now_ns: int) -> list[Due]:
        """The roots, due at their offsets from the session's start."""
        self.started_ns = now_ns
        roots = [turn for turn in self._turns.values() if not turn.after]
        self._open.update(turn.turn for turn in roots)
        return [Due(now_ns + turn.delay_ns, turn) for turn in roots]

    def ended(self, turn: int, end_ns: int) -> list[Due]:
        """`turn` has its answer: the turns that waited for it alone, or for it last."""
        self._open.remove(turn)
        due: list[Due] = []
        for index in self._waiting_for.get(turn, ()):
            waiting = self._waiting.get(index)
            if waiting is None:
                continue  # abandoned already
            waiting.discard(turn)
            latest = self._held[index] = max(self._held.get(index, 0), end_ns)
            if not waiting:
                del self._waiting[index], self._held[index]
                self._open.add(index)
                due.append(Due(latest + self._turns[index].delay_ns, self._turns[index]))
        return due

    def failed(self, turn: int) -> list[ReplayTurn]:
        """`turn` has no answer: every turn that needs it, directly or not, is abandoned, in order."""
        self._open.remove(turn)
        abandoned: list[ReplayTurn] = []
        reached = [turn]
        while reached:
            for index in self._waiting_for.get(heapq.heappop(reached), ()):
                if self._waiting.pop(index, None) is not None:
                    self._held.pop(index, None)
                    abandoned.append(self._turns[index])
                    heapq.heappush(reached, index)
        return sorted(abandoned, key=lambda abandoned_turn: abandoned_turn.turn)

    def waiting_for(self, turn: int) -> list[ReplayTurn]:
        """The turns that cannot be due before `turn` has ended."""
        return [self._turns[index] for index in self._waiting_for.get(turn, ()) if index in self._waiting]

    @property
    def over(self) -> bool:
        """Nothing is due, on the wire or waiting."""
        return not self._open and not self._waiting

    @property
    def unsent(self) -> int:
        """Turns still waiting for others."""
        return len(self._waiting)
