"""A run in this process alone: Locust's local runner as the frame."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING, Final

import gevent

from harness.loadgen.job import ClosedLoop, loadgen_dir, shard_name
from harness.loadgen.plan import read_plan_of
from harness.loadgen.progress import Announcer, Finished, ProgressMeter, Started
from harness.loadgen.records import Assignment
from harness.loadgen.shard import ShardRun
from harness.loadgen.user import ReplayEnvironment, ReplayRunner, ReplayUser

if TYPE_CHECKING:
    from harness.loadgen.assessment import Assessment
    from harness.loadgen.job import LoadJob
    from harness.loadgen.web import LiveWeb

PROGRESS_S: Final = 1.0


def run_local(job: LoadJob, announcer: Announcer) -> Assessment:
    """Replay the whole plan. Raises what went wrong; Ctrl-C once drains, twice stops."""
    sessions = read_plan_of(job).sessions
    live = job.arrivals.sessions if isinstance(job.arrivals, ClosedLoop) else None
    run = ShardRun(job, Assignment(shard_name(0), live, job.warmup.sessions), sessions)
    _on_interrupt(run)
    try:
        run.stage()
        environment = ReplayEnvironment(user_classes=[ReplayUser])
        environment.shard_run = run
        environment.runner = runner = ReplayRunner(environment)
        runner.start(1, spawn_rate=1)
        web = _open_web(job, environment, announcer)
        watcher = gevent.spawn(_report, job, run, announcer, web)
        run.wait()
        watcher.kill()
        if web is not None:
            web.close()
        assessment = run.finish()
        runner.quit()
    except BaseException:
        run.give_up()
        raise
    announcer.say(
        Finished(
            str(loadgen_dir(job) / f"{assessment.shard}.json"),
            assessment.valid,
            assessment.reasons,
            assessment.requests,
            assessment.interrupted,
        )
    )
    return assessment


def _report(job: LoadJob, run: ShardRun, announcer: Announcer, web: LiveWeb | None) -> None:
    run.started.wait()
    announcer.say(Started(run.clock.epoch_ns(run.t0_ns), 1))
    meter = ProgressMeter(run.t0_ns, job.limits.duration_s)
    while True:
        gevent.sleep(PROGRESS_S)
        run.refresh()
        if web is not None:
            web.update(run.tally)
        announcer.say(meter.read(run.tally, time.monotonic_ns(), draining=run.stopping))


def _open_web(job: LoadJob, environment: ReplayEnvironment, announcer: Announcer) -> LiveWeb | None:
    if job.web is None:
        return None
    from harness.loadgen.web import LiveWeb  # noqa: PLC0415 - Flask and its pages, for those who ask

    return LiveWeb(environment, job.web, announcer)


def _on_interrupt(run: ShardRun) -> None:
    def interrupted() -> None:
        if run.interrupted:
            run.cut()
        else:
            run.stop(interrupted=True)

    gevent.signal_handler(signal.SIGINT, interrupted)
    gevent.signal_handler(signal.SIGTERM, interrupted)
