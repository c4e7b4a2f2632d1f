"""A worker of a distributed run: joins a master, takes a shard of the sessions, records it here."""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import gevent
import msgspec
from gevent.event import Event
from locust.rpc import Message
from locust.runners import WorkerRunner
from locust.stats import RequestStats

from harness.loadgen import messages as m
from harness.loadgen.assessment import Assessment
from harness.loadgen.job import LoadJob, decode_job
from harness.loadgen.records import Assignment
from harness.loadgen.shard import ShardRun
from harness.loadgen.user import ReplayEnvironment, ReplayUser
from workloads.replay import read_plan

ASSIGN_S: Final = 300.0  # from joining to the master's assignment
START_S: Final = 300.0  # from being ready to the master's start
_LEAVE_S: Final = 10.0
_REPORT_S: Final = 1.0


class WorkerError(RuntimeError):
    """The worker cannot take part; one line."""


class JoiningRunner(WorkerRunner):
    """Locust's worker runner, listening to our messages before it joins: a refusal comes at once."""

    def __init__(
        self, environment: ReplayEnvironment, host: str, port: int, listeners: dict[str, Callable[..., None]]
    ) -> None:
        self._listeners: Final = listeners
        environment.runner = self
        super().__init__(environment, host, port)

    def connect_to_master(self) -> None:
        for name, listener in self._listeners.items():
            if name not in self.custom_messages:
                self.register_message(name, listener)
        super().connect_to_master()  # type: ignore[no-untyped-call]


class Worker:
    """One worker process's dealings with its master."""

    def __init__(
        self, host: str, port: int, *, run_dir: Path | None, join_s: float, parent: int | None
    ) -> None:
        """Joins. Raises WorkerError when no master answers within `join_s`."""
        self._run_dir: Final = run_dir
        self._parent: Final = parent
        self._assign: m.Assign | None = None
        self._pieces: dict[int, bytes] = {}
        self._assigned: Final = Event()
        self._word: Final = Event()  # start, stop or refusal
        self._left: Final = Event()
        self._error: Exception | None = None
        self._run: ShardRun | None = None
        self._environment: Final = ReplayEnvironment(user_classes=[ReplayUser])
        self._environment.parsed_options = Namespace(
            web_base_path=""
        )  # Locust would read its own config files
        self._environment.events.report_to_master.add_listener(self._count_sessions_as_users)  # type: ignore[no-untyped-call]
        handlers: tuple[tuple[str, type[msgspec.Struct], Callable[[Any], None]], ...] = (
            (m.CLOCK, m.Clock, self._on_clock),
            (m.ASSIGN, m.Assign, self._on_assign),
            (m.PLAN, m.PlanPiece, self._on_piece),
            (m.START, m.Start, self._on_start),
            (m.STOP, m.Stop, self._on_stop),
            (m.REFUSED, m.Refused, self._on_refused),
            (m.LEAVE, m.Leave, self._on_leave),
        )
        listeners = {name: self._listener(kind, handler) for name, kind, handler in handlers}
        self._environment.stats = RequestStats(use_response_times_cache=False)
        try:
            with gevent.Timeout(join_s):
                JoiningRunner(self._environment, host, port, listeners)
        except (gevent.Timeout, ConnectionError):
            raise WorkerError(f"no master answered at {host}:{port} within {join_s:g} s") from None

    @property
    def _runner(self) -> JoiningRunner:
        """The environment has it before it joins: the master may ask for the clock within the handshake."""
        runner = self._environment.runner
        assert isinstance(runner, JoiningRunner)
        return runner

    def serve(self) -> tuple[Assessment, Path]:
        """Do the master's bidding to the end. Raises WorkerError or JobError; the master is told."""
        try:
            return self._serve()
        except Exception as error:
            self._tell(m.FAILED, m.WorkerFailed(f"{error}"))
            gevent.sleep(0)
            if self._run is not None:
                self._run.give_up()
            raise

    def _serve(self) -> tuple[Assessment, Path]:
        self._await(self._assigned, ASSIGN_S, "no assignment from the master")
        assert self._assign is not None
        job = self._job(self._assign)
        assignment = Assignment(self._assign.shard, self._assign.live_sessions, self._assign.warmup_sessions)
        sessions = self._read_shard(self._assign)
        run = self._run = ShardRun(job, assignment, sessions)
        run.clock_offset_ms = self._assign.clock_offset_ns / 1e6
        self._on_interrupt(run)
        run.stage()
        self._environment.shard_run = run
        self._tell(m.STAGED, m.Staged(os.getpid()))
        self._await(self._word, START_S, "no start from the master")
        reporter = gevent.spawn(self._report, run)
        run.wait()
        reporter.kill()
        assessment = run.finish()
        self._tell(
            m.DONE,
            m.Done(msgspec.json.encode(assessment), msgspec.msgpack.encode(run.tally), str(job.run_dir)),
        )
        self._left.wait(_LEAVE_S)
        return assessment, job.run_dir

    def _job(self, assign: m.Assign) -> LoadJob:
        job = decode_job(assign.job, "the master's job")
        return job if self._run_dir is None else msgspec.structs.replace(job, run_dir=self._run_dir)

    def _read_shard(self, assign: m.Assign) -> list[Any]:
        data = b"".join(self._pieces[index] for index in range(assign.plan_pieces))
        self._pieces.clear()
        if hashlib.sha256(data).hexdigest() != assign.plan_sha256:
            raise WorkerError("the plan arrived damaged (sha256 differs)")
        with tempfile.NamedTemporaryFile(prefix="pddbench-", suffix=".plan") as file:
            file.write(data)
            file.flush()
            return list(read_plan(file.name).sessions)

    # -- what the master says --------------------------------------------------------------------------

    def _listener(self, kind: type[msgspec.Struct], handler: Callable[[Any], None]) -> Callable[..., None]:
        def listen(environment: object, msg: Any) -> None:  # noqa: ARG001 - Locust calls with these names
            try:
                handler(m.unpack(msg.data, kind))
            except Exception as error:  # noqa: BLE001 - Locust would log it and go on
                self._fail(error)

        return listen

    def _on_clock(self, clock: m.Clock) -> None:
        self._tell(m.CLOCK_ANSWER, m.ClockAnswer(clock.asked_ns, time.time_ns()))

    def _on_assign(self, assign: m.Assign) -> None:
        self._assign = assign
        self._check_assigned()

    def _on_piece(self, piece: m.PlanPiece) -> None:
        self._pieces[piece.index] = piece.data
        self._tell(m.PLAN_TAKEN, m.PlanTaken(piece.index))
        self._check_assigned()

    def _check_assigned(self) -> None:
        if self._assign is not None and len(self._pieces) == self._assign.plan_pieces:
            self._assigned.set()

    def _on_start(self, start: m.Start) -> None:
        assert self._run is not None
        self._environment.t0_ns = self._run.clock.anchor.monotonic_ns(start.t0_ns)
        self._word.set()

    def _on_stop(self, stop: m.Stop) -> None:
        if self._run is None:
            self._fail(WorkerError("stopped by the master before the start"))
        elif stop.cut:
            self._run.cut()
        else:
            self._run.stop(interrupted=True)

    def _on_refused(self, refused: m.Refused) -> None:
        self._fail(WorkerError(f"refused by the master: {refused.message}"))

    def _on_leave(self, _leave: m.Leave) -> None:
        self._left.set()

    def _fail(self, error: Exception) -> None:
        self._error = self._error or error
        self._assigned.set()
        self._word.set()
        if self._run is not None:
            self._run.over.set()

    # -- what the worker says --------------------------------------------------------------------------

    def _tell(self, name: str, message: msgspec.Struct) -> None:
        self._runner.client.send(Message(name, m.pack(message), self._runner.client_id))  # type: ignore[no-untyped-call]

    def _report(self, run: ShardRun) -> None:
        while True:
            gevent.sleep(_REPORT_S)
            run.refresh()
            self._tell(m.TALLY, m.TallyReport(msgspec.msgpack.encode(run.tally), run.stopping))
            if self._parent is not None and os.getppid() != self._parent and not run.stopping:
                run.stop(interrupted=True)  # the master that started this process is gone

    def _count_sessions_as_users(self, client_id: str, data: dict[str, Any]) -> None:  # noqa: ARG002
        if self._run is not None and self._run.started.is_set():
            data["user_count"] = self._run.tally.live_sessions
            data["user_classes_count"] = {ReplayUser.__name__: self._run.tally.live_sessions}

    def _await(self, event: Event, limit_s: float, what: str) -> None:
        deadline = time.monotonic() + limit_s
        while not event.wait(1.0):
            if time.monotonic() > deadline:
                raise WorkerError(f"{what} within {limit_s:g} s")
            if self._parent is not None and os.getppid() != self._parent:
                raise WorkerError("the master is gone")
        if self._error is not None:
            raise self._error

    @staticmethod
    def _on_interrupt(run: ShardRun) -> None:
        def interrupted() -> None:
            if run.interrupted:
                run.cut()
            else:
                run.stop(interrupted=True)

        gevent.signal_handler(signal.SIGINT, interrupted)
        gevent.signal_handler(signal.SIGTERM, interrupted)

    def close(self) -> None:
        """Leave the master."""
        with contextlib.suppress(Exception):
            self._environment.events.quitting.fire(environment=self._environment)  # type: ignore[no-untyped-call]
        self._runner.greenlet.kill(block=False)
