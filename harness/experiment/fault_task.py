"""The faults of one cell while it is under load: applied, recorded, and always cleared."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from pathlib import Path

from adapters.links import check
from harness.clock import Anchor
from harness.experiment.surroundings import CellSurroundings
from harness.faults import Fault, FaultError, FaultSchedule
from harness.link import Link, LinkProfile
from reports.schema import FAULTS
from reports.writer import TableWriter


class FaultTask:
    """Started with the load, ended with it; `error` says in one line what could not be applied."""

    def __init__(
        self,
        faults: Sequence[Fault],
        surroundings: CellSurroundings,
        run_dir: Path,
        cell: str,
        rep: int,
        *,
        seed: int,
        anchor: Anchor,
    ) -> None:
        self.error: str | None = None
        self._surroundings = surroundings
        self._writer = TableWriter(run_dir, FAULTS, cell=cell, rep=rep, shard="runner")
        self._schedule = FaultSchedule(faults, seed=seed, anchor=anchor, record=self._writer.write)
        self._task: asyncio.Task[None] | None = None

    @property
    def shaped(self) -> Sequence[LinkProfile]:
        """The link profiles that faults have put in force."""
        return self._schedule.shaped

    def check(self, link: Link) -> None:
        """LinkError or FaultError for a fault that the link cannot do: before the load, not amid it."""
        for profile in self._schedule.profiles(self._surroundings.profile):
            check(link.description.driver, profile)

    def start(self, start_ns: int) -> None:
        """`start_ns` is the zero of the load's schedule, epoch."""
        self._task = asyncio.create_task(self._run(start_ns), name="faults")

    async def aclose(self) -> None:
        """Clear what still holds and finish the record."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        self._writer.close()

    async def _run(self, start_ns: int) -> None:
        try:
            await self._schedule.run(self._surroundings, start_ns)
        except FaultError as error:
            self.error = str(error)
