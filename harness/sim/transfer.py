"""KV on its way between two workers: over the fabric inside a datacenter, over the pool across the WAN.

A transfer that follows a running prefill goes in pieces, one per chunk computed. Where workers export and
join KV between their steps, it goes in segments: each is exported at the end of the sender's step, when the
one before has left (inside a datacenter: has been joined), and joined at the end of the receiver's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from harness.policy import actions as act
from harness.policy.events import WorkId
from harness.policy.roles import TransferPurpose
from harness.sim.event_queue import EventQueue
from harness.sim.sequence import Sequence
from harness.sim.wan import Flow, WanPool
from harness.sim.worker import SimWorker

_HOST_NS: Final = 3_000_000
"""What a live worker's host takes for a segment: export, checksum, framing, and hops between its threads."""


class Transfer(msgspec.Struct, eq=False):
    """One transfer; `kv_bytes` of it have been handed to the link."""

    action: act.Transfer
    source: SimWorker
    target: SimWorker
    sent_to: int
    kv_bytes: int = 0
    under_way: int = 0
    flows: list[Flow] = msgspec.field(default_factory=list)
    copied: bool = False
    goal: int = 0
    """What may be sent by now."""


class Transfers:
    """Runs transfers; `done(transfer)` is called when the receiver has joined the last piece."""

    def __init__(
        self,
        queue: EventQueue,
        wan: WanPool,
        *,
        byte_scale: float,
        copy_s: float,
        segment_tokens: int | None,
        done: Callable[[Transfer], None],
    ) -> None:
        self._queue: Final = queue
        self._wan: Final = wan
        self._byte_scale: Final = byte_scale
        self._copy_ns: Final = round(copy_s * 1e9)
        self._segment_tokens: Final = segment_tokens
        self._done: Final = done
        self._running: dict[WorkId, Transfer] = {}

    def __contains__(self, work: object) -> bool:
        return work in self._running

    def start(self, action: act.Transfer, source: SimWorker, target: SimWorker) -> None:
        transfer = Transfer(action, source, target, action.p0)
        self._running[action.work] = transfer
        if source.away_ns:
            self._queue.at(self._queue.now_ns + source.away_ns, self._begin, transfer)
        else:
            self._begin(transfer)

    def _begin(self, transfer: Transfer) -> None:
        self._at(transfer.source, self._export, transfer)

    def _at(self, worker: SimWorker, call: Callable[[Transfer], None], transfer: Transfer) -> None:
        """When the worker can: it may be standing still, and in the middle of a step."""
        if worker.awake_ns > self._queue.now_ns:
            self._queue.at(worker.awake_ns, lambda _: self._at(worker, call, transfer), None)
        elif self._segment_tokens is None:
            call(transfer)
        elif worker.alive:
            worker.between_steps(call, transfer)

    def _export(self, transfer: Transfer) -> None:
        action = transfer.action
        if action.work not in self._running:
            return
        sequence = transfer.source.sequences.get(action.source_seq)
        if not action.follow or sequence is None or sequence.held >= action.p1:
            self._piece(transfer, action.p1)
            return
        self._grown(transfer, sequence, sequence.held)
        sequence.followers.append(lambda held: self._grown(transfer, sequence, held))

    def cancel(self, work: WorkId) -> int | None:
        """Bytes that had been sent; None when it cannot be stopped any more and ends by itself."""
        transfer = self._running[work]
        if transfer.source.cluster == transfer.target.cluster or transfer.copied:
            return None
        if (
            transfer.flows
            and all(flow.ended for flow in transfer.flows)
            and transfer.sent_to >= transfer.action.p1
        ):
            return None
        del self._running[work]
        under_way = sum(flow.kv_bytes for flow in transfer.flows if not flow.ended)
        sent = sum(self._wan.cancel(flow) for flow in transfer.flows if not flow.ended)
        return transfer.kv_bytes - under_way + sent

    def demote(self, work: WorkId) -> None:
        transfer = self._running.get(work)
        for flow in transfer.flows if transfer else ():
            self._wan.demote(flow)

    def worker_lost(self, worker: SimWorker) -> None:
        """Whatever it sent or received ends without a word."""
        for work in [w for w, t in self._running.items() if worker in (t.source, t.target)]:
            for flow in self._running.pop(work).flows:
                if not flow.ended:
                    self._wan.cancel(flow)

    def _grown(self, transfer: Transfer, sequence: Sequence, held: int) -> None:
        upto = min(held, transfer.action.p1)
        if transfer.action.work in self._running and upto > transfer.sent_to:
            if upto >= transfer.action.p1:
                sequence.followers.clear()
            self._piece(transfer, upto)

    def _piece(self, transfer: Transfer, goal: int) -> None:
        transfer.goal = upto = goal
        if self._segment_tokens is not None:
            upto = min(goal, transfer.sent_to + self._segment_tokens)
        deployment = transfer.source.costs
        if upto >= transfer.action.p1:
            size = deployment.kv_bytes(transfer.sent_to, upto)
        else:
            size = (upto - transfer.sent_to) * deployment.kv_bytes_per_token
        kv_bytes = max(1, round(size * self._byte_scale))
        transfer.sent_to = upto
        transfer.kv_bytes += kv_bytes
        transfer.under_way += 1
        if transfer.source.cluster == transfer.target.cluster:
            transfer.source.port.send(kv_bytes, self._landed, transfer)
        else:
            left = None if upto == goal else self._left
            transfer.flows.append(self._wan.start(kv_bytes, self._crossed, transfer, left))

    def _left(self, flow: Flow) -> None:
        self._next_segment(flow.argument)

    def _next_segment(self, transfer: Transfer) -> None:
        self._at(transfer.source, self._segment, transfer)

    def _segment(self, transfer: Transfer) -> None:
        if transfer.action.work in self._running and transfer.sent_to < transfer.goal:
            self._piece(transfer, transfer.goal)

    def _crossed(self, flow: Flow) -> None:
        transfer = flow.argument
        assert isinstance(transfer, Transfer)
        if self._copy_ns and transfer.action.purpose is TransferPurpose.HANDOFF:
            transfer.copied = True
            self._queue.at(self._queue.now_ns + self._copy_ns, self._landed, transfer)
        else:
            self._landed(transfer)

    def _landed(self, transfer: Transfer) -> None:
        if self._segment_tokens is None:
            self._received(transfer)
        else:
            self._queue.at(self._queue.now_ns + _HOST_NS, self._received, transfer)

    def _received(self, transfer: Transfer) -> None:
        self._at(transfer.target, self._join, transfer)

    def _join(self, transfer: Transfer) -> None:
        transfer.under_way -= 1
        if transfer.action.work not in self._running:
            return
        if transfer.sent_to < transfer.goal:
            if transfer.source.cluster == transfer.target.cluster:
                self._next_segment(transfer)
        elif transfer.under_way == 0 and transfer.sent_to >= transfer.action.p1:
            del self._running[transfer.action.work]
            transfer.target.imported(transfer.action.target_seq, transfer.action.p1)
            self._done(transfer)
