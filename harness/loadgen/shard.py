"""One process's part of a run: the reactor, the client, the recorder and the replay, put together."""

from __future__ import annotations

import gc
import os
import platform
from typing import TYPE_CHECKING, Final

from gevent.event import Event

from harness.loadgen.assessment import Assessment, judge, spread, write_assessment
from harness.loadgen.client import Client, raise_file_limit
from harness.loadgen.dialect import Dialect
from harness.loadgen.frames import Opening
from harness.loadgen.instrument import Instrument
from harness.loadgen.job import loadgen_dir
from harness.loadgen.reactor import make_reactor, now_ns
from harness.loadgen.recording import Recording
from harness.loadgen.records import Assignment
from harness.loadgen.replay import Replay
from harness.loadgen.stamps import StampClock
from harness.loadgen.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.loadgen.job import LoadJob
    from workloads.replay import ReplaySession

_STAGE_NS: Final = 400_000_000  # how long a start may be put off to lay requests out
_GC_THRESHOLDS: Final = (20_000, 50, 1000)


class ShardRun:
    """Build it, `start` it, `wait` for it, `finish` it. Errors of callbacks come out of `wait`."""

    def __init__(self, job: LoadJob, assignment: Assignment, sessions: Sequence[ReplaySession]) -> None:
        self._job: Final = job
        self._assignment: Final = assignment
        self._error: BaseException | None = None
        self.started: Final = Event()
        self.over: Final = Event()
        self.interrupted = False
        self.stopping = False
        self.clock_offset_ms: float | None = None
        self.tally: Final = Tally()
        self.clock: Final = StampClock()
        raise_file_limit()
        dialect = Dialect(job)
        self._recording: Final = Recording(self._opening())
        self._reactor: Final = make_reactor(self._failed)
        self._client: Final = Client(job, dialect.address, self._reactor, self.clock)
        self._recording.attach(self._reactor)
        self._instrument: Final = Instrument(
            self._reactor,
            self.clock,
            self.tally,
            assignment.shard,
            refresh=self.refresh,
            on_sample=self._recording.write,
        )
        self._replay: Final = Replay(
            job,
            assignment,
            sessions,
            dialect=dialect,
            reactor=self._reactor,
            client=self._client,
            instrument=self._instrument,
            tally=self.tally,
            on_row=self._recording.write,
            on_over=self.over.set,
        )
        self.t0_ns = 0

    def stage(self) -> None:
        """Lay out the first requests; afterwards the run can start at once."""
        self._replay.stage_ahead(now_ns() + _STAGE_NS)
        self._recording.wait_ready()
        # What lives now lives for the whole run: the collector need not look at it again, and a full
        # collection in the middle of a run would be a stall of tens of milliseconds.
        gc.collect()
        gc.freeze()
        gc.set_threshold(*_GC_THRESHOLDS)

    def start(self, t0_ns: int) -> None:
        """`t0_ns`: the schedule's zero on this process's monotonic clock."""
        self.t0_ns = t0_ns
        self._instrument.start()
        self._replay.start(t0_ns)
        self.started.set()

    def wait(self) -> None:
        """Until the run is over (its limits are in the job). Raises what a callback raised."""
        self.over.wait()
        if self._error is not None:
            raise self._error

    def stop(self, *, interrupted: bool) -> None:
        """Drain: the first Ctrl-C, or the master's word."""
        self.interrupted = self.interrupted or interrupted
        self.stopping = True
        self._replay.stop()

    def cut(self) -> None:
        """Give up what is on the wire: the second Ctrl-C."""
        self.interrupted = self.stopping = True
        self._replay.cut()

    def finish(self) -> Assessment:
        """Close the records and write the self-assessment beside them."""
        self.refresh()
        self._instrument.stop()
        ended_ns = now_ns()
        self._client.close()
        recorded = self._recording.close()
        self._reactor.close()
        tally = self.tally
        instrument = self._instrument
        clock_error_ms = self.clock.worst_error_ns / 1e6
        cpu_share_p90 = instrument.cpu_share(0.9)
        reasons = judge(
            self._job.bounds,
            lateness=tally.lateness,
            loop_lag=instrument.loop_lag,
            cpu_share_p90=cpu_share_p90,
            clock_error_ms=clock_error_ms,
            late_merges=tally.late_merges,
            token_events=tally.token_events,
        )
        first_sent_ns = self._replay.records.first_sent_ns
        assessment = Assessment(
            shard=self._assignment.shard,
            valid=not reasons,
            reasons=reasons,
            seed=self._job.seed,
            started_ns=self.clock.epoch_ns(self.t0_ns),
            first_sent_ns=None if first_sent_ns is None else self.clock.epoch_ns(first_sent_ns),
            ended_ns=self.clock.epoch_ns(ended_ns),
            interrupted=self.interrupted,
            planned_sessions=tally.planned_sessions,
            planned_requests=tally.planned_requests,
            started_sessions=tally.started_sessions,
            requests=dict(tally.by_status),
            not_sent=self._replay.not_sent,
            held=tally.held,
            errors=dict(tally.errors),
            lateness=spread(tally.lateness),
            loop_lag=spread(instrument.loop_lag),
            cpu_share_p50=instrument.cpu_share(0.5),
            cpu_share_p90=cpu_share_p90,
            clock_error_ms=clock_error_ms,
            clock_drift_ms=self.clock.drift_ns / 1e6,
            clock_offset_ms=self.clock_offset_ms,
            events=tally.events,
            token_events=tally.token_events,
            merged_reads=tally.merged_reads,
            late_merges=tally.late_merges,
            kernel_stamps=self.clock.kernel and self._replay.records.kernel_stamps,
            niceness=os.getpriority(os.PRIO_PROCESS, 0),
            connections=self._job.connections,
            recorded=recorded.requests,
            scrapes=recorded.scrapes,
            scrape_errors=recorded.scrape_errors,
            cpu_s=instrument.cpu_s,
            peak_rss_mib=instrument.peak_rss_bytes / (1 << 20),
        )
        write_assessment(assessment, loadgen_dir(self._job) / f"{self._assignment.shard}.json")
        return assessment

    def give_up(self) -> None:
        """After an error: leave the records as they are."""
        self._client.close()
        self._recording.kill()
        self._reactor.close()

    def _failed(self, error: BaseException) -> None:
        if self._error is None:
            self._error = error
            self.over.set()

    def refresh(self) -> None:
        """Bring the tally's counts of the client up to date."""
        self.tally.in_flight = self._client.in_flight
        self.tally.events = self._client.events
        self.tally.late_merges = self._client.late_merges

    def _opening(self) -> Opening:
        job = self._job
        anchor = self.clock.anchor
        return Opening(
            run_dir=str(job.run_dir),
            cell=job.cell,
            rep=job.rep,
            shard=self._assignment.shard,
            keep_output_ids=job.keep_output_ids,
            metadata={
                "clock_offset_ns": str(anchor.offset_ns),
                "clock_error_ns": str(anchor.error_ns),
                "connections": job.connections,
                "host": platform.node(),
            },
            scrape_endpoints=job.scrape.endpoints if self._assignment.shard.endswith("-0") else (),
            scrape_every_s=job.scrape.every_s,
        )
