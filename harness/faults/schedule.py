"""Applies an experiment's faults on time, clears them whatever happens, and says when each really held."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec

from harness.faults.kinds import Fault, LinkFault, ProcessFault, WorkerKill
from harness.faults.line import FaultyLine, distorted
from harness.faults.processes import AfflictedProcess
from harness.faults.surroundings import FaultError
from harness.link import LinkError, LinkProfile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.clock import Anchor
    from harness.faults.surroundings import Surroundings

CLEAR_TIMEOUT_S: Final = 15.0

Row = Mapping[str, Any]
"""Of reports.schema.FAULTS."""


class FaultSchedule:
    """The faults of one cell and repetition."""

    def __init__(
        self, faults: Sequence[Fault], *, seed: int, anchor: Anchor, record: Callable[[Row], None]
    ) -> None:
        self._faults = tuple(faults)
        self._seed = seed
        self._anchor = anchor
        self._record = record
        self._line: FaultyLine | None = None

    @property
    def shaped(self) -> Sequence[LinkProfile]:
        """The profiles that faults have put in force so far, the faultless one among them."""
        return () if self._line is None else tuple(self._line.shaped.values())

    def profiles(self, profile: LinkProfile) -> list[LinkProfile]:
        """The profile under each of the link's faults, to ask the driver about before the load starts.

        FaultError for a fault that does not fit the profile.
        """
        return [distorted(profile, [fault]) for fault in self._faults if isinstance(fault, LinkFault)]

    async def run(self, surroundings: Surroundings, start_ns: int) -> None:
        """Until the last fault is cleared. `start_ns`: the start of the load, epoch.

        Cancelling clears what holds. FaultError when a fault cannot be applied, after all have been cleared;
        its row says so as well.
        """
        line = FaultyLine(surroundings.link, surroundings.profile) if surroundings.link else None
        self._line = line
        try:
            async with asyncio.TaskGroup() as group:
                for index, fault in enumerate(self._faults):
                    course = _Course(fault, self._anchor, start_ns, self._record)
                    rng = random.Random(f"{self._seed} {index}")
                    group.create_task(_follow(course, line, surroundings, rng))
        except* FaultError as errors:
            raise errors.exceptions[0] from None


@dataclass
class _Course:
    """One fault's planned and actual times, and its row."""

    fault: Fault
    anchor: Anchor
    start_ns: int
    record: Callable[[Row], None]
    planned: tuple[float, float | None] | None = None
    applied_ns: int | None = None
    cleared_ns: int | None = None
    error: str | None = field(default=None)

    async def until(self, offset_s: float) -> None:
        """By the monotonic clock, whatever the time of day is set to meanwhile."""
        due_ns = self.anchor.monotonic_ns(self.start_ns + round(offset_s * 1e9))
        await asyncio.sleep(max(0.0, (due_ns - time.monotonic_ns()) / 1e9))

    def now_ns(self) -> int:
        return self.anchor.epoch_ns(time.monotonic_ns())

    def write(self) -> None:
        begin, end = self.planned or (self.fault.at_s, None)
        parameters = msgspec.to_builtins(self.fault)
        for known in ("kind", "name", "at_s"):
            parameters.pop(known, None)
        self.record(
            {
                "fault": self.fault.label,
                "kind": self.fault.kind,
                "target": self.fault.target,
                "parameters": msgspec.json.encode(parameters).decode(),
                "planned_start_ns": self.start_ns + round(begin * 1e9),
                "applied_ns": self.applied_ns,
                "planned_end_ns": None if end is None else self.start_ns + round(end * 1e9),
                "cleared_ns": self.cleared_ns,
                "error": self.error,
            }
        )


async def _follow(
    course: _Course, line: FaultyLine | None, surroundings: Surroundings, rng: random.Random
) -> None:
    fault = course.fault
    try:
        if isinstance(fault, LinkFault):
            await _follow_on_link(course, fault, line, rng)
        else:
            await _follow_on_process(course, fault, surroundings)
    except (FaultError, LinkError) as error:
        course.error = str(error)
        raise FaultError(str(error)) from None
    finally:
        course.write()


async def _follow_on_process(course: _Course, fault: ProcessFault, surroundings: Surroundings) -> None:
    afflicted = AfflictedProcess(fault, surroundings)
    end_s = None if isinstance(fault, WorkerKill) else fault.at_s + fault.duration_s
    course.planned = (fault.at_s, end_s)
    await course.until(fault.at_s)
    try:
        await afflicted.apply()
        course.applied_ns = course.now_ns()
        if end_s is not None:
            await course.until(end_s)
    finally:
        await _clear(afflicted.clear())
        if end_s is not None and course.applied_ns is not None:
            course.cleared_ns = course.now_ns()


async def _follow_on_link(
    course: _Course, fault: LinkFault, line: FaultyLine | None, rng: random.Random
) -> None:
    if line is None:
        raise FaultError(f"fault {fault.label}: there is no link: every worker is in one cluster")
    windows = fault.windows(rng)
    course.planned = (windows[0][0], windows[-1][1])
    for begin, end in windows:
        await course.until(begin)
        try:
            await line.switch_on(fault)
            course.applied_ns = course.applied_ns or course.now_ns()
            await course.until(end)
        finally:
            await _clear(line.switch_off(fault))
            if course.applied_ns is not None:
                course.cleared_ns = course.now_ns()


async def _clear(work: Coroutine[None, None, None]) -> None:
    """To its end, also while this task is being cancelled."""
    await asyncio.shield(asyncio.wait_for(work, CLEAR_TIMEOUT_S))
