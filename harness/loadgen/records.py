"""From an exchange that has ended to its row, and to the running counts."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from harness.loadgen.exchange import Exchange, Status
from harness.loadgen.frames import RequestRow

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.loadgen.instrument import Instrument
    from harness.loadgen.job import LoadJob
    from harness.loadgen.reply import Reply
    from harness.loadgen.sessions import Due
    from harness.loadgen.stage import Live
    from harness.loadgen.stamps import StampClock
    from harness.loadgen.tally import Tally
    from workloads.replay import ReplayTurn


class Assignment(NamedTuple):
    """Which part of the run this process does."""

    shard: str
    live_sessions: int | None  # closed loop: this shard's share
    warmup_sessions: int


class Records:
    """Writes the rows of one shard; `t0_ns` is set when the run starts."""

    def __init__(
        self,
        job: LoadJob,
        assignment: Assignment,
        clock: StampClock,
        tally: Tally,
        instrument: Instrument,
        *,
        secret: str | None,
        on_row: Callable[[RequestRow], None],
    ) -> None:
        self.prefix: Final = f"{job.cell}/{job.rep}/"
        self._assignment: Final = assignment
        self._clock: Final = clock
        self._tally: Final = tally
        self._instrument: Final = instrument
        self._secret: Final = secret
        self._on_row: Final = on_row
        self._warmup_ns: Final = round(job.warmup.seconds * 1e9)
        self._count_gaps: Final = job.web is not None
        self.t0_ns = 0
        self.first_sent_ns: int | None = None
        self.kernel_stamps = True

    def ended(self, live: Live, due: Due, prompt_tokens: int, exchange: Exchange, error: str | None) -> None:
        """A request that was given to the client has come to its end."""
        reply = exchange.reply
        sent_ns = exchange.sent_ns
        epoch = self._clock.anchor.offset_ns
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
        if self._secret is not None and error is not None:
            error = error.replace(self._secret, "[key]")
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
            if self._count_gaps:
                _count_gaps(tally, reply)
        self.kernel_stamps = self.kernel_stamps and (exchange.kernel or exchange.first_byte_ns is None)

        def at(instant_ns: int | None) -> int | None:
            return None if instant_ns is None else instant_ns + epoch

        name = live.trace_request(turn)
        self._on_row(
            RequestRow(
                request_id=self.prefix + name,
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
                clock_source="kernel" if exchange.kernel and self._clock.kernel else "user",
                merged_reads=reply.merged_reads,
                retries=exchange.retries,
                shard=self._assignment.shard,
            )
        )

    def unsent(self, live: Live, turn: ReplayTurn, at_ns: int, error: str) -> None:
        """A turn that could not be sent for want of what it builds on."""
        name = live.trace_request(turn)
        instant_ns = at_ns + self._clock.anchor.offset_ns
        self._tally.count_end(Status.UNFINISHED, error)
        self._on_row(
            RequestRow(
                request_id=self.prefix + name,
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
        early = due_ns - self.t0_ns < self._warmup_ns
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
