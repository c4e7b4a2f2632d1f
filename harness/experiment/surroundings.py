"""What the faults of a running cell may act on: its link, and its processes by name."""

from __future__ import annotations

from harness.experiment.processes.child import Child
from harness.faults import FaultError
from harness.link import Link, LinkProfile


class CellSurroundings:
    """See `harness.faults.Surroundings`. Children are added as they start."""

    def __init__(self, profile: LinkProfile) -> None:
        self.profile = profile
        self.link: Link | None = None
        self._children: dict[str, Child] = {}

    def add(self, child: Child) -> None:
        self._children[child.name] = child

    def pid(self, process: str) -> int:
        child = self._children.get(process)
        if child is None:
            raise FaultError(f"no process {process!r} in this cell; there are {', '.join(self._children)}")
        return child.pid
