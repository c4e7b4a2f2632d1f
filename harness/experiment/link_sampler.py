"""Samples the link into the run's records while a cell is under load."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import msgspec

from harness.link import Link, LinkSample
from reports.schema import LINK_SAMPLES
from reports.writer import TableWriter

_PERIOD_S: Final = 0.2


class LinkSampler:
    """Runs as a task until cancelled; `samples` keeps what was seen, for the verdict on the link."""

    def __init__(self, link: Link, run_dir: Path, cell: str, rep: int) -> None:
        self._link = link
        self._writer = TableWriter(run_dir, LINK_SAMPLES, cell=cell, rep=rep, shard="runner")
        self.samples: list[LinkSample] = []

    async def run(self) -> None:
        try:
            while True:
                for sample in await self._link.sample():
                    self.samples.append(sample)
                    self._writer.write(msgspec.structs.asdict(sample))
                self._writer.tick()
                await asyncio.sleep(_PERIOD_S)
        finally:
            self._writer.close()
