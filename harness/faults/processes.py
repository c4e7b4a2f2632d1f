"""Faults of processes: signals and limits. Applying and clearing are idempotent, and nothing on the dead."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import sys
from typing import TYPE_CHECKING, assert_never

from harness.faults.kinds import ProcessFault, RecordDiskFull, WorkerKill, WorkerPause, WorkerSlowdown
from harness.faults.surroundings import FaultError

if TYPE_CHECKING:
    from harness.faults.surroundings import Surroundings


class AfflictedProcess:
    """One process fault, applied to the process that bears its target's name when it is applied."""

    def __init__(self, fault: ProcessFault, surroundings: Surroundings) -> None:
        self._fault = fault
        self._surroundings = surroundings
        self._pid: int | None = None
        self._cycling: asyncio.Task[None] | None = None
        self._limits: tuple[int, int] = (0, 0)

    async def apply(self) -> None:
        """FaultError when there is no such process, or this system cannot do it."""
        if self._pid is not None:
            return
        pid = self._surroundings.pid(self._fault.target)
        match self._fault:
            case WorkerKill():
                _signal(pid, signal.SIGKILL)
            case WorkerPause():
                _signal(pid, signal.SIGSTOP)
            case WorkerSlowdown():
                self._cycling = asyncio.create_task(_stop_and_go(pid, self._fault))
            case RecordDiskFull():
                self._limits = _limit_files(pid, None)
            case _:
                assert_never(self._fault)
        self._pid = pid

    async def clear(self) -> None:
        if self._pid is None:
            return
        pid, self._pid = self._pid, None
        match self._fault:
            case WorkerKill():
                pass
            case WorkerPause():
                _signal(pid, signal.SIGCONT)
            case WorkerSlowdown():
                assert self._cycling is not None
                self._cycling.cancel()
                await asyncio.wait([self._cycling])
                _signal(pid, signal.SIGCONT)
            case RecordDiskFull():
                _limit_files(pid, self._limits)
            case _:
                assert_never(self._fault)


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


async def _stop_and_go(pid: int, fault: WorkerSlowdown) -> None:
    """By the clock, so that late wake-ups do not add up to another share."""
    loop = asyncio.get_running_loop()
    period_s = fault.period_ms / 1000
    begin = loop.time()
    while True:
        _signal(pid, signal.SIGSTOP)
        await asyncio.sleep(begin + fault.share * period_s - loop.time())
        _signal(pid, signal.SIGCONT)
        begin += period_s
        await asyncio.sleep(begin - loop.time())


def _limit_files(pid: int, limits: tuple[int, int] | None) -> tuple[int, int]:
    """Let the process write no more to any file (None), or as before; answers the limits it had."""
    if sys.platform != "linux":
        raise FaultError("fault record_disk_full: needs Linux (prlimit)")
    try:
        had = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, limits or (0, had[1]))
    except ProcessLookupError:
        return (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    return had
