"""Locust's master, and its workers as a distributed run sees them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gevent.event import Event
from gevent.lock import BoundedSemaphore
from locust.rpc import Message
from locust.runners import MasterRunner

from harness.loadgen import messages as m

if TYPE_CHECKING:
    from harness.loadgen.assessment import Assessment
    from harness.loadgen.offset import Exchange
    from harness.loadgen.tally import Tally


class Seat:
    """A worker as the master sees it."""

    def __init__(self, client_id: str, name: str) -> None:
        self.client_id: Final = client_id
        self.name: Final = name
        self.exchanges: list[Exchange] = []
        self.heard: Final = Event()
        self.window: Final = BoundedSemaphore(m.WINDOW_PIECES)
        self.staged: Final = Event()
        self.pid = 0
        self.tally: Tally | None = None
        self.stopping = False
        self.assessment: Assessment | None = None
        self.folder = ""
        self.lost: str | None = None

    @property
    def ended(self) -> bool:
        return self.assessment is not None or self.lost is not None


class ReplayMaster(MasterRunner):
    """Locust's master, closed to workers that come when the sessions have been dealt out.

    Nor does it spawn users anew when a worker goes: the sessions it had cannot be taken up by another.
    """

    full = False
    spawned = False

    def start(self, *arguments: Any, **options: Any) -> None:
        if not self.spawned:
            self.spawned = True
            super().start(*arguments, **options)

    def handle_message(self, client_id: str, msg: Message) -> None:
        if msg.type == "client_ready" and self.full and client_id not in self.clients:
            self.send_message("ack", client_id=client_id, data={"index": -1})
            refusal = m.Refused("all sessions have been dealt out; late workers are not taken")
            self.server.send_to_client(Message(m.REFUSED, m.pack(refusal), client_id))  # type: ignore[no-untyped-call]
            return
        super().handle_message(client_id, msg)
