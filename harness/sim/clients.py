"""The clients: sessions start on time, turns follow their answers. The same semantics as a live replay.

A turn is due `delay_ns` after the last of the turns it waits for has ended; a failed turn takes those
that need it with it. Sessions come from an iterator in order of start: a run holds only live ones.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from harness.sim.event_queue import EventQueue
from harness.sim.session import Session, Turn


class Pace(enum.StrEnum):
    """When sessions start and turns are due."""

    OPEN = "open"
    """Sessions at their own instants, turns after their answers."""
    CLOSED = "closed"
    """So many live sessions at any time."""
    EVERY_TURN = "every_turn"
    """Every turn at its recorded instant, never before the answers it builds on."""


class Load(msgspec.Struct, frozen=True):
    """How sessions are replayed. Nothing is sent at or after `stop_ns`; what is under way then ends."""

    pace: Pace = Pace.OPEN
    live_sessions: int = 1
    """CLOSED only."""
    stop_ns: int | None = None
    warmup_ns: int = 0
    warmup_sessions: int = 0


class LiveSession(msgspec.Struct, eq=False):
    """State of one live session: what waits, and what has been sent."""

    number: int
    session: Session
    waiting: dict[int, set[int]]
    followers: dict[int, list[int]]
    open_turns: int = 0


class Clients:
    """`send(live, turn, due_ns)` is called at the instant a turn is due."""

    def __init__(
        self,
        queue: EventQueue,
        sessions: Iterator[Session],
        load: Load,
        send: Callable[[LiveSession, Turn], None],
        abandon: Callable[[LiveSession, Turn, str], None],
    ) -> None:
        self._queue: Final = queue
        self._sessions: Final = sessions
        self._load: Final = load
        self._send: Final = send
        self._abandon: Final = abandon
        self._number = 0
        self._stopped = False
        self.unsent = 0
        """Turns that were not due before the end of the run."""
        self.live = 0

    def start(self) -> None:
        if self._load.pace is Pace.CLOSED:
            for _ in range(self._load.live_sessions):
                self._queue.at(0, self._next_closed, None)
        else:
            self._await_next()

    def warmup(self, live: LiveSession, due_ns: int) -> bool:
        """Whether the request belongs to the warm-up."""
        return due_ns < self._load.warmup_ns or live.number < self._load.warmup_sessions

    def ended(self, live: LiveSession, turn: int, *, ok: bool) -> None:
        """The answer of `turn` is complete, or will never come."""
        live.open_turns -= 1
        if ok:
            now_ns = self._queue.now_ns
            for follower in live.followers.get(turn, ()):
                waiting = live.waiting.get(follower)
                if waiting is None:
                    continue
                waiting.discard(turn)
                if not waiting:
                    del live.waiting[follower]
                    following = live.session.turns[follower]
                    self._schedule(live, following, now_ns)
        else:
            self._fail(live, turn)
        self._check_over(live)

    # ------------------------------------------------------------------ sessions

    def _await_next(self) -> None:
        session = next(self._sessions, None)
        if session is not None:
            self._queue.at(session.start_ns, self._start, session)

    def _start(self, session: Session) -> None:
        self._begin(session)
        self._await_next()

    def _next_closed(self, _: None) -> None:
        if self._past_end(self._queue.now_ns):
            return
        session = next(self._sessions, None)
        if session is not None:
            self._begin(session)

    def _begin(self, session: Session) -> None:
        now_ns = self._queue.now_ns
        if self._past_end(now_ns):
            self.unsent += len(session.turns)
            return
        followers: dict[int, list[int]] = {}
        waiting: dict[int, set[int]] = {}
        for turn in session.turns:
            if turn.after:
                waiting[turn.turn] = set(turn.after)
                for earlier in turn.after:
                    followers.setdefault(earlier, []).append(turn.turn)
        live = LiveSession(self._number, session, waiting, followers)
        self._number += 1
        self.live += 1
        for turn in session.turns:
            if not turn.after and turn.output_tokens:  # without an answer: context from before the run
                self._schedule(live, turn, now_ns)
        self._check_over(live)

    def _schedule(self, live: LiveSession, turn: Turn, base_ns: int) -> None:
        due_ns = base_ns + turn.delay_ns
        if self._load.pace is Pace.EVERY_TURN and turn.arrival_ns is not None:
            due_ns = max(turn.arrival_ns, base_ns if turn.after else 0)
        if self._past_end(due_ns):
            self.unsent += 1 + len(self._needing(live, turn.turn))
            return
        live.open_turns += 1
        self._queue.at(due_ns, self._due, (live, turn))

    def _due(self, argument: tuple[LiveSession, Turn]) -> None:
        self._send(*argument)

    def _past_end(self, at_ns: int) -> bool:
        return self._load.stop_ns is not None and at_ns >= self._load.stop_ns

    def _fail(self, live: LiveSession, turn: int) -> None:
        for needing in self._needing(live, turn):
            self._abandon(live, live.session.turns[needing], "an earlier turn of the session failed")

    def _needing(self, live: LiveSession, turn: int) -> list[int]:
        """Turns that can no longer be sent because `turn` is not; they stop waiting."""
        found: list[int] = []
        reached = [turn]
        while reached:
            for follower in live.followers.get(reached.pop(), ()):
                if live.waiting.pop(follower, None) is not None:
                    found.append(follower)
                    reached.append(follower)
        return sorted(found)

    def _check_over(self, live: LiveSession) -> None:
        if live.open_turns or live.waiting:
            return
        self.live -= 1
        if self._load.pace is Pace.CLOSED:
            self._queue.at(self._queue.now_ns, self._next_closed, None)
