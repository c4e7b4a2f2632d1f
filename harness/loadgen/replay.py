"""Replays one shard's sessions: what is due is sent, what ended makes the next turns due, all is recorded.

Everything here runs in callbacks of the reactor. Session starts are open-loop on the absolute schedule
`t0 + start`; the turns of a session are closed-loop unless the job says `every_turn`.
"""

from __future__ import annotations

import hashlib
from collections import deque
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import quote

from harness.loadgen.conversation import Conversation, ConversationError
from harness.loadgen.exchange import Exchange, Status
from harness.loadgen.frames import RequestRow
from harness.loadgen.job import ClosedLoop, EveryTurn
from harness.loadgen.reactor import Reactor, Timer, now_ns
from harness.loadgen.sessions import Due, SessionTurns

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from harness.loadgen.client import Client
    from harness.loadgen.dialect import Dialect
    from harness.loadgen.instrument import Instrument
    from harness.loadgen.job import Cancellation, LoadJob
    from harness.loadgen.reply import Reply
    from harness.loadgen.tally import Tally
    from workloads.replay import ReplaySession, ReplayTurn

STAGE_SESSIONS: Final = 4096  # sessions whose first requests lie ready, byte for byte
STAGE_BYTES: Final = 64 << 20
_LOW_WATER: Final = 32  # below this many, staging no longer waits for an idle moment
_NO_TIME: Final = 1 << 62


class Staged(NamedTuple):
    """A request laid out ahead of its instant."""

    request: tuple[bytes, bytes]
    prompt_tokens: int


class Live:
    """One session from the moment its first requests are laid out to its last answer."""

    __slots__ = ("conversation", "name", "number", "session", "staged", "turns")

    def __init__(self, number: int, session: ReplaySession, conversation: Conversation) -> None:
        self.number = number
        self.session = session
        self.name = quote(session.session_id, safe="")  # it goes into a header
        self.turns = SessionTurns(session)
        self.conversation = conversation
        self.staged: dict[int, Staged] = {}


class Assignment(NamedTuple):
    """Which part of the run this process does."""

    shard: str
    live_sessions: int | None  # closed loop: this shard's share
    warmup_sessions: int


class Replay:
    """One run of one shard. `on_over` is called once, when nothing is on the wire and nothing will be."""

    def __init__(
        self,
        job: LoadJob,
        assignment: Assignment,
        sessions: Sequence[ReplaySession],
        *,
        dialect: Dialect,
        reactor: Reactor,
        client: Client,
        instrument: Instrument,
        tally: Tally,
        on_row: Callable[[RequestRow], None],
        on_over: Callable[[], None],
    ) -> None:
        self._job: Final = job
        self._assignment: Final = assignment
        self._sessions: Final = sessions
        self._dialect: Final = dialect
        self._reactor: Final = reactor
        self._client: Final = client
        self._instrument: Final = instrument
        self._tally: Final = tally
        self._on_row: Final = on_row
        self._on_over: Final = on_over
        self._every_turn: Final = isinstance(job.arrivals, EveryTurn)
        self._closed: Final = isinstance(job.arrivals, ClosedLoop)
        self._warmup_ns: Final = round(job.warmup.seconds * 1e9)
        self._prefix: Final = f"{job.cell}/{job.rep}/"
        self._staged: deque[Live] = deque()
        self._staged_bytes = 0
        self._next_to_stage = 0
        self._staging = False
        self._t0_ns = 0
        self._stop_ns = _NO_TIME
        self._stopping = False
        self._over = False
        self._timers: set[Timer] = set()
        self._unsent_due = 0
        self._live: set[Live] = set()
        self.first_sent_ns: int | None = None
        self.kernel_stamps = True
        tally.planned_sessions = len(sessions)
        tally.planned_requests = sum(len(session.turns) for session in sessions)

    # -- starting sessions -----------------------------------------------------------------------------

    def stage_ahead(self, until_ns: int) -> None:
        """Lay out the first requests of as many sessions as room and time (until `until_ns`) allow."""
        while self._room_to_stage() and now_ns() < until_ns:
            self._stage_next()

    def start(self, t0_ns: int) -> None:
        """Begin: offsets of the plan count from `t0_ns` (monotonic)."""
        self._t0_ns = t0_ns
        if self._job.limits.duration_s is not None:
            self._stop_ns = t0_ns + round(self._job.limits.duration_s * 1e9)
            self._reactor.call_at(self._stop_ns, self.stop)
        if self._closed:
            assert self._assignment.live_sessions is not None
            self._reactor.call_at(t0_ns, lambda: self._start_live(self._assignment.live_sessions or 0))
        else:
            self._await_next_start()

    def _start_live(self, sessions: int) -> None:
        for _ in range(sessions):
            self._start_session(self._t0_ns)

    def _await_next_start(self) -> None:
        if self._stopping:
            return
        if not self._staged:
            if self._next_to_stage == len(self._sessions):
                self._check_over()
                return
            self._stage_next()
        start_ns = self._t0_ns + self._staged[0].session.start_ns
        self._timer(start_ns, lambda: self._start_due(start_ns))

    def _start_due(self, start_ns: int) -> None:
        self._start_session(start_ns)
        self._await_next_start()

    def _start_session(self, start_ns: int) -> None:
        if not self._staged and self._next_to_stage < len(self._sessions):
            self._stage_next()
        if not self._staged or self._stopping:
            return
        live = self._staged.popleft()
        self._staged_bytes -= sum(len(staged.request[1]) for staged in live.staged.values())
        self._live.add(live)
        self._tally.started_sessions += 1
        self._tally.live_sessions += 1
        for due in live.turns.start(start_ns):
            self._schedule(live, self._recorded(due))
        if self._room_to_stage():
            if len(self._staged) < _LOW_WATER:
                self._stage_next()
            elif not self._staging:
                self._staging = self._reactor.when_idle(self._stage_idly)

    def _room_to_stage(self) -> bool:
        return (
            self._next_to_stage < len(self._sessions)
            and len(self._staged) < STAGE_SESSIONS
            and self._staged_bytes < STAGE_BYTES
        )

    def _stage_idly(self) -> None:
        self._staging = False
        if self._room_to_stage() and not self._stopping:
            self._stage_next()
            self._staging = self._reactor.when_idle(self._stage_idly)

    def _stage_next(self) -> None:
        number = self._next_to_stage
        self._next_to_stage += 1
        session = self._sessions[number]
        live = Live(number, session, self._dialect.conversation(session))
        for turn in session.turns:
            if not turn.after:
                self._stage(live, turn)
        self._staged_bytes += sum(len(staged.request[1]) for staged in live.staged.values())
        self._staged.append(live)

    def _stage(self, live: Live, turn: ReplayTurn) -> None:
        prompt = live.conversation.compose(turn)
        name = f"{live.name}/{turn.turn}"
        request = self._dialect.request(
            self._prefix + name, live.session.session_id, name, prompt, turn.output_tokens
        )
        live.staged[turn.turn] = Staged(request, prompt.tokens)

    # -- sending turns ---------------------------------------------------------------------------------

    def _recorded(self, due: Due) -> Due:
        """With every turn open-loop the recorded instant counts, unless an answer it builds on is later."""
        if not self._every_turn or due.turn.arrival_ns is None:
            return due
        possible_ns = due.due_ns - due.turn.delay_ns
        recorded_ns = self._t0_ns + due.turn.arrival_ns
        if due.turn.after and possible_ns > recorded_ns:
            self._tally.held += 1
            return Due(possible_ns, due.turn)
        return Due(recorded_ns, due.turn)

    def _schedule(self, live: Live, due: Due) -> None:
        """Send at the due instant; what can be done before it is done now."""
        if self._stopping or due.due_ns >= self._stop_ns:
            self._unsent_due += 1
            self._drop(live, due.turn)
            return
        if due.turn.turn not in live.staged:
            try:
                self._stage(live, due.turn)
            except ConversationError as error:
                self._abandon(live, due.turn, due.due_ns, str(error))
                return
        if due.due_ns <= now_ns():
            self._send(live, due)
        else:
            self._timer(due.due_ns, lambda: self._send(live, due))

    def _timer(self, due_ns: int, callback: Callable[[], None]) -> None:
        def fire() -> None:
            self._timers.discard(timer)
            callback()

        timer = self._reactor.call_at(due_ns, fire)
        self._timers.add(timer)

    def _send(self, live: Live, due: Due) -> None:
        if self._stopping:
            self._unsent_due += 1
            self._drop(live, due.turn)
            return
        turn = due.turn
        staged = live.staged.pop(turn.turn)
        plan = self._cancellation(live, turn)
        exchange = Exchange(
            staged.request,
            lambda ended: self._ended(live, due, staged.prompt_tokens, ended),
            cancel_tokens=plan.after_tokens if plan else None,
        )
        self._client.send(exchange)
        self._tally.sent += 1
        if live.turns.waiting_for(turn.turn):
            self._reactor.when_idle(lambda: self._prepare_after(live, turn.turn))
        if plan is not None and plan.after_s is not None:
            self._reactor.call_at(
                due.due_ns + round(plan.after_s * 1e9),
                lambda: self._client.give_up(exchange, Status.CANCELLED),
            )

    @staticmethod
    def _prepare_after(live: Live, turn: int) -> None:
        """Lay out what does not depend on the answer; turns due meanwhile need it no more."""
        for following in live.turns.waiting_for(turn):
            live.conversation.prepare(following)

    def _cancellation(self, live: Live, turn: ReplayTurn) -> Cancellation | None:
        plan = self._job.cancellation
        if plan is None:
            return None
        draw = hashlib.blake2b(f"{self._job.seed}/{live.name}/{turn.turn}/cancel".encode(), digest_size=8)
        return plan if int.from_bytes(draw.digest(), "little") < plan.share * 2.0**64 else None

    # -- answers ---------------------------------------------------------------------------------------

    def _ended(self, live: Live, due: Due, prompt_tokens: int, exchange: Exchange) -> None:
        self._client.settled(exchange)
        turn = due.turn
        status = exchange.status
        assert status is not None
        error = exchange.error
        continues = status in {Status.OK, Status.CANCELLED}
        if continues:
            try:
                live.conversation.answer(turn.turn, exchange.reply)
            except ConversationError as problem:
                continues = False
                error = error or str(problem)
        if continues:
            for following in live.turns.ended(turn.turn, exchange.end_ns):
                self._schedule(live, self._recorded(following))
        else:
            self._fail(live, turn, exchange.end_ns)
        self._record(live, due, prompt_tokens, exchange, error)
        self._check_session(live)

    def _fail(self, live: Live, turn: ReplayTurn, at_ns: int) -> None:
        """The turns that need this one's answer are counted, not silently gone."""
        for abandoned in live.turns.failed(turn.turn):
            live.conversation.forget(abandoned)
            if self._stopping:
                self._unsent_due += 1
            else:
                self._record_unsent(live, abandoned, at_ns, "an earlier turn of the session failed")

    def _abandon(self, live: Live, turn: ReplayTurn, due_ns: int, error: str) -> None:
        self._record_unsent(live, turn, due_ns, error)
        self._fail(live, turn, due_ns)
        self._check_session(live)

    def _drop(self, live: Live, turn: ReplayTurn) -> None:
        """The run ended before the turn was due: it and what follows are not part of it."""
        live.staged.pop(turn.turn, None)
        self._unsent_due += len(live.turns.failed(turn.turn))
        self._check_session(live)

    def _check_session(self, live: Live) -> None:
        if live.turns.over and live in self._live:
            self._live.discard(live)
            self._tally.live_sessions -= 1
            if self._closed and not self._stopping:
                # From the loop: a server that refuses everything would recurse through the whole plan.
                now = now_ns()
                self._timer(now, lambda: self._start_session(now))
            self._check_over()

    # -- ending ----------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Send nothing more; what is on the wire has `drain_s` to end."""
        if self._stopping:
            return
        self._stopping = True
        for timer in list(self._timers):
            callback = timer.callback
            timer.cancel()
            if callback is not None:
                callback()  # sees that the run is stopping, and drops its turn
        self._timers.clear()
        if self._client.in_flight:
            limit_ns = now_ns() + round(self._job.limits.drain_s * 1e9)
            self._reactor.call_at(limit_ns, self.cut)
        self._check_over()

    def cut(self) -> None:
        """Give up what is on the wire, now."""
        self._stopping = True
        self._client.give_up_all(Status.UNFINISHED, "cut off by the end of the run")
        self._check_over()

    @property
    def not_sent(self) -> int:
        """Turns that the end of the run came before: of started sessions, and of those never started."""
        never = sum(len(live.session.turns) for live in self._staged)
        never += sum(len(session.turns) for session in self._sessions[self._next_to_stage :])
        return self._unsent_due + never

    def _check_over(self) -> None:
        if self._over or self._live or self._client.in_flight:
            return
        if self._stopping or (not self._staged and self._next_to_stage == len(self._sessions)):
            self._over = True
            self._on_over()

    # -- records ---------------------------------------------------------------------------------------

    def _record(
        self, live: Live, due: Due, prompt_tokens: int, exchange: Exchange, error: str | None
    ) -> None:
        reply = exchange.reply
        sent_ns = exchange.sent_ns
        epoch = self._client.clock.anchor.offset_ns
        stamps = reply.token_stamps
        status = exchange.status
        assert status is not None
        offsets: list[int] | None = None
        if sent_ns is not None:
            lateness_ns = sent_ns - due.due_ns - (exchange.connect_ns or 0)
            self._instrument.sent_late(lateness_ns)
            if self.first_sent_ns is None or sent_ns < self.first_sent_ns:
                self.first_sent_ns = sent_ns
            if reply.exact:
                offsets = [stamp - sent_ns for stamp in stamps]
        if self._dialect.secret is not None and error is not None:
            error = error.replace(self._dialect.secret, "[key]")
        turn = due.turn
        tally = self._tally
        output_tokens = reply.output_tokens if exchange.http_status == 200 else None
        tally.count_end(status, error)
        tally.output_tokens += output_tokens or 0
        tally.prompt_tokens += prompt_tokens
        tally.token_events += len(stamps)
        tally.merged_reads += reply.merged_reads
        if stamps and sent_ns is not None:
            tally.ttft.add(stamps[0] - sent_ns)
            tally.e2e.add(stamps[-1] - sent_ns)
            if self._job.web is not None:
                _count_gaps(tally, reply)
        self.kernel_stamps = self.kernel_stamps and (exchange.kernel or exchange.first_byte_ns is None)

        def at(instant_ns: int | None) -> int | None:
            return None if instant_ns is None else instant_ns + epoch

        name = f"{live.name}/{turn.turn}"
        self._on_row(
            RequestRow(
                request_id=self._prefix + name,
                trace_request=name,
                session_id=live.session.session_id,
                turn=turn.turn,
                tenant=turn.tenant,
                phase=self._phase(live, due.due_ns),
                intended_ns=due.due_ns + epoch,
                sent_ns=at(sent_ns),
                connect_ns=exchange.connect_ns,
                first_byte_ns=at(exchange.first_byte_ns),
                first_token_ns=at(stamps[0] if stamps else None),
                first_output_ns=at(reply.first_output_ns),
                last_token_ns=at(stamps[-1] if stamps else None),
                end_ns=exchange.end_ns + epoch,
                prompt_tokens=prompt_tokens if reply.prompt_tokens is None else reply.prompt_tokens,
                requested_tokens=turn.output_tokens,
                output_tokens=output_tokens,
                cached_tokens=reply.cached_tokens,
                expected_cached_tokens=turn.expected_hit_tokens,
                token_offsets_ns=offsets,
                output_ids=_ids(reply),
                status=status,
                error=error,
                http_status=exchange.http_status,
                clock_source="kernel" if exchange.kernel and self._client.clock.kernel else "user",
                merged_reads=reply.merged_reads,
                retries=exchange.retries,
                shard=self._assignment.shard,
            )
        )

    def _record_unsent(self, live: Live, turn: ReplayTurn, at_ns: int, error: str) -> None:
        name = f"{live.name}/{turn.turn}"
        instant_ns = at_ns + self._client.clock.anchor.offset_ns
        self._tally.count_end(Status.UNFINISHED, error)
        self._on_row(
            RequestRow(
                request_id=self._prefix + name,
                trace_request=name,
                session_id=live.session.session_id,
                turn=turn.turn,
                tenant=turn.tenant,
                phase=self._phase(live, at_ns),
                intended_ns=instant_ns,
                sent_ns=None,
                connect_ns=None,
                first_byte_ns=None,
                first_token_ns=None,
                first_output_ns=None,
                last_token_ns=None,
                end_ns=instant_ns,
                prompt_tokens=turn.prompt_tokens,
                requested_tokens=turn.output_tokens,
                output_tokens=None,
                cached_tokens=None,
                expected_cached_tokens=turn.expected_hit_tokens,
                token_offsets_ns=None,
                output_ids=None,
                status=Status.UNFINISHED,
                error=error,
                http_status=None,
                clock_source="user",
                merged_reads=0,
                retries=0,
                shard=self._assignment.shard,
            )
        )

    def _phase(self, live: Live, due_ns: int) -> str:
        early = due_ns - self._t0_ns < self._warmup_ns
        return "warmup" if early or live.number < self._assignment.warmup_sessions else "measure"


def _count_gaps(tally: Tally, reply: Reply) -> None:
    """Inter-token latencies, and the one that spans the switch to the main decoder."""
    stamps = reply.token_stamps
    for earlier, later in pairwise(stamps):
        tally.itl.add(later - earlier)
    switch = reply.switch_index
    if switch is not None and 0 < switch < len(stamps):
        tally.handoff_gap.add(stamps[switch] - stamps[switch - 1])


def _ids(reply: Reply) -> list[int] | None:
    """The output ids, where every token came with one."""
    return reply.ids if reply.ids and not reply.ids_missing else None
