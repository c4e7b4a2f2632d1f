"""Live sessions, and those to come: their first requests lie ready before they are due."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import quote

from harness.loadgen.reactor import Reactor, now_ns
from harness.loadgen.sessions import SessionTurns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.loadgen.conversation import Conversation
    from harness.loadgen.dialect import Dialect
    from workloads.replay import ReplaySession, ReplayTurn

STAGE_SESSIONS: Final = 4096  # sessions whose first requests lie ready, byte for byte
STAGE_BYTES: Final = 64 << 20
_LOW_WATER: Final = 32  # below this many, staging no longer waits for an idle moment


class Staged(NamedTuple):
    """A request laid out ahead of its instant."""

    request: tuple[bytes, bytes]
    prompt_tokens: int


class Live:
    """One session; `number` is its place in the order of starts."""

    __slots__ = ("conversation", "name", "number", "session", "staged", "turns")

    def __init__(self, number: int, session: ReplaySession, conversation: Conversation) -> None:
        self.number = number
        self.session = session
        self.name = quote(session.session_id, safe="")  # it goes into a header
        self.turns = SessionTurns(session)
        self.conversation = conversation
        self.staged: dict[int, Staged] = {}

    def trace_request(self, turn: ReplayTurn) -> str:
        """Identity of a turn in the trace."""
        return f"{self.name}/{turn.turn}"


class Stage:
    """Sessions to come, in the order of their starts; the first requests of the next ones are laid out."""

    def __init__(
        self, sessions: Sequence[ReplaySession], dialect: Dialect, reactor: Reactor, prefix: str
    ) -> None:
        self._sessions: Final = sessions
        self._dialect: Final = dialect
        self._reactor: Final = reactor
        self._prefix: Final = prefix
        self._ready: deque[Live] = deque()
        self._ready_bytes = 0
        self._next = 0
        self._idling = False

    @property
    def empty(self) -> bool:
        return not self._ready and self._next == len(self._sessions)

    @property
    def unsent(self) -> int:
        """Turns of all sessions that were never taken."""
        ready = sum(len(live.session.turns) for live in self._ready)
        return ready + sum(len(session.turns) for session in self._sessions[self._next :])

    def fill(self, until_ns: int) -> None:
        """Lay out as many sessions as room and time (until `until_ns`) allow."""
        while self._room() and now_ns() < until_ns:
            self._lay_out_next()

    def next_start_ns(self) -> int:
        """Offset of the next session from the run's start. Not when empty."""
        if not self._ready:
            self._lay_out_next()
        return self._ready[0].session.start_ns

    def take(self) -> Live:
        """The next session. Not when empty."""
        if not self._ready:
            self._lay_out_next()
        live = self._ready.popleft()
        self._ready_bytes -= _body_bytes(live)
        return live

    def refill(self) -> None:
        """Lay out the next one: in an idle moment, or at once when few lie ready."""
        if not self._room():
            return
        if len(self._ready) < _LOW_WATER:
            self._lay_out_next()
        elif not self._idling:
            self._idling = self._reactor.when_idle(self._idle)

    def lay_out(self, live: Live, turn: ReplayTurn) -> None:
        """Write the turn's request; what it builds on must have been answered."""
        prompt = live.conversation.compose(turn)
        name = live.trace_request(turn)
        request = self._dialect.request(
            self._prefix + name, live.session.session_id, name, prompt, turn.output_tokens
        )
        live.staged[turn.turn] = Staged(request, prompt.tokens)

    def _room(self) -> bool:
        return (
            self._next < len(self._sessions)
            and len(self._ready) < STAGE_SESSIONS
            and self._ready_bytes < STAGE_BYTES
        )

    def _idle(self) -> None:
        self._idling = False
        if self._room():
            self._lay_out_next()
            self._idling = self._reactor.when_idle(self._idle)

    def _lay_out_next(self) -> None:
        session = self._sessions[self._next]
        live = Live(self._next, session, self._dialect.conversation(session))
        self._next += 1
        for turn in session.turns:
            if not turn.after:
                self.lay_out(live, turn)
        self._ready_bytes += _body_bytes(live)
        self._ready.append(live)


def _body_bytes(live: Live) -> int:
    return sum(len(staged.request[1]) for staged in live.staged.values())
