"""Replays small plans in the test's own process: the real reactor, client and replay; rows go into a list."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import gevent
from gevent.event import Event

from harness.loadgen.client import Client
from harness.loadgen.dialect import Dialect
from harness.loadgen.frames import RequestRow
from harness.loadgen.instrument import Instrument
from harness.loadgen.job import ClosedLoop, LoadJob, Target
from harness.loadgen.reactor import HubReactor, make_reactor, now_ns
from harness.loadgen.records import Assignment
from harness.loadgen.replay import Replay
from harness.loadgen.stamps import StampClock
from harness.loadgen.tally import Tally


def job_for(port: int, *, scheme: str = "http", api: str = "pdd", **changes) -> LoadJob:
    target = changes.pop("target", None) or Target(f"{scheme}://127.0.0.1:{port}", api=api)
    return LoadJob(
        target=target, plan=Path("unused"), run_dir=Path("unused"), cell="c", rep=0, seed=7, **changes
    )


@dataclass
class Outcome:
    rows: list[RequestRow]
    tally: Tally
    replay: Replay

    def by_turn(self) -> dict[tuple[str, int], RequestRow]:
        return {(row.session_id, row.turn): row for row in self.rows}


def run_replay(
    job: LoadJob,
    sessions: list,
    *,
    during: Callable[[Replay], None] | None = None,
    hub_reactor: bool = False,
    kernel: bool | None = None,
    timeout_s: float = 20.0,
) -> Outcome:
    """Replay to the end; `during` runs in a greenlet meanwhile. Errors of callbacks are raised here."""
    errors: list[BaseException] = []
    over = Event()

    def failed(error: BaseException) -> None:
        errors.append(error)
        over.set()

    reactor = HubReactor(failed) if hub_reactor else make_reactor(failed)
    clock = StampClock(kernel=kernel)
    tally = Tally()
    rows: list[RequestRow] = []
    dialect = Dialect(job)
    client = Client(job, dialect.address, reactor, clock)
    instrument = Instrument(reactor, clock, tally, "t-0", refresh=lambda: None, on_sample=lambda _: None)
    live = job.arrivals.sessions if isinstance(job.arrivals, ClosedLoop) else None
    sessions = sorted(sessions, key=lambda session: session.start_ns)
    replay = Replay(
        job, Assignment("t-0", live, job.warmup.sessions), sessions, dialect=dialect, reactor=reactor,
        client=client,
        instrument=instrument, tally=tally, on_row=rows.append, on_over=over.set,
    )  # fmt: skip
    replay.stage_ahead(now_ns() + 10**9)
    instrument.start()
    replay.start(now_ns() + 2_000_000)
    side = gevent.spawn(during, replay) if during else None
    finished = over.wait(timeout_s)
    instrument.stop()
    client.close()
    reactor.close()
    if side is not None:
        side.kill()
    if errors:
        raise errors[0]
    assert finished, f"not over after {timeout_s} s: {tally}"
    return Outcome(rows, tally, replay)
