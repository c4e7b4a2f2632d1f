"""The Locust side of a process: the user that replays a shard, the runner that counts sessions as users."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from locust import User, constant, task
from locust.env import Environment
from locust.exception import StopUser
from locust.runners import LocalRunner

if TYPE_CHECKING:
    from harness.loadgen.shard import ShardRun

START_DELAY_NS: Final = 5_000_000  # from the word to the schedule's zero


class ReplayEnvironment(Environment):
    """Locust's environment, and the run that its user replays."""

    shard_run: ShardRun | None = None
    t0_ns: int | None = None  # the schedule's zero on the monotonic clock; None: at once


class ReplayUser(User):
    """One per process: replays all sessions of its shard; its greenlet sleeps while the reactor works.

    A greenlet per session would wake late by the length of gevent's run queue; the reactor's callbacks
    do not. Locust's user count is made to show live sessions instead.
    """

    wait_time = constant(0)
    environment: ReplayEnvironment

    @task
    def replay(self) -> None:
        run = self.environment.shard_run
        assert run is not None
        if run.started.is_set():  # Locust spawns users anew when a worker is lost
            run.over.wait()
            raise StopUser
        # Decided here, after all that Locust does to start a user: it takes tens of milliseconds.
        run.start(self.environment.t0_ns or time.monotonic_ns() + START_DELAY_NS)
        run.over.wait()
        raise StopUser

    def on_stop(self) -> None:
        """Also the Stop button of the web interface: drain."""
        run = self.environment.shard_run
        assert run is not None
        run.stop(interrupted=not run.over.is_set())


class ReplayRunner(LocalRunner):
    """Locust's local runner, with live sessions as its users."""

    environment: ReplayEnvironment

    @property
    def user_count(self) -> int:
        run = self.environment.shard_run
        return run.tally.live_sessions if run is not None else 0
