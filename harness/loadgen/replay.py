"""Replays one shard's sessions: what is due is sent, what ended makes the next turns due, all is recorded.

Everything here runs in callbacks of the reactor. Session starts are open-loop on the absolute schedule
`t0 + start`; the turns of a session are closed-loop unless the job says `every_turn`.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from harness.loadgen.conversation import ConversationError
from harness.loadgen.exchange import Exchange, Status
from harness.loadgen.job import ClosedLoop, EveryTurn
from harness.loadgen.reactor import Reactor, Timer, now_ns
from harness.loadgen.records import Assignment, Records
from harness.loadgen.sessions import Due
from harness.loadgen.stage import Live, Stage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from harness.loadgen.client import Client
    from harness.loadgen.dialect import Dialect
    from harness.loadgen.frames import RequestRow
    from harness.loadgen.instrument import Instrument
    from harness.loadgen.job import Cancellation, LoadJob
    from harness.loadgen.tally import Tally
    from workloads.replay import ReplaySession, ReplayTurn

_NO_TIME: Final = 1 << 62


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
        self._reactor: Final = reactor
        self._client: Final = client
        self._tally: Final = tally
        self._on_over: Final = on_over
        self.records: Final = Records(
            job, assignment, client.clock, tally, instrument, secret=dialect.secret, on_row=on_row
        )
        self._stage: Final = Stage(sessions, dialect, reactor, self.records.prefix)
        self._every_turn: Final = isinstance(job.arrivals, EveryTurn)
        self._closed: Final = isinstance(job.arrivals, ClosedLoop)
        self._t0_ns = 0
        self._stop_ns = _NO_TIME
        self._stopping = False
        self._over = False
        self._timers: set[Timer] = set()
        self._unsent_due = 0
        self._live: set[Live] = set()
        tally.planned_sessions = len(sessions)
        tally.planned_requests = sum(len(session.turns) for session in sessions)

    # -- starting sessions -----------------------------------------------------------------------------

    def stage_ahead(self, until_ns: int) -> None:
        """Lay out the first requests of as many sessions as room and time (until `until_ns`) allow."""
        self._stage.fill(until_ns)

    def start(self, t0_ns: int) -> None:
        """Begin: offsets of the plan count from `t0_ns` (monotonic)."""
        self._t0_ns = self.records.t0_ns = t0_ns
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
        if self._stage.empty:
            self._check_over()
            return
        start_ns = self._t0_ns + self._stage.next_start_ns()
        self._timer(start_ns, lambda: self._start_due(start_ns))

    def _start_due(self, start_ns: int) -> None:
        self._start_session(start_ns)
        self._await_next_start()

    def _start_session(self, start_ns: int) -> None:
        if self._stopping or self._stage.empty:
            return
        live = self._stage.take()
        self._live.add(live)
        self._tally.started_sessions += 1
        self._tally.live_sessions += 1
        for due in live.turns.start(start_ns):
            self._schedule(live, self._recorded(due))
        self._stage.refill()

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
            self._stage.lay_out(live, due.turn)
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
        draw = hashlib.blake2b(f"{self._job.seed}/{live.trace_request(turn)}/cancel".encode(), digest_size=8)
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
        self.records.ended(live, due, prompt_tokens, exchange, error)
        self._check_session(live)

    def _fail(self, live: Live, turn: ReplayTurn, at_ns: int) -> None:
        """The turns that need this one's answer are counted, not silently gone."""
        for abandoned in live.turns.failed(turn.turn):
            live.conversation.forget(abandoned)
            if self._stopping:
                self._unsent_due += 1
            else:
                self.records.unsent(live, abandoned, at_ns, "an earlier turn of the session failed")

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
        return self._unsent_due + self._stage.unsent

    def _check_over(self) -> None:
        if self._over or self._live or self._client.in_flight:
            return
        if self._stopping or self._stage.empty:
            self._over = True
            self._on_over()
