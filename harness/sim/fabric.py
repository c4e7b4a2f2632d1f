"""The fast link inside a datacenter: each worker's adapter sends one KV range after another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.costs.deployment import Deployment
from harness.sim.event_queue import EventQueue


class FabricPort:
    """The sending side of one worker."""

    __slots__ = ("_costs", "_free_ns", "_queue")

    def __init__(self, queue: EventQueue, costs: Deployment) -> None:
        self._queue = queue
        self._costs = costs
        self._free_ns = 0

    def send(self, kv_bytes: int, done: Callable[[Any], None], argument: object) -> None:
        """Call `done(argument)` when the bytes have arrived."""
        start_ns = max(self._queue.now_ns, self._free_ns)
        self._free_ns = start_ns + round(self._costs.fabric_s(kv_bytes) * 1e9)
        self._queue.at(self._free_ns, done, argument)
