"""A distributed run: shards the sessions over workers, starts them together, merges their last words.

Built on Locust's master: its heartbeats tell who is alive, its spawn message starts the replay. Workers
write their own records; what comes here is a few kB a second from each.
"""

from __future__ import annotations

import hashlib
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import gevent
import msgspec
from locust.rpc import Message
from locust.runners import STATE_MISSING

from harness.loadgen import messages as m
from harness.loadgen.assessment import Assessment, write_assessment
from harness.loadgen.job import ClosedLoop, LoadJob, MasterOptions, encode_job, loadgen_dir, shard_name
from harness.loadgen.merge import MERGED, merge_assessments
from harness.loadgen.offset import Exchange, Offset, estimate_offset
from harness.loadgen.plan import read_plan_of
from harness.loadgen.progress import Announcer, Finished, ProgressMeter, Started, Warned
from harness.loadgen.seats import ReplayMaster, Seat
from harness.loadgen.tally import Tally
from harness.loadgen.user import ReplayEnvironment, ReplayUser
from workloads.replay import ReplayPlan, shard_of, write_plan

CLOCK_EXCHANGES: Final = 16
START_DELAY_S: Final = 1.0  # Locust needs about that to spawn a user on each worker
_CLOCK_S: Final = 10.0
_STAGE_S: Final = 300.0
_FINISH_S: Final = 120.0
_TICK_S: Final = 0.2
_PROGRESS_S: Final = 1.0


class DistributedError(RuntimeError):
    """The workers could not do the run; one line."""


def run_distributed(job: LoadJob, announcer: Announcer) -> Assessment:
    """Run `job` on `job.processes` local workers, or on those that join `job.master`."""
    plan = read_plan_of(job)
    options = job.master or MasterOptions(workers=job.processes, port=0)
    master = _Master(job, options, announcer)
    try:
        return master.run(plan)
    finally:
        master.close()


class _Master:
    def __init__(self, job: LoadJob, options: MasterOptions, announcer: Announcer) -> None:
        self._job: Final = job
        self._options: Final = options
        self._announcer: Final = announcer
        self._shards: dict[str, Seat] = {}
        self._joined: list[str] = []
        self._offsets: dict[str, Offset] = {}
        self._error: Exception | None = None
        self._interrupts = 0
        self._processes: list[subprocess.Popen[bytes]] = []
        self._environment: Final = ReplayEnvironment(user_classes=[ReplayUser])
        self._environment.events.worker_connect.add_listener(self._on_connect)  # type: ignore[no-untyped-call]
        host = "*" if options.host in {"0.0.0.0", "::", "*"} else options.host  # noqa: S104 - the user's word
        self._runner: Final = ReplayMaster(self._environment, host, options.port)
        self._environment.runner = self._runner
        self._port: Final[int] = self._runner.server.port
        listeners: tuple[tuple[str, type[msgspec.Struct], Callable[[Seat, Any], None]], ...] = (
            (m.CLOCK_ANSWER, m.ClockAnswer, self._on_clock),
            (m.PLAN_TAKEN, m.PlanTaken, self._on_taken),
            (m.STAGED, m.Staged, self._on_staged),
            (m.TALLY, m.TallyReport, self._on_tally),
            (m.DONE, m.Done, self._on_done),
            (m.FAILED, m.WorkerFailed, self._on_failed),
        )
        for name, kind, handler in listeners:
            self._runner.register_message(name, self._listener(kind, handler))
        gevent.signal_handler(signal.SIGINT, self._on_interrupt)
        gevent.signal_handler(signal.SIGTERM, self._on_interrupt)

    # -- the run ---------------------------------------------------------------------------------------

    def run(self, plan: ReplayPlan) -> Assessment:
        if self._job.master is None:
            self._start_local_workers()
        else:
            self._announcer.say(
                Warned(
                    f"waiting for {self._options.workers} workers: pddbench worker --master-host HOST "
                    f"--master-port {self._port}"
                )
            )
        self._await_workers()
        gevent.joinall([gevent.spawn(self._deal, shard, plan) for shard in self._shards.values()])
        self._check()
        t0_ns = self._start()
        self._watch(t0_ns)
        return self._finish()

    def _start_local_workers(self) -> None:
        for _ in range(self._options.workers):
            command = [sys.executable, "-m", "harness.loadgen.join", "127.0.0.1", str(self._port), "--local"]
            # A group of its own: Ctrl-C reaches the master, which tells the workers once.
            self._processes.append(
                subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True
                )
            )

    def _await_workers(self) -> None:
        deadline = time.monotonic() + self._options.join_s
        limit_s = self._options.join_s
        while (joined := len(self._joined)) < self._options.workers:
            if time.monotonic() > deadline:
                raise DistributedError(
                    f"{joined} of {self._options.workers} workers joined within {limit_s:g} s"
                )
            self._check()
            if any(process.poll() is not None for process in self._processes):
                raise DistributedError("a local worker ended before it joined")
            gevent.sleep(0.02)
        self._runner.full = True
        for number, client_id in enumerate(self._joined[: self._options.workers]):
            self._shards[client_id] = Seat(client_id, shard_name(number))

    def _deal(self, shard: Seat, plan: ReplayPlan) -> None:
        try:
            offset = self._measure_offset(shard)
            self._send_shard(shard, plan, offset)
            self._await_staged(shard)
        except (DistributedError, OSError) as error:
            self._error = self._error or error

    def _measure_offset(self, shard: Seat) -> Offset:
        for _ in range(CLOCK_EXCHANGES):
            shard.heard.clear()
            self._tell(shard, m.CLOCK, m.Clock(time.time_ns()))
            if not shard.heard.wait(_CLOCK_S):
                raise DistributedError(f"{shard.name} did not answer within {_CLOCK_S:g} s")
        return estimate_offset(shard.exchanges)

    def _send_shard(self, shard: Seat, plan: ReplayPlan, offset: Offset) -> None:
        shards = len(self._shards)
        index = list(self._shards.values()).index(shard)
        sessions = [s for s in plan.sessions if shard_of(s.session_id, shards) == index]
        warm = sum(
            shard_of(s.session_id, shards) == index for s in plan.sessions[: self._job.warmup.sessions]
        )
        live: int | None = None
        if isinstance(self._job.arrivals, ClosedLoop):
            total = self._job.arrivals.sessions
            live = total // shards + (index < total % shards)
        data = _plan_bytes(ReplayPlan(plan.header, tuple(sessions)))
        pieces = [data[at : at + m.PIECE_BYTES] for at in range(0, len(data), m.PIECE_BYTES)]
        self._offsets[shard.client_id] = offset
        self._tell(
            shard,
            m.ASSIGN,
            m.Assign(
                job=encode_job(self._job),
                shard=shard.name,
                live_sessions=live,
                warmup_sessions=warm,
                plan_pieces=len(pieces),
                plan_sha256=hashlib.sha256(data).hexdigest(),
                clock_offset_ns=offset.applied_ns,
                clock_error_ns=offset.error_ns,
            ),
        )
        for number, piece in enumerate(pieces):
            if not shard.window.acquire(timeout=_STAGE_S):
                raise DistributedError(f"{shard.name} took no piece of the plan for {_STAGE_S:g} s")
            self._tell(shard, m.PLAN, m.PlanPiece(number, piece))

    @staticmethod
    def _await_staged(shard: Seat) -> None:
        if not shard.staged.wait(_STAGE_S):
            raise DistributedError(f"{shard.name} was not ready within {_STAGE_S:g} s")

    def _start(self) -> int:
        t0_ns = time.time_ns() + round(START_DELAY_S * 1e9)
        for shard in self._shards.values():
            self._tell(shard, m.START, m.Start(t0_ns + self._offsets[shard.client_id].applied_ns))
        users = len(self._shards)
        gevent.spawn(self._runner.start, users, spawn_rate=users)
        self._announcer.say(Started(t0_ns, users))
        return t0_ns

    def _watch(self, t0_ns: int) -> None:
        """Until every shard has ended or is lost."""
        meter = ProgressMeter(t0_ns, self._job.limits.duration_s)
        web = None
        if self._job.web is not None:
            from harness.loadgen.web import LiveWeb  # noqa: PLC0415 - Flask and its pages, for those who ask

            web = LiveWeb(self._environment, self._job.web, self._announcer)
        told = time.monotonic()
        while not all(shard.ended for shard in self._shards.values()):
            gevent.sleep(_TICK_S)
            self._look_for_lost()
            if time.monotonic() - told >= _PROGRESS_S:
                told = time.monotonic()
                tally = self._tally()
                alive = [shard for shard in self._shards.values() if shard.lost is None]
                draining = any(shard.stopping for shard in alive)
                self._announcer.say(
                    meter.read(
                        tally,
                        time.time_ns(),
                        draining=draining,
                        workers=len(alive),
                        lost=len(self._shards) - len(alive),
                    )
                )
                if web is not None:
                    web.update(tally)
        if web is not None:
            web.update(self._tally())
            web.close()

    def _look_for_lost(self) -> None:
        dead = {process.pid for process in self._processes if process.poll() is not None}
        for shard in self._shards.values():
            if shard.ended:
                continue
            client = self._runner.clients.get(shard.client_id)
            gone = client is None or client.state == STATE_MISSING
            if gone or shard.pid in dead:
                done = shard.tally.done if shard.tally else 0
                flying = shard.tally.in_flight if shard.tally else 0
                shard.lost = (
                    f"worker lost after about {done} requests, {flying} in flight; what it recorded is kept"
                )
                self._announcer.say(Warned(f"{shard.name}: {shard.lost}"))

    def _finish(self) -> Assessment:
        shards = self._shards.values()
        done = [shard.assessment for shard in shards if shard.assessment is not None]
        lost = {shard.name: shard.lost for shard in shards if shard.lost is not None}
        if not done:
            raise DistributedError("all workers were lost: " + "; ".join(lost.values()))
        folder = loadgen_dir(self._job)
        for assessment in done:
            write_assessment(assessment, folder / f"{assessment.shard}.json")
        merged = merge_assessments(done, self._tally(), lost, interrupted=self._interrupts > 0)
        write_assessment(merged, folder / f"{MERGED}.json")
        elsewhere = {shard.folder for shard in shards if shard.folder} - {str(self._job.run_dir)}
        if elsewhere:
            folders = ", ".join(sorted(elsewhere))
            told = f"records of workers lie in {folders}: copy them into {self._job.run_dir}"
            self._announcer.say(Warned(told))
        self._announcer.say(
            Finished(
                str(folder / f"{MERGED}.json"),
                merged.valid,
                merged.reasons,
                merged.requests,
                merged.interrupted,
            )
        )
        return merged

    def close(self) -> None:
        """End the local workers and Locust's greenlets."""
        for shard in self._shards.values():
            self._tell(shard, m.LEAVE, m.Leave())
        deadline = time.monotonic() + (_FINISH_S if self._error is None else 5.0)
        while any(p.poll() is None for p in self._processes) and time.monotonic() < deadline:
            gevent.sleep(0.02)
        for process in self._processes:
            if process.poll() is None:
                process.kill()
            process.wait()
        self._runner.greenlet.kill(block=False)

    def _tally(self) -> Tally:
        total = Tally()
        for shard in self._shards.values():
            if shard.tally is not None:
                total.merge(shard.tally)
        return total

    # -- messages --------------------------------------------------------------------------------------

    def _tell(self, shard: Seat, name: str, message: msgspec.Struct) -> None:
        self._runner.server.send_to_client(Message(name, m.pack(message), shard.client_id))  # type: ignore[no-untyped-call]

    def _listener(
        self, kind: type[msgspec.Struct], handler: Callable[[Seat, Any], None]
    ) -> Callable[..., None]:
        def listen(environment: object, msg: Any) -> None:  # noqa: ARG001 - Locust calls with these names
            shard = self._shards.get(msg.node_id)
            if shard is None:
                return
            try:
                handler(shard, m.unpack(msg.data, kind))
            except Exception as error:  # noqa: BLE001 - Locust would log it and go on
                self._error = self._error or error

        return listen

    def _on_connect(self, client_id: str) -> None:
        if client_id not in self._joined:
            self._joined.append(client_id)

    def _on_clock(self, shard: Seat, answer: m.ClockAnswer) -> None:
        shard.exchanges.append(Exchange(answer.asked_ns, answer.worker_ns, time.time_ns()))
        shard.heard.set()

    def _on_taken(self, shard: Seat, _taken: m.PlanTaken) -> None:
        shard.window.release()

    def _on_staged(self, shard: Seat, staged: m.Staged) -> None:
        shard.pid = staged.pid
        shard.staged.set()

    def _on_tally(self, shard: Seat, report: m.TallyReport) -> None:
        shard.tally = msgspec.msgpack.decode(report.tally, type=Tally)
        shard.stopping = report.stopping

    def _on_done(self, shard: Seat, done: m.Done) -> None:
        shard.tally = msgspec.msgpack.decode(done.tally, type=Tally)
        shard.assessment = msgspec.json.decode(done.assessment, type=Assessment)
        shard.folder = done.folder
        self._tell(shard, m.LEAVE, m.Leave())

    def _on_failed(self, shard: Seat, failed: m.WorkerFailed) -> None:
        if shard.staged.is_set():
            shard.lost = f"worker failed: {failed.message}"
            self._announcer.say(Warned(f"{shard.name}: {shard.lost}"))
        else:
            self._error = self._error or DistributedError(f"{shard.name}: {failed.message}")
            shard.staged.set()

    def _on_interrupt(self) -> None:
        self._interrupts += 1
        if not self._runner.full:
            self._error = self._error or DistributedError("interrupted before the start")
        for shard in self._shards.values():
            if not shard.ended:
                self._tell(shard, m.STOP, m.Stop(cut=self._interrupts > 1))

    def _check(self) -> None:
        if self._error is not None:
            raise self._error


def _plan_bytes(plan: ReplayPlan) -> bytes:
    with tempfile.TemporaryDirectory(prefix="pddbench-") as folder:
        path = Path(folder) / "shard.plan"
        write_plan(plan, path)
        return path.read_bytes()
