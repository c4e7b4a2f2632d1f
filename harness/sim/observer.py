"""Who writes down what happens in a simulation. The driver tells, the observer decides what to keep."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from harness.policy import actions as act
from harness.policy import events as ev
from harness.sim.session import Session, Turn

if TYPE_CHECKING:
    from harness.sim.request import SimRequest
    from harness.sim.wan import WanPool
    from harness.sim.worker import SimWorker


class Observer(Protocol):
    """All instants are virtual, from 0."""

    wants_decisions: bool
    """Whether `decided` is to be called, which costs more than all the rest."""

    def decided(self, now_ns: int, event: ev.Event, actions: tuple[act.Action, ...]) -> None:
        """One step of the policy."""
        ...

    def ended(self, request: SimRequest) -> None:
        """A request has its end for the client, and owns nothing any more."""
        ...

    def unsent(self, session: Session, turn: Turn, now_ns: int, error: str, *, warmup: bool) -> None:
        """A turn will never be sent."""
        ...

    def sample(self, now_ns: int, workers: Sequence[SimWorker], wan: WanPool) -> None:
        """The state of workers and line at one instant."""
        ...
