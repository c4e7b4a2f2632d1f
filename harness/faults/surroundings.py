"""What a fault may act on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from harness.link import Link, LinkProfile


class FaultError(RuntimeError):
    """One line: which fault could not be applied, and why."""


class Surroundings(Protocol):
    """The running cell."""

    @property
    def link(self) -> Link | None:
        """None when every worker is in one cluster."""
        ...

    @property
    def profile(self) -> LinkProfile:
        """Of the link without faults."""
        ...

    def pid(self, process: str) -> int:
        """Of a worker, 'router' or 'loadgen' by name. FaultError listing the names there are."""
        ...
